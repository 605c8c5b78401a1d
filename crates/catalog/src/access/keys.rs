//! API keys: long-lived secrets of a client that are presented directly, instead of an access
//! token. All of them are in memory, by their hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::clock;
use serde::Serialize;

use super::clients::{StoredClient, check_name, grace_ends, require_own};
use super::random::{self, Hash, hash};
use super::{AccessControl, clients};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{CatalogPrincipal, TokenClaims};

/// Prefix of keys, by which leaked ones are found.
pub const KEY_PREFIX: &str = "cove_ck_";

/// Most keys of a client.
pub const KEYS_OF_CLIENT_MAX: usize = 100;

/// Most keys in total.
pub const KEYS_MAX: usize = 50_000;

/// Longest lifetime of a key.
pub const KEY_LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A stored key.
pub(super) struct ApiKey {
    /// Id, which contains no colon.
    pub(super) id: Box<str>,
    /// Client that owns it.
    pub(super) client: Box<str>,
    /// Display name.
    pub(super) name: Box<str>,
    /// Hash of the key.
    pub(super) secret: Hash,
    /// Hash of the former key, and the end of its validity (milliseconds since 1970).
    pub(super) previous: Option<(Hash, u64)>,
    /// Time of creation.
    pub(super) created_ms: u64,
    /// End of its validity; `None` for no expiry.
    pub(super) ends_ms: Option<u64>,
    /// Time of the last use at this server; 0 for never.
    pub(super) used_ms: AtomicU64,
    /// Time of use that is stored.
    pub(super) used_kept_ms: AtomicU64,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct KeyRecord {
    /// Id of the key.
    pub key_id: String,
    /// Display name.
    pub name: String,
    /// Time of creation (RFC 3339).
    pub created: String,
    /// Time of expiry (RFC 3339); `None` if the key does not expire.
    pub expires: Option<String>,
    /// Time of the last use (RFC 3339), to a minute; `None` if the key was never used.
    pub last_used: Option<String>,
}

/// New key, which is returned only once.
#[derive(Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewApiKey {
    /// Key, without its secret.
    #[serde(flatten)]
    pub record: KeyRecord,
    /// Bearer token.
    pub key: String,
}

impl fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("record", &self.record).finish_non_exhaustive()
    }
}

impl ApiKey {
    fn record(&self) -> KeyRecord {
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        KeyRecord {
            key_id: self.id.to_string(),
            name: self.name.to_string(),
            created: clock::rfc3339_of_ms(self.created_ms),
            expires: self.ends_ms.map(clock::rfc3339_of_ms),
            last_used: (used_ms > 0).then(|| clock::rfc3339_of_ms(used_ms)),
        }
    }

    /// Returns whether the secret with this hash is valid now.
    fn is_good(&self, hash: &Hash, now_ms: u64) -> bool {
        let is_known = self.secret == *hash
            || self.previous.is_some_and(|(old, until)| old == *hash && now_ms < until);
        is_known && self.ends_ms.is_none_or(|ends| now_ms < ends)
    }
}

/// Index of all keys.
#[derive(Debug, Default)]
pub(super) struct ApiKeyIndex {
    by_id: HashMap<Box<str>, Arc<ApiKey>>,
    /// By the hashes of present and former keys.
    by_hash: HashMap<Hash, Arc<ApiKey>>,
}

impl ApiKeyIndex {
    /// Indexes the keys in the store; times of use are carried over from the previous index.
    pub(super) fn new(all: Vec<ApiKey>, before: &ApiKeyIndex) -> ApiKeyIndex {
        let mut keys = ApiKeyIndex::default();
        for key in all {
            let was = before.by_id.get(&key.id).map_or(0, |it| it.used_ms.load(Ordering::Relaxed));
            key.used_ms.fetch_max(was, Ordering::Relaxed);
            let key = Arc::new(key);
            for hash in std::iter::once(key.secret).chain(key.previous.map(|(hash, _)| hash)) {
                keys.by_hash.insert(hash, Arc::clone(&key));
            }
            keys.by_id.insert(key.id.clone(), key);
        }
        keys
    }

    fn of(&self, client: &str, id: &str) -> Result<&Arc<ApiKey>> {
        let found = self.by_id.get(id).filter(|key| *key.client == *client);
        found.ok_or_else(|| {
            let excerpt: String = id.chars().take(100).collect();
            CatalogError::new(ErrorReason::NotFound, format!("Key does not exist: {excerpt}"))
        })
    }

    /// Returns the keys with uses that are not stored yet, and the times.
    pub(super) fn used(&self) -> Vec<(Arc<ApiKey>, u64)> {
        let used = self.by_id.values().map(|key| (key, key.used_ms.load(Ordering::Relaxed)));
        let new = used.filter(|(key, used)| *used > key.used_kept_ms.load(Ordering::Relaxed));
        new.map(|(key, used)| (Arc::clone(key), used)).collect()
    }
}

/// API keys of clients.
#[derive(Clone, Copy, Debug)]
pub struct ApiKeyRegistry<'a>(pub(super) &'a AccessControl);

impl ApiKeyRegistry<'_> {
    /// Returns the principal of an API key.
    pub(super) fn key_holder(self, hash: &Hash) -> Result<CatalogPrincipal> {
        let now_ms = clock::wall_ms();
        let loaded = self.0.0.loaded.read();
        let key = loaded.keys.by_hash.get(hash).filter(|it| it.is_good(hash, now_ms));
        let found = key.and_then(|key| Some((key, loaded.clients.get(&key.client)?)));
        let (key, client) = found.ok_or_else(|| {
            CatalogError::new(ErrorReason::NotAuthorized, "the API key is unknown or has expired")
        })?;
        key.used_ms.fetch_max(now_ms, Ordering::Relaxed);
        let claims = TokenClaims { key: Some(key.id.clone()), ..TokenClaims::default() };
        Ok(CatalogPrincipal { claims: Some(Arc::new(claims)), ..client.who() })
    }

    fn client(self, id: &str) -> Result<Arc<StoredClient>> {
        self.0.0.loaded.read().clients.get(id).cloned().ok_or_else(|| clients::no_such(id))
    }

    /// Creates a key of a client. The secret is returned only here.
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`; `BadRequest`
    /// if the name is invalid, the lifetime is too long, or there are too many.
    pub async fn create_key(
        self,
        who: &CatalogPrincipal,
        client: &str,
        name: &str,
        lifetime: Option<Duration>,
    ) -> Result<NewApiKey> {
        require_own(who, client)?;
        check_name(name)?;
        self.client(client)?;
        if lifetime.is_some_and(|it| it.is_zero() || it > KEY_LIFETIME_MAX) {
            let message = format!("`expires-seconds` is 1 to {}", KEY_LIFETIME_MAX.as_secs());
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        let now_ms = clock::wall_ms();
        let lifetime_ms = lifetime.map(|it| u64::try_from(it.as_millis()));
        let lifetime_ms = lifetime_ms.transpose().map_err(CatalogError::internal)?;
        let text = random::text(KEY_PREFIX, &self.0.0.generator.secret()?);
        let key = ApiKey {
            id: self.0.0.ids.next("ck_").into(),
            client: client.into(),
            name: name.into(),
            secret: hash(&text),
            previous: None,
            created_ms: now_ms,
            ends_ms: lifetime_ms.map(|it| now_ms.saturating_add(it)),
            used_ms: AtomicU64::new(0),
            used_kept_ms: AtomicU64::new(0),
        };
        let made = NewApiKey { record: key.record(), key: text };
        self.0.0.store.insert_key(key).await?;
        self.0.changed().await?;
        Ok(made)
    }

    /// Replaces a key's secret; the old one stays valid for `grace`. The lifetime of the key itself
    /// does not change.
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`; `BadRequest`
    /// if the grace period is too long.
    pub async fn rotate_key(
        self,
        who: &CatalogPrincipal,
        client: &str,
        id: &str,
        grace: Duration,
    ) -> Result<NewApiKey> {
        require_own(who, client)?;
        let record = self.0.0.loaded.read().keys.of(client, id)?.record();
        let until_ms = grace_ends(grace, clock::wall_ms())?;
        let text = random::text(KEY_PREFIX, &self.0.0.generator.secret()?);
        self.0.0.store.rotate_key(id, hash(&text), until_ms).await?;
        self.0.changed().await?;
        Ok(NewApiKey { record, key: text })
    }

    /// Removes a key. Other servers honour it for up to [`super::RELOAD_INTERVAL`].
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`.
    pub async fn delete_key(self, who: &CatalogPrincipal, client: &str, id: &str) -> Result<()> {
        require_own(who, client)?;
        let id = self.0.0.loaded.read().keys.of(client, id)?.id.to_string();
        self.0.0.store.delete_key(&id).await?;
        self.0.changed().await
    }

    /// Returns the keys of a client by their ids, which sort by creation time.
    ///
    /// # Errors
    /// `Forbidden` unless the caller is an operator or the client itself; `NotFound`.
    pub fn keys(self, who: &CatalogPrincipal, client: &str) -> Result<Vec<KeyRecord>> {
        require_own(who, client)?;
        self.client(client)?;
        let loaded = self.0.0.loaded.read();
        let own = loaded.keys.by_id.values().filter(|key| *key.client == *client);
        let mut all: Vec<KeyRecord> = own.map(|key| key.record()).collect();
        all.sort_by(|one, other| one.key_id.cmp(&other.key_id));
        Ok(all)
    }

    /// Stores the times of use of keys.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(super) async fn keep_used(self) -> Result<()> {
        let used = self.0.0.loaded.read().keys.used();
        if used.is_empty() {
            return Ok(());
        }
        let rows = used.iter().map(|(key, used_ms)| (key.id.to_string(), *used_ms)).collect();
        self.0.0.store.keep_used(rows).await?;
        for (key, used_ms) in used {
            key.used_kept_ms.fetch_max(used_ms, Ordering::Relaxed);
        }
        Ok(())
    }
}
