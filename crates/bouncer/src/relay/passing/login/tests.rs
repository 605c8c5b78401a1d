//! The login of a client as sent to another node, and as accepted there.

use api::{TenantLimitsSpec, TenantSpec, TenantUserSpec, UserAuth};
use pooler_core::mysql::login::MysqlDisclosedSecret as MyShown;
use pooler_core::pg::login::{PgDisclosedSecret as Shown, PgPasswordMethod};
use proptest::prelude::*;

use super::*;
use crate::config::BouncerConfig;
use crate::relay::passing::TenantLimit;
use crate::tenants::{SharedSettings, TenantDefinition, TenantRegistry};

fn keyrings() -> ProtocolKeyrings {
    ProtocolKeyrings::new([7; 32], PgPasswordMethod::Best)
}

/// Returns the route to a user whose secret the tenant contains, or not.
fn route(engine: TenantEngine, password: Option<&str>) -> TenantRoute {
    limited_route(engine, password, TenantLimitsSpec::default(), None)
}

fn limited_route(
    engine: TenantEngine,
    password: Option<&str>,
    limits: TenantLimitsSpec,
    clients_max: Option<u32>,
) -> TenantRoute {
    let user = TenantUserSpec {
        name: "app".to_owned(),
        password: password.map(str::to_owned),
        auth: if password.is_some() { UserAuth::Password } else { UserAuth::Trust },
        clients_max,
        ..TenantUserSpec::default()
    };
    let spec = TenantSpec {
        name: "shop".to_owned(),
        engine,
        server: "127.0.0.1:1".to_owned(),
        database: Some("goods".to_owned()),
        users: vec![user],
        limits,
        ..TenantSpec::default()
    };
    let resolve = |_: &str, text: &str| Ok(text.to_owned());
    let definition = TenantDefinition::of_file(&spec, "tenants", &resolve).unwrap();
    let config = BouncerConfig::default();
    let routing = TenantRegistry::default().build(&SharedSettings::new(&config), &[definition]);
    let routing = routing.unwrap();
    let tenant = Arc::clone(routing.named("shop").unwrap());
    TenantRoute { user: tenant.user("app"), tenant }
}

fn pg(shown: PgDisclosedSecret) -> LoggedInClient {
    let requested = PgStartupRequest {
        version: ProtocolVersion::V3_2,
        user: "app".to_owned(),
        database: Some("shop".to_owned()),
        options_tenant_id: None,
        tenant_id: None,
        replication: ReplicationMode::None,
        parameters: vec![("application_name".to_owned(), "till".to_owned())],
        tls: Some(TlsFacts {
            client_name: Some("app".to_owned()),
            is_postgresql: true,
            ..TlsFacts::default()
        }),
        reached: ClientTransport::Tcp,
    };
    LoggedInClient::Pg(Box::new(PgAuthenticatedClient { requested, shown, verifier: None }))
}

fn my(shown: MysqlDisclosedSecret) -> LoggedInClient {
    let requested = MysqlLoginRequest {
        user: "app".to_owned(),
        database: Some("goods".to_owned()),
        reached: ClientTransport::Unix { uid: Some(1000) },
        tls: None,
        capabilities: CapabilityFlags::PROTOCOL_41,
        collation: 45,
        attributes: Vec::new(),
    };
    LoggedInClient::My(Box::new(MysqlAuthenticatedClient {
        requested,
        shown,
        verifier: None,
        seq: 3,
    }))
}

/// Passes a login through its encoded form.
fn carried(proved: &LoggedInClient, route: &TenantRoute) -> ArrivedLogin {
    let login = PassedLogin::of(1, proved, route, &keyrings(), Some(7)).unwrap();
    let bytes = serde_json::to_vec(&login).unwrap();
    assert!(bytes.len() < PASSED_LOGIN_BYTES_MAX);
    let login: PassedLogin = serde_json::from_slice(&bytes).unwrap();
    let defined = TenantRoute { user: route.tenant.user("app"), ..route.clone() };
    login.arrive(defined, &keyrings()).unwrap()
}

#[test]
fn a_client_is_the_same_at_the_other_node() {
    let route = route(TenantEngine::Postgres, Some("pw"));
    let ArrivedLogin { proved: LoggedInClient::Pg(client), .. } =
        carried(&pg(Shown::Nothing), &route)
    else {
        panic!("another protocol");
    };
    let LoggedInClient::Pg(before) = pg(Shown::Nothing) else { panic!("another protocol") };
    assert_eq!(client.requested.parameters, before.requested.parameters);
    assert_eq!(client.requested.version, before.requested.version);
    assert_eq!(client.requested.reached, before.requested.reached);
    let tls = client.requested.tls.unwrap();
    assert_eq!(tls.client_name.as_deref(), Some("app"));

    let route = self::route(TenantEngine::Mysql, Some("pw"));
    let ArrivedLogin { proved: LoggedInClient::My(client), .. } =
        carried(&my(MyShown::Nothing), &route)
    else {
        panic!("another protocol");
    };
    let LoggedInClient::My(before) = my(MyShown::Nothing) else { panic!("another protocol") };
    assert_eq!((client.seq, client.requested), (3, before.requested));
}

/// Pools log in with the same secrets as at the node to which the client connected.
#[test]
fn secrets_that_only_clients_have_go_along() {
    let keyrings = keyrings();
    let scram = ScramKeys::derive("pw", b"0123456789abcdef", 16);
    let of_pg =
        [Shown::Keys(scram), Shown::Password(PlainPassword::new("pw".to_owned())), Shown::Nothing];
    let of_my = [
        MyShown::Native(NativeKey::of("pw")),
        MyShown::Sha2(Sha2Key::of("pw")),
        MyShown::Password(PlainPassword::new("md5 is no hash here".to_owned())),
        MyShown::Nothing,
    ];
    let clients = of_pg.into_iter().map(|it| (TenantEngine::Postgres, pg(it)));
    for (engine, proved) in clients.chain(of_my.into_iter().map(|it| (TenantEngine::Mysql, my(it))))
    {
        let route = route(engine, None);
        let before = keyrings.credentials(&route, &proved);
        let ArrivedLogin { proved, route } = carried(&proved, &route);
        let after = keyrings.credentials(&route, &proved);
        match (before, after) {
            (ServerCredentials::Pg(before), ServerCredentials::Pg(after)) => {
                match (&*before, &*after) {
                    (PgCredentials::None, PgCredentials::None) => {}
                    (PgCredentials::Password(one, _), PgCredentials::Password(other, _)) => {
                        assert_eq!(one, other);
                    }
                    (PgCredentials::Scram(one), PgCredentials::Scram(other)) => {
                        assert_eq!(one, other);
                    }
                    other => panic!("{other:?}"),
                }
            }
            (ServerCredentials::My(before), ServerCredentials::My(after)) => {
                assert_eq!(before, after);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_smallest_limit_of_all_nodes_says_where_a_tenant_lives() {
    let limit = |servers, reserve, clients, of_user| {
        let limits = TenantLimitsSpec {
            server_connections_max: Some(servers),
            server_connections_reserve: Some(reserve),
            clients_max: Some(clients),
            ..TenantLimitsSpec::default()
        };
        let route = limited_route(TenantEngine::Mysql, Some("pw"), limits, of_user);
        TenantLimit::of(&route.tenant, &route.user)
    };
    for (servers, reserve, clients, of_user, expected) in [
        (1, 0, 100, None, 1),
        (1, 2, 100, None, 3),
        (50, 0, 7, None, 7),
        (50, 0, 7, Some(2), 2),
        // 0 means no limit.
        (50, 0, 0, None, 50),
    ] {
        let TenantLimit { name, limit } = limit(servers, reserve, clients, of_user);
        assert_eq!((&*name, limit), ("tenant/Mysql/shop", expected));
    }
}

#[test]
fn who_replicates_stays() {
    let LoggedInClient::Pg(mut client) = pg(Shown::Nothing) else { panic!("another protocol") };
    client.requested.replication = ReplicationMode::Logical;
    let route = route(TenantEngine::Postgres, Some("pw"));
    let passed = PassedLogin::of(1, &LoggedInClient::Pg(client), &route, &keyrings(), None);
    assert!(passed.is_none());
}

#[test]
fn what_no_client_could_have_said_is_refused() {
    let route = route(TenantEngine::Postgres, Some("pw"));
    let login = PassedLogin::of(1, &pg(Shown::Nothing), &route, &keyrings(), None).unwrap();
    let check = |login: &PassedLogin| login.check();
    assert_eq!(check(&login), Ok(()));
    let too_long = "x".repeat(TEXT_BYTES_MAX + 1);
    let parameters = |parameters| PassedLogin {
        greeting: PassedGreeting::Pg { minor: 0, parameters },
        ..login.clone()
    };
    for other in [
        PassedLogin { tenant: too_long.clone(), ..login.clone() },
        PassedLogin { database: Some("a\0b".to_owned()), ..login.clone() },
        parameters(vec![("a".to_owned(), too_long.clone())]),
        parameters(vec![("a".to_owned(), "b".to_owned()); PARAMETERS_MAX + 1]),
        PassedLogin { secret: Some(PassedSecret::Scram(too_long.repeat(2))), ..login.clone() },
    ] {
        assert_eq!(check(&other), Err(PassedLoginError::TooLong));
    }
    let other = PassedLogin {
        greeting: PassedGreeting::My { pid: 0, number: 0, capabilities: 0, collation: 0 },
        ..login.clone()
    };
    assert_eq!(check(&other), Err(PassedLoginError::TooLong));
    // For another protocol than the tenant's; and with an invalid secret.
    let of_mysql = self::route(TenantEngine::Mysql, Some("pw"));
    assert_eq!(login.clone().arrive(of_mysql, &keyrings()).err(), Some(PassedLoginError::Engine));
    let secret = Some(PassedSecret::Scram("1:x".to_owned()));
    let other = PassedLogin { secret, ..login };
    assert_eq!(other.arrive(route, &keyrings()).err(), Some(PassedLoginError::Secret));
}

proptest! {
    /// Any input is refused, or is a valid login.
    #[test]
    fn bytes_that_are_no_login_are_refused(
        at in 0_usize..400, byte in any::<u8>(), cut in 0_usize..400,
    ) {
        let route = route(TenantEngine::Postgres, None);
        let login = PassedLogin::of(1, &pg(Shown::Nothing), &route, &keyrings(), None).unwrap();
        let mut bytes = serde_json::to_vec(&login).unwrap();
        let length = bytes.len();
        bytes[at % length] = byte;
        for bytes in [&bytes[..], &bytes[..cut % length]] {
            if let Ok(login) = serde_json::from_slice::<PassedLogin>(bytes) {
                let of_user = |it: ArrivedLogin| it.route.user.name.to_string();
                let arrived = login.arrive(route.clone(), &keyrings()).map(of_user);
                prop_assert!(arrived.is_err() || arrived.is_ok_and(|user| user == "app"));
            }
        }
    }
}

#[test]
fn a_login_shows_no_secret() {
    let route = route(TenantEngine::Postgres, None);
    let shown = Shown::Password(PlainPassword::new("hunter2".to_owned()));
    let login = PassedLogin::of(1, &pg(shown), &route, &keyrings(), None).unwrap();
    assert!(!format!("{login:?}").contains("hunter2"));
}
