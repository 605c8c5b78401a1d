//! Connections to the model's endpoint: opened when needed, kept for the next request.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use node::client::{TlsRoots, connector};
use node::fence::{EffectFence, EffectWay, LeaseLost};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Body, BoxError};

/// Maximum bytes of an answer's head, and of data read ahead.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of idle connections; beyond it, one of the tenant with the most is closed.
const IDLE_MAX: usize = 32;
/// Maximum idle time of a connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(50);
/// Longest wait until a reused connection accepts the next request.
const READY_TIME_MAX: Duration = Duration::from_millis(20);
/// Longest time to connect, including TLS.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    /// The connection to the endpoint failed.
    #[error("connect to the model")]
    Connect(#[source] io::Error),
    /// The TLS handshake failed.
    #[error("agree on TLS with the model")]
    Tls(#[source] BoxError),
    /// The endpoint violated HTTP or closed the connection.
    #[error("exchange HTTP with the model")]
    Http(#[source] hyper::Error),
    /// The request's body exceeds the limit.
    #[error("the request is too large")]
    TooLarge,
}

/// The model's endpoint.
pub(super) struct ModelUpstream {
    host: String,
    port: u16,
    is_https: bool,
    authority: HeaderValue,
    /// Without a trailing `/`.
    base_path: String,
    roots: TlsRoots,
    /// Created on first use: loading the machine's root certificates takes milliseconds.
    tls: OnceCell<TlsConnector>,
    /// Idle connections, most recently used last.
    idle: Arc<Mutex<VecDeque<IdleUpstream>>>,
    /// Blocks outgoing traffic after the server's lease has ended.
    fence: EffectFence,
}

struct IdleUpstream {
    /// Tenant that opened it. Its task takes that tenant's turns, so no other tenant gets it.
    tenant: Arc<str>,
    connection: UpstreamConnection,
    since: Instant,
}

/// A connection; dropping it ends its task.
struct UpstreamConnection {
    sender: SendRequest<Body>,
    task: AbortHandle,
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ModelUpstream {
    pub(super) fn new(url: &str, roots: TlsRoots) -> Result<ModelUpstream, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "it is malformed")?;
        let (is_https, usual_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err("it does not begin with `http://` or `https://`"),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it has a user name; the key belongs into `api_key`");
        }
        if uri.query().is_some() {
            return Err("it has a query");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(ModelUpstream {
            host,
            port: authority.port_u16().unwrap_or(usual_port),
            is_https,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| "it is malformed")?,
            base_path: uri.path().trim_end_matches('/').to_owned(),
            roots,
            tls: OnceCell::new(),
            idle: Arc::default(),
            fence: EffectFence::open(),
        })
    }

    /// Sets the fence that blocks outgoing traffic after the server's lease has ended.
    pub(super) fn fence_by(&mut self, fence: EffectFence) {
        self.fence = fence;
    }

    /// Rejects requests after the server's lease has ended.
    pub(super) fn check_lease(&self) -> Result<(), LeaseLost> {
        self.fence.check(EffectWay::Model)
    }

    /// Returns the prefix of request paths.
    pub(super) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Returns the endpoint's authority, for logs.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Sends a request of a tenant and returns the answer once its head has arrived. Dropping the
    /// future, or the answer's body, closes the connection.
    pub(super) async fn send(
        &self,
        tenant: &Arc<str>,
        mut request: Request<Body>,
    ) -> Result<Response<UpstreamAnswer>, UpstreamError> {
        request.headers_mut().insert(HOST, self.authority.clone());
        loop {
            let kept = self.kept(tenant);
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.open().await?,
            };
            // The connection's task may not have noticed the end of the last answer yet. A
            // connection that stays busy, because its last answer ended before its request was
            // sent, is dropped.
            if is_kept
                && !matches!(timeout(READY_TIME_MAX, connection.sender.ready()).await, Ok(Ok(())))
            {
                continue;
            }
            match connection.sender.try_send_request(request).await {
                Ok(answer) => {
                    let keeper =
                        UpstreamKeeper { tenant: Arc::clone(tenant), idle: Arc::clone(&self.idle) };
                    return Ok(answer.map(|body| UpstreamAnswer::new(body, connection, keeper)));
                }
                // The endpoint may have closed an idle connection meanwhile. Then nothing of the
                // request was sent, and it is returned for another attempt.
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    _ => return Err(error_of(refused.into_error())),
                },
            }
        }
    }

    /// Takes the tenant's most recently used idle connection.
    fn kept(&self, tenant: &str) -> Option<UpstreamConnection> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.retain(|one| now - one.since < IDLE_TIME_MAX && !one.connection.sender.is_closed());
        let latest = idle.iter().rposition(|one| *one.tenant == *tenant)?;
        idle.remove(latest).map(|one| one.connection)
    }

    async fn open(&self) -> Result<UpstreamConnection, UpstreamError> {
        let late = |_| UpstreamError::Connect(io::ErrorKind::TimedOut.into());
        timeout(CONNECT_TIME_MAX, self.connect()).await.map_err(late)?
    }

    async fn connect(&self) -> Result<UpstreamConnection, UpstreamError> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.map_err(UpstreamError::Connect)?;
        // If this fails, requests are only slower.
        tcp.set_nodelay(true).ok();
        let tcp = self.fence.guard(EffectWay::Model, tcp);
        if !self.is_https {
            return speak(tcp).await;
        }
        let tls = self.tls.get_or_try_init(|| self.connector()).await?;
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| UpstreamError::Tls(error.into()))?;
        let stream = tls.connect(name, tcp).await;
        speak(stream.map_err(|error| UpstreamError::Tls(error.into()))?).await
    }

    async fn connector(&self) -> Result<TlsConnector, UpstreamError> {
        let roots = self.roots.clone();
        let made = node::task::blocking(move || connector(&roots)).await;
        made.map_err(|error| UpstreamError::Tls(error.into()))?.map_err(UpstreamError::Tls)
    }
}

async fn speak<S>(stream: S) -> Result<UpstreamConnection, UpstreamError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    let made = http.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(UpstreamError::Http)?;
    // Errors are reported through the request and the body.
    let task = node::task::spawn(async move { drop(connection.await) });
    Ok(UpstreamConnection { sender, task: task.abort_handle() })
}

/// Maps an error: a body over the limit is distinguishable only by its cause.
fn error_of(error: hyper::Error) -> UpstreamError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(one) = cause {
        if one.is::<http_body_util::LengthLimitError>() {
            return UpstreamError::TooLarge;
        }
        cause = one.source();
    }
    UpstreamError::Http(error)
}

/// Keeper of a connection whose request was answered.
struct UpstreamKeeper {
    tenant: Arc<str>,
    idle: Arc<Mutex<VecDeque<IdleUpstream>>>,
}

impl UpstreamKeeper {
    fn keep(&self, connection: UpstreamConnection) {
        let tenant = Arc::clone(&self.tenant);
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_MAX {
            remove_one(&mut idle);
        }
        idle.push_back(IdleUpstream { tenant, connection, since: Instant::now() });
    }
}

/// Closes the oldest connection of the tenant with the most, so that no tenant crowds out the
/// others.
fn remove_one(idle: &mut VecDeque<IdleUpstream>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for one in idle.iter() {
        *counts.entry(&one.tenant).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let oldest = idle.iter().position(|one| counts.get(&*one.tenant) == Some(&most));
    if let Some(oldest) = oldest {
        idle.remove(oldest);
    }
}

/// An answer's body. At its end, the connection is kept for the tenant's next request; if it is
/// dropped earlier, the connection is closed, which tells the endpoint to stop.
pub(super) struct UpstreamAnswer {
    body: Incoming,
    connection: Option<UpstreamConnection>,
    keeper: UpstreamKeeper,
}

impl UpstreamAnswer {
    fn new(
        body: Incoming,
        connection: UpstreamConnection,
        keeper: UpstreamKeeper,
    ) -> UpstreamAnswer {
        let mut answer = UpstreamAnswer { body, connection: Some(connection), keeper };
        answer.keep_at_end();
        answer
    }

    fn keep_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(connection) = self.connection.take()
        {
            self.keeper.keep(connection);
        }
    }
}

impl HttpBody for UpstreamAnswer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if !matches!(polled, Poll::Pending) {
            self.keep_at_end();
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
