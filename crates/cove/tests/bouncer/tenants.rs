//! The bouncer of the real binary: tenants, modes, limits, cancelling, operation.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::pg::{PROTOCOL_3_0, PROTOCOL_3_2, cancel_request, ssl_request, startup};
use testkit::{Client, Cut, Cutter, PgBatch, PgClient, PgFailure, Request, Response, Way, until};

use crate::support::{
    Behind, Bounced, PASSWORD, USER, bounce, bounce_at, config, postgres, shared_postgres,
};

/// Time limit for a state to be reached, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Long enough to see that no data arrives.
const NOTHING: Duration = Duration::from_millis(400);

/// Sends a request with or without a JSON body.
pub(crate) fn send(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let request = Request::new(method, path).header("content-type", "application/json");
    match body {
        Value::Null => client.send(&Request::new(method, path)),
        body => client.send(&request.body(body.to_string())),
    }
}

/// Sends a request that must succeed.
fn act(bounced: &Bounced, method: &str, path: &str, body: &Value) -> Value {
    let response = send(&bounced.server.client(), method, path, body);
    assert!((200..300).contains(&response.status), "{method} {path}: {}", response.text());
    if response.body.is_empty() { Value::Null } else { response.json() }
}

fn code(result: Result<PgClient, PgFailure>) -> String {
    let failure = result.expect_err("it logged in");
    failure.error().unwrap_or_else(|| panic!("no word: {failure}")).code().to_owned()
}

/// Returns the code of the error that ends a connection.
fn closing_error(client: &mut PgClient) -> String {
    let (is_over, messages) = client.end();
    assert!(is_over, "it is still there: {messages:?}");
    let error = messages.iter().find(|message| message.tag == b'E');
    error.map(|message| message.error().code().to_owned()).unwrap_or_default()
}

/// Waits until a server connection of this database runs a query.
fn until_running(bounced: &Bounced, query: &str) {
    until("a statement to run", SOON, || {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '{query}%' \
                           AND state = 'active' AND pid <> pg_backend_pid()"
        );
        let count = bounced.postgres.sql(&sql);
        if count == "0" { Err(count) } else { Ok(()) }
    });
}

#[test]
fn errors_that_clients_get_are_counted_by_sqlstate() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("errors_counted", "transaction", 2)]);
    let mut client = bounced.login("errors_counted");
    for (sql, expected) in [
        ("SELECT 1 / 0", "22012"),
        ("SELECT * FROM no_such_table", "42P01"),
        ("DO $$ BEGIN RAISE 'mine' USING ERRCODE = 'ZZ001'; END $$", "ZZ001"),
        ("SELECT 1 / 0", "22012"),
    ] {
        assert_eq!(client.fail(sql).code(), expected);
    }
    // A notice is not an error.
    client.query("DO $$ BEGIN RAISE WARNING 'take care'; END $$").unwrap();
    // A rejection by the bouncer itself is not an error of the server.
    let parameters = [("user", USER), ("database", "errors_counted")];
    assert_eq!(code(PgClient::login(&bounced.address(), &parameters, "pencils")), "28P01");
    // A server that closes a connection sends an error first.
    client.query("SELECT pg_terminate_backend(pg_backend_pid())").unwrap_err();
    let expected = json!({ "22012": 2, "42P01": 1, "57P01": 1, "ZZ001": 1 });
    let stats = act(&bounced, "GET", "/v1/tenants/errors_counted/stats", &Value::Null);
    assert_eq!(stats["errors"], expected, "{stats}");
    let all = act(&bounced, "GET", "/v1/tenants/stats", &Value::Null);
    assert_eq!(all["tenants"][0]["errors"], expected, "{all}");
    let metrics = bounced.server.client().anonymous().get("/metrics").text();
    let line = "cove_bouncer_errors_total{tenant=\"errors_counted\",code=\"22012\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn tenants_of_the_file_and_of_the_interface_are_served_side_by_side() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("side_file", "transaction", 3)]);
    bounced.postgres.sql("CREATE DATABASE side_api");
    let spec = json!({
        "name": "side_api", "server": bounced.postgres.tcp().to_string(),
        "users": [{"name": USER, "password": PASSWORD}],
    });
    act(&bounced, "POST", "/v1/tenants", &spec);
    for tenant in ["side_file", "side_api"] {
        assert_eq!(bounced.login(tenant).value("SELECT current_database()"), tenant);
        let parameters = [("user", USER), ("database", tenant)];
        assert_eq!(code(PgClient::login(&bounced.address(), &parameters, "pencils")), "28P01");
        let parameters = [("user", "nobody"), ("database", tenant)];
        assert_eq!(code(PgClient::login(&bounced.address(), &parameters, PASSWORD)), "28P01");
        let stats = act(&bounced, "GET", &format!("/v1/tenants/{tenant}/stats"), &Value::Null);
        assert_eq!((&stats["transactions"], &stats["servers"]), (&json!(1), &json!(1)), "{stats}");
        let metrics = bounced.server.client().anonymous().get("/metrics").text();
        let line = format!("cove_bouncer_transactions_total{{tenant=\"{tenant}\"");
        assert!(metrics.contains(&line), "{metrics}");
        assert_eq!(stats["errors"], json!({}), "{stats}");
    }
    assert_eq!(code(bounced.try_login("side_nowhere", &[])), "08000");

    let client = bounced.server.client();
    for path in ["/v1/tenants", "/v1/tenants/side_file", "/v1/tenants/side_api"] {
        let text = client.get(path).text();
        assert!(text.contains("***") && !text.contains(PASSWORD), "{text}");
    }
    let response = send(&client, "PUT", "/v1/tenants/side_file", &spec);
    assert_eq!(response.status, 409, "{}", response.text());
    for (field, value) in [
        ("name", json!("no such/name")),
        ("server", json!("")),
        ("limits", json!({"server_connections_max": 0})),
        ("colour", json!("red")),
    ] {
        let mut spec = spec.clone();
        spec["name"] = json!("side_other");
        spec[field] = value;
        let response = send(&client, "POST", "/v1/tenants", &spec);
        assert_eq!(response.status, 400, "{field}: {}", response.text());
        assert!(response.text().contains(field), "{field}: {}", response.text());
    }
    let other = bounced.server.other_client("stranger", &[]);
    assert_eq!(other.get("/v1/tenants").status, 403);
    assert_eq!(client.anonymous().get("/v1/tenants").status, 401);

    let mut late = bounced.login("side_api");
    act(&bounced, "DELETE", "/v1/tenants/side_api", &Value::Null);
    assert_eq!(closing_error(&mut late), "57P01");
    assert_eq!(code(bounced.try_login("side_api", &[])), "08000");
    assert_eq!(bounced.login("side_file").value("SELECT 1"), "1");
}

#[test]
fn what_the_interface_made_is_there_after_a_crash() {
    let mut bounced = bounce(shared_postgres(), "", &[]);
    bounced.postgres.sql("CREATE DATABASE crash_api");
    let spec = json!({
        "name": "crash_api", "server": bounced.postgres.tcp().to_string(),
        "users": [{"name": USER, "password": PASSWORD}],
    });
    act(&bounced, "POST", "/v1/tenants", &spec);
    let mut client = bounced.login("crash_api");
    client.run("BEGIN; CREATE TABLE never ()");
    let kept = std::fs::read(bounced.server.data_dir().join("cove.db"));
    bounced.server.restart();
    bounced.moved();
    assert_eq!(closing_error(&mut client), "");
    let mut client = bounced.login("crash_api");
    assert_eq!(client.fail("SELECT * FROM never").code(), "42P01");
    // The stored record does not contain the password.
    if let Ok(kept) = kept {
        assert!(!testkit::process::contains(&kept, PASSWORD.as_bytes()));
    }
}

#[test]
fn a_tenant_is_named_in_several_ways() {
    let tenants = ["named_one", "named_two"].map(|name| Behind::new(name, "transaction", 2));
    let bounced = bounce(shared_postgres(), "", &tenants);
    let prefixed = format!("named_two__{USER}");
    for (parameters, expected) in [
        (vec![("user", USER), ("database", "named_one")], "named_one"),
        (vec![("user", &prefixed), ("database", "elsewhere")], "named_two"),
        (vec![("user", &prefixed)], "named_two"),
        (vec![("user", USER), ("options", "-c tenant_id=named_two -c work_mem=3MB")], "named_two"),
        (vec![("user", USER), ("tenant_id", "named_one"), ("database", "named_two")], "named_one"),
        (vec![("user", USER), ("options", "--tenant-id=named_two")], "named_two"),
    ] {
        let client = PgClient::login(&bounced.address(), &parameters, PASSWORD);
        let mut client = client.unwrap_or_else(|error| panic!("{parameters:?}: {error}"));
        assert_eq!(client.value("SELECT current_database()"), expected, "{parameters:?}");
        assert_eq!(client.value("SELECT current_user"), USER);
    }
    for parameters in [
        vec![("user", USER), ("database", "nowhere")],
        vec![("user", USER), ("tenant_id", "nowhere"), ("database", "named_one")],
        vec![("user", USER), ("tenant_id", "'; DROP TABLE x")],
        vec![("user", "nowhere__ada")],
    ] {
        let result = PgClient::login(&bounced.address(), &parameters, PASSWORD);
        assert_eq!(code(result), "08000", "{parameters:?}");
    }
}

#[test]
fn each_mode_gives_connections_back_when_it_says() {
    let tenants = ["session", "transaction", "statement"]
        .map(|mode| Behind::new(&format!("mode_{mode}"), mode, 1).with("limits.wait_s = 3"));
    let bounced = bounce(shared_postgres(), "", &tenants);

    let (mut a, mut b) = (bounced.login("mode_transaction"), bounced.login("mode_transaction"));
    let pid = a.value("SELECT pg_backend_pid()");
    assert_eq!(b.value("SELECT pg_backend_pid()"), pid);
    a.run("BEGIN");
    assert_eq!(b.query("SELECT 1").refusal(), "53300");
    a.run("COMMIT");
    assert_eq!(bounced.login("mode_transaction").value("SELECT pg_backend_pid()"), pid);

    let mut a = bounced.login("mode_session");
    let pid = a.value("SELECT pg_backend_pid()");
    let waiting = bounced.try_login("mode_session", &[]).and_then(|mut b| b.query("SELECT 1"));
    assert_eq!(waiting.refusal(), "53300");
    a.run("SET work_mem = '3MB'");
    a.close();
    let mut b = bounced.login("mode_session");
    assert_eq!(b.value("SELECT pg_backend_pid()"), pid);
    assert_ne!(b.value("SHOW work_mem"), "3MB");

    let mut a = bounced.login("mode_statement");
    assert_eq!(a.value("SELECT 1"), "1");
    let refused = a.query("BEGIN");
    assert!(refused.is_err() || refused.unwrap().error().is_some());
    assert_eq!(bounced.login("mode_statement").value("SELECT 2"), "2");
}

/// Code of an error in a response or a failure.
trait ErrorCode {
    fn refusal(self) -> String;
}

impl ErrorCode for Result<testkit::PgAnswer, PgFailure> {
    fn refusal(self) -> String {
        let error = match self {
            Ok(answer) => answer.error(),
            Err(failure) => failure.error(),
        };
        error.map(|error| error.code().to_owned()).unwrap_or_default()
    }
}

#[test]
fn a_tenant_is_paused_resumed_and_drained() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("paused", "transaction", 3)]);
    let mut idle = bounced.login("paused");
    let mut busy = bounced.login("paused");
    idle.run("SELECT 1");
    busy.run("BEGIN");
    act(&bounced, "POST", "/v1/tenants/paused/pause", &Value::Null);
    // A client in a transaction continues; one that starts a transaction waits.
    busy.run("SELECT 1");
    busy.run("COMMIT");
    idle.send(&PgBatch::new().query("SELECT 'held'").0).unwrap();
    idle.patience(NOTHING);
    assert!(idle.answer().is_err_and(|failure| failure.is_timeout()));
    let tenant = act(&bounced, "GET", "/v1/tenants/paused", &Value::Null);
    assert_eq!(tenant["admission"], "paused");
    act(&bounced, "POST", "/v1/tenants/paused/resume", &Value::Null);
    idle.patience(SOON);
    assert_eq!(idle.answer().unwrap().value(), "held");

    act(&bounced, "POST", "/v1/tenants/paused/pause?refuse=true", &Value::Null);
    assert_eq!(code(bounced.try_login("paused", &[])), "08000");
    assert_eq!(idle.query("SELECT 1").refusal(), "08000");
    act(&bounced, "POST", "/v1/tenants/paused/resume", &Value::Null);

    let mut idle = bounced.login("paused");
    let mut busy = bounced.login("paused");
    idle.run("SELECT 1");
    busy.run("BEGIN");
    act(&bounced, "POST", "/v1/tenants/paused/drain", &Value::Null);
    assert_eq!(code(bounced.try_login("paused", &[])), "08000");
    assert_eq!(closing_error(&mut idle), "57P01");
    busy.run("CREATE TABLE finished ()");
    busy.run("COMMIT");
    assert_eq!(closing_error(&mut busy), "57P01");
    act(&bounced, "POST", "/v1/tenants/paused/resume", &Value::Null);
    assert_eq!(bounced.login("paused").value("SELECT count(*) FROM finished"), "0");
}

#[test]
fn limits_end_what_takes_too_long_and_refuse_what_is_too_much() {
    let limits = [
        ("limit_clients", "limits.clients_max = 2"),
        ("limit_waiting", "limits.waiting_max = 1\nlimits.wait_s = 20"),
        ("limit_query", "limits.query_s = 3"),
        ("limit_transaction", "limits.transaction_s = 3"),
        ("limit_idle_in_transaction", "limits.idle_in_transaction_s = 3"),
        ("limit_idle", "limits.client_idle_s = 3"),
    ];
    let tenants = limits.map(|(name, limit)| Behind::new(name, "transaction", 1).with(limit));
    let bounced = bounce(shared_postgres(), "", &tenants);

    let both = [bounced.login("limit_clients"), bounced.login("limit_clients")];
    assert_eq!(code(bounced.try_login("limit_clients", &[])), "53300");
    drop(both);
    until("a place", SOON, || {
        bounced.try_login("limit_clients", &[]).map(drop).map_err(|error| error.to_string())
    });

    let mut clients: Vec<PgClient> = (0..3).map(|_| bounced.login("limit_waiting")).collect();
    clients[0].run("BEGIN");
    clients[1].send(&PgBatch::new().query("SELECT 'waited'").0).unwrap();
    until("one to wait", SOON, || {
        let stats = act(&bounced, "GET", "/v1/tenants/limit_waiting/stats", &Value::Null);
        if stats["clients_waiting"] == 1 { Ok(()) } else { Err(stats.to_string()) }
    });
    assert_eq!(clients[2].query("SELECT 1").refusal(), "53300");
    clients[0].run("COMMIT");
    assert_eq!(clients[1].answer().unwrap().value(), "waited");

    // Cancelled on the server as well, not only disconnected.
    let mut client = bounced.login("limit_query");
    assert_eq!(client.query("SELECT pg_sleep(60), 'limit'").refusal(), "57014");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%''limit''%' \
                   AND state = 'active' AND pid <> pg_backend_pid()";
    until("the server to stop", SOON, || {
        let count = bounced.postgres.sql(running);
        if count == "0" { Ok(()) } else { Err(count) }
    });
    assert_eq!(bounced.login("limit_query").value("SELECT 1"), "1");

    for (tenant, code) in [
        ("limit_transaction", "25P04"),
        ("limit_idle_in_transaction", "25P03"),
        ("limit_idle", "57P05"),
    ] {
        let mut client = bounced.login(tenant);
        if tenant != "limit_idle" {
            client.run("BEGIN; CREATE TABLE never ()");
        }
        assert_eq!(closing_error(&mut client), code, "{tenant}");
        let mut client = bounced.login(tenant);
        assert_eq!(client.fail("SELECT * FROM never").code(), "42P01", "{tenant}");
    }
}

#[test]
fn a_cancel_request_reaches_its_own_statement_and_no_other() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("cancelled", "transaction", 1)]);
    let cancel = |pid: u32, key: &[u8]| {
        let mut client = PgClient::open(&bounced.address()).unwrap();
        client.send(&cancel_request(pid, key)).unwrap();
        assert!(client.end().0, "a cancel request was not closed");
    };
    let (mut a, mut b) = (bounced.login("cancelled"), bounced.login("cancelled"));
    for turn in 0..15 {
        // The next statement runs on the same server connection as soon as it is free.
        a.send(&PgBatch::new().query("SELECT pg_sleep(60), 'first'").0).unwrap();
        until_running(&bounced, "SELECT pg_sleep(60), ''first''");
        b.send(&PgBatch::new().query("SELECT pg_sleep(0.03), 'second'").0).unwrap();
        // Wrong keys do nothing.
        cancel(a.pid, &[0, 0, 0, 0]);
        cancel(a.pid.wrapping_add(7_000), &a.key);
        cancel(a.pid, &a.key);
        assert_eq!(a.answer().refusal(), "57014", "turn {turn}");
        let answer = b.answer().unwrap();
        assert_eq!(answer.error(), None, "turn {turn}");
        // No statement is running, so nothing is cancelled.
        cancel(a.pid, &a.key);
        assert_eq!(b.value("SELECT pg_sleep(0.01) IS NOT NULL"), "t");
    }
    // A waiting client is cancelled without the server.
    a.run("BEGIN");
    b.send(&PgBatch::new().query("SELECT 'waits'").0).unwrap();
    until("it to wait", SOON, || {
        let stats = act(&bounced, "GET", "/v1/tenants/cancelled/stats", &Value::Null);
        if stats["clients_waiting"] == 1 { Ok(()) } else { Err(stats.to_string()) }
    });
    cancel(b.pid, &b.key);
    assert_eq!(b.answer().refusal(), "57014");
    assert_eq!(a.value("SELECT 1"), "1");
    a.run("COMMIT");
    assert_eq!(b.value("SELECT 2"), "2");
}

#[test]
fn a_statement_is_cancelled_by_a_key_of_any_length() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("keys", "transaction", 2)]);
    let parameters = [("user", USER), ("database", "keys")];
    for (version, length) in [(PROTOCOL_3_0, 4), (PROTOCOL_3_2, 32)] {
        let address = bounced.address();
        let client = PgClient::login_as(version, &address, &parameters, PASSWORD);
        let mut client = client.unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!(client.key.len(), length);
        client.send(&PgBatch::new().query("SELECT pg_sleep(60), 'keys'").0).unwrap();
        until_running(&bounced, "SELECT pg_sleep(60), ''keys''");
        let mut other = PgClient::open(&address).unwrap();
        other.send(&cancel_request(client.pid, &client.key)).unwrap();
        assert_eq!(client.answer().refusal(), "57014");
    }
    // A future version, and an unknown option.
    let more = [("user", USER), ("database", "keys"), ("_pq_.future", "1")];
    let version = PROTOCOL_3_0 + 9;
    let mut client = PgClient::login_as(version, &bounced.address(), &more, PASSWORD).unwrap();
    let (spoken, unknown) = client.negotiated.clone().expect("a negotiation");
    assert_eq!((spoken & 0xFFFF, unknown), (2, vec!["_pq_.future".to_owned()]));
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn tenants_change_without_a_client_noticing() {
    let keeps = Behind::new("reload_keeps", "transaction", 2);
    let goes = Behind::new("reload_goes", "transaction", 2);
    let comes = Behind::new("reload_comes", "transaction", 2);
    let bounced = bounce(shared_postgres(), "", &[keeps.clone(), goes]);
    bounced.postgres.sql("CREATE DATABASE reload_comes");
    let mut client = bounced.login("reload_keeps");
    client.run("SET work_mem = '3MB'");
    let mut leaving = bounced.login("reload_goes");
    leaving.run("BEGIN");
    let upstream = bounced.postgres.tcp().to_string();
    let changed = [keeps.with("limits.query_s = 3"), comes];
    bounced.server.scratch().file("cove.toml", config(&upstream, "", &changed));
    let reloaded = act(&bounced, "POST", "/v1/bouncer/reload", &Value::Null);
    assert_eq!(reloaded["tenants"], 2, "{reloaded}");
    assert_eq!(client.value("SHOW work_mem"), "3MB");
    // From now on it also applies to existing clients.
    assert_eq!(client.query("SELECT pg_sleep(60)").refusal(), "57014");
    assert_eq!(bounced.login("reload_comes").value("SELECT current_database()"), "reload_comes");
    assert_eq!(code(bounced.try_login("reload_goes", &[])), "08000");
    // In the middle of its transaction.
    assert_eq!(closing_error(&mut leaving), "57P01");
    // An invalid configuration changes nothing.
    bounced.server.scratch().file("cove.toml", "[bouncer]\ncolour = 1\n");
    let response = send(&bounced.server.client(), "POST", "/v1/bouncer/reload", &Value::Null);
    assert!(response.status >= 400 && response.text().contains("colour"), "{}", response.text());
    assert_eq!(bounced.login("reload_keeps").value("SELECT 1"), "1");
}

#[test]
fn users_are_looked_up_where_they_are() {
    let query = "auth_query = { user = \"lookup\", password = \"lookup\" }";
    let bounced =
        bounce(shared_postgres(), "", &[Behind::new("looked_up", "transaction", 3).with(query)]);
    bounced.postgres.sql(
        "CREATE ROLE lookup LOGIN SUPERUSER PASSWORD 'lookup'; CREATE ROLE grace LOGIN PASSWORD 'hopper'; \
         CREATE ROLE late LOGIN PASSWORD 'late' VALID UNTIL '2020-01-01'; CREATE ROLE unproved LOGIN",
    );
    let login = |user: &str, password: &str| {
        let parameters = [("user", user), ("database", "looked_up")];
        PgClient::login(&bounced.address(), &parameters, password)
    };
    let mut client = login("grace", "hopper").unwrap();
    assert_eq!(client.value("SELECT current_user"), "grace");
    for (user, password) in [
        ("grace", "wrong"),
        ("late", "late"),
        ("unproved", ""),
        ("lookup", "lookup"),
        ("nobody", ""),
    ] {
        assert_eq!(code(login(user, password)), "28P01", "{user}");
    }
}

#[test]
fn a_tenant_for_reading_is_not_written_to() {
    let tenants = ["transaction", "session"]
        .map(|mode| Behind::new(&format!("reading_{mode}"), mode, 2).with("read_only = true"));
    let bounced = bounce(shared_postgres(), "", &tenants);
    for tenant in ["reading_transaction", "reading_session"] {
        for sql in [
            "CREATE TABLE written ()",
            "BEGIN READ WRITE; CREATE TABLE written ()",
            "START TRANSACTION READ WRITE; CREATE TABLE written (); COMMIT",
            "SET default_transaction_read_only = off; CREATE TABLE written ()",
            "SET transaction_read_only = off; CREATE TABLE written ()",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; CREATE TABLE written ()",
            "SELECT set_config('default_transaction_read_only', 'off', false); CREATE TABLE written ()",
            "BEGIN; SET TRANSACTION READ WRITE; CREATE TABLE written (); COMMIT",
            "/* hidden */ SeT /**/ default_transaction_read_only TO 'off'; CREATE TABLE written ()",
            "RESET ALL; CREATE TABLE written ()",
            "DISCARD ALL",
        ] {
            let mut client = bounced.login(tenant);
            drop(client.query(sql));
            // Whether it was rejected or had no effect: a second statement may not write either.
            if let Ok(answer) = client.query("CREATE TABLE written ()") {
                assert!(answer.error().is_some(), "{tenant}: {sql}: it was written");
            }
            drop(client.query("ROLLBACK"));
        }
        let mut client =
            bounced.try_login(tenant, &[("options", "-c default_transaction_read_only=off")]);
        if let Ok(client) = &mut client {
            assert_eq!(client.fail("CREATE TABLE written ()").code(), "25006");
        }
        let mut client = bounced.login(tenant);
        assert_eq!(client.value("SELECT to_regclass('written') IS NULL"), "t");
    }
}

#[test]
fn code_of_a_database_lets_no_reader_write() {
    let readers = ["transaction", "session"].map(|mode| {
        let reader = Behind::new(&format!("lifting_{mode}"), mode, 1);
        reader.with("read_only = true").with("database = \"lifted\"")
    });
    let [one, other] = readers;
    let writer = Behind::new("lifted", "transaction", 1);
    let bounced = bounce(shared_postgres(), "", &[writer, one, other]);
    bounced.login("lifted").run(
        "CREATE FUNCTION lift() RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
         RETURN set_config('default_transaction_read_only', 'off', false); END $$; \
         CREATE VIEW lifting AS SELECT lift() AS it",
    );
    let write = "CREATE TABLE written ()";
    for tenant in ["lifting_transaction", "lifting_session"] {
        for lift in ["SELECT lift()", "SELECT it FROM lifting"] {
            let mut client = bounced.login(tenant);
            assert_eq!(client.value(lift), "off", "{tenant}");
            assert_eq!(client.fail(write).code(), "25006", "{tenant}: {lift}");
            // In a transaction of several statements, the last of which ends it.
            client.run("BEGIN");
            client.run(lift);
            client.run("COMMIT");
            assert_eq!(client.fail(write).code(), "25006", "{tenant}: {lift}");
            // A statement that is sent after it does not overtake it.
            let both = PgBatch::new().query(lift).query(write);
            assert_eq!(client.ask(&both).expect("an answer").value(), "off");
            let error = client.answer().expect("an answer").error().expect("an error");
            assert_eq!(error.code(), "25006", "{tenant}: {lift}");
            client.run(lift);
            drop(client);
            // Nor may another client that uses its connection afterwards.
            assert_eq!(bounced.login(tenant).fail(write).code(), "25006", "{tenant}: {lift}");
        }
    }
}

#[test]
fn a_server_that_is_gone_is_told_at_once_and_found_again() {
    let postgres = std::sync::Arc::new(postgres());
    let proxy = Cutter::start(postgres.tcp());
    let upstream = proxy.address().to_string();
    let tenant = Behind::new("gone", "transaction", 2).with("limits.server_retry_s = 0.3");
    // Waiting must not time out: the error would arrive after this test's own timeout.
    let tenant = tenant.with("limits.wait_s = 600");
    let mut bounced = bounce_at(postgres, &upstream, "login_s = 600", &[tenant]);
    bounced.server.expect_log("gone");
    bounced.server.expect_log("server");
    let mut idle = bounced.login("gone");
    let mut busy = bounced.login("gone");
    idle.run("SET work_mem = '3MB'");
    busy.run("BEGIN");
    proxy.plan(|_| Some(Cut { way: Way::Back, after: 0 }));
    proxy.cut_all();
    assert!(["08006", "57P01"].contains(&closing_error(&mut busy).as_str()));
    // It has lost no state, and gets an error only when it needs the unavailable server.
    let lost = idle.query("SELECT 1").refusal();
    assert!(lost.starts_with("08"), "{lost}");
    for _ in 0..20 {
        let refused =
            bounced.try_login("gone", &[]).and_then(|mut client| client.query("SELECT 1"));
        assert!(refused.refusal().starts_with("08"));
    }
    proxy.plan(|_| None);
    until("the server to be found again", SOON, || {
        let client = bounced.try_login("gone", &[]);
        let answer = client.and_then(|mut client| client.query("SELECT 1"));
        let answer = answer.map_err(|error| error.to_string())?;
        answer.error().map_or(Ok(()), |error| Err(error.to_string()))
    });
}

#[test]
fn unix_sockets_serve_both_sides() {
    let directory = testkit::Scratch::new();
    let postgres = shared_postgres();
    let upstream = format!("{}:{}", postgres.socket_directory().display(), postgres.port());
    let bouncer = format!("unix_socket_dir = {:?}", directory.path());
    let bounced =
        bounce_at(postgres, &upstream, &bouncer, &[Behind::new("sockets", "transaction", 2)]);
    // Named after a port, as libpq requires.
    let mut entries = std::fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().path());
    let is_socket = |path: &PathBuf| path.display().to_string().contains(".s.PGSQL.");
    let socket = entries.find(is_socket).expect("a socket");
    let parameters = [("user", USER), ("database", "sockets")];
    let mut client = PgClient::login(&socket.clone().into(), &parameters, PASSWORD).unwrap();
    assert_eq!(client.value("SELECT inet_client_addr() IS NULL"), "t");
    assert_eq!(code(PgClient::login(&socket.into(), &parameters, "wrong")), "28P01");
    drop(bounced);
}

#[test]
fn what_one_side_does_not_read_the_other_does_not_send() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("pressure", "transaction", 3)]);
    let pid = bounced.server.pid();
    let mut client = bounced.login("pressure");
    client.run("SELECT repeat('x', 1 << 20) FROM generate_series(1, 4)");
    let before = testkit::process::resident_bytes(pid);
    // Half a gigabyte, none of it read.
    let sql = "SELECT repeat('x', 1 << 20) FROM generate_series(1, 512)";
    client.send(&PgBatch::new().query(sql).0).unwrap();
    let mut other = bounced.login("pressure");
    until("the server to wait for the client", SOON, || {
        let sql = "SELECT wait_event FROM pg_stat_activity WHERE query LIKE '%1, 512)' \
                   AND pid <> pg_backend_pid()";
        let event = other.query(sql).unwrap().rows();
        let event = event.first().and_then(|row| row[0].clone()).unwrap_or_default();
        if event == "ClientWrite" { Ok(()) } else { Err(event) }
    });
    // Memory of data in transit is freed.
    let flat = || {
        until("memory to be as before", SOON, || {
            let held = testkit::process::resident_bytes(pid).saturating_sub(before);
            if held < 16 << 20 { Ok(()) } else { Err(format!("{held} bytes are held")) }
        });
    };
    flat();
    // A value that must not be buffered as a whole.
    let mut large = bounced.login("pressure");
    let value = large.value("SELECT repeat('y', 64 << 20)");
    assert_eq!(value.len(), 64 << 20);
    let text = "z".repeat(48 << 20);
    let batch = PgBatch::new()
        .parse("", "SELECT length($1)")
        .bind("", "", &[Some(&text)])
        .execute("", 0)
        .sync();
    assert_eq!(large.ask(&batch).unwrap().value(), (48 << 20).to_string());
    flat();
    // A client that disconnects without reading does not slow down others.
    drop(client);
    assert_eq!(other.value("SELECT 1"), "1");
}

#[test]
fn half_of_a_connection_that_is_closed_still_gets_its_answer() {
    let bounced = bounce(shared_postgres(), "", &[Behind::new("half", "transaction", 1)]);
    let mut client = bounced.login("half");
    client.send(&PgBatch::new().query("SELECT pg_sleep(0.2), 'answer'").0).unwrap();
    client.finish();
    assert_eq!(client.answer().unwrap().rows()[0][1].as_deref(), Some("answer"));
    assert!(client.end().0);
    assert_eq!(bounced.login("half").value("SELECT 1"), "1");
}

#[test]
fn a_server_that_ends_says_goodbye_to_its_clients() {
    let mut bounced = bounce(shared_postgres(), "", &[Behind::new("goodbye", "transaction", 3)]);
    let mut idle = bounced.login("goodbye");
    let mut busy = bounced.login("goodbye");
    busy.run("BEGIN; CREATE TABLE finished ()");
    bounced.server.signal("TERM");
    assert_eq!(closing_error(&mut idle), "57P01");
    // An open transaction may end.
    busy.run("COMMIT");
    assert_eq!(closing_error(&mut busy), "57P01");
    assert!(bounced.server.wait(SOON).success());
    let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'goodbye'";
    until("its connections to be gone", SOON, || {
        let count = bounced.postgres.sql(left);
        if count == "0" { Ok(()) } else { Err(count) }
    });
}

#[test]
fn nobody_waits_for_those_who_do_not_log_in() {
    let bounced =
        bounce(shared_postgres(), "login_s = 5", &[Behind::new("slow", "transaction", 2)]);
    let begun = startup(PROTOCOL_3_0, &[("user", USER), ("database", "slow")]);
    let mut slow: Vec<PgClient> = (0..60)
        .map(|number: usize| {
            let mut client = PgClient::open(&bounced.address()).unwrap();
            // No bytes, a part of a message, a message, and a premature response to a challenge.
            let bytes = match number % 4 {
                0 => &[][..],
                1 => &begun[..number.min(begun.len() - 1)],
                2 => &begun[..],
                _ => &ssl_request()[..],
            };
            client.send(bytes).unwrap();
            client
        })
        .collect();
    assert_eq!(bounced.login("slow").value("SELECT 1"), "1");
    for client in &mut slow {
        client.patience(SOON);
        assert!(client.end().0, "it may stay without logging in");
    }
}
