//! Bytes that no client would send: each results in an error and a closed connection, without an
//! effect on other clients.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use testkit::pg::{PROTOCOL_3_0, cancel_request, gss_request, ssl_request, startup};
use testkit::{PgBatch, PgClient, process, until};

use crate::model::Random;
use crate::support::{Behind, Bounced, USER, bounce, shared_postgres};

/// Login timeout in seconds: longer than a regular login takes on a busy machine.
const LOGIN: &str = "login_s = 10";
/// Time limit for closing: an incomplete message may become complete until the login timeout.
const PATIENCE: Duration = Duration::from_secs(60);
/// Allowed growth of the server's memory, for buffers that it keeps.
const SLACK_BYTES: u64 = 24 << 20;
/// Runs of each randomized test.
const RUNS: u64 = 250;

struct Hostile<'a> {
    bounced: Bounced,
    tenant: &'a str,
}

impl Hostile<'_> {
    fn login(&self, what: &str) -> PgClient {
        let client = self.bounced.try_login(self.tenant, &[]);
        let client = client.unwrap_or_else(|error| panic!("login for {what}: {error}"));
        client.patience(PATIENCE);
        client
    }

    /// Sends bytes and reads to the end of the connection, which must be closed.
    fn until_end(&self, what: &str, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.bounced.tcp()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // The server may have rejected it before it was complete.
        drop(stream.write_all(bytes));
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("{what} is not ended"),
            _ => answer,
        }
    }

    /// Sends bytes after a regular login.
    fn after_login(&self, what: &str, bytes: &[u8]) {
        let mut client = self.login(what);
        drop(client.send(bytes));
        drop(client.send(&PgBatch::new().sync().query("SELECT 'still there'").0));
        client.finish();
        // All data from the server must consist of messages, and then the connection must end.
        let (is_over, messages) = client.end();
        assert!(is_over, "{what} is not ended; {messages:?}");
        for message in &messages {
            let known = b"RSZEN1234567tTDCIWGHcdnsvVA";
            assert!(known.contains(&message.tag), "{what}: {messages:?}");
        }
    }

    /// Checks that a reused server connection works.
    fn control(&self, what: &str) {
        let answer = self.login(what).query("SELECT 'control'");
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer.letters(), "TDCZ", "after {what}: {answer:?}");
        assert_eq!(answer.value(), "control", "after {what}");
    }
}

/// Starts a server with one tenant, and checks its state after `run` has sent everything.
fn check(tenant: &str, run: impl FnOnce(&Hostile<'_>)) {
    let tenants = [Behind::new(tenant, "transaction", 1)];
    let bounced = Hostile { bounced: bounce(shared_postgres(), LOGIN, &tenants), tenant };
    let pid = bounced.bounced.server.pid();
    for _ in 0..20 {
        bounced.control("nothing");
    }
    let (bytes, descriptors) = (process::resident_bytes(pid), process::descriptors(pid));
    run(&bounced);
    bounced.control("everything");
    until("descriptors to be closed", PATIENCE, || {
        let open = process::descriptors(pid);
        if open <= descriptors + 2 { Ok(()) } else { Err(format!("{open}, were {descriptors}")) }
    });
    until("memory to be given back", PATIENCE, || {
        let held = process::resident_bytes(pid).saturating_sub(bytes);
        if held < SLACK_BYTES { Ok(()) } else { Err(format!("{held} bytes are held")) }
    });
}

fn number(length: u32, rest: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], rest].concat()
}

/// Returns messages that replace a login.
fn in_place_of_a_login() -> Vec<(&'static str, Vec<u8>)> {
    let version = PROTOCOL_3_0.to_be_bytes();
    let user = |more: &[u8]| {
        let body = [&version[..], b"user\0ada\0database\0hostile_login\0", more].concat();
        number(u32::try_from(body.len() + 4).unwrap(), &body)
    };
    let mut many = Vec::new();
    for at in 0..40 {
        many.extend(if at % 2 == 0 { ssl_request() } else { gss_request() });
    }
    let long = "x".repeat(9_000);
    vec![
        ("nothing but zeros", vec![0; 64]),
        ("nothing but ones", vec![0xFF; 64]),
        ("a length of 0", number(0, &version)),
        ("a length of 3", number(3, &version)),
        ("a length of 7", number(7, &version)),
        ("a length that is negative", number(0x8000_0000, &version)),
        ("a length that overflows", number(u32::MAX, &[0; 20_000])),
        ("more than a startup may be", number(10_001, &[7; 10_001])),
        ("a startup of 9 kB", startup(PROTOCOL_3_0, &[("user", &long)])),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("TLS where there is none", b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03".to_vec()),
        ("too many requests for encryption", many),
        ("no user", startup(PROTOCOL_3_0, &[("database", "hostile_login")])),
        ("an empty user", startup(PROTOCOL_3_0, &[("user", ""), ("database", "hostile_login")])),
        ("the same user twice", startup(PROTOCOL_3_0, &[("user", USER), ("user", "x")])),
        ("version 2", startup(2 << 16, &[("user", USER)])),
        ("version 4", startup(4 << 16, &[("user", USER)])),
        ("a parameter without a value", user(b"options\0")),
        ("no end", user(b"")),
        ("bytes that are no text", user(b"application_name\0\xff\xfe\0\0")),
        ("options that end in the middle", user(b"options\0-c\\\0\0")),
        ("options that set a role", user(b"options\0-c role=postgres\0\0")),
        ("physical replication", user(b"replication\0true\0\0")),
        ("a cancel without a key", cancel_request(1, &[])),
        ("a cancel of nobody", cancel_request(u32::MAX, &[1, 2, 3, 4])),
        ("a cancel with a long key", cancel_request(1, &[9; 300])),
        ("a cancel with a very long key", cancel_request(1, &[9; 9_000])),
    ]
}

#[test]
fn nothing_but_a_login_logs_in() {
    check("hostile_login", |bounced| {
        let table = in_place_of_a_login();
        // Concurrently, because some are closed only by the login timeout; meanwhile regular
        // clients connect and disconnect.
        thread::scope(|scope| {
            let end =
                |(what, bytes): &(&'static str, Vec<u8>)| (*what, bounced.until_end(what, bytes));
            let all: Vec<_> = table.iter().map(|one| scope.spawn(move || end(one))).collect();
            for hostile in all {
                let (what, answer) = hostile.join().unwrap();
                let text = String::from_utf8_lossy(&answer);
                // No client is logged in; the server may only request a password.
                assert!(!answer.contains(&b'Z') || text.contains("FATAL"), "{what}: {text:?}");
                bounced.control(what);
            }
        });
        let mut random = Random::new(7);
        for run in 0..RUNS {
            let length = random.below(400);
            let mut bytes: Vec<u8> =
                (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            if run % 2 == 0 && bytes.len() > 8 {
                // With a valid length and version, so that more of it is parsed.
                let all = u32::try_from(bytes.len()).unwrap();
                bytes[..4].copy_from_slice(&all.to_be_bytes());
                bytes[4..8].copy_from_slice(&PROTOCOL_3_0.to_be_bytes());
            }
            let mut stream = TcpStream::connect(bounced.bounced.tcp()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            drop(stream.write_all(&bytes));
            drop(stream.shutdown(Shutdown::Write));
            let mut answer = Vec::new();
            let end = stream.read_to_end(&mut answer).map_err(|error| error.kind());
            assert_ne!(end, Err(ErrorKind::WouldBlock), "{bytes:?} is not ended");
        }
    });
}

#[test]
fn nothing_that_comes_after_a_login_troubles_others() {
    check("hostile", |bounced| {
        let message =
            |tag: u8, length: u32, rest: &[u8]| [&[tag][..], &length.to_be_bytes(), rest].concat();
        let whole = |tag: u8, rest: &[u8]| PgBatch::new().message(tag, &[rest]).0;
        let mut table: Vec<(String, Vec<u8>)> = Vec::new();
        for tag in b"QPBDECSHFdcfpX".iter().copied().chain([0, b'z', b'R', 0xFF]) {
            let name = char::from(tag);
            table.push((format!("{name} without a body"), whole(tag, b"")));
            table.push((format!("{name} without an end"), whole(tag, b"abc")));
            table.push((format!("{name} with a body of zeros"), whole(tag, &[0; 40])));
            table.push((format!("{name} with a body of ones"), whole(tag, &[0xFF; 40])));
            table.push((format!("{name} of length 3"), message(tag, 3, b"")));
            table.push((format!("{name} of length 0"), message(tag, 0, b"abcdefgh")));
            table.push((format!("{name} of a negative length"), message(tag, 0x8000_0004, b"a")));
            table.push((format!("{name} of 2 GB"), message(tag, 0x7FFF_FFFF, &[b'x'; 5_000])));
            table.push((format!("{name} that never ends"), message(tag, 100, b"abc\0")));
        }
        let rest: Vec<(&str, Vec<u8>)> = vec![
            ("data of a COPY that is none", PgBatch::new().copy_data(b"1\n").copy_done().0),
            ("an execute without a portal", PgBatch::new().execute("", 0).sync().0),
            ("a bind of nothing", PgBatch::new().bind("", "nowhere", &[]).sync().0),
            ("a description of neither", PgBatch::new().describe(b'X', "").sync().0),
            ("a close of neither", PgBatch::new().close(b'X', "").sync().0),
            ("a startup in the middle", startup(PROTOCOL_3_0, &[("user", "postgres")])),
            ("65535 parameters that are not there", whole(b'P', b"\0SELECT 1\0\xff\xff")),
            ("65535 values that are not there", whole(b'B', b"\0\0\0\0\xff\xff")),
            ("a value of a negative length", whole(b'B', b"\0\0\0\0\0\x01\x80\0\0\0\0\0")),
            ("two texts in a query", whole(b'Q', b"SELECT 1\0SELECT 2\0")),
            ("a query that is no text", whole(b'Q', b"SELECT '\xff\xfe'\0")),
            ("a comment that never ends", PgBatch::new().query("/* /* */ SELECT 1").0),
            ("a string that never ends", PgBatch::new().query("SELECT 'x").0),
            ("a dollar that never ends", PgBatch::new().query("SELECT $x$ SET role").0),
            ("nothing but comments", PgBatch::new().query("-- \n/* */;;;").0),
            ("parentheses", PgBatch::new().query(&"(".repeat(100_000)).0),
            ("a statement of a megabyte", PgBatch::new().query(&" ".repeat(1 << 20)).0),
            ("a batch that never ends", PgBatch::new().parse("s", "SELECT 1").flush().0),
            ("a thousand statements", {
                let all = (0..1000).map(|at| (format!("s{at}"), format!("SELECT {at}")));
                all.fold(PgBatch::new(), |batch, (name, text)| batch.parse(&name, &text)).sync().0
            }),
            ("a name of 100 kB", PgBatch::new().parse(&"n".repeat(100_000), "SELECT 1").sync().0),
        ];
        table.extend(rest.into_iter().map(|(what, bytes)| (what.to_owned(), bytes)));
        for (what, bytes) in &table {
            bounced.after_login(what, bytes);
            bounced.control(what);
        }
        // Valid messages of clients, with a few bytes changed.
        let good = PgBatch::new()
            .parse("a", "SELECT $1::text")
            .bind("p", "a", &[Some("value")])
            .describe(b'P', "p")
            .execute("p", 0)
            .close(b'S', "a")
            .sync()
            .query("BEGIN; SET LOCAL work_mem = '2MB'; COMMIT")
            .query("COPY (SELECT 1) TO STDOUT")
            .0;
        let mut random = Random::new(11);
        for _ in 0..RUNS {
            let mut bytes = good.clone();
            for _ in 0..=random.below(4) {
                let length = u64::try_from(bytes.len()).unwrap();
                let at = usize::try_from(random.below(length)).unwrap();
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bounced.after_login(&format!("{bytes:?}"), &bytes);
        }
        // A statement that was cut off may still run.
        bounced.control("chance");
    });
}

#[test]
fn what_is_sent_before_encryption_is_not_taken_for_what_comes_within() {
    let scratch = testkit::Scratch::new();
    let certificate = testkit::Certificate::new(&scratch);
    let tls = format!(
        "{LOGIN}\ntls.cert = {:?}\ntls.key = {:?}",
        certificate.certificate, certificate.key
    );
    let bounced = bounce(shared_postgres(), &tls, &[Behind::new("before_tls", "transaction", 1)]);
    let begun = startup(PROTOCOL_3_0, &[("user", USER), ("database", "before_tls")]);
    let mut client = PgClient::open(&bounced.address()).unwrap();
    client.patience(PATIENCE);
    client.send(&[ssl_request(), begun].concat()).unwrap();
    let mut bytes = Vec::new();
    while let Ok(byte) = client.byte() {
        bytes.push(byte);
    }
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("SCRAM") && !text.contains("server_version"), "{text:?}");
    assert!(bytes.len() < 2 || text.contains("FATAL"), "{text:?}");
}
