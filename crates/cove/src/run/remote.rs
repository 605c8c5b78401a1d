//! `cove run --server`: runs one program on a server, as if it ran here.
//!
//! The execution is submitted as interactive and attached to a WebSocket, so it ends when this
//! process ends, for whatever reason.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use api::{
    ClientMessage, ExecutionEvent, ExecutionRecord, ExecutionRequest, LanguageList, TerminalSize,
};
use axum::http::Method;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::request::{KnownLanguages, input, request};
use super::terminal::{self, RawTerminal};
use super::{print_json, read_ahead};
use crate::cli::RunArgs;
use crate::config::{CoveConfig, Environment};
use crate::remote::show::{ExecutionEnd, ExecutionPrinter, PrintedParts};
use crate::remote::signals::EndSignals;
use crate::remote::socket::{self, Socket};
use crate::remote::{self, Remote, plain};
use crate::usage_error::UsageError;

/// Timeout of the request to cancel the execution. If it fails, the server notices the lost
/// connection.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the program and returns its exit code.
pub(super) fn run(args: &RunArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    let server = args.server.as_deref();
    let found = Remote::find(server, args.token_file.as_deref(), config, environment);
    let run = async |remote: Remote| {
        let size = match args.tty {
            true if !terminal::is_there() => {
                return Err(
                    UsageError("--tty needs a terminal to type at and to show".into()).into()
                );
            }
            true => Some(terminal::size()?),
            false => None,
        };
        let list: LanguageList = remote.call(Method::GET, "/v1/languages").await?;
        let mut request = request(&args.program, &args.limits, &KnownLanguages::there(list))?;
        request.interactive = true;
        request.terminal = size;
        request.grants.clone_from(&args.grants);
        let stdin = input(&args.program)?;
        let parts = PrintedParts {
            output: !args.json,
            messages: !args.json && !args.quiet,
            progress: !args.json && !args.quiet,
        };
        converse(&remote, &request, stdin, parts, args.tty).await
    };
    remote::conclude(found.and_then(|remote| remote::in_runtime(run(remote))))
}

async fn converse(
    remote: &Remote,
    request: &ExecutionRequest,
    stdin: Option<Box<dyn Read + Send>>,
    parts: PrintedParts,
    tty: bool,
) -> Result<u8> {
    let mut signals = EndSignals::new()?;
    let submitted = tokio::select! {
        record = remote.post::<ExecutionRecord>("/v1/executions", request, None) => record?,
        // An execution that no client attaches to never starts.
        code = signals.next() => return Ok(code),
    };
    let path = format!("/v1/executions/{}", submitted.id);
    let mut show = ExecutionPrinter::new(parts);
    let ended = {
        let attached = Box::pin(attached(remote, &path, stdin, &mut show, tty));
        tokio::select! {
            ended = attached => ended,
            code = signals.next() => {
                cancel(remote, &path).await;
                return Ok(code);
            }
        }
    };
    let end = match ended {
        Ok(end) => end,
        Err(error) => {
            cancel(remote, &path).await;
            return Err(error);
        }
    };
    let code = show.end(&end).await?;
    if !parts.output {
        match end {
            ExecutionEnd::Finished(execution) => print_json(&execution)?,
            ExecutionEnd::Without { state, message } => {
                let why = message.as_deref().map(plain).unwrap_or_default();
                return Err(anyhow!("{}: {why}", state.as_str()));
            }
        }
    }
    Ok(code)
}

async fn cancel(remote: &Remote, path: &str) {
    // If it fails, the closed connection has the same effect.
    drop(timeout(CANCEL_TIMEOUT, remote.call::<ExecutionRecord>(Method::DELETE, path)).await);
}

/// Attaches to the execution until it ends.
async fn attached(
    remote: &Remote,
    path: &str,
    stdin: Option<Box<dyn Read + Send>>,
    show: &mut ExecutionPrinter,
    tty: bool,
) -> Result<ExecutionEnd> {
    let socket = socket::open(remote, &format!("{path}/events")).await?;
    // Dropped with this future on every exit path.
    let raw = if tty { Some(RawTerminal::enter().context("make the terminal raw")?) } else { None };
    let windows = if tty { Some(signal(SignalKind::window_change())?) } else { None };
    let (sink, stream) = socket.split();
    let input = stdin.map(read_ahead);
    let (listening, talking) =
        (Box::pin(listen(stream, show)), Box::pin(talk(sink, input, windows)));
    let end = tokio::select! {
        end = listening => end,
        error = talking => Err(error),
    };
    drop(raw);
    end
}

/// Handles events until the last one.
async fn listen(
    mut stream: SplitStream<Socket>,
    show: &mut ExecutionPrinter,
) -> Result<ExecutionEnd> {
    loop {
        let message = stream.next().await.context("the server is gone")?;
        match message.context("lost the server")? {
            Message::Text(text) => {
                let event: ExecutionEvent =
                    serde_json::from_str(text.as_str()).context("read an event of the server")?;
                if let Some(end) = show.event(event.kind).await? {
                    return Ok(end);
                }
            }
            Message::Close(Some(frame)) => {
                return Err(anyhow!("the server hung up: {}", plain(frame.reason.as_str())));
            }
            Message::Close(None) => return Err(anyhow!("the server hung up")),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Sends input, its end, and changes of the terminal's size. Returns only with an error.
async fn talk(
    mut sink: SplitSink<Socket, Message>,
    mut input: Option<mpsc::Receiver<Vec<u8>>>,
    mut windows: Option<Signal>,
) -> anyhow::Error {
    let mut over = false;
    loop {
        let message = tokio::select! {
            piece = next_piece(&mut input), if !over => match piece {
                Some(bytes) => Message::Binary(bytes.into()),
                None => {
                    over = true;
                    encode(&ClientMessage::Eof)
                }
            },
            () = next_size(&mut windows) => match terminal::size() {
                Ok(TerminalSize { rows, cols }) => {
                    encode(&ClientMessage::Resize(TerminalSize { rows, cols }))
                }
                // A closed terminal has no size; other code notices its end.
                Err(_) => continue,
            },
        };
        if sink.send(message).await.is_err() {
            // The receiving half gets the reason, and all earlier messages.
            return std::future::pending().await;
        }
    }
}

fn encode(message: &ClientMessage) -> Message {
    Message::Text(serde_json::to_string(message).unwrap_or_default().into())
}

async fn next_piece(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    input.as_mut()?.recv().await
}

async fn next_size(windows: &mut Option<Signal>) {
    match windows {
        Some(windows) => drop(windows.recv().await),
        None => std::future::pending().await,
    }
}
