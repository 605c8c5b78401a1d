//! Files of sessions in the object store: disks at rest, and snapshots of live sessions, from which
//! another server continues them if this one is lost.
//!
//! `sessions.snapshots` determines when snapshots are made ([`SnapshotPolicy`]). The files of a
//! session that stops or rests are stored regardless of it.

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

/// Interval of the search for sessions whose snapshot is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Due snapshots that are made concurrently. Each is copied, read and compressed, which occupies a
/// processor.
const DUE_AT_ONCE: usize = 2;

/// Stores and removes files of sessions, on this server and in the object store.
pub(crate) struct DiskArchive {
    config: CurrentSettings<SessionsConfig>,
    workspaces: WorkspaceStore,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    /// True if the disk of a stopped session stays here until it has been cold for long: no other
    /// server would continue it, and the object store is on the same disk.
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

    /// Makes the files of a stopping session without a sandbox durable, locally or in the object
    /// store. An upload is abandoned if a request resumes the session, which continues with its
    /// disk here; returns false then. The caller holds its transition, and passes the disk if it
    /// has just detached it.
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

    /// Uploads the disk of a session without a sandbox. The caller holds its transition, and passes
    /// the disk if it has just detached it.
    pub(super) async fn store_files(
        &self,
        entry: &Arc<SessionEntry>,
        settled: Option<&SettledDisk>,
    ) -> Result<(), SessionError> {
        self.store_files_until(entry, settled, pending()).await.map(drop)
    }

    /// Like [`DiskArchive::store_files`], but abandoned if a request wants the session, whose disk
    /// stays here unchanged. Returns false then.
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
        // Not cancellable, because it attaches the disk.
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

    /// Returns the disk of a session, if it is on this server.
    async fn disk_to_store(&self, entry: &SessionEntry) -> Result<Option<DiskId>, SessionError> {
        let (disk, is_stored) = {
            let row = &entry.state.lock().row;
            // A session that was taken over and not used since has its files only in the object
            // store.
            let is_here = row.disk_server.as_deref() == Some(&*self.cluster.run().id);
            let disk = row.disk.clone().filter(|_| is_here || row.manifest.is_none());
            (disk, row.manifest.is_some())
        };
        let Some(disk) = disk else { return Ok(None) };
        // Another server has stored it, and it was not restored here since.
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

    /// Records the object store location of a session's files. Replaced objects are removed once
    /// the row is written, which only the session's owner can do. The caller holds `storing`.
    async fn stored(
        &self,
        entry: &Arc<SessionEntry>,
        StoredDisk { manifest, replaced }: StoredDisk,
    ) -> Result<(), SessionError> {
        let before = entry.state.lock().row.manifest.replace(manifest.clone());
        if let Err(error) = self.directory.save(entry).await {
            // Nothing is removed, so the state is valid whether or not the row was written.
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

    /// Removes the disk of a session for good, and the stored files of its previous disk.
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

    /// Uploads the files of a live session.
    ///
    /// # Errors
    /// If the sandbox has ended, the object store or the store cannot be written, or another server
    /// owns the session by now.
    pub(super) async fn snapshot_live(&self, at_work: &SandboxUse) -> Result<(), SessionError> {
        self.snapshot_of(&at_work.entry, &at_work.body).await
    }

    /// Uploads the files in the background of an answered request. If the sandbox ends meanwhile,
    /// its later state is stored after this one.
    pub(super) async fn snapshot_behind(&self, at_work: &SandboxUse) {
        self.try_snapshot(&at_work.entry, &at_work.body).await;
    }

    async fn try_snapshot(&self, entry: &Arc<SessionEntry>, body: &SessionSandbox) {
        let stored = self.snapshot_of(entry, body).await;
        // A session that was released meanwhile belongs to another server, with its files.
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
        entry: &Arc<SessionEntry>,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        // The end of the sandbox takes this lock before it stores or removes files.
        let _storing = entry.storing.lock().await;
        if entry.state.lock().left {
            let message = "the session is another server's by now".to_owned();
            return Err(SessionError::Conflict(message));
        }
        self.store_living(entry, body).await
    }

    /// Uploads the files of a live session. The caller holds `storing`.
    ///
    /// # Errors
    /// As [`DiskArchive::snapshot_live`].
    pub(super) async fn store_living(
        &self,
        entry: &Arc<SessionEntry>,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let Some(disk) = body.disk() else {
            return Err(SessionError::SandboxEnded("before its files were stored".to_owned()));
        };
        let (chain, before) = {
            let row = &entry.state.lock().row;
            (row.chain.clone(), row.manifest.clone())
        };
        // Writes made during the copy belong to the next snapshot.
        body.stored_ms.store(clock::wall_ms(), Ordering::Relaxed);
        let user = body.sandbox().ok();
        let before = before.as_deref();
        let storing = self.workspaces.snapshot(disk, user, &chain, before, &entry.uploaded);
        let stored = storing.await?;
        self.stored(entry, stored).await
    }

    /// Uploads the files of sessions at intervals, if the policy asks for that.
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
    /// Returns whether its files were stored at least `every` ago and it has been used since.
    fn is_snapshot_due(&self, every: Duration) -> bool {
        let stored_ms = self.stored_ms.load(Ordering::Relaxed);
        let is_changed = self.uses.count() > 0 || self.used_ms.load(Ordering::Relaxed) >= stored_ms;
        let age = Duration::from_millis(clock::wall_ms().saturating_sub(stored_ms));
        is_changed && age >= every
    }
}
