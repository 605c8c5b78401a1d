//! `cove catalog principal` and `cove catalog grant`.

use anyhow::Result;
use axum::http::Method;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, ask, items, management, show};
use super::{names, text};
use crate::cli::{GrantCommand, GrantedArgs, PrincipalCommand};
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::Remote;
use crate::values::columns;

/// Executes a command about clients, which belong to no warehouse.
pub(super) async fn execute(
    server: &Remote,
    is_json: bool,
    command: &PrincipalCommand,
) -> Result<()> {
    let clients = management("clients");
    match command {
        PrincipalCommand::Add { name, operator } => {
            let body = json!({"name": name, "operator": operator});
            secret(is_json, &ask(server, Method::POST, &clients, Some(&body)).await?)
        }
        PrincipalCommand::List => {
            let answer = ask(server, Method::GET, &clients, None).await?;
            show(is_json, &answer, || listed(&answer))
        }
        PrincipalCommand::Rotate { id, grace } => {
            let body = json!({"grace-seconds": grace.map_or(0, |it| it.as_secs())});
            let path = format!("{clients}/{}/rotate", escaped(id));
            secret(is_json, &ask(server, Method::POST, &path, Some(&body)).await?)
        }
        PrincipalCommand::Remove { ids } => {
            for id in ids {
                let path = format!("{clients}/{}", escaped(id));
                let answer = ask(server, Method::DELETE, &path, None).await?;
                show(is_json, &answer, || format!("removed {id}\n"))?;
            }
            Ok(())
        }
    }
}

/// Shows a new secret in the form that Iceberg clients expect; standard error explains its use.
fn secret(is_json: bool, answer: &Value) -> Result<()> {
    show(is_json, answer, || {
        let principal = text(&answer["principal"]);
        complain(&format!("grants know it as `{principal}`; the secret is not told again"));
        format!("{}:{}\n", text(&answer["client-id"]), text(&answer["client-secret"]))
    })
}

fn listed(answer: &Value) -> String {
    let mut rows = vec![["principal", "name", "may", "since"].map(str::to_owned)];
    for it in items(answer, "clients") {
        let may = if it["operator"] == json!(true) { "everything" } else { "what is granted" };
        let principal = text(&it["principal"]);
        rows.push([principal, text(&it["name"]), may.to_owned(), text(&it["created"])]);
    }
    columns(&rows, "")
}

/// Executes a command about rights in a warehouse.
pub(super) async fn execute_grant(
    lake: &RemoteWarehouse<'_>,
    command: &GrantCommand,
) -> Result<()> {
    match command {
        GrantCommand::Add(args) => {
            let answer = lake.post(&lake.management("grants"), &body(args)).await?;
            lake.show(&answer, || format!("{} may {}\n", args.principal, args.rights.join(", ")))
        }
        GrantCommand::Revoke(args) => {
            let answer = lake.post(&lake.management("grants/revoke"), &body(args)).await?;
            lake.show(&answer, || format!("{} may not any more\n", args.principal))
        }
        GrantCommand::List { principal } => {
            let query = principal.as_ref().map(|it| format!("?principal={}", escaped(it)));
            let path = format!("grants{}", query.unwrap_or_default());
            let answer = lake.get(&lake.management(&path)).await?;
            lake.show(&answer, || granted(&answer))
        }
    }
}

fn body(args: &GrantedArgs) -> Value {
    let mut body = json!({"principal": args.principal, "rights": args.rights});
    if let Some(namespace) = &args.namespace {
        body["namespace"] = json!(namespace.levels());
    }
    // Tables and views share their names, so a grant does not distinguish them.
    if let Some(name) = args.table.as_ref().or(args.view.as_ref()) {
        let (namespace, name) = name.split();
        body["namespace"] = json!(namespace);
        body["name"] = json!(name);
    }
    body
}

pub(super) fn granted(answer: &Value) -> String {
    let mut rows = vec![["principal", "to", "rights"].map(str::to_owned)];
    for it in items(answer, "grants") {
        let levels = items(it, "namespace").iter().filter_map(Value::as_str);
        let to = names::dotted(levels.chain(it["name"].as_str()));
        let to = if to.is_empty() { "the warehouse".to_owned() } else { to };
        let rights = items(it, "rights").iter().map(text).collect::<Vec<_>>().join(", ");
        rows.push([text(&it["principal"]), to, rights]);
    }
    columns(&rows, "")
}
