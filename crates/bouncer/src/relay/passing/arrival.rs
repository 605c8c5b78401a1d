//! Arrival of a client that another node has passed to this one.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::TenantEngine;
use mio::net::UnixStream as MioUnixStream;
use pooler_core::link::{LoggedInClient, LoginMachine};
use pooler_core::mysql::login::MysqlLogin;
use pooler_core::pg::login::{LoginEntropy, PgLogin, PgLoginPolicy, PgLoginRefusal, TlsPolicy};

use super::TenantLimit;
use super::login::{ArrivedLogin, PassedLogin};
use crate::relay::Relay;
use crate::relay::client::{ClientPhase, RelayClient, ServerAttachment};
use crate::relay::common::RelayShared;
use crate::relay::conn::{EventSource, RelayConnection};
use crate::relay::guests::ListenerBinding;
use crate::relay::leave::ClientDeparture;
use crate::relay::login::LoginPhase;
use crate::relay::orders::ThreadMessageKind;
use crate::relay::socket::RelaySocket;
use crate::relay::worker::{RelayWorker, TimerKey};
use crate::tenants::{RouteError, TenantRoute};

/// Why a client of another node is not taken, which serves it itself then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassRefusal {
    /// This node is no home of the tenant's limits, as far as it knows.
    #[error("this node is no home of the limits of the tenant")]
    NoHome,
    /// It stops, or has too many connections.
    #[error("this node takes no more clients")]
    Full,
    /// It cannot be served here.
    #[error("the client cannot be served at this node")]
    Unfit,
}

/// A client that another node has passed, on its way to a thread.
#[derive(Debug)]
pub(in crate::relay) struct ArrivingClient {
    socket: UnixStream,
    login: PassedLogin,
    arrived: ArrivedLogin,
}

impl Relay {
    /// Takes a client that another node has passed. Returns a socket whose bytes are to be carried
    /// from and to that node.
    ///
    /// # Errors
    /// When the other node is to serve it.
    pub fn take_passed(&self, login: PassedLogin) -> Result<UnixStream, PassRefusal> {
        let common = &self.common;
        let loads = common.peers.iter().map(|peer| peer.load.load(Ordering::Relaxed));
        let is_full = loads.sum::<usize>() >= common.connections_max();
        let is_full = is_full || common.population.is_full(common.live.clients_max());
        if is_full || !common.takes_passed.load(Ordering::Acquire) {
            return Err(PassRefusal::Full);
        }
        let routing = common.current.load();
        let tenant = routing.named(&login.tenant).ok_or(PassRefusal::Unfit)?;
        let user = tenant.user(&login.user);
        let limit = TenantLimit::of(tenant, &user);
        if common.passer.get().is_some_and(|passer| !passer.is_home(&limit)) {
            return Err(PassRefusal::NoHome);
        }
        // Of two with the same number one could be killed for the other.
        if login.mysql_numbers().is_some_and(|(pid, _)| common.keys.is_taken(pid)) {
            return Err(PassRefusal::Unfit);
        }
        let route = TenantRoute { tenant: Arc::clone(tenant), user };
        let arrived = login.clone().arrive(route, &common.keyrings).map_err(|error| {
            tracing::warn!(%error, tenant = login.tenant, "a client of another node is not taken");
            PassRefusal::Unfit
        })?;
        let pair = UnixStream::pair().and_then(|(one, other)| {
            one.set_nonblocking(true)?;
            other.set_nonblocking(true)?;
            Ok((one, other))
        });
        let (socket, other) = pair.map_err(|error| {
            tracing::warn!(%error, "a client of another node is not taken");
            PassRefusal::Full
        })?;
        let fewest = common.peers.iter().min_by_key(|peer| peer.load.load(Ordering::Relaxed));
        let Some(peer) = fewest else { return Err(PassRefusal::Full) };
        peer.load.fetch_add(1, Ordering::Relaxed);
        let arriving = ArrivingClient { socket, login, arrived };
        peer.inbox.push(ThreadMessageKind::Arriving(Box::new(arriving)));
        Ok(other)
    }

    /// Sees clients off between their transactions that other nodes have passed: those stop.
    pub fn see_off_arrived(&self, ids: &Arc<[u64]>) {
        for peer in &self.common.peers {
            peer.inbox.push(ThreadMessageKind::SeeOff(Arc::clone(ids)));
        }
    }

    /// Ends clients that other nodes have passed, and that are gone there.
    pub fn end_arrived(&self, ids: &Arc<[u64]>) {
        for peer in &self.common.peers {
            peer.inbox.push(ThreadMessageKind::EndArrived(Arc::clone(ids)));
        }
    }
}

impl RelayWorker {
    /// Takes a client that another node has passed, as one that has just proved who it is.
    pub(in crate::relay) fn take_arriving(&mut self, arriving: ArrivingClient) {
        self.serial += 1;
        self.counters.stats.accepted.add(1);
        if let Err(error) = self.begin_arriving(arriving) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "take a client of another node");
            self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn begin_arriving(&mut self, arriving: ArrivingClient) -> io::Result<()> {
        let ArrivingClient { socket, login, arrived } = arriving;
        let ArrivedLogin { proved, route } = arrived;
        let bound = ListenerBinding::to(login.bound.as_deref().map(Arc::from));
        let (engine, numbers) = (login.engine(), login.mysql_numbers());
        let machine = machine(&proved, &self.common)?;
        let socket = RelaySocket::of_other_node(
            MioUnixStream::from_std(socket),
            super::PassedSource { id: login.id, origin: login.origin },
        );
        let place = self.clients.reserve();
        let source = EventSource::Client(place);
        let conn = RelayConnection::new(socket, source, false, &self.context.registry);
        let conn = match conn {
            Ok(conn) => conn,
            Err(error) => {
                self.clients.give_up(place);
                return Err(error);
            }
        };
        let pid = numbers.map(|(pid, _)| pid);
        pid.inspect(|pid| self.common.keys.restore(*pid, self.index, place, &[]));
        let phase = LoginPhase::new(machine, pid, bound);
        let (number, now_us) = (self.common.next_number(), self.context.now_us);
        let phase = ClientPhase::Login(Box::new(phase));
        self.clients.occupy(place, RelayClient::new(conn, phase, self.serial, number, now_us));
        self.counters.stats.clients.add(1);
        self.counters.stats.logins.add(1);
        let login_us = self.common.live.login_us();
        self.context.timers.arm(TimerKey::Client(place).id(), now_us + login_us);
        // It may come after all others were told.
        if self.drain_client(place) {
            return Ok(());
        }
        // What holds here may have changed since the other node looked.
        match self.routing.for_guest(&route.tenant.name, engine).map(Arc::clone) {
            Ok(tenant) => {
                self.admit_here(place, proved, TenantRoute { tenant, ..route });
            }
            Err(error) => {
                let refusal = self.route_refusal(&error, engine, &route);
                self.refuse_entry(place, &proved, &refusal);
            }
        }
        // It may have sent more already.
        self.queue_client(place);
        Ok(())
    }

    fn route_refusal(
        &self,
        error: &RouteError,
        engine: TenantEngine,
        route: &TenantRoute,
    ) -> PgLoginRefusal {
        let (code, message) = match engine {
            TenantEngine::Postgres => self.words().route(error, &route.tenant.name),
            TenantEngine::Mysql if error.names_nobody() => ("3D000", error.to_string()),
            TenantEngine::Mysql => (error.sqlstate(), error.to_string()),
        };
        PgLoginRefusal::new(code, message)
    }

    /// Ends clients that other nodes have passed, and that are gone there.
    pub(in crate::relay) fn end_arrived(&mut self, ids: &[u64]) {
        for place in self.clients.keys() {
            let client = self.clients.get(place);
            let source = client.and_then(|client| client.conn.socket.passed());
            if source.is_some_and(|it| ids.contains(&it.id)) {
                let error = io::Error::from(io::ErrorKind::ConnectionReset);
                self.client_gone(place, &ClientDeparture::Lost(error));
            }
        }
    }

    /// Sees clients off between their transactions that other nodes have passed.
    pub(in crate::relay) fn see_off_arrived(&mut self, ids: &[u64]) {
        for place in self.clients.keys() {
            let Some(client) = self.clients.get_mut(place) else { continue };
            if client.conn.socket.passed().is_none_or(|it| !ids.contains(&it.id)) {
                continue;
            }
            client.is_seen_off = true;
            // The others are looked at when their transaction ends.
            let is_idle = match &client.phase {
                ClientPhase::Session(session) => session.place == ServerAttachment::Idle,
                ClientPhase::Login(_) => true,
                ClientPhase::Greeting(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => false,
            };
            if is_idle {
                self.drain_client(place);
            }
        }
    }
}

/// The login of a client that is over: it says how a refusal is put.
fn machine(proved: &LoggedInClient, common: &RelayShared) -> io::Result<LoginMachine> {
    Ok(match proved {
        LoggedInClient::Pg(client) => {
            let policy =
                PgLoginPolicy { tls: TlsPolicy::Absent, cleartext: common.config.cleartext };
            let reached = client.requested.reached;
            LoginMachine::Pg(PgLogin::new(policy, reached, LoginEntropy::random()?))
        }
        LoggedInClient::My(client) => {
            LoginMachine::My(MysqlLogin::proved(client.requested.reached, client.seq))
        }
    })
}
