//! Clients of the console: the database `pgbouncer`, which belongs to no tenant.
//!
//! A thread keeps only the connection and its framing. Commands go to the control plane, and the
//! reply comes back as an order, so that no command blocks a thread.

use std::sync::Arc;

use tokio::sync::oneshot;
use wire::pg::frame::{TransactionStatus, frontend};
use wire::pg::message::{ErrorFields, backend};

use super::client_count::CountedConsoleClient;
use super::console_backend::{ConsoleReplySlot, ConsoleRights};
use super::context::ThreadContext;

/// Maximum length of a command.
pub(super) const COMMAND_BYTES_MAX: usize = 16 << 10;

/// Parameters that are reported to clients of the console. Drivers read versions and encodings.
pub(super) const PARAMETERS: [(&str, &str); 8] = [
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
    /// Present while a reply is outstanding; dropping it informs the task that works on the reply.
    asks: Option<oneshot::Sender<()>>,
    /// True if messages up to a `Sync` are skipped.
    skips: bool,
    /// Its entry in the count of console clients.
    _visit: Option<CountedConsoleClient>,
}

impl ConsoleClient {
    /// Returns whether it waits for a reply.
    pub(super) fn is_waiting(&self) -> bool {
        self.asks.is_some()
    }
}

/// Request of a console client.
pub(super) enum ConsoleRequest {
    Nothing,
    Question(String),
    Farewell,
    Wrong(ErrorFields<'static>),
}

impl ConsoleClient {
    /// Creates a client that is authenticated and admitted.
    pub(super) fn new(
        user: Arc<str>,
        rights: ConsoleRights,
        pid: u32,
        visit: CountedConsoleClient,
    ) -> ConsoleClient {
        ConsoleClient { user, rights, pid, asks: None, skips: false, _visit: Some(visit) }
    }

    /// Records that the reply has arrived.
    pub(super) fn answered(&mut self) {
        self.asks = None;
    }

    /// Passes a command on.
    pub(super) fn ask(&mut self, place: u32, serial: u64, text: String, context: &ThreadContext) {
        let Some(backend) = context.common.console.get() else { return };
        let (asks, left) = oneshot::channel();
        self.asks = Some(asks);
        let reply = ConsoleReplySlot { inbox: Arc::clone(&context.inbox), client: place, serial };
        backend.ask(text, self.rights, reply, left);
    }

    /// Handles one message. The extended protocol is answered as by a server that cannot plan the
    /// statement: with an error, and nothing more up to the next `Sync`.
    pub(super) fn take(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> ConsoleRequest {
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
                Some(Err(_)) | None => ConsoleRequest::Wrong(ErrorFields::fatal(
                    "08P01",
                    "the command is not UTF-8 text",
                )),
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
        check(frontend::QUERY, b"\xff\0", "the command is not UTF-8 text", None);
        check(frontend::QUERY, b"", "the command is not UTF-8 text", None);
        check(b'F', b"", "the console takes queries only", None);
        check(frontend::TERMINATE, b"", "farewell", None);
    }
}
