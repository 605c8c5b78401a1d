//! A relay for tests: real threads and sockets, tenants made by hand.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{PoolMode, TenantEngine, TenantLimitsSpec, TenantSpec, TenantUserSpec, UserAuth};
use bouncer::auth::ProtocolKeyrings;
use bouncer::config::BouncerConfig;
use bouncer::relay::orders::ThreadCommand;
use bouncer::relay::snapshot::ThreadSnapshot;
use bouncer::relay::{
    FormerProcess, HandoverConfig, ListenAddress, ListenerSpec, LookUp, Relay, RelayConfig,
    RelayParts, SecretReply, TcpPolicy,
};
use bouncer::service::RelayThreads;
use bouncer::tenants::{
    CurrentRouting, SharedSettings, TenantDefinition, TenantRegistry, TenantSnapshot,
};
use bouncer::tls::{ClientSide, ClientTls, ServerSide};
use pooler_core::pg::login::{CleartextPolicy, PgPasswordMethod};
use testkit::{PgAddress, PgClient, Postgres, Scratch};

/// A relay with its tenants.
pub(crate) struct Pooler {
    pub(crate) relay: Arc<Relay>,
    pub(crate) current: Arc<CurrentRouting>,
    config: BouncerConfig,
    book: TenantRegistry,
    _scratch: Scratch,
    socket: PathBuf,
}

/// A lookup that finds no users.
#[derive(Debug)]
struct Nobody;

impl LookUp for Nobody {
    fn doubt(&self, _tenant: bouncer::tenants::TenantId, _user: &str) {}

    fn look_up(&self, _tenant: Arc<TenantSnapshot>, _user: Arc<str>, answer: SecretReply) {
        answer.give(Ok(None));
    }
}

/// Returns a tenant `name`: the user `app` needs no password and is the superuser on the server.
pub(crate) fn tenant(name: &str, server: &Postgres, mode: PoolMode) -> TenantSpec {
    TenantSpec {
        name: name.to_owned(),
        server: server.tcp().to_string(),
        database: Some("postgres".to_owned()),
        pool_mode: Some(mode),
        users: vec![TenantUserSpec {
            name: "app".to_owned(),
            auth: UserAuth::Trust,
            server_user: Some("postgres".to_owned()),
            ..TenantUserSpec::default()
        }],
        ..TenantSpec::default()
    }
}

/// Returns the same with limits.
pub(crate) fn limited(
    name: &str,
    server: &Postgres,
    mode: PoolMode,
    limits: TenantLimitsSpec,
) -> TenantSpec {
    TenantSpec { limits, ..tenant(name, server, mode) }
}

impl Pooler {
    /// Starts a relay with this number of threads and these tenants.
    pub(crate) fn start(threads: usize, tenants: Vec<TenantSpec>) -> Pooler {
        Pooler::start_after(threads, tenants, None)
    }

    /// Starts the same as one of several relays that succeed each other at a socket file.
    pub(crate) fn start_after(
        threads: usize,
        tenants: Vec<TenantSpec>,
        socket: Option<&Path>,
    ) -> Pooler {
        let socket = socket.map(Path::to_owned);
        let succession =
            socket.map(|socket| HandoverConfig { socket, former: FormerProcess::AtSocket });
        let scratch = Scratch::new();
        let socket = scratch.path().join(".s.PGSQL.6432");
        let config = BouncerConfig { tenants, ..BouncerConfig::default() };
        let mut book = TenantRegistry::default();
        let current = Arc::new(CurrentRouting::new(build(&mut book, &config)));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let engine = TenantEngine::Postgres;
        let listener = |address| ListenerSpec { address, engine, is_optional: false, tenant: None };
        let unix = ListenAddress::Unix { path: socket.clone(), mode: 0o777 };
        let relay_config = RelayConfig {
            mysql_version: "5.5.5-10.11.0-MariaDB".into(),
            listeners: vec![listener(ListenAddress::Tcp(any_port)), listener(unix)],
            threads: NonZeroUsize::new(threads),
            clients_max: 2000,
            login: Duration::from_secs(5),
            cleartext: CleartextPolicy::Protected,
            tcp: TcpPolicy::default(),
            shares_limits: false,
        };
        let no_tls =
            ClientTls { mode: api::TlsMode::Disable, cert: None, key: None, client_ca: None };
        let parts = RelayParts {
            current: Arc::clone(&current),
            keyrings: ProtocolKeyrings::new([7; 32], PgPasswordMethod::Best),
            client_tls: Arc::new(ClientSide::new(no_tls).expect("no TLS")),
            server_tls: Arc::new(ServerSide::default()),
            look_up: Arc::new(Nobody),
        };
        let relay = Relay::start_after(relay_config, parts, succession).expect("start the relay");
        let relay = Arc::new(relay);
        Pooler { relay, current, config, book, _scratch: scratch, socket }
    }

    /// Returns its TCP address.
    pub(crate) fn tcp(&self) -> PgAddress {
        self.relay.addresses()[0].1.into()
    }

    /// Returns its Unix socket.
    pub(crate) fn unix(&self) -> PgAddress {
        self.socket.clone().into()
    }

    /// Returns a client of a tenant.
    pub(crate) fn client(&self, tenant: &str) -> PgClient {
        self.client_with(tenant, &[])
    }

    /// Returns a client of a tenant with more startup parameters.
    pub(crate) fn client_with(&self, tenant: &str, more: &[(&str, &str)]) -> PgClient {
        let mut parameters = vec![("user", "app"), ("database", tenant)];
        parameters.extend_from_slice(more);
        PgClient::login(&self.tcp(), &parameters, "").expect("log in")
    }

    /// Replaces the tenants.
    pub(crate) fn change(&mut self, tenants: Vec<TenantSpec>) {
        self.config.tenants = tenants;
        self.current.replace(build(&mut self.book, &self.config));
        self.relay.order(&|| ThreadCommand::Routing);
    }

    /// Returns the current snapshot of a tenant.
    pub(crate) fn tenant(&self, name: &str) -> Arc<TenantSnapshot> {
        Arc::clone(self.current.load().named(name).expect("a tenant"))
    }

    /// Returns the snapshots of the threads.
    pub(crate) fn snapshots(&self) -> Vec<ThreadSnapshot> {
        let told = self.relay.snapshots();
        told.into_iter().map(|it| it.blocking_recv().expect("a snapshot")).collect()
    }

    /// Returns the number of server connections, in any state.
    pub(crate) fn servers(&self) -> usize {
        self.snapshots().iter().map(|snapshot| snapshot.servers.len()).sum()
    }
}

fn build(book: &mut TenantRegistry, config: &BouncerConfig) -> bouncer::tenants::TenantRouting {
    let resolve = |_: &str, text: &str| Ok(text.to_owned());
    let define = |spec: &TenantSpec| TenantDefinition::of_file(spec, "tenants", &resolve);
    let definitions: Result<Vec<TenantDefinition>, _> = config.tenants.iter().map(define).collect();
    let routing = book.build(&SharedSettings::new(config), &definitions.expect("definitions"));
    routing.expect("tenants that can be")
}

/// Waits until `probe` returns a value.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    testkit::until(what, Duration::from_secs(20), || probe().ok_or_else(|| "not yet".to_owned()))
}

/// Starts a server that sends one of these parts after each input, and then closes the connection.
pub(crate) fn rogue(says: Vec<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // The thread ends with the test's process: nothing connects to it any more.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            for part in &says {
                let heard = stream.read(&mut [0; 4096]).unwrap_or(0);
                if heard == 0 || stream.write_all(part).is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// Returns a message of the protocol.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[tag], &length[..], body].concat()
}
