//! System calls of terminals.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/pty.7.html>

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{check_int, own};

/// Unlocks the other side of a new terminal, so that it can be opened (`TIOCSPTLCK`).
pub(crate) fn unlock_terminal(controller: BorrowedFd<'_>) -> io::Result<()> {
    let locked: c_int = 0;
    // SAFETY: the call reads one int.
    check_int(unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) })
        .map(drop)
}

/// Opens the program's side of a terminal without a path (`TIOCGPTPEER`), and not as the caller's
/// controlling terminal.
pub(crate) fn open_terminal_peer(controller: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the argument is an integer; a new descriptor is returned.
    own(unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())
}

/// Makes a terminal the caller's controlling one (`TIOCSCTTY`); the caller must lead a session
/// without one.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is an integer.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0 as c_int) }).map(drop)
}

/// Sets the size of a terminal in characters (`TIOCSWINSZ`); the kernel signals its foreground
/// processes.
pub(crate) fn set_terminal_size(terminal: BorrowedFd<'_>, rows: u16, cols: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call reads one winsize.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
        .map(drop)
}

/// Returns the end-of-file character of a terminal; None if it is disabled.
pub(crate) fn terminal_eof(terminal: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `settings` is valid for writes.
    check_int(unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it has been filled in.
    let settings = unsafe { settings.assume_init() };
    let eof = settings.c_cc.get(libc::VEOF).copied().unwrap_or(0);
    // _POSIX_VDISABLE is 0 on Linux.
    Ok((eof != 0).then_some(eof))
}
