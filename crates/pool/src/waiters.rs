//! Waiting acquirers: a slab of places, linked into one first-come-first-served queue per key.
//!
//! Places are reused, so that waiting allocates nothing once the slab has grown. A place belongs to
//! the future that took it until that future releases it; no other code frees it, so a place number
//! needs no generation.

use std::task::Waker;
use std::time::Instant;

use crate::error::AcquireError;
use crate::key_state::Held;

/// A place in the slab.
pub(crate) type PlaceId = usize;

/// Content of a waiter's place.
#[derive(Debug)]
enum WaiterPlace<K, R> {
    Free {
        next: Option<PlaceId>,
    },
    /// In its key's queue. `waker` is the one that the future's last poll left.
    Queued {
        key: usize,
        deadline: Instant,
        waker: Waker,
        before: Option<PlaceId>,
        after: Option<PlaceId>,
    },
    /// Out of the queue with an answer that the future has not picked up yet.
    Granted(Held<K, R>),
    Failed(AcquireError),
}

/// The ends of one key's queue; kept in the key's record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaiterQueue {
    first: Option<PlaceId>,
    last: Option<PlaceId>,
    pub(crate) len: usize,
}

impl WaiterQueue {
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Result of polling a waiter's place.
pub(crate) enum WaiterAnswer<K, R> {
    Wait,
    Granted(Held<K, R>),
    Failed(AcquireError),
}

/// Content of the place of a dropped future.
pub(crate) enum WaiterLeft<K, R> {
    /// Still in the queue of this key.
    Queued(usize),
    /// A resource was granted that the future never picked up.
    Granted(Held<K, R>),
    /// A failure that the future never picked up.
    Failed,
}

/// All places.
#[derive(Debug)]
pub(crate) struct WaiterTable<K, R> {
    places: Vec<WaiterPlace<K, R>>,
    free: Option<PlaceId>,
    /// Places in any queue.
    pub(crate) queued: usize,
}

impl<K, R> WaiterTable<K, R> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: None, queued: 0 }
    }

    /// Appends to `queue`, the queue of `key`.
    pub(crate) fn push(
        &mut self,
        queue: &mut WaiterQueue,
        key: usize,
        deadline: Instant,
        waker: Waker,
    ) -> PlaceId {
        let place = WaiterPlace::Queued { key, deadline, waker, before: queue.last, after: None };
        let id = match self.free {
            Some(id) => {
                if let Some(WaiterPlace::Free { next }) = self.places.get(id) {
                    self.free = *next;
                }
                self.places[id] = place;
                id
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        };
        match queue.last {
            Some(last) => self.set_after(last, Some(id)),
            None => queue.first = Some(id),
        }
        queue.last = Some(id);
        queue.len += 1;
        self.queued += 1;
        id
    }

    /// Grants `held` to the first of `queue`. Returns `held` if no acquirer waits.
    pub(crate) fn grant(
        &mut self,
        queue: &mut WaiterQueue,
        held: Held<K, R>,
    ) -> Result<Waker, Held<K, R>> {
        let Some(first) = queue.first else { return Err(held) };
        match self.unlink(queue, first, WaiterPlace::Granted(held)) {
            Some((waker, _)) => Ok(waker),
            None => unreachable!("a queue links only queued places"),
        }
    }

    /// Fails the first of `queue`.
    pub(crate) fn fail_first(
        &mut self,
        queue: &mut WaiterQueue,
        error: AcquireError,
    ) -> Option<Waker> {
        let first = queue.first?;
        self.unlink(queue, first, WaiterPlace::Failed(error)).map(|(waker, _)| waker)
    }

    /// Fails those of `queue` whose deadline is not after `now`, hands their wakers to `wake`, and
    /// returns the earliest deadline of those that stay.
    pub(crate) fn expire(
        &mut self,
        queue: &mut WaiterQueue,
        now: Instant,
        mut wake: impl FnMut(Waker),
    ) -> Option<Instant> {
        let mut earliest: Option<Instant> = None;
        let mut next = queue.first;
        while let Some(id) = next {
            let Some(WaiterPlace::Queued { deadline, after, .. }) = self.places.get(id) else {
                break;
            };
            let deadline = *deadline;
            next = *after;
            if deadline <= now {
                if let Some((waker, _)) =
                    self.unlink(queue, id, WaiterPlace::Failed(AcquireError::Timeout))
                {
                    wake(waker);
                }
            } else {
                earliest = Some(earliest.map_or(deadline, |earliest| earliest.min(deadline)));
            }
        }
        earliest
    }

    /// Returns the answer for the future that owns `id`; an answer frees the place.
    pub(crate) fn poll(&mut self, id: PlaceId, current: &Waker) -> WaiterAnswer<K, R> {
        if let WaiterPlace::Queued { waker, .. } = &mut self.places[id] {
            waker.clone_from(current);
            return WaiterAnswer::Wait;
        }
        match self.release(id) {
            WaiterPlace::Granted(held) => WaiterAnswer::Granted(held),
            WaiterPlace::Failed(error) => WaiterAnswer::Failed(error),
            WaiterPlace::Free { .. } | WaiterPlace::Queued { .. } => {
                unreachable!("a future polls the place it owns")
            }
        }
    }

    /// Returns the key in whose queue `id` is, if it is queued.
    pub(crate) fn key_of(&self, id: PlaceId) -> Option<usize> {
        match self.places.get(id) {
            Some(WaiterPlace::Queued { key, .. }) => Some(*key),
            Some(WaiterPlace::Granted(_) | WaiterPlace::Failed(_) | WaiterPlace::Free { .. })
            | None => None,
        }
    }

    /// Releases the place. `queue` is the queue of the key that [`Self::key_of`] returned, or any
    /// other.
    pub(crate) fn leave(&mut self, id: PlaceId, queue: &mut WaiterQueue) -> WaiterLeft<K, R> {
        let free = WaiterPlace::Free { next: self.free };
        if let Some((_, key)) = self.unlink(queue, id, free) {
            self.free = Some(id);
            return WaiterLeft::Queued(key);
        }
        match self.release(id) {
            WaiterPlace::Granted(held) => WaiterLeft::Granted(held),
            WaiterPlace::Failed(_) => WaiterLeft::Failed,
            WaiterPlace::Free { .. } | WaiterPlace::Queued { .. } => {
                unreachable!("a future leaves the place it owns")
            }
        }
    }

    /// Frees a place that is in no queue.
    fn release(&mut self, id: PlaceId) -> WaiterPlace<K, R> {
        let place = std::mem::replace(&mut self.places[id], WaiterPlace::Free { next: self.free });
        self.free = Some(id);
        place
    }

    /// Removes a queued place from its queue and puts `instead` into it. Changes nothing for other
    /// places.
    fn unlink(
        &mut self,
        queue: &mut WaiterQueue,
        id: PlaceId,
        instead: WaiterPlace<K, R>,
    ) -> Option<(Waker, usize)> {
        if !matches!(self.places.get(id), Some(WaiterPlace::Queued { .. })) {
            return None;
        }
        let WaiterPlace::Queued { key, waker, before, after, .. } =
            std::mem::replace(&mut self.places[id], instead)
        else {
            return None;
        };
        match before {
            Some(before) => self.set_after(before, after),
            None => queue.first = after,
        }
        match after {
            Some(after) => self.set_before(after, before),
            None => queue.last = before,
        }
        queue.len -= 1;
        self.queued -= 1;
        Some((waker, key))
    }

    fn set_after(&mut self, id: PlaceId, to: Option<PlaceId>) {
        if let Some(WaiterPlace::Queued { after, .. }) = self.places.get_mut(id) {
            *after = to;
        }
    }

    fn set_before(&mut self, id: PlaceId, to: Option<PlaceId>) {
        if let Some(WaiterPlace::Queued { before, .. }) = self.places.get_mut(id) {
            *before = to;
        }
    }
}
