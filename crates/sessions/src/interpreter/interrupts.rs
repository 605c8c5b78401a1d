//! Interrupts of cells: a signal before the cell is interruptible would be lost.
//!
//! A context ignores SIGINT between cells, and its driver reports when a cell is interruptible.
//! Until then, an interrupt is held here. An ended cell needs none.

use parking_lot::Mutex;

/// Phase of a context's cell, and a held interrupt.
#[derive(Debug, Default)]
pub(super) struct InterruptGate(Mutex<CellPhase>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CellPhase {
    /// No cell runs.
    #[default]
    Idle,
    /// A cell was or is about to be sent; the driver has not reported it as interruptible.
    Starting { is_interrupted: bool },
    /// A signal interrupts the cell.
    Interruptible,
}

/// Treatment of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptRequest {
    /// No cell runs.
    NoCell,
    /// The task that follows the cell sends the signal once the cell is interruptible.
    Held,
    /// The caller must send the signal now.
    Due,
}

impl InterruptGate {
    /// Records the start of a cell.
    pub(super) fn begin(&self) {
        *self.0.lock() = CellPhase::Starting { is_interrupted: false };
    }

    /// Records the end of the cell.
    pub(super) fn end(&self) {
        *self.0.lock() = CellPhase::Idle;
    }

    /// Returns whether a cell runs.
    pub(super) fn is_running(&self) -> bool {
        *self.0.lock() != CellPhase::Idle
    }

    /// Requests an interrupt of the running cell.
    pub(super) fn request(&self) -> InterruptRequest {
        let mut phase = self.0.lock();
        match *phase {
            CellPhase::Idle => InterruptRequest::NoCell,
            CellPhase::Starting { .. } => {
                *phase = CellPhase::Starting { is_interrupted: true };
                InterruptRequest::Held
            }
            CellPhase::Interruptible => InterruptRequest::Due,
        }
    }

    /// Records that the cell is interruptible. Returns true if an interrupt was held; the caller
    /// then sends the signal.
    #[must_use]
    pub(super) fn open(&self) -> bool {
        let mut phase = self.0.lock();
        match *phase {
            // Unexpected here, but harmless.
            CellPhase::Idle | CellPhase::Interruptible => false,
            CellPhase::Starting { is_interrupted } => {
                *phase = CellPhase::Interruptible;
                is_interrupted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Interrupts in each phase of a cell.

    use super::*;

    #[test]
    fn an_interrupt_is_held_until_the_cell_can_be_interrupted_and_is_sent_once() {
        let gate = InterruptGate::default();
        assert_eq!(gate.request(), InterruptRequest::NoCell);
        gate.begin();
        assert!(gate.is_running());
        assert_eq!(gate.request(), InterruptRequest::Held);
        assert_eq!(gate.request(), InterruptRequest::Held);
        assert!(gate.open());
        // A repeated report does not interrupt twice.
        assert!(!gate.open());
        assert_eq!(gate.request(), InterruptRequest::Due);
        gate.end();
        assert!(!gate.is_running());
        assert_eq!(gate.request(), InterruptRequest::NoCell);
    }

    #[test]
    fn an_interrupt_of_one_cell_is_none_of_the_next() {
        let gate = InterruptGate::default();
        gate.begin();
        assert_eq!(gate.request(), InterruptRequest::Held);
        // The cell ends before it is interruptible.
        gate.end();
        assert!(!gate.open());
        gate.begin();
        assert!(!gate.open());
    }
}
