//! Wakers that count, and a source of randomness that starts from a seed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts its wake-ups.
#[derive(Default)]
pub(crate) struct Alarm(AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Alarm {
    pub(crate) fn rang(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Polls once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F, alarm: &Arc<Alarm>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(alarm));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// splitmix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Less than `bound`, which is above 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Start of a test's time, to which tests only ever add.
#[expect(clippy::disallowed_methods, reason = "std offers no other way to make an `Instant`")]
pub(crate) fn start() -> std::time::Instant {
    std::time::Instant::now()
}
