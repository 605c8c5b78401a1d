//! `cove catalog undrop` and `cove catalog changes`.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use axum::http::Method;
use node::clock;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::lake::{RemoteWarehouse, items};
use super::{names, text};
use crate::agent::print_line;
use crate::cli::{ChangesArgs, UndropCommand};
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::events::read;
use crate::remote::{FailureKind, Remote, RemoteFailure};
use crate::usage_error::UsageError;
use crate::values::columns;

/// Minimum and maximum wait between two connection attempts.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Maximum time without a server: a restart with all its checks takes less.
const AWAY_MAX: Duration = Duration::from_secs(120);
/// Parameter value that requests new changes only.
const LATEST: &str = "latest";

/// Executes a command about dropped objects.
pub(super) async fn execute_undrop(
    lake: &RemoteWarehouse<'_>,
    command: &UndropCommand,
) -> Result<()> {
    match command {
        UndropCommand::List { namespace } => {
            let joined = namespace.as_ref().map(|it| it.levels().join("\u{1f}"));
            let query = joined.map(|it| format!("?namespace={}", escaped(&it)));
            let path = lake.management(&format!("dropped{}", query.unwrap_or_default()));
            let answer = lake.get(&path).await?;
            lake.show(&answer, || listed(&answer))
        }
        UndropCommand::Restore { id, name } => {
            let mut body = json!({"id": id});
            if let Some(name) = name {
                let (namespace, name) = name.split();
                body["namespace"] = json!(namespace);
                body["name"] = json!(name);
            }
            let answer = lake.post(&lake.management("undrop"), &body).await?;
            lake.show(&answer, || format!("{} is back\n", named(&answer)))
        }
        UndropCommand::Purge { ids } => {
            for id in ids {
                let path = lake.management(&format!("dropped/{}", escaped(id)));
                let answer = lake.delete(&path).await?;
                lake.show(&answer, || format!("{id} is gone for good\n"))?;
            }
            Ok(())
        }
    }
}

fn named(it: &Value) -> String {
    let levels = items(it, "namespace").iter().filter_map(Value::as_str);
    names::dotted(levels.chain(it["name"].as_str()))
}

fn listed(answer: &Value) -> String {
    let mut rows = vec![["id", "kind", "name", "dropped", "goes"].map(str::to_owned)];
    let time = |it: &Value| it.as_u64().map(clock::rfc3339_of_ms).unwrap_or_default();
    for it in items(answer, "dropped") {
        let goes = match it["is-purging"] == json!(true) {
            true => "now".to_owned(),
            false => time(&it["purge-at-ms"]),
        };
        rows.push([
            text(&it["id"]),
            text(&it["type"]),
            named(it),
            time(&it["dropped-at-ms"]),
            goes,
        ]);
    }
    columns(&rows, "")
}

/// Shows past changes, and with `--follow` also new ones as they are made.
pub(super) async fn changes(
    server: &Remote,
    lake: &RemoteWarehouse<'_>,
    args: &ChangesArgs,
    is_json: bool,
) -> Result<()> {
    let mut after = args.after.clone();
    let mut left = args.limit.unwrap_or(u64::MAX);
    // `latest` requests no past changes.
    while left > 0 && !(args.follow && after.as_deref() == Some(LATEST)) {
        let page = lake.get(&lake.management(&query(args, after.as_deref()))).await?;
        for change in items(&page, "changes").iter().take(usize::try_from(left)?) {
            show(change, is_json)?;
            left -= 1;
        }
        after = Some(text(&page["next-after"]));
        if page["more"] != json!(true) {
            break;
        }
    }
    if !args.follow || left == 0 {
        return Ok(());
    }
    follow(server.clone(), lake, args, after, left, is_json).await
}

async fn follow(
    mut server: Remote,
    lake: &RemoteWarehouse<'_>,
    args: &ChangesArgs,
    mut after: Option<String>,
    mut left: u64,
    is_json: bool,
) -> Result<()> {
    let (mut lost, mut back_off) = (None, BACK_OFF_MIN);
    loop {
        let path = lake.management(&query(args, after.as_deref()));
        let end = match server.events(server.request(Method::GET, &path)).await {
            Err(failure) => Err(failure),
            Ok(mut events) => loop {
                let change = match events.next_text().await {
                    Ok(Some(text)) => read::<Value>(&text)?,
                    Ok(None) => break Ok(()),
                    Err(failure) => break Err(failure),
                };
                let Some(seq) = change["seq"].as_i64() else {
                    return Err(UsageError(text(&change["message"])).into());
                };
                (lost, back_off) = (None, BACK_OFF_MIN);
                after = Some(seq.to_string());
                show(&change, is_json)?;
                left -= 1;
                if left == 0 {
                    return Ok(());
                }
            },
        };
        // A regular end of the response is no failure: the server ends streams to authorize readers
        // again.
        if let Err(failure) = end {
            let since = *lost.get_or_insert_with(|| {
                complain(&format!("{failure}; trying again"));
                clock::now()
            });
            if failure.fault != FailureKind::Lost || clock::now() - since > AWAY_MAX {
                return Err(RemoteFailure::into(failure));
            }
            server.rediscover();
        }
        sleep(back_off).await;
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

fn query(args: &ChangesArgs, after: Option<&str>) -> String {
    let mut all = Vec::new();
    if let Some(after) = after {
        all.push(format!("after={}", escaped(after)));
    }
    let namespace = match (&args.namespace, &args.table) {
        (_, Some(table)) => {
            let (namespace, name) = table.split();
            all.push(format!("table={}", escaped(name)));
            Some(namespace)
        }
        (Some(namespace), None) => Some(namespace.levels()),
        (None, None) => None,
    };
    if let Some(levels) = namespace {
        all.push(format!("namespace={}", escaped(&levels.join("\u{1f}"))));
    }
    format!("changes?{}", all.join("&"))
}

/// Prints a change on one line.
fn show(change: &Value, is_json: bool) -> Result<()> {
    if is_json {
        return print_line(change);
    }
    let to = change.get("to").map(|it| format!(" -> {}", named(it))).unwrap_or_default();
    let version = change.get("version").map(|it| format!(" version {}", text(it)));
    let by = change.get("principal").map(|it| format!(" by {}", text(it)));
    let line = format!(
        "{:>8}  {}  {:<18} {}{to}{}{}",
        text(&change["seq"]),
        text(&change["at"]),
        text(&change["action"]),
        named(change),
        version.unwrap_or_default(),
        by.unwrap_or_default()
    );
    Ok(writeln!(io::stdout(), "{}", line.trim_end())?)
}
