//! One connection: HTTP/1.1 by hyper, what a handler makes of it by an upgrade, and a close that
//! lets the client read its answer.

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{Either, ready};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::fast::{Memory, Site};
use super::server::Limits;
use super::socket::Socket;
use super::stream::Kept;
use crate::task::Boxed;

/// Who is at the other end of a request's connection: an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Serves one connection until either side ends it. Told that the server is `closing`, it finishes
/// the request it is in.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    site: Site,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are written at once; waiting to fill a segment only adds latency.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
        return;
    }
    let router = TowerToHyperService::new(site.router.clone());
    // What a handler that takes the connection over keeps of its request, for as long as it does.
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let memory = Memory::default();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(answer) = site.answer(&request, &memory) {
            return Either::Left(ready(Ok(answer)));
        }
        request.extensions_mut().insert(Peer(peer));
        let (answer, keep) = (router.call(request), Arc::clone(&keep));
        Either::Right(Box::pin(async move {
            let mut answer = answer.await?;
            if let Some(kept) = answer.extensions_mut().remove::<Kept>() {
                *keep.lock() = Some(kept);
            }
            Ok::<_, std::convert::Infallible>(answer)
        }))
    });
    let (socket, mut watch) = Socket::new(stream, limits.write_stall_max);
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
        Some(Ok(())) => {}
        // What is not HTTP was answered with 400 or 431.
        Some(Err(error)) if error.is_parse() => tracing::debug!(%error, "not a request"),
        // The client went away or was too slow. Dropping the connection drops its handler.
        Some(Err(error)) => return tracing::debug!(%error, "connection ended"),
        None => return tracing::debug!("the client went away"),
    }
    // Hyper's part of it; with an upgrade the socket lives on.
    drop(connection);
    if watch.is_upgraded() {
        watch.until_dropped().await;
    } else if !is_closing {
        // A server that stops does not wait for idle clients to close their side.
        watch.linger(limits.linger_max, limits.linger_bytes_max).await;
    }
}

/// Serves one connection that somebody else has accepted, to its end or until the future is
/// dropped. No shell is around the site: whoever calls this knows whose connection it is, and
/// bounds how many there are. Of the limits those of one connection hold.
pub fn serve_one(stream: TcpStream, site: Site, limits: Limits) -> Boxed<'static, ()> {
    Box::pin(async move {
        let Ok(peer) = stream.peer_addr() else { return };
        // Kept, so that it never closes.
        let (_open, closing) = watch::channel(false);
        serve(stream, peer, site, limits, closing).await;
    })
}

/// Tells a client that there is no room for its connection. Best effort: it is not waited for.
pub(super) fn refuse(stream: &TcpStream, connections_max: usize) {
    let message = format!("the server has {connections_max} connections, which is its limit");
    let error = super::Error::new(api::ErrorCode::Overloaded, message)
        .retry_after(std::time::Duration::from_secs(1));
    let body = serde_json::json!({ "error": error.detail() }).to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    if let Err(error) = stream.try_write(answer.as_bytes()) {
        tracing::debug!(%error, "refuse a connection");
    }
}
