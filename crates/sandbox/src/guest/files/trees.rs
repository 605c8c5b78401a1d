//! Walks a directory tree without recursion; programs may change the tree at any time.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{FileJob, FileRefusal, Outcome};
use crate::sys;
use crate::sys::files::{self, FileStat, ResolveMode};

/// Maximum depth of directories; each level of the current walk takes a descriptor and a buffer.
const DEPTH_MAX: usize = 512;
/// Bytes of a directory that are read at a time.
const NAMES_BYTES: usize = 16 << 10;
/// Maximum number of attempts to empty a directory that programs refill.
const REMOVE_ROUNDS_MAX: u32 = 16;

/// Reader of the names in a directory.
#[derive(Debug)]
pub(super) struct DirectoryNames {
    dir: OwnedFd,
    buf: Vec<u8>,
    at: usize,
    len: usize,
}

impl DirectoryNames {
    /// Creates the reader of a directory that was opened for reading.
    pub(super) fn new(dir: OwnedFd) -> DirectoryNames {
        DirectoryNames { dir, buf: vec![0; NAMES_BYTES], at: 0, len: 0 }
    }

    /// Returns the next name, without `.` and `..`.
    fn next(&mut self) -> io::Result<Option<CString>> {
        loop {
            if self.at >= self.len {
                (self.at, self.len) = (0, files::read_directory(self.dir.as_fd(), &mut self.buf)?);
                if self.len == 0 {
                    return Ok(None);
                }
            }
            // linux_dirent64: inode and offset, 8 bytes each, length of the record, kind, name.
            let malformed = || io::Error::from_raw_os_error(libc::EIO);
            let rest = self.buf.get(self.at..self.len).ok_or_else(malformed)?;
            let len = rest.get(16..18).and_then(|len| len.try_into().ok()).ok_or_else(malformed)?;
            let len = usize::from(u16::from_ne_bytes(len));
            let name = rest.get(19..len).ok_or_else(malformed)?;
            self.at += len;
            let name = CStr::from_bytes_until_nul(name).map_err(|_| malformed())?;
            if !matches!(name.to_bytes(), b"." | b"..") {
                return Ok(Some(name.to_owned()));
            }
        }
    }
}

/// A file of a tree.
#[derive(Debug)]
pub(super) struct TreeVisit<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    /// Path relative to the top.
    pub(super) path: &'a [u8],
    pub(super) stat: FileStat,
    /// Depth; 1 directly below the top.
    pub(super) depth: u32,
}

/// Next step after a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeStep {
    /// Descends into the file, if it is a directory.
    Into,
    /// Continues with the next sibling.
    Over,
    /// Ends the walk.
    Stop,
}

/// A walk through a tree, in which directories precede their content.
#[derive(Debug)]
pub(super) struct TreeWalk<'a> {
    pub(super) job: &'a FileJob,
    /// Whether an unreadable directory counts as empty, instead of an error.
    pub(super) skip_unreadable: bool,
}

impl TreeWalk<'_> {
    /// Calls `show` for everything below a directory, except files that are removed meanwhile.
    pub(super) fn run(
        &self,
        top: DirectoryNames,
        show: &mut dyn FnMut(&TreeVisit<'_>) -> Outcome<TreeStep>,
    ) -> Outcome<()> {
        let mut device = files::stat(top.dir.as_fd(), c"")?.dev;
        let mut path: Vec<u8> = Vec::new();
        // With the length of the path of each.
        let mut levels = vec![(top, 0)];
        loop {
            self.job.check()?;
            let depth = levels.len();
            let Some((names, path_len)) = levels.last_mut() else { return Ok(()) };
            path.truncate(*path_len);
            let Some(name) = names.next().map_err(|error| FileRefusal::from(error).at(&path))?
            else {
                levels.pop();
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            let stat = match files::stat(names.dir.as_fd(), &name) {
                Err(error) if is_gone(&error) => continue,
                other => other.map_err(|error| FileRefusal::from(error).at(&path))?,
            };
            let visit = TreeVisit {
                dir: names.dir.as_fd(),
                name: &name,
                path: &path,
                stat,
                depth: u32::try_from(depth).unwrap_or(u32::MAX),
            };
            match show(&visit)? {
                TreeStep::Stop => return Ok(()),
                TreeStep::Over => continue,
                TreeStep::Into if stat.kind() != libc::S_IFDIR => continue,
                TreeStep::Into => {}
            }
            if depth >= DEPTH_MAX {
                return Err(FileRefusal::new(libc::EMFILE, "levels of directories"));
            }
            let next = match descend(names.dir.as_fd(), &name) {
                Ok(next) => next,
                Err(error) if is_gone(&error) => continue,
                Err(error)
                    if self.skip_unreadable && error.raw_os_error() == Some(libc::EACCES) =>
                {
                    continue;
                }
                Err(error) => return Err(FileRefusal::from(error).at(&path)),
            };
            if stat.dev != device {
                if files::file_system(next.as_fd())? == files::PROC_MAGIC {
                    continue;
                }
                device = stat.dev;
            }
            levels.push((DirectoryNames::new(next), path.len()));
        }
    }
}

/// The file does not exist any more, or has been replaced.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

fn descend(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    files::openat2(Some(dir), name, flags, 0, ResolveMode::Ordinary)
}

/// Removes a directory recursively. Returns the first error, and leaves the rest in place.
pub(super) fn remove(job: &FileJob, dir: BorrowedFd<'_>, name: &CStr) -> Outcome<()> {
    struct TreeLevel {
        names: DirectoryNames,
        name: CString,
        rounds: u32,
    }
    let mut levels: Vec<TreeLevel> = vec![TreeLevel {
        names: DirectoryNames::new(descend(dir, name)?),
        name: name.to_owned(),
        rounds: 0,
    }];
    while let Some(level) = levels.last_mut() {
        job.check()?;
        if let Some(name) = level.names.next()? {
            let here = level.names.dir.as_fd();
            match files::unlink(here, &name) {
                Err(error) if error.raw_os_error() == Some(libc::EISDIR) => {}
                Err(error) if !is_gone(&error) => return Err(error.into()),
                _ => continue,
            }
            // Most are empty; others are descended into.
            match sys::rmdirat(here, &name) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => {}
                Err(error) if !is_gone(&error) => return Err(error.into()),
                _ => continue,
            }
            let names = match descend(here, &name) {
                Err(error) if is_gone(&error) => continue,
                other => DirectoryNames::new(other?),
            };
            if levels.len() >= DEPTH_MAX {
                return Err(FileRefusal::new(libc::EMFILE, "levels of directories"));
            }
            levels.push(TreeLevel { names, name, rounds: 0 });
            continue;
        }
        let above = levels.iter().rev().nth(1).map_or(dir, |level| level.names.dir.as_fd());
        let Some(done) = levels.last() else { return Ok(()) };
        match sys::rmdirat(above, &done.name) {
            // A file was created in it meanwhile, or was skipped because the directory changed.
            Err(error)
                if error.raw_os_error() == Some(libc::ENOTEMPTY)
                    && done.rounds < REMOVE_ROUNDS_MAX =>
            {
                let names = DirectoryNames::new(descend(above, &done.name)?);
                let rounds = done.rounds + 1;
                if let Some(level) = levels.last_mut() {
                    (level.names, level.rounds) = (names, rounds);
                }
            }
            Err(error) if !is_gone(&error) => return Err(error.into()),
            _ => {
                levels.pop();
            }
        }
    }
    Ok(())
}
