//! Several nodes that share a store, with a balancer in front.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::{
    BalancedUnit, Balancer, Client, Cutter, Network, NetworkPlace, Postgres, Redis, S3, Server,
    until,
};

/// Setting of the length of leases.
const LEASE: &str = "cluster.lease_ms";
/// Time for nodes to read each other's registrations, on a busy machine.
const SEEN_MAX: Duration = Duration::from_secs(60);

/// Returns the configuration of a node: `settings` are its first lines, followed by `tables`.
#[must_use]
pub fn node_config(store: &str, settings: &str, tables: &str) -> String {
    let keys = ["secrets_key", "executions.jobs.webhook_key"];
    let keys = keys.map(|name| format!("{name} = \"{}\"\n", "5a".repeat(32))).concat();
    // On a machine that is busy with other tests, a node may be delayed for longer than the default
    // lease.
    let lease = match settings.contains(LEASE) {
        true => String::new(),
        false => format!("{LEASE} = 20000\n"),
    };
    let listen = "cluster.listen = \"127.0.0.1:0\"\n";
    format!("store.url = {store:?}\n{keys}{listen}{lease}{settings}\n{tables}")
}

/// Returns the nodes in the view of one server.
///
/// # Panics
/// If it does not respond.
#[must_use]
pub fn nodes_seen_by(server: &Server) -> Vec<Value> {
    let answer = server.client().get("/v1/nodes");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["nodes"].as_array().expect("a list of nodes").clone()
}

/// Waits until each node has read the registrations of all.
pub fn wait_for_each_other(servers: &[&Server]) {
    for server in servers {
        until("all nodes to be active", SEEN_MAX, || {
            let nodes = nodes_seen_by(server);
            let active = nodes.iter().filter(|node| node["state"] == "active").count();
            if active == servers.len() { Ok(()) } else { Err(format!("{nodes:?}")) }
        });
    }
    // A node reads the rows of all nodes when it renews its own.
    let seen = nodes_seen_by(servers[0]);
    until("the next renewals", SEEN_MAX, || {
        let now = nodes_seen_by(servers[0]);
        let is_later = |index: usize| {
            now[index]["seen_ms"].as_u64() > seen[index]["seen_ms"].as_u64().map(|ms| ms + 500)
        };
        if (0..servers.len()).all(is_later) { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

/// Three nodes, on machines of a test network, with a balancer in front. They share PostgreSQL,
/// Redis and an S3 service.
#[derive(Debug)]
pub struct ServerCluster {
    /// The nodes.
    pub nodes: [Server; 3],
    /// Balancer that sends each request, or each connection, to the next node: see
    /// [`BalancedPort`].
    pub balancer: Balancer,
    /// Proxies between the nodes and the database, the queue and the objects.
    pub ways: [Cutter; 3],
    /// The store.
    pub database: Arc<Postgres>,
    /// The queue.
    pub queue: Redis,
    /// Network of the nodes.
    pub network: Network,
    _objects: S3,
}

/// Port of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancedPort {
    /// The main listeners, by request.
    Requests,
    /// The main listeners, by connection.
    Connections,
    /// The listeners for E2B's clients, by request.
    E2b,
    /// The bouncers' listeners for PostgreSQL, by connection.
    Postgres,
}

impl ServerCluster {
    /// Starts nodes of `binary` with these tables in their configuration.
    ///
    /// # Panics
    /// If any component does not start.
    #[must_use]
    pub fn start(
        binary: &str,
        network: Network,
        database: Arc<Postgres>,
        tables: &str,
    ) -> ServerCluster {
        let (queue, objects) = (Redis::start(), S3::start());
        let ways = [database.tcp(), queue.address(), objects.address()]
            .map(|service| network.expose(service));
        let [to_database, to_queue, to_objects] = ways.each_ref().map(Cutter::address);
        let at = |url: String, service: SocketAddr, way: SocketAddr| {
            assert!(url.contains(&service.to_string()), "{url} is not at {service}");
            url.replace(&service.to_string(), &way.to_string())
        };
        let settings = format!(
            "objects.url = {:?}\nobjects.access_key_id = {:?}\nobjects.secret_access_key = {:?}\n\
             executions.jobs.redis = {:?}",
            at(objects.url("cluster"), objects.address(), to_objects),
            objects.access_key_id,
            objects.secret_access_key,
            at(queue.url(), queue.address(), to_queue),
        );
        let store = at(database.database(), database.tcp(), to_database);
        let config = node_config(&store, &settings, tables);
        let of_node = |place: &NetworkPlace| {
            let [peers, e2b] = [4190, 4180].map(|port| place.listener(port));
            let config = config.replace("127.0.0.1:0", &peers.to_string());
            format!("compat.e2b.listen = \"{e2b}\"\n{config}")
        };
        let [first, second, third] = [0, 1, 2].map(|machine| network.place(machine));
        let one = Server::start_at(first.clone(), binary, &of_node(&first));
        let two = one.start_beside_on(second.clone(), &of_node(&second));
        let three = one.start_beside_on(third.clone(), &of_node(&third));
        wait_for_each_other(&[&one, &two, &three]);
        let nodes = [one, two, three];
        let all = |name: &str| nodes.iter().map(|node| node.listener(name)).collect::<Vec<_>>();
        let balancer = Balancer::start(&[
            (BalancedUnit::Request, all("http")),
            (BalancedUnit::Connection, all("http")),
            (BalancedUnit::Request, all("e2b")),
            (BalancedUnit::Connection, all("bouncer")),
        ]);
        ServerCluster { nodes, balancer, ways, database, queue, network, _objects: objects }
    }

    /// Returns a port of the balancer.
    #[must_use]
    pub fn port(&self, port: BalancedPort) -> SocketAddr {
        self.balancer.address(port as usize)
    }

    /// Returns one of the nodes.
    #[must_use]
    pub fn first(&self) -> &Server {
        &self.nodes[0]
    }

    /// Returns a client whose requests or connections go to changing nodes.
    #[must_use]
    pub fn client(&self, port: BalancedPort) -> Client {
        Client::new(self.port(port), Some(self.first().token().to_owned()))
    }
}
