//! Commands of steps: their input, output and result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sandbox::{ProcessEnd, ProcessHandle, ProcessStreams, SandboxedSession, SessionProgram};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time;

use super::log::BuildLog;
use super::plan::{LayerStep, PIP_INSTALL, StepAction};
use crate::error::SessionError;
use crate::program_end::signal_name;
use crate::service::environment::environment;
use crate::service::objects::SessionObjects;
use crate::store::rows::TemplateArchiveRow;

/// Bytes from the end of a step's output that its failure repeats.
const TAIL_BYTES: usize = 2 << 10;
/// Maximum bytes of a line.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes per read.
const CHUNK_BYTES: usize = 16 << 10;
/// Longest wait for the last output if descendants of a step hold its streams open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// Longest wait for a killed step to end.
const KILL_MAX: Duration = Duration::from_secs(5);
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

/// Script that runs a command in the working directory, which is created if it is missing.
const RUN: &str = r#"mkdir -p -- "$1" && cd -- "$1" && exec /bin/bash -c "$2""#;

/// Script that installs packages with uv if it is installed and the interpreter is the host's: it
/// is faster, with the same destination. Its cache is on the layer's disk, so that files need not
/// be copied.
const UV_INSTALL: &str = r#"
if command -v uv > /dev/null && [ "$(command -v python3)" = /usr/bin/python3 ]; then
export UV_CACHE_DIR=/home/user/.cache/uv-of-a-step
trap 'rm -rf -- "$UV_CACHE_DIR"; rmdir -- /home/user/.cache 2> /dev/null' EXIT
uv pip install --python /usr/bin/python3 --prefix /home/user/.local "#;
const PIP_ELSE: &str = "else\n";

/// Script that unpacks an archive beside its destination, and copies the selected part: of a
/// directory its content, otherwise the file itself. All paths are arguments, never part of this
/// text.
const COPY: &str = r#"set -e
shopt -s globstar nullglob dotglob
workdir=$1 source=$2 to=$3 mode=$4 compressed=$5
mkdir -p -- "$workdir"
staging=$(mktemp -d /home/user/.copy-XXXXXXXX)
trap 'rm -rf -- "$staging"' EXIT
tar -x $compressed -f - -C "$staging" --no-same-owner
cd -- "$staging"
if [ -e "./$source" ] || [ -L "./$source" ]; then
  found=("./$source")
else
  IFS=
  found=(./$source)
fi
if [ ${#found[@]} -eq 0 ]; then
  echo "nothing in the archive is $source" >&2
  exit 1
fi
if [ ${#found[@]} -gt 1 ]; then to=${to%/}/; fi
for one in "${found[@]}"; do
  if [ -n "$mode" ]; then find "$one" -type f -exec chmod -- "$mode" {} +; fi
  if [ -d "$one" ] && [ ! -L "$one" ]; then
    mkdir -p -- "$to"
    cp -a -- "$one/." "${to%/}/"
  else
    case $to in
      */) mkdir -p -- "$to" ;;
      *) mkdir -p -- "$(dirname -- "$to")" ;;
    esac
    cp -a -- "$one" "$to"
  fi
done"#;

/// Context of a running step.
pub(super) struct StepContext<'a> {
    /// Sandbox that it runs in.
    pub(super) sandbox: &'a SandboxedSession,
    /// Complete environment.
    pub(super) env: BTreeMap<String, String>,
    /// Log for its output.
    pub(super) log: &'a BuildLog,
    /// Archive that it copies from, and the store of its pieces.
    pub(super) archive: Option<(&'a TemplateArchiveRow, &'a SessionObjects)>,
    /// Deadline of the build.
    pub(super) deadline: Instant,
    /// True once the build is cancelled.
    pub(super) cancelled: watch::Receiver<bool>,
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum TemplateStepFailure {
    /// The step itself failed, with a description.
    Failed(String),
    /// The build took too long.
    TimedOut,
    /// The build was cancelled.
    Cancelled,
    /// Internal error.
    Server(SessionError),
}

impl From<SessionError> for TemplateStepFailure {
    fn from(error: SessionError) -> TemplateStepFailure {
        TemplateStepFailure::Server(error)
    }
}

/// Runs a step to its end.
pub(super) async fn run_step(
    step: &LayerStep,
    mut context: StepContext<'_>,
) -> Result<(), TemplateStepFailure> {
    let has_input = context.archive.is_some();
    let first = match context.archive {
        Some((archive, objects)) => first_bytes(archive, objects).await?,
        None => Vec::new(),
    };
    let program = SessionProgram {
        argv: argv(step, first.starts_with(&[0x1f, 0x8b])),
        env: environment(&context.env),
        cwd: None,
        terminal: None,
        stdin: has_input,
        merged: true,
    };
    let process = context.sandbox.start(program).await.map_err(SessionError::from)?;
    let ProcessStreams::Pipes(pipes) = process.streams else {
        return Err(SessionError::internal("a command without terminal has pipes").into());
    };
    let mut handle = process.handle;
    let mut output = StepOutput { step: step.number, line: Vec::new(), tail: Vec::new() };
    let end = {
        let archive = context.archive;
        let mut feed = std::pin::pin!(feed(pipes.stdin, archive));
        let mut read = std::pin::pin!(output.read(pipes.stdout, context.log));
        let (mut is_fed, mut is_read) = (false, false);
        let deadline = time::Instant::from_std(context.deadline);
        let mut waiting = handle.clone();
        let mut ended = std::pin::pin!(waiting.wait());
        let end = loop {
            tokio::select! {
                fed = &mut feed, if !is_fed => {
                    is_fed = true;
                    fed?;
                }
                () = &mut read, if !is_read => is_read = true,
                end = &mut ended => break Ok(end),
                () = time::sleep_until(deadline) => break Err(TemplateStepFailure::TimedOut),
                _ = context.cancelled.wait_for(|it| *it) => {
                    break Err(TemplateStepFailure::Cancelled);
                }
            }
        };
        if !is_read && end.is_ok() {
            let _left_open = time::timeout(LAST_OUTPUT, read).await;
        }
        end
    };
    output.finish(context.log);
    match end {
        Ok(end) => output.result(&end.map_err(SessionError::from)?),
        Err(failure) => {
            kill(&mut handle).await;
            Err(failure)
        }
    }
}

async fn kill(handle: &mut ProcessHandle) {
    let _gone = handle.signal(SIGKILL).await;
    let _ended = time::timeout(KILL_MAX, handle.wait()).await;
}

fn argv(step: &LayerStep, is_compressed: bool) -> Vec<Vec<u8>> {
    let command;
    let words: Vec<&str> = match &step.action {
        StepAction::Run(command) => vec![RUN, "step", &step.workdir, command],
        StepAction::PipInstall(words) => {
            command = format!("{UV_INSTALL}{words}\n{PIP_ELSE}{PIP_INSTALL}{words}\nfi");
            vec![RUN, "step", &step.workdir, &command]
        }
        StepAction::MakeWorkdir => vec![RUN, "step", &step.workdir, "true"],
        StepAction::Copy { source, to, mode, .. } => vec![
            COPY,
            "step",
            &step.workdir,
            source,
            to,
            mode.as_deref().unwrap_or_default(),
            if is_compressed { "-z" } else { "" },
        ],
    };
    let begin = ["/bin/bash", "-c"].into_iter();
    begin.chain(words).map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the key of a piece of an archive.
pub(super) fn piece_key(archive: &TemplateArchiveRow, piece: u64) -> String {
    format!("{}/{piece}", archive.objects)
}

async fn piece(
    archive: &TemplateArchiveRow,
    objects: &SessionObjects,
    number: u64,
) -> Result<bytes::Bytes, SessionError> {
    let found = objects.get(&piece_key(archive, number)).await?;
    found.ok_or_else(|| SessionError::internal("a piece of an archive is missing"))
}

async fn first_bytes(
    archive: &TemplateArchiveRow,
    objects: &SessionObjects,
) -> Result<Vec<u8>, SessionError> {
    Ok(piece(archive, objects, 0).await?.iter().take(2).copied().collect())
}

/// Writes an archive to the input of its step, and closes the input.
async fn feed(
    input: Option<pipe::Sender>,
    archive: Option<(&TemplateArchiveRow, &SessionObjects)>,
) -> Result<(), SessionError> {
    let (Some(mut input), Some((archive, objects))) = (input, archive) else { return Ok(()) };
    for number in 0..archive.pieces {
        let piece = piece(archive, objects, number).await?;
        if input.write_all(&piece).await.is_err() {
            // The step stopped reading; its end shows the reason.
            return Ok(());
        }
    }
    Ok(())
}

/// Output of a step, by lines.
struct StepOutput {
    step: u32,
    line: Vec<u8>,
    /// End of the output.
    tail: Vec<u8>,
}

impl StepOutput {
    async fn read(&mut self, mut stream: impl AsyncRead + Unpin, log: &BuildLog) {
        let mut buf = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = stream.read(&mut buf).await {
            let bytes = buf.get(..count).unwrap_or_default();
            self.tail.extend_from_slice(bytes);
            if self.tail.len() > 2 * TAIL_BYTES.max(CHUNK_BYTES) {
                self.tail.drain(..self.tail.len() - TAIL_BYTES);
            }
            for &byte in bytes {
                match byte {
                    b'\n' | b'\r' => self.finish(log),
                    byte => self.line.push(byte),
                }
                if self.line.len() >= LINE_BYTES_MAX {
                    self.finish(log);
                }
            }
        }
    }

    /// Logs the incomplete last line.
    fn finish(&mut self, log: &BuildLog) {
        if !self.line.is_empty() {
            log.output(self.step, &String::from_utf8_lossy(&self.line));
            self.line.clear();
        }
    }

    fn result(&self, end: &ProcessEnd) -> Result<(), TemplateStepFailure> {
        let how = match (end.code, end.signal) {
            (Some(0), _) => return Ok(()),
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
            (None, None) => "could not be started".to_owned(),
        };
        let memory = if end.oom_kills > 0 { ", for lack of memory" } else { "" };
        let from = self.tail.len().saturating_sub(TAIL_BYTES);
        let text = String::from_utf8_lossy(self.tail.get(from..).unwrap_or_default());
        let wrote = match text.trim() {
            "" => "it wrote nothing".to_owned(),
            text => format!("it wrote: {text}"),
        };
        Err(TemplateStepFailure::Failed(format!("{how}{memory}; {wrote}")))
    }
}
