//! Requests of callers and compatibility interfaces: operations and changes.

use std::collections::BTreeMap;

use api::{AgentOptions, Grant, OnDisconnect, SessionState};
use serde_json::Value;

use super::limits;
use crate::error::SessionError;
use crate::store::rows::{OnDeadline, SessionRow};

/// Action on a session when its deadline comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineAction {
    /// Ended.
    #[default]
    End,
    /// Paused. Its programs stand still, for as long as there is room.
    Pause,
    /// Paused, and gives up its sandbox.
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

/// Properties of a session that faces set beside those of callers.
#[derive(Clone, Debug, Default)]
pub struct CreateExtras {
    /// The face that it is made by; none for the native one.
    pub face: Option<&'static str>,
    /// An id in the face's own form.
    pub id: Option<String>,
    /// When something happens by itself (milliseconds since 1970).
    pub deadline_ms: Option<u64>,
    /// Action at the deadline.
    pub on_deadline: DeadlineAction,
    /// Data that the face keeps with the session.
    pub extra: Value,
}

/// Filter of a list of sessions.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// In one of these states; any when empty.
    pub states: Vec<SessionState>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// With all of these.
    pub metadata: BTreeMap<String, String>,
    /// Made by this face; `Some(None)` is the native one.
    pub face: Option<Option<String>>,
    /// End of the page before.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// Changes of a session without a change of its state; what is left out stays.
#[derive(Clone, Debug, Default)]
pub struct SessionUpdate {
    /// In place of all of its metadata.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Options in place of those that it has; the agent is told before its next message, or
    /// started again where that is what it takes.
    pub options: Option<AgentOptions>,
    /// Treatment of turns when their listeners go away.
    pub on_disconnect: Option<OnDisconnect>,
    /// Seconds without a message after which it gives up its sandbox.
    pub idle_s: Option<u32>,
    /// Grants of its sandbox, in place of those that it has now.
    pub grants: Option<Vec<Grant>>,
    /// Data that its face keeps with it.
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
