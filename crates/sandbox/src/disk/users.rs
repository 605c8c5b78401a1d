//! Owners of a disk's files in a slot: the user namespace that maps them.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/user_namespaces.7.html>

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{DISK_INIT, DISK_USER};
use crate::sys;

/// Creates the user namespace that maps the owners of files on disks to the user ids of a slot, for
/// `mount_session`: `users` are the guest init's and the programs'. No process lives in it.
///
/// The caller must be single-threaded and have the privileges of root. `host_proc` is its `/proc`.
pub(crate) fn slot_users(host_proc: BorrowedFd<'_>, init: u32, user: u32) -> io::Result<OwnedFd> {
    let (theirs, ours) = sys::message_pair()?;
    // A namespace needs a process until it is opened. This one waits, and is killed.
    let child = sys::fork(libc::CLONE_NEWUSER, None, || {
        let _until_killed = sys::receive(theirs.as_fd(), &mut [0]);
        0
    })?;
    let map = format!("{DISK_INIT} {init} 1\n{DISK_USER} {user} 1\n");
    let open = |name: &str, flags| {
        let name = CString::new(format!("{}/{name}", child.pid))?;
        sys::openat(host_proc, &name, flags, 0)
    };
    let opened = ["uid_map", "gid_map"]
        .iter()
        .try_for_each(|name| {
            // The kernel accepts a map in a single write, once.
            sys::write_all(open(name, libc::O_WRONLY)?.as_fd(), map.as_bytes())
        })
        .and_then(|()| open("ns/user", libc::O_RDONLY));
    let _kept_until_here = ours;
    sys::kill_pidfd(child.pidfd.as_fd())?;
    sys::wait_pid(child.pid)?;
    opened
}
