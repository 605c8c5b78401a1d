//! Interfaces of the services behind grants: what they implement, and what they get.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AuditEvent, AuditOutcome, CatalogGrant, DatabaseGrant, DatabaseGrantLimits, ModelGrant,
    TenantEngine,
};
use node::fence::EffectFence;
use node::gateway::GrantHolder;
use node::task::Boxed;
use node::traces::TraceContext;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::config::AuditStatements;

/// Error in a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path within the grant: `tenant`, `rules[0].hosts[1]`.
    pub field: String,
    /// A sentence, lower case, no period.
    pub message: String,
}

impl FieldError {
    /// Creates an error at `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), message: message.into() }
    }

    /// Returns the error with its field seen from outside: `rules[0]` and `hosts` make
    /// `rules[0].hosts`.
    #[must_use]
    pub(crate) fn below(self, place: &str) -> FieldError {
        FieldError { field: format!("{place}.{}", self.field), message: self.message }
    }
}

/// Action at a socket, done or tried.
#[derive(Clone, Copy, Debug)]
pub struct GatewayEvent<'a> {
    /// Kind.
    pub event: AuditEvent,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Request, as [`AuditSink::statements`] wants it.
    pub text: Option<&'a str>,
    /// Why it failed or was refused.
    pub error: Option<&'a str>,
    /// Duration.
    pub took: Duration,
    /// Time before that in a queue.
    pub waited: Duration,
    /// Context of a trace that the request itself has. It comes from the sandbox.
    pub trace: Option<&'a TraceContext>,
    /// Status of an answer of HTTP.
    pub status: Option<u16>,
    /// Rows of a statement.
    pub rows: Option<u64>,
    /// Bytes that went out of the sandbox.
    pub bytes_out: Option<u64>,
    /// Bytes that came into it.
    pub bytes_in: Option<u64>,
}

impl<'a> GatewayEvent<'a> {
    /// Creates an action of which nothing else is known.
    #[must_use]
    pub fn new(event: AuditEvent, outcome: AuditOutcome) -> GatewayEvent<'a> {
        GatewayEvent {
            event,
            outcome,
            text: None,
            error: None,
            took: Duration::ZERO,
            waited: Duration::ZERO,
            trace: None,
            status: None,
            rows: None,
            bytes_out: None,
            bytes_in: None,
        }
    }
}

/// Writes down what is done under one grant of one sandbox. It never waits: what there is no room
/// for is counted as lost.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Returns the form of recorded statements. With `None`, no text needs to be built.
    fn statements(&self) -> AuditStatements;

    /// Returns whether contexts of traces are wanted.
    fn is_traced(&self) -> bool {
        false
    }

    /// Accepts a record. Copies the fields that are stored, and texts up to the stored length.
    fn saw(&self, happening: &GatewayEvent<'_>);
}

/// A database that a sandbox is to reach.
#[derive(Clone, Debug)]
pub struct DatabaseGuest {
    /// Holder of the grant.
    pub holder: GrantHolder,
    /// Protocol of its clients.
    pub engine: TenantEngine,
    /// Grant.
    pub grant: DatabaseGrant,
    /// Limits, none of them left out; 0 is for no limit.
    pub limits: DatabaseGrantLimits,
    /// Sink of its audit records.
    pub audit: Arc<dyn AuditSink>,
    /// Lets nothing go outside after the server's lease.
    pub fence: EffectFence,
}

/// Facts that clients inside need to reach a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The database that they ask for.
    pub database: String,
    /// The user that they say they are.
    pub user: String,
}

/// Database that could be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDatabase {
    /// Protocol of its clients.
    pub engine: TenantEngine,
    /// Name of the bouncer's tenant.
    pub tenant: String,
    /// Roles that a grant may name, in their order.
    pub roles: Vec<String>,
}

/// Backend of databases: the bouncer.
pub trait DatabaseBackends: Send + Sync + fmt::Debug {
    /// Returns what there is, by name: at most so many databases, and so many roles of each.
    fn known(&self, databases_max: usize, roles_max: usize) -> Vec<KnownDatabase>;

    /// Returns whether this can be granted, as far as known at present.
    ///
    /// # Errors
    /// The field of the grant that is wrong: a tenant that is not there, or of another engine.
    fn check(
        &self,
        engine: TenantEngine,
        grant: &DatabaseGrant,
    ) -> Result<DatabaseFacts, FieldError>;

    /// Opens a way to a database. Dropping the last copy of what it answers takes it back: its
    /// connections are told in their protocol, and ended.
    ///
    /// # Errors
    /// When that has become impossible since it was checked.
    fn open(&self, guest: DatabaseGuest) -> Result<Arc<dyn DatabaseDoor>, String>;
}

/// A place among connections that have not logged in.
#[derive(Debug)]
pub struct LoginPlace {
    pub(crate) _permits: [OwnedSemaphorePermit; 3],
}

/// A way to a database for one sandbox.
///
/// Nothing that a client says at its login is a proof of anything or needs one, because the socket
/// says who it is: any password is taken, none is asked for. Clients of MySQL say any user name:
/// `pymysql.connect()` reads no variable but takes the name of the operating system's user.
pub trait DatabaseDoor: Send + Sync + fmt::Debug {
    /// Takes a connection that was accepted, which does not block. One that is beyond the guest's
    /// `limits.connections` is refused in its protocol. `place` is let go of when its login has
    /// ended, or the connection.
    fn admit(&self, stream: std::net::TcpStream, place: LoginPlace);

    /// The sandbox is paused: server connections without an open transaction are released.
    fn rest(&self);

    /// Ends what former owners of the guest's session have running, in bounded time and before the
    /// first connection of it is taken. What fails is logged.
    fn end_former(&self) -> Boxed<'static, ()> {
        Box::pin(async {})
    }
}

/// A warehouse that a sandbox is to reach.
#[derive(Clone, Debug)]
pub struct CatalogGuest {
    /// Holder of the grant.
    pub holder: GrantHolder,
    /// Grant.
    pub grant: CatalogGrant,
    /// Sink of its audit records.
    pub audit: Arc<dyn AuditSink>,
    /// Lets nothing go outside after the server's lease.
    pub fence: EffectFence,
}

/// Backend of warehouses: the catalog.
pub trait CatalogBackends: Send + Sync + fmt::Debug {
    /// Returns the names of the warehouses that there are, in their order: at most so many.
    fn known(&self, warehouses_max: usize) -> Vec<String>;

    /// Returns whether this can be granted.
    ///
    /// # Errors
    /// The field of the grant that is wrong.
    fn check(&self, grant: &CatalogGrant) -> Result<(), FieldError>;

    /// Opens a way to a warehouse.
    ///
    /// # Errors
    /// When that has become impossible since it was checked.
    fn open(&self, guest: CatalogGuest) -> Result<Arc<dyn StreamDoor>, String>;
}

/// A sandbox that is to reach the model.
#[derive(Clone, Debug)]
pub struct ModelGuest {
    /// Holder of the grant.
    pub holder: GrantHolder,
    /// Grant.
    pub grant: ModelGrant,
    /// Sink of its audit records.
    pub audit: Arc<dyn AuditSink>,
}

/// Backend of the model.
pub trait ModelBackends: Send + Sync + fmt::Debug {
    /// Returns whether this can be granted.
    ///
    /// # Errors
    /// The field of the grant that is wrong.
    fn check(&self, grant: &ModelGrant) -> Result<(), FieldError>;

    /// Opens a way to the model.
    ///
    /// # Errors
    /// When that has become impossible since it was checked.
    fn open(&self, guest: ModelGuest) -> Result<Arc<dyn StreamDoor>, String>;
}

/// A way for one sandbox that speaks HTTP and is served on the runtime.
pub trait StreamDoor: Send + Sync + fmt::Debug {
    /// Serves one connection to its end. It is ended by dropping the future, so nothing of it may
    /// live in tasks of its own.
    fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()>;

    /// Connections at one time; more are refused by the gateway. 0 is for no limit.
    fn connections_max(&self) -> usize;
}
