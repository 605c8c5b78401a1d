//! The last steps before a program: from a copy of the guest init to sandboxed code.
//!
//! Runs in a forked child and only goes forward; a step that fails is noted in the shared page and
//! ends the child. The order matters and each step says why it stands where it does.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::spec::Limits;
use crate::sys::{self, BpfInstruction, CStringArray, FailurePage};

/// Exit code of a child whose program was never started; the page says why.
const NOT_STARTED: i32 = 125;
/// `PATH` of a program that is given none.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// Bytes of POSIX message queues of a sandbox's user (`RLIMIT_MSGQUEUE`).
const MESSAGE_QUEUE_BYTES_MAX: u64 = 64 << 10;
/// Signals that may wait for a sandbox's user (`RLIMIT_SIGPENDING`).
const PENDING_SIGNALS_MAX: u64 = 4096;

/// The steps, by the number they have in the shared page (from 1).
pub(crate) const STEPS: [&str; 14] = [
    "enter the control groups",
    "hide the control groups",
    "start a session",
    "connect the standard streams",
    "hide the descriptors of the guest init",
    "set resource limits",
    "reset signals",
    "enter the workspace",
    "give up groups",
    "give up the user id",
    "give up capabilities",
    "restrict the file system",
    "restrict system calls",
    EXECUTE,
];
/// The step whose failure is the program's fault, not ours.
pub(crate) const EXECUTE: &str = "execute the program";

/// Everything a payload needs, prepared by the guest init.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    /// `cgroup.procs` of the version 1 groups to enter.
    pub(crate) entrances: &'a [OwnedFd],
    /// Whether there are control groups to hide.
    pub(crate) hide_groups: bool,
    /// Standard input, output and error.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    pub(crate) limits: Limits,
    /// Whether only resource limits bound memory here.
    pub(crate) bound_data: bool,
    /// User and group to become; `None` where there is only one (rootless).
    pub(crate) user: Option<u32>,
    /// File system restriction, where it is used.
    pub(crate) landlock: Option<BorrowedFd<'a>>,
    pub(crate) filter: &'a [BpfInstruction],
    /// The program as given, arguments and environment.
    pub(crate) program: &'a CStr,
    pub(crate) argv: &'a CStringArray,
    pub(crate) env: &'a CStringArray,
    /// Directories to look the program up in.
    pub(crate) path: &'a [u8],
}

/// `PATH` of an environment.
pub(crate) fn path_of<'a>(env: &[&'a [u8]]) -> &'a [u8] {
    env.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH)
}

impl Payload<'_> {
    /// Takes all steps. Returns only when one has failed, with the code to exit with.
    pub(crate) fn become_program(&self, page: &FailurePage) -> i32 {
        let (step, error) = self.steps();
        page.set(step, error.raw_os_error().unwrap_or(libc::EIO));
        NOT_STARTED
    }

    /// The number of the failed step and its error.
    fn steps(&self) -> (i32, io::Error) {
        let mut step = 0;
        let mut attempt = |f: &dyn Fn() -> io::Result<()>| {
            step += 1;
            f().map_err(|error| (step, error))
        };
        let mut run = || -> Result<(), (i32, io::Error)> {
            // First of all, so that everything from here on is counted and limited.
            attempt(&|| self.entrances.iter().try_for_each(|fd| sys::write_all(fd.as_fd(), b"0")))?;
            attempt(&|| {
                if self.hide_groups { sys::unshare(libc::CLONE_NEWCGROUP) } else { Ok(()) }
            })?;
            attempt(&sys::setsid)?;
            attempt(&|| self.connect_stdio())?;
            attempt(&|| sys::cloexec_from(3))?;
            attempt(&|| self.set_limits())?;
            attempt(&reset_signals)?;
            attempt(&|| std::env::set_current_dir("/workspace"))?;
            attempt(&|| self.user.map_or(Ok(()), sys::setresgid))?;
            attempt(&|| self.user.map_or(Ok(()), sys::setresuid))?;
            attempt(&|| sys::set_capabilities(0))?;
            attempt(&|| {
                // Without it neither restriction may be set, and set-user-ID files would matter.
                sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
                self.landlock.map_or(Ok(()), sys::landlock_restrict)
            })?;
            // Last, because it denies some of the calls above.
            attempt(&|| sys::set_seccomp(self.filter))
        };
        match run() {
            Ok(()) => (i32::try_from(STEPS.len()).unwrap_or(i32::MAX), self.execute()),
            Err(failed) => failed,
        }
    }

    fn connect_stdio(&self) -> io::Result<()> {
        for (target, fd) in (0..).zip(self.stdio) {
            sys::dup_onto(fd, target)?;
        }
        Ok(())
    }

    fn set_limits(&self) -> io::Result<()> {
        let l = &self.limits;
        // One second of slack: the guest init measures exactly; this is the net below it.
        let cpu_seconds = l.cpu.as_secs() + u64::from(l.cpu.subsec_nanos() > 0) + 1;
        let mut limits = vec![
            (libc::RLIMIT_CPU, cpu_seconds),
            (libc::RLIMIT_NPROC, l.processes),
            (libc::RLIMIT_FSIZE, l.file_size_bytes),
            (libc::RLIMIT_STACK, l.stack_bytes),
            (libc::RLIMIT_NOFILE, l.open_files),
            (libc::RLIMIT_CORE, 0),
            (libc::RLIMIT_MEMLOCK, 0),
            (libc::RLIMIT_MSGQUEUE, MESSAGE_QUEUE_BYTES_MAX),
            (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS_MAX),
            (libc::RLIMIT_NICE, 0),
            (libc::RLIMIT_RTPRIO, 0),
        ];
        if self.bound_data {
            limits.push((libc::RLIMIT_DATA, l.memory_bytes));
        }
        limits.into_iter().try_for_each(|(resource, value)| {
            // Raising above the hard limit needs a privilege that not every server has.
            sys::set_limit(resource, value.min(sys::hard_limit(resource)?))
        })
    }

    /// `execvp`: as given when it contains a slash, else in each directory of the path.
    fn execute(&self) -> io::Error {
        if self.program.to_bytes().contains(&b'/') {
            return sys::execve(self.program, self.argv, self.env);
        }
        let mut error = io::Error::from_raw_os_error(libc::ENOENT);
        for directory in self.path.split(|b| *b == b':').filter(|d| !d.is_empty()) {
            let full = [directory, b"/", self.program.to_bytes()].concat();
            let Ok(full) = CString::new(full) else { continue };
            let this = sys::execve(&full, self.argv, self.env);
            match this.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // It is there but may not be executed: keep looking, but say so at the end.
                Some(libc::EACCES) => error = this,
                _ => return this,
            }
        }
        error
    }
}

/// The spawner ignores some signals and the guest init blocks one; a program starts with neither.
fn reset_signals() -> io::Result<()> {
    for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        sys::default_signal(signal)?;
    }
    sys::unblock_signals()
}
