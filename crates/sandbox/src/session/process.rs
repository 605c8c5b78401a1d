//! Programs of a session: their specification, their streams, their ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::{GuestSessionConnection, OVER, RunningProgram, SandboxedSession, one};
use crate::codec::session::{ProcessEnd, StartProgram, to_session};
use crate::codec::{self, MessageReader, MessageWriter};
use crate::run::SandboxError;
use crate::spec::TerminalDimensions;
use crate::sys;

/// Maximum size of the arguments and the environment of a program together, in bytes. The kernel
/// has its own limits, which follow from the stack's.
const ARGUMENTS_BYTES_MAX: usize = 4 << 20;
/// The last signal that is not a real-time one.
const SIGNAL_MAX: u8 = 31;
/// `SIGKILL` as encoded in frames.
const KILL: u8 = 9;

/// A program to start in a session.
#[derive(Clone, Debug, Default)]
pub struct SessionProgram {
    /// Program and arguments. A program without `/` is looked up in `PATH` of `env`. No NUL bytes.
    pub argv: Vec<Vec<u8>>,
    /// Environment as `NAME=value`, complete: nothing is inherited. No NUL bytes.
    pub env: Vec<Vec<u8>>,
    /// Working directory, relative to `/workspace`, which is also the default.
    pub cwd: Option<Vec<u8>>,
    /// Size of a terminal that becomes the program's three standard streams; none if absent.
    pub terminal: Option<TerminalDimensions>,
    /// True if its standard input can be written to; otherwise its input is empty. A terminal
    /// always can.
    pub stdin: bool,
    /// True if standard error goes to the pipe of standard output.
    pub merged: bool,
}

/// Our ends of a program's standard streams.
#[derive(Debug)]
pub enum ProcessStreams {
    /// A pipe for each.
    Pipes(ProcessPipes),
    /// A terminal for all. Clones are the same terminal, so that one task can read and another one
    /// write.
    Terminal(ProcessTerminal),
}

/// Our ends of the pipes of a program.
#[derive(Debug)]
pub struct ProcessPipes {
    /// Standard input; dropping it ends the program's input. None if it has no input.
    pub stdin: Option<pipe::Sender>,
    /// Standard output.
    pub stdout: pipe::Receiver,
    /// Standard error. None if it is merged with the output.
    pub stderr: Option<pipe::Receiver>,
}

/// Our side of a terminal. Reading ends when no process has the program's side open any more; when
/// all clones are dropped, its processes get a hang-up.
#[derive(Clone, Debug)]
pub struct ProcessTerminal(Arc<AsyncFd<OwnedFd>>);

impl ProcessTerminal {
    fn new(fd: OwnedFd) -> io::Result<ProcessTerminal> {
        Ok(ProcessTerminal(Arc::new(sys::watch(fd)?)))
    }

    /// Changes the size; the kernel signals its foreground processes.
    pub fn resize(&self, size: TerminalDimensions) -> io::Result<()> {
        sys::set_terminal_size(self.0.as_fd(), size.rows, size.cols)
    }
}

impl AsyncRead for ProcessTerminal {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let is_closed = guard.ready().is_read_closed();
            let room = buf.initialize_unfilled();
            match guard.try_io(|fd| sys::read(fd.as_fd(), room)) {
                // Every process that had the other side has closed it.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    buf.advance(read?);
                    return Poll::Ready(Ok(()));
                }
                // The terminal was opened again after that. The runtime never clears a hang-up, so
                // waiting would spin.
                Err(_would_block) if is_closed => return Poll::Ready(Ok(())),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for ProcessTerminal {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            let is_closed = guard.ready().is_write_closed();
            match guard.try_io(|fd| sys::write(fd.as_fd(), bytes)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                // A terminal whose other side is closed accepts bytes until its buffer is full, and
                // reports no error.
                Err(_would_block) if is_closed => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: the only end of input on a terminal is its end-of-file character.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A started program. It continues when this is dropped.
#[derive(Debug)]
pub struct SessionProcess {
    /// Pid as programs of the session see it.
    pub pid: u32,
    /// Our ends of its streams.
    pub streams: ProcessStreams,
    /// Handle to control it, apart from its streams.
    pub handle: ProcessHandle,
}

/// A program without its streams. Clones are the same program; none of them keeps the session
/// alive.
#[derive(Clone, Debug)]
pub struct ProcessHandle {
    connection: Arc<GuestSessionConnection>,
    id: u64,
    pid: u32,
    terminal: Option<ProcessTerminal>,
    end: watch::Receiver<Option<ProcessEnd>>,
}

impl SessionProcess {
    /// See [`ProcessHandle::signal`].
    pub async fn signal(&self, signal: i32) -> Result<(), SandboxError> {
        self.handle.signal(signal).await
    }

    /// See [`ProcessHandle::resize`].
    pub fn resize(&self, size: TerminalDimensions) -> io::Result<()> {
        self.handle.resize(size)
    }

    /// See [`ProcessHandle::wait`].
    pub async fn wait(&mut self) -> Result<ProcessEnd, SandboxError> {
        self.handle.wait().await
    }
}

impl ProcessHandle {
    /// Returns the program's pid as programs of the session see it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal, 1 to 31, to the process group that the program leads; does nothing when it
    /// has ended.
    pub async fn signal(&self, signal: i32) -> Result<(), SandboxError> {
        self::signal(&self.connection, self.id, true, signal).await
    }

    /// Sends a signal to the program's process alone.
    pub async fn signal_alone(&self, signal: i32) -> Result<(), SandboxError> {
        self::signal(&self.connection, self.id, false, signal).await
    }

    /// Changes the size of its terminal; does nothing if it has none.
    pub fn resize(&self, size: TerminalDimensions) -> io::Result<()> {
        self.terminal.as_ref().map_or(Ok(()), |terminal| terminal.resize(size))
    }

    /// Waits for the program's end; returns [`SandboxError::Lost`] if the sandbox ends first.
    /// Cancel-safe, and may be called again. Processes that the program has left continue, and can
    /// still write.
    pub async fn wait(&mut self) -> Result<ProcessEnd, SandboxError> {
        match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().ok_or(OVER),
            Err(_) => Err(OVER),
        }
    }

    /// Returns the program's end, if it has ended.
    pub fn end(&self) -> Option<ProcessEnd> {
        self.end.borrow().clone()
    }
}

/// Sends a signal to the program of a request; does nothing when it has ended.
pub(super) async fn signal(
    connection: &GuestSessionConnection,
    program: u64,
    to_group: bool,
    signal: i32,
) -> Result<(), SandboxError> {
    let signal = match u8::try_from(signal) {
        Ok(signal @ 1..=SIGNAL_MAX) => signal,
        _ => return Err(SandboxError::Command("signal: it is not from 1 to 31")),
    };
    match send_signal(connection, program, to_group, signal).await {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

async fn send_signal(
    connection: &GuestSessionConnection,
    program: u64,
    to_group: bool,
    signal: u8,
) -> Result<(), SandboxError> {
    let id = connection.next_id.fetch_add(1, Ordering::Relaxed);
    let frame =
        MessageWriter::new(to_session::SIGNAL).u64(id).u64(program).u8(to_group.into()).u8(signal);
    connection.request(id, frame.finish(), &[]).await.map(drop)
}

/// Returns whether the error means that the program does not exist, or has ended.
fn is_gone(error: &SandboxError) -> bool {
    matches!(error, SandboxError::Refused(failure) if failure.errno == libc::ESRCH)
}

/// Both ends of the streams of a program.
struct ProcessWiring {
    streams: codec::StreamSetup,
    child_ends: Vec<OwnedFd>,
    ours: Option<ProcessPipes>,
}

/// Creates a pipe for the output of a program: the server's end, which is non-blocking, and the
/// program's.
///
/// # Errors
/// If no descriptors are left.
pub fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = sys::pipe()?;
    sys::set_nonblocking(read.as_fd())?;
    // Lets the program open its own /dev/stdout: pipes have an owner, which is not the program's
    // user. No other process can reach the pipe by a path.
    sys::fchmod(write.as_fd(), 0o666)?;
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// Sends a short message with copies of descriptors over a non-blocking stream socket.
///
/// # Errors
/// `WouldBlock` if the socket has no room for it; an error if the other end is closed.
pub fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    message: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    sys::send(socket, message, fds)
}

/// The server's end of a socket that keeps message boundaries, for a program that is sent
/// descriptors. The other end becomes the program's standard input.
#[derive(Debug)]
pub struct ProgramChannel(AsyncFd<OwnedFd>);

impl ProgramChannel {
    /// Creates the socket: the server's end, and the program's.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn pair() -> io::Result<(ProgramChannel, OwnedFd)> {
        let (ours, theirs) = sys::message_pair()?;
        Ok((ProgramChannel(sys::watch(ours)?), theirs))
    }

    /// Sends one message, with copies of descriptors. Waits while the program does not read.
    ///
    /// # Errors
    /// If the program has closed its end.
    pub async fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut guard = self.0.writable().await?;
            if let Ok(sent) = guard.try_io(|socket| sys::send(socket.as_fd(), message, fds)) {
                return sent;
            }
        }
    }

    /// Receives one message of at most `bytes_max` bytes; None when the program has closed its end.
    /// Descriptors that the program sends are closed.
    ///
    /// # Errors
    /// If the message is longer.
    pub async fn receive(&self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut buf = vec![0; bytes_max];
        loop {
            let mut guard = self.0.readable().await?;
            let received = guard.try_io(|socket| sys::receive_what_fits(socket.as_fd(), &mut buf));
            if let Ok(received) = received {
                let (count, _unwanted) = received?;
                buf.truncate(count);
                return Ok((count > 0).then_some(buf));
            }
        }
    }
}

impl ProcessWiring {
    /// Creates pipes for the output, and uses the caller's descriptor as the input.
    fn with_input(program: &SessionProgram, input: OwnedFd) -> io::Result<ProcessWiring> {
        let wiring = ProcessWiring::new(&SessionProgram {
            stdin: false,
            terminal: None,
            merged: program.merged,
            ..SessionProgram::default()
        })?;
        let ProcessWiring { mut child_ends, ours, .. } = wiring;
        child_ends.push(input);
        let streams = codec::StreamSetup::Given { merged: program.merged, has_stdin: true };
        Ok(ProcessWiring { streams, child_ends, ours })
    }

    fn new(program: &SessionProgram) -> io::Result<ProcessWiring> {
        if let Some(size) = program.terminal {
            let streams = codec::StreamSetup::Terminal(size);
            return Ok(ProcessWiring { streams, child_ends: Vec::new(), ours: None });
        }
        let mut child_ends = Vec::with_capacity(3);
        let mut output = || -> io::Result<pipe::Receiver> {
            let (read, write) = output_pipe()?;
            child_ends.push(write);
            Ok(read)
        };
        let stdout = output()?;
        let stderr = if program.merged { None } else { Some(output()?) };
        let mut stdin = None;
        if program.stdin {
            let (read, write) = sys::pipe()?;
            sys::set_nonblocking(write.as_fd())?;
            // For the same reason as in `output_pipe`.
            sys::fchmod(read.as_fd(), 0o666)?;
            child_ends.push(read);
            stdin = Some(pipe::Sender::from_owned_fd(write)?);
        }
        let streams =
            codec::StreamSetup::Given { merged: program.merged, has_stdin: program.stdin };
        Ok(ProcessWiring {
            streams,
            child_ends,
            ours: Some(ProcessPipes { stdin, stdout, stderr }),
        })
    }
}

/// Kills a program whose starter was cancelled.
struct UnclaimedProcess<'a> {
    connection: &'a Arc<GuestSessionConnection>,
    id: u64,
    is_claimed: bool,
}

impl Drop for UnclaimedProcess<'_> {
    fn drop(&mut self) {
        if self.is_claimed || !self.connection.waiting.lock().programs.contains_key(&self.id) {
            return;
        }
        let (connection, id) = (Arc::clone(self.connection), self.id);
        tokio::spawn(async move {
            // Sent after the request that starts the program, if that was sent.
            let killed = send_signal(&connection, id, true, KILL).await;
            if killed.is_err_and(|error| is_gone(&error)) {
                // It was not sent, so no end will be reported.
                connection.waiting.lock().programs.remove(&id);
            }
        });
    }
}

/// Starts a program; its standard input is `input`, if there is one.
pub(super) async fn start(
    session: &SandboxedSession,
    program: SessionProgram,
    input: Option<OwnedFd>,
) -> Result<SessionProcess, SandboxError> {
    check(&program)?;
    let connection = &session.0.connection;
    let ProcessWiring { streams, child_ends, ours } = match input {
        Some(input) => ProcessWiring::with_input(&program, input)?,
        None => ProcessWiring::new(&program)?,
    };
    let id = connection.next_id.fetch_add(1, Ordering::Relaxed);
    let start = StartProgram {
        streams,
        directory: program.cwd.as_deref().unwrap_or_default(),
        argv: program.argv.iter().map(Vec::as_slice).collect(),
        env: program.env.iter().map(Vec::as_slice).collect(),
    };
    let mut frame = start.encode(id);
    let mut in_file = None;
    if frame.len() > codec::MESSAGE_BYTES_MAX {
        in_file = Some(sys::memfd(c"cove-program", &frame)?);
        frame = start.encode_in_file(id);
    }
    let (end, ended) = watch::channel(None);
    {
        let mut waiting = connection.waiting.lock();
        if waiting.is_over {
            return Err(OVER);
        }
        // Registered before the program can end.
        waiting.programs.insert(id, RunningProgram { pid: None, end });
    }
    let mut unclaimed = UnclaimedProcess { connection, id, is_claimed: false };
    let (body, fds) = {
        let handles: Vec<BorrowedFd<'_>> =
            child_ends.iter().chain(&in_file).map(AsFd::as_fd).collect();
        connection.request(id, frame, &handles).await?
    };
    // While a copy of a pipe's end is open here, the other end sees no end of file.
    drop(child_ends);
    let pid = MessageReader(&body).u32()?;
    let (streams, terminal) = match ours {
        Some(pipes) => (ProcessStreams::Pipes(pipes), None),
        None => {
            let terminal = ProcessTerminal::new(one(fds)?)?;
            (ProcessStreams::Terminal(terminal.clone()), Some(terminal))
        }
    };
    unclaimed.is_claimed = true;
    let connection = Arc::clone(connection);
    Ok(SessionProcess {
        pid,
        streams,
        handle: ProcessHandle { connection, id, pid, terminal, end: ended },
    })
}

/// Rejects a program that cannot be started as specified.
fn check(program: &SessionProgram) -> Result<(), SandboxError> {
    let strings = || program.argv.iter().chain(&program.env);
    if program.argv.is_empty() {
        return Err(SandboxError::Command("argv: it names no program"));
    }
    if strings().chain(&program.cwd).any(|string| string.contains(&0)) {
        return Err(SandboxError::Command("argv, env and cwd: they have no NUL bytes"));
    }
    let bytes: usize = strings().map(|string| string.len() + 1).sum();
    if bytes > ARGUMENTS_BYTES_MAX {
        return Err(SandboxError::Command("argv and env: together at most 4 MiB"));
    }
    Ok(())
}
