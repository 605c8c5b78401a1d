//! Bearers' tokens that were looked up or verified once, by their hash: a request of somebody who
//! was here before needs no database and no signature.
//!
//! Everything in it can be found out again, so that what does not fit is left out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::random::Hash;
use crate::principal::CatalogPrincipal;

/// Most tokens in memory.
pub const KNOWN_MAX: usize = 65_536;

/// Parts with a lock of their own; a token is in the one that the first byte of its hash says.
const SHARDS: usize = 16;

/// Most tokens of a part.
const SHARD_MAX: usize = KNOWN_MAX / SHARDS;

type Shard = HashMap<Hash, BearerOwner, BuildHasherDefault<HashPrefix>>;

/// Eight bytes of a hash, for a table: they are as good as drawn, and nobody but this server puts
/// tokens in.
#[derive(Debug, Default)]
struct HashPrefix(u64);

impl Hasher for HashPrefix {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.get(8..).and_then(<[u8]>::first_chunk) {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length, which is the same for all.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Owner of a token.
#[derive(Clone, Debug)]
pub(super) struct BearerOwner {
    pub(super) who: CatalogPrincipal,
    /// Hash of the client's secret that the token was issued for; none for other tokens.
    pub(super) secret: Option<Hash>,
    /// Until when it is good (milliseconds since 1970).
    pub(super) ends_ms: u64,
}

/// Tokens in memory.
#[derive(Debug, Default)]
pub(super) struct TokenCache {
    shards: [RwLock<Shard>; SHARDS],
    /// Counts what was taken back. What was looked up before that is not put in afterwards.
    epoch: AtomicU64,
}

impl TokenCache {
    /// Returns whose a token is, whether it is good still or not.
    pub(super) fn find(&self, hash: &Hash) -> Option<BearerOwner> {
        self.shard(hash).read().get(hash).cloned()
    }

    /// Returns what [`TokenCache::put`] wants to know: ask before the token is looked up.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Remembers a token, unless anything was taken back since.
    pub(super) fn put(&self, hash: Hash, bearer: BearerOwner, epoch: u64, now_ms: u64) {
        let mut shard = self.shard(&hash).write();
        // Looked at with the lock held: who takes a token back counts first and removes then.
        if self.epoch() != epoch {
            return;
        }
        if shard.len() >= SHARD_MAX {
            shard.retain(|_, bearer| bearer.ends_ms > now_ms);
        }
        if shard.len() >= SHARD_MAX {
            // Half of them, by a bit that is as good as drawn.
            let bit = u32::from(hash[1] % 8);
            shard.retain(|hash, _| hash[2] >> bit & 1 == 0);
        }
        if shard.len() < SHARD_MAX {
            shard.insert(hash, bearer);
        }
    }

    /// Forgets a token that is good no more.
    pub(super) fn forget(&self, hash: &Hash) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.shard(hash).write().remove(hash);
    }

    /// Forgets what is not to be kept.
    pub(super) fn keep(&self, wanted: impl Fn(&CatalogPrincipal) -> bool) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for shard in &self.shards {
            shard.write().retain(|_, bearer| wanted(&bearer.who));
        }
    }

    fn shard(&self, hash: &Hash) -> &RwLock<Shard> {
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(name: &str, ends_ms: u64) -> BearerOwner {
        BearerOwner { who: CatalogPrincipal::new(name, name), secret: None, ends_ms }
    }

    fn hash(number: usize) -> Hash {
        let mut hash = [0; 32];
        // The first byte is the same, so that all are in one part.
        hash[8..16].copy_from_slice(&number.to_le_bytes());
        let drawn = super::super::random::hash(&number.to_string());
        hash[1..3].copy_from_slice(&drawn[..2]);
        hash
    }

    #[test]
    fn what_was_taken_back_meanwhile_is_not_remembered() {
        let known = TokenCache::default();
        let before = known.epoch();
        known.put(hash(1), bearer("a", 10), before, 0);
        assert_eq!(known.find(&hash(1)).map(|it| it.ends_ms), Some(10));
        known.forget(&hash(1));
        assert!(known.find(&hash(1)).is_none());
        known.put(hash(1), bearer("a", 10), before, 0);
        assert!(known.find(&hash(1)).is_none());
        for (number, name) in [(1, "a"), (2, "b")] {
            known.put(hash(number), bearer(name, 10), known.epoch(), 0);
        }
        known.keep(|who| &*who.id == "b");
        assert!(known.find(&hash(1)).is_none() && known.find(&hash(2)).is_some());
    }

    #[test]
    fn there_is_room_for_one_more_and_never_for_too_many() {
        let known = TokenCache::default();
        for number in 0..3 * SHARD_MAX {
            known.put(hash(number), bearer("a", 10), known.epoch(), 0);
            assert!(known.shards[0].read().len() <= SHARD_MAX);
        }
        assert!(known.shards[0].read().len() > SHARD_MAX / 4);
        // What has ended goes first.
        let full = |known: &TokenCache| known.shards[0].read().len() == SHARD_MAX;
        for number in 3 * SHARD_MAX.. {
            if full(&known) {
                break;
            }
            known.put(hash(number), bearer("a", 10), known.epoch(), 0);
        }
        known.put(hash(0), bearer("b", 30), known.epoch(), 20);
        let shard = known.shards[0].read();
        assert!(shard.values().all(|it| it.ends_ms == 30), "{}", shard.len());
        assert_eq!(shard.len(), 1);
    }
}
