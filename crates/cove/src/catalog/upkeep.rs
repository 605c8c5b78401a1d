//! `cove catalog maintain`, `cove catalog protection` and `cove catalog retention`.

use std::time::Duration;

use anyhow::{Result, bail};
use node::clock;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::lake::{RemoteWarehouse, items};
use super::{names, text};
use crate::cli::{
    JobArgs, MaintainCommand, MaintainedArgs, ProtectionCommand, RetentionCommand, ThingArgs,
};
use crate::messages::remark;
use crate::percent::escaped;
use crate::remote::progress::{ProgressLine, bar};
use crate::remote::{FailureKind, RemoteFailure, span};
use crate::values::columns;

/// Minimum and maximum wait between two polls of a job.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Maximum time without a server: a restart with all its checks takes less.
const AWAY_MAX: Duration = Duration::from_secs(120);

/// Executes a command about maintenance jobs.
pub(super) async fn maintain(lake: &RemoteWarehouse<'_>, command: &MaintainCommand) -> Result<()> {
    match command {
        MaintainCommand::ExpireSnapshots { scope, delete_files, clean_metadata, job } => {
            let mut body = body(scope, job);
            body["actions"] = match clean_metadata {
                true => json!(["expire-snapshots", "clean-metadata"]),
                false => json!(["expire-snapshots"]),
            };
            body["delete-files"] = json!(delete_files);
            start(lake, &body, job).await
        }
        MaintainCommand::CleanMetadata { scope, job } => {
            let mut body = body(scope, job);
            body["actions"] = json!(["clean-metadata"]);
            start(lake, &body, job).await
        }
        MaintainCommand::List => {
            let answer = lake.get(&lake.management("maintenance")).await?;
            lake.show(&answer, || jobs_listed(&answer))
        }
        MaintainCommand::Show { id, wait: true } => follow(lake, id).await,
        MaintainCommand::Show { id, wait: false } => {
            let report = lake.get(&path(lake, id)).await?;
            lake.show(&report, || describe(&report))
        }
        MaintainCommand::Cancel { ids } => {
            for id in ids {
                let answer = lake.delete(&path(lake, id)).await?;
                lake.show(&answer, || format!("{id} is stopping\n"))?;
            }
            Ok(())
        }
    }
}

fn path(lake: &RemoteWarehouse<'_>, id: &str) -> String {
    lake.management(&format!("maintenance/{}", escaped(id)))
}

/// Returns the request body with the tables' scope and the dry-run flag.
fn body(scope: &MaintainedArgs, job: &JobArgs) -> Value {
    let mut body = json!({"dry-run": job.dry_run});
    if let Some(namespace) = &scope.namespace {
        body["namespace"] = json!(namespace.levels());
    }
    if !scope.tables.is_empty() {
        let all = scope.tables.iter().map(|it| {
            let (namespace, name) = it.split();
            json!({"namespace": namespace, "name": name})
        });
        body["tables"] = all.collect();
    }
    body
}

async fn start(lake: &RemoteWarehouse<'_>, body: &Value, job: &JobArgs) -> Result<()> {
    let answer = lake.post(&lake.management("maintenance"), body).await?;
    let id = text(&answer["id"]);
    if job.detach {
        return lake.show(&answer, || format!("{id}\n"));
    }
    follow(lake, &id).await
}

/// Waits for the end of a job with a progress bar, and shows its report.
async fn follow(lake: &RemoteWarehouse<'_>, id: &str) -> Result<()> {
    let mut progress = ProgressLine::new(lake.is_json());
    if progress.is_enabled() {
        remark(&format!("{id} continues on the server if you stop this command"));
    }
    let (mut wait, mut lost) = (LOOK_MIN, None);
    let report = loop {
        // The items are requested once, at the end.
        match lake.get(&format!("{}?items=false", path(lake, id))).await {
            Ok(report) if is_over(&report) => break lake.get(&path(lake, id)).await?,
            Ok(report) => {
                lost = None;
                progress.show(&bar_of(&report));
            }
            Err(failure) => {
                let since = *lost.get_or_insert_with(clock::now);
                if failure.fault != FailureKind::Lost || clock::now() - since > AWAY_MAX {
                    return Err(RemoteFailure::into(failure));
                }
                progress.show(&format!("{failure}; trying again"));
            }
        }
        sleep(wait).await;
        wait = (wait * 2).min(LOOK_MAX);
    };
    progress.clear();
    lake.show(&report, || describe(&report))?;
    let failed = items(&report, "failures").len();
    match report["state"].as_str() {
        Some("done") if failed == 0 => Ok(()),
        Some("done") => bail!("{failed} things were not done"),
        other => bail!("{id} is {}", other.unwrap_or("in no state that is known")),
    }
}

fn is_over(report: &Value) -> bool {
    !matches!(report["state"].as_str(), Some("queued" | "running"))
}

fn bar_of(report: &Value) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    if report["state"] == json!("queued") {
        return "waits for other jobs".to_owned();
    }
    let bar = bar(number("tables-done"), number("tables-total"));
    let since = clock::wall_ms().saturating_sub(number("created-ms"));
    format!("{bar} tables, {}, {}", counted(report), span(since))
}

/// Returns the counts of a report as a text.
fn counted(report: &Value) -> String {
    let one = |name: &str, word: &str| match report[name].as_u64().unwrap_or_default() {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    format!("{}, {}, {}", one("snapshots", "snapshot"), one("refs", "ref"), one("files", "file"))
}

/// Describes a report: the items, the failures and the totals.
fn describe(report: &Value) -> String {
    let mut all = String::new();
    let listed = items(report, "items");
    if !listed.is_empty() {
        let mut rows = vec![["table", "kind", "what"].map(str::to_owned)];
        let row = |it: &Value| [text(&it["table"]), text(&it["kind"]), text(&it["name"])];
        rows.extend(listed.iter().map(row));
        all.push_str(&columns(&rows, ""));
        if report["is-truncated"] == json!(true) {
            all.push_str("… and more, which is only counted\n");
        }
        all.push('\n');
    }
    let failures = items(report, "failures");
    if !failures.is_empty() {
        let mut rows = vec![["table", "not done"].map(str::to_owned)];
        rows.extend(failures.iter().map(|it| [text(&it["table"]), text(&it["message"])]));
        all.push_str(&columns(&rows, ""));
        all.push('\n');
    }
    let became = match (report["dry-run"] == json!(true), is_over(report)) {
        (true, _) => "would go",
        (false, true) => "went",
        (false, false) => "went so far",
    };
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    let tables = format!("{} of {} tables", number("tables-done"), number("tables-total"));
    all.push_str(&format!("{}: {tables}: {} {became}\n", text(&report["state"]), counted(report)));
    all
}

fn jobs_listed(answer: &Value) -> String {
    let mut rows = vec![["id", "asked for", "state", "tables", "what went"].map(str::to_owned)];
    let number = |it: &Value, name: &str| it[name].as_u64().unwrap_or_default();
    for it in items(answer, "jobs") {
        let dry = if it["dry-run"] == json!(true) { " (dry run)" } else { "" };
        rows.push([
            text(&it["id"]),
            clock::rfc3339_of_ms(number(it, "created-ms")),
            text(&it["state"]),
            format!("{} of {}", number(it, "tables-done"), number(it, "tables-total")),
            format!("{}{dry}", counted(it)),
        ]);
    }
    columns(&rows, "")
}

/// Returns the namespace, and the name in it unless the namespace itself is meant.
fn parts(thing: &ThingArgs) -> (&[String], Option<&str>) {
    match (&thing.namespace, thing.table.as_ref().or(thing.view.as_ref())) {
        (Some(namespace), _) => (namespace.levels(), None),
        (None, Some(relation)) => {
            let (namespace, name) = relation.split();
            (namespace, Some(name))
        }
        (None, None) => (&[], None),
    }
}

/// Executes a command about protection against dropping.
pub(super) async fn execute_protection(
    lake: &RemoteWarehouse<'_>,
    command: &ProtectionCommand,
) -> Result<()> {
    let (thing, wanted) = match command {
        ProtectionCommand::On(thing) => (thing, Some(true)),
        ProtectionCommand::Off(thing) => (thing, Some(false)),
        ProtectionCommand::Show(thing) => (thing, None),
    };
    let (namespace, name) = parts(thing);
    let answer = match wanted {
        Some(protected) => {
            let body = json!({"namespace": namespace, "name": name, "protected": protected});
            lake.post(&lake.management("protection"), &body).await?
        }
        None => {
            let query = name.map(|it| format!("&name={}", escaped(it))).unwrap_or_default();
            let namespace = escaped(&namespace.join("\u{1f}"));
            let path = format!("protection?namespace={namespace}{query}");
            lake.get(&lake.management(&path)).await?
        }
    };
    lake.show(&answer, || {
        let subject = names::dotted(namespace.iter().map(String::as_str).chain(name));
        let is = |by: &str| answer[by] == json!(true);
        let by = match (is("by-flag"), is("by-property")) {
            (true, true) => "is protected, by its property as well",
            (true, false) => "is protected",
            (false, true) => "is protected by its property `protected`",
            (false, false) => "is not protected",
        };
        format!("{subject} {by}\n")
    })
}

/// Executes a command about the retention of dropped objects.
pub(super) async fn execute_retention(
    lake: &RemoteWarehouse<'_>,
    command: &RetentionCommand,
) -> Result<()> {
    let path = lake.management("retention");
    let answer = match command {
        RetentionCommand::Show => lake.get(&path).await?,
        RetentionCommand::Set { time } => {
            lake.post(&path, &json!({"undrop-seconds": time.as_secs()})).await?
        }
        RetentionCommand::Reset => lake.post(&path, &json!({"undrop-seconds": null})).await?,
    };
    lake.show(&answer, || match answer["undrop-seconds"].as_u64().unwrap_or_default() {
        0 => "dropped tables are removed at once\n".to_owned(),
        seconds => {
            let time = span(seconds.saturating_mul(1000));
            format!("dropped tables can be restored for {time}\n")
        }
    })
}
