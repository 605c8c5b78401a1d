//! Files below a directory that untrusted programs may write to as well.
//!
//! A path is walked part by part from the root, each opened without following a symbolic link, so
//! that no link leads outside, whenever it is created. The root itself is trusted, including its
//! links.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use iceberg::ident::Uuid;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::files::{FlushMode, LocalFileVersion};

/// Deepest tree that is removed.
const DEPTH_MAX: usize = 64;

/// Most attempts to create a directory that other processes remove concurrently.
const RACES_MAX: u32 = 16;

fn walking() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A link in the path is treated as no directory: the kernel reports `ENOTDIR` or `ELOOP`.
fn refused(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::MLINK => io::ErrorKind::InvalidInput.into(),
        error => error.into(),
    }
}

/// Opens a directory below the root by one call, without following a symbolic link. `None` if that
/// fails: the directory is missing, there is a link, or the kernel lacks the call; the walk part by
/// part finds the reason.
fn jump(root: &OwnedFd, parts: &[Box<str>]) -> Option<OwnedFd> {
    if parts.is_empty() {
        return None;
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, parts.join("/"), walking(), Mode::empty(), resolve).ok()
}

/// Opens the directory that contains the last part.
fn parent<'a>(path: &Path, parts: &'a [Box<str>]) -> io::Result<(OwnedFd, &'a str)> {
    let (name, above) = parts.split_last().ok_or(io::ErrorKind::InvalidInput)?;
    let mut directory = root(path)?;
    if let Some(directory) = jump(&directory, above) {
        return Ok((directory, name));
    }
    for part in above {
        directory = step(&directory, part)?;
    }
    Ok((directory, name))
}

/// Opens a directory in a directory. Distinguishes a link from a missing entry.
fn step(directory: &OwnedFd, part: &str) -> io::Result<OwnedFd> {
    match rustix::fs::openat(directory, part, walking(), Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(directory, part) => Err(io::ErrorKind::InvalidInput.into()),
        opened => opened.map_err(refused),
    }
}

fn is_link(directory: &OwnedFd, part: &str) -> bool {
    let found = rustix::fs::statat(directory, part, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Symlink)
}

/// Opens the directory that contains the last part, and creates missing ones.
fn make_parent<'a>(path: &Path, parts: &'a [Box<str>]) -> io::Result<(OwnedFd, &'a str)> {
    let (name, above) = parts.split_last().ok_or(io::ErrorKind::InvalidInput)?;
    let mut directory = match root(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path)?;
            root(path)?
        }
        opened => opened?,
    };
    if let Some(directory) = jump(&directory, above) {
        return Ok((directory, name));
    }
    for part in above {
        let mut races = 0;
        directory = loop {
            match step(&directory, part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && races < RACES_MAX => {
                    races += 1;
                    match rustix::fs::mkdirat(&directory, &**part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                opened => break opened?,
            }
        };
    }
    Ok((directory, name))
}

/// Opens a regular file to read it.
fn open(path: &Path, parts: &[Box<str>]) -> io::Result<(File, Metadata)> {
    let (directory, name) = parent(path, parts)?;
    // Non-blocking: it may be a pipe without a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(refused)?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((file, metadata))
}

/// Reads bytes of a file from an offset on, at most `bytes_max`, with the range that they are of.
pub(super) fn read_part(
    path: &Path,
    parts: &[Box<str>],
    offset: u64,
    bytes_max: usize,
) -> io::Result<(LocalFileVersion, Vec<u8>)> {
    let (mut file, metadata) = open(path, parts)?;
    let version = LocalFileVersion {
        length: metadata.len(),
        inode: (metadata.dev(), metadata.ino()),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
    };
    let mut part = Vec::new();
    if bytes_max > 0 && offset < version.length {
        file.seek(SeekFrom::Start(offset))?;
        let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        file.take(most.min(version.length - offset)).read_to_end(&mut part)?;
    }
    Ok((version, part))
}

/// Reads a file of at most `bytes_max`.
pub(super) fn read(path: &Path, parts: &[Box<str>], bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, _) = open(path, parts)?;
    let mut content = Vec::new();
    // The file may grow while it is read.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > bytes_max) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// Writes a file that must not exist yet, and names it once it is complete.
pub(super) fn write_new(
    path: &Path,
    parts: &[Box<str>],
    content: &[u8],
    flush: FlushMode,
) -> io::Result<()> {
    let (directory, name) = make_parent(path, parts)?;
    match flush {
        FlushMode::No => match write_unnamed(&directory, name, content)? {
            UnnamedOutcome::Named => Ok(()),
            UnnamedOutcome::Unsupported => write_beside(&directory, name, content, flush),
        },
        FlushMode::Yes => write_beside(&directory, name, content, flush),
    }
}

/// Result of [`write_unnamed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnnamedOutcome {
    /// The file has its name.
    Named,
    /// No file was created: the file system has no unnamed files, or `/proc` is missing.
    Unsupported,
}

/// Writes a file that has no name until it is complete
/// (<https://man7.org/linux/man-pages/man2/open.2.html>, `O_TMPFILE`): it takes one directory
/// update, a temporary file takes three, and a crash leaves nothing behind.
fn write_unnamed(directory: &OwnedFd, name: &str, content: &[u8]) -> io::Result<UnnamedOutcome> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let file = match rustix::fs::openat(directory, ".", flags, mode) {
        // Errors of file systems without it, and of kernels that take the call for opening a
        // directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            return Ok(UnnamedOutcome::Unsupported);
        }
        opened => File::from(opened?),
    };
    (&file).write_all(content)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, unnamed, directory, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::PERM | Errno::XDEV) => {
            Ok(UnnamedOutcome::Unsupported)
        }
        linked => Ok(linked.map(|()| UnnamedOutcome::Named)?),
    }
}

/// Writes a temporary file in the same directory and renames it.
fn write_beside(
    directory: &OwnedFd,
    name: &str,
    content: &[u8],
    flush: FlushMode,
) -> io::Result<()> {
    let random = Uuid::v4().map_err(io::Error::other)?;
    let beside = format!(".{random}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let file = rustix::fs::openat(directory, &*beside, flags, mode).map_err(refused)?;
    let written =
        fill(File::from(file), content, flush).and_then(|()| settle(directory, &beside, name));
    if written.is_err() {
        // The first error is reported; a leftover temporary file is never read.
        let _ = rustix::fs::unlinkat(directory, &*beside, AtFlags::empty());
    }
    written?;
    if flush == FlushMode::Yes {
        // A path descriptor cannot be flushed, only a directory opened for reading.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
        rustix::fs::fsync(&readable)?;
    }
    Ok(())
}

fn fill(mut file: File, content: &[u8], flush: FlushMode) -> io::Result<()> {
    file.write_all(content)?;
    match flush {
        FlushMode::No => Ok(()),
        FlushMode::Yes => file.sync_all(),
    }
}

/// Gives a file its name, which must not exist yet.
fn settle(directory: &OwnedFd, beside: &str, name: &str) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(directory, beside, directory, name, flags) {
        // The file system cannot rename without replacing. Names are random, so no other process
        // takes the name between the check and the rename.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            match found {
                Err(Errno::NOENT) => Ok(rustix::fs::renameat(directory, beside, directory, name)?),
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(error) => Err(error.into()),
            }
        }
        done => Ok(done?),
    }
}

/// Removes a file; succeeds if it does not exist.
pub(super) fn delete(path: &Path, parts: &[Box<str>]) -> io::Result<()> {
    let removed = parent(path, parts).and_then(|(directory, name)| {
        Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)
    });
    present(removed)
}

/// Returns the names of entries that are no directories; `None` if there are more than `most`.
pub(super) fn list(
    path: &Path,
    parts: &[Box<str>],
    most: usize,
) -> io::Result<Option<Vec<String>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = parent(path, parts).and_then(|(directory, name)| {
        rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(refused)
    });
    let directory = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
        opened => opened?,
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        // This program creates no names that are not UTF-8.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if entry.file_type() == FileType::Directory {
            continue;
        }
        if names.len() == most {
            return Ok(None);
        }
        names.push(name.to_owned());
    }
    Ok(Some(names))
}

/// Returns whether a directory is empty or does not exist.
pub(super) fn is_empty(path: &Path, parts: &[Box<str>]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = parent(path, parts).and_then(|(directory, name)| {
        rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(refused)
    });
    let directory = match opened {
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(true),
                // A file, a link, or an entry that this server may not see.
                io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::PermissionDenied => Ok(false),
                _ => Err(error),
            };
        }
        Ok(directory) => directory,
    };
    for entry in Dir::read_from(&directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a directory with everything in it, or a file.
pub(super) fn delete_tree(path: &Path, parts: &[Box<str>]) -> io::Result<()> {
    let removed =
        parent(path, parts).and_then(|(directory, name)| remove(&directory, name, DEPTH_MAX));
    present(removed)
}

fn present(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove(directory: &OwnedFd, name: &str, depth: usize) -> io::Result<()> {
    // A file, or a link, whose target is irrelevant.
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return Ok(done?),
    }
    if depth == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(refused)?;
    for entry in Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(io::Error::other)?;
        if !matches!(name, "." | "..") {
            present(remove(&inner, name, depth - 1))?;
        }
    }
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    #[test]
    fn with_or_without_a_name_a_file_is_whole_and_replaces_none() {
        let scratch = Scratch::new();
        let (directory, parts) = (root(scratch.path()).unwrap(), [Box::from("a"), "b".into()]);
        let inner = {
            std::fs::create_dir(scratch.path().join("a")).unwrap();
            jump(&directory, &parts[..1]).unwrap()
        };
        // File systems without unnamed files use the other path.
        let by_name = |name: &str, content: &[u8]| match write_unnamed(&inner, name, content)? {
            UnnamedOutcome::Named => Ok(()),
            UnnamedOutcome::Unsupported => write_beside(&inner, name, content, FlushMode::No),
        };
        by_name("b", b"unnamed").unwrap();
        write_beside(&inner, "c", b"beside", FlushMode::No).unwrap();
        for (name, content) in [("b", "unnamed"), ("c", "beside")] {
            let again = [by_name(name, b"x"), write_beside(&inner, name, b"x", FlushMode::No)];
            for refused in again {
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
            }
            let path = scratch.path().join("a").join(name);
            assert_eq!(std::fs::read_to_string(path).unwrap(), content);
        }
        assert_eq!(list(scratch.path(), &[Box::from("a")], 9).unwrap().unwrap().len(), 2);
        assert!(jump(&directory, &[Box::from("none")]).is_none());
        std::os::unix::fs::symlink("a", scratch.path().join("link")).unwrap();
        assert!(jump(&directory, &[Box::from("link")]).is_none(), "no link is followed");
    }
}
