//! Leases: how clients get and return server connections.

use std::sync::Arc;

use pooler_core::link::ServerCredentials;
use wire::pg::message::ErrorFields;

use super::SessionRelay;
use crate::relay::client::{ClientPhase, ServerAttachment};
use crate::relay::context::{ThreadShutdown, TimerKey};
use crate::relay::listen::{ChannelSubscriptions, SubscriberIo};
use crate::relay::pools::{LeaseOutcome, LeaseRefusal, PoolRef, ServerLease};
use crate::relay::server::Parameters;
use crate::relay::servers::{RoleOrigin, ServerEvent};
use crate::relay::sessions::ThreadContext;
use crate::relay::timers::micros;
use crate::tenants::{PoolId, RouteError, TenantRoute, WorkAdmission};

impl SessionRelay {
    /// Leases a server connection for a session.
    pub(crate) fn lease(&mut self, place: u32, context: &mut ThreadContext) -> LeaseOutcome {
        let Some(session) = self.clients.session(place) else {
            return LeaseOutcome::No;
        };
        if !session.has_turn(context.index, place, &context.common) {
            session.place = ServerAttachment::Parked;
            session.stats.clients_waiting.add(1);
            session.waiting_us = context.now_us;
            if let Some(wait) = session.route.tenant.times_of(&session.route.user).wait {
                let until_us = context.now_us.saturating_add(micros(wait));
                context.timers.arm(TimerKey::Client(place).id(), until_us);
            }
            return LeaseOutcome::Waits;
        }
        let lease = self.servers.lease(
            session.pool,
            place,
            session.link.fingerprint(),
            session.last_server,
            context.now,
        );
        match lease {
            ServerLease::Ready(server) => {
                self.attach(place, server, context);
                LeaseOutcome::Yes
            }
            ServerLease::Waiting(ticket) => {
                session.place = ServerAttachment::Waiting(ticket);
                session.stats.clients_waiting.add(1);
                session.waiting_us = context.now_us;
                LeaseOutcome::Waits
            }
            ServerLease::Refused(refusal) => {
                self.refuse(place, &refusal, context);
                LeaseOutcome::No
            }
        }
    }

    /// Leases a server connection for a client that waits for a server's parameters.
    pub(crate) fn lease_for_greeting(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Greeting(greeting) = &mut client.phase else { return };
        match self.servers.lease(greeting.pool, place, 0, None, context.now) {
            ServerLease::Ready(server) => {
                self.attach(place, server, context);
                self.clients.queue(place, context);
            }
            ServerLease::Waiting(ticket) => greeting.place = ServerAttachment::Waiting(ticket),
            ServerLease::Refused(refusal) => self.refuse(place, &refusal, context),
        }
    }

    /// Takes the parameters from a server connection that was leased for them alone, and returns
    /// the connection.
    pub(crate) fn take_parameters(
        &mut self,
        place: u32,
        server_place: u32,
        context: &mut ThreadContext,
    ) -> Option<Parameters> {
        let server = self.servers.get_mut(server_place)?;
        server.client = None;
        let parameters = Arc::clone(&server.parameters);
        if let Some(ClientPhase::Greeting(greeting)) =
            self.clients.get_mut(place).map(|client| &mut client.phase)
        {
            greeting.place = ServerAttachment::Idle;
        }
        self.servers.give_back(server_place, context);
        self.apply_server_events(context);
        Some(parameters)
    }

    /// Counts a client of a pool.
    pub(crate) fn join(
        &mut self,
        id: PoolId,
        route: &TenantRoute,
        credentials: ServerCredentials,
        origin: RoleOrigin,
        context: &mut ThreadContext,
    ) -> PoolRef {
        let pool = self.servers.join(id, route, credentials, origin, context.now);
        self.apply_admission(id, context);
        pool
    }

    /// Attaches a server connection to a client. The link is attached when the client's next bytes
    /// are processed, so that all output leaves in one write.
    pub(crate) fn attach(&mut self, place: u32, server_place: u32, context: &ThreadContext) {
        let SessionRelay { clients, servers, .. } = self;
        let Some(client) = clients.get_mut(place) else { return };
        let Some(server) = servers.hold(server_place, place, context.now_us) else { return };
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

    /// Detaches a client from its server connection; both stay open.
    pub(crate) fn detach(&mut self, place: u32, server_place: u32, context: &mut ThreadContext) {
        let SessionRelay { clients, servers, .. } = self;
        let now_us = context.now_us;
        servers.let_go(server_place, now_us);
        let Some(client) = clients.get_mut(place) else { return };
        client.since_us = now_us;
        let is_seen_off = client.is_seen_off;
        let Some(session) = client.session() else { return };
        session.rest();
        session.is_fresh = false;
        session.overtime_us = None;
        session.stats.clients_active.sub(1);
        let state = &session.route.tenant.state;
        if context.ending != ThreadShutdown::No
            || is_seen_off
            || state.is_removed()
            || state.admission() == WorkAdmission::Draining
        {
            self.drain_client(place, context);
            return;
        }
        self.clients.watch(place, &self.servers, context);
        self.clients.queue_with_input(place, context);
    }

    /// Applies the effects of the pools. Returns whether there were any.
    pub(crate) fn apply_pool_effects(&mut self, context: &mut ThreadContext) -> bool {
        let any = self.servers.apply_pool_effects(context);
        self.apply_server_events(context);
        while let Some((client, refusal)) = self.servers.next_refusal() {
            self.refuse(client, &refusal, context);
        }
        // The end of sessions may have affected subscriptions, which may have ended further
        // sessions.
        self.subscribed(|_, _| (), context);
        any
    }

    /// Handles a possible change of a client's channels, or of whether it can receive
    /// notifications.
    #[inline]
    pub(crate) fn update_channels(&mut self, place: u32, context: &mut ThreadContext) {
        self.subscribed(|subscriptions, io| subscriptions.update(place, io), context);
    }

    /// Performs an action on the subscriptions, and disconnects clients for which it failed.
    #[inline]
    pub(crate) fn subscribed<T>(
        &mut self,
        act: impl FnOnce(&mut ChannelSubscriptions, &mut SubscriberIo<'_>) -> T,
        context: &mut ThreadContext,
    ) -> T {
        let SessionRelay { subscriptions, clients, servers, .. } = self;
        let result = act(subscriptions, &mut SubscriberIo { clients, servers, context });
        while let Some(failed) = self.subscriptions.next_failed() {
            if self.clients.session(failed.client).is_none() {
                continue;
            }
            let fields = ErrorFields::fatal(failed.code, &failed.message);
            let fields = match failed.hint {
                Some(hint) => fields.with_hint(hint),
                None => fields,
            };
            self.disconnect(failed.client, &fields, context);
        }
        result
    }

    /// Handles the events of server connections.
    #[inline]
    pub(crate) fn apply_server_events(&mut self, context: &mut ThreadContext) {
        while let Some(event) = self.servers.next_event() {
            match event {
                ServerEvent::Serve { client, server } => {
                    self.attach(client, server, context);
                    self.clients.queue(client, context);
                }
                ServerEvent::CancelsEnded { client } => self.clients.unstall(client, context),
            }
        }
    }

    /// Arms the next check of a session, if its tenant has limits on time.
    pub(crate) fn watch(&self, place: u32, context: &mut ThreadContext) {
        self.clients.watch(place, &self.servers, context);
    }

    /// Sends a client the reason why it gets no server connection, and disconnects it.
    pub(crate) fn refuse(
        &mut self,
        place: u32,
        refusal: &LeaseRefusal,
        context: &mut ThreadContext,
    ) {
        let words = context.words();
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
            // The same error as for clients that connect now.
            LeaseRefusal::Shut if paused.is_some() => {
                ErrorFields::fatal("08000", paused.as_deref().unwrap_or(&message))
            }
            LeaseRefusal::Shut => ErrorFields::fatal("57P01", &message),
        };
        self.disconnect(place, &fields, context);
    }
}
