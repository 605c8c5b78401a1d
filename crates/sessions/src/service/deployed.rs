//! An agent as it was deployed, for faces that change a part of it.

use api::DeployRequest;

use super::Sessions;
use crate::error::SessionError;

impl Sessions {
    /// Returns what it takes to deploy an agent once more as it is: to be changed by a face, and
    /// not shown to anybody, because the values of its environment are in it.
    ///
    /// # Errors
    /// When there is no such agent.
    pub(crate) async fn deployed(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<DeployRequest, SessionError> {
        let inner = self.ready()?;
        let (agent, version) = inner.agent_to_use(tenant, name).await?;
        let env = inner.secrets.open_env(&agent.tenant, &agent.id, agent.env.as_ref())?;
        Ok(DeployRequest {
            files: self.agent_folder(tenant, name, Some(version.version)).await?,
            env,
            // Its environment is in the agent's, and its files are below a version only.
            template: None,
            runtime: Some(version.runtime),
            name: agent.name,
            description: agent.description,
            limits: agent.limits,
            settings: agent.settings,
            options: agent.options,
            grants: Some(agent.grants),
        })
    }
}
