//! Entry of a client that has proved who it is: it is counted among the others, and its session
//! begins. Where limits hold over all nodes and this node's part of one is used up, it waits for a
//! moment until the part has grown.

use std::sync::Arc;

use pooler_core::link::LoggedInClient;
use pooler_core::mysql;
use pooler_core::pg::login::PgLoginRefusal;
use wire::mysql::capabilities::StatusFlags;

use super::client::{ClientLogin, ClientPhase, ServerAttachment};
use super::client_count::{ClientArrival, ClientEntry, CountedClient, WaitingClient};
use super::login::{GreetingWait, LoginFlow, LoginPhase};
use super::pools::PoolTerms;
use super::worker::{RelayWorker, TimerKey};
use crate::tenants::{PoolId, TenantRoute};

/// Longest wait of a client for this node's part of a limit to grow, in microseconds. Other nodes
/// look several times in that time whether somebody needs what they have.
const PART_WAIT_US: u64 = 2_000_000;

/// A client that waits until there may be one more.
#[derive(Debug)]
pub(super) struct AwaitedEntry {
    proved: LoggedInClient,
    route: TenantRoute,
    waiting: WaitingClient,
    /// When it has waited for long enough.
    pub(super) until_us: u64,
}

/// Pool of a client that is counted.
struct EnteredPool {
    pool_id: PoolId,
    /// Counts it among the clients.
    head: CountedClient,
}

/// Result of an attempt to count a client that has proved who it is.
enum EntryAttempt {
    Counted(EnteredPool),
    Waits(WaitingClient),
}

impl RelayWorker {
    /// Takes in a client that has proved who it is, or sends it away.
    pub(super) fn admit(&mut self, place: u32, proved: LoggedInClient) -> LoginFlow {
        let Some(phase) = self.login_phase(place) else { return LoginFlow::Again };
        if let Some((user, rights)) = phase.visit.take() {
            return match self.begin_console(place, user, rights) {
                Ok(()) => LoginFlow::Again,
                Err(refusal) => self.refuse_entry(place, &proved, &refusal),
            };
        }
        let Some(route) = phase.route.take() else { return LoginFlow::Again };
        match self.pass(place, proved, route) {
            Ok(()) => LoginFlow::Stop,
            Err((proved, route)) => self.admit_here(place, proved, route),
        }
    }

    /// Takes in a client that is served by this node, or sends it away.
    pub(super) fn admit_here(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
    ) -> LoginFlow {
        let Some(phase) = self.login_phase(place) else { return LoginFlow::Again };
        let is_guest = phase.bound.guest.is_some();
        match self.enter(&route, is_guest, None) {
            Ok(EntryAttempt::Counted(entered)) => {
                self.begin_session(place, proved, route, entered);
                LoginFlow::Again
            }
            Ok(EntryAttempt::Waits(waiting)) => {
                let until_us = self.context.now_us + PART_WAIT_US;
                self.await_entry(place, AwaitedEntry { proved, route, waiting, until_us });
                self.context.timers.arm(TimerKey::Client(place).id(), until_us);
                LoginFlow::Stop
            }
            Err(refusal) => self.refuse_entry(place, &proved, &refusal),
        }
    }

    /// This node's parts of limits have changed: counts clients that wait for that, in the order in
    /// which they came.
    pub(super) fn retry_entries(&mut self) {
        let awaited = self.clients.iter().filter_map(|(place, client)| match &client.phase {
            ClientPhase::Login(phase) => Some((phase.awaited.as_ref()?.waiting.arrival(), place)),
            ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        });
        let mut awaited: Vec<(u64, u32)> = awaited.collect();
        awaited.sort_unstable();
        for (_, place) in awaited {
            self.retry_entry(place);
        }
    }

    fn retry_entry(&mut self, place: u32) {
        let Some(phase) = self.login_phase(place) else { return };
        let is_guest = phase.bound.guest.is_some();
        let Some(awaited) = phase.awaited.take() else { return };
        let AwaitedEntry { proved, mut route, waiting, until_us } = *awaited;
        if let Some(tenant) = self.routing.now(&route.tenant) {
            route.tenant = Arc::clone(tenant);
        }
        let entered = match route.tenant.state.is_removed() {
            true => Err(PgLoginRefusal::new("57P01", "the tenant was removed")),
            false => self.enter(&route, is_guest, Some(waiting)),
        };
        match entered {
            Ok(EntryAttempt::Counted(entered)) => {
                self.begin_session(place, proved, route, entered);
                // It may have sent more meanwhile.
                self.queue_client(place);
            }
            Ok(EntryAttempt::Waits(waiting)) => {
                self.await_entry(place, AwaitedEntry { proved, route, waiting, until_us });
            }
            Err(refusal) => {
                self.refuse_entry(place, &proved, &refusal);
            }
        }
    }

    /// Refuses a client that has waited for long enough.
    pub(super) fn entry_wait_expired(&mut self, place: u32) {
        let words = self.words();
        let Some(phase) = self.login_phase(place) else { return };
        let Some(awaited) = phase.awaited.take() else { return };
        let AwaitedEntry { proved, waiting, .. } = *awaited;
        let refusal = PgLoginRefusal::new("53300", words.full(waiting.limit));
        self.refuse_entry(place, &proved, &refusal);
    }

    fn login_phase(&mut self, place: u32) -> Option<&mut LoginPhase> {
        match &mut self.clients.get_mut(place)?.phase {
            ClientPhase::Login(phase) => Some(phase),
            ClientPhase::Greeting(_)
            | ClientPhase::Session(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    fn await_entry(&mut self, place: u32, awaited: AwaitedEntry) {
        if let Some(phase) = self.login_phase(place) {
            phase.awaited = Some(Box::new(awaited));
        }
    }

    pub(super) fn refuse_entry(
        &mut self,
        place: u32,
        proved: &LoggedInClient,
        refusal: &PgLoginRefusal,
    ) -> LoginFlow {
        self.journal_client(place, &refusal.message);
        proved.put_refusal(refusal, &mut self.outbox.to_client);
        self.close_when_sent(place);
        LoginFlow::Took
    }

    /// Counts a client among the others, if there may be one more.
    fn enter(
        &self,
        route: &TenantRoute,
        is_guest: bool,
        waiting: Option<WaitingClient>,
    ) -> Result<EntryAttempt, PgLoginRefusal> {
        let words = self.words();
        let pool_id = route
            .pool()
            .map_err(|error| PgLoginRefusal::new(error.sqlstate(), error.to_string()))?;
        let clients_max = self.common.live.clients_max();
        let arrival = ClientArrival { route, is_guest, clients_max };
        match self.common.population.enter(&arrival, waiting) {
            Ok(ClientEntry::Counted(head)) => {
                Ok(EntryAttempt::Counted(EnteredPool { pool_id, head }))
            }
            Ok(ClientEntry::Waits(waiting)) => Ok(EntryAttempt::Waits(waiting)),
            Err(full) => Err(PgLoginRefusal::new("53300", words.full(full))),
        }
    }

    /// Begins the session of a client that is counted.
    fn begin_session(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
        entered: EnteredPool,
    ) {
        let EnteredPool { pool_id, head } = entered;
        let Some(phase) = self.login_phase(place) else { return };
        // From here on it is one of those that its limits count.
        phase.bound.login_place = None;
        let (pid, bound) = (phase.pid(), phase.bound.clone());
        let terms = PoolTerms::of(&route.tenant, &route.user);
        let pool = self.pools.join(pool_id, route.tenant.id, terms, self.context.now);
        self.remember_role(pool_id, &route, &proved);
        self.apply_admission(pool_id);
        let stats = self.counters.tenant(route.tenant.id);
        stats.clients.add(1);
        stats.logins.add(1);
        self.counters.stats.logins.sub(1);
        let now_us = self.context.now_us;
        let Some(client) = self.clients.get_mut(place) else { return };
        client.since_us = now_us;
        match proved {
            LoggedInClient::Pg(authenticated) => {
                let greeting = GreetingWait {
                    authenticated: *authenticated,
                    route,
                    head,
                    pool_id,
                    pool,
                    place: ServerAttachment::Idle,
                    stats,
                    bound,
                };
                client.phase = ClientPhase::Greeting(Box::new(greeting));
                self.greet_client(place);
            }
            LoggedInClient::My(authenticated) => {
                let pid = pid.unwrap_or_default();
                let link = self.mysql_session(&authenticated, &route, pid, bound.guest.as_ref());
                let owner = (route.tenant.id, Arc::clone(&route.user.name));
                self.common.keys.own(pid, owner);
                let guest = bound.guest.clone();
                let session = ClientLogin::new(link, route, head, pool, pid, stats)
                    .of_mysql(authenticated.requested.collation, bound);
                let out = &mut self.outbox.to_client;
                mysql::login::welcome(&authenticated, StatusFlags::AUTOCOMMIT, out);
                let Some(client) = self.clients.get_mut(place) else { return };
                client.phase = ClientPhase::Session(Box::new(session));
                self.context.timers.disarm(TimerKey::Client(place).id());
                self.send_outbox(Some(place), None);
                self.begin_watch(place, guest.as_ref());
                self.watch_client(place);
            }
        }
    }
}
