//! Access of a session's sandbox: grants, and the gate that serves their sockets.
//!
//! The gate of a sandbox opens before the session's first program starts there, and closes with the
//! sandbox. Grants can change meanwhile; a revoked grant ends at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Grant;
use node::gateway::{GrantGate, GrantGateway, GrantHolder, GrantOpening};
use tokio::net::TcpListener;
use tokio::sync::MutexGuard;

use super::entry::{SessionEntry, SessionSandbox};
use super::environment::LaunchEnvironment;
use crate::agent::MODEL_PORT;
use crate::error::SessionError;

/// Gates of sandboxes.
pub(crate) struct GrantGates {
    /// Serves the sockets; none if the server has no gateway.
    gateway: Option<Arc<dyn GrantGateway>>,
}

impl GrantGates {
    pub(super) fn new(gateway: Option<Arc<dyn GrantGateway>>) -> GrantGates {
        GrantGates { gateway }
    }

    pub(super) fn gateway(&self) -> Result<&Arc<dyn GrantGateway>, SessionError> {
        let none = || SessionError::invalid("grants", "this server has no gateway to give them");
        self.gateway.as_ref().ok_or_else(none)
    }

    /// Resolves grants for a sandbox; none if there are no grants.
    pub(super) fn opening(
        &self,
        id: &str,
        tenant: &str,
        grants: &[Grant],
    ) -> Result<Option<Box<dyn GrantOpening>>, SessionError> {
        self.opening_of(GrantHolder::new(id, tenant), grants)
    }

    /// Like `opening`, with the session's epoch, by which servers distinguish its owners.
    fn opening_at_epoch(
        &self,
        entry: &SessionEntry,
        grants: &[Grant],
    ) -> Result<Option<Box<dyn GrantOpening>>, SessionError> {
        let holder = GrantHolder::new(&*entry.id, &*entry.tenant);
        let epoch = entry.state.lock().row.epoch;
        self.opening_of(holder.at_epoch(Some(epoch)), grants)
    }

    fn opening_of(
        &self,
        holder: GrantHolder,
        grants: &[Grant],
    ) -> Result<Option<Box<dyn GrantOpening>>, SessionError> {
        if grants.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.gateway()?.resolve(&holder, grants)?))
    }

    /// Adds the variables for clients of the grants to an environment. Only the variables of every
    /// program have lower precedence.
    pub(super) fn add_grants(
        &self,
        id: &str,
        tenant: &str,
        grants: &[Grant],
        launch: &mut LaunchEnvironment,
    ) -> Result<(), SessionError> {
        if let Some(opening) = self.opening(id, tenant, grants)? {
            let environment = opening.environment();
            launch.env.extend(environment.iter().map(|(name, it)| (name.clone(), it.clone())));
        }
        Ok(())
    }

    /// Opens the sockets of grants in a sandbox without a session. Returns the variables for its
    /// programs.
    pub(super) async fn open_grants(
        &self,
        holder: &str,
        tenant: &str,
        grants: &[Grant],
        body: &SessionSandbox,
    ) -> Result<BTreeMap<String, String>, SessionError> {
        let Some(opening) = self.opening(holder, tenant, grants)? else {
            return Ok(BTreeMap::new());
        };
        let environment = opening.environment().clone();
        let listeners = listeners(body, opening.ports()).await?;
        *body.gate.lock().await = Some(opening.open(listeners));
        Ok(environment)
    }

    /// Opens the sockets of a session's grants, if they are not open yet, before a program starts.
    pub(super) async fn open(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        if entry.state.lock().row.grants.is_empty() {
            return Ok(());
        }
        let mut slot = body.gate.lock().await;
        if slot.is_none() {
            // Read under the lock, because a concurrent change of grants holds it.
            let grants = entry.state.lock().row.grants.clone();
            if let Some(opening) = self.opening_at_epoch(entry, &grants)? {
                let listeners = listeners(body, opening.ports()).await?;
                *slot = Some(opening.open(listeners));
            }
        }
        Ok(())
    }

    /// Prepares a change of grants in a live sandbox, so that only infallible steps remain. No
    /// other change is made until the result is applied or dropped.
    pub(super) async fn prepare<'a>(
        &self,
        entry: &SessionEntry,
        body: &'a SessionSandbox,
        grants: &[Grant],
    ) -> Result<GateChange<'a>, SessionError> {
        let slot = body.gate.lock().await;
        let opening = match body.sandbox() {
            Ok(_) => self.opening_at_epoch(entry, grants)?,
            // The sandbox has just ended: nothing is granted, and everything is revoked.
            Err(_) => None,
        };
        let ports = match (slot.as_ref(), &opening) {
            (Some(gate), Some(_)) => gate.missing(grants),
            (None, Some(opening)) => opening.ports().to_vec(),
            (_, None) => Vec::new(),
        };
        // The relay's port comes last, after every step that may fail while the relay is still
        // needed.
        let (others, of_relay): (Vec<u16>, Vec<u16>) =
            ports.iter().partition(|port| **port != MODEL_PORT);
        let mut made = listeners(body, &others).await?;
        if has_model(grants) {
            // From now on the grant provides the only access to the model.
            let relay = body.relay.lock().take();
            if let Some(relay) = relay {
                relay.end().await;
            }
        }
        let last = listeners(body, &of_relay).await?;
        if let Some(at) = ports.iter().position(|port| *port == MODEL_PORT) {
            made.splice(at..at, last);
        }
        Ok(GateChange { slot, opening, listeners: made })
    }

    /// Applies the session's current grants to a sandbox that was created during a change of
    /// grants.
    pub(super) async fn follow(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let grants = entry.state.lock().row.grants.clone();
        match self.prepare(entry, body, &grants).await {
            Ok(change) => change.make(&grants),
            Err(error) => {
                // No sockets are better than revoked ones; the next program start tries again.
                drop(body.gate.lock().await.take());
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A prepared change of grants, with its sockets.
pub(super) struct GateChange<'a> {
    slot: MutexGuard<'a, Option<Box<dyn GrantGate>>>,
    opening: Option<Box<dyn GrantOpening>>,
    listeners: Vec<TcpListener>,
}

impl GateChange<'_> {
    /// Revokes grants that are no longer listed, and adds new ones.
    pub(super) fn make(mut self, grants: &[Grant]) {
        match (self.slot.as_ref(), self.opening) {
            (Some(gate), Some(opening)) => {
                gate.retain(grants);
                gate.add(opening, self.listeners);
            }
            (Some(gate), None) => {
                // Recorded as a revocation, unlike the end of a sandbox.
                gate.retain(&[]);
                *self.slot = None;
            }
            (None, Some(opening)) => *self.slot = Some(opening.open(self.listeners)),
            (None, None) => {}
        }
    }
}

/// Returns whether a model grant is present. If so, the agent gets no relay, which would ignore the
/// grant's limits.
pub(super) fn has_model(grants: &[Grant]) -> bool {
    grants.iter().any(|grant| matches!(grant, Grant::Model(_)))
}

/// Opens listeners in a sandbox.
async fn listeners(body: &SessionSandbox, ports: &[u16]) -> Result<Vec<TcpListener>, SessionError> {
    let sandbox = body.sandbox()?;
    let mut listeners = Vec::with_capacity(ports.len());
    for port in ports {
        let listener = sandbox.listen(*port).await;
        listeners.push(listener.map_err(|error| {
            let message = format!("port {port} of the sandbox cannot be listened on: {error}");
            SessionError::Conflict(message)
        })?);
    }
    Ok(listeners)
}
