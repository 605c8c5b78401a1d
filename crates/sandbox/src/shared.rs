//! File content that several sandboxes share: one descriptor, which all read and none writes.

use std::any::Any;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::sys;

/// Content that exists once, for any number of sandboxes that get a copy of it.
///
/// Either a sealed anonymous file, or a file of ours that is open for reading only. As content to
/// place, only a guest init gets the descriptor. The caller of a program may pass one as a stream,
/// but not one of a file of the host: see [`SharedFile::is_sealed`].
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    len: u64,
    is_sealed: bool,
    /// Dropped with the content.
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl SharedFile {
    /// Copies these bytes into a sealed anonymous file; fails if memory or descriptors run out.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<SharedFile> {
        let fd = sys::memfd(c"cove-shared", bytes)?;
        Ok(SharedFile { fd, len: bytes.len() as u64, is_sealed: true, guard: None })
    }

    /// Opens a regular file of the host. Follows no link at the end of the path and never blocks,
    /// so that a pipe in its place is an error (`InvalidInput`) and does not hang the thread.
    ///
    /// A writer of the file changes the content for later sandboxes; so the file should be replaced
    /// and never rewritten. If the file has grown since this call, the excess is cut; if it has
    /// shrunk, the command that places it fails.
    pub fn open(path: &Path) -> io::Result<SharedFile> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let fd = OwnedFd::from(file);
        let len = sys::regular_file_size(fd.as_fd())?;
        Ok(SharedFile { fd, len, is_sealed: false, guard: None })
    }

    /// Keeps a value as long as the content exists: for accounting of memory.
    pub fn with_guard(mut self, guard: impl Send + Sync + 'static) -> SharedFile {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Returns whether it is an anonymous file that cannot be changed or resized. Only then may a
    /// program have a descriptor of it.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Returns its size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the whole content, for callers that cannot use descriptors.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = sys::read_file(self.fd.as_fd())?;
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        if content.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.truncate(len);
        Ok(content)
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_again_and_cannot_be_written() {
        let shared = SharedFile::from_bytes(b"abc").unwrap();
        assert_eq!((shared.len(), shared.read().unwrap()), (3, b"abc".to_vec()));
        let denied = sys::write_all(shared.as_fd(), b"x").unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_guard_goes_with_the_content() {
        let guard = std::sync::Arc::new(());
        let shared = SharedFile::from_bytes(b"abc").unwrap().with_guard(guard.clone());
        assert_eq!(std::sync::Arc::strong_count(&guard), 2);
        drop(shared);
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }

    #[test]
    fn only_regular_files_are_opened() {
        for path in ["/dev/null", "/proc/self/exe", "/", "/does/not/exist"] {
            assert!(SharedFile::open(Path::new(path)).is_err(), "{path}");
        }
        let shared =
            SharedFile::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        let text = String::from_utf8(shared.unwrap().read().unwrap()).unwrap();
        assert!(text.contains("name = \"sandbox\""), "{text}");
    }
}
