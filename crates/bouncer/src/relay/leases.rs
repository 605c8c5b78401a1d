//! Leases: how clients get server connections and give them back.

use std::sync::Arc;

use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, RelayClient, ServerAttachment};
use super::pools::{FreedConnectionUse, LeaseOutcome, LeaseRefusal, PoolEffect, ServerLease};
use super::server::ServerCloseReason;
use super::timers::micros;
use super::worker::{RelayWorker, TimerKey, WorkerShutdown};
use crate::tenants::{RouteError, WorkAdmission};

impl RelayWorker {
    /// Leases a server connection for a session.
    pub(super) fn lease(&mut self, place: u32) -> LeaseOutcome {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return LeaseOutcome::No;
        };
        if !session.has_turn(self.index, place, &self.common) {
            session.place = ServerAttachment::Parked;
            session.stats.clients_waiting.add(1);
            session.waiting_us = self.context.now_us;
            if let Some(wait) = session.route.tenant.times_of(&session.route.user).wait {
                let until_us = self.context.now_us.saturating_add(micros(wait));
                self.context.timers.arm(TimerKey::Client(place).id(), until_us);
            }
            return LeaseOutcome::Waits;
        }
        let lease = self.pools.lease(
            session.pool,
            place,
            session.link.fingerprint(),
            session.last_server,
            self.context.now,
        );
        match lease {
            ServerLease::Ready(server) => {
                self.attach(place, server);
                LeaseOutcome::Yes
            }
            ServerLease::Waiting(ticket) => {
                session.place = ServerAttachment::Waiting(ticket);
                session.stats.clients_waiting.add(1);
                session.waiting_us = self.context.now_us;
                LeaseOutcome::Waits
            }
            ServerLease::Refused(refusal) => {
                self.refuse(place, &refusal);
                LeaseOutcome::No
            }
        }
    }

    /// Leases a server connection for a client that is to be told the parameters of one.
    pub(super) fn lease_for_greeting(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Greeting(greeting) = &mut client.phase else { return };
        match self.pools.lease(greeting.pool, place, 0, None, self.context.now) {
            ServerLease::Ready(server) => {
                self.attach(place, server);
                self.queue_client(place);
            }
            ServerLease::Waiting(ticket) => greeting.place = ServerAttachment::Waiting(ticket),
            ServerLease::Refused(refusal) => self.refuse(place, &refusal),
        }
    }

    /// Attaches a server connection to a client. The link hears of it when
    /// the client's next bytes are looked at, so that all goes out in one write.
    fn attach(&mut self, place: u32, server_place: u32) {
        let RelayWorker { clients, servers, context, .. } = self;
        let Some(server) = servers.get_mut(server_place) else { return };
        let Some(client) = clients.get_mut(place) else { return };
        server.client = Some(place);
        server.leased_us = context.now_us;
        server.since_us = context.now_us;
        server.count_idle(false);
        match &mut client.phase {
            ClientPhase::Session(session) => {
                if matches!(session.place, ServerAttachment::Waiting(_)) {
                    session.stats.clients_waiting.sub(1);
                    let waited_us = context.now_us - session.waiting_us;
                    session.stats.times().wait.record(waited_us);
                    if let Some(watch) = &mut session.watch {
                        watch.waited(waited_us);
                    }
                }
                if let Some(holder) = &server.holder {
                    holder.taken_by(session.pid, context.now_us);
                }
                session.stats.clients_active.add(1);
                session.place = ServerAttachment::Attached(server_place);
                session.is_fresh = true;
                session.last_server = Some(server_place);
                client.since_us = context.now_us;
            }
            ClientPhase::Greeting(greeting) => {
                greeting.place = ServerAttachment::Attached(server_place)
            }
            ClientPhase::Login(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => {}
        }
    }

    /// Detaches a client from its server connection; both live on.
    pub(super) fn detach(&mut self, place: u32, server_place: u32) {
        let RelayWorker { clients, servers, context, .. } = self;
        let now_us = context.now_us;
        if let Some(server) = servers.get_mut(server_place) {
            server.client = None;
            server.since_us = now_us;
            server.pins.clear();
        }
        let Some(client) = clients.get_mut(place) else { return };
        client.since_us = now_us;
        let is_seen_off = client.is_seen_off;
        let Some(session) = client.session() else { return };
        session.rest();
        session.is_fresh = false;
        session.overtime_us = None;
        session.stats.clients_active.sub(1);
        let state = &session.route.tenant.state;
        if self.ending != WorkerShutdown::No
            || is_seen_off
            || state.is_removed()
            || state.admission() == WorkAdmission::Draining
        {
            self.drain_client(place);
            return;
        }
        self.watch_client(place);
        self.queue_client_with_input(place);
    }

    /// Returns a server connection without client and without outstanding replies to its pool.
    pub(super) fn return_server(&mut self, place: u32) {
        let RelayWorker { servers, pools, context, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        if server.cancels > 0 {
            // It could hit whoever comes next; it goes back when the last one has arrived.
            server.awaits_cancels = true;
            return;
        }
        let Some(settings) = server.link().map(|link| link.fingerprint()) else {
            return;
        };
        let busy_us = context.now_us.saturating_sub(server.leased_us);
        server.since_us = context.now_us;
        server.count_idle(true);
        server.stats.busy_us.add(busy_us);
        server.expire_mark(place, context);
        let next =
            pools.returned(server.pool, place, &mut server.slot, settings, busy_us, context.now);
        self.apply_freed_use(place, next);
    }

    /// Applies the pool's decision about a free server connection.
    pub(super) fn apply_freed_use(&mut self, place: u32, next: FreedConnectionUse<u32>) {
        match next {
            FreedConnectionUse::Idle => {}
            FreedConnectionUse::Serve(client) => {
                self.attach(client, place);
                self.queue_client(client);
            }
            FreedConnectionUse::Close(reason) => {
                self.close_server(place, &ServerCloseReason::Pool(reason))
            }
            FreedConnectionUse::Move(thread) => self.move_server(place, thread),
        }
    }

    /// Applies what the pools decided. Returns whether there was anything.
    pub(super) fn apply_pool_effects(&mut self) -> bool {
        let now = self.context.now;
        if self.pools.next_due().is_some_and(|due| due <= now) {
            self.pools.tick(now);
        }
        let mut any = false;
        while let Some(effect) = self.pools.next_effect() {
            any = true;
            match effect {
                PoolEffect::Open { pool, place } => self.open_server(pool, place),
                PoolEffect::Close { conn, reason } => {
                    self.close_server(conn, &ServerCloseReason::Pool(reason))
                }
                PoolEffect::Move { conn, thread } => self.move_server(conn, thread),
                PoolEffect::Refuse { client, refusal } => self.refuse(client, &refusal),
            }
        }
        any
    }

    /// Refuses a guest that has waited for a server connection for as long as its tenant allows.
    pub(super) fn lease_wait_expired(&mut self, place: u32) {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        if let Some(wait) = session.route.tenant.times_of(&session.route.user).wait {
            self.refuse(place, &LeaseRefusal::WaitTimeout { wait });
        }
    }

    /// Tells a client why it gets no server connection, and ends it.
    fn refuse(&mut self, place: u32, refusal: &LeaseRefusal) {
        let words = self.words();
        let (stats, tenant, is_waiting) = match self.clients.get_mut(place).map(|it| &mut it.phase)
        {
            Some(ClientPhase::Session(session)) => {
                let waits = session.place.is_waiting();
                session.rest();
                (&session.stats, &session.route.tenant, waits)
            }
            Some(ClientPhase::Greeting(greeting)) => {
                greeting.place = ServerAttachment::Idle;
                (&greeting.stats, &greeting.route.tenant, false)
            }
            Some(
                ClientPhase::Login(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing,
            )
            | None => return,
        };
        if is_waiting {
            stats.clients_waiting.sub(1);
        }
        let message = words.waited(refusal, &tenant.name);
        let paused = (tenant.state.admission() == WorkAdmission::Refusing)
            .then(|| RouteError::Paused(Arc::clone(&tenant.name)).to_string());
        let fields = match refusal {
            LeaseRefusal::QueueFull { .. } | LeaseRefusal::WaitTimeout { .. } => {
                stats.exhausted.add(1);
                ErrorFields::fatal("53300", &message).with_hint(
                    "All server connections of the tenant are in use. Try again later, end \
                     transactions sooner, or raise `limits.server_connections_max`.",
                )
            }
            LeaseRefusal::Down(failure) => ErrorFields::fatal(&failure.code, &message),
            // What those are told who come now.
            LeaseRefusal::Shut if paused.is_some() => {
                ErrorFields::fatal("08000", paused.as_deref().unwrap_or(&message))
            }
            LeaseRefusal::Shut => ErrorFields::fatal("57P01", &message),
        };
        self.disconnect(place, &fields);
    }
}
