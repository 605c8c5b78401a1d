//! Interrupts of cells: a signal that comes before a cell can heed it would be lost.
//!
//! A context ignores SIGINT between cells, and its driver says when a cell can be interrupted.
//! Until then an interrupt is held here. A cell that has ended needs none.

use parking_lot::Mutex;

/// Interruptibility of the cell of one context, and the interrupt that waits for it.
#[derive(Debug, Default)]
pub(super) struct InterruptGate(Mutex<CellPhase>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CellPhase {
    /// No cell runs.
    #[default]
    Idle,
    /// A cell was sent, or is about to be; the driver has not said that it can be interrupted.
    Starting { is_interrupted: bool },
    /// A signal ends the cell.
    Interruptible,
}

/// What becomes of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptRequest {
    /// No cell runs.
    NoCell,
    /// It is sent when the cell can be interrupted, by whoever follows the cell.
    Held,
    /// The caller sends the signal now.
    Due,
}

impl InterruptGate {
    /// Notes that a cell begins.
    pub(super) fn begin(&self) {
        *self.0.lock() = CellPhase::Starting { is_interrupted: false };
    }

    /// Notes that the cell has ended.
    pub(super) fn end(&self) {
        *self.0.lock() = CellPhase::Idle;
    }

    /// Returns whether a cell runs.
    pub(super) fn is_running(&self) -> bool {
        *self.0.lock() != CellPhase::Idle
    }

    /// Asks for an interrupt of the cell that runs.
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

    /// Notes that the cell can be interrupted. Returns whether an interrupt was held: the caller
    /// sends the signal.
    #[must_use]
    pub(super) fn open(&self) -> bool {
        let mut phase = self.0.lock();
        match *phase {
            // Out of turn, which does no harm.
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
    //! Interrupts at each point of a cell's life.

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
        // A driver that says it twice does not interrupt twice.
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
        // It has ended before it could be interrupted.
        gate.end();
        assert!(!gate.open());
        gate.begin();
        assert!(!gate.open());
    }
}
