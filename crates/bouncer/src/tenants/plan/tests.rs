//! Refused definitions, and the state that stays the same across changes.

use api::{PoolMode, TenantLimitsSpec};

use super::*;

fn settings() -> SharedSettings {
    let mut config = BouncerConfig::default();
    let table = |address: &str, connections_max| ServerTable {
        address: address.to_owned(),
        connections_max,
        ..ServerTable::default()
    };
    config.servers.insert("main".to_owned(), table("db:5432", Some(50)));
    config
        .servers
        .insert("half".to_owned(), ServerTable { cert: Some("x".into()), ..table("h", None) });
    config.servers.insert("none".to_owned(), table("n", Some(0)));
    config.tenants_max = 3;
    SharedSettings::new(&config)
}

fn spec(name: &str) -> TenantSpec {
    TenantSpec { name: name.to_owned(), server: "main".to_owned(), ..TenantSpec::default() }
}

fn user(name: &str, password: &str) -> TenantUserSpec {
    TenantUserSpec {
        name: name.to_owned(),
        password: Some(password.to_owned()),
        ..TenantUserSpec::default()
    }
}

fn of_api(specs: impl IntoIterator<Item = TenantSpec>) -> Vec<TenantDefinition> {
    specs.into_iter().map(|spec| TenantDefinition::of_api(spec).unwrap()).collect()
}

#[test]
fn what_no_tenant_can_be_is_refused_with_its_field() {
    let check = |field: &str, change: fn(&mut TenantSpec)| {
        let mut changed = spec("t");
        change(&mut changed);
        let built = TenantDefinition::of_api(changed)
            .and_then(|made| TenantRegistry::default().build(&settings(), &[made]).map(drop));
        assert_eq!(built.unwrap_err().field, field);
    };
    check("name", |it| it.name = String::new());
    check("name", |it| it.name = "-a".to_owned());
    check("name", |it| it.name = "a.b".to_owned());
    check("name", |it| it.name = "ä".to_owned());
    check("name", |it| it.name = "a".repeat(64));
    check("name", |it| it.name = "pgbouncer".to_owned());
    check("server_password", |it| it.server_password = Some("env:HOME".to_owned()));
    check("users[0].password", |it| it.users = vec![user("a", "file:/etc/shadow")]);
    check("t.server", |it| it.server = String::new());
    check("t.server", |it| it.server = "db:x".to_owned());
    check("t.servers.half.cert", |it| it.server = "half".to_owned());
    check("t.servers.none.connections_max", |it| it.server = "none".to_owned());
    check("t.database", |it| it.database = Some("x".repeat(64)));
    check("t.server_password", |it| it.server_password = Some("x".to_owned()));
    check("t.server_user", |it| it.server_user = Some("a\0".to_owned()));
    check("t.weight", |it| it.weight = Some(0));
    check("t.weight", |it| it.weight = Some(1001));
    check("t.transports", |it| it.transports = Some(Vec::new()));
    check("t.limits.connect_s", |it| it.limits.connect_s = Some(-1.0));
    check("t.settings", |it| drop(it.settings.insert("a;b".to_owned(), String::new())));
    check("t.settings.role", |it| drop(it.settings.insert("role".to_owned(), "x".to_owned())));
    check("t.settings.a", |it| drop(it.settings.insert("a".to_owned(), "\0".to_owned())));
    check("t.auth_query.user", |it| it.auth_query = Some(AuthQuerySpec::default()));
    check("t.auth_query.query", |it| {
        let query = Some("SELECT 1".to_owned());
        let user = "looker".to_owned();
        it.auth_query = Some(AuthQuerySpec { user, query, ..AuthQuerySpec::default() });
    });
    check("t.users[0].name", |it| it.users = vec![user("", "x")]);
    check("t.users[0].password", |it| it.users = vec![user("a", "")]);
    check("t.users[1].name", |it| it.users = vec![user("a", "x"), user("a", "y")]);
    check("t.users[0].password", |it| {
        it.users = vec![TenantUserSpec { password: None, ..user("a", "") }];
    });
    check("t.server_names[0]", |it| it.server_names = vec!["a b".to_owned()]);
    check("t.local_infile", |it| it.local_infile = Some(false));
    check("t.found_rows", |it| it.found_rows = Some(true));
}

#[test]
fn what_no_tenant_of_mysql_can_be_is_refused_with_its_field() {
    let of_mysql = |name: &str| {
        let (engine, server) = (TenantEngine::Mysql, "db".to_owned());
        TenantSpec { engine, server, users: vec![user("u", "x")], ..spec(name) }
    };
    let check = |field: &str, change: fn(&mut TenantSpec)| {
        let mut changed = of_mysql("t");
        change(&mut changed);
        let built = TenantRegistry::default().build(&settings(), &of_api([changed])).map(drop);
        assert_eq!(built.unwrap_err().field, field);
    };
    check("t.users[0].password", |it| it.users = vec![user("u", "SCRAM-SHA-256$x")]);
    check("t.server_password", |it| {
        it.server_user = Some("u".to_owned());
        it.server_password = Some("SCRAM-SHA-256$x".to_owned());
    });
    check("t.auth_query.query", |it| {
        let (user, query) = ("looker".to_owned(), Some("SELECT $1".to_owned()));
        it.auth_query = Some(AuthQuerySpec { user, query, ..AuthQuerySpec::default() });
    });
    let made = TenantSpec { local_infile: Some(true), read_only: true, ..of_mysql("t") };
    let defaults = TenantDefaults {
        settings: BTreeMap::from([("work_mem".to_owned(), "1MB".to_owned())]),
        ..TenantDefaults::default()
    };
    let settings = SharedSettings { defaults, ..settings() };
    let mut book = TenantRegistry::default();
    let routing = book.build(&settings, &of_api([made])).unwrap();
    let tenant = routing.named("t").unwrap();
    assert_eq!(tenant.server.address.to_string(), "db:3306");
    assert!(tenant.settings.is_empty(), "settings of PostgreSQL mean nothing there");
    assert!(tenant.local_infile && !tenant.found_rows);

    // With another protocol it is a different tenant.
    let other = book.build(&settings, &of_api([spec("t")])).unwrap();
    assert!(tenant.state.is_removed());
    assert_ne!(other.named("t").unwrap().id, tenant.id);
}

#[test]
fn tenants_must_agree_with_each_other() {
    let check = |field: &str, specs: Vec<TenantSpec>| {
        let error = TenantRegistry::default().build(&settings(), &of_api(specs)).unwrap_err();
        assert_eq!(error.field, field);
    };
    check("a", vec![spec("a"), spec("a")]);
    check("tenants_max", vec![spec("a"), spec("b"), spec("c"), spec("d")]);
    let named = |name: &str| TenantSpec { server_names: vec!["X.y".to_owned()], ..spec(name) };
    check("b.server_names", vec![named("a"), named("b")]);
    let direct = TenantSpec { server: "db".to_owned(), ..spec("b") };
    check("b.server", vec![spec("a"), direct]);
}

#[test]
fn references_of_the_file_are_resolved_and_others_are_not() {
    let resolve = |setting: &str, text: &str| match text {
        "env:A" => Ok("secret".to_owned()),
        "plain" => Ok(text.to_owned()),
        _ => Err(format!("{setting} leads nowhere")),
    };
    let mut of_file = spec("a");
    of_file.server_user = Some("app".to_owned());
    of_file.server_password = Some("env:A".to_owned());
    of_file.users = vec![user("u", "plain")];
    let made = TenantDefinition::of_file(&of_file, "bouncer.tenants[0]", &resolve).unwrap();
    let routing = TenantRegistry::default().build(&settings(), &[made]).unwrap();
    let tenant = routing.named("a").unwrap();
    let forced = Some((Arc::from("app"), Some(ClientSecret::new("secret"))));
    assert_eq!(tenant.forced, forced);
    assert_eq!(tenant.user("u").auth, ClientAuth::Secret(ClientSecret::new("plain")));
    of_file.users = vec![user("u", "env:B")];
    let error = TenantDefinition::of_file(&of_file, "bouncer.tenants[0]", &resolve).unwrap_err();
    assert_eq!(error.field, "bouncer.tenants[0].users[0].password");
}

#[test]
fn who_somebody_is_on_the_server_follows_from_the_nearest_that_says_so() {
    let known = |text: &str| ServerSecret::Known(ClientSecret::new(text));
    let check = |change: fn(&mut TenantSpec), role: &str, secret: ServerSecret| {
        let mut changed = TenantSpec { users: vec![user("u", "own")], ..spec("a") };
        change(&mut changed);
        let routing = TenantRegistry::default().build(&settings(), &of_api([changed])).unwrap();
        let user = routing.named("a").unwrap().user("u");
        assert_eq!((&*user.server_user, &user.server_secret), (role, &secret));
    };
    check(|_| (), "u", known("own"));
    check(|it| it.users = vec![user("u", "SCRAM-SHA-256$x")], "u", ServerSecret::OfClient);
    check(|it| it.server_user = Some("app".to_owned()), "app", ServerSecret::None);
    let forced = |it: &mut TenantSpec| {
        it.server_user = Some("app".to_owned());
        it.server_password = Some("of app".to_owned());
    };
    check(forced, "app", known("of app"));
    check(
        |it| {
            it.server_user = Some("app".to_owned());
            it.users[0].server_password = Some("of u".to_owned());
        },
        "u",
        known("of u"),
    );
    check(|it| it.users[0].server_user = Some("role".to_owned()), "role", ServerSecret::None);
}

#[test]
fn read_only_is_a_setting_that_nothing_overrides() {
    let mut changed = TenantSpec { read_only: true, ..spec("a") };
    let name = "default_transaction_read_only";
    changed.settings.insert(name.to_owned(), "off".to_owned());
    let routing = TenantRegistry::default().build(&settings(), &of_api([changed])).unwrap();
    assert_eq!(routing.named("a").unwrap().settings[name], "on");
}

#[test]
fn ids_and_states_outlive_definitions() {
    let mut book = TenantRegistry::default();
    let settings = settings();
    let first = book.build(&settings, &of_api([spec("a"), spec("b")])).unwrap();
    let (a, b) = (first.named("a").unwrap(), first.named("b").unwrap());
    assert_ne!(a.id, b.id);
    assert_eq!(a.server.id, b.server.id, "they share it");
    let pool = a.state.pool("u");

    let second = book.build(&settings, &of_api([spec("b")])).unwrap();
    assert!(second.version > first.version);
    assert!(second.tenant(a.id).is_none() && a.state.is_removed());
    assert_eq!(second.named("b").unwrap().id, b.id);
    assert_eq!(b.state.epoch(), 0, "nothing changed");

    let moved = TenantSpec { server: "other".to_owned(), ..spec("b") };
    let limits = TenantLimitsSpec { waiting_max: Some(1), ..TenantLimitsSpec::default() };
    let limited = TenantSpec { limits, pool_mode: Some(PoolMode::Session), ..spec("a") };
    let third = book.build(&settings, &of_api([limited, moved])).unwrap();
    let again = third.named("a").unwrap();
    assert_eq!((again.id, again.state.pool("u")), (a.id, pool));
    assert!(!again.state.is_removed());
    assert_eq!(again.state.epoch(), 0, "limits say nothing of connections that are open");
    assert_eq!(b.state.epoch(), 1, "they lead to the wrong server");

    // A refused definition changes nothing.
    let bad = TenantSpec { weight: Some(0), server: "main".to_owned(), ..spec("b") };
    assert!(book.build(&settings, &of_api([bad])).is_err());
    assert_eq!((b.state.epoch(), a.state.is_removed()), (1, false));
}
