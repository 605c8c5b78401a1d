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
//! - A client without a server connection is between transactions and awaits no reply.
//! - A server connection is released only if every reply has arrived, its transaction has ended, no
//!   request waits for a `Sync`, and no message is partly sent.
//! - A message is buffered whole only if it has to be parsed whole: texts of statements up to
//!   [`STATEMENT_BYTES_SCANNED_MAX`], the headers of others. Everything else is streamed.
//! - In the steady state nothing is allocated.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html>

mod back;
mod batch;
mod change;
mod front;
mod gone;
mod query;
pub(crate) mod replay;
mod restore;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::client::PgClientSession;
use super::dirt::LessonTable;
use super::server::PgServerSession;
use super::statements::HashKey;
use super::texts::PgStatementCache;

pub use back::from_server;
pub use front::from_client;
pub use gone::client_gone;
pub use replay::REPLAY_BYTES_MAX;

pub use crate::link::{
    ClientNext, DepartureAction, FromClient, FromServer, LinkLimits, LinkOutputs, ServerFailure,
    ServerNext,
};

/// Maximum bytes of a text that is parsed. A longer one in the simple protocol is streamed
/// unparsed, and counts as one with arbitrary effects; a longer one to be prepared is refused.
pub const STATEMENT_BYTES_SCANNED_MAX: usize = 1024 * 1024;

/// Maximum bytes of the names at the beginning of a message that is not buffered whole.
pub const NAME_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of a server's message that is buffered whole to be parsed: errors, tags,
/// parameters.
pub const SERVER_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// State that the links of one thread share.
#[derive(Debug)]
pub struct PgLinkContext {
    pub(crate) key: HashKey,
    pub(crate) texts: PgStatementCache,
    /// Lessons about texts that call functions, for each pool.
    pub(crate) lessons: HashMap<u32, LessonTable>,
    /// Counter of schema changes, of all threads: statements prepared before a change are prepared
    /// again.
    pub(crate) schema: Arc<AtomicU64>,
    /// Counter of statements that are not shared.
    private: u64,
    /// Buffer for the pooler's own statements.
    pub(crate) scratch: Vec<u8>,
}

impl PgLinkContext {
    /// Creates the state of one thread; `key` and `schema` are the same for all threads of a
    /// process.
    pub fn new(key: HashKey, schema: Arc<AtomicU64>) -> PgLinkContext {
        PgLinkContext {
            texts: PgStatementCache::new(key.clone()),
            key,
            lessons: HashMap::new(),
            schema,
            private: 0,
            scratch: Vec::new(),
        }
    }

    /// Returns a number that neither settings nor other statements have.
    pub(crate) fn private_key(&mut self) -> u64 {
        self.private += 1;
        self.key.short(&self.private.to_be_bytes())
    }

    /// Forgets the facts learned about a pool that no longer exists.
    pub fn forget_pool(&mut self, pool: u32) {
        drop(self.lessons.remove(&pool));
    }

    pub(crate) fn lessons(&mut self, pool: u32) -> &mut LessonTable {
        self.lessons.entry(pool).or_default()
    }
}

/// Attaches a server connection to a client; the connection must be idle. Changes of its session
/// are sent first, in the same write as the client's request.
pub fn attach(
    shared: &mut PgLinkContext,
    client: &mut PgClientSession,
    server: &mut PgServerSession,
    out: &mut LinkOutputs<'_>,
) {
    debug_assert!(server.is_idle(), "{server:?}");
    client.attached = true;
    server.attached = Some(client.id);
    // Code that is not in a text may have lifted it. A server that reports it need not be queried.
    let asks = client.read_only && !server.reports_read_only();
    let verify = if asks { api::VerifyMode::Always } else { client.verify };
    server.dirt.set_verify(change::believed(verify));
    server.own_search_path = client.wanted.value("search_path").is_some();
    server.settings_in_doubt = false;
    server.may_lift = false;
    server.may_begin = false;
    server.unseen_unnamed = false;
    // Until they are cleared, however often the client uses the connection.
    server.foreign_sequences |= server.last_client.is_some_and(|last| last != client.id);
    change::trim_statements(server, out);
    if !change::settings(shared, client, server, out) {
        change::tell_parameters(client, server, out);
    }
    server.last_client = Some(client.id);
}

#[cfg(test)]
mod tests;
