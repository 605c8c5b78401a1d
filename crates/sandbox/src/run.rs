//! One program in a sandbox, seen from the server: its streams, its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use crate::codec::{self, Malformed, Reader, Report, Start, from_guest, to_guest};
use crate::failure::Failure;
use crate::spec::{Breach, Command, Exit, OutputSink, Stdin, Stream};
use crate::sys;

/// How much a program may write beyond a full stream before it is ended. What ends a little above
/// the limit is judged by its end; a flood does not get to burn its whole CPU limit.
const OUTPUT_SLACK_BYTES: u64 = 64 << 10;
/// How long it may go on after its output was cut.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// How long after its wall limit the guest init may take to report: under load it waits for CPU
/// too.
const REPORT_GRACE: Duration = Duration::from_secs(10);
/// How long pipes are read after the end of the last process that could write to them.
const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// Bytes read from a pipe at a time: half of what a pipe holds, so that one side can fill while the
/// other empties.
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes read the first time: most programs write a line or two, and room costs page faults.
const FIRST_CHUNK_BYTES: usize = 4 << 10;
/// Largest message of a guest init: a report with the state of [`OUTPUTS_MAX`] outputs.
const REPORT_BYTES_MAX: usize = 1 << 10;
/// Outputs of one command: as many descriptors as one message may carry.
pub const OUTPUTS_MAX: usize = 64;

/// Why a sandbox failed its caller. The program is not to blame, except for [`SandboxError::File`].
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine is closed.
    #[error("the sandbox engine is closed")]
    Closed,
    /// More wait for a sandbox than may.
    #[error("no sandbox became free: {0}")]
    Unavailable(String),
    /// Building the sandbox or starting the program failed.
    #[error("build a sandbox")]
    Setup(#[source] Failure),
    /// A file of the command could not be placed; its limits are too small for it.
    #[error("place a file of the command")]
    File(#[source] Failure),
    /// The guest init ended or answered nothing.
    #[error("the sandbox ended unexpectedly: {0}")]
    Lost(&'static str),
    /// A system call of the server failed.
    #[error("talk to a sandbox")]
    Io(#[from] io::Error),
}

impl From<Malformed> for SandboxError {
    fn from(_: Malformed) -> Self {
        SandboxError::Lost("its message was malformed")
    }
}

/// The server's end of a guest init's connection.
#[derive(Debug)]
pub(crate) struct Control(AsyncFd<OwnedFd>);

impl Control {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Control> {
        Ok(Control(sys::watch(fd)?))
    }

    async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, |fd| sys::send(fd.as_fd(), bytes, fds)).await
    }

    async fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buf = vec![0; REPORT_BYTES_MAX];
        // A guest init that ended without reading our last message leaves a reset before what it
        // said itself; the kernel tells of the reset once.
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

    /// Whether the guest init has nothing to say: one that waits does not, one that ended does.
    pub(crate) fn is_quiet(&self) -> bool {
        let ready = sys::poll(&[self.0.get_ref().as_fd()], Some(Duration::ZERO));
        ready.is_ok_and(|ready| ready == [false])
    }

    /// Waits until the guest init has set itself up.
    pub(crate) async fn ready(&self) -> Result<(), SandboxError> {
        let gone = |_| SandboxError::Lost("it ended before it was ready");
        let (message, _) = self.receive().await.map_err(gone)?;
        match message.split_first() {
            Some((&from_guest::READY, _)) => Ok(()),
            Some((&from_guest::FAILED, rest)) => {
                Err(SandboxError::Setup(Failure::decode(&mut Reader(rest))?))
            }
            Some(_) => Err(SandboxError::Lost("it spoke out of turn")),
            None => Err(SandboxError::Lost("it ended before it was ready")),
        }
    }
}

/// One captured stream.
#[derive(Debug)]
struct Capture {
    stream: Stream,
    pipe: pipe::Receiver,
    /// What was read last. Its room is never cleared: only what was read is looked at.
    chunk: Vec<u8>,
    kept: Vec<u8>,
    max: u64,
    /// Everything that was written, kept or not.
    seen: u64,
    open: bool,
}

impl Capture {
    fn new(stream: Stream, max: u64) -> io::Result<(Capture, OwnedFd)> {
        let (read, write) = sys::pipe()?;
        sys::set_nonblocking(read.as_fd())?;
        let pipe = pipe::Receiver::from_owned_fd(read)?;
        Ok((
            Capture { stream, pipe, chunk: Vec::new(), kept: Vec::new(), max, seen: 0, open: true },
            write,
        ))
    }

    fn is_truncated(&self) -> bool {
        self.seen > self.max
    }

    /// Waits for something to read. Cancel-safe: nothing is taken from the pipe before it is ready.
    async fn read(&mut self) -> io::Result<()> {
        self.chunk.clear();
        // Room for a first small output; more once a program shows that it writes much.
        let room = if self.seen == 0 { FIRST_CHUNK_BYTES } else { CHUNK_BYTES };
        self.chunk.reserve(room);
        self.pipe.read_buf(&mut self.chunk).await.map(drop)
    }

    /// Takes in what was read: zero bytes are the end.
    fn take(&mut self, sink: &mut dyn OutputSink) {
        if self.chunk.is_empty() {
            self.open = false;
            return;
        }
        let room = self.max.saturating_sub(self.kept.len() as u64);
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(self.chunk.len());
        if let Some(kept) = self.chunk.get(..fits).filter(|c| !c.is_empty()) {
            self.kept.extend_from_slice(kept);
            sink.chunk(self.stream, kept);
        }
        self.seen += self.chunk.len() as u64;
    }
}

/// Everything of a program that runs.
struct Running<'a> {
    control: &'a Control,
    sink: &'a mut dyn OutputSink,
    stdout: Capture,
    stderr: Capture,
    input: Input,
    /// When the wait for the report is given up.
    report_by: Instant,
    /// When a program whose output was cut is ended.
    stop_at: Option<Instant>,
    stopped: bool,
}

/// What is still to be written to the program's standard input.
struct Input {
    pipe: Option<pipe::Sender>,
    pending: Vec<u8>,
    written: usize,
    live: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Input {
    /// Goes on until everything is written or nobody reads. Cancel-safe: what was written is noted
    /// before the next wait.
    async fn feed(&mut self) {
        while let Some(pipe) = &mut self.pipe {
            match self.pending.get(self.written..) {
                Some(rest) if !rest.is_empty() => match pipe.write(rest).await {
                    Ok(n) => self.written += n,
                    // The program has closed its input or ended; that is its right.
                    Err(_) => self.pipe = None,
                },
                _ => match &mut self.live {
                    Some(live) => match live.recv().await {
                        Some(chunk) => (self.pending, self.written) = (chunk, 0),
                        None => self.pipe = None,
                    },
                    None => self.pipe = None,
                },
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Runs one command and waits for its end. Dropping the future leaves the program running until the
/// connection is closed, which ends the sandbox.
pub(crate) async fn run(
    control: &Control,
    command: Command,
    sink: &mut dyn OutputSink,
) -> Result<Exit, SandboxError> {
    let limits = command.limits;
    let (stdout, stdout_write) = Capture::new(Stream::Stdout, limits.output_bytes)?;
    let (stderr, stderr_write) = Capture::new(Stream::Stderr, limits.output_bytes)?;
    let (stdin_read, input) = open_input(command.stdin)?;
    let contents: Vec<Vec<u8>> =
        command.files.iter().map(|f| f.content.read()).collect::<Result<_, _>>()?;
    let start = Start {
        has_stdin: stdin_read.is_some(),
        last: command.last,
        profile: command.profile,
        limits,
        argv: command.argv.iter().map(Vec::as_slice).collect(),
        env: command.env.iter().map(Vec::as_slice).collect(),
        outputs: command.outputs.iter().map(String::as_bytes).collect(),
        files: command
            .files
            .iter()
            .zip(&contents)
            .map(|(f, content)| (f.path.as_bytes(), f.executable, content.as_slice()))
            .collect(),
    };
    let message = start.encode();
    let mut fds = vec![stdout_write.as_fd(), stderr_write.as_fd()];
    fds.extend(stdin_read.as_ref().map(AsFd::as_fd));
    if message.len() <= codec::MESSAGE_BYTES_MAX {
        control.send(&message, &fds).await?;
    } else {
        let file = sys::memfd(c"cove-command", &message)?;
        fds.push(file.as_fd());
        control.send(&[to_guest::START_IN_FILE], &fds).await?;
    }
    drop((stdout_write, stderr_write, stdin_read, message));
    let mut running = Running {
        control,
        sink,
        stdout,
        stderr,
        input,
        report_by: Instant::now() + limits.wall + REPORT_GRACE,
        stop_at: None,
        stopped: false,
    };
    let (report, files) = running.until_report().await?;
    running.drain().await?;
    let mut exit = running.judge(report);
    exit.outputs = read_outputs(&exit.outputs, files, command.outputs_bytes_max);
    Ok(exit)
}

fn open_input(stdin: Stdin) -> io::Result<(Option<OwnedFd>, Input)> {
    let (pending, live) = match stdin {
        Stdin::Empty => (Vec::new(), None),
        Stdin::Bytes(bytes) => (bytes, None),
        Stdin::Live(receiver) => (Vec::new(), Some(receiver)),
        Stdin::Handle(read) => {
            let input = Input { pipe: None, pending: Vec::new(), written: 0, live: None };
            return Ok((Some(read), input));
        }
    };
    let mut input = Input { pipe: None, pending, written: 0, live };
    if input.pending.is_empty() && input.live.is_none() {
        return Ok((None, input));
    }
    let (read, write) = sys::pipe()?;
    sys::set_nonblocking(write.as_fd())?;
    input.pipe = Some(pipe::Sender::from_owned_fd(write)?);
    Ok((Some(read), input))
}

impl Running<'_> {
    /// Moves bytes until the guest init reports.
    async fn until_report(&mut self) -> Result<(Report, Vec<OwnedFd>), SandboxError> {
        loop {
            let stop_at = self.stop_at.unwrap_or(self.report_by);
            tokio::select! {
                // In this order, so that what a program wrote before its end is taken in first.
                biased;
                read = self.stdout.read(), if self.stdout.open => {
                    read?;
                    self.stdout.take(self.sink);
                    self.watch_output().await?;
                }
                read = self.stderr.read(), if self.stderr.open => {
                    read?;
                    self.stderr.take(self.sink);
                    self.watch_output().await?;
                }
                received = self.control.receive() => return parse_report(received?),
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

    /// Notices a cut stream, and ends a program that floods.
    async fn watch_output(&mut self) -> io::Result<()> {
        if self.stopped || !(self.stdout.is_truncated() || self.stderr.is_truncated()) {
            return Ok(());
        }
        self.stop_at.get_or_insert_with(|| Instant::now() + OUTPUT_GRACE);
        let floods = |c: &Capture| c.seen > c.max.saturating_add(OUTPUT_SLACK_BYTES);
        if floods(&self.stdout) || floods(&self.stderr) {
            self.stop().await?;
        }
        Ok(())
    }

    async fn stop(&mut self) -> io::Result<()> {
        self.stopped = true;
        self.stop_at = None;
        self.report_by = Instant::now() + REPORT_GRACE;
        match self.control.send(&[to_guest::STOP], &[]).await {
            // It has ended on its own meanwhile, and its report waits to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Reads what is left in the pipes. Every writer is dead, so their end comes at once.
    async fn drain(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + DRAIN_GRACE;
        for capture in [&mut self.stdout, &mut self.stderr] {
            while capture.open {
                match time::timeout_at(deadline, capture.read()).await {
                    Ok(read) => {
                        read?;
                        capture.take(self.sink);
                    }
                    Err(_) => capture.open = false,
                }
            }
        }
        Ok(())
    }

    fn judge(self, report: Report) -> Exit {
        let mut breaches = Vec::new();
        let (stdout_truncated, stderr_truncated) =
            (self.stdout.is_truncated(), self.stderr.is_truncated());
        if stdout_truncated || stderr_truncated {
            breaches.push(Breach::Output);
        }
        if report.cpu_breached {
            breaches.push(Breach::Cpu);
        }
        if report.wall_breached {
            breaches.push(Breach::Wall);
        }
        if report.memory_limit_reached {
            breaches.push(Breach::Memory);
        }
        Exit {
            code: report.code,
            signal: report.signal,
            exec_errno: report.exec_errno,
            breaches,
            cpu: report.cpu,
            wall: report.wall,
            memory_peak_bytes: report.memory_peak_bytes,
            processes_peak: report.processes_peak,
            oom_kills: report.oom_kills,
            stopped: false,
            stdout: self.stdout.kept,
            stderr: self.stderr.kept,
            stdout_truncated,
            stderr_truncated,
            outputs: report.outputs.iter().map(|errno| output_state(*errno)).collect(),
        }
    }
}

fn parse_report(
    (message, fds): (Vec<u8>, Vec<OwnedFd>),
) -> Result<(Report, Vec<OwnedFd>), SandboxError> {
    match message.split_first() {
        Some((&from_guest::EXIT, rest)) => Ok((Report::decode(&mut Reader(rest))?, fds)),
        Some((&from_guest::FAILED, rest)) => {
            Err(SandboxError::Setup(Failure::decode(&mut Reader(rest))?))
        }
        Some((&from_guest::FILE, rest)) => {
            Err(SandboxError::File(Failure::decode(&mut Reader(rest))?))
        }
        Some(_) => Err(SandboxError::Lost("it spoke out of turn")),
        None => Err(SandboxError::Lost("it was killed")),
    }
}

/// Whether an output could be opened, in the words of its user.
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

/// Reads the opened outputs, within the total.
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
