//! Interface between services with sandboxes and the service that serves the sockets inside them.
//!
//! A service with a sandbox has its list of grants, and can listen inside. The gateway, which
//! serves the sockets, knows the meaning of the grants. Neither depends on the other.
//!
//! ```ignore
//! let opening = gateway.resolve(&holder, &grants)?;      // what is wrong is found out here
//! program.env.extend(opening.environment().clone());
//! let mut listeners = Vec::new();
//! for port in opening.ports() { listeners.push(sandbox.listen(*port).await?); }
//! let gate = opening.open(listeners);                    // served until it is dropped
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, Grant, GrantDescription, GrantQuery, GrantQueryResult};
use bytes::Bytes;
use tokio::net::TcpListener;

use crate::auth::TokenPrincipal;
use crate::http;
use crate::task::Boxed;

/// Holder of a grant: the owner of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantHolder {
    /// The session or execution: `ses_…`, `exe_…`.
    pub id: Arc<str>,
    /// Tenant of the holder.
    pub tenant: Arc<str>,
    /// Epoch of a session, which counts its owners; none of what has one owner for ever.
    pub epoch: Option<u64>,
}

impl GrantHolder {
    /// Creates a holder that has no epoch.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, tenant: impl Into<Arc<str>>) -> GrantHolder {
        GrantHolder { id: id.into(), tenant: tenant.into(), epoch: None }
    }

    /// Returns the holder at an epoch.
    #[must_use]
    pub fn at_epoch(self, epoch: Option<u64>) -> GrantHolder {
        GrantHolder { epoch, ..self }
    }

    /// Returns whether it may move to another server, or outlast this one: a session.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.epoch.is_some()
    }
}

/// Serves the sockets inside sandboxes.
pub trait GrantGateway: Send + Sync + fmt::Debug {
    /// Returns whether somebody may give these grants to a sandbox of his own.
    ///
    /// # Errors
    /// 403 with the grant that is not his to give.
    fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), http::HttpError>;

    /// Finds out what the grants of one sandbox mean: every tenant, warehouse, role and rule is
    /// looked up. Does not wait for anything.
    ///
    /// # Errors
    /// 400 with the field of a grant that cannot be given: `grants[1].tenant`.
    fn resolve(
        &self,
        holder: &GrantHolder,
        grants: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError>;
}

/// Grants that can be given. [`Any`], because a gate takes only those of its own gateway.
pub trait GrantOpening: Any + Send + fmt::Debug {
    /// Ports of the loopback inside on which the server has to listen, in the order in which the
    /// listeners are expected.
    fn ports(&self) -> &[u16];

    /// Returns what clients inside look for in their environment: `PGHOST`, `HTTP_PROXY`. No secret
    /// is in it, and nothing that differs from one sandbox with the same grants to another.
    fn environment(&self) -> &BTreeMap<String, String>;

    /// Serves the sockets, in the order of the ports.
    fn open(self: Box<Self>, listeners: Vec<TcpListener>) -> Box<dyn GrantGate>;
}

/// The sockets of one sandbox, served until this is dropped. That ends their connections.
pub trait GrantGate: Send + Sync + fmt::Debug {
    /// Ports on which has to be listened before these grants can hold. One that something else is
    /// served on is not among them, because its listener is used again.
    fn missing(&self, grants: &[Grant]) -> Vec<u16>;

    /// Takes back what is not among these grants: its listeners are closed, its connections are
    /// told and ended.
    fn retain(&self, grants: &[Grant]);

    /// Serves those of these grants that are new, whose listeners come in the order of
    /// [`GrantGate::missing`]'s ports. The opening is one of the same gateway, of the grants that
    /// [`GrantGate::missing`] and then [`GrantGate::retain`] were told.
    fn add(&self, opening: Box<dyn GrantOpening>, listeners: Vec<TcpListener>);

    /// The sandbox rests: connections outside that it does not need meanwhile are given back.
    fn rest(&self);

    /// Opens a way to read what is behind one of the grants that are served, as a program inside
    /// reads it: by the same door, within the same limits, and on the same audit.
    ///
    /// # Errors
    /// 400 when the grant is not one of data, 409 when it is not served.
    fn reader(&self, grant: &Grant) -> Result<Box<dyn GrantReader>, http::HttpError> {
        let message = format!("`{}` is not served here", grant.label());
        Err(http::HttpError::new(ErrorCode::Conflict, message))
    }
}

/// A way to read what is behind a grant, for the holder's own tenant. Dropping one of its futures
/// ends what was begun at the other end; so does taking the grant back.
pub trait GrantReader: Send + fmt::Debug {
    /// Runs one statement, which can change nothing. `inside` is the sandbox of the holder, where
    /// statements run that no server behind the grant runs.
    ///
    /// # Errors
    /// 400 with what the database says of the statement, or the limit that ended it; 409 when the
    /// grant was taken back, or the sandbox has not what the statement needs; 429 when the grant
    /// has too many of them; 503 when the database cannot be reached.
    fn query(
        self: Box<Self>,
        query: GrantQuery,
        inside: Box<dyn HolderSandbox>,
    ) -> Boxed<'static, Result<GrantQueryResult, http::HttpError>>;

    /// Returns what is there: all, or one object by its name.
    ///
    /// # Errors
    /// As above; 404 when there is nothing of this name.
    fn describe(
        self: Box<Self>,
        name: Option<String>,
    ) -> Boxed<'static, Result<GrantDescription, http::HttpError>>;
}

/// The sandbox of a grant's holder, as a reader of the grant uses it: for a program that has the
/// rights of the holder's other programs, and no more.
pub trait HolderSandbox: Send + Sync + fmt::Debug {
    /// Listens on a free port of the sandbox's loopback, which only its programs reach.
    ///
    /// # Errors
    /// When the sandbox is gone.
    fn listen(&self) -> Boxed<'_, Result<TcpListener, http::HttpError>>;

    /// Starts a program with the environment that the holder's programs have. Dropping what is
    /// returned kills it.
    ///
    /// # Errors
    /// When the sandbox is gone.
    fn start(
        &self,
        program: HolderProgram,
    ) -> Boxed<'_, Result<Box<dyn HolderProcess>, http::HttpError>>;
}

/// Program that a reader runs in a holder's sandbox.
#[derive(Clone, Debug)]
pub struct HolderProgram {
    /// Program and arguments; the program is looked for in `PATH`.
    pub argv: Vec<String>,
    /// Variables beside those that the holder's programs have.
    pub env: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: String,
    /// Time after which it is killed.
    pub time_max: Duration,
}

/// Program of a reader that runs.
pub trait HolderProcess: Send + fmt::Debug {
    /// Returns what happens next; none after [`HolderOutput::Ended`].
    fn next(&mut self) -> Boxed<'_, Option<HolderOutput>>;
}

/// Event of a reader's program. All of it comes from code that is not trusted.
#[derive(Clone, Debug)]
pub enum HolderOutput {
    /// Bytes of its standard output.
    Stdout(Bytes),
    /// Bytes of its standard error.
    Stderr(Bytes),
    /// End of the program.
    Ended(HolderExit),
}

/// End of a reader's program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderExit {
    /// Exit code; 126 and 127 when it could not be started, as a shell has it.
    pub code: Option<i32>,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
    /// True if it was killed after its time.
    pub timed_out: bool,
}
