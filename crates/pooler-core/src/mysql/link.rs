//! The link between a client and a server connection: what passes, what is changed, what is put in
//! between, and when the two part.
//!
//! Pure: bytes and sessions come in, bytes for either side and a decision come out. Whoever owns
//! the sockets keeps what was not consumed and presents it again, with more behind it or after what
//! the decision asked for has happened.
//!
//! ```text
//! client ─► from_client ─► server        NeedServer ─► lease one ─► attach ─► from_client again
//! client ◄─ from_server ◄─ server        Released  ─► the server connection is the pool's again
//! ```
//!
//! # What holds
//! - The protocol is half duplex, and so is the link: while a reply is outstanding, nothing of the
//!   client's next command is taken.
//! - A server connection is released only at the end of the last result of a reply, outside of a
//!   transaction, when nothing of the client's is left in it that the next one could meet or that
//!   the client could miss.
//! - Replies are read by what was asked, never by a packet's first byte alone. What is not an end,
//!   an error or an answer of our own streams, whatever its length.
//! - The numbers of packets to a client are counted here, so that it does not matter to it what was
//!   left out, put in between or asked besides.
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

/// Bytes of a text that is looked at. A longer one streams past unseen, and counts as one that may
/// have done anything; a longer one to be prepared is refused.
pub const STATEMENT_BYTES_SCANNED_MAX: usize = 1024 * 1024;

/// Bytes of a server's packet that is held whole to be read: ends, errors, what we asked.
pub const SERVER_PACKET_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a command that is held whole and is no text: names, logins.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// State that the links of one thread share.
#[derive(Debug)]
pub struct MysqlLinkContext {
    pub(crate) key: HashKey,
    pub(crate) texts: MysqlStatementCache,
    /// Settings of many sessions.
    pub settings: SettingsInterner,
    /// Counts changes of schemas, of all threads: statements prepared before one are prepared anew.
    pub(crate) schema: Arc<AtomicU64>,
    /// Buffer for statements of our own.
    pub(crate) scratch: Vec<u8>,
    /// Numbers sessions: a client has another one after each login and reset.
    serial: u64,
}

impl MysqlLinkContext {
    /// For one thread; `key` and `schema` are the same for all threads of a process.
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

    /// Forgets what was learnt in a pool that is no more: nothing is, of this protocol.
    pub fn forget_pool(&mut self, _pool: u32) {}
}

/// Gives a client a server connection, which must be idle: what they have to agree on goes first,
/// in the same write as what the client has to say.
pub fn attach(
    shared: &mut MysqlLinkContext,
    client: &mut MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) {
    debug_assert!(server.is_idle(), "{server:?}");
    client.attached = true;
    client.is_new_here = true;
    // It has asked for the connection to have a command run there.
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
            // It takes the mark away as well, if the server knows it.
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

/// Takes the mark of a session away from an idle connection, for which nothing of it came for a
/// while: others may have it at any time, and do not wait for the answer.
pub fn release_mark(server: &mut MysqlServerSession, out: &mut LinkOutputs<'_>) {
    debug_assert!(server.is_idle(), "{server:?}");
    change::unmark(server, out.to_server);
}

#[cfg(test)]
mod tests;
