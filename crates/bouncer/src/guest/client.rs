//! A sandbox client, which needs no authentication: its access, its audit reports and its route.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::TenantEngine;
use node::fence::{EffectFence, EffectWay, LeaseLost};
use node::traces::TraceContext;
use pooler_core::epoch::SessionEpoch;
use pooler_core::mysql::mark::SessionMark;

use super::turns::LeaseQuota;
use crate::tenants::{
    ClientAuth, RouteError, ServerSecret, TenantRoute, TenantRouting, TenantSnapshot, TenantUser,
    UserTimes,
};

/// Maximum bytes of a statement in a record; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Detail of statements in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementDetail {
    /// No text.
    None,
    /// Text without the values in it.
    #[default]
    Masked,
    /// Statements as they were sent, and errors as the server reported them.
    Full,
}

/// Rights and limits of a guest.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// Name among the users of its tenant, by which its clients are counted.
    pub name: Arc<str>,
    /// Tenant.
    pub tenant: Arc<str>,
    /// Protocol.
    pub engine: TenantEngine,
    /// The tenant's user whose role the guest has on the server; see
    /// [`TenantSnapshot::role_of_guest`].
    pub role: Option<Arc<str>>,
    /// Schema of unqualified names.
    pub schema: Option<Arc<str>>,
    /// True if it may only read.
    pub read_only: bool,
    /// Connections at one time.
    pub clients_max: Option<u32>,
    /// Maximum durations of its actions; the tenant's own limits hold as well.
    pub times: UserTimes,
    /// Rows that one statement may return.
    pub rows_max: Option<u64>,
    /// Bytes that the answer to one statement may have.
    pub bytes_max: Option<u64>,
    /// Detail of statements that is reported.
    pub texts: StatementDetail,
    /// True if contexts of traces in comments of statements are reported.
    pub trace_comments: bool,
    /// Receiver of reports.
    pub witness: Arc<dyn SandboxObserver>,
    /// Fence that stops all traffic to a database once the server's lease has ended.
    pub fence: EffectFence,
    /// Session of the sandbox; `None` if it cannot be taken over.
    pub session: Option<SessionEpoch>,
}

/// Action of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxAction<'a> {
    /// Logged in.
    Connected {
        /// Time since the connection was accepted.
        took: Duration,
    },
    /// Refused, or ended, for this reason.
    Refused(&'a str),
    /// A statement has ended.
    Statement {
        /// Text, as far as it is reported. `(prepared)` stands for a text that is not known any
        /// more; `(sent)` precedes one that is therefore reported before it runs.
        text: Option<&'a str>,
        /// Time that it took, from when it had a server connection.
        took: Duration,
        /// Time before that in the queue for a server connection.
        waited: Duration,
        /// Context of a trace in a comment at its end.
        trace: Option<&'a TraceContext>,
        /// Rows that it returned.
        rows: u64,
        /// Bytes of its answer.
        bytes: u64,
        /// Error: a code, with the message if statements are recorded in full.
        error: Option<&'a str>,
    },
    /// Disconnected.
    Disconnected {
        /// Duration of the connection.
        took: Duration,
        /// Bytes received from the client.
        sent: u64,
        /// Bytes sent to the client.
        received: u64,
    },
}

/// Receives the audit events of guests, on the relay's threads: it must not block.
pub trait SandboxObserver: fmt::Debug + Send + Sync {
    /// A guest did something.
    fn saw(&self, deed: SandboxAction<'_>);
}

/// Client that needs no authentication.
#[derive(Debug)]
pub struct SandboxClient {
    pub(super) id: u64,
    pub(super) spec: GuestSpec,
    pub(super) is_revoked: AtomicBool,
    pub(super) turns: Arc<LeaseQuota>,
    pub(super) mark: Option<Arc<SessionMark>>,
}

/// Why a guest cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxClientError {
    /// The tenant refuses the client.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The tenant has no such user.
    #[error("the tenant has no user \"{0}\"")]
    NoSuchRole(Arc<str>),
    /// No role is named, and there is more than one, or none.
    #[error("the tenant has neither a `server_user` nor exactly one user: specify `role`")]
    NoRole,
    /// The role authenticates at the server with what clients send, and guests send nothing.
    #[error(
        "no password of \"{0}\" is configured for the server: set the user's `password`, or the \
         tenant's `server_user`"
    )]
    NoSecret(Arc<str>),
    /// Revoked.
    #[error("the grant was revoked")]
    Revoked,
    /// The server's lease has ended.
    #[error(transparent)]
    Fenced(#[from] LeaseLost),
}

impl SandboxClientError {
    /// Returns the SQLSTATE that clients match on.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            SandboxClientError::Route(error) => error.sqlstate(),
            SandboxClientError::NoSuchRole(_)
            | SandboxClientError::NoRole
            | SandboxClientError::NoSecret(_) => "28000",
            SandboxClientError::Revoked => "57P01",
            SandboxClientError::Fenced(_) => "57P03",
        }
    }
}

impl SandboxClient {
    /// Creates a client with this number.
    pub(super) fn new(id: u64, spec: GuestSpec) -> SandboxClient {
        let session = spec.session.as_ref().filter(|_| spec.engine == TenantEngine::Mysql);
        let mark = session.map(|session| Arc::new(SessionMark::new(session)));
        let is_revoked = AtomicBool::new(false);
        SandboxClient { id, spec, is_revoked, turns: Arc::default(), mark }
    }

    /// Returns its access.
    pub(crate) fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// Checks that the server's lease holds, so that input of its clients may pass.
    ///
    /// # Errors
    /// When the lease has ended.
    pub(crate) fn check_lease(&self) -> Result<(), LeaseLost> {
        self.spec.fence.check(EffectWay::Database)
    }

    /// Returns a number that is unique within the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the mark of server connections that its clients hold.
    pub(crate) fn mark(&self) -> Option<&Arc<SessionMark>> {
        self.mark.as_ref()
    }

    /// Returns the quota that orders its clients.
    pub(crate) fn turns(&self) -> &Arc<LeaseQuota> {
        &self.turns
    }

    /// Returns its route in the current routing.
    pub(crate) fn route(&self, routing: &TenantRouting) -> Result<TenantRoute, SandboxClientError> {
        if self.is_revoked.load(Ordering::Acquire) {
            return Err(SandboxClientError::Revoked);
        }
        let spec = &self.spec;
        let tenant = routing.for_guest(&spec.tenant, spec.engine)?;
        let role = tenant.role_of_guest(spec.role.as_deref())?;
        let own = role.times.over(&tenant.limits);
        let user = TenantUser {
            name: Arc::clone(&spec.name),
            auth: ClientAuth::Trust,
            clients_max: spec.clients_max,
            times: shorter(&spec.times, &own),
            ..(*role).clone()
        };
        let twin = tenant.read_only_twin.as_ref().filter(|_| spec.read_only);
        Ok(TenantRoute { tenant: Arc::clone(twin.unwrap_or(tenant)), user: Arc::new(user) })
    }
}

/// Returns the shorter of each pair of times.
fn shorter(one: &UserTimes, other: &UserTimes) -> UserTimes {
    let of = |one: Option<Duration>, other: Option<Duration>| {
        let real = |time: &Duration| !time.is_zero();
        one.filter(real).into_iter().chain(other.filter(real)).min()
    };
    UserTimes {
        wait: of(one.wait, other.wait),
        query: of(one.query, other.query),
        transaction: of(one.transaction, other.transaction),
        idle_in_transaction: of(one.idle_in_transaction, other.idle_in_transaction),
        client_idle: of(one.client_idle, other.client_idle),
    }
}

impl TenantSnapshot {
    /// Returns the user whose role a guest has on the server: the named one; else the tenant's
    /// `server_user`, or its only user.
    ///
    /// # Errors
    /// If there is none, or none with the credentials that the server requires.
    pub fn role_of_guest(
        &self,
        named: Option<&str>,
    ) -> Result<Arc<TenantUser>, SandboxClientError> {
        let user = match named {
            Some(name) => Arc::clone(
                self.users.get(name).ok_or_else(|| SandboxClientError::NoSuchRole(name.into()))?,
            ),
            None => match (&self.forced, self.users.len()) {
                (Some((user, _)), _) => self.user(user),
                (None, 1) => {
                    Arc::clone(self.users.values().next().ok_or(SandboxClientError::NoRole)?)
                }
                (None, _) => return Err(SandboxClientError::NoRole),
            },
        };
        if user.server_secret == ServerSecret::OfClient {
            return Err(SandboxClientError::NoSecret(Arc::clone(&user.server_user)));
        }
        Ok(user)
    }
}

/// Place that a connection holds until its login has completed or the connection ends; the bouncer
/// then drops it and uses it for nothing else.
pub type LoginPlace = Arc<dyn Any + Send + Sync>;
