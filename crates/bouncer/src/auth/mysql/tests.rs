//! Tests of the proofs that clients must give, and of the credentials that are used at the server.

use api::{AuthQuerySpec, TenantEngine, TenantSpec, TenantUserSpec, UserAuth};
use pooler_core::pg::login::ClientTransport;
use pooler_core::pg::login::TlsFacts;
use wire::mysql::auth::{AuthNonce, AuthPlugin, NativeKey, Sha2Crypt, Sha2Key};
use wire::mysql::capabilities::CapabilityFlags;
use wire::pg::secret::PlainPassword;

use super::*;
use crate::config::BouncerConfig;
use crate::tenants::{SharedSettings, TenantDefinition, TenantRegistry};

fn keyring() -> MysqlKeyring {
    MysqlKeyring::new([7; 32], MysqlPasswordMethod::Best)
}

fn stored_native() -> &'static str {
    "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"
}

fn stored_sha2() -> String {
    Sha2Crypt::derive("secret", *b"abcdefghijklmnopqrst", 5000).to_string()
}

/// Returns a tenant with these users and their secrets, and one user of each other kind.
fn tenant(secrets: &[(&str, &str)], looks_up: bool) -> Arc<TenantSnapshot> {
    let user = |name: &str, auth: UserAuth, password: Option<&str>| TenantUserSpec {
        name: name.to_owned(),
        auth,
        password: password.map(str::to_owned),
        ..TenantUserSpec::default()
    };
    let mut users: Vec<TenantUserSpec> =
        secrets.iter().map(|(name, secret)| user(name, UserAuth::Password, Some(secret))).collect();
    users.extend([
        user("trusted", UserAuth::Trust, None),
        user("root", UserAuth::Peer, None),
        user("cert", UserAuth::Cert, None),
    ]);
    let query = AuthQuerySpec { user: "looker".to_owned(), ..AuthQuerySpec::default() };
    let spec = TenantSpec {
        name: "shop".to_owned(),
        engine: TenantEngine::Mysql,
        server: "db".to_owned(),
        users,
        auth_query: looks_up.then_some(query),
        ..TenantSpec::default()
    };
    let definitions = [TenantDefinition::of_api(spec).expect("a definition")];
    let routing = TenantRegistry::default()
        .build(&SharedSettings::new(&BouncerConfig::default()), &definitions);
    Arc::clone(routing.expect("a routing").named("shop").expect("the tenant"))
}

fn requested(user: &str, reached: ClientTransport, certificate: Option<&str>) -> MysqlLoginRequest {
    let client_name = certificate.map(str::to_owned);
    MysqlLoginRequest {
        user: user.to_owned(),
        database: None,
        reached,
        tls: Some(TlsFacts { client_name, ..TlsFacts::default() }),
        capabilities: CapabilityFlags::NONE,
        collation: 45,
        attributes: Vec::new(),
    }
}

fn kind(verifier: &MysqlVerifier) -> String {
    match verifier.secret() {
        Some(secret) => format!("{:?}", secret.kind()),
        None => "mock".to_owned(),
    }
}

/// Returns the required proof, in a word.
fn demanded(
    user: &str,
    looks_up: bool,
    reached: ClientTransport,
    certificate: Option<&str>,
) -> String {
    let sha2 = stored_sha2();
    let secrets = [("plain", "secret"), ("native", stored_native()), ("sha2", &sha2)];
    let tenant = tenant(&secrets, looks_up);
    let user = tenant.user(user);
    match keyring().demand(&tenant, &user, &requested(&user.name, reached, certificate)) {
        MysqlAuthRequirement::Query => "query".to_owned(),
        MysqlAuthRequirement::Known(Err(refusal)) => refusal.message,
        MysqlAuthRequirement::Known(Ok(MysqlProof::Nothing)) => "nothing".to_owned(),
        MysqlAuthRequirement::Known(Ok(MysqlProof::Password { verifier, .. })) => kind(&verifier),
    }
}

#[test]
fn each_user_has_to_show_what_it_should() {
    let (tcp, unix) = (ClientTransport::Tcp, ClientTransport::Unix { uid: Some(0) });
    let other = ClientTransport::Unix { uid: Some(12345) };
    for (user, looks_up, reached, certificate, wanted) in [
        ("plain", true, tcp, None, "Plain"),
        ("native", true, tcp, None, "Native"),
        ("sha2", true, tcp, None, "Sha2"),
        ("trusted", true, tcp, None, "nothing"),
        ("root", true, unix, None, "nothing"),
        ("root", true, other, None, "peer authentication failed for user 'root'"),
        ("root", true, tcp, None, "peer authentication failed for user 'root'"),
        ("cert", true, tcp, Some("cert"), "nothing"),
        ("cert", true, tcp, Some("other"), "certificate authentication failed for user 'cert'"),
        ("cert", true, tcp, None, "certificate authentication failed for user 'cert'"),
        ("somebody", true, tcp, None, "query"),
        ("somebody", false, tcp, None, "mock"),
    ] {
        assert_eq!(demanded(user, looks_up, reached, certificate), wanted, "{user}");
    }
}

/// Returns the methods that a hundred users who do not exist are asked for, each once.
fn methods_of_nobody(keyring: &MysqlKeyring, tenant: &TenantSnapshot) -> Vec<AuthPlugin> {
    let mut methods: Vec<AuthPlugin> = Vec::new();
    for number in 0..100 {
        let user = tenant.user(&format!("nobody{number}"));
        let MysqlProof::Password { verifier, .. } = keyring.found(tenant, &user, None) else {
            panic!("nobody may not be let in")
        };
        assert!(verifier.secret().is_none());
        let MysqlProof::Password { verifier: again, .. } = keyring.found(tenant, &user, None)
        else {
            panic!("nobody may not be let in")
        };
        let method = verifier.plugin(AuthPlugin::Native);
        assert_eq!(again.plugin(AuthPlugin::Native), method, "asked the same every time");
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    methods.sort_by_key(|method| method.name());
    methods
}

#[test]
fn users_who_do_not_exist_are_asked_as_those_are_who_do() {
    let sha2 = stored_sha2();
    for (secrets, wanted) in [
        (&[][..], &[AuthPlugin::Native][..]),
        (&[("a", "secret")], &[AuthPlugin::Native]),
        (&[("a", &*sha2)], &[AuthPlugin::CachingSha2]),
        (&[("a", &*sha2), ("b", stored_native())], &[AuthPlugin::CachingSha2, AuthPlugin::Native]),
    ] {
        let (keyring, tenant) = (keyring(), tenant(secrets, false));
        keyring.prepare(&tenant);
        assert_eq!(methods_of_nobody(&keyring, &tenant), wanted, "{secrets:?}");
    }
    // Secrets that were looked up determine the methods for users who do not exist.
    let (keyring, tenant) = (keyring(), tenant(&[], true));
    let _proof = keyring.found(&tenant, &tenant.user("a"), Some(&sha2));
    assert_eq!(methods_of_nobody(&keyring, &tenant), [AuthPlugin::CachingSha2]);
}

#[test]
fn a_secret_is_prepared_once_and_a_bad_one_is_as_good_as_none() {
    let (keyring, tenant) = (keyring(), tenant(&[], true));
    let first = keyring.verifier("alice", "secret").expect("a verifier");
    assert!(Arc::ptr_eq(&first, &keyring.verifier("alice", "secret").expect("the same")));
    assert!(!Arc::ptr_eq(&first, &keyring.verifier("bob", "secret").expect("another")));
    assert!(keyring.verifier("alice", "").is_err());
    for bad in ["", "$A$005$short"] {
        let MysqlProof::Password { verifier, .. } =
            keyring.found(&tenant, &tenant.user("a"), Some(bad))
        else {
            panic!("nobody may not be let in")
        };
        assert_eq!(kind(&verifier), "mock");
    }
}

/// Returns the credentials at the server for a client with this secret whose proof disclosed
/// `shown`.
fn shown(secret: Option<&str>, shown: MysqlDisclosedSecret) -> MysqlCredentials {
    let sha2 = stored_sha2();
    let secrets = [("plain", "secret"), ("native", stored_native()), ("sha2", &sha2)];
    let tenant = tenant(&secrets, true);
    let keyring = keyring();
    let verifier = secret.map(|text| keyring.verifier("somebody", text).expect("a verifier"));
    let requested = requested("somebody", ClientTransport::Tcp, None);
    let client = MysqlAuthenticatedClient { requested, shown, verifier, seq: 2 };
    (*keyring.credentials(&tenant.user("somebody"), &client)).clone()
}

#[test]
fn what_a_client_shows_is_shown_to_the_server() {
    let (native, sha2) = (NativeKey::of("secret"), Sha2Key::of("secret"));
    let password = || PlainPassword::new("secret".to_owned());
    let stored_sha2 = stored_sha2();
    for (secret, proof, wanted) in [
        (
            Some("secret"),
            MysqlDisclosedSecret::Native(native.clone()),
            MysqlCredentials::Password(password()),
        ),
        (
            Some("secret"),
            MysqlDisclosedSecret::Sha2(sha2.clone()),
            MysqlCredentials::Password(password()),
        ),
        (
            Some(stored_native()),
            MysqlDisclosedSecret::Native(native.clone()),
            MysqlCredentials::Native(native.clone()),
        ),
        (
            Some(&*stored_sha2),
            MysqlDisclosedSecret::Sha2(sha2.clone()),
            MysqlCredentials::Sha2(sha2),
        ),
        (
            Some(&*stored_sha2),
            MysqlDisclosedSecret::Password(password()),
            MysqlCredentials::Password(password()),
        ),
        (None, MysqlDisclosedSecret::Nothing, MysqlCredentials::None),
    ] {
        assert_eq!(shown(secret, proof), wanted, "{secret:?}");
    }
    // The disclosed key logs in to a server that has the same hash, for any nonce.
    let nonce = AuthNonce::new([9; 20]);
    let stored = wire::mysql::auth::NativeHash::parse(stored_native()).expect("a hash");
    assert_eq!(stored.accepts(&nonce, &native.answer(&nonce)), Some(native));
}

#[test]
fn what_is_known_here_is_shown_without_a_client() {
    let (keyring, tenant) = (keyring(), tenant(&[("plain", "secret")], true));
    let of = |user: &str| keyring.own_credentials(&tenant.user(user)).map(|it| (*it).clone());
    assert_eq!(
        of("plain"),
        Some(MysqlCredentials::Password(PlainPassword::new("secret".to_owned())))
    );
    assert_eq!(of("trusted"), Some(MysqlCredentials::None));
    assert_eq!(of("somebody"), None);
    for hash in [stored_native(), &stored_sha2()] {
        assert_eq!(known(hash), MysqlCredentials::None, "a hash proves nothing");
    }
}
