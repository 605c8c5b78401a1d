//! `cove catalog policy`.

use std::collections::HashMap;

use anyhow::Result;
use axum::http::Method;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, items};
use super::names::{self, ColumnCondition};
use super::tables::{DetailLines, read};
use super::{rows, text};
use crate::cli::{PolicyCommand, SetPolicyArgs};
use crate::percent::escaped;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Executes a command about policies, which limit the rows and columns that a principal may read.
pub(super) async fn execute(lake: &RemoteWarehouse<'_>, command: &PolicyCommand) -> Result<()> {
    let path = |name: &str| lake.management(&format!("policies/{}", escaped(name)));
    match command {
        PolicyCommand::List { principal, table } => {
            let mut answer = lake.get(&lake.management("policies")).await?;
            let is_wanted = |it: &Value| {
                let is_his = principal.as_ref().is_none_or(|wanted| it["principal"] == **wanted);
                is_his && table.as_ref().is_none_or(|wanted| of(it) == wanted.dotted())
            };
            if let Some(all) = answer["policies"].as_array_mut() {
                all.retain(is_wanted);
            }
            lake.show(&answer, || listed(&answer))
        }
        PolicyCommand::Show { name } => {
            let answer = lake.get(&lake.management("policies")).await?;
            let found = items(&answer, "policies").iter().find(|it| it["name"] == json!(name));
            let found =
                found.ok_or_else(|| UsageError(format!("Policy does not exist: {name}")))?;
            let columns = names_of_columns(lake, found).await;
            lake.show(found, || details(found, &columns))
        }
        PolicyCommand::Set(args) => {
            let answer = lake.ask(Method::PUT, &path(&args.name), Some(&body(args)?)).await?;
            lake.show(&answer, || {
                let (principal, table) = (&args.principal, args.table.dotted());
                format!("{principal} reads a part of {table}\n")
            })
        }
        PolicyCommand::Remove { names } => {
            for name in names {
                let answer = lake.delete(&path(name)).await?;
                lake.show(&answer, || format!("removed {name}\n"))?;
            }
            Ok(())
        }
    }
}

/// Converts arguments to a request body.
fn body(args: &SetPolicyArgs) -> Result<Value> {
    let (namespace, table) = args.table.split();
    let columns = args.column.iter().map(|(name, how)| json!({"column": name, "action": how}));
    let mut body = json!({
        "principal": args.principal,
        "namespace": namespace,
        "table": table,
        "column-projections": columns.collect::<Vec<_>>(),
        "trusted": args.trusted,
    });
    let conditions = args.conditions.iter().map(|ColumnCondition(it)| it.clone());
    let joined = conditions.reduce(|all, it| json!({"type": "and", "left": all, "right": it}));
    let filter = args.filter.as_deref().map(read).transpose()?.or(joined);
    if filter.is_none() && args.column.is_empty() {
        let message = "the policy restricts nothing: add --where, --filter or --column";
        return Err(UsageError(message.to_owned()).into());
    }
    if let Some(filter) = filter {
        body["row-filter"] = filter;
    }
    Ok(body)
}

/// Returns the table of a policy.
fn of(policy: &Value) -> String {
    let levels = items(policy, "namespace").iter().filter_map(Value::as_str);
    names::dotted(levels.chain(policy["table"].as_str()))
}

/// Returns the current names of columns by id. A caller who may not read the table sees ids.
async fn names_of_columns(lake: &RemoteWarehouse<'_>, policy: &Value) -> HashMap<String, String> {
    let levels = items(policy, "namespace").iter().filter_map(Value::as_str);
    let levels: Vec<String> = levels.map(str::to_owned).collect();
    let Some(table) = policy["table"].as_str() else { return HashMap::new() };
    let path = rows::path(lake, &levels, table, "schema");
    let found = lake.get(&path).await.unwrap_or_default();
    items(&found, "rows").iter().map(|it| (text(&it["id"]), text(&it["name"]))).collect()
}

fn listed(answer: &Value) -> String {
    let heading = ["policy", "principal", "table", "rows", "columns", "trusted"];
    let mut rows = vec![heading.map(str::to_owned)];
    for it in items(answer, "policies") {
        let yes = |is: bool, word: &str| if is { word } else { "" }.to_owned();
        rows.push([
            text(&it["name"]),
            text(&it["principal"]),
            of(it),
            yes(it["row-filter"].is_object(), "some"),
            items(it, "column-projections").len().to_string(),
            yes(it["trusted"] == json!(true), "yes"),
        ]);
    }
    columns(&rows, "")
}

fn details(policy: &Value, columns: &HashMap<String, String>) -> String {
    let mut details = DetailLines::new(&text(&policy["name"]));
    details.line("principal", &policy["principal"]);
    details.text_line("table", &of(policy));
    details.text_line("trusted", if policy["trusted"] == json!(true) { "yes" } else { "no" });
    if let Some(filter) = policy.get("row-filter") {
        details.line("rows", filter);
    }
    for it in items(policy, "column-projections") {
        let id = text(&it["field-id"]);
        let name = columns.get(&id).cloned().unwrap_or_else(|| format!("#{id}"));
        details.text_line("column", &format!("{name}={}", text(&it["action"])));
    }
    details.done()
}
