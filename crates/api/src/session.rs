//! Sessions: one sandbox, one workspace, one conversation.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Grant;
use crate::agent::{AgentOptions, SessionLimits};

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The sandbox is being created.
    Starting,
    /// Takes messages.
    Active,
    /// Takes none until it is resumed; its sandbox stays for as long as there is room.
    Paused,
    /// Takes none until it is resumed; its sandbox is gone.
    Stopped,
    /// For ever over. Its files are gone.
    Ended,
    /// Could not be started or resumed; resuming tries again.
    Error,
}

impl SessionState {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionState::Starting => "starting",
            SessionState::Active => "active",
            SessionState::Paused => "paused",
            SessionState::Stopped => "stopped",
            SessionState::Ended => "ended",
            SessionState::Error => "error",
        }
    }
}

/// State of a session's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// Being made.
    Warming,
    /// Ready, and has done nothing yet.
    Warm,
    /// Works on a message or a command.
    Running,
    /// Has worked and waits.
    Waiting,
    /// Gone; what the session is stands on disk.
    Cold,
}

impl SandboxState {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxState::Warming => "warming",
            SandboxState::Warm => "warm",
            SandboxState::Running => "running",
            SandboxState::Waiting => "waiting",
            SandboxState::Cold => "cold",
        }
    }
}

/// Treatment of a turn when the last of its listeners goes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// The turn goes on; its events can be read later.
    #[default]
    Continue,
    /// The turn is interrupted.
    Interrupt,
}

/// Body of `POST /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CreateSession {
    /// Name of the agent; none for a workspace without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Id of the snapshot whose files are used in place of the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Template that it starts from: a name, `name:tag`, or an id. Only without `agent` and
    /// `snapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Environment beside the agent's. Stored encrypted, never shown.
    pub env: BTreeMap<String, String>,
    /// Id of a credential whose secret the agent gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Options that the agent gets at its start.
    pub options: AgentOptions,
    /// Limits in place of the agent's.
    pub limits: SessionLimits,
    /// Labels to find the session by.
    pub metadata: BTreeMap<String, String>,
    /// Treatment of a turn when its listeners go away.
    pub on_disconnect: OnDisconnect,
    /// Seconds without a message after which it gives up its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u32>,
    /// Grants of the sandbox, in place of the agent's; those when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

/// Body of `PATCH /v1/sessions/{id}`: what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct UpdateSession {
    /// In place of the metadata, all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Options that replace those of the session. They take effect at the agent's next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<AgentOptions>,
    /// Treatment of a turn when its listeners go away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// Seconds without a message after which it gives up its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u32>,
    /// In place of its grants, all of them: those that are not here are taken back at once, and
    /// connections over them end. Programs that run keep the environment that they were started
    /// with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

/// A session, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Session"))]
pub struct SessionView {
    /// Names it for ever: `ses_…`.
    pub id: String,
    /// Tenant that owns the session.
    pub tenant: String,
    /// Name of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Version of the agent that it was created with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<u32>,
    /// Template that it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// State of the session.
    pub state: SessionState,
    /// State of its sandbox.
    pub sandbox: SandboxState,
    /// Session that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Options that the agent gets at its start, the agent's and the session's merged.
    pub options: AgentOptions,
    /// Limits of the session, complete.
    pub limits: SessionLimits,
    /// Metadata, as given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Treatment of a turn without listeners, as given.
    pub on_disconnect: OnDisconnect,
    /// Grants of its sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// When it was created (RFC 3339, milliseconds, UTC).
    pub created_at: String,
    /// When it was worked with last.
    pub last_active_at: String,
    /// Number of its latest event.
    pub last_seq: u64,
    /// Why it is in the state `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Answer of `GET /v1/sessions`: newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionList {
    /// This page.
    pub sessions: Vec<SessionView>,
    /// Value of `cursor` for the next page; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of `POST /v1/sessions/{id}/messages`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessageRequest {
    /// Text, or blocks (`text`, `image`, `document`) as the Messages API has them.
    pub content: MessageContent,
    /// Send pieces of messages as they come.
    #[serde(default)]
    pub partial: bool,
    /// Model from this message on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Instead of the session's `on_disconnect`, for this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// Further fields for the agent, as they are.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(untagged)]
pub enum MessageContent {
    /// Text.
    Text(String),
    /// Blocks.
    Blocks(Vec<serde_json::Map<String, serde_json::Value>>),
}

/// Event of a session. Numbers grow and are never used twice; they may have gaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionEvent {
    /// Number of the event: `id` of the server-sent event.
    pub seq: u64,
    /// When (milliseconds since 1970).
    pub at_ms: u64,
    /// The turn that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Kind of event.
    #[serde(rename = "type")]
    pub kind: SessionEventKind,
    /// Data of the event, by its kind.
    pub data: serde_json::Value,
}

/// Kinds of events. A turn begins with `turn_start` and ends with `done`; an `error` may come
/// before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionEventKind {
    /// A message was taken: `{content}`.
    TurnStart,
    /// `{delta}`: a piece of text; only with `partial`.
    TextDelta,
    /// `{delta}`: a piece of thought; only with `partial`.
    ThinkingDelta,
    /// `{delta}`: a piece of a tool's input; only with `partial`.
    InputJsonDelta,
    /// `{text}`: a whole block of text.
    Text,
    /// `{text}`: a whole block of thought.
    Reasoning,
    /// `{id, name, input}`: the agent uses a tool.
    ToolUse,
    /// `{tool_use_id, content, is_error}`: what came of it.
    ToolResult,
    /// The agent's own line, as it is.
    Message,
    /// `{num_turns, result, is_error, usage, cost_usd, duration_ms}`: the agent has answered.
    TurnComplete,
    /// `{error}`: the turn failed.
    Error,
    /// `{}`: nothing more comes of this turn.
    Done,
    /// `{state, reason}`: the session changed its state.
    Lifecycle,
}

impl SessionEventKind {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        use SessionEventKind as K;
        match self {
            K::TurnStart => "turn_start",
            K::TextDelta => "text_delta",
            K::ThinkingDelta => "thinking_delta",
            K::InputJsonDelta => "input_json_delta",
            K::Text => "text",
            K::Reasoning => "reasoning",
            K::ToolUse => "tool_use",
            K::ToolResult => "tool_result",
            K::Message => "message",
            K::TurnComplete => "turn_complete",
            K::Error => "error",
            K::Done => "done",
            K::Lifecycle => "lifecycle",
        }
    }

    /// Returns whether it is told live only, and not kept: whole messages follow it.
    pub fn is_partial(self) -> bool {
        use SessionEventKind as K;
        matches!(self, K::TextDelta | K::ThinkingDelta | K::InputJsonDelta)
    }
}

/// Body of `POST /v1/sessions/{id}/exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionExec {
    /// A line for `/bin/sh -c`. Excludes `argv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Program and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Environment beside the session's.
    pub env: BTreeMap<String, String>,
    /// Working directory; `/workspace` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Content of its standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Milliseconds after which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Answer of `POST /v1/sessions/{id}/exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionExecResult {
    /// Exit code, when it exited.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Why it was not started, when it was not: no such program or directory, no right to execute
    /// it. Its exit code is then 127 (not found) or 126, as a shell has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
    /// True if it was killed because its time was up.
    pub timed_out: bool,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Likewise.
    pub stderr: String,
    /// True if there was more than is kept.
    pub truncated: bool,
}

/// A file or directory of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct FileEntry {
    /// Relative to what was listed, or absolute.
    pub path: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was changed (milliseconds since 1970).
    pub modified_ms: u64,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A snapshot: a workspace that was frozen, for new sessions to start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Snapshot"))]
pub struct SnapshotView {
    /// Names it: `snap_…`.
    pub id: String,
    /// Session that it was taken of.
    pub session: String,
    /// Name, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was taken.
    pub created_at: String,
    /// Bytes of its own layer.
    pub bytes: u64,
}

/// Resource usage of a session's sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SessionMetrics {
    /// When (milliseconds since 1970).
    pub at_ms: u64,
    /// CPU time of all processes since the sandbox began, in milliseconds.
    pub cpu_ms: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Most that was ever in use.
    pub memory_peak_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
    /// Bytes of the disk in use.
    pub disk_bytes: u64,
    /// Bytes of the disk.
    pub disk_total_bytes: u64,
}

/// A secret kept for agents, as it is shown: never with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Credential"))]
pub struct CredentialView {
    /// Names it: `cred_…`.
    pub id: String,
    /// `anthropic`, `openai`, `bedrock` or `custom`.
    pub kind: String,
    /// Name given by its owner.
    pub label: String,
    /// When it was made.
    pub created_at: String,
    /// When a session used it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// Sandboxes of sessions, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SandboxCounts {
    /// All of them, cold ones included.
    pub total: usize,
    /// By state.
    pub warming: usize,
    /// By state.
    pub warm: usize,
    /// By state.
    pub running: usize,
    /// By state.
    pub waiting: usize,
    /// By state.
    pub cold: usize,
    /// Most there may be.
    pub capacity: usize,
    /// Sessions resumed whose sandbox was there.
    pub resumed_warm: u64,
    /// Sessions resumed from their disk on this server.
    pub resumed_local: u64,
    /// Sessions resumed from the object store.
    pub resumed_remote: u64,
    /// Sessions that got a sandbox that was ready.
    pub prewarm_hits: u64,
    /// Nodes whose sandboxes these are, all together. One that does not answer in time is left out.
    #[serde(default)]
    pub nodes: usize,
}

impl SandboxCounts {
    /// Adds those of another node.
    pub fn add(&mut self, other: &SandboxCounts) {
        let sums = [
            (&mut self.total, other.total),
            (&mut self.warming, other.warming),
            (&mut self.warm, other.warm),
            (&mut self.running, other.running),
            (&mut self.waiting, other.waiting),
            (&mut self.cold, other.cold),
            (&mut self.capacity, other.capacity),
            (&mut self.nodes, other.nodes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        let totals = [
            (&mut self.resumed_warm, other.resumed_warm),
            (&mut self.resumed_local, other.resumed_local),
            (&mut self.resumed_remote, other.resumed_remote),
            (&mut self.prewarm_hits, other.prewarm_hits),
        ];
        for (sum, more) in totals {
            *sum = sum.saturating_add(more);
        }
    }
}
