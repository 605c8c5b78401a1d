//! Rights of callers to give grants to sandboxes.

use std::fmt;
use std::sync::Arc;

use api::Grant;
use node::auth::TokenPrincipal;

use super::gates::GrantGates;
use crate::error::SessionError;
use crate::store::AgentTable;

/// Decides which grants a caller may give, by the rules of the gateway and of agents.
pub struct GrantAuthority {
    gates: Arc<GrantGates>,
    agents: AgentTable,
}

impl fmt::Debug for GrantAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantAuthority").finish_non_exhaustive()
    }
}

impl GrantAuthority {
    pub(super) fn new(gates: Arc<GrantGates>, agents: AgentTable) -> GrantAuthority {
        GrantAuthority { gates, agents }
    }

    /// Checks that a caller may give these grants to its own sandboxes.
    ///
    /// # Errors
    /// The grant that the caller may not give; any grant if this server has no gateway.
    pub fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), SessionError> {
        if grants.is_empty() {
            return Ok(());
        }
        self.gates.gateway()?.authorize(who, grants).map_err(SessionError::from)
    }

    /// Checks that a caller may give these grants to a session of an agent: the agent's own grants
    /// are available to everyone who may use the agent.
    ///
    /// # Errors
    /// See [`GrantAuthority::authorize`]; also if the store cannot be read.
    pub async fn authorize_for(
        &self,
        who: &TokenPrincipal,
        agent: Option<&str>,
        grants: &[Grant],
    ) -> Result<(), SessionError> {
        if grants.is_empty() {
            return Ok(());
        }
        let of_agent = match agent {
            Some(name) => self.agents.find(&who.tenant, name).await?.map(|agent| agent.grants),
            None => None,
        };
        let of_agent = of_agent.unwrap_or_default();
        let beyond: Vec<Grant> =
            grants.iter().filter(|grant| !of_agent.contains(grant)).cloned().collect();
        self.authorize(who, &beyond)
    }
}
