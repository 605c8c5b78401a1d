//! The session of a sandbox for which a connection works, and what its server sees of it.

use std::sync::Arc;

/// Name that clients of PostgreSQL in sandboxes are told to have (`PGAPPNAME`): one that has it has
/// chosen none of its own.
pub const DEFAULT_APPLICATION: &str = "cove";

/// Session of a sandbox, and how many owners it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEpoch {
    /// Id.
    pub session: Arc<str>,
    /// Epoch, which grows with each server that takes the session over.
    pub epoch: u64,
}

impl SessionEpoch {
    /// Returns what the `application_name` of every epoch of a session begins with.
    pub fn application_prefix(&self) -> String {
        format!("{DEFAULT_APPLICATION}:{}:", self.session)
    }

    /// Returns the `application_name` of clients that have chosen none.
    pub fn application_name(&self) -> String {
        format!("{}{}", self.application_prefix(), self.epoch)
    }
}
