//! Unpacks an archive below a directory.
//!
//! The author of the archive may try to write elsewhere. So each name is split, `..` is refused,
//! and each directory is opened beneath the descriptor of the target, through no link.
//!
//! # References
//! - <https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html>

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::{FileJob, FileRefusal, Outcome, paths};
use crate::sys;
use crate::sys::files::{self, ResolveMode};
use crate::tar::{self, BadArchive, HeaderReader, MemberKind, TarMember};

/// Bytes of content copied at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of directories, whose permissions and times are set after all content is written.
const DIRECTORIES_MAX: usize = 250_000;
/// Maximum number of attempts to replace an existing file, which programs may recreate meanwhile.
const REPLACE_ROUNDS_MAX: u32 = 8;

impl From<BadArchive> for FileRefusal {
    fn from(error: BadArchive) -> FileRefusal {
        match error {
            BadArchive::Io(error) => error.into(),
            BadArchive::Invalid(why) => FileRefusal::new(libc::EBADMSG, why),
        }
    }
}

/// Unpacks an archive; returns the number of members, and of bytes of content.
pub(super) fn import(job: &FileJob, root: OwnedFd, from: File) -> Outcome<(u64, u64)> {
    let mut import = ArchiveImport {
        job,
        root,
        headers: HeaderReader { source: BufReader::with_capacity(CHUNK_BYTES, from) },
        parent: None,
        directories: Vec::new(),
        buf: vec![0; CHUNK_BYTES],
    };
    let (mut entries, mut bytes) = (0, 0u64);
    while let Some(member) = import.headers.next()? {
        job.check()?;
        entries += 1;
        bytes = bytes.saturating_add(member.size);
        import.unpack(&member).map_err(|refusal| refusal.at(&member.name))?;
    }
    import.finish_directories()?;
    Ok((entries, bytes))
}

struct ArchiveImport<'a> {
    job: &'a FileJob,
    root: OwnedFd,
    headers: HeaderReader<BufReader<File>>,
    /// The directory of the last member: consecutive members mostly share it.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// Path, mode and time.
    directories: Vec<(Vec<u8>, u32, (i64, u32))>,
    buf: Vec<u8>,
}

/// Splits the path of a name, without empty parts and `.`, into directories and the last part.
fn split(name: &[u8]) -> Outcome<Option<(Vec<u8>, CString)>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(FileRefusal::new(libc::EINVAL, "the name has `..` in it")),
            part if part.contains(&0) => {
                return Err(FileRefusal::new(libc::EINVAL, "the name has a NUL byte in it"));
            }
            part => parts.push(part),
        }
    }
    let Some(last) = parts.pop() else { return Ok(None) };
    Ok(Some((parts.join(&b'/'), CString::new(last).map_err(io::Error::from)?)))
}

impl ArchiveImport<'_> {
    fn unpack(&mut self, member: &TarMember) -> Outcome<()> {
        // The root entry itself, below which the others are.
        let Some((parent, name)) = split(&member.name)? else { return self.skip(member) };
        if self.parent.as_ref().is_none_or(|(path, _)| *path != parent) {
            self.parent = Some((parent.clone(), self.open_directory(&parent, true)?));
        }
        let Some((_, dir)) = &self.parent else { return self.skip(member) };
        let dir = dir.try_clone()?;
        let here = dir.as_fd();
        let (seconds, nanos) = member.mtime;
        match member.kind {
            MemberKind::File => {
                self.unpack_file(here, &name, member)?;
                files::set_times(here, &name, seconds, nanos)?;
            }
            MemberKind::Symlink => {
                if member.link.is_empty() {
                    return Err(FileRefusal::new(libc::EINVAL, "the link leads nowhere"));
                }
                let target = CString::new(member.link.clone()).map_err(io::Error::from)?;
                replacing(here, &name, || sys::symlinkat(&target, here, &name))?;
                files::set_times(here, &name, seconds, nanos)?;
            }
            MemberKind::HardLink => {
                let Some((other, other_name)) = split(&member.link)? else {
                    return Err(FileRefusal::new(libc::EINVAL, "the link leads nowhere"));
                };
                let other = self.open_directory(&other, false)?;
                let there = other.as_fd();
                let is_same = {
                    let (a, b) = (files::stat(there, &other_name)?, files::stat(here, &name));
                    b.is_ok_and(|b| (a.dev, a.ino) == (b.dev, b.ino))
                };
                if !is_same {
                    replacing(here, &name, || files::link(there, &other_name, here, &name))?;
                }
            }
            MemberKind::Fifo => {
                replacing(here, &name, || files::make_fifo(here, &name, member.mode & 0o777))?;
                files::set_times(here, &name, seconds, nanos)?;
            }
            MemberKind::Dir => self.unpack_directory(here, &name, member)?,
        }
        Ok(())
    }

    /// Reads the content of a member that is not unpacked.
    fn skip(&mut self, member: &TarMember) -> Outcome<()> {
        let rest = member.size.saturating_add(tar::padding(member.size) as u64);
        let mut content = (&mut self.headers.source).take(rest);
        let read = io::copy(&mut content, &mut io::sink())?;
        if read < rest { Err(cut_off()) } else { Ok(()) }
    }

    fn unpack_directory(
        &mut self,
        here: BorrowedFd<'_>,
        name: &CStr,
        member: &TarMember,
    ) -> Outcome<()> {
        match sys::mkdirat(here, name, 0o700) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                if files::stat(here, name)?.kind() == libc::S_IFDIR {
                    // Writable by the user until the end, because members may follow in it.
                    let flags = libc::O_PATH | libc::O_DIRECTORY;
                    let dir = files::openat2(Some(here), name, flags, 0, ResolveMode::Beneath)?;
                    chmod_if_own(dir.as_fd(), member.mode | 0o700)?;
                } else {
                    replacing(here, name, || sys::mkdirat(here, name, 0o700))?;
                }
            }
            other => other?,
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(FileRefusal::new(libc::EMFILE, "directories in one archive"));
        }
        self.directories.push((member.name.clone(), member.mode, member.mtime));
        Ok(())
    }

    fn unpack_file(&mut self, dir: BorrowedFd<'_>, name: &CStr, member: &TarMember) -> Outcome<()> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let create = || files::openat2(Some(dir), name, flags, 0o600, ResolveMode::Beneath);
        let mut file = File::from(replacing(dir, name, create)?);
        match &member.sparse {
            None => self.copy(member.size, &mut |bytes| file.write_all(bytes))?,
            Some(sparse) => {
                file.set_len(sparse.real_size)?;
                for (offset, len) in &sparse.extents {
                    let mut at = *offset;
                    self.copy(*len, &mut |bytes| {
                        file.write_all_at(bytes, at)?;
                        at = at.saturating_add(bytes.len() as u64);
                        Ok(())
                    })?;
                }
            }
        }
        let mut padding = [0; tar::BLOCK_BYTES];
        let padding = padding.get_mut(..tar::padding(member.size)).unwrap_or_default();
        self.headers.source.read_exact(padding).map_err(|_| cut_off())?;
        // Last, because writing clears special permissions.
        Ok(sys::fchmod(file.as_fd(), member.mode)?)
    }

    fn copy(&mut self, mut left: u64, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Outcome<()> {
        while left > 0 {
            self.job.check()?;
            let room = self.buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let chunk = self.buf.get_mut(..room).unwrap_or_default();
            let n = self.headers.source.read(chunk)?;
            if n == 0 {
                return Err(cut_off());
            }
            to(chunk.get(..n).unwrap_or(&[]))?;
            left -= n as u64;
        }
        Ok(())
    }

    /// Opens a directory beneath the target; with `make`, creates missing directories.
    fn open_directory(&self, path: &[u8], make: bool) -> Outcome<OwnedFd> {
        if path.is_empty() {
            return Ok(self.root.try_clone()?);
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let open = |dir: BorrowedFd<'_>, path: &CStr| {
            files::openat2(Some(dir), path, flags, 0, ResolveMode::Beneath)
        };
        let whole = CString::new(path).map_err(io::Error::from)?;
        match open(self.root.as_fd(), &whole) {
            Err(error) if make && error.raw_os_error() == Some(libc::ENOENT) => {}
            other => return other.map_err(explain),
        }
        let mut dir = self.root.try_clone()?;
        for part in path.split(|byte| *byte == b'/') {
            let part = CString::new(part).map_err(io::Error::from)?;
            match sys::mkdirat(dir.as_fd(), &part, 0o777) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                    return Err(error.into());
                }
                _ => {}
            }
            dir = open(dir.as_fd(), &part).map_err(explain)?;
        }
        Ok(dir)
    }

    /// Sets permissions and times that could have blocked unpacking: the last directory first, so
    /// that its parents can still be entered.
    fn finish_directories(&mut self) -> Outcome<()> {
        while let Some((name, mode, (seconds, nanos))) = self.directories.pop() {
            let Some((mut path, last)) = split(&name)? else { continue };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(last.to_bytes());
            // A later member can have replaced it.
            let Ok(dir) = self.open_directory(&path, false) else { continue };
            match files::set_times(dir.as_fd(), c".", seconds, nanos) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
                other => other?,
            }
            chmod_if_own(dir.as_fd(), mode)?;
        }
        Ok(())
    }
}

/// Sets the permissions of a directory, unless it existed before and has another owner.
fn chmod_if_own(dir: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    match files::chmod(&paths::own_link(dir), mode) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other,
    }
}

fn cut_off() -> FileRefusal {
    FileRefusal::new(libc::EBADMSG, "the archive is cut off")
}

/// Converts the error of a name that leads through a link, or out of the target.
fn explain(error: io::Error) -> FileRefusal {
    match error.raw_os_error() {
        Some(libc::ELOOP) => FileRefusal::new(libc::EINVAL, "it leads through a link"),
        Some(libc::EXDEV) => FileRefusal::new(libc::EINVAL, "it leads out of the directory"),
        _ => error.into(),
    }
}

/// Creates something at a name; removes an existing file first, but not a directory.
fn replacing<T>(dir: BorrowedFd<'_>, name: &CStr, make: impl Fn() -> io::Result<T>) -> Outcome<T> {
    for _ in 0..REPLACE_ROUNDS_MAX {
        match make() {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                match files::unlink(dir, name) {
                    Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            other => return Ok(other?),
        }
    }
    Err(FileRefusal::new(libc::EEXIST, Vec::new()))
}
