//! Tests of logins: dialogues with a client, with the bytes in pieces of every size.

use proptest::prelude::*;
use wire::pg::message::frontend;
use wire::pg::scram::{ScramClient, ScramSecret};

use super::*;

const SECRET: [u8; 32] = [7; 32];
const SALT: [u8; 4] = *b"salt";

const OFFERED: PgLoginPolicy =
    PgLoginPolicy { tls: TlsPolicy::Offered, cleartext: CleartextPolicy::Protected };
const ABSENT: PgLoginPolicy = PgLoginPolicy { tls: TlsPolicy::Absent, ..OFFERED };
const REQUIRED: PgLoginPolicy = PgLoginPolicy { tls: TlsPolicy::Required, ..OFFERED };
const UNIX: ClientTransport = ClientTransport::Unix { uid: Some(1000) };

fn login(policy: PgLoginPolicy, reached: ClientTransport) -> PgLogin {
    PgLogin::new(policy, reached, LoginEntropy { nonce: [1; NONCE_BYTES], salt: SALT })
}

fn startup_of(version: ProtocolVersion, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::startup(&mut out, version, parameters);
    out
}

/// Returns the startup message of alice, without special requests.
fn startup() -> Vec<u8> {
    startup_of(ProtocolVersion::V3_0, &[("user", "alice"), ("database", "shop")])
}

fn ssl_request() -> Vec<u8> {
    let mut out = Vec::new();
    frontend::ssl_request(&mut out);
    out
}

/// Returns a decision, in a word.
fn word(next: &PgLoginNext) -> String {
    match next {
        PgLoginNext::More => "more".to_owned(),
        PgLoginNext::StartTls => "tls".to_owned(),
        PgLoginNext::Route => "route".to_owned(),
        PgLoginNext::Done(_) => "done".to_owned(),
        PgLoginNext::Cancel { pid, .. } => format!("cancel {pid}"),
        PgLoginNext::Fail(refusal) => format!("fail {}", refusal.code),
    }
}

/// Presents `bytes` in pieces, like a socket, until there is a decision.
fn feed(login: &mut PgLogin, bytes: &[u8], piece: usize, out: &mut Vec<u8>) -> PgLoginNext {
    let (mut pending, mut rest) = (Vec::new(), bytes);
    loop {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        pending.extend_from_slice(now);
        rest = later;
        let step = login.input(&pending, out);
        pending.drain(..step.consumed);
        match step.next {
            PgLoginNext::More if !rest.is_empty() => {}
            next => return next,
        }
    }
}

fn verifier(text: &str) -> Arc<PgVerifier> {
    let secret = PgSecret::parse(text).expect("a secret");
    Arc::new(PgVerifier::new("alice", secret, SECRET))
}

fn password(
    verifier: &Arc<PgVerifier>,
    method: PgPasswordMethod,
) -> Result<RouteAuth, PgLoginRefusal> {
    let proof = PgProof::Password(Arc::clone(verifier), method);
    Ok(RouteAuth { proof, replication: ReplicationPolicy::Refused })
}

fn trust() -> Result<RouteAuth, PgLoginRefusal> {
    Ok(RouteAuth { proof: PgProof::Nothing, replication: ReplicationPolicy::Refused })
}

/// Returns the body of the only message in `out`, which has this tag.
fn only(out: &[u8], tag: u8) -> &[u8] {
    let header = PgHeader::parse(out).expect("a header").expect("whole");
    assert_eq!((header.tag, header.total), (tag, out.len()), "{}", out.escape_ascii());
    &out[frame::HEADER_BYTES..]
}

/// Plays a client that answers SCRAM and MD5 challenges with this password.
fn answer(
    login: &mut PgLogin,
    challenge: &[u8],
    text: &str,
    channel: ChannelBinding<'_>,
) -> PgLoginNext {
    let body = only(challenge, b'R');
    let (kind, data) = body.split_at(4);
    let mut reply = Vec::new();
    match kind {
        [0, 0, 0, 3] => frontend::password(&mut reply, text.as_bytes()),
        [0, 0, 0, 5] => {
            let salt = data.try_into().expect("four bytes");
            let secret = wire::pg::md5::Md5Secret::derive("alice", text);
            frontend::password(&mut reply, &secret.answer(salt));
        }
        [0, 0, 0, 10] => {
            let client = ScramClient::new(channel, [2; NONCE_BYTES]);
            let first = client.first();
            frontend::sasl_initial_response(&mut reply, client.mechanism(), first.as_bytes());
            let mut out = Vec::new();
            let next = feed(login, &reply, 3, &mut out);
            if word(&next) != "more" {
                return next;
            }
            let body = only(&out, b'R');
            assert_eq!(body[..4], [0, 0, 0, 11]);
            let challenge = client.challenge(&body[4..]).expect("a challenge");
            let keys = ScramKeys::derive(text, &challenge.salt, challenge.iterations);
            reply.clear();
            let (last, expected) = challenge.answer(&keys);
            frontend::sasl_response(&mut reply, last.as_bytes());
            out.clear();
            let next = feed(login, &reply, 7, &mut out);
            if word(&next) == "done" {
                let (last, ok) = out.split_at(out.len() - 9);
                assert_eq!(ok, b"R\0\0\0\x08\0\0\0\0");
                let body = only(last, b'R');
                expected.check(&body[4..]).expect("the server knows the secret");
            }
            return next;
        }
        other => panic!("challenge {other:?}"),
    }
    feed(login, &reply, 5, &mut Vec::new())
}

#[test]
fn what_a_client_may_begin_with() {
    let check = |policy, reached, bytes: &[u8], sent: &[u8], expected: &str| {
        for piece in 1..=bytes.len() {
            let mut out = Vec::new();
            let next = feed(&mut login(policy, reached), bytes, piece, &mut out);
            assert_eq!(word(&next), expected, "{} by {piece}", bytes.escape_ascii());
            if !expected.starts_with("fail") {
                assert_eq!(out, sent, "{} by {piece}", bytes.escape_ascii());
            }
        }
    };
    let gss = b"\0\0\0\x08\x04\xd2\x16\x30";
    check(OFFERED, ClientTransport::Tcp, &startup(), b"", "route");
    check(OFFERED, ClientTransport::Tcp, &ssl_request(), b"S", "tls");
    check(REQUIRED, ClientTransport::Tcp, &ssl_request(), b"S", "tls");
    check(ABSENT, ClientTransport::Tcp, &ssl_request(), b"N", "more");
    check(OFFERED, UNIX, &ssl_request(), b"N", "more");
    check(OFFERED, ClientTransport::Tcp, gss, b"N", "more");
    check(OFFERED, ClientTransport::Tcp, b"\x16", b"", "tls");
    check(ABSENT, ClientTransport::Tcp, b"\x16", b"", "fail 08P01");
    check(OFFERED, UNIX, b"\x16", b"", "fail 08P01");
    check(REQUIRED, ClientTransport::Tcp, &startup(), b"", "fail 28000");
    check(REQUIRED, UNIX, &startup(), b"", "route");
    check(OFFERED, ClientTransport::Tcp, b"GET / HTTP/1.1\r\n", b"", "fail 08P01");
    check(OFFERED, ClientTransport::Tcp, b"\0\0\0\x08\0\x02\0\0", b"", "fail 08P01");
    let mut cancel = Vec::new();
    frontend::cancel_request(&mut cancel, 77, &[1; 32]);
    check(REQUIRED, ClientTransport::Tcp, &cancel, b"", "cancel 77");
    let nobody = startup_of(ProtocolVersion::V3_0, &[("user", "")]);
    check(OFFERED, ClientTransport::Tcp, &nobody, b"", "fail 28000");
    let odd = startup_of(ProtocolVersion::V3_0, &[("user", "a"), ("options", "-x")]);
    check(OFFERED, ClientTransport::Tcp, &odd, b"", "fail 22023");
    for identity in [("options", "-c role=less"), ("Role", "less"), ("session_authorization", "a")]
    {
        let startup = startup_of(ProtocolVersion::V3_0, &[("user", "a"), identity]);
        check(OFFERED, ClientTransport::Tcp, &startup, b"", "fail 0A000");
    }
}

#[test]
fn requests_for_encryption_come_in_any_order_but_not_for_ever() {
    let gss = b"\0\0\0\x08\x04\xd2\x16\x30".to_vec();
    for (requests, answers, expected) in [
        (vec![gss.clone(), ssl_request()], "NS", "tls"),
        (vec![ssl_request()], "S", "tls"),
        (vec![gss.clone(), startup()], "N", "route"),
        (vec![gss.clone(), gss.clone(), gss.clone(), startup()], "NNN", "route"),
        (vec![gss.clone(), gss.clone(), gss.clone(), gss], "NNN", "fail 08P01"),
    ] {
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        let mut last = String::new();
        for request in &requests {
            last = word(&feed(&mut login, request, 8, &mut out));
        }
        assert_eq!(last, expected);
        assert!(out.starts_with(answers.as_bytes()), "{}", out.escape_ascii());
    }
    // On an encrypted connection there is no second layer.
    let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
    assert_eq!(word(&feed(&mut login, &ssl_request(), 8, &mut out)), "tls");
    assert_eq!(word(&login.tls_started(TlsFacts::default(), &mut out).next), "more");
    out.clear();
    assert_eq!(word(&feed(&mut login, &ssl_request(), 8, &mut out)), "more");
    assert_eq!(out, b"N");
    assert_eq!(word(&feed(&mut login, b"\x16", 8, &mut out)), "fail 08P01");
}

#[test]
fn nothing_may_follow_a_request_for_encryption_unencrypted() {
    for policy in [OFFERED, ABSENT, REQUIRED] {
        let bytes = [ssl_request(), startup()].concat();
        let (mut login, mut out) = (login(policy, ClientTransport::Tcp), Vec::new());
        assert_eq!(word(&login.input(&bytes, &mut out).next), "fail 08P01");
        assert_eq!(out.first(), Some(&b'E'), "no answer that TLS could follow");
    }
}

#[test]
fn direct_tls_demands_alpn() {
    for (is_postgresql, expected) in [(true, "more"), (false, "fail 08P01")] {
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        let step = login.input(b"\x16\x03\x01", &mut out);
        assert_eq!((step.consumed, word(&step.next).as_str()), (0, "tls"));
        let facts = TlsFacts { is_postgresql, ..TlsFacts::default() };
        assert_eq!(word(&login.tls_started(facts, &mut out).next), expected);
    }
    // After a request for TLS, ALPN is optional.
    let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
    let _asked = feed(&mut login, &ssl_request(), 8, &mut out);
    assert_eq!(word(&login.tls_started(TlsFacts::default(), &mut out).next), "more");
}

#[test]
fn the_version_is_negotiated_once_and_only_where_it_differs() {
    let user = ("user", "alice");
    for (minor, option, spoken, told) in [
        (0, None, 0, None),
        (2, None, 2, None),
        (1, None, 1, None),
        (9999, None, 2, Some(&b"v\0\0\0\x0c\0\x03\0\x02\0\0\0\0"[..])),
        (0, Some("_pq_.a"), 0, Some(b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.a\0")),
        (3, Some("_pq_.a"), 2, Some(b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.a\0")),
    ] {
        let parameters: Vec<_> = [user].into_iter().chain(option.map(|it| (it, "1"))).collect();
        let bytes = startup_of(ProtocolVersion { major: 3, minor }, &parameters);
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        assert_eq!(word(&feed(&mut login, &bytes, 4, &mut out)), "route");
        assert_eq!(out, told.unwrap_or_default());
        let requested = login.requested().expect("requested");
        assert_eq!(requested.version, ProtocolVersion { major: 3, minor: spoken });
        assert_eq!(requested.parameters, []);
        out.clear();
        assert_eq!(word(&login.routed(trust(), &mut out).next), "done");
        assert_eq!(out, b"R\0\0\0\x08\0\0\0\0");
    }
}

#[test]
fn what_a_client_asks_for_is_understood() {
    let bytes = startup_of(
        ProtocolVersion::V3_0,
        &[
            ("user", "alice"),
            ("options", "-c tenant_id=a -c Work_Mem=1MB --datestyle=ISO,\\ MDY"),
            ("tenant_id", "b"),
            ("application_name", "app"),
            ("work_mem", "2MB"),
        ],
    );
    let mut login = login(OFFERED, UNIX);
    assert_eq!(word(&feed(&mut login, &bytes, 1, &mut Vec::new())), "route");
    let requested = login.requested().expect("requested");
    assert_eq!(requested.options_tenant_id.as_deref(), Some("a"));
    assert_eq!(requested.tenant_id.as_deref(), Some("b"));
    assert_eq!(requested.tenant(), Some("a"));
    assert_eq!((requested.database.as_deref(), requested.database_or_user()), (None, "alice"));
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected =
        [of("Work_Mem", "2MB"), of("datestyle", "ISO, MDY"), of("application_name", "app")];
    assert_eq!(requested.parameters, expected);
    assert_eq!(requested.reached, UNIX);
}

#[test]
fn replication_needs_a_server_connection_of_its_own() {
    for (value, policy, expected) in [
        ("true", ReplicationPolicy::Refused, "fail 0A000"),
        ("database", ReplicationPolicy::Refused, "fail 0A000"),
        ("database", ReplicationPolicy::Dedicated, "done"),
        ("1", ReplicationPolicy::Dedicated, "done"),
        ("off", ReplicationPolicy::Refused, "done"),
    ] {
        let bytes = startup_of(ProtocolVersion::V3_0, &[("user", "a"), ("replication", value)]);
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        assert_eq!(word(&feed(&mut login, &bytes, 8, &mut out)), "route");
        let answer = Ok(RouteAuth { proof: PgProof::Nothing, replication: policy });
        assert_eq!(word(&login.routed(answer, &mut out).next), expected, "{value}");
    }
    let bytes = startup_of(ProtocolVersion::V3_0, &[("user", "a"), ("replication", "maybe")]);
    let mut login = login(OFFERED, ClientTransport::Tcp);
    assert_eq!(word(&feed(&mut login, &bytes, 8, &mut Vec::new())), "fail 22023");
}

#[test]
fn every_secret_is_asked_for_in_a_way_it_can_be_checked() {
    let scram = ScramSecret::derive("secret", b"0123456789abcdef", 16).to_string();
    let md5 = "md54a0a68b43b6cd5cf266fa02f196e2371"; // of "secretalice"
    let (sasl, by_md5, cleartext) = (10, 5, 3);
    for (secret, method, reached, kind) in [
        ("secret", PgPasswordMethod::Best, ClientTransport::Tcp, Some(sasl)),
        (md5, PgPasswordMethod::Best, ClientTransport::Tcp, Some(by_md5)),
        (&scram, PgPasswordMethod::Best, ClientTransport::Tcp, Some(sasl)),
        ("secret", PgPasswordMethod::Md5, ClientTransport::Tcp, Some(by_md5)),
        (&scram, PgPasswordMethod::Md5, ClientTransport::Tcp, Some(sasl)),
        ("secret", PgPasswordMethod::Scram, ClientTransport::Tcp, Some(sasl)),
        ("secret", PgPasswordMethod::Cleartext, UNIX, Some(cleartext)),
        (md5, PgPasswordMethod::Cleartext, UNIX, Some(cleartext)),
        (&scram, PgPasswordMethod::Cleartext, UNIX, Some(sasl)),
        ("secret", PgPasswordMethod::Cleartext, ClientTransport::Tcp, None),
    ] {
        let verifier = verifier(secret);
        for (given, expected) in [("secret", "done"), ("Secret", "fail 28P01"), ("", "fail 28P01")]
        {
            let (mut login, mut out) = (login(OFFERED, reached), Vec::new());
            let _route = feed(&mut login, &startup(), 8, &mut out);
            let step = login.routed(password(&verifier, method), &mut out);
            let Some(kind) = kind else {
                assert_eq!(word(&step.next), "fail 28000");
                continue;
            };
            assert_eq!(word(&step.next), "more");
            assert_eq!(out[8], kind, "{secret} {method:?}");
            let next = answer(&mut login, &out, given, ChannelBinding::Unbound);
            assert_eq!(word(&next), expected, "{secret} {method:?} {given}");
        }
    }
}

#[test]
fn a_proof_gives_away_what_logs_in_to_the_server() {
    let scram = ScramSecret::derive("secret", b"0123456789abcdef", 16);
    let keys = ScramKeys::derive("secret", b"0123456789abcdef", 16);
    let text = scram.to_string();
    for (secret, method, expected) in [
        (text.as_str(), PgPasswordMethod::Best, PgDisclosedSecret::Keys(keys)),
        (
            "secret",
            PgPasswordMethod::Cleartext,
            PgDisclosedSecret::Password(PlainPassword::new("secret".to_owned())),
        ),
        ("secret", PgPasswordMethod::Md5, PgDisclosedSecret::Nothing),
    ] {
        let (mut login, mut out) = (login(OFFERED, UNIX), Vec::new());
        let _route = feed(&mut login, &startup(), 8, &mut out);
        let _challenge = login.routed(password(&verifier(secret), method), &mut out);
        let next = answer(&mut login, &out, "secret", ChannelBinding::Unbound);
        let PgLoginNext::Done(authenticated) = next else { panic!("{}", word(&next)) };
        assert_eq!(authenticated.shown, expected);
        assert_eq!(authenticated.requested.user, "alice");
    }
}

#[test]
fn a_user_that_does_not_exist_is_asked_the_same_and_told_the_same() {
    let mut heard = Vec::new();
    for verifier in [verifier("secret"), Arc::new(PgVerifier::mock("alice", SECRET))] {
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        let _route = feed(&mut login, &startup(), 8, &mut out);
        let _challenge = login.routed(password(&verifier, PgPasswordMethod::Best), &mut out);
        let next = answer(&mut login, &out, "wrong", ChannelBinding::Unbound);
        let PgLoginNext::Fail(refusal) = next else { panic!("{}", word(&next)) };
        heard.push((out, refusal.message, refusal.code));
    }
    assert_eq!(heard[0], heard[1]);
}

#[test]
fn scram_is_bound_to_our_certificate() {
    let hash = b"hash of the certificate";
    for (channel, expected) in [
        (ChannelBinding::EndPoint(hash), "done"),
        (ChannelBinding::Unbound, "done"),
        (ChannelBinding::EndPoint(b"another"), "fail 28000"),
        // The offer was removed on the path.
        (ChannelBinding::NotOffered, "fail 28000"),
    ] {
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        let _tls = feed(&mut login, &ssl_request(), 8, &mut out);
        let facts = TlsFacts { end_point: Some(hash.to_vec()), ..TlsFacts::default() };
        let _started = login.tls_started(facts, &mut out);
        let _route = feed(&mut login, &startup(), 8, &mut out);
        out.clear();
        let _challenge =
            login.routed(password(&verifier("secret"), PgPasswordMethod::Best), &mut out);
        assert!(out.ends_with(b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"));
        assert_eq!(word(&answer(&mut login, &out, "secret", channel)), expected, "{channel:?}");
    }
}

#[test]
fn a_proof_that_is_none_is_refused_early() {
    for (message, expected) in [
        (&b"X\0\0\0\x04"[..], "fail 08006"),
        (b"Q\0\0\0\x06;\0", "fail 08P01"),
        (b"p\0\x02\0\0", "fail 08P01"), // 128 KiB are announced
        (b"p\0\0\0\x03", "fail 08P01"),
        (b"p\xff\xff\xff\xff", "fail 08P01"),
        (b"p\0\0\0\x04", "fail 08P01"),
        (b"p\0\0\0\x09SCRAM", "fail 08P01"),
        (b"p\0\0\0\x0aSCRAM\0", "fail 08P01"),
        (b"p\0\0\0\x0ex\0\xff\xff\xff\xffn,,a", "fail 08P01"),
        (b"p\0\0\0\x0dx\0\0\0\0\x03n,,", "fail 08P01"),
    ] {
        let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
        let _route = feed(&mut login, &startup(), 8, &mut out);
        let _challenge =
            login.routed(password(&verifier("secret"), PgPasswordMethod::Best), &mut out);
        let next = feed(&mut login, message, 1, &mut out);
        assert_eq!(word(&next), expected, "{}", message.escape_ascii());
    }
}

#[test]
fn a_refused_route_is_told_with_its_hint() {
    let (mut login, mut out) = (login(OFFERED, ClientTransport::Tcp), Vec::new());
    let _route = feed(&mut login, &startup(), 8, &mut out);
    let refusal = PgLoginRefusal {
        hint: Some("look".to_owned()),
        cause: Some("hidden".to_owned()),
        ..PgLoginRefusal::new("08000", "no tenant")
    };
    assert_eq!(word(&login.routed(Err(refusal), &mut out).next), "fail 08000");
    let notice = wire::pg::notice::ServerNotice::parse(only(&out, b'E'));
    assert_eq!((notice.code(), &*notice.message()), ("08000", "no tenant"));
    assert_eq!(notice.hint().as_deref(), Some("look"));
    assert!(!out.windows(6).any(|part| part == b"hidden"));
}

#[test]
fn the_welcome_is_what_a_server_says() {
    let mut out = Vec::new();
    welcome([("a", "b")], 7, b"key!", &mut out);
    assert_eq!(out, b"S\0\0\0\x08a\0b\0K\0\0\0\x0c\0\0\0\x07key!Z\0\0\0\x05I");
}

proptest! {
    /// Any client input, split arbitrarily, leads to a decision, no panic, and no login.
    #[test]
    fn random_bytes_do_not_get_in(
        begin in 0_usize..4,
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        piece in 1_usize..20,
    ) {
        let (mut login, mut out) = (login(OFFERED, UNIX), Vec::new());
        if begin > 0 {
            let _route = feed(&mut login, &startup(), 8, &mut out);
            let methods =
                [PgPasswordMethod::Best, PgPasswordMethod::Md5, PgPasswordMethod::Cleartext];
            let method = methods[begin - 1];
            let _challenge = login.routed(password(&verifier("secret"), method), &mut out);
        }
        let next = feed(&mut login, &noise, piece, &mut out);
        let is_in = matches!(next, PgLoginNext::Done(_));
        prop_assert!(!is_in);
    }
}
