//! Ledger of sandboxes: which sessions have one, which are at work, and which are evicted when
//! there is no room.
//!
//! The ledger keeps two sets of books under one lock: of live sandboxes, bounded by `resident_max`,
//! and of everything that this server keeps, cold sessions included, bounded by `capacity`. A state
//! read here holds for as long as the lock is held, so a sweep, an eviction and a message never
//! disagree about a sandbox.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use node::changes::RecordFeed;
use node::clock;
use parking_lot::Mutex;
use pool::residents::{ResidentFigures, ResidentStats, Residents, State};
use tokio::sync::Notify;
use tokio::time;

/// Key of an entry on the books.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResidentKey {
    /// A session, by its id.
    Session(Arc<str>),
    /// A prepared sandbox, or one in which an agent version or a template layer is built.
    Ready(u64),
}

/// Action that makes room for another sandbox or session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvictionDuty {
    /// Ends this session's sandbox after storing its files.
    Stop(Arc<str>),
    /// Moves the disk of this cold session to the object store.
    Archive(Arc<str>),
    /// Ends this unused sandbox.
    Discard(u64),
}

/// Why there is no place for a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacityRefusal {
    /// All places of the server are taken and none can be evicted, but some sandboxes are starting
    /// and may become evictable soon.
    Soon,
    /// All places of the server are at work.
    Server,
    /// The tenant has used its share, and none of its own sandboxes can be evicted.
    Share,
}

/// Request for a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceRequest<'a> {
    /// Session or sandbox that needs the place.
    pub(crate) key: &'a ResidentKey,
    /// Tenant that owns it.
    pub(crate) tenant: &'a Arc<str>,
    /// Maximum live sandboxes of this tenant.
    pub(crate) tenant_max: usize,
}

/// Ledger of resident sandboxes and kept sessions. Shared by `Arc`.
#[derive(Debug)]
pub(crate) struct ResidentLedger {
    /// Guards both sets of books, so that they agree.
    inner: Mutex<ResidentLedgerInner>,
    figures: ResidentFigures,
    /// Notified when a sandbox becomes evictable.
    changed: Notify,
    /// Sessions whose state has changed.
    changes: RecordFeed,
    /// Queue of callers that wait for a place, in order of arrival.
    line: tokio::sync::Mutex<()>,
    /// Number of waiting callers.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct ResidentLedgerInner {
    /// Live sandboxes. None of them is cold.
    live: Residents<ResidentKey>,
    /// Live sandboxes, and cold sessions.
    all: Residents<ResidentKey>,
    /// Tenants of all entries.
    owners: HashMap<ResidentKey, Arc<str>>,
    /// Number of live sandboxes of each tenant.
    live_of: HashMap<Arc<str>, usize>,
    /// Number of sandboxes of each tenant in use, ending ones included.
    at_work_of: HashMap<Arc<str>, usize>,
}

impl ResidentLedger {
    /// Creates a ledger for `resident_max` sandboxes, and `capacity` sessions and sandboxes in all.
    pub(crate) fn new(resident_max: usize, capacity: usize, now: Instant) -> ResidentLedger {
        let all = Residents::new(capacity.max(resident_max), now);
        let figures = all.figures();
        let live = Residents::new(resident_max, now);
        ResidentLedger {
            inner: Mutex::new(ResidentLedgerInner {
                live,
                all,
                owners: HashMap::new(),
                live_of: HashMap::new(),
                at_work_of: HashMap::new(),
            }),
            figures,
            changed: Notify::new(),
            changes: RecordFeed::default(),
            line: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Returns the feed of sessions whose state or row has changed.
    pub(crate) fn changes(&self) -> &RecordFeed {
        &self.changes
    }

    /// Notifies callers that wait for a place, and followers of session changes.
    fn tell(&self, key: &ResidentKey) {
        self.changed.notify_waiters();
        self.publish(key);
    }

    fn publish(&self, key: &ResidentKey) {
        if let ResidentKey::Session(id) = key {
            self.changes.publish(id);
        }
    }

    /// Returns the counts per state, without a lock.
    pub(crate) fn stats(&self) -> ResidentStats {
        self.figures.stats()
    }

    /// Returns the state of a resident; none for a cold session that this server does not keep.
    pub(crate) fn state(&self, key: &ResidentKey) -> Option<State> {
        self.inner.lock().all.state(key)
    }

    /// Counts each tenant's sandboxes: all, and those at work.
    pub(crate) fn sandboxes_by_tenant(&self) -> HashMap<Arc<str>, (usize, usize)> {
        let inner = &*self.inner.lock();
        let mut counts: HashMap<Arc<str>, (usize, usize)> = HashMap::new();
        for (key, owner) in &inner.owners {
            let (all, at_work) = counts.entry(Arc::clone(owner)).or_default();
            match inner.all.state(key) {
                Some(State::Running) => (*all, *at_work) = (*all + 1, *at_work + 1),
                Some(State::Warm | State::Waiting) => *all += 1,
                Some(State::Warming | State::Cold) | None => {}
            }
        }
        counts
    }

    /// Counts a tenant's residents in each state. Visits all residents.
    pub(crate) fn stats_of(&self, tenant: &str) -> ResidentStats {
        let inner = &*self.inner.lock();
        let mut stats =
            ResidentStats { capacity: inner.all.capacity(), ..ResidentStats::default() };
        let of_tenant = inner.owners.iter().filter(|(_, owner)| ***owner == *tenant);
        for state in of_tenant.filter_map(|(key, _)| inner.all.state(key)) {
            stats.total += 1;
            match state {
                State::Warming => stats.warming += 1,
                State::Warm => stats.warm += 1,
                State::Running => stats.running += 1,
                State::Waiting => stats.waiting += 1,
                State::Cold => stats.cold += 1,
            }
        }
        stats
    }

    /// Takes a place for a sandbox that is about to start. The caller must perform the returned
    /// duties first, in this order; the ledger already counts them as done.
    ///
    /// # Errors
    /// If there is no room and all sandboxes are at work, or the tenant has used its share and all
    /// of its own are at work. Nothing has changed then.
    pub(crate) fn admit(
        &self,
        request: &PlaceRequest<'_>,
        now: Instant,
    ) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
        let PlaceRequest { key, tenant, tenant_max } = *request;
        let inner = &mut *self.inner.lock();
        let known = inner.all.state(key);
        // A session with a sandbox never requests another, because its transitions are serialized.
        if known.is_some_and(|state| state != State::Cold) {
            return Err(CapacityRefusal::Server);
        }
        let has_share = inner.live_count(tenant) >= tenant_max;
        // Fails at once: a tenant that starts many sandboxes must not block the queue.
        if has_share && inner.busy_count(tenant) >= tenant_max {
            return Err(CapacityRefusal::Share);
        }
        let live = inner.live.stats();
        let live_full = live.total >= live.capacity;
        if live_full && live.warm + live.waiting == 0 {
            return Err(if live.warming > 0 {
                CapacityRefusal::Soon
            } else {
                CapacityRefusal::Server
            });
        }
        let all = inner.all.stats();
        let all_full = known.is_none() && all.total >= all.capacity;
        if all_full && all.cold + all.warm + all.waiting == 0 {
            return Err(if all.warming > 0 {
                CapacityRefusal::Soon
            } else {
                CapacityRefusal::Server
            });
        }
        let mut duties = Vec::new();
        if has_share {
            // Evicts several if the tenant exceeds its share, which was larger while it was alone.
            while inner.live_count(tenant) >= tenant_max {
                let Some(duty) = inner.make_room(Some(tenant), now) else { break };
                duties.push(duty);
            }
        } else if live_full {
            duties.extend(inner.make_room(None, now));
        }
        if all_full {
            inner.drop_cold(&mut duties);
        }
        if known.is_some() {
            let warming = inner.all.mark_warming(key, now);
            debug_assert!(warming.is_ok(), "what is cold can be brought back: {warming:?}");
        } else {
            // Even after that eviction there may be too many, from startup.
            inner.add_to_all(key.clone(), State::Warming, now);
        }
        inner.owners.insert(key.clone(), Arc::clone(tenant));
        inner.add_live(key.clone(), State::Warming, now);
        Ok(duties)
    }

    /// Returns whether callers are queued; later callers must not overtake them.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes a place in order of arrival; waits as long as waiting can help.
    ///
    /// # Errors
    /// If there is no room, all sandboxes are at work and none is starting.
    pub(crate) async fn admit_in_line(
        &self,
        request: &PlaceRequest<'_>,
        now: impl Fn() -> Instant,
    ) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
        let _place = InLine::new(&self.waiting);
        let _turn = self.line.lock().await;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no notification is missed.
            changed.as_mut().enable();
            match self.admit(request, now()) {
                Err(CapacityRefusal::Soon) => changed.await,
                other => return other,
            }
        }
    }

    /// Takes a place for a sandbox that no caller waits for, without evicting others.
    pub(crate) fn admit_if_free(&self, request: &PlaceRequest<'_>, now: Instant) -> bool {
        let PlaceRequest { key, tenant, tenant_max } = *request;
        let inner = &mut *self.inner.lock();
        let is_full = |books: &Residents<ResidentKey>| books.count() >= books.capacity();
        let has_share = inner.live_count(tenant) >= tenant_max;
        if has_share || is_full(&inner.live) || is_full(&inner.all) {
            return false;
        }
        inner.add_to_all(key.clone(), State::Warming, now);
        inner.owners.insert(key.clone(), Arc::clone(tenant));
        inner.add_live(key.clone(), State::Warming, now);
        true
    }

    /// Returns whether the ledger has no live sandbox for it.
    pub(crate) fn is_cold(&self, key: &ResidentKey) -> bool {
        self.inner.lock().live.state(key).is_none()
    }

    /// Transfers the place of a prepared sandbox to a session, in the starting state, so that it
    /// cannot be evicted before the caller has it. Returns whether the sandbox was still there.
    pub(crate) fn claim(&self, ready: u64, session: &Arc<str>, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        let (ready, session) = (ResidentKey::Ready(ready), ResidentKey::Session(session.clone()));
        if inner.live.state(&ready) != Some(State::Warm) {
            return false;
        }
        let Some(owner) = inner.strike(&ready) else { return false };
        inner.add_to_all(session.clone(), State::Warming, now);
        inner.owners.insert(session.clone(), owner);
        inner.add_live(session, State::Warming, now);
        true
    }

    /// Records that a sandbox is ready and unused.
    pub(crate) fn warm(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_warm(key, now);
            debug_assert!(marked.is_ok(), "what is being made can be warm: {marked:?}");
        }
        self.tell(key);
    }

    /// Records that the sandbox of a previously used session is running again.
    #[cfg(test)]
    pub(crate) fn waiting(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_waiting(key, now);
            debug_assert!(marked.is_ok(), "what is being made can wait: {marked:?}");
        }
        self.tell(key);
    }

    /// Begins a use of a sandbox: it is neither swept nor evicted. A sandbox that has just started
    /// passes to this use atomically, so it cannot be evicted in between. Returns how many
    /// sandboxes of the tenant are at work; none if the sandbox of `uses` is ending.
    pub(crate) fn begin(
        &self,
        key: &ResidentKey,
        tenant: &Arc<str>,
        uses: &UseCount,
        now: Instant,
    ) -> Option<usize> {
        let inner = &mut *self.inner.lock();
        if uses.is_gone() || !inner.mark_running(key, now) {
            return None;
        }
        let at_work = inner.at_work_of.entry(Arc::clone(tenant)).or_default();
        if uses.add() == 1 {
            *at_work += 1;
        }
        let at_work = *at_work;
        // Wakes callers that hoped to evict it, so that they stop waiting for it.
        self.tell(key);
        Some(at_work)
    }

    /// Marks a starting sandbox as at work and not evictable, because an agent version or a
    /// template layer is built in it.
    pub(crate) fn build(&self, key: &ResidentKey, now: Instant) {
        let marked = self.inner.lock().mark_running(key, now);
        debug_assert!(marked, "what was admitted can be at work");
        self.tell(key);
    }

    /// Ends a use of a sandbox. `uses` belongs to one sandbox: if that has ended, this does not
    /// affect the session's next sandbox.
    pub(crate) fn end(&self, key: &ResidentKey, tenant: &Arc<str>, uses: &UseCount, now: Instant) {
        let inner = &mut *self.inner.lock();
        let was_last = uses.take();
        if was_last {
            inner.ends_work(tenant);
        }
        if was_last && !uses.is_gone() {
            for books in [&mut inner.live, &mut inner.all] {
                let marked = books.mark_waiting(key, now);
                debug_assert!(marked.is_ok(), "what is used has a sandbox: {marked:?}");
            }
        }
        self.tell(key);
    }

    /// Records that a sandbox could not be started. The session is kept as cold.
    pub(crate) fn give_up(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        inner.remove_live(key);
        let marked = inner.all.mark_cold(key, now);
        debug_assert!(marked.is_ok(), "what is being made is on the books: {marked:?}");
        self.tell(key);
    }

    /// Records that a sandbox has ended, in any state; the session is kept as cold.
    pub(crate) fn cold(&self, key: &ResidentKey, uses: &UseCount, now: Instant) {
        let inner = &mut *self.inner.lock();
        uses.go();
        inner.remove_live(key);
        // Fails if an eviction has removed the session meanwhile, which is on its way to the object
        // store.
        let _struck = inner.all.mark_cold(key, now);
        self.tell(key);
    }

    /// Takes an idle session for a transition that ends its sandbox. Returns false if it is at
    /// work, or has no sandbox.
    pub(crate) fn take_idle(&self, key: &ResidentKey, uses: &UseCount, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        if uses.is_gone() {
            // The session may have another sandbox now.
            return false;
        }
        match inner.live.state(key) {
            Some(State::Warm | State::Waiting) => {
                uses.go();
                inner.remove_live(key);
                let marked = inner.all.mark_cold(key, now);
                debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
                self.publish(key);
                true
            }
            Some(State::Warming | State::Running | State::Cold) | None => false,
        }
    }

    /// Takes a session as [`ResidentLedger::take_idle`] does, once it becomes idle. Returns false
    /// if it does not within the time, or has no sandbox.
    pub(crate) async fn take_rested(
        &self,
        key: &ResidentKey,
        uses: &UseCount,
        within: Duration,
    ) -> bool {
        let rested = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // From here on no notification is missed.
                changed.as_mut().enable();
                if self.take_idle(key, uses, clock::now()) {
                    return true;
                }
                if uses.is_gone() {
                    return false;
                }
                changed.await;
            }
        };
        time::timeout(within, rested).await.unwrap_or(false)
    }

    /// Records that this server keeps the disk of a cold session. Evicts nothing: at startup there
    /// may be more than the capacity, which the cold sweep reduces.
    pub(crate) fn keep_cold(&self, session: &Arc<str>, tenant: &Arc<str>, now: Instant) {
        let inner = &mut *self.inner.lock();
        let key = ResidentKey::Session(session.clone());
        if inner.all.state(&key).is_none() {
            inner.owners.insert(key.clone(), Arc::clone(tenant));
            inner.add_to_all(key, State::Cold, now);
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, key: &ResidentKey) {
        self.inner.lock().strike(key);
        self.tell(key);
    }

    /// Takes the sessions that have waited for at least `idle_min`, except the `patient` ones, and
    /// marks them cold.
    pub(crate) fn idle_but(
        &self,
        now: Instant,
        idle_min: Duration,
        patient: &HashSet<Arc<str>>,
    ) -> Vec<Arc<str>> {
        let inner = &mut *self.inner.lock();
        let taken = inner.live.idle(now, idle_min);
        let mut sessions = Vec::with_capacity(taken.len());
        for key in taken {
            inner.remove_live(&key);
            let ResidentKey::Session(id) = &key else {
                // A prepared sandbox has never worked, so it does not count as waiting.
                inner.strike(&key);
                continue;
            };
            if patient.contains(id) {
                inner.add_live(key, State::Waiting, now);
                continue;
            }
            let marked = inner.all.mark_cold(&key, now);
            debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
            self.publish(&key);
            sessions.push(Arc::clone(id));
        }
        sessions
    }

    /// Takes all sessions that have waited for at least `idle_min`.
    #[cfg(test)]
    pub(crate) fn idle(&self, now: Instant, idle_min: Duration) -> Vec<Arc<str>> {
        self.idle_but(now, idle_min, &HashSet::new())
    }

    /// Takes the sessions that have been cold for at least `cold_min`, and removes their entries.
    pub(crate) fn cold_before(&self, now: Instant, cold_min: Duration) -> Vec<Arc<str>> {
        let taken = {
            let inner = &mut *self.inner.lock();
            let taken = inner.all.cold_before(now, cold_min);
            for key in &taken {
                inner.owners.remove(key);
            }
            taken
        };
        let session = |key| match key {
            ResidentKey::Session(id) => Some(id),
            ResidentKey::Ready(_) => None,
        };
        taken.into_iter().filter_map(session).collect()
    }
}

impl ResidentLedgerInner {
    /// Adds an entry to `all` even beyond its capacity. A plain insertion would evict an entry
    /// without performing its duty.
    fn add_to_all(&mut self, key: ResidentKey, state: State, now: Instant) {
        let (count, capacity) = (self.all.count(), self.all.capacity());
        self.all.set_capacity(capacity.max(count + 1));
        let inserted = self.all.insert(key, state, now);
        self.all.set_capacity(capacity);
        debug_assert_eq!(inserted, Ok(None), "it was not there, and there was room");
    }

    /// Adds a live sandbox to its tenant's count.
    fn add_live(&mut self, key: ResidentKey, state: State, now: Instant) {
        if let Some(owner) = self.owners.get(&key) {
            *self.live_of.entry(Arc::clone(owner)).or_default() += 1;
        }
        let inserted = self.live.insert(key, state, now);
        debug_assert_eq!(inserted, Ok(None), "there is room for it, and it was not there");
    }

    fn remove_live(&mut self, key: &ResidentKey) {
        if self.live.remove(key).is_some() {
            self.count_down(key);
        }
    }

    /// Subtracts a sandbox that has ended from its tenant's count.
    fn count_down(&mut self, key: &ResidentKey) {
        let Some(owner) = self.owners.get(key) else { return };
        if let Some(count) = self.live_of.get_mut(owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.live_of.remove(owner);
            }
        }
    }

    /// Removes an entry from all books, and returns its tenant.
    fn strike(&mut self, key: &ResidentKey) -> Option<Arc<str>> {
        self.remove_live(key);
        self.all.remove(key);
        self.owners.remove(key)
    }

    /// Subtracts a sandbox from its tenant's count of sandboxes at work.
    fn ends_work(&mut self, tenant: &Arc<str>) {
        if let Some(count) = self.at_work_of.get_mut(tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.at_work_of.remove(tenant);
            }
        }
    }

    fn mark_running(&mut self, key: &ResidentKey, now: Instant) -> bool {
        if self.live.mark_running(key, now).is_err() {
            return false;
        }
        let marked = self.all.mark_running(key, now);
        debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
        true
    }

    /// Counts a tenant's live sandboxes.
    fn live_count(&self, tenant: &Arc<str>) -> usize {
        self.live_of.get(tenant).copied().unwrap_or(0)
    }

    /// Counts the tenant's live sandboxes that cannot be evicted. Visits all residents.
    fn busy_count(&self, tenant: &Arc<str>) -> usize {
        let of_tenant = self.owners.iter().filter(|(_, owner)| *owner == tenant);
        let states = of_tenant.filter_map(|(key, _)| self.live.state(key));
        states.filter(|state| matches!(state, State::Warming | State::Running)).count()
    }

    /// Evicts one live sandbox: of this tenant, or of any.
    fn make_room(&mut self, tenant: Option<&Arc<str>>, now: Instant) -> Option<EvictionDuty> {
        let owners = &self.owners;
        let evicted = match tenant {
            None => self.live.evict()?,
            Some(tenant) => self.live.evict_where(|key| owners.get(key) == Some(tenant))?,
        };
        self.count_down(&evicted.id);
        match evicted.id {
            ResidentKey::Session(id) => {
                let marked = self.all.mark_cold(&ResidentKey::Session(id.clone()), now);
                debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
                Some(EvictionDuty::Stop(id))
            }
            ResidentKey::Ready(number) => {
                self.strike(&ResidentKey::Ready(number));
                Some(EvictionDuty::Discard(number))
            }
        }
    }

    /// Evicts one of all entries.
    fn drop_cold(&mut self, duties: &mut Vec<EvictionDuty>) {
        // Evicting a live sandbox may have made room here, too.
        if self.all.count() < self.all.capacity() {
            return;
        }
        let Some(evicted) = self.all.evict() else { return };
        let was_live = evicted.was != State::Cold;
        self.strike(&evicted.id);
        match evicted.id {
            ResidentKey::Session(id) => {
                if was_live {
                    duties.push(EvictionDuty::Stop(id.clone()));
                }
                duties.push(EvictionDuty::Archive(id));
            }
            ResidentKey::Ready(number) => duties.push(EvictionDuty::Discard(number)),
        }
    }
}

/// Place in the queue of callers.
struct InLine<'a>(&'a AtomicUsize);

impl InLine<'_> {
    fn new(waiting: &AtomicUsize) -> InLine<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        InLine(waiting)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Number of uses of one sandbox. Changed only under the ledger's lock, which orders the memory
/// accesses.
#[derive(Debug, Default)]
pub(crate) struct UseCount {
    count: AtomicUsize,
    gone: AtomicBool,
}

impl UseCount {
    /// Adds a use and returns the new count.
    fn add(&self) -> usize {
        let count = self.count().saturating_add(1);
        self.count.store(count, Ordering::Relaxed);
        count
    }

    /// Removes a use. Returns true when it was the last one.
    fn take(&self) -> bool {
        let count = self.count();
        self.count.store(count.saturating_sub(1), Ordering::Relaxed);
        count == 1
    }

    fn go(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Returns the number of uses.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether the sandbox has left the ledger.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
