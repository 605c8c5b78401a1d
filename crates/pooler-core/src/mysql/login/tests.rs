//! Logins of clients of every kind: the requests that they get, and the outcome.

use std::sync::OnceLock;

use wire::mysql::auth::{MysqlSecret, NONCE_BYTES, SecretKind, Sha2Crypt};
use wire::mysql::handshake::{
    AuthChallenge, ConnectionAttributes, HandshakeResponse, put_ssl_request,
};
use wire::mysql::packet::{ErrPacket, OkPacket};

use super::*;

mod pairs;

const NONCE: [u8; NONCE_BYTES] = *b"abcdefghijklmnopqrst";

fn nonce() -> AuthNonce {
    AuthNonce::parse(&NONCE).expect("a nonce")
}

pub(super) fn policy(plugin: AuthPlugin) -> MysqlLoginPolicy {
    MysqlLoginPolicy {
        tls: TlsPolicy::Offered,
        cleartext: CleartextPolicy::Protected,
        plugin,
        more: CapabilityFlags::NONE,
    }
}

/// Returns a key for all tests: generating it takes a while.
pub(super) fn own_key() -> Arc<OwnKey> {
    static KEY: OnceLock<Arc<OwnKey>> = OnceLock::new();
    Arc::clone(KEY.get_or_init(Arc::default))
}

pub(super) fn plain() -> MysqlVerifier {
    MysqlVerifier::new(MysqlSecret::Plain(PlainPassword::new("secret".to_owned())))
}

pub(super) fn native() -> MysqlVerifier {
    MysqlVerifier::new(MysqlSecret::Native(NativeKey::of("secret").hash()))
}

pub(super) fn sha2() -> MysqlVerifier {
    MysqlVerifier::new(MysqlSecret::Sha2(Sha2Crypt::derive("secret", [b's'; 20], 5000)))
}

pub(super) fn proof(verifier: MysqlVerifier) -> MysqlProof {
    MysqlProof::Password {
        verifier: Arc::new(verifier),
        method: MysqlPasswordMethod::Best,
        key: own_key(),
    }
}

pub(super) fn client_capabilities() -> CapabilityFlags {
    OFFERED.without(CapabilityFlags::CONNECT_WITH_DB)
}

fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), seq);
    frame::put_packet(&mut out, &mut seq, payload);
    out
}

/// Returns a response to the greeting by this method.
fn response(capabilities: CapabilityFlags, plugin: &str, answer: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    let response = HandshakeResponse {
        capabilities,
        packet_max: 1 << 24,
        collation: 45,
        user: b"alice",
        answer,
        database: None,
        plugin: Some(plugin.as_bytes()),
        attributes: ConnectionAttributes::default(),
    };
    response.write(&mut payload);
    payload
}

fn greeted(policy: MysqlLoginPolicy, reached: ClientTransport) -> MysqlLogin {
    let mut login = MysqlLogin::new(policy, reached, nonce());
    let mut out = Vec::new();
    login.greet(7, "8.0.30-cove", &mut out);
    let hello = ServerHello::parse(&out[4..]).expect("a greeting");
    assert_eq!((hello.thread_id, hello.version), (7, &b"8.0.30-cove"[..]));
    assert!(!hello.capabilities.contains(CapabilityFlags::COMPRESS));
    assert!(!hello.capabilities.contains(CapabilityFlags::LOCAL_FILES));
    login
}

/// Returns the payloads of packets, whose numbers must be consecutive.
fn payloads(mut bytes: &[u8], mut seq: u8) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    while let Some(header) = PacketHeader::parse(bytes) {
        assert_eq!(header.seq, seq);
        seq += 1;
        payloads.push(bytes[4..header.total()].to_vec());
        bytes = &bytes[header.total()..];
    }
    assert!(bytes.is_empty());
    payloads
}

fn errno(payload: &[u8]) -> u16 {
    ErrPacket::parse(payload).expect("an error").code
}

/// Presents a response and routes it; returns the result.
fn answered(
    policy: MysqlLoginPolicy,
    reached: ClientTransport,
    response: &[u8],
    proof: MysqlProof,
) -> (MysqlLogin, MysqlLoginNext, Vec<Vec<u8>>) {
    let mut login = greeted(policy, reached);
    let mut out = Vec::new();
    let bytes = packet(1, response);
    let step = login.input(&bytes, &mut out);
    assert!(matches!(step.next, MysqlLoginNext::Route), "{:?}", step.next);
    assert_eq!(step.consumed, bytes.len());
    assert_eq!(login.requested().expect("asked").user, "alice");
    let step = login.routed(Ok(proof), &mut out);
    let payloads = payloads(&out, 2);
    (login, step.next, payloads)
}

/// Runs the password check that a login waits for, if any, and returns the result.
fn settled(login: &mut MysqlLogin, next: MysqlLoginNext, out: &mut Vec<u8>) -> MysqlLoginNext {
    match next {
        MysqlLoginNext::Check(check) => {
            assert_eq!(login.input(b"more", out).consumed, 0, "nothing is taken meanwhile");
            login.checked(check.run(), out).next
        }
        next => next,
    }
}

/// Returns the outcome of one proof, in few words.
fn outcome(next: &MysqlLoginNext, payloads: &[Vec<u8>]) -> String {
    let said: Vec<String> = payloads
        .iter()
        .map(|payload| match AuthChallenge::parse(payload) {
            Some(AuthChallenge::Switch { plugin, .. }) => {
                format!("switch to {}", String::from_utf8_lossy(plugin))
            }
            Some(AuthChallenge::More([byte])) => format!("more {byte}"),
            _ => format!("error {}", errno(payload)),
        })
        .collect();
    let next = match next {
        MysqlLoginNext::Done(done) => match done.shown {
            MysqlDisclosedSecret::Nothing => "in with nothing",
            MysqlDisclosedSecret::Native(_) => "in by native",
            MysqlDisclosedSecret::Sha2(_) => "in by sha2",
            MysqlDisclosedSecret::Password(_) => "in by password",
        },
        MysqlLoginNext::Fail(_) => "out",
        MysqlLoginNext::More => "waits",
        MysqlLoginNext::StartTls | MysqlLoginNext::Route | MysqlLoginNext::Check(_) => "?",
    };
    said.into_iter().chain([next.to_owned()]).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_proof_that_came_unasked_is_taken_where_it_says_something() {
    let by_native = NativeKey::of("secret").answer(&nonce()).to_vec();
    let by_sha2 = Sha2Key::of("secret").answer(&nonce()).to_vec();
    let wrong = NativeKey::of("wrong").answer(&nonce()).to_vec();
    let wrong_sha2 = Sha2Key::of("wrong").answer(&nonce()).to_vec();
    let (n, s) = ("mysql_native_password", "caching_sha2_password");
    let greet = [AuthPlugin::Native, AuthPlugin::CachingSha2];
    let [native_first, sha2_first] = greet;
    let to_native = "switch to mysql_native_password, waits";
    let to_sha2 = "switch to caching_sha2_password, waits";
    for (greet, secret, plugin, answer, wanted) in [
        (native_first, plain(), n, &by_native, "in by native"),
        (native_first, native(), n, &by_native, "in by native"),
        (native_first, sha2(), n, &by_native, to_sha2),
        (native_first, plain(), n, &wrong, "error 1045, out"),
        (native_first, native(), n, &wrong, "error 1045, out"),
        (native_first, plain(), n, &Vec::new(), "error 1045, out"),
        (native_first, plain(), s, &by_sha2, "more 3, in by sha2"),
        (native_first, plain(), s, &Vec::new(), to_native),
        (native_first, native(), s, &by_sha2, to_native),
        (native_first, plain(), "client_ed25519", &Vec::new(), to_native),
        (native_first, plain(), "mysql_clear_password", &b"secret\0".to_vec(), to_native),
        (sha2_first, plain(), s, &by_sha2, "more 3, in by sha2"),
        (sha2_first, plain(), s, &wrong_sha2, "error 1045, out"),
        (sha2_first, plain(), s, &b"\0".to_vec(), "error 1045, out"),
        (sha2_first, sha2(), s, &by_sha2, "more 4, waits"),
        (sha2_first, native(), s, &by_sha2, to_native),
        (sha2_first, plain(), n, &by_native, "in by native"),
        (sha2_first, sha2(), n, &by_native, to_sha2),
    ] {
        let response = response(client_capabilities(), plugin, answer);
        let shown = format!("{greet:?} {plugin} {secret:?}");
        let (_, next, said) =
            answered(policy(greet), ClientTransport::Tcp, &response, proof(secret));
        assert_eq!(outcome(&next, &said), wanted, "{shown}");
    }
}

#[test]
fn users_who_do_not_exist_are_asked_like_others_and_sent_away_like_others() {
    let wrong = NativeKey::of("wrong").answer(&nonce());
    let wrong_sha2 = Sha2Key::of("wrong").answer(&nonce());
    let secrets: [(SecretKind, fn() -> MysqlVerifier); 3] =
        [(SecretKind::Plain, plain), (SecretKind::Native, native), (SecretKind::Sha2, sha2)];
    for (kind, real) in secrets {
        for (greet, plugin) in [AuthPlugin::Native, AuthPlugin::CachingSha2]
            .map(|one| [(one, AuthPlugin::Native), (one, AuthPlugin::CachingSha2)])
            .concat()
        {
            let answer = match plugin {
                AuthPlugin::CachingSha2 => &wrong_sha2[..],
                _ => &wrong[..],
            };
            let response = response(client_capabilities(), plugin.name(), answer);
            let of = |verifier| {
                let (_, next, said) =
                    answered(policy(greet), ClientTransport::Tcp, &response, proof(verifier));
                (outcome(&next, &said), said)
            };
            let (mock, real) = (of(MysqlVerifier::mock("alice", &[7; 32], kind)), of(real()));
            assert_eq!(mock, real, "{kind:?} {greet:?} {plugin:?}");
        }
    }
}

#[test]
fn a_client_without_a_choice_of_methods_gets_in_by_its_only_one() {
    let capabilities = client_capabilities().without(CapabilityFlags::PLUGIN_AUTH);
    let answer = NativeKey::of("secret").answer(&nonce());
    for (greet, secret, wanted) in [
        (AuthPlugin::Native, plain(), "in by native"),
        (AuthPlugin::CachingSha2, native(), "in by native"),
        (AuthPlugin::Native, sha2(), "error 1251, out"),
    ] {
        let response = response(capabilities, "", &answer);
        let (_, next, said) =
            answered(policy(greet), ClientTransport::Tcp, &response, proof(secret));
        assert_eq!(outcome(&next, &said), wanted);
    }
}

#[test]
fn who_has_nothing_to_prove_hears_what_its_method_waits_for() {
    for (plugin, answer, wanted) in [
        ("mysql_native_password", &b"12345678901234567890"[..], "in with nothing"),
        ("mysql_native_password", b"", "in with nothing"),
        ("caching_sha2_password", b"12345678901234567890123456789012", "more 3, in with nothing"),
        ("caching_sha2_password", b"", "in with nothing"),
        ("caching_sha2_password", b"\0", "in with nothing"),
        ("anything", b"x", "in with nothing"),
    ] {
        let response = response(client_capabilities(), plugin, answer);
        let unix = ClientTransport::Unix { uid: None };
        let (_, next, said) =
            answered(policy(AuthPlugin::Native), unix, &response, MysqlProof::Nothing);
        assert_eq!(outcome(&next, &said), wanted, "{plugin}");
        let MysqlLoginNext::Done(done) = next else { panic!("{next:?}") };
        let mut out = Vec::new();
        welcome(&done, StatusFlags::AUTOCOMMIT, &mut out);
        let payloads = payloads(&out, 2 + u8::try_from(said.len()).expect("few"));
        let ok = OkPacket::parse(&payloads[0], done.requested.capabilities).expect("OK");
        assert_eq!(ok.status, StatusFlags::AUTOCOMMIT);
    }
}

#[test]
fn a_password_is_asked_for_as_it_is_where_nobody_listens() {
    let ask = |reached, tls: bool, given: &[u8]| {
        let mut login = greeted(policy(AuthPlugin::Native), reached);
        login.tls = tls.then(TlsFacts::default);
        let mut out = Vec::new();
        let capabilities = match tls {
            true => client_capabilities().union(CapabilityFlags::SSL),
            false => client_capabilities(),
        };
        let bytes = packet(1, &response(capabilities, "mysql_native_password", b""));
        assert!(matches!(login.input(&bytes, &mut out).next, MysqlLoginNext::Route));
        let (verifier, key) = (Arc::new(native()), own_key());
        let proof = MysqlProof::Password { verifier, method: MysqlPasswordMethod::Cleartext, key };
        let next = login.routed(Ok(proof), &mut out).next;
        if matches!(next, MysqlLoginNext::Fail(_)) {
            return outcome(&next, &payloads(&out, 2));
        }
        assert_eq!(outcome(&next, &payloads(&out, 2)), "switch to mysql_clear_password, waits");
        out.clear();
        let next = login.input(&packet(3, given), &mut out).next;
        let next = settled(&mut login, next, &mut out);
        outcome(&next, &payloads(&out, 4))
    };
    let unix = ClientTransport::Unix { uid: Some(0) };
    for (reached, tls, given, wanted) in [
        (ClientTransport::Tcp, false, &b"secret\0"[..], "error 1045, out"),
        (ClientTransport::Tcp, true, b"secret\0", "in by password"),
        (unix, false, b"secret\0", "in by password"),
        (unix, false, b"secret", "error 1045, out"),
        (unix, false, b"wrong\0", "error 1045, out"),
        (unix, false, b"\0", "error 1045, out"),
        (unix, false, b"secret\0\0", "error 1045, out"),
    ] {
        assert_eq!(ask(reached, tls, given), wanted, "{reached:?} {tls}");
    }
}

#[test]
fn the_key_to_encrypt_with_is_given_once() {
    let response = response(client_capabilities(), "caching_sha2_password", &[7; 32]);
    let plugin = policy(AuthPlugin::CachingSha2);
    let (mut login, next, said) = answered(plugin, ClientTransport::Tcp, &response, proof(sha2()));
    assert_eq!(outcome(&next, &said), "more 4, waits");
    let mut out = Vec::new();
    let next = login.input(&packet(3, &[2]), &mut out).next;
    let next = settled(&mut login, next, &mut out);
    assert!(matches!(next, MysqlLoginNext::More), "{next:?}");
    assert!(payloads(&out, 4).concat().starts_with(b"\x01-----BEGIN PUBLIC KEY"));
    out.clear();
    let next = login.input(&packet(5, &[2]), &mut out).next;
    assert_eq!(outcome(&next, &payloads(&out, 6)), "error 1043, out");
}

#[test]
fn what_does_not_keep_to_the_protocol_is_sent_away() {
    let whole = response(client_capabilities(), "mysql_native_password", b"");
    let mut tls = Vec::new();
    put_ssl_request(&mut tls, client_capabilities(), 1 << 24, 45);
    let mut long = 0xFF_FFFF_u32.to_le_bytes().to_vec();
    long[3] = 1;
    let not_utf8 = {
        let mut payload = whole.clone();
        payload[32] = 0xFF;
        payload
    };
    let (tcp, unix) = (ClientTransport::Tcp, ClientTransport::Unix { uid: None });
    for (what, reached, bytes, wanted) in [
        ("a wrong number", tcp, packet(2, &whole), 1043),
        ("too long", tcp, long, 1043),
        ("nothing", tcp, packet(1, b""), 1043),
        ("3.20", tcp, packet(1, b"\x05\x24\0\0\x01alice\0proof\0"), 1043),
        ("cut off", tcp, packet(1, &whole[..36]), 1043),
        ("TLS over a Unix socket", unix, packet(1, &tls), 1043),
        ("no text", tcp, packet(1, &not_utf8), 1045),
    ] {
        let mut login = greeted(policy(AuthPlugin::Native), reached);
        let mut out = Vec::new();
        let step = login.input(&bytes, &mut out);
        assert!(matches!(step.next, MysqlLoginNext::Fail(_)), "{what}: {:?}", step.next);
        let error = ErrPacket::parse(&out[4..]).expect("an error");
        assert_eq!(error.code, wanted, "{what}");
        out.clear();
        assert!(matches!(login.input(&bytes, &mut out).next, MysqlLoginNext::More), "{what}");
        assert!(out.is_empty());
    }
}

#[test]
fn without_tls_there_is_no_way_in_where_it_is_required() {
    let required = MysqlLoginPolicy { tls: TlsPolicy::Required, ..policy(AuthPlugin::Native) };
    let answer = NativeKey::of("secret").answer(&nonce());
    let bytes = packet(1, &response(client_capabilities(), "mysql_native_password", &answer));
    let mut login = greeted(required, ClientTransport::Tcp);
    let mut out = Vec::new();
    assert!(matches!(login.input(&bytes, &mut out).next, MysqlLoginNext::Fail(_)));
    assert_eq!(errno(&out[4..]), 3159);
    // A Unix socket needs none.
    let mut login = greeted(required, ClientTransport::Unix { uid: None });
    assert!(matches!(login.input(&bytes, &mut out).next, MysqlLoginNext::Route));
}

#[test]
fn a_client_can_do_only_what_it_was_offered() {
    let capabilities = client_capabilities()
        .union(CapabilityFlags::COMPRESS)
        .union(CapabilityFlags::ZSTD_COMPRESSION)
        .union(CapabilityFlags::QUERY_ATTRIBUTES)
        .union(CapabilityFlags::LOCAL_FILES)
        .union(CapabilityFlags::FOUND_ROWS);
    for (more, wanted) in [
        (CapabilityFlags::NONE, client_capabilities()),
        (CapabilityFlags::FOUND_ROWS, client_capabilities().union(CapabilityFlags::FOUND_ROWS)),
    ] {
        let policy = MysqlLoginPolicy { more, ..policy(AuthPlugin::Native) };
        let response = response(capabilities, "mysql_native_password", b"");
        let (_, next, _) = answered(policy, ClientTransport::Tcp, &response, MysqlProof::Nothing);
        let MysqlLoginNext::Done(done) = next else { panic!("{next:?}") };
        assert_eq!(done.requested.capabilities, wanted);
    }
}

#[test]
fn a_refused_route_is_told() {
    let mut login = greeted(policy(AuthPlugin::Native), ClientTransport::Tcp);
    let mut out = Vec::new();
    let bytes = packet(1, &response(client_capabilities(), "mysql_native_password", b""));
    assert!(matches!(login.input(&bytes, &mut out).next, MysqlLoginNext::Route));
    // Further bytes change nothing meanwhile.
    assert_eq!(login.input(b"more", &mut out).consumed, 0);
    let refusal = PgLoginRefusal::new("3D000", "no such tenant");
    assert!(matches!(login.routed(Err(refusal), &mut out).next, MysqlLoginNext::Fail(_)));
    assert_eq!(errno(&payloads(&out, 2)[0]), 1049);
}

#[test]
fn a_change_of_the_user_is_a_login_with_a_new_nonce() {
    let of = |reached| ChangeOf {
        policy: policy(AuthPlugin::Native),
        reached,
        tls: None,
        capabilities: client_capabilities(),
        collation: 33,
        nonce: nonce(),
    };
    let payload = b"\x11bob\0\0shop\0";
    for (route, answer, wanted) in [
        (proof(plain()), NativeKey::of("secret").answer(&nonce()), "in by native"),
        (proof(plain()), NativeKey::of("wrong").answer(&nonce()), "error 1045, out"),
        (MysqlProof::Nothing, [0; 20], "in with nothing"),
    ] {
        let mut out = Vec::new();
        let (mut login, next) =
            MysqlLogin::change_user(of(ClientTransport::Tcp), payload, &mut out);
        assert!(matches!(next, MysqlLoginNext::Route), "{next:?}");
        let requested = login.requested().expect("asked");
        assert_eq!((&*requested.user, requested.database.as_deref()), ("bob", Some("shop")));
        assert_eq!(requested.collation, 33);
        let next = login.routed(Ok(route), &mut out).next;
        let said = payloads(&out, 1);
        assert_eq!(outcome(&next, &said), "switch to mysql_native_password, waits");
        out.clear();
        let next = login.input(&packet(2, &answer), &mut out).next;
        assert_eq!(outcome(&next, &payloads(&out, 3)), wanted);
    }
    let mut out = Vec::new();
    let (_, next) = MysqlLogin::change_user(of(ClientTransport::Tcp), b"\x11bob", &mut out);
    assert!(matches!(next, MysqlLoginNext::Fail(_)));
    assert_eq!(errno(&payloads(&out, 1)[0]), 1043);
}
