//! Interfaces of the services behind grants: the traits that they implement, and their parameters.

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

    /// Returns the error with its field relative to the parent: `rules[0]` and `hosts` make
    /// `rules[0].hosts`.
    #[must_use]
    pub(crate) fn below(self, place: &str) -> FieldError {
        FieldError { field: format!("{place}.{}", self.field), message: self.message }
    }
}

/// An action on a socket, completed or attempted.
#[derive(Clone, Copy, Debug)]
pub struct GatewayEvent<'a> {
    /// Kind.
    pub event: AuditEvent,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Request, in the form of [`AuditSink::statements`].
    pub text: Option<&'a str>,
    /// Why it failed or was rejected.
    pub error: Option<&'a str>,
    /// Duration.
    pub took: Duration,
    /// Time in a queue before that.
    pub waited: Duration,
    /// Trace context of the request itself. It comes from the sandbox and is untrusted.
    pub trace: Option<&'a TraceContext>,
    /// Status of an HTTP response.
    pub status: Option<u16>,
    /// Rows of a statement.
    pub rows: Option<u64>,
    /// Bytes sent by the sandbox.
    pub bytes_out: Option<u64>,
    /// Bytes received by the sandbox.
    pub bytes_in: Option<u64>,
}

impl<'a> GatewayEvent<'a> {
    /// Creates an action without further details.
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

/// Records actions under one grant of one sandbox. It never blocks: records that do not fit are
/// counted as lost.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Returns the form of recorded statements. With `None`, no text needs to be built.
    fn statements(&self) -> AuditStatements;

    /// Returns whether trace contexts are requested.
    fn is_traced(&self) -> bool {
        false
    }

    /// Accepts a record. Copies the fields that are stored, and texts up to the stored length.
    fn saw(&self, happening: &GatewayEvent<'_>);
}

/// Access of a sandbox to a database.
#[derive(Clone, Debug)]
pub struct DatabaseGuest {
    /// Holder of the grant.
    pub holder: GrantHolder,
    /// Protocol of its clients.
    pub engine: TenantEngine,
    /// Grant.
    pub grant: DatabaseGrant,
    /// Limits, all of them set; 0 means no limit.
    pub limits: DatabaseGrantLimits,
    /// Sink of its audit records.
    pub audit: Arc<dyn AuditSink>,
    /// Blocks outgoing traffic after the server's lease has ended.
    pub fence: EffectFence,
}

/// Data that clients in a sandbox need to reach a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Name of the database to request.
    pub database: String,
    /// Name of the user to log in as.
    pub user: String,
}

/// Database that could be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDatabase {
    /// Protocol of its clients.
    pub engine: TenantEngine,
    /// Name of the bouncer's tenant.
    pub tenant: String,
    /// Roles that a grant may name, in order.
    pub roles: Vec<String>,
}

/// Backend of databases: the bouncer.
pub trait DatabaseBackends: Send + Sync + fmt::Debug {
    /// Returns the available databases, by name: at most `databases_max`, with at most `roles_max`
    /// roles each.
    fn known(&self, databases_max: usize, roles_max: usize) -> Vec<KnownDatabase>;

    /// Returns whether this grant is possible, as far as known at present.
    ///
    /// # Errors
    /// The invalid field of the grant: a tenant that does not exist, or has another engine.
    fn check(
        &self,
        engine: TenantEngine,
        grant: &DatabaseGrant,
    ) -> Result<DatabaseFacts, FieldError>;

    /// Opens access to a database. Dropping the last copy of the result revokes it: its connections
    /// receive an error in their protocol, and are closed.
    ///
    /// # Errors
    /// If the grant has become impossible since it was checked.
    fn open(&self, guest: DatabaseGuest) -> Result<Arc<dyn DatabaseDoor>, String>;
}

/// A slot among connections that have not logged in.
#[derive(Debug)]
pub struct LoginPlace {
    pub(crate) _permits: [OwnedSemaphorePermit; 3],
}

/// Access of one sandbox to a database.
///
/// The socket identifies the sandbox, so credentials in a login are neither required nor checked:
/// any password is accepted, none is requested. MySQL clients may send any user name:
/// `pymysql.connect()` reads no variable but takes the name of the operating system's user.
pub trait DatabaseDoor: Send + Sync + fmt::Debug {
    /// Takes an accepted connection, without blocking. A connection beyond the guest's
    /// `limits.connections` is rejected in its protocol. `place` is released at the end of its
    /// login, or of the connection.
    fn admit(&self, stream: std::net::TcpStream, place: LoginPlace);

    /// The sandbox is paused: server connections without an open transaction are released.
    fn rest(&self);

    /// Ends running work of former owners of the guest's session, in bounded time and before its
    /// first connection is accepted. Errors are logged.
    fn end_former(&self) -> Boxed<'static, ()> {
        Box::pin(async {})
    }
}

/// Access of a sandbox to a warehouse.
#[derive(Clone, Debug)]
pub struct CatalogGuest {
    /// Holder of the grant.
    pub holder: GrantHolder,
    /// Grant.
    pub grant: CatalogGrant,
    /// Sink of its audit records.
    pub audit: Arc<dyn AuditSink>,
    /// Blocks outgoing traffic after the server's lease has ended.
    pub fence: EffectFence,
}

/// Backend of warehouses: the catalog.
pub trait CatalogBackends: Send + Sync + fmt::Debug {
    /// Returns the names of the existing warehouses, in order: at most `warehouses_max`.
    fn known(&self, warehouses_max: usize) -> Vec<String>;

    /// Returns whether this grant is possible.
    ///
    /// # Errors
    /// The invalid field of the grant.
    fn check(&self, grant: &CatalogGrant) -> Result<(), FieldError>;

    /// Opens access to a warehouse.
    ///
    /// # Errors
    /// If the grant has become impossible since it was checked.
    fn open(&self, guest: CatalogGuest) -> Result<Arc<dyn StreamDoor>, String>;
}

/// Access of a sandbox to the model.
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
    /// Returns whether this grant is possible.
    ///
    /// # Errors
    /// The invalid field of the grant.
    fn check(&self, grant: &ModelGrant) -> Result<(), FieldError>;

    /// Opens access to the model.
    ///
    /// # Errors
    /// If the grant has become impossible since it was checked.
    fn open(&self, guest: ModelGuest) -> Result<Arc<dyn StreamDoor>, String>;
}

/// HTTP access of one sandbox, served on the runtime.
pub trait StreamDoor: Send + Sync + fmt::Debug {
    /// Serves one connection to its end. Dropping the future must end it, so no part of it may run
    /// in tasks of its own.
    fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()>;

    /// Most concurrent connections; the gateway rejects more. 0 means no limit.
    fn connections_max(&self) -> usize;
}
