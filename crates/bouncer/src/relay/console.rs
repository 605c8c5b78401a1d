//! Clients of the console: the database `pgbouncer`, which belongs to no tenant.
//!
//! A thread keeps the connection and its framing only. What is asked goes to the control plane,
//! and the answer comes back as an order, so that no command holds a thread up.

use std::sync::Arc;

use pooler_core::pg::login::{PgLoginRefusal, welcome};
use wire::pg::frame::{HEADER_BYTES, PgHeader, TransactionStatus, frontend};
use wire::pg::message::{ErrorFields, backend};

use super::client::{ClientPhase, RelayClient};
use super::client_count::CountedConsoleClient;
use super::console_backend::ConsoleReplySlot;
use super::keys::KEY_BYTES;
use super::leave::ClientDeparture;
use super::worker::RelayWorker;
use crate::pgbouncer::console::ConsoleRights;
use tokio::sync::oneshot;

/// The longest command.
const COMMAND_BYTES_MAX: usize = 16 << 10;

/// Parameters that clients of the console get. Drivers read versions and encodings.
const PARAMETERS: [(&str, &str); 8] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
    ("integer_datetimes", "on"),
];

/// A client of the console.
#[derive(Debug)]
pub(super) struct ConsoleClient {
    pub(super) user: Arc<str>,
    rights: ConsoleRights,
    pub(super) pid: u32,
    /// There while an answer is awaited; whoever works on it is told when this is dropped.
    asks: Option<oneshot::Sender<()>>,
    /// True if everything up to a `Sync` is passed over.
    skips: bool,
    /// Counts it among the others.
    _visit: Option<CountedConsoleClient>,
}

impl ConsoleClient {
    /// Returns whether it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.asks.is_some()
    }
}

/// Request of a console client.
enum ConsoleRequest {
    Nothing,
    Question(String),
    Farewell,
    Wrong(ErrorFields<'static>),
}

impl RelayWorker {
    /// Lets somebody in who has proved that it may.
    pub(super) fn begin_console(
        &mut self,
        place: u32,
        user: Arc<str>,
        rights: ConsoleRights,
    ) -> Result<(), PgLoginRefusal> {
        let backend = self.common.console.get();
        let (all_max, user_max) = match (rights, backend) {
            (ConsoleRights::Stats, Some(backend)) => backend.watchers_max(&user),
            (ConsoleRights::Admin, _) | (_, None) => (None, None),
        };
        let visit = self.common.population.route_to_console(&user, all_max, user_max);
        let visit = visit.map_err(|full| PgLoginRefusal::new("53300", self.words().full(full)))?;
        self.counters.stats.logins.sub(1);
        let Some(client) = self.clients.get_mut(place) else { return Ok(()) };
        client.since_us = self.context.now_us;
        let registered = self.common.keys.register(self.index, place, KEY_BYTES);
        let (pid, key) = registered.map_err(|error| {
            let refusal = PgLoginRefusal::new("58000", "there is no key for this connection");
            PgLoginRefusal { cause: Some(error.to_string()), ..refusal }
        })?;
        welcome(PARAMETERS, pid, &key, &mut self.outbox.to_client);
        let console_client =
            ConsoleClient { user, rights, pid, asks: None, skips: false, _visit: Some(visit) };
        client.phase = ClientPhase::Console(Box::new(console_client));
        self.send_outbox(Some(place), None);
        Ok(())
    }

    /// Gives bytes to the connection of a client of the console; says how many were used.
    pub(super) fn feed_console(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let header = match PgHeader::parse(rest) {
                Ok(Some(header)) if header.total <= COMMAND_BYTES_MAX => header,
                Ok(None) => return used,
                Ok(Some(_)) | Err(_) => {
                    let message = "the console takes messages of 16 KiB at most";
                    self.disconnect(place, &ErrorFields::fatal("08P01", message));
                    return bytes.len();
                }
            };
            let Some(body) = rest.get(HEADER_BYTES..header.total) else { return used };
            used += header.total;
            let RelayWorker { clients, outbox, .. } = self;
            let client = clients.get_mut(place);
            let Some(RelayClient { phase: ClientPhase::Console(console_client), serial, .. }) =
                client
            else {
                return bytes.len();
            };
            let serial = *serial;
            match console_client.take(header.tag, body, &mut outbox.to_client) {
                ConsoleRequest::Nothing => self.send_outbox(Some(place), None),
                ConsoleRequest::Question(text) => {
                    self.ask(place, serial, text);
                    return used;
                }
                ConsoleRequest::Farewell => {
                    self.client_gone(place, &ClientDeparture::Terminate);
                    return bytes.len();
                }
                ConsoleRequest::Wrong(fields) => {
                    self.disconnect(place, &fields);
                    return bytes.len();
                }
            }
        }
    }

    /// Passes a question on.
    fn ask(&mut self, place: u32, serial: u64, text: String) {
        let Some(backend) = self.common.console.get() else { return };
        let client = self.clients.get_mut(place).map(|client| &mut client.phase);
        let Some(ClientPhase::Console(console_client)) = client else { return };
        let (asks, left) = oneshot::channel();
        console_client.asks = Some(asks);
        let reply = ConsoleReplySlot { inbox: Arc::clone(&self.inbox), client: place, serial };
        backend.ask(text, console_client.rights, reply, left);
    }

    /// The answer to a question has come.
    pub(super) fn answered(&mut self, place: u32, serial: u64, answer: &[u8]) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let (true, ClientPhase::Console(console_client)) =
            (client.serial == serial, &mut client.phase)
        else {
            return;
        };
        console_client.asks = None;
        self.outbox.to_client.extend_from_slice(answer);
        self.send_outbox(Some(place), None);
        // It may have sent more meanwhile.
        self.queue_client(place);
    }
}

impl ConsoleClient {
    /// Understands one message. The extended protocol is answered as by a server that cannot plan
    /// the statement: an error, and nothing more up to the next `Sync`.
    fn take(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> ConsoleRequest {
        match tag {
            frontend::TERMINATE => ConsoleRequest::Farewell,
            frontend::SYNC => {
                self.skips = false;
                backend::ready_for_query(out, TransactionStatus::Idle);
                ConsoleRequest::Nothing
            }
            _ if self.skips => ConsoleRequest::Nothing,
            frontend::QUERY => match body.strip_suffix(&[0]).map(std::str::from_utf8) {
                Some(Ok(text)) => ConsoleRequest::Question(text.to_owned()),
                Some(Err(_)) | None => {
                    ConsoleRequest::Wrong(ErrorFields::fatal("08P01", "the command is no text"))
                }
            },
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => {
                self.skips = true;
                let message = "extended query protocol not supported by admin console";
                backend::error(out, &ErrorFields::error("08P01", message));
                ConsoleRequest::Nothing
            }
            frontend::FLUSH => ConsoleRequest::Nothing,
            _ => {
                ConsoleRequest::Wrong(ErrorFields::fatal("08P01", "the console takes queries only"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console_client() -> ConsoleClient {
        let (user, rights) = ("ann".into(), ConsoleRights::Admin);
        ConsoleClient { user, rights, pid: 1, asks: None, skips: false, _visit: None }
    }

    #[test]
    fn messages_of_console_clients() {
        let mut console_client = console_client();
        let mut said = |tag, body: &[u8]| {
            let mut out = Vec::new();
            let asked = match console_client.take(tag, body, &mut out) {
                ConsoleRequest::Nothing => "nothing".to_owned(),
                ConsoleRequest::Question(text) => text,
                ConsoleRequest::Farewell => "farewell".to_owned(),
                ConsoleRequest::Wrong(fields) => fields.message.to_owned(),
            };
            (asked, out.first().map(|tag| char::from(*tag)))
        };
        let mut check = |tag, body: &[u8], asked: &str, tells| {
            assert_eq!(said(tag, body), (asked.to_owned(), tells), "{}", char::from(tag));
        };
        check(frontend::QUERY, b"show pools\0", "show pools", None);
        check(frontend::PARSE, b"\0show pools\0\0\0", "nothing", Some('E'));
        check(frontend::EXECUTE, b"", "nothing", None);
        check(frontend::QUERY, b"show pools\0", "nothing", None);
        check(frontend::SYNC, b"", "nothing", Some('Z'));
        check(frontend::QUERY, b"\xff\0", "the command is no text", None);
        check(frontend::QUERY, b"", "the command is no text", None);
        check(b'F', b"", "the console takes queries only", None);
        check(frontend::TERMINATE, b"", "farewell", None);
    }
}
