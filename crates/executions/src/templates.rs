//! Templates of executions: their owners, and the initial files of sandboxes.
//!
//! Sessions own the definition and the layers of templates; executions access them through
//! [`TemplateSource`]. A template belongs to a tenant of sessions, which several tokens may share,
//! while an execution belongs to a token. So the caller that knows the token adds the tenant to the
//! name before it passes the request on ([`TemplateCell::authorize`]); without a tenant, no
//! template is used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use api::{ErrorCode, ExecutionRequest};
use node::auth::{TokenPrincipal, TokenScope};
use node::http;
use node::task::Boxed;
use sandbox::{AttachedLayer, SandboxLayers};

use crate::error::RequestRefusal;

/// The field of a request that names a template.
const FIELD: &str = "template";
/// Separates a reference from its tenant; references do not contain it.
const OF: char = '@';
/// Maximum number of characters of a reference in messages.
const SHOWN_MAX: usize = 200;
/// Separates directories in `PATH`.
const PATH_SEPARATOR: char = ':';
/// Variable with the directories of programs.
const PATH: &str = "PATH";

/// Provider of templates.
pub trait TemplateSource: Send + Sync + fmt::Debug {
    /// Finds the build of a tenant that `reference` (`name`, `name:tag`, an id) refers to.
    ///
    /// # Errors
    /// 404 if it does not exist, 409 if it is not ready, 503 with the reason if this server has no
    /// templates.
    fn find<'a>(
        &'a self,
        tenant: &'a str,
        reference: &'a str,
    ) -> Boxed<'a, Result<ExecutionTemplate, http::HttpError>>;

    /// Attaches the layers of a build, the newest first. They stay attached while one of them is
    /// held, even if the template is deleted.
    ///
    /// # Errors
    /// 404 if the template was deleted since it was found.
    fn attach<'a>(
        &'a self,
        tenant: &'a str,
        template: &'a ExecutionTemplate,
    ) -> Boxed<'a, Result<Vec<Arc<AttachedLayer>>, http::HttpError>>;
}

/// A build that an execution starts from.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExecutionTemplate {
    /// Reference by which it was found.
    pub reference: String,
    /// Id of the build.
    pub build: String,
    /// Ids of its layers, the oldest first.
    pub layers: Vec<String>,
    /// Environment of the programs.
    pub env: BTreeMap<String, String>,
    /// Absolute path of the working directory of programs.
    pub workdir: Option<String>,
}

impl fmt::Debug for ExecutionTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment contains secrets.
        f.debug_struct("ExecutionTemplate").field("build", &self.build).finish_non_exhaustive()
    }
}

impl ExecutionTemplate {
    /// Adds its environment to `env`, where the request's own values take precedence. In `PATH`,
    /// its directories precede those of `usual`.
    pub(crate) fn extend(&self, env: &mut BTreeMap<String, String>, usual: &str) {
        for (name, value) in &self.env {
            let value = match name.as_str() {
                PATH => joined(value, usual),
                _ => value.clone(),
            };
            env.entry(name.clone()).or_insert(value);
        }
    }
}

/// Returns the directories of `first`, then those of `second` that are not in it.
fn joined(first: &str, second: &str) -> String {
    let mut all: Vec<&str> = first.split(PATH_SEPARATOR).collect();
    for directory in second.split(PATH_SEPARATOR) {
        if !all.contains(&directory) {
            all.push(directory);
        }
    }
    all.join(&PATH_SEPARATOR.to_string())
}

/// The source of templates, once it is set.
#[derive(Debug, Default)]
pub(crate) struct TemplateCell(OnceLock<Arc<dyn TemplateSource>>);

impl TemplateCell {
    /// Sets the source, unless one is set already.
    pub(crate) fn set(&self, source: Arc<dyn TemplateSource>) {
        let _there_is_one = self.0.set(source);
    }

    fn get(&self) -> Result<&Arc<dyn TemplateSource>, RequestRefusal> {
        let none = || {
            let message = "templates are kept by a server with sessions, and none is here";
            RequestRefusal::invalid(FIELD, message)
        };
        self.0.get().ok_or_else(none)
    }

    /// Records the tenant of the template in the request.
    ///
    /// # Errors
    /// If the token may not use templates of sessions.
    pub(crate) fn authorize(
        &self,
        who: &TokenPrincipal,
        request: &mut ExecutionRequest,
    ) -> Result<(), RequestRefusal> {
        let Some(reference) = &request.template else { return Ok(()) };
        who.require(TokenScope::Sessions).map_err(refusal)?;
        if reference.is_empty() || reference.contains(OF) {
            let message = "must be `name`, `name:tag` or the id of a template";
            return Err(RequestRefusal::invalid(FIELD, message));
        }
        request.template = Some(format!("{reference}{OF}{}", who.tenant));
        Ok(())
    }

    /// Takes the template out of a request and finds it. `None` if the request names none.
    ///
    /// # Errors
    /// If it does not exist, is not ready, or no tenant was recorded.
    pub(crate) async fn take(
        &self,
        request: &mut ExecutionRequest,
    ) -> Result<Option<OwnedTemplate>, RequestRefusal> {
        let Some(owned) = request.template.take() else { return Ok(None) };
        let source = Arc::clone(self.get()?);
        let Some((reference, tenant)) = owned.split_once(OF) else {
            let message = "the job was not submitted by a token that may use it";
            return Err(RequestRefusal::new(ErrorCode::Forbidden, FIELD, message));
        };
        let found =
            source.find(tenant, reference).await.map_err(|error| named(error, reference))?;
        Ok(Some(OwnedTemplate { source, tenant: tenant.to_owned(), template: found }))
    }
}

/// Returns whether a refusal means that the template has changed and the request cannot run any
/// more.
pub(crate) fn is_gone(refusal: &RequestRefusal) -> bool {
    refusal.field == FIELD && matches!(refusal.code, ErrorCode::NotFound | ErrorCode::Conflict)
}

/// Returns the refusal of a request that conflicts with its template.
pub(crate) fn in_the_way(what: String) -> RequestRefusal {
    let message = format!("has something else in the way: {what}");
    RequestRefusal::new(ErrorCode::Conflict, FIELD, message)
}

/// Converts a refusal of a source into an error of the request.
fn refusal(error: http::HttpError) -> RequestRefusal {
    let detail = error.detail();
    RequestRefusal::new(detail.code, FIELD, detail.message.clone())
}

/// Converts a refusal, and adds the reference that was looked up.
fn named(error: http::HttpError, reference: &str) -> RequestRefusal {
    let refusal = refusal(error);
    let excerpt: String = reference.chars().take(SHOWN_MAX).collect();
    match refusal.code {
        ErrorCode::NotFound => {
            let message = format!("unknown template `{excerpt}`; `cove template list` shows them");
            RequestRefusal { message, ..refusal }
        }
        _ => refusal,
    }
}

/// A template found for its tenant.
#[derive(Debug)]
pub(crate) struct OwnedTemplate {
    source: Arc<dyn TemplateSource>,
    tenant: String,
    /// The template.
    pub(crate) template: ExecutionTemplate,
}

impl OwnedTemplate {
    /// Attaches its layers, which stay attached while they are held.
    ///
    /// # Errors
    /// If it was deleted meanwhile.
    pub(crate) async fn attach(&self) -> Result<AttachedTemplate, RequestRefusal> {
        let attached = self.source.attach(&self.tenant, &self.template).await;
        let layers = attached.map_err(|error| named(error, &self.template.reference))?;
        let key = format!(
            "{}\n{}",
            self.template.workdir.as_deref().unwrap_or_default(),
            self.template.layers.join("\n")
        );
        let disk_layers = SandboxLayers { layers, workdir: self.template.workdir.clone() };
        Ok(AttachedTemplate { disk_layers, key })
    }
}

/// A template whose layers are attached.
#[derive(Debug)]
pub(crate) struct AttachedTemplate {
    /// Layers that sandboxes mount below their disk.
    pub(crate) disk_layers: SandboxLayers,
    /// Identifies all of its files.
    pub(crate) key: String,
}

impl Drop for AttachedTemplate {
    fn drop(&mut self) {
        let layers = std::mem::take(&mut self.disk_layers.layers);
        if !layers.is_empty() {
            // Dropping the last holder detaches them, which blocks on the kernel.
            let _ends_by_itself = node::task::blocking(move || drop(layers));
        }
    }
}

#[cfg(test)]
mod tests {
    use node::auth::TokenScopes;

    use super::*;

    #[test]
    fn a_template_is_used_for_the_tenant_of_the_token_alone() {
        let cell = TemplateCell::default();
        let who =
            TokenPrincipal { tenant: "shop".into(), ..TokenPrincipal::without_token("a", "a") };
        let templated = |reference: &str| ExecutionRequest {
            template: Some(reference.to_owned()),
            ..ExecutionRequest::default()
        };
        let mut request = templated("web:v2");
        cell.authorize(&who, &mut request).unwrap();
        assert_eq!(request.template.as_deref(), Some("web:v2@shop"));
        for reference in ["", "web@other", "@", "web:v2@shop"] {
            let refused = cell.authorize(&who, &mut templated(reference)).unwrap_err();
            assert_eq!((refused.code, &*refused.field), (ErrorCode::InvalidRequest, FIELD));
        }
        let narrow =
            TokenPrincipal { scopes: TokenScopes::from_iter([TokenScope::Executions]), ..who };
        let refused = cell.authorize(&narrow, &mut templated("web")).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Forbidden);
        assert!(refused.message.contains("sessions"), "{refused}");
    }

    #[test]
    fn its_environment_is_below_the_requests_and_its_path_before_the_usual_one() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let template = ExecutionTemplate {
            env: of(&[("A", "template"), ("B", "template"), ("PATH", "/mine:/usr/bin")]),
            ..ExecutionTemplate::default()
        };
        let mut env = of(&[("B", "request")]);
        template.extend(&mut env, "/usr/bin:/opt/x/bin");
        let path = "/mine:/usr/bin:/opt/x/bin";
        assert_eq!(env, of(&[("A", "template"), ("B", "request"), ("PATH", path)]));
        let mut env = of(&[("PATH", "/own")]);
        template.extend(&mut env, "/usr/bin");
        assert_eq!(env["PATH"], "/own");
    }
}
