//! Layers, their users, and snapshots.

use node::store::{SqlRow, SqlStoreError, StoreTransaction};

use super::access::TableAccess;
use super::rows::{LayerRow, SnapshotRow};
use super::schema::{SessionColumns, json, limit, number, text, text_or_null};
use crate::error::SessionError;

// `extra` holds the data of a new session other than files.
const SNAPSHOT: &str = "id, tenant, session, name, chain, bytes, extra, created_ms";

/// Layers below disks.
#[derive(Clone, Debug)]
pub(crate) struct LayerTable(pub(super) TableAccess);

impl LayerTable {
    /// Returns the total bytes of these layers.
    pub(crate) async fn bytes(&self, chain: Vec<String>) -> Result<u64, SessionError> {
        self.0
            .read("layers.bytes", move |it| {
                let mut sum = 0_u64;
                for layer in &chain {
                    let sql = "SELECT bytes FROM session_layers WHERE id = $1";
                    let found = it.query_one(sql, &[text(layer)])?;
                    sum = sum.saturating_add(found.map_or(Ok(0), |row| row.get::<u64>(0))?);
                }
                Ok(sum)
            })
            .await
    }

    /// Records a layer, so that sessions, versions and snapshots can use it.
    pub(crate) async fn insert(&self, row: LayerRow) -> Result<(), SessionError> {
        let parameters =
            [text(&row.id), text(&row.tenant), number(row.bytes), number(row.created_ms)];
        self.0
            .write_again("layers.insert", move |it| {
                let sql = "INSERT INTO session_layers (id, tenant, bytes, created_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING";
                it.execute(sql, &parameters).map(drop)
            })
            .await
    }

    /// Returns a page of all layers, by id, to find unreferenced files.
    pub(crate) async fn list(
        &self,
        after: &str,
        count_max: usize,
    ) -> Result<Vec<String>, SessionError> {
        let parameters = [text(after), limit(count_max)];
        self.0
            .read("layers.list", move |it| {
                let sql = "SELECT id FROM session_layers WHERE id > $1 ORDER BY id LIMIT $2";
                it.query(sql, &parameters)?
                    .iter()
                    .map(|row| SessionColumns::of(row).text())
                    .collect()
            })
            .await
    }

    /// Deletes unused layers that were created before `before_ms`, and returns them: their files
    /// and objects can be removed. They cannot be used any more.
    pub(crate) async fn take_unused(
        &self,
        before_ms: u64,
        count_max: usize,
    ) -> Result<Vec<String>, SessionError> {
        let parameters = [number(before_ms), limit(count_max)];
        self.0
            .write("layers.take_unused", move |it| {
                let sql = "SELECT id FROM session_layers WHERE created_ms < $1 AND NOT EXISTS \
                (SELECT 1 FROM session_layer_uses WHERE layer = session_layers.id) LIMIT $2";
                let found = it.query(sql, &parameters)?;
                let mut taken = Vec::with_capacity(found.len());
                for row in &found {
                    let id = SessionColumns::of(row).text()?;
                    it.execute("DELETE FROM session_layers WHERE id = $1", &[text(&id)])?;
                    super::templates::forget_steps(it, &id)?;
                    taken.push(id);
                }
                Ok(taken)
            })
            .await
    }
}

/// Snapshots of sessions.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotTable(pub(super) TableAccess);

impl SnapshotTable {
    /// Stores a snapshot.
    ///
    /// # Errors
    /// `NotFound` for a layer of its chain; `TooMany` if the tenant has `count_max` snapshots.
    pub(crate) async fn insert(
        &self,
        row: SnapshotRow,
        count_max: u64,
    ) -> Result<(), SessionError> {
        self.0.write("snapshots.insert", move |it| {
            let count = "SELECT COUNT(*) FROM session_snapshots WHERE tenant = $1";
            let count = it.query_one(count, &[text(&row.tenant)])?;
            if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= count_max {
                let message = format!(
                    "the tenant has {count_max} snapshots, as many as it may \
                     (sessions.snapshots_max_per_tenant); delete some first"
                );
                return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
            }
            let sql = format!(
                "INSERT INTO session_snapshots ({SNAPSHOT}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
            );
            let parameters = [
                text(&row.id),
                text(&row.tenant),
                text(&row.session),
                text_or_null(row.name.as_deref()),
                json(&row.chain)?,
                number(row.bytes),
                json(&row.template)?,
                number(row.created_ms),
            ];
            it.execute(&sql, &parameters)?;
            begin_chain(it, &user(&row.id), &row.chain)
        })
        .await
    }

    /// Returns a snapshot of a tenant by its id.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<SnapshotRow>, SessionError> {
        let sql = format!("SELECT {SNAPSHOT} FROM session_snapshots WHERE tenant = $1 AND id = $2");
        let parameters = [text(tenant), text(id)];
        self.0
            .read("snapshots.get", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| snapshot(&found)).transpose()
            })
            .await
    }

    /// Returns snapshots of a tenant, newest first: of a session or of all, older than `before`.
    pub(crate) async fn list(
        &self,
        tenant: &str,
        session: Option<&str>,
        before: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<SnapshotRow>, SessionError> {
        let mut conditions = super::schema::QueryConditions::equal("tenant", text(tenant));
        conditions.and("session = $", session.map(text));
        conditions.and("id < $", before.map(text));
        let place = conditions.place(limit(count_max));
        let sql = format!(
            "SELECT {SNAPSHOT} FROM session_snapshots WHERE {} ORDER BY id DESC LIMIT {place}",
            conditions.sql
        );
        self.0
            .read("snapshots.list", move |it| {
                it.query(&sql, &conditions.parameters)?.iter().map(snapshot).collect()
            })
            .await
    }

    /// Deletes a snapshot. Its layers stay until they are unused.
    pub(crate) async fn delete(&self, tenant: &str, id: &str) -> Result<bool, SessionError> {
        let (parameters, user) = ([text(tenant), text(id)], user(id));
        self.0
            .write_again("snapshots.delete", move |it| {
                let sql = "DELETE FROM session_snapshots WHERE tenant = $1 AND id = $2";
                if it.execute(sql, &parameters)? == 0 {
                    return Ok(false);
                }
                use_chain(it, &user, &[])?;
                Ok(true)
            })
            .await
    }
}

/// Returns the name of a snapshot among the users of layers.
fn user(id: &str) -> String {
    format!("snapshot:{id}")
}

fn snapshot(row: &SqlRow) -> Result<SnapshotRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(SnapshotRow {
        id: columns.text()?,
        tenant: columns.text()?,
        session: columns.text()?,
        name: columns.text_or_null()?,
        chain: columns.json()?,
        bytes: columns.take()?,
        template: columns.json()?,
        created_ms: columns.take()?,
    })
}

/// Records that `user` uses these layers and no others. Runs in the transaction that writes the
/// chain: a layer that was deleted meanwhile causes an error, and a concurrent deletion conflicts
/// with the transaction.
pub(super) fn use_chain(
    transaction: &mut dyn StoreTransaction,
    user: &str,
    chain: &[String],
) -> Result<(), SqlStoreError> {
    let sql = "DELETE FROM session_layer_uses WHERE used_by = $1";
    transaction.execute(sql, &[text(user)])?;
    begin_chain(transaction, user, chain)
}

/// Records that a new `user` uses these layers.
pub(super) fn begin_chain(
    transaction: &mut dyn StoreTransaction,
    user: &str,
    chain: &[String],
) -> Result<(), SqlStoreError> {
    for layer in chain {
        let parameters = [text(layer), text(user)];
        let known = "SELECT id FROM session_layers WHERE id = $1";
        if transaction.query_one(known, &parameters[..1])?.is_none() {
            return Err(SqlStoreError::refuse(SessionError::NotFound("layer")));
        }
        let sql = "INSERT INTO session_layer_uses (layer, used_by) VALUES ($1, $2) \
            ON CONFLICT (layer, used_by) DO NOTHING";
        transaction.execute(sql, &parameters)?;
    }
    Ok(())
}
