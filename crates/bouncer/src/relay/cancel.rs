//! Cancel requests: from the client that asks, to the client that is meant, to its server.
//!
//! A request is forwarded only while the client that is meant waits for a reply, on a connection of
//! its own, encrypted as that of the client's server connection is. The server closes it once the
//! signal was sent; until then the server connection is nobody else's, whose statement the signal
//! could hit, and its client's own next statement waits: PostgreSQL signals a process and then its
//! group, and the first of the two may have ended what was meant.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS>

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use pooler_core::pg::dial::TlsRequest;

use super::cancel_connections::EndedCancel;
use super::client::{ClientPhase, RelayClient, ServerAttachment};
use super::conn::SocketReadiness;
use super::leave::ClientDeparture;
use super::orders::ThreadMessageKind;
use super::server::{RelayServer, ServerCloseReason};
use super::worker::{ConnectionIo, RelayWorker};
use crate::guest::client::SandboxClient;

/// Cancel requests on their way to one server connection; another one would change nothing.
const CANCELS_PER_SERVER_MAX: u32 = 2;

impl RelayWorker {
    /// A client wants to cancel what another one does.
    pub(super) fn cancel_requested(&mut self, place: u32, pid: u32, key: &[u8]) {
        let is_guest = self.is_guest(place);
        let is_fenced = self.login_guest(place).is_some_and(|guest| guest.check_lease().is_err());
        let source = self.cancel_source(place);
        self.client_gone(place, &ClientDeparture::Dismissed);
        // Or somebody could try all keys.
        if is_fenced || !self.common.cancel_rate.allow(source, self.context.now) {
            return;
        }
        let Some((thread, client)) = self.common.keys.find(pid, key) else {
            // A guest's connections are all here.
            if let Some(elsewhere) = self.common.elsewhere.get().filter(|_| !is_guest) {
                elsewhere.pass_on(pid, key);
            }
            return;
        };
        if thread == self.index {
            self.cancel_client(client, pid);
        } else if let Some(peer) = self.common.peers.get(thread) {
            peer.inbox.push(ThreadMessageKind::Cancel { client, pid });
        }
    }

    /// Returns whether a connection is a sandbox's.
    fn is_guest(&self, place: u32) -> bool {
        self.login_guest(place).is_some()
    }

    /// Returns the guest that logs in.
    fn login_guest(&self, place: u32) -> Option<&Arc<SandboxClient>> {
        match &self.clients.get(place)?.phase {
            ClientPhase::Login(phase) => phase.bound().guest.as_ref(),
            ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// Returns whose requests to cancel are counted together: those of an address, or of a guest.
    /// All sandboxes have the same addresses, so that each guest has a network of its own among
    /// those that nobody has (RFC 6666); addresses of one network are counted together.
    fn cancel_source(&self, place: u32) -> Option<IpAddr> {
        const DISCARD: u128 = 0x0100 << 112;
        let client = self.clients.get(place)?;
        match self.login_guest(place) {
            Some(guest) => {
                Some(IpAddr::V6(Ipv6Addr::from_bits(DISCARD | (u128::from(guest.id()) << 64))))
            }
            None => client.conn.socket.peer().map(|it| it.ip()),
        }
    }

    /// Cancels what a client does: its request at the server, or its place in the queue.
    pub(super) fn cancel_client(&mut self, place: u32, pid: u32) {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        if session.pid != pid {
            return;
        }
        session.stats.cancels.add(1);
        match session.place {
            ServerAttachment::Idle => {}
            ServerAttachment::Parked | ServerAttachment::Waiting(_) => self.cancel_waiting(place),
            ServerAttachment::Attached(server) => {
                // Between two statements there is nothing to cancel, and what comes next is not
                // meant.
                let is_fresh = session.is_fresh;
                let is_awaited = self.servers.get(server).is_some_and(RelayServer::is_awaited);
                if is_awaited && !is_fresh {
                    self.cancel_at_server(server);
                }
            }
        }
    }

    /// Answers the request for which a client waits in the queue as the server would, and takes
    /// the client out of there. A request of which a part has yet to come goes on waiting.
    fn cancel_waiting(&mut self, place: u32) {
        let RelayWorker { clients, pools, context, outbox, .. } = self;
        let Some(client) = clients.get_mut(place) else { return };
        let RelayClient { conn, phase: ClientPhase::Session(session), .. } = client else { return };
        let Some(bytes) = session.link.request_bytes(conn.input.front()) else { return };
        conn.input.consume(bytes, &mut context.freelist);
        if let ServerAttachment::Waiting(ticket) = session.place {
            pools.give_up_waiting(session.pool, ticket, context.now);
        }
        if session.place.is_waiting() {
            session.stats.clients_waiting.sub(1);
        }
        session.rest();
        session.link.put_cancelled(&mut outbox.to_client);
        self.send_outbox(Some(place), None);
        self.queue_client(place);
    }

    /// Sends a cancel request to the server of a connection whose client waits for a reply.
    pub(super) fn cancel_at_server(&mut self, place: u32) {
        let Some(server) = self.servers.get_mut(place) else { return };
        if server.cancels >= CANCELS_PER_SERVER_MAX {
            return;
        }
        let (target, serial) = (server.target.clone(), server.serial);
        let tenant = Arc::clone(&server.tenant);
        let tls = if server.conn.socket.is_tls() { TlsRequest::Must } else { TlsRequest::Never };
        let Some(dial) = self.servers.get(place).and_then(|server| self.new_cancel(server, tls))
        else {
            return;
        };
        let RelayWorker { cancels, common, context, .. } = self;
        if let Err(error) = cancels.begin(dial, &target, (place, serial), tenant, common, context) {
            tracing::info!(error = &error as &dyn std::error::Error, "forward a cancel request");
        } else if let Some(server) = self.servers.get_mut(place) {
            server.cancels += 1;
        }
    }

    /// Handles an event of epoll for a connection that carries a cancel request.
    pub(super) fn cancel_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let RelayWorker { cancels, scratch, common, context, .. } = self;
        cancels.ready(place, readiness, &mut ConnectionIo { context, common, scratch });
        self.apply_ended_cancels();
    }

    /// Lets server connections be shared again whose cancel requests have ended.
    pub(super) fn apply_ended_cancels(&mut self) {
        while let Some(EndedCancel { server: (place, serial), is_late }) = self.cancels.next_ended()
        {
            let server = self.servers.get_mut(place).filter(|it| it.serial == serial);
            let Some(server) = server else { continue };
            if is_late && server.awaits_cancels {
                // Whether the signal will come yet is not known.
                self.close_server(place, &ServerCloseReason::Unclean);
                continue;
            }
            server.cancels -= 1;
            if server.cancels > 0 {
                continue;
            }
            if let Some(client) = server.client {
                self.unstall(client);
            } else if std::mem::take(&mut server.awaits_cancels) {
                self.return_server(place);
            }
        }
    }
}
