//! Turns a process in the session's control groups into a program, in two halves, as for commands.
//!
//! *Parking* is the part that needs privileges: control groups, and the policy of system calls.
//! *Release* is the part that needs the program: its streams, its identity, its limits, and
//! `execve`. In between, the process waits under the id of the guest init, so that no program sees
//! it or can send it a signal.
//!
//! Both only go forward: a step that fails is recorded in a shared page and ends the process.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::cgroup::UnlimitedResources;
use crate::codec::session::{ProcessEnd, SessionSandboxLimits, StartProgram};
use crate::codec::{self, MalformedMessage, MessageReader, MessageWriter, StreamSetup};
use crate::failure::StepFailure;
use crate::guest::{CAP_SETGID, CAP_SETUID, mask};
use crate::payload::{self, ExecProgram};
use crate::sys::{self, BpfInstruction, ChildEnd, FailurePage};

/// Largest message that releases a program: a frame, and the limits before it.
const RELEASE_BYTES_MAX: usize = codec::MESSAGE_BYTES_MAX + 64;
/// Capabilities of a parked process: to become the session's user.
const PARKED: u64 = mask(&[CAP_SETGID, CAP_SETUID]);

/// Exit code of a child whose program was never started; the note has the reason.
pub(super) const NOT_STARTED: c_int = 125;

/// Names of the steps, by their number in a note (from 1).
const STEPS: [&str; 12] = [
    "enter the control groups",
    "hide the control groups",
    "start a session",
    "give up privileges",
    "restrict system calls",
    "wait for the program",
    "connect the standard streams",
    "set resource limits",
    "give up the user id",
    "let signals through",
    DIRECTORY,
    EXECUTE,
];
const RELEASE: i32 = 6;
const DIRECTORY: &str = "enter the directory";
const EXECUTE: &str = "execute the program";

/// Context that every program of a session starts from.
#[derive(Debug)]
pub(super) struct ProgramContext {
    /// `tasks` of the version 1 groups to enter.
    pub(super) entrances: Vec<OwnedFd>,
    /// `cgroup.procs` of the version 2 group.
    pub(super) unified: Option<OwnedFd>,
    /// True if that group has limits, rather than only counting the processor and freezing.
    pub(super) has_unified_limits: bool,
    /// User and group to become.
    pub(super) user: Option<u32>,
    /// Resources that only per-process limits bound here.
    pub(super) unlimited: UnlimitedResources,
}

/// Control groups that a process must enter itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupEntry {
    /// None: it was forked by a process that is in all of them.
    Inherited,
    /// Groups of version 1: the process was started in the group of version 2.
    Version1,
    /// All groups.
    All,
}

/// Remaining steps of a process until it is parked.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParkingOrder<'a> {
    pub(super) groups: GroupEntry,
    /// True if it hides the control groups in a namespace that it sends to the guest init.
    pub(super) hide_groups: bool,
    /// The policy of system calls; None if the parent is already subject to it.
    pub(super) filter: Option<&'a [BpfInstruction]>,
}

impl ParkingOrder<'_> {
    /// Order for a child of the guest init, once the session is set up.
    pub(super) const BY_INIT: Self =
        ParkingOrder { groups: GroupEntry::All, hide_groups: false, filter: None };
    /// Order for a process that the fork server has started.
    pub(super) const BY_FORK_SERVER: Self =
        ParkingOrder { groups: GroupEntry::Inherited, hide_groups: false, filter: None };
}

/// Encodes the message that releases a parked process. If `in_file`, the last descriptor has the
/// whole frame and `frame` is only its beginning.
pub(super) fn release(limits: &SessionSandboxLimits, in_file: bool, frame: &[u8]) -> Vec<u8> {
    limits.write(MessageWriter::new(in_file.into())).bytes(frame).finish()
}

impl ProgramContext {
    /// Parks, waits and becomes the program. Returns only if a step has failed, with the exit code.
    pub(super) fn become_program(
        &self,
        parking: ParkingOrder<'_>,
        socket: &OwnedFd,
        note: &FailurePage,
    ) -> c_int {
        let mut step = 0;
        let Err(error) =
            self.park(parking, socket, &mut step).and_then(|()| self.release(socket, &mut step));
        note.set(step, error.raw_os_error().unwrap_or(libc::EINVAL));
        NOT_STARTED
    }

    /// Runs the first half; `step` is the number of the current step.
    pub(super) fn park(
        &self,
        parking: ParkingOrder<'_>,
        socket: &OwnedFd,
        step: &mut i32,
    ) -> io::Result<()> {
        let mut attempt = |f: &dyn Fn() -> io::Result<()>| {
            *step += 1;
            f()
        };
        // First of all, so that all later steps are accounted and limited.
        attempt(&|| match parking.groups {
            GroupEntry::Inherited => Ok(()),
            GroupEntry::Version1 => self.enter_groups(false),
            GroupEntry::All => self.enter_groups(true),
        })?;
        attempt(&|| if parking.hide_groups { hide_groups(socket) } else { Ok(()) })?;
        attempt(&sys::setsid)?;
        attempt(&|| {
            only(socket)?;
            sys::set_capabilities(PARKED)
        })?;
        attempt(&|| {
            let Some(filter) = parking.filter else { return Ok(()) };
            sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
            sys::set_seccomp(filter)
        })
    }

    /// Runs the second half.
    fn release(&self, socket: &OwnedFd, step: &mut i32) -> io::Result<std::convert::Infallible> {
        *step = RELEASE;
        let (buf, fds) = wait(socket)?;
        let (limits, start) = read(&buf)?;
        let mut attempt = |f: &dyn Fn() -> io::Result<()>| {
            *step += 1;
            f()
        };
        attempt(&|| connect(start.streams, &fds))?;
        attempt(&|| self.set_limits(&limits))?;
        attempt(&|| self.become_user())?;
        attempt(&sys::unblock_signals)?;
        // With the user's rights, because the user may not be allowed to enter it.
        attempt(&|| std::env::set_current_dir("/workspace").and_then(|()| enter(start.directory)))?;
        attempt(&|| ExecProgram::of(&start.argv, &start.env).and_then(|it| Err(it.execute())))?;
        Err(io::Error::from_raw_os_error(libc::ENOEXEC))
    }

    /// Enters the groups of the session.
    fn enter_groups(&self, also_unified: bool) -> io::Result<()> {
        let unified = self.unified.iter().filter(|_| also_unified);
        let mut all = self.entrances.iter().chain(unified);
        all.try_for_each(|fd| sys::write_all(fd.as_fd(), b"0"))
    }

    /// Becomes the file helper: takes the user's id for file accesses only, so that no program can
    /// send it a signal, and closes all other descriptors.
    pub(super) fn become_helper(&self, socket: &OwnedFd) -> io::Result<()> {
        // If the version 2 group only freezes, the helper stays out of it, so that it answers while
        // programs are frozen.
        self.enter_groups(self.has_unified_limits)?;
        only(socket)?;
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
        sys::setresuid(user)?;
        sys::set_capabilities(0)
    }

    fn set_limits(&self, limits: &SessionSandboxLimits) -> io::Result<()> {
        payload::set_common_limits()?;
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

/// Makes the groups of this process the visible root, and sends that namespace to the guest init: a
/// namespace is rooted at the groups of its creator, and the guest init is not in them.
fn hide_groups(socket: &OwnedFd) -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWCGROUP)?;
    let namespace = sys::open(c"/proc/self/ns/cgroup", libc::O_RDONLY)?;
    sys::send(socket.as_fd(), &[0], &[namespace.as_fd()])
}

/// Closes all descriptors but this one and the standard ones: a copy of the guest init's
/// descriptors would hide its end from others.
fn only(socket: &OwnedFd) -> io::Result<()> {
    let number = socket.as_raw_fd().cast_unsigned();
    sys::close_inherited(3, number - 1)?;
    sys::close_inherited(number + 1, u32::MAX)
}

/// Waits for the message that releases this process. Returns it with the complete frame.
fn wait(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buf = vec![0u8; RELEASE_BYTES_MAX];
    let (n, mut fds) = sys::receive(socket.as_fd(), &mut buf)?;
    buf.truncate(n);
    if buf.first() == Some(&1) {
        let file = fds.pop().ok_or_else(malformed)?;
        let limits = SessionSandboxLimits::read(&mut MessageReader(buf.get(1..).unwrap_or(&[])));
        let limits = limits.map_err(io::Error::other)?;
        buf = release(&limits, false, &sys::read_file(file.as_fd())?);
    }
    Ok((buf, fds))
}

fn read(message: &[u8]) -> io::Result<(SessionSandboxLimits, StartProgram<'_>)> {
    let read = || -> Result<_, MalformedMessage> {
        let mut r = MessageReader(message.get(1..).unwrap_or(&[]));
        let limits = SessionSandboxLimits::read(&mut r)?;
        let mut frame = MessageReader(r.bytes()?);
        // Skips the kind and the id.
        frame.u8()?;
        frame.u64()?;
        Ok((limits, StartProgram::decode(&mut frame)?))
    };
    read().map_err(|_| malformed())
}

fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

fn enter(directory: &[u8]) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    if directory.is_empty() {
        return Ok(());
    }
    // Returns an error for a path with a NUL.
    std::env::set_current_dir(std::ffi::OsStr::from_bytes(directory))
}

/// Gives the program its standard streams, and no other descriptors.
fn connect(streams: StreamSetup, fds: &[OwnedFd]) -> io::Result<()> {
    let missing = || io::Error::from_raw_os_error(libc::EBADF);
    let mut descriptors = fds.iter().map(AsFd::as_fd);
    let mut next = || descriptors.next().ok_or_else(missing);
    match streams {
        StreamSetup::Given { merged, has_stdin } => {
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
        StreamSetup::Terminal(_) => {
            let terminal = next()?;
            sys::take_terminal(terminal)?;
            for target in 0..=2 {
                sys::dup_onto(terminal, target)?;
            }
        }
        StreamSetup::Waiting => return Err(missing()),
    }
    sys::cloexec_from(3)
}

/// Returns the end of a program, or the reason why it was not started.
pub(super) fn end(how: ChildEnd, note: &FailurePage) -> ProcessEnd {
    let mut end = ProcessEnd::default();
    match how {
        ChildEnd::Code(code) => end.code = Some(code),
        ChildEnd::Signal(signal) => end.signal = Some(signal),
    }
    let Some((step, errno)) = note.take() else { return end };
    end.code = None;
    let name = usize::try_from(step - 1).ok().and_then(|i| STEPS.get(i)).copied();
    match name {
        Some(DIRECTORY) => end.directory_errno = Some(errno),
        Some(EXECUTE) => end.exec_errno = Some(errno),
        name => {
            let step = name.unwrap_or("start the program").to_owned();
            end.failure = Some(StepFailure { step, errno });
        }
    }
    end
}
