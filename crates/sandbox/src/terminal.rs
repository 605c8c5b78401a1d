//! Terminals of a sandbox, made by its guest init in a private instance of devpts.
//!
//! The program gets one side as its standard streams and as its controlling terminal; the other
//! side goes to the server, and no copy stays here. The program may create more terminals for its
//! own use, up to the maximum of the instance.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/pty.7.html>

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use crate::failure::{FailureContext, StepFailure};
use crate::spec::TerminalDimensions;
use crate::sys;

/// Mount point in the image.
const PLACE: &CStr = c"/dev/pts";
/// Options for executions. Limits the terminals of one sandbox: the kernel has a few thousand in
/// total. All users may create one, for programs such as `script`; each belongs to its creator.
const OPTIONS: &CStr = c"newinstance,ptmxmode=0666,mode=0600,max=16";

/// Options for sessions, which run several programs at once. The limit is so low that only many
/// sessions together exhaust the kernel's terminals (`kernel.pty.max`, 4096, less those reserved
/// for the host).
const SESSION_OPTIONS: &CStr = c"newinstance,ptmxmode=0666,mode=0600,max=64";

/// Both sides of a terminal.
#[derive(Debug)]
pub(crate) struct TerminalPair {
    /// The server's side.
    pub(crate) controller: OwnedFd,
    /// The program's side.
    pub(crate) program: OwnedFd,
}

/// Mounts a fresh instance, over that of an earlier command, and creates a terminal in it that
/// belongs to `user`. Needs the privileges of the setup phase.
pub(crate) fn make(
    size: TerminalDimensions,
    user: Option<u32>,
) -> Result<TerminalPair, StepFailure> {
    mount(OPTIONS)?;
    open(size, user)
}

/// Mounts a fresh instance for a session.
pub(crate) fn mount_for_session() -> Result<(), StepFailure> {
    mount(SESSION_OPTIONS)
}

fn mount(options: &CStr) -> Result<(), StepFailure> {
    // Without nodev, because terminals are devices; the file system holds nothing else.
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    sys::mount(Some(c"devpts"), PLACE, Some(c"devpts"), flags, Some(options))
        .step("mount terminals")
}

/// Creates a terminal that belongs to `user` in the mounted instance. Needs only the privilege to
/// change a file's owner.
pub(crate) fn open(
    size: TerminalDimensions,
    user: Option<u32>,
) -> Result<TerminalPair, StepFailure> {
    let controller =
        sys::open(c"/dev/pts/ptmx", libc::O_RDWR | libc::O_NOCTTY).step("make a terminal")?;
    sys::unlock_terminal(controller.as_fd()).step("unlock a terminal")?;
    sys::set_terminal_size(controller.as_fd(), size.rows, size.cols)
        .step("set the size of a terminal")?;
    let program = sys::open_terminal_peer(controller.as_fd()).step("open a terminal")?;
    if let Some(user) = user {
        sys::fchown(program.as_fd(), user, user).step("hand over a terminal")?;
    }
    Ok(TerminalPair { controller, program })
}
