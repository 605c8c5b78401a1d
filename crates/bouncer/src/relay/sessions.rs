//! The sessions of a thread: its clients, server connections and subscriptions, and the traffic
//! between them.
//!
//! Clients that log in, use the console or are served by another node have their slots here too,
//! because the end of any client may free a server connection. Their other behaviour is in their
//! drivers ([`super::worker`]).

mod cancel;
mod leases;
mod leave;
mod traffic;

use std::sync::Arc;
use std::time::Instant;

use pooler_core::link::ProtocolLinks;
use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, RelayClient, ServerAttachment};
use super::clients::ClientConnections;
use super::conn::EventSource;
use super::context::{ThreadContext, ThreadShutdown};
use super::listen::ChannelSubscriptions;
use super::ready::{RelayConnections, RelayEventTarget};
use super::server::RelayServer;
use super::servers::ServerConnections;
use super::snapshot::ThreadSnapshot;
use crate::guest::turns::LeaseQuotaPermit;
use crate::tenants::{PoolId, TenantId, WorkAdmission};

pub(super) use self::traffic::SessionInput;

/// Why the connections of a guest are ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GuestDismissal {
    /// Its grant was revoked.
    Revoked,
    /// Its sandbox is paused: only connections that hold a server connection without using it are
    /// closed.
    Resting,
}

/// The sessions of a thread.
#[derive(Debug)]
pub(super) struct SessionRelay {
    clients: ClientConnections,
    servers: ServerConnections,
    subscriptions: ChannelSubscriptions,
    link: ProtocolLinks,
}

impl RelayConnections for SessionRelay {
    #[inline]
    fn connection(&mut self, source: EventSource) -> Option<RelayEventTarget<'_>> {
        match source {
            EventSource::Client(place) => {
                let client = self.clients.get_mut(place)?;
                let (tenant, serial) = (client.tenant_id(), client.serial);
                Some(RelayEventTarget { conn: &mut client.conn, tenant, serial })
            }
            EventSource::Passed(place) => {
                let client = self.clients.get_mut(place)?;
                let (tenant, serial) = (client.tenant_id(), client.serial);
                Some(RelayEventTarget { conn: &mut client.passed_mut()?.leg, tenant, serial })
            }
            EventSource::Server(place) => {
                let server = self.servers.get_mut(place)?;
                let (tenant, serial) = (Some(server.tenant.id), server.serial);
                Some(RelayEventTarget { conn: &mut server.conn, tenant, serial })
            }
            EventSource::Inbox
            | EventSource::Listener(_)
            | EventSource::Cancel(_)
            | EventSource::Notifier(_) => None,
        }
    }
}

impl SessionRelay {
    /// Creates an empty table.
    pub(super) fn new(servers: ServerConnections, link: ProtocolLinks) -> SessionRelay {
        let (clients, subscriptions) = (ClientConnections::new(), ChannelSubscriptions::new());
        SessionRelay { clients, servers, subscriptions, link }
    }

    /// Returns the clients.
    #[inline]
    pub(super) fn clients(&self) -> &ClientConnections {
        &self.clients
    }

    /// Returns the clients for modification.
    #[inline]
    pub(super) fn clients_mut(&mut self) -> &mut ClientConnections {
        &mut self.clients
    }

    /// Returns the links' shared state of the thread, for a new session.
    pub(super) fn links(&mut self) -> &mut ProtocolLinks {
        &mut self.link
    }

    /// Makes released slots available again, at the end of a turn. Returns the time of the pools'
    /// next check that no event triggers.
    pub(super) fn turn(&mut self) -> Option<Instant> {
        self.clients.turn();
        self.servers.turn();
        self.subscriptions.turn();
        self.servers.next_due()
    }

    /// Performs an action on the server connections, and handles the resulting events.
    pub(super) fn served<T>(
        &mut self,
        act: impl FnOnce(&mut ServerConnections, &mut ThreadContext) -> T,
        context: &mut ThreadContext,
    ) -> T {
        let result = act(&mut self.servers, context);
        self.apply_server_events(context);
        result
    }

    /// Applies a tenant's admission to its pools and clients.
    pub(super) fn change_admission(&mut self, tenant: TenantId, context: &mut ThreadContext) {
        for id in self.servers.pools_of(tenant) {
            self.apply_admission(id, context);
        }
        self.drain_clients(Some(tenant), context);
    }

    /// Applies a new snapshot of tenants.
    pub(super) fn apply_routing(&mut self, context: &mut ThreadContext) {
        context.routing = context.common.current.load();
        for tenant in self.servers.update_tenants(&context.routing) {
            self.renew_terms(tenant, context);
        }
        let SessionRelay { servers, link, .. } = self;
        servers.forget_unused(link, context);
        let routing = &context.routing;
        context.common.forced.keep_only(|id| routing.tenant(id).is_some());
        context.common.mysql_forced.keep_only(|id| routing.tenant(id).is_some());
        context.counters.keep_only(|id| routing.tenant(id).is_some());
        for place in self.clients.keys() {
            let Some(client) = self.clients.get_mut(place) else { continue };
            let (route, bound) = match &mut client.phase {
                ClientPhase::Session(session) => (&mut session.route, &session.bound),
                ClientPhase::Greeting(greeting) => (&mut greeting.route, &greeting.bound),
                ClientPhase::Login(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => continue,
            };
            let Some(tenant) = context.routing.now(&route.tenant) else { continue };
            match bound.guest.as_ref().map(|guest| guest.route(&context.routing)) {
                None => {
                    route.tenant = Arc::clone(tenant);
                    route.user = tenant.user(&route.user.name);
                }
                Some(Ok(now)) => *route = now,
                // The client leaves when its tenant does; no new ones arrive meanwhile.
                Some(Err(_)) => route.tenant = Arc::clone(tenant),
            }
            if let ClientPhase::Session(session) = &mut client.phase {
                session.is_timed = tenant.times_of(&session.route.user).limit_clients();
                // Its current state may have a new limit.
                self.clients.watch(place, &self.servers, context);
            }
        }
        // Regardless of what their clients are doing.
        for tenant in self.clients.removed_tenants() {
            self.kill_tenant(tenant, "terminating connection: the tenant was removed", context);
        }
        self.drain_clients(None, context);
    }

    /// Applies the current definition of a tenant to its pools.
    pub(super) fn renew_terms(&mut self, tenant: TenantId, context: &mut ThreadContext) {
        self.servers.renew_terms(tenant, context.now);
        for id in self.servers.pools_of(tenant) {
            self.apply_admission(id, context);
        }
    }

    /// Opens, holds or shuts a pool according to its tenant's admission.
    pub(super) fn apply_admission(&mut self, id: PoolId, context: &mut ThreadContext) {
        self.servers.apply_admission(id, context.now);
        self.subscribed(|subscriptions, io| subscriptions.refresh(id, io), context);
    }

    /// Disconnects idle clients that must leave: of one tenant, or of all. Others are checked when
    /// their transaction ends.
    pub(super) fn drain_clients(&mut self, tenant: Option<TenantId>, context: &mut ThreadContext) {
        for place in self.clients.keys() {
            let is_meant = self.clients.get(place).is_some_and(|client| match &client.phase {
                ClientPhase::Session(session) => {
                    session.place == ServerAttachment::Idle
                        && tenant.is_none_or(|tenant| session.route.tenant.id == tenant)
                }
                ClientPhase::Login(_) => tenant.is_none(),
                ClientPhase::Greeting(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => false,
            });
            if is_meant {
                self.drain_client(place, context);
            }
        }
    }

    /// Disconnects a client between transactions, if it must leave. Returns whether it had to.
    pub(super) fn drain_client(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let Some(client) = self.clients.get(place) else { return false };
        let stops = context.ending != ThreadShutdown::No || client.is_seen_off;
        let leaves = match &client.phase {
            ClientPhase::Session(session) => {
                let state = &session.route.tenant.state;
                stops || state.is_removed() || state.admission() == WorkAdmission::Draining
            }
            ClientPhase::Login(_) => stops,
            ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        };
        if leaves {
            let message = match stops {
                false => "terminating connection: the tenant is draining",
                true => "terminating connection: the server is stopping",
            };
            self.disconnect(place, &ErrorFields::fatal("57P01", message), context);
        }
        leaves
    }

    /// Ends all connections of a tenant, on both sides.
    pub(super) fn kill_tenant(
        &mut self,
        tenant: TenantId,
        message: &str,
        context: &mut ThreadContext,
    ) {
        for place in self.clients.keys() {
            let is_meant = self.clients.get(place).is_some_and(|client| match &client.phase {
                ClientPhase::Session(session) => session.route.tenant.id == tenant,
                ClientPhase::Greeting(greeting) => greeting.route.tenant.id == tenant,
                ClientPhase::Login(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => false,
            });
            if is_meant {
                self.disconnect(place, &ErrorFields::fatal("57P01", message), context);
            }
        }
        self.servers.close_all(Some(tenant), context);
        self.subscriptions.remove_unused(Some(tenant), context);
    }

    /// Returns a snapshot of the connections.
    pub(super) fn snapshot(&self, context: &ThreadContext) -> ThreadSnapshot {
        let now_us = context.now_us;
        let is_here = |client: &RelayClient| !matches!(client.phase, ClientPhase::Passed(_));
        let clients = self.clients.iter().filter(|(_, client)| is_here(client));
        let clients = clients.map(|(_, client)| {
            let server = client.server().and_then(|server| self.servers.get(server));
            client.view(server, now_us)
        });
        let servers = self.servers.iter().map(|(_, server)| {
            let client = server.client.and_then(|client| self.clients.get(client));
            server.view(client.and_then(RelayClient::pid), now_us)
        });
        let (clients, servers) = (clients.collect(), servers.collect());
        ThreadSnapshot { thread: context.index, clients, servers }
    }

    /// Closes everything, at the end.
    pub(super) fn close_everything(&mut self, context: &mut ThreadContext) {
        context.ending = ThreadShutdown::Now;
        for place in self.clients.keys() {
            let own = "terminating connection: the server is stopping";
            let message = context.words().of(own, "database removed");
            self.disconnect(place, &ErrorFields::fatal("57P01", message), context);
            self.client_gone(place, &super::departure::ClientDeparture::Dismissed, context);
        }
        self.servers.close_all(None, context);
        self.servers.end_cancels(context);
        self.subscriptions.remove_unused(None, context);
    }

    /// Disconnects a guest that exceeded its limits. Returns whether it did.
    pub(super) fn disconnect_violator(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let session = self.clients.session(place);
        let watch = session.and_then(|session| session.watch.as_ref());
        let Some(violation) = watch.and_then(|watch| watch.violation()) else { return false };
        // The error was appended to its last output.
        watch.inspect(|watch| watch.refused(&violation.to_string()));
        self.close_when_sent(place, context);
        true
    }

    pub(super) fn disconnect_guest(
        &mut self,
        place: u32,
        code: &str,
        sentence: &str,
        context: &mut ThreadContext,
    ) {
        let session = self.clients.session(place);
        if let Some(watch) = session.and_then(|session| session.watch.as_ref()) {
            watch.refused(sentence);
        }
        let sentence = format!("terminating connection: {sentence}");
        self.disconnect(place, &ErrorFields::fatal(code, &sentence), context);
    }

    /// Disconnects a guest if the server's lease has ended: its further requests could run
    /// concurrently with those of the session's next owner. Returns whether the lease has ended.
    pub(super) fn disconnect_fenced(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let session = self.clients.session(place);
        let watch = session.and_then(|session| session.watch.as_ref());
        let Some(Err(lost)) = watch.map(|watch| watch.check_lease()) else { return false };
        self.disconnect_guest(place, "57P01", &lost.to_string(), context);
        true
    }

    /// Ends the connections of a guest, for this reason.
    pub(super) fn dismiss_guest(
        &mut self,
        id: u64,
        reason: GuestDismissal,
        context: &mut ThreadContext,
    ) {
        for place in self.clients.of_guest(id) {
            let sentence = match reason {
                GuestDismissal::Revoked => "the grant was revoked",
                GuestDismissal::Resting => {
                    let place = self.clients.session(place).map(|session| session.place);
                    let Some(ServerAttachment::Attached(server)) = place else { continue };
                    if self.servers.get(server).is_none_or(RelayServer::owes_reply) {
                        continue;
                    }
                    "the sandbox rests"
                }
            };
            self.disconnect_guest(place, "57P01", sentence, context);
        }
    }

    /// Passes a permit to a guest's client, if it still waits for it.
    pub(super) fn turn_granted(
        &mut self,
        place: u32,
        pid: u32,
        turn: LeaseQuotaPermit,
        context: &mut ThreadContext,
    ) {
        let session = self.clients.session(place);
        let Some(session) =
            session.filter(|it| it.pid == pid && it.place == ServerAttachment::Parked)
        else {
            return;
        };
        session.stats.clients_waiting.sub(1);
        if let Some(watch) = &mut session.watch {
            watch.waited(context.now_us.saturating_sub(session.waiting_us));
        }
        session.place = ServerAttachment::Idle;
        session.turn = Some(turn);
        self.clients.queue(place, context);
    }
}
