//! `cove session grants`: shows or changes a session's grants.

use std::io::{self, Write as _};

use anyhow::Result;
use api::{Grant, GrantAccess, SessionView, UpdateSession};
use axum::http::Method;
use serde_json::{Map, Value};

use super::{CHANGE_TIMEOUT, path};
use crate::cli::GrantsArgs;
use crate::remote::{Remote, plain};
use crate::run::print_json;
use crate::values::columns;

/// Shows the grants, after changing them if requested.
pub(super) async fn run(args: &GrantsArgs, server: &Remote, json: bool) -> Result<()> {
    let target = path(&args.id, "");
    let session: SessionView = match args.none || !args.set.is_empty() {
        false => server.call(Method::GET, &target).await?,
        true => {
            let grants = Some(args.set.clone());
            let update = UpdateSession { grants, ..UpdateSession::default() };
            let mut request = server.request_with(Method::PATCH, &target, &update)?;
            request.timeout = CHANGE_TIMEOUT;
            server.ask(request).await?
        }
    };
    if json {
        return Ok(print_json(&session.grants)?);
    }
    Ok(write!(io::stdout(), "{}", table(&session.grants))?)
}

fn table(grants: &[Grant]) -> String {
    if grants.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut rows = vec![["grant", "access", "port", "more"].map(str::to_owned)];
    for grant in grants {
        let summary = grant.summary();
        let access = match summary.access {
            Some(GrantAccess::ReadOnly) => "read",
            Some(GrantAccess::ReadWrite) => "read, write",
            None => "-",
        };
        let port = summary.port.to_string();
        rows.push([plain(&grant.label()), access.to_owned(), port, plain(&more(grant))]);
    }
    columns(&rows, "")
}

/// Returns the remaining fields of a grant.
fn more(grant: &Grant) -> String {
    let fields = serde_json::to_value(grant).unwrap_or_default();
    let columns_shown = ["kind", "tenant", "warehouse", "access", "port"];
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let fields = fields.as_object().into_iter().flatten();
    let rest =
        fields.filter(|(name, value)| !columns_shown.contains(&name.as_str()) && !is_empty(value));
    let rest: Map<String, Value> =
        rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    if rest.is_empty() { String::new() } else { Value::from(rest).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_a_line_with_all_that_it_says() {
        let grants = serde_json::from_str::<Vec<Grant>>(
            r#"[{"kind": "postgres", "tenant": "shop", "limits": {"rows": 5}},
                {"kind": "catalog", "warehouse": "lake", "access": "read_write", "port": 9000},
                {"kind": "model"}]"#,
        );
        let output = table(&grants.unwrap());
        let lines: Vec<Vec<&str>> =
            output.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["postgres:shop", "read", "5432", r#"{"limits":{"rows":5}}"#]);
        assert_eq!(lines[2], ["catalog:lake", "read,", "write", "9000"]);
        assert_eq!(lines[3], ["model", "-", "8100"]);
        assert_eq!(table(&[]), "nothing\n");
    }
}
