//! Access of a session's sandbox: grants, and the gate that serves their sockets.
//!
//! The gate of a sandbox is opened before the first program of its session starts there, and is
//! closed with the sandbox. Grants can change meanwhile; a revoked one ends at once.

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
    /// Serves the sockets; without it nothing can be granted.
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

    /// Returns what these grants mean for a sandbox; nothing where there are none.
    pub(super) fn opening(
        &self,
        id: &str,
        tenant: &str,
        grants: &[Grant],
    ) -> Result<Option<Box<dyn GrantOpening>>, SessionError> {
        self.opening_of(GrantHolder::new(id, tenant), grants)
    }

    /// The same for the sandbox of a session, with the epoch by which others tell its owners apart.
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

    /// Puts what clients of the grants look for into an environment, below all else but what every
    /// program has.
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

    /// Opens the sockets of grants in a sandbox that no session has. Answers what its programs look
    /// for in their environment.
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

    /// Sees to it that the sockets of a session's grants are there, before a program of it starts.
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
            // Not before: who has changed them meanwhile had the slot.
            let grants = entry.state.lock().row.grants.clone();
            if let Some(opening) = self.opening_at_epoch(entry, &grants)? {
                let listeners = listeners(body, opening.ports()).await?;
                *slot = Some(opening.open(listeners));
            }
        }
        Ok(())
    }

    /// Makes everything ready for other grants to hold in a sandbox that is there: only what
    /// cannot fail is left. Nobody else changes them until that is done.
    pub(super) async fn prepare<'a>(
        &self,
        entry: &SessionEntry,
        body: &'a SessionSandbox,
        grants: &[Grant],
    ) -> Result<GateChange<'a>, SessionError> {
        let slot = body.gate.lock().await;
        let opening = match body.sandbox() {
            Ok(_) => self.opening_at_epoch(entry, grants)?,
            // It has just ended: there is nothing to give, and all to take back.
            Err(_) => None,
        };
        let ports = match (slot.as_ref(), &opening) {
            (Some(gate), Some(_)) => gate.missing(grants),
            (None, Some(opening)) => opening.ports().to_vec(),
            (_, None) => Vec::new(),
        };
        // The relay's port comes last, after all that may fail while the relay is still needed.
        let (others, of_relay): (Vec<u16>, Vec<u16>) =
            ports.iter().partition(|port| **port != MODEL_PORT);
        let mut made = listeners(body, &others).await?;
        if has_model(grants) {
            // The grant is the way to the model from now on, and the only one.
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

    /// Lets a sandbox that came while its session's grants were changed have those that hold now.
    pub(super) async fn follow(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let grants = entry.state.lock().row.grants.clone();
        match self.prepare(entry, body, &grants).await {
            Ok(change) => change.make(&grants),
            Err(error) => {
                // Nothing is better than what was taken back; the next program tries again.
                drop(body.gate.lock().await.take());
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Other grants for a sandbox, whose sockets are there already.
pub(super) struct GateChange<'a> {
    slot: MutexGuard<'a, Option<Box<dyn GrantGate>>>,
    opening: Option<Box<dyn GrantOpening>>,
    listeners: Vec<TcpListener>,
}

impl GateChange<'_> {
    /// Takes back what is not among the grants any more, and gives what is new.
    pub(super) fn make(mut self, grants: &[Grant]) {
        match (self.slot.as_ref(), self.opening) {
            (Some(gate), Some(opening)) => {
                gate.retain(grants);
                gate.add(opening, self.listeners);
            }
            (Some(gate), None) => {
                // Written down as taken back, which the end of a sandbox is not.
                gate.retain(&[]);
                *self.slot = None;
            }
            (None, Some(opening)) => *self.slot = Some(opening.open(self.listeners)),
            (None, None) => {}
        }
    }
}

/// Returns whether the model is among what is granted. Then the agent has no way of its own to it,
/// which would know nothing of what the grant allows.
pub(super) fn has_model(grants: &[Grant]) -> bool {
    grants.iter().any(|grant| matches!(grant, Grant::Model(_)))
}

/// Listens in a sandbox.
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
