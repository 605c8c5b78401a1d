//! Handover from one process to the next: the old one releases its clients, the new one accepts
//! them.
//!
//! A client is handed over when it holds no server connection and no message of it is in progress.
//! Clients that cannot be handed over get an error that asks them to reconnect: those with an
//! encrypted connection, with `LISTEN`, with a password that the bouncer does not know, or with
//! warnings that they may still request.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/unix.7.html>

pub(super) mod mysql;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use api::TenantEngine;
use pooler_core::link::put_mysql_error;
use pooler_core::pg::client::PgClientSession;
use wire::pg::message::{ErrorFields, backend};

use super::accept::{ListenerSpec, RelayListener, SocketFile};
use super::common::RelayShared;
use super::orders::ThreadMessageKind;
use super::takeover::{self, AdoptedClient, CarriedStatement, HandoverMessage, HandoverSession};

/// Error for clients that cannot continue with the next process.
pub(super) const RECONNECT: &str =
    "terminating connection: the server is being replaced, connect again";

/// Waits for the next process, and sends it the threads' listeners and clients.
pub(super) fn offer(
    listener: std::os::unix::net::UnixListener,
    file: SocketFile,
    common: &RelayShared,
) {
    let mut stream = loop {
        let followed = takeover::followed(&listener);
        if common.is_stopping.load(Ordering::Acquire) {
            return;
        }
        match followed {
            Ok(Some(stream)) => break stream,
            Ok(None) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::warn!(error, "no process can take over from this one any more");
            }
        }
    };
    tracing::info!("another process takes over");
    // The next process creates its own.
    drop((listener, file));
    let (sender, parcels) = std::sync::mpsc::channel();
    // The first thread forwards the order to the others, after it has stopped accepting: no client
    // can then be assigned to a thread that has handed everything over.
    if let Some(first) = common.peers.first() {
        first.inbox.push(ThreadMessageKind::HandOver(sender));
    }
    common.is_taken_over.store(true, Ordering::Release);
    pass_on(&mut stream, &parcels);
}

/// Sends messages to the next process; if that is lost, clients get an error instead.
pub(super) fn pass_on(stream: &mut UnixStream, parcels: &Receiver<HandoverMessage>) {
    let mut is_broken = false;
    for message in parcels {
        if !is_broken && let Err(error) = takeover::send(stream, &message) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the process that takes over is gone");
            is_broken = true;
        }
        if is_broken && let HandoverMessage::Client(fd, carried) = message {
            farewell(fd, carried.engine());
        }
    }
}

/// Takes clients over until there are no more.
pub(super) fn take_in(inherited: HandoverState, common: &RelayShared) {
    let HandoverState { mut stream, early, .. } = inherited;
    // From here on there may be long pauses while clients are busy.
    if stream.set_read_timeout(None).is_err() {
        return;
    }
    for adopted in early {
        deal(adopted, common);
    }
    loop {
        match takeover::receive(&mut stream) {
            Ok(Some(HandoverMessage::Client(fd, carried))) => {
                deal(AdoptedClient(fd, carried), common)
            }
            Ok(Some(HandoverMessage::Listener(..) | HandoverMessage::ListenersEnd)) => {}
            Ok(None) => return tracing::info!("has taken over"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::error!(error, "the former process hands over nothing more");
            }
        }
    }
}

/// Passes a client to the thread with the fewest.
fn deal(adopted: AdoptedClient, common: &RelayShared) {
    let fewest = common.peers.iter().min_by_key(|peer| peer.load.load(Ordering::Relaxed));
    if let Some(peer) = fewest {
        peer.load.fetch_add(1, Ordering::Relaxed);
        peer.inbox.push(ThreadMessageKind::Adopted(adopted));
    }
}

/// Sends a client an error that asks it to reconnect, if its socket has room.
pub(super) fn farewell(fd: OwnedFd, engine: TenantEngine) {
    let mut bytes = Vec::new();
    let fields = ErrorFields::fatal("57P01", RECONNECT);
    match engine {
        TenantEngine::Postgres => backend::error(&mut bytes, &fields),
        TenantEngine::Mysql => put_mysql_error(&mut 0, &fields, &mut bytes),
    }
    // If the write fails, the client sees only the end of the connection.
    drop(std::fs::File::from(fd).write_all(&bytes));
}

impl HandoverSession {
    /// Returns the client's protocol.
    pub(super) fn engine(&self) -> TenantEngine {
        match self.mysql {
            Some(_) => TenantEngine::Mysql,
            None => TenantEngine::Postgres,
        }
    }

    /// Adds the state of a PostgreSQL session; `None` if that cannot be transferred.
    pub(super) fn of_pg(self, link: &PgClientSession) -> Option<HandoverSession> {
        let statements = link.statements()?.map(|(name, text, types)| CarriedStatement {
            name: name.into(),
            text: text.into(),
            types: types.into(),
        });
        // Without a key the client's statements could not be cancelled.
        (!self.key.is_empty()).then_some(())?;
        Some(HandoverSession {
            requested: pairs(link.requested().iter()),
            wanted: pairs(link.settings().iter()),
            seen: pairs(link.seen().iter()),
            statements: statements.collect(),
            ..self
        })
    }
}

/// State with which a successor process begins.
pub(super) struct HandoverState {
    pub(super) stream: UnixStream,
    pub(super) early: Vec<AdoptedClient>,
    pub(super) listeners: Vec<(OwnedFd, String)>,
}

/// Receives the listeners of the former process.
pub(super) fn inherit(mut stream: UnixStream) -> std::io::Result<HandoverState> {
    let (mut early, mut listeners) = (Vec::new(), Vec::new());
    loop {
        match takeover::receive(&mut stream)? {
            Some(HandoverMessage::Listener(fd, address)) => listeners.push((fd, address)),
            Some(HandoverMessage::Client(fd, carried)) => early.push(AdoptedClient(fd, carried)),
            Some(HandoverMessage::ListenersEnd) => {
                return Ok(HandoverState { stream, early, listeners });
            }
            None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl HandoverState {
    /// Returns the listener for an address, if it was inherited.
    pub(super) fn listener(&mut self, spec: &ListenerSpec) -> Option<RelayListener> {
        let at = self.listeners.iter().position(|(_, address)| spec.is_at(address))?;
        let (fd, _) = self.listeners.swap_remove(at);
        Some(RelayListener::inherited(spec, fd))
    }
}

fn pairs<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    of.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn borrowed(of: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    of.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
