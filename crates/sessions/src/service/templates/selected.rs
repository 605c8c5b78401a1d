//! Templates for sandboxes without a session: executions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sandbox::AttachedLayer;

use super::TemplateService;
use crate::error::SessionError;
use crate::store::rows::SessionTemplate;

/// Parts of a template for a new sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct SelectedTemplate {
    /// Id of the build.
    pub build: String,
    /// Ids of its layers, oldest first.
    pub layers: Vec<String>,
    /// Environment of programs.
    pub env: BTreeMap<String, String>,
    /// Initial directory of programs.
    pub workdir: Option<String>,
}

impl fmt::Debug for SelectedTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the environment, which contains secrets.
        f.debug_struct("SelectedTemplate").field("build", &self.build).finish_non_exhaustive()
    }
}

impl TemplateService {
    /// Returns the template for a reference (`name`, `name:tag` or an id) at this moment.
    ///
    /// # Errors
    /// `NotFound` if the tenant has no such template, `Conflict` if the build is not ready,
    /// `NotHere` if this server has no sessions.
    pub async fn select(
        &self,
        tenant: &str,
        reference: &str,
    ) -> Result<SelectedTemplate, SessionError> {
        if reference == super::BASE {
            let build = super::BASE.to_owned();
            let (layers, env, workdir) = (Vec::new(), BTreeMap::new(), None);
            return Ok(SelectedTemplate { build, layers, env, workdir });
        }
        let start = self.for_session(tenant, reference).await?;
        Ok(SelectedTemplate {
            build: start.kept.build,
            layers: start.chain,
            env: start.env,
            workdir: start.kept.workdir,
        })
    }

    /// Attaches the layers of a build, newest first. They stay available while they are held, even
    /// if the template is deleted.
    ///
    /// # Errors
    /// `NotFound` if the build was deleted.
    pub async fn layers(
        &self,
        tenant: &str,
        build: &str,
        layers: &[String],
    ) -> Result<Vec<Arc<AttachedLayer>>, SessionError> {
        match self.workspaces.recent_layers(layers).await {
            Ok(layers) => Ok(layers),
            Err(error) => Err(self.why_no_layers(tenant, build, error).await),
        }
    }
}

impl TemplateService {
    /// Returns the environment that a session's template adds; empty if the build was deleted.
    pub(crate) async fn env_of(
        &self,
        tenant: &str,
        kept: &SessionTemplate,
    ) -> Result<BTreeMap<String, String>, SessionError> {
        match self.table.build(tenant, &kept.build).await? {
            Some(build) => self.secrets.open_env(tenant, &build.id, build.env.as_ref()),
            None => Ok(BTreeMap::new()),
        }
    }

    /// Reports a missing layer as a missing template if its build was deleted.
    async fn why_no_layers(&self, tenant: &str, build: &str, error: SessionError) -> SessionError {
        match self.table.build(tenant, build).await {
            Ok(None) => SessionError::NotFound("template"),
            Ok(Some(_)) | Err(_) => error,
        }
    }
}
