//! Sessions that this server gets to work with: those that it has, and those that it claims.

use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, SessionState};
use node::task::Boxed;
use tokio::time;

use super::entry::SessionEntry;
use super::{SessionsInner, fence, takeover};
use crate::error::SessionError;
use crate::other_nodes::OtherNodes;
use crate::store::rows::SessionRow;

/// Pause before room for a session is asked for again that has messages waiting.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

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
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<Arc<SessionEntry>, SessionError> {
        self.acquire_for(tenant, id, SessionUse::Work).await
    }

    pub(super) async fn acquire_for(
        self: &Arc<Self>,
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
        let lapses = self.membership.serving().lapses();
        let claimed = self.store.claim(id, &self.run, row.epoch, self.claim_terms()).await?;
        let row = claimed.ok_or_else(|| self.on_another_server())?;
        let log = self.writer.log(&row);
        let deadline = row.deadline_ms;
        let entry = Arc::new(SessionEntry::new(row, log));
        entry.log.end_open_turns(takeover::LOST).await?;
        let waiting = self.store.waiting.of_session(id).await?;
        let goes_on = !waiting.is_empty() && entry.session_state() == SessionState::Active;
        self.restore_waiting(&entry, waiting);
        self.entries.lock().insert(Arc::clone(&entry.id), Arc::clone(&entry));
        self.check_claim_is_new(&entry, lapses)?;
        self.sweeps.deadline(&entry.id, deadline);
        if goes_on {
            node::task::spawn(Arc::clone(self).go_on_with(Arc::clone(&entry)));
        }
        Ok(entry)
    }

    /// Goes on with the messages that were waiting when an active session came to this server.
    fn go_on_with(self: Arc<Self>, entry: Arc<SessionEntry>) -> Boxed<'static, ()> {
        Box::pin(async move {
            loop {
                let error = match self.with_body(&entry).await {
                    Ok(at_work) => return self.go_on_waiting(&at_work),
                    Err(error) => error,
                };
                if entry.is_left() || entry.session_state() != SessionState::Active {
                    return;
                }
                match error.code() {
                    // There is no hurry: nobody is there whom it would keep waiting.
                    ErrorCode::Overloaded | ErrorCode::TooManyRequests => {
                        time::sleep(ROOM_PAUSE).await;
                    }
                    _ => {
                        let waiting = entry.state.lock().turns.take_waiting();
                        return self.refuse_all(&entry, waiting, &error.to_string());
                    }
                }
            }
        })
    }

    /// Gives up what was claimed before the lease of this server had ended: another one may have
    /// claimed it since, and it was not there yet when what is here was compared with the store.
    /// A lapse that comes after this look compares it.
    pub(super) fn check_claim_is_new(
        &self,
        entry: &Arc<SessionEntry>,
        lapses: u64,
    ) -> Result<(), SessionError> {
        if self.membership.serving().lapses() == lapses {
            return Ok(());
        }
        entry.state.lock().left = true;
        self.entries.lock().remove(&entry.id);
        entry.log.leave();
        Err(SessionError::Away(fence::OVER.to_owned()))
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
