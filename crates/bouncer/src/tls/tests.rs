//! Tests of TLS: both sides perform the handshake in memory.

use std::fs;
use std::io::{Read as _, Write as _};

use testkit::{Certificate, Scratch};

use super::*;

/// Returns a directory with a certificate.
fn made() -> (Scratch, Certificate) {
    let scratch = Scratch::new();
    let certificate = Certificate::new(&scratch);
    (scratch, certificate)
}

fn clients(mode: TlsMode, own: Option<&Certificate>, ca: Option<&Certificate>) -> ClientTls {
    ClientTls {
        mode,
        cert: own.map(|it| it.certificate.clone()),
        key: own.map(|it| it.key.clone()),
        client_ca: ca.map(|it| it.certificate.clone()),
    }
}

fn servers(mode: TlsMode, ca: Option<&Certificate>, own: Option<&Certificate>) -> ServerTls {
    ServerTls {
        mode,
        ca: ca.map(|it| it.certificate.clone()),
        cert: own.map(|it| it.certificate.clone()),
        key: own.map(|it| it.key.clone()),
        ..ServerTls::default()
    }
}

fn address(host: &str) -> BackendAddress {
    BackendAddress::parse(host, api::TenantEngine::Postgres, "server").expect("an address")
}

/// Performs the handshake and sends a byte each way; returns the facts of the server, and the
/// channel bindings of both sides.
fn shake(
    side: &ClientSide,
    tls: &ServerTls,
    host: &str,
) -> Result<(TlsFacts, Option<Vec<u8>>), String> {
    let shown = side.load();
    let config = Arc::clone(shown.config.as_ref().expect("TLS"));
    let mut server = ServerConnection::new(config).map_err(|error| error.to_string())?;
    let client = ServerSide::default().connection(tls, &address(host));
    let mut client = client.map_err(|error| error.to_string())?;
    client.writer().write_all(b"?").expect("buffered");
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("in memory");
        }
        server.read_tls(&mut wire.as_slice()).expect("in memory");
        server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("in memory");
        }
        client.read_tls(&mut wire.as_slice()).expect("in memory");
        client.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    let mut byte = [0];
    server.reader().read_exact(&mut byte).map_err(|error| error.to_string())?;
    Ok((shown.facts(&server), end_point(&client)))
}

#[test]
fn modes_towards_clients() {
    let (_scratch, own) = made();
    for (mode, has_certificate, expected) in [
        (TlsMode::Disable, true, Ok(TlsPolicy::Absent)),
        (TlsMode::Prefer, false, Ok(TlsPolicy::Absent)),
        (TlsMode::Allow, true, Ok(TlsPolicy::Offered)),
        (TlsMode::Prefer, true, Ok(TlsPolicy::Offered)),
        (TlsMode::Require, true, Ok(TlsPolicy::Required)),
        (TlsMode::Require, false, Err("a mode that requires TLS needs a certificate and a key")),
        (
            TlsMode::VerifyFull,
            true,
            Err("a mode that verifies client certificates needs `client_ca`"),
        ),
    ] {
        let settings = clients(mode, has_certificate.then_some(&own), None);
        let policy = ClientSide::new(settings).map(|side| side.load().policy);
        let policy = policy.map_err(|error| error.to_string());
        assert_eq!(policy, expected.map_err(str::to_owned), "{mode:?}");
    }
}

#[test]
fn modes_towards_servers() {
    let (_scratch, own) = made();
    let (_other_scratch, other) = made();
    let side = ClientSide::new(clients(TlsMode::Require, Some(&own), None)).expect("a side");
    for (mode, ca, host, expected) in [
        (TlsMode::Prefer, None, "localhost", true),
        (TlsMode::Require, None, "elsewhere", true),
        (TlsMode::Require, Some(&own), "elsewhere", true),
        (TlsMode::Require, Some(&other), "localhost", false),
        (TlsMode::VerifyCa, Some(&own), "elsewhere", true),
        (TlsMode::VerifyCa, Some(&other), "localhost", false),
        (TlsMode::VerifyFull, Some(&own), "localhost", true),
        (TlsMode::VerifyFull, Some(&own), "127.0.0.1", true),
        (TlsMode::VerifyFull, Some(&own), "elsewhere", false),
        (TlsMode::VerifyFull, Some(&other), "localhost", false),
    ] {
        let outcome = shake(&side, &servers(mode, ca, None), host);
        assert_eq!(outcome.is_ok(), expected, "{mode:?} {host}: {outcome:?}");
    }
}

#[test]
fn a_handshake_tells_what_a_login_has_to_know() {
    let (_scratch, own) = made();
    let side = ClientSide::new(clients(TlsMode::Require, Some(&own), None)).expect("a side");
    let (facts, bound) =
        shake(&side, &servers(TlsMode::Require, None, None), "localhost").expect("shaken");
    assert_eq!(facts.server_name.as_deref(), Some("localhost"));
    assert!(facts.is_postgresql);
    assert_eq!(facts.client_name, None);
    let der = certificates(&own.certificate).expect("a certificate");
    use sha2::Digest as _;
    assert_eq!(bound, Some(sha2::Sha256::digest(&der[0]).to_vec()));
    assert_eq!(facts.end_point, bound);
    // An address is not a name.
    let (facts, _) =
        shake(&side, &servers(TlsMode::Require, None, None), "127.0.0.1").expect("shaken");
    assert_eq!(facts.server_name, None);
}

#[test]
fn certificates_of_clients() {
    let (_scratch, own) = made();
    let (_other_scratch, other) = made();
    let must = ClientSide::new(clients(TlsMode::VerifyFull, Some(&own), Some(&own)));
    let may = ClientSide::new(clients(TlsMode::Prefer, Some(&own), Some(&own)));
    let (must, may) = (must.expect("a side"), may.expect("a side"));
    for (side, shown, expected) in [
        (&must, Some(&own), Some(Some("localhost"))),
        (&must, Some(&other), None),
        (&must, None, None),
        (&may, Some(&own), Some(Some("localhost"))),
        (&may, Some(&other), None),
        (&may, None, Some(None)),
    ] {
        let outcome = shake(side, &servers(TlsMode::Require, None, shown), "localhost");
        let name = outcome.ok().map(|(facts, _)| facts.client_name);
        assert_eq!(name, expected.map(|it| it.map(str::to_owned)));
    }
}

#[test]
fn changed_files_are_read_again_and_broken_ones_are_not_believed() {
    let (scratch, own) = made();
    let settings = clients(TlsMode::Require, Some(&own), None);
    let side = ClientSide::new(settings).expect("a side");
    let before = side.load().end_point.clone();
    assert!(!side.refresh().expect("unchanged"));

    fs::write(&own.certificate, "nonsense").expect("written");
    assert!(side.refresh().is_err());
    assert_eq!(side.load().end_point, before);

    let renewed = Certificate::new(&scratch);
    assert_eq!(renewed.certificate, own.certificate);
    assert!(side.refresh().expect("readable"));
    assert_ne!(side.load().end_point, before);
    shake(&side, &servers(TlsMode::VerifyFull, Some(&renewed), None), "localhost").expect("shaken");
}

#[test]
fn authorities_of_servers_are_read_again() {
    let (_scratch, own) = made();
    let (_other_scratch, other) = made();
    let side = ServerSide::default();
    let tls = servers(TlsMode::VerifyFull, Some(&own), None);
    let first = side.config(&tls).expect("a configuration");
    assert!(Arc::ptr_eq(&first, &side.config(&tls).expect("the same")));
    assert!(side.refresh().is_empty());
    assert!(Arc::ptr_eq(&first, &side.config(&tls).expect("the same")));

    fs::write(&own.certificate, "nonsense").expect("written");
    assert_eq!(side.refresh().len(), 1);
    assert!(Arc::ptr_eq(&first, &side.config(&tls).expect("the same")));

    fs::copy(&other.certificate, &own.certificate).expect("copied");
    assert!(side.refresh().is_empty());
    assert!(!Arc::ptr_eq(&first, &side.config(&tls).expect("another")));
}

#[test]
fn what_is_missing_is_named() {
    let scratch = Scratch::new();
    let missing = Some(scratch.path().join("missing.pem"));
    let settings = ClientTls {
        mode: TlsMode::Require,
        cert: missing.clone(),
        key: missing.clone(),
        client_ca: None,
    };
    let error = ClientSide::new(settings).expect_err("there is none").to_string();
    assert!(error.contains("missing.pem"), "{error}");
    let tls = ServerTls { mode: TlsMode::VerifyCa, ca: missing, ..ServerTls::default() };
    let error = ServerSide::default().config(&tls).expect_err("there is none").to_string();
    assert!(error.contains("missing.pem"), "{error}");
    let half = ServerTls { cert: Some(PathBuf::from("x")), ..ServerTls::default() };
    assert!(matches!(ServerSide::default().config(&half), Err(TlsError::NoCertificate)));
}

#[test]
fn unix_sockets_are_not_encrypted() {
    for (mode, host, expected) in [
        (TlsMode::VerifyFull, "/run/postgresql", TlsRequest::Never),
        (TlsMode::Disable, "db", TlsRequest::Never),
        (TlsMode::Allow, "db", TlsRequest::IfOffered),
        (TlsMode::Prefer, "db", TlsRequest::IfOffered),
        (TlsMode::Require, "db", TlsRequest::Must),
        (TlsMode::VerifyFull, "db", TlsRequest::Must),
    ] {
        assert_eq!(request(&servers(mode, None, None), &address(host)), expected, "{mode:?}");
    }
}

#[test]
fn what_is_no_certificate_says_nothing() {
    for bytes in [&b""[..], b"\x30", b"\x30\x82\xff\xff", &[0x30; 64]] {
        assert_eq!(certificate::end_point(bytes), None);
        assert_eq!(certificate::common_name(bytes), None);
    }
}

#[test]
fn a_server_is_known_by_a_verified_certificate_or_because_the_operator_says_so() {
    let ca = Some(PathBuf::from("ca.crt"));
    let check = |mode, ca: &Option<PathBuf>, expected| {
        let tls = ServerTls { mode, ca: ca.clone(), ..ServerTls::default() };
        assert_eq!(assurance(&tls, false), expected, "{mode:?} {ca:?}");
        assert_eq!(assurance(&tls, true), ServerAssurance::Private, "{mode:?} {ca:?}");
        let trusted = ServerTls { trust_server_key: true, ..tls };
        let expected = match expected {
            ServerAssurance::Unknown => ServerAssurance::Trusted,
            other => other,
        };
        assert_eq!(assurance(&trusted, false), expected, "{mode:?} {ca:?}");
    };
    check(TlsMode::VerifyFull, &None, ServerAssurance::Verified);
    check(TlsMode::VerifyFull, &ca, ServerAssurance::Verified);
    check(TlsMode::VerifyCa, &ca, ServerAssurance::Verified);
    // The system's authorities certify any name.
    check(TlsMode::VerifyCa, &None, ServerAssurance::Unknown);
    check(TlsMode::Require, &ca, ServerAssurance::Verified);
    check(TlsMode::Require, &None, ServerAssurance::Unknown);
    for mode in [TlsMode::Prefer, TlsMode::Allow, TlsMode::Disable] {
        check(mode, &ca, ServerAssurance::Unknown);
    }
}

/// Returns a version 1 certificate of X.509: `openssl x509 -req` without extensions.
fn first_version() -> (Scratch, Certificate) {
    let (scratch, made) = made();
    let certificate = Certificate { certificate: scratch.path().join("v1.pem"), key: made.key };
    let key = certificate.key.to_str().expect("a path");
    let request = scratch.path().join("request.pem");
    let request = request.to_str().expect("a path");
    let shown = certificate.certificate.to_str().expect("a path");
    for words in [
        vec!["req", "-new", "-key", key, "-subj", "/CN=localhost", "-out", request],
        vec!["x509", "-req", "-x509v1", "-in", request, "-signkey", key, "-out", shown],
        vec!["x509", "-req", "-in", request, "-signkey", key, "-out", shown],
    ] {
        // Only newer versions know the option, and only older ones work without it.
        let done = std::process::Command::new("openssl").args(&words).output().expect("openssl");
        if words.contains(&"x509") && done.status.success() {
            break;
        }
    }
    (scratch, certificate)
}

#[test]
fn certificates_of_the_first_version_are_shown_and_where_nobody_is_verified_taken() {
    let (_scratch, own) = first_version();
    let side = ClientSide::new(clients(TlsMode::Require, Some(&own), None)).expect("it is shown");
    let tls = servers(TlsMode::Require, None, None);
    let (_, bound) = shake(&side, &tls, "localhost").expect("a key is all that is asked for");
    assert!(bound.is_some());
    let tls = servers(TlsMode::VerifyCa, Some(&own), None);
    shake(&side, &tls, "localhost").expect_err("verified");
}

#[test]
fn a_certificate_of_the_first_version_with_another_key_is_refused() {
    let (_scratch, own) = first_version();
    let (_other, other) = made();
    let mixed = Certificate { certificate: own.certificate, key: other.key };
    ClientSide::new(clients(TlsMode::Require, Some(&mixed), None)).expect_err("not its key");
}
