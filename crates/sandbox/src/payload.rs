//! Turns a child of the guest init into sandboxed code.
//!
//! In two halves. *Parking* is everything that does not depend on the program: control groups,
//! identity, system call policy; it happens when the sandbox is prepared. *Release* is the part
//! that needs the program: its streams, its limits, and `execve`. In between, the process waits,
//! without privileges, for the guest init, whose memory it shares ([`sys::parked`]).
//!
//! Both only go forward: a step that fails is recorded in the shared page and ends the process. The
//! order of steps matters; comments give the reason where it does.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use crate::cgroup::UnlimitedResources;
use crate::codec::{StartMessage, StreamSetup};
use crate::failure::{FailureContext, StepFailure};
use crate::spec::{EXTRA_MAX, EXTRA_NUMBER_MAX, ProgramLimits};
use crate::sys::{
    self, BpfInstruction, CStringArray, FailurePage, ParkedChild, ParkingPlace, ParkingSteps,
};

/// Exit code of a child whose program was never started; the page has the reason.
const NOT_STARTED: i32 = 125;
/// `PATH` of a program whose environment has none.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// Bytes of POSIX message queues of a sandbox's user (`RLIMIT_MSGQUEUE`). A queue with default
/// attributes counts as 10 messages of 8192 bytes and about 1 KiB of overhead (mq_overview(7),
/// getrlimit(2)), so that twelve of those fit.
const MESSAGE_QUEUE_BYTES_MAX: u64 = 1 << 20;
/// Signals that may be queued for a sandbox's user (`RLIMIT_SIGPENDING`).
const PENDING_SIGNALS_MAX: u64 = 4096;

/// Names of the steps, by their number in the shared page (from 1).
const STEPS: [&str; 14] = [
    "enter the control groups",
    "hide the control groups",
    "start a session",
    "set resource limits",
    "let signals through",
    "enter the workspace",
    "give up the group id",
    "give up the user id",
    "give up capabilities",
    "restrict the file system",
    "restrict system calls",
    "wait for the program",
    "set the program up",
    "execute the program",
];
const RELEASE: i32 = 12;
const SET_UP: i32 = 13;
const EXECUTE: i32 = 14;

/// Why no program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// The program cannot be executed: the program's fault, with the errno of `execve`.
    Program(i32),
    /// An earlier step failed: the sandbox's fault, with the step's name and errno.
    Step(&'static str, i32),
}

impl NotStarted {
    /// Decodes a note in the shared page.
    pub(crate) fn from_page(page: &FailurePage) -> Option<NotStarted> {
        let (step, errno) = page.take()?;
        if step == EXECUTE {
            return Some(NotStarted::Program(errno));
        }
        let name = usize::try_from(step - 1).ok().and_then(|i| STEPS.get(i));
        Some(NotStarted::Step(name.copied().unwrap_or("start the program"), errno))
    }
}

/// Parameters of parking, prepared by the guest init.
#[derive(Debug)]
pub(crate) struct ParkingPlan<'a> {
    /// `tasks` of the version 1 groups to enter.
    pub(crate) entrances: &'a [OwnedFd],
    /// True if there are control groups to hide.
    pub(crate) hide_groups: bool,
    /// Resources that only per-process limits bound here.
    pub(crate) unlimited: UnlimitedResources,
    /// User and group to become; `None` if there is only one (rootless).
    pub(crate) user: Option<u32>,
    /// Working directory of the program.
    pub(crate) workdir: BorrowedFd<'a>,
    /// File system restriction, if it is used.
    pub(crate) landlock: Option<BorrowedFd<'a>>,
    pub(crate) filter: &'a [BpfInstruction],
}

impl ParkingPlan<'_> {
    /// Starts a process that parks and waits for a plan of its program, or has recorded why it
    /// cannot. Without a record, the process was killed.
    pub(crate) fn start(
        &self,
        place: &'static ParkingPlace<ProgramPlan>,
        group: Option<BorrowedFd<'_>>,
        page: FailurePage,
    ) -> io::Result<ParkedChild> {
        let failed = move |(step, error): (i32, io::Error)| {
            page.set(step, error.raw_os_error().unwrap_or(libc::EIO));
            NOT_STARTED
        };
        let steps = ParkingSteps {
            prepare: || self.park().map_err(failed),
            become_program: |plan: &ProgramPlan, fds: &[Option<OwnedFd>]| {
                let (step, error) = plan.execute(fds);
                plan.page.set(step, error.raw_os_error().unwrap_or(libc::EIO));
                NOT_STARTED
            },
            not_released: move |error| failed((RELEASE, error)),
        };
        place.park(group, steps)
    }

    /// Parks and becomes a runtime that waits for its program itself. Returns only if a step has
    /// failed, with the exit code.
    pub(crate) fn become_runtime(&self, runtime: &WarmRuntimePlan<'_>, page: &FailurePage) -> i32 {
        let Err((step, error)) = self.park().and_then(|()| runtime.execute(self));
        page.set(step, error.raw_os_error().unwrap_or(libc::EIO));
        NOT_STARTED
    }

    fn park(&self) -> Result<(), (i32, io::Error)> {
        let mut step = 0;
        let mut attempt = |f: &dyn Fn() -> io::Result<()>| {
            step += 1;
            f().map_err(|error| (step, error))
        };
        // First of all, so that all later steps are accounted and limited.
        attempt(&|| self.entrances.iter().try_for_each(|fd| sys::write_all(fd.as_fd(), b"0")))?;
        attempt(&|| if self.hide_groups { sys::unshare(libc::CLONE_NEWCGROUP) } else { Ok(()) })?;
        attempt(&sys::setsid)?;
        attempt(&set_common_limits)?;
        attempt(&sys::unblock_signals)?;
        attempt(&|| sys::change_directory(self.workdir))?;
        attempt(&|| self.user.map_or(Ok(()), sys::setresgid))?;
        attempt(&|| self.user.map_or(Ok(()), sys::setresuid))?;
        attempt(&|| sys::set_capabilities(0))?;
        attempt(&|| {
            // Required for both restrictions; it also disables set-user-ID files.
            sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
            self.landlock.map_or(Ok(()), sys::landlock_restrict)
        })?;
        // Last, because it denies some of the calls above.
        attempt(&|| sys::set_seccomp(self.filter))
    }
}

/// A program to become, prepared by the guest init in the shared memory.
#[derive(Debug)]
pub(crate) struct ProgramPlan {
    program: ExecProgram,
    streams: StreamSetup,
    /// Numbers of further descriptors.
    extra: Vec<u32>,
    limits: ProgramLimits,
    unlimited: UnlimitedResources,
    /// Page for the reason why the program was not started.
    page: FailurePage,
}

impl ProgramPlan {
    pub(crate) fn new(
        start: &StartMessage<'_>,
        unlimited: UnlimitedResources,
        page: FailurePage,
    ) -> Result<ProgramPlan, StepFailure> {
        let program = ExecProgram::of(&start.argv, &start.env).step("set the program up")?;
        Ok(ProgramPlan {
            program,
            streams: start.streams,
            extra: start.extra.clone(),
            limits: start.limits,
            unlimited,
            page,
        })
    }

    /// Becomes the program. Returns only on failure, with the step and its error. Allocates
    /// nothing.
    fn execute(&self, fds: &[Option<OwnedFd>]) -> (i32, io::Error) {
        let ready = connect(self.streams, &self.extra, fds)
            .and_then(|()| set_limits(&self.limits, self.unlimited));
        match ready {
            Err(error) => (SET_UP, error),
            Ok(()) => (EXECUTE, self.program.execute()),
        }
    }
}

/// Memory that a program needs until it is executed: its arguments and environment, and room for
/// the kernel. If the group has less before that, the kernel kills all processes that share the
/// memory of its victim, including the guest init.
pub(crate) fn execution_bytes(start: &StartMessage<'_>) -> u64 {
    const ROOM: u64 = 4 << 20;
    let words = start.argv.iter().chain(&start.env);
    // The final NUL, and the pointer to the string.
    let bytes = words.map(|word| word.len() + 1 + size_of::<usize>()).sum::<usize>();
    u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(ROOM)
}

/// Limits that are the same for every program.
pub(crate) const COMMON_LIMITS: [(libc::__rlimit_resource_t, u64); 6] = [
    (libc::RLIMIT_CORE, 0),
    (libc::RLIMIT_MEMLOCK, 0),
    (libc::RLIMIT_MSGQUEUE, MESSAGE_QUEUE_BYTES_MAX),
    (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS_MAX),
    (libc::RLIMIT_NICE, 0),
    (libc::RLIMIT_RTPRIO, 0),
];

pub(crate) fn set_common_limits() -> io::Result<()> {
    COMMON_LIMITS.into_iter().try_for_each(|(resource, value)| lower_limit(resource, value))
}

fn set_limits(l: &ProgramLimits, unlimited: UnlimitedResources) -> io::Result<()> {
    command_limits(l, unlimited).try_for_each(|(resource, value)| lower_limit(resource, value))
}

/// Returns the limits of one process that follow from those of a command.
pub(crate) fn command_limits(
    l: &ProgramLimits,
    unlimited: UnlimitedResources,
) -> impl Iterator<Item = (libc::__rlimit_resource_t, u64)> {
    // One second of slack: the guest init measures exactly; this limit is the fallback.
    let cpu_seconds = l.cpu.as_secs() + u64::from(l.cpu.subsec_nanos() > 0) + 1;
    [
        (libc::RLIMIT_CPU, Some(cpu_seconds)),
        (libc::RLIMIT_NPROC, unlimited.processes.then_some(l.processes)),
        (libc::RLIMIT_FSIZE, Some(l.file_size_bytes)),
        (libc::RLIMIT_STACK, Some(l.stack_bytes)),
        (libc::RLIMIT_NOFILE, Some(l.open_files)),
        (libc::RLIMIT_DATA, unlimited.memory.then_some(l.memory_bytes)),
    ]
    .into_iter()
    .filter_map(|(resource, value)| Some((resource, value?)))
}

/// Sets a limit, or keeps the host's own if that is lower, because raising it requires a privilege.
pub(crate) fn lower_limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    match sys::set_limit(resource, value) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            sys::set_limit(resource, value.min(sys::hard_limit(resource)?))
        }
        other => other,
    }
}

/// Gives the program its descriptors and no others: those of its streams, then the further ones.
/// `fds` stay open until the program is executed: their numbers may be the program's by then.
fn connect(streams: StreamSetup, extra: &[u32], fds: &[Option<OwnedFd>]) -> io::Result<()> {
    let missing = || io::Error::from_raw_os_error(libc::EBADF);
    let stream_count = match streams {
        StreamSetup::Given { .. } => streams.descriptor_count(),
        StreamSetup::Terminal(_) => 1,
        // Such a command is only for a process that already has its streams.
        StreamSetup::Waiting => return Err(missing()),
    };
    if fds.len() != stream_count + extra.len() || extra.len() > EXTRA_MAX {
        return Err(missing());
    }
    let (given, further) = fds.split_at(stream_count);
    // Moved aside first: the target number of one can be the current number of another.
    let least = RawFd::try_from(EXTRA_NUMBER_MAX + 1).map_err(|_| missing())?;
    let mut aside = [const { None::<OwnedFd> }; EXTRA_MAX];
    for (place, fd) in aside.iter_mut().zip(further) {
        *place = Some(sys::dup_from(fd.as_ref().ok_or_else(missing)?.as_fd(), least)?);
    }
    let stream = |at: usize| given.get(at).and_then(Option::as_ref).map(AsFd::as_fd);
    match streams {
        StreamSetup::Given { merged, has_stdin } => {
            let stdout = stream(0).ok_or_else(missing)?;
            let stderr = if merged { stdout } else { stream(1).ok_or_else(missing)? };
            let null;
            let stdin = if has_stdin {
                stream(if merged { 1 } else { 2 }).ok_or_else(missing)?
            } else {
                null = sys::open(c"/dev/null", libc::O_RDONLY)?;
                null.as_fd()
            };
            for (target, fd) in (0..).zip([stdin, stdout, stderr]) {
                sys::dup_onto(fd, target)?;
            }
        }
        StreamSetup::Terminal(_) => {
            let terminal = stream(0).ok_or_else(missing)?;
            sys::take_terminal(terminal)?;
            for target in 0..=2 {
                sys::dup_onto(terminal, target)?;
            }
        }
        StreamSetup::Waiting => return Err(missing()),
    }
    sys::cloexec_from(3)?;
    for (number, fd) in extra.iter().zip(aside.iter().flatten()) {
        sys::dup_for_program(fd, RawFd::try_from(*number).map_err(|_| missing())?)?;
    }
    Ok(())
}

/// A runtime that is started ahead of its program.
#[derive(Debug)]
pub(crate) struct WarmRuntimePlan<'a> {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) limits: ProgramLimits,
    /// Standard input, output and error.
    pub(crate) streams: [BorrowedFd<'a>; 3],
    /// Socket for the message with the program.
    pub(crate) socket: BorrowedFd<'a>,
}

impl WarmRuntimePlan<'_> {
    /// Number of the descriptor on which a runtime waits.
    const SOCKET: i32 = 3;

    fn execute(
        &self,
        parking: &ParkingPlan<'_>,
    ) -> Result<std::convert::Infallible, (i32, io::Error)> {
        let at = |error: io::Error| (SET_UP, error);
        let argv: Vec<&[u8]> = self.argv.iter().map(Vec::as_slice).collect();
        let env: Vec<&[u8]> = self.env.iter().map(Vec::as_slice).collect();
        let program = ExecProgram::of(&argv, &env).map_err(at)?;
        for (target, fd) in (0..).zip(self.streams) {
            sys::dup_onto(fd, target).map_err(at)?;
        }
        let aside = sys::dup_from(self.socket, Self::SOCKET + 1).map_err(at)?;
        sys::dup_for_program(&aside, Self::SOCKET).map_err(at)?;
        sys::cloexec_from(Self::SOCKET.cast_unsigned() + 1).map_err(at)?;
        set_limits(&self.limits, parking.unlimited).map_err(at)?;
        let _not_closed_here = aside.into_raw_fd();
        Err((EXECUTE, program.execute()))
    }
}

/// A program in the form that `execve` requires.
#[derive(Debug)]
pub(crate) struct ExecProgram {
    /// Candidate files, in the order in which they are tried.
    candidates: Vec<CString>,
    argv: CStringArray,
    env: CStringArray,
}

impl ExecProgram {
    /// Resolves the file like `execvp`: the name itself if it contains a slash, otherwise in each
    /// directory of the path.
    pub(crate) fn of(argv: &[&[u8]], env: &[&[u8]]) -> io::Result<ExecProgram> {
        let strings = |list: &[&[u8]]| -> io::Result<CStringArray> {
            let strings: Result<Vec<CString>, _> = list.iter().map(|s| CString::new(*s)).collect();
            Ok(CStringArray::new(strings?))
        };
        let name = argv.first().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let candidates = if name.contains(&b'/') {
            vec![CString::new(*name)?]
        } else {
            let directories = path_of(env).split(|b| *b == b':').filter(|d| !d.is_empty());
            let files = directories.map(|directory| CString::new([directory, b"/", name].concat()));
            files.collect::<Result<_, _>>()?
        };
        Ok(ExecProgram { candidates, argv: strings(argv)?, env: strings(env)? })
    }

    /// Executes it. Returns only on failure. Allocates nothing.
    pub(crate) fn execute(&self) -> io::Error {
        let mut error = io::Error::from_raw_os_error(libc::ENOENT);
        for file in &self.candidates {
            let this = sys::execve(file, &self.argv, &self.env);
            match this.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // The file exists but may not be executed: continues, but returns this error at the
                // end.
                Some(libc::EACCES) => error = this,
                _ => return this,
            }
        }
        error
    }
}

/// `PATH` of an environment.
fn path_of<'a>(env: &[&'a [u8]]) -> &'a [u8] {
    env.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH)
}
