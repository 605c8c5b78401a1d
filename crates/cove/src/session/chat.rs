//! `cove session chat`: a conversation with an agent, line by line.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;
use api::{InterruptAnswer, SessionState, SessionView};
use axum::http::Method;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::show::{EventDisplay, EventPrinter};
use super::{begin, change, create, message, path};
use crate::cli::ChatArgs;
use crate::messages::complain;
use crate::remote::events;
use crate::remote::{Remote, plain};

/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;

pub(super) async fn chat(args: &ChatArgs, server: &Remote) -> Result<u8> {
    let session = match &args.id {
        Some(id) => {
            let session: SessionView = server.call(Method::GET, &path(id, "")).await?;
            match session.state {
                SessionState::Paused | SessionState::Stopped | SessionState::Error => {
                    change(server, id, Some("resume")).await?
                }
                SessionState::Starting | SessionState::Active | SessionState::Ended => session,
            }
        }
        None => create(server, args.agent.as_deref(), &args.new).await?,
    };
    let prompt = io::stdin().is_terminal() && io::stderr().is_terminal();
    if prompt {
        complain(&format!("talking to {}; Ctrl-D ends it", plain(&session.id)));
    }
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut lines = typed();
    let mut code = 0;
    loop {
        if prompt {
            write!(io::stderr(), "> ")?;
        }
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = interrupts.recv() => None,
        };
        let Some(line) = line else {
            if prompt {
                writeln!(io::stderr())?;
            }
            return Ok(code);
        };
        if line.trim().is_empty() {
            continue;
        }
        let mut show = EventPrinter::new(EventDisplay { says: true, does: true });
        let body = message(line, None, show.is_live());
        let mut turn = begin(server, &session.id, &body).await?;
        loop {
            let text = tokio::select! {
                text = turn.next_text() => text?,
                _ = interrupts.recv() => {
                    let target = path(&session.id, "/interrupt");
                    let _answer: InterruptAnswer = server.call(Method::POST, &target).await?;
                    continue;
                }
            };
            let Some(text) = text else { break };
            if show.event(&events::read(&text)?)? {
                break;
            }
        }
        code = show.end()?;
    }
}

/// Returns the typed lines, read in a separate thread: a read of a terminal cannot be cancelled,
/// and must not keep the process from ending.
fn typed() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let mut input = io::Read::take(io::stdin().lock(), LINE_BYTES_MAX);
            match io::BufRead::read_line(&mut input, &mut line) {
                Ok(0) => return,
                Ok(_) => {
                    let line = line.trim_end_matches(['\r', '\n']).to_owned();
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                Err(error) => return complain(&format!("failed to read the input: {error}")),
            }
        }
    });
    receiver
}
