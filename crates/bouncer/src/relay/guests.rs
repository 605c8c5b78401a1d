//! Guests: clients of sandboxes, who are known by where they come in ([`crate::guest`]).

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{PoolMode, TenantEngine};
use mio::net::TcpStream as MioStream;
use pooler_core::link::{ClientLink, ClientProofRequest, LoginMachine};
use pooler_core::mysql;
use pooler_core::pg;
use pooler_core::pg::login::{PgLoginRefusal, ReplicationPolicy};
use wire::pg::message::ErrorFields;

use super::accept::AcceptedConnection;
use super::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use super::common::RelayShared;
use super::orders::ThreadMessageKind;
use super::server::{Parameters, RelayServer};
use super::worker::RelayWorker;
use crate::guest::client::{LoginPlace, SandboxClient, SandboxClientError};
use crate::guest::turns::{Call, LeaseQuotaPermit};
use crate::guest::watch::ConnectionObserver;
use crate::tenants::TenantRoute;

/// Origin of a client.
#[derive(Debug)]
pub(super) enum ClientOrigin {
    /// By the listener of this number.
    Listener(usize),
    /// Guest.
    Guest(Arc<SandboxClient>, LoginPlace),
}

/// Facts about a client before it sends anything.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerBinding {
    /// The tenant of its listener.
    pub(super) tenant: Option<Arc<str>>,
    /// Guest.
    pub(super) guest: Option<Arc<SandboxClient>>,
    /// Place that it holds until it is logged in.
    pub(super) login_place: Option<LoginPlace>,
}

impl ListenerBinding {
    /// To a tenant.
    pub(super) fn to(tenant: Option<Arc<str>>) -> ListenerBinding {
        ListenerBinding { tenant, ..ListenerBinding::default() }
    }
}

impl ClientLogin {
    /// Returns whether it is a guest that keeps a server connection which goes back otherwise, if
    /// it has one between two transactions.
    pub(super) fn is_pinned_guest(&self) -> bool {
        let TenantRoute { tenant, user } = &self.route;
        self.bound.guest.is_some() && tenant.mode_of(user) != PoolMode::Session
    }

    /// Returns whether it may use a server connection now. If not, [`RelayWorker::turn_granted`]
    /// follows. Only guests wait for one another, and only where connections go
    /// back between transactions.
    pub(super) fn has_turn(
        &mut self,
        thread: usize,
        place: u32,
        common: &Arc<RelayShared>,
    ) -> bool {
        let Some(guest) = &self.bound.guest else { return true };
        let TenantRoute { tenant, user } = &self.route;
        if self.turn.is_none() && tenant.mode_of(user) != PoolMode::Session {
            let pid = self.pid;
            let call = || -> Call {
                let common = Arc::clone(common);
                Box::new(move |turn| {
                    let Some(peer) = common.peers.get(thread) else { return };
                    peer.inbox.push(ThreadMessageKind::Turn { client: place, pid, turn });
                })
            };
            let connections = tenant.limits.server_connections_max;
            self.turn = guest.turns().take(connections, &tenant.state.crowd, call);
            return self.turn.is_some();
        }
        true
    }
}

impl RelayWorker {
    /// Returns what is known of a client that has come so, and what it speaks.
    pub(super) fn bound(&self, by: ClientOrigin) -> (TenantEngine, ListenerBinding) {
        match by {
            ClientOrigin::Listener(number) => match self.common.bound.get(number) {
                Some((engine, tenant)) => (*engine, ListenerBinding::to(tenant.clone())),
                None => (TenantEngine::default(), ListenerBinding::default()),
            },
            ClientOrigin::Guest(guest, place) => {
                let tenant = Some(Arc::clone(&guest.spec().tenant));
                let (engine, login_place) = (guest.spec().engine, Some(place));
                (engine, ListenerBinding { tenant, guest: Some(guest), login_place })
            }
        }
    }

    /// Takes a connection of a guest.
    pub(super) fn accept_guest(
        &mut self,
        stream: TcpStream,
        guest: Arc<SandboxClient>,
        place: LoginPlace,
    ) {
        if let Err(error) = stream.set_nonblocking(true) {
            tracing::error!(error = &error as &dyn std::error::Error, "take a guest");
            self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.accept_client(
            AcceptedConnection::Tcp(MioStream::from_std(stream)),
            ClientOrigin::Guest(guest, place),
        );
    }

    /// Routes a guest to the tenant of its grant, whatever it asks for.
    pub(super) fn route_guest(
        &mut self,
        place: u32,
        guest: &Arc<SandboxClient>,
    ) -> Option<Result<ClientProofRequest, PgLoginRefusal>> {
        let route = guest.check_lease().map_err(SandboxClientError::from);
        let route = match route.and_then(|()| guest.route(&self.routing)) {
            Ok(route) => route,
            Err(error) => {
                return Some(Err(PgLoginRefusal::new(error.sqlstate(), error.to_string())));
            }
        };
        let ClientPhase::Login(phase) = &mut self.clients.get_mut(place)?.phase else {
            return None;
        };
        let proof = match &phase.login {
            LoginMachine::Pg(_) => ClientProofRequest::Pg(pg::login::RouteAuth {
                proof: pg::login::PgProof::Nothing,
                replication: ReplicationPolicy::Refused,
            }),
            LoginMachine::My(_) => ClientProofRequest::My(mysql::login::MysqlProof::Nothing),
        };
        phase.set_route(route);
        Some(Ok(proof))
    }

    /// Why a guest cannot have a connection with these parameters.
    pub(super) fn refuses_parameters(parameters: &Parameters) -> bool {
        let mut pairs = parameters.iter();
        pairs.any(|(name, value)| name == "is_superuser" && value == "on")
    }

    /// Reads along from now on, with a guest.
    pub(super) fn begin_watch(&mut self, place: u32, guest: Option<&Arc<SandboxClient>>) {
        let (Some(guest), now_us) = (guest, self.context.now_us) else { return };
        let Some(client) = self.clients.get_mut(place) else { return };
        let begun_us = client.begun_us;
        let Some(session) = client.session() else { return };
        session.watch = Some(match &session.link {
            ClientLink::Pg(_) => ConnectionObserver::pg(guest, begun_us, now_us),
            ClientLink::My(link) => {
                ConnectionObserver::mysql(guest, link.capabilities, begun_us, now_us)
            }
        });
    }

    /// Ends the connection of a guest that got more than it may have. Whether it did.
    pub(super) fn disconnect_violator(&mut self, place: u32) -> bool {
        let session = self.clients.get_mut(place).and_then(RelayClient::session);
        let watch = session.and_then(|session| session.watch.as_ref());
        let Some(violation) = watch.and_then(|watch| watch.violation()) else { return false };
        // It was told with what it got last.
        watch.inspect(|watch| watch.refused(&violation.to_string()));
        self.close_when_sent(place);
        true
    }

    fn disconnect_guest(&mut self, place: u32, code: &str, sentence: &str) {
        let session = self.clients.get_mut(place).and_then(RelayClient::session);
        if let Some(watch) = session.and_then(|session| session.watch.as_ref()) {
            watch.refused(sentence);
        }
        let sentence = format!("terminating connection: {sentence}");
        self.disconnect(place, &ErrorFields::fatal(code, &sentence));
    }

    /// Ends the connection of a guest if the server's lease has ended: what it sends from then on
    /// could come beside that of the session's next owner. Returns whether it did.
    pub(super) fn disconnect_fenced(&mut self, place: u32) -> bool {
        let session = self.clients.get_mut(place).and_then(RelayClient::session);
        let watch = session.and_then(|session| session.watch.as_ref());
        let Some(Err(lost)) = watch.map(|watch| watch.check_lease()) else { return false };
        self.disconnect_guest(place, "57P01", &lost.to_string());
        true
    }

    /// Ends the connections of a guest whose grant was revoked.
    pub(super) fn revoke_guest(&mut self, id: u64) {
        for place in self.guests(id) {
            self.disconnect_guest(place, "57P01", "the grant was taken back");
        }
    }

    /// Closes the clients of a paused sandbox that hold a server connection and do not use it.
    pub(super) fn release_idle_of_guest(&mut self, id: u64) {
        for place in self.guests(id) {
            let session = self.clients.get_mut(place).and_then(RelayClient::session);
            let Some(ServerAttachment::Attached(server)) = session.map(|session| session.place)
            else {
                continue;
            };
            if self.servers.get(server).is_some_and(|server| !RelayServer::owes_reply(server)) {
                self.disconnect_guest(place, "57P01", "the sandbox rests");
            }
        }
    }

    /// Gives a guest's client its turn, if it still waits for it.
    pub(super) fn turn_granted(&mut self, place: u32, pid: u32, turn: LeaseQuotaPermit) {
        let session = self.clients.get_mut(place).and_then(RelayClient::session);
        let Some(session) =
            session.filter(|it| it.pid == pid && it.place == ServerAttachment::Parked)
        else {
            return;
        };
        session.stats.clients_waiting.sub(1);
        if let Some(watch) = &mut session.watch {
            watch.waited(self.context.now_us.saturating_sub(session.waiting_us));
        }
        session.place = ServerAttachment::Idle;
        session.turn = Some(turn);
        self.queue_client(place);
    }

    fn guests(&self, id: u64) -> Vec<u32> {
        let is_it =
            |bound: &ListenerBinding| bound.guest.as_ref().is_some_and(|guest| guest.id() == id);
        let own = self.clients.iter().filter(|(_, client)| match &client.phase {
            ClientPhase::Login(phase) => is_it(phase.bound()),
            ClientPhase::Greeting(greeting) => is_it(&greeting.bound),
            ClientPhase::Session(session) => is_it(&session.bound),
            ClientPhase::Console(_) | ClientPhase::Passed(_) | ClientPhase::Closing => false,
        });
        own.map(|(place, _)| place).collect()
    }
}
