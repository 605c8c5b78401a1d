//! Snapshots of sessions that live: their files in the object store, from which another server goes
//! on with them when this one is lost.
//!
//! When one is made, `sessions.snapshots` says ([`SnapshotPolicy`]). One that stops or rests is
//! stored whatever that says.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use node::clock;
use tokio::time;

use super::SessionsInner;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use crate::config::SnapshotPolicy;
use crate::error::SessionError;

/// Interval at which sessions are looked for whose files are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions whose files are brought to the object store at a time because they are due. Each is
/// copied, read and compressed, which takes a processor.
const DUE_AT_ONCE: usize = 2;

impl SessionsInner {
    /// Brings the files of a session that lives to the object store.
    ///
    /// # Errors
    /// When the sandbox is gone, the object store or the store cannot be written, or the session is
    /// another server's by now.
    pub(super) async fn snapshot_live(&self, at_work: &SandboxUse) -> Result<(), SessionError> {
        self.snapshot_of(&at_work.entry, &at_work.body).await
    }

    /// The same behind what was answered already. Whoever has ended the sandbox meanwhile stores
    /// what there is later than this.
    pub(super) async fn snapshot_behind(&self, at_work: &SandboxUse) {
        self.try_snapshot(&at_work.entry, &at_work.body).await;
    }

    async fn try_snapshot(&self, entry: &SessionEntry, body: &SessionSandbox) {
        let stored = self.snapshot_of(entry, body).await;
        // One that was left meanwhile is another server's, with its files.
        if let Err(error) = stored
            && body.disk().is_some()
            && !entry.state.lock().left
        {
            tracing::warn!(session = %entry.id,
                error = &error as &dyn std::error::Error,
                "the files of a session could not be brought to the object store");
        }
    }

    async fn snapshot_of(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        // Whoever ends the sandbox now waits for this before he stores or removes files himself.
        let _storing = entry.storing.lock().await;
        if entry.state.lock().left {
            let message = "the session is another server's by now".to_owned();
            return Err(SessionError::Conflict(message));
        }
        self.store_living(entry, body).await
    }

    /// Brings the files of a session that lives to the object store. The caller holds `storing`.
    ///
    /// # Errors
    /// As [`SessionsInner::snapshot_live`].
    pub(super) async fn store_living(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let Some(disk) = body.disk() else {
            return Err(SessionError::SandboxEnded("before its files were stored".to_owned()));
        };
        let (chain, before) = {
            let row = &entry.state.lock().row;
            (row.chain.clone(), row.manifest.clone())
        };
        // What is written while it is copied is in the next one.
        body.stored_ms.store(clock::wall_ms(), Ordering::Relaxed);
        let user = body.sandbox().ok();
        let stored = self.workspaces.snapshot(disk, user, &chain, before.as_deref()).await?;
        self.stored(entry, stored).await
    }

    /// Brings the files of sessions to the object store at intervals, where that is wanted.
    pub(super) async fn snapshot_due(self: &Arc<Self>) {
        loop {
            time::sleep(LOOK_EVERY).await;
            let config = self.config.now();
            if config.snapshot_policy() != SnapshotPolicy::Every {
                continue;
            }
            let every = Duration::from_secs(config.snapshot_every_s.into());
            drop(config);
            let due = self.directory.choose(|entry| {
                let body = entry.body().filter(|body| body.is_snapshot_due(every))?;
                Some((Arc::clone(entry), body))
            });
            let stored = due.into_iter().map(|(entry, body)| {
                let inner = Arc::clone(self);
                async move { inner.try_snapshot(&entry, &body).await }
            });
            stream::iter(stored).buffer_unordered(DUE_AT_ONCE).collect::<()>().await;
        }
    }
}

impl SessionSandbox {
    /// Returns whether its files were stored that long ago, and somebody has worked with it since:
    /// it is at work, or was.
    fn is_snapshot_due(&self, every: Duration) -> bool {
        let stored_ms = self.stored_ms.load(Ordering::Relaxed);
        let is_changed = self.uses.count() > 0 || self.used_ms.load(Ordering::Relaxed) >= stored_ms;
        let age = Duration::from_millis(clock::wall_ms().saturating_sub(stored_ms));
        is_changed && age >= every
    }
}
