//! Residents: which ones exist, in which state, and which one is evicted when the table is full.
//!
//! The table of a pool of stateful things, such as sandboxes of sessions. It decides and remembers,
//! in constant time; its user creates, stops and stores the residents, and holds the lock around
//! the table. It never reads a clock and does no I/O.
//!
//! # Terms
//! | term | meaning |
//! |---|---|
//! | resident | entry of the table, identified by any `K` |
//! | [`State`] | activity of a resident; [`State::may_become`] defines the allowed transitions |
//! | to evict | to remove one from the table to make room for another |
//! | to sweep | to take residents that have not been used for long |
//!
//! # Invariants
//! - No more than [`Residents::capacity`] are resident, cold ones included, unless the capacity was
//!   lowered: then an insertion does not increase their number.
//! - A running or warming resident is never evicted and never swept.
//! - An evicted resident is of the first tier that is not empty, and the least recently used of it:
//!   cold before warm before waiting.
//! - A mark, a touch and a removal allocate nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{AtomicUsize, Ordering};

/// State of a resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Being created, or being restored.
    Warming,
    /// Ready and not used yet.
    Warm,
    /// At work on a request.
    Running,
    /// Alive, and waiting for the next request.
    Waiting,
    /// Stored; nothing of it runs.
    Cold,
}

/// Number of states.
const STATES: usize = 5;

impl State {
    /// All states.
    pub const ALL: [State; STATES] =
        [State::Warming, State::Warm, State::Running, State::Waiting, State::Cold];

    /// States in the order of eviction.
    const EVICTED_FIRST: [State; 3] = [State::Cold, State::Warm, State::Waiting];

    /// Returns whether the transition is allowed. Remaining in a state is always allowed, and
    /// counts as use.
    #[must_use]
    pub const fn may_become(self, next: State) -> bool {
        match (self, next) {
            // A used sandbox never becomes warm again.
            (State::Warming, State::Warm)
            // A restored one resumes its former state directly.
            | (State::Warming | State::Warm | State::Waiting, State::Running)
            // A warm one that is claimed waits for its first message.
            | (State::Warming | State::Warm | State::Running, State::Waiting)
            // Any live resident can be stopped, or die.
            | (State::Warming | State::Warm | State::Running | State::Waiting, State::Cold)
            | (State::Cold, State::Warming)
            | (State::Warming, State::Warming)
            | (State::Warm, State::Warm)
            | (State::Running, State::Running)
            | (State::Waiting, State::Waiting)
            | (State::Cold, State::Cold) => true,
            (State::Warm | State::Running | State::Waiting, State::Warming)
            | (State::Running | State::Waiting | State::Cold, State::Warm)
            | (State::Cold, State::Running | State::Waiting) => false,
        }
    }

    const fn place(self) -> usize {
        match self {
            State::Warming => 0,
            State::Warm => 1,
            State::Running => 2,
            State::Waiting => 3,
            State::Cold => 4,
        }
    }
}

/// Evicted resident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictedResident<K> {
    /// Id.
    pub id: K,
    /// Former state: [`State::Cold`], [`State::Warm`] or [`State::Waiting`]. A waiting one has work
    /// that must be stored before it is stopped.
    pub was: State,
}

/// Reason why a resident was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentRefusal {
    /// The table is full, and all residents are running or warming.
    Full {
        /// The bound.
        capacity: usize,
    },
    /// The id is resident already.
    Present {
        /// State of the present resident.
        state: State,
    },
}

impl std::fmt::Display for ResidentRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResidentRefusal::Full { capacity } => {
                write!(f, "all {capacity} places are taken and none can be freed")
            }
            ResidentRefusal::Present { state } => {
                write!(f, "it is resident already, and {state:?}")
            }
        }
    }
}

impl std::error::Error for ResidentRefusal {}

/// Reason why a mark changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllegalMark {
    /// No resident has this id.
    Absent,
    /// Transition that is not allowed.
    Transition {
        /// Present state, which remains.
        from: State,
        /// Requested state.
        to: State,
    },
}

impl std::fmt::Display for IllegalMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IllegalMark::Absent => f.write_str("there is no such resident"),
            IllegalMark::Transition { from, to } => {
                write!(f, "what is {from:?} cannot become {to:?}")
            }
        }
    }
}

impl std::error::Error for IllegalMark {}

/// Number of residents of each kind. Each figure is exact; figures read together may be some
/// operations apart, because the pool continues while they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentStats {
    /// In any state.
    pub total: usize,
    /// See [`State::Warming`].
    pub warming: usize,
    /// See [`State::Warm`].
    pub warm: usize,
    /// See [`State::Running`].
    pub running: usize,
    /// See [`State::Waiting`].
    pub waiting: usize,
    /// See [`State::Cold`].
    pub cold: usize,
    /// The bound of `total`.
    pub capacity: usize,
}

/// Reads the figures without the lock around the table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ResidentFigures(Arc<ResidentCounts>);

#[derive(Debug)]
struct ResidentCounts {
    total: AtomicUsize,
    of: [AtomicUsize; STATES],
    capacity: AtomicUsize,
}

impl ResidentFigures {
    fn new(capacity: usize) -> ResidentFigures {
        ResidentFigures(Arc::new(ResidentCounts {
            total: AtomicUsize::new(0),
            of: std::array::from_fn(|_| AtomicUsize::new(0)),
            capacity: AtomicUsize::new(capacity),
        }))
    }

    /// Returns the number of residents, in any state.
    #[must_use]
    #[inline]
    pub fn count(&self) -> usize {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Returns the number of residents in each state.
    #[must_use]
    #[inline]
    pub fn stats(&self) -> ResidentStats {
        let of = |state: State| self.0.of[state.place()].load(Ordering::Relaxed);
        ResidentStats {
            total: self.count(),
            warming: of(State::Warming),
            warm: of(State::Warm),
            running: of(State::Running),
            waiting: of(State::Waiting),
            cold: of(State::Cold),
            capacity: self.0.capacity.load(Ordering::Relaxed),
        }
    }

    /// Only the holder of the lock writes, so a load and a store suffice.
    fn add(figure: &AtomicUsize) {
        figure.store(figure.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    fn take(figure: &AtomicUsize) {
        figure.store(figure.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }
}

/// Place number that means no resident.
const NONE: u32 = u32::MAX;

/// Maximum capacity of one table: places are numbered by 32 bits, and one number means none.
pub const CAPACITY_MAX: usize = u32::MAX as usize - 1;

#[derive(Debug)]
struct ResidentEntry<K> {
    /// None if the place is free.
    id: Option<K>,
    state: State,
    used: Instant,
    prev: u32,
    /// Next place of its list; of a free place, the next free one.
    next: u32,
}

/// The ends of one state's list; the least recently used resident is at the head.
#[derive(Clone, Copy, Debug)]
struct StateList {
    head: u32,
    tail: u32,
}

/// The table of residents. See the [module](self).
#[derive(Debug)]
pub struct Residents<K> {
    places: HashMap<K, u32>,
    entries: Vec<ResidentEntry<K>>,
    free: u32,
    lists: [StateList; STATES],
    capacity: usize,
    /// Latest time that was passed in. Callers read the clock before they lock the table, so times
    /// arrive slightly out of order; the order of the lists is decisive.
    latest: Instant,
    figures: ResidentFigures,
}

impl<K: Clone + Eq + Hash> Residents<K> {
    /// Creates an empty table with room for `capacity` residents, at most [`CAPACITY_MAX`].
    #[must_use]
    pub fn new(capacity: usize, now: Instant) -> Residents<K> {
        let capacity = capacity.min(CAPACITY_MAX);
        Residents {
            places: HashMap::new(),
            entries: Vec::new(),
            free: NONE,
            lists: [StateList { head: NONE, tail: NONE }; STATES],
            capacity,
            latest: now,
            figures: ResidentFigures::new(capacity),
        }
    }

    /// Returns the capacity.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the capacity. It evicts no resident: see [`Residents::evict`].
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.min(CAPACITY_MAX);
        self.figures.0.capacity.store(self.capacity, Ordering::Relaxed);
    }

    /// Returns a handle on the figures, for readers without the lock.
    #[must_use]
    pub fn figures(&self) -> ResidentFigures {
        self.figures.clone()
    }

    /// Returns the number of residents, in any state.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of residents in each state.
    #[must_use]
    pub fn stats(&self) -> ResidentStats {
        self.figures.stats()
    }

    /// Returns the state of a resident.
    #[must_use]
    pub fn state(&self, id: &K) -> Option<State> {
        self.places.get(id).map(|place| self.entry(*place).state)
    }

    /// Adds a resident. If the table is full, evicts exactly one other.
    ///
    /// # Errors
    /// If the id is resident already, or no resident can be evicted. The table is unchanged then.
    pub fn insert(
        &mut self,
        id: K,
        state: State,
        now: Instant,
    ) -> Result<Option<EvictedResident<K>>, ResidentRefusal> {
        if let Some(state) = self.state(&id) {
            return Err(ResidentRefusal::Present { state });
        }
        let evicted = if self.count() >= self.capacity {
            Some(self.evict().ok_or(ResidentRefusal::Full { capacity: self.capacity })?)
        } else {
            None
        };
        let used = self.at(now);
        let entry = ResidentEntry { id: Some(id.clone()), state, used, prev: NONE, next: NONE };
        let place = match self.free {
            NONE => {
                // The capacity is below the number of places, see `CAPACITY_MAX`.
                let place = u32::try_from(self.entries.len()).unwrap_or(NONE);
                self.entries.push(entry);
                place
            }
            place => {
                self.free = self.entry(place).next;
                *self.entry_mut(place) = entry;
                place
            }
        };
        self.places.insert(id, place);
        self.append(place, state);
        ResidentFigures::add(&self.figures.0.total);
        Ok(evicted)
    }

    /// Removes the first resident to evict; none if all are running or warming, or the table is
    /// empty.
    pub fn evict(&mut self) -> Option<EvictedResident<K>> {
        let heads = State::EVICTED_FIRST.map(|state| (self.lists[state.place()].head, state));
        let (place, was) = heads.into_iter().find(|(place, _)| *place != NONE)?;
        let id = self.strike(place)?;
        Some(EvictedResident { id, was })
    }

    /// Removes the first resident to evict for which `may_go` returns true; none if there is none.
    /// Scans the lists, so it is for rare cases only.
    pub fn evict_where(&mut self, may_go: impl Fn(&K) -> bool) -> Option<EvictedResident<K>> {
        for was in State::EVICTED_FIRST {
            let mut place = self.lists[was.place()].head;
            while place != NONE {
                let entry = self.entry(place);
                if entry.id.as_ref().is_some_and(&may_go) {
                    let id = self.strike(place)?;
                    return Some(EvictedResident { id, was });
                }
                place = entry.next;
            }
        }
        None
    }

    /// Removes a resident in any state, and returns that state.
    pub fn remove(&mut self, id: &K) -> Option<State> {
        let place = *self.places.get(id)?;
        let was = self.entry(place).state;
        self.strike(place);
        Some(was)
    }

    /// Marks a resident as being restored.
    ///
    /// # Errors
    /// If there is no such resident, or it is not cold. The same holds for the other marks, with
    /// the states that [`State::may_become`] allows. The table is unchanged then.
    pub fn mark_warming(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        self.mark(id, State::Warming, now)
    }

    /// Marks a resident as ready.
    ///
    /// # Errors
    /// See [`Residents::mark_warming`].
    pub fn mark_warm(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        self.mark(id, State::Warm, now)
    }

    /// Marks a resident as running.
    ///
    /// # Errors
    /// See [`Residents::mark_warming`].
    pub fn mark_running(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        self.mark(id, State::Running, now)
    }

    /// Marks a resident as waiting for the next request.
    ///
    /// # Errors
    /// See [`Residents::mark_warming`].
    pub fn mark_waiting(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        self.mark(id, State::Waiting, now)
    }

    /// Marks a resident as cold: nothing of it runs any more.
    ///
    /// # Errors
    /// See [`Residents::mark_warming`].
    pub fn mark_cold(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        self.mark(id, State::Cold, now)
    }

    /// Records a use without a change of state.
    ///
    /// # Errors
    /// If there is no such resident.
    pub fn touch(&mut self, id: &K, now: Instant) -> Result<(), IllegalMark> {
        let place = *self.places.get(id).ok_or(IllegalMark::Absent)?;
        let state = self.entry(place).state;
        self.move_to(place, state, now);
        Ok(())
    }

    /// Takes the waiting residents that have not been used for at least `idle_min`, the longest
    /// unused first. The table marks them cold, so that none is taken twice; the caller stores and
    /// stops them.
    pub fn idle(&mut self, now: Instant, idle_min: Duration) -> Vec<K> {
        let mut taken = Vec::new();
        while let Some(place) = self.unused(State::Waiting, now, idle_min) {
            self.move_to(place, State::Cold, now);
            taken.extend(self.entry(place).id.clone());
        }
        taken
    }

    /// Removes the residents that have been cold for at least `cold_min`, the longest first. Their
    /// local copies can be removed.
    pub fn cold_before(&mut self, now: Instant, cold_min: Duration) -> Vec<K> {
        let mut taken = Vec::new();
        while let Some(place) = self.unused(State::Cold, now, cold_min) {
            taken.extend(self.strike(place));
        }
        taken
    }

    /// Returns when [`Residents::idle`] would next take a resident, if nothing happens until then.
    #[must_use]
    pub fn next_idle(&self, idle_min: Duration) -> Option<Instant> {
        let head = self.lists[State::Waiting.place()].head;
        (head != NONE).then(|| self.entry(head).used + idle_min)
    }

    fn mark(&mut self, id: &K, to: State, now: Instant) -> Result<(), IllegalMark> {
        let place = *self.places.get(id).ok_or(IllegalMark::Absent)?;
        let from = self.entry(place).state;
        if !from.may_become(to) {
            return Err(IllegalMark::Transition { from, to });
        }
        self.move_to(place, to, now);
        Ok(())
    }

    /// Returns the least recently used resident of a state, if its last use was at least
    /// `unused_min` ago.
    fn unused(&self, state: State, now: Instant, unused_min: Duration) -> Option<u32> {
        let head = self.lists[state.place()].head;
        let is_due = |place| now.saturating_duration_since(self.entry(place).used) >= unused_min;
        (head != NONE && is_due(head)).then_some(head)
    }

    fn at(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn move_to(&mut self, place: u32, state: State, now: Instant) {
        self.unlink(place);
        let used = self.at(now);
        self.entry_mut(place).used = used;
        self.append(place, state);
    }

    /// Frees a place that is in use.
    fn strike(&mut self, place: u32) -> Option<K> {
        self.unlink(place);
        let free = std::mem::replace(&mut self.free, place);
        let entry = self.entry_mut(place);
        entry.next = free;
        let id = entry.id.take()?;
        self.places.remove(&id);
        ResidentFigures::take(&self.figures.0.total);
        Some(id)
    }

    /// Appends a place, which is in no list, to a list.
    fn append(&mut self, place: u32, state: State) {
        let tail = std::mem::replace(&mut self.lists[state.place()].tail, place);
        let entry = self.entry_mut(place);
        (entry.state, entry.prev, entry.next) = (state, tail, NONE);
        match tail {
            NONE => self.lists[state.place()].head = place,
            tail => self.entry_mut(tail).next = place,
        }
        ResidentFigures::add(&self.figures.0.of[state.place()]);
    }

    /// Removes a place from its list.
    fn unlink(&mut self, place: u32) {
        let ResidentEntry { state, prev, next, .. } = *self.entry(place);
        match prev {
            NONE => self.lists[state.place()].head = next,
            prev => self.entry_mut(prev).next = next,
        }
        match next {
            NONE => self.lists[state.place()].tail = prev,
            next => self.entry_mut(next).prev = prev,
        }
        ResidentFigures::take(&self.figures.0.of[state.place()]);
    }

    /// Place numbers come from the table itself, so the entry exists.
    fn entry(&self, place: u32) -> &ResidentEntry<K> {
        &self.entries[place as usize]
    }

    fn entry_mut(&mut self, place: u32) -> &mut ResidentEntry<K> {
        &mut self.entries[place as usize]
    }
}
