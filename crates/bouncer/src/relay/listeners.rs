//! The listeners, all of them on the first thread, which distributes accepted connections to the
//! threads.

use std::io;
use std::sync::atomic::Ordering;

use mio::Registry;

use super::accept::{ACCEPT_PAUSE_US, AcceptedConnection, RelayListener};
use super::conn::EventSource;
use super::context::{PendingWork, ThreadContext, ThreadShutdown};
use super::orders::ThreadMessageKind;

/// Outcome of an attempt to accept a connection.
#[derive(Debug)]
pub(super) enum AcceptOutcome {
    /// A connection for this thread.
    Own(AcceptedConnection),
    /// A connection that was passed to another thread.
    Dealt,
    /// No connection waits, or none is accepted now.
    Nothing,
}

/// The listeners of a thread.
#[derive(Debug)]
pub(super) struct ThreadListeners {
    listeners: Vec<RelayListener>,
    /// Time at which to accept again after a resource was exhausted.
    again_us: Option<u64>,
}

impl ThreadListeners {
    /// Registers the listeners with the thread's epoll.
    pub(super) fn register(
        mut listeners: Vec<RelayListener>,
        registry: &Registry,
    ) -> io::Result<ThreadListeners> {
        for (place, listener) in (0..).zip(&mut listeners) {
            listener.register(registry, EventSource::Listener(place).token())?;
        }
        Ok(ThreadListeners { listeners, again_us: None })
    }

    /// Accepts one connection, and passes it to the thread with the fewest clients.
    pub(super) fn accept(&mut self, place: u32, context: &ThreadContext) -> AcceptOutcome {
        if context.ending != ThreadShutdown::No || self.again_us.is_some() {
            return AcceptOutcome::Nothing;
        }
        let number = place as usize;
        let Some(listener) = self.listeners.get(number) else { return AcceptOutcome::Nothing };
        match listener.accept() {
            Ok(Some(accepted)) => deal(accepted, number, context),
            Ok(None) => AcceptOutcome::Nothing,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "accept a client");
                self.again_us = Some(context.now_us + ACCEPT_PAUSE_US);
                AcceptOutcome::Nothing
            }
        }
    }

    /// Resumes accepting after a pause, at every listener: epoll reports pending connections only
    /// once.
    pub(super) fn accept_again(&mut self, context: &mut ThreadContext) {
        if self.again_us.is_some_and(|at| at <= context.now_us) {
            self.again_us = None;
            for place in (0..).take(self.listeners.len()) {
                context.work.push_back(PendingWork::Accept(place));
            }
        }
    }

    /// Returns the end of the pause, if there is one.
    pub(super) fn again_us(&self) -> Option<u64> {
        self.again_us
    }

    /// Removes the listeners, for another process.
    pub(super) fn take(&mut self) -> Vec<RelayListener> {
        std::mem::take(&mut self.listeners)
    }

    /// Closes the listeners: the system refuses new connections.
    pub(super) fn close(&mut self) {
        self.listeners.clear();
    }
}

/// Passes a connection to the thread with the fewest clients.
fn deal(accepted: AcceptedConnection, listener: usize, context: &ThreadContext) -> AcceptOutcome {
    let peers = context.common.peers.iter().enumerate();
    let fewest = peers.min_by_key(|(_, peer)| peer.load.load(Ordering::Relaxed));
    let own = &context.common.peers[context.index];
    let (index, peer) = fewest.unwrap_or((context.index, own));
    peer.load.fetch_add(1, Ordering::Relaxed);
    if index == context.index {
        return AcceptOutcome::Own(accepted);
    }
    peer.inbox.push(ThreadMessageKind::Accepted(accepted, listener));
    AcceptOutcome::Dealt
}
