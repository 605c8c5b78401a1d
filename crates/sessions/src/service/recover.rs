//! Recovery at the start of a server from the state that its previous run left.
//!
//! All sandboxes ended with that run. Their disks are here, complete up to the last write. So every
//! session that had one is paused, turns in progress are ended, and files that no row names are
//! removed. Nothing is created before that.

use std::collections::HashSet;
use std::sync::Arc;

use api::{SessionEventKind, SessionState};
use node::clock;
use serde_json::json;

use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::shared::SharedParts;
use super::sweeps::timers::SweepTimers;
use super::templates::TemplateService;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::metrics::{SandboxEvent, SessionCounters};
use crate::store::rows::SessionRow;
use crate::store::{PAGE_MAX, SessionStore};
use crate::workspace::WorkspaceStore;

/// Error of a turn that the previous run of the server did not finish.
const DIED: &str = "the server stopped while it worked on this turn";

/// Recovers the state that an earlier run of the server left.
pub(crate) struct SessionRecovery {
    store: SessionStore,
    writer: EventWriter,
    workspaces: WorkspaceStore,
    cluster: Arc<ClusterPlace>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    sweeps: Arc<SweepTimers>,
    templates: Arc<TemplateService>,
}

impl SessionRecovery {
    pub(super) fn new(
        shared: &SharedParts,
        templates: Arc<TemplateService>,
    ) -> Arc<SessionRecovery> {
        Arc::new(SessionRecovery {
            store: shared.store.clone(),
            writer: shared.writer.clone(),
            workspaces: shared.workspaces.clone(),
            cluster: Arc::clone(&shared.cluster),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            sweeps: Arc::clone(&shared.sweeps),
            templates,
        })
    }

    /// Brings rows and files into a consistent state.
    pub(super) async fn recover(self: &Arc<Self>) -> Result<(), SessionError> {
        for row in self.store.sessions_of_server(self.cluster.server()).await? {
            self.recover_session(row).await?;
        }
        let mut disks = HashSet::new();
        let now = clock::now();
        for row in self.store.sessions_on_disks_of(self.cluster.server()).await? {
            if row.state == SessionState::Ended {
                continue;
            }
            if let Some(disk) = row.disk {
                disks.insert(disk);
                self.books.keep_cold(&row.id.as_str().into(), &row.tenant.as_str().into(), now);
            }
        }
        let removed = self.workspaces.sweep(disks, self.all_layers().await?).await?;
        if removed > 0 {
            tracing::info!(removed, "removed unknown disks and layers");
        }
        self.templates.end_lost_builds(true).await?;
        self.sweeps.layers();
        Ok(())
    }

    async fn recover_session(&self, row: SessionRow) -> Result<(), SessionError> {
        let was_live = matches!(row.state, SessionState::Active | SessionState::Starting);
        // A turn may have been ending.
        if !was_live && self.store.open_turns(&row.id).await?.is_empty() {
            return Ok(());
        }
        let claimed = self
            .store
            .claim(&row.id, self.cluster.run(), row.epoch, self.cluster.claim_terms())
            .await?;
        // Another server has claimed it first, and recovers it.
        let Some(mut row) = claimed else { return Ok(()) };
        self.metrics.count(SandboxEvent::Recovered);
        let log = self.writer.log(&row);
        log.end_open_turns(DIED).await?;
        if was_live {
            row.state = SessionState::Paused;
        }
        let data = json!({ "state": row.state.as_str(), "reason": "the server was restarted" });
        row.last_seq = log.push(SessionEventKind::Lifecycle, None, data);
        log.save(Arc::new(row)).await?;
        log.leave();
        Ok(())
    }

    /// Returns all layers in the store.
    async fn all_layers(&self) -> Result<HashSet<String>, SessionError> {
        let mut all = HashSet::new();
        let mut after = String::new();
        loop {
            let page = self.store.layers.list(&after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after.clone_from(last);
            all.extend(page);
        }
    }
}
