//! Passing of clients between nodes: one whose tenant has a small limit over all nodes is served at
//! a home of that limit ([`node::cluster::limit_homes`]), through the node that it came to.
//!
//! That node, the *front*, lets the client prove who it is, and carries its bytes from then on
//! without reading them. The home counts it, greets it and serves it as one of its own. The thread
//! has a socket for each client that is passed, and whoever reaches the other nodes carries bytes
//! between that and the home.
//!
//! A client is passed once, and only if a home takes it: otherwise it is served where it is.

mod arrival;
mod boundary;
mod login;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use api::TenantEngine;
use mio::net::UnixStream as MioUnixStream;
use pooler_core::link::LoggedInClient;
use pooler_core::pg::login::PgLoginRefusal;
use tokio::sync::oneshot;
use wire::pg::message::ErrorFields;

pub(super) use self::arrival::ArrivingClient;
pub use self::arrival::PassRefusal;
use self::boundary::StreamBoundary;
pub(super) use self::login::PassedOrigin;
pub use self::login::{PASSED_LOGIN_BYTES_MAX, PassedLogin};
use super::client::{ClientPhase, RelayClient};
use super::client_count::CountedPassedClient;
use super::conn::{EventSource, RelayConnection, SocketReadiness};
use super::leave::{CLOSING_US, ClientDeparture};
use super::orders::{ThreadInbox, ThreadMessageKind};
use super::socket::{ReadOutcome, RelaySocket};
use super::stats::ThreadTenantStats;
use super::worker::{READS_PER_TURN_MAX, RelayWorker, TimerKey, WorkerShutdown};
use crate::tenants::{TenantRoute, TenantSnapshot, TenantUser};

/// Error for clients whose home went away in the middle.
const HOME_LOST: &str = "terminating connection: the node that served it is lost, connect again";

/// Name of the limits of a tenant, and the smallest of those that hold over all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimit {
    /// Name, the same at all nodes.
    pub name: String,
    /// Smallest limit that a user of the tenant is subject to.
    pub limit: u32,
}

/// Passes clients to the homes of their tenants' limits. It must not block.
pub trait ClientPasser: fmt::Debug + Send + Sync {
    /// Returns whether clients are to be served here that are subject to a limit.
    fn is_home(&self, limit: &TenantLimit) -> bool;

    /// Passes a client to a home of its limit. If the reply is dropped, none took it.
    fn pass(&self, login: PassedLogin, limit: TenantLimit, reply: PassReply);

    /// Has homes see clients off between their transactions, each at the node of this name, by
    /// the ids of their logins.
    fn see_off(&self, clients: Vec<(Arc<str>, u64)>);

    /// Tells a home that a client is gone, which had ended its side before: its stream says nothing
    /// more.
    fn end(&self, node: Arc<str>, client: u64);
}

/// Client of another node, behind a socket that is carried there.
#[derive(Debug)]
pub(crate) struct PassedSource {
    /// Number by which the nodes speak of it.
    pub(super) id: u64,
    /// Origin.
    pub(super) origin: PassedOrigin,
}

/// Recipient of the outcome of a [`ClientPasser::pass`].
#[derive(Debug)]
pub struct PassReply {
    inbox: Arc<ThreadInbox>,
    client: u32,
    serial: u64,
    stream: Option<PassedStream>,
}

/// Stream to the home that has taken a client.
#[derive(Debug)]
pub(super) struct PassedStream {
    node: Arc<str>,
    socket: UnixStream,
    /// Tells whoever carries its bytes, by being dropped, that the client is gone.
    _served: oneshot::Sender<()>,
}

/// Handle of a passed client, for whoever carries its bytes.
#[derive(Debug)]
pub struct PassedNotice {
    inbox: Arc<ThreadInbox>,
    client: u32,
    serial: u64,
    served: oneshot::Receiver<()>,
}

impl PassReply {
    /// Says that a home has taken the client, whose bytes are carried from and to `socket`.
    pub fn taken(mut self, node: &str, socket: UnixStream) -> PassedNotice {
        let (sender, served) = oneshot::channel();
        self.stream = Some(PassedStream { node: node.into(), socket, _served: sender });
        let (client, serial) = (self.client, self.serial);
        PassedNotice { inbox: Arc::clone(&self.inbox), client, serial, served }
    }
}

impl Drop for PassReply {
    fn drop(&mut self) {
        let (client, serial) = (self.client, self.serial);
        let stream = self.stream.take();
        self.inbox.push(ThreadMessageKind::Passed { client, serial, stream });
    }
}

impl PassedNotice {
    /// Says that the home went away in the middle. The socket is to be kept until the client is
    /// gone ([`PassedNotice::gone`]), so that its end is not taken for that of the home's answers.
    pub fn lost(&self) {
        let (client, serial) = (self.client, self.serial);
        self.inbox.push(ThreadMessageKind::HomeLost { client, serial });
    }

    /// Returns when the client is gone.
    pub async fn gone(&mut self) {
        // It is dropped.
        drop((&mut self.served).await);
    }
}

/// A client that has proved who it is, while it is passed.
#[derive(Debug)]
pub(super) struct PassingClient {
    proved: LoggedInClient,
    route: TenantRoute,
    id: u64,
}

/// A client that is served by another node.
#[derive(Debug)]
pub(super) struct PassedClient {
    /// Socket whose bytes are carried from and to the home.
    leg: RelayConnection,
    boundary: StreamBoundary,
    node: Arc<str>,
    id: u64,
    /// Number that a client of MySQL was told, which no other one gets here.
    pid: Option<u32>,
    tenant: Arc<str>,
    /// True if the client has ended its side.
    is_ended: bool,
    /// True if that was carried on.
    is_end_carried: bool,
    /// True if the home has ended the connection.
    is_over: bool,
    /// True if the home is lost.
    is_lost: bool,
    /// When a client is given up that has ended an encrypted connection, by which nothing can be
    /// said to it any more.
    pub(super) give_up_us: Option<u64>,
    stats: Arc<ThreadTenantStats>,
    _served: oneshot::Sender<()>,
    _counted: CountedPassedClient,
}

impl TenantLimit {
    /// Returns the smallest of the limits over all nodes that a user of a tenant is subject to:
    /// those that [`crate::service`] shares.
    pub(super) fn of(tenant: &TenantSnapshot, user: &TenantUser) -> TenantLimit {
        let limits = &tenant.limits;
        let servers =
            limits.server_connections_max.saturating_add(limits.server_connections_reserve);
        let clients = [limits.clients_max, tenant.clients_max_of(user)];
        let limit = clients.into_iter().flatten().fold(servers, u32::min);
        TenantLimit { name: format!("tenant/{:?}/{}", tenant.engine, tenant.name), limit }
    }
}

impl RelayWorker {
    /// Begins to pass a client that has proved who it is. Gives it back if it is to be served here.
    pub(super) fn pass(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
    ) -> Result<(), (LoggedInClient, TenantRoute)> {
        let Some(passer) = self.common.passer.get() else { return Err((proved, route)) };
        let is_staying = self.ending != WorkerShutdown::No || self.successor.is_some();
        let Some(client) = self.clients.get_mut(place) else { return Err((proved, route)) };
        let ClientPhase::Login(phase) = &mut client.phase else { return Err((proved, route)) };
        // What a sandbox may do is looked at here. Who logs in anew is where its session was.
        let is_other = phase.bound.guest.is_some() || phase.logs_in_anew();
        if is_staying || is_other || client.conn.socket.passed().is_some() {
            return Err((proved, route));
        }
        let limit = TenantLimit::of(&route.tenant, &route.user);
        if passer.is_home(&limit) {
            return Err((proved, route));
        }
        let Ok(id) = getrandom::u64() else { return Err((proved, route)) };
        let keyrings = &self.common.keyrings;
        let login = PassedLogin::of(id, &proved, &route, keyrings, phase.pid());
        let Some(mut login) = login else { return Err((proved, route)) };
        login.bound = phase.bound.tenant.as_deref().map(str::to_owned);
        login.origin.peer = client.conn.socket.peer();
        phase.passing = Some(Box::new(PassingClient { proved, route, id }));
        let (inbox, serial) = (Arc::clone(&self.inbox), client.serial);
        passer.pass(login, limit, PassReply { inbox, client: place, serial, stream: None });
        Ok(())
    }

    /// A client was passed, or no home took it: then it is served here.
    pub(super) fn passed(&mut self, place: u32, serial: u64, stream: Option<PassedStream>) {
        let Some(client) = self.clients.get_mut(place).filter(|it| it.serial == serial) else {
            return;
        };
        let ClientPhase::Login(phase) = &mut client.phase else { return };
        let Some(passing) = phase.passing.take() else { return };
        let PassingClient { proved, mut route, id } = *passing;
        let Some(stream) = stream else {
            if let Some(tenant) = self.routing.now(&route.tenant) {
                route.tenant = Arc::clone(tenant);
            }
            match route.tenant.state.is_removed() {
                true => {
                    let refusal = PgLoginRefusal::new("57P01", "the tenant was removed");
                    self.refuse_entry(place, &proved, &refusal);
                }
                false => drop(self.admit_here(place, proved, route)),
            }
            // It may have sent more meanwhile.
            return self.queue_client(place);
        };
        let clients_max = self.common.live.clients_max();
        let counted = match self.common.population.enter_passed(clients_max) {
            Ok(counted) => counted,
            Err(full) => {
                let refusal = PgLoginRefusal::new("53300", self.words().full(full));
                self.refuse_entry(place, &proved, &refusal);
                return;
            }
        };
        if let Err(error) = self.begin_passed(place, &proved, &route, id, stream, counted) {
            tracing::warn!(error = &error as &dyn std::error::Error, "pass a client");
            self.client_gone(place, &ClientDeparture::Lost(error));
        }
    }

    fn begin_passed(
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
        let stats = self.counters.tenant(route.tenant.id);
        let Some(client) = self.clients.get_mut(place) else { return Ok(()) };
        let ClientPhase::Login(phase) = &mut client.phase else { return Ok(()) };
        let (engine, number) = match proved {
            LoggedInClient::Pg(_) => (TenantEngine::Postgres, 0),
            LoggedInClient::My(client) => (TenantEngine::Mysql, client.seq),
        };
        let (pid, mut boundary) = (phase.pid(), StreamBoundary::new(engine, number));
        // It may have sent more than its login.
        let context = &mut self.context;
        if !client.conn.input.is_empty() {
            boundary.sent(client.conn.input.front());
            leg.send(client.conn.input.front(), &mut context.freelist, &context.registry)?;
            client.conn.input.clear(&mut context.freelist);
        }
        let tenant = Arc::clone(&route.tenant.name);
        tracing::debug!(tenant = &*tenant, node = &*node, "a client is served by another node");
        stats.clients_passed.add(1);
        self.counters.stats.logins.sub(1);
        client.since_us = context.now_us;
        client.phase = ClientPhase::Passed(Box::new(PassedClient {
            leg,
            boundary,
            node,
            id,
            pid,
            tenant,
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
        self.queue_client(place);
        Ok(())
    }

    /// Epoll says something of the socket to the home of a client.
    pub(super) fn leg_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let context = &mut self.context;
        let Some(passed) = self.clients.get_mut(place).and_then(RelayClient::passed_mut) else {
            return;
        };
        passed.leg.note(readiness);
        if readiness.writable && passed.leg.flush(&mut context.freelist, &context.registry).is_err()
        {
            passed.leg.mark_closed();
        }
        self.carry(place);
    }

    /// Carries what has come for a client and from it.
    pub(super) fn carry(&mut self, place: u32) {
        if self.clients.get(place).is_some_and(|client| client.conn.is_gone()) {
            return self.client_gone(place, &ClientDeparture::End);
        }
        self.carry_to_home(place);
        self.carry_to_client(place);
    }

    fn carry_to_home(&mut self, place: u32) {
        for _ in 0..READS_PER_TURN_MAX {
            let RelayWorker { clients, context, scratch, .. } = self;
            let Some(client) = clients.get_mut(place) else { return };
            let RelayClient { conn, phase: ClientPhase::Passed(passed), .. } = client else {
                return;
            };
            if passed.is_ended {
                return self.carry_end(place);
            }
            if !conn.is_readable() || passed.leg.is_clogged() {
                return;
            }
            let count = match conn.read(scratch) {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) => return,
                Ok(ReadOutcome::End) => {
                    passed.is_ended = true;
                    if conn.socket.is_tls() {
                        let give_up_us = context.now_us + CLOSING_US;
                        passed.give_up_us = Some(give_up_us);
                        context.timers.arm(TimerKey::Client(place).id(), give_up_us);
                    }
                    continue;
                }
                Err(error) => return self.client_gone(place, &ClientDeparture::Lost(error)),
            };
            let bytes = scratch.get(..count).unwrap_or_default();
            passed.boundary.sent(bytes);
            if passed.leg.send(bytes, &mut context.freelist, &context.registry).is_err() {
                // What the home has said before is still to be read.
                passed.leg.mark_closed();
            }
        }
        self.queue_client(place);
    }

    /// Carries the end of what a client sends on, once all before it has gone.
    fn carry_end(&mut self, place: u32) {
        let Some(passed) = self.clients.get_mut(place).and_then(RelayClient::passed_mut) else {
            return;
        };
        if passed.leg.is_flushed() && !passed.is_end_carried {
            passed.is_end_carried = true;
            passed.leg.socket.finish();
        }
    }

    fn carry_to_client(&mut self, place: u32) {
        for _ in 0..READS_PER_TURN_MAX {
            let RelayWorker { clients, context, scratch, .. } = self;
            let Some(client) = clients.get_mut(place) else { return };
            let RelayClient { conn, phase: ClientPhase::Passed(passed), .. } = client else {
                return;
            };
            if conn.is_clogged() {
                return;
            }
            let received = match passed.leg.is_readable() {
                true => passed.leg.read(scratch),
                false => Ok(ReadOutcome::Nothing),
            };
            let count = match received {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) if passed.is_lost => return self.home_over(place),
                Ok(ReadOutcome::Nothing) => return,
                // A home that ends a connection has said why.
                Ok(ReadOutcome::End) => {
                    passed.is_over = true;
                    return self.close_when_sent(place);
                }
                Err(_) => {
                    passed.is_lost = true;
                    return self.home_over(place);
                }
            };
            let bytes = scratch.get(..count).unwrap_or_default();
            passed.boundary.received(bytes);
            if let Err(error) = conn.send(bytes, &mut context.freelist, &context.registry) {
                return self.client_gone(place, &ClientDeparture::Lost(error));
            }
        }
        self.queue_client(place);
    }

    /// The home of a client is lost. What it has said is told to the client first.
    pub(super) fn home_lost(&mut self, place: u32, serial: u64) {
        let client = self.clients.get_mut(place).filter(|client| client.serial == serial);
        let Some(passed) = client.and_then(RelayClient::passed_mut) else { return };
        passed.is_lost = true;
        self.carry(place);
    }

    fn home_over(&mut self, place: u32) {
        let Some(passed) = self.clients.get_mut(place).and_then(RelayClient::passed_mut) else {
            return;
        };
        let (tenant, node) = (&*passed.tenant, &*passed.node);
        tracing::info!(tenant, node, "the node that served a client is lost");
        self.disconnect(place, &ErrorFields::fatal("57P01", HOME_LOST));
    }

    /// Has the homes of this thread's clients see them off, since this node stops.
    pub(super) fn see_off_passed(&self) {
        let Some(passer) = self.common.passer.get() else { return };
        let passed = self.clients.iter().filter_map(|(_, client)| match &client.phase {
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

    /// Undoes what a client holds that another node has served.
    pub(super) fn end_passed(&mut self, passed: PassedClient) {
        passed.stats.clients_passed.sub(1);
        passed.pid.inspect(|pid| self.common.keys.remove(*pid));
        let is_heard = !passed.is_end_carried || passed.is_over || passed.is_lost;
        if let (false, Some(passer)) = (is_heard, self.common.passer.get()) {
            passer.end(Arc::clone(&passed.node), passed.id);
        }
        passed.leg.close(&mut self.context.freelist);
    }
}

impl RelayClient {
    fn passed_mut(&mut self) -> Option<&mut PassedClient> {
        match &mut self.phase {
            ClientPhase::Passed(passed) => Some(passed),
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Closing => None,
        }
    }
}

impl PassedClient {
    /// Appends why the client has to go, if it can be told.
    pub(super) fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        self.boundary.put_fatal_error(fields, out);
    }
}
