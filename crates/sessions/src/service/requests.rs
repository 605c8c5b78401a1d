//! Requests of callers and faces: creation, lists and changes.

use std::collections::BTreeMap;

use api::{AgentOptions, Grant, OnDisconnect, SessionState};
use serde_json::Value;

use super::limits;
use crate::error::SessionError;
use crate::store::rows::{OnDeadline, SessionRow};

/// Action on a session at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineAction {
    /// Ended.
    #[default]
    End,
    /// Paused. Its programs are frozen, for as long as there is room.
    Pause,
    /// Paused, and its sandbox ends.
    Rest,
}

impl From<DeadlineAction> for OnDeadline {
    fn from(action: DeadlineAction) -> OnDeadline {
        match action {
            DeadlineAction::End => OnDeadline::Kill,
            DeadlineAction::Pause => OnDeadline::Pause,
            DeadlineAction::Rest => OnDeadline::Rest,
        }
    }
}

impl From<OnDeadline> for DeadlineAction {
    fn from(action: OnDeadline) -> DeadlineAction {
        match action {
            OnDeadline::Kill => DeadlineAction::End,
            OnDeadline::Pause => DeadlineAction::Pause,
            OnDeadline::Rest => DeadlineAction::Rest,
        }
    }
}

/// Properties of a session that only faces set.
#[derive(Clone, Debug, Default)]
pub struct CreateExtras {
    /// Face that creates it; none for the native interface.
    pub face: Option<&'static str>,
    /// An id in the face's own form.
    pub id: Option<String>,
    /// Deadline, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Action at the deadline.
    pub on_deadline: DeadlineAction,
    /// Data that the face stores with the session.
    pub extra: Value,
}

/// Filter of a list of sessions.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// In one of these states; any when empty.
    pub states: Vec<SessionState>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// With all of these entries.
    pub metadata: BTreeMap<String, String>,
    /// Created by this face; `Some(None)` is the native interface.
    pub face: Option<Option<String>>,
    /// End of the previous page.
    pub cursor: Option<String>,
    /// Maximum number.
    pub limit: usize,
}

/// Changes of a session that do not affect its state; absent fields stay unchanged.
#[derive(Clone, Debug, Default)]
pub struct SessionUpdate {
    /// Replacement of all of its metadata.
    pub metadata: Option<BTreeMap<String, String>>,
    /// New options; the agent receives them before its next message, or is restarted if necessary.
    pub options: Option<AgentOptions>,
    /// Treatment of turns without subscribers.
    pub on_disconnect: Option<OnDisconnect>,
    /// Seconds without a message after which its sandbox ends.
    pub idle_s: Option<u32>,
    /// New grants of its sandbox.
    pub grants: Option<Vec<Grant>>,
    /// Data that its face stores with it.
    pub extra: Option<serde_json::Value>,
}

impl SessionUpdate {
    pub(super) fn check(&self) -> Result<(), SessionError> {
        if let Some(metadata) = &self.metadata {
            limits::check_metadata(metadata)?;
        }
        if let Some(options) = &self.options {
            limits::check_options(options, "options")?;
        }
        if self.idle_s == Some(0) {
            return Err(SessionError::invalid("idle_s", "must be at least 1"));
        }
        Ok(())
    }

    pub(super) fn apply(&self, row: &mut SessionRow) -> Result<(), SessionError> {
        if row.state == SessionState::Ended {
            return Err(SessionError::Ended);
        }
        if let Some(metadata) = &self.metadata {
            row.metadata.clone_from(metadata);
        }
        if let Some(options) = &self.options {
            row.options = limits::options(&row.options, options);
        }
        row.on_disconnect = self.on_disconnect.unwrap_or(row.on_disconnect);
        row.idle_s = self.idle_s.or(row.idle_s);
        if let Some(grants) = &self.grants {
            row.grants.clone_from(grants);
        }
        if let Some(extra) = &self.extra {
            row.extra.clone_from(extra);
        }
        Ok(())
    }
}
