//! `/v1/sessions/{id}/terminal`: a program with a terminal, on a WebSocket.
//!
//! What the program writes comes as binary messages, what happens to it as [`SessionExecEvent`]s in
//! text. What is typed goes as binary messages, or as [`ClientMessage`]s like those of executions.
//! The program ends with the WebSocket: its terminal hangs up.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6455>

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use api::{ClientMessage, ErrorCode, SessionExecEvent, TerminalSize};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::extract::{FromRequestParts as _, Query, Request, State, WebSocketUpgrade};
use axum::http::Uri;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http;
use sandbox::{
    ProcessEnd, ProcessHandle, ProcessStreams, ProcessTerminal, SessionProcess, SessionProgram,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time;

use super::SessionIdPath;
use super::commands::SANDBOX_GONE;
use super::conversation::HEARTBEAT;
use crate::error::SessionError;
use crate::service::{SandboxGuard, Sessions, exec_result, signal_name};

/// Time that a client may leave a message unread before it counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest message of a client.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait for a program that does not read. Beyond them, the socket is not read.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Bytes that a piece of input counts beside its own, so that a flood of short ones is bounded,
/// too.
const PIECE_BYTES: usize = 64;
/// Bytes that are read from the terminal at a time.
const CHUNK_BYTES: usize = 32 << 10;
/// Time that the output of a program that has ended is read while something that it left behind
/// keeps its terminal open.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);
/// Close code after data that is not a message (RFC 6455 §7.4.2: private use).
const CLOSE_MALFORMED: u16 = 4400;
/// Arguments of a program, bytes of one (MAX_ARG_STRLEN, execve(2)), and of what stands in a query.
const ARGV_MAX: usize = 256;
/// Rows and columns, unless the caller says otherwise, and at most.
const SIZE_DEFAULT: TerminalSize = TerminalSize { rows: 24, cols: 80 };
const SIZE_MAX: u16 = 4096;
/// Default program of a terminal.
const SHELL: [&str; 2] = ["/bin/bash", "-l"];
/// Terminal type in the environment of programs, unless the session sets another one.
const TERM: (&str, &str) = ("TERM", "xterm-256color");
/// The character that ends the input of a terminal (Ctrl-D).
const END_OF_INPUT: u8 = 4;
/// The signal that nobody ignores, and the last one that has a name.
const SIGKILL: i32 = 9;
const SIGNAL_MAX: i32 = 31;

/// Program to start in a terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TerminalQuery {
    pub(super) argv: Vec<String>,
    pub(super) cwd: Option<String>,
    pub(super) size: TerminalSize,
}

/// Reads the query: `argv` may stand there many times.
pub(super) fn asked(uri: &Uri) -> Result<TerminalQuery, http::HttpError> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|_| http::HttpError::invalid("the query is wrong"))?;
    let (mut argv, mut cwd, mut size) = (Vec::new(), None, SIZE_DEFAULT);
    for (name, value) in pairs {
        if value.contains('\0') {
            return Err(http::HttpError::invalid("has no NUL character").at(name));
        }
        match name.as_str() {
            "argv" if argv.len() >= ARGV_MAX => {
                return Err(
                    http::HttpError::invalid(format!("more than {ARGV_MAX} parts")).at("argv")
                );
            }
            "argv" => argv.push(value),
            "cwd" => cwd = Some(value),
            "rows" => size.rows = lines(&value, "rows")?,
            "cols" => size.cols = lines(&value, "cols")?,
            _ => {
                let message = "unknown parameter; there are argv, cwd, rows and cols";
                let name: String = name.chars().take(64).collect();
                return Err(http::HttpError::invalid(message).at(name));
            }
        }
    }
    if argv.is_empty() {
        argv = SHELL.map(str::to_owned).to_vec();
    }
    Ok(TerminalQuery { argv, cwd, size })
}

fn lines(text: &str, field: &str) -> Result<u16, http::HttpError> {
    let number = text.parse().ok().filter(|number| (1..=SIZE_MAX).contains(number));
    number.ok_or_else(|| http::HttpError::invalid(format!("must be 1 to {SIZE_MAX}")).at(field))
}

/// `GET /v1/sessions/{id}/terminal`.
pub(super) async fn open(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    drain: DrainHandle,
    SessionIdPath(id): SessionIdPath,
    request: Request,
) -> Result<Response, http::HttpError> {
    let TerminalQuery { argv, cwd, size } = asked(request.uri())?;
    let (mut parts, _body) = request.into_parts();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &()).await else {
        let message = "a terminal needs a WebSocket";
        return Err(http::HttpError::new(ErrorCode::UpgradeRequired, message));
    };
    let sandbox = sessions.sandbox(&who.tenant, &id).await?;
    let mut env = sandbox.environment(&BTreeMap::new()).await?;
    let (name, value) = TERM;
    if !env.iter().any(|it| it.starts_with(b"TERM=")) {
        env.push(format!("{name}={value}").into_bytes());
    }
    let program = SessionProgram {
        argv: argv.into_iter().map(String::into_bytes).collect(),
        env,
        cwd: cwd.map(String::into_bytes),
        terminal: Some(sandbox::TerminalDimensions { rows: size.rows, cols: size.cols }),
        stdin: true,
        merged: false,
    };
    let SessionProcess { streams, handle, .. } = sandbox.start(program).await?;
    let ProcessStreams::Terminal(terminal) = streams else {
        return Err(SessionError::internal("a program with a terminal has pipes").into());
    };
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    let conversation = TerminalConversation { sandbox, handle, terminal };
    Ok(upgrade.on_upgrade(move |socket| Box::pin(conversation.hold(socket, drain))))
}

/// A program with its terminal, for as long as somebody is there.
struct TerminalConversation {
    sandbox: SandboxGuard,
    handle: ProcessHandle,
    terminal: ProcessTerminal,
}

/// Why a conversation is over.
enum TerminalEnd {
    /// The program has ended; the last message says how.
    Ended(SessionExecEvent),
    /// The client is gone.
    Gone,
    /// The server shuts down.
    Away,
    /// The client sent something that is not a message.
    Malformed(String),
}

impl TerminalConversation {
    async fn hold(self, socket: WebSocket, drain: DrainHandle) {
        let TerminalConversation { sandbox, handle, terminal } = self;
        let (mut sink, stream) = socket.split();
        let started = SessionExecEvent::Started { pid: handle.pid() };
        let over = match send(&mut sink, said(&started)).await {
            false => TerminalEnd::Gone,
            true => tokio::select! {
                over = show(&mut sink, terminal.clone(), handle.clone(), sandbox.ended()) => over,
                over = type_in(stream, terminal.clone(), handle.clone()) => over,
                () = drain.cancelled() => TerminalEnd::Away,
            },
        };
        // Nothing that it can keep open holds the goodbye up: the terminal hangs up now.
        drop((terminal, handle));
        let goodbye = match over {
            TerminalEnd::Ended(event) => {
                if !send(&mut sink, said(&event)).await {
                    return;
                }
                goodbye(close_code::NORMAL, "")
            }
            TerminalEnd::Away => goodbye(close_code::AWAY, "the server shuts down"),
            TerminalEnd::Malformed(why) => goodbye(CLOSE_MALFORMED, &why),
            TerminalEnd::Gone => return,
        };
        let _gone = send(&mut sink, goodbye).await;
        drop(sandbox);
    }
}

fn said(event: &SessionExecEvent) -> Message {
    Message::Text(serde_json::to_string(event).unwrap_or_default().into())
}

fn goodbye(code: u16, reason: &str) -> Message {
    // RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code.
    let mut reason = reason.to_owned();
    while reason.len() > 120 {
        reason.pop();
    }
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Returns whether the message was taken; a client that reads nothing for long counts as gone.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Sends what the program writes, up to its end, and a ping now and then.
async fn show(
    sink: &mut SplitSink<WebSocket, Message>,
    mut terminal: ProcessTerminal,
    mut handle: ProcessHandle,
    sandbox_ended: impl Future<Output = String>,
) -> TerminalEnd {
    let mut sandbox_ended = Box::pin(sandbox_ended);
    // Not at once: a socket that is closed meanwhile is broken for who answers that.
    let mut heartbeat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
    let mut buf = vec![0; CHUNK_BYTES];
    let mut is_open = true;
    let mut end: Option<ProcessEnd> = None;
    // Begins anew with every piece of output.
    let mut grace = Box::pin(time::sleep(OUTPUT_GRACE));
    loop {
        if let Some(end) = end.as_ref().filter(|_| !is_open) {
            return TerminalEnd::Ended(SessionExecEvent::Ended(exec_result(end, false)));
        }
        tokio::select! {
            // Output first, and the end after it.
            biased;
            read = terminal.read(&mut buf), if is_open => {
                let count = read.unwrap_or(0);
                if count == 0 {
                    is_open = false;
                    continue;
                }
                grace.as_mut().reset(time::Instant::now() + OUTPUT_GRACE);
                let bytes = Bytes::copy_from_slice(buf.get(..count).unwrap_or_default());
                if !send(sink, Message::Binary(bytes)).await {
                    return TerminalEnd::Gone;
                }
            }
            ended = handle.wait(), if end.is_none() => match ended {
                Ok(ended) => {
                    grace.as_mut().reset(time::Instant::now() + OUTPUT_GRACE);
                    end = Some(ended);
                }
                Err(_) => return lost(),
            },
            () = &mut grace, if end.is_some() && is_open => is_open = false,
            _ = &mut sandbox_ended => return lost(),
            _ = heartbeat.tick() => {
                if !send(sink, Message::Ping(Bytes::new())).await {
                    return TerminalEnd::Gone;
                }
            }
        }
    }
}

fn lost() -> TerminalEnd {
    TerminalEnd::Ended(SessionExecEvent::Error { error: SANDBOX_GONE.to_owned() })
}

/// Input that waits for the program, in order.
#[derive(Default)]
pub(super) struct PendingTerminalInput {
    /// Pieces of input, none of them empty.
    input: VecDeque<Bytes>,
    /// Bytes of the pieces, with [`PIECE_BYTES`] for each.
    bytes: usize,
}

impl PendingTerminalInput {
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes += bytes.len() + PIECE_BYTES;
            self.input.push_back(bytes);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= PENDING_BYTES_MAX
    }

    /// Writes some of it; waits for ever while there is nothing. Cancel-safe.
    async fn hand_on(&mut self, terminal: &mut ProcessTerminal) -> io::Result<()> {
        let Some(first) = self.input.front_mut() else { return std::future::pending().await };
        let count = terminal.write(first).await?;
        let _written = first.split_to(count.min(first.len()));
        self.bytes -= count;
        if first.is_empty() {
            self.bytes -= PIECE_BYTES;
            self.input.pop_front();
        }
        Ok(())
    }
}

/// Takes what the client says.
async fn type_in(
    mut stream: SplitStream<WebSocket>,
    mut terminal: ProcessTerminal,
    handle: ProcessHandle,
) -> TerminalEnd {
    let mut pending = PendingTerminalInput::default();
    let mut is_read = true;
    loop {
        tokio::select! {
            message = stream.next(), if !pending.is_full() => {
                let taken = match message {
                    None | Some(Err(_) | Ok(Message::Close(_))) => return TerminalEnd::Gone,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                    Some(Ok(Message::Binary(bytes))) => {
                        pending.push(bytes);
                        Ok(())
                    }
                    Some(Ok(Message::Text(text))) => {
                        take(text.as_str(), &mut pending, &handle).await
                    }
                };
                if let Err(why) = taken {
                    return TerminalEnd::Malformed(why);
                }
                if !is_read {
                    pending = PendingTerminalInput::default();
                }
            }
            written = pending.hand_on(&mut terminal) => {
                // Nobody has the other side any more; whoever sends the output notices as well.
                if written.is_err() {
                    is_read = false;
                    pending = PendingTerminalInput::default();
                }
            }
        }
    }
}

async fn take(
    text: &str,
    pending: &mut PendingTerminalInput,
    handle: &ProcessHandle,
) -> Result<(), String> {
    let message: ClientMessage =
        http::parse_json("the message", text.as_bytes()).map_err(|error| error.to_string())?;
    match message {
        ClientMessage::Stdin { data: Some(text), data_base64: None } => pending.push(text.into()),
        ClientMessage::Stdin { data: None, data_base64: Some(text) } => {
            let bytes = BASE64.decode(text).map_err(|error| format!("data_base64: {error}"))?;
            pending.push(bytes.into());
        }
        ClientMessage::Stdin { .. } => {
            return Err("exactly one of data and data_base64 is needed".to_owned());
        }
        ClientMessage::Eof => pending.push(Bytes::from_static(&[END_OF_INPUT])),
        // What has ended needs no signal.
        ClientMessage::Cancel => drop(handle.signal(SIGKILL).await),
        ClientMessage::Signal { signal } => {
            let number = signal_number(&signal);
            let number = number.ok_or_else(|| format!("there is no signal {signal:.20}"))?;
            drop(handle.signal(number).await);
        }
        ClientMessage::Resize(TerminalSize { rows, cols }) => {
            if !(1..=SIZE_MAX).contains(&rows) || !(1..=SIZE_MAX).contains(&cols) {
                return Err(format!("rows and cols must be 1 to {SIZE_MAX}"));
            }
            drop(handle.resize(sandbox::TerminalDimensions { rows, cols }));
        }
    }
    Ok(())
}

/// The number of a signal, with or without `SIG`.
pub(super) fn signal_number(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    (1..=SIGNAL_MAX).find(|number| signal_name(*number).strip_prefix("SIG") == Some(name))
}
