//! Clients that are passed to another node, and those that another node has passed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::TenantEngine;
use mio::net::UnixStream as MioUnixStream;
use pooler_core::link::{LoggedInClient, LoginMachine};
use pooler_core::mysql::login::MysqlLogin;
use pooler_core::pg::login::{LoginEntropy, PgLogin, PgLoginPolicy, PgLoginRefusal, TlsPolicy};
use wire::pg::message::ErrorFields;

use super::RelayWorker;
use crate::relay::PassReply;
use crate::relay::client::{ClientPhase, RelayClient, ServerAttachment};
use crate::relay::client_count::CountedPassedClient;
use crate::relay::common::RelayShared;
use crate::relay::conn::{EventSource, RelayConnection, SocketReadiness};
use crate::relay::context::{ThreadContext, ThreadShutdown, TimerKey};
use crate::relay::departure::ClientDeparture;
use crate::relay::guests::ListenerBinding;
use crate::relay::login::LoginPhase;
use crate::relay::passing::boundary::StreamBoundary;
use crate::relay::passing::login::{ArrivedLogin, PassedLogin, PassedSource};
use crate::relay::passing::{
    ArrivingClient, CarryOutcome, HOME_LOST, PassedClient, PassedStream, PassingClient, TenantLimit,
};
use crate::relay::socket::RelaySocket;
use crate::tenants::{RouteError, TenantRoute};

impl RelayWorker {
    /// Starts to pass an authenticated client. Returns it if it must be served here.
    pub(super) fn pass(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
    ) -> Result<(), (LoggedInClient, TenantRoute)> {
        let Some(passer) = self.context.common.passer.get() else { return Err((proved, route)) };
        let is_staying = self.context.ending != ThreadShutdown::No || self.successor.is_some();
        let Some(client) = self.sessions.clients_mut().get_mut(place) else {
            return Err((proved, route));
        };
        let ClientPhase::Login(phase) = &mut client.phase else { return Err((proved, route)) };
        // Sandbox access is checked here. A client that logs in again stays where its session was.
        let is_other = phase.bound.guest.is_some() || phase.logs_in_anew();
        if is_staying || is_other || client.conn.socket.passed().is_some() {
            return Err((proved, route));
        }
        let limit = TenantLimit::of(&route.tenant, &route.user);
        if passer.is_home(&limit) {
            return Err((proved, route));
        }
        let Ok(id) = getrandom::u64() else { return Err((proved, route)) };
        let keyrings = &self.context.common.keyrings;
        let login = PassedLogin::of(id, &proved, &route, keyrings, phase.pid());
        let Some(mut login) = login else { return Err((proved, route)) };
        login.bound = phase.bound.tenant.as_deref().map(str::to_owned);
        login.origin.peer = client.conn.socket.peer();
        phase.passing = Some(Box::new(PassingClient { proved, route, id }));
        let (inbox, serial) = (Arc::clone(&self.context.inbox), client.serial);
        passer.pass(login, limit, PassReply { inbox, client: place, serial, stream: None });
        Ok(())
    }

    /// Handles the outcome of passing a client: if no home took it, it is served here.
    pub(super) fn passed(&mut self, place: u32, serial: u64, stream: Option<PassedStream>) {
        let Some(client) =
            self.sessions.clients_mut().get_mut(place).filter(|it| it.serial == serial)
        else {
            return;
        };
        let ClientPhase::Login(phase) = &mut client.phase else { return };
        let Some(passing) = phase.passing.take() else { return };
        let PassingClient { proved, mut route, id } = *passing;
        let Some(stream) = stream else {
            if let Some(tenant) = self.context.routing.now(&route.tenant) {
                route.tenant = Arc::clone(tenant);
            }
            match route.tenant.state.is_removed() {
                true => {
                    let refusal = PgLoginRefusal::new("57P01", "the tenant was removed");
                    self.refuse_entry(place, &proved, &refusal);
                }
                false => drop(self.admit_here(place, proved, route)),
            }
            // More input may have arrived meanwhile.
            return self.sessions.clients_mut().queue(place, &mut self.context);
        };
        let clients_max = self.context.common.live.clients_max();
        let counted = match self.context.common.population.enter_passed(clients_max) {
            Ok(counted) => counted,
            Err(full) => {
                let refusal = PgLoginRefusal::new("53300", self.context.words().full(full));
                self.refuse_entry(place, &proved, &refusal);
                return;
            }
        };
        if let Err(error) = self.begin_passed(place, &proved, &route, id, stream, counted) {
            tracing::warn!(error = &error as &dyn std::error::Error, "pass a client");
            self.sessions.client_gone(place, &ClientDeparture::Lost(error), &mut self.context);
        }
    }

    pub(super) fn begin_passed(
        &mut self,
        place: u32,
        proved: &LoggedInClient,
        route: &TenantRoute,
        id: u64,
        stream: PassedStream,
        counted: CountedPassedClient,
    ) -> std::io::Result<()> {
        let PassedStream { node, socket, _served } = stream;
        socket.set_nonblocking(true)?;
        let socket = RelaySocket::unix(MioUnixStream::from_std(socket));
        let source = EventSource::Passed(place);
        let mut leg = RelayConnection::new(socket, source, false, &self.context.registry)?;
        let stats = self.context.counters.tenant(route.tenant.id);
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return Ok(()) };
        let ClientPhase::Login(phase) = &mut client.phase else { return Ok(()) };
        let (engine, number) = match proved {
            LoggedInClient::Pg(_) => (TenantEngine::Postgres, 0),
            LoggedInClient::My(client) => (TenantEngine::Mysql, client.seq),
        };
        let (pid, mut boundary) = (phase.pid(), StreamBoundary::new(engine, number));
        // The client may have sent input beyond its login.
        let context = &mut self.context;
        if !client.conn.input.is_empty() {
            boundary.sent(client.conn.input.front());
            leg.send(client.conn.input.front(), &mut context.freelist, &context.registry)?;
            client.conn.input.clear(&mut context.freelist);
        }
        let tenant = Arc::clone(&route.tenant.name);
        tracing::debug!(tenant = &*tenant, node = &*node, "a client is served by another node");
        stats.clients_passed.add(1);
        context.counters.stats.logins.sub(1);
        client.since_us = context.now_us;
        client.phase = ClientPhase::Passed(Box::new(PassedClient {
            leg,
            boundary,
            node,
            id,
            pid,
            tenant,
            tenant_id: route.tenant.id,
            is_ended: false,
            is_end_carried: false,
            is_over: false,
            is_lost: false,
            give_up_us: None,
            stats,
            _served,
            _counted: counted,
        }));
        context.timers.disarm(TimerKey::Client(place).id());
        self.sessions.clients_mut().queue(place, &mut self.context);
        Ok(())
    }

    /// Handles an event of epoll for the socket to the home of a client.
    pub(super) fn leg_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let clients = self.sessions.clients_mut();
        let Some(passed) = clients.get_mut(place).and_then(RelayClient::passed_mut) else {
            return;
        };
        passed.leg_ready(readiness, &mut self.context);
        self.carry(place);
    }

    /// Carries bytes of a passed client in both directions.
    pub(super) fn carry(&mut self, place: u32) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let RelayClient { conn, phase: ClientPhase::Passed(passed), .. } = client else { return };
        let context = &mut self.context;
        match passed.carry(conn, place, context) {
            CarryOutcome::Idle => {}
            CarryOutcome::More => self.sessions.clients_mut().queue(place, context),
            CarryOutcome::Gone(leaving) => self.sessions.client_gone(place, &leaving, context),
            CarryOutcome::Over => self.sessions.close_when_sent(place, context),
            CarryOutcome::HomeLost => {
                let (tenant, node) = (&*passed.tenant, &*passed.node);
                tracing::info!(tenant, node, "the node that served a client is lost");
                let fields = ErrorFields::fatal("57P01", HOME_LOST);
                self.sessions.disconnect(place, &fields, context);
            }
        }
    }

    /// Handles the loss of a client's home. Output of the home that has arrived is sent first.
    pub(super) fn home_lost(&mut self, place: u32, serial: u64) {
        let client = self.sessions.clients_mut().get_mut(place);
        let client = client.filter(|client| client.serial == serial);
        let Some(passed) = client.and_then(RelayClient::passed_mut) else { return };
        passed.is_lost = true;
        self.carry(place);
    }

    /// Makes the homes of this thread's clients disconnect them, as this node is stopping.
    pub(super) fn see_off_passed(&self) {
        let Some(passer) = self.context.common.passer.get() else { return };
        let passed = self.sessions.clients().iter().filter_map(|(_, client)| match &client.phase {
            ClientPhase::Passed(passed) => Some((Arc::clone(&passed.node), passed.id)),
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Closing => None,
        });
        let passed: Vec<(Arc<str>, u64)> = passed.collect();
        if !passed.is_empty() {
            passer.see_off(passed);
        }
    }

    /// Takes a client that another node has passed, like one that has just authenticated.
    pub(super) fn take_arriving(&mut self, arriving: ArrivingClient) {
        self.context.counters.stats.accepted.add(1);
        if let Err(error) = self.begin_arriving(arriving) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "take a client of another node");
            self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn begin_arriving(&mut self, arriving: ArrivingClient) -> io::Result<()> {
        let ArrivingClient { socket, login, arrived } = arriving;
        let ArrivedLogin { proved, route } = arrived;
        let bound = ListenerBinding::to(login.bound.as_deref().map(Arc::from));
        let (engine, numbers) = (login.engine(), login.mysql_numbers());
        let machine = machine(&proved, &self.context.common)?;
        let socket = RelaySocket::of_other_node(
            MioUnixStream::from_std(socket),
            PassedSource { id: login.id, origin: login.origin },
        );
        let place = self.sessions.clients_mut().reserve();
        let source = EventSource::Client(place);
        let conn = RelayConnection::new(socket, source, false, &self.context.registry);
        let conn = match conn {
            Ok(conn) => conn,
            Err(error) => {
                self.sessions.clients_mut().give_up(place);
                return Err(error);
            }
        };
        let pid = numbers.map(|(pid, _)| pid);
        pid.inspect(|pid| self.context.common.keys.restore(*pid, self.context.index, place, &[]));
        let phase = LoginPhase::new(machine, pid, bound);
        self.sessions.clients_mut().begin_login(place, conn, phase, &mut self.context);
        // It may have arrived after the other clients were drained.
        if self.sessions.drain_client(place, &mut self.context) {
            return Ok(());
        }
        // The state here may have changed since the other node checked it.
        match self.context.routing.for_guest(&route.tenant.name, engine).map(Arc::clone) {
            Ok(tenant) => {
                self.admit_here(place, proved, TenantRoute { tenant, ..route });
            }
            Err(error) => {
                let refusal = route_refusal(&self.context, &error, engine, &route);
                self.refuse_entry(place, &proved, &refusal);
            }
        }
        // More input may have arrived already.
        self.sessions.clients_mut().queue(place, &mut self.context);
        Ok(())
    }

    /// Ends clients that other nodes have passed, and that have left there.
    pub(super) fn end_arrived(&mut self, ids: &[u64]) {
        for place in self.sessions.clients().keys() {
            let client = self.sessions.clients().get(place);
            let source = client.and_then(|client| client.conn.socket.passed());
            if source.is_some_and(|it| ids.contains(&it.id)) {
                let error = io::Error::from(io::ErrorKind::ConnectionReset);
                self.sessions.client_gone(place, &ClientDeparture::Lost(error), &mut self.context);
            }
        }
    }

    /// Disconnects clients between their transactions that other nodes have passed.
    pub(super) fn see_off_arrived(&mut self, ids: &[u64]) {
        for place in self.sessions.clients().keys() {
            let Some(client) = self.sessions.clients_mut().get_mut(place) else { continue };
            if client.conn.socket.passed().is_none_or(|it| !ids.contains(&it.id)) {
                continue;
            }
            client.is_seen_off = true;
            // The others are checked when their transaction ends.
            let is_idle = match &client.phase {
                ClientPhase::Session(session) => session.place == ServerAttachment::Idle,
                ClientPhase::Login(_) => true,
                ClientPhase::Greeting(_)
                | ClientPhase::Console(_)
                | ClientPhase::Passed(_)
                | ClientPhase::Closing => false,
            };
            if is_idle {
                self.sessions.drain_client(place, &mut self.context);
            }
        }
    }
}

/// Returns the machine of a completed login, which formats refusals.
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

/// Returns why a client of another node has no tenant here.
fn route_refusal(
    context: &ThreadContext,
    error: &RouteError,
    engine: TenantEngine,
    route: &TenantRoute,
) -> PgLoginRefusal {
    let (code, message) = match engine {
        TenantEngine::Postgres => context.words().route(error, &route.tenant.name),
        TenantEngine::Mysql if error.names_nobody() => ("3D000", error.to_string()),
        TenantEngine::Mysql => (error.sqlstate(), error.to_string()),
    };
    PgLoginRefusal::new(code, message)
}
