//! Prints events for people: the program's output on the standard streams, progress beside it, and
//! the verdict at the end.

use std::io;
use std::thread::JoinHandle;

use api::{EventBytes, EventKind, Execution, ExecutionRecord, ExecutionState, StageName, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::sync::mpsc;

use super::progress::ProgressLine;
use super::{place, plain};
use crate::exit_codes::EXIT_COVE;
use crate::messages::complain;
use crate::run::{exit_code, judgement, show_compiler, write_through};

/// Maximum queued chunks of output. If the queue is full, events wait.
const CHUNKS_MAX: usize = 16;

/// Stream of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputTarget {
    Stdout,
    Stderr,
}

/// End of an execution.
#[derive(Debug)]
pub(crate) enum ExecutionEnd {
    /// With a verdict.
    Finished(Box<Execution>),
    /// Without one.
    Without { state: ExecutionState, message: Option<String> },
}

impl From<ExecutionRecord> for ExecutionEnd {
    fn from(record: ExecutionRecord) -> ExecutionEnd {
        match record.result {
            Some(result) => ExecutionEnd::Finished(Box::new(result)),
            None => ExecutionEnd::Without { state: record.state, message: record.message },
        }
    }
}

/// The parts of an execution that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrintedParts {
    /// Output of the program.
    pub(crate) output: bool,
    /// The verdict, and hints.
    pub(crate) messages: bool,
    /// Progress, on a terminal.
    pub(crate) progress: bool,
}

/// Shows the events of one execution.
pub(crate) struct ExecutionPrinter {
    parts: PrintedParts,
    pub(crate) progress: ProgressLine,
    printer: Option<PrinterThread>,
    stage: StageName,
    /// Bytes of standard output and of standard error that were printed.
    printed: [usize; 2],
    /// True if some output is missing after the last byte that was printed.
    gap: bool,
}

impl ExecutionPrinter {
    pub(crate) fn new(parts: PrintedParts) -> ExecutionPrinter {
        ExecutionPrinter {
            parts,
            progress: ProgressLine::new(!parts.progress),
            printer: parts.output.then(PrinterThread::start),
            stage: StageName::Run,
            printed: [0, 0],
            gap: false,
        }
    }

    /// Handles the next event; returns the end of the execution if it is the last event.
    ///
    /// Returns an error if standard output is closed.
    pub(crate) async fn event(&mut self, kind: EventKind) -> io::Result<Option<ExecutionEnd>> {
        match kind {
            EventKind::Queued { position } => self.waiting(position, None),
            EventKind::Started { attempt } => self.started(attempt),
            EventKind::Stage { stage, test } => self.begun(stage, test),
            EventKind::Stdout(chunk) => self.chunk(OutputTarget::Stdout, &chunk).await?,
            EventKind::Stderr(chunk) => self.chunk(OutputTarget::Stderr, &chunk).await?,
            EventKind::Exit { .. } => {}
            EventKind::Gap { .. } => self.gap = true,
            EventKind::Verdict { verdict: _, result } => {
                return Ok(Some(ExecutionEnd::Finished(result)));
            }
            EventKind::Ended { state, message } => {
                return Ok(Some(ExecutionEnd::Without { state, message }));
            }
        }
        Ok(None)
    }

    /// Shows that the execution is in the queue.
    pub(crate) fn waiting(&mut self, position: Option<u64>, start_ms: Option<u64>) {
        self.progress.show(&format!("queued{}", place(position, start_ms)));
    }

    fn started(&mut self, attempt: u32) {
        self.progress.show("started");
        if attempt > 1 && self.printed != [0, 0] {
            // The output of the first attempt is already printed.
            self.hint("it was started again; its output starts over");
        }
        self.printed = [0, 0];
        self.gap = false;
    }

    fn begun(&mut self, stage: StageName, test: Option<u32>) {
        self.stage = stage;
        let of = test.map(|test| format!(", test {test}")).unwrap_or_default();
        match stage {
            StageName::Compile => self.progress.show("compiling"),
            // If the output is printed, no progress is needed.
            StageName::Run if self.parts.output => self.progress.clear(),
            StageName::Run | StageName::Interactor => self.progress.show(&format!("running{of}")),
            StageName::Checker => self.progress.show(&format!("checking{of}")),
        }
    }

    /// Reports that the connection was lost or restored.
    pub(crate) fn connection(&mut self, lost: bool) {
        if lost {
            self.hint("lost the server; trying to reach it again");
        } else {
            self.hint("the server is back");
        }
    }

    /// Prints a permanent hint.
    fn hint(&mut self, text: &str) {
        self.progress.clear();
        if self.parts.messages {
            complain(text);
        }
    }

    async fn chunk(&mut self, to: OutputTarget, chunk: &EventBytes) -> io::Result<()> {
        // Compiler output is printed at the end, if compilation failed.
        if self.stage != StageName::Run || self.gap {
            return Ok(());
        }
        let bytes = match (&chunk.data, &chunk.data_base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(text)) => BASE64.decode(text).unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        self.print(to, bytes).await
    }

    async fn print(&mut self, to: OutputTarget, bytes: Vec<u8>) -> io::Result<()> {
        let Some(printer) = &self.printer else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        self.progress.clear();
        self.printed[usize::from(to == OutputTarget::Stderr)] += bytes.len();
        printer.write(to, bytes).await
    }

    /// Prints the remaining output and the verdict; returns the exit code of `cove run`.
    pub(crate) async fn end(mut self, end: &ExecutionEnd) -> io::Result<u8> {
        let finished = match end {
            ExecutionEnd::Finished(execution) => Some(execution),
            ExecutionEnd::Without { .. } => None,
        };
        if let Some(execution) = finished {
            self.catch_up(execution).await?;
        }
        self.progress.clear();
        if let Some(printer) = self.printer.take() {
            printer.finish().await?;
        }
        match end {
            ExecutionEnd::Finished(execution) => {
                if self.parts.output {
                    show_compiler(execution);
                }
                if self.parts.messages && execution.outcome.verdict != Verdict::Ok {
                    complain(&plain(&judgement(&execution.outcome)));
                }
                Ok(exit_code(&execution.outcome))
            }
            ExecutionEnd::Without { state, message } => {
                if self.parts.messages {
                    let why = message.as_deref().map(|why| format!(": {}", plain(why)));
                    complain(&format!("{}{}", state.as_str(), why.unwrap_or_default()));
                }
                Ok(EXIT_COVE)
            }
        }
    }

    /// Prints the rest of the result's output, if the printed part is a prefix of it. Test cases
    /// have separate results; their missing output is in the record.
    async fn catch_up(&mut self, execution: &Execution) -> io::Result<()> {
        let outcome = &execution.outcome;
        if !execution.tests.is_empty() || outcome.verdict == Verdict::Ce {
            if self.gap {
                self.hint("some output is not shown; `cove exec get` prints the stored output");
            }
            return Ok(());
        }
        for (to, text, base64) in [
            (OutputTarget::Stdout, &outcome.stdout, &outcome.stdout_base64),
            (OutputTarget::Stderr, &outcome.stderr, &outcome.stderr_base64),
        ] {
            let exact = base64.as_ref().and_then(|exact| BASE64.decode(exact).ok());
            let bytes = exact.as_deref().unwrap_or(text.as_bytes());
            let printed = self.printed[usize::from(to == OutputTarget::Stderr)];
            let rest = bytes.get(printed..).unwrap_or_default().to_vec();
            self.print(to, rest).await?;
        }
        Ok(())
    }
}

/// Writes in a separate thread, so that a slow reader of the output blocks nothing else.
struct PrinterThread {
    chunks: mpsc::Sender<(OutputTarget, Vec<u8>)>,
    writer: JoinHandle<io::Result<()>>,
}

impl PrinterThread {
    fn start() -> PrinterThread {
        let (chunks, mut received) = mpsc::channel::<(OutputTarget, Vec<u8>)>(CHUNKS_MAX);
        let writer = std::thread::spawn(move || {
            while let Some((to, bytes)) = received.blocking_recv() {
                match to {
                    OutputTarget::Stdout => write_through(&mut io::stdout().lock(), &bytes)?,
                    // If standard error is closed, the program continues.
                    OutputTarget::Stderr => drop(write_through(&mut io::stderr().lock(), &bytes)),
                }
            }
            Ok(())
        });
        PrinterThread { chunks, writer }
    }

    async fn write(&self, to: OutputTarget, bytes: Vec<u8>) -> io::Result<()> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.chunks.send((to, bytes)).await.map_err(closed)
    }

    /// Waits until everything is written.
    async fn finish(self) -> io::Result<()> {
        drop(self.chunks);
        let joined = node::task::blocking(|| self.writer.join()).await;
        match joined {
            Ok(Ok(written)) => written,
            _ => Err(io::Error::other("failed to write the output")),
        }
    }
}
