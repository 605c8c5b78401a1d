//! The service with scripted threads and servers, and a real store.

use std::time::Duration;

use api::{
    ErrorCode, TenantAdmission, TenantHealth, TenantLimitsSpec, TenantOrigin, TenantUserSpec,
};
use node::store::{StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::Scratch;

use super::health::{ProbeFailure, ProbeOutcome};
use std::net::TcpStream;

use tokio::sync::oneshot;

use super::*;
use crate::config::HealthTable;
use crate::guest::client::{LoginPlace, SandboxClient};
use crate::relay::orders::ThreadCommand;
use crate::relay::snapshot::ThreadSnapshot;
use crate::relay::stats::ThreadTenantStats;

/// Threads that record their orders.
#[derive(Debug, Default)]
struct Scripted {
    orders: Mutex<Vec<String>>,
    snapshot: Mutex<Option<ThreadSnapshot>>,
    stats: Arc<ThreadTenantStats>,
}

impl RelayThreads for Scripted {
    fn admit(&self, _stream: TcpStream, _guest: Arc<SandboxClient>, _place: LoginPlace) {
        unreachable!("no guest comes in these tests")
    }

    fn order(&self, make: &dyn Fn() -> ThreadCommand) {
        self.orders.lock().push(format!("{:?}", make()));
    }

    fn snapshots(&self) -> Vec<oneshot::Receiver<ThreadSnapshot>> {
        let (tell, told) = oneshot::channel();
        if let Some(snapshot) = self.snapshot.lock().take() {
            drop(tell.send(snapshot));
        }
        vec![told]
    }

    fn stats(&self, _: TenantId) -> Vec<Arc<ThreadTenantStats>> {
        vec![Arc::clone(&self.stats), Arc::clone(&self.stats)]
    }
}

/// A server that answers unless it is set to fail.
#[derive(Debug, Default)]
struct Answers(Mutex<Option<&'static str>>);

impl ServerProbe for Answers {
    fn probe(&self, _: Arc<TenantSnapshot>) -> ProbeOutcome {
        let broken = *self.0.lock();
        let failure = broken.map(|error| ProbeFailure::Silent(error.to_owned()));
        Box::pin(async move { failure.map_or(Ok(()), Err) })
    }
}

struct Fixture {
    scratch: Scratch,
    bouncer: Bouncer,
    threads: Arc<Scripted>,
    server: Arc<Answers>,
    /// Result of reading the configuration again.
    file: Arc<Mutex<Result<BouncerConfig, String>>>,
}

impl Fixture {
    async fn new(config: BouncerConfig) -> Fixture {
        Fixture::open(Scratch::new(), config).await
    }

    async fn open(scratch: Scratch, config: BouncerConfig) -> Fixture {
        let url = StoreUrl::Sqlite(scratch.path().join("store.db"));
        let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
        let file = Arc::new(Mutex::new(Ok(config.clone())));
        let reread = Arc::clone(&file);
        let parts = BouncerParts {
            config,
            resolve: Arc::new(|_, text| Ok(text.replace("env:", "value of "))),
            reread: Arc::new(move || reread.lock().clone()),
            store: Some((store, Sealer::new(&[1; 32]))),
        };
        let (threads, server) = (Arc::<Scripted>::default(), Arc::<Answers>::default());
        let prepared = InitialTenants::new(parts).await.unwrap();
        let keyrings =
            ProtocolKeyrings::new([0; 32], pooler_core::pg::login::PgPasswordMethod::Best);
        let bouncer = prepared.start(threads.clone(), server.clone(), keyrings);
        Fixture { scratch, bouncer, threads, server, file }
    }

    /// Restarts with the same data in another process.
    async fn restarted(self, config: BouncerConfig) -> Fixture {
        self.bouncer.store().unwrap().close().await;
        Fixture::open(self.scratch, config).await
    }

    fn orders(&self) -> Vec<String> {
        std::mem::take(&mut *self.threads.orders.lock())
    }

    async fn names(&self) -> Vec<(String, TenantOrigin)> {
        let listed = self.bouncer.list().await;
        listed.into_iter().map(|it| (it.spec.name, it.origin)).collect()
    }
}

fn spec(name: &str) -> TenantSpec {
    let user = TenantUserSpec {
        name: "app".to_owned(),
        password: Some("very secret".to_owned()),
        ..TenantUserSpec::default()
    };
    TenantSpec {
        name: name.to_owned(),
        server: "db".to_owned(),
        users: vec![user],
        ..TenantSpec::default()
    }
}

fn with_tenants(specs: impl IntoIterator<Item = TenantSpec>) -> BouncerConfig {
    BouncerConfig { tenants: specs.into_iter().collect(), ..BouncerConfig::default() }
}

#[tokio::test]
async fn a_tenant_is_made_changed_and_removed_and_outlives_the_process() {
    let it = Fixture::new(with_tenants([spec("file")])).await;
    let made = it.bouncer.create(spec("made")).await.unwrap();
    assert_eq!(made.spec.users[0].password.as_deref(), Some("***"));
    assert!(!format!("{:?}", it.bouncer.list().await).contains("very secret"));
    assert_eq!(it.orders(), ["Routing"]);

    let it = it.restarted(with_tenants([spec("file")])).await;
    let both = [("file".to_owned(), TenantOrigin::File), ("made".to_owned(), TenantOrigin::Api)];
    assert_eq!(it.names().await, both);

    // Redacted passwords are restored, by the user's name.
    let mut changed = it.bouncer.tenant("made").await.unwrap().spec;
    let other = TenantUserSpec {
        name: "other".to_owned(),
        password: Some("new".to_owned()),
        ..TenantUserSpec::default()
    };
    changed.users.insert(0, other);
    changed.weight = Some(7);
    it.bouncer.replace("made", changed).await.unwrap();
    let tenant = it.bouncer.routing().named("made").cloned().unwrap();
    let password = |user: &str| match &tenant.user(user).auth {
        crate::tenants::ClientAuth::Secret(password) => password.expose().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!((password("app"), password("other")), ("very secret".into(), "new".into()));
    assert_eq!(tenant.weight, 7);

    it.bouncer.remove("made").await.unwrap();
    assert!(tenant.state.is_removed());
    assert_eq!(it.names().await, both[..1]);
    let it = it.restarted(BouncerConfig::default()).await;
    assert_eq!(it.names().await, []);
}

#[tokio::test]
async fn what_cannot_be_changes_nothing() {
    let it = Fixture::new(with_tenants([spec("file")])).await;
    it.bouncer.create(spec("made")).await.unwrap();
    it.orders();
    let version = it.bouncer.routing().version;
    let check = |result: Result<TenantView, BouncerError>, code: ErrorCode, field: &str| {
        let error = result.unwrap_err();
        let found = match &error {
            BouncerError::Refused(refusal) => refusal.field.clone(),
            _ => String::new(),
        };
        assert_eq!((error.code(), &*found), (code, field));
    };
    let invalid = ErrorCode::InvalidRequest;
    let bouncer = &it.bouncer;
    check(bouncer.create(spec("made")).await, ErrorCode::Conflict, "");
    check(bouncer.create(spec("file")).await, ErrorCode::Conflict, "");
    check(bouncer.create(spec("no name")).await, invalid, "name");
    let heavy = |name: &str| TenantSpec { weight: Some(0), ..spec(name) };
    check(bouncer.create(heavy("new")).await, invalid, "weight");
    let mut redacted = spec("new");
    redacted.users[0].password = Some("***".to_owned());
    check(bouncer.create(redacted).await, invalid, "users[0].password");
    check(bouncer.replace("made", heavy("made")).await, invalid, "weight");
    check(bouncer.replace("made", spec("other")).await, invalid, "name");
    check(bouncer.replace("file", spec("file")).await, ErrorCode::Conflict, "");
    check(bouncer.replace("new", spec("new")).await, ErrorCode::NotFound, "");
    assert!(matches!(bouncer.remove("file").await, Err(BouncerError::Conflict(_))));
    assert!(matches!(bouncer.remove("new").await, Err(BouncerError::NotFound)));

    assert_eq!(it.names().await.len(), 2);
    assert_eq!(it.bouncer.routing().named("made").unwrap().weight, 1);
    assert!(it.bouncer.routing().version >= version);
    let it = it.restarted(BouncerConfig::default()).await;
    assert_eq!(it.names().await, [("made".to_owned(), TenantOrigin::Api)]);
}

#[tokio::test]
async fn pauses_and_drains_are_seen_at_once_and_told_once() {
    let it = Fixture::new(with_tenants([spec("a")])).await;
    let admission = async || it.bouncer.tenant("a").await.unwrap().admission;
    it.bouncer.pause("a", false).unwrap();
    it.bouncer.pause("a", false).unwrap();
    assert_eq!(admission().await, TenantAdmission::Paused);
    assert_eq!(it.orders(), ["Admission(TenantId(0))"]);
    // A pause survives a reload.
    it.bouncer.reload().await.unwrap();
    assert_eq!(admission().await, TenantAdmission::Paused);
    it.bouncer.pause("a", true).unwrap();
    assert_eq!(admission().await, TenantAdmission::Refusing);
    it.bouncer.drain("a").unwrap();
    assert_eq!(admission().await, TenantAdmission::Draining);
    it.bouncer.resume("a").unwrap();
    assert_eq!(admission().await, TenantAdmission::Open);
    it.orders();
    let before = it.bouncer.routing().named("a").unwrap().state.epoch();
    it.bouncer.reconnect("a").unwrap();
    it.bouncer.kill("a").unwrap();
    assert_eq!(it.orders(), ["Reconnect(TenantId(0))", "Kill(TenantId(0))"]);
    assert_eq!(it.bouncer.routing().named("a").unwrap().state.epoch(), before + 1);
    assert!(matches!(it.bouncer.pause("b", false), Err(BouncerError::NotFound)));
}

#[tokio::test]
async fn who_does_not_leave_a_draining_tenant_is_closed() {
    let it = Fixture::new(with_tenants([spec("a"), spec("b")])).await;
    let drain = node::drain::DrainHandle::new();
    let bouncer = it.bouncer.clone();
    let work = {
        let drain = drain.clone();
        tokio::spawn(async move { bouncer.work(&drain, Duration::from_millis(20)).await })
    };
    it.bouncer.drain("b").unwrap();
    it.bouncer.resume("b").unwrap();
    it.bouncer.drain("a").unwrap();
    let killed = |it: &Fixture| it.threads.orders.lock().iter().any(|it| it.starts_with("Kill"));
    let closed = async {
        while !killed(&it) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.unwrap();
    let kills = it.orders().into_iter().filter(|it| it.starts_with("Kill"));
    assert_eq!(kills.collect::<Vec<_>>(), ["Kill(TenantId(0))"], "`b` was resumed");
    drain.begin();
    work.await.unwrap();
}

#[tokio::test]
async fn a_reload_takes_over_what_holds_and_nothing_else() {
    let it = Fixture::new(with_tenants([spec("a"), spec("b")])).await;
    it.bouncer.create(spec("made")).await.unwrap();
    let a = it.bouncer.routing().named("a").cloned().unwrap();
    let limits = TenantLimitsSpec { waiting_max: Some(3), ..TenantLimitsSpec::default() };
    let mut config = with_tenants([TenantSpec { limits, ..spec("a") }, spec("made")]);
    config.threads = Some(9);
    config.mysql.enabled = false;
    // These are applied.
    (config.clients_max, config.login_s, config.health.failures) = (7, 7, 7);
    *it.file.lock() = Ok(config);
    let reloaded = it.bouncer.reload().await.unwrap();
    assert_eq!(
        (reloaded.tenants, reloaded.restart_needed_for),
        (2, vec!["bouncer.mysql".to_owned(), "bouncer.threads".to_owned()])
    );
    let routing = it.bouncer.routing();
    assert_eq!(routing.named("a").unwrap().limits.waiting_max, 3);
    assert_eq!((routing.named("a").unwrap().id, routing.named("b").is_none()), (a.id, true));
    // The file takes precedence; the tenant that it overrode reappears when the file no longer has
    // it.
    assert_eq!(routing.named("made").unwrap().origin, TenantOrigin::File);
    *it.file.lock() = Ok(BouncerConfig::default());
    it.bouncer.reload().await.unwrap();
    assert_eq!(it.names().await, [("made".to_owned(), TenantOrigin::Api)]);

    *it.file.lock() = Err("line 3: nonsense".to_owned());
    let error = it.bouncer.reload().await.unwrap_err();
    assert_eq!(error.to_string(), "line 3: nonsense");
    *it.file.lock() = Ok(with_tenants([TenantSpec { weight: Some(0), ..spec("x") }]));
    assert!(it.bouncer.reload().await.is_err());
    assert_eq!(it.names().await, [("made".to_owned(), TenantOrigin::Api)]);
}

#[tokio::test]
async fn health_is_judged_by_thresholds() {
    let it = Fixture::new(with_tenants([spec("a")])).await;
    let table = HealthTable { failures: 2, ..HealthTable::default() };
    let round = async || {
        it.bouncer.0.checks.round(&it.bouncer.routing(), table, false).await;
        it.bouncer.health("a").unwrap()
    };
    assert_eq!(it.bouncer.health("a").unwrap().checked_at, None);
    assert_eq!(round().await.health, TenantHealth::Healthy);
    *it.server.0.lock() = Some("connection refused");
    let report = round().await;
    assert_eq!((report.health, report.failures), (TenantHealth::Healthy, 1));
    let report = round().await;
    assert_eq!((report.health, report.failures), (TenantHealth::Unhealthy, 2));
    assert_eq!(report.error.as_deref(), Some("connection refused"));
    assert!(report.checked_at.is_some() && report.took_ms.is_some());
    *it.server.0.lock() = None;
    assert_eq!(round().await.health, TenantHealth::Healthy);
    // A paused tenant is not checked.
    *it.server.0.lock() = Some("being moved");
    it.bouncer.pause("a", false).unwrap();
    round().await;
    assert_eq!(round().await.health, TenantHealth::Healthy);
    let tally = it.bouncer.0.checks.tally();
    assert_eq!((tally.checks, tally.errors.values().sum::<u64>()), (4, 2));
    assert_eq!(tally.took.iter().sum::<u64>(), 4);
}

#[tokio::test]
async fn figures_are_summed_over_threads() {
    let it = Fixture::new(with_tenants([spec("a")])).await;
    it.threads.stats.clients.add(3);
    it.threads.stats.servers.add(5);
    it.threads.stats.servers_idle.add(2);
    it.threads.stats.clients_active.add(1);
    it.threads.stats.times().query.record(2000);
    let figures = it.bouncer.stats("a").unwrap();
    assert_eq!((figures.clients, figures.servers, figures.servers_busy), (6, 10, 4));
    assert_eq!(figures.server_connections_max, 20);
    assert!((2.0..2.2).contains(&figures.query_ms.p99), "{:?}", figures.query_ms);
    assert!(figures.wait_ms.max.abs() < f64::EPSILON);
    assert!(matches!(it.bouncer.stats("b"), Err(BouncerError::NotFound)));
}

#[tokio::test]
async fn metrics_tell_of_every_tenant_and_of_no_other() {
    let it = Fixture::new(with_tenants([spec("a"), spec("b")])).await;
    let mut registry = Registry::default();
    crate::metrics::register(&it.bouncer, &mut registry);
    let metrics = node::telemetry::MetricsRegistry::new(registry);
    let stats = &it.threads.stats;
    stats.transactions.add(3);
    stats.resets.add(1);
    for us in [90, 400, 600, 3_000_000_000] {
        stats.times().transaction.record(us);
    }
    let text = metrics.render().unwrap();
    let of_a = "{tenant=\"a\",db_type=\"postgres\"}";
    for expected in [
        &*format!("cove_bouncer_transactions_total{of_a} 6"),
        &*format!("cove_bouncer_tenant_health{of_a} 1"),
        &*format!("cove_bouncer_connections_max{of_a} 20"),
        "cove_bouncer_backend_resets_total{tenant=\"a\",status=\"success\"} 2",
        "cove_bouncer_transaction_duration_seconds_count{tenant=\"b\",db_type=\"postgres\"} 8",
        // Cumulated: two of four below half a millisecond, on two threads.
        "cove_bouncer_transaction_duration_seconds_bucket{le=\"0.0005\",tenant=\"a\",db_type=\"postgres\"} 4",
        "cove_bouncer_transaction_duration_seconds_bucket{le=\"+Inf\",tenant=\"a\",db_type=\"postgres\"} 8",
        "cove_bouncer_transaction_quantile_seconds{tenant=\"a\",quantile=\"0.5\"} 0.000",
        &*format!("cove_bouncer_health_check_errors_total{of_a} 0"),
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    assert!(!text.contains("query_quantile_seconds{"), "nothing was measured");
    *it.file.lock() = Ok(with_tenants([spec("b")]));
    it.bouncer.reload().await.unwrap();
    assert!(!metrics.render().unwrap().contains("tenant=\"a\""));
}
