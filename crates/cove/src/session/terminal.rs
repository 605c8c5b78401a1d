//! `cove session exec --tty`: a program there, at the terminal here.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, anyhow};
use api::{ClientMessage, SessionExecEvent, TerminalSize};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_tungstenite::tungstenite::Message;

use super::exec::end;
use super::{path, usage};
use crate::cli::SessionExecArgs;
use crate::percent::escaped;
use crate::remote::socket::{self, Socket};
use crate::remote::{Remote, plain};
use crate::run::read_ahead;
use crate::run::terminal::{self, RawTerminal};

pub(super) async fn run(args: &SessionExecArgs, server: &Remote) -> Result<u8> {
    if !terminal::is_there() {
        return Err(usage("--tty needs a terminal to type at and to show"));
    }
    let TerminalSize { rows, cols } = terminal::size()?;
    let mut query = format!("/terminal?rows={rows}&cols={cols}");
    for part in &args.argv {
        query.push_str(&format!("&argv={}", escaped(part)));
    }
    if let Some(cwd) = &args.cwd {
        query.push_str(&format!("&cwd={}", escaped(cwd)));
    }
    let socket = socket::open(server, &path(&args.id, &query)).await?;
    // Dropped with this future, which every way out of it does.
    let raw = RawTerminal::enter().context("make the terminal raw")?;
    let windows = signal(SignalKind::window_change())?;
    let (sink, stream) = socket.split();
    let ended = tokio::select! {
        ended = listen(stream) => ended,
        error = talk(sink, windows) => Err(error),
    };
    drop(raw);
    ended
}

/// Shows what comes until the program ends; its exit code.
async fn listen(mut stream: SplitStream<Socket>) -> Result<u8> {
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
                    SessionExecEvent::Ended(result) => return Ok(end(&result)),
                    SessionExecEvent::Error { error } => return Err(anyhow!("{}", plain(&error))),
                    SessionExecEvent::Started { .. }
                    | SessionExecEvent::Stdout { .. }
                    | SessionExecEvent::Stderr { .. } => {}
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

/// Sends what is typed, and changes of the terminal's size. Returns only with an error.
async fn talk(mut sink: SplitSink<Socket, Message>, mut windows: Signal) -> anyhow::Error {
    let mut input = read_ahead(Box::new(io::stdin()));
    let mut is_open = true;
    loop {
        let message = tokio::select! {
            piece = input.recv(), if is_open => match piece {
                Some(bytes) => Message::Binary(bytes.into()),
                None => {
                    is_open = false;
                    say(&ClientMessage::Eof)
                }
            },
            _ = windows.recv() => match terminal::size() {
                Ok(size) => say(&ClientMessage::Resize(size)),
                // A terminal that is gone has no size; its end is noticed elsewhere.
                Err(_) => continue,
            },
        };
        if sink.send(message).await.is_err() {
            // The other half sees why, and what came before.
            return std::future::pending().await;
        }
    }
}

fn say(message: &ClientMessage) -> Message {
    Message::Text(serde_json::to_string(message).unwrap_or_default().into())
}
