//! Clients and servers with arbitrary input, split arbitrarily: logins, dials and links reach a
//! decision, and survive.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use api::{PoolMode, VerifyMode};
use proptest::prelude::*;
use wire::mysql::auth::{AuthNonce, AuthPlugin, MysqlSecret, MysqlVerifier, NONCE_BYTES};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::frame::put_packet;
use wire::mysql::handshake::{ConnectionAttributes, HandshakeResponse, ServerHello};
use wire::pg::secret::PlainPassword;

use super::client::{MysqlClientSession, MysqlClientSetup};
use super::dial::{MysqlCredentials, MysqlDial, MysqlDialNext, MysqlDialParams};
use super::link::{MysqlLinkContext, attach, client_gone, from_client, from_server};
use super::login::{MysqlLogin, MysqlLoginNext, MysqlLoginPolicy, MysqlPasswordMethod, MysqlProof};
use super::own_key::OwnKey;
use super::server::{MysqlServerSession, MysqlServerSetup};
use super::settings::MysqlSettings;
use crate::link::{ClientId, ClientNext, DepartureAction, LinkLimits, LinkOutputs, ServerNext};
use crate::pg::dial::{ServerAssurance, TlsRequest};
use crate::pg::login::{CleartextPolicy, ClientTransport, TlsPolicy};
use crate::pg::statements::HashKey;

const MODERN: CapabilityFlags = CapabilityFlags(
    CapabilityFlags::PROTOCOL_41.0
        | CapabilityFlags::TRANSACTIONS.0
        | CapabilityFlags::MULTI_STATEMENTS.0
        | CapabilityFlags::MULTI_RESULTS.0
        | CapabilityFlags::PS_MULTI_RESULTS.0
        | CapabilityFlags::SESSION_TRACK.0
        | CapabilityFlags::DEPRECATE_EOF.0,
);

/// Payloads of commands, from which clients' input is generated.
const COMMANDS: &[&[u8]] = &[
    b"\x03SELECT 1",
    b"\x03SET time_zone='x', @a=1; SELECT CONNECTION_ID()",
    b"\x03KILL QUERY 1",
    b"\x03SHOW WARNINGS",
    b"\x03SELECT FOUND_ROWS()",
    b"\x03BEGIN",
    b"\x03CREATE TEMPORARY TABLE t (a int)",
    b"\x02other",
    b"\x0e",
    b"\x01",
    b"\x09",
    b"\x1f",
    b"\x1b\0\0",
    b"\x04t\0",
    b"\x16SELECT ?",
    b"\x17\x01\0\0\0\x01\x01\0\0\0\0\x01\x03\0\x05\0\0\0",
    b"\x17\x01\0\0\0\0\x01\0\0\0\0\0",
    b"\x18\x01\0\0\0\0\0long",
    b"\x19\x01\0\0\0",
    b"\x1a\x01\0\0\0",
    b"\x1c\x01\0\0\0\x01\0\0\0",
    b"\x11alice\0\x14abcdefghijklmnopqrstdb\0\x2d\0mysql_native_password\0",
    b"\x12\0\0\0\0",
    b"",
];

/// Payloads of packets, from which servers' input is generated.
const REPLIES: &[&[u8]] = &[
    b"\0\0\0\x02\0\0\0",
    b"\0\x01\x05\x03\0\x01\0",
    b"\0\0\0\x0a\0\0\0",
    b"\0\0\0\x02\x40\0\0\0\x0f\0\x0d\x09time_zone\x01x",
    b"\0\0\0\x02\x40\0\0\0\x03\x02\x01\x31",
    b"\xff\x28\x04#42000no",
    b"\xfb/etc/passwd",
    b"\x01",
    b"\x02",
    b"\x03def\0\0\0\x01a\0\x0c\x2d\0\x40\0\0\0\xfd\0\0\0\0\0",
    b"\x011",
    b"\0\x01\0",
    b"\xfb",
    b"\xfe\0\0\x02\0",
    b"\xfe\0\0\x02\0\0\0",
    b"\xfe\0\0\x0a\0\0\0",
    b"\xfe\0\0\x42\0\0\0",
    b"\0\x07\0\0\0\x01\0\x01\0\0\0\0",
    b"\0\x07\0\0\0\0\0\0\0\0\0\0",
    b"Uptime: 1",
    b"",
];

/// Generates a packet of one of `payloads`, a damaged one, or noise.
fn said(payloads: &'static [&'static [u8]], numbers: u8) -> impl Strategy<Value = Vec<u8>> {
    let damage = proptest::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    prop_oneof![
        9 => (proptest::sample::select(payloads), 0..=numbers, damage).prop_map(
            |(payload, mut seq, damage)| {
                let mut out = Vec::new();
                put_packet(&mut out, &mut seq, payload);
                if let Some((at, byte)) = damage {
                    let at = at.index(out.len());
                    out[at] = byte;
                }
                out
            }
        ),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

/// Sender and message.
#[derive(Clone, Debug)]
enum HostileAct {
    Client(Vec<u8>),
    Server(Vec<u8>),
    Leaves,
}

fn act() -> impl Strategy<Value = HostileAct> {
    prop_oneof![
        10 => said(COMMANDS, 0).prop_map(HostileAct::Client),
        10 => said(REPLIES, 4).prop_map(HostileAct::Server),
        1 => Just(HostileAct::Leaves),
    ]
}

/// A client and a server connection, as driven by the relay.
struct HostileStage {
    shared: MysqlLinkContext,
    client: MysqlClientSession,
    server: MysqlServerSession,
    attached: bool,
    client_closed: bool,
    server_broken: bool,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    /// Bytes that were written in total.
    written: usize,
}

/// Maximum iterations for one input; more mean an endless loop.
const TURNS_MAX: usize = 10_000;

impl HostileStage {
    fn new(mode: PoolMode, verify: VerifyMode, local_infile: bool, tracks: bool) -> HostileStage {
        let mut settings = MysqlSettings::default();
        let _kept = settings.put_schema("db");
        let forced = Arc::new(MysqlSettings::default());
        HostileStage {
            shared: MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            client: client(mode, verify, local_infile, settings),
            server: MysqlServerSession::new(MysqlServerSetup {
                thread_id: 9,
                pool: 1,
                user: "user".into(),
                capabilities: MODERN,
                status: StatusFlags::AUTOCOMMIT,
                database: Some("db".into()),
                settings: forced,
                tracks,
                read_only: false,
                limits: LinkLimits::default(),
            }),
            attached: false,
            client_closed: false,
            server_broken: false,
            from_client: Vec::new(),
            from_server: Vec::new(),
            written: 0,
        }
    }

    fn act(&mut self, act: &HostileAct, piece: usize) {
        match act {
            HostileAct::Client(bytes) => {
                for part in bytes.chunks(piece) {
                    self.from_client.extend_from_slice(part);
                    self.feed();
                }
            }
            HostileAct::Server(bytes) => {
                for part in bytes.chunks(piece) {
                    self.from_server.extend_from_slice(part);
                    self.hear();
                    self.feed();
                }
            }
            HostileAct::Leaves => self.leaves(),
        }
    }

    /// Presents the client's input until there is no more progress.
    fn feed(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.client_closed {
                return;
            }
            let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let server = self.attached.then_some(&mut self.server);
            let result = from_client(
                &mut self.shared,
                &mut self.client,
                server,
                &self.from_client,
                &mut out,
            );
            self.written += to_client.len() + to_server.len();
            assert!(result.consumed <= self.from_client.len());
            self.from_client.drain(..result.consumed);
            match result.next {
                ClientNext::Read | ClientNext::Wait => return,
                ClientNext::NeedServer => {
                    assert!(!self.attached, "it needs what it has");
                    if self.server_broken || !self.server.is_idle() {
                        return;
                    }
                    let mut out =
                        LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
                    attach(&mut self.shared, &mut self.client, &mut self.server, &mut out);
                    self.attached = true;
                }
                ClientNext::Drain => {}
                ClientNext::Kill { .. } => self.client.kill_answered(false, &mut to_client),
                ClientNext::ChangeUser => {
                    assert!(self.client.take_change_user().is_some());
                    self.client_closed = true;
                }
                ClientNext::Released => {
                    assert!(self.attached && self.server.is_idle(), "it is the pool's again");
                    self.attached = false;
                }
                ClientNext::Terminate | ClientNext::Refuse => self.client_closed = true,
                ClientNext::NeedListener => panic!("there are no listeners"),
            }
        }
        panic!("the link turns in circles");
    }

    /// Presents the server's input until there is no more progress.
    fn hear(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.server_broken {
                self.from_server.clear();
                return;
            }
            let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
            let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
            let client = self.attached.then_some(&mut self.client);
            let result = from_server(
                &mut self.shared,
                &mut self.server,
                client,
                &self.from_server,
                &mut out,
            );
            self.written += to_client.len() + to_server.len();
            assert!(self.attached || to_client.is_empty(), "bytes for nobody");
            assert!(result.consumed <= self.from_server.len());
            self.from_server.drain(..result.consumed);
            match result.next {
                ServerNext::Read => return,
                ServerNext::Released => {
                    assert!(self.attached && self.server.is_idle());
                    self.attached = false;
                    self.feed();
                }
                ServerNext::Idle => assert!(!self.attached && self.server.is_idle()),
                ServerNext::Failed | ServerNext::Broken(_) => {
                    self.server_broken = true;
                    self.client_closed |= self.attached;
                    self.attached = false;
                }
            }
        }
        panic!("the link turns in circles");
    }

    fn leaves(&mut self) {
        self.client_closed = true;
        if !self.attached {
            return;
        }
        self.attached = false;
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
        let gone = client_gone(&self.client, &mut self.server, &mut out);
        assert!(to_client.is_empty(), "bytes for nobody");
        match gone {
            DepartureAction::Close => self.server_broken = true,
            DepartureAction::Idle => assert!(self.server.is_idle()),
            DepartureAction::Cancel | DepartureAction::Draining => assert!(!self.server.is_idle()),
        }
    }
}

fn client(
    mode: PoolMode,
    verify: VerifyMode,
    local_infile: bool,
    settings: MysqlSettings,
) -> MysqlClientSession {
    MysqlClientSession::new(MysqlClientSetup {
        id: ClientId(7),
        mode,
        verify,
        read_only: false,
        local_infile,
        capabilities: MODERN,
        settings,
        forced: Arc::new(MysqlSettings::default()),
    })
}

fn params() -> MysqlDialParams {
    MysqlDialParams {
        user: "alice".to_owned(),
        database: None,
        credentials: Arc::new(MysqlCredentials::Password(PlainPassword::new("secret".to_owned()))),
        tls: TlsRequest::Never,
        assurance: ServerAssurance::Trusted,
        more: CapabilityFlags::NONE,
        collation: 45,
        attributes: Vec::new(),
        statements: vec!["SET a=1".to_owned()],
    }
}

fn nonce() -> AuthNonce {
    AuthNonce::parse(&[b'n'; NONCE_BYTES]).expect("a nonce")
}

/// Returns the first packet of a client with a wrong password.
fn response(tls: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    let capabilities = match tls {
        true => MODERN.union(CapabilityFlags::SSL),
        false => MODERN,
    };
    let response = HandshakeResponse {
        capabilities: capabilities
            .union(CapabilityFlags::PLUGIN_AUTH)
            .union(CapabilityFlags::SECURE_CONNECTION)
            .union(CapabilityFlags::CONNECT_WITH_DB),
        packet_max: 1 << 24,
        collation: 45,
        user: b"alice",
        answer: &[7; 20],
        database: Some(b"db"),
        plugin: Some(b"mysql_native_password"),
        attributes: ConnectionAttributes::default(),
    };
    response.write(&mut payload);
    let mut out = Vec::new();
    put_packet(&mut out, &mut 1, &payload);
    out
}

/// Returns the first packet of a server.
fn hello() -> Vec<u8> {
    let mut payload = Vec::new();
    let hello = ServerHello {
        version: b"5.5.5-10.11.6-MariaDB",
        thread_id: 42,
        nonce: nonce(),
        capabilities: MODERN
            .union(CapabilityFlags::PLUGIN_AUTH)
            .union(CapabilityFlags::CONNECT_WITH_DB),
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        plugin: b"mysql_native_password",
    };
    hello.write(&mut payload);
    let mut out = Vec::new();
    put_packet(&mut out, &mut 0, &payload);
    out
}

fn proof() -> MysqlProof {
    static KEY: OnceLock<Arc<OwnKey>> = OnceLock::new();
    let verifier = MysqlVerifier::new(MysqlSecret::Plain(PlainPassword::new("secret".to_owned())));
    let key = Arc::clone(KEY.get_or_init(Arc::default));
    MysqlProof::Password { verifier: Arc::new(verifier), method: MysqlPasswordMethod::Best, key }
}

/// Runs a login with `bytes` in pieces; returns whether it succeeded.
fn logs_in(plugin: AuthPlugin, bytes: &[u8], piece: usize) -> bool {
    let policy = MysqlLoginPolicy {
        tls: TlsPolicy::Offered,
        cleartext: CleartextPolicy::Protected,
        plugin,
        more: CapabilityFlags::NONE,
    };
    let mut out = Vec::new();
    let mut login = MysqlLogin::new(policy, ClientTransport::Tcp, nonce());
    login.greet(7, "8.0.30-cove", &mut out);
    let mut pending: Vec<u8> = Vec::new();
    for part in bytes.chunks(piece) {
        pending.extend_from_slice(part);
        for _ in 0..TURNS_MAX {
            let mut step = login.input(&pending, &mut out);
            pending.drain(..step.consumed);
            if matches!(step.next, MysqlLoginNext::Route) {
                step = login.routed(Ok(proof()), &mut out);
            }
            if let MysqlLoginNext::Check(check) = &step.next {
                step = login.checked(check.run(), &mut out);
            }
            match step.next {
                MysqlLoginNext::More => break,
                MysqlLoginNext::Route | MysqlLoginNext::Check(_) => {}
                MysqlLoginNext::StartTls | MysqlLoginNext::Fail(_) => return false,
                MysqlLoginNext::Done(_) => return true,
            }
        }
    }
    false
}

fn damaged(mut bytes: Vec<u8>, damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (at, byte) in damage {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes
}

proptest! {
    #[test]
    fn a_client_without_the_password_does_not_get_in(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        native: bool,
        asks_tls: bool,
        piece in 1_usize..90,
    ) {
        let plugin = if native { AuthPlugin::Native } else { AuthPlugin::CachingSha2 };
        let mut bytes = damaged(response(asks_tls), &damage);
        put_packet(&mut bytes, &mut 3, &noise);
        bytes.extend_from_slice(&noise);
        prop_assert!(!logs_in(plugin, &bytes, piece));
        prop_assert!(!logs_in(plugin, &noise, piece));
    }

    #[test]
    fn a_server_that_talks_nonsense_is_not_used(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        piece in 1_usize..90,
        greets: bool,
        cancels: bool,
    ) {
        let dial = match cancels {
            true => MysqlDial::cancel(params(), 9),
            false => MysqlDial::new(params()),
        };
        let mut dial = dial;
        let mut out = Vec::new();
        let _more = dial.start(&mut out);
        let mut bytes = if greets { damaged(hello(), &damage) } else { Vec::new() };
        // The server never answers OK to the proof, the trackers and the statement.
        bytes.extend_from_slice(&noise);
        let mut pending: Vec<u8> = Vec::new();
        for part in bytes.chunks(piece) {
            pending.extend_from_slice(part);
            let step = dial.input(&pending, &mut out);
            pending.drain(..step.consumed);
            match step.next {
                MysqlDialNext::More => {}
                MysqlDialNext::Fail(_) | MysqlDialNext::StartTls => break,
                MysqlDialNext::Ready(_) | MysqlDialNext::Cancelled => prop_assert!(false, "it was used"),
            }
        }
        prop_assert!(out.len() < 4096);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn whatever_both_sides_say_the_link_goes_on_or_ends(
        acts in proptest::collection::vec(act(), 1..40),
        piece in prop_oneof![Just(usize::MAX), 1_usize..9],
        session: bool,
        always: bool,
        local_infile: bool,
        tracks: bool,
    ) {
        let mode = if session { PoolMode::Session } else { PoolMode::Transaction };
        let verify = if always { VerifyMode::Always } else { VerifyMode::Unknown };
        let mut stage = HostileStage::new(mode, verify, local_infile, tracks);
        let mut heard = 0;
        for act in &acts {
            if let HostileAct::Client(bytes) | HostileAct::Server(bytes) = act {
                heard += bytes.len();
            }
            stage.act(act, piece);
        }
        // The output is bounded, whatever the input.
        prop_assert!(stage.written <= 64 * heard + 64 * 1024, "{} of {heard}", stage.written);
    }
}
