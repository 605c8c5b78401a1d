//! Agents: folders with versions, built into layers that sessions use.
//!
//! A version is built in a sandbox: its files are written as the sandbox's user, `install.sh` runs
//! as one of its programs, and the resulting disk is frozen. The deployed folder is also kept as an
//! object, for reading it back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{AgentFile, AgentRuntime, AgentUpdate, AgentVersion, AgentView, DeployRequest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use node::clock::rfc3339_of_ms as time;
use node::clock::{self, IdGenerator};
use node::current::CurrentSettings;
use sandbox::{MissingParents, ProcessStreams, SandboxFiles, SessionProgram, WriteMode};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time;

use self::folder::FolderEntry;
use super::admission::SandboxAdmission;
use super::detached::detached;
use super::entry::SessionSandbox;
use super::environment::{LaunchEnvironment, environment};
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::limits;
use super::objects::SessionObjects;
use super::prewarm::{PrewarmPool, READY_MAX};
use super::shared::SharedParts;
use super::storage::{StorageQuota, StorageRequest};
use super::sweeps::timers::SweepTimers;
use super::templates::TemplateService;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::store::rows::{AgentRow, LayerRow, VersionRow};
use crate::store::{AgentTable, LayerTable, SecretStore};
use crate::workspace::WorkspaceStore;

pub(super) mod folder;

/// Maximum number of files in one folder, and of their bytes. The HTTP layer's limit on a body may
/// be lower.
const FILES_MAX: usize = 10_000;
const FILES_BYTES_MAX: usize = 48 << 20;
/// Longest path in a folder, and longest component of one (NAME_MAX).
const PATH_BYTES_MAX: usize = 1024;
const PART_BYTES_MAX: usize = 255;
/// Longest name of an agent, and longest description.
const NAME_BYTES_MAX: usize = 64;
const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Maximum number of arguments of a `command` runtime, and of their bytes.
const ARGV_MAX: usize = 256;
const ARGV_BYTES_MAX: usize = 64 << 10;
/// Bytes of the output of `install.sh` that are kept, from its end.
const INSTALL_OUTPUT_BYTES: usize = 16 << 10;
/// Longest wait for the last output of `install.sh` if its descendants hold it open.
const INSTALL_LAST_WORDS: Duration = Duration::from_secs(1);
/// Script that runs when a version is built.
const INSTALL: &str = "install.sh";
/// File that selects the Claude runtime.
const CLAUDE_MD: &str = "CLAUDE.md";
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

/// A file of a folder, in its stored form.
#[derive(Serialize, Deserialize)]
struct StoredAgentFile {
    path: String,
    #[serde(with = "as_base64")]
    content: Vec<u8>,
    executable: bool,
}

mod as_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64.decode(text).map_err(de::Error::custom)
    }
}

/// Agents of tenants, with their versions.
pub struct AgentService {
    config: CurrentSettings<SessionsConfig>,
    table: AgentTable,
    layers: LayerTable,
    objects: SessionObjects,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
    workspaces: WorkspaceStore,
    storage: Arc<StorageQuota>,
    sweeps: Arc<SweepTimers>,
    templates: Arc<TemplateService>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    gates: Arc<GrantGates>,
    prewarm: Arc<PrewarmPool>,
}

impl fmt::Debug for AgentService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentService").finish_non_exhaustive()
    }
}

/// Components that build versions of agents.
pub(super) struct AgentParts {
    pub(super) templates: Arc<TemplateService>,
    pub(super) admission: Arc<SandboxAdmission>,
    pub(super) sandboxes: Arc<SandboxFactory>,
    pub(super) gates: Arc<GrantGates>,
    pub(super) prewarm: Arc<PrewarmPool>,
}

impl AgentService {
    pub(super) fn new(shared: &SharedParts, parts: AgentParts) -> Arc<AgentService> {
        Arc::new(AgentService {
            config: shared.config.clone(),
            table: shared.store.agents.clone(),
            layers: shared.store.layers.clone(),
            objects: shared.objects.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
            workspaces: shared.workspaces.clone(),
            storage: Arc::clone(&shared.storage),
            sweeps: Arc::clone(&shared.sweeps),
            templates: parts.templates,
            admission: parts.admission,
            sandboxes: parts.sandboxes,
            gates: parts.gates,
            prewarm: parts.prewarm,
        })
    }

    /// Deploys an agent or a new version of it; new sessions use it from then on.
    ///
    /// # Errors
    /// If the request is invalid; `Agent` if `install.sh` fails, with the end of its output;
    /// `Capacity` if there is no room to build it.
    pub async fn deploy(
        self: &Arc<Self>,
        tenant: &str,
        request: DeployRequest,
    ) -> Result<AgentView, SessionError> {
        let service = Arc::clone(self);
        let (files, runtime) = check(&service.config.now(), &request)?;
        let tenant = tenant.to_owned();
        detached(async move {
            let row = Box::pin(service.deploy_version(&tenant, request, files, &runtime)).await?;
            let version = row.active_version;
            service.prewarm.replenish(row.clone());
            service.shown_agent(row, version, runtime)
        })
        .await
    }

    /// Returns an agent.
    ///
    /// # Errors
    /// If there is no agent with this name.
    pub async fn get(&self, tenant: &str, name: &str) -> Result<AgentView, SessionError> {
        let (row, version) = self.to_use(tenant, name).await?;
        self.shown_agent(row, version.version, version.runtime)
    }

    /// Returns the agents of a tenant, by name.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, tenant: &str) -> Result<Vec<AgentView>, SessionError> {
        let mut agents = Vec::new();
        for row in self.table.list(tenant).await? {
            // Deleted since the list was read.
            let Some(version) = self.table.version(&row.id, row.active_version).await? else {
                continue;
            };
            agents.push(self.shown_agent(row, version.version, version.runtime)?);
        }
        Ok(agents)
    }

    /// Changes an agent without a new version. Existing sessions keep their settings, except the
    /// environment, which they receive when they are resumed.
    ///
    /// # Errors
    /// If the request is invalid; `NotFound` if there is no such agent or version.
    pub async fn update(
        &self,
        tenant: &str,
        name: &str,
        update: AgentUpdate,
    ) -> Result<AgentView, SessionError> {
        check_settings(&self.config.now(), &update)?;
        self.gates.opening(name, tenant, update.grants.as_deref().unwrap_or_default())?;
        let id = self.table.find(tenant, name).await?.ok_or(SessionError::NotFound("agent"))?.id;
        let env = match &update.env {
            Some(env) => {
                Some((self.secrets.seal_env(tenant, &id, env)?, env.keys().cloned().collect()))
            }
            None => None,
        };
        let now_ms = clock::wall_ms();
        let row = self.table.update(tenant, name, move |row: &mut AgentRow| {
            if let Some(description) = &update.description {
                row.description = Some(description.clone());
            }
            if let Some((env, names)) = &env {
                row.env.clone_from(env);
                row.env_names = Vec::clone(names);
            }
            row.limits = update.limits.unwrap_or(row.limits);
            row.settings = update.settings.unwrap_or(row.settings);
            if let Some(options) = &update.options {
                row.options = options.clone();
            }
            if let Some(grants) = &update.grants {
                row.grants.clone_from(grants);
            }
            row.active_version = update.version.unwrap_or(row.active_version);
            // Strictly later: prepared sandboxes are matched by it.
            row.updated_ms = now_ms.max(row.updated_ms + 1);
            Ok(())
        });
        let row = row.await?;
        let version = self.table.version(&row.id, row.active_version).await?;
        let version = version.ok_or(SessionError::NotFound("agent version"))?;
        self.prewarm.replenish(row.clone());
        self.shown_agent(row, version.version, version.runtime)
    }

    /// Deletes an agent with its versions. Its sessions keep their files; sessions resumed later
    /// have no agent.
    ///
    /// # Errors
    /// If there is no agent with this name.
    pub async fn delete(&self, tenant: &str, name: &str) -> Result<(), SessionError> {
        let deleted = self.table.delete(tenant, name).await?;
        let (row, folders) = deleted.ok_or(SessionError::NotFound("agent"))?;
        for folder in folders {
            self.objects.remove(&folder).await;
        }
        self.prewarm.replenish(row);
        self.sweeps.layers();
        Ok(())
    }

    /// Deletes a version that is not the active one.
    ///
    /// # Errors
    /// If there is no such agent or version; `Conflict` for the active one.
    pub async fn delete_version(
        &self,
        tenant: &str,
        name: &str,
        version: u32,
    ) -> Result<(), SessionError> {
        let agent = self.table.find(tenant, name).await?.ok_or(SessionError::NotFound("agent"))?;
        let deleted = self.table.delete_version(&agent.id, version).await?;
        let row = deleted.ok_or(SessionError::NotFound("agent version"))?;
        if let Some(folder) = &row.folder {
            self.objects.remove(folder).await;
        }
        self.sweeps.layers();
        Ok(())
    }

    /// Returns the versions of an agent, newest first.
    ///
    /// # Errors
    /// If there is no such agent.
    pub async fn versions(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Vec<AgentVersion>, SessionError> {
        let agent = self.table.find(tenant, name).await?.ok_or(SessionError::NotFound("agent"))?;
        let versions = self.table.versions(&agent.id).await?;
        let version = |row: VersionRow| AgentVersion {
            active: row.version == agent.active_version,
            version: row.version,
            runtime: row.runtime,
            created_at: time(row.created_ms),
            files: row.files,
            bytes: row.bytes,
            install_output: row.install_output,
        };
        Ok(versions.into_iter().map(version).collect())
    }

    /// Returns the files of an agent's folder as they were deployed: of a version, or of the active
    /// one.
    ///
    /// # Errors
    /// If there is no such agent or version.
    pub async fn files(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<Vec<FolderEntry>, SessionError> {
        let row = self.version_of(tenant, name, version).await?;
        serde_json::from_value(row.listing).map_err(SessionError::internal)
    }

    /// Returns a file of an agent's folder.
    ///
    /// # Errors
    /// If there is no such agent, version or file.
    pub async fn file(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
        path: &str,
    ) -> Result<Vec<u8>, SessionError> {
        let files = self.folder(tenant, name, version).await?;
        let file = files.into_iter().find(|file| file.path == path);
        let file = file.ok_or(SessionError::NotFound("file"))?;
        BASE64.decode(file.content).map_err(SessionError::internal)
    }

    /// Returns the whole folder, every file in Base64, in a form that can be deployed again.
    ///
    /// # Errors
    /// If there is no such agent or version.
    pub async fn folder(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<Vec<AgentFile>, SessionError> {
        let row = self.version_of(tenant, name, version).await?;
        let Some(folder) = &row.folder else { return Ok(Vec::new()) };
        let bytes = self.objects.get(folder).await?;
        let bytes = bytes.ok_or(SessionError::NotFound("folder"))?;
        let kept: Vec<StoredAgentFile> =
            serde_json::from_slice(&bytes).map_err(SessionError::internal)?;
        let file = |kept: StoredAgentFile| AgentFile {
            path: kept.path,
            content: BASE64.encode(kept.content),
            base64: true,
            executable: kept.executable,
        };
        Ok(kept.into_iter().map(file).collect())
    }

    /// Returns a request that deploys the agent again unchanged, for a face to modify. It must not
    /// be shown to clients, because it contains the values of the agent's environment.
    ///
    /// # Errors
    /// If there is no such agent.
    pub(crate) async fn deployed(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<DeployRequest, SessionError> {
        let (agent, version) = self.to_use(tenant, name).await?;
        let env = self.secrets.open_env(&agent.tenant, &agent.id, agent.env.as_ref())?;
        Ok(DeployRequest {
            files: self.folder(tenant, name, Some(version.version)).await?,
            env,
            // Its environment is part of the agent's; its files are only in the version's lower
            // layers.
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

impl AgentService {
    /// Returns an agent with its active version.
    pub(super) async fn to_use(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<(AgentRow, VersionRow), SessionError> {
        let row = self.table.find(tenant, name).await?.ok_or(SessionError::NotFound("agent"))?;
        let version = self.table.version(&row.id, row.active_version).await?;
        Ok((row, version.ok_or(SessionError::NotFound("agent"))?))
    }

    async fn version_of(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<VersionRow, SessionError> {
        let agent = self.table.find(tenant, name).await?.ok_or(SessionError::NotFound("agent"))?;
        let number = version.unwrap_or(agent.active_version);
        let found = self.table.version(&agent.id, number).await?;
        found.ok_or(SessionError::NotFound("agent version"))
    }

    async fn deploy_version(
        self: &Arc<Self>,
        tenant: &str,
        mut request: DeployRequest,
        files: Vec<StoredAgentFile>,
        runtime: &AgentRuntime,
    ) -> Result<AgentRow, SessionError> {
        // The id is needed before the row exists, because the environment is sealed for it.
        let known = self.table.find(tenant, &request.name).await?;
        let id = known.map_or_else(|| self.ids.next("ag_"), |row| row.id);
        let grants = request.grants.clone().unwrap_or_default();
        self.gates.opening(&id, tenant, &grants)?;
        let now_ms = clock::wall_ms();
        let bytes = files.iter().map(|file| len(&file.content)).sum();
        let listing: Vec<FolderEntry> = files.iter().map(folder_entry).collect();
        let more = StorageRequest { stored: bytes, declared: 0 };
        self.storage.check(tenant, more).await?;
        // The agent copies the template's environment, since the template may be deleted.
        let (below, of_template) = match &request.template {
            Some(name) => {
                let start = self.templates.for_session(tenant, name).await?;
                (start.chain, start.env)
            }
            None => (Vec::new(), BTreeMap::new()),
        };
        let own_env = std::mem::replace(&mut request.env, of_template);
        request.env.extend(own_env);
        let (chain, install_output) = match files.is_empty() {
            true => (below, None),
            false => Box::pin(self.build(tenant, &request, &files, below)).await?,
        };
        let folder = format!("agents/{id}/{}", self.ids.next("f_"));
        let content = serde_json::to_vec(&files).map_err(SessionError::internal)?;
        self.objects.put(&folder, Bytes::from(content)).await?;
        let agent = AgentRow {
            env: self.secrets.seal_env(tenant, &id, &request.env)?,
            env_names: request.env.keys().cloned().collect(),
            id: id.clone(),
            tenant: tenant.to_owned(),
            name: request.name,
            description: request.description,
            active_version: 1,
            last_version: 1,
            settings: request.settings,
            limits: request.limits,
            options: request.options,
            grants,
            created_ms: now_ms,
            updated_ms: now_ms,
        };
        let version = VersionRow {
            agent_id: id.clone(),
            version: 1,
            runtime: runtime.clone(),
            chain,
            folder: Some(folder.clone()),
            listing: serde_json::to_value(listing).map_err(SessionError::internal)?,
            files: u64::try_from(files.len()).unwrap_or(u64::MAX),
            bytes,
            install_output,
            created_ms: now_ms,
        };
        let max = u64::try_from(self.config.now().agents_max_per_tenant).unwrap_or(u64::MAX);
        match self.table.deploy(agent, version, max).await {
            Ok(deployed) => Ok(deployed.agent),
            Err(error) => {
                self.objects.remove(&folder).await;
                self.sweeps.layers();
                Err(error)
            }
        }
    }

    /// Builds a layer from a folder and runs its `install.sh`.
    async fn build(
        self: &Arc<Self>,
        tenant: &str,
        request: &DeployRequest,
        files: &[StoredAgentFile],
        below: Vec<String>,
    ) -> Result<(Vec<String>, Option<String>), SessionError> {
        let _place = self.admission.admit_build(tenant).await?;
        self.build_admitted(tenant, request, files, below).await
    }

    async fn build_admitted(
        &self,
        tenant: &str,
        request: &DeployRequest,
        files: &[StoredAgentFile],
        below: Vec<String>,
    ) -> Result<(Vec<String>, Option<String>), SessionError> {
        let complete = limits::limits(&self.config.now(), &request.limits, &request.limits)?;
        let disk = self.sandboxes.blank_disk(&complete).await?;
        let body = Arc::new(self.sandboxes.make(tenant, disk, &below, &complete).await?);
        let filled = self.fill_folder(&body, request, files).await;
        // Processes that the build left running end here.
        let disk = self.sandboxes.end(&body).await;
        let Some(disk) = disk else { return Err(SessionError::internal("a build has a disk")) };
        let output = match filled {
            Ok(output) => output,
            Err(error) => {
                self.workspaces.remove_local(&disk).await;
                return Err(error);
            }
        };
        let layer = self.workspaces.freeze(&disk).await?;
        let known = LayerRow {
            id: layer.clone(),
            tenant: tenant.to_owned(),
            bytes: self.workspaces.layer_bytes(&layer).await,
            created_ms: clock::wall_ms(),
        };
        let mut chain = below;
        chain.push(layer);
        // Another server may start sessions with it.
        self.workspaces.publish_all(&chain).await?;
        self.layers.insert(known).await?;
        Ok((chain, output))
    }

    /// Writes the files, and runs `install.sh` if there is one.
    async fn fill_folder(
        &self,
        body: &SessionSandbox,
        request: &DeployRequest,
        files: &[StoredAgentFile],
    ) -> Result<Option<String>, SessionError> {
        let sandbox = body.sandbox()?;
        let helper = sandbox.files().await?;
        for (index, file) in files.iter().enumerate() {
            write(&helper, file).await.map_err(|error| {
                SessionError::invalid(format!("files[{index}]"), format!("{}: {error}", file.path))
            })?;
        }
        if !files.iter().any(|file| file.path == INSTALL) {
            return Ok(None);
        }
        let mut env = LaunchEnvironment::bare().env;
        env.extend(request.env.clone());
        let program = SessionProgram {
            argv: ["/bin/sh", INSTALL].map(|part| part.as_bytes().to_vec()).into(),
            env: environment(&env),
            cwd: None,
            terminal: None,
            stdin: false,
            merged: true,
        };
        let process = sandbox.start(program).await?;
        let time_max = Duration::from_secs(self.config.now().install_s.into());
        install(process, time_max).await.map(Some)
    }

    fn shown_agent(
        &self,
        row: AgentRow,
        version: u32,
        runtime: AgentRuntime,
    ) -> Result<AgentView, SessionError> {
        Ok(AgentView {
            id: row.id,
            name: row.name,
            tenant: row.tenant,
            description: row.description,
            version,
            runtime,
            limits: row.limits,
            settings: row.settings,
            options: row.options,
            grants: row.grants,
            env: row.env_names,
            created_at: time(row.created_ms),
            updated_at: time(row.updated_ms),
        })
    }
}

/// Writes one file as the sandbox's user.
async fn write(files: &SandboxFiles, file: &StoredAgentFile) -> Result<(), sandbox::FilesError> {
    let mut writer = files.write(&file.path, MissingParents::Make, WriteMode::Replace).await?;
    writer.write_all(&file.content).await?;
    writer.finish().await?;
    if file.executable {
        files.chmod(&file.path, 0o755).await?;
    }
    Ok(())
}

/// Waits for `install.sh` and returns the end of its output.
async fn install(
    process: sandbox::SessionProcess,
    time_max: Duration,
) -> Result<String, SessionError> {
    let sandbox::SessionProcess { streams, mut handle, .. } = process;
    let ProcessStreams::Pipes(mut pipes) = streams else {
        return Err(SessionError::internal("a command without terminal has pipes"));
    };
    let mut output = Vec::new();
    let ended = {
        let mut read = std::pin::pin!(async {
            let mut buf = vec![0; 16 << 10];
            while let Ok(count @ 1..) = pipes.stdout.read(&mut buf).await {
                output.extend_from_slice(buf.get(..count).unwrap_or_default());
                if output.len() > 2 * INSTALL_OUTPUT_BYTES {
                    output.drain(..output.len() - INSTALL_OUTPUT_BYTES);
                }
            }
        });
        let mut is_read = false;
        let mut end = std::pin::pin!(time::timeout(time_max, handle.wait()));
        // Its descendants may have closed the streams; only the program's own exit ends the wait.
        let ended = loop {
            tokio::select! {
                () = &mut read, if !is_read => is_read = true,
                ended = &mut end => break ended,
            }
        };
        if !is_read && ended.is_ok() {
            // The last output may still arrive; remaining descendants may never close the streams.
            let _left_open = time::timeout(INSTALL_LAST_WORDS, read).await;
        }
        ended
    };
    let keep = output.len().saturating_sub(INSTALL_OUTPUT_BYTES);
    let text = String::from_utf8_lossy(output.get(keep..).unwrap_or_default()).into_owned();
    let failed =
        |how: &str| SessionError::Agent(format!("install.sh {how}; it wrote: {}", text.trim()));
    match ended {
        Ok(Ok(end)) if end.code == Some(0) => Ok(text),
        Ok(Ok(end)) => match (end.code, end.signal) {
            (Some(code), _) => Err(failed(&format!("exited with code {code}"))),
            (None, Some(signal)) => {
                Err(failed(&format!("was killed by {}", crate::program_end::signal_name(signal))))
            }
            (None, None) => Err(failed("could not be started")),
        },
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let _gone = handle.signal(SIGKILL).await;
            Err(failed(&format!("took longer than {} s", time_max.as_secs())))
        }
    }
}

fn folder_entry(file: &StoredAgentFile) -> FolderEntry {
    FolderEntry { path: file.path.clone(), size: len(&file.content), executable: file.executable }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Checks a deployed folder, and decodes it.
fn check(
    config: &SessionsConfig,
    request: &DeployRequest,
) -> Result<(Vec<StoredAgentFile>, AgentRuntime), SessionError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let fits = (1..=NAME_BYTES_MAX).contains(&request.name.len());
    if !fits || !request.name.bytes().all(plain) {
        let message = format!("must be 1 to {NAME_BYTES_MAX} letters, digits, `_` and `-`");
        return Err(SessionError::invalid("name", message));
    }
    limits::check_env(&request.env, "env")?;
    let update = AgentUpdate {
        description: request.description.clone(),
        limits: Some(request.limits),
        settings: Some(request.settings),
        options: Some(request.options.clone()),
        ..AgentUpdate::default()
    };
    check_settings(config, &update)?;
    let files = check_files(&request.files)?;
    let runtime = match &request.runtime {
        Some(AgentRuntime::Command { argv }) => {
            check_argv(argv)?;
            AgentRuntime::Command { argv: argv.clone() }
        }
        Some(runtime @ (AgentRuntime::Claude | AgentRuntime::None)) => runtime.clone(),
        None if files.iter().any(|file| file.path == CLAUDE_MD) => AgentRuntime::Claude,
        None => AgentRuntime::None,
    };
    Ok((files, runtime))
}

fn check_argv(argv: &[String]) -> Result<(), SessionError> {
    let bytes: usize = argv.iter().map(String::len).sum();
    let is_bad = argv.is_empty() || argv.len() > ARGV_MAX || bytes > ARGV_BYTES_MAX;
    if is_bad
        || argv.iter().any(|part| part.contains('\0'))
        || argv.first().is_some_and(String::is_empty)
    {
        let message = format!(
            "must name a program, with at most {ARGV_MAX} parts, {ARGV_BYTES_MAX} bytes and no NUL"
        );
        return Err(SessionError::invalid("runtime.argv", message));
    }
    Ok(())
}

fn check_settings(config: &SessionsConfig, update: &AgentUpdate) -> Result<(), SessionError> {
    if update.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
        let message = format!("more than {DESCRIPTION_BYTES_MAX} bytes");
        return Err(SessionError::invalid("description", message));
    }
    if let Some(env) = &update.env {
        limits::check_env(env, "env")?;
    }
    if let Some(limits) = &update.limits {
        limits::limits(config, limits, limits)?;
    }
    if let Some(options) = &update.options {
        limits::check_options(options, "options")?;
    }
    if let Some(settings) = &update.settings {
        let rows = [
            ("prewarm_sandboxes", settings.prewarm_sandboxes),
            ("prewarm_agents", settings.prewarm_agents),
        ];
        for (name, count) in rows {
            if count > READY_MAX {
                let message = format!("must be at most {READY_MAX}");
                return Err(SessionError::invalid(format!("settings.{name}"), message));
            }
        }
        if settings.idle_s == Some(0) {
            return Err(SessionError::invalid("settings.idle_s", "must be at least 1"));
        }
    }
    Ok(())
}

fn check_files(files: &[AgentFile]) -> Result<Vec<StoredAgentFile>, SessionError> {
    if files.len() > FILES_MAX {
        return Err(SessionError::invalid("files", format!("more than {FILES_MAX} files")));
    }
    let mut paths = BTreeSet::new();
    let mut kept = Vec::with_capacity(files.len());
    let mut bytes = 0_usize;
    for (index, file) in files.iter().enumerate() {
        check_path(&file.path, &format!("files[{index}].path"))?;
        if !paths.insert(file.path.as_str()) {
            return Err(SessionError::invalid(format!("files[{index}].path"), "occurs twice"));
        }
        let content = match file.base64 {
            false => file.content.clone().into_bytes(),
            true => BASE64.decode(&file.content).map_err(|error| {
                let message = format!("is not Base64: {error}");
                SessionError::invalid(format!("files[{index}].content"), message)
            })?,
        };
        bytes = bytes.saturating_add(content.len());
        kept.push(StoredAgentFile {
            path: file.path.clone(),
            content,
            executable: file.executable,
        });
    }
    if bytes > FILES_BYTES_MAX {
        return Err(SessionError::invalid(
            "files",
            format!("more than {FILES_BYTES_MAX} bytes in all"),
        ));
    }
    // A path must not lie below another file.
    for path in &paths {
        for (place, _) in path.match_indices('/') {
            if paths.contains(&path[..place]) {
                let message = format!("`{}` is a file and a directory", &path[..place]);
                return Err(SessionError::invalid("files", message));
            }
        }
    }
    Ok(kept)
}

fn check_path(path: &str, field: &str) -> Result<(), SessionError> {
    let is_part = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.len() <= PART_BYTES_MAX
    };
    if path.len() > PATH_BYTES_MAX || path.contains('\0') || !path.split('/').all(is_part) {
        let message = "must be relative, without empty, `.` or `..` parts, and not too long";
        return Err(SessionError::invalid(field, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Folders that are rejected before anything is built.

    use super::*;

    fn file(path: &str) -> AgentFile {
        AgentFile { path: path.to_owned(), content: "x".to_owned(), ..AgentFile::default() }
    }

    #[test]
    fn folders_are_plain_trees() {
        let check = |files: &[AgentFile], field: &str| match check_files(files) {
            Err(SessionError::Refused(refusal)) => assert_eq!(refusal.field, field),
            other => panic!("{:?} instead of a refusal of {field}", other.map(|it| it.len())),
        };
        for path in ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\0b"] {
            check(&[file(path)], "files[0].path");
        }
        check(&[file(&"x".repeat(PART_BYTES_MAX + 1))], "files[0].path");
        check(&[file("a"), file("a")], "files[1].path");
        check(&[file("a"), file("a/b")], "files");
        let broken = AgentFile { base64: true, content: "?".to_owned(), ..file("a") };
        check(&[broken], "files[0].content");
        assert_eq!(check_files(&[file("a"), file("b/.git/config")]).unwrap().len(), 2);
    }
}
