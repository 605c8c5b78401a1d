//! Single-use tokens with which a server joins a cluster.
//!
//! A server needs the keys that all nodes have. They wait for it in the store, sealed with a key
//! derived from the token, of which the store has only a hash: neither the store alone nor the
//! token alone reveals them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::auth::{self, TokenError};
use crate::hex;
use crate::sealed::{SealError, Sealer};
use crate::store::{MigrationStep, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

/// Service that the table belongs to.
const SERVICE: &str = "join_tokens";

const MIGRATIONS: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE cove_join_tokens (
        sha256 TEXT NOT NULL PRIMARY KEY,
        sealed TEXT,
        expires_ms BIGINT NOT NULL,
        used_ms BIGINT
    )",
)];

/// Prefix of every join token, so that people and secret scanners recognise one.
const PREFIX: &str = "cove_join_";
/// Place that the keys are sealed for.
const SEALED_FOR: &str = "keys of a cluster";
/// Time after which rows of used or expired tokens are removed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Keys that all nodes of a cluster have.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKeys {
    /// Key that secrets are sealed with.
    pub secrets: [u8; 32],
    /// Key from which the keys of webhooks are derived.
    pub webhooks: [u8; 32],
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKeys(..)")
    }
}

/// Reason why a token cannot be issued or redeemed.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    /// The token was never issued, or was issued for another store.
    #[error("unknown join token: it is not in this store")]
    Unknown,
    /// Another server has joined with it.
    #[error("the join token was already used; create another one with `cove cluster token`")]
    Used,
    /// The token has expired.
    #[error("the join token has expired; create another one with `cove cluster token`")]
    Expired,
    /// The keys cannot be sealed or opened.
    #[error("seal or open the keys of the cluster")]
    Sealed(#[from] SealError),
    /// No token can be created.
    #[error("make a join token")]
    Make(#[from] TokenError),
    /// The store cannot be used.
    #[error("keep join tokens in the store")]
    Store(#[from] SqlStoreError),
}

/// Issues a token for one server to join with, valid for `lifetime`. Its plain text is only in the
/// result.
///
/// # Errors
/// If the kernel returns no random bytes, or the store cannot be used.
pub async fn issue(
    store: &SqlStore,
    keys: &ClusterKeys,
    lifetime: Duration,
) -> Result<String, JoinTokenError> {
    store.migrate(SERVICE, MIGRATIONS).await?;
    let secret = auth::random_key()?;
    let both = format!("{}{}", hex::encode(&keys.secrets), hex::encode(&keys.webhooks));
    let sealed = Sealer::new(&secret).seal_text(&both, SEALED_FOR)?;
    let now_ms = store.now_ms();
    let expires_ms = now_ms.saturating_add(milliseconds(lifetime));
    let before_ms = now_ms.saturating_sub(milliseconds(KEPT));
    let parameters = [hash(&secret).into(), sealed.into(), number(expires_ms)];
    let issued = store.transact_idempotent("join_tokens.issue", move |it| {
        it.execute("DELETE FROM cove_join_tokens WHERE expires_ms < $1", &[number(before_ms)])?;
        let sql = "INSERT INTO cove_join_tokens (sha256, sealed, expires_ms) VALUES ($1, $2, $3) \
            ON CONFLICT DO NOTHING";
        it.execute(sql, &parameters).map(drop)
    });
    issued.await?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret)))
}

/// Returns the keys of a token, and marks the token as used.
///
/// # Errors
/// If the token is unknown, used or expired, or the store cannot be used.
pub async fn redeem(store: &SqlStore, token: &str) -> Result<ClusterKeys, JoinTokenError> {
    store.migrate(SERVICE, MIGRATIONS).await?;
    let secret = token.trim().strip_prefix(PREFIX);
    let secret = secret.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let secret = secret.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let secret = secret.ok_or(JoinTokenError::Unknown)?;
    let (key, now_ms) = (hash(&secret), store.now_ms());
    let taken = store.transact("join_tokens.redeem", move |it| redeem_in(it, &key, now_ms));
    let sealed = taken.await??;
    let both = Sealer::new(&secret).open_text(&sealed, SEALED_FOR)?;
    let halves = both.expose_text().and_then(|text| text.split_at_checked(64));
    let decoded = halves.and_then(|(one, two)| Some((hex::decode_32(one)?, hex::decode_32(two)?)));
    let (secrets, webhooks) = decoded.ok_or(JoinTokenError::Sealed(SealError::Malformed))?;
    Ok(ClusterKeys { secrets, webhooks })
}

fn redeem_in(
    it: &mut dyn StoreTransaction,
    key: &str,
    now_ms: u64,
) -> Result<Result<String, JoinTokenError>, SqlStoreError> {
    let sql = "SELECT sealed, expires_ms FROM cove_join_tokens WHERE sha256 = $1";
    let Some(row) = it.query_one(sql, &[key.into()])? else {
        return Ok(Err(JoinTokenError::Unknown));
    };
    let Some(sealed) = row.get::<Option<String>>(0)? else { return Ok(Err(JoinTokenError::Used)) };
    if row.get::<u64>(1)? <= now_ms {
        return Ok(Err(JoinTokenError::Expired));
    }
    let sql = "UPDATE cove_join_tokens SET sealed = NULL, used_ms = $2 WHERE sha256 = $1";
    it.execute(sql, &[key.into(), number(now_ms)])?;
    Ok(Ok(sealed))
}

fn hash(secret: &[u8; 32]) -> String {
    hex::encode(&Sha256::digest(secret))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn number(ms: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use testkit::{Postgres, Scratch};

    use super::*;
    use crate::store::{StoreConfig, StoreUrl};
    use crate::telemetry::Registry;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn check(claim: impl AsyncFn(&SqlStore)) {
        let scratch = Scratch::new();
        let server = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
        let sqlite = StoreUrl::Sqlite(scratch.path().join("db"));
        for url in [sqlite, StoreUrl::Postgres(server.database())] {
            let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await;
            claim(&store.unwrap()).await;
        }
    }

    #[tokio::test]
    async fn a_token_gives_the_keys_once_and_for_a_time() {
        check(async |store| {
            let keys = ClusterKeys { secrets: [1; 32], webhooks: [2; 32] };
            let token = issue(store, &keys, HOUR).await.unwrap();
            let (one, two) = tokio::join!(redeem(store, &token), redeem(store, &token));
            let (good, bad) = if one.is_ok() { (one, two) } else { (two, one) };
            assert_eq!(good.unwrap(), keys);
            assert!(matches!(bad, Err(JoinTokenError::Used)), "{bad:?}");
            assert!(matches!(redeem(store, &token).await, Err(JoinTokenError::Used)));

            let late = issue(store, &keys, Duration::ZERO).await.unwrap();
            assert!(matches!(redeem(store, &late).await, Err(JoinTokenError::Expired)));
            let other = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([9; 32]));
            for unknown in ["", PREFIX, "cove_join_x", &token[PREFIX.len()..], &other] {
                let refused = redeem(store, unknown).await;
                assert!(matches!(refused, Err(JoinTokenError::Unknown)), "{unknown}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn the_store_alone_has_no_key() {
        check(async |store| {
            let keys = ClusterKeys { secrets: [0xab; 32], webhooks: [0xcd; 32] };
            let token = issue(store, &keys, HOUR).await.unwrap();
            let rows = store.read("look", |it| {
                let rows = it.query("SELECT sha256, sealed FROM cove_join_tokens", &[])?;
                rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
            });
            let rows: Vec<(String, String)> = rows.await.unwrap();
            let text = format!("{rows:?}");
            assert_eq!(rows.len(), 1);
            for hidden in ["abababab", "cdcdcdcd", &token[PREFIX.len()..]] {
                assert!(!text.contains(hidden), "{text}");
            }
            assert_eq!(format!("{keys:?}"), "ClusterKeys(..)");
        })
        .await;
    }
}
