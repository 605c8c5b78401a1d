//! Each side parses what the other one writes; messages of real servers and drivers are understood;
//! truncated and invalid ones are refused.

use proptest::prelude::*;

use super::*;

const NONCE: [u8; NONCE_BYTES] = *b"abcdefghijklmnopqrst";

/// Greeting of a MariaDB 10.11.
const MARIADB: &[u8] = b"\x0a5.5.5-10.11.6-MariaDB-0+deb12u1\0\x2a\0\0\0abcdefgh\0\xfe\xf7\x2d\
                         \x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0ijklmnopqrst\0mysql_native_password\0";

/// Greeting of a MySQL 8.0.
const MYSQL: &[u8] =
    b"\x0a8.0.36\0\x07\x01\0\0abcdefgh\0\xff\xff\xff\x02\0\xff\xdf\x15\0\0\0\0\0\0\
                       \0\0\0\0ijklmnopqrst\0caching_sha2_password\0";

fn hello() -> ServerHello<'static> {
    ServerHello {
        version: b"8.0.30-cove",
        thread_id: 0x0102_0304,
        nonce: AuthNonce::parse(&NONCE).expect("a nonce"),
        capabilities: CapabilityFlags(0x80ff_8200 | 1),
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        plugin: b"mysql_native_password",
    }
}

#[test]
fn a_greeting_is_read_as_it_was_written() {
    let hello = ServerHello {
        capabilities: hello().capabilities.union(CapabilityFlags::PLUGIN_AUTH),
        ..hello()
    };
    let mut payload = Vec::new();
    hello.write(&mut payload);
    assert_eq!(ServerHello::parse(&payload), Ok(hello));
    // Only the last NUL may be missing.
    assert!(ServerHello::parse(&payload[..payload.len() - 1]).is_ok());
    for end in 0..payload.len() - b"mysql_native_password".len() - 1 {
        assert!(ServerHello::parse(&payload[..end]).is_err(), "{end}");
    }
}

#[test]
fn greetings_of_servers_are_understood() {
    let mariadb = ServerHello::parse(MARIADB).expect("a greeting");
    assert_eq!((mariadb.thread_id, mariadb.collation), (42, 45));
    assert_eq!(mariadb.plugin, b"mysql_native_password");
    assert_eq!(mariadb.nonce.bytes(), &NONCE);
    // MariaDB's own capabilities are valid because the first bit is absent.
    assert!(!mariadb.capabilities.contains(CapabilityFlags::LONG_PASSWORD));
    assert_eq!(mariadb.capabilities.upper(), 0x1d);
    assert!(is_mariadb(mariadb.version));
    assert_eq!(without_prefix(mariadb.version), b"10.11.6-MariaDB-0+deb12u1");
    let mysql = ServerHello::parse(MYSQL).expect("a greeting");
    assert_eq!((mysql.plugin, mysql.thread_id), (&b"caching_sha2_password"[..], 263));
    assert!(mysql.capabilities.contains(CapabilityFlags::DEPRECATE_EOF));
    assert_eq!(mysql.capabilities.upper(), 0);
    assert!(!is_mariadb(mysql.version));
    assert_eq!(without_prefix(b"5.5.5-m3"), b"5.5.5-m3");
}

#[test]
fn other_versions_of_the_handshake_are_refused() {
    let mut later = MYSQL.to_vec();
    later[0] = 11;
    let mut before = MYSQL.to_vec();
    before[22] = 0; // PROTOCOL_41 is among these
    for (payload, wanted) in [
        (&later[..], HandshakeError::Version(11)),
        (b"\x093.22.1\0", HandshakeError::TooOld("greeting")),
        (&before[..], HandshakeError::TooOld("greeting")),
        (b"", HandshakeError::Malformed("greeting")),
    ] {
        assert_eq!(ServerHello::parse(payload), Err(wanted));
    }
}

fn capabilities() -> CapabilityFlags {
    CapabilityFlags::LONG_PASSWORD
        .union(CapabilityFlags::PROTOCOL_41)
        .union(CapabilityFlags::SECURE_CONNECTION)
        .union(CapabilityFlags::PLUGIN_AUTH)
        .union(CapabilityFlags::PLUGIN_AUTH_LENENC_CLIENT_DATA)
        .union(CapabilityFlags::CONNECT_WITH_DB)
        .union(CapabilityFlags::CONNECT_ATTRS)
}

fn response<'a>(attributes: &'a [u8], answer: &'a [u8]) -> HandshakeResponse<'a> {
    HandshakeResponse {
        capabilities: capabilities(),
        packet_max: 1 << 24,
        collation: 255,
        user: b"alice",
        answer,
        database: Some(b"shop"),
        plugin: Some(b"caching_sha2_password"),
        attributes: ConnectionAttributes::new(attributes),
    }
}

#[test]
fn a_response_is_read_as_it_was_written() {
    let mut attributes = Vec::new();
    for (name, value) in [("_client_name", "cove"), ("tenant_id", "acme"), ("empty", "")] {
        ConnectionAttributes::put(&mut attributes, name, value);
    }
    let response = response(&attributes, &[7; 32]);
    for without in [
        CapabilityFlags::NONE,
        CapabilityFlags::CONNECT_WITH_DB,
        CapabilityFlags::PLUGIN_AUTH,
        CapabilityFlags::CONNECT_ATTRS,
        CapabilityFlags::PLUGIN_AUTH_LENENC_CLIENT_DATA,
    ] {
        let capabilities = capabilities().without(without);
        let has = |one| capabilities.contains(one);
        let wanted = HandshakeResponse {
            capabilities,
            database: response.database.filter(|_| has(CapabilityFlags::CONNECT_WITH_DB)),
            plugin: response.plugin.filter(|_| has(CapabilityFlags::PLUGIN_AUTH)),
            attributes: match has(CapabilityFlags::CONNECT_ATTRS) {
                true => response.attributes,
                false => ConnectionAttributes::default(),
            },
            ..response.clone()
        };
        let mut payload = Vec::new();
        HandshakeResponse { capabilities, ..response.clone() }.write(&mut payload);
        assert_eq!(
            FirstReply::parse(&payload, false),
            Ok(FirstReply::Response(wanted)),
            "{without:?}"
        );
    }
    let pairs: Vec<_> = response.attributes.pairs().collect();
    let wanted: [(&[u8], &[u8]); 3] =
        [(b"_client_name", b"cove"), (b"tenant_id", b"acme"), (b"empty", b"")];
    assert_eq!(pairs, wanted);
}

#[test]
fn a_request_for_tls_is_the_beginning_of_a_response() {
    let mut payload = Vec::new();
    put_ssl_request(&mut payload, capabilities(), 1 << 24, 45);
    assert_eq!(payload.len(), SSL_REQUEST_BYTES);
    let wanted = capabilities().union(CapabilityFlags::SSL);
    assert_eq!(FirstReply::parse(&payload, false), Ok(FirstReply::Ssl { capabilities: wanted }));
    // With a name after it, the login was not encrypted as announced.
    let mut whole = Vec::new();
    HandshakeResponse { capabilities: wanted, ..response(b"", b"") }.write(&mut whole);
    let malformed = Err(HandshakeError::Malformed("handshake response"));
    assert_eq!(FirstReply::parse(&whole, false), malformed);
    assert!(matches!(FirstReply::parse(&whole, true), Ok(FirstReply::Response(_))));
    assert_eq!(FirstReply::parse(&payload, true), malformed);
}

#[test]
fn responses_of_old_clients_are_refused() {
    let too_old = Err(HandshakeError::TooOld("handshake response"));
    // 3.20: capabilities of two bytes, the maximum packet of three, a name, a proof.
    assert_eq!(FirstReply::parse(b"\x05\x24\0\0\x01alice\0proof\0", false), too_old);
    let mut payload = Vec::new();
    let capabilities = capabilities().without(CapabilityFlags::SECURE_CONNECTION);
    HandshakeResponse { capabilities, ..response(b"", b"") }.write(&mut payload);
    assert_eq!(FirstReply::parse(&payload, false), too_old);
}

#[test]
fn attributes_beyond_the_end_are_refused() {
    let mut payload = Vec::new();
    response(b"\x01a\x01b", b"").write(&mut payload);
    payload.pop();
    let malformed = Err(HandshakeError::Malformed("handshake response"));
    assert_eq!(FirstReply::parse(&payload, false), malformed);
    // Inside, the pairs are parsed up to the first malformed one.
    assert_eq!(ConnectionAttributes::new(b"\x01a\x01b\x09c").pairs().count(), 1);
    assert_eq!(
        ConnectionAttributes::new(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff").pairs().count(),
        0
    );
}

#[test]
fn a_change_of_the_user_is_read() {
    let of_libmysql = b"\x11bob\0\x00shop\0\x2d\0mysql_native_password\0\x04\x01a\x01b";
    let change = ChangeUser::parse(of_libmysql, capabilities()).expect("a change");
    assert_eq!((change.user, change.answer), (&b"bob"[..], &b""[..]));
    assert_eq!((change.database, change.collation), (Some(&b"shop"[..]), Some(45)));
    assert_eq!(change.plugin, Some(&b"mysql_native_password"[..]));
    assert_eq!(change.attributes.pairs().count(), 1);
    let old = ChangeUser::parse(b"\x11bob\0\x02xy\0", capabilities()).expect("a change");
    assert_eq!((old.answer, old.database, old.collation), (&b"xy"[..], None, None));
    for bad in [&b""[..], b"\x11", b"\x11bob", b"\x11bob\0", b"\x11bob\0\x05abc"] {
        let malformed = Err(HandshakeError::Malformed("COM_CHANGE_USER"));
        assert_eq!(ChangeUser::parse(bad, capabilities()), malformed, "{bad:?}");
    }
}

#[test]
fn challenges_are_told_apart() {
    let nonce = AuthNonce::parse(&NONCE).expect("a nonce");
    let mut switch = Vec::new();
    put_switch(&mut switch, "mysql_native_password", &nonce);
    let Some(AuthChallenge::Switch { plugin, data }) = AuthChallenge::parse(&switch) else {
        panic!("{switch:?}")
    };
    assert_eq!((plugin, AuthNonce::parse(data)), (&b"mysql_native_password"[..], Some(nonce)));
    let mut more = Vec::new();
    put_more(&mut more, b"\x03");
    for (payload, wanted) in [
        (&more[..], Some(AuthChallenge::More(b"\x03"))),
        (b"\xfe", Some(AuthChallenge::OldPassword)),
        (b"\xfename without an end", None),
        (b"\0\0\0\x02\0\0\0", None),
        (b"\xff\x15\x04#28000no", None),
        (b"", None),
    ] {
        assert_eq!(AuthChallenge::parse(payload), wanted, "{payload:?}");
    }
}

proptest! {
    #[test]
    fn nothing_made_up_is_the_end_of_us(bytes: Vec<u8>, is_encrypted: bool, capabilities: u64) {
        let _ = ServerHello::parse(&bytes);
        let _ = AuthChallenge::parse(&bytes);
        let _ = ChangeUser::parse(&bytes, CapabilityFlags(capabilities));
        if let Ok(FirstReply::Response(response)) = FirstReply::parse(&bytes, is_encrypted) {
            prop_assert!(response.attributes.pairs().count() <= bytes.len());
        }
        // After a valid beginning, too.
        let mut head = Vec::new();
        put_head(&mut head, CapabilityFlags(capabilities | 0x8200), 1, 45);
        head.extend_from_slice(&bytes);
        let _ = FirstReply::parse(&head, is_encrypted);
    }
}
