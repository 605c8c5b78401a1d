//! `cove catalog function`.

use anyhow::Result;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, items};
use super::names::{self, CatalogName, in_path};
use super::tables::{DetailLines, LEVELS_SHOWN, kind, read};
use super::text;
use crate::cli::FunctionCommand;
use crate::percent::escaped;

pub(super) async fn execute(lake: &RemoteWarehouse<'_>, command: &FunctionCommand) -> Result<()> {
    match command {
        FunctionCommand::List { namespace } => {
            let answer = lake.get(&lake.namespace(namespace.levels(), "/functions")).await?;
            lake.show(&answer, || {
                let all = items(&answer, "identifiers").iter().filter_map(Value::as_array);
                let dotted = |it: &Vec<Value>| names::dotted(it.iter().filter_map(Value::as_str));
                all.map(|it| format!("{}\n", dotted(it))).collect()
            })
        }
        FunctionCommand::Show { name } => {
            let (namespace, own) = name.split();
            let path = lake.namespace(namespace, &format!("/functions/{}", escaped(own)));
            let answer = lake.get(&path).await?;
            lake.show(&answer, || details(name, &answer["metadata"]))
        }
        FunctionCommand::Add { name, from, overwrite } => {
            let (namespace, own) = name.split();
            let body = json!({"namespace": namespace, "name": own, "metadata": read(from)?,
                "overwrite": overwrite});
            let answer = lake.post(&lake.management("functions"), &body).await?;
            lake.show(&answer, || format!("created {}\n", name.dotted()))
        }
        FunctionCommand::Remove { names } => {
            let path = |name: &CatalogName| {
                let (namespace, own) = name.split();
                let path = format!("functions/{}/{}", in_path(namespace), escaped(own));
                lake.management(&path)
            };
            lake.drop_each(names, path).await
        }
    }
}

fn details(name: &CatalogName, document: &Value) -> String {
    let mut details = DetailLines::new(&name.dotted());
    details.line("uuid", &document["function-uuid"]);
    details.line("about", &document["doc"]);
    for it in items(document, "definitions") {
        let one =
            |it: &Value| format!("{}: {}", text(&it["name"]), kind(&it["type"], LEVELS_SHOWN));
        let parameters = items(it, "parameters").iter().map(one).collect::<Vec<_>>().join(", ");
        let result = kind(&it["return-type"], LEVELS_SHOWN);
        details.text_line("takes", &format!("({parameters}) -> {result}"));
        let current = &it["current-version-id"];
        let version = items(it, "versions").iter().find(|it| it["version-id"] == *current);
        for it in version.map(|it| items(it, "representations")).into_iter().flatten() {
            details.line(&text(&it["dialect"]), &it["sql"]);
        }
    }
    details.properties(&document["properties"]);
    details.done()
}
