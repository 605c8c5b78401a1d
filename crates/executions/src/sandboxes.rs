//! Source of sandboxes: the engine, or a script in tests.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use crate::error::RequestRefusal;
use crate::templates;
use sandbox::{OutputSink, ProgramExit, SandboxCommand, SandboxError, SandboxLayers, WarmRuntime};

/// Errors of a file that only content of a template can cause: EACCES, ENOTDIR, EISDIR, ELOOP.
/// Without a template, a sandbox begins empty.
const IN_THE_WAY: [i32; 4] = [13, 20, 21, 40];

/// Reason why a program was not run to its end.
#[derive(Debug)]
pub(crate) enum SandboxFailure {
    /// The files of the request do not fit into the limits of the request.
    NoRoom,
    /// The request was accepted, but is not valid any more.
    Refused(RequestRefusal),
    /// Cove failed; details are for the log.
    Infrastructure(Box<dyn Error + Send + Sync>),
}

pub(crate) type Pending<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, SandboxFailure>> + Send + 'a>>;

/// Provider of sandboxes.
pub(crate) trait SandboxProvider: Send + Sync {
    /// Waits for a prepared sandbox.
    fn sandbox(&self) -> Pending<'_, Box<dyn LeasedSandbox>>;

    /// Waits for a sandbox with a loopback, for commands that listen there.
    fn connected(&self) -> Pending<'_, Box<dyn LeasedSandbox>>;

    /// Waits for a sandbox over these layers, with a loopback if `is_connected`.
    fn layered<'a>(
        &'a self,
        is_connected: bool,
        layers: &'a SandboxLayers,
    ) -> Pending<'a, Box<dyn LeasedSandbox>>;

    /// Returns the warm runtimes.
    fn runtimes(&self) -> &[WarmRuntime];

    /// Waits for a sandbox in which the runtime called `name` waits for its program; `None` if
    /// there is no such runtime.
    fn warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>>;

    /// Returns a sandbox with a warm runtime and a loopback.
    fn connected_warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>>;
}

/// A sandbox; dropping it kills all its processes.
pub(crate) trait LeasedSandbox: Send {
    /// Runs one program to its end.
    fn run<'a>(
        &'a mut self,
        command: SandboxCommand,
        sink: &'a mut dyn OutputSink,
    ) -> Pending<'a, ProgramExit>;
}

impl SandboxProvider for sandbox::Engine {
    fn sandbox(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
        Box::pin(async {
            let sandbox: Box<dyn LeasedSandbox> = Box::new(sandbox::Engine::sandbox(self).await?);
            Ok(sandbox)
        })
    }

    fn connected(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
        Box::pin(async {
            let sandbox: Box<dyn LeasedSandbox> = Box::new(self.connected_sandbox().await?);
            Ok(sandbox)
        })
    }

    fn layered<'a>(
        &'a self,
        is_connected: bool,
        layers: &'a SandboxLayers,
    ) -> Pending<'a, Box<dyn LeasedSandbox>> {
        Box::pin(async move {
            let sandbox = self.layered_sandbox(is_connected, layers).await?;
            let sandbox: Box<dyn LeasedSandbox> = Box::new(sandbox);
            Ok(sandbox)
        })
    }

    fn runtimes(&self) -> &[WarmRuntime] {
        sandbox::Engine::runtimes(self)
    }

    fn warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        Box::pin(async move {
            let sandbox = sandbox::Engine::warm(self, name).await?;
            Ok(sandbox.map(|sandbox| -> Box<dyn LeasedSandbox> { Box::new(sandbox) }))
        })
    }

    fn connected_warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        Box::pin(async move {
            let sandbox = sandbox::Engine::connected_warm(self, name).await?;
            Ok(sandbox.map(|sandbox| -> Box<dyn LeasedSandbox> { Box::new(sandbox) }))
        })
    }
}

impl LeasedSandbox for sandbox::Sandbox {
    fn run<'a>(
        &'a mut self,
        command: SandboxCommand,
        sink: &'a mut dyn OutputSink,
    ) -> Pending<'a, ProgramExit> {
        Box::pin(async { Ok(sandbox::Sandbox::run(self, command, sink).await?) })
    }
}

impl From<SandboxError> for SandboxFailure {
    fn from(error: SandboxError) -> SandboxFailure {
        match error {
            // ENOSPC, and ENOMEM if memory runs out before the disk limit is reached.
            SandboxError::File(failure) if [28, 12].contains(&failure.errno) => {
                SandboxFailure::NoRoom
            }
            SandboxError::File(failure) if IN_THE_WAY.contains(&failure.errno) => {
                SandboxFailure::Refused(templates::in_the_way(failure.to_string()))
            }
            error => SandboxFailure::Infrastructure(Box::new(error)),
        }
    }
}
