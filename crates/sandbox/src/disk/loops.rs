//! Images as loop devices and mounts, with locks that the kernel releases when their owner ends.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man4/loop.4.html>

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

use super::{BLOCK_BYTES, DiskError, DiskErrorContext};
use crate::sys::mounts::{self as kernel, LockMode};
use crate::sys::{self, KernelClock};

const CONTROL: &CStr = c"/dev/loop-control";
/// Directory in which the kernel lists block devices.
const BLOCK_DEVICES: &str = "/sys/block";
/// Maximum number of attempts to take a free loop device when other processes take it first.
const LOOP_TRIES_MAX: u32 = 100;
/// Bounds of the interval between attempts to lock an image: an eighth of the time waited so far,
/// within these bounds. Most images are free within milliseconds.
const LOCK_INTERVAL_MIN: Duration = Duration::from_micros(100);
const LOCK_INTERVAL_MAX: Duration = Duration::from_millis(1);
/// Errors of the kernel for a missing or damaged file system.
const DAMAGES: [i32; 4] = [libc::EUCLEAN, libc::EBADMSG, libc::EINVAL, libc::EIO];

/// Held between asking for a free loop device and taking it, so that threads of one process do not
/// race for the same one. Other processes can still be faster.
static TAKING: Mutex<()> = Mutex::new(());

/// Access to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageAccess {
    Read,
    Change,
}

/// Checks that loop devices are available.
pub(super) fn check() -> Result<(), DiskError> {
    sys::open(CONTROL, libc::O_RDWR).map(drop).map_err(|error| DiskError::Unsupported {
        missing: format!("no loop devices: /dev/loop-control: {error}"),
        remedy: "load the kernel's module loop; in a container, show the host's /dev",
    })
}

/// Locks an image, or returns [`DiskError::InUse`] at once.
pub(super) fn lock(image: &File, lock: LockMode, path: &Path) -> Result<(), DiskError> {
    match kernel::try_lock(image.as_fd(), lock).at("lock", path)? {
        true => Ok(()),
        false => Err(DiskError::InUse { path: path.to_owned() }),
    }
}

/// Opens an image and locks it, waiting for at most `wait`.
///
/// Opens the file again at each attempt, because its name can refer to another file by then.
pub(super) fn open_locked(path: &Path, lock: LockMode, wait: Duration) -> Result<File, DiskError> {
    let started = now(path)?;
    loop {
        let mut options = File::options();
        let image = options.read(true).write(lock == LockMode::Exclusive).open(path);
        let image = image.at("open the disk image", path)?;
        if kernel::try_lock(image.as_fd(), lock).at("lock", path)? {
            let (ours, named) = (image.metadata().at("look at", path)?, fs::metadata(path));
            let named = named.at("look at", path)?;
            if (ours.dev(), ours.ino()) == (named.dev(), named.ino()) {
                return Ok(image);
            }
            continue;
        }
        drop(image);
        let waited = now(path)?.saturating_sub(started);
        if waited >= wait {
            return Err(DiskError::InUse { path: path.to_owned() });
        }
        let interval = (waited / 8).clamp(LOCK_INTERVAL_MIN, LOCK_INTERVAL_MAX);
        sys::poll(&[], Some(interval)).at("wait for", path)?;
    }
}

fn now(path: &Path) -> Result<Duration, DiskError> {
    sys::clock(KernelClock::Monotonic).at("read the clock for", path)
}

/// Makes a locked image a loop device and mounts it. Returns the name of the device and the root of
/// the file system; both stay valid while the root, or a mount, is open.
pub(super) fn attach(
    image: &File,
    path: &Path,
    access: ImageAccess,
) -> Result<(CString, OwnedFd), DiskError> {
    // Until the file system is mounted, only `_open` keeps the image attached to the device.
    let (device, _open) = take_device(image, access).at("make a loop device of", path)?;
    let mount = mount(&device, access).map_err(|error| match error.raw_os_error() {
        Some(errno) if DAMAGES.contains(&errno) => {
            DiskError::Damaged { path: path.to_owned(), detail: error.to_string() }
        }
        _ => DiskError::Io { step: "mount", path: path.to_owned(), source: error },
    })?;
    let root = open_root(mount.as_fd()).at("open the root of", path)?;
    Ok((device, root))
}

fn open_root(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    sys::openat(mount, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

fn take_device(image: &File, access: ImageAccess) -> io::Result<(CString, OwnedFd)> {
    let control = sys::open(CONTROL, libc::O_RDWR)?;
    let flags = if access == ImageAccess::Read { libc::O_RDONLY } else { libc::O_RDWR };
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..LOOP_TRIES_MAX {
        let _taking = TAKING.lock();
        let number = kernel::free_loop(control.as_fd())?;
        let name = CString::new(format!("/dev/loop{number}"))?;
        let taken = sys::open(&name, flags).and_then(|device| {
            let read_only = access == ImageAccess::Read;
            kernel::configure_loop(device.as_fd(), image.as_fd(), read_only, BLOCK_BYTES)?;
            Ok(device)
        });
        match taken {
            Ok(device) => return Ok((name, device)),
            // Another process has taken the device, or it is still being detached.
            Err(error) if is_raced(&error) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn is_raced(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO | libc::EAGAIN))
}

/// Creates a new mount of a device, in no namespace. For a device that is mounted already it is
/// another mount of the same file system, with the options of the first.
///
/// Does not clone an existing mount: kernels before 6.15 cannot clone a mount in no namespace.
pub(super) fn mount(device: &CStr, access: ImageAccess) -> io::Result<OwnedFd> {
    let fs = kernel::fs_open(c"ext4")?;
    kernel::fs_set(fs.as_fd(), c"source", device)?;
    // Overrides the setting in the image.
    kernel::fs_set(fs.as_fd(), c"errors", c"remount-ro")?;
    // Access times would modify an unchanged image.
    let mut attributes =
        libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOATIME;
    if access == ImageAccess::Read {
        kernel::fs_flag(fs.as_fd(), c"ro")?;
        // The caller has checked that the journal is empty. The kernel would refuse an image whose
        // journal may need recovery, because it cannot write to it.
        kernel::fs_flag(fs.as_fd(), c"noload")?;
        attributes |= libc::MOUNT_ATTR_RDONLY;
    }
    // Without `discard`: the kernel would make holes some time after each deletion, none for the
    // last deletions, and would then reject explicit trims. `AttachedDiskImage::trim` does it.
    kernel::fs_create(fs.as_fd())?;
    kernel::fs_mount(fs.as_fd(), attributes)
}

/// Counter of writes to a device: if two readings are equal and no write is under way, nothing was
/// written between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceWrites {
    /// Completed writes and discards.
    done: [u64; 2],
    /// Requests under way.
    under_way: u64,
}

impl DeviceWrites {
    /// Returns whether nothing was written from `self` to `later`.
    pub(super) fn is_all_until(self, later: DeviceWrites) -> bool {
        // A request under way at the start would have completed and been counted; the last to begin
        // would be under way.
        self.under_way == 0 && self == later
    }
}

/// Reads the kernel's statistics of a device (Documentation/block/stat.rst).
pub(super) fn writes(device: &CStr) -> io::Result<DeviceWrites> {
    let name = device.to_string_lossy();
    let name = name.rsplit('/').next().unwrap_or_default();
    let numbers = |file: &str| {
        let text = fs::read_to_string(format!("{BLOCK_DEVICES}/{name}/{file}"))?;
        Ok::<_, io::Error>(text.split_ascii_whitespace().map_while(|it| it.parse().ok()).collect())
    };
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    let counted: Vec<u64> = numbers("queue/iostats")?;
    if counted != [1] {
        return Err(io::Error::other("the kernel does not count what is written"));
    }
    let (stat, in_flight): (Vec<u64>, Vec<u64>) = (numbers("stat")?, numbers("inflight")?);
    let at = |numbers: &[u64], index| numbers.get(index).copied().ok_or_else(missing);
    Ok(DeviceWrites { done: [at(&stat, 4)?, at(&stat, 11)?], under_way: at(&in_flight, 1)? })
}
