//! Runs a program of the host that ends with the server, together with all its children.
//!
//! For the few trusted tools that a server runs outside of sandboxes. By default, a child of a
//! killed server lives on, and so would a tool's own children. So this binary is executed again as
//! an intermediate process: the kernel kills it together with its parent, and it gives the tool a
//! pid namespace, which ends as a whole.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::sys::{self, ChildEnd};

/// The hidden argument that makes this binary the intermediate process.
const ARGUMENT: &str = "sandbox-tied";
/// Exit code if the program could not be started, as in shells.
const NOT_STARTED: u8 = 127;
/// Added to the number of a signal, as in shells.
const SIGNALLED: i32 = 128;

/// Returns the program and arguments that run `argv` tied to the calling thread: that thread must
/// stay alive. Without root the program itself is tied, but not its children.
pub fn tied(argv: &[OsString]) -> Vec<OsString> {
    let own =
        [OsString::from("/proc/self/exe"), ARGUMENT.into(), std::process::id().to_string().into()];
    own.into_iter().chain(argv.iter().cloned()).collect()
}

/// Runs the intermediate process if this process was started as one.
pub(crate) fn main_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    let parent = args.next()?.to_str()?.parse().ok()?;
    Some(run(parent, args.next()?, args.collect()))
}

fn run(parent: u32, program: OsString, args: Vec<OsString>) -> ExitCode {
    let tie = || sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into());
    // The parent may have died before the request took effect.
    if tie().is_err() || std::os::unix::process::parent_id() != parent {
        return ExitCode::from(NOT_STARTED);
    }
    let execute = || Command::new(&program).args(&args).exec();
    if sys::unshare(libc::CLONE_NEWPID).is_err() {
        let _error = execute();
        return ExitCode::from(NOT_STARTED);
    }
    let child = sys::fork(0, None, || {
        if tie().is_ok() {
            let _error = execute();
        }
        NOT_STARTED.into()
    });
    let ended = child.and_then(|child| sys::wait_pid(child.pid));
    let code = match ended {
        Ok(Some((_, ChildEnd::Code(code)))) => code,
        Ok(Some((_, ChildEnd::Signal(signal)))) => SIGNALLED + signal,
        Ok(None) | Err(_) => NOT_STARTED.into(),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(NOT_STARTED))
}
