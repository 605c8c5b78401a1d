//! Queries about sessions, which claim no session, start no sandbox and change nothing.

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

/// Answers from memory for sessions in use on this server, and from the store for others.
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

    /// Returns a session.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn get(&self, tenant: &str, id: &str) -> Result<SessionView, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(self.directory.view(&entry)),
            None => Ok(shown(self.directory.row(tenant, id).await?)),
        }
    }

    /// Returns sessions of a tenant, newest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, tenant: &str, query: ListQuery) -> Result<SessionList, SessionError> {
        let page = self.list_with_extras(tenant, query).await?;
        let sessions = page.sessions.into_iter().map(|listed| listed.session).collect();
        Ok(SessionList { sessions, next_cursor: page.next_cursor })
    }

    /// Returns sessions with the data of their faces.
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
            // For a session in use here, memory is newer than the row.
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

    /// Returns the data that a face stores with a session: its own data, the session's face, and
    /// its deadline.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn extras(&self, tenant: &str, id: &str) -> Result<KeptExtras, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(KeptExtras::from(&entry.state.lock().row)),
            None => Ok(KeptExtras::from(&self.directory.row(tenant, id).await?)),
        }
    }

    /// Returns the tenant of a session, for callers that have authorized the request in another
    /// way.
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

    /// Returns the current usage of a session; none if it has no sandbox.
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
        // Reading metrics does not count as a use.
        let Some(body) = entry.body() else { return Ok(None) };
        let Ok(sandbox) = body.sandbox() else { return Ok(None) };
        figures(&sandbox, body.disk()).await.map(Some)
    }
}
