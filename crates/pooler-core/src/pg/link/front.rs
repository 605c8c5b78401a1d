//! Input from a client.

use api::PoolMode;
use wire::pg::exchange::{CopyState, ExchangeEntry, ExchangeRequest, ReplyAudience};
use wire::pg::frame::{HEADER_BYTES, PgHeader, TransactionStatus, frontend, put_header};
use wire::pg::message::{self, ErrorFields};

use super::{ClientNext, FromClient, LinkOutputs, PgLinkContext, change};
use crate::link::not_for_sandboxes;
use crate::pg::client::{PgClientSession, PgPartialMessage};
use crate::pg::server::{PgRequestPurpose, PgServerSession};

/// Numbers that functions for large objects have in every server: `lo_open`, `lo_close`, `loread`,
/// `lowrite`, `lo_lseek`, `lo_creat`, `lo_create`, `lo_tell`, `lo_unlink`, `lo_truncate`, and those
/// of 64 bits
/// (<https://github.com/postgres/postgres/blob/REL_17_STABLE/src/include/catalog/pg_proc.dat>).
const OF_LARGE_OBJECTS: [u32; 13] =
    [952, 953, 954, 955, 956, 957, 715, 958, 964, 1004, 3170, 3171, 3172];

/// Result of a message.
pub(super) enum PgMessageOutcome {
    /// This many bytes were processed; the message's rest is streamed.
    Bytes(usize),
    /// Waiting for this many bytes.
    More(usize),
    /// Waiting for the server.
    Wait,
    NeedServer,
    NeedListener,
    Terminate,
    Refuse,
}

/// Processes input from a client, as far as possible. `server` is the connection that
/// [`super::attach`] attached.
pub fn from_client(
    shared: &mut PgLinkContext,
    client: &mut PgClientSession,
    mut server: Option<&mut PgServerSession>,
    input: &[u8],
    out: &mut LinkOutputs<'_>,
) -> FromClient {
    debug_assert_eq!(client.attached, server.is_some());
    let mut consumed = 0;
    let (next, want) = loop {
        let rest = input.get(consumed..).unwrap_or_default();
        if client.body.left > 0 {
            consumed += stream(&mut client.body, rest, out.to_server);
            if client.body.left > 0 {
                break (ClientNext::Read, 1);
            }
            continue;
        }
        let header = match PgHeader::parse(rest) {
            Ok(Some(header)) => header,
            Ok(None) => break (ClientNext::Read, HEADER_BYTES),
            Err(error) => {
                refuse(out, "08P01", &error.to_string());
                break (ClientNext::Refuse, 0);
            }
        };
        let taken = match server.as_deref_mut() {
            None => alone(client, header, out),
            Some(server) => PgLink { shared, client, server, out }.take(header, rest),
        };
        match taken {
            PgMessageOutcome::Bytes(bytes) => consumed += bytes,
            PgMessageOutcome::More(want) => break (ClientNext::Read, want),
            PgMessageOutcome::Wait => break (ClientNext::Wait, 0),
            PgMessageOutcome::NeedServer => break (ClientNext::NeedServer, 0),
            PgMessageOutcome::NeedListener => break (ClientNext::NeedListener, 0),
            PgMessageOutcome::Terminate => break (ClientNext::Terminate, 0),
            PgMessageOutcome::Refuse => break (ClientNext::Refuse, 0),
        }
    };
    // Before the server's replies, and so in one write with them, unless none are outstanding.
    if let Some(server) = server
        && server.exchange.is_local()
    {
        say_locals(server, true, out.to_client);
    }
    FromClient { consumed, want, next }
}

/// Sends local replies, as far as it is their turn.
#[inline]
pub(super) fn say_locals(server: &mut PgServerSession, heard: bool, to_client: &mut Vec<u8>) {
    while let Some(ExchangeEntry { note, .. }) = server.exchange.pop_local() {
        match note {
            _ if !heard => {}
            PgRequestPurpose::Prepared { .. } => message::backend::parse_complete(to_client),
            _ => message::backend::close_complete(to_client),
        }
    }
}

/// Forwards the next part of a message whose header was processed.
pub(super) fn stream(body: &mut PgPartialMessage, rest: &[u8], to: &mut Vec<u8>) -> usize {
    let part = rest.get(..body.left).unwrap_or(rest);
    if body.pass {
        to.extend_from_slice(part);
    }
    body.left -= part.len();
    part.len()
}

/// Sends a client the error with which it is disconnected.
pub(super) fn refuse(out: &mut LinkOutputs<'_>, code: &str, message: &str) -> PgMessageOutcome {
    message::backend::error(out.to_client, &ErrorFields::fatal(code, message));
    PgMessageOutcome::Refuse
}

/// Consumes a message whose content does not matter.
pub(super) fn pass_over(client: &mut PgClientSession, header: PgHeader) -> PgMessageOutcome {
    client.body = PgPartialMessage { left: header.body(), pass: false };
    PgMessageOutcome::Bytes(HEADER_BYTES)
}

/// Handles input of a client without a server connection, which is between transactions: a few
/// messages need no server.
fn alone(
    client: &mut PgClientSession,
    header: PgHeader,
    out: &mut LinkOutputs<'_>,
) -> PgMessageOutcome {
    match header.tag {
        frontend::QUERY
        | frontend::PARSE
        | frontend::BIND
        | frontend::DESCRIBE
        | frontend::EXECUTE
        | frontend::CLOSE
        | frontend::FUNCTION_CALL => PgMessageOutcome::NeedServer,
        frontend::SYNC if header.total == HEADER_BYTES => {
            message::backend::ready_for_query(out.to_client, TransactionStatus::Idle);
            PgMessageOutcome::Bytes(header.total)
        }
        frontend::FLUSH if header.total == HEADER_BYTES => PgMessageOutcome::Bytes(header.total),
        // The rest of a failed copy; a server skips it, too.
        frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {
            pass_over(client, header)
        }
        frontend::TERMINATE => PgMessageOutcome::Terminate,
        _ => unknown(header, out),
    }
}

pub(super) fn unknown(header: PgHeader, out: &mut LinkOutputs<'_>) -> PgMessageOutcome {
    let message = format!(
        "a message of type {:#04x} and {} bytes cannot be understood",
        header.tag, header.total
    );
    refuse(out, "08P01", &message)
}

/// A client and its server connection.
pub(super) struct PgLink<'a, 'o> {
    pub(super) shared: &'a mut PgLinkContext,
    pub(super) client: &'a mut PgClientSession,
    pub(super) server: &'a mut PgServerSession,
    pub(super) out: &'a mut LinkOutputs<'o>,
}

impl PgLink<'_, '_> {
    fn take(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let before = self.out.to_server.len();
        let taken = self.request(header, rest);
        if matches!(taken, PgMessageOutcome::Bytes(_)) {
            let whole = self.client.body.left == 0;
            self.server.replay.record(header.tag, self.out.to_server, before, whole);
        }
        taken
    }

    fn request(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        if header.tag == frontend::TERMINATE {
            return PgMessageOutcome::Terminate;
        }
        if (self.client.barrier && !self.is_barrier_over())
            || self.server.exchange.is_full()
            || self.is_asked_in_between()
            || self.may_be_allowed_to_write()
        {
            return PgMessageOutcome::Wait;
        }
        self.client.barrier = false;
        let copying = self.server.exchange.copying();
        match header.tag {
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => self.copy(header),
            frontend::SYNC if header.total == HEADER_BYTES => self.sync(),
            frontend::FLUSH if header.total == HEADER_BYTES => {
                if copying == CopyState::None {
                    say_locals(self.server, true, self.out.to_client);
                    put_header(self.out.to_server, frontend::FLUSH, 0);
                }
                PgMessageOutcome::Bytes(header.total)
            }
            tag if copying == CopyState::In || copying == CopyState::Both => {
                let message = format!("a message of type {tag:#04x} during COPY from stdin");
                refuse(self.out, "08P01", &message)
            }
            // The server skips everything until a `Sync`; so it need not be sent.
            _ if self.server.exchange.is_skipping() => pass_over(self.client, header),
            frontend::QUERY => self.query(header, rest),
            frontend::PARSE => self.parse(header, rest),
            frontend::BIND => self.bind(header, rest),
            frontend::DESCRIBE | frontend::CLOSE | frontend::EXECUTE => self.small(header, rest),
            frontend::FUNCTION_CALL if self.client.read_only => {
                let message = "the tenant is read-only: function calls by number are refused";
                refuse(self.out, "25006", message)
            }
            frontend::FUNCTION_CALL => self.function_call(header, rest),
            _ => unknown(header, self.out),
        }
    }

    /// Handles a function call by number. A sandbox may only call the functions that drivers use
    /// for large objects: others can read whatever their argument names.
    fn function_call(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        if self.client.is_sandbox {
            let number = rest.get(HEADER_BYTES..).and_then(|it| it.first_chunk::<4>());
            match number.map(|it| u32::from_be_bytes(*it)) {
                None if header.body() >= 4 => return PgMessageOutcome::More(HEADER_BYTES + 4),
                Some(number) if header.body() >= 4 && OF_LARGE_OBJECTS.contains(&number) => {}
                _ => {
                    let what = "a call of a function by its number";
                    return refuse(self.out, "42501", &not_for_sandboxes(what));
                }
            }
        }
        self.prepare_idle();
        // It may be `set_config`.
        self.server.settings_in_doubt = true;
        self.server.sent(
            ExchangeRequest::FunctionCall,
            ReplyAudience::Client,
            PgRequestPurpose::Call(true),
        );
        self.pass(header, rest)
    }

    /// Returns whether the awaited fact is known: the server copies, does not, or skips requests.
    fn is_barrier_over(&self) -> bool {
        let exchange = &self.server.exchange;
        exchange.is_empty() || exchange.is_skipping() || exchange.copying() != CopyState::None
    }

    /// Returns whether settings have to change before the next request, or may have to, but the
    /// answer about their current values is outstanding. Code may have reset the client's start
    /// settings.
    fn is_asked_in_between(&self) -> bool {
        let server = &*self.server;
        server.answer.is_some()
            && !server.exchange.has_client_entries()
            && (server.applied != self.client.wanted
                || (server.dirt.asks_about_resets() && server.startup != self.client.startup))
    }

    /// Returns whether running code may lift a client's restriction to read-only, so that following
    /// requests have to wait until that is known.
    fn may_be_allowed_to_write(&self) -> bool {
        let server = &*self.server;
        let in_doubt = server.settings_in_doubt || server.may_lift;
        self.client.read_only
            && !server.unsynced
            && (server.answer.is_some() || (in_doubt && server.exchange.has_client_entries()))
            && server.exchange.copying() == CopyState::None
    }

    /// Prepares the session between two transactions of a client that keeps its server connection.
    pub(super) fn prepare_idle(&mut self) {
        let server = &mut *self.server;
        if server.unsynced || server.exchange.has_client_entries() {
            return;
        }
        let idle = server.exchange.status() == TransactionStatus::Idle;
        if server.exchange.is_empty() {
            change::trim_statements(server, self.out);
            if idle {
                change::settings(self.shared, self.client, server, self.out);
            }
        }
        if idle {
            server.replay.begin(self.out.to_server.len());
        } else {
            server.replay.stop();
        }
    }

    /// Forwards a message unchanged.
    pub(super) fn pass(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let part = rest.get(..header.total).unwrap_or(rest);
        self.out.to_server.extend_from_slice(part);
        self.client.body = PgPartialMessage { left: header.total - part.len(), pass: true };
        PgMessageOutcome::Bytes(part.len())
    }

    fn copy(&mut self, header: PgHeader) -> PgMessageOutcome {
        if !matches!(self.server.exchange.copying(), CopyState::In | CopyState::Both) {
            return pass_over(self.client, header);
        }
        put_header(self.out.to_server, header.tag, header.body());
        self.client.body = PgPartialMessage { left: header.body(), pass: true };
        if header.tag == frontend::COPY_DATA {
            self.server.exchange.copy_data();
        } else {
            self.server.exchange.copy_ended();
            // Another statement of the same text may copy as well.
            let front = self.server.exchange.front();
            self.client.barrier =
                front.is_some_and(|entry| entry.request == ExchangeRequest::Query);
        }
        PgMessageOutcome::Bytes(HEADER_BYTES)
    }

    fn sync(&mut self) -> PgMessageOutcome {
        if matches!(self.server.exchange.copying(), CopyState::In | CopyState::Both) {
            self.server.exchange.copy_sync();
        } else {
            self.server.sync(ReplyAudience::Client, self.out.to_server);
        }
        PgMessageOutcome::Bytes(HEADER_BYTES)
    }
}

/// Returns whether a client in this mode returns its server connection after a transaction.
pub(super) fn shares(mode: PoolMode) -> bool {
    match mode {
        PoolMode::Session => false,
        PoolMode::Transaction | PoolMode::Statement => true,
    }
}
