//! The spawner's side of forked runtimes: a started interpreter, and its successors.

use std::ffi::{CString, c_int};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{STACK_BYTES_MAX, numbers};
use crate::failure::{FailureContext, StepFailure};
use crate::spec::WarmRuntime;
use crate::sys::{self, BpfInstruction, CStringArray};

// linux/capability.h
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_CHROOT: u32 = 18;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
/// Capabilities of a zygote, for its copies: to enter namespaces and groups, change the user id,
/// and set limits.
const CAPABILITIES: [u32; 5] =
    [CAP_SETGID, CAP_SETUID, CAP_SYS_CHROOT, CAP_SYS_ADMIN, CAP_SYS_RESOURCE];
/// Maximum number of consecutive failed starts before a runtime is disabled.
const FAILURES_MAX: u32 = 3;
/// Exit code of a zygote whose interpreter could not be executed.
const NOT_STARTED: c_int = 125;
/// Descriptors of a zygote from this number on: the socket of requests, its own pid namespace, and
/// `/proc`, which it closes before it serves.
const REQUESTS: i32 = 3;
/// Descriptors are first copied to numbers from this one on, so that none replaces another.
const ASIDE: i32 = 64;

/// The capabilities of a zygote as a set.
pub(crate) fn capabilities() -> u64 {
    CAPABILITIES.iter().fold(0, |mask, capability| mask | 1 << capability)
}

/// Parameters of a zygote's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZygoteContext<'a> {
    /// The host's `/proc`.
    pub(crate) host_proc: BorrowedFd<'a>,
    /// The system call policies of programs, without and with a loopback.
    pub(crate) filters: [&'a [BpfInstruction]; 2],
}

/// A running interpreter.
#[derive(Debug)]
struct Zygote {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    /// Socket for requests. `None` once a successor has taken over: the zygote ends when it has
    /// served the last request.
    socket: Option<OwnedFd>,
    is_ready: bool,
    forks: u32,
}

/// The zygotes of one runtime: the one that serves, one that starts to replace it, and older ones
/// that are about to end.
#[derive(Debug)]
pub(crate) struct Zygotes {
    runtime: WarmRuntime,
    index: usize,
    all: Vec<Zygote>,
    /// Number of consecutive failed starts.
    failures: u32,
}

impl Zygotes {
    /// Starts the first one without waiting for it; requests wait.
    pub(crate) fn start(
        index: usize,
        runtime: &WarmRuntime,
        context: ZygoteContext<'_>,
    ) -> Zygotes {
        let mut zygotes = Zygotes { runtime: runtime.clone(), index, all: Vec::new(), failures: 0 };
        zygotes.maintain(context);
        zygotes
    }

    /// Returns the descriptors that are readable when [`Zygotes::maintain`] must be called.
    pub(crate) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let starting = self.all.iter().filter(|zygote| !zygote.is_ready);
        let starting = starting.filter_map(|zygote| zygote.socket.as_ref());
        self.all.iter().map(|zygote| &zygote.pidfd).chain(starting).map(AsFd::as_fd)
    }

    /// Handles ended and ready zygotes, and starts a new one if none can serve.
    pub(crate) fn maintain(&mut self, context: ZygoteContext<'_>) {
        if !self.runtime.is_forked() {
            return;
        }
        let mut failures = self.failures;
        self.all.retain_mut(|zygote| {
            let mut watched = vec![zygote.pidfd.as_fd()];
            watched.extend(zygote.socket.as_ref().map(AsFd::as_fd));
            let ready = sys::poll(&watched, Some(Duration::ZERO)).unwrap_or_default();
            if ready.first() == Some(&true) {
                let _known_to_have_ended = sys::wait_pid(zygote.pid);
                failures += u32::from(!zygote.is_ready);
                return false;
            }
            if let (Some(true), Some(socket), false) =
                (ready.get(1), &zygote.socket, zygote.is_ready)
                && sys::receive(socket.as_fd(), &mut [0u8; 16]).is_ok_and(|(n, _)| n > 0)
            {
                zygote.is_ready = true;
                failures = 0;
            }
            true
        });
        self.failures = failures;
        // The youngest ready one serves; the older ones have finished.
        if let Some(serving) = self.all.iter().rposition(|zygote| zygote.is_ready) {
            for zygote in self.all.iter_mut().take(serving) {
                zygote.socket = None;
            }
        }
        let forks_max = self.runtime.forks_max.max(1);
        let worn = |zygote: &Zygote| zygote.socket.is_none() || zygote.forks >= forks_max;
        if self.all.iter().all(worn) && self.failures < FAILURES_MAX {
            match self.launch(context) {
                Ok(zygote) => self.all.push(zygote),
                Err(_) => self.failures += 1,
            }
        }
    }

    /// Returns the socket for the next request of a copy.
    pub(crate) fn next(
        &mut self,
        context: ZygoteContext<'_>,
    ) -> Result<BorrowedFd<'_>, StepFailure> {
        self.maintain(context);
        let off = || StepFailure {
            step: format!("start the runtime `{}` ahead", self.runtime.name),
            errno: libc::ENOSYS,
        };
        // The oldest with a connection: the one that serves, or else the one that starts.
        let zygote = self.all.iter_mut().find(|zygote| zygote.socket.is_some()).ok_or_else(off)?;
        zygote.forks = zygote.forks.saturating_add(1);
        zygote.socket.as_ref().map(AsFd::as_fd).ok_or_else(off)
    }

    /// Kills all zygotes.
    pub(crate) fn end(&mut self) {
        for zygote in self.all.drain(..) {
            let _dead = sys::kill_pidfd(zygote.pidfd.as_fd());
            let _reaped = sys::wait_pid(zygote.pid);
        }
    }

    fn launch(&self, context: ZygoteContext<'_>) -> Result<Zygote, StepFailure> {
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let pidns = sys::openat(context.host_proc, c"self/ns/pid", libc::O_RDONLY, 0)
            .step("open the pid namespace")?;
        sys::send(ours.as_fd(), &numbers(), &[]).step("tell a runtime what it needs")?;
        for filter in context.filters {
            let filter: Vec<u8> = filter.iter().flat_map(BpfInstruction::bytes).collect();
            sys::send(ours.as_fd(), &filter, &[]).step("tell a runtime what it needs")?;
        }
        // No network while it waits; its copies enter their sandbox's.
        let child = sys::fork(libc::CLONE_NEWNET, None, || {
            let _error = self.execute(context.host_proc, &theirs, &pidns);
            NOT_STARTED
        })
        .step("start a runtime")?;
        Ok(Zygote {
            pid: child.pid,
            pidfd: child.pidfd,
            socket: Some(ours),
            is_ready: false,
            forks: 0,
        })
    }

    /// Becomes the interpreter, in the child. Returns only if a step has failed.
    fn execute(
        &self,
        host_proc: BorrowedFd<'_>,
        requests: &OwnedFd,
        pidns: &OwnedFd,
    ) -> Result<std::convert::Infallible, StepFailure> {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into()).step("tie")?;
        sys::setsid().step("start a session")?;
        for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            sys::default_signal(signal).step("reset signals")?;
        }
        sys::unblock_signals().step("let signals through")?;
        // As the guest init does for its programs.
        let score = sys::openat(host_proc, c"self/oom_score_adj", libc::O_WRONLY, 0);
        let _best_effort = score.and_then(|fd| sys::write_all(fd.as_fd(), b"1000"));
        std::env::set_current_dir("/workspace").step("enter the workspace")?;
        let stack = STACK_BYTES_MAX.min(sys::hard_limit(libc::RLIMIT_STACK).step("read limits")?);
        sys::set_soft_limit(libc::RLIMIT_STACK, stack).step("set resource limits")?;
        let strings = |list: Vec<Vec<u8>>| -> Result<CStringArray, StepFailure> {
            let strings: Result<Vec<_>, _> = list.into_iter().map(CString::new).collect();
            Ok(CStringArray::new(strings.map_err(|_| crate::codec::MalformedMessage)?))
        };
        let (argv, env) = self.runtime.start(self.index);
        let (argv, env) = (strings(argv)?, strings(env)?);
        let program = self.runtime.argv.first().cloned().unwrap_or_default();
        let program = CString::new(program).map_err(|_| crate::codec::MalformedMessage)?;
        let null = sys::open(c"/dev/null", libc::O_RDWR).step("open /dev/null")?;
        for target in 0..=2 {
            sys::dup_onto(null.as_fd(), target).step("connect the standard streams")?;
        }
        let permitted = sys::capabilities().step("read capabilities")?;
        sys::keep_capabilities(capabilities() & permitted).step("keep capabilities")?;
        let handed = [requests.as_fd(), pidns.as_fd(), host_proc];
        let aside: Result<Vec<_>, _> = handed.iter().map(|fd| sys::dup_from(*fd, ASIDE)).collect();
        for (target, fd) in (REQUESTS..).zip(aside.step("hand over")?.iter()) {
            sys::dup_for_program(fd, target).step("hand over")?;
        }
        sys::cloexec_from(REQUESTS.cast_unsigned() + 3).step("hand over")?;
        Err(StepFailure::new("execute the runtime", &sys::execve(&program, &argv, &env)))
    }
}
