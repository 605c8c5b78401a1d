//! Rows of the tables, as plain values. Times are milliseconds since 1970.

use std::collections::BTreeMap;
use std::fmt;

use api::{
    AgentOptions, AgentRuntime, AgentSettings, Grant, OnDisconnect, SessionEventKind,
    SessionLimits, SessionState, TemplateBuildStatus, TemplateFailure, TemplateStepResult,
};
use serde::{Deserialize, Serialize};

/// A secret in its stored form: encrypted, for one row of one tenant. See [`super::secrets`].
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
    /// Description for users.
    pub(crate) description: Option<String>,
    /// Version that new sessions use.
    pub(crate) active_version: u32,
    /// Highest version so far; the next version is one more.
    pub(crate) last_version: u32,
    /// Settings of its sessions.
    pub(crate) settings: AgentSettings,
    /// Limits of its sessions.
    pub(crate) limits: SessionLimits,
    /// Options that its sessions may override.
    pub(crate) options: AgentOptions,
    /// Encrypted environment.
    pub(crate) env: Option<SealedBlob>,
    /// Names of its variables, which may be shown.
    pub(crate) env_names: Vec<String>,
    /// Grants of its sessions.
    pub(crate) grants: Vec<Grant>,
    /// Time at which its first version was deployed.
    pub(crate) created_ms: u64,
    /// Time of the last change.
    pub(crate) updated_ms: u64,
}

/// A version of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VersionRow {
    /// Agent that it is a version of.
    pub(crate) agent_id: String,
    /// Version number, from 1. [`super::AgentTable::deploy`] assigns it.
    pub(crate) version: u32,
    /// Runtime of its sessions.
    pub(crate) runtime: AgentRuntime,
    /// Layers of its sessions, oldest first.
    pub(crate) chain: Vec<String>,
    /// Key of the object with the deployed folder.
    pub(crate) folder: Option<String>,
    /// Contents of the folder, in the service's format.
    pub(crate) listing: serde_json::Value,
    /// Number of files in the folder.
    pub(crate) files: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
    /// End of the output of `install.sh`.
    pub(crate) install_output: Option<String>,
    /// Time of deployment.
    pub(crate) created_ms: u64,
}

/// Action on a session at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDeadline {
    /// Ended.
    #[default]
    Kill,
    /// Paused: its programs are frozen for as long as there is room.
    Pause,
    /// Paused, and its programs end.
    Rest,
}

/// A session. Settings are written when they change; other columns also by the [background
/// writer](crate::events::EventWriter).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionRow {
    /// `ses_…`, or a face's own form.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Agent; none for a workspace without one.
    pub(crate) agent_id: Option<String>,
    /// Agent's name when the session was created.
    pub(crate) agent_name: Option<String>,
    /// Agent's version.
    pub(crate) agent_version: Option<u32>,
    /// Session that it was forked from.
    pub(crate) parent: Option<String>,
    /// Face that created it; none for the native interface.
    pub(crate) face: Option<String>,
    /// Time of creation.
    pub(crate) created_ms: u64,

    /// Setting: options of the agent, merged with the session's own.
    pub(crate) options: AgentOptions,
    /// Setting: its limits.
    pub(crate) limits: SessionLimits,
    /// Setting: metadata to find it by.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Setting: its own environment, in addition to the agent's.
    pub(crate) env: Option<SealedBlob>,
    /// Setting: credential whose secret the agent receives.
    pub(crate) credential: Option<String>,
    /// Setting: treatment of turns without subscribers.
    pub(crate) on_disconnect: OnDisconnect,
    /// Setting: seconds without a message after which its sandbox ends.
    pub(crate) idle_s: Option<u32>,
    /// Setting: action at the deadline.
    pub(crate) on_deadline: OnDeadline,
    /// Setting: grants of its sandbox.
    pub(crate) grants: Vec<Grant>,
    /// Setting: the template that it started from.
    pub(crate) template: Option<SessionTemplate>,
    /// Setting: further data of its face.
    pub(crate) extra: serde_json::Value,

    /// State.
    pub(crate) state: SessionState,
    /// Layers below its disk, oldest first. Each must be recorded ([`super::LayerTable::insert`]).
    pub(crate) chain: Vec<String>,
    /// Disk.
    pub(crate) disk: Option<String>,
    /// Server that holds the disk.
    pub(crate) disk_server: Option<String>,
    /// Last snapshot in the object store.
    pub(crate) manifest: Option<String>,
    /// Agent's own id for the conversation.
    pub(crate) agent_session: Option<String>,
    /// Number of finished turns.
    pub(crate) turns: u64,
    /// Number of its latest stored event.
    pub(crate) last_seq: u64,
    /// Time of the last use.
    pub(crate) last_active_ms: u64,
    /// Time at which [`SessionRow::on_deadline`] applies.
    pub(crate) deadline_ms: Option<u64>,
    /// Error message for the state `error`.
    pub(crate) message: Option<String>,

    /// Server that owns it. Written only by `insert_session`, `claim` and `release`.
    pub(crate) owner: Option<String>,
    /// Counts its owners; writes with an older epoch are rejected. Written only by `claim`.
    pub(crate) epoch: u64,
    /// Last number of the previous life. Written only by `claim`.
    pub(crate) seq_start: u64,
    /// No number above this one was ever visible. Written only by `claim` and the background
    /// writer.
    pub(crate) seq_ceiling: u64,
    /// Stored bytes of its events and messages. Written only by the background writer.
    pub(crate) history_bytes: u64,
}

/// Filter of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionFilter {
    /// In one of these states; any when empty.
    pub(crate) states: Vec<SessionState>,
    /// With the agent of this name.
    pub(crate) agent: Option<String>,
    /// With all of these entries.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Created by this face; `Some(None)` is the native interface.
    pub(crate) face: Option<Option<String>>,
    /// Older than this session: the end of the previous page.
    pub(crate) before: Option<String>,
    /// Maximum number; never more than [`super::access::PAGE_MAX`].
    pub(crate) limit: usize,
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventRow {
    /// Session that it belongs to.
    pub(crate) session: String,
    /// Number.
    pub(crate) seq: u64,
    /// Time of the event.
    pub(crate) at_ms: u64,
    /// Turn that it belongs to.
    pub(crate) turn: Option<String>,
    /// Kind.
    pub(crate) kind: SessionEventKind,
    /// JSON data.
    pub(crate) data: Vec<u8>,
}

/// A message of the conversation. Numbers are those of the session's log, so they have gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageRow {
    /// Session that it belongs to.
    pub(crate) session: String,
    /// Number.
    pub(crate) seq: u64,
    /// Time of the message.
    pub(crate) at_ms: u64,
    /// Turn that it belongs to.
    pub(crate) turn: Option<String>,
    /// `user` or `assistant`.
    pub(crate) role: String,
    /// JSON: text or content blocks.
    pub(crate) content: serde_json::Value,
}

/// A frozen disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerRow {
    /// Id, also its name in the object store.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Allocated bytes.
    pub(crate) bytes: u64,
    /// Time at which it was frozen.
    pub(crate) created_ms: u64,
}

/// A frozen workspace from which sessions can be created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SnapshotRow {
    /// `snap_…`, or a face's own form.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Source session.
    pub(crate) session: String,
    /// Name that its owner gave it.
    pub(crate) name: Option<String>,
    /// Layers, oldest first.
    pub(crate) chain: Vec<String>,
    /// Bytes of its own layer.
    pub(crate) bytes: u64,
    /// Template of the source session.
    pub(crate) template: Option<SessionTemplate>,
    /// Time of the snapshot.
    pub(crate) created_ms: u64,
}

/// A secret stored for agents.
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
    /// Time of creation.
    pub(crate) created_ms: u64,
    /// Time of the last use by a session.
    pub(crate) last_used_ms: Option<u64>,
}

/// A file attached to a session; its content is in the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachmentRow {
    /// `att_…`.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Session that it belongs to.
    pub(crate) session: String,
    /// Name of the file.
    pub(crate) name: String,
    /// Media type.
    pub(crate) media_type: Option<String>,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Object key of its content.
    pub(crate) object: String,
    /// Time of creation.
    pub(crate) created_ms: u64,
}

/// Usage of one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UsageRow {
    /// Id of the session.
    pub(crate) session: String,
    /// Id of the turn.
    pub(crate) turn: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Name of the agent.
    pub(crate) agent: Option<String>,
    /// Time at which the turn ended.
    pub(crate) at_ms: u64,
    /// Model, if the agent reported it.
    pub(crate) model: Option<String>,
    /// Tokens that the model read.
    pub(crate) input_tokens: u64,
    /// Tokens that it wrote.
    pub(crate) output_tokens: u64,
    /// Tokens that the model read from its cache.
    pub(crate) cache_read_tokens: u64,
    /// Tokens that the model wrote to its cache.
    pub(crate) cache_write_tokens: u64,
    /// Cost in US dollars, as reported by the agent.
    pub(crate) cost_usd: f64,
    /// Number of tool calls.
    pub(crate) tool_calls: u64,
    /// Milliseconds from the arrival of the message to the end of the turn.
    pub(crate) duration_ms: u64,
}

/// Filter of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageFilter {
    /// Session that used it.
    pub(crate) session: Option<String>,
    /// Name of the agent that used it.
    pub(crate) agent: Option<String>,
    /// Earliest time, inclusive.
    pub(crate) from_ms: Option<u64>,
    /// Latest time, exclusive.
    pub(crate) to_ms: Option<u64>,
}

/// Usage, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UsageSum {
    /// Number of turns.
    pub(crate) turns: u64,
    /// Input tokens of all turns.
    pub(crate) input_tokens: u64,
    /// Output tokens of all turns.
    pub(crate) output_tokens: u64,
    /// Tokens of all turns that were read from the cache.
    pub(crate) cache_read_tokens: u64,
    /// Tokens of all turns that were written to the cache.
    pub(crate) cache_write_tokens: u64,
    /// Cost of all turns in US dollars.
    pub(crate) cost_usd: f64,
    /// Tool calls of all turns.
    pub(crate) tool_calls: u64,
    /// Duration of all turns in milliseconds.
    pub(crate) duration_ms: u64,
}

/// A small document that a face stores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DocumentRow {
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Kind, such as `ash.eval_case`.
    pub(crate) kind: String,
    /// Id, unique for its tenant and kind.
    pub(crate) id: String,
    /// Parent that it belongs to.
    pub(crate) parent: Option<String>,
    /// Content.
    pub(crate) body: serde_json::Value,
    /// Time of creation.
    pub(crate) created_ms: u64,
    /// Time of the last change.
    pub(crate) updated_ms: u64,
}

/// Filter of a list of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentFilter {
    /// Kind of the documents.
    pub(crate) kind: String,
    /// Parent of the documents.
    pub(crate) parent: Option<String>,
    /// Only ids above this one: the end of the previous page.
    pub(crate) after: Option<String>,
    /// Maximum number; never more than [`super::access::PAGE_MAX`].
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
    /// Time of creation.
    pub(crate) created_ms: u64,
    /// Time of the latest build.
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
    /// Further properties.
    pub(crate) detail: TemplateBuildDetail,
    /// Layers, oldest first.
    pub(crate) chain: Vec<String>,
    /// Environment of sessions.
    pub(crate) env: Option<SealedBlob>,
    /// Server that builds or built it.
    pub(crate) owner: Option<String>,
    /// Time of the announcement.
    pub(crate) created_ms: u64,
    /// Time of the last write; a running build is written every few seconds.
    pub(crate) updated_ms: u64,
    /// Time at which it ended.
    pub(crate) finished_ms: Option<u64>,
}

/// Properties of a build that no query searches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateBuildDetail {
    /// Tags to set when it is ready.
    pub(crate) tags: Vec<String>,
    /// Finished steps.
    pub(crate) steps: Vec<TemplateStepResult>,
    /// Why it failed.
    pub(crate) failure: Option<TemplateFailure>,
    /// Names of the variables of its environment.
    pub(crate) env_names: Vec<String>,
    /// Working directory of commands.
    pub(crate) workdir: Option<String>,
    /// Command that each new session runs in the background.
    pub(crate) start: Option<String>,
    /// Command that succeeds once the start command is ready.
    pub(crate) ready: Option<String>,
    /// Key of its last step, from which templates that build on it continue.
    pub(crate) key: String,
    /// Bytes of its layers.
    pub(crate) bytes: u64,
    /// Default memory of sessions.
    pub(crate) memory_bytes: Option<u64>,
}

/// Tag of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateTagRow {
    /// Name of the tag.
    pub(crate) tag: String,
    /// Build that it points to.
    pub(crate) build: String,
    /// Time at which it was set.
    pub(crate) created_ms: u64,
}

/// An archive that steps copy from; its content is in the object store, in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateArchiveRow {
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Hash of the archive, with the kind of hash.
    pub(crate) name: String,
    /// Prefix of the keys of its pieces.
    pub(crate) objects: String,
    /// Number of its pieces.
    pub(crate) pieces: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Time of the upload or of the last use.
    pub(crate) used_ms: u64,
}

/// Template that a session started from, as stored with the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionTemplate {
    /// Reference in the request.
    pub(crate) name: String,
    /// Id of the build.
    pub(crate) build: String,
    /// Working directory of commands.
    pub(crate) workdir: Option<String>,
    /// Command that runs in the background.
    pub(crate) start: Option<String>,
    /// Command that succeeds once the start command is ready.
    pub(crate) ready: Option<String>,
}
