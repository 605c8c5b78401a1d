//! Other nodes with sessions: their counts, and notifications to them.

use std::time::Instant;

use api::SandboxCounts;
use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use node::cluster::{PeerAnswer, PeerForwarder};

/// Role of nodes with sessions.
const ROLE: &str = "session";
/// Path, for nodes only, at which a node returns its own counts.
pub(crate) const COUNTS: &str = "/peer/sandboxes";
/// Path, for nodes only, at which a node receives notifications of stored files.
pub(crate) const STORED: &str = "/peer/session-files";
/// Path for notifications of the layers below such files. Earlier versions do not have it.
pub(crate) const STORED_LAYERS: &str = "/peer/session-layers";
/// Maximum bytes of such an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Other nodes, and the last known counts of all their sandboxes.
#[derive(Debug)]
pub(crate) struct OtherNodes {
    nodes: PeerForwarder,
    pub(crate) counted: tokio::sync::Mutex<Option<(Instant, SandboxCounts)>>,
}

impl OtherNodes {
    pub(crate) fn new(nodes: PeerForwarder) -> OtherNodes {
        OtherNodes { nodes, counted: tokio::sync::Mutex::default() }
    }

    /// Returns whether requests are forwarded to them.
    pub(crate) fn are_reached(&self) -> bool {
        self.nodes.reaches_others()
    }

    /// Notifies a session's successor of the session's layers and then of its stored files. Returns
    /// false if a notification is lost.
    pub(crate) fn tell_stored(
        &self,
        node: String,
        manifest: String,
        chain: &[String],
    ) -> impl Future<Output = bool> + Send + use<> {
        let (nodes, layers) = (self.nodes.clone(), chain.join("\n"));
        async move {
            let has_told_layers =
                layers.is_empty() || nodes.tell(&node, STORED_LAYERS, Bytes::from(layers)).await;
            nodes.tell(&node, STORED, Bytes::from(manifest)).await && has_told_layers
        }
    }

    /// Returns the other nodes' counts, of a tenant or of all.
    pub(crate) async fn counts(&self, tenant: Option<&str>) -> SandboxCounts {
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
