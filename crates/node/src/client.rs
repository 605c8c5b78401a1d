//! Outgoing HTTP/1.1 requests: guarded, bounded, one connection each.
//!
//! For webhooks, whose URL an untrusted caller chose ([`AddressGuard::Public`]), and for the
//! command line ([`AddressGuard::Open`]). It follows no redirect, keeps no cookie and no
//! connection, and reads no environment variable: the [`ClientRequest`] determines everything.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110>

mod guard;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};

use crate::{clock, tls};

pub use self::guard::{
    ALLOWED_MAX, AddressGuard, AddressRefusal, AllowedNetwork, NotAllowed, is_name, is_public,
};

/// Longest address of a request, in bytes.
pub const URL_BYTES_MAX: usize = 8 << 10;

/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Maximum number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Time to connect to one address, if there are more.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is malformed, or has an unsupported scheme.
    #[error("`url`: {0}")]
    Url(&'static str),
    /// A header that only the client sets.
    #[error("the header `{0}` is set by the client")]
    Header(String),
    /// The address guard refuses the address.
    #[error(transparent)]
    Refused(#[from] AddressRefusal),
    /// The name cannot be resolved.
    #[error("find the address of `{host}`")]
    Resolve {
        /// The name.
        host: String,
        /// Cause.
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error("connect to `{host}`")]
    Connect {
        /// Host of the server.
        host: String,
        /// Error of the last address.
        source: io::Error,
    },
    /// The server's certificate is not trusted, or the server does not speak TLS.
    #[error("agree on TLS with `{host}`")]
    Tls {
        /// Host of the server.
        host: String,
        /// Cause.
        source: io::Error,
    },
    /// TLS cannot be set up on this side.
    #[error("set up TLS")]
    TlsSetup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server does not speak HTTP, or disconnected.
    #[error("exchange HTTP with `{host}`")]
    Http {
        /// Host of the server.
        host: String,
        /// Cause.
        source: hyper::Error,
    },
    /// The response took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The response paused for too long.
    #[error("the answer paused for more than {0:?}")]
    Paused(Duration),
    /// The response is too long.
    #[error("the answer has more than {0} bytes")]
    TooLarge(u64),
}

/// Error that ends a body before its end.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is sent while it is read. With an exact size hint the request has that
/// `content-length`; otherwise the body is sent in HTTP chunks.
pub type Outgoing = UnsyncBoxBody<Bytes, BodyError>;

/// A request.
#[derive(Clone)]
pub struct ClientRequest {
    /// Method of the request.
    pub method: Method,
    /// `http://…` or `https://…`.
    pub url: String,
    /// Headers beyond `host`, `content-length` and `connection`, which the client sets.
    pub headers: HeaderMap,
    /// Empty for none.
    pub body: Bytes,
    /// Time until the head of the response arrives, and for [`ClientResponse::bytes`] the whole
    /// response.
    pub timeout: Duration,
    /// Longest pause between two pieces of a body that is read by [`ClientResponse::chunk`].
    pub pause_max: Duration,
    /// Maximum size of the response's body.
    pub response_bytes_max: u64,
}

impl ClientRequest {
    /// Creates a request without headers or body, with a timeout of 30 seconds and at most 1 MiB
    /// for the response.
    pub fn new(method: Method, url: impl Into<String>) -> ClientRequest {
        ClientRequest {
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: Duration::from_secs(30),
            pause_max: Duration::from_secs(60),
            response_bytes_max: 1 << 20,
        }
    }
}

impl fmt::Debug for ClientRequest {
    /// Omits headers and query, which contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        let mut text = f.debug_struct("Request");
        text.field("method", &self.method).field("url", &path).finish_non_exhaustive()
    }
}

/// Response of a server. Dropping it closes the connection.
#[derive(Debug)]
pub struct ClientResponse {
    /// Status: 404 and 301 are responses, not errors.
    pub status: StatusCode,
    /// Headers, with names in lower case.
    pub headers: HeaderMap,
    host: String,
    body: Incoming,
    /// Number of bytes of the body that were read so far.
    bytes: u64,
    bytes_max: u64,
    pause_max: Duration,
    timeout: Duration,
    deadline: Instant,
    _connection: ClientConnection,
}

/// The task that transfers the bytes; it ends with the response.
#[derive(Debug)]
struct ClientConnection(AbortHandle);

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ClientResponse {
    /// Returns the next piece of the body; none at its end. Cancel-safe.
    ///
    /// # Errors
    /// If the connection breaks, pauses for too long, or the body is too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let pause_max = self.pause_max;
        let next = timeout(pause_max, self.next_chunk()).await;
        next.unwrap_or(Err(ClientError::Paused(pause_max)))
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// If the connection breaks, the request times out, or the body is too long.
    pub async fn bytes(mut self) -> Result<Vec<u8>, ClientError> {
        let left = self.deadline.saturating_duration_since(clock::now());
        let timed_out = ClientError::Timeout(self.timeout);
        let read = async {
            let mut all = Vec::new();
            while let Some(chunk) = self.next_chunk().await? {
                all.extend_from_slice(&chunk);
            }
            Ok(all)
        };
        timeout(left, read).await.unwrap_or(Err(timed_out))
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(http_error(&self.host))?;
            // Trailers are ignored.
            let Ok(chunk) = frame.into_data() else { continue };
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.bytes = self.bytes.saturating_add(length);
            if self.bytes > self.bytes_max {
                return Err(ClientError::TooLarge(self.bytes_max));
            }
            return Ok(Some(chunk));
        }
    }
}

/// Checks whether a request could be sent to a URL, by its text.
///
/// # Errors
/// If the URL is malformed or has an unsupported scheme.
pub fn check_url(url: &str) -> Result<(), ClientError> {
    RequestTarget::parse(url).map(drop)
}

/// Certificate authorities that TLS trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsRoots {
    /// The authorities that the machine trusts.
    #[default]
    Machine,
    /// Certificates in a file, in PEM.
    File(PathBuf),
}

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient(Arc<HttpClientShared>);

struct HttpClientShared {
    guard: AddressGuard,
    roots: TlsRoots,
    /// Created when first needed: reading the machine's authorities takes milliseconds.
    tls: OnceLock<TlsConnector>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("guard", &self.0.guard).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Creates a client that connects where `guard` permits and trusts the machine's authorities.
    pub fn new(guard: AddressGuard) -> HttpClient {
        HttpClient::with_roots(guard, TlsRoots::Machine)
    }

    /// Creates a client that trusts other authorities.
    pub fn with_roots(guard: AddressGuard, roots: TlsRoots) -> HttpClient {
        HttpClient(Arc::new(HttpClientShared { guard, roots, tls: OnceLock::new() }))
    }

    /// Checks whether a request to this URL could be sent, without resolving names.
    ///
    /// # Errors
    /// If the URL is malformed, has an unsupported scheme, or an address that may not be reached.
    pub fn check(&self, url: &str) -> Result<(), ClientError> {
        let target = RequestTarget::parse(url)?;
        if let Some(address) = target.address {
            self.0.guard.check(&target.host, &[SocketAddr::new(address, target.port)])?;
        }
        Ok(())
    }

    /// Sends a request and returns when the head of the response has arrived.
    ///
    /// # Errors
    /// If there is no response. A redirect is one.
    pub async fn send(&self, mut request: ClientRequest) -> Result<ClientResponse, ClientError> {
        let body = Full::new(std::mem::take(&mut request.body));
        self.send_stream(request, body.map_err(|never| match never {}).boxed_unsync()).await
    }

    /// Sends a request with this body instead of its own. The body is read as the server takes it:
    /// no more of it is in memory than a connection buffers. The request's timeout covers the whole
    /// body and the head of the response.
    ///
    /// # Errors
    /// As of [`HttpClient::send`], and if the body breaks off.
    pub async fn send_stream(
        &self,
        request: ClientRequest,
        body: Outgoing,
    ) -> Result<ClientResponse, ClientError> {
        let (limit, deadline) = (request.timeout, clock::now() + request.timeout);
        let answer = timeout(limit, self.exchange(request, body, deadline)).await;
        answer.unwrap_or(Err(ClientError::Timeout(limit)))
    }

    async fn exchange(
        &self,
        request: ClientRequest,
        body: Outgoing,
        deadline: Instant,
    ) -> Result<ClientResponse, ClientError> {
        let target = RequestTarget::parse(&request.url)?;
        let message = message(&request, &target, body)?;
        let tcp = self.connect(&target).await?;
        let host = &target.host;
        let (answer, connection) = if target.is_https {
            let name = ServerName::try_from(host.trim_end_matches('.').to_owned())
                .map_err(|_| ClientError::Url("its host has no name for TLS"))?;
            let stream = self.tls().await?.connect(name, tcp).await;
            let tls_error = |source| ClientError::Tls { host: host.clone(), source };
            speak(stream.map_err(tls_error)?, message).await
        } else {
            speak(tcp, message).await
        }
        .map_err(http_error(host))?;
        let (head, body) = answer.into_parts();
        Ok(ClientResponse {
            status: head.status,
            headers: head.headers,
            host: target.host,
            body,
            bytes: 0,
            bytes_max: request.response_bytes_max,
            pause_max: request.pause_max,
            timeout: request.timeout,
            deadline,
            _connection: connection,
        })
    }

    /// Resolves the name once, has all addresses checked, and connects to one of them.
    async fn connect(&self, target: &RequestTarget) -> Result<TcpStream, ClientError> {
        let host = &target.host;
        let addresses: Vec<SocketAddr> = match target.address {
            Some(address) => vec![SocketAddr::new(address, target.port)],
            None => {
                let found = lookup_host((host.as_str(), target.port)).await;
                let found =
                    found.map_err(|source| ClientError::Resolve { host: host.clone(), source })?;
                found.collect()
            }
        };
        // Before the number is limited, so that all of them are checked.
        self.0.guard.check(host, &addresses)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for address in addresses.iter().take(ADDRESSES_MAX) {
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    if let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) {
                        self.0.guard.check_ends(host, own, peer)?;
                    }
                    // Without it responses are a little later, and still correct.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "no connection in time"),
            }
        }
        Err(ClientError::Connect { host: host.clone(), source: last })
    }

    async fn tls(&self) -> Result<TlsConnector, ClientError> {
        if let Some(connector) = self.0.tls.get() {
            return Ok(connector.clone());
        }
        let roots = self.0.roots.clone();
        let made = crate::task::blocking(move || connector(&roots)).await;
        let made = made.map_err(|error| ClientError::TlsSetup(error.into()))?;
        let made = made.map_err(ClientError::TlsSetup)?;
        // If two were made at once, either will do.
        Ok(self.0.tls.get_or_init(|| made).clone())
    }
}

/// Returns a TLS connector for an HTTP/1.1 connection of the caller's own that trusts these roots.
/// Reads files, so call it on a thread that may block.
///
/// # Errors
/// If there are no authorities, or the roots cannot be read.
pub fn connector(
    roots: &TlsRoots,
) -> Result<TlsConnector, Box<dyn std::error::Error + Send + Sync>> {
    let store = match roots {
        TlsRoots::Machine => tls::machine_roots()?,
        TlsRoots::File(path) => {
            let mut store = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path)? {
                store.add(certificate?)?;
            }
            store
        }
    };
    let mut config = tls::client_config()?.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn http_error(host: &str) -> impl FnOnce(hyper::Error) -> ClientError {
    let host = host.to_owned();
    move |source| ClientError::Http { host, source }
}

/// Sends one request over a new connection.
async fn speak<S>(
    stream: S,
    message: hyper::Request<Outgoing>,
) -> Result<(hyper::Response<Incoming>, ClientConnection), hyper::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    // Its errors also appear in the request and the body.
    let task = crate::task::spawn(async move { drop(connection.await) });
    let connection = ClientConnection(task.abort_handle());
    let answer = sender.send_request(message).await?;
    Ok((answer, connection))
}

/// The parts of a URL that identify its server.
#[derive(Debug)]
struct RequestTarget {
    is_https: bool,
    /// Without brackets.
    host: String,
    /// The host, if it is an address itself.
    address: Option<IpAddr>,
    port: u16,
    /// `host`, with brackets and a port other than the default one.
    authority: String,
    path: String,
}

impl RequestTarget {
    fn parse(url: &str) -> Result<RequestTarget, ClientError> {
        let wrong = |message| Err(ClientError::Url(message));
        if url.len() > URL_BYTES_MAX {
            return wrong("it is too long");
        }
        if !url.is_ascii() {
            return wrong("it has to be ASCII: `xn--…` for names, `%…` for the rest");
        }
        let Ok(uri) = url.parse::<Uri>() else { return wrong("it is malformed") };
        let (is_https, usual_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return wrong("it does not begin with `http://` or `https://`"),
        };
        let Some(authority) = uri.authority() else { return wrong("it has no host") };
        if authority.as_str().contains('@') {
            return wrong("it has a user name; credentials belong into a header");
        }
        let host = authority.host();
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match bracketed {
            Some(inside) => inside.parse().ok().map(IpAddr::V6),
            None => host.parse().ok().map(IpAddr::V4),
        };
        if address.is_none() && (bracketed.is_some() || !guard::is_name(host)) {
            return wrong("its host is neither a name nor a plain address");
        }
        let rest = &authority.as_str()[host.len()..];
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => usual_port,
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                match digits.parse() {
                    Ok(port) => port,
                    Err(_) => return wrong("its port is none"),
                }
            }
            _ => return wrong("its port is none"),
        };
        let suffix = if port == usual_port { String::new() } else { format!(":{port}") };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(RequestTarget {
            is_https,
            host: bracketed.unwrap_or(host).to_owned(),
            address,
            port,
            authority: format!("{host}{suffix}"),
            path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        })
    }
}

/// Builds the request as sent over the wire.
fn message(
    request: &ClientRequest,
    target: &RequestTarget,
    body: Outgoing,
) -> Result<hyper::Request<Outgoing>, ClientError> {
    let own = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
        header::EXPECT,
    ];
    if let Some(name) = own.iter().find(|name| request.headers.contains_key(*name)) {
        return Err(ClientError::Header(name.to_string()));
    }
    let malformed = |_| ClientError::Url("it is malformed");
    let uri: Uri = target.path.parse().map_err(malformed)?;
    let mut message = hyper::Request::new(body);
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = uri;
    *message.headers_mut() = request.headers.clone();
    let host = HeaderValue::from_str(&target.authority);
    let host = host.map_err(|_| ClientError::Url("it is malformed"))?;
    message.headers_mut().insert(header::HOST, host);
    message.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let agent = HeaderValue::from_static(concat!("cove/", env!("CARGO_PKG_VERSION")));
    message.headers_mut().entry(header::USER_AGENT).or_insert(agent);
    Ok(message)
}

#[cfg(test)]
mod tests;
