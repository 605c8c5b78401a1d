//! `cove catalog warehouse`.

use anyhow::Result;
use axum::http::Method;
use node::clock;
use serde_json::{Map, Value, json};

use super::lake::{ask, items, management, show};
use super::tables::{DetailLines, read};
use super::text;
use crate::cli::{WarehouseCommand, WarehouseSettings};
use crate::percent::escaped;
use crate::remote::Remote;
use crate::usage_error::UsageError;
use crate::values::columns;

pub(super) async fn execute(
    server: &Remote,
    is_json: bool,
    command: &WarehouseCommand,
) -> Result<()> {
    let path = |name: &str| management(&format!("warehouses/{}", escaped(name)));
    match command {
        WarehouseCommand::List => {
            let answer = ask(server, Method::GET, &management("warehouses"), None).await?;
            show(is_json, &answer, || listed(&answer))
        }
        WarehouseCommand::Show { name } => {
            let answer = ask(server, Method::GET, &path(name), None).await?;
            show(is_json, &answer, || details(&answer))
        }
        WarehouseCommand::Add { name, root, settings } => {
            let mut body = body(settings)?;
            body.insert("name".to_owned(), name.as_str().into());
            body.insert("root".to_owned(), root.as_str().into());
            let body = Value::Object(body);
            let path = management("warehouses");
            let answer = ask(server, Method::POST, &path, Some(&body)).await?;
            show(is_json, &answer, || format!("created {name}\n"))
        }
        WarehouseCommand::Set { name, settings } => {
            let body = body(settings)?;
            if body.is_empty() {
                return Err(UsageError("there is nothing to change".to_owned()).into());
            }
            let body = Value::Object(body);
            let answer = ask(server, Method::PATCH, &path(name), Some(&body)).await?;
            show(is_json, &answer, || format!("updated {name}\n"))
        }
        WarehouseCommand::Remove { names, force } => {
            for name in names {
                let query = if *force { "?force=true" } else { "" };
                let path = format!("{}{query}", path(name));
                let answer = ask(server, Method::DELETE, &path, None).await?;
                show(is_json, &answer, || format!("removed {name}; its files were kept\n"))?;
            }
            Ok(())
        }
    }
}

/// Returns the settings of a warehouse: the file's, overridden by arguments.
fn body(settings: &WarehouseSettings) -> Result<Map<String, Value>> {
    let from = settings.from.as_deref().map(read).transpose()?;
    let mut body = match from {
        None => Map::new(),
        Some(Value::Object(body)) => body,
        Some(_) => return Err(UsageError("--from: not a JSON object".to_owned()).into()),
    };
    if !settings.location.is_empty() {
        body.insert("locations".to_owned(), json!(settings.location));
    }
    if let Some(status) = &settings.status {
        body.insert("status".to_owned(), status.as_str().into());
    }
    if let Some(path) = &settings.credentials_file {
        body.insert("credentials".to_owned(), read(path)?);
    }
    if !settings.storage.is_empty() {
        let storage = body.entry("storage").or_insert_with(|| json!({}));
        let Some(storage) = storage.as_object_mut() else {
            return Err(UsageError("--from: `storage` is not a JSON object".to_owned()).into());
        };
        for (name, value) in &settings.storage {
            // Booleans and numbers are read as JSON; any other value is text.
            let literal = serde_json::from_str::<Value>(value).ok();
            let literal = literal.filter(|it| it.is_boolean() || it.is_number());
            storage.insert(name.clone(), literal.unwrap_or_else(|| value.as_str().into()));
        }
    }
    Ok(body)
}

fn listed(answer: &Value) -> String {
    let mut rows = vec![["name", "root", "status", "from"].map(str::to_owned)];
    for it in items(answer, "warehouses") {
        rows.push([text(&it["name"]), text(&it["root"]), text(&it["status"]), origin(it)]);
    }
    columns(&rows, "")
}

fn origin(warehouse: &Value) -> String {
    let is_configured = warehouse["configured"] == json!(true);
    if is_configured { "configuration" } else { "api" }.to_owned()
}

fn details(it: &Value) -> String {
    let mut details = DetailLines::new(&text(&it["name"]));
    details.line("root", &it["root"]);
    for location in items(it, "locations") {
        details.line("location", location);
    }
    details.line("status", &it["status"]);
    details.text_line("from", &origin(it));
    details.text_line("key", if it["has-credentials"] == json!(true) { "its own" } else { "" });
    for (name, value) in it["storage"].as_object().into_iter().flatten() {
        if !value.is_null() && *value != json!(false) {
            details
                .text_line("storage", &format!("{}={}", crate::remote::plain(name), text(value)));
        }
    }
    details.text_line(
        "made",
        &it["created-ms"].as_u64().map(clock::rfc3339_of_ms).unwrap_or_default(),
    );
    for name in ["namespaces", "tables", "views"] {
        details.line(name, &it["statistics"][name]);
    }
    details.done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::variable;

    #[test]
    fn what_is_typed_is_laid_over_the_file() {
        let scratch = testkit::Scratch::new();
        let file = r#"{"status": "active", "storage": {"region": "x", "path-style": true}}"#;
        let typed = ["region=eu-west-1", "vended-credentials=true", "credentials-seconds=900"];
        let settings = WarehouseSettings {
            from: Some(scratch.file("w.json", file)),
            location: vec!["s3://b/other".to_owned()],
            status: Some("read-only".to_owned()),
            credentials_file: None,
            storage: typed.map(|it| variable(it).unwrap()).to_vec(),
        };
        let expected = json!({
            "status": "read-only", "locations": ["s3://b/other"],
            "storage": {"region": "eu-west-1", "path-style": true, "vended-credentials": true,
                "credentials-seconds": 900},
        });
        assert_eq!(Value::Object(body(&settings).unwrap()), expected);
    }
}
