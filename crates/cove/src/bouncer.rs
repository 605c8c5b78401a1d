//! Starts the bouncer, within a server or alone, with its environment and configuration.

pub(crate) mod handover;
mod passing;
mod peers;
mod pgbouncer;
mod top;

use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::{BouncerReloaded, TenantEngine};
use axum::http::Method;
use bouncer::auth::ProtocolKeyrings;
use bouncer::auth_query::{AuthQueries, UserLookupTask};
use bouncer::config::{
    BouncerConfig, MYSQL_SERVER_VERSION_BYTES_MAX, MYSQL_SOCKET, PORT_DEFAULT, TlsTable,
};
use bouncer::health::ServerProber;
use bouncer::pgbouncer::access::PgBouncerConsole;
use bouncer::pgbouncer::command::ShutdownWait;
use bouncer::pgbouncer::console::{AdminConsole, ConsoleHost};
use bouncer::pgbouncer::settings::SettingValues;
use bouncer::relay::{
    ErrorDialect, FormerProcess, HandoverConfig, ListenAddress, ListenerSpec, Relay, RelayConfig,
    RelayParts, RelayStartError, TcpPolicy,
};
use bouncer::service::{BouncerParts, InitialTenants, RelayThreads, Reread, Resolver};
use bouncer::tls::{ClientSide, ClientTls, ServerSide};
use bouncer::{Bouncer, metrics};
use node::auth;
use node::cluster::{LimitShares, PeerForwarder};
use node::drain::{DrainHandle, Hangups};
use node::sealed::Sealer;
use node::store::SqlStore;
use node::telemetry::{self, Registry};
use pooler_core::pg::login::{CleartextPolicy, PgPasswordMethod};
use tokio::runtime::{Handle, Runtime};

use crate::cli::{BouncerArgs, BouncerCommand};
use crate::config::ConfigSource;
use crate::reload::ReloadError;
use crate::remote::{self, Remote};
use crate::run::print_json;
use crate::{config, service_manager};

/// Purpose of the key from which salts for unknown users are derived.
const LOGIN_PURPOSE: &str = "bouncer/logins";

/// Interval at which certificates are checked for changes.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Running bouncer.
pub(crate) struct RunningBouncer {
    bouncer: Bouncer,
    relay: Arc<Relay>,
    client_tls: Arc<ClientSide>,
    server_tls: Arc<ServerSide>,
    /// SIGHUP; none if the server reloads the configuration.
    hangups: Option<Hangups>,
    /// Routes through which other nodes query the console.
    for_peers: axum::Router,
}

/// Environment of the bouncer: its store, secrets, and limits.
pub(crate) struct BouncerContext {
    /// Store of tenants created through the HTTP interface; none for a bouncer without a server.
    pub(crate) store: Option<(SqlStore, Sealer)>,
    /// Secret from which salts are derived; persistent in a server.
    pub(crate) login_secret: [u8; 32],
    /// Process that the console controls.
    pub(crate) host: Arc<dyn ConsoleHost>,
    /// Handover from another process, and to the next one.
    pub(crate) succession: Option<HandoverConfig>,
    /// SIGHUP, which reloads the configuration; none if the server does.
    pub(crate) hangups: Option<Hangups>,
    /// Shares of the limits that apply to all nodes together, if there are any.
    pub(crate) limits: Option<LimitShares>,
}

/// Process that is configured by `cove.toml`, as the console controls it.
#[derive(Debug)]
struct ConsoleProcess(DrainHandle);

impl ConsoleHost for ConsoleProcess {
    fn words(&self) -> ErrorDialect {
        ErrorDialect::Own
    }

    fn values(&self) -> SettingValues {
        SettingValues::default()
    }

    fn set(&self, key: &str, _value: &str) -> Result<(), String> {
        Err(format!("{key} cannot be set here: the settings are those of cove.toml"))
    }

    fn shutdown(&self, wait: ShutdownWait) {
        match wait {
            ShutdownWait::Nobody => self.0.cancel(),
            ShutdownWait::Servers | ShutdownWait::Clients => self.0.begin(),
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.0.is_draining()
    }
}

/// Configuration of the bouncer, and the functions that resolve and reload it.
struct ConfigUpdate {
    config: BouncerConfig,
    resolve: Arc<Resolver>,
    reread: Arc<Reread>,
}

impl BouncerContext {
    /// Returns the context of a bouncer within a server.
    pub(crate) fn for_server(
        store: SqlStore,
        sealer: Sealer,
        drain: &DrainHandle,
        limits: Option<LimitShares>,
        succession: Option<HandoverConfig>,
    ) -> BouncerContext {
        let login_secret = sealer.derived_key(LOGIN_PURPOSE);
        let host = Arc::new(ConsoleProcess(drain.clone()));
        BouncerContext {
            store: Some((store, sealer)),
            login_secret,
            host,
            succession,
            hangups: None,
            limits,
        }
    }
}

/// Remedies if another program, PgBouncer for example, uses the address.
const MOVE: &str = "choose another address by `[bouncer] listen`, `[bouncer.mysql] listen`, \
                    `--bouncer` or `--bouncer-mysql`, or have no bouncer by `[bouncer] enabled = \
                    false`";

impl RunningBouncer {
    /// Starts the bouncer if it is enabled. If the default address is in use, it only logs a
    /// warning: the other program is another bouncer, most often another Cove.
    pub(crate) async fn start(
        source: &ConfigSource,
        context: BouncerContext,
        registry: &mut Registry,
    ) -> Result<Option<RunningBouncer>> {
        let environment = source.environment.clone();
        let again = source.clone();
        let update = ConfigUpdate {
            config: source.config.bouncer.clone(),
            resolve: Arc::new(move |setting, text| {
                config::resolve(setting, text, &environment).map_err(|error| error.to_string())
            }),
            reread: Arc::new(move || {
                again
                    .reload_for_bouncer()
                    .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
            }),
        };
        RunningBouncer::start_with(update, context, registry).await
    }

    async fn start_with(
        update: ConfigUpdate,
        context: BouncerContext,
        registry: &mut Registry,
    ) -> Result<Option<RunningBouncer>> {
        let ConfigUpdate { config, resolve, reread } = update;
        if !config.enabled {
            return Ok(None);
        }
        let BouncerContext { store, login_secret, host, succession, hangups, limits } = context;
        let resolver = Arc::clone(&resolve);
        let parts = BouncerParts { config: config.clone(), resolve, reread, store };
        let prepared = InitialTenants::new(parts).await.map_err(|error| explain(&error))?;
        let config = &config;
        let keyrings = ProtocolKeyrings::new(login_secret, PgPasswordMethod::Best);
        let client_tls = ClientSide::new(client_tls(&config.tls)).context("bouncer.tls")?;
        let (client_tls, server_tls) = (Arc::new(client_tls), Arc::<ServerSide>::default());
        let kept = Duration::from_secs(config.auth_query_s.into());
        let queries = Arc::new(AuthQueries::new(Arc::clone(&server_tls), kept));
        let relay_parts = RelayParts {
            current: Arc::clone(prepared.current()),
            keyrings: keyrings.clone(),
            client_tls: Arc::clone(&client_tls),
            server_tls: Arc::clone(&server_tls),
            look_up: Arc::new(UserLookupTask::new(queries, Handle::current())),
        };
        let shared = RelayConfig { shares_limits: limits.is_some(), ..relay_config(config)? };
        let relay = match Relay::start_after(shared, relay_parts, succession) {
            Ok(relay) => Arc::new(relay),
            Err(error @ RelayStartError::Listen(_)) if config.listen.is_default() => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the bouncer is not running, because its address is in use: {}",
                    MOVE
                );
                return Ok(None);
            }
            Err(error @ RelayStartError::Listen(_)) => {
                return Err(error).with_context(|| format!("failed to start the bouncer: {MOVE}"));
            }
            Err(error) => return Err(error).context("failed to start the bouncer"),
        };
        let probe = ServerProber::new(keyrings.clone(), Arc::clone(&server_tls));
        let threads: Arc<dyn RelayThreads> = Arc::<Relay>::clone(&relay);
        let bouncer = prepared.start(threads, Arc::new(probe), keyrings);
        if let Some(limits) = limits {
            bouncer.share_limits(limits);
        }
        let console = AdminConsole::new(bouncer.clone(), host);
        let for_peers = console.peer_routes();
        let access = PgBouncerConsole::new(console, bouncer.clone(), resolver, Handle::current());
        relay.open_console(Arc::new(access));
        metrics::register(&bouncer, registry);
        Ok(Some(RunningBouncer { bouncer, relay, client_tls, server_tls, hangups, for_peers }))
    }

    /// Forwards cancel requests to other nodes, and includes the figures of all nodes. Returns the
    /// routes through which other nodes do the same.
    pub(crate) fn join(&self, nodes: PeerForwarder) -> axum::Router {
        self.bouncer.peers().join(nodes.clone());
        if self.relay.shares_limits() {
            passing::pass_clients_on(&self.relay, nodes.clone());
        }
        peers::pass_cancels_on(&self.relay, nodes);
        let of_tenants = ::bouncer::service::peer_routes(self.bouncer.clone());
        let of_relay = peers::routes(Arc::clone(&self.relay));
        let of_relay = of_relay.merge(passing::routes(Arc::clone(&self.relay)));
        of_relay.merge(of_tenants).merge(self.for_peers.clone())
    }

    /// Returns the control plane.
    pub(crate) fn bouncer(&self) -> &Bouncer {
        &self.bouncer
    }

    /// Returns the address of the first listener for clients of this engine.
    pub(crate) fn address(&self, engine: TenantEngine) -> Option<SocketAddr> {
        let mut addresses = self.relay.addresses().iter();
        addresses.find(|(of, _)| *of == engine).map(|(_, address)| *address)
    }

    /// Runs until the server drains; then waits up to `patience` for clients to leave, and stops.
    pub(crate) async fn work(mut self, drain: &DrainHandle, patience: Duration) {
        let works = async {
            self.bouncer.work(drain, patience).await;
            if self.relay.is_taken_over() {
                // Disconnecting starts only after the next process had time to take the clients.
                std::future::pending().await
            }
        };
        tokio::select! {
            () = works => {}
            () = reload(&self.bouncer, self.hangups.as_mut()) => {}
            () = renew_certificates(&self.client_tls, &self.server_tls) => {}
            () = taken_over(&self.relay, drain, patience) => {}
        }
        self.relay.drain();
        let gone = async {
            while self.relay.has_clients() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = gone => {}
            () = tokio::time::sleep(patience) => {
                tracing::warn!("clients of the bouncer were still there when the time was up");
            }
            () = drain.cancelled() => {}
        }
        let relay = Arc::clone(&self.relay);
        // Each thread ends after its current turn.
        if node::task::blocking(move || relay.stop()).await.is_err() {
            tracing::error!("the end of the bouncer failed");
        }
    }
}

/// Waits until another process has taken over, then up to `patience` for the last client. Then the
/// whole process stops.
async fn taken_over(relay: &Relay, drain: &DrainHandle, patience: Duration) {
    while !relay.is_taken_over() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    drain.begin();
    let gone = async {
        while relay.has_clients() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    // The remaining clients are disconnected as in any shutdown.
    drop(tokio::time::timeout(patience, gone).await);
}

/// Reloads the configuration at every SIGHUP. Never returns.
async fn reload(bouncer: &Bouncer, hangups: Option<&mut Hangups>) {
    let Some(hangups) = hangups else { return std::future::pending().await };
    loop {
        hangups.next().await;
        if let Err(error) = bouncer.reload().await {
            tracing::warn!(error = %explain(&error), "the configuration is not taken over");
        }
    }
}

async fn renew_certificates(client: &Arc<ClientSide>, server: &Arc<ServerSide>) {
    let mut was_failing = false;
    loop {
        tokio::time::sleep(CERTIFICATES_EVERY).await;
        let (client, server) = (Arc::clone(client), Arc::clone(server));
        let looked = node::task::blocking(move || {
            let mut errors = server.refresh();
            match client.refresh() {
                Ok(true) => tracing::info!("the bouncer has another certificate"),
                Ok(false) => {}
                Err(error) => errors.push(error),
            }
            errors
        });
        let errors = looked.await.unwrap_or_default();
        for error in errors.iter().filter(|_| !was_failing) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "a certificate cannot be read again; the old one holds");
        }
        was_failing = !errors.is_empty();
    }
}

/// Returns an error with the name of the refused field, if there is one, and the reason.
fn explain(error: &bouncer::BouncerError) -> anyhow::Error {
    match refusal(error) {
        ReloadError::Refused(refused) => refused.into(),
        ReloadError::Failed(error) => error,
    }
}

/// Converts an error for callers of the HTTP interface.
pub(crate) fn refusal(error: &bouncer::BouncerError) -> ReloadError {
    match error {
        bouncer::BouncerError::Refused(refusal) => {
            ReloadError::Refused(config::CoveConfigError::Value {
                origin: refusal.field.clone(),
                message: refusal.message.clone(),
            })
        }
        other => ReloadError::Failed(anyhow::anyhow!("failed to read the tenants: {other}")),
    }
}

fn client_tls(table: &TlsTable) -> ClientTls {
    let TlsTable { mode, cert, key, client_ca } = table.clone();
    ClientTls { mode, cert, key, client_ca }
}

/// Returns the combinations of valid values that prevent the bouncer from starting, each as a
/// setting and a message.
pub(crate) fn contradictions(
    config: &config::CoveConfig,
    environment: &config::Environment,
) -> Vec<(String, String)> {
    let config = &config.bouncer;
    let resolve = |setting: &str, text: &str| {
        config::resolve(setting, text, environment).map_err(|error| error.to_string())
    };
    let of_relay = relay_config(config).map(drop);
    let of_tls = ClientSide::new(client_tls(&config.tls)).map(drop).context("bouncer.tls");
    let of_relay = [of_relay, of_tls].into_iter().filter_map(Result::err);
    let of_relay = of_relay.map(|error| ("bouncer".to_owned(), format!("{error:#}")));
    let of_tenants = bouncer::service::check_tenants(config, &resolve).into_iter();
    of_relay.chain(of_tenants.map(|error| (error.field, error.message))).collect()
}

/// Returns the relay's part of the configuration.
fn relay_config(config: &BouncerConfig) -> Result<RelayConfig> {
    let threads = match config.threads {
        Some(count) => {
            Some(NonZeroUsize::new(count).context("bouncer.threads: must be 1 or more")?)
        }
        None => None,
    };
    let version = &config.mysql.server_version;
    let is_version = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if version.is_empty()
        || version.len() > MYSQL_SERVER_VERSION_BYTES_MAX
        || !version.bytes().all(is_version)
    {
        bail!(
            "bouncer.mysql.server_version: must be 1 to {MYSQL_SERVER_VERSION_BYTES_MAX} \
             characters of ASCII"
        );
    }
    Ok(RelayConfig {
        listeners: listeners(config)?,
        mysql_version: version.as_str().into(),
        threads,
        clients_max: config.clients_max,
        login: Duration::from_secs(config.login_s.max(1).into()),
        cleartext: CleartextPolicy::Protected,
        tcp: TcpPolicy::default(),
        shares_limits: false,
    })
}

fn listeners(config: &BouncerConfig) -> Result<Vec<ListenerSpec>> {
    let mode = u32::from_str_radix(&config.unix_socket_mode, 8).ok().filter(|it| *it <= 0o777);
    let mode = mode.context("bouncer.unix_socket_mode: must be octal digits such as 0770")?;
    let open =
        |address, engine, is_optional| ListenerSpec { address, engine, is_optional, tenant: None };
    let mut listeners = Vec::new();
    let mut port = PORT_DEFAULT;
    for (index, text) in config.listen.addresses().into_iter().enumerate() {
        let address = tcp("bouncer.listen", text)?;
        if index == 0 && address.port() != 0 {
            port = address.port();
        }
        listeners.push(open(ListenAddress::Tcp(address), TenantEngine::Postgres, false));
    }
    let mysql = Some(&config.mysql).filter(|table| table.enabled);
    for text in mysql.map(|table| table.listen.addresses()).unwrap_or_default() {
        let address = ListenAddress::Tcp(tcp("bouncer.mysql.listen", text)?);
        // For a default address: another bouncer may be using it.
        listeners.push(open(address, TenantEngine::Mysql, config.mysql.is_default()));
    }
    if let Some(directory) = &config.unix_socket_dir {
        for (name, engine) in [
            (format!(".s.PGSQL.{port}"), TenantEngine::Postgres),
            (MYSQL_SOCKET.to_owned(), TenantEngine::Mysql),
        ] {
            if engine == TenantEngine::Mysql && mysql.is_none() {
                continue;
            }
            let path = directory.join(name);
            listeners.push(open(ListenAddress::Unix { path, mode }, engine, false));
        }
    }
    for bound in &config.bound {
        let address = match bound.listen.starts_with('/') {
            true => ListenAddress::Unix { path: Path::new(&bound.listen).to_owned(), mode },
            false => ListenAddress::Tcp(tcp("bouncer.bound", &bound.listen)?),
        };
        let tenant = Some(bound.tenant.as_str().into());
        listeners.push(ListenerSpec { tenant, ..open(address, bound.engine, false) });
    }
    Ok(listeners)
}

/// Resolves a listening address.
fn tcp(setting: &str, text: &str) -> Result<SocketAddr, crate::config::CoveConfigError> {
    let found = text.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| crate::config::CoveConfigError::Value {
        origin: setting.to_owned(),
        message: format!("`{text}` is not HOST:PORT, such as `127.0.0.1:{PORT_DEFAULT}`"),
    })
}

/// Runs `cove bouncer`.
pub(crate) fn run(args: &BouncerArgs, source: &ConfigSource) -> Result<ExitCode> {
    let ConfigSource { config, environment, .. } = source;
    match &args.command {
        None | Some(BouncerCommand::Serve) if args.pgbouncer_ini.is_some() => pgbouncer::run(args),
        None | Some(BouncerCommand::Serve) => {
            alone(source, args.takeover.clone()).map(|()| ExitCode::SUCCESS)
        }
        Some(BouncerCommand::KeepHandover { socket }) => {
            handover::keep(socket).map(|()| ExitCode::SUCCESS)
        }
        Some(BouncerCommand::Top(top)) => {
            Ok(remote::with_server(&args.server, config, environment, async |server| {
                top::watch(top, &server).await.map(|()| 0)
            }))
        }
        Some(BouncerCommand::Reload { json }) => {
            Ok(remote::with_server(&args.server, config, environment, async |server| {
                reload_server(&server, *json).await.map(|()| 0)
            }))
        }
    }
}

async fn reload_server(server: &Remote, json: bool) -> Result<()> {
    let done: BouncerReloaded = server.call(Method::POST, "/v1/bouncer/reload").await?;
    if json {
        return Ok(print_json(&done)?);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "reloaded; tenants: {}", done.tenants)?;
    if !done.restart_needed_for.is_empty() {
        writeln!(out, "a restart is needed for: {}", done.restart_needed_for.join(", "))?;
    }
    Ok(())
}

/// Returns a runtime for the control plane: the relay has its own threads.
fn control_plane() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cove")
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

/// Runs the bouncer without a server.
fn alone(source: &ConfigSource, takeover: Option<PathBuf>) -> Result<()> {
    let config = &source.config;
    telemetry::init_logs(config.log.format, config.log.level, source.environment.has_log_colours())
        .map_err(anyhow::Error::from_boxed)?;
    control_plane()?.block_on(async {
        let drain = DrainHandle::new();
        let signals = drain.on_signals().context("failed to listen to signals")?;
        let mut registry = telemetry::registry(env!("CARGO_PKG_VERSION"));
        let login_secret = auth::random_key().context("failed to make a key")?;
        let host = Arc::new(ConsoleProcess(drain.clone()));
        let succession =
            takeover.map(|socket| HandoverConfig { socket, former: FormerProcess::AtSocket });
        // Before anything shows that the process runs: an unhandled signal would end it.
        let hangups = Some(Hangups::new().context("failed to listen to signals")?);
        let context =
            BouncerContext { store: None, login_secret, host, succession, hangups, limits: None };
        // A bouncer without a server has no other purpose, so an address in use is an error.
        let Some(running) = RunningBouncer::start(source, context, &mut registry).await? else {
            bail!("nothing to do: the bouncer is not enabled, or its address is in use");
        };
        let manager = service_manager::follow(&source.environment, &drain);
        tokio::select! {
            () = running.work(&drain, config.drain_s) => {}
            _ = async { tokio::join!(signals, manager) } => {}
        }
        tracing::info!("stopped");
        Ok(())
    })
}
