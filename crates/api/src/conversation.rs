//! The conversation of a session and its records: messages, events, logs, usage.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::session::SessionEvent;

/// Answer of `POST /v1/sessions/{id}/messages?wait=true`: what came of the message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct MessageAnswer {
    /// The session.
    pub session: String,
    /// Names the turn.
    pub turn: String,
    /// Number of its last event.
    pub seq: u64,
    /// Last text of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// True if the agent calls it a failure, or the turn failed.
    pub is_error: bool,
    /// Why the turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Exchanges with the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_turns: Option<u64>,
    /// Tokens, as the agent counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<serde_json::Value>,
    /// In US dollars, as the agent reckons it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Milliseconds that the agent took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// Answer of `POST /v1/sessions/{id}/interrupt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct InterruptAnswer {
    /// True if a turn was running.
    pub interrupted: bool,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionMessage {
    /// Number of the event within the session.
    pub seq: u64,
    /// When (milliseconds since 1970).
    pub at_ms: u64,
    /// The turn that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// `user` or `assistant`.
    pub role: String,
    /// Text or blocks.
    pub content: serde_json::Value,
}

/// Answer of `GET /v1/sessions/{id}/messages`: oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionMessageList {
    /// This page.
    pub messages: Vec<SessionMessage>,
    /// Value of `after` for the next page; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u64>,
}

/// Answer of `GET /v1/sessions/{id}/events` with `accept: application/json`: oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionEventList {
    /// This page.
    pub events: Vec<SessionEvent>,
    /// Value of `after` for the next page; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u64>,
}

/// A line that the agent wrote to its standard error, or the server about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionLogLine {
    /// Counts from 0; lines that are no longer kept have had numbers, too.
    pub index: u64,
    /// `stderr` or `system`.
    pub level: String,
    /// Text of the line.
    pub text: String,
    /// When (milliseconds since 1970).
    pub at_ms: u64,
}

/// Answer of `GET /v1/sessions/{id}/logs`: oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionLogs {
    /// Lines that are kept.
    pub lines: Vec<SessionLogLine>,
    /// Value of `from` that gives the lines after these.
    pub next: u64,
}

/// Model usage of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionUsage {
    /// Number of turns.
    pub turns: u64,
    /// Tokens that the model read, without those from its cache.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// Tokens that came from its cache.
    pub cache_read_tokens: u64,
    /// Tokens that were put there.
    pub cache_write_tokens: u64,
    /// In US dollars, as agents reckon it.
    pub cost_usd: f64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Milliseconds.
    pub duration_ms: u64,
}

/// Model usage of one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TurnUsage {
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: String,
    /// Name of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When the turn ended (milliseconds since 1970).
    pub at_ms: u64,
    /// Model usage of the turn.
    pub usage: SessionUsage,
}

/// Answer of `GET /v1/usage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UsageReport {
    /// Sum over all turns that were asked for.
    pub total: SessionUsage,
    /// Single turns, the latest first; only as many as `limit` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnUsage>,
}
