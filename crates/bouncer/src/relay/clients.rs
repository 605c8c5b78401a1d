//! The clients of a thread, by their slots.

use super::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use super::conn::RelayConnection;
use super::context::{PendingWork, ThreadContext, TimerKey};
use super::guests::ListenerBinding;
use super::login::LoginPhase;
use super::servers::ServerConnections;
use super::slots::SlotMap;
use crate::guest::watch::ReplyAction;
use crate::tenants::TenantId;

/// The clients of a thread.
#[derive(Debug)]
pub(super) struct ClientConnections {
    places: SlotMap<RelayClient>,
}

impl ClientConnections {
    /// Creates an empty table.
    pub(super) fn new() -> ClientConnections {
        ClientConnections { places: SlotMap::new() }
    }

    /// Reserves a slot for a client: to be occupied, or released again.
    pub(super) fn reserve(&mut self) -> u32 {
        self.places.reserve()
    }

    /// Puts a client into a reserved slot.
    pub(super) fn occupy(&mut self, place: u32, client: RelayClient) {
        self.places.occupy(place, client);
    }

    /// Releases a slot that was reserved and never occupied.
    pub(super) fn give_up(&mut self, place: u32) {
        self.places.give_up(place);
    }

    /// Returns a client.
    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&RelayClient> {
        self.places.get(place)
    }

    /// Returns a client for modification.
    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut RelayClient> {
        self.places.get_mut(place)
    }

    /// Returns the session of a client that is logged in.
    #[inline]
    pub(super) fn session(&mut self, place: u32) -> Option<&mut ClientLogin> {
        self.places.get_mut(place)?.session()
    }

    /// Removes a client.
    pub(super) fn remove(&mut self, place: u32) -> Option<RelayClient> {
        self.places.remove(place)
    }

    /// Returns all clients.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &RelayClient)> {
        self.places.iter()
    }

    /// Returns the slots that are occupied now.
    pub(super) fn keys(&self) -> Vec<u32> {
        self.places.keys()
    }

    /// Makes released slots available again, at the end of a turn.
    pub(super) fn turn(&mut self) {
        self.places.turn();
    }

    /// Returns the slot of the session with this virtual process id.
    pub(super) fn of_pid(&self, pid: u32) -> Option<u32> {
        let mut clients = self.places.iter();
        clients.find(|(_, client)| client.pid() == Some(pid)).map(|(place, _)| place)
    }

    /// Returns the tenants that were removed and still have clients.
    pub(super) fn removed_tenants(&self) -> Vec<TenantId> {
        let of_clients = self.places.iter().filter_map(|(_, client)| match &client.phase {
            ClientPhase::Session(session) => Some(&session.route.tenant),
            ClientPhase::Greeting(greeting) => Some(&greeting.route.tenant),
            ClientPhase::Login(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        });
        let mut removed: Vec<TenantId> = Vec::new();
        for tenant in of_clients.filter(|tenant| tenant.state.is_removed()) {
            if !removed.contains(&tenant.id) {
                removed.push(tenant.id);
            }
        }
        removed
    }

    /// Puts a client that logs in into a reserved slot, and arms its login deadline.
    pub(super) fn begin_login(
        &mut self,
        place: u32,
        conn: RelayConnection,
        login: LoginPhase,
        context: &mut ThreadContext,
    ) {
        let phase = ClientPhase::Login(Box::new(login));
        let (now_us, number) = (context.now_us, context.common.next_number());
        let serial = context.next_serial();
        self.occupy(place, RelayClient::new(conn, phase, serial, number, now_us));
        context.counters.stats.clients.add(1);
        context.counters.stats.logins.add(1);
        let login_us = context.common.live.login_us();
        context.timers.arm(TimerKey::Client(place).id(), now_us + login_us);
    }

    /// Returns the login of a client that has not completed it.
    pub(super) fn login(&mut self, place: u32) -> Option<&mut LoginPhase> {
        match &mut self.places.get_mut(place)?.phase {
            ClientPhase::Login(phase) => Some(phase),
            ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// Starts to observe a client, if it is a guest's.
    pub(super) fn begin_watch(&mut self, place: u32, now_us: u64) {
        let Some(client) = self.places.get_mut(place) else { return };
        let begun_us = client.begun_us;
        if let Some(session) = client.session() {
            session.begin_watch(begun_us, now_us);
        }
    }

    /// Returns the slots of the clients of a guest.
    pub(super) fn of_guest(&self, id: u64) -> Vec<u32> {
        let is_it =
            |bound: &ListenerBinding| bound.guest.as_ref().is_some_and(|guest| guest.id() == id);
        let own = self.places.iter().filter(|(_, client)| match &client.phase {
            ClientPhase::Login(phase) => is_it(phase.bound()),
            ClientPhase::Greeting(greeting) => is_it(&greeting.bound),
            ClientPhase::Session(session) => is_it(&session.bound),
            ClientPhase::Console(_) | ClientPhase::Passed(_) | ClientPhase::Closing => false,
        });
        own.map(|(place, _)| place).collect()
    }

    /// Adds a client to the pending work, once.
    #[inline]
    pub(super) fn queue(&mut self, place: u32, context: &mut ThreadContext) {
        if let Some(client) = self.places.get_mut(place)
            && !client.queued
        {
            client.queued = true;
            context.work.push_back(PendingWork::Client(place));
        }
    }

    /// Adds a client whose server connection was returned to the pending work, if it has unread
    /// input.
    #[inline]
    pub(super) fn queue_with_input(&mut self, place: u32, context: &mut ThreadContext) {
        if let Some(client) = self.places.get(place)
            && (!client.conn.input.is_empty() || client.conn.is_readable())
        {
            self.queue(place, context);
        }
    }

    /// Adds a client to the pending work again, unless it first has to read its replies.
    pub(super) fn fill(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(client) = self.places.get_mut(place) else { return };
        let is_clogged = client.conn.is_clogged();
        if let Some(session) = client.session() {
            session.is_full = true;
        }
        // Otherwise it is added when its socket has room.
        if !is_clogged {
            self.queue(place, context);
        }
    }

    /// Returns whether a client may proceed; if not, it first has to read its replies.
    pub(super) fn goes_on(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let Some(client) = self.places.get(place) else { return true };
        if !client.conn.is_clogged() {
            return true;
        }
        self.fill(place, context);
        false
    }

    /// Records the loss of a client's server connection. Returns whether the client had not used
    /// it.
    pub(super) fn server_lost(&mut self, place: u32) -> bool {
        let Some(client) = self.places.get_mut(place) else { return false };
        match &mut client.phase {
            ClientPhase::Session(session) => {
                session.rest();
                session.stats.clients_active.sub(1);
                session.link.server_lost();
                std::mem::take(&mut session.is_fresh)
            }
            ClientPhase::Greeting(greeting) => {
                greeting.place = ServerAttachment::Idle;
                true
            }
            ClientPhase::Login(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        }
    }

    /// Resumes a client after output of the server: its link may have waited for that, or its last
    /// reply may be complete.
    #[inline]
    pub(super) fn unstall(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(session) = self.places.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let is_ending = session.is_ending;
        if std::mem::take(&mut session.is_stalled) || is_ending {
            self.queue(place, context);
        }
    }

    /// Sends the output assembled for a client.
    pub(super) fn send(
        &mut self,
        place: Option<u32>,
        servers: &ServerConnections,
        context: &mut ThreadContext,
    ) {
        let client = place.and_then(|place| self.places.get_mut(place));
        debug_assert!(client.is_some(), "bytes for a client that is not there");
        let Some(client) = client else { return context.outbox.to_client.clear() };
        let mut is_violator = false;
        if let ClientPhase::Session(session) = &mut client.phase {
            session.stats.sent_bytes.add(context.outbox.to_client.len() as u64);
            if let Some(watch) = &mut session.watch
                && watch.received(&mut context.outbox.to_client, context.now_us)
                    == ReplyAction::Violation
            {
                is_violator = true;
            }
        }
        let out = &context.outbox.to_client;
        let sent = client.conn.send(out, &mut context.freelist, &context.registry);
        context.outbox.to_client.clear();
        match sent {
            Ok(()) if client.conn.is_flushed() => {}
            Ok(()) => self.watch_clogged(place.unwrap_or_default(), servers, context),
            Err(_) => {
                client.conn.mark_closed();
                self.queue(place.unwrap_or_default(), context);
            }
        }
        if is_violator {
            self.queue(place.unwrap_or_default(), context);
        }
    }

    /// Arms the next check of a session, if its tenant has limits on time.
    #[inline]
    pub(super) fn watch(
        &self,
        place: u32,
        servers: &ServerConnections,
        context: &mut ThreadContext,
    ) {
        let Some(client) = self.places.get(place) else { return };
        let is_timed = match &client.phase {
            ClientPhase::Session(session) => session.is_timed,
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        };
        if is_timed {
            arm(place, client, servers, context);
        }
    }

    /// Records that a client does not read its output, and arms a check.
    fn watch_clogged(
        &mut self,
        place: u32,
        servers: &ServerConnections,
        context: &mut ThreadContext,
    ) {
        let Some(client) = self.places.get_mut(place) else { return };
        if client.clogged_us.is_none() {
            client.clogged_us = Some(context.now_us);
            arm(place, client, servers, context);
        }
    }
}

/// Arms the next check of a client.
fn arm(place: u32, client: &RelayClient, servers: &ServerConnections, context: &mut ThreadContext) {
    if let Some((at_us, _)) = client.deadline(servers, context.common.live.login_us()) {
        context.timers.arm(TimerKey::Client(place).id(), at_us);
    }
}
