//! The control plane: operations on tenants, independent of HTTP.
//!
//! Tenants are defined in `cove.toml` or by the interface, which keeps them in the store. Every
//! change creates a new snapshot and notifies the relay threads. A change is applied as a whole or
//! not at all: an invalid change is refused before anything is stored.

mod activity;
mod background;
mod everywhere;
mod health;
mod limits;
mod orders;
mod peers;
mod views;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use api::{
    BouncerClient, BouncerReloaded, BouncerServer, TenantEngine, TenantHealthReport, TenantSpec,
    TenantStats as Figures, TenantView,
};
use node::clock;
use node::cluster::LimitShares;
use node::sealed::Sealer;
use node::store::SqlStore;
use node::task::Boxed;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::health::HealthCheckResults;
use self::peers::BouncerPeers;
use crate::auth::ProtocolKeyrings;
use crate::config::BouncerConfig;
use crate::error::BouncerError;
use crate::relay::orders::ThreadCommand;
use crate::relay::snapshot::ThreadSnapshot;
use crate::secrets::Resolve;
use crate::store::{StoredDefinitions, TenantStore};
use crate::tenants::{
    ClientAuth, CurrentRouting, DefinitionError, SharedSettings, TenantDefinition, TenantId,
    TenantRegistry, TenantRouting, TenantSnapshot, WorkAdmission,
};

pub use self::activity::{TenantActivity, TenantSampler};
pub use self::everywhere::peer_routes;
pub use self::health::{EndedStatements, ProbeFailure, ProbeOutcome, ServerProbe};
pub(crate) use self::health::{HealthCheckTotals, TOOK_BUCKETS};
pub use self::orders::TenantOrder;
pub(crate) use self::orders::TenantOrders;
pub(crate) use self::views::{REDACTED, distributions, errors, pins};
pub use crate::relay::threads::RelayThreads;

/// Resolver of `env:NAME` and `file:PATH`; see [`crate::secrets::Resolve`].
pub type Resolver = dyn Fn(&str, &str) -> Result<String, String> + Send + Sync;

/// Reads the configuration again.
pub type Reread = dyn Fn() -> Result<BouncerConfig, String> + Send + Sync;

/// Dependencies of the control plane.
pub struct BouncerParts {
    /// The configuration as it was at the start.
    pub config: BouncerConfig,
    /// Resolver of references such as `env:NAME`.
    pub resolve: Arc<Resolver>,
    /// Reader of the current configuration.
    pub reread: Arc<Reread>,
    /// Store of tenants that were created by the interface, and the key that seals their passwords.
    /// Without it there are only the tenants of the configuration.
    pub store: Option<(SqlStore, Sealer)>,
}

impl fmt::Debug for BouncerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Initial tenants, for the start of the relay.
pub struct InitialTenants {
    config: Arc<BouncerConfig>,
    resolve: Arc<Resolver>,
    reread: Arc<Reread>,
    store: Option<TenantStore>,
    changing: TenantWriter,
    current: Arc<CurrentRouting>,
}

impl fmt::Debug for InitialTenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("current", &self.current).finish_non_exhaustive()
    }
}

/// Writer of snapshots; it makes one change at a time.
#[derive(Debug)]
struct TenantWriter {
    book: TenantRegistry,
    settings: SharedSettings,
    of_file: Vec<TenantDefinition>,
    /// Tenants of the interface by name, including those that a tenant of the file overrides.
    of_api: BTreeMap<String, TenantDefinition>,
    /// Orders for tenants that hold at all servers.
    orders: BTreeMap<String, TenantOrders>,
    /// Version of the store when it was last read.
    version: u64,
}

/// The control plane. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bouncer(Arc<BouncerInner>);

struct BouncerInner {
    resolve: Arc<Resolver>,
    reread: Arc<Reread>,
    store: Option<TenantStore>,
    threads: Arc<dyn RelayThreads>,
    current: Arc<CurrentRouting>,
    /// Held while the tenants change, including accesses to the store.
    changing: tokio::sync::Mutex<TenantWriter>,
    /// The configuration that was applied last.
    config: Mutex<Arc<BouncerConfig>>,
    checks: HealthCheckResults,
    keyrings: ProtocolKeyrings,
    peers: BouncerPeers,
    /// Its parts of limits that hold over all nodes, if limits are shared.
    limits: OnceLock<LimitShares>,
    /// Tenants that start to drain, for the task that ends drains.
    drains: mpsc::UnboundedSender<TenantId>,
    drained: Mutex<Option<mpsc::UnboundedReceiver<TenantId>>>,
}

impl fmt::Debug for BouncerInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bouncer").field("current", &self.current).finish_non_exhaustive()
    }
}

impl InitialTenants {
    /// Reads the tenants of the configuration and of the store.
    ///
    /// # Errors
    /// If a tenant of the configuration is invalid, or the store cannot be read.
    pub fn new(parts: BouncerParts) -> Boxed<'static, Result<InitialTenants, BouncerError>> {
        Box::pin(async move {
            let BouncerParts { config, resolve, reread, store } = parts;
            let (store, kept) = match store {
                Some((store, sealer)) => {
                    let store = TenantStore::open(store, sealer).await?;
                    let kept = store.load().await?;
                    (Some(store), kept)
                }
                None => (None, StoredDefinitions::default()),
            };
            let mut changing = TenantWriter {
                book: TenantRegistry::default(),
                settings: SharedSettings::new(&config),
                of_file: of_file(&config, &*resolve)?,
                of_api: by_name(kept.definitions),
                orders: kept.orders,
                version: kept.version,
            };
            let current = Arc::new(CurrentRouting::new(changing.next()?));
            let config = Arc::new(config);
            Ok(InitialTenants { config, resolve, reread, store, changing, current })
        })
    }

    /// Returns the current snapshot, for the relay.
    pub fn current(&self) -> &Arc<CurrentRouting> {
        &self.current
    }

    /// Starts to accept changes. `probe` checks whether a tenant's server answers; secrets of users
    /// are prepared in `keyrings` before a client waits for them.
    pub fn start(
        self,
        threads: Arc<dyn RelayThreads>,
        probe: Arc<dyn ServerProbe>,
        keyrings: ProtocolKeyrings,
    ) -> Bouncer {
        let (drains, drained) = mpsc::unbounded_channel();
        // Orders that close connections concern earlier processes.
        let orders = self.changing.orders.clone();
        let bouncer = Bouncer(Arc::new(BouncerInner {
            resolve: self.resolve,
            reread: self.reread,
            store: self.store,
            threads,
            current: self.current,
            changing: tokio::sync::Mutex::new(self.changing),
            config: Mutex::new(self.config),
            checks: HealthCheckResults::new(probe),
            keyrings,
            peers: BouncerPeers::default(),
            limits: OnceLock::new(),
            drains,
            drained: Mutex::new(Some(drained)),
        }));
        for (name, order) in orders.iter().filter(|(_, it)| it.admission != WorkAdmission::Open) {
            // The tenant may be of a file that this server does not have.
            if bouncer.admit(name, order.admission).is_err() {
                tracing::debug!(tenant = name, "the order is for an unknown tenant");
            }
        }
        bouncer.prepare_secrets();
        bouncer
    }
}

impl TenantWriter {
    /// Builds the snapshot of all definitions. Those of the file take precedence.
    fn next(&mut self) -> Result<TenantRouting, DefinitionError> {
        let mut definitions = self.of_file.clone();
        for (name, definition) in &self.of_api {
            if self.of_file.iter().all(|it| it.spec.name != *name) {
                definitions.push(definition.clone());
            }
        }
        self.book.build(&self.settings, &definitions)
    }

    /// Returns the version that is known after a change by this server: not the store's if another
    /// server has changed something in between, which is still to be read.
    fn after_own(&self, version: u64) -> u64 {
        if version == self.version + 1 { version } else { self.version }
    }

    fn is_of_file(&self, name: &str) -> bool {
        self.of_file.iter().any(|it| it.spec.name == name)
    }

    fn definition(&self, name: &str) -> Option<&TenantDefinition> {
        let of_file = self.of_file.iter().find(|it| it.spec.name == name);
        of_file.or_else(|| self.of_api.get(name))
    }
}

impl Bouncer {
    /// Makes limits on server connections and clients hold over all nodes. Requires a relay that
    /// was started with shared limits.
    pub fn share_limits(&self, shares: LimitShares) {
        // There is only one cluster.
        drop(self.0.limits.set(shares));
    }

    /// Returns the other nodes.
    pub fn peers(&self) -> &BouncerPeers {
        &self.0.peers
    }

    /// Returns all tenants, by name.
    pub async fn list(&self) -> Vec<TenantView> {
        let changing = self.0.changing.lock().await;
        let routing = self.0.current.load();
        let mut tenants: Vec<&Arc<TenantSnapshot>> = routing.tenants().collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        let shown = tenants
            .into_iter()
            .filter_map(|tenant| Some(views::tenant(changing.definition(&tenant.name)?, tenant)));
        shown.collect()
    }

    /// Returns a tenant by its name.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn tenant(&self, name: &str) -> Result<TenantView, BouncerError> {
        let changing = self.0.changing.lock().await;
        let tenant = self.found(name)?;
        let definition = changing.definition(name).ok_or(BouncerError::NotFound)?;
        Ok(views::tenant(definition, &tenant))
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// `Refused` with the field, `Conflict` if a tenant of this name exists.
    pub async fn create(&self, spec: TenantSpec) -> Result<TenantView, BouncerError> {
        let bouncer = self.clone();
        whole(async move { bouncer.make(spec).await }).await
    }

    async fn make(&self, spec: TenantSpec) -> Result<TenantView, BouncerError> {
        let store = self.store()?;
        let mut changing = self.0.changing.lock().await;
        let name = spec.name.clone();
        if changing.definition(&name).is_some() {
            return Err(BouncerError::Conflict(format!("there is a tenant `{name}` already")));
        }
        let definition = TenantDefinition::of_api(views::complete(spec, None)?)?;
        self.keep(store, &mut changing, definition, None).await?;
        drop(changing);
        self.tell_others().await;
        tracing::info!(tenant = name, "tenant made");
        self.tenant(&name).await
    }

    /// Replaces a tenant's definition. `***` stands for the existing password.
    ///
    /// # Errors
    /// `Refused` with the field, `NotFound`, `Conflict` if it is defined in `cove.toml`.
    pub async fn replace(&self, name: &str, spec: TenantSpec) -> Result<TenantView, BouncerError> {
        let (bouncer, name) = (self.clone(), name.to_owned());
        whole(async move { bouncer.change(&name, spec).await }).await
    }

    async fn change(&self, name: &str, spec: TenantSpec) -> Result<TenantView, BouncerError> {
        let store = self.store()?;
        let mut changing = self.0.changing.lock().await;
        changeable(&changing, name)?;
        let before = changing.of_api.get(name).cloned().ok_or(BouncerError::NotFound)?;
        let mut spec = spec;
        if spec.name.is_empty() {
            name.clone_into(&mut spec.name);
        }
        if spec.name != name {
            return Err(DefinitionError::new("name", "cannot be changed").into());
        }
        let definition = TenantDefinition::of_api(views::complete(spec, Some(&before.spec))?)?;
        self.keep(store, &mut changing, definition, Some(before)).await?;
        drop(changing);
        self.tell_others().await;
        tracing::info!(tenant = name, "tenant changed");
        self.tenant(name).await
    }

    /// Stores and applies a definition from the interface, in place of the former one if there was
    /// one. An invalid definition is refused before it is stored; and a definition that cannot be
    /// stored is not applied.
    async fn keep(
        &self,
        store: &TenantStore,
        changing: &mut TenantWriter,
        definition: TenantDefinition,
        before: Option<TenantDefinition>,
    ) -> Result<(), BouncerError> {
        let spec = definition.spec.clone();
        changing.of_api.insert(spec.name.clone(), definition);
        let kept = match changing.next().map_err(|error| views::own(error, &spec.name)) {
            Ok(routing) => {
                let now_ms = clock::wall_ms();
                let version = match before {
                    Some(_) => store.update(&spec, now_ms).await,
                    None => store.insert(&spec, now_ms).await,
                };
                version.map(|version| (changing.after_own(version), routing))
            }
            Err(refusal) => Err(refusal.into()),
        };
        match kept {
            Ok((version, routing)) => {
                self.hold(changing, version, routing);
                Ok(())
            }
            Err(error) => {
                match before {
                    Some(before) => drop(changing.of_api.insert(spec.name, before)),
                    None => drop(changing.of_api.remove(&spec.name)),
                }
                self.undo(changing);
                Err(error)
            }
        }
    }

    /// Removes a tenant. Its clients finish their current transactions.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` if it is defined in `cove.toml`.
    pub async fn remove(&self, name: &str) -> Result<(), BouncerError> {
        let (bouncer, name) = (self.clone(), name.to_owned());
        whole(async move { bouncer.unmake(&name).await }).await
    }

    async fn unmake(&self, name: &str) -> Result<(), BouncerError> {
        let mut changing = self.0.changing.lock().await;
        changeable(&changing, name)?;
        let version = changing.after_own(self.store()?.delete(name).await?);
        changing.of_api.remove(name);
        changing.orders.remove(name);
        let routing = changing.next().map_err(BouncerError::internal)?;
        self.hold(&mut changing, version, routing);
        drop(changing);
        self.tell_others().await;
        tracing::info!(tenant = name, "tenant removed");
        Ok(())
    }

    /// Makes clients wait, or refuses them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn pause(&self, name: &str, refuse: bool) -> Result<(), BouncerError> {
        let admission = if refuse { WorkAdmission::Refusing } else { WorkAdmission::Paused };
        self.admit(name, admission).map(drop)
    }

    /// Resumes work after a pause or a drain.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn resume(&self, name: &str) -> Result<(), BouncerError> {
        self.admit(name, WorkAdmission::Open).map(drop)
    }

    /// Refuses new clients, disconnects the others after their transactions, and closes those that
    /// are left at the end of the drain time.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drain(&self, name: &str) -> Result<(), BouncerError> {
        let tenant = self.admit(name, WorkAdmission::Draining)?;
        if self.0.drains.send(tenant.id).is_err() {
            // The task has ended because the server is shutting down.
            tracing::debug!(tenant = name, "no task ends drains any more");
        }
        Ok(())
    }

    /// Closes server connections: idle ones now, the others when they are returned.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn reconnect(&self, name: &str) -> Result<(), BouncerError> {
        let tenant = self.found(name)?;
        tenant.state.next_epoch();
        self.0.threads.order(&|| ThreadCommand::Reconnect(tenant.id));
        Ok(())
    }

    /// Closes all connections of a tenant now.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn kill(&self, name: &str) -> Result<(), BouncerError> {
        let tenant = self.found(name)?;
        self.0.threads.order(&|| ThreadCommand::Kill(tenant.id));
        Ok(())
    }

    /// Closes a client of a tenant.
    ///
    /// # Errors
    /// `NotFound` if the tenant has no such client.
    pub async fn kill_client(&self, name: &str, pid: u32) -> Result<(), BouncerError> {
        let clients = self.clients(name).await?;
        if clients.iter().all(|client| client.pid != pid) {
            return Err(BouncerError::NotFound);
        }
        self.0.threads.order(&|| ThreadCommand::KillClient(pid));
        Ok(())
    }

    /// Returns its figures.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn stats(&self, name: &str) -> Result<Figures, BouncerError> {
        let tenant = self.found(name)?;
        Ok(views::figures(&tenant, &self.0.threads.stats(tenant.id)))
    }

    /// Returns its clients.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn clients(&self, name: &str) -> Result<Vec<BouncerClient>, BouncerError> {
        let tenant = self.found(name)?;
        let snapshots = self.snapshots().await;
        let clients = snapshots.iter().flat_map(|it| &it.clients);
        let own = clients.filter(|it| it.tenant.as_ref().is_some_and(|(id, _)| *id == tenant.id));
        let node = self.0.peers.own_id();
        Ok(own.map(|it| views::client(it, node.clone())).collect())
    }

    /// Returns its server connections.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn servers(&self, name: &str) -> Result<Vec<BouncerServer>, BouncerError> {
        let tenant = self.found(name)?;
        let snapshots = self.snapshots().await;
        let servers = snapshots.iter().flat_map(|it| &it.servers);
        let own = servers.filter(|it| it.tenant.0 == tenant.id);
        let node = self.0.peers.own_id();
        Ok(own.map(|it| views::server(it, &tenant, node.clone())).collect())
    }

    /// Returns the result of health checks.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn health(&self, name: &str) -> Result<TenantHealthReport, BouncerError> {
        let tenant = self.found(name)?;
        Ok(self.0.checks.report(&tenant))
    }

    /// Reads the configuration again and applies the changes that do not require dropping clients.
    ///
    /// # Errors
    /// `Refused` if the configuration is invalid; the former one remains in force.
    pub fn reload<'a>(&'a self) -> Boxed<'a, Result<BouncerReloaded, BouncerError>> {
        Box::pin(async move {
            let reread = Arc::clone(&self.0.reread);
            let read = node::task::blocking(move || {
                reread().map_err(|message| DefinitionError::new("configuration", message))
            });
            let config = read.await.map_err(BouncerError::internal)??;
            let done = self.replace_config(config).await?;
            let BouncerReloaded { tenants, restart_needed_for } = &done;
            tracing::info!(tenants, ?restart_needed_for, "configuration reloaded");
            Ok(done)
        })
    }

    /// Applies the changes of a configuration that was read again, as [`Bouncer::reload`] does.
    ///
    /// # Errors
    /// Errors of [`Bouncer::reload`].
    pub fn replace_config<'a>(
        &'a self,
        config: BouncerConfig,
    ) -> Boxed<'a, Result<BouncerReloaded, BouncerError>> {
        Box::pin(async move {
            let resolve = Arc::clone(&self.0.resolve);
            let read = node::task::blocking(move || {
                let definitions = of_file(&config, &*resolve)?;
                Ok::<_, DefinitionError>((config, definitions))
            });
            let (config, definitions) = read.await.map_err(BouncerError::internal)??;
            let mut changing = self.0.changing.lock().await;
            let settings = SharedSettings::new(&config);
            let before = std::mem::replace(&mut changing.settings, settings);
            let of_file_before = std::mem::replace(&mut changing.of_file, definitions);
            let routing = match changing.next() {
                Ok(routing) => routing,
                Err(refusal) => {
                    changing.settings = before;
                    changing.of_file = of_file_before;
                    return Err(refusal.into());
                }
            };
            let tenants = u64::try_from(routing.len()).unwrap_or(u64::MAX);
            let version = changing.version;
            self.hold(&mut changing, version, routing);
            self.0.threads.configured(&config);
            let mut current = self.0.config.lock();
            let restart_needed_for = views::needs_restart(&current, &config);
            *current = Arc::new(config);
            Ok(BouncerReloaded { tenants, restart_needed_for })
        })
    }

    /// Returns the current snapshot.
    pub fn routing(&self) -> Arc<TenantRouting> {
        self.0.current.load()
    }

    /// Returns the configuration that was applied last.
    pub fn config(&self) -> Arc<BouncerConfig> {
        Arc::clone(&self.0.config.lock())
    }

    /// Returns the relay threads, for the console.
    pub fn threads(&self) -> &Arc<dyn RelayThreads> {
        &self.0.threads
    }

    /// Returns how many health checks there were, and how they ended.
    pub(crate) fn probe(&self) -> &Arc<dyn ServerProbe> {
        self.0.checks.probe()
    }

    pub(crate) fn tally(&self) -> HealthCheckTotals {
        self.0.checks.tally()
    }

    /// Returns the snapshots of all threads. A thread that has ended returns none.
    pub async fn snapshots(&self) -> Vec<ThreadSnapshot> {
        let mut told = Vec::new();
        for snapshot in self.0.threads.snapshots() {
            told.extend(snapshot.await.ok());
        }
        told
    }

    fn store(&self) -> Result<&TenantStore, BouncerError> {
        let why = "tenants are those of its configuration only";
        self.0.store.as_ref().ok_or_else(|| BouncerError::NotHere(why.to_owned()))
    }

    fn found(&self, name: &str) -> Result<Arc<TenantSnapshot>, BouncerError> {
        self.0.current.load().named(name).cloned().ok_or(BouncerError::NotFound)
    }

    fn admit(
        &self,
        name: &str,
        admission: WorkAdmission,
    ) -> Result<Arc<TenantSnapshot>, BouncerError> {
        let tenant = self.found(name)?;
        let before = tenant.state.set_admission(admission);
        if before != admission {
            tracing::info!(tenant = name, from = ?before, to = ?admission, "admission changed");
            self.0.threads.order(&|| ThreadCommand::Admission(tenant.id));
        }
        Ok(tenant)
    }

    /// Applies a snapshot that was stored.
    fn hold(&self, changing: &mut TenantWriter, version: u64, routing: TenantRouting) {
        changing.version = version;
        self.0.checks.keep_only(&routing);
        self.0.current.replace(routing);
        self.0.threads.order(&|| ThreadCommand::Routing);
        // Existing clients may be subject to a limit from now on.
        self.0.threads.client_demand().notify_one();
        self.prepare_secrets();
    }

    /// Prepares the passwords of users: milliseconds of hashing for each, which would otherwise
    /// delay the first client of each and all clients of its thread.
    fn prepare_secrets(&self) {
        let (keyrings, routing) = (self.0.keyrings.clone(), self.0.current.load());
        let bouncer = Arc::downgrade(&self.0);
        // Runs in the background. It stops early if there is a later run or the bouncer is dropped.
        drop(node::task::blocking(move || {
            for tenant in routing.tenants() {
                match tenant.engine {
                    TenantEngine::Postgres => {}
                    TenantEngine::Mysql => {
                        keyrings.my.prepare(tenant);
                        continue;
                    }
                }
                for user in tenant.users.values() {
                    let current = bouncer.upgrade().map(|it| it.current.version());
                    if current != Some(routing.version) {
                        return;
                    }
                    if let ClientAuth::Secret(secret) = &user.auth
                        && let Ok(verifier) = keyrings.pg.verifier(&user.name, secret.expose())
                    {
                        verifier.prepare();
                    }
                }
            }
        }));
    }

    /// Restores the registry to the definitions, after a change was rolled back.
    fn undo(&self, changing: &mut TenantWriter) {
        match changing.next() {
            Ok(routing) => {
                let version = changing.version;
                self.hold(changing, version, routing);
            }
            // They were valid a moment ago.
            Err(error) => tracing::error!(%error, field = error.field, "tenants do not hold"),
        }
    }
}

/// Completes a change even if its requester disconnects: the store and the snapshot must not
/// differ.
async fn whole<T: Send + 'static>(
    change: impl Future<Output = Result<T, BouncerError>> + Send + 'static,
) -> Result<T, BouncerError> {
    node::task::to_the_end(change).await.map_err(BouncerError::internal)?
}

/// Refuses changes of tenants that the file defines.
fn changeable(changing: &TenantWriter, name: &str) -> Result<(), BouncerError> {
    if changing.is_of_file(name) {
        let message = format!("the tenant `{name}` is defined in `cove.toml`; change it there");
        return Err(BouncerError::Conflict(message));
    }
    match changing.of_api.contains_key(name) {
        true => Ok(()),
        false => Err(BouncerError::NotFound),
    }
}

/// Returns the errors in the tenants of a configuration, the first one of each tenant.
pub fn check_tenants(config: &BouncerConfig, resolve: &Resolve<'_>) -> Vec<DefinitionError> {
    let (mut definitions, mut errors) = (Vec::new(), Vec::new());
    for (index, spec) in config.tenants.iter().enumerate() {
        let place = format!("bouncer.tenants[{index}]");
        match TenantDefinition::of_file(spec, &place, resolve) {
            // Checked separately, so that the error of one does not hide that of the next.
            Ok(definition) => {
                let alone = TenantRegistry::default()
                    .build(&SharedSettings::new(config), std::slice::from_ref(&definition));
                errors.extend(alone.err().map(|error| DefinitionError {
                    field: place,
                    message: format!("{}: {}", error.field, error.message),
                }));
                definitions.push(definition);
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        let together = TenantRegistry::default().build(&SharedSettings::new(config), &definitions);
        errors.extend(together.err().map(|error| DefinitionError {
            field: "bouncer.tenants".to_owned(),
            message: format!("{}: {}", error.field, error.message),
        }));
    }
    errors
}

fn of_file(
    config: &BouncerConfig,
    resolve: &Resolver,
) -> Result<Vec<TenantDefinition>, DefinitionError> {
    let specs = config.tenants.iter().enumerate();
    let read = specs.map(|(index, spec)| {
        TenantDefinition::of_file(spec, &format!("bouncer.tenants[{index}]"), &|setting, text| {
            resolve(setting, text)
        })
    });
    read.collect()
}

fn by_name(definitions: Vec<TenantDefinition>) -> BTreeMap<String, TenantDefinition> {
    definitions.into_iter().map(|it| (it.spec.name.clone(), it)).collect()
}

#[cfg(test)]
mod tests;
