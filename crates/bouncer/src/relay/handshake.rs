//! TLS begins: on a client's connection, and on one to a server.

use std::io;

use tokio_rustls::rustls::{Connection, ServerConnection};

use super::client::ClientPhase;
use super::leave::ClientDeparture;
use super::pools::PoolFailure;
use super::server::{ServerCloseReason, ServerPhase};
use super::worker::RelayWorker;
use node::telemetry::error_chain;

use crate::tls;

impl RelayWorker {
    /// Shakes hands with a client that asked for TLS. `early` is what it sent of that already.
    pub(super) fn start_client_tls(&mut self, place: u32, early: &[u8]) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Login(login) = &mut client.phase else { return };
        let shown = self.common.client_tls.load();
        let begun = match &shown.config {
            Some(config) => ServerConnection::new(config.clone()).map_err(io::Error::other),
            // It was switched off between the answer and now.
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        let begun = begun.and_then(|tls| {
            client.conn.socket.accept_tls(tls);
            client.conn.socket.read_early(early)
        });
        match begun {
            Ok(()) => login.is_in_handshake = Some(shown),
            Err(error) => self.client_gone(place, &ClientDeparture::Lost(error)),
        }
    }

    /// Shakes hands with a server that has agreed to TLS.
    pub(super) fn start_server_tls(&mut self, place: u32) {
        self.send_outbox(None, Some(place));
        let Some(server) = self.servers.get_mut(place) else { return };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        let address = &server.tenant.server;
        match self.common.server_tls.connection(&address.tls, &address.address) {
            Ok(tls) => {
                opening.is_in_handshake = true;
                server.conn.socket.start_tls(tls);
            }
            Err(error) => {
                let failure = PoolFailure::unreached("08001", error_chain(&error));
                return self.opening_failed(place, failure);
            }
        }
        let context = &mut self.context;
        if let Err(error) = server.conn.flush(&mut context.freelist, &context.registry) {
            self.server_failed(place, &ServerCloseReason::Lost(error));
        }
    }

    /// Goes on with a server once the handshake is done.
    pub(super) fn server_tls_started(&mut self, place: u32) {
        let RelayWorker { servers, outbox, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        if server.conn.socket.is_in_handshake() {
            return;
        }
        let end_point = match server.conn.socket.tls() {
            Some(Connection::Client(tls)) => tls::end_point(tls),
            Some(Connection::Server(_)) | None => None,
        };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        if !std::mem::take(&mut opening.is_in_handshake) {
            return;
        }
        let next = opening.dial.tls_started(end_point, &mut outbox.to_server);
        self.follow_dial(place, next);
    }
}
