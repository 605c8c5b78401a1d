//! Tools that read data behind the grants of sessions.

use std::fmt::Write as _;

use axum::http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::session::data_grants;
use super::{ToolOutcome, ToolResult, parse_arguments, session_path};
use crate::content::HEAD_BYTES;
use crate::native::NativeApi;

/// Number of returned rows if the model does not set it.
const ROWS_DEFAULT: u32 = 100;

/// Longest value that is shown whole in a table, in bytes.
const CELL_BYTES_MAX: usize = 200;

/// Most sessions whose grants are listed.
const LISTED_MAX: usize = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuerySql {
    session: String,
    grant: String,
    sql: String,
    #[serde(default)]
    parameters: Vec<Value>,
    max_rows: Option<u32>,
}

pub(super) fn query_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session", "grant", "sql"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "grant": { "type": "string", "description": "Its grant, such as postgres:shop" },
            "sql": { "type": "string", "description": "One statement" },
            "parameters": {
                "type": "array",
                "items": {},
                "description": "Values of $1, $2 … (PostgreSQL) or ? (MySQL)",
            },
            "max_rows": { "type": "integer", "description": "Rows to return; 100 unless given" },
        },
    })
}

pub(super) async fn query(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: QuerySql = parse_arguments(args)?;
    let path = format!("{}/query", grant_path(&args.session, &args.grant)?);
    let body = json!({
        "sql": args.sql,
        "parameters": args.parameters,
        "max_rows": args.max_rows.unwrap_or(ROWS_DEFAULT),
    });
    let result = api.json(Method::POST, &path, Some(&body)).await.map_err(ToolResult::from)?;
    Ok(ToolResult::new(&table(&result), result))
}

fn grant_path(session: &str, grant: &str) -> Result<String, ToolResult> {
    let name = utf8_percent_encode(grant, NON_ALPHANUMERIC);
    Ok(format!("{}/grants/{name}", session_path(session)?))
}

/// Formats rows as a text table, truncated at the end.
fn table(result: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let columns = list(&result["columns"]);
    let names = columns.iter().map(|column| column["name"].as_str().unwrap_or_default());
    let mut text = names.collect::<Vec<_>>().join(" | ");
    let rows = list(&result["rows"]);
    let mut printed = 0_usize;
    for row in &rows {
        let cells: Vec<String> = list(row).iter().map(cell).collect();
        let line = cells.join(" | ");
        if text.len() + line.len() > HEAD_BYTES {
            break;
        }
        text.push('\n');
        text.push_str(&line);
        printed += 1;
    }
    let count = rows.len();
    let _infallible = match columns.is_empty() {
        true => write!(text, "[done, no rows"),
        false => write!(text, "\n[{count} rows"),
    };
    if printed < count {
        let _infallible = write!(text, ", the first {printed} of them are shown");
    }
    if result["truncated"] == true {
        let limit = result["limit"].as_str().unwrap_or("rows");
        let _infallible = write!(text, ", there are more beyond the limit of {limit}");
    }
    text.push(']');
    text
}

/// Formats a value for a table: on one line, and truncated.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = text.replace(['\n', '\r', '\t'], " ");
    match text.len() <= CELL_BYTES_MAX {
        true => text,
        false => {
            let end = text.floor_char_boundary(CELL_BYTES_MAX);
            format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len())
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribeData {
    session: Option<String>,
    grant: Option<String>,
    name: Option<String>,
}

pub(super) fn describe_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "session": {
                "type": "string",
                "description": "Id of a session; without one its grants are listed for all",
            },
            "grant": { "type": "string", "description": "A grant of the session" },
            "name": { "type": "string", "description": "A table or namespace of the grant" },
        },
    })
}

pub(super) async fn describe(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: DescribeData = parse_arguments(args)?;
    if args.name.is_some() && args.grant.is_none() {
        return Err(ToolResult::error("grant is missing: the grant that leads to the table"));
    }
    match (&args.session, &args.grant) {
        (Some(session), Some(grant)) => {
            let mut path = format!("{}/describe", grant_path(session, grant)?);
            if let Some(name) = &args.name {
                let _infallible =
                    write!(path, "?name={}", utf8_percent_encode(name, NON_ALPHANUMERIC));
            }
            let found = api.json(Method::GET, &path, None).await.map_err(ToolResult::from)?;
            Ok(ToolResult::new(&objects(&found), found))
        }
        (None, Some(_)) => Err(ToolResult::error("session is missing: the grants are its own")),
        (Some(session), None) => {
            let path = session_path(session)?;
            let found = api.json(Method::GET, &path, None).await.map_err(ToolResult::from)?;
            Ok(grants(&[found]))
        }
        (None, None) => {
            let path = format!("/v1/sessions?limit={LISTED_MAX}");
            let found = api.json(Method::GET, &path, None).await.map_err(ToolResult::from)?;
            Ok(grants(found["sessions"].as_array().map_or(&[][..], Vec::as_slice)))
        }
    }
}

/// Returns the sessions with their data grants.
fn grants(sessions: &[Value]) -> ToolResult {
    let (mut text, mut listed) = (String::new(), Vec::new());
    for session in sessions {
        let labels = data_grants(session);
        let id = session["id"].as_str().unwrap_or_default();
        let is_there = session["state"] != "ended";
        if is_there && !labels.is_empty() {
            let state = session["state"].as_str().unwrap_or_default();
            let _infallible = writeln!(text, "{id} ({state}): {}", labels.join(", "));
            listed.push(json!({ "session": id, "state": state, "grants": labels }));
        }
    }
    if text.is_empty() {
        text.push_str("no session has a grant of data; the tool session creates one with `grants`");
    }
    ToolResult::new(text.trim_end(), json!({ "sessions": listed }))
}

/// Describes the objects behind a grant as text.
fn objects(found: &Value) -> String {
    let list = found["objects"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut text, mut printed) = (String::new(), 0_usize);
    for object in list {
        let part = object_text(object);
        if text.len() + part.len() > HEAD_BYTES && printed > 0 {
            let _infallible = writeln!(text, "[{} more]", list.len() - printed);
            break;
        }
        text.push_str(&part);
        printed += 1;
    }
    if list.is_empty() {
        text.push_str("nothing that the grant may read\n");
    }
    if found["truncated"] == true {
        text.push_str("[there are more; name a namespace or a table]\n");
    }
    text.trim_end().to_owned()
}

fn object_text(object: &Value) -> String {
    let field = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let mut text = format!("{} {}", field(object, "kind"), field(object, "name"));
    let comment = |of: &Value| of["comment"].as_str().map(|it| format!(" -- {}", cell(&json!(it))));
    text.push_str(&comment(object).unwrap_or_default());
    text.push('\n');
    for column in object["columns"].as_array().into_iter().flatten() {
        let _infallible = write!(text, "  {} {}", field(column, "name"), field(column, "type"));
        if column["nullable"] == false {
            text.push_str(" not null");
        }
        if let Some(default) = column["default"].as_str() {
            let _infallible = write!(text, " default {}", cell(&json!(default)));
        }
        text.push_str(&comment(column).unwrap_or_default());
        text.push('\n');
    }
    for constraint in object["constraints"].as_array().into_iter().flatten() {
        let _infallible = writeln!(text, "  {}", cell(constraint));
    }
    for partition in object["partitions"].as_array().into_iter().flatten() {
        let _infallible = writeln!(text, "  partitioned by {}", cell(partition));
    }
    if let Some(count) = object["snapshots"]["count"].as_u64() {
        let _infallible = write!(text, "  {count} snapshots");
        if let Some(at) = object["snapshots"]["at"].as_str() {
            let _infallible = write!(text, ", current of {at}");
        }
        if let Some(records) = object["snapshots"]["summary"]["total-records"].as_str() {
            let _infallible = write!(text, " with {} records", cell(&json!(records)));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_a_table_that_is_cut_behind_its_head() {
        let result = json!({
            "columns": [{ "name": "id", "type": "int4" }, { "name": "note", "type": "text" }],
            "rows": [[1, null], [2, "two\nlines"], [3, { "a": [1] }]],
            "truncated": true, "limit": "rows",
        });
        let expected = "id | note\n1 | NULL\n2 | two lines\n3 | {\"a\":[1]}\n\
                        [3 rows, there are more beyond the limit of rows]";
        assert_eq!(table(&result), expected);
        assert_eq!(table(&json!({ "columns": [], "rows": [] })), "[done, no rows]");
        let many: Vec<Value> =
            (0..10_000).map(|number| json!([number, "x".repeat(1_000)])).collect();
        let text = table(&json!({ "columns": result["columns"], "rows": many }));
        assert!(text.len() < HEAD_BYTES + 100 && text.contains("(1000 bytes)"), "{}", text.len());
        assert!(text.contains("10000 rows, the first"), "{text}");
    }

    #[test]
    fn a_table_is_described_line_by_line() {
        let found = json!({ "objects": [{
            "name": "public.a", "kind": "table", "comment": "of all",
            "columns": [
                { "name": "id", "type": "integer", "nullable": false, "default": "1" },
                { "name": "b", "type": "text", "nullable": true, "comment": "why" },
            ],
            "constraints": ["PRIMARY KEY (id)"], "partitions": ["day(b)"],
            "snapshots": { "count": 2, "at": "now", "summary": { "total-records": "5" } },
        }], "truncated": false });
        let expected = "table public.a -- of all\n  id integer not null default 1\n  b text -- why\n  \
                        PRIMARY KEY (id)\n  partitioned by day(b)\n  \
                        2 snapshots, current of now with 5 records";
        assert_eq!(objects(&found), expected);
    }

    #[test]
    fn a_grant_is_one_part_of_a_path() {
        let path = grant_path("ses_1", "postgres:a/../b?c").unwrap();
        assert_eq!(path, "/v1/sessions/ses_1/grants/postgres%3Aa%2F%2E%2E%2Fb%3Fc");
        assert!(grant_path("ses_1/..", "a").is_err());
    }
}
