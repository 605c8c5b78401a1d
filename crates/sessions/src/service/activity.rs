//! What the history of a server is made of: read from memory, without the store.

use std::sync::Arc;

use super::sessions::Sessions;

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

impl Sessions {
    /// Returns what was counted; none where there are no sessions here.
    #[must_use]
    pub fn activity(&self) -> Option<SessionActivity> {
        let inner = self.supported()?;
        let counts = inner.counts();
        let (messages, commands) = inner.metrics.messages_and_commands();
        let tenants = inner.books.sandboxes_by_tenant().into_iter();
        Some(SessionActivity {
            sandboxes: counts.warm + counts.running + counts.waiting,
            at_work: counts.running,
            messages,
            commands,
            tenants: tenants.map(|(name, (all, at_work))| (name, all, at_work)).collect(),
        })
    }
}
