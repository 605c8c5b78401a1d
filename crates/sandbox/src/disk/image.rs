//! Image files: sparse, complete or absent, read and written in chunks.
//!
//! # References
//! - <https://docs.kernel.org/filesystems/ext4/index.html>

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{BLOCK_BYTES, DiskError, DiskErrorContext, loops};
use crate::sys::mounts::{self as kernel, LockMode};

/// Mode of images: only the server may read and write them.
const IMAGE_MODE: u32 = 0o600;
/// Bytes read at once when the kernel does not copy.
const COPY_BYTES: usize = 1 << 20;
/// Maximum of bytes in one call to the kernel.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Maximum for durable copies, in which a range is written to the disk while the next is copied.
const DURABLE_RANGE_BYTES_MAX: u64 = 1 << 20;

// The superblock of ext4: its position, and the positions of its fields (fs/ext4/ext4.h).
const SUPERBLOCK_AT: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
const MAGIC_AT: usize = 0x38;
const MAGIC: [u8; 2] = [0x53, 0xEF];
const INCOMPAT_AT: usize = 0x60;
const INCOMPAT_RECOVER: u8 = 4;
/// Copy of the root of the extent tree in the journal's inode.
const JOURNAL_BLOCKS_AT: usize = 0x10C;

// That root, if it is a leaf: a header, then extents (fs/ext4/ext4_extents.h).
const EXTENTS_MAGIC: u16 = 0xF30A;
const EXTENTS_DEPTH_AT: usize = 6;
const EXTENT_AT: usize = 12;

// The superblock of the journal, whose numbers are big-endian (include/linux/jbd2.h).
const JOURNAL_SUPERBLOCK_BYTES: usize = 32;
const JOURNAL_MAGIC: [u8; 4] = 0xC03B_3998u32.to_be_bytes();
const JOURNAL_START_AT: usize = 28;

/// Fate of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyFate {
    /// Written back at the kernel's discretion.
    Any,
    /// Made durable soon: each range is written to the disk while the rest is being copied.
    Durable,
}

/// Opens a file without a name, in the directory of its future name. The kernel removes it when the
/// last descriptor is closed, so a crash leaves no file behind.
pub(super) fn unnamed(path: &Path) -> Result<File, DiskError> {
    File::options()
        .read(true)
        .write(true)
        .mode(IMAGE_MODE)
        .custom_flags(libc::O_TMPFILE)
        .open(directory_of(path))
        .at("make a file beside", path)
}

/// Gives an unnamed file its name; never replaces another file.
pub(super) fn name(file: &File, path: &Path) -> Result<(), DiskError> {
    let named = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    match named.and_then(|name| kernel::link(file.as_fd(), &name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(DiskError::Exists { path: path.to_owned() })
        }
        result => result.at("give its name to", path),
    }
}

/// Likewise; content and name survive a power failure.
pub(super) fn name_durably(file: &File, path: &Path) -> Result<(), DiskError> {
    file.sync_all().at("store", path)?;
    name(file, path)?;
    let directory = directory_of(path);
    File::open(directory).and_then(|it| it.sync_all()).at("store the directory", directory)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes an empty file a copy of another one, as it is at one moment, if the file system can share
/// content.
pub(super) fn share(from: &File, to: &File) -> bool {
    // Any error here also shows in the copy that the caller makes instead.
    kernel::clone_file(from.as_fd(), to.as_fd()).is_ok()
}

/// Copies range by range, and keeps holes.
pub(super) fn copy(from: &File, to: &File, fate: CopyFate) -> io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let Some((start, end)) = kernel::next_data(from.as_fd(), at)? else { break };
        copy_stretch(from, to, start..end, fate)?;
        at = end;
    }
    Ok(())
}

fn copy_stretch(
    from: &File,
    to: &File,
    Range { start, end }: Range<u64>,
    fate: CopyFate,
) -> io::Result<()> {
    let most = match fate {
        CopyFate::Any => RANGE_BYTES_MAX,
        CopyFate::Durable => DURABLE_RANGE_BYTES_MAX,
    };
    let mut at = start;
    while at < end {
        let len = (end - at).min(most);
        match kernel::copy_range(from.as_fd(), to.as_fd(), at, len) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => {
                // A few blocks are not worth a call of their own. Ranges that are not started here
                // are written when the file is made durable.
                if fate == CopyFate::Durable && copied == most {
                    let _later = kernel::start_writing(to.as_fd(), at, copied);
                }
                at += copied;
            }
            Err(error) if is_unsupported(&error) => return copy_by_hand(from, to, at, end),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes an empty file a copy of another one, in which every block of zeros is a hole.
pub(super) fn copy_without_zeros(from: &File, to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut buf = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < len {
        let Some((start, end)) = kernel::next_data(from.as_fd(), at)? else { break };
        at = start;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let part = buf.get_mut(..len).unwrap_or_default();
            from.read_exact_at(part, at)?;
            write_without_zeros(to, part, at)?;
            at += len as u64;
        }
    }
    Ok(())
}

/// Writes the blocks of `content` that are not zero.
fn write_without_zeros(to: &File, content: &[u8], at: u64) -> io::Result<()> {
    let blocks = content.chunks(BLOCK_BYTES as usize);
    let blocks: Vec<(&[u8], bool)> = blocks.map(|block| (block, is_zero(block))).collect();
    let mut start = 0;
    for blocks in blocks.chunk_by(|(_, one), (_, next)| one == next) {
        let end = start + blocks.iter().map(|(block, _)| block.len()).sum::<usize>();
        let stretch = content.get(start..end).unwrap_or_default();
        if blocks.first().is_some_and(|(_, is_zero)| !is_zero) {
            to.write_all_at(stretch, at + start as u64)?;
        }
        start = end;
    }
    Ok(())
}

/// Returns whether all bytes are zero. Compares many bytes at a time, unlike a loop over bytes:
/// most of an image is zero, and all of it is read whenever it is stored or restored.
pub fn is_zero(content: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let is_part = |part: &[u8]| ZEROS.get(..part.len()).is_some_and(|zeros| part == zeros);
    content.chunks(ZEROS.len()).all(is_part)
}

/// Returns whether the kernel cannot copy between these two files itself.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EXDEV | libc::ENOSYS | libc::EOPNOTSUPP))
}

fn copy_by_hand(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buf = vec![0; COPY_BYTES];
    let mut at = start;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let part = buf.get_mut(..len).unwrap_or_default();
        from.read_exact_at(part, at)?;
        to.write_all_at(part, at)?;
        at += len as u64;
    }
    Ok(())
}

/// Returns whether the latest writes are only in the journal of an image.
///
/// A flag in the superblock says that they may be, from when the image is attached until it is
/// detached. A copy of a disk in use therefore has the flag, but an empty journal if everything was
/// written to its place before the copy.
pub(super) fn needs_recovery(image: &File, path: &Path) -> Result<bool, DiskError> {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    let read = image.read_exact_at(&mut superblock, SUPERBLOCK_AT);
    if read.is_err() || superblock[MAGIC_AT..MAGIC_AT + 2] != MAGIC {
        let detail = "there is no file system in it".to_owned();
        return Err(DiskError::Damaged { path: path.to_owned(), detail });
    }
    let is_marked = superblock[INCOMPAT_AT] & INCOMPAT_RECOVER != 0;
    Ok(is_marked && !has_empty_journal(image, &superblock))
}

/// Returns whether the journal is known to be empty. False if its layout is not that of
/// `mkfs.ext4`: then the kernel examines it.
fn has_empty_journal(image: &File, superblock: &[u8; SUPERBLOCK_BYTES]) -> bool {
    let root = superblock.get(JOURNAL_BLOCKS_AT..).unwrap_or_default();
    let number = |at: usize| Some(u16::from_le_bytes(root.get(at..at + 2)?.try_into().ok()?));
    let is_leaf = number(0) == Some(EXTENTS_MAGIC) && number(EXTENTS_DEPTH_AT) == Some(0);
    // The first extent: its first logical block, length, and physical block in three parts.
    let parts = [0, 2, 6, 8, 10].map(|at| number(EXTENT_AT + at).map(u64::from));
    let [Some(0), Some(0), Some(high), Some(low), Some(middle)] = parts else { return false };
    let block = (high << 32) | (middle << 16) | low;
    let mut journal = [0; JOURNAL_SUPERBLOCK_BYTES];
    let read = image.read_exact_at(&mut journal, block * u64::from(BLOCK_BYTES));
    is_leaf
        && read.is_ok()
        && journal.starts_with(&JOURNAL_MAGIC)
        && journal.get(JOURNAL_START_AT..).is_some_and(|start| start == [0; 4])
}

/// An image that does not change while it is open, in chunks of one size.
#[derive(Debug)]
pub struct ImageExtents {
    image: File,
    path: PathBuf,
    bytes: u64,
    chunk_bytes: u32,
}

impl ImageExtents {
    /// Opens an image that is not attached, or only as a layer: it does not change until this is
    /// dropped. Returns [`DiskError::InUse`] for an image attached as a disk. A chunk has at least
    /// one byte.
    pub fn open(path: &Path, chunk_bytes: u32) -> Result<ImageExtents, DiskError> {
        let image = File::open(path).at("open the disk image", path)?;
        loops::lock(&image, LockMode::Shared, path)?;
        let bytes = image.metadata().at("look at", path)?.len();
        Ok(ImageExtents { image, path: path.to_owned(), bytes, chunk_bytes: chunk_bytes.max(1) })
    }

    /// Returns the size of the image in bytes, holes included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the numbers, ascending, of the chunks that are not holes altogether. All others are
    /// zero.
    pub fn chunks(&self) -> Result<Vec<u64>, DiskError> {
        let chunk = u64::from(self.chunk_bytes);
        let (mut chunks, mut at) = (Vec::new(), 0);
        while at < self.bytes {
            let found = kernel::next_data(self.image.as_fd(), at);
            let Some((start, end)) = found.at("look for data in", &self.path)? else { break };
            let next = chunks.last().map_or(0, |last| last + 1);
            chunks.extend((start / chunk).max(next)..end.div_ceil(chunk));
            at = end;
        }
        Ok(chunks)
    }

    /// Reads a chunk into `buf`; the last chunk can be shorter. May be called from any thread.
    pub fn read(&self, chunk: u64, buf: &mut Vec<u8>) -> Result<(), DiskError> {
        let start = chunk.saturating_mul(self.chunk_bytes.into());
        let len = self.bytes.saturating_sub(start).min(self.chunk_bytes.into());
        buf.resize(usize::try_from(len).unwrap_or(0), 0);
        self.image.read_exact_at(buf, start).at("read", &self.path)
    }
}

/// Writes an image in chunks: the inverse of [`ImageExtents`].
#[derive(Debug)]
pub struct ImageWriter {
    image: File,
    path: PathBuf,
    bytes: u64,
    chunk_bytes: u32,
}

impl ImageWriter {
    /// Begins an image of `bytes` bytes, all zero. It has no name before [`ImageWriter::finish`].
    pub fn create(path: &Path, bytes: u64, chunk_bytes: u32) -> Result<ImageWriter, DiskError> {
        let image = unnamed(path)?;
        image.set_len(bytes).at("give a size to", path)?;
        Ok(ImageWriter { image, path: path.to_owned(), bytes, chunk_bytes: chunk_bytes.max(1) })
    }

    /// Writes a whole chunk. Zeros become a hole. May be called from any thread.
    pub fn write(&self, chunk: u64, content: &[u8]) -> Result<(), DiskError> {
        self.check_len(chunk, content.len() as u64)?;
        self.write_part(chunk, 0, content)
    }

    /// Rejects a length other than that of the chunk.
    pub fn check_len(&self, chunk: u64, len: u64) -> Result<(), DiskError> {
        let expected = self.chunk_len(chunk);
        match len {
            0 => Err(self.damaged(format!("there is no chunk {chunk}, or nothing is in it"))),
            len if len == expected => Ok(()),
            len => {
                Err(self.damaged(format!("chunk {chunk} has {len} bytes instead of {expected}")))
            }
        }
    }

    /// Writes a part of a chunk, which begins at a block boundary. Zeros become a hole; so do parts
    /// that are not written. May be called from any thread.
    pub fn write_part(&self, chunk: u64, at: u64, content: &[u8]) -> Result<(), DiskError> {
        let (len, end) = (self.chunk_len(chunk), at.saturating_add(content.len() as u64));
        if end > len || !at.is_multiple_of(BLOCK_BYTES.into()) {
            let detail = format!("chunk {chunk} has {len} bytes, and no part from {at} to {end}");
            return Err(self.damaged(detail));
        }
        let start = chunk.saturating_mul(self.chunk_bytes.into());
        write_without_zeros(&self.image, content, start + at).at("write", &self.path)
    }

    /// Returns the length of a chunk in bytes; the last chunk can be shorter.
    fn chunk_len(&self, chunk: u64) -> u64 {
        let start = chunk.saturating_mul(self.chunk_bytes.into());
        self.bytes.saturating_sub(start).min(self.chunk_bytes.into())
    }

    fn damaged(&self, detail: String) -> DiskError {
        DiskError::Damaged { path: self.path.clone(), detail }
    }

    /// Makes the image durable and gives it its name; never replaces another file.
    pub fn finish(self) -> Result<(), DiskError> {
        name_durably(&self.image, &self.path)
    }
}
