//! Figures of the sandboxes of all nodes: each is asked for its own.

use std::time::{Duration, Instant};

use api::SandboxCounts;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::clock;
use node::cluster::{PeerAnswer, PeerForwarder};
use node::http::{HttpError, RouteTable as _, get, post, query};
use serde::Deserialize;

use crate::service::Sessions;

/// Role of nodes that have sessions.
const ROLE: &str = "session";
/// Path, for nodes alone, at which a node tells its own figures.
const COUNTS: &str = "/peer/sandboxes";
/// Path, for nodes alone, at which a node is told of files that it may need.
const STORED: &str = "/peer/session-files";
/// Bytes of such an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Time for which figures of all nodes are shown to those who need no token, before the other nodes
/// are asked again.
const COUNTS_AGE_MAX: Duration = Duration::from_secs(1);

/// Other nodes, and what they said last of all their sandboxes.
#[derive(Debug)]
pub(crate) struct OtherNodes {
    nodes: PeerForwarder,
    counted: tokio::sync::Mutex<Option<(Instant, SandboxCounts)>>,
}

impl OtherNodes {
    pub(crate) fn new(nodes: PeerForwarder) -> OtherNodes {
        OtherNodes { nodes, counted: tokio::sync::Mutex::default() }
    }

    /// Returns whether requests are passed on to them.
    pub(crate) fn are_reached(&self) -> bool {
        self.nodes.reaches_others()
    }

    /// Tells a node where files of a session are that it goes on with if this one is lost.
    pub(crate) fn tell_stored(
        &self,
        node: String,
        manifest: String,
    ) -> impl Future<Output = ()> + Send + use<> {
        let nodes = self.nodes.clone();
        async move { nodes.tell(&node, STORED, Bytes::from(manifest)).await }
    }

    /// Returns the figures of the others: of a tenant, or of all.
    async fn counts(&self, tenant: Option<&str>) -> SandboxCounts {
        let path = match tenant {
            Some(tenant) => format!("{COUNTS}?tenant={tenant}"),
            None => COUNTS.to_owned(),
        };
        let mut sum = SandboxCounts::default();
        let answers =
            self.nodes.ask_all(ROLE, &Method::GET, &path, Bytes::new(), ANSWER_BYTES_MAX).await;
        for PeerAnswer { node, answer } in answers {
            let Some((StatusCode::OK, body)) = answer else { continue };
            match serde_json::from_slice(&body) {
                Ok(counts) => sum.add(&counts),
                Err(error) => tracing::warn!(node, %error, "a node's figures are no figures"),
            }
        }
        sum
    }
}

impl Sessions {
    /// Returns the sandboxes of a caller's tenant at all nodes; for an operator those of all.
    pub async fn counts_everywhere(&self, who: &TokenPrincipal) -> SandboxCounts {
        let mut counts = self.counts_for(who);
        if let Some(others) = self.other_nodes() {
            let tenant = (!who.operator).then_some(&*who.tenant);
            counts.add(&others.counts(tenant).await);
        }
        counts
    }

    /// Returns all sandboxes of all nodes, as they were a moment ago.
    pub(crate) async fn recent_counts(&self) -> SandboxCounts {
        let mut counts = self.counts();
        if let Some(others) = self.other_nodes() {
            // Whoever comes meanwhile waits for the same answer.
            let mut known = others.counted.lock().await;
            let now = clock::now();
            let is_recent = |at: Instant| now.saturating_duration_since(at) < COUNTS_AGE_MAX;
            let of_others = match *known {
                Some((at, counts)) if is_recent(at) => counts,
                _ => {
                    let counts = others.counts(None).await;
                    *known = Some((now, counts));
                    counts
                }
            };
            counts.add(&of_others);
        }
        counts
    }
}

/// Routes for other nodes.
pub fn peer_routes(sessions: Sessions) -> Router {
    Router::new().at(COUNTS, get(counts)).at(STORED, post(note_stored)).with_state(sessions)
}

/// Query of another node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PeerCountsQuery {
    tenant: Option<String>,
}

async fn counts(
    State(sessions): State<Sessions>,
    uri: Uri,
) -> Result<Json<SandboxCounts>, HttpError> {
    let PeerCountsQuery { tenant } = query(&uri)?;
    Ok(Json(match tenant {
        Some(tenant) => sessions.counts_of(&tenant),
        None => sessions.counts(),
    }))
}

async fn note_stored(State(sessions): State<Sessions>, manifest: String) -> StatusCode {
    sessions.note_stored(manifest);
    StatusCode::NO_CONTENT
}
