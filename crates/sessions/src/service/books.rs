//! Books of sandboxes: which sessions have one, which are at work, and which go when there is no
//! room.
//!
//! Two sets of books under one lock: of sandboxes that live, bounded by `resident_max`, and of
//! everything that this server keeps, cold sessions included, bounded by `capacity`. Whoever finds
//! a session in a state here may rely on it for as long as it holds the lock, so that a sweep, an
//! eviction and a message never disagree about one sandbox.

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
    /// A sandbox that is ready for one, or in which a version of an agent is being made.
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
    /// All places of the server are taken and nobody can go, but some are just being made: these
    /// may be able to go when they are.
    Soon,
    /// All places of the server are at work.
    Server,
    /// The tenant has as many places as it may have, and none of its own can go.
    Share,
}

/// A place that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceRequest<'a> {
    /// For whom.
    pub(crate) key: &'a ResidentKey,
    /// Owner of that.
    pub(crate) tenant: &'a Arc<str>,
    /// Sandboxes that live which this tenant may have.
    pub(crate) tenant_max: usize,
}

/// The books. Cheap to share by `Arc`.
#[derive(Debug)]
pub(crate) struct ResidentLedger {
    /// Guards both, so that they agree.
    inner: Mutex<ResidentLedgerInner>,
    figures: ResidentFigures,
    /// Notified when a sandbox becomes evictable.
    changed: Notify,
    /// Sessions whose place on the books has changed.
    changes: RecordFeed,
    /// Queue of callers that wait for that, in order of arrival.
    line: tokio::sync::Mutex<()>,
    /// Number of callers that wait.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct ResidentLedgerInner {
    /// Live sandboxes. None of them is cold.
    live: Residents<ResidentKey>,
    /// Sandboxes that live, and cold sessions.
    all: Residents<ResidentKey>,
    /// Tenants of all of them.
    owners: HashMap<ResidentKey, Arc<str>>,
    /// Number that each tenant has that live.
    live_of: HashMap<Arc<str>, usize>,
    /// Number of sandboxes that each tenant works with, those on their way out as well.
    at_work_of: HashMap<Arc<str>, usize>,
}

impl ResidentLedger {
    /// Books for `resident_max` sandboxes, and `capacity` sessions and sandboxes in all.
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

    /// The feed of sessions that change, here or in what is kept of them.
    pub(crate) fn changes(&self) -> &RecordFeed {
        &self.changes
    }

    /// Notifies waiters for a place, and followers of sessions, that one has changed.
    fn tell(&self, key: &ResidentKey) {
        self.changed.notify_waiters();
        self.publish(key);
    }

    fn publish(&self, key: &ResidentKey) {
        if let ResidentKey::Session(id) = key {
            self.changes.publish(id);
        }
    }

    /// Returns how many there are of each, without a lock.
    pub(crate) fn stats(&self) -> ResidentStats {
        self.figures.stats()
    }

    /// Returns the state of a resident. A cold one that this server does not keep is unknown.
    pub(crate) fn state(&self, key: &ResidentKey) -> Option<State> {
        self.inner.lock().all.state(key)
    }

    /// Counts the sandboxes of each tenant: those there are, and of them those at work.
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

    /// Takes a place for a sandbox that is being made. What it returns has to be done before that
    /// sandbox is made, in this order: the books have it done already.
    ///
    /// # Errors
    /// If there is no room and all are at work, or all of the tenant's own are and it has its
    /// share. Nothing has changed then.
    pub(crate) fn admit(
        &self,
        request: &PlaceRequest<'_>,
        now: Instant,
    ) -> Result<Vec<EvictionDuty>, CapacityRefusal> {
        let PlaceRequest { key, tenant, tenant_max } = *request;
        let inner = &mut *self.inner.lock();
        let known = inner.all.state(key);
        // A session that has a sandbox does not ask for one: its transitions are one at a time.
        if known.is_some_and(|state| state != State::Cold) {
            return Err(CapacityRefusal::Server);
        }
        let has_share = inner.live_count(tenant) >= tenant_max;
        // Nobody waits for his own: a tenant that makes many at once must not hold up the line.
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
            // More than one where it has more than its share, which it had when it was alone.
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
            // One went for it. There may have been too many all the same, from the start.
            inner.add_to_all(key.clone(), State::Warming, now);
        }
        inner.owners.insert(key.clone(), Arc::clone(tenant));
        inner.add_live(key.clone(), State::Warming, now);
        Ok(duties)
    }

    /// Returns whether callers are queued: later ones do not overtake them.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes a place in the order of arrival, while waiting can help.
    ///
    /// # Errors
    /// If there is no room, all are at work and none is being made.
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
            // From here on nothing is missed.
            changed.as_mut().enable();
            match self.admit(request, now()) {
                Err(CapacityRefusal::Soon) => changed.await,
                other => return other,
            }
        }
    }

    /// Takes a place for a sandbox that no caller waits for: only if no other has to be evicted.
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

    /// Returns whether nothing of it lives, as the books have it.
    pub(crate) fn is_cold(&self, key: &ResidentKey) -> bool {
        self.inner.lock().live.state(key).is_none()
    }

    /// Hands the place of a sandbox that is ready over to a session, which is being made from here
    /// on: nobody takes it before its caller has it. Whether it was still there.
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

    /// The sandbox is ready and unused.
    pub(crate) fn warm(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_warm(key, now);
            debug_assert!(marked.is_ok(), "what is being made can be warm: {marked:?}");
        }
        self.tell(key);
    }

    /// The sandbox of a session that was worked with before is there again.
    #[cfg(test)]
    pub(crate) fn waiting(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_waiting(key, now);
            debug_assert!(marked.is_ok(), "what is being made can wait: {marked:?}");
        }
        self.tell(key);
    }

    /// Begins a use of a sandbox: it is not swept and not evicted. A sandbox that was just made
    /// goes to this use without a moment in which another one could take its place. Returns how
    /// many sandboxes of the tenant are at work; none when the sandbox that `uses` are of is on its
    /// way out.
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
        // Callers that waited for it to become evictable learn that it does not.
        self.tell(key);
        Some(at_work)
    }

    /// A sandbox that is being made is at work already, and is nobody's to wait for: a version of
    /// an agent is being made in it.
    pub(crate) fn build(&self, key: &ResidentKey, now: Instant) {
        let marked = self.inner.lock().mark_running(key, now);
        debug_assert!(marked, "what was admitted can be at work");
        self.tell(key);
    }

    /// Ends a use of a sandbox. `uses` are those of one sandbox: when that has gone, it has no part
    /// in what the books say of the next one.
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

    /// A sandbox that was to be made could not be. The session is kept.
    pub(crate) fn give_up(&self, key: &ResidentKey, now: Instant) {
        let inner = &mut *self.inner.lock();
        inner.remove_live(key);
        let marked = inner.all.mark_cold(key, now);
        debug_assert!(marked.is_ok(), "what is being made is on the books: {marked:?}");
        self.tell(key);
    }

    /// The sandbox is gone, whatever its state was; the session is kept.
    pub(crate) fn cold(&self, key: &ResidentKey, uses: &UseCount, now: Instant) {
        let inner = &mut *self.inner.lock();
        uses.go();
        inner.remove_live(key);
        // Struck off by an eviction meanwhile, and on its way to the object store.
        let _struck = inner.all.mark_cold(key, now);
        self.tell(key);
    }

    /// Takes a session that is not at work, for a transition that ends its sandbox. False when it
    /// is at work, or has none.
    pub(crate) fn take_idle(&self, key: &ResidentKey, uses: &UseCount, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        if uses.is_gone() {
            // The sandbox that there may be is another one.
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

    /// Takes a session as [`ResidentLedger::take_idle`] does, once it comes to rest. False when it
    /// has not within the time, or has no sandbox.
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
                // From here on nothing is missed.
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

    /// Says that this server keeps the disk of a cold session. Nobody goes for it: at the start
    /// there may be more than there is room for, and the cold sweep sees to that.
    pub(crate) fn keep_cold(&self, session: &Arc<str>, tenant: &Arc<str>, now: Instant) {
        let inner = &mut *self.inner.lock();
        let key = ResidentKey::Session(session.clone());
        if inner.all.state(&key).is_none() {
            inner.owners.insert(key.clone(), Arc::clone(tenant));
            inner.add_to_all(key, State::Cold, now);
        }
    }

    /// Strikes it off.
    pub(crate) fn remove(&self, key: &ResidentKey) {
        self.inner.lock().strike(key);
        self.tell(key);
    }

    /// Takes the sessions that have waited for at least `idle_min`, but for those that may wait for
    /// longer: they are cold on the books.
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

    /// Takes the sessions that have been cold for at least `cold_min`: they are off the books.
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
    /// Adds one to all, though there is no room. Somebody would be struck off for it otherwise
    /// whom nobody puts to rest.
    fn add_to_all(&mut self, key: ResidentKey, state: State, now: Instant) {
        let (count, capacity) = (self.all.count(), self.all.capacity());
        self.all.set_capacity(capacity.max(count + 1));
        let inserted = self.all.insert(key, state, now);
        self.all.set_capacity(capacity);
        debug_assert_eq!(inserted, Ok(None), "it was not there, and there was room");
    }

    /// Adds a sandbox that lives to the tenant's that owns it.
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

    /// A sandbox does not live any more: its tenant has one less.
    fn count_down(&mut self, key: &ResidentKey) {
        let Some(owner) = self.owners.get(key) else { return };
        if let Some(count) = self.live_of.get_mut(owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.live_of.remove(owner);
            }
        }
    }

    /// Strikes one off everywhere, and says whose it was.
    fn strike(&mut self, key: &ResidentKey) -> Option<Arc<str>> {
        self.remove_live(key);
        self.all.remove(key);
        self.owners.remove(key)
    }

    /// A tenant works with one sandbox less.
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

    /// Counts those of these that cannot go. Looks at all residents.
    fn busy_count(&self, tenant: &Arc<str>) -> usize {
        let of_tenant = self.owners.iter().filter(|(_, owner)| *owner == tenant);
        let states = of_tenant.filter_map(|(key, _)| self.live.state(key));
        states.filter(|state| matches!(state, State::Warming | State::Running)).count()
    }

    /// Frees the place of one sandbox that lives: of this tenant, or of anybody.
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

    /// Frees one place of all.
    fn drop_cold(&mut self, duties: &mut Vec<EvictionDuty>) {
        // What made room among those that live may have made room here, too.
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

/// A place in the line.
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

/// Number of uses of one sandbox. Changed under the lock of the books only, so that the order of
/// memory is the lock's.
#[derive(Debug, Default)]
pub(crate) struct UseCount {
    count: AtomicUsize,
    gone: AtomicBool,
}

impl UseCount {
    /// Adds a use. Returns how many there are.
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

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether the sandbox is off the books.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
