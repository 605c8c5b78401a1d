//! Locks by key, served in the order of arrival.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Place = Arc<tokio::sync::Mutex<()>>;

/// Locks of the keys that are locked or waited for. Other keys take no memory.
#[derive(Debug)]
pub struct KeyLocks<K: Eq + Hash + Clone> {
    places: Mutex<HashMap<K, Place>>,
}

impl<K: Eq + Hash + Clone> Default for KeyLocks<K> {
    fn default() -> Self {
        KeyLocks { places: Mutex::default() }
    }
}

/// The lock of a key, or the wait for it. The last one dropped removes the key from the map.
#[derive(Debug)]
pub struct KeyLockGuard<K: Eq + Hash + Clone> {
    locks: Arc<KeyLocks<K>>,
    key: K,
    place: Option<Place>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash + Clone> KeyLocks<K> {
    /// Waits for the key. Waiters are served in order; a cancelled wait leaves no trace.
    pub async fn lock(self: &Arc<Self>, key: K) -> KeyLockGuard<K> {
        let place = Arc::clone(self.places.lock().entry(key.clone()).or_default());
        let locks = Arc::clone(self);
        let mut guard = KeyLockGuard { locks, key, place: Some(Arc::clone(&place)), guard: None };
        guard.guard = Some(place.lock_owned().await);
        guard
    }
}

#[cfg(test)]
impl<K: Eq + Hash + Clone> KeyLocks<K> {
    /// Returns whether no key is locked or waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.places.lock().is_empty()
    }
}

impl<K: Eq + Hash + Clone> Drop for KeyLockGuard<K> {
    fn drop(&mut self) {
        drop(self.guard.take());
        drop(self.place.take());
        let mut places = self.locks.places.lock();
        // Only the map holds it: no other task can obtain it while the map is locked.
        if places.get(&self.key).is_some_and(|place| Arc::strong_count(place) == 1) {
            places.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_one_turn_at_a_time_and_nothing_stays() {
        let locks: Arc<KeyLocks<u32>> = Arc::default();
        let first = locks.lock(1).await;
        let other = locks.lock(2).await;
        let (waits, leaves) = (Arc::clone(&locks), Arc::clone(&locks));
        let second = tokio::spawn(async move { drop(waits.lock(1).await) });
        let third = tokio::spawn(async move { drop(leaves.lock(1).await) });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        third.abort();
        assert!(third.await.is_err());
        drop(first);
        second.await.unwrap();
        assert_eq!(locks.places.lock().len(), 1);
        drop(other);
        assert!(locks.places.lock().is_empty());
    }
}
