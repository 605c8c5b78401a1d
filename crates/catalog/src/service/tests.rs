//! The service over real stores and real files: its results, and the files it leaves.

mod commits;
mod crashes;
mod creates;
mod homes;
mod keys;
mod maintenance;
mod plain;
mod races;
mod reused_names;
mod shared;
mod tables;
mod time;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;
use node::removals::RemovalGate;
use node::sealed::Sealer;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use serde_json::{Value, json};
use testkit::{Postgres, Scratch};

use super::*;
use crate::cache::{CachedVersion, SnapshotSelection};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage::StorageSettings;
use crate::store::{Properties, RelationKind};
use crate::warehouse::Warehouse;

/// A catalog over a store, with a directory for its files.
struct Stage {
    _scratch: Arc<Scratch>,
    directory: PathBuf,
    url: StoreUrl,
    store: SqlStore,
    catalog: Catalog,
    warehouse: Arc<Warehouse>,
    who: CatalogPrincipal,
}

impl Stage {
    async fn new(url: StoreUrl, scratch: Arc<Scratch>) -> Stage {
        let directory = scratch.path().join("w");
        let mut registry = Registry::default();
        let store = SqlStore::open(StoreConfig::new(url.clone()), &mut registry).await.unwrap();
        let settings = CatalogSettings {
            warehouse: "main".to_owned(),
            root: format!("file://{}", directory.display()),
            locations: vec![format!("file://{}/extra", scratch.path().display())],
            credentials: None,
            storage: StorageSettings::default(),
            warehouse_roots: vec![format!("file://{}/made", scratch.path().display())],
            sealer: Some(Arc::new(Sealer::new(&[7; 32]))),
            cache_bytes_max: 64 << 20,
            check_files: true,
            pointer_cache: Duration::ZERO,
            undrop_seconds: 0,
            log_retention_seconds: 86_400,
            node: None,
            removals: RemovalGate::default(),
        };
        let catalog = Catalog::open(store.clone(), settings, Arc::new(OperatorsOnly)).await;
        let catalog = catalog.unwrap();
        let warehouse = catalog.default_warehouse().unwrap();
        let who = CatalogPrincipal::operator("tk_1", "someone");
        Stage { _scratch: scratch, directory, url, store, catalog, warehouse, who }
    }

    /// Opens the same store and directory in another process, or in the same one after a crash.
    async fn again(&self) -> Stage {
        Stage::new(self.url.clone(), Arc::clone(&self._scratch)).await
    }

    fn call(&self) -> ChangeCall<'_> {
        ChangeCall::of(&self.who)
    }

    async fn namespace(&self, levels: &[&str]) -> NamespaceIdent {
        let ident = NamespaceIdent::new(levels).unwrap();
        let properties = Properties::new();
        let (call, warehouse) = (self.call(), &self.warehouse);
        self.catalog
            .0
            .namespaces
            .create_namespace(&call, warehouse, &ident, properties)
            .await
            .unwrap();
        ident
    }

    /// Creates a table by a commit that finishes a staged one.
    async fn table(&self, ident: &TableIdent) -> Arc<CachedVersion> {
        self.commit(ident, &creation(&json!({}))).await.unwrap()
    }

    async fn commit(&self, ident: &TableIdent, body: &Value) -> Result<Arc<CachedVersion>> {
        let body = RawJson::of(body).unwrap();
        self.catalog.0.relations.commit_table(&self.call(), &self.warehouse, ident, &body).await
    }

    async fn load(&self, ident: &TableIdent) -> Result<Arc<CachedVersion>> {
        self.catalog.0.relations.load(&self.who, &self.warehouse, RelationKind::Table, ident).await
    }

    async fn drop(&self, ident: &TableIdent, purge: bool) -> Result<()> {
        self.catalog.0.relations.drop_table(&self.call(), &self.warehouse, ident, purge).await
    }

    /// Returns the local path of a location.
    fn path(&self, location: &str) -> PathBuf {
        let path = Path::new(location.strip_prefix("file://").unwrap()).to_owned();
        assert!(path.starts_with(self._scratch.path()), "{location}");
        path
    }
}

fn ident(levels: &[&str], name: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new(levels).unwrap(), name).unwrap()
}

/// Returns a commit that creates a table.
fn creation(properties: &Value) -> Value {
    let schema = json!({
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "x", "required": false, "type": "long"}],
    });
    json!({
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": schema, "last-column-id": 1},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": properties},
        ],
    })
}

fn setting(key: &str, value: &str) -> Value {
    json!({
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {key: value}}],
    })
}

fn location(entry: &CachedVersion) -> &str {
    entry.location().unwrap()
}

fn property(entry: &CachedVersion, key: &str) -> Option<String> {
    entry.table().unwrap().properties.get(key).map(|it| it.into_owned())
}

fn version(entry: &CachedVersion) -> u64 {
    entry.pointer.as_ref().unwrap().version
}

fn refusal<T>(result: Result<T>) -> (ErrorReason, String) {
    let Err(CatalogError { kind, message, .. }) = result else { panic!("it was done") };
    (kind, message)
}

async fn sqlite() -> Stage {
    let scratch = Arc::new(Scratch::new());
    Stage::new(StoreUrl::Sqlite(scratch.path().join("db")), scratch).await
}

/// Checks a claim on a store of each engine.
async fn check(claim: impl AsyncFn(&Stage)) {
    let stage = sqlite().await;
    claim(&stage).await;
    stage.store.close().await;
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let stage = Stage::new(url, Arc::new(Scratch::new())).await;
    claim(&stage).await;
    stage.store.close().await;
}

#[tokio::test]
async fn lists_come_in_pages_when_that_is_asked_for() {
    check(async |stage| {
        for name in ["a", "b", "c"] {
            stage.namespace(&[name]).await;
        }
        for (token, size, expected, is_more) in [
            (None, None, 3, false),
            (None, Some(1), 3, false),
            (Some(""), Some(2), 2, true),
            (Some(""), Some(3), 3, false),
            (Some(""), None, 3, false),
            (Some(""), Some(0), 1, true),
        ] {
            let page = PageRequest { token: token.map(str::to_owned), size };
            let (who, warehouse) = (&stage.who, &stage.warehouse);
            let listing = stage
                .catalog
                .namespaces()
                .list_namespaces(who, warehouse, None, &page)
                .await
                .unwrap();
            assert_eq!((listing.items.len(), listing.next.is_some()), (expected, is_more));
            if let Some(next) = listing.next {
                let page = PageRequest { token: Some(next), size: None };
                let rest =
                    stage.catalog.namespaces().list_namespaces(who, warehouse, None, &page).await;
                let rest = rest.unwrap();
                assert_eq!((rest.items.len(), rest.next), (3 - expected, None));
            }
        }
        let page = PageRequest { token: Some("%".to_owned()), size: None };
        let list = stage
            .catalog
            .namespaces()
            .list_namespaces(&stage.who, &stage.warehouse, None, &page)
            .await;
        assert_eq!(refusal(list).0, ErrorReason::BadRequest);
    })
    .await;
}

#[tokio::test]
async fn a_namespace_keeps_to_the_warehouse_and_to_what_was_asked() {
    check(async |stage| {
        let ident = stage.namespace(&["a"]).await;
        let (catalog, warehouse) = (&stage.catalog, &stage.warehouse);
        let of = |key: &str, value: &str| Properties::from([(key.to_owned(), value.to_owned())]);
        for (removals, updates, expected) in [
            (vec![], of("location", "file:///etc"), ErrorReason::Forbidden),
            (vec![], of("location", "../x"), ErrorReason::BadRequest),
            (vec!["k".to_owned()], of("k", "v"), ErrorReason::UnprocessableEntity),
            (vec![], of("k", &"x".repeat(PROPERTIES_BYTES_MAX)), ErrorReason::BadRequest),
        ] {
            let call = stage.call();
            let done = catalog
                .0
                .namespaces
                .update_namespace(&call, warehouse, &ident, removals, updates)
                .await;
            assert_eq!(refusal(done).0, expected);
        }
        let base = format!("{}/mine", warehouse.root());
        let updates = of("location", &base);
        let call = stage.call();
        catalog
            .0
            .namespaces
            .update_namespace(&call, warehouse, &ident, vec![], updates)
            .await
            .unwrap();
        let entry = stage.table(&super::tests::ident(&["a"], "t")).await;
        assert!(location(&entry).starts_with(&format!("{base}/t-")), "{}", location(&entry));
    })
    .await;
}

#[tokio::test]
async fn who_has_no_right_does_nothing() {
    let stage = sqlite().await;
    let (ns, t) = (stage.namespace(&["a"]).await, ident(&["a"], "t"));
    stage.table(&t).await;
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    let (catalog, warehouse, call) = (&stage.catalog, &stage.warehouse, &ChangeCall::of(&who));
    let body = RawJson::of(&setting("k", "v")).unwrap();
    let transaction = json!({"table-changes": [{
        "identifier": {"namespace": ["a"], "name": "t"}, "requirements": [], "updates": [],
    }]});
    let transaction = RawJson::of(&transaction).unwrap();
    let register = json!({"name": "r", "metadata-location": "file:///x"});
    let register = RawJson::of(&register).unwrap();
    let (page, none) = (PageRequest::default(), Properties::new());
    let view = RelationKind::View;
    for refused in [
        catalog.0.namespaces.list_namespaces(&who, warehouse, None, &page).await.map(drop),
        catalog.0.namespaces.create_namespace(call, warehouse, &ns, none.clone()).await.map(drop),
        catalog.0.namespaces.load_namespace(&who, warehouse, &ns).await.map(drop),
        catalog.0.namespaces.drop_namespace(call, warehouse, &ns).await,
        catalog.0.namespaces.update_namespace(call, warehouse, &ns, vec![], none).await.map(drop),
        catalog.0.relations.list(&who, warehouse, RelationKind::Table, &ns, &page).await.map(drop),
        catalog.0.relations.list(&who, warehouse, view, &ns, &page).await.map(drop),
        catalog.0.relations.load(&who, warehouse, RelationKind::Table, &t).await.map(drop),
        catalog.0.relations.table_exists(&who, warehouse, &t).await,
        catalog.0.relations.report_metrics(&who, warehouse, &t, &body).await,
        catalog.0.relations.commit_table(call, warehouse, &t, &body).await.map(drop),
        catalog.0.relations.drop_table(call, warehouse, &t, false).await,
        catalog
            .0
            .relations
            .rename(call, warehouse, RelationKind::Table, &t, &ident(&["a"], "u"))
            .await,
        catalog.0.relations.rename(call, warehouse, view, &t, &ident(&["a"], "u")).await,
        catalog.0.relations.register_table(call, warehouse, &ns, &register).await.map(drop),
        catalog.0.relations.unregister_table(call, warehouse, &t).await.map(drop),
        catalog.0.relations.commit_transaction(call, warehouse, &transaction).await,
    ] {
        assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    }
    assert_eq!(version(&stage.load(&t).await.unwrap()), 1);
}
