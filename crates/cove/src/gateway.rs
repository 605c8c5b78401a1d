//! The gateway, plugged together: what it asks of the bouncer and of others, each in a file.

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
use node::store::SqlStore;
use node::telemetry::Registry;

use self::catalogs::CatalogBackend;
use self::databases::DatabaseBackend;
use self::models::ModelBackend;
use crate::config::{self, CoveConfig, Environment};

/// Starts it, with what there is behind it.
pub(crate) async fn start(
    config: &CoveConfig,
    environment: &Environment,
    store: &SqlStore,
    bouncer: Option<&Bouncer>,
    guests: Option<SandboxAccess>,
    registry: &mut Registry,
) -> Result<GatewayService> {
    let secrets = config.gateway.secrets.0.iter().map(|(name, text)| {
        let setting = format!("gateway.secrets.{name}");
        Ok((name.clone(), config::resolve(&setting, text, environment)?))
    });
    let secrets: BTreeMap<String, String> =
        secrets.collect::<Result<_, config::CoveConfigError>>()?;
    let databases =
        bouncer.cloned().map(|it| Arc::new(DatabaseBackend::new(it)) as Arc<dyn DatabaseBackends>);
    let models = ModelBackend::new(config, environment, registry)?;
    let parts = GatewayParts {
        config: gateway::GatewayConfig { secrets: NamedSecrets(secrets), ..config.gateway.clone() },
        store: store.clone(),
        databases,
        catalogs: guests.map(|it| Arc::new(CatalogBackend::new(it)) as Arc<dyn CatalogBackends>),
        models: models.map(|it| Arc::new(it) as Arc<dyn ModelBackends>),
        roots: TlsRoots::Machine,
        resolver: None,
    };
    GatewayService::start(parts, registry).await.context("failed to start the gateway")
}
