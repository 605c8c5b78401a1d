//! Membership of this server among the nodes that share its store.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::catalog::http::PlanReference;
use anyhow::{Context as _, Result, bail};
use api::operations::server as table;
use api::{ErrorCode, ExecutionId, NodeDrainView, NodeList, NodeLoadView, NodeStatus, NodeView};
use axum::body::Bytes;
use axum::extract::{Path as PathOf, State};
use axum::http::{Method, StatusCode, header};
use axum::{Json, Router};
use executions::{ExecutionLocation, ExecutionService, Jobs};
use node::auth::TokenPrincipal;
use node::clock::{self, IdGenerator};
use node::cluster::{
    ClusterKey, DrainProgress, NODE_LEASE, NodeDescription, NodeIdentity, NodeLoad, NodeMembership,
    NodeRecord, NodeState, PEER_LISTENER, PeerForwarder, PeerListener, RequestLocator,
    RequestSubject, SubjectOwner, WorkKind,
};
use node::data_dir::{DataDir, write_atomic};
use node::drain::DrainHandle;
use node::fair::FairScheduler;
use node::http::{self, FastHead, HttpError, ListenerSite, OperationRoutes, RouteTable, get, post};
use node::sealed::Sealer;
use node::store::{SqlStore, SqlStoreError, StoreUrl};
use node::task::Boxed;
use serde::Deserialize;
use sessions::faces::e2b;
use sessions::{SessionHolder, SessionInterface, SessionOwners, Sessions};

use crate::compat;
use crate::config::{ConfigSource, CoveConfig};
use crate::kubernetes;

/// File with this server's id, which stays the same for as long as its data directory exists.
pub(crate) const SERVER_FILE: &str = "server.id";

/// Path for peers at which a node reports whether it runs an execution.
const RUNS_HERE: &str = "/peer/executions";
/// Path for peers that announce waiting executions.
const QUEUE_CHANGED: &str = "/peer/queue";
/// Role of the nodes that receive announcements: all of them run executions.
const QUEUE_ROLE: &str = "front";
/// Minimum time between two announcements of a node.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(50);
/// Longest id that is looked up.
const ID_BYTES_MAX: usize = 64;
/// Time that a caller who attaches waits for the execution to begin before the request is answered.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval at which that is checked.
const ATTACH_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Name of E2B's listener for other nodes. That of the main listener is defined by the shell.
pub(crate) const E2B_LISTENER: &str = "e2b";
/// Purpose of the key with which nodes prove their membership.
const PEER_PURPOSE: &str = "connections between nodes";

/// Access of other nodes to this one, if it is configured, and of this one to them, if they share a
/// store.
pub(crate) struct PeerAccess {
    key: Option<ClusterKey>,
    listener: Option<PeerListener>,
}

/// Default time for which a node counts as alive after its last renewal. It outlasts a statement
/// that waits for the store's disk and a packet that is lost twice, neither of which may cost a
/// session. Where nodes do not reach each other, sessions are taken over only on request, so a
/// longer time does no harm.
const LEASE: Duration = Duration::from_secs(3);
const LEASE_UNREACHED: Duration = NODE_LEASE;
/// Accepted range.
const LEASE_MS: RangeInclusive<u64> = 1000..=60_000;

/// Returns the time for which a node counts as alive after its last renewal.
fn lease(config: &CoveConfig) -> Duration {
    match config.cluster.lease_ms {
        Some(ms) => Duration::from_millis(ms),
        None if config.cluster.listen.is_some() => LEASE,
        None => LEASE_UNREACHED,
    }
}

/// Checks that a server that other nodes reach shares the store and objects with them.
pub(crate) fn check(config: &CoveConfig, store: &StoreUrl) -> Result<()> {
    if let Some(ms) = config.cluster.lease_ms
        && !LEASE_MS.contains(&ms)
    {
        bail!("cluster.lease_ms: must be {} to {}", LEASE_MS.start(), LEASE_MS.end());
    }
    if config.cluster.listen.is_none() {
        return Ok(());
    }
    if config.objects.url.is_none() {
        bail!(
            "cluster.listen: sessions and agents go from node to node by an object store that all \
             share; set `objects.url`"
        );
    }
    match store {
        StoreUrl::Postgres(_) => Ok(()),
        StoreUrl::Sqlite(_) => bail!(
            "cluster.listen: nodes find each other in a store that they share; set `store.url`"
        ),
    }
}

impl PeerAccess {
    /// Listens for other nodes.
    pub(crate) async fn open(
        config: &CoveConfig,
        sealer: &Sealer,
        store: &StoreUrl,
    ) -> Result<PeerAccess> {
        check(config, store)?;
        let address = &config.cluster.listen;
        let key = match store {
            StoreUrl::Postgres(_) => ClusterKey::new(&sealer.derived_key(PEER_PURPOSE))?,
            StoreUrl::Sqlite(_) => return Ok(PeerAccess { key: None, listener: None }),
        };
        let listener = match address {
            Some(address) => {
                let bound = PeerListener::bind(address, &key).await;
                let bound = bound.context("failed to listen for other nodes (`cluster.listen`)")?;
                tracing::info!(address = %bound.address(), "listening for other nodes");
                Some(bound)
            }
            None => None,
        };
        Ok(PeerAccess { key: Some(key), listener })
    }

    /// Registers this server in the store. `address` is that of its main listener.
    pub(crate) async fn join(
        &self,
        store: &SqlStore,
        source: &ConfigSource,
        data_dir: &Path,
        address: SocketAddr,
    ) -> Result<NodeMembership> {
        let peer_address = self.listener.as_ref().map(PeerListener::address);
        let is_root = source.environment.is_root;
        let description = describe(&source.config, address, peer_address, is_root);
        let ids = IdGenerator::new().context("failed to seed the id generator")?;
        let id = server_id(data_dir)?;
        let identity = NodeIdentity::in_directory(id, ids.next("run_"), data_dir)
            .context("failed to look at the data directory")?;
        Ok(NodeMembership::join(store, identity, &description, lease(&source.config)).await?)
    }

    /// Returns the name of this node if other nodes reach it.
    pub(crate) fn node(&self, membership: &NodeMembership) -> Option<String> {
        self.listener.as_ref().map(|_| membership.identity().id.clone())
    }

    /// Returns the forwarder of requests to other nodes.
    pub(crate) async fn forwarder(
        &self,
        membership: &NodeMembership,
        store: &SqlStore,
        sessions: &Sessions,
        jobs: &Jobs,
    ) -> Result<Option<PeerForwarder>> {
        let Some(key) = &self.key else { return Ok(None) };
        let owners = SessionOwners::open(store, sessions.clone()).await;
        let owners = owners.context("failed to open the store of sessions")?;
        let locator = NodeLocator { membership: membership.clone(), owners, jobs: jobs.clone() };
        let forwarder = PeerForwarder::new(membership, key, locator)?;
        sessions.join(forwarder.clone());
        Ok(Some(forwarder))
    }

    /// Serves other nodes until the drain has finished.
    pub(crate) async fn serve(
        self,
        membership: &NodeMembership,
        sites: Vec<(&'static str, Router)>,
        turns: FairScheduler,
        drain: &DrainHandle,
        patience: Duration,
    ) {
        if let Some(listener) = self.listener {
            listener.serve(membership.identity(), sites, turns, drain.clone(), patience).await;
        }
    }
}

/// Returns the routes for other nodes, by the names of their listeners.
pub(crate) fn sites(
    main: &ListenerSite,
    e2b: Option<&ListenerSite>,
    of_others: Router,
    jobs: &Jobs,
    sessions: &Sessions,
) -> Vec<(&'static str, Router)> {
    let e2b = e2b.map(|site| (E2B_LISTENER, site.routes()));
    let of_executions = Router::new()
        .at("/peer/executions/{id}", get(runs_here))
        .at(QUEUE_CHANGED, post(queue_changed));
    let of_executions = of_executions.with_state(jobs.clone());
    let of_sessions = sessions::peer_routes(sessions.clone());
    let for_nodes = [(PEER_LISTENER, of_executions.merge(of_sessions).merge(of_others))];
    [(http::MAIN_LISTENER, main.routes())].into_iter().chain(e2b).chain(for_nodes).collect()
}

async fn runs_here(State(jobs): State<Jobs>, PathOf(id): PathOf<String>) -> StatusCode {
    match jobs.runs_here(&ExecutionId(id)) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}

async fn queue_changed(State(jobs): State<Jobs>) -> StatusCode {
    jobs.queue().wake();
    StatusCode::NO_CONTENT
}

/// Runs waiting executions until the drain has finished. Announces executions accepted here to
/// other nodes, so that an idle node need not query the store for them ten times a second.
pub(crate) async fn run_executions(
    jobs: &Jobs,
    membership: &NodeMembership,
    nodes: Option<PeerForwarder>,
    drain: &DrainHandle,
) {
    let running = jobs.work(drain, membership.takes_work());
    let Some(nodes) = nodes else { return running.await };
    let announce = async {
        loop {
            jobs.accepted_here().await;
            nodes.tell_others(QUEUE_ROLE, QUEUE_CHANGED, Bytes::new()).await;
            // One announcement covers all executions accepted meanwhile.
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
        }
    };
    let rely = async {
        loop {
            jobs.queue().rely_on_announcements(membership.all_reach_each_other());
            tokio::time::sleep(node::cluster::RENEW_INTERVAL).await;
        }
    };
    tokio::select! {
        () = running => {}
        ((), ()) = async { tokio::join!(announce, rely) } => {}
    }
}

/// Keeps the membership, and this node's shares of execution limits, until the server stops;
/// detects lost nodes, and drains this node with its Kubernetes machine.
pub(crate) async fn keep(
    membership: &NodeMembership,
    nodes: Option<PeerForwarder>,
    source: &ConfigSource,
    data_dir: &DataDir,
    drain: &DrainHandle,
    jobs: &Jobs,
) {
    let machine = kubernetes::follow_machine(source, data_dir.path(), membership);
    let watching = async {
        if let Some(nodes) = nodes {
            nodes.watch_peers().await;
        }
    };
    // Boxed, because few servers have other nodes or such a machine.
    let limits = Box::pin(jobs.service().follow_limits());
    tokio::join!(membership.keep(drain), Box::pin(watching), Box::pin(machine), limits);
}

/// Finds the node that holds a session, an execution or the plan of a scan.
struct NodeLocator {
    membership: NodeMembership,
    owners: SessionOwners,
    jobs: Jobs,
}

impl NodeLocator {
    /// Returns the node that runs an execution. If the caller must be at that node, it waits for an
    /// execution that is about to begin.
    async fn runner(&self, id: &str, is_socket: bool, attaches: bool) -> SubjectOwner {
        let id = ExecutionId(id.to_owned());
        let deadline = clock::now() + ATTACH_WAIT_MAX;
        // Whether the execution is for an attached caller is also in the stored request, which is
        // read once, and only for callers that can attach.
        let mut waits = (attaches || !is_socket).then_some(attaches && is_socket);
        loop {
            match self.jobs.place(&id).await {
                Ok(ExecutionLocation::Elsewhere) => {
                    return SubjectOwner::Other(format!("{RUNS_HERE}/{}", id.0));
                }
                Ok(ExecutionLocation::Waiting) if clock::now() < deadline => {
                    if waits.is_none() {
                        waits = Some(self.jobs.is_for_attached(&id).await.unwrap_or(false));
                    }
                }
                // If the queue is unavailable, this node's own handler reports it.
                Ok(_) | Err(_) => return SubjectOwner::This,
            }
            if waits != Some(true) {
                return SubjectOwner::This;
            }
            tokio::time::sleep(ATTACH_LOOK_EVERY).await;
        }
    }
}

impl NodeLocator {
    /// Returns the node that claims a session without an owner: not this one while it drains, if
    /// another node takes sessions.
    fn claimant(&self, session: &str) -> SubjectOwner {
        if *self.membership.takes_work().borrow() {
            return SubjectOwner::This;
        }
        self.membership.taker_of(session).map_or(SubjectOwner::This, SubjectOwner::Node)
    }
}

/// Returns the execution whose events are requested.
fn events_of(request: FastHead<'_>) -> Option<RequestSubject> {
    let id = request.uri.path().strip_prefix("/v1/executions/")?.strip_suffix("/events")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_id = !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(plain);
    let is_socket = request.headers.contains_key(header::UPGRADE);
    let attaches = has_field(request, "attach=true");
    is_id.then(|| RequestSubject::Execution { id: id.to_owned(), is_socket, attaches })
}

/// Field of a session request that decides its placement: at nodes that have the files of its
/// agent.
#[derive(Debug, Default, Deserialize)]
struct SessionPlacement {
    #[serde(alias = "templateID")]
    agent: Option<String>,
}

/// Returns whether the query of a request has a field.
fn has_field(request: FastHead<'_>, field: &str) -> bool {
    request.uri.query().is_some_and(|query| query.split('&').any(|it| it == field))
}

/// Returns the node that has a plan, according to the plan's id or the token of one of its tasks.
fn node_of_plan(id_or_task: &str) -> Option<RequestSubject> {
    let node = ::catalog::service::node_of_plan(id_or_task)?;
    Some(RequestSubject::Node(node.to_owned()))
}

impl RequestLocator for NodeLocator {
    fn subject(&self, listener: &str, request: FastHead<'_>) -> Option<RequestSubject> {
        if listener == E2B_LISTENER {
            let path = request.uri.path();
            if request.method == Method::POST && matches!(path, "/sandboxes" | "/v2/sandboxes") {
                return Some(RequestSubject::InBody);
            }
            if let Some(sandbox) = sessions::session_of(SessionInterface::E2b, request) {
                return Some(RequestSubject::Session(sandbox));
            }
            return e2b::signed_at(request).map(RequestSubject::Asked);
        }
        match ::catalog::http::plan_of(request) {
            Some(PlanReference::Id(id)) => return node_of_plan(&id),
            Some(PlanReference::InBody) => return Some(RequestSubject::InBody),
            None => {}
        }
        match request.uri.path() {
            "/v1/sessions" | "/api/sessions" if request.method == Method::POST => {
                return Some(RequestSubject::InBody);
            }
            "/v1/executions"
                if request.method == Method::POST && has_field(request, "wait=true") =>
            {
                return Some(RequestSubject::Work(WorkKind::Execution, String::new()));
            }
            path if path.starts_with(compat::ROOT) => {
                let counts = self.jobs.service().shares_limits() && compat::runs_programs(request);
                return counts.then_some(RequestSubject::LimitedWork(WorkKind::Execution));
            }
            _ => {}
        }
        if let Some(subject) = events_of(request) {
            return Some(subject);
        }
        sessions::session_of(SessionInterface::Main, request).map(RequestSubject::Session)
    }

    fn subject_in(&self, path: &str, body: &[u8]) -> Option<RequestSubject> {
        if path.ends_with("/sessions") || path.ends_with("/sandboxes") {
            // The node that handles the request reports errors in it.
            let agent = serde_json::from_slice::<SessionPlacement>(body).unwrap_or_default().agent;
            return Some(RequestSubject::Work(WorkKind::Session, agent.unwrap_or_default()));
        }
        node_of_plan(&::catalog::http::plan_in(body)?)
    }

    fn limit_homes(&self, kind: WorkKind, caller: &TokenPrincipal) -> Option<Vec<String>> {
        match kind {
            WorkKind::Session => None,
            WorkKind::Execution => self.jobs.service().limit_homes(&caller.token_id),
        }
    }

    fn owner<'a>(&'a self, subject: &'a RequestSubject, is_fresh: bool) -> Boxed<'a, SubjectOwner> {
        Box::pin(async move {
            match subject {
                RequestSubject::InBody
                | RequestSubject::Work(..)
                | RequestSubject::LimitedWork(_) => SubjectOwner::This,
                RequestSubject::Node(id) if *id == self.membership.identity().id => {
                    SubjectOwner::This
                }
                RequestSubject::Node(id) => SubjectOwner::Node(id.clone()),
                // This node cannot reach any other node.
                RequestSubject::Session(_)
                | RequestSubject::Execution { .. }
                | RequestSubject::Asked(_)
                    if !self.membership.reaches_others() =>
                {
                    SubjectOwner::This
                }
                RequestSubject::Asked(path) => SubjectOwner::Other(path.clone()),
                RequestSubject::Execution { id, is_socket, attaches } => {
                    self.runner(id, *is_socket, *attaches).await
                }
                RequestSubject::Session(id) => match self.owners.owner(id, is_fresh).await {
                    Ok(SessionHolder::Other(owner)) => SubjectOwner::Node(owner),
                    Ok(SessionHolder::This) => SubjectOwner::This,
                    Ok(SessionHolder::Nobody) => self.claimant(id),
                    // This node's own handler reports that the store is unavailable.
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to look for the node of a session");
                        SubjectOwner::This
                    }
                },
            }
        })
    }
}

/// Returns the description of a server for other nodes.
fn describe(
    config: &CoveConfig,
    address: SocketAddr,
    peer_address: Option<SocketAddr>,
    is_root: bool,
) -> NodeDescription {
    let has_sessions = is_root && config.sessions.resident_max > 0;
    let roles = [
        ("front", true),
        ("session", has_sessions),
        ("bouncer", config.bouncer.enabled),
        ("catalog", config.catalog.enabled),
    ];
    let advertised = config.cluster.advertise.clone();
    NodeDescription {
        address: Some(address.to_string()),
        peer_address: peer_address.map(|bound| match advertised {
            // Only now is the port known that the kernel chose.
            Some(text) => match text.strip_suffix(":0") {
                Some(host) => format!("{host}:{}", bound.port()),
                None => text,
            },
            None => bound.to_string(),
        }),
        roles: roles.iter().filter(|(_, has)| *has).map(|(role, _)| (*role).to_owned()).collect(),
        zone: config.cluster.zone.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the id in this data directory; creates it if it is missing.
fn server_id(data_dir: &Path) -> Result<String> {
    let path = data_dir.join(SERVER_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => bail!("`{}` is empty", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = IdGenerator::new().context("failed to seed the id generator")?.next("srv_");
            write_atomic(&path, format!("{made}\n").as_bytes())?;
            Ok(made)
        }
        Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
    }
}

/// Reports the load at every renewal of the membership.
fn measure(membership: &NodeMembership, executions: &ExecutionService, sessions: &Sessions) {
    let (executions, sessions) = (executions.clone(), sessions.clone());
    let takes_work = membership.takes_work();
    membership.measure(move || {
        let (sandboxes, places) = (sessions.counts(), executions.places());
        let resident = sandboxes.warming + sandboxes.warm + sandboxes.running + sandboxes.waiting;
        NodeLoad {
            sandboxes: wide(resident),
            sandboxes_max: wide(sessions.resident_max()),
            executions: wide(places.running),
            executions_max: wide(places.running_max),
            executions_waiting: wide(places.waiting),
            drain: (!*takes_work.borrow()).then(|| sessions.drain_progress()).flatten(),
            ..NodeLoad::default()
        }
    });
}

/// Routes below `/v1/nodes`; also registers the load report of this node.
pub(crate) fn routes(
    membership: &NodeMembership,
    executions: &ExecutionService,
    sessions: &Sessions,
) -> Router {
    measure(membership, executions, sessions);
    handlers().with_state(Arc::new(membership.clone()))
}

fn handlers() -> Router<Arc<NodeMembership>> {
    OperationRoutes::of(table::NODES)
        .serve(&table::LIST_NODES, list)
        .serve(&table::GET_NODE, show)
        .serve(&table::DRAIN_NODE, drain)
        .serve(&table::UNDRAIN_NODE, undrain)
        .routes()
}

async fn list(State(membership): State<Arc<NodeMembership>>) -> Result<Json<NodeList>, HttpError> {
    Ok(Json(NodeList { nodes: views(&membership).await? }))
}

async fn show(
    State(membership): State<Arc<NodeMembership>>,
    PathOf(id): PathOf<String>,
) -> Result<Json<NodeView>, HttpError> {
    find(&membership, &id).await.map(Json)
}

async fn drain(
    State(membership): State<Arc<NodeMembership>>,
    PathOf(id): PathOf<String>,
) -> Result<Json<NodeView>, HttpError> {
    ask(&membership, &id, true).await.map(Json)
}

async fn undrain(
    State(membership): State<Arc<NodeMembership>>,
    PathOf(id): PathOf<String>,
) -> Result<Json<NodeView>, HttpError> {
    ask(&membership, &id, false).await.map(Json)
}

async fn ask(membership: &NodeMembership, id: &str, drains: bool) -> Result<NodeView, HttpError> {
    if !membership.registry().ask_to_drain(id, drains).await.map_err(|error| store(&error))? {
        return Err(unknown(id));
    }
    find(membership, id).await
}

async fn find(membership: &NodeMembership, id: &str) -> Result<NodeView, HttpError> {
    let nodes = views(membership).await?;
    nodes.into_iter().find(|node| node.id == id).ok_or_else(|| unknown(id))
}

async fn views(membership: &NodeMembership) -> Result<Vec<NodeView>, HttpError> {
    let registry = membership.registry();
    let nodes = registry.list().await.map_err(|error| store(&error))?;
    let (now_ms, this) = (registry.now_ms(), &membership.identity().id);
    Ok(nodes.into_iter().map(|node| view(node, now_ms, this)).collect())
}

fn view(node: NodeRecord, now_ms: u64, this: &str) -> NodeView {
    let state = match node.state {
        NodeState::Left if node.load.is_lost => NodeStatus::Lost,
        NodeState::Left => NodeStatus::Left,
        _ if !node.is_alive(now_ms) => NodeStatus::Lost,
        // Requested just now; the node notices when it renews its row.
        _ if node.drain_wanted => NodeStatus::Draining,
        NodeState::Joining => NodeStatus::Joining,
        NodeState::Active => NodeStatus::Active,
        NodeState::Draining => NodeStatus::Draining,
    };
    let NodeDescription { address, peer_address, roles, zone, version } = node.description;
    let NodeLoad {
        sandboxes,
        sandboxes_max,
        executions,
        executions_max,
        executions_waiting,
        drain,
        ..
    } = node.load;
    let drain = drain.filter(|_| node.drain_wanted).map(|drain| {
        let DrainProgress { sessions, busy, failed, keeps_files } = drain;
        NodeDrainView { sessions, busy, failed, keeps_files }
    });
    NodeView {
        is_this: node.id == this,
        id: node.id,
        incarnation: node.incarnation,
        state,
        address,
        peer_address,
        roles,
        zone,
        version,
        started_ms: node.started_ms,
        seen_ms: node.seen_ms,
        load: NodeLoadView {
            sandboxes,
            sandboxes_max,
            executions,
            executions_max,
            executions_waiting,
        },
        drain,
    }
}

fn unknown(id: &str) -> HttpError {
    HttpError::new(ErrorCode::NotFound, format!("there is no node \"{}\"", id.escape_default()))
}

fn store(error: &SqlStoreError) -> HttpError {
    tracing::warn!(error = error as &dyn std::error::Error, "failed to look for nodes");
    HttpError::new(ErrorCode::Overloaded, "the store cannot be reached")
        .retry_after(node::readiness::CHECK_INTERVAL)
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }

    #[test]
    fn a_server_keeps_its_name() {
        let scratch = Scratch::new();
        let name = server_id(scratch.path()).unwrap();
        assert!(name.starts_with("srv_"), "{name}");
        assert_eq!(server_id(scratch.path()).unwrap(), name);
    }

    #[test]
    fn others_are_told_the_address_that_they_reach() {
        let bound: SocketAddr = "0.0.0.0:4190".parse().unwrap();
        let peer_address = |advertise: Option<&str>, bound| {
            let mut config = CoveConfig::default();
            config.cluster.advertise = advertise.map(str::to_owned);
            let address = "127.0.0.1:4100".parse().unwrap();
            describe(&config, address, bound, false).peer_address
        };
        for (advertise, expected) in [
            (None, "0.0.0.0:4190"),
            (Some("10.0.0.7:5000"), "10.0.0.7:5000"),
            (Some("node-1.internal:0"), "node-1.internal:4190"),
        ] {
            assert_eq!(peer_address(advertise, Some(bound)).as_deref(), Some(expected));
            assert_eq!(peer_address(advertise, None), None);
        }
    }
}
