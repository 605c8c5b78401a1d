//! Subscription to a session: stored events first, then live ones.

use std::sync::Arc;
use std::time::Duration;

use api::SessionEvent;
use node::store::StoreDialect;
use tokio::sync::watch;
use tokio::time;

use super::TAKE_MAX;
use super::log::{NextEvent, SessionLog};
use crate::error::SessionError;

/// Polling interval for events of a session that another server may own.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Pause before the store is read again after a failure.
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// Subscription to a session, with its own position.
#[derive(Debug)]
pub(crate) struct SessionSubscription {
    log: Arc<SessionLog>,
    changed: watch::Receiver<u64>,
    after: u64,
    is_over: bool,
}

impl SessionSubscription {
    pub(super) fn new(
        log: Arc<SessionLog>,
        changed: watch::Receiver<u64>,
        after: u64,
    ) -> SessionSubscription {
        SessionSubscription { log, changed, after, is_over: false }
    }

    /// Returns the next events, at least one, in order. Returns `None` if no event can follow: the
    /// session has ended, or the store is broken, which is logged. Slow subscribers miss partial
    /// messages.
    ///
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Arc<SessionEvent>>> {
        while !self.is_over {
            // Marked before reading, so that no later change is missed.
            self.changed.mark_unchanged();
            let mut after = self.after;
            let events = match self.log.next(&mut after) {
                NextEvent::Live(events) => {
                    self.after = after;
                    if events.is_empty() {
                        // Cannot fail: the log, which is held here, owns the sender.
                        drop(self.changed.changed().await);
                        continue;
                    }
                    events
                }
                NextEvent::Stored { up_to, is_over } => {
                    let events = self.stored(up_to.unwrap_or(u64::MAX)).await?;
                    if events.is_empty() {
                        match up_to {
                            // Later events are in memory.
                            Some(up_to) => self.after = self.after.max(up_to),
                            None if is_over => self.is_over = true,
                            None => self.wait_elsewhere().await,
                        }
                        continue;
                    }
                    events
                }
            };
            if let Some(last) = events.last() {
                self.after = self.after.max(last.seq);
            }
            return Some(events);
        }
        None
    }

    /// Reads a page from the store. Returns `None` if the store is broken.
    async fn stored(&mut self, up_to: u64) -> Option<Vec<Arc<SessionEvent>>> {
        loop {
            let store = &self.log.shared().store;
            let session = self.log.session();
            let page = store.event_page(session, self.after, up_to, TAKE_MAX, Vec::new()).await;
            match page {
                Ok(events) => return Some(events.into_iter().map(Arc::new).collect()),
                // Retried until the store is back or the subscriber is dropped.
                Err(SessionError::Unavailable(_)) => time::sleep(STORE_PAUSE).await,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, session, "failed to read events");
                    self.is_over = true;
                    return None;
                }
            }
        }
    }

    /// Waits until there may be more events of a session that is not alive here.
    async fn wait_elsewhere(&mut self) {
        let changed = self.changed.changed();
        match self.log.shared().store.dialect() {
            // No other server uses the file.
            StoreDialect::Sqlite => drop(changed.await),
            StoreDialect::Postgres => drop(time::timeout(POLL_EVERY, changed).await),
        }
    }
}
