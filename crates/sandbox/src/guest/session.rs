//! The guest init of a session: many programs at a time, for as long as the session lives.
//!
//! It handles frames, each with an id, in order of arrival; no frame makes it wait for a program.
//! It starts programs, sends signals, makes terminals, opens sockets of the loopback and reaps
//! ended children; the programs' input and output never pass through it. Once the session is set up
//! it has no privileges left but to signal, to give terminals away and to become the session's
//! user, and the system call policy of programs applies to the init as well.
//!
//! It refuses or ignores a frame that it does not understand, and receives nothing from programs
//! but their ends.

mod fork_server;
mod program;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::loopback::BACKLOG;
use super::mounts::{self, OVERLAY_CAPABILITIES};
use super::{CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID, GuestSetup, mask};
use crate::cgroup::{CommandGroups, CpuShare};
use crate::codec::session::{
    SandboxUsage, SessionSandboxLimits, StartProgram, from_session, to_session,
};
use crate::codec::{self, MalformedMessage, MessageReader, MessageWriter, StreamSetup, from_guest};
use crate::failure::{FailureContext, StepFailure};
use crate::seccomp::FilterSubject;
use crate::sys::{self, ChildEnd, FailurePage, FailurePages, session as sys_session};
use crate::terminal;
use crate::workspace;
use fork_server::{ForkAnswer, ForkServer};
use program::{GroupEntry, ParkingOrder, ProgramContext};

/// Capabilities until the session is set up: mounts and control groups, in addition to [`SERVING`].
const SETTING_UP: u64 = OVERLAY_CAPABILITIES | SERVING;
/// Capabilities from then on: signals, terminals, and the identity of programs.
const SERVING: u64 = mask(&[CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID]);

/// Maximum number of programs of one session; their own children count as processes only.
const PROGRAMS_MAX: usize = 256;
/// Number of notes of failures: one for each program and one for the fork server.
const NOTES_MAX: u16 = 257;
const _: () = assert!(PROGRAMS_MAX + 1 == NOTES_MAX as usize);
const _: () = assert!(NOTES_MAX as usize <= FailurePages::PLACES);

/// Ended processes that are reaped between two polls of the connection: programs can leave them
/// behind faster than they are reaped.
const REAPED_AT_ONCE: usize = 256;
/// Number of checks whether everything has stopped, a millisecond apart.
const FREEZE_LOOKS_MAX: u32 = 20;
/// Longest wait for programs that are being started, before a freeze.
const STARTING_MAX: Duration = Duration::from_millis(20);

/// Body of the process.
pub(super) fn main(guest: GuestSetup<'_>) -> c_int {
    match guest.prepare_session() {
        Ok(session) => {
            guest.tell(&[from_guest::READY], &[]);
            session.serve(&guest)
        }
        Err(failure) => {
            guest.tell(&failure.encode(from_guest::FAILED), &[]);
            1
        }
    }
}

/// A program that has been started and not yet reaped.
#[derive(Debug)]
struct StartedProgram {
    /// Id of the frame that started it.
    id: u64,
    pid: libc::pid_t,
    /// Page for its failure if it cannot be started.
    note: FailurePage,
    oom_kills_before: u64,
}

/// A program whose process is not known yet.
#[derive(Debug)]
struct StartingProgram {
    /// Id of the frame that starts it.
    id: u64,
    note: FailurePage,
    /// Connection for the message that makes the process become the program.
    socket: OwnedFd,
    message: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Our side of its terminal.
    controller: Option<OwnedFd>,
    oom_kills_before: u64,
    /// True if it was killed already, because its caller no longer waits.
    is_killed: bool,
}

/// State of a session's guest init.
#[derive(Debug)]
struct GuestSession {
    sigchld: OwnedFd,
    context: ProgramContext,
    /// Known once the session is set up.
    limits: Option<SessionSandboxLimits>,
    pages: FailurePages,
    /// Pages that are free.
    notes: Vec<FailurePage>,
    /// Starts programs in the control groups; None for a moment after it was killed.
    fork_server: Option<ForkServer>,
    /// Programs requested from the fork server, in the order of the requests.
    starting: VecDeque<StartingProgram>,
    /// Children that ended before their pids were known, while programs are being started.
    ended_unknown: Vec<libc::pid_t>,
    /// Processes that did not become a program, until they are reaped.
    lost: Vec<(libc::pid_t, FailurePage)>,
    running: Vec<StartedProgram>,
    is_frozen: bool,
    /// The file helper, once one was requested.
    helper: Option<libc::pid_t>,
    freezer: Option<OwnedFd>,
    /// Share of the processor relative to other sandboxes; None if groups do not share it.
    cpu_share: Option<CpuShare>,
    /// CPU time of the groups before the session: the groups stay with their slot.
    cpu_before: Duration,
}

/// Result of a request: an answer, with an optional descriptor.
type Answer = Result<(MessageWriter, Option<OwnedFd>), StepFailure>;

/// A received frame.
#[derive(Clone, Copy, Debug)]
struct ReceivedFrame<'a> {
    kind: u8,
    id: u64,
    whole: &'a [u8],
    /// Content after the id.
    rest: MessageReader<'a>,
}

impl GuestSetup<'_> {
    /// Makes the part of the setup that does not depend on the session.
    fn prepare_session(&self) -> Result<GuestSession, StepFailure> {
        self.isolate()?;
        let user = self.users.map(|(_, user)| user);
        workspace::mount_session_scratch(user)?;
        terminal::mount_for_session()?;
        super::reset_signals()?;
        let sigchld = sys::sigchld_fd().step("watch for children")?;
        let pages = FailurePages::new().step("share a page with programs")?;
        let mut notes: Vec<FailurePage> = (0..NOTES_MAX).filter_map(|n| pages.at(n)).collect();
        // Opened with the rights of root: any process with the descriptors may enter the groups,
        // whatever its user.
        let entrances = self.groups.entrances().step("open the control groups")?;
        let unified = self.groups.unified_entrance().step("open the control groups")?;
        let freezer = self.groups.freezer();
        let has_groups = !self.groups.is_empty();
        let cpu_share = match has_groups {
            true => self.groups.cpu_share().step("share the processor")?,
            false => None,
        };
        self.lower_privileges_to(SETTING_UP)?;
        let context = ProgramContext {
            entrances,
            unified,
            has_unified_limits: self.groups.has_unified_limits(),
            user,
            unlimited: self.groups.unlimited(),
        };
        let filter = self.filters.of(FilterSubject::Session);
        let parking = ParkingOrder {
            groups: GroupEntry::Version1,
            hide_groups: has_groups,
            filter: Some(filter),
        };
        let first = Some((parking, self.groups.unified()));
        let fork_server = start_fork_server(&context, first, pages, &mut notes)?;
        if has_groups {
            let step = "hide the control groups";
            let (_, fds) = sys::receive(fork_server.socket(), &mut [0u8; 16]).step(step)?;
            // A fork server that has failed sends nothing.
            let namespace = fds.first().ok_or_else(|| failed_start(&fork_server, step))?;
            sys::setns(namespace.as_fd(), libc::CLONE_NEWCGROUP).step(step)?;
        }
        // The host's /proc and the parent groups are no longer needed.
        let parents = self.parents.iter().map(|(_, fd)| fd.as_raw_fd());
        for fd in parents.chain([self.host_proc.as_raw_fd(), self.netns.as_raw_fd()]) {
            let number = fd.cast_unsigned();
            sys::close_inherited(number, number).step("close the host's /proc")?;
        }
        Ok(GuestSession {
            sigchld,
            context,
            limits: None,
            pages,
            notes,
            fork_server: Some(fork_server),
            starting: VecDeque::new(),
            ended_unknown: Vec::new(),
            lost: Vec::new(),
            running: Vec::new(),
            is_frozen: false,
            helper: None,
            freezer,
            cpu_share,
            cpu_before: Duration::ZERO,
        })
    }
}

/// Step name of program starts in failures.
const START: &str = "start a program";

/// Error when the maximum number of programs run.
fn full() -> StepFailure {
    StepFailure { step: START.to_owned(), errno: libc::EAGAIN }
}

/// Error when a program does not exist, or has ended.
fn no_such_process(step: &str) -> StepFailure {
    StepFailure { step: step.to_owned(), errno: libc::ESRCH }
}

fn start_fork_server(
    context: &ProgramContext,
    first: Option<(ParkingOrder<'_>, Option<BorrowedFd<'_>>)>,
    pages: FailurePages,
    notes: &mut Vec<FailurePage>,
) -> Result<ForkServer, StepFailure> {
    let note = notes.pop().ok_or_else(full)?;
    match ForkServer::start(context, first, pages, &note).step(START) {
        Ok((pid, socket)) => Ok(ForkServer::new(pid, note, socket)),
        Err(failure) => {
            notes.push(note);
            Err(failure)
        }
    }
}

/// Returns the failure that ended the first fork server.
fn failed_start(server: &ForkServer, step: &str) -> StepFailure {
    let _known_to_have_ended = sys::wait_pid(server.pid);
    let failure = program::end(ChildEnd::Code(0), &server.note).failure;
    failure.unwrap_or_else(|| StepFailure { step: step.to_owned(), errno: libc::ECHILD })
}

impl GuestSession {
    /// Serves until the server or the spawner has died, or the session cannot be set up.
    fn serve(mut self, guest: &GuestSetup<'_>) -> c_int {
        let mut buf = [0u8; codec::MESSAGE_BYTES_MAX];
        let mut are_all_reaped = true;
        loop {
            let mut watched = vec![guest.control.as_fd(), guest.lifeline, self.sigchld.as_fd()];
            watched.extend(self.fork_server.as_ref().map(ForkServer::socket));
            let timeout = (!are_all_reaped).then_some(Duration::ZERO);
            let Ok(ready) = sys::poll(&watched, timeout) else { return 1 };
            let is_ready = |i: usize| ready.get(i).copied().unwrap_or(false);
            if is_ready(1) {
                return 0;
            }
            if is_ready(2) {
                sys::drain_signals(self.sigchld.as_fd());
            }
            if is_ready(2) || !are_all_reaped {
                are_all_reaped = self.reap(guest);
            }
            if is_ready(3) {
                self.take_fork_answer(guest);
            }
            if is_ready(0) {
                match sys::receive(guest.control.as_fd(), &mut buf) {
                    Ok((0, _)) => return 0,
                    Ok((n, fds)) => {
                        if !self.take(guest, buf.get(..n).unwrap_or(&[]), fds) {
                            return 1;
                        }
                    }
                    // The frame is too long; the kernel has dropped it, and the next one may be
                    // valid.
                    Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                    Err(_) => return 0,
                }
            }
        }
    }

    /// Handles a frame and answers it. Returns whether to continue: a session that cannot be set up
    /// is unusable.
    fn take(&mut self, guest: &GuestSetup<'_>, whole: &[u8], fds: Vec<OwnedFd>) -> bool {
        let mut rest = MessageReader(whole);
        let (Ok(kind), Ok(id)) = (rest.u8(), rest.u64()) else { return true };
        let frame = ReceivedFrame { kind, id, whole, rest };
        let answer = match self.limits {
            Some(limits) => self.request(guest, &limits, frame, fds),
            None if kind == to_session::SET_UP => self.set_up(guest, id, rest, fds).map(Some),
            None => Err(MalformedMessage.into()),
        };
        let goes_on = answer.is_ok() || self.limits.is_some();
        if let Some(answer) = answer.transpose() {
            send_answer(guest, id, answer);
        }
        if self.fork_server.is_none() && self.limits.is_some() && !self.is_frozen {
            // On failure, programs are started without a fork server, and the next frame retries.
            self.fork_server =
                start_fork_server(&self.context, None, self.pages, &mut self.notes).ok();
        }
        goes_on
    }

    /// Carries out a request; returns None if the answer follows later.
    fn request(
        &mut self,
        guest: &GuestSetup<'_>,
        limits: &SessionSandboxLimits,
        frame: ReceivedFrame<'_>,
        fds: Vec<OwnedFd>,
    ) -> Result<Option<(MessageWriter, Option<OwnedFd>)>, StepFailure> {
        let ReceivedFrame { kind, id, whole, mut rest } = frame;
        let answer = match kind {
            to_session::START | to_session::START_IN_FILE => {
                let streams = StartProgram::decode_streams(&mut rest)?;
                let in_file = kind == to_session::START_IN_FILE;
                let message = program::release(limits, in_file, whole);
                return self.start(guest, id, streams, message, fds);
            }
            to_session::SIGNAL => self.signal(id, rest),
            to_session::USAGE => {
                let usage = self.usage(&guest.groups)?;
                Ok((usage.encode(done(id)), None))
            }
            to_session::CONNECT => {
                let socket = sys_session::connect_loopback(rest.u16()?).step("connect")?;
                Ok((done(id), Some(socket)))
            }
            to_session::LISTEN => {
                let socket = sys_session::listen_loopback(rest.u16()?, BACKLOG).step("listen")?;
                Ok((done(id), Some(socket)))
            }
            to_session::FREEZE => self.freeze(guest, id),
            to_session::THAW => self.thaw(id),
            to_session::FILES => self.start_helper(id),
            to_session::CPU_SHARE => self.share_cpu(id, rest.u32()?),
            _ => Err(MalformedMessage.into()),
        };
        answer.map(Some)
    }

    // ---- requests ------------------------------------------------------------------------------

    /// Mounts the session's file systems, sets its limits, and gives up all but a few privileges.
    fn set_up(
        &mut self,
        guest: &GuestSetup<'_>,
        id: u64,
        mut r: MessageReader<'_>,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let limits = SessionSandboxLimits::read(&mut r)?;
        workspace::set_session_scratch(limits.tmp_bytes, limits.tmp_inodes)?;
        let mut descriptors = fds.into_iter();
        let disk = descriptors.next().ok_or(MalformedMessage)?;
        mounts::mount_session(disk, descriptors.collect(), guest.disk_users)?;
        if !guest.groups.is_empty() {
            guest
                .groups
                .set_session_limits(limits.memory_bytes, limits.processes)
                .step("set the limits of the control groups")?;
            self.cpu_before = guest.groups.cpu().unwrap_or_default();
        }
        self.limits = Some(limits);
        if let Some(users) = guest.disk_users {
            let number = users.as_raw_fd().cast_unsigned();
            sys::close_inherited(number, number).step("close a user namespace")?;
        }
        sys::set_capabilities(SERVING).step("give up privileges")?;
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).step("give up privileges")?;
        // Applies to this process as well, and every program inherits it.
        sys::set_seccomp(guest.filters.of(FilterSubject::Session)).step("restrict system calls")?;
        Ok((done(id), None))
    }

    /// Starts a program, or has the fork server start it.
    fn start(
        &mut self,
        guest: &GuestSetup<'_>,
        id: u64,
        streams: StreamSetup,
        message: Vec<u8>,
        mut fds: Vec<OwnedFd>,
    ) -> Result<Option<(MessageWriter, Option<OwnedFd>)>, StepFailure> {
        let mut controller = None;
        if let StreamSetup::Terminal(size) = streams {
            let terminal = terminal::open(size, self.context.user)?;
            controller = Some(terminal.controller);
            // Before the program's file, which comes last.
            fds.insert(0, terminal.program);
        }
        let oom_kills_before = guest.groups.oom_kills();
        let (socket, theirs) = sys::message_pair().step(START)?;
        let note = self.notes.pop().ok_or_else(full)?;
        // Clears the note of a process that an earlier fork server may have left.
        let _of_another = note.take();
        let starting = StartingProgram {
            id,
            note,
            socket,
            message,
            fds,
            controller,
            oom_kills_before,
            is_killed: false,
        };
        // A frozen fork server would answer only after the thaw.
        let server = self.fork_server.as_ref().filter(|_| !self.is_frozen);
        if server.is_some_and(|server| server.request(&starting.note, &theirs).is_ok()) {
            self.starting.push_back(starting);
            return Ok(None);
        }
        self.start_by_init(starting, &theirs).map(Some)
    }

    /// Starts a program without the fork server: its process enters the control groups itself.
    fn start_by_init(&mut self, starting: StartingProgram, theirs: &OwnedFd) -> Answer {
        let forked = sys_session::fork_plain(|| {
            self.context.become_program(ParkingOrder::BY_INIT, theirs, &starting.note)
        });
        match forked.step(START) {
            Ok(pid) => self.release(starting, pid),
            Err(failure) => {
                self.notes.push(starting.note);
                Err(failure)
            }
        }
    }

    /// Makes a parked process become the program.
    fn release(&mut self, starting: StartingProgram, pid: libc::pid_t) -> Answer {
        let StartingProgram {
            id, note, socket, message, fds, controller, oom_kills_before, ..
        } = starting;
        let handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        match sys::send(socket.as_fd(), &message, &handles).step(START) {
            Ok(()) => {
                self.running.push(StartedProgram { id, pid, note, oom_kills_before });
                Ok((done(id).u32(pid.cast_unsigned()), controller))
            }
            Err(failure) => {
                // The process was killed for lack of memory.
                self.lost.push((pid, note));
                Err(failure)
            }
        }
    }

    /// Handles an answer of the fork server, which must exist.
    fn take_fork_answer(&mut self, guest: &GuestSetup<'_>) {
        let Some(server) = &self.fork_server else { return };
        let answer = server.answer();
        let waiting = match answer {
            ForkAnswer::Forked(_) | ForkAnswer::Failed(_) => 1,
            ForkAnswer::Ended => {
                if let Some(server) = self.fork_server.take() {
                    match server.is_reaped {
                        true => self.notes.push(server.note),
                        false => self.lost.push((server.pid, server.note)),
                    }
                }
                self.starting.len()
            }
        };
        for _ in 0..waiting {
            let Some(starting) = self.starting.pop_front() else { return };
            let id = starting.id;
            let answer = match answer {
                ForkAnswer::Forked(pid) if self.ended_unknown.contains(&pid) => {
                    self.notes.push(starting.note);
                    Err(StepFailure { step: START.to_owned(), errno: libc::ECHILD })
                }
                ForkAnswer::Forked(pid) if starting.is_killed => {
                    // The process ends when its socket is closed.
                    self.lost.push((pid, starting.note));
                    Err(no_such_process(START))
                }
                _ if starting.is_killed => {
                    self.notes.push(starting.note);
                    Err(no_such_process(START))
                }
                ForkAnswer::Forked(pid) => self.release(starting, pid),
                // The limit of processes does not apply to a process that enters the groups.
                ForkAnswer::Failed(_) | ForkAnswer::Ended => self.start_again(starting),
            };
            send_answer(guest, id, answer);
        }
        if self.starting.is_empty() {
            self.ended_unknown.clear();
        }
    }

    /// Starts a program that the fork server has not started.
    fn start_again(&mut self, starting: StartingProgram) -> Answer {
        // If the fork server has forked a process after all, that one ends when its socket is
        // closed.
        let (socket, theirs) = match sys::message_pair().step(START) {
            Ok(pair) => pair,
            Err(failure) => {
                self.notes.push(starting.note);
                return Err(failure);
            }
        };
        self.start_by_init(StartingProgram { socket, ..starting }, &theirs)
    }

    /// Starts a file helper in place of any earlier one, and sends its connection to the server.
    fn start_helper(&mut self, id: u64) -> Answer {
        let step = "start the file helper";
        if let Some(pid) = self.helper.take() {
            // The earlier helper is not reaped yet, so its pid is not reused.
            sys_session::signal_one(pid, libc::SIGKILL).step(step)?;
        }
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let context = &self.context;
        let pid = sys_session::fork_plain(|| match context.become_helper(&theirs) {
            Ok(()) => super::files::main(theirs),
            Err(_) => program::NOT_STARTED,
        })
        .step(step)?;
        self.helper = Some(pid);
        Ok((done(id), Some(ours)))
    }

    fn signal(&mut self, id: u64, mut r: MessageReader<'_>) -> Answer {
        let (program, to_group, signal) = (r.u64()?, r.u8()? != 0, r.u8()?);
        let step = "send a signal";
        // Programs in `running` are not reaped yet, so their pids are not reused.
        let Some(running) = self.running.iter().find(|it| it.id == program) else {
            let starting = self.starting.iter_mut().find(|it| it.id == program);
            if let Some(starting) = starting.filter(|_| libc::c_int::from(signal) == libc::SIGKILL)
            {
                starting.is_killed = true;
            }
            return Err(no_such_process(step));
        };
        let sent = match to_group {
            true => sys::signal_group(running.pid, signal.into()).or_else(|_| {
                // A program that has just started does not lead its group yet.
                sys_session::signal_one(running.pid, signal.into())
            }),
            false => sys_session::signal_one(running.pid, signal.into()),
        };
        sent.step(step)?;
        Ok((done(id), None))
    }

    fn usage(&self, groups: &CommandGroups<'_>) -> Result<SandboxUsage, StepFailure> {
        if groups.is_empty() {
            return Ok(SandboxUsage::default());
        }
        let (now, counted) = (groups.in_use(), groups.counted());
        let cpu = groups.cpu().step("read the CPU time")?;
        Ok(SandboxUsage {
            cpu: cpu.saturating_sub(self.cpu_before),
            memory_bytes: now.memory_bytes,
            memory_peak_bytes: counted.memory_peak,
            processes: now.processes,
            oom_kills: counted.oom_kills,
        })
    }

    fn freeze(&mut self, guest: &GuestSetup<'_>, id: u64) -> Answer {
        let step = "stop every program";
        let groups = &guest.groups;
        while !self.starting.is_empty()
            && let Some(server) = &self.fork_server
            && sys::poll(&[server.socket()], Some(STARTING_MAX)).step(step)?.contains(&true)
        {
            self.take_fork_answer(guest);
        }
        self.is_frozen = true;
        let Some(freezer) = &self.freezer else {
            sys_session::signal_all_others(libc::SIGSTOP).step(step)?;
            // Files stay accessible during a freeze; a control group would not stop the helper
            // either.
            if let Some(helper) = self.helper {
                sys_session::signal_one(helper, libc::SIGCONT).step(step)?;
            }
            return Ok((done(id), None));
        };
        sys::write_all(freezer.as_fd(), b"1").step(step)?;
        // Each process stops at its next step; one that waits for a disk takes longer, but runs
        // nothing.
        for _ in 0..FREEZE_LOOKS_MAX {
            if groups.is_frozen() {
                break;
            }
            sys::poll(&[], Some(Duration::from_millis(1))).step(step)?;
        }
        Ok((done(id), None))
    }

    fn share_cpu(&self, id: u64, parts: u32) -> Answer {
        if let Some(share) = &self.cpu_share {
            share.divide(parts).step("share the processor")?;
        }
        Ok((done(id), None))
    }

    fn thaw(&mut self, id: u64) -> Answer {
        let step = "let programs go on";
        self.is_frozen = false;
        match &self.freezer {
            Some(freezer) => sys::write_all(freezer.as_fd(), b"0").step(step)?,
            None => {
                sys_session::signal_all_others(libc::SIGCONT).step(step)?;
            }
        }
        Ok((done(id), None))
    }

    // ---- ends ----------------------------------------------------------------------------------

    /// Reaps ended children, including orphans, and reports the ends of programs. Returns whether
    /// none are left.
    fn reap(&mut self, guest: &GuestSetup<'_>) -> bool {
        for _ in 0..REAPED_AT_ONCE {
            let Ok(Some((pid, how))) = sys::reap_any() else { return true };
            if let Some(at) = self.running.iter().position(|it| it.pid == pid) {
                let StartedProgram { id, note, oom_kills_before, .. } =
                    self.running.swap_remove(at);
                let mut end = program::end(how, &note);
                end.oom_kills = guest.groups.oom_kills().saturating_sub(oom_kills_before);
                self.notes.push(note);
                guest.tell(&end.encode(id), &[]);
            } else if let Some(at) = self.lost.iter().position(|(it, _)| *it == pid) {
                let (_, note) = self.lost.swap_remove(at);
                let _nobody_asks = note.take();
                self.notes.push(note);
            } else if self.helper == Some(pid) {
                self.helper = None;
            } else if let Some(server) = self.fork_server.as_mut().filter(|it| it.pid == pid) {
                server.is_reaped = true;
            } else if !self.starting.is_empty() {
                self.ended_unknown.push(pid);
            }
        }
        false
    }
}

fn send_answer(guest: &GuestSetup<'_>, id: u64, answer: Answer) {
    match answer {
        Ok((answer, fd)) => {
            let fds: Vec<BorrowedFd<'_>> = fd.iter().map(AsFd::as_fd).collect();
            guest.tell(&answer.finish(), &fds);
        }
        Err(StepFailure { step, errno }) => {
            let answer =
                MessageWriter::new(from_session::REFUSED).u64(id).u32(errno.cast_unsigned());
            guest.tell(&answer.bytes(step.as_bytes()).finish(), &[]);
        }
    }
}

/// Begins an answer to a request that was carried out.
fn done(id: u64) -> MessageWriter {
    MessageWriter::new(from_session::DONE).u64(id)
}
