//! Copies of sessions: forks and snapshots. Both use a layer that is a copy of the parent's disk at
//! one moment. The parent does not change, and its chain does not grow: if its disk itself became
//! the layer, a crash in between would leave a row that names a missing disk.

use std::fmt;
use std::sync::Arc;

use api::{SessionLimits, SessionState, SnapshotView};
use node::clock::rfc3339_of_ms as time;
use node::clock::{self, IdGenerator};
use node::current::CurrentSettings;

use super::admission::SandboxAdmission;
use super::books::{ResidentKey, ResidentLedger};
use super::cluster::ClusterPlace;
use super::create::{FirstUse, SessionCreation};
use super::detached::detached;
use super::directory::{SessionDirectory, SessionUse};
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::environment::LaunchEnvironment;
use super::factory::SandboxFactory;
use super::launch::ProgramLauncher;
use super::lifecycle::SessionLifecycle;
use super::limits::disk_size;
use super::requests::CreateExtras;
use super::shared::SharedParts;
use super::storage::{StorageQuota, StorageRequest};
use super::sweeps::timers::SweepTimers;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::store::rows::{LayerRow, SessionRow, SnapshotRow};
use crate::store::{PAGE_MAX, SecretStore, SessionStore};
use crate::workspace::{AttachedDisk, DiskSource, LayerId, WorkspaceStore};

/// Maximum number of copies in one request.
const FORKS_MAX: usize = 64;
/// Maximum number of layers below one disk: the kernel's limit for overlays is 500.
const CHAIN_MAX: usize = 100;
/// Maximum number of messages copied from a parent's conversation.
const MESSAGES_MAX: usize = 10_000;
/// Longest name of a snapshot.
const NAME_BYTES_MAX: usize = 200;

/// Base of a copy.
struct ForkBase<'a> {
    parent: &'a Arc<SessionEntry>,
    /// Layers with the parent's files.
    chain: &'a [LayerId],
    /// Disk of the copy, if one was created ahead.
    disk: Option<AttachedDisk>,
}

/// Makes copies of sessions: forks and snapshots.
pub struct SessionCopies {
    config: CurrentSettings<SessionsConfig>,
    store: SessionStore,
    secrets: SecretStore,
    ids: Arc<IdGenerator>,
    workspaces: WorkspaceStore,
    sweeps: Arc<SweepTimers>,
    cluster: Arc<ClusterPlace>,
    books: Arc<ResidentLedger>,
    directory: Arc<SessionDirectory>,
    storage: Arc<StorageQuota>,
    lifecycle: Arc<SessionLifecycle>,
    creation: Arc<SessionCreation>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    launcher: Arc<ProgramLauncher>,
}

impl fmt::Debug for SessionCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCopies").finish_non_exhaustive()
    }
}

impl SessionCopies {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
        creation: Arc<SessionCreation>,
        admission: Arc<SandboxAdmission>,
        sandboxes: Arc<SandboxFactory>,
        launcher: Arc<ProgramLauncher>,
    ) -> Arc<SessionCopies> {
        Arc::new(SessionCopies {
            config: shared.config.clone(),
            store: shared.store.clone(),
            secrets: shared.secrets.clone(),
            ids: Arc::clone(&shared.ids),
            workspaces: shared.workspaces.clone(),
            sweeps: Arc::clone(&shared.sweeps),
            cluster: Arc::clone(&shared.cluster),
            books: Arc::clone(&shared.books),
            directory: Arc::clone(&shared.directory),
            storage: Arc::clone(&shared.storage),
            lifecycle,
            creation,
            admission,
            sandboxes,
            launcher,
        })
    }

    pub(super) async fn fork_each(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
        extras: Vec<CreateExtras>,
        first_use: FirstUse,
    ) -> Result<Vec<(api::SessionView, Option<SandboxUse>)>, SessionError> {
        let copies = Arc::clone(self);
        if extras.is_empty() || extras.len() > FORKS_MAX {
            return Err(SessionError::invalid(
                "count",
                format!("must be between 1 and {FORKS_MAX}"),
            ));
        }
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            let limits = copies.check_forks(&tenant, &id, extras.len()).await?;
            // The parent's transition ends before any child requests room: the session to evict may
            // be waiting for this parent. Creating the first child's disk needs no place.
            let disk = copies.sandboxes.blank_disk(&limits);
            let (frozen, disk) = tokio::join!(copies.freeze(&tenant, &id), disk);
            let ((parent, chain), disk) = match (frozen, disk) {
                (Ok(frozen), Ok(disk)) => (frozen, disk),
                (Ok(_), Err(error)) => {
                    // The layer is unused now.
                    copies.sweeps.layers();
                    return Err(error);
                }
                (Err(error), disk) => {
                    if let Ok(disk) = disk {
                        copies.workspaces.discard(disk).await;
                    }
                    return Err(error);
                }
            };
            let mut first_disk = Some(disk);
            let mut made: Vec<(Arc<SessionEntry>, Option<SandboxUse>)> =
                Vec::with_capacity(extras.len());
            for extras in extras {
                let base = ForkBase { parent: &parent, chain: &chain, disk: first_disk.take() };
                let child = copies.child(base, extras, first_use);
                match Box::pin(child).await {
                    Ok(child) => made.push(child),
                    Err(error) => {
                        for (child, _) in made {
                            copies.undo(&child).await;
                        }
                        return Err(error);
                    }
                }
            }
            Ok(made
                .into_iter()
                .map(|(child, at_work)| (copies.directory.view(&child), at_work))
                .collect())
        })
        .await
    }

    /// Ends a copy because another copy of the same request failed.
    async fn undo(&self, child: &SessionEntry) {
        let held = match self.cluster.check_lease() {
            Ok(()) => self.lifecycle.hold_for(&child.tenant, &child.id, SessionUse::End).await,
            Err(error) => Err(error),
        };
        if let Ok((entry, _transition)) = held {
            let _also_failed = self.lifecycle.finish(&entry, "ended").await;
        }
    }

    /// Preserves a session's current files, from which new sessions can start.
    ///
    /// # Errors
    /// If there is no such session, or it has ended.
    pub async fn snapshot(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
        name: Option<String>,
    ) -> Result<SnapshotView, SessionError> {
        let copies = Arc::clone(self);
        if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(SessionError::invalid("name", format!("more than {NAME_BYTES_MAX} bytes")));
        }
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            copies.storage.check(&tenant, StorageRequest::default()).await?;
            let (entry, chain) = copies.freeze(&tenant, &id).await?;
            // Another server may start a session from it after this one is lost.
            copies.workspaces.publish_all(&chain).await?;
            let bytes = match chain.last() {
                Some(layer) => copies.workspaces.layer_bytes(layer).await,
                None => 0,
            };
            let row = SnapshotRow {
                id: copies.ids.next("snap_"),
                tenant: entry.tenant.to_string(),
                session: entry.id.to_string(),
                name,
                chain,
                bytes,
                template: entry.state.lock().row.template.clone(),
                created_ms: clock::wall_ms(),
            };
            let shown = shown(row.clone());
            let max =
                u64::try_from(copies.config.now().snapshots_max_per_tenant).unwrap_or(u64::MAX);
            if let Err(error) = copies.store.snapshots.insert(row, max).await {
                // The layer is unused now.
                copies.sweeps.layers();
                return Err(error);
            }
            Ok(shown)
        })
        .await
    }

    /// Returns snapshots of a tenant, newest first: of one session or of all, older than `before`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn snapshots(
        &self,
        tenant: &str,
        session: Option<&str>,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SnapshotView>, SessionError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let rows = self.store.snapshots.list(tenant, session, before, limit).await?;
        Ok(rows.into_iter().map(shown).collect())
    }

    /// Removes a snapshot. Sessions created from it are not affected.
    ///
    /// # Errors
    /// If there is no such snapshot.
    pub async fn delete_snapshot(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        if !self.store.snapshots.delete(tenant, id).await? {
            return Err(SessionError::NotFound("snapshot"));
        }
        self.sweeps.layers();
        Ok(())
    }

    /// Rejects copies that exceed the tenant's limits; returns the copies' limits.
    async fn check_forks(
        &self,
        tenant: &str,
        id: &str,
        count: usize,
    ) -> Result<SessionLimits, SessionError> {
        let limits = match self.directory.here(tenant, id) {
            Some(entry) => entry.state.lock().row.limits,
            None => self.directory.row(tenant, id).await?.limits,
        };
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let declared = disk_size(&self.config.now(), &limits).bytes.saturating_mul(count);
        self.storage.check(tenant, StorageRequest { stored: 0, declared }).await?;
        Ok(limits)
    }

    /// Returns a session, and a chain with its current files.
    async fn freeze(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<(Arc<SessionEntry>, Vec<LayerId>), SessionError> {
        let (entry, _transition) = self.lifecycle.hold(tenant, id).await?;
        let (row, body) = {
            let state = entry.state.lock();
            (state.row.clone(), state.body.clone())
        };
        if row.state == SessionState::Ended {
            return Err(SessionError::Ended);
        }
        if row.chain.len() >= CHAIN_MAX {
            let message = format!("a session stands on at most {CHAIN_MAX} layers");
            return Err(SessionError::Conflict(message));
        }
        let mut chain = row.chain.clone();
        // The sandbox is kept during the copy; an ending sandbox is not waited for.
        let at_work = body.and_then(|body| SandboxUse::of(&self.books, &entry, body, clock::now()));
        if let Some(at_work) = at_work
            && let Some(disk) = at_work.body.disk()
        {
            let user = at_work.body.sandbox().ok();
            let layer = self.workspaces.freeze_copy(&disk, user.as_ref()).await?;
            self.know_layer(&row.tenant, &layer).await?;
            chain.push(layer);
            return Ok((entry, chain));
        }
        if let Some(body) = entry.body() {
            self.lifecycle.put_down(&entry, &body).await;
        }
        let Some(disk) = row.disk.clone() else { return Ok((entry, chain)) };
        let used_ms = row.last_active_ms;
        let attached = self.workspaces.attach(&disk, row.manifest.as_deref(), used_ms).await?;
        if attached.source == DiskSource::Remote {
            {
                let mut state = entry.state.lock();
                state.row.disk = Some(attached.id.clone());
                state.row.disk_server = Some(self.cluster.run().id.clone());
            }
            self.directory.save(&entry).await?;
            self.books.keep_cold(&entry.id, &entry.tenant, clock::now());
        }
        let layer = self.workspaces.freeze_copy(&attached, None).await;
        let detach = node::task::blocking(move || drop(attached));
        detach.await.map_err(SessionError::internal)?;
        let layer = layer?;
        self.know_layer(&row.tenant, &layer).await?;
        chain.push(layer);
        Ok((entry, chain))
    }

    async fn know_layer(&self, tenant: &str, layer: &str) -> Result<(), SessionError> {
        let row = LayerRow {
            id: layer.to_owned(),
            tenant: tenant.to_owned(),
            bytes: self.workspaces.layer_bytes(layer).await,
            created_ms: clock::wall_ms(),
        };
        self.store.layers.insert(row).await
    }

    /// Creates a copy of a session over a chain.
    async fn child(
        self: &Arc<Self>,
        base: ForkBase<'_>,
        extras: CreateExtras,
        first_use: FirstUse,
    ) -> Result<(Arc<SessionEntry>, Option<SandboxUse>), SessionError> {
        let ForkBase { parent, chain, disk } = base;
        let prepared = self.prepare_child(parent, chain, extras).await;
        let (row, launch) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(disk) = disk {
                    self.workspaces.discard(disk).await;
                }
                return Err(error);
            }
        };
        let key = ResidentKey::Session(row.id.as_str().into());
        let made = Box::pin(self.make_child(row, disk)).await;
        let (row, body) = match made {
            Ok(made) => made,
            Err(error) => {
                self.books.remove(&key);
                return Err(error);
            }
        };
        let child = self.directory.enlist(row, (*launch).clone());
        let body = Arc::new(body);
        let at_work = self.creation.give_body(&child, Arc::clone(&body), first_use)?;
        if let Err(error) = self.copy_conversation(parent, &child).await {
            let _transition = child.transition.lock().await;
            self.lifecycle.finish(&child, "its conversation could not be copied").await?;
            return Err(error);
        }
        // Processes are not copied, so the template's start command runs again.
        if let Err(error) = Box::pin(self.creation.run_start_command(&child)).await {
            drop(at_work);
            let _transition = child.transition.lock().await;
            self.lifecycle.finish(&child, "its start command failed").await?;
            return Err(error);
        }
        self.lifecycle.enter(&child, "forked");
        self.launcher.start_in_background(&child, &body);
        Ok((child, at_work))
    }

    /// Prepares the row of a copy that has a place, and its launch environment.
    async fn prepare_child(
        &self,
        parent: &Arc<SessionEntry>,
        chain: &[LayerId],
        extras: CreateExtras,
    ) -> Result<(SessionRow, Arc<LaunchEnvironment>), SessionError> {
        let launch = self.launcher.launch(parent).await?;
        let of_parent = parent.state.lock().row.clone();
        let id = extras.id.unwrap_or_else(|| self.ids.next("ses_"));
        let key = ResidentKey::Session(id.as_str().into());
        let own =
            self.secrets.open_env(&of_parent.tenant, &of_parent.id, of_parent.env.as_ref())?;
        let now_ms = self.store.now_ms();
        let row = SessionRow {
            env: self.secrets.seal_env(&of_parent.tenant, &id, &own)?,
            id,
            parent: Some(of_parent.id.clone()),
            face: extras.face.map(str::to_owned).or(of_parent.face.clone()),
            extra: if extras.extra.is_null() { of_parent.extra.clone() } else { extras.extra },
            deadline_ms: extras.deadline_ms,
            on_deadline: extras.on_deadline.into(),
            created_ms: now_ms,
            last_active_ms: now_ms,
            state: SessionState::Active,
            chain: chain.to_vec(),
            disk: None,
            disk_server: Some(self.cluster.run().id.clone()),
            manifest: None,
            owner: Some(self.cluster.run().id.clone()),
            last_seq: 0,
            history_bytes: 0,
            message: None,
            ..of_parent
        };
        self.admission.admit(&key, &parent.tenant).await?;
        Ok((row, launch))
    }

    /// Creates the row and the sandbox of a copy, or neither.
    async fn make_child(
        &self,
        mut row: SessionRow,
        disk: Option<AttachedDisk>,
    ) -> Result<(SessionRow, SessionSandbox), SessionError> {
        let disk = match disk {
            Some(disk) => disk,
            None => self.sandboxes.blank_disk(&row.limits).await?,
        };
        row.disk = Some(disk.id.clone());
        let (tenant, id) = (row.tenant.clone(), row.id.clone());
        let (chain, limits) = (row.chain.clone(), row.limits);
        let max = u64::try_from(self.config.now().sessions_max_per_tenant).unwrap_or(u64::MAX);
        let body = self.sandboxes.make(&tenant, disk, &chain, &limits);
        match tokio::join!(self.store.insert_session(row, max), body) {
            (Ok(row), Ok(body)) => Ok((row, body)),
            (Ok(_), Err(error)) => {
                self.store.remove_session(&tenant, &id).await?;
                Err(error)
            }
            (Err(error), Ok(body)) => {
                self.sandboxes.discard(&Arc::new(body)).await;
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Copies the parent's conversation to the child.
    async fn copy_conversation(
        &self,
        parent: &SessionEntry,
        child: &SessionEntry,
    ) -> Result<(), SessionError> {
        parent.log.settle().await?;
        let (mut after, mut copied) = (0, 0);
        while copied < MESSAGES_MAX {
            let page = self.store.messages(&parent.id, after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            copied += page.len();
            child.log.room().await;
            for message in page {
                child.log.message(&message.role, message.turn.as_deref(), message.content);
            }
        }
        Ok(())
    }
}

fn shown(row: SnapshotRow) -> SnapshotView {
    SnapshotView {
        id: row.id,
        session: row.session,
        name: row.name,
        created_at: time(row.created_ms),
        bytes: row.bytes,
    }
}
