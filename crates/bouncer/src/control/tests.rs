//! Tests with real servers, including the dialer: each authentication method, each mode of
//! encryption, both versions of the protocol, and cancelling.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream as StdStream};

use api::TlsMode;
use pooler_core::pg::dial::{LoginRules, PgServerGreeting, ServerAssurance, TlsRequest};
use testkit::Postgres;
use wire::pg::md5::Md5Secret;
use wire::pg::scram::{ScramKeys, ScramSecret};
use wire::pg::secret::PlainPassword;

use super::*;
use crate::tenants::{BackendAddress, ServerId, ServerTls};

/// Longer than any step takes.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

fn server(address: &str, tls: ServerTls) -> ServerAddress {
    let address =
        BackendAddress::parse(address, api::TenantEngine::Postgres, "server").expect("an address");
    ServerAddress { id: ServerId(0), address, connections_max: 10, tls }
}

fn tcp(postgres: &Postgres) -> String {
    format!("127.0.0.1:{}", postgres.port())
}

fn unix(postgres: &Postgres) -> String {
    format!("{}:{}", postgres.socket_directory().display(), postgres.port())
}

fn password(text: &str) -> PgCredentials {
    PgCredentials::of_password(PlainPassword::new(text.to_owned()))
}

/// Logs in and queries the user at the server, and whether the connection is encrypted.
async fn ask(
    server: &ServerAddress,
    user: &str,
    credentials: PgCredentials,
) -> Result<String, String> {
    let errand = ControlTarget {
        server,
        database: "postgres",
        user,
        credentials: Arc::new(credentials),
        application: "test",
    };
    let tls = ServerSide::default();
    let mut control = ControlConnection::open(&tls, errand).await.map_err(told)?;
    let sql = "SELECT current_user || ' ' || ssl || ' ' || current_setting('search_path') \
               FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let rows = control.ask(sql, &[]).await.map_err(told)?;
    control.close().await;
    Ok(rows[0][0].clone().expect("not null"))
}

fn told(error: ControlError) -> String {
    match &error {
        ControlError::LogIn(PgDialError::Refused { code, .. }) => code.clone(),
        ControlError::LogIn(error) => error.to_string(),
        _ => error.to_string(),
    }
}

#[tokio::test]
async fn every_way_to_prove_who_we_are() {
    let postgres = Postgres::start();
    postgres.sql("CREATE ROLE alice LOGIN PASSWORD 'secret'");
    let stored = postgres.sql("SELECT rolpassword FROM pg_authid WHERE rolname = 'alice'");
    let stored = ScramSecret::parse(&stored).expect("a SCRAM secret");
    let keys = |password| {
        PgCredentials::Scram(ScramKeys::derive(password, stored.salt(), stored.iterations()))
    };
    let other = PgCredentials::Scram(ScramKeys::derive("secret", b"other salt", 4096));
    let (tcp, unix) = (
        server(&tcp(&postgres), ServerTls::default()),
        server(&unix(&postgres), ServerTls::default()),
    );
    let known = Ok("alice false pg_catalog".to_owned());
    let fails = |what: &str| Err(what.to_owned());

    postgres.require("trust");
    assert_eq!(ask(&tcp, "alice", PgCredentials::None).await, known);
    postgres.require("scram-sha-256");
    assert_eq!(ask(&tcp, "alice", password("secret")).await, known);
    assert_eq!(ask(&unix, "alice", password("secret")).await, known);
    assert_eq!(ask(&tcp, "alice", password("Secret")).await, fails("28P01"));
    assert_eq!(ask(&tcp, "alice", keys("secret")).await, known);
    assert_eq!(ask(&tcp, "alice", keys("Secret")).await, fails("28P01"));
    let error = "the server has another SCRAM secret for this role than the client";
    assert_eq!(ask(&tcp, "alice", other).await, fails(error));
    let error = "the server requires a password, but none is configured for this role";
    assert_eq!(ask(&tcp, "alice", PgCredentials::None).await, fails(error));
    postgres.require("password");
    assert_eq!(ask(&unix, "alice", password("secret")).await, known);
    let error = "the server asks for the password itself, and could be anybody: \
                 `tls = \"verify-full\"` is missing in its table of `bouncer.servers`";
    assert_eq!(ask(&tcp, "alice", password("secret")).await, fails(error));

    postgres.sql("SET password_encryption = md5; ALTER ROLE alice PASSWORD 'secret'");
    postgres.require("md5");
    assert_eq!(ask(&tcp, "alice", password("secret")).await, known);
    let hash = Md5Secret::derive("alice", "secret");
    assert_eq!(ask(&tcp, "alice", PgCredentials::Md5(hash)).await, known);
    assert_eq!(ask(&tcp, "alice", password("Secret")).await, fails("28P01"));
    postgres.require("reject");
    assert_eq!(ask(&tcp, "alice", password("secret")).await, fails("28000"));
}

#[tokio::test]
async fn every_way_to_encrypt() {
    let postgres = Postgres::start_with_tls();
    postgres.sql("CREATE ROLE alice LOGIN PASSWORD 'secret'");
    postgres.require("scram-sha-256"); // over TLS this is bound to the certificate
    let ca = Some(postgres.certificate());
    let scratch = testkit::Scratch::new();
    let other = Some(testkit::Certificate::new(&scratch).certificate);
    for (mode, ca, expected) in [
        (TlsMode::Disable, None, Ok("false")),
        (TlsMode::Prefer, None, Ok("true")),
        (TlsMode::Require, None, Ok("true")),
        (TlsMode::VerifyCa, ca.clone(), Ok("true")),
        (TlsMode::VerifyFull, ca.clone(), Ok("true")),
        (TlsMode::VerifyCa, other.clone(), Err("reach the server")),
        (TlsMode::VerifyFull, other, Err("reach the server")),
    ] {
        let tls = ServerTls { mode, ca, ..ServerTls::default() };
        let answer = ask(&server(&tcp(&postgres), tls), "alice", password("secret")).await;
        let expected = expected.map(|ssl| format!("alice {ssl} pg_catalog"));
        assert_eq!(answer, expected.map_err(str::to_owned), "{mode:?}");
    }
    // A verified server may request the cleartext password.
    postgres.require("password");
    let unknown = "the server asks for the password itself, and could be anybody: \
                   `tls = \"verify-full\"`, or else `trust_server_key = true`, is missing in its \
                   table of `bouncer.servers`";
    for (mode, ca, trust_server_key, expected) in [
        (TlsMode::Prefer, None, false, Err(unknown)),
        (TlsMode::Require, None, false, Err(unknown)),
        (TlsMode::Prefer, None, true, Ok("true")),
        (TlsMode::Require, None, true, Ok("true")),
        (TlsMode::Require, ca.clone(), false, Ok("true")),
        (TlsMode::VerifyFull, ca, false, Ok("true")),
    ] {
        let tls = ServerTls { mode, ca, trust_server_key, ..ServerTls::default() };
        let answer = ask(&server(&tcp(&postgres), tls), "alice", password("secret")).await;
        let expected = expected.map(|ssl| format!("alice {ssl} pg_catalog"));
        assert_eq!(answer, expected.map_err(str::to_owned), "{mode:?} {trust_server_key}");
    }

    let plain = Postgres::start();
    let must = ServerTls { mode: TlsMode::Require, ..ServerTls::default() };
    let answer = ask(&server(&tcp(&plain), must), "postgres", PgCredentials::None).await;
    assert_eq!(answer, Err("the server does not offer TLS".to_owned()));
    let may = ServerTls { mode: TlsMode::Prefer, ..ServerTls::default() };
    let answer = ask(&server(&tcp(&plain), may), "postgres", PgCredentials::None).await;
    assert_eq!(answer, Ok("postgres false pg_catalog".to_owned()));
}

#[tokio::test]
async fn our_own_certificate_says_who_we_are() {
    let postgres = Postgres::start_with_tls();
    let file = postgres.certificate();
    postgres.sql("CREATE ROLE localhost LOGIN; CREATE ROLE alice LOGIN");
    postgres.sql(&format!("ALTER SYSTEM SET ssl_ca_file = '{}'", file.display()));
    let rules = "local all postgres trust\nhost all postgres all trust\nhostssl all all all cert\n";
    std::fs::write(file.with_file_name("data").join("pg_hba.conf"), rules).expect("written");
    postgres.sql("SELECT pg_reload_conf()");
    testkit::until("the rules to be in force", LIMIT, || {
        // The server reloads its rules asynchronously; a refused login shows that they are in
        // force.
        let plain = greeted(postgres.tcp(), "alice", ProtocolVersion::V3_0);
        if plain.is_err() { Ok(()) } else { Err("alice is trusted".to_owned()) }
    });
    let key = Some(file.with_file_name("key.pem"));
    let ca = Some(file.clone());
    let own =
        ServerTls { mode: TlsMode::VerifyFull, ca, cert: Some(file), key, ..ServerTls::default() };
    let server = server(&tcp(&postgres), own);
    let answer = ask(&server, "localhost", PgCredentials::None).await;
    assert_eq!(answer, Ok("localhost true pg_catalog".to_owned()));
    assert_eq!(ask(&server, "alice", PgCredentials::None).await, Err("28000".to_owned()));
}

#[tokio::test]
async fn questions_with_values_and_answers_that_are_errors() {
    let postgres = Postgres::start();
    let server = server(&unix(&postgres), ServerTls::default());
    let errand = ControlTarget {
        server: &server,
        database: "postgres",
        user: "postgres",
        credentials: Arc::new(PgCredentials::None),
        application: "test",
    };
    let mut control = ControlConnection::open(&ServerSide::default(), errand).await.expect("open");
    let rows = control.ask("SELECT $1 || 'b', NULL", &["a'; DROP TABLE x --"]).await;
    assert_eq!(rows.expect("rows"), [vec![Some("a'; DROP TABLE x --b".to_owned()), None]]);
    let error = control.ask("SELECT 1 / $1::int", &["0"]).await.expect_err("an error");
    assert_eq!(error.to_string(), "division by zero (22012)");
    assert_eq!(control.ask("SELECT 'still here'", &[]).await.expect("rows").len(), 1);
    let error = control.ask("SELECT repeat('x', 2000000)", &[]).await.expect_err("too long");
    assert_eq!(error.to_string(), "the server violates the protocol: too long an answer");
}

/// A connection made by hand, to examine its greeting.
fn greeted(
    address: SocketAddr,
    user: &str,
    version: ProtocolVersion,
) -> Result<(StdStream, PgServerGreeting), PgDialError> {
    let params = PgDialParams {
        user: user.to_owned(),
        database: Some("postgres".to_owned()),
        credentials: Arc::new(PgCredentials::None),
        parameters: Vec::new(),
        tls: TlsRequest::Never,
        assurance: ServerAssurance::Private,
        rules: LoginRules::default(),
        version,
    };
    let mut dial = PgDial::new(params, [1; NONCE_BYTES]);
    let mut stream = StdStream::connect(address).expect("connect");
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut next = dial.start(&mut out);
    loop {
        stream.write_all(&out).expect("sent");
        out.clear();
        match next {
            PgDialNext::More => {
                let mut buffer = [0; 1000];
                let count = stream.read(&mut buffer).expect("received");
                input.extend_from_slice(&buffer[..count]);
                let step = dial.input(&input, &mut out);
                input.drain(..step.consumed);
                next = step.next;
            }
            PgDialNext::Ready(greeting) => return Ok((stream, *greeting)),
            PgDialNext::Fail(error) => return Err(error),
            PgDialNext::StartTls | PgDialNext::Cancelled => return Err(PgDialError::NoTls),
        }
    }
}

/// Starts to sleep, is cancelled by its key, and reports that.
fn check_cancel(
    postgres: &Postgres,
    version: ProtocolVersion,
    spoken: ProtocolVersion,
    key_bytes: usize,
) {
    let (mut stream, greeting) = greeted(postgres.tcp(), "postgres", version).expect("greeted");
    assert_eq!((greeting.version, greeting.key.len()), (spoken, key_bytes));
    let reported = greeting.parameters.iter().map(|(name, _)| name.as_str());
    assert!(reported.into_iter().any(|name| name == "server_version"));
    let mut out = Vec::new();
    frontend::query(&mut out, "SELECT pg_sleep(60)");
    stream.write_all(&out).expect("sent");
    let asleep = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event = 'PgSleep'",
        greeting.pid
    );
    testkit::until("the statement to sleep", LIMIT, || {
        let count = postgres.sql(&asleep);
        (count == "1").then_some(()).ok_or(count)
    });

    out.clear();
    let mut dial = PgDial::cancel(greeting.pid, greeting.key, TlsRequest::Never);
    assert!(matches!(dial.start(&mut out), PgDialNext::Cancelled));
    let mut errand = StdStream::connect(postgres.tcp()).expect("connect");
    errand.write_all(&out).expect("sent");
    assert_eq!(errand.read(&mut [0; 10]).expect("closed"), 0);
    let mut answer = [0; 1000];
    let count = stream.read(&mut answer).expect("received");
    let answer = answer[..count].escape_ascii().to_string();
    assert!(answer.contains("C57014"), "{answer}");
}

#[test]
fn cancelling_with_the_keys_of_both_versions() {
    let postgres = Postgres::start();
    check_cancel(&postgres, ProtocolVersion::V3_0, ProtocolVersion::V3_0, 4);
    check_cancel(&postgres, ProtocolVersion::V3_2, ProtocolVersion::V3_0, 4);
    let newest = Postgres::start_18(&[]);
    check_cancel(&newest, ProtocolVersion::V3_0, ProtocolVersion::V3_0, 4);
    check_cancel(&newest, ProtocolVersion::V3_2, ProtocolVersion::V3_2, 32);
}

#[tokio::test]
async fn who_is_not_there_is_not_waited_for() {
    let nobody = server("127.0.0.1:1", ServerTls::default());
    let answer = ask(&nobody, "postgres", PgCredentials::None).await;
    assert_eq!(answer, Err("reach the server".to_owned()));
    let scratch = testkit::Scratch::new();
    let nobody = server(&scratch.path().display().to_string(), ServerTls::default());
    let answer = ask(&nobody, "postgres", PgCredentials::None).await;
    assert_eq!(answer, Err("reach the server".to_owned()));
}

#[test]
fn rows_that_are_none_are_refused() {
    for body in [
        &b""[..],
        b"\0",
        b"\0\x01",
        b"\0\x01\0\0\0\x02a",
        b"\0\x01\xff\xff\xff\xfe",
        b"\0\x01\0\0\0\x01\xff",
        b"\xff\xff\0\0\0\x01a",
    ] {
        assert!(row(body).is_err(), "{}", body.escape_ascii());
    }
    assert_eq!(
        row(b"\0\x02\0\0\0\x01a\xff\xff\xff\xff").expect("a row"),
        [Some("a".to_owned()), None]
    );
}
