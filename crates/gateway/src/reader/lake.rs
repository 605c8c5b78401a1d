//! Tables of a warehouse, as visible to a program inside over Iceberg's REST protocol.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>
//! - <https://iceberg.apache.org/spec/#table-metadata>

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::{DataColumn, DataObject, ErrorCode, SnapshotFacts};
use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use node::clock;
use node::http::HttpError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;

use super::describe::{Described, OBJECTS_MAX, not_found};

/// Longest response of the catalog, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Namespaces whose tables are listed if no name is specified.
const NAMESPACES_MAX: usize = 50;

/// Deepest shown nesting of a type.
const DEPTH_MAX: usize = 16;

/// Separator of a namespace's levels in a path.
const SEPARATOR: &str = "%1F";

/// A connection to the catalog.
struct LakeClient {
    sender: SendRequest<Empty<Bytes>>,
    /// Prefix of the warehouse's paths.
    base: String,
}

/// Describes a warehouse, a namespace or a table.
///
/// # Errors
/// 404 if no object has this name; if the catalog does not respond.
pub(super) async fn describe(
    stream: TcpStream,
    warehouse: &str,
    name: Option<&str>,
) -> Result<Described, HttpError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let asking = async {
        let mut client = LakeClient { sender, base: "/v1".to_owned() };
        let config = format!("/config?warehouse={}", encoded(warehouse));
        let config = client.get(&config).await?.ok_or_else(|| not_found(warehouse))?;
        let prefix =
            ["overrides", "defaults"].iter().find_map(|one| config[*one]["prefix"].as_str());
        if let Some(prefix) = prefix {
            client.base = format!("/v1/{prefix}");
        }
        match name {
            None => client.everything().await,
            Some(name) => client.named(name).await,
        }
    };
    tokio::pin!(asking);
    tokio::select! {
        found = &mut asking => found,
        _ended = connection => asking.await,
    }
}

fn broken(error: impl std::fmt::Display) -> HttpError {
    tracing::debug!(%error, "a reader of a warehouse lost its connection");
    HttpError::new(ErrorCode::Overloaded, "the connection to the catalog ended")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns the path of a namespace, by its levels.
fn namespace_path(levels: &[String]) -> String {
    let levels: Vec<String> = levels.iter().map(|level| encoded(level)).collect();
    format!("/namespaces/{}", levels.join(SEPARATOR))
}

fn levels_of(value: &Value) -> Vec<String> {
    let levels = value.as_array().into_iter().flatten();
    levels.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn namespace(levels: &[String]) -> DataObject {
    let (name, kind) = (levels.join("."), "namespace".to_owned());
    DataObject { name, kind, ..DataObject::default() }
}

impl LakeClient {
    /// Requests a document; `None` if it does not exist.
    async fn get(&mut self, path: &str) -> Result<Option<Value>, HttpError> {
        let request = Request::get(format!("{}{path}", self.base))
            .header(header::HOST, "127.0.0.1")
            .body(Empty::new())
            .map_err(|_| HttpError::invalid("is no name").at("name"))?;
        self.sender.ready().await.map_err(broken)?;
        let answer = self.sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(broken)?.to_bytes();
        let document: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status {
            StatusCode::OK => Ok(Some(document)),
            // Objects outside the grant look like missing ones.
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Ok(None),
            other => {
                let said = document["error"]["message"].as_str().unwrap_or("no reason is given");
                let message = format!("the catalog answers with status {}: {said}", other.as_u16());
                Err(HttpError::new(ErrorCode::Conflict, message))
            }
        }
    }

    /// Returns the names of one list, page by page, until there are enough.
    async fn list(&mut self, path: &str, field: &str) -> Result<Option<Vec<Value>>, HttpError> {
        let mut found = Vec::new();
        let mut token = String::new();
        let mark = if path.contains('?') { '&' } else { '?' };
        let most = usize::try_from(OBJECTS_MAX).unwrap_or(usize::MAX);
        while found.len() <= most {
            let page = format!("{path}{mark}pageSize={OBJECTS_MAX}&pageToken={token}");
            let Some(mut document) = self.get(&page).await? else { return Ok(None) };
            match document[field].take() {
                Value::Array(names) => found.extend(names),
                _ => break,
            }
            match document["next-page-token"].as_str() {
                Some(next) if !next.is_empty() => token = encoded(next),
                _ => break,
            }
        }
        Ok(Some(found))
    }

    /// Returns the top-level namespaces, with their tables.
    async fn everything(&mut self) -> Result<Described, HttpError> {
        let namespaces = self.list("/namespaces", "namespaces").await?.unwrap_or_default();
        let mut truncated = namespaces.len() > NAMESPACES_MAX;
        let mut objects = Vec::new();
        for levels in namespaces.iter().take(NAMESPACES_MAX).map(levels_of) {
            objects.push(namespace(&levels));
            objects.extend(self.tables(&levels).await?.unwrap_or_default());
        }
        let most = usize::try_from(OBJECTS_MAX).unwrap_or(usize::MAX);
        truncated |= objects.len() > most;
        objects.truncate(most);
        Ok((objects, truncated))
    }

    async fn tables(&mut self, levels: &[String]) -> Result<Option<Vec<DataObject>>, HttpError> {
        let path = format!("{}/tables", namespace_path(levels));
        let Some(tables) = self.list(&path, "identifiers").await? else { return Ok(None) };
        let table = |identifier: &Value| {
            let mut name = levels_of(&identifier["namespace"]);
            name.extend(identifier["name"].as_str().map(str::to_owned));
            let kind = "table".to_owned();
            DataObject { name: name.join("."), kind, ..DataObject::default() }
        };
        Ok(Some(tables.iter().map(table).collect()))
    }

    /// Returns a table, or else the contents of a namespace.
    async fn named(&mut self, name: &str) -> Result<Described, HttpError> {
        let levels: Vec<String> = name.split('.').map(str::to_owned).collect();
        if levels.iter().any(String::is_empty) {
            return Err(not_found(name));
        }
        if let Some((table, parents)) = levels.split_last().filter(|(_, rest)| !rest.is_empty()) {
            let path = format!("{}/tables/{}", namespace_path(parents), encoded(table));
            if let Some(document) = self.get(&path).await? {
                return Ok((vec![loaded(name, &document["metadata"])], false));
            }
        }
        let Some(mut objects) = self.tables(&levels).await? else {
            return Err(not_found(name));
        };
        let parent: Vec<String> = levels.iter().map(|level| encoded(level)).collect();
        let children = format!("/namespaces?parent={}", parent.join(SEPARATOR));
        let children = self.list(&children, "namespaces").await?.unwrap_or_default();
        objects.extend(children.iter().map(|levels| namespace(&levels_of(levels))));
        let most = usize::try_from(OBJECTS_MAX).unwrap_or(usize::MAX);
        let truncated = objects.len() > most;
        objects.truncate(most);
        Ok((objects, truncated))
    }
}

/// Describes a table by its metadata.
fn loaded(name: &str, metadata: &Value) -> DataObject {
    let current = |list: &str, id: &str, of: &str| {
        let wanted = metadata.get(id)?;
        let all = metadata[list].as_array()?;
        all.iter().find(|one| one.get(of) == Some(wanted))
    };
    let schema = current("schemas", "current-schema-id", "schema-id");
    let fields = schema.and_then(|schema| schema["fields"].as_array());
    let columns = fields.into_iter().flatten().map(column).collect();
    let names: BTreeMap<i64, &str> = fields
        .into_iter()
        .flatten()
        .filter_map(|field| Some((field["id"].as_i64()?, field["name"].as_str()?)))
        .collect();
    let spec = current("partition-specs", "default-spec-id", "spec-id");
    let parts = spec.and_then(|spec| spec["fields"].as_array()).into_iter().flatten();
    let partitions = parts.map(|part| {
        let source = part["source-id"].as_i64().and_then(|id| names.get(&id)).copied();
        let source = source.or(part["name"].as_str()).unwrap_or_default();
        format!("{}({source})", part["transform"].as_str().unwrap_or("unknown"))
    });
    let snapshot = current("snapshots", "current-snapshot-id", "snapshot-id");
    let summary = snapshot.and_then(|it| it["summary"].as_object()).into_iter().flatten();
    let summary = summary.filter_map(|(name, it)| Some((name.clone(), it.as_str()?.to_owned())));
    let count = metadata["snapshots"].as_array().map_or(0, Vec::len);
    let snapshots = SnapshotFacts {
        count: u64::try_from(count).unwrap_or(u64::MAX),
        current: snapshot.map(|it| it["snapshot-id"].to_string()),
        at: snapshot.and_then(|it| it["timestamp-ms"].as_u64()).map(clock::rfc3339_of_ms),
        summary: summary.collect(),
    };
    DataObject {
        name: name.to_owned(),
        kind: "table".to_owned(),
        comment: metadata["properties"]["comment"].as_str().map(str::to_owned),
        columns,
        constraints: Vec::new(),
        partitions: partitions.collect(),
        snapshots: Some(snapshots),
    }
}

fn column(field: &Value) -> DataColumn {
    DataColumn {
        name: field["name"].as_str().unwrap_or_default().to_owned(),
        type_name: type_name(&field["type"], DEPTH_MAX),
        nullable: field["required"] != Value::Bool(true),
        default: field.get("initial-default").filter(|it| !it.is_null()).map(Value::to_string),
        comment: field["doc"].as_str().map(str::to_owned),
    }
}

/// Formats a type as in Spark and Trino: `list<int>`, `struct<a: string>`.
fn type_name(kind: &Value, depth: usize) -> String {
    if let (Some(name), true) = (kind.as_str(), depth > 0) {
        return name.to_owned();
    }
    let inner = |field: &str| type_name(&kind[field], depth.saturating_sub(1));
    match (kind["type"].as_str(), depth) {
        (_, 0) => "…".to_owned(),
        (Some("list"), _) => format!("list<{}>", inner("element")),
        (Some("map"), _) => format!("map<{}, {}>", inner("key"), inner("value")),
        (Some("struct"), _) => {
            let mut text = "struct<".to_owned();
            for (at, field) in kind["fields"].as_array().into_iter().flatten().enumerate() {
                let divider = if at == 0 { "" } else { ", " };
                let name = field["name"].as_str().unwrap_or_default();
                let of = type_name(&field["type"], depth - 1);
                let _infallible = write!(text, "{divider}{name}: {of}");
            }
            text.push('>');
            text
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_its_current_schema_and_snapshot() {
        let metadata = json!({
            "current-schema-id": 1, "default-spec-id": 0,
            "schemas": [{ "schema-id": 0, "fields": [] }, { "schema-id": 1, "fields": [
                { "id": 1, "name": "id", "required": true, "type": "long", "doc": "number" },
                { "id": 2, "name": "at", "required": false, "type": "timestamptz" },
                { "id": 3, "name": "tags", "required": false, "type": {
                    "type": "list", "element-id": 4, "element": { "type": "struct", "fields": [
                        { "id": 5, "name": "a", "type": "string" },
                        { "id": 6, "name": "b", "type": {
                            "type": "map", "key": "string", "value": "int" } } ] } } } ] }],
            "partition-specs": [{ "spec-id": 0, "fields": [
                { "source-id": 2, "field-id": 1000, "transform": "day", "name": "at_day" } ] }],
            "current-snapshot-id": 9_007_199_254_740_993_i64,
            "snapshots": [{ "snapshot-id": 9_007_199_254_740_993_i64, "timestamp-ms": 0,
                "summary": { "operation": "append", "total-records": "5" } }],
        });
        let table = loaded("shop.orders", &metadata);
        assert_eq!(table.partitions, ["day(at)"]);
        let types: Vec<&str> = table.columns.iter().map(|it| it.type_name.as_str()).collect();
        let list = "list<struct<a: string, b: map<string, int>>>";
        assert_eq!(types, ["long", "timestamptz", list]);
        assert!(!table.columns[0].nullable && table.columns[1].nullable);
        let snapshots = table.snapshots.unwrap();
        assert_eq!(snapshots.current.as_deref(), Some("9007199254740993"));
        assert_eq!(snapshots.at.as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(snapshots.summary["total-records"], "5");
    }

    #[test]
    fn metadata_that_says_nothing_is_an_empty_table() {
        let table = loaded("a.b", &json!({ "current-snapshot-id": -1, "schemas": 5 }));
        assert!(table.columns.is_empty() && table.snapshots.unwrap().current.is_none());
        let mut deep = json!("int");
        for _ in 0..40 {
            deep = json!({ "type": "list", "element": deep });
        }
        assert!(type_name(&deep, DEPTH_MAX).contains('…'));
    }
}
