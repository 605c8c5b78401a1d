//! Public views of sessions and counts.

use api::{SandboxCounts, SandboxState, SessionView};
use node::clock::rfc3339_of_ms as time;
use pool::residents::ResidentStats;

use super::requests::DeadlineAction;
use crate::store::rows::SessionRow;

/// Data stored with a session in addition to its public view.
#[derive(Clone, Debug)]
pub struct KeptExtras {
    /// Face that created it; none for the native interface.
    pub face: Option<String>,
    /// Deadline in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Action at the deadline.
    pub on_deadline: DeadlineAction,
    /// Id of its credential.
    pub credential: Option<String>,
    /// Number of finished turns.
    pub turns: u64,
    /// Data of its face.
    pub extra: serde_json::Value,
}

impl From<&SessionRow> for KeptExtras {
    fn from(row: &SessionRow) -> KeptExtras {
        KeptExtras {
            face: row.face.clone(),
            deadline_ms: row.deadline_ms,
            on_deadline: row.on_deadline.into(),
            credential: row.credential.clone(),
            turns: row.turns,
            extra: row.extra.clone(),
        }
    }
}

/// A listed session with the data of its face.
#[derive(Clone, Debug)]
pub struct ListedSession {
    /// The session.
    pub session: SessionView,
    /// Data of its face.
    pub extras: KeptExtras,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListedPage {
    /// The sessions.
    pub sessions: Vec<ListedSession>,
    /// Start of the next page, if there is one.
    pub next_cursor: Option<String>,
}

/// Converts the ledger's counts to the public form.
pub(super) fn counted(stats: ResidentStats) -> SandboxCounts {
    SandboxCounts {
        total: stats.total,
        warming: stats.warming,
        warm: stats.warm,
        running: stats.running,
        waiting: stats.waiting,
        cold: stats.cold,
        capacity: stats.capacity,
        nodes: 1,
        ..SandboxCounts::default()
    }
}

/// Converts a row to the public view.
pub(super) fn shown(row: SessionRow) -> SessionView {
    SessionView {
        id: row.id,
        tenant: row.tenant,
        agent: row.agent_name,
        agent_version: row.agent_version,
        template: row.template.map(|template| template.name),
        state: row.state,
        sandbox: SandboxState::Cold,
        parent: row.parent,
        options: row.options,
        limits: row.limits,
        metadata: row.metadata,
        on_disconnect: row.on_disconnect,
        grants: row.grants,
        created_at: time(row.created_ms),
        last_active_at: time(row.last_active_ms),
        last_seq: row.last_seq,
        message: row.message,
    }
}
