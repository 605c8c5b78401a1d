//! Start of a session's programs and of its agent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{AgentOptions, AgentRuntime, Grant, SessionEventKind};
use node::current::CurrentSettings;
use node::traces::Tracer;
use sandbox::{ProcessStreams, SessionProgram};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time;

use super::credentials::CredentialVault;
use super::directory::SessionDirectory;
use super::entry::{ModelRelayTask, RunningAgent, SessionEntry, SessionSandbox};
use super::environment::{LaunchEnvironment, environment};
use super::gates::{GrantGates, has_model};
use super::logs::LogLevel;
use super::shared::SharedParts;
use super::starts::StartLimiter;
use crate::agent::{
    AgentHandle, AgentLimits, AgentProcess, AgentSignal, AgentSink, Later, LaunchPlan, LaunchSpec,
    MODEL_PORT, OptionChange, TurnId,
};
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::metrics::SessionCounters;
use crate::model::{ModelAccessSpec, ModelKey, ModelKeyOwner, ModelRelay, UsageTotals};
use crate::store::rows::SessionRow;
use crate::store::{AgentTable, SecretStore};
use crate::traces::ModelTracer;

/// Grace period of an agent after each stronger request to stop.
const AGENT_GRACE: Duration = Duration::from_secs(2);
/// Longest time that an agent's background start is delayed by sandbox starts.
const BEHIND_STARTS_MAX: Duration = Duration::from_secs(2);
/// Default path of Claude's program in a sandbox.
const CLAUDE: &str = "claude";

/// Starts the session's own programs in its sandbox: its agent, and the commands of its template.
pub(crate) struct ProgramLauncher {
    pub(super) config: CurrentSettings<SessionsConfig>,
    agents: AgentTable,
    secrets: SecretStore,
    metrics: Arc<SessionCounters>,
    directory: Arc<SessionDirectory>,
    credentials: Arc<CredentialVault>,
    pub(super) gates: Arc<GrantGates>,
    model: ModelAccess,
    starts: Arc<StartLimiter>,
}

/// Model access of agents without a model grant.
pub(super) struct ModelAccess {
    /// Relay and the server's key for it, if configured.
    pub(super) relay: Option<ModelRelay>,
    pub(super) key: Option<ModelKey>,
    /// Model usage of all agents together.
    pub(super) usage: Arc<UsageTotals>,
    pub(super) tracer: Option<Tracer>,
    /// Path of Claude's program in a sandbox.
    pub(super) claude: Option<String>,
}

impl ProgramLauncher {
    pub(super) fn new(
        shared: &SharedParts,
        credentials: Arc<CredentialVault>,
        gates: Arc<GrantGates>,
        model: ModelAccess,
        starts: Arc<StartLimiter>,
    ) -> Arc<ProgramLauncher> {
        Arc::new(ProgramLauncher {
            config: shared.config.clone(),
            agents: shared.store.agents.clone(),
            secrets: shared.secrets.clone(),
            metrics: Arc::clone(&shared.metrics),
            directory: Arc::clone(&shared.directory),
            credentials,
            gates,
            model,
            starts,
        })
    }

    /// Returns the launch environment of a session's programs.
    pub(super) async fn launch(
        &self,
        entry: &SessionEntry,
    ) -> Result<Arc<LaunchEnvironment>, SessionError> {
        let row = {
            let state = entry.state.lock();
            if let Some(launch) = &state.launch {
                return Ok(Arc::clone(launch));
            }
            state.row.clone()
        };
        let launch = Arc::new(self.launch_of(&row).await?);
        let mut state = entry.state.lock();
        Ok(Arc::clone(state.launch.get_or_insert(launch)))
    }

    /// Loads the launch environment of a session's programs from the store.
    async fn launch_of(&self, row: &SessionRow) -> Result<LaunchEnvironment, SessionError> {
        let mut launch = LaunchEnvironment::bare();
        self.gates.add_grants(&row.id, &row.tenant, &row.grants, &mut launch)?;
        if let (Some(agent_id), Some(version)) = (&row.agent_id, row.agent_version) {
            let agent = self.agents.by_id(agent_id);
            let version = self.agents.version(agent_id, version);
            // If the agent was deleted, the session keeps its files but has no agent.
            if let (Some(agent), Some(version)) = tokio::try_join!(agent, version)? {
                launch.runtime = version.runtime;
                launch.lazy = agent.settings.lazy;
                launch.env.extend(self.secrets.open_env(
                    &agent.tenant,
                    &agent.id,
                    agent.env.as_ref(),
                )?);
            }
        }
        if let Some(credential) = &row.credential {
            self.credentials.add_to(&row.tenant, credential, &mut launch).await?;
        }
        launch.env.extend(self.secrets.open_env(&row.tenant, &row.id, row.env.as_ref())?);
        Ok(launch)
    }

    /// Returns the agent of a session, started if necessary. Concurrent callers wait for the start.
    pub(super) async fn agent(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: &Arc<SessionSandbox>,
    ) -> Result<RunningAgent, SessionError> {
        let mut slot = body.agent.lock().await;
        if let Some(agent) = slot.as_mut().filter(|agent| !agent.handle.is_ended()) {
            let options = entry.state.lock().row.options.clone();
            if self.adapt(entry, agent, &options).await {
                return Ok(agent.clone());
            }
            // The next process continues its conversation.
            agent.handle.close().await;
        }
        let launch = self.launch(entry).await?;
        self.gates.open(entry, body).await?;
        let row = entry.state.lock().row.clone();
        let spec = StartSpec {
            options: &row.options,
            session: &row.id,
            tenant: &row.tenant,
            conversation: row.agent_session.as_deref(),
            is_ahead: false,
            grants: &row.grants,
        };
        let sink: Arc<dyn AgentSink> = SessionSink::new(self, entry);
        let agent = self.start_agent(body, &launch, &spec, Some(sink)).await?;
        *slot = Some(agent.clone());
        Ok(agent)
    }

    /// Applies the session's current options to a running agent. Returns false if that requires a
    /// new process.
    async fn adapt(
        &self,
        entry: &SessionEntry,
        agent: &mut RunningAgent,
        options: &AgentOptions,
    ) -> bool {
        if agent.plan.options == *options {
            return true;
        }
        // The agent reports its capabilities when it is ready.
        agent.has_control = agent.handle.ready().await.unwrap_or(false);
        match agent.plan.change(options, agent.has_control) {
            OptionChange::None => {}
            OptionChange::NewProcess(_) => return false,
            OptionChange::Requests(requests) => {
                if let Err(refusal) = agent.handle.apply(requests).await {
                    let text = format!("the agent is started again: {refusal}");
                    entry.lines.lock().push(LogLevel::System, &text);
                    return false;
                }
            }
        }
        agent.plan = Arc::new((*agent.plan).clone().changed(options));
        true
    }

    /// Starts an agent in a sandbox.
    pub(super) async fn start_agent(
        &self,
        body: &SessionSandbox,
        launch: &LaunchEnvironment,
        spec: &StartSpec<'_>,
        sink: Option<Arc<dyn AgentSink>>,
    ) -> Result<RunningAgent, SessionError> {
        let has_grant = has_model(spec.grants);
        let plan = LaunchPlan::new(&LaunchSpec {
            runtime: &launch.runtime,
            claude: self.model.claude.as_deref().unwrap_or(CLAUDE),
            options: spec.options,
            session: spec.session,
            conversation: spec.conversation,
            has_model: has_grant || self.model.relay.is_some(),
            is_ahead: spec.is_ahead,
        });
        let plan = plan.ok_or_else(|| {
            SessionError::Conflict("the session has no agent that could take messages".to_owned())
        })?;
        let sandbox = body.sandbox()?;
        if let Some(relay) = &self.model.relay
            && !has_grant
            && body.relay.lock().is_none()
        {
            let listener = sandbox.listen(MODEL_PORT).await?;
            let relay = relay.clone();
            let holder = spec.session.into();
            let access = ModelAccessSpec {
                tenant: spec.tenant.into(),
                key: self.access(launch)?,
                tally: Arc::clone(&self.model.usage),
                tracer: self.model.tracer.clone().map(|tracer| ModelTracer { tracer, holder }),
            };
            let serving = async move { relay.serve(listener, access).await };
            *body.relay.lock() = Some(ModelRelayTask::new(serving));
        }
        let program = SessionProgram {
            argv: plan.argv.iter().map(|part| part.clone().into_bytes()).collect(),
            env: environment(&plan.environment(launch.env.clone())),
            cwd: None,
            terminal: None,
            stdin: true,
            merged: false,
        };
        let process = agent_process(sandbox.start(program).await?)?;
        let limits = AgentLimits {
            line_bytes_max: self.config.now().line_bytes_max,
            start: Duration::from_secs(self.config.now().agent_start_s.into()),
            grace: AGENT_GRACE,
        };
        let handle = AgentHandle::start(process, &plan, limits, sink);
        Ok(RunningAgent { handle, plan: Arc::new(plan), has_control: false })
    }

    /// Returns the key for a session's model requests.
    fn access(&self, launch: &LaunchEnvironment) -> Result<ModelKeyOwner, SessionError> {
        let no_key = || SessionError::Agent("the credential is not for the model".to_owned());
        match &launch.model_key {
            Some(own) => Ok(ModelKeyOwner::Own(ModelKey::new(own).ok_or_else(no_key)?)),
            None => Ok(ModelKeyOwner::Shared(self.model.key.clone())),
        }
    }

    /// Starts a session's agent in the background, unless it starts lazily. Waiting sandbox starts
    /// of the same tenant take precedence; a message starts the agent without this delay.
    pub(super) fn start_in_background(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: &Arc<SessionSandbox>,
    ) {
        let (launcher, entry, body) = (Arc::clone(self), Arc::clone(entry), Arc::clone(body));
        node::task::spawn(async move {
            let launch = match launcher.launch(&entry).await {
                Ok(launch) => launch,
                Err(error) => {
                    let text = format!("the agent could not be looked up: {error}");
                    entry.lines.lock().push(LogLevel::System, &text);
                    return;
                }
            };
            if launch.lazy || launch.runtime == AgentRuntime::None {
                return;
            }
            let nobody_waits = launcher.starts.nobody_waits(&entry.tenant);
            // Bounded, because sandbox starts may never pause.
            drop(time::timeout(BEHIND_STARTS_MAX, nobody_waits).await);
            if let Err(error) = launcher.agent(&entry, &body).await {
                // A message retries the start and reports the error.
                let text = format!("the agent could not be started: {error}");
                entry.lines.lock().push(LogLevel::System, &text);
            }
        });
    }
}

/// Parameters of an agent's start, beside [`LaunchEnvironment`].
pub(super) struct StartSpec<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) session: &'a str,
    pub(super) tenant: &'a str,
    pub(super) conversation: Option<&'a str>,
    /// True if the session does not exist yet.
    pub(super) is_ahead: bool,
    /// Grants that the sandbox's gate serves or will serve.
    pub(super) grants: &'a [Grant],
}

/// Adapts a program of a sandbox for an agent.
fn agent_process(process: sandbox::SessionProcess) -> Result<AgentProcess, SessionError> {
    let sandbox::SessionProcess { streams, handle, .. } = process;
    let ProcessStreams::Pipes(pipes) = streams else {
        return Err(SessionError::internal("an agent without terminal has pipes"));
    };
    let stdin: Box<dyn AsyncWrite + Send + Unpin> = match pipes.stdin {
        Some(stdin) => Box::new(stdin),
        None => return Err(SessionError::internal("an agent has an input")),
    };
    let stderr: Box<dyn AsyncRead + Send + Unpin> = match pipes.stderr {
        Some(stderr) => Box::new(stderr),
        None => Box::new(tokio::io::empty()),
    };
    let signaller = handle.clone();
    let signal = move |signal| {
        const SIGINT: i32 = 2;
        const SIGKILL: i32 = 9;
        let handle = signaller.clone();
        node::task::spawn(async move {
            let _gone = match signal {
                AgentSignal::Interrupt => handle.signal_alone(SIGINT).await,
                AgentSignal::Kill => handle.signal(SIGKILL).await,
            };
        });
    };
    let mut waiting = handle;
    let ended: Later<'static, String> = Box::pin(async move {
        match waiting.wait().await {
            Ok(end) => how(&end),
            Err(_) => "went away with its sandbox".to_owned(),
        }
    });
    Ok(AgentProcess {
        stdin,
        stdout: Box::new(pipes.stdout),
        stderr,
        signal: Box::new(signal),
        ended,
    })
}

/// Describes how a process ended, for use after "the agent".
fn how(end: &sandbox::ProcessEnd) -> String {
    if let Some(errno) = end.exec_errno {
        let error = std::io::Error::from_raw_os_error(errno);
        return format!("could not be executed: {error}");
    }
    let memory = if end.oom_kills > 0 { ", for lack of memory" } else { "" };
    match (end.code, end.signal) {
        (_, Some(signal)) => {
            format!("was killed by {}{memory}", crate::program_end::signal_name(signal))
        }
        (Some(code), None) => format!("exited with code {code}{memory}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Sink of an agent's output: its session's log.
pub(super) struct SessionSink {
    launcher: Arc<ProgramLauncher>,
    /// Weak, because the session owns the agent.
    entry: Weak<SessionEntry>,
}

impl SessionSink {
    pub(super) fn new(
        launcher: &Arc<ProgramLauncher>,
        entry: &Arc<SessionEntry>,
    ) -> Arc<SessionSink> {
        Arc::new(SessionSink { launcher: Arc::clone(launcher), entry: Arc::downgrade(entry) })
    }
}

impl AgentSink for SessionSink {
    fn event(&self, turn: Option<&TurnId>, kind: SessionEventKind, data: Value) {
        let Some(entry) = self.entry.upgrade() else { return };
        if kind == SessionEventKind::Message
            && data.get("type").and_then(Value::as_str) == Some("assistant")
            && let Some(content) = data.get("message").and_then(|message| message.get("content"))
        {
            entry.log.message("assistant", turn.map(|turn| &**turn), content.clone());
        }
        if let Some(turn) = turn {
            entry.note(turn, kind, &data, &self.launcher.metrics);
        }
        entry.log.push(kind, turn.map(|turn| &**turn), data);
    }

    fn full(&self) -> Option<String> {
        let entry = self.entry.upgrade()?;
        entry.history_is_full(self.launcher.config.now().history_bytes_max)
    }

    fn room(&self) -> Later<'_, ()> {
        let entry = self.entry.upgrade();
        Box::pin(async move {
            if let Some(entry) = entry {
                entry.log.room().await;
            }
        })
    }

    fn conversation(&self, id: &str) {
        let Some(entry) = self.entry.upgrade() else { return };
        {
            let mut state = entry.state.lock();
            if state.row.agent_session.as_deref() == Some(id) {
                return;
            }
            state.row.agent_session = Some(id.to_owned());
        }
        self.launcher.directory.mark(&entry);
    }

    fn stderr(&self, line: &str) {
        let Some(entry) = self.entry.upgrade() else { return };
        entry.lines.lock().push(LogLevel::Stderr, line);
    }
}
