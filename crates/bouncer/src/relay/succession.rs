//! Handover from one process to the next: the old one gives its clients away, the new one takes
//! them in.
//!
//! A client is given away when it holds no server connection and nothing of it is under way. What
//! cannot be carried is told to connect again: who has an encrypted connection, listens to
//! channels, logs in at the server with what only it knows, or may still ask for warnings.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/unix.7.html>

mod mysql;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

use api::TenantEngine;
use mio::net::{TcpStream, UnixStream as MioUnixStream};
use pooler_core::link::{ClientId, ClientLink, put_mysql_error};
use pooler_core::pg::client::{PgClientSession, PgClientSetup};
use pooler_core::pg::settings::{PgSettings, ReportedParameters};
use wire::pg::message::{ErrorFields, backend};

use super::accept::{RelayListener, SocketFile};
use super::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use super::client_count::ClientArrival;
use super::common::RelayShared;
use super::conn::{EventSource, RelayConnection};
use super::guests::ListenerBinding;
use super::opening::ServerRole;
use super::orders::ThreadMessageKind;
use super::pools::PoolTerms;
use super::socket::RelaySocket;
use super::takeover::{self, AdoptedClient, CarriedStatement, HandoverMessage, HandoverSession};
use super::worker::RelayWorker;
use crate::tenants::TenantRoute;

/// Error for clients that cannot go on with the next process.
const RECONNECT: &str = "terminating connection: the server is being replaced, connect again";

/// Waits for the next process, and gives it what the threads have.
pub(super) fn offer(
    listener: std::os::unix::net::UnixListener,
    file: SocketFile,
    common: &RelayShared,
) {
    let mut stream = loop {
        let followed = takeover::followed(&listener);
        if common.is_stopping.load(Ordering::Acquire) {
            return;
        }
        match followed {
            Ok(Some(stream)) => break stream,
            Ok(None) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::warn!(error, "nobody can take over from this process any more");
            }
        }
    };
    tracing::info!("another process takes over");
    // The next one makes its own.
    drop((listener, file));
    let (sender, parcels) = std::sync::mpsc::channel();
    // The first thread tells the others, once nobody is accepted any more who could be dealt to
    // one that has given everything away.
    if let Some(first) = common.peers.first() {
        first.inbox.push(ThreadMessageKind::HandOver(sender));
    }
    common.is_taken_over.store(true, Ordering::Release);
    pass_on(&mut stream, &parcels);
}

/// Sends the next process what comes, and sees clients off where that is gone.
pub(super) fn pass_on(stream: &mut UnixStream, parcels: &Receiver<HandoverMessage>) {
    let mut is_broken = false;
    for message in parcels {
        if !is_broken && let Err(error) = takeover::send(stream, &message) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the process that takes over is gone");
            is_broken = true;
        }
        if is_broken && let HandoverMessage::Client(fd, carried) = message {
            farewell(fd, carried.engine());
        }
    }
}

/// Takes clients in until there are no more.
pub(super) fn take_in(inherited: HandoverState, common: &RelayShared) {
    let HandoverState { mut stream, early, .. } = inherited;
    // From here on nothing comes while clients are busy.
    if stream.set_read_timeout(None).is_err() {
        return;
    }
    for adopted in early {
        deal(adopted, common);
    }
    loop {
        match takeover::receive(&mut stream) {
            Ok(Some(HandoverMessage::Client(fd, carried))) => {
                deal(AdoptedClient(fd, carried), common)
            }
            Ok(Some(HandoverMessage::Listener(..) | HandoverMessage::ListenersEnd)) => {}
            Ok(None) => return tracing::info!("has taken over"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::error!(error, "the former process gives nothing more");
            }
        }
    }
}

/// Gives a client to the thread with the fewest.
fn deal(adopted: AdoptedClient, common: &RelayShared) {
    let fewest = common.peers.iter().min_by_key(|peer| peer.load.load(Ordering::Relaxed));
    if let Some(peer) = fewest {
        peer.load.fetch_add(1, Ordering::Relaxed);
        peer.inbox.push(ThreadMessageKind::Adopted(adopted));
    }
}

/// Tells a client, as far as its socket takes it, to connect again.
fn farewell(fd: OwnedFd, engine: TenantEngine) {
    let mut bytes = Vec::new();
    let fields = ErrorFields::fatal("57P01", RECONNECT);
    match engine {
        TenantEngine::Postgres => backend::error(&mut bytes, &fields),
        TenantEngine::Mysql => put_mysql_error(&mut 0, &fields, &mut bytes),
    }
    // One that does not take it sees the end of the connection.
    drop(std::fs::File::from(fd).write_all(&bytes));
}

impl RelayWorker {
    /// Begins to give everything away.
    pub(super) fn hand_over(&mut self, successor: Sender<HandoverMessage>) {
        if self.index == 0 {
            for listener in self.take_listeners() {
                match listener.give(&self.context.registry) {
                    Ok((fd, address)) => {
                        drop(successor.send(HandoverMessage::Listener(fd, address)))
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "give a listener away");
                    }
                }
            }
            drop(successor.send(HandoverMessage::ListenersEnd));
            for peer in self.common.peers.iter().skip(1) {
                peer.inbox.push(ThreadMessageKind::HandOver(successor.clone()));
            }
        }
        self.successor = Some(successor);
    }

    /// Gives those clients away that are at rest.
    pub(super) fn hand_over_clients(&mut self) {
        if self.successor.is_none() {
            return;
        }
        for place in self.clients.keys() {
            self.give_client(place);
        }
        if self.clients.keys().is_empty() {
            self.successor = None;
        }
    }

    fn give_client(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if !client.conn.is_at_rest() {
            return;
        }
        let (is_tls, is_unix) = (client.conn.socket.is_tls(), client.conn.socket.is_unix());
        let Some(session) = client.session() else { return };
        // Nobody but this process knows what a guest may have.
        let is_guest = session.bound.guest.is_some();
        if is_guest || session.place != ServerAttachment::Idle || session.link.is_in_message() {
            return;
        }
        let TenantRoute { tenant, user } = &session.route;
        let is_known = self.common.keyrings.own_credentials(tenant, user).is_some();
        let key = self.common.keys.key(session.pid);
        let carried = HandoverSession {
            tenant: tenant.name.as_ref().to_owned(),
            user: user.name.as_ref().to_owned(),
            is_unix,
            pid: session.pid,
            key: key.map(Vec::from).unwrap_or_default(),
            requested: Vec::new(),
            wanted: Vec::new(),
            seen: Vec::new(),
            statements: Vec::new(),
            mysql: None,
        };
        let carried = match &session.link {
            ClientLink::Pg(link) => carried.of_pg(link),
            ClientLink::My(link) => mysql::carried(session, link)
                .map(|mysql| HandoverSession { mysql: Some(mysql), ..carried }),
        };
        let Some(carried) = carried.filter(|_| is_known && !is_tls) else {
            return self.disconnect(place, &ErrorFields::fatal("57P01", RECONNECT));
        };
        let Some(client) = self.clients.get_mut(place) else { return };
        let fd = client.conn.leave(&self.context.registry);
        // Its socket lives on: it is not said that nothing more comes.
        self.client_moved(place);
        match (fd, &self.successor) {
            (Ok(fd), Some(successor)) => {
                drop(successor.send(HandoverMessage::Client(fd, Box::new(carried))));
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "give a client away");
            }
        }
    }

    /// Takes a client in from the former process.
    pub(super) fn adopt(&mut self, AdoptedClient(fd, carried): AdoptedClient) {
        self.serial += 1;
        let engine = carried.engine();
        if let Err((fd, error)) = self.settle(fd, &carried) {
            tracing::warn!(error, "a client of the former process cannot go on");
            self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
            if let Some(fd) = fd {
                farewell(fd, engine);
            }
        }
    }

    fn settle(
        &mut self,
        fd: OwnedFd,
        it: &HandoverSession,
    ) -> Result<(), (Option<OwnedFd>, String)> {
        let Some(tenant) = self.routing.named(&it.tenant).map(Arc::clone) else {
            return Err((Some(fd), format!("no tenant {}", it.tenant)));
        };
        if tenant.engine != it.engine() {
            return Err((Some(fd), format!("{} speaks something else now", it.tenant)));
        }
        let user = tenant.user(&it.user);
        let Some(credentials) = self.common.keyrings.own_credentials(&tenant, &user) else {
            return Err((Some(fd), "nobody knows how it logs in".to_owned()));
        };
        let route = TenantRoute { tenant, user };
        let pool_id = match route.pool() {
            Ok(pool) => pool,
            Err(error) => return Err((Some(fd), error.to_string())),
        };
        let clients_max = self.common.config.clients_max;
        let arrival = ClientArrival { route: &route, is_guest: false, clients_max };
        let head = match self.common.population.adopt(&arrival) {
            Ok(head) => head,
            Err(full) => return Err((Some(fd), full.to_string())),
        };
        let socket = if it.is_unix {
            Ok(RelaySocket::unix(MioUnixStream::from_std(fd.into())))
        } else {
            RelaySocket::tcp(TcpStream::from_std(fd.into()), self.common.config.tcp)
        };
        let place = self.clients.reserve();
        let conn = socket.and_then(|socket| {
            RelayConnection::new(socket, EventSource::Client(place), false, &self.context.registry)
        });
        let conn = match conn {
            Ok(conn) => conn,
            Err(error) => {
                self.clients.give_up(place);
                return Err((None, error.to_string()));
            }
        };
        let terms = PoolTerms::of(&route.tenant, &route.user);
        let pool = self.pools.join(pool_id, route.tenant.id, terms, self.context.now);
        let (tenant, user) = (Arc::clone(&route.tenant), Arc::clone(&route.user));
        self.roles.entry(pool_id).or_insert_with(|| ServerRole::known(tenant, user, credentials));
        self.apply_admission(pool_id);
        let stats = self.counters.tenant(route.tenant.id);
        stats.clients.add(1);
        self.counters.stats.clients.add(1);
        self.common.keys.restore(it.pid, self.index, place, &it.key);
        let session = match &it.mysql {
            None => {
                let link = ClientLink::Pg(self.restored(it, &route));
                ClientLogin::new(link, route, head, pool, it.pid, stats)
            }
            Some(carried) => {
                let owner = (route.tenant.id, Arc::clone(&route.user.name));
                self.common.keys.own(it.pid, owner);
                let link = ClientLink::My(mysql::restored(
                    carried,
                    it.pid,
                    &route,
                    &self.common,
                    self.link.my(),
                ));
                let bound = ListenerBinding::to(carried.bound.as_deref().map(Arc::from));
                ClientLogin::new(link, route, head, pool, it.pid, stats)
                    .of_mysql(carried.collation, bound)
            }
        };
        let client = RelayClient::new(
            conn,
            ClientPhase::Session(Box::new(session)),
            self.serial,
            self.common.next_number(),
            self.context.now_us,
        );
        self.clients.occupy(place, client);
        // It may come after all others were told.
        if !self.drain_client(place) {
            self.watch_client(place);
            self.queue_client(place);
        }
        Ok(())
    }

    /// The session of a client of PostgreSQL.
    fn restored(&mut self, it: &HandoverSession, route: &TenantRoute) -> PgClientSession {
        let TenantRoute { tenant, user } = route;
        let mut link = PgClientSession::new(PgClientSetup {
            id: ClientId(it.pid),
            mode: tenant.mode_of(user),
            verify: tenant.verify,
            read_only: tenant.read_only,
            settings: PgSettings::of(borrowed(&it.requested)),
            forced: self.common.forced.of(tenant),
            seen: Arc::new(ReportedParameters::of(borrowed(&it.seen))),
        });
        link.restore_settings(PgSettings::of(borrowed(&it.wanted)));
        for statement in &it.statements {
            let CarriedStatement { name, text, types } = statement;
            link.restore_statement(self.link.pg(), name, text, types);
        }
        link
    }

    /// A client lives on elsewhere: undoes what it holds here.
    fn client_moved(&mut self, place: u32) {
        let Some(client) = self.clients.remove(place) else { return };
        self.context.timers.disarm(super::worker::TimerKey::Client(place).id());
        if let ClientPhase::Session(session) = client.phase {
            self.end_session(*session, &super::leave::ClientDeparture::Dismissed);
        }
        self.counters.stats.clients.sub(1);
        self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HandoverSession {
    /// Returns what the client speaks.
    fn engine(&self) -> TenantEngine {
        match self.mysql {
            Some(_) => TenantEngine::Mysql,
            None => TenantEngine::Postgres,
        }
    }

    /// With what is to be known of a session of PostgreSQL; nothing when that cannot be carried.
    fn of_pg(self, link: &PgClientSession) -> Option<HandoverSession> {
        let statements = link.statements()?.map(|(name, text, types)| CarriedStatement {
            name: name.into(),
            text: text.into(),
            types: types.into(),
        });
        // Without a key nobody could cancel what it does.
        (!self.key.is_empty()).then_some(())?;
        Some(HandoverSession {
            requested: pairs(link.requested().iter()),
            wanted: pairs(link.settings().iter()),
            seen: pairs(link.seen().iter()),
            statements: statements.collect(),
            ..self
        })
    }
}

/// State with which a successor process begins.
pub(super) struct HandoverState {
    pub(super) stream: UnixStream,
    pub(super) early: Vec<AdoptedClient>,
    pub(super) listeners: Vec<(OwnedFd, String)>,
}

/// Waits for the listeners of the former process.
pub(super) fn inherit(mut stream: UnixStream) -> std::io::Result<HandoverState> {
    let (mut early, mut listeners) = (Vec::new(), Vec::new());
    loop {
        match takeover::receive(&mut stream)? {
            Some(HandoverMessage::Listener(fd, address)) => listeners.push((fd, address)),
            Some(HandoverMessage::Client(fd, carried)) => early.push(AdoptedClient(fd, carried)),
            Some(HandoverMessage::ListenersEnd) => {
                return Ok(HandoverState { stream, early, listeners });
            }
            None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl HandoverState {
    /// The listener for an address, if it was inherited.
    pub(super) fn listener(&mut self, spec: &super::ListenerSpec) -> Option<RelayListener> {
        let at = self.listeners.iter().position(|(_, address)| spec.is_at(address))?;
        let (fd, _) = self.listeners.swap_remove(at);
        Some(RelayListener::inherited(spec, fd))
    }
}

fn pairs<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    of.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn borrowed(of: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    of.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
