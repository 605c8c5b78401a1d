//! Tools that manage sessions and run commands in them.

use std::fmt::Write as _;

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::code::milliseconds;
use super::{ToolOutcome, ToolResult, parse_arguments, session_path};
use crate::content;
use crate::native::NativeApi;

/// Most sessions in a list.
const LISTED_MAX: usize = 50;

/// Default time limit of a command, in seconds.
const COMMAND_SECONDS: f64 = 120.0;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SessionAction {
    Create,
    List,
    Get,
    Pause,
    End,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManageSession {
    action: SessionAction,
    session: Option<String>,
    agent: Option<String>,
    grants: Option<Vec<String>>,
}

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["action"],
        "properties": {
            "action": {
                "type": "string",
                "enum": ["create", "list", "get", "pause", "end"],
                "description": "What to do",
            },
            "session": { "type": "string", "description": "Its id, for get, pause and end" },
            "agent": {
                "type": "string",
                "description": "For create: an agent whose files and environment it has; none is empty",
            },
            "grants": {
                "type": "array",
                "items": { "type": "string" },
                "description": "For create: data it may read, postgres:NAME, mysql:NAME or \
                                catalog:NAME",
            },
        },
    })
}

pub(super) async fn manage(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: ManageSession = parse_arguments(args)?;
    let path = || match &args.session {
        Some(session) => session_path(session),
        None => Err(ToolResult::error("session is missing: the id of the session")),
    };
    let answer = match args.action {
        SessionAction::Create => {
            let mut body = Map::new();
            if let Some(agent) = &args.agent {
                body.insert("agent".to_owned(), json!(agent));
            }
            if let Some(grants) = &args.grants {
                let grants: Result<Vec<Value>, _> = grants.iter().map(|it| grant(it)).collect();
                body.insert("grants".to_owned(), json!(grants?));
            }
            let body = Value::Object(body);
            api.json(Method::POST, "/v1/sessions", Some(&body)).await
        }
        SessionAction::List => {
            let path = format!("/v1/sessions?limit={LISTED_MAX}");
            api.json(Method::GET, &path, None).await
        }
        SessionAction::Get => api.json(Method::GET, &path()?, None).await,
        SessionAction::Pause => {
            api.json(Method::POST, &format!("{}/pause", path()?), Some(&json!({}))).await
        }
        SessionAction::End => api.json(Method::DELETE, &path()?, None).await,
    };
    let answer = answer.map_err(ToolResult::from)?;
    Ok(match args.action {
        SessionAction::End => {
            let session = args.session.unwrap_or_default();
            ToolResult::new("ended", json!({ "id": session, "state": "ended" }))
        }
        SessionAction::List => {
            let sessions = answer["sessions"].as_array().map_or(&[][..], Vec::as_slice);
            let lines: Vec<String> = sessions.iter().map(line).collect();
            let text = match lines.is_empty() {
                true => "no sessions; create makes one".to_owned(),
                false => lines.join("\n"),
            };
            let sessions: Vec<Value> = sessions.iter().map(brief).collect();
            ToolResult::new(&text, json!({ "sessions": sessions }))
        }
        SessionAction::Create | SessionAction::Get | SessionAction::Pause => {
            ToolResult::new(&line(&answer), brief(&answer))
        }
    })
}

/// Parses the short form of a grant: `postgres:shop`. It is read-only; grants that may write are
/// requested over the native interface.
fn grant(label: &str) -> Result<Value, ToolResult> {
    let (kind, name) = label.split_once(':').unwrap_or((label, ""));
    let field = match kind {
        "postgres" | "mysql" => "tenant",
        "catalog" => "warehouse",
        _ => "",
    };
    if field.is_empty() || name.is_empty() || name.contains(':') {
        let message = format!(
            "\"{label}\" is not a grant; grants are postgres:NAME, mysql:NAME and catalog:NAME"
        );
        return Err(ToolResult::error(&message));
    }
    Ok(json!({ "kind": kind, field: name }))
}

/// Formats a session in one line.
fn line(session: &Value) -> String {
    let text = |name: &str| session[name].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {}", text("id"), text("state"));
    if let Some(agent) = session["agent"].as_str() {
        let _infallible = write!(line, ", agent {agent}");
    }
    let grants = data_grants(session);
    if !grants.is_empty() {
        let _infallible = write!(line, ", grants {}", grants.join(", "));
    }
    if let Some(message) = session["message"].as_str() {
        let _infallible = write!(line, ": {message}");
    }
    line
}

/// Returns the labels of a session's data grants; ports instead of ambiguous labels.
pub(super) fn data_grants(session: &Value) -> Vec<String> {
    let grants = session["grants"].as_array().map_or(&[][..], Vec::as_slice);
    let label = |grant: &Value| {
        let kind = grant["kind"].as_str()?;
        let name = grant["tenant"].as_str().or_else(|| grant["warehouse"].as_str())?;
        Some(format!("{kind}:{name}"))
    };
    let labels: Vec<String> = grants.iter().filter_map(label).collect();
    let names = grants.iter().filter_map(|grant| {
        let label = label(grant)?;
        let is_single = labels.iter().filter(|other| **other == label).count() == 1;
        match (is_single, grant["port"].as_u64()) {
            (false, Some(port)) => Some(port.to_string()),
            _ => Some(label),
        }
    });
    names.collect()
}

/// Returns the fields of a session that are useful for a model.
fn brief(session: &Value) -> Value {
    json!({
        "id": session["id"],
        "state": session["state"],
        "agent": session["agent"],
        "grants": data_grants(session),
        "created_at": session["created_at"],
        "last_active_at": session["last_active_at"],
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    session: String,
    command: String,
    cwd: Option<String>,
    stdin: Option<String>,
    timeout_s: Option<f64>,
}

pub(super) fn command_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["session", "command"],
        "properties": {
            "session": { "type": "string", "description": "Id of the session" },
            "command": { "type": "string", "description": "A line for /bin/sh" },
            "cwd": { "type": "string", "description": "Directory; /workspace unless given" },
            "stdin": { "type": "string", "description": "Its standard input" },
            "timeout_s": {
                "type": "number",
                "description": "Seconds after which it is killed; 120 unless given",
            },
        },
    })
}

pub(super) async fn run_command(api: &NativeApi, args: Map<String, Value>) -> ToolOutcome {
    let args: RunCommand = parse_arguments(args)?;
    let path = format!("{}/exec", session_path(&args.session)?);
    let body = json!({
        "command": args.command,
        "cwd": args.cwd,
        "stdin": args.stdin,
        "timeout_ms": milliseconds(args.timeout_s.unwrap_or(COMMAND_SECONDS))?,
    });
    let mut result = api.json(Method::POST, &path, Some(&body)).await.map_err(ToolResult::from)?;
    let text = result_text(&result);
    content::cut_output(&mut result);
    Ok(ToolResult::new(&text, result))
}

fn result_text(result: &Value) -> String {
    let mut text = content::output_text(result);
    let end = match (&result["exit_code"], result["signal"].as_str()) {
        _ if result["timed_out"] == true => "killed, because its time was up".to_owned(),
        _ if result["start_error"].is_string() => {
            format!("not started: {}", result["start_error"].as_str().unwrap_or_default())
        }
        (Value::Number(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("ended by {signal}"),
        _ => "it could not be started".to_owned(),
    };
    let _infallible = write!(text, "[{end}]");
    if result["truncated"] == true {
        text.push_str(" [more was written than is kept]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_named_as_they_are_given() {
        assert_eq!(grant("mysql:a").unwrap(), json!({ "kind": "mysql", "tenant": "a" }));
        assert_eq!(grant("catalog:a").unwrap(), json!({ "kind": "catalog", "warehouse": "a" }));
        for wrong in ["", "mysql", "mysql:", "mysql:a:rw", "http:example.com", "model"] {
            assert!(grant(wrong).is_err(), "{wrong}");
        }
        let session = json!({ "grants": [
            { "kind": "postgres", "tenant": "a" }, { "kind": "postgres", "tenant": "b" },
            { "kind": "postgres", "tenant": "b", "port": 5433 }, { "kind": "model" },
        ]});
        assert_eq!(data_grants(&session), ["postgres:a", "postgres:b", "5433"]);
    }

    #[test]
    fn a_model_is_shown_output_and_end() {
        for (result, expected) in [
            (json!({ "exit_code": 0, "stdout": "a\n", "stderr": "" }), "a\n[exit code 0]"),
            (
                json!({ "exit_code": 1, "stdout": "", "stderr": "no" }),
                "standard error:\nno\n[exit code 1]",
            ),
            (
                json!({ "exit_code": null, "signal": "SIGKILL", "timed_out": true }),
                "[killed, because its time was up]",
            ),
            (json!({ "exit_code": null, "signal": "SIGSEGV" }), "[ended by SIGSEGV]"),
            (
                json!({ "exit_code": 127, "start_error": "program: Not there" }),
                "[not started: program: Not there]",
            ),
        ] {
            assert_eq!(result_text(&result), expected);
        }
    }
}
