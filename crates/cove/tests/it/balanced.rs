//! Third-party clients, unmodified, on three servers behind a balancer without session affinity: it
//! sends each request, or each connection, to the next server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use testkit::{
    BalancedPort, Network, PgAddress, PgBatch, PgClient, Postgres, Request, ServerCluster, until,
};

use crate::asynchronous::post;
use crate::backends::{GIVEN_UP, check_producer};
use crate::sessions_claude::Model;
use crate::sessions_support::{Sessions, config, ok, probe};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, SOON, beside_others, run, shell};
use crate::{ash, e2b, foreign, gojudge};

fn start(network: Network, of_sessions: &str) -> ServerCluster {
    ServerCluster::start(COVE, network, Postgres::shared(), &config(of_sessions))
}

#[test]
fn interfaces_of_judges_are_served() {
    let _guard = beside_others();
    let mut cluster = start(Network::start(3), "ready = 0");
    for node in &mut cluster.nodes {
        GIVEN_UP.iter().for_each(|text| node.expect_log(text));
    }
    // Any node may run jobs that a BullMQ producer puts into the queue.
    check_producer(&cluster.queue, || cluster.first().log());
    let at = |group| cluster.port(group);
    for group in [BalancedPort::Requests, BalancedPort::Connections] {
        foreign::python_at("piston/clients.py", cluster.first(), at(group), "/compat/piston");
        foreign::python_at("judge0/clients.py", cluster.first(), at(group), "/compat/judge0");
        gojudge::check_kept_files(&cluster.client(group), |_, _| {});
    }
    for _ in 0..6 {
        assert_eq!(
            run(&cluster.client(BalancedPort::Requests), &shell("echo fine"))["stdout"],
            "fine\n"
        );
    }
}

#[test]
fn clients_of_e2b_are_served() {
    let _guard = beside_others();
    let cluster = start(Network::start(3), "ready = 0\nmemory_bytes = 536870912");
    let at = cluster.port(BalancedPort::E2b);
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
    let cluster = start(network, &format!("ready = 0\n{settings}"));
    for (program, client) in
        [(interpreter(), "ash/client.py"), (Path::new("node"), "ash/client.mjs")]
    {
        let mut command = Command::new(program);
        command.arg(Path::new(COMPAT).join(client));
        ash::client_at(cluster.first(), cluster.port(BalancedPort::Requests), command);
    }
}

/// Starts PostgreSQL's own client with a statement.
fn psql(address: SocketAddr, sql: &str) -> Child {
    let target = format!(
        "host={} port={} user=balanced dbname=shop connect_timeout=20",
        address.ip(),
        address.port()
    );
    let mut psql = Command::new("setpriv");
    psql.args(["--pdeathsig", "KILL", "--", "psql", "-XAtq", "-d", &target, "-c", sql]);
    psql.env("PGPASSWORD", "pw").stdin(Stdio::null()).stdout(Stdio::piped());
    psql.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn sessions_and_databases_are_served() {
    let _guard = beside_others();
    let backend = Postgres::start();
    backend.sql("CREATE ROLE balanced LOGIN PASSWORD 'pw'");
    let network = Network::start(3);
    let way = network.expose(backend.tcp());
    let cluster = start(network, "ready = 0");
    let sessions = Sessions { client: cluster.client(BalancedPort::Requests) };
    sessions.deploy(&probe("probe"));
    let id = sessions.create(&json!({"agent": "probe"}));
    for number in 0..9 {
        let body = json!({"command": format!("echo {number} >> kept; wc -l < kept")});
        let answer = ok(&post(&sessions.client, &format!("/v1/sessions/{id}/exec"), &body));
        assert_eq!(answer["stdout"], format!("{}\n", number + 1));
    }
    let tenant = json!({
        "name": "shop", "server": way.address(), "database": "postgres",
        "users": [{"name": "balanced", "password": "pw"}],
    });
    assert_eq!(post(&sessions.client, "/v1/tenants", &tenant).status, 201);
    let bouncer = PgAddress::Tcp(cluster.port(BalancedPort::Postgres));
    let parameters = [("user", "balanced"), ("database", "shop")];
    let mut clients: Vec<PgClient> =
        (0..6).map(|_| PgClient::login(&bouncer, &parameters, "pw").unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.value(&format!("SELECT {number} + 1")), (number + 1).to_string());
    }
    let stats = ok(&sessions.client.get("/v1/tenants/shop/stats"));
    assert_eq!((&stats["nodes"], &stats["clients"]), (&json!(3), &json!(6)), "{stats}");
    // psql's Ctrl+C works on any node that receives the request.
    for client in &mut clients {
        client.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
        let running = || {
            let count = backend.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%(60)%' \
                AND usename = 'balanced' AND state = 'active'",
            );
            count.trim().to_owned()
        };
        until("the statement to run", SOON, || match running().as_str() {
            "0" => Err("it has not begun".to_owned()),
            _ => Ok(()),
        });
        let cancel = testkit::pg::cancel_request(client.pid, &client.key);
        until("the statement to be cancelled", SOON, || {
            let mut other = PgClient::open(&bouncer).unwrap();
            other.send(&cancel).unwrap();
            other.end();
            match running() {
                count if count == "0" => Ok(()),
                count => Err(count),
            }
        });
        assert_eq!(client.answer().unwrap().error().unwrap().code(), "57014");
    }
    // The same with psql, which reports the result itself.
    for number in 0..3 {
        let sql = format!("SELECT pg_sleep(60), 'psql {number}'");
        let psql = psql(cluster.port(BalancedPort::Postgres), &sql);
        until("the statement to run", SOON, || {
            let runs = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'balanced' \
                 AND state = 'active' AND query LIKE '%psql {number}%'"
            );
            if backend.sql(&runs) == "1" { Ok(()) } else { Err("it does not".to_owned()) }
        });
        testkit::process::signal(psql.id(), "INT");
        let output = psql.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("canceling statement due to user request"), "{stderr}");
    }
    let gone = Request::new("DELETE", &format!("/v1/sessions/{id}"));
    assert!(sessions.client.send(&gone).status < 300);
}
