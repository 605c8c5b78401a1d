//! A connection: TLS and HTTP/2 if the client uses them, else HTTP/1.1 by hyper, upgrades by
//! handlers, and a close that lets the client read its response.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9112>

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::response::Response;
use futures_util::future::{Either, ready};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::fast::{ListenerSite, Memory};
use super::http2::{self, FairExecutor};
use super::protocol::{self, ClientProtocol};
use super::refusal::{EarlyRefusal, Render};
use super::room::ConnectionPlace;
use super::server::{HttpListenerTls, ShellLimits};
use super::socket::{ConnectionStream, SocketWatch, WatchedSocket};
use super::stream::UpgradedRequest;
use crate::fair::FairScheduler;
use crate::task::Boxed;
use crate::tls::HTTP_2;

/// Peer of a request's connection: an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPeer(pub SocketAddr);

/// Context that connections of a listener share.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub(super) site: ListenerSite,
    pub(super) limits: ShellLimits,
    pub(super) tls: Option<HttpListenerTls>,
    pub(super) scheduler: FairScheduler,
}

/// Serves one connection until either side ends it, with TLS and HTTP/2 if the client uses them.
/// When the server is `closing`, it finishes the requests in progress.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    context: ConnectionContext,
    mut closing: watch::Receiver<bool>,
    seat: ConnectionPlace,
) {
    let ConnectionContext { site, limits, tls, scheduler } = context;
    // Answers are written at once; waiting to fill a segment only adds latency.
    if let Err(error) = stream.set_nodelay(true) {
        return tracing::debug!(%error, "set TCP_NODELAY");
    }
    let begun = async {
        let protocol = protocol::detect(&stream).await?;
        if let (ClientProtocol::Tls, Some(tls)) = (protocol, &tls) {
            let tls = tls.certificate.acceptor().accept(stream).await?;
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(HTTP_2);
            let stream = ConnectionStream::Tls(Box::new(tls));
            return Ok(match is_http2 {
                true => BegunConnection::Http2(stream),
                false => BegunConnection::Http1(stream),
            });
        }
        let stream = ConnectionStream::Plain(stream);
        Ok::<_, io::Error>(match protocol {
            _ if tls.is_some_and(|tls| !tls.plaintext.allows(peer)) => {
                BegunConnection::Refused(stream)
            }
            ClientProtocol::Http2 => BegunConnection::Http2(stream),
            // Without a certificate here, TLS is refused as a malformed head.
            ClientProtocol::Http1 | ClientProtocol::Tls => BegunConnection::Http1(stream),
        })
    };
    let begun = tokio::select! {
        begun = timeout(limits.header_read_max, begun) => begun,
        _ = closing.wait_for(|closing| *closing) => return,
    };
    let (stream, is_http2) = match begun {
        Ok(Ok(BegunConnection::Http1(stream))) => (stream, false),
        Ok(Ok(BegunConnection::Http2(stream))) => (stream, true),
        Ok(Ok(BegunConnection::Refused(stream))) => {
            let presence = Arc::clone(seat.presence());
            let (_, watch) = WatchedSocket::new(stream, limits.write_stall_max, presence);
            watch.send_last(&EarlyRefusal::plaintext().bytes(site.render));
            return watch.linger(limits.linger_max, limits.linger_bytes_max).await;
        }
        Ok(Err(error)) => return tracing::debug!(%error, "no protocol was agreed on"),
        Err(_) => return tracing::debug!("the client says nothing"),
    };
    let service = ConnectionService::new(site, peer, seat, is_http2);
    if !is_http2 {
        return serve_http1(stream, service, limits, closing).await;
    }
    let executor = FairExecutor::new(scheduler, of_address(peer));
    let presence = Arc::clone(service.seat.presence());
    let (socket, watch) = WatchedSocket::new(stream, limits.write_stall_max, presence);
    let result = http2::serve(socket, executor, service, limits, &mut closing).await;
    http2::log_end(&result);
    if result.is_ok() && !*closing.borrow() {
        watch.linger(limits.linger_max, limits.linger_bytes_max).await;
    }
}

/// A connection whose protocol is known.
enum BegunConnection {
    Http1(ConnectionStream),
    Http2(ConnectionStream),
    /// The connection is not encrypted, and must be.
    Refused(ConnectionStream),
}

/// Returns the name of a caller that is only known by its address.
pub(super) fn of_address(peer: SocketAddr) -> Arc<str> {
    format!("address {}", peer.ip()).into()
}

async fn serve_http1(
    stream: ConnectionStream,
    requests: ConnectionService,
    limits: ShellLimits,
    mut closing: watch::Receiver<bool>,
) {
    let (seat, kept) = (Arc::clone(&requests.seat), Arc::clone(&requests.kept));
    let render = requests.site.render;
    let service = service_fn(move |request| requests.answer(request));
    let presence = Arc::clone(seat.presence());
    let (socket, mut watch) = WatchedSocket::new(stream, limits.write_stall_max, presence);
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(limits.header_bytes_max)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut is_closing = false;
    let result = loop {
        let step = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => watch.poll_gone(cx).map(|()| None),
        });
        tokio::select! {
            result = step => break result,
            closed = closing.wait_for(|closing| *closing), if !is_closing => {
                drop(closed);
                is_closing = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    match result {
        Some(Ok(())) => watch.send_last(&watch.take_withheld()),
        Some(Err(error)) if error.is_parse() => {
            tracing::debug!(%error, "not a request");
            // Hyper leaves the preface of HTTP/2 unanswered.
            if !watch.take_withheld().is_empty() || error.is_parse_version_h2() {
                let refusal = EarlyRefusal::of(&error, watch.is_tls(), &limits);
                watch.send_last(&refusal.bytes(render));
            }
        }
        Some(Err(error)) if error.is_timeout() && seat.presence().is_begun() => {
            tracing::debug!(%error, "half a request");
            watch.send_last(&EarlyRefusal::timeout(&limits).bytes(render));
        }
        // The client disconnected or was too slow. Dropping the connection drops its handler.
        Some(Err(error)) => return tracing::debug!(%error, "connection ended"),
        None => return tracing::debug!("the client went away"),
    }
    // Hyper's part of it; after an upgrade the socket lives on.
    drop(connection);
    if watch.is_upgraded() {
        let _answering = seat.begin();
        let kept = kept.lock().take();
        until_over(watch, kept).await;
    } else if !is_closing {
        // A stopping server does not wait for idle clients to close their side.
        watch.linger(limits.linger_max, limits.linger_bytes_max).await;
    }
}

/// The service that answers the requests of a connection.
pub(super) struct ConnectionService {
    site: ListenerSite,
    router: TowerToHyperService<Router>,
    peer: SocketAddr,
    memory: Memory,
    seat: Arc<ConnectionPlace>,
    /// State of its request, which a handler that takes the connection over keeps until it drops
    /// the connection.
    kept: Arc<Mutex<Option<UpgradedRequest>>>,
    /// True if requests are answered concurrently.
    is_multiplexed: bool,
}

impl ConnectionService {
    fn new(
        site: ListenerSite,
        peer: SocketAddr,
        seat: ConnectionPlace,
        is_multiplexed: bool,
    ) -> ConnectionService {
        ConnectionService {
            router: TowerToHyperService::new(site.router.clone()),
            site,
            peer,
            memory: Memory::default(),
            seat: Arc::new(seat),
            kept: Arc::default(),
            is_multiplexed,
        }
    }

    pub(super) fn seat(&self) -> Arc<ConnectionPlace> {
        Arc::clone(&self.seat)
    }

    pub(super) fn render(&self) -> Render {
        self.site.render
    }

    pub(super) fn answer(
        &self,
        mut request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        if let Some(answer) = self.site.answer(&request, &self.memory) {
            // Answers in memory are for authenticated callers.
            self.seat.presence().prove();
            return Either::Left(ready(Ok(answer)));
        }
        request.extensions_mut().insert(ConnectionPeer(self.peer));
        let answering = match self.is_multiplexed {
            false => self.seat.begin(),
            true => match self.seat.begin_multiplexed() {
                Some(answering) => answering,
                None => return Either::Left(ready(Ok(http2::too_many(self.site.render)))),
            },
        };
        request.extensions_mut().insert(Arc::clone(&answering));
        let (answer, keep) = (self.router.call(request), Arc::clone(&self.kept));
        Either::Right(Box::pin(async move {
            let _answering = answering;
            let mut answer = answer.await?;
            if let Some(kept) = answer.extensions_mut().remove::<UpgradedRequest>() {
                *keep.lock() = Some(kept);
            }
            Ok(answer)
        }))
    }
}

/// Returns when a handler that has taken the connection over drops it, or when its credential is
/// revoked.
async fn until_over(watch: SocketWatch, kept: Option<UpgradedRequest>) {
    let revoked = async {
        match &kept {
            Some(kept) => kept.revoked().await,
            None => std::future::pending().await,
        }
    };
    // Dropping `until_dropped` cuts the connection.
    tokio::select! {
        () = watch.until_dropped() => {}
        () = revoked => tracing::debug!("the credential was revoked; the connection is cut"),
    }
}

/// Serves one connection that the caller has accepted, to its end or until the future is dropped.
/// No shell is around the site: the caller knows whose connection it is, and bounds their number.
/// Of the limits, those of one connection apply.
pub fn serve_one(stream: TcpStream, site: ListenerSite, limits: ShellLimits) -> Boxed<'static, ()> {
    Box::pin(async move {
        let Ok(peer) = stream.peer_addr() else { return };
        // Held until the end, so that the connection never receives the signal to close.
        let (_open, closing) = watch::channel(false);
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "set TCP_NODELAY");
        }
        let service = ConnectionService::new(site, peer, ConnectionPlace::unbounded(), false);
        serve_http1(ConnectionStream::Plain(stream), service, limits, closing).await;
    })
}

/// Sends a client the refusal of its connection for lack of room. Best effort: does not wait for
/// the client.
pub(super) fn refuse(stream: &TcpStream, limits: &ShellLimits, render: Render) {
    let (max, of_address) = (limits.connections_max, limits.connections_per_address_max);
    let message = format!(
        "this listener has {max} connections, or {of_address} from your address, which is its \
         limit, and all of them are in use"
    );
    let error = super::HttpError::new(api::ErrorCode::Overloaded, message)
        .retry_after(std::time::Duration::from_secs(1));
    let answer = EarlyRefusal::new(error).bytes(render);
    if let Err(error) = stream.try_write(&answer) {
        tracing::debug!(%error, "refuse a connection");
    }
}
