//! `cove token`: the API tokens of a data directory, or of all servers on a store.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::TokenView;
use node::auth::{self, NewToken, TokenRecord, TokenRegistry, TokenScopes};
use node::clock;
use node::store::{SqlStore, StoreUrl};
use node::telemetry::Registry;
use serde_json::json;

use crate::agent::print_line;
use crate::cli::TokenCommand;
use crate::config::{CoveConfig, Environment};
use crate::plain_text::plain;
use crate::run::print_json;
use crate::{serve, storage};

/// Form in which tokens are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenStyle {
    /// True to print the token in the form that E2B's clients require.
    pub(crate) e2b: bool,
    /// True to print JSON.
    pub(crate) json: bool,
}

/// Runs `cove token` on a data directory, or on the store that its server shares.
pub(crate) fn run(
    config: &CoveConfig,
    environment: &Environment,
    command: Option<TokenCommand>,
    style: TokenStyle,
) -> Result<()> {
    let data_dir = &config.data_dir;
    // A mistyped directory must not silently become a new one.
    if !data_dir.is_dir() {
        bail!(
            "there is no data directory at `{}`; start `cove serve` once, or name another one with \
             --data-dir",
            data_dir.display()
        );
    }
    let Some(command) = command else {
        let token = first(config, environment, style.e2b)?;
        return match style.json {
            true => Ok(print_json(&json!({ "token": token }))?),
            false => Ok(writeln!(io::stdout(), "{token}")?),
        };
    };
    // The runtime drives the store while tokens are changed.
    let runtime = serve::runtime()?;
    let tokens =
        runtime.block_on(open(config, environment)).context("failed to read the tokens")?;
    run_on(&tokens, command, style)
}

/// Returns the token of the first start, which is in the data directory even if the others are not.
fn first(config: &CoveConfig, environment: &Environment, e2b: bool) -> Result<String> {
    let path = auth::first_token_path(&config.data_dir);
    let is_shared = || {
        let settings = storage::store_config(config, environment, &config.data_dir);
        settings.is_ok_and(|settings| matches!(settings.url, StoreUrl::Postgres(_)))
    };
    let text = fs::read_to_string(&path).map_err(|error| explain(error, &path, is_shared()))?;
    let text = text.trim();
    let token = if e2b { auth::as_e2b(text) } else { Some(text.to_owned()) };
    token.with_context(|| format!("`{}` holds no token", path.display()))
}

/// Opens the tokens at the place where the server keeps them.
async fn open(config: &CoveConfig, environment: &Environment) -> Result<TokenRegistry> {
    let settings = storage::store_config(config, environment, &config.data_dir)?;
    match settings.url {
        // A running server locks the store's file; the tokens' file is open to all.
        StoreUrl::Sqlite(_) => {
            let tokens = TokenRegistry::open(&config.data_dir)?;
            if tokens.is_moved() {
                bail!(
                    "the tokens of this directory are in the store that its server shares; name \
                     the store with --config or COVE_STORE__URL"
                );
            }
            Ok(tokens)
        }
        StoreUrl::Postgres(_) => {
            let store = SqlStore::open(settings, &mut Registry::default()).await?;
            Ok(TokenRegistry::open_shared(&config.data_dir, &store).await?)
        }
    }
}

fn run_on(tokens: &TokenRegistry, command: TokenCommand, style: TokenStyle) -> Result<()> {
    let TokenStyle { e2b, json } = style;
    match command {
        TokenCommand::Create { name, operator, tenant, scope, expires } => {
            let scopes =
                if scope.is_empty() { TokenScopes::ALL } else { scope.into_iter().collect() };
            let tenant = tenant.as_deref();
            let new = NewToken { name: &name, operator, tenant, scopes, lifetime: expires };
            let (record, secret) = tokens.create_as(&new).context("failed to create a token")?;
            let text = if e2b { secret.expose_as_e2b() } else { secret.expose() };
            if json {
                let mut document = serde_json::to_value(view(&record))?;
                document["token"] = text.into();
                return Ok(print_json(&document)?);
            }
            writeln!(io::stdout(), "{text}")?;
            note(&format!("`{}` is {}; this is the only time it is shown", record.name, record.id));
        }
        TokenCommand::List => {
            for record in tokens.list() {
                if json {
                    print_line(&view(&record))?;
                    continue;
                }
                let mark = if record.operator { "  (operator)" } else { "" };
                let tenant =
                    record.tenant.as_ref().map(|it| format!("  tenant {it}")).unwrap_or_default();
                let scopes = match record.scopes {
                    TokenScopes::ALL => String::new(),
                    some => format!("  for {some}"),
                };
                let end =
                    record.expires_ms.map(|end_ms| match record.is_expired(clock::wall_ms()) {
                        true => format!("  expired {}", clock::rfc3339_of_ms(end_ms)),
                        false => format!("  until {}", clock::rfc3339_of_ms(end_ms)),
                    });
                let about = format!("{mark}{tenant}{scopes}{}", end.unwrap_or_default());
                let (id, created, name) = (record.id, record.created, plain(&record.name));
                writeln!(io::stdout(), "{id}  {created}  {name}{about}")?;
            }
        }
        TokenCommand::Revoke { id } => {
            let record = tokens.revoke(&id).context("failed to revoke the token")?;
            match json {
                true => print_json(&view(&record))?,
                false => note(&format!("revoked {} (`{}`)", record.id, record.name)),
            }
        }
    }
    Ok(())
}

/// Returns a token for display, without the hash of its secret.
pub(crate) fn view(record: &TokenRecord) -> TokenView {
    TokenView {
        id: record.id.clone(),
        name: record.name.clone(),
        created: record.created.clone(),
        operator: record.operator,
        tenant: record.tenant.clone(),
        scopes: record.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        expires: record.expires_ms.map(clock::rfc3339_of_ms),
        expired: record.is_expired(clock::wall_ms()),
    }
}

/// Adds a remedy to the error of a token file that cannot be read.
fn explain(error: io::Error, path: &Path, is_shared: bool) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound if is_shared => {
            "the first token's file is not there: it is in the data directory of the server that \
             was the first on the store; `cove token create --name NAME` makes another one"
        }
        io::ErrorKind::NotFound => {
            "the first token's file is not there: the server has not been started yet, or the token \
             was revoked; `cove token create --name NAME` makes another one"
        }
        io::ErrorKind::PermissionDenied => "only the owner of the data directory may read it",
        _ => "failed to read the first token",
    };
    anyhow::Error::new(error).context(format!("{hint} (`{}`)", path.display()))
}

/// Prints a hint on standard error, so that standard output contains only data.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
