//! `cove session sql`: reads data behind a grant of a session.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use api::{DataObject, GrantDescription, GrantQuery, GrantQueryResult};
use axum::http::Method;
use serde_json::Value;

use super::{WAIT_TIMEOUT, path};
use crate::cli::SqlArgs;
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::{Remote, plain};
use crate::run::print_json;

/// Runs a statement, or describes the available data.
pub(super) async fn run(args: &SqlArgs, server: &Remote, json: bool) -> Result<()> {
    let target = path(&args.id, &format!("/grants/{}", escaped(&args.grant)));
    let Some(sql) = &args.sql else {
        let name = args.describe.as_deref().map(|name| format!("?name={}", escaped(name)));
        let target = format!("{target}/describe{}", name.unwrap_or_default());
        let found: GrantDescription = server.call(Method::GET, &target).await?;
        if json {
            return Ok(print_json(&found)?);
        }
        let text: String = found.objects.iter().map(described).collect();
        write!(io::stdout(), "{text}")?;
        if found.truncated {
            complain("there are more; --describe NAME shows one");
        }
        return Ok(());
    };
    let query = GrantQuery {
        sql: sql.clone(),
        parameters: args.parameters.iter().map(|text| parameter(text)).collect(),
        max_rows: args.max_rows,
    };
    let mut request = server.request_with(Method::POST, &format!("{target}/query"), &query)?;
    request.timeout = WAIT_TIMEOUT;
    let result: GrantQueryResult = server.ask(request).await?;
    if json {
        return Ok(print_json(&result)?);
    }
    write!(io::stdout(), "{}", table(&result))?;
    if result.truncated {
        let count = result.row_count;
        complain(&format!("there are more than these {count} rows; --max-rows shows more"));
    }
    Ok(())
}

/// Returns a value as JSON if the text is valid JSON, otherwise as a string.
fn parameter(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Formats rows as a table.
fn table(result: &GrantQueryResult) -> String {
    let names = result.columns.iter().map(|column| plain(&column.name)).collect::<Vec<_>>();
    let body = result.rows.iter().map(|row| row.iter().map(cell).collect());
    let rows: Vec<Vec<String>> = std::iter::once(names).chain(body).collect();
    let width = |at: usize| {
        let widths = rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..result.columns.len()).map(width).collect();
    let mut text = String::new();
    for row in rows.iter().filter(|row| !row.is_empty()) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _infallible = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

fn described(object: &DataObject) -> String {
    let mut text = format!("{} {}\n", plain(&object.kind), plain(&object.name));
    for column in &object.columns {
        let mark = if column.nullable { "" } else { " not null" };
        let (name, kind) = (plain(&column.name), plain(&column.type_name));
        let _infallible = writeln!(text, "  {name} {kind}{mark}");
    }
    for constraint in object.constraints.iter().chain(&object.partitions) {
        let _infallible = writeln!(text, "  {}", plain(constraint));
    }
    text
}

#[cfg(test)]
mod tests {
    use api::QueryColumn;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_stand_below_their_columns() {
        let column = |name: &str| QueryColumn { name: name.to_owned(), type_name: String::new() };
        let result = GrantQueryResult {
            columns: vec![column("id"), column("name")],
            rows: vec![vec![json!(100), json!("a")], vec![Value::Null, json!("\u{1b}[1m")]],
            row_count: 2,
            truncated: false,
            limit: None,
            seconds: 0.0,
        };
        let output = table(&result);
        assert!(output.starts_with("id    name\n100   a\nNULL  "), "{output}");
        assert!(!output.contains('\u{1b}'), "{output}");
        assert_eq!(parameter("7"), json!(7));
        assert_eq!(parameter("seven"), json!("seven"));
    }
}
