//! Test support: servers without HTTP, which can be stopped and started again.

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AgentFile, AgentRuntime, CreateSession, DeployRequest, MessageContent, MessageRequest,
    SessionEvent, SessionEventKind, SessionExec, SessionExecResult,
};
use node::auth::TokenRegistry;
use node::cluster::{NODE_LEASE, NodeDescription, NodeIdentity, NodeMembership};
use node::drain::DrainHandle;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::GrantGateway;
use node::objects::ObjectStore;
use node::sealed::Sealer;
use node::store::{CommitDurability, SqlStore, StoreConfig, StoreUrl};
use node::telemetry;
use sandbox::{Engine, EngineConfig, HostImage};
use sessions::service::{HandoverTerms, MessageStream, SessionParts};
use sessions::{Sessions, SessionsConfig};
use testkit::Scratch;
use tokio::task::JoinHandle;
use tokio::time;

/// First user id of the sandboxes, distinct from other tests' and from servers'.
const UID_BASE: u32 = 1_310_000_000;
/// Number of session sandboxes of the engine.
pub(crate) const SESSIONS: usize = 12;
/// Time limit of a test, far above its needs, because other processes share the machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait for any condition on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Name of the server in tests with one server.
const ALONE: &str = "srv_test";
/// Tenant of most tests.
pub(crate) const TENANT: &str = "tenant-a";

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A test with its name.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Engine) -> Running,
}

/// Lists functions `async fn(Engine)` as tests.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::support::Test] = &[$($crate::support::Test {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: |engine| Box::pin($name(engine)),
        }),*];
    };
}
pub(crate) use tests;

/// Runs the tests whose names contain one of the arguments.
pub(crate) fn main(tests: &[&[Test]]) -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted =
        |test: &&Test| wanted.is_empty() || wanted.iter().any(|w| test.name.contains(w));
    let chosen: Vec<Test> = tests.iter().copied().flatten().filter(is_wanted).copied().collect();
    let launched = Engine::launch(EngineConfig {
        slots: 1,
        sessions: SESSIONS,
        sessions_ready: 2,
        warm: 0,
        spawners: 2,
        uid_base: UID_BASE,
        image: HostImage::default(),
        insecure_no_limits: false,
        runtimes: Vec::new(),
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let failed = runtime.block_on(async {
        let engine = Engine::attach(launched).unwrap();
        let mut out = std::io::stdout();
        let mut failed = 0;
        for test in &chosen {
            let running = time::timeout(TEST_TIMEOUT, tokio::spawn((test.run)(engine.clone())));
            let verdict = match running.await {
                Ok(Ok(())) => "ok",
                Ok(Err(_panicked)) => "FAILED",
                Err(_) => "FAILED: takes too long",
            };
            failed += usize::from(verdict != "ok");
            writeln!(out, "test {} ... {verdict}", test.name).unwrap();
        }
        engine.close().await;
        failed
    });
    let passed = chosen.len() - failed;
    let mut out = std::io::stdout();
    writeln!(out, "\ntest result: {passed} passed; {failed} failed").unwrap();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Directory of a server, shared by its lives.
pub(crate) struct Home {
    scratch: Scratch,
    engine: Engine,
    pub(crate) config: SessionsConfig,
    pub(crate) gateway: Option<Arc<dyn GrantGateway>>,
    /// Tokens of the server.
    pub(crate) tokens: Option<TokenRegistry>,
    /// Object store of archived disks; a directory in the home if absent.
    pub(crate) objects: Option<ObjectStore>,
}

/// One life of a server.
pub(crate) struct Server {
    pub(crate) sessions: Sessions,
    store: SqlStore,
    membership: NodeMembership,
    drain: Arc<DrainHandle>,
    work: JoinHandle<()>,
}

impl std::ops::Deref for Server {
    type Target = Sessions;

    fn deref(&self) -> &Sessions {
        &self.sessions
    }
}

/// Returns small limits for quick tests.
pub(crate) fn config() -> SessionsConfig {
    SessionsConfig {
        disk_bytes: 64 << 20,
        disk_inodes: 8192,
        resident_max: SESSIONS,
        ..SessionsConfig::default()
    }
}

impl Home {
    pub(crate) fn new(engine: Engine, config: SessionsConfig) -> Home {
        Home { scratch: Scratch::new(), engine, config, gateway: None, tokens: None, objects: None }
    }

    /// Starts a server on this directory.
    pub(crate) async fn start(&self) -> Server {
        self.start_as(ALONE).await
    }

    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts one of several servers that share the store and the objects; each has its own
    /// directory of disks.
    pub(crate) async fn start_as(&self, server: &str) -> Server {
        let mut registry = telemetry::registry("test");
        let url = StoreUrl::Sqlite(self.path().join("cove.sqlite"));
        let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        let data_dir = self.path().join(server);
        std::fs::create_dir_all(&data_dir).unwrap();
        let life = format!("life {}", store.now_ms());
        let node = NodeIdentity::in_directory(server.to_owned(), life, &data_dir).unwrap();
        let description = NodeDescription::default();
        let membership =
            NodeMembership::join(&store, node, &description, NODE_LEASE).await.unwrap();
        let parts = SessionParts {
            gateway: self.gateway.clone(),
            tokens: self.tokens.clone(),
            config: self.config.clone(),
            engine: self.engine.clone(),
            store: store.clone(),
            objects: self.objects.clone().unwrap_or_else(|| {
                let path = self.path().join("objects");
                ObjectStore::in_directory(&path, CommitDurability::Process).unwrap()
            }),
            sealer: Sealer::new(&[7; 32]),
            data_dir,
            fence: EffectFence::new(membership.serving().clone()),
            membership: membership.clone(),
            ready_nodes: None,
            model_key: None,
            claude: None,
            has_own_objects: self.objects.is_none() && server == ALONE,
            is_shared: false,
            handover: HandoverTerms::default(),
            turns: FairScheduler::for_this_runtime(),
            tracer: None,
        };
        let sessions = Sessions::start(parts, &mut registry).await.unwrap();
        assert_eq!(sessions.why_unavailable(), None);
        let drain = Arc::new(DrainHandle::new());
        let work = {
            let (sessions, drain) = (sessions.clone(), Arc::clone(&drain));
            let membership = membership.clone();
            tokio::spawn(async move {
                let working = sessions.work(&drain, Duration::from_secs(5));
                tokio::select! {
                    () = working => {}
                    () = membership.keep(&drain) => unreachable!("nobody takes its name"),
                }
            })
        };
        Server { sessions, store, membership, drain, work }
    }
}

impl Server {
    /// Stops the server as a signal does.
    pub(crate) async fn stop(self) {
        self.drain.begin();
        time::timeout(SOON, self.work).await.expect("it stops in time").unwrap();
        self.membership.leave().await;
        self.store.close().await;
        let counts = self.sessions.counts();
        assert_eq!((counts.warming, counts.warm, counts.running, counts.waiting), (0, 0, 0, 0));
    }

    /// Stops a session.
    pub(crate) async fn stop_session(&self, id: &str) -> api::SessionView {
        self.sessions.stop(TENANT, id).await.unwrap()
    }

    /// Creates a session with default settings and no agent.
    pub(crate) async fn plain(&self) -> String {
        self.create(TENANT, CreateSession::default()).await.unwrap().id
    }

    /// Runs a shell command in a session.
    pub(crate) async fn sh(&self, id: &str, command: &str) -> SessionExecResult {
        let exec = SessionExec { command: Some(command.to_owned()), ..SessionExec::default() };
        self.commands().unwrap().run(TENANT, id, exec).await.unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) async fn out(&self, id: &str, command: &str) -> String {
        let result = self.sh(id, command).await;
        assert_eq!(result.exit_code, Some(0), "`{command}`: {result:?}");
        result.stdout
    }

    /// Sends a message and returns the events of its turn.
    pub(crate) async fn say(&self, id: &str, text: &str) -> Vec<Arc<SessionEvent>> {
        let stream = self.conversations().unwrap().send(TENANT, id, message(text)).await.unwrap();
        hear(stream).await
    }

    /// Waits until a condition holds.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, is: impl Fn() -> F) {
        let waited = time::timeout(SOON, async {
            while !is().await {
                time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "not in time: {what}");
    }
}

pub(crate) fn message(text: &str) -> MessageRequest {
    MessageRequest {
        content: MessageContent::Text(text.to_owned()),
        partial: false,
        model: None,
        on_disconnect: None,
        extra: serde_json::Map::new(),
    }
}

/// Reads all events of a turn.
pub(crate) async fn hear(mut stream: MessageStream) -> Vec<Arc<SessionEvent>> {
    let mut all = Vec::new();
    let heard = time::timeout(SOON, async {
        while let Some(events) = stream.next().await {
            all.extend(events);
        }
    });
    assert!(heard.await.is_ok(), "the turn does not end: {all:?}");
    let kinds: Vec<SessionEventKind> = all.iter().map(|event| event.kind).collect();
    assert_eq!(kinds.first(), Some(&SessionEventKind::TurnStart), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&SessionEventKind::Done), "{kinds:?}");
    all
}

/// Returns the agent's text in a turn.
pub(crate) fn texts(events: &[Arc<SessionEvent>]) -> String {
    let texts = events.iter().filter(|event| event.kind == SessionEventKind::Text);
    texts.filter_map(|event| event.data["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Returns the errors of a turn.
pub(crate) fn errors(events: &[Arc<SessionEvent>]) -> String {
    let errors = events.iter().filter(|event| event.kind == SessionEventKind::Error);
    errors.filter_map(|event| event.data["error"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Returns the deployment of an agent with these files, started by `python3 agent.py`.
pub(crate) fn agent(name: &str, files: &[(&str, &str)]) -> DeployRequest {
    let file = |(path, content): &(&str, &str)| AgentFile {
        path: (*path).to_owned(),
        content: (*content).to_owned(),
        ..AgentFile::default()
    };
    DeployRequest {
        name: name.to_owned(),
        files: files.iter().map(file).collect(),
        runtime: Some(AgentRuntime::Command {
            argv: vec!["python3".to_owned(), "/workspace/agent.py".to_owned()],
        }),
        ..DeployRequest::default()
    }
}

/// Finds the `sleep` process whose command line contains `mark`, and returns its parent: for a
/// program of a session's sandbox, its guest init.
pub(crate) fn guest_init_of(mark: &str) -> Option<u32> {
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        // Processes may start and end meanwhile.
        let Ok(line) = std::fs::read(path.join("cmdline")) else { continue };
        let is_it = String::from_utf8_lossy(&line).contains(mark);
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if !is_it || name.trim() != "sleep" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        return parent.and_then(|parent| parent.trim().parse().ok());
    }
    None
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}
