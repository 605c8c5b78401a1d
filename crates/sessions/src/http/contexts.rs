//! Contexts of a session's code interpreter.

use std::convert::Infallible;

use api::{
    CellEvent, CodeContextList, CodeContextView, CreateCodeContext, ExecuteCell, ForkCodeContext,
    InterruptAnswer,
};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody};

use super::commands::SANDBOX_GONE;
use super::conversation::server_sent;
use super::{SessionIdPath, accepts, not_text};
use crate::interpreter::CellStream;
use crate::service::Sessions;
use crate::service::contexts::{WORKSPACE, collect};

/// Id of a session and of one of its contexts.
pub(super) struct ContextPath(String, String);

impl<S: Send + Sync> FromRequestParts<S> for ContextPath {
    type Rejection = http::HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<ContextPath, http::HttpError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        path.map(|Path((id, context))| ContextPath(id, context)).map_err(|_| not_text())
    }
}

pub(super) async fn create(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    JsonBody(request): JsonBody<CreateCodeContext>,
) -> Result<(StatusCode, axum::Json<CodeContextView>), http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    let context = Box::pin(guard.create_code_context(request, WORKSPACE)).await?;
    Ok((StatusCode::CREATED, axum::Json(context)))
}

pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<CodeContextList>, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    Ok(axum::Json(guard.code_contexts(WORKSPACE)?))
}

pub(super) async fn fetch(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
) -> Result<axum::Json<CodeContextView>, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    Ok(axum::Json(guard.code_context(&context, WORKSPACE)?))
}

pub(super) async fn remove(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
) -> Result<StatusCode, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    guard.delete_code_context(&context).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn restart(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
) -> Result<axum::Json<CodeContextView>, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    Ok(axum::Json(Box::pin(guard.restart_code_context(&context, WORKSPACE)).await?))
}

pub(super) async fn fork(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
    JsonBody(request): JsonBody<ForkCodeContext>,
) -> Result<(StatusCode, axum::Json<CodeContextView>), http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    let copy = Box::pin(guard.fork_code_context(&context, request, WORKSPACE)).await?;
    Ok((StatusCode::CREATED, axum::Json(copy)))
}

pub(super) async fn interrupt(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
) -> Result<axum::Json<InterruptAnswer>, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    let interrupted = guard.interrupt_code_context(&context, WORKSPACE).await?;
    Ok(axum::Json(InterruptAnswer { interrupted }))
}

pub(super) async fn execute(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    ContextPath(id, context): ContextPath,
    headers: HeaderMap,
    JsonBody(cell): JsonBody<ExecuteCell>,
) -> Result<Response, http::HttpError> {
    let guard = sessions.sandbox(&who.tenant, &id).await?;
    let stream = guard.execute_cell(&context, cell, WORKSPACE)?;
    if !accepts(&headers, "text/event-stream") {
        // The cell is interrupted if the caller disconnects.
        let report = collect(stream).await?;
        return Ok(axum::Json(report).into_response());
    }
    Ok(server_sent(cell_events(stream)))
}

/// Returns the events of a cell, numbered from 1, up to its end.
fn cell_events(stream: CellStream) -> impl Stream<Item = Result<sse::Event, Infallible>> + Send {
    stream::unfold(Some((stream, 1_u64)), |state| async move {
        let (mut stream, seq) = state?;
        let gone = || CellEvent::Gone { error: SANDBOX_GONE.to_owned() };
        let event = stream.next().await.unwrap_or_else(gone);
        let is_last = matches!(event, CellEvent::Ended(_) | CellEvent::Gone { .. });
        let text = serde_json::to_string(&event).unwrap_or_default();
        let sent = sse::Event::default().id(seq.to_string()).event(name(&event)).data(text);
        Some((Ok(sent), (!is_last).then_some((stream, seq + 1))))
    })
}

fn name(event: &CellEvent) -> &'static str {
    match event {
        CellEvent::Started { .. } => "started",
        CellEvent::Stdout { .. } => "stdout",
        CellEvent::Stderr { .. } => "stderr",
        CellEvent::Result(_) => "result",
        CellEvent::Error(_) => "error",
        CellEvent::Ended(_) => "ended",
        CellEvent::Gone { .. } => "gone",
    }
}
