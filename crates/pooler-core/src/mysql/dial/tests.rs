//! Servers of every kind, including hostile ones.

use wire::mysql::auth::NONCE_BYTES;
use wire::mysql::packet::{ResultColumn, put_err, put_ok, put_result};
use wire::pg::secret::PlainPassword;

use super::*;

const NONCE: [u8; NONCE_BYTES] = *b"abcdefghijklmnopqrst";

fn offered() -> CapabilityFlags {
    WANTED.union(CapabilityFlags::CONNECT_WITH_DB).union(CapabilityFlags::SSL)
}

fn params() -> MysqlDialParams {
    MysqlDialParams {
        user: "alice".to_owned(),
        database: None,
        credentials: Arc::new(MysqlCredentials::Password(PlainPassword::new("secret".to_owned()))),
        tls: TlsRequest::Never,
        assurance: ServerAssurance::Unknown,
        more: CapabilityFlags::NONE,
        collation: 45,
        attributes: Vec::new(),
        statements: Vec::new(),
    }
}

fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), seq);
    frame::put_packet(&mut out, &mut seq, payload);
    out
}

fn hello(capabilities: CapabilityFlags, plugin: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    let hello = ServerHello {
        version: b"5.5.5-10.11.6-MariaDB",
        thread_id: 42,
        nonce: AuthNonce::parse(&NONCE).expect("a nonce"),
        capabilities,
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        plugin: plugin.as_bytes(),
    };
    hello.write(&mut payload);
    packet(0, &payload)
}

fn ok(seq: u8, status: StatusFlags) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), seq);
    let (info, changes) = (&b""[..], &b""[..]);
    let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info, changes };
    put_ok(&mut out, &mut seq, &ok, WANTED);
    out
}

fn err(seq: u8, errno: u16, state: [u8; 5]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), seq);
    put_err(&mut out, &mut seq, errno, state, b"no");
    out
}

/// Returns the answer to the query for the SQL mode.
fn mode(mode: &str, caps: CapabilityFlags) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    let columns = [ResultColumn::text(b"@@sql_mode")];
    let rows = [vec![Some(mode.as_bytes())]];
    put_result(&mut out, &mut seq, caps, &columns, &rows, StatusFlags::AUTOCOMMIT);
    out
}

fn switch(seq: u8, plugin: &str, data: &[u8]) -> Vec<u8> {
    packet(seq, &[b"\xfe", plugin.as_bytes(), b"\0", data].concat())
}

/// Presents `said` to a dial, one part after the other; returns the last result in few words, and
/// the output.
fn told(mut dial: MysqlDial, said: &[Vec<u8>]) -> (String, Vec<u8>) {
    let mut out = Vec::new();
    assert!(matches!(dial.start(&mut out), MysqlDialNext::More));
    assert!(out.is_empty());
    let mut next = MysqlDialNext::More;
    for bytes in said {
        out.clear();
        let step = dial.input(bytes, &mut out);
        next = step.next;
        match next {
            MysqlDialNext::More => assert_eq!(step.consumed, bytes.len()),
            MysqlDialNext::StartTls => {
                assert!(matches!(dial.tls_started(&mut out), MysqlDialNext::More))
            }
            MysqlDialNext::Ready(_) | MysqlDialNext::Cancelled | MysqlDialNext::Fail(_) => break,
        }
    }
    let text = match next {
        MysqlDialNext::Ready(greeting) => {
            format!("ready, tracks: {}, {}", greeting.tracks, greeting.sql_mode)
        }
        MysqlDialNext::Fail(error) => format!("{}: {error}", error.code()),
        other => format!("{other:?}"),
    };
    (text, out)
}

fn check(params: MysqlDialParams, said: &[Vec<u8>], wanted: &str) {
    let (found, _) = told(MysqlDial::new(params), said);
    assert_eq!(found, wanted);
}

#[test]
fn a_server_that_lets_us_in_is_set_up_before_anybody_has_it() {
    let auto = StatusFlags::AUTOCOMMIT;
    let native = hello(offered(), "mysql_native_password");
    let asked = [ok(1, auto), mode("ANSI", WANTED)].concat();
    check(params(), &[native.clone(), ok(2, auto), asked.clone()], "ready, tracks: true, ANSI");
    // The server has no trackers: effects of texts are then found by parsing.
    let said = [native.clone(), ok(2, auto), err(1, 1193, *b"HY000"), mode("", WANTED)];
    check(params(), &said, "ready, tracks: false, ");
    let old = CapabilityFlags::SESSION_TRACK.union(CapabilityFlags::DEPRECATE_EOF);
    let without = hello(offered().without(old), "mysql_native_password");
    let said = [without, ok(2, auto), mode("A,B", WANTED.without(old))];
    check(params(), &said, "ready, tracks: false, A,B");
    // The parsing mode of texts must be known.
    let said = [native.clone(), ok(2, auto), ok(1, auto), err(1, 1193, *b"HY000")];
    check(params(), &said, "08006: no (1193)");
    let said = [native.clone(), ok(2, auto), ok(1, auto), ok(1, auto)];
    check(params(), &said, "08001: the server violates the protocol: no SQL mode");
    let statements = vec!["SET a=1".to_owned(), "SET b=2".to_owned()];
    let set = MysqlDialParams { statements, ..params() };
    let said = [native.clone(), ok(2, auto), [asked.clone(), ok(1, auto), ok(1, auto)].concat()];
    check(set.clone(), &said, "ready, tracks: true, ANSI");
    let said = [native.clone(), ok(2, auto), asked.clone(), err(1, 1231, *b"42000")];
    check(set.clone(), &said, "08006: no (1231)");
    let said = [native, ok(2, auto), asked, ok(1, auto), packet(1, b"\x01")];
    check(set, &said, "08001: the server violates the protocol: no OK to a statement");
}

#[test]
fn what_is_asked_is_asked_in_one_write() {
    let statements = vec!["SET a=1".to_owned()];
    let said = [hello(offered(), "mysql_native_password"), ok(2, StatusFlags::AUTOCOMMIT)];
    let (_, out) = told(MysqlDial::new(MysqlDialParams { statements, ..params() }), &said);
    let mut wanted = packet(0, &[b"\x03", TRACK.as_bytes()].concat());
    wanted.extend(packet(0, b"\x03SELECT @@sql_mode"));
    wanted.extend(packet(0, b"\x03SET a=1"));
    assert_eq!(out, wanted);
}

#[test]
fn refusals_of_servers_keep_their_numbers_and_are_told_apart() {
    let native = hello(offered(), "mysql_native_password");
    for (errno, wanted) in [
        (1045, "28000: no (1045)"),
        (1049, "3D000: no (1049)"),
        (1040, "53300: no (1040)"),
        (1203, "53300: no (1203)"),
        (1226, "53400: no (1226)"),
        (1053, "57P01: no (1053)"),
        (1105, "08006: no (1105)"),
    ] {
        check(params(), &[native.clone(), err(2, errno, *b"HY000")], wanted);
        // In place of a greeting, without an SQLSTATE.
        let [low, high] = errno.to_le_bytes();
        check(params(), &[packet(0, &[0xFF, low, high, b'n', b'o'])], wanted);
    }
    let credentials = MysqlDialError::Credentials(MysqlCredentialsError::None);
    assert!(credentials.is_about_secrets() && !MysqlDialError::NoTls.is_about_secrets());
}

#[test]
fn methods_that_are_not_possible_are_named() {
    let native = hello(offered(), "mysql_native_password");
    let unverified = UnverifiedPeer("`tls = \"verify-full\"`");
    let unverified = format!("28000: {unverified}");
    let cannot =
        |what: &str| format!("28000: the server asks for {what}, which Cove does not support");
    for (packet, wanted) in [
        (switch(2, "client_ed25519", &NONCE), cannot("client_ed25519")),
        (switch(2, "parsec", &NONCE), cannot("parsec")),
        (switch(2, "mysql_clear_password", b""), unverified),
        (packet(2, b"\xfe"), cannot("mysql_old_password")),
        (
            switch(2, "mysql_native_password", b"short"),
            "08001: the server violates the protocol: a nonce".to_owned(),
        ),
        (
            packet(2, b"\x01\x04"),
            "08001: the server violates the protocol: more than its method has".to_owned(),
        ),
        (packet(2, b"\x05"), "08001: the server violates the protocol: no verdict".to_owned()),
    ] {
        check(params(), &[native.clone(), packet], &wanted);
    }
    let key = MysqlCredentials::Native(wire::mysql::auth::NativeKey::of("secret"));
    let of_key = MysqlDialParams { credentials: Arc::new(key), ..params() };
    let said = [native, switch(2, "caching_sha2_password", &NONCE)];
    let wanted = "28000: the server requires caching_sha2_password, but Cove has only a key for \
                  mysql_native_password";
    check(of_key, &said, wanted);
}

#[test]
fn an_unknown_default_of_the_server_is_no_hindrance() {
    let said = [
        hello(offered(), "client_ed25519"),
        switch(2, "mysql_native_password", &[&NONCE[..], b"\0"].concat()),
        ok(4, StatusFlags::AUTOCOMMIT),
        ok(1, StatusFlags::AUTOCOMMIT),
        mode("", WANTED),
    ];
    check(params(), &said, "ready, tracks: true, ");
}

#[test]
fn nothing_said_before_encryption_makes_us_do_without() {
    let must = MysqlDialParams { tls: TlsRequest::Must, ..params() };
    let without = offered().without(CapabilityFlags::SSL);
    let no_tls = [hello(without, "mysql_native_password")];
    check(must.clone(), &no_tls, "08001: the server does not offer TLS");
    let mut more = hello(offered(), "mysql_native_password");
    more.extend(ok(2, StatusFlags::AUTOCOMMIT));
    let wanted = "08001: the server violates the protocol: data follows its greeting";
    check(must.clone(), &[more], wanted);
    // The user name is sent only after encryption.
    let mut dial = MysqlDial::new(must);
    let mut out = Vec::new();
    let step = dial.input(&hello(offered(), "mysql_native_password"), &mut out);
    assert!(matches!(step.next, MysqlDialNext::StartTls));
    assert_eq!(out.len(), 4 + handshake::SSL_REQUEST_BYTES);
    let step = dial.input(&ok(2, StatusFlags::AUTOCOMMIT), &mut out);
    assert_eq!(step.consumed, 0);
    assert!(matches!(dial.tls_started(&mut out), MysqlDialNext::More));
    assert!(out.windows(6).any(|bytes| bytes == b"alice\0"));
}

#[test]
fn a_server_that_goes_on_asking_is_left() {
    let mut said = vec![hello(offered(), "mysql_native_password")];
    for seq in 1..=CHALLENGES_MAX + 1 {
        said.push(switch(seq * 2, "mysql_native_password", &NONCE));
    }
    let wanted = "08001: the server violates the protocol: too many questions";
    check(params(), &said, wanted);
    let mut long = 70_000_u32.to_le_bytes().to_vec();
    long[3] = 0;
    let wanted = "08001: the server violates the protocol: a packet that is too long";
    check(params(), &[long], wanted);
    let wanted = "08001: the server violates the protocol: packets out of order";
    check(params(), &[packet(1, b"\x0a")], wanted);
}

#[test]
fn a_thread_is_killed_by_a_login_of_its_own() {
    let native = hello(offered(), "mysql_native_password");
    let dial =
        || MysqlDial::cancel(MysqlDialParams { statements: vec!["x".to_owned()], ..params() }, 77);
    let (_, out) = told(dial(), &[native.clone(), ok(2, StatusFlags::AUTOCOMMIT)]);
    assert_eq!(out, packet(0, b"\x03KILL QUERY 77"));
    // A thread that no longer exists counts as killed.
    for answer in [ok(1, StatusFlags::AUTOCOMMIT), err(1, 1094, *b"HY000")] {
        let said = [native.clone(), ok(2, StatusFlags::AUTOCOMMIT), answer];
        assert_eq!(told(dial(), &said).0, "Cancelled");
    }
    let (found, _) = told(dial(), &[native, err(2, 1045, *b"28000")]);
    assert_eq!(found, "28000: no (1045)");
}

#[test]
fn whatever_a_server_says_ends() {
    use proptest::prelude::*;
    proptest!(|(bytes: Vec<u8>, seq: u8, cut in 0_usize..64)| {
        let mut dial = MysqlDial::new(params());
        let mut out = Vec::new();
        let hello = hello(offered(), "caching_sha2_password");
        drop(dial.input(&hello, &mut out));
        drop(dial.input(&packet(2, &bytes), &mut out));
        drop(dial.input(&packet(seq, &bytes), &mut out));
        let mut first = MysqlDial::new(params());
        drop(first.input(hello.get(..cut).unwrap_or_default(), &mut out));
        drop(first.input(&packet(0, &bytes), &mut out));
    });
}
