//! The tool for programs in the background, on the durable queue.

use std::fmt::Write as _;

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolOutcome, ToolResult, code, parse_arguments};
use crate::native::NativeApi;

/// Most jobs in a list.
const LISTED_MAX: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobAction {
    Submit,
    Get,
    Cancel,
    List,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManageJob {
    action: JobAction,
    job: Option<String>,
    run: Option<Map<String, Value>>,
    #[serde(default)]
    wait: bool,
}

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["action"],
        "properties": {
            "action": {
                "type": "string",
                "enum": ["submit", "get", "cancel", "list"],
                "description": "What to do",
            },
            "run": { "type": "object", "description": "For submit: the arguments of run_code" },
            "job": { "type": "string", "description": "Its id, for get and cancel" },
            "wait": { "type": "boolean", "description": "For get: answer when it has ended" },
        },
    })
}

pub(super) async fn manage(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: ManageJob = parse_arguments(args)?;
    let path = || match &args.job {
        Some(job) => job_path(job),
        None => Err(ToolResult::error("job is missing: the id of the job")),
    };
    let answer = match args.action {
        JobAction::Submit => {
            let run = args.run.ok_or_else(|| {
                ToolResult::error("run is missing: an object with the arguments of run_code")
            })?;
            let body = code::request(run)?;
            api.json(Method::POST, "/v1/executions", Some(&body)).await
        }
        JobAction::Get => {
            let path = format!("{}?wait={}", path()?, args.wait);
            api.json(Method::GET, &path, None).await
        }
        JobAction::Cancel => api.json(Method::DELETE, &path()?, None).await,
        JobAction::List => {
            let path = format!("/v1/executions?limit={LISTED_MAX}");
            let found = api.json(Method::GET, &path, None).await.map_err(ToolResult::from)?;
            return Ok(listed(&found));
        }
    };
    Ok(tool_result(answer.map_err(ToolResult::from)?))
}

/// Returns the path of a job, after checking its id.
fn job_path(job: &str) -> Result<String, ToolResult> {
    match crate::content::is_session_id(job) {
        true => Ok(format!("/v1/executions/{job}")),
        false => Err(ToolResult::error(&format!(
            "\"{job}\" is not the id of a job; submit returns one, list shows them"
        ))),
    }
}

/// Returns a job for a model, with its result.
fn tool_result(mut job: Value) -> ToolResult {
    let line = line(&job);
    let result = job.get_mut("result").map(Value::take).filter(|result| !result.is_null());
    let Some(result) = result else {
        return ToolResult::new(&line, job);
    };
    let mut reply = code::tool_result(result);
    if let (Some(fields), Some(result)) = (job.as_object_mut(), reply.structured.take()) {
        fields.insert("result".to_owned(), result);
    }
    reply.content.insert(0, crate::content::text(&line));
    reply.structured = Some(job);
    reply
}

/// Formats a job in one line.
fn line(job: &Value) -> String {
    let text = |name: &str| job[name].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {}, {}", text("id"), text("state"), text("language"));
    if let Some(position) = job["position"].as_u64() {
        let _infallible = write!(line, ", {position} before it");
    }
    if let Some(message) = job["message"].as_str() {
        let _infallible = write!(line, ": {message}");
    }
    line
}

fn listed(found: &Value) -> ToolResult {
    let jobs = found["executions"].as_array().cloned().unwrap_or_default();
    let lines: Vec<String> = jobs.iter().map(line).collect();
    let text = match lines.is_empty() {
        true => "no jobs; submit makes one".to_owned(),
        false => lines.join("\n"),
    };
    ToolResult::new(&text, json!({ "jobs": jobs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_its_state_and_then_its_result() {
        let queued = json!({ "id": "ex_1", "state": "queued", "language": "py", "position": 2 });
        let result = tool_result(queued);
        assert_eq!(result.content[0]["text"], "ex_1 queued, py, 2 before it");
        let result = tool_result(json!({
            "id": "ex_1", "state": "finished", "language": "py",
            "result": { "verdict": "OK", "exit_code": 0, "stdout": "42\n", "wall_ms": 5.0,
                "stages": [] },
        }));
        assert_eq!(result.content[0]["text"], "ex_1 finished, py");
        assert_eq!(result.content[1]["text"], "42\n[verdict OK, exit code 0, 5 ms]");
        assert_eq!(result.structured.unwrap()["result"]["verdict"], "OK");
    }

    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(job_path("ex_1").unwrap(), "/v1/executions/ex_1");
        for wrong in ["", "ex_1/../sessions", "batch?x", "a b"] {
            assert!(job_path(wrong).is_err(), "{wrong}");
        }
    }
}
