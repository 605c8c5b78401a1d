//! Documents that answers are made of, kept in memory up to a number of bytes.
//!
//! A name leads to an [`Entry`], which holds the bytes of the answers. What is kept is never older
//! than what was committed: who commits puts the new entry in place before the commit is answered,
//! and what somebody was reading from the store meanwhile is not kept.
//!
//! When the bytes are too many, what was not asked for since the last time around goes (the clock
//! algorithm): a scan over all tables does not push out those that are in use.

mod entry;
mod gzip;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

pub use self::entry::{Doc, Entry, Frames, Snapshots, WHOLE_BYTES_MAX};
use crate::ident::TableIdent;

/// Parts with a lock of their own.
const SHARDS: usize = 16;

/// Names that wait in a part's queue for each that is kept: some were removed meanwhile.
const QUEUE_FACTOR: usize = 2;

/// Names in a part's queue that are not worth sweeping for.
const QUEUE_MIN: usize = 64;

/// What something is kept by: the id of a warehouse, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Of the warehouse.
    pub warehouse: Arc<str>,
    /// Of the table or view.
    pub ident: TableIdent,
}

/// Entries by name.
#[derive(Debug)]
pub struct Cache {
    shards: Vec<RwLock<Shard>>,
    hasher: RandomState,
    /// What each part may hold.
    shard_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    slots: HashMap<Key, Slot>,
    /// Every kept name once, and some that are not kept any more.
    queue: VecDeque<Key>,
    bytes: usize,
    /// Names that are being read from the store, and whether they changed since.
    pending: HashMap<Key, bool>,
}

#[derive(Debug)]
struct Slot {
    entry: Arc<Entry>,
    bytes: usize,
    /// Set by readers, taken away by who looks for room.
    used: AtomicBool,
}

/// Somebody reads this name from the store. There is one such reader at a time.
#[derive(Debug)]
pub struct Reading<'a> {
    cache: &'a Cache,
    key: Key,
}

impl Cache {
    /// A cache that holds up to `bytes_max`; what alone is more than a sixteenth of it is not kept.
    #[must_use]
    pub fn new(bytes_max: usize) -> Cache {
        Cache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::new(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    /// The entry of this name, if it is kept.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let shard = self.shard(key).read();
        let slot = shard.slots.get(key)?;
        // Most are set already: readers of one table do not fight over a line of memory.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&slot.entry))
    }

    /// Says that this name is about to be read from the store.
    #[must_use]
    pub fn read(&self, key: Key) -> Reading<'_> {
        self.shard(&key).write().pending.insert(key.clone(), false);
        Reading { cache: self, key }
    }

    /// Puts what was committed in place.
    pub fn publish(&self, key: Key, entry: Arc<Entry>) {
        let mut shard = self.shard(&key).write();
        shard.touch(&key);
        shard.insert(key, entry, self.shard_bytes_max);
    }

    /// Forgets a name: there is nothing behind it any more, or something else.
    pub fn forget(&self, key: &Key) {
        let mut shard = self.shard(key).write();
        shard.touch(key);
        shard.remove(key);
    }

    /// Bytes that all entries take, and how many there are.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.read();
            (shard.bytes, shard.slots.len())
        });
        shards.fold((0, 0), |(bytes, count), (more, others)| (bytes + more, count + others))
    }

    fn shard(&self, key: &Key) -> &RwLock<Shard> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}

impl Reading<'_> {
    /// Keeps what was read, unless it was changed meanwhile.
    pub fn keep(self, entry: Arc<Entry>) {
        let mut shard = self.cache.shard(&self.key).write();
        if shard.pending.get(&self.key) == Some(&false) {
            shard.insert(self.key.clone(), entry, self.cache.shard_bytes_max);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.cache.shard(&self.key).write().pending.remove(&self.key);
    }
}

impl Shard {
    /// Whatever is being read of this name is old now.
    fn touch(&mut self, key: &Key) {
        if let Some(changed) = self.pending.get_mut(key) {
            *changed = true;
        }
    }

    fn insert(&mut self, key: Key, entry: Arc<Entry>, bytes_max: usize) {
        let bytes = entry.weight();
        if bytes > bytes_max {
            self.remove(&key);
            return;
        }
        let slot = Slot { entry, bytes, used: AtomicBool::new(true) };
        match self.slots.insert(key.clone(), slot) {
            Some(old) => self.bytes -= old.bytes,
            None => self.queue.push_back(key),
        }
        self.bytes += bytes;
        self.make_room(bytes_max);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.slots.remove(key) {
            self.bytes -= old.bytes;
        }
        if self.queue.len() > QUEUE_FACTOR * self.slots.len() + QUEUE_MIN {
            let mut seen = std::collections::HashSet::new();
            let slots = &self.slots;
            self.queue.retain(|key| slots.contains_key(key) && seen.insert(key.clone()));
        }
    }

    /// Removes what nobody asked for since the last time around. Ends: each name is passed over
    /// once at most.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(key) = self.queue.pop_front() else { return };
            match self.slots.get(&key) {
                None => {}
                Some(slot) if slot.used.swap(false, Ordering::Relaxed) => self.queue.push_back(key),
                Some(_) => {
                    if let Some(old) = self.slots.remove(&key) {
                        self.bytes -= old.bytes;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
