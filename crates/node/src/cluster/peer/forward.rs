//! Requests that another node has to answer: which ones they are, and how they get there.
//!
//! A request is passed on once. The node that gets it looks whether it has what the request is
//! about, and answers 421 when it has not; whoever passed it on asks the store once more then, and
//! tries once more. So what is known of owners may be out of date, and nobody has to be told.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>

use std::sync::Arc;
use std::time::Duration;

use api::ErrorCode;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header, uri,
};
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
use super::listener::{misdirected, node_value};
use super::resume::{ResumedStream, StreamOrigin};
use super::routing::{OwnerAction, RequestRoute, SendOutcome, SentAction};
use super::{CLIENT, CLIENT_HOST, FOR_NODE, LISTENER, MISDIRECTED, PEER_LISTENER};
use crate::auth::TokenPrincipal;
use crate::cluster::{NodeLoad, NodeMembership, NodeRecord};
use crate::http::{ConnectionPeer, FastHead, HttpError, PeerHop, VerbatimAnswer};
use crate::task::{self, Boxed};
use crate::traces;

/// Questions who has something that this node asks all others at a time.
const ASKS_MAX: usize = 64;
/// Time for a node to take something that it is told.
const TELL_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer that says nothing but its status.
const TELL_BYTES_MAX: usize = 4096;
/// Time after which a caller may try again, where a node does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Host of all nodes: keys prove who they are, and handlers see the one that the client named.
pub(super) const AUTHORITY: &str = "node.cove";

/// Headers that are about a connection, not about the request (RFC 9110, 7.6.1).
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Thing that one node has, and that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestSubject {
    /// A session, by its id.
    Session(String),
    /// The events of an execution, by its id, which are at the node that runs it. Whoever attaches
    /// has to be there.
    Execution {
        /// Id of the execution.
        id: String,
        /// True if the caller asks for a WebSocket, by which he may attach.
        is_socket: bool,
        /// True if he says that he attaches.
        attaches: bool,
    },
    /// A node itself, by its id.
    Node(String),
    /// New work, which goes where there is room; with what is the same for work that should be at
    /// the same nodes.
    Work(WorkKind, String),
    /// New work that the node does which is asked, unless a limit of its caller lives elsewhere.
    LimitedWork(WorkKind),
    /// Thing that no store knows the node of: which one has it, they say themselves, at this path
    /// that is for nodes alone.
    Asked(String),
    /// The body says it, if it is short.
    InBody,
}

/// Kind of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A session, which stays at its node.
    Session,
    /// An execution that its caller waits for. It stays where it was sent to while there is room.
    Execution,
}

impl WorkKind {
    /// Role of the nodes that do it.
    pub(in crate::cluster) const fn role(self) -> &'static str {
        match self {
            WorkKind::Session => "session",
            WorkKind::Execution => "front",
        }
    }

    /// Places that a node has taken, and all that it has.
    pub(in crate::cluster) const fn places(self, load: &NodeLoad) -> (u64, u64) {
        match self {
            WorkKind::Session => (load.sandboxes, load.sandboxes_max),
            WorkKind::Execution => {
                (load.executions.saturating_add(load.executions_waiting), load.executions_max)
            }
        }
    }

    /// Returns whether this node keeps it when it has room.
    pub(super) const fn stays(self) -> bool {
        matches!(self, WorkKind::Execution)
    }
}

/// Owner of what a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectOwner {
    /// This node may answer.
    This,
    /// This node has it.
    Node(String),
    /// Another node has it: which one, they say themselves, at this path that is for nodes alone.
    Other(String),
}

/// Knows which node has what.
pub trait RequestLocator: Send + Sync {
    /// Thing that a request at the listener of this name is about, if one node alone can answer it.
    fn subject(&self, listener: &str, head: FastHead<'_>) -> Option<RequestSubject>;

    /// Thing that a request is about whose body says it.
    fn subject_in(&self, path: &str, body: &[u8]) -> Option<RequestSubject>;

    /// Returns the homes of the limit that work of a caller counts in: none where that is none, or
    /// lives at every node. It must not block.
    fn limit_homes(&self, kind: WorkKind, caller: &TokenPrincipal) -> Option<Vec<String>>;

    /// Node that has it. `is_fresh` asks the store, also where an answer is remembered.
    fn owner<'a>(&'a self, subject: &'a RequestSubject, is_fresh: bool) -> Boxed<'a, SubjectOwner>;
}

/// Passes requests on to the nodes that have what they are about. Cheap to clone.
#[derive(Clone)]
pub struct PeerForwarder(Arc<ForwarderShared>);

struct ForwarderShared {
    membership: NodeMembership,
    client: PeerClient,
    locator: Box<dyn RequestLocator>,
    /// Questions to all other nodes who has something.
    asks: Semaphore,
    failures: ForwardFailureLog,
}

impl std::fmt::Debug for PeerForwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerForwarder")
    }
}

/// Answer of another node to what only nodes ask.
#[derive(Debug)]
pub struct PeerAnswer {
    /// The node that was asked.
    pub node: String,
    /// Status and body; none when it did not answer in time.
    pub answer: Option<(StatusCode, Bytes)>,
}

impl PeerAnswer {
    /// Returns the body of an answer that says yes.
    #[must_use]
    pub fn success(self) -> Option<Bytes> {
        self.answer.filter(|(status, _)| status.is_success()).map(|(_, body)| body)
    }
}

/// A request that can be sent to a node, and to another one when that was the wrong one.
pub(super) struct ForwardedRequest {
    parts: Parts,
    listener: &'static str,
    pub(super) body: ForwardedBody,
    pub(super) upgrade: Option<OnUpgrade>,
}

impl PeerForwarder {
    /// Creates a forwarder for a node.
    ///
    /// # Errors
    /// When the key cannot be used.
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

    /// Tells all other nodes of a role something that is for one of them, at a path that is for
    /// nodes alone. Who does not answer in time is not told.
    pub async fn tell_others(&self, role: &str, path: &str, body: Bytes) {
        self.ask_all(role, &Method::POST, path, body, TELL_BYTES_MAX).await;
    }

    /// Tells another node something, at a path that is for nodes alone. One that is not there, or
    /// does not answer in time, is not told.
    pub async fn tell(&self, node: &str, path: &str, body: Bytes) {
        let Ok(path) = path.parse::<uri::PathAndQuery>() else { return };
        if let Some(target) = self.address(node) {
            let sent = for_node_alone(&target, Method::POST, path, body);
            self.ask(&target, sent, TELL_BYTES_MAX).await;
        }
    }

    /// Asks all other nodes of a role at a path that is for nodes alone. The answer of one that
    /// gives none in time, or too long a one, is left out.
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

    /// Asks one node; none when it does not answer in time.
    async fn ask(
        &self,
        target: &PeerTarget,
        request: Option<axum::http::Request<Body>>,
        bytes_max: usize,
    ) -> Option<(StatusCode, Bytes)> {
        let node = &target.id;
        let asked = async {
            let answer = self.0.client.send(target, request?).await;
            // It may have ended, which is not worth a line for each question.
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

    /// Returns the homes of the limit that a request for new work counts in.
    pub(super) fn limit_homes_of(&self, kind: WorkKind, request: &Request) -> Option<Vec<String>> {
        let caller = request.extensions().get::<TokenPrincipal>()?;
        self.0.locator.limit_homes(kind, caller)
    }

    /// Takes note that a node could not be asked.
    pub(super) fn note_failure(&self, target: &PeerTarget, error: &PeerError) {
        self.0.failures.failed(target, error);
    }

    /// Returns what sends requests to other nodes.
    pub(super) fn client(&self) -> &PeerClient {
        &self.0.client
    }

    /// Returns whether there are nodes that requests can be passed on to.
    #[must_use]
    pub fn reaches_others(&self) -> bool {
        self.0.membership.reaches_others()
    }

    /// Returns the id of this node.
    #[must_use]
    pub fn own_id(&self) -> String {
        self.0.membership.identity().id.clone()
    }

    /// Looks whether a request is about something that one node alone has.
    pub(crate) fn find(&self, listener: &'static str, request: &Request) -> Option<FoundSubject> {
        let head =
            FastHead { method: request.method(), uri: request.uri(), headers: request.headers() };
        let subject = self.0.locator.subject(listener, head)?;
        Some(FoundSubject { forwarder: self.clone(), listener, subject })
    }

    /// The node to ask: none when this one has to answer, because it has it, or nobody can.
    pub(super) async fn target(
        &self,
        subject: &RequestSubject,
        is_fresh: bool,
    ) -> Option<PeerTarget> {
        match self.0.locator.owner(subject, is_fresh).await {
            SubjectOwner::This => None,
            SubjectOwner::Node(id) => match self.address(&id) {
                // What is remembered is of before that node was lost.
                None if !is_fresh => Box::pin(self.target(subject, true)).await,
                target => target,
            },
            SubjectOwner::Other(path) => self.ask_others(&path).await,
        }
    }

    /// Asks all other nodes at a path that is for nodes alone, and returns the one that says yes.
    async fn ask_others(&self, path: &str) -> Option<PeerTarget> {
        let path: uri::PathAndQuery = path.parse().ok()?;
        // Strangers may make this node ask.
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

    /// Node that has something, as the store says.
    pub(super) async fn owner(&self, subject: &RequestSubject) -> SubjectOwner {
        self.0.locator.owner(subject, true).await
    }

    /// Returns where a node is reached, if it runs.
    pub(super) fn address(&self, id: &str) -> Option<PeerTarget> {
        target_of(self.0.membership.living(id)?)
    }

    /// Returns where all other nodes of a kind are reached that run.
    fn others(&self, is_meant: impl Fn(&NodeRecord) -> bool) -> Vec<PeerTarget> {
        let own = &self.0.membership.identity().id;
        let others = self.0.membership.all_living().into_iter();
        others.filter(|node| node.id != *own && is_meant(node)).filter_map(target_of).collect()
    }

    /// Sends a request to the node that has its subject, and once more where it has not.
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
                    let (method, headers) = (&request.parts.method, answer.headers());
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

    /// Sends a request, whose answer is not waited for any more when its node is lost.
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

    /// Hands the answer of a node to the client, and the connection where the node takes it over,
    /// until that node is lost.
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
                    // It may stand still, with its connections open.
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
        // The node has set what is to be set.
        answer.extensions_mut().insert(VerbatimAnswer);
        *answer.version_mut() = Version::HTTP_11;
        answer
    }

    /// Closes connections to runs of nodes that are over.
    fn forget_replaced(&self) {
        let now = self.0.membership.clone();
        self.0.client.keep_only(|target| {
            now.living(&target.id).is_some_and(|node| node.incarnation == target.incarnation)
        });
    }
}

/// A request's subject, which may be at another node.
pub(crate) struct FoundSubject {
    forwarder: PeerForwarder,
    listener: &'static str,
    subject: RequestSubject,
}

impl FoundSubject {
    /// Answers the request, here or at the node that has what it is about.
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
                    // Whoever sent it looks further when there is no room.
                    true => next.run(request).await,
                    false => forwarder.place(kind, key, listener, request, next).await,
                };
            }
            if is_hop && matches!(subject, RequestSubject::Asked(_)) {
                // It has just said that it has it.
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

impl ForwardedRequest {
    /// A request that has nothing but a head.
    pub(super) fn without_body(parts: Parts, listener: &'static str) -> ForwardedRequest {
        ForwardedRequest { parts, listener, body: ForwardedBody::Kept(Bytes::new()), upgrade: None }
    }

    /// Returns its head, and the listener that it came to.
    pub(super) fn into_head(self) -> (Parts, &'static str) {
        (self.parts, self.listener)
    }

    /// The request as it goes to a node.
    pub(super) fn for_node(&self, target: &PeerTarget, body: Body) -> axum::http::Request<Body> {
        let mut sent = axum::http::Request::new(body);
        *sent.method_mut() = self.parts.method.clone();
        *sent.headers_mut() = self.head(target);
        let path = self.parts.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| uri::PathAndQuery::from_static("/"));
        if self.upgrade.is_some() {
            *sent.uri_mut() = Uri::from(path);
            return sent;
        }
        *sent.uri_mut() = address_of(path);
        *sent.version_mut() = Version::HTTP_2;
        sent
    }

    /// The headers that go to a node.
    fn head(&self, target: &PeerTarget) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        if self.upgrade.is_none() {
            OF_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
            headers.remove(header::UPGRADE);
        }
        // Answered by this node already, or not at all.
        headers.remove(header::EXPECT);
        // What the other node does is a part of what this one does.
        traces::write_current(&mut headers);
        let host = headers.remove(header::HOST);
        let added = [
            (FOR_NODE, HeaderValue::from_str(&node_value(&target.id, &target.incarnation)).ok()),
            (LISTENER, Some(HeaderValue::from_static(self.listener))),
            (CLIENT_HOST, host),
            (CLIENT, self.client()),
        ];
        for (name, value) in added {
            headers.remove(&name);
            value.map(|value| headers.insert(name, value));
        }
        if self.upgrade.is_some() {
            headers.insert(header::HOST, HeaderValue::from_static(AUTHORITY));
        }
        headers
    }

    /// Address of the client.
    fn client(&self) -> Option<HeaderValue> {
        let ConnectionPeer(address) = self.parts.extensions.get::<ConnectionPeer>()?;
        HeaderValue::from_str(&address.to_string()).ok()
    }

    /// Returns it to be answered here, and once more for another node where its body is kept. None
    /// when its body was sent already.
    pub(super) fn twice(self) -> Option<(ForwardedRequest, Option<ForwardedRequest>)> {
        let body = self.body.to_send()?;
        let again = match &self.body {
            ForwardedBody::Kept(bytes) => Some(ForwardedRequest {
                parts: self.parts.clone(),
                listener: self.listener,
                body: ForwardedBody::Kept(bytes.clone()),
                upgrade: self.upgrade.clone(),
            }),
            ForwardedBody::Streamed(_) => None,
        };
        Some((ForwardedRequest { body: ForwardedBody::streamed(body), ..self }, again))
    }

    /// Answers it with this node's own handlers after all.
    pub(super) async fn run_here(mut self, next: Next) -> Response {
        let Some(body) = self.body.to_send() else { return moved() };
        if let Some(upgrade) = self.upgrade {
            self.parts.extensions.insert(upgrade);
        }
        next.run(Request::from_parts(self.parts, body)).await
    }
}

/// Returns where a node is reached, if others can reach it.
pub(super) fn target_of(node: NodeRecord) -> Option<PeerTarget> {
    let address = node.description.peer_address?;
    Some(PeerTarget { id: node.id, incarnation: node.incarnation, address })
}

/// A request of this node's own.
fn for_node_alone(
    target: &PeerTarget,
    method: Method,
    path: uri::PathAndQuery,
    body: Bytes,
) -> Option<axum::http::Request<Body>> {
    let mut sent = axum::http::Request::new(Body::from(body));
    *sent.method_mut() = method;
    *sent.uri_mut() = address_of(path);
    *sent.version_mut() = Version::HTTP_2;
    let run = HeaderValue::from_str(&node_value(&target.id, &target.incarnation)).ok()?;
    sent.headers_mut().insert(FOR_NODE, run);
    sent.headers_mut().insert(LISTENER, HeaderValue::from_static(PEER_LISTENER));
    Some(sent)
}

/// Address of a request of HTTP/2.
fn address_of(path: uri::PathAndQuery) -> Uri {
    let mut address = uri::Parts::default();
    address.scheme = Some(uri::Scheme::HTTPS);
    address.authority = Some(uri::Authority::from_static(AUTHORITY));
    address.path_and_query = Some(path);
    // All parts are there.
    Uri::from_parts(address).unwrap_or_default()
}

/// Prepares a request for being sent, reading a body that is short.
pub(super) async fn forwarded(
    mut parts: Parts,
    listener: &'static str,
    body: Body,
) -> Result<ForwardedRequest, HttpError> {
    // Of any protocol: a program in a sandbox may speak what it likes.
    let upgrade = match parts.headers.contains_key(header::UPGRADE) {
        true => parts.extensions.remove::<OnUpgrade>(),
        false => None,
    };
    let body = kept(body).await?;
    Ok(ForwardedRequest { parts, listener, body, upgrade })
}

pub(super) fn is_misdirected(answer: &axum::http::Response<Incoming>) -> bool {
    answer.status() == StatusCode::MISDIRECTED_REQUEST && answer.headers().contains_key(MISDIRECTED)
}

/// The answer when what a request is about has moved twice, or its body is gone.
pub(super) fn moved() -> Response {
    try_again("another node is taking this over, or was asked and had no room")
}

pub(super) fn try_again(message: &str) -> Response {
    HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).into_response()
}

/// The answer when nobody knows whether the node has done what was asked.
pub(super) fn broken() -> Response {
    let message = "the node that has this went away while it answered; it may have done what was \
                   asked";
    HttpError::new(ErrorCode::NodeLost, message).into_response()
}
