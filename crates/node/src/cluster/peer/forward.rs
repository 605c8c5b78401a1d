//! Requests that another node has to answer: how they are recognized and forwarded.
//!
//! A request is forwarded once. The receiving node checks whether it owns the request's subject,
//! and answers 421 if it does not; the forwarding node then queries the store again, and retries
//! once. So the known owner may be out of date, and no notification is needed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, Version, header, uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::{ForwardedBody, kept};
use super::client::{PeerClient, PeerError, PeerTarget};
use super::failures::ForwardFailureLog;
use super::key::{ClusterKey, ClusterKeyError};
use super::protocol::{is_misdirected, misdirected};
use super::refusal::{broken, moved, try_again};
use super::request::{ForwardedRequest, OF_CONNECTION, for_node_alone, forwarded};
use super::resume::{ResumedStream, StreamOrigin};
use super::routing::{OwnerAction, RequestRoute, SendOutcome, SentAction};
use super::subject::{RequestLocator, RequestSubject, SubjectOwner};
use crate::auth::TokenPrincipal;
use crate::cluster::membership::NodeMembership;
use crate::cluster::placement::WorkKind;
use crate::cluster::record::NodeRecord;
use crate::http::{FastHead, PeerHop, VerbatimAnswer};
use crate::task::{self, Boxed};

/// Maximum number of concurrent searches of all other nodes for a subject.
const ASKS_MAX: usize = 64;
/// Time for a node to answer a notification or query.
const TELL_MAX: Duration = Duration::from_secs(2);
/// Maximum size of an answer whose status alone matters.
const TELL_BYTES_MAX: usize = 4096;
/// Forwards requests to the nodes that own their subjects. Cheap to clone.
#[derive(Clone)]
pub struct PeerForwarder(Arc<ForwarderShared>);

struct ForwarderShared {
    membership: NodeMembership,
    client: PeerClient,
    locator: Box<dyn RequestLocator>,
    /// Searches of all other nodes for a subject.
    asks: Semaphore,
    failures: ForwardFailureLog,
}

impl std::fmt::Debug for PeerForwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerForwarder")
    }
}

/// Answer of another node to an internal query.
#[derive(Debug)]
pub struct PeerAnswer {
    /// The queried node.
    pub node: String,
    /// Status and body; none if it did not answer in time.
    pub answer: Option<(StatusCode, Bytes)>,
}

impl PeerAnswer {
    /// Returns the body of a successful answer.
    #[must_use]
    pub fn success(self) -> Option<Bytes> {
        self.answer.filter(|(status, _)| status.is_success()).map(|(_, body)| body)
    }
}

impl PeerForwarder {
    /// Creates a forwarder for a node.
    ///
    /// # Errors
    /// If the key cannot be used.
    pub fn new(
        membership: &NodeMembership,
        key: &ClusterKey,
        locator: impl RequestLocator + 'static,
    ) -> Result<PeerForwarder, ClusterKeyError> {
        let client = PeerClient::new(key)?;
        let (membership, locator) = (membership.clone(), Box::new(locator));
        let (asks, failures) = (Semaphore::new(ASKS_MAX), ForwardFailureLog::default());
        let shared = ForwarderShared { membership, client, locator, asks, failures };
        Ok(PeerForwarder(Arc::new(shared)))
    }

    /// Sends a notification to all other nodes of a role, at an internal path. It is lost for nodes
    /// that do not answer in time.
    pub async fn tell_others(&self, role: &str, path: &str, body: Bytes) {
        self.ask_all(role, &Method::POST, path, body, TELL_BYTES_MAX).await;
    }

    /// Sends a notification to another node, at an internal path. Returns false if it is lost: if
    /// the node cannot be reached, does not answer in time, or answers with a server error.
    pub async fn tell(&self, node: &str, path: &str, body: Bytes) -> bool {
        let Ok(path) = path.parse::<uri::PathAndQuery>() else { return false };
        let Some(target) = self.address(node) else { return false };
        let sent = for_node_alone(&target, Method::POST, path, body);
        let answer = self.ask(&target, sent, TELL_BYTES_MAX).await;
        answer.is_some_and(|(status, _)| !status.is_server_error())
    }

    /// Queries all other nodes of a role at an internal path. Answers that are late or too long are
    /// left out.
    pub async fn ask_all(
        &self,
        role: &str,
        method: &Method,
        path: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Vec<PeerAnswer> {
        let Ok(path) = path.parse::<uri::PathAndQuery>() else { return Vec::new() };
        let others = self.others(|node| node.description.roles.iter().any(|it| it == role));
        let asked = others.into_iter().map(|target| {
            let sent = for_node_alone(&target, method.clone(), path.clone(), body.clone());
            async move {
                let answer = self.ask(&target, sent, bytes_max).await;
                PeerAnswer { node: target.id, answer }
            }
        });
        futures_util::future::join_all(asked).await
    }

    /// Queries one node; none if it does not answer in time.
    async fn ask(
        &self,
        target: &PeerTarget,
        request: Option<axum::http::Request<Body>>,
        bytes_max: usize,
    ) -> Option<(StatusCode, Bytes)> {
        let node = &target.id;
        let asked = async {
            let answer = self.0.client.send(target, request?).await;
            // The node may have ended, which is not worth a log line for each query.
            let answer = answer.inspect_err(|error| tracing::debug!(node, %error, "not asked"));
            let answer = answer.ok()?;
            let status = answer.status();
            let body = to_bytes(Body::new(answer.into_body()), bytes_max).await;
            Some((status, body.ok()?))
        };
        timeout(TELL_MAX, asked).await.unwrap_or_else(|_| {
            tracing::debug!(node, "a node did not answer in time");
            None
        })
    }

    /// Returns the membership of this node.
    pub(super) fn membership(&self) -> &NodeMembership {
        &self.0.membership
    }

    /// Returns the homes of the limit that a request for new work counts towards.
    pub(super) fn limit_homes_of(&self, kind: WorkKind, request: &Request) -> Option<Vec<String>> {
        let caller = request.extensions().get::<TokenPrincipal>()?;
        self.0.locator.limit_homes(kind, caller)
    }

    /// Records that a node could not be queried.
    pub(super) fn note_failure(&self, target: &PeerTarget, error: &PeerError) {
        self.0.failures.failed(target, error);
    }

    /// Returns the client for requests to other nodes.
    pub(super) fn client(&self) -> &PeerClient {
        &self.0.client
    }

    /// Returns whether there are nodes that requests can be forwarded to.
    #[must_use]
    pub fn reaches_others(&self) -> bool {
        self.0.membership.reaches_others()
    }

    /// Returns the id of this node.
    #[must_use]
    pub fn own_id(&self) -> String {
        self.0.membership.identity().id.clone()
    }

    /// Returns the subject of a request if only its owner can answer it.
    pub(crate) fn find(&self, listener: &'static str, request: &Request) -> Option<FoundSubject> {
        let head =
            FastHead { method: request.method(), uri: request.uri(), headers: request.headers() };
        let subject = self.0.locator.subject(listener, head)?;
        Some(FoundSubject { forwarder: self.clone(), listener, subject })
    }

    /// Returns the node to ask: none if this one has to answer, because it is the owner or no owner
    /// can be reached.
    pub(super) async fn target(
        &self,
        subject: &RequestSubject,
        is_fresh: bool,
    ) -> Option<PeerTarget> {
        match self.0.locator.owner(subject, is_fresh).await {
            SubjectOwner::This => None,
            SubjectOwner::Node(id) => match self.address(&id) {
                // The cached owner is from before that node was lost.
                None if !is_fresh => Box::pin(self.target(subject, true)).await,
                target => target,
            },
            SubjectOwner::Other(path) => self.ask_others(&path).await,
        }
    }

    /// Queries all other nodes at an internal path, and returns the one that accepts.
    async fn ask_others(&self, path: &str) -> Option<PeerTarget> {
        let path: uri::PathAndQuery = path.parse().ok()?;
        // Bounded, because unauthenticated clients may cause such queries.
        let _one = self.0.asks.acquire().await.ok()?;
        let asked = self.others(|_| true).into_iter().map(|target| {
            let sent = for_node_alone(&target, Method::GET, path.clone(), Bytes::new());
            Box::pin(async move {
                let (status, _) = self.ask(&target, sent, TELL_BYTES_MAX).await?;
                status.is_success().then_some(target)
            })
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        while let Some(answer) = asked.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Returns the owner of a subject, as stored.
    pub(super) async fn owner(&self, subject: &RequestSubject) -> SubjectOwner {
        self.0.locator.owner(subject, true).await
    }

    /// Returns the address of a node, if it runs.
    pub(super) fn address(&self, id: &str) -> Option<PeerTarget> {
        target_of(self.0.membership.living(id)?)
    }

    /// Returns the addresses of all other running nodes that satisfy `is_meant`.
    fn others(&self, is_meant: impl Fn(&NodeRecord) -> bool) -> Vec<PeerTarget> {
        let own = &self.0.membership.identity().id;
        let others = self.0.membership.all_living().into_iter();
        others.filter(|node| node.id != *own && is_meant(node)).filter_map(target_of).collect()
    }

    /// Sends a request to the owner of its subject, and once more after a misdirection.
    pub(super) async fn forward(
        &self,
        subject: &RequestSubject,
        mut route: RequestRoute,
        mut target: PeerTarget,
        mut request: ForwardedRequest,
        next: Next,
    ) -> Response {
        loop {
            let Some(body) = request.body.to_send() else { return moved() };
            let sent = request.for_node(&target, body);
            let answer = self.send(&target, sent, request.upgrade.is_some()).await;
            let (outcome, answer) = match answer {
                Ok(answer) if is_misdirected(&answer) => (SendOutcome::Misdirected, None),
                Ok(answer) => (SendOutcome::Answered, Some(answer)),
                Err(error) => {
                    self.0.failures.failed(&target, &error);
                    self.forget_replaced();
                    match error {
                        PeerError::Connect { .. } => (SendOutcome::Unreachable, None),
                        PeerError::Http { .. } | PeerError::Lost { .. } => {
                            (SendOutcome::Lost, None)
                        }
                    }
                }
            };
            match route.after_sending(outcome) {
                SentAction::PassOn => {
                    let Some(answer) = answer else { return broken() };
                    let (method, headers) = (request.method(), answer.headers());
                    let goes_on = answer.status() == StatusCode::OK
                        && ResumedStream::is_possible(subject, method, headers);
                    let answer = self.pass_on(answer, request.upgrade.take(), &target);
                    if !goes_on {
                        return answer;
                    }
                    let stream =
                        StreamOrigin { target: Some(target), subject: subject.clone(), next };
                    return ResumedStream::answer(self.clone(), stream, request, answer);
                }
                SentAction::FindOwner => {}
                SentAction::RunHere => return request.run_here(next).await,
                SentAction::Moved => return moved(),
                SentAction::Unreachable => {
                    return try_again("the node that has this cannot be reached at present");
                }
                SentAction::Lost => return broken(),
            }
            let owner = self.target(subject, route.asks_store()).await;
            match route.with_owner(owner) {
                OwnerAction::Send(other) => target = other,
                OwnerAction::RunHere => return request.run_here(next).await,
                OwnerAction::Misdirect => return misdirected(),
            }
        }
    }

    /// Sends a request; stops waiting for its answer when its node is lost.
    pub(super) async fn send(
        &self,
        target: &PeerTarget,
        request: axum::http::Request<Body>,
        is_upgrade: bool,
    ) -> Result<axum::http::Response<Incoming>, PeerError> {
        let sent = async {
            match is_upgrade {
                true => self.0.client.send_alone(target, request).await,
                false => self.0.client.send(target, request).await,
            }
        };
        tokio::select! {
            answer = sent => answer,
            () = self.0.membership.until_lost(&target.id, &target.incarnation) => {
                Err(PeerError::Lost { node: target.id.clone() })
            }
        }
    }

    /// Returns the answer of a node to the client. If the answer upgrades the connection, carries
    /// it until that node is lost.
    pub(super) fn pass_on(
        &self,
        mut answer: axum::http::Response<Incoming>,
        client: Option<OnUpgrade>,
        target: &PeerTarget,
    ) -> Response {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = client else { return broken() };
            let node = hyper::upgrade::on(&mut answer);
            let (membership, target) = (self.0.membership.clone(), target.clone());
            let carried = async move {
                let (Ok(client), Ok(node)) = (client.await, node.await) else { return };
                let (mut client, mut node) = (TokioIo::new(client), TokioIo::new(node));
                let carried = tokio::select! {
                    carried = copy_bidirectional(&mut client, &mut node) => carried,
                    // The node may be suspended, with its connections open.
                    () = membership.until_lost(&target.id, &target.incarnation) => return,
                };
                if let Err(error) = carried {
                    tracing::debug!(%error, "a connection that was passed on ended");
                }
            };
            task::spawn(carried);
        } else {
            OF_CONNECTION.iter().for_each(|name| drop(answer.headers_mut().remove(name)));
        }
        let mut answer = answer.map(Body::new);
        // The node has set all headers.
        answer.extensions_mut().insert(VerbatimAnswer);
        *answer.version_mut() = Version::HTTP_11;
        answer
    }

    /// Closes connections to runs of nodes that have ended.
    fn forget_replaced(&self) {
        let now = self.0.membership.clone();
        self.0.client.keep_only(|target| {
            now.living(&target.id).is_some_and(|node| node.incarnation == target.incarnation)
        });
    }
}

/// Subject of a request, which may be at another node.
pub(crate) struct FoundSubject {
    forwarder: PeerForwarder,
    listener: &'static str,
    subject: RequestSubject,
}

impl FoundSubject {
    /// Answers the request, here or at the owner of its subject.
    pub(crate) fn answer(self, request: Request, next: Next) -> Boxed<'static, Response> {
        Box::pin(async move {
            let FoundSubject { forwarder, listener, mut subject } = self;
            let mut request = request;
            if subject == RequestSubject::InBody {
                let (parts, body) = request.into_parts();
                let read = match kept(body).await {
                    Ok(ForwardedBody::Kept(bytes)) => bytes,
                    Ok(ForwardedBody::Streamed(body)) => {
                        let body = body.take().unwrap_or_default();
                        return next.run(Request::from_parts(parts, body)).await;
                    }
                    Err(error) => return error.into_response(),
                };
                let found = forwarder.0.locator.subject_in(parts.uri.path(), &read);
                request = Request::from_parts(parts, Body::from(read));
                let Some(found) = found else { return next.run(request).await };
                subject = found;
            }
            let is_hop = request.extensions().get::<PeerHop>().is_some();
            let work = match &subject {
                RequestSubject::Work(kind, key) => Some((*kind, Some(key.as_str()))),
                RequestSubject::LimitedWork(kind) => Some((*kind, None)),
                _ => None,
            };
            if let Some((kind, key)) = work {
                return match is_hop {
                    // The sender looks further if there is no room.
                    true => next.run(request).await,
                    false => forwarder.place(kind, key, listener, request, next).await,
                };
            }
            if is_hop && matches!(subject, RequestSubject::Asked(_)) {
                // This node has just answered that it has the subject.
                return next.run(request).await;
            }
            let looks = matches!(*request.method(), Method::GET | Method::HEAD);
            let is_upgrade = request.headers().contains_key(header::UPGRADE);
            let route = RequestRoute::new(is_hop, looks && !is_upgrade);
            let owner = forwarder.target(&subject, route.asks_store()).await;
            let target = match route.with_owner(owner) {
                OwnerAction::RunHere => {
                    let answering = forwarder.answer_here(subject, route, listener, request, next);
                    return answering.await;
                }
                OwnerAction::Misdirect => return misdirected(),
                OwnerAction::Send(target) => target,
            };
            let (parts, body) = request.into_parts();
            match forwarded(parts, listener, body).await {
                Ok(request) => forwarder.forward(&subject, route, target, request, next).await,
                Err(error) => error.into_response(),
            }
        })
    }
}

/// Returns the address of a node, if others can reach it.
pub(super) fn target_of(node: NodeRecord) -> Option<PeerTarget> {
    let address = node.description.peer_address?;
    Some(PeerTarget { id: node.id, incarnation: node.incarnation, address })
}
