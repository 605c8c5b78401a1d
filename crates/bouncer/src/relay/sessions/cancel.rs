//! Cancel requests, and `KILL` of MySQL, with which a client ends a statement of another client of
//! the same user, by that client's connection number.
//!
//! A cancel request is forwarded only while its target waits for a reply, over a separate
//! connection that is encrypted like the target's server connection. The server closes it once the
//! signal was sent. Until then the server connection is not given to another client, whose
//! statement the signal could hit, and the target's own next statement waits: PostgreSQL signals a
//! process and then its group, and the first of the two signals may have ended the statement
//! already.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS>
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>

use std::sync::Arc;

use wire::pg::message::ErrorFields;

use super::SessionRelay;
use crate::relay::client::{ClientPhase, RelayClient, ServerAttachment};
use crate::relay::common::{ForwardedKill, KillReply};
use crate::relay::orders::ThreadMessageKind;
use crate::relay::server::RelayServer;
use crate::relay::sessions::ThreadContext;

/// Error for killed clients.
const KILLED: &str = "the connection was killed";

impl SessionRelay {
    /// Cancels a client's request at the server, or its wait in the queue.
    pub(crate) fn cancel_client(&mut self, place: u32, pid: u32, context: &mut ThreadContext) {
        let Some(session) = self.clients.session(place) else {
            return;
        };
        if session.pid != pid {
            return;
        }
        session.stats.cancels.add(1);
        match session.place {
            ServerAttachment::Idle => {}
            ServerAttachment::Parked | ServerAttachment::Waiting(_) => {
                self.cancel_waiting(place, context)
            }
            ServerAttachment::Attached(server) => {
                // Between two statements there is nothing to cancel; the next statement is not the
                // target.
                let is_fresh = session.is_fresh;
                let is_awaited = self.servers.get(server).is_some_and(RelayServer::is_awaited);
                if is_awaited && !is_fresh {
                    self.servers.cancel(server, context);
                }
            }
        }
    }

    /// Answers the request for which a client waits in the queue like a server would, and removes
    /// the client from the queue. A request that is incomplete keeps waiting.
    pub(crate) fn cancel_waiting(&mut self, place: u32, context: &mut ThreadContext) {
        let SessionRelay { clients, servers, .. } = self;
        let Some(client) = clients.get_mut(place) else { return };
        let RelayClient { conn, phase: ClientPhase::Session(session), .. } = client else { return };
        let Some(bytes) = session.link.request_bytes(conn.input.front()) else { return };
        conn.input.consume(bytes, &mut context.freelist);
        if let ServerAttachment::Waiting(ticket) = session.place {
            servers.give_up_waiting(session.pool, ticket, context.now);
        }
        if session.place.is_waiting() {
            session.stats.clients_waiting.sub(1);
        }
        session.rest();
        session.link.put_cancelled(&mut context.outbox.to_client);
        self.send_outbox(Some(place), None, context);
        self.clients.queue(place, context);
    }

    /// Handles a client's request to end the statement or connection of the client `id`. Returns
    /// whether the requesting client still exists.
    pub(crate) fn kill_asked(
        &mut self,
        place: u32,
        id: u32,
        connection: bool,
        context: &mut ThreadContext,
    ) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        let serial = client.serial;
        let Some(session) = client.session() else { return false };
        if id == session.pid {
            if connection {
                self.disconnect(place, &ErrorFields::fatal("57014", KILLED), context);
                return false;
            }
            // A statement that kills itself is interrupted.
            session.link.put_cancelled(&mut context.outbox.to_client);
            self.send_outbox(Some(place), None, context);
            return true;
        }
        let route = &session.route;
        let found = context.common.keys.find_owned(id, route.tenant.id, &route.user.name);
        // All connections of a guest are at this node.
        let elsewhere = context.common.elsewhere.get().filter(|_| session.watch.is_none());
        if let (None, Some(elsewhere)) = (found, elsewhere) {
            session.asks_elsewhere = true;
            let kill = ForwardedKill {
                tenant: route.tenant.name.to_string(),
                user: route.user.name.to_string(),
                id,
                connection,
            };
            let inbox = Arc::clone(&context.inbox);
            elsewhere.kill(kill, KillReply { inbox, client: place, serial, is_found: false });
            return true;
        }
        if let Some(link) = session.link.my_mut() {
            link.kill_answered(found.is_some(), &mut context.outbox.to_client);
        }
        self.send_outbox(Some(place), None, context);
        let Some((thread, client)) = found else { return true };
        if thread == context.index {
            match connection {
                true => self.kill_one(client, id, context),
                false => self.cancel_client(client, id, context),
            }
        } else if let Some(peer) = context.common.peers.get(thread) {
            peer.inbox.push(match connection {
                true => ThreadMessageKind::KillClient { client, pid: id },
                false => ThreadMessageKind::Cancel { client, pid: id },
            });
        }
        true
    }

    /// Handles the reply of other nodes to a client that wants another one killed.
    pub(crate) fn killed_elsewhere(
        &mut self,
        place: u32,
        serial: u64,
        is_found: bool,
        context: &mut ThreadContext,
    ) {
        let Some(client) = self.clients.get_mut(place).filter(|it| it.serial == serial) else {
            return;
        };
        let Some(session) = client.session() else { return };
        if !std::mem::take(&mut session.asks_elsewhere) {
            return;
        }
        if let Some(link) = session.link.my_mut() {
            link.kill_answered(is_found, &mut context.outbox.to_client);
        }
        self.send_outbox(Some(place), None, context);
        // More input may have arrived meanwhile.
        self.clients.queue(place, context);
    }

    /// Ends the connection of a client, if its process id matches.
    pub(crate) fn kill_one(&mut self, place: u32, pid: u32, context: &mut ThreadContext) {
        let client = self.clients.get(place).filter(|it| it.pid() == Some(pid));
        if client.is_some() {
            self.disconnect(place, &ErrorFields::fatal("57P01", KILLED), context);
        }
    }
}
