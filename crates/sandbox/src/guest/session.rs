//! The guest init of a session: many programs at a time, for as long as the session lives.
//!
//! It takes frames, each with an id, and answers them in turn; none of them makes it wait for a
//! program. It starts programs, sends signals, makes terminals, opens sockets of the loopback and
//! reaps whatever ends; what programs write and read never passes through it. Once the session is
//! set up it has no privilege left but to signal, to give terminals away and to become the
//! session's user, and the policy of programs holds for itself.
//!
//! A frame that it does not understand is refused or ignored, and nothing that programs do reaches
//! it but their ends.

mod program;

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::mounts::{self, OVERLAY_CAPABILITIES};
use super::{CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID, Guest, mask};
use crate::cgroup::Groups;
use crate::codec::session::{SessionLimits, StartProgram, Usage, from_session, to_session};
use crate::codec::{self, Malformed, Reader, Streams, Writer, from_guest};
use crate::failure::{Failure, Step};
use crate::sys::{self, Ended, FailurePage, session as sys_session};
use crate::terminal;
use crate::workspace;
use program::Ground;

/// Until the session is set up: mounts and control groups, beside what it keeps.
const SETTING_UP: u64 = OVERLAY_CAPABILITIES | SERVING;
/// From then on: signals, terminals, and the identity of programs.
const SERVING: u64 = mask(&[CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID]);

/// Programs of one session at a time; what they start themselves counts as processes only.
pub(crate) const PROGRAMS_MAX: usize = FailurePage::PLACES;
/// Connections that wait for the server to take them.
const BACKLOG: c_int = 128;
/// How often it is looked whether everything has stopped, a millisecond apart.
const FREEZE_LOOKS_MAX: u32 = 20;

/// Body of the process.
pub(super) fn main(guest: Guest<'_>) -> c_int {
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
struct Running {
    /// Of the frame that started it.
    id: u64,
    pid: libc::pid_t,
    /// Where it leaves a note when it cannot be started.
    note: FailurePage,
    oom_kills_before: u64,
}

/// What the guest init of a session has and goes on to use.
#[derive(Debug)]
struct Session {
    sigchld: OwnedFd,
    ground: Ground,
    /// What is not in use by a program.
    notes: Vec<FailurePage>,
    running: Vec<Running>,
    /// The file helper, once one was asked for.
    helper: Option<libc::pid_t>,
    freezer: Option<OwnedFd>,
    /// CPU time of the groups before the session: they stay with their slot.
    cpu_before: Duration,
    is_set_up: bool,
}

/// What a request comes to: an answer, with descriptors.
type Answer = Result<(Writer, Option<OwnedFd>), Failure>;

impl Guest<'_> {
    /// Does everything that does not depend on the session.
    fn prepare_session(&self) -> Result<Session, Failure> {
        self.isolate()?;
        let user = self.users.map(|(_, user)| user);
        workspace::mount_session_scratch(user)?;
        terminal::mount_for_session()?;
        super::reset_signals()?;
        let sigchld = sys::sigchld_fd().step("watch for children")?;
        let notes = FailurePage::several().step("share a page with programs")?;
        // Opened with the rights of root: whoever has them may enter, whatever its user.
        let entrances = self.groups.all_entrances().step("open the control groups")?;
        let freezer = self.groups.freezer();
        if !self.groups.is_empty() {
            self.groups.backing_off().step("share the processor")?;
            self.hide_groups(&entrances)?;
        }
        self.lower_privileges_to(SETTING_UP)?;
        // The host's /proc and the groups of others have served.
        let parents = self.parents.iter().chain(self.standing).map(|(_, fd)| fd.as_raw_fd());
        for fd in parents.chain([self.host_proc.as_raw_fd(), self.netns.as_raw_fd()]) {
            let number = fd.cast_unsigned();
            sys::close_inherited(number, number).step("close the host's /proc")?;
        }
        Ok(Session {
            sigchld,
            ground: Ground { entrances, user, unlimited: self.groups.unlimited(), limits: None },
            notes,
            running: Vec::new(),
            helper: None,
            freezer,
            cpu_before: Duration::ZERO,
            is_set_up: false,
        })
    }

    /// Makes the groups of the session the topmost that can be seen in it. A namespace begins at the
    /// groups of its maker, which this process is not in; so somebody else makes it.
    fn hide_groups(&self, entrances: &[OwnedFd]) -> Result<(), Failure> {
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let make = || -> io::Result<()> {
            entrances.iter().try_for_each(|fd| sys::write_all(fd.as_fd(), b"0"))?;
            sys::unshare(libc::CLONE_NEWCGROUP)?;
            let namespace = sys::open(c"/proc/self/ns/cgroup", libc::O_RDONLY)?;
            sys::send(theirs.as_fd(), &[0], &[namespace.as_fd()])
        };
        let step = "hide the control groups";
        let pid = sys_session::fork_plain(|| {
            make().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO) & 0x7f)
        })
        .step(step)?;
        let ended = sys::wait_pid(pid).step(step)?;
        if let Some((_, Ended::Code(errno @ 1..))) = ended {
            return Err(Failure { step: step.to_owned(), errno });
        }
        let (_, fds) = sys::receive(ours.as_fd(), &mut [0u8; 16]).step(step)?;
        let namespace = fds.first().ok_or(Malformed)?;
        sys::setns(namespace.as_fd(), libc::CLONE_NEWCGROUP).step(step)
    }
}

impl Session {
    /// Serves until the server or the spawner is gone, or the session cannot be set up.
    fn serve(mut self, guest: &Guest<'_>) -> c_int {
        let mut buf = [0u8; codec::MESSAGE_BYTES_MAX];
        loop {
            let watched = [guest.control.as_fd(), guest.lifeline, self.sigchld.as_fd()];
            let Ok(ready) = sys::poll(&watched, None) else { return 1 };
            let is_ready = |i: usize| ready.get(i).copied().unwrap_or(false);
            if is_ready(1) {
                return 0;
            }
            if is_ready(2) {
                sys::drain_signals(self.sigchld.as_fd());
                self.reap(guest);
            }
            if is_ready(0) {
                match sys::receive(guest.control.as_fd(), &mut buf) {
                    Ok((0, _)) => return 0,
                    Ok((n, fds)) => {
                        if !self.take(guest, buf.get(..n).unwrap_or(&[]), fds) {
                            return 1;
                        }
                    }
                    // Longer than a frame may be; it is gone, and the next one may be right.
                    Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                    Err(_) => return 0,
                }
            }
        }
    }

    /// Takes a frame and answers it. Tells whether to go on: a session that cannot be set up is of
    /// no use.
    fn take(&mut self, guest: &Guest<'_>, frame: &[u8], fds: Vec<OwnedFd>) -> bool {
        let mut r = Reader(frame);
        let (Ok(kind), Ok(id)) = (r.u8(), r.u64()) else { return true };
        let answer = match self.is_set_up {
            true => self.request(guest, kind, id, r, fds),
            false if kind == to_session::SET_UP => self.set_up(guest, id, r, fds),
            false => Err(Malformed.into()),
        };
        match answer {
            Ok((answer, fd)) => {
                let fds: Vec<BorrowedFd<'_>> = fd.iter().map(AsFd::as_fd).collect();
                guest.tell(&answer.finish(), &fds);
                true
            }
            Err(Failure { step, errno }) => {
                let answer = Writer::new(from_session::REFUSED).u64(id).u32(errno.cast_unsigned());
                guest.tell(&answer.bytes(step.as_bytes()).finish(), &[]);
                self.is_set_up
            }
        }
    }

    fn request(
        &mut self,
        guest: &Guest<'_>,
        kind: u8,
        id: u64,
        mut r: Reader<'_>,
        mut fds: Vec<OwnedFd>,
    ) -> Answer {
        match kind {
            to_session::START => self.start(guest, id, r, fds),
            to_session::START_IN_FILE => {
                let file = fds.pop().ok_or(Malformed)?;
                let frame = sys::read_file(file.as_fd()).step("read the program")?;
                let mut r = Reader(&frame);
                (r.u8()?, r.u64()?);
                self.start(guest, id, r, fds)
            }
            to_session::SIGNAL => self.signal(id, r),
            to_session::USAGE => {
                let usage = self.usage(&guest.groups)?;
                Ok((usage.encode(done(id)), None))
            }
            to_session::CONNECT => {
                let socket = sys_session::connect_loopback(r.u16()?).step("connect")?;
                Ok((done(id), Some(socket)))
            }
            to_session::LISTEN => {
                let socket = sys_session::listen_loopback(r.u16()?, BACKLOG).step("listen")?;
                Ok((done(id), Some(socket)))
            }
            to_session::FREEZE => self.freeze(id, &guest.groups),
            to_session::THAW => self.thaw(id),
            to_session::FILES => self.start_helper(id),
            _ => Err(Malformed.into()),
        }
    }

    // ---- requests ------------------------------------------------------------------------------

    /// Mounts what the session has, sets its limits, and gives up all but a few privileges.
    fn set_up(
        &mut self,
        guest: &Guest<'_>,
        id: u64,
        mut r: Reader<'_>,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let limits = SessionLimits::decode(&mut r)?;
        workspace::set_session_scratch(limits.tmp_bytes, limits.tmp_inodes)?;
        let mut given = fds.into_iter();
        let disk = given.next().ok_or(Malformed)?;
        mounts::mount_session(disk, given.collect(), guest.disk_users)?;
        if !guest.groups.is_empty() {
            guest
                .groups
                .set_session_limits(limits.memory_bytes, limits.processes)
                .step("set the limits of the control groups")?;
            self.cpu_before = guest.groups.cpu().unwrap_or_default();
        }
        self.ground.limits = Some(limits);
        if let Some(users) = guest.disk_users {
            let number = users.as_raw_fd().cast_unsigned();
            sys::close_inherited(number, number).step("close a user namespace")?;
        }
        sys::set_capabilities(SERVING).step("give up privileges")?;
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).step("give up privileges")?;
        // For this process as well, and from it for every program.
        sys::set_seccomp(guest.filters[2]).step("restrict system calls")?;
        self.is_set_up = true;
        Ok((done(id), None))
    }

    fn start(
        &mut self,
        guest: &Guest<'_>,
        id: u64,
        mut r: Reader<'_>,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let start = StartProgram::decode(&mut r)?;
        let full = || Failure { step: "start a program".to_owned(), errno: libc::EAGAIN };
        let note = self.notes.pop().ok_or_else(full)?;
        match self.start_with(&note, &start, fds) {
            Ok((pid, terminal)) => {
                let oom_kills_before = guest.groups.oom_kills();
                self.running.push(Running { id, pid, note, oom_kills_before });
                Ok((done(id).u32(pid.cast_unsigned()), terminal))
            }
            Err(failure) => {
                self.notes.push(note);
                Err(failure)
            }
        }
    }

    fn start_with(
        &self,
        note: &FailurePage,
        start: &StartProgram<'_>,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(libc::pid_t, Option<OwnedFd>), Failure> {
        let mut controller = None;
        if let Streams::Terminal(size) = start.streams {
            let terminal = terminal::open(size, self.ground.user)?;
            controller = Some(terminal.controller);
            fds.push(terminal.program);
        }
        let pid = sys_session::fork_plain(|| self.ground.become_program(start, &fds, note))
            .step("start a program")?;
        Ok((pid, controller))
    }

    /// Starts a file helper in the place of any earlier one, and hands over its connection.
    fn start_helper(&mut self, id: u64) -> Answer {
        let step = "start the file helper";
        if let Some(pid) = self.helper.take() {
            // Not reaped yet, so that nobody else has its pid.
            sys_session::signal_one(pid, libc::SIGKILL).step(step)?;
        }
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let ground = &self.ground;
        let pid = sys_session::fork_plain(|| match ground.become_helper(&theirs) {
            Ok(()) => super::files::main(theirs),
            Err(_) => program::NOT_STARTED,
        })
        .step(step)?;
        self.helper = Some(pid);
        Ok((done(id), Some(ours)))
    }

    fn signal(&self, id: u64, mut r: Reader<'_>) -> Answer {
        let (program, to_group, signal) = (r.u64()?, r.u8()? != 0, r.u8()?);
        let step = "send a signal";
        let gone = || Failure { step: step.to_owned(), errno: libc::ESRCH };
        // One that is not reaped yet: its pid is nobody else's.
        let running = self.running.iter().find(|it| it.id == program).ok_or_else(gone)?;
        let sent = match to_group {
            true => sys::signal_group(running.pid, signal.into()).or_else(|_| {
                // Not the leader of its group yet, so young is it.
                sys_session::signal_one(running.pid, signal.into())
            }),
            false => sys_session::signal_one(running.pid, signal.into()),
        };
        sent.step(step)?;
        Ok((done(id), None))
    }

    fn usage(&self, groups: &Groups) -> Result<Usage, Failure> {
        if groups.is_empty() {
            return Ok(Usage::default());
        }
        let (now, counted) = (groups.in_use(), groups.counted());
        let cpu = groups.cpu().step("read the CPU time")?;
        Ok(Usage {
            cpu: cpu.saturating_sub(self.cpu_before),
            memory_bytes: now.memory_bytes,
            memory_peak_bytes: counted.memory_peak,
            processes: now.processes,
            oom_kills: counted.oom_kills,
        })
    }

    fn freeze(&self, id: u64, groups: &Groups) -> Answer {
        let step = "stop every program";
        let Some(freezer) = &self.freezer else {
            sys_session::signal_all_others(libc::SIGSTOP).or_else(super::ignore_none).step(step)?;
            return Ok((done(id), None));
        };
        sys::write_all(freezer.as_fd(), b"1").step(step)?;
        // Each stops at its next step; one that waits for a disk takes longer, and runs nothing.
        for _ in 0..FREEZE_LOOKS_MAX {
            if groups.is_frozen() {
                break;
            }
            sys::poll(&[], Some(Duration::from_millis(1))).step(step)?;
        }
        Ok((done(id), None))
    }

    fn thaw(&self, id: u64) -> Answer {
        let step = "let programs go on";
        match &self.freezer {
            Some(freezer) => sys::write_all(freezer.as_fd(), b"0").step(step)?,
            None => {
                sys_session::signal_all_others(libc::SIGCONT)
                    .or_else(super::ignore_none)
                    .step(step)?;
            }
        }
        Ok((done(id), None))
    }

    // ---- ends ----------------------------------------------------------------------------------

    /// Reaps whatever has ended, orphans among it, and tells of the programs.
    fn reap(&mut self, guest: &Guest<'_>) {
        while let Ok(Some((pid, how))) = sys::reap_any() {
            if self.helper == Some(pid) {
                self.helper = None;
            }
            let Some(at) = self.running.iter().position(|it| it.pid == pid) else { continue };
            let Running { id, note, oom_kills_before, .. } = self.running.swap_remove(at);
            let mut end = program::end(how, &note);
            end.oom_kills = guest.groups.oom_kills().saturating_sub(oom_kills_before);
            self.notes.push(note);
            guest.tell(&end.encode(id), &[]);
        }
    }
}

/// The beginning of an answer to a request that was carried out.
fn done(id: u64) -> Writer {
    Writer::new(from_session::DONE).u64(id)
}
