//! Interface between services with sandboxes and the one that serves the sockets inside them.
//!
//! A service with a sandbox knows what its grants are, and can listen inside. Whoever serves the
//! sockets (the gateway) knows what the grants mean. Neither knows the other: they meet here.
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

use api::Grant;
use tokio::net::TcpListener;

use crate::auth::TokenPrincipal;
use crate::http;

/// Holder of a grant: the owner of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantHolder {
    /// The session or execution: `ses_…`, `exe_…`.
    pub id: Arc<str>,
    /// Tenant of the holder.
    pub tenant: Arc<str>,
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
}
