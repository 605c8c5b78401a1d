//! `cove catalog search`.

use std::io::{self, Write as _};

use anyhow::Result;
use axum::http::Method;
use serde_json::Value;

use super::lake::{RemoteWarehouse, items};
use super::text;
use crate::agent::print_line;
use crate::cli::CatalogSearchArgs;
use crate::messages::complain;
use crate::percent::escaped;
use crate::values::columns;

/// Shows the objects whose name contains a text.
pub(super) async fn show(
    lake: &RemoteWarehouse<'_>,
    args: &CatalogSearchArgs,
    is_json: bool,
) -> Result<()> {
    let path = format!("search?q={}&limit={}", escaped(&args.text), args.limit);
    let found = lake.ask(Method::GET, &lake.management(&path), None).await?;
    let results = items(&found, "results");
    if is_json {
        results.iter().try_for_each(print_line)?;
    } else {
        let row = |it: &Value| {
            let levels = items(it, "namespace").iter().map(text);
            let mut name = levels.collect::<Vec<_>>().join(".");
            if it["kind"] != "namespace" {
                name = format!("{name}.{}", text(&it["name"]));
            }
            [text(&it["kind"]), name, text(&it["column"])]
        };
        let rows: Vec<_> = results.iter().map(row).collect();
        write!(io::stdout(), "{}", columns(&rows, ""))?;
    }
    if found["truncated"] == true {
        complain("there may be more: --limit shows more, a longer text finds less");
    }
    Ok(())
}
