//! Writes a directory as an archive.
//!
//! # References
//! - <https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html>

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::paths::{self, ResolvedName};
use super::trees::{DirectoryNames, TreeStep, TreeVisit, TreeWalk};
use super::{FileJob, FileRefusal, Outcome};
use crate::sys::files::{self, FileStat, ResolveMode};
use crate::tar::{self, MemberKind, SparseMap, TarMember};

/// Maximum number of remembered files with several names, which are written once; beyond it, each
/// name is a copy.
const LINKED_MAX: usize = 100_000;
/// Bytes of content that are copied at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes the content of a directory, or a single file.
pub(super) fn export(job: &FileJob, path: &CStr, to: File) -> Outcome<()> {
    let fd = paths::open(path, true)?;
    let stat = files::stat(fd.as_fd(), c"")?;
    let mut archive = ArchiveWriter { to, linked: HashMap::new(), job };
    if stat.kind() == libc::S_IFDIR {
        let dir = paths::reopen(fd.as_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        archive.add_below(dir, b"")?;
    } else {
        // Resolves a link to its target.
        let place = paths::locate(path, true, false)?;
        archive.add_place(&place)?;
    }
    archive.finish()
}

/// Writes a file, or a directory with its content, under its own name.
pub(super) fn export_one(job: &FileJob, place: &ResolvedName, to: File) -> Outcome<()> {
    let mut archive = ArchiveWriter { to, linked: HashMap::new(), job };
    archive.add_place(place)?;
    if place.existing()?.kind() == libc::S_IFDIR {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let dir = Some(place.dir.as_fd());
        let dir = files::openat2(dir, &place.name, flags, 0, ResolveMode::Ordinary)?;
        archive.add_below(dir, place.name.to_bytes())?;
    }
    archive.finish()
}

struct ArchiveWriter<'a> {
    to: File,
    /// The first name of each file with several names, by device and inode.
    linked: HashMap<(u64, u64), Vec<u8>>,
    job: &'a FileJob,
}

impl ArchiveWriter<'_> {
    fn finish(mut self) -> Outcome<()> {
        Ok(self.to.write_all(&tar::trailer())?)
    }

    fn add_below(&mut self, dir: OwnedFd, prefix: &[u8]) -> Outcome<()> {
        let walk = TreeWalk { job: self.job, skip_unreadable: false };
        walk.run(DirectoryNames::new(dir), &mut |visit: &TreeVisit<'_>| {
            let path = match prefix {
                b"" => visit.path.to_vec(),
                prefix => [prefix, b"/", visit.path].concat(),
            };
            let added = self.add(visit.dir, visit.name, &path, &visit.stat);
            added.map_err(|refusal| match refusal.errno {
                // The reader has closed the pipe.
                libc::EPIPE => refusal,
                _ => refusal.at(&path),
            })?;
            Ok(TreeStep::Into)
        })
    }

    fn add_place(&mut self, place: &ResolvedName) -> Outcome<()> {
        let stat = place.existing()?;
        self.add(place.dir.as_fd(), &place.name, place.name.to_bytes(), &stat)
    }

    fn add(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        stat: &FileStat,
    ) -> Outcome<()> {
        let mut member = TarMember {
            name: path.to_vec(),
            kind: MemberKind::File,
            mode: stat.mode & 0o7777,
            size: 0,
            mtime: (stat.mtime, stat.mtime_nanos),
            link: Vec::new(),
            sparse: None,
        };
        match stat.kind() {
            libc::S_IFREG => {
                let key = (stat.dev, stat.ino);
                if stat.links > 1 {
                    if let Some(first) = self.linked.get(&key) {
                        member.kind = MemberKind::HardLink;
                        member.link.clone_from(first);
                        return Ok(self.to.write_all(&member.header())?);
                    }
                    if self.linked.len() < LINKED_MAX {
                        self.linked.insert(key, path.to_vec());
                    }
                }
                return self.add_file(dir, name, member);
            }
            libc::S_IFDIR => {
                member.kind = MemberKind::Dir;
                member.name.push(b'/');
            }
            libc::S_IFLNK => {
                member.kind = MemberKind::Symlink;
                member.link = files::readlink(dir, name)?;
            }
            libc::S_IFIFO => member.kind = MemberKind::Fifo,
            // Sockets are useless without their listener. There are no devices.
            _ => return Ok(()),
        }
        Ok(self.to.write_all(&member.header())?)
    }

    fn add_file(&mut self, dir: BorrowedFd<'_>, name: &CStr, mut member: TarMember) -> Outcome<()> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let fd = match files::openat2(Some(dir), name, flags, 0, ResolveMode::Ordinary) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            other => other?,
        };
        let stat = files::stat(fd.as_fd(), c"")?;
        if stat.kind() != libc::S_IFREG {
            // The name was replaced meanwhile.
            return Ok(());
        }
        // Its current length, even if it changes while it is read.
        member.size = stat.size;
        let extents = if stat.blocks.saturating_mul(512) < stat.size {
            data_extents(fd.as_fd(), stat.size)?
        } else {
            None
        };
        if let Some(extents) = extents {
            member.size = extents.iter().map(|(_, len)| len).sum();
            member.sparse = Some(SparseMap { extents, real_size: stat.size });
        }
        self.to.write_all(&member.header())?;
        let mut file = File::from(fd);
        match &member.sparse {
            None => self.copy(&mut file, stat.size)?,
            Some(sparse) => {
                for (offset, len) in &sparse.extents {
                    file.seek(SeekFrom::Start(*offset))?;
                    self.copy(&mut file, *len)?;
                }
            }
        }
        Ok(self.to.write_all(&[0; tar::BLOCK_BYTES][..tar::padding(member.size)])?)
    }

    /// Copies `left` bytes; zeros replace the missing bytes of a file that has shrunk.
    fn copy(&mut self, file: &mut File, mut left: u64) -> Outcome<()> {
        let mut buf = vec![0; CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
        let mut is_over = false;
        while left > 0 {
            self.job.check()?;
            let room = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let chunk = buf.get_mut(..room).ok_or_else(|| FileRefusal::new(libc::EIO, ""))?;
            let n = if is_over { 0 } else { file.read(chunk)? };
            is_over = n == 0;
            if is_over {
                chunk.fill(0);
            }
            let n = if is_over { room } else { n };
            self.to.write_all(chunk.get(..n).unwrap_or(&[]))?;
            left -= n as u64;
        }
        Ok(())
    }
}

/// Returns the extents of a file's data; `None` if it has no holes, or too many extents.
fn data_extents(file: BorrowedFd<'_>, size: u64) -> Outcome<Option<Vec<(u64, u64)>>> {
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let Some(data) = files::seek_sparse(file, at, libc::SEEK_DATA)? else { break };
        let hole = files::seek_sparse(file, data, libc::SEEK_HOLE)?.unwrap_or(size);
        // Programs can change the file between the two calls.
        let (data, hole) = (data.max(at).min(size), hole.min(size));
        if hole <= data {
            break;
        }
        if extents.len() >= tar::EXTENTS_MAX - 1 {
            return Ok(None);
        }
        extents.push((data, hole - data));
        at = hole;
    }
    if extents == [(0, size)] {
        return Ok(None);
    }
    if at < size {
        // GNU tar derives the size from the end of the last extent.
        extents.push((size, 0));
    }
    Ok(Some(extents))
}
