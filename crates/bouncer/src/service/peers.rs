//! The other nodes of a cluster, as the control plane of the bouncer asks them.

use std::fmt;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use node::cluster::{PeerAnswer, PeerForwarder};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// Role of nodes that have tenants.
const ROLE: &str = "bouncer";
/// Bytes of a node's answer: some hundreds for each client.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Bits of a connection's number that count, and the greatest number of a node above them: all of
/// it is a positive `int8`.
const NUMBER_BITS: u32 = 40;
const NODE_MAX: u64 = (1 << 22) - 1;

/// The other nodes; none until the server has joined a cluster.
#[derive(Default)]
pub struct BouncerPeers {
    forwarder: OnceLock<PeerForwarder>,
}

/// Answers of the other nodes, and the names of those that gave none.
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
    /// Has figures of all nodes shown, and changes seen to there.
    pub fn join(&self, forwarder: PeerForwarder) {
        // There is one cluster.
        drop(self.forwarder.set(forwarder));
    }

    /// Returns the name of this node, where there are others.
    pub(super) fn own_id(&self) -> Option<String> {
        self.forwarder.get().map(PeerForwarder::own_id)
    }

    /// Returns what is added to the numbers of this node's connections, so that no other node has
    /// the same ones.
    pub(crate) fn first_number(&self) -> u64 {
        let Some(node) = self.own_id() else { return 0 };
        let hash = Sha256::digest(node.as_bytes());
        let hash = hash.iter().take(4).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        (hash & NODE_MAX) << NUMBER_BITS
    }

    /// Asks all other nodes.
    pub(crate) async fn ask_all(&self, method: &Method, path: &str) -> Vec<PeerAnswer> {
        match self.forwarder.get() {
            Some(nodes) => nodes.ask_all(ROLE, method, path, Bytes::new(), ANSWER_BYTES_MAX).await,
            None => Vec::new(),
        }
    }

    /// Asks all other nodes for what they know of a tenant: `stats`, `clients` or `servers`.
    pub(super) async fn ask_of_tenant<T: DeserializeOwned>(
        &self,
        name: &str,
        what: &str,
    ) -> PeerAnswers<T> {
        self.ask_at(&format!("/peer/tenants/{name}/{what}")).await
    }

    /// Asks all other nodes for what they have at a path.
    pub(super) async fn ask_at<T: DeserializeOwned>(&self, path: &str) -> PeerAnswers<T> {
        let mut others = PeerAnswers { answers: Vec::new(), missing: Vec::new() };
        for PeerAnswer { node, answer } in self.ask_all(&Method::GET, path).await {
            match answer {
                // It has not heard of the tenant yet, or its file has none of this name.
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
