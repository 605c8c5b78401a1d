//! Starts the catalog, within a server or alone, with its environment and configuration; and `cove
//! catalog`.

mod alone;
mod audit;
mod functions;
mod identities;
mod lake;
pub(crate) mod names;
mod namespaces;
mod past;
mod policies;
mod principals;
mod rows;
mod search;
mod stats;
mod tables;
mod upkeep;
mod views;
mod warehouses;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use catalog::access::{AccessControl, AccessSettings, CatalogAuditLimits};
use catalog::guest::SandboxAccess;
use catalog::service::{Catalog, CatalogSettings, RelationService};
use catalog::storage::StorageSettings;
use catalog::{http, metrics};
use node::auth::TokenRegistry;
use node::cluster::PeerForwarder;
use node::drain::{DrainHandle, Hangups};
use node::http::{CompatFace, FastPath, HttpShell, IdempotencyKeys, ListenerSite};
use node::objects::SigningCredentials;
use node::removals::RemovalGate;
use node::store::SqlStore;
use node::telemetry::Registry;

use self::lake::RemoteWarehouse;
use crate::cli::{CatalogArgs, CatalogCommand};
use crate::config::{CoveConfig, Environment, Flags, ObjectsTable};
use crate::remote::{self, Remote, plain};
use crate::storage::objects;

/// Default directory of warehouses, in the data directory.
const WAREHOUSE_DIRECTORY: &str = "warehouse";

/// Runs one command, or the catalog alone.
pub(crate) fn run(args: &CatalogArgs, environment: &Environment) -> Result<ExitCode> {
    if let CatalogCommand::Serve(served) = &args.command {
        let flags = alone::flags(served);
        let source = crate::config_source(&args.server.config, environment, flags)?;
        let hangups = Hangups::before_runtime().context("failed to listen to signals")?;
        alone::serve(&source, served.keys.check(), hangups)?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = crate::config_source(&args.server.config, environment, Flags::new())?;
    Ok(remote::with_server(&args.server, &source.config, environment, async |server| {
        execute(args, &server).await.map(|()| 0)
    }))
}

async fn execute(args: &CatalogArgs, server: &Remote) -> Result<()> {
    let lake = || RemoteWarehouse::find(server, args.warehouse.as_deref(), args.json);
    match &args.command {
        CatalogCommand::Serve(_) => Ok(()),
        CatalogCommand::Namespace(it) => namespaces::execute(&lake().await?, &it.command).await,
        CatalogCommand::Table(it) => tables::execute(&lake().await?, &it.command).await,
        CatalogCommand::View(it) => views::execute(&lake().await?, &it.command).await,
        CatalogCommand::Principal(it) => principals::execute(server, args.json, &it.command).await,
        CatalogCommand::Grant(it) => principals::execute_grant(&lake().await?, &it.command).await,
        CatalogCommand::Warehouse(it) => warehouses::execute(server, args.json, &it.command).await,
        CatalogCommand::Key(it) => identities::execute_key(server, args.json, &it.command).await,
        CatalogCommand::Role(it) => {
            identities::execute_role(server, args.warehouse.as_deref(), args.json, &it.command)
                .await
        }
        CatalogCommand::Policy(it) => policies::execute(&lake().await?, &it.command).await,
        CatalogCommand::Audit(it) => audit::show(server, it, args.json).await,
        CatalogCommand::Function(it) => functions::execute(&lake().await?, &it.command).await,
        CatalogCommand::Maintain(it) => upkeep::maintain(&lake().await?, &it.command).await,
        CatalogCommand::Protection(it) => {
            upkeep::execute_protection(&lake().await?, &it.command).await
        }
        CatalogCommand::Retention(it) => {
            upkeep::execute_retention(&lake().await?, &it.command).await
        }
        CatalogCommand::Undrop(it) => past::execute_undrop(&lake().await?, &it.command).await,
        CatalogCommand::Search(it) => search::show(&lake().await?, it, args.json).await,
        CatalogCommand::Changes(it) => past::changes(server, &lake().await?, it, args.json).await,
    }
}

/// Formats a value for display: strings without quotes, and without terminal control characters.
fn text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => plain(text),
        serde_json::Value::Null => String::new(),
        other => plain(&other.to_string()),
    }
}

/// Routes of the catalog, and its fast path.
pub(crate) struct CatalogRoutes {
    router: Router,
    face: (&'static str, CompatFace),
    /// Fast path, which responds before a request is routed.
    at_once: Arc<dyn FastPath>,
}

/// Merges the routes of one listener: `routes`, and the catalog's if it is enabled.
pub(crate) fn site(
    shell: &HttpShell,
    routes: Router,
    mut faces: Vec<(&'static str, CompatFace)>,
    lake: Option<CatalogRoutes>,
) -> ListenerSite {
    let Some(CatalogRoutes { router, face, at_once }) = lake else {
        return shell.wrap_with(routes, faces).into();
    };
    faces.push(face);
    ListenerSite::from(shell.wrap_with(routes.merge(router), faces)).with_fast_path(shell, at_once)
}

/// Server that the catalog is part of.
#[derive(Debug, Default)]
pub(crate) struct CatalogSite {
    /// Name of the node, if other nodes reach it.
    pub(crate) node: Option<String>,
    /// Gate for removals of the catalog's files.
    pub(crate) removals: RemovalGate,
}

/// Running catalog.
pub(crate) struct RunningCatalog {
    catalog: Catalog,
    access: AccessControl,
    separator: String,
}

impl RunningCatalog {
    /// Opens the catalog if it is enabled, and restores metadata files lost in a power failure.
    pub(crate) async fn start(
        config: &CoveConfig,
        environment: &Environment,
        data_dir: &Path,
        store: &SqlStore,
        tokens: &TokenRegistry,
        site: CatalogSite,
    ) -> Result<Option<RunningCatalog>> {
        if !config.catalog.enabled {
            return Ok(None);
        }
        let sealer = Arc::new(objects::sealer(config, environment, data_dir)?);
        let settings = CatalogSettings {
            sealer: Some(sealer),
            node: site.node,
            removals: site.removals,
            ..settings(config, environment, data_dir)?
        };
        if config.catalog.root.is_none() {
            let hint = "tables are in the data directory, which clients of other users cannot open: \
                        `catalog.root` names another place";
            tracing::info!(root = settings.root, hint, "the catalog has a warehouse");
        }
        let access =
            AccessSettings { audit: audit_limits(config), issuers: config.catalog.issuers.clone() };
        let access = AccessControl::open(store.clone(), tokens.clone(), access).await;
        let access = access.context("failed to open the rights of the catalog")?;
        let catalog = Catalog::open(store.clone(), settings, Arc::new(access.clone())).await;
        let catalog = catalog.context("failed to open the catalog")?;
        let found = catalog.recover().await.context("failed to look after metadata files")?;
        if found.written > 0 {
            tracing::warn!(written = found.written, "metadata files were written again");
        }
        let separator = config.catalog.namespace_separator.clone();
        let separator = separator.unwrap_or_else(|| http::SEPARATOR_DEFAULT.to_owned());
        Ok(Some(RunningCatalog { catalog, access, separator }))
    }

    /// Returns the routes of the HTTP interface, and how the shell treats them.
    pub(crate) fn routes(&self, keys: IdempotencyKeys) -> CatalogRoutes {
        let (catalog, access) = (self.catalog.clone(), self.access.clone());
        let (router, at_once) = http::routes(catalog, access, &self.separator, Some(keys));
        CatalogRoutes { router, face: (http::PREFIX, http::face()), at_once }
    }

    /// Returns the access for sandboxes, which connect through their own sockets.
    pub(crate) fn guests(&self) -> SandboxAccess {
        SandboxAccess::new(self.catalog.clone(), self.access.clone(), &self.separator)
    }

    /// Returns the service that counts commits.
    pub(crate) fn relations(&self) -> RelationService {
        self.catalog.relations().clone()
    }

    /// Registers the catalog's metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        metrics::register(&self.catalog, registry);
    }

    /// Reports changed rights to other nodes. Returns the routes that receive their reports.
    pub(crate) fn join(&self, nodes: PeerForwarder) -> Router {
        self.access.join(nodes);
        self.access.peer_routes()
    }

    /// Returns the final step, for the time after the last response.
    pub(crate) fn ending(&self) -> CatalogShutdown {
        CatalogShutdown(self.access.clone())
    }

    /// Runs background work until the server drains.
    pub(crate) async fn work(self, drain: &DrainHandle) {
        tokio::select! {
            () = self.catalog.work(drain) => {}
            () = self.access.keep_current() => {}
        }
    }
}

/// Final step of a catalog's shutdown.
pub(crate) struct CatalogShutdown(AccessControl);

impl CatalogShutdown {
    /// Writes the last audit records.
    pub(crate) async fn write(self) {
        if let Err(error) = self.0.audit_log().write_audit().await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the last audit records of the catalog were not written");
        }
    }
}

fn audit_limits(config: &CoveConfig) -> CatalogAuditLimits {
    let age = Duration::from_secs(config.catalog.audit_days.saturating_mul(24 * 3600));
    CatalogAuditLimits { age, lines_max: config.catalog.audit_lines_max }
}

/// Checks that credentials are configured if tables are in buckets.
pub(crate) fn check(config: &CoveConfig, environment: &Environment, data_dir: &Path) -> Result<()> {
    settings(config, environment, data_dir).map(drop)
}

fn settings(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<CatalogSettings> {
    let table = &config.catalog;
    let all = data_dir.join(WAREHOUSE_DIRECTORY);
    let own = || all.join(&table.warehouse);
    // Locations are not secret references, which begin with `file:` as well.
    let root = table.root.clone().unwrap_or_else(|| format!("file://{}", own().display()));
    let is_bucket = |location: &String| location.starts_with("s3");
    let is_needed = std::iter::once(&root).chain(&table.locations).any(is_bucket);
    let credentials = match credentials(config, environment) {
        Ok(found) => Some(found),
        // No key is needed. Warehouses that are created later bring their own.
        Err(_) if !is_needed && is_keyless(config) => None,
        Err(error) => return Err(error),
    };
    let warehouse_roots = match &table.warehouse_roots[..] {
        [] => vec![format!("file://{}", all.display())],
        roots => roots.to_vec(),
    };
    Ok(CatalogSettings {
        warehouse: table.warehouse.clone(),
        root,
        locations: table.locations.clone(),
        credentials,
        storage: StorageSettings {
            role_arn: table.role_arn.clone(),
            external_id: table.external_id.clone(),
            sts_endpoint: table.sts_endpoint.clone(),
            vended_credentials: table.vended_credentials,
            remote_signing: table.remote_signing,
            credentials_seconds: table.credentials_seconds,
            plain_locations: table.plain_locations,
            ..StorageSettings::default()
        },
        warehouse_roots,
        sealer: None,
        cache_bytes_max: table.cache_bytes_max,
        check_files: table.check_files,
        pointer_cache: Duration::from_millis(table.pointer_cache_ms.into()),
        undrop_seconds: table.undrop_seconds,
        log_retention_seconds: table.log_retention_seconds,
        node: None,
        removals: RemovalGate::default(),
    })
}

/// Returns whether the configuration sets no key for buckets.
fn is_keyless(config: &CoveConfig) -> bool {
    let catalog = &config.catalog;
    [&catalog.access_key_id, &catalog.secret_access_key, &catalog.session_token]
        .iter()
        .all(|it| it.is_none())
}

fn credentials(config: &CoveConfig, environment: &Environment) -> Result<SigningCredentials> {
    let catalog = &config.catalog;
    let table = ObjectsTable {
        url: None,
        access_key_id: catalog.access_key_id.clone(),
        secret_access_key: catalog.secret_access_key.clone(),
        session_token: catalog.session_token.clone(),
    };
    objects::credentials("catalog", "root", &table, environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    /// Checks the location of the warehouse with these variables, or the error.
    fn check(variables: &[(&str, &str)], expected: Result<&str, &str>) {
        let variables = [("HOME", "/nowhere")].iter().chain(variables);
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = Environment::made_up(variables.collect());
        let config = CoveConfig::load(None, &environment, Flags::new()).unwrap();
        let settings = settings(&config, &environment, Path::new("/data"));
        let outcome = settings
            .map(|it| format!("{} {} {}", it.warehouse, it.root, it.credentials.is_some()))
            .map_err(|error| format!("{error:#}"));
        assert_eq!(outcome.as_ref().map(|it| &**it).map_err(|it| &**it), expected);
    }

    #[test]
    fn the_warehouse_is_in_the_data_directory_unless_told_otherwise() {
        check(&[], Ok("main file:///data/warehouse/main false"));
        let name = ("COVE_CATALOG__WAREHOUSE", "lake");
        check(&[name], Ok("lake file:///data/warehouse/lake false"));
        let root = ("COVE_CATALOG__ROOT", "file:///srv/lake");
        check(&[root], Ok("main file:///srv/lake false"));
        let root = ("COVE_CATALOG__ROOT", "s3://bucket/lake");
        let missing = "catalog.root needs a key: catalog.access_key_id and \
            catalog.secret_access_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        check(&[root], Err(missing));
        let (id, secret) = (("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden"));
        check(&[root, id, secret], Ok("main s3://bucket/lake true"));
        let own = ("COVE_CATALOG__ACCESS_KEY_ID", "env:NONE");
        check(&[root, own, id, secret], Err("catalog.access_key_id: `NONE` is not set"));
    }
}
