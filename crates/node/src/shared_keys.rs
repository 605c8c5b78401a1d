//! Keys that must be the same on all servers of a store.
//!
//! A server with a different key fails late and obscurely: it cannot open a secret that another one
//! has sealed, and cannot verify the grants of a job that another one has accepted. So the store
//! has a mark of each key, which reveals nothing of the key itself, and a server whose keys have
//! other marks does not start.

use ring::hmac;

use crate::hex;
use crate::store::{MigrationStep, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

/// Service that the table belongs to.
const SERVICE: &str = "keys";

const MIGRATIONS: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE cove_key_marks (
        name TEXT NOT NULL PRIMARY KEY,
        mark TEXT NOT NULL,
        set_ms BIGINT NOT NULL
    )",
)];

/// Prefix of the input of marks.
const MARK_OF: &str = "cove key mark 1: ";

/// Mark of a key: equal for equal keys of one name, and of no use for guessing the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMark {
    name: &'static str,
    mark: String,
}

impl KeyMark {
    /// Computes the mark of the key of the setting `name`.
    #[must_use]
    pub fn new(name: &'static str, key: &[u8; 32]) -> KeyMark {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&key, format!("{MARK_OF}{name}").as_bytes());
        KeyMark { name, mark: hex::encode(tag.as_ref()) }
    }
}

/// Treatment of stored marks that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// Refuse to start.
    Compare,
    /// Replace them: the keys were changed on purpose.
    Replace,
}

/// Reason to refuse a server's keys.
#[derive(Debug, thiserror::Error)]
pub enum SharedKeyError {
    /// Other servers on the store have another key.
    #[error(
        "{0}: this server's key is not the one that servers on this store have; give it theirs, or, \
         if the key was changed on purpose, start one server with --replace-keys"
    )]
    Differs(&'static str),
    /// The store cannot be used.
    #[error("compare keys with those of the store")]
    Store(#[from] SqlStoreError),
}

/// Compares the keys of this server with those of the other servers on the store. The first server
/// determines them.
///
/// # Errors
/// If one differs, or the store cannot be used.
pub async fn check(
    store: &SqlStore,
    marks: Vec<KeyMark>,
    mode: KeyCheck,
) -> Result<(), SharedKeyError> {
    store.migrate(SERVICE, MIGRATIONS).await?;
    let now_ms = SqlValue::from(i64::try_from(store.now_ms()).unwrap_or(i64::MAX));
    let differs = store.transact_idempotent("keys.check", move |transaction| {
        for KeyMark { name, mark } in &marks {
            if mode == KeyCheck::Replace {
                put(transaction, name, mark, &now_ms)?;
                continue;
            }
            let sql = "SELECT mark FROM cove_key_marks WHERE name = $1";
            match transaction.query_one(sql, &[(*name).into()])? {
                None => put(transaction, name, mark, &now_ms)?,
                Some(row) if row.get::<String>(0)? == *mark => {}
                Some(_) => return Ok(Some(*name)),
            }
        }
        Ok(None)
    });
    match differs.await? {
        None => Ok(()),
        Some(name) => Err(SharedKeyError::Differs(name)),
    }
}

fn put(
    transaction: &mut dyn StoreTransaction,
    name: &str,
    mark: &str,
    now_ms: &SqlValue,
) -> Result<(), SqlStoreError> {
    let sql = "INSERT INTO cove_key_marks (name, mark, set_ms) VALUES ($1, $2, $3) \
        ON CONFLICT (name) DO UPDATE SET mark = excluded.mark, set_ms = excluded.set_ms";
    transaction.execute(sql, &[name.into(), mark.into(), now_ms.clone()]).map(drop)
}

#[cfg(test)]
mod tests {
    use testkit::{Postgres, Scratch};

    use super::*;
    use crate::store::{StoreConfig, StoreUrl};
    use crate::telemetry::Registry;

    async fn check_on(url: StoreUrl) {
        let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
        let marks = |secrets: u8, webhooks: u8| {
            vec![
                KeyMark::new("secrets_key", &[secrets; 32]),
                KeyMark::new("webhook_key", &[webhooks; 32]),
            ]
        };
        let compare =
            |secrets, webhooks| check(&store, marks(secrets, webhooks), KeyCheck::Compare);
        compare(1, 2).await.unwrap();
        compare(1, 2).await.unwrap();
        for (secrets, webhooks, name) in [(3, 2, "secrets_key"), (1, 1, "webhook_key")] {
            let error = compare(secrets, webhooks).await.unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains("--replace-keys"), "{error}");
        }
        // A refused comparison has changed nothing.
        compare(1, 2).await.unwrap();
        check(&store, marks(1, 5), KeyCheck::Replace).await.unwrap();
        compare(1, 5).await.unwrap();
        assert!(compare(1, 2).await.is_err());
    }

    #[tokio::test]
    async fn servers_on_one_store_have_the_same_keys() {
        let scratch = Scratch::new();
        check_on(StoreUrl::Sqlite(scratch.path().join("db"))).await;
        let server = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
        check_on(StoreUrl::Postgres(server.database())).await;
    }

    #[test]
    fn a_mark_is_of_a_key_and_its_use() {
        let mark = KeyMark::new("secrets_key", &[7; 32]);
        assert_eq!(mark, KeyMark::new("secrets_key", &[7; 32]));
        assert_ne!(mark.mark, KeyMark::new("webhook_key", &[7; 32]).mark);
        assert_ne!(mark.mark, KeyMark::new("secrets_key", &[8; 32]).mark);
        assert!(!mark.mark.contains(&hex::encode(&[7; 32])));
    }
}
