//! Handles, permits and letter boxes: the ledger behind a lock, and the figures read without it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::ledger::{
    DeniedBound, FinishedVerdict, KeyId, QuotaEffect, QuotaLedger, SharedServerId, SharedTenantId,
    TenantQuota, must_ask,
};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};

/// Notifies a thread that its letter box has a letter.
pub trait ThreadWake: Send + Sync {
    /// Makes the thread check its letter box soon. Called without any lock of this crate.
    fn wake(&self, thread: usize);
}

/// Message to a thread.
#[derive(Debug)]
pub enum ThreadLetter {
    /// A slot that was wanted. If dropped, it goes to the next in line.
    Granted(SlotPermit),
    /// Close the longest idle connection of this key, if there is one: another key has the better
    /// claim to its slot.
    Reclaim(UserHandle),
}

/// Decision about a connection whose user has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The connection stays.
    Keep,
    /// Close the connection, then drop the permit.
    GiveUp,
}

/// The ledger of one process, shared by all its threads. Cheap to clone.
#[derive(Clone)]
pub struct ConnectionShares(Arc<SharesInner>);

struct SharesInner {
    state: Mutex<SharesState>,
    /// Weak, because letters hold permits and permits hold this struct.
    boxes: Box<[Weak<LetterBox>]>,
    wake: Box<dyn ThreadWake>,
    /// Origin of the times in seats.
    begin: Instant,
}

struct SharesState {
    ledger: QuotaLedger,
    /// By [`KeyId::index`].
    keys: Vec<(Weak<KeyInner>, Arc<[ThreadSeat]>)>,
    /// Kept to reuse its memory.
    effects: Vec<QuotaEffect>,
}

#[derive(Debug)]
struct LetterBox(Mutex<Vec<ThreadLetter>>);

/// Letter box of one thread. After it is dropped, slots in letters for the thread are released.
#[derive(Debug)]
pub struct ThreadHandle {
    thread: usize,
    letters: Arc<LetterBox>,
}

impl ThreadHandle {
    /// Returns the number of the thread.
    #[must_use]
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Moves all letters to `into`.
    pub fn take_letters(&self, into: &mut Vec<ThreadLetter>) {
        into.append(&mut self.letters.0.lock());
    }
}

/// A server's slots. The last clone removes it from the ledger.
#[derive(Clone, Debug)]
pub struct ServerHandle(Arc<ServerInner>);

/// A tenant of a server. The last clone, counting its keys, removes it from the ledger.
#[derive(Clone, Debug)]
pub struct TenantHandle(Arc<TenantInner>);

/// A tenant's connections as one user. The last clone, counting permits, removes it.
#[derive(Clone)]
pub struct UserHandle(Arc<KeyInner>);

struct ServerInner {
    shares: ConnectionShares,
    id: SharedServerId,
}

struct TenantInner {
    /// Keeps it in the ledger.
    server: ServerHandle,
    id: SharedTenantId,
}

struct KeyInner {
    tenant: TenantHandle,
    id: KeyId,
    server_flags: Arc<AtomicU32>,
    tenant_flags: Arc<AtomicU32>,
    seats: Arc<[ThreadSeat]>,
    /// Number of threads whose seats say that a client waits.
    waiting_threads: AtomicU32,
}

/// Figures of one thread's connections of a key, read by the other threads. On a cache line of its
/// own, because it is written at every turn and read only when a client is in need.
#[derive(Debug)]
#[repr(align(64))]
struct ThreadSeat {
    /// Time since which its longest idle connection is idle, or 0.
    idle_since: AtomicU64,
    /// Time since which its first client waits, or 0.
    waiting_since: AtomicU64,
}

impl ConnectionShares {
    /// Creates a ledger for `threads` threads, and a handle for each. `now` is the earliest time
    /// that may be passed to it.
    #[must_use]
    pub fn new(
        threads: usize,
        wake: Box<dyn ThreadWake>,
        now: Instant,
    ) -> (ConnectionShares, Vec<ThreadHandle>) {
        let handles: Vec<ThreadHandle> = (0..threads)
            .map(|thread| ThreadHandle {
                thread,
                letters: Arc::new(LetterBox(Mutex::new(Vec::new()))),
            })
            .collect();
        let boxes = handles.iter().map(|handle| Arc::downgrade(&handle.letters)).collect();
        let state =
            SharesState { ledger: QuotaLedger::default(), keys: Vec::new(), effects: Vec::new() };
        let inner = SharesInner { state: Mutex::new(state), boxes, wake, begin: now };
        (ConnectionShares(Arc::new(inner)), handles)
    }

    /// Adds a server with `connections_max` slots.
    #[must_use]
    pub fn server(&self, connections_max: u32) -> ServerHandle {
        let id = self.with_ledger(|ledger| ledger.add_server(connections_max));
        ServerHandle(Arc::new(ServerInner { shares: self.clone(), id }))
    }

    /// Calls `act` with the ledger locked, and delivers the resulting letters.
    fn with_ledger<T>(&self, act: impl FnOnce(&mut QuotaLedger) -> T) -> T {
        self.with_state(|state| act(&mut state.ledger))
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut SharesState) -> T) -> T {
        let mut post = Vec::new();
        let result = {
            let mut state = self.0.state.lock();
            let result = act(&mut state);
            state.write_letters(&mut post);
            result
        };
        // After the lock: a letter that cannot be delivered is dropped, which locks it again.
        for (thread, letter) in post {
            if let Some(letters) = self.0.boxes.get(thread).and_then(Weak::upgrade) {
                letters.0.lock().push(letter);
                self.0.wake.wake(thread);
            }
        }
        result
    }

    /// Encodes a time as nanoseconds since the beginning, plus one: 0 means none.
    fn encode_time(&self, time: Option<Instant>) -> u64 {
        time.map_or(0, |time| {
            let since = time.saturating_duration_since(self.0.begin).as_nanos();
            u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
        })
    }

    fn decode_time(&self, nanos: u64) -> Option<Instant> {
        nanos.checked_sub(1).map(|since| self.0.begin + Duration::from_nanos(since))
    }
}

impl SharesState {
    /// Converts effects into letters.
    fn write_letters(&mut self, post: &mut Vec<(usize, ThreadLetter)>) {
        loop {
            self.ledger.take_effects(&mut self.effects);
            if self.effects.is_empty() {
                return;
            }
            for effect in self.effects.drain(..) {
                match effect {
                    QuotaEffect::Granted { key: id, thread } => {
                        match self.keys.get(id.index()).and_then(|(key, _)| key.upgrade()) {
                            Some(key) => {
                                let permit = SlotPermit { key: UserHandle(key), to: None };
                                post.push((thread, ThreadLetter::Granted(permit)));
                            }
                            // Its last handle is being dropped and waits for this lock.
                            None => self.ledger.closed(id, None),
                        }
                    }
                    QuotaEffect::Reclaim { key: id, thread } => {
                        if let Some(key) =
                            self.keys.get(id.index()).and_then(|(key, _)| key.upgrade())
                        {
                            post.push((thread, ThreadLetter::Reclaim(UserHandle(key))));
                        }
                    }
                }
            }
        }
    }
}

impl ServerHandle {
    /// Adds a tenant.
    #[must_use]
    pub fn tenant(&self, limits: TenantQuota) -> TenantHandle {
        let id = self.0.shares.with_ledger(|ledger| ledger.add_tenant(self.0.id, limits));
        TenantHandle(Arc::new(TenantInner { server: self.clone(), id }))
    }

    /// Changes the number of slots.
    pub fn set_connections_max(&self, connections_max: u32) {
        self.0.shares.with_ledger(|ledger| ledger.set_server(self.0.id, connections_max));
    }

    /// Returns the number of held slots.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.0.shares.with_ledger(|ledger| ledger.server_held(self.0.id))
    }
}

impl Drop for ServerInner {
    fn drop(&mut self) {
        self.shares.with_ledger(|ledger| ledger.remove_server(self.id));
    }
}

impl TenantHandle {
    fn shares(&self) -> &ConnectionShares {
        &self.0.server.0.shares
    }

    /// Adds a key with a bound of its own.
    #[must_use]
    pub fn key(&self, connections_max: u32) -> UserHandle {
        self.shares().with_state(|state| {
            let id = state.ledger.add_key(self.0.id, connections_max);
            let (server_flags, tenant_flags) = state.ledger.flags(id);
            let seats: Arc<[ThreadSeat]> = (0..self.shares().0.boxes.len())
                .map(|_| ThreadSeat {
                    idle_since: AtomicU64::new(0),
                    waiting_since: AtomicU64::new(0),
                })
                .collect();
            let key = Arc::new(KeyInner {
                tenant: self.clone(),
                id,
                server_flags,
                tenant_flags,
                seats: Arc::clone(&seats),
                waiting_threads: AtomicU32::new(0),
            });
            let entry = (Arc::downgrade(&key), seats);
            match state.keys.get_mut(id.index()) {
                Some(place) => *place = entry,
                None => state.keys.push(entry),
            }
            UserHandle(key)
        })
    }

    /// Changes the tenant's limits.
    pub fn set_limits(&self, limits: TenantQuota) {
        self.shares().with_ledger(|ledger| ledger.set_tenant(self.0.id, limits));
    }

    /// Returns the number of slots it holds, and the number it is entitled to now.
    #[must_use]
    pub fn held(&self) -> (u32, u32) {
        self.shares().with_ledger(|ledger| ledger.tenant_held(self.0.id))
    }
}

impl Drop for TenantInner {
    fn drop(&mut self) {
        self.server.0.shares.with_ledger(|ledger| ledger.remove_tenant(self.id));
    }
}

impl UserHandle {
    fn shares(&self) -> &ConnectionShares {
        self.0.tenant.shares()
    }

    /// Returns a small number, unique among the present keys; it is reused after this key is gone.
    #[must_use]
    pub fn index(&self) -> usize {
        self.0.id.index()
    }

    /// Returns whether the key belongs to this tenant.
    #[must_use]
    pub fn is_of(&self, tenant: &TenantHandle) -> bool {
        Arc::ptr_eq(&self.0.tenant.0, &tenant.0)
    }

    /// Returns the number of slots held beyond a lowered bound: the key's own, its tenant's or its
    /// server's.
    #[must_use]
    pub fn surplus(&self) -> u32 {
        self.shares().with_ledger(|ledger| ledger.surplus(self.0.id))
    }

    /// Changes its own bound.
    pub fn set_connections_max(&self, connections_max: u32) {
        self.shares().with_ledger(|ledger| ledger.set_key(self.0.id, connections_max));
    }

    /// Returns the number of slots it holds.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.shares().with_ledger(|ledger| ledger.key_held(self.0.id))
    }

    /// Takes a free slot. `since` is when the first client began to wait for it.
    ///
    /// # Errors
    /// The bound that denies the slot; use [`UserHandle::want`] then.
    pub fn open(&self, since: Instant, now: Instant) -> Result<SlotPermit, DeniedBound> {
        self.shares().with_ledger(|ledger| ledger.open(self.0.id, since, now))?;
        Ok(SlotPermit { key: self.clone(), to: None })
    }

    /// Sets the number of slots that a thread wants, replacing the previous number; 0 withdraws it.
    /// Repeat the call every few milliseconds while clients wait, because claims change with time.
    pub fn want(&self, thread: usize, wanted: u32, since: Instant, now: Instant) {
        self.shares().with_state(|state| {
            let SharesState { ledger, keys, .. } = state;
            let idle = |key: KeyId| {
                // Pairs with the fence in `needed_elsewhere`: either that release sees that a
                // client is in line, or its idle connection is seen here.
                fence(Ordering::SeqCst);
                keys.get(key.index()).and_then(|(_, seats)| longest_idle(seats, None))
            };
            ledger.want(self.0.id, thread, wanted, since, now, &|key| {
                idle(key).map(|(thread, _)| thread)
            });
        });
    }

    /// Decides about a connection whose user has finished. `waiting_since` is when the oldest
    /// waiting client of this key began to wait. Only needed if [`UserHandle::needed_elsewhere`]
    /// returns true.
    pub fn release(
        &self,
        permit: &mut SlotPermit,
        waiting_since: Option<Instant>,
        now: Instant,
    ) -> ReleaseOutcome {
        debug_assert!(Arc::ptr_eq(&self.0, &permit.key.0));
        if permit.to.is_some() {
            return ReleaseOutcome::GiveUp;
        }
        match self.shares().with_ledger(|ledger| ledger.release(self.0.id, waiting_since, now)) {
            FinishedVerdict::Keep => ReleaseOutcome::Keep,
            FinishedVerdict::GiveUp { to } => {
                permit.to = to;
                ReleaseOutcome::GiveUp
            }
        }
    }

    /// Charges the key's tenant for the time that it kept the server busy.
    pub fn charge(&self, busy_us: u64, now: Instant) {
        self.shares().with_ledger(|ledger| ledger.charge(self.0.id, busy_us, now));
    }

    /// Returns whether a connection that became idle may be needed elsewhere: by another key, which
    /// [`UserHandle::release`] decides, or by another thread, which [`UserHandle::claim_older`]
    /// decides.
    ///
    /// Takes no lock. Call it after [`UserHandle::set_idle`] has published the connection, so that
    /// a client that begins to wait meanwhile either sees the connection or is seen.
    #[must_use]
    #[inline]
    pub fn needed_elsewhere(&self, thread: usize) -> bool {
        fence(Ordering::SeqCst);
        let own = u32::from(self.0.seats[thread].waiting_since.load(Ordering::Relaxed) != 0);
        self.is_contended() || self.0.waiting_threads.load(Ordering::Relaxed) > own
    }

    /// Returns the part of [`UserHandle::needed_elsewhere`] that [`UserHandle::release`] decides.
    #[must_use]
    #[inline]
    pub fn is_contended(&self) -> bool {
        must_ask(&self.0.server_flags, &self.0.tenant_flags)
    }

    /// Publishes since when this thread's longest idle connection has been idle.
    #[inline]
    pub fn set_idle(&self, thread: usize, since: Option<Instant>) {
        let nanos = self.shares().encode_time(since);
        self.0.seats[thread].idle_since.store(nanos, Ordering::Relaxed);
    }

    /// Publishes since when this thread's first client waits.
    pub fn set_waiting(&self, thread: usize, since: Option<Instant>) {
        let nanos = self.shares().encode_time(since);
        let before = self.0.seats[thread].waiting_since.swap(nanos, Ordering::SeqCst);
        match (before, nanos) {
            (0, 0) => {}
            (0, _) => {
                self.0.waiting_threads.fetch_add(1, Ordering::SeqCst);
            }
            (_, 0) => {
                self.0.waiting_threads.fetch_sub(1, Ordering::SeqCst);
            }
            (_, _) => {}
        }
        fence(Ordering::SeqCst);
    }

    /// Returns the other thread with the longest idle connection, and since when it is idle.
    #[must_use]
    pub fn idle_elsewhere(&self, thread: usize) -> Option<(usize, Instant)> {
        let (thread, nanos) = longest_idle(&self.0.seats, Some(thread))?;
        Some((thread, self.shares().decode_time(nanos)?))
    }

    /// Returns another thread with a client that began to wait before `own`, by more than `margin`.
    /// Clears the wait in that thread's seat, so that it does not get two connections for one
    /// client; the thread publishes its next waiting client when it has received this connection.
    #[must_use]
    pub fn claim_older(
        &self,
        thread: usize,
        own: Option<Instant>,
        margin: Duration,
    ) -> Option<usize> {
        if self.0.waiting_threads.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let margin = u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX);
        let own = own.map_or(u64::MAX, |own| self.shares().encode_time(Some(own)));
        let others = self.0.seats.iter().enumerate().filter(|(other, _)| *other != thread);
        let waiting = others
            .map(|(other, seat)| (seat.waiting_since.load(Ordering::Acquire), other))
            .filter(|(nanos, _)| *nanos != 0);
        let (nanos, other) = waiting.min()?;
        if own != u64::MAX && nanos.saturating_add(margin) >= own {
            return None;
        }
        let seat = &self.0.seats[other].waiting_since;
        let claimed = seat.compare_exchange(nanos, 0, Ordering::AcqRel, Ordering::Relaxed);
        claimed.ok()?;
        self.0.waiting_threads.fetch_sub(1, Ordering::SeqCst);
        Some(other)
    }
}

/// Returns the seat with the longest idle connection, except that of `except`.
fn longest_idle(seats: &[ThreadSeat], except: Option<usize>) -> Option<(usize, u64)> {
    let idle = seats.iter().enumerate().filter(|(thread, _)| Some(*thread) != except);
    let idle = idle.map(|(thread, seat)| (thread, seat.idle_since.load(Ordering::Relaxed)));
    idle.filter(|(_, nanos)| *nanos != 0).min_by_key(|(_, nanos)| *nanos)
}

impl Drop for KeyInner {
    fn drop(&mut self) {
        self.tenant.shares().with_ledger(|ledger| ledger.remove_key(self.id));
    }
}

/// A slot: the right to have one connection. When dropped, it goes to the next in line, so it must
/// live as long as the connection.
#[must_use = "a dropped permit is a free slot"]
pub struct SlotPermit {
    key: UserHandle,
    /// Tenant to which the slot was promised when it was given up.
    to: Option<SharedTenantId>,
}

impl SlotPermit {
    /// Returns the key that holds the slot.
    #[must_use]
    pub fn key(&self) -> &UserHandle {
        &self.key
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.key.shares().with_ledger(|ledger| ledger.closed(self.key.0.id, self.to));
    }
}

impl fmt::Debug for ConnectionShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("threads", &self.0.boxes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for TenantInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for UserHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.id.fmt(f)
    }
}

impl fmt::Debug for SlotPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.key).finish()
    }
}
