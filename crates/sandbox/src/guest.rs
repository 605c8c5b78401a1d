//! The guest init: pid 1 of a sandbox.
//!
//! A copy of the spawner in fresh namespaces. It finishes the sandbox (mounts, host name, identity),
//! says that it is ready, and waits. On request it places files, sets limits, starts a program,
//! supervises it, ends everything that the program left, and reports. It runs under a user id that no
//! program has, cannot be traced or signalled by one, reads nothing that one wrote except the files
//! that are asked for, and gives up its privileges as soon as the last program has started.
//!
//! When its server or its spawner is gone, it ends, and the kernel ends everything in its pid
//! namespace with it.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::cgroup::{self, Groups, Role};
use crate::codec::{self, Reader, Report, Start, from_guest, to_guest};
use crate::failure::{Failure, Step};
use crate::landlock;
use crate::payload::{self, Payload};
use crate::spec::{Limits, Profile};
use crate::sys::{self, Clock, Ended, FailurePage};

// linux/capability.h
const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_LAST: u32 = 63;

const fn mask(capabilities: &[u32]) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < capabilities.len() {
        mask |= 1 << capabilities[i];
        i += 1;
    }
    mask
}

/// While further programs may start: mounts, control groups, limits, identities.
const SETTING_UP: u64 = mask(&[
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
    CAP_SYS_ADMIN,
    CAP_SYS_RESOURCE,
]);
/// After the last has started: end its processes, and read its files as the user that it was.
const SUPERVISING: u64 = mask(&[CAP_KILL, CAP_SETGID, CAP_SETUID]);

/// Shortest time between two looks at the CPU account. Bounds both the overshoot and the cost.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Longest: a process killed for lack of memory is noticed at the next look.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Mode of a directory that a file's path needs.
const DIRECTORY_MODE: u32 = 0o755;

/// What a guest init is given by its spawner.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    pub(crate) spawner: u32,
    pub(crate) sandbox: u64,
    /// Connection to the server.
    pub(crate) control: OwnedFd,
    /// Hung up when the spawner has ended.
    pub(crate) lifeline: BorrowedFd<'a>,
    pub(crate) netns: BorrowedFd<'a>,
    /// The host's `/proc`, for the one file that is written before there is an own one.
    pub(crate) host_proc: BorrowedFd<'a>,
    pub(crate) parents: &'a [(Role, OwnedFd)],
    pub(crate) unified_limits: bool,
    /// Groups of the first command, made ahead; none where there are no control groups.
    pub(crate) groups: Groups,
    /// User ids of the init and of its programs; `None` where there is only one (rootless).
    pub(crate) users: Option<(u32, u32)>,
    /// Ready-made filters by profile: run, compile.
    pub(crate) filters: [&'a [sys::BpfInstruction]; 2],
    pub(crate) landlock: bool,
}

/// What the guest init has set up and goes on to use.
#[derive(Debug)]
struct Place {
    /// The root of the file system for everything writable; hidden behind `/workspace`.
    scratch: OwnedFd,
    workspace: OwnedFd,
    sigchld: OwnedFd,
    landlock: Option<OwnedFd>,
    page: FailurePage,
}

/// Body of the process. Never returns to the spawner's code.
pub(crate) fn main(guest: Guest<'_>) -> c_int {
    match guest.set_up() {
        Ok(place) => guest.serve(&place),
        Err(failure) => {
            guest.tell(&failure.encode(from_guest::FAILED), &[]);
            1
        }
    }
}

impl Guest<'_> {
    /// Sends a message to the server. When it is gone, so are we at the next look at the socket.
    fn tell(&self, message: &[u8], fds: &[BorrowedFd<'_>]) {
        let _gone = sys::send(self.control.as_fd(), message, fds);
    }

    // ---- setting up ----------------------------------------------------------------------------

    fn set_up(&self) -> Result<Place, Failure> {
        sys::set_name(c"cove-init").step("name the guest init")?;
        // Set again below: a change of user id clears it. The lifeline covers the time between.
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
            .step("tie to the spawner")?;
        self.close_foreign_descriptors().step("close the spawner's descriptors")?;
        self.volunteer_for_oom();
        sys::setns(self.netns, libc::CLONE_NEWNET).step("enter the network namespace")?;
        sys::sethostname("sandbox").step("set the host name")?;
        let scratch = mount_all(self.users.map(|(_, user)| user))?;
        let workspace =
            sys::open(c"/workspace", libc::O_PATH | libc::O_DIRECTORY).step("open /workspace")?;
        let landlock = if self.landlock {
            Some(landlock::ruleset().step("prepare the file system restriction")?)
        } else {
            None
        };
        let sigchld = sys::sigchld_fd().step("watch for children")?;
        let page = FailurePage::new().step("share a page with programs")?;
        self.lower_privileges()?;
        // The host's /proc and the namespace have served; the init goes on without a way to either.
        for fd in [self.host_proc, self.netns] {
            let number = fd.as_raw_fd().cast_unsigned();
            sys::close_inherited(number, number).step("close the host's /proc")?;
        }
        Ok(Place { scratch, workspace, sigchld, landlock, page })
    }

    /// The spawner's socket above all: while a copy is open, its end goes unnoticed.
    fn close_foreign_descriptors(&self) -> io::Result<()> {
        let mut keep: Vec<RawFd> = vec![
            self.control.as_raw_fd(),
            self.lifeline.as_raw_fd(),
            self.netns.as_raw_fd(),
            self.host_proc.as_raw_fd(),
        ];
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

    /// When the host runs out of memory, sandboxes go before the server. Best effort by nature: an
    /// unprivileged user may not have the file.
    fn volunteer_for_oom(&self) {
        let file = sys::openat(self.host_proc, c"self/oom_score_adj", libc::O_WRONLY, 0);
        let _best_effort = file.and_then(|fd| sys::write_all(fd.as_fd(), b"1000"));
    }

    fn lower_privileges(&self) -> Result<(), Failure> {
        for capability in 0..=CAP_LAST {
            // Fails with EINVAL beyond the last one that this kernel has.
            if sys::prctl(libc::PR_CAPBSET_DROP, capability.into()).is_err() {
                break;
            }
        }
        if let Some((init, _)) = self.users {
            sys::clear_groups().step("give up groups")?;
            sys::setresgid(init).step("become the init's group")?;
            sys::prctl(libc::PR_SET_KEEPCAPS, 1).step("keep capabilities")?;
            sys::setresuid(init).step("become the init's user")?;
        }
        // A server may itself have been started with fewer, in a container above all.
        let permitted = sys::capabilities().step("read capabilities")?;
        sys::set_capabilities(SETTING_UP & permitted).step("lower capabilities")?;
        sys::prctl(libc::PR_SET_DUMPABLE, 0).step("refuse to be traced")?;
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
            .step("tie to the spawner")
    }

    // ---- serving -------------------------------------------------------------------------------

    fn serve(mut self, place: &Place) -> c_int {
        self.tell(&[from_guest::READY], &[]);
        let mut buf = vec![0u8; codec::INLINE_BYTES_MAX + 1024];
        let mut command = 0;
        loop {
            let Ok((n, fds)) = self.next_message(&mut buf) else { return 0 };
            if n == 0 {
                return 0;
            }
            let message = buf.get(..n).unwrap_or(&[]);
            let result = self.handle(place, message, fds, command);
            match result {
                Ok(more) => {
                    command += 1;
                    if !more {
                        return 0;
                    }
                }
                Err(failure) => {
                    self.tell(&failure.encode(from_guest::FAILED), &[]);
                    return 1;
                }
            }
        }
    }

    /// The next message of the server; end of file also when the spawner is gone.
    fn next_message(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        loop {
            let ready = sys::poll(&[self.control.as_fd(), self.lifeline], None)?;
            match ready.as_slice() {
                [_, true] => return Ok((0, Vec::new())),
                [true, _] => return sys::receive(self.control.as_fd(), buf),
                _ => {}
            }
        }
    }

    /// Whether further messages may come.
    fn handle(
        &mut self,
        place: &Place,
        message: &[u8],
        mut fds: Vec<OwnedFd>,
        command: u32,
    ) -> Result<bool, Failure> {
        match message.first() {
            // The command that it was for has ended on its own meanwhile.
            Some(&to_guest::STOP) => Ok(true),
            Some(&to_guest::START) => {
                let start = Start::decode(&mut Reader(message.get(1..).unwrap_or(&[])))?;
                self.command(place, &start, fds, command)
            }
            Some(&to_guest::START_IN_FILE) => {
                let file = fds.pop().ok_or(codec::Malformed)?;
                let content = read_file(file.as_fd()).step("read the command")?;
                let start = Start::decode(&mut Reader(content.get(1..).unwrap_or(&[])))?;
                self.command(place, &start, fds, command)
            }
            _ => Err(codec::Malformed.into()),
        }
    }

    /// Runs one command from its start to its report.
    fn command(
        &mut self,
        place: &Place,
        start: &Start<'_>,
        fds: Vec<OwnedFd>,
        command: u32,
    ) -> Result<bool, Failure> {
        if command > 0 {
            self.renew(place, command)?;
        }
        set_disk_limits(place, &start.limits, command > 0)?;
        if !self.groups.is_empty() {
            self.groups
                .set_limits(start.limits.memory_bytes, start.limits.processes)
                .step("set the limits of the control groups")?;
        }
        if let Err(failure) = self.place_files(place, &start.files) {
            self.tell(&failure.encode(from_guest::FILE), &[]);
            return Ok(!start.last);
        }
        let began = now()?;
        let child = self.start(place, start, fds)?;
        if start.last {
            sys::set_capabilities(SUPERVISING).step("give up privileges")?;
        }
        let mut report = self.supervise(place, start, &child, began)?;
        match place.page.take() {
            Some((step, errno)) => {
                match payload::STEPS.get(usize::try_from(step - 1).unwrap_or(usize::MAX)) {
                    Some(&payload::EXECUTE) => {
                        report.exec_errno = Some(errno);
                        report.code = None;
                    }
                    name => {
                        let step = (*name.unwrap_or(&"start the program")).to_owned();
                        return Err(Failure { step, errno });
                    }
                }
            }
            None => {}
        }
        let outputs = self.collect(place, start, &mut report);
        let handles: Vec<BorrowedFd<'_>> = outputs.iter().map(AsFd::as_fd).collect();
        self.tell(&report.encode(), &handles);
        Ok(!start.last)
    }

    /// Makes everything but the workspace fresh for another command.
    fn renew(&mut self, place: &Place, command: u32) -> Result<(), Failure> {
        sys::unshare(libc::CLONE_NEWIPC).step("renew the ipc namespace")?;
        bind_writable(place.scratch.as_fd(), command, self.users.map(|(_, user)| user))?;
        if !self.groups.is_empty() {
            let name = cgroup::group_name(self.spawner, self.sandbox, command);
            self.groups = Groups::create(self.parents, self.unified_limits, &name)
                .step("make the control groups of the command")?;
        }
        Ok(())
    }

    fn place_files(&self, place: &Place, files: &[(&[u8], bool, &[u8])]) -> Result<(), Failure> {
        if files.is_empty() {
            return Ok(());
        }
        // As the program's user: the files are its own, and no privilege of ours takes part.
        if let Some((init, user)) = self.users {
            sys::setfsids(user, user);
            let result = place_files(place.workspace.as_fd(), files);
            sys::setfsids(init, init);
            return result;
        }
        place_files(place.workspace.as_fd(), files)
    }

    fn start(
        &self,
        place: &Place,
        start: &Start<'_>,
        fds: Vec<OwnedFd>,
    ) -> Result<sys::Child, Failure> {
        let mut fds = fds.into_iter();
        let (Some(stdout), Some(stderr)) = (fds.next(), fds.next()) else {
            return Err(codec::Malformed.into());
        };
        let stdin = match fds.next() {
            Some(fd) if start.has_stdin => fd,
            _ => sys::open(c"/dev/null", libc::O_RDONLY).step("open /dev/null")?,
        };
        if let Some((_, user)) = self.users {
            // So that the program may open its own /dev/stdout: pipes have an owner, too.
            for fd in [&stdout, &stderr].into_iter().chain(start.has_stdin.then_some(&stdin)) {
                sys::fchown(fd.as_fd(), user, user).step("own the standard streams")?;
            }
        }
        let strings = |list: &[&[u8]]| -> Result<sys::CStringArray, Failure> {
            let strings: Result<Vec<CString>, _> = list.iter().map(|s| CString::new(*s)).collect();
            Ok(sys::CStringArray::new(strings.map_err(|_| codec::Malformed)?))
        };
        let program = CString::new(*start.argv.first().ok_or(codec::Malformed)?)
            .map_err(|_| codec::Malformed)?;
        let entrances = self.groups.entrances().step("open the control groups")?;
        let payload = Payload {
            entrances: &entrances,
            hide_groups: !self.groups.is_empty(),
            stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            limits: start.limits,
            bound_data: !self.groups.limits_memory(),
            user: self.users.map(|(_, user)| user),
            landlock: place.landlock.as_ref().map(AsFd::as_fd),
            filter: match start.profile {
                Profile::Run => self.filters[0],
                Profile::Compile => self.filters[1],
            },
            program: &program,
            argv: &strings(&start.argv)?,
            env: &strings(&start.env)?,
            path: payload::path_of(&start.env),
        };
        sys::fork(0, self.groups.unified(), || payload.become_program(&place.page))
            .step("start a process for the program")
    }

    // ---- supervising ---------------------------------------------------------------------------

    /// Waits until the program has ended or must end, ends what is left, and measures.
    fn supervise(
        &self,
        place: &Place,
        start: &Start<'_>,
        child: &sys::Child,
        began: Duration,
    ) -> Result<Report, Failure> {
        let limits = &start.limits;
        let mut report = Report::default();
        let mut ended = None;
        let mut look_in = look_interval(limits, Duration::ZERO, Duration::ZERO);
        let mut stopped = false;
        while ended.is_none() {
            let watched = [self.control.as_fd(), self.lifeline, place.sigchld.as_fd()];
            let ready = sys::poll(&watched, Some(look_in)).step("wait for the program")?;
            let is_ready = |i: usize| ready.get(i).copied().unwrap_or(false);
            if is_ready(0) || is_ready(1) {
                // Told to stop, or nobody is left who would: the next read of the socket tells which.
                stopped = true;
                if is_ready(0) {
                    let _message = sys::receive(self.control.as_fd(), &mut [0u8; 16]);
                }
                break;
            }
            if is_ready(2) {
                sys::drain_signals(place.sigchld.as_fd());
                ended = reap(child.pid)?;
                if ended.is_some() {
                    break;
                }
            }
            let elapsed = now()?.saturating_sub(began);
            let used = self.cpu(child.pid)?;
            report.wall_breached = elapsed >= limits.wall;
            if report.wall_breached || used >= limits.cpu || self.groups.oom_kills() > 0 {
                break;
            }
            look_in = look_interval(limits, elapsed, used);
        }
        // Read before the rest is killed, so that killing takes no part in it.
        report.wall = now()?.saturating_sub(began);
        let last_cpu = if self.groups.counts_cpu() { None } else { Some(self.cpu(child.pid)?) };
        let on_its_own = ended.is_some();
        sys::kill_all_others().or_else(ignore_none).step("end what the program left")?;
        while let Some((pid, how)) = wait_any()? {
            if pid == child.pid {
                ended = Some(how);
            }
        }
        report.cpu = match last_cpu {
            None => self.cpu(child.pid)?,
            Some(main) => main.max(sys::children_cpu().step("read the CPU time")?),
        };
        report.wall_breached |= report.wall >= limits.wall && !stopped;
        report.cpu_breached = report.cpu >= limits.cpu;
        match ended {
            Some(Ended::Code(code)) => report.code = Some(code),
            Some(Ended::Signal(signal)) => report.signal = Some(signal),
            None => {
                return Err(Failure {
                    step: "wait for the program".to_owned(),
                    errno: libc::ECHILD,
                });
            }
        }
        let counted = self.groups.counted();
        report.memory_peak_bytes = counted.memory_peak;
        report.processes_peak = counted.processes_peak;
        report.oom_kills = counted.oom_kills;
        report.memory_limit_reached = counted.oom_kills > 0
            || on_its_own
                && report.signal == Some(libc::SIGKILL)
                && counted.memory_peak >= limits.memory_bytes;
        Ok(report)
    }

    /// CPU time so far: of all processes where it is counted, else of the main one.
    fn cpu(&self, pid: libc::pid_t) -> Result<Duration, Failure> {
        if self.groups.counts_cpu() {
            return self.groups.cpu().step("read the CPU time");
        }
        // The clock of a process is gone with it; then the children's account has it.
        Ok(sys::clock(Clock::ProcessCpu(pid)).unwrap_or(Duration::ZERO))
    }

    /// Opens the outputs that were asked for: nobody is left who could change them meanwhile.
    fn collect(&self, place: &Place, start: &Start<'_>, report: &mut Report) -> Vec<OwnedFd> {
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
                    // Non-blocking, because a named pipe would wait for a writer.
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

/// When the next limit can be reached at the earliest, if everything runs on every processor.
fn look_interval(limits: &Limits, elapsed: Duration, used: Duration) -> Duration {
    let until_cpu = limits.cpu.saturating_sub(used) / sys::cpus();
    let until_wall = limits.wall.saturating_sub(elapsed);
    // A wall limit is met exactly; a CPU limit is approached in steps that shrink.
    until_cpu.clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX).min(until_wall)
}

fn now() -> Result<Duration, Failure> {
    sys::clock(Clock::Monotonic).step("read the clock")
}

/// Reaps whatever has ended; tells how the main program ended if it was among that.
fn reap(main: libc::pid_t) -> Result<Option<Ended>, Failure> {
    let mut found = None;
    loop {
        match sys::reap_any() {
            Ok(Some((pid, how))) if pid == main => found = Some(how),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(found),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(found),
            Err(error) => return Err(Failure::new("wait for the program", &error)),
        }
    }
}

fn wait_any() -> Result<Option<(libc::pid_t, Ended)>, Failure> {
    match sys::wait_any() {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other.step("wait for the program"),
    }
}

/// Nobody left to kill is what we want.
fn ignore_none(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

fn read_file(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = usize::try_from(sys::regular_file_size(fd)?).unwrap_or(usize::MAX);
    let mut content = vec![0; size];
    let mut done = 0;
    while done < size {
        let n = sys::pread(fd, content.get_mut(done..).unwrap_or(&mut []), done as u64)?;
        if n == 0 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        done += n;
    }
    Ok(content)
}

// ---- mounts ------------------------------------------------------------------------------------

/// Mounts what is fresh in every sandbox: `/proc` and everything writable. Returns the scratch root.
fn mount_all(user: Option<u32>) -> Result<OwnedFd, Failure> {
    let locked_down = libc::MS_NOSUID | libc::MS_NODEV;
    // Only the processes of this pid namespace, nothing about the kernel, and nobody else's.
    sys::mount(
        Some(c"proc"),
        c"/proc",
        Some(c"proc"),
        locked_down | libc::MS_NOEXEC | libc::MS_RDONLY,
        Some(c"subset=pid,hidepid=invisible"),
    )
    .step("mount /proc")?;
    let options = disk_options(Limits::default().disk_bytes, Limits::default().disk_inodes);
    sys::mount(Some(c"scratch"), c"/workspace", Some(c"tmpfs"), locked_down, Some(&options))
        .step("mount the scratch file system")?;
    let scratch = sys::open(c"/workspace", libc::O_RDONLY | libc::O_DIRECTORY)
        .step("open the scratch file system")?;
    bind_writable(scratch.as_fd(), 0, user)?;
    make_and_bind(scratch.as_fd(), c"workspace", c"/workspace", 0o755, user)?;
    Ok(scratch)
}

/// Puts fresh directories of the scratch file system at `/tmp`, `/dev/shm` and `/home/user`.
fn bind_writable(scratch: BorrowedFd<'_>, command: u32, user: Option<u32>) -> Result<(), Failure> {
    for (kind, target, mode) in
        [("tmp", c"/tmp", 0o1777), ("shm", c"/dev/shm", 0o1777), ("home", c"/home/user", 0o755)]
    {
        let name = CString::new(format!("{kind}{command}")).map_err(|_| codec::Malformed)?;
        make_and_bind(scratch, &name, target, mode, user)?;
    }
    Ok(())
}

/// One directory on one file system for each writable place, so that one limit holds for all.
fn make_and_bind(
    scratch: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    target: &std::ffi::CStr,
    mode: u32,
    user: Option<u32>,
) -> Result<(), Failure> {
    sys::mkdirat(scratch, name, mode).step("make a writable directory")?;
    let dir = sys::openat(scratch, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
        .step("open a writable directory")?;
    sys::fchmod(dir.as_fd(), mode).step("open up a writable directory")?;
    if let Some(user) = user {
        sys::fchown(dir.as_fd(), user, user).step("hand over a writable directory")?;
    }
    let source =
        CString::new(format!("/proc/self/fd/{}", dir.as_raw_fd())).map_err(|_| codec::Malformed)?;
    sys::mount(Some(&source), target, None, libc::MS_BIND, None).step("show a writable directory")
}

fn disk_options(bytes: u64, inodes: u64) -> CString {
    CString::new(format!("size={bytes},nr_inodes={inodes},mode=700")).unwrap_or_default()
}

/// Directories that Cove itself makes for each command; not charged to the program.
const OWN_INODES: u64 = 8;

/// Sets how much the program may store, beyond what an earlier command of the sandbox has left.
fn set_disk_limits(place: &Place, limits: &Limits, has_predecessor: bool) -> Result<(), Failure> {
    let (bytes, inodes) = if has_predecessor {
        sys::usage(place.scratch.as_fd()).step("measure the scratch file system")?
    } else {
        (0, 0)
    };
    let options = disk_options(
        limits.disk_bytes.saturating_add(bytes),
        limits.disk_inodes.saturating_add(inodes).saturating_add(OWN_INODES),
    );
    let flags = libc::MS_REMOUNT | libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(None, c"/workspace", None, flags, Some(&options)).step("set the disk limits")
}

/// Places files below a directory, making the directories that their paths need.
fn place_files(root: BorrowedFd<'_>, files: &[(&[u8], bool, &[u8])]) -> Result<(), Failure> {
    for (path, executable, content) in files {
        let step = || format!("place the file `{}`", String::from_utf8_lossy(path));
        let mut dir: Option<OwnedFd> = None;
        let (parents, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => (path.get(..at).unwrap_or(&[]), path.get(at + 1..).unwrap_or(&[])),
            None => (&[][..], *path),
        };
        for part in parents.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
            let part = CString::new(part).map_err(|_| codec::Malformed)?;
            let here = dir.as_ref().map_or(root, AsFd::as_fd);
            match sys::mkdirat(here, &part, DIRECTORY_MODE) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Failure::new(&step(), &error));
                }
                _ => {}
            }
            let next =
                sys::open_beneath(here, &part, libc::O_PATH | libc::O_DIRECTORY, 0).step(&step())?;
            dir = Some(next);
        }
        let name = CString::new(name).map_err(|_| codec::Malformed)?;
        let here = dir.as_ref().map_or(root, AsFd::as_fd);
        let mode = if *executable { 0o755 } else { 0o644 };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let file = sys::open_beneath(here, &name, flags, mode).step(&step())?;
        sys::write_all(file.as_fd(), content).step(&step())?;
    }
    Ok(())
}
