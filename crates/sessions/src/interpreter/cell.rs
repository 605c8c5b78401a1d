//! One cell: its output, its limits and its end.

use std::time::{Duration, Instant};

use api::{CellEnd, CellEvent, CellFailure, Verdict};
use node::clock;
use node::http::Share;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time;

use super::frames::{CellFigures, ContextFrame, ContextFrameError};
use super::interrupts::{InterruptGate, InterruptRequest};
use super::parked::ContextExit;
use super::process::{ContextProcess, FramesOver, OutputPipe};
use crate::program_end::signal_name;
use crate::service::SandboxGuard;

/// Maximum bytes of output and results of one cell.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Grace period of an interrupted cell before its context is killed.
const INTERRUPT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for a context whose socket is closed to end, and then for its sandbox.
const EXIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait to send the end of a cell to a slow caller after its time limit.
const LAST_EVENT_MAX: Duration = Duration::from_secs(5);
/// Pieces of output read before a frame that was written after them.
const PIECES_BEFORE_FRAME_MAX: usize = 64;
/// The signal with which the kernel kills a process when memory runs out.
const SIGKILL: i32 = 9;

/// Events of a running cell. Dropping this interrupts the cell.
#[derive(Debug)]
pub(crate) struct CellStream {
    pub(super) events: mpsc::Receiver<CellMessage>,
}

/// Event on its way to the caller, with its place if it is long.
#[derive(Debug)]
pub(super) struct CellMessage {
    pub(super) event: CellEvent,
    pub(super) _place: Option<Share>,
}

impl From<CellEvent> for CellMessage {
    fn from(event: CellEvent) -> CellMessage {
        CellMessage { event, _place: None }
    }
}

impl CellStream {
    /// Returns the next event; none after [`CellEvent::Ended`], or if the sandbox has ended.
    pub(crate) async fn next(&mut self) -> Option<CellEvent> {
        self.events.recv().await.map(|message| message.event)
    }
}

/// Why a cell is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellStop {
    TimeUp,
    OutputFull,
    ClientGone,
}

/// End of a cell's execution.
#[derive(Debug)]
enum CellFinish {
    Done(CellFigures),
    /// The cell did not react to the interrupt, so its context was killed.
    Killed,
    Over(FramesOver),
}

/// A running cell.
pub(super) struct CellRun<'a> {
    guard: &'a SandboxGuard,
    told: &'a mpsc::Sender<CellMessage>,
    interrupts: &'a InterruptGate,
    began: Instant,
    deadline: time::Instant,
    output_bytes: usize,
    stop: Option<CellStop>,
}

/// State of the context's process after a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextFate {
    Waits,
    Ended,
}

impl<'a> CellRun<'a> {
    /// Creates a run that begins now.
    pub(super) fn new(
        guard: &'a SandboxGuard,
        told: &'a mpsc::Sender<CellMessage>,
        interrupts: &'a InterruptGate,
        timeout: Duration,
    ) -> CellRun<'a> {
        CellRun {
            guard,
            told,
            interrupts,
            began: clock::now(),
            deadline: time::Instant::now() + timeout,
            output_bytes: 0,
            stop: None,
        }
    }

    /// Returns the start time.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Runs the cell to its end, and sends all its events. If the sandbox has ended, there is no
    /// verdict and no end event.
    pub(super) async fn run(
        mut self,
        process: &mut ContextProcess,
        request: &[u8],
        oom_kills_before: u64,
    ) -> (ContextFate, Option<Verdict>) {
        let finish = self.follow(process, request).await;
        let (failure, end) = match finish {
            CellFinish::Done(figures) => self.done(figures),
            CellFinish::Killed => (None, self.end(Verdict::Sg, None)),
            CellFinish::Over(FramesOver::Malformed(error)) => {
                process.control.kill().await;
                let value = format!("{error}; it was ended, and the next cell starts a new one");
                (Some(failure("ProtocolError", value)), self.end(Verdict::Re, None))
            }
            CellFinish::Over(FramesOver::Closed) => {
                let exit = time::timeout(EXIT_MAX, process.control.exit()).await;
                let exit = exit.unwrap_or(ContextExit::Unknown);
                process.control.kill().await;
                match self.closed(exit, oom_kills_before).await {
                    Some((failure, verdict)) => (Some(failure), self.end(verdict, None)),
                    None => return (ContextFate::Ended, None),
                }
            }
        };
        let (failure, end) = self.stopped(failure, end);
        if let Some(failure) = failure {
            self.tell(CellEvent::Error(failure)).await;
        }
        self.tell(CellEvent::Ended(end)).await;
        let fate = if end.context_ended { ContextFate::Ended } else { ContextFate::Waits };
        (fate, Some(end.verdict))
    }

    /// Follows the cell until its context finishes it or must be killed.
    async fn follow(&mut self, process: &mut ContextProcess, request: &[u8]) -> CellFinish {
        let ContextProcess { frames, requests, stdout, stderr, control } = process;
        let (mut is_written, mut has_stdout, mut has_stderr) = (false, true, true);
        // Written concurrently: a context that does not read must not delay its own termination.
        let mut writing = Box::pin(requests.write_all(request));
        let mut kill_at = None;
        loop {
            let told = self.told;
            let stopping = tokio::select! {
                _written = &mut writing, if !is_written => {
                    // If writing failed, the frames end as well.
                    is_written = true;
                    None
                }
                frame = frames.next() => {
                    self.tell_output(stdout, stderr).await;
                    match frame {
                        // A partial line here would occupy memory while no cell reads it.
                        Ok((ContextFrame::Done(_), _)) if frames.is_in_the_middle() => {
                            return CellFinish::Over(FramesOver::Malformed(
                                ContextFrameError::TooLong,
                            ));
                        }
                        Ok((ContextFrame::Done(figures), _)) => return CellFinish::Done(figures),
                        Ok((ContextFrame::Running, _)) => {
                            if self.interrupts.open() {
                                control.interrupt().await;
                            }
                            None
                        }
                        Ok((frame, place)) => self.tell_frame(frame, place).await,
                        Err(over) => return CellFinish::Over(over),
                    }
                }
                text = stdout.next(), if has_stdout => {
                    has_stdout = text.is_some();
                    self.tell_text(text, |text| CellEvent::Stdout { text }).await
                }
                text = stderr.next(), if has_stderr => {
                    has_stderr = text.is_some();
                    self.tell_text(text, |text| CellEvent::Stderr { text }).await
                }
                () = told.closed(), if self.stop.is_none() => Some(CellStop::ClientGone),
                () = time::sleep_until(self.deadline), if self.stop.is_none() => {
                    Some(CellStop::TimeUp)
                }
                () = at(kill_at) => {
                    control.kill().await;
                    return CellFinish::Killed;
                }
            };
            if let Some(stop) = stopping.filter(|_| self.stop.is_none()) {
                self.stop = Some(stop);
                kill_at = Some(time::Instant::now() + INTERRUPT_MAX);
                if self.interrupts.request() == InterruptRequest::Due {
                    control.interrupt().await;
                }
            }
        }
    }

    /// Sends the output that the context wrote before a frame.
    async fn tell_output(&mut self, stdout: &mut OutputPipe, stderr: &mut OutputPipe) {
        for _ in 0..PIECES_BEFORE_FRAME_MAX {
            let (out, err) = (stdout.now(), stderr.now());
            if out.is_none() && err.is_none() {
                return;
            }
            self.tell_text(out, |text| CellEvent::Stdout { text }).await;
            self.tell_text(err, |text| CellEvent::Stderr { text }).await;
        }
    }

    async fn tell_text(
        &mut self,
        text: Option<String>,
        event: fn(String) -> CellEvent,
    ) -> Option<CellStop> {
        let text = text.filter(|text| !text.is_empty())?;
        let stop = self.count(text.len());
        self.tell(event(text)).await;
        stop
    }

    async fn tell_frame(&mut self, frame: ContextFrame, place: Option<Share>) -> Option<CellStop> {
        match frame {
            ContextFrame::Result(result) => {
                let bytes = result.data.values().map(|value| match value {
                    serde_json::Value::String(text) => text.len(),
                    // Approximates its size in memory.
                    other => other.to_string().len(),
                });
                let stop = self.count(bytes.sum());
                let event = CellEvent::Result(result);
                self.tell_message(CellMessage { event, _place: place }).await;
                stop
            }
            ContextFrame::Error(failure) => {
                let stop = self.count(failure.value.len() + failure.traceback.len());
                // For a stopped cell, the end event gives the better error.
                if self.stop.is_none() {
                    let event = CellEvent::Error(failure);
                    self.tell_message(CellMessage { event, _place: place }).await;
                }
                stop
            }
            // Unexpected here, but harmless.
            ContextFrame::Ready(_)
            | ContextFrame::Failed(_)
            | ContextFrame::Forked
            | ContextFrame::Running
            | ContextFrame::Done(_) => None,
        }
    }

    /// Counts output, and returns a stop if the limit is exceeded.
    fn count(&mut self, bytes: usize) -> Option<CellStop> {
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        (self.output_bytes > OUTPUT_BYTES_MAX).then_some(CellStop::OutputFull)
    }

    /// Sends an event. A slow caller blocks the cell, up to its time limit.
    async fn tell(&self, event: CellEvent) {
        self.tell_message(event.into()).await;
    }

    async fn tell_message(&self, message: CellMessage) {
        let is_end = matches!(message.event, CellEvent::Ended(_) | CellEvent::Error(_));
        if self.stop == Some(CellStop::OutputFull) && !is_end {
            return;
        }
        let (now, until) = (time::Instant::now(), self.deadline + INTERRUPT_MAX);
        let until = until.max(if is_end { now + LAST_EVENT_MAX } else { now });
        drop(time::timeout_at(until, self.told.send(message)).await);
    }

    fn done(&self, figures: CellFigures) -> (Option<CellFailure>, CellEnd) {
        let verdict = if figures.has_failed { Verdict::Re } else { Verdict::Ok };
        (None, self.end(verdict, Some(figures)))
    }

    fn end(&self, verdict: Verdict, figures: Option<CellFigures>) -> CellEnd {
        let wall = clock::now().duration_since(self.began);
        CellEnd {
            verdict,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            cpu_ms: figures.map(|figures| figures.cpu_us / 1000),
            memory_bytes: figures.map(|figures| figures.memory_bytes),
            context_ended: figures.is_none(),
        }
    }

    /// Adds the reason of a stopped cell.
    fn stopped(&self, other: Option<CellFailure>, end: CellEnd) -> (Option<CellFailure>, CellEnd) {
        let (name, verdict, what) = match self.stop {
            None => return (other, end),
            Some(CellStop::TimeUp) => ("TimeLimitExceeded", Verdict::Tle, "took too long"),
            Some(CellStop::OutputFull) => ("OutputLimitExceeded", Verdict::Ole, "wrote too much"),
            Some(CellStop::ClientGone) => ("KeyboardInterrupt", Verdict::Re, "has no reader"),
        };
        let value = if end.context_ended {
            format!("the cell {what} and did not heed the interrupt, so its context was ended")
        } else {
            format!("the cell {what} and was interrupted; its definitions are kept")
        };
        (Some(failure(name, value)), CellEnd { verdict, ..end })
    }

    /// Explains why the context's process has ended; none if its sandbox has ended.
    async fn closed(
        &self,
        exit: ContextExit,
        oom_kills_before: u64,
    ) -> Option<(CellFailure, Verdict)> {
        if exit == ContextExit::Unknown && time::timeout(EXIT_MAX, self.guard.ended()).await.is_ok()
        {
            return None;
        }
        let oom_kills = self.guard.oom_kills().await.ok()?;
        if oom_kills > oom_kills_before {
            let value = "the session ran out of memory and the context was killed; its next cell \
                starts a new one";
            return Some((failure("MemoryLimitExceeded", value), Verdict::Mle));
        }
        let (how, verdict) = match exit {
            ContextExit::Code(code) => (format!("exited with code {code}"), Verdict::Re),
            ContextExit::Signal(SIGKILL) => ("was killed".to_owned(), Verdict::Sg),
            ContextExit::Signal(signal) => {
                (format!("ended by {}", signal_name(signal)), Verdict::Sg)
            }
            ContextExit::NotStarted(_) | ContextExit::Unknown => ("ended".to_owned(), Verdict::Sg),
        };
        let value = format!("the context's process {how}; its next cell starts a new one");
        Some((failure("ContextEnded", value), verdict))
    }
}

/// Creates an error that the server reports itself.
pub(super) fn failure(name: &str, value: impl Into<String>) -> CellFailure {
    let value = value.into();
    CellFailure { name: name.to_owned(), traceback: format!("{name}: {value}"), value }
}

/// Resolves at `time`, or never.
async fn at(time: Option<time::Instant>) {
    match time {
        Some(time) => time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
