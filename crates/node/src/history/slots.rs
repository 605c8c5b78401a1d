//! Values of one series at one resolution: a ring of numbered slots. Pure.
//!
//! Slots are stored in pieces, and a piece of equal values is stored as one value: a series of an
//! unused service takes a few hundred bytes, for any length of history.

use std::collections::VecDeque;

/// Number of slots of a piece.
const PIECE_SLOTS: u64 = 60;

/// Consecutive slots.
#[derive(Debug)]
enum SlotPiece {
    /// All with one value.
    Same { value: f32, count: u64 },
    /// With values of their own.
    Mixed(Vec<f32>),
}

impl SlotPiece {
    fn count(&self) -> u64 {
        match self {
            SlotPiece::Same { count, .. } => *count,
            SlotPiece::Mixed(values) => values.len() as u64,
        }
    }

    fn push(&mut self, value: f32) {
        match self {
            SlotPiece::Same { value: same, count } if is_same(*same, value) => *count += 1,
            SlotPiece::Same { value: same, count } => {
                let mut values = Vec::with_capacity(usize::try_from(PIECE_SLOTS).unwrap_or(0));
                values.extend((0..*count).map(|_| *same));
                values.push(value);
                *self = SlotPiece::Mixed(values);
            }
            SlotPiece::Mixed(values) => values.push(value),
        }
    }

    /// Removes the last value. May leave an empty piece, which the caller fills again.
    fn pop(&mut self) {
        match self {
            SlotPiece::Same { count, .. } => *count = count.saturating_sub(1),
            SlotPiece::Mixed(values) => drop(values.pop()),
        }
    }
}

/// Compares values; gaps are equal.
fn is_same(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
}

/// Ring of the latest slots.
#[derive(Debug)]
pub(super) struct SlotRing {
    /// Maximum number of stored slots.
    slots_max: u64,
    pieces: VecDeque<SlotPiece>,
    /// Number of the first slot of the first piece.
    first: u64,
    /// Number after that of the last slot.
    end: u64,
}

impl SlotRing {
    pub(super) fn new(slots_max: u64) -> SlotRing {
        SlotRing { slots_max, pieces: VecDeque::new(), first: 0, end: 0 }
    }

    /// Writes a slot, the last one again or a later one; slots in between are gaps. Earlier ones
    /// are not changed.
    pub(super) fn set(&mut self, slot: u64, value: f32) {
        if self.pieces.is_empty() || slot.saturating_sub(self.end) >= self.slots_max {
            self.pieces.clear();
            (self.first, self.end) = (slot, slot);
        }
        if slot + 1 == self.end {
            if let Some(last) = self.pieces.back_mut() {
                last.pop();
                self.end -= 1;
            }
        } else if slot < self.end {
            return;
        }
        while self.end < slot {
            self.push(f32::NAN);
        }
        self.push(value);
        while let Some(first) = self.pieces.front() {
            // As long as the rest is sufficient.
            if self.end - self.first - first.count() < self.slots_max {
                break;
            }
            self.first += first.count();
            self.pieces.pop_front();
        }
    }

    fn push(&mut self, value: f32) {
        self.end += 1;
        match self.pieces.back_mut() {
            Some(last) if last.count() == 0 => *last = SlotPiece::Same { value, count: 1 },
            Some(last) if last.count() < PIECE_SLOTS => last.push(value),
            _ => self.pieces.push_back(SlotPiece::Same { value, count: 1 }),
        }
    }

    /// Calls `visit` with the number and value of each stored slot, oldest first.
    pub(super) fn each(&self, mut visit: impl FnMut(u64, f32)) {
        let oldest = self.end.saturating_sub(self.slots_max);
        let mut slot = self.first;
        for piece in &self.pieces {
            let mut show = |value| {
                if slot >= oldest {
                    visit(slot, value);
                }
                slot += 1;
            };
            match piece {
                SlotPiece::Same { value, count } => (0..*count).for_each(|_| show(*value)),
                SlotPiece::Mixed(values) => values.iter().copied().for_each(&mut show),
            }
        }
    }

    /// Returns the number of values that take memory of their own.
    #[cfg(test)]
    pub(super) fn values_held(&self) -> usize {
        let held = |piece: &SlotPiece| match piece {
            SlotPiece::Same { .. } => 1,
            SlotPiece::Mixed(values) => values.capacity(),
        };
        self.pieces.iter().map(held).sum()
    }
}
