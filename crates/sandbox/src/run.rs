//! A program in a sandbox, on the server's side: its streams and its end.

mod streams;

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use crate::codec::{
    self, EndReport, MalformedMessage, MessageReader, MessageWriter, PlacedFile, StartMessage,
    StoredContent, StreamSetup, from_guest, to_guest,
};
use crate::disk::AttachedLayer;
use crate::failure::StepFailure;
use crate::guest::mounts::LAYERS_MAX;
use crate::shared::SharedFile;
use crate::spec::{
    self, EXTRA_MAX, EXTRA_NUMBER_MAX, LimitBreach, LoopbackListen, OutputMode, OutputSink,
    PORT_MIN, PORTS_MAX, ProgramExit, SandboxCommand, SeccompProfile, StdinSource,
    WorkspaceContent, WorkspaceFile,
};
use crate::sys;
use streams::{CapturedStreams, CommandWiring, PendingStdin, ServerTerminal};

/// Bytes that a program may write beyond its limit before it is stopped at once. A program that
/// exceeds the limit by a little may still end on its own; a flood does not use its whole CPU
/// limit.
const OUTPUT_SLACK_BYTES: u64 = 64 << 10;
/// Time that a program may continue after its output was cut.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// Time for the guest init's report after the wall limit: under load it waits for CPU too.
const REPORT_GRACE: Duration = Duration::from_secs(10);
/// Time for reading pipes after the end of the last process that could write to them.
const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// Maximum wait, after a program's end, for a sink to accept its last output.
const SINK_GRACE: Duration = Duration::from_secs(30);
/// Maximum number of files with shared content that are sent as descriptors; the content of further
/// files is sent instead. Together with the streams, the further descriptors and the message's own
/// file, they stay within the descriptors of one message.
const SHARED_MAX: usize = 32;
const _: () = assert!(3 + EXTRA_MAX + SHARED_MAX < sys::MESSAGE_FDS_MAX);
const _: () = assert!(PORTS_MAX <= sys::MESSAGE_FDS_MAX);
/// The last signal that is not a real-time one.
const SIGNAL_MAX: u8 = 31;
/// Largest message of a guest init: a report with the state of [`OUTPUTS_MAX`] outputs.
const REPORT_BYTES_MAX: usize = 1 << 10;
/// Default working directory of commands.
const WORKSPACE: &str = "/workspace";
/// Maximum number of outputs of one command: their descriptors fit into one message.
pub const OUTPUTS_MAX: usize = 64;

/// Why a sandbox failed its caller. The program is not to blame, except for [`SandboxError::File`];
/// [`SandboxError::Command`] is the caller's own mistake.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine is closed.
    #[error("the sandbox engine is closed")]
    Closed,
    /// No sandbox became free for the caller, or this kind of sandbox is not available here.
    #[error("no sandbox became free: {0}")]
    Unavailable(String),
    /// Building the sandbox or starting the program failed.
    #[error("build a sandbox")]
    Setup(#[source] StepFailure),
    /// A file of the command could not be placed; its limits are too small for it.
    #[error("place a file of the command")]
    File(#[source] StepFailure),
    /// The command is invalid; the message names the field.
    #[error("{0}")]
    Command(&'static str),
    /// The guest init of a session could not carry out a request.
    #[error("ask something of a session")]
    Refused(#[source] StepFailure),
    /// No listener on that port of a session's loopback.
    #[error("no program listens on port {0} of the session")]
    PortRefused(u16),
    /// The server listens, or has listened, on that port of a session's loopback: the service is
    /// for the session's own programs.
    #[error("port {0} of the session is served by the server itself")]
    PortOfServer(u16),
    /// The guest init ended or sent no answer.
    #[error("the sandbox ended unexpectedly: {0}")]
    Lost(&'static str),
    /// A system call of the server failed.
    #[error("talk to a sandbox")]
    Io(#[from] io::Error),
}

impl From<MalformedMessage> for SandboxError {
    fn from(_: MalformedMessage) -> Self {
        SandboxError::Lost("its message was malformed")
    }
}

/// Lower layers of a sandbox for commands, and the working directory of its commands.
#[derive(Clone, Debug, Default)]
pub struct SandboxLayers {
    /// The layers, the newest first.
    pub layers: Vec<Arc<AttachedLayer>>,
    /// Working directory of commands and their files, relative to `/workspace` or absolute below
    /// `/home/user`; created if it is missing. The default is `/workspace`.
    pub workdir: Option<String>,
}

/// The server's end of a guest init's connection.
#[derive(Debug)]
pub(crate) struct GuestConnection(AsyncFd<OwnedFd>);

impl GuestConnection {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<GuestConnection> {
        Ok(GuestConnection(sys::watch(fd)?))
    }

    /// Returns the socket, for the frames of a session.
    pub(crate) fn into_socket(self) -> AsyncFd<OwnedFd> {
        self.0
    }

    async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, |fd| sys::send(fd.as_fd(), bytes, fds)).await
    }

    /// Sends a message about a running command.
    async fn tell(&self, message: &[u8]) -> io::Result<()> {
        match self.send(message, &[]).await {
            // The command has ended on its own meanwhile, and its report waits to be read. A reset
            // means that the guest init had not read an earlier message.
            Err(error)
                if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset]
                    .contains(&error.kind()) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buf = vec![0; REPORT_BYTES_MAX];
        // If the guest init ended without reading our last message, the kernel reports a reset
        // once, before the messages that the guest init sent.
        let (n, fds) = match self.receive_into(&mut buf).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.receive_into(&mut buf).await?
            }
            other => other?,
        };
        buf.truncate(n);
        Ok((buf, fds))
    }

    async fn receive_into(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.0.async_io(Interest::READABLE, |fd| sys::receive(fd.as_fd(), buf)).await
    }

    /// Returns whether the connection has nothing to read: true for a guest init that waits, false
    /// for one that has ended.
    pub(crate) fn is_quiet(&self) -> bool {
        let ready = sys::poll(&[self.0.get_ref().as_fd()], Some(Duration::ZERO));
        ready.is_ok_and(|ready| ready == [false])
    }

    /// Waits until the guest init has set itself up. Returns our ends of the streams of its warm
    /// runtime, if they exist already.
    pub(crate) async fn ready(&self) -> Result<Vec<OwnedFd>, SandboxError> {
        let gone = |_| SandboxError::Lost("it ended before it was ready");
        let (message, streams) = self.receive().await.map_err(gone)?;
        match message.split_first() {
            Some((&from_guest::READY, _)) => Ok(streams),
            Some((&from_guest::FAILED, rest)) => {
                Err(SandboxError::Setup(StepFailure::decode(&mut MessageReader(rest))?))
            }
            Some(_) => Err(SandboxError::Lost("it spoke out of turn")),
            None => Err(SandboxError::Lost("it ended before it was ready")),
        }
    }

    /// Makes the guest init mount layers. Only for a sandbox that waits for them.
    pub(crate) async fn mount(&self, layers: &SandboxLayers) -> Result<(), SandboxError> {
        if layers.layers.len() > LAYERS_MAX {
            return Err(SandboxError::Command("layers: at most 64"));
        }
        // Mounts in no namespace; they end with the sandbox.
        let mounts: Vec<OwnedFd> =
            layers.layers.iter().map(|layer| layer.mount()).collect::<io::Result<_>>()?;
        let fds: Vec<BorrowedFd<'_>> = mounts.iter().map(AsFd::as_fd).collect();
        let workdir = layers.workdir.as_deref().unwrap_or(WORKSPACE);
        let message = MessageWriter::new(to_guest::LAYERS).bytes(workdir.as_bytes()).finish();
        self.send(&message, &fds).await?;
        let by = Instant::now() + REPORT_GRACE;
        self.made(from_guest::MOUNTED, "it does not mount its layers", by).await.map(drop)
    }

    /// Receives the sockets that the guest init opens before it starts the program, and passes them
    /// to the caller.
    async fn take_listeners(
        &self,
        listen: LoopbackListen,
        by: Instant,
    ) -> Result<(), SandboxError> {
        let fds = self.made(from_guest::LISTENING, "it does not listen", by).await?;
        if fds.len() != listen.ports.len() {
            return Err(SandboxError::Lost("it does not listen on all ports"));
        }
        let mut listeners = Vec::with_capacity(fds.len());
        for fd in fds {
            // The guest init makes them non-blocking.
            listeners.push(TcpListener::from_std(fd.into())?);
        }
        // If the receiver was dropped, the listeners close and connections are refused.
        let _unwanted = listen.opened.send(listeners);
        Ok(())
    }

    /// Waits for the descriptors that the guest init sends, in a message of this kind, before it
    /// starts the program.
    async fn made(
        &self,
        kind: u8,
        lacking: &'static str,
        by: Instant,
    ) -> Result<Vec<OwnedFd>, SandboxError> {
        let received = time::timeout_at(by, self.receive()).await;
        let (message, fds) = received.map_err(|_| SandboxError::Lost(lacking))??;
        if message.first() == Some(&kind) {
            return Ok(fds);
        }
        match parse_report(message, Vec::new()) {
            Ok(_) => Err(SandboxError::Lost(lacking)),
            Err(error) => Err(error),
        }
    }
}

/// State of a running program.
struct ProgramRun<'a> {
    control: &'a GuestConnection,
    sink: &'a mut dyn OutputSink,
    captured: CapturedStreams,
    input: PendingStdin,
    terminal: Option<ServerTerminal>,
    /// Requests of the caller; none once the caller has dropped its end.
    requests: Option<mpsc::Receiver<spec::ProgramControl>>,
    /// Deadline of the wait for the report.
    report_by: Instant,
    /// Time at which a program whose output was cut is stopped.
    stop_at: Option<Instant>,
    /// True if the program was stopped.
    stopped: bool,
    /// True if it was stopped by the caller, and not because of its output.
    stopped_by_caller: bool,
}

/// Rejects a command that cannot be carried out as specified.
fn check(command: &SandboxCommand) -> Result<(), SandboxError> {
    let is_captured = |output: &OutputMode| matches!(output, OutputMode::Capture);
    let has_terminal = command.terminal.is_some();
    if matches!(command.stdout, OutputMode::Stdout) {
        return Err(SandboxError::Command("stdout: only standard error can follow another stream"));
    }
    if has_terminal && !(is_captured(&command.stdout) && is_captured(&command.stderr)) {
        return Err(SandboxError::Command("terminal: it takes all output"));
    }
    if has_terminal && matches!(command.stdin, StdinSource::Handle(_)) {
        return Err(SandboxError::Command("terminal: it gives all input"));
    }
    if command.extra.len() > EXTRA_MAX {
        return Err(SandboxError::Command("extra: too many descriptors"));
    }
    let mut numbers: Vec<u32> = command.extra.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    if !numbers.iter().all(|number| (3..=EXTRA_NUMBER_MAX).contains(number)) {
        return Err(SandboxError::Command("extra: a number is not from 3 to 255"));
    }
    if numbers.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(SandboxError::Command("extra: a number occurs twice"));
    }
    command.listen.as_ref().map_or(Ok(()), |listen| check_ports(listen, command.profile))
}

fn check_ports(listen: &LoopbackListen, profile: SeccompProfile) -> Result<(), SandboxError> {
    if profile != SeccompProfile::Run {
        return Err(SandboxError::Command("listen: a compiler has no loopback"));
    }
    if listen.ports.is_empty() || listen.ports.len() > PORTS_MAX {
        return Err(SandboxError::Command("listen: there must be 1 to 32 ports"));
    }
    if listen.ports.iter().any(|port| *port < PORT_MIN) {
        return Err(SandboxError::Command("listen: a port is below 1024"));
    }
    let mut ports = listen.ports.clone();
    ports.sort_unstable();
    if ports.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(SandboxError::Command("listen: a port occurs twice"));
    }
    Ok(())
}

/// Runs one command and waits for its end. If the future is dropped, the program runs until the
/// connection is closed, which ends the sandbox.
///
/// `waiting` has our ends of the streams of the sandbox's warm runtime.
pub(crate) async fn run(
    control: &GuestConnection,
    waiting: Vec<OwnedFd>,
    mut command: SandboxCommand,
    sink: &mut dyn OutputSink,
) -> Result<ProgramExit, SandboxError> {
    check(&command)?;
    let listen = command.listen.take();
    let limits = command.limits;
    let extra: Vec<u32> = command.extra.iter().map(|(number, _)| *number).collect();
    let extra_is_empty = extra.is_empty();
    let has_waiting = !waiting.is_empty();
    let CommandWiring { streams, child_ends, captured, input } =
        CommandWiring::new(&mut command, waiting)?;
    let files = CommandFiles::new(&command.files)?;
    let start = StartMessage {
        streams,
        extra,
        ports: listen.as_ref().map_or_else(Vec::new, |listen| listen.ports.clone()),
        last: command.last,
        // A command that cannot use the runtime's streams starts a new process.
        warm: command.warm
            && extra_is_empty
            && match streams {
                StreamSetup::Given { .. } => !has_waiting,
                StreamSetup::Waiting => true,
                StreamSetup::Terminal(_) => false,
            },
        profile: command.profile,
        limits,
        argv: command.argv.iter().map(Vec::as_slice).collect(),
        env: command.env.iter().map(Vec::as_slice).collect(),
        outputs: command.outputs.iter().map(String::as_bytes).collect(),
        files: files.placed(&command.files),
        symlinks: command.symlinks.iter().map(|(p, t)| (p.as_bytes(), t.as_bytes())).collect(),
    };
    let message = start.encode();
    let mut fds: Vec<BorrowedFd<'_>> = child_ends.iter().map(AsFd::as_fd).collect();
    fds.extend(files.shared.iter().map(|file| file.as_fd()));
    if message.len() <= codec::MESSAGE_BYTES_MAX {
        control.send(&message, &fds).await?;
    } else {
        let file = sys::memfd(c"cove-command", &message)?;
        fds.push(file.as_fd());
        control.send(&[to_guest::START_IN_FILE], &fds).await?;
    }
    // While a copy of a pipe's end is open here, the other end sees no end of file.
    drop((child_ends, message));
    let mut running = ProgramRun {
        control,
        sink,
        captured,
        input,
        terminal: None,
        requests: command.control.take(),
        report_by: Instant::now() + limits.wall + REPORT_GRACE,
        stop_at: None,
        stopped: false,
        stopped_by_caller: false,
    };
    if let Some(listen) = listen {
        control.take_listeners(listen, running.report_by).await?;
    }
    if matches!(streams, StreamSetup::Terminal(_)) {
        running.take_terminal().await?;
    }
    let (report, outputs) = running.until_report().await?;
    running.drain().await?;
    let mut exit = running.judge(report);
    exit.outputs = read_outputs(&exit.outputs, outputs, command.outputs_bytes_max);
    Ok(exit)
}

/// Content of the files of a command: files that are sent as descriptors, and content that had to
/// be read.
struct CommandFiles<'a> {
    shared: Vec<&'a Arc<SharedFile>>,
    /// For each file: the index of its descriptor, or its bytes if they are not in the command.
    contents: Vec<ContentTransfer>,
}

enum ContentTransfer {
    AsGiven,
    Shared(usize),
    Read(Vec<u8>),
}

impl<'a> CommandFiles<'a> {
    fn new(files: &'a [WorkspaceFile]) -> io::Result<CommandFiles<'a>> {
        let mut shared: Vec<&Arc<SharedFile>> = Vec::new();
        let mut contents = Vec::new();
        for file in files {
            let WorkspaceContent::Shared(content) = &file.content else {
                contents.push(ContentTransfer::AsGiven);
                continue;
            };
            let known = shared.iter().position(|other| Arc::ptr_eq(other, content));
            contents.push(match known {
                Some(index) => ContentTransfer::Shared(index),
                None if shared.len() < SHARED_MAX => {
                    shared.push(content);
                    ContentTransfer::Shared(shared.len() - 1)
                }
                None => ContentTransfer::Read(content.read()?),
            });
        }
        Ok(CommandFiles { shared, contents })
    }

    fn placed<'b>(&'b self, files: &'b [WorkspaceFile]) -> Vec<PlacedFile<'b>> {
        let place = |(file, travels): (&'b WorkspaceFile, &'b ContentTransfer)| PlacedFile {
            path: file.path.as_bytes(),
            executable: file.executable,
            content: match (travels, &file.content) {
                (ContentTransfer::Shared(index), content) => {
                    StoredContent::Shared { index: *index, len: content.len() }
                }
                (ContentTransfer::Read(bytes), _) | (_, WorkspaceContent::Bytes(bytes)) => {
                    StoredContent::Bytes(bytes)
                }
                (ContentTransfer::AsGiven, WorkspaceContent::Shared(_)) => {
                    StoredContent::Bytes(&[])
                }
            },
        };
        files.iter().zip(&self.contents).map(place).collect()
    }
}

impl ProgramRun<'_> {
    /// Waits for the terminal that the guest init makes before it starts the program.
    async fn take_terminal(&mut self) -> Result<(), SandboxError> {
        let lacking = "it made no terminal";
        let fds = self.control.made(from_guest::TERMINAL, lacking, self.report_by).await?;
        let fd = fds.into_iter().next().ok_or(SandboxError::Lost(lacking))?;
        let terminal = ServerTerminal::new(fd)?;
        self.captured.stdout.open_terminal(terminal.clone());
        self.input.open_terminal(terminal.clone());
        self.terminal = Some(terminal);
        Ok(())
    }

    /// Moves data until the guest init reports.
    async fn until_report(&mut self) -> Result<(EndReport, Vec<OwnedFd>), SandboxError> {
        loop {
            let stop_at = self.stop_at.unwrap_or(self.report_by);
            // Polled in no order, so that a flood of one kind does not delay the others. Data that
            // is in the pipes when the report arrives is read after it. A size or a signal that was
            // sent before input is handled before it.
            while let Some(request) =
                self.requests.as_mut().and_then(|request| request.try_recv().ok())
            {
                self.apply_control(request).await?;
            }
            tokio::select! {
                read = poll_fn(|cx| self.captured.poll_read(self.sink, cx)) => {
                    self.captured.of(read?).take(self.sink);
                    self.watch_output().await?;
                }
                received = self.control.receive() => {
                    let (message, descriptors) = received?;
                    return parse_report(message, descriptors);
                }
                request = next(&mut self.requests) => match request {
                    Some(request) => self.apply_control(request).await?,
                    None => self.requests = None,
                },
                () = self.input.feed() => {}
                () = time::sleep_until(stop_at) => {
                    if self.stopped || self.stop_at.is_none() {
                        return Err(SandboxError::Lost("it did not report in time"));
                    }
                    self.stop().await?;
                }
            }
        }
    }

    async fn apply_control(&mut self, control: spec::ProgramControl) -> io::Result<()> {
        match control {
            spec::ProgramControl::Signal(signal) => match u8::try_from(signal) {
                Ok(signal @ 1..=SIGNAL_MAX) => self.control.tell(&[to_guest::SIGNAL, signal]).await,
                _ => Ok(()),
            },
            spec::ProgramControl::Resize(size) => {
                self.terminal.as_ref().map_or(Ok(()), |terminal| terminal.resize(size))
            }
            spec::ProgramControl::Stop if self.stopped => Ok(()),
            spec::ProgramControl::Stop => {
                self.stopped_by_caller = true;
                self.stop().await
            }
        }
    }

    /// Starts the grace period of a cut stream, and stops a program that floods.
    async fn watch_output(&mut self) -> io::Result<()> {
        if self.stopped || !self.captured.is_above_limit() {
            return Ok(());
        }
        self.stop_at.get_or_insert_with(|| Instant::now() + OUTPUT_GRACE);
        let CapturedStreams { stdout, stderr } = &self.captured;
        if stdout.floods(OUTPUT_SLACK_BYTES) || stderr.floods(OUTPUT_SLACK_BYTES) {
            self.stop().await?;
        }
        Ok(())
    }

    async fn stop(&mut self) -> io::Result<()> {
        self.stopped = true;
        self.stop_at = None;
        self.report_by = Instant::now() + REPORT_GRACE;
        self.control.tell(&[to_guest::STOP]).await
    }

    /// Reads the rest of the pipes. Every writer is dead, so the end of file comes at once; only a
    /// sink that is not ready causes a wait.
    async fn drain(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + SINK_GRACE;
        while self.captured.is_open() {
            if self.captured.needs_sink() {
                let room = poll_fn(|cx| self.sink.poll_ready(cx));
                if time::timeout_at(deadline, room).await.is_err() {
                    break;
                }
            }
            let read = poll_fn(|cx| self.captured.poll_read(self.sink, cx));
            match time::timeout_at(deadline.min(Instant::now() + DRAIN_GRACE), read).await {
                Ok(read) => self.captured.of(read?).take(self.sink),
                Err(_) => break,
            }
        }
        self.captured.stdout.give_up();
        self.captured.stderr.give_up();
        Ok(())
    }

    fn judge(self, report: EndReport) -> ProgramExit {
        let mut breaches = Vec::new();
        if self.captured.is_above_limit() {
            breaches.push(LimitBreach::Output);
        }
        if report.cpu_breached {
            breaches.push(LimitBreach::Cpu);
        }
        if report.wall_breached {
            breaches.push(LimitBreach::Wall);
        }
        if report.memory_limit_reached {
            breaches.push(LimitBreach::Memory);
        }
        let (stdout, stdout_truncated) = self.captured.stdout.finish();
        let (stderr, stderr_truncated) = self.captured.stderr.finish();
        ProgramExit {
            code: report.code,
            signal: report.signal,
            exec_errno: report.exec_errno,
            breaches,
            cpu: report.cpu,
            wall: report.wall,
            ended: report.ended,
            memory_peak_bytes: report.memory_peak_bytes,
            processes_peak: report.processes_peak,
            oom_kills: report.oom_kills,
            stopped: self.stopped_by_caller && report.stopped,
            stdout,
            stderr,
            stdout_truncated,
            stderr_truncated,
            outputs: report.outputs.iter().map(|errno| output_state(*errno)).collect(),
        }
    }
}

/// Receives the next request of the caller; never returns when the caller has dropped its end.
async fn next(
    requests: &mut Option<mpsc::Receiver<spec::ProgramControl>>,
) -> Option<spec::ProgramControl> {
    match requests {
        Some(requests) => requests.recv().await,
        None => std::future::pending().await,
    }
}

fn parse_report(
    message: Vec<u8>,
    fds: Vec<OwnedFd>,
) -> Result<(EndReport, Vec<OwnedFd>), SandboxError> {
    match message.split_first() {
        Some((&from_guest::EXIT, rest)) => Ok((EndReport::decode(&mut MessageReader(rest))?, fds)),
        Some((&from_guest::FAILED, rest)) => {
            Err(SandboxError::Setup(StepFailure::decode(&mut MessageReader(rest))?))
        }
        Some((&from_guest::FILE, rest)) => {
            Err(SandboxError::File(StepFailure::decode(&mut MessageReader(rest))?))
        }
        Some(_) => Err(SandboxError::Lost("it spoke out of turn")),
        None => Err(SandboxError::Lost("it was killed")),
    }
}

/// Returns the state of an output, with errors in the user's terms.
fn output_state(errno: i32) -> Result<Vec<u8>, String> {
    match errno {
        0 => Ok(Vec::new()),
        libc::EINVAL => Err("not a regular file".to_owned()),
        // openat2 refused to follow a symbolic link or to leave the workspace.
        libc::ELOOP | libc::EXDEV => Err("a link, or outside of the workspace".to_owned()),
        libc::ENOENT => Err("no such file".to_owned()),
        errno => Err(io::Error::from_raw_os_error(errno).to_string()),
    }
}

/// Reads the opened outputs, up to `bytes_max` in total.
fn read_outputs(
    states: &[Result<Vec<u8>, String>],
    files: Vec<OwnedFd>,
    bytes_max: u64,
) -> Vec<Result<Vec<u8>, String>> {
    let mut files = files.into_iter();
    let mut left = bytes_max;
    states
        .iter()
        .map(|state| {
            state.clone()?;
            let file = files.next().ok_or("not handed over")?;
            let size = sys::regular_file_size(file.as_fd()).map_err(|e| e.to_string())?;
            if size > left {
                return Err(format!("{size} bytes, more than the {left} left of {bytes_max}"));
            }
            left -= size;
            sys::read_file(file.as_fd()).map_err(|e| e.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests;
