//! Tests of the proofs that clients must give, and of the credentials that are used at the server.

use api::{AuthQuerySpec, TenantSpec, TenantUserSpec, UserAuth};
use pooler_core::pg::login::{ClientTransport, TlsFacts};
use wire::pg::md5::Md5Secret;
use wire::pg::scram::{ScramKeys, ScramSecret};
use wire::pg::startup::ProtocolVersion;

use super::*;
use crate::config::BouncerConfig;
use crate::tenants::{SharedSettings, TenantDefinition, TenantRegistry};

fn keyring() -> PgKeyring {
    PgKeyring::new([7; 32], PgPasswordMethod::Best)
}

/// Returns a tenant with a user of each kind; others are looked up.
fn tenant(server_password: Option<&str>) -> Arc<TenantSnapshot> {
    let user = |name: &str, auth: UserAuth, password: Option<&str>| TenantUserSpec {
        name: name.to_owned(),
        auth,
        password: password.map(str::to_owned),
        ..TenantUserSpec::default()
    };
    let scram = ScramSecret::derive("secret", b"0123456789abcdef", 16).to_string();
    let md5 = "md54a0a68b43b6cd5cf266fa02f196e2371";
    let spec = TenantSpec {
        name: "shop".to_owned(),
        server: "db".to_owned(),
        server_user: server_password.map(|_| "role".to_owned()),
        server_password: server_password.map(str::to_owned),
        users: vec![
            user("plain", UserAuth::Password, Some("secret")),
            user("scram", UserAuth::Password, Some(&scram)),
            user("md5", UserAuth::Password, Some(md5)),
            user("trusted", UserAuth::Trust, None),
            user("root", UserAuth::Peer, None),
            user("cert", UserAuth::Cert, None),
        ],
        auth_query: Some(AuthQuerySpec { user: "looker".to_owned(), ..AuthQuerySpec::default() }),
        ..TenantSpec::default()
    };
    let definitions = [TenantDefinition::of_api(spec).expect("a definition")];
    let routing = TenantRegistry::default()
        .build(&SharedSettings::new(&BouncerConfig::default()), &definitions);
    Arc::clone(routing.expect("a routing").named("shop").expect("the tenant"))
}

fn requested(user: &str, reached: ClientTransport, certificate: Option<&str>) -> PgStartupRequest {
    let client_name = certificate.map(str::to_owned);
    PgStartupRequest {
        version: ProtocolVersion::V3_0,
        user: user.to_owned(),
        database: None,
        options_tenant_id: None,
        tenant_id: None,
        replication: pooler_core::pg::login::ReplicationMode::None,
        parameters: Vec::new(),
        tls: Some(TlsFacts { client_name, ..TlsFacts::default() }),
        reached,
    }
}

/// Returns the required proof, in a word.
fn demanded(user: &str, reached: ClientTransport, certificate: Option<&str>) -> String {
    let user = tenant(None).user(user);
    match keyring().demand(&user, &requested(&user.name, reached, certificate)) {
        PgAuthRequirement::Query => "query".to_owned(),
        PgAuthRequirement::Known(Err(refusal)) => refusal.message,
        PgAuthRequirement::Known(Ok(auth)) => match auth.proof {
            PgProof::Nothing => "nothing".to_owned(),
            PgProof::Password(verifier, _) => match verifier.secret() {
                Some(secret) => format!("{secret:?}").chars().take_while(|it| *it != '(').collect(),
                None => "mock".to_owned(),
            },
        },
    }
}

#[test]
fn each_user_has_to_show_what_it_should() {
    let unix = |uid| ClientTransport::Unix { uid };
    let peer = "peer authentication failed for user \"root\"";
    let certificate = "certificate authentication failed for user \"cert\"";
    for (user, reached, shown, expected) in [
        ("plain", ClientTransport::Tcp, None, "Plain"),
        ("scram", ClientTransport::Tcp, None, "Scram"),
        ("md5", ClientTransport::Tcp, None, "Md5"),
        ("trusted", ClientTransport::Tcp, None, "nothing"),
        ("root", unix(Some(0)), None, "nothing"),
        ("root", unix(Some(1)), None, peer),
        ("root", unix(None), None, peer),
        ("root", ClientTransport::Tcp, None, peer),
        ("cert", ClientTransport::Tcp, Some("cert"), "nothing"),
        ("cert", ClientTransport::Tcp, Some("Cert"), certificate),
        ("cert", ClientTransport::Tcp, None, certificate),
        ("other", ClientTransport::Tcp, None, "query"),
        ("looker", ClientTransport::Tcp, None, "mock"),
    ] {
        assert_eq!(demanded(user, reached, shown), expected, "{user} {reached:?}");
    }
}

#[test]
fn what_a_query_finds_is_held_against_the_client() {
    let (keyring, user) = (keyring(), tenant(None).user("other"));
    for (found, expected) in
        [(Some("secret"), true), (None, false), (Some(""), false), (Some("SCRAM-SHA-256$x"), false)]
    {
        let PgProof::Password(verifier, _) = keyring.found(&user, found).proof else {
            panic!("let in without a password")
        };
        assert_eq!(verifier.accepts_password(b"secret"), expected, "{found:?}");
        assert!(!verifier.accepts_password(b""), "{found:?}");
    }
}

#[test]
fn a_secret_is_prepared_once() {
    let keyring = keyring();
    let of = |user, text| keyring.verifier(user, text).expect("a secret");
    assert!(Arc::ptr_eq(&of("a", "secret"), &of("a", "secret")));
    assert!(!Arc::ptr_eq(&of("a", "secret"), &of("b", "secret")));
    // The hash depends on the boundaries of the parts.
    assert!(!Arc::ptr_eq(&of("a", "bc"), &of("ab", "c")));
    assert_eq!(keyring.verifier("a", "").err(), Some(PgSecretError::Empty));

    let (tenant, plain) = (tenant(Some("x")), tenant(Some("x")).user("plain"));
    let of = || keyring.own_credentials(&tenant, &plain).expect("a password");
    assert!(Arc::ptr_eq(&of(), &of()));
}

#[test]
fn the_server_is_shown_what_it_can_check() {
    let keyring = keyring();
    let keys = ScramKeys::derive("secret", b"0123456789abcdef", 16);
    let shown = |tenant: &TenantSnapshot, user: &str, shown: PgDisclosedSecret| {
        let user = tenant.user(user);
        let requested = requested(&user.name, ClientTransport::Tcp, None);
        let verifier = match keyring.demand(&user, &requested) {
            PgAuthRequirement::Known(Ok(RouteAuth {
                proof: PgProof::Password(verifier, _),
                ..
            })) => Some(verifier),
            _ => None,
        };
        let client = PgAuthenticatedClient { requested, shown, verifier };
        match &*keyring.credentials(tenant, &user, &client) {
            PgCredentials::None => "none".to_owned(),
            PgCredentials::Password(password, _) => format!("password {}", password.reveal()),
            PgCredentials::Scram(own) => format!("keys {}", *own == keys),
            PgCredentials::Md5(hash) => {
                format!("md5 {}", *hash == Md5Secret::derive("alice", "secret"))
            }
        }
    };
    let (pass, forced) = (tenant(None), tenant(Some("x")));
    let password = PgDisclosedSecret::Password(PlainPassword::new("typed".to_owned()));
    for (tenant, user, given, expected) in [
        (&pass, "plain", PgDisclosedSecret::Nothing, "password secret"),
        // Its keys have a salt of the pooler's, which the server does not know.
        (&pass, "plain", PgDisclosedSecret::Keys(keys.clone()), "password secret"),
        (&pass, "scram", PgDisclosedSecret::Keys(keys.clone()), "keys true"),
        (&pass, "md5", PgDisclosedSecret::Nothing, "md5 true"),
        (&pass, "scram", password.clone(), "password typed"),
        (&pass, "trusted", PgDisclosedSecret::Nothing, "none"),
        (&forced, "plain", PgDisclosedSecret::Nothing, "password x"),
        (&forced, "scram", PgDisclosedSecret::Keys(keys.clone()), "password x"),
        (&forced, "trusted", password, "password x"),
    ] {
        assert_eq!(shown(tenant, user, given), expected, "{user}");
    }
    assert!(keyring.own_credentials(&pass, &pass.user("scram")).is_none());
}
