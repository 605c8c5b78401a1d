//! The control plane: what happens to tenants, without a word of HTTP.
//!
//! Tenants are defined in `cove.toml` or by the interface, which keeps them in the store. Every
//! change makes a new snapshot and tells the relay threads; what they do about it is theirs. A
//! change holds as a whole or not at all: what cannot hold is refused before anything is kept.

mod background;
mod health;
mod views;

use node::task::Boxed;
use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use api::{
    BouncerClient, BouncerReloaded, BouncerServer, Tenant as Shown, TenantEngine,
    TenantHealthReport, TenantSpec, TenantStats as Figures,
};
use node::clock;
use node::sealed::Sealer;
use node::store::Store;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::health::Checks;
use crate::config::Config;
use crate::error::Error;
use crate::guest::{Guest, LoginPlace};
use crate::link::Keyrings;
use crate::relay::orders::Order;
use crate::relay::snapshot::Snapshot;
use crate::relay::stats::TenantStats;
use crate::store::{Kept, TenantStore};
use crate::tenants::{
    Admission, Book, ClientAuth, Current, Definition, Refusal, Routing, Settings, Tenant, TenantId,
};

pub use self::health::{Probe, ProbeFailure, ProbeOutcome};
pub(crate) use self::health::{TOOK_BUCKETS, Tally};
pub(crate) use self::views::{REDACTED, distributions, pins};

/// What a service needs of the relay.
pub trait Threads: fmt::Debug + Send + Sync {
    /// Gives an order to every thread.
    fn order(&self, make: &dyn Fn() -> Order);
    /// Asks every thread what is there.
    fn snapshots(&self) -> Vec<oneshot::Receiver<Snapshot>>;
    /// Takes over what of the configuration holds for clients of all tenants, from the next one
    /// on.
    fn configured(&self, _config: &Config) {}
    /// Takes a connection of a guest.
    fn admit(&self, stream: TcpStream, guest: Arc<Guest>, place: LoginPlace);
    /// What every thread counted for a tenant.
    fn stats(&self, tenant: TenantId) -> Vec<Arc<TenantStats>>;
}

/// Finds what `env:NAME` and `file:PATH` stand for; see [`crate::secrets::Resolve`].
pub type Resolver = dyn Fn(&str, &str) -> Result<String, String> + Send + Sync;

/// Reads the configuration again.
pub type Reread = dyn Fn() -> Result<Config, String> + Send + Sync;

/// What the control plane is made of.
pub struct Parts {
    /// The configuration as it was at the start.
    pub config: Config,
    /// What references in it stand for.
    pub resolve: Arc<Resolver>,
    /// Reads it again.
    pub reread: Arc<Reread>,
    /// Where tenants are kept that come by the interface, and what seals their passwords. Without
    /// it there are those of the configuration only.
    pub store: Option<(Store, Sealer)>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Tenants that were read, for the relay to start with.
pub struct Prepared {
    config: Arc<Config>,
    resolve: Arc<Resolver>,
    reread: Arc<Reread>,
    store: Option<TenantStore>,
    changing: Changing,
    current: Arc<Current>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("current", &self.current).finish_non_exhaustive()
    }
}

/// What makes the snapshots; one change at a time.
#[derive(Debug)]
struct Changing {
    book: Book,
    settings: Settings,
    of_file: Vec<Definition>,
    /// By name; those that a tenant of the file hides are among them.
    of_api: BTreeMap<String, Definition>,
    /// Of the store, when it was read.
    version: u64,
}

/// The control plane. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bouncer(Arc<Inner>);

struct Inner {
    resolve: Arc<Resolver>,
    reread: Arc<Reread>,
    store: Option<TenantStore>,
    threads: Arc<dyn Threads>,
    current: Arc<Current>,
    /// Held while the tenants change, also while the store is asked.
    changing: tokio::sync::Mutex<Changing>,
    /// The configuration that was taken over last.
    config: Mutex<Arc<Config>>,
    checks: Checks,
    keyrings: Keyrings,
    /// Tenants that begin to drain, for whoever ends that.
    drains: mpsc::UnboundedSender<TenantId>,
    drained: Mutex<Option<mpsc::UnboundedReceiver<TenantId>>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bouncer").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Reads the tenants of the configuration and of the store.
    ///
    /// # Errors
    /// When one of the configuration cannot be, or the store cannot be read.
    pub fn new(parts: Parts) -> Boxed<'static, Result<Prepared, Error>> {
        Box::pin(async move {
            let Parts { config, resolve, reread, store } = parts;
            let (store, kept) = match store {
                Some((store, sealer)) => {
                    let store = TenantStore::open(store, sealer).await?;
                    let kept = store.load().await?;
                    (Some(store), kept)
                }
                None => (None, Kept::default()),
            };
            let mut changing = Changing {
                book: Book::default(),
                settings: Settings::new(&config),
                of_file: of_file(&config, &*resolve)?,
                of_api: by_name(kept.definitions),
                version: kept.version,
            };
            let current = Arc::new(Current::new(changing.next()?));
            let config = Arc::new(config);
            Ok(Prepared { config, resolve, reread, store, changing, current })
        })
    }

    /// The snapshot that holds, for the relay.
    pub fn current(&self) -> &Arc<Current> {
        &self.current
    }

    /// Begins to take changes. `probe` finds out whether a tenant's server answers; secrets of
    /// users are prepared in `keyrings` before somebody waits for that.
    pub fn start(
        self,
        threads: Arc<dyn Threads>,
        probe: Arc<dyn Probe>,
        keyrings: Keyrings,
    ) -> Bouncer {
        let (drains, drained) = mpsc::unbounded_channel();
        let bouncer = Bouncer(Arc::new(Inner {
            resolve: self.resolve,
            reread: self.reread,
            store: self.store,
            threads,
            current: self.current,
            changing: tokio::sync::Mutex::new(self.changing),
            config: Mutex::new(self.config),
            checks: Checks::new(probe),
            keyrings,
            drains,
            drained: Mutex::new(Some(drained)),
        }));
        bouncer.prepare_secrets();
        bouncer
    }
}

impl Changing {
    /// The snapshot of all definitions. Those of the file win.
    fn next(&mut self) -> Result<Routing, Refusal> {
        let mut definitions = self.of_file.clone();
        for (name, definition) in &self.of_api {
            if self.of_file.iter().all(|it| it.spec.name != *name) {
                definitions.push(definition.clone());
            }
        }
        self.book.build(&self.settings, &definitions)
    }

    fn is_of_file(&self, name: &str) -> bool {
        self.of_file.iter().any(|it| it.spec.name == name)
    }

    fn definition(&self, name: &str) -> Option<&Definition> {
        let of_file = self.of_file.iter().find(|it| it.spec.name == name);
        of_file.or_else(|| self.of_api.get(name))
    }
}

impl Bouncer {
    /// All tenants, by name.
    pub async fn list(&self) -> Vec<Shown> {
        let changing = self.0.changing.lock().await;
        let routing = self.0.current.load();
        let mut tenants: Vec<&Arc<Tenant>> = routing.tenants().collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        let shown = tenants
            .into_iter()
            .filter_map(|tenant| Some(views::tenant(changing.definition(&tenant.name)?, tenant)));
        shown.collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn tenant(&self, name: &str) -> Result<Shown, Error> {
        let changing = self.0.changing.lock().await;
        let tenant = self.found(name)?;
        let definition = changing.definition(name).ok_or(Error::NotFound)?;
        Ok(views::tenant(definition, &tenant))
    }

    /// Makes one.
    ///
    /// # Errors
    /// `Refused` with the field, `Conflict` when there is one of its name.
    pub async fn create(&self, spec: TenantSpec) -> Result<Shown, Error> {
        let bouncer = self.clone();
        whole(async move { bouncer.make(spec).await }).await
    }

    async fn make(&self, spec: TenantSpec) -> Result<Shown, Error> {
        let store = self.store()?;
        let mut changing = self.0.changing.lock().await;
        let name = spec.name.clone();
        if changing.definition(&name).is_some() {
            return Err(Error::Conflict(format!("there is a tenant `{name}` already")));
        }
        let definition = Definition::of_api(views::complete(spec, None)?)?;
        self.keep(store, &mut changing, definition, None).await?;
        drop(changing);
        tracing::info!(tenant = name, "tenant made");
        self.tenant(&name).await
    }

    /// Gives one another definition. `***` stands for a password that it has.
    ///
    /// # Errors
    /// `Refused` with the field, `NotFound`, `Conflict` when it is defined in `cove.toml`.
    pub async fn replace(&self, name: &str, spec: TenantSpec) -> Result<Shown, Error> {
        let (bouncer, name) = (self.clone(), name.to_owned());
        whole(async move { bouncer.change(&name, spec).await }).await
    }

    async fn change(&self, name: &str, spec: TenantSpec) -> Result<Shown, Error> {
        let store = self.store()?;
        let mut changing = self.0.changing.lock().await;
        changeable(&changing, name)?;
        let before = changing.of_api.get(name).cloned().ok_or(Error::NotFound)?;
        let mut spec = spec;
        if spec.name.is_empty() {
            name.clone_into(&mut spec.name);
        }
        if spec.name != name {
            return Err(Refusal::new("name", "cannot be changed").into());
        }
        let definition = Definition::of_api(views::complete(spec, Some(&before.spec))?)?;
        self.keep(store, &mut changing, definition, Some(before)).await?;
        drop(changing);
        tracing::info!(tenant = name, "tenant changed");
        self.tenant(name).await
    }

    /// Lets a definition that came by the interface hold in place of the one before, if there was
    /// one. It is refused before it is kept; and what is not kept does not hold.
    async fn keep(
        &self,
        store: &TenantStore,
        changing: &mut Changing,
        definition: Definition,
        before: Option<Definition>,
    ) -> Result<(), Error> {
        let spec = definition.spec.clone();
        changing.of_api.insert(spec.name.clone(), definition);
        let kept = match changing.next().map_err(|error| views::own(error, &spec.name)) {
            Ok(routing) => {
                let now_ms = clock::wall_ms();
                let version = match before {
                    Some(_) => store.update(&spec, now_ms).await,
                    None => store.insert(&spec, now_ms).await,
                };
                version.map(|version| (version, routing))
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

    /// Removes one. Its clients finish what they are doing.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is defined in `cove.toml`.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let (bouncer, name) = (self.clone(), name.to_owned());
        whole(async move { bouncer.unmake(&name).await }).await
    }

    async fn unmake(&self, name: &str) -> Result<(), Error> {
        let mut changing = self.0.changing.lock().await;
        changeable(&changing, name)?;
        let version = self.store()?.delete(name).await?;
        changing.of_api.remove(name);
        let routing = changing.next().map_err(Error::internal)?;
        self.hold(&mut changing, version, routing);
        tracing::info!(tenant = name, "tenant removed");
        Ok(())
    }

    /// Lets clients wait, or be refused.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn pause(&self, name: &str, refuse: bool) -> Result<(), Error> {
        let admission = if refuse { Admission::Refusing } else { Admission::Paused };
        self.admit(name, admission).map(drop)
    }

    /// Takes work again, after a pause or a drain.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn resume(&self, name: &str) -> Result<(), Error> {
        self.admit(name, Admission::Open).map(drop)
    }

    /// Takes no new clients, sees the others off after their transactions, and closes those that
    /// are left when the time for it is up.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drain(&self, name: &str) -> Result<(), Error> {
        let tenant = self.admit(name, Admission::Draining)?;
        if self.0.drains.send(tenant.id).is_err() {
            // Then everything ends.
            tracing::debug!(tenant = name, "nobody ends drains any more");
        }
        Ok(())
    }

    /// Closes server connections: idle ones now, the others when they come back.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn reconnect(&self, name: &str) -> Result<(), Error> {
        let tenant = self.found(name)?;
        tenant.state.next_epoch();
        self.0.threads.order(&|| Order::Reconnect(tenant.id));
        Ok(())
    }

    /// Closes all connections of a tenant now.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn kill(&self, name: &str) -> Result<(), Error> {
        let tenant = self.found(name)?;
        self.0.threads.order(&|| Order::Kill(tenant.id));
        Ok(())
    }

    /// Closes a client of a tenant.
    ///
    /// # Errors
    /// `NotFound` when the tenant has no such client.
    pub async fn kill_client(&self, name: &str, pid: u32) -> Result<(), Error> {
        let clients = self.clients(name).await?;
        if clients.iter().all(|client| client.pid != pid) {
            return Err(Error::NotFound);
        }
        self.0.threads.order(&|| Order::KillClient(pid));
        Ok(())
    }

    /// Its figures.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn stats(&self, name: &str) -> Result<Figures, Error> {
        let tenant = self.found(name)?;
        Ok(views::figures(&tenant, &self.0.threads.stats(tenant.id)))
    }

    /// Its clients.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn clients(&self, name: &str) -> Result<Vec<BouncerClient>, Error> {
        let tenant = self.found(name)?;
        let snapshots = self.snapshots().await;
        let clients = snapshots.iter().flat_map(|it| &it.clients);
        let own = clients.filter(|it| it.tenant.as_ref().is_some_and(|(id, _)| *id == tenant.id));
        Ok(own.map(views::client).collect())
    }

    /// Its server connections.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn servers(&self, name: &str) -> Result<Vec<BouncerServer>, Error> {
        let tenant = self.found(name)?;
        let snapshots = self.snapshots().await;
        let servers = snapshots.iter().flat_map(|it| &it.servers);
        let own = servers.filter(|it| it.tenant.0 == tenant.id);
        Ok(own.map(|it| views::server(it, &tenant)).collect())
    }

    /// What health checks found.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn health(&self, name: &str) -> Result<TenantHealthReport, Error> {
        let tenant = self.found(name)?;
        Ok(self.0.checks.report(&tenant))
    }

    /// Reads the configuration again and takes over what can be without dropping a client.
    ///
    /// # Errors
    /// `Refused` when the configuration cannot be; what was there holds on then.
    pub fn reload<'a>(&'a self) -> Boxed<'a, Result<BouncerReloaded, Error>> {
        Box::pin(async move {
            let reread = Arc::clone(&self.0.reread);
            let resolve = Arc::clone(&self.0.resolve);
            let read = node::task::blocking(move || {
                let config = reread().map_err(|message| Refusal::new("configuration", message))?;
                let definitions = of_file(&config, &*resolve)?;
                Ok::<_, Refusal>((config, definitions))
            });
            let (config, definitions) = read.await.map_err(Error::internal)??;
            let mut changing = self.0.changing.lock().await;
            let settings = Settings::new(&config);
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
            tracing::info!(tenants, ?restart_needed_for, "configuration reloaded");
            Ok(BouncerReloaded { tenants, restart_needed_for })
        })
    }

    /// The snapshot that holds now.
    pub fn routing(&self) -> Arc<Routing> {
        self.0.current.load()
    }

    /// The configuration that was taken over last.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.config.lock())
    }

    /// The relay threads, for the console.
    pub fn threads(&self) -> &Arc<dyn Threads> {
        &self.0.threads
    }

    /// How many health checks there were, and how they ended.
    pub(crate) fn tally(&self) -> Tally {
        self.0.checks.tally()
    }

    /// What every thread says of its connections. A thread that has ended says nothing.
    pub async fn snapshots(&self) -> Vec<Snapshot> {
        let mut told = Vec::new();
        for snapshot in self.0.threads.snapshots() {
            told.extend(snapshot.await.ok());
        }
        told
    }

    fn store(&self) -> Result<&TenantStore, Error> {
        let why = "tenants are those of its configuration only";
        self.0.store.as_ref().ok_or_else(|| Error::NotHere(why.to_owned()))
    }

    fn found(&self, name: &str) -> Result<Arc<Tenant>, Error> {
        self.0.current.load().named(name).cloned().ok_or(Error::NotFound)
    }

    fn admit(&self, name: &str, admission: Admission) -> Result<Arc<Tenant>, Error> {
        let tenant = self.found(name)?;
        let before = tenant.state.set_admission(admission);
        if before != admission {
            tracing::info!(tenant = name, from = ?before, to = ?admission, "admission changed");
            self.0.threads.order(&|| Order::Admission(tenant.id));
        }
        Ok(tenant)
    }

    /// Lets a snapshot hold that was kept.
    fn hold(&self, changing: &mut Changing, version: u64, routing: Routing) {
        changing.version = version;
        self.0.checks.keep_only(&routing);
        self.0.current.replace(routing);
        self.0.threads.order(&|| Order::Routing);
        self.prepare_secrets();
    }

    /// Hashes the passwords of users of whom that was not done: milliseconds for each, which the
    /// first client of each would wait for otherwise, and with it everybody on its thread.
    fn prepare_secrets(&self) {
        let (keyrings, routing) = (self.0.keyrings.clone(), self.0.current.load());
        let bouncer = Arc::downgrade(&self.0);
        // Nobody waits for it. It ends by itself, early when there is a later one or nobody left.
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

    /// Makes the book agree with the definitions again, of which one was taken back.
    fn undo(&self, changing: &mut Changing) {
        match changing.next() {
            Ok(routing) => {
                let version = changing.version;
                self.hold(changing, version, routing);
            }
            // They held a moment ago.
            Err(error) => tracing::error!(%error, field = error.field, "tenants do not hold"),
        }
    }
}

/// Brings a change to its end although whoever asked for it leaves: what the store has and what
/// holds must not differ.
async fn whole<T: Send + 'static>(
    change: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    node::task::to_the_end(change).await.map_err(Error::internal)?
}

/// Refuses to change what the file says.
fn changeable(changing: &Changing, name: &str) -> Result<(), Error> {
    if changing.is_of_file(name) {
        let message = format!("the tenant `{name}` is defined in `cove.toml`; change it there");
        return Err(Error::Conflict(message));
    }
    match changing.of_api.contains_key(name) {
        true => Ok(()),
        false => Err(Error::NotFound),
    }
}

/// The tenants of the configuration.
fn of_file(config: &Config, resolve: &Resolver) -> Result<Vec<Definition>, Refusal> {
    let specs = config.tenants.iter().enumerate();
    let read = specs.map(|(index, spec)| {
        Definition::of_file(spec, &format!("bouncer.tenants[{index}]"), &|setting, text| {
            resolve(setting, text)
        })
    });
    read.collect()
}

fn by_name(definitions: Vec<Definition>) -> BTreeMap<String, Definition> {
    definitions.into_iter().map(|it| (it.spec.name.clone(), it)).collect()
}

#[cfg(test)]
mod tests;
