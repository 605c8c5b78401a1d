//! Cancel requests of PostgreSQL between nodes: a balancer hands them to any.
//!
//! A request comes on a connection of its own, and says only the key that the client was given. So
//! a node that has given no such key asks all others.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use bouncer::relay::{CancelForwarder, Relay};
use node::cluster::PeerForwarder;
use node::http::{RouteTable as _, post};
use node::task;
use tokio::sync::mpsc;

/// Where a node takes cancel requests of others.
const CANCEL: &str = "/peer/cancel";
/// Role of nodes that have clients of PostgreSQL.
const ROLE: &str = "bouncer";
/// Requests that wait to be passed on; one more is dropped, as one with a wrong key is.
const WAITING_MAX: usize = 256;
/// Requests that are passed on at one time.
const AT_ONCE_MAX: usize = 16;
/// Bytes of a process id, before the key.
const PID_BYTES: usize = 4;

/// Passes cancel requests on to all other nodes.
#[derive(Debug)]
struct PeerCancels(mpsc::Sender<Bytes>);

impl CancelForwarder for PeerCancels {
    fn pass_on(&self, pid: u32, key: &[u8]) {
        let request = [&pid.to_be_bytes(), key].concat();
        if self.0.try_send(request.into()).is_err() {
            tracing::debug!("a cancel request was not passed on: too many wait");
        }
    }
}

/// Has cancel requests passed on whose client is at another node.
pub(super) fn pass_cancels_on(relay: &Relay, nodes: PeerForwarder) {
    use futures_util::StreamExt as _;

    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    relay.pass_cancels_on(Arc::new(PeerCancels(sender)));
    let waiting = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    task::spawn(waiting.for_each_concurrent(AT_ONCE_MAX, move |request| {
        let nodes = nodes.clone();
        async move { nodes.tell_others(ROLE, CANCEL, request).await }
    }));
}

/// Routes for other nodes.
pub(super) fn routes(relay: Arc<Relay>) -> Router {
    Router::new().at(CANCEL, post(cancel)).with_state(relay)
}

async fn cancel(State(relay): State<Arc<Relay>>, request: Bytes) -> StatusCode {
    let Some((pid, key)) = request.split_first_chunk::<PID_BYTES>() else {
        return StatusCode::BAD_REQUEST;
    };
    match relay.cancel(u32::from_be_bytes(*pid), key) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}
