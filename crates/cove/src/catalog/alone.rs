//! The catalog without sandboxes and without a bouncer: `cove catalog serve`.

use anyhow::{Context as _, Result, bail};
use node::clock::IdGenerator;
use node::data_dir::DataDir;
use node::drain::DrainHandle;
use node::http::{self, BoundListener, HttpShell};
use node::shared_keys::KeyCheck;
use node::telemetry::{self, HttpMetrics, MetricsRegistry};
use toml::Value;

use super::{RunningCatalog, site};
use crate::cli::CatalogServeArgs;
use crate::config::Flags;
use crate::ready;
use crate::serve::{StartHint, greet, open_routes, runtime};
use crate::{Source, service_manager, storage};

/// The settings that have a flag.
pub(crate) fn flags(args: &CatalogServeArgs) -> Flags {
    let all = [
        ("http", &args.http, "--http"),
        ("log.level", &args.log_level, "--log-level"),
        ("log.format", &args.log_format, "--log-format"),
    ];
    let typed = all
        .into_iter()
        .filter_map(|(path, value, flag)| Some((path, Value::from(value.as_deref()?), flag)));
    typed.collect()
}

/// Runs it until a signal ends it.
pub(super) fn serve(source: &Source, keys: KeyCheck) -> Result<()> {
    let Source { config, environment, .. } = source;
    telemetry::init_logs(config.log.format, config.log.level, environment.colour())
        .map_err(anyhow::Error::from_boxed)?;
    if !config.catalog.enabled {
        bail!("there is nothing to do: catalog.enabled is off");
    }
    let data_dir = DataDir::open(&config.data_dir).context("failed to open the data directory")?;
    runtime()?.block_on(run(source, &data_dir, keys))
}

async fn run(source: &Source, data_dir: &DataDir, keys: KeyCheck) -> Result<()> {
    let Source { config, environment, .. } = source;
    let listener = BoundListener::bind(&config.http).await.context("failed to listen")?;
    let listener = listener.with_tls(config.tls.listener()?);
    let drain = DrainHandle::new();
    let signals = drain.on_signals().context("failed to listen to signals")?;
    let mut registry = telemetry::registry(env!("CARGO_PKG_VERSION"));
    let http_metrics = HttpMetrics::new(&mut registry);
    let store = storage::store_config(config, environment, data_dir.path())?;
    let store = storage::open(store, &mut registry).await?;
    let sealer = storage::objects::sealer(config, environment, data_dir.path())?;
    storage::check_keys(&store, &sealer, None, keys).await?;
    let tokens = storage::tokens(data_dir.path(), &store).await?;
    let lake =
        RunningCatalog::start(config, environment, data_dir.path(), &store, &tokens, None).await?;
    let lake = lake.context("there is no catalog")?;
    lake.register(&mut registry);

    let limits = config.limits.limits();
    let ids = IdGenerator::new().context("failed to seed the id generator")?;
    let shell = HttpShell::new(limits, tokens.clone(), drain.clone(), http_metrics, ids)
        .streaming(&catalog::http::STREAMING);
    let ending = lake.ending();
    let disk = (data_dir.path(), config.limits.disk_free_bytes_min());
    let readiness = ready::checks(&store, None, disk);
    let routes = open_routes(&drain, MetricsRegistry::new(registry), readiness);
    let address = listener.address();
    let written = data_dir.write_addresses(address, &[]);
    written.context("failed to say where the server listens")?;
    tracing::info!(%address, data_dir = %data_dir.path().display(), "listening");
    greet(source, address, data_dir.path(), StartHint::Catalog);

    let tls = listener.tls().cloned();
    let listeners = vec![(listener, site(&shell, routes, Vec::new(), Some(lake.routes())))];
    let serving = http::serve_all(listeners, limits, drain.clone(), config.drain_s);
    let working = async { tokio::join!(serving, lake.work(&drain)) };
    let certificate = async {
        if let Some(tls) = tls {
            tls.certificate.keep_current().await;
        }
    };
    let manager = service_manager::follow(environment, &drain);
    let background = async { tokio::join!(signals, tokens.keep_current(), certificate, manager) };
    tokio::select! {
        _ = working => {}
        _ = background => {}
    }
    ending.write().await;
    store.close().await;
    data_dir.remove_addresses().context("failed to remove the addresses")?;
    tracing::info!("stopped");
    Ok(())
}
