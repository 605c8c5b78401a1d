//! Acquisition of sessions on this server: those that it owns, and those that it claims.

use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, SessionState};
use node::task::Boxed;
use tokio::time;

use super::SessionLifecycle;
use crate::error::SessionError;
use crate::service::directory::SessionUse;
use crate::service::entry::SessionEntry;
use crate::service::takeover;

/// Pause before another attempt to find room for a session with queued messages.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

impl SessionLifecycle {
    /// Returns a session for use, claiming it if this server does not own it.
    pub(in crate::service) async fn acquire(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<Arc<SessionEntry>, SessionError> {
        self.acquire_for(tenant, id, SessionUse::Work).await
    }

    pub(in crate::service) async fn acquire_for(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
        purpose: SessionUse,
    ) -> Result<Arc<SessionEntry>, SessionError> {
        if let Some(entry) = self.directory.known(id) {
            return match &*entry.tenant == tenant {
                true => Ok(entry),
                false => Err(SessionError::NotFound("session")),
            };
        }
        let _loading = self.directory.loading(id).lock().await;
        // The previous holder of the lock may have loaded it.
        if let Some(entry) = self.directory.here(tenant, id) {
            return Ok(entry);
        }
        let row = self.directory.row(tenant, id).await?;
        if row.state == SessionState::Ended {
            return Err(SessionError::Ended);
        }
        if purpose == SessionUse::Work {
            self.cluster.check_files(&row)?;
        }
        let lapses = self.cluster.membership().serving().lapses();
        let claimed =
            self.store.claim(id, self.cluster.run(), row.epoch, self.cluster.claim_terms()).await?;
        let row = claimed.ok_or_else(|| self.cluster.on_another_server())?;
        let log = self.writer.log(&row);
        let deadline = row.deadline_ms;
        let entry = Arc::new(SessionEntry::new(row, log));
        entry.log.end_open_turns(takeover::LOST).await?;
        let waiting = self.store.waiting.of_session(id).await?;
        let goes_on = !waiting.is_empty() && entry.session_state() == SessionState::Active;
        self.restore_waiting(&entry, waiting);
        self.directory.insert(&entry);
        self.directory.check_claim_is_new(&entry, lapses)?;
        self.sweeps.deadline(&entry.id, deadline);
        if goes_on {
            node::task::spawn(Arc::clone(self).go_on_with(Arc::clone(&entry)));
        }
        Ok(entry)
    }

    /// Resumes processing of the queued messages of an active session that this server has claimed.
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
                    // Not urgent, because no caller waits for it.
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
}
