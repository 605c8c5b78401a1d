//! Requirements of sessions on this machine and its configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use executions::{ExecutionService, ExecutionTemplate, TemplateSource};
use node::auth::TokenRegistry;
use node::cluster::NodeMembership;
use node::data_dir::DataDir;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::GrantGateway;
use node::http::HttpError;
use node::objects::ObjectStore;
use node::sealed::Sealer;
use node::store::{SqlStore, StoreUrl};
use node::task::Boxed;
use node::telemetry::Registry;
use sandbox::{AttachedLayer, Engine, Toolchain};
use sessions::Sessions;
use sessions::service::{HandoverTerms, ReadyNodes, SessionParts};

use crate::config::{self, CoveConfig, Environment};
use crate::storage::objects;

/// Name of Claude's program.
const CLAUDE: &str = "claude";
/// Directory of host programs that sandboxes mount unchanged.
const HOST_PROGRAMS: &str = "/usr";

/// Settings that are resolved before the engine starts.
pub(crate) struct SessionsSettings {
    objects: ObjectStore,
    sealer: Sealer,
    model_key: Option<String>,
    claude: Option<ClaudeProgram>,
    is_shared: bool,
    data_dir: PathBuf,
    is_root: bool,
}

/// Parts of the server that sessions use.
pub(crate) struct SessionNeighbours {
    pub(crate) store: SqlStore,
    pub(crate) gateway: Arc<dyn GrantGateway>,
    pub(crate) tokens: TokenRegistry,
    pub(crate) membership: NodeMembership,
    /// Executions, which start from session templates.
    pub(crate) executions: ExecutionService,
    /// Blocks outgoing effects of sandboxes after the server's lease has ended.
    pub(crate) fence: EffectFence,
    /// Scheduler of tenants.
    pub(crate) turns: FairScheduler,
}

/// Templates of sessions, for executions.
#[derive(Debug)]
struct SessionTemplates(Sessions);

impl TemplateSource for SessionTemplates {
    fn find<'a>(
        &'a self,
        tenant: &'a str,
        reference: &'a str,
    ) -> Boxed<'a, Result<ExecutionTemplate, HttpError>> {
        Box::pin(async move {
            let template = self.0.templates()?.select(tenant, reference).await?;
            Ok(ExecutionTemplate {
                reference: reference.to_owned(),
                build: template.build,
                layers: template.layers,
                env: template.env,
                workdir: template.workdir,
            })
        })
    }

    fn attach<'a>(
        &'a self,
        tenant: &'a str,
        template: &'a ExecutionTemplate,
    ) -> Boxed<'a, Result<Vec<Arc<AttachedLayer>>, HttpError>> {
        Box::pin(async move {
            let templates = self.0.templates()?;
            Ok(templates.layers(tenant, &template.build, &template.layers).await?)
        })
    }
}

/// Nodes that keep sandboxes ready: those where the agent's sessions are placed.
#[derive(Debug)]
struct ReadyMembers(NodeMembership);

impl ReadyNodes for ReadyMembers {
    fn is_ready_here(&self, agent: &str) -> bool {
        self.0.is_ready_for(agent)
    }

    fn all(&self) -> Vec<String> {
        self.0.session_nodes()
    }
}

/// Claude's program in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaudeProgram {
    /// Toolchain that sandboxes mount for it.
    pub(crate) toolchain: Option<Toolchain>,
    /// Path in sandboxes.
    pub(crate) path: String,
}

impl SessionsSettings {
    /// Resolves the configuration's references.
    pub(crate) fn new(
        config: &CoveConfig,
        environment: &Environment,
        data_dir: &DataDir,
        store: &StoreUrl,
    ) -> Result<SessionsSettings> {
        let objects = objects::open(config, environment, data_dir.path())?;
        Ok(SessionsSettings {
            objects: objects.with_removals(data_dir.removals().clone()),
            sealer: objects::sealer(config, environment, data_dir.path())?,
            model_key: model_key(config, environment)?,
            claude: claude_program(config, environment)?,
            is_shared: match store {
                StoreUrl::Sqlite(_) => false,
                StoreUrl::Postgres(_) => true,
            },
            data_dir: data_dir.path().to_owned(),
            is_root: environment.is_root,
        })
    }

    /// Returns the sealer of secrets.
    pub(crate) const fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Returns the toolchain that sandboxes must mount for sessions.
    pub(crate) fn toolchain(&self) -> Option<Toolchain> {
        self.claude.as_ref()?.toolchain.clone()
    }

    /// Starts sessions, or makes every operation report why they are unavailable. From then on,
    /// executions can start from templates.
    pub(crate) async fn start(
        self,
        config: &CoveConfig,
        engine: Engine,
        neighbours: SessionNeighbours,
        registry: &mut Registry,
    ) -> Result<Sessions> {
        let executions = neighbours.executions.clone();
        let sessions = self.begin(config, engine, neighbours, registry).await?;
        executions.set_templates(Arc::new(SessionTemplates(sessions.clone())));
        Ok(sessions)
    }

    async fn begin(
        self,
        config: &CoveConfig,
        engine: Engine,
        neighbours: SessionNeighbours,
        registry: &mut Registry,
    ) -> Result<Sessions> {
        if !self.is_root {
            return Ok(Sessions::unavailable("the server must be started as root"));
        }
        if config.sessions.resident_max == 0 {
            return Ok(Sessions::unavailable("sessions.resident_max is 0"));
        }
        let SessionNeighbours { store, gateway, tokens, membership, executions, fence, turns } =
            neighbours;
        let parts = SessionParts {
            config: config.sessions.clone(),
            engine,
            store,
            objects: self.objects,
            sealer: self.sealer,
            data_dir: self.data_dir,
            fence,
            ready_nodes: Some(Arc::new(ReadyMembers(membership.clone()))),
            membership,
            model_key: self.model_key,
            claude: self.claude.map(|claude| claude.path),
            is_shared: self.is_shared,
            has_own_objects: config.objects.url.is_none(),
            handover: HandoverTerms {
                has_shared_objects: self.is_shared && config.objects.url.is_some(),
                terminals: config.cluster.drain_terminals_s,
            },
            gateway: Some(gateway),
            tokens: Some(tokens),
            turns,
            tracer: executions.tracer().cloned(),
        };
        Sessions::start(parts, registry).await.context("failed to start sessions")
    }
}

/// Returns the key of the model's endpoint.
pub(crate) fn model_key(
    config: &CoveConfig,
    environment: &Environment,
) -> Result<Option<String>, config::CoveConfigError> {
    let text = config.sessions.model.api_key.as_ref();
    text.map(|text| config::resolve("sessions.model.api_key", text, environment)).transpose()
}

/// Returns Claude's program, from the configuration or the search path.
pub(crate) fn claude_program(
    config: &CoveConfig,
    environment: &Environment,
) -> Result<Option<ClaudeProgram>> {
    claude(config.sessions.claude.as_deref(), environment.get("PATH").unwrap_or_default())
}

/// Finds Claude's program: in the given directory, or on the search path.
fn claude(directory: Option<&str>, path: &str) -> Result<Option<ClaudeProgram>> {
    if let Some(directory) = directory {
        let program = Path::new(directory).join(CLAUDE);
        if !is_program(&program) {
            bail!("sessions.claude: there is no program `{}`", program.display());
        }
        return in_sandbox(&program).map(Some);
    }
    let found = std::env::split_paths(path).map(|it| it.join(CLAUDE)).find(|it| is_program(it));
    found.map(|program| in_sandbox(&program)).transpose()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Returns the path of a host program in a sandbox, and the toolchain to mount for it.
fn in_sandbox(program: &Path) -> Result<ClaudeProgram> {
    let real = fs::canonicalize(program)
        .with_context(|| format!("failed to look for `{}`", program.display()))?;
    if real.starts_with(HOST_PROGRAMS) {
        return Ok(ClaudeProgram { toolchain: None, path: real.display().to_string() });
    }
    let (Some(directory), Some(name)) = (real.parent(), real.file_name()) else {
        bail!("`{}` is no program", program.display());
    };
    let toolchain = Toolchain { source: directory.to_owned(), name: CLAUDE.to_owned() };
    let path = format!("/opt/{CLAUDE}/{}", name.to_string_lossy());
    Ok(ClaudeProgram { toolchain: Some(toolchain), path })
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    #[test]
    fn claude_is_found_where_it_is_named_or_on_the_path() {
        let scratch = Scratch::new();
        let directory = scratch.path().display().to_string();
        assert_eq!(claude(None, &directory).unwrap(), None);
        assert!(claude(Some(&directory), "").is_err());
        let program = scratch.file(CLAUDE, "#!/bin/sh\n");
        assert_eq!(claude(None, &directory).unwrap(), None, "it cannot be executed");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let found = claude(None, &format!("/nowhere:{directory}")).unwrap().unwrap();
        assert_eq!(found.path, "/opt/claude/claude");
        assert_eq!(found.toolchain.unwrap().name, "claude");
        assert!(claude(Some(&directory), "").unwrap().is_some());
    }
}
