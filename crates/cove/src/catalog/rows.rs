//! Metadata of a table as rows: a text table, JSON or CSV.

use std::io::{self, Write as _};

use anyhow::Result;
use serde_json::{Value, json};

use super::lake::{RemoteWarehouse, items};
use super::names::in_path;
use super::text;
use crate::cli::RowsArgs;
use crate::percent::escaped;
use crate::usage_error::UsageError;
use crate::values::columns;

/// Rows per request: the largest page that a server returns.
const PAGE_ROWS: usize = 10_000;

/// Name of a kind of rows, and its column headings with the JSON members that they show.
pub(super) struct RowHeadings<const N: usize> {
    aspect: &'static str,
    columns: [(&'static str, &'static str); N],
}

pub(super) const SNAPSHOTS: RowHeadings<6> = RowHeadings {
    aspect: "snapshots",
    columns: [
        ("at", "committed-at"),
        ("snapshot", "snapshot-id"),
        ("parent", "parent-id"),
        ("operation", "operation"),
        ("added", "summary.added-records"),
        ("records", "summary.total-records"),
    ],
};

pub(super) const HISTORY: RowHeadings<4> = RowHeadings {
    aspect: "history",
    columns: [
        ("current since", "made-current-at"),
        ("snapshot", "snapshot-id"),
        ("parent", "parent-id"),
        ("leads here", "is-current-ancestor"),
    ],
};

pub(super) const REFS: RowHeadings<6> = RowHeadings {
    aspect: "refs",
    columns: [
        ("name", "name"),
        ("kind", "type"),
        ("snapshot", "snapshot-id"),
        ("ref age ms", "max-ref-age-ms"),
        ("snapshots kept", "min-snapshots-to-keep"),
        ("snapshot age ms", "max-snapshot-age-ms"),
    ],
};

pub(super) const FILES: RowHeadings<5> = RowHeadings {
    aspect: "files",
    columns: [
        ("content", "content"),
        ("format", "file-format"),
        ("records", "record-count"),
        ("bytes", "file-size-in-bytes"),
        ("file", "file-path"),
    ],
};

pub(super) const COLUMNS: RowHeadings<4> = RowHeadings {
    aspect: "schema",
    columns: [("id", "id"), ("column", "name"), ("type", "type"), ("required", "required")],
};

/// Returns the path of a table's rows.
pub(super) fn path(
    lake: &RemoteWarehouse<'_>,
    namespace: &[String],
    table: &str,
    aspect: &str,
) -> String {
    let (levels, table) = (in_path(namespace), escaped(table));
    lake.management(&format!("tables/{levels}/{table}/{aspect}?pageSize={PAGE_ROWS}"))
}

/// Shows all rows. `snapshot` selects a snapshot for rows about files.
pub(super) async fn show<const N: usize>(
    lake: &RemoteWarehouse<'_>,
    what: &RowHeadings<N>,
    args: &RowsArgs,
    snapshot: Option<i64>,
) -> Result<()> {
    let (namespace, table) = args.name.split();
    let mut path = args.as_of.laid_on(path(lake, namespace, table, what.aspect));
    if let Some(id) = snapshot {
        path.push_str(&format!("&snapshot-id={id}"));
    }
    if args.csv && lake.is_json() {
        return Err(UsageError("it is either --csv or --json".to_owned()).into());
    }
    if args.csv {
        return csv(lake, &format!("{path}&format=csv")).await;
    }
    let (mut all, mut next) = (Vec::new(), None::<String>);
    loop {
        let token = next.map(|it| format!("&pageToken={}", escaped(&it))).unwrap_or_default();
        let mut page = lake.get(&format!("{path}{token}")).await?;
        if let Some(rows) = page["rows"].as_array_mut() {
            all.append(rows);
        }
        next = page["next-page-token"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    let answer = json!({"rows": all});
    lake.show(&answer, || listed(what, &answer))
}

/// Prints the pages in the server's CSV format, with one header line.
async fn csv(lake: &RemoteWarehouse<'_>, path: &str) -> Result<()> {
    let (mut text, mut next) = lake.page(path).await?;
    loop {
        io::stdout().write_all(text.as_bytes())?;
        let Some(token) = next else { return Ok(()) };
        let (page, following) = lake.page(&format!("{path}&pageToken={}", escaped(&token))).await?;
        text = page.split_once("\r\n").map(|(_, rows)| rows.to_owned()).unwrap_or_default();
        next = following;
    }
}

fn listed<const N: usize>(what: &RowHeadings<N>, answer: &Value) -> String {
    let mut rows = vec![what.columns.map(|(heading, _)| heading.to_owned())];
    for row in items(answer, "rows") {
        let cell = |path: &str| {
            let value = path.split('.').fold(row, |of, member| &of[member]);
            match value {
                Value::Bool(true) => "yes".to_owned(),
                Value::Bool(false) => String::new(),
                other => text(other),
            }
        };
        rows.push(what.columns.map(|(_, path)| cell(path)));
    }
    columns(&rows, "")
}
