//! Ports of sandboxes by name, and the server's own ports in a sandbox: a client that knows a
//! sandbox's id reaches its programs, but no service that acts with the sandbox's rights.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{Client, MariaDb, Postgres, Request, Response, Scratch, Server, until};

use crate::gateway::{CANARY, patch, shop};
use crate::gateway_outside::Target;
use crate::sessions_support::{SOON, Sessions, config, probe, with};
use crate::support::{COVE, beside_others};

/// Default ports of one grant of each kind.
const PORTS: [u16; 5] = [5432, 3306, 8181, 3128, 8100];

/// Starts a server with all kinds of grants, and E2B's interface.
fn serve(postgres: &Postgres, mariadb: &MariaDb, model: &Target, lake: &Scratch) -> Server {
    // Before the server starts: its health checks log a warning for a login that is refused.
    postgres.sql(&format!("CREATE ROLE clerk LOGIN PASSWORD '{CANARY}'"));
    mariadb.sql("CREATE DATABASE judge");
    mariadb.user("judge", CANARY);
    let mut table = config("memory_bytes = 536870912");
    let _ = write!(
        table,
        "[sessions.model]\nurl = \"http://{}\"\n\
         [catalog]\nwarehouse = \"main\"\nroot = \"{}\"\n\
         [bouncer]\nlisten = \"127.0.0.1:0\"\nmysql.listen = \"127.0.0.1:0\"\n\
         [[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"clerk\", password = \"{CANARY}\" }}]\n\
         [[bouncer.tenants]]\nname = \"judge\"\nengine = \"mysql\"\nserver = \"{}\"\n\
         users = [{{ name = \"judge\", password = \"{CANARY}\" }}]\n",
        model.address,
        lake.path().display(),
        postgres.tcp(),
        mariadb.tcp(),
    );
    Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&table))
}

/// Returns a client of E2B's listener without a token.
fn stranger(server: &Server) -> Client {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address: SocketAddr = addresses["e2b"].as_str().unwrap().parse().unwrap();
    Client::new(address, None)
}

/// Returns all forms in which a request can name a port of a sandbox.
fn ways(sandbox: &str, port: u16) -> [Request; 7] {
    let to = |target: &str| Request::new("POST", target).body("{\"namespace\":[\"stranger\"]}");
    let ask = || to("/v1/main/namespaces");
    let of_headers = || ask().header("e2b-sandbox-id", sandbox);
    [
        ask().header("host", &format!("{port}-{sandbox}.localhost")),
        ask().header("host", &format!("{port}-{}.example.com:80", sandbox.to_uppercase())),
        of_headers().header("e2b-sandbox-port", &port.to_string()),
        ask()
            .header("host", &format!("{port}-{sandbox}.localhost"))
            .header("upgrade", "websocket")
            .header("connection", "upgrade"),
        // The absolute form that clients of proxies send.
        to(&format!("http://{port}-{sandbox}.localhost/v1/main/namespaces"))
            .header("host", &format!("{port}-{sandbox}.localhost")),
        ask().header("host", &format!("0{port}-{sandbox}.localhost.")),
        ask()
            .header("host", &format!("{port}-{sandbox}.localhost"))
            .header("upgrade", "h2c")
            .header("http2-settings", "AAMAAABkAAQAAP__")
            .header("connection", "upgrade, http2-settings"),
    ]
}

fn check_refused(stranger: &Client, sandbox: &str, port: u16) {
    for (way, request) in ways(sandbox, port).into_iter().enumerate() {
        let answer = stranger.send(&request);
        let text = answer.text();
        let names_it = text.contains(&format!("port {port} of the sandbox is served by Cove"));
        assert!(answer.status == 403 && names_it, "way {way} to {port}: {} {text}", answer.status);
    }
}

#[test]
fn nobody_reaches_a_grant_but_the_sandbox_that_has_it() {
    let _guard = beside_others();
    let (postgres, mariadb, lake) = (Postgres::start(), MariaDb::start(), Scratch::new());
    let model = Target::start();
    let server = serve(&postgres, &mariadb, &model, &lake);
    let (sessions, stranger) = (Sessions::from(&server), stranger(&server));
    let grants = json!([
        shop("read_write"), {"kind": "mysql", "tenant": "judge"}, {"kind": "model"},
        {"kind": "catalog", "warehouse": "main", "access": "read_write"},
        {"kind": "http", "rules": [{"hosts": ["api.example.com"]}]},
    ]);
    sessions.deploy(&with(probe("granted"), &json!({ "grants": grants })));
    // An agent without a model grant also reaches the model, at the same port.
    sessions.deploy(&probe("relayed"));
    for (template, ports) in [("granted", &PORTS[..]), ("relayed", &[8100])] {
        let create = Request::new("POST", "/sandboxes")
            .body(json!({ "templateID": template, "timeout": 600 }).to_string());
        let created = stranger.send(&create.header("x-api-key", server.token()));
        assert_eq!(created.status, 201, "{}", created.text());
        let sandbox = created.json()["sandboxID"].as_str().unwrap().to_owned();
        // The agent is started, and its ports are served.
        sessions.hear(&sandbox, "hello");
        for port in ports {
            check_refused(&stranger, &sandbox, *port);
        }
        // Ports of its own programs remain public.
        let listen = "nohup python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &";
        sessions.exec(&sandbox, listen);
        let program = Request::new("GET", "/").header("host", &format!("8000-{sandbox}.localhost"));
        until("the program's answer", SOON, || {
            let Response { status, .. } = stranger.send(&program);
            if status == 200 { Ok(()) } else { Err(status.to_string()) }
        });
        // Ports of a later grant are not reachable either.
        let later = json!({ "grants": [
            {"kind": "catalog", "warehouse": "main", "access": "read_write", "port": 9181},
        ] });
        let patched = patch(&sessions.client, &sandbox, &later);
        assert_eq!(patched.status, 200, "{}", patched.text());
        check_refused(&stranger, &sandbox, 9181);
        // A port whose grant was revoked meanwhile stays closed.
        check_refused(&stranger, &sandbox, ports[0]);
        // The sandbox itself reaches it, and the requests of others had no effect.
        let own = "python3 -c \"import urllib.request as r; \
                   print(r.urlopen('http://127.0.0.1:9181/v1/main/namespaces').read().decode())\"";
        let namespaces = sessions.out(&sandbox, own);
        assert!(namespaces.contains("namespaces") && !namespaces.contains("stranger"));
    }
    let requests = model.seen();
    assert!(!requests.iter().any(|it| it.contains("stranger")), "{requests:?}");
}
