//! System calls that restrict a process permanently: seccomp and Landlock.
//!
//! # References
//! - <https://docs.kernel.org/userspace-api/no_new_privs.html>
//! - <https://docs.kernel.org/userspace-api/landlock.html>

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::{check, own};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfInstruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

impl BpfInstruction {
    /// Returns its representation in memory.
    pub(crate) fn bytes(&self) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [a, b, self.jt, self.jf, c, d, e, f]
    }
}

/// Installs a seccomp filter on this thread and its descendants, permanently.
pub(crate) fn set_seccomp(program: &[BpfInstruction]) -> io::Result<()> {
    #[repr(C)]
    struct FilterProgram {
        length: u16,
        filter: *const BpfInstruction,
    }
    let length =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = FilterProgram { length, filter: program.as_ptr() };
    // SAFETY: `program` points to `length` instructions of the kernel's layout and outlives the
    // call.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })
    .map(drop)
}

/// Returns the version of the Landlock interface; an error if the kernel has none.
pub(crate) fn landlock_abi() -> io::Result<i64> {
    const CREATE_RULESET_VERSION: c_uint = 1;
    // SAFETY: with this flag a null attribute of size zero is the documented question.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<c_void>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    })
}

/// Creates a Landlock ruleset that handles these file system accesses.
pub(crate) fn landlock_ruleset(handled: u64) -> io::Result<OwnedFd> {
    // SAFETY: the first version's attribute is this one field, and its size is passed.
    own(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            mem::size_of::<u64>(),
            0,
        )
    })
}

/// Allows `access` beneath a directory.
pub(crate) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    access: u64,
) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        fd: c_int,
    }
    const RULE_PATH_BENEATH: c_int = 1;
    let rule = PathBeneath { access, fd: dir.as_raw_fd() };
    // SAFETY: the rule has the kernel's packed layout and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
    .map(drop)
}

/// Enforces a ruleset on this thread and its descendants, permanently.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}
