//! Nodes, as their rows in the store describe them.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::SqlStoreError;

/// Time for which a node counts as alive after its last renewal, if its row does not say; nothing
/// is taken over from it in that time. Versions whose rows do not say it assume this.
pub const NODE_LEASE: Duration = Duration::from_secs(30);

/// A node, as its row describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Name, for as long as its data directory exists.
    pub id: String,
    /// Name of its present run.
    pub incarnation: String,
    /// Start of that run, by the store's clock.
    pub started_ms: u64,
    /// Time of the last renewal, by the store's clock.
    pub seen_ms: u64,
    /// State of the node.
    pub state: NodeState,
    /// True if a drain was requested.
    pub drain_wanted: bool,
    /// Description by the node itself.
    pub description: NodeDescription,
    /// Load at the last renewal.
    pub load: NodeLoad,
}

impl NodeRecord {
    /// Returns whether it runs, as far as the store knows at this time.
    #[must_use]
    pub fn is_alive(&self, now_ms: u64) -> bool {
        self.state != NodeState::Left && !self.is_overdue(now_ms)
    }

    /// Returns whether its last renewal is older than its lease.
    #[must_use]
    pub fn is_overdue(&self, now_ms: u64) -> bool {
        self.seen_ms.saturating_add(self.lease_ms()) <= now_ms
    }

    /// Returns the milliseconds for which it counts as alive after its last renewal.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.load.lease_ms()
    }
}

/// A node's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDescription {
    /// Address for clients, `HOST:PORT`.
    pub address: Option<String>,
    /// Address for other nodes, `HOST:PORT`; none for one that they cannot reach.
    pub peer_address: Option<String>,
    /// Services that it runs.
    pub roles: Vec<String>,
    /// Failure domain that it shares with other nodes; empty if not configured.
    pub zone: String,
    /// Version of Cove.
    pub version: String,
}

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The node is starting, and takes no work yet.
    Joining,
    /// The node takes work.
    Active,
    /// The node finishes its work, and takes no new work.
    Draining,
    /// The node was stopped.
    Left,
}

impl NodeState {
    /// Returns its name in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeState::Joining => "joining",
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Left => "left",
        }
    }
}

impl FromStr for NodeState {
    type Err = SqlStoreError;

    fn from_str(text: &str) -> Result<NodeState, SqlStoreError> {
        let all = [NodeState::Joining, NodeState::Active, NodeState::Draining, NodeState::Left];
        all.into_iter().find(|state| state.as_str() == text).ok_or(SqlStoreError::Spoiled)
    }
}

/// Work of a node, and its capacity. Read by other versions of Cove: missing fields are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLoad {
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
    /// Milliseconds for which the node counts as alive after its last renewal; [`NODE_LEASE`] if
    /// missing.
    #[serde(skip_serializing_if = "is_zero")]
    pub lease_ms: u64,
    /// True if other nodes have found that nothing is left of it.
    #[serde(skip_serializing_if = "is_false")]
    pub is_lost: bool,
    /// Progress of its drain, after a drain was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainProgress>,
}

/// Sessions of a draining node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainProgress {
    /// Sessions that it still has.
    pub sessions: u64,
    /// Sessions in use among them.
    pub busy: u64,
    /// Sessions among them whose last handover failed.
    pub failed: u64,
    /// True if their files are on its disk alone, so that it keeps them.
    pub keeps_files: bool,
}

impl NodeLoad {
    /// Returns the milliseconds for which the node counts as alive after its last renewal.
    pub(super) fn lease_ms(&self) -> u64 {
        match self.lease_ms {
            0 => u64::try_from(NODE_LEASE.as_millis()).unwrap_or(u64::MAX),
            said => said,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}
