//! Handover of the thread's clients to another process, and from one.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use mio::net::{TcpStream, UnixStream as MioUnixStream};
use pooler_core::link::{ClientId, ClientLink};
use pooler_core::pg::client::{PgClientSession, PgClientSetup};
use pooler_core::pg::settings::{PgSettings, ReportedParameters};
use wire::pg::message::ErrorFields;

use super::RelayWorker;
use crate::relay::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use crate::relay::client_count::ClientArrival;
use crate::relay::conn::{EventSource, RelayConnection};
use crate::relay::context::TimerKey;
use crate::relay::departure::ClientDeparture;
use crate::relay::guests::ListenerBinding;
use crate::relay::orders::ThreadMessageKind;
use crate::relay::servers::RoleOrigin;
use crate::relay::socket::RelaySocket;
use crate::relay::succession::{RECONNECT, borrowed, farewell, mysql};
use crate::relay::takeover::{AdoptedClient, CarriedStatement, HandoverMessage, HandoverSession};
use crate::tenants::TenantRoute;

impl RelayWorker {
    /// Starts to hand everything over.
    pub(super) fn hand_over(&mut self, successor: Sender<HandoverMessage>) {
        if self.context.index == 0 {
            for listener in self.listeners.take() {
                match listener.give(&self.context.registry) {
                    Ok((fd, address)) => {
                        drop(successor.send(HandoverMessage::Listener(fd, address)))
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "give a listener away");
                    }
                }
            }
            drop(successor.send(HandoverMessage::ListenersEnd));
            for peer in self.context.common.peers.iter().skip(1) {
                peer.inbox.push(ThreadMessageKind::HandOver(successor.clone()));
            }
        }
        self.successor = Some(successor);
    }

    /// Hands over the clients that are at rest.
    pub(super) fn hand_over_clients(&mut self) {
        if self.successor.is_none() {
            return;
        }
        for place in self.sessions.clients().keys() {
            self.give_client(place);
        }
        if self.sessions.clients().keys().is_empty() {
            self.successor = None;
        }
    }

    pub(super) fn give_client(&mut self, place: u32) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        if !client.conn.is_at_rest() {
            return;
        }
        let (is_tls, is_unix) = (client.conn.socket.is_tls(), client.conn.socket.is_unix());
        let Some(session) = client.session() else { return };
        // Only this process knows the access of a guest.
        let is_guest = session.bound.guest.is_some();
        if is_guest || session.place != ServerAttachment::Idle || session.link.is_in_message() {
            return;
        }
        let TenantRoute { tenant, user } = &session.route;
        let is_known = self.context.common.keyrings.own_credentials(tenant, user).is_some();
        let key = self.context.common.keys.key(session.pid);
        let carried = HandoverSession {
            tenant: tenant.name.as_ref().to_owned(),
            user: user.name.as_ref().to_owned(),
            is_unix,
            pid: session.pid,
            key: key.map(Vec::from).unwrap_or_default(),
            requested: Vec::new(),
            wanted: Vec::new(),
            seen: Vec::new(),
            statements: Vec::new(),
            mysql: None,
        };
        let carried = match &session.link {
            ClientLink::Pg(link) => carried.of_pg(link),
            ClientLink::My(link) => mysql::carried(session, link)
                .map(|mysql| HandoverSession { mysql: Some(mysql), ..carried }),
        };
        let Some(carried) = carried.filter(|_| is_known && !is_tls) else {
            return self.sessions.disconnect(
                place,
                &ErrorFields::fatal("57P01", RECONNECT),
                &mut self.context,
            );
        };
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let fd = client.conn.leave(&self.context.registry);
        // Its socket stays open, so the end of its stream is not announced.
        self.client_moved(place);
        match (fd, &self.successor) {
            (Ok(fd), Some(successor)) => {
                drop(successor.send(HandoverMessage::Client(fd, Box::new(carried))));
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "give a client away");
            }
        }
    }

    /// Takes over a client from the former process.
    pub(super) fn adopt(&mut self, AdoptedClient(fd, carried): AdoptedClient) {
        let engine = carried.engine();
        if let Err((fd, error)) = self.settle(fd, &carried) {
            tracing::warn!(error, "a client of the former process cannot go on");
            self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
            if let Some(fd) = fd {
                farewell(fd, engine);
            }
        }
    }

    pub(super) fn settle(
        &mut self,
        fd: OwnedFd,
        it: &HandoverSession,
    ) -> Result<(), (Option<OwnedFd>, String)> {
        let Some(tenant) = self.context.routing.named(&it.tenant).map(Arc::clone) else {
            return Err((Some(fd), format!("no tenant {}", it.tenant)));
        };
        if tenant.engine != it.engine() {
            return Err((Some(fd), format!("{} speaks something else now", it.tenant)));
        }
        let user = tenant.user(&it.user);
        let Some(credentials) = self.context.common.keyrings.own_credentials(&tenant, &user) else {
            return Err((Some(fd), "the password for its server is not known".to_owned()));
        };
        let route = TenantRoute { tenant, user };
        let pool_id = match route.pool() {
            Ok(pool) => pool,
            Err(error) => return Err((Some(fd), error.to_string())),
        };
        let clients_max = self.context.common.config.clients_max;
        let arrival = ClientArrival { route: &route, is_guest: false, clients_max };
        let head = match self.context.common.population.adopt(&arrival) {
            Ok(head) => head,
            Err(full) => return Err((Some(fd), full.to_string())),
        };
        let socket = if it.is_unix {
            Ok(RelaySocket::unix(MioUnixStream::from_std(fd.into())))
        } else {
            RelaySocket::tcp(TcpStream::from_std(fd.into()), self.context.common.config.tcp)
        };
        let place = self.sessions.clients_mut().reserve();
        let conn = socket.and_then(|socket| {
            RelayConnection::new(socket, EventSource::Client(place), false, &self.context.registry)
        });
        let conn = match conn {
            Ok(conn) => conn,
            Err(error) => {
                self.sessions.clients_mut().give_up(place);
                return Err((None, error.to_string()));
            }
        };
        let pool = self.sessions.join(
            pool_id,
            &route,
            credentials,
            RoleOrigin::Handover,
            &mut self.context,
        );
        let stats = self.context.counters.tenant(route.tenant.id);
        stats.clients.add(1);
        self.context.counters.stats.clients.add(1);
        self.context.common.keys.restore(it.pid, self.context.index, place, &it.key);
        let session = match &it.mysql {
            None => {
                let link = ClientLink::Pg(self.restored(it, &route));
                ClientLogin::new(link, route, head, pool, it.pid, stats)
            }
            Some(carried) => {
                let owner = (route.tenant.id, Arc::clone(&route.user.name));
                self.context.common.keys.own(it.pid, owner);
                let link = ClientLink::My(mysql::restored(
                    carried,
                    it.pid,
                    &route,
                    &self.context.common,
                    self.sessions.links().my(),
                ));
                let bound = ListenerBinding::to(carried.bound.as_deref().map(Arc::from));
                ClientLogin::new(link, route, head, pool, it.pid, stats)
                    .of_mysql(carried.collation, bound)
            }
        };
        let client = RelayClient::new(
            conn,
            ClientPhase::Session(Box::new(session)),
            self.context.next_serial(),
            self.context.common.next_number(),
            self.context.now_us,
        );
        self.sessions.clients_mut().occupy(place, client);
        // It may have arrived after the other clients were drained.
        if !self.sessions.drain_client(place, &mut self.context) {
            self.sessions.watch(place, &mut self.context);
            self.sessions.clients_mut().queue(place, &mut self.context);
        }
        Ok(())
    }

    /// Returns the session of a client of PostgreSQL.
    pub(super) fn restored(
        &mut self,
        it: &HandoverSession,
        route: &TenantRoute,
    ) -> PgClientSession {
        let TenantRoute { tenant, user } = route;
        let mut link = PgClientSession::new(PgClientSetup {
            id: ClientId(it.pid),
            mode: tenant.mode_of(user),
            verify: tenant.verify,
            read_only: tenant.read_only,
            settings: PgSettings::of(borrowed(&it.requested)),
            forced: self.context.common.forced.of(tenant),
            seen: Arc::new(ReportedParameters::of(borrowed(&it.seen))),
        });
        link.restore_settings(PgSettings::of(borrowed(&it.wanted)));
        for statement in &it.statements {
            let CarriedStatement { name, text, types } = statement;
            link.restore_statement(self.sessions.links().pg(), name, text, types);
        }
        link
    }

    /// Releases the resources of a client that was handed over.
    pub(super) fn client_moved(&mut self, place: u32) {
        let Some(client) = self.sessions.clients_mut().remove(place) else { return };
        self.context.timers.disarm(TimerKey::Client(place).id());
        if let ClientPhase::Session(session) = client.phase {
            self.sessions.end_session(*session, &ClientDeparture::Dismissed, &mut self.context);
        }
        self.context.counters.stats.clients.sub(1);
        self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
    }
}
