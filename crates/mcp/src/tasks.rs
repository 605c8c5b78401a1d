//! Tasks (`io.modelcontextprotocol/tasks`): a long-running program is an execution of the durable
//! queue, whose id the client uses to poll for its result, on any server and after a restart.
//!
//! # References
//! - <https://modelcontextprotocol.github.io/ext-tasks/specification/2026-07-28/tasks.html>

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::message::{INTERNAL_ERROR, McpError};
use crate::native::{NativeApi, NativeError};
use crate::offer::{McpOutcome, McpReply};
use crate::tools::{ToolResult, code};

/// Name of the extension.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Time after which a running program becomes a task. The result of a shorter one is returned
/// directly: a client that polls would learn of it later.
const TASK_AFTER: Duration = Duration::from_secs(2);

/// Polling interval for clients, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;

/// Longest id of an execution, in bytes.
const ID_BYTES_MAX: usize = 64;

/// Runs a program by the queue. Returns its result if it finishes soon, otherwise a task.
pub(crate) async fn run_code(api: &NativeApi, args: Map<String, Value>) -> McpOutcome {
    let failed = |result: ToolResult| Ok(McpReply::Complete(result.into_json()));
    let body = match code::request(args) {
        Ok(body) => body,
        Err(result) => return failed(result),
    };
    let queued = match api.json(Method::POST, "/v1/executions", Some(&body)).await {
        Ok(queued) => queued,
        Err(error) => return failed(error.into()),
    };
    let id = queued["id"].as_str().unwrap_or_default();
    let path = format!("/v1/executions/{id}?wait=true");
    let ended = tokio::time::timeout(TASK_AFTER, api.json(Method::GET, &path, None)).await;
    match ended {
        Ok(Ok(record)) if record["state"] == "finished" => {
            Ok(McpReply::Complete(code::tool_result(record["result"].clone()).into_json()))
        }
        Ok(Ok(record)) => Ok(McpReply::Task(created(&record))),
        // It is queued, regardless of the failed poll.
        Ok(Err(_)) | Err(_) => Ok(McpReply::Task(created(&queued))),
    }
}

/// Handles `tasks/get`, `tasks/update` and `tasks/cancel`.
pub(crate) async fn request(api: &NativeApi, method: &str, id: &str) -> McpOutcome {
    let is_id = id.strip_prefix("ex_").is_some_and(|rest| {
        rest.len() <= ID_BYTES_MAX && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    if !is_id {
        return Err(unknown(id));
    }
    let path = format!("/v1/executions/{id}");
    let failed = |error: NativeError| match error.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => unknown(id),
        StatusCode::FORBIDDEN => McpError::params(error.message),
        _ => McpError::new(INTERNAL_ERROR, error.message),
    };
    let result = match method {
        "tasks/get" => detailed(api.json(Method::GET, &path, None).await.map_err(failed)?),
        "tasks/cancel" => match api.json(Method::DELETE, &path, None).await {
            // A finished execution cannot be cancelled, which is no error here.
            Err(error) if error.status != StatusCode::CONFLICT => return Err(failed(error)),
            Ok(_) | Err(_) => json!({}),
        },
        // No task asks its client anything: updates of an existing task are accepted and ignored.
        _ => {
            api.json(Method::GET, &path, None).await.map_err(failed)?;
            json!({})
        }
    };
    Ok(McpReply::Complete(result))
}

fn unknown(id: &str) -> McpError {
    let id: String = id.chars().take(ID_BYTES_MAX).collect();
    McpError::params(format!("unknown task \"{id}\""))
}

/// Returns the task of a record of an execution.
fn task(record: &Value) -> Map<String, Value> {
    let status = match record["state"].as_str().unwrap_or_default() {
        "finished" => "completed",
        "cancelled" => "cancelled",
        "dead" | "expired" => "failed",
        _ => "working",
    };
    let text = |name: &str| record[name].as_str();
    let changed = text("finished_at").or_else(|| text("started_at")).or_else(|| text("created_at"));
    let mut task = Map::from_iter([
        ("taskId".to_owned(), record["id"].clone()),
        ("status".to_owned(), json!(status)),
        ("createdAt".to_owned(), record["created_at"].clone()),
        ("lastUpdatedAt".to_owned(), json!(changed)),
        // The retention of a result is a setting, and counts from its end.
        ("ttlMs".to_owned(), Value::Null),
        ("pollIntervalMs".to_owned(), json!(POLL_INTERVAL_MS)),
    ]);
    if let Some(message) = text("message") {
        task.insert("statusMessage".to_owned(), json!(message));
    }
    task
}

/// Returns the response that turns a call into a task.
fn created(record: &Value) -> Value {
    let mut task = task(record);
    task.insert("resultType".to_owned(), json!("task"));
    Value::Object(task)
}

/// Returns the response to `tasks/get`.
fn detailed(mut record: Value) -> Value {
    let mut task = task(&record);
    match task["status"].as_str() {
        Some("completed") => {
            let mut result = code::tool_result(record["result"].take()).into_json();
            if let Some(fields) = result.as_object_mut() {
                fields.insert("resultType".to_owned(), json!("complete"));
            }
            task.insert("result".to_owned(), result);
        }
        Some("failed") => {
            let state = record["state"].as_str().unwrap_or_default();
            let message = record["message"].as_str();
            let message =
                message.map_or_else(|| format!("the execution is {state}"), str::to_owned);
            let error = json!({ "code": INTERNAL_ERROR, "message": message });
            task.insert("error".to_owned(), error);
        }
        _ => {}
    }
    Value::Object(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_execution_is_a_task() {
        for (state, status, field) in [
            ("queued", "working", None),
            ("running", "working", None),
            ("finished", "completed", Some("result")),
            ("dead", "failed", Some("error")),
            ("expired", "failed", Some("error")),
            ("cancelled", "cancelled", None),
        ] {
            let record = json!({
                "id": "ex_1", "state": state, "created_at": "2026-11-28T10:00:00Z",
                "result": { "verdict": "OK", "stdout": "a", "stderr": "", "wall_ms": 1 },
            });
            let task = detailed(record.clone());
            assert_eq!((&task["taskId"], &task["status"]), (&json!("ex_1"), &json!(status)));
            for name in ["result", "error"] {
                assert_eq!(task.get(name).is_some(), field == Some(name), "{state}: {task}");
            }
            let task = created(&record);
            assert_eq!(task["resultType"], "task");
            assert!(task.get("result").is_none() && task["lastUpdatedAt"].is_string(), "{task}");
        }
    }
}
