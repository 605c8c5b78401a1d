//! Directory of the sessions in use on this server.
//!
//! While a session is in it, its entry is authoritative, and its row is written behind by its
//! log. Other sessions exist only as rows.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use api::{SandboxState, SessionState, SessionView};
use parking_lot::Mutex;
use pool::residents::State;

use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::entry::{SessionEntry, SessionSandbox};
use super::environment::LaunchEnvironment;
use super::sweeps::timers::SweepTimers;
use super::views::shown;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::store::SessionStore;
use crate::store::rows::SessionRow;
use crate::terminals::{SandboxTerminal, SandboxTerminals};

/// Maximum number of sessions loaded concurrently, sharded by the hash of their ids.
const LOADING_SHARDS: usize = 16;

/// Longest time that a list waits for rows to be written.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// Purpose for which a session is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionUse {
    /// Work with its files, now or later.
    Work,
    /// End it.
    End,
}

/// Sessions in use on this server.
pub(crate) struct SessionDirectory {
    /// Guards only the map.
    entries: Mutex<HashMap<Arc<str>, Arc<SessionEntry>>>,
    /// Locks, by id, for adding a session to the map or removing it.
    loading: [tokio::sync::Mutex<()>; LOADING_SHARDS],
    hasher: RandomState,
    store: SessionStore,
    writer: EventWriter,
    cluster: Arc<ClusterPlace>,
    books: Arc<ResidentLedger>,
    sweeps: Arc<SweepTimers>,
}

impl SessionDirectory {
    pub(super) fn new(
        store: SessionStore,
        writer: EventWriter,
        cluster: Arc<ClusterPlace>,
        books: Arc<ResidentLedger>,
        sweeps: Arc<SweepTimers>,
    ) -> Arc<SessionDirectory> {
        Arc::new(SessionDirectory {
            entries: Mutex::default(),
            loading: Default::default(),
            hasher: RandomState::new(),
            store,
            writer,
            cluster,
            books,
            sweeps,
        })
    }

    /// Returns the lock for adding a session to the directory or removing it.
    pub(super) fn loading(&self, id: &str) -> &tokio::sync::Mutex<()> {
        let hash = self.hasher.hash_one(id);
        let shard = usize::try_from(hash % LOADING_SHARDS as u64).unwrap_or(0);
        &self.loading[shard]
    }

    /// Returns a session in use on this server, of any tenant.
    pub(super) fn known(&self, id: &str) -> Option<Arc<SessionEntry>> {
        self.entries.lock().get(id).cloned()
    }

    /// Returns a tenant's session if it is in use on this server.
    pub(super) fn here(&self, tenant: &str, id: &str) -> Option<Arc<SessionEntry>> {
        self.known(id).filter(|entry| &*entry.tenant == tenant)
    }

    /// Returns all sessions in use on this server.
    pub(super) fn all(&self) -> Vec<Arc<SessionEntry>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Selects sessions. The directory is locked during the call.
    pub(super) fn choose<T>(&self, choose: impl FnMut(&Arc<SessionEntry>) -> Option<T>) -> Vec<T> {
        self.entries.lock().values().filter_map(choose).collect()
    }

    /// Adds a session. The caller holds its loading lock, or has just created it.
    pub(super) fn insert(&self, entry: &Arc<SessionEntry>) {
        self.entries.lock().insert(Arc::clone(&entry.id), Arc::clone(entry));
    }

    /// Removes a session from the directory.
    pub(super) fn remove(&self, entry: &SessionEntry) {
        self.entries.lock().remove(&entry.id);
    }

    /// Removes a session from memory if it has no other users; its row is complete.
    pub(super) fn forget(&self, entry: &Arc<SessionEntry>) {
        let mut entries = self.entries.lock();
        // One reference is the map's and one is the caller's; any other holder may be about to use
        // it.
        if Arc::strong_count(entry) > 2 || entry.body().is_some() {
            return;
        }
        entry.state.lock().left = true;
        entries.remove(&entry.id);
        entry.log.leave();
    }

    /// Adds a session whose row this server has just written.
    pub(super) fn enlist(&self, row: SessionRow, launch: LaunchEnvironment) -> Arc<SessionEntry> {
        let log = self.writer.log(&row);
        let deadline = row.deadline_ms;
        let entry = Arc::new(SessionEntry::new(row, log));
        entry.state.lock().launch = Some(Arc::new(launch));
        self.insert(&entry);
        self.sweeps.deadline(&entry.id, deadline);
        entry
    }

    /// Returns the row of a session that is not in use on this server.
    pub(super) async fn row(&self, tenant: &str, id: &str) -> Result<SessionRow, SessionError> {
        self.store.session(tenant, id).await?.ok_or(SessionError::NotFound("session"))
    }

    /// Checks that a tenant has a session.
    pub(super) async fn check_exists(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        match self.here(tenant, id) {
            Some(_) => Ok(()),
            None => self.row(tenant, id).await.map(drop),
        }
    }

    /// Rejects an entry that this server does not own any more, because changes to it are lost.
    pub(super) fn check_left(&self, entry: &SessionEntry) -> Result<(), SessionError> {
        match entry.is_left() {
            true => Err(self.cluster.on_another_server()),
            false => Ok(()),
        }
    }

    /// Returns the row of a session for writing; none if this server does not own it any more.
    fn to_write(entry: &SessionEntry) -> Option<Arc<SessionRow>> {
        let state = entry.state.lock();
        (!state.left).then(|| Arc::new(state.row.clone()))
    }

    /// Schedules a write of the session's row.
    pub(super) fn mark(&self, entry: &SessionEntry) {
        if let Some(row) = Self::to_write(entry) {
            entry.log.mark(row);
            self.books.changes().publish(&entry.id);
        }
    }

    /// Writes the whole row of a session, and waits until it is durable.
    pub(super) async fn save(&self, entry: &SessionEntry) -> Result<(), SessionError> {
        let Some(row) = Self::to_write(entry) else { return Err(self.cluster.on_another_server()) };
        self.books.changes().publish(&entry.id);
        let saved = entry.log.save(row).await;
        // If the session moved to another server meanwhile, report that instead.
        saved.or_else(|error| self.check_left(entry).and(Err(error)))
    }

    /// Writes the columns that change while a session lives, and waits until they are durable.
    pub(super) async fn save_life(&self, entry: &SessionEntry) -> Result<(), SessionError> {
        let Some(row) = Self::to_write(entry) else { return Err(self.cluster.on_another_server()) };
        self.books.changes().publish(&entry.id);
        let saved = entry.log.save_life(row).await;
        saved.or_else(|error| self.check_left(entry).and(Err(error)))
    }

    /// Waits until the stored rows of a tenant's sessions reflect the states reported to callers.
    /// The wait is bounded, so that a list works while the store accepts no writes.
    pub(super) async fn settle_rows(&self, tenant: &str) {
        let changed: Vec<Arc<SessionEntry>> = self.choose(|entry| {
            let is_changed = *entry.tenant == *tenant && entry.log.has_row_to_write();
            is_changed.then(|| Arc::clone(entry))
        });
        let settled = async {
            for entry in changed {
                // A session that was released meanwhile has been written.
                let _written = entry.log.settle_row().await;
            }
        };
        if tokio::time::timeout(SETTLE_MAX, settled).await.is_err() {
            tracing::debug!(tenant, "a list did not wait for rows any longer");
        }
    }

    /// Finds a session, and waits until everything reported about it is in the store.
    pub(super) async fn settled(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        match self.here(tenant, id) {
            Some(entry) if entry.session_state() != SessionState::Ended => entry.log.settle().await,
            Some(_) => Ok(()),
            None => self.row(tenant, id).await.map(drop),
        }
    }

    /// Records that a session was used.
    pub(super) fn touch(&self, entry: &SessionEntry) {
        entry.state.lock().row.last_active_ms = self.store.now_ms();
        self.mark(entry);
    }

    /// Releases a session to another server, or for any server to claim. The caller holds its
    /// transition, and has stored its files.
    pub(super) async fn let_go(
        &self,
        entry: &Arc<SessionEntry>,
        server: Option<&str>,
    ) -> Result<(), SessionError> {
        let _loading = self.loading(&entry.id).lock().await;
        entry.log.settle().await?;
        let epoch = {
            let mut state = entry.state.lock();
            state.left = true;
            state.row.epoch
        };
        // Subscribers here now receive events from the store.
        entry.log.leave();
        self.remove(entry);
        match server {
            Some(server) => self.store.give_back(&entry.id, epoch, server).await?,
            None => self.store.release(&entry.id, epoch).await?,
        };
        Ok(())
    }

    /// Drops a session that was claimed before a lapse of this server's lease: another server may
    /// have claimed it since, and the comparison with the store after the lapse did not include it.
    /// The comparison after a later lapse includes it.
    pub(super) fn check_claim_is_new(
        &self,
        entry: &Arc<SessionEntry>,
        lapses: u64,
    ) -> Result<(), SessionError> {
        if self.cluster.membership().serving().lapses() == lapses {
            return Ok(());
        }
        entry.state.lock().left = true;
        self.remove(entry);
        entry.log.leave();
        Err(self.cluster.lease_is_over())
    }

    /// Returns the public view of a session in use on this server.
    pub(super) fn view(&self, entry: &SessionEntry) -> SessionView {
        let row = entry.state.lock().row.clone();
        let sandbox = match self.books.state(&entry.key) {
            Some(State::Warming) => SandboxState::Warming,
            Some(State::Warm) => SandboxState::Warm,
            Some(State::Running) => SandboxState::Running,
            Some(State::Waiting) => SandboxState::Waiting,
            Some(State::Cold) | None => SandboxState::Cold,
        };
        SessionView { sandbox, last_seq: entry.log.last_seq(), ..shown(row) }
    }

    /// Returns the terminals of a session's sandbox on this server; none without a sandbox.
    pub(super) async fn terminals(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<Arc<SandboxTerminals>>, SessionError> {
        if let Some(entry) = self.here(tenant, id) {
            return Ok(entry.body().map(|body| Arc::clone(&body.terminals)));
        }
        match self.row(tenant, id).await?.state {
            SessionState::Ended => Err(SessionError::Ended),
            SessionState::Starting
            | SessionState::Active
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error => Ok(None),
        }
    }

    pub(super) async fn terminal(
        &self,
        tenant: &str,
        id: &str,
        terminal: &str,
    ) -> Result<Arc<SandboxTerminal>, SessionError> {
        let terminals = self.terminals(tenant, id).await?;
        let found = terminals.and_then(|terminals| terminals.find(terminal));
        found.ok_or(SessionError::NotFound("terminal"))
    }

    /// Returns the sandbox that has a disk attached.
    pub(super) fn body_with(&self, disk: &str) -> Option<Arc<SessionSandbox>> {
        let entries = self.all();
        let mut bodies = entries.iter().filter_map(|entry| entry.body());
        bodies.find(|body| body.disk().is_some_and(|attached| attached.id == disk))
    }
}
