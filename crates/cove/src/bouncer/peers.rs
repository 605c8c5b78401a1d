//! Forwards PostgreSQL cancel requests and MySQL `KILL` between nodes: a balancer may send them to
//! any node.
//!
//! A request carries only the key or number that the client was given. A node that did not issue it
//! forwards the request to all other nodes.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use bouncer::relay::{CancelForwarder, ForwardedKill, KillReply, Relay};
use node::cluster::PeerForwarder;
use node::http::{RouteTable as _, post};
use node::task;
use tokio::sync::mpsc;

/// Route for cancel requests of other nodes.
const CANCEL: &str = "/peer/cancel";
/// Route for requests to kill a client of MySQL.
const KILL: &str = "/peer/kill";
/// Maximum bytes of the response to a kill request; only its status matters.
const ANSWER_BYTES_MAX: usize = 4096;
/// Role of nodes that serve database clients.
const ROLE: &str = "bouncer";
/// Maximum number of queued requests; one more is dropped, as one with a wrong key is.
const WAITING_MAX: usize = 256;
/// Requests that are forwarded concurrently.
const AT_ONCE_MAX: usize = 16;
/// Bytes of a process id, before the key.
const PID_BYTES: usize = 4;

/// Queues requests for all other nodes.
#[derive(Debug)]
struct PeerCancels(mpsc::Sender<ClientRequestElsewhere>);

/// Request for a client that may be at another node.
#[derive(Debug)]
enum ClientRequestElsewhere {
    Cancel(Bytes),
    Kill(ForwardedKill, KillReply),
}

impl CancelForwarder for PeerCancels {
    fn pass_on(&self, pid: u32, key: &[u8]) {
        let request = [&pid.to_be_bytes(), key].concat();
        if self.0.try_send(ClientRequestElsewhere::Cancel(request.into())).is_err() {
            tracing::debug!("a cancel request was not passed on: too many wait");
        }
    }

    fn kill(&self, kill: ForwardedKill, reply: KillReply) {
        // If the queue is full, the reply is dropped with the request.
        if self.0.try_send(ClientRequestElsewhere::Kill(kill, reply)).is_err() {
            tracing::debug!("a KILL was not passed on: too many wait");
        }
    }
}

impl ClientRequestElsewhere {
    async fn pass_on(self, nodes: &PeerForwarder) {
        match self {
            ClientRequestElsewhere::Cancel(request) => {
                nodes.tell_others(ROLE, CANCEL, request).await
            }
            ClientRequestElsewhere::Kill(kill, reply) => {
                let Ok(body) = serde_json::to_vec(&kill).map(Bytes::from) else { return };
                let answers =
                    nodes.ask_all(ROLE, &Method::POST, KILL, body, ANSWER_BYTES_MAX).await;
                reply.give(answers.into_iter().any(|it| it.success().is_some()));
            }
        }
    }
}

/// Starts forwarding requests whose client is at another node.
pub(super) fn pass_cancels_on(relay: &Relay, nodes: PeerForwarder) {
    use futures_util::StreamExt as _;

    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    relay.pass_cancels_on(Arc::new(PeerCancels(sender)));
    let waiting = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    task::spawn(waiting.for_each_concurrent(AT_ONCE_MAX, move |request| {
        let nodes = nodes.clone();
        async move { request.pass_on(&nodes).await }
    }));
}

/// Routes for other nodes.
pub(super) fn routes(relay: Arc<Relay>) -> Router {
    Router::new().at(CANCEL, post(cancel)).at(KILL, post(kill)).with_state(relay)
}

async fn kill(State(relay): State<Arc<Relay>>, request: Bytes) -> StatusCode {
    match serde_json::from_slice(&request).map(|kill| relay.kill(&kill)) {
        Ok(true) => StatusCode::NO_CONTENT,
        Ok(false) => StatusCode::NOT_FOUND,
        Err(_) => StatusCode::BAD_REQUEST,
    }
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
