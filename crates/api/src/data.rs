//! Data behind grants: statements that are run over them, to read, and what is there.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Body of `POST /v1/sessions/{id}/grants/{name}/query`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantQuery {
    /// Statement that reads, a single one, in the database's own language.
    pub sql: String,
    /// Values of its parameters: `$1`, `$2` … of PostgreSQL, `?` of MySQL. Objects and lists are
    /// sent as JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Value>,
    /// Rows that are returned at most, 1 to 10000; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
}

/// Column of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct QueryColumn {
    /// Name. Several columns can have the same.
    pub name: String,
    /// Type, as the database calls it: `int4`, `numeric`, `text[]`, `varchar`.
    #[serde(rename = "type")]
    pub type_name: String,
}

/// Result of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantQueryResult {
    /// Columns; none of a statement that returns no rows.
    pub columns: Vec<QueryColumn>,
    /// Values, in the order of the columns.
    pub rows: Vec<Vec<Value>>,
    /// Rows that are here.
    pub row_count: u64,
    /// True if there are more rows than these.
    pub truncated: bool,
    /// Limit that ended the rows, when they are truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<QueryLimit>,
    /// Seconds from the connection to the last row.
    pub seconds: f64,
}

/// Limits of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueryLimit {
    /// `max_rows`.
    Rows,
    /// Bytes that a result may have.
    Bytes,
}

/// Answer of `GET /v1/sessions/{id}/grants/{name}/describe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantDescription {
    /// The grant: `postgres:shop`.
    pub grant: String,
    /// Tables, views and namespaces; one with its columns where a name was given.
    pub objects: Vec<DataObject>,
    /// True if there are more objects than these.
    pub truncated: bool,
}

/// Table, view or namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DataObject {
    /// Name with its schema or namespace: `public.orders`.
    pub name: String,
    /// Kind, as the database calls it: `table`, `view`, `materialized view`, `namespace`.
    pub kind: String,
    /// Comment on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<DataColumn>,
    /// Keys and other constraints, as they would be defined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Parts of the partition spec of an Iceberg table: `day(ordered_at)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    /// Snapshots of an Iceberg table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotFacts>,
}

/// Column of a table or view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DataColumn {
    /// Name.
    pub name: String,
    /// Type, as it would be defined: `numeric(10,2)`, `list<string>`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// True if it can be NULL.
    pub nullable: bool,
    /// Default, as it would be defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Comment on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Snapshots of an Iceberg table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SnapshotFacts {
    /// Snapshots that are kept.
    pub count: u64,
    /// Id of the current one, a number of 64 bits as text; none of an empty table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// When it was made (RFC 3339, milliseconds, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Summary of it: `operation`, `total-records`, `total-files-size` and others.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub summary: std::collections::BTreeMap<String, String>,
}
