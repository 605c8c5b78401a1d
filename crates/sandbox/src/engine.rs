//! The engine: spawner processes kept alive, sandboxes prepared ahead and handed out once.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time;

use pool::{AcquireError, DriverEffect, KeyHandle, Lease, Pool, Ticket};

use crate::cgroup::ParentGroups;
use crate::codec::{MessageReader, MessageWriter, from_spawner, to_spawner};
use crate::failure::StepFailure;
use crate::layers::IsolationLayers;
use crate::run::{self, GuestConnection, SandboxError, SandboxLayers};
use crate::session::{self, SandboxedSession, SessionSetup};
use crate::spawner::{self, NetworkMode, SpawnerHello, SpawnerSetup};
use crate::spec::{EngineConfig, OutputSink, ProgramExit, SandboxCommand, WarmRuntime};
use crate::sys;
use crate::tied;

mod keeper;
mod pools;

use keeper::SpawnerKeeper;
use pools::{
    PreparedKind, WantedSandboxes, WarmRuntimeSandboxes, key_limits, pool_config,
    session_pool_config,
};

/// The hidden argument that makes this binary a spawner.
const SPAWNER_ARGUMENT: &str = "sandbox-spawner";
/// Slots of a spawner beyond its share: a sandbox that has ended occupies its slot until the kernel
/// releases its resources.
const SPARE_SLOTS: usize = 2;
/// Timeout for a sandbox to set itself up, under any load.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of attempts to prepare a sandbox when its spawner dies: more than the spawners
/// that can die at once, each of which may be found dying and then dead.
const PREPARE_TRIES: u32 = 16;
/// Timeout of a caller's wait for a sandbox. Callers that limit concurrency themselves wait less.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a spawner to end all its sandboxes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Runs this process as a helper if it was started as one: as a spawner, or as the process that
/// ties a host tool to its server. Must be the first statement of `main`.
pub fn spawner_main_if_asked() -> Option<ExitCode> {
    if let Some(code) = tied::main_if_asked() {
        return Some(code);
    }
    let is_spawner =
        std::env::args_os().nth(1).is_some_and(|argument| argument == SPAWNER_ARGUMENT);
    is_spawner.then(spawner::main)
}

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    /// No control group limits memory or processes, and running without limits is not allowed.
    #[error(
        "no control group limits {missing} here, so untrusted code cannot be held; \
         see `cove doctor`, or pass --insecure-no-limits to run it all the same"
    )]
    NoLimits {
        /// Resources that are not limited.
        missing: String,
    },
    /// A number in the configuration is invalid.
    #[error("sandbox configuration: {0}")]
    Config(&'static str),
    /// The control groups could not be set up.
    #[error("set up control groups")]
    Groups(#[source] io::Error),
    /// A spawner process could not be started.
    #[error("start a spawner process")]
    Spawn(#[source] io::Error),
    /// A spawner could not build the root of sandboxes.
    #[error("build the root of sandboxes")]
    Setup(#[source] StepFailure),
}

/// A spawner process and the connection to it.
#[derive(Debug)]
struct SpawnerProcess {
    child: Child,
    socket: OwnedFd,
    hello: SpawnerHello,
}

/// Parameters to start a spawner, and to restart it when it has died.
#[derive(Debug)]
struct SpawnerRecipe {
    config: EngineConfig,
    parents: ParentGroups,
    root: bool,
    slots_each: usize,
}

impl SpawnerRecipe {
    fn start(&self, index: usize) -> Result<SpawnerProcess, EngineStartError> {
        let (ours, theirs) = sys::message_pair().map_err(EngineStartError::Spawn)?;
        // No environment: a server's may hold secrets, and this process and its copies need none.
        let mut child = std::process::Command::new("/proc/self/exe")
            .arg(SPAWNER_ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(EngineStartError::Spawn)?;
        match self.introduce(index, &ours) {
            Ok(hello) => Ok(SpawnerProcess { child, socket: ours, hello }),
            Err(error) => {
                // The process owns nothing yet, so there is nothing else to wait for.
                let _already_dead = child.kill();
                let _status = child.wait();
                Err(error)
            }
        }
    }

    /// Sends a new spawner its setup and waits until it is set up.
    fn introduce(&self, index: usize, ours: &OwnedFd) -> Result<SpawnerHello, EngineStartError> {
        let handles = self.parents.handles();
        let setup = SpawnerSetup {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            slots: u32::try_from(self.slots_each).unwrap_or(u32::MAX),
            uid_base: self.root.then_some(self.config.uid_base),
            toolchains: self.config.image.toolchains.clone(),
            runtimes: self.config.runtimes.clone(),
            unified_limits: self.parents.unified_limits,
            roles: handles.iter().map(|(role, ..)| *role).collect(),
            parent_name: self.parents.name().to_owned(),
        };
        let mut fds: Vec<_> = handles.iter().map(|(_, fd, _)| *fd).collect();
        fds.extend(handles.iter().map(|(_, _, base)| *base));
        sys::send(ours.as_fd(), &setup.encode(), &fds).map_err(EngineStartError::Spawn)?;
        let mut buf = [0u8; 1024];
        let (n, _) = sys::receive(ours.as_fd(), &mut buf).map_err(EngineStartError::Spawn)?;
        let malformed = |_| EngineStartError::Spawn(io::Error::other("malformed answer"));
        match buf.get(..n).and_then(|m| m.split_first()) {
            Some((&from_spawner::HELLO, rest)) => {
                Ok(SpawnerHello { landlock: MessageReader(rest).u32().map_err(malformed)? })
            }
            Some((&from_spawner::FAILED, rest)) => Err(EngineStartError::Setup(
                StepFailure::decode(&mut MessageReader(rest)).map_err(malformed)?,
            )),
            _ => Err(EngineStartError::Spawn(io::Error::other("it ended at once"))),
        }
    }
}

/// Running spawners, before the async runtime exists.
#[derive(Debug)]
pub struct LaunchedSpawners {
    recipe: SpawnerRecipe,
    processes: Vec<SpawnerProcess>,
    layers: IsolationLayers,
}

impl LaunchedSpawners {
    /// Returns which layers of isolation are active.
    pub fn layers(&self) -> &IsolationLayers {
        &self.layers
    }
}

/// Figures of an engine, read without a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sandboxes that are prepared and not yet handed out.
    pub prepared: usize,
    /// Sandboxes that are handed out.
    pub leased: usize,
    /// Sandboxes that are being prepared.
    pub preparing: usize,
    /// Callers that wait for a sandbox.
    pub waiting: usize,
    /// Sandboxes created since the start.
    pub created: u64,
    /// Sandboxes for sessions that are prepared and not yet handed out.
    pub sessions_prepared: usize,
    /// Sandboxes for sessions that are handed out.
    pub sessions_leased: usize,
    /// Spawners that died and were replaced.
    pub spawners_replaced: u64,
}

/// Prepares sandboxes and hands them out. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

struct EngineShared {
    recipe: Arc<SpawnerRecipe>,
    pool: Pool<PreparedKind, PreparedSandbox>,
    plain: KeyHandle<PreparedKind, PreparedSandbox>,
    /// Plain sandboxes with a loopback.
    connected: WantedSandboxes,
    /// Sandboxes over layers, without a loopback and with one.
    layered: [WantedSandboxes; 2],
    /// Sandboxes of each configured runtime.
    warm: Vec<WarmRuntimeSandboxes>,
    /// A pool of its own, so that sessions and executions do not take each other's places.
    session_pool: Pool<PreparedKind, PreparedSandbox>,
    sessions: KeyHandle<PreparedKind, PreparedSandbox>,
    spawners: Vec<Arc<SpawnerHandle>>,
    layers: IsolationLayers,
    next_sandbox: AtomicU64,
    /// Number of spawners that were restarted; callers without a live spawner wait for a change.
    replaced: Arc<watch::Sender<u64>>,
    closing: watch::Sender<bool>,
    /// The driver of the pool and the keepers of the spawners; empty once closed.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A spawner, across restarts of its process.
struct SpawnerHandle {
    index: usize,
    link: Mutex<Option<Arc<SpawnerLink>>>,
    /// Sandboxes that the spawner has or is requested to make.
    load: AtomicUsize,
}

impl SpawnerHandle {
    /// Makes a closed link unavailable to callers that look for a spawner, before its keeper has
    /// noticed. A link that has replaced it stays.
    fn withdraw(&self, gone: &Arc<SpawnerLink>) {
        self.link.lock().take_if(|link| Arc::ptr_eq(link, gone));
    }
}

/// The connection to one spawner process.
struct SpawnerLink {
    socket: AsyncFd<OwnedFd>,
    /// Sandboxes that were requested and not yet answered.
    pending: Mutex<HashMap<u64, oneshot::Sender<Result<OwnedFd, StepFailure>>>>,
}

impl SpawnerLink {
    fn new(socket: OwnedFd) -> io::Result<SpawnerLink> {
        Ok(SpawnerLink { socket: sys::watch(socket)?, pending: Mutex::default() })
    }

    async fn send(&self, message: MessageWriter) -> io::Result<()> {
        let message = message.finish();
        self.socket.async_io(Interest::WRITABLE, |fd| sys::send(fd.as_fd(), &message, &[])).await
    }

    /// Reads messages until the process has exited.
    async fn listen(&self, spawner: &SpawnerHandle) {
        let mut buf = [0u8; 4096];
        loop {
            let receive = |fd: &OwnedFd| sys::receive_what_fits(fd.as_fd(), &mut buf);
            let received = self.socket.async_io(Interest::READABLE, receive).await;
            let Ok((n, fds)) = received else { return };
            if n == 0 {
                return;
            }
            self.take(buf.get(..n).unwrap_or(&[]), fds, spawner);
        }
    }

    fn take(&self, message: &[u8], fds: Vec<OwnedFd>, spawner: &SpawnerHandle) {
        let mut r = MessageReader(message);
        let (Ok(kind), Ok(sandbox)) = (r.u8(), r.u64()) else {
            tracing::error!(spawner = spawner.index, "a spawner sent a malformed message");
            return;
        };
        let answer = |result| {
            if let Some(waiting) = self.pending.lock().remove(&sandbox) {
                // The caller has dropped its request; the sandbox ends when its connection is
                // dropped here.
                let _unwanted = waiting.send(result);
            }
        };
        match (kind, fds.into_iter().next()) {
            (from_spawner::PREPARED, Some(control)) => answer(Ok(control)),
            // This process had no free descriptor for the connection, so the sandbox ends.
            (from_spawner::PREPARED, None) => {
                let step = "take a sandbox over".to_owned();
                answer(Err(StepFailure { step, errno: libc::EMFILE }));
            }
            (from_spawner::NOT_PREPARED, _) => {
                spawner.load.fetch_sub(1, Ordering::Relaxed);
                let failure = r.bytes().and_then(|b| {
                    let mut inner = MessageReader(b);
                    inner.u8()?;
                    StepFailure::decode(&mut inner)
                });
                answer(Err(failure.unwrap_or_else(StepFailure::from)));
            }
            (from_spawner::GONE, _) => {
                spawner.load.fetch_sub(1, Ordering::Relaxed);
                if r.u8().is_ok_and(|retired| retired != 0) {
                    tracing::error!(
                        sandbox,
                        "a sandbox cannot be removed; its slot is not used again"
                    );
                }
            }
            _ => {
                tracing::error!(spawner = spawner.index, kind, "a spawner sent an unknown message")
            }
        }
    }
}

impl Engine {
    /// Starts the spawners. Synchronous; must run before the process has any other thread.
    pub fn launch(config: EngineConfig) -> Result<LaunchedSpawners, EngineStartError> {
        if config.slots == 0 || config.spawners == 0 || config.warm > config.slots {
            return Err(EngineStartError::Config(
                "slots and spawners at least 1, warm at most slots",
            ));
        }
        if config.sessions_ready > config.sessions {
            return Err(EngineStartError::Config("sessions ready at most as many as sessions"));
        }
        let root = sys::effective_ids().0 == 0;
        let parents = ParentGroups::create().map_err(EngineStartError::Groups)?;
        let support = parents.support.clone();
        if !support.is_sufficient() && !config.insecure_no_limits {
            let missing = [("memory", &support.memory), ("processes", &support.pids)];
            let missing: Vec<&str> =
                missing.iter().filter(|(_, by)| by.is_none()).map(|(what, _)| *what).collect();
            return Err(EngineStartError::NoLimits { missing: missing.join(" and ") });
        }
        let slots = config.slots.saturating_add(config.sessions);
        let slots_each = slots.div_ceil(config.spawners) + SPARE_SLOTS;
        let users = u32::try_from(slots_each * config.spawners * 2)
            .ok()
            .and_then(|count| config.uid_base.checked_add(count - 1))
            .ok_or(EngineStartError::Config("the user ids do not fit into 32 bits"))?;
        let users = root.then_some((config.uid_base, users));
        let mut layers = IsolationLayers::new(root, users, support, config.insecure_no_limits);
        let spawners = config.spawners;
        let recipe = SpawnerRecipe { config, parents, root, slots_each };
        let processes = (0..spawners).map(|i| recipe.start(i)).collect::<Result<Vec<_>, _>>()?;
        layers.landlock = processes.first().map_or(0, |p| p.hello.landlock);
        Ok(LaunchedSpawners { recipe, processes, layers })
    }

    /// Takes over launched spawners. Must run inside the async runtime.
    pub fn attach(launched: LaunchedSpawners) -> Result<Engine, EngineStartError> {
        let LaunchedSpawners { recipe, processes, layers } = launched;
        let recipe = Arc::new(recipe);
        let replaced = Arc::new(watch::channel(0).0);
        let (closing, closed) = watch::channel(false);
        let mut spawners = Vec::new();
        let mut tasks = Vec::new();
        for (index, process) in processes.into_iter().enumerate() {
            let link = Arc::new(SpawnerLink::new(process.socket).map_err(EngineStartError::Spawn)?);
            let spawner = Arc::new(SpawnerHandle {
                index,
                link: Mutex::new(Some(link)),
                load: AtomicUsize::new(0),
            });
            let keeper = SpawnerKeeper {
                spawner: Arc::clone(&spawner),
                recipe: Arc::clone(&recipe),
                replaced: Arc::clone(&replaced),
                closed: closed.clone(),
            };
            tasks.push(tokio::spawn(keeper.run(process.child)));
            spawners.push(spawner);
        }
        let pool = Pool::new(pool_config(&recipe.config), now());
        let no_key = |_| EngineStartError::Config("the pool takes no key");
        let plain = pool.key(&PreparedKind::PLAIN).map_err(no_key)?;
        let wanted = |kind| WantedSandboxes::new(&pool, &recipe.config, kind).map_err(no_key);
        let connected = wanted(PreparedKind::CONNECTED)?;
        let [over_layers, over_layers_connected] = PreparedKind::LAYERED.map(wanted);
        let layered = [over_layers?, over_layers_connected?];
        let mut warm = Vec::new();
        for (index, runtime) in recipe.config.runtimes.iter().enumerate() {
            let limits = key_limits(&recipe.config, runtime.ready);
            let kind = PreparedKind { runtime: Some(index), ..PreparedKind::PLAIN };
            let sandboxes = pool.key_with(&kind, limits).map_err(no_key)?;
            let connected =
                wanted(PreparedKind { runtime: Some(index), ..PreparedKind::CONNECTED })?;
            warm.push(WarmRuntimeSandboxes { sandboxes, connected, failures: AtomicU32::new(0) });
        }
        let session_pool = Pool::new(session_pool_config(&recipe.config), now());
        let sessions = session_pool.key(&PreparedKind::SESSION).map_err(no_key)?;
        let shared = Arc::new(EngineShared {
            recipe,
            pool,
            plain,
            connected,
            layered,
            warm,
            session_pool,
            sessions,
            spawners,
            layers,
            next_sandbox: AtomicU64::new(1),
            replaced,
            closing,
            tasks: Mutex::new(tasks),
        });
        for pool in [&shared.pool, &shared.session_pool] {
            let driver = tokio::spawn(drive(Arc::clone(&shared), pool.clone()));
            shared.tasks.lock().push(driver);
        }
        Ok(Engine { shared })
    }

    /// Returns which layers of isolation are active.
    pub fn layers(&self) -> IsolationLayers {
        self.shared.layers.clone()
    }

    /// Current figures.
    pub fn stats(&self) -> EngineStats {
        let warm = self.shared.warm.iter();
        let warm = warm.flat_map(|it| [&it.sandboxes, &it.connected.sandboxes]);
        let plain = [&self.shared.plain, &self.shared.connected.sandboxes];
        let layered = self.shared.layered.iter().map(|it| &it.sandboxes);
        let sessions = self.shared.sessions.stats();
        let mut figures = EngineStats {
            sessions_prepared: sessions.idle,
            sessions_leased: sessions.leased,
            spawners_replaced: *self.shared.replaced.borrow(),
            ..EngineStats::default()
        };
        for key in plain.into_iter().chain(layered).chain(warm) {
            let of_key = key.stats();
            figures.prepared += of_key.idle;
            figures.leased += of_key.leased;
            figures.preparing += of_key.opening;
            figures.waiting += of_key.waiting;
            figures.created += key.counters().created;
        }
        figures
    }

    /// Returns an unused sandbox. Waits for a free one; first come, first served.
    pub async fn sandbox(&self) -> Result<Sandbox, SandboxError> {
        acquire(&self.shared.plain).await.map_err(refused)
    }

    /// Returns an unused sandbox with a loopback, for commands whose caller listens there
    /// ([`SandboxCommand::listen`]). Waits like [`Engine::sandbox`]. After the first request for
    /// one, as many are kept prepared as of those without a loopback.
    pub async fn connected_sandbox(&self) -> Result<Sandbox, SandboxError> {
        acquire(self.shared.connected.wanted(now())).await.map_err(refused)
    }

    /// Returns an unused sandbox whose `/workspace` and `/home/user` begin with the content of
    /// layers: changes by its programs are in memory, within their limits, and no layer changes. It
    /// has a loopback if `is_connected`. Waits like [`Engine::sandbox`]; after the first request,
    /// as many are kept prepared.
    ///
    /// # Errors
    /// [`SandboxError::Unavailable`] without root; [`SandboxError::File`] if the working directory
    /// is not valid.
    pub async fn layered_sandbox(
        &self,
        is_connected: bool,
        layers: &SandboxLayers,
    ) -> Result<Sandbox, SandboxError> {
        if !self.shared.recipe.root {
            let why = "layers require a server started as root";
            return Err(SandboxError::Unavailable(why.to_owned()));
        }
        let [plain, connected] = &self.shared.layered;
        let wanted = if is_connected { connected } else { plain };
        let sandbox = acquire(wanted.wanted(now())).await.map_err(refused)?;
        let prepared = sandbox.lease.as_ref().and_then(|lease| lease.control.as_ref());
        prepared.ok_or(SandboxError::Closed)?.mount(layers).await?;
        Ok(sandbox)
    }

    /// Returns an unused sandbox in which the runtime called `name` waits for its program
    /// ([`SandboxCommand::warm`]). Waits like [`Engine::sandbox`]. Returns `None` if there is no
    /// such runtime, or it cannot be started here: then the program is started like any other, in a
    /// plain sandbox.
    pub async fn warm(&self, name: &str) -> Result<Option<Sandbox>, SandboxError> {
        self.warm_of(name, |runtime| &runtime.sandboxes).await
    }

    /// Returns such a sandbox with a loopback, for a command whose caller listens there; after the
    /// first request, as many are kept prepared.
    pub async fn connected_warm(&self, name: &str) -> Result<Option<Sandbox>, SandboxError> {
        self.warm_of(name, |runtime| runtime.connected.wanted(now())).await
    }

    async fn warm_of(
        &self,
        name: &str,
        key: impl FnOnce(&WarmRuntimeSandboxes) -> &KeyHandle<PreparedKind, PreparedSandbox>,
    ) -> Result<Option<Sandbox>, SandboxError> {
        let runtimes = &self.shared.recipe.config.runtimes;
        let index = runtimes.iter().position(|runtime| runtime.name == name);
        let Some(runtime) = index.and_then(|index| self.shared.warm.get(index)) else {
            return Ok(None);
        };
        if runtime.is_off() {
            return Ok(None);
        }
        match acquire(key(runtime)).await {
            Ok(sandbox) => Ok(Some(sandbox)),
            // The failure has been logged, and may not affect a plain sandbox.
            Err(AcquireError::Open(_)) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Returns an unused sandbox for a session ([`Sandbox::into_session`]). Waits like
    /// [`Engine::sandbox`], for one of [`EngineConfig::sessions`].
    pub async fn session_sandbox(&self) -> Result<Sandbox, SandboxError> {
        if !self.shared.recipe.root {
            return Err(SandboxError::Unavailable("sessions need a server started as root".into()));
        }
        if self.shared.recipe.config.sessions == 0 {
            return Err(SandboxError::Unavailable("no sessions are configured".into()));
        }
        acquire(&self.shared.sessions).await.map_err(refused)
    }

    /// Returns the configured warm runtimes.
    pub fn runtimes(&self) -> &[WarmRuntime] {
        &self.shared.recipe.config.runtimes
    }

    /// Returns whether the runtime called `name` is configured and can be started here.
    pub fn has_warm(&self, name: &str) -> bool {
        let runtimes = self.shared.recipe.config.runtimes.iter().zip(&self.shared.warm);
        runtimes.into_iter().any(|(runtime, warm)| runtime.name == name && !warm.is_off())
    }

    /// Ends all sandboxes and all spawners, and waits until they have ended.
    pub async fn close(self) {
        self.shared.pool.close(now());
        self.shared.session_pool.close(now());
        self.shared.closing.send_replace(true);
        let tasks = std::mem::take(&mut *self.shared.tasks.lock());
        for task in tasks {
            if time::timeout(CLOSE_TIMEOUT, task).await.is_err() {
                tracing::error!("a part of the sandbox engine does not end");
            }
        }
        self.shared.recipe.parents.remove();
    }
}

/// Waits for a live sandbox of a key.
async fn acquire(key: &KeyHandle<PreparedKind, PreparedSandbox>) -> Result<Sandbox, AcquireError> {
    loop {
        let now = now();
        let lease = key.acquire(now, now + ACQUIRE_TIMEOUT).await?;
        let sandbox = Sandbox { lease: Some(lease) };
        // A prepared sandbox can have died while it waited, above all together with its spawner.
        if sandbox.is_alive() {
            return Ok(sandbox);
        }
    }
}

fn now() -> std::time::Instant {
    time::Instant::now().into_std()
}

fn refused(error: AcquireError) -> SandboxError {
    match error {
        AcquireError::Closed | AcquireError::Draining => SandboxError::Closed,
        AcquireError::Open(cause) => match cause.downcast_ref::<StepFailure>() {
            Some(failure) => SandboxError::Setup(failure.clone()),
            None => SandboxError::Unavailable(cause.to_string()),
        },
        other => SandboxError::Unavailable(other.to_string()),
    }
}

/// Carries out the pool's decisions, until the pool is closed and empty.
async fn drive(shared: Arc<EngineShared>, pool: Pool<PreparedKind, PreparedSandbox>) {
    loop {
        let next_tick = pool.next_tick().map(time::Instant::from_std);
        let tick = async {
            match next_tick {
                Some(at) => time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            effect = pool.next_effect() => match effect {
                Some(DriverEffect::Open(ticket)) => {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { answer(&shared, ticket).await });
                }
                // Dropping the connection ends the sandbox; its spawner clears the slot.
                Some(DriverEffect::Close(retired)) => drop(retired),
                // `next_tick` is read again at the top of the loop.
                Some(DriverEffect::TickAt(_)) => {}
                None => return,
            },
            () = tick => pool.tick(now()),
        }
    }
}

/// Opens a sandbox for a ticket.
async fn answer(shared: &EngineShared, ticket: Ticket<PreparedKind, PreparedSandbox>) {
    let kind = *ticket.key();
    let give_up_at = time::Instant::now() + PREPARE_TIMEOUT;
    let mut opened = shared.open(kind).await;
    for _ in 1..PREPARE_TRIES {
        // Sandboxes in preparation end with their spawner; another one can prepare them.
        let is_over = *shared.closing.borrow() || time::Instant::now() >= give_up_at;
        if is_over || !matches!(opened, Err(SandboxError::Lost(_))) {
            break;
        }
        opened = shared.open(kind).await;
    }
    let is_closing = *shared.closing.borrow();
    if let (Some(index), false) = (kind.runtime, is_closing) {
        shared.note_warm(index, opened.as_ref().err());
    }
    match opened {
        Ok(prepared) => ticket.opened(prepared, now()),
        Err(error) => {
            // While the engine closes, its spawners end: this is expected and is not logged.
            if kind.runtime.is_none() && !is_closing {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "a sandbox cannot be prepared");
            }
            match error {
                SandboxError::Setup(failure) => ticket.failed(Arc::new(failure), now()),
                other => ticket.failed(Arc::new(other), now()),
            }
        }
    }
}

impl EngineShared {
    /// Returns the spawner with the lowest load; waits while none is alive.
    async fn idlest(&self) -> (&SpawnerHandle, Arc<SpawnerLink>) {
        // Subscribes before the check, so that a spawner that restarts during it is not missed.
        let mut replaced = self.replaced.subscribe();
        loop {
            let alive = self.spawners.iter().filter_map(|s| Some((s, s.link.lock().clone()?)));
            if let Some((spawner, link)) = alive.min_by_key(|(s, _)| s.load.load(Ordering::Relaxed))
            {
                return (spawner, link);
            }
            if replaced.changed().await.is_err() {
                // Unreachable: `self` owns the sender.
                std::future::pending::<()>().await;
            }
        }
    }

    fn note_warm(&self, index: usize, failure: Option<&SandboxError>) {
        let configured = self.recipe.config.runtimes.get(index);
        if let (Some(runtime), Some(configured)) = (self.warm.get(index), configured) {
            runtime.note(&configured.name, failure);
        }
    }

    /// Requests a sandbox from the spawner with the lowest load and waits until it is ready.
    async fn open(&self, kind: PreparedKind) -> Result<PreparedSandbox, SandboxError> {
        let mut closing = self.closing.subscribe();
        let (spawner, link) = tokio::select! {
            found = self.idlest() => found,
            _ = closing.wait_for(|closing| *closing) => return Err(SandboxError::Closed),
            () = time::sleep(PREPARE_TIMEOUT) => {
                return Err(SandboxError::Lost("no spawner is alive"));
            }
        };
        let id = self.next_sandbox.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        link.pending.lock().insert(id, answer);
        spawner.load.fetch_add(1, Ordering::Relaxed);
        let opening = async {
            // The spawner died a moment ago and its keeper has not noticed yet.
            let number = kind.runtime.map_or(0, |index| index + 1);
            let order = MessageWriter::new(to_spawner::PREPARE)
                .u64(id)
                .u8(kind.network.number())
                .u32(u32::try_from(number).unwrap_or(u32::MAX))
                .u8(kind.initial_files.number());
            if let Err(error) = link.send(order).await {
                link.pending.lock().remove(&id);
                // The keeper ends a link when it is closed, not when the kernel is short of memory.
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
                    spawner.withdraw(&link);
                }
                return Err(SandboxError::Lost("its spawner died"));
            }
            let control = answered
                .await
                .map_err(|_| SandboxError::Lost("its spawner died"))?
                .map_err(SandboxError::Setup)?;
            let control = GuestConnection::new(control)?;
            let streams = control.ready().await?;
            Ok(PreparedSandbox { control: Some(control), streams, network: kind.network })
        };
        match time::timeout(PREPARE_TIMEOUT, opening).await {
            Ok(result) => result,
            Err(_) => {
                link.pending.lock().remove(&id);
                link.send(MessageWriter::new(to_spawner::KILL).u64(id)).await?;
                Err(SandboxError::Lost("it took too long to set up"))
            }
        }
    }
}

/// A sandbox that is ready.
#[derive(Debug)]
struct PreparedSandbox {
    /// Taken to end the sandbox.
    control: Option<GuestConnection>,
    /// Our ends of the streams of the runtime that waits in the sandbox, if they exist already.
    streams: Vec<OwnedFd>,
    network: NetworkMode,
}

/// A leased sandbox. Dropping it ends all processes in it.
#[derive(Debug)]
pub struct Sandbox {
    /// Taken when it is dropped.
    lease: Option<Lease<PreparedKind, PreparedSandbox>>,
}

impl Sandbox {
    /// Runs a program and waits for its end. Output is handed to `sink` as it arrives, and is in
    /// the [`ProgramExit`] as well. Not cancel-safe: dropping the future ends the sandbox.
    pub async fn run(
        &mut self,
        command: SandboxCommand,
        sink: &mut dyn OutputSink,
    ) -> Result<ProgramExit, SandboxError> {
        let prepared = self.lease.as_mut().ok_or(SandboxError::Closed)?;
        if command.listen.is_some() && prepared.network != NetworkMode::Loopback {
            return Err(SandboxError::Command("listen: the sandbox has no loopback"));
        }
        // Taken out while the program runs: a future that is dropped takes the connection with it.
        let control = prepared.control.take().ok_or(SandboxError::Closed)?;
        let last = command.last;
        let streams = std::mem::take(&mut prepared.streams);
        let exit = run::run(&control, streams, command, sink).await?;
        if !last {
            prepared.control = Some(control);
        }
        Ok(exit)
    }

    /// Turns the sandbox into a session, which lives on without this value. Only for a sandbox of
    /// [`Engine::session_sandbox`]. Dropping the future ends the sandbox.
    pub async fn into_session(
        mut self,
        setup: SessionSetup<'_>,
    ) -> Result<SandboxedSession, SandboxError> {
        let mut lease = self.lease.take().ok_or(SandboxError::Closed)?;
        let control = lease.control.take().ok_or(SandboxError::Closed)?;
        session::begin(control, SessionPlace { _lease: Sandbox { lease: Some(lease) } }, setup)
            .await
    }

    fn is_alive(&self) -> bool {
        let control = self.lease.as_ref().and_then(|lease| lease.control.as_ref());
        control.is_some_and(GuestConnection::is_quiet)
    }
}

/// The place of a sandbox that holds a session. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct SessionPlace {
    _lease: Sandbox,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(mut lease) = self.lease.take() {
            // Closes the connection at once, not when the driver gets to it.
            drop(lease.control.take());
            lease.discard();
        }
    }
}
