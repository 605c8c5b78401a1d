//! From a copy of the guest init to a program of a session: identity, limits, streams, `execve`.
//!
//! Only goes forward: a step that fails is noted in a shared page and ends the process. The policy
//! of system calls holds already, because it holds for the guest init.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::cgroup::Unlimited;
use crate::codec::Streams;
use crate::codec::session::{ProcessEnd, SessionLimits, StartProgram};
use crate::failure::Failure;
use crate::payload::{self, Program};
use crate::sys::{self, Ended, FailurePage};

/// Exit code of a child whose program was never started; the note says why.
pub(super) const NOT_STARTED: c_int = 125;

/// The steps, by the number they have in a note (from 1).
const STEPS: [&str; 9] = [
    "enter the control groups",
    "start a session",
    "connect the standard streams",
    "set resource limits",
    "give up the user id",
    "give up capabilities",
    "let signals through",
    DIRECTORY,
    EXECUTE,
];
const DIRECTORY: &str = "enter the directory";
const EXECUTE: &str = "execute the program";

/// What every program of a session starts from.
#[derive(Debug)]
pub(super) struct Ground {
    /// `cgroup.procs` of the groups to enter.
    pub(super) entrances: Vec<OwnedFd>,
    /// User and group to become.
    pub(super) user: Option<u32>,
    /// What only resource limits bound here.
    pub(super) unlimited: Unlimited,
    /// Known once the session is set up.
    pub(super) limits: Option<SessionLimits>,
}

impl Ground {
    /// Becomes the program. Returns only when a step has failed, with the code to exit with.
    pub(super) fn become_program(
        &self,
        start: &StartProgram<'_>,
        fds: &[OwnedFd],
        note: &FailurePage,
    ) -> c_int {
        let Err((step, error)) = self.steps(start, fds);
        note.set(step, error.raw_os_error().unwrap_or(libc::EINVAL));
        NOT_STARTED
    }

    fn steps(
        &self,
        start: &StartProgram<'_>,
        fds: &[OwnedFd],
    ) -> Result<std::convert::Infallible, (i32, io::Error)> {
        let mut step = 0;
        let mut attempt = |f: &dyn Fn() -> io::Result<()>| {
            step += 1;
            f().map_err(|error| (step, error))
        };
        // First of all, so that everything from here on is counted and limited.
        attempt(&|| self.enter_groups())?;
        attempt(&sys::setsid)?;
        attempt(&|| connect(start.streams, fds))?;
        attempt(&|| self.set_limits())?;
        attempt(&|| self.become_user())?;
        attempt(&|| sys::set_capabilities(0))?;
        attempt(&sys::unblock_signals)?;
        // As the user, who may not be allowed to enter it.
        attempt(&|| std::env::set_current_dir("/workspace").and_then(|()| enter(start.directory)))?;
        attempt(&|| Program::of(&start.argv, &start.env).and_then(|it| Err(it.execute())))?;
        Err((step, io::Error::from_raw_os_error(libc::ENOEXEC)))
    }

    /// Enters the groups of the session.
    pub(super) fn enter_groups(&self) -> io::Result<()> {
        self.entrances.iter().try_for_each(|fd| sys::write_all(fd.as_fd(), b"0"))
    }

    /// Becomes the file helper: the user for accesses to files only, so that no program can send
    /// it a signal, and without any other descriptor.
    pub(super) fn become_helper(&self, socket: &OwnedFd) -> io::Result<()> {
        self.enter_groups()?;
        let number = socket.as_raw_fd().cast_unsigned();
        sys::close_inherited(3, number - 1)?;
        sys::close_inherited(number + 1, u32::MAX)?;
        sys::setsid()?;
        if let Some(user) = self.user {
            sys::setfsids(user, user);
        }
        sys::set_capabilities(0)?;
        sys::unblock_signals()?;
        std::env::set_current_dir("/workspace")
    }

    fn become_user(&self) -> io::Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        sys::setresgid(user)?;
        sys::setresuid(user)
    }

    fn set_limits(&self) -> io::Result<()> {
        payload::set_common_limits()?;
        let limits = self.limits.unwrap_or_default();
        let unlimited = self.unlimited;
        [
            (libc::RLIMIT_NPROC, unlimited.processes.then_some(limits.processes)),
            (libc::RLIMIT_FSIZE, Some(limits.file_size_bytes)),
            (libc::RLIMIT_STACK, Some(limits.stack_bytes)),
            (libc::RLIMIT_NOFILE, Some(limits.open_files)),
            (libc::RLIMIT_DATA, unlimited.memory.then_some(limits.memory_bytes)),
        ]
        .into_iter()
        .filter_map(|(resource, value)| Some((resource, value?)))
        .try_for_each(|(resource, value)| payload::lower_limit(resource, value))
    }
}

fn enter(directory: &[u8]) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    if directory.is_empty() {
        return Ok(());
    }
    // Refuses a NUL itself.
    std::env::set_current_dir(std::ffi::OsStr::from_bytes(directory))
}

/// Gives the program its standard streams, and nothing else.
fn connect(streams: Streams, fds: &[OwnedFd]) -> io::Result<()> {
    let missing = || io::Error::from_raw_os_error(libc::EBADF);
    let mut given = fds.iter().map(AsFd::as_fd);
    let mut next = || given.next().ok_or_else(missing);
    match streams {
        Streams::Given { merged, has_stdin } => {
            let stdout = next()?;
            let stderr = if merged { stdout } else { next()? };
            let null;
            let stdin = if has_stdin {
                next()?
            } else {
                null = sys::open(c"/dev/null", libc::O_RDONLY)?;
                null.as_fd()
            };
            for (target, fd) in (0..).zip([stdin, stdout, stderr]) {
                sys::dup_onto(fd, target)?;
            }
        }
        Streams::Terminal(_) => {
            let terminal = next()?;
            sys::take_terminal(terminal)?;
            for target in 0..=2 {
                sys::dup_onto(terminal, target)?;
            }
        }
        Streams::Waiting => return Err(missing()),
    }
    sys::cloexec_from(3)
}

/// How a program ended, or why it was not started.
pub(super) fn end(how: Ended, note: &FailurePage) -> ProcessEnd {
    let mut end = ProcessEnd::default();
    match how {
        Ended::Code(code) => end.code = Some(code),
        Ended::Signal(signal) => end.signal = Some(signal),
    }
    let Some((step, errno)) = note.take() else { return end };
    end.code = None;
    let name = usize::try_from(step - 1).ok().and_then(|i| STEPS.get(i)).copied();
    match name {
        Some(DIRECTORY) => end.directory_errno = Some(errno),
        Some(EXECUTE) => end.exec_errno = Some(errno),
        name => {
            let step = name.unwrap_or("start the program").to_owned();
            end.failure = Some(Failure { step, errno });
        }
    }
    end
}
