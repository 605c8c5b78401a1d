//! Tunnels: bytes both ways, after the first of them are verified to be for the requested host.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-9.3.6>

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use node::clock;
use node::fence::{FencedStream, LEASE_LOST, is_lease_lost};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::time::{sleep, timeout};

use super::exchange::{ByteDirection, ProxyExchange};
use super::first_read::ShortFirstRead;
use super::hello::{self, FirstBytes};
use super::host::RequestHost;

/// Longest time without data.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// Longest time for the first message of TLS.
pub(super) const HELLO_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes that are passed on at a time.
const BUFFER_BYTES: usize = 16 << 10;
/// Port that is used only for TLS.
const HTTPS: u16 = 443;
/// TLS alert "access denied", so that the client receives a reason.
const DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// A tunnel whose client has received the response to `CONNECT`.
pub(super) struct ConnectTunnel {
    pub(super) client: OnUpgrade,
    pub(super) server: FencedStream<TcpStream>,
    pub(super) host: RequestHost,
    pub(super) port: u16,
    pub(super) exchange: Arc<ProxyExchange>,
}

/// Reason why a tunnel is cut off.
#[derive(Debug, thiserror::Error)]
enum TunnelCut {
    #[error("{0}")]
    Refused(&'static str),
    #[error("the connection was lost")]
    Broken(#[from] io::Error),
    #[error("the tunnel was idle for too long")]
    Idle,
}

impl ConnectTunnel {
    /// Passes bytes until both ends are closed, or the tunnel is cut off.
    pub(super) async fn run(self) {
        let ConnectTunnel { client, server, host, port, exchange } = self;
        let Ok(upgraded) = client.await else {
            exchange.failed("the client left");
            return;
        };
        let Ok(parts) = upgraded.downcast::<TokioIo<ShortFirstRead<TcpStream>>>() else {
            exchange.failed("the connection is of another kind");
            return;
        };
        let (mut client, read) = (parts.io.into_inner().into_inner(), parts.read_buf.to_vec());
        let activity = LastActivity::new();
        let cut = {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = tokio::io::split(server);
            let out = async {
                let first = first(&mut from_client, read, &host, port).await?;
                pass(&exchange, ByteDirection::Out, &first).await?;
                to_server.write_all(&first).await?;
                copy(&mut from_client, &mut to_server, &exchange, ByteDirection::Out, &activity)
                    .await
            };
            let back =
                copy(&mut from_server, &mut to_client, &exchange, ByteDirection::In, &activity);
            let both = async { tokio::try_join!(out, back).map(drop) };
            tokio::select! {
                ended = both => ended.err(),
                () = activity.idle() => Some(TunnelCut::Idle),
            }
        };
        match cut {
            None => {}
            Some(TunnelCut::Refused(why)) => {
                exchange.refused(why);
                // A client that does not read it sees the end of the connection.
                client.try_write(&DENIED).ok();
                client.shutdown().await.ok();
            }
            Some(TunnelCut::Broken(error)) if is_lease_lost(&error) => exchange.refused(LEASE_LOST),
            Some(other) => exchange.failed(&other.to_string()),
        }
    }
}

/// Time of the last transfer.
struct LastActivity(AtomicU64);

impl LastActivity {
    fn new() -> LastActivity {
        LastActivity(AtomicU64::new(0))
    }

    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when nothing has passed for long.
    async fn idle(&self) {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            sleep(IDLE_MAX).await;
            let now = self.0.load(Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
        }
    }
}

async fn pass(exchange: &ProxyExchange, way: ByteDirection, bytes: &[u8]) -> Result<(), TunnelCut> {
    let passes = match exchange.try_count(way, bytes.len()) {
        Some(passes) => passes,
        None => exchange.take_bytes(bytes.len()).await,
    };
    passes.map_err(|refusal| TunnelCut::Refused(refusal.why))
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    exchange: &ProxyExchange,
    way: ByteDirection,
    activity: &LastActivity,
) -> Result<(), TunnelCut> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            // The other way may go on.
            to.shutdown().await?;
            return Ok(());
        }
        activity.note();
        let bytes = buffer.get(..count).unwrap_or_default();
        pass(exchange, way, bytes).await?;
        to.write_all(bytes).await?;
        activity.note();
    }
}

/// The first bytes of a client, not forwarded yet. TLS among them is for `host`.
async fn first(
    client: &mut ReadHalf<'_>,
    mut bytes: Vec<u8>,
    host: &RequestHost,
    port: u16,
) -> Result<Vec<u8>, TunnelCut> {
    let deadline = clock::now() + HELLO_TIME_MAX;
    loop {
        match hello::read(&bytes) {
            FirstBytes::Partial => {}
            FirstBytes::NotTls if port == HTTPS => {
                return Err(TunnelCut::Refused("tls: expected at port 443"));
            }
            FirstBytes::NotTls => return Ok(bytes),
            FirstBytes::Broken => {
                return Err(TunnelCut::Refused("tls: the first message is malformed"));
            }
            FirstBytes::Whole(name) if hello::is_for(name.as_deref(), host) => return Ok(bytes),
            FirstBytes::Whole(_) => return Err(TunnelCut::Refused("tls: it is for another host")),
        }
        // A client of another protocol may wait for its server to speak first.
        let is_due = !bytes.is_empty() || port == HTTPS;
        bytes.reserve(BUFFER_BYTES);
        let read = client.read_buf(&mut bytes);
        let count = match is_due {
            true => {
                let left = deadline.saturating_duration_since(clock::now());
                let late = |_| TunnelCut::Refused("tls: the first message took too long");
                timeout(left, read).await.map_err(late)??
            }
            false => read.await?,
        };
        if count == 0 {
            return match bytes.is_empty() {
                true => Ok(bytes),
                false => Err(TunnelCut::Refused("tls: the first message is malformed")),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::egress::hello::tests::hello;

    /// Returns how the first bytes of a client that sends these and stops are classified.
    async fn taken(sent: &[u8], host: &str, port: u16) -> Result<usize, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let host = RequestHost::parse(host).unwrap();
        let (mut from, _to) = server.split();
        let taken = first(&mut from, Vec::new(), &host, port).await;
        taken.map(|bytes| bytes.len()).map_err(|cut| cut.to_string())
    }

    #[tokio::test]
    async fn at_443_there_is_tls_and_nothing_else() {
        let good = hello("a.example");
        let at = async |sent: &[u8], port| taken(sent, "a.example", port).await;
        assert_eq!(at(&good, 443).await, Ok(good.len()));
        assert_eq!(at(&hello("b.example"), 8443).await.unwrap_err(), "tls: it is for another host");
        let request = b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
        assert_eq!(at(request, 443).await.unwrap_err(), "tls: expected at port 443");
        assert_eq!(at(request, 8080).await, Ok(request.len()));
        assert!(at(&good[..good.len() - 1], 8443).await.is_err());
        assert_eq!(at(b"", 443).await, Ok(0));
    }
}
