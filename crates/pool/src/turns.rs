//! Turns of keys that share a resource: which one is next, however much each has waiting.
//!
//! [`TurnOrder`] keeps the keys in the order of their turns, each with a queue of its own. Its user
//! defines the queue and which of its items goes first. [`RoundRobin`] is the usual case: items of
//! each key in order of arrival. Both are plain values; their user holds the lock, wakes waiters,
//! and bounds the queues.
//!
//! This is round robin with one item a turn (J. Nagle, "On packet switches with infinite storage",
//! RFC 970, <https://www.rfc-editor.org/rfc/rfc970>). For shares by weight use
//! [`shares`](crate::shares).
//!
//! # Invariants
//! - A key is in the order once. It joins behind all present keys, and goes behind them again when
//!   it is sent back: so it waits for at most one turn of each other key.
//! - A key that leaves changes nothing about the turns of others.
//! - Every operation on one key takes constant time. [`RoundRobin::pop`] hashes a key only if its
//!   queue becomes empty.
//! - Slots are reused, and so are queues of [`RoundRobin`] that did not grow long: in the long run
//!   a key that joins and leaves allocates nothing.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Maximum number of empty queues that [`RoundRobin`] keeps for keys that join.
const SPARES_MAX: usize = 32;
/// Maximum capacity, in items, of a queue that is kept: a flood's memory is released.
const SPARE_CAPACITY_MAX: usize = 256;

/// Keys in the order of their turns, each with a queue of its own. See the [module](self).
#[derive(Debug)]
pub struct TurnOrder<K, Q> {
    slots: Vec<TurnSlot<K, Q>>,
    /// Slots without a member.
    free: Vec<usize>,
    by_key: HashMap<K, usize>,
    /// Slot of the key whose turn it is; the last key's slot is before it.
    first: Option<usize>,
}

/// Slot of a ring, in which the first slot follows the last.
#[derive(Debug)]
struct TurnSlot<K, Q> {
    member: Option<TurnMember<K, Q>>,
    before: usize,
    after: usize,
}

#[derive(Debug)]
struct TurnMember<K, Q> {
    key: K,
    queue: Q,
}

/// A key that is in a [`TurnOrder`].
#[derive(Debug)]
pub struct TurnEntry<'a, K, Q> {
    order: &'a mut TurnOrder<K, Q>,
    slot: usize,
}

impl<K, Q> Default for TurnOrder<K, Q> {
    fn default() -> TurnOrder<K, Q> {
        TurnOrder { slots: Vec::new(), free: Vec::new(), by_key: HashMap::new(), first: None }
    }
}

impl<K: Clone + Eq + Hash, Q> TurnOrder<K, Q> {
    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns whether no key is in the order.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns a key as it joined, with its queue; none if it is not in the order.
    #[must_use]
    pub fn get<B>(&self, key: &B) -> Option<(&K, &Q)>
    where
        K: Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        let TurnMember { key, queue } = self.member(*self.by_key.get(key)?);
        Some((key, queue))
    }

    /// Returns the entry of a key; none if it is not in the order.
    pub fn entry<B>(&mut self, key: &B) -> Option<TurnEntry<'_, K, Q>>
    where
        K: Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        let slot = *self.by_key.get(key)?;
        Some(TurnEntry { order: self, slot })
    }

    /// Returns the entry of the key whose turn it is.
    pub fn first(&mut self) -> Option<TurnEntry<'_, K, Q>> {
        let slot = self.first?;
        Some(TurnEntry { order: self, slot })
    }

    /// Returns the queue of a key. A key that is not in the order joins with `queue` behind all
    /// others.
    pub fn join(&mut self, key: K, queue: impl FnOnce() -> Q) -> &mut Q {
        use std::collections::hash_map::Entry;
        let slot = match self.by_key.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                let member = Some(TurnMember { key: vacant.key().clone(), queue: queue() });
                let slot = match self.free.pop() {
                    Some(slot) => {
                        self.slots[slot].member = member;
                        slot
                    }
                    None => {
                        let slot = self.slots.len();
                        self.slots.push(TurnSlot { member, before: slot, after: slot });
                        slot
                    }
                };
                vacant.insert(slot);
                self.link_last(slot);
                slot
            }
        };
        &mut self.member_mut(slot).queue
    }

    /// Returns all keys with their queues, in the order of their turns.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Q)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let slot = next?;
            let after = self.slots[slot].after;
            next = (Some(after) != self.first).then_some(after);
            let TurnMember { key, queue } = self.member(slot);
            Some((key, queue))
        })
    }

    /// Returns the queues of all keys, in no order.
    pub fn queues_mut(&mut self) -> impl Iterator<Item = &mut Q> {
        let members = self.slots.iter_mut().filter_map(|slot| slot.member.as_mut());
        members.map(|member| &mut member.queue)
    }

    fn member(&self, slot: usize) -> &TurnMember<K, Q> {
        self.slots[slot].member.as_ref().expect("a slot that is linked has a member")
    }

    fn member_mut(&mut self, slot: usize) -> &mut TurnMember<K, Q> {
        self.slots[slot].member.as_mut().expect("a slot that is linked has a member")
    }

    fn link_last(&mut self, slot: usize) {
        let first = *self.first.get_or_insert(slot);
        let last = if first == slot { slot } else { self.slots[first].before };
        self.slots[slot].before = last;
        self.slots[slot].after = first;
        self.slots[last].after = slot;
        self.slots[first].before = slot;
    }

    fn unlink(&mut self, slot: usize) {
        let TurnSlot { before, after, .. } = self.slots[slot];
        self.slots[before].after = after;
        self.slots[after].before = before;
        if self.first == Some(slot) {
            self.first = (after != slot).then_some(after);
        }
    }
}

impl<K: Clone + Eq + Hash, Q> TurnEntry<'_, K, Q> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.order.member(self.slot).key
    }

    /// Returns the queue of the key.
    #[must_use]
    pub fn queue(&self) -> &Q {
        &self.order.member(self.slot).queue
    }

    /// Returns the queue of the key.
    #[must_use]
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.order.member_mut(self.slot).queue
    }

    /// Moves the key behind all others after its turn.
    pub fn send_back(self) {
        self.order.unlink(self.slot);
        self.order.link_last(self.slot);
    }

    /// Removes the key from the order, and returns its queue.
    pub fn leave(self) -> Q {
        self.order.unlink(self.slot);
        self.order.free.push(self.slot);
        let member = self.order.slots[self.slot].member.take();
        let TurnMember { key, queue } = member.expect("a slot that is linked has a member");
        self.order.by_key.remove(&key);
        queue
    }
}

/// Waiting items by key: those of one key in order of arrival, keys in turn. See the
/// [module](self).
///
/// ```
/// let mut waiting = pool::RoundRobin::default();
/// for (key, item) in [("flood", 1), ("flood", 2), ("flood", 3), ("quiet", 4)] {
///     waiting.push(key, item);
/// }
/// let order: Vec<i32> = std::iter::from_fn(|| waiting.pop()).collect();
/// assert_eq!(order, [1, 4, 2, 3]);
/// ```
#[derive(Debug)]
pub struct RoundRobin<K, T> {
    /// Keys with items.
    order: TurnOrder<K, VecDeque<T>>,
    /// Items of all keys.
    len: usize,
    /// Empty queues, for keys that join.
    spares: Vec<VecDeque<T>>,
}

impl<K, T> Default for RoundRobin<K, T> {
    fn default() -> RoundRobin<K, T> {
        RoundRobin { order: TurnOrder::default(), len: 0, spares: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, T> RoundRobin<K, T> {
    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of keys that have items.
    #[must_use]
    pub fn keys_waiting(&self) -> usize {
        self.order.len()
    }

    /// Appends an item to those of its key.
    pub fn push(&mut self, key: K, item: T) {
        let queue = self.order.join(key, || self.spares.pop().unwrap_or_default());
        queue.push_back(item);
        self.len += 1;
    }

    /// Takes the first item of the key whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let mut first = self.order.first()?;
        let item = first.queue_mut().pop_front();
        if first.queue().is_empty() {
            let queue = first.leave();
            if self.spares.len() < SPARES_MAX && queue.capacity() <= SPARE_CAPACITY_MAX {
                self.spares.push(queue);
            }
        } else {
            first.send_back();
        }
        self.len -= 1;
        item
    }
}
