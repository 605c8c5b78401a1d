//! Signal that a credential is no longer valid.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Signals that a credential was revoked, or has expired. Cheap to clone.
///
/// Credentials of all kinds have this in common: a notification that something about them may have
/// changed, and a check whether they are still valid, which is answered from memory.
#[derive(Clone)]
pub struct RevocationSignal {
    changes: watch::Receiver<()>,
    is_valid: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl RevocationSignal {
    /// Creates a signal that calls `is_valid` now and after each of the `changes`. It must not
    /// block.
    #[must_use]
    pub fn new(
        changes: watch::Receiver<()>,
        is_valid: impl Fn() -> bool + Send + Sync + 'static,
    ) -> RevocationSignal {
        RevocationSignal { changes, is_valid: Arc::new(is_valid) }
    }

    /// Returns when the credential is no longer valid, which may be at once.
    pub async fn revoked(mut self) {
        loop {
            // Marked as seen before the check: a change in between is found by the next turn.
            self.changes.borrow_and_update();
            if !(self.is_valid)() {
                return;
            }
            if self.changes.changed().await.is_err() {
                // No component is left that could revoke anything.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl fmt::Debug for RevocationSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revocation").finish_non_exhaustive()
    }
}
