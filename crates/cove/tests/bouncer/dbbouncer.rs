//! DBBouncer's REST interface, `cove tenant` and `cove bouncer`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::pg::PgClient;
use testkit::{Client, Request, Response, Scratch, Server, command, until};

use crate::shared::COVE;
use crate::support::{PASSWORD, USER, address, config, shared_postgres};

/// Starts a server with this interface, and returns a client of it.
fn serve(upstream: &str) -> (Server, Client) {
    let more = "[compat.dbbouncer]\nlisten = \"127.0.0.1:0\"\n";
    let config = format!("{}\n{more}", config(upstream, "", &[]));
    let server = Server::start_with(COVE, &[], Some(&config));
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address = addresses["dbbouncer"].as_str().unwrap().parse().unwrap();
    let client = Client::new(address, Some(server.token().to_owned()));
    (server, client)
}

fn send(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let request = Request::new(method, path);
    client.send(&match body {
        Value::Null => request,
        body => request.header("content-type", "application/json").body(body.to_string()),
    })
}

/// Runs a `cove` command against a server.
fn cove(server: &Server, arguments: &[&str]) -> Output {
    let mut command = command(COVE);
    command.args(arguments).arg("--data-dir").arg(server.data_dir());
    command.output().unwrap()
}

fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn dbbouncers_clients_make_use_and_remove_a_tenant() {
    let postgres = shared_postgres();
    postgres.sql("CREATE DATABASE dbb");
    let (server, client) = serve("127.0.0.1:1");
    let body = json!({
        "id": "dbb_1", "db_type": "postgres", "host": "127.0.0.1", "port": postgres.port(),
        "dbname": "dbb", "username": USER, "password": PASSWORD, "max_connections": 3
    });
    let made = send(&client, "POST", "/tenants", &body);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["id"], "dbb_1");
    let again = send(&client, "POST", "/tenants", &body);
    assert_eq!(again.status, 409);
    assert!(again.json()["error"].as_str().unwrap().contains("dbb_1"), "{}", again.text());

    let parameters = [("user", USER), ("database", "dbb_1")];
    let login = || PgClient::login(&address(&server).into(), &parameters, PASSWORD);
    let mut database = login().unwrap();
    assert_eq!(database.value("SELECT current_database()"), "dbb");
    // A part is changed, and the rest stays the same, including the password.
    let changed = send(&client, "PUT", "/tenants/dbb_1", &json!({ "idle_timeout": "1m30s" }));
    assert_eq!(changed.status, 200, "{}", changed.text());
    let tenant = client.get("/tenants/dbb_1").json();
    assert_eq!(tenant["config"]["IdleTimeout"], 90_000_000_000_u64);
    assert_eq!(tenant["config"]["Password"], "***REDACTED***");
    assert_eq!(tenant["stats"]["max_connections"], 3);
    let stats = client.get("/tenants/dbb_1/stats").json();
    assert_eq!((&stats["tenant_id"], &stats["db_type"]), (&json!("dbb_1"), &json!("postgres")));
    assert!(!client.get("/tenants").text().contains(PASSWORD));
    assert!(login().is_ok());

    assert_eq!(send(&client, "POST", "/tenants/dbb_1/pause", &Value::Null).status, 200);
    assert_eq!(client.get("/tenants/dbb_1").json()["paused"], true);
    assert!(login().is_err());
    assert_eq!(send(&client, "POST", "/tenants/dbb_1/resume", &Value::Null).status, 200);
    assert!(login().is_ok());
    let removed = send(&client, "DELETE", "/tenants/dbb_1", &Value::Null);
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(client.get("/tenants/dbb_1").status, 404);
}

#[test]
fn dbbouncers_clients_learn_what_is_wrong() {
    let (server, client) = serve("127.0.0.1:1");
    let whole = json!({
        "id": "t", "db_type": "postgres", "host": "h", "dbname": "d", "username": "u",
        "password": "p"
    });
    let check = |field: &str, value: Value| {
        let mut body = whole.clone();
        body[field] = value;
        let answer = send(&client, "POST", "/tenants", &body);
        assert_eq!(answer.status, 400, "{field}: {}", answer.text());
        assert!(answer.json()["error"].is_string(), "{field}: {}", answer.text());
    };
    check("id", json!("no name"));
    check("id", Value::Null);
    check("db_type", json!("oracle"));
    check("db_type", Value::Null);
    check("host", Value::Null);
    check("port", json!(70_000));
    check("username", Value::Null);
    check("password", json!("env:HOME"));
    check("pool_mode", json!("sometimes"));
    check("idle_timeout", json!("5 minutes"));
    let long = Request::new("POST", "/tenants").header("content-type", "application/json");
    assert_eq!(client.announce(&long, 1 << 30).unwrap().status, 400);
    assert_eq!(client.get("/tenants/none/stats").status, 404);

    let nobody = client.anonymous();
    assert_eq!(nobody.get("/tenants").status, 401);
    for open in ["/health", "/ready", "/metrics"] {
        assert_eq!(nobody.get(open).status, 200, "{open}");
    }
    // A token for programs does not include access to databases.
    let other = server.other_client("other", &[]);
    assert_eq!(other.get("/v1/tenants").status, 403);
    let limited = server.other_client("limited", &["--operator", "--scope", "executions"]);
    assert_eq!(limited.get("/v1/tenants").status, 403);
    let allowed = server.other_client("allowed", &["--operator", "--scope", "tenants"]);
    assert_eq!(allowed.get("/v1/tenants").status, 200);
}

#[test]
fn the_command_line_makes_shows_and_removes_tenants() {
    let postgres = shared_postgres();
    postgres.sql("CREATE DATABASE by_hand");
    let (server, _) = serve("127.0.0.1:1");
    let scratch = Scratch::new();
    let file = scratch.file("password", format!("{PASSWORD}\n"));
    let at = postgres.tcp().to_string();
    let add = |more: &[&str]| {
        let file = file.display().to_string();
        let all = ["tenant", "add", "by_hand", "--postgres", &at, "--user", USER];
        cove(&server, &[&all[..], &["--password-file", &*file], more].concat())
    };
    assert_eq!(stdout_of(&add(&["--limit", "server_connections_max=2"])), "created by_hand\n");
    let again = add(&[]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert_eq!(stdout_of(&add(&["--replace", "--weight", "3"])), "updated by_hand\n");
    let parameters = [("user", USER), ("database", "by_hand")];
    let mut client = PgClient::login(&address(&server).into(), &parameters, PASSWORD).unwrap();
    client.value("SELECT 1");
    let view = stdout_of(&cove(&server, &["tenant", "show", "by_hand", "--connections", "--json"]));
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(view["tenant"]["spec"]["weight"], 3);
    assert_eq!(view["clients"].as_array().unwrap().len(), 1, "{view}");
    assert_eq!(view["servers"].as_array().unwrap().len(), 1, "{view}");
    let top = stdout_of(&cove(&server, &["bouncer", "top"]));
    assert!(top.starts_with("tenants 1  clients 1 (0 active"), "{top}");
    assert!(stdout_of(&cove(&server, &["tenant", "list"])).contains("by_hand"));
    assert_eq!(stdout_of(&cove(&server, &["tenant", "pause", "by_hand"])), "by_hand is paused\n");
    assert_eq!(stdout_of(&cove(&server, &["tenant", "resume", "by_hand"])), "by_hand is open\n");
    assert_eq!(stdout_of(&cove(&server, &["bouncer", "reload"])), "reloaded; tenants: 1\n");
    let reloaded = stdout_of(&cove(&server, &["bouncer", "reload", "--json"]));
    assert!(reloaded.contains("\"tenants\":1"), "{reloaded}");
    assert_eq!(stdout_of(&cove(&server, &["tenant", "remove", "by_hand"])), "removed by_hand\n");
    assert_eq!(cove(&server, &["tenant", "show", "by_hand"]).status.code(), Some(2));
}

#[test]
fn the_bouncer_works_alone_and_reads_its_file_again() {
    let postgres = shared_postgres();
    postgres.sql("CREATE DATABASE alone");
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    let text = |tenants: &str| {
        // The default ports are left to other programs.
        format!(
            "[bouncer]\nlisten = \"\"\nmysql.listen = \"127.0.0.1:0\"\n\
             unix_socket_dir = {directory:?}\n{tenants}"
        )
    };
    let tenant = format!(
        "[[bouncer.tenants]]\nname = \"alone\"\nserver = \"{}\"\n\
         users = [{{ name = \"{USER}\", password = \"env:ALONE\" }}]\n",
        postgres.tcp()
    );
    let file = scratch.file("cove.toml", text(""));
    let mut alone = command(COVE);
    alone.args(["bouncer", "--config"]).arg(&file).env("ALONE", PASSWORD);
    let mut alone = alone.stderr(Stdio::null()).spawn().unwrap();
    let socket = Path::new(&directory).to_owned();
    let login = || {
        let parameters = [("user", USER), ("database", "alone")];
        let address = testkit::pg::PgAddress::Unix(socket.join(".s.PGSQL.6432"));
        PgClient::login(&address, &parameters, PASSWORD)
    };
    let soon = Duration::from_secs(60);
    until("a refusal for want of a tenant", soon, || match login() {
        Err(error) if error.to_string().contains("no tenant") => Ok(()),
        other => Err(format!("{:?}", other.map(drop))),
    });
    fs::write(&file, text(&tenant)).unwrap();
    let signal = |name: &str, pid: u32| {
        let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("HUP", alone.id());
    let mut client = None;
    until("the tenant", soon, || {
        client = Some(login().map_err(|error| error.to_string())?);
        Ok(())
    });
    assert_eq!(client.unwrap().value("SELECT current_database()"), "alone");
    signal("TERM", alone.id());
    assert!(alone.wait().unwrap().success());
    assert!(!socket.join(".s.PGSQL.6432").exists(), "it left its socket");
}
