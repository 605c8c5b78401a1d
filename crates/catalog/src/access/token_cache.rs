//! Bearer tokens that were looked up or verified once, by their hash: a repeated request needs no
//! database and no signature check.
//!
//! All entries can be recomputed, so entries that do not fit are dropped.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::random::Hash;
use crate::principal::CatalogPrincipal;

/// Most tokens in memory.
pub const KNOWN_MAX: usize = 65_536;

/// Number of shards, each with its own lock; the first byte of a token's hash selects the shard.
const SHARDS: usize = 16;

/// Most tokens of a shard.
const SHARD_MAX: usize = KNOWN_MAX / SHARDS;

type Shard = HashMap<Hash, BearerOwner, BuildHasherDefault<HashPrefix>>;

/// Uses eight bytes of a hash as the hash for the map: they are uniformly distributed, and only
/// this server inserts tokens.
#[derive(Debug, Default)]
struct HashPrefix(u64);

impl Hasher for HashPrefix {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.get(8..).and_then(<[u8]>::first_chunk) {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length prefix, which is the same for all.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Owner of a token.
#[derive(Clone, Debug)]
pub(super) struct BearerOwner {
    pub(super) who: CatalogPrincipal,
    /// Hash of the client's secret that the token was issued for; `None` for other tokens.
    pub(super) secret: Option<Hash>,
    /// End of its validity (milliseconds since 1970).
    pub(super) ends_ms: u64,
}

/// Tokens in memory.
#[derive(Debug, Default)]
pub(super) struct TokenCache {
    shards: [RwLock<Shard>; SHARDS],
    /// Counts revocations. A token that was looked up before a revocation is not inserted after it.
    epoch: AtomicU64,
}

impl TokenCache {
    /// Returns the owner of a token, even if the token has expired.
    pub(super) fn find(&self, hash: &Hash) -> Option<BearerOwner> {
        self.shard(hash).read().get(hash).cloned()
    }

    /// Returns the epoch for [`TokenCache::put`]: to be read before the token is looked up.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Inserts a token, unless any token was revoked since `epoch`.
    pub(super) fn put(&self, hash: Hash, bearer: BearerOwner, epoch: u64, now_ms: u64) {
        let mut shard = self.shard(&hash).write();
        // Checked under the lock: a revocation first increments the epoch and then removes the
        // token.
        if self.epoch() != epoch {
            return;
        }
        if shard.len() >= SHARD_MAX {
            shard.retain(|_, bearer| bearer.ends_ms > now_ms);
        }
        if shard.len() >= SHARD_MAX {
            // Evicts half of them, by an effectively random bit.
            let bit = u32::from(hash[1] % 8);
            shard.retain(|hash, _| hash[2] >> bit & 1 == 0);
        }
        if shard.len() < SHARD_MAX {
            shard.insert(hash, bearer);
        }
    }

    /// Removes a revoked token.
    pub(super) fn forget(&self, hash: &Hash) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.shard(hash).write().remove(hash);
    }

    /// Removes the tokens of unwanted principals.
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
        // Expired tokens are evicted first.
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
