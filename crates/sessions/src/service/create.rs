//! New sessions.
//!
//! A session is created when its row is durable and its sandbox is ready; both are done
//! concurrently. A prepared sandbox is used if it is exactly what was requested. When one part
//! fails, the other one is undone: no exit path leaves a sandbox, a disk or a row without an
//! owner.

use std::sync::Arc;
use std::time::Instant;

use api::{AgentOptions, CreateSession, SessionLimits, SessionState};
use node::clock::{self, IdGenerator};
use node::current::CurrentSettings;

use super::admission::SandboxAdmission;
use super::agents::AgentService;
use super::base::SessionBase;
use super::books::{ResidentKey, ResidentLedger};
use super::cluster::ClusterPlace;
use super::credentials::CredentialVault;
use super::directory::SessionDirectory;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::environment::LaunchEnvironment;
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::launch::{ProgramLauncher, SessionSink};
use super::lifecycle::SessionLifecycle;
use super::limits;
use super::logs::LogLevel;
use super::prewarm::{self, ClaimedSandbox, PrewarmPool, SessionOverrides, park_ahead};
use super::requests::CreateExtras;
use super::shared::SharedParts;
use super::start_command;
use super::storage::{StorageQuota, StorageRequest};
use super::templates::TemplateService;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::metrics::{SessionCounters, TimedOperation};
use crate::store::rows::SessionRow;
use crate::store::{SecretStore, SessionStore};

/// First user of a new sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstUse {
    /// None: the sandbox is warm, and may be evicted.
    Nobody,
    /// The caller that requested it.
    Caller,
}

/// Request for a session.
pub(super) struct NewSession {
    tenant: String,
    request: CreateSession,
    extras: CreateExtras,
    began: Instant,
    first_use: FirstUse,
}

impl NewSession {
    pub(super) fn of(
        tenant: &str,
        request: CreateSession,
        extras: CreateExtras,
        first_use: FirstUse,
    ) -> NewSession {
        NewSession { tenant: tenant.to_owned(), request, extras, began: clock::now(), first_use }
    }
}

/// Creates sessions.
pub(crate) struct SessionCreation {
    config: CurrentSettings<SessionsConfig>,
    store: SessionStore,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
    cluster: Arc<ClusterPlace>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    directory: Arc<SessionDirectory>,
    storage: Arc<StorageQuota>,
    lifecycle: Arc<SessionLifecycle>,
    prewarm: Arc<PrewarmPool>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    gates: Arc<GrantGates>,
    launcher: Arc<ProgramLauncher>,
    agents: Arc<AgentService>,
    templates: Arc<TemplateService>,
    credentials: Arc<CredentialVault>,
}

/// Components that SessionCreation uses.
pub(super) struct CreationParts {
    pub(super) lifecycle: Arc<SessionLifecycle>,
    pub(super) prewarm: Arc<PrewarmPool>,
    pub(super) admission: Arc<SandboxAdmission>,
    pub(super) sandboxes: Arc<SandboxFactory>,
    pub(super) gates: Arc<GrantGates>,
    pub(super) launcher: Arc<ProgramLauncher>,
    pub(super) agents: Arc<AgentService>,
    pub(super) templates: Arc<TemplateService>,
    pub(super) credentials: Arc<CredentialVault>,
}

impl SessionCreation {
    pub(super) fn new(shared: &SharedParts, parts: CreationParts) -> Arc<SessionCreation> {
        Arc::new(SessionCreation {
            config: shared.config.clone(),
            store: shared.store.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
            cluster: Arc::clone(&shared.cluster),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            directory: Arc::clone(&shared.directory),
            storage: Arc::clone(&shared.storage),
            lifecycle: parts.lifecycle,
            prewarm: parts.prewarm,
            admission: parts.admission,
            sandboxes: parts.sandboxes,
            gates: parts.gates,
            launcher: parts.launcher,
            agents: parts.agents,
            templates: parts.templates,
            credentials: parts.credentials,
        })
    }

    pub(super) async fn create_new(
        self: &Arc<Self>,
        new: NewSession,
    ) -> Result<(api::SessionView, Option<SandboxUse>), SessionError> {
        limits::check_create(&self.config.now(), &new.request)?;
        let base = self.base(&new.tenant, &new.request, new.extras.id.as_deref()).await?;
        let declared = limits::disk_size(&self.config.now(), &base.limits).bytes;
        self.storage.check(&new.tenant, StorageRequest { stored: 0, declared }).await?;
        let (entry, at_work) = match self.claim_ready(&new, &base) {
            Some(claimed) => self.create_claimed(new, base, claimed).await?,
            None => self.create_fresh(new, base).await?,
        };
        if let Err(error) = self.run_start_command(&entry).await {
            drop(at_work);
            let _transition = entry.transition.lock().await;
            self.lifecycle.finish(&entry, "its start command failed").await?;
            return Err(error);
        }
        Ok((self.directory.view(&entry), at_work))
    }

    /// Runs the start command of a new session's template, and waits until its ready command
    /// succeeds.
    pub(super) async fn run_start_command(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<(), SessionError> {
        if !start_command::has_commands(entry) {
            return Ok(());
        }
        let at_work = SandboxUse::begin(&self.books, entry, clock::now());
        let gone = || SessionError::SandboxEnded("before its start command ran".to_owned());
        let at_work = at_work.ok_or_else(gone)?;
        self.launcher.start_template_in(entry, &at_work.body).await
    }

    /// Installs the sandbox of a new session, and marks it as ready.
    pub(super) fn give_body(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: Arc<SessionSandbox>,
        first_use: FirstUse,
    ) -> Result<Option<SandboxUse>, SessionError> {
        match first_use {
            FirstUse::Caller => self.lifecycle.install_at_work(entry, body).map(Some),
            FirstUse::Nobody => {
                self.lifecycle.install(entry, body);
                self.books.warm(&entry.key, clock::now());
                Ok(None)
            }
        }
    }

    /// Looks up everything that a session is based on.
    pub(super) async fn base(
        &self,
        tenant: &str,
        request: &CreateSession,
        id: Option<&str>,
    ) -> Result<SessionBase, SessionError> {
        let agent = match &request.agent {
            Some(name) => Some(self.agents.to_use(tenant, name).await?),
            None => None,
        };
        let mut chain = Vec::new();
        let mut launch = LaunchEnvironment::bare();
        let of = agent.as_ref().map(|(agent, _)| &agent.grants);
        let grants = request.grants.clone().or_else(|| of.cloned()).unwrap_or_default();
        // No result of this lookup depends on the id.
        self.gates.add_grants(id.unwrap_or_default(), tenant, &grants, &mut launch)?;
        let mut of_agent = (SessionLimits::default(), AgentOptions::default());
        if let Some((agent, version)) = &agent {
            chain.clone_from(&version.chain);
            launch.runtime = version.runtime.clone();
            launch.lazy = agent.settings.lazy;
            launch.env.extend(self.secrets.open_env(
                &agent.tenant,
                &agent.id,
                agent.env.as_ref(),
            )?);
            of_agent = (agent.limits, agent.options.clone());
        }
        let mut template = None;
        if let Some(snapshot) = &request.snapshot {
            let found = self.store.snapshots.find(tenant, snapshot).await?;
            let found = found.ok_or(SessionError::NotFound("snapshot"))?;
            chain = found.chain;
            // Its files are in the state after the template's start command, which must run again.
            if let Some(kept) = found.template.filter(|_| agent.is_none()) {
                let env = self.templates.env_of(tenant, &kept).await?;
                template = Some((kept, env));
            }
        }
        if let Some(name) = &request.template {
            let start = self.templates.for_session(tenant, name).await?;
            chain = start.chain;
            of_agent.0.memory_bytes = start.memory_bytes;
            template = Some((start.kept, start.env));
        }
        if let Some((_, env)) = &template {
            launch.env.extend(env.clone());
        }
        if let Some(credential) = &request.credential {
            self.credentials.add_to(tenant, credential, &mut launch).await?;
        }
        launch.env.extend(request.env.clone());
        Ok(SessionBase {
            agent,
            chain,
            limits: limits::limits(&self.config.now(), &of_agent.0, &request.limits)?,
            options: limits::options(&of_agent.1, &request.options),
            launch,
            grants,
            template,
        })
    }

    /// Claims a matching prepared sandbox.
    fn claim_ready(&self, new: &NewSession, base: &SessionBase) -> Option<ClaimedSandbox> {
        let (agent, version) = base.agent.as_ref()?;
        // The prepared agent may know its session id, which is never a face's own.
        if new.extras.id.is_some() || new.request.snapshot.is_some() {
            return None;
        }
        let has_credential = new.request.credential.is_some();
        let own = SessionOverrides { env: &new.request.env, has_credential };
        self.prewarm.claim(agent, version, base, &own)
    }

    /// Creates a session from a prepared sandbox.
    async fn create_claimed(
        self: &Arc<Self>,
        new: NewSession,
        base: SessionBase,
        claimed: ClaimedSandbox,
    ) -> Result<(Arc<SessionEntry>, Option<SandboxUse>), SessionError> {
        let (began, first_use) = (new.began, new.first_use);
        let ClaimedSandbox { id, body, agent } = claimed;
        let path = if agent.is_some() {
            TimedOperation::CreateAgentReady
        } else {
            TimedOperation::CreateReady
        };
        let key = ResidentKey::Session(id.as_str().into());
        let disk = body.disk().map(|disk| disk.id);
        let inserted = match disk {
            Some(disk) => self.insert(&new, &base, id, disk).await,
            None => Err(SessionError::SandboxEnded("it died before it was used".to_owned())),
        };
        let entry = match inserted {
            Ok(row) => self.directory.enlist(row, base.launch),
            Err(error) => {
                self.books.remove(&key);
                self.sandboxes.discard(&body).await;
                return Err(error);
            }
        };
        let at_work = if let Some((running, requests)) = agent {
            if let Err(error) = self.gates.open(&entry, &body).await {
                entry.lines.lock().push(LogLevel::System, &format!("no grants: {error}"));
            }
            running.handle.adopt(SessionSink::new(&self.launcher, &entry));
            prewarm::tune(&entry, &body, running, requests);
            self.give_body(&entry, body, first_use)?
        } else {
            let at_work = self.give_body(&entry, Arc::clone(&body), first_use)?;
            self.launcher.start_in_background(&entry, &body);
            at_work
        };
        if let Some((agent, _)) = base.agent {
            self.prewarm.replenish(agent);
        }
        self.settle_in(&entry, path, began);
        Ok((entry, at_work))
    }

    /// Creates a session with a new sandbox.
    async fn create_fresh(
        self: &Arc<Self>,
        new: NewSession,
        base: SessionBase,
    ) -> Result<(Arc<SessionEntry>, Option<SandboxUse>), SessionError> {
        let (began, first_use) = (new.began, new.first_use);
        let id = new.extras.id.clone().unwrap_or_else(|| self.ids.next("ses_"));
        let key = ResidentKey::Session(id.as_str().into());
        self.admission.admit(&key, &new.tenant.as_str().into()).await?;
        let made = Box::pin(self.make_fresh(&new, &base, id)).await;
        let (row, body) = match made {
            Ok(made) => made,
            Err(error) => {
                self.books.remove(&key);
                return Err(error);
            }
        };
        let body = Arc::new(body);
        let parks = match &base.agent {
            Some((agent, _)) => agent.settings.park_interpreter,
            None => self.config.now().park_interpreter,
        };
        if parks {
            park_ahead(&body, &base.launch);
        }
        let entry = self.directory.enlist(row, base.launch);
        let at_work = self.give_body(&entry, Arc::clone(&body), first_use)?;
        self.launcher.start_in_background(&entry, &body);
        if let Some((agent, _)) = base.agent {
            self.prewarm.replenish(agent);
        }
        self.settle_in(&entry, TimedOperation::CreateFresh, began);
        Ok((entry, at_work))
    }

    /// Creates the row and the sandbox, or neither.
    async fn make_fresh(
        &self,
        new: &NewSession,
        base: &SessionBase,
        id: String,
    ) -> Result<(SessionRow, SessionSandbox), SessionError> {
        let disk = self.sandboxes.blank_disk(&base.limits).await?;
        let disk_id = disk.id.clone();
        let body = self.sandboxes.make(&new.tenant, disk, &base.chain, &base.limits);
        let row = self.insert(new, base, id.clone(), disk_id);
        match tokio::join!(row, body) {
            (Ok(row), Ok(body)) => Ok((row, body)),
            (Ok(_), Err(error)) => {
                self.store.remove_session(&new.tenant, &id).await?;
                Err(error)
            }
            (Err(error), Ok(body)) => {
                self.sandboxes.discard(&Arc::new(body)).await;
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Writes the row of a new session.
    async fn insert(
        &self,
        new: &NewSession,
        base: &SessionBase,
        id: String,
        disk: String,
    ) -> Result<SessionRow, SessionError> {
        let NewSession { tenant, request, extras, .. } = new;
        let now_ms = self.store.now_ms();
        let settings = base.agent.as_ref().map(|(agent, _)| agent.settings);
        // The session copies the template's environment, since the template may be deleted.
        let of_template = base.template.as_ref().map(|(_, env)| env.clone());
        let mut env = of_template.unwrap_or_default();
        env.extend(request.env.clone());
        let row = SessionRow {
            agent_id: base.agent.as_ref().map(|(agent, _)| agent.id.clone()),
            agent_name: base.agent.as_ref().map(|(agent, _)| agent.name.clone()),
            agent_version: base.agent.as_ref().map(|(_, version)| version.version),
            parent: None,
            face: extras.face.map(str::to_owned),
            created_ms: now_ms,
            options: base.options.clone(),
            limits: base.limits,
            grants: base.grants.clone(),
            template: base.template.as_ref().map(|(kept, _)| kept.clone()),
            metadata: request.metadata.clone(),
            env: self.secrets.seal_env(tenant, &id, &env)?,
            credential: request.credential.clone(),
            on_disconnect: request.on_disconnect,
            idle_s: request.idle_s.or(settings.and_then(|settings| settings.idle_s)),
            on_deadline: extras.on_deadline.into(),
            extra: extras.extra.clone(),
            state: SessionState::Active,
            chain: base.chain.clone(),
            disk: Some(disk),
            disk_server: Some(self.cluster.run().id.clone()),
            manifest: None,
            agent_session: None,
            turns: 0,
            last_seq: 0,
            last_active_ms: now_ms,
            deadline_ms: extras.deadline_ms,
            message: None,
            owner: Some(self.cluster.run().id.clone()),
            epoch: 0,
            seq_start: 0,
            seq_ceiling: 0,
            history_bytes: 0,
            tenant: tenant.clone(),
            id,
        };
        let max = u64::try_from(self.config.now().sessions_max_per_tenant).unwrap_or(u64::MAX);
        self.store.insert_session(row, max).await
    }

    fn settle_in(&self, entry: &Arc<SessionEntry>, path: TimedOperation, began: Instant) {
        self.lifecycle.enter(entry, "created");
        self.metrics.took(path, clock::now().duration_since(began));
    }
}
