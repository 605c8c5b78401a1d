//! Data for a server's history, read from memory without the store.

use std::sync::Arc;

/// Current sandboxes of sessions, and counters since the start.
#[derive(Clone, Debug, Default)]
pub struct SessionActivity {
    /// Number of sandboxes.
    pub sandboxes: usize,
    /// Number of sandboxes at work.
    pub at_work: usize,
    /// Number of begun turns.
    pub messages: u64,
    /// Number of ended commands.
    pub commands: u64,
    /// Tenants with sessions here, with the number of their sandboxes and of those at work.
    pub tenants: Vec<(Arc<str>, usize, usize)>,
}
