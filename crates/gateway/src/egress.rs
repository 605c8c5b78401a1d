//! The proxy of `http` grants: requests and tunnels to servers outside, by rules.
//!
//! Code in a sandbox sends `GET http://host/path` or `CONNECT host:443` to a port of its own
//! loopback. Rules decide ([`rules`]); names are resolved here, and a connection goes to the
//! address that was checked ([`dial`]). A request is parsed and written anew, so that no two
//! parsers can disagree on where it ends; redirects are passed on unfollowed. Secrets that a rule
//! adds to requests are removed from responses, as far as they can be recognised. A tunnel passes
//! bytes if its TLS is for the requested host.
//!
//! Each request has its own outgoing connection.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-9.3.6>

pub(crate) mod accounts;
mod body;
pub mod dial;
mod echo;
mod exchange;
mod first_read;
mod forms;
mod headers;
pub mod hello;
pub mod host;
pub mod path;
pub mod rules;
mod tunnel;

use std::convert::Infallible;
use std::error::Error as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use api::{AuditEvent, AuditOutcome};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use node::fence::{EffectFence, EffectWay, LEASE_RETRY, LeaseLost, is_lease_lost};
use node::gateway::GrantHolder;
use node::http::close_lingering;
use node::task::{self, Boxed};
use node::traces::TraceContext;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::accounts::GrantAccount;
use self::body::{BodyCut, BoxError, OutsideConnection, ProxiedBody};
use self::dial::{DialTerms, EgressDialError, EgressDialer};
use self::exchange::{ByteDirection, GrantUsage, LimitRefusal, ProxyExchange};
use self::first_read::ShortFirstRead;
use self::forms::FormFilter;
pub use self::headers::REFUSED;
use self::headers::{InspectedParts, SessionHeaders};
use self::host::RequestHost;
use self::path::RequestPath;
use self::rules::{EgressRule, GrantRules, RuleRequest, RuleVerdict};
use self::tunnel::ConnectTunnel;
use crate::config::HttpLimits;
use crate::doors::{AuditSink, GatewayEvent, StreamDoor};

/// Longest time of one connection, with all its requests.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// Longest time for the head of a request, and between two requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of a head, and of read-ahead.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest time until the head of a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5 * 60);
/// Most bytes of a request in the audit log.
const TEXT_BYTES_MAX: usize = 2048;

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The proxy of one grant of one sandbox.
#[derive(Debug)]
pub struct EgressProxy {
    rules: GrantRules,
    limits: HttpLimits,
    usage: Arc<GrantUsage>,
    dialer: Arc<EgressDialer>,
    /// Limits concurrent name lookups of the tenant.
    lookups: Arc<Semaphore>,
    witness: Arc<dyn AuditSink>,
    /// True if query values are recorded.
    shows_queries: bool,
    fence: EffectFence,
    /// Session headers for rules that request them; `None` if no session owns the sandbox.
    session: Option<SessionHeaders>,
}

/// Context of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyContext {
    /// Opens connections.
    pub dialer: Arc<EgressDialer>,
    /// Limits concurrent name lookups of the tenant.
    pub lookups: Arc<Semaphore>,
    /// Usage account of the grant.
    pub account: Arc<GrantAccount>,
    /// Sink of audit records.
    pub witness: Arc<dyn AuditSink>,
    /// True if query values are recorded.
    pub shows_queries: bool,
    /// Blocks outgoing traffic after the server's lease has ended.
    pub fence: EffectFence,
    /// Holder of the grant.
    pub holder: GrantHolder,
}

impl EgressProxy {
    /// Creates a proxy with these rules.
    #[must_use]
    pub fn new(rules: GrantRules, limits: HttpLimits, surroundings: ProxyContext) -> EgressProxy {
        let ProxyContext { dialer, lookups, account, witness, shows_queries, .. } = surroundings;
        let ProxyContext { fence, holder, .. } = surroundings;
        let usage = Arc::new(GrantUsage::new(limits, account));
        let session = SessionHeaders::of(&holder);
        EgressProxy {
            rules,
            limits,
            usage,
            dialer,
            lookups,
            witness,
            shows_queries,
            fence,
            session,
        }
    }
}

impl StreamDoor for EgressProxy {
    fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        Box::pin(async move {
            // A request in progress is recorded when it is dropped.
            timeout(CONNECTION_TIME_MAX, self.connection(stream)).await.ok();
        })
    }

    fn connections_max(&self) -> usize {
        usize::try_from(self.limits.connections).unwrap_or(usize::MAX)
    }
}

/// Slot in which a handler leaves the tunnel that its connection turns into.
type Slot = Arc<Mutex<Option<ConnectTunnel>>>;

/// Target of a request.
struct EgressTarget {
    host: RequestHost,
    port: u16,
    /// `None` for a tunnel.
    path: Option<RequestPath>,
}

impl EgressProxy {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Without it responses are only slightly slower.
        stream.set_nodelay(true).ok();
        // hyper closes its own descriptor; this duplicate stays open for an orderly shutdown.
        let last = stream.as_fd().try_clone_to_owned();
        let slot = Slot::default();
        let service = service_fn(|request| {
            let (proxy, slot) = (Arc::clone(&self), Arc::clone(&slot));
            async move { Ok::<_, Infallible>(proxy.answer(request, &slot).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(ShortFirstRead::new(stream)), service)
            .with_upgrades()
            .await;
        if let Err(error) = served
            && error.is_parse()
        {
            let happening = GatewayEvent::new(AuditEvent::Request, AuditOutcome::Refused);
            self.witness
                .saw(&GatewayEvent { error: Some("the request is malformed"), ..happening });
        }
        let tunnel = slot.lock().take();
        match (tunnel, last) {
            (Some(tunnel), last) => {
                drop(last);
                tunnel.run().await;
            }
            (None, Ok(last)) => match TcpStream::from_std(last.into()) {
                Ok(last) => close_lingering(last).await,
                Err(error) => tracing::debug!(%error, "close a connection of the proxy"),
            },
            (None, Err(error)) => tracing::debug!(%error, "keep a connection of the proxy open"),
        }
    }

    async fn answer(&self, request: Request<Incoming>, slot: &Slot) -> Response<Body> {
        let text = shown(request.method(), request.uri(), self.shows_queries);
        let (witness, usage) = (Arc::clone(&self.witness), Arc::clone(&self.usage));
        // The request is forwarded with this value; here it is only recorded.
        let trace = match witness.is_traced() {
            true => TraceContext::from_headers(request.headers()),
            false => None,
        };
        let exchange = Arc::new(ProxyExchange::new(text, trace, witness, usage));
        let answer = match request.method() == Method::CONNECT {
            true => self.tunnel(request, slot, &exchange).await,
            false => self.relay(request, &exchange).await,
        };
        answer.unwrap_or_else(|refusal| {
            let is_fenced = refusal.status == StatusCode::SERVICE_UNAVAILABLE;
            match refusal.status.is_server_error() && !is_fenced {
                true => exchange.failed(&refusal.why),
                false => exchange.refused(&refusal.why),
            }
            refusal.into_response()
        })
    }

    /// Applies rules and limits.
    async fn decide(
        &self,
        method: &str,
        target: &EgressTarget,
    ) -> Result<(&EgressRule, InspectedParts), EgressRefusal> {
        self.fence.check(EffectWay::Http)?;
        self.usage.request().await?;
        let EgressTarget { host, port, path } = target;
        match self.rules.decide(&RuleRequest { method, host, port: *port, path: path.as_ref() }) {
            RuleVerdict::Allow { rule, inspected } => Ok((rule, inspected)),
            RuleVerdict::Refuse(why) => Err(EgressRefusal::forbidden(why)),
        }
    }

    fn terms<'a>(&'a self, rule: &'a EgressRule, any_protocol: bool) -> DialTerms<'a> {
        DialTerms {
            guard: &rule.guard,
            networks: &rule.networks,
            any_protocol,
            lookups: &self.lookups,
        }
    }

    /// Rejects a body whose announced length is too long.
    fn check_length(&self, body: &Incoming) -> Result<(), EgressRefusal> {
        match self.usage.has_room(body.size_hint().lower()) {
            true => Ok(()),
            false => Err(EgressRefusal::limit("bytes: the grant's limit is reached")),
        }
    }

    async fn tunnel(
        &self,
        mut request: Request<Incoming>,
        slot: &Slot,
        exchange: &Arc<ProxyExchange>,
    ) -> Result<Response<Body>, EgressRefusal> {
        let target = target_of_tunnel(request.uri())?;
        let (rule, _) = self.decide(Method::CONNECT.as_str(), &target).await?;
        let EgressTarget { host, port, .. } = target;
        let server = self.dialer.connect(&host, port, self.terms(rule, rule.names_ports)).await?;
        let server = self.fence.guard(EffectWay::Http, server);
        let client = hyper::upgrade::on(&mut request);
        let exchange = Arc::clone(exchange);
        *slot.lock() = Some(ConnectTunnel { client, server, host, port, exchange });
        Ok(Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync()))
    }

    async fn relay(
        &self,
        request: Request<Incoming>,
        exchange: &Arc<ProxyExchange>,
    ) -> Result<Response<Body>, EgressRefusal> {
        let target = target_of_request(request.uri())?;
        check_framing(request.headers())?;
        let (rule, mut inspected) = self.decide(request.method().as_str(), &target).await?;
        let compared_path = inspected.path;
        // A secret is added only to the request that was compared with the rules.
        inspected.path |= rule.scanner.is_some();
        inspected.method |= rule.scanner.is_some();
        check_query(request.uri(), inspected)?;
        self.check_length(request.body())?;
        let EgressTarget { host, port, path } = target;
        // Port 80 is the default of a URL in the sandbox; outside the default of TLS applies.
        let port = if rule.is_tls && port == 80 { 443 } else { port };
        let (mut head, body) = request.into_parts();
        let has_secret = rule.scanner.is_some();
        let query = head.uri.query().map_or(String::new(), |query| format!("?{query}"));
        let sent = match &path {
            Some(RequestPath::Plain { sent, .. }) if compared_path => sent.as_str(),
            _ => head.uri.path(),
        };
        let uri: Uri =
            format!("{sent}{query}").parse().map_err(|_| EgressRefusal::malformed("path"))?;
        headers::of_request(&mut head.headers, &rule.added, inspected, has_secret);
        if let Some(session) = self.session.as_ref().filter(|_| rule.has_session_headers) {
            session.add(&mut head.headers);
        }
        let usual = if rule.is_tls { 443 } else { 80 };
        let suffix = if port == usual { String::new() } else { format!(":{port}") };
        let authority = HeaderValue::from_str(&format!("{}{suffix}", host.authority()));
        let authority = authority.map_err(|_| EgressRefusal::malformed("host"))?;
        head.headers.insert(HOST, authority);
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let form = FormFilter::of(&head.headers).filter(|_| inspected.method);
        let body = ProxiedBody::new(body, ByteDirection::Out, Arc::clone(exchange)).compared(form);
        let mut message = Request::new(body);
        *message.method_mut() = head.method;
        *message.uri_mut() = uri;
        *message.headers_mut() = head.headers;
        let server = self.dialer.connect(&host, port, self.terms(rule, false)).await?;
        let server = self.fence.guard(EffectWay::Http, server);
        let (sender, connection) = match rule.is_tls {
            true => speak(self.dialer.tls(&host, server).await?).await,
            false => speak(server).await,
        }?;
        let answer = timeout(ANSWER_TIME_MAX, ask(sender, message)).await;
        let answer = answer.map_err(|_| EgressRefusal::slow("no answer in time"))??;
        self.check_length(answer.body())?;
        passed(answer, rule, connection, exchange)
    }
}

/// Returns a response for the sandbox. Its connection lives as long as its body.
fn passed(
    answer: Response<Incoming>,
    rule: &EgressRule,
    connection: OutsideConnection,
    exchange: &Arc<ProxyExchange>,
) -> Result<Response<Body>, EgressRefusal> {
    let (mut head, body) = answer.into_parts();
    exchange.answered(head.status);
    if rule.scanner.is_some()
        && let Some(reason) = headers::reason_not_searchable(head.status, &head.headers)
    {
        return Err(EgressRefusal::of(502, reason));
    }
    if !headers::of_answer(&mut head.headers, rule.scanner.as_ref()) {
        return Err(EgressRefusal::of(502, "the answer repeats a secret in its headers"));
    }
    let body = ProxiedBody::new(body, ByteDirection::In, Arc::clone(exchange));
    let body = body.searched(rule.scanner.clone()).of(connection);
    let mut passed = Response::new(body.boxed_unsync());
    *passed.status_mut() = head.status;
    *passed.headers_mut() = head.headers;
    Ok(passed)
}

/// Rejects a query that requests another method than the one that a rule compared.
fn check_query(uri: &Uri, inspected: InspectedParts) -> Result<(), EgressRefusal> {
    let field = uri.query().filter(|_| inspected.method).and_then(headers::method_field);
    match field {
        None => Ok(()),
        Some(field) => Err(EgressRefusal::forbidden(format!(
            "query: `{field}` overrides the method, and the rule compares methods or adds a \
             secret"
        ))),
    }
}

async fn speak<S>(stream: S) -> Result<(SendRequest<ProxiedBody>, OutsideConnection), EgressRefusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    let made = http.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(EgressRefusal::broken)?;
    // Its errors are reported by the request and the body.
    let task = task::spawn(async move { drop(connection.await) });
    Ok((sender, OutsideConnection(task.abort_handle())))
}

async fn ask(
    mut sender: SendRequest<ProxiedBody>,
    message: Request<ProxiedBody>,
) -> Result<Response<Incoming>, EgressRefusal> {
    let answer = sender.send_request(message).await.map_err(EgressRefusal::broken)?;
    match answer.status() {
        // No upgrade was requested.
        StatusCode::SWITCHING_PROTOCOLS => {
            Err(EgressRefusal::of(502, "the server changed the protocol"))
        }
        _ if headers::differs_in_length(answer.headers()) => {
            Err(EgressRefusal::of(502, "the answer is malformed"))
        }
        _ => Ok(answer),
    }
}

/// Parses the target of `CONNECT host:port`.
fn target_of_tunnel(uri: &Uri) -> Result<EgressTarget, EgressRefusal> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none());
    let authority = authority.ok_or(EgressRefusal::malformed("host"))?.as_str();
    let (host, port) = authority.rsplit_once(':').ok_or(EgressRefusal::malformed("port"))?;
    let host = RequestHost::parse(host).ok_or(EgressRefusal::malformed("host"))?;
    Ok(EgressTarget { host, port: port_of(port)?, path: None })
}

/// Parses the target of `GET http://host/path`.
fn target_of_request(uri: &Uri) -> Result<EgressTarget, EgressRefusal> {
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(EgressRefusal::of(400, "scheme: TLS is for a tunnel, by CONNECT"));
        }
        Some(_) => return Err(EgressRefusal::malformed("scheme")),
        None => return Err(EgressRefusal::of(400, "this is a proxy: `GET http://host/path`")),
    }
    let authority = uri.authority().ok_or(EgressRefusal::malformed("host"))?.as_str();
    // The colons of an IPv6 address are inside brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port_of(port)?),
        _ => (authority, 80),
    };
    let host = RequestHost::parse(host).ok_or(EgressRefusal::malformed("host"))?;
    Ok(EgressTarget { host, port, path: Some(RequestPath::read(uri.path())) })
}

fn port_of(text: &str) -> Result<u16, EgressRefusal> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port != 0);
    port.ok_or(EgressRefusal::malformed("port"))
}

/// Checks that a body's length has one meaning. hyper handles differing lengths, and a length
/// beside chunks: it uses the chunks then, and closes the connection after the request.
fn check_framing(headers: &HeaderMap) -> Result<(), EgressRefusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_good = codings.next().is_none_or(|it| it.as_bytes().eq_ignore_ascii_case(b"chunked"));
    match is_good && codings.next().is_none() {
        true => Ok(()),
        false => Err(EgressRefusal::malformed("transfer-encoding")),
    }
}

/// Formats a request for the audit log: without values of its query, and without user information
/// before the host, which may be a password.
fn shown(method: &Method, uri: &Uri, shows_queries: bool) -> String {
    let mut text = format!("{method} ");
    if let Some(scheme) = uri.scheme_str() {
        text.push_str(scheme);
        text.push_str("://");
    }
    if let Some(authority) = uri.authority() {
        text.push_str(authority.as_str().rsplit('@').next().unwrap_or_default());
    }
    text.push_str(uri.path());
    match uri.query() {
        None => {}
        Some(query) if shows_queries => {
            text.push('?');
            text.push_str(query);
        }
        Some(query) => {
            let names = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name, _)) => format!("{name}=…"),
                None => "…".to_owned(),
            });
            text.push('?');
            text.push_str(&names.collect::<Vec<_>>().join("&"));
        }
    }
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Reason why there is no response from outside.
#[derive(Debug)]
struct EgressRefusal {
    status: StatusCode,
    /// A line with the problem, or the rule that rejected the request.
    why: String,
}

impl EgressRefusal {
    fn of(status: u16, why: impl Into<String>) -> EgressRefusal {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        EgressRefusal { status, why: why.into() }
    }

    fn malformed(what: &'static str) -> EgressRefusal {
        EgressRefusal::of(400, format!("{what}: malformed"))
    }

    fn forbidden(why: String) -> EgressRefusal {
        EgressRefusal::of(403, why)
    }

    fn limit(why: &'static str) -> EgressRefusal {
        EgressRefusal::of(429, why)
    }

    fn slow(why: &'static str) -> EgressRefusal {
        EgressRefusal::of(504, why)
    }

    fn broken(error: hyper::Error) -> EgressRefusal {
        tracing::debug!(error = &error as &dyn std::error::Error, "exchange HTTP for a sandbox");
        if is_lease_lost(&error) {
            return EgressRefusal::from(LeaseLost);
        }
        // The server is not at fault if it did not receive the whole body.
        match error.source().and_then(|source| source.downcast_ref::<BodyCut>()) {
            Some(BodyCut::Broken) => EgressRefusal::malformed("body"),
            Some(cut @ BodyCut::Paused) => EgressRefusal::of(408, cut.to_string()),
            Some(BodyCut::Limit(refusal)) => EgressRefusal::from(*refusal),
            Some(cut @ BodyCut::MethodField) => EgressRefusal::of(403, cut.to_string()),
            Some(BodyCut::Secret) | None => {
                EgressRefusal::of(502, "the connection to the server broke")
            }
        }
    }

    fn into_response(self) -> Response<Body> {
        let text = Bytes::from(format!("cove: {}\n", self.why));
        let body = Full::new(text).map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Ok(why) = HeaderValue::from_str(&self.why) {
            headers.insert(REFUSED, why);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from(LEASE_RETRY.as_secs()));
        }
        answer
    }
}

impl From<LimitRefusal> for EgressRefusal {
    fn from(refusal: LimitRefusal) -> EgressRefusal {
        match refusal.is_store_away {
            true => EgressRefusal::of(503, refusal.why),
            false => EgressRefusal::limit(refusal.why),
        }
    }
}

impl From<LeaseLost> for EgressRefusal {
    fn from(lost: LeaseLost) -> EgressRefusal {
        EgressRefusal::of(503, format!("lease: {lost}"))
    }
}

impl From<EgressDialError> for EgressRefusal {
    fn from(error: EgressDialError) -> EgressRefusal {
        tracing::debug!(error = &error as &dyn std::error::Error, "connect for a sandbox");
        // The cause is not returned: it may name addresses.
        let why = error.to_string();
        match error {
            EgressDialError::Refused(_) => EgressRefusal::forbidden(format!("address: {why}")),
            EgressDialError::Slow(_) => EgressRefusal::of(504, why),
            EgressDialError::Tls(_, source) if is_lease_lost(&source) => LeaseLost.into(),
            EgressDialError::TlsSetup(_) => {
                EgressRefusal::of(502, "TLS cannot be spoken at present")
            }
            EgressDialError::Resolve(..)
            | EgressDialError::Connect(..)
            | EgressDialError::Tls(..) => EgressRefusal::of(502, why),
        }
    }
}

#[cfg(test)]
mod tests;
