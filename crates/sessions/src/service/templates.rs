//! Templates: the base of sandboxes, in addition to the host's programs.
//!
//! A template is a name for builds; a build is a chain of layers, one for each step that changes
//! files, with an environment, a directory and a start command. Layers are found by the hash of all
//! their inputs, within one tenant: layers of another tenant's steps are not trusted.

use std::fmt;
use std::sync::Arc;

use api::{
    BuildTemplate, SessionLimits, TemplateBuildStatus, TemplateBuildView, TemplateLogList,
    TemplateView,
};
use node::auth;
use node::clock::IdGenerator;
use node::clock::rfc3339_of_ms as time;
use node::current::CurrentSettings;

pub(crate) use self::archives::ArchiveUpload;
use self::archives::TemplateArchives;
use self::build::{LOST_AFTER, RunningBuild, RunningBuilds};
pub(crate) use self::plan::{ArchiveHash, BuildSpec, check_run, check_user};
use self::plan::{TemplateBase, TemplatePlan};
pub use self::selected::SelectedTemplate;
use super::admission::SandboxAdmission;
use super::cluster::ClusterPlace;
use super::detached::detached;
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::limits;
use super::objects::SessionObjects;
use super::shared::SharedParts;
use super::storage::{StorageQuota, StorageRequest};
use super::sweeps::timers::SweepTimers;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::store::rows::{
    SessionTemplate, TemplateBuildDetail, TemplateBuildRow, TemplateRow, TemplateTagRow,
};
use crate::store::{BuildBounds, LayerTable, ReleasedTemplates, SecretStore, TemplateTable};
use crate::workspace::WorkspaceStore;

mod archives;
mod build;
mod log;
pub(crate) mod network;
mod plan;
mod run;
mod selected;

/// Name of the empty template.
pub(crate) const BASE: &str = "base";
/// Tag that a reference without a tag means.
pub(crate) const DEFAULT_TAG: &str = "default";
/// Longest name of a template, and longest tag.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of tags in a request.
const TAGS_MAX: usize = 32;
/// Number of untagged builds kept of a template.
const BUILDS_KEPT: usize = 20;
/// Maximum number of listed builds of a template.
const BUILDS_LISTED: usize = 200;
/// Lines per page of a log.
pub(crate) const LOG_PAGE: usize = 100;
/// Version and variant bits of a random UUID (RFC 9562 §5.4).
const UUID_VERSION: u8 = 0x40;
const UUID_VARIANT: u8 = 0x80;

/// A build, with its template's name and tags.
#[derive(Clone, Debug)]
pub(crate) struct NamedBuild {
    pub(crate) template: TemplateRow,
    pub(crate) tags: Vec<TemplateTagRow>,
    pub(crate) build: Option<TemplateBuildRow>,
    pub(crate) builds: u64,
}

/// Templates of tenants, with their builds.
pub struct TemplateService {
    config: CurrentSettings<SessionsConfig>,
    table: TemplateTable,
    archives: TemplateArchives,
    layers: LayerTable,
    objects: SessionObjects,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
    cluster: Arc<ClusterPlace>,
    workspaces: WorkspaceStore,
    storage: Arc<StorageQuota>,
    sweeps: Arc<SweepTimers>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    gates: Arc<GrantGates>,
    /// True if other servers share the store.
    is_shared: bool,
    /// Builds running on this server.
    running: RunningBuilds,
}

impl fmt::Debug for TemplateService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemplateService").finish_non_exhaustive()
    }
}

impl TemplateService {
    pub(super) fn new(
        shared: &SharedParts,
        admission: Arc<SandboxAdmission>,
        sandboxes: Arc<SandboxFactory>,
        gates: Arc<GrantGates>,
        is_shared: bool,
    ) -> Arc<TemplateService> {
        Arc::new(TemplateService {
            config: shared.config.clone(),
            table: shared.store.templates.clone(),
            archives: TemplateArchives::new(shared),
            layers: shared.store.layers.clone(),
            objects: shared.objects.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
            cluster: Arc::clone(&shared.cluster),
            workspaces: shared.workspaces.clone(),
            storage: Arc::clone(&shared.storage),
            sweeps: Arc::clone(&shared.sweeps),
            admission,
            sandboxes,
            gates,
            is_shared,
            running: RunningBuilds::default(),
        })
    }

    /// Returns the archives that steps copy from.
    pub(crate) fn archives(&self) -> &TemplateArchives {
        &self.archives
    }

    /// Builds a template. Returns once the build has begun, or is done because every layer exists.
    ///
    /// # Errors
    /// If the request is invalid; `NotFound` for its base template; `TooMany`.
    pub async fn build_template(
        self: &Arc<Self>,
        tenant: &str,
        request: BuildTemplate,
    ) -> Result<TemplateBuildView, SessionError> {
        let service = Arc::clone(self);
        let tenant = tenant.to_owned();
        detached(async move {
            let (name, mut tags) = name_and_tags(&request.name, &request.tags)?;
            let spec = BuildSpec { request, ..BuildSpec::default() };
            // Rejects an invalid request before a row exists.
            service.plan_build(&tenant, &spec).await?;
            tags.dedup();
            let announced = service.announce_build(&tenant, &name, tags, None).await?;
            let (_, build) = announced;
            service.start_build(&tenant, build, &spec).await.map(|row| view(&row))
        })
        .await
    }

    /// Announces a build whose steps follow later.
    pub(crate) async fn announce(
        &self,
        tenant: &str,
        name: &str,
        tags: &[String],
        memory_bytes: Option<u64>,
    ) -> Result<(TemplateRow, TemplateBuildRow), SessionError> {
        let (name, tags) = name_and_tags(name, tags)?;
        let own = SessionLimits { memory_bytes, ..SessionLimits::default() };
        limits::limits(&self.config.now(), &own, &own)?;
        self.announce_build(tenant, &name, tags, memory_bytes).await
    }

    /// Starts an announced build with its steps.
    pub(crate) async fn start(
        self: &Arc<Self>,
        tenant: &str,
        build: &str,
        spec: BuildSpec,
    ) -> Result<(), SessionError> {
        let service = Arc::clone(self);
        let (tenant, build) = (tenant.to_owned(), build.to_owned());
        detached(async move {
            let row = service.table.build(&tenant, &build).await?;
            let row = row.ok_or(SessionError::NotFound("build"))?;
            service.start_build(&tenant, row, &spec).await.map(drop)
        })
        .await
    }

    /// Waits until a build has ended.
    ///
    /// # Errors
    /// If there is no such template or build.
    pub async fn wait(
        &self,
        tenant: &str,
        name: &str,
        build: &str,
    ) -> Result<TemplateBuildView, SessionError> {
        let row = self.build_of(tenant, name, build).await?;
        let running = self.running.lock().get(&row.id).cloned();
        if let Some(running) = running {
            running.over().await;
        }
        self.build(tenant, name, build).await
    }

    /// Returns a template.
    ///
    /// # Errors
    /// If there is no template with this name or id.
    pub async fn get(&self, tenant: &str, name: &str) -> Result<TemplateView, SessionError> {
        Ok(shown(self.named_build(tenant, name).await?))
    }

    /// Returns a template with its newest build.
    pub(crate) async fn named_build(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<NamedBuild, SessionError> {
        let row = self.row(tenant, name).await?;
        self.named(row).await
    }

    /// Returns the templates of a tenant, by name.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, tenant: &str) -> Result<Vec<TemplateView>, SessionError> {
        Ok(self.named_builds(tenant).await?.into_iter().map(shown).collect())
    }

    /// Returns the templates of a tenant, each with its newest build.
    pub(crate) async fn named_builds(&self, tenant: &str) -> Result<Vec<NamedBuild>, SessionError> {
        let mut all = Vec::new();
        for row in self.table.list(tenant).await? {
            all.push(self.named(row).await?);
        }
        Ok(all)
    }

    /// Returns the builds of a template, newest first.
    ///
    /// # Errors
    /// If there is no such template.
    pub async fn builds(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Vec<TemplateBuildView>, SessionError> {
        let template = self.row(tenant, name).await?;
        let rows = self.table.builds(&template.id, BUILDS_LISTED).await?;
        Ok(rows.into_iter().map(|row| view(&self.current(row))).collect())
    }

    /// Returns a build of a template, by its id or a tag.
    ///
    /// # Errors
    /// If there is no such template or build.
    pub async fn build(
        &self,
        tenant: &str,
        name: &str,
        build: &str,
    ) -> Result<TemplateBuildView, SessionError> {
        Ok(view(&self.build_of(tenant, name, build).await?))
    }

    /// Returns lines of a build's log from an index on, with the build's state before they were
    /// read: if that is final, no further lines follow.
    ///
    /// # Errors
    /// If there is no such template or build.
    pub async fn log(
        &self,
        tenant: &str,
        name: &str,
        build: &str,
        from: u64,
    ) -> Result<TemplateLogList, SessionError> {
        let row = self.build_of(tenant, name, build).await?;
        let running = self.running.lock().get(&row.id).cloned();
        let lines = match running {
            Some(running) => running.log.lines(from, LOG_PAGE),
            None => {
                let stored = self.table.build_log(&row.id).await?.unwrap_or_default();
                log::stored_lines(&stored, from, LOG_PAGE)
            }
        };
        Ok(TemplateLogList { lines, status: row.status })
    }

    /// Waits until a build has more than `lines` lines, has ended, or some time has passed.
    pub(crate) async fn log_grows(&self, build: &str, lines: u64) {
        /// Polling interval for the log of a build at another server.
        const ELSEWHERE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
        let running = self.running.lock().get(build).cloned();
        let Some(running) = running else {
            tokio::time::sleep(ELSEWHERE_EVERY).await;
            return;
        };
        let mut count = running.log.count();
        tokio::select! {
            _ = count.wait_for(|count| *count > lines) => {}
            () = running.over() => {}
        }
    }

    /// Deletes a template with its builds and cancels a running one. Sessions that started from it
    /// keep their files.
    ///
    /// # Errors
    /// If there is no template with this name or id.
    pub async fn delete(&self, tenant: &str, name: &str) -> Result<(), SessionError> {
        let released = self.table.delete(tenant, name).await?;
        let released = released.ok_or(SessionError::NotFound("template"))?;
        self.let_go_of(released).await;
        Ok(())
    }

    /// Adds tags to a build.
    ///
    /// # Errors
    /// If there is no such template or build, the build is not ready, or a tag is invalid.
    pub async fn tag(
        &self,
        tenant: &str,
        name: &str,
        build: &str,
        tags: &[String],
    ) -> Result<TemplateBuildView, SessionError> {
        check_tags(tags)?;
        let row = self.build_of(tenant, name, build).await?;
        if row.status != TemplateBuildStatus::Ready {
            let message = format!("the build is `{}`, not `ready`", row.status.as_str());
            return Err(SessionError::Conflict(message));
        }
        self.table.tag(&row, tags.to_vec(), self.table.now_ms()).await?;
        Ok(view(&row))
    }

    /// Removes tags.
    ///
    /// # Errors
    /// If there is no such template, or it has none of the tags.
    pub async fn untag(
        &self,
        tenant: &str,
        name: &str,
        tags: &[String],
    ) -> Result<(), SessionError> {
        check_tags(tags)?;
        let row = self.row(tenant, name).await?;
        match self.table.untag(&row.id, tags.to_vec()).await? {
            0 => Err(SessionError::NotFound("tag")),
            _ => Ok(()),
        }
    }
}

impl TemplateService {
    async fn announce_build(
        &self,
        tenant: &str,
        name: &str,
        tags: Vec<String>,
        memory_bytes: Option<u64>,
    ) -> Result<(TemplateRow, TemplateBuildRow), SessionError> {
        self.storage.check(tenant, StorageRequest::default()).await?;
        let now_ms = self.table.now_ms();
        let template = TemplateRow {
            id: self.ids.next("tpl_"),
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            created_ms: now_ms,
            updated_ms: now_ms,
        };
        let mut build = TemplateBuildRow {
            id: new_uuid()?,
            template: template.id.clone(),
            tenant: tenant.to_owned(),
            status: TemplateBuildStatus::Waiting,
            detail: TemplateBuildDetail { tags, memory_bytes, ..TemplateBuildDetail::default() },
            chain: Vec::new(),
            env: None,
            owner: None,
            created_ms: now_ms,
            updated_ms: now_ms,
            finished_ms: None,
        };
        let bounds = BuildBounds {
            templates_max: self.config.now().templates.count_max_per_tenant,
            kept_max: BUILDS_KEPT,
        };
        let announced = self.table.announce(template, build.clone(), bounds).await?;
        let (template, released) = announced;
        self.let_go_of(released).await;
        build.template.clone_from(&template.id);
        Ok((template, build))
    }

    /// Cancels deleted builds, and removes layers that have become unused.
    async fn let_go_of(&self, released: ReleasedTemplates) {
        for build in &released.builds {
            let running = self.running.lock().get(build).cloned();
            if let Some(running) = running {
                running.cancel();
            }
        }
        for layer in &released.layers {
            self.workspaces.remove_layer(layer).await;
        }
        // Layers that sessions still use are removed later.
        self.sweeps.layers();
    }

    async fn plan_build(
        &self,
        tenant: &str,
        spec: &BuildSpec,
    ) -> Result<(TemplatePlan, Vec<String>), SessionError> {
        let base = match spec.request.from.as_deref() {
            None | Some(BASE) => TemplateBase::default(),
            Some(name) => self.base(tenant, name).await?,
        };
        let chain = base.chain.clone();
        Ok((plan::plan(spec, base, &host().await)?, chain))
    }

    async fn base(&self, tenant: &str, name: &str) -> Result<TemplateBase, SessionError> {
        let found = self.to_use(tenant, name).await;
        let (_, row) = found.map_err(|error| match error {
            SessionError::NotFound(_) => {
                let message = format!("there is no template `{}`", shown_name(name));
                SessionError::invalid("from", message)
            }
            other => other,
        })?;
        Ok(TemplateBase {
            env: self.secrets.open_env(tenant, &row.id, row.env.as_ref())?,
            key: row.detail.key,
            chain: row.chain,
            workdir: row.detail.workdir,
            commands: (row.detail.start, row.detail.ready),
        })
    }

    async fn start_build(
        self: &Arc<Self>,
        tenant: &str,
        row: TemplateBuildRow,
        spec: &BuildSpec,
    ) -> Result<TemplateBuildRow, SessionError> {
        let (plan, chain) = self.plan_build(tenant, spec).await?;
        let now_ms = self.table.now_ms();
        let row = TemplateBuildRow {
            status: TemplateBuildStatus::Building,
            detail: TemplateBuildDetail {
                env_names: plan.env.keys().cloned().collect(),
                workdir: plan.workdir.clone(),
                start: plan.start.clone(),
                ready: plan.ready.clone(),
                key: plan.key.clone(),
                ..row.detail
            },
            env: self.secrets.seal_env(tenant, &row.id, &plan.env)?,
            chain,
            owner: Some(self.cluster.run().id.clone()),
            updated_ms: now_ms,
            ..row
        };
        let running_max = self.config.now().templates.builds_max_per_tenant;
        let begun = self.table.begin_build(row.clone(), running_max, lost_before(now_ms)).await?;
        if !begun {
            let message = "the build has begun already, or was deleted".to_owned();
            return Err(SessionError::Conflict(message));
        }
        let build = RunningBuild::new(row.clone());
        self.running.lock().insert(row.id.clone(), Arc::clone(&build));
        let done = match self.take_cached(&build, &plan).await {
            Ok(done) => done,
            Err(error) => {
                self.finish_build(&build, &plan, Err((None, error.into()))).await;
                return Ok(build.row.lock().clone());
            }
        };
        if done == plan.steps.len() {
            self.finish_build(&build, &plan, Ok(())).await;
            return Ok(build.row.lock().clone());
        }
        node::task::spawn(Arc::clone(self).run_build(Arc::clone(&build), plan, done));
        Ok(build.row.lock().clone())
    }

    async fn row(&self, tenant: &str, name: &str) -> Result<TemplateRow, SessionError> {
        let found = self.table.find(tenant, name).await?;
        found.ok_or(SessionError::NotFound("template"))
    }

    async fn named(&self, template: TemplateRow) -> Result<NamedBuild, SessionError> {
        let tags = self.table.tags(&template.id).await?;
        let rows = self.table.builds(&template.id, BUILDS_LISTED).await?;
        let builds = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let build = rows.into_iter().next().map(|row| self.current(row));
        Ok(NamedBuild { template, tags, build, builds })
    }

    /// Returns a build of a template, by its id or a tag.
    async fn build_of(
        &self,
        tenant: &str,
        name: &str,
        build: &str,
    ) -> Result<TemplateBuildRow, SessionError> {
        let template = self.row(tenant, name).await?;
        let tags = self.table.tags(&template.id).await?;
        let tag = tags.into_iter().find(|tag| tag.tag == build);
        let id = tag.map_or_else(|| build.to_owned(), |tag| tag.build);
        let row = self.table.build(tenant, &id).await?;
        let row = row.filter(|row| row.template == template.id);
        Ok(self.current(row.ok_or(SessionError::NotFound("build"))?))
    }

    /// Returns the current state of a build: a build running here is newer in memory than in its
    /// row, and a build that runs on no server has failed.
    fn current(&self, row: TemplateBuildRow) -> TemplateBuildRow {
        if let Some(running) = self.running.lock().get(&row.id) {
            return running.row.lock().clone();
        }
        let is_lost = row.status == TemplateBuildStatus::Building
            && row.updated_ms < lost_before(self.table.now_ms());
        if is_lost { build::lost(row) } else { row }
    }

    /// Returns the ready build for a reference (`name`, `name:tag` or an id).
    async fn to_use(
        &self,
        tenant: &str,
        reference: &str,
    ) -> Result<(TemplateRow, TemplateBuildRow), SessionError> {
        let (name, tag) = reference.split_once(':').unwrap_or((reference, DEFAULT_TAG));
        let template = self.row(tenant, name).await?;
        let build = match self.build_of(tenant, &template.id, tag).await {
            Err(SessionError::NotFound(_)) => return Err(SessionError::NotFound("template")),
            other => other?,
        };
        match build.status {
            TemplateBuildStatus::Ready => Ok((template, build)),
            status => Err(SessionError::Conflict(format!(
                "the build of the template is `{}`, not `ready`",
                status.as_str()
            ))),
        }
    }

    /// Returns the base of a new session: layers, environment, and the data that the session
    /// stores.
    pub(super) async fn for_session(
        &self,
        tenant: &str,
        reference: &str,
    ) -> Result<TemplateStart, SessionError> {
        let (_, build) = self.to_use(tenant, reference).await?;
        let env = self.secrets.open_env(tenant, &build.id, build.env.as_ref())?;
        let kept = SessionTemplate {
            name: reference.to_owned(),
            build: build.id,
            workdir: build.detail.workdir,
            start: build.detail.start,
            ready: build.detail.ready,
        };
        Ok(TemplateStart { chain: build.chain, env, memory_bytes: build.detail.memory_bytes, kept })
    }
}

/// Base of a new session.
pub(super) struct TemplateStart {
    pub(super) chain: Vec<String>,
    pub(super) env: std::collections::BTreeMap<String, String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) kept: SessionTemplate,
}

/// Returns the time before which a build's last write means that its server is lost.
fn lost_before(now_ms: u64) -> u64 {
    now_ms.saturating_sub(LOST_AFTER.as_millis().try_into().unwrap_or(u64::MAX))
}

/// Identifies the host's programs: layers are not used over those of another system.
async fn host() -> String {
    /// Describes the system (os-release(5)).
    const OS_RELEASE: &str = "/etc/os-release";
    /// Links whose targets have the versions of interpreters.
    const INTERPRETERS: [&str; 1] = ["/usr/bin/python3"];
    let read = node::task::blocking(|| {
        let mut text = std::fs::read_to_string(OS_RELEASE).unwrap_or_default();
        for link in INTERPRETERS {
            if let Ok(target) = std::fs::read_link(link) {
                text.push_str(&target.to_string_lossy());
            }
        }
        text
    });
    read.await.unwrap_or_default()
}

/// Creates a random UUID.
fn new_uuid() -> Result<String, SessionError> {
    let key = auth::random_key().map_err(SessionError::internal)?;
    let mut bytes = [0; 16];
    for (byte, random) in bytes.iter_mut().zip(key) {
        *byte = random;
    }
    bytes[6] = (bytes[6] & 0x0f) | UUID_VERSION;
    bytes[8] = (bytes[8] & 0x3f) | UUID_VARIANT;
    let mut digits = node::hex::encode(&bytes);
    for at in [20, 16, 12, 8] {
        digits.insert(at, '-');
    }
    Ok(digits)
}

/// Splits `name:tag`, and returns the name and all tags of a build.
fn name_and_tags(name: &str, tags: &[String]) -> Result<(String, Vec<String>), SessionError> {
    let (name, tag) = match name.split_once(':') {
        Some((name, tag)) => (name, Some(tag.to_owned())),
        None => (name, None),
    };
    if !is_name(name) || name == BASE || name.starts_with("tpl_") || name.starts_with("snap_") {
        let message = format!(
            "must be 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`, not `{BASE}`, and not \
             begin as an id does; a tag may follow behind `:`"
        );
        return Err(SessionError::invalid("name", message));
    }
    let mut all: Vec<String> = tag.into_iter().chain(tags.iter().cloned()).collect();
    if all.is_empty() {
        all.push(DEFAULT_TAG.to_owned());
    }
    check_tags(&all)?;
    Ok((name.to_owned(), all))
}

fn check_tags(tags: &[String]) -> Result<(), SessionError> {
    if tags.is_empty() || tags.len() > TAGS_MAX || !tags.iter().all(|tag| is_name(tag)) {
        let message = format!(
            "must be 1 to {TAGS_MAX} tags of 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`"
        );
        return Err(SessionError::invalid("tags", message));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

fn shown_name(name: &str) -> String {
    name.chars().take(NAME_BYTES_MAX).collect()
}

fn view(row: &TemplateBuildRow) -> TemplateBuildView {
    let detail = row.detail.clone();
    TemplateBuildView {
        id: row.id.clone(),
        template: row.template.clone(),
        status: row.status,
        steps: detail.steps,
        failure: detail.failure,
        env: detail.env_names,
        workdir: detail.workdir,
        start: detail.start,
        ready: detail.ready,
        bytes: detail.bytes,
        created_at: time(row.created_ms),
        finished_at: row.finished_ms.map(time),
    }
}

fn shown(named: NamedBuild) -> TemplateView {
    let NamedBuild { template, tags, build, builds } = named;
    TemplateView {
        id: template.id,
        tenant: template.tenant,
        name: template.name,
        tags: tags.into_iter().map(|tag| (tag.tag, tag.build)).collect(),
        build: build.as_ref().map(view),
        builds,
        created_at: time(template.created_ms),
        updated_at: time(template.updated_ms),
    }
}
