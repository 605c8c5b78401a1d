//! Events of the simulation, in the order of their times. Its clock is the time of the latest one.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::store::{NodeIndex, SessionIndex, StoreAnswer, StoreRequest};

/// Timer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeTimer {
    Register,
    Renew,
    Verify,
    Drain,
    Settle,
    /// A check of the address of a node whose process has ended (`peer::watch`).
    Refused {
        target: NodeIndex,
        run: u32,
    },
}

/// Event of the simulation.
#[derive(Debug)]
pub(super) enum SimulatedEvent {
    Timer {
        node: NodeIndex,
        run: u32,
        timer: NodeTimer,
    },
    /// A request arrives at the store, by a connection to one of its servers.
    Arrives {
        node: NodeIndex,
        run: u32,
        id: u64,
        request: StoreRequest,
    },
    Answered {
        node: NodeIndex,
        run: u32,
        id: u64,
        generation: u64,
        answer: StoreAnswer,
    },
    GivenUp {
        node: NodeIndex,
        run: u32,
        id: u64,
    },
    /// A client asks a node for a session.
    Ask {
        session: SessionIndex,
        node: NodeIndex,
        was_passed_on: bool,
    },
    Fault,
    GoesOn {
        node: NodeIndex,
    },
    Start {
        node: NodeIndex,
    },
    Drain {
        node: NodeIndex,
        drains: bool,
    },
}

#[derive(Debug)]
struct ScheduledEvent {
    at_ms: u64,
    number: u64,
    event: SimulatedEvent,
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &ScheduledEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &ScheduledEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &ScheduledEvent) -> Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}

/// Pending events. Only the schedule moves the clock.
#[derive(Debug, Default)]
pub(super) struct EventSchedule {
    now_ms: u64,
    events: BinaryHeap<Reverse<ScheduledEvent>>,
    /// Number of issued numbers.
    count: u64,
}

impl EventSchedule {
    /// Returns the milliseconds since the start.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns a unique number.
    pub(super) fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Schedules an event `ms` milliseconds from now.
    pub(super) fn after(&mut self, ms: u64, event: SimulatedEvent) {
        self.at(self.now_ms + ms, event);
    }

    /// Schedules an event at a time.
    pub(super) fn at(&mut self, at_ms: u64, event: SimulatedEvent) {
        let number = self.next_number();
        self.events.push(Reverse(ScheduledEvent { at_ms, number, event }));
    }

    /// Moves the clock to the next event and returns it; none if that is after the end.
    pub(super) fn advance(&mut self, end_ms: u64) -> Option<SimulatedEvent> {
        let Reverse(next) = self.events.pop().filter(|next| next.0.at_ms <= end_ms)?;
        self.now_ms = next.at_ms;
        Some(next.event)
    }
}
