//! Servers of a cluster.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Starting; accepts no work yet.
    Joining,
    /// Accepts work.
    Active,
    /// Finishes its work, and accepts no new work.
    Draining,
    /// Stopped.
    Left,
    /// Its lease has expired: other nodes take over its sessions.
    Lost,
}

impl NodeStatus {
    /// Returns the word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeStatus::Joining => "joining",
            NodeStatus::Active => "active",
            NodeStatus::Draining => "draining",
            NodeStatus::Left => "left",
            NodeStatus::Lost => "lost",
        }
    }
}

/// Work that a node has, and has room for, as it said when it was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "NodeLoad"))]
pub struct NodeLoadView {
    /// Sandboxes of sessions.
    pub sandboxes: u64,
    /// Most sandboxes of sessions at one time.
    pub sandboxes_max: u64,
    /// Executions that run.
    pub executions: u64,
    /// Most executions that run at one time.
    pub executions_max: u64,
    /// Executions that wait for a place.
    pub executions_waiting: u64,
}

/// A server, as one of those that share a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Node"))]
pub struct NodeView {
    /// Name, for as long as its data directory exists.
    pub id: String,
    /// Name of its present run; new at each start.
    pub incarnation: String,
    /// State that it is in.
    pub state: NodeStatus,
    /// True for the one that answers.
    pub is_this: bool,
    /// Address for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Address for other nodes; without it they pass nothing on to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_address: Option<String>,
    /// Services that it has.
    pub roles: Vec<String>,
    /// Failure domain that it shares with other nodes; empty if not configured.
    pub zone: String,
    /// Version of Cove.
    pub version: String,
    /// When its run began, in milliseconds since 1970, by the store's clock.
    pub started_ms: u64,
    /// When it was seen last, likewise.
    pub seen_ms: u64,
    /// Work that it has.
    pub load: NodeLoadView,
    /// Progress of its drain, once a node that drains has looked for its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<NodeDrainView>,
}

/// Progress of a node that drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "NodeDrain"))]
pub struct NodeDrainView {
    /// Sessions that it still has; with none left it can be stopped.
    pub sessions: u64,
    /// Number of those sessions that are in use: they are handed over afterwards.
    pub busy: u64,
    /// Sessions of them whose files could not be brought to the object store; it is tried again.
    pub failed: u64,
    /// True if their files are on this node's disk alone, because servers share no object store: it
    /// keeps them.
    pub keeps_files: bool,
}

/// All nodes of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct NodeList {
    /// The nodes, by their ids.
    pub nodes: Vec<NodeView>,
}
