//! The other nodes of a cluster, for queries by the bouncer's control plane.

use std::fmt;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use node::cluster::{PeerAnswer, PeerForwarder};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// Role of nodes that have tenants.
const ROLE: &str = "bouncer";
/// Maximum bytes of a node's answer: some hundreds for each client.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Significant bits of a connection's number, and the maximum number of a node above them: the
/// result is a positive `int8`.
const NUMBER_BITS: u32 = 40;
const NODE_MAX: u64 = (1 << 22) - 1;

/// The other nodes; none before the server has joined a cluster.
#[derive(Default)]
pub struct BouncerPeers {
    forwarder: OnceLock<PeerForwarder>,
}

/// Answers of the other nodes, and the names of nodes without one.
pub(super) struct PeerAnswers<T> {
    pub(super) answers: Vec<T>,
    pub(super) missing: Vec<String>,
}

impl fmt::Debug for BouncerPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BouncerPeers").field("node", &self.own_id()).finish_non_exhaustive()
    }
}

impl BouncerPeers {
    /// Enables figures and changes over all nodes.
    pub fn join(&self, forwarder: PeerForwarder) {
        // There is only one cluster.
        drop(self.forwarder.set(forwarder));
    }

    /// Returns the name of this node, if it has joined a cluster.
    pub(super) fn own_id(&self) -> Option<String> {
        self.forwarder.get().map(PeerForwarder::own_id)
    }

    /// Returns the offset of this node's connection numbers, so that no other node has the same
    /// numbers.
    pub(crate) fn first_number(&self) -> u64 {
        let Some(node) = self.own_id() else { return 0 };
        let hash = Sha256::digest(node.as_bytes());
        let hash = hash.iter().take(4).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        (hash & NODE_MAX) << NUMBER_BITS
    }

    /// Sends a request to all other nodes.
    pub(crate) async fn ask_all(&self, method: &Method, path: &str) -> Vec<PeerAnswer> {
        match self.forwarder.get() {
            Some(nodes) => nodes.ask_all(ROLE, method, path, Bytes::new(), ANSWER_BYTES_MAX).await,
            None => Vec::new(),
        }
    }

    /// Queries all other nodes about a tenant: `stats`, `clients` or `servers`.
    pub(super) async fn ask_of_tenant<T: DeserializeOwned>(
        &self,
        name: &str,
        what: &str,
    ) -> PeerAnswers<T> {
        self.ask_at(&format!("/peer/tenants/{name}/{what}")).await
    }

    /// Queries all other nodes at a path.
    pub(super) async fn ask_at<T: DeserializeOwned>(&self, path: &str) -> PeerAnswers<T> {
        let mut others = PeerAnswers { answers: Vec::new(), missing: Vec::new() };
        for PeerAnswer { node, answer } in self.ask_all(&Method::GET, path).await {
            match answer {
                // The node does not know the tenant yet, or its file has none of this name.
                Some((StatusCode::NOT_FOUND, _)) => {}
                Some((StatusCode::OK, body)) => match serde_json::from_slice(&body) {
                    Ok(answer) => others.answers.push(answer),
                    Err(error) => {
                        tracing::warn!(node, %error, "a node's figures cannot be understood");
                        others.missing.push(node);
                    }
                },
                Some(_) | None => others.missing.push(node),
            }
        }
        others
    }
}
