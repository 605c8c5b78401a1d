//! `cove session exec --tty` and `cove session terminal`: a program in a session, on this terminal.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, anyhow};
use api::{
    ClientMessage, SessionExecEvent, SessionTerminalList, SessionTerminalState, TerminalSize,
};
use axum::http::Method;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_tungstenite::tungstenite::Message;

use super::exec::end;
use super::{path, usage};
use crate::cli::{SessionExecArgs, SessionTerminalArgs, SessionTerminalsArgs};
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::socket::{self, Socket};
use crate::remote::{Remote, plain};
use crate::run::terminal::{self, RawTerminal};
use crate::run::{print_json, read_ahead};
use crate::values::columns;

/// Key that detaches from a terminal that keeps running (Ctrl-], as in telnet).
const DETACH_KEY: u8 = 0x1d;

/// `cove session exec --tty`.
pub(super) async fn exec(args: &SessionExecArgs, server: &Remote) -> Result<u8> {
    let query = program(&args.argv, args.cwd.as_deref());
    converse(server, &args.id, &query, DetachKey::Typed).await
}

/// `cove session terminal`.
pub(super) async fn run(args: &SessionTerminalArgs, server: &Remote) -> Result<u8> {
    let (query, key) = match (&args.attach, args.detach_s.filter(|seconds| *seconds > 0)) {
        (Some(terminal), _) => (format!("&attach={}", escaped(terminal)), DetachKey::Detaches),
        (None, Some(seconds)) => {
            let program = program(&args.argv, args.cwd.as_deref());
            (format!("{program}&detach_s={seconds}"), DetachKey::Detaches)
        }
        (None, None) => (program(&args.argv, args.cwd.as_deref()), DetachKey::Typed),
    };
    converse(server, &args.id, &query, key).await
}

/// `cove session terminals`.
pub(super) async fn list(args: &SessionTerminalsArgs, server: &Remote, json: bool) -> Result<()> {
    let at = path(&args.id, "/terminals");
    if let Some(terminal) = &args.end {
        let request = server.request(Method::DELETE, &format!("{at}/{}", escaped(terminal)));
        server.open(request).await?;
        return Ok(());
    }
    let list: SessionTerminalList = server.ask(server.request(Method::GET, &at)).await?;
    if json {
        return Ok(print_json(&list)?);
    }
    let heading = ["id", "state", "pid", "until", "command"].map(str::to_owned);
    let rows = list.terminals.into_iter().map(|it| {
        let state = match it.state {
            SessionTerminalState::Attached => "attached",
            SessionTerminalState::Detached => "detached",
            SessionTerminalState::Ended => "ended",
        };
        let until = it.expires_at.unwrap_or_else(|| "-".to_owned());
        [it.id, state.to_owned(), it.pid.to_string(), until, it.argv.join(" ")]
    });
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    Ok(write!(io::stdout(), "{}", columns(&rows, ""))?)
}

/// Effect of [`DETACH_KEY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetachKey {
    /// The program receives it like any other key.
    Typed,
    /// The client detaches, and the terminal keeps running.
    Detaches,
}

fn program(argv: &[String], cwd: Option<&str>) -> String {
    let mut query: String = argv.iter().map(|part| format!("&argv={}", escaped(part))).collect();
    if let Some(cwd) = cwd {
        query.push_str(&format!("&cwd={}", escaped(cwd)));
    }
    query
}

async fn converse(server: &Remote, id: &str, query: &str, key: DetachKey) -> Result<u8> {
    if !terminal::is_there() {
        return Err(usage("a terminal to type at and to show is needed"));
    }
    let TerminalSize { rows, cols } = terminal::size()?;
    let query = format!("/terminal?rows={rows}&cols={cols}{query}");
    let socket = socket::open(server, &path(id, &query)).await?;
    // Dropped with this future on every exit path.
    let raw = RawTerminal::enter().context("make the terminal raw")?;
    let windows = signal(SignalKind::window_change())?;
    let (sink, stream) = socket.split();
    let mut open = None;
    let ended = tokio::select! {
        ended = listen(stream, &mut open) => ended,
        left = talk(sink, windows, key) => left,
    };
    drop(raw);
    if let (Some(terminal), Ok(0) | Err(_)) = (&open, &ended) {
        complain(&format!(
            "detached; `cove session terminal --attach {terminal} {id}` attaches again"
        ));
    }
    ended
}

/// Prints output until the program ends; returns its exit code. `open` is the id of a terminal that
/// keeps running without this client, for as long as it does.
async fn listen(mut stream: SplitStream<Socket>, open: &mut Option<String>) -> Result<u8> {
    loop {
        let message = stream.next().await.context("the server is gone")?;
        match message.context("lost the server")? {
            Message::Binary(bytes) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Message::Text(text) => {
                let event = serde_json::from_str(text.as_str());
                match event.context("read an event of the server")? {
                    SessionExecEvent::Ended(result) => {
                        *open = None;
                        return Ok(end(&result));
                    }
                    SessionExecEvent::Error { error } => {
                        *open = None;
                        return Err(anyhow!("{}", plain(&error)));
                    }
                    SessionExecEvent::Started { terminal, .. } => {
                        *open = terminal.map(|terminal| plain(&terminal));
                    }
                    SessionExecEvent::Attached { terminal, .. } => *open = Some(plain(&terminal)),
                    SessionExecEvent::Stdout { .. } | SessionExecEvent::Stderr { .. } => {}
                }
            }
            Message::Close(frame) => {
                let why = frame.map(|frame| plain(frame.reason.as_str())).unwrap_or_default();
                return Err(anyhow!("the server hung up: {why}"));
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Sends input, and changes of the terminal's size. Returns when the client detaches.
async fn talk(
    mut sink: SplitSink<Socket, Message>,
    mut windows: Signal,
    key: DetachKey,
) -> Result<u8> {
    let mut input = read_ahead(Box::new(io::stdin()));
    let mut is_open = true;
    loop {
        let message = tokio::select! {
            piece = input.recv(), if is_open => match piece {
                Some(bytes) => {
                    if key == DetachKey::Detaches && bytes.contains(&DETACH_KEY) {
                        let before = bytes.iter().position(|byte| *byte == DETACH_KEY);
                        let typed = bytes.get(..before.unwrap_or(0)).unwrap_or_default().to_vec();
                        // Input that cannot be sent is lost with the connection.
                        let _sent = sink.send(Message::Binary(typed.into())).await;
                        return Ok(0);
                    }
                    Message::Binary(bytes.into())
                }
                None => {
                    is_open = false;
                    encode(&ClientMessage::Eof)
                }
            },
            _ = windows.recv() => match terminal::size() {
                Ok(size) => encode(&ClientMessage::Resize(size)),
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
