//! Shares of a tenant's server connections among guests, and the order of a guest's clients.
//!
//! Guests of one role share the pools of their tenant, which serve clients in the order of arrival.
//! A guest with twenty clients, each with a long statement, would occupy all server connections; so
//! the number that a guest uses or waits for in the pools' queues is bounded by its [`share`]. Its
//! other clients wait only for one another, in a queue of the guest's own. So no keys take turns
//! here, and [`pool::RoundRobin`] would have nothing to order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Number of guests of a tenant that use its server connections, or wait for them.
pub(crate) type Crowd = Arc<AtomicU32>;

/// Returns the number of `connections` that a guest may use when `guests` use them, including
/// itself: an equal part, where one part is left over for the next guest. So no number of guests
/// can use up all connections, whatever they request.
fn share(connections: u32, guests: u32) -> u32 {
    (connections / guests.saturating_add(1)).max(1)
}

/// Callback that hands a permit to a waiting client.
pub(crate) type Call = Box<dyn FnOnce(LeaseQuotaPermit) + Send>;

/// Permits of one guest.
#[derive(Default)]
pub(crate) struct LeaseQuota(Mutex<LeaseQuotaState>);

#[derive(Default)]
struct LeaseQuotaState {
    taken: u32,
    /// Number of server connections of its tenant.
    connections: u32,
    /// Counter of guests, which includes this guest while it holds permits.
    crowd: Crowd,
    waiting: VecDeque<Call>,
}

/// The right of a guest's client to use a server connection; released when dropped.
#[derive(Debug)]
pub(crate) struct LeaseQuotaPermit(Arc<LeaseQuota>);

impl LeaseQuotaState {
    fn has_room(&self) -> bool {
        self.taken < share(self.connections, self.crowd.load(Ordering::Relaxed))
    }

    fn take(&mut self) {
        if self.taken == 0 {
            self.crowd.fetch_add(1, Ordering::Relaxed);
        }
        self.taken += 1;
    }
}

impl LeaseQuota {
    /// Returns a permit if there is room; otherwise `call` receives it later, on the thread that
    /// releases one.
    pub(crate) fn take(
        self: &Arc<LeaseQuota>,
        connections: u32,
        crowd: &Crowd,
        call: impl FnOnce() -> Call,
    ) -> Option<LeaseQuotaPermit> {
        let mut state = self.0.lock();
        state.connections = connections;
        if state.taken == 0 {
            state.crowd = Arc::clone(crowd);
        }
        if state.waiting.is_empty() && state.has_room() {
            state.take();
            return Some(LeaseQuotaPermit(Arc::clone(self)));
        }
        state.waiting.push_back(call());
        None
    }
}

impl Drop for LeaseQuotaPermit {
    fn drop(&mut self) {
        let mut calls = Vec::new();
        let mut state = self.0.0.lock();
        state.taken -= 1;
        // There is always room for one, so every client is served eventually.
        while (state.taken == 0 || state.has_room())
            && let Some(call) = state.waiting.pop_front()
        {
            state.taken += 1;
            calls.push(call);
        }
        if state.taken == 0 {
            state.crowd.fetch_sub(1, Ordering::Relaxed);
        }
        drop(state);
        for call in calls {
            call(LeaseQuotaPermit(Arc::clone(&self.0)));
        }
    }
}

impl fmt::Debug for LeaseQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        let (taken, waiting) = (state.taken, state.waiting.len());
        f.debug_struct("Turns").field("taken", &taken).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn one_part_is_left_for_who_comes_next() {
        for connections in 0..50 {
            for guests in 0..100 {
                let share = share(connections, guests);
                assert!(share >= 1);
                assert!(share == 1 || share * (guests + 1) <= connections);
            }
        }
        assert_eq!([share(20, 1), share(20, 3), share(20, 200), share(1, 1)], [10, 5, 1, 1]);
    }

    #[test]
    fn who_waits_is_called_in_order_and_nobody_is_forgotten() {
        let (crowd, turns, other) =
            (Crowd::default(), Arc::default(), Arc::<LeaseQuota>::default());
        let (tell, told) = mpsc::channel();
        let ask = |turns: &Arc<LeaseQuota>, name: u32| {
            let tell = tell.clone();
            turns.take(6, &crowd, || Box::new(move |turn| tell.send((name, turn)).unwrap()))
        };
        // While it is the only guest, its share is half of six.
        let mut held: Vec<LeaseQuotaPermit> =
            (0..3).map(|name| ask(&turns, name).expect("a turn")).collect();
        assert!((3..8).all(|name| ask(&turns, name).is_none()));
        assert_eq!(crowd.load(Ordering::Relaxed), 1);
        // With a second guest the share is a third each. The first keeps the permits that it has,
        // and gets no more.
        let others = [ask(&other, 100), ask(&other, 101)];
        assert!(others.iter().all(Option::is_some) && ask(&other, 102).is_none());
        drop(held.pop());
        assert!(told.try_recv().is_err(), "it has two, which is its part");
        drop(held.pop());
        let (name, third) = told.try_recv().expect("a call");
        assert_eq!(name, 3);
        drop(others);
        // The other guest waits for the permit that was handed out and not used.
        let (name, turn) = told.try_recv().expect("a call");
        assert_eq!(name, 102);
        drop((turn, held, third));
        let mut names = Vec::new();
        while let Ok((name, _turn)) = told.try_recv() {
            names.push(name);
        }
        assert_eq!(names, [4, 5, 6, 7]);
        assert_eq!(crowd.load(Ordering::Relaxed), 0, "{turns:?} {other:?}");
    }
}
