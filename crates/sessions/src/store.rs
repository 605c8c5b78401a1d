//! Stored state of agents and sessions: the only SQL of this crate.
//!
//! Rows are plain values ([`rows`]). Each function is one serialisable transaction, which may run
//! again after a conflict; its writes are durable when it returns. Every function that serves a
//! caller takes the caller's tenant and ignores other tenants' rows.
//!
//! # Who may write a session
//! A session has an owner (a server) and an epoch that counts its owners. [`SessionStore::claim`]
//! changes both in one compare-and-set, and every later write names the epoch: a server that lost a
//! session because it was considered dead cannot change it any more.
//!
//! # Numbers of events
//! The row's `seq_ceiling` is durable before any number up to it becomes visible. A life, the time
//! between two claims, begins above the ceiling of the previous one. So no number is ever sent
//! twice, regardless of lost writes.

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

/// Event numbers reserved at the beginning of a life; unused ones are a gap in the numbers that
/// subscribers see.
pub(crate) const SEQ_BLOCK: u64 = 1 << 8;

/// Maximum numbers reserved at a time, for a session that has used as many.
pub(crate) const SEQ_BLOCK_MAX: u64 = 1 << 12;

/// Sessions with their events, and the related tables. Cheap to clone.
///
/// A component that owns one kind of rows receives only the table of that kind.
#[derive(Clone, Debug)]
pub(crate) struct SessionStore {
    access: TableAccess,
    /// Cached number of sessions of each tenant.
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
    /// Migrates the tables.
    ///
    /// # Errors
    /// If a migration fails; see [`node::store::SqlStore::migrate`].
    pub(crate) async fn open(store: SqlStore) -> Result<SessionStore, SqlStoreError> {
        store.migrate(schema::SERVICE, schema::MIGRATIONS).await?;
        // Claims check whether the owner of a session is alive.
        NodeRegistry::open(&store).await?;
        // Usage of a session's grants is removed with the session.
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

    /// Returns the database engine: with SQLite there are no other servers.
    pub(crate) fn dialect(&self) -> StoreDialect {
        self.access.store.dialect()
    }

    /// Returns the time by the store's clock, in milliseconds since 1970, for comparison with times
    /// that other servers wrote.
    pub(crate) fn now_ms(&self) -> u64 {
        self.access.store.now_ms()
    }
}

#[cfg(test)]
pub(crate) mod tests;
