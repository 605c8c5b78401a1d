//! The future that waits for a resource.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::error::AcquireError;
use crate::lease::Lease;
use crate::ledger::Visit;
use crate::pool::KeyHandle;
use crate::waiters::{Answer, PlaceId};

/// Waits for a resource; see [`KeyHandle::acquire`] and [`Pool::acquire`](crate::Pool::acquire).
///
/// Cancel-safe: dropped, it passes its turn on.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<'a, K, R> {
    handle: Source<'a, K, R>,
    step: Step,
    now: Instant,
    deadline: Instant,
}

enum Source<'a, K, R> {
    Borrowed(&'a KeyHandle<K, R>),
    Owned(KeyHandle<K, R>),
    /// There is no key to wait for; `Step::Refused` says why.
    None,
}

enum Step {
    /// Not polled yet.
    Start,
    /// Failed before it started.
    Refused(AcquireError),
    /// Owns this place among the waiters.
    Queued(PlaceId),
    /// Has answered.
    Done,
}

impl<'a, K, R> Acquire<'a, K, R> {
    pub(crate) fn borrowed(handle: &'a KeyHandle<K, R>, now: Instant, deadline: Instant) -> Self {
        Self { handle: Source::Borrowed(handle), step: Step::Start, now, deadline }
    }

    pub(crate) fn owned(
        handle: Result<KeyHandle<K, R>, AcquireError>,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let (handle, step) = match handle {
            Ok(handle) => (Source::Owned(handle), Step::Start),
            Err(error) => (Source::None, Step::Refused(error)),
        };
        Self { handle, step, now, deadline }
    }
}

impl<K, R> Source<'_, K, R> {
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
        let handle = match (std::mem::replace(&mut this.step, Step::Done), this.handle.handle()) {
            (Step::Start, Some(handle)) => handle,
            (Step::Queued(place), Some(handle)) => {
                return match handle.home.pool.turn(None, |turn| turn.poll(place, context.waker())) {
                    Answer::Wait => {
                        this.step = Step::Queued(place);
                        Poll::Pending
                    }
                    Answer::Granted(held) => Poll::Ready(Ok(Lease::new(held))),
                    Answer::Failed(error) => Poll::Ready(Err(error)),
                };
            }
            (Step::Refused(error), _) => return Poll::Ready(Err(error)),
            (Step::Done | Step::Start | Step::Queued(_), _) => {
                unreachable!("polled after it had answered")
            }
        };
        if let Some(lease) = handle.take_fast(this.now) {
            return Poll::Ready(Ok(lease));
        }
        let (home, deadline) = (&handle.home, this.deadline);
        match home.pool.turn(Some(this.now), |turn| turn.acquire(home, deadline, context.waker())) {
            Ok(Visit::Granted(held)) => Poll::Ready(Ok(Lease::new(held))),
            Ok(Visit::Queued(place)) => {
                this.step = Step::Queued(place);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<K, R> Drop for Acquire<'_, K, R> {
    fn drop(&mut self) {
        if let (Step::Queued(place), Some(handle)) = (&self.step, self.handle.handle()) {
            let place = *place;
            handle.home.pool.turn(None, |turn| turn.leave(place));
        }
    }
}

impl<K, R> fmt::Debug for Acquire<'_, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Start => "start",
            Step::Refused(_) => "refused",
            Step::Queued(_) => "queued",
            Step::Done => "done",
        };
        f.debug_struct("Acquire")
            .field("step", &step)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
