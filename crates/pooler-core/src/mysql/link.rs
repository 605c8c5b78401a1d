//! The link between a client and a server connection: what is forwarded, changed and inserted, and
//! when the two are separated.
//!
//! Pure: the input is bytes and sessions, the output bytes for either side and a decision. The
//! caller keeps unconsumed input and presents it again, with more bytes or after the action that
//! the decision requested.
//!
//! ```text
//! client ─► from_client ─► server        NeedServer ─► lease one ─► attach ─► from_client again
//! client ◄─ from_server ◄─ server        Released  ─► the server connection is the pool's again
//! ```
//!
//! # Invariants
//! - The protocol is half duplex, and so is the link: while a reply is outstanding, nothing of the
//!   client's next command is processed.
//! - A server connection is released only at the end of the last result of a reply, outside of a
//!   transaction, when it has no state of the client that the next client could encounter or that
//!   this client could miss.
//! - Replies are parsed according to the request, never by a packet's first byte alone. Packets
//!   other than ends, errors and replies to the pooler's own requests are streamed, whatever their
//!   length.
//! - Packets to a client are numbered here, so that omitted, inserted and additional packets are
//!   invisible to it.
//! - In the steady state nothing is allocated.

mod back;
mod change;
mod commands;
mod end;
mod front;
mod give;
mod gone;
mod leaves;
mod local;
mod prepared;
mod query;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::client::MysqlClientSession;
use super::server::{MysqlRequestPurpose, MysqlServerSession};
use super::settings::SettingsInterner;
use super::texts::MysqlStatementCache;
use crate::link::LinkOutputs;
use crate::pg::statements::HashKey;

pub use back::from_server;
pub use front::from_client;
pub use gone::client_gone;
pub(crate) use prepared::reframe::PacketReframer;

/// Maximum bytes of a text that is parsed. A longer one is streamed unparsed, and counts as one
/// with arbitrary effects; a longer one to be prepared is refused.
pub const STATEMENT_BYTES_SCANNED_MAX: usize = 1024 * 1024;

/// Maximum bytes of a server's packet that is buffered whole to be parsed: ends, errors, replies to
/// the pooler's own requests.
pub const SERVER_PACKET_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of a command without text that is buffered whole: names, logins.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// State that the links of one thread share.
#[derive(Debug)]
pub struct MysqlLinkContext {
    pub(crate) key: HashKey,
    pub(crate) texts: MysqlStatementCache,
    /// Settings shared by many sessions.
    pub settings: SettingsInterner,
    /// Counter of schema changes, of all threads: statements prepared before a change are prepared
    /// again.
    pub(crate) schema: Arc<AtomicU64>,
    /// Buffer for the pooler's own statements.
    pub(crate) scratch: Vec<u8>,
    /// Counter that numbers sessions: a client gets another number at each login and reset.
    serial: u64,
}

impl MysqlLinkContext {
    /// Creates the state of one thread; `key` and `schema` are the same for all threads of a
    /// process.
    pub fn new(key: HashKey, schema: Arc<AtomicU64>) -> MysqlLinkContext {
        MysqlLinkContext {
            texts: MysqlStatementCache::new(key.clone()),
            key,
            settings: SettingsInterner::default(),
            schema,
            scratch: Vec::new(),
            serial: 0,
        }
    }

    /// Forgets the facts learned about a pool that no longer exists: this protocol has none.
    pub fn forget_pool(&mut self, _pool: u32) {}
}

/// Attaches a server connection to a client; the connection must be idle. Changes of its session
/// are sent first, in the same write as the client's command.
pub fn attach(
    shared: &mut MysqlLinkContext,
    client: &mut MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) {
    debug_assert!(server.is_idle(), "{server:?}");
    client.attached = true;
    client.is_new_here = true;
    // It has requested the connection to run a command.
    client.waits_here = true;
    client.diagnostics.rows_here = false;
    client.diagnostics.found_here = false;
    client.diagnostics.warnings_here = false;
    server.attached = Some(client.id);
    server.insert_id_is_own = false;
    server.asks_insert_id = false;
    if client.serial == 0 {
        shared.serial += 1;
        client.serial = shared.serial;
    }
    let holder = Some((client.id, client.serial));
    if server.last_session != holder {
        server.has_others_diagnostics = server.last_session.is_some();
        if server.reset_due || (server.unlock_due && !server.unlocks) {
            change::reset(server, out.to_server);
        } else if server.unlock_due {
            // Unlocking releases the mark as well, if the server has it.
            change::unmark(server, out.to_server);
            server.ask(MysqlRequestPurpose::Unlock, change::UNLOCK, out.to_server);
        }
        server.reset_due = false;
        server.unlock_due = false;
        server.last_session = holder;
    }
    if !client.is_mode_known
        && let Some(mode) = &server.own_mode
    {
        client.begin_with_mode(mode, &mut shared.settings);
    }
    change::unmark_other(client, server, out.to_server);
    change::mark(client, server, out.to_server);
    prepared::trim(server, None, out);
    change::settings(shared, client, server, out);
}

/// Removes the mark of a session from a connection that was idle for a while. The connection may be
/// leased at any time, without waiting for the reply.
pub fn release_mark(server: &mut MysqlServerSession, out: &mut LinkOutputs<'_>) {
    debug_assert!(server.is_idle(), "{server:?}");
    change::unmark(server, out.to_server);
}

#[cfg(test)]
mod tests;
