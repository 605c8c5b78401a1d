//! Programs that callers run in a session, with a single answer or a stream.

use std::convert::Infallible;

use api::{SessionExec, SessionExecEvent};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response, sse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::stream::{self, Stream};
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody};

use super::conversation::server_sent;
use super::{SessionIdPath, accepts};
use crate::service::{ExecEvent, ExecStream, Sessions};

/// Error of a program whose end is unknown.
pub(super) const SANDBOX_GONE: &str = "the sandbox ended";

pub(super) async fn exec(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SessionExec>,
) -> Result<Response, http::HttpError> {
    if !accepts(&headers, "text/event-stream") {
        // The command is killed if the caller disconnects.
        let result = Box::pin(sessions.commands()?.run(&who.tenant, &id, request)).await?;
        return Ok(axum::Json(result).into_response());
    }
    let stream = sessions.commands()?.stream(&who.tenant, &id, request).await?;
    Ok(server_sent(exec_events(stream)))
}

/// Returns the events of a command, numbered from 1, up to its end.
fn exec_events(stream: ExecStream) -> impl Stream<Item = Result<sse::Event, Infallible>> + Send {
    stream::unfold(Some((stream, 1_u64)), |state| async move {
        let (mut stream, seq) = state?;
        let event = match stream.next().await {
            Some(event) => shown(event),
            None => SessionExecEvent::Error { error: SANDBOX_GONE.to_owned() },
        };
        let is_last = matches!(event, SessionExecEvent::Ended(_) | SessionExecEvent::Error { .. });
        let text = serde_json::to_string(&event).unwrap_or_default();
        let sent = sse::Event::default().id(seq.to_string()).event(name(&event)).data(text);
        Some((Ok(sent), (!is_last).then_some((stream, seq + 1))))
    })
}

fn shown(event: ExecEvent) -> SessionExecEvent {
    match event {
        ExecEvent::Started(pid) => SessionExecEvent::Started { pid, terminal: None },
        ExecEvent::Stdout(bytes) => SessionExecEvent::Stdout { data_base64: BASE64.encode(bytes) },
        ExecEvent::Stderr(bytes) => SessionExecEvent::Stderr { data_base64: BASE64.encode(bytes) },
        ExecEvent::Ended(result) => SessionExecEvent::Ended(result),
    }
}

fn name(event: &SessionExecEvent) -> &'static str {
    match event {
        SessionExecEvent::Started { .. } => "started",
        SessionExecEvent::Attached { .. } => "attached",
        SessionExecEvent::Stdout { .. } => "stdout",
        SessionExecEvent::Stderr { .. } => "stderr",
        SessionExecEvent::Ended(_) => "ended",
        SessionExecEvent::Error { .. } => "error",
    }
}
