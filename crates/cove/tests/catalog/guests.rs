//! Guests of the catalog, which connect through their own socket: PyIceberg works with an address
//! only, on files in a bucket whose key it never sees.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use catalog::access::{AccessControl, AccessSettings};
use catalog::guest::{NewGuest, SandboxAccess, SandboxRequestObserver, SandboxRequestRecord};
use catalog::service::{Catalog, CatalogPrincipal, CatalogSettings, ChangeCall};
use catalog::storage::StorageSettings;
use iceberg::json::RawJson;
use node::auth::TokenRegistry;
use node::objects::SigningCredentials;
use node::removals::RemovalGate;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use parking_lot::Mutex;
use serde_json::json;
use testkit::{S3, Scratch};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::shared::{COMPAT, interpreter_with};

/// Observed requests of the guests.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl SandboxRequestObserver for Log {
    fn observe(&self, seen: &SandboxRequestRecord<'_>) {
        let SandboxRequestRecord { text, status, error, .. } = seen;
        self.0.lock().push(format!("{text} {status} {}", error.unwrap_or_default()));
    }
}

/// Opens a catalog whose warehouse is in a bucket, with a table that the guests may not read.
/// Returns the location of a file of that table.
async fn open(store: &S3, scratch: &Scratch) -> (Catalog, AccessControl, String) {
    let mut registry = Registry::default();
    let url = StoreUrl::Sqlite(scratch.path().join("db"));
    let kept = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
    let tokens = TokenRegistry::open(scratch.path()).unwrap();
    let access =
        AccessControl::open(kept.clone(), tokens, AccessSettings::default()).await.unwrap();
    let credentials = SigningCredentials {
        access_key_id: store.access_key_id.clone(),
        secret_access_key: store.secret_access_key.clone(),
        session_token: None,
    };
    let settings = CatalogSettings {
        warehouse: "lake".to_owned(),
        root: store.url("w"),
        locations: Vec::new(),
        credentials: Some(credentials),
        storage: StorageSettings::default(),
        warehouse_roots: Vec::new(),
        sealer: None,
        cache_bytes_max: 16 << 20,
        check_files: true,
        pointer_cache: Duration::ZERO,
        undrop_seconds: 0,
        log_retention_seconds: 86_400,
        node: None,
        removals: RemovalGate::default(),
    };
    let catalog = Catalog::open(kept, settings, Arc::new(access.clone())).await.unwrap();
    let (root, warehouse) =
        (CatalogPrincipal::operator("root", "root"), catalog.default_warehouse().unwrap());
    for name in ["n", "other"] {
        let ident = iceberg::ident::NamespaceIdent::new([name]).unwrap();
        let none = catalog::store::Properties::new();
        catalog
            .namespaces()
            .create_namespace(&ChangeCall::of(&root), &warehouse, &ident, none)
            .await
            .unwrap();
    }
    let table = json!({"name": "t", "schema": {"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"}]}});
    let other = iceberg::ident::NamespaceIdent::new(["other"]).unwrap();
    let body = RawJson::of(&table).unwrap();
    let made = catalog
        .relations()
        .create_table(&ChangeCall::of(&root), &warehouse, &other, &body)
        .await
        .unwrap();
    let theirs = made.pointer.as_ref().unwrap().location.clone();
    (catalog, access, theirs)
}

#[test]
fn pyiceberg_works_with_an_address_and_nothing_else() {
    let (store, scratch, log) = (S3::start(), Scratch::new(), Arc::new(Log::default()));
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let (catalog, access, theirs) = runtime.block_on(open(&store, &scratch));
    let guests = SandboxAccess::new(catalog, access, catalog::http::SEPARATOR_DEFAULT);
    let [reader, writer] = [false, true].map(|writes| {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let door = guests.open(NewGuest {
            tenant: "acme".into(),
            warehouse: "lake".to_owned(),
            namespaces: vec!["n".to_owned()],
            writes,
            address: address.clone(),
            watch: Arc::clone(&log) as Arc<dyn SandboxRequestObserver>,
            fence: node::fence::EffectFence::open(),
        });
        let door = door.unwrap();
        runtime.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn(Arc::clone(&door).serve(stream));
            }
        });
        address
    });
    let python = interpreter_with("iceberg/s3/requirements.txt", "compat-iceberg-s3");
    let output = Command::new(python)
        .arg(Path::new(COMPAT).join("iceberg/guest.py"))
        .env("READER", reader)
        .env("WRITER", writer)
        .env("THEIRS", theirs)
        .env("SECRET", &store.secret_access_key)
        // Without the user's own configuration.
        .env("PYICEBERG_HOME", scratch.path())
        .env("HOME", scratch.path())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let log = log.0.lock();
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}\n{err}\n{log:#?}");
    for seen in ["POST /v1/lake/namespaces/n/tables/t 200", "PUT /cove-objects/w/n/", "GET /cove-"]
    {
        assert!(log.iter().any(|it| it.starts_with(seen)), "{seen} in {log:#?}");
    }
    assert!(!log.iter().any(|it| it.contains(&store.secret_access_key)));
}
