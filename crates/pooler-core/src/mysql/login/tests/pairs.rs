//! A client's login against the pooler's own dialer, with every way to split the bytes between
//! them.

use super::*;
use crate::mysql::dial::{
    MysqlCredentials, MysqlDial, MysqlDialError, MysqlDialNext, MysqlDialParams, TRACK,
};
use crate::pg::dial::{ServerAssurance, TlsRequest};

/// Both ends.
struct Pair {
    policy: MysqlLoginPolicy,
    reached: ClientTransport,
    tls: TlsRequest,
    assurance: ServerAssurance,
    credentials: MysqlCredentials,
}

/// Outcome of a login.
#[derive(Debug)]
struct Met {
    shown: Option<MysqlDisclosedSecret>,
    requested: Option<MysqlLoginRequest>,
    dial: Option<MysqlDialError>,
    refusal: Option<PgLoginRefusal>,
    is_encrypted: bool,
}

impl Pair {
    fn over_tcp(credentials: MysqlCredentials) -> Pair {
        Pair {
            policy: policy(AuthPlugin::CachingSha2),
            reached: ClientTransport::Tcp,
            tls: TlsRequest::Never,
            assurance: ServerAssurance::Unknown,
            credentials,
        }
    }

    fn dial(&self) -> MysqlDial {
        MysqlDial::new(MysqlDialParams {
            user: "alice".to_owned(),
            database: Some("shop".to_owned()),
            credentials: Arc::new(self.credentials.clone()),
            tls: self.tls,
            assurance: self.assurance,
            more: CapabilityFlags::NONE,
            collation: 45,
            attributes: vec![("tenant_id".to_owned(), "acme".to_owned())],
            statements: vec!["SET sql_mode = ''".to_owned()],
        })
    }

    /// Lets both communicate, `chunk` bytes at a time, until both are done.
    fn meet(&self, verifier: Option<&Arc<MysqlVerifier>>, chunk: usize) -> Met {
        let mut login = MysqlLogin::new(self.policy, self.reached, nonce());
        let mut dial = self.dial();
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        login.greet(7, "8.0.30-cove", &mut to_client);
        assert!(matches!(dial.start(&mut to_server), MysqlDialNext::More));
        let mut met =
            Met { shown: None, requested: None, dial: None, refusal: None, is_encrypted: false };
        let (mut at_client, mut at_server) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            at_client.extend(to_client.drain(..chunk.min(to_client.len())));
            let step = dial.input(&at_client, &mut to_server);
            at_client.drain(..step.consumed);
            match step.next {
                MysqlDialNext::More => {}
                MysqlDialNext::StartTls => {
                    assert!(at_client.is_empty() && to_client.is_empty());
                    at_server.append(&mut to_server);
                    shake_hands(&mut login, &mut at_server, &mut to_client);
                    assert!(matches!(dial.tls_started(&mut to_server), MysqlDialNext::More));
                }
                MysqlDialNext::Ready(greeting) => {
                    assert_eq!((greeting.thread_id, &*greeting.version), (7, "8.0.30-cove"));
                    assert!(greeting.tracks && greeting.status == StatusFlags::AUTOCOMMIT);
                    met.is_encrypted = greeting.is_encrypted;
                    return met;
                }
                MysqlDialNext::Fail(error) => {
                    met.dial = Some(error);
                    return met;
                }
                MysqlDialNext::Cancelled => panic!("nothing was cancelled"),
            }
            at_server.extend(to_server.drain(..chunk.min(to_server.len())));
            let mut next = match met.shown {
                Some(_) => {
                    self.serve(&mut at_server, &mut to_client);
                    continue;
                }
                None => {
                    let step = login.input(&at_server, &mut to_client);
                    at_server.drain(..step.consumed);
                    step.next
                }
            };
            if matches!(next, MysqlLoginNext::Route) {
                let proof = verifier.map_or(MysqlProof::Nothing, |verifier| MysqlProof::Password {
                    verifier: Arc::clone(verifier),
                    method: MysqlPasswordMethod::Best,
                    key: own_key(),
                });
                next = login.routed(Ok(proof), &mut to_client).next;
            }
            next = settled(&mut login, next, &mut to_client);
            match next {
                MysqlLoginNext::Done(done) => {
                    welcome(&done, StatusFlags::AUTOCOMMIT, &mut to_client);
                    met.shown = Some(done.shown);
                    met.requested = Some(done.requested);
                }
                MysqlLoginNext::Fail(refusal) => met.refusal = Some(refusal),
                MysqlLoginNext::More => {}
                MysqlLoginNext::StartTls | MysqlLoginNext::Route | MysqlLoginNext::Check(_) => {
                    panic!("out of turn")
                }
            }
        }
        panic!("they talk for ever: {met:?}");
    }

    /// Answers OK to the two statements, and answers a query.
    fn serve(&self, at_server: &mut Vec<u8>, to_client: &mut Vec<u8>) {
        while let Some(header) = PacketHeader::parse(at_server)
            && header.total() <= at_server.len()
        {
            let text = std::str::from_utf8(&at_server[5..header.total()]).expect("a text");
            let is_question = text == "SELECT @@sql_mode";
            assert!(is_question || [TRACK, "SET sql_mode = ''"].contains(&text), "{text}");
            assert_eq!((header.seq, at_server[4]), (0, 3));
            at_server.drain(..header.total());
            let mut seq = 1;
            if is_question {
                let columns = [packet::ResultColumn::text(b"@@sql_mode")];
                let rows = [vec![Some(&b""[..])]];
                let status = StatusFlags::AUTOCOMMIT;
                packet::put_result(to_client, &mut seq, OFFERED, &columns, &rows, status);
                continue;
            }
            let ok = OkPacket {
                affected_rows: 0,
                last_insert_id: 0,
                status: StatusFlags::AUTOCOMMIT,
                warnings: 0,
                info: b"",
                changes: b"",
            };
            packet::put_ok(to_client, &mut seq, &ok, OFFERED);
        }
    }
}

/// Presents all input to a login, which ends with a request for TLS.
fn shake_hands(login: &mut MysqlLogin, at_server: &mut Vec<u8>, to_client: &mut Vec<u8>) {
    let step = login.input(at_server, to_client);
    assert!(matches!(step.next, MysqlLoginNext::StartTls));
    assert_eq!(step.consumed, at_server.len());
    at_server.clear();
    let step = login.tls_started(TlsFacts::default(), to_client);
    assert!(matches!(step.next, MysqlLoginNext::More));
}

fn password() -> MysqlCredentials {
    MysqlCredentials::Password(PlainPassword::new("secret".to_owned()))
}

/// Checks every way to split the bytes; with a new verifier each time unless one is given.
fn check(pair: &Pair, verifier: fn() -> Option<MysqlVerifier>, wanted: &str) {
    for chunk in [1, 2, 3, 5, 7, 33, 100, 1 << 16] {
        let verifier = verifier().map(Arc::new);
        let met = pair.meet(verifier.as_ref(), chunk);
        let found = match (&met.shown, &met.dial) {
            (Some(MysqlDisclosedSecret::Nothing), None) => "in with nothing".to_owned(),
            (Some(MysqlDisclosedSecret::Native(key)), None) => {
                assert_eq!(*key, NativeKey::of("secret"));
                "in by native".to_owned()
            }
            (Some(MysqlDisclosedSecret::Sha2(key)), None) => {
                assert_eq!(*key, Sha2Key::of("secret"));
                "in by sha2".to_owned()
            }
            (Some(MysqlDisclosedSecret::Password(password)), None) => {
                assert_eq!(password.reveal(), "secret");
                "in by password".to_owned()
            }
            (_, Some(error)) => error.to_string(),
            (None, None) => "?".to_owned(),
        };
        assert_eq!(found, wanted, "by {chunk}: {met:?}");
        if let Some(requested) = &met.requested {
            assert_eq!((&*requested.user, requested.tenant()), ("alice", Some("acme")));
            assert_eq!(requested.database.as_deref(), Some("shop"));
            assert_eq!(met.is_encrypted, pair.tls != TlsRequest::Never);
            assert_eq!(requested.tls.is_some(), met.is_encrypted);
        }
    }
}

#[test]
fn both_sides_agree_on_a_method() {
    let native_key = || MysqlCredentials::Native(NativeKey::of("secret"));
    let sha2_key = || MysqlCredentials::Sha2(Sha2Key::of("secret"));
    let [some_plain, some_native]: [fn() -> Option<MysqlVerifier>; 2] =
        [|| Some(plain()), || Some(native())];
    let denied = "Access denied for user 'alice' (using password: YES) (1045)";
    let denied_without = "Access denied for user 'alice' (using password: NO) (1045)";
    for (greet, credentials, verifier, wanted) in [
        (AuthPlugin::Native, password(), some_plain, "in by native"),
        (AuthPlugin::Native, password(), some_native, "in by native"),
        (AuthPlugin::Native, native_key(), some_native, "in by native"),
        (AuthPlugin::Native, sha2_key(), some_plain, "in by sha2"),
        (AuthPlugin::CachingSha2, password(), some_plain, "in by sha2"),
        (AuthPlugin::CachingSha2, password(), some_native, "in by native"),
        (AuthPlugin::CachingSha2, native_key(), some_plain, "in by native"),
        (AuthPlugin::CachingSha2, sha2_key(), some_plain, "in by sha2"),
        (AuthPlugin::Native, MysqlCredentials::None, || None, "in with nothing"),
        (AuthPlugin::CachingSha2, password(), || None, "in with nothing"),
        (AuthPlugin::Native, MysqlCredentials::None, some_plain, denied_without),
        (
            AuthPlugin::Native,
            password(),
            || Some(MysqlVerifier::mock("alice", &[7; 32], SecretKind::Plain)),
            denied,
        ),
        (
            AuthPlugin::CachingSha2,
            sha2_key(),
            some_native,
            "the server requires mysql_native_password, but Cove has only a key for \
             caching_sha2_password, which suffices at servers that have seen the password",
        ),
    ] {
        for tls in [TlsRequest::Never, TlsRequest::IfOffered, TlsRequest::Must] {
            let credentials = credentials.clone();
            let pair = Pair { tls, policy: policy(greet), ..Pair::over_tcp(credentials) };
            check(&pair, verifier, wanted);
        }
    }
}

#[test]
fn a_password_that_has_to_be_shown_is_shown_to_a_server_that_is_known_only() {
    let some_sha2: fn() -> Option<MysqlVerifier> = || Some(sha2());
    let refused = "the server asks for the password itself, and could be anybody: \
                   `tls = \"verify-full\"`, or else `trust_server_key = true`, is missing in its \
                   table of `bouncer.servers`";
    for tls in [TlsRequest::Never, TlsRequest::IfOffered, TlsRequest::Must] {
        let unknown = Pair { tls, ..Pair::over_tcp(password()) };
        check(&unknown, some_sha2, refused);
        let trusted =
            Pair { tls, assurance: ServerAssurance::Trusted, ..Pair::over_tcp(password()) };
        check(&trusted, some_sha2, "in by password");
    }
    let tls = TlsRequest::Must;
    let verified = Pair { tls, assurance: ServerAssurance::Verified, ..Pair::over_tcp(password()) };
    check(&verified, some_sha2, "in by password");
    let unix = Pair {
        reached: ClientTransport::Unix { uid: None },
        assurance: ServerAssurance::Private,
        ..Pair::over_tcp(password())
    };
    check(&unix, some_sha2, "in by password");
    let wrong = MysqlCredentials::Password(PlainPassword::new("wrong".to_owned()));
    let denied = "Access denied for user 'alice' (using password: YES) (1045)";
    check(
        &Pair { assurance: ServerAssurance::Trusted, ..Pair::over_tcp(wrong) },
        some_sha2,
        denied,
    );
}

#[test]
fn a_password_that_was_shown_once_needs_not_be_shown_again() {
    let verifier = Arc::new(sha2());
    let by_key = Pair { assurance: ServerAssurance::Trusted, ..Pair::over_tcp(password()) };
    let first = by_key.meet(Some(&verifier), 1 << 16);
    assert!(matches!(first.shown, Some(MysqlDisclosedSecret::Password(_))), "{first:?}");
    // Not even by a client that trusts no key, or has only the key that a proof disclosed.
    for credentials in [password(), MysqlCredentials::Sha2(Sha2Key::of("secret"))] {
        let met = Pair::over_tcp(credentials).meet(Some(&verifier), 1 << 16);
        assert!(matches!(met.shown, Some(MysqlDisclosedSecret::Sha2(_))), "{met:?}");
    }
}

#[test]
fn no_tls_where_there_is_none_is_told_as_such() {
    let tls = TlsPolicy::Absent;
    let absent = MysqlLoginPolicy { tls, ..policy(AuthPlugin::Native) };
    let must = Pair { policy: absent, tls: TlsRequest::Must, ..Pair::over_tcp(password()) };
    check(&must, || Some(plain()), "the server does not offer TLS");
    let required = MysqlLoginPolicy { tls: TlsPolicy::Required, ..absent };
    let never = Pair { policy: required, ..Pair::over_tcp(password()) };
    check(&never, || Some(plain()), "this server takes connections with TLS only (3159)");
}
