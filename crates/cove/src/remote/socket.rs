//! WebSocket to the events of one execution (RFC 6455), over TLS if the URL requires it.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use node::client::{TlsRoots, URL_BYTES_MAX, connector};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error as SocketError};

use super::{ANSWER_BYTES_MAX, FailureKind, Remote, RemoteFailure};

/// Timeout for the connection and the handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Bidirectional byte stream, encrypted or not.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Open WebSocket.
pub(crate) type Socket = WebSocketStream<Box<dyn ByteStream>>;

/// Opens a WebSocket.
pub(crate) async fn open(remote: &Remote, path: &str) -> Result<Socket, RemoteFailure> {
    let opened = timeout(OPEN_TIMEOUT, handshake(remote, path)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    opened.map_err(|error| match error.downcast::<RemoteFailure>() {
        Ok(failure) => failure,
        Err(error) => RemoteFailure::new(FailureKind::Lost, format!("no WebSocket: {error:#}")),
    })
}

async fn handshake(remote: &Remote, path: &str) -> Result<Socket> {
    let (base, token) = remote.socket_parts();
    let url = format!("{base}{path}");
    anyhow::ensure!(url.len() <= URL_BYTES_MAX, "the address is too long");
    let uri: Uri = url.parse().context("read the address")?;
    let is_https = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let tcp = TcpStream::connect((host.as_str(), port)).await;
    let tcp = tcp.with_context(|| format!("connect to {base}"))?;
    // Without `TCP_NODELAY`, typed input would arrive later.
    tcp.set_nodelay(true).ok();
    let stream: Box<dyn ByteStream> = if is_https {
        let name = ServerName::try_from(host).context("read the host's name")?;
        let connector = node::task::blocking(|| connector(&TlsRoots::Machine)).await?;
        let connector = connector.map_err(anyhow::Error::from_boxed)?;
        let stream = connector.connect(name, tcp).await;
        Box::new(stream.with_context(|| format!("agree on TLS with {base}"))?)
    } else {
        Box::new(tcp)
    };
    // http and https become ws and wss.
    let mut request = url.replacen("http", "ws", 1).into_client_request()?;
    if let Some(token) = token {
        request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::clone(token));
    }
    let bytes_max = usize::try_from(ANSWER_BYTES_MAX).unwrap_or(usize::MAX);
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max));
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    match opened {
        Ok((socket, _answer)) => Ok(socket),
        Err(SocketError::Http(answer)) => Err(refusal(remote, &answer).into()),
        Err(error) => Err(error).with_context(|| format!("open a WebSocket to {base}")),
    }
}

/// Returns the error for a response that is not a WebSocket handshake.
fn refusal(
    remote: &Remote,
    answer: &tungstenite::http::Response<Option<Vec<u8>>>,
) -> RemoteFailure {
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or_default();
    let body = answer.body().as_deref().unwrap_or_default();
    remote.refusal(status, super::retry_after(answer.headers()), body)
}
