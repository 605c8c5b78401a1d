//! Rows of the tables, as plain values. Times are milliseconds since 1970.

use std::collections::BTreeMap;
use std::fmt;

use api::{
    AgentOptions, AgentRuntime, AgentSettings, Grant, OnDisconnect, SessionEventKind,
    SessionLimits, SessionState, TemplateBuildStatus, TemplateFailure, TemplateStepResult,
};
use serde::{Deserialize, Serialize};

/// A secret as it is stored: encrypted, for one row of one tenant. See [`super::secrets`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SealedBlob(pub(crate) Vec<u8>);

impl fmt::Debug for SealedBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedBlob({} bytes)", self.0.len())
    }
}

/// An agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentRow {
    /// `ag_…`.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Unique for its tenant.
    pub(crate) name: String,
    /// Description for people.
    pub(crate) description: Option<String>,
    /// The version that new sessions get.
    pub(crate) active_version: u32,
    /// The latest version there ever was; the next one is one more.
    pub(crate) last_version: u32,
    /// Settings of its sessions.
    pub(crate) settings: AgentSettings,
    /// Limits of its sessions.
    pub(crate) limits: SessionLimits,
    /// Options that its sessions may override.
    pub(crate) options: AgentOptions,
    /// Environment.
    pub(crate) env: Option<SealedBlob>,
    /// The names in it, which may be shown.
    pub(crate) env_names: Vec<String>,
    /// Grants of its sessions.
    pub(crate) grants: Vec<Grant>,
    /// When its first version was deployed.
    pub(crate) created_ms: u64,
    /// When it was changed last.
    pub(crate) updated_ms: u64,
}

/// A version of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VersionRow {
    /// Agent that it is a version of.
    pub(crate) agent_id: String,
    /// Counts from 1. [`super::AgentTable::deploy`] chooses it.
    pub(crate) version: u32,
    /// Runtime that is started.
    pub(crate) runtime: AgentRuntime,
    /// Layers that its sessions stand on, oldest first.
    pub(crate) chain: Vec<String>,
    /// Key of the object with its folder as it was deployed.
    pub(crate) folder: Option<String>,
    /// Contents of the folder, as the service likes to have them.
    pub(crate) listing: serde_json::Value,
    /// Files of the folder.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The end of what `install.sh` wrote.
    pub(crate) install_output: Option<String>,
    /// When it was deployed.
    pub(crate) created_ms: u64,
}

/// Action on a session when its deadline comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDeadline {
    /// Ended.
    #[default]
    Kill,
    /// Paused: its programs stand still for as long as there is room.
    Pause,
    /// Paused, and its programs end.
    Rest,
}

/// A session. Settings are written when they change; the rest also by the
/// [writer behind](crate::events::EventWriter).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionRow {
    /// `ses_…`, or a face's own.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Agent; none for a workspace without one.
    pub(crate) agent_id: Option<String>,
    /// The agent's name when the session was made.
    pub(crate) agent_name: Option<String>,
    /// The agent's version.
    pub(crate) agent_version: Option<u32>,
    /// Session that it was forked from.
    pub(crate) parent: Option<String>,
    /// The interface that it was made by, when not the native one.
    pub(crate) face: Option<String>,
    /// When it was made.
    pub(crate) created_ms: u64,

    /// Setting: what the agent is told, the agent's and the session's own together.
    pub(crate) options: AgentOptions,
    /// Setting: its limits.
    pub(crate) limits: SessionLimits,
    /// Setting: what it can be found by.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Setting: its own environment, beside the agent's.
    pub(crate) env: Option<SealedBlob>,
    /// Setting: credential whose secret the agent gets.
    pub(crate) credential: Option<String>,
    /// Setting: what becomes of a turn without listeners.
    pub(crate) on_disconnect: OnDisconnect,
    /// Setting: seconds without a message after which it gives up its sandbox.
    pub(crate) idle_s: Option<u32>,
    /// Setting: what happens at the deadline.
    pub(crate) on_deadline: OnDeadline,
    /// Setting: what its sandbox may reach.
    pub(crate) grants: Vec<Grant>,
    /// Setting: the template that it started from.
    pub(crate) template: Option<SessionTemplate>,
    /// Setting: whatever else its face keeps with it.
    pub(crate) extra: serde_json::Value,

    /// State.
    pub(crate) state: SessionState,
    /// Layers that its disk stands on, oldest first. Every one has to be known
    /// ([`super::LayerTable::insert`]).
    pub(crate) chain: Vec<String>,
    /// Disk.
    pub(crate) disk: Option<String>,
    /// The server that has the disk.
    pub(crate) disk_server: Option<String>,
    /// Last snapshot in the object store.
    pub(crate) manifest: Option<String>,
    /// The agent's own name for the conversation.
    pub(crate) agent_session: Option<String>,
    /// Turns that ended.
    pub(crate) turns: u64,
    /// Number of its latest event that is kept.
    pub(crate) last_seq: u64,
    /// When it was worked with last.
    pub(crate) last_active_ms: u64,
    /// When [`SessionRow::on_deadline`] happens.
    pub(crate) deadline_ms: Option<u64>,
    /// Why it is in the state `error`.
    pub(crate) message: Option<String>,

    /// The server it lives on. Written by `insert_session`, `claim` and `release` alone.
    pub(crate) owner: Option<String>,
    /// Counts its owners: who has an older one may not write. Written by `claim` alone.
    pub(crate) epoch: u64,
    /// The last number of the life before this one. Written by `claim` alone.
    pub(crate) seq_start: u64,
    /// No number above this one was ever told. Written by `claim` and the writer behind alone.
    pub(crate) seq_ceiling: u64,
    /// Bytes of its events and messages that are kept. Written by the writer behind alone.
    pub(crate) history_bytes: u64,
}

/// Filter of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionFilter {
    /// In one of these states; any when empty.
    pub(crate) states: Vec<SessionState>,
    /// With the agent of this name.
    pub(crate) agent: Option<String>,
    /// With all of these.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Made by this interface; `Some(None)` is the native one.
    pub(crate) face: Option<Option<String>>,
    /// Older than this one: where the page before ended.
    pub(crate) before: Option<String>,
    /// At most so many; never more than [`super::access::PAGE_MAX`].
    pub(crate) limit: usize,
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventRow {
    /// Session that it belongs to.
    pub(crate) session: String,
    /// Number.
    pub(crate) seq: u64,
    /// When.
    pub(crate) at_ms: u64,
    /// The turn it belongs to.
    pub(crate) turn: Option<String>,
    /// Kind.
    pub(crate) kind: SessionEventKind,
    /// JSON.
    pub(crate) data: Vec<u8>,
}

/// A message of the conversation. Numbers are those of the session's log, so that they have gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageRow {
    /// Session that it belongs to.
    pub(crate) session: String,
    /// Number.
    pub(crate) seq: u64,
    /// When.
    pub(crate) at_ms: u64,
    /// The turn it belongs to.
    pub(crate) turn: Option<String>,
    /// `user` or `assistant`.
    pub(crate) role: String,
    /// JSON: text or blocks.
    pub(crate) content: serde_json::Value,
}

/// A frozen disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerRow {
    /// Names it, here and in the object store.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Bytes that it holds.
    pub(crate) bytes: u64,
    /// When it was frozen.
    pub(crate) created_ms: u64,
}

/// A workspace that was frozen for new sessions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SnapshotRow {
    /// `snap_…`, or a face's own.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Session that it was taken of.
    pub(crate) session: String,
    /// Name that its owner gave it.
    pub(crate) name: Option<String>,
    /// Layers, oldest first.
    pub(crate) chain: Vec<String>,
    /// Bytes of its own layer.
    pub(crate) bytes: u64,
    /// Template of that session.
    pub(crate) template: Option<SessionTemplate>,
    /// When it was taken.
    pub(crate) created_ms: u64,
}

/// A secret kept for agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialRow {
    /// `cred_…`.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// `anthropic`, `openai`, `bedrock` or `custom`.
    pub(crate) kind: String,
    /// Label that its owner gave it.
    pub(crate) label: String,
    /// The secret.
    pub(crate) secret: SealedBlob,
    /// When it was made.
    pub(crate) created_ms: u64,
    /// When a session used it last.
    pub(crate) last_used_ms: Option<u64>,
}

/// A file given along with a session; its content is in the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachmentRow {
    /// `att_…`.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// The session's.
    pub(crate) session: String,
    /// Name of the file.
    pub(crate) name: String,
    /// Media type.
    pub(crate) media_type: Option<String>,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Key of its content.
    pub(crate) object: String,
    /// When it was added.
    pub(crate) created_ms: u64,
}

/// Usage of one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UsageRow {
    /// The session's.
    pub(crate) session: String,
    /// The turn's.
    pub(crate) turn: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Name of the agent.
    pub(crate) agent: Option<String>,
    /// When the turn ended.
    pub(crate) at_ms: u64,
    /// The model, when the agent said so.
    pub(crate) model: Option<String>,
    /// Tokens that the model read.
    pub(crate) input_tokens: u64,
    /// Tokens that it wrote.
    pub(crate) output_tokens: u64,
    /// Tokens that it had read before.
    pub(crate) cache_read_tokens: u64,
    /// Tokens that it keeps.
    pub(crate) cache_write_tokens: u64,
    /// Cost in US dollars, as the agent reckons it.
    pub(crate) cost_usd: f64,
    /// Calls of tools.
    pub(crate) tool_calls: u64,
    /// Milliseconds from the message to the end of the turn.
    pub(crate) duration_ms: u64,
}

/// Filter of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageFilter {
    /// Session that used it.
    pub(crate) session: Option<String>,
    /// Name of the agent that used it.
    pub(crate) agent: Option<String>,
    /// Not before.
    pub(crate) from_ms: Option<u64>,
    /// Before.
    pub(crate) to_ms: Option<u64>,
}

/// Usage, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UsageSum {
    /// Turns.
    pub(crate) turns: u64,
    /// Input tokens of all turns.
    pub(crate) input_tokens: u64,
    /// Output tokens of all turns.
    pub(crate) output_tokens: u64,
    /// Tokens of all turns that came from the cache.
    pub(crate) cache_read_tokens: u64,
    /// Tokens of all turns that were put into the cache.
    pub(crate) cache_write_tokens: u64,
    /// Cost of all turns in US dollars.
    pub(crate) cost_usd: f64,
    /// Tool calls of all turns.
    pub(crate) tool_calls: u64,
    /// Duration of all turns in milliseconds.
    pub(crate) duration_ms: u64,
}

/// Anything small that a face keeps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DocumentRow {
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Kind: `ash.eval_case`.
    pub(crate) kind: String,
    /// Names it among its kind.
    pub(crate) id: String,
    /// Parent that it belongs to.
    pub(crate) parent: Option<String>,
    /// Content.
    pub(crate) body: serde_json::Value,
    /// When it was made.
    pub(crate) created_ms: u64,
    /// When it was changed last.
    pub(crate) updated_ms: u64,
}

/// Filter of a list of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentFilter {
    /// Kind of the documents.
    pub(crate) kind: String,
    /// Parent of the documents.
    pub(crate) parent: Option<String>,
    /// Ids above this one: where the page before ended.
    pub(crate) after: Option<String>,
    /// At most so many; never more than [`super::access::PAGE_MAX`].
    pub(crate) limit: usize,
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateRow {
    /// `tpl_…`.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Name, unique for its tenant.
    pub(crate) name: String,
    /// When it was made.
    pub(crate) created_ms: u64,
    /// When it was built last.
    pub(crate) updated_ms: u64,
}

/// A build of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TemplateBuildRow {
    /// A UUID.
    pub(crate) id: String,
    /// Id of its template.
    pub(crate) template: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// State.
    pub(crate) status: TemplateBuildStatus,
    /// Whatever else is shown of it.
    pub(crate) detail: TemplateBuildDetail,
    /// Layers, oldest first.
    pub(crate) chain: Vec<String>,
    /// Environment of sessions.
    pub(crate) env: Option<SealedBlob>,
    /// The server that builds it, or has built it.
    pub(crate) owner: Option<String>,
    /// When it was announced.
    pub(crate) created_ms: u64,
    /// When it was written last: one that is under way is written every few seconds.
    pub(crate) updated_ms: u64,
    /// When it ended.
    pub(crate) finished_ms: Option<u64>,
}

/// Properties of a build that nobody looks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateBuildDetail {
    /// Tags that it gets when it is ready.
    pub(crate) tags: Vec<String>,
    /// Steps that are done.
    pub(crate) steps: Vec<TemplateStepResult>,
    /// Why it failed.
    pub(crate) failure: Option<TemplateFailure>,
    /// Names of the variables of its environment.
    pub(crate) env_names: Vec<String>,
    /// Working directory of commands.
    pub(crate) workdir: Option<String>,
    /// Command that each new session runs in the background.
    pub(crate) start: Option<String>,
    /// Command that succeeds when that is ready.
    pub(crate) ready: Option<String>,
    /// Key of its last step, which templates that begin with this one go on from.
    pub(crate) key: String,
    /// Bytes of its layers.
    pub(crate) bytes: u64,
    /// Memory of sessions, unless they ask for another one.
    pub(crate) memory_bytes: Option<u64>,
}

/// Tag of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateTagRow {
    /// The tag.
    pub(crate) tag: String,
    /// Build that it names.
    pub(crate) build: String,
    /// When it was given.
    pub(crate) created_ms: u64,
}

/// An archive that steps copy from; its content is in the object store, in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateArchiveRow {
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Hash, with what it is a hash of.
    pub(crate) name: String,
    /// Prefix of the keys of its pieces.
    pub(crate) objects: String,
    /// Number of its pieces.
    pub(crate) pieces: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// When it was uploaded or used last.
    pub(crate) used_ms: u64,
}

/// Template that a session started from, as the session keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionTemplate {
    /// Reference that it was asked for by.
    pub(crate) name: String,
    /// Id of the build.
    pub(crate) build: String,
    /// Working directory of commands.
    pub(crate) workdir: Option<String>,
    /// Command that runs in the background.
    pub(crate) start: Option<String>,
    /// Command that succeeds when that is ready.
    pub(crate) ready: Option<String>,
}
