//! MySQL tenants: modes, limits, users, operation, and a server that is killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::my::{command, status};
use testkit::{
    Certificate, Cut, Cutter, MariaDb, MyClient, MyFailure, MyLogin, PgAddress, Scratch, Server,
    Way, until,
};

use crate::clients::{check_output, python};
use crate::mysql_support::{
    Fronted, address, behind, front, front_at, login, maria, prepared, shared_maria,
};
use crate::shared::COVE;
use crate::support::{Behind, PASSWORD, USER, config};
use crate::tenants::send;

/// Time limit for a state to be reached.
const SOON: Duration = Duration::from_secs(60);
/// Long enough to see that no data arrives.
const NOTHING: Duration = Duration::from_millis(400);
/// Errors for a client whose server or connection ends.
const ENDS: [u16; 9] = [1053, 1158, 1317, 1927, 2003, 2006, 2013, 3032, 4031];

/// Sends a request that must succeed.
fn act(fronted: &Fronted, method: &str, path: &str, body: &Value) -> Value {
    let response = send(&fronted.server.client(), method, path, body);
    assert!((200..300).contains(&response.status), "{method} {path}: {}", response.text());
    if response.body.is_empty() { Value::Null } else { response.json() }
}

fn code(result: Result<MyClient, MyFailure>) -> u16 {
    let failure = result.expect_err("it logged in");
    failure.error().unwrap_or_else(|| panic!("no word: {failure}")).code
}

/// Returns the number of the error.
fn refusal(client: &mut MyClient, sql: &str) -> u16 {
    let error = match client.query(sql) {
        Ok(answer) => answer.error(),
        Err(failure) => failure.error(),
    };
    error.map_or(0, |error| error.code)
}

/// Returns the code of the error that ends a connection; zero if it is closed without one.
fn closing_error(client: &mut MyClient) -> u16 {
    client.patience(SOON);
    let (is_over, error) = client.end();
    assert!(is_over, "it is still there: {error:?}");
    error.map_or(0, |error| error.code)
}

#[test]
fn mysql_tenants_of_the_file_and_of_the_interface_are_served_side_by_side() {
    let maria = shared_maria();
    let fronted = front(maria, "", &[behind("beside_file", "transaction", 3)]);
    fronted.maria.sql("CREATE DATABASE beside_api");
    let spec = json!({
        "name": "beside_api", "engine": "mysql", "server": fronted.maria.tcp().to_string(),
        "users": [{"name": USER, "password": PASSWORD}],
    });
    act(&fronted, "POST", "/v1/tenants", &spec);
    for tenant in ["beside_file", "beside_api"] {
        assert_eq!(fronted.login(tenant).value("SELECT DATABASE()"), tenant);
        let stats = act(&fronted, "GET", &format!("/v1/tenants/{tenant}/stats"), &Value::Null);
        assert_eq!((&stats["transactions"], &stats["servers"]), (&json!(1), &json!(1)), "{stats}");
        let metrics = fronted.server.client().anonymous().get("/metrics").text();
        let line =
            format!("cove_bouncer_transactions_total{{tenant=\"{tenant}\",db_type=\"mysql\"");
        assert!(metrics.contains(&line), "{metrics}");
        assert_eq!(stats["errors"], json!({}), "{stats}");
        let mut client = fronted.login(tenant);
        for (sql, expected) in [
            ("SELECT * FROM no_such_table", 1146),
            ("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001", 31001),
            ("SELECT * FROM no_such_table", 1146),
        ] {
            assert_eq!(client.fail(sql).code, expected);
        }
        let stats = act(&fronted, "GET", &format!("/v1/tenants/{tenant}/stats"), &Value::Null);
        assert_eq!(stats["errors"], json!({ "1146": 2, "31001": 1 }), "{stats}");
    }
    assert_eq!(code(fronted.try_login("beside_nowhere")), 1049);
    let view = act(&fronted, "GET", "/v1/tenants/beside_api", &Value::Null);
    assert!(view.to_string().contains("\"engine\":\"mysql\""), "{view}");
    assert!(!view.to_string().contains(PASSWORD), "{view}");
    let client = fronted.server.client();
    for (field, value) in [("engine", json!("oracle")), ("local_infile", json!("perhaps"))] {
        let mut spec = spec.clone();
        spec["name"] = json!("beside_other");
        spec[field] = value;
        let response = send(&client, "POST", "/v1/tenants", &spec);
        assert_eq!(response.status, 400, "{field}: {}", response.text());
        assert!(response.text().contains(field), "{field}: {}", response.text());
    }
    let mut late = fronted.login("beside_api");
    act(&fronted, "DELETE", "/v1/tenants/beside_api", &Value::Null);
    assert!(ENDS.contains(&closing_error(&mut late)));
    assert_eq!(code(fronted.try_login("beside_api")), 1049);
    assert_eq!(fronted.login("beside_file").value("SELECT 1"), "1");
}

#[test]
fn a_mysql_tenant_is_named_in_several_ways() {
    let tenants = ["mynamed_one", "mynamed_two"].map(|name| behind(name, "transaction", 2));
    let fronted = front(shared_maria(), "", &tenants);
    let prefixed = format!("mynamed_two__{USER}");
    for (login, expected) in [
        (login("mynamed_one"), "mynamed_one"),
        (MyLogin::new(&prefixed, PASSWORD, ""), "mynamed_two"),
        // With a tenant specified otherwise, the database is one of that server.
        (MyLogin::new(&prefixed, PASSWORD, "mysql"), "mysql"),
        (login("mysql").attribute("tenant_id", "mynamed_two"), "mysql"),
        (login("").attribute("tenant_id", "mynamed_two"), "mynamed_two"),
    ] {
        let client = MyClient::login(&fronted.address(), &login);
        let mut client = client.unwrap_or_else(|error| panic!("{login:?}: {error}"));
        assert_eq!(client.value("SELECT DATABASE()"), expected, "{login:?}");
        assert_eq!(client.value("SELECT CURRENT_USER()"), format!("{USER}@%"));
    }
    for login in [
        login(""),
        login("nowhere"),
        MyLogin::new("nowhere__ada", PASSWORD, ""),
        login("mynamed_one").attribute("tenant_id", "'; DROP TABLE x"),
    ] {
        let error = code(MyClient::login(&fronted.address(), &login));
        assert!([1045, 1046, 1049].contains(&error), "{login:?}: {error}");
    }
}

#[test]
fn each_mode_gives_mysql_connections_back_when_it_says() {
    let tenants = ["session", "transaction", "statement"]
        .map(|mode| behind(&format!("mymode_{mode}"), mode, 1).with("limits.wait_s = 3"));
    let fronted = front(shared_maria(), "", &tenants);
    // The server's connection id, which differs from the one that clients receive.
    let thread = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT id FROM %' \
                  AND db = DATABASE()";

    let (mut a, mut b) = (fronted.login("mymode_transaction"), fronted.login("mymode_transaction"));
    let id = a.value(thread);
    assert_eq!(b.value(thread), id);
    a.run("BEGIN");
    assert_eq!(refusal(&mut b, "SELECT 1"), 1040);
    a.run("COMMIT");
    assert_eq!(fronted.login("mymode_transaction").value(thread), id);

    let mut a = fronted.login("mymode_session");
    let id = a.value(thread);
    let waiting = fronted.try_login("mymode_session").map(|mut b| refusal(&mut b, "SELECT 1"));
    assert_eq!(waiting.unwrap_or_else(|error| error.error().map_or(0, |it| it.code)), 1040);
    a.run("SET @a = 1, lock_wait_timeout = 9; CREATE TEMPORARY TABLE t AS SELECT 1");
    a.close();
    let mut b = fronted.login("mymode_session");
    assert_eq!(b.value(thread), id);
    assert_eq!(b.run("SELECT @a, @@lock_wait_timeout").rows()[0][1].as_deref(), Some("86400"));
    assert_eq!(b.run("SELECT @a").rows(), [[None]]);
    assert_eq!(b.fail("SELECT * FROM t").code, 1146);

    let mut a = fronted.login("mymode_statement");
    assert_eq!(a.value("SELECT 1"), "1");
    for sql in ["BEGIN", "START TRANSACTION", "SET autocommit = 0"] {
        let mut a = fronted.login("mymode_statement");
        assert_eq!(refusal(&mut a, sql), 1235, "{sql}");
        assert_eq!(fronted.login("mymode_statement").value("SELECT 2"), "2");
    }
}

#[test]
fn a_mysql_tenant_is_paused_resumed_and_drained() {
    let fronted = front(shared_maria(), "", &[behind("mypaused", "transaction", 3)]);
    fronted.maria.sql("CREATE TABLE mypaused.finished (x INT) ENGINE=InnoDB");
    let mut idle = fronted.login("mypaused");
    let mut busy = fronted.login("mypaused");
    idle.run("SELECT 1");
    busy.run("BEGIN");
    act(&fronted, "POST", "/v1/tenants/mypaused/pause", &Value::Null);
    // A client in a transaction continues; one that starts a transaction waits.
    busy.run("SELECT 1");
    busy.run("COMMIT");
    idle.command(command::QUERY, b"SELECT 'held'").unwrap();
    idle.patience(NOTHING);
    assert!(idle.answer().is_err_and(|failure| failure.is_timeout()));
    let tenant = act(&fronted, "GET", "/v1/tenants/mypaused", &Value::Null);
    assert_eq!(tenant["admission"], "paused");
    act(&fronted, "POST", "/v1/tenants/mypaused/resume", &Value::Null);
    idle.patience(SOON);
    assert_eq!(idle.answer().unwrap().value(), "held");

    act(&fronted, "POST", "/v1/tenants/mypaused/pause?refuse=true", &Value::Null);
    assert!(fronted.try_login("mypaused").is_err());
    assert_ne!(refusal(&mut idle, "SELECT 1"), 0);
    act(&fronted, "POST", "/v1/tenants/mypaused/resume", &Value::Null);

    let mut idle = fronted.login("mypaused");
    let mut busy = fronted.login("mypaused");
    idle.run("SELECT 1");
    busy.run("BEGIN");
    act(&fronted, "POST", "/v1/tenants/mypaused/drain", &Value::Null);
    assert!(fronted.try_login("mypaused").is_err());
    assert!(ENDS.contains(&closing_error(&mut idle)));
    busy.run("INSERT INTO finished VALUES (1)");
    busy.run("COMMIT");
    assert!(ENDS.contains(&closing_error(&mut busy)));
    act(&fronted, "POST", "/v1/tenants/mypaused/resume", &Value::Null);
    assert_eq!(fronted.login("mypaused").value("SELECT COUNT(*) FROM finished"), "1");
}

#[test]
fn limits_hold_for_mysql() {
    let limits = [
        ("mylimit_clients", "limits.clients_max = 2"),
        ("mylimit_waiting", "limits.waiting_max = 1\nlimits.wait_s = 60"),
        ("mylimit_query", "limits.query_s = 3"),
        ("mylimit_transaction", "limits.transaction_s = 3"),
        ("mylimit_idle_in_transaction", "limits.idle_in_transaction_s = 3"),
        ("mylimit_idle", "limits.client_idle_s = 3"),
    ];
    let tenants = limits.map(|(name, limit)| behind(name, "transaction", 1).with(limit));
    let fronted = front(shared_maria(), "", &tenants);

    let both = [fronted.login("mylimit_clients"), fronted.login("mylimit_clients")];
    assert_eq!(code(fronted.try_login("mylimit_clients")), 1040);
    drop(both);
    until("a place", SOON, || {
        fronted.try_login("mylimit_clients").map(drop).map_err(|error| error.to_string())
    });

    let mut clients: Vec<MyClient> = (0..3).map(|_| fronted.login("mylimit_waiting")).collect();
    clients[0].run("BEGIN");
    clients[1].command(command::QUERY, b"SELECT 'waited'").unwrap();
    until("one to wait", SOON, || {
        let stats = act(&fronted, "GET", "/v1/tenants/mylimit_waiting/stats", &Value::Null);
        if stats["clients_waiting"] == 1 { Ok(()) } else { Err(stats.to_string()) }
    });
    assert_eq!(refusal(&mut clients[2], "SELECT 1"), 1040);
    clients[0].run("COMMIT");
    assert_eq!(clients[1].answer().unwrap().value(), "waited");

    // Cancelled on the server as well, not only disconnected.
    let mut client = fronted.login("mylimit_query");
    let slow = "SELECT SLEEP(60), seq, 'mylimit' FROM seq_1_to_3";
    assert_eq!(refusal(&mut client, slow), 1317);
    let running = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE info LIKE '%''mylimit''%' AND id <> CONNECTION_ID()";
    until("the server to stop", SOON, || {
        let count = fronted.maria.sql(running);
        if count == "0" { Ok(()) } else { Err(count) }
    });
    assert_eq!(fronted.login("mylimit_query").value("SELECT 1"), "1");

    for tenant in ["mylimit_transaction", "mylimit_idle_in_transaction", "mylimit_idle"] {
        fronted.maria.sql(&format!("CREATE TABLE {tenant}.kept (x INT) ENGINE=InnoDB"));
        let mut client = fronted.login(tenant);
        if tenant != "mylimit_idle" {
            client.run("BEGIN; INSERT INTO kept VALUES (1)");
        }
        assert_eq!(closing_error(&mut client), 4031, "{tenant}");
        let mut client = fronted.login(tenant);
        assert_eq!(client.value("SELECT COUNT(*) FROM kept"), "0", "{tenant}");
    }
}

#[test]
fn mysql_tenants_change_without_a_client_noticing() {
    let keeps = behind("myreload_keeps", "transaction", 2);
    let goes = behind("myreload_goes", "transaction", 2);
    let comes = behind("myreload_comes", "transaction", 2);
    let fronted = front(shared_maria(), "", &[keeps.clone(), goes]);
    fronted.maria.sql("CREATE DATABASE myreload_comes");
    let mut client = fronted.login("myreload_keeps");
    client.run("SET lock_wait_timeout = 33");
    let mut leaving = fronted.login("myreload_goes");
    leaving.run("BEGIN");
    let upstream = fronted.maria.tcp().to_string();
    let changed = [keeps.with("limits.query_s = 3"), comes];
    fronted.server.scratch().file("cove.toml", config(&upstream, "", &changed));
    let reloaded = act(&fronted, "POST", "/v1/bouncer/reload", &Value::Null);
    assert_eq!(reloaded["tenants"], 2, "{reloaded}");
    assert_eq!(client.value("SELECT @@lock_wait_timeout"), "33");
    // From now on it also applies to existing clients.
    assert_eq!(refusal(&mut client, "SELECT SLEEP(60), seq FROM seq_1_to_3"), 1317);
    assert_eq!(fronted.login("myreload_comes").value("SELECT DATABASE()"), "myreload_comes");
    assert_eq!(code(fronted.try_login("myreload_goes")), 1049);
    // In the middle of its transaction.
    assert!(ENDS.contains(&closing_error(&mut leaving)));
}

#[test]
fn users_of_mysql_are_looked_up_where_they_are() {
    let query = "auth_query = { user = \"lookup\", password = \"lookup\" }";
    let fronted = front(shared_maria(), "", &[behind("mylooked_up", "transaction", 3).with(query)]);
    fronted.maria.user("lookup", "lookup");
    fronted.maria.user("grace", "hopper");
    fronted.maria.sql("CREATE USER locked@'%' IDENTIFIED BY 'locked' ACCOUNT LOCK");
    fronted.maria.sql("CREATE USER other@'%' IDENTIFIED VIA unix_socket");
    let login = |user: &str, password: &str| {
        MyClient::login(&fronted.address(), &MyLogin::new(user, password, "mylooked_up"))
    };
    let mut client = login("grace", "hopper").unwrap();
    assert_eq!(client.value("SELECT CURRENT_USER()"), "grace@%");
    for (user, password) in
        [("grace", "wrong"), ("grace", ""), ("nobody", ""), ("' OR '1' = '1", ""), ("lookup", "x")]
    {
        assert_eq!(code(login(user, password)), 1045, "{user}");
    }
    // A client that the server rejects receives no data from it either.
    for (user, password) in [("locked", "locked"), ("other", "other")] {
        let answer = login(user, password).and_then(|mut client| client.query("SELECT 1"));
        let is_success = answer.as_ref().is_ok_and(|answer| answer.error().is_none());
        assert!(!is_success, "{user}: {answer:?}");
    }
}

#[test]
fn passwords_of_mysql_may_be_hashes_and_users_others_there() {
    let maria = shared_maria();
    // SHA1(SHA1("pencil")), as the server stores it.
    let hash = maria.sql("SELECT PASSWORD('pencil')");
    maria.user("their_ada", "their");
    // The client's proof of the password is sufficient for the bouncer to log in on the server.
    maria.user("hashed", "pencil");
    let users = format!(
        "users = [{{ name = \"hashed\", password = \"{hash}\" }}, \
         {{ name = \"mapped\", password = \"mine\", server_user = \"their_ada\", \
         server_password = \"their\" }}]"
    );
    let upstream = maria.tcp();
    maria.sql("CREATE DATABASE myhashes");
    let tenant = format!(
        "[[bouncer.tenants]]\nname = \"myhashes\"\nengine = \"mysql\"\n\
         server = \"{upstream}\"\n{users}\n"
    );
    let server = Server::start_with(COVE, &[], Some(&config("", &tenant, &[])));
    let at: PgAddress = address(&server).into();
    for (user, password, expected) in
        [("hashed", "pencil", "hashed@%"), ("mapped", "mine", "their_ada@%")]
    {
        let client = MyClient::login(&at, &MyLogin::new(user, password, "myhashes"));
        let mut client = client.unwrap_or_else(|error| panic!("{user}: {error}"));
        assert_eq!(client.value("SELECT CURRENT_USER()"), expected);
        assert_eq!(code(MyClient::login(&at, &MyLogin::new(user, "wrong", "myhashes"))), 1045);
        // The hash is not accepted as a password.
        assert_eq!(code(MyClient::login(&at, &MyLogin::new(user, &hash, "myhashes"))), 1045);
    }
}

#[test]
fn a_mysql_tenant_for_reading_is_not_written_to() {
    let tenants = ["transaction", "session"]
        .map(|mode| behind(&format!("myreading_{mode}"), mode, 2).with("read_only = true"));
    let fronted = front(shared_maria(), "", &tenants);
    for tenant in ["myreading_transaction", "myreading_session"] {
        fronted.maria.sql(&format!("CREATE TABLE {tenant}.t (x INT) ENGINE=InnoDB"));
        for sql in [
            "INSERT INTO t VALUES (1)",
            "CREATE TABLE written (x INT)",
            "START TRANSACTION READ WRITE; INSERT INTO t VALUES (1); COMMIT",
            "BEGIN; INSERT INTO t VALUES (1); COMMIT",
            "SET SESSION TRANSACTION READ WRITE; INSERT INTO t VALUES (1)",
            "SET TRANSACTION READ WRITE; INSERT INTO t VALUES (1)",
            "SET tx_read_only = 0; INSERT INTO t VALUES (1)",
            "SET @@session.tx_read_only := OFF; INSERT INTO t VALUES (1)",
            "/*!50000 SET tx_read_only = 0 */; INSERT INTO t VALUES (1)",
            "SeT /**/ SESSION tx_read_only = DEFAULT; INSERT INTO t VALUES (1)",
            "SET STATEMENT tx_read_only = 0 FOR INSERT INTO t VALUES (1)",
            "SET STATEMENT max_statement_time = 9 FOR SET tx_read_only = 0",
            "SET STATEMENT max_statement_time = 9 FOR SET STATEMENT tx_read_only = 0 \
             FOR INSERT INTO t VALUES (1)",
            "PREPARE p FROM 'SET STATEMENT max_statement_time = 9 FOR SET tx_read_only = 0'; \
             EXECUTE p",
            "EXECUTE IMMEDIATE 'SET tx_read_only = 0'; INSERT INTO t VALUES (1)",
            "EXECUTE IMMEDIATE CONCAT('SET tx_', 'read_only = 0')",
            "PREPARE p FROM 'START TRANSACTION READ WRITE'; EXECUTE p; INSERT INTO t VALUES (1)",
        ] {
            let mut client = fronted.login(tenant);
            drop(client.query(sql));
            // Whether it was rejected or had no effect: a second statement may not write either.
            if let Ok(answer) = client.query("INSERT INTO t VALUES (2)") {
                assert!(answer.error().is_some(), "{tenant}: {sql}: it was written");
            }
            drop(client.query("COMMIT"));
            drop(client);
            let count = fronted.maria.sql(&format!("SELECT COUNT(*) FROM {tenant}.t"));
            assert_eq!(count, "0", "{tenant}: {sql}");
        }
        let mut client = fronted.login(tenant);
        assert!(client.simple(command::RESET_CONNECTION, &[]).unwrap().is_ok());
        assert_eq!(client.fail("INSERT INTO t VALUES (1)").code, 1792, "{tenant}");
        client.change_user(&login(tenant)).unwrap();
        assert_eq!(client.fail("INSERT INTO t VALUES (1)").code, 1792, "{tenant}");
    }
}

#[test]
fn a_mysql_server_that_is_gone_is_told_at_once_and_found_again() {
    let maria = Arc::new(maria());
    let proxy = Cutter::start(maria.tcp());
    let upstream = proxy.address().to_string();
    let tenant = behind("mygone", "transaction", 2).with("limits.server_retry_s = 0.3");
    // Waiting must not time out: the error would arrive after this test's own timeout.
    let tenant = tenant.with("limits.wait_s = 600");
    let mut fronted = front_at(maria, &upstream, "login_s = 600", &[tenant]);
    fronted.server.expect_log("mygone");
    fronted.server.expect_log("server");
    let mut idle = fronted.login("mygone");
    let mut busy = fronted.login("mygone");
    idle.run("SET lock_wait_timeout = 3");
    busy.run("BEGIN");
    proxy.plan(|_| Some(Cut { way: Way::Back, after: 0 }));
    proxy.cut_all();
    let word = closing_error(&mut busy);
    assert!(ENDS.contains(&word), "{word}");
    // It has lost no state, and gets an error only when it needs the unavailable server.
    let lost = refusal(&mut idle, "SELECT 1");
    assert!(ENDS.contains(&lost), "{lost}");
    for _ in 0..20 {
        let refused = match fronted.try_login("mygone") {
            Ok(mut client) => refusal(&mut client, "SELECT 1"),
            Err(failure) => failure.error().map_or(0, |error| error.code),
        };
        assert!(ENDS.contains(&refused), "{refused}");
    }
    proxy.plan(|_| None);
    until("the server to be found again", SOON, || {
        let answer = fronted.try_login("mygone").and_then(|mut client| client.query("SELECT 1"));
        let answer = answer.map_err(|error| error.to_string())?;
        answer.error().map_or(Ok(()), |error| Err(error.to_string()))
    });
    // Killed, with open transactions and running statements.
    let mut running = fronted.login("mygone");
    running.command(command::QUERY, b"SELECT SLEEP(60), 'running'").unwrap();
    let mut busy = fronted.login("mygone");
    busy.run("BEGIN");
    fronted.maria.restart();
    assert!(
        running.answer().is_ok_and(|it| it.error().is_some()) || closing_error(&mut running) < 9999
    );
    assert!(ENDS.contains(&closing_error(&mut busy)) || busy.query("SELECT 1").is_err());
    until("it to be back", SOON, || {
        let answer = fronted.try_login("mygone").and_then(|mut client| client.query("SELECT 1"));
        let answer = answer.map_err(|error| error.to_string())?;
        answer.error().map_or(Ok(()), |error| Err(error.to_string()))
    });
    assert_eq!(fronted.login("mygone").value("SELECT @@lock_wait_timeout"), "86400");
}

#[test]
fn health_of_a_mysql_server_is_known() {
    let maria = Arc::new(maria());
    let tenant = behind("myhealth", "transaction", 2).with("limits.server_retry_s = 0.3");
    let upstream = maria.tcp().to_string();
    let mut fronted =
        front_at(maria, &upstream, "health.interval_s = 1\nhealth.failures = 1", &[tenant]);
    fronted.server.expect_log("myhealth");
    fronted.server.expect_log("server");
    let health = || {
        let tenant = act(&fronted, "GET", "/v1/tenants/myhealth", &Value::Null);
        tenant["health"].to_string()
    };
    until("it to be healthy", SOON, || {
        let health = health();
        if health.contains("\"healthy\"") { Ok(()) } else { Err(health) }
    });
    fronted.maria.kill();
    until("it to be ill", SOON, || {
        let health = health();
        if health.contains("unhealthy") { Ok(()) } else { Err(health) }
    });
    fronted.maria.start_again();
    until("it to be healthy again", SOON, || {
        let health = health();
        if health.contains("\"healthy\"") { Ok(()) } else { Err(health) }
    });
}

#[test]
fn mysql_sockets_serve_both_sides() {
    let directory = Scratch::new();
    let maria = shared_maria();
    let upstream = maria.socket().display().to_string();
    let bouncer = format!("unix_socket_dir = {:?}", directory.path());
    let fronted = front_at(maria, &upstream, &bouncer, &[behind("mysockets", "transaction", 2)]);
    let socket = PgAddress::Unix(directory.path().join("mysql.sock"));
    let mut client = MyClient::login(&socket, &login("mysockets")).unwrap();
    let host = "SELECT host FROM information_schema.processlist \
                WHERE info LIKE 'SELECT host FROM %' AND db = DATABASE()";
    assert_eq!(client.value(host), "localhost");
    assert_eq!(code(MyClient::login(&socket, &MyLogin::new(USER, "wrong", "mysockets"))), 1045);
    drop(fronted);
}

#[test]
fn what_a_client_of_mysql_does_not_read_is_not_sent() {
    let fronted = front(shared_maria(), "", &[behind("mypressure", "transaction", 3)]);
    let pid = fronted.server.pid();
    let mut client = fronted.login("mypressure");
    client.run("SELECT REPEAT('x', 1 << 20) FROM seq_1_to_4");
    let before = testkit::process::resident_bytes(pid);
    // Half a gigabyte, none of it read.
    let sql = "SELECT REPEAT('x', 1 << 20), 'pressure' FROM seq_1_to_512";
    client.command(command::QUERY, sql.as_bytes()).unwrap();
    let mut other = fronted.login("mypressure");
    until("the server to wait for the client", SOON, || {
        let sql = "SELECT state FROM information_schema.processlist \
                   WHERE info LIKE '%''pressure''%seq_1_to_512' AND info NOT LIKE '%processlist%'";
        let state = other.query(sql).unwrap().rows();
        let state = state.first().and_then(|row| row[0].clone()).unwrap_or_default();
        if state == "Writing to net" { Ok(()) } else { Err(state) }
    });
    let held = testkit::process::resident_bytes(pid).saturating_sub(before);
    assert!(held < 16 << 20, "{held} bytes are held");
    // A client that disconnects without reading does not slow down others.
    drop(client);
    assert_eq!(other.value("SELECT 1"), "1");
    let gone = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%pressure%' \
                AND id <> CONNECTION_ID()";
    until("the statement to end", SOON, || {
        let count = fronted.maria.sql(gone);
        if count == "0" { Ok(()) } else { Err(count) }
    });
}

#[test]
fn a_server_that_ends_says_goodbye_to_clients_of_mysql() {
    let mut fronted = front(shared_maria(), "", &[behind("mygoodbye", "transaction", 3)]);
    let mut idle = fronted.login("mygoodbye");
    let mut busy = fronted.login("mygoodbye");
    busy.run("BEGIN");
    fronted.server.signal("TERM");
    assert_eq!(closing_error(&mut idle), 1053);
    // An open transaction may end.
    busy.run("SELECT 1");
    assert_ne!(busy.status & status::IN_TRANS, 0);
    busy.run("COMMIT");
    assert_eq!(closing_error(&mut busy), 1053);
    assert!(fronted.server.wait(SOON).success());
    let left = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'mygoodbye'";
    until("its connections to be gone", SOON, || {
        let count = fronted.maria.sql(left);
        if count == "0" { Ok(()) } else { Err(count) }
    });
}

#[test]
fn many_clients_of_mysql_read_and_write_on_few_connections() {
    let clients: usize = number("MYSQL_CLIENTS", 200);
    let connections = u32::try_from(number("MYSQL_CONNECTIONS", 5)).unwrap();
    let turns = number("MYSQL_TURNS", 5);
    let limits = format!(
        "limits.wait_s = 120\nlimits.clients_max = {}\nlimits.waiting_max = {}",
        clients + 10,
        clients + 10
    );
    let tenant = behind("mymany", "transaction", connections).with(&limits);
    let fronted = front(Arc::new(maria()), "", &[tenant]);
    fronted.maria.sql(
        "CREATE TABLE mymany.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
         INSERT INTO mymany.t SELECT seq, 0 FROM mymany.seq_1_to_1000",
    );
    std::thread::scope(|scope| {
        for client in 0..clients {
            let fronted = &fronted;
            let work = move || read_and_write(fronted, client, turns);
            // A thousand threads with little to do.
            let thread = std::thread::Builder::new().stack_size(512 << 10);
            thread.spawn_scoped(scope, work).unwrap();
        }
    });
    let count = fronted.maria.sql("SELECT SUM(n) FROM mymany.t");
    assert_eq!(count, (clients * turns).to_string());
    let stats = act(&fronted, "GET", "/v1/tenants/mymany/stats", &Value::Null);
    let servers = stats["servers"].as_u64().unwrap();
    assert!(servers <= u64::from(connections), "{stats}");
    let seen: u64 =
        fronted.maria.sql("SHOW STATUS LIKE 'Max_used_connections'")[21..].trim().parse().unwrap();
    // Including this check's own connection.
    assert!(seen <= u64::from(connections) + 3, "{seen} connections were used");
}

fn number(name: &str, default: usize) -> usize {
    std::env::var_os(name).map_or(default, |text| text.to_str().unwrap().parse().unwrap())
}

fn read_and_write(fronted: &Fronted, client: usize, turns: usize) {
    let mut mine = fronted.login("mymany");
    mine.patience(Duration::from_secs(120));
    let read = mine.prepare("SELECT n FROM t WHERE id = ?").unwrap();
    let write = mine.prepare("UPDATE t SET n = n + 1 WHERE id = ?").unwrap();
    for turn in 0..turns {
        let id = i64::try_from((client * 37 + turn * 11) % 1000 + 1).unwrap();
        let key = [testkit::MyValue::Int(id)];
        mine.run("BEGIN");
        let before: i64 = mine.execute(&read, &key).unwrap().value().parse().unwrap();
        assert!(before >= 0);
        assert_eq!(mine.execute(&write, &key).unwrap().ok().affected_rows, 1);
        mine.run("COMMIT");
        assert_eq!(mine.value(&format!("SELECT {client} + {turn}")), (client + turn).to_string());
    }
    mine.close();
}

#[test]
fn dbbouncers_clients_make_a_tenant_of_mysql() {
    let maria = shared_maria();
    maria.sql("CREATE DATABASE dbb_mysql");
    let more = "[compat.dbbouncer]\nlisten = \"127.0.0.1:0\"\n";
    let config = format!("{}\n{more}", config("127.0.0.1:1", "", &[]));
    let server = Server::start_with(COVE, &[], Some(&config));
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let face = addresses["dbbouncer"].as_str().unwrap().parse().unwrap();
    let client = testkit::Client::new(face, Some(server.token().to_owned()));
    let body = json!({
        "id": "dbb_m", "db_type": "mysql", "host": "127.0.0.1", "port": maria.tcp().port(),
        "dbname": "dbb_mysql", "username": USER, "password": PASSWORD, "max_connections": 3
    });
    let made = send(&client, "POST", "/tenants", &body);
    assert_eq!(made.status, 201, "{}", made.text());
    let at: PgAddress = address(&server).into();
    for login in [login("dbb_m"), MyLogin::new(&format!("dbb_m__{USER}"), PASSWORD, "")] {
        let mut database = MyClient::login(&at, &login).unwrap();
        assert_eq!(database.value("SELECT DATABASE()"), "dbb_mysql");
    }
    let stats = client.get("/tenants/dbb_m/stats").json();
    assert_eq!((&stats["tenant_id"], &stats["db_type"]), (&json!("dbb_m"), &json!("mysql")));
    assert_eq!(client.get("/tenants/dbb_m").json()["config"]["DBType"], "mysql");
    assert_eq!(send(&client, "POST", "/tenants/dbb_m/pause", &Value::Null).status, 200);
    assert!(MyClient::login(&at, &login("dbb_m")).is_err());
    assert_eq!(send(&client, "POST", "/tenants/dbb_m/resume", &Value::Null).status, 200);
    assert!(MyClient::login(&at, &login("dbb_m")).is_ok());
    assert_eq!(send(&client, "DELETE", "/tenants/dbb_m", &Value::Null).status, 200);
}

#[test]
fn the_command_line_makes_and_shows_a_tenant_of_mysql() {
    let fronted = front(shared_maria(), "", &[]);
    fronted.maria.sql("CREATE DATABASE my_by_hand");
    let scratch = Scratch::new();
    let file = scratch.file("password", format!("{PASSWORD}\n")).display().to_string();
    let at = fronted.maria.tcp().to_string();
    let cove = |arguments: &[&str]| {
        let mut command = testkit::command(COVE);
        command.args(arguments).arg("--data-dir").arg(fronted.server.data_dir());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let add = ["tenant", "add", "my_by_hand", "--mysql", &at, "--user", USER, "--password-file"];
    let limit = ["--limit", "server_connections_max=2"];
    assert_eq!(cove(&[&add[..], &[&file], &limit].concat()), "created my_by_hand\n");
    let mut client = fronted.login("my_by_hand");
    assert_eq!(client.value("SELECT DATABASE()"), "my_by_hand");
    let view = cove(&["tenant", "show", "my_by_hand", "--connections", "--json"]);
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(view["tenant"]["spec"]["engine"], "mysql", "{view}");
    assert_eq!(view["clients"].as_array().unwrap().len(), 1, "{view}");
    assert_eq!(view["servers"].as_array().unwrap().len(), 1, "{view}");
    assert!(cove(&["tenant", "list"]).contains("my_by_hand"));
    assert_eq!(cove(&["tenant", "pause", "my_by_hand"]), "my_by_hand is paused\n");
    assert_eq!(cove(&["tenant", "resume", "my_by_hand"]), "my_by_hand is open\n");
    assert_eq!(client.value("SELECT 1"), "1");
    assert_eq!(cove(&["tenant", "remove", "my_by_hand"]), "removed my_by_hand\n");
}

#[test]
fn both_legs_of_mysql_are_encrypted() {
    let scratch = Scratch::new();
    let maria = prepared(MariaDb::start_with_tls());
    let certificate = Certificate::new(&scratch);
    let bouncer = format!(
        "tls.cert = {:?}\ntls.key = {:?}\n\
         servers.safe.address = \"localhost:{}\"\nservers.safe.tls = \"verify-full\"\n\
         servers.safe.ca = {:?}",
        certificate.certificate,
        certificate.key,
        maria.tcp().port(),
        maria.certificate(),
    );
    let tenants = [behind("myencrypted", "transaction", 3)];
    let fronted = front_at(Arc::new(maria), "safe", &bouncer, &tenants);
    let mut client = fronted.login("myencrypted");
    let cipher = client.run("SHOW SESSION STATUS LIKE 'Ssl_cipher'").rows()[0][1].clone();
    assert!(cipher.is_some_and(|it| !it.is_empty()), "the server's leg is not encrypted");
    run_tls(&fronted, &certificate.certificate);
}

/// Runs a program whose clients encrypt, and do not if not configured.
fn run_tls(fronted: &Fronted, root: &Path) {
    let mut command: Command = python("mysql/tls_client.py");
    command.env("MYSQL_HOST", fronted.tcp().ip().to_string());
    command.env("MYSQL_PORT", fronted.tcp().port().to_string());
    command.env("MYSQL_USER", USER).env("MYSQL_PASSWORD", PASSWORD);
    command.env("MYSQL_DATABASE", "myencrypted").env("ROOT", root).stdin(Stdio::null());
    check_output("tls_client.py", 4, &command.output().unwrap());
}

#[test]
fn a_mysql_server_that_cannot_prove_who_it_is_is_not_used() {
    let other = Scratch::new();
    let stranger = Certificate::new(&other).certificate;
    let maria = prepared(MariaDb::start_with_tls());
    let bouncer = format!(
        "servers.false.address = \"localhost:{}\"\nservers.false.tls = \"verify-full\"\n\
         servers.false.ca = {stranger:?}",
        maria.tcp().port()
    );
    let tenants: [Behind; 1] = [behind("myimpostor", "transaction", 1)];
    let mut fronted = front_at(Arc::new(maria), "false", &bouncer, &tenants);
    for warning in ["myimpostor", "false", "certificate"] {
        fronted.server.expect_log(warning);
    }
    let answer = fronted.try_login("myimpostor").and_then(|mut client| client.query("SELECT 1"));
    let error = match answer {
        Ok(answer) => answer.error(),
        Err(failure) => failure.error(),
    };
    let error = error.expect("a word about it");
    assert!(ENDS.contains(&error.code) && error.message.contains("certificate"), "{error}");
}

#[test]
fn nobody_waits_for_those_who_do_not_log_in_to_mysql() {
    let fronted = front(shared_maria(), "login_s = 5", &[behind("myslow", "transaction", 2)]);
    let mut slow: Vec<MyClient> = (0..60)
        .map(|number: usize| {
            let mut client = MyClient::open(&fronted.address()).unwrap();
            client.greet().unwrap();
            let whole = testkit::my::packets(1, &client.response(&login("myslow")));
            // No bytes, a part of a message, and the beginning of a longer one.
            let bytes = match number % 3 {
                0 => &[][..],
                1 => &whole[..number.min(whole.len() - 1)],
                _ => &[0xFF, 0, 0, 1][..],
            };
            client.send(bytes).unwrap();
            client
        })
        .collect();
    assert_eq!(fronted.login("myslow").value("SELECT 1"), "1");
    for client in &mut slow {
        client.patience(SOON);
        assert!(client.end().0, "it may stay without logging in");
    }
}
