//! Tokens in the store that servers share: a row each, and a number that grows with each change.

use std::time::Duration;

use super::{StoredTokens, TokenChange, TokenError, TokenRecord, TokenScopes, TokensVersion};
use crate::hex;
use crate::store::{MigrationStep, SqlRow, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

/// Service that the tables belong to.
const SERVICE: &str = "tokens";

const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE cove_tokens (
            id TEXT NOT NULL PRIMARY KEY,
            position BIGINT NOT NULL,
            name TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            created TEXT NOT NULL,
            operator BIGINT NOT NULL,
            tenant TEXT,
            scopes TEXT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT
        );
        CREATE UNIQUE INDEX cove_tokens_by_hash ON cove_tokens (sha256);
        CREATE TABLE cove_tokens_version (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same("INSERT INTO cove_tokens_version (id, version) VALUES (1, 0)"),
];

/// Number of changes so far.
const VERSION: &str = "SELECT version FROM cove_tokens_version WHERE id = 1";

/// Stored scopes of a token with all scopes, including those that later versions add.
const ALL_SCOPES: &str = "all";

/// Time for which the row of a revoked token is kept, so that a token file that is moved into the
/// store later does not restore the token.
const REVOKED_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// The table of tokens.
#[derive(Debug)]
pub(super) struct TokenTable {
    store: SqlStore,
}

impl TokenTable {
    /// Creates the tables if they are missing.
    pub(super) async fn open(store: &SqlStore) -> Result<TokenTable, TokenError> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        Ok(TokenTable { store: store.clone() })
    }

    /// Returns the time by which tokens of the table expire.
    pub(super) fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// Returns the number of changes so far; none if there has never been a token.
    pub(super) async fn version(&self) -> Result<Option<u64>, TokenError> {
        let version = self.store.counter(VERSION, Duration::ZERO).await?;
        let version = version.ok_or(SqlStoreError::Spoiled)?;
        Ok((version > 0).then_some(version))
    }

    /// Reads all tokens that are not revoked.
    pub(super) async fn read(&self) -> Result<StoredTokens, TokenError> {
        let (version, records) =
            self.store.read("tokens.list", |it| Ok((version(it)?, records(it)?))).await?;
        // A row whose hash was edited is skipped.
        let with_hash = |record: TokenRecord| Some((hex::decode_32(&record.sha256)?, record));
        let records = records.into_iter().filter_map(with_hash).map(|(hash, it)| (it, hash));
        let version = version.map(TokensVersion::Table);
        Ok(StoredTokens { records: records.collect(), version })
    }

    /// Applies a change to the present tokens.
    pub(super) async fn change(&self, change: TokenChange) -> Result<TokenRecord, TokenError> {
        let now_ms = self.store.now_ms();
        let outcome = self.store.transact("tokens.change", move |it| {
            if matches!(change, TokenChange::AddFirst { .. }) && version(it)?.is_some() {
                return Ok(Err(TokenError::NotFirst));
            }
            let record = match change.apply(&mut records(it)?) {
                Ok(record) => record,
                Err(refusal) => return Ok(Err(refusal)),
            };
            match &change {
                TokenChange::AddFirst { .. } | TokenChange::Add { .. } => insert(it, &record)?,
                TokenChange::Revoke { .. } => revoke(it, &record.id, now_ms)?,
            }
            bump(it)?;
            Ok(Ok(record))
        });
        outcome.await?
    }

    /// Adds the tokens without a row; a revoked token has one.
    pub(super) async fn insert_missing(&self, records: Vec<TokenRecord>) -> Result<(), TokenError> {
        let added = self.store.transact_idempotent("tokens.insert_missing", move |it| {
            records.iter().try_for_each(|record| insert(it, record))?;
            bump(it)
        });
        Ok(added.await?)
    }
}

fn version(it: &mut dyn StoreTransaction) -> Result<Option<u64>, SqlStoreError> {
    let row = it.query_one(VERSION, &[])?;
    let version: u64 = row.ok_or(SqlStoreError::Spoiled)?.get(0)?;
    Ok((version > 0).then_some(version))
}

/// Returns all tokens that are not revoked, oldest first.
fn records(it: &mut dyn StoreTransaction) -> Result<Vec<TokenRecord>, SqlStoreError> {
    let sql = "SELECT id, name, sha256, created, operator, tenant, scopes, expires_ms \
        FROM cove_tokens WHERE revoked_ms IS NULL ORDER BY position";
    it.query(sql, &[])?.iter().map(record).collect()
}

fn record(row: &SqlRow) -> Result<TokenRecord, SqlStoreError> {
    let scopes: String = row.get(6)?;
    Ok(TokenRecord {
        id: row.get(0)?,
        name: row.get(1)?,
        sha256: row.get(2)?,
        created: row.get(3)?,
        operator: row.get::<i64>(4)? != 0,
        tenant: row.get(5)?,
        scopes: read_scopes(&scopes),
        expires_ms: row.get(7)?,
    })
}

/// Returns the scopes of a row. Unknown scopes are left out.
fn read_scopes(text: &str) -> TokenScopes {
    match text {
        ALL_SCOPES => TokenScopes::ALL,
        names => names.split(',').filter_map(|name| name.parse().ok()).collect(),
    }
}

fn insert(it: &mut dyn StoreTransaction, record: &TokenRecord) -> Result<(), SqlStoreError> {
    let scopes = match record.scopes {
        TokenScopes::ALL => ALL_SCOPES.to_owned(),
        some => some.to_string(),
    };
    let sql = "INSERT INTO cove_tokens \
        (id, name, sha256, created, operator, tenant, scopes, expires_ms, position) \
        SELECT $1, $2, $3, $4, CAST($5 AS BIGINT), $6, $7, CAST($8 AS BIGINT), \
        COALESCE(MAX(position), 0) + 1 FROM cove_tokens WHERE TRUE ON CONFLICT DO NOTHING";
    let parameters = [
        record.id.as_str().into(),
        record.name.as_str().into(),
        record.sha256.as_str().into(),
        record.created.as_str().into(),
        SqlValue::Int(i64::from(record.operator)),
        record.tenant.as_deref().into(),
        scopes.into(),
        record.expires_ms.map(milliseconds).into(),
    ];
    it.execute(sql, &parameters).map(drop)
}

fn revoke(it: &mut dyn StoreTransaction, id: &str, now_ms: u64) -> Result<(), SqlStoreError> {
    let sql = "UPDATE cove_tokens SET revoked_ms = $2 WHERE id = $1";
    it.execute(sql, &[id.into(), milliseconds(now_ms).into()])?;
    let kept_ms = u64::try_from(REVOKED_KEPT.as_millis()).unwrap_or(u64::MAX);
    let before_ms = milliseconds(now_ms.saturating_sub(kept_ms));
    it.execute("DELETE FROM cove_tokens WHERE revoked_ms < $1", &[before_ms.into()]).map(drop)
}

fn bump(it: &mut dyn StoreTransaction) -> Result<(), SqlStoreError> {
    it.execute("UPDATE cove_tokens_version SET version = version + 1 WHERE id = 1", &[]).map(drop)
}

fn milliseconds(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
