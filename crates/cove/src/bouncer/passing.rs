//! Passes clients of the bouncer between nodes: a client whose tenant has a small limit over all
//! nodes is passed to a home of that limit, and its bytes are carried to and from there.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bouncer::relay::{
    ClientPasser, PASSED_LOGIN_BYTES_MAX, PassRefusal, PassReply, PassedLogin, Relay, TenantLimit,
};
use node::clock;
use node::cluster::{OfferedStream, PeerForwarder, PeerStream};
use node::http::{RouteTable as _, post};
use node::task;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Path at which a node accepts clients of others.
const TAKE: &str = "/peer/clients";
/// Path for requests to disconnect clients because the node that accepted them stops.
const SEE_OFF: &str = "/peer/clients/see-off";
/// Path for reports that clients have disconnected.
const END: &str = "/peer/clients/end";
/// Role of nodes that serve database clients.
const ROLE: &str = "bouncer";
/// Maximum number of queued orders; a client beyond it is served locally.
const WAITING_MAX: usize = 1024;
/// Orders that are carried out concurrently.
const AT_ONCE_MAX: usize = 64;
/// Homes that are tried for a client.
const HOMES_ASKED_MAX: usize = 2;
/// Timeout for a home to accept a client.
const TAKE_MAX: Duration = Duration::from_secs(2);
/// Clients in one request to disconnect.
const SEEN_OFF_MAX: usize = 1000;
/// Time for a client whose home is lost to disconnect, before its socket is closed.
const GONE_MAX: Duration = Duration::from_secs(10);

/// Queues clients to be passed to homes.
struct HomePasser {
    nodes: PeerForwarder,
    orders: mpsc::Sender<PassOrder>,
}

/// Order about clients of this node that other nodes serve.
#[derive(Debug)]
enum PassOrder {
    /// Pass a client before a deadline.
    Pass(Box<PassedLogin>, TenantLimit, PassReply, Instant),
    SeeOff(Vec<(Arc<str>, u64)>),
    End(Arc<str>, u64),
}

impl fmt::Debug for HomePasser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomePasser").finish_non_exhaustive()
    }
}

impl ClientPasser for HomePasser {
    fn is_home(&self, limit: &TenantLimit) -> bool {
        self.nodes.is_limit_home(ROLE, &limit.name, limit.limit)
    }

    fn pass(&self, login: PassedLogin, limit: TenantLimit, reply: PassReply) {
        // If the queue is full, the reply is dropped with the order, and the client is served here.
        let order = PassOrder::Pass(Box::new(login), limit, reply, clock::now() + TAKE_MAX);
        if self.orders.try_send(order).is_err() {
            tracing::debug!("a client is not passed: too many wait");
        }
    }

    fn see_off(&self, clients: Vec<(Arc<str>, u64)>) {
        if self.orders.try_send(PassOrder::SeeOff(clients)).is_err() {
            tracing::warn!("clients at other nodes are not seen off: too many orders wait");
        }
    }

    fn end(&self, node: Arc<str>, client: u64) {
        // If this fails, the home notices when it next writes to the client.
        if self.orders.try_send(PassOrder::End(node, client)).is_err() {
            tracing::debug!("a home is not told that a client is gone: too many orders wait");
        }
    }
}

/// Starts passing clients to the homes of their tenants' limits.
pub(super) fn pass_clients_on(relay: &Relay, nodes: PeerForwarder) {
    use futures_util::StreamExt as _;

    let (orders, receiver) = mpsc::channel(WAITING_MAX);
    relay.pass_clients_to(Arc::new(HomePasser { nodes: nodes.clone(), orders }));
    let waiting = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    let turn = Arc::new(AtomicUsize::new(0));
    task::spawn(waiting.for_each_concurrent(AT_ONCE_MAX, move |order| {
        let (nodes, turn) = (nodes.clone(), Arc::clone(&turn));
        async move {
            match order {
                PassOrder::Pass(login, limit, reply, until) => {
                    let turn = turn.fetch_add(1, Ordering::Relaxed);
                    let passed = pass(&nodes, &login, &limit, reply, turn);
                    // After a timeout, the dropped reply reports that no home accepted the client.
                    if timeout(until.saturating_duration_since(clock::now()), passed).await.is_err()
                    {
                        tracing::debug!(name = limit.name, "no home took a client in time");
                    }
                }
                PassOrder::SeeOff(clients) => see_off(&nodes, clients).await,
                PassOrder::End(home, id) => {
                    if let Ok(body) = serde_json::to_vec(&[id]) {
                        nodes.tell(&home, END, Bytes::from(body)).await;
                    }
                }
            }
        }
    }));
}

/// Passes a client to the next home in rotation, or to the one after it.
async fn pass(
    nodes: &PeerForwarder,
    login: &PassedLogin,
    limit: &TenantLimit,
    reply: PassReply,
    turn: usize,
) {
    let mut homes = nodes.limit_homes(ROLE, &limit.name, limit.limit);
    let count = homes.len().max(1);
    homes.rotate_left(turn % count);
    let body = match serde_json::to_vec(login) {
        Ok(body) if body.len() <= PASSED_LOGIN_BYTES_MAX => Bytes::from(body),
        Ok(_) => return tracing::debug!("a client is not passed: its login is too long"),
        Err(error) => return tracing::warn!(%error, "a client is not passed"),
    };
    for home in homes.iter().take(HOMES_ASKED_MAX).filter(|home| **home != nodes.own_id()) {
        match nodes.open_stream(home, TAKE, body.clone()).await {
            Ok(stream) => return begin(home, stream, reply),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, home, "a home does not take a client");
            }
        }
    }
}

/// Carries the bytes of a client to and from the home that accepted it.
fn begin(home: &str, stream: PeerStream, reply: PassReply) {
    let pair = StdUnixStream::pair().and_then(|(ours, of_relay)| {
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, of_relay))
    });
    let (ours, of_relay) = match pair {
        Ok(pair) => pair,
        // Returning drops the stream, which ends the client at the home.
        Err(error) => return tracing::warn!(%error, "a client is not passed"),
    };
    let mut notice = reply.taken(home, of_relay);
    task::spawn(async move {
        let mut ours = ours;
        let carried = tokio::select! {
            carried = stream.carry(&mut ours) => carried,
            () = notice.gone() => return,
        };
        if let Err(error) = carried {
            tracing::debug!(%error, "a stream to a home broke off");
            notice.lost();
            // Closing the socket would look like the regular end of the home's responses.
            drop(timeout(GONE_MAX, notice.gone()).await);
        }
        drop(ours);
    });
}

/// Asks homes to disconnect clients.
async fn see_off(nodes: &PeerForwarder, clients: Vec<(Arc<str>, u64)>) {
    let mut of_homes: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
    for (home, id) in clients {
        of_homes.entry(home).or_default().push(id);
    }
    let chunks = of_homes.iter().flat_map(|(home, ids)| {
        ids.chunks(SEEN_OFF_MAX).map(move |ids| (home, serde_json::to_vec(ids)))
    });
    let told = chunks.filter_map(|(home, body)| {
        let body = Bytes::from(body.ok()?);
        Some(async move { nodes.tell(home, SEE_OFF, body).await })
    });
    futures_util::future::join_all(told).await;
}

/// Routes for other nodes.
pub(super) fn routes(relay: Arc<Relay>) -> Router {
    Router::new()
        .at(TAKE, post(take))
        .at(SEE_OFF, post(seen_off))
        .at(END, post(ended))
        .with_state(relay)
}

async fn take(State(relay): State<Arc<Relay>>, request: Request) -> Response {
    let offered = match OfferedStream::read(request, PASSED_LOGIN_BYTES_MAX).await {
        Ok(offered) => offered,
        Err(status) => return status.into_response(),
    };
    let Ok(login) = serde_json::from_slice::<PassedLogin>(&offered.body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let socket = match relay.take_passed(login) {
        Ok(socket) => socket,
        Err(refusal) => {
            tracing::debug!(%refusal, "a client of another node is not taken");
            return match refusal {
                PassRefusal::NoHome => StatusCode::CONFLICT,
                PassRefusal::Full => StatusCode::SERVICE_UNAVAILABLE,
                PassRefusal::Unfit => StatusCode::UNPROCESSABLE_ENTITY,
            }
            .into_response();
        }
    };
    match UnixStream::from_std(socket) {
        Ok(socket) => offered.take(socket),
        Err(error) => {
            tracing::warn!(%error, "a client of another node is not taken");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

async fn seen_off(State(relay): State<Arc<Relay>>, body: Bytes) -> StatusCode {
    match serde_json::from_slice::<Vec<u64>>(&body) {
        Ok(ids) => {
            relay.see_off_arrived(&ids.into());
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

async fn ended(State(relay): State<Arc<Relay>>, body: Bytes) -> StatusCode {
    match serde_json::from_slice::<Vec<u64>>(&body) {
        Ok(ids) => {
            relay.end_arrived(&ids.into());
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
