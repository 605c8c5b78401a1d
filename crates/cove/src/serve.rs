//! Assembles the server from its components.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::bouncer::Bouncer;
use ::bouncer::relay::HandoverConfig;
use anyhow::{Context as _, Result, bail};
use api::{EnabledServices, ErrorCode, TenantEngine, operations};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use executions::{ExecutionService, HostCapacity, Jobs, Languages, ToolHost};
use node::auth::TokenRegistry;
use node::clock::IdGenerator;
use node::cluster::{AmountLedger, LimitShares, NodeMembership, PeerForwarder};
use node::current::CurrentSettings;
use node::data_dir::DataDir;
use node::drain::{DrainHandle, Hangups};
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::http::{
    BoundListener, CompatFace, HttpListenerTls, HttpShell, ListenerSite, OperationRoutes,
    ServedInProcess, ShellLimits, serve_all,
};
use node::readiness::ReadinessChecks;
use node::shared_keys::KeyCheck;
use node::store::{SqlStore, StoreDialect};
use node::telemetry::{self, HttpMetrics, LogFormat, Registry};
use node::traces::Tracer;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use sandbox::{Engine, LaunchedSpawners};
use tokio::runtime::Runtime;
use toml::Value;

use crate::bouncer::{BouncerContext, handover};
use crate::cli::SettingArgs;
use crate::cluster::PeerAccess;
use crate::config::{ConfigSource, CoveConfig, Flags};
use crate::doctor::{DoctorService, ServerUnderTest};
use crate::gateway::GrantBackends;
use crate::greeting::{StartHint, greet};
use crate::history::{HistoryService, HistorySources};
use crate::identity::ServerIdentity;
use crate::reload::{ConfigReloader, ReloadSignals, ReloadedLimits, ReloadedServices};
use crate::scrape::MetricsPage;
use crate::sessions::{SessionNeighbours, SessionsSettings};
use crate::storage::{QueuePlace, ServerStorage};
use crate::traces::ServerTraces;
use crate::{
    backup, bouncer, catalog, cluster, compat, doctor, engine, gateway, host, identity, live,
    ready, service_manager, settings, storage,
};

/// Threads that serve requests. They do little per request; the work is done in sandboxes.
const WORKER_THREADS: usize = 2;

/// Tasks that a busy thread polls before it checks its sockets again. With the runtime's default of
/// 61, a request that arrives while all threads are busy is noticed some ten milliseconds later.
const EVENT_INTERVAL: u32 = 8;

/// Stack size of each thread. Futures are on the heap. The catalog reads schemas and filters
/// recursively, up to a depth of `iceberg::json::DEPTH_MAX`: without optimisation that took a
/// little more than 1 MiB. Unused pages take no memory.
const STACK_BYTES: usize = 8 << 20;

/// Maximum threads for blocking calls, which start on demand and end when they are idle.
const BLOCKING_THREADS_MAX: usize = 8;

/// Time that the engine's sandboxes may take to stop at the end.
const CLOSE_MAX: Duration = Duration::from_secs(20);

/// Returns the settings that have a flag.
pub(crate) fn flags(args: &SettingArgs) -> Flags {
    let mut flags = Flags::new();
    let mut set = |path, value: Option<String>, flag| {
        flags.extend(value.map(|value| (path, Value::from(value), flag)));
    };
    set("http", args.http.clone(), "--http");
    set("bouncer.listen", args.bouncer.clone(), "--bouncer");
    set("bouncer.mysql.listen", args.bouncer_mysql.clone(), "--bouncer-mysql");
    set("compat.e2b.listen", args.e2b.clone(), "--e2b");
    set("console.directory", args.console_dir.clone(), "--console-dir");
    set("log.level", args.log_level.clone(), "--log-level");
    set("log.format", args.log_format.clone(), "--log-format");
    if args.insecure_no_limits {
        let path = "sandbox.insecure_no_limits";
        flags.push((path, Value::from(true), "--insecure-no-limits"));
    }
    flags
}

/// Runs the server until a signal ends it.
pub(crate) fn serve(
    source: &ConfigSource,
    keys: KeyCheck,
    hangups: Hangups,
    takeover: Option<PathBuf>,
) -> Result<()> {
    let ConfigSource { config, environment, .. } = source;
    let log =
        telemetry::init_logs(config.log.format, config.log.level, environment.has_log_colours())
            .map_err(anyhow::Error::from_boxed)?;
    for variable in &config.ignored_variables {
        tracing::info!(variable, "looks like a setting, but is unknown");
    }
    if takeover.is_some() && !config.bouncer.enabled {
        bail!("`--takeover` is for the bouncer's clients, and `bouncer.enabled` is false");
    }
    let handover = takeover.map(handover::ask).transpose()?;
    let data_dir = handover::open_data_dir(&config.data_dir, handover.as_ref());
    let data_dir = data_dir.context("failed to open the data directory")?;

    let host = ToolHost { home: environment.home(), cache: Some(data_dir.path().join("cache")) };
    let languages = Languages::load(config.executions.languages.as_deref(), &host)
        .context("failed to load the languages")?;
    let capacity = host::capacity();

    // The spawners are forked before threads start: a process with threads must not fork.
    let runtimes = match config.sandbox.warm_runtimes {
        true => {
            let budget = config.executions.memory_budget(capacity.memory_bytes);
            let ready = config.sandbox.warm_runtimes_ready;
            languages.warm_runtimes(&config.executions, budget, ready)?
        }
        false => Vec::new(),
    };
    let storage = ServerStorage::new(config, environment, &data_dir)?;
    let sessions = SessionsSettings::new(config, environment, &data_dir, &storage.store.url)?;
    let toolchains = languages.toolchains().into_iter().chain(sessions.toolchain()).collect();
    let engine_config =
        engine::for_server(config, capacity, toolchains, runtimes, environment.is_root);
    refuse_cores().context("failed to lower the limit of core dumps")?;
    let launched = Engine::launch(engine_config).context("failed to start the sandbox engine")?;
    // Spawners have their own rule. Those forked before keep the access that they need to create
    // sandboxes without root: the `/proc` files of a process that cannot be dumped belong to root
    // (proc(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("failed to keep other processes from reading this one's memory")?;
    if launched.layers().insecure_no_limits {
        tracing::warn!("programs run although nothing limits their memory or their processes");
    }
    let runtime = runtime()?;
    let signals = ReloadSignals { source: source.clone(), log, hangups };
    let parts = ServerParts {
        source,
        data_dir,
        storage,
        keys,
        sessions,
        languages,
        capacity,
        signals,
        handover,
    };
    runtime.block_on(parts.run(launched))
}

/// Disables core dumps, which could write secrets to a disk when the server or a child process
/// crashes.
fn refuse_cores() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// Returns the runtime that serves requests.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_stack_size(STACK_BYTES)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .event_interval(EVENT_INTERVAL)
        .thread_name("cove")
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

/// Components that are created before the runtime.
struct ServerParts<'a> {
    source: &'a ConfigSource,
    data_dir: DataDir,
    storage: ServerStorage,
    keys: KeyCheck,
    sessions: SessionsSettings,
    languages: Languages,
    capacity: HostCapacity,
    signals: ReloadSignals,
    /// Handover of the bouncer's clients from the former process, and to the next one.
    handover: Option<HandoverConfig>,
}

impl ServerParts<'_> {
    async fn run(self, launched: LaunchedSpawners) -> Result<()> {
        // The most likely failures come before anything that has to be undone.
        let listener = BoundListener::bind(&self.source.config.http).await;
        let listener =
            listener.context("failed to listen: `--http` or `http` names another address")?;
        let listener = listener.with_tls(self.source.config.tls.listener()?);
        let sealer = self.sessions.sealer();
        let peers = PeerAccess::open(&self.source.config, sealer, &self.storage.store.url).await?;
        let engine = Engine::attach(launched).context("failed to start the sandbox engine")?;
        // Boxed, because it is large.
        let result = Box::pin(self.serve(listener, peers, &engine)).await;
        // Also after a failed start, so that no sandbox is left behind.
        if tokio::time::timeout(CLOSE_MAX, engine.close()).await.is_err() {
            tracing::error!("sandboxes did not go away in time");
        }
        if result.is_ok() {
            tracing::info!("stopped");
        }
        result
    }

    async fn serve(
        self,
        listener: BoundListener,
        peers: PeerAccess,
        engine: &Engine,
    ) -> Result<()> {
        let ServerParts { source, data_dir, storage, keys, languages, handover, .. } = self;
        let ServerStorage { store, queue, webhook_key } = storage;
        let ConfigSource { config, .. } = source;
        let drain = DrainHandle::new();
        let signals = drain.on_signals().context("failed to listen to signals")?;

        let (mut registry, http_metrics) = registry(engine);
        let sealer = self.sessions.sealer();
        let store = storage::open(store, &mut registry).await?;
        storage::check_keys(&store, sealer, Some(&webhook_key), keys).await?;
        let keyed = storage::idempotency_keys(&store, sealer).await?;
        let tokens = storage::tokens_of_issuers(data_dir.path(), &store, config, sealer).await?;
        let endpoint = mcp_endpoint(config)?;
        let membership = peers.join(&store, source, data_dir.path(), listener.address()).await?;
        telemetry::register_node(&mut registry, &membership.identity().id, &config.cluster.zone);
        let traces = ServerTraces::start(source, Some(membership.identity()), &mut registry)?;
        let fence = EffectFence::new(membership.serving().clone());
        let node = peers.node(&membership);
        let used = ServicesBeside::new(&store, &tokens, &drain, &membership, node, &traces, &fence);
        let SandboxServices { pooler, lake, gate, shares, turns } =
            SandboxServices::start(source, &data_dir, used, handover, &mut registry).await?;
        let control = pooler.as_ref().map(bouncer::RunningBouncer::bouncer).cloned();
        let service = begin_executions(engine, &languages, config, self.capacity, &mut registry)?;
        let service = service.with_gateway(Arc::new(gate.clone())).with_tokens(tokens.clone());
        let service = service.traced_by(traces.tracer()).with_shared_limits(shares);
        let jobs = begin_jobs(service, queue, webhook_key, config, &store, &mut registry).await?;
        let beside = session_neighbours(&store, &gate, &tokens, &membership, &jobs, fence, &turns);
        let sessions = self.sessions.start(config, engine.clone(), beside, &mut registry).await?;
        let limits = ReloadedLimits::new(config);
        let forwarder = peers.forwarder(&membership, &store, &sessions, &jobs).await?;
        let shell = http_shell(limits.shell.clone(), &tokens, &drain, http_metrics.clone())?;
        let shell = shell.traced_by(traces.tracer());
        let shell = shell.forwarding(forwarder.clone()).with_keys(keyed.clone());
        let faces = compat::faces(&config.compat, &jobs, forwarder.clone());
        let of_faces = compat::for_peers(&faces);
        let readiness = ready::checks(&store, Some((&jobs, &languages)), limits.disk());
        let metrics =
            MetricsPage::new(registry, &readiness, listener.tls(), Some(&jobs), data_dir.path());
        let open = open_routes(&drain, metrics.clone(), readiness).merge(pages(config));
        let ending = lake.as_ref().map(catalog::RunningCatalog::ending);
        let native = native_routes(open, &jobs, &sessions, &gate, control.as_ref());
        let (history, past) = HistoryService::open(membership.identity(), config.history);
        let backup = backup::routes_of(source, &data_dir, &store, &sessions, &membership).await?;
        let of_nodes = cluster::routes(&membership, jobs.service(), &sessions);
        let native = native.merge(of_nodes).merge(past).merge(backup);
        let identity = identity(&tokens, &membership, &sessions, control.is_some(), lake.is_some());
        let doctor = doctor_of(engine, &jobs, &languages, &sessions, &membership, &data_dir);
        let measured =
            history_sources(engine, &jobs, &sessions, (&control, &lake), &gate, http_metrics);
        let reloaded = Some(ReloadedServices::of(&measured, self.capacity));
        let (reload, hangup) = self.signals.reloader(reloaded, &tokens, listener.tls(), &limits)?;
        let native = native.merge(operator_routes(&reload, identity, &doctor, &tokens, config));
        let (routes, mut shapes) = compat::mount(native, &faces);
        let (ash, shapes_of_ash) = compat::ash(&config.compat, sessions.clone(), &drain)?;
        let of_lake = lake.as_ref().map(|it| it.routes(keyed));
        shapes.extend(shapes_of_ash.into_iter().chain(native_shapes(&endpoint)));
        let (e2b, of_e2b) = compat::e2b(&config.compat, &shell, sessions.clone(), &tokens).await?;
        let dbbouncer =
            compat::dbbouncer(&config.compat, &shell, control.as_ref(), &drain, metrics).await?;
        let others = addresses([("e2b", &e2b), ("dbbouncer", &dbbouncer)], pooler.as_ref());
        announce(source, &data_dir, listener.address(), &others, &tokens).await?;
        let listeners = compat::listen(faces, &config.compat, &shell).await?;
        let feeds = followed_feeds(&jobs, &sessions, &store, config);
        let live = live::LiveEndpoint::new(config.host_names(), feeds);
        let (main, tools) = main_site(&shell, (endpoint, live), routes.merge(ash), shapes, of_lake);
        let of_beside = join_nodes(pooler.as_ref(), lake.as_ref(), forwarder.as_ref());
        let of_others = of_faces.merge(of_e2b).merge(of_beside);
        let for_peers =
            cluster::sites(&main, e2b.as_ref().map(|(_, site)| site), of_others, &jobs, &sessions);
        let tls = listener.tls().cloned();
        let others = listeners.into_iter().chain(e2b).chain(dbbouncer);
        let listeners = with_tls_of_main(others, (listener, main));
        let serving = serve_all(listeners, limits.shell, &turns, drain.clone(), config.drain_s);
        let keep = cluster::keep(&membership, forwarder.clone(), source, &data_dir, &drain, &jobs);
        let working = async {
            let sessions = sessions.work(&drain, config.drain_s);
            let others = work_beside(pooler, lake, &drain, config.drain_s);
            let peers = peers.serve(&membership, for_peers, turns, &drain, config.drain_s);
            let executions = cluster::run_executions(&jobs, &membership, forwarder, &drain);
            tokio::join!(serving, peers, executions, sessions, others);
        };
        let manager = service_manager::follow(&source.environment, &drain);
        let kept = async { tokio::join!(keep, manager, history.work(measured)) };
        let signals = async { tokio::join!(signals, kept, doctor.work(), reload.follow(hangup)).0 };
        Box::pin(run_background_tasks(working, signals, tokens, languages, tls)).await;
        close_all(tools, ending, &gate, &membership, &store, traces).await;
        data_dir.remove_addresses().context("failed to remove the addresses")
    }
}

/// Returns the components that sessions use.
fn session_neighbours(
    store: &SqlStore,
    gate: &::gateway::GatewayService,
    tokens: &TokenRegistry,
    membership: &NodeMembership,
    jobs: &Jobs,
    fence: EffectFence,
    turns: &FairScheduler,
) -> SessionNeighbours {
    SessionNeighbours {
        store: store.clone(),
        gateway: Arc::new(gate.clone()),
        tokens: tokens.clone(),
        membership: membership.clone(),
        executions: jobs.service().clone(),
        fence,
        turns: turns.clone(),
    }
}

/// Starts asynchronous executions with the configured queue.
async fn begin_jobs(
    service: ExecutionService,
    place: QueuePlace,
    webhook_key: [u8; 32],
    config: &CoveConfig,
    store: &SqlStore,
    registry: &mut Registry,
) -> Result<Jobs> {
    let settings = config.executions.jobs.clone();
    let queue = place.open(store, &settings).await?;
    Jobs::new(service, queue, settings, webhook_key, registry).context("failed to start executions")
}

/// Returns the routes about the server itself: the caller's identity, doctor and settings.
fn operator_routes(
    configuration: &ConfigReloader,
    identity: ServerIdentity,
    doctor: &DoctorService,
    tokens: &TokenRegistry,
    config: &CoveConfig,
) -> Router {
    identity::routes(identity, config.host_names())
        .merge(doctor::routes(doctor.clone()))
        .merge(settings::routes(configuration.clone(), tokens.clone()))
}

/// Returns the metrics registry with the metrics of the engine and of HTTP.
fn registry(engine: &Engine) -> (Registry, HttpMetrics) {
    let mut registry = telemetry::registry(env!("CARGO_PKG_VERSION"));
    let http_metrics = HttpMetrics::new(&mut registry).counting_below(::catalog::http::PREFIX);
    engine::register(engine, &mut registry);
    (registry, http_metrics)
}

/// Returns the shell that all HTTP listeners share.
fn http_shell(
    limits: CurrentSettings<ShellLimits>,
    tokens: &TokenRegistry,
    drain: &DrainHandle,
    metrics: HttpMetrics,
) -> Result<HttpShell> {
    let ids = IdGenerator::new().context("failed to seed the id generator")?;
    Ok(HttpShell::new(limits, tokens.clone(), drain.clone(), metrics, ids)
        .streaming(&operations::upload_paths())
        .streaming(&sessions::faces::ash::STREAMING)
        .streaming(&::catalog::http::STREAMING))
}

/// Components of the server that services for sandboxes use.
struct ServicesBeside<'a> {
    store: &'a SqlStore,
    tokens: &'a TokenRegistry,
    drain: &'a DrainHandle,
    membership: &'a NodeMembership,
    /// Name of this node, if other nodes reach it.
    node: Option<String>,
    tracer: Option<Tracer>,
    /// Blocks outgoing effects of sandboxes after the server's lease has ended.
    fence: EffectFence,
    /// Scheduler of HTTP callers, which connections of sandboxes share.
    turns: FairScheduler,
}

impl<'a> ServicesBeside<'a> {
    fn new(
        store: &'a SqlStore,
        tokens: &'a TokenRegistry,
        drain: &'a DrainHandle,
        membership: &'a NodeMembership,
        node: Option<String>,
        traces: &ServerTraces,
        fence: &EffectFence,
    ) -> ServicesBeside<'a> {
        let (tracer, fence) = (traces.tracer(), fence.clone());
        let turns = FairScheduler::for_this_runtime();
        ServicesBeside { store, tokens, drain, membership, node, tracer, fence, turns }
    }
}

/// Services that sandboxes may reach, and the gateway that admits them.
struct SandboxServices {
    pooler: Option<bouncer::RunningBouncer>,
    lake: Option<catalog::RunningCatalog>,
    gate: ::gateway::GatewayService,
    /// This node's share of limits that apply to all nodes together, if there are any.
    shares: Option<LimitShares>,
    turns: FairScheduler,
}

impl SandboxServices {
    async fn start(
        source: &ConfigSource,
        data_dir: &DataDir,
        beside: ServicesBeside<'_>,
        handover: Option<HandoverConfig>,
        registry: &mut Registry,
    ) -> Result<SandboxServices> {
        let ServicesBeside { store, tokens, drain, membership, node, tracer, fence, turns } =
            beside;
        let removals = data_dir.removals().clone();
        let ConfigSource { config, environment, .. } = source;
        let sealer = storage::objects::sealer(config, environment, data_dir.path())?;
        let shares = LimitShares::open(store, membership, config.cluster.limits).await?;
        let context =
            BouncerContext::for_server(store.clone(), sealer, drain, shares.clone(), handover);
        let pooler = bouncer::RunningBouncer::start(source, context, registry).await?;
        let lake = catalog::RunningCatalog::start(
            config,
            environment,
            data_dir.path(),
            store,
            tokens,
            catalog::CatalogSite { node, removals },
        )
        .await?;
        if let Some(lake) = &lake {
            lake.register(registry);
        }
        let bouncer = pooler.as_ref().map(bouncer::RunningBouncer::bouncer);
        let guests = lake.as_ref().map(catalog::RunningCatalog::guests);
        let scope = config.cluster.limits;
        let amounts = AmountLedger::open(store, membership, scope, registry).await?;
        let behind = GrantBackends { bouncer, guests, tracer, fence, amounts, turns: &turns };
        let gate = gateway::start(config, environment, store, behind, registry).await?;
        Ok(SandboxServices { pooler, lake, gate, shares, turns })
    }
}

/// Writes pending records, and marks this server as stopped.
async fn close_all(
    tools: [ServedInProcess; 2],
    ending: Option<catalog::CatalogShutdown>,
    gate: &::gateway::GatewayService,
    membership: &NodeMembership,
    store: &SqlStore,
    traces: ServerTraces,
) {
    drop(tools);
    let writing = async {
        if let Some(ending) = ending {
            ending.write().await;
        }
        if let Err(error) = gate.close().await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the last of the audit could not be written");
        }
        membership.leave().await;
        store.close().await;
    };
    storage::finish(writing).await;
    traces.close().await;
}

fn begin_executions(
    engine: &Engine,
    languages: &Languages,
    config: &CoveConfig,
    capacity: HostCapacity,
    registry: &mut Registry,
) -> Result<ExecutionService> {
    let limits = config.executions.clone();
    let service =
        ExecutionService::new(engine.clone(), languages.clone(), limits, capacity, registry);
    service.context("failed to start executions")
}

/// Runs the tasks of the bouncer and the catalog, if they are enabled.
async fn work_beside(
    pooler: Option<bouncer::RunningBouncer>,
    lake: Option<catalog::RunningCatalog>,
    drain: &DrainHandle,
    patience: Duration,
) {
    let pooling = async {
        if let Some(pooler) = pooler {
            pooler.work(drain, patience).await;
        }
    };
    let keeping = async {
        if let Some(lake) = lake {
            lake.work(drain).await;
        }
    };
    tokio::join!(pooling, keeping);
}

/// Connects the bouncer and the catalog to other nodes, if there are any. Returns the routes for
/// the other nodes.
fn join_nodes(
    pooler: Option<&bouncer::RunningBouncer>,
    lake: Option<&catalog::RunningCatalog>,
    nodes: Option<&PeerForwarder>,
) -> Router {
    let Some(nodes) = nodes else { return Router::new() };
    let of_bouncer = pooler.map(|it| it.join(nodes.clone()));
    let of_catalog = lake.map(|it| it.join(nodes.clone()));
    of_bouncer.into_iter().chain(of_catalog).fold(Router::new(), Router::merge)
}

/// Returns the routes for people: the documentation and the console.
fn pages(config: &CoveConfig) -> Router {
    site::routes().merge(::console::routes(&config.console, config.host_names()))
}

/// Returns the routes of the native interface.
fn native_routes(
    open: Router,
    jobs: &Jobs,
    sessions: &sessions::Sessions,
    gate: &::gateway::GatewayService,
    bouncer: Option<&Bouncer>,
) -> Router {
    let why = "it is not enabled, or its address is in use";
    open.merge(executions::http::routes(jobs.clone()))
        .merge(sessions::http::routes(sessions.clone()))
        .merge(::gateway::http::routes(gate.clone()))
        .merge(::bouncer::http::routes(bouncer.cloned().ok_or(why)))
}

/// Returns the server's identity and its enabled services.
fn identity(
    tokens: &TokenRegistry,
    membership: &NodeMembership,
    sessions: &sessions::Sessions,
    bouncer: bool,
    catalog: bool,
) -> ServerIdentity {
    let services = EnabledServices {
        executions: true,
        queue: true,
        sessions: sessions.resident_max() > 0,
        bouncer,
        catalog,
        gateway: true,
    };
    let node = membership.identity().id.clone();
    ServerIdentity { tokens: tokens.clone(), node, services }
}

/// Returns the checks of this server, which run on request.
fn doctor_of(
    engine: &Engine,
    jobs: &Jobs,
    languages: &Languages,
    sessions: &sessions::Sessions,
    membership: &NodeMembership,
    data_dir: &DataDir,
) -> DoctorService {
    DoctorService::new(ServerUnderTest {
        engine: engine.clone(),
        executions: jobs.service().clone(),
        languages: languages.clone(),
        sessions_missing: sessions.why_unavailable().map(str::to_owned),
        data_dir: data_dir.path().to_owned(),
        is_root: host::is_root(),
        node: membership.identity().id.clone(),
    })
}

/// Returns the sources of the history.
fn history_sources(
    engine: &Engine,
    jobs: &Jobs,
    sessions: &sessions::Sessions,
    (bouncer, lake): (&Option<Bouncer>, &Option<catalog::RunningCatalog>),
    gate: &::gateway::GatewayService,
    http: HttpMetrics,
) -> HistorySources {
    HistorySources {
        engine: engine.clone(),
        executions: jobs.service().clone(),
        sessions: sessions.clone(),
        bouncer: bouncer.clone(),
        catalog: lake.as_ref().map(catalog::RunningCatalog::relations),
        gateway: gate.clone(),
        http,
    }
}

/// Returns the feeds that announce changes of lists.
fn followed_feeds(
    jobs: &Jobs,
    sessions: &sessions::Sessions,
    store: &SqlStore,
    config: &CoveConfig,
) -> live::FollowedFeeds {
    // Other programs add executions to a queue in Redis.
    let has_redis = config.executions.jobs.redis.is_some();
    live::FollowedFeeds {
        executions: jobs.changes().clone(),
        sessions: sessions.changes().cloned().unwrap_or_default(),
        has_others: has_redis || store.dialect() != StoreDialect::Sqlite,
    }
}

/// Returns the access rules of the native routes.
fn native_shapes(
    endpoint: &::mcp::McpEndpoint,
) -> impl Iterator<Item = (&'static str, CompatFace)> + use<> {
    let of_mcp = CompatFace { challenge: endpoint.challenge(), ..CompatFace::NATIVE };
    node::http::native_faces(operations::all()).into_iter().chain([(::mcp::PATH, of_mcp)])
}

/// Returns the endpoint of tools for agents, initially without routes.
pub(crate) fn mcp_endpoint(config: &CoveConfig) -> Result<::mcp::McpEndpoint> {
    let key = node::auth::random_key().context("failed to make a key for the states of tools")?;
    let issuers = &config.auth.issuers;
    let resource = match issuers.first() {
        None => None,
        Some(first) => {
            let address = config.mcp.resource.as_ref().unwrap_or(&first.audience);
            let names: Vec<&str> = issuers.iter().map(|it| it.issuer.as_str()).collect();
            let scopes = issuers.iter().flat_map(|it| it.token_scopes().iter()).collect();
            Some(::mcp::ProtectedResource::new(address, &names, scopes)?)
        }
    };
    let endpoint = ::mcp::McpEndpoint::new(env!("CARGO_PKG_VERSION"), config.mcp.clone(), &key);
    Ok(endpoint.protected_as(resource))
}

/// Returns the site of the main listener, and the guards of its routes for agents' tools and live
/// topics, which use them in this process.
fn main_site(
    shell: &HttpShell,
    (endpoint, live): (::mcp::McpEndpoint, live::LiveEndpoint),
    routes: Router,
    shapes: Vec<(&'static str, CompatFace)>,
    of_lake: Option<catalog::CatalogRoutes>,
) -> (ListenerSite, [ServedInProcess; 2]) {
    let routes = routes.merge(::mcp::routes(endpoint.clone())).merge(live::routes(live.clone()));
    let main = catalog::site(shell, routes, shapes, of_lake);
    let served = [endpoint.serve_from(main.routes()), live.serve_from(main.routes())];
    (main, served)
}

/// Returns all listeners; the others use the main listener's certificate.
fn with_tls_of_main(
    others: impl Iterator<Item = (BoundListener, ListenerSite)>,
    main: (BoundListener, ListenerSite),
) -> Vec<(BoundListener, ListenerSite)> {
    let tls = main.0.tls().cloned();
    others.map(|(other, site)| (other.with_tls(tls.clone()), site)).chain([main]).collect()
}

/// Announces the server's addresses: in the data directory, in the log, and in the greeting.
async fn announce(
    source: &ConfigSource,
    data_dir: &DataDir,
    address: SocketAddr,
    others: &[(&'static str, SocketAddr)],
    tokens: &TokenRegistry,
) -> Result<()> {
    data_dir.write_addresses(address, others).context("failed to write the addresses")?;
    tracing::info!(%address, data_dir = %data_dir.path().display(), "listening");
    let console = first_sign_in(source, tokens).await;
    greet(source, address, data_dir.path(), StartHint::Server { console });
    Ok(())
}

/// Returns the path of the console with a code of the first token, for the user who started the
/// server. None if that token is another server's or was revoked, or if the greeting is not
/// printed.
async fn first_sign_in(source: &ConfigSource, tokens: &TokenRegistry) -> Option<String> {
    // Under a service manager, standard error is a log, which must not contain a code.
    let is_read = source.config.log.format == LogFormat::Text
        && !service_manager::is_waiting(&source.environment);
    if !tokens.has_console() || !is_read {
        return None;
    }
    let first = std::fs::read_to_string(tokens.first_token_path()).ok()?;
    let who = tokens.verify(first.trim())?;
    match tokens.console_code(&who, None).await {
        Ok(code) => Some(identity::url_path(code.expose())),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "failed to make a code for the console");
            None
        }
    }
}

/// Returns the addresses of all listeners except the main one.
fn addresses<const N: usize>(
    faces: [(&'static str, &Option<(BoundListener, ListenerSite)>); N],
    pooler: Option<&bouncer::RunningBouncer>,
) -> Vec<(&'static str, SocketAddr)> {
    let faces = faces.into_iter().filter_map(|(name, it)| Some((name, it.as_ref()?.0.address())));
    let engines = [("bouncer", TenantEngine::Postgres), ("mysql", TenantEngine::Mysql)];
    let pooler =
        engines.into_iter().filter_map(|(name, engine)| Some((name, pooler?.address(engine)?)));
    faces.chain(pooler).collect()
}

/// Serves requests, and runs background tasks until the end.
async fn run_background_tasks(
    serving: impl Future<Output = ()>,
    signals: impl Future<Output = ()>,
    tokens: TokenRegistry,
    languages: Languages,
    tls: Option<HttpListenerTls>,
) {
    languages.announce_preparation();
    let background = async {
        let prepare = async {
            // All ways first: preparation takes minutes, and the list of languages shows them.
            languages.choose_ways().await;
            languages.prepare(sandbox::tied).await;
        };
        let certificate = async {
            if let Some(tls) = tls {
                tls.certificate.keep_current().await;
            }
        };
        tokio::join!(signals, tokens.keep_current(), prepare, certificate);
    };
    tokio::select! {
        () = serving => {}
        () = background => {}
    }
}

/// Returns the routes that need no token.
pub(crate) fn open_routes(
    drain: &DrainHandle,
    metrics: MetricsPage,
    readiness: ReadinessChecks,
) -> Router {
    let drain = drain.clone();
    let ready = move || {
        let (draining, readiness) = (drain.is_draining(), readiness.clone());
        async move {
            if draining {
                return Err(node::http::HttpError::draining());
            }
            let missing = readiness.missing().await;
            if missing.is_empty() {
                let preparing = readiness.preparing();
                let text = match preparing.is_empty() {
                    true => "ready\n".to_owned(),
                    false => format!("ready\npreparing: {}\n", preparing.join(", ")),
                };
                return Ok((StatusCode::OK, text));
            }
            let message = format!("the server is not ready: {}", missing.join("; "));
            let error = node::http::HttpError::new(ErrorCode::Overloaded, message);
            Err(error.retry_after(node::readiness::CHECK_INTERVAL))
        }
    };
    OperationRoutes::of(operations::server::HEALTH)
        .serve(&operations::server::LIVE, || async { "live\n" })
        .serve(&operations::server::READY, ready)
        .serve(&operations::server::METRICS, move |headers: HeaderMap| async move {
            metrics.response(&headers).await
        })
        .routes()
}
