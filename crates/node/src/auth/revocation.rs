//! Notice that a credential is no longer valid.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Tells when a credential is taken back, or has expired. Cheap to clone.
///
/// Credentials of all kinds have this in common: there is a moment when something about them may
/// have changed, and a question whether they are still good, which is answered from memory.
#[derive(Clone)]
pub struct RevocationSignal {
    changes: watch::Receiver<()>,
    is_valid: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl RevocationSignal {
    /// Asks `is_valid` now and after each of the `changes`. It must not block.
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
            // Seen before it is asked: a change in between is found by the next turn.
            self.changes.borrow_and_update();
            if !(self.is_valid)() {
                return;
            }
            if self.changes.changed().await.is_err() {
                // Nobody is left who could take anything back.
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
