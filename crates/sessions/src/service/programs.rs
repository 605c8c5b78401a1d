//! Programs that readers of a session's grants run in its sandbox.

use std::fmt;
use std::sync::Arc;

use api::SessionExec;
use node::gateway::{HolderExit, HolderOutput, HolderProcess, HolderProgram, HolderSandbox};
use node::http::HttpError;
use node::task::Boxed;
use tokio::net::TcpListener;

use super::entry::SandboxUse;
use super::exec::{ExecEvent, ExecStream, SessionCommands};
use crate::error::SessionError;

/// A session's sandbox, for a reader of one of its grants.
pub(super) struct SessionPrograms {
    commands: Arc<SessionCommands>,
    /// Keeps the sandbox at work.
    at_work: SandboxUse,
}

impl SessionPrograms {
    pub(super) fn new(commands: &Arc<SessionCommands>, at_work: &SandboxUse) -> SessionPrograms {
        SessionPrograms { commands: Arc::clone(commands), at_work: at_work.clone() }
    }
}

impl fmt::Debug for SessionPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPrograms").field("at_work", &self.at_work).finish_non_exhaustive()
    }
}

impl HolderSandbox for SessionPrograms {
    fn listen(&self) -> Boxed<'_, Result<TcpListener, HttpError>> {
        Box::pin(async {
            let listener = self.at_work.body.sandbox()?.listen(0).await;
            Ok(listener.map_err(SessionError::from)?)
        })
    }

    fn start(
        &self,
        program: HolderProgram,
    ) -> Boxed<'_, Result<Box<dyn HolderProcess>, HttpError>> {
        Box::pin(async move {
            let HolderProgram { argv, env, stdin, time_max } = program;
            let request = SessionExec {
                argv: Some(argv),
                env,
                stdin: Some(stdin),
                timeout_ms: Some(u64::try_from(time_max.as_millis()).unwrap_or(u64::MAX)),
                ..SessionExec::default()
            };
            let entry = &self.at_work.entry;
            let stream = self.commands.stream(&entry.tenant, &entry.id, request).await?;
            Ok(Box::new(ReaderProgram(stream)) as Box<dyn HolderProcess>)
        })
    }
}

/// A command of the session that a reader has started.
#[derive(Debug)]
struct ReaderProgram(ExecStream);

impl HolderProcess for ReaderProgram {
    fn next(&mut self) -> Boxed<'_, Option<HolderOutput>> {
        Box::pin(async {
            loop {
                return Some(match self.0.next().await? {
                    ExecEvent::Started(_) => continue,
                    ExecEvent::Stdout(bytes) => HolderOutput::Stdout(bytes),
                    ExecEvent::Stderr(bytes) => HolderOutput::Stderr(bytes),
                    ExecEvent::Ended(result) => HolderOutput::Ended(HolderExit {
                        code: result.exit_code,
                        signal: result.signal,
                        timed_out: result.timed_out,
                    }),
                });
            }
        })
    }
}
