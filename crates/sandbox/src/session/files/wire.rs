//! The protocol between the server and a sandbox's file helper: each request has one answer,
//! matched by an id. Long data goes through a pipe that is sent with the request.

use std::ffi::CString;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};

/// Largest message in either direction: an attribute's value or list of names, which the kernel
/// bounds at 64 KiB (`XATTR_SIZE_MAX`), and a path.
pub(crate) const FRAME_BYTES_MAX: usize = 80 << 10;
/// Longest path; the kernel's own maximum (`PATH_MAX`) with its NUL.
pub(crate) const PATH_BYTES_MAX: usize = 4095;
/// Longest record in a pipe: a path of [`LIST_DEPTH_MAX`] names, and a link's target.
pub(crate) const RECORD_BYTES_MAX: usize = 24 << 10;
/// Largest depth of a listing.
pub(crate) const LIST_DEPTH_MAX: u32 = 64;

/// Maximum number of short requests that run concurrently; more wait in the server.
pub(crate) const QUICK_MAX: usize = 8;
/// Maximum number of concurrent requests that walk trees.
pub(crate) const TREES_MAX: usize = 8;
/// Maximum number of concurrent archives.
pub(crate) const ARCHIVES_MAX: usize = 4;
/// Maximum number of watches, including those that are about to end.
pub(crate) const WATCHERS_MAX: usize = 32;

/// First byte of an answer.
pub(crate) mod answer {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
}

/// Class of a request, which determines its concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    Quick,
    Tree,
    Archive,
    Watch,
}

/// Request of the server. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileRequest {
    Stat {
        path: CString,
        follow: bool,
    },
    /// The helper writes the entries to the pipe.
    List {
        path: CString,
        depth: u32,
        limit: u64,
    },
    Read {
        path: CString,
    },
    /// Opens an unnamed file in its future directory.
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
    /// The helper writes events to the stream, after an empty record that marks the start of the
    /// watch. Each byte that it reads from the stream requests a mark. The answer comes at the end.
    Watch {
        path: CString,
        recursive: bool,
    },
    /// The helper writes an archive to the pipe.
    Export {
        path: CString,
    },
    /// The helper reads an archive from the pipe.
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
    /// Without a value the attribute is removed.
    SetAttribute {
        path: CString,
        name: CString,
        value: Option<Vec<u8>>,
    },
    Usage {
        path: CString,
    },
    /// Cancels the request with this id. Has no answer.
    Cancel,
}

impl FileRequest {
    pub(crate) fn class(&self) -> RequestClass {
        match self {
            FileRequest::List { .. } | FileRequest::Remove { .. } | FileRequest::Usage { .. } => {
                RequestClass::Tree
            }
            FileRequest::Rename { .. } => RequestClass::Tree,
            FileRequest::Export { .. } | FileRequest::Import { .. } => RequestClass::Archive,
            FileRequest::Watch { .. } => RequestClass::Watch,
            FileRequest::Stat { .. }
            | FileRequest::Read { .. }
            | FileRequest::Write { .. }
            | FileRequest::Finish { .. }
            | FileRequest::Append { .. }
            | FileRequest::MakeDir { .. }
            | FileRequest::Chmod { .. }
            | FileRequest::ListAttributes { .. }
            | FileRequest::GetAttribute { .. }
            | FileRequest::SetAttribute { .. }
            | FileRequest::Cancel => RequestClass::Quick,
        }
    }

    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let begin =
            |kind: u8, path: &CString| MessageWriter::new(kind).u64(id).bytes(path.to_bytes());
        let w = match self {
            FileRequest::Stat { path, follow } => begin(1, path).u8((*follow).into()),
            FileRequest::List { path, depth, limit } => begin(2, path).u32(*depth).u64(*limit),
            FileRequest::Read { path } => begin(3, path),
            FileRequest::Write { path, parents, create } => {
                begin(4, path).u8((*parents).into()).u8((*create).into())
            }
            FileRequest::Finish { path, create } => begin(5, path).u8((*create).into()),
            FileRequest::Append { path, parents } => begin(6, path).u8((*parents).into()),
            FileRequest::MakeDir { path, parents } => begin(7, path).u8((*parents).into()),
            FileRequest::Rename { from, to } => begin(8, from).bytes(to.to_bytes()),
            FileRequest::Remove { path, recursive } => begin(9, path).u8((*recursive).into()),
            FileRequest::Chmod { path, mode } => begin(10, path).u32(*mode),
            FileRequest::Watch { path, recursive } => begin(11, path).u8((*recursive).into()),
            FileRequest::Export { path } => begin(12, path),
            FileRequest::Import { path } => begin(13, path),
            FileRequest::ListAttributes { path } => begin(14, path),
            FileRequest::GetAttribute { path, name } => begin(15, path).bytes(name.to_bytes()),
            FileRequest::SetAttribute { path, name, value } => {
                let w = begin(16, path).bytes(name.to_bytes()).u8(value.is_some().into());
                w.bytes(value.as_deref().unwrap_or(&[]))
            }
            FileRequest::Usage { path } => begin(17, path),
            FileRequest::Cancel => MessageWriter::new(18).u64(id),
        };
        w.finish()
    }

    /// Decodes a message of [`FileRequest::encode`].
    pub(crate) fn decode(message: &[u8]) -> Result<(u64, FileRequest), MalformedMessage> {
        let r = &mut MessageReader(message);
        let (kind, id) = (r.u8()?, r.u64()?);
        if kind == 18 {
            return end(r, id, FileRequest::Cancel);
        }
        let path = string(r)?;
        let request = match kind {
            1 => FileRequest::Stat { path, follow: flag(r)? },
            2 => FileRequest::List { path, depth: r.u32()?, limit: r.u64()? },
            3 => FileRequest::Read { path },
            4 => FileRequest::Write { path, parents: flag(r)?, create: flag(r)? },
            5 => FileRequest::Finish { path, create: flag(r)? },
            6 => FileRequest::Append { path, parents: flag(r)? },
            7 => FileRequest::MakeDir { path, parents: flag(r)? },
            8 => FileRequest::Rename { from: path, to: string(r)? },
            9 => FileRequest::Remove { path, recursive: flag(r)? },
            10 => FileRequest::Chmod { path, mode: r.u32()? },
            11 => FileRequest::Watch { path, recursive: flag(r)? },
            12 => FileRequest::Export { path },
            13 => FileRequest::Import { path },
            14 => FileRequest::ListAttributes { path },
            15 => FileRequest::GetAttribute { path, name: string(r)? },
            16 => {
                let (name, is_some, value) = (string(r)?, flag(r)?, r.bytes()?);
                let value = is_some.then(|| value.to_vec());
                FileRequest::SetAttribute { path, name, value }
            }
            17 => FileRequest::Usage { path },
            _ => return Err(MalformedMessage),
        };
        end(r, id, request)
    }
}

fn string(r: &mut MessageReader<'_>) -> Result<CString, MalformedMessage> {
    CString::new(r.bytes()?).map_err(|_| MalformedMessage)
}

fn flag(r: &mut MessageReader<'_>) -> Result<bool, MalformedMessage> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(MalformedMessage),
    }
}

fn end(
    r: &MessageReader<'_>,
    id: u64,
    request: FileRequest,
) -> Result<(u64, FileRequest), MalformedMessage> {
    if r.0.is_empty() { Ok((id, request)) } else { Err(MalformedMessage) }
}

/// A request that failed: an errno, and an optional explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRefusal {
    pub(crate) errno: i32,
    pub(crate) detail: Vec<u8>,
}

/// Maximum length of an explanation; it can name a path.
pub(crate) const DETAIL_BYTES_MAX: usize = 1024;

/// Encodes an answer without its descriptors.
pub(crate) fn encode_answer(id: u64, result: &Result<Vec<u8>, FileRefusal>) -> Vec<u8> {
    match result {
        Ok(payload) => MessageWriter::new(answer::DONE).u64(id).bytes(payload).finish(),
        Err(FileRefusal { errno, detail }) => {
            let detail = detail.get(..DETAIL_BYTES_MAX).unwrap_or(detail);
            MessageWriter::new(answer::FAILED)
                .u64(id)
                .u32(errno.cast_unsigned())
                .bytes(detail)
                .finish()
        }
    }
}

/// Decodes a message of [`encode_answer`].
pub(crate) fn decode_answer(
    message: &[u8],
) -> Result<(u64, Result<Vec<u8>, FileRefusal>), MalformedMessage> {
    let r = &mut MessageReader(message);
    let (kind, id) = (r.u8()?, r.u64()?);
    let result = match kind {
        answer::DONE => Ok(r.bytes()?.to_vec()),
        answer::FAILED => Err(FileRefusal { errno: r.i32()?, detail: r.bytes()?.to_vec() }),
        _ => return Err(MalformedMessage),
    };
    if r.0.is_empty() { Ok((id, result)) } else { Err(MalformedMessage) }
}

/// Encodes a record of a pipe: its length and its bytes.
pub(crate) fn record(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&len.to_le_bytes(), bytes].concat()
}

/// First byte of a mark: all events before its request have been sent.
pub(crate) const MARK: u8 = 7;

/// Encodes a mark in a watch's events: the number of marks requested so far.
pub(crate) fn mark(number: u64) -> Vec<u8> {
    let mut bytes = vec![MARK];
    bytes.extend_from_slice(&number.to_le_bytes());
    record(&bytes)
}

/// Decodes the number of a mark; None for other records.
pub(crate) fn mark_of(record: &[u8]) -> Option<u64> {
    match record {
        [MARK, number @ ..] => number.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// Takes a record from the front of the bytes read from a pipe; `None` while it is incomplete.
pub(crate) fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, MalformedMessage> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| MalformedMessage)?;
    if len > RECORD_BYTES_MAX {
        return Err(MalformedMessage);
    }
    let Some((record, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(record))
}
