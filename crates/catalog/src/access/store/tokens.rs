//! Access tokens at rest, by their hash.

use node::store::{SqlValue, StoreTransaction};

use super::{AccessStore, Stored, digest, ms};
use crate::access::random::Hash;
use crate::access::tokens::{TOKENS_OF_CLIENT_MAX, TokenRow};
use crate::error::{CatalogError, Result};
use crate::store::rights_changed;

impl AccessStore {
    /// Keeps a new token. Those of its client that are too many go, the oldest ones first.
    pub(in crate::access) async fn insert_token(
        &self,
        hash: Hash,
        row: TokenRow,
        now_ms: u64,
    ) -> Result<()> {
        let most = i64::try_from(TOKENS_OF_CLIENT_MAX - 1).map_err(CatalogError::internal)?;
        let written = self.0.transact("catalog.insert_token", move |it| {
            let client = SqlValue::from(&row.client);
            let sql = "SELECT ends_ms FROM catalog_tokens WHERE client = $1 AND ends_ms > $2 \
                ORDER BY ends_ms DESC LIMIT 1 OFFSET $3";
            let parameters = [client.clone(), ms(now_ms)?, SqlValue::Int(most)];
            if let Some(oldest) = it.query_one(sql, &parameters)? {
                let sql = "DELETE FROM catalog_tokens \
                    WHERE client = $1 AND ends_ms <= $2 AND revoked = 0";
                it.execute(sql, &[client.clone(), SqlValue::Int(oldest.get(0)?)])?;
            }
            let sql = "INSERT INTO catalog_tokens (hash, client, role, revoked, ends_ms, secret) \
                VALUES ($1, $2, $3, 0, $4, $5)";
            let role = row.role.as_deref().map(SqlValue::from).unwrap_or(SqlValue::Null);
            let secret = row.secret.map_or(SqlValue::Null, |secret| SqlValue::from(&secret[..]));
            let parameters = [SqlValue::from(&hash[..]), client, role, ms(row.ends_ms)?, secret];
            it.execute(sql, &parameters).map(drop)
        });
        written.await
    }

    /// A token that was not taken back.
    pub(in crate::access) async fn token(&self, hash: Hash) -> Result<Option<TokenRow>> {
        let read = self.0.read("catalog.token", move |it| {
            let sql = "SELECT client, role, ends_ms, secret FROM catalog_tokens \
                WHERE hash = $1 AND revoked = 0";
            let found = it.query_one(sql, &[SqlValue::from(&hash[..])])?;
            let row = found.map(|row| {
                let secret: Option<Vec<u8>> = row.get(3)?;
                Ok(TokenRow {
                    client: row.get(0)?,
                    role: row.get(1)?,
                    ends_ms: row.get(2)?,
                    secret: secret.map(|bytes| digest(&bytes)).transpose()?,
                })
            });
            row.transpose()
        });
        read.await
    }

    /// Takes a token back. Its hash stays until its end, for servers that have it in memory.
    pub(in crate::access) async fn revoke_token(&self, hash: Hash) -> Result<()> {
        let written = self.0.transact("catalog.revoke_token", move |it| {
            let sql = "UPDATE catalog_tokens SET revoked = 1 WHERE hash = $1";
            it.execute(sql, &[SqlValue::from(&hash[..])])?;
            rights_changed(it)
        });
        written.await
    }

    /// Removes tokens that ended before then.
    pub(in crate::access) async fn forget_tokens(&self, before_ms: u64) -> Result<()> {
        let written = self.0.transact_idempotent("catalog.forget_tokens", move |it| {
            it.execute("DELETE FROM catalog_tokens WHERE ends_ms < $1", &[ms(before_ms)?]).map(drop)
        });
        written.await
    }
}

/// Hashes of tokens that were taken back before their end.
pub(super) fn revoked(it: &mut dyn StoreTransaction) -> Stored<Vec<Hash>> {
    let rows = it.query("SELECT hash FROM catalog_tokens WHERE revoked = 1", &[])?;
    rows.iter().map(|row| digest(&row.get::<Vec<u8>>(0)?)).collect()
}
