//! How clients and server connections come together and part.

use std::sync::Arc;

use wire::pg::message::ErrorFields;

use super::client::{Client, Phase, Place};
use super::opening::micros;
use super::pools::{Effect, Lease, Next, Refusal};
use super::server::Closing;
use super::worker::{Ending, Look, Worker};
use crate::tenants::{Admission, RouteError};

/// What became of a client's wish for a server connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Leased {
    /// It has one.
    Yes,
    /// It is in the queue.
    Waits,
    /// It was told why not, and goes.
    No,
}

impl Worker {
    /// Leases a server connection for a session.
    pub(super) fn lease(&mut self, place: u32) -> Leased {
        let Some(session) = self.clients.get_mut(place).and_then(Client::session) else {
            return Leased::No;
        };
        if !session.has_turn((self.index, place), &self.common) {
            session.place = Place::Parked;
            session.stats.clients_waiting.add(1);
            session.waiting_us = self.ground.now_us;
            if let Some(wait) = session.route.tenant.times_of(&session.route.user).wait {
                let until_us = self.ground.now_us.saturating_add(micros(wait));
                self.ground.timers.arm(Look::Client(place).id(), until_us);
            }
            return Leased::Waits;
        }
        let wish = (session.link.fingerprint(), session.last_server);
        let lease = self.pools.lease(session.pool, place, wish, self.ground.now);
        match lease {
            Lease::Ready(server) => {
                self.join(place, server);
                Leased::Yes
            }
            Lease::Waiting(ticket) => {
                session.place = Place::Waiting(ticket);
                session.stats.clients_waiting.add(1);
                session.waiting_us = self.ground.now_us;
                Leased::Waits
            }
            Lease::Refused(refusal) => {
                self.refuse(place, &refusal);
                Leased::No
            }
        }
    }

    /// Leases a server connection for a client that is to be told the parameters of one.
    pub(super) fn lease_for_greeting(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let Phase::Greeting(greeting) = &mut client.phase else { return };
        match self.pools.lease(greeting.pool, place, (0, None), self.ground.now) {
            Lease::Ready(server) => {
                self.join(place, server);
                self.queue_client(place);
            }
            Lease::Waiting(ticket) => greeting.place = Place::Waiting(ticket),
            Lease::Refused(refusal) => self.refuse(place, &refusal),
        }
    }

    /// Gives a client a server connection that is its own from now on. The link hears of it when
    /// the client's next bytes are looked at, so that all goes out in one write.
    fn join(&mut self, place: u32, server_place: u32) {
        let Worker { clients, servers, ground, .. } = self;
        let Some(server) = servers.get_mut(server_place) else { return };
        let Some(client) = clients.get_mut(place) else { return };
        server.client = Some(place);
        server.leased_us = ground.now_us;
        server.since_us = ground.now_us;
        server.count_idle(false);
        match &mut client.phase {
            Phase::Session(session) => {
                if matches!(session.place, Place::Waiting(_)) {
                    session.stats.clients_waiting.sub(1);
                    let waited_us = ground.now_us - session.waiting_us;
                    session.stats.times().wait.record(waited_us);
                }
                if let Some(holder) = &server.holder {
                    holder.taken_by(session.pid, ground.now_us);
                }
                session.stats.clients_active.add(1);
                session.place = Place::Attached(server_place);
                session.is_fresh = true;
                session.last_server = Some(server_place);
                client.since_us = ground.now_us;
            }
            Phase::Greeting(greeting) => greeting.place = Place::Attached(server_place),
            Phase::Login(_) | Phase::Console(_) | Phase::Closing => {}
        }
    }

    /// Parts a client and its server connection, both of which live on.
    pub(super) fn part(&mut self, place: u32, server_place: u32) {
        let Worker { clients, servers, ground, .. } = self;
        let now_us = ground.now_us;
        if let Some(server) = servers.get_mut(server_place) {
            server.client = None;
            server.since_us = now_us;
            server.pins.clear();
        }
        let Some(client) = clients.get_mut(place) else { return };
        client.since_us = now_us;
        let Some(session) = client.session() else { return };
        session.rest();
        session.is_fresh = false;
        session.overtime_us = None;
        session.stats.clients_active.sub(1);
        let state = &session.route.tenant.state;
        if self.ending != Ending::No
            || state.is_removed()
            || state.admission() == Admission::Draining
        {
            self.see_off_one(place);
            return;
        }
        self.watch_client(place);
        self.queue_client_with_input(place);
    }

    /// A server connection that nobody has, and that nothing is outstanding on: back to its pool.
    pub(super) fn give_back(&mut self, place: u32) {
        let Worker { servers, pools, ground, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        if server.cancels > 0 {
            // It could hit whoever comes next; it goes back when the last one has arrived.
            server.awaits_cancels = true;
            return;
        }
        let Some(settings) = server.link().map(|link| link.fingerprint()) else {
            return;
        };
        let busy_us = ground.now_us.saturating_sub(server.leased_us);
        server.since_us = ground.now_us;
        server.count_idle(true);
        server.stats.busy_us.add(busy_us);
        let next =
            pools.returned(server.pool, place, &mut server.slot, (settings, busy_us), ground.now);
        self.follow(place, next);
    }

    /// Does with a free server connection what its pool says.
    pub(super) fn follow(&mut self, place: u32, next: Next<u32>) {
        match next {
            Next::Idle => {}
            Next::Serve(client) => {
                self.join(client, place);
                self.queue_client(client);
            }
            Next::Close(reason) => self.close_server(place, &Closing::Pool(reason)),
            Next::Move(thread) => self.move_server(place, thread),
        }
    }

    /// Does what the pools decided. Whether there was anything.
    pub(super) fn keep_pools(&mut self) -> bool {
        let now = self.ground.now;
        if self.pools.next_due().is_some_and(|due| due <= now) {
            self.pools.tick(now);
        }
        let mut any = false;
        while let Some(effect) = self.pools.next_effect() {
            any = true;
            match effect {
                Effect::Open { pool, place } => self.open_server(pool, place),
                Effect::Close { conn, reason } => self.close_server(conn, &Closing::Pool(reason)),
                Effect::Move { conn, thread } => self.move_server(conn, thread),
                Effect::Refuse { client, refusal } => self.refuse(client, &refusal),
            }
        }
        any
    }

    /// It was not a client's turn for as long as one waits for a server connection.
    pub(super) fn waited_in_vain(&mut self, place: u32) {
        let Some(session) = self.clients.get_mut(place).and_then(Client::session) else { return };
        if let Some(wait) = session.route.tenant.times_of(&session.route.user).wait {
            self.refuse(place, &Refusal::WaitTimeout { wait });
        }
    }

    /// Tells a client why it gets no server connection, and ends it.
    fn refuse(&mut self, place: u32, refusal: &Refusal) {
        let words = self.words();
        let (stats, tenant, is_waiting) = match self.clients.get_mut(place).map(|it| &mut it.phase)
        {
            Some(Phase::Session(session)) => {
                let waits = session.place.is_waiting();
                session.rest();
                (&session.stats, &session.route.tenant, waits)
            }
            Some(Phase::Greeting(greeting)) => {
                greeting.place = Place::Idle;
                (&greeting.stats, &greeting.route.tenant, false)
            }
            Some(Phase::Login(_) | Phase::Console(_) | Phase::Closing) | None => return,
        };
        if is_waiting {
            stats.clients_waiting.sub(1);
        }
        let message = words.waited(refusal, &tenant.name);
        let paused = (tenant.state.admission() == Admission::Refusing)
            .then(|| RouteError::Paused(Arc::clone(&tenant.name)).to_string());
        let fields = match refusal {
            Refusal::QueueFull { .. } | Refusal::WaitTimeout { .. } => {
                stats.exhausted.add(1);
                ErrorFields::fatal("53300", &message).with_hint(
                    "All server connections of the tenant are in use. Try again later, end \
                     transactions sooner, or raise `limits.server_connections_max`.",
                )
            }
            Refusal::Down(failure) => ErrorFields::fatal(&failure.code, &message),
            // What those are told who come now.
            Refusal::Shut if paused.is_some() => {
                ErrorFields::fatal("08000", paused.as_deref().unwrap_or(&message))
            }
            Refusal::Shut => ErrorFields::fatal("57P01", &message),
        };
        self.expel(place, &fields);
    }
}
