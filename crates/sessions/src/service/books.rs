//! Who has a sandbox, who is at work, and who goes when there is no room.
//!
//! Two sets of books under one lock: of sandboxes that live, bounded by `resident_max`, and of
//! everything that this server keeps, cold sessions included, bounded by `capacity`. Whoever finds
//! a session in a state here may rely on it for as long as it holds the lock, so that a sweep, an
//! eviction and a message never disagree about one sandbox.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pool::residents::{Figures, Residents, State, Stats};
use tokio::sync::Notify;

/// Who is on the books.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A session, by its id.
    Session(Arc<str>),
    /// A sandbox that is ready for one, or in which a version of an agent is being made.
    Ready(u64),
}

/// What has to be done for somebody else to have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Ends this session's sandbox after storing what is in it.
    Stop(Arc<str>),
    /// Moves the disk of this cold session to the object store.
    Archive(Arc<str>),
    /// Ends this sandbox, which nobody has used.
    Discard(u64),
}

/// All places are taken, and nobody can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Some of them are just being made: they can go when they are.
    pub(crate) is_soon: bool,
}

/// The books. Cheap to share by `Arc`.
#[derive(Debug)]
pub(crate) struct Books {
    /// Guards both, so that they agree.
    inner: Mutex<Inner>,
    figures: Figures,
    /// Told when somebody may be able to go who was not before.
    changed: Notify,
    /// Those who wait for that, the first one first.
    line: tokio::sync::Mutex<()>,
    /// How many they are.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    /// Sandboxes that live. Nobody is cold here.
    live: Residents<Key>,
    /// The same, and cold sessions.
    all: Residents<Key>,
}

impl Books {
    /// Books for `resident_max` sandboxes, and `capacity` sessions and sandboxes in all.
    pub(crate) fn new(resident_max: usize, capacity: usize, now: Instant) -> Books {
        let all = Residents::new(capacity.max(resident_max), now);
        let figures = all.figures();
        let live = Residents::new(resident_max, now);
        Books {
            inner: Mutex::new(Inner { live, all }),
            figures,
            changed: Notify::new(),
            line: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// How many there are of each, without a lock.
    pub(crate) fn stats(&self) -> Stats {
        self.figures.stats()
    }

    /// What a resident is doing. A cold one that this server does not keep is not known.
    pub(crate) fn state(&self, key: &Key) -> Option<State> {
        self.inner.lock().all.state(key)
    }

    /// Takes a place for a sandbox that is being made. What it returns has to be done before that
    /// sandbox is made, in this order: the books have it done already.
    ///
    /// # Errors
    /// When there is no room and all are at work. Nothing has changed then.
    pub(crate) fn admit(&self, key: &Key, now: Instant) -> Result<Vec<Duty>, Full> {
        let inner = &mut *self.inner.lock();
        let known = inner.all.state(key);
        // A session that has a sandbox does not ask for one: its transitions are one at a time.
        if known.is_some_and(|state| state != State::Cold) {
            return Err(Full { is_soon: false });
        }
        let live = inner.live.stats();
        let live_full = live.total >= live.capacity;
        if live_full && live.warm + live.waiting == 0 {
            return Err(Full { is_soon: live.warming > 0 });
        }
        let all = inner.all.stats();
        let all_full = known.is_none() && all.total >= all.capacity;
        if all_full && all.cold + all.warm + all.waiting == 0 {
            return Err(Full { is_soon: all.warming > 0 });
        }
        let mut duties = Vec::new();
        if live_full {
            duties.extend(inner.make_room(now));
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
        let inserted = inner.live.insert(key.clone(), State::Warming, now);
        debug_assert!(inserted.is_ok(), "room was made: {inserted:?}");
        Ok(duties)
    }

    /// Whether somebody waits in line: who comes later does not go before.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The same, behind those who came before, for as long as it may help to wait.
    ///
    /// # Errors
    /// When there is no room, all are at work and none is being made.
    pub(crate) async fn admit_in_line(
        &self,
        key: &Key,
        now: impl Fn() -> Instant,
    ) -> Result<Vec<Duty>, Full> {
        let _place = InLine::new(&self.waiting);
        let _turn = self.line.lock().await;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on nothing is missed.
            changed.as_mut().enable();
            match self.admit(key, now()) {
                Err(Full { is_soon: true }) => changed.await,
                other => return other,
            }
        }
    }

    /// The same for a sandbox that nobody waits for: only when nobody has to go for it.
    pub(crate) fn admit_if_free(&self, key: &Key, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        let is_full = |books: &Residents<Key>| books.count() >= books.capacity();
        if is_full(&inner.live) || is_full(&inner.all) {
            return false;
        }
        for books in [&mut inner.live, &mut inner.all] {
            let inserted = books.insert(key.clone(), State::Warming, now);
            debug_assert!(inserted.is_ok(), "there is room: {inserted:?}");
        }
        true
    }

    /// Whether nothing of it lives, as the books have it.
    pub(crate) fn is_cold(&self, key: &Key) -> bool {
        self.inner.lock().live.state(key).is_none()
    }

    /// Hands the place of a sandbox that is ready over to a session. Whether it was still there.
    pub(crate) fn claim(&self, ready: u64, session: &Arc<str>, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        let (ready, session) = (Key::Ready(ready), Key::Session(session.clone()));
        if inner.live.state(&ready) != Some(State::Warm) {
            return false;
        }
        for books in [&mut inner.live, &mut inner.all] {
            books.remove(&ready);
            let inserted = books.insert(session.clone(), State::Warm, now);
            debug_assert!(inserted.is_ok(), "one place was freed: {inserted:?}");
        }
        true
    }

    /// The sandbox is there, and nobody has used it.
    pub(crate) fn warm(&self, key: &Key, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_warm(key, now);
            debug_assert!(marked.is_ok(), "what is being made can be warm: {marked:?}");
        }
        self.changed.notify_waiters();
    }

    /// The sandbox of a session that was worked with before is there again.
    pub(crate) fn waiting(&self, key: &Key, now: Instant) {
        let inner = &mut *self.inner.lock();
        for books in [&mut inner.live, &mut inner.all] {
            let marked = books.mark_waiting(key, now);
            debug_assert!(marked.is_ok(), "what is being made can wait: {marked:?}");
        }
        self.changed.notify_waiters();
    }

    /// Somebody works with it: it is not swept and not evicted. False when the sandbox that `uses`
    /// are of is on its way out.
    pub(crate) fn begin(&self, key: &Key, uses: &Uses, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        if uses.is_gone() || inner.live.mark_running(key, now).is_err() {
            return false;
        }
        let marked = inner.all.mark_running(key, now);
        debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
        uses.add();
        true
    }

    /// Somebody has done with it. `uses` are those of one sandbox: when that has gone, it has no
    /// part in what the books say of the next one.
    pub(crate) fn end(&self, key: &Key, uses: &Uses, now: Instant) {
        let inner = &mut *self.inner.lock();
        if uses.take() == 0 && !uses.is_gone() {
            for books in [&mut inner.live, &mut inner.all] {
                let marked = books.mark_waiting(key, now);
                debug_assert!(marked.is_ok(), "what is used has a sandbox: {marked:?}");
            }
        }
        self.changed.notify_waiters();
    }

    /// A sandbox that was to be made could not be. The session is kept.
    pub(crate) fn give_up(&self, key: &Key, now: Instant) {
        let inner = &mut *self.inner.lock();
        inner.live.remove(key);
        let marked = inner.all.mark_cold(key, now);
        debug_assert!(marked.is_ok(), "what is being made is on the books: {marked:?}");
        self.changed.notify_waiters();
    }

    /// The sandbox is gone, whatever it was doing; the session is kept.
    pub(crate) fn cold(&self, key: &Key, uses: &Uses, now: Instant) {
        let inner = &mut *self.inner.lock();
        uses.go();
        inner.live.remove(key);
        // Struck off by an eviction meanwhile, and on its way to the object store.
        let _struck = inner.all.mark_cold(key, now);
        self.changed.notify_waiters();
    }

    /// Takes a session that is not at work, for a transition that ends its sandbox. False when it
    /// is at work, or has none.
    pub(crate) fn take_idle(&self, key: &Key, uses: &Uses, now: Instant) -> bool {
        let inner = &mut *self.inner.lock();
        if uses.is_gone() {
            // The sandbox that there may be is another one.
            return false;
        }
        match inner.live.state(key) {
            Some(State::Warm | State::Waiting) => {
                uses.go();
                inner.live.remove(key);
                let marked = inner.all.mark_cold(key, now);
                debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
                true
            }
            Some(State::Warming | State::Running | State::Cold) | None => false,
        }
    }

    /// Says that this server keeps the disk of a cold session. Nobody goes for it: at the start
    /// there may be more than there is room for, and the cold sweep sees to that.
    pub(crate) fn keep_cold(&self, session: &Arc<str>, now: Instant) {
        let inner = &mut *self.inner.lock();
        let key = Key::Session(session.clone());
        if inner.all.state(&key).is_none() {
            inner.add_to_all(key, State::Cold, now);
        }
    }

    /// Strikes it off.
    pub(crate) fn remove(&self, key: &Key) {
        let inner = &mut *self.inner.lock();
        inner.live.remove(key);
        inner.all.remove(key);
        self.changed.notify_waiters();
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
            inner.live.remove(&key);
            let Key::Session(id) = &key else {
                // What is ready has never been at work, so that it does not wait.
                inner.all.remove(&key);
                continue;
            };
            if patient.contains(id) {
                let back = inner.live.insert(key, State::Waiting, now);
                debug_assert_eq!(back, Ok(None), "its place was free");
                continue;
            }
            let marked = inner.all.mark_cold(&key, now);
            debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
            sessions.push(Arc::clone(id));
        }
        sessions
    }

    /// The same where nobody may wait for longer.
    #[cfg(test)]
    pub(crate) fn idle(&self, now: Instant, idle_min: Duration) -> Vec<Arc<str>> {
        self.idle_but(now, idle_min, &HashSet::new())
    }

    /// Takes the sessions that have been cold for at least `cold_min`: they are off the books.
    pub(crate) fn cold_before(&self, now: Instant, cold_min: Duration) -> Vec<Arc<str>> {
        let taken = self.inner.lock().all.cold_before(now, cold_min);
        let session = |key| match key {
            Key::Session(id) => Some(id),
            Key::Ready(_) => None,
        };
        taken.into_iter().filter_map(session).collect()
    }
}

impl Inner {
    /// Adds one to all, though there is no room. Somebody would be struck off for it otherwise
    /// whom nobody puts to rest.
    fn add_to_all(&mut self, key: Key, state: State, now: Instant) {
        let (count, capacity) = (self.all.count(), self.all.capacity());
        self.all.set_capacity(capacity.max(count + 1));
        let inserted = self.all.insert(key, state, now);
        self.all.set_capacity(capacity);
        debug_assert_eq!(inserted, Ok(None), "it was not there, and there was room");
    }

    /// Frees the place of one sandbox that lives.
    fn make_room(&mut self, now: Instant) -> Option<Duty> {
        let evicted = self.live.evict()?;
        match evicted.id {
            Key::Session(id) => {
                let marked = self.all.mark_cold(&Key::Session(id.clone()), now);
                debug_assert!(marked.is_ok(), "both books agree: {marked:?}");
                Some(Duty::Stop(id))
            }
            Key::Ready(number) => {
                self.all.remove(&Key::Ready(number));
                Some(Duty::Discard(number))
            }
        }
    }

    /// Frees one place of all.
    fn drop_cold(&mut self, duties: &mut Vec<Duty>) {
        // What made room among those that live may have made room here, too.
        if self.all.count() < self.all.capacity() {
            return;
        }
        let Some(evicted) = self.all.evict() else { return };
        let was_live = evicted.was != State::Cold;
        if was_live {
            self.live.remove(&evicted.id);
        }
        match evicted.id {
            Key::Session(id) => {
                if was_live {
                    duties.push(Duty::Stop(id.clone()));
                }
                duties.push(Duty::Archive(id));
            }
            Key::Ready(number) => duties.push(Duty::Discard(number)),
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

/// How many work with one sandbox. Changed under the lock of the books only, so that the order of
/// memory is the lock's.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    count: AtomicUsize,
    gone: AtomicBool,
}

impl Uses {
    fn add(&self) {
        self.count.store(self.count().saturating_add(1), Ordering::Relaxed);
    }

    fn take(&self) -> usize {
        let left = self.count().saturating_sub(1);
        self.count.store(left, Ordering::Relaxed);
        left
    }

    fn go(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the sandbox is off the books.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
