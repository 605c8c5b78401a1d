//! E2B's code interpreter, which its clients use on port 49999 of a sandbox.
//!
//! Cove answers these requests itself; no program listens in the sandbox. An execution is a stream
//! of JSON lines. Closing the connection interrupts the execution.
//!
//! # References
//! - <https://github.com/e2b-dev/code-interpreter/tree/main/template/server>

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use api::{CellEvent, CellResult, CodeContextView, CreateCodeContext, ExecuteCell};
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest as _, Request};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use node::clock;
use node::http::{self, CredentialBinding, UploadBody};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time;

use super::envd::has_token;
use super::errors::shown;
use super::ports::PortUse;
use super::{E2bContext, discard};
use crate::error::SessionError;
use crate::interpreter::{CellLanguage, CellStream};
use crate::service::SandboxGuard;
use crate::service::contexts::ContextHome;

/// Template that clients of the code interpreter request.
pub(super) const TEMPLATE: &str = "code-interpreter-v1";
/// Default directory of contexts.
pub(super) const HOME: ContextHome = ContextHome("/home/user");
/// Maximum bytes of a request: a cell as JSON.
const BODY_BYTES_MAX: u64 = 16 << 20;
/// Silence after which a keep-alive line is sent.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Body of `/execute`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExecutionBody {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

/// Body of `/contexts`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextBody {
    language: Option<String>,
    cwd: Option<String>,
}

/// A rejection in plain text.
struct PlainRefusal(StatusCode, String);

impl From<SessionError> for PlainRefusal {
    fn from(error: SessionError) -> PlainRefusal {
        let error = http::HttpError::from(error);
        let message = match &error.detail().field {
            Some(field) => format!("{field}: {error}"),
            None => error.to_string(),
        };
        PlainRefusal(error.status(), message)
    }
}

impl From<http::HttpError> for PlainRefusal {
    fn from(error: http::HttpError) -> PlainRefusal {
        PlainRefusal(error.status(), error.to_string())
    }
}

/// Answers a request. The caller has checked access to the port.
pub(super) async fn answer(
    face: &E2bContext,
    id: &str,
    port_use: PortUse,
    request: Request,
) -> Response {
    let binding = CredentialBinding::of(request.extensions());
    let may_execute = has_token(face, id, request.headers(), &binding);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let body = match UploadBody::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return PlainRefusal::from(error).into_response(),
    };
    let (get, post, guard) = (method == Method::GET, method == Method::POST, port_use.guard());
    let answered = match segments.as_slice() {
        ["health"] if get => Ok(Json("OK").into_response()),
        ["contexts"] if get => list(guard),
        ["contexts"] if post => Box::pin(create(guard, body)).await,
        ["contexts", context] if method == Method::DELETE => remove(guard, context).await,
        ["contexts", context, "restart"] if post => Box::pin(restart(guard, context)).await,
        ["execute"] if post && !may_execute => {
            discard(body).await;
            let message = "the X-Access-Token of the sandbox is missing or wrong";
            Err(PlainRefusal(StatusCode::UNAUTHORIZED, message.to_owned()))
        }
        ["execute"] if post => execute(face, port_use, body).await,
        _ => {
            discard(body).await;
            let message = format!("{method} {} is not served here", shown(&path));
            Err(PlainRefusal(StatusCode::NOT_FOUND, message))
        }
    };
    answered.unwrap_or_else(PlainRefusal::into_response)
}

impl PlainRefusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }

    /// Returns an error about a context in E2B's wording.
    fn of_context(error: SessionError, id: &str) -> PlainRefusal {
        match error {
            SessionError::NotFound(_) => {
                PlainRefusal(StatusCode::NOT_FOUND, format!("Context {} not found", shown(id)))
            }
            other => other.into(),
        }
    }
}

async fn read<T: DeserializeOwned + Default>(body: UploadBody) -> Result<T, PlainRefusal> {
    let bytes = body.all(BODY_BYTES_MAX).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    Ok(http::parse_json("the body", &bytes)?)
}

fn listed(context: &CodeContextView) -> Value {
    json!({ "id": context.id, "language": context.language, "cwd": context.cwd })
}

fn list(guard: &SandboxGuard) -> Result<Response, PlainRefusal> {
    let all = guard.code_contexts(HOME)?;
    let all: Vec<Value> = all.contexts.iter().map(listed).collect();
    Ok(Json(all).into_response())
}

async fn create(guard: &SandboxGuard, body: UploadBody) -> Result<Response, PlainRefusal> {
    let ContextBody { language, cwd } = read(body).await?;
    let request = CreateCodeContext { language, cwd, ..CreateCodeContext::default() };
    let context = guard.create_code_context(request, HOME).await?;
    Ok(Json(listed(&context)).into_response())
}

async fn remove(guard: &SandboxGuard, id: &str) -> Result<Response, PlainRefusal> {
    let removed = guard.delete_code_context(id).await;
    removed.map_err(|error| PlainRefusal::of_context(error, id))?;
    Ok(Json(Value::Null).into_response())
}

async fn restart(guard: &SandboxGuard, id: &str) -> Result<Response, PlainRefusal> {
    let restarted = guard.restart_code_context(id, HOME).await;
    restarted.map_err(|error| PlainRefusal::of_context(error, id))?;
    Ok(Json(Value::Null).into_response())
}

async fn execute(
    face: &E2bContext,
    port_use: PortUse,
    body: UploadBody,
) -> Result<Response, PlainRefusal> {
    let ExecutionBody { code, context_id, language, env_vars } = read(body).await?;
    let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if is_given(&context_id) && is_given(&language) {
        let message = "Only one of context_id or language can be provided";
        return Err(PlainRefusal(StatusCode::BAD_REQUEST, message.to_owned()));
    }
    let name = match context_id.filter(|id| !id.is_empty()) {
        Some(id) => id,
        None => match CellLanguage::named(language.as_deref()) {
            Some(language) => language.as_str().to_owned(),
            None => {
                let language = shown(&language.unwrap_or_default());
                let message = format!(
                    "language `{language}` is not supported; it must be python, javascript, \
                     typescript or bash"
                );
                return Err(PlainRefusal(StatusCode::BAD_REQUEST, message));
            }
        },
    };
    let guard = port_use.guard();
    // Created first, so that the default contexts come first in lists.
    guard.code_contexts(HOME)?;
    let timeout_ms = face.config.cell_timeout_s * 1000;
    let env = env_vars.unwrap_or_default();
    let cell = ExecuteCell { code, env, timeout_ms: Some(timeout_ms) };
    let events = guard.execute_cell(&name, cell, HOME);
    let events = events.map_err(|error| PlainRefusal::of_context(error, &name))?;
    let lines = lines(ExecutionLines { events, _port_use: port_use });
    let head = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, Body::from_stream(lines)).into_response())
}

/// An execution whose lines are streamed. Keeps the sandbox at work, and the connection's place.
struct ExecutionLines {
    events: CellStream,
    _port_use: PortUse,
}

/// Returns the lines of an execution, up to its end. If the sandbox ends, the stream breaks off,
/// which tells the client.
fn lines(execution: ExecutionLines) -> impl stream::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(Some(execution), |execution| async move {
        let mut execution = execution?;
        let event = match time::timeout(KEEPALIVE, execution.events.next()).await {
            Err(_) => return Some((Ok(line(&json!({ "type": "keepalive" }))), Some(execution))),
            Ok(Some(CellEvent::Gone { .. }) | None) => {
                return Some((Err(io::ErrorKind::ConnectionAborted.into()), None));
            }
            Ok(Some(event)) => event,
        };
        let is_last = matches!(event, CellEvent::Ended(_));
        let sent = line(&message(event, clock::wall_ms()));
        Some((Ok(sent), (!is_last).then_some(execution)))
    })
}

fn line(message: &Value) -> Bytes {
    format!("{message}\n").into()
}

/// Encodes an event for E2B's clients.
fn message(event: CellEvent, now_ms: u64) -> Value {
    let output = |kind: &str, text: String| json!({ "type": kind, "text": text, "timestamp": clock::rfc3339_of_ms(now_ms) });
    match event {
        CellEvent::Started { execution_count } => {
            json!({ "type": "number_of_executions", "execution_count": execution_count })
        }
        CellEvent::Stdout { text } => output("stdout", text),
        CellEvent::Stderr { text } => output("stderr", text),
        CellEvent::Result(result) => result_message(result),
        CellEvent::Error(failure) => {
            let (name, value, traceback) = (failure.name, failure.value, failure.traceback);
            json!({ "type": "error", "name": name, "value": value, "traceback": traceback })
        }
        CellEvent::Ended(end) => {
            let mut message = json!(end);
            message["type"] = json!("end_of_execution");
            message
        }
        CellEvent::Gone { error } => {
            json!({ "type": "unexpected_end_of_execution", "value": error })
        }
    }
}

/// Result fields by MIME type.
const FIELDS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

fn result_message(result: CellResult) -> Value {
    let (mut fields, mut extra) = (Map::new(), Map::new());
    for (mime, value) in result.data {
        match FIELDS.iter().find(|(known, _)| *known == mime) {
            Some((_, "text")) => drop(fields.insert("text".to_owned(), unquoted(value))),
            Some((_, field)) => drop(fields.insert((*field).to_owned(), value)),
            None => drop(extra.insert(mime, value)),
        }
    }
    fields.insert("type".to_owned(), json!("result"));
    fields.insert("is_main_result".to_owned(), json!(result.is_main_result));
    fields.insert("extra".to_owned(), Value::Object(extra));
    if !result.truncated.is_empty() {
        fields.insert("truncated".to_owned(), json!(result.truncated));
    }
    Value::Object(fields)
}

/// Removes one pair of surrounding quotes from a text, as clients expect it for string values.
fn unquoted(value: Value) -> Value {
    let Value::String(text) = value else { return value };
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        if let Some(inner) = inner {
            return json!(inner);
        }
    }
    Value::String(text)
}

#[cfg(test)]
mod tests {
    //! Messages in the format of E2B's clients.

    use api::{CellEnd, Verdict};

    use super::*;

    #[test]
    fn results_have_the_fields_of_their_types() {
        let result = CellResult {
            is_main_result: true,
            data: [
                ("text/plain", json!("'a'")),
                ("image/png", json!("aGk=")),
                ("e2b/chart", json!({ "type": "line" })),
                ("application/vnd.vega.v5+json", json!({ "x": 1 })),
            ]
            .map(|(mime, value)| (mime.to_owned(), value))
            .into(),
            truncated: Vec::new(),
        };
        let expected = json!({
            "type": "result", "is_main_result": true, "text": "a", "png": "aGk=",
            "chart": { "type": "line" }, "extra": { "application/vnd.vega.v5+json": { "x": 1 } },
        });
        assert_eq!(message(CellEvent::Result(result), 0), expected);
    }

    #[test]
    fn one_pair_of_quotes_is_lost() {
        for (text, expected) in
            [("'a'", "a"), ("\"a'b\"", "a'b"), ("''a''", "'a'"), ("'a\"", "'a\""), ("'", "'")]
        {
            assert_eq!(unquoted(json!(text)), json!(expected));
        }
    }

    #[test]
    fn the_end_says_how_it_was() {
        let end = CellEnd {
            verdict: Verdict::Tle,
            wall_ms: 7,
            cpu_ms: None,
            memory_bytes: None,
            context_ended: true,
        };
        let expected = json!({
            "type": "end_of_execution", "verdict": "TLE", "wall_ms": 7, "context_ended": true,
        });
        assert_eq!(message(CellEvent::Ended(end), 0), expected);
        let output = message(CellEvent::Stdout { text: "x".to_owned() }, 0);
        assert_eq!(output["timestamp"], "1970-01-01T00:00:00.000Z");
    }
}
