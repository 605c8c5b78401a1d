//! Other nodes with sessions: their figures, and what they are told.

use std::time::Instant;

use api::SandboxCounts;
use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use node::cluster::{PeerAnswer, PeerForwarder};

/// Role of nodes that have sessions.
const ROLE: &str = "session";
/// Path, for nodes alone, at which a node tells its own figures.
pub(crate) const COUNTS: &str = "/peer/sandboxes";
/// Path, for nodes alone, at which a node is told of files that it may need.
pub(crate) const STORED: &str = "/peer/session-files";
/// The same of the layers that such files stand on. Earlier versions do not know it.
pub(crate) const STORED_LAYERS: &str = "/peer/session-layers";
/// Bytes of such an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Other nodes, and what they said last of all their sandboxes.
#[derive(Debug)]
pub(crate) struct OtherNodes {
    nodes: PeerForwarder,
    pub(crate) counted: tokio::sync::Mutex<Option<(Instant, SandboxCounts)>>,
}

impl OtherNodes {
    pub(crate) fn new(nodes: PeerForwarder) -> OtherNodes {
        OtherNodes { nodes, counted: tokio::sync::Mutex::default() }
    }

    /// Returns whether requests are passed on to them.
    pub(crate) fn are_reached(&self) -> bool {
        self.nodes.reaches_others()
    }

    /// Tells a node where files of a session are that it goes on with if this one is lost, after
    /// the layers that they stand on.
    pub(crate) fn tell_stored(
        &self,
        node: String,
        manifest: String,
        chain: &[String],
    ) -> impl Future<Output = ()> + Send + use<> {
        let (nodes, layers) = (self.nodes.clone(), chain.join("\n"));
        async move {
            if !layers.is_empty() {
                nodes.tell(&node, STORED_LAYERS, Bytes::from(layers)).await;
            }
            nodes.tell(&node, STORED, Bytes::from(manifest)).await;
        }
    }

    /// Returns the figures of the others: of a tenant, or of all.
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
