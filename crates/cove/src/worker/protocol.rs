//! Published types of Claude Managed Agents' self-hosted environments.
//!
//! The interface is a beta, with its version date in a header; these types follow the default
//! version of `cove worker anthropic --api-version` and contain only the fields that the worker
//! uses. Unknown values become `Other` and permit nothing.
//!
//! # References
//! - <https://platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes>
//! - <https://platform.claude.com/docs/en/api/beta/environments/work>
//! - <https://platform.claude.com/docs/en/api/beta/sessions/events>

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Value of `expected_last_heartbeat` that claims a lease without an owner.
pub(super) const NO_HEARTBEAT: &str = "NO_HEARTBEAT";

/// Work item: a session whose tools are to run.
#[derive(Clone, Deserialize)]
pub(super) struct WorkItem {
    pub(super) id: String,
    pub(super) data: WorkData,
    /// Credentials of this item. Never printed: this type has no `Debug`.
    #[serde(default)]
    pub(super) secret: Option<String>,
}

/// Subject of a work item.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WorkData {
    /// `session`; items of other kinds, such as `healthcheck`, are stopped without processing.
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) id: String,
}

impl WorkItem {
    /// Returns the token in the secret, which requests about this item prefer to the environment's
    /// key.
    pub(super) fn sessions_token(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct WorkSecret {
            sessions_token: Option<String>,
        }
        let secret = self.secret.as_deref()?.trim_end_matches('=');
        let decoded = URL_SAFE_NO_PAD.decode(secret).ok()?;
        let secret: WorkSecret = serde_json::from_slice(&decoded).ok()?;
        secret.sessions_token.filter(|token| !token.is_empty())
    }
}

/// State of a work item or of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkState {
    Queued,
    Starting,
    Active,
    Stopping,
    Stopped,
    #[serde(other)]
    Other,
}

/// Response to a heartbeat.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HeartbeatAnswer {
    pub(super) last_heartbeat: String,
    pub(super) lease_extended: bool,
    pub(super) state: WorkState,
    pub(super) ttl_seconds: u64,
}

/// Session, with the fields that the worker uses.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ManagedSession {
    pub(super) status: String,
    #[serde(default)]
    pub(super) resources: Vec<SessionResource>,
}

/// Resource that is attached to a session.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SessionResource {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// Page of a session's events.
#[derive(Debug, Deserialize)]
pub(super) struct ManagedEventPage {
    #[serde(default)]
    pub(super) data: Vec<ManagedEvent>,
    #[serde(default)]
    pub(super) next_page: Option<String>,
}

/// Event of a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum ManagedEvent {
    #[serde(rename = "agent.tool_use")]
    ToolUse(ToolCall),
    /// Call of a custom tool, which the customer's application answers.
    #[serde(rename = "agent.custom_tool_use")]
    CustomToolUse { id: String },
    #[serde(rename = "user.tool_result")]
    ToolResult { tool_use_id: String },
    #[serde(rename = "user.custom_tool_result")]
    CustomToolResult { custom_tool_use_id: String },
    #[serde(rename = "user.tool_confirmation")]
    Confirmation { tool_use_id: String, result: ConfirmationVerdict },
    #[serde(rename = "user.interrupt")]
    Interrupt {
        #[serde(default)]
        session_thread_id: Option<String>,
    },
    #[serde(rename = "session.status_idle")]
    Idle { stop_reason: IdleReason },
    #[serde(rename = "session.thread_status_terminated")]
    ThreadTerminated { session_thread_id: String },
    #[serde(rename = "session.status_terminated")]
    Terminated,
    #[serde(rename = "session.deleted")]
    Deleted,
    /// Keep-alive of a stream; not part of the history.
    #[serde(rename = "ping")]
    Ping,
    #[serde(other)]
    Other,
}

/// Call of one of the tools of `agent_toolset_20260401`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) input: Map<String, Value>,
    #[serde(default)]
    pub(super) evaluated_permission: Option<ToolPermission>,
    /// Subagent thread that made the call.
    #[serde(default)]
    pub(super) session_thread_id: Option<String>,
}

/// Permission that the control plane evaluated for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolPermission {
    Allow,
    /// Runs after a person has confirmed it.
    Ask,
    Deny,
    #[serde(other)]
    Other,
}

/// Decision of a person about a call that requires confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ConfirmationVerdict {
    Allow,
    /// Also any unknown verdict.
    #[serde(other)]
    Deny,
}

/// Reason why a session is idle.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct IdleReason {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

impl IdleReason {
    /// Returns whether the turn is over: only open calls continue it.
    pub(super) fn ends_turn(&self) -> bool {
        self.kind != "requires_action"
    }
}

/// Body of `POST /v1/sessions/{id}/events`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SentEvents<'a> {
    pub(super) events: [&'a ToolResultEvent; 1],
}

/// Result of a call.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ToolResultEvent {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) tool_use_id: String,
    pub(super) is_error: bool,
    pub(super) content: Vec<ResultBlock>,
}

impl ToolResultEvent {
    /// Returns the result of the call with this id.
    pub(super) fn new(tool_use_id: String, is_error: bool, content: Vec<ResultBlock>) -> Self {
        ToolResultEvent { kind: "user.tool_result", tool_use_id, is_error, content }
    }
}

/// Part of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ResultBlock {
    Text { text: String },
    Image { source: Base64Source },
    Document { source: Base64Source },
}

/// Content of an image or a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Base64Source {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) media_type: &'static str,
    pub(super) data: String,
}

/// Error of the control plane.
#[derive(Debug, Deserialize)]
pub(super) struct ControlErrorBody {
    pub(super) error: ControlErrorDetail,
}

#[derive(Debug, Deserialize)]
pub(super) struct ControlErrorDetail {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) message: String,
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE;
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_a_newer_version_unlock_nothing() {
        let event = |value: Value| serde_json::from_value::<ManagedEvent>(value).unwrap();
        assert!(matches!(event(json!({ "type": "agent.novelty", "x": 1 })), ManagedEvent::Other));
        let call = event(json!({
            "type": "agent.tool_use", "id": "a", "name": "bash", "input": {},
            "evaluated_permission": "perhaps",
        }));
        let ManagedEvent::ToolUse(call) = call else { panic!("{call:?}") };
        assert_eq!(call.evaluated_permission, Some(ToolPermission::Other));
        let verdict =
            json!({ "type": "user.tool_confirmation", "tool_use_id": "a", "result": "maybe" });
        let ManagedEvent::Confirmation { result, .. } = event(verdict) else { panic!() };
        assert_eq!(result, ConfirmationVerdict::Deny);
    }

    #[test]
    fn the_token_of_an_item_is_in_its_secret() {
        let item = |secret: Option<String>| WorkItem {
            id: "work_1".to_owned(),
            data: WorkData { kind: "session".to_owned(), id: "s".to_owned() },
            secret,
        };
        let text = json!({ "sessions_token": "tok", "ingress": 1 }).to_string();
        let padded = URL_SAFE.encode(&text);
        let bare = URL_SAFE_NO_PAD.encode(&text);
        for (secret, expected) in [
            (Some(padded), Some("tok")),
            (Some(bare), Some("tok")),
            (Some("%%%".to_owned()), None),
            (Some(URL_SAFE.encode("[]")), None),
            (Some(URL_SAFE.encode("{\"sessions_token\":\"\"}")), None),
            (None, None),
        ] {
            assert_eq!(item(secret.clone()).sessions_token().as_deref(), expected, "{secret:?}");
        }
    }
}
