//! Signals that ask this process to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that ask this process to end.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// Starts to receive the signals instead of their default action.
    pub(crate) fn new() -> io::Result<EndSignals> {
        Ok(EndSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal; returns the exit code for it.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 128 + 2,
            _ = self.terminate.recv() => 128 + 15,
            _ = self.hang_up.recv() => 128 + 1,
        }
    }
}
