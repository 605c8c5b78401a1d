//! Documents for responses, kept in memory up to a number of bytes.
//!
//! A name maps to a [`CachedVersion`], which holds the bytes of responses and is charged the memory
//! that the allocator reserves for it, including later growth. A cached entry is never older than
//! the last commit: a commit publishes the new entry before it is acknowledged, and concurrent
//! reads from the store are not cached.
//!
//! If the cache exceeds its size, it evicts entries not used since the last pass (the clock
//! algorithm), beginning with those never used again: a scan over all tables does not evict those
//! in use.

mod entry;
mod gzip;
mod text;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use iceberg::ident::TableIdent;
use iceberg::memory;
use parking_lot::RwLock;

pub use self::entry::{CachedVersion, ParsedDocument, SnapshotSelection};
pub use self::text::{AnswerText, COPIED_BYTES_MAX, Frames};

/// Number of shards, each with its own lock.
const SHARDS: usize = 16;

/// Most names in a shard's queue for each cached one: some were removed meanwhile.
const QUEUE_FACTOR: usize = 2;

/// Length up to which a shard's queue is not compacted.
const QUEUE_MIN: usize = 64;

/// Divisor of the cache size for the largest entry; a larger one is not cached.
const LARGEST_PART: usize = 2;

/// Most passes over all shards in search of room. The first clears the marks of readers, the second
/// finds room, unless readers set the marks as fast.
const ROUNDS_MAX: usize = 4;

/// Key of an entry: the id of a warehouse, and a name in it.
#[derive(Clone, Debug)]
pub struct CacheKey {
    /// Id of the warehouse.
    pub warehouse: Arc<str>,
    /// Name of the table or view.
    pub ident: TableIdent,
}

impl CacheKey {
    /// Bytes that an entry of this name takes beside the entry itself: in the table and in the
    /// queue, both with spare capacity, and for names.
    fn weight(&self) -> usize {
        let (slot, queued) = (size_of::<(CacheKey, CacheSlot)>(), size_of::<CacheKey>());
        let levels = self.ident.namespace.levels();
        let namespace = memory::of_block((1 + levels.len()) * size_of::<Box<str>>())
            + levels.iter().map(|level| memory::of_block(level.len())).sum::<usize>();
        slot * 3 / 2 + queued * 3 / 2 + 2 * memory::of_block(self.ident.name.len()) + namespace
    }
}

/// Parts of a [`CacheKey`], for lookups without building one.
trait CacheKeyParts {
    fn parts(&self) -> (&str, &TableIdent);
}

impl CacheKeyParts for CacheKey {
    fn parts(&self) -> (&str, &TableIdent) {
        (&self.warehouse, &self.ident)
    }
}

impl CacheKeyParts for (&str, &TableIdent) {
    fn parts(&self) -> (&str, &TableIdent) {
        *self
    }
}

impl<'a> Borrow<dyn CacheKeyParts + 'a> for CacheKey {
    fn borrow(&self) -> &(dyn CacheKeyParts + 'a) {
        self
    }
}

impl Hash for dyn CacheKeyParts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn CacheKeyParts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn CacheKeyParts + '_ {}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for CacheKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for CacheKey {}

/// Entries by name.
#[derive(Debug)]
pub struct EntryCache {
    shards: Vec<RwLock<CacheShard>>,
    hasher: RandomState,
    bytes_max: usize,
    /// Bytes that all shards hold. Entries that grow add to it.
    bytes: Arc<AtomicUsize>,
    /// Shard in which the next search for room begins.
    hand: AtomicUsize,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Lookups that found a cached entry.
    pub hits: u64,
    /// Lookups of names that were not cached, or do not exist.
    pub misses: u64,
    /// Entries evicted for others.
    pub evictions: u64,
    /// Bytes of all entries, as reserved by the allocator.
    pub bytes: usize,
    /// Cached entries.
    pub entries: usize,
}

#[derive(Debug, Default)]
struct CacheShard {
    slots: HashMap<CacheKey, CacheSlot>,
    /// Every cached name once, and some that are no longer cached.
    queue: VecDeque<CacheKey>,
    /// Names that are being read from the store, and whether they changed since.
    pending: HashMap<CacheKey, bool>,
    /// Hits, counted by shard, so that readers of one shard do not slow down those of another.
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: u64,
}

#[derive(Debug)]
struct CacheSlot {
    entry: Arc<CachedVersion>,
    /// Bytes that it took when it was inserted.
    bytes: usize,
    /// Set by readers, cleared by the search for room.
    used: AtomicBool,
}

/// A read of this name from the store. There is one such reader at a time.
#[derive(Debug)]
pub struct CacheFill<'a> {
    cache: &'a EntryCache,
    key: CacheKey,
}

impl EntryCache {
    /// Creates a cache of up to `bytes_max`; an entry larger than half of it is not cached.
    #[must_use]
    pub fn new(bytes_max: usize) -> EntryCache {
        EntryCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::new(),
            bytes_max,
            bytes: Arc::default(),
            hand: AtomicUsize::new(0),
        }
    }

    /// Returns the entry of this name in the warehouse with this id, if it is cached.
    #[must_use]
    pub fn get(&self, warehouse: &str, ident: &TableIdent) -> Option<Arc<CachedVersion>> {
        // Entries grow while they are read.
        if self.bytes.load(Ordering::Relaxed) > self.bytes_max {
            self.make_room();
        }
        let key: &dyn CacheKeyParts = &(warehouse, ident);
        let shard = self.shard(key).read();
        let Some(slot) = shard.slots.get(key) else {
            shard.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        shard.hits.fetch_add(1, Ordering::Relaxed);
        // Most marks are already set: readers of one table do not contend for a cache line.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&slot.entry))
    }

    /// Announces that this name is about to be read from the store.
    #[must_use]
    pub fn read(&self, key: CacheKey) -> CacheFill<'_> {
        self.shard(&key).write().pending.insert(key.clone(), false);
        CacheFill { cache: self, key }
    }

    /// Inserts a committed version.
    pub fn publish(&self, key: CacheKey, entry: Arc<CachedVersion>) {
        {
            let mut shard = self.shard(&key).write();
            shard.touch(&key);
            self.insert(&mut shard, key, entry);
        }
        self.make_room();
    }

    /// Forgets a name: it no longer exists, or has another version.
    pub fn forget(&self, key: &CacheKey) {
        let mut shard = self.shard(key).write();
        shard.touch(key);
        self.bytes.fetch_sub(shard.remove(key), Ordering::Relaxed);
    }

    /// Returns the bytes and the number of all entries.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let count = self.shards.iter().map(|shard| shard.read().slots.len()).sum();
        (self.bytes.load(Ordering::Relaxed), count)
    }

    /// Returns the counters.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.shards.iter().fold(CacheFigures { bytes, ..CacheFigures::default() }, |all, shard| {
            let shard = shard.read();
            CacheFigures {
                hits: all.hits + shard.hits.load(Ordering::Relaxed),
                misses: all.misses + shard.misses.load(Ordering::Relaxed),
                evictions: all.evictions + shard.evictions,
                entries: all.entries + shard.slots.len(),
                ..all
            }
        })
    }

    /// Inserts an entry or replaces an older one.
    fn insert(&self, shard: &mut CacheShard, key: CacheKey, entry: Arc<CachedVersion>) {
        let bytes = entry.weight() + key.weight();
        if bytes > self.bytes_max / LARGEST_PART {
            self.bytes.fetch_sub(shard.remove(&key), Ordering::Relaxed);
            return;
        }
        // Added first: another thread may subtract them as soon as the entry is inserted.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        entry.enter(&self.bytes);
        let used = shard.slots.get(&key).is_some_and(|old| old.used.load(Ordering::Relaxed));
        let slot = CacheSlot { entry, bytes, used: AtomicBool::new(used) };
        match shard.slots.insert(key.clone(), slot) {
            Some(old) => drop(self.bytes.fetch_sub(old.release(), Ordering::Relaxed)),
            None => shard.queue.push_back(key),
        }
    }

    /// Evicts entries not used since the last pass, one lock at a time.
    fn make_room(&self) {
        for _ in 0..ROUNDS_MAX * SHARDS {
            if self.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                return;
            }
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = self.shards[index].write();
            for _ in 0..shard.queue.len() {
                if self.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                    return;
                }
                let released = shard.pass(self.bytes_max / LARGEST_PART);
                self.bytes.fetch_sub(released, Ordering::Relaxed);
            }
        }
    }

    fn shard(&self, key: &dyn CacheKeyParts) -> &RwLock<CacheShard> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}

impl CacheFill<'_> {
    /// Inserts the entry that was read, unless the name changed meanwhile.
    pub fn keep(self, entry: Arc<CachedVersion>) {
        {
            let mut shard = self.cache.shard(&self.key).write();
            if shard.pending.get(&self.key) == Some(&false) {
                self.cache.insert(&mut shard, self.key.clone(), entry);
            }
        }
        self.cache.make_room();
    }
}

impl Drop for CacheFill<'_> {
    fn drop(&mut self) {
        self.cache.shard(&self.key).write().pending.remove(&self.key);
    }
}

impl CacheSlot {
    /// Releases the entry. Returns the bytes that it took when it was inserted; later growth is
    /// subtracted here.
    fn release(self) -> usize {
        self.entry.leave();
        self.bytes
    }
}

impl CacheShard {
    /// Marks a pending read of this name as outdated.
    fn touch(&mut self, key: &CacheKey) {
        if let Some(changed) = self.pending.get_mut(key) {
            *changed = true;
        }
    }

    /// Removes a name. Returns the bytes that this frees.
    fn remove(&mut self, key: &CacheKey) -> usize {
        let bytes = self.slots.remove(key).map_or(0, CacheSlot::release);
        if self.queue.len() > QUEUE_FACTOR * self.slots.len() + QUEUE_MIN {
            let mut seen = HashSet::new();
            let slots = &self.slots;
            self.queue.retain(|key| slots.contains_key(key) && seen.insert(key.clone()));
        }
        bytes
    }

    /// Looks at the first name of the queue: its entry is removed if it is not marked as used or
    /// has grown beyond `entry_bytes_max`; otherwise it loses its mark and is queued again. Returns
    /// the number of bytes released.
    fn pass(&mut self, entry_bytes_max: usize) -> usize {
        let Some(key) = self.queue.pop_front() else { return 0 };
        match self.slots.get(&key) {
            None => 0,
            // Else a few entries that grew could push out all others.
            Some(slot)
                if slot.bytes + slot.entry.grown() <= entry_bytes_max
                    && slot.used.swap(false, Ordering::Relaxed) =>
            {
                self.queue.push_back(key);
                0
            }
            Some(_) => {
                self.evictions += 1;
                self.slots.remove(&key).map_or(0, CacheSlot::release)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
