//! Tenants of the bouncer with small limits, which are served at few of several nodes: clients of
//! the other nodes are passed there.

mod executions;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use testkit::my::command;
use testkit::pg::cancel_request;
use testkit::{
    Certificate, MariaDb, MyClient, MyFailure, MyLogin, MyValue, PgAddress, PgBatch, PgClient,
    PgFailure, Postgres, Request, Scratch, Server, nodes_seen_by, until,
};

use crate::cluster::{Pair, drain};
use crate::sessions_support::ok;
use crate::support::{SOON, beside_others};

/// Clients of the tenant on all nodes together.
const CLIENTS_MAX: usize = 6;

/// Transactions of each client.
const TRANSACTIONS: usize = 40;

/// Two nodes, one of which is the home of a tenant that may have one server connection.
struct HomePair {
    pair: Pair,
    /// True if the first node is the home.
    is_one: bool,
    certificate: Certificate,
    _scratch: Scratch,
}

impl HomePair {
    /// Starts them. `tenant` is the definition of `shop`, without its name and limits.
    fn start(tenant: &str, limits: &str) -> HomePair {
        let scratch = Scratch::new();
        let certificate = Certificate::new(&scratch);
        let settings = "cluster.limits = \"strict\"\ncluster.lease_ms = 3000\n";
        let bouncer = format!(
            "ready = 0\n[bouncer]\n[bouncer.mysql]\nlisten = \"127.0.0.1:0\"\n[bouncer.tls]\n\
             cert = \"{}\"\nkey = \"{}\"\n[[bouncer.tenants]]\nname = \"shop\"\n{tenant}\n\
             limits = {{ {limits} }}\n",
            certificate.certificate.display(),
            certificate.key.display(),
        );
        let mut pair = Pair::start_with(settings, &bouncer);
        for node in [&mut pair.one, &mut pair.two] {
            // On a busy machine a start may take longer than a lease.
            node.expect_log("the lease of this server is over");
            node.expect_log("this server has not reached the store for so long");
        }
        HomePair { pair, is_one: true, certificate, _scratch: scratch }
    }

    fn of_postgres(backend: &Postgres) -> HomePair {
        backend.sql("CREATE ROLE app LOGIN PASSWORD 'pw'");
        let tenant = format!(
            "server = \"{}\"\ndatabase = \"postgres\"\n\
             users = [{{ name = \"app\", password = \"pw\" }}]",
            backend.tcp()
        );
        let limits =
            format!("server_connections_max = 1, clients_max = {CLIENTS_MAX}, wait_s = 60.0");
        let mut pair = HomePair::start(&tenant, &limits);
        let client = pg(&pair.pair.one);
        pair.is_one = id(&pair.pair.one) == pair.home_of(client.pid);
        client.close();
        pair
    }

    fn of_mysql(maria: &MariaDb) -> HomePair {
        maria.user("app", "pw");
        let tenant = format!(
            "engine = \"mysql\"\nserver = \"{}\"\ndatabase = \"information_schema\"\n\
             users = [{{ name = \"app\", password = \"pw\" }}]",
            maria.tcp()
        );
        let mut pair = HomePair::start(&tenant, "server_connections_max = 1, wait_s = 60.0");
        let client = my(&pair.pair.one);
        pair.is_one = id(&pair.pair.one) == pair.home_of(client.greeting.thread_id);
        client.close();
        pair
    }

    fn home(&self) -> &Server {
        if self.is_one { &self.pair.one } else { &self.pair.two }
    }

    fn home_mut(&mut self) -> &mut Server {
        if self.is_one { &mut self.pair.one } else { &mut self.pair.two }
    }

    fn front(&self) -> &Server {
        if self.is_one { &self.pair.two } else { &self.pair.one }
    }

    fn front_mut(&mut self) -> &mut Server {
        if self.is_one { &mut self.pair.two } else { &mut self.pair.one }
    }

    /// Returns the node that serves a client.
    fn home_of(&self, pid: u32) -> String {
        until("the client to be listed", SOON, || {
            let clients = listed(&self.pair.one, "clients");
            let found = clients.iter().find(|it| it["pid"] == pid);
            found.map(|it| text(&it["node"])).ok_or_else(|| format!("{clients:?}"))
        })
    }
}

fn id(server: &Server) -> String {
    let nodes = nodes_seen_by(server);
    let this = nodes.iter().find(|node| node["is_this"] == true);
    text(&this.expect("a node knows itself")["id"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns clients or server connections of the tenant on all nodes.
fn listed(server: &Server, what: &str) -> Vec<Value> {
    let list = ok(&server.client().get(&format!("/v1/tenants/shop/{what}")));
    list[what].as_array().unwrap().clone()
}

/// Returns a metric of the tenant on one node.
fn metric(server: &Server, name: &str) -> u64 {
    let text = server.client().get("/metrics").text();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| {
        let (labels, value) = rest.strip_prefix('{')?.split_once("} ")?;
        labels.contains("tenant=\"shop\"").then(|| value.parse().unwrap())
    });
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn pg_address(server: &Server) -> PgAddress {
    PgAddress::Tcp(server.listener("bouncer"))
}

fn try_pg(server: &Server) -> Result<PgClient, PgFailure> {
    let parameters = [("user", "app"), ("database", "shop"), ("application_name", "till")];
    PgClient::login(&pg_address(server), &parameters, "pw")
}

fn pg(server: &Server) -> PgClient {
    try_pg(server).unwrap()
}

fn my(server: &Server) -> MyClient {
    let address = PgAddress::Tcp(server.listener("mysql"));
    MyClient::login(&address, &MyLogin::new("app", "pw", "shop")).unwrap()
}

/// Returns the error that ends a client's connection.
fn end_of(client: &mut PgClient) -> Option<(String, String)> {
    let (is_over, messages) = client.end();
    assert!(is_over, "the client is there yet");
    let error = messages.iter().find(|message| message.tag == b'E')?.error();
    Some((error.code().to_owned(), error.message().to_owned()))
}

fn wait_for_sleep(backend: &Postgres, marker: &str) {
    until("the statement to run", SOON, || {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%{marker}%' \
             AND usename = 'app' AND state = 'active'"
        );
        let count = backend.sql(&sql);
        if count.trim() == "1" { Ok(()) } else { Err(count) }
    });
}

/// Ends a sampler on drop, even if the test fails.
struct SamplerEnd<'a>(&'a AtomicBool);

impl Drop for SamplerEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Six clients of two nodes alternate on one connection without waiting for a node's share.
#[test]
fn clients_of_all_nodes_are_served_at_the_home_of_a_small_limit() {
    let _guard = beside_others();
    let backend = Postgres::start();
    let nodes = HomePair::of_postgres(&backend);
    let (home, front) = (nodes.home(), nodes.front());
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
                most = most.max(backend.sql(sql).trim().parse().unwrap());
            }
            most
        });
        let end = SamplerEnd(&is_over);
        let clients: Vec<PgClient> =
            [home, front].into_iter().cycle().take(CLIENTS_MAX).map(pg).collect();
        let shown = listed(front, "clients");
        assert_eq!(shown.len(), CLIENTS_MAX, "{shown:?}");
        for client in &shown {
            assert_eq!(text(&client["node"]), id(home), "{client}");
            assert_eq!((&client["user"], &client["tls"]), (&"app".into(), &false.into()));
            assert_eq!(client["application_name"], "till");
            assert!(text(&client["address"]).parse::<SocketAddr>().is_ok(), "{client}");
        }
        let passed = metric(front, "cove_bouncer_clients_passed");
        assert_eq!(passed, CLIENTS_MAX as u64 / 2);
        assert_eq!(metric(front, "cove_bouncer_clients"), 0);
        assert_eq!(metric(home, "cove_bouncer_clients_passed"), 0);
        // A client beyond the limit gets the usual error at any node.
        for server in [home, front] {
            match try_pg(server) {
                Err(PgFailure::Server(error)) => {
                    let expected = "too many clients of this tenant: `limits.clients_max` is 6";
                    assert_eq!((error.code(), error.message()), ("53300", expected));
                }
                other => panic!("{other:?}"),
            }
        }
        let working: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    for number in 0..TRANSACTIONS {
                        let sql = format!("BEGIN; SELECT {number}; COMMIT");
                        assert_eq!(client.run(&sql).value(), number.to_string());
                    }
                })
            })
            .collect();
        let ended: Vec<_> = working.into_iter().map(thread::ScopedJoinHandle::join).collect();
        drop(end);
        assert!(ended.iter().all(Result::is_ok), "a client was not served");
        sampler.join().unwrap()
    });
    assert_eq!(most, 1, "connections at one time");
    assert_eq!(metric(front, "cove_bouncer_connections_opened_total"), 0);
    assert_eq!(metric(home, "cove_bouncer_connections_opened_total"), 1);
    assert_eq!(metric(home, "cove_bouncer_transactions_total"), 240);
    for server in [home, front] {
        until("all clients to be gone", SOON, || match listed(server, "clients") {
            clients if clients.is_empty() => Ok(()),
            clients => Err(format!("{clients:?}")),
        });
    }
    until("nobody to be passed", SOON, || match metric(front, "cove_bouncer_clients_passed") {
        0 => Ok(()),
        passed => Err(passed.to_string()),
    });
}

/// A session works fully through the node that its client has connected to.
#[test]
fn a_session_of_postgresql_works_through_another_node() {
    let _guard = beside_others();
    let backend = Postgres::start();
    let nodes = HomePair::of_postgres(&backend);
    let (home, front) = (nodes.home(), nodes.front());
    let mut client = pg(front);
    assert_eq!(client.value("SHOW application_name"), "till");

    // Prepared statements, and a failing one.
    let prepare = PgBatch::new().parse("add", "SELECT $1::int + $2::int").sync();
    client.ask(&prepare).unwrap();
    for number in 0..20 {
        let value = number.to_string();
        let batch = PgBatch::new().bind("", "add", &[Some(&value), Some("1")]);
        let answer = client.ask(&batch.execute("", 0).sync()).unwrap();
        assert_eq!(answer.value(), (number + 1).to_string());
    }
    assert_eq!(client.fail("SELECT 1 / 0").code(), "22012");

    // Large data in both directions: more than all buffers on the path hold.
    client.run("SET search_path = pg_temp, public");
    client.run("BEGIN");
    client.run("CREATE TEMPORARY TABLE goods (id int, name text) ON COMMIT DROP");
    client.send(&PgBatch::new().query("COPY goods FROM STDIN").0).unwrap();
    let line = format!("7\t{}\n", "x".repeat(1000));
    let rows = 4_000;
    for _ in 0..rows / 1000 {
        client.send(&PgBatch::new().copy_data(line.repeat(1000).as_bytes()).0).unwrap();
    }
    client.send(&PgBatch::new().copy_done().0).unwrap();
    assert_eq!(client.answer().unwrap().tags(), [format!("COPY {rows}")]);
    assert_eq!(client.value("SELECT sum(length(name)) FROM goods"), "4000000");
    let answer = client.run("COPY goods TO STDOUT");
    assert_eq!(answer.tags(), [format!("COPY {rows}")]);
    let answer = client.run("SELECT * FROM goods");
    assert_eq!(answer.rows().len(), rows);
    client.run("COMMIT");

    // Cancelled through either node.
    for (number, server) in [front, home].into_iter().enumerate() {
        let marker = format!("cancelled {number}");
        let sql = format!("SELECT pg_sleep(60), '{marker}'");
        client.send(&PgBatch::new().query(&sql).0).unwrap();
        wait_for_sleep(&backend, &marker);
        let mut other = PgClient::open(&pg_address(server)).unwrap();
        other.send(&cancel_request(client.pid, &client.key)).unwrap();
        assert!(other.end().0, "a cancel request is closed");
        assert_eq!(client.answer().unwrap().error().unwrap().code(), "57014");
    }

    // A client that closes its sending half receives the pending responses.
    client.send(&PgBatch::new().query("SELECT 7 FROM pg_sleep(0.2)").0).unwrap();
    client.finish();
    assert_eq!(client.answer().unwrap().value(), "7");
    assert!(client.end().0, "the client is gone");

    // The statement of a disconnected client is cancelled.
    let mut gone = pg(front);
    gone.send(&PgBatch::new().query("SELECT pg_sleep(600), 'abandoned'").0).unwrap();
    wait_for_sleep(&backend, "abandoned");
    drop(gone);
    let mut client = pg(front);
    assert_eq!(client.value("SELECT 8"), "8");

    // TLS ends at the node that the client has connected to.
    let address = front.listener("bouncer");
    let target = format!(
        "host=localhost hostaddr={} port={} user=app dbname=shop sslmode=verify-full \
         sslrootcert={}",
        address.ip(),
        address.port(),
        nodes.certificate.certificate.display()
    );
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-d", &target, "-c", "SELECT 9"]).env("PGPASSWORD", "pw");
    let output = psql.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "9\n", "{output:?}");
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-d", &target, "-c", "SELECT pg_sleep(60), 'over TLS'"]);
    let mut psql = psql.env("PGPASSWORD", "pw").spawn().unwrap();
    wait_for_sleep(&backend, "over TLS");
    let encrypted: Vec<Value> =
        listed(front, "clients").into_iter().filter(|it| it["tls"] == true).collect();
    assert_eq!(encrypted.len(), 1, "{encrypted:?}");
    // Closed through the node that does not serve it.
    let target = format!("/v1/tenants/shop/clients/{}", encrypted[0]["pid"]);
    assert_eq!(front.client().send(&Request::new("DELETE", &target)).status, 204);
    assert!(!psql.wait().unwrap().success(), "it was closed");
    assert_eq!(client.value("SELECT 10"), "10");
}

/// MySQL clients of a tenant with a small limit.
#[test]
fn clients_of_mysql_are_served_at_the_home_of_a_small_limit() {
    let _guard = beside_others();
    let maria = MariaDb::start();
    let nodes = HomePair::of_mysql(&maria);
    let (home, front) = (nodes.home(), nodes.front());
    let mut clients: Vec<MyClient> =
        [home, front].into_iter().cycle().take(CLIENTS_MAX).map(my).collect();
    let shown = listed(front, "clients");
    assert!(shown.iter().all(|it| text(&it["node"]) == id(home)), "{shown:?}");
    // The connection ids that any node reported at login.
    for client in &clients {
        assert!(shown.iter().any(|it| it["pid"] == client.greeting.thread_id), "{shown:?}");
    }
    assert_eq!(metric(front, "cove_bouncer_clients_passed"), CLIENTS_MAX as u64 / 2);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || {
                for number in 0..TRANSACTIONS {
                    client.run("BEGIN");
                    assert_eq!(client.value(&format!("SELECT {number}")), number.to_string());
                    client.run("COMMIT");
                }
            });
        }
    });
    assert_eq!(metric(front, "cove_bouncer_connections_opened_total"), 0);
    assert_eq!(metric(home, "cove_bouncer_connections_opened_total"), 1);
    clients.truncate(2);

    let [_at_home, client] = &mut clients[..] else { panic!("two clients") };
    let statement = client.prepare("SELECT ? + 1").unwrap();
    for number in 0..20 {
        let answer = client.execute(&statement, &[MyValue::Int(number)]).unwrap();
        assert!(answer.error().is_none(), "{answer:?}");
    }
    assert_eq!(client.value("SELECT LENGTH(REPEAT('x', 1000000))"), "1000000");
    let long = client.value("SELECT REPEAT('y', 8000000)");
    assert!(long.len() == 8_000_000 && long.bytes().all(|it| it == b'y'));
    assert_eq!(client.value(&format!("SELECT LENGTH('{}')", "z".repeat(1_000_000))), "1000000");

    // Killed through the node that does not serve it, by a client of another node.
    let number = client.greeting.thread_id;
    client.command(command::QUERY, b"SELECT SLEEP(60)").unwrap();
    until("the statement to run", SOON, || {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist \
            WHERE info LIKE '%SLEEP(60)%' AND user = 'app'";
        let count = maria.sql(sql);
        if count.trim() == "1" { Ok(()) } else { Err(count) }
    });
    let mut killer = my(front);
    killer.run(&format!("KILL QUERY {number}"));
    let answer = client.answer().unwrap();
    assert!(answer.error().is_some_and(|error| error.code == 1317) || answer.value() == "1");

    // The client changes its user at the home, to itself and to an unknown user.
    client.change_user(&MyLogin::new("app", "pw", "shop")).unwrap();
    assert_eq!(client.value("SELECT 2"), "2");
    killer.run(&format!("KILL {number}"));
    until("the connection to end", SOON, || match client.query("SELECT 1") {
        Ok(answer) if answer.error().is_none() => Err("it is there".to_owned()),
        Ok(_) | Err(_) => Ok(()),
    });
    match killer.change_user(&MyLogin::new("app", "wrong", "shop")) {
        Err(MyFailure::Server(error)) => assert_eq!(error.code, 1045, "{error:?}"),
        other => panic!("{other:?}"),
    }

    // TLS ends at the node that the client has connected to.
    let address = front.listener("mysql");
    let mut mariadb = Command::new("mariadb");
    mariadb.args(["--no-defaults", "--protocol=tcp", "--ssl", "-h", &address.ip().to_string()]);
    mariadb.args(["-P", &address.port().to_string(), "-u", "app", "-ppw", "-BN", "shop"]);
    let output = mariadb.args(["-e", "SELECT 9"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "9\n", "{output:?}");
}

/// Clients of a lost home get an error, and another node serves them when they reconnect.
#[test]
fn clients_whose_home_is_lost_come_again() {
    let _guard = beside_others();
    let backend = Postgres::start();
    let mut nodes = HomePair::of_postgres(&backend);
    let home = id(nodes.home());
    let (mut idle, mut busy) = (pg(nodes.front()), pg(nodes.front()));
    assert_eq!(idle.value("SELECT 1"), "1");
    busy.send(&PgBatch::new().query("SELECT pg_sleep(60), 'lost'").0).unwrap();
    wait_for_sleep(&backend, "lost");
    nodes.front_mut().expect_log("nothing listens at its address");
    nodes.home().signal("KILL");
    for client in [&mut idle, &mut busy] {
        let (code, message) = end_of(client).expect("an error");
        let expected = "terminating connection: the node that served it is lost, connect again";
        assert_eq!((&*code, &*message), ("57P01", expected));
    }
    // The lost node's share is free when its process is known to have ended.
    let front = nodes.front();
    let mut client = until("the other node to serve", SOON, || {
        try_pg(front).map_err(|error| format!("{error:?}"))
    });
    assert_eq!(client.value("SELECT 2"), "2");
    assert_eq!(nodes_of(front), [id(front)]);
    assert_ne!(id(front), home);
    assert_eq!(metric(front, "cove_bouncer_clients_passed"), 0);
    nodes.home_mut().wait(SOON);
}

/// Returns the nodes that serve clients of the tenant.
fn nodes_of(server: &Server) -> Vec<String> {
    let mut nodes: Vec<String> =
        listed(server, "clients").iter().map(|it| text(&it["node"])).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

/// A draining home keeps its clients until it stops.
#[test]
fn a_home_that_drains_gets_no_more_clients() {
    let _guard = beside_others();
    let backend = Postgres::start();
    let mut nodes = HomePair::of_postgres(&backend);
    let (home, front) = (id(nodes.home()), id(nodes.front()));
    let mut before = pg(nodes.front());
    assert_eq!(before.value("SELECT 1"), "1");
    drain(nodes.home(), "drain");
    // The other node becomes the home as soon as it knows.
    until("a client to be served elsewhere", SOON, || {
        let mut client = try_pg(nodes.front()).map_err(|error| format!("{error:?}"))?;
        client.value("SELECT 2");
        let served = nodes_of(nodes.front());
        client.close();
        if served.contains(&front) { Ok(()) } else { Err(format!("{served:?}")) }
    });
    assert_eq!(before.value("SELECT 3"), "3");
    assert_eq!(nodes.home_of(before.pid), home);
    nodes.home().signal("TERM");
    let (code, message) = end_of(&mut before).expect("an error");
    let expected = "terminating connection: the server is stopping";
    assert_eq!((&*code, &*message), ("57P01", expected));
    nodes.home_mut().wait(SOON);
    let mut after = pg(nodes.front());
    assert_eq!(after.value("SELECT 4"), "4");
    assert_eq!(nodes_of(nodes.front()), [front]);
}

/// When a node stops, its clients are disconnected where they are served, between transactions.
#[test]
fn clients_of_a_front_that_stops_are_seen_off() {
    let _guard = beside_others();
    let backend = Postgres::start();
    let mut nodes = HomePair::of_postgres(&backend);
    let (mut idle, mut busy) = (pg(nodes.front()), pg(nodes.front()));
    assert_eq!(idle.value("SELECT 1"), "1");
    assert_eq!(busy.run("BEGIN").tags(), ["BEGIN"]);
    let mut at_home = pg(nodes.home());
    nodes.front().signal("TERM");
    let expected =
        ("57P01".to_owned(), "terminating connection: the server is stopping".to_owned());
    assert_eq!(end_of(&mut idle), Some(expected.clone()));
    assert_eq!(busy.value("SELECT 2"), "2");
    busy.send(&PgBatch::new().query("COMMIT").0).unwrap();
    assert_eq!(end_of(&mut busy), Some(expected));
    nodes.front_mut().wait(SOON);
    assert_eq!(at_home.value("SELECT 3"), "3");
    assert_eq!(listed(nodes.home(), "clients").len(), 1);
}
