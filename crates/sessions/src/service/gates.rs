//! Access of a session's sandbox: grants, and the gate that serves their sockets.
//!
//! The gate of a sandbox is opened before the first program of its session starts there, and goes
//! away with the sandbox. What is granted can change meanwhile; what is taken back ends at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{DeployRequest, ErrorCode, Grant, GrantDescription, GrantQuery, GrantQueryResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::auth::TokenPrincipal;
use node::gateway::{GrantGate, GrantGateway, GrantHolder, GrantOpening, GrantReader};
use node::http::HttpError;
use tokio::net::TcpListener;
use tokio::sync::MutexGuard;

use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::environment::LaunchEnvironment;
use super::programs::SessionPrograms;
use super::{Sessions, SessionsInner};
use crate::agent::MODEL_PORT;
use crate::error::SessionError;

/// File of an agent's folder with the grants of its sessions.
const GRANTS_FILE: &str = "grants.json";

impl Sessions {
    /// Returns whether somebody may give these grants to sandboxes of his own.
    ///
    /// # Errors
    /// The grant that is not his to give, or any when this server has no gateway.
    pub fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), SessionError> {
        if grants.is_empty() {
            return Ok(());
        }
        self.ready()?.gateway()?.authorize(who, grants).map_err(SessionError::from)
    }

    /// Returns whether somebody may give these to a session of an agent: what the agent's sessions
    /// have anyway is everybody's who may use the agent.
    ///
    /// # Errors
    /// As above; when there is no such agent.
    pub async fn authorize_for(
        &self,
        who: &TokenPrincipal,
        agent: Option<&str>,
        grants: &[Grant],
    ) -> Result<(), SessionError> {
        if grants.is_empty() {
            return Ok(());
        }
        let inner = self.ready()?;
        let of_agent = match agent {
            Some(name) => {
                inner.store.agents.find(&who.tenant, name).await?.map(|agent| agent.grants)
            }
            None => None,
        };
        let of_agent = of_agent.unwrap_or_default();
        let beyond: Vec<Grant> =
            grants.iter().filter(|grant| !of_agent.contains(grant)).cloned().collect();
        self.authorize(who, &beyond)
    }

    /// Returns what an agent is deployed with: what the request says, else what its folder does.
    ///
    /// # Errors
    /// When the folder's file is not a list of grants.
    pub fn deployed_grants(request: &DeployRequest) -> Result<Vec<Grant>, SessionError> {
        if let Some(grants) = &request.grants {
            return Ok(grants.clone());
        }
        let Some(file) = request.files.iter().find(|file| file.path == GRANTS_FILE) else {
            return Ok(Vec::new());
        };
        let decoded = match file.base64 {
            true => BASE64.decode(&file.content).map_err(|error| error.to_string()),
            false => Ok(file.content.clone().into_bytes()),
        };
        let grants = decoded.and_then(|content| {
            serde_json::from_slice(&content).map_err(|error| error.to_string())
        });
        grants.map_err(|error| {
            SessionError::invalid("files", format!("{GRANTS_FILE} is no list of grants: {error}"))
        })
    }
}

impl Sessions {
    /// Runs one statement over a grant of a session, to read.
    ///
    /// # Errors
    /// When the session is not active or has no such grant, and what the reader says.
    pub async fn query_grant(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
        query: GrantQuery,
    ) -> Result<GrantQueryResult, SessionError> {
        let (reader, at_work) = self.grant_reader(tenant, id, name).await?;
        // What the grant's door sees is a part of this request.
        let _bound = node::traces::current().and_then(|scope| scope.bind(&at_work.entry.id));
        let inside = SessionPrograms::new(self, &at_work);
        Ok(reader.query(query, Box::new(inside)).await?)
    }

    /// Returns what is behind a grant of a session, or one object there.
    ///
    /// # Errors
    /// As above.
    pub async fn describe_grant(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
        object: Option<String>,
    ) -> Result<GrantDescription, SessionError> {
        let (reader, at_work) = self.grant_reader(tenant, id, name).await?;
        let _bound = node::traces::current().and_then(|scope| scope.bind(&at_work.entry.id));
        Ok(reader.describe(object).await?)
    }

    /// A reader of a grant, and what keeps the sandbox meanwhile.
    async fn grant_reader(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
    ) -> Result<(Box<dyn GrantReader>, SandboxUse), SessionError> {
        let inner = self.ready()?;
        let at_work = inner.active(tenant, id).await?;
        let grant = named(&at_work.entry.state.lock().row.grants, name)?;
        inner.open_gate(&at_work.entry, &at_work.body).await?;
        let slot = at_work.body.gate.lock().await;
        let reader = slot.as_ref().map(|gate| gate.reader(&grant));
        drop(slot);
        match reader {
            Some(reader) => Ok((reader?, at_work)),
            None => {
                let message = "the session's grants are not served at present".to_owned();
                Err(SessionError::Conflict(message))
            }
        }
    }
}

/// Finds a grant by its label (`postgres:shop`) or its port inside.
fn named(grants: &[Grant], name: &str) -> Result<Grant, HttpError> {
    let port = name.parse::<u16>().ok();
    let fits = |grant: &&Grant| match port {
        Some(port) => grant.port() == port,
        None => grant.label() == name,
    };
    let mut found = grants.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(grant), None) => Ok(grant.clone()),
        (None, _) => {
            let shown: String = name.chars().take(100).collect();
            let known: Vec<String> = grants.iter().map(Grant::label).collect();
            let known = match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            };
            let message = format!("the session has no grant `{shown}`; it has {known}");
            Err(HttpError::new(ErrorCode::NotFound, message).at("name"))
        }
        (Some(_), Some(_)) => {
            let same = grants.iter().filter(|grant| grant.label() == name);
            let ports: Vec<String> = same.map(|grant| grant.port().to_string()).collect();
            let message = format!(
                "several grants are called `{name}`: say the port inside, {}",
                ports.join(" or ")
            );
            Err(HttpError::invalid(message).at("name"))
        }
    }
}

impl SessionsInner {
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
    pub(super) async fn open_gate(
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
    pub(super) async fn prepare_gate<'a>(
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
    pub(super) async fn follow_gate(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let grants = entry.state.lock().row.grants.clone();
        match self.prepare_gate(entry, body, &grants).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_found_by_its_label_or_its_port() {
        let grants: Vec<Grant> = [
            r#"{"kind": "postgres", "tenant": "shop"}"#,
            r#"{"kind": "mysql", "tenant": "shop"}"#,
            r#"{"kind": "mysql", "tenant": "shop", "port": 3307}"#,
        ]
        .iter()
        .map(|json| serde_json::from_str(json).unwrap())
        .collect();
        for (name, expected) in [
            ("postgres:shop", Ok(5432)),
            ("5432", Ok(5432)),
            ("3307", Ok(3307)),
            ("mysql:shop", Err(ErrorCode::InvalidRequest)),
            ("postgres:other", Err(ErrorCode::NotFound)),
            ("shop", Err(ErrorCode::NotFound)),
            ("", Err(ErrorCode::NotFound)),
        ] {
            let found = named(&grants, name).map(|grant| grant.port());
            assert_eq!(found.map_err(|error| error.detail().code), expected, "{name}");
        }
    }
}
