//! `cove catalog role` and `cove catalog key`.

use std::time::Duration;

use anyhow::Result;
use axum::http::Method;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, ask, items, management, show};
use super::principals::granted;
use super::tables::DetailLines;
use super::text;
use crate::cli::{KeyCommand, RoleCommand};
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::Remote;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Executes a command about roles, which belong to no warehouse; grants to them do.
pub(super) async fn execute_role(
    server: &Remote,
    warehouse: Option<&str>,
    is_json: bool,
    command: &RoleCommand,
) -> Result<()> {
    let roles = management("roles");
    let role = |name: &str| format!("{roles}/{}", escaped(name));
    match command {
        RoleCommand::List => {
            let answer = ask(server, Method::GET, &roles, None).await?;
            show(is_json, &answer, || roles_listed(&answer))
        }
        RoleCommand::Add { name, member } => {
            let body = json!({"name": name, "members": member});
            let answer = ask(server, Method::POST, &roles, Some(&body)).await?;
            show(is_json, &answer, || format!("created role:{name}\n"))
        }
        RoleCommand::Show { name } => {
            let answer = ask(server, Method::GET, &roles, None).await?;
            let found = items(&answer, "roles").iter().find(|it| it["name"] == json!(name));
            let found = found.ok_or_else(|| UsageError(format!("Role does not exist: {name}")))?;
            let lake = RemoteWarehouse::find(server, warehouse, is_json).await?;
            let path = format!("grants?principal={}", escaped(&format!("role:{name}")));
            let grants = lake.get(&lake.management(&path)).await?;
            let mut whole = found.clone();
            whole["grants"] = grants["grants"].clone();
            lake.show(&whole, || {
                let mut details = DetailLines::new(&format!("role:{name}"));
                items(found, "members").iter().for_each(|it| details.line("member", it));
                if !items(&whole, "grants").is_empty() {
                    details.table(&granted(&whole));
                }
                details.done()
            })
        }
        RoleCommand::Give { name, members } => {
            let path = format!("{}/members", role(name));
            let body = json!({"add": members});
            let answer = ask(server, Method::POST, &path, Some(&body)).await?;
            show(is_json, &answer, || lines(members, &format!("has role:{name}")))
        }
        RoleCommand::Take { name, members } => {
            let path = format!("{}/members", role(name));
            let body = json!({"remove": members});
            let answer = ask(server, Method::POST, &path, Some(&body)).await?;
            show(is_json, &answer, || lines(members, &format!("has role:{name} no more")))
        }
        RoleCommand::Remove { names } => {
            for name in names {
                let answer = ask(server, Method::DELETE, &role(name), None).await?;
                show(is_json, &answer, || format!("removed role:{name}\n"))?;
            }
            Ok(())
        }
    }
}

fn lines(names: &[String], became: &str) -> String {
    names.iter().map(|it| format!("{it} {became}\n")).collect()
}

fn roles_listed(answer: &Value) -> String {
    let mut rows = vec![["role", "members"].map(str::to_owned)];
    for it in items(answer, "roles") {
        rows.push([format!("role:{}", text(&it["name"])), items(it, "members").len().to_string()]);
    }
    columns(&rows, "")
}

/// Executes a command about API keys of a client.
pub(super) async fn execute_key(
    server: &Remote,
    is_json: bool,
    command: &KeyCommand,
) -> Result<()> {
    let keys = |client: &str| management(&format!("clients/{}/keys", escaped(client)));
    let key = |client: &str, key: &str| format!("{}/{}", keys(client), escaped(key));
    match command {
        KeyCommand::List { client } => {
            let answer = ask(server, Method::GET, &keys(client), None).await?;
            show(is_json, &answer, || keys_listed(&answer))
        }
        KeyCommand::Add { client, name, expires } => {
            // A fraction of a second is rounded rather than refused.
            let seconds = expires.map(|it| it.as_secs().max(1));
            let body = json!({"name": name, "expires-seconds": seconds});
            secret(is_json, &ask(server, Method::POST, &keys(client), Some(&body)).await?)
        }
        KeyCommand::Rotate { client, key: id, grace } => {
            let body = json!({"grace-seconds": grace.as_ref().map_or(0, Duration::as_secs)});
            let path = format!("{}/rotate", key(client, id));
            secret(is_json, &ask(server, Method::POST, &path, Some(&body)).await?)
        }
        KeyCommand::Remove { client, keys } => {
            for id in keys {
                let answer = ask(server, Method::DELETE, &key(client, id), None).await?;
                show(is_json, &answer, || format!("removed {id}\n"))?;
            }
            Ok(())
        }
    }
}

/// Shows a new key: the key itself on standard output, its id on standard error.
fn secret(is_json: bool, answer: &Value) -> Result<()> {
    show(is_json, answer, || {
        let id = text(&answer["key-id"]);
        complain(&format!("the key's id is `{id}`; the key is not told again"));
        format!("{}\n", text(&answer["key"]))
    })
}

fn keys_listed(answer: &Value) -> String {
    let mut rows = vec![["id", "name", "made", "good until", "last used"].map(str::to_owned)];
    let known = |it: &Value, none: &str| match it {
        Value::Null => none.to_owned(),
        time => text(time),
    };
    for it in items(answer, "keys") {
        rows.push([
            text(&it["key-id"]),
            text(&it["name"]),
            text(&it["created"]),
            known(&it["expires"], "it is removed"),
            known(&it["last-used"], "never"),
        ]);
    }
    columns(&rows, "")
}
