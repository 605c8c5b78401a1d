//! Persistent storage of the server: the store, the queue, the webhook key.

pub(crate) mod objects;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use executions::JobsConfig;
use executions::queue::JobQueue;
use executions::queue::redis::{RedisConfig, RedisQueue};
use executions::queue::sql::SqlQueue;
use node::auth::TokenRegistry;
use node::clock::{self, IdGenerator};
use node::data_dir::{DataDir, write_atomic};
use node::hex;
use node::http::IdempotencyKeys;
use node::sealed::Sealer;
use node::shared_keys::{self, KeyCheck, KeyMark};
use node::store::{SqlStore, StoreConfig, StoreDialect, StoreUrl};
use node::task;
use node::telemetry::Registry;

use crate::config::{self, CoveConfig, Environment};

/// Settings of keys that servers on one store share.
const WEBHOOK_KEY: &str = "executions.jobs.webhook_key";
const SECRETS_KEY: &str = "secrets_key";
/// Purpose of the derived key whose mark in the store identifies the secrets key.
const MARK_PURPOSE: &str = "mark in the store";

/// Embedded store, in the data directory.
const STORE_FILE: &str = "cove.sqlite";
/// File of the webhook key in hexadecimal digits, readable by the owner of the data directory.
pub(crate) const WEBHOOK_KEY_FILE: &str = "webhook.key";

/// Time limit of the last writes when the server stops.
const STORE_END_MAX: Duration = Duration::from_secs(10);

/// Runs the last writes to the store at the shutdown, with a time limit: a store that does not
/// respond would block the server forever.
pub(crate) async fn finish(writing: impl Future<Output = ()>) {
    if tokio::time::timeout(STORE_END_MAX, writing).await.is_err() {
        tracing::error!(
            "the store did not respond during the shutdown; unwritten changes are lost"
        );
    }
}

/// Settings of the storage, before anything is opened.
pub(crate) struct ServerStorage {
    pub(crate) store: StoreConfig,
    pub(crate) queue: QueuePlace,
    pub(crate) webhook_key: [u8; 32],
}

/// Back end of asynchronous executions.
pub(crate) enum QueuePlace {
    /// In the store.
    Store,
    /// In a Redis server at this URL, which may contain a password.
    Redis(String),
}

impl ServerStorage {
    /// Resolves the configuration's references.
    pub(crate) fn new(
        config: &CoveConfig,
        environment: &Environment,
        data_dir: &DataDir,
    ) -> Result<ServerStorage> {
        let store = store_config(config, environment, data_dir.path())?;
        let jobs = &config.executions.jobs;
        let queue = match &jobs.redis {
            Some(url) => {
                QueuePlace::Redis(config::resolve("executions.jobs.redis", url, environment)?)
            }
            None => QueuePlace::Store,
        };
        let webhook_key = webhook_key(config, environment, data_dir.path())?;
        Ok(ServerStorage { store, queue, webhook_key })
    }
}

impl QueuePlace {
    /// Opens the queue.
    pub(crate) async fn open(
        self,
        store: &SqlStore,
        jobs: &JobsConfig,
    ) -> Result<Arc<dyn JobQueue>> {
        match self {
            QueuePlace::Store => {
                let queue = SqlQueue::open(store.clone(), jobs.queue(), clock::wall_ms()).await;
                Ok(Arc::new(queue.context("failed to open the queue")?))
            }
            QueuePlace::Redis(url) => {
                let config = RedisConfig {
                    url,
                    prefix: jobs.redis_prefix.clone(),
                    name: jobs.redis_queue.clone(),
                    tenant: jobs.redis_tenant.clone(),
                };
                let queue = RedisQueue::open(config, jobs.queue()).await;
                Ok(Arc::new(queue.context("failed to open the queue in Redis")?))
            }
        }
    }
}

/// Compares the keys of this server with those of others on the store. A server without jobs has no
/// webhook key.
pub(crate) async fn check_keys(
    store: &SqlStore,
    sealer: &Sealer,
    webhook_key: Option<&[u8; 32]>,
    mode: KeyCheck,
) -> Result<()> {
    let secrets = KeyMark::new(SECRETS_KEY, &sealer.derived_key(MARK_PURPOSE));
    let webhooks = webhook_key.map(|key| KeyMark::new(WEBHOOK_KEY, key));
    Ok(shared_keys::check(store, [Some(secrets), webhooks].into_iter().flatten().collect(), mode)
        .await?)
}

/// Opens the idempotency keys of client requests.
pub(crate) async fn idempotency_keys(store: &SqlStore, sealer: &Sealer) -> Result<IdempotencyKeys> {
    let ids = IdGenerator::new().context("failed to seed the id generator")?;
    Ok(IdempotencyKeys::open(store.clone(), sealer, &ids).await?)
}

/// Returns the location and the durability of the store.
pub(crate) fn store_config(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<StoreConfig> {
    let url = match &config.store.url {
        Some(url) => config::resolve("store.url", url, environment)?.parse()?,
        None => StoreUrl::Sqlite(data_dir.join(STORE_FILE)),
    };
    Ok(StoreConfig { durability: config.store.durability, ..StoreConfig::new(url) })
}

/// Returns the tokens of the server, which servers on a shared store have in common. Creates the
/// first one if there has been none.
pub(crate) async fn tokens(data_dir: &Path, store: &SqlStore) -> Result<TokenRegistry> {
    let tokens = match store.dialect() {
        StoreDialect::Sqlite => TokenRegistry::open(data_dir),
        StoreDialect::Postgres => TokenRegistry::open_shared(data_dir, store).await,
    };
    let tokens = tokens.context("failed to read the API tokens")?;
    let count = tokens.take_over_file().await.context("failed to move the tokens to the store")?;
    if count > 0 {
        tracing::info!(count, "moved the tokens of the data directory to the store");
    }
    let first = tokens.clone();
    task::blocking(move || first.ensure_first())
        .await
        .context("failed to make the first API token")?
        .context("failed to make the first API token")?;
    Ok(tokens)
}

/// Opens the store of a server.
pub(crate) async fn open(config: StoreConfig, registry: &mut Registry) -> Result<SqlStore> {
    SqlStore::open(config, registry).await.context("failed to open the store")
}

/// Returns the tokens of a server that also accepts those of other issuers and of its console.
pub(crate) async fn tokens_of_issuers(
    data_dir: &Path,
    store: &SqlStore,
    config: &CoveConfig,
    sealer: &Sealer,
) -> Result<TokenRegistry> {
    let tokens = tokens(data_dir, store).await?;
    tokens.trust(config.auth.issuers.clone()).context("failed to set up issuers")?;
    if config.console.enabled {
        tokens.open_console(store, sealer).await.context("failed to set up the console")?;
    }
    Ok(tokens)
}

/// Returns the key from which webhook keys are derived; creates it if it is missing.
pub(crate) fn webhook_key(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<[u8; 32]> {
    let Some(text) = &config.executions.jobs.webhook_key else { return own_key(data_dir) };
    let text = config::resolve(WEBHOOK_KEY, text, environment)?;
    key(&text).with_context(|| format!("{WEBHOOK_KEY} has not 64 hexadecimal digits"))
}

/// Stores a webhook key in a data directory.
pub(crate) fn keep_webhook_key(data_dir: &Path, key: &[u8; 32]) -> Result<()> {
    Ok(write_atomic(&data_dir.join(WEBHOOK_KEY_FILE), hex::encode(key).as_bytes())?)
}

/// Returns this data directory's key; creates it if it is missing.
fn own_key(data_dir: &Path) -> Result<[u8; 32]> {
    let path = data_dir.join(WEBHOOK_KEY_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => key(&text)
            .with_context(|| format!("`{}` does not have 64 hexadecimal digits", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = node::auth::random_key().context("failed to make the key of webhooks")?;
            keep_webhook_key(data_dir, &made)?;
            Ok(made)
        }
        Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
    }
}

fn key(text: &str) -> Option<[u8; 32]> {
    hex::decode_32(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(key(&format!(" {text}\n")).unwrap()[..4], [0, 255, 0, 255]);
        for wrong in ["", "00", &"0".repeat(63), &"0".repeat(65), &"xy".repeat(32), &"ä".repeat(32)]
        {
            assert!(key(wrong).is_none(), "{wrong}");
        }
    }
}
