//! The guest init: pid 1 of a sandbox.
//!
//! A copy of the spawner in fresh namespaces. It finishes the sandbox (mounts, host name,
//! identity), reports that it is ready, and waits. On request it places files, sets limits, starts
//! a program, supervises it, kills all processes that the program left, and reports. It runs under
//! a user id that no program has, programs cannot trace or signal it, it reads none of their data
//! except the requested files, and it gives up its privileges as soon as the last program has
//! started.
//!
//! When its server or its spawner dies, the guest init exits, and the kernel kills all processes in
//! its pid namespace.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/namespaces.7.html>
//! - <https://man7.org/linux/man-pages/man7/pid_namespaces.7.html>

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::cgroup::{self, CommandGroups, HierarchyRole, OpenGroup};
use crate::codec::{
    self, EndReport, MessageReader, StartMessage, StreamSetup, from_guest, to_guest,
};
use crate::failure::{FailureContext, StepFailure};
use crate::landlock;
use crate::payload::{self, NotStarted, ParkingPlan, ProgramPlan};
use crate::seccomp::{FilterSet, FilterSubject};
use crate::spec::ProgramLimits;
use crate::sys::{self, ChildEnd, FailurePage, KernelClock, ParkedChild, ParkingPlace};
use crate::terminal;
use crate::workspace::{self, HomeContent, ScratchContent};
use mounts::OVERLAY_CAPABILITIES;

pub(crate) mod files;
mod loopback;
pub(crate) mod mounts;
mod session;
mod warm;

pub(crate) use warm::WaitingRuntime;

// linux/capability.h
const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

const fn mask(capabilities: &[u32]) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < capabilities.len() {
        mask |= 1 << capabilities[i];
        i += 1;
    }
    mask
}

/// Capabilities while further programs may start: mounts, control groups, limits, identities.
const SETTING_UP: u64 = mask(&[
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
    CAP_SYS_ADMIN,
    CAP_SYS_RESOURCE,
]);
/// Capabilities after the last start: to kill its processes, and to read outputs as its user.
const SUPERVISING: u64 = mask(&[CAP_KILL, CAP_SETGID, CAP_SETUID]);

/// CPU time after which a program's processor share is lowered: most have ended by then, and the
/// others yield the processor to younger programs while there are any.
const TURN: Duration = Duration::from_millis(100);
/// Shortest interval between two reads of the CPU account. Bounds both the overshoot and the cost.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Longest interval: a process killed for lack of memory is noticed at the next read.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Setup of a guest init from its spawner.
#[derive(Debug)]
pub(crate) struct GuestSetup<'a> {
    pub(crate) spawner: u32,
    pub(crate) sandbox: u64,
    /// Connection to the server.
    pub(crate) control: OwnedFd,
    /// Hung up when the spawner has ended.
    pub(crate) lifeline: BorrowedFd<'a>,
    pub(crate) netns: BorrowedFd<'a>,
    /// The host's `/proc`, for the one file that is written before the sandbox has its own.
    pub(crate) host_proc: BorrowedFd<'a>,
    pub(crate) parents: &'a [(HierarchyRole, OwnedFd)],
    /// The standing groups of the slot.
    pub(crate) standing: &'a [OpenGroup],
    pub(crate) unified_limits: bool,
    /// Groups of the first command, made ahead; empty without control groups.
    pub(crate) groups: CommandGroups<'a>,
    /// User ids of the init and of its programs; `None` if there is only one (rootless).
    pub(crate) users: Option<(u32, u32)>,
    pub(crate) filters: FilterSet<'a>,
    pub(crate) landlock: bool,
    /// The runtime that waits for the first command, instead of a bare process.
    pub(crate) waiting: Option<WaitingRuntime<'a>>,
    /// True if the sandbox holds a session rather than running commands.
    pub(crate) is_session: bool,
    /// True if its commands begin over layers, which the server names before the first command.
    pub(crate) has_layers: bool,
    /// Maps the owners of files on a session's disk, and on layers, to the users of the slot.
    pub(crate) disk_users: Option<BorrowedFd<'a>>,
    /// True if its network namespace has a loopback, for commands with ports.
    pub(crate) has_loopback: bool,
}

/// A process that waits to become a program.
#[derive(Debug)]
struct ParkedProcess {
    holder: FilterSubject,
    /// True for a runtime that has already started.
    warm: bool,
    child: sys::ForkedChild,
    /// Connection for the message that releases it.
    socket: OwnedFd,
    /// CPU time of its group before the program.
    cpu_before: Duration,
    /// CPU time of all children reaped before: earlier commands of the sandbox.
    children_before: Duration,
    /// File and text to write once the program has used its first CPU time ([`TURN`]).
    backing_off: Option<(OwnedFd, &'static [u8])>,
    /// True if it was executed with a higher memory limit than the program's.
    began_with_more: bool,
}

/// State that the guest init keeps after its setup.
#[derive(Debug)]
struct GuestEnvironment {
    /// The root of the file system for all writable directories; hidden behind `/workspace`.
    scratch: OwnedFd,
    /// The directory in which commands begin, and in which their files are placed.
    workspace: OwnedFd,
    sigchld: OwnedFd,
    landlock: Option<OwnedFd>,
    page: FailurePage,
    parking: &'static ParkingPlace<ProgramPlan>,
}

/// Result of the wait for a program.
#[derive(Debug, Default)]
struct WaitEnd {
    /// End of the main program, if it ended on its own.
    ended: Option<ChildEnd>,
    wall_breached: bool,
    /// The server stopped the program or closed the connection.
    stopped: bool,
}

/// Body of the process. Never returns to the spawner's code.
pub(crate) fn main(guest: GuestSetup<'_>) -> c_int {
    if guest.is_session {
        return session::main(guest);
    }
    let parked = guest.set_up().and_then(|place| {
        // Parked before the request arrives; most commands run a program, not a compiler.
        let (parked, streams) = match &guest.waiting {
            // Its working directory is not mounted yet.
            None if guest.has_layers => (None, Vec::new()),
            None => (Some(guest.park(&place, guest.holder())?), Vec::new()),
            Some(waiting) => {
                let (parked, streams) = guest.park_warm(&place, waiting)?;
                (Some(parked), streams)
            }
        };
        Ok((place, parked, streams))
    });
    match parked {
        Ok((place, parked, streams)) => {
            let handles: Vec<BorrowedFd<'_>> = streams.iter().map(AsFd::as_fd).collect();
            guest.tell(&[from_guest::READY], &handles);
            drop(streams);
            guest.serve(place, parked)
        }
        Err(failure) => {
            guest.tell(&failure.encode(from_guest::FAILED), &[]);
            1
        }
    }
}

impl GuestSetup<'_> {
    /// Sends a message to the server. If that has died, the next read of the socket ends the init.
    fn tell(&self, message: &[u8], fds: &[BorrowedFd<'_>]) {
        let _gone = sys::send(self.control.as_fd(), message, fds);
    }

    // ---- setting up ----------------------------------------------------------------------------

    /// Separates this process from the spawner and the host, as far as that needs no mount.
    fn isolate(&self) -> Result<(), StepFailure> {
        sys::set_name(c"cove-init").step("name the guest init")?;
        // Set again below: a change of user id clears it. The lifeline covers the time in between.
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
            .step("tie to the spawner")?;
        self.close_foreign_descriptors().step("close the spawner's descriptors")?;
        self.volunteer_for_oom();
        sys::setns(self.netns, libc::CLONE_NEWNET).step("enter the network namespace")?;
        sys::sethostname("sandbox").step("set the host name")
    }

    fn set_up(&self) -> Result<GuestEnvironment, StepFailure> {
        self.isolate()?;
        let scratch = workspace::mount_all(self.users.map(|(_, user)| user))?;
        let workspace =
            sys::open(c"/workspace", libc::O_PATH | libc::O_DIRECTORY).step("open /workspace")?;
        let landlock = if self.landlock {
            Some(landlock::ruleset().step("prepare the file system restriction")?)
        } else {
            None
        };
        reset_signals()?;
        let sigchld = sys::sigchld_fd().step("watch for children")?;
        let page = FailurePage::new().step("share a page with programs")?;
        self.lower_privileges_to(match self.has_layers {
            true => SETTING_UP | OVERLAY_CAPABILITIES,
            false => SETTING_UP,
        })?;
        // The init keeps no way to the host's /proc or the spawner's namespace.
        for fd in [self.host_proc, self.netns] {
            let number = fd.as_raw_fd().cast_unsigned();
            sys::close_inherited(number, number).step("close the host's /proc")?;
        }
        let parking = ParkingPlace::new().step("make a stack for programs")?;
        Ok(GuestEnvironment { scratch, workspace, sigchld, landlock, page, parking })
    }

    /// Closes descriptors of the spawner, above all its socket: an open copy would hide its end.
    fn close_foreign_descriptors(&self) -> io::Result<()> {
        let mut keep: Vec<RawFd> = vec![
            self.control.as_raw_fd(),
            self.lifeline.as_raw_fd(),
            self.netns.as_raw_fd(),
            self.host_proc.as_raw_fd(),
        ];
        let zygote = self.waiting.and_then(|waiting| waiting.zygote);
        keep.extend(zygote.map(|zygote| zygote.as_raw_fd()));
        keep.extend(self.disk_users.map(|users| users.as_raw_fd()));
        keep.extend(self.parents.iter().map(|(_, fd)| fd.as_raw_fd()));
        keep.extend(self.groups.descriptors());
        keep.sort_unstable();
        let mut next = 3;
        for fd in keep {
            let fd = fd.cast_unsigned();
            if fd >= next {
                sys::close_inherited(next, fd - 1)?;
                next = fd + 1;
            }
        }
        sys::close_inherited(next, u32::MAX)
    }

    /// Makes the kernel kill sandboxes before the server when the host runs out of memory. Best
    /// effort: an unprivileged user may not have write access to the file.
    fn volunteer_for_oom(&self) {
        let file = sys::openat(self.host_proc, c"self/oom_score_adj", libc::O_WRONLY, 0);
        let _best_effort = file.and_then(|fd| sys::write_all(fd.as_fd(), b"1000"));
    }

    fn lower_privileges_to(&self, capabilities: u64) -> Result<(), StepFailure> {
        if let Some((init, _)) = self.users {
            sys::clear_groups().step("give up groups")?;
            sys::setresgid(init).step("become the init's group")?;
            sys::prctl(libc::PR_SET_KEEPCAPS, 1).step("keep capabilities")?;
            sys::setresuid(init).step("become the init's user")?;
        }
        // A server may itself have been started with fewer capabilities, in a container above all.
        let permitted = sys::capabilities().step("read capabilities")?;
        sys::set_capabilities(capabilities & permitted).step("lower capabilities")?;
        sys::prctl(libc::PR_SET_DUMPABLE, 0).step("refuse to be traced")?;
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
            .step("tie to the spawner")
    }

    // ---- serving -------------------------------------------------------------------------------

    fn serve(mut self, mut place: GuestEnvironment, mut parked: Option<ParkedProcess>) -> c_int {
        let mut buf = [0u8; codec::MESSAGE_BYTES_MAX];
        let mut command = 0;
        loop {
            let Ok((n, fds)) = self.next_message(&mut buf, parked.as_ref()) else { return 0 };
            let message = buf.get(..n).unwrap_or(&[]);
            match message.first() {
                None => return 0,
                // The command that the message refers to has ended on its own meanwhile.
                Some(&(to_guest::STOP | to_guest::SIGNAL)) => continue,
                Some(&to_guest::LAYERS) if self.has_layers && command == 0 && parked.is_none() => {
                    match self.stand_on_layers(&mut place, message, &fds) {
                        Ok(process) => parked = Some(process),
                        Err((kind, failure)) => {
                            self.tell(&failure.encode(kind), &[]);
                            return 1;
                        }
                    }
                    continue;
                }
                Some(_) => {}
            }
            match self.command(&place, parked.take(), message, fds, command) {
                Ok(true) => return 0,
                Ok(false) => command += 1,
                Err(failure) => {
                    self.tell(&failure.encode(from_guest::FAILED), &[]);
                    return 1;
                }
            }
        }
    }

    /// Receives the next message of the server. Returns end of file also when the spawner has died,
    /// or the parked process: it sends nothing while it lives.
    fn next_message(
        &self,
        buf: &mut [u8],
        parked: Option<&ParkedProcess>,
    ) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut watched = vec![self.control.as_fd(), self.lifeline];
        watched.extend(parked.map(|parked| parked.socket.as_fd()));
        loop {
            let ready = sys::poll(&watched, None)?;
            match ready.as_slice() {
                [_, true, ..] | [_, _, true] => return Ok((0, Vec::new())),
                [true, ..] => return sys::receive(self.control.as_fd(), buf),
                _ => {}
            }
        }
    }

    /// Mounts the layers of a message below the workspace, and parks a process in the directory
    /// that the message names. Errors have the kind of the answer.
    fn stand_on_layers(
        &self,
        place: &mut GuestEnvironment,
        message: &[u8],
        layers: &[OwnedFd],
    ) -> Result<ParkedProcess, (u8, StepFailure)> {
        let ours = |failure| (from_guest::FAILED, failure);
        let workdir = MessageReader(message.get(1..).unwrap_or(&[])).bytes();
        let workdir = workdir.map_err(|error| ours(error.into()))?;
        if !layers.is_empty() {
            workspace::make_upper(place.scratch.as_fd(), self.users).map_err(ours)?;
            mounts::mount_layers(place.scratch.as_fd(), layers, self.disk_users).map_err(ours)?;
        }
        // Only the mounts that all sandboxes make remain, so fewer capabilities suffice.
        let permitted = sys::capabilities().step("read capabilities").map_err(ours)?;
        let lowered = sys::set_capabilities(SETTING_UP & permitted).step("lower capabilities");
        lowered.map_err(ours)?;
        // The path leads through a template's files: opened with the rights of the program's user.
        place.workspace = self
            .as_program(|| workspace::open_workdir(workdir))
            .map_err(|failure| (from_guest::FILE, failure))?;
        let parked = self.park(place, self.holder()).map_err(ours)?;
        self.tell(&[from_guest::MOUNTED], &[]);
        Ok(parked)
    }

    /// Runs `act` with the file access rights of the program's user.
    fn as_program<T>(&self, act: impl FnOnce() -> T) -> T {
        let Some((init, user)) = self.users else { return act() };
        sys::setfsids(user, user);
        let result = act();
        sys::setfsids(init, init);
        result
    }

    /// Runs one command from its message to its report. Returns whether it was the last.
    fn command(
        &mut self,
        place: &GuestEnvironment,
        parked: Option<ParkedProcess>,
        message: &[u8],
        mut fds: Vec<OwnedFd>,
        command: u32,
    ) -> Result<bool, StepFailure> {
        let in_file = match message.first() {
            Some(&to_guest::START) => None,
            Some(&to_guest::START_IN_FILE) => Some(fds.pop().ok_or(codec::MalformedMessage)?),
            _ => return Err(codec::MalformedMessage.into()),
        };
        let content = in_file.as_ref().map(|file| sys::read_file(file.as_fd()));
        let content = content.transpose().step("read the command")?;
        let body = content.as_deref().unwrap_or(message);
        let start = StartMessage::decode(&mut MessageReader(body.get(1..).unwrap_or(&[])))?;
        if command > 0 {
            self.renew(place, command)?;
        }
        let content = match command > 0 || self.has_layers {
            true => ScratchContent::Used,
            false => ScratchContent::New,
        };
        workspace::set_disk_limits(place.scratch.as_fd(), &start.limits, content)?;
        let until_started = match start.warm {
            true => start.limits.memory_bytes,
            false => start.limits.memory_bytes.max(payload::execution_bytes(&start)),
        };
        if !self.groups.is_empty() {
            self.groups
                .set_limits(until_started, start.limits.processes)
                .step("set the limits of the control groups")?;
        }
        let shared =
            fds.split_off((start.streams.descriptor_count() + start.extra.len()).min(fds.len()));
        if let Err(failure) = self.place_files(place, &start, &shared) {
            self.tell(&failure.encode(from_guest::FILE), &[]);
            return Ok(start.last);
        }
        let mut parked = self.make_ready(place, parked, &start)?;
        if let StreamSetup::Terminal(size) = start.streams {
            let terminal = terminal::make(size, self.users.map(|(_, user)| user))?;
            self.tell(&[from_guest::TERMINAL], &[terminal.controller.as_fd()]);
            fds.insert(0, terminal.program);
        }
        if parked.warm {
            // The start of the runtime does not count as the program's.
            parked.cpu_before = self.cpu(parked.child.pid)?;
        }
        let began = now()?;
        if parked.warm {
            self.release_warm(&parked, &start, &fds)?;
        } else {
            self.release(place, &parked, &start, &fds)?;
        }
        // While a copy of a pipe's end is open here, its reader sees no end of file.
        drop(fds);
        parked.began_with_more = until_started > start.limits.memory_bytes;
        if parked.began_with_more
            && self.groups.set_memory_limit(start.limits.memory_bytes).is_err()
        {
            // The program uses more memory than its limit already.
            let _gone = sys::kill_pidfd(parked.child.pidfd.as_fd());
        }
        if start.last {
            sys::set_capabilities(SUPERVISING).step("give up privileges")?;
        }
        let mut report = self.supervise(place, &start, &parked, began)?;
        if parked.warm {
            warm::check_started(&parked)?;
        }
        match NotStarted::from_page(&place.page) {
            None => {}
            Some(NotStarted::Program(errno)) => {
                report.exec_errno = Some(errno);
                report.code = None;
            }
            Some(NotStarted::Step(step, errno)) => {
                return Err(StepFailure { step: step.to_owned(), errno });
            }
        }
        let outputs = self.collect(place, &start, &mut report);
        let handles: Vec<BorrowedFd<'_>> = outputs.iter().map(AsFd::as_fd).collect();
        self.tell(&report.encode(), &handles);
        Ok(start.last)
    }

    /// Replaces everything but the workspace for another command.
    fn renew(&mut self, place: &GuestEnvironment, command: u32) -> Result<(), StepFailure> {
        sys::unshare(libc::CLONE_NEWIPC).step("renew the ipc namespace")?;
        let home = if self.has_layers { HomeContent::Kept } else { HomeContent::Fresh };
        let user = self.users.map(|(_, user)| user);
        workspace::bind_writable(place.scratch.as_fd(), command, user, home)?;
        if !self.groups.is_empty() {
            let name = cgroup::group_name(self.spawner, self.sandbox, command);
            self.groups =
                CommandGroups::create(self.parents, self.standing, self.unified_limits, &name)
                    .step("make the control groups of the command")?;
        }
        Ok(())
    }

    /// Parks a process that suits this command, and opens the command's ports.
    fn make_ready(
        &self,
        place: &GuestEnvironment,
        parked: Option<ParkedProcess>,
        start: &StartMessage<'_>,
    ) -> Result<ParkedProcess, StepFailure> {
        self.listen(&start.ports)?;
        let holder = loopback::holder_of(start);
        match parked {
            Some(parked) if parked.holder == holder && parked.warm == start.warm => Ok(parked),
            // The runtime has served an earlier command, or there never was one.
            _ if start.warm => Err(codec::MalformedMessage.into()),
            Some(other) => {
                // It would count among the program's processes.
                sys::kill_pidfd(other.child.pidfd.as_fd()).step("end a parked process")?;
                sys::wait_pid(other.child.pid).step("end a parked process")?;
                self.park(place, holder)
            }
            None => self.park(place, holder),
        }
    }

    fn place_files(
        &self,
        place: &GuestEnvironment,
        start: &StartMessage<'_>,
        shared: &[OwnedFd],
    ) -> Result<(), StepFailure> {
        if start.files.is_empty() && start.symlinks.is_empty() {
            return Ok(());
        }
        // With the rights of the program's user, who owns the files. To keep them in the workspace,
        // they are opened beneath it, without following links, and never if they exist already.
        self.as_program(|| {
            workspace::place_files(place.workspace.as_fd(), &start.files, shared)?;
            workspace::place_symlinks(place.workspace.as_fd(), &start.symlinks)
        })
    }

    /// Starts a process that waits to become a program.
    fn park(
        &self,
        place: &GuestEnvironment,
        holder: FilterSubject,
    ) -> Result<ParkedProcess, StepFailure> {
        let entrances = self.groups.entrances().step("open the control groups")?;
        let plan = ParkingPlan {
            entrances: &entrances,
            hide_groups: !self.groups.is_empty(),
            unlimited: self.groups.unlimited(),
            user: self.users.map(|(_, user)| user),
            workdir: place.workspace.as_fd(),
            landlock: place.landlock.as_ref().map(AsFd::as_fd),
            filter: self.filters.of(holder),
        };
        let ParkedChild { child, socket, is_parked } = plan
            .start(place.parking, self.groups.unified(), place.page)
            .step("start a process for the program")?;
        if !is_parked {
            return Err(match NotStarted::from_page(&place.page) {
                Some(NotStarted::Step(step, errno)) => StepFailure { step: step.to_owned(), errno },
                _ => StepFailure { step: "park a process".to_owned(), errno: libc::ECHILD },
            });
        }
        let cpu_before = self.cpu(child.pid)?;
        let backing_off = self.groups.backing_off().step("open the share of the processor")?;
        let children_before = children_cpu()?;
        Ok(ParkedProcess {
            holder,
            warm: false,
            child,
            socket,
            cpu_before,
            children_before,
            backing_off,
            began_with_more: false,
        })
    }

    /// Makes a parked process the program, and waits for its `execve`: it shares this memory.
    fn release(
        &self,
        place: &GuestEnvironment,
        parked: &ParkedProcess,
        start: &StartMessage<'_>,
        fds: &[OwnedFd],
    ) -> Result<(), StepFailure> {
        let plan = ProgramPlan::new(start, self.groups.unlimited(), place.page)?;
        let handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let (child, socket) = (&parked.child, parked.socket.as_fd());
        // A delay, above all of an executable on a slow file system, counts as the program's time.
        let timeout = start.limits.wall;
        place
            .parking
            .release(child, socket, &plan, &handles, self.lifeline, timeout)
            .step("release the program")
    }

    // ---- supervising ---------------------------------------------------------------------------

    /// Waits until the program has ended or must end, kills the remaining processes, and measures.
    fn supervise(
        &self,
        place: &GuestEnvironment,
        start: &StartMessage<'_>,
        parked: &ParkedProcess,
        began: Duration,
    ) -> Result<EndReport, StepFailure> {
        let limits = &start.limits;
        let child = &parked.child;
        let mut watch = self.watch(place, limits, parked, began)?;
        let on_its_own = watch.ended.is_some();
        // Read before the rest is killed, so that the wall time does not include the killing.
        let ended = now()?;
        let wall = ended.saturating_sub(began);
        let main_cpu = if self.groups.counts_cpu() { None } else { Some(self.cpu(child.pid)?) };
        sys::session::signal_all_others(libc::SIGKILL).step("end what the program left")?;
        while let Some((pid, how)) = wait_any()? {
            if pid == child.pid {
                watch.ended = Some(how);
            }
        }
        let cpu = match main_cpu {
            None => self.cpu(child.pid)?,
            Some(main) => main.max(children_cpu()?.saturating_sub(parked.children_before)),
        };
        let cpu = cpu.saturating_sub(parked.cpu_before);
        let (code, signal) = match watch.ended {
            Some(ChildEnd::Code(code)) => (Some(code), None),
            Some(ChildEnd::Signal(signal)) => (None, Some(signal)),
            None => {
                return Err(StepFailure {
                    step: "wait for the program".to_owned(),
                    errno: libc::ECHILD,
                });
            }
        };
        let counted = self.groups.counted();
        Ok(EndReport {
            code,
            signal,
            exec_errno: None,
            cpu_breached: cpu >= limits.cpu,
            wall_breached: watch.wall_breached || wall >= limits.wall && !watch.stopped,
            stopped: watch.stopped,
            cpu,
            wall,
            ended,
            memory_peak_bytes: counted.memory_peak,
            memory_limit_reached: counted.oom_kills > 0
                || parked.began_with_more && counted.memory_peak > limits.memory_bytes
                || on_its_own
                    && signal == Some(libc::SIGKILL)
                    && counted.memory_peak >= limits.memory_bytes,
            processes_peak: counted.processes_peak,
            oom_kills: counted.oom_kills,
            outputs: Vec::new(),
        })
    }

    /// Waits until the main program has ended, a limit is reached, or the server requests a stop.
    fn watch(
        &self,
        place: &GuestEnvironment,
        limits: &ProgramLimits,
        parked: &ParkedProcess,
        began: Duration,
    ) -> Result<WaitEnd, StepFailure> {
        let mut watch = WaitEnd::default();
        let mut backing_off = parked.backing_off.as_ref();
        let mut check_in = check_interval(limits, Duration::ZERO, Duration::ZERO);
        loop {
            let watched = [self.control.as_fd(), self.lifeline, place.sigchld.as_fd()];
            let ready = sys::poll(&watched, Some(check_in)).step("wait for the program")?;
            let is_ready = |i: usize| ready.get(i).copied().unwrap_or(false);
            if is_ready(1) {
                // The sandbox dies with its spawner: the program's end that follows is not its own.
                return Err(StepFailure {
                    step: "go on without a spawner".to_owned(),
                    errno: libc::EPIPE,
                });
            }
            if is_ready(0) && self.must_stop(parked.child.pid) {
                watch.ended = reap(parked.child.pid)?;
                // A program that has ended by then was not stopped.
                watch.stopped = watch.ended.is_none();
                return Ok(watch);
            }
            if is_ready(2) {
                sys::drain_signals(place.sigchld.as_fd());
                watch.ended = reap(parked.child.pid)?;
                if watch.ended.is_some() {
                    return Ok(watch);
                }
            }
            let elapsed = now()?.saturating_sub(began);
            let used = self.cpu(parked.child.pid)?.saturating_sub(parked.cpu_before);
            watch.wall_breached = elapsed >= limits.wall;
            if watch.wall_breached || used >= limits.cpu || self.groups.oom_kills() > 0 {
                return Ok(watch);
            }
            if used >= TURN
                && let Some((file, share)) = backing_off.take()
            {
                sys::write_all(file.as_fd(), share).step("back off")?;
            }
            check_in = check_interval(limits, elapsed, used);
        }
    }

    /// Handles a message during a run: delivers the signal of a signal message. Returns whether the
    /// program must stop: the server requested it, or has died; then the report is not read either.
    fn must_stop(&self, leader: libc::pid_t) -> bool {
        let mut buf = [0u8; 16];
        let received = sys::receive(self.control.as_fd(), &mut buf);
        let n = received.map_or(0, |(n, _)| n);
        match buf.get(..n) {
            Some(&[to_guest::SIGNAL, signal]) => {
                // The group has ended already; the next look at SIGCHLD notices it.
                let _nobody_left = sys::signal_group(leader, signal.into());
                false
            }
            _ => true,
        }
    }

    /// Returns the CPU time so far: of all processes if groups count it, otherwise of the main one.
    fn cpu(&self, pid: libc::pid_t) -> Result<Duration, StepFailure> {
        if self.groups.counts_cpu() {
            return self.groups.cpu().step("read the CPU time");
        }
        // The clock of a process disappears with it; then the account of children has its time.
        Ok(sys::clock(KernelClock::ProcessCpu(pid)).unwrap_or(Duration::ZERO))
    }

    /// Opens the requested outputs, which can no longer change: all processes are dead.
    fn collect(
        &self,
        place: &GuestEnvironment,
        start: &StartMessage<'_>,
        report: &mut EndReport,
    ) -> Vec<OwnedFd> {
        if start.outputs.is_empty() {
            return Vec::new();
        }
        if let Some((_, user)) = self.users {
            sys::setfsids(user, user);
        }
        let mut opened = Vec::new();
        for path in &start.outputs {
            let result = CString::new(*path)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
                .and_then(|path| {
                    // Non-blocking, because opening a named pipe would wait for a writer.
                    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
                    sys::open_beneath(place.workspace.as_fd(), &path, flags, 0)
                })
                .and_then(|fd| sys::regular_file_size(fd.as_fd()).map(|_| fd));
            match result {
                Ok(fd) => {
                    report.outputs.push(0);
                    opened.push(fd);
                }
                Err(error) => report.outputs.push(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        if let Some((init, _)) = self.users {
            sys::setfsids(init, init);
        }
        opened
    }
}

/// A program inherits its init's signal dispositions, and the spawner ignores these.
fn reset_signals() -> Result<(), StepFailure> {
    [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
        .into_iter()
        .try_for_each(|signal| sys::default_signal(signal).step("reset signals"))
}

/// Returns the earliest time until a limit can be reached, if the program runs on every processor.
fn check_interval(limits: &ProgramLimits, elapsed: Duration, used: Duration) -> Duration {
    let until_cpu = limits.cpu.saturating_sub(used) / sys::cpus();
    let until_wall = limits.wall.saturating_sub(elapsed);
    // A wall limit is met exactly; a CPU limit is approached in shrinking steps.
    until_cpu.clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX).min(until_wall)
}

fn children_cpu() -> Result<Duration, StepFailure> {
    sys::children_cpu().step("read the CPU time")
}

fn now() -> Result<Duration, StepFailure> {
    sys::clock(KernelClock::Monotonic).step("read the clock")
}

/// Reaps all ended children; returns the end of the main program if it is one of them.
fn reap(main: libc::pid_t) -> Result<Option<ChildEnd>, StepFailure> {
    let mut found = None;
    loop {
        match sys::reap_any() {
            Ok(Some((pid, how))) if pid == main => found = Some(how),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(found),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(found),
            Err(error) => return Err(StepFailure::new("wait for the program", &error)),
        }
    }
}

fn wait_any() -> Result<Option<(libc::pid_t, ChildEnd)>, StepFailure> {
    match sys::wait_any() {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other.step("wait for the program"),
    }
}
