//! Tests of the dialer: with scripted servers, most of them hostile, and with a real one.

use proptest::prelude::*;
use wire::pg::frame::TransactionStatus;
use wire::pg::md5::Md5Secret;
use wire::pg::message::{ErrorFields, backend};
use wire::pg::scram::{ScramKeys, ScramSecret, ScramServer};
use wire::pg::secret::PlainPassword;

use super::*;

const NONCE: [u8; NONCE_BYTES] = [1; NONCE_BYTES];

fn params(credentials: PgCredentials) -> PgDialParams {
    PgDialParams {
        user: "alice".to_owned(),
        database: Some("shop".to_owned()),
        credentials: Arc::new(credentials),
        parameters: vec![("application_name".to_owned(), "x".to_owned())],
        tls: TlsRequest::Never,
        assurance: ServerAssurance::Unknown,
        // Few, because they are computed here.
        rules: LoginRules { scram_iterations_min: 16, ..LoginRules::default() },
        version: ProtocolVersion::V3_0,
    }
}

fn with_password(text: &str) -> PgDialParams {
    params(PgCredentials::of_password(PlainPassword::new(text.to_owned())))
}

/// Returns a decision, in a word.
fn word(next: &PgDialNext) -> String {
    match next {
        PgDialNext::More => "more".to_owned(),
        PgDialNext::StartTls => "tls".to_owned(),
        PgDialNext::Ready(_) => "ready".to_owned(),
        PgDialNext::Cancelled => "cancelled".to_owned(),
        PgDialNext::Fail(error) => format!("fail {error}"),
    }
}

/// Starts a dial and drops its first output.
fn begun(params: PgDialParams) -> PgDial {
    let mut dial = PgDial::new(params, NONCE);
    assert_eq!(word(&dial.start(&mut Vec::new())), "more");
    dial
}

/// Presents `bytes` in pieces, like a socket, until there is a decision.
fn feed(dial: &mut PgDial, bytes: &[u8], piece: usize, out: &mut Vec<u8>) -> PgDialNext {
    let (mut pending, mut rest) = (Vec::new(), bytes);
    loop {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        pending.extend_from_slice(now);
        rest = later;
        let step = dial.input(&pending, out);
        pending.drain(..step.consumed);
        match step.next {
            PgDialNext::More if !rest.is_empty() => {}
            next => return next,
        }
    }
}

/// Returns a server's messages after a successful login.
fn greeting() -> Vec<u8> {
    let mut out = Vec::new();
    backend::authentication_ok(&mut out);
    backend::parameter_status(&mut out, "server_version", "15.0");
    backend::parameter_status(&mut out, "TimeZone", "UTC");
    backend::parameter_status(&mut out, "TimeZone", "CET");
    backend::notice(&mut out, &ErrorFields::error("00000", "welcome"));
    backend::backend_key_data(&mut out, 7, b"key!");
    backend::ready_for_query(&mut out, TransactionStatus::Idle);
    out
}

fn of(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn a_server_that_trusts_us_is_ready_at_once() {
    let bytes = greeting();
    for piece in 1..=bytes.len() {
        let mut dial = PgDial::new(params(PgCredentials::None), NONCE);
        let mut out = Vec::new();
        assert_eq!(word(&dial.start(&mut out)), "more");
        let said = b"\0\0\0\x35\0\x03\0\0user\0alice\0database\0shop\0application_name\0x\0\0";
        assert_eq!(out, said, "{}", out.escape_ascii());
        let next = feed(&mut dial, &bytes, piece, &mut out);
        let PgDialNext::Ready(greeting) = next else { panic!("{}", word(&next)) };
        assert_eq!((greeting.pid, greeting.key.as_slice()), (7, &b"key!"[..]));
        assert_eq!(greeting.parameters, [of("server_version", "15.0"), of("TimeZone", "CET")]);
        assert_eq!((greeting.version, greeting.is_encrypted), (ProtocolVersion::V3_0, false));
    }
}

#[test]
fn what_follows_readiness_is_left_alone() {
    let bytes = [greeting(), b"more".to_vec()].concat();
    let step = begun(params(PgCredentials::None)).input(&bytes, &mut Vec::new());
    assert_eq!((step.consumed, word(&step.next).as_str()), (bytes.len() - 4, "ready"));
}

/// Plays a server that has `secret` and offers `mechanisms`.
fn scram(
    dial: &mut PgDial,
    secret: &ScramSecret,
    mechanisms: &[&str],
    own: ChannelBinding<'_>,
) -> PgDialNext {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    backend::authentication_sasl(&mut said, mechanisms);
    let next = feed(dial, &said, 5, &mut out);
    if word(&next) != "more" {
        return next;
    }
    let end = out.iter().skip(5).position(|byte| *byte == 0).expect("a mechanism") + 5;
    let mechanism = std::str::from_utf8(&out[5..end]).expect("a name");
    let first = ScramServer::first(secret, own, mechanism, &out[end + 5..], [2; NONCE_BYTES]);
    let (server, challenge) = first.expect("a good first message");
    said.clear();
    backend::authentication_sasl_continue(&mut said, challenge.as_bytes());
    out.clear();
    let next = feed(dial, &said, 5, &mut out);
    if word(&next) != "more" {
        return next;
    }
    let accepted = server.last(secret, &out[5..]).expect("a good proof");
    said.clear();
    backend::authentication_sasl_final(&mut said, accepted.message.as_bytes());
    said.extend(greeting());
    feed(dial, &said, 5, &mut out)
}

#[test]
fn scram_by_password_or_by_the_keys_of_a_client() {
    let salt = b"0123456789abcdef";
    let (secret, keys) =
        (ScramSecret::derive("secret", salt, 16), ScramKeys::derive("secret", salt, 16));
    let plain = &["SCRAM-SHA-256"][..];
    assert_eq!(
        word(&scram(&mut begun(with_password("secret")), &secret, plain, ChannelBinding::Unbound)),
        "ready"
    );
    let mut by_keys = begun(params(PgCredentials::Scram(keys)));
    assert_eq!(word(&scram(&mut by_keys, &secret, plain, ChannelBinding::Unbound)), "ready");

    let other = ScramKeys::derive("secret", b"other salt", 16);
    let mut by_others = begun(params(PgCredentials::Scram(other)));
    let next = scram(&mut by_others, &secret, plain, ChannelBinding::Unbound);
    assert_eq!(word(&next), format!("fail {}", PgCredentialsError::OtherSecret));
    let mut without = begun(params(PgCredentials::None));
    let next = scram(&mut without, &secret, plain, ChannelBinding::Unbound);
    assert_eq!(word(&next), format!("fail {}", PgCredentialsError::None));
    let mut unknown = begun(with_password("secret"));
    let next = scram(&mut unknown, &secret, &["SCRAM-SHA-1"], ChannelBinding::Unbound);
    assert_eq!(
        word(&next),
        format!("fail {}", PgDialError::Unsupported("an unknown SASL mechanism"))
    );
}

#[test]
fn scram_is_bound_to_the_certificate_of_the_server() {
    let secret = ScramSecret::derive("secret", b"0123456789abcdef", 16);
    let both = &["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"][..];
    let mut dial =
        PgDial::new(PgDialParams { tls: TlsRequest::Must, ..with_password("secret") }, NONCE);
    let mut out = Vec::new();
    assert_eq!(word(&dial.start(&mut out)), "more");
    assert_eq!(word(&dial.input(b"S", &mut out).next), "tls");
    assert_eq!(word(&dial.tls_started(Some(b"hash".to_vec()), &mut out)), "more");
    let next = scram(&mut dial, &secret, both, ChannelBinding::EndPoint(b"hash"));
    let PgDialNext::Ready(greeting) = next else { panic!("{}", word(&next)) };
    assert!(greeting.is_encrypted);
}

#[test]
fn keys_are_derived_once_for_each_salt() {
    let credentials = PgCredentials::of_password(PlainPassword::new("secret".to_owned()));
    let first = credentials.scram(b"salt", 16).expect("keys");
    assert_eq!(credentials.scram(b"salt", 16), Ok(first));
    for salt in 0..10_u8 {
        credentials.scram(&[salt], 1).expect("keys");
    }
    let PgCredentials::Password(_, known) = &credentials else { panic!("a password") };
    assert!(format!("{known:?}").matches("ScramKeys").count() <= 4, "{known:?}");
}

#[test]
fn passwords_in_the_older_ways() {
    let md5 = Md5Secret::derive("alice", "secret");
    let (ask_md5, ask_plain) = (&b"R\0\0\0\x0c\0\0\0\x05salt"[..], &b"R\0\0\0\x08\0\0\0\x03"[..]);
    let mut answer = Vec::new();
    frontend::password(&mut answer, &md5.answer(*b"salt"));
    let private = PgDialParams { assurance: ServerAssurance::Private, ..with_password("secret") };
    for (params, ask, expected) in [
        (with_password("secret"), ask_md5, Ok(&answer[..])),
        (params(PgCredentials::Md5(md5.clone())), ask_md5, Ok(&answer)),
        (params(PgCredentials::None), ask_md5, Err(PgDialError::from(PgCredentialsError::None))),
        (private, ask_plain, Ok(b"p\0\0\0\x0bsecret\0")),
        (
            PgDialParams { assurance: ServerAssurance::Private, ..params(PgCredentials::Md5(md5)) },
            ask_plain,
            Err(PgDialError::from(PgCredentialsError::OnlyHave("an MD5 hash"))),
        ),
        // Anyone on the path could request it.
        (with_password("secret"), ask_plain, Err(UnverifiedPeer("`tls = \"verify-full\"`").into())),
    ] {
        let (mut dial, mut out) = (begun(params), Vec::new());
        let next = feed(&mut dial, ask, 3, &mut out);
        match expected {
            Err(error) => assert_eq!(word(&next), format!("fail {error}")),
            Ok(bytes) => {
                assert_eq!((word(&next).as_str(), out.as_slice()), ("more", bytes));
                assert_eq!(word(&feed(&mut dial, &greeting(), 9, &mut out)), "ready");
            }
        }
    }
}

#[test]
fn a_server_that_nobody_knows_gets_no_proof_that_is_guessed_fast() {
    let secret = ScramSecret::derive("secret", b"0123456789abcdef", 15);
    let keys = ScramKeys::derive("secret", b"0123456789abcdef", 15);
    let few = "fail the server asks for SCRAM of 15 iterations, which is less than \
               `scram_iterations_min` of its table allows without TLS that verifies it";
    for (assurance, expected) in [
        (ServerAssurance::Unknown, few),
        (ServerAssurance::Trusted, few),
        (ServerAssurance::Verified, "ready"),
        (ServerAssurance::Private, "ready"),
    ] {
        let mut dial = begun(PgDialParams { assurance, ..with_password("secret") });
        let next = scram(&mut dial, &secret, &["SCRAM-SHA-256"], ChannelBinding::Unbound);
        assert_eq!(word(&next), expected, "{assurance:?}");
    }
    // These have a fixed number of iterations anyway.
    let mut dial = begun(params(PgCredentials::Scram(keys)));
    let next = scram(&mut dial, &secret, &["SCRAM-SHA-256"], ChannelBinding::Unbound);
    assert_eq!(word(&next), "ready");
}

#[test]
fn a_server_gets_the_proofs_only_that_it_may_ask_for() {
    let all = [ServerAuth::ScramSha256, ServerAuth::Md5, ServerAuth::Password, ServerAuth::None];
    let mut sasl = Vec::new();
    backend::authentication_sasl(&mut sasl, &["SCRAM-SHA-256"]);
    let asked = [
        &sasl,
        &b"R\0\0\0\x0c\0\0\0\x05salt"[..],
        b"R\0\0\0\x08\0\0\0\x03",
        b"R\0\0\0\x08\0\0\0\0",
    ];
    for allowed in all {
        for (method, bytes) in all.into_iter().zip(asked) {
            let rules = LoginRules { methods: vec![allowed], ..LoginRules::default() };
            let params = with_password("secret");
            let assurance = ServerAssurance::Private;
            let mut dial = begun(PgDialParams { rules, assurance, ..params });
            let mut out = Vec::new();
            let next = word(&feed(&mut dial, bytes, 9, &mut out));
            let refused = format!("fail {}", PgDialError::Method(method));
            let expected = if allowed == method { "more" } else { &refused };
            assert_eq!(next, expected, "{method} where {allowed} is allowed");
            assert!(allowed == method || out.is_empty(), "{out:?}");
        }
    }
}

#[test]
fn a_server_that_nobody_knows_is_not_shown_a_password_behind_tls_either() {
    for (assurance, expected) in [
        (ServerAssurance::Unknown, Err(UnverifiedPeer(VERIFY_OR_TRUST))),
        (ServerAssurance::Trusted, Ok(())),
        (ServerAssurance::Verified, Ok(())),
    ] {
        let mut out = Vec::new();
        let params = with_password("secret");
        let params = PgDialParams { assurance, tls: TlsRequest::Must, ..params };
        let mut dial = PgDial::new(params, [1; NONCE_BYTES]);
        assert_eq!(word(&dial.start(&mut out)), "more");
        assert_eq!(word(&feed(&mut dial, b"S", 1, &mut out)), "tls");
        assert_eq!(word(&dial.tls_started(None, &mut out)), "more");
        out.clear();
        let next = feed(&mut dial, b"R\0\0\0\x08\0\0\0\x03", 9, &mut out);
        match expected {
            Ok(()) => {
                assert_eq!(word(&next), "more", "{assurance:?}");
                assert_eq!(out, b"p\0\0\0\x0bsecret\0", "{assurance:?}");
            }
            Err(error) => {
                assert_eq!(word(&next), format!("fail {error}"), "{assurance:?}");
                assert!(out.is_empty(), "{assurance:?}");
            }
        }
    }
}

#[test]
fn encryption_is_asked_for_and_nothing_unencrypted_is_believed() {
    let protocol = |what| format!("fail {}", PgDialError::Protocol(what));
    let error = b"E\0\0\0\x14SERROR\0Mforged\0\0";
    for (tls, answer, expected) in [
        (TlsRequest::Must, &b"S"[..], "tls".to_owned()),
        (TlsRequest::IfOffered, b"S", "tls".to_owned()),
        (TlsRequest::IfOffered, b"N", "more".to_owned()),
        (TlsRequest::Must, b"N", format!("fail {}", PgDialError::NoTls)),
        (TlsRequest::IfOffered, b"SE", protocol("data follows its offer of TLS")),
        (TlsRequest::IfOffered, error, protocol("no answer to the request for TLS")),
        (TlsRequest::Must, b"R", protocol("no answer to the request for TLS")),
    ] {
        let mut dial = PgDial::new(PgDialParams { tls, ..params(PgCredentials::None) }, NONCE);
        let mut out = Vec::new();
        assert_eq!(word(&dial.start(&mut out)), "more");
        assert_eq!(out, b"\0\0\0\x08\x04\xd2\x16\x2f");
        assert_eq!(word(&dial.input(answer, &mut out).next), expected);
        assert_eq!(out.len() > 8, answer == b"N" && expected == "more", "the startup message");
    }
}

#[test]
fn an_older_server_is_spoken_to_as_it_likes() {
    let told = |code: &[u8]| [b"v\0\0\0\x0c", code, b"\0\0\0\0"].concat();
    let bad = format!("fail {}", PgDialError::Protocol("a version that was not asked for"));
    for (asked, told, expected) in [
        (ProtocolVersion::V3_2, told(b"\0\x03\0\0"), Ok(ProtocolVersion::V3_0)),
        (ProtocolVersion::V3_2, told(b"\0\0\0\0"), Ok(ProtocolVersion::V3_0)),
        (ProtocolVersion::V3_2, Vec::new(), Ok(ProtocolVersion::V3_2)),
        (ProtocolVersion::V3_0, Vec::new(), Ok(ProtocolVersion::V3_0)),
        (ProtocolVersion::V3_0, told(b"\0\x03\0\0"), Err(&bad)),
        (ProtocolVersion::V3_2, told(b"\0\x03\0\x03"), Err(&bad)),
        (ProtocolVersion::V3_2, told(b"\0\x02\0\0"), Err(&bad)),
        (ProtocolVersion::V3_2, b"v\0\0\0\x0e\0\x03\0\0\0\0\0\x01x\0".to_vec(), Err(&bad)),
        (ProtocolVersion::V3_2, b"v\0\0\0\x06\0\0".to_vec(), Err(&bad)),
        (ProtocolVersion::V3_2, [told(b"\0\x03\0\0"), told(b"\0\x03\0\0")].concat(), Err(&bad)),
    ] {
        let mut dial = begun(PgDialParams { version: asked, ..params(PgCredentials::None) });
        let bytes = [told, greeting()].concat();
        match (feed(&mut dial, &bytes, 4, &mut Vec::new()), expected) {
            (PgDialNext::Ready(greeting), Ok(version)) => assert_eq!(greeting.version, version),
            (next, Err(error)) => assert_eq!(word(&next), *error),
            (next, Ok(_)) => panic!("{}", word(&next)),
        }
    }
}

#[test]
fn a_server_that_misbehaves_is_left() {
    let fail = |what| format!("fail {}", PgDialError::Protocol(what));
    let ok = &b"R\0\0\0\x08\0\0\0\0"[..];
    let after = |bytes: &[u8]| [ok, bytes].concat();
    let request = "an authentication request";
    for (bytes, expected) in [
        (b"R\0\0\0\x03".to_vec(), fail("a length")),
        (b"R\0\0\0\x06\0\0".to_vec(), fail(request)),
        (b"R\0\0\0\x08\0\0\0\x63".to_vec(), fail(request)),
        (b"R\0\0\0\x0b\0\0\0\x05sal".to_vec(), fail(request)),
        (b"R\0\0\0\x08\0\0\0\x0c".to_vec(), fail(request)),
        (
            b"R\0\0\0\x08\0\0\0\x07".to_vec(),
            format!("fail {}", PgDialError::Unsupported("Kerberos")),
        ),
        (b"E\0\x02\0\0".to_vec(), fail("a message that is too long")),
        (b"HTTP/1.1 400 Bad Request".to_vec(), fail("a length")),
        (b"Z\0\0\0\x05I".to_vec(), fail("a message before it let us in")),
        (b"D\0\0\0\x04".to_vec(), fail("a message before it let us in")),
        (after(ok), fail(request)),
        (after(b"Z\0\0\0\x05T"), fail("a message before it is ready")),
        (after(b"D\0\0\0\x04"), fail("a message before it is ready")),
        (after(b"S\0\0\0\x05x"), fail("a parameter")),
        (after(b"K\0\0\0\x0b\0\0\0\x07key"), fail("a key for cancelling")),
        (after(b"E\0\0\0\x05\0"), "fail no message".to_owned()),
    ] {
        let next = feed(&mut begun(params(PgCredentials::None)), &bytes, 1000, &mut Vec::new());
        assert_eq!(word(&next), expected, "{}", bytes.escape_ascii());
    }
    let mut endless = begun(params(PgCredentials::None));
    let mut notice = Vec::new();
    backend::notice(&mut notice, &ErrorFields::error("00000", &"x".repeat(60_000)));
    let said: Vec<String> = (0..30)
        .map(|_| word(&feed(&mut endless, &notice, 70_000, &mut Vec::new())))
        .filter(|word| word != "more")
        .collect();
    assert_eq!(said, [fail("too much before it is ready")]);
}

#[test]
fn a_server_may_not_skip_its_own_proof() {
    for say in [&b"R\0\0\0\x08\0\0\0\0"[..], b"R\0\0\0\x0d\0\0\0\x0ce=no!"] {
        let (mut dial, mut out) = (begun(with_password("secret")), Vec::new());
        let mut said = Vec::new();
        backend::authentication_sasl(&mut said, &["SCRAM-SHA-256"]);
        assert_eq!(word(&feed(&mut dial, &said, 9, &mut out)), "more");
        let next = feed(&mut dial, say, 9, &mut out);
        assert!(word(&next).starts_with("fail"), "{}", word(&next));
    }
}

#[test]
fn a_refusal_is_passed_on_with_its_code() {
    let mut bytes = Vec::new();
    backend::error(&mut bytes, &ErrorFields::fatal("53300", "sorry, too many clients already"));
    let next = feed(&mut begun(params(PgCredentials::None)), &bytes, 7, &mut Vec::new());
    let PgDialNext::Fail(error) = next else { panic!("{}", word(&next)) };
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("53300", "sorry, too many clients already")
    );
}

#[test]
fn a_cancel_request_is_encrypted_as_its_connection_is() {
    let request = b"\0\0\0\x2c\x04\xd2\x16\x2e\0\0\0\x07".to_vec();
    let request = [request, vec![9; 32]].concat();
    let mut out = Vec::new();
    let mut dial = PgDial::cancel(7, vec![9; 32], TlsRequest::Never);
    assert_eq!(word(&dial.start(&mut out)), "cancelled");
    assert_eq!(out, request);
    out.clear();
    let mut dial = PgDial::cancel(7, vec![9; 32], TlsRequest::Must);
    assert_eq!(word(&dial.start(&mut out)), "more");
    assert_eq!(word(&dial.input(b"S", &mut out).next), "tls");
    out.clear();
    assert_eq!(word(&dial.tls_started(None, &mut out)), "cancelled");
    assert_eq!(out, request);
}

proptest! {
    /// Any server output, split arbitrarily, leads to a decision and no panic.
    #[test]
    fn random_bytes_lead_nowhere(
        begin in 0_usize..3,
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        piece in 1_usize..20,
    ) {
        let (mut dial, mut out) = (begun(with_password("secret")), Vec::new());
        let prefix: [&[u8]; 3] =
            [b"", b"R\0\0\0\x08\0\0\0\0", b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0"];
        let _next = feed(&mut dial, prefix[begin], 100, &mut out);
        let next = feed(&mut dial, &noise, piece, &mut out);
        let is_in = matches!(next, PgDialNext::Ready(_));
        prop_assert!(!is_in);
    }
}
