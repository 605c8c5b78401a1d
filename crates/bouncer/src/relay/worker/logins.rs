//! Logins of clients, driven by the thread: handshake, route, proof, entry, and the greeting, which
//! needs the parameters of a server.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{ClientTransportMode, PoolMode, TenantEngine, UserAuth};
use pooler_core::epoch::{DEFAULT_APPLICATION, SessionEpoch};
use pooler_core::link::{
    ClientId, ClientLink, ClientLoginNext, ClientProofRequest, LoggedInClient, LoginMachine,
    MYSQL_PLUGIN, UnresolvedLogin,
};
use pooler_core::mysql;
use pooler_core::mysql::login::{PasswordCheck, PasswordCheckResult};
use pooler_core::pg::client::{PgClientSession, PgClientSetup};
use pooler_core::pg::login::{
    ClientTransport, LoginEntropy, PgLogin, PgLoginPolicy, PgLoginRefusal, ReplicationPolicy,
    TlsPolicy, welcome,
};
use pooler_core::pg::settings::{PgSettings, ReportedParameters as Reported};
use wire::mysql::auth::{AuthNonce, NONCE_BYTES};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::sql::is_system_schema;
use wire::pg::message::ErrorFields;

use super::RelayWorker;
use crate::auth::AuthRequirement;
use crate::guest::client::SandboxClient;
use crate::rate::LoginSource;
use crate::relay::client::{ClientLogin, ClientPhase, ServerAttachment};
use crate::relay::common::SecretReply;
use crate::relay::context::{ThreadContext, TimerKey};
use crate::relay::departure::ClientDeparture;
use crate::relay::entry::{AwaitedEntry, EnteredPool, EntryAttempt, PART_WAIT_US};
use crate::relay::guests::{ClientOrigin, ListenerBinding, refuses_parameters};
use crate::relay::keys::{KEY_BYTES, LONG_KEY_BYTES};
use crate::relay::login::{GreetingWait, LoginFlow, LoginPhase};
use crate::relay::prover;
use crate::relay::prover::{ProofJob, too_many_proofs};
use crate::relay::server::Parameters;
use crate::relay::servers::RoleOrigin;
use crate::relay::socket::RelaySocket;
use crate::secrets::ClientSecret;
use crate::tenants::{ClientAuth, RouteRequest, ServerSecret, TenantRoute, TenantUser, proof};

/// Maximum number of distinct parameter sets that are kept, to be shared with later clients.
const SEEN_MAX: usize = 64;

impl RelayWorker {
    /// Starts a login of the client at `place`. The first output for the client is assembled.
    pub(super) fn new_login(
        &mut self,
        socket: &RelaySocket,
        place: u32,
        by: ClientOrigin,
    ) -> std::io::Result<LoginPhase> {
        let (engine, bound) = ListenerBinding::of(by, &self.context.common);
        let reached = reached(socket);
        match engine {
            TenantEngine::Postgres => {
                let tls = match &bound.guest {
                    // The connection cannot be intercepted.
                    Some(_) => TlsPolicy::Absent,
                    None => self.context.common.client_tls.load().policy,
                };
                let policy = PgLoginPolicy { tls, cleartext: self.context.common.config.cleartext };
                let login = PgLogin::new(policy, reached, LoginEntropy::random()?);
                Ok(LoginPhase::new(LoginMachine::Pg(login), None, bound))
            }
            TenantEngine::Mysql => {
                let policy = mysql_policy(&bound, &self.context);
                let mut login = mysql::login::MysqlLogin::new(policy, reached, nonce()?);
                let (pid, _) =
                    self.context.common.keys.register(self.context.index, place, KEY_BYTES)?;
                let version = &self.context.common.config.mysql_version;
                login.greet(pid, version, &mut self.context.outbox.to_client);
                Ok(LoginPhase::new(LoginMachine::My(login), Some(pid), bound))
            }
        }
    }

    /// Starts a new login of a MySQL client on its connection, as it has requested. Its server
    /// connection is reset and returned.
    pub(super) fn change_user(&mut self, place: u32, rest: &[u8]) {
        let shown = self.context.common.client_tls.load();
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let bound = client.session().map(|session| session.bound.clone()).unwrap_or_default();
        let policy = mysql_policy(&bound, &self.context);
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let tls = client.conn.login_tls(&shown);
        let reached = reached(&client.conn.socket);
        let Some(session) = client.session() else { return };
        let (pid, collation) = (session.pid, session.collation);
        let former = Some(Arc::clone(&session.route.tenant.name));
        let Some(link) = session.link.my_mut() else { return };
        let capabilities = link.capabilities;
        let (Some(payload), Ok(nonce)) = (link.take_change_user(), nonce()) else {
            return self.sessions.client_gone(
                place,
                &ClientDeparture::Dismissed,
                &mut self.context,
            );
        };
        let of = mysql::login::ChangeOf { policy, reached, tls, capabilities, collation, nonce };
        let out = &mut self.context.outbox.to_client;
        let (login, next) = mysql::login::MysqlLogin::change_user(of, &payload, out);
        let mut phase = LoginPhase::new(LoginMachine::My(login), Some(pid), bound);
        phase.former = former;
        client.since_us = self.context.now_us;
        let before = std::mem::replace(&mut client.phase, ClientPhase::Login(Box::new(phase)));
        if let ClientPhase::Session(session) = before {
            self.sessions.end_session(*session, &ClientDeparture::Dismissed, &mut self.context);
        }
        self.context.common.keys.restore(pid, self.context.index, place, &[]);
        self.context.counters.stats.logins.add(1);
        let login_us = self.context.common.live.login_us();
        self.context.timers.arm(TimerKey::Client(place).id(), self.context.now_us + login_us);
        self.follow_login(place, next.into(), rest);
    }

    /// Passes bytes to a login; returns how many were used.
    pub(super) fn feed_login(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let RelayWorker { sessions, context, .. } = self;
            let clients = sessions.clients_mut();
            let Some(client) = clients.get_mut(place) else { return bytes.len() };
            let ClientPhase::Login(phase) = &mut client.phase else {
                // The login is complete; the rest is for its session.
                return used + self.feed_client(place, &bytes[used..]);
            };
            if phase.is_proved() {
                return used;
            }
            let shaken = phase.is_in_handshake.take();
            let step = match &shaken {
                Some(shown) => {
                    let facts = client.conn.tls_facts(shown);
                    phase.login.tls_started(facts, &mut context.outbox.to_client)
                }
                None => phase.login.input(&bytes[used..], &mut context.outbox.to_client),
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

    /// Performs an action that a login requests.
    pub(super) fn follow_login(
        &mut self,
        place: u32,
        next: ClientLoginNext,
        rest: &[u8],
    ) -> LoginFlow {
        match next {
            ClientLoginNext::More => {
                self.sessions.send_outbox(Some(place), None, &mut self.context);
                LoginFlow::Stop
            }
            ClientLoginNext::StartTls => {
                self.sessions.send_outbox(Some(place), None, &mut self.context);
                let client = self.sessions.clients_mut().get_mut(place);
                let begun = client.map(|client| client.start_tls(rest, &self.context.common));
                if let Some(Err(error)) = begun {
                    let lost = ClientDeparture::Lost(error);
                    self.sessions.client_gone(place, &lost, &mut self.context);
                }
                LoginFlow::Took
            }
            ClientLoginNext::Route => match self.route(place) {
                Some(answer) => self.routed(place, answer, rest),
                None => LoginFlow::Stop,
            },
            ClientLoginNext::Check(check) => {
                self.sessions.send_outbox(Some(place), None, &mut self.context);
                self.prove(place, check)
            }
            ClientLoginNext::Done(proved) => {
                self.sessions.send_outbox(Some(place), None, &mut self.context);
                self.admit(place, proved)
            }
            ClientLoginNext::Cancel { pid, key } => {
                self.cancel_requested(place, pid, &key);
                LoginFlow::Took
            }
            ClientLoginNext::Fail(refusal) => {
                if let Some(client) = self.sessions.clients().get(place) {
                    client.journal_closing(place, &refusal.message, self.context.now_us);
                }
                if let Some(phase) = self.sessions.clients_mut().login(place) {
                    phase.failed(&refusal, &self.context);
                }
                self.sessions.close_when_sent(place, &mut self.context);
                LoginFlow::Took
            }
        }
    }

    /// Passes the routing result to a login.
    pub(super) fn routed(
        &mut self,
        place: u32,
        answer: Result<ClientProofRequest, PgLoginRefusal>,
        rest: &[u8],
    ) -> LoginFlow {
        let RelayWorker { sessions, context, .. } = self;
        let clients = sessions.clients_mut();
        let Some(client) = clients.get_mut(place) else { return LoginFlow::Took };
        let ClientPhase::Login(phase) = &mut client.phase else { return LoginFlow::Stop };
        let step = phase.login.routed(answer, &mut context.outbox.to_client);
        self.follow_login(place, step.next, rest)
    }

    /// Determines the tenant of a client, and the proof that it must give. `None` while that is
    /// looked up.
    pub(super) fn route(
        &mut self,
        place: u32,
    ) -> Option<Result<ClientProofRequest, PgLoginRefusal>> {
        let words = self.context.words();
        let client = self.sessions.clients_mut().get_mut(place)?;
        client.journal_login(place);
        let peer = client.conn.socket.peer();
        let ClientPhase::Login(phase) = &mut client.phase else { return None };
        let reached = phase.login.asked()?.reached;
        if let Some(guest) = phase.bound.guest.clone() {
            return Some(phase.route_guest(&guest, &self.context.routing));
        }
        if let Some(answer) = phase.route_to_console(&self.context.common, peer, self.context.now) {
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
        let routed = match (self.context.routing.route(&request), &phase.former) {
            (Err(error), Some(former)) if error.names_nobody() => {
                self.context.routing.route(&RouteRequest { bound: Some(former), ..request })
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
        let demand = self.context.common.keyrings.demand(&route, &phase.login, replication)?;
        let origin = LoginSource::new(Some(route.tenant.id), reached, peer);
        let demand = prover::restrained(&self.context.common, origin, self.context.now, demand);
        phase.origin = Some(origin);
        phase.replication = replication;
        let answer = match demand {
            AuthRequirement::Known(answer) => Some(answer),
            AuthRequirement::Query => {
                let answer = SecretReply::new(&self.context.inbox, place, client.serial);
                let (tenant, user) = (Arc::clone(&route.tenant), Arc::clone(&route.user.name));
                phase.is_looked_up = true;
                self.context.common.look_up.look_up(tenant, user, answer);
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
        let words = self.context.words();
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let ClientPhase::Login(phase) = &mut client.phase else { return };
        let (true, Some(route)) = (client.serial == serial, &phase.route) else { return };
        phase.is_looked_up = false;
        let replication = phase.replication;
        let answer = match (found, proof(route.tenant.rules.auth)) {
            (Ok(None), Some(_)) => Err(PgLoginRefusal::new("28000", "no such user")),
            (Ok(Some(secret)), Some(auth)) => {
                let route = known(route, auth, secret);
                let demand = self.context.common.keyrings.demand(&route, &phase.login, replication);
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
                Ok(self.context.common.keyrings.found(route, secret, replication))
            }
            (Err(error), _) => {
                let own = "cannot look up the user on the server";
                let message = words.of(own, "bouncer config error");
                let refusal = PgLoginRefusal::new("08006", message);
                Err(PgLoginRefusal { cause: Some(error.clone()), ..refusal })
            }
        };
        self.routed(place, answer, &[]);
        // More input may have arrived meanwhile.
        self.sessions.clients_mut().queue(place, &mut self.context);
    }

    /// Returns the session of a client of MySQL that is authenticated.
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
        // A client without a schema could not be given a connection that has one.
        let named = requested.database.as_deref().filter(|name| **name != *tenant.name);
        // Sandboxes have no access to the schemas that contain password hashes.
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
            forced: self.context.common.mysql_forced.of(tenant),
        };
        let mut link = mysql::client::MysqlClientSession::new(setup);
        link.share_startup(|startup| self.sessions.links().my().settings.share(startup));
        if let Some(guest) = guest {
            link.confine(guest.mark().cloned());
        }
        ClientLink::My(link)
    }

    /// Greets a client, or leases a server connection to learn the parameters for the greeting.
    pub(super) fn greet_client(&mut self, place: u32) {
        let Some(client) = self.sessions.clients().get(place) else { return };
        let ClientPhase::Greeting(greeting) = &client.phase else { return };
        let epoch = greeting.route.tenant.state.epoch();
        match self.context.common.greetings.get(greeting.pool_id, epoch) {
            Some(parameters) => self.welcome(place, &parameters),
            None => self.sessions.lease_for_greeting(place, &mut self.context),
        }
    }

    /// Greets a client, and starts its session.
    pub(super) fn welcome(&mut self, place: u32, parameters: &Parameters) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let ClientPhase::Greeting(greeting) = &client.phase else { return };
        if greeting.bound.guest.is_some() && refuses_parameters(parameters) {
            let message = "the role of this grant is a superuser, for whom no limit holds: a role of \
                           its own has to be granted";
            return self.sessions.disconnect(
                place,
                &ErrorFields::fatal("28000", message),
                &mut self.context,
            );
        }
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
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
        // Settings of the client itself follow and take precedence.
        let schema = schema.map(|schema| ("search_path", schema));
        let session = bound.guest.as_ref().and_then(|guest| guest.spec().session.as_ref());
        let name = session.map(SessionEpoch::application_name);
        let named = name.as_deref().map(|name| ("application_name", name));
        // A name that the client has chosen takes precedence.
        let wanted = wanted.filter(|(name, value)| {
            named.is_none()
                || !name.eq_ignore_ascii_case("application_name")
                || !["", DEFAULT_APPLICATION].contains(value)
        });
        let settings = PgSettings::of(named.into_iter().chain(schema).chain(wanted));
        let forced = self.context.common.forced.of(&route.tenant);
        let shown = told(parameters, &settings, &forced);
        let pairs = shown.iter().map(|(name, value)| (*name, *value));
        let seen = shared(&mut self.seen, Arc::new(Reported::of(pairs.clone())));
        let key_bytes = if requested.version.minor >= 2 { LONG_KEY_BYTES } else { KEY_BYTES };
        let (pid, key) =
            match self.context.common.keys.register(self.context.index, place, key_bytes) {
                Ok(registered) => registered,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "make a cancel key");
                    return self.sessions.client_gone(
                        place,
                        &ClientDeparture::Dismissed,
                        &mut self.context,
                    );
                }
            };
        welcome(pairs, pid, &key, &mut self.context.outbox.to_client);
        let mode = route.tenant.mode_of(&route.user);
        let (id, verify) = (ClientId(pid), route.tenant.verify);
        let read_only = route.tenant.read_only;
        let setup = PgClientSetup { id, mode, verify, read_only, settings, forced, seen };
        let mut link = PgClientSession::new(setup);
        link.share_startup(|startup| shared(&mut self.startups, startup));
        if bound.guest.is_some() {
            link.confine();
        }
        let mut session = ClientLogin::new(ClientLink::Pg(link), route, head, pool, pid, stats);
        session.bound = bound;
        client.phase = ClientPhase::Session(Box::new(session));
        client.since_us = self.context.now_us;
        self.sessions.send_outbox(Some(place), None, &mut self.context);
        self.sessions.clients_mut().begin_watch(place, self.context.now_us);
        // The client may have to leave since it was authenticated.
        if !self.sessions.drain_client(place, &mut self.context) {
            self.sessions.watch(place, &mut self.context);
        }
    }

    /// Admits or refuses an authenticated client.
    pub(super) fn admit(&mut self, place: u32, proved: LoggedInClient) -> LoginFlow {
        let Some(phase) = self.sessions.clients_mut().login(place) else { return LoginFlow::Again };
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

    /// Admits or refuses a client that this node serves.
    pub(super) fn admit_here(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
    ) -> LoginFlow {
        let Some(phase) = self.sessions.clients_mut().login(place) else { return LoginFlow::Again };
        let is_guest = phase.bound.guest.is_some();
        match EntryAttempt::of(&route, is_guest, None, &self.context) {
            Ok(EntryAttempt::Counted(entered)) => {
                self.begin_session(place, proved, route, entered);
                LoginFlow::Again
            }
            Ok(EntryAttempt::Waits(waiting)) => {
                let until_us = self.context.now_us + PART_WAIT_US;
                if let Some(phase) = self.sessions.clients_mut().login(place) {
                    let awaited = AwaitedEntry { proved, route, waiting, until_us };
                    phase.awaited = Some(Box::new(awaited));
                }
                self.context.timers.arm(TimerKey::Client(place).id(), until_us);
                LoginFlow::Stop
            }
            Err(refusal) => self.refuse_entry(place, &proved, &refusal),
        }
    }

    /// After a change of this node's parts of limits, counts clients that wait for that, in the
    /// order of arrival.
    pub(super) fn retry_entries(&mut self) {
        let awaited =
            self.sessions.clients().iter().filter_map(|(place, client)| match &client.phase {
                ClientPhase::Login(phase) => {
                    Some((phase.awaited.as_ref()?.waiting.arrival(), place))
                }
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

    pub(super) fn retry_entry(&mut self, place: u32) {
        let Some(phase) = self.sessions.clients_mut().login(place) else { return };
        let is_guest = phase.bound.guest.is_some();
        let Some(awaited) = phase.awaited.take() else { return };
        let AwaitedEntry { proved, mut route, waiting, until_us } = *awaited;
        if let Some(tenant) = self.context.routing.now(&route.tenant) {
            route.tenant = Arc::clone(tenant);
        }
        let entered = match route.tenant.state.is_removed() {
            true => Err(PgLoginRefusal::new("57P01", "the tenant was removed")),
            false => EntryAttempt::of(&route, is_guest, Some(waiting), &self.context),
        };
        match entered {
            Ok(EntryAttempt::Counted(entered)) => {
                self.begin_session(place, proved, route, entered);
                // More input may have arrived meanwhile.
                self.sessions.clients_mut().queue(place, &mut self.context);
            }
            Ok(EntryAttempt::Waits(waiting)) => {
                if let Some(phase) = self.sessions.clients_mut().login(place) {
                    let awaited = AwaitedEntry { proved, route, waiting, until_us };
                    phase.awaited = Some(Box::new(awaited));
                }
            }
            Err(refusal) => {
                self.refuse_entry(place, &proved, &refusal);
            }
        }
    }

    /// Refuses a client whose wait for a part of a limit has timed out.
    pub(super) fn entry_wait_expired(&mut self, place: u32) {
        let words = self.context.words();
        let Some(phase) = self.sessions.clients_mut().login(place) else { return };
        let Some(awaited) = phase.awaited.take() else { return };
        let AwaitedEntry { proved, waiting, .. } = *awaited;
        let refusal = PgLoginRefusal::new("53300", words.full(waiting.limit));
        self.refuse_entry(place, &proved, &refusal);
    }

    pub(super) fn refuse_entry(
        &mut self,
        place: u32,
        proved: &LoggedInClient,
        refusal: &PgLoginRefusal,
    ) -> LoginFlow {
        if let Some(client) = self.sessions.clients().get(place) {
            client.journal_closing(place, &refusal.message, self.context.now_us);
        }
        proved.put_refusal(refusal, &mut self.context.outbox.to_client);
        self.sessions.close_when_sent(place, &mut self.context);
        LoginFlow::Took
    }

    /// Starts the session of a client that is counted.
    pub(super) fn begin_session(
        &mut self,
        place: u32,
        proved: LoggedInClient,
        route: TenantRoute,
        entered: EnteredPool,
    ) {
        let EnteredPool { pool_id, head } = entered;
        let Some(phase) = self.sessions.clients_mut().login(place) else { return };
        // From here on its session counts toward its limits.
        phase.bound.login_place = None;
        let (pid, bound) = (phase.pid(), phase.bound.clone());
        let credentials = self.context.common.keyrings.credentials(&route, &proved);
        let pool =
            self.sessions.join(pool_id, &route, credentials, RoleOrigin::Login, &mut self.context);
        let stats = self.context.counters.tenant(route.tenant.id);
        stats.clients.add(1);
        stats.logins.add(1);
        self.context.counters.stats.logins.sub(1);
        let now_us = self.context.now_us;
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
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
                self.context.common.keys.own(pid, owner);
                let session = ClientLogin::new(link, route, head, pool, pid, stats)
                    .of_mysql(authenticated.requested.collation, bound);
                let out = &mut self.context.outbox.to_client;
                mysql::login::welcome(&authenticated, StatusFlags::AUTOCOMMIT, out);
                let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
                client.phase = ClientPhase::Session(Box::new(session));
                self.context.timers.disarm(TimerKey::Client(place).id());
                self.sessions.send_outbox(Some(place), None, &mut self.context);
                self.sessions.clients_mut().begin_watch(place, now_us);
                self.sessions.watch(place, &mut self.context);
            }
        }
    }

    /// Passes a proof to the thread that checks proofs.
    pub(super) fn prove(&mut self, place: u32, check: Box<PasswordCheck>) -> LoginFlow {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else {
            return LoginFlow::Took;
        };
        let (serial, inbox) = (client.serial, Arc::clone(&self.context.inbox));
        let ClientPhase::Login(phase) = &mut client.phase else { return LoginFlow::Stop };
        let Some(origin) = phase.origin else { return LoginFlow::Stop };
        phase.is_looked_up = true;
        if !self.context.common.prover.ask(ProofJob { check, origin, inbox, client: place, serial })
        {
            self.checked(place, serial, PasswordCheckResult::Refused(too_many_proofs()));
            return LoginFlow::Took;
        }
        LoginFlow::Stop
    }

    /// Handles the result of a password check.
    pub(super) fn checked(&mut self, place: u32, serial: u64, checked: PasswordCheckResult) {
        let RelayWorker { sessions, context, .. } = self;
        let clients = sessions.clients_mut();
        let Some(client) = clients.get_mut(place).filter(|it| it.serial == serial) else { return };
        let ClientPhase::Login(phase) = &mut client.phase else { return };
        phase.is_looked_up = false;
        phase.is_counted = true;
        let Some(step) = phase.login.checked(checked, &mut context.outbox.to_client) else {
            return;
        };
        self.follow_login(place, step.next, &[]);
        // More input may have arrived meanwhile.
        self.sessions.clients_mut().queue(place, &mut self.context);
    }
}

/// Returns the refusal for an unknown user of a tenant whose known users need no password: asking
/// for a password would hide nothing there.
fn stranger(route: &TenantRoute) -> Option<PgLoginRefusal> {
    let how = match (&route.user.auth, route.tenant.rules.auth) {
        (ClientAuth::Unknown, UserAuth::Trust) => "trust",
        (ClientAuth::Unknown, UserAuth::Cert) => "cert",
        (ClientAuth::Unknown, UserAuth::Peer) => "peer",
        (_, _) => return None,
    };
    Some(PgLoginRefusal::new("28000", format!("\"{how}\" authentication failed")))
}

/// Returns the route of a user that was looked up, if the lookup and `auth` suffice for the login.
/// Its secret is for the server.
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

/// Returns the transport by which the client connected, in the terms of tenants' rules.
fn transport(asked: &UnresolvedLogin<'_>) -> ClientTransportMode {
    match (asked.reached, asked.tls) {
        (ClientTransport::Unix { .. }, _) => ClientTransportMode::Unix,
        (ClientTransport::Tcp, Some(_)) => ClientTransportMode::Tls,
        (ClientTransport::Tcp, None) => ClientTransportMode::Tcp,
    }
}

/// Returns the transport by which the client connected.
fn reached(socket: &RelaySocket) -> ClientTransport {
    if let Some(source) = socket.passed() {
        source.origin.transport()
    } else if socket.is_unix() {
        ClientTransport::Unix { uid: socket.uid() }
    } else {
        ClientTransport::Tcp
    }
}

/// Returns random bytes for one login.
fn nonce() -> std::io::Result<AuthNonce> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(AuthNonce::new(bytes))
}

/// Returns an equal value that other clients already use, or keeps this one: otherwise each client
/// would need a kilobyte.
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

/// Returns the parameters for a client: its server's, except for those that it or its tenant sets.
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

/// Returns the policy that applies to clients of MySQL of all tenants.
fn mysql_policy(
    bound: &ListenerBinding,
    context: &ThreadContext,
) -> mysql::login::MysqlLoginPolicy {
    let offers = context.routing.offers();
    let more = |is_there: bool, capability: CapabilityFlags| {
        if is_there { capability } else { CapabilityFlags::NONE }
    };
    let tls = match &bound.guest {
        Some(_) => TlsPolicy::Absent,
        None => context.common.client_tls.load().policy,
    };
    mysql::login::MysqlLoginPolicy {
        tls,
        cleartext: context.common.config.cleartext,
        plugin: MYSQL_PLUGIN,
        more: more(offers.found_rows, CapabilityFlags::FOUND_ROWS)
            .union(more(offers.local_infile, CapabilityFlags::LOCAL_FILES)),
    }
}
