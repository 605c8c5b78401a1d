//! A close that lets the client read its last answer.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time for the client to close its side.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes that are read and discarded meanwhile.
const LINGER_BYTES_MAX: u64 = 1 << 20;

/// Ends the outgoing direction, then reads and discards the client's bytes, within limits, until
/// the client closes its side. Closing with unread bytes makes the kernel send a reset, which may
/// overtake an answer to a request that was refused before its end.
///
/// <https://www.rfc-editor.org/rfc/rfc9112#section-9.6>
pub async fn close_lingering(mut stream: TcpStream) {
    let closing = async {
        stream.shutdown().await?;
        let mut rest = (&mut stream).take(LINGER_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    match timeout(LINGER_TIME_MAX, closing).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::trace!(%error, "close a connection"),
        Err(_) => tracing::trace!("a client does not close its side"),
    }
}
