//! System calls of the file helper, which use a directory's descriptor and a name in it.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/openat2.2.html>

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{check, check_int, own};

/// `f_type` of `/proc` (linux/magic.h).
pub(crate) const PROC_MAGIC: i64 = 0x9fa0;

/// Path resolution of `openat2(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolveMode {
    /// As for any program, but without following the links in `/proc` to a process's open files.
    Ordinary,
    /// Never out of the directory, through no link of any kind, into no other file system.
    Beneath,
}

/// `openat2(2)`, always close-on-exec, never making a terminal the controlling one. Without a
/// directory, a relative path begins at the current one.
pub(crate) fn openat2(
    dir: Option<BorrowedFd<'_>>,
    path: &CStr,
    flags: c_int,
    mode: u32,
    resolve: ResolveMode,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    // With O_PATH the kernel accepts few other flags.
    let extra = if flags & libc::O_PATH != 0 { 0 } else { libc::O_NOCTTY };
    let how = OpenHow {
        flags: u64::from((flags | libc::O_CLOEXEC | extra).cast_unsigned()),
        mode: u64::from(mode),
        resolve: match resolve {
            ResolveMode::Ordinary => libc::RESOLVE_NO_MAGICLINKS,
            ResolveMode::Beneath => {
                libc::RESOLVE_BENEATH
                    | libc::RESOLVE_NO_SYMLINKS
                    | libc::RESOLVE_NO_MAGICLINKS
                    | libc::RESOLVE_NO_XDEV
            }
        },
    };
    // SAFETY: `path` is NUL-terminated, `how` has the kernel's layout and its size is passed.
    own(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd()),
            path.as_ptr(),
            &raw const how,
            mem::size_of::<OpenHow>(),
        )
    })
}

/// Result of `fstatat(2)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileStat {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// File type and permissions.
    pub(crate) mode: u32,
    pub(crate) links: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Number of blocks of 512 bytes.
    pub(crate) blocks: u64,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: u32,
}

impl FileStat {
    /// Returns the file type, such as `S_IFREG`.
    pub(crate) fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
}

/// `fstatat(2)` of a name in a directory, without following a link; of the open directory or file
/// itself if the name is empty.
pub(crate) fn stat(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<FileStat> {
    let mut stat = MaybeUninit::<libc::stat64>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: `name` is NUL-terminated and `stat` valid for writes.
    check_int(unsafe {
        libc::fstatat64(dir.as_raw_fd(), name.as_ptr(), stat.as_mut_ptr(), flags)
    })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on aarch64")]
    let links = u64::from(stat.st_nlink);
    Ok(FileStat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        mode: stat.st_mode,
        links,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size.unsigned_abs(),
        blocks: stat.st_blocks.unsigned_abs(),
        mtime: stat.st_mtime,
        mtime_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    })
}

/// Returns the type of the file system of a descriptor (linux/magic.h).
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> io::Result<i64> {
    Ok(super::statfs(fd)?.f_type)
}

/// `readlinkat(2)`; of the open link itself if the name is empty. Returns at most the longest path.
pub(crate) fn readlink(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0u8; 4096];
    // SAFETY: `name` is NUL-terminated; pointer and length belong together.
    let n = unsafe {
        libc::readlinkat(dir.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    target.truncate(n.unsigned_abs());
    Ok(target)
}

/// `unlinkat(2)` of a file that is not a directory.
pub(crate) fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated.
    check_int(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// `renameat(2)`.
pub(crate) fn rename(
    from: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    new_name: &CStr,
) -> io::Result<()> {
    // SAFETY: both names are NUL-terminated.
    check_int(unsafe {
        libc::renameat(from.as_raw_fd(), name.as_ptr(), to.as_raw_fd(), new_name.as_ptr())
    })
    .map(drop)
}

/// `linkat(2)`, without following a link.
pub(crate) fn link(
    from: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    new_name: &CStr,
) -> io::Result<()> {
    // SAFETY: both names are NUL-terminated.
    check_int(unsafe {
        libc::linkat(from.as_raw_fd(), name.as_ptr(), to.as_raw_fd(), new_name.as_ptr(), 0)
    })
    .map(drop)
}

/// `linkat(2)` of a file that has no name yet; `path` is this process's link to its descriptor.
pub(crate) fn link_nameless(path: &CStr, to: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated.
    check_int(unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            path.as_ptr(),
            to.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    })
    .map(drop)
}

/// `chmod(2)`, following links.
pub(crate) fn chmod(path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
}

/// `utimensat(2)` of a name in a directory, without following a link: sets both times.
pub(crate) fn set_times(
    dir: BorrowedFd<'_>,
    name: &CStr,
    seconds: i64,
    nanos: u32,
) -> io::Result<()> {
    let time = libc::timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let times = [time; 2];
    // SAFETY: `name` is NUL-terminated; two times are read.
    check_int(unsafe {
        libc::utimensat(dir.as_raw_fd(), name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    })
    .map(drop)
}

/// `mkfifoat(3)`.
pub(crate) fn make_fifo(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated.
    check_int(unsafe { libc::mkfifoat(dir.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// `getdents64(2)`: fills `buf` with records of a directory; zero bytes at its end.
pub(crate) fn read_directory(dir: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length belong together.
    let n = check(unsafe {
        libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buf.as_mut_ptr(), buf.len())
    })?;
    Ok(usize::try_from(n).unwrap_or(0))
}

/// `lseek(2)` to the next data (`SEEK_DATA`) or hole (`SEEK_HOLE`) from `offset` on; `None` if
/// there is none.
pub(crate) fn seek_sparse(
    file: BorrowedFd<'_>,
    offset: u64,
    whence: c_int,
) -> io::Result<Option<u64>> {
    let offset = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: touches no memory.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), offset, whence) };
    if found >= 0 {
        return Ok(Some(found.unsigned_abs()));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// `listxattr(2)`: names, each with its NUL.
pub(crate) fn list_attributes(path: &CStr, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `path` is NUL-terminated; pointer and length belong together.
    let n = unsafe { libc::listxattr(path.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `getxattr(2)`.
pub(crate) fn attribute(path: &CStr, name: &CStr, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: both strings are NUL-terminated; pointer and length belong together.
    let n =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `setxattr(2)`.
pub(crate) fn set_attribute(path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated; pointer and length belong together.
    check_int(unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(drop)
}

/// `removexattr(2)`.
pub(crate) fn remove_attribute(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated.
    check_int(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

/// `inotify_init1(2)`, not blocking.
pub(crate) fn inotify() -> io::Result<OwnedFd> {
    // SAFETY: touches no memory.
    own(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) }.into())
}

/// `inotify_add_watch(2)`; returns the watch's number.
pub(crate) fn inotify_watch(
    inotify: BorrowedFd<'_>,
    path: &CStr,
    events: c_uint,
) -> io::Result<c_int> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), events) })
}

/// `inotify_rm_watch(2)`.
pub(crate) fn inotify_forget(inotify: BorrowedFd<'_>, watch: c_int) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), watch) }).map(drop)
}

/// Returns the user and group id with which this thread's file accesses are checked.
pub(crate) fn fsids() -> (u32, u32) {
    // An invalid id changes nothing, and the call returns the current one.
    // SAFETY: touches no memory.
    let uid = unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) };
    // SAFETY: likewise.
    let gid = unsafe { libc::syscall(libc::SYS_setfsgid, u32::MAX) };
    (u32::try_from(uid).unwrap_or(u32::MAX), u32::try_from(gid).unwrap_or(u32::MAX))
}
