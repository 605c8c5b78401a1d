//! Limit on concurrent sandbox starts of one tenant.
//!
//! Starting a sandbox runs outside of it, in the server, the spawners and the kernel, where no
//! processor share applies. Therefore a tenant that requests a hundred sandboxes at once starts
//! only a few at a time, and another tenant's start waits for at most those few. More concurrent
//! starts would not be faster, because starting is bound by the processor.

use std::sync::Arc;

use node::tenant_values::TenantValues;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Concurrent starts of one tenant, for each processor.
const STARTS_PER_PROCESSOR: usize = 2;

/// Limits the concurrent starts of each tenant.
#[derive(Debug)]
pub(super) struct StartLimiter {
    starts_max: usize,
    /// Tenants with starts in progress.
    tenants: TenantValues<TenantStarts>,
}

/// Starts of one tenant.
#[derive(Debug)]
struct TenantStarts {
    places: Arc<Semaphore>,
    /// Number of starts that wait for a place.
    waiting: watch::Sender<usize>,
}

/// Permit to start one sandbox. Dropped once it has started.
#[derive(Debug)]
pub(super) struct StartPermit {
    _place: Option<OwnedSemaphorePermit>,
    /// Kept for tasks that wait until no start of the tenant waits.
    _starts: Arc<TenantStarts>,
}

/// Counts a start that waits for a place.
struct WaitingStart<'a>(&'a TenantStarts);

impl<'a> WaitingStart<'a> {
    fn begin(starts: &'a TenantStarts) -> WaitingStart<'a> {
        starts.waiting.send_modify(|waiting| *waiting += 1);
        WaitingStart(starts)
    }
}

impl Drop for WaitingStart<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl StartLimiter {
    pub(super) fn new() -> StartLimiter {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        StartLimiter::with_max(processors * STARTS_PER_PROCESSOR)
    }

    fn with_max(starts_max: usize) -> StartLimiter {
        StartLimiter { starts_max, tenants: TenantValues::default() }
    }

    /// Waits, in line with the tenant's other starts, until another sandbox may start.
    pub(super) async fn enter(&self, tenant: &str) -> StartPermit {
        let starts = self.tenants.value_of(tenant, || TenantStarts {
            places: Arc::new(Semaphore::new(self.starts_max)),
            waiting: watch::Sender::new(0),
        });
        let waiting = WaitingStart::begin(&starts);
        // The semaphore is never closed.
        let place = Arc::clone(&starts.places).acquire_owned().await.ok();
        drop(waiting);
        StartPermit { _place: place, _starts: starts }
    }

    /// Resolves once no start of the tenant waits for a place; background work thus yields to
    /// waiting callers.
    pub(super) async fn nobody_waits(&self, tenant: &str) {
        let starts = self.tenants.in_use(tenant);
        let Some(mut waiting) = starts.map(|starts| starts.waiting.subscribe()) else { return };
        // The sender is dropped when the tenant has no starts left.
        let _nobody = waiting.wait_for(|waiting| *waiting == 0).await;
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
        // Nothing is kept of tenants without starts.
        assert!(starts.tenants.in_use("flood").is_none());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_comes_behind_those_who_wait() {
        let starts = StartLimiter::with_max(1);
        assert!(starts.nobody_waits("flood").now_or_never().is_some());
        let first = starts.enter("flood").await;
        assert!(starts.nobody_waits("flood").now_or_never().is_some());
        let mut second = Box::pin(starts.enter("flood"));
        assert!((&mut second).now_or_never().is_none());
        let mut behind = Box::pin(starts.nobody_waits("flood"));
        assert!((&mut behind).now_or_never().is_none());
        assert!(starts.nobody_waits("quiet").now_or_never().is_some());
        // A cancelled start does not count as waiting.
        drop(second);
        assert!((&mut behind).now_or_never().is_some());
        let mut second = Box::pin(starts.enter("flood"));
        assert!((&mut second).now_or_never().is_none());
        let mut behind = Box::pin(starts.nobody_waits("flood"));
        drop(first);
        let second = second.now_or_never().expect("one is started");
        assert!((&mut behind).now_or_never().is_some());
        drop(second);
    }
}
