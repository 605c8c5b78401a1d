//! `cove grants`: shows which grants a token may give to sandboxes, and checks grants.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{
    GrantAccess, GrantCheckReport, GrantCheckRequest, GrantOfferLimits, GrantOfferList,
    OfferedDatabase, OfferedGrant,
};
use axum::http::Method;
use serde_json::Value;

use crate::cli::{SandboxGrantArgs, SandboxGrantCommand};
use crate::config::{CoveConfig, Environment};
use crate::messages::complain;
use crate::remote::{self, Remote, plain};
use crate::run::print_json;
use crate::values::columns;

/// Exit code if a grant would be refused.
const REFUSED: u8 = 1;

/// Runs one command.
pub(crate) fn run(
    args: &SandboxGrantArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> ExitCode {
    let command = &args.command;
    remote::with_server(&command.output().server, config, environment, async |server| {
        execute(command, &server).await
    })
}

async fn execute(command: &SandboxGrantCommand, server: &Remote) -> Result<u8> {
    match command {
        SandboxGrantCommand::Offers(args) => {
            let list: GrantOfferList = server.call(Method::GET, "/v1/gateway/offers").await?;
            if args.output.json {
                print_json(&list)?;
                return Ok(0);
            }
            write!(io::stdout(), "{}", offers(&list))?;
            if list.truncated {
                complain("there are more offers than are listed");
            }
            Ok(0)
        }
        SandboxGrantCommand::Check(args) => {
            let body = GrantCheckRequest { grants: args.grants.clone() };
            let path = "/v1/gateway/offers/check";
            let request = server.request_with(Method::POST, path, &body)?;
            let report: GrantCheckReport = server.ask(request).await?;
            match args.output.json {
                true => print_json(&report)?,
                false => write!(io::stdout(), "{}", verdicts(&report))?,
            }
            Ok(if report.given { 0 } else { REFUSED })
        }
    }
}

/// Formats a line for each offer, and the limits.
fn offers(list: &GrantOfferList) -> String {
    let mut text = match (list.unrestricted, list.offers.is_empty()) {
        (true, _) => "This token may give all that the server has, with any limits:\n".to_owned(),
        (false, true) => format!(
            "Nothing is offered to tenant {}; [[gateway.offers]] of the server's configuration \
             does that\n",
            plain(&list.tenant)
        ),
        (false, false) => String::new(),
    };
    if !list.offers.is_empty() {
        let mut rows = vec![["grant", "access", "port", "more"].map(str::to_owned)];
        rows.extend(list.offers.iter().map(line));
        text.push_str(&columns(&rows, ""));
    }
    let GrantOfferLimits { grants, database, http, model_tokens } = &list.limits;
    let _ = writeln!(text, "\nlimits of a database  {}", numbers(&serde_json::json!(database)));
    let _ = writeln!(text, "limits of http        {}", numbers(&serde_json::json!(http)));
    if let Some(tokens) = model_tokens {
        let _ = writeln!(text, "tokens of the model   {tokens} for the tenant");
    }
    let _ = writeln!(text, "grants of a sandbox   {grants}");
    text
}

/// Formats limits by name; 0 means unlimited.
fn numbers(limits: &Value) -> String {
    let each = limits.as_object().into_iter().flatten();
    let each = each.map(|(name, value)| match value.as_f64() {
        Some(0.0) => format!("{name} unlimited"),
        _ => format!("{name} {value}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn line(offered: &OfferedGrant) -> [String; 4] {
    let (grant, access, port, more) = match offered {
        OfferedGrant::Postgres(it) => database("postgres", it),
        OfferedGrant::Mysql(it) => database("mysql", it),
        OfferedGrant::Catalog(it) => {
            let more = unavailable(it.unavailable.as_deref());
            (format!("catalog:{}", it.warehouse), access_text(&it.access), it.port, more)
        }
        OfferedGrant::Http(it) => {
            let ports = it.ports.iter().map(u16::to_string).collect::<Vec<_>>();
            let more = [("ports", &ports), ("secrets", &it.secrets), ("internal", &it.internal)];
            let more = more.iter().filter(|(_, names)| !names.is_empty());
            let more = more.map(|(what, names)| format!("{what} {}", names.join(", ")));
            let more = more.collect::<Vec<_>>().join("; ");
            (format!("http:{}", it.hosts.join(",")), "-".to_owned(), it.port, more)
        }
        OfferedGrant::Model(it) => {
            let more = unavailable(it.unavailable.as_deref());
            ("model".to_owned(), "-".to_owned(), it.port, more)
        }
    };
    [plain(&grant), access, port.to_string(), plain(&more)]
}

fn database(kind: &str, offered: &OfferedDatabase) -> (String, String, u16, String) {
    let mut more = unavailable(offered.unavailable.as_deref());
    if !offered.roles.is_empty() {
        let needed = if offered.role_required { " (one is required)" } else { "" };
        let _ = write!(more, "roles {}{needed}", offered.roles.join(", "));
    }
    (format!("{kind}:{}", offered.tenant), access_text(&offered.access), offered.port, more)
}

fn unavailable(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!("unavailable: {reason} "))
}

fn access_text(access: &[GrantAccess]) -> String {
    match access.contains(&GrantAccess::ReadWrite) {
        true => "read, write".to_owned(),
        false => "read".to_owned(),
    }
}

/// Formats a line for each grant.
fn verdicts(report: &GrantCheckReport) -> String {
    let mut rows = vec![["grant", "port", "given", "reason"].map(str::to_owned)];
    rows.extend(report.grants.iter().map(|checked| {
        let is_given = if checked.given { "yes" } else { "no" };
        let reason = checked.refusal.as_ref().map_or_else(String::new, |refusal| {
            let field = match refusal.field.is_empty() {
                true => String::new(),
                false => format!("{}: ", refusal.field),
            };
            plain(&format!("{field}{}", refusal.message))
        });
        [plain(&checked.grant), checked.port.to_string(), is_given.to_owned(), reason]
    }));
    columns(&rows, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_lines_with_what_belongs_together() {
        let list: GrantOfferList = serde_json::from_value(serde_json::json!({
            "tenant": "team", "unrestricted": false, "truncated": false,
            "offers": [
                { "kind": "postgres", "tenant": "shop", "access": ["read_only", "read_write"],
                  "roles": ["reporting"], "role_required": true, "port": 5432 },
                { "kind": "catalog", "warehouse": "la\u{1b}ke", "access": ["read_only"],
                  "port": 8181, "unavailable": "no such warehouse" },
                { "kind": "http", "hosts": ["*.example.com"], "ports": [443],
                  "secrets": ["partner"], "internal": [], "port": 3128 },
                { "kind": "model", "priced_models": [], "port": 8100 }
            ],
            "limits": { "grants": 16, "database": { "rows": 0, "connections": 20 },
                        "http": { "requests": 5 }, "model_tokens": 1000 }
        }))
        .unwrap();
        let text = offers(&list);
        for expected in [
            "roles reporting (one is required)",
            "unavailable: no such warehouse",
            "ports 443; secrets partner",
            "rows unlimited",
            "1000 for the tenant",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        let nothing = GrantOfferList { offers: Vec::new(), ..list };
        assert!(offers(&nothing).starts_with("Nothing is offered to tenant team"));
    }

    #[test]
    fn a_refusal_names_its_field() {
        let report: GrantCheckReport = serde_json::from_value(serde_json::json!({
            "given": false,
            "grants": [
                { "grant": "model", "port": 8100, "given": true },
                { "grant": "postgres:shop", "port": 5432, "given": false, "refusal": {
                    "code": "forbidden", "field": "grants[1]",
                    "message": "`postgres:shop:rw` is not offered to this token's tenant" } }
            ]
        }))
        .unwrap();
        let text = verdicts(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("yes"), "{text}");
        assert!(lines[2].contains("no     grants[1]: `postgres:shop:rw`"), "{text}");
    }
}
