//! Assembles the gateway from its backends; each kind of grant has its backend in one file.

mod catalogs;
mod databases;
mod models;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bouncer::Bouncer;
use catalog::guest::SandboxAccess;
use gateway::config::NamedSecrets;
use gateway::doors::{CatalogBackends, DatabaseBackends, ModelBackends};
use gateway::{GatewayParts, GatewayService};
use node::client::TlsRoots;
use node::cluster::AmountLedger;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::store::SqlStore;
use node::telemetry::Registry;
use node::traces::Tracer;

use self::catalogs::CatalogBackend;
use self::databases::DatabaseBackend;
use self::models::ModelBackend;
use crate::config::{self, CoveConfig, Environment};

/// Checks the configured endpoint of the model.
pub(crate) fn check_model(config: &CoveConfig, environment: &Environment) -> Result<()> {
    let (fence, mut registry) = (EffectFence::open(), Registry::default());
    ModelBackend::new(config, environment, None, fence, None, &mut registry).map(drop)
}

/// Backends of grants, if they are enabled, and tracing of their use.
pub(crate) struct GrantBackends<'a> {
    pub(crate) bouncer: Option<&'a Bouncer>,
    pub(crate) guests: Option<SandboxAccess>,
    pub(crate) tracer: Option<Tracer>,
    /// Blocks outgoing requests after the server's lease has ended.
    pub(crate) fence: EffectFence,
    /// Records the amounts that grants have used.
    pub(crate) amounts: AmountLedger,
    /// Scheduler that is shared with callers of the HTTP interface.
    pub(crate) turns: &'a FairScheduler,
}

/// Returns the configured secrets by name.
pub(crate) fn secrets(
    config: &CoveConfig,
    environment: &Environment,
) -> Result<BTreeMap<String, String>, config::CoveConfigError> {
    let resolved = config.gateway.secrets.0.iter().map(|(name, text)| {
        let setting = format!("gateway.secrets.{name}");
        Ok((name.clone(), config::resolve(&setting, text, environment)?))
    });
    resolved.collect()
}

/// Returns the gateway's table with its secret references resolved.
pub(crate) fn with_secrets(
    config: &CoveConfig,
    secrets: BTreeMap<String, String>,
) -> gateway::GatewayConfig {
    gateway::GatewayConfig { secrets: NamedSecrets(secrets), ..config.gateway.clone() }
}

/// Starts the gateway with its backends.
pub(crate) async fn start(
    config: &CoveConfig,
    environment: &Environment,
    store: &SqlStore,
    behind: GrantBackends<'_>,
    registry: &mut Registry,
) -> Result<GatewayService> {
    let GrantBackends { bouncer, guests, tracer, fence, amounts, turns } = behind;
    let amounts = Some(amounts);
    let databases =
        bouncer.cloned().map(|it| Arc::new(DatabaseBackend::new(it)) as Arc<dyn DatabaseBackends>);
    let models = ModelBackend::new(
        config,
        environment,
        tracer.clone(),
        fence.clone(),
        amounts.clone(),
        registry,
    )?;
    let parts = GatewayParts {
        config: with_secrets(config, secrets(config, environment)?),
        store: store.clone(),
        databases,
        catalogs: guests.map(|it| Arc::new(CatalogBackend::new(it)) as Arc<dyn CatalogBackends>),
        models: models.map(|it| Arc::new(it) as Arc<dyn ModelBackends>),
        roots: TlsRoots::Machine,
        resolver: None,
        tracer,
        fence,
        amounts,
        turns: turns.clone(),
    };
    GatewayService::start(parts, registry).await.context("failed to start the gateway")
}
