//! Reloads the configuration while the server runs: SIGHUP and `POST /v1/reload`.
//!
//! The new configuration is first checked as a whole, as by `cove config check`, and changes
//! nothing if it is invalid. Then reloadable settings are replaced where they are used; the others
//! keep the values that the server started with, and the response names them. Only
//! [`crate::config::effective`] defines which settings are reloadable: services receive a
//! configuration in which all others are unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::bouncer::Bouncer;
use anyhow::{Context as _, Result};
use api::{ConfigReloaded, ConfigView};
use executions::{ExecutionService, HostCapacity};
use gateway::GatewayService;
use node::auth::TokenRegistry;
use node::current::CurrentSettings;
use node::drain::Hangups;
use node::http::{HttpError, HttpListenerTls, ShellLimits};
use node::telemetry::LogLevelControl;
use parking_lot::Mutex;
use sessions::Sessions;

use crate::config::ConfigSource;
use crate::config::{
    self, ConfigLayers, CoveConfig, CoveConfigError, Environment, HttpTlsConfig, LoadedConfig,
};
use crate::history::HistorySources;
use crate::{bouncer, gateway as gateways, settings};

/// State of reloading during startup; `source` is the configuration that the server started with.
pub(crate) struct ReloadSignals {
    pub(crate) source: ConfigSource,
    pub(crate) log: LogLevelControl,
    pub(crate) hangups: Hangups,
}

impl ReloadSignals {
    /// Returns the reloader for a server with these services, and the signals that trigger it;
    /// without services, that of a catalog alone.
    pub(crate) fn reloader(
        self,
        services: Option<ReloadedServices>,
        tokens: &TokenRegistry,
        tls: Option<&HttpListenerTls>,
        limits: &ReloadedLimits,
    ) -> Result<(ConfigReloader, Hangups)> {
        let ReloadSignals { source, log, hangups } = self;
        let targets = ReloadTargets {
            log,
            tokens: tokens.clone(),
            tls: tls.cloned(),
            limits: limits.clone(),
            services,
        };
        Ok((ConfigReloader::new(source, targets)?, hangups))
    }
}

/// Services that apply reloaded settings, if they are served.
#[derive(Clone)]
pub(crate) struct ReloadedServices {
    executions: ExecutionService,
    capacity: HostCapacity,
    sessions: Sessions,
    gateway: GatewayService,
    bouncer: Option<Bouncer>,
}

impl ReloadedServices {
    pub(crate) fn of(services: &HistorySources, capacity: HostCapacity) -> ReloadedServices {
        ReloadedServices {
            executions: services.executions.clone(),
            capacity,
            sessions: services.sessions.clone(),
            gateway: services.gateway.clone(),
            bouncer: services.bouncer.clone(),
        }
    }

    fn replace(&self, config: &CoveConfig, secrets: &BTreeMap<String, String>) -> Result<()> {
        self.executions.replace_config(config.executions.clone(), self.capacity)?;
        self.sessions.replace_config(config.sessions.clone())?;
        Ok(self.gateway.replace_config(gateways::with_secrets(config, secrets.clone()))?)
    }
}

/// Users of settings that a reload replaces.
#[derive(Clone)]
struct ReloadTargets {
    log: LogLevelControl,
    tokens: TokenRegistry,
    /// TLS of the HTTP listeners, if it is enabled.
    tls: Option<HttpListenerTls>,
    limits: ReloadedLimits,
    services: Option<ReloadedServices>,
}

impl ReloadTargets {
    fn bouncer(&self) -> Option<&Bouncer> {
        self.services.as_ref()?.bouncer.as_ref()
    }
}

/// The `[limits]` table in force. Clones share the values.
#[derive(Clone, Debug)]
pub(crate) struct ReloadedLimits {
    /// Limits of connections and requests.
    pub(crate) shell: CurrentSettings<ShellLimits>,
    data_dir: PathBuf,
    /// Bytes that must be free on the data directory's disk.
    disk_free_bytes_min: Arc<AtomicU64>,
}

impl ReloadedLimits {
    pub(crate) fn new(config: &CoveConfig) -> ReloadedLimits {
        let disk_free_bytes_min = Arc::new(config.limits.disk_free_bytes_min().into());
        let (shell, data_dir) = (config.limits.limits().into(), config.data_dir.clone());
        ReloadedLimits { shell, data_dir, disk_free_bytes_min }
    }

    /// Returns the data directory, and the bytes that must be free there.
    pub(crate) fn disk(&self) -> (&Path, Arc<AtomicU64>) {
        (&self.data_dir, Arc::clone(&self.disk_free_bytes_min))
    }

    fn replace(&self, config: &CoveConfig) {
        self.shell.replace(config.limits.limits());
        self.disk_free_bytes_min.store(config.limits.disk_free_bytes_min(), Ordering::Relaxed);
    }
}

/// Reason why a configuration is not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The configuration is invalid; nothing has changed.
    #[error(transparent)]
    Refused(#[from] CoveConfigError),
    /// A component of the server failed to apply it.
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

impl From<ReloadError> for HttpError {
    fn from(error: ReloadError) -> HttpError {
        match error {
            ReloadError::Refused(refused) => {
                HttpError::invalid(format!("nothing has changed, because of {refused}"))
                    .at("configuration")
            }
            ReloadError::Failed(error) => {
                tracing::error!("failed to take over the configuration: {error:#}");
                HttpError::internal()
            }
        }
    }
}

/// Configuration of a running server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConfigReloader(Arc<ReloaderShared>);

struct ReloaderShared {
    source: ConfigSource,
    targets: ReloadTargets,
    in_force: Mutex<ConfigLayers>,
    /// Secrets of the gateway in force, which reveal a change behind a reference.
    secrets: Mutex<BTreeMap<String, String>>,
    /// Held while a configuration is read and applied.
    reloading: tokio::sync::Mutex<()>,
}

/// Configuration that was reloaded and can be served.
struct CheckedReload {
    /// Layers in force once it is applied.
    layers: ConfigLayers,
    config: CoveConfig,
    secrets: BTreeMap<String, String>,
    reloaded: ConfigReloaded,
}

impl ConfigReloader {
    fn new(source: ConfigSource, targets: ReloadTargets) -> Result<ConfigReloader> {
        let secrets = gateways::secrets(&source.config, &source.environment)?;
        Ok(ConfigReloader(Arc::new(ReloaderShared {
            in_force: Mutex::new(source.layers.clone()),
            secrets: Mutex::new(secrets),
            source,
            targets,
            reloading: tokio::sync::Mutex::default(),
        })))
    }

    /// Returns the configuration in force for display.
    pub(crate) fn view(&self) -> ConfigView {
        config::view(&self.in_force(), &self.0.source.config.data_dir.display().to_string())
    }

    /// Reloads the configuration at every SIGHUP. Never returns.
    pub(crate) async fn follow(&self, mut hangups: Hangups) {
        loop {
            hangups.next().await;
            match self.reload().await {
                Ok(_) => {}
                Err(error) => {
                    let problems = error.to_string().replace('\n', "; ");
                    tracing::warn!(%problems, "the configuration is not taken over");
                }
            }
        }
    }

    /// Reads the configuration again and applies the settings that need no restart.
    ///
    /// # Errors
    /// If it cannot be served, with all problems; nothing has changed then.
    pub(crate) async fn reload(&self) -> Result<ConfigReloaded, ReloadError> {
        let _one_at_a_time = self.0.reloading.lock().await;
        let (shared, before) = (Arc::clone(&self.0), self.in_force());
        let read = node::task::blocking(move || shared.read(&before));
        let read = read.await.map_err(|error| ReloadError::Failed(error.into()))?;
        let CheckedReload { layers, config, secrets, mut reloaded } = read?;
        // Only this step can still refuse: a tenant may be one of the store's.
        if let Some(bouncer) = self.0.targets.bouncer() {
            let taken = bouncer.replace_config(config.bouncer.clone()).await;
            taken.map_err(|error| bouncer::refusal(&error))?;
        }
        let shared = Arc::clone(&self.0);
        let taken = node::task::blocking(move || {
            let is_renewed = shared.take_over(&config, &secrets)?;
            *shared.secrets.lock() = secrets;
            Ok(is_renewed)
        });
        let taken = taken.await.map_err(|error| ReloadError::Failed(error.into()))?;
        if taken.map_err(ReloadError::Failed)? {
            add(&mut reloaded.taken_over, "tls.cert");
        }
        *self.0.in_force.lock() = layers;
        let ConfigReloaded { taken_over, restart_needed_for } = &reloaded;
        tracing::info!(?taken_over, ?restart_needed_for, "configuration reloaded");
        Ok(reloaded)
    }

    /// Returns the layers in force. The bouncer also applies its table on its own, when its console
    /// or route requests that.
    fn in_force(&self) -> ConfigLayers {
        let mut layers = self.0.in_force.lock().clone();
        let Some(bouncer) = self.0.targets.bouncer() else { return layers };
        if let Some(read) = &*self.0.source.bouncer_read.lock()
            && read.config.bouncer == *bouncer.config()
        {
            layers.take_over(&read.layers, &["bouncer"]);
        }
        layers
    }
}

impl ReloaderShared {
    /// Reads the configuration, and finds all problems that keep it from being served.
    fn read(&self, before: &ConfigLayers) -> Result<CheckedReload, CoveConfigError> {
        let environment = &self.source.environment;
        let LoadedConfig { config, layers: read } = checked(self.source.reload()?, environment)?;
        let mut layers = before.clone();
        layers.take_over(&read, &[]);
        // Settings that need a restart keep their values, which must be consistent with the others.
        let merged = LoadedConfig::of(layers, environment)?;
        let LoadedConfig { config: merged, layers } = checked(merged, environment)?;
        let changed = config::changed(before, &read);
        let (taken_over, restart): (Vec<_>, Vec<_>) = changed.into_iter().partition(|it| it.1);
        let keys = |settings: Vec<(String, bool)>| settings.into_iter().map(|it| it.0).collect();
        let mut reloaded =
            ConfigReloaded { taken_over: keys(taken_over), restart_needed_for: keys(restart) };
        let secrets = gateways::secrets(&config, environment)?;
        if secrets != *self.secrets.lock() {
            add(&mut reloaded.taken_over, "gateway.secrets");
        }
        Ok(CheckedReload { layers, config: merged, secrets, reloaded })
    }

    /// Applies a configuration, and returns whether listeners use a renewed certificate. All
    /// fallible steps were checked before, so it fails only if files change in between.
    fn take_over(&self, config: &CoveConfig, secrets: &BTreeMap<String, String>) -> Result<bool> {
        let targets = &self.targets;
        let is_renewed = match &targets.tls {
            Some(tls) => self.renew(tls, &config.tls)?,
            None => false,
        };
        if let Some(services) = &targets.services {
            services.replace(config, secrets)?;
        }
        targets.tokens.trust(config.auth.issuers.clone()).context("auth.issuers")?;
        targets.tokens.reload().context("failed to read the tokens")?;
        targets.limits.replace(config);
        targets.log.set(config.log.level);
        Ok(is_renewed)
    }

    fn renew(&self, tls: &HttpListenerTls, config: &HttpTlsConfig) -> Result<bool> {
        let (Some(cert), Some(key)) = (&config.cert, &config.key) else { return Ok(false) };
        let current = tls.certificate.files();
        let named: (&Path, &Path) = (cert, key);
        let renewed = match (current.0.as_path(), current.1.as_path()) == named {
            true => tls.certificate.refresh(),
            false => tls.certificate.replace(cert, key).map(|()| true),
        };
        renewed.context("tls.cert")
    }
}

/// Adds a setting to the applied ones, unless it or one below it is listed.
fn add(taken_over: &mut Vec<String>, key: &str) {
    let is_there =
        |it: &String| it == key || it.strip_prefix(key).is_some_and(|it| it.starts_with('.'));
    if !taken_over.iter().any(is_there) {
        taken_over.push(key.to_owned());
    }
}

/// Returns the configuration if it can be served.
///
/// # Errors
/// All problems that keep it from being served.
fn checked(
    loaded: LoadedConfig,
    environment: &Environment,
) -> Result<LoadedConfig, CoveConfigError> {
    let LoadedConfig { config, mut layers } = loaded;
    for (key, message) in settings::contradictions(&config, environment) {
        layers.add_problem(&key, message);
    }
    match layers.problems.is_empty() {
        true => Ok(LoadedConfig { config, layers }),
        false => Err(CoveConfigError::Problems(layers.problems)),
    }
}
