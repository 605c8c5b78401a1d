//! Handling of the messages that a relay thread gets.

use std::sync::Arc;

use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, RelayClient, ServerAttachment};
use super::guests::ClientOrigin;
use super::orders::{ThreadCommand, ThreadMessage, ThreadMessageKind};
use super::pools::PoolTerms;
use super::server::{RelayServer, ServerCloseReason, ServerPhase};
use super::snapshot::{ClientState, ClientView, ServerState, ServerView, ThreadSnapshot};
use super::worker::{RelayWorker, WorkerShutdown};
use crate::tenants::{PoolId, TenantId, WorkAdmission};

/// Characters of an `application_name` that are shown: the servers themselves keep 63 bytes.
const APPLICATION_NAME_MAX: usize = 63;

impl RelayWorker {
    /// Handles a command of the control plane.
    pub(super) fn handle_command(&mut self, order: ThreadCommand) {
        match order {
            ThreadCommand::Routing => self.apply_routing(),
            ThreadCommand::Admission(tenant) => {
                for (id, _) in self.pools_of(tenant) {
                    self.apply_admission(id);
                }
                self.drain_clients(Some(tenant));
            }
            ThreadCommand::Reconnect(tenant) => self.renew_terms(tenant),
            ThreadCommand::GiveUpSurplus => {
                let pools: Vec<_> = self.pools.iter().map(|(pool, _)| pool).collect();
                pools.into_iter().for_each(|pool| self.pools.give_up_surplus(pool));
            }
            ThreadCommand::GiveUpIdle(tenants, before) => {
                for tenant in tenants.iter() {
                    for (_, pool) in self.pools_of(*tenant) {
                        self.pools.give_up_idle(pool, before);
                    }
                }
            }
            ThreadCommand::RetryEntries => self.retry_entries(),
            ThreadCommand::Kill(tenant) => {
                self.kill(tenant, "terminating connection due to administrator command");
            }
            ThreadCommand::KillClient(pid) => self.kill_client(pid),
            ThreadCommand::RevokeGuest(guest) => self.revoke_guest(guest),
            ThreadCommand::ReleaseIdleOfGuest(guest) => self.release_idle_of_guest(guest),
            ThreadCommand::Snapshot(reply) => {
                // Whoever asked may have given up waiting.
                drop(reply.send(self.snapshot()));
            }
            ThreadCommand::Drain => {
                self.ending = self.ending.max(WorkerShutdown::Draining);
                self.stop_listening();
                self.drain_clients(None);
                self.see_off_passed();
            }
            ThreadCommand::StopListening => self.stop_listening(),
            ThreadCommand::Stop => self.ending = WorkerShutdown::Now,
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
            ThreadMessageKind::Turn { client, pid, turn } => self.turn_granted(client, pid, turn),
            ThreadMessageKind::Cancel { client, pid } => self.cancel_client(client, pid),
            ThreadMessageKind::KillClient { client, pid } => self.kill_one(client, pid),
            ThreadMessageKind::Resolved { serial, addresses } => self.resolved(serial, addresses),
            ThreadMessageKind::Secret { client, serial, secret } => {
                self.looked_up(client, serial, &secret)
            }
            ThreadMessageKind::Checked { client, serial, checked } => {
                self.checked(client, serial, checked)
            }
            ThreadMessageKind::Killed { client, serial, is_found } => {
                self.killed_elsewhere(client, serial, is_found)
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
            ThreadMessageKind::Moved(moved) => self.receive_server(moved),
        }
    }

    fn pools_of(&self, tenant: TenantId) -> Vec<(PoolId, super::pools::PoolRef)> {
        let roles = self.roles.iter().filter(|(_, role)| role.tenant.id == tenant);
        roles.filter_map(|(id, _)| Some((*id, self.pools.find(*id)?))).collect()
    }

    /// Takes over a new snapshot of tenants.
    fn apply_routing(&mut self) {
        self.routing = self.common.current.load();
        let tenants: Vec<TenantId> = self.roles.values().map(|role| role.tenant.id).collect();
        for role in self.roles.values_mut() {
            if let Some(tenant) = self.routing.now(&role.tenant) {
                role.tenant = Arc::clone(tenant);
            }
        }
        for tenant in tenants {
            self.renew_terms(tenant);
        }
        self.forget_unused();
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
            let Some(tenant) = self.routing.now(&route.tenant) else { continue };
            match bound.guest.as_ref().map(|guest| guest.route(&self.routing)) {
                None => {
                    route.tenant = Arc::clone(tenant);
                    route.user = tenant.user(&route.user.name);
                }
                Some(Ok(now)) => *route = now,
                // It goes when its tenant does; nobody new comes meanwhile.
                Some(Err(_)) => route.tenant = Arc::clone(tenant),
            }
            if let ClientPhase::Session(session) = &mut client.phase {
                session.is_timed = tenant.times_of(&session.route.user).limit_clients();
                // What it does already, or does not, may have a limit now.
                self.watch_client(place);
            }
        }
        self.end_removed();
        self.drain_clients(None);
    }

    /// Ends what tenants that were removed still have: whatever their clients are doing.
    fn end_removed(&mut self) {
        let of_clients = self.clients.iter().filter_map(|(_, client)| match &client.phase {
            ClientPhase::Session(session) => Some(&session.route.tenant),
            ClientPhase::Greeting(greeting) => Some(&greeting.route.tenant),
            ClientPhase::Login(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        });
        let mut removed: Vec<TenantId> = Vec::new();
        for tenant in of_clients.filter(|tenant| tenant.state.is_removed()) {
            if !removed.contains(&tenant.id) {
                removed.push(tenant.id);
            }
        }
        for tenant in removed {
            self.kill(tenant, "terminating connection: the tenant was removed");
        }
    }

    /// Forgets what belongs to pools that are no more, and to tenants.
    fn forget_unused(&mut self) {
        let RelayWorker { roles, pools, common, routing, link, counters, .. } = self;
        roles.retain(|id, role| {
            let is_used = pools.find(*id).is_some() || !role.tenant.state.is_removed();
            if !is_used {
                common.greetings.forget(*id);
                link.forget_pool(id.0);
            }
            is_used
        });
        common.forced.keep_only(|id| routing.tenant(id).is_some());
        common.mysql_forced.keep_only(|id| routing.tenant(id).is_some());
        counters.keep_only(|id| routing.tenant(id).is_some());
    }

    /// Lets what a tenant's definition says hold for its pools.
    fn renew_terms(&mut self, tenant: TenantId) {
        for (id, pool) in self.pools_of(tenant) {
            let Some(role) = self.roles.get(&id) else { continue };
            let terms = PoolTerms::of(&role.tenant, &role.user);
            self.pools.set_terms(pool, tenant, terms, self.context.now);
            self.apply_admission(id);
        }
    }

    /// Opens, holds or shuts a pool, as its tenant's admission says.
    pub(super) fn apply_admission(&mut self, id: PoolId) {
        let now = self.context.now;
        let (Some(role), Some(pool)) = (self.roles.get(&id), self.pools.find(id)) else { return };
        let state = &role.tenant.state;
        match state.admission() {
            _ if state.is_removed() => self.pools.shut(pool, now),
            WorkAdmission::Open | WorkAdmission::Draining => self.pools.resume(pool, now),
            WorkAdmission::Paused => self.pools.hold(pool, now),
            WorkAdmission::Refusing => self.pools.shut(pool, now),
        }
        self.notifications.refresh(id, &mut self.context);
        self.apply_notification_events();
    }

    /// Sees idle clients off that have to leave: of one tenant, or of all. Others are looked at
    /// when their transaction ends.
    fn drain_clients(&mut self, tenant: Option<TenantId>) {
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
                self.drain_client(place);
            }
        }
    }

    /// Sees a client off that is between transactions, if it has to leave. Whether it had to.
    pub(super) fn drain_client(&mut self, place: u32) -> bool {
        let Some(client) = self.clients.get(place) else { return false };
        let stops = self.ending != WorkerShutdown::No || client.is_seen_off;
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
            self.disconnect(place, &ErrorFields::fatal("57P01", message));
        }
        leaves
    }

    /// Ends all connections of a tenant, on both sides.
    fn kill(&mut self, tenant: TenantId, message: &str) {
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
                self.disconnect(place, &ErrorFields::fatal("57P01", message));
            }
        }
        for place in self.servers.keys() {
            let server = self.servers.get(place).filter(|server| server.tenant.id == tenant);
            match server.map(|server| &server.phase) {
                Some(ServerPhase::Live(_)) => self.close_server(place, &ServerCloseReason::Ordered),
                Some(ServerPhase::Opening(_)) => {
                    self.opening_failed(place, ServerCloseReason::Ordered.failure());
                }
                None => {}
            }
        }
        self.notifications.remove_unused(Some(tenant), &mut self.context);
    }

    fn kill_client(&mut self, pid: u32) {
        let meant = self.clients.iter().find(|(_, client)| match &client.phase {
            ClientPhase::Session(session) => session.pid == pid,
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        });
        if let Some((place, _)) = meant {
            let message = "terminating connection due to administrator command";
            self.disconnect(place, &ErrorFields::fatal("57P01", message));
        }
    }

    /// Returns what is there.
    fn snapshot(&self) -> ThreadSnapshot {
        let is_here = |client: &RelayClient| !matches!(client.phase, ClientPhase::Passed(_));
        let clients = self.clients.iter().filter(|(_, client)| is_here(client));
        let clients = clients.map(|(_, client)| self.client_view(client)).collect();
        let servers = self.servers.iter().map(|(_, server)| self.server_view(server)).collect();
        ThreadSnapshot { thread: self.index, clients, servers }
    }

    fn client_view(&self, client: &RelayClient) -> ClientView {
        let now_us = self.context.now_us;
        let mut view = ClientView {
            number: client.number,
            pid: 0,
            tenant: None,
            user: None,
            state: ClientState::Login,
            address: client.conn.socket.peer(),
            tls: client.conn.socket.is_tls_to_client(),
            age_us: now_us.saturating_sub(client.begun_us),
            state_us: now_us.saturating_sub(client.since_us),
            server_pid: None,
            pins: Vec::new(),
            in_transaction: false,
            statements: 0,
            statement_us: None,
            application_name: None,
        };
        match &client.phase {
            ClientPhase::Login(_) => {}
            ClientPhase::Console(console_client) => {
                view.pid = console_client.pid;
                view.user = Some(Arc::clone(&console_client.user));
                view.state = ClientState::Console;
            }
            ClientPhase::Greeting(greeting) => {
                let tenant = &greeting.route.tenant;
                view.tenant = Some((tenant.id, Arc::clone(&tenant.name)));
                view.user = Some(Arc::clone(&greeting.route.user.name));
            }
            ClientPhase::Session(session) => {
                let tenant = &session.route.tenant;
                view.pid = session.pid;
                view.tenant = Some((tenant.id, Arc::clone(&tenant.name)));
                view.user = Some(Arc::clone(&session.route.user.name));
                view.in_transaction = session.is_in_transaction();
                view.statements = session.link.statement_count();
                let name = session.link.pg().and_then(|link| link.application_name());
                view.application_name =
                    name.map(|name| name.chars().take(APPLICATION_NAME_MAX).collect());
                let statement_us = now_us.saturating_sub(session.request_us);
                view.state = match session.place {
                    ServerAttachment::Idle => ClientState::Idle,
                    ServerAttachment::Parked | ServerAttachment::Waiting(_) => {
                        view.statement_us = Some(statement_us);
                        ClientState::Waiting
                    }
                    ServerAttachment::Attached(server) => {
                        let server = self.servers.get(server);
                        let is_asked = server.is_some_and(RelayServer::is_in_request);
                        view.statement_us = is_asked.then_some(statement_us);
                        view.server_pid = server.and_then(RelayServer::pid);
                        view.pins = server.map(RelayServer::pins).unwrap_or_default();
                        ClientState::Active
                    }
                };
            }
            // It is among the clients of the node that serves it.
            ClientPhase::Passed(_) | ClientPhase::Closing => view.state = ClientState::Closing,
        }
        view
    }

    fn server_view(&self, server: &RelayServer) -> ServerView {
        let now_us = self.context.now_us;
        let client = server.client.and_then(|client| self.clients.get(client));
        let state = match &server.phase {
            ServerPhase::Opening(_) => ServerState::Login,
            ServerPhase::Live(_) if server.client.is_some() => ServerState::Active,
            ServerPhase::Live(_) if server.awaits_cancels => ServerState::Cancelling,
            ServerPhase::Live(_) if server.is_resetting => ServerState::Resetting,
            ServerPhase::Live(_) => ServerState::Idle,
        };
        ServerView {
            number: server.number,
            pid: server.pid().unwrap_or(0),
            tenant: (server.tenant.id, Arc::clone(&server.tenant.name)),
            pool: server.slot.pool(),
            user: Arc::clone(&server.user),
            state,
            address: server.conn.socket.peer(),
            tls: server.conn.socket.is_tls(),
            age_us: now_us.saturating_sub(server.begun_us),
            state_us: now_us.saturating_sub(server.since_us),
            client_pid: client.and_then(|client| match &client.phase {
                ClientPhase::Session(session) => Some(session.pid),
                ClientPhase::Login(_)
                | ClientPhase::Greeting(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => None,
            }),
        }
    }

    /// Closes everything, at the end.
    pub(super) fn close_everything(&mut self) {
        self.ending = WorkerShutdown::Now;
        for place in self.clients.keys() {
            let own = "terminating connection: the server is stopping";
            let message = self.words().of(own, "database removed");
            self.disconnect(place, &ErrorFields::fatal("57P01", message));
            self.client_gone(place, &super::leave::ClientDeparture::Dismissed);
        }
        for place in self.servers.keys() {
            match self.servers.get(place).map(|server| &server.phase) {
                Some(ServerPhase::Live(_)) => self.close_server(place, &ServerCloseReason::Ordered),
                Some(ServerPhase::Opening(_)) => {
                    self.opening_failed(place, ServerCloseReason::Ordered.failure());
                }
                None => {}
            }
        }
        self.cancels.end_all(&mut self.context);
        self.apply_ended_cancels();
        self.notifications.remove_unused(None, &mut self.context);
    }
}
