//! Shutdown of a server, from the first signal to the last byte of the last response.
//!
//! Draining has three steps. When it *begins*, new work is refused and `/health/ready` returns 503,
//! while the listener stays open so that load balancers and clients receive that answer. When its
//! time has passed, remaining work is *cancelled*: its futures are dropped, which kills the
//! programs they run. When no work is left, the connections are closed. A second signal skips the
//! waiting.

use crate::task::Boxed;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Time that cancelled work may take to end before the server stops regardless.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// Phase of the server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DrainPhase {
    /// The server takes work.
    Running,
    /// The server finishes its work.
    Draining,
    /// The server abandons its work.
    Cancelled,
}

/// Handle shared by all components that take work or wait for its end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DrainHandle(Arc<DrainShared>);

#[derive(Debug)]
struct DrainShared {
    phase: watch::Sender<DrainPhase>,
    /// Pieces of work in progress.
    working: watch::Sender<usize>,
}

/// A piece of work in progress; it ends when this is dropped.
#[derive(Debug)]
pub struct WorkInProgress(Arc<DrainShared>);

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        self.0.working.send_modify(|count| *count -= 1);
    }
}

impl Default for DrainHandle {
    fn default() -> Self {
        DrainHandle::new()
    }
}

impl DrainHandle {
    /// Creates the handle of a server that takes work.
    pub fn new() -> DrainHandle {
        let phase = watch::Sender::new(DrainPhase::Running);
        DrainHandle(Arc::new(DrainShared { phase, working: watch::Sender::new(0) }))
    }

    /// Begins to drain. Does nothing if that has happened already.
    pub fn begin(&self) {
        self.advance(DrainPhase::Draining);
    }

    /// Cancels the work that is still in progress.
    pub fn cancel(&self) {
        self.advance(DrainPhase::Cancelled);
    }

    /// The phase only ever moves forward.
    fn advance(&self, to: DrainPhase) {
        self.0.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            *phase = to.max(*phase);
            forward
        });
    }

    /// Returns whether new work is refused.
    pub fn is_draining(&self) -> bool {
        *self.0.phase.borrow() >= DrainPhase::Draining
    }

    /// Starts a piece of work, unless the server is draining.
    pub fn work(&self) -> Option<WorkInProgress> {
        // Counted before looking: a drain that begins in between either sees the count or is seen.
        self.0.working.send_modify(|count| *count += 1);
        let working = WorkInProgress(Arc::clone(&self.0));
        (!self.is_draining()).then_some(working)
    }

    /// Returns the number of pieces of work in progress.
    pub fn working(&self) -> usize {
        *self.0.working.borrow()
    }

    /// Returns when draining has begun.
    pub async fn begun(&self) {
        self.reached(DrainPhase::Draining).await;
    }

    /// Returns when work in progress is cancelled.
    pub async fn cancelled(&self) {
        self.reached(DrainPhase::Cancelled).await;
    }

    async fn reached(&self, phase: DrainPhase) {
        let mut phases = self.0.phase.subscribe();
        // The sender lives in `self`, so waiting ends in no other way.
        drop(phases.wait_for(|current| *current >= phase).await);
    }

    /// Returns when draining has begun and no work is left. Cancels remaining work after
    /// `patience`.
    pub fn finished<'a>(&'a self, patience: Duration) -> Boxed<'a, ()> {
        Box::pin(async move {
            self.begun().await;
            let mut working = self.0.working.subscribe();
            let done = working.wait_for(|count| *count == 0);
            tokio::select! {
                _ = done => return,
                () = tokio::time::sleep(patience) => {
                    tracing::warn!(
                        working = self.working(),
                        patience_s = patience.as_secs_f64(),
                        "work was still in progress when the time to drain was up; it is cancelled"
                    );
                    self.cancel();
                }
                () = self.cancelled() => {}
            }
            let mut working = self.0.working.subscribe();
            let gone = working.wait_for(|count| *count == 0);
            if tokio::time::timeout(CANCEL_MAX, gone).await.is_err() {
                tracing::error!(working = self.working(), "cancelled work did not end");
            }
        })
    }

    /// Begins to drain at the first SIGTERM or SIGINT and cancels at the second. Never ends.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals(&self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let drain = self.clone();
        Ok(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if drain.is_draining() {
                    tracing::info!(signal = name, "second signal: work in progress is cancelled");
                    drain.cancel();
                } else {
                    tracing::info!(signal = name, working = drain.working(), "draining");
                    drain.begin();
                }
            }
        })
    }
}

/// SIGHUP, by which an operator requests a reload of the configuration.
#[derive(Debug)]
pub struct Hangups(Signal);

impl Hangups {
    /// As [`Hangups::new`], before there is a runtime: signals that arrive before the first wait
    /// count as one. Call it at the start of a process, because the signal's default action ends
    /// the process.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub fn before_runtime() -> io::Result<Hangups> {
        // The handler remains when the runtime is dropped; it starts no thread.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _inside = runtime.enter();
        Hangups::new()
    }

    /// Handles the signal from now on; without a handler it ends the process.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub fn new() -> io::Result<Hangups> {
        signal(SignalKind::hangup()).map(Hangups)
    }

    /// Returns at the next signal. Several that arrive at once count as one.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            // The runtime is ending.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests;
