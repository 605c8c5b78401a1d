//! Stored API keys.

use std::sync::atomic::AtomicU64;

use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::{AccessStore, Stored, digest, ms, require_room};
use crate::access::keys::{ApiKey, KEYS_MAX, KEYS_OF_CLIENT_MAX};
use crate::access::random::Hash;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::rights_changed;

impl AccessStore {
    /// Stores a new key.
    pub(in crate::access) async fn insert_key(&self, key: ApiKey) -> Result<()> {
        let written = self.0.transact("catalog.insert_key", move |it| {
            require_room(it, "SELECT COUNT(*) FROM catalog_api_keys", KEYS_MAX, "API keys")?;
            let sql = "SELECT COUNT(*) FROM catalog_api_keys WHERE client = $1";
            let own = it.query_one(sql, &[SqlValue::from(&*key.client)])?;
            let own: usize = own.map_or(Ok(0), |row| row.get(0))?;
            if own >= KEYS_OF_CLIENT_MAX {
                let message = format!("the client has {KEYS_OF_CLIENT_MAX} API keys already");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::BadRequest,
                    message,
                )));
            }
            let sql = "INSERT INTO catalog_api_keys (id, client, name, secret, previous, \
                previous_until_ms, created_ms, ends_ms, used_ms) \
                VALUES ($1, $2, $3, $4, NULL, 0, $5, $6, 0)";
            let parameters = [
                SqlValue::from(&*key.id),
                SqlValue::from(&*key.client),
                SqlValue::from(&*key.name),
                SqlValue::from(&key.secret[..]),
                ms(key.created_ms)?,
                key.ends_ms.map(ms).transpose()?.unwrap_or(SqlValue::Null),
            ];
            it.execute(sql, &parameters)?;
            rights_changed(it)
        });
        written.await
    }

    /// Replaces a key's secret.
    pub(in crate::access) async fn rotate_key(
        &self,
        id: &str,
        secret: Hash,
        until_ms: u64,
    ) -> Result<()> {
        let id = id.to_owned();
        let written = self.0.transact("catalog.rotate_key", move |it| {
            let sql = "UPDATE catalog_api_keys \
                SET previous = secret, previous_until_ms = $2, secret = $3 WHERE id = $1";
            it.execute(sql, &[SqlValue::from(&id), ms(until_ms)?, SqlValue::from(&secret[..])])?;
            rights_changed(it)
        });
        written.await
    }

    /// Removes a key.
    pub(in crate::access) async fn delete_key(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        let written = self.0.transact("catalog.delete_key", move |it| {
            it.execute("DELETE FROM catalog_api_keys WHERE id = $1", &[SqlValue::from(&id)])?;
            rights_changed(it)
        });
        written.await
    }

    /// Stores the times of use of keys. Other servers need not notice, so the version is unchanged.
    pub(in crate::access) async fn keep_used(&self, used: Vec<(String, u64)>) -> Result<()> {
        let written = self.0.transact_idempotent("catalog.keep_used", move |it| {
            let sql = "UPDATE catalog_api_keys SET used_ms = $2 WHERE id = $1 AND used_ms < $2";
            for (id, used_ms) in &used {
                it.execute(sql, &[SqlValue::from(id), ms(*used_ms)?])?;
            }
            Ok(())
        });
        written.await
    }
}

/// Returns all keys.
pub(super) fn all(it: &mut dyn StoreTransaction) -> Stored<Vec<ApiKey>> {
    let sql = "SELECT id, client, name, secret, previous, previous_until_ms, created_ms, ends_ms, \
        used_ms FROM catalog_api_keys ORDER BY id";
    it.query(sql, &[])?.iter().map(key).collect()
}

fn key(row: &SqlRow) -> Stored<ApiKey> {
    let (previous, until_ms): (Option<Vec<u8>>, u64) = (row.get(4)?, row.get(5)?);
    let used_ms: u64 = row.get(8)?;
    Ok(ApiKey {
        id: row.get::<String>(0)?.into(),
        client: row.get::<String>(1)?.into(),
        name: row.get::<String>(2)?.into(),
        secret: digest(&row.get::<Vec<u8>>(3)?)?,
        previous: previous.map(|it| digest(&it).map(|hash| (hash, until_ms))).transpose()?,
        created_ms: row.get(6)?,
        ends_ms: row.get(7)?,
        used_ms: AtomicU64::new(used_ms),
        used_kept_ms: AtomicU64::new(used_ms),
    })
}
