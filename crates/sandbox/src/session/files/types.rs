//! Types in the interface of [`SandboxFiles`](super::SandboxFiles).

use std::io;

use crate::codec::{MalformedMessage, MessageReader};

/// User id of the sandbox's user on its disk, and in entries.
pub(crate) const SHOWN_USER: u32 = 1000;

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe, a socket or a device.
    Other,
}

/// Metadata of a file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxFileEntry {
    /// The last part of the path. Bytes that are not UTF-8 are shown as U+FFFD, here and in the
    /// other strings.
    pub name: String,
    /// The absolute path inside the sandbox.
    pub path: String,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size of the content in bytes; for a link, of its target.
    pub size: u64,
    /// Permissions, the lower twelve bits.
    pub mode: u32,
    /// The owner: 1000 is the sandbox's user, 0 root, 65534 any other.
    pub uid: u32,
    /// The group, with the same meanings.
    pub gid: u32,
    /// Modification time, in nanoseconds since 1970; programs can set it.
    pub modified_ns: i64,
    /// Target of a link, as stored.
    pub symlink_target: Option<String>,
    /// The path with all links resolved, if that was requested.
    pub resolved: Option<String>,
}

impl SandboxFileEntry {
    /// Decodes the helper's answer about the entry at `path`.
    pub(super) fn decode(
        r: &mut MessageReader<'_>,
        path: &[u8],
    ) -> Result<SandboxFileEntry, MalformedMessage> {
        let kind = match r.u8()? {
            0 => EntryKind::File,
            1 => EntryKind::Dir,
            2 => EntryKind::Symlink,
            3 => EntryKind::Other,
            _ => return Err(MalformedMessage),
        };
        let (size, mode, uid, gid) = (r.u64()?, r.u32()? & 0o7777, r.u32()?, r.u32()?);
        let modified_ns = r.u64()?.cast_signed();
        let target = r.bytes()?;
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
        Ok(SandboxFileEntry {
            name: lossy(name.unwrap_or(b"/")),
            path: lossy(path),
            kind,
            size,
            mode,
            uid,
            gid,
            modified_ns,
            symlink_target: (kind == EntryKind::Symlink).then(|| lossy(target)),
            resolved: None,
        })
    }
}

/// Content of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryListing {
    /// Entries, sorted by path.
    pub entries: Vec<SandboxFileEntry>,
    /// True if there are more entries than requested, or than the maximum.
    pub cut: bool,
}

/// Treatment of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Is an error: [`FilesError::Exists`].
    Create,
    /// Is replaced atomically, when everything is written.
    Replace,
    /// Is kept; writes are appended immediately, not atomically.
    Append,
}

/// Treatment of missing parent directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParents {
    /// Are created.
    Make,
    /// Are an error: [`FilesError::NotFound`].
    Expect,
}

/// Depth of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDepth {
    /// Only the file or directory itself.
    Single,
    /// The directory with everything below it.
    Recursive,
}

/// Treatment of a link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Follow it.
    Links,
    /// Use the link itself.
    Nothing,
}

/// Kind of change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Created, or moved here.
    Create,
    /// Content changed.
    Write,
    /// Removed.
    Remove,
    /// Moved away from here; its new place is a separate event.
    Rename,
    /// Permissions, owner or times changed.
    Chmod,
    /// Events were lost, or not everything is watched: callers that need completeness must list
    /// again.
    Overflow,
}

/// An event of a [`Watch`](super::Watch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// Kind of change.
    pub kind: WatchKind,
    /// File that changed, relative to the watched directory; empty for the directory itself.
    pub path: String,
}

impl WatchEvent {
    pub(super) fn decode(frame: &[u8]) -> Result<WatchEvent, MalformedMessage> {
        let (kind, path) = frame.split_first().ok_or(MalformedMessage)?;
        let kind = match kind {
            1 => WatchKind::Create,
            2 => WatchKind::Write,
            3 => WatchKind::Remove,
            4 => WatchKind::Rename,
            5 => WatchKind::Chmod,
            6 => WatchKind::Overflow,
            _ => return Err(MalformedMessage),
        };
        Ok(WatchEvent { kind, path: String::from_utf8_lossy(path).into_owned() })
    }
}

/// Usage of the entries of an archive, or below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes: of imported content, or of disk space.
    pub bytes: u64,
}

/// Why an operation on a file failed.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Not found.
    #[error("not found")]
    NotFound,
    /// Exists already.
    #[error("exists already")]
    Exists,
    /// A part of the path is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// Is a directory, but a file is required.
    #[error("is a directory")]
    IsADirectory,
    /// The sandbox's user may not do this.
    #[error("permission denied")]
    PermissionDenied,
    /// The directory is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// The disk is full, or has no free inode.
    #[error("no space left on the disk")]
    NoSpace,
    /// Exceeds a limit of the sandbox; the limit.
    #[error("too large: {0}")]
    TooLarge(String),
    /// Too many at a time; of which kind.
    #[error("too many {0}")]
    TooMany(String),
    /// Invalid request; the reason.
    #[error("{0}")]
    Invalid(String),
    /// The sandbox or its helper has ended; a new helper may be requested.
    #[error("the sandbox does not answer")]
    Lost,
    /// Any other error.
    #[error("use the file system")]
    Io(#[source] io::Error),
}

impl FilesError {
    /// Converts an errno of the helper; `detail` is empty or says more.
    pub(super) fn from_errno(errno: i32, detail: String) -> FilesError {
        let or = |text: &str| if detail.is_empty() { text.to_owned() } else { detail.clone() };
        match errno {
            libc::ENOENT | libc::ENODATA => FilesError::NotFound,
            libc::EEXIST => FilesError::Exists,
            libc::ENOTDIR => FilesError::NotADirectory,
            libc::EISDIR => FilesError::IsADirectory,
            libc::EACCES | libc::EPERM | libc::EROFS => FilesError::PermissionDenied,
            libc::ENOTEMPTY => FilesError::NotEmpty,
            libc::ENOSPC | libc::EDQUOT => FilesError::NoSpace,
            libc::EFBIG | libc::E2BIG | libc::ERANGE => FilesError::TooLarge(or("size")),
            libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::EBUSY => {
                FilesError::TooMany(or("users at a time"))
            }
            libc::ENAMETOOLONG => FilesError::Invalid("the path is too long".to_owned()),
            libc::ELOOP => FilesError::Invalid(or("too many symbolic links")),
            libc::EINVAL | libc::EBADMSG => FilesError::Invalid(or("invalid")),
            libc::EOPNOTSUPP => FilesError::Invalid(or("not possible on this file system")),
            _ => FilesError::Io(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl From<io::Error> for FilesError {
    fn from(error: io::Error) -> FilesError {
        match error.raw_os_error() {
            Some(errno) => FilesError::from_errno(errno, String::new()),
            None => FilesError::Io(error),
        }
    }
}

impl From<MalformedMessage> for FilesError {
    fn from(_: MalformedMessage) -> FilesError {
        FilesError::Lost
    }
}
