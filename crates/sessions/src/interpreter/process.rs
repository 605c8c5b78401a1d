//! The process of a context: started as a program of the session, or forked by the parked
//! interpreter.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use node::http::{Share, ShareOwner, Shares};
use sandbox::{ProcessHandle, ProcessStreams, SandboxedSession, SessionProgram, output_pipe};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time;

use super::frames::{ContextFrame, ContextFrameError, FrameReader, SMALL_FRAME_BYTES_MAX};
use super::languages::{ContextStart, copy_request};
use super::parked::{ContextExit, ForkedContext, ParkedInterpreter};
use crate::error::SessionError;

/// Longest time for the start of a context: an interpreter on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a killed context to end.
const KILL_MAX: Duration = Duration::from_secs(3);
/// Longest time for a long line to arrive, once it has a place.
const LONG_FRAME_MAX: Duration = Duration::from_secs(30);
/// Interval of attempts to get a place.
const PLACE_EVERY: Duration = Duration::from_millis(10);
/// Bytes per read of the socket.
const READ_BYTES: usize = 64 << 10;
/// Reads that discard output from before the first cell.
const BEFORE_FIRST_READS_MAX: usize = 4;
/// Longest wait for a context to fork itself.
const COPY_MAX: Duration = Duration::from_secs(20);
/// Characters kept of a reason that a context gives.
const REASON_CHARS_MAX: usize = 600;
/// Error of forking a context that was not forked from the parked interpreter.
const NOT_FORKED: &str = "the context cannot be forked: no interpreter is parked in this sandbox \
    that would be the parent of a copy, because its libraries start threads or it has too little \
    memory (limits.memory_bytes); `cove doctor` names the libraries";
/// Signal that interrupts a cell.
const SIGINT: i32 = 2;
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

/// Controls the process of a context.
#[derive(Clone, Debug)]
pub(super) enum ContextControl {
    /// A program of the session.
    Started(ProcessHandle),
    /// A copy of the parked interpreter.
    Forked(ForkedContext),
}

/// Why a context has not been copied.
#[derive(Debug)]
pub(super) enum CopyFailure {
    /// The original continues unchanged.
    Refused(SessionError),
    /// The original's process did not answer, and has been ended.
    Ended(SessionError),
}

/// The process of a context.
#[derive(Debug)]
pub(super) struct ContextProcess {
    pub(super) frames: FrameSource,
    pub(super) requests: OwnedWriteHalf,
    pub(super) stdout: OutputPipe,
    pub(super) stderr: OutputPipe,
    pub(super) control: ContextControl,
}

/// Output stream of a context: standard output or standard error.
#[derive(Debug)]
pub(super) struct OutputPipe {
    pipe: pipe::Receiver,
    /// The same pipe, read directly: the runtime may not have noticed yet what the context wrote
    /// before a frame.
    now: File,
    buf: Vec<u8>,
    text: TextDecoder,
}

/// Decodes text that arrives in parts, which may split a character.
#[derive(Debug, Default)]
struct TextDecoder {
    /// Bytes of an incomplete character.
    rest: Vec<u8>,
}

impl TextDecoder {
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let cut = match std::str::from_utf8(&all) {
            // Incomplete rather than invalid.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Text before the last character may be invalid, and is replaced.
            Err(_) => all.len() - incomplete_tail(&all),
            Ok(_) => all.len(),
        };
        let (whole, rest) = all.split_at(cut);
        self.rest = rest.to_vec();
        String::from_utf8_lossy(whole).into_owned()
    }
}

/// Returns how many bytes at the end form an incomplete character.
fn incomplete_tail(bytes: &[u8]) -> usize {
    // A character has at most four bytes.
    (1..=bytes.len().min(3))
        .find(|count| {
            let tail = bytes.get(bytes.len() - count..).unwrap_or_default();
            let is_start = tail.first().is_some_and(|byte| *byte >= 0xC0);
            is_start
                && std::str::from_utf8(tail)
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

impl OutputPipe {
    fn new(pipe: pipe::Receiver) -> io::Result<OutputPipe> {
        let now = File::from(pipe.as_fd().try_clone_to_owned()?);
        Ok(OutputPipe { pipe, now, buf: vec![0; READ_BYTES], text: TextDecoder::default() })
    }

    /// Returns the next text; none at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            let count = match self.pipe.read(&mut self.buf).await {
                Ok(count @ 1..) => count,
                Ok(_) | Err(_) => return None,
            };
            let text = self.text.decode(self.buf.get(..count).unwrap_or_default());
            if !text.is_empty() {
                return Some(text);
            }
        }
    }

    /// Returns text that is in the pipe now, at most one buffer; none if the pipe is empty.
    pub(super) fn now(&mut self) -> Option<String> {
        match self.now.read(&mut self.buf) {
            Ok(count @ 1..) => Some(self.text.decode(self.buf.get(..count).unwrap_or_default())),
            Ok(_) | Err(_) => None,
        }
    }
}

/// The frames of a context.
#[derive(Debug)]
pub(super) struct FrameSource {
    socket: OwnedReadHalf,
    reader: FrameReader,
    buf: Vec<u8>,
    memory: FrameMemory,
    /// Place for a long line that is arriving, and the deadline for its end.
    place: Option<(Share, time::Instant)>,
}

/// A tenant's places for long lines: each occupies server memory until its caller has taken it.
#[derive(Clone, Debug)]
pub(crate) struct FrameMemory {
    pub(crate) places: Arc<Shares>,
    pub(crate) owner: ShareOwner,
}

/// Why there are no more frames.
#[derive(Debug)]
pub(super) enum FramesOver {
    /// The process has closed its end.
    Closed,
    /// The process has written data that violates the protocol.
    Malformed(ContextFrameError),
}

impl FrameSource {
    /// Returns the next frame, with its place if it is long. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<(ContextFrame, Option<Share>), FramesOver> {
        loop {
            if let Some(frame) = self.reader.next().map_err(FramesOver::Malformed)? {
                return Ok((frame, self.place.take().map(|(share, _)| share)));
            }
            if self.reader.pending_bytes() > SMALL_FRAME_BYTES_MAX && self.place.is_none() {
                let share = self.memory.places.take(self.memory.owner.clone(), 1);
                let Ok(share) = share else {
                    time::sleep(PLACE_EVERY).await;
                    continue;
                };
                self.place = Some((share, time::Instant::now() + LONG_FRAME_MAX));
            }
            let reading = self.socket.read(&mut self.buf);
            let read = match &self.place {
                None => reading.await,
                Some((_, until)) => match time::timeout_at(*until, reading).await {
                    Ok(read) => read,
                    Err(_) => return Err(FramesOver::Malformed(ContextFrameError::TooSlow)),
                },
            };
            let count = match read {
                Ok(count @ 1..) => count,
                Ok(_) | Err(_) => return Err(FramesOver::Closed),
            };
            let bytes = self.buf.get(..count).unwrap_or_default();
            self.reader.push(bytes).map_err(FramesOver::Malformed)?;
        }
    }
}

impl FrameSource {
    /// Returns whether a long line has arrived in part.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.reader.pending_bytes() > SMALL_FRAME_BYTES_MAX
    }
}

impl ContextControl {
    /// Interrupts the running cell.
    pub(super) async fn interrupt(&self) {
        self.signal(SIGINT).await;
    }

    /// Kills the process.
    pub(super) async fn kill(&self) {
        self.signal(SIGKILL).await;
        if time::timeout(KILL_MAX, self.exit()).await.is_err()
            && let ContextControl::Forked(forked) = self
        {
            // A parked interpreter that does not forward signals is stopped, or programs have
            // tampered with it.
            forked.kill_parent().await;
        }
    }

    async fn signal(&self, signal: i32) {
        match self {
            // A process that has ended needs no signal.
            ContextControl::Started(handle) => drop(handle.signal(signal).await),
            ContextControl::Forked(forked) => forked.signal(signal).await,
        }
    }

    /// Waits for the end of the process.
    pub(super) async fn exit(&self) -> ContextExit {
        match self {
            ContextControl::Forked(forked) => forked.exit().await,
            ContextControl::Started(handle) => match handle.clone().wait().await {
                Ok(end) => match (end.exec_errno, end.code, end.signal) {
                    (Some(errno), _, _) => {
                        let error = io::Error::from_raw_os_error(errno);
                        ContextExit::NotStarted(error.to_string())
                    }
                    (None, Some(code), _) => ContextExit::Code(code),
                    (None, None, Some(signal)) => ContextExit::Signal(signal),
                    (None, None, None) => ContextExit::Unknown,
                },
                Err(_) => ContextExit::Unknown,
            },
        }
    }
}

impl ContextProcess {
    /// Starts a context as its own program.
    ///
    /// # Errors
    /// If its program is missing or fails, or the sandbox has ended.
    pub(super) async fn start(
        sandbox: &SandboxedSession,
        memory: FrameMemory,
        start: &ContextStart,
    ) -> Result<ContextProcess, SessionError> {
        let (ours, theirs) = socket_pair()?;
        let env = start.env.iter().map(|(name, value)| format!("{name}={value}").into_bytes());
        let program = SessionProgram {
            argv: start.language.argv(),
            env: env.collect(),
            ..SessionProgram::default()
        };
        let process = sandbox.start_with_input(program, theirs).await?;
        let ProcessStreams::Pipes(pipes) = process.streams else {
            return Err(SessionError::internal("a program without terminal has pipes"));
        };
        let Some(stderr) = pipes.stderr else {
            return Err(SessionError::internal("a program that is not merged has two pipes"));
        };
        let control = ContextControl::Started(process.handle);
        let mut made = ContextProcess::over(ours, memory, [pipes.stdout, stderr], control)?;
        // The greeting is longer than the socket buffer, so the process must read it while it
        // starts.
        let greeting = start.greeting();
        let written = time::timeout(READY_MAX, made.requests.write_all(&greeting)).await;
        if !matches!(written, Ok(Ok(()))) {
            return Err(made.failure(start).await);
        }
        made.wait_until_ready(start).await
    }

    /// Forks a context from the parked interpreter.
    ///
    /// # Errors
    /// If it has ended, or the context fails.
    pub(super) async fn fork(
        parked: &Arc<ParkedInterpreter>,
        memory: FrameMemory,
        start: &ContextStart,
    ) -> Result<ContextProcess, SessionError> {
        let (ours, theirs) = socket_pair()?;
        let (stdout, out) = output_pipe().map_err(SessionError::internal)?;
        let (stderr, err) = output_pipe().map_err(SessionError::internal)?;
        let forked = parked.fork(start, [theirs, out, err]).await?;
        let control = ContextControl::Forked(forked);
        ContextProcess::over(ours, memory, [stdout, stderr], control)?.wait_until_ready(start).await
    }

    /// Makes the process fork itself, between two cells. Not cancel-safe: its answer would be
    /// mistaken for the answer to the next request.
    ///
    /// # Errors
    /// If it refuses because it has running threads; if it was not forked itself, or ends.
    pub(super) async fn copy(
        &mut self,
        memory: FrameMemory,
        force: bool,
    ) -> Result<ContextProcess, CopyFailure> {
        let ContextControl::Forked(origin) = &self.control else {
            return Err(CopyFailure::Refused(SessionError::Conflict(NOT_FORKED.to_owned())));
        };
        let copy = origin.expect_copy().map_err(CopyFailure::Ended)?;
        let made = match self.ask_for_copy(memory, &copy, force).await {
            Ok(made) => made.become_copy(&copy).await.map_err(CopyFailure::Refused),
            Err(failure) => Err(failure),
        };
        if made.is_err() {
            copy.forget();
        }
        made
    }

    /// Waits for the first frame of a copy, and adopts it. An abandoned copy ends when its socket
    /// closes.
    async fn become_copy(mut self, copy: &ForkedContext) -> Result<ContextProcess, SessionError> {
        match time::timeout(COPY_MAX, self.frames.next()).await {
            Ok(Ok((ContextFrame::Ready(Some(pid)), _))) => {
                copy.adopt(pid).await?;
                Ok(self)
            }
            _ => Err(SessionError::Conflict(
                "the context cannot be forked: the copy ended, or was too slow, before it was \
                 ready; give the session more memory (limits.memory_bytes) if it needs more"
                    .to_owned(),
            )),
        }
    }

    async fn ask_for_copy(
        &mut self,
        memory: FrameMemory,
        copy: &ForkedContext,
        force: bool,
    ) -> Result<ContextProcess, CopyFailure> {
        let internal = |error: io::Error| CopyFailure::Refused(SessionError::internal(error));
        let (ours, theirs) = socket_pair().map_err(CopyFailure::Refused)?;
        let (stdout, out) = output_pipe().map_err(internal)?;
        let (stderr, err) = output_pipe().map_err(internal)?;
        let control = ContextControl::Forked(copy.clone());
        let made = ContextProcess::over(ours, memory, [stdout, stderr], control)
            .map_err(CopyFailure::Refused)?;
        let fds = [theirs, out, err];
        let borrowed = fds.each_ref().map(|fd| fd.as_fd());
        let (request, stream) = (copy_request(force), self.requests.as_ref());
        let sending = stream.async_io(Interest::WRITABLE, || {
            sandbox::send_with_descriptors(stream.as_fd(), &request, &borrowed)
        });
        let answering = async {
            sending.await.ok()?;
            loop {
                match self.frames.next().await.ok()?.0 {
                    ContextFrame::Forked => return Some(Ok(())),
                    ContextFrame::Failed(why) => return Some(Err(why)),
                    // Belongs to a cell that has ended.
                    ContextFrame::Ready(_)
                    | ContextFrame::Running
                    | ContextFrame::Result(_)
                    | ContextFrame::Error(_)
                    | ContextFrame::Done(_) => {}
                }
            }
        };
        match time::timeout(COPY_MAX, answering).await {
            Ok(Some(Ok(()))) => Ok(made),
            Ok(Some(Err(why))) => {
                Err(CopyFailure::Refused(SessionError::Conflict(copy_refusal(&why))))
            }
            Ok(None) | Err(_) => {
                self.control.kill().await;
                let why = "the context's process has ended, or did not answer when it was to be \
                    forked and was killed; its next cell starts a new one";
                Err(CopyFailure::Ended(SessionError::Conflict(why.to_owned())))
            }
        }
    }

    fn over(
        socket: UnixStream,
        memory: FrameMemory,
        pipes: [pipe::Receiver; 2],
        control: ContextControl,
    ) -> Result<ContextProcess, SessionError> {
        let [stdout, stderr] = pipes;
        let made = OutputPipe::new(stdout).and_then(|out| Ok((out, OutputPipe::new(stderr)?)));
        let (stdout, stderr) = made.map_err(SessionError::internal)?;
        let (socket, requests) = socket.into_split();
        let frames = FrameSource {
            socket,
            reader: FrameReader::default(),
            buf: vec![0; READ_BYTES],
            memory,
            place: None,
        };
        Ok(ContextProcess { frames, requests, stdout, stderr, control })
    }

    /// Waits for the first frame.
    async fn wait_until_ready(
        mut self,
        start: &ContextStart,
    ) -> Result<ContextProcess, SessionError> {
        match time::timeout(READY_MAX, self.frames.next()).await {
            Ok(Ok((ContextFrame::Ready(_), _))) => {
                // Discards the shell's warnings about the missing terminal.
                for pipe in [&mut self.stdout, &mut self.stderr] {
                    let _greeting = (0..BEFORE_FIRST_READS_MAX).find(|_| pipe.now().is_none());
                }
                Ok(self)
            }
            Ok(Ok((ContextFrame::Failed(message), _))) => {
                self.control.kill().await;
                match message.strip_prefix("cwd: ") {
                    Some(why) => Err(SessionError::invalid("cwd", why)),
                    None => Err(SessionError::Conflict(message)),
                }
            }
            _ => Err(self.failure(start).await),
        }
    }

    /// Ends a process that did not become a context, and returns the reason.
    async fn failure(&self, start: &ContextStart) -> SessionError {
        let exit = match time::timeout(KILL_MAX, self.control.exit()).await {
            Ok(exit) => exit,
            Err(_) => {
                self.control.kill().await;
                ContextExit::Unknown
            }
        };
        let (language, program) = (start.language.as_str(), start.language.program());
        SessionError::Conflict(match exit {
            // The shell that starts Node.js exits with 127.
            ContextExit::NotStarted(_) | ContextExit::Code(127) => {
                format!("contexts of {language} need `{program}`, which the session has not")
            }
            ContextExit::Signal(SIGKILL) => format!(
                "the context was killed before it was ready; give the session more memory \
                 (limits.memory_bytes) if `{program}` needs more"
            ),
            ContextExit::Code(_) | ContextExit::Signal(_) | ContextExit::Unknown => {
                format!("`{program}` ended, or was too slow, before the context was ready")
            }
        })
    }
}

/// Explains why a context cannot be forked, with a remedy.
fn copy_refusal(why: &str) -> String {
    let why: String = why.chars().take(REASON_CHARS_MAX).collect();
    let Some(threads) = why.strip_prefix("threads: ") else {
        return format!("the context cannot be forked: {why}");
    };
    format!(
        "the context cannot be forked: {threads}. A thread is not copied, and a lock that it holds \
         stays locked in the copy: end the threads (libraries for linear algebra start none with \
         `OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1` in the context's `env`), or ask with `force`"
    )
}

/// Creates a connected pair of sockets: the server's non-blocking end, and the context's.
fn socket_pair() -> Result<(UnixStream, OwnedFd), SessionError> {
    let make = || -> io::Result<(UnixStream, OwnedFd)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, OwnedFd::from(theirs)))
    };
    make().map_err(SessionError::internal)
}

#[cfg(test)]
mod tests {
    //! Decoding text in parts.

    use super::*;

    #[test]
    fn characters_are_whole_however_they_arrive() {
        let text = "a\u{e4}\u{20ac}\u{1f600}\nz";
        for cut in 1..6 {
            let mut decoder = TextDecoder::default();
            let all: String = text.as_bytes().chunks(cut).map(|it| decoder.decode(it)).collect();
            assert_eq!(all, text, "{cut}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_and_kept_for_no_longer_than_a_character() {
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.decode(b"\xff\xfe!"), "\u{fffd}\u{fffd}!");
        assert_eq!(decoder.decode(b"\xff\xe2\x82"), "\u{fffd}");
        assert_eq!(decoder.decode(b"\xac"), "\u{20ac}");
        for _ in 0..100 {
            decoder.decode(b"\xf0\x9f");
            assert!(decoder.rest.len() < 4);
        }
    }
}
