//! Requests to the HTTP interface: executions, messages to agents, commits and scans of tables, and
//! requests that a sandbox sends through its grants.

use anyhow::{Context as _, Result};
use axum::http::Method;
use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};
use serde_json::{Value, json};

use super::super::lake::DemoLake;
use super::super::work::{command, programs, sessions_of};
use super::super::{DEMO, delete, items, text};
use super::meter::LoadMeter;
use super::{LOAD, PURPOSE, lacks};
use crate::remote::Remote;

/// Maximum number of executions that are awaited concurrently.
const EXECUTIONS_MAX: usize = 4;
/// Sessions with an agent.
const AGENTS: usize = 2;
/// Table that commits change.
const TABLE: &str = "load";
/// Languages whose programs end with `OK` besides those of the demo, and the programs.
const LANGUAGES: [(&str, &str); 3] = [
    ("bash", "echo $((6 * 7))"),
    ("javascript", "console.log(6 * 7)"),
    ("c", "#include <stdio.h>\nint main(void) { puts(\"42\"); }\n"),
];
/// Verdicts of the demo's programs that take little time.
const QUICK: [&str; 5] = ["OK", "WA", "RE", "OLE", "CE"];
/// Sends a request to the catalog through a grant, from a sandbox.
const ASK_CATALOG: &str = "python3 -c \"from urllib import request; \
     request.urlopen('http://localhost:8181/v1/config').read()\"";

pub(super) async fn lacks_agent(server: &Remote) -> Result<Option<String>> {
    Ok(lacks(server, &format!("/v1/agents/{DEMO}"), &format!("agent {DEMO}")).await?)
}

pub(super) async fn lacks_tenant(server: &Remote) -> Result<Option<String>> {
    Ok(lacks(server, &format!("/v1/tenants/{DEMO}"), &format!("tenant {DEMO}")).await?)
}

pub(super) async fn lacks_tables(server: &Remote) -> Result<Option<String>> {
    let lake = DemoLake::find(server).await?;
    let path = lake.namespace(&["demo"], "/tables/orders");
    if let Some(why) = lacks(server, &path, "table demo.orders").await? {
        return Ok(Some(why));
    }
    // A namespace that the demo did not create is reported by its error.
    Ok(lake.has(&["demo"]).await.err().map(|error| format!("{error:#}")))
}

/// Runs one operation after the other, at the meter's pace, until it is dropped.
async fn repeat(meter: &LoadMeter, act: impl AsyncFn(usize) -> Result<()>) {
    let mut number = 0;
    loop {
        meter.pace().await;
        meter.measure(act(number)).await;
        number = number.wrapping_add(1);
    }
}

/// Runs programs with several languages and verdicts, alternating between direct and queued
/// requests.
pub(super) async fn executions<'a>(
    server: &'a Remote,
    meter: &'a LoadMeter,
) -> Result<LocalBoxFuture<'a, ()>> {
    let list = server.ask_with(Method::GET, "/v1/languages", None).await?;
    let has = |name: &str| {
        let mut all = items(&list, "languages").iter();
        all.any(|it| it["name"] == name && it["available"] == json!(true))
    };
    let own = programs().into_iter().filter(|(verdict, body)| {
        QUICK.contains(verdict) && body["language"].as_str().is_some_and(has)
    });
    let more = LANGUAGES.into_iter().filter(|(language, _)| has(language));
    let more =
        more.map(|(language, source)| ("OK", json!({"language": language, "source": source})));
    let mut all: Vec<(&'static str, Value)> = own.chain(more).collect();
    anyhow::ensure!(!all.is_empty(), "the server has no language that the demo has programs of");
    for (_, body) in &mut all {
        body["label"] = LOAD.into();
    }
    let work = async move {
        let all = &all;
        let one = |worker: usize| {
            repeat(meter, async move |number: usize| {
                let (expected, body) = &all[(worker + number) % all.len()];
                execute(server, expected, body, number.is_multiple_of(2)).await
            })
        };
        join_all((0..EXECUTIONS_MAX).map(one)).await;
    };
    Ok(work.boxed_local())
}

/// Runs a program, and checks its verdict.
async fn execute(server: &Remote, expected: &str, body: &Value, is_queued: bool) -> Result<()> {
    let verdict = if is_queued {
        let record = server.ask_with(Method::POST, "/v1/executions", Some(body)).await?;
        let path = format!("/v1/executions/{}?wait=true", text(&record, "id")?);
        server.ask_with(Method::GET, &path, None).await?["result"]["verdict"].take()
    } else {
        let path = "/v1/executions?wait=true";
        server.ask_with(Method::POST, path, Some(body)).await?["verdict"].take()
    };
    anyhow::ensure!(verdict == expected, "a program ended with {verdict} in place of {expected}");
    Ok(())
}

/// Creates a session whose metadata marks it as part of the load.
async fn session(server: &Remote, mut body: Value) -> Result<String> {
    body["metadata"] = json!({"demo": DEMO, "purpose": PURPOSE});
    let made = server.ask_with(Method::POST, "/v1/sessions", Some(&body)).await?;
    Ok(text(&made, "id")?.to_owned())
}

/// Sends messages to sessions with the demo's agent.
pub(super) async fn sessions<'a>(
    server: &'a Remote,
    meter: &'a LoadMeter,
) -> Result<LocalBoxFuture<'a, ()>> {
    let mut ids = Vec::new();
    for _ in 0..AGENTS {
        ids.push(session(server, json!({"agent": DEMO})).await?);
    }
    let work = async move {
        let talks = ids.iter().map(|id| {
            repeat(meter, async move |number: usize| {
                let path = format!("/v1/sessions/{id}/messages?wait=true");
                let body = json!({"content": format!("message {number}")});
                let answer = server.ask_with(Method::POST, &path, Some(&body)).await?;
                anyhow::ensure!(answer["is_error"] != json!(true), "the agent failed");
                Ok(())
            })
        });
        join_all(talks).await;
    };
    Ok(work.boxed_local())
}

/// Commits to the load's own table, and planned scans of the demo's orders.
pub(super) async fn catalog<'a>(
    server: &'a Remote,
    meter: &'a LoadMeter,
) -> Result<LocalBoxFuture<'a, ()>> {
    remove_table(server).await?;
    let lake = DemoLake::find(server).await?;
    let table = lake.create_empty(TABLE).await?;
    let scan = lake.namespace(&["demo"], "/tables/orders/plan");
    let work = async move {
        let (table, scan) = (&table, &scan);
        repeat(meter, async move |number: usize| {
            if number.is_multiple_of(2) {
                let update = json!({"action": "set-properties",
                    "updates": {"commits": number.to_string()}});
                let body = json!({"requirements": [], "updates": [update]});
                server.ask_with(Method::POST, table, Some(&body)).await?;
                return Ok(());
            }
            let filter = json!({"type": "eq", "term": "id", "value": number % 600 + 1});
            let plan =
                server.ask_with(Method::POST, scan, Some(&json!({"filter": filter}))).await?;
            let state = &plan["status"];
            anyhow::ensure!(state == "completed", "a scan is {state} in place of completed");
            Ok(())
        })
        .await;
    };
    Ok(work.boxed_local())
}

/// Statements and requests of a session with grants for the demo's database and tables.
pub(super) async fn gateway<'a>(
    server: &'a Remote,
    meter: &'a LoadMeter,
) -> Result<LocalBoxFuture<'a, ()>> {
    let mut grants = vec![json!({"kind": "postgres", "tenant": DEMO, "access": "read_only"})];
    let has_tables = lacks_tables(server).await?.is_none();
    if has_tables {
        let warehouse = DemoLake::find(server).await?.warehouse();
        grants.push(json!({"kind": "catalog", "warehouse": warehouse, "namespaces": ["demo"],
            "access": "read_only"}));
    }
    let id = session(server, json!({"grants": grants})).await?;
    let work = async move {
        let (id, query) = (&id, &format!("/v1/sessions/{id}/grants/postgres:{DEMO}/query"));
        repeat(meter, async move |number: usize| {
            if has_tables && number % 2 == 1 {
                return command(server, id, ASK_CATALOG).await.map(drop);
            }
            let sql = "SELECT count(*), sum(total)::text FROM orders WHERE customer = $1";
            let body = json!({"sql": sql, "parameters": [number % 40 + 1]});
            let answer = server.ask_with(Method::POST, query, Some(&body)).await?;
            answer["rows"][0][0].as_i64().context("the database answers with no row").map(drop)
        })
        .await;
    };
    Ok(work.boxed_local())
}

/// Ends the sessions of a load.
pub(super) async fn remove_sessions(server: &Remote) -> Result<()> {
    for id in sessions_of(server, Some(PURPOSE)).await? {
        delete(server, &format!("/v1/sessions/{id}")).await?;
    }
    Ok(())
}

/// Drops the table of a load with its files.
pub(super) async fn remove_table(server: &Remote) -> Result<()> {
    let lake = DemoLake::find(server).await?;
    let table = lake.namespace(&["demo"], &format!("/tables/{TABLE}"));
    delete(server, &format!("{table}?purgeRequested=true")).await?;
    lake.purge_dropped(&["demo"], &[TABLE]).await
}
