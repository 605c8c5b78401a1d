//! The bytes between the server and a sandbox's file helper: one request, one answer, matched by
//! an id. Whatever is long goes through a pipe that comes with the request.

use std::ffi::CString;

use crate::codec::{Malformed, Reader, Writer};

/// Largest message in either direction: an attribute's value or list of names, which the kernel
/// bounds at 64 KiB (`XATTR_SIZE_MAX`), and a path.
pub(crate) const FRAME_BYTES_MAX: usize = 80 << 10;
/// Longest path; the kernel's own maximum (`PATH_MAX`) with its NUL.
pub(crate) const PATH_BYTES_MAX: usize = 4095;
/// Longest record in a pipe: a path of [`LIST_DEPTH_MAX`] names, and a link's target.
pub(crate) const RECORD_BYTES_MAX: usize = 24 << 10;
/// How far below a directory a listing may go.
pub(crate) const LIST_DEPTH_MAX: u32 = 64;

/// Short requests that run at a time; more wait in the server.
pub(crate) const QUICK_MAX: usize = 8;
/// Requests that walk trees, likewise.
pub(crate) const TREES_MAX: usize = 8;
/// Archives, likewise.
pub(crate) const ARCHIVES_MAX: usize = 4;
/// Watches, with those that are about to end.
pub(crate) const WATCHERS_MAX: usize = 32;

/// First byte of an answer.
pub(crate) mod answer {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
}

/// Which bound a request counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Quick,
    Tree,
    Archive,
    Watch,
}

/// What the server asks. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Stat {
        path: CString,
        follow: bool,
    },
    /// Entries go into the pipe.
    List {
        path: CString,
        depth: u32,
        limit: u64,
    },
    Read {
        path: CString,
    },
    /// A nameless file, and the directory that it is to be in.
    Write {
        path: CString,
        parents: bool,
        create: bool,
    },
    /// Gives that file its name.
    Finish {
        path: CString,
        create: bool,
    },
    Append {
        path: CString,
        parents: bool,
    },
    MakeDir {
        path: CString,
        parents: bool,
    },
    Rename {
        from: CString,
        to: CString,
    },
    Remove {
        path: CString,
        recursive: bool,
    },
    Chmod {
        path: CString,
        mode: u32,
    },
    /// Events go into the stream, after an empty record that says that nothing is missed any more.
    /// Each byte that comes from it asks for a mark. The answer comes at the end.
    Watch {
        path: CString,
        recursive: bool,
    },
    /// An archive goes into the pipe.
    Export {
        path: CString,
    },
    /// An archive comes from the pipe.
    Import {
        path: CString,
    },
    ListAttributes {
        path: CString,
    },
    GetAttribute {
        path: CString,
        name: CString,
    },
    /// Without a value it is taken away.
    SetAttribute {
        path: CString,
        name: CString,
        value: Option<Vec<u8>>,
    },
    Usage {
        path: CString,
    },
    /// The request with this id is not needed any more. No answer.
    Cancel,
}

impl Request {
    pub(crate) fn class(&self) -> Class {
        match self {
            Request::List { .. } | Request::Remove { .. } | Request::Usage { .. } => Class::Tree,
            Request::Rename { .. } => Class::Tree,
            Request::Export { .. } | Request::Import { .. } => Class::Archive,
            Request::Watch { .. } => Class::Watch,
            Request::Stat { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::Finish { .. }
            | Request::Append { .. }
            | Request::MakeDir { .. }
            | Request::Chmod { .. }
            | Request::ListAttributes { .. }
            | Request::GetAttribute { .. }
            | Request::SetAttribute { .. }
            | Request::Cancel => Class::Quick,
        }
    }

    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let begin = |kind: u8, path: &CString| Writer::new(kind).u64(id).bytes(path.to_bytes());
        let w = match self {
            Request::Stat { path, follow } => begin(1, path).u8((*follow).into()),
            Request::List { path, depth, limit } => begin(2, path).u32(*depth).u64(*limit),
            Request::Read { path } => begin(3, path),
            Request::Write { path, parents, create } => {
                begin(4, path).u8((*parents).into()).u8((*create).into())
            }
            Request::Finish { path, create } => begin(5, path).u8((*create).into()),
            Request::Append { path, parents } => begin(6, path).u8((*parents).into()),
            Request::MakeDir { path, parents } => begin(7, path).u8((*parents).into()),
            Request::Rename { from, to } => begin(8, from).bytes(to.to_bytes()),
            Request::Remove { path, recursive } => begin(9, path).u8((*recursive).into()),
            Request::Chmod { path, mode } => begin(10, path).u32(*mode),
            Request::Watch { path, recursive } => begin(11, path).u8((*recursive).into()),
            Request::Export { path } => begin(12, path),
            Request::Import { path } => begin(13, path),
            Request::ListAttributes { path } => begin(14, path),
            Request::GetAttribute { path, name } => begin(15, path).bytes(name.to_bytes()),
            Request::SetAttribute { path, name, value } => {
                let w = begin(16, path).bytes(name.to_bytes()).u8(value.is_some().into());
                w.bytes(value.as_deref().unwrap_or(&[]))
            }
            Request::Usage { path } => begin(17, path),
            Request::Cancel => Writer::new(18).u64(id),
        };
        w.finish()
    }

    /// Reads what [`Request::encode`] wrote.
    pub(crate) fn decode(message: &[u8]) -> Result<(u64, Request), Malformed> {
        let r = &mut Reader(message);
        let (kind, id) = (r.u8()?, r.u64()?);
        if kind == 18 {
            return end(r, id, Request::Cancel);
        }
        let path = string(r)?;
        let request = match kind {
            1 => Request::Stat { path, follow: flag(r)? },
            2 => Request::List { path, depth: r.u32()?, limit: r.u64()? },
            3 => Request::Read { path },
            4 => Request::Write { path, parents: flag(r)?, create: flag(r)? },
            5 => Request::Finish { path, create: flag(r)? },
            6 => Request::Append { path, parents: flag(r)? },
            7 => Request::MakeDir { path, parents: flag(r)? },
            8 => Request::Rename { from: path, to: string(r)? },
            9 => Request::Remove { path, recursive: flag(r)? },
            10 => Request::Chmod { path, mode: r.u32()? },
            11 => Request::Watch { path, recursive: flag(r)? },
            12 => Request::Export { path },
            13 => Request::Import { path },
            14 => Request::ListAttributes { path },
            15 => Request::GetAttribute { path, name: string(r)? },
            16 => {
                let (name, is_some, value) = (string(r)?, flag(r)?, r.bytes()?);
                let value = is_some.then(|| value.to_vec());
                Request::SetAttribute { path, name, value }
            }
            17 => Request::Usage { path },
            _ => return Err(Malformed),
        };
        end(r, id, request)
    }
}

fn string(r: &mut Reader<'_>) -> Result<CString, Malformed> {
    CString::new(r.bytes()?).map_err(|_| Malformed)
}

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn end(r: &Reader<'_>, id: u64, request: Request) -> Result<(u64, Request), Malformed> {
    if r.0.is_empty() { Ok((id, request)) } else { Err(Malformed) }
}

/// A request that could not be done: an errno, and more words where they help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    pub(crate) detail: Vec<u8>,
}

/// Bytes of a refusal's words; they can name a path.
pub(crate) const DETAIL_BYTES_MAX: usize = 1024;

/// An answer without its descriptors.
pub(crate) fn encode_answer(id: u64, result: &Result<Vec<u8>, Refusal>) -> Vec<u8> {
    match result {
        Ok(payload) => Writer::new(answer::DONE).u64(id).bytes(payload).finish(),
        Err(Refusal { errno, detail }) => {
            let detail = detail.get(..DETAIL_BYTES_MAX).unwrap_or(detail);
            Writer::new(answer::FAILED).u64(id).u32(errno.cast_unsigned()).bytes(detail).finish()
        }
    }
}

/// Reads what [`encode_answer`] wrote.
pub(crate) fn decode_answer(message: &[u8]) -> Result<(u64, Result<Vec<u8>, Refusal>), Malformed> {
    let r = &mut Reader(message);
    let (kind, id) = (r.u8()?, r.u64()?);
    let result = match kind {
        answer::DONE => Ok(r.bytes()?.to_vec()),
        answer::FAILED => Err(Refusal { errno: r.i32()?, detail: r.bytes()?.to_vec() }),
        _ => return Err(Malformed),
    };
    if r.0.is_empty() { Ok((id, result)) } else { Err(Malformed) }
}

/// A record in a pipe: its length, and itself.
pub(crate) fn record(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&len.to_le_bytes(), bytes].concat()
}

/// First byte of a record that says that all that had happened was told, when a mark was asked for.
pub(crate) const MARK: u8 = 7;

/// A mark in a watch's events: the number of marks that were asked for by then.
pub(crate) fn mark(number: u64) -> Vec<u8> {
    let mut bytes = vec![MARK];
    bytes.extend_from_slice(&number.to_le_bytes());
    record(&bytes)
}

/// Reads the number of a mark; none of what is no mark.
pub(crate) fn mark_of(record: &[u8]) -> Option<u64> {
    match record {
        [MARK, number @ ..] => number.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// Takes a record from the front of what has come from a pipe; `None` while it is not all there.
pub(crate) fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Malformed)?;
    if len > RECORD_BYTES_MAX {
        return Err(Malformed);
    }
    let Some((record, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(record))
}
