//! Files, ports and usage figures of a session's sandbox.

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

/// The files of a session. While this exists, its sandbox is kept.
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

/// Guard of a session's sandbox. While it exists, the sandbox counts as at work: it is neither
/// swept nor evicted, though it may be stopped, paused at its deadline, or die.
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

    /// Returns the service that it belongs to.
    pub(super) fn inner(&self) -> &Arc<SessionsInner> {
        &self.inner
    }

    /// Returns the session's id.
    pub fn session(&self) -> &str {
        &self.at_work.entry.id
    }

    /// Starts a program. The program outlives this guard, for as long as the sandbox lives.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub async fn start(&self, program: SessionProgram) -> Result<SessionProcess, SessionError> {
        Ok(self.at_work.body.sandbox()?.start(program).await?)
    }

    /// Returns the environment of this session's programs, in rising precedence: the common
    /// variables, the agent's, its credential's, the session's own, and `own`.
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

    /// Returns the session's variables by name, without `own` of [`SandboxGuard::environment`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn variables(&self) -> Result<BTreeMap<String, String>, SessionError> {
        let inner = self.inner();
        let launch = inner.launcher.launch(&self.at_work.entry).await?;
        // Callers ask for the environment in order to start a program.
        inner.gates.open(&self.at_work.entry, &self.at_work.body).await?;
        Ok(launch.env.clone())
    }

    /// Returns the sandbox itself, for one call.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn sandbox(&self) -> Result<SandboxedSession, SessionError> {
        self.at_work.body.sandbox()
    }

    /// Returns the contexts of its code interpreter.
    pub(crate) fn contexts(&self) -> &SandboxContexts {
        &self.at_work.body.contexts
    }

    /// Returns the tenant's memory for long lines of its contexts.
    pub(crate) fn frame_memory(&self) -> FrameMemory {
        let places = Arc::clone(&self.inner().long_frames);
        FrameMemory {
            places,
            owner: http::ShareOwner::Tenant(Arc::clone(&self.at_work.entry.tenant)),
        }
    }

    /// Returns a new context id.
    pub(crate) fn new_context_id(&self) -> String {
        self.inner().ids.next("ctx_")
    }

    /// Returns how many of its processes the kernel killed because memory ran out.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) async fn oom_kills(&self) -> Result<u64, SessionError> {
        Ok(self.sandbox()?.usage().await?.oom_kills)
    }

    /// Returns the default directory of commands, if the session's template sets one.
    pub fn workdir(&self) -> Option<String> {
        let state = self.at_work.entry.state.lock();
        state.row.template.as_ref().and_then(|template| template.workdir.clone())
    }

    /// Connects to a port of the sandbox's loopback interface.
    ///
    /// # Errors
    /// `Conflict` if no program listens there; 403 if the port is served by Cove, as for grants and
    /// agents; if the sandbox has ended.
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

    /// Returns the pids of started programs that have not ended.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub fn processes(&self) -> Result<Vec<u32>, SessionError> {
        Ok(self.at_work.body.sandbox()?.processes())
    }

    /// Sends a signal to the process group of a program.
    ///
    /// # Errors
    /// If the sandbox has ended, or `signal` is not a signal.
    pub async fn signal(&self, pid: u32, signal: i32) -> Result<(), SessionError> {
        Ok(self.at_work.body.sandbox()?.signal(pid, signal).await?)
    }

    /// Returns the sandbox's files.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub async fn files(&self) -> Result<SandboxFiles, SessionError> {
        Ok(self.at_work.body.sandbox()?.files().await?)
    }

    /// Freezes all programs until the session is used again.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub async fn freeze(&self) -> Result<(), SessionError> {
        self.at_work.body.freeze().await
    }

    /// Returns a receiver of whether the programs are frozen.
    pub fn frozen(&self) -> watch::Receiver<bool> {
        self.at_work.body.frozen()
    }

    /// Resolves with the reason when the sandbox has ended.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.at_work.body.ended()
    }
}

/// Returns the current usage of a sandbox.
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
