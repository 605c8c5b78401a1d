//! `cove catalog table`.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use node::clock;
use serde_json::{Value, json};

use super::lake::{ObjectKind, RemoteWarehouse, items, pairs};
use super::{rows, stats, text};
use crate::cli::{CreateTableArgs, TableCommand};
use crate::remote::plain;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Largest accepted table definition, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Levels of a nested type that are shown.
pub(super) const LEVELS_SHOWN: usize = 8;

pub(super) async fn execute(lake: &RemoteWarehouse<'_>, command: &TableCommand) -> Result<()> {
    match command {
        TableCommand::List { namespace, as_of } => {
            lake.list(ObjectKind::Table, namespace, as_of).await
        }
        TableCommand::Create(args) => {
            let (namespace, _) = args.name.split();
            let path = lake.namespace(namespace, "/tables");
            let answer = lake.post(&path, &definition(args)?).await?;
            let location = text(&answer["metadata"]["location"]);
            lake.show(&answer, || format!("created {} at {location}\n", args.name.dotted()))
        }
        TableCommand::Show { name, as_of } => {
            let answer = lake.get(&as_of.laid_on(lake.relation(ObjectKind::Table, name))).await?;
            lake.show(&answer, || details(&name.dotted(), &answer))
        }
        TableCommand::Snapshots(args) => rows::show(lake, &rows::SNAPSHOTS, args, None).await,
        TableCommand::History { rows: args, metadata: false } => {
            rows::show(lake, &rows::HISTORY, args, None).await
        }
        TableCommand::History { rows: args, metadata: true } => {
            let path = lake.relation(ObjectKind::Table, &args.name);
            let answer = lake.get(&args.as_of.laid_on(path)).await?;
            let none = json!([]);
            let listed = answer["metadata"].get("metadata-log").unwrap_or(&none);
            lake.show(listed, || files(&answer))
        }
        TableCommand::Refs(args) => rows::show(lake, &rows::REFS, args, None).await,
        TableCommand::Files { rows: args, snapshot } => {
            rows::show(lake, &rows::FILES, args, *snapshot).await
        }
        TableCommand::Stats(args) => stats::show(lake, args).await,
        TableCommand::Columns(args) => rows::show(lake, &rows::COLUMNS, args, None).await,
        TableCommand::Properties { name, change } => {
            lake.commit_properties(ObjectKind::Table, name, &change.set, &change.unset).await
        }
        TableCommand::Rename { from, to } => lake.rename(ObjectKind::Table, from, to).await,
        TableCommand::Register { name, location, overwrite } => {
            let (namespace, own) = name.split();
            let body = json!({"name": own, "metadata-location": location, "overwrite": overwrite});
            let answer = lake.post(&lake.namespace(namespace, "/register"), &body).await?;
            lake.show(&answer, || format!("{} is registered\n", name.dotted()))
        }
        TableCommand::Unregister { name } => {
            let path = format!("{}/unregister", lake.relation(ObjectKind::Table, name));
            let answer = lake.post(&path, &json!({})).await?;
            lake.show(&answer, || format!("{}\n", text(&answer["metadata-location"])))
        }
        TableCommand::Drop { names, purge } => {
            let query = if *purge { "?purgeRequested=true" } else { "" };
            let path = |it: &_| format!("{}{query}", lake.relation(ObjectKind::Table, it));
            lake.drop_each(names, path).await
        }
    }
}

/// Returns the definition of a new table: the file's, overridden by arguments.
fn definition(args: &CreateTableArgs) -> Result<Value> {
    let mut body = match &args.from {
        Some(path) => read(path)?,
        None => json!({"schema": schema_of(&args.column)}),
    };
    let Some(object) = body.as_object_mut() else {
        return Err(UsageError("--from: not a JSON object".to_owned()).into());
    };
    object.insert("name".to_owned(), args.name.split().1.into());
    if let Some(location) = &args.location {
        object.insert("location".to_owned(), location.as_str().into());
    }
    let version = args.format_version.map(|it| ("format-version".to_owned(), it.to_string()));
    let typed: Vec<_> = args.property.iter().cloned().chain(version).collect();
    let all = object.entry("properties").or_insert_with(|| json!({}));
    if let (Some(all), Value::Object(typed)) = (all.as_object_mut(), pairs(&typed)) {
        all.extend(typed);
    }
    Ok(body)
}

/// Reads a JSON file.
pub(super) fn read(path: &Path) -> Result<Value> {
    let path_text = path.display();
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().take(FILE_BYTES_MAX + 1).read_to_string(&mut text),
        _ => fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)),
    };
    let length = read.with_context(|| format!("read `{path_text}`"))?;
    if u64::try_from(length).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(UsageError(format!("`{path_text}` is too large")).into());
    }
    serde_json::from_str(&text)
        .map_err(|error| UsageError(format!("`{path_text}`: {error}")).into())
}

/// Converts column arguments to a schema. The catalog assigns its own ids.
pub(super) fn schema_of(columns: &[(String, String, bool)]) -> Value {
    let fields = columns.iter().zip(1..).map(|((name, kind, is_required), id)| {
        json!({"id": id, "name": name, "type": kind, "required": is_required})
    });
    json!({"type": "struct", "schema-id": 0, "fields": fields.collect::<Vec<Value>>()})
}

/// Returns the list element whose id is the current one; null if there is none.
pub(super) fn by_id<'v>(document: &'v Value, list: &str, id: &str, current: &str) -> &'v Value {
    let current = &document[current];
    items(document, list).iter().find(|it| it[id] == *current).unwrap_or(&Value::Null)
}

/// Details of one object, line by line.
pub(super) struct DetailLines(String);

impl DetailLines {
    pub(super) fn new(name: &str) -> DetailLines {
        DetailLines(format!("{name}\n"))
    }

    /// Adds a line, unless the value is empty.
    pub(super) fn line(&mut self, name: &str, value: &Value) {
        if !value.is_null() {
            self.text_line(name, &text(value));
        }
    }

    /// Adds a line with a text that is printed unchanged.
    pub(super) fn text_line(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.push_str(&format!("  {name:<14}{value}\n"));
        }
    }

    /// Adds a line with a time.
    pub(super) fn time(&mut self, name: &str, ms: &Value) {
        self.text_line(name, &time(ms));
    }

    pub(super) fn properties(&mut self, all: &Value) {
        for (name, value) in all.as_object().into_iter().flatten() {
            self.text_line("property", &format!("{}={}", plain(name), text(value)));
        }
    }

    /// Adds a table after the previous lines.
    pub(super) fn table(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push_str(&format!("\n{text}"));
        }
    }

    pub(super) fn done(self) -> String {
        self.0
    }
}

fn details(name: &str, answer: &Value) -> String {
    let document = &answer["metadata"];
    let columns = by_id(document, "schemas", "schema-id", "current-schema-id");
    let spec = by_id(document, "partition-specs", "spec-id", "default-spec-id");
    let order = by_id(document, "sort-orders", "order-id", "default-sort-order-id");
    let mut details = DetailLines::new(name);
    details.line("location", &document["location"]);
    details.line("metadata", &answer["metadata-location"]);
    details.line("uuid", &document["table-uuid"]);
    details.line("format", &document["format-version"]);
    details.time("changed", &document["last-updated-ms"]);
    details.text_line("partitions", &transforms(spec, columns));
    details.text_line("sorted by", &transforms(order, columns));
    let count = items(document, "snapshots").len();
    details.text_line("snapshots", &count.to_string());
    details.properties(&document["properties"]);
    details.table(&schema(columns));
    details.table(&refs(document));
    details.done()
}

/// Formats a partition spec or sort order: transforms and their columns.
fn transforms(spec: &Value, schema: &Value) -> String {
    let name = |id: &Value| {
        let found = items(schema, "fields").iter().find(|it| it["id"] == *id);
        // A nested or dropped column.
        found.map_or_else(|| format!("#{}", text(id)), |it| text(&it["name"]))
    };
    let one = |it: &Value| {
        let sources = match items(it, "source-ids") {
            [] => name(&it["source-id"]),
            several => several.iter().map(name).collect::<Vec<_>>().join(", "),
        };
        let term = match text(&it["transform"]).as_str() {
            "identity" => sources,
            transform => format!("{transform}({sources})"),
        };
        match it["direction"].as_str() {
            Some("desc") => format!("{term} desc"),
            _ => term,
        }
    };
    items(spec, "fields").iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats the columns of a schema.
pub(super) fn schema(schema: &Value) -> String {
    let mut rows = vec![["id", "column", "type", "required", "comment"].map(str::to_owned)];
    for field in items(schema, "fields") {
        let required = if field["required"] == json!(true) { "yes" } else { "" };
        rows.push([
            text(&field["id"]),
            text(&field["name"]),
            kind(&field["type"], LEVELS_SHOWN),
            required.to_owned(),
            field.get("doc").map(text).unwrap_or_default(),
        ]);
    }
    columns(&rows, "")
}

/// Formats a type on one line.
pub(super) fn kind(of: &Value, levels: usize) -> String {
    let Some(name) = of["type"].as_str() else { return text(of) };
    if levels == 0 {
        return "…".to_owned();
    }
    let inner = |member: &str| kind(&of[member], levels - 1);
    match name {
        "list" => format!("list<{}>", inner("element")),
        "map" => format!("map<{}, {}>", inner("key"), inner("value")),
        "struct" => {
            let fields = items(of, "fields").iter();
            let fields = fields
                .map(|it| format!("{}: {}", text(&it["name"]), kind(&it["type"], levels - 1)));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => plain(other),
    }
}

/// Lists branches and tags.
fn refs(document: &Value) -> String {
    let mut rows = vec![["name", "kind", "snapshot", "of"].map(str::to_owned)];
    for (name, it) in document["refs"].as_object().into_iter().flatten() {
        let id = &it["snapshot-id"];
        let snapshot = items(document, "snapshots").iter().find(|it| it["snapshot-id"] == *id);
        let at = snapshot.map(|it| time(&it["timestamp-ms"])).unwrap_or_default();
        rows.push([plain(name), text(&it["type"]), text(id), at]);
    }
    if rows.len() > 1 { columns(&rows, "") } else { String::new() }
}

/// Lists metadata files, the oldest first and the current one last.
fn files(answer: &Value) -> String {
    let document = &answer["metadata"];
    let mut rows = vec![["at", "metadata file"].map(str::to_owned)];
    for it in items(document, "metadata-log") {
        rows.push([time(&it["timestamp-ms"]), text(&it["metadata-file"])]);
    }
    rows.push([time(&document["last-updated-ms"]), text(&answer["metadata-location"])]);
    columns(&rows, "")
}

/// Formats milliseconds since 1970 as a date; an empty text if the value is missing.
fn time(ms: &Value) -> String {
    ms.as_u64().map(clock::rfc3339_of_ms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Text output about tables.

    use super::*;

    fn answer() -> Value {
        json!({"metadata-location": "file:///w/00001.json", "metadata": {
            "location": "file:///w", "table-uuid": "u", "format-version": 2,
            "last-updated-ms": 1_700_000_000_000_u64, "current-schema-id": 1,
            "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 1, "fields": [
                {"id": 1, "name": "id", "required": true, "type": "long"},
                {"id": 2, "name": "tags", "required": false, "doc": "free\u{1b}[2J", "type":
                    {"type": "map", "key": "string", "value": {"type": "list", "element":
                        {"type": "struct", "fields": [{"id": 5, "name": "x", "type": "int"}]}}}},
            ]}],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": [
                {"source-id": 1, "transform": "bucket[16]"}, {"source-id": 9, "transform": "day"},
            ]}],
            "default-sort-order-id": 1, "sort-orders": [{"order-id": 1, "fields": [
                {"source-id": 1, "transform": "identity", "direction": "desc"}]}],
            "snapshots": [
                {"snapshot-id": 7_258_950_548_773_449_607_u64, "parent-snapshot-id": 5,
                    "timestamp-ms": 1_700_000_000_000_u64,
                    "summary": {"operation": "append", "added-records": "2", "total-records": "3"}},
                {"snapshot-id": 5, "timestamp-ms": 1_600_000_000_000_u64, "summary": {}},
            ],
            "refs": {"main": {"type": "branch", "snapshot-id": 7_258_950_548_773_449_607_u64}},
            "properties": {"owner": "sales"}, "metadata-log": [
                {"timestamp-ms": 1_600_000_000_000_u64, "metadata-file": "file:///w/0.json"}],
        }})
    }

    fn check(details: &str, expected: &[&str]) {
        for line in expected {
            let collapsed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                details.lines().any(|it| collapsed(it) == *line),
                "{line:?} is not in\n{details}"
            );
        }
        assert!(!details.contains('\u{1b}'), "{details}");
    }

    #[test]
    fn a_table_is_shown_with_columns_and_branches() {
        check(
            &details("shop.orders", &answer()),
            &[
                "shop.orders",
                "metadata file:///w/00001.json",
                "changed 2023-11-14T22:13:20.000Z",
                "partitions bucket[16](id), day(#9)",
                "sorted by id desc",
                "snapshots 2",
                "property owner=sales",
                "1 id long yes",
                "2 tags map<string, list<struct<x: int>>> free\u{fffd}[2J",
                "main branch 7258950548773449607 2023-11-14T22:13:20.000Z",
            ],
        );
    }

    #[test]
    fn metadata_files_are_listed() {
        check(&files(&answer()), &["2020-09-13T12:26:40.000Z file:///w/0.json"]);
    }

    #[test]
    fn nested_types_are_shown_to_a_depth() {
        let mut deep = json!("int");
        for _ in 0..100 {
            deep = json!({"type": "list", "element": deep});
        }
        assert_eq!(kind(&deep, 2), "list<list<…>>");
    }
}
