//! `cove catalog namespace`.

use anyhow::Result;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, items, pairs, properties};
use super::names::{self, CatalogName};
use crate::cli::NamespaceCommand;
use crate::percent::escaped;

pub(super) async fn execute(lake: &RemoteWarehouse<'_>, command: &NamespaceCommand) -> Result<()> {
    match command {
        NamespaceCommand::List { parent, as_of } => {
            // The parent is a query value, whose separators are escaped like other characters.
            let parent = parent.as_ref().map(|it| escaped(&it.levels().join("\u{1f}")));
            let query = parent.map(|it| format!("?parent={it}")).unwrap_or_default();
            let path = as_of.laid_on(lake.path(&format!("namespaces{query}")));
            let answer = lake.get(&path).await?;
            lake.show(&answer, || {
                let all = items(&answer, "namespaces").iter().filter_map(Value::as_array);
                let dotted = |it: &Vec<Value>| names::dotted(it.iter().filter_map(Value::as_str));
                all.map(|it| format!("{}\n", dotted(it))).collect()
            })
        }
        NamespaceCommand::Create { name, property } => {
            let body = json!({"namespace": name.levels(), "properties": pairs(property)});
            let answer = lake.post(&lake.path("namespaces"), &body).await?;
            lake.show(&answer, || format!("created {}\n", name.dotted()))
        }
        NamespaceCommand::Show { name } => {
            let answer = lake.get(&lake.namespace(name.levels(), "")).await?;
            lake.show(&answer, || properties(&answer["properties"]))
        }
        NamespaceCommand::Properties { name, change } => {
            let body = json!({"removals": change.unset, "updates": pairs(&change.set)});
            let answer = lake.post(&lake.namespace(name.levels(), "/properties"), &body).await?;
            lake.show(&answer, || {
                let what = [
                    ("updated", "is set"),
                    ("removed", "is taken away"),
                    ("missing", "was not there"),
                ];
                let lines = what.iter().flat_map(|(list, became)| {
                    let names = items(&answer, list).iter();
                    names.map(move |it| format!("{} {became}\n", super::text(it)))
                });
                lines.collect()
            })
        }
        NamespaceCommand::Drop { names } => {
            lake.drop_each(names, |it: &CatalogName| lake.namespace(it.levels(), "")).await
        }
    }
}
