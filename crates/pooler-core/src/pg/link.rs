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
//! - A client that holds no server connection is between transactions and owes nobody a byte.
//! - A server connection is released only if every reply has come, its transaction has ended, no
//!   request waits for a `Sync`, and no message is half sent.
//! - A message is held whole only if it has to be read whole: texts of statements up to
//!   [`STATEMENT_BYTES_SCANNED_MAX`], the heads of others. Everything else streams.
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

/// Bytes of a text that is looked at. A longer one in the simple protocol streams past unseen, and
/// counts as one that may have done anything; a longer one to be prepared is refused.
pub const STATEMENT_BYTES_SCANNED_MAX: usize = 1024 * 1024;

/// Bytes of the names at the head of a message that is not held whole.
pub const NAME_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a server's message that is held whole to be read: errors, tags, parameters.
pub const SERVER_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// State that the links of one thread share.
#[derive(Debug)]
pub struct PgLinkContext {
    pub(crate) key: HashKey,
    pub(crate) texts: PgStatementCache,
    /// What was learnt about texts that call functions, for each pool.
    pub(crate) lessons: HashMap<u32, LessonTable>,
    /// Counts changes of schemas, of all threads: statements prepared before one are prepared anew.
    pub(crate) schema: Arc<AtomicU64>,
    /// Counts statements that are nobody else's.
    private: u64,
    /// Where statements of our own are put together.
    pub(crate) scratch: Vec<u8>,
}

impl PgLinkContext {
    /// For one thread; `key` and `schema` are the same for all threads of a process.
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

    /// A number that no settings have, and no other statement.
    pub(crate) fn private_key(&mut self) -> u64 {
        self.private += 1;
        self.key.short(&self.private.to_be_bytes())
    }

    /// Forgets what was learnt in a pool that is no more.
    pub fn forget_pool(&mut self, pool: u32) {
        drop(self.lessons.remove(&pool));
    }

    pub(crate) fn lessons(&mut self, pool: u32) -> &mut LessonTable {
        self.lessons.entry(pool).or_default()
    }
}

/// Gives a client a server connection, which must be idle: what they have to agree on goes first,
/// in the same write as what the client has to say.
pub fn attach(
    shared: &mut PgLinkContext,
    client: &mut PgClientSession,
    server: &mut PgServerSession,
    out: &mut LinkOutputs<'_>,
) {
    debug_assert!(server.is_idle(), "{server:?}");
    client.attached = true;
    server.attached = Some(client.id);
    // Code that is not in a text may have lifted it. A server that tells need not be asked.
    let asks = client.read_only && !server.reports_read_only();
    let verify = if asks { api::VerifyMode::Always } else { client.verify };
    server.dirt.set_verify(change::believed(verify));
    server.own_search_path = client.wanted.value("search_path").is_some();
    server.settings_in_doubt = false;
    server.may_lift = false;
    server.may_begin = false;
    server.unseen_unnamed = false;
    // Until they are taken away, however often the client comes.
    server.foreign_sequences |= server.last_client.is_some_and(|last| last != client.id);
    change::trim_statements(server, out);
    if !change::settings(shared, client, server, out) {
        change::tell_parameters(client, server, out);
    }
    server.last_client = Some(client.id);
}

#[cfg(test)]
mod tests;
