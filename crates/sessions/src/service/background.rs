//! Background work of a running server, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use api::SessionState;
use node::drain::DrainHandle;
use node::task::Boxed;
use tokio::time;

use super::entry::SessionEntry;
use super::sessions::{Sessions, SessionsInner};
use crate::error::SessionError;

/// Longest time that the shutdown waits for pending writes to the store.
const STORE_MAX: Duration = Duration::from_secs(10);
/// Longest time that the shutdown waits for one session, in addition to the time for its turn.
const REST_MAX: Duration = Duration::from_secs(20);

impl Sessions {
    /// Runs the background work until the server drains; then stores everything and ends every
    /// sandbox. Running turns have `patience` to finish.
    pub fn work<'a>(&'a self, drain: &'a DrainHandle, patience: Duration) -> Boxed<'a, ()> {
        Box::pin(async move {
            let Some(inner) = self.supported() else { return drain.begun().await };
            let lost = inner.lost.lock().take();
            let background = async {
                tokio::join!(
                    inner.lease_keeper.keep(),
                    inner.takeover.take_over_lost(),
                    inner.handover.hand_over_while_draining(),
                    inner.prefetch.fetch_all(),
                    inner.sweeper.keep_deadlines(),
                    inner.sweeper.sweep(),
                    inner.sweeper.make_disks(),
                    inner.prewarm.keep_ready(),
                    inner.sweeper.heed_losses(lost),
                    inner.disk_archive.snapshot_due(),
                );
            };
            tokio::select! {
                () = background => {}
                () = drain.begun() => {}
            }
            inner.shut_down(patience).await;
        })
    }
}

impl SessionsInner {
    /// Hands a resting session over to another server.
    async fn hand_over(self: &Arc<Self>, entry: &Arc<SessionEntry>) -> Result<(), SessionError> {
        let (entry, _transition) = self.lifecycle.hold(&entry.tenant, &entry.id).await?;
        if entry.session_state() != SessionState::Ended && entry.body().is_none() {
            self.disk_archive.store_files(&entry, None).await?;
            let taker = self.cluster.taker(&entry.id);
            self.directory.let_go(&entry, taker.as_deref()).await?;
        }
        Ok(())
    }

    /// Stores everything and ends every sandbox.
    async fn shut_down(self: &Arc<Self>, patience: Duration) {
        self.prewarm.close().await;
        self.templates.stop().await;
        let entries = self.directory.all();
        let rest = |entry: Arc<SessionEntry>| async move {
            let turn = entry.state.lock().turns.current().cloned();
            if let Some(turn) = turn {
                // Queued messages have no time left.
                self.lifecycle.leave(&entry, SessionState::Paused, "the server stops");
                drop(time::timeout(patience, turn.over()).await);
            }
            let rested = async {
                self.lifecycle.rest_now(&entry, "the server stops").await;
                if self.is_shared
                    // It may have been handed over just now.
                    && !entry.is_left()
                    && let Err(error) = self.hand_over(&entry).await
                {
                    tracing::warn!(session = %entry.id, error = &error as &dyn std::error::Error,
                        "the files of a session are on this server alone");
                }
            };
            if time::timeout(REST_MAX, rested).await.is_err() {
                tracing::error!(session = %entry.id, "a session could not be put to rest");
            }
        };
        // Concurrently: each session waits for its own turn, and expensive work is limited
        // elsewhere.
        futures_util::future::join_all(entries.into_iter().map(rest)).await;
        self.workspaces.discard_ready().await;
        if time::timeout(STORE_MAX, self.writer.close()).await.is_err() {
            // A restart after the store is back finds the durable state and the files.
            tracing::error!("the store cannot be reached; unwritten changes are lost");
        }
    }
}
