//! The file system of a session: its disk over its layers, at `/workspace` and `/home/user`.
//!
//! One overlay for both, because one is half the time and half the memory of two. It is mounted
//! where nothing else is, both places are bound to directories in it, and then it goes from sight
//! with the disk and the layers: the mount table inside tells of the two places only.

use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_SYS_ADMIN, mask};
use crate::codec;
use crate::disk::{EMPTY, SHOWN, UPPER, UPPER_WORK};
use crate::failure::{Failure, Step};
use crate::sys::{self, mounts as kernel};

// linux/capability.h
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_MKNOD: u32 = 27;

/// What the guest init must be permitted when it calls [`mount_session`], and what the overlay does
/// its work with for as long as it is mounted: make, own and replace what programs may, and mark
/// what they have deleted. Without `CAP_SYS_RESOURCE`, so that no reserve of a disk is theirs.
pub(crate) const OVERLAY_CAPABILITIES: u64 =
    mask(&[CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SYS_ADMIN, CAP_MKNOD]);

/// Most layers below a disk. Their descriptors come in one message; overlays take 500.
pub(crate) const LAYERS_MAX: usize = 64;

/// A directory of the root where nothing is, to mount what is then taken from sight.
const ASIDE: &CStr = c"/run";
/// Where the directories of the overlay go that sessions see.
const PLACES: [&CStr; SHOWN.len()] = [c"/workspace", c"/home/user"];

/// Mounts the file system of a session, over whatever is at those places. `disk` and `layers`, the
/// newest first, are mounts in no name space, of this sandbox alone; `users` maps the owners of
/// their files. Needs `/proc`.
pub(crate) fn mount_session(
    disk: OwnedFd,
    layers: Vec<OwnedFd>,
    users: Option<BorrowedFd<'_>>,
) -> Result<(), Failure> {
    let refuse = |step: &str, errno| Failure { step: step.to_owned(), errno };
    let users = users.ok_or_else(|| refuse("mount a disk without root", libc::EPERM))?;
    if layers.len() > LAYERS_MAX {
        return Err(refuse("mount that many layers", libc::E2BIG));
    }
    let permitted = sys::capabilities().step("read capabilities")?;
    if OVERLAY_CAPABILITIES & !permitted != 0 {
        return Err(refuse("mount a disk without the capabilities for it", libc::EPERM));
    }
    // Overlays do their work with what is effective now.
    kernel::set_effective(OVERLAY_CAPABILITIES).step("lower capabilities")?;
    let mounted = mount_all(&disk, &layers, users);
    kernel::set_effective(permitted).step("take capabilities back")?;
    mounted
}

fn mount_all(disk: &OwnedFd, layers: &[OwnedFd], users: BorrowedFd<'_>) -> Result<(), Failure> {
    for mount in std::iter::once(disk).chain(layers) {
        kernel::map_owners(mount.as_fd(), users).step("map the owners of files on a disk")?;
        // In the name space, because older kernels take nothing else for an overlay. One upon the
        // other, because they are named by their descriptors anyway.
        kernel::move_mount(mount.as_fd(), ASIDE).step("put a disk aside")?;
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let options = overlay_options(disk.as_fd(), layers)?;
    sys::mount(Some(c"disk"), ASIDE, Some(c"overlay"), flags, Some(&options))
        .step("mount a disk over its layers")?;
    for (name, place) in SHOWN.iter().zip(PLACES) {
        let from = [ASIDE.to_bytes(), b"/", name.as_bytes()].concat();
        let from = CString::new(from).map_err(|_| codec::Malformed)?;
        sys::mount(Some(&from), place, None, libc::MS_BIND, None).step("show a disk")?;
    }
    // With the disk goes everything that was put upon it.
    kernel::detach(&itself(disk.as_fd())?).step("hide what is mounted aside")
}

/// Ours are simple images of our own, so what protects from others' is off; on is what programs
/// expect: directories that can be renamed, and files whose numbers stay.
fn overlay_options(disk: BorrowedFd<'_>, layers: &[OwnedFd]) -> Result<CString, Failure> {
    let lower = match layers {
        [] => vec![directory(disk, EMPTY)?],
        layers => layers
            .iter()
            .map(|layer| directory(layer.as_fd(), UPPER))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let mut options = String::from("redirect_dir=on,xino=on,metacopy=off,index=off,nfs_export=off");
    for (key, value) in [
        ("upperdir", directory(disk, UPPER)?.to_string_lossy()),
        ("workdir", directory(disk, UPPER_WORK)?.to_string_lossy()),
    ] {
        let _infallible = write!(options, ",{key}={value}");
    }
    for (index, directory) in lower.iter().enumerate() {
        let before = if index == 0 { ",lowerdir=" } else { ":" };
        let _infallible = write!(options, "{before}{}", directory.to_string_lossy());
    }
    Ok(CString::new(options).map_err(|_| codec::Malformed)?)
}

/// A mount by its descriptor, which says nothing about the host.
fn itself(mount: BorrowedFd<'_>) -> Result<CString, Failure> {
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(CString::new(path).map_err(|_| codec::Malformed)?)
}

/// A directory in its root, likewise.
fn directory(mount: BorrowedFd<'_>, name: &str) -> Result<CString, Failure> {
    let path = format!("{}/{name}", itself(mount)?.to_string_lossy());
    Ok(CString::new(path).map_err(|_| codec::Malformed)?)
}
