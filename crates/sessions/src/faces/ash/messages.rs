//! Messages, and the streams of their events.

use std::time::Duration;

use api::{MessageContent, MessageRequest, SessionState};
use axum::body;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use node::drain::DrainHandle;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time;

use super::call::{AshBody, AshCaller, AshFailure};
use super::ids;
use super::sessions::of_state;
use super::sse::{HEARTBEAT, TurnFrames};
use crate::service::MessageStream;

/// Interval at which a comment shows that the connection is alive.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Maximum number of characters in a text message.
const TEXT_CHARS_MAX: usize = 500_000;
/// Maximum number of blocks in a message.
const BLOCKS_MAX: usize = 20;
/// Allowed types of blocks.
const BLOCK_TYPES: [&str; 3] = ["text", "image", "document"];
/// Fields that are passed to the agent unchanged.
const EXTRA: [&str; 5] = ["maxTurns", "maxBudgetUsd", "effort", "thinking", "outputFormat"];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AshSendMessage {
    content: Value,
    #[serde(default)]
    include_partial_messages: bool,
    model: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// `POST /api/sessions/{id}/messages`.
pub(super) async fn send(
    caller: AshCaller,
    Path(uuid): Path<String>,
    drain: DrainHandle,
    AshBody(body): AshBody<AshSendMessage>,
) -> Result<Response, AshFailure> {
    let session = caller.active(&uuid).await?;
    let partial = body.include_partial_messages;
    let request = request(body)?;
    let heard = caller.sessions().conversations()?.send(&caller.tenant, &session.id, request).await;
    let heard = heard.map_err(|error| of_state(error, SessionState::Ended))?;
    let frames = TurnFrames::new(ids::uuid(&session.id), partial);
    Ok(server_sent(heard, frames, drain))
}

fn request(body: AshSendMessage) -> Result<MessageRequest, AshFailure> {
    let extra = body
        .rest
        .into_iter()
        .filter(|(name, value)| EXTRA.contains(&name.as_str()) && !value.is_null());
    Ok(MessageRequest {
        content: content(body.content)?,
        partial: body.include_partial_messages,
        model: body.model.filter(|model| !model.is_empty()),
        on_disconnect: None,
        extra: extra.collect(),
    })
}

/// Parses text, blocks, or one block.
pub(super) fn content(content: Value) -> Result<MessageContent, AshFailure> {
    let blocks = match content {
        Value::String(text) if text.chars().count() > TEXT_CHARS_MAX => {
            return Err(AshFailure::bad(format!(
                "content: has more than {TEXT_CHARS_MAX} characters"
            )));
        }
        Value::String(text) => return Ok(MessageContent::Text(text)),
        Value::Object(block) => vec![Value::Object(block)],
        Value::Array(blocks) => blocks,
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            return Err(AshFailure::bad("content: must be text or blocks"));
        }
    };
    if blocks.len() > BLOCKS_MAX {
        return Err(AshFailure::bad(format!("content: has more than {BLOCKS_MAX} blocks")));
    }
    let block = |(index, block)| match block {
        Value::Object(block) if is_block(&block) => Ok(block),
        _ => {
            let types = BLOCK_TYPES.join("`, `");
            let message = format!("content[{index}]: must be a block of the type `{types}`");
            Err(AshFailure::bad(message))
        }
    };
    let blocks: Result<Vec<_>, _> = blocks.into_iter().enumerate().map(block).collect();
    Ok(MessageContent::Blocks(blocks?))
}

fn is_block(block: &Map<String, Value>) -> bool {
    block.get("type").and_then(Value::as_str).is_some_and(|kind| BLOCK_TYPES.contains(&kind))
}

/// A turn whose events are streamed.
struct TurnStream {
    heard: MessageStream,
    frames: TurnFrames,
    drain: DrainHandle,
    heartbeats: time::Interval,
    stage: TurnStreamStage,
}

enum TurnStreamStage {
    Begin,
    Turn,
    Over,
}

impl TurnStream {
    /// Returns the next piece of the stream; none at the end, which follows `done`.
    async fn next(&mut self) -> Option<String> {
        match self.stage {
            TurnStreamStage::Over => return None,
            TurnStreamStage::Begin => {
                self.stage = TurnStreamStage::Turn;
                return Some(self.frames.start());
            }
            TurnStreamStage::Turn => {}
        }
        loop {
            let events = tokio::select! {
                biased;
                events = self.heard.next() => events,
                () = self.drain.cancelled() => {
                    self.stage = TurnStreamStage::Over;
                    return Some(self.frames.broken("the server is shutting down"));
                }
                _ = self.heartbeats.tick() => return Some(HEARTBEAT.to_owned()),
            };
            let Some(events) = events else {
                self.stage = TurnStreamStage::Over;
                return Some(self.frames.broken("the events of the turn cannot be read"));
            };
            if events.iter().any(|event| event.kind == api::SessionEventKind::Done) {
                self.stage = TurnStreamStage::Over;
            }
            let text: String = events.iter().map(|event| self.frames.of(event)).collect();
            self.heartbeats.reset();
            // Some events have no equivalent in Ash.
            if !text.is_empty() {
                return Some(text);
            }
        }
    }
}

fn server_sent(heard: MessageStream, frames: TurnFrames, drain: DrainHandle) -> Response {
    let mut heartbeats = time::interval(HEARTBEAT_EVERY);
    heartbeats.reset();
    let telling = TurnStream { heard, frames, drain, heartbeats, stage: TurnStreamStage::Begin };
    let pieces = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(Bytes::from(text)), telling))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Prevents proxies from buffering events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body::Body::from_stream(pieces)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_blocks_stay_what_they_are() {
        let text = json!({"type": "text", "text": "hi"});
        let block = text.as_object().unwrap().clone();
        assert_eq!(content(json!("hi")), Ok(MessageContent::Text("hi".to_owned())));
        let one = Ok(MessageContent::Blocks(vec![block.clone()]));
        assert_eq!(content(json!([text])), one);
        assert_eq!(content(text.clone()), one);
        assert_eq!(content(json!([text, text])), Ok(MessageContent::Blocks(vec![block; 2])));
        for refused in [
            json!(null),
            json!(1),
            json!(["hi"]),
            json!([{"type": "tool_result"}]),
            json!([{"text": "hi"}]),
            json!(vec![text; BLOCKS_MAX + 1]),
            json!("x".repeat(TEXT_CHARS_MAX + 1)),
        ] {
            assert!(content(refused.clone()).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_rest_of_a_message_is_the_agents() {
        let body = json!({"content": "x", "maxTurns": 3, "effort": null, "other": 1, "model": ""});
        let request = request(serde_json::from_value(body).unwrap()).unwrap();
        assert_eq!(Value::Object(request.extra), json!({"maxTurns": 3}));
        assert_eq!((request.partial, request.model), (false, None));
    }
}
