//! Questions about sessions. They claim no session, make no sandbox and change nothing.

use std::fmt;
use std::sync::Arc;

use api::{SessionList, SessionMetrics, SessionView};

use super::directory::SessionDirectory;
use super::files::figures;
use super::requests::ListQuery;
use super::views::{KeptExtras, ListedPage, ListedSession, shown};
use crate::error::SessionError;
use crate::store::rows::SessionFilter;
use crate::store::{PAGE_MAX, SessionStore};

/// Answers from memory for sessions that this server works with, and from the store for others.
pub struct SessionQueries {
    store: SessionStore,
    directory: Arc<SessionDirectory>,
}

impl fmt::Debug for SessionQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionQueries").finish_non_exhaustive()
    }
}

impl SessionQueries {
    pub(super) fn new(store: SessionStore, directory: Arc<SessionDirectory>) -> SessionQueries {
        SessionQueries { store, directory }
    }

    /// A session, as it is.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn get(&self, tenant: &str, id: &str) -> Result<SessionView, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(self.directory.view(&entry)),
            None => Ok(shown(self.directory.row(tenant, id).await?)),
        }
    }

    /// Sessions of a tenant, newest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, tenant: &str, query: ListQuery) -> Result<SessionList, SessionError> {
        let page = self.list_with_extras(tenant, query).await?;
        let sessions = page.sessions.into_iter().map(|listed| listed.session).collect();
        Ok(SessionList { sessions, next_cursor: page.next_cursor })
    }

    /// Lists sessions with what faces keep.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list_with_extras(
        &self,
        tenant: &str,
        query: ListQuery,
    ) -> Result<ListedPage, SessionError> {
        if !query.states.is_empty() {
            self.directory.settle_rows(tenant).await;
        }
        let limit = query.limit.clamp(1, PAGE_MAX - 1);
        let filter = SessionFilter {
            states: query.states.clone(),
            agent: query.agent,
            metadata: query.metadata,
            face: query.face,
            before: query.cursor,
            limit: limit + 1,
        };
        let mut rows = self.store.sessions(tenant, filter).await?;
        let next_cursor = (rows.len() > limit).then(|| {
            rows.truncate(limit);
            rows.last().map(|row| row.id.clone())
        });
        let mut sessions = Vec::with_capacity(rows.len());
        for row in rows {
            // What is worked with here is newer in memory than in its row.
            let listed = match self.directory.here(tenant, &row.id) {
                Some(entry) => {
                    let extras = KeptExtras::from(&entry.state.lock().row);
                    ListedSession { session: self.directory.view(&entry), extras }
                }
                None => ListedSession { extras: KeptExtras::from(&row), session: shown(row) },
            };
            if query.states.is_empty() || query.states.contains(&listed.session.state) {
                sessions.push(listed);
            }
        }
        Ok(ListedPage { sessions, next_cursor: next_cursor.flatten() })
    }

    /// Returns what a face keeps with a session: what it gave, the session's face, and its
    /// deadline.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn extras(&self, tenant: &str, id: &str) -> Result<KeptExtras, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(KeptExtras::from(&entry.state.lock().row)),
            None => Ok(KeptExtras::from(&self.directory.row(tenant, id).await?)),
        }
    }

    /// Returns whose session it is: for whoever has proved otherwise that it may be used.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn tenant_of(&self, id: &str) -> Result<String, SessionError> {
        match self.directory.known(id) {
            Some(entry) => Ok(entry.tenant.to_string()),
            None => {
                let row = self.store.session_of_anybody(id).await?;
                Ok(row.ok_or(SessionError::NotFound("session"))?.tenant)
            }
        }
    }

    /// Returns what a session uses at present. None when it has no sandbox.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn metrics(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<SessionMetrics>, SessionError> {
        let Some(entry) = self.directory.here(tenant, id) else {
            return self.directory.row(tenant, id).await.map(|_| None);
        };
        // To look at it is not to use it.
        let Some(body) = entry.body() else { return Ok(None) };
        let Ok(sandbox) = body.sandbox() else { return Ok(None) };
        figures(&sandbox, body.disk()).await.map(Some)
    }
}
