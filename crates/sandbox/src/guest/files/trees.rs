//! Walk through everything below a directory, without recursion and without trust: programs change
//! it meanwhile.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{FileJob, FileRefusal, Outcome};
use crate::sys;
use crate::sys::files::{self, FileStat, ResolveMode};

/// Levels of directories; each costs a descriptor and a buffer while the walk is in it.
const DEPTH_MAX: usize = 512;
/// Bytes of a directory that are read at a time.
const NAMES_BYTES: usize = 16 << 10;
/// Number of times that a directory that was emptied and has something in it again is emptied.
const REMOVE_ROUNDS_MAX: u32 = 16;

/// The names in a directory, as they are read.
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

    /// The next name, but for `.` and `..`.
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
    /// From the top on.
    pub(super) path: &'a [u8],
    pub(super) stat: FileStat,
    /// 1 directly below the top.
    pub(super) depth: u32,
}

/// Next step after a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeStep {
    /// Contents of the file, if it is a directory.
    Into,
    /// The next one beside it.
    Over,
    /// End of the walk.
    Stop,
}

/// A walk through a tree, directories before what is in them.
#[derive(Debug)]
pub(super) struct TreeWalk<'a> {
    pub(super) job: &'a FileJob,
    /// A directory that may not be read is no error, and empty.
    pub(super) skip_unreadable: bool,
}

impl TreeWalk<'_> {
    /// Shows everything below a directory. What is gone meanwhile is left out.
    pub(super) fn run(
        &self,
        top: DirectoryNames,
        show: &mut dyn FnMut(&TreeVisit<'_>) -> Outcome<TreeStep>,
    ) -> Outcome<()> {
        let mut device = files::stat(top.dir.as_fd(), c"")?.dev;
        let mut path: Vec<u8> = Vec::new();
        // With the length of the path to each.
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

/// Not there any more, or something else is.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

fn descend(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    files::openat2(Some(dir), name, flags, 0, ResolveMode::Ordinary)
}

/// Removes a directory with all that is in it. Whatever fails first is told; the rest stays.
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
            // Most are empty, or can be descended into.
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
            // Something was made in it meanwhile, or skipped as the directory changed.
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
