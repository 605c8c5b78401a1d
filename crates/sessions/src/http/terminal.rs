//! `/v1/sessions/{id}/terminal`: a program with a terminal, on a WebSocket.
//!
//! The server sends program output as binary messages, and [`SessionExecEvent`]s as text. The
//! client sends input as binary messages, or as [`ClientMessage`]s like those of executions. The
//! program ends with the WebSocket: its terminal hangs up. With `detach_s` it continues for that
//! time, and a WebSocket may [attach](TerminalQuery::Attach) to it again.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6455>

use std::collections::VecDeque;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use api::{ClientMessage, ErrorCode, SessionExecEvent, SessionTerminalList, TerminalSize};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::extract::{FromRequestParts as _, Query, Request, State, WebSocketUpgrade};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http::{self, CredentialBinding};
use sandbox::{ProcessHandle, ProcessStreams, ProcessTerminal, SessionProcess, SessionProgram};
use tokio::io::AsyncWriteExt as _;
use tokio::time;

use super::conversation::HEARTBEAT;
use super::{FilePath, SessionIdPath};
use crate::error::SessionError;
use crate::program_end::signal_name;
use crate::service::{SandboxGuard, SessionFence, Sessions};
use crate::terminals::{
    ACKNOWLEDGED_WINDOW, OutputAcknowledger, TerminalAttachment, TerminalClosing, TerminalInput,
    TerminalNews, TerminalProgram, TerminalTies,
};
use crate::traces::CommandTrace;

/// Time after which a client that reads nothing counts as disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of a client's message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum input bytes queued for a program that does not read. Beyond them, the socket is not
/// read.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Bytes counted per piece of input in addition to its length, so that a flood of short pieces is
/// bounded, too.
const PIECE_BYTES: usize = 64;
/// Close code after data that is not a message (RFC 6455 §7.4.2: private use).
const CLOSE_MALFORMED: u16 = 4400;
/// Close code for a client whose terminal another one has taken over.
const CLOSE_TAKEN_OVER: u16 = 4409;
/// Maximum number of arguments of a program.
const ARGV_MAX: usize = 256;
/// Default and maximum number of rows and columns.
const SIZE_DEFAULT: TerminalSize = TerminalSize { rows: 24, cols: 80 };
const SIZE_MAX: u16 = 4096;
/// Default program of a terminal.
const SHELL: [&str; 2] = ["/bin/bash", "-l"];
/// Terminal type in the environment of programs, unless the session sets another one.
const TERM: (&str, &str) = ("TERM", "xterm-256color");
/// The character that ends the input of a terminal (Ctrl-D).
const END_OF_INPUT: u8 = 4;
/// The signal that no process can ignore, and the last signal with a name.
const SIGKILL: i32 = 9;
/// Close reason for a terminal whose session moves to another server.
const DRAINING: &str = "the server drains; open a terminal again, which another one answers";
const SIGNAL_MAX: i32 = 31;

/// Request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TerminalQuery {
    /// A program to start.
    Open {
        argv: Vec<String>,
        cwd: Option<String>,
        size: TerminalSize,
        /// Seconds that the terminal may be without a client; 0 ends it with its client.
        detach_s: u32,
        /// Bytes of output that the client may leave unacknowledged, if it acknowledges output.
        window: Option<u32>,
    },
    /// A running terminal, by its id.
    Attach {
        id: String,
        /// Position of the first byte that the client wants.
        from: Option<u64>,
        /// New size, if it changes.
        size: Option<TerminalSize>,
        /// As for a new terminal.
        window: Option<u32>,
    },
}

/// Unparsed parameters of the query.
#[derive(Debug, Default)]
struct TerminalParameters {
    argv: Vec<String>,
    cwd: Option<String>,
    rows: Option<u16>,
    cols: Option<u16>,
    detach_s: Option<u32>,
    attach: Option<String>,
    from: Option<u64>,
    window: Option<u32>,
}

/// Parses the query; `argv` may occur many times.
pub(super) fn asked(uri: &Uri) -> Result<TerminalQuery, http::HttpError> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|_| http::HttpError::invalid("the query is wrong"))?;
    let mut found = TerminalParameters::default();
    for (name, value) in pairs {
        if value.contains('\0') {
            return Err(http::HttpError::invalid("has no NUL character").at(name));
        }
        match name.as_str() {
            "argv" if found.argv.len() >= ARGV_MAX => {
                return Err(
                    http::HttpError::invalid(format!("more than {ARGV_MAX} parts")).at("argv")
                );
            }
            "argv" => found.argv.push(value),
            "cwd" => found.cwd = Some(value),
            "rows" => found.rows = Some(lines(&value, "rows")?),
            "cols" => found.cols = Some(lines(&value, "cols")?),
            "detach_s" => found.detach_s = Some(number(&value, "detach_s")?),
            "attach" => found.attach = Some(value),
            "from" => found.from = Some(number(&value, "from")?),
            "window" => found.window = Some(window(&value)?),
            _ => {
                let message = "unknown parameter; there are argv, cwd, rows, cols, detach_s, \
                               attach, from and window";
                let name: String = name.chars().take(64).collect();
                return Err(http::HttpError::invalid(message).at(name));
            }
        }
    }
    found.query()
}

impl TerminalParameters {
    fn query(self) -> Result<TerminalQuery, http::HttpError> {
        let size = TerminalSize {
            rows: self.rows.unwrap_or(SIZE_DEFAULT.rows),
            cols: self.cols.unwrap_or(SIZE_DEFAULT.cols),
        };
        let Some(id) = self.attach else {
            if self.from.is_some() {
                return Err(http::HttpError::invalid("needs `attach`").at("from"));
            }
            let argv = match self.argv.is_empty() {
                true => SHELL.map(str::to_owned).to_vec(),
                false => self.argv,
            };
            let detach_s = self.detach_s.unwrap_or(0);
            let (cwd, window) = (self.cwd, self.window);
            return Ok(TerminalQuery::Open { argv, cwd, size, detach_s, window });
        };
        let of_new = [
            ("argv", !self.argv.is_empty()),
            ("cwd", self.cwd.is_some()),
            ("detach_s", self.detach_s.is_some()),
        ];
        if let Some((name, _)) = of_new.into_iter().find(|(_, is_there)| *is_there) {
            return Err(http::HttpError::invalid("excludes `attach`").at(name));
        }
        let size = (self.rows.is_some() || self.cols.is_some()).then_some(size);
        Ok(TerminalQuery::Attach { id, from: self.from, size, window: self.window })
    }
}

fn lines(text: &str, field: &str) -> Result<u16, http::HttpError> {
    let number = text.parse().ok().filter(|number| (1..=SIZE_MAX).contains(number));
    number.ok_or_else(|| http::HttpError::invalid(format!("must be 1 to {SIZE_MAX}")).at(field))
}

fn window(text: &str) -> Result<u32, http::HttpError> {
    let number = text.parse().ok().filter(|number| ACKNOWLEDGED_WINDOW.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (ACKNOWLEDGED_WINDOW.start(), ACKNOWLEDGED_WINDOW.end());
        http::HttpError::invalid(format!("must be {least} to {most}")).at("window")
    })
}

fn number<T: FromStr>(text: &str, field: &str) -> Result<T, http::HttpError> {
    text.parse().map_err(|_| http::HttpError::invalid("must be a number").at(field))
}

/// `GET /v1/sessions/{id}/terminal`.
pub(super) async fn open(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    drain: DrainHandle,
    binding: CredentialBinding,
    SessionIdPath(id): SessionIdPath,
    request: Request,
) -> Result<Response, http::HttpError> {
    let query = asked(request.uri())?;
    let (mut parts, _body) = request.into_parts();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &()).await else {
        let message = "a terminal needs a WebSocket";
        return Err(http::HttpError::new(ErrorCode::UpgradeRequired, message));
    };
    let client = match query {
        TerminalQuery::Open { argv, cwd, size, detach_s, window } => {
            let span = node::traces::span("terminal");
            let guard = sessions.sandbox(&who.tenant, &id).await?;
            let trace = CommandTrace::begin(span, &id);
            let place = guard.place_of_terminal(detach_s)?;
            let program = program(&guard, &argv, cwd, size, &trace).await?;
            let SessionProcess { streams, handle, .. } = guard.start(program).await?;
            let ProcessStreams::Terminal(terminal) = streams else {
                return Err(SessionError::internal("a program with a terminal has pipes").into());
            };
            let ties = TerminalTies { binding, drain: drain.clone() };
            let input = TerminalInput { terminal, handle };
            let program = TerminalProgram { argv, input, trace };
            guard.open_terminal(program, detach_s, place, window, ties)?
        }
        TerminalQuery::Attach { id: terminal, from, size, window } => {
            let client = sessions.terminals()?.attach(&who, &id, &terminal, from, window).await?;
            if let (Some(TerminalSize { rows, cols }), Some(input)) = (size, client.input()) {
                // A program that has ended ignores the size.
                drop(input.handle.resize(sandbox::TerminalDimensions { rows, cols }));
            }
            client
        }
    };
    // The session is on this server by now.
    let fence = sessions.fence(Some(&id))?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| Box::pin(hold(client, socket, drain, fence))))
}

async fn program(
    guard: &SandboxGuard,
    argv: &[String],
    cwd: Option<String>,
    size: TerminalSize,
    trace: &CommandTrace,
) -> Result<SessionProgram, SessionError> {
    let mut env = guard.variables().await?;
    trace.pass_on(&mut env);
    let (name, value) = TERM;
    env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    let env = guard.environment(&env).await?;
    Ok(SessionProgram {
        argv: argv.iter().map(|part| part.clone().into_bytes()).collect(),
        env,
        cwd: cwd.map(String::into_bytes),
        terminal: Some(sandbox::TerminalDimensions { rows: size.rows, cols: size.cols }),
        stdin: true,
        merged: false,
    })
}

/// `GET /v1/sessions/{id}/terminals`.
pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionTerminalList>, http::HttpError> {
    Ok(axum::Json(sessions.terminals()?.list(&who, &id).await?))
}

/// `DELETE /v1/sessions/{id}/terminals/{terminal}`.
pub(super) async fn end(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, terminal): FilePath,
) -> Result<StatusCode, http::HttpError> {
    sessions.terminals()?.end(&who, &id, &terminal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Why a WebSocket conversation ends.
enum TerminalEnd {
    /// The program has ended, as the last message describes.
    Ended(SessionExecEvent),
    /// The client has disconnected.
    Gone,
    /// The server shuts down.
    Away,
    /// The server drains, and hands the session over.
    Draining,
    /// Another server may have taken the session over.
    Lost,
    /// Another client has taken the terminal over.
    TakenOver,
    /// The terminal was ended.
    Deleted,
    /// The client sent something that is not a message.
    Malformed(String),
}

/// Relays between a client and its terminal, which is detached at the end.
async fn hold(
    mut client: TerminalAttachment,
    socket: WebSocket,
    drain: DrainHandle,
    fence: Option<SessionFence>,
) {
    let (mut sink, stream) = socket.split();
    let (input, acknowledger) = (client.input(), client.acknowledger());
    let first = said(client.first());
    let over = match send(&mut sink, first).await {
        false => TerminalEnd::Gone,
        true => tokio::select! {
            biased;
            () = lost(fence.as_ref()) => TerminalEnd::Lost,
            over = show(&mut sink, &mut client, fence.as_ref()) => over,
            over = type_in(stream, input, &acknowledger, fence.as_ref()) => over,
            () = drain.cancelled() => TerminalEnd::Away,
        },
    };
    let goodbye = match over {
        TerminalEnd::Ended(event) => {
            if !send(&mut sink, said(&event)).await {
                return;
            }
            client.finish();
            goodbye(close_code::NORMAL, "")
        }
        TerminalEnd::Deleted => goodbye(close_code::NORMAL, "the terminal was ended"),
        TerminalEnd::Away => goodbye(close_code::AWAY, "the server shuts down"),
        TerminalEnd::Draining => goodbye(close_code::AWAY, DRAINING),
        TerminalEnd::Lost => goodbye(close_code::AWAY, "the server has lost the session"),
        TerminalEnd::TakenOver => goodbye(CLOSE_TAKEN_OVER, "another client has attached"),
        TerminalEnd::Malformed(why) => goodbye(CLOSE_MALFORMED, &why),
        TerminalEnd::Gone => return,
    };
    // Detach the terminal now, so that a slow close message does not hold it.
    drop(client);
    let _gone = send(&mut sink, goodbye).await;
}

fn said(event: &SessionExecEvent) -> Message {
    Message::Text(serde_json::to_string(event).unwrap_or_default().into())
}

fn goodbye(code: u16, reason: &str) -> Message {
    // RFC 6455 §5.5: a control frame holds 125 bytes, of which the code takes two.
    let mut reason = reason.to_owned();
    while reason.len() > 120 {
        reason.pop();
    }
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Returns whether the client took the message in time.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Resolves when another server may have taken the session over.
async fn lost(fence: Option<&SessionFence>) {
    match fence {
        Some(fence) => fence.ended().await,
        None => std::future::pending().await,
    }
}

/// Returns whether another server may have taken the session over.
fn is_lost(fence: Option<&SessionFence>) -> bool {
    fence.is_some_and(SessionFence::is_lost)
}

/// Sends the program's output up to its end, and periodic pings.
async fn show(
    sink: &mut SplitSink<WebSocket, Message>,
    client: &mut TerminalAttachment,
    fence: Option<&SessionFence>,
) -> TerminalEnd {
    // Starts with a delay: answering a ping on a socket that is being closed would be an error for
    // the client.
    let mut heartbeat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
    loop {
        tokio::select! {
            news = client.next() => match news {
                TerminalNews::Output(_) if is_lost(fence) => return TerminalEnd::Lost,
                TerminalNews::Output(bytes) => {
                    let count = bytes.len();
                    if !send(sink, Message::Binary(bytes)).await {
                        return TerminalEnd::Gone;
                    }
                    client.sent(count);
                }
                TerminalNews::Ended(event) => return TerminalEnd::Ended(event),
                TerminalNews::TakenOver => return TerminalEnd::TakenOver,
                TerminalNews::Closed(TerminalClosing::Deleted) => return TerminalEnd::Deleted,
                TerminalNews::Closed(TerminalClosing::Away) => return TerminalEnd::Away,
                TerminalNews::Closed(TerminalClosing::Draining) => return TerminalEnd::Draining,
            },
            _ = heartbeat.tick() => {
                if !send(sink, Message::Ping(Bytes::new())).await {
                    return TerminalEnd::Gone;
                }
            }
        }
    }
}

/// Input queued for the program, in order.
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

    /// Writes the first piece, possibly in part; waits for ever while there is none. Cancel-safe.
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

/// Handles the client's messages.
async fn type_in(
    mut stream: SplitStream<WebSocket>,
    input: Option<TerminalInput>,
    acknowledger: &OutputAcknowledger,
    fence: Option<&SessionFence>,
) -> TerminalEnd {
    let Some(TerminalInput { mut terminal, handle }) = input else {
        return until_gone(stream).await;
    };
    let mut pending = PendingTerminalInput::default();
    let mut is_read = true;
    loop {
        tokio::select! {
            message = stream.next(), if !pending.is_full() => {
                if is_lost(fence) {
                    return TerminalEnd::Lost;
                }
                let taken = match message {
                    None | Some(Err(_) | Ok(Message::Close(_))) => return TerminalEnd::Gone,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                    Some(Ok(Message::Binary(bytes))) => {
                        pending.push(bytes);
                        Ok(())
                    }
                    Some(Ok(Message::Text(text))) => {
                        take(text.as_str(), &mut pending, &handle, acknowledger).await
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
                // The program's side is closed; the task that sends output notices it as well.
                if written.is_err() {
                    is_read = false;
                    pending = PendingTerminalInput::default();
                }
            }
        }
    }
}

/// Waits until the client disconnects; its messages are discarded, because the program has ended.
async fn until_gone(mut stream: SplitStream<WebSocket>) -> TerminalEnd {
    loop {
        if let None | Some(Err(_) | Ok(Message::Close(_))) = stream.next().await {
            return TerminalEnd::Gone;
        }
    }
}

async fn take(
    text: &str,
    pending: &mut PendingTerminalInput,
    handle: &ProcessHandle,
    acknowledger: &OutputAcknowledger,
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
        ClientMessage::Ack { bytes } => acknowledger.acknowledge(bytes),
        // A program that has ended needs no signal.
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

/// Returns the number of a signal, with or without `SIG`.
pub(super) fn signal_number(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    (1..=SIGNAL_MAX).find(|number| signal_name(*number).strip_prefix("SIG") == Some(name))
}
