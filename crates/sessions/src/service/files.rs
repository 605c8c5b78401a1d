//! Files, ports and figures of a session's sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::{ErrorCode, SessionMetrics};
use node::{clock, http};
use sandbox::{SandboxError, SandboxFiles, SandboxedSession, SessionProcess, SessionProgram};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::entry::SandboxUse;
use super::environment;
use super::sessions::SessionsInner;
use crate::error::SessionError;
use crate::interpreter::{FrameMemory, SandboxContexts};

/// The files of a session. While this exists, its sandbox stays.
#[derive(Debug)]
pub struct SessionFiles {
    files: SandboxFiles,
    _at_work: SandboxUse,
}

impl SessionFiles {
    pub(super) fn new(files: SandboxFiles, at_work: SandboxUse) -> SessionFiles {
        SessionFiles { files, _at_work: at_work }
    }
}

impl std::ops::Deref for SessionFiles {
    type Target = SandboxFiles;

    fn deref(&self) -> &SandboxFiles {
        &self.files
    }
}

/// The sandbox of a session. While this exists, it counts as being at work: it is neither swept nor
/// evicted, though it may be stopped, paused by its deadline, or die.
#[derive(Clone)]
pub struct SandboxGuard {
    inner: Arc<SessionsInner>,
    pub(super) at_work: SandboxUse,
}

impl fmt::Debug for SandboxGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxGuard").field("at_work", &self.at_work).finish()
    }
}

impl SandboxGuard {
    pub(super) fn new(inner: &Arc<SessionsInner>, at_work: SandboxUse) -> SandboxGuard {
        SandboxGuard { inner: Arc::clone(inner), at_work }
    }

    /// The service that it is of.
    pub(super) fn inner(&self) -> &Arc<SessionsInner> {
        &self.inner
    }

    /// The session's own id.
    pub fn session(&self) -> &str {
        &self.at_work.entry.id
    }

    /// Starts a program. It goes on when this is dropped, for as long as the sandbox lives.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub async fn start(&self, program: SessionProgram) -> Result<SessionProcess, SessionError> {
        Ok(self.at_work.body.sandbox()?.start(program).await?)
    }

    /// The environment that programs of this session are started with: what all have, the agent's,
    /// its credential's, its own; and `own` over it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn environment(
        &self,
        own: &BTreeMap<String, String>,
    ) -> Result<Vec<Vec<u8>>, SessionError> {
        let mut env = self.variables().await?;
        env.extend(own.clone());
        Ok(environment::environment(&env))
    }

    /// The environment of [`SandboxGuard::environment`] by the names of its variables.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn variables(&self) -> Result<BTreeMap<String, String>, SessionError> {
        let inner = self.inner();
        let launch = inner.launcher.launch(&self.at_work.entry).await?;
        // Who asks for it starts a program.
        inner.gates.open(&self.at_work.entry, &self.at_work.body).await?;
        Ok(launch.env.clone())
    }

    /// The sandbox itself, for one call.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn sandbox(&self) -> Result<SandboxedSession, SessionError> {
        self.at_work.body.sandbox()
    }

    /// The contexts of its code interpreter.
    pub(crate) fn contexts(&self) -> &SandboxContexts {
        &self.at_work.body.contexts
    }

    /// The tenant's places for long lines of its contexts.
    pub(crate) fn frame_memory(&self) -> FrameMemory {
        let places = Arc::clone(&self.inner().long_frames);
        FrameMemory {
            places,
            owner: http::ShareOwner::Tenant(Arc::clone(&self.at_work.entry.tenant)),
        }
    }

    /// A new id for one.
    pub(crate) fn new_context_id(&self) -> String {
        self.inner().ids.next("ctx_")
    }

    /// Returns how many processes were killed in it for want of memory.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub(crate) async fn oom_kills(&self) -> Result<u64, SessionError> {
        Ok(self.sandbox()?.usage().await?.oom_kills)
    }

    /// Directory in which commands run that name none, where the session's template says so.
    pub fn workdir(&self) -> Option<String> {
        let state = self.at_work.entry.state.lock();
        state.row.template.as_ref().and_then(|template| template.workdir.clone())
    }

    /// Connects to a port of the sandbox's loopback on which a program listens.
    ///
    /// # Errors
    /// `Conflict` when nobody listens there; 403 when the server itself does, as it does for grants
    /// and for agents; when the sandbox is gone.
    pub async fn connect(&self, port: u16) -> Result<TcpStream, SessionError> {
        match self.at_work.body.sandbox()?.connect(port).await {
            Err(SandboxError::PortRefused(port)) => Err(SessionError::Conflict(format!(
                "no program listens on port {port} of the sandbox"
            ))),
            Err(SandboxError::PortOfServer(port)) => Err(http::HttpError::new(
                ErrorCode::Forbidden,
                format!(
                    "port {port} of the sandbox is served by Cove for the programs inside (a grant \
                     or the way to the model) and cannot be reached from outside"
                ),
            )
            .into()),
            other => Ok(other?),
        }
    }

    /// The pids of programs that were started and have not ended.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub fn processes(&self) -> Result<Vec<u32>, SessionError> {
        Ok(self.at_work.body.sandbox()?.processes())
    }

    /// Sends a signal to the group of a program.
    ///
    /// # Errors
    /// If the sandbox is gone, or it is no signal.
    pub async fn signal(&self, pid: u32, signal: i32) -> Result<(), SessionError> {
        Ok(self.at_work.body.sandbox()?.signal(pid, signal).await?)
    }

    /// The files.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub async fn files(&self) -> Result<SandboxFiles, SessionError> {
        Ok(self.at_work.body.sandbox()?.files().await?)
    }

    /// Stops every program where it is, until somebody works with the session again.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub async fn freeze(&self) -> Result<(), SessionError> {
        self.at_work.body.freeze().await
    }

    /// Returns whether every program stands still, now and later.
    pub fn frozen(&self) -> watch::Receiver<bool> {
        self.at_work.body.frozen()
    }

    /// Resolves with the reason when the sandbox is gone.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.at_work.body.ended()
    }
}

/// Returns what a sandbox uses at present.
pub(super) async fn figures(
    sandbox: &SandboxedSession,
    disk: Option<crate::workspace::AttachedDisk>,
) -> Result<SessionMetrics, SessionError> {
    let usage = sandbox.usage().await?;
    let disk = node::task::blocking(move || disk.map(|disk| disk.disk.usage()));
    let disk =
        disk.await.map_err(SessionError::internal)?.transpose().map_err(SessionError::internal)?;
    let (disk_bytes, disk_total_bytes) = disk.map_or((0, 0), |disk| (disk.bytes, disk.bytes_total));
    Ok(SessionMetrics {
        at_ms: clock::wall_ms(),
        cpu_ms: u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
        memory_bytes: usage.memory_bytes,
        memory_peak_bytes: usage.memory_peak_bytes,
        processes: usage.processes,
        oom_kills: usage.oom_kills,
        disk_bytes,
        disk_total_bytes,
    })
}
