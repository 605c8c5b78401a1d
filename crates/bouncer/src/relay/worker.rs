//! A relay thread: its loop, and everything it owns.
//!
//! A turn of the loop is one `epoll_wait`, one look at the clock, and then every event in turn: a
//! read from one side, the link's decision, a write to the other. Nothing in a turn blocks. What
//! one event makes possible elsewhere, as a server connection that came back does for a client that
//! waits, is put on a list and done before the thread sleeps again; so nothing recurses.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ::pool::shares::ThreadHandle;
use mio::{Events, Poll, Registry};
use pooler_core::link::{LinkOutputs, ProtocolLinks};
use pooler_core::pg::settings::{PgSettings, ReportedParameters as Reported};

use super::accept::{ACCEPT_PAUSE_US, ACCEPTS_PER_TURN_MAX, AcceptedConnection, RelayListener};
use super::buffers::{BufferFreelist, READ_BYTES_MAX};
use super::cancel_connections::CancelConnections;
use super::client::RelayClient;
use super::common::RelayShared;
use super::conn::{EventSource, SocketReadiness};
use super::guests::ClientOrigin;
use super::notifier::NotificationConnections;
use super::opening::{PendingResolve, ServerRole};
use super::orders::{ThreadCommand, ThreadInbox, ThreadMessageKind};
use super::pools::{self, ThreadPools};
use super::server::RelayServer;
use super::slots::SlotMap;
use super::stats::ThreadCounters;
use super::takeover::HandoverMessage;
use super::timers::TimerWheel;
use super::timers::micros;
use crate::tenants::{PoolId, TenantRouting};

/// Events that one `epoll_wait` can bring.
const EVENTS_MAX: usize = 1024;

/// Reads of one connection before others get their turn.
pub(super) const READS_PER_TURN_MAX: usize = 4;

/// Kinds of what a timer can be for; see [`TimerKey`].
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
    pub(super) fn id(self) -> u32 {
        match self {
            TimerKey::Client(place) => place * TIMER_KINDS,
            TimerKey::Server(place) => place * TIMER_KINDS + 1,
            TimerKey::Cancel(place) => place * TIMER_KINDS + 2,
            TimerKey::Notifier(place) => place * TIMER_KINDS + 3,
        }
    }

    fn of(id: u32) -> TimerKey {
        match id % TIMER_KINDS {
            0 => TimerKey::Client(id / TIMER_KINDS),
            1 => TimerKey::Server(id / TIMER_KINDS),
            2 => TimerKey::Cancel(id / TIMER_KINDS),
            _ => TimerKey::Notifier(id / TIMER_KINDS),
        }
    }
}

/// Work to go on with before the thread sleeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PendingWork {
    /// A client has input that was not looked at, or may have.
    Client(u32),
    /// A server connection, the same.
    Server(u32),
    /// Connections may wait at a listener.
    Accept(u32),
}

/// State that a thread borrows for every event.
#[derive(Debug)]
pub(super) struct EventContext {
    /// To register sockets.
    pub(super) registry: Registry,
    /// Memory for backlogs.
    pub(super) freelist: BufferFreelist,
    /// Deadlines.
    pub(super) timers: TimerWheel,
    /// Work to go on with.
    pub(super) work: VecDeque<PendingWork>,
    /// The time, read once in a turn.
    pub(super) now: Instant,
    /// Time in microseconds since the relay started.
    pub(super) now_us: u64,
}

/// State of a thread that owners of connections borrow for an event.
#[derive(Debug)]
pub(super) struct ConnectionIo<'a> {
    pub(super) context: &'a mut EventContext,
    pub(super) common: &'a RelayShared,
    /// Memory to read into.
    pub(super) scratch: &'a mut [u8],
}

/// Buffers in which output is assembled: once for each event, sent at its end.
#[derive(Debug, Default)]
pub(super) struct EventOutbox {
    pub(super) to_client: Vec<u8>,
    pub(super) to_server: Vec<u8>,
}

impl EventOutbox {
    /// For a link.
    pub(super) fn both(&mut self) -> LinkOutputs<'_> {
        LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server }
    }
}

/// A relay thread.
#[derive(Debug)]
pub(super) struct RelayWorker {
    pub(super) index: usize,
    poll: Poll,
    pub(super) context: EventContext,
    pub(super) outbox: EventOutbox,
    pub(super) scratch: Box<[u8]>,
    pub(super) clients: SlotMap<RelayClient>,
    pub(super) servers: SlotMap<RelayServer>,
    pub(super) cancels: CancelConnections,
    pub(super) notifications: NotificationConnections,
    pub(super) link: ProtocolLinks,
    /// Server connections and clients are known to the pools by their places.
    pub(super) pools: ThreadPools<u32, u32>,
    /// Roles with which pools log in.
    pub(super) roles: HashMap<PoolId, ServerRole>,
    /// Server connections whose names are being looked up, by the number of the question.
    pub(super) resolving: HashMap<u64, PendingResolve>,
    pub(super) common: Arc<RelayShared>,
    pub(super) routing: Arc<TenantRouting>,
    /// Parameters that clients were told lately.
    pub(super) seen: VecDeque<Arc<Reported>>,
    /// Settings that clients started with lately.
    pub(super) startups: VecDeque<Arc<PgSettings>>,
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) counters: Arc<ThreadCounters>,
    /// Listeners, of the first thread only.
    listeners: Vec<RelayListener>,
    /// When to accept again after the process ran out of something.
    accept_again_us: Option<u64>,
    /// Counts connections, to tell those in the same place apart.
    pub(super) serial: u64,
    pub(super) ending: WorkerShutdown,
    /// Gets the clients, while another process takes over.
    pub(super) successor: Option<Sender<HandoverMessage>>,
}

/// Dependencies of a thread.
#[derive(Debug)]
pub(super) struct WorkerParts {
    pub(super) poll: Poll,
    pub(super) listeners: Vec<RelayListener>,
    pub(super) handle: ThreadHandle,
    pub(super) registry: Arc<pools::PoolRegistry>,
    pub(super) link: ProtocolLinks,
}

/// Progress of a thread's shutdown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum WorkerShutdown {
    /// Not shutting down.
    No,
    /// No client is accepted, and clients leave after their transactions.
    Draining,
    /// Close all connections now.
    Now,
}

impl RelayWorker {
    /// A thread that has not begun.
    pub(super) fn new(
        index: usize,
        parts: WorkerParts,
        common: &Arc<RelayShared>,
    ) -> io::Result<RelayWorker> {
        let WorkerParts { poll, mut listeners, handle, registry, link } = parts;
        let epoll = poll.registry().try_clone()?;
        for (place, listener) in (0..).zip(&mut listeners) {
            listener.register(&epoll, EventSource::Listener(place).token())?;
        }
        let peer = &common.peers[index];
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)?;
        let pools = ThreadPools::new(registry, handle, u64::from_ne_bytes(seed));
        Ok(RelayWorker {
            index,
            poll,
            context: EventContext {
                registry: epoll,
                freelist: BufferFreelist::default(),
                timers: TimerWheel::new(0),
                work: VecDeque::new(),
                now: common.started,
                now_us: 0,
            },
            outbox: EventOutbox::default(),
            scratch: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            clients: SlotMap::new(),
            servers: SlotMap::new(),
            cancels: CancelConnections::new(),
            notifications: NotificationConnections::new(),
            link,
            pools,
            roles: HashMap::new(),
            resolving: HashMap::new(),
            routing: common.current.load(),
            seen: VecDeque::new(),
            startups: VecDeque::new(),
            inbox: Arc::clone(&peer.inbox),
            counters: Arc::clone(&peer.counters),
            common: Arc::clone(common),
            listeners,
            accept_again_us: None,
            serial: 0,
            ending: WorkerShutdown::No,
            successor: None,
        })
    }

    /// The thread's life, until it is told to end.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut orders = Vec::new();
        let mut due = Vec::new();
        while self.ending != WorkerShutdown::Now {
            let sleep = self.sleep();
            match self.poll.poll(&mut events, sleep) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // A broken epoll cannot be mended, and without it nobody is served.
                    tracing::error!(error = &error as &dyn std::error::Error, "wait for events");
                    break;
                }
            }
            self.read_clock();
            self.counters.stats.turns.add(1);
            for event in &events {
                self.counters.stats.events.add(1);
                let Some(source) = EventSource::of(event.token()) else { continue };
                self.dispatch(source, SocketReadiness::from(event), &mut orders);
            }
            self.finish_work();
            self.context.timers.advance(self.context.now_us, &mut due);
            for id in due.drain(..) {
                self.check_deadline(TimerKey::of(id));
            }
            self.accept_again();
            self.finish_work();
            while self.apply_pool_effects() {
                self.finish_work();
            }
            self.hand_over_clients();
            self.clients.turn();
            self.servers.turn();
            self.cancels.turn();
            self.notifications.turn();
        }
        self.close_everything();
    }

    fn read_clock(&mut self) {
        self.context.now = node::clock::now();
        self.context.now_us = micros(self.context.now - self.common.started);
    }

    /// Returns how long to sleep at most.
    fn sleep(&self) -> Option<Duration> {
        if !self.context.work.is_empty() {
            return Some(Duration::ZERO);
        }
        let pools_us = self.pools.next_due().map(|due| micros(due - self.common.started));
        let deadlines = [self.context.timers.next_us(), self.accept_again_us, pools_us];
        let next_us = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_micros(next_us.saturating_sub(self.context.now_us)))
    }

    fn dispatch(
        &mut self,
        source: EventSource,
        readiness: SocketReadiness,
        orders: &mut Vec<ThreadCommand>,
    ) {
        match source {
            EventSource::Inbox => {
                self.inbox.take(orders);
                for order in orders.drain(..) {
                    self.handle_command(order);
                }
                self.pools.mail(self.context.now);
            }
            EventSource::Listener(place) => self.accept(place),
            EventSource::Client(place) => self.client_ready(place, readiness),
            EventSource::Server(place) => self.server_ready(place, readiness),
            EventSource::Cancel(place) => self.cancel_ready(place, readiness),
            EventSource::Notifier(place) => self.notifier_ready(place, readiness),
            EventSource::Passed(place) => self.leg_ready(place, readiness),
        }
    }

    /// Does what the events made possible: what is on the list now, not what is added meanwhile by
    /// connections that have ever more to read.
    fn finish_work(&mut self) {
        for _ in 0..self.context.work.len() {
            let Some(work) = self.context.work.pop_front() else { break };
            match work {
                PendingWork::Client(place) => self.go_on_with_client(place),
                PendingWork::Server(place) => self.read_server(place),
                PendingWork::Accept(place) => self.accept(place),
            }
        }
    }

    fn check_deadline(&mut self, timer: TimerKey) {
        match timer {
            TimerKey::Client(place) => self.check_client_deadline(place),
            TimerKey::Server(place) => self.check_server_deadline(place),
            TimerKey::Cancel(place) => {
                self.cancels.check_deadline(place, &mut self.context);
                self.apply_ended_cancels();
            }
            TimerKey::Notifier(place) => {
                self.notifications.check_deadline(place, &mut self.context);
                self.apply_notification_events();
            }
        }
    }

    /// Accepts what waits at a listener, and deals it out.
    fn accept(&mut self, place: u32) {
        let number = place as usize;
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            if self.ending != WorkerShutdown::No || self.accept_again_us.is_some() {
                return;
            }
            let Some(listener) = self.listeners.get(number) else { return };
            match listener.accept() {
                Ok(Some(accepted)) => self.deal(accepted, number),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "accept a client");
                    self.accept_again_us = Some(self.context.now_us + ACCEPT_PAUSE_US);
                    return;
                }
            }
        }
        self.context.work.push_back(PendingWork::Accept(place));
    }

    /// Accepts again after a pause, from every listener: epoll told of them only once.
    fn accept_again(&mut self) {
        if self.accept_again_us.is_some_and(|at| at <= self.context.now_us) {
            self.accept_again_us = None;
            for place in (0..).take(self.listeners.len()) {
                self.context.work.push_back(PendingWork::Accept(place));
            }
        }
    }

    /// The listeners, for another process.
    pub(super) fn take_listeners(&mut self) -> Vec<RelayListener> {
        std::mem::take(&mut self.listeners)
    }

    /// Closes the listeners: whoever comes now is refused by the system.
    pub(super) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Gives a connection to the thread with the fewest clients.
    fn deal(&mut self, accepted: AcceptedConnection, listener: usize) {
        let peers = self.common.peers.iter().enumerate();
        let fewest = peers.min_by_key(|(_, peer)| peer.load.load(Ordering::Relaxed));
        let (index, peer) = fewest.unwrap_or((self.index, &self.common.peers[self.index]));
        peer.load.fetch_add(1, Ordering::Relaxed);
        if index == self.index {
            self.accept_client(accepted, ClientOrigin::Listener(listener));
        } else {
            peer.inbox.push(ThreadMessageKind::Accepted(accepted, listener));
        }
    }
}
