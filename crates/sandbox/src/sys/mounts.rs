//! System calls of mounts and disks: loop devices, mounts in no mount namespace, locks, sparse
//! files.
//!
//! As thin as the rest of `sys`: one call, its errno, ownership as types. No policy here.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/mount_setattr.2.html>
//! - <https://man7.org/linux/man-pages/man2/open_tree.2.html>
//! - <https://man7.org/linux/man-pages/man2/pivot_root.2.html>
//! - <https://man7.org/linux/man-pages/man2/sync_file_range.2.html>
//! - <https://docs.kernel.org/filesystems/ext4/journal.html>

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::descriptors::statfs;
use super::privileges::{CAP_HEADER, CapData};
use super::{capabilities, check, check_int, own};

// linux/loop.h
const LOOP_CONFIGURE: c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: c_ulong = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

// linux/fs.h
const FITRIM: c_ulong = 0xC018_5879;
const FICLONE: c_ulong = 0x4004_9409;

// uapi/linux/ext4.h
const EXT4_IOC_CHECKPOINT: c_ulong = 0x4004_662B;

// linux/mount.h
const FSOPEN_CLOEXEC: c_uint = 1;
const FSMOUNT_CLOEXEC: c_uint = 1;
const FSCONFIG_SET_FLAG: c_uint = 0;
const FSCONFIG_SET_STRING: c_uint = 1;
const FSCONFIG_CMD_CREATE: c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

// ---- locks -------------------------------------------------------------------------------------

/// Mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    /// A single holder.
    Exclusive,
}

/// `flock(2)` that does not wait. Returns false if another open file holds a conflicting lock.
pub(crate) fn try_lock(file: BorrowedFd<'_>, lock: LockMode) -> io::Result<bool> {
    let operation = match lock {
        LockMode::Shared => libc::LOCK_SH,
        LockMode::Exclusive => libc::LOCK_EX,
    };
    // SAFETY: touches no memory.
    match check_int(unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

// ---- loop devices ------------------------------------------------------------------------------

/// Returns the number of a loop device that is free now (`LOOP_CTL_GET_FREE`). Other processes can
/// receive the same number.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the call takes no argument.
    let number = check_int(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// Attaches a file to a loop device, in one step, until the device is closed for the last time
/// (`LOOP_CONFIGURE` with `LO_FLAGS_AUTOCLEAR`). `EBUSY` if another process was faster.
///
/// The device keeps this very open file description, and so the `flock` that is on it.
pub(crate) fn configure_loop(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    read_only: bool,
    block_bytes: u32,
) -> io::Result<()> {
    #[repr(C)]
    struct LoopConfig {
        fd: u32,
        block_size: u32,
        info: LoopInfo,
        reserved: [u64; 8],
    }
    #[repr(C)]
    struct LoopInfo {
        device: u64,
        inode: u64,
        rdevice: u64,
        offset: u64,
        size_limit: u64,
        number: u32,
        encrypt_type: u32,
        encrypt_key_size: u32,
        flags: u32,
        file_name: [u8; 64],
        crypt_name: [u8; 64],
        encrypt_key: [u8; 32],
        init: [u64; 2],
    }
    // SAFETY: all-zero is valid for these integers: the whole file, no transformation.
    let mut config: LoopConfig = unsafe { mem::zeroed() };
    config.fd = file.as_raw_fd().cast_unsigned();
    config.block_size = block_bytes;
    config.info.flags = LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    // SAFETY: `config` has the kernel's layout and outlives the call.
    check_int(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) })
        .map(drop)
}

// ---- mounts ------------------------------------------------------------------------------------

/// `mount(2)`. Absent strings are null pointers, as the kernel documents for the flags that ignore
/// them.
pub(crate) fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |s: Option<&CStr>| s.map_or(ptr::null::<c_char>(), CStr::as_ptr);
    // SAFETY: every pointer is null or NUL-terminated and outlives the call.
    check_int(unsafe {
        libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, pointer(data).cast())
    })
    .map(drop)
}

/// `mount_setattr(2)` with `AT_RECURSIVE`: sets these `MOUNT_ATTR_*` on a mount and all below it.
pub(crate) fn mount_setattr_recursive(path: &CStr, set: u64) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attr = MountAttr { set, clear: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: `path` is NUL-terminated, `attr` has the kernel's layout and its size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attr,
            mem::size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// `pivot_root(".", ".")` and the lazy unmount of the old root below it, which pivot_root(2)
/// allows.
pub(crate) fn pivot_here() -> io::Result<()> {
    let here = c".".as_ptr();
    // SAFETY: both paths are NUL-terminated.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, here, here) })?;
    // SAFETY: the path is NUL-terminated.
    check_int(unsafe { libc::umount2(here, libc::MNT_DETACH) }).map(drop)
}

/// `mknod(2)` of a character device.
pub(crate) fn mknod_char(path: &CStr, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe {
        libc::mknod(path.as_ptr(), libc::S_IFCHR | mode, libc::makedev(major, minor))
    })
    .map(drop)
}

/// Begins to mount a file system of this kind (`fsopen(2)`). `ENODEV` if the kernel does not
/// support it.
pub(crate) fn fs_open(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the string is NUL-terminated.
    own(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })
}

/// Sets an option that has a value, of fewer than 256 bytes (`fsconfig(2)`).
pub(crate) fn fs_set(fs: BorrowedFd<'_>, key: &CStr, value: &CStr) -> io::Result<()> {
    fs_config(fs, FSCONFIG_SET_STRING, Some(key), Some(value))
}

/// Sets an option without a value.
pub(crate) fn fs_flag(fs: BorrowedFd<'_>, key: &CStr) -> io::Result<()> {
    fs_config(fs, FSCONFIG_SET_FLAG, Some(key), None)
}

/// Creates the file system's instance, or finds the one that the kernel has already.
pub(crate) fn fs_create(fs: BorrowedFd<'_>) -> io::Result<()> {
    fs_config(fs, FSCONFIG_CMD_CREATE, None, None)
}

fn fs_config(
    fs: BorrowedFd<'_>,
    command: c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |s: Option<&CStr>| s.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the strings are null, where the command wants none, or NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            fs.as_raw_fd(),
            command,
            pointer(key),
            pointer(value),
            0 as c_int,
        )
    })
    .map(drop)
}

/// Creates a mount of it in no mount namespace, with these `MOUNT_ATTR_*` (`fsmount(2)`).
pub(crate) fn fs_mount(fs: BorrowedFd<'_>, attributes: u64) -> io::Result<OwnedFd> {
    // SAFETY: touches no memory.
    own(unsafe { libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) })
}

/// Attaches such a mount at a path (`move_mount(2)`).
pub(crate) fn move_mount(mount: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: both paths are NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Maps the owners of files as a user namespace does (`MOUNT_ATTR_IDMAP`). Works once, for a mount
/// that was never in a mount namespace.
pub(crate) fn map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attr = MountAttr {
        set: MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        userns_fd: u64::from(users.as_raw_fd().cast_unsigned()),
    };
    // SAFETY: the path is NUL-terminated, `attr` has the kernel's layout and its size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            mem::size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// `umount2(2)` with `MNT_DETACH`: removes this mount and all mounts on it from the namespace.
pub(crate) fn detach(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated.
    check_int(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Makes exactly these capabilities effective and leaves the permitted ones unchanged, so that they
/// can be regained.
pub(crate) fn set_effective(mask: u64) -> io::Result<()> {
    let permitted = capabilities()?;
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [0, 32].map(|shift| CapData {
        effective: half(mask >> shift),
        permitted: half(permitted >> shift),
        inheritable: 0,
    });
    // SAFETY: version 3 reads one header and two data elements, as passed here.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })
        .map(drop)
}

// ---- file systems ------------------------------------------------------------------------------

/// Space of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystemSpace {
    pub(crate) block_bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    /// Free blocks for users without privileges.
    pub(crate) blocks_available: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

/// `fstatfs(2)`.
pub(crate) fn space(fd: BorrowedFd<'_>) -> io::Result<FileSystemSpace> {
    let stat = statfs(fd)?;
    Ok(FileSystemSpace {
        block_bytes: u64::try_from(stat.f_bsize).unwrap_or(4096),
        blocks: stat.f_blocks,
        blocks_free: stat.f_bfree,
        blocks_available: stat.f_bavail,
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

/// Writes all dirty data of the file system of `fd` to its device (`syncfs(2)`).
pub(crate) fn sync_fs(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::syncfs(fd.as_raw_fd()) }).map(drop)
}

/// Writes the journal of the ext4 of `fd` back to the file system, so that the journal is empty
/// until the next change (`EXT4_IOC_CHECKPOINT`). Writers wait during the call, but never after it,
/// whether it succeeds or not.
pub(crate) fn checkpoint_journal(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags: u32 = 0;
    // SAFETY: `flags` is valid for reads.
    check_int(unsafe { libc::ioctl(fd.as_raw_fd(), EXT4_IOC_CHECKPOINT, &raw const flags) })
        .map(drop)
}

/// Discards unused blocks on the device, in extents of at least `least_bytes` (`FITRIM`).
pub(crate) fn trim(fd: BorrowedFd<'_>, least_bytes: u64) -> io::Result<()> {
    #[repr(C)]
    struct TrimRange {
        start: u64,
        len: u64,
        least: u64,
    }
    let mut range = TrimRange { start: 0, len: u64::MAX, least: least_bytes };
    // SAFETY: `range` has the kernel's layout and is valid for reads and writes.
    check_int(unsafe { libc::ioctl(fd.as_raw_fd(), FITRIM, &raw mut range) }).map(drop)
}

// ---- sparse files ------------------------------------------------------------------------------

/// Makes an empty file share all content of another (`FICLONE`), if the file system can.
pub(crate) fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is a descriptor.
    check_int(unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, from.as_raw_fd()) }).map(drop)
}

/// Returns the first extent of data of a file at or after `from`, as start and end; `None` when
/// only a hole follows. Moves the position of the file.
pub(crate) fn next_data(file: BorrowedFd<'_>, from: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: touches no memory.
        let at = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
        if at < 0 { Err(io::Error::last_os_error()) } else { Ok(at.unsigned_abs()) }
    };
    match seek(from, libc::SEEK_DATA) {
        Ok(start) => Ok(Some((start, seek(start, libc::SEEK_HOLE)?))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies at most `len` bytes at `offset` of one file to the same offset of another, in the kernel
/// (`copy_file_range(2)`). Returns the number of bytes; 0 at the end of the file.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    offset: u64,
    len: u64,
) -> io::Result<u64> {
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (mut read_at, mut write_at) = (offset, offset);
    loop {
        // SAFETY: both offsets are valid for reads and writes.
        let n = unsafe {
            libc::copy_file_range(
                from.as_raw_fd(),
                &raw mut read_at,
                to.as_raw_fd(),
                &raw mut write_at,
                len,
                0,
            )
        };
        if n >= 0 {
            return Ok(n.unsigned_abs() as u64);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Starts to write a range of a file to the disk, without waiting (`sync_file_range(2)` with
/// `SYNC_FILE_RANGE_WRITE`). It makes nothing durable.
pub(crate) fn start_writing(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let number = |value| {
        libc::off64_t::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    };
    let (offset, len) = (number(offset)?, number(len)?);
    // SAFETY: touches no memory.
    check_int(unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    })
    .map(drop)
}

/// Gives an unnamed file a name (`linkat(2)`). `EEXIST` if the name is taken.
pub(crate) fn link(file: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let own = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: both paths are NUL-terminated.
    check_int(unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            own.as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    })
    .map(drop)
}
