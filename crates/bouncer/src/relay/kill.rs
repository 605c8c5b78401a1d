//! `KILL` of MySQL: a client ends what another one of the same user does, by the number that the
//! other one was told as it connected.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/kill.html>

use std::sync::Arc;

use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, RelayClient};
use super::common::{ForwardedKill, KillReply};
use super::orders::ThreadMessageKind;
use super::worker::RelayWorker;

/// Error for clients that were killed.
const KILLED: &str = "the connection was killed";

impl RelayWorker {
    /// A client wants what the client `id` does to end, or its connection. Whether the one that
    /// asks is still there.
    pub(super) fn kill_asked(&mut self, place: u32, id: u32, connection: bool) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        let serial = client.serial;
        let Some(session) = client.session() else { return false };
        if id == session.pid {
            return self.kill_self(place, connection);
        }
        let route = &session.route;
        let found = self.common.keys.find_owned(id, route.tenant.id, &route.user.name);
        // A guest's connections are all here.
        let elsewhere = self.common.elsewhere.get().filter(|_| session.watch.is_none());
        if let (None, Some(elsewhere)) = (found, elsewhere) {
            session.asks_elsewhere = true;
            let kill = ForwardedKill {
                tenant: route.tenant.name.to_string(),
                user: route.user.name.to_string(),
                id,
                connection,
            };
            let inbox = Arc::clone(&self.inbox);
            elsewhere.kill(kill, KillReply { inbox, client: place, serial, is_found: false });
            return true;
        }
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

    /// Other nodes have said whether one of them has the client that this one wants killed.
    pub(super) fn killed_elsewhere(&mut self, place: u32, serial: u64, is_found: bool) {
        let Some(client) = self.clients.get_mut(place).filter(|it| it.serial == serial) else {
            return;
        };
        let Some(session) = client.session() else { return };
        if !std::mem::take(&mut session.asks_elsewhere) {
            return;
        }
        if let Some(link) = session.link.my_mut() {
            link.kill_answered(is_found, &mut self.outbox.to_client);
        }
        self.send_outbox(Some(place), None);
        // It may have sent more meanwhile.
        self.queue_client(place);
    }

    /// A statement that ends itself is interrupted.
    fn kill_self(&mut self, place: u32, connection: bool) -> bool {
        if connection {
            self.disconnect(place, &ErrorFields::fatal("57014", KILLED));
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
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        });
        if is_it {
            self.disconnect(place, &ErrorFields::fatal("57P01", KILLED));
        }
    }
}
