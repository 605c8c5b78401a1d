//! Resolves a path to a descriptor, or to a directory and a name in it.
//!
//! Paths are resolved as the user's programs would resolve them, with two differences: never
//! through the links in `/proc` to open files of a process, and never into `/proc` at all, where
//! this process would find itself.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/openat2.2.html>

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{FileRefusal, Outcome};
use crate::sys;
use crate::sys::files::{self, FileStat, ResolveMode};

/// Maximum number of links followed in sequence; the kernel's own maximum.
const LINKS_MAX: usize = 40;
/// Mode of created parent directories, before the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// A name in a directory, with the status of its file.
#[derive(Debug)]
pub(super) struct ResolvedName {
    pub(super) dir: OwnedFd,
    pub(super) name: CString,
    pub(super) stat: Option<FileStat>,
}

impl ResolvedName {
    /// Returns the status of the file, or `ENOENT` if it does not exist.
    pub(super) fn existing(&self) -> Outcome<FileStat> {
        self.stat.ok_or_else(|| FileRefusal::new(libc::ENOENT, Vec::new()))
    }

    /// Reads the current status of the file.
    pub(super) fn refresh(&mut self) -> io::Result<FileStat> {
        let stat = files::stat(self.dir.as_fd(), &self.name)?;
        self.stat = Some(stat);
        Ok(stat)
    }
}

/// Path of this process's own link to an open file.
pub(super) fn own_link(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Opens a path with `O_PATH`: it never blocks, and programs cannot observe it.
pub(super) fn open(path: &CStr, follow: bool) -> Outcome<OwnedFd> {
    let flags = libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW };
    let fd = files::openat2(None, path, flags, 0, ResolveMode::Ordinary)?;
    refuse_proc(fd)
}

fn refuse_proc(fd: OwnedFd) -> Outcome<OwnedFd> {
    if files::file_system(fd.as_fd())? == files::PROC_MAGIC {
        return Err(FileRefusal::new(libc::EACCES, Vec::new()));
    }
    Ok(fd)
}

/// Opens a file again for use, never blocking.
pub(super) fn reopen(fd: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
    sys::open(&own_link(fd), flags | libc::O_NONBLOCK | libc::O_NOCTTY)
}

/// Opens a directory for reading its names.
pub(super) fn open_directory(path: &CStr) -> Outcome<OwnedFd> {
    let fd = open(path, true)?;
    Ok(reopen(fd.as_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?)
}

/// Finds the directory and the name that a path leads to. With `follow`, resolves a link at its
/// end, even if its target does not exist. With `parents`, creates missing directories.
pub(super) fn locate(path: &CStr, follow: bool, parents: bool) -> Outcome<ResolvedName> {
    let mut path = path.to_bytes().to_vec();
    let mut base: Option<OwnedFd> = None;
    for _ in 0..LINKS_MAX {
        while path.len() > 1 && path.last() == Some(&b'/') {
            path.pop();
        }
        let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (parent, name) = path.split_at(at);
        if matches!(name, b"" | b"." | b"..") {
            return Err(FileRefusal::new(libc::EINVAL, "the path ends in no name"));
        }
        let name = CString::new(name).map_err(io::Error::from)?;
        let parent = if parent.is_empty() { b"." } else { parent };
        let dir = open_parent(base.as_ref().map(AsFd::as_fd), parent, parents)?;
        let stat = match files::stat(dir.as_fd(), &name) {
            Ok(stat) => Some(stat),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
            Err(error) => return Err(error.into()),
        };
        match stat {
            Some(stat) if follow && stat.kind() == libc::S_IFLNK => {
                path = files::readlink(dir.as_fd(), &name)?;
                base = Some(dir);
            }
            _ => return Ok(ResolvedName { dir, name, stat }),
        }
    }
    Err(FileRefusal::new(libc::ELOOP, Vec::new()))
}

fn open_parent(base: Option<BorrowedFd<'_>>, parent: &[u8], make: bool) -> Outcome<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let whole = CString::new(parent).map_err(io::Error::from)?;
    match files::openat2(base, &whole, flags, 0, ResolveMode::Ordinary) {
        Ok(dir) => refuse_proc(dir),
        Err(error) if make && error.raw_os_error() == Some(libc::ENOENT) => {
            make_directories(base, parent)
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates the missing directories of a path, and opens the last one.
pub(super) fn make_directories(base: Option<BorrowedFd<'_>>, path: &[u8]) -> Outcome<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let start = if path.first() == Some(&b'/') { c"/" } else { c"." };
    let mut dir = refuse_proc(files::openat2(base, start, flags, 0, ResolveMode::Ordinary)?)?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let part = CString::new(part).map_err(io::Error::from)?;
        let next = match files::openat2(Some(dir.as_fd()), &part, flags, 0, ResolveMode::Ordinary) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                match sys::mkdirat(dir.as_fd(), &part, DIRECTORY_MODE) {
                    Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                        return Err(error.into());
                    }
                    // The next open fails if the name is a dangling link.
                    _ => {}
                }
                files::openat2(Some(dir.as_fd()), &part, flags, 0, ResolveMode::Ordinary)?
            }
            other => other?,
        };
        dir = refuse_proc(next)?;
    }
    Ok(dir)
}
