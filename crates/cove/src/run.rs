//! `cove run`: runs one program with the server's engine and rules, in this process unless a server
//! is named.

mod remote;
pub(crate) mod request;
pub(crate) mod terminal;

use std::io::{self, IsTerminal as _, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Result;
use api::{Execution, ExecutionMode, ExecutionRequest, StageName, StageOutcome, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use executions::{ExecutionService, Languages, ProgramIo, ProgressObserver};
use node::telemetry::{self, LevelFilter, LogFormat};
use sandbox::{ChunkStream, Engine, LaunchedSpawners, StdinSource};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use self::request::{KnownLanguages, input, lift_maxima, request};
use crate::cli::RunArgs;
use crate::config::{CoveConfig, Environment};
use crate::exit_codes::{EXIT_COMPILE, EXIT_COVE, EXIT_KILLED, EXIT_PIPE, EXIT_TIME, EXIT_USAGE};
use crate::messages::complain;
use crate::plain_text::plain_json;
use crate::usage_error::UsageError;
use crate::values::human_bytes;
use crate::{engine, host, languages};

/// Tenant in the accounting of the service.
const TENANT: &str = "run";

/// Bytes of standard input per read, and maximum number of queued chunks.
const STDIN_CHUNK_BYTES: usize = 64 << 10;
const STDIN_CHUNKS_MAX: usize = 4;

/// Runs the program and returns its exit code.
pub(crate) fn run(
    args: RunArgs,
    mut config: CoveConfig,
    environment: &Environment,
) -> Result<ExitCode> {
    if args.server.is_some() {
        return Ok(remote::run(&args, &config, environment));
    }
    let json = args.json;
    let quiet = args.quiet;
    // Only warnings and errors of the engine are logged.
    telemetry::init_logs(LogFormat::Text, LevelFilter::WARN, environment.has_log_colours())
        .map_err(anyhow::Error::from_boxed)?;
    let prepared = languages::load(&config, environment).and_then(|languages| {
        if args.program.template.is_some() {
            let message = "--template: templates are kept by a server; name it with --server URL";
            return Err(UsageError(message.to_owned()).into());
        }
        let request = request(&args.program, &args.limits, &KnownLanguages::here(&languages))?;
        Ok((request, input(&args.program)?, languages))
    });
    let (request, stdin, languages) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            complain(&format!("{error:#}"));
            let usage = error.is::<UsageError>() || error.is::<io::Error>();
            return Ok(ExitCode::from(if usage { EXIT_USAGE } else { EXIT_COVE }));
        }
    };
    lift_maxima(&mut config.executions, &request);
    config.executions.running_max = Some(1);

    let insecure = args.insecure_no_limits || config.sandbox.insecure_no_limits;
    let engine_config = engine::for_one_program(languages.toolchains(), insecure);
    // Before the runtime and before any thread.
    let launched = match Engine::launch(engine_config) {
        Ok(launched) => launched,
        Err(error) => return Ok(cannot_run(&error.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let job = RunJob { config, languages, request, stdin, json, quiet };
    match runtime.block_on(job.run(launched)) {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error) => Ok(cannot_run(&error)),
    }
}

fn cannot_run(error: &anyhow::Error) -> ExitCode {
    complain(&format!("cannot run programs: {error:#}"));
    ExitCode::from(EXIT_COVE)
}

/// Program to run, and the form of its output.
struct RunJob {
    config: CoveConfig,
    languages: Languages,
    request: ExecutionRequest,
    stdin: Option<Box<dyn Read + Send>>,
    json: bool,
    quiet: bool,
}

impl RunJob {
    async fn run(self, launched: LaunchedSpawners) -> Result<u8> {
        let engine = Engine::attach(launched)?;
        let code = self.execute(engine.clone()).await;
        engine.close().await;
        code
    }

    async fn execute(self, engine: Engine) -> Result<u8> {
        let mut registry = telemetry::Registry::default();
        let executions = self.config.executions;
        let capacity = host::capacity();
        let service =
            ExecutionService::new(engine, self.languages, executions, capacity, &mut registry)?;
        let io = ProgramIo { stdin: self.stdin.map(live), ..ProgramIo::default() };
        let mut output = OutputThread::start(!self.json);
        let closed = Arc::clone(&output.closed);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let result = {
            let running = Box::pin(service.execute(TENANT, self.request, io, &mut output));
            tokio::select! {
                result = running => result,
                // Dropping the future kills the program.
                _ = interrupt.recv() => return Ok(128 + 2),
                _ = terminate.recv() => return Ok(128 + 15),
                () = closed.notified() => return Ok(EXIT_PIPE),
            }
        };
        output.finish();
        let execution = match result {
            Ok(execution) => execution,
            Err(error) => {
                let detail = error.detail();
                let field = detail.field.map(|field| format!("{field}: ")).unwrap_or_default();
                complain(&format!("{field}{}", detail.message));
                let ours = detail.code == api::ErrorCode::LanguageUnavailable || detail.retry;
                return Ok(if ours { EXIT_COVE } else { EXIT_USAGE });
            }
        };
        if self.json {
            print_json(&execution)?;
        } else {
            show_compiler(&execution);
        }
        if execution.outcome.verdict != Verdict::Ok && !self.json && !self.quiet {
            complain(&judgement(&execution.outcome));
        }
        Ok(exit_code(&execution.outcome))
    }
}

/// Prints one JSON document: indented on a terminal, otherwise on one line.
pub(crate) fn print_json(document: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() {
        serde_json::to_string_pretty(document)
    } else {
        serde_json::to_string(document)
    };
    writeln!(out, "{}", plain_json(&text?))
}

/// Prints the output of the compiler if compilation failed.
pub(crate) fn show_compiler(execution: &Execution) {
    let failed = execution
        .stages
        .iter()
        .find(|stage| stage.name == StageName::Compile && stage.outcome.verdict != Verdict::Ok);
    let Some(stage) = failed else { return };
    let outcome = execution.of_stage(stage);
    let mut err = io::stderr().lock();
    for (text, base64) in
        [(&outcome.stdout, &outcome.stdout_base64), (&outcome.stderr, &outcome.stderr_base64)]
    {
        let exact = base64.as_ref().and_then(|exact| BASE64.decode(exact).ok());
        let bytes = exact.as_deref().unwrap_or(text.as_bytes());
        // A failure is ignored: standard error is closed.
        drop(err.write_all(bytes));
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            drop(err.write_all(b"\n"));
        }
    }
}

/// Returns the verdict and the resource usage on one line.
pub(crate) fn judgement(outcome: &StageOutcome) -> String {
    let limit = outcome.limit.map_or("", api::LimitHit::as_str);
    let signal = outcome.signal.as_deref();
    let what = match (outcome.verdict, &outcome.message) {
        (_, Some(message)) => message.clone(),
        (Verdict::Ok, None) => "exited with code 0".to_owned(),
        (Verdict::Re, None) => match outcome.exit_code {
            Some(code) => format!("exited with code {code}"),
            None => "did not start".to_owned(),
        },
        (Verdict::Sg, None) => format!("ended by {}", signal.unwrap_or("a signal")),
        (Verdict::Tle, None) => format!("reached its {limit} time limit"),
        (Verdict::Mle, None) => "reached its memory limit".to_owned(),
        (Verdict::Ole, None) => "reached its output limit".to_owned(),
        (Verdict::Ce, None) if !limit.is_empty() => {
            format!("the compiler reached its {limit} limit")
        }
        (Verdict::Ce, None) => "did not compile".to_owned(),
        (Verdict::Wa, None) => "gave a wrong answer".to_owned(),
        (Verdict::Jf, None) => "the program that judges it failed".to_owned(),
        (Verdict::Ie, None) => "cove failed to run it".to_owned(),
    };
    let peak = match outcome.memory_peak_bytes {
        0 => String::new(),
        bytes => format!(", memory {}", human_bytes(bytes)),
    };
    format!(
        "{}: {what} (cpu {} ms, wall {} ms{peak})",
        outcome.verdict, outcome.cpu_ms, outcome.wall_ms
    )
}

pub(crate) fn exit_code(outcome: &StageOutcome) -> u8 {
    match outcome.verdict {
        Verdict::Ok => 0,
        // The low eight bits, as wait(2) returns them.
        Verdict::Re => outcome.exit_code.map_or(EXIT_COVE, |code| code.to_le_bytes()[0]),
        Verdict::Sg => {
            outcome.signal.as_deref().and_then(signal_number).map_or(EXIT_KILLED, |it| 128 + it)
        }
        Verdict::Tle => EXIT_TIME,
        Verdict::Mle | Verdict::Ole => EXIT_KILLED,
        Verdict::Ce => EXIT_COMPILE,
        Verdict::Wa => 1,
        Verdict::Jf | Verdict::Ie => EXIT_COVE,
    }
}

/// Returns the number of a signal of signal(7) on x86-64 and ARM; real-time ones are `SIGRTMIN+n`.
fn signal_number(name: &str) -> Option<u8> {
    if let Some(number) = executions::signal_number(name) {
        return u8::try_from(number).ok();
    }
    match name.strip_prefix("SIGRTMIN")? {
        "" => Some(34),
        more => more.strip_prefix('+')?.parse::<u8>().ok()?.checked_add(34).filter(|it| *it <= 64),
    }
}

fn live(input: Box<dyn Read + Send>) -> StdinSource {
    StdinSource::Live(read_ahead(input))
}

/// Reads in a separate thread, which ends with the input, the program or the process.
pub(crate) fn read_ahead(mut input: Box<dyn Read + Send>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(STDIN_CHUNKS_MAX);
    std::thread::spawn(move || {
        let mut chunk = vec![0; STDIN_CHUNK_BYTES];
        loop {
            match input.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => {
                    if sender.blocking_send(chunk[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return complain(&format!("failed to read the input: {error}")),
            }
        }
    });
    receiver
}

/// Writes output as it arrives, in a separate thread: a slow terminal must not delay the task that
/// enforces the time limits. Queued output is bounded by the program's output limit.
struct OutputThread {
    chunks: Option<std::sync::mpsc::Sender<(ChunkStream, Vec<u8>)>>,
    writer: Option<JoinHandle<()>>,
    closed: Arc<Notify>,
    stage: StageName,
}

impl OutputThread {
    fn start(is_printed: bool) -> OutputThread {
        let closed = Arc::new(Notify::new());
        let stage = StageName::Run;
        if !is_printed {
            return OutputThread { chunks: None, writer: None, closed, stage };
        }
        let (chunks, received) = std::sync::mpsc::channel::<(ChunkStream, Vec<u8>)>();
        let tell = Arc::clone(&closed);
        let writer = std::thread::spawn(move || {
            for (stream, bytes) in received {
                let written = match stream {
                    ChunkStream::Stdout => write_through(&mut io::stdout().lock(), &bytes),
                    ChunkStream::Stderr => write_through(&mut io::stderr().lock(), &bytes),
                };
                if written.is_err() && stream == ChunkStream::Stdout {
                    return tell.notify_one();
                }
            }
        });
        OutputThread { chunks: Some(chunks), writer: Some(writer), closed, stage }
    }

    /// Waits until everything is written.
    fn finish(mut self) {
        drop(self.chunks.take());
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            complain("failed to write the output");
        }
    }
}

pub(crate) fn write_through(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

impl ProgressObserver for OutputThread {
    fn stage(&mut self, stage: StageName, _test: Option<u32>) {
        self.stage = stage;
    }

    fn exit(
        &mut self,
        _stage: StageName,
        _test: Option<u32>,
        _mode: ExecutionMode,
        _outcome: &StageOutcome,
    ) {
    }

    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]) {
        // Compiler output is printed at the end, if compilation failed.
        if self.stage == StageName::Run
            && let Some(chunks) = &self.chunks
        {
            // The writer ends early only if standard output is closed, and has reported that.
            drop(chunks.send((stream, bytes.to_vec())));
        }
    }
}

#[cfg(test)]
mod tests;
