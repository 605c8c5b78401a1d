//! The guest init's part of warm runtimes: parks one in the sandbox, and releases it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{GuestEnvironment, GuestSetup, ParkedProcess, children_cpu};
use crate::codec::{self, StartMessage, StreamSetup};
use crate::failure::{FailureContext, StepFailure};
use crate::payload::{self, NotStarted, ParkingPlan, WarmRuntimePlan};
use crate::spec::{ProgramLimits, WarmRuntime};
use crate::sys;
use crate::warm::{NOT_PARKED, PARKED, RELEASE_IN_FILE, RuntimeRelease};

/// Bits of a request: hide the control groups, restrict the file system, change to a user.
const HIDE_GROUPS: u32 = 1;
const RESTRICT_FILES: u32 = 2;
const BECOME_USER: u32 = 4;
/// The sandbox has a loopback.
const CONNECTED: u32 = 8;
/// Namespaces of a sandbox that a copy enters, the pid namespace first.
const NAMESPACES: [&std::ffi::CStr; 5] = [
    c"/proc/self/ns/pid",
    c"/proc/self/ns/mnt",
    c"/proc/self/ns/ipc",
    c"/proc/self/ns/uts",
    c"/proc/self/ns/net",
];

/// CPU time that a runtime may use before its program arrives, in addition to the program's.
const START_CPU: Duration = Duration::from_secs(10);

/// A runtime that will wait in a sandbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRuntime<'a> {
    pub(crate) runtime: &'a WarmRuntime,
    /// Index of the runtime.
    pub(crate) index: usize,
    /// Socket for requests of a copy; None if the runtime is started in each sandbox.
    pub(crate) zygote: Option<BorrowedFd<'a>>,
}

impl GuestSetup<'_> {
    /// Parks the runtime in this sandbox. Also returns the server's ends of the streams that were
    /// created for it: input, output, errors; empty if they come with the command.
    pub(super) fn park_warm(
        &self,
        place: &GuestEnvironment,
        waiting: &WaitingRuntime<'_>,
    ) -> Result<(ParkedProcess, Vec<OwnedFd>), StepFailure> {
        match waiting.zygote {
            Some(zygote) => Ok((self.park_copy(place, zygote)?, Vec::new())),
            None => self.park_started(place, waiting),
        }
    }

    /// Requests a copy of the zygote, which enters this sandbox and waits.
    fn park_copy(
        &self,
        place: &GuestEnvironment,
        zygote: BorrowedFd<'_>,
    ) -> Result<ParkedProcess, StepFailure> {
        let entrances = self.groups.all_entrances().step("open the control groups")?;
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let mut namespaces = Vec::with_capacity(NAMESPACES.len());
        for path in NAMESPACES {
            namespaces.push(sys::open(path, libc::O_RDONLY).step("open a namespace")?);
        }
        let flag = |bit: u32, is_set: bool| if is_set { bit } else { 0 };
        let flags = flag(HIDE_GROUPS, !self.groups.is_empty())
            | flag(RESTRICT_FILES, place.landlock.is_some())
            | flag(BECOME_USER, self.users.is_some())
            | flag(CONNECTED, self.has_loopback);
        let (init, user) = self.users.unwrap_or_default();
        let request = [flags, init, user, u32::try_from(NAMESPACES.len()).unwrap_or(0)];
        let request: Vec<u8> = request.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut fds = vec![theirs.as_fd()];
        fds.extend(namespaces.iter().map(AsFd::as_fd));
        fds.extend(place.landlock.iter().map(AsFd::as_fd));
        fds.extend(entrances.iter().map(AsFd::as_fd));
        sys::send(zygote, &request, &fds).step("ask for a runtime")?;
        drop((theirs, namespaces, entrances));
        let pid = parked_pid(&ours)?;
        let child = sys::adopted_child(pid).step("watch a runtime")?;
        // This sandbox must not request another copy.
        let number = zygote.as_raw_fd().cast_unsigned();
        sys::close_inherited(number, number).step("close the way to the zygote")?;
        self.parked(child, ours)
    }

    /// Starts the runtime in this sandbox, and waits until it is parked.
    fn park_started(
        &self,
        place: &GuestEnvironment,
        waiting: &WaitingRuntime<'_>,
    ) -> Result<(ParkedProcess, Vec<OwnedFd>), StepFailure> {
        let limits = waiting.runtime.limits;
        if !self.groups.is_empty() {
            self.groups
                .set_limits(limits.memory_bytes, limits.processes)
                .step("set the limits of the control groups")?;
        }
        let entrances = self.groups.entrances().step("open the control groups")?;
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let [input, output, errors] = [sys::pipe(), sys::pipe(), sys::pipe()];
        let step = "make a stream";
        let (input, output, errors) = (input.step(step)?, output.step(step)?, errors.step(step)?);
        for fd in [&input.0, &output.1, &errors.1] {
            // Lets the program open its own /dev/stdout.
            sys::fchmod(fd.as_fd(), 0o666).step(step)?;
        }
        let parking = ParkingPlan {
            entrances: &entrances,
            hide_groups: !self.groups.is_empty(),
            unlimited: self.groups.unlimited(),
            user: self.users.map(|(_, user)| user),
            workdir: place.workspace.as_fd(),
            landlock: place.landlock.as_ref().map(AsFd::as_fd),
            filter: self.filters.of(self.holder()),
        };
        let (argv, env) = waiting.runtime.start(waiting.index);
        let runtime = WarmRuntimePlan {
            argv,
            env,
            limits: ProgramLimits { cpu: limits.cpu.saturating_add(START_CPU), ..limits },
            streams: [input.0.as_fd(), output.1.as_fd(), errors.1.as_fd()],
            socket: theirs.as_fd(),
        };
        let child =
            sys::fork(0, self.groups.unified(), || parking.become_runtime(&runtime, &place.page))
                .step("start a runtime")?;
        drop(theirs);
        let (n, _) = sys::receive(ours.as_fd(), &mut [0u8; 16]).step("wait for a runtime")?;
        if n == 0 {
            return Err(match NotStarted::from_page(&place.page) {
                Some(NotStarted::Step(step, errno)) => StepFailure { step: step.to_owned(), errno },
                Some(NotStarted::Program(errno)) => {
                    StepFailure { step: "execute a runtime".to_owned(), errno }
                }
                None => StepFailure { step: "wait for a runtime".to_owned(), errno: libc::EPIPE },
            });
        }
        Ok((self.parked(child, ours)?, vec![input.1, output.0, errors.0]))
    }

    fn parked(
        &self,
        child: sys::ForkedChild,
        socket: OwnedFd,
    ) -> Result<ParkedProcess, StepFailure> {
        Ok(ParkedProcess {
            holder: self.holder(),
            warm: true,
            cpu_before: self.cpu(child.pid)?,
            children_before: children_cpu()?,
            backing_off: self.groups.backing_off().step("open the share of the processor")?,
            child,
            socket,
            began_with_more: false,
        })
    }

    /// Releases a parked runtime to run its program.
    pub(super) fn release_warm(
        &self,
        parked: &ParkedProcess,
        start: &StartMessage<'_>,
        fds: &[OwnedFd],
    ) -> Result<(), StepFailure> {
        let runtime = self.waiting.map(|waiting| waiting.runtime).ok_or(codec::MalformedMessage)?;
        let arguments =
            runtime.arguments(&start.argv, &start.env).ok_or(codec::MalformedMessage)?;
        let (merged, has_stdin, has_streams) = match (start.streams, runtime.is_forked()) {
            (StreamSetup::Given { merged, has_stdin }, true) => (merged, has_stdin, false),
            (StreamSetup::Waiting, false) => (false, true, true),
            _ => return Err(codec::MalformedMessage.into()),
        };
        let unlimited = self.groups.unlimited();
        let limits: Vec<_> = payload::command_limits(&start.limits, unlimited).collect();
        let mut message = RuntimeRelease {
            has_stdin,
            merged,
            limits: &limits,
            stack_bytes: start.limits.stack_bytes,
            arguments: &arguments,
            env: &start.env,
        }
        .encode();
        if has_streams {
            // It reads with a small buffer, so the message is sent in chunks after its length.
            let length = u32::try_from(message.len()).map_err(|_| codec::MalformedMessage)?;
            let head = length.to_le_bytes();
            let packets = message.chunks(codec::MESSAGE_BYTES_MAX);
            return std::iter::once(&head[..])
                .chain(packets)
                .try_for_each(|packet| sys::send(parked.socket.as_fd(), packet, &[]))
                .step("release the runtime");
        }
        let mut handles: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let file;
        if message.len() > codec::MESSAGE_BYTES_MAX {
            if let Some(kind) = message.first_mut() {
                *kind = RELEASE_IN_FILE;
            }
            file = sys::memfd(c"cove-release", &message).step("hand over the command")?;
            handles.push(file.as_fd());
            message.truncate(1);
        }
        sys::send(parked.socket.as_fd(), &message, &handles).step("release the runtime")
    }
}

/// Waits until a copy is parked; returns its pid in this namespace.
fn parked_pid(socket: &OwnedFd) -> Result<libc::pid_t, StepFailure> {
    let mut buf = [0u8; 256];
    let (n, _) = sys::receive(socket.as_fd(), &mut buf).step("wait for a runtime")?;
    let message = buf.get(..n).unwrap_or(&[]);
    match (message.split_first(), message.get(1..5).map(<[u8; 4]>::try_from)) {
        (Some((&PARKED, _)), Some(Ok(pid))) => Ok(i32::from_le_bytes(pid)),
        _ => Err(not_parked(message)),
    }
}

/// Decodes the error of a runtime that could not park.
fn not_parked(message: &[u8]) -> StepFailure {
    match (message.split_first(), message.get(1..5).map(<[u8; 4]>::try_from)) {
        (Some((&NOT_PARKED, _)), Some(Ok(errno))) => StepFailure {
            step: String::from_utf8_lossy(message.get(5..).unwrap_or(&[])).into_owned(),
            errno: i32::from_le_bytes(errno),
        },
        _ => StepFailure { step: "wait for a runtime".to_owned(), errno: libc::EPIPE },
    }
}

/// Returns an error if an ended runtime did not reach its program. The runtime reports that before
/// it ends.
pub(super) fn check_started(parked: &ParkedProcess) -> Result<(), StepFailure> {
    let socket = parked.socket.as_fd();
    let ready = sys::poll(&[socket], Some(Duration::ZERO)).step("look at a runtime")?;
    if ready != [true] {
        return Ok(());
    }
    let mut buf = [0u8; 256];
    match sys::receive(socket, &mut buf) {
        Ok((n, _)) if n > 0 => Err(not_parked(buf.get(..n).unwrap_or(&[]))),
        _ => Ok(()),
    }
}
