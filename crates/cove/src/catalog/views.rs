//! `cove catalog view`.

use anyhow::Result;
use node::clock;
use serde_json::json;

use super::lake::{ObjectKind, RemoteWarehouse, items, pairs};
use super::tables::{DetailLines, by_id, schema, schema_of};
use super::text;
use crate::cli::ViewCommand;

pub(super) async fn execute(lake: &RemoteWarehouse<'_>, command: &ViewCommand) -> Result<()> {
    match command {
        ViewCommand::List { namespace, as_of } => {
            lake.list(ObjectKind::View, namespace, as_of).await
        }
        ViewCommand::Create { name, sql, dialect, column, property } => {
            let (namespace, own) = name.split();
            let body = json!({
                "name": own,
                "schema": schema_of(column),
                "properties": pairs(property),
                "view-version": {
                    "version-id": 1,
                    "timestamp-ms": clock::wall_ms(),
                    "schema-id": 0,
                    "summary": {"engine-name": "cove"},
                    "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
                    "default-namespace": namespace,
                },
            });
            let answer = lake.post(&lake.namespace(namespace, "/views"), &body).await?;
            lake.show(&answer, || format!("created {}\n", name.dotted()))
        }
        ViewCommand::Register { name, location } => {
            let (namespace, own) = name.split();
            let body = json!({"name": own, "metadata-location": location});
            let answer = lake.post(&lake.namespace(namespace, "/register-view"), &body).await?;
            lake.show(&answer, || format!("{} is registered\n", name.dotted()))
        }
        ViewCommand::Show { name, as_of } => {
            let answer = lake.get(&as_of.laid_on(lake.relation(ObjectKind::View, name))).await?;
            lake.show(&answer, || {
                let document = &answer["metadata"];
                let version = by_id(document, "versions", "version-id", "current-version-id");
                let mut details = DetailLines::new(&name.dotted());
                details.line("location", &document["location"]);
                details.line("metadata", &answer["metadata-location"]);
                details.line("uuid", &document["view-uuid"]);
                details.time("since", &version["timestamp-ms"]);
                details.properties(&document["properties"]);
                for it in items(version, "representations") {
                    details.line(&text(&it["dialect"]), &it["sql"]);
                }
                let current = &version["schema-id"];
                let all = items(document, "schemas").iter();
                let columns = all.clone().find(|it| it["schema-id"] == *current);
                details.table(&columns.map(schema).unwrap_or_default());
                details.done()
            })
        }
        ViewCommand::Properties { name, change } => {
            lake.commit_properties(ObjectKind::View, name, &change.set, &change.unset).await
        }
        ViewCommand::Rename { from, to } => lake.rename(ObjectKind::View, from, to).await,
        ViewCommand::Drop { names } => {
            lake.drop_each(names, |it| lake.relation(ObjectKind::View, it)).await
        }
    }
}
