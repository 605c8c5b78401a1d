//! The sandbox session for which a connection works, and its representation at the server.

use std::sync::Arc;

/// Application name that sandboxes pass to their PostgreSQL clients (`PGAPPNAME`): a client with
/// this name has not chosen one itself.
pub const DEFAULT_APPLICATION: &str = "cove";

/// Session of a sandbox, and the number of its owners so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEpoch {
    /// Id.
    pub session: Arc<str>,
    /// Epoch, which grows with each server that takes over the session.
    pub epoch: u64,
}

impl SessionEpoch {
    /// Returns the common prefix of the `application_name`s of a session's epochs.
    pub fn application_prefix(&self) -> String {
        format!("{DEFAULT_APPLICATION}:{}:", self.session)
    }

    /// Returns the `application_name` of clients that have not chosen one.
    pub fn application_name(&self) -> String {
        format!("{}{}", self.application_prefix(), self.epoch)
    }
}
