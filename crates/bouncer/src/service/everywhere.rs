//! Figures of a tenant at all nodes: each node is asked for its own, and nodes that do not answer
//! in time are named.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{BouncerClientList, BouncerServerList, TenantStats as Figures, TenantStatsList};
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use node::http::{RouteTable as _, get, post};
use serde::{Deserialize, Serialize};

use super::peers::PeerAnswers;
use super::{Bouncer, views};
use crate::error::BouncerError;
use crate::relay::stats::DurationDistribution;
use crate::tenants::TenantSnapshot;

/// Path at which a node is notified by another one about a changed tenant.
const CHANGED: &str = "/peer/tenants";
/// Path at which a node returns the figures of all its tenants to another one. It has one segment
/// less than the paths of a tenant.
const ALL_STATS: &str = "/peer/tenant-stats";
/// Figures of one node, with the histograms for percentiles.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NodeTenantFigures {
    stats: Figures,
    query: DurationDistribution,
    transaction: DurationDistribution,
    wait: DurationDistribution,
}

impl Bouncer {
    /// Returns the figures of a tenant, of all nodes together.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn stats_everywhere(&self, name: &str) -> Result<Figures, BouncerError> {
        let mut sum = self.node_figures(name)?;
        let PeerAnswers { answers, missing } = self.peers().ask_of_tenant(name, "stats").await;
        let nodes = answers.len() + 1;
        answers.into_iter().for_each(|of_node| sum.add(of_node));
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        Ok(Figures { nodes, missing, ..sum.finish() })
    }

    /// Returns the figures of all tenants by name, of all nodes together, with one request to each
    /// node. Tenants that this node does not know are left out.
    pub async fn all_stats_everywhere(&self) -> TenantStatsList {
        let mut sums: BTreeMap<String, (NodeTenantFigures, u64)> = BTreeMap::new();
        for of_tenant in self.all_node_figures() {
            sums.insert(of_tenant.stats.name.clone(), (of_tenant, 1));
        }
        let PeerAnswers { answers, missing } =
            self.peers().ask_at::<Vec<NodeTenantFigures>>(ALL_STATS).await;
        for of_tenant in answers.into_iter().flatten() {
            if let Some((sum, nodes)) = sums.get_mut(&of_tenant.stats.name) {
                sum.add(of_tenant);
                *nodes += 1;
            }
        }
        let tenants = sums.into_values();
        let tenants = tenants.map(|(sum, nodes)| Figures { nodes, ..sum.finish() }).collect();
        TenantStatsList { tenants, missing }
    }

    /// Returns the clients of a tenant, of all nodes.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn clients_everywhere(&self, name: &str) -> Result<BouncerClientList, BouncerError> {
        let clients = self.clients(name).await?;
        let others = self.peers().ask_of_tenant::<BouncerClientList>(name, "clients").await;
        let of_others = others.answers.into_iter().flat_map(|list| list.clients);
        let clients = clients.into_iter().chain(of_others).collect();
        Ok(BouncerClientList { clients, missing: others.missing })
    }

    /// Returns the server connections of a tenant, of all nodes.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn servers_everywhere(&self, name: &str) -> Result<BouncerServerList, BouncerError> {
        let servers = self.servers(name).await?;
        let others = self.peers().ask_of_tenant::<BouncerServerList>(name, "servers").await;
        let of_others = others.answers.into_iter().flat_map(|list| list.servers);
        let servers = servers.into_iter().chain(of_others).collect();
        Ok(BouncerServerList { servers, missing: others.missing })
    }

    /// Makes all other nodes read the change in the store. A node that is not reached reads it
    /// within two seconds.
    pub(super) async fn tell_others(&self) {
        self.peers().ask_all(&Method::POST, CHANGED).await;
    }

    /// Closes a client of a tenant, at whichever node it is.
    ///
    /// # Errors
    /// `NotFound` if the tenant has no such client.
    pub async fn kill_client_everywhere(&self, name: &str, pid: u32) -> Result<(), BouncerError> {
        let here = self.kill_client(name, pid).await;
        if !matches!(here, Err(BouncerError::NotFound)) {
            return here;
        }
        let path = format!("/peer/tenants/{name}/clients/{pid}/kill");
        let answers = self.peers().ask_all(&Method::POST, &path).await;
        if answers.into_iter().any(|it| it.success().is_some()) { Ok(()) } else { here }
    }

    fn node_figures(&self, name: &str) -> Result<NodeTenantFigures, BouncerError> {
        Ok(self.figures_of(&*self.found(name)?))
    }

    fn all_node_figures(&self) -> Vec<NodeTenantFigures> {
        self.0.current.load().tenants().map(|tenant| self.figures_of(tenant)).collect()
    }

    fn figures_of(&self, tenant: &TenantSnapshot) -> NodeTenantFigures {
        let stats = self.0.threads.stats(tenant.id);
        let [query, transaction, wait] = views::distributions(&stats);
        NodeTenantFigures { stats: views::figures(tenant, &stats), query, transaction, wait }
    }
}

impl NodeTenantFigures {
    fn add(&mut self, other: NodeTenantFigures) {
        let NodeTenantFigures { stats, query, transaction, wait } = other;
        self.stats.add(stats);
        self.query.add(&query);
        self.transaction.add(&transaction);
        self.wait.add(&wait);
    }

    /// Returns the figures with their percentiles.
    fn finish(self) -> Figures {
        let NodeTenantFigures { stats, query, transaction, wait } = self;
        Figures {
            query_ms: views::percentiles(&query),
            transaction_ms: views::percentiles(&transaction),
            wait_ms: views::percentiles(&wait),
            ..stats
        }
    }
}

/// Returns the routes for other nodes.
pub fn peer_routes(bouncer: Bouncer) -> Router {
    Router::new()
        .at(CHANGED, post(changed))
        .at(ALL_STATS, get(all_stats))
        .at("/peer/tenants/{name}/stats", get(stats))
        .at("/peer/tenants/{name}/clients", get(clients))
        .at("/peer/tenants/{name}/servers", get(servers))
        .at("/peer/tenants/{name}/clients/{pid}/kill", post(kill_client))
        .with_state(Arc::new(bouncer))
}

async fn changed(State(bouncer): State<Arc<Bouncer>>) -> Response {
    answer(bouncer.look_at_store().await)
}

async fn all_stats(State(bouncer): State<Arc<Bouncer>>) -> Response {
    Json(bouncer.all_node_figures()).into_response()
}

async fn stats(State(bouncer): State<Arc<Bouncer>>, Path(name): Path<String>) -> Response {
    answer(bouncer.node_figures(&name))
}

async fn clients(State(bouncer): State<Arc<Bouncer>>, Path(name): Path<String>) -> Response {
    let clients = bouncer.clients(&name).await;
    answer(clients.map(|clients| BouncerClientList { clients, missing: Vec::new() }))
}

async fn servers(State(bouncer): State<Arc<Bouncer>>, Path(name): Path<String>) -> Response {
    let servers = bouncer.servers(&name).await;
    answer(servers.map(|servers| BouncerServerList { servers, missing: Vec::new() }))
}

async fn kill_client(
    State(bouncer): State<Arc<Bouncer>>,
    Path((name, pid)): Path<(String, u32)>,
) -> Response {
    answer(bouncer.kill_client(&name, pid).await)
}

fn answer<T: Serialize>(result: Result<T, BouncerError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(BouncerError::NotFound) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
