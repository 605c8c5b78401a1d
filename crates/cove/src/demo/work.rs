//! The demo's agent, sessions and executions.

use anyhow::{Context as _, Result};
use axum::http::Method;
use serde_json::{Value, json};

use super::{DEMO, DemoOutcome, counted, delete, get_if_present, items, mariadb, text};
use crate::remote::Remote;

/// Sessions per page of the list: more than the demo creates.
const PAGE: usize = 200;
/// The agent: an example of the documentation, which replies without a model.
const AGENT: &str = include_str!("../../../../examples/agents/echo/agent.py");
/// Files of the session with files: a report, and the program that created it.
const FILES: [(&str, &str); 3] = [
    (
        "README.md",
        "# Files of a demo session\n\nEdit one here and save; run `python3 src/primes.py`.\n",
    ),
    (
        "src/primes.py",
        "limit = 50\nprint([n for n in range(2, limit) if all(n % d for d in range(2, n))])\n",
    ),
    ("data/sales.csv", "day,city,total\n2026-11-01,Lima,120\n2026-11-02,Oslo,80\n"),
];
/// Runs as long as its session, and leaves visible output.
const TICKER: &str = "nohup sh -c 'while :; do date >> ticks.log; sleep 2; done' >/dev/null 2>&1 &";
/// Cells, each of which uses definitions of the previous one.
const CELLS: [&str; 3] = [
    "prices = {'tea': 3.5, 'salt': 1.2, 'rice': 2.0}",
    "total = sum(prices.values())\ntotal",
    "print(max(prices, key=prices.get), 'costs most')",
];

/// Deploys the agent.
pub(super) async fn agent(server: &Remote) -> Result<DemoOutcome> {
    if get_if_present(server, &format!("/v1/agents/{DEMO}")).await?.is_some() {
        return Ok(DemoOutcome::Present(format!("{DEMO} is there")));
    }
    let body = json!({
        "name": DEMO, "description": "repeats what it receives; created by `cove demo`",
        "runtime": {"type": "command", "argv": ["python3", "agent.py"]},
        "files": [{"path": "agent.py", "content": AGENT}],
    });
    server.ask_with(Method::POST, "/v1/agents", Some(&body)).await?;
    Ok(DemoOutcome::Made(format!("{DEMO}, which answers without a model")))
}

pub(super) async fn remove_agent(server: &Remote) -> Result<DemoOutcome> {
    let was_there = delete(server, &format!("/v1/agents/{DEMO}")).await?;
    Ok(DemoOutcome::Removed(if was_there { DEMO } else { "there was none" }.to_owned()))
}

/// Returns the demo's sessions that have not ended: all, or those with a purpose.
pub(super) async fn sessions_of(server: &Remote, purpose: Option<&str>) -> Result<Vec<String>> {
    let purpose = purpose.map(|it| format!("&metadata.purpose={it}")).unwrap_or_default();
    let states = "starting,active,paused,stopped,error";
    let path = format!("/v1/sessions?limit={PAGE}&state={states}&metadata.demo={DEMO}{purpose}");
    let list = server.ask_with(Method::GET, &path, None).await?;
    items(&list, "sessions").iter().map(|it| Ok(text(it, "id")?.to_owned())).collect()
}

/// Creates a session for a purpose, and fills it. Deletes the session if that fails.
async fn session(
    server: &Remote,
    purpose: &str,
    more: Value,
    fill: impl AsyncFnOnce(&str) -> Result<String>,
) -> Result<DemoOutcome> {
    if let Some(id) = sessions_of(server, Some(purpose)).await?.first() {
        return Ok(DemoOutcome::Present(id.clone()));
    }
    let mut body = json!({"metadata": {"demo": DEMO, "purpose": purpose}});
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    let made = server.ask_with(Method::POST, "/v1/sessions", Some(&body)).await?;
    let id = text(&made, "id")?;
    match fill(id).await {
        Ok(what) => Ok(DemoOutcome::Made(format!("{id} {what}"))),
        Err(error) => {
            delete(server, &format!("/v1/sessions/{id}")).await?;
            Err(error)
        }
    }
}

/// Runs a command in a session. A failing command is an error.
pub(super) async fn command(server: &Remote, id: &str, line: &str) -> Result<String> {
    let body = json!({"command": line});
    let end =
        server.ask_with(Method::POST, &format!("/v1/sessions/{id}/exec"), Some(&body)).await?;
    let code = end["exit_code"].as_i64();
    let stderr = end["stderr"].as_str().unwrap_or_default().trim();
    anyhow::ensure!(code == Some(0), "`{line}` in session {id} failed: {stderr}");
    Ok(end["stdout"].as_str().unwrap_or_default().to_owned())
}

pub(super) async fn conversation(server: &Remote) -> Result<DemoOutcome> {
    let messages = ["hello", "what do you remember?"];
    session(server, "conversation", json!({"agent": DEMO}), async |id| {
        for content in messages {
            let path = format!("/v1/sessions/{id}/messages?wait=true");
            let body = json!({"content": content});
            let answer = server.ask_with(Method::POST, &path, Some(&body)).await?;
            let is_error = answer["is_error"] == json!(true);
            let why = answer["error"].as_str().unwrap_or("it says that it failed");
            anyhow::ensure!(
                !is_error,
                "the agent {DEMO} does not answer: {why}; is python3 there?"
            );
        }
        Ok(format!("with {} messages and answers", messages.len()))
    })
    .await
}

pub(super) async fn files(server: &Remote) -> Result<DemoOutcome> {
    session(server, "files", json!({}), async |id| {
        for (path, content) in FILES {
            let mut request =
                server.request(Method::PUT, &format!("/v1/sessions/{id}/files/{path}"));
            request.body = content.into();
            server.ask_maybe(request).await?;
        }
        Ok(format!("with {}", counted(FILES.len(), "file")))
    })
    .await
}

pub(super) async fn process(server: &Remote) -> Result<DemoOutcome> {
    session(server, "process", json!({}), async |id| {
        command(server, id, TICKER).await?;
        Ok("with a program that writes ticks.log".to_owned())
    })
    .await
}

pub(super) async fn paused(server: &Remote) -> Result<DemoOutcome> {
    session(server, "paused", json!({}), async |id| {
        command(server, id, "echo 'written before the pause' > note.txt").await?;
        server.ask_with(Method::POST, &format!("/v1/sessions/{id}/pause"), None).await?;
        Ok("paused; `cove session resume` goes on".to_owned())
    })
    .await
}

pub(super) async fn cells(server: &Remote) -> Result<DemoOutcome> {
    session(server, "cells", json!({}), async |id| {
        let contexts = format!("/v1/sessions/{id}/contexts");
        let body = json!({"language": "python"});
        let context = server.ask_with(Method::POST, &contexts, Some(&body)).await?;
        let path = format!("{contexts}/{}/execute", text(&context, "id")?);
        for code in CELLS {
            let report = server.ask_with(Method::POST, &path, Some(&json!({"code": code}))).await?;
            anyhow::ensure!(report["error"].is_null(), "a cell failed: {}", report["error"]);
        }
        Ok(format!("with {} of Python", counted(CELLS.len(), "cell")))
    })
    .await
}

/// Creates a session that reaches the demo's databases without a password.
pub(super) async fn database_session(server: &Remote) -> Result<DemoOutcome> {
    let (mut grants, mut clients) = (Vec::new(), Vec::new());
    for (kind, tenant, client, sql) in [
        ("postgres", DEMO, "psql", "SELECT current_database()"),
        ("mysql", mariadb::TENANT, "mariadb", "SELECT database()"),
    ] {
        if get_if_present(server, &format!("/v1/tenants/{tenant}")).await?.is_some() {
            grants.push(json!({"kind": kind, "tenant": tenant, "access": "read_write"}));
            clients.push((format!("{kind}:{tenant}"), client, sql));
        }
    }
    if grants.is_empty() {
        let why = "there is no tenant for it, see the steps `database` and `mariadb`";
        return Ok(DemoOutcome::Skipped(why.to_owned()));
    }
    session(server, "database", json!({"grants": grants}), async |id| {
        let mut reached = Vec::new();
        for (grant, client, sql) in &clients {
            let path = format!("/v1/sessions/{id}/grants/{grant}/query");
            let body = json!({"sql": sql});
            let answer = server.ask_with(Method::POST, &path, Some(&body)).await?;
            let database = answer["rows"][0][0].as_str();
            let database = database.with_context(|| format!("{grant} answers with no row"))?;
            reached.push(format!("`{client}` reaches {database}"));
        }
        Ok(format!("where {} without a password", reached.join(" and ")))
    })
    .await
}

pub(super) async fn remove_sessions(server: &Remote) -> Result<DemoOutcome> {
    let all = sessions_of(server, None).await?;
    for id in &all {
        delete(server, &format!("/v1/sessions/{id}")).await?;
    }
    Ok(DemoOutcome::Removed(format!("{} ended", counted(all.len(), "session"))))
}

/// Returns requests with different outcomes, and the verdict of each.
pub(super) fn programs() -> Vec<(&'static str, Value)> {
    let python = |source: &str| json!({"language": "python", "source": source});
    let mut right = python("print(sum(map(int, input().split())))");
    right["tests"] = json!([
        {"name": "small", "stdin": "1 2\n", "expected": "3\n"},
        {"name": "large", "stdin": "1000000 2\n", "expected": "1000002\n"},
    ]);
    let mut wrong = right.clone();
    wrong["source"] = "a, b = map(int, input().split())\nprint(a - b)".into();
    let mut endless = python("while True: pass");
    endless["limits"] = json!({"cpu_ms": 300});
    let mut greedy = python("kept = []\nwhile True: kept.append(bytearray(1 << 20))");
    greedy["limits"] = json!({"memory_bytes": 64 << 20});
    let mut loud = python("while True: print('x' * 1000)");
    loud["limits"] = json!({"output_bytes": 4096});
    vec![
        ("OK", python("print('hello from a demo')")),
        ("OK", right),
        ("WA", wrong),
        ("RE", python("print(1 / 0)")),
        ("TLE", endless),
        ("MLE", greedy),
        ("OLE", loud),
        ("SG", python("import os\nos.abort()")),
        ("CE", json!({"language": "c", "source": "int main(void) { return nothing; }\n"})),
    ]
}

/// Waiting programs: more than a server runs at once, for long enough to look at them.
const WAITING: usize = 12;
const WAITING_SOURCE: &str = "import time\ntime.sleep(8)\nprint('waited')";
/// Priority of the executions that others overtake.
const LOW_PRIORITY: i64 = -5;

async fn labelled(server: &Remote, label: &str, state: &str) -> Result<Vec<Value>> {
    let path = format!("/v1/executions?limit=100&label={label}{state}");
    let list = server.ask_with(Method::GET, &path, None).await?;
    Ok(items(&list, "executions").to_vec())
}

/// Submits programs, and waits for those with a known verdict.
pub(super) async fn executions(server: &Remote) -> Result<DemoOutcome> {
    let there = labelled(server, DEMO, "").await?;
    if !there.is_empty() {
        return Ok(DemoOutcome::Present(format!("{} there", counted(there.len(), "record"))));
    }
    let (mut submitted, mut refused) = (Vec::new(), Vec::new());
    for (expected, mut body) in programs() {
        body["label"] = DEMO.into();
        match server.ask_with(Method::POST, "/v1/executions", Some(&body)).await {
            Ok(record) => submitted.push((expected, text(&record, "id")?.to_owned())),
            Err(failure) => refused.push(format!("{expected}: {failure}")),
        }
    }
    let mut verdicts = Vec::new();
    for (expected, id) in &submitted {
        let path = format!("/v1/executions/{id}?wait=true");
        let record = server.ask_with(Method::GET, &path, None).await?;
        let verdict = record["result"]["verdict"].as_str().unwrap_or("no verdict");
        match verdict == *expected {
            true => verdicts.push(verdict.to_owned()),
            false => refused.push(format!("{expected}: {id} ended with {verdict}")),
        }
    }
    let low = json!({
        "language": "python", "source": WAITING_SOURCE, "label": DEMO, "priority": LOW_PRIORITY,
    });
    let batch = json!({"executions": vec![low; WAITING]});
    server.ask_with(Method::POST, "/v1/executions/batch", Some(&batch)).await?;
    anyhow::ensure!(!verdicts.is_empty(), "no program ended as it should: {}", refused.join("; "));
    let lacking = match refused.is_empty() {
        true => String::new(),
        false => format!("; not {}", refused.join("; ")),
    };
    Ok(DemoOutcome::Made(format!("{}, and {WAITING} that wait{lacking}", verdicts.join(" "))))
}

pub(super) async fn remove_executions(server: &Remote) -> Result<DemoOutcome> {
    let waiting = cancel_labelled(server, DEMO).await?;
    let cancelled = counted(waiting, "execution");
    Ok(DemoOutcome::Removed(format!("{cancelled} cancelled; records of others go by age")))
}

/// Cancels executions of a label that wait or run; returns their number.
pub(super) async fn cancel_labelled(server: &Remote, label: &str) -> Result<usize> {
    let waiting = labelled(server, label, "&state=queued,running").await?;
    for record in &waiting {
        let id = text(record, "id").context("a record without an id")?;
        // An execution that has ended meanwhile is a conflict, which is fine.
        let cancelled = delete(server, &format!("/v1/executions/{id}")).await;
        if let Err(failure) = cancelled {
            let is_over = failure.status == Some(axum::http::StatusCode::CONFLICT);
            anyhow::ensure!(is_over, "{failure}");
        }
    }
    Ok(waiting.len())
}
