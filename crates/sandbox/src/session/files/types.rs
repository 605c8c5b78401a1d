//! Types that callers of [`SandboxFiles`](super::SandboxFiles) give and get.

use std::io;

use crate::codec::{MalformedMessage, MessageReader};

/// The user id that the sandbox's user has on its disk, and as which it is shown.
pub(crate) const SHOWN_USER: u32 = 1000;

/// Kind of a directory's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe with a name, a socket or a device.
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
    /// Kind.
    pub kind: EntryKind,
    /// Bytes of content; of a link, those of its target.
    pub size: u64,
    /// Permissions, the lower twelve bits.
    pub mode: u32,
    /// The owner: 1000 is the sandbox's user, 0 root, 65534 anybody else.
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
    /// When the content was changed, in nanoseconds since 1970; what programs set it to.
    pub modified_ns: i64,
    /// Target of a link, as it is written there.
    pub symlink_target: Option<String>,
    /// The path with all links followed, where that was asked for.
    pub resolved: Option<String>,
}

impl SandboxFileEntry {
    /// Reads what the helper wrote about the entry at `path`.
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
    /// By path.
    pub entries: Vec<SandboxFileEntry>,
    /// There is more than was asked for, or than there is room for.
    pub cut: bool,
}

/// Treatment of content that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// There must be none: [`FilesError::Exists`].
    Create,
    /// Replaced in one step, when everything is written.
    Replace,
    /// Kept, and what is written is appended, at once and not in one step.
    Append,
}

/// Treatment of missing parent directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParents {
    /// They are.
    Make,
    /// That is an error: [`FilesError::NotFound`].
    Expect,
}

/// Depth of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDepth {
    /// The one alone.
    Single,
    /// The directory with all that is below.
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
    /// New, or was moved here.
    Create,
    /// Content changed.
    Write,
    /// Gone.
    Remove,
    /// Moved away from here; where it goes to is an event of its own.
    Rename,
    /// Permissions, owner or times changed.
    Chmod,
    /// Events were lost, or not everything is watched: whoever needs to know lists again.
    Overflow,
}

/// An event of a [`Watch`](super::Watch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// Kind of change.
    pub kind: WatchKind,
    /// To which file, from the watched directory on; empty for the directory itself.
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

/// Usage of what an archive brought, or of what is below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes: of content that was imported, or of room on the disk.
    pub bytes: u64,
}

/// Why something could not be done to a file.
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
    /// Is a directory, where a file is needed.
    #[error("is a directory")]
    IsADirectory,
    /// The sandbox's user may not do this.
    #[error("permission denied")]
    PermissionDenied,
    /// The directory has something in it.
    #[error("directory not empty")]
    NotEmpty,
    /// The disk is full, or has no room for another file.
    #[error("no space left on the disk")]
    NoSpace,
    /// More than the sandbox's limits allow; the limit.
    #[error("too large: {0}")]
    TooLarge(String),
    /// More at a time than there may be; of what.
    #[error("too many {0}")]
    TooMany(String),
    /// Invalid request; why.
    #[error("{0}")]
    Invalid(String),
    /// The sandbox has ended, or its helper; another one may be asked.
    #[error("the sandbox does not answer")]
    Lost,
    /// Anything else.
    #[error("use the file system")]
    Io(#[source] io::Error),
}

impl FilesError {
    /// Returns what an errno of the helper means; `detail` is empty or says more.
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
