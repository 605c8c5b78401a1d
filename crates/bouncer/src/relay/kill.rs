//! `KILL` of MySQL: a client ends what another one of the same user does, by the number that the
//! other one was told as it connected.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>

use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, RelayClient};
use super::orders::ThreadMessageKind;
use super::worker::RelayWorker;

/// Error for clients that were killed.
const KILLED: &str = "the connection was killed";

impl RelayWorker {
    /// A client wants what the client `id` does to end, or its connection. Whether the one that
    /// asks is still there.
    pub(super) fn kill_asked(&mut self, place: u32, id: u32, connection: bool) -> bool {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return false;
        };
        if id == session.pid {
            return self.kill_self(place, connection);
        }
        let route = &session.route;
        let found = self.common.keys.find_owned(id, route.tenant.id, &route.user.name);
        if let Some(link) = session.link.my_mut() {
            link.kill_answered(found.is_some(), &mut self.outbox.to_client);
        }
        self.send_outbox(Some(place), None);
        let Some((thread, client)) = found else { return true };
        if thread == self.index {
            match connection {
                true => self.kill_one(client, id),
                false => self.cancel_client(client, id),
            }
        } else if let Some(peer) = self.common.peers.get(thread) {
            peer.inbox.push(match connection {
                true => ThreadMessageKind::KillClient { client, pid: id },
                false => ThreadMessageKind::Cancel { client, pid: id },
            });
        }
        true
    }

    /// A statement that ends itself is interrupted.
    fn kill_self(&mut self, place: u32, connection: bool) -> bool {
        if connection {
            self.expel(place, &ErrorFields::fatal("57014", KILLED));
            return false;
        }
        let RelayWorker { clients, outbox, .. } = self;
        if let Some(session) = clients.get_mut(place).and_then(RelayClient::session) {
            session.link.put_cancelled(&mut outbox.to_client);
        }
        self.send_outbox(Some(place), None);
        true
    }

    /// Ends the connection of a client, if it is still the one that was meant.
    pub(super) fn kill_one(&mut self, place: u32, pid: u32) {
        let is_it = self.clients.get(place).is_some_and(|client| match &client.phase {
            ClientPhase::Session(session) => session.pid == pid,
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Closing => false,
        });
        if is_it {
            self.expel(place, &ErrorFields::fatal("57P01", KILLED));
        }
    }
}
