//! The routes behind a real socket and the shell, called as clients call them.

mod at_once;
mod audit;
mod defects;
mod delegation;
mod description;
mod flows;
mod functions;
mod guests;
mod hostile;
mod limits;
mod lists;
mod oauth;
mod plans;
mod polaris;
mod restrict;
mod rights;
mod search;
mod time;
mod warehouses;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use node::auth::TokenRegistry;
use node::clock::IdGenerator;
use node::drain::DrainHandle;
use node::http::{BoundListener, HttpShell, IdempotencyKeys, ListenerSite, ShellLimits};
use node::removals::RemovalGate;
use node::sealed::Sealer;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::{HttpMetrics, Registry};
use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch};
use tokio::runtime::Runtime;

use super::*;
use crate::access::{AccessControl, AccessSettings};
use crate::service::{CatalogPrincipal, CatalogSettings};
use crate::storage::StorageSettings;

/// A server with a catalog, and an operator's token.
pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) access: AccessControl,
    pub(super) catalog: Catalog,
    pub(super) root: String,
    at_once: Arc<dyn FastPath>,
    client: Client,
    pub(super) scratch: Scratch,
}

impl Server {
    pub(super) fn start() -> Server {
        Server::with_separator(SEPARATOR_DEFAULT)
    }

    pub(super) fn with_separator(separator: &str) -> Server {
        let scratch = Scratch::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let tokens = TokenRegistry::open(scratch.path()).unwrap();
        tokens.ensure_first().unwrap();
        let root = std::fs::read_to_string(tokens.first_token_path()).unwrap().trim().to_owned();
        let (access, catalog, at_once, address) = runtime.block_on(async {
            let url = StoreUrl::Sqlite(scratch.path().join("db"));
            let mut registry = Registry::default();
            let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
            let settings = AccessSettings::default();
            let access =
                AccessControl::open(store.clone(), tokens.clone(), settings).await.unwrap();
            let settings = CatalogSettings {
                warehouse: "main".to_owned(),
                root: format!("file://{}/w", scratch.path().display()),
                locations: Vec::new(),
                credentials: None,
                storage: StorageSettings::default(),
                warehouse_roots: vec![format!("file://{}/made", scratch.path().display())],
                sealer: Some(Arc::new(Sealer::new(&[7; 32]))),
                cache_bytes_max: 16 << 20,
                check_files: true,
                pointer_cache: Duration::ZERO,
                undrop_seconds: 0,
                log_retention_seconds: 86_400,
                node: None,
                removals: RemovalGate::default(),
            };
            let keyed = store.clone();
            let catalog = Catalog::open(store, settings, Arc::new(access.clone())).await.unwrap();
            let (limits, drain) = (ShellLimits::default(), DrainHandle::new());
            let metrics = HttpMetrics::new(&mut registry);
            let ids = IdGenerator::new().unwrap();
            let sealer = Sealer::new(&[8; 32]);
            let keys = IdempotencyKeys::open(keyed, &sealer, &ids).await.unwrap();
            let shell = HttpShell::new(limits, tokens, drain.clone(), metrics, ids);
            let shell = shell.streaming(&STREAMING);
            let (routes, at_once) = routes(catalog.clone(), access.clone(), separator, Some(keys));
            let router = shell.wrap_with(routes, vec![(PREFIX, face())]);
            let site = ListenerSite::from(router).with_fast_path(&shell, Arc::clone(&at_once));
            let listener = BoundListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.address();
            tokio::spawn(listener.serve(site, limits, drain, Duration::from_secs(5)));
            (access, catalog, at_once, address)
        });
        let client = Client::new(address, None);
        Server { runtime, access, catalog, root, at_once, client, scratch }
    }

    /// Sends a request of the operator's.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        self.ask_as(Some(&self.root), method, path, body)
    }

    pub(super) fn ask_as(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Response {
        let mut request = Request::new(method, &format!("{PREFIX}{path}"));
        if let Some(token) = token {
            request = request.header("authorization", &format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        if method == "HEAD" {
            return self.head(&request);
        }
        let response = self.client.send(&request);
        description::check(method, path, &response);
        response
    }

    /// Sends a `HEAD` request, whose response has the length of a body that is not sent.
    fn head(&self, request: &Request) -> Response {
        let mut text = String::new();
        self.client.open(request).unwrap().read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, headers: Vec::new(), body: Vec::new() }
    }

    /// Sends a request of the operator with other headers.
    pub(super) fn send(&self, request: Request) -> Response {
        self.client.send(&request.header("authorization", &format!("Bearer {}", self.root)))
    }

    /// Sends a request without additional headers.
    pub(super) fn send_bare(&self, request: &Request) -> Response {
        self.client.send(request)
    }

    /// Makes a namespace and a table in it.
    pub(super) fn fill(&self, namespace: &str, table: &str) {
        let made = json!({"namespace": [namespace], "properties": {"owner": "me"}});
        let status = self.ask("POST", "/v1/main/namespaces", Some(&made)).status;
        assert!(matches!(status, 200 | 409), "{status}");
        let path = format!("/v1/main/namespaces/{namespace}/tables");
        let made = self.ask("POST", &path, Some(&new_table(table)));
        assert_eq!(made.status, 200, "{}", made.text());
    }
}

pub(super) fn operator() -> CatalogPrincipal {
    CatalogPrincipal::operator("tenant:root", "root")
}

pub(super) fn schema() -> Value {
    json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "data", "required": false, "type": "string"},
    ]})
}

pub(super) fn new_table(name: &str) -> Value {
    json!({"name": name, "schema": schema(), "properties": {"owner": "me"}})
}

pub(super) fn new_view(name: &str) -> Value {
    json!({"name": name, "schema": schema(), "properties": {}, "view-version": {
        "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {},
        "default-namespace": ["n"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    }})
}

/// Checks that a response is Iceberg's error envelope with this status and type.
pub(super) fn assert_refused(response: &Response, status: u16, kind: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    let error = &response.json()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(status), &json!(kind)), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    assert_eq!(response.header("content-type"), Some("application/json"));
}

/// Size of the future that a function returns.
fn bytes_of<'a, F: Future>(
    _: fn(&'a Arc<HttpContext>, &'a OperationEntry, axum::extract::Request) -> F,
) -> usize {
    size_of::<F>()
}

#[test]
fn requests_are_not_moved_about_with_what_others_need() {
    let bytes = bytes_of(super::answer);
    assert!(bytes <= 3_000, "{bytes}");
}

/// Returns the commit that creates a staged table.
fn staged_commit(metadata: &Value) -> Value {
    json!({"requirements": [{"type": "assert-create"}], "updates": [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]})
}
