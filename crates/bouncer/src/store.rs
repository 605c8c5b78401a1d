//! Storage of tenants that were created by the interface: the only SQL of this crate against Cove's
//! own store.
//!
//! A row is a definition as JSON in which every password is sealed for its tenant and its place:
//! copied to another place it cannot be opened. A counter of changes lets servers that share a
//! store detect those of others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::TenantSpec;
use node::sealed::Sealer;
use node::store::{MigrationStep, SqlRow, SqlStore, SqlStoreError, SqlValue, StoreDialect};

use crate::error::BouncerError;
use crate::service::{TenantOrder, TenantOrders};
use crate::tenants::{TenantDefinition, WorkAdmission, passwords};

const SERVICE: &str = "bouncer";

const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE bouncer_tenants (
            name TEXT NOT NULL PRIMARY KEY,
            spec BYTEA NOT NULL,
            created_ms BIGINT NOT NULL,
            updated_ms BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE bouncer_changes (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        );
        INSERT INTO bouncer_changes (id, version) VALUES (1, 0)",
    ),
    MigrationStep::Same(
        "CREATE TABLE bouncer_orders (
            name TEXT NOT NULL PRIMARY KEY,
            admission BIGINT NOT NULL,
            reconnects BIGINT NOT NULL,
            kills BIGINT NOT NULL
        )",
    ),
];

const CHANGED: &str = "UPDATE bouncer_changes SET version = version + 1 WHERE id = 1";
const VERSION: &str = "SELECT version FROM bouncer_changes WHERE id = 1";

/// All definitions at one time.
#[derive(Debug, Default)]
pub(crate) struct StoredDefinitions {
    /// Number of changes.
    pub(crate) version: u64,
    /// By name.
    pub(crate) definitions: Vec<TenantDefinition>,
    /// Orders for tenants, by their names.
    pub(crate) orders: BTreeMap<String, TenantOrders>,
}

/// Stored tenants. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TenantStore {
    store: SqlStore,
    sealer: Arc<Sealer>,
}

impl fmt::Debug for TenantStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantStore").field("store", &self.store).finish_non_exhaustive()
    }
}

impl TenantStore {
    /// Opens the store and migrates its tables.
    pub(crate) async fn open(
        store: SqlStore,
        sealer: Sealer,
    ) -> Result<TenantStore, SqlStoreError> {
        store.migrate(SERVICE, MIGRATIONS).await?;
        Ok(TenantStore { store, sealer: Arc::new(sealer) })
    }

    /// Returns whether other servers may change it.
    pub(crate) fn is_shared(&self) -> bool {
        match self.store.dialect() {
            StoreDialect::Sqlite => false,
            StoreDialect::Postgres => true,
        }
    }

    /// Returns the number of changes by all servers, as of at most `age_max` ago.
    pub(crate) async fn version(&self, age_max: Duration) -> Result<u64, BouncerError> {
        Ok(self.store.counter(VERSION, age_max).await?.unwrap_or_default())
    }

    /// Returns all definitions.
    pub(crate) async fn load(&self) -> Result<StoredDefinitions, BouncerError> {
        let read = self.store.read("tenants.load", |it| {
            let version = it.query_one(VERSION, &[])?.map_or(Ok(0), |row| row.get::<u64>(0))?;
            let rows = it.query("SELECT name, spec FROM bouncer_tenants ORDER BY name", &[])?;
            let rows = rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?)));
            let rows = rows.collect::<Result<Vec<(String, Vec<u8>)>, SqlStoreError>>()?;
            let sql = "SELECT name, admission, reconnects, kills FROM bouncer_orders";
            let orders = it.query(sql, &[])?;
            let orders = orders.iter().map(|row| Ok((row.get(0)?, orders_of(row, 1)?)));
            Ok((version, rows, orders.collect::<Result<_, SqlStoreError>>()?))
        });
        let (version, rows, orders) = read.await?;
        let definitions = rows.into_iter().map(|(name, spec)| self.opened(&name, &spec));
        let definitions = definitions.collect::<Result<_, _>>()?;
        Ok(StoredDefinitions { version, definitions, orders })
    }

    /// Stores an order for a tenant, and returns all of its orders.
    pub(crate) async fn order(
        &self,
        name: &str,
        order: TenantOrder,
    ) -> Result<TenantOrders, BouncerError> {
        let name = SqlValue::from(name);
        let written = self.store.transact("tenants.order", move |it| {
            let (column, value) = match (order.admission(), order) {
                (Some(admission), _) => ("admission", i64::from(admission as u8)),
                (None, TenantOrder::Kill) => ("kills", 1),
                (None, _) => ("reconnects", 1),
            };
            it.execute(
                "INSERT INTO bouncer_orders (name, admission, reconnects, kills) \
                VALUES ($1, 0, 0, 0) ON CONFLICT (name) DO NOTHING",
                std::slice::from_ref(&name),
            )?;
            let new = match order.admission() {
                Some(_) => "$2".to_owned(),
                None => format!("{column} + $2"),
            };
            let sql = format!("UPDATE bouncer_orders SET {column} = {new} WHERE name = $1");
            it.execute(&sql, &[name.clone(), SqlValue::from(value)])?;
            changed(it)?;
            let sql = "SELECT admission, reconnects, kills FROM bouncer_orders WHERE name = $1";
            let row = it.query_one(sql, std::slice::from_ref(&name))?;
            orders_of(&row.ok_or(SqlStoreError::Spoiled)?, 0)
        });
        Ok(written.await?)
    }

    /// Stores a new definition.
    ///
    /// # Errors
    /// `Conflict` if one of this name exists.
    pub(crate) async fn insert(&self, spec: &TenantSpec, now_ms: u64) -> Result<u64, BouncerError> {
        let parameters = self.row(spec, now_ms)?;
        let name = spec.name.clone();
        let written = self.store.transact("tenants.insert", move |it| {
            let sql = "INSERT INTO bouncer_tenants (name, spec, created_ms, updated_ms) \
                VALUES ($1, $2, $3, $3) ON CONFLICT (name) DO NOTHING";
            if it.execute(sql, &parameters)? == 0 {
                let message = format!("there is a tenant `{name}` already");
                return Err(SqlStoreError::refuse(BouncerError::Conflict(message)));
            }
            changed(it)
        });
        Ok(written.await?)
    }

    /// Replaces a definition.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub(crate) async fn update(&self, spec: &TenantSpec, now_ms: u64) -> Result<u64, BouncerError> {
        let parameters = self.row(spec, now_ms)?;
        let written = self.store.transact("tenants.update", move |it| {
            let sql = "UPDATE bouncer_tenants SET spec = $2, updated_ms = $3 WHERE name = $1";
            if it.execute(sql, &parameters)? == 0 {
                return Err(SqlStoreError::refuse(BouncerError::NotFound));
            }
            changed(it)
        });
        Ok(written.await?)
    }

    /// Removes a definition.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub(crate) async fn delete(&self, name: &str) -> Result<u64, BouncerError> {
        let parameters = [SqlValue::from(name)];
        let written = self.store.transact("tenants.delete", move |it| {
            if it.execute("DELETE FROM bouncer_tenants WHERE name = $1", &parameters)? == 0 {
                return Err(SqlStoreError::refuse(BouncerError::NotFound));
            }
            it.execute("DELETE FROM bouncer_orders WHERE name = $1", &parameters)?;
            changed(it)
        });
        Ok(written.await?)
    }

    /// Ends the threads of the store.
    #[cfg(test)]
    pub(crate) async fn close(&self) {
        self.store.close().await;
    }

    fn row(&self, spec: &TenantSpec, now_ms: u64) -> Result<[SqlValue; 3], BouncerError> {
        let mut sealed = spec.clone();
        for (place, text) in passwords(&mut sealed) {
            *text = self.sealer.seal_text(text, &about(&spec.name, &place))?;
        }
        let json = serde_json::to_vec(&sealed).map_err(BouncerError::internal)?;
        let now_ms = i64::try_from(now_ms).map_err(BouncerError::internal)?;
        Ok([SqlValue::from(&spec.name), SqlValue::from(json), SqlValue::from(now_ms)])
    }

    fn opened(&self, name: &str, json: &[u8]) -> Result<TenantDefinition, BouncerError> {
        let mut spec: TenantSpec = serde_json::from_slice(json).map_err(BouncerError::internal)?;
        for (place, text) in passwords(&mut spec) {
            let plain = self.sealer.open_text(text, &about(name, &place))?;
            let plain =
                plain.expose_text().ok_or_else(|| BouncerError::internal("a password is no text"));
            *text = plain?.to_owned();
        }
        Ok(TenantDefinition::of_store(spec))
    }
}

fn changed(it: &mut dyn node::store::StoreTransaction) -> Result<u64, SqlStoreError> {
    it.execute(CHANGED, &[])?;
    it.query_one(VERSION, &[])?.map_or(Ok(0), |row| row.get(0))
}

/// Reads orders from three columns.
fn orders_of(row: &SqlRow, first: usize) -> Result<TenantOrders, SqlStoreError> {
    Ok(TenantOrders {
        admission: WorkAdmission::of_number(row.get(first)?),
        reconnects: row.get(first + 1)?,
        kills: row.get(first + 2)?,
    })
}

/// Returns the context for which a password is sealed: no two places have the same one.
fn about(tenant: &str, place: &str) -> String {
    format!("bouncer/{}/{tenant}/{place}", tenant.len())
}

#[cfg(test)]
mod tests {
    use api::TenantUserSpec;
    use node::store::{StoreConfig, StoreUrl};
    use node::telemetry::Registry;
    use testkit::Scratch;

    use super::*;

    async fn opened(scratch: &Scratch) -> TenantStore {
        let url = StoreUrl::Sqlite(scratch.path().join("store.db"));
        let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
        TenantStore::open(store, Sealer::new(&[7; 32])).await.unwrap()
    }

    fn spec(name: &str) -> TenantSpec {
        let user = TenantUserSpec {
            name: "app".to_owned(),
            password: Some("very secret".to_owned()),
            ..TenantUserSpec::default()
        };
        let server = "db:5432".to_owned();
        TenantSpec { name: name.to_owned(), server, users: vec![user], ..TenantSpec::default() }
    }

    #[tokio::test]
    async fn what_was_kept_comes_back_and_shows_no_password() {
        let scratch = Scratch::new();
        let store = opened(&scratch).await;
        assert_eq!(store.version(Duration::ZERO).await.unwrap(), 0);
        assert_eq!(store.insert(&spec("b"), 5).await.unwrap(), 1);
        store.insert(&spec("a"), 6).await.unwrap();
        let changed = TenantSpec { weight: Some(3), ..spec("b") };
        assert_eq!(store.update(&changed, 7).await.unwrap(), 3);
        let kept = store.load().await.unwrap();
        let specs: Vec<_> = kept.definitions.iter().map(|it| it.spec.clone()).collect();
        assert_eq!((kept.version, specs), (3, vec![spec("a"), changed]));

        assert!(matches!(store.insert(&spec("a"), 8).await, Err(BouncerError::Conflict(_))));
        assert!(matches!(store.update(&spec("c"), 8).await, Err(BouncerError::NotFound)));
        assert!(matches!(store.delete("c").await, Err(BouncerError::NotFound)));
        assert_eq!(store.version(Duration::ZERO).await.unwrap(), 3, "nothing changed");
        assert_eq!(store.delete("a").await.unwrap(), 4);

        let row = store.row(&spec("b"), 9).unwrap();
        assert!(!format!("{row:?}").contains("very secret"));
        let SqlValue::Blob(json) = &row[1] else { panic!("{row:?}") };
        assert!(store.opened("b", json).is_ok());
        assert!(store.opened("a", json).is_err(), "it was sealed for another tenant");
        store.store.close().await;
    }
}
