//! Interface between services with sandboxes and the service that serves the sockets inside them.
//!
//! A service with a sandbox stores its list of grants, and can listen inside. The gateway, which
//! serves the sockets, interprets the grants. Neither depends on the other.
//!
//! ```ignore
//! let opening = gateway.resolve(&holder, &grants)?;      // reports invalid grants
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
    /// Epoch of a session, which counts its owners; none for a holder with a permanent owner.
    pub epoch: Option<u64>,
}

impl GrantHolder {
    /// Creates a holder without an epoch.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, tenant: impl Into<Arc<str>>) -> GrantHolder {
        GrantHolder { id: id.into(), tenant: tenant.into(), epoch: None }
    }

    /// Returns the holder at an epoch.
    #[must_use]
    pub fn at_epoch(self, epoch: Option<u64>) -> GrantHolder {
        GrantHolder { epoch, ..self }
    }

    /// Returns whether it may move to another server, or outlast this one: true for a session.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.epoch.is_some()
    }
}

/// Serves the sockets inside sandboxes.
pub trait GrantGateway: Send + Sync + fmt::Debug {
    /// Checks that the principal may give these grants to a sandbox of its own.
    ///
    /// # Errors
    /// 403 with the grant that the principal may not give.
    fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), http::HttpError>;

    /// Resolves the grants of one sandbox: every tenant, warehouse, role and rule is looked up.
    /// Does not wait.
    ///
    /// # Errors
    /// 400 with the field of an invalid grant: `grants[1].tenant`.
    fn resolve(
        &self,
        holder: &GrantHolder,
        grants: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError>;
}

/// Resolved grants. [`Any`], because a gate takes only those of its own gateway.
pub trait GrantOpening: Any + Send + fmt::Debug {
    /// Returns the loopback ports inside on which the server has to listen, in the order in which
    /// [`GrantOpening::open`] expects the listeners.
    fn ports(&self) -> &[u16];

    /// Returns the environment variables for clients inside: `PGHOST`, `HTTP_PROXY`. They contain
    /// no secret, and are the same for all sandboxes with the same grants.
    fn environment(&self) -> &BTreeMap<String, String>;

    /// Serves the sockets, in the order of the ports.
    fn open(self: Box<Self>, listeners: Vec<TcpListener>) -> Box<dyn GrantGate>;
}

/// The sockets of one sandbox, served until this value is dropped, which ends their connections.
pub trait GrantGate: Send + Sync + fmt::Debug {
    /// Returns the ports that need a listener before these grants can take effect. A port that is
    /// already in use is not among them, because its listener is reused.
    fn missing(&self, grants: &[Grant]) -> Vec<u16>;

    /// Revokes all other grants: their listeners are closed, their connections are notified and
    /// ended.
    fn retain(&self, grants: &[Grant]);

    /// Serves the new ones among these grants, whose listeners are in the order of
    /// [`GrantGate::missing`]'s ports. The opening must be of the same gateway, for the grants that
    /// were passed to [`GrantGate::missing`] and then to [`GrantGate::retain`].
    fn add(&self, opening: Box<dyn GrantOpening>, listeners: Vec<TcpListener>);

    /// Releases external connections that the sandbox does not need while it is idle.
    fn rest(&self);

    /// Opens a reader for the data behind one of the served grants. It reads as a program inside
    /// does: by the same door, within the same limits, and with the same audit.
    ///
    /// # Errors
    /// 400 if the grant is not one of data, 409 if it is not served.
    fn reader(&self, grant: &Grant) -> Result<Box<dyn GrantReader>, http::HttpError> {
        let message = format!("`{}` is not served here", grant.label());
        Err(http::HttpError::new(ErrorCode::Conflict, message))
    }
}

/// A reader of the data behind a grant, for the holder's own tenant. Dropping one of its futures
/// cancels the operation at the other end; so does revoking the grant.
pub trait GrantReader: Send + fmt::Debug {
    /// Runs one read-only statement. `inside` is the sandbox of the holder, which runs statements
    /// that no server behind the grant runs.
    ///
    /// # Errors
    /// 400 with the database's error, or the limit that ended the statement; 409 if the grant was
    /// revoked, or the sandbox lacks what the statement needs; 429 if the grant has too many
    /// statements; 503 if the database cannot be reached.
    fn query(
        self: Box<Self>,
        query: GrantQuery,
        inside: Box<dyn HolderSandbox>,
    ) -> Boxed<'static, Result<GrantQueryResult, http::HttpError>>;

    /// Describes all objects, or the one with this name.
    ///
    /// # Errors
    /// As above; 404 if there is no object of this name.
    fn describe(
        self: Box<Self>,
        name: Option<String>,
    ) -> Boxed<'static, Result<GrantDescription, http::HttpError>>;
}

/// The sandbox of a grant's holder, as used by a reader of the grant: for a program that has the
/// rights of the holder's other programs, and no more.
pub trait HolderSandbox: Send + Sync + fmt::Debug {
    /// Listens on a free port of the sandbox's loopback, which only its programs reach.
    ///
    /// # Errors
    /// If the sandbox has ended.
    fn listen(&self) -> Boxed<'_, Result<TcpListener, http::HttpError>>;

    /// Starts a program with the environment of the holder's programs. Dropping the returned value
    /// kills it.
    ///
    /// # Errors
    /// If the sandbox has ended.
    fn start(
        &self,
        program: HolderProgram,
    ) -> Boxed<'_, Result<Box<dyn HolderProcess>, http::HttpError>>;
}

/// Program that a reader runs in a holder's sandbox.
#[derive(Clone, Debug)]
pub struct HolderProgram {
    /// Program and arguments; the program is searched in `PATH`.
    pub argv: Vec<String>,
    /// Variables in addition to those of the holder's programs.
    pub env: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: String,
    /// Time after which it is killed.
    pub time_max: Duration,
}

/// Running program of a reader.
pub trait HolderProcess: Send + fmt::Debug {
    /// Returns the next event; none after [`HolderOutput::Ended`].
    fn next(&mut self) -> Boxed<'_, Option<HolderOutput>>;
}

/// Event of a reader's program. Its content comes from untrusted code.
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
    /// Exit code; 126 or 127 if it could not be started, as in a shell.
    pub code: Option<i32>,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
    /// True if it was killed after its time.
    pub timed_out: bool,
}
