//! Servers on one store act as one bouncer, whichever receives a request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;
use testkit::my::command;
use testkit::pg::cancel_request;
use testkit::{
    Client, MariaDb, MyClient, MyFailure, MyLogin, PgAddress, PgBatch, PgClient, PgFailure,
    Postgres, Request, Server, Stopwatch, until,
};

use crate::asynchronous::post;
use crate::cluster::Pair;
use crate::sessions_support::ok;
use crate::support::{SOON, beside_others, wait_for_log};

#[test]
fn a_cancel_request_reaches_its_client_through_any_node() {
    let _guard = beside_others();
    let backend = Postgres::start();
    backend.sql("CREATE ROLE cancelled LOGIN PASSWORD 'pw'");
    let tenant = format!(
        "[bouncer]\n[[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\n\
         database = \"postgres\"\nusers = [{{ name = \"cancelled\", password = \"pw\" }}]\n",
        backend.tcp()
    );
    let pair = Pair::start_with("", &format!("ready = 0\n{tenant}"));
    let bouncer = |server: &Server| PgAddress::Tcp(server.listener("bouncer"));
    let parameters = [("user", "cancelled"), ("database", "shop")];
    let mut client = PgClient::login(&bouncer(&pair.one), &parameters, "pw").unwrap();
    let pid = client.pid;
    let cancel = |key: &[u8]| {
        let mut other = PgClient::open(&bouncer(&pair.two)).unwrap();
        other.send(&cancel_request(pid, key)).unwrap();
        assert!(other.end().0, "a cancel request is closed");
    };
    let mut wrong = client.key.clone();
    wrong[0] ^= 1;
    let started = Stopwatch::start();
    client.send(&PgBatch::new().query("SELECT pg_sleep(60)").0).unwrap();
    until("the statement to run", SOON, || {
        let sql = "SELECT count(*) FROM pg_stat_activity \
            WHERE usename = 'cancelled' AND query LIKE '%pg_sleep(60)%' AND state = 'active'";
        let count = backend.sql(sql);
        if count.trim() == "1" { Ok(()) } else { Err(count) }
    });
    cancel(&wrong);
    cancel(&client.key);
    let answer = client.answer().unwrap();
    assert_eq!(answer.error().unwrap().code(), "57014");
    assert!(started.elapsed() < SOON);
    // The next statement is not affected by the request.
    assert_eq!(client.value("SELECT 1"), "1");
}

/// `KILL` with a client's connection id works on any node.
#[test]
fn a_client_of_mysql_is_killed_through_any_node() {
    let _guard = beside_others();
    let maria = MariaDb::start();
    for user in ["killed", "other"] {
        maria.user(user, "pw");
    }
    let pair = Pair::start("bouncer.mysql.listen = \"127.0.0.1:0\"\n");
    let users = ["killed", "other"].map(|name| json!({"name": name, "password": "pw"}));
    let tenant = json!({
        "name": "shop", "engine": "mysql", "server": maria.tcp().to_string(),
        "database": "information_schema", "users": users,
    });
    assert_eq!(post(&pair.one.client(), "/v1/tenants", &tenant).status, 201);
    let login = |server: &Server, user: &str| {
        let address = PgAddress::Tcp(server.listener("mysql"));
        until("the tenant to be known", SOON, || {
            let client = MyClient::login(&address, &MyLogin::new(user, "pw", "shop"));
            client.map_err(|error| format!("{error:?}"))
        })
    };
    let mut client = login(&pair.one, "killed");
    let (mut there, mut other) = (login(&pair.two, "killed"), login(&pair.two, "other"));
    let id = client.greeting.thread_id;
    let code = |client: &mut MyClient, sql: &str| {
        client.query(sql).unwrap().error().map_or(0, |error| error.code)
    };
    client.command(command::QUERY, b"SELECT SLEEP(60)").unwrap();
    until("the statement to run", SOON, || {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(60)%' \
            AND user = 'killed'";
        let count = maria.sql(sql);
        if count.trim() == "1" { Ok(()) } else { Err(count) }
    });
    // Only the same user may kill, and only existing connections.
    assert_eq!(code(&mut other, &format!("KILL QUERY {id}")), 1094);
    assert_eq!(code(&mut there, "KILL QUERY 4000000000"), 1094);
    // A command that is sent after `KILL QUERY` waits for its response.
    there.command(command::QUERY, format!("KILL QUERY {id}").as_bytes()).unwrap();
    there.command(command::QUERY, b"SELECT 7").unwrap();
    assert!(there.answer().unwrap().error().is_none());
    // Each response is numbered from its command on.
    there.sequence = 1;
    assert_eq!(there.answer().unwrap().value(), "7");
    let answer = client.answer().unwrap();
    assert!(answer.error().is_some_and(|error| error.code == 1317) || answer.value() == "1");
    assert_eq!(client.value("SELECT 1"), "1");
    assert_eq!(code(&mut there, &format!("KILL {id}")), 0);
    until("the connection to end", SOON, || match client.query("SELECT 1") {
        Ok(answer) if answer.error().is_none() => Err("it is there".to_owned()),
        Ok(_) | Err(_) => Ok(()),
    });
    assert_eq!(there.value("SELECT 2"), "2");
}

/// A pause and counts apply to all nodes.
#[test]
fn a_tenant_is_paused_and_counted_at_all_nodes() {
    let _guard = beside_others();
    let backend = Postgres::start();
    backend.sql("CREATE ROLE counted LOGIN PASSWORD 'pw'");
    let mut pair = Pair::start("");
    let tenant = json!({
        "name": "shop", "server": backend.tcp(), "database": "postgres",
        "users": [{"name": "counted", "password": "pw"}],
    });
    let (here, there) = (pair.one.client(), pair.two.client());
    assert_eq!(post(&here, "/v1/tenants", &tenant).status, 201);
    let admission = |client: &Client, expected: &str| {
        until("the order to hold there", SOON, || {
            let found = client.get("/v1/tenants/shop");
            match found.status == 200 && found.json()["admission"] == expected {
                true => Ok(()),
                false => Err(found.text()),
            }
        });
    };
    // The other node knows the tenant when this one has responded.
    assert_eq!(ok(&there.get("/v1/tenants/shop"))["admission"], "open");
    let bouncer = |server: &Server| PgAddress::Tcp(server.listener("bouncer"));
    let parameters = [("user", "counted"), ("database", "shop")];
    let login = |server: &Server| PgClient::login(&bouncer(server), &parameters, "pw");
    let (mut first, mut second) = (login(&pair.one).unwrap(), login(&pair.two).unwrap());
    for client in [&mut first, &mut second] {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    for client in [&here, &there] {
        until("the figures of both", SOON, || {
            let stats = ok(&client.get("/v1/tenants/shop/stats"));
            let is_all = stats["nodes"] == 2 && stats["clients"] == 2 && stats["queries"] == 2;
            if is_all { Ok(()) } else { Err(stats.to_string()) }
        });
        let all = ok(&client.get("/v1/tenants/stats"));
        let shop = all["tenants"].as_array().unwrap().iter().find(|it| it["name"] == "shop");
        let shop = shop.expect("the tenant is among all");
        assert_eq!((&shop["nodes"], &shop["queries"]), (&json!(2), &json!(2)), "{all}");
        let clients = ok(&client.get("/v1/tenants/shop/clients"));
        let clients = clients["clients"].as_array().unwrap().clone();
        let of = |pid: u32| clients.iter().find(|it| it["pid"] == pid).unwrap()["node"].clone();
        assert_ne!(of(first.pid), of(second.pid), "{clients:?}");
        let servers = ok(&client.get("/v1/tenants/shop/servers"));
        assert_eq!(servers["servers"].as_array().unwrap().len(), 2);
    }

    // A client is closed through a node that does not serve it.
    let target = format!("/v1/tenants/shop/clients/{}", first.pid);
    assert_eq!(there.send(&Request::new("DELETE", &target)).status, 204);
    assert!(first.end().0, "the client is gone");
    assert_eq!(there.send(&Request::new("DELETE", &target)).status, 404);

    // A pause applies to all nodes, including one that restarts.
    assert_eq!(post(&here, "/v1/tenants/shop/pause?refuse=true", &json!({})).status, 200);
    assert!(login(&pair.two).is_err(), "clients are refused");
    pair.one.expect_log("nothing listens at its address");
    pair.two.restart();
    let there = pair.two.client();
    admission(&there, "refusing");
    assert_eq!(post(&there, "/v1/tenants/shop/resume", &json!({})).status, 200);
    admission(&here, "open");
    let mut third = login(&pair.one).unwrap();
    assert_eq!(third.value("SELECT 1"), "1");
    assert_eq!(post(&there, "/v1/tenants/shop/kill", &json!({})).status, 204);
    assert!(third.end().0, "the client is gone");

    // A node that does not respond is named. It was lost for a moment during its restart.
    until("both nodes to answer", SOON, || match ok(&here.get("/v1/tenants/shop/stats")) {
        stats if stats["nodes"] == 2 => Ok(()),
        stats => Err(stats.to_string()),
    });
    pair.two.signal("STOP");
    let stats = ok(&here.get("/v1/tenants/shop/stats"));
    pair.two.signal("CONT");
    assert_eq!((&stats["nodes"], stats["missing"].as_array().unwrap().len()), (&json!(1), 1));
}

/// Consoles on any node show and control all nodes.
#[test]
fn the_console_shows_and_commands_all_nodes() {
    let _guard = beside_others();
    let backend = Postgres::start();
    backend.sql("CREATE ROLE watched LOGIN PASSWORD 'pw'");
    let tenant = format!(
        "[[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"watched\", password = \"pw\" }}]\n",
        backend.tcp()
    );
    let admins = "bouncer.console.admin_users = [{ name = \"ann\", password = \"pw\" }]\n";
    let pair = Pair::start_with(admins, &format!("ready = 0\n{tenant}"));
    let login = |server: &Server, user, database| {
        let address = PgAddress::Tcp(server.listener("bouncer"));
        PgClient::login(&address, &[("user", user), ("database", database)], "pw").unwrap()
    };
    let client = |server| login(server, "watched", "shop");
    let (mut first, mut second) = (client(&pair.one), client(&pair.two));
    for client in [&mut first, &mut second] {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    let mut consoles = [&pair.one, &pair.two].map(|server| login(server, "ann", "pgbouncer"));
    let table = |console: &mut PgClient, topic: &str| {
        let rows = console.run(&format!("SHOW {topic}")).rows();
        let rows = rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default));
        rows.map(Iterator::collect).collect::<Vec<Vec<String>>>()
    };
    // Columns according to PgBouncer's manual: names first, then counts.
    let mut numbers = Vec::new();
    for console in &mut consoles {
        let pools = table(console, "POOLS");
        let pool = pools.iter().find(|row| row[0] == "shop").expect("a pool");
        assert_eq!((&*pool[1], &*pool[2], &*pool[9]), ("watched", "2", "2"), "{pools:?}");
        let databases = table(console, "DATABASES");
        let database = databases.iter().find(|row| row[0] == "shop").expect("a database");
        assert_eq!((&*database[12], &*database[14]), ("2", "2"), "{databases:?}");
        let totals = table(console, "STATS_TOTALS");
        let total = totals.iter().find(|row| row[0] == "shop").expect("totals");
        assert_eq!((&*total[3], &*total[9]), ("2", "2"), "{totals:?}");
        let clients = table(console, "CLIENTS");
        let of_shop: Vec<_> = clients.iter().filter(|row| row[2] == "shop").collect();
        let mut ids: Vec<_> = of_shop.iter().map(|row| row[19].clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2, "{clients:?}");
        numbers.push(ids);
        assert_eq!(table(console, "SERVERS").len(), 2);
    }
    assert_eq!(numbers[0], numbers[1], "a client has the same id at every node");

    // A pause is complete when no node has a server connection.
    let [one, two] = &mut consoles;
    one.run("PAUSE shop");
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'watched'";
    assert_eq!(backend.sql(connected), "0");
    two.run("RESUME shop");
    assert_eq!(second.value("SELECT 2"), "2");
    assert_eq!(first.value("SELECT 2"), "2");

    // One of the two is at another node.
    for id in &numbers[0] {
        one.run(&format!("KILL_CLIENT {id}"));
    }
    assert!(first.end().0 && second.end().0, "both clients are gone");
    assert_eq!(one.fail(&format!("KILL_CLIENT {}", numbers[0][0])).message(), "client not found");
}

/// Server connections or clients of a tenant on all nodes together.
const SHARED_MAX: usize = 8;

/// Clients of the user `few` on all nodes together.
const FEW_MAX: usize = 2;

/// Two nodes that share the limit of a tenant, and its database.
struct LimitedPair {
    pair: Pair,
    backend: Postgres,
}

impl LimitedPair {
    fn start(scope: &str) -> LimitedPair {
        let limits = format!("server_connections_max = {SHARED_MAX}, wait_s = 60.0");
        LimitedPair::start_with(scope, &limits)
    }

    fn start_with(scope: &str, limits: &str) -> LimitedPair {
        let backend = Postgres::start();
        for role in ["limited", "few"] {
            backend.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"));
        }
        let tenant = format!(
            "ready = 0\n[bouncer]\n[[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\n\
             database = \"postgres\"\nusers = [{{ name = \"limited\", password = \"pw\" }}, \
             {{ name = \"few\", password = \"pw\", clients_max = {FEW_MAX} }}]\n\
             limits = {{ {limits} }}\n",
            backend.tcp()
        );
        let settings = format!("cluster.limits = \"{scope}\"\ncluster.lease_ms = 3000\n");
        let mut pair = Pair::start_with(&settings, &tenant);
        for node in [&mut pair.one, &mut pair.two] {
            // On a busy machine a start may take longer than a lease.
            node.expect_log("the lease of this server is over");
            node.expect_log("this server has not reached the store for so long");
        }
        LimitedPair { pair, backend }
    }

    fn login(server: &Server) -> PgClient {
        LimitedPair::try_login(server, "limited").unwrap()
    }

    fn try_login(server: &Server, user: &str) -> Result<PgClient, PgFailure> {
        let bouncer = PgAddress::Tcp(server.listener("bouncer"));
        PgClient::login(&bouncer, &[("user", user), ("database", "shop")], "pw")
    }

    /// Returns a client as soon as the limit permits one.
    fn login_in_time(server: &Server, user: &str) -> PgClient {
        until("a place for a client", SOON, || match LimitedPair::try_login(server, user) {
            Ok(client) => Ok(client),
            Err(PgFailure::Server(error)) if error.code() == "53300" => Err(error.message().into()),
            Err(error) => panic!("{error:?}"),
        })
    }

    /// Returns the error message for a client beyond the limit.
    fn refusal(server: &Server, user: &str) -> String {
        match LimitedPair::try_login(server, user) {
            Err(PgFailure::Server(error)) if error.code() == "53300" => error.message().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of connections, as counted by the database.
    fn connections(&self) -> usize {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'limited'";
        self.backend.sql(sql).trim().parse().unwrap()
    }

    /// Returns clients of a node that all hold a server connection at the same time.
    fn holders(server: &Server) -> Vec<PgClient> {
        let held = (0..SHARED_MAX).map(|_| {
            let mut client = LimitedPair::login(server);
            assert_eq!(client.run("BEGIN").tags(), ["BEGIN"]);
            client
        });
        held.collect()
    }
}

/// The limit applies to any distribution of clients over nodes.
#[test]
fn a_limit_of_a_tenant_holds_over_all_nodes() {
    let _guard = beside_others();
    let limited = LimitedPair::start("strict");
    let (one, two) = (&limited.pair.one, &limited.pair.two);
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(limited.connections());
            }
            most
        });
        let clients: Vec<_> = [one, two, one, two, one, two, one, two]
            .map(|server| {
                scope.spawn(move || {
                    let mut client = LimitedPair::login(server);
                    for number in 0..25 {
                        let sql = format!("SELECT {number} FROM pg_sleep(0.005)");
                        assert_eq!(client.value(&sql), number.to_string());
                    }
                })
            })
            .into_iter()
            .collect();
        let ended: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a client was not served");
        sampler.join().unwrap()
    });
    assert!((2..=SHARED_MAX).contains(&most), "{most} connections at one time");
    // Unused shares move to the node that needs them.
    drop(LimitedPair::holders(two));
    drop(LimitedPair::holders(one));
    assert!(limited.connections() <= SHARED_MAX);
}

/// With a strict limit, the share of a silent node is reserved until its process has ended.
#[test]
fn the_part_of_a_lost_node_goes_to_the_others() {
    let _guard = beside_others();
    for scope in ["strict", "soft"] {
        let mut limited = LimitedPair::start(scope);
        // A node that is stopped in the middle of a transaction keeps its row locks.
        limited.pair.one.expect_log("cannot share limits on server connections with other nodes");
        // The login of the waiting client needs a connection, too.
        let mut waiting = LimitedPair::login(&limited.pair.one);
        let held = LimitedPair::holders(&limited.pair.two);
        waiting.send(&PgBatch::new().query("SELECT 7").0).unwrap();
        limited.pair.two.signal("STOP");
        wait_for_log(&limited.pair.one, "a node is lost");
        if scope == "strict" {
            // The connections of the node still exist.
            assert_eq!(limited.connections(), SHARED_MAX);
            let stats = ok(&limited.pair.one.client().get("/v1/tenants/shop/stats"));
            assert_eq!(stats["clients_waiting"], 1, "{stats}");
            limited.pair.two.signal("KILL");
        }
        assert_eq!(waiting.answer().unwrap().value(), "7", "{scope}");
        limited.pair.two.signal("KILL");
        limited.pair.two.wait(SOON);
        drop(held);
    }
}

fn limit_on_clients() -> String {
    format!("clients_max = {SHARED_MAX}")
}

/// The limits apply to any distribution of clients over nodes.
#[test]
fn limits_on_clients_hold_over_all_nodes() {
    let _guard = beside_others();
    let limited = LimitedPair::start_with("strict", &limit_on_clients());
    let (one, two) = (&limited.pair.one, &limited.pair.two);
    let (inside, of_few) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // A client is connected for longer than it is counted.
    let connect = |server: &Server, user: &str| {
        let mut client = LimitedPair::login_in_time(server, user);
        let counted = usize::from(user == "few");
        let few = of_few.fetch_add(counted, Ordering::SeqCst) + counted;
        let all = inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(all <= SHARED_MAX && few <= FEW_MAX, "{all} clients, {few} of `few`");
        assert_eq!(client.value("SELECT 7 FROM pg_sleep(0.02)"), "7");
        inside.fetch_sub(1, Ordering::SeqCst);
        of_few.fetch_sub(counted, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        for (server, user) in [one, two]
            .into_iter()
            .flat_map(|server| ["limited", "limited", "few", "few"].map(|user| (server, user)))
        {
            scope.spawn(move || (0..8).for_each(|_| connect(server, user)));
        }
    });

    // Unused shares move to the node that needs them.
    for (here, there) in [(one, two), (two, one)] {
        let all = || (0..SHARED_MAX).map(|_| LimitedPair::login_in_time(here, "limited"));
        let mut clients: Vec<PgClient> = all().collect();
        for server in [here, there] {
            let message = LimitedPair::refusal(server, "limited");
            assert_eq!(message, "too many clients of this tenant: `limits.clients_max` is 8");
        }
        // No client was closed for that, and another node can use a freed place.
        clients.iter_mut().for_each(|client| assert_eq!(client.value("SELECT 1"), "1"));
        drop(clients.pop());
        let mut client = LimitedPair::login_in_time(there, "limited");
        assert_eq!(client.value("SELECT 2"), "2");
    }
    let _few = [one, two].map(|server| LimitedPair::login_in_time(server, "few"));
    for server in [one, two] {
        let message = LimitedPair::refusal(server, "few");
        assert_eq!(message, "too many clients of this user: the limit is 2");
    }
}

/// A free place of one node is given to a client that waits at another.
#[test]
fn a_client_waits_until_its_node_has_a_place_for_it() {
    let _guard = beside_others();
    let limited = LimitedPair::start_with("strict", &limit_on_clients());
    let (one, two) = (&limited.pair.one, &limited.pair.two);
    let held: Vec<PgClient> =
        (0..SHARED_MAX - 1).map(|_| LimitedPair::login_in_time(one, "limited")).collect();
    let mut client = LimitedPair::login(two);
    assert_eq!(client.value("SELECT 7"), "7");
    drop(held);
}

/// Limits on MySQL clients.
#[test]
fn limits_on_clients_of_mysql_hold_over_all_nodes() {
    let _guard = beside_others();
    let maria = MariaDb::start();
    maria.user("limited", "pw");
    let settings = "cluster.limits = \"strict\"\nbouncer.mysql.listen = \"127.0.0.1:0\"\n";
    let pair = Pair::start(settings);
    let tenant = json!({
        "name": "shop", "engine": "mysql", "server": maria.tcp().to_string(),
        "database": "information_schema", "users": [{"name": "limited", "password": "pw"}],
        "limits": {"clients_max": 2},
    });
    assert_eq!(post(&pair.one.client(), "/v1/tenants", &tenant).status, 201);
    let try_login = |server: &Server| {
        let address = PgAddress::Tcp(server.listener("mysql"));
        MyClient::login(&address, &MyLogin::new("limited", "pw", "shop"))
    };
    let login = |server: &Server| {
        until("a place for a client", SOON, || {
            try_login(server).map_err(|error| format!("{error:?}"))
        })
    };
    let mut clients = [&pair.one, &pair.two].map(login);
    for server in [&pair.one, &pair.two] {
        match try_login(server) {
            Err(MyFailure::Server(error)) => assert_eq!(error.code, 1040, "{error:?}"),
            other => panic!("{other:?}"),
        }
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.value("SELECT 1"), "1"));
    let [here, _there] = clients;
    drop(here);
    let mut client = login(&pair.two);
    // A client that changes its user is counted once.
    client.change_user(&MyLogin::new("limited", "pw", "shop")).unwrap();
    assert_eq!(client.value("SELECT 2"), "2");
}

/// With a strict limit, the clients of a silent node count until its process has ended.
#[test]
fn the_clients_of_a_lost_node_count_until_it_is_gone() {
    let _guard = beside_others();
    for scope in ["strict", "soft"] {
        let mut limited = LimitedPair::start_with(scope, &limit_on_clients());
        let login = || LimitedPair::login_in_time(&limited.pair.two, "limited");
        let held: Vec<PgClient> = (0..SHARED_MAX).map(|_| login()).collect();
        limited.pair.two.signal("STOP");
        wait_for_log(&limited.pair.one, "a node is lost");
        if scope == "strict" {
            LimitedPair::refusal(&limited.pair.one, "limited");
            limited.pair.two.signal("KILL");
        }
        let mut client = LimitedPair::login_in_time(&limited.pair.one, "limited");
        assert_eq!(client.value("SELECT 7"), "7", "{scope}");
        limited.pair.two.signal("KILL");
        limited.pair.two.wait(SOON);
        drop(held);
    }
}
