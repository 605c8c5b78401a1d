//! The stored state of agents and sessions: the only SQL of this crate.
//!
//! Rows are plain values ([`rows`]); each function is one transaction, serialisable, which may run
//! again when it lost against others, and what it wrote is durable when it returns. Every function
//! that serves a caller takes the caller's tenant and finds nothing of another one.
//!
//! # Who may write a session
//! A session has an owner, a server, and an epoch that counts its owners. [`SessionStore::claim`]
//! moves both in one compare-and-set, and every later write names the epoch: a server that lost a
//! session, because it was taken for dead, changes nothing of it any more.
//!
//! # Numbers of events
//! The row's `seq_ceiling` is durable before any number up to it is told. A life, which is what
//! lies between two claims, begins above the ceiling of the one before. So no number is ever told
//! twice, whatever was lost in between.

mod access;
mod agents;
mod backup;
mod claims;
mod documents;
mod events;
mod layers;
pub(crate) mod rows;
mod schema;
mod secrets;
mod sessions;
mod templates;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;

use node::cluster::{NodeRegistry, migrate_amounts};
use node::store::{SqlStore, SqlStoreError, StoreDialect};
use parking_lot::Mutex;

pub(crate) use self::access::PAGE_MAX;
use self::access::TableAccess;
pub(crate) use self::agents::AgentTable;
pub(crate) use self::backup::{SessionFileIds, change_server, file_ids};
pub(crate) use self::claims::{CLAIMED_MAX, ClaimTerms, LostSessions};
pub(crate) use self::documents::{AttachmentTable, DocumentTable, UsageTable};
pub(crate) use self::events::{SessionBatch, WriteBatch};
pub(crate) use self::layers::{LayerTable, SnapshotTable};
pub(crate) use self::rows::*;
pub(crate) use self::secrets::{CredentialTable, SecretStore};
pub(crate) use self::templates::{
    BuildBounds, ReleasedTemplates, TemplateArchiveTable, TemplateTable,
};
pub(crate) use self::waiting::{WaitingMessage, WaitingMessageTable};

/// Numbers of events that are reserved for a session's life at its beginning: those that it does
/// not use are a gap in what its listeners see.
pub(crate) const SEQ_BLOCK: u64 = 1 << 8;

/// Most that are reserved at a time, for a session that has used as many.
pub(crate) const SEQ_BLOCK_MAX: u64 = 1 << 12;

/// Sessions with their events, and the tables of what is kept beside them. Cheap to clone.
///
/// Whoever owns one kind of rows gets the table of that kind, and no more.
#[derive(Clone, Debug)]
pub(crate) struct SessionStore {
    access: TableAccess,
    /// Number of sessions of each tenant, as far as this server knows.
    counts: Arc<Mutex<HashMap<String, sessions::SessionCount>>>,
    pub(crate) agents: AgentTable,
    pub(crate) archives: TemplateArchiveTable,
    pub(crate) attachments: AttachmentTable,
    pub(crate) credentials: CredentialTable,
    pub(crate) documents: DocumentTable,
    pub(crate) layers: LayerTable,
    pub(crate) snapshots: SnapshotTable,
    pub(crate) templates: TemplateTable,
    pub(crate) usage: UsageTable,
    pub(crate) waiting: WaitingMessageTable,
}

impl SessionStore {
    /// Brings the tables up to date.
    ///
    /// # Errors
    /// If that fails; see [`node::store::SqlStore::migrate`].
    pub(crate) async fn open(store: SqlStore) -> Result<SessionStore, SqlStoreError> {
        store.migrate(schema::SERVICE, schema::MIGRATIONS).await?;
        // Claims look whether the owner of a session is alive.
        NodeRegistry::open(&store).await?;
        // What grants of a session have used goes with it.
        migrate_amounts(&store).await?;
        let access = TableAccess { store };
        Ok(SessionStore {
            counts: Arc::default(),
            agents: AgentTable(access.clone()),
            archives: TemplateArchiveTable(access.clone()),
            attachments: AttachmentTable(access.clone()),
            credentials: CredentialTable(access.clone()),
            documents: DocumentTable(access.clone()),
            layers: LayerTable(access.clone()),
            snapshots: SnapshotTable(access.clone()),
            templates: TemplateTable(access.clone()),
            usage: UsageTable(access.clone()),
            waiting: WaitingMessageTable(access.clone()),
            access,
        })
    }

    /// Returns which engine it is: SQLite has no other servers.
    pub(crate) fn dialect(&self) -> StoreDialect {
        self.access.store.dialect()
    }

    /// Returns the time by the store's clock, in milliseconds since 1970: what is compared with
    /// times that other servers wrote.
    pub(crate) fn now_ms(&self) -> u64 {
        self.access.store.now_ms()
    }
}

#[cfg(test)]
pub(crate) mod tests;
