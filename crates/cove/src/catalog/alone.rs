//! The catalog without sandboxes and without a bouncer: `cove catalog serve`.

use anyhow::{Context as _, Result, bail};
use node::clock::IdGenerator;
use node::data_dir::DataDir;
use node::drain::{DrainHandle, Hangups};
use node::fair::FairScheduler;
use node::http::{self, BoundListener, HttpShell};
use node::shared_keys::KeyCheck;
use node::telemetry::{self, HttpMetrics};
use toml::Value;

use super::{CatalogSite, RunningCatalog, site};
use crate::cli::CatalogServeArgs;
use crate::config::{ConfigSource, Flags};
use crate::greeting::{StartHint, greet};
use crate::ready;
use crate::reload::{ReloadSignals, ReloadedLimits};
use crate::scrape::MetricsPage;
use crate::serve::{open_routes, runtime};
use crate::traces::ServerTraces;
use crate::{service_manager, settings, storage};

/// Returns the settings that have a flag.
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

/// Runs the catalog until a signal ends it.
pub(super) fn serve(source: &ConfigSource, keys: KeyCheck, hangups: Hangups) -> Result<()> {
    let ConfigSource { config, environment, .. } = source;
    let log =
        telemetry::init_logs(config.log.format, config.log.level, environment.has_log_colours())
            .map_err(anyhow::Error::from_boxed)?;
    if !config.catalog.enabled {
        bail!("there is nothing to do: catalog.enabled is off");
    }
    let data_dir = DataDir::open(&config.data_dir).context("failed to open the data directory")?;
    let signals = ReloadSignals { source: source.clone(), log, hangups };
    runtime()?.block_on(run(source, &data_dir, keys, signals))
}

async fn run(
    source: &ConfigSource,
    data_dir: &DataDir,
    keys: KeyCheck,
    reload: ReloadSignals,
) -> Result<()> {
    let ConfigSource { config, environment, .. } = source;
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
    let keyed = storage::idempotency_keys(&store, &sealer).await?;
    let tokens = storage::tokens(data_dir.path(), &store).await?;
    let beside = CatalogSite::default();
    let lake = RunningCatalog::start(config, environment, data_dir.path(), &store, &tokens, beside)
        .await?;
    let lake = lake.context("there is no catalog")?;
    lake.register(&mut registry);

    let traces = ServerTraces::start(source, None, &mut registry)?;
    let limits = ReloadedLimits::new(config);
    let ids = IdGenerator::new().context("failed to seed the id generator")?;
    let shell =
        HttpShell::new(limits.shell.clone(), tokens.clone(), drain.clone(), http_metrics, ids)
            .streaming(&catalog::http::STREAMING)
            .traced_by(traces.tracer());
    let ending = lake.ending();
    let readiness = ready::checks(&store, None, limits.disk());
    let metrics = MetricsPage::new(registry, &readiness, listener.tls(), None, data_dir.path());
    let (reload, hangups) = reload.reloader(None, &tokens, listener.tls(), &limits)?;
    let routes = open_routes(&drain, metrics, readiness)
        .merge(settings::routes(reload.clone(), tokens.clone()));
    let address = listener.address();
    let written = data_dir.write_addresses(address, &[]);
    written.context("failed to say where the server listens")?;
    tracing::info!(%address, data_dir = %data_dir.path().display(), "listening");
    greet(source, address, data_dir.path(), StartHint::Catalog);

    let tls = listener.tls().cloned();
    let faces = http::native_faces(api::operations::all());
    let listeners = vec![(listener, site(&shell, routes, faces, Some(lake.routes(keyed))))];
    let turns = FairScheduler::for_this_runtime();
    let serving = http::serve_all(listeners, limits.shell, &turns, drain.clone(), config.drain_s);
    let working = async { tokio::join!(serving, lake.work(&drain)) };
    let certificate = async {
        if let Some(tls) = tls {
            tls.certificate.keep_current().await;
        }
    };
    let manager = service_manager::follow(environment, &drain);
    let background = async {
        tokio::join!(signals, tokens.keep_current(), certificate, manager, reload.follow(hangups))
    };
    tokio::select! {
        _ = working => {}
        _ = background => {}
    }
    let writing = async {
        ending.write().await;
        store.close().await;
    };
    storage::finish(writing).await;
    traces.close().await;
    data_dir.remove_addresses().context("failed to remove the addresses")?;
    tracing::info!("stopped");
    Ok(())
}
