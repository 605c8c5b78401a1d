//! File system restriction by the kernel's Landlock module, for the rootless case, in which no
//! other user id separates sandboxed code from its caller.
//!
//! # References
//! - <https://docs.kernel.org/userspace-api/landlock.html>

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys;

// linux/landlock.h, LANDLOCK_ACCESS_FS_*, first version of the interface.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// All thirteen access rights of the first version.
const ALL: u64 = (1 << 13) - 1;
const READ: u64 = EXECUTE | READ_FILE | READ_DIR;

/// Paths and a sandbox's access rights to them.
const RULES: &[(&CStr, u64)] = &[
    (c"/", READ),
    (c"/workspace", ALL),
    (c"/tmp", ALL),
    (c"/dev/shm", ALL),
    (c"/home/user", ALL),
    (c"/dev", READ | WRITE_FILE),
];

/// Builds the ruleset of this mount namespace.
pub(crate) fn ruleset() -> io::Result<OwnedFd> {
    let ruleset = sys::landlock_ruleset(ALL)?;
    for (path, access) in RULES {
        let dir = sys::open(path, libc::O_PATH | libc::O_DIRECTORY)?;
        sys::landlock_allow(ruleset.as_fd(), dir.as_fd(), *access)?;
    }
    Ok(ruleset)
}
