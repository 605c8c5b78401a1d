//! Clients that others wrote, unmodified, at three servers behind a balancer that knows nothing of
//! them: it hands each request, or each connection, to the next server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use testkit::{
    BalancedUnit, Balancer, Client, Cutter, Network, NetworkPlace, PgAddress, PgBatch, PgClient,
    Postgres, Redis, Request, S3, Server, until,
};

use crate::asynchronous::post;
use crate::cluster::{address, config_with, wait_for_each_other};
use crate::sessions_claude::Model;
use crate::sessions_support::{Sessions, ok, probe};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, SOON, beside_others, run, shell};
use crate::{ash, e2b, foreign, gojudge};

/// Three nodes, on machines of a network of their own, and a balancer before them. They share
/// PostgreSQL, Redis and a service that speaks S3's protocol.
pub(crate) struct Cluster {
    pub(crate) nodes: [Server; 3],
    pub(crate) balancer: Balancer,
    /// The ways of the nodes to the database, the queue and the objects.
    pub(crate) ways: [Cutter; 3],
    pub(crate) database: Arc<Postgres>,
    pub(crate) queue: Redis,
    pub(crate) network: Network,
    _objects: S3,
}

/// Places of the balancer's groups.
pub(crate) const REQUESTS: usize = 0;
pub(crate) const CONNECTIONS: usize = 1;
pub(crate) const E2B: usize = 2;
pub(crate) const BOUNCER: usize = 3;

impl Cluster {
    fn start(network: Network, of_sessions: &str) -> Cluster {
        Cluster::start_with(network, Postgres::shared(), of_sessions)
    }

    pub(crate) fn start_with(
        network: Network,
        database: Arc<Postgres>,
        of_sessions: &str,
    ) -> Cluster {
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
        let config = config_with(&store, &settings, of_sessions);
        let of_node = |place: &NetworkPlace| {
            let [peers, e2b] = [4190, 4180].map(|port| place.listener(port));
            let config = config.replace("127.0.0.1:0", &peers.to_string());
            format!("compat.e2b.listen = \"{e2b}\"\n{config}")
        };
        let [first, second, third] = [0, 1, 2].map(|machine| network.place(machine));
        let one = Server::start_at(first.clone(), COVE, &of_node(&first));
        let two = one.start_beside_on(second.clone(), &of_node(&second));
        let three = one.start_beside_on(third.clone(), &of_node(&third));
        wait_for_each_other(&[&one, &two, &three]);
        let nodes = [one, two, three];
        let all = |of: fn(&Server) -> SocketAddr| nodes.iter().map(of).collect::<Vec<_>>();
        let main = all(|node| node.client().address());
        let balancer = Balancer::start(&[
            (BalancedUnit::Request, main.clone()),
            (BalancedUnit::Connection, main),
            (BalancedUnit::Request, all(e2b::address)),
            (BalancedUnit::Connection, all(|node| address(node, "bouncer"))),
        ]);
        Cluster { nodes, balancer, ways, database, queue, network, _objects: objects }
    }

    pub(crate) fn first(&self) -> &Server {
        &self.nodes[0]
    }

    /// A client whose every request may go to another node.
    pub(crate) fn client(&self, group: usize) -> Client {
        Client::new(self.balancer.address(group), Some(self.first().token().to_owned()))
    }
}

#[test]
fn interfaces_of_judges_are_served() {
    let _guard = beside_others();
    let cluster = Cluster::start(Network::start(3), "ready = 0");
    let at = |group| cluster.balancer.address(group);
    for group in [REQUESTS, CONNECTIONS] {
        foreign::python_at("piston/clients.py", cluster.first(), at(group), "/compat/piston");
        foreign::python_at("judge0/clients.py", cluster.first(), at(group), "/compat/judge0");
        gojudge::check_kept_files(&cluster.client(group), |_, _| {});
    }
    for _ in 0..6 {
        assert_eq!(run(&cluster.client(REQUESTS), &shell("echo fine"))["stdout"], "fine\n");
    }
}

#[test]
fn clients_of_e2b_are_served() {
    let _guard = beside_others();
    let cluster = Cluster::start(Network::start(3), "ready = 0\nmemory_bytes = 536870912");
    let at = cluster.balancer.address(E2B);
    let client = Path::new(COMPAT).join("e2b/client.py");
    e2b::run_client_at(cluster.first(), at, Command::new(interpreter()).arg(client));
    let mut node = Command::new("node");
    node.arg("client.mjs").current_dir(e2b::project());
    e2b::run_client_at(cluster.first(), at, &mut node);
}

#[test]
fn clients_of_ash_are_served() {
    let _guard = beside_others();
    let (model, network) = (Model::start(), Network::start(3));
    let way = network.expose(model.address());
    let settings = model.settings_at(way.address());
    let cluster = Cluster::start(network, &format!("ready = 0\n{settings}"));
    for (program, client) in
        [(interpreter(), "ash/client.py"), (Path::new("node"), "ash/client.mjs")]
    {
        let mut command = Command::new(program);
        command.arg(Path::new(COMPAT).join(client));
        ash::client_at(cluster.first(), cluster.balancer.address(REQUESTS), command);
    }
}

#[test]
fn sessions_and_databases_are_served() {
    let _guard = beside_others();
    let backend = Postgres::start();
    backend.sql("CREATE ROLE balanced LOGIN PASSWORD 'pw'");
    let network = Network::start(3);
    let way = network.expose(backend.tcp());
    let cluster = Cluster::start(network, "ready = 0");
    let sessions = Sessions { client: cluster.client(REQUESTS) };
    sessions.deploy(&probe("probe"));
    let id = sessions.create(&json!({"agent": "probe"}));
    for number in 0..9 {
        let asked = json!({"command": format!("echo {number} >> kept; wc -l < kept")});
        let answer = ok(&post(&sessions.client, &format!("/v1/sessions/{id}/exec"), &asked));
        assert_eq!(answer["stdout"], format!("{}\n", number + 1));
    }
    let tenant = json!({
        "name": "shop", "server": way.address(), "database": "postgres",
        "users": [{"name": "balanced", "password": "pw"}],
    });
    assert_eq!(post(&sessions.client, "/v1/tenants", &tenant).status, 201);
    for node in &cluster.nodes {
        until("the tenant to be known", SOON, || {
            let found = node.client().get("/v1/tenants/shop");
            if found.status == 200 { Ok(()) } else { Err(found.text()) }
        });
    }
    let bouncer = PgAddress::Tcp(cluster.balancer.address(BOUNCER));
    let parameters = [("user", "balanced"), ("database", "shop")];
    let mut clients: Vec<PgClient> =
        (0..6).map(|_| PgClient::login(&bouncer, &parameters, "pw").unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.value(&format!("SELECT {number} + 1")), (number + 1).to_string());
    }
    let stats = ok(&sessions.client.get("/v1/tenants/shop/stats"));
    assert_eq!((&stats["nodes"], &stats["clients"]), (&json!(3), &json!(6)), "{stats}");
    // Ctrl+C of psql: whichever node the request reaches.
    for client in &mut clients {
        client.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
        let cancel = testkit::pg::cancel_request(client.pid, &client.key);
        until("the statement to be cancelled", SOON, || {
            let mut other = PgClient::open(&bouncer).unwrap();
            other.send(&cancel).unwrap();
            other.end();
            match backend.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%(60)%' \
                AND usename = 'balanced' AND state = 'active'",
            ) {
                count if count.trim() == "0" => Ok(()),
                count => Err(count),
            }
        });
        assert_eq!(client.answer().unwrap().error().unwrap().code(), "57014");
    }
    let gone = Request::new("DELETE", &format!("/v1/sessions/{id}"));
    assert!(sessions.client.send(&gone).status < 300);
}
