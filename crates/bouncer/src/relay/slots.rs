//! Numbered slots of one thread: clients, server connections, cancel connections.
//!
//! The number of a slot is its token in epoll and its key everywhere else. A released slot is not
//! reused before the end of the turn, because an event for its former owner may be in the same
//! batch.

/// Slots, some of them occupied. Grows to the maximum number ever used at once.
#[derive(Debug)]
pub(crate) struct SlotMap<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    /// Released in this turn; free from the next one on.
    retired: Vec<u32>,
}

impl<T> SlotMap<T> {
    /// Creates a map without slots.
    pub(crate) const fn new() -> Self {
        SlotMap { places: Vec::new(), free: Vec::new(), retired: Vec::new() }
    }

    /// Reserves the slot that was released last, or a new one; it must be occupied or given up.
    pub(crate) fn reserve(&mut self) -> u32 {
        if let Some(key) = self.free.pop() {
            return key;
        }
        // Descriptors run out long before 32 bits do.
        let key = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(None);
        key
    }

    /// Puts `value` into a reserved slot.
    pub(crate) fn occupy(&mut self, key: u32, value: T) {
        self.places[key as usize] = Some(value);
    }

    /// Releases a slot that was reserved and never occupied.
    pub(crate) fn give_up(&mut self, key: u32) {
        self.retired.push(key);
    }

    /// Returns the entry at `key`, if there is one.
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.places.get(key as usize)?.as_ref()
    }

    /// Returns the entry for changes.
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.places.get_mut(key as usize)?.as_mut()
    }

    /// Removes the entry; its number stays unused until [`SlotMap::turn`].
    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.places.get_mut(key as usize)?.take()?;
        self.retired.push(key);
        Some(value)
    }

    /// Ends a turn: slots released in it may be reused.
    pub(crate) fn turn(&mut self) {
        self.free.append(&mut self.retired);
    }

    /// Returns all entries with their keys, in the order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(key, place)| Some((key, place.as_ref()?)))
    }

    /// Returns the keys that are in use.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_used_again_within_the_turn() {
        let mut slots = SlotMap::new();
        let insert = |slots: &mut SlotMap<&'static str>, value| {
            let key = slots.reserve();
            slots.occupy(key, value);
            key
        };
        let (a, b) = (insert(&mut slots, "a"), insert(&mut slots, "b"));
        assert_eq!(slots.remove(a), Some("a"));
        assert_eq!(slots.remove(a), None);
        let c = insert(&mut slots, "c");
        assert!(c != a && c != b);
        slots.turn();
        assert_eq!(insert(&mut slots, "d"), a);
        assert_eq!(slots.keys(), [0, 1, 2]);
        assert_eq!(slots.get(b), Some(&"b"));
        let e = slots.reserve();
        slots.give_up(e);
        assert_eq!(slots.get(e), None);
    }
}
