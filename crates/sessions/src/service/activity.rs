//! What the history of a server is made of: read from memory, without the store.

use std::sync::Arc;

/// Sandboxes of sessions now, and what was counted since the start.
#[derive(Clone, Debug, Default)]
pub struct SessionActivity {
    /// Sandboxes there are.
    pub sandboxes: usize,
    /// Sandboxes at work.
    pub at_work: usize,
    /// Turns that began.
    pub messages: u64,
    /// Commands that ended.
    pub commands: u64,
    /// Tenants with sessions here: their sandboxes, and of them those at work.
    pub tenants: Vec<(Arc<str>, usize, usize)>,
}
