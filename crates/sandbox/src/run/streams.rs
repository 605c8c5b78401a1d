//! The standard streams of one program, on the server's side: reads the program's output, limits it
//! and passes it to the sink; writes the program's input while the program accepts it.
//!
//! Never blocks on a program or a sink, and never holds more than one chunk of either.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::codec::StreamSetup;
use crate::spec::{
    ChunkStream, OutputMode, OutputSink, SandboxCommand, StdinSource, TerminalDimensions,
};
use crate::sys;

/// Bytes read from a pipe at a time: half of a pipe's capacity, so that one side can fill while the
/// other empties.
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes read the first time: most programs write a line or two, and a larger buffer costs page
/// faults.
const FIRST_CHUNK_BYTES: usize = 4 << 10;

/// The server's side of a terminal.
#[derive(Clone, Debug)]
pub(super) struct ServerTerminal(Arc<AsyncFd<OwnedFd>>);

impl ServerTerminal {
    pub(super) fn new(fd: OwnedFd) -> io::Result<ServerTerminal> {
        Ok(ServerTerminal(Arc::new(sys::watch(fd)?)))
    }

    pub(super) fn resize(&self, size: TerminalDimensions) -> io::Result<()> {
        sys::set_terminal_size(self.0.as_fd(), size.rows, size.cols)
    }
}

/// Source of output.
#[derive(Debug)]
enum ChunkSource {
    Pipe(pipe::Receiver),
    Terminal(ServerTerminal),
}

/// A captured stream.
#[derive(Debug)]
pub(super) struct StreamCapture {
    pub(super) stream: ChunkStream,
    /// None at the end of the stream.
    source: Option<ChunkSource>,
    /// Buffer with the last read in its first `filled` bytes. It is zeroed once.
    room: Vec<u8>,
    filled: usize,
    kept: Vec<u8>,
    /// Maximum of bytes that are kept, and of bytes that the sink receives.
    kept_max: u64,
    max: u64,
    /// Bytes that the program wrote, kept or not.
    seen: u64,
    /// Reading was stopped while the stream had unread output.
    cut: bool,
}

impl StreamCapture {
    fn new(stream: ChunkStream, command: &SandboxCommand) -> StreamCapture {
        let max = command.limits.output_bytes;
        let kept_max = command.kept_bytes.map_or(max, |kept| kept.min(max));
        StreamCapture {
            stream,
            source: None,
            room: Vec::new(),
            filled: 0,
            kept: Vec::new(),
            kept_max,
            max,
            seen: 0,
            cut: false,
        }
    }

    /// Captures from a new pipe; returns its write end.
    fn open_pipe(&mut self) -> io::Result<OwnedFd> {
        let (read, write) = sys::pipe()?;
        self.adopt_pipe(read)?;
        Ok(write)
    }

    /// Captures from an existing pipe.
    fn adopt_pipe(&mut self, read: OwnedFd) -> io::Result<()> {
        sys::set_nonblocking(read.as_fd())?;
        self.source = Some(ChunkSource::Pipe(pipe::Receiver::from_owned_fd(read)?));
        Ok(())
    }

    pub(super) fn open_terminal(&mut self, terminal: ServerTerminal) {
        self.source = Some(ChunkSource::Terminal(terminal));
    }

    pub(super) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Returns whether the program wrote more than its limit.
    pub(super) fn is_above_limit(&self) -> bool {
        self.seen > self.max
    }

    /// Returns whether the program wrote more than `slack_bytes` beyond the limit.
    pub(super) fn floods(&self, slack_bytes: u64) -> bool {
        self.seen > self.max.saturating_add(slack_bytes)
    }

    /// Returns whether the sink receives the next bytes, so that it must be ready for them.
    fn needs_sink(&self) -> bool {
        self.is_open() && self.seen < self.max
    }

    /// Reads the bytes that are available. Takes nothing before the stream is ready.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Room for a first small output; more once a program shows that it writes much.
        let room = if self.seen == 0 { FIRST_CHUNK_BYTES } else { CHUNK_BYTES };
        if self.room.len() < room {
            self.room.resize(room, 0);
        }
        self.filled = 0;
        match &mut self.source {
            Some(ChunkSource::Pipe(pipe)) => {
                let mut room = ReadBuf::new(&mut self.room);
                ready!(Pin::new(pipe).poll_read(cx, &mut room))?;
                self.filled = room.filled().len();
            }
            Some(ChunkSource::Terminal(terminal)) => {
                self.filled = ready!(poll_terminal(terminal, &mut self.room, cx))?;
            }
            None => {}
        }
        Poll::Ready(Ok(()))
    }

    /// Processes the last read: zero bytes are the end of the stream.
    pub(super) fn take(&mut self, sink: &mut dyn OutputSink) {
        if self.filled == 0 {
            self.source = None;
            return;
        }
        let chunk = self.room.get(..self.filled).unwrap_or(&[]);
        let within = up_to(chunk, self.max.saturating_sub(self.seen));
        if !within.is_empty() {
            sink.chunk(self.stream, within);
            let room = self.kept_max.saturating_sub(self.kept.len() as u64);
            self.kept.extend_from_slice(up_to(within, room));
        }
        self.seen += chunk.len() as u64;
    }

    /// Stops reading, and records whether unread output remains.
    pub(super) fn give_up(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        if self.is_open() && matches!(self.poll_read(&mut nobody), Poll::Ready(Ok(()))) {
            self.cut |= self.filled > 0;
        }
        self.source = None;
    }

    /// Returns the kept bytes, and whether they are incomplete.
    pub(super) fn finish(self) -> (Vec<u8>, bool) {
        (self.kept, self.seen > self.max || self.cut)
    }
}

/// Returns the first bytes, at most `room`.
fn up_to(bytes: &[u8], room: u64) -> &[u8] {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    bytes.get(..room.min(bytes.len())).unwrap_or(bytes)
}

fn poll_terminal(
    terminal: &ServerTerminal,
    room: &mut [u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = ready!(terminal.0.poll_read_ready(cx))?;
        let is_closed = guard.ready().is_read_closed();
        match guard.try_io(|fd| sys::read(fd.as_fd(), room)) {
            // Every process that had the other side has closed it.
            Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Poll::Ready(Ok(0)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(read) => return Poll::Ready(read),
            // The terminal was opened again after that. The runtime never clears a hang-up, so
            // waiting would spin.
            Err(_would_block) if is_closed => return Poll::Ready(Ok(0)),
            Err(_would_block) => {}
        }
    }
}

/// Both captured streams.
#[derive(Debug)]
pub(super) struct CapturedStreams {
    pub(super) stdout: StreamCapture,
    pub(super) stderr: StreamCapture,
}

impl CapturedStreams {
    pub(super) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    pub(super) fn is_above_limit(&self) -> bool {
        self.stdout.is_above_limit() || self.stderr.is_above_limit()
    }

    /// Returns whether a sink that is not ready would hold up the rest.
    pub(super) fn needs_sink(&self) -> bool {
        self.stdout.needs_sink() || self.stderr.needs_sink()
    }

    pub(super) fn of(&mut self, stream: ChunkStream) -> &mut StreamCapture {
        match stream {
            ChunkStream::Stdout => &mut self.stdout,
            ChunkStream::Stderr => &mut self.stderr,
        }
    }

    /// Reads from a stream that has output, if the sink is ready for the bytes or does not need
    /// them. Otherwise the bytes stay in the pipe, and the program blocks once it is full.
    pub(super) fn poll_read(
        &mut self,
        sink: &mut dyn OutputSink,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ChunkStream>> {
        let has_room = !self.needs_sink() || sink.poll_ready(cx).is_ready();
        for capture in [&mut self.stdout, &mut self.stderr] {
            if capture.is_open()
                && (has_room || !capture.needs_sink())
                && let Poll::Ready(read) = capture.poll_read(cx)
            {
                return Poll::Ready(read.map(|()| capture.stream));
            }
        }
        Poll::Pending
    }
}

/// Destination of input.
#[derive(Debug)]
enum InputSink {
    Pipe(pipe::Sender),
    Terminal(ServerTerminal),
}

impl InputSink {
    /// Writes some of the bytes. Cancel-safe: the bytes are written at once or not at all.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            InputSink::Pipe(pipe) => pipe.write(bytes).await,
            InputSink::Terminal(ServerTerminal(fd)) => loop {
                let mut guard = fd.writable().await?;
                let is_closed = guard.ready().is_write_closed();
                match guard.try_io(|fd| sys::write(fd.as_fd(), bytes)) {
                    Ok(written) => return written,
                    // A terminal whose other side is closed accepts bytes until its buffer is full,
                    // and reports no error.
                    Err(_would_block) if is_closed => {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    Err(_would_block) => {}
                }
            },
        }
    }
}

/// Input that is still to be written to the program's standard input.
#[derive(Debug)]
pub(super) struct PendingStdin {
    /// None when the program's input has ended, or when it is read no longer.
    entrance: Option<InputSink>,
    pending: Vec<u8>,
    written: usize,
    live: Option<mpsc::Receiver<Vec<u8>>>,
    /// Whether the last byte ended a line, or there was none.
    at_line_start: bool,
    /// Whether the end-of-file character has been written to the terminal.
    ended: bool,
}

impl PendingStdin {
    fn new(pending: Vec<u8>, live: Option<mpsc::Receiver<Vec<u8>>>) -> PendingStdin {
        let mut input = PendingStdin {
            entrance: None,
            pending: Vec::new(),
            written: 0,
            live,
            at_line_start: true,
            ended: false,
        };
        input.take_chunk(pending);
        input
    }

    pub(super) fn open_terminal(&mut self, terminal: ServerTerminal) {
        self.entrance = Some(InputSink::Terminal(terminal));
    }

    fn take_chunk(&mut self, chunk: Vec<u8>) {
        self.at_line_start = chunk.last().map_or(self.at_line_start, |last| *last == b'\n');
        (self.pending, self.written) = (chunk, 0);
    }

    /// Writes until another chunk has arrived; never returns when everything is written or the
    /// input is no longer read. Cancel-safe: written bytes are recorded before the next wait.
    pub(super) async fn feed(&mut self) {
        while let Some(entrance) = &mut self.entrance {
            let rest = self.pending.get(self.written..).unwrap_or(&[]);
            if !rest.is_empty() {
                match entrance.write(rest).await {
                    Ok(n) => self.written += n,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The program has closed its input or ended, which is not an error.
                    Err(_) => self.entrance = None,
                }
                continue;
            }
            if let Some(live) = &mut self.live {
                match live.recv().await {
                    // Returns before the chunk is written: the caller's loop first looks at earlier
                    // requests.
                    Some(chunk) => return self.take_chunk(chunk),
                    None => self.live = None,
                }
                continue;
            }
            self.end();
        }
        std::future::pending::<()>().await;
    }

    /// Ends the input once everything is written. A pipe is closed; on a terminal, the end-of-file
    /// character is written, as if typed, because closing our side would close the program's output
    /// as well.
    fn end(&mut self) {
        let Some(InputSink::Terminal(ServerTerminal(fd))) = &self.entrance else {
            self.entrance = None;
            return;
        };
        match sys::terminal_eof(fd.as_fd()) {
            Ok(Some(eof)) if !self.ended => {
                // On a line that was begun, the first character only ends the line; at the start of
                // a line it is the end of input.
                let times = if self.at_line_start { 1 } else { 2 };
                self.ended = true;
                self.take_chunk(vec![eof; times]);
            }
            _ => self.entrance = None,
        }
    }
}

/// The streams of a command: the program's ends and the server's ends.
#[derive(Debug)]
pub(super) struct CommandWiring {
    pub(super) streams: StreamSetup,
    /// The program's ends: those of `streams`, then the further ones.
    pub(super) child_ends: Vec<OwnedFd>,
    pub(super) captured: CapturedStreams,
    pub(super) input: PendingStdin,
}

impl CommandWiring {
    /// Creates the pipes of a command that was checked, and takes the streams out of the command.
    ///
    /// `waiting` has our ends of existing streams, for a command that runs in the runtime that has
    /// the other ends.
    pub(super) fn new(
        command: &mut SandboxCommand,
        waiting: Vec<OwnedFd>,
    ) -> io::Result<CommandWiring> {
        let stdout = StreamCapture::new(ChunkStream::Stdout, command);
        let stderr = StreamCapture::new(ChunkStream::Stderr, command);
        let (bytes, live, read) = match std::mem::take(&mut command.stdin) {
            StdinSource::Empty => (Vec::new(), None, None),
            StdinSource::Bytes(bytes) => (bytes, None, None),
            StdinSource::Live(receiver) => (Vec::new(), Some(receiver), None),
            StdinSource::Handle(read) => (Vec::new(), None, Some(read)),
        };
        let mut wiring = CommandWiring {
            // Replaced below, unless the streams exist already.
            streams: StreamSetup::Given { merged: false, has_stdin: false },
            child_ends: Vec::new(),
            captured: CapturedStreams { stdout, stderr },
            input: PendingStdin::new(bytes, live),
        };
        wiring.streams = match command.terminal {
            Some(size) => StreamSetup::Terminal(size),
            None => match <[OwnedFd; 3]>::try_from(waiting) {
                Ok(ends) if takes_waiting(command, read.is_some()) => wiring.adopt_pipes(ends)?,
                _ => wiring.open_pipes(command, read)?,
            },
        };
        wiring.child_ends.extend(command.extra.drain(..).map(|(_, fd)| fd));
        for fd in &wiring.child_ends {
            // Lets the program open its own /dev/stdout: pipes have an owner, which is not the
            // program's user, and two programs can share one. No other process can reach the pipe
            // by a path.
            if sys::is_pipe(fd.as_fd())? {
                sys::fchmod(fd.as_fd(), 0o666)?;
            }
        }
        Ok(wiring)
    }

    fn adopt_pipes(&mut self, [input, output, errors]: [OwnedFd; 3]) -> io::Result<StreamSetup> {
        self.captured.stdout.adopt_pipe(output)?;
        self.captured.stderr.adopt_pipe(errors)?;
        if !self.input.pending.is_empty() || self.input.live.is_some() {
            sys::set_nonblocking(input.as_fd())?;
            self.input.entrance = Some(InputSink::Pipe(pipe::Sender::from_owned_fd(input)?));
        }
        Ok(StreamSetup::Waiting)
    }

    fn open_pipes(
        &mut self,
        command: &mut SandboxCommand,
        read: Option<OwnedFd>,
    ) -> io::Result<StreamSetup> {
        let mut output =
            |output: &mut OutputMode, capture: &mut StreamCapture| -> io::Result<bool> {
                self.child_ends.push(match std::mem::take(output) {
                    OutputMode::Capture => capture.open_pipe()?,
                    OutputMode::Handle(write) => write,
                    OutputMode::Stdout => return Ok(true),
                });
                Ok(false)
            };
        output(&mut command.stdout, &mut self.captured.stdout)?;
        let merged = output(&mut command.stderr, &mut self.captured.stderr)?;
        let has_stdin = if let Some(read) = read {
            self.child_ends.push(read);
            true
        } else if self.input.pending.is_empty() && self.input.live.is_none() {
            false
        } else {
            let (read, write) = sys::pipe()?;
            sys::set_nonblocking(write.as_fd())?;
            self.input.entrance = Some(InputSink::Pipe(pipe::Sender::from_owned_fd(write)?));
            self.child_ends.push(read);
            true
        };
        Ok(StreamSetup::Given { merged, has_stdin })
    }
}

/// Returns whether a command can use streams that were made before it was known.
fn takes_waiting(command: &SandboxCommand, has_handle: bool) -> bool {
    let captured = |output: &OutputMode| matches!(output, OutputMode::Capture);
    command.warm
        && captured(&command.stdout)
        && captured(&command.stderr)
        && command.extra.is_empty()
        && !has_handle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ProgramLimits;

    /// A sink that keeps its bytes.
    #[derive(Default)]
    struct Kept(Vec<u8>);

    impl OutputSink for Kept {
        fn chunk(&mut self, _stream: ChunkStream, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }

    /// Returns the bytes that are kept, those that the sink received, and whether they are
    /// incomplete.
    fn capture(max: u64, kept: Option<u64>, chunks: &[&[u8]]) -> (Vec<u8>, Vec<u8>, bool) {
        let limits = ProgramLimits { output_bytes: max, ..ProgramLimits::default() };
        let command = SandboxCommand { limits, kept_bytes: kept, ..SandboxCommand::default() };
        let mut capture = StreamCapture::new(ChunkStream::Stdout, &command);
        let mut sink = Kept::default();
        for chunk in chunks {
            capture.room = chunk.to_vec();
            capture.filled = chunk.len();
            capture.take(&mut sink);
        }
        let (kept, truncated) = capture.finish();
        (kept, sink.0, truncated)
    }

    #[test]
    fn what_is_kept_and_what_is_given_have_limits_of_their_own() {
        let all = |s: &str| s.as_bytes().to_vec();
        let chunks: &[&[u8]] = &[b"ab", b"cd", b"ef"];
        assert_eq!(capture(9, None, chunks), (all("abcdef"), all("abcdef"), false));
        assert_eq!(capture(6, Some(9), chunks), (all("abcdef"), all("abcdef"), false));
        assert_eq!(capture(5, None, chunks), (all("abcde"), all("abcde"), true));
        assert_eq!(capture(9, Some(3), chunks), (all("abc"), all("abcdef"), false));
        assert_eq!(capture(5, Some(0), chunks), (all(""), all("abcde"), true));
        assert_eq!(capture(0, None, chunks), (all(""), all(""), true));
    }
}
