//! Phases of a client before its session: it logs in, and may have to wait for the parameters of a
//! server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pooler_core::link::{ClientProofRequest, LoginMachine};
use pooler_core::pg::login::{
    PgAuthenticatedClient, PgLoginRefusal, PgStartupRequest, ReplicationPolicy,
};
use wire::pg::message::ErrorFields;

use super::client::ServerAttachment;
use super::client_count::CountedClient;
use super::common::RelayShared;
use super::console_backend::ConsoleRights;
use super::context::ThreadContext;
use super::dialect::DATABASE;
use super::entry::AwaitedEntry;
use super::guests::ListenerBinding;
use super::passing::PassingClient;
use super::pools::PoolRef;
use super::prover;
use super::stats::ThreadTenantStats;
use crate::auth::AuthRequirement;
use crate::rate::LoginSource;
use crate::tenants::{ClientAuth, PoolId, TenantRoute};
use crate::tls;

/// A client during login.
#[derive(Debug)]
pub(super) struct LoginPhase {
    pub(super) login: LoginMachine,
    /// Connection number that was sent to it before the login.
    pid: Option<u32>,
    /// Binding of its listener.
    pub(super) bound: ListenerBinding,
    /// The former tenant of a client that logs in again on the same connection: a schema that it
    /// names is of that tenant, unless it names another tenant.
    pub(super) former: Option<Arc<str>>,
    /// Route to its tenant.
    pub(super) route: Option<TenantRoute>,
    /// Rule on replication connections.
    pub(super) replication: ReplicationPolicy,
    /// User and rights at the console, if it connects there.
    pub(super) visit: Option<(Arc<str>, ConsoleRights)>,
    /// True if its secret is being looked up, or its proof checked.
    pub(super) is_looked_up: bool,
    /// Its origin, once it has to authenticate.
    pub(super) origin: Option<LoginSource>,
    /// True if its failure was already counted where it was detected.
    pub(super) is_counted: bool,
    /// TLS configuration of the handshake in progress.
    pub(super) is_in_handshake: Option<Arc<tls::ListenerTls>>,
    /// Rest of the login of a client that waits to be counted.
    pub(super) awaited: Option<Box<AwaitedEntry>>,
    /// Rest of the login of a client that is being passed to another node.
    pub(super) passing: Option<Box<PassingClient>>,
}

/// An authenticated client that waits until a server reports its parameters.
#[derive(Debug)]
pub(super) struct GreetingWait {
    pub(super) authenticated: PgAuthenticatedClient,
    pub(super) route: TenantRoute,
    /// Its entry in the count of clients.
    pub(super) head: CountedClient,
    pub(super) pool_id: PoolId,
    pub(super) pool: PoolRef,
    pub(super) place: ServerAttachment,
    pub(super) stats: Arc<ThreadTenantStats>,
    /// Binding of its listener.
    pub(super) bound: ListenerBinding,
}

impl LoginPhase {
    /// Returns the startup request of a PostgreSQL client.
    pub(super) fn requested(&self) -> Option<&PgStartupRequest> {
        self.login.pg_requested()
    }

    /// Returns the connection number that was sent to it before the login.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Appends the error with which it is disconnected.
    pub(super) fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        self.login.put_fatal_error(fields, out);
    }

    /// Counts a failed login.
    pub(super) fn end(&self, context: &ThreadContext) {
        if let Some(pid) = self.pid {
            context.common.keys.remove(pid);
        }
        context.counters.stats.logins.sub(1);
        context.counters.stats.logins_failed.add(1);
    }

    /// Logs the failure, and counts a wrong password.
    pub(super) fn failed(&self, refusal: &PgLoginRefusal, context: &ThreadContext) {
        let (code, cause, message) = (refusal.code, refusal.cause.as_deref(), &refusal.message);
        // Code in sandboxes must not fill the log: the audit log records guests.
        match self.bound.guest.is_some() {
            true => tracing::debug!(code, cause, "login failed: {message}"),
            false => tracing::info!(code, cause, "login failed: {message}"),
        }
        if code != "28P01" {
            return;
        }
        // The secret that was looked up may have been changed on the server.
        if let Some(route) = &self.route
            && route.user.auth == ClientAuth::Query
        {
            context.common.look_up.doubt(route.tenant.id, &route.user.name);
        }
        if let (Some(origin), false) = (self.origin, self.is_counted) {
            context.common.failed_logins.count(origin, context.now);
        }
    }

    /// Returns the binding of its listener.
    pub(super) fn bound(&self) -> &ListenerBinding {
        &self.bound
    }

    /// Records its route.
    pub(super) fn set_route(&mut self, route: TenantRoute) {
        self.route = Some(route);
    }

    /// Returns whether it waits for another component: a secret lookup or password check, a part of
    /// a limit, or another node.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_looked_up || self.is_proved()
    }

    /// Returns whether it has authenticated and waits for other events.
    pub(super) fn is_proved(&self) -> bool {
        self.awaited.is_some() || self.passing.is_some()
    }

    /// Returns whether it had a session on the same connection before.
    pub(super) fn logs_in_anew(&self) -> bool {
        self.former.is_some()
    }

    /// Returns the proof required of a client of the console; `None` for other clients.
    pub(super) fn route_to_console(
        &mut self,
        common: &RelayShared,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> Option<Result<ClientProofRequest, PgLoginRefusal>> {
        let requested = self.login.pg_requested()?;
        let backend = common.console.get()?;
        if requested.database_or_user() != DATABASE {
            return None;
        }
        let (user, rights) = match backend.guest(requested) {
            Ok(guest) => guest,
            Err(refusal) => return Some(Err(refusal)),
        };
        let demand = common.keyrings.pg.demand(&user, requested);
        let origin = LoginSource::new(None, requested.reached, peer);
        self.origin = Some(origin);
        self.visit = Some((user.name, rights));
        let nobody = || PgLoginRefusal::new("28000", "unknown user");
        let answer = match demand {
            crate::auth::pg::PgAuthRequirement::Known(answer) => answer.map(ClientProofRequest::Pg),
            crate::auth::pg::PgAuthRequirement::Query => Err(nobody()),
        };
        Some(match prover::restrained(common, origin, now, AuthRequirement::Known(answer)) {
            AuthRequirement::Known(answer) => answer,
            AuthRequirement::Query => Err(nobody()),
        })
    }

    /// Creates the state of a client that has just connected, or logs in again.
    pub(super) fn new(login: LoginMachine, pid: Option<u32>, bound: ListenerBinding) -> LoginPhase {
        LoginPhase {
            login,
            pid,
            bound,
            former: None,
            route: None,
            replication: ReplicationPolicy::Refused,
            visit: None,
            is_looked_up: false,
            origin: None,
            is_counted: false,
            is_in_handshake: None,
            awaited: None,
            passing: None,
        }
    }
}

/// State of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LoginFlow {
    /// Present the same bytes again.
    Again,
    /// More bytes are needed.
    Stop,
    /// All bytes were taken.
    Took,
}
