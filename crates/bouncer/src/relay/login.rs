//! A client's login, as the thread drives it: handshake, route, proof, and the welcome, for which
//! the parameters of a server have to be known.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use api::{ClientTransportMode, PoolMode, TenantEngine, UserAuth};
use pooler_core::epoch::{DEFAULT_APPLICATION, SessionEpoch};
use pooler_core::link::{
    ClientId, ClientLink, ClientLoginNext, ClientProofRequest, LoginMachine, MYSQL_PLUGIN,
    UnresolvedLogin,
};
use pooler_core::mysql;
use pooler_core::pg::client::{PgClientSession, PgClientSetup};
use pooler_core::pg::login::{
    ClientTransport, LoginEntropy, PgAuthenticatedClient, PgLogin, PgLoginPolicy, PgLoginRefusal,
    PgStartupRequest, ReplicationPolicy, TlsPolicy, welcome,
};
use pooler_core::pg::settings::{PgSettings, ReportedParameters as Reported};
use wire::mysql::auth::{AuthNonce, NONCE_BYTES};
use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::sql::is_system_schema;
use wire::pg::message::ErrorFields;

use super::client::{ClientLogin, ClientPhase, ServerAttachment};
use super::client_count::CountedClient;
use super::common::{RelayShared, SecretReply};
use super::dialect::DATABASE;
use super::entry::AwaitedEntry;
use super::guests::{ClientOrigin, ListenerBinding};
use super::keys::{KEY_BYTES, LONG_KEY_BYTES};
use super::leave::ClientDeparture;
use super::passing::PassingClient;
use super::pools::PoolRef;
use super::prover;
use super::server::Parameters;
use super::socket::RelaySocket;
use super::stats::ThreadTenantStats;
use super::worker::{RelayWorker, TimerKey};
use crate::auth::AuthRequirement;
use crate::guest::client::SandboxClient;
use crate::pgbouncer::console::ConsoleRights;
use crate::rate::LoginSource;
use crate::secrets::ClientSecret;
use crate::tenants::{
    ClientAuth, PoolId, RouteRequest, ServerSecret, TenantRoute, TenantUser, proof,
};
use crate::tls;

/// Different sets of parameters that clients were told, kept to be shared with the next ones.
const SEEN_MAX: usize = 64;

/// A client that says who it is.
#[derive(Debug)]
pub(super) struct LoginPhase {
    pub(super) login: LoginMachine,
    /// The number that it was told before anything was known of it.
    pid: Option<u32>,
    /// Binding of its listener.
    pub(super) bound: ListenerBinding,
    /// The tenant whose client it was, of one that logs in anew: it names a schema there, unless it
    /// names another tenant.
    former: Option<Arc<str>>,
    /// Route to its tenant.
    pub(super) route: Option<TenantRoute>,
    /// Rule on replication connections.
    replication: ReplicationPolicy,
    /// Rights at the console, if it goes there.
    pub(super) visit: Option<(Arc<str>, ConsoleRights)>,
    /// True if its secret is being looked up, or its proof checked.
    pub(super) is_looked_up: bool,
    /// From where it comes, once it has to prove who it is.
    pub(super) origin: Option<LoginSource>,
    /// True if its failure was counted where it was found out.
    pub(super) is_counted: bool,
    /// TLS configuration of the handshake that is under way.
    pub(super) is_in_handshake: Option<Arc<tls::ListenerTls>>,
    /// Rest of the login of a client that waits until there may be one more.
    pub(super) awaited: Option<Box<AwaitedEntry>>,
    /// Rest of the login of a client that is being passed to another node.
    pub(super) passing: Option<Box<PassingClient>>,
}

/// A client that has proved who it is, and waits until a server tells its parameters.
#[derive(Debug)]
pub(super) struct GreetingWait {
    pub(super) authenticated: PgAuthenticatedClient,
    pub(super) route: TenantRoute,
    /// Counts it among the clients.
    pub(super) head: CountedClient,
    pub(super) pool_id: PoolId,
    pub(super) pool: PoolRef,
    pub(super) place: ServerAttachment,
    pub(super) stats: Arc<ThreadTenantStats>,
    /// Binding of its listener.
    pub(super) bound: ListenerBinding,
}

impl LoginPhase {
    /// Returns what a client of PostgreSQL asks for.
    pub(super) fn requested(&self) -> Option<&PgStartupRequest> {
        self.login.pg_requested()
    }

    /// The number that it was told before anything was known of it.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Appends why it has to go.
    pub(super) fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        self.login.put_fatal_error(fields, out);
    }

    /// Returns what is known of it without its word.
    pub(super) fn bound(&self) -> &ListenerBinding {
        &self.bound
    }

    /// Records its route.
    pub(super) fn set_route(&mut self, route: TenantRoute) {
        self.route = Some(route);
    }

    /// Returns whether it waits for others: until somebody else has found out who it is, there may
    /// be one more client, or another node has taken it.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_looked_up || self.is_proved()
    }

    /// Returns whether it has proved who it is, and waits for others since.
    fn is_proved(&self) -> bool {
        self.awaited.is_some() || self.passing.is_some()
    }

    /// Returns whether it had a session before on the same connection.
    pub(super) fn logs_in_anew(&self) -> bool {
        self.former.is_some()
    }

    /// Returns what a client has to show that wants to the console; nothing of any other.
    fn route_to_console(
        &mut self,
        common: &RelayShared,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> Option<Result<ClientProofRequest, PgLoginRefusal>> {
        let requested = self.login.pg_requested()?;
        let backend = common.console.get()?;
        if requested.database_or_user() != DATABASE {
            return None;
        }
        let (user, rights) = match backend.guest(requested) {
            Ok(guest) => guest,
            Err(refusal) => return Some(Err(refusal)),
        };
        let demand = common.keyrings.pg.demand(&user, requested);
        let origin = LoginSource::new(None, requested.reached, peer);
        self.origin = Some(origin);
        self.visit = Some((user.name, rights));
        let nobody = || PgLoginRefusal::new("28000", "nobody knows this user");
        let answer = match demand {
            crate::auth::pg::PgAuthRequirement::Known(answer) => answer.map(ClientProofRequest::Pg),
            crate::auth::pg::PgAuthRequirement::Query => Err(nobody()),
        };
        Some(match prover::restrained(common, origin, now, AuthRequirement::Known(answer)) {
            AuthRequirement::Known(answer) => answer,
            AuthRequirement::Query => Err(nobody()),
        })
    }

    /// Creates the state of a client that has just connected, or begins again.
    pub(super) fn new(login: LoginMachine, pid: Option<u32>, bound: ListenerBinding) -> LoginPhase {
        LoginPhase {
            login,
            pid,
            bound,
            former: None,
            route: None,
            replication: ReplicationPolicy::Refused,
            visit: None,
            is_looked_up: false,
            origin: None,
            is_counted: false,
            is_in_handshake: None,
            awaited: None,
            passing: None,
        }
    }
}

impl RelayWorker {
    /// Begins a login of the client at `place`. What it is told first is assembled for it.
    pub(super) fn new_login(
        &mut self,
        socket: &RelaySocket,
        place: u32,
        by: ClientOrigin,
    ) -> std::io::Result<LoginPhase> {
        let (engine, bound) = self.bound(by);
        let reached = reached(socket);
        match engine {
            TenantEngine::Postgres => {
                let tls = match &bound.guest {
                    // Nobody is in between.
                    Some(_) => TlsPolicy::Absent,
                    None => self.common.client_tls.load().policy,
                };
                let policy = PgLoginPolicy { tls, cleartext: self.common.config.cleartext };
                let login = PgLogin::new(policy, reached, LoginEntropy::random()?);
                Ok(LoginPhase::new(LoginMachine::Pg(login), None, bound))
            }
            TenantEngine::Mysql => {
                let policy = self.mysql_policy(&bound);
                let mut login = mysql::login::MysqlLogin::new(policy, reached, nonce()?);
                let (pid, _) = self.common.keys.register(self.index, place, KEY_BYTES)?;
                let version = &self.common.config.mysql_version;
                login.greet(pid, version, &mut self.outbox.to_client);
                Ok(LoginPhase::new(LoginMachine::My(login), Some(pid), bound))
            }
        }
    }

    /// Returns what holds for clients of MySQL, of whatever tenant.
    fn mysql_policy(&self, bound: &ListenerBinding) -> mysql::login::MysqlLoginPolicy {
        let offers = self.routing.offers();
        let more = |is_there: bool, capability: CapabilityFlags| {
            if is_there { capability } else { CapabilityFlags::NONE }
        };
        let tls = match &bound.guest {
            Some(_) => TlsPolicy::Absent,
            None => self.common.client_tls.load().policy,
        };
        mysql::login::MysqlLoginPolicy {
            tls,
            cleartext: self.common.config.cleartext,
            plugin: MYSQL_PLUGIN,
            more: more(offers.found_rows, CapabilityFlags::FOUND_ROWS)
                .union(more(offers.local_infile, CapabilityFlags::LOCAL_FILES)),
        }
    }

    /// Lets a client of MySQL log in anew, as it has asked to do. Its server connection goes back,
    /// clean.
    pub(super) fn change_user(&mut self, place: u32, rest: &[u8]) {
        let shown = self.common.client_tls.load();
        let Some(client) = self.clients.get_mut(place) else { return };
        let bound = client.session().map(|session| session.bound.clone()).unwrap_or_default();
        let policy = self.mysql_policy(&bound);
        let Some(client) = self.clients.get_mut(place) else { return };
        let tls = client.conn.login_tls(&shown);
        let reached = reached(&client.conn.socket);
        let Some(session) = client.session() else { return };
        let (pid, collation) = (session.pid, session.collation);
        let former = Some(Arc::clone(&session.route.tenant.name));
        let Some(link) = session.link.my_mut() else { return };
        let capabilities = link.capabilities;
        let (Some(payload), Ok(nonce)) = (link.take_change_user(), nonce()) else {
            return self.client_gone(place, &ClientDeparture::Dismissed);
        };
        let of = mysql::login::ChangeOf { policy, reached, tls, capabilities, collation, nonce };
        let out = &mut self.outbox.to_client;
        let (login, next) = mysql::login::MysqlLogin::change_user(of, &payload, out);
        let phase = LoginPhase::new(LoginMachine::My(login), Some(pid), bound);
        let phase = LoginPhase { former, ..phase };
        client.since_us = self.context.now_us;
        let before = std::mem::replace(&mut client.phase, ClientPhase::Login(Box::new(phase)));
        if let ClientPhase::Session(session) = before {
            self.end_session(*session, &ClientDeparture::Dismissed);
        }
        self.common.keys.restore(pid, self.index, place, &[]);
        self.counters.stats.logins.add(1);
        let login_us = self.common.live.login_us();
        self.context.timers.arm(TimerKey::Client(place).id(), self.context.now_us + login_us);
        self.follow_login(place, next.into(), rest);
    }

    /// Gives bytes to a login; says how many were used.
    pub(super) fn feed_login(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let RelayWorker { clients, outbox, .. } = self;
            let Some(client) = clients.get_mut(place) else { return bytes.len() };
            let ClientPhase::Login(phase) = &mut client.phase else {
                // It is somebody by now; the rest is for its session.
                return used + self.feed_client(place, &bytes[used..]);
            };
            if phase.is_proved() {
                return used;
            }
            let shaken = phase.is_in_handshake.take();
            let step = match &shaken {
                Some(shown) => {
                    let facts = client.conn.tls_facts(shown);
                    phase.login.tls_started(facts, &mut outbox.to_client)
                }
                None => phase.login.input(&bytes[used..], &mut outbox.to_client),
            };
            let is_more = step.consumed > 0 || shaken.is_some();
            used += step.consumed;
            match self.follow_login(place, step.next, &bytes[used..]) {
                LoginFlow::Again => {}
                LoginFlow::Stop if is_more && used < bytes.len() => {}
                LoginFlow::Stop => return used,
                LoginFlow::Took => return bytes.len(),
            }
        }
    }

    /// Does what a step of a login asks for.
    pub(super) fn follow_login(
        &mut self,
        place: u32,
        next: ClientLoginNext,
        rest: &[u8],
    ) -> LoginFlow {
        match next {
            ClientLoginNext::More => {
                self.send_outbox(Some(place), None);
                LoginFlow::Stop
            }
            ClientLoginNext::StartTls => {
                self.send_outbox(Some(place), None);
                self.start_client_tls(place, rest);
                LoginFlow::Took
            }
            ClientLoginNext::Route => match self.route(place) {
                Some(answer) => self.routed(place, answer, rest),
                None => LoginFlow::Stop,
            },
            ClientLoginNext::Check(check) => {
                self.send_outbox(Some(place), None);
                self.prove(place, check)
            }
            ClientLoginNext::Done(proved) => {
                self.send_outbox(Some(place), None);
                self.admit(place, proved)
            }
            ClientLoginNext::Cancel { pid, key } => {
                self.cancel_requested(place, pid, &key);
                LoginFlow::Took
            }
            ClientLoginNext::Fail(refusal) => {
                self.journal_client(place, &refusal.message);
                self.log_failure(place, &refusal);
                self.doubt(place, &refusal);
                self.count_failure(place, &refusal);
                self.close_when_sent(place);
                LoginFlow::Took
            }
        }
    }

    /// Logs that a login failed. Code in sandboxes is not to fill the log: what guests do is told
    /// elsewhere.
    fn log_failure(&self, place: u32, refusal: &PgLoginRefusal) {
        let (code, cause, message) = (refusal.code, refusal.cause.as_deref(), &refusal.message);
        match self.clients.get(place).map(|client| &client.phase) {
            Some(ClientPhase::Login(phase)) if phase.bound.guest.is_some() => {
                tracing::debug!(code, cause, "login failed: {message}");
            }
            _ => tracing::info!(code, cause, "login failed: {message}"),
        }
    }

    /// A secret that was looked up and did not fit may have been changed on the server.
    fn doubt(&self, place: u32, refusal: &PgLoginRefusal) {
        if let Some(ClientPhase::Login(phase)) = self.clients.get(place).map(|client| &client.phase)
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
        answer: Result<ClientProofRequest, PgLoginRefusal>,
        rest: &[u8],
    ) -> LoginFlow {
        let RelayWorker { clients, outbox, .. } = self;
        let Some(client) = clients.get_mut(place) else { return LoginFlow::Took };
        let ClientPhase::Login(phase) = &mut client.phase else { return LoginFlow::Stop };
        let step = phase.login.routed(answer, &mut outbox.to_client);
        self.follow_login(place, step.next, rest)
    }

    /// Finds the tenant of a client, and how it proves who it is. Nothing while that is looked up.
    fn route(&mut self, place: u32) -> Option<Result<ClientProofRequest, PgLoginRefusal>> {
        let words = self.words();
        self.journal_login(place);
        let client = self.clients.get_mut(place)?;
        let peer = client.conn.socket.peer();
        let ClientPhase::Login(phase) = &mut client.phase else { return None };
        let reached = phase.login.asked()?.reached;
        if let Some(guest) = phase.bound.guest.clone() {
            return self.route_guest(place, &guest);
        }
        if let Some(answer) = phase.route_to_console(&self.common, peer, self.context.now) {
            return Some(answer);
        }
        let asked = phase.login.asked()?;
        let request = RouteRequest {
            bound: phase.bound.tenant.as_deref(),
            server_name: asked.tls.and_then(|tls| tls.server_name.as_deref()),
            options_tenant_id: asked.options_tenant_id,
            tenant_id: asked.tenant_id,
            database: asked.database,
            user: asked.user,
            transport: transport(&asked),
            engine: asked.engine,
        };
        let routed = match (self.routing.route(&request), &phase.former) {
            (Err(error), Some(former)) if error.names_nobody() => {
                self.routing.route(&RouteRequest { bound: Some(former), ..request })
            }
            (routed, _) => routed,
        };
        let route = match routed {
            Ok(route) => route,
            Err(error) => {
                let database = asked.database.unwrap_or(asked.user);
                let (code, message) = match asked.engine {
                    TenantEngine::Postgres => words.route(&error, database),
                    TenantEngine::Mysql if error.names_nobody() => ("3D000", error.to_string()),
                    TenantEngine::Mysql => (error.sqlstate(), error.to_string()),
                };
                let refusal = PgLoginRefusal::new(code, message);
                let hint = error.hint(asked.engine).map(str::to_owned);
                return Some(Err(PgLoginRefusal { hint, ..refusal }));
            }
        };
        if let Some(refusal) = stranger(&route) {
            return Some(Err(refusal));
        }
        let replication = match route.tenant.mode_of(&route.user) {
            PoolMode::Session => ReplicationPolicy::Dedicated,
            PoolMode::Transaction | PoolMode::Statement => ReplicationPolicy::Refused,
        };
        let demand = self.common.keyrings.demand(&route, &phase.login, replication)?;
        let origin = LoginSource::new(Some(route.tenant.id), reached, peer);
        let demand = prover::restrained(&self.common, origin, self.context.now, demand);
        phase.origin = Some(origin);
        phase.replication = replication;
        let answer = match demand {
            AuthRequirement::Known(answer) => Some(answer),
            AuthRequirement::Query => {
                let answer = SecretReply::new(&self.inbox, place, client.serial);
                let (tenant, user) = (Arc::clone(&route.tenant), Arc::clone(&route.user.name));
                phase.is_looked_up = true;
                self.common.look_up.look_up(tenant, user, answer);
                None
            }
        };
        phase.route = Some(route);
        answer
    }

    /// Handles the answer of a user lookup.
    pub(super) fn looked_up(
        &mut self,
        place: u32,
        serial: u64,
        found: &Result<Option<ClientSecret>, String>,
    ) {
        let words = self.words();
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Login(phase) = &mut client.phase else { return };
        let (true, Some(route)) = (client.serial == serial, &phase.route) else { return };
        phase.is_looked_up = false;
        let replication = phase.replication;
        let answer = match (found, proof(route.tenant.rules.auth)) {
            (Ok(None), Some(_)) => Err(PgLoginRefusal::new("28000", "no such user")),
            (Ok(Some(secret)), Some(auth)) => {
                let route = known(route, auth, secret);
                let demand = self.common.keyrings.demand(&route, &phase.login, replication);
                phase.route = Some(route);
                match demand {
                    Some(AuthRequirement::Known(answer)) => answer,
                    Some(AuthRequirement::Query) | None => {
                        Err(PgLoginRefusal::new("28000", "no such user"))
                    }
                }
            }
            (Ok(secret), None) => {
                let secret = secret.as_ref().map(ClientSecret::expose).filter(|it| !it.is_empty());
                Ok(self.common.keyrings.found(route, secret, replication))
            }
            (Err(error), _) => {
                let own = "cannot look up the user on the server";
                let message = words.of(own, "bouncer config error");
                let refusal = PgLoginRefusal::new("08006", message);
                Err(PgLoginRefusal { cause: Some(error.clone()), ..refusal })
            }
        };
        self.routed(place, answer, &[]);
        // It may have sent more meanwhile.
        self.queue_client(place);
    }

    /// The session of a client of MySQL that is in.
    pub(super) fn mysql_session(
        &mut self,
        authenticated: &mysql::login::MysqlAuthenticatedClient,
        route: &TenantRoute,
        pid: u32,
        guest: Option<&Arc<SandboxClient>>,
    ) -> ClientLink {
        let requested = &authenticated.requested;
        let TenantRoute { tenant, user } = route;
        let mut settings = mysql::settings::MysqlSettings::default();
        settings.put_collation(requested.collation);
        // One without a schema could not be given a connection that has one.
        let named = requested.database.as_deref().filter(|name| **name != *tenant.name);
        // Where passwords' hashes are is no place for a sandbox to be in.
        let named = named.filter(|name| guest.is_none() || !is_system_schema(name.as_bytes()));
        let own = guest.and_then(|guest| guest.spec().schema.as_deref());
        let _kept = settings.put_schema(named.or(own).unwrap_or(&tenant.database));
        let capabilities = requested.capabilities;
        let setup = mysql::client::MysqlClientSetup {
            id: ClientId(pid),
            mode: tenant.mode_of(user),
            verify: tenant.verify,
            read_only: tenant.read_only,
            local_infile: guest.is_none()
                && tenant.local_infile
                && capabilities.contains(CapabilityFlags::LOCAL_FILES),
            capabilities,
            settings,
            forced: self.common.mysql_forced.of(tenant),
        };
        let mut link = mysql::client::MysqlClientSession::new(setup);
        link.share_startup(|startup| self.link.my().settings.share(startup));
        if let Some(guest) = guest {
            link.confine(guest.mark().cloned());
        }
        ClientLink::My(link)
    }

    /// Tells a client that it is in, or gets it a server connection to learn what to tell it.
    pub(super) fn greet_client(&mut self, place: u32) {
        let Some(client) = self.clients.get(place) else { return };
        let ClientPhase::Greeting(greeting) = &client.phase else { return };
        let epoch = greeting.route.tenant.state.epoch();
        match self.common.greetings.get(greeting.pool_id, epoch) {
            Some(parameters) => self.welcome(place, &parameters),
            None => self.lease_for_greeting(place),
        }
    }

    /// Tells a client that it is in, with the parameters of a server connection that it was given
    /// for that alone.
    pub(super) fn welcome_by_server(&mut self, place: u32, server_place: u32) {
        let Some(server) = self.servers.get_mut(server_place) else { return };
        server.client = None;
        let parameters = Arc::clone(&server.parameters);
        self.welcome(place, &parameters);
        self.return_server(server_place);
    }

    /// Tells a client that it is in, and begins its session.
    fn welcome(&mut self, place: u32, parameters: &Parameters) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Greeting(greeting) = &client.phase else { return };
        if greeting.bound.guest.is_some() && RelayWorker::refuses_parameters(parameters) {
            let message = "the role of this grant is a superuser, for whom no limit holds: a role of \
                           its own has to be granted";
            return self.disconnect(place, &ErrorFields::fatal("28000", message));
        }
        let Some(client) = self.clients.get_mut(place) else { return };
        let ClientPhase::Greeting(greeting) =
            std::mem::replace(&mut client.phase, ClientPhase::Closing)
        else {
            return;
        };
        let GreetingWait { authenticated, route, head, pool, stats, bound, .. } = *greeting;
        let requested = &authenticated.requested;
        let wanted =
            requested.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let schema = bound.guest.as_ref().and_then(|guest| guest.spec().schema.as_deref());
        // What the client says itself comes later.
        let schema = schema.map(|schema| ("search_path", schema));
        let session = bound.guest.as_ref().and_then(|guest| guest.spec().session.as_ref());
        let name = session.map(SessionEpoch::application_name);
        let named = name.as_deref().map(|name| ("application_name", name));
        // Not in place of a name that it has chosen.
        let wanted = wanted.filter(|(name, value)| {
            named.is_none()
                || !name.eq_ignore_ascii_case("application_name")
                || !["", DEFAULT_APPLICATION].contains(value)
        });
        let settings = PgSettings::of(named.into_iter().chain(schema).chain(wanted));
        let forced = self.common.forced.of(&route.tenant);
        let shown = told(parameters, &settings, &forced);
        let pairs = shown.iter().map(|(name, value)| (*name, *value));
        let seen = shared(&mut self.seen, Arc::new(Reported::of(pairs.clone())));
        let key_bytes = if requested.version.minor >= 2 { LONG_KEY_BYTES } else { KEY_BYTES };
        let (pid, key) = match self.common.keys.register(self.index, place, key_bytes) {
            Ok(registered) => registered,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "make a cancel key");
                return self.client_gone(place, &ClientDeparture::Dismissed);
            }
        };
        welcome(pairs, pid, &key, &mut self.outbox.to_client);
        let mode = route.tenant.mode_of(&route.user);
        let (id, verify) = (ClientId(pid), route.tenant.verify);
        let read_only = route.tenant.read_only;
        let setup = PgClientSetup { id, mode, verify, read_only, settings, forced, seen };
        let mut link = PgClientSession::new(setup);
        link.share_startup(|startup| shared(&mut self.startups, startup));
        let guest = bound.guest.clone();
        if guest.is_some() {
            link.confine();
        }
        let mut session = ClientLogin::new(ClientLink::Pg(link), route, head, pool, pid, stats);
        session.bound = bound;
        client.phase = ClientPhase::Session(Box::new(session));
        client.since_us = self.context.now_us;
        self.send_outbox(Some(place), None);
        self.begin_watch(place, guest.as_ref());
        // It may have to leave since it has proved who it is.
        if !self.drain_client(place) {
            self.watch_client(place);
        }
    }
}

/// Why somebody is sent away whom nobody knows, where those who are known need no password: without
/// one to ask for, nothing is hidden by asking.
fn stranger(route: &TenantRoute) -> Option<PgLoginRefusal> {
    let how = match (&route.user.auth, route.tenant.rules.auth) {
        (ClientAuth::Unknown, UserAuth::Trust) => "trust",
        (ClientAuth::Unknown, UserAuth::Cert) => "cert",
        (ClientAuth::Unknown, UserAuth::Peer) => "peer",
        (_, _) => return None,
    };
    Some(PgLoginRefusal::new("28000", format!("\"{how}\" authentication failed")))
}

/// A user that was looked up, where that is all it takes beside `auth`. Its secret is for the
/// server.
fn known(route: &TenantRoute, auth: ClientAuth, secret: &ClientSecret) -> TenantRoute {
    let user = &*route.user;
    let server_secret = match &user.server_secret {
        ServerSecret::OfClient if secret.expose().is_empty() => ServerSecret::None,
        ServerSecret::OfClient => ServerSecret::Known(secret.clone()),
        own => own.clone(),
    };
    let user = TenantUser { auth, server_secret, ..user.clone() };
    TenantRoute { tenant: Arc::clone(&route.tenant), user: Arc::new(user) }
}

/// Returns how it came, as tenants allow it.
fn transport(asked: &UnresolvedLogin<'_>) -> ClientTransportMode {
    match (asked.reached, asked.tls) {
        (ClientTransport::Unix { .. }, _) => ClientTransportMode::Unix,
        (ClientTransport::Tcp, Some(_)) => ClientTransportMode::Tls,
        (ClientTransport::Tcp, None) => ClientTransportMode::Tcp,
    }
}

/// Returns how a client reached us.
fn reached(socket: &RelaySocket) -> ClientTransport {
    if let Some(source) = socket.passed() {
        source.origin.transport()
    } else if socket.is_unix() {
        ClientTransport::Unix { uid: socket.uid() }
    } else {
        ClientTransport::Tcp
    }
}

/// Random bytes for one login.
fn nonce() -> std::io::Result<AuthNonce> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(AuthNonce::new(bytes))
}

/// Returns what other clients were told or start with as well, of which one copy is kept: a
/// kilobyte for each client else.
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

/// State of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LoginFlow {
    /// Present the same bytes again.
    Again,
    /// More bytes are needed.
    Stop,
    /// All bytes were taken.
    Took,
}

/// The parameters that a client is told: its server's, but for those that it or its tenant sets.
fn told<'a>(
    parameters: &'a Parameters,
    settings: &'a PgSettings,
    forced: &'a PgSettings,
) -> Vec<(&'a str, &'a str)> {
    let of = |name: &str| {
        let name = name.to_ascii_lowercase();
        forced.value(&name).or_else(|| settings.value(&name))
    };
    parameters.iter().map(|(name, value)| (&**name, of(name).unwrap_or(value))).collect()
}
