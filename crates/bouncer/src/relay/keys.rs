//! Virtual process ids and keys, with which clients cancel their statements.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::tenants::TenantId;

/// Bytes of a key in protocol 3.0.
pub(super) const KEY_BYTES: usize = 4;

/// Bytes of a key in protocol 3.2.
pub(super) const LONG_KEY_BYTES: usize = 32;

/// Number of parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// Attempts to find a free process id before the table counts as full; ids have 31 bits.
const DRAWS_MAX: usize = 64;

/// Owner of a cancel key.
struct CancelKeyOwner {
    thread: usize,
    place: u32,
    key: Box<[u8]>,
    /// Tenant and user of a client of MySQL, once it has logged in.
    who: Option<(TenantId, Arc<str>)>,
}

/// All keys of the process.
#[derive(Default)]
pub(super) struct CancelKeys {
    /// By process id.
    shards: [Mutex<HashMap<u32, CancelKeyOwner>>; SHARDS],
}

impl CancelKeys {
    /// Creates a process id and a key for a client.
    pub(super) fn register(
        &self,
        thread: usize,
        place: u32,
        key_bytes: usize,
    ) -> io::Result<(u32, Box<[u8]>)> {
        let mut key = vec![0; key_bytes].into_boxed_slice();
        getrandom::fill(&mut key)?;
        for _ in 0..DRAWS_MAX {
            // Positive, as process ids are: some clients read it as a signed number.
            let pid = getrandom::u32()? & 0x7fff_ffff;
            let mut shard = self.shard(pid).lock();
            if pid != 0 && !shard.contains_key(&pid) {
                shard.insert(pid, CancelKeyOwner { thread, place, key: key.clone(), who: None });
                return Ok((pid, key));
            }
        }
        Err(io::Error::other("no process id is free"))
    }

    /// Returns the key of a client.
    pub(super) fn key(&self, pid: u32) -> Option<Box<[u8]>> {
        self.shard(pid).lock().get(&pid).map(|owner| owner.key.clone())
    }

    /// Returns whether a client has this process id.
    pub(super) fn is_taken(&self, pid: u32) -> bool {
        self.shard(pid).lock().contains_key(&pid)
    }

    /// Adds a client that has a process id and a key from another process or node.
    pub(super) fn restore(&self, pid: u32, thread: usize, place: u32, key: &[u8]) {
        let owner = CancelKeyOwner { thread, place, key: key.into(), who: None };
        self.shard(pid).lock().insert(pid, owner);
    }

    /// Records the tenant and user of a client; clients of the same user may kill it.
    pub(super) fn own(&self, pid: u32, who: (TenantId, Arc<str>)) {
        if let Some(owner) = self.shard(pid).lock().get_mut(&pid) {
            owner.who = Some(who);
        }
    }

    /// Returns the thread and slot of the client with this process id, if it is of this user.
    pub(super) fn find_owned(
        &self,
        pid: u32,
        tenant: TenantId,
        user: &str,
    ) -> Option<(usize, u32)> {
        let shard = self.shard(pid).lock();
        let owner = shard.get(&pid)?;
        let is_it = owner.who.as_ref().is_some_and(|(of, name)| *of == tenant && **name == *user);
        is_it.then_some((owner.thread, owner.place))
    }

    /// Forgets a client.
    pub(super) fn remove(&self, pid: u32) {
        self.shard(pid).lock().remove(&pid);
    }

    /// Returns the thread and slot of the client with this process id, if the key matches.
    pub(super) fn find(&self, pid: u32, key: &[u8]) -> Option<(usize, u32)> {
        let shard = self.shard(pid).lock();
        // Clients of MySQL have no key: they are identified by their tenant and user.
        let owner = shard.get(&pid).filter(|owner| owner.who.is_none() && !owner.key.is_empty())?;
        is_same(&owner.key, key).then_some((owner.thread, owner.place))
    }

    fn shard(&self, pid: u32) -> &Mutex<HashMap<u32, CancelKeyOwner>> {
        &self.shards[pid as usize % SHARDS]
    }
}

/// Compares in a time that does not depend on where the bytes differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

impl fmt::Debug for CancelKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_finds_its_client() {
        let keys = CancelKeys::default();
        let (pid, key) = keys.register(1, 7, LONG_KEY_BYTES).expect("register");
        assert_eq!(keys.find(pid, &key), Some((1, 7)));
        assert_eq!(keys.find(pid, &key[..4]), None);
        assert_eq!(keys.find(pid, b""), None);
        assert_eq!(keys.find(pid ^ 1, &key), None);
        let mut wrong = key.clone();
        wrong[31] ^= 1;
        assert_eq!(keys.find(pid, &wrong), None);
        keys.remove(pid);
        assert_eq!(keys.find(pid, &key), None);
    }
}
