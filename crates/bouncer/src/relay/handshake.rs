//! Start of TLS on a client's connection.

use std::io;

use tokio_rustls::rustls::ServerConnection;

use super::client::{ClientPhase, RelayClient};
use super::common::RelayShared;

impl RelayClient {
    /// Performs the handshake with a client that requested TLS. `early` is the part of it that was
    /// read already.
    pub(super) fn start_tls(&mut self, early: &[u8], common: &RelayShared) -> io::Result<()> {
        let ClientPhase::Login(login) = &mut self.phase else { return Ok(()) };
        let shown = common.client_tls.load();
        let tls = match &shown.config {
            Some(config) => ServerConnection::new(config.clone()).map_err(io::Error::other)?,
            // TLS was switched off after the request was accepted.
            None => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.conn.socket.accept_tls(tls);
        self.conn.socket.read_early(early)?;
        login.is_in_handshake = Some(shown);
        Ok(())
    }
}
