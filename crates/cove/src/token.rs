//! `cove token`: the API tokens of a data directory.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use node::auth::{self, NewToken, TokenRecord, TokenRegistry, TokenScopes};
use serde_json::{Value, json};

use crate::agent::print_line;
use crate::cli::TokenCommand;
use crate::plain_text::plain;
use crate::run::print_json;

/// Form in which tokens are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenStyle {
    /// As E2B's clients want them.
    pub(crate) e2b: bool,
    /// In JSON.
    pub(crate) json: bool,
}

/// Runs `cove token` on a data directory.
pub(crate) fn run(data_dir: &Path, command: Option<TokenCommand>, style: TokenStyle) -> Result<()> {
    let TokenStyle { e2b, json } = style;
    // A mistyped directory must not silently become a new one.
    if !data_dir.is_dir() {
        bail!(
            "there is no data directory at `{}`; start `cove serve` once, or name another one with \
             --data-dir",
            data_dir.display()
        );
    }
    let tokens = TokenRegistry::open(data_dir).context("failed to read the tokens")?;
    match command {
        None => {
            let path = tokens.first_token_path();
            let text = fs::read_to_string(&path).map_err(|error| explain(error, &path))?;
            let text = text.trim();
            let shown = if e2b { auth::as_e2b(text) } else { Some(text.to_owned()) };
            let shown = shown.with_context(|| format!("`{}` holds no token", path.display()))?;
            match json {
                true => print_json(&json!({ "token": shown }))?,
                false => writeln!(io::stdout(), "{shown}")?,
            }
        }
        Some(TokenCommand::Create { name, operator, tenant, scope }) => {
            let scopes =
                if scope.is_empty() { TokenScopes::ALL } else { scope.into_iter().collect() };
            let new = NewToken { name: &name, operator, tenant: tenant.as_deref(), scopes };
            let (record, secret) = tokens.create_as(&new).context("failed to create a token")?;
            let text = if e2b { secret.expose_as_e2b() } else { secret.expose() };
            if json {
                let mut document = public(&record);
                document["token"] = text.into();
                return Ok(print_json(&document)?);
            }
            writeln!(io::stdout(), "{text}")?;
            note(&format!("`{}` is {}; this is the only time it is shown", record.name, record.id));
        }
        Some(TokenCommand::List) => {
            for record in tokens.list() {
                if json {
                    print_line(&public(&record))?;
                    continue;
                }
                let mark = if record.operator { "  (operator)" } else { "" };
                let tenant = record.tenant.map(|it| format!("  tenant {it}")).unwrap_or_default();
                let scopes = match record.scopes {
                    TokenScopes::ALL => String::new(),
                    some => format!("  for {some}"),
                };
                let about = format!("{mark}{tenant}{scopes}");
                let (id, created, name) = (record.id, record.created, plain(&record.name));
                writeln!(io::stdout(), "{id}  {created}  {name}{about}")?;
            }
        }
        Some(TokenCommand::Revoke { id }) => {
            let record = tokens.revoke(&id).context("failed to revoke the token")?;
            match json {
                true => print_json(&public(&record))?,
                false => note(&format!("revoked {} (`{}`)", record.id, record.name)),
            }
        }
    }
    Ok(())
}

/// A token as others may see it: without the hash of its secret.
fn public(record: &TokenRecord) -> Value {
    let TokenRecord { id, name, created, operator, tenant, scopes, .. } = record;
    json!({
        "id": id, "name": name, "created": created, "operator": operator, "tenant": tenant,
        "scopes": scopes,
    })
}

/// Says what to do about a token file that cannot be read.
fn explain(error: io::Error, path: &Path) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "the first token's file is not there: the server has not been started yet, or the token \
             was revoked; `cove token create --name NAME` makes another one"
        }
        io::ErrorKind::PermissionDenied => "only the owner of the data directory may read it",
        _ => "failed to read the first token",
    };
    anyhow::Error::new(error).context(format!("{hint} (`{}`)", path.display()))
}

#[expect(clippy::print_stderr, reason = "hints go to standard error, so that output is only data")]
fn note(text: &str) {
    eprintln!("{text}");
}
