//! `cove catalog table stats`: the health of a table.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::lake::{RemoteWarehouse, items};
use super::names::in_path;
use super::text;
use crate::cli::TableStatsArgs;
use crate::percent::escaped;
use crate::remote::plain;
use crate::values::{columns, human_bytes};

/// Characters of the longest bar of the histogram.
const BAR_WIDTH: u64 = 30;

/// Shows the statistics.
pub(super) async fn show(lake: &RemoteWarehouse<'_>, args: &TableStatsArgs) -> Result<()> {
    let (namespace, table) = args.name.split();
    let (levels, table) = (in_path(namespace), escaped(table));
    let at = match (args.snapshot, &args.reference) {
        (Some(id), _) => format!("?snapshot-id={id}"),
        (None, Some(name)) => format!("?ref={}", escaped(name)),
        (None, None) => String::new(),
    };
    let path = lake.management(&format!("tables/{levels}/{table}/stats{at}"));
    let health = lake.get(&args.as_of.laid_on(path)).await?;
    lake.show(&health, || describe(&health))
}

fn describe(health: &Value) -> String {
    let mut out = String::new();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let size = |value: &Value| human_bytes(number(value));
    let (data, small) = (&health["data"], &health["small"]);
    let mut facts: Vec<[String; 2]> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push([name.to_owned(), value]);
    fact("snapshot", text(&health["snapshot-id"]));
    fact("data", totals(data));
    fact("small", format!("{} below {}", totals(small), size(&health["small-below-bytes"])));
    let (rows, bytes) = (number(&health["rows-per-file"]), size(&health["bytes-per-file"]));
    fact("average file", format!("{rows} rows, {bytes}"));
    let deletes = &health["deletes"];
    for kind in ["position", "equality", "vectors"] {
        fact(&format!("{kind} deletes"), totals(&deletes[kind]));
    }
    let percent = deletes["deleted-percent"].as_f64().unwrap_or(0.0);
    fact("deleted rows", format!("{} ({percent:.1} %)", number(&deletes["deleted-rows"])));
    let partitions = &health["partitions"];
    let skew = partitions["skew"].as_f64().unwrap_or(0.0);
    fact("partitions", format!("{}, skew {skew:.1}", number(&partitions["count"])));
    let manifests = &health["manifests"];
    let (count, bytes) = (number(&manifests["count"]), size(&manifests["bytes"]));
    fact("manifests", format!("{count}, {bytes}"));
    let snapshots = &health["snapshots"];
    let days = number(&snapshots["oldest-age-ms"]) / 86_400_000;
    fact("snapshots", format!("{}, the oldest {days} days old", number(&snapshots["count"])));
    if health["complete"] == false {
        fact("not all", "only the first manifests were read".to_owned());
    }
    out.push_str(&columns(&facts, ""));
    histogram(health, &mut out);
    let largest = items(partitions, "largest");
    if largest.len() > 1 {
        out.push('\n');
        let mut rows = vec![["partition", "data", "small", "deletes"].map(str::to_owned)];
        rows.extend(largest.iter().map(|it| {
            let (data, deletes) = (totals(&it["data"]), number(&it["deletes"]["files"]));
            let small = number(&it["small-files"]).to_string();
            [plain(&text(&it["partition"])), data, small, deletes.to_string()]
        }));
        out.push_str(&columns(&rows, ""));
    }
    for it in items(health, "recommendations") {
        let _ = writeln!(out, "\n{}: {}", text(&it["action"]), plain(&text(&it["reason"])));
        if let Some(operation) = it["operation"].as_str() {
            let _ = writeln!(out, "  cove catalog maintain {}", plain(operation));
        }
        if let Some(call) = it["elsewhere"].as_str() {
            let _ = writeln!(out, "  {}", plain(call));
        }
    }
    out
}

fn totals(of: &Value) -> String {
    let number = |name: &str| of[name].as_u64().unwrap_or(0);
    let (files, rows, bytes) = (number("files"), number("rows"), human_bytes(number("bytes")));
    format!("{files} files, {rows} rows, {bytes}")
}

/// Draws a bar for each part of the histogram.
fn histogram(health: &Value, out: &mut String) {
    let parts = items(health, "histogram");
    let files = |it: &Value| it["files"].as_u64().unwrap_or(0);
    let most = parts.iter().map(files).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    out.push('\n');
    let mut rows = vec![["data files of", "files", ""].map(str::to_owned)];
    for it in parts.iter().filter(|it| files(it) > 0) {
        let from = human_bytes(it["from-bytes"].as_u64().unwrap_or(0));
        let to = it["to-bytes"].as_u64().map_or_else(String::new, human_bytes);
        let width = (files(it) * BAR_WIDTH).div_ceil(most);
        let bar = "#".repeat(usize::try_from(width).unwrap_or(0));
        rows.push([format!("{from} to {to}"), files(it).to_string(), bar]);
    }
    out.push_str(&columns(&rows, ""));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_health_of_a_table_is_told_in_words() {
        let totals = |files: u64| json!({"files": files, "rows": 10 * files, "bytes": 4096});
        let text = describe(&json!({
            "snapshot-id": 7, "complete": false, "small-below-bytes": 402_653_184,
            "data": totals(6), "small": totals(5), "rows-per-file": 10, "bytes-per-file": 682,
            "histogram": [
                {"from-bytes": 0, "to-bytes": 131_072, "files": 5, "bytes": 9},
                {"from-bytes": 131_072, "to-bytes": null, "files": 1, "bytes": 9}
            ],
            "deletes": {"position": totals(1), "equality": totals(0), "vectors": totals(0),
                        "deleted-rows": 10, "deleted-percent": 16.66},
            "partitions": {"count": 2, "skew": 1.5, "largest": [
                {"partition": "day=\u{1b}1", "data": totals(4), "small-files": 4,
                 "deletes": totals(1)},
                {"partition": "day=2", "data": totals(2), "small-files": 1, "deletes": totals(0)}]},
            "manifests": {"count": 3, "bytes": 9000},
            "snapshots": {"count": 4, "oldest-age-ms": 172_800_000},
            "recommendations": [
                {"action": "compact", "reason": "small files", "operation": null,
                 "elsewhere": "CALL system.rewrite_data_files(table => 'a.b')"},
                {"action": "expire-snapshots", "reason": "3 of 4", "operation": "expire-snapshots",
                 "elsewhere": null}]
        }));
        for expected in [
            "the oldest 2 days old",
            "10 (16.7 %)",
            "##############################",
            "only the first manifests were read",
            "compact: small files\n  CALL system",
            "cove catalog maintain expire-snapshots",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
