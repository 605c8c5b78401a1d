//! Rows of nodes in the store.

use super::identity::NodeIdentity;
use super::record::{NodeDescription, NodeLoad, NodeRecord, NodeState};
use crate::store::{MigrationStep, SqlRow, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

/// Service that the table belongs to.
const SERVICE: &str = "nodes";

const MIGRATIONS: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE cove_nodes (
        id TEXT NOT NULL PRIMARY KEY,
        incarnation TEXT NOT NULL,
        home TEXT NOT NULL,
        started_ms BIGINT NOT NULL,
        seen_ms BIGINT NOT NULL,
        state TEXT NOT NULL,
        wanted TEXT NOT NULL,
        address TEXT,
        peer_address TEXT,
        roles TEXT NOT NULL,
        zone TEXT NOT NULL,
        version TEXT NOT NULL,
        load TEXT NOT NULL
    )",
)];

/// All columns but the directory, in the order in which [`record`] reads them.
const COLUMNS: &str = "id, incarnation, started_ms, seen_ms, state, wanted, address, peer_address, \
    roles, zone, version, load";

/// Time after which the row of a node that has left, or was not seen again, is removed.
const FORGOTTEN_AFTER_MS: u64 = 7 * 24 * 3600 * 1000;

/// Result of [`NodeRegistry::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRegistration {
    /// The run is the node's current one from now on.
    Done,
    /// Another run may be alive, in another directory: its last renewal was at this time.
    SeenElsewhere(u64),
}

/// Result of [`NodeRegistry::renew`], for the node's current run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRenewal {
    /// All nodes.
    pub nodes: Vec<NodeRecord>,
    /// True if other nodes had found that nothing is left of this one, and may have taken over its
    /// sessions.
    pub was_expired: bool,
}

/// The nodes of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeRegistry {
    store: SqlStore,
}

impl NodeRegistry {
    /// Migrates the table.
    ///
    /// # Errors
    /// If that fails; see [`SqlStore::migrate`].
    pub async fn open(store: &SqlStore) -> Result<NodeRegistry, SqlStoreError> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        Ok(NodeRegistry { store: store.clone() })
    }

    /// Returns a registry of the same nodes over another connection to their store.
    pub(super) fn over(&self, store: SqlStore) -> NodeRegistry {
        NodeRegistry { store }
    }

    /// Returns the time by the store's clock, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// Returns how often another server was found to have replaced the store's
    /// ([`SqlStore::server_changes`]).
    pub(super) fn store_changes(&self) -> u64 {
        self.store.server_changes()
    }

    /// Makes a run its node's current one, unless another one may be alive, which a store that is
    /// not shared rules out.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn register(
        &self,
        run: &NodeIdentity,
        description: &NodeDescription,
        is_shared: bool,
        now_ms: u64,
    ) -> Result<NodeRegistration, SqlStoreError> {
        let (run, description) = (run.clone(), description.clone());
        let registered = self.store.transact_idempotent("nodes.register", move |it| {
            register(it, &run, &description, is_shared, now_ms)
        });
        registered.await
    }

    /// Renews a node's row, with its state and its load, and returns all nodes. None if another run
    /// has replaced this one.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn renew(
        &self,
        run: &NodeIdentity,
        state: NodeState,
        load: NodeLoad,
        now_ms: u64,
    ) -> Result<Option<NodeRenewal>, SqlStoreError> {
        let load = serde_json::to_string(&load).map_err(|_| SqlStoreError::Spoiled)?;
        let parameters = [
            run.id.as_str().into(),
            run.incarnation.as_str().into(),
            milliseconds(now_ms),
            state.as_str().into(),
            load.into(),
        ];
        let renewed = self.store.transact_idempotent("nodes.renew", move |it| {
            let sql = "UPDATE cove_nodes SET seen_ms = $3, state = $4, load = $5 \
                WHERE id = $1 AND incarnation = $2";
            let if_there = format!("{sql} AND state <> 'left'");
            match it.execute(&if_there, &parameters)? {
                1 => Ok(Some(false)),
                _ => Ok((it.execute(sql, &parameters)? == 1).then_some(true)),
            }
        });
        let Some(was_expired) = renewed.await? else { return Ok(None) };
        // In a transaction of its own: nodes that write while others read the same rows conflict.
        Ok(Some(NodeRenewal { nodes: self.list().await?, was_expired }))
    }

    /// Records that nothing is left of a run that did not stop: other nodes may take over from it
    /// at once. False if the run is not its node's current one any more, or is stopping.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn expire(&self, id: &str, incarnation: &str) -> Result<bool, SqlStoreError> {
        let load = NodeLoad { is_lost: true, ..NodeLoad::default() };
        let load = serde_json::to_string(&load).map_err(|_| SqlStoreError::Spoiled)?;
        let parameters = [id.into(), incarnation.into(), load.into()];
        let expired = self.store.transact_idempotent("nodes.expire", move |it| {
            // Earlier versions know the word `left`. A stopping node closes its listener before it
            // has stored its state.
            let sql = "UPDATE cove_nodes SET state = 'left', load = $3 \
                WHERE id = $1 AND incarnation = $2 AND state IN ('active', 'joining')";
            Ok(it.execute(sql, &parameters)? == 1)
        });
        expired.await
    }

    /// Records that a node has stopped: other nodes may take over from it at once.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn leave(&self, run: &NodeIdentity) -> Result<(), SqlStoreError> {
        let left = NodeState::Left.as_str();
        let parameters = [run.id.as_str().into(), run.incarnation.as_str().into(), left.into()];
        let left = self.store.transact_idempotent("nodes.leave", move |it| {
            let sql = "UPDATE cove_nodes SET state = $3 WHERE id = $1 AND incarnation = $2";
            it.execute(sql, &parameters).map(drop)
        });
        left.await
    }

    /// Removes the row of a node from a store that was restored for another one.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn forget(&self, id: &str) -> Result<(), SqlStoreError> {
        let parameters = [id.into()];
        let forgotten = self.store.transact_idempotent("nodes.forget", move |it| {
            it.execute("DELETE FROM cove_nodes WHERE id = $1", &parameters).map(drop)
        });
        forgotten.await
    }

    /// Returns all nodes, the oldest name first.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn list(&self) -> Result<Vec<NodeRecord>, SqlStoreError> {
        self.store.read("nodes.list", |it| list(it)).await
    }

    /// Requests that a node drains, or takes work again; it learns of it at its next renewal. False
    /// if there is no such node.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn ask_to_drain(&self, id: &str, drains: bool) -> Result<bool, SqlStoreError> {
        let wanted = if drains { NodeState::Draining } else { NodeState::Active };
        let parameters = [id.into(), wanted.as_str().into()];
        let asked = self.store.transact_idempotent("nodes.ask_to_drain", move |it| {
            let sql = "UPDATE cove_nodes SET wanted = $2 WHERE id = $1";
            Ok(it.execute(sql, &parameters)? == 1)
        });
        asked.await
    }
}

fn register(
    it: &mut dyn StoreTransaction,
    run: &NodeIdentity,
    description: &NodeDescription,
    is_shared: bool,
    now_ms: u64,
) -> Result<NodeRegistration, SqlStoreError> {
    let sql = "SELECT incarnation, home, seen_ms, state, load FROM cove_nodes WHERE id = $1";
    if let Some(found) = it.query_one(sql, &[run.id.as_str().into()])? {
        let (incarnation, home): (String, String) = (found.get(0)?, found.get(1)?);
        let seen_ms: u64 = found.get(2)?;
        let lease_ms = load(&found.get::<String>(4)?).lease_ms();
        let is_over = !is_shared
            || home == run.home
            || incarnation == run.incarnation
            || found.get::<String>(3)? == NodeState::Left.as_str()
            || seen_ms.saturating_add(lease_ms) <= now_ms;
        if !is_over {
            return Ok(NodeRegistration::SeenElsewhere(seen_ms));
        }
    }
    // A restarted node continues a requested drain.
    let sql = "INSERT INTO cove_nodes (id, incarnation, home, started_ms, seen_ms, state, wanted, \
        address, peer_address, roles, zone, version, load) \
        VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, $9, $10, $11, '{}') \
        ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, home = excluded.home, \
        started_ms = excluded.started_ms, seen_ms = excluded.seen_ms, state = excluded.state, \
        address = excluded.address, peer_address = excluded.peer_address, \
        roles = excluded.roles, zone = excluded.zone, version = excluded.version, \
        load = excluded.load";
    let parameters = [
        run.id.as_str().into(),
        run.incarnation.as_str().into(),
        run.home.as_str().into(),
        milliseconds(now_ms),
        NodeState::Joining.as_str().into(),
        NodeState::Active.as_str().into(),
        description.address.as_deref().into(),
        description.peer_address.as_deref().into(),
        description.roles.join(",").into(),
        description.zone.as_str().into(),
        description.version.as_str().into(),
    ];
    it.execute(sql, &parameters)?;
    let before_ms = milliseconds(now_ms.saturating_sub(FORGOTTEN_AFTER_MS));
    it.execute("DELETE FROM cove_nodes WHERE seen_ms < $1", &[before_ms])?;
    Ok(NodeRegistration::Done)
}

pub(super) fn list(it: &mut dyn StoreTransaction) -> Result<Vec<NodeRecord>, SqlStoreError> {
    let sql = format!("SELECT {COLUMNS} FROM cove_nodes ORDER BY id");
    it.query(&sql, &[])?.iter().map(record).collect()
}

fn record(row: &SqlRow) -> Result<NodeRecord, SqlStoreError> {
    let (roles, said): (String, String) = (row.get(8)?, row.get(11)?);
    Ok(NodeRecord {
        id: row.get(0)?,
        incarnation: row.get(1)?,
        started_ms: row.get(2)?,
        seen_ms: row.get(3)?,
        state: row.get::<String>(4)?.parse()?,
        drain_wanted: row.get::<String>(5)? == NodeState::Draining.as_str(),
        description: NodeDescription {
            address: row.get(6)?,
            peer_address: row.get(7)?,
            roles: roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned).collect(),
            zone: row.get(9)?,
            version: row.get(10)?,
        },
        load: load(&said),
    })
}

/// Reads the load of a node; a load in an unknown format counts as empty.
fn load(said: &str) -> NodeLoad {
    serde_json::from_str(said).unwrap_or_default()
}

/// Returns whether another run has replaced this one.
///
/// # Errors
/// If the store cannot be used.
pub fn is_replaced(
    it: &mut dyn StoreTransaction,
    run: &NodeIdentity,
) -> Result<bool, SqlStoreError> {
    let sql = "SELECT id FROM cove_nodes WHERE id = $1 AND incarnation <> $2";
    let parameters = [run.id.as_str().into(), run.incarnation.as_str().into()];
    Ok(it.query_one(sql, &parameters)?.is_some())
}

/// Returns whether a node runs, as far as the store knows at this time.
///
/// # Errors
/// If the store cannot be used.
pub fn is_alive(
    it: &mut dyn StoreTransaction,
    id: &str,
    now_ms: u64,
) -> Result<bool, SqlStoreError> {
    Ok(find(it, id)?.is_some_and(|node| node.is_alive(now_ms)))
}

/// Returns a node; none if it never existed, or its row was removed.
///
/// # Errors
/// If the store cannot be used.
pub fn find(it: &mut dyn StoreTransaction, id: &str) -> Result<Option<NodeRecord>, SqlStoreError> {
    let sql = format!("SELECT {COLUMNS} FROM cove_nodes WHERE id = $1");
    it.query_one(&sql, &[id.into()])?.map(|row| record(&row)).transpose()
}

pub(super) fn milliseconds(ms: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
