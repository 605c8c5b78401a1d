//! The gateway, plugged together: what it asks of the bouncer and of others, each in a file.

mod catalogs;
mod databases;
mod models;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bouncer::Bouncer;
use catalog::guest::Guests;
use gateway::config::Secrets;
use gateway::doors::{Catalogs, Databases, Models};
use gateway::{Parts, Service};
use node::client::Roots;
use node::store::Store;
use node::telemetry::Registry;

use self::catalogs::Warehouses;
use self::databases::Tenants;
use self::models::Endpoint;
use crate::config::{self, Config, Environment};

/// Starts it, with what there is behind it.
pub(crate) async fn start(
    (config, environment): (&Config, &Environment),
    store: &Store,
    (bouncer, guests): (Option<&Bouncer>, Option<Guests>),
    registry: &mut Registry,
) -> Result<Service> {
    let secrets = config.gateway.secrets.0.iter().map(|(name, text)| {
        let setting = format!("gateway.secrets.{name}");
        Ok((name.clone(), config::resolve(&setting, text, environment)?))
    });
    let secrets: BTreeMap<String, String> = secrets.collect::<Result<_, config::Error>>()?;
    let databases = bouncer.cloned().map(|it| Arc::new(Tenants::new(it)) as Arc<dyn Databases>);
    let models = Endpoint::new(config, environment, registry)?;
    let parts = Parts {
        config: gateway::Config { secrets: Secrets(secrets), ..config.gateway.clone() },
        store: store.clone(),
        databases,
        catalogs: guests.map(|it| Arc::new(Warehouses::new(it)) as Arc<dyn Catalogs>),
        models: models.map(|it| Arc::new(it) as Arc<dyn Models>),
        roots: Roots::Machine,
        resolver: None,
    };
    Service::start(parts, registry).await.context("failed to start the gateway")
}
