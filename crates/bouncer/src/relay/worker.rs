//! A relay thread: its loop, and its state. It also drives clients without a session.
//!
//! An iteration of the loop is one `epoll_wait`, one reading of the clock, and then some events, of
//! each tenant in turn: a read from one side, the link's decision, a write to the other. Nothing in
//! it blocks. Follow-up work of an event, such as serving a waiting client with a returned server
//! connection, is queued and done before the thread sleeps again; so nothing recurses.

mod clients;
mod handover;
mod logins;
mod passed;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ::pool::shares::ThreadHandle;
use mio::{Events, Poll};
use pooler_core::link::ProtocolLinks;
use pooler_core::pg::settings::{PgSettings, ReportedParameters as Reported};
use wire::pg::message::ErrorFields;

use super::accept::{ACCEPTS_PER_TURN_MAX, RelayListener};
use super::common::RelayShared;
use super::conn::{EventSource, SocketReadiness};
use super::context::{PendingWork, ThreadContext, ThreadShutdown, TimerKey};
use super::guests::ClientOrigin;
use super::listeners::{AcceptOutcome, ThreadListeners};
use super::orders::{ThreadCommand, ThreadMessage, ThreadMessageKind};
use super::pools::PoolRegistry;
use super::ready::EVENTS_PER_TURN_MAX;
use super::servers::ServerConnections;
use super::sessions::{GuestDismissal, SessionRelay};
use super::takeover::HandoverMessage;
use super::timers::micros;
use crate::tenants::TenantId;

/// Maximum events per `epoll_wait`.
const EVENTS_MAX: usize = 1024;

/// A relay thread.
#[derive(Debug)]
pub(super) struct RelayWorker {
    poll: Poll,
    context: ThreadContext,
    sessions: SessionRelay,
    /// Parameter sets that were recently sent to clients.
    seen: VecDeque<Arc<Reported>>,
    /// Settings with which clients recently started.
    startups: VecDeque<Arc<PgSettings>>,
    /// Listeners, of the first thread only.
    listeners: ThreadListeners,
    /// Destination of the clients, while another process takes over.
    successor: Option<Sender<HandoverMessage>>,
}

/// Dependencies of a thread.
#[derive(Debug)]
pub(super) struct WorkerParts {
    pub(super) poll: Poll,
    pub(super) listeners: Vec<RelayListener>,
    pub(super) handle: ThreadHandle,
    pub(super) registry: Arc<PoolRegistry>,
    pub(super) link: ProtocolLinks,
}

impl RelayWorker {
    /// Creates a thread that is not running yet.
    pub(super) fn new(
        index: usize,
        parts: WorkerParts,
        common: &Arc<RelayShared>,
    ) -> io::Result<RelayWorker> {
        let WorkerParts { poll, listeners, handle, registry, link } = parts;
        let context = ThreadContext::new(index, poll.registry().try_clone()?, common);
        let listeners = ThreadListeners::register(listeners, &context.registry)?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)?;
        let servers = ServerConnections::new(registry, handle, u64::from_ne_bytes(seed));
        Ok(RelayWorker {
            poll,
            context,
            sessions: SessionRelay::new(servers, link),
            seen: VecDeque::new(),
            startups: VecDeque::new(),
            listeners,
            successor: None,
        })
    }

    /// Runs the thread until it is ordered to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut orders = Vec::new();
        let mut due = Vec::new();
        let mut pools_due = None;
        while self.context.ending != ThreadShutdown::Now {
            let sleep = self.sleep(pools_due);
            match self.poll.poll(&mut events, sleep) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // A broken epoll cannot be repaired, and without it no client is served.
                    tracing::error!(error = &error as &dyn std::error::Error, "wait for events");
                    break;
                }
            }
            self.context.read_clock();
            self.context.counters.stats.turns.add(1);
            for event in &events {
                self.context.counters.stats.events.add(1);
                let Some(source) = EventSource::of(event.token()) else { continue };
                let readiness = SocketReadiness::from(event);
                if !self.context.ready.add(source, readiness, &mut self.sessions) {
                    self.dispatch(source, readiness, &mut orders);
                }
            }
            for _ in 0..EVENTS_PER_TURN_MAX {
                let next = self.context.ready.next(&mut self.sessions);
                let Some((source, readiness)) = next else { break };
                self.dispatch(source, readiness, &mut orders);
            }
            self.finish_work();
            self.context.timers.advance(self.context.now_us, &mut due);
            for id in due.drain(..) {
                self.check_deadline(TimerKey::of(id));
            }
            self.listeners.accept_again(&mut self.context);
            self.finish_work();
            while self.sessions.apply_pool_effects(&mut self.context) {
                self.finish_work();
            }
            self.hand_over_clients();
            pools_due = self.sessions.turn();
        }
        self.sessions.close_everything(&mut self.context);
    }

    /// Returns the maximum time to sleep; `pools_due` is the time of the pools' next check.
    fn sleep(&self, pools_due: Option<Instant>) -> Option<Duration> {
        if !self.context.work.is_empty() || !self.context.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let pools_us = pools_due.map(|due| micros(due - self.context.common.started));
        let deadlines = [self.context.timers.next_us(), self.listeners.again_us(), pools_us];
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
                self.context.inbox.take(orders);
                for order in orders.drain(..) {
                    self.handle_command(order);
                }
                self.sessions
                    .served(|servers, context| servers.mail(context.now), &mut self.context);
            }
            EventSource::Listener(place) => self.accept(place),
            EventSource::Client(place) => self.client_ready(place, readiness),
            EventSource::Server(place) => {
                self.sessions.server_ready(place, readiness, &mut self.context)
            }
            EventSource::Cancel(place) => self.sessions.served(
                |servers, context| servers.cancel_ready(place, readiness, context),
                &mut self.context,
            ),
            EventSource::Notifier(place) => {
                let RelayWorker { sessions, context, .. } = self;
                sessions.subscribed(|it, io| it.ready(place, readiness, io), context);
                // Clients with too many pending notifications are disconnected before more are
                // read.
                while sessions.subscribed(|it, io| it.read(place, io), context) {}
            }
            EventSource::Passed(place) => self.leg_ready(place, readiness),
        }
    }

    /// Does the work that is queued now; work added meanwhile by connections with ever more input
    /// has to wait.
    fn finish_work(&mut self) {
        for _ in 0..self.context.work.len() {
            let Some(work) = self.context.work.pop_front() else { break };
            match work {
                PendingWork::Client(place) => self.go_on_with_client(place),
                PendingWork::Server(place) => self.sessions.read_server(place, &mut self.context),
                PendingWork::Accept(place) => self.accept(place),
            }
        }
    }

    fn check_deadline(&mut self, timer: TimerKey) {
        match timer {
            TimerKey::Client(place) => self.check_client_deadline(place),
            TimerKey::Server(place) => self.sessions.served(
                |servers, context| servers.check_deadline(place, context),
                &mut self.context,
            ),
            TimerKey::Cancel(place) => self.sessions.served(
                |servers, context| servers.check_cancel_deadline(place, context),
                &mut self.context,
            ),
            TimerKey::Notifier(place) => self.sessions.subscribed(
                |subscriptions, io| subscriptions.check_deadline(place, io),
                &mut self.context,
            ),
        }
    }

    /// Accepts pending connections of a listener, and distributes them.
    fn accept(&mut self, place: u32) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.listeners.accept(place, &self.context) {
                AcceptOutcome::Own(accepted) => {
                    self.accept_client(accepted, ClientOrigin::Listener(place as usize));
                }
                AcceptOutcome::Dealt => {}
                AcceptOutcome::Nothing => return,
            }
        }
        self.context.work.push_back(PendingWork::Accept(place));
    }

    /// Handles a command of the control plane.
    fn handle_command(&mut self, order: ThreadCommand) {
        match order {
            ThreadCommand::Routing => self.sessions.apply_routing(&mut self.context),
            ThreadCommand::Admission(tenant) => {
                self.sessions.change_admission(tenant, &mut self.context);
            }
            ThreadCommand::Reconnect(tenant) => {
                self.sessions.renew_terms(tenant, &mut self.context)
            }
            ThreadCommand::GiveUpSurplus => {
                self.sessions.served(|servers, _| servers.give_up_surplus(), &mut self.context);
            }
            ThreadCommand::GiveUpIdle(tenants, before) => {
                let give_up = |tenant: &TenantId| {
                    let act = |servers: &mut ServerConnections, _: &mut _| {
                        servers.give_up_idle(*tenant, before);
                    };
                    self.sessions.served(act, &mut self.context);
                };
                tenants.iter().for_each(give_up);
            }
            ThreadCommand::RetryEntries => self.retry_entries(),
            ThreadCommand::Kill(tenant) => {
                self.sessions.kill_tenant(
                    tenant,
                    "terminating connection due to administrator command",
                    &mut self.context,
                );
            }
            ThreadCommand::KillClient(pid) => {
                if let Some(place) = self.sessions.clients().of_pid(pid) {
                    let message = "terminating connection due to administrator command";
                    let fields = ErrorFields::fatal("57P01", message);
                    self.sessions.disconnect(place, &fields, &mut self.context);
                }
            }
            ThreadCommand::RevokeGuest(guest) => {
                self.sessions.dismiss_guest(guest, GuestDismissal::Revoked, &mut self.context)
            }
            ThreadCommand::ReleaseIdleOfGuest(guest) => {
                self.sessions.dismiss_guest(guest, GuestDismissal::Resting, &mut self.context)
            }
            ThreadCommand::Snapshot(reply) => {
                // The requester may have given up waiting.
                drop(reply.send(self.sessions.snapshot(&self.context)));
            }
            ThreadCommand::Drain => {
                self.context.ending = self.context.ending.max(ThreadShutdown::Draining);
                self.listeners.close();
                self.sessions.drain_clients(None, &mut self.context);
                self.see_off_passed();
            }
            ThreadCommand::StopListening => self.listeners.close(),
            ThreadCommand::Stop => self.context.ending = ThreadShutdown::Now,
            ThreadCommand::Internal(ThreadMessage(inner)) => self.handle_message(inner),
        }
    }

    fn handle_message(&mut self, inner: ThreadMessageKind) {
        match inner {
            ThreadMessageKind::Accepted(accepted, listener) => {
                self.accept_client(accepted, ClientOrigin::Listener(listener));
            }
            ThreadMessageKind::Guest(stream, guest, place) => {
                self.accept_guest(stream, guest, place)
            }
            ThreadMessageKind::Turn { client, pid, turn } => {
                self.sessions.turn_granted(client, pid, turn, &mut self.context)
            }
            ThreadMessageKind::Cancel { client, pid } => {
                self.sessions.cancel_client(client, pid, &mut self.context)
            }
            ThreadMessageKind::KillClient { client, pid } => {
                self.sessions.kill_one(client, pid, &mut self.context)
            }
            ThreadMessageKind::Resolved { serial, addresses } => {
                self.sessions.served(
                    |servers, context| servers.resolved(serial, addresses, context),
                    &mut self.context,
                );
            }
            ThreadMessageKind::Secret { client, serial, secret } => {
                self.looked_up(client, serial, &secret)
            }
            ThreadMessageKind::Checked { client, serial, checked } => {
                self.checked(client, serial, checked)
            }
            ThreadMessageKind::Killed { client, serial, is_found } => {
                self.sessions.killed_elsewhere(client, serial, is_found, &mut self.context)
            }
            ThreadMessageKind::ConsoleAnswer { client, serial, answer } => {
                self.answered(client, serial, &answer)
            }
            ThreadMessageKind::Passed { client, serial, stream } => {
                self.passed(client, serial, stream)
            }
            ThreadMessageKind::HomeLost { client, serial } => self.home_lost(client, serial),
            ThreadMessageKind::Arriving(arriving) => self.take_arriving(*arriving),
            ThreadMessageKind::EndArrived(ids) => self.end_arrived(&ids),
            ThreadMessageKind::SeeOff(ids) => self.see_off_arrived(&ids),
            ThreadMessageKind::HandOver(successor) => self.hand_over(successor),
            ThreadMessageKind::Adopted(adopted) => self.adopt(adopted),
            ThreadMessageKind::Moved(moved) => self
                .sessions
                .served(|servers, context| servers.receive(moved, context), &mut self.context),
        }
    }
}
