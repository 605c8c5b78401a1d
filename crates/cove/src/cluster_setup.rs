//! `cove cluster`: creates the keys that all nodes share on the first node, and copies them to
//! others.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, bail};
use node::cluster::join_token::{self, ClusterKeys};
use node::data_dir::DataDir;
use node::sealed::Sealer;
use node::shared_keys::KeyCheck;
use node::store::{SqlStore, StoreUrl};
use node::telemetry::Registry;
use serde_json::json;

use crate::cli::{ClusterArgs, ClusterCommand};
use crate::config::{CoveConfig, Environment};
use crate::run::print_json;
use crate::storage::objects;
use crate::{serve, storage};

/// Runs one command.
pub(crate) fn run(
    args: &ClusterArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> Result<()> {
    serve::runtime()?.block_on(async {
        match &args.command {
            ClusterCommand::Init => init(args, config, environment).await,
            ClusterCommand::Token { expires } => {
                if !config.data_dir.is_dir() {
                    bail!(
                        "there is no data directory at `{}`; run `cove cluster init` first",
                        config.data_dir.display()
                    );
                }
                let store = open(config, environment).await?;
                let keys = keys(config, environment)?;
                check(&store, &keys).await?;
                let token = join_token::issue(&store, &keys, *expires).await?;
                match args.json {
                    true => Ok(print_json(&json!({ "token": token }))?),
                    false => Ok(writeln!(io::stdout(), "{token}")?),
                }
            }
            ClusterCommand::Join { token } => join(args, token, config, environment).await,
        }
    })
}

async fn init(args: &ClusterArgs, config: &CoveConfig, environment: &Environment) -> Result<()> {
    let data_dir = DataDir::open(&config.data_dir).context("failed to open the data directory")?;
    let store = open(config, environment).await?;
    let keys = keys(config, environment)?;
    check(&store, &keys).await?;
    storage::tokens(data_dir.path(), &store).await?;
    report(
        args,
        config,
        "the keys of the cluster are there, and marks of them in the store. Start this server with \
         `cove serve`; `cove cluster token` lets another one join",
    )
}

async fn join(
    args: &ClusterArgs,
    token: &str,
    config: &CoveConfig,
    environment: &Environment,
) -> Result<()> {
    let jobs = &config.executions.jobs;
    for (setting, is_set) in [
        ("secrets_key", config.secrets_key.is_some()),
        ("executions.jobs.webhook_key", jobs.webhook_key.is_some()),
    ] {
        if is_set {
            bail!(
                "{setting} is set: this server has the key from its configuration, and needs no token"
            );
        }
    }
    let data_dir = DataDir::open(&config.data_dir).context("failed to open the data directory")?;
    // Checked before the token is used up.
    for file in [Sealer::KEY_FILE, storage::WEBHOOK_KEY_FILE] {
        let path = data_dir.path().join(file);
        if path.exists() {
            bail!(
                "`{}` is there already: this server has keys of its own. Move it away if nothing \
                 needs it",
                path.display()
            );
        }
    }
    let store = open(config, environment).await?;
    let keys = join_token::redeem(&store, token).await?;
    check(&store, &keys).await?;
    Sealer::keep_key(data_dir.path(), &keys.secrets)?;
    storage::keep_webhook_key(data_dir.path(), &keys.webhooks)?;
    report(args, config, "this server has the keys of the cluster; start it with `cove serve`")
}

fn report(args: &ClusterArgs, config: &CoveConfig, text: &str) -> Result<()> {
    match args.json {
        true => Ok(print_json(&json!({ "data_dir": config.data_dir }))?),
        false => Ok(writeln!(io::stdout(), "{}: {text}", config.data_dir.display())?),
    }
}

/// Opens the store, which must be one that servers can share.
async fn open(config: &CoveConfig, environment: &Environment) -> Result<SqlStore> {
    let settings = storage::store_config(config, environment, &config.data_dir)?;
    if matches!(settings.url, StoreUrl::Sqlite(_)) {
        bail!("servers of a cluster share a PostgreSQL: set `store.url`, or COVE_STORE__URL");
    }
    storage::open(settings, &mut Registry::default()).await
}

/// Returns the keys of this server; creates missing ones.
fn keys(config: &CoveConfig, environment: &Environment) -> Result<ClusterKeys> {
    Ok(ClusterKeys {
        secrets: objects::secrets_key(config, environment, &config.data_dir)?,
        webhooks: storage::webhook_key(config, environment, &config.data_dir)?,
    })
}

/// Compares keys with those of the servers on the store, or registers them if there are none.
async fn check(store: &SqlStore, keys: &ClusterKeys) -> Result<()> {
    let sealer = Sealer::new(&keys.secrets);
    storage::check_keys(store, &sealer, Some(&keys.webhooks), KeyCheck::Compare).await
}
