//! Both protocols behind one face: a client's session, a server connection's, and their link.
//!
//! A match for each call rather than a trait object: there are two, both are known, and what is
//! called for every read is inlined.

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

/// Parameter that is sent to PostgreSQL's clients to find out whether they are still there: every
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
    /// For one thread; `key` and the counters of changes of schemas are the same for all threads of
    /// a process.
    #[must_use]
    pub fn new(key: &HashKey, schemas: &[Arc<AtomicU64>; 2]) -> ProtocolLinks {
        let [of_pg, of_my] = schemas;
        ProtocolLinks {
            pg: pg::link::PgLinkContext::new(key.clone(), Arc::clone(of_pg)),
            my: mysql::link::MysqlLinkContext::new(key.clone(), Arc::clone(of_my)),
        }
    }

    /// Returns what links of PostgreSQL share.
    pub fn pg(&mut self) -> &mut pg::link::PgLinkContext {
        &mut self.pg
    }

    /// Returns what links of MySQL share.
    pub fn my(&mut self) -> &mut mysql::link::MysqlLinkContext {
        &mut self.my
    }

    /// Forgets what was learnt in a pool that is no more.
    pub fn forget_pool(&mut self, pool: u32) {
        self.pg.forget_pool(pool);
        self.my.forget_pool(pool);
    }

    /// Gives a client a server connection, which must be idle.
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

    /// Deals with what a client has sent.
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

    /// Deals with what a server has sent.
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

    /// The client that held this server connection is gone, whatever it was doing.
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

    /// Takes the mark of a session away from an idle server connection.
    pub fn release_mark(server: &mut ServerLink, out: &mut LinkOutputs<'_>) {
        match server {
            ServerLink::Pg(_) => {}
            ServerLink::My(server) => mysql::link::release_mark(server, out),
        }
    }
}

impl ClientLink {
    /// Returns what it speaks.
    pub fn engine(&self) -> TenantEngine {
        match self {
            ClientLink::Pg(_) => TenantEngine::Postgres,
            ClientLink::My(_) => TenantEngine::Mysql,
        }
    }

    /// The session, of a client of PostgreSQL.
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

    /// The session, of a client of MySQL.
    pub fn my_mut(&mut self) -> Option<&mut mysql::client::MysqlClientSession> {
        match self {
            ClientLink::Pg(_) => None,
            ClientLink::My(link) => Some(link),
        }
    }

    /// Returns the fingerprint of the settings that it wants: a server connection with the same one
    /// needs no change.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        match self {
            ClientLink::Pg(link) => link.settings().fingerprint(),
            ClientLink::My(link) => link.settings().fingerprint(),
        }
    }

    /// Returns whether it was last told that it is in a transaction.
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        match self {
            ClientLink::Pg(link) => link.status() != TransactionStatus::Idle,
            ClientLink::My(link) => link.is_in_transaction(),
        }
    }

    /// Returns whether a message of it has begun and not ended, of which a part was sent already.
    pub fn is_in_message(&self) -> bool {
        match self {
            ClientLink::Pg(link) => link.is_in_message(),
            ClientLink::My(link) => link.is_in_message(),
        }
    }

    /// Returns how many statements it has prepared.
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

    /// Returns whether a client that has said its last may still listen. MySQL's leave by a
    /// command, and those that just close their connection are gone.
    pub fn listens_on(&self) -> bool {
        match self {
            ClientLink::Pg(_) => true,
            ClientLink::My(_) => false,
        }
    }

    /// Appends something that it knows already, where the protocol allows that unasked: whether the
    /// client is still there shows by that.
    pub fn probe(&self, out: &mut Vec<u8>) {
        if let ClientLink::Pg(link) = self
            && let Some(value) = link.seen.value(PROBE_PARAMETER)
        {
            backend::parameter_status(out, PROBE_PARAMETER, value);
        }
    }

    /// Appends why it has to go.
    pub fn put_fatal_error(&mut self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        match self {
            ClientLink::Pg(_) => backend::error(out, fields),
            ClientLink::My(link) => link.put_fatal_error(fields, out),
        }
    }

    /// Bytes of the request at the front of what it has sent; nothing when it is not all there, or
    /// no answer to it is awaited.
    pub fn request_bytes(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            ClientLink::Pg(_) => pg_request_bytes(bytes),
            ClientLink::My(_) => my_request_bytes(bytes),
        }
    }

    /// Answers a request that was cancelled before any server connection had seen it.
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

/// Appends an error to a client of MySQL. Between two commands it is the answer to the next one,
/// because drivers take nothing else as one.
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
    /// The settings that it has, as a fingerprint.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        match self {
            ServerLink::Pg(link) => link.settings().fingerprint(),
            ServerLink::My(link) => link.settings().fingerprint(),
        }
    }

    /// Returns whether nobody has it and nothing is outstanding.
    #[inline]
    pub fn is_idle(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_idle(),
            ServerLink::My(link) => link.is_idle(),
        }
    }

    /// Returns whether it is marked as one that works, or has just worked, for a session.
    #[inline]
    pub fn is_marked(&self) -> bool {
        match self {
            // What PostgreSQL tells of a connection is set with its other settings.
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

    /// Returns whether the attached client has begun a batch and not ended it, of which the server
    /// says nothing.
    #[inline]
    pub fn is_unsynced(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_unsynced(),
            ServerLink::My(_) => false,
        }
    }

    /// Returns whether the attached client gets a reply without saying more.
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

    /// Returns whether the client was not given just a part of a message.
    pub fn is_between_messages(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.body.left == 0,
            ServerLink::My(link) => link.is_between_messages(),
        }
    }

    /// Returns whether its client may be told something now: what follows a part of a message would
    /// be taken for the rest of it.
    pub fn takes_error(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.body.left == 0 || !link.body.pass,
            ServerLink::My(link) => link.is_between_messages(),
        }
    }

    /// Returns what the server calls it: its process, or its thread.
    pub fn pid(&self) -> u32 {
        match self {
            ServerLink::Pg(link) => link.pid(),
            ServerLink::My(link) => link.pid(),
        }
    }

    /// Returns whether it said that it closes; its client was told.
    pub fn is_closing(&self) -> bool {
        match self {
            ServerLink::Pg(link) => link.is_closing(),
            ServerLink::My(link) => link.is_closing(),
        }
    }

    /// Why its client keeps it beyond its transaction.
    pub fn pins(&self) -> impl Iterator<Item = &'static str> {
        let (of_pg, of_my) = match self {
            ServerLink::Pg(link) => (Some(link.pins()), None),
            ServerLink::My(link) => (None, Some(link.pins())),
        };
        of_pg.into_iter().flatten().chain(of_my.into_iter().flatten())
    }

    /// Statements that were answered, and transactions that ended.
    #[inline]
    pub fn counts(&self) -> (u64, u64) {
        match self {
            ServerLink::Pg(link) => link.counts(),
            ServerLink::My(link) => link.counts(),
        }
    }

    /// Takes the errors that clients got since the last time; none when there were none.
    #[inline]
    pub fn take_errors(&mut self) -> Option<ErrorTally> {
        let errors = match self {
            ServerLink::Pg(link) => &mut link.errors,
            ServerLink::My(link) => &mut link.errors,
        };
        (!errors.is_empty()).then(|| std::mem::take(errors))
    }

    /// Appends a farewell to the server.
    pub fn put_goodbye(&self, out: &mut Vec<u8>) {
        match self {
            ServerLink::Pg(_) => frontend::terminate(out),
            ServerLink::My(_) => frame::put_packet(out, &mut 0, &QUIT),
        }
    }
}

/// Returns the length of one request of PostgreSQL: one text, or everything up to and with a
/// `Sync`.
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

/// Returns the length of one request of MySQL: one command, with the packets that continue it.
fn my_request_bytes(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let header = frame::PacketHeader::parse(bytes.get(end..)?)?;
        let first = bytes.get(frame::HEADER_BYTES).filter(|_| end == 0 && header.len > 0);
        // What it is told unasked would be taken for the answer to what comes next.
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
            // The command behind it is another request.
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
