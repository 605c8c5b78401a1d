//! Tests with a real MariaDB, including the dialer: each authentication method, each mode of
//! encryption, trackers, cancelling, and user lookups.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use api::{AuthQuerySpec, TenantEngine, TenantSpec, TlsMode};
use pooler_core::mysql::dial::{MysqlDialError, MysqlServerGreeting};
use pooler_core::mysql::literal::with_value;
use pooler_core::pg::dial::{ServerAssurance, TlsRequest};
use testkit::MariaDb;
use wire::mysql::auth::{NativeKey, Sha2Key};
use wire::mysql::capabilities::StatusFlags;
use wire::mysql::changes::{TrackedChange, changes};
use wire::mysql::packet::OkPacket;
use wire::pg::secret::PlainPassword;

use super::*;
use crate::auth_query::AuthQueries;
use crate::config::BouncerConfig;
use crate::tenants::{
    BackendAddress, ServerId, ServerTls, SharedSettings, TenantDefinition, TenantRegistry,
    TenantSnapshot,
};

/// Longer than any step takes.
const LIMIT: Duration = Duration::from_secs(30);

fn server(address: &str, tls: ServerTls) -> ServerAddress {
    let address =
        BackendAddress::parse(address, TenantEngine::Mysql, "server").expect("an address");
    ServerAddress { id: ServerId(0), address, connections_max: 10, tls }
}

fn over_tcp(mariadb: &MariaDb) -> ServerAddress {
    server(&mariadb.tcp().to_string(), ServerTls::default())
}

fn over_unix(mariadb: &MariaDb) -> ServerAddress {
    server(&mariadb.socket().display().to_string(), ServerTls::default())
}

fn password(text: &str) -> MysqlCredentials {
    MysqlCredentials::Password(PlainPassword::new(text.to_owned()))
}

/// Logs in and queries the user at the server, and whether the connection is encrypted.
async fn ask(
    server: &ServerAddress,
    user: &str,
    credentials: MysqlCredentials,
) -> Result<String, String> {
    let credentials = Arc::new(credentials);
    let errand =
        MysqlControlTarget { server, database: None, user, credentials, application: "test" };
    let mut control =
        MysqlControlConnection::open(&ServerSide::default(), errand).await.map_err(told)?;
    control.ping().await.map_err(told)?;
    assert!(control.is_mariadb());
    let sql = "SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1), VARIABLE_VALUE <> '' \
               FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_version'";
    let rows = control.ask(sql).await.map_err(told)?;
    control.close().await;
    let [user, tls] = rows[0].as_slice() else { panic!("{rows:?}") };
    Ok(format!("{} {}", user.as_deref().expect("a user"), tls.as_deref().expect("a number")))
}

fn told(error: ControlError) -> String {
    match &error {
        ControlError::LogInMysql(MysqlDialError::Refused { errno, .. }) => errno.to_string(),
        ControlError::LogInMysql(error) => error.to_string(),
        _ => error.to_string(),
    }
}

#[tokio::test]
async fn every_way_to_prove_who_we_are() {
    let mariadb = MariaDb::start();
    mariadb.user("alice", "secret");
    // Methods that only the clients lack are plugins, which not every package of the server
    // contains; the tests of logins have them.
    mariadb.sql("CREATE USER free@'%'");
    let (tcp, unix) = (over_tcp(&mariadb), over_unix(&mariadb));
    let known = Ok("alice 0".to_owned());
    let fails = |what: &str| Err(what.to_owned());
    assert_eq!(ask(&tcp, "alice", password("secret")).await, known);
    assert_eq!(ask(&unix, "alice", password("secret")).await, known);
    // The key that a client's proof disclosed is sufficient.
    assert_eq!(ask(&tcp, "alice", MysqlCredentials::Native(NativeKey::of("secret"))).await, known);
    assert_eq!(
        ask(&tcp, "alice", MysqlCredentials::Native(NativeKey::of("Secret"))).await,
        fails("1045")
    );
    let error = "the server requires mysql_native_password, but Cove has only a key for \
                 caching_sha2_password, which suffices at servers that have seen the password";
    let sha2 = MysqlCredentials::Sha2(Sha2Key::of("secret"));
    assert_eq!(ask(&tcp, "alice", sha2).await, fails(error));
    assert_eq!(ask(&tcp, "alice", password("Secret")).await, fails("1045"));
    assert_eq!(ask(&tcp, "alice", MysqlCredentials::None).await, fails("1045"));
    assert_eq!(ask(&tcp, "nobody", password("secret")).await, fails("1045"));
    assert_eq!(ask(&tcp, "free", MysqlCredentials::None).await, Ok("free 0".to_owned()));
}

#[tokio::test]
async fn every_way_to_encrypt() {
    let mariadb = MariaDb::start_with_tls();
    mariadb.user("alice", "secret");
    let ca = Some(mariadb.certificate());
    let scratch = testkit::Scratch::new();
    let other = Some(testkit::Certificate::new(&scratch).certificate);
    let address = format!("localhost:{}", mariadb.tcp().port());
    for (mode, ca, expected) in [
        (TlsMode::Disable, None, Ok("alice 0")),
        (TlsMode::Prefer, None, Ok("alice 1")),
        (TlsMode::Require, None, Ok("alice 1")),
        (TlsMode::VerifyCa, ca.clone(), Ok("alice 1")),
        (TlsMode::VerifyFull, ca.clone(), Ok("alice 1")),
        (TlsMode::VerifyCa, other.clone(), Err("reach the server")),
        (TlsMode::VerifyFull, other, Err("reach the server")),
    ] {
        let tls = ServerTls { mode, ca, ..ServerTls::default() };
        let answer = ask(&server(&address, tls), "alice", password("secret")).await;
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(answer, expected, "{mode:?}");
    }
    let plain = MariaDb::start_with(&["skip-ssl"]);
    let must = ServerTls { mode: TlsMode::Require, ..ServerTls::default() };
    let answer = ask(&server(&plain.tcp().to_string(), must), "root", MysqlCredentials::None).await;
    assert_eq!(answer, Err("the server does not offer TLS".to_owned()));
}

#[tokio::test]
async fn questions_and_answers_that_are_errors() {
    let mariadb = MariaDb::start();
    let unix = over_unix(&mariadb);
    let errand = MysqlControlTarget {
        server: &unix,
        database: Some("mysql"),
        user: "root",
        credentials: Arc::new(MysqlCredentials::None),
        application: "test",
    };
    let mut control =
        MysqlControlConnection::open(&ServerSide::default(), errand).await.expect("open");
    for sql_mode in ["", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES"] {
        control.ask(&format!("SET sql_mode = '{sql_mode}'")).await.expect("set");
        for value in ["a'; DROP TABLE x --", "back\\slash\\'", "\"", "ünïcode", ""] {
            let rows = control.ask(&with_value("SELECT ?, NULL", value)).await;
            assert_eq!(rows.expect("rows"), [vec![Some(value.to_owned()), None]]);
        }
    }
    assert_eq!(
        control.ask("SELECT DATABASE()").await.expect("rows")[0][0].as_deref(),
        Some("mysql")
    );
    let error = control.ask("SELECT nothing").await.expect_err("an error");
    assert_eq!(error.to_string(), "Unknown column 'nothing' in 'SELECT' (1054 42S22)");
    // The connection is still usable, also after several results.
    let rows = control.ask("DO 1; SELECT 1").await.expect("rows");
    assert_eq!(rows, [[Some("1".to_owned())]]);
    assert!(control.ask("DO 1").await.expect("no rows").is_empty());
    let error = control.ask("SELECT REPEAT('x', 2000000)").await.expect_err("too long");
    assert_eq!(error.to_string(), "the server violates the protocol: too long an answer");
}

/// A login made by hand, to examine the server's reports about the session.
struct ByHand {
    stream: TcpStream,
    greeting: MysqlServerGreeting,
}

fn params(statements: &[&str]) -> MysqlDialParams {
    MysqlDialParams {
        user: "alice".to_owned(),
        database: Some("mysql".to_owned()),
        credentials: Arc::new(password("secret")),
        tls: TlsRequest::Never,
        assurance: ServerAssurance::Unknown,
        more: CapabilityFlags::NONE,
        collation: COLLATION,
        attributes: vec![("program_name".to_owned(), "by hand".to_owned())],
        statements: statements.iter().map(|&text| text.to_owned()).collect(),
    }
}

/// Runs a dial to its end.
fn run(mariadb: &MariaDb, mut dial: MysqlDial) -> (TcpStream, MysqlDialNext) {
    let mut stream = TcpStream::connect(mariadb.tcp()).expect("connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut next = dial.start(&mut out);
    while matches!(next, MysqlDialNext::More) {
        stream.write_all(&out).expect("write");
        out.clear();
        let mut bytes = [0; 7]; // in small pieces, which are never whole packets
        let count = stream.read(&mut bytes).expect("read");
        assert!(count > 0, "the server has closed");
        input.extend_from_slice(&bytes[..count]);
        let step = dial.input(&input, &mut out);
        input.drain(..step.consumed);
        next = step.next;
    }
    (stream, next)
}

impl ByHand {
    fn log_in(mariadb: &MariaDb, statements: &[&str]) -> ByHand {
        let (stream, next) = run(mariadb, MysqlDial::new(params(statements)));
        let MysqlDialNext::Ready(greeting) = next else { panic!("{next:?}") };
        ByHand { stream, greeting: *greeting }
    }

    fn send(&mut self, text: &str) {
        let (mut out, mut seq) = (Vec::new(), 0);
        frame::put_packet(&mut out, &mut seq, &[b"\x03", text.as_bytes()].concat());
        self.stream.write_all(&out).expect("write");
    }

    /// Returns one packet.
    fn packet(&mut self) -> Vec<u8> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).expect("a head");
        let mut payload = vec![0; PacketHeader::parse(&head).expect("a head").len];
        self.stream.read_exact(&mut payload).expect("a payload");
        payload
    }

    /// Returns the status of an OK and its reports, sorted.
    fn ok(&mut self, text: &str) -> (StatusFlags, Vec<String>) {
        self.send(text);
        let payload = self.packet();
        let ok = OkPacket::parse(&payload, self.greeting.capabilities);
        let ok = ok.unwrap_or_else(|| panic!("no OK: {:?}", ErrPacket::parse(&payload)));
        let mut told: Vec<String> = changes(ok.changes)
            .map(|change| match change.expect("a change") {
                TrackedChange::Variable { name, value } => {
                    let text = String::from_utf8_lossy;
                    format!("{}={}", text(name), text(value))
                }
                TrackedChange::Schema(name) => format!("schema {}", String::from_utf8_lossy(name)),
                TrackedChange::Transaction(state) => {
                    format!("transaction {}", String::from_utf8_lossy(state))
                }
                other => format!("{other:?}"),
            })
            .collect();
        told.sort();
        (ok.status, told)
    }
}

#[test]
fn a_session_tells_what_statements_leave_behind() {
    let mariadb = MariaDb::start();
    mariadb.user("alice", "secret");
    let mut session = ByHand::log_in(&mariadb, &["SET sql_mode = 'ANSI_QUOTES'"]);
    let greeting = &session.greeting;
    assert!(greeting.tracks && !greeting.is_encrypted, "{greeting:?}");
    assert!(handshake::is_mariadb(greeting.version.as_bytes()), "{greeting:?}");
    assert!(greeting.status.contains(StatusFlags::AUTOCOMMIT));
    let thread = greeting.thread_id;
    let seen = "SELECT id, db FROM information_schema.processlist WHERE user = 'alice'";
    assert_eq!(mariadb.sql(seen), format!("{thread}\tmysql"));
    let (status, told) = session.ok("SET wait_timeout = 77");
    assert_eq!(told, ["State(true)", "wait_timeout=77"]);
    assert!(!status.contains(StatusFlags::IN_TRANS));
    // A transaction is open even before the first table is read.
    let (status, told) = session.ok("START TRANSACTION");
    assert!(status.contains(StatusFlags::IN_TRANS), "{told:?}");
    assert!(told.iter().any(|one| one.starts_with("transaction T")), "{told:?}");
    assert!(!session.ok("COMMIT").0.contains(StatusFlags::IN_TRANS));
    let (_, told) = session.ok("USE information_schema");
    assert!(told.contains(&"schema information_schema".to_owned()), "{told:?}");
}

#[test]
fn what_a_thread_does_is_killed_and_the_thread_stays() {
    let mariadb = MariaDb::start();
    mariadb.user("alice", "secret");
    let mut session = ByHand::log_in(&mariadb, &[]);
    let thread = session.greeting.thread_id;
    session.send("SELECT SLEEP(3600)");
    let state = format!("SELECT state FROM information_schema.processlist WHERE id = {thread}");
    testkit::until("it to sleep", LIMIT, || match mariadb.sql(&state) {
        state if state == "User sleep" => Ok(()),
        state => Err(state),
    });
    let (_, next) = run(&mariadb, MysqlDial::cancel(params(&["not run"]), thread));
    assert!(matches!(next, MysqlDialNext::Cancelled), "{next:?}");
    // A killed `SLEEP` ends with its result, or with an error.
    let first = session.packet();
    if ErrPacket::parse(&first).is_none() {
        while !matches!(session.packet().as_slice(), [0xFE | 0xFF, ..]) {}
    }
    assert!(session.ok("DO 1").0.contains(StatusFlags::AUTOCOMMIT));
    // A thread that does not exist is not an error.
    let (_, next) = run(&mariadb, MysqlDial::cancel(params(&[]), 4_000_000));
    assert!(matches!(next, MysqlDialNext::Cancelled), "{next:?}");
    let wrong = MysqlDialParams { credentials: Arc::new(password("wrong")), ..params(&[]) };
    let (_, next) = run(&mariadb, MysqlDial::cancel(wrong, thread));
    assert!(matches!(next, MysqlDialNext::Fail(_)), "{next:?}");
}

#[test]
fn a_statement_that_fails_at_the_beginning_is_told() {
    let mariadb = MariaDb::start();
    mariadb.user("alice", "secret");
    let (_, next) = run(&mariadb, MysqlDial::new(params(&["SET no_such_thing = 1"])));
    let MysqlDialNext::Fail(MysqlDialError::Refused { errno, .. }) = next else {
        panic!("{next:?}")
    };
    assert_eq!(errno, 1193);
    let nowhere = MysqlDialParams { database: Some("nowhere".to_owned()), ..params(&[]) };
    let (_, next) = run(&mariadb, MysqlDial::new(nowhere));
    let MysqlDialNext::Fail(error) = next else { panic!("{next:?}") };
    assert_eq!(error.code(), "3D000");
}

fn tenant(mariadb: &MariaDb, query: AuthQuerySpec) -> Arc<TenantSnapshot> {
    let spec = TenantSpec {
        name: "acme".to_owned(),
        engine: TenantEngine::Mysql,
        server: mariadb.socket().display().to_string(),
        database: Some("nobody_may_go_there".to_owned()),
        auth_query: Some(query),
        ..TenantSpec::default()
    };
    let definitions = [TenantDefinition::of_api(spec).expect("a definition")];
    let routing = TenantRegistry::default()
        .build(&SharedSettings::new(&BouncerConfig::default()), &definitions);
    Arc::clone(routing.expect("a routing").named("acme").expect("the tenant"))
}

fn by(user: &str) -> AuthQuerySpec {
    let password = Some("secret".to_owned());
    AuthQuerySpec { user: user.to_owned(), password, ..AuthQuerySpec::default() }
}

async fn found(
    queries: &Arc<AuthQueries>,
    tenant: &TenantSnapshot,
    user: &str,
) -> Result<String, String> {
    match queries.look_up(tenant, user).await {
        Ok(Some(secret)) => Ok(secret.expose().to_owned()),
        Ok(None) => Ok("nobody".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn users_are_looked_up() {
    let mariadb = MariaDb::start();
    mariadb.sql(
        "CREATE USER looker@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON mysql.* TO looker@'%'; \
         CREATE USER alice@'%' IDENTIFIED BY 'x'; CREATE USER alice@localhost IDENTIFIED BY 'y'; \
         CREATE USER here@localhost IDENTIFIED BY 'x'; CREATE USER free@'%'; \
         CREATE USER locked@'%' IDENTIFIED BY 'x' ACCOUNT LOCK; \
         CREATE USER late@'%' IDENTIFIED BY 'x' PASSWORD EXPIRE; CREATE ROLE crowd; \
         CREATE USER `o'dd`@'%' IDENTIFIED BY 'x'",
    );
    let queries = Arc::new(AuthQueries::new(Arc::default(), LIMIT));
    let of_ours = tenant(&mariadb, by("looker"));
    let stored = "*B69027D44F6E5EDC07F1AEAD1477967B16F28227"; // SELECT PASSWORD('x')
    for (user, expected) in [
        ("alice", stored),
        ("here", stored),
        ("o'dd", stored),
        ("free", "nobody"),
        ("locked", "nobody"),
        ("late", "nobody"),
        ("crowd", "nobody"),
        ("missing", "nobody"),
        ("ALICE", "nobody"),
        ("alice ", "nobody"),
        ("' OR true -- ", "nobody"),
    ] {
        let answer = found(&queries, &of_ours, user).await;
        assert_eq!(answer, Ok(expected.to_owned()), "{user}");
    }
    let looker = "clients cannot log in as the role of `auth_query`";
    assert_eq!(found(&queries, &of_ours, "looker").await, Err(looker.to_owned()));
    let own = AuthQuerySpec {
        query: Some("SELECT name, secret FROM mysql.names WHERE name = ?".to_owned()),
        database: Some("mysql".to_owned()),
        ..by("looker")
    };
    mariadb.sql("CREATE TABLE mysql.names AS SELECT 'bob' AS name, 'hunter2' AS secret");
    let of_own = tenant(&mariadb, own);
    let queries = Arc::new(AuthQueries::new(Arc::default(), LIMIT));
    assert_eq!(found(&queries, &of_own, "bob").await, Ok("hunter2".to_owned()));
    assert_eq!(found(&queries, &of_own, "alice").await, Ok("nobody".to_owned()));
    let refused = tenant(&mariadb, by("missing"));
    let queries = Arc::new(AuthQueries::new(Arc::default(), LIMIT));
    let error = found(&queries, &refused, "alice").await.expect_err("no such looker");
    assert!(error.contains("Access denied for user 'missing'"), "{error}");
}
