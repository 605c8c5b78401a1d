//! A listener: what is stored first, then what happens.

use std::sync::Arc;
use std::time::Duration;

use api::SessionEvent;
use node::store::StoreDialect;
use tokio::sync::watch;
use tokio::time;

use super::TAKE_MAX;
use super::log::{NextEvent, SessionLog};
use crate::error::SessionError;

/// Interval at which the store is asked for events of a session that another server may have.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Pause before a store that cannot be read is asked again.
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// Listens to a session, with a position of its own.
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

    /// The next events, never none of them, in order. None when nothing can come any more: the
    /// session has ended, or the store is broken, which is logged. Pieces of messages are left out
    /// for who is slow.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Vec<Arc<SessionEvent>>> {
        while !self.is_over {
            // Before the look, so that no change after it is missed.
            self.changed.mark_unchanged();
            let mut after = self.after;
            let events = match self.log.next(&mut after) {
                NextEvent::Live(events) => {
                    self.after = after;
                    if events.is_empty() {
                        // The sender is in the log, which is held here.
                        drop(self.changed.changed().await);
                        continue;
                    }
                    events
                }
                NextEvent::Stored { up_to, is_over } => {
                    let events = self.stored(up_to.unwrap_or(u64::MAX)).await?;
                    if events.is_empty() {
                        match up_to {
                            // The rest is in memory.
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

    /// A page of the store. None when it is broken.
    async fn stored(&mut self, up_to: u64) -> Option<Vec<Arc<SessionEvent>>> {
        loop {
            let store = &self.log.shared().store;
            let session = self.log.session();
            let page = store.event_page(session, self.after, up_to, TAKE_MAX, Vec::new()).await;
            match page {
                Ok(events) => return Some(events.into_iter().map(Arc::new).collect()),
                // It comes back, or the listener goes.
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

    /// Waits until there may be more of a session that is not alive here.
    async fn wait_elsewhere(&mut self) {
        let changed = self.changed.changed();
        match self.log.shared().store.dialect() {
            // Nobody else has the file.
            StoreDialect::Sqlite => drop(changed.await),
            StoreDialect::Postgres => drop(time::timeout(POLL_EVERY, changed).await),
        }
    }
}
