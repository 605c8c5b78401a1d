//! Cove session of a Managed Agents session: found by its metadata, created if it does not exist,
//! resumed for work and paused after it.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{CreateSession, SessionList, SessionState, SessionView};
use axum::http::{Method, StatusCode};
use serde_json::Value;

use crate::percent::escaped;
use crate::remote::{Remote, RemoteFailure};

/// Metadata entries of a Cove session by which it is found.
const META_SESSION: &str = "anthropic_session";
const META_ENVIRONMENT: &str = "anthropic_environment";
/// States of a session that can be resumed.
const USABLE: &str = "starting,active,paused,stopped,error";
/// Timeout of a request that starts or stops a sandbox.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);

/// Settings of new Cove sessions.
#[derive(Clone, Debug)]
pub(super) struct WorkspaceTemplate {
    pub(super) environment: String,
    pub(super) request: CreateSession,
}

/// Cove session that serves one Managed Agents session.
#[derive(Clone)]
pub(super) struct ServingSession {
    pub(super) server: Remote,
    pub(super) id: String,
    /// True if it was just created.
    pub(super) is_new: bool,
}

impl ServingSession {
    /// Finds or creates the workspace of a session, and resumes it.
    pub(super) async fn open(
        server: &Remote,
        template: &WorkspaceTemplate,
        session: &str,
    ) -> Result<ServingSession, RemoteFailure> {
        let path = format!(
            "/v1/sessions?state={USABLE}&metadata.{META_SESSION}={}&metadata.{META_ENVIRONMENT}={}",
            escaped(session),
            escaped(&template.environment)
        );
        let found: SessionList = server.call(Method::GET, &path).await?;
        // The newest are first. If there are several, the oldest has the files.
        if let Some(found) = found.sessions.into_iter().next_back() {
            let workspace = ServingSession { server: server.clone(), id: found.id, is_new: false };
            if found.state != SessionState::Active {
                workspace.change("resume").await?;
            }
            return Ok(workspace);
        }
        let mut request = template.request.clone();
        let metadata = BTreeMap::from([
            (META_SESSION.to_owned(), session.to_owned()),
            (META_ENVIRONMENT.to_owned(), template.environment.clone()),
        ]);
        request.metadata.extend(metadata);
        let mut request = server.request_with(Method::POST, "/v1/sessions", &request)?;
        request.timeout = CHANGE_TIMEOUT;
        let made: SessionView = server.ask(request).await?;
        Ok(ServingSession { server: server.clone(), id: made.id, is_new: true })
    }

    /// Returns a path below the session.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", escaped(&self.id))
    }

    /// Resumes the session, which may have been paused for lack of space or idleness.
    pub(super) async fn resume(&self) -> Result<(), RemoteFailure> {
        self.change("resume").await
    }

    /// Pauses the session: its files stay, its sandbox stays as long as there is space.
    pub(super) async fn pause(&self) -> Result<(), RemoteFailure> {
        self.change("pause").await
    }

    /// Stops the sandbox; the files stay.
    pub(super) async fn stop(&self) -> Result<(), RemoteFailure> {
        self.change("stop").await
    }

    /// Ends the session with its files.
    pub(super) async fn end(&self) -> Result<(), RemoteFailure> {
        let mut request = self.server.request(Method::DELETE, &self.path(""));
        request.timeout = CHANGE_TIMEOUT;
        self.server.ask_maybe(request).await.map(drop)
    }

    async fn change(&self, verb: &str) -> Result<(), RemoteFailure> {
        let path = self.path(&format!("/{verb}"));
        let mut request = self.server.request_with(Method::POST, &path, &serde_json::json!({}))?;
        request.timeout = CHANGE_TIMEOUT;
        self.server.ask::<Value>(request).await.map(drop)
    }
}

/// Returns whether the workspace may be paused, so that resuming it would help.
pub(super) fn is_asleep(failure: &RemoteFailure) -> bool {
    failure.status == Some(StatusCode::CONFLICT)
}
