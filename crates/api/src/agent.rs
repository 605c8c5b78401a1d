//! Agents: what a session runs, deployed as a folder with versions.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Grant;

/// Body of `POST /v1/agents`: a new agent, or a new version of one that exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeployRequest {
    /// Letters, digits, `_` and `-`, 1 to 64 of them; unique for its tenant.
    pub name: String,
    /// Description for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Complete content of the agent's folder: what an earlier version had and this one has not is
    /// gone. A file `install.sh` is run once, inside a sandbox, and what it makes is part of the
    /// version.
    pub files: Vec<AgentFile>,
    /// Template whose files and environment are below the folder's: a name, `name:tag`, or an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Environment of every session's processes. Values are stored encrypted and never shown.
    pub env: BTreeMap<String, String>,
    /// Program that sessions start. Left out: Claude where there is a `CLAUDE.md`, else nothing, so
    /// that sessions have a workspace and no agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<AgentRuntime>,
    /// Limits of its sessions, unless a session asks for others.
    pub limits: SessionLimits,
    /// Lifetimes of the agent's sessions.
    pub settings: AgentSettings,
    /// Settings that a session may override.
    pub options: AgentOptions,
    /// Grants of the agent's sessions, unless one is created with others. Left out: what a file
    /// `grants.json` of the folder says, a list of them; nothing without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

/// A file of an agent's folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentFile {
    /// Relative, `/`-separated, without empty, `.` or `..` parts.
    pub path: String,
    /// Content.
    pub content: String,
    /// True if `content` is Base64 (RFC 4648 §4) rather than text.
    pub base64: bool,
    /// Mode 0755 rather than 0644.
    pub executable: bool,
}

/// Program that is started once for a session and lives as long as its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum AgentRuntime {
    /// Claude's command line over its stream-json protocol.
    Claude,
    /// Any program that speaks the agent protocol on its standard streams (`docs/agents.md`).
    Command {
        /// Program and arguments; started in `/workspace`.
        argv: Vec<String>,
    },
    /// No program: the session is a workspace to run programs in.
    None,
}

/// Lifetimes of an agent's sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Sandboxes kept ready with the agent's files.
    pub prewarm_sandboxes: u32,
    /// Sandboxes kept ready in which the agent has started, too.
    pub prewarm_agents: u32,
    /// Park an interpreter in the agent's sandboxes before the first context is asked for, in those
    /// that wait as in new ones: it costs its memory, and the first context is there at once.
    pub park_interpreter: bool,
    /// Start the agent with the first message rather than with the session.
    pub lazy: bool,
    /// Seconds without a message after which a session gives up its sandbox; the server's default
    /// when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u32>,
}

/// Options that an agent gets at its start; every field can be set by the agent and by a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentOptions {
    /// Model to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// In place of the agent's own prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// `bypassPermissions`, `acceptEdits`, `plan` or `default`, as Claude's command line has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// Tools that need no permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Tools that are not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disallowed_tools: Option<Vec<String>>,
    /// Servers of the Model Context Protocol by name, in the shape of `.mcp.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Limits of a session's sandbox. What is left out is the agent's, then the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionLimits {
    /// Memory of all its processes together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Size of `/workspace` and `/home/user` together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Files and directories there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_inodes: Option<u64>,
    /// Size of `/tmp` and `/dev/shm` together, in bytes; it counts as memory as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp_bytes: Option<u64>,
    /// Open file descriptors of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// Body of `PATCH /v1/agents/{name}`: what changes without a new version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentUpdate {
    /// In place of the description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In place of the environment, all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// In place of the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SessionLimits>,
    /// In place of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<AgentSettings>,
    /// In place of the options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<AgentOptions>,
    /// Number of the version that new sessions get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// In place of the grants, for new sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

/// An agent, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Agent"))]
pub struct AgentView {
    /// Names it for ever: `ag_…`.
    pub id: String,
    /// Names it for its tenant.
    pub name: String,
    /// Tenant that owns the agent.
    pub tenant: String,
    /// Description, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The version that new sessions get.
    pub version: u32,
    /// Program that sessions start.
    pub runtime: AgentRuntime,
    /// Limits, as given.
    pub limits: SessionLimits,
    /// Settings, as given.
    pub settings: AgentSettings,
    /// Options, as given.
    pub options: AgentOptions,
    /// Names of its environment variables.
    pub env: Vec<String>,
    /// Grants of the agent's sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// When its first version was deployed (RFC 3339, milliseconds, UTC).
    pub created_at: String,
    /// When it was changed last.
    pub updated_at: String,
}

/// Answer of `GET /v1/agents`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AgentList {
    /// By name.
    pub agents: Vec<AgentView>,
}

/// A version of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AgentVersion {
    /// Counts from 1.
    pub version: u32,
    /// Program that sessions start.
    pub runtime: AgentRuntime,
    /// When it was deployed.
    pub created_at: String,
    /// True if new sessions get it.
    pub active: bool,
    /// Files of its folder.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The end of what `install.sh` wrote, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_output: Option<String>,
}

/// Answer of `GET /v1/agents/{name}/versions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AgentVersionList {
    /// Newest first.
    pub versions: Vec<AgentVersion>,
}
