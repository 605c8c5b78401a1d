//! Limit of sandboxes of one tenant that are being started at a time.
//!
//! What starts a sandbox runs outside of it, in the server, the spawners and the kernel, where no
//! share of the processor holds. So a tenant that wants a hundred sandboxes at once gets them a few
//! at a time, and another tenant's waits for those few at most. More of them at a time would not be
//! ready sooner: starting is the processor's work.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sandboxes of one tenant that are started at a time, for each processor.
const STARTS_PER_PROCESSOR: usize = 2;

/// Bounds the starts of each tenant.
#[derive(Debug)]
pub(super) struct StartLimiter {
    starts_max: usize,
    /// Semaphores of tenants that start something, or did since the last look.
    tenants: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

impl StartLimiter {
    pub(super) fn new() -> StartLimiter {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        StartLimiter::with_max(processors * STARTS_PER_PROCESSOR)
    }

    fn with_max(starts_max: usize) -> StartLimiter {
        StartLimiter { starts_max, tenants: Mutex::default() }
    }

    /// Waits, in line with others of the tenant, until one more may be started. It is started when
    /// the permit is dropped.
    pub(super) async fn enter(&self, tenant: &str) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut tenants = self.tenants.lock();
            match tenants.get(tenant).and_then(Weak::upgrade) {
                Some(semaphore) => semaphore,
                None => {
                    tenants.retain(|_, semaphore| semaphore.strong_count() > 0);
                    let semaphore = Arc::new(Semaphore::new(self.starts_max));
                    tenants.insert(tenant.into(), Arc::downgrade(&semaphore));
                    semaphore
                }
            }
        };
        // It is never closed.
        semaphore.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_tenant_waits_for_its_own_starts_and_for_no_others() {
        let starts = StartLimiter::with_max(2);
        let first = starts.enter("flood").await;
        let second = starts.enter("flood").await;
        let mut third = Box::pin(starts.enter("flood"));
        assert!((&mut third).now_or_never().is_none());
        assert!(starts.enter("quiet").now_or_never().is_some());
        drop(first);
        let third = third.now_or_never().expect("one is started");
        assert!(starts.enter("flood").now_or_never().is_none());
        drop((second, third));
        // Of those that start nothing, nothing is kept.
        drop(starts.enter("another").await);
        assert_eq!(starts.tenants.lock().len(), 1);
    }
}
