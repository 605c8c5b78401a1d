//! One connection: HTTP/1.1 by hyper, and a close that lets the client read its answer.

use std::future::poll_fn;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::server::Limits;

/// Serves one connection until either side ends it. With `closing` it finishes the request it is in.
pub(super) async fn serve(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are written at once; waiting to fill a segment only adds latency.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
        return;
    }
    let router = TowerToHyperService::new(router);
    let service =
        service_fn(move |request: hyper::Request<Incoming>| Box::pin(router.call(request)));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_max)
        .max_headers(limits.headers_max)
        .max_buf_size(limits.header_bytes_max)
        .serve_connection(TokioIo::new(stream), service);
    let mut is_closing = false;
    let result = loop {
        // While a handler runs, hyper watches for the end of the stream and then drops the handler.
        tokio::select! {
            result = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break result,
            closed = closing.wait_for(|closing| *closing), if !is_closing => {
                drop(closed);
                is_closing = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    match result {
        Ok(()) => linger(connection.into_parts().io.into_inner(), limits).await,
        // The client went away, was too slow, or does not speak HTTP: its own affair.
        Err(error) => tracing::debug!(%error, "connection ended"),
    }
}

/// Closes so that the client can read the answer to a request whose body was not read to its end.
/// Closing with unread bytes makes the kernel send a reset, which may overtake the answer.
async fn linger(mut stream: TcpStream, limits: Limits) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut scrap = [0; 4096];
    let discard = async { while matches!(stream.read(&mut scrap).await, Ok(1..)) {} };
    // When the time is up the client has had its chance.
    drop(tokio::time::timeout(limits.linger_max, discard).await);
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
