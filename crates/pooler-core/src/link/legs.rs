//! Common interface of both protocols: a client's session, a server connection's, and their link.
//!
//! A `match` per call instead of a trait object: there are exactly two protocols, and calls on
//! every read are inlined.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::TenantEngine;
use wire::mysql::command::Command;
use wire::mysql::frame;
use wire::mysql::packet;
use wire::pg::frame::TransactionStatus;
use wire::pg::message::{ErrorFields, backend, frontend};

use super::{
    ClientNext, DepartureAction, ErrorTally, FromClient, FromServer, LinkOutputs, ServerFailure,
    ServerNext,
};
use crate::mysql;
use crate::mysql::login::errno_of;
use crate::pg;
use crate::pg::statements::HashKey;

/// Parameter that is sent to PostgreSQL clients to find out whether they are still connected: every
/// server reports it, and it never changes.
const PROBE_PARAMETER: &str = "server_version";

/// `COM_QUIT`.
const QUIT: [u8; 1] = [1];

/// State that the links of one thread share.
#[derive(Debug)]
pub struct ProtocolLinks {
    pg: pg::link::PgLinkContext,
    my: mysql::link::MysqlLinkContext,
}

/// A client's session.
#[derive(Debug)]
pub enum ClientLink {
    /// PostgreSQL.
    Pg(pg::client::PgClientSession),
    /// MySQL or MariaDB.
    My(mysql::client::MysqlClientSession),
}

/// A server connection's session.
#[derive(Debug)]
pub enum ServerLink {
    /// PostgreSQL.
    Pg(Box<pg::server::PgServerSession>),
    /// MySQL or MariaDB.
    My(Box<mysql::server::MysqlServerSession>),
}

impl ProtocolLinks {
    /// Creates the state of one thread; `key` and the counters of schema changes are the same for
    /// all threads of a process.
    #[must_use]
    pub fn new(key: &HashKey, schemas: &[Arc<AtomicU64>; 2]) -> ProtocolLinks {
        let [of_pg, of_my] = schemas;
        ProtocolLinks {
            pg: pg::link::PgLinkContext::new(key.clone(), Arc::clone(of_pg)),
            my: mysql::link::MysqlLinkContext::new(key.clone(), Arc::clone(of_my)),
        }
    }

    /// Returns the shared state of PostgreSQL links.
    pub fn pg(&mut self) -> &mut pg::link::PgLinkContext {
        &mut self.pg
    }

    /// Returns the shared state of MySQL links.
    pub fn my(&mut self) -> &mut mysql::link::MysqlLinkContext {
        &mut self.my
    }

    /// Forgets the facts learned about a pool that no longer exists.
    pub fn forget_pool(&mut self, pool: u32) {
        self.pg.forget_pool(pool);
        self.my.forget_pool(pool);
    }

    /// Attaches a server connection to a client; the connection must be idle.
    #[inline]
    pub fn attach(
        &mut self,
        client: &mut ClientLink,
        server: &mut ServerLink,
        out: &mut LinkOutputs<'_>,
    ) {
        match (client, server) {
            (ClientLink::Pg(client), ServerLink::Pg(server)) => {
                pg::link::attach(&mut self.pg, client, server, out);
            }
            (ClientLink::My(client), ServerLink::My(server)) => {
                mysql::link::attach(&mut self.my, client, server, out);
            }
            (ClientLink::Pg(_), ServerLink::My(_)) | (ClientLink::My(_), ServerLink::Pg(_)) => {
                debug_assert!(false, "a pool has one protocol");
            }
        }
    }

    /// Processes input from a client.
    #[inline]
    pub fn from_client(
        &mut self,
        client: &mut ClientLink,
        server: Option<&mut ServerLink>,
        bytes: &[u8],
        out: &mut LinkOutputs<'_>,
    ) -> FromClient {
        match (client, server) {
            (ClientLink::Pg(client), None) => {
                pg::link::from_client(&mut self.pg, client, None, bytes, out)
            }
            (ClientLink::Pg(client), Some(ServerLink::Pg(server))) => {
                pg::link::from_client(&mut self.pg, client, Some(server), bytes, out)
            }
            (ClientLink::My(client), None) => {
                mysql::link::from_client(&mut self.my, client, None, bytes, out)
            }
            (ClientLink::My(client), Some(ServerLink::My(server))) => {
                mysql::link::from_client(&mut self.my, client, Some(server), bytes, out)
            }
            (ClientLink::Pg(_), Some(ServerLink::My(_)))
            | (ClientLink::My(_), Some(ServerLink::Pg(_))) => {
                debug_assert!(false, "a pool has one protocol");
                FromClient { consumed: bytes.len(), want: 0, next: ClientNext::Refuse }
            }
        }
    }

    /// Processes input from a server.
    #[inline]
    pub fn from_server(
        &mut self,
        server: &mut ServerLink,
        client: Option<&mut ClientLink>,
        bytes: &[u8],
        out: &mut LinkOutputs<'_>,
    ) -> FromServer {
        match (server, client) {
            (ServerLink::Pg(server), None) => {
                pg::link::from_server(&mut self.pg, server, None, bytes, out)
            }
            (ServerLink::Pg(server), Some(ClientLink::Pg(client))) => {
                pg::link::from_server(&mut self.pg, server, Some(client), bytes, out)
            }
            (ServerLink::My(server), None) => {
                mysql::link::from_server(&mut self.my, server, None, bytes, out)
            }
            (ServerLink::My(server), Some(ClientLink::My(client))) => {
                mysql::link::from_server(&mut self.my, server, Some(client), bytes, out)
            }
            (ServerLink::Pg(_), Some(ClientLink::My(_)))
            | (ServerLink::My(_), Some(ClientLink::Pg(_))) => {
                debug_assert!(false, "a pool has one protocol");
                let reason = ServerFailure::Protocol("the client speaks another protocol".into());
                FromServer { consumed: bytes.len(), next: ServerNext::Broken(reason) }
            }
        }
    }

    /// Handles the departure of the client that held this server connection, in any state.
    pub fn client_gone(
        &mut self,
        client: &ClientLink,
        server: &mut ServerLink,
        out: &mut LinkOutputs<'_>,
    ) -> DepartureAction {
        match (client, server) {
            (ClientLink::Pg(client), ServerLink::Pg(server)) => {
                pg::link::client_gone(client, server, out)
            }
            (ClientLink::My(client), ServerLink::My(server)) => {
                mysql::link::client_gone(client, server, out)
            }
            (ClientLink::Pg(_), ServerLink::My(_)) | (ClientLink::My(_), ServerLink::Pg(_)) => {
                debug_assert!(false, "a pool has one protocol");
                DepartureAction::Close
            }
        }
    }

    /// Removes the mark of a session from an idle server connection.
    pub fn release_mark(server: &mut ServerLink, out: &mut LinkOutputs<'_>) {
        match server {
            ServerLink::Pg(_) => {}
            ServerLink::My(server) => mysql::link::release_mark(server, out),
        }
    }
}

impl ClientLink {
    /// Returns its protocol.
    pub fn engine(&self) -> TenantEngine {
        match self {
            ClientLink::Pg(_) => TenantEngine::Postgres,
            ClientLink::My(_) => TenantEngine::Mysql,
        }
    }

    /// Returns the session of a PostgreSQL client.
    pub fn pg(&self) -> Option<&pg::client::PgClientSession> {
        match self {
            ClientLink::Pg(link) => Some(link),
            ClientLink::My(_) => None,
        }
    }

    /// Returns the client's session of PostgreSQL for changes.
    pub fn pg_mut(&mut self) -> Option<&mut pg::client::PgClientSession> {
        match self {
            ClientLink::Pg(link) => Some(link),
            ClientLink::My(_) => None,
        }
    }

    /// Returns the session of a MySQL client, for changes.
    pub fn my_mut(&mut self) -> Option<&mut mysql::client::MysqlClientSession> {
        match self {
            ClientLink::Pg(_) => None,
            ClientLink::My(link) => Some(link),
        }
    }

    /// Returns the fingerprint of the settings that it wants: a server connection with the same
    /// fingerprint needs no change.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        match self {
            ClientLink::Pg(link) => link.settings().fingerprint(),
            ClientLink::My(link) => link.settings().fingerprint(),
        }
    }

    /// Returns whether the last status sent to it was "in a transaction".
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        match self {
            ClientLink::Pg(link) => link.status() != TransactionStatus::Idle,
            ClientLink::My(link) => link.is_in_transaction(),
        }
    }

    /// Returns whether a message of it is incomplete, of which a part was forwarded already.
    pub fn is_in_message(&self) -> bool {
        match self {
            ClientLink::Pg(link) => link.is_in_message(),
            ClientLink::My(link) => link.is_in_message(),
        }
    }

    /// Returns the number of statements that it has prepared.
    pub fn statement_count(&self) -> usize {
        match self {
            ClientLink::Pg(link) => link.statement_count(),
            ClientLink::My(link) => link.statement_count(),
        }
    }

    /// Records that its server connection is lost.
    pub fn server_lost(&mut self) {
        match self {
            ClientLink::Pg(link) => link.server_lost(),
            ClientLink::My(link) => link.server_lost(),
        }
    }

    /// Returns whether a client that has closed its sending side may still read. MySQL clients
    /// leave by a command, and those that only close their connection do not read any more.
    pub fn listens_on(&self) -> bool {
        match self {
            ClientLink::Pg(_) => true,
            ClientLink::My(_) => false,
        }
    }

    /// Appends a message without new content, if the protocol allows one at this point: sending it
    /// shows whether the client is still connected.
    pub fn probe(&self, out: &mut Vec<u8>) {
        if let ClientLink::Pg(link) = self
            && let Some(value) = link.seen.value(PROBE_PARAMETER)
        {
            backend::parameter_status(out, PROBE_PARAMETER, value);
        }
    }

    /// Appends the error with which it is disconnected.
    pub fn put_fatal_error(&mut self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        match self {
            ClientLink::Pg(_) => backend::error(out, fields),
            ClientLink::My(link) => link.put_fatal_error(fields, out),
        }
    }

    /// Returns the length of the request at the front of its input; `None` if the request is
    /// incomplete, or no reply to it is awaited.
    pub fn request_bytes(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            ClientLink::Pg(_) => pg_request_bytes(bytes),
            ClientLink::My(_) => my_request_bytes(bytes),
        }
    }

    /// Replies to a request that was cancelled before a server connection had received it.
    pub fn put_cancelled(&mut self, out: &mut Vec<u8>) {
        match self {
            ClientLink::Pg(_) => {
                let message = "canceling statement due to user request";
                backend::error(out, &ErrorFields::error("57014", message));
                backend::ready_for_query(out, TransactionStatus::Idle);
            }
            ClientLink::My(link) => {
                let message = "Query execution was interrupted";
                link.looked = None;
                put_mysql_error(&mut link.seq, &ErrorFields::error("57014", message), out);
                link.seq = 0;
            }
        }
    }
}

/// Appends an error to a client of MySQL. Between two commands the error takes the place of the
/// reply to the next one, because drivers accept nothing else.
pub fn put_mysql_error(seq: &mut u8, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
    let (errno, state) = errno_of(fields.code);
    *seq = (*seq).max(1);
    match fields.hint {
        Some(hint) => {
            let message = format!("{} ({hint})", fields.message);
            packet::put_err(out, seq, errno, state, message.as_bytes());
        }
        None => packet::put_err(out, seq, errno, state, fields.message.as_bytes()),
    }
}

impl ServerLink {
    /// Returns the fingerprint of its settings.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        match self {
            ServerLink::Pg(link) => link.settings().fingerprint(),
            ServerLink::My(link) => link.settings().fingerprint(),
        }
    }

    /// Returns whether it has no client and nothing is outstanding.
    #[inline]
    pub fn is_idle(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_idle(),
            ServerLink::My(link) => link.is_idle(),
        }
    }

    /// Returns whether it has the mark of a session for which it works, or has just worked.
    #[inline]
    pub fn is_marked(&self) -> bool {
        match self {
            // PostgreSQL's mark is set with the other settings of a connection.
            ServerLink::Pg(_) => false,
            ServerLink::My(link) => link.mark.is_some(),
        }
    }

    /// Returns whether the attached client waits for a reply.
    #[inline]
    pub fn has_client_entries(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.has_client_entries(),
            ServerLink::My(link) => link.has_client_entries(),
        }
    }

    /// Returns whether the attached client has started a batch and not ended it, which the server
    /// does not report.
    #[inline]
    pub fn is_unsynced(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_unsynced(),
            ServerLink::My(_) => false,
        }
    }

    /// Returns whether the attached client will receive a reply without sending more.
    pub fn owes_reply(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.owes_reply(),
            ServerLink::My(link) => link.owes_reply(),
        }
    }

    /// Returns whether the attached client is between the first byte of a request and the last one
    /// of its reply.
    pub fn is_in_request(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_in_request(),
            ServerLink::My(link) => link.is_in_request(),
        }
    }

    /// Returns whether the client has received only whole messages.
    pub fn is_between_messages(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.body.left == 0,
            ServerLink::My(link) => link.is_between_messages(),
        }
    }

    /// Returns whether a message may be sent to its client now: after a partial message it would be
    /// taken for the rest of that.
    pub fn takes_error(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.body.left == 0 || !link.body.pass,
            ServerLink::My(link) => link.is_between_messages(),
        }
    }

    /// Returns the server's number of the connection: its process or thread id.
    pub fn pid(&self) -> u32 {
        match self {
            ServerLink::Pg(link) => link.pid(),
            ServerLink::My(link) => link.pid(),
        }
    }

    /// Returns whether the server has announced that it closes; its client was informed.
    pub fn is_closing(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_closing(),
            ServerLink::My(link) => link.is_closing(),
        }
    }

    /// Returns the reasons why its client keeps it beyond its transaction.
    pub fn pins(&self) -> impl Iterator<Item = &'static str> {
        let (of_pg, of_my) = match self {
            ServerLink::Pg(link) => (Some(link.pins()), None),
            ServerLink::My(link) => (None, Some(link.pins())),
        };
        of_pg.into_iter().flatten().chain(of_my.into_iter().flatten())
    }

    /// Returns the numbers of answered statements and of ended transactions.
    #[inline]
    pub fn counts(&self) -> (u64, u64) {
        match self {
            ServerLink::Pg(link) => link.counts(),
            ServerLink::My(link) => link.counts(),
        }
    }

    /// Takes the errors that were sent to clients since the last call; `None` if there were none.
    #[inline]
    pub fn take_errors(&mut self) -> Option<ErrorTally> {
        let errors = match self {
            ServerLink::Pg(link) => &mut link.errors,
            ServerLink::My(link) => &mut link.errors,
        };
        (!errors.is_empty()).then(|| std::mem::take(errors))
    }

    /// Appends a termination message to the server.
    pub fn put_goodbye(&self, out: &mut Vec<u8>) {
        match self {
            ServerLink::Pg(_) => frontend::terminate(out),
            ServerLink::My(_) => frame::put_packet(out, &mut 0, &QUIT),
        }
    }
}

/// Returns the length of one PostgreSQL request: one simple query, or all messages up to and
/// including a `Sync`.
fn pg_request_bytes(bytes: &[u8]) -> Option<usize> {
    use wire::pg::frame::PgHeader;
    use wire::pg::frame::frontend::{FUNCTION_CALL, QUERY, SYNC};
    let mut end = 0;
    loop {
        let rest = bytes.get(end..)?;
        let header = PgHeader::parse(rest).ok()??;
        end += header.total;
        if end > bytes.len() {
            return None;
        }
        if matches!(header.tag, QUERY | FUNCTION_CALL | SYNC) {
            return Some(end);
        }
    }
}

/// Returns the length of one MySQL request: one command, with the packets that continue it.
fn my_request_bytes(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let header = frame::PacketHeader::parse(bytes.get(end..)?)?;
        let first = bytes.get(frame::HEADER_BYTES).filter(|_| end == 0 && header.len > 0);
        // An unsolicited reply would be taken for the reply to the next command.
        if first.and_then(|first| Command::of(*first)).is_some_and(Command::is_without_reply) {
            return None;
        }
        end += header.total();
        if end > bytes.len() {
            return None;
        }
        if header.len < frame::PAYLOAD_MAX {
            return Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::pg::frame::frontend::QUERY;

    use super::*;

    #[test]
    fn a_request_ends_with_its_text_or_its_sync() {
        let check = |messages: &[(u8, usize)], cut: usize, expected: Option<usize>| {
            let mut bytes = Vec::new();
            for (tag, body) in messages {
                bytes.push(*tag);
                bytes.extend_from_slice(&u32::try_from(body + 4).expect("short").to_be_bytes());
                bytes.resize(bytes.len() + body, 0);
            }
            bytes.truncate(bytes.len() - cut);
            assert_eq!(pg_request_bytes(&bytes), expected, "{messages:?} without {cut}");
        };
        check(&[(QUERY, 3), (QUERY, 4)], 0, Some(8));
        check(&[(b'P', 3), (b'B', 4), (b'E', 5), (b'S', 0), (b'Q', 3)], 0, Some(32));
        check(&[(b'P', 3), (b'B', 4), (b'E', 5), (b'S', 0)], 1, None);
        check(&[(b'P', 3), (b'H', 0)], 0, None);
        check(&[(b'Q', 3)], 1, None);
        check(&[], 0, None);
    }

    #[test]
    fn a_command_ends_with_its_last_packet() {
        let check = |lengths: &[usize], cut: usize, expected: Option<usize>| {
            let mut bytes = Vec::new();
            for length in lengths {
                frame::put_header(&mut bytes, *length, 0);
                bytes.resize(bytes.len() + length, 0);
            }
            bytes.truncate(bytes.len() - cut);
            assert_eq!(my_request_bytes(&bytes), expected, "{lengths:?} without {cut}");
        };
        check(&[5], 0, Some(9));
        check(&[5, 6], 0, Some(9));
        check(&[5], 1, None);
        check(&[frame::PAYLOAD_MAX], 0, None);
        check(&[frame::PAYLOAD_MAX, 0], 0, Some(frame::PAYLOAD_MAX + 8));
        check(&[], 0, None);
    }

    #[test]
    fn a_command_without_an_answer_cannot_be_answered() {
        for (payload, expected) in [
            (&[0x03, b'x'][..], Some(6)),
            (&[0x17, 1, 0, 0, 0], Some(9)),
            (&[0x18, 1, 0, 0, 0, 0, 0, b'x'], None),
            (&[0x19, 1, 0, 0, 0], None),
            (&[], Some(4)),
        ] {
            let mut bytes = Vec::new();
            frame::put_packet(&mut bytes, &mut 0, payload);
            // The command after it is another request.
            frame::put_packet(&mut bytes, &mut 0, &[0x18]);
            assert_eq!(my_request_bytes(&bytes), expected, "{payload:?}");
        }
    }

    #[test]
    fn an_error_between_commands_has_the_number_of_an_answer() {
        for (before, number) in [(0, 1), (1, 1), (3, 3)] {
            let (mut seq, mut out) = (before, Vec::new());
            put_mysql_error(&mut seq, &ErrorFields::fatal("57P01", "stop"), &mut out);
            assert_eq!((out.get(3), seq), (Some(&number), number + 1));
            assert_eq!(out.get(5..7), Some(&1053_u16.to_le_bytes()[..]));
        }
    }
}
