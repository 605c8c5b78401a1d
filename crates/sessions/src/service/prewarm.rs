//! Sandboxes that are prepared in advance: with the files of an agent, and optionally with its
//! running process.
//!
//! A prepared sandbox is used only if it equals a fresh one. A session's own settings are either
//! sent to the running process, or a sandbox without process or a fresh one is used: a limit, a
//! variable or a credential is never dropped for speed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::SessionLimits;
use node::clock::{self, IdGenerator};
use node::current::CurrentSettings;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time;

use super::admission::SandboxAdmission;
use super::base::{SessionBase, has_agent};
use super::books::{ResidentKey, ResidentLedger};
use super::entry::{RunningAgent, SessionEntry, SessionSandbox};
use super::environment::{LaunchEnvironment, environment};
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::launch::{ProgramLauncher, StartSpec};
use super::limits;
use super::logs::LogLevel;
use super::parts::ReadyNodes;
use super::shared::SharedParts;
use crate::agent::OptionChange;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::store::rows::{AgentRow, VersionRow};
use crate::store::{AgentTable, SecretStore};

/// Interval of checks for changes in the set of nodes that prepare sandboxes.
const NODES_EVERY: Duration = Duration::from_secs(5);
/// Divisor of a whole share of the processor for a prepared sandbox.
const PREWARM_PARTS: usize = 8;
/// Maximum number of prepared sandboxes for one agent, with and without process together.
pub(super) const READY_MAX: u32 = 64;
/// Maximum number prepared for an agent in one run; the next session starts another run.
const MADE_MAX: u32 = 2 * READY_MAX;

/// Prepared sandboxes.
pub(crate) struct PrewarmPool {
    config: CurrentSettings<SessionsConfig>,
    agents: AgentTable,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
    books: Arc<ResidentLedger>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    gates: Arc<GrantGates>,
    launcher: Arc<ProgramLauncher>,
    /// Nodes that prepare sandboxes for agents; none if this node prepares its own.
    ready_nodes: Option<Arc<dyn ReadyNodes>>,
    /// Guards the prepared sandboxes and their numbers.
    state: Mutex<PrewarmShelf>,
    /// Serializes preparation, so that waiting sessions take precedence.
    making: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PrewarmShelf {
    ready: HashMap<u64, ReadySandbox>,
    next: u64,
    /// Agents that a task is preparing for; further requests start no second task.
    busy: HashSet<String>,
    is_closed: bool,
}

/// A prepared sandbox.
struct ReadySandbox {
    agent_id: String,
    version: u32,
    /// `updated_ms` of the agent when the sandbox was prepared.
    updated_ms: u64,
    limits: SessionLimits,
    /// Id that the session will have; its agent may know it already.
    session: String,
    body: Arc<SessionSandbox>,
    agent: Option<RunningAgent>,
}

/// A session's own settings that a running process has to receive.
pub(super) struct SessionOverrides<'a> {
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) has_credential: bool,
}

/// Returns the requests that apply both changes; none if a new process is needed.
fn both(one: OptionChange, other: OptionChange) -> Option<Vec<Map<String, Value>>> {
    let mut all = Vec::new();
    for change in [one, other] {
        match change {
            OptionChange::None => {}
            OptionChange::Requests(requests) => all.extend(requests),
            OptionChange::NewProcess(_) => return None,
        }
    }
    Some(all)
}

/// A claimed sandbox.
pub(super) struct ClaimedSandbox {
    pub(super) id: String,
    pub(super) body: Arc<SessionSandbox>,
    /// Agent, and the requests to send it before its first message.
    pub(super) agent: Option<(RunningAgent, Vec<Map<String, Value>>)>,
}

/// Components with which the pool makes sandboxes.
pub(super) struct PrewarmParts {
    pub(super) admission: Arc<SandboxAdmission>,
    pub(super) sandboxes: Arc<SandboxFactory>,
    pub(super) gates: Arc<GrantGates>,
    pub(super) launcher: Arc<ProgramLauncher>,
    pub(super) ready_nodes: Option<Arc<dyn ReadyNodes>>,
}

impl PrewarmPool {
    pub(super) fn new(shared: &SharedParts, parts: PrewarmParts) -> Arc<PrewarmPool> {
        Arc::new(PrewarmPool {
            config: shared.config.clone(),
            agents: shared.store.agents.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
            books: Arc::clone(&shared.books),
            admission: parts.admission,
            sandboxes: parts.sandboxes,
            gates: parts.gates,
            launcher: parts.launcher,
            ready_nodes: parts.ready_nodes,
            state: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// Takes a prepared sandbox for a session, preferably one with a process.
    pub(super) fn claim(
        &self,
        agent: &AgentRow,
        version: &VersionRow,
        base: &SessionBase,
        own: &SessionOverrides<'_>,
    ) -> Option<ClaimedSandbox> {
        let shelf = &mut *self.state.lock();
        let mut best = None;
        for (number, ready) in &shelf.ready {
            let is_current = ready.agent_id == agent.id
                && ready.version == version.version
                && ready.updated_ms == agent.updated_ms;
            if !is_current || ready.limits != base.limits {
                continue;
            }
            let Some(running) = &ready.agent else {
                best = best.or(Some((*number, None)));
                continue;
            };
            // Requires a live process that can receive all settings. Grants are part of its
            // environment.
            if own.has_credential || running.handle.is_ended() || base.grants != agent.grants {
                continue;
            }
            let options = running.plan.change(&base.options, running.has_control);
            let Some(requests) = both(options, running.plan.add_env(own.env)) else { continue };
            best = Some((*number, Some(requests)));
            break;
        }
        let (number, requests) = best?;
        let session = shelf.ready.get(&number)?.session.as_str().into();
        if !self.books.claim(number, &session, clock::now()) {
            // It is being evicted; the evicting task removes and ends it.
            return None;
        }
        let ready = shelf.ready.remove(&number)?;
        let agent = ready.agent.zip(requests);
        Some(ClaimedSandbox { id: ready.session, body: ready.body, agent })
    }

    fn take(&self, number: u64) -> Option<ReadySandbox> {
        self.state.lock().ready.remove(&number)
    }

    /// Returns the number of sandboxes this node prepares for an agent, with and without process:
    /// none if other nodes prepare them.
    fn wanted(&self, agent: &AgentRow) -> [usize; 2] {
        match &self.ready_nodes {
            Some(nodes) if !nodes.is_ready_here(&agent.name) => [0, 0],
            _ => wanted(agent),
        }
    }

    /// Prepares sandboxes for all agents, and again whenever the set of nodes changes.
    pub(super) async fn keep_ready(self: &Arc<Self>) {
        self.replenish_all().await;
        let Some(nodes) = &self.ready_nodes else { return std::future::pending().await };
        let mut known = nodes.all();
        loop {
            time::sleep(NODES_EVERY).await;
            let now = nodes.all();
            if now != known {
                known = now;
                self.replenish_all().await;
            }
        }
    }

    async fn replenish_all(self: &Arc<Self>) {
        match self.agents.all().await {
            Ok(agents) => agents.into_iter().for_each(|agent| self.replenish(agent)),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "agents could not be looked up to make sandboxes ready"
            ),
        }
    }

    /// Prepares missing sandboxes for an agent in the background.
    pub(super) fn replenish(self: &Arc<Self>, agent: AgentRow) {
        let wants = agent.settings.prewarm_agents + agent.settings.prewarm_sandboxes;
        let is_first = {
            let mut shelf = self.state.lock();
            let has_some = shelf.ready.values().any(|ready| ready.agent_id == agent.id);
            (wants > 0 || has_some) && !shelf.is_closed && shelf.busy.insert(agent.id.clone())
        };
        if !is_first {
            return;
        }
        let pool = Arc::clone(self);
        node::task::spawn(async move {
            let id = agent.id;
            let made = pool.fill(&id).await;
            pool.state.lock().busy.remove(&id);
            if let Err(error) = made {
                tracing::warn!(
                    agent = id,
                    error = &error as &dyn std::error::Error,
                    "failed to prepare a sandbox"
                );
            }
        });
    }

    /// Prepares missing sandboxes and discards surplus ones, until none are missing.
    async fn fill(self: &Arc<Self>, agent_id: &str) -> Result<(), SessionError> {
        // Bounded, so that an agent that ends as soon as it is ready does not keep this running for
        // ever.
        for _ in 0..MADE_MAX {
            let agent = self.agents.by_id(agent_id).await?;
            let stale = self.stale(agent_id, agent.as_ref());
            for number in stale {
                self.books.remove(&ResidentKey::Ready(number));
                self.discard(number).await;
            }
            let Some(agent) = agent else { return Ok(()) };
            let Some(with_agent) = self.missing(&agent) else { return Ok(()) };
            let version = self.agents.version(&agent.id, agent.active_version).await?;
            let Some(version) = version else { return Ok(()) };
            let with_agent = with_agent && has_agent(&version.runtime);
            let _one_at_a_time = self.making.lock().await;
            if !Box::pin(self.make_ready(&agent, &version, with_agent)).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the prepared sandboxes that are outdated or surplus.
    fn stale(&self, agent_id: &str, agent: Option<&AgentRow>) -> Vec<u64> {
        let shelf = self.state.lock();
        let mut left = agent.map_or([0, 0], |agent| self.wanted(agent));
        let mut stale = Vec::new();
        for (number, ready) in shelf.ready.iter().filter(|(_, it)| it.agent_id == agent_id) {
            let is_current = agent.is_some_and(|agent| {
                ready.version == agent.active_version && ready.updated_ms == agent.updated_ms
            });
            let level = &mut left[usize::from(ready.agent.is_none())];
            let is_dead = ready.body.uses.is_gone()
                || ready.agent.as_ref().is_some_and(|it| it.handle.is_ended());
            if is_current && !is_dead && *level > 0 {
                *level -= 1;
            } else {
                stale.push(*number);
            }
        }
        stale
    }

    /// Returns whether a sandbox is missing, and if so, whether it needs an agent process.
    fn missing(&self, agent: &AgentRow) -> Option<bool> {
        let shelf = self.state.lock();
        if shelf.is_closed {
            return None;
        }
        let of_agent = || shelf.ready.values().filter(|ready| ready.agent_id == agent.id);
        let [agents, sandboxes] = self.wanted(agent);
        let with_agent = of_agent().filter(|ready| ready.agent.is_some()).count();
        if with_agent < agents {
            return Some(true);
        }
        (of_agent().count() - with_agent < sandboxes).then_some(false)
    }

    /// Prepares one. Returns false if there is no room: preparation never evicts a sandbox.
    async fn make_ready(
        self: &Arc<Self>,
        agent: &AgentRow,
        version: &VersionRow,
        with_agent: bool,
    ) -> Result<bool, SessionError> {
        let number = {
            let mut shelf = self.state.lock();
            shelf.next += 1;
            shelf.next
        };
        let key = ResidentKey::Ready(number);
        let tenant = agent.tenant.as_str().into();
        if !self.books.admit_if_free(&self.admission.place(&key, &tenant), clock::now()) {
            return Ok(false);
        }
        let made = self.prepare(agent, version, with_agent).await;
        let ready = match made {
            Ok(ready) => ready,
            Err(error) => {
                self.books.remove(&key);
                return Err(error);
            }
        };
        self.watch_ready(number, &ready.body);
        let is_closed = {
            let mut shelf = self.state.lock();
            if !shelf.is_closed {
                self.books.warm(&key, clock::now());
                shelf.ready.insert(number, ready);
                return Ok(true);
            }
            ready
        };
        self.books.remove(&key);
        self.sandboxes.discard(&is_closed.body).await;
        Ok(false)
    }

    async fn prepare(
        &self,
        agent: &AgentRow,
        version: &VersionRow,
        with_agent: bool,
    ) -> Result<ReadySandbox, SessionError> {
        let own = SessionLimits::default();
        let limits = limits::limits(&self.config.now(), &agent.limits, &own)?;
        let disk = self.sandboxes.blank_disk(&limits).await?;
        let body = self.sandboxes.make(&agent.tenant, disk, &version.chain, &limits).await?;
        let body = Arc::new(body);
        // No request waits for its agent until a session claims it.
        body.share_cpu(PREWARM_PARTS);
        let session = self.ids.next("ses_");
        let mut ready = ReadySandbox {
            agent_id: agent.id.clone(),
            version: version.version,
            updated_ms: agent.updated_ms,
            limits,
            session,
            body,
            agent: None,
        };
        if agent.settings.park_interpreter {
            let launch = self.launch_ahead(agent, version, &ready)?;
            park_ahead(&ready.body, &launch);
        }
        if with_agent {
            match self.start_ahead(agent, version, &ready).await {
                Ok(running) => {
                    *ready.body.agent.lock().await = Some(running.clone());
                    ready.agent = Some(running);
                }
                Err(error) => {
                    self.sandboxes.discard(&ready.body).await;
                    return Err(error);
                }
            }
        }
        Ok(ready)
    }

    /// Returns the launch environment of a session that does not exist yet.
    fn launch_ahead(
        &self,
        agent: &AgentRow,
        version: &VersionRow,
        ready: &ReadySandbox,
    ) -> Result<LaunchEnvironment, SessionError> {
        let mut launch = LaunchEnvironment::bare();
        self.gates.add_grants(&ready.session, &agent.tenant, &agent.grants, &mut launch)?;
        launch.runtime = version.runtime.clone();
        launch.env.extend(self.secrets.open_env(&agent.tenant, &agent.id, agent.env.as_ref())?);
        Ok(launch)
    }

    /// Starts an agent whose session does not exist yet.
    async fn start_ahead(
        &self,
        agent: &AgentRow,
        version: &VersionRow,
        ready: &ReadySandbox,
    ) -> Result<RunningAgent, SessionError> {
        let launch = self.launch_ahead(agent, version, ready)?;
        let options = limits::options(&agent.options, &api::AgentOptions::default());
        let spec = StartSpec {
            options: &options,
            session: &ready.session,
            tenant: &agent.tenant,
            conversation: None,
            is_ahead: true,
            grants: &agent.grants,
        };
        let running = self.launcher.start_agent(&ready.body, &launch, &spec, None).await?;
        match running.handle.ready().await {
            Ok(has_control) => Ok(RunningAgent { has_control, ..running }),
            Err(end) => Err(SessionError::Agent(format!("the agent {}", end.reason))),
        }
    }

    /// Discards a prepared sandbox that dies before it is claimed.
    fn watch_ready(self: &Arc<Self>, number: u64, body: &Arc<SessionSandbox>) {
        let (pool, ended) = (Arc::downgrade(self), body.ended());
        node::task::spawn(async move {
            ended.await;
            let Some(pool) = pool.upgrade() else { return };
            let Some(ready) = pool.take(number) else { return };
            pool.books.remove(&ResidentKey::Ready(number));
            pool.sandboxes.discard(&ready.body).await;
        });
    }

    /// Ends a prepared sandbox that the ledger has already removed.
    pub(super) async fn discard(&self, number: u64) {
        if let Some(ready) = self.take(number) {
            self.sandboxes.discard(&ready.body).await;
        }
    }

    /// Ends all prepared sandboxes, and prepares no more.
    pub(super) async fn close(&self) {
        let numbers: Vec<u64> = {
            let mut shelf = self.state.lock();
            shelf.is_closed = true;
            shelf.ready.keys().copied().collect()
        };
        for number in numbers {
            self.books.remove(&ResidentKey::Ready(number));
            self.discard(number).await;
        }
        let _nobody_makes_one = self.making.lock().await;
    }
}

/// Sends an agent that was started ahead its session's settings, before its first message.
pub(super) fn tune(
    entry: &Arc<SessionEntry>,
    body: &Arc<SessionSandbox>,
    running: RunningAgent,
    requests: Vec<Map<String, Value>>,
) {
    // Locked before any request can use the agent: messages wait until the settings are applied.
    let Ok(mut slot) = Arc::clone(&body.agent).try_lock_owned() else { return };
    let (entry, options) = (Arc::clone(entry), entry.state.lock().row.options.clone());
    if let Some(agent) = &mut *slot {
        agent.plan = Arc::new((*agent.plan).clone().changed(&options));
    }
    if requests.is_empty() {
        return;
    }
    node::task::spawn(async move {
        if let Err(refusal) = running.handle.apply(requests).await {
            let text = format!("the agent that was ready is replaced: {refusal}");
            entry.lines.lock().push(LogLevel::System, &text);
            *slot = None;
            running.handle.close().await;
        }
    });
}

/// Parks an interpreter in a sandbox, in the background, before a context is requested. Requests
/// for a context wait for it.
pub(super) fn park_ahead(body: &SessionSandbox, launch: &LaunchEnvironment) {
    let (contexts, env) = (Arc::clone(&body.contexts), environment(&launch.env));
    let Ok(sandbox) = body.sandbox() else { return };
    node::task::spawn(async move {
        // A request for a context tries again.
        if let Err(error) = contexts.park_ahead(&sandbox, env).await {
            tracing::debug!(%error, "no interpreter was parked ahead");
        }
    });
}

/// Returns how many sandboxes an agent wants with a process, and how many without.
fn wanted(agent: &AgentRow) -> [usize; 2] {
    let count = |count: u32| usize::try_from(count.min(READY_MAX)).unwrap_or(0);
    [count(agent.settings.prewarm_agents), count(agent.settings.prewarm_sandboxes)]
}
