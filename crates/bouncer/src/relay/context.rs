//! State of a thread that every owner of connections borrows for an event, and the names by which
//! work and timers refer to connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mio::Registry;
use pooler_core::link::LinkOutputs;

use super::buffers::{BufferFreelist, READ_BYTES_MAX};
use super::common::RelayShared;
use super::dialect::ErrorDialect;
use super::orders::ThreadInbox;
use super::ready::ReadyQueue;
use super::stats::ThreadCounters;
use super::timers::{TimerWheel, micros};
use crate::tenants::TenantRouting;

/// Maximum reads of one connection in a turn.
pub(super) const READS_PER_TURN_MAX: usize = 4;

/// Number of kinds of timers; see [`TimerKey`].
const TIMER_KINDS: u32 = 4;

/// Subject of a timer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TimerKey {
    /// A client.
    Client(u32),
    /// A server connection.
    Server(u32),
    /// A connection that carries a cancel request.
    Cancel(u32),
    /// A connection that listens.
    Notifier(u32),
}

impl TimerKey {
    /// Returns the number that identifies it in the timer wheel.
    pub(super) fn id(self) -> u32 {
        match self {
            TimerKey::Client(place) => place * TIMER_KINDS,
            TimerKey::Server(place) => place * TIMER_KINDS + 1,
            TimerKey::Cancel(place) => place * TIMER_KINDS + 2,
            TimerKey::Notifier(place) => place * TIMER_KINDS + 3,
        }
    }

    /// Converts a number back.
    pub(super) fn of(id: u32) -> TimerKey {
        match id % TIMER_KINDS {
            0 => TimerKey::Client(id / TIMER_KINDS),
            1 => TimerKey::Server(id / TIMER_KINDS),
            2 => TimerKey::Cancel(id / TIMER_KINDS),
            _ => TimerKey::Notifier(id / TIMER_KINDS),
        }
    }
}

/// Work to do before the thread sleeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PendingWork {
    /// A client that has, or may have, unprocessed input.
    Client(u32),
    /// A server connection that has, or may have, unprocessed input.
    Server(u32),
    /// A listener at which connections may be pending.
    Accept(u32),
}

/// Progress of a thread's shutdown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum ThreadShutdown {
    /// Not shutting down.
    No,
    /// No client is accepted, and clients leave after their transactions.
    Draining,
    /// Close all connections now.
    Now,
}

/// Buffers in which output is assembled: once per event, sent at its end.
#[derive(Debug, Default)]
pub(super) struct EventOutbox {
    pub(super) to_client: Vec<u8>,
    pub(super) to_server: Vec<u8>,
}

impl EventOutbox {
    /// Returns both buffers, for a link.
    pub(super) fn both(&mut self) -> LinkOutputs<'_> {
        LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server }
    }
}

/// State of a thread that belongs to no connection; the handler of an event borrows it.
#[derive(Debug)]
pub(super) struct ThreadContext {
    /// Number of the thread.
    pub(super) index: usize,
    /// Registry of the thread's epoll.
    pub(super) registry: Registry,
    /// Memory for backlogs.
    pub(super) freelist: BufferFreelist,
    /// Memory to read into.
    pub(super) scratch: Box<[u8]>,
    /// Output that is being assembled.
    pub(super) outbox: EventOutbox,
    /// Deadlines.
    pub(super) timers: TimerWheel,
    /// Pending work.
    pub(super) work: VecDeque<PendingWork>,
    /// Connections that wait for their tenants' turns.
    pub(super) ready: ReadyQueue,
    /// The time, read once per turn.
    pub(super) now: Instant,
    /// Time in microseconds since the relay started.
    pub(super) now_us: u64,
    /// State of all threads.
    pub(super) common: Arc<RelayShared>,
    /// Tenants, as of the last command.
    pub(super) routing: Arc<TenantRouting>,
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) counters: Arc<ThreadCounters>,
    pub(super) ending: ThreadShutdown,
    /// Counter that distinguishes successive connections in one slot.
    serial: u64,
}

impl ThreadContext {
    /// Creates the state of the thread with this number; `registry` is that of its epoll.
    pub(super) fn new(
        index: usize,
        registry: Registry,
        common: &Arc<RelayShared>,
    ) -> ThreadContext {
        let peer = &common.peers[index];
        ThreadContext {
            index,
            registry,
            freelist: BufferFreelist::default(),
            scratch: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            outbox: EventOutbox::default(),
            timers: TimerWheel::new(0),
            work: VecDeque::new(),
            ready: ReadyQueue::default(),
            now: common.started,
            now_us: 0,
            routing: common.current.load(),
            inbox: Arc::clone(&peer.inbox),
            counters: Arc::clone(&peer.counters),
            common: Arc::clone(common),
            ending: ThreadShutdown::No,
            serial: 0,
        }
    }

    /// Reads the clock, once per turn.
    pub(super) fn read_clock(&mut self) {
        self.now = node::clock::now();
        self.now_us = micros(self.now - self.common.started);
    }

    /// Returns the serial number of a new connection.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns the dialect of error messages to clients.
    pub(super) fn words(&self) -> ErrorDialect {
        self.common.console.get().map_or(ErrorDialect::Own, |backend| backend.words())
    }
}
