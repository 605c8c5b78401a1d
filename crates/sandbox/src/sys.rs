//! The system calls of this crate, each behind a safe interface. All `unsafe` of Cove is in this
//! file and its children, each of which has one purpose.
//!
//! The interfaces are as thin as possible: one call, its errno as an [`io::Error`], and ownership
//! of descriptors as types. They contain no policy.
#![expect(unsafe_code, reason = "this is the one module that talks to the kernel directly")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

mod descriptors;
pub(crate) mod files;
pub(crate) mod memory;
mod messages;
pub(crate) mod mounts;
mod parked;
mod privileges;
mod processes;
mod restrictions;
pub(crate) mod session;
mod signals;
mod terminals;

pub(crate) use descriptors::*;
pub(crate) use memory::{FailurePage, FailurePages, leave_used_heap, memfd, share_relocated};
pub(crate) use messages::*;
pub(crate) use mounts::{mknod_char, mount, mount_setattr_recursive, pivot_here};
pub(crate) use parked::{ParkedChild, ParkingPlace, ParkingSteps};
pub(crate) use privileges::*;
pub(crate) use processes::*;
pub(crate) use restrictions::*;
pub(crate) use signals::*;
pub(crate) use terminals::*;

fn check(rc: c_long) -> io::Result<c_long> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn check_int(rc: c_int) -> io::Result<c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Takes ownership of a descriptor that a call has just returned.
fn own(fd: c_long) -> io::Result<OwnedFd> {
    let fd = c_int::try_from(check(fd)?).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just returned this descriptor to us, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of the descriptor with this number, if it is open.
///
/// For the one descriptor that a re-executed process inherits by convention.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only reads the flags of the descriptor, if there is one.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: it is open (checked above), and the convention makes the caller its only user.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
