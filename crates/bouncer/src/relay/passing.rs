//! Passing of clients between nodes: a client whose tenant has a small limit over all nodes is
//! served at a home of that limit ([`node::cluster::limit_homes`]), through the node that it
//! connected to.
//!
//! That node, the *front*, authenticates the client, and then forwards its bytes without parsing
//! them. The home counts the client, greets it and serves it as one of its own. The thread has a
//! socket for each passed client, and the cluster's peer connections carry bytes between that
//! socket and the home.
//!
//! A client is passed once, and only if a home takes it: otherwise it is served where it is.

pub(super) mod arrival;
pub(super) mod boundary;
pub(super) mod login;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pooler_core::link::LoggedInClient;
use tokio::sync::oneshot;
use wire::pg::message::ErrorFields;

use self::boundary::StreamBoundary;
use super::client::{ClientPhase, RelayClient};
use super::client_count::CountedPassedClient;
use super::conn::{RelayConnection, SocketReadiness};
use super::context::{READS_PER_TURN_MAX, ThreadContext, TimerKey};
use super::departure::{CLOSING_US, ClientDeparture};
use super::orders::{ThreadInbox, ThreadMessageKind};
use super::socket::ReadOutcome;
use super::stats::ThreadTenantStats;
use crate::tenants::{TenantId, TenantRoute, TenantSnapshot, TenantUser};

pub(super) use self::arrival::ArrivingClient;
pub use self::arrival::PassRefusal;
pub use self::login::{PASSED_LOGIN_BYTES_MAX, PassedLogin};

/// Error for clients whose connection to the home was lost.
pub(super) const HOME_LOST: &str =
    "terminating connection: the node that served it is lost, connect again";

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
    /// Returns whether clients that are subject to a limit are served at this node.
    fn is_home(&self, limit: &TenantLimit) -> bool;

    /// Passes a client to a home of its limit. If the reply is dropped, none took it.
    fn pass(&self, login: PassedLogin, limit: TenantLimit, reply: PassReply);

    /// Makes homes disconnect clients between their transactions. Each client is given by the name
    /// of its home and the id of its login.
    fn see_off(&self, clients: Vec<(Arc<str>, u64)>);

    /// Informs a home that a client has left which had closed its sending side before, so that its
    /// stream cannot show it.
    fn end(&self, node: Arc<str>, client: u64);
}

/// Recipient of the outcome of a [`ClientPasser::pass`].
#[derive(Debug)]
pub struct PassReply {
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) client: u32,
    pub(super) serial: u64,
    pub(super) stream: Option<PassedStream>,
}

/// Stream to the home that has taken a client.
#[derive(Debug)]
pub(super) struct PassedStream {
    pub(super) node: Arc<str>,
    pub(super) socket: UnixStream,
    /// Dropping it informs the task that carries the bytes that the client has left.
    pub(super) _served: oneshot::Sender<()>,
}

/// Handle of a passed client, for the task that carries its bytes.
#[derive(Debug)]
pub struct PassedNotice {
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) client: u32,
    pub(super) serial: u64,
    served: oneshot::Receiver<()>,
}

impl PassReply {
    /// Reports that a home has taken the client, whose bytes are carried from and to `socket`.
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
    /// Reports that the connection to the home was lost. The socket must be kept until the client
    /// has left ([`PassedNotice::gone`]), so that its end is not mistaken for the end of the home's
    /// output.
    pub fn lost(&self) {
        let (client, serial) = (self.client, self.serial);
        self.inbox.push(ThreadMessageKind::HomeLost { client, serial });
    }

    /// Returns when the client has left.
    pub async fn gone(&mut self) {
        // The sender is dropped then.
        drop((&mut self.served).await);
    }
}

/// An authenticated client while it is passed.
#[derive(Debug)]
pub(super) struct PassingClient {
    pub(super) proved: LoggedInClient,
    pub(super) route: TenantRoute,
    pub(super) id: u64,
}

/// A client that is served by another node.
#[derive(Debug)]
pub(super) struct PassedClient {
    /// Socket whose bytes are carried from and to the home.
    pub(super) leg: RelayConnection,
    pub(super) boundary: StreamBoundary,
    pub(super) node: Arc<str>,
    pub(super) id: u64,
    /// Number that was sent to a client of MySQL; no other client gets it here.
    pub(super) pid: Option<u32>,
    pub(super) tenant: Arc<str>,
    pub(super) tenant_id: TenantId,
    /// True if the client has closed its sending side.
    pub(super) is_ended: bool,
    /// True if that was passed on to the home.
    pub(super) is_end_carried: bool,
    /// True if the home has ended the connection.
    pub(super) is_over: bool,
    /// True if the home is lost.
    pub(super) is_lost: bool,
    /// Time at which the client is dropped, if it has closed an encrypted connection, on which
    /// nothing more can be sent to it.
    pub(super) give_up_us: Option<u64>,
    pub(super) stats: Arc<ThreadTenantStats>,
    pub(super) _served: oneshot::Sender<()>,
    pub(super) _counted: CountedPassedClient,
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

impl RelayClient {
    pub(super) fn passed_mut(&mut self) -> Option<&mut PassedClient> {
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

/// Next step for a client after bytes were carried.
#[derive(Debug)]
pub(super) enum CarryOutcome {
    /// Wait for an event of epoll.
    Idle,
    /// Continue after other connections had their turn.
    More,
    /// The client has left.
    Gone(ClientDeparture),
    /// The home has ended the connection, and has sent the reason.
    Over,
    /// The connection to the home is lost, and all of its output was carried.
    HomeLost,
}

impl PassedClient {
    /// Records an event of epoll for the socket to the home.
    pub(super) fn leg_ready(&mut self, readiness: SocketReadiness, context: &mut ThreadContext) {
        self.leg.note(readiness);
        if readiness.writable && self.leg.flush(&mut context.freelist, &context.registry).is_err() {
            self.leg.mark_closed();
        }
    }

    /// Carries bytes in both directions; `conn` is the client's own connection.
    pub(super) fn carry(
        &mut self,
        conn: &mut RelayConnection,
        place: u32,
        context: &mut ThreadContext,
    ) -> CarryOutcome {
        if conn.is_gone() {
            return CarryOutcome::Gone(ClientDeparture::End);
        }
        let to_home = self.carry_to_home(conn, place, context);
        if matches!(to_home, CarryOutcome::Gone(_)) {
            return to_home;
        }
        match self.carry_to_client(conn, context) {
            CarryOutcome::Idle => to_home,
            to_client => to_client,
        }
    }

    fn carry_to_home(
        &mut self,
        conn: &mut RelayConnection,
        place: u32,
        context: &mut ThreadContext,
    ) -> CarryOutcome {
        for _ in 0..READS_PER_TURN_MAX {
            if self.is_ended {
                self.carry_end();
                return CarryOutcome::Idle;
            }
            if !conn.is_readable() || self.leg.is_clogged() {
                return CarryOutcome::Idle;
            }
            let count = match conn.read(&mut context.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) => return CarryOutcome::Idle,
                Ok(ReadOutcome::End) => {
                    self.is_ended = true;
                    if conn.socket.is_tls() {
                        let give_up_us = context.now_us + CLOSING_US;
                        self.give_up_us = Some(give_up_us);
                        context.timers.arm(TimerKey::Client(place).id(), give_up_us);
                    }
                    continue;
                }
                Err(error) => return CarryOutcome::Gone(ClientDeparture::Lost(error)),
            };
            let bytes = context.scratch.get(..count).unwrap_or_default();
            self.boundary.sent(bytes);
            if self.leg.send(bytes, &mut context.freelist, &context.registry).is_err() {
                // Earlier output of the home is still to be read.
                self.leg.mark_closed();
            }
        }
        CarryOutcome::More
    }

    /// Passes on the end of the client's input, once all bytes before it were sent.
    fn carry_end(&mut self) {
        if self.leg.is_flushed() && !self.is_end_carried {
            self.is_end_carried = true;
            self.leg.socket.finish();
        }
    }

    fn carry_to_client(
        &mut self,
        conn: &mut RelayConnection,
        context: &mut ThreadContext,
    ) -> CarryOutcome {
        for _ in 0..READS_PER_TURN_MAX {
            if conn.is_clogged() {
                return CarryOutcome::Idle;
            }
            let received = match self.leg.is_readable() {
                true => self.leg.read(&mut context.scratch),
                false => Ok(ReadOutcome::Nothing),
            };
            let count = match received {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) if self.is_lost => return CarryOutcome::HomeLost,
                Ok(ReadOutcome::Nothing) => return CarryOutcome::Idle,
                // A home that ends a connection has sent the reason.
                Ok(ReadOutcome::End) => {
                    self.is_over = true;
                    return CarryOutcome::Over;
                }
                Err(_) => {
                    self.is_lost = true;
                    return CarryOutcome::HomeLost;
                }
            };
            let bytes = context.scratch.get(..count).unwrap_or_default();
            self.boundary.received(bytes);
            if let Err(error) = conn.send(bytes, &mut context.freelist, &context.registry) {
                return CarryOutcome::Gone(ClientDeparture::Lost(error));
            }
        }
        CarryOutcome::More
    }

    /// Releases its resources.
    pub(super) fn end(self, context: &mut ThreadContext) {
        self.stats.clients_passed.sub(1);
        self.pid.inspect(|pid| context.common.keys.remove(*pid));
        let is_heard = !self.is_end_carried || self.is_over || self.is_lost;
        if let (false, Some(passer)) = (is_heard, context.common.passer.get()) {
            passer.end(Arc::clone(&self.node), self.id);
        }
        self.leg.close(&mut context.freelist);
    }

    /// Appends the error with which the client is disconnected, if it can be inserted.
    pub(super) fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        self.boundary.put_fatal_error(fields, out);
    }
}
