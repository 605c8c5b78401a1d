//! Files of sessions in the object store: those of disks at rest, and snapshots of sessions that
//! live, from which another server goes on with them when this one is lost.
//!
//! When one is made, `sessions.snapshots` says ([`SnapshotPolicy`]). One that stops or rests is
//! stored whatever that says.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use node::clock;
use node::current::CurrentSettings;
use tokio::time;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::shared::SharedParts;
use crate::config::{SessionsConfig, SnapshotPolicy};
use crate::error::SessionError;
use crate::workspace::{DiskId, SettledDisk, StoredDisk, WorkspaceStore, disk_of};

/// Interval at which sessions are looked for whose files are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions whose files are brought to the object store at a time because they are due. Each is
/// copied, read and compressed, which takes a processor.
const DUE_AT_ONCE: usize = 2;

/// Files of sessions, here and in the object store.
pub(crate) struct DiskArchive {
    config: CurrentSettings<SessionsConfig>,
    workspaces: WorkspaceStore,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    /// True if the disk of a session that stops stays here until it has been cold for long: nobody
    /// else goes on with it, and the object store is on the same disk.
    keeps_stopped: bool,
}

impl DiskArchive {
    pub(super) fn new(shared: &SharedParts, keeps_stopped: bool) -> Arc<DiskArchive> {
        Arc::new(DiskArchive {
            config: shared.config.clone(),
            workspaces: shared.workspaces.clone(),
            cluster: Arc::clone(&shared.cluster),
            directory: Arc::clone(&shared.directory),
            keeps_stopped,
        })
    }

    /// Makes the files of a session durable that stops and has no sandbox any more: where this
    /// server finds them again, or where each server does. The latter is given up when somebody
    /// resumes the session, which goes on with its disk here; returns whether it was not. The
    /// caller holds its transition, and passes the disk that it has just put down.
    pub(super) async fn store_stopped(
        &self,
        entry: &Arc<SessionEntry>,
        settled: Option<&SettledDisk>,
    ) -> Result<bool, SessionError> {
        if !self.keeps_stopped {
            return self.store_files_until(entry, settled, entry.resumed.raised()).await;
        }
        let _storing = entry.storing.lock().await;
        if let Some(disk) = self.disk_to_store(entry).await? {
            self.settle(&disk, settled).await?;
        }
        Ok(true)
    }

    /// Brings the disk of a session without a sandbox to the object store. The caller holds its
    /// transition, and passes the disk if it has just put it down.
    pub(super) async fn store_files(
        &self,
        entry: &Arc<SessionEntry>,
        settled: Option<&SettledDisk>,
    ) -> Result<(), SessionError> {
        self.store_files_until(entry, settled, pending()).await.map(drop)
    }

    /// The same, given up when somebody wants to work with the session: its disk is here, as it
    /// was. Returns whether it was not.
    pub(super) async fn store_files_unless_wanted(
        &self,
        entry: &Arc<SessionEntry>,
    ) -> Result<bool, SessionError> {
        self.store_files_until(entry, None, entry.wanted.raised()).await
    }

    async fn store_files_until(
        &self,
        entry: &Arc<SessionEntry>,
        settled: Option<&SettledDisk>,
        given_up: impl Future<Output = ()>,
    ) -> Result<bool, SessionError> {
        let _storing = entry.storing.lock().await;
        let Some(disk) = self.disk_to_store(entry).await? else { return Ok(true) };
        // Not to be given up: the disk is attached for it.
        self.settle(&disk, settled).await?;
        let (chain, before) = {
            let row = &entry.state.lock().row;
            (row.chain.clone(), row.manifest.clone())
        };
        let before = before.as_deref();
        let storing = self.workspaces.snapshot_cold(&disk, &chain, before, &entry.uploaded);
        let stored = tokio::select! {
            biased;
            () = given_up => return Ok(false),
            stored = storing => stored?,
        };
        self.stored(entry, stored).await?;
        Ok(true)
    }

    /// Returns the disk of a session that is on this server, if one is.
    async fn disk_to_store(&self, entry: &SessionEntry) -> Result<Option<DiskId>, SessionError> {
        let (disk, is_stored) = {
            let row = &entry.state.lock().row;
            // One that was taken over and has not been used since is in the object store alone.
            let is_here = row.disk_server.as_deref() == Some(&*self.cluster.run().id);
            let disk = row.disk.clone().filter(|_| is_here || row.manifest.is_none());
            (disk, row.manifest.is_some())
        };
        let Some(disk) = disk else { return Ok(None) };
        // It was not brought here since another server stored it.
        let is_missing = is_stored && !self.workspaces.has_disk(&disk).await?;
        Ok((!is_missing).then_some(disk))
    }

    /// Prepares a detached disk for storing.
    async fn settle(
        &self,
        disk: &DiskId,
        settled: Option<&SettledDisk>,
    ) -> Result<(), SessionError> {
        match settled.is_some_and(|settled| settled.id() == disk) {
            true => Ok(()),
            false => self.workspaces.settle(disk).await,
        }
    }

    /// Notes where the files of a session are in the object store. What was there before and is not
    /// needed any more is removed when the row is written, which only the session's owner can do.
    /// The caller holds `storing`.
    async fn stored(
        &self,
        entry: &SessionEntry,
        StoredDisk { manifest, replaced }: StoredDisk,
    ) -> Result<(), SessionError> {
        let before = entry.state.lock().row.manifest.replace(manifest.clone());
        if let Err(error) = self.directory.save(entry).await {
            // Nothing of it is removed, so it is right whether or not the row was written.
            entry.state.lock().row.manifest = before;
            return Err(error);
        }
        entry.uploaded.clear();
        self.cluster.announce_stored(entry, &manifest);
        self.workspaces.remove_replaced(&replaced).await;
        if let Some(before) = before.filter(|before| disk_of(before) != disk_of(&manifest)) {
            self.workspaces.remove_stored(&before).await;
        }
        Ok(())
    }

    /// Removes the disk of a session for good, and what is stored of one that it had before.
    pub(super) async fn remove_disks(&self, disk: Option<&str>, manifest: Option<&str>) {
        if let Some(disk) = disk {
            self.workspaces.remove(disk).await;
        }
        if let Some(manifest) =
            manifest.filter(|manifest| disk.is_none() || disk_of(manifest) != disk)
        {
            self.workspaces.remove_stored(manifest).await;
        }
    }

    /// Brings the files of a session that lives to the object store.
    ///
    /// # Errors
    /// If the sandbox is gone, the object store or the store cannot be written, or the session is
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
        // The end of the sandbox waits for this before files are stored or removed.
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
    /// As [`DiskArchive::snapshot_live`].
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
        let before = before.as_deref();
        let storing = self.workspaces.snapshot(disk, user, &chain, before, &entry.uploaded);
        let stored = storing.await?;
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
                let archive = Arc::clone(self);
                async move { archive.try_snapshot(&entry, &body).await }
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
