//! The future that waits for a resource.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::error::AcquireError;
use crate::lease::Lease;
use crate::ledger::FirstVisit;
use crate::pool::KeyHandle;
use crate::waiters::{PlaceId, WaiterAnswer};

/// Waits for a resource; see [`KeyHandle::acquire`] and [`Pool::acquire`](crate::Pool::acquire).
///
/// Cancel-safe: a dropped future passes its turn on.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<'a, K, R> {
    handle: AcquireSource<'a, K, R>,
    step: AcquireStep,
    now: Instant,
    deadline: Instant,
}

enum AcquireSource<'a, K, R> {
    Borrowed(&'a KeyHandle<K, R>),
    Owned(KeyHandle<K, R>),
    /// There is no key to wait for; `AcquireStep::Refused` has the reason.
    None,
}

enum AcquireStep {
    /// Not polled yet.
    Start,
    /// Failed before it started.
    Refused(AcquireError),
    /// Owns this place among the waiters.
    Queued(PlaceId),
    /// Has returned its answer.
    Done,
}

impl<'a, K, R> Acquire<'a, K, R> {
    pub(crate) fn borrowed(handle: &'a KeyHandle<K, R>, now: Instant, deadline: Instant) -> Self {
        Self { handle: AcquireSource::Borrowed(handle), step: AcquireStep::Start, now, deadline }
    }

    pub(crate) fn owned(
        handle: Result<KeyHandle<K, R>, AcquireError>,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let (handle, step) = match handle {
            Ok(handle) => (AcquireSource::Owned(handle), AcquireStep::Start),
            Err(error) => (AcquireSource::None, AcquireStep::Refused(error)),
        };
        Self { handle, step, now, deadline }
    }
}

impl<K, R> AcquireSource<'_, K, R> {
    fn handle(&self) -> Option<&KeyHandle<K, R>> {
        match self {
            Self::Borrowed(handle) => Some(handle),
            Self::Owned(handle) => Some(handle),
            Self::None => None,
        }
    }
}

impl<K, R> Future for Acquire<'_, K, R> {
    type Output = Result<Lease<K, R>, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let handle =
            match (std::mem::replace(&mut this.step, AcquireStep::Done), this.handle.handle()) {
                (AcquireStep::Start, Some(handle)) => handle,
                (AcquireStep::Queued(place), Some(handle)) => {
                    return match handle
                        .key_state
                        .pool
                        .with_ledger(None, |ledger| ledger.poll(place, context.waker()))
                    {
                        WaiterAnswer::Wait => {
                            this.step = AcquireStep::Queued(place);
                            Poll::Pending
                        }
                        WaiterAnswer::Granted(held) => Poll::Ready(Ok(Lease::new(held))),
                        WaiterAnswer::Failed(error) => Poll::Ready(Err(error)),
                    };
                }
                (AcquireStep::Refused(error), _) => return Poll::Ready(Err(error)),
                (AcquireStep::Done | AcquireStep::Start | AcquireStep::Queued(_), _) => {
                    unreachable!("polled after it had answered")
                }
            };
        if let Some(lease) = handle.take_fast(this.now) {
            return Poll::Ready(Ok(lease));
        }
        let (key_state, deadline) = (&handle.key_state, this.deadline);
        match key_state.pool.with_ledger(Some(this.now), |ledger| {
            ledger.acquire(key_state, deadline, context.waker())
        }) {
            Ok(FirstVisit::Granted(held)) => Poll::Ready(Ok(Lease::new(held))),
            Ok(FirstVisit::Queued(place)) => {
                this.step = AcquireStep::Queued(place);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<K, R> Drop for Acquire<'_, K, R> {
    fn drop(&mut self) {
        if let (AcquireStep::Queued(place), Some(handle)) = (&self.step, self.handle.handle()) {
            let place = *place;
            handle.key_state.pool.with_ledger(None, |ledger| ledger.leave(place));
        }
    }
}

impl<K, R> fmt::Debug for Acquire<'_, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            AcquireStep::Start => "start",
            AcquireStep::Refused(_) => "refused",
            AcquireStep::Queued(_) => "queued",
            AcquireStep::Done => "done",
        };
        f.debug_struct("Acquire")
            .field("step", &step)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
