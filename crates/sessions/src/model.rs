//! The way from an agent to the model: a listener inside the sandbox, served from outside.
//!
//! An agent speaks plain HTTP to a port of its own loopback and has no key. What it asks for under
//! `/v1/` is sent to the configured endpoint, and to nothing else, with the key added here; the
//! answer is passed on as it comes. Of headers those are passed that are listed (`headers`), in
//! either direction, so that neither a key nor a cookie finds a way. Nothing is stored on the way
//! but what a connection's buffers hold.
//!
//! It sends requests by itself rather than by `node::client`: bodies have to be passed on while
//! they come, and connections kept, because each new one costs a handshake before the first token.

mod headers;
mod upstream;
mod usage;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use node::client::Roots;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::upstream::{Upstream, UpstreamError};
pub(crate) use self::usage::{Tally, Tokens};

/// Connections of one sandbox at one time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 32;
/// Time of one connection, with all its requests.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// Time for the head of a request, and between two requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5 * 60);
/// Bytes of a request's head, and of what is read ahead.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of a request's body; the Messages API takes as many.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Time until the head of an answer, which the Messages API promises within ten minutes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(11 * 60);
/// Wait after a connection could not be accepted, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body on its way.
type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A key for the model. Is never shown.
#[derive(Clone)]
pub(crate) struct ModelKey(HeaderValue);

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelKey")
    }
}

impl ModelKey {
    /// A key as it was given; none when it has characters that no key has.
    pub(crate) fn new(key: &str) -> Option<ModelKey> {
        let mut value = HeaderValue::from_str(key.trim()).ok().filter(|key| !key.is_empty())?;
        value.set_sensitive(true);
        Some(ModelKey(value))
    }
}

/// Whose key it is that a session's requests get.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// The session's owner's: everything under `/v1/` may be asked for.
    Own(ModelKey),
    /// The server's, which others use as well: what one key's holders could see of each other, such
    /// as batches and files, may not.
    Shared(Option<ModelKey>),
}

/// Relays between agents and the model. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ModelRelay(Arc<Upstream>);

impl fmt::Debug for ModelRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelRelay").field(&self.0.authority()).finish()
    }
}

impl ModelRelay {
    /// A relay to the endpoint at `url`, which may have a path that is put before every request's.
    ///
    /// # Errors
    /// Says what is wrong with `url`.
    pub(crate) fn new(url: &str, roots: Roots) -> Result<ModelRelay, &'static str> {
        Ok(ModelRelay(Arc::new(Upstream::new(url, roots)?)))
    }

    /// Serves a sandbox's listener for as long as the future is kept; dropping it ends everything
    /// that is on its way. What is used is counted in `tally`.
    pub(crate) async fn serve(&self, listener: TcpListener, access: Access, tally: Arc<Tally>) {
        let session = Arc::new(Session { upstream: Arc::clone(&self.0), access, tally });
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let session = Arc::clone(&session);
                    connections.spawn(timeout(CONNECTION_TIME_MAX, session.connection(stream)));
                }
                Err(error) => {
                    tracing::debug!(%error, "accept a connection to the model");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// What the requests of one session share.
struct Session {
    upstream: Arc<Upstream>,
    access: Access,
    tally: Arc<Tally>,
}

impl Session {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Without it answers are a little later, and no less right.
        stream.set_nodelay(true).ok();
        let service = service_fn(|request| {
            let session = Arc::clone(&self);
            async move { Ok::<_, Infallible>(session.answer(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::trace!(%error, "serve a connection to the model");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.tally.request();
        match self.relay(request).await {
            Ok(answer) => answer,
            Err(refused) => {
                self.tally.failed();
                refused.into_response()
            }
        }
    }

    async fn relay(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        let (head, body) = request.into_parts();
        if !self.access.allows(&head.method, head.uri.path()) {
            return Err(Refused::Path);
        }
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri =
            format!("{}{path}", self.upstream.base_path()).parse().map_err(|_| Refused::Path)?;
        if body.size_hint().lower() > u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX) {
            return Err(Refused::TooLarge);
        }
        let mut message = Request::new(Limited::new(body, BODY_BYTES_MAX).boxed_unsync());
        *message.method_mut() = head.method;
        *message.uri_mut() = uri;
        headers::copy_request(&head.headers, message.headers_mut());
        if let Access::Own(ModelKey(key)) | Access::Shared(Some(ModelKey(key))) = &self.access {
            message.headers_mut().insert("x-api-key", key.clone());
        }
        let sent = timeout(ANSWER_TIME_MAX, self.upstream.send(message)).await;
        let answer = sent.map_err(|_| Refused::Slow)?.map_err(Refused::from)?;
        let (head, body) = answer.into_parts();
        let mut passed = Response::new(());
        *passed.status_mut() = head.status;
        headers::copy_answer(&head.headers, passed.headers_mut());
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let counted = usage::Counted::new(body, kind.unwrap_or_default(), Arc::clone(&self.tally));
        Ok(passed.map(|()| counted.boxed_unsync()))
    }
}

impl Access {
    /// Whether this may be asked for.
    fn allows(&self, method: &Method, path: &str) -> bool {
        let is_plain = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
        };
        let Some(rest) = path.strip_prefix("/v1/") else { return false };
        // No path that the endpoint could read as another one.
        if !rest.split('/').all(is_plain) {
            return false;
        }
        match self {
            Access::Own(_) => true,
            Access::Shared(_) => match rest {
                "messages" | "messages/count_tokens" => method == Method::POST,
                "models" => method == Method::GET,
                model => method == Method::GET && model.starts_with("models/"),
            },
        }
    }
}

/// Why a request was not relayed, in the shape of the Messages API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Path,
    TooLarge,
    Down,
    Slow,
    Broken,
}

impl From<UpstreamError> for Refused {
    fn from(error: UpstreamError) -> Refused {
        // The cause is for the operator's eyes: it may name hosts.
        tracing::debug!(error = &error as &dyn std::error::Error, "reach the model");
        match error {
            UpstreamError::TooLarge => Refused::TooLarge,
            UpstreamError::Connect(_) | UpstreamError::Tls(_) => Refused::Down,
            UpstreamError::Http(_) => Refused::Broken,
        }
    }
}

impl Refused {
    fn into_response(self) -> Response<Body> {
        let (status, kind, message) = match self {
            Refused::Path => (404, "not_found_error", "this is not relayed to the model"),
            Refused::TooLarge => (413, "request_too_large", "the request is too large"),
            Refused::Down => (502, "api_error", "the model cannot be reached at present"),
            Refused::Slow => (504, "timeout_error", "the model did not answer in time"),
            Refused::Broken => (502, "api_error", "the connection to the model broke"),
        };
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        let body = Full::new(Bytes::from(error.to_string()));
        let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }
}

#[cfg(test)]
mod tests;
