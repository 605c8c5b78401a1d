//! Sandbox counts of all nodes, each of which reports its own.

use std::time::{Duration, Instant};

use api::SandboxCounts;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::clock;
use node::http::{HttpError, RouteTable as _, get, post, query};
use serde::Deserialize;

use crate::other_nodes::{COUNTS, STORED, STORED_LAYERS};
use crate::service::Sessions;

/// Maximum age of the counts of all nodes in answers to unauthenticated callers.
const COUNTS_AGE_MAX: Duration = Duration::from_secs(1);

/// Returns the counts of a caller's tenant on all nodes; of all tenants for an operator.
pub(crate) async fn counts_everywhere(sessions: &Sessions, who: &TokenPrincipal) -> SandboxCounts {
    let mut counts = sessions.counts_for(who);
    if let Some(others) = sessions.other_nodes() {
        let tenant = (!who.operator).then_some(&*who.tenant);
        counts.add(&others.counts(tenant).await);
    }
    counts
}

/// Returns the recent counts of all sandboxes on all nodes.
pub(crate) async fn recent_counts(sessions: &Sessions) -> SandboxCounts {
    let mut counts = sessions.counts();
    if let Some(others) = sessions.other_nodes() {
        // Concurrent callers wait for the same answer.
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

/// Routes for other nodes.
pub fn peer_routes(sessions: Sessions) -> Router {
    Router::new()
        .at(COUNTS, get(counts))
        .at(STORED, post(note_stored))
        .at(STORED_LAYERS, post(note_layers))
        .with_state(sessions)
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

async fn note_layers(State(sessions): State<Sessions>, layers: String) -> StatusCode {
    sessions.note_layers(layers.lines());
    StatusCode::NO_CONTENT
}

async fn note_stored(State(sessions): State<Sessions>, manifest: String) -> StatusCode {
    sessions.note_stored(manifest);
    StatusCode::NO_CONTENT
}
