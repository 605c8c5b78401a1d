//! The file system of a session: its disk over its layers, at `/workspace` and `/home/user`; and
//! that of commands over layers, whose changes are in memory.
//!
//! One overlay serves both places, because it takes half the time and half the memory of two. It is
//! mounted at an unused directory, both places are bound to directories in it, and then it is
//! hidden together with the disk and the layers: the mount table in the sandbox shows only the two
//! places.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/mount_namespaces.7.html>
//! - <https://docs.kernel.org/filesystems/overlayfs.html>

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_SYS_ADMIN, mask};
use crate::codec;
use crate::disk::{EMPTY, SHOWN, UPPER, UPPER_WORK};
use crate::failure::{FailureContext, StepFailure};
use crate::sys::{self, mounts as kernel};

// linux/capability.h
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_MKNOD: u32 = 27;

/// Capabilities that the guest init needs to call [`mount_session`], and that the overlay uses
/// while it is mounted: to create, own and replace files that programs may, and to create whiteouts
/// of deleted files. Without `CAP_SYS_RESOURCE`, so that programs cannot use a disk's reserved
/// space.
pub(crate) const OVERLAY_CAPABILITIES: u64 =
    mask(&[CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SYS_ADMIN, CAP_MKNOD]);

/// Maximum number of layers below a disk. Their descriptors fit into one message; overlays accept
/// 500.
pub(crate) const LAYERS_MAX: usize = 64;

/// An unused directory of the root, for mounts that are hidden afterwards.
const ASIDE: &str = "/run";
/// Mount points of the overlay's directories that sessions see.
const PLACES: [&CStr; SHOWN.len()] = [c"/workspace", c"/home/user"];

/// Mounts the file system of a session over the existing directories at its places. `disk` and
/// `layers`, the newest first, are mounts in no namespace that only this sandbox has; `users` maps
/// the owners of their files. Needs `/proc`.
pub(crate) fn mount_session(
    disk: OwnedFd,
    layers: Vec<OwnedFd>,
    users: Option<BorrowedFd<'_>>,
) -> Result<(), StepFailure> {
    let mounts: Vec<&OwnedFd> = std::iter::once(&disk).chain(&layers).collect();
    mount_overlay(&mounts, disk.as_fd(), &layers, users)
}

/// Mounts layers in the same way, the newest first and at least one, below the files that programs
/// write. Changes go to directories of `scratch`, a file system in memory that has [`UPPER`] and
/// [`UPPER_WORK`] ([`crate::workspace::make_upper`]).
pub(super) fn mount_layers(
    scratch: BorrowedFd<'_>,
    layers: &[OwnedFd],
    users: Option<BorrowedFd<'_>>,
) -> Result<(), StepFailure> {
    let mounts: Vec<&OwnedFd> = layers.iter().collect();
    mount_overlay(&mounts, scratch, layers, users)
}

/// Calls [`mount_all`] with exactly the capabilities of overlays.
fn mount_overlay(
    mounts: &[&OwnedFd],
    upper: BorrowedFd<'_>,
    layers: &[OwnedFd],
    users: Option<BorrowedFd<'_>>,
) -> Result<(), StepFailure> {
    let refuse = |step: &str, errno| StepFailure { step: step.to_owned(), errno };
    let users = users.ok_or_else(|| refuse("mount a disk without root", libc::EPERM))?;
    if layers.len() > LAYERS_MAX {
        return Err(refuse("mount that many layers", libc::E2BIG));
    }
    let permitted = sys::capabilities().step("read capabilities")?;
    if OVERLAY_CAPABILITIES & !permitted != 0 {
        return Err(refuse("mount a disk without the capabilities for it", libc::EPERM));
    }
    // Overlays keep the effective capabilities of their mounter.
    kernel::set_effective(OVERLAY_CAPABILITIES).step("lower capabilities")?;
    let mounted = mount_all(mounts, upper, layers, users);
    kernel::set_effective(permitted).step("take capabilities back")?;
    mounted
}

/// Mounts the overlay and binds its directories. `mounts` are attached in this order; the first of
/// them has a directory [`EMPTY`]. `upper` receives the changes.
fn mount_all(
    mounts: &[&OwnedFd],
    upper: BorrowedFd<'_>,
    layers: &[OwnedFd],
    users: BorrowedFd<'_>,
) -> Result<(), StepFailure> {
    // Attached to the namespace, because older kernels accept only attached mounts for an overlay.
    // All are stacked on the first, so that one detach removes all; the overlay refers to them by
    // descriptors.
    let (aside, below) = (c_path(ASIDE)?, c_path(&format!("{ASIDE}/{EMPTY}"))?);
    let places = std::iter::once(&aside).chain(std::iter::repeat(&below));
    for (mount, place) in mounts.iter().zip(places) {
        kernel::map_owners(mount.as_fd(), users).step("map the owners of files on a disk")?;
        kernel::move_mount(mount.as_fd(), place).step("put a disk aside")?;
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let options = c_path(&overlay_options(upper, layers))?;
    sys::mount(Some(c"disk"), &below, Some(c"overlay"), flags, Some(&options))
        .step("mount a disk over its layers")?;
    for (name, place) in SHOWN.iter().zip(PLACES) {
        let from = c_path(&format!("{ASIDE}/{EMPTY}/{name}"))?;
        sys::mount(Some(&from), place, None, libc::MS_BIND, None).step("show a disk")?;
    }
    kernel::detach(&aside).step("hide what is mounted aside")
}

/// Options of the overlay. The images are our own and simple, so protections against foreign ones
/// are off; features that programs expect are on: directories can be renamed, and inode numbers are
/// stable.
fn overlay_options(disk: BorrowedFd<'_>, layers: &[OwnedFd]) -> String {
    // By descriptor, because such a path reveals nothing about the host.
    let directory =
        |mount: BorrowedFd<'_>, name| format!("/proc/self/fd/{}/{name}", mount.as_raw_fd());
    // Without layers there is one file system, whose inode numbers are used unchanged.
    let xino = if layers.is_empty() { "off" } else { "on" };
    let lower = match layers {
        [] => directory(disk, EMPTY),
        layers => {
            let lower: Vec<String> =
                layers.iter().map(|layer| directory(layer.as_fd(), UPPER)).collect();
            lower.join(":")
        }
    };
    format!(
        "redirect_dir=on,xino={xino},metacopy=off,index=off,nfs_export=off,\
         upperdir={},workdir={},lowerdir={lower}",
        directory(disk, UPPER),
        directory(disk, UPPER_WORK),
    )
}

fn c_path(text: &str) -> Result<CString, StepFailure> {
    Ok(CString::new(text).map_err(|_| codec::MalformedMessage)?)
}

#[cfg(test)]
mod tests;
