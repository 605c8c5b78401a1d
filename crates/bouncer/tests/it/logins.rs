//! Logins of clients through the bouncer: libpq with every method, and features of newer clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{AuthQuerySpec, PoolMode, TenantEngine, TenantSpec, TenantUserSpec, TlsMode, UserAuth};
use bouncer::auth::ProtocolKeyrings;
use bouncer::auth_query::{AuthQueries, UserLookupTask};
use bouncer::config::{BouncerConfig, ServerTable};
use bouncer::relay::{ListenAddress, ListenerSpec, Relay, RelayConfig, RelayParts, TcpPolicy};
use bouncer::tenants::{
    CurrentRouting, ServerTls, SharedSettings, TenantDefinition, TenantRegistry,
};
use bouncer::tls::{ClientSide, ClientTls, ServerSide};
use pooler_core::pg::login::{CleartextPolicy, PgPasswordMethod};
use testkit::{Certificate, PgClient, PgFailure, Postgres, Scratch};
use tokio_rustls::rustls::StreamOwned;

use crate::support::{message, rogue};

/// A relay with TLS on both legs, and user lookups.
struct Gate {
    relay: Relay,
    /// Runtime of the lookups.
    _runtime: tokio::runtime::Runtime,
    scratch: Scratch,
    certificate: Certificate,
}

fn user(name: &str, auth: UserAuth, password: Option<&str>, role: Option<&str>) -> TenantUserSpec {
    TenantUserSpec {
        name: name.to_owned(),
        auth,
        password: password.map(str::to_owned),
        server_user: role.map(str::to_owned),
        ..TenantUserSpec::default()
    }
}

/// `shop` lists its users, `pass` looks them up.
fn tenants() -> Vec<TenantSpec> {
    let spec = |name: &str| TenantSpec {
        name: name.to_owned(),
        server: "main".to_owned(),
        database: Some("postgres".to_owned()),
        pool_mode: Some(PoolMode::Transaction),
        ..TenantSpec::default()
    };
    let query = AuthQuerySpec { user: "postgres".to_owned(), ..AuthQuerySpec::default() };
    vec![
        TenantSpec {
            users: vec![
                user("alice", UserAuth::Password, Some("secret"), None),
                user("localhost", UserAuth::Cert, None, Some("postgres")),
                user("root", UserAuth::Peer, None, Some("postgres")),
            ],
            ..spec("shop")
        },
        TenantSpec { auth_query: Some(query), ..spec("pass") },
    ]
}

impl Gate {
    fn start(
        server: &Postgres,
        mode: TlsMode,
        cleartext: CleartextPolicy,
        method: PgPasswordMethod,
    ) -> Gate {
        Gate::start_with(server, (mode, cleartext, method), tenants())
    }

    fn start_with(
        server: &Postgres,
        (mode, cleartext, method): (TlsMode, CleartextPolicy, PgPasswordMethod),
        tenants: Vec<TenantSpec>,
    ) -> Gate {
        let scratch = Scratch::new();
        let certificate = Certificate::new(&scratch);
        let table = ServerTable {
            address: server.tcp().to_string(),
            tls: TlsMode::VerifyFull,
            ca: Some(server.certificate()),
            ..ServerTable::default()
        };
        let servers = [("main".to_owned(), table)].into();
        let config = BouncerConfig { tenants, servers, ..BouncerConfig::default() };
        let resolve = |_: &str, text: &str| Ok(text.to_owned());
        let define = |spec: &TenantSpec| TenantDefinition::of_file(spec, "tenants", &resolve);
        let definitions: Result<Vec<TenantDefinition>, _> =
            config.tenants.iter().map(define).collect();
        let definitions = definitions.expect("definitions");
        let routing = TenantRegistry::default().build(&SharedSettings::new(&config), &definitions);
        let engine = TenantEngine::Postgres;
        let listener = |address| ListenerSpec { address, engine, is_optional: false, tenant: None };
        let socket = scratch.path().join(".s.PGSQL.6432");
        let relay_config = RelayConfig {
            mysql_version: "5.5.5-10.11.0-MariaDB".into(),
            listeners: vec![
                listener(ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))),
                listener(ListenAddress::Unix { path: socket, mode: 0o777 }),
            ],
            threads: NonZeroUsize::new(2),
            clients_max: 100,
            login: Duration::from_secs(10),
            cleartext,
            tcp: TcpPolicy::default(),
            shares_limits: false,
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let server_tls = Arc::new(ServerSide::default());
        let queries = AuthQueries::new(Arc::clone(&server_tls), Duration::from_secs(60));
        let client_tls = ClientTls {
            mode,
            cert: Some(certificate.certificate.clone()),
            key: Some(certificate.key.clone()),
            client_ca: Some(certificate.certificate.clone()),
        };
        let parts = RelayParts {
            current: Arc::new(CurrentRouting::new(routing.expect("tenants that can be"))),
            keyrings: ProtocolKeyrings::new([7; 32], method),
            client_tls: Arc::new(ClientSide::new(client_tls).expect("TLS")),
            server_tls,
            look_up: Arc::new(UserLookupTask::new(Arc::new(queries), runtime.handle().clone())),
        };
        let relay = Relay::start(relay_config, parts).expect("start the relay");
        Gate { relay, _runtime: runtime, scratch, certificate }
    }

    fn tcp(&self) -> SocketAddr {
        self.relay.addresses()[0].1
    }

    /// Queries the user at the server by `psql`; returns it, or the error.
    fn ask(&self, conninfo: &str) -> Result<String, String> {
        let conninfo = if conninfo.contains("host=") {
            conninfo.replace("SOCKET", &self.scratch.path().display().to_string())
        } else {
            let (port, ca) = (self.tcp().port(), self.certificate.certificate.display());
            format!("host=127.0.0.1 port={port} sslrootcert={ca} {conninfo}")
        };
        let mut command = Command::new(psql());
        command.env_clear().env("PGCONNECT_TIMEOUT", "20").env("HOME", self.scratch.path());
        command.args(["-XAtq", "-d", &conninfo, "-c", "SELECT current_user"]);
        let output = command.output().expect("start psql");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn check(&self, conninfo: &str, expected: Result<&str, &str>) {
        let answer = self.ask(conninfo);
        match (&answer, expected) {
            (Ok(user), Ok(expected)) => assert_eq!(user, expected, "{conninfo}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{conninfo}: {error}"),
            _ => panic!("{conninfo}: {answer:?}"),
        }
    }
}

/// Returns the newest version in Debian.
fn psql() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL");
    let path = versions.filter_map(|it| Some(it.ok()?.path().join("bin/psql")));
    path.filter(|it| it.exists()).max().expect("psql; scripts/test-deps.sh installs it")
}

fn server() -> Postgres {
    let server = Postgres::start_with_tls();
    server.sql("CREATE ROLE alice LOGIN PASSWORD 'secret'");
    server.sql("SET password_encryption = md5; CREATE ROLE bob LOGIN PASSWORD 'secret'");
    server.require("md5"); // means SCRAM for roles with a SCRAM secret
    server
}

const WRONG: Result<&str, &str> = Err("password authentication failed for user");

#[test]
fn libpq_logs_in_by_every_way_it_knows() {
    let server = server();
    let gate =
        Gate::start(&server, TlsMode::Prefer, CleartextPolicy::Protected, PgPasswordMethod::Best);
    let own = format!(
        "sslcert={} sslkey={}",
        gate.certificate.certificate.display(),
        gate.certificate.key.display()
    );
    for (conninfo, expected) in [
        ("dbname=shop user=alice password=secret sslmode=disable", Ok("alice")),
        ("dbname=shop user=alice password=secret sslmode=require", Ok("alice")),
        ("dbname=shop user=alice password=secret sslmode=verify-full", Ok("alice")),
        ("dbname=shop user=alice password=secret channel_binding=require", Ok("alice")),
        ("dbname=shop user=shop__alice password=secret", Ok("alice")),
        ("dbname=postgres user=shop__alice password=secret", Ok("alice")),
        ("dbname=postgres user=alice password=secret options='-c tenant_id=shop'", Ok("alice")),
        ("dbname=shop user=alice password=Secret", WRONG),
        ("dbname=shop user=alice", Err("no password supplied")),
        ("dbname=shop user=nobody password=secret", WRONG),
        ("dbname=shop user=postgres password=secret", WRONG),
        ("dbname=missing user=alice password=secret", Err("no tenant for database")),
        // Looked up on the server, and logged in there with the proof given here.
        ("dbname=pass user=alice password=secret", Ok("alice")),
        ("dbname=pass user=alice password=secret channel_binding=require", Ok("alice")),
        ("dbname=pass user=bob password=secret", Ok("bob")),
        ("dbname=pass user=alice password=Secret", WRONG),
        ("dbname=pass user=bob password=Secret", WRONG),
        ("dbname=pass user=nobody password=secret", WRONG),
        // The role that runs lookups cannot be used.
        ("dbname=pass user=postgres password=secret", WRONG),
        // By the operating system's user.
        ("host=SOCKET port=6432 dbname=shop user=root", Ok("postgres")),
        ("host=SOCKET port=6432 dbname=shop user=alice password=secret", Ok("alice")),
        ("dbname=shop user=root", Err("peer authentication failed")),
        // By a certificate.
        (&format!("dbname=shop user=localhost {own}"), Ok("postgres")),
        (&format!("dbname=shop user=localhost sslmode=disable {own}"), Err("certificate")),
        ("dbname=shop user=localhost", Err("certificate authentication failed")),
        ("dbname=shop user=alice password=secret replication=database", Err("session mode")),
    ] {
        gate.check(conninfo, expected);
    }
}

#[test]
fn older_ways_are_there_for_who_asks_for_them() {
    let server = server();
    let md5 =
        Gate::start(&server, TlsMode::Require, CleartextPolicy::Protected, PgPasswordMethod::Md5);
    md5.check("dbname=shop user=alice password=secret", Ok("alice"));
    md5.check("dbname=shop user=shop__alice password=secret", Ok("alice"));
    md5.check("dbname=shop user=alice password=Secret", WRONG);
    md5.check("dbname=pass user=alice password=secret", Ok("alice"));
    md5.check("dbname=shop user=alice password=secret sslmode=disable", Err("with TLS only"));
    drop(md5);
    let clear = Gate::start(
        &server,
        TlsMode::Prefer,
        CleartextPolicy::Protected,
        PgPasswordMethod::Cleartext,
    );
    clear.check("dbname=shop user=alice password=secret sslmode=require", Ok("alice"));
    clear.check("dbname=shop user=alice password=Secret sslmode=require", WRONG);
    clear.check("dbname=pass user=bob password=secret sslmode=require", Ok("bob"));
    let refused = Err("requires TLS or a Unix socket");
    clear.check("dbname=shop user=alice password=secret sslmode=disable", refused);
    clear.check("host=SOCKET port=6432 dbname=shop user=alice password=secret", Ok("alice"));
}

#[test]
fn a_client_that_begins_with_tls_at_once() {
    let server = server();
    let gate =
        Gate::start(&server, TlsMode::Require, CleartextPolicy::Protected, PgPasswordMethod::Best);
    let startup = testkit::pg::startup(0x0003_0000, &[("user", "alice"), ("database", "shop")]);
    for (alpn, expected) in [(true, &b"R"[..]), (false, b"E")] {
        let trusted = ServerTls {
            mode: TlsMode::VerifyFull,
            ca: Some(gate.certificate.certificate.clone()),
            ..ServerTls::default()
        };
        let config = ServerSide::default().config(&trusted).expect("TLS");
        let mut config = (*config).clone();
        if !alpn {
            config.alpn_protocols.clear();
        }
        let name = "localhost".try_into().expect("a name");
        let tls = tokio_rustls::rustls::ClientConnection::new(Arc::new(config), name);
        let socket = TcpStream::connect(gate.tcp()).expect("connect");
        let mut stream = StreamOwned::new(tls.expect("TLS"), socket);
        stream.write_all(&startup).expect("sent");
        let mut first = [0];
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(first, expected, "ALPN {alpn}");
    }
}

#[test]
fn keys_for_cancelling_are_long_where_the_client_can_take_it() {
    let server = server();
    let gate =
        Gate::start(&server, TlsMode::Prefer, CleartextPolicy::Protected, PgPasswordMethod::Best);
    let parameters = [("user", "alice"), ("database", "shop")];
    for (version, bytes) in [(0x0003_0000, 4), (0x0003_0002, 32)] {
        let client = PgClient::login_as(version, &gate.tcp().into(), &parameters, "secret");
        let client = client.expect("log in");
        assert_eq!((client.key.len(), client.negotiated), (bytes, None), "{version:x}");
    }
    let client = PgClient::login_as(0x0003_270f, &gate.tcp().into(), &parameters, "secret");
    let client = client.expect("log in");
    assert_eq!((client.key.len(), client.negotiated), (32, Some((0x0003_0002, Vec::new()))));
}

#[test]
fn a_server_that_is_none_harms_nobody() {
    let server = server();
    let plain = b"N".to_vec();
    let sasl = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let long = [&b"\0\0\0\x0br="[..], &[b'x'; 60_000]].concat();
    let stories = [
        // An error without an SQLSTATE, without any field, without an end (CVE-2026-6666).
        vec![plain.clone(), message(b'E', b"SFATAL\0Mno\0\0")],
        vec![plain.clone(), message(b'E', b"\0")],
        vec![plain.clone(), message(b'E', b"Mno")],
        // Excessive SCRAM parameters (CVE-2026-6665), and invalid lengths.
        vec![plain.clone(), sasl.clone(), message(b'R', &long)],
        vec![plain.clone(), sasl, message(b'R', b"\0\0\0\x0br=,s=,i=4294967295")],
        vec![plain.clone(), b"R\xff\xff\xff\xff".to_vec()],
        vec![plain.clone(), b"R\0\0\0\0".to_vec()],
        vec![plain, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()],
        vec![b"E\0\0\0\x0dSERROR\0\0".to_vec()],
        vec![b"SS".to_vec()],
        vec![Vec::new()],
    ];
    let count = stories.len();
    let mut tenants = tenants();
    for (number, says) in stories.into_iter().enumerate() {
        tenants.push(TenantSpec {
            name: format!("rogue{number}"),
            server: rogue(says).to_string(),
            server_user: Some("app".to_owned()),
            server_password: Some("secret".to_owned()),
            users: vec![user("app", UserAuth::Trust, None, None)],
            ..TenantSpec::default()
        });
    }
    let ways = (TlsMode::Prefer, CleartextPolicy::Protected, PgPasswordMethod::Best);
    let gate = Gate::start_with(&server, ways, tenants);
    for number in 0..count {
        let conninfo = format!("dbname=rogue{number} user=app");
        let error = gate.ask(&conninfo).expect_err("no server");
        assert!(error.contains("FATAL"), "{number}: {error}");
        gate.check("dbname=shop user=alice password=secret", Ok("alice"));
    }
}

#[test]
fn who_fails_too_often_is_refused_for_a_while() {
    let server = server();
    let gate = Gate::start(
        &server,
        TlsMode::Prefer,
        CleartextPolicy::Anywhere,
        PgPasswordMethod::Cleartext,
    );
    let log_in = |password: &str| {
        let parameters = [("user", "alice"), ("database", "shop")];
        let client = PgClient::login(&gate.tcp().into(), &parameters, password);
        client.map(PgClient::close).map_err(|error| match error {
            PgFailure::Server(error) => error.code().to_owned(),
            error => panic!("{error:?}"),
        })
    };
    let failed = AtomicUsize::new(0);
    // Several at a time, or on a slow machine they are forgiven as fast as they arrive.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while log_in("wrong") == Err("28P01".to_owned()) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(failed.load(Ordering::Relaxed) >= 100, "{failed:?}");
    // Right passwords are refused as well, but not for long.
    testkit::until("it to be forgiven", Duration::from_secs(60), || log_in("secret"));
}
