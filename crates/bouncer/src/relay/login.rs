//! A client's login, as the thread drives it: handshake, route, proof, and the welcome, for which
//! the parameters of a server have to be known.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{PoolMode, TenantEngine, Transport};

use super::client::{Phase, Place, Session};
use super::common::{Answer, Full, Head, Parameters};
use super::console;
use super::handshake::facts;
use super::keys::{KEY_BYTES, LONG_KEY_BYTES};
use super::leave::Leaving;
use super::pools::{PoolRef, Terms};
use super::socket::Socket;
use super::stats::TenantStats;
use super::worker::Worker;
use crate::pg::auth::Demand;
use crate::pg::client::{ClientId, ClientSession, ClientSetup};
use crate::pg::login::{
    Authenticated, Entropy, Login, LoginNext, LoginPolicy, Reached, Refusal, ReplicationPolicy,
    Requested, RouteAuth, welcome,
};
use crate::pg::settings::{Parameters as Reported, Settings};
use crate::pgbouncer::console::Rights;
use crate::secrets::Password;
use crate::tenants::{ClientAuth, Route, RouteRequest};
use crate::tls;

/// Different sets of parameters that clients were told, kept to be shared with the next ones.
const SEEN_MAX: usize = 64;

/// A client that says who it is.
#[derive(Debug)]
pub(super) struct LoginPhase {
    login: Login,
    /// The tenant of its listener.
    bound: Option<Arc<str>>,
    /// Where it was led.
    route: Option<Route>,
    /// Whether it may replicate.
    replication: ReplicationPolicy,
    /// What it may do, if it comes to the console.
    visit: Option<(Arc<str>, Rights)>,
    /// Whether its secret is being looked up.
    is_looked_up: bool,
    /// What holds for the handshake of TLS that is under way.
    pub(super) shakes_hands: Option<Arc<tls::Shown>>,
}

/// A client that has proved who it is, and waits until a server tells its parameters.
#[derive(Debug)]
pub(super) struct Greeting {
    authenticated: Authenticated,
    pub(super) route: Route,
    /// Counts it among the clients.
    head: Head,
    pub(super) pool: PoolRef,
    pub(super) place: Place,
    pub(super) stats: Arc<TenantStats>,
}

impl LoginPhase {
    /// What the client asks for.
    pub(super) fn requested(&self) -> Option<&Requested> {
        self.login.requested()
    }

    /// Whether somebody else finds out who it is.
    pub(super) fn is_looked_up(&self) -> bool {
        self.is_looked_up
    }

    /// Of a client that has just connected.
    pub(super) fn new(login: Login, bound: Option<Arc<str>>) -> LoginPhase {
        LoginPhase {
            login,
            bound,
            route: None,
            replication: ReplicationPolicy::Refused,
            visit: None,
            is_looked_up: false,
            shakes_hands: None,
        }
    }
}

impl Worker {
    /// Begins a login.
    pub(super) fn new_login(
        &self,
        socket: &Socket,
        listener: usize,
    ) -> std::io::Result<LoginPhase> {
        let reached =
            if socket.is_unix() { Reached::Unix { uid: socket.uid() } } else { Reached::Tcp };
        let tls = self.common.client_tls.load().policy;
        let policy = LoginPolicy { tls, cleartext: self.common.config.cleartext };
        let login = Login::new(policy, reached, Entropy::random()?);
        let bound = self.common.bound.get(listener).and_then(|(_, tenant)| tenant.clone());
        Ok(LoginPhase::new(login, bound))
    }

    /// Gives bytes to a login; says how many were used.
    pub(super) fn feed_login(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let Worker { clients, outbox, .. } = self;
            let Some(client) = clients.get_mut(place) else { return bytes.len() };
            let Phase::Login(phase) = &mut client.phase else {
                // It is somebody by now; the rest is for its session.
                return used + self.feed_client(place, &bytes[used..]);
            };
            let shaken = phase.shakes_hands.take();
            let step = match &shaken {
                Some(shown) => {
                    let facts = facts(shown, &client.conn);
                    phase.login.tls_started(facts, &mut outbox.to_client)
                }
                None => phase.login.input(&bytes[used..], &mut outbox.to_client),
            };
            let is_more = step.consumed > 0 || shaken.is_some();
            used += step.consumed;
            match self.follow_login(place, step.next, &bytes[used..]) {
                Flow::Again => {}
                Flow::Stop if is_more && used < bytes.len() => {}
                Flow::Stop => return used,
                Flow::Took => return bytes.len(),
            }
        }
    }

    /// Does what a step of a login asks for.
    fn follow_login(&mut self, place: u32, next: LoginNext, rest: &[u8]) -> Flow {
        match next {
            LoginNext::More => {
                self.send_outbox(Some(place), None);
                Flow::Stop
            }
            LoginNext::StartTls => {
                self.send_outbox(Some(place), None);
                self.shake_hands(place, rest);
                Flow::Took
            }
            LoginNext::Route => match self.route(place) {
                Some(answer) => self.routed(place, answer, rest),
                None => Flow::Stop,
            },
            LoginNext::Done(authenticated) => {
                self.send_outbox(Some(place), None);
                match self.admit(place, *authenticated) {
                    Ok(()) => Flow::Again,
                    Err(refusal) => {
                        self.journal_client(place, &refusal.message);
                        refusal.write(&mut self.outbox.to_client);
                        self.dismiss(place);
                        Flow::Took
                    }
                }
            }
            LoginNext::Cancel { pid, key } => {
                self.cancel_requested(place, pid, &key);
                Flow::Took
            }
            LoginNext::Fail(refusal) => {
                self.journal_client(place, &refusal.message);
                tracing::info!(
                    code = refusal.code,
                    cause = refusal.cause.as_deref(),
                    "login failed: {}",
                    refusal.message
                );
                self.doubt(place, &refusal);
                self.dismiss(place);
                Flow::Took
            }
        }
    }

    /// A secret that was looked up and did not fit may have been changed on the server.
    fn doubt(&self, place: u32, refusal: &Refusal) {
        if let Some(Phase::Login(phase)) = self.clients.get(place).map(|client| &client.phase)
            && let Some(route) = &phase.route
            && route.user.auth == ClientAuth::Query
            && refusal.code == "28P01"
        {
            self.common.look_up.doubt(route.tenant.id, &route.user.name);
        }
    }

    /// Gives a login the answer to its question who it is.
    pub(super) fn routed(
        &mut self,
        place: u32,
        answer: Result<RouteAuth, Refusal>,
        rest: &[u8],
    ) -> Flow {
        let Worker { clients, outbox, .. } = self;
        let Some(client) = clients.get_mut(place) else { return Flow::Took };
        let Phase::Login(phase) = &mut client.phase else { return Flow::Stop };
        let step = phase.login.routed(answer, &mut outbox.to_client);
        self.follow_login(place, step.next, rest)
    }

    /// Finds the tenant of a client, and how it proves who it is. Nothing while that is looked up.
    fn route(&mut self, place: u32) -> Option<Result<RouteAuth, Refusal>> {
        let words = self.words();
        self.journal_login(place);
        let client = self.clients.get_mut(place)?;
        let Phase::Login(phase) = &mut client.phase else { return None };
        let requested = phase.login.requested()?;
        if requested.database_or_user() == console::DATABASE
            && let Some(desk) = self.common.console.get()
        {
            let (user, rights) = match desk.guest(requested) {
                Ok(guest) => guest,
                Err(refusal) => return Some(Err(refusal)),
            };
            let demand = self.common.keyring.demand(&user, requested);
            phase.visit = Some((user.name, rights));
            return match demand {
                Demand::Known(answer) => Some(answer),
                Demand::Query => Some(Err(Refusal::new("28000", "nobody knows this user"))),
            };
        }
        let transport = match (requested.reached, &requested.tls) {
            (Reached::Unix { .. }, _) => Transport::Unix,
            (Reached::Tcp, Some(_)) => Transport::Tls,
            (Reached::Tcp, None) => Transport::Tcp,
        };
        let request = RouteRequest {
            bound: phase.bound.as_deref(),
            server_name: requested.tls.as_ref().and_then(|tls| tls.server_name.as_deref()),
            options_tenant_id: requested.options_tenant_id.as_deref(),
            tenant_id: requested.tenant_id.as_deref(),
            database: requested.database.as_deref(),
            user: &requested.user,
            transport,
            engine: TenantEngine::Postgres,
        };
        let route = match self.routing.route(&request) {
            Ok(route) => route,
            Err(error) => {
                let database = requested.database_or_user();
                let (code, message) = words.route(&error, database);
                let refusal = Refusal::new(code, message);
                let hint = error.hint().map(str::to_owned);
                return Some(Err(Refusal { hint, ..refusal }));
            }
        };
        let replication = match route.tenant.mode_of(&route.user) {
            PoolMode::Session => ReplicationPolicy::Dedicated,
            PoolMode::Transaction | PoolMode::Statement => ReplicationPolicy::Refused,
        };
        let demand = self.common.keyring.demand(&route.user, requested);
        phase.replication = replication;
        let answer = match demand {
            Demand::Known(answer) => Some(answer.map(|auth| RouteAuth { replication, ..auth })),
            Demand::Query => {
                let answer = Answer::new(&self.inbox, place, client.serial);
                let (tenant, user) = (Arc::clone(&route.tenant), Arc::clone(&route.user.name));
                phase.is_looked_up = true;
                self.common.look_up.look_up(tenant, user, answer);
                None
            }
        };
        phase.route = Some(route);
        answer
    }

    /// What the server knows of a user has come.
    pub(super) fn looked_up(
        &mut self,
        place: u32,
        serial: u64,
        found: &Result<Option<Password>, String>,
    ) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let Phase::Login(phase) = &mut client.phase else { return };
        let (true, Some(route)) = (client.serial == serial, &phase.route) else { return };
        phase.is_looked_up = false;
        let replication = phase.replication;
        let answer = match found {
            Ok(secret) => {
                let secret = secret.as_ref().map(Password::expose);
                let auth = self.common.keyring.found(&route.user, secret);
                Ok(RouteAuth { replication, ..auth })
            }
            Err(error) => {
                let refusal = Refusal::new("08006", "cannot look up the user on the server");
                Err(Refusal { cause: Some(error.clone()), ..refusal })
            }
        };
        self.routed(place, answer, &[]);
        // It may have sent more meanwhile.
        self.queue_client(place);
    }

    /// Takes in a client that has proved who it is.
    fn admit(&mut self, place: u32, authenticated: Authenticated) -> Result<(), Refusal> {
        let now = self.ground.now;
        let route = match self.clients.get_mut(place).map(|client| &mut client.phase) {
            Some(Phase::Login(phase)) => match phase.visit.take() {
                Some((user, rights)) => return self.begin_visit(place, user, rights),
                None => phase.route.take(),
            },
            _ => None,
        };
        let Some(route) = route else { return Ok(()) };
        let words = self.words();
        let full = |full: Full| Refusal::new("53300", words.full(full));
        let pool_id =
            route.pool().map_err(|error| Refusal::new(error.sqlstate(), error.to_string()))?;
        let head =
            self.common.population.enter(&route, self.common.live.clients_max()).map_err(full)?;
        let terms = Terms::of(&route.tenant, &route.user);
        let pool = self.pools.join(pool_id, route.tenant.id, terms, now);
        self.remember_role(pool_id, &route, &authenticated);
        self.set_gate(pool_id);
        let stats = self.books.tenant(route.tenant.id);
        stats.clients.add(1);
        stats.logins.add(1);
        self.books.stats.logins.sub(1);
        let known = self.common.greetings.get(pool_id, route.tenant.state.epoch());
        let greeting = Greeting { authenticated, route, head, pool, place: Place::Idle, stats };
        let Some(client) = self.clients.get_mut(place) else { return Ok(()) };
        client.since_us = self.ground.now_us;
        client.phase = Phase::Greeting(Box::new(greeting));
        match known {
            Some(parameters) => self.welcome(place, &parameters),
            None => self.lease_for_greeting(place),
        }
        Ok(())
    }

    /// Tells a client that it is in, with the parameters of a server connection that it was given
    /// for that alone.
    pub(super) fn greet_by(&mut self, place: u32, server_place: u32) {
        let Some(server) = self.servers.get_mut(server_place) else { return };
        server.client = None;
        let parameters = Arc::clone(&server.parameters);
        self.welcome(place, &parameters);
        self.give_back(server_place);
    }

    /// Tells a client that it is in, and begins its session.
    fn welcome(&mut self, place: u32, parameters: &Parameters) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let Phase::Greeting(_) = &client.phase else { return };
        let Phase::Greeting(greeting) = std::mem::replace(&mut client.phase, Phase::Closing) else {
            return;
        };
        let Greeting { authenticated, route, head, pool, stats, .. } = *greeting;
        let requested = &authenticated.requested;
        let wanted =
            requested.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let settings = Settings::of(wanted);
        let forced = self.common.forced.of(&route.tenant);
        let shown = told(parameters, &settings, &forced);
        let pairs = shown.iter().map(|(name, value)| (*name, *value));
        let seen = shared(&mut self.seen, Arc::new(Reported::of(pairs.clone())));
        let key_bytes = if requested.version.minor >= 2 { LONG_KEY_BYTES } else { KEY_BYTES };
        let (pid, key) = match self.common.keys.register(self.index, place, key_bytes) {
            Ok(registered) => registered,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "make a cancel key");
                return self.client_gone(place, &Leaving::Dismissed);
            }
        };
        welcome(pairs, pid, &key, &mut self.outbox.to_client);
        let mode = route.tenant.mode_of(&route.user);
        let (id, verify) = (ClientId(pid), route.tenant.verify);
        let read_only = route.tenant.read_only;
        let setup = ClientSetup { id, mode, verify, read_only, settings, forced, seen };
        let mut link = ClientSession::new(setup);
        link.share_startup(|startup| shared(&mut self.startups, startup));
        let session = Session::new(link, route, head, pool, pid, stats);
        client.phase = Phase::Session(Box::new(session));
        client.since_us = self.ground.now_us;
        self.send_outbox(Some(place), None);
        self.watch_client(place);
    }
}

/// What other clients were told or start with as well, of which one copy is kept: a kilobyte for
/// each client else.
fn shared<T: PartialEq>(known: &mut VecDeque<Arc<T>>, one: Arc<T>) -> Arc<T> {
    if let Some(same) = known.iter().find(|other| **other == one) {
        return Arc::clone(same);
    }
    if known.len() >= SEEN_MAX {
        drop(known.pop_front());
    }
    known.push_back(Arc::clone(&one));
    one
}

/// Where a login stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    /// The same bytes are to be looked at again.
    Again,
    /// More bytes are needed.
    Stop,
    /// All bytes were taken.
    Took,
}

/// The parameters that a client is told: its server's, but for those that it or its tenant sets.
fn told<'a>(
    parameters: &'a Parameters,
    settings: &'a Settings,
    forced: &'a Settings,
) -> Vec<(&'a str, &'a str)> {
    let of = |name: &str| {
        let name = name.to_ascii_lowercase();
        forced.value(&name).or_else(|| settings.value(&name))
    };
    parameters.iter().map(|(name, value)| (&**name, of(name).unwrap_or(value))).collect()
}
