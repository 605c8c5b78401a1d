//! Tests of routing.

use api::{AuthQuerySpec, TenantEngine, TenantSpec, TenantUserSpec};

use super::super::ClientAuth;
use super::super::{SharedSettings, TenantDefinition, TenantRegistry};
use super::*;
use crate::config::BouncerConfig;

fn routing() -> TenantRouting {
    let config = BouncerConfig {
        server_name_suffix: Some(".db.example.com".to_owned()),
        ..BouncerConfig::default()
    };
    let user = |name: &str| TenantUserSpec {
        name: name.to_owned(),
        password: Some("x".to_owned()),
        ..TenantUserSpec::default()
    };
    let spec = |name: &str| TenantSpec {
        name: name.to_owned(),
        server: "db".to_owned(),
        users: vec![user("app")],
        ..TenantSpec::default()
    };
    let auth_query = Some(AuthQuerySpec { user: "looker".to_owned(), ..AuthQuerySpec::default() });
    let specs = [
        TenantSpec { server_names: vec!["Shop.Example".to_owned()], ..spec("shop") },
        TenantSpec { auth_query, ..spec("blue") },
        TenantSpec { users: vec![user("app"), user("a__b__app")], ..spec("a__b") },
        TenantSpec { transports: Some(vec![ClientTransportMode::Tls]), ..spec("safe") },
        TenantSpec {
            server_user: Some("role".to_owned()),
            server_password: Some("y".to_owned()),
            ..spec("Forced")
        },
        TenantSpec { engine: TenantEngine::Mysql, ..spec("maria") },
    ];
    let definitions = specs.map(|spec| TenantDefinition::of_api(spec).unwrap());
    TenantRegistry::default().build(&SharedSettings::new(&config), &definitions).unwrap()
}

const NOTHING: RouteRequest<'_> = RouteRequest {
    bound: None,
    server_name: None,
    options_tenant_id: None,
    tenant_id: None,
    database: None,
    user: "app",
    transport: ClientTransportMode::Tcp,
    engine: TenantEngine::Postgres,
};

/// Returns tenant and user, or the error.
fn led(routing: &TenantRouting, request: &RouteRequest<'_>) -> Result<(String, String), String> {
    let route = routing.route(request).map_err(|it| format!("{} {it}", it.sqlstate()))?;
    Ok((route.tenant.name.to_string(), route.user.name.to_string()))
}

#[test]
fn what_comes_first_decides() {
    let routing = routing();
    let check = |request: RouteRequest<'_>, tenant: &str, user: &str| {
        let expected = Ok((tenant.to_owned(), user.to_owned()));
        assert_eq!(led(&routing, &request), expected, "{request:?}");
    };
    let all = RouteRequest {
        bound: Some("shop"),
        server_name: Some("blue.db.example.com"),
        database: Some("a__b"),
        user: "Forced__app",
        ..NOTHING
    };
    check(all, "shop", "Forced__app");
    check(RouteRequest { bound: None, ..all }, "blue", "Forced__app");
    check(RouteRequest { bound: None, server_name: None, ..all }, "a__b", "Forced__app");
    let said = RouteRequest { bound: None, server_name: None, tenant_id: Some("blue"), ..all };
    check(said, "blue", "Forced__app");
    check(RouteRequest { options_tenant_id: Some("shop"), ..said }, "shop", "Forced__app");
    check(RouteRequest { user: "Forced__app", ..NOTHING }, "Forced", "app");
    check(RouteRequest { user: "shop", ..NOTHING }, "shop", "shop");
    // An unknown server name is ignored.
    let elsewhere = RouteRequest { server_name: Some("localhost"), ..NOTHING };
    check(RouteRequest { database: Some("shop"), ..elsewhere }, "shop", "app");
    check(RouteRequest { server_name: Some("SHOP.example"), ..NOTHING }, "shop", "app");
    check(RouteRequest { server_name: Some("FORCED.DB.example.com"), ..NOTHING }, "Forced", "app");
    // Tenants may have the separator in their names, and so may users.
    check(RouteRequest { user: "a__b__app", ..NOTHING }, "a__b", "app");
    let listed = RouteRequest { user: "a__b__app", database: Some("a__b"), ..NOTHING };
    check(listed, "a__b", "a__b__app");
    check(RouteRequest { user: "shop__app", database: Some("shop"), ..NOTHING }, "shop", "app");
}

#[test]
fn who_is_led_nowhere_learns_why() {
    let routing = routing();
    let check = |request: RouteRequest<'_>, expected: &str| {
        assert_eq!(led(&routing, &request), Err(expected.to_owned()));
    };
    check(NOTHING, "08000 no tenant for database \"app\"");
    check(
        RouteRequest { database: Some("x\n\0y"), ..NOTHING },
        "08000 no tenant for database \"x??y\"",
    );
    check(RouteRequest { tenant_id: Some("no"), ..NOTHING }, "08000 no tenant named \"no\"");
    check(RouteRequest { bound: Some("no"), ..NOTHING }, "08000 no tenant named \"no\"");
    check(RouteRequest { user: "no__app", ..NOTHING }, "08000 no tenant named \"no\"");
    check(RouteRequest { user: "shop__", ..NOTHING }, "08000 no tenant named \"shop\"");
    let long = "x".repeat(9000);
    let shown = format!("08000 no tenant named \"{}\"", "x".repeat(63));
    check(RouteRequest { tenant_id: Some(&long), ..NOTHING }, &shown);
    let only = "28000 this connection is for the tenant \"shop\" only";
    let bound = RouteRequest { bound: Some("shop"), tenant_id: Some("blue"), ..NOTHING };
    check(bound, only);
    let named =
        RouteRequest { server_name: Some("shop.example"), tenant_id: Some("blue"), ..NOTHING };
    check(named, only);
    let safe = RouteRequest { database: Some("safe"), ..NOTHING };
    check(safe, "28000 tenant \"safe\" does not accept this transport: see its `transports`");
    assert!(led(&routing, &RouteRequest { transport: ClientTransportMode::Tls, ..safe }).is_ok());
    let of_mysql = RouteRequest { engine: TenantEngine::Mysql, ..NOTHING };
    let other = "28000 tenant \"shop\" is a PostgreSQL database, which has another port";
    check(RouteRequest { database: Some("shop"), ..of_mysql }, other);
    let other = "28000 tenant \"maria\" is a MySQL database, which has another port";
    check(RouteRequest { database: Some("maria"), ..NOTHING }, other);
    assert!(led(&routing, &RouteRequest { database: Some("maria"), ..of_mysql }).is_ok());
}

#[test]
fn tenants_that_take_nobody_say_so() {
    let routing = routing();
    let tenant = Arc::clone(routing.named("shop").unwrap());
    let request = RouteRequest { database: Some("shop"), ..NOTHING };
    let check = |expected: Option<&str>| {
        let found = led(&routing, &request).err();
        assert_eq!(found.as_deref(), expected);
    };
    tenant.state.set_admission(WorkAdmission::Paused);
    check(None);
    tenant.state.set_admission(WorkAdmission::Refusing);
    check(Some("08000 tenant \"shop\" is paused"));
    tenant.state.set_admission(WorkAdmission::Draining);
    check(Some("08000 tenant \"shop\" is draining"));
    tenant.state.set_admission(WorkAdmission::Open);
    tenant.state.set_health(ServerHealth::Unhealthy);
    check(Some("08000 the server of tenant \"shop\" does not answer"));
    tenant.state.set_health(ServerHealth::Healthy);
    check(None);
}

#[test]
fn users_that_are_not_listed_are_looked_up_or_unknown() {
    let routing = routing();
    let user = |tenant: &str, name: &str| routing.named(tenant).unwrap().user(name);
    assert_eq!(user("shop", "nobody").auth, ClientAuth::Unknown);
    let found = user("blue", "somebody");
    assert_eq!((&found.auth, &*found.server_user), (&ClientAuth::Query, "somebody"));
    assert_eq!(found.server_secret, ServerSecret::OfClient);
    assert_eq!(user("blue", "looker").auth, ClientAuth::Unknown);
    assert_eq!(user("blue", "blue__looker").auth, ClientAuth::Unknown);
    assert_eq!(&*user("Forced", "nobody").server_user, "role");
}

#[test]
fn a_pool_is_a_tenant_with_a_role() {
    let routing = routing();
    let pool = |database, user| {
        let request = RouteRequest { database: Some(database), user, ..NOTHING };
        routing.route(&request).unwrap().pool().unwrap()
    };
    assert_eq!(pool("shop", "app"), pool("shop", "app"));
    assert_ne!(pool("shop", "app"), pool("blue", "app"));
    assert_ne!(pool("blue", "app"), pool("blue", "other"));
    assert_eq!(pool("Forced", "app"), pool("Forced", "other"), "they are one role there");
}
