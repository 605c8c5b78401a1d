//! Deadlines of connections: a coarse wheel with at most one entry for each connection.
//!
//! An entry means "check this connection then", without a reason. So a deadline that moves later,
//! as that of a running statement does with every statement, costs nothing: the check comes too
//! early, finds nothing due, and arms the entry again. Nothing has to be cancelled, and entries do
//! not accumulate.
//!
//! # References
//! - <https://dl.acm.org/doi/10.1145/41457.37504>

/// Length of a tick in microseconds. Deadlines are kept to that precision.
pub(crate) const TICK_US: u64 = 8 * 1024;

/// Converts a duration to microseconds, the relay's unit.
pub(super) fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Slots on each level; a slot is a bit of a `u64`.
const PLACES: usize = 64;
/// Levels; one slot of each spans 8 ms, 0.5 s, 34 s and 36 min. Together they span 38 hours; a
/// later deadline is checked at the end of the span and armed again.
const LEVELS: usize = 4;
const LEVEL_BITS: u32 = 6;

const NONE: u32 = u32::MAX;

/// An entry of the wheel, at the index of its id.
#[derive(Clone, Copy, Debug)]
struct TimerEntry {
    tick: u64,
    next: u32,
    previous: u32,
    /// Level and slot combined; `NONE` if it is not armed.
    place: u32,
}

const UNARMED: TimerEntry = TimerEntry { tick: 0, next: NONE, previous: NONE, place: NONE };

/// The wheel. Times are microseconds since an origin that the caller chooses.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    entries: Vec<TimerEntry>,
    heads: [u32; LEVELS * PLACES],
    taken: [u64; LEVELS],
    /// Last tick that was handled.
    tick: u64,
}

impl TimerWheel {
    /// Creates a wheel that begins at `now_us`.
    pub(crate) fn new(now_us: u64) -> Self {
        TimerWheel {
            entries: Vec::new(),
            heads: [NONE; LEVELS * PLACES],
            taken: [0; LEVELS],
            tick: now_us / TICK_US,
        }
    }

    /// Arms a check of `id` at `at_us` or shortly after; an earlier check that is armed stays as it
    /// is.
    pub(crate) fn arm(&mut self, id: u32, at_us: u64) {
        let tick = at_us.div_ceil(TICK_US).max(self.tick + 1);
        let index = id as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, UNARMED);
        }
        if self.entries[index].place != NONE {
            if self.entries[index].tick <= tick {
                return;
            }
            self.unlink(id);
        }
        self.entries[index].tick = tick;
        self.link(id);
    }

    /// Removes the entry of `id`, which no longer exists.
    pub(crate) fn disarm(&mut self, id: u32) {
        if self.entries.get(id as usize).is_some_and(|entry| entry.place != NONE) {
            self.unlink(id);
        }
    }

    /// Returns the earliest time at which [`TimerWheel::advance`] has something to do.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let mut next = None;
        for level in 0..LEVELS {
            let taken = self.taken[level];
            if taken == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level_number(level);
            let current = self.tick >> shift;
            // The slot of the current tick is empty on level 0, and on the others is due a whole
            // revolution later.
            let position = u32::try_from((current + 1) % PLACES as u64).unwrap_or(0);
            let ahead = u64::from(taken.rotate_right(position).trailing_zeros());
            let tick = (current + 1 + ahead) << shift;
            next = Some(next.map_or(tick, |other: u64| other.min(tick)));
        }
        next.map(|tick| tick * TICK_US)
    }

    /// Advances to `now_us` and adds every due id to `due`.
    pub(crate) fn advance(&mut self, now_us: u64, due: &mut Vec<u32>) {
        let target = now_us / TICK_US;
        while self.tick < target {
            let Some(next) = self.next_us() else {
                self.tick = target;
                return;
            };
            let tick = (next / TICK_US).min(target);
            self.tick = tick;
            // From the top, so that entries that move down are handled on the same tick.
            for level in (0..LEVELS).rev() {
                let shift = LEVEL_BITS * level_number(level);
                if tick & ((1 << shift) - 1) == 0 {
                    self.empty(level * PLACES + place_at(tick >> shift), due);
                }
            }
        }
    }

    /// Empties a slot: due entries are returned, the others move to a lower level.
    fn empty(&mut self, place: usize, due: &mut Vec<u32>) {
        let mut id = std::mem::replace(&mut self.heads[place], NONE);
        self.taken[place / PLACES] &= !(1 << (place % PLACES));
        while id != NONE {
            let entry = std::mem::replace(&mut self.entries[id as usize], UNARMED);
            if entry.tick <= self.tick {
                due.push(id);
            } else {
                self.entries[id as usize].tick = entry.tick;
                self.link(id);
            }
            id = entry.next;
        }
    }

    fn link(&mut self, id: u32) {
        let tick = self.entries[id as usize].tick;
        let ahead = tick.saturating_sub(self.tick);
        let mut level = 0;
        while level + 1 < LEVELS && ahead >> (LEVEL_BITS * level_number(level + 1)) != 0 {
            level += 1;
        }
        let shift = LEVEL_BITS * level_number(level);
        // Beyond the top level: placed at its last slot, and armed again from there.
        let reach = (PLACES as u64 - 1) << shift;
        let place = level * PLACES + place_at(tick.min(self.tick + reach) >> shift);
        let head = self.heads[place];
        if head != NONE {
            self.entries[head as usize].previous = id;
        }
        let place_number = u32::try_from(place).unwrap_or(NONE);
        self.entries[id as usize] =
            TimerEntry { tick, next: head, previous: NONE, place: place_number };
        self.heads[place] = id;
        self.taken[level] |= 1 << (place % PLACES);
    }

    fn unlink(&mut self, id: u32) {
        let entry = std::mem::replace(&mut self.entries[id as usize], UNARMED);
        let place = entry.place as usize;
        if entry.previous == NONE {
            self.heads[place] = entry.next;
            if entry.next == NONE {
                self.taken[place / PLACES] &= !(1 << (place % PLACES));
            }
        } else {
            self.entries[entry.previous as usize].next = entry.next;
        }
        if entry.next != NONE {
            self.entries[entry.next as usize].previous = entry.previous;
        }
    }
}

fn level_number(level: usize) -> u32 {
    u32::try_from(level).unwrap_or(0)
}

fn place_at(position: u64) -> usize {
    usize::try_from(position % PLACES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares with a naive model, which checks all entries at every step.
    fn check(steps: &[(u32, u64, u64)]) {
        let mut wheel = TimerWheel::new(0);
        let mut model: Vec<Option<u64>> = vec![None; 16];
        let mut now = 0;
        for &(id, after, move_on) in steps {
            let tick = (now + after).div_ceil(TICK_US).max(now / TICK_US + 1);
            wheel.arm(id, now + after);
            let armed = &mut model[id as usize];
            *armed = Some(armed.map_or(tick, |other| other.min(tick)));
            let earliest = model.iter().flatten().min().copied();
            let next = wheel.next_us().expect("something is armed") / TICK_US;
            assert!(next <= earliest.expect("armed"), "sleeps too long");
            assert!(next > now / TICK_US, "would spin");
            now += move_on;
            let mut due = Vec::new();
            wheel.advance(now, &mut due);
            due.sort_unstable();
            let mut expected = Vec::new();
            for (id, armed) in (0..).zip(&mut model) {
                if armed.is_some_and(|tick| tick <= now / TICK_US) {
                    *armed = None;
                    expected.push(id);
                }
            }
            assert_eq!(due, expected, "at {now}");
        }
    }

    proptest! {
        #[test]
        fn everything_is_looked_at_in_its_tick(
            steps in prop::collection::vec(
                (0..16_u32,
                 prop_oneof![0..100_000_u64, 0..40_000_000_u64, 0..30_000_000_000_u64],
                 prop_oneof![0..30_000_u64, 0..10_000_000_u64, 0..5_000_000_000_u64]),
                1..80)
        ) {
            check(&steps);
        }
    }

    #[test]
    fn what_is_later_than_the_wheel_reaches_comes_in_its_time() {
        let far = 100 * 3600 * 1_000_000;
        check(&[(3, far, far / 2), (4, 5, far / 4), (5, far, far / 4), (6, 1, 2 * far)]);
    }

    #[test]
    fn a_look_that_was_forgotten_does_not_come() {
        let mut wheel = TimerWheel::new(0);
        for id in 0..5 {
            wheel.arm(id, TICK_US * 3);
        }
        wheel.disarm(2);
        wheel.disarm(4);
        wheel.disarm(4);
        wheel.disarm(99);
        let mut due = Vec::new();
        wheel.advance(TICK_US * 4, &mut due);
        due.sort_unstable();
        assert_eq!(due, [0, 1, 3]);
        assert_eq!(wheel.next_us(), None);
    }
}
