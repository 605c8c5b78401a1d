//! The gateway as a whole, with scripted databases behind it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use api::{AuditEvent, AuditOutcome, CatalogGrant, DatabaseGrant, Grant, TenantEngine};
use node::auth::{CallerCredential, TokenPrincipal, TokenScope, TokenScopes};
use node::client::TlsRoots;
use node::clock;
use node::cluster::ServingLease;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::{GrantGate, GrantGateway as _, GrantHolder, GrantOpening};
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::task::Boxed;
use node::telemetry::{MetricsRegistry, Registry};
use parking_lot::Mutex;
use testkit::Scratch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::audit::AuditFilter;
use crate::doors::{
    CatalogBackends, CatalogGuest, DatabaseBackends, DatabaseDoor, DatabaseFacts, DatabaseGuest,
    FieldError, KnownDatabase, LoginPlace, StreamDoor,
};
use crate::gate::LOGINS_MAX;
use crate::{GRANTS_MAX, GatewayConfig, GatewayParts, GatewayService};

const DEADLINE: Duration = Duration::from_secs(30);

/// Backend with one database that records calls.
#[derive(Debug, Default)]
struct Scripted {
    doors: Arc<AtomicUsize>,
    rests: Arc<AtomicUsize>,
    guests: Mutex<Vec<DatabaseGuest>>,
    logins: Arc<Logins>,
}

/// Connections that never log in; kept only if a test needs them.
#[derive(Debug, Default)]
struct Logins {
    are_kept: AtomicBool,
    kept: Mutex<Vec<(std::net::TcpStream, LoginPlace)>>,
}

#[derive(Debug)]
struct Door {
    doors: Arc<AtomicUsize>,
    rests: Arc<AtomicUsize>,
    logins: Arc<Logins>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.doors.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DatabaseBackends for Scripted {
    fn known(&self, _databases_max: usize, _roles_max: usize) -> Vec<KnownDatabase> {
        let (engine, tenant) = (TenantEngine::Postgres, "shop".to_owned());
        vec![KnownDatabase { engine, tenant, roles: vec!["app".to_owned()] }]
    }

    fn check(
        &self,
        engine: TenantEngine,
        grant: &DatabaseGrant,
    ) -> Result<DatabaseFacts, FieldError> {
        match (engine, grant.tenant.as_str()) {
            (TenantEngine::Postgres, "shop") => {
                Ok(DatabaseFacts { database: "shop".to_owned(), user: "app".to_owned() })
            }
            _ => Err(FieldError::new("tenant", "there is no such tenant")),
        }
    }

    fn open(&self, guest: DatabaseGuest) -> Result<Arc<dyn DatabaseDoor>, String> {
        self.guests.lock().push(guest);
        self.doors.fetch_add(1, Ordering::SeqCst);
        let Scripted { doors, rests, logins, .. } = self;
        let (doors, rests) = (Arc::clone(doors), Arc::clone(rests));
        Ok(Arc::new(Door { doors, rests, logins: Arc::clone(logins) }))
    }
}

impl DatabaseDoor for Door {
    fn admit(&self, stream: std::net::TcpStream, place: LoginPlace) {
        use std::io::Write as _;
        (&stream).write_all(b"admitted").unwrap();
        if self.logins.are_kept.load(Ordering::SeqCst) {
            self.logins.kept.lock().push((stream, place));
        }
    }

    fn rest(&self) {
        self.rests.fetch_add(1, Ordering::SeqCst);
    }
}

/// A warehouse whose connections are always busy.
#[derive(Debug, Default)]
struct BusyWarehouse {
    connections: Arc<AtomicUsize>,
    steps: Arc<AtomicUsize>,
}

impl CatalogBackends for BusyWarehouse {
    fn known(&self, _warehouses_max: usize) -> Vec<String> {
        Vec::new()
    }

    fn check(&self, _grant: &CatalogGrant) -> Result<(), FieldError> {
        Ok(())
    }

    fn open(&self, _guest: CatalogGuest) -> Result<Arc<dyn StreamDoor>, String> {
        let (connections, steps) = (Arc::clone(&self.connections), Arc::clone(&self.steps));
        Ok(Arc::new(BusyWarehouse { connections, steps }))
    }
}

impl StreamDoor for BusyWarehouse {
    fn serve(self: Arc<Self>, _stream: TcpStream) -> Boxed<'static, ()> {
        Box::pin(async move {
            self.connections.fetch_add(1, Ordering::SeqCst);
            loop {
                self.steps.fetch_add(1, Ordering::SeqCst);
                give_way().await;
            }
        })
    }

    fn connections_max(&self) -> usize {
        0
    }
}

/// Yields once.
async fn give_way() {
    let mut is_polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Ground {
    service: GatewayService,
    databases: Arc<Scripted>,
    turns: FairScheduler,
    metrics: MetricsRegistry,
    _scratch: Scratch,
}

async fn ground(config: &str) -> Ground {
    ground_within(config, EffectFence::open()).await
}

async fn ground_within(config: &str, fence: EffectFence) -> Ground {
    ground_behind(config, fence, None).await
}

async fn ground_behind(
    config: &str,
    fence: EffectFence,
    catalogs: Option<Arc<dyn CatalogBackends>>,
) -> Ground {
    let scratch = Scratch::new();
    let mut registry = Registry::default();
    let url = StoreUrl::Sqlite(scratch.path().join("db"));
    let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
    let databases = Arc::new(Scripted::default());
    let turns = FairScheduler::for_this_runtime();
    let parts = GatewayParts {
        config: toml::from_str::<GatewayConfig>(config).unwrap(),
        store,
        databases: Some(Arc::clone(&databases) as _),
        catalogs,
        models: None,
        roots: TlsRoots::Machine,
        resolver: None,
        tracer: None,
        fence,
        amounts: None,
        turns: turns.clone(),
    };
    let service = GatewayService::start(parts, &mut registry).await.unwrap();
    let metrics = MetricsRegistry::new(registry);
    Ground { service, databases, turns, metrics, _scratch: scratch }
}

fn holder() -> GrantHolder {
    GrantHolder::new("ses_1", "team")
}

fn grants(json: &str) -> Vec<Grant> {
    serde_json::from_str(json).unwrap()
}

const SHOP: &str = r#"{"kind": "postgres", "tenant": "shop"}"#;

impl Ground {
    fn resolve(&self, list: &[Grant]) -> Box<dyn GrantOpening> {
        self.service.resolve(&holder(), list).unwrap()
    }

    fn wrong(&self, json: &str) -> String {
        let error = self.service.resolve(&holder(), &grants(json)).unwrap_err();
        assert_eq!(error.status().as_u16(), 400);
        error.detail().field.clone().unwrap()
    }

    async fn events(&self) -> Vec<(AuditEvent, AuditOutcome, String)> {
        let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
        let page = self.service.audit(&who("ops", true, TokenScopes::ALL), filter).await.unwrap();
        page.records.into_iter().map(|it| (it.event, it.outcome, it.grant)).collect()
    }
}

fn who(tenant: &str, operator: bool, scopes: TokenScopes) -> TokenPrincipal {
    let (token_id, name) = ("tok_1".into(), "x".into());
    let credential = CallerCredential::Token;
    TokenPrincipal { token_id, name, operator, tenant: tenant.into(), scopes, credential }
}

async fn listeners(count: usize) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    let mut all = (Vec::new(), Vec::new());
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        all.1.push(listener.local_addr().unwrap());
        all.0.push(listener);
    }
    all
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Returns the bytes received, up to the end or 8 bytes.
async fn said(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 8];
    let count = timeout(DEADLINE, stream.read(&mut bytes)).await.unwrap().unwrap_or(0);
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

async fn asked(address: SocketAddr, url: &str) -> String {
    let mut stream = connect(address).await;
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().ok();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, waiting).await.expect(what);
}

#[tokio::test]
async fn what_cannot_be_given_is_named() {
    let ground = ground("[model.prices.a]\ninput = 3\noutput = 15").await;
    for (json, field) in [
        (r#"[{"kind": "postgres", "tenant": "none"}]"#, "grants[0].tenant"),
        (r#"[{"kind": "mysql", "tenant": "shop"}]"#, "grants[0].tenant"),
        (
            r#"[{"kind": "postgres", "tenant": "shop", "limits": {"statement_s": -1}}]"#,
            "grants[0].limits.statement_s",
        ),
        (r#"[{"kind": "catalog", "warehouse": "lake"}]"#, "grants[0].kind"),
        (r#"[{"kind": "model"}]"#, "grants[0].kind"),
        (r#"[{"kind": "model", "models": ["a", ""]}]"#, "grants[0].models[1]"),
        (r#"[{"kind": "model", "dollars": 5}]"#, "grants[0].models"),
        (r#"[{"kind": "model", "dollars": -5, "models": ["a"]}]"#, "grants[0].dollars"),
        (r#"[{"kind": "model", "dollars": 5, "models": ["a", "b"]}]"#, "grants[0].models[1]"),
        (r#"[{"kind": "http", "rules": [{"hosts": ["a b"]}]}]"#, "grants[0].rules[0].hosts[0]"),
        (r#"[{"kind": "postgres", "tenant": "shop", "port": 0}]"#, "grants[0].port"),
    ] {
        assert_eq!(ground.wrong(json), field, "{json}");
    }
    assert_eq!(ground.wrong(&format!("[{SHOP}, {SHOP}]")), "grants[1].port");
    let many = vec![SHOP; GRANTS_MAX + 1].join(",");
    assert_eq!(ground.wrong(&format!("[{many}]")), "grants");

    let opening = ground.resolve(&grants(&format!(
        r#"[{SHOP}, {{"kind": "http", "rules": [{{"hosts": ["a"]}}]}}]"#
    )));
    assert_eq!(opening.ports(), [5432, 3128]);
    assert_eq!(opening.environment()["PGUSER"], "app");
    assert_eq!(opening.environment()["HTTP_PROXY"], "http://127.0.0.1:3128");
    assert!(
        ground
            .service
            .authorize(&who("a", false, TokenScopes::ALL), &grants(&format!("[{SHOP}]")))
            .is_err()
    );
}

#[tokio::test]
async fn sockets_are_served_until_they_are_taken_back() {
    let ground = ground("").await;
    let http = r#"{"kind": "http", "rules": [{"hosts": ["a.example"]}]}"#;
    let list = grants(&format!("[{SHOP}, {http}]"));
    let (sockets, at) = listeners(2).await;
    let gate: Box<dyn GrantGate> = ground.resolve(&list).open(sockets);
    let mut client = connect(at[0]).await;
    assert_eq!(said(&mut client).await, "admitted");
    let guest = ground.databases.guests.lock()[0].clone();
    assert_eq!((guest.holder, guest.limits.connections), (holder(), Some(20)));
    let refused = "x-cove-refused: no rule fits";
    assert!(asked(at[1], "http://b.example/").await.contains(refused));
    gate.rest();
    assert_eq!(ground.databases.rests.load(Ordering::SeqCst), 1);

    // The proxy gets new rules, and keeps its listener; the database is revoked.
    let other = r#"{"kind": "http", "rules": [{"hosts": ["b.example"], "effect": "deny"}]}"#;
    let more = r#"{"kind": "postgres", "tenant": "shop", "port": 5433}"#;
    let list = grants(&format!("[{other}, {more}]"));
    let mut held = connect(at[1]).await;
    held.write_all(b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n").await.unwrap();
    assert_eq!(said(&mut held).await, "HTTP/1.1");
    assert_eq!(gate.missing(&list), [5433]);
    gate.retain(&list);
    drop(guest.audit);
    until("the door to close", || ground.databases.doors.load(Ordering::SeqCst) == 0).await;
    assert!(TcpStream::connect(at[0]).await.is_err());
    timeout(DEADLINE, held.read_to_end(&mut Vec::new())).await.expect("an end").ok();
    let (sockets, new) = listeners(1).await;
    gate.add(ground.resolve(&list), sockets);
    assert!(asked(at[1], "http://b.example/").await.contains("x-cove-refused: rules[0]"));
    assert_eq!(said(&mut connect(new[0]).await).await, "admitted");
    // Existing grants are unchanged.
    assert!(gate.missing(&list).is_empty());
    gate.retain(&list);
    gate.add(ground.resolve(&list), Vec::new());
    assert_eq!(ground.databases.doors.load(Ordering::SeqCst), 1);

    drop(gate);
    for address in [at[1], new[0]] {
        assert!(TcpStream::connect(address).await.is_err());
    }
    until("the door to close", || ground.databases.doors.load(Ordering::SeqCst) == 0).await;
    let events: Vec<_> = ground.events().await;
    let count = |event| events.iter().filter(|(one, ..)| *one == event).count();
    assert_eq!((count(AuditEvent::Granted), count(AuditEvent::Revoked)), (4, 2));
}

#[tokio::test]
async fn what_was_used_is_not_forgotten_with_a_sandbox() {
    let ground = ground("").await;
    let http = |more: &str| {
        let rule = r#"{"hosts": ["a.example"], "effect": "deny"}"#;
        grants(&format!(
            r#"[{{"kind": "http", "rules": [{rule}], "limits": {{"requests": 3}} {more}}}]"#
        ))
    };
    let other = GrantHolder::new("exe_1", "team");
    let (first, second) = (holder(), holder());
    // Holder, further fields of the grant, and the responses to two requests.
    for (holder, more, expected) in [
        (&first, "", ["rules[0]", "rules[0]"]),
        (&second, "", ["rules[0]", "requests: "]),
        (&second, r#", "port": 3129"#, ["rules[0]", "rules[0]"]),
        (&other, "", ["rules[0]", "rules[0]"]),
    ] {
        let (sockets, at) = listeners(1).await;
        let gate = ground.service.resolve(holder, &http(more)).unwrap().open(sockets);
        for why in expected {
            let answer = asked(at[0], "http://a.example/").await;
            assert!(answer.contains(&format!("x-cove-refused: {why}")), "{holder:?} {answer}");
        }
        drop(gate);
    }
}

#[tokio::test]
async fn who_has_too_many_connections_is_told() {
    for config in ["connections_max = 3", "connections_max_per_tenant = 3"] {
        refused_beyond_three(config).await;
    }
}

async fn refused_beyond_three(config: &str) {
    let ground = ground(config).await;
    let http = r#"[{"kind": "http", "rules": [{"hosts": ["a"]}], "limits": {"connections": 2}}]"#;
    let mut gates = Vec::new();
    for (kept, refused) in [(2, 1), (1, 2)] {
        let (sockets, at) = listeners(1).await;
        let gate = ground.resolve(&grants(http)).open(sockets);
        let mut held = Vec::new();
        for _ in 0..kept {
            let mut stream = connect(at[0]).await;
            // A connection that received a response is being served.
            stream.write_all(b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n").await.unwrap();
            assert_eq!(said(&mut stream).await, "HTTP/1.1");
            held.push(stream);
        }
        for _ in 0..refused {
            let mut stream = connect(at[0]).await;
            let mut answer = Vec::new();
            timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 429") && answer.ends_with("connections\n"));
        }
        gates.push((gate, held));
    }
    assert!(ground.metrics.render().unwrap().contains("cove_gateway_connections 3"));
    let events = ground.events().await;
    let refused = |(event, outcome, _): &&(AuditEvent, AuditOutcome, String)| {
        (*event, *outcome) == (AuditEvent::Connect, AuditOutcome::Refused)
    };
    assert_eq!(events.iter().filter(refused).count(), 3);
    drop(gates);
    until("room", || ground.metrics.render().unwrap().contains("cove_gateway_connections 0")).await;
}

#[tokio::test]
async fn tenants_see_what_their_own_sandboxes_did() {
    let ground = ground("").await;
    let (sockets, _) = listeners(1).await;
    let gate = ground.resolve(&grants(&format!("[{SHOP}]"))).open(sockets);
    let all = || AuditFilter { limit: 10, ..AuditFilter::default() };
    let of = |tenant: &str| AuditFilter { tenant: Some(tenant.to_owned()), ..all() };
    let seen = async |who: &TokenPrincipal, filter| {
        let found = ground.service.audit(who, filter).await;
        found.map(|page| page.records.len()).map_err(|error| error.status().as_u16())
    };
    let scopes = |scope| -> TokenScopes { [scope].into_iter().collect() };
    assert_eq!(seen(&who("ops", true, TokenScopes::ALL), all()).await, Ok(1));
    assert_eq!(seen(&who("ops", true, TokenScopes::ALL), of("team")).await, Ok(1));
    assert_eq!(seen(&who("team", false, scopes(TokenScope::Sessions)), all()).await, Ok(1));
    assert_eq!(seen(&who("team", false, scopes(TokenScope::Executions)), of("team")).await, Ok(1));
    assert_eq!(seen(&who("other", false, TokenScopes::ALL), all()).await, Ok(0));
    assert_eq!(seen(&who("other", false, TokenScopes::ALL), of("team")).await, Err(403));
    assert_eq!(seen(&who("team", false, scopes(TokenScope::Catalog)), all()).await, Err(403));
    drop(gate);
    ground.service.close().await.unwrap();
}

#[tokio::test]
async fn who_does_not_log_in_waits_for_room_of_its_own() {
    let ground = ground("").await;
    let (sockets, at) = listeners(2).await;
    let other = r#"{"kind": "postgres", "tenant": "shop", "port": 5433}"#;
    let gate = ground.resolve(&grants(&format!("[{SHOP}, {other}]"))).open(sockets);
    let logins = Arc::clone(&ground.databases.logins);
    logins.are_kept.store(true, Ordering::SeqCst);
    let mut clients = Vec::new();
    for _ in 0..LOGINS_MAX {
        let mut client = connect(at[0]).await;
        assert_eq!(said(&mut client).await, "admitted");
        clients.push(client);
    }
    // Further connections are in the kernel's queue; those of another grant are not.
    let mut next = connect(at[0]).await;
    assert_eq!(said(&mut connect(at[1]).await).await, "admitted");
    assert_eq!(logins.kept.lock().len(), LOGINS_MAX + 1);
    drop(logins.kept.lock().swap_remove(3));
    assert_eq!(said(&mut next).await, "admitted");
    drop(gate);
}

#[tokio::test]
async fn nothing_is_written_down_when_that_is_wanted() {
    let ground = ground("audit_keep_days = 0").await;
    let (sockets, _) = listeners(1).await;
    let gate = ground.resolve(&grants(&format!("[{SHOP}]"))).open(sockets);
    assert!(ground.events().await.is_empty());
    drop(gate);
}

/// Number of connections of a sandbox that floods the server.
const FLOOD: usize = 32;

#[tokio::test]
async fn another_tenant_waits_for_one_connection_of_a_sandbox_and_not_for_all() {
    let warehouse = Arc::new(BusyWarehouse::default());
    let behind = Arc::clone(&warehouse);
    let ground = ground_behind("", EffectFence::open(), Some(behind)).await;
    let (sockets, at) = listeners(1).await;
    let list = grants(r#"[{"kind": "catalog", "warehouse": "lake"}]"#);
    let _gate = ground.resolve(&list).open(sockets);
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(connect(at[0]).await);
    }
    let BusyWarehouse { connections, steps } = &*warehouse;
    until("the connections", || connections.load(Ordering::SeqCst) == FLOOD).await;
    // Like an HTTP request, which uses the same scheduler.
    let other = ground.turns.run("other".into(), async {
        give_way().await;
        let before = steps.load(Ordering::SeqCst);
        for _ in 0..10 {
            give_way().await;
        }
        steps.load(Ordering::SeqCst) - before
    });
    let between = timeout(DEADLINE, other).await.unwrap();
    assert!(between <= 11, "{between} steps of the sandbox for 10 of another tenant");
}

#[tokio::test]
async fn an_offer_that_is_none_stops_the_start() {
    let scratch = Scratch::new();
    let mut registry = Registry::default();
    let url = StoreUrl::Sqlite(scratch.path().join("db"));
    let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
    let config = "[[offers]]\ntenants = ['*']\ngrants = ['shop']";
    let parts = GatewayParts {
        config: toml::from_str(config).unwrap(),
        store,
        databases: None,
        catalogs: None,
        models: None,
        roots: TlsRoots::Machine,
        resolver: None,
        tracer: None,
        fence: EffectFence::open(),
        amounts: None,
        turns: FairScheduler::for_this_runtime(),
    };
    let error = GatewayService::start(parts, &mut registry).await.unwrap_err();
    assert!(error.to_string().starts_with("gateway.offers[0].grants[0]"), "{error}");
}

/// Offers of two tenants, with a secret whose value is in no response.
const OFFERS: &str = r#"
    [secrets]
    partner = "planted-value"
    hidden = "other-value"
    [model]
    tokens_per_tenant = 1000
    [[offers]]
    tenants = ["a"]
    grants = ["postgres:shop:rw", "postgres:shop", "catalog:lake", "http:*.example.com"]
    roles = ["app"]
    secrets = ["partner"]
    [[offers]]
    tenants = ["*"]
    grants = ["postgres:shop", "http:open.example"]
    [[offers]]
    tenants = ["judge"]
    grants = ["mysql:secret-exams:rw", "http:judge.example"]
    secrets = ["hidden"]
    internal = ["10.7.0.0/16"]
"#;

#[tokio::test]
async fn a_token_sees_the_offers_of_its_tenant_and_no_secret() {
    let ground = ground(OFFERS).await;
    let list = |who: &TokenPrincipal| serde_json::to_value(ground.service.offers(who).unwrap());
    let of_a = list(&who("a", false, TokenScopes::ALL)).unwrap();
    let found: Vec<_> = of_a["offers"].as_array().unwrap().iter().collect();
    let shown: Vec<String> = found.iter().map(|it| it["kind"].to_string()).collect();
    let kinds = ["\"postgres\"", "\"postgres\"", "\"catalog\"", "\"http\"", "\"http\""];
    assert_eq!(shown, kinds, "{of_a}");
    // Each offer is complete; repetitions are merged.
    assert_eq!(found[0]["access"], serde_json::json!(["read_only", "read_write"]));
    assert_eq!(found[0]["roles"], serde_json::json!(["app"]));
    assert_eq!(found[1]["access"], serde_json::json!(["read_only"]));
    assert_eq!(found[1]["roles"], serde_json::json!([]));
    assert_eq!(found[2]["unavailable"], "this server has no catalog");
    assert_eq!(found[3]["secrets"], serde_json::json!(["partner"]));
    assert_eq!(found[3]["ports"], serde_json::json!([80, 443]));
    assert_eq!((&of_a["unrestricted"], &of_a["limits"]["grants"]), (&false.into(), &16.into()));
    assert_eq!(of_a["limits"]["database"]["connections"], 20);
    assert_eq!(of_a["limits"]["model_tokens"], 1000);
    for foreign in ["exams", "judge", "hidden", "10.7", "planted-value", "other-value"] {
        assert!(!of_a.to_string().contains(foreign), "{foreign}: {of_a}");
    }
    // An operator without the scope is like others; one with it sees all targets.
    let narrow = [TokenScope::Sessions].into_iter().collect();
    let of_narrow = list(&who("b", true, narrow)).unwrap();
    assert_eq!(of_narrow["offers"].as_array().unwrap().len(), 2, "{of_narrow}");
    let of_operator = list(&who("ops", true, TokenScopes::ALL)).unwrap();
    assert_eq!(of_operator["unrestricted"], true);
    assert_eq!(of_operator["offers"][0]["tenant"], "shop");
    assert_eq!(of_operator["offers"][1]["secrets"], serde_json::json!(["hidden", "partner"]));
    assert!(!of_operator.to_string().contains("-value"), "{of_operator}");
    // Without a scope for creating sandboxes no grant can be given.
    let idle = [TokenScope::Tenants, TokenScope::Agents].into_iter().collect();
    let idle = who("a", true, idle);
    assert_eq!(ground.service.offers(&idle).unwrap_err().status().as_u16(), 403);
    assert_eq!(ground.service.check(&idle, &[]).unwrap_err().status().as_u16(), 403);
}

#[tokio::test]
async fn a_check_says_what_would_be_given_and_gives_nothing() {
    let ground = ground(OFFERS).await;
    let caller = who("a", false, TokenScopes::ALL);
    let check = |json: &str| ground.service.check(&caller, &grants(json)).unwrap();
    let shop = check(&format!("[{SHOP}]"));
    assert!(shop.given && shop.grants[0].refusal.is_none());
    assert_eq!(shop.environment["PGDATABASE"], "shop");
    let report = check(
        r#"[{"kind": "postgres", "tenant": "shop", "access": "read_write", "port": 80},
            {"kind": "postgres", "tenant": "shop", "access": "read_write", "role": "app"},
            {"kind": "mysql", "tenant": "secret-exams", "port": 5432},
            {"kind": "mysql", "tenant": "nowhere", "port": 7000},
            {"kind": "catalog", "warehouse": "lake"},
            {"kind": "postgres", "tenant": "shop", "port": 8181},
            {"kind": "postgres", "tenant": "shop", "port": 9000, "limits": {"rows": 0}},
            {"kind": "http", "rules": [{"hosts": ["a.example.com"], "headers":
                {"k": {"secret": "partner"}}}]}]"#,
    );
    assert!(!report.given && report.environment.is_empty());
    let said: Vec<(&str, String)> = report
        .grants
        .iter()
        .map(|it| match &it.refusal {
            None => ("given", it.grant.clone()),
            Some(refusal) if refusal.code == api::ErrorCode::Forbidden => {
                ("forbidden", refusal.field.clone())
            }
            Some(refusal) => {
                assert_eq!(refusal.code, api::ErrorCode::InvalidRequest, "{refusal:?}");
                ("invalid_request", refusal.field.clone())
            }
        })
        .collect();
    let expected = [
        ("invalid_request", "grants[0].port"),
        ("given", "postgres:shop"),
        // The same message for another tenant's database and for one that does not exist.
        ("forbidden", "grants[2]"),
        ("forbidden", "grants[3]"),
        ("invalid_request", "grants[4].kind"),
        ("invalid_request", "grants[5].port"),
        ("forbidden", "grants[6].limits.rows"),
        ("given", "http"),
    ];
    assert_eq!(said, expected.map(|(code, field)| (code, field.to_owned())));
    assert!(!serde_json::to_string(&report).unwrap().contains("planted-value"));
    let many = format!("[{}]", vec![SHOP; GRANTS_MAX + 1].join(","));
    let error = ground.service.check(&caller, &grants(&many)).unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("grants"));
    // Every listed grant is given if it is requested as listed.
    for offered in ground.service.offers(&caller).unwrap().offers {
        let api::OfferedGrant::Postgres(offered) = offered else { continue };
        for access in offered.access {
            let role = offered.roles.first().cloned();
            let tenant = offered.tenant.clone();
            let grant = DatabaseGrant { tenant, access, role, ..DatabaseGrant::default() };
            let report = ground.service.check(&caller, &[Grant::Postgres(grant)]).unwrap();
            assert!(report.given, "{report:?}");
        }
    }
    assert_eq!(ground.databases.doors.load(Ordering::SeqCst), 0);
    assert_eq!(ground.events().await, []);
}

#[tokio::test]
async fn no_query_of_a_caller_begins_after_the_lease() {
    let lease = ServingLease::of(Duration::from_secs(3600));
    let ground = ground_within("", EffectFence::new(lease.clone())).await;
    let list = grants(&format!("[{SHOP}]"));
    let gate = ground.resolve(&list).open(listeners(1).await.0);
    ground.databases.logins.are_kept.store(true, Ordering::SeqCst);
    let asked = || async { gate.reader(&list[0]).unwrap().describe(None).await.unwrap_err() };
    let refused = asked().await;
    assert_eq!((refused.status().as_u16(), refused.detail().retry), (503, true));
    assert!(refused.to_string().contains("lost its lease"), "{refused}");
    assert!(ground.databases.logins.kept.lock().is_empty(), "nothing was connected");
    let text = ground.metrics.render().unwrap();
    assert!(text.contains("cove_gateway_fenced_total{way=\"query\"} 1\n"), "{text}");

    // This database sends an invalid response.
    lease.renewed(clock::boot_ms());
    let failed = asked().await;
    assert!(!failed.to_string().contains("lost its lease"), "{failed}");
    assert_eq!(ground.databases.logins.kept.lock().len(), 1);
}
