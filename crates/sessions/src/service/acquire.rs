//! Sessions that this server gets to work with: those that it has, and those that it claims.

use std::sync::Arc;

use api::SessionState;

use super::entry::SessionEntry;
use super::{SessionsInner, takeover};
use crate::error::SessionError;
use crate::everywhere::OtherNodes;
use crate::store::rows::SessionRow;

/// Purpose for which a session is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionUse {
    /// To work with its files, sooner or later.
    Work,
    /// To end it.
    End,
}

impl SessionsInner {
    /// A session to work with: this server's already, or made so.
    pub(super) async fn acquire(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Arc<SessionEntry>, SessionError> {
        self.acquire_for(tenant, id, SessionUse::Work).await
    }

    pub(super) async fn acquire_for(
        &self,
        tenant: &str,
        id: &str,
        purpose: SessionUse,
    ) -> Result<Arc<SessionEntry>, SessionError> {
        if let Some(entry) = self.known(id) {
            return match &*entry.tenant == tenant {
                true => Ok(entry),
                false => Err(SessionError::NotFound("session")),
            };
        }
        let _loading = self.loading(id).lock().await;
        // Whoever had the lock before may have brought it.
        if let Some(entry) = self.here(tenant, id) {
            return Ok(entry);
        }
        let row = self.row(tenant, id).await?;
        if row.state == SessionState::Ended {
            return Err(SessionError::Ended);
        }
        if purpose == SessionUse::Work {
            self.check_files(&row)?;
        }
        let claimed = self.store.claim(id, &self.run, row.epoch, self.claim_terms()).await?;
        let row = claimed.ok_or_else(|| self.on_another_server())?;
        let log = self.writer.log(&row);
        let deadline = row.deadline_ms;
        let entry = Arc::new(SessionEntry::new(row, log));
        entry.log.end_open_turns(takeover::LOST).await?;
        self.entries.lock().insert(Arc::clone(&entry.id), Arc::clone(&entry));
        self.sweeps.deadline(&entry.id, deadline);
        Ok(entry)
    }

    /// Returns what is said of a session that another server has.
    pub(super) fn on_another_server(&self) -> SessionError {
        SessionError::OnAnotherServer { is_node: self.is_in_cluster() }
    }

    /// Returns whether servers on the store pass requests on to each other.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.nodes.get().is_some_and(OtherNodes::are_reached)
    }

    /// Refuses to take a session over whose files are on another server alone: it could do nothing
    /// with it, and that one would not get it back.
    fn check_files(&self, row: &SessionRow) -> Result<(), SessionError> {
        let Some(server) = self.has_files_elsewhere(row) else { return Ok(()) };
        let message = format!("the session's files are on the server {server} alone");
        // In a cluster the request would have gone there if that one was there.
        Err(match self.is_in_cluster() {
            true => SessionError::Away(message),
            false => SessionError::Conflict(message),
        })
    }

    /// Refuses to work with an entry that is not this server's any more: what was changed there is
    /// nowhere.
    pub(super) fn check_left(&self, entry: &SessionEntry) -> Result<(), SessionError> {
        match entry.is_left() {
            true => Err(self.on_another_server()),
            false => Ok(()),
        }
    }
}
