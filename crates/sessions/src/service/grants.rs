//! Grants of sessions for callers: grants of a deployed agent, and reads of a grant's target.

use std::fmt;
use std::sync::Arc;

use api::{DeployRequest, ErrorCode, Grant, GrantDescription, GrantQuery, GrantQueryResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::gateway::GrantReader;
use node::http::HttpError;

use super::entry::SandboxUse;
use super::exec::SessionCommands;
use super::gates::GrantGates;
use super::lifecycle::SessionLifecycle;
use super::programs::SessionPrograms;
use crate::error::SessionError;

/// File in an agent's folder that lists the grants of its sessions.
const GRANTS_FILE: &str = "grants.json";

/// Returns the grants to deploy an agent with: those of the request, otherwise those of its folder.
///
/// # Errors
/// If the folder's file is not a list of grants.
pub(crate) fn deployed_grants(request: &DeployRequest) -> Result<Vec<Grant>, SessionError> {
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
    let grants = decoded
        .and_then(|content| serde_json::from_slice(&content).map_err(|error| error.to_string()));
    grants.map_err(|error| {
        SessionError::invalid("files", format!("{GRANTS_FILE} is not a list of grants: {error}"))
    })
}

/// Readers of the resources behind grants of sessions.
pub struct GrantReaders {
    lifecycle: Arc<SessionLifecycle>,
    gates: Arc<GrantGates>,
    commands: Arc<SessionCommands>,
}

impl fmt::Debug for GrantReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantReaders").finish_non_exhaustive()
    }
}

impl GrantReaders {
    pub(super) fn new(
        lifecycle: Arc<SessionLifecycle>,
        gates: Arc<GrantGates>,
        commands: Arc<SessionCommands>,
    ) -> GrantReaders {
        GrantReaders { lifecycle, gates, commands }
    }

    /// Runs one read-only statement over a grant of a session.
    ///
    /// # Errors
    /// If the session is not active or has no such grant, or the reader fails.
    pub async fn query(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
        query: GrantQuery,
    ) -> Result<GrantQueryResult, SessionError> {
        let (reader, at_work) = self.reader(tenant, id, name).await?;
        // Connects spans of the grant's door to this request.
        let _bound = node::traces::current().and_then(|scope| scope.bind(&at_work.entry.id));
        let inside = SessionPrograms::new(&self.commands, &at_work);
        Ok(reader.query(query, Box::new(inside)).await?)
    }

    /// Describes the resource behind a grant of a session, or one object in it.
    ///
    /// # Errors
    /// See [`GrantReaders::query`].
    pub async fn describe(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
        object: Option<String>,
    ) -> Result<GrantDescription, SessionError> {
        let (reader, at_work) = self.reader(tenant, id, name).await?;
        let _bound = node::traces::current().and_then(|scope| scope.bind(&at_work.entry.id));
        Ok(reader.describe(object).await?)
    }

    /// Returns a reader of a grant, and a guard that keeps the sandbox at work.
    async fn reader(
        &self,
        tenant: &str,
        id: &str,
        name: &str,
    ) -> Result<(Box<dyn GrantReader>, SandboxUse), SessionError> {
        let at_work = self.lifecycle.active(tenant, id).await?;
        let grant = named(&at_work.entry.state.lock().row.grants, name)?;
        self.gates.open(&at_work.entry, &at_work.body).await?;
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

/// Finds a grant by its label (`postgres:shop`) or its port in the sandbox.
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
