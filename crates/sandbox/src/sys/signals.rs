//! System calls of signal dispositions and masks.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/sigaction.2.html>
//! - <https://man7.org/linux/man-pages/man2/sigprocmask.2.html>

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::{check_int, own};

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: c_int) -> io::Result<()> {
    set_signal(signal, libc::SIG_IGN)
}

/// Restores the default disposition of a signal.
pub(crate) fn default_signal(signal: c_int) -> io::Result<()> {
    set_signal(signal, libc::SIG_DFL)
}

fn set_signal(signal: c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: only SIG_IGN and SIG_DFL are installed, so no code of ours runs in a handler.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Unblocks all signals.
pub(crate) fn unblock_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for writes.
    check_int(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has initialised it; the old mask is not requested.
    check_int(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) })
        .map(drop)
}

/// Blocks SIGCHLD and returns a descriptor that is readable when one is pending.
pub(crate) fn sigchld_fd() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for writes.
    check_int(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has initialised it.
    check_int(unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) })?;
    // SAFETY: it is initialised; the old mask is not requested.
    check_int(unsafe { libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) })?;
    // SAFETY: it is initialised; -1 asks for a new descriptor.
    own(unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())
}

/// Reads all pending signals of a descriptor of [`sigchld_fd`].
pub(crate) fn drain_signals(fd: BorrowedFd<'_>) {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = mem::size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has the size that is passed; its content is not looked at.
    while unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) } > 0 {}
}
