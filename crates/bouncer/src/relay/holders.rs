//! Holders of server connections, shared by all threads: notifications contain the process id of
//! the server, but clients know one another by their virtual process ids.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::tenants::PoolId;

/// Time after a change of a server connection's holder in which a notification may still be from
/// the previous client, in microseconds.
const SETTLED_US: u64 = 100_000;

/// The server connections of the process.
#[derive(Debug, Default)]
pub(super) struct ServerHolders(RwLock<HashMap<(PoolId, u32), Arc<ServerHolder>>>);

/// Holder of a server connection.
#[derive(Debug, Default)]
struct ServerHolder {
    pid: AtomicU32,
    before: AtomicU32,
    since_us: AtomicU64,
}

/// Entry of a server connection, until this is dropped.
#[derive(Debug)]
pub(super) struct HolderEntry {
    holders: Arc<ServerHolders>,
    key: (PoolId, u32),
    holder: Arc<ServerHolder>,
}

/// Possible sender of a notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NotificationSender {
    /// Process id of the server.
    pub(super) server: u32,
    /// Virtual process id of the client that holds the connection.
    pub(super) now: Option<u32>,
    /// Client that held the connection just before.
    pub(super) before: Option<u32>,
}

impl ServerHolders {
    /// Adds the connection of a pool to the server process with this id.
    pub(super) fn enter(self: &Arc<Self>, pool: PoolId, pid: u32) -> HolderEntry {
        let (key, holder) = ((pool, pid), Arc::<ServerHolder>::default());
        self.0.write().insert(key, Arc::clone(&holder));
        HolderEntry { holders: Arc::clone(self), key, holder }
    }

    /// Returns the possible senders of a notification from this process.
    pub(super) fn sender(&self, pool: PoolId, server: u32, now_us: u64) -> NotificationSender {
        let known = self.0.read().get(&(pool, server)).map(Arc::clone);
        let Some(holder) = known else {
            return NotificationSender { server, now: None, before: None };
        };
        let some = |pid: u32| Some(pid).filter(|pid| *pid != 0);
        let since_us = holder.since_us.load(Ordering::Relaxed);
        let is_settled = now_us.saturating_sub(since_us) >= SETTLED_US;
        let before = some(holder.before.load(Ordering::Relaxed)).filter(|_| !is_settled);
        NotificationSender { server, now: some(holder.pid.load(Ordering::Relaxed)), before }
    }
}

impl HolderEntry {
    /// Records that a client holds the connection now.
    pub(super) fn taken_by(&self, pid: u32, now_us: u64) {
        let before = self.holder.pid.load(Ordering::Relaxed);
        if before != pid {
            self.holder.before.store(before, Ordering::Relaxed);
            self.holder.since_us.store(now_us, Ordering::Relaxed);
            self.holder.pid.store(pid, Ordering::Relaxed);
        }
    }
}

impl Drop for HolderEntry {
    fn drop(&mut self) {
        self.holders.0.write().remove(&self.key);
    }
}

impl NotificationSender {
    /// Returns the process id that is shown to `client`. Many clients ignore their own
    /// notifications; so a client is shown its own id only if it certainly is the sender.
    pub(super) fn as_seen_by(&self, client: u32) -> u32 {
        let is_unsure = self.before.is_some() && [self.now, self.before].contains(&Some(client));
        self.now.filter(|_| !is_unsure).unwrap_or(self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_taken_for_the_sender_who_may_not_be() {
        let holders = Arc::new(ServerHolders::default());
        let entry = holders.enter(PoolId(1), 100);
        let seen = |now_us: u64, client| holders.sender(PoolId(1), 100, now_us).as_seen_by(client);
        assert_eq!(seen(0, 7), 100);
        entry.taken_by(7, 0);
        assert_eq!((seen(0, 7), seen(0, 8)), (7, 7));
        entry.taken_by(8, 10);
        entry.taken_by(8, 20);
        assert_eq!((seen(20, 7), seen(20, 8), seen(20, 9)), (100, 100, 8));
        assert_eq!((seen(200_000, 7), seen(200_000, 8)), (8, 8));
        assert_eq!(holders.sender(PoolId(2), 100, 0).as_seen_by(7), 100);
        drop(entry);
        assert_eq!(seen(300_000, 8), 100);
    }
}
