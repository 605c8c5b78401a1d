//! The Cove session that belongs to a Managed Agents session: found by its metadata, made when
//! there is none, resumed for work and paused after it.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{CreateSession, SessionList, SessionState, SessionView};
use axum::http::{Method, StatusCode};
use serde_json::Value;

use crate::percent::escaped;
use crate::remote::{Remote, RemoteFailure};

/// Entries of a Cove session's metadata by which it is found again.
const META_SESSION: &str = "anthropic_session";
const META_ENVIRONMENT: &str = "anthropic_environment";
/// States of a session that can be worked with again.
const USABLE: &str = "starting,active,paused,stopped,error";
/// Time for an answer that needs a sandbox, or the end of one.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);

/// Settings of new Cove sessions.
#[derive(Clone, Debug)]
pub(super) struct WorkspaceTemplate {
    pub(super) environment: String,
    pub(super) request: CreateSession,
}

/// A Cove session that serves one Managed Agents session.
#[derive(Clone)]
pub(super) struct ServingSession {
    pub(super) server: Remote,
    pub(super) id: String,
    /// True if it did not exist before.
    pub(super) is_new: bool,
}

impl ServingSession {
    /// Finds the workspace of a session, or makes it, and wakes it.
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
        // The newest are first. The oldest has the files, should there ever be two.
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

    /// Address of something in the session.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", escaped(&self.id))
    }

    /// Takes the session up again, which lack of room or idleness may have paused.
    pub(super) async fn resume(&self) -> Result<(), RemoteFailure> {
        self.change("resume").await
    }

    /// Lets the session rest: its files stay, its sandbox for as long as there is room.
    pub(super) async fn pause(&self) -> Result<(), RemoteFailure> {
        self.change("pause").await
    }

    /// Gives up the sandbox; the files stay.
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

/// Returns whether the workspace may be asleep and would do the same if it were resumed.
pub(super) fn is_asleep(failure: &RemoteFailure) -> bool {
    failure.status == Some(StatusCode::CONFLICT)
}
