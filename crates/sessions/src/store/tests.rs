//! The store on SQLite and on PostgreSQL: every check holds on both.

mod agents;
mod conflicts;
mod events;
mod others;
mod sessions;
mod templates;
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

use api::{AgentOptions, AgentRuntime, AgentSettings, OnDisconnect, SessionLimits, SessionState};
use node::cluster::{
    LostNode, NODE_LEASE, NodeDescription, NodeIdentity, NodeJudge, NodeRegistration,
};
use node::store::{StoreConfig, StoreUrl};
use node::telemetry::Registry;
use serde_json::json;
use testkit::{Postgres, Scratch};

use super::*;
use crate::error::SessionError;

/// A time that is independent of all clocks.
pub(super) const NOW: u64 = 1_800_000_000_000;

pub(crate) async fn open(url: StoreUrl) -> SessionStore {
    let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
    SessionStore::open(store).await.unwrap()
}

pub(crate) async fn sqlite(scratch: &Scratch) -> SessionStore {
    open(StoreUrl::Sqlite(scratch.path().join("db"))).await
}

/// Returns the first run of a node in its own directory.
pub(crate) fn node_of(id: &str) -> NodeIdentity {
    NodeIdentity {
        id: id.to_owned(),
        incarnation: format!("{id} 1"),
        home: format!("home of {id}"),
    }
}

/// Returns terms at a time at which only leases count.
pub(crate) fn at(now_ms: u64) -> ClaimTerms {
    let judge = NodeJudge::new(now_ms, Some(u64::MAX));
    ClaimTerms { judge, patience: Duration::ZERO }
}

/// Registers a node.
async fn register(store: &SessionStore, id: &str, now_ms: u64) {
    let nodes = NodeRegistry::open(&store.access.store).await.unwrap();
    let description = NodeDescription::default();
    let registered = nodes.register(&node_of(id), &description, true, now_ms).await.unwrap();
    assert_eq!(registered, NodeRegistration::Done);
}

/// Runs a check on a store of each engine.
async fn check(claim: impl AsyncFn(&SessionStore)) {
    let scratch = Scratch::new();
    claim(&sqlite(&scratch).await).await;
    let server = Postgres::shared();
    claim(&open(StoreUrl::Postgres(server.database())).await).await;
}

pub(crate) fn session(id: &str, tenant: &str) -> SessionRow {
    SessionRow {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        agent_id: None,
        agent_name: None,
        agent_version: None,
        parent: None,
        face: None,
        created_ms: NOW,
        grants: Vec::new(),
        template: None,
        options: AgentOptions::default(),
        limits: SessionLimits::default(),
        metadata: BTreeMap::new(),
        env: None,
        credential: None,
        on_disconnect: OnDisconnect::default(),
        idle_s: None,
        on_deadline: OnDeadline::default(),
        extra: json!(null),
        state: SessionState::Starting,
        chain: Vec::new(),
        disk: None,
        disk_server: None,
        manifest: None,
        agent_session: None,
        turns: 0,
        last_seq: 0,
        last_active_ms: NOW,
        deadline_ms: None,
        message: None,
        owner: Some("here".to_owned()),
        epoch: 0,
        seq_start: 0,
        seq_ceiling: 0,
        history_bytes: 0,
    }
}

fn agent(name: &str, tenant: &str) -> (AgentRow, VersionRow) {
    let agent = AgentRow {
        id: format!("ag_{tenant}_{name}"),
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        description: None,
        active_version: 0,
        last_version: 0,
        settings: AgentSettings::default(),
        limits: SessionLimits::default(),
        grants: Vec::new(),
        options: AgentOptions::default(),
        env: None,
        env_names: Vec::new(),
        created_ms: NOW,
        updated_ms: NOW,
    };
    let version = VersionRow {
        agent_id: String::new(),
        version: 0,
        runtime: AgentRuntime::None,
        chain: Vec::new(),
        folder: None,
        listing: json!([]),
        files: 0,
        bytes: 0,
        install_output: None,
        created_ms: NOW,
    };
    (agent, version)
}

async fn layer(store: &SessionStore, id: &str) {
    let row = LayerRow { id: id.to_owned(), tenant: "a".to_owned(), bytes: 5, created_ms: NOW };
    store.layers.insert(row).await.unwrap();
}

fn ids(rows: &[SessionRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}
