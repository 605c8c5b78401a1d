//! System calls of descriptors: opening, reading, writing, copying, closing.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/close_range.2.html>

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, check_int, own};

/// `openat(2)`, always close-on-exec.
pub(crate) fn openat(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated.
    own(unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC, mode) }
        .into())
}

/// `open(2)` of an absolute path, always close-on-exec.
pub(crate) fn open(path: &CStr, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated.
    own(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into())
}

/// `openat2(2)` that never leaves `dir`, follows no link of any kind and crosses no mount.
///
/// The only way in which the privileged side opens a path in storage that sandboxed code controls.
pub(crate) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = OpenHow {
        flags: u64::from(
            (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY).cast_unsigned(),
        ),
        mode: u64::from(mode),
        resolve: libc::RESOLVE_BENEATH
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_XDEV,
    };
    // SAFETY: `path` is NUL-terminated, `how` has the kernel's layout and its size is passed.
    own(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            mem::size_of::<OpenHow>(),
        )
    })
}

/// `mkdirat(2)`.
pub(crate) fn mkdirat(dir: BorrowedFd<'_>, path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::mkdirat(dir.as_raw_fd(), path.as_ptr(), mode) }).map(drop)
}

/// `symlinkat(2)`.
pub(crate) fn symlinkat(target: &CStr, dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated.
    check_int(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// `unlinkat(2)` of a directory.
pub(crate) fn rmdirat(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::unlinkat(dir.as_raw_fd(), path.as_ptr(), libc::AT_REMOVEDIR) })
        .map(drop)
}

/// `fchmod(2)`.
pub(crate) fn fchmod(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(drop)
}

/// `fchdir(2)`.
pub(crate) fn change_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::fchdir(directory.as_raw_fd()) }).map(drop)
}

/// `fchown(2)`.
pub(crate) fn fchown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) }).map(drop)
}

/// Returns whether it is a pipe without a name: a named one is a user's file.
pub(crate) fn is_pipe(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // linux/magic.h
    const PIPEFS_MAGIC: i64 = 0x5049_5045;
    Ok(statfs(fd)?.f_type == PIPEFS_MAGIC)
}

pub(super) fn statfs(fd: BorrowedFd<'_>) -> io::Result<libc::statfs> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `stat` is valid for writes.
    check_int(unsafe { libc::fstatfs(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    Ok(unsafe { stat.assume_init() })
}

/// Returns the size of a regular file in bytes; `EINVAL` for other kinds.
pub(crate) fn regular_file_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is valid for writes.
    check_int(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let stat = unsafe { stat.assume_init() };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(stat.st_size.unsigned_abs())
}

/// Returns the bytes and inodes in use on the file system of `fd`.
pub(crate) fn usage(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = statfs(fd)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    let bytes = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block);
    Ok((bytes, stat.f_files.saturating_sub(stat.f_ffree)))
}

/// `read(2)`.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `pread(2)`.
pub(crate) fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::pread(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), offset) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `write(2)`.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// Copies the first `len` bytes of a file to the current position of another one, in the kernel.
/// The position of the first does not change, because other processes share it.
///
/// `sendfile(2)`, because `copy_file_range(2)` does not copy between two file systems.
pub(crate) fn copy_from_start(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: u64,
) -> io::Result<()> {
    let mut offset: libc::off_t = 0;
    while let left @ 1.. = len.saturating_sub(offset.unsigned_abs()) {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // SAFETY: `offset` is valid for reads and writes.
        let n = unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut offset, left) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if n == 0 {
            // The file has shrunk since its length was read.
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
    }
    Ok(())
}

/// Writes all of `bytes`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length belong together.
        let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        bytes = bytes.get(n.unsigned_abs()..).unwrap_or(&[]);
    }
    Ok(())
}

/// Reads a whole regular file.
pub(crate) fn read_file(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = usize::try_from(regular_file_size(fd)?).unwrap_or(usize::MAX);
    let mut content = vec![0; size];
    let mut done = 0;
    while let Some(rest) = content.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(fd, rest, done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    content.truncate(done);
    Ok(content)
}

/// `pipe2(2)`, close-on-exec: read end, write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1 as c_int; 2];
    // SAFETY: `fds` has room for two descriptors.
    check_int(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the call succeeded; this descriptor has no other owner.
    let read = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: likewise.
    let write = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((read, write))
}

/// Makes reads and writes return `EAGAIN` instead of blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: reads the flags only.
    let flags = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: sets flags only.
    check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
        .map(drop)
}

/// `dup2(2)` for the three standard streams, without close-on-exec.
pub(crate) fn dup_onto(fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // Only standard streams are replaced: any other number may belong to an OwnedFd.
    if !(0..=2).contains(&target) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `target` is a standard stream, which no OwnedFd of ours owns.
    check_int(unsafe { libc::dup2(fd.as_raw_fd(), target) }).map(drop)
}

/// `fcntl(2)` with F_DUPFD_CLOEXEC: a copy with the lowest free number from `least` on.
pub(crate) fn dup_from(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor and touches no memory.
    own(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) }.into())
}

/// `dup2(2)`, without close-on-exec, for a program that is about to be executed.
///
/// Closes the previous descriptor of that number, although an OwnedFd in this memory may own it. So
/// it is only for a forked child that uses none of its descriptors any more, and ends by `execve`
/// or `_exit`.
pub(crate) fn dup_for_program(fd: &OwnedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: touches no memory; by the condition above the previous descriptor is not in use.
    check_int(unsafe { libc::dup2(fd.as_raw_fd(), target) }).map(drop)
}

/// Marks every descriptor from `first` on close-on-exec.
pub(crate) fn cloexec_from(first: c_uint) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: c_uint = 4;
    // SAFETY: closes nothing now, so no OwnedFd is invalidated.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Closes every descriptor from `first` to `last`.
///
/// For the first moments of a forked child, which holds copies of its parent's descriptors whose
/// owners (in copied memory) are never dropped, because the child ends by `_exit` or `execve`.
pub(crate) fn close_inherited(first: c_uint, last: c_uint) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: touches no memory; the callers keep every descriptor that they continue to use
    // outside the range.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}
