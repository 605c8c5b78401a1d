//! The link of the bouncer between one client and one server connection, and the analysis of SQL.

use std::hint::black_box;
use std::sync::Arc;

use api::{PoolMode, VerifyMode};
use pooler_core::link::{
    ClientId, ClientLink, ClientNext, LinkLimits, LinkOutputs, ProtocolLinks, ServerLink,
    ServerNext,
};
use pooler_core::mysql::client::{MysqlClientSession, MysqlClientSetup};
use pooler_core::mysql::server::{MysqlServerSession, MysqlServerSetup};
use pooler_core::mysql::settings::MysqlSettings;
use pooler_core::pg::client::{PgClientSession, PgClientSetup};
use pooler_core::pg::server::{PgServerSession, PgServerSetup};
use pooler_core::pg::settings::{PgSettings, ReportedParameters};
use pooler_core::pg::statements::HashKey;
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::sql::SqlMode;
use wire::pg::frame::TransactionStatus;
use wire::pg::message::{backend, frontend};

const SQL: &[u8] =
    b"SELECT o.id, o.total, c.name FROM orders o JOIN customers c ON c.id = o.customer \
    WHERE o.state = 'open' AND o.total > 100.5 ORDER BY o.id LIMIT 20";
const CLASSIC: CapabilityFlags = CapabilityFlags::PROTOCOL_41.union(CapabilityFlags::TRANSACTIONS);
const MODERN: CapabilityFlags =
    CLASSIC.union(CapabilityFlags::SESSION_TRACK).union(CapabilityFlags::DEPRECATE_EOF);
const PROBED: &[u8] = b"C\0\0\0\x0dSELECT 0\0Z\0\0\0\x05I";
const ROW_BYTES: usize = 1000;
const ROWS: usize = 64;

/// A client and a server connection with the link between them.
struct Relay {
    links: ProtocolLinks,
    client: ClientLink,
    server: ServerLink,
    /// The server's answer to the link's own query: the session is unchanged.
    probe: &'static [u8],
    to_client: Vec<u8>,
    to_server: Vec<u8>,
}

impl Relay {
    fn new(client: ClientLink, server: ServerLink, probe: &'static [u8]) -> Relay {
        let links = ProtocolLinks::new(&HashKey::new(), &[Arc::default(), Arc::default()]);
        Relay { links, client, server, probe, to_client: Vec::new(), to_server: Vec::new() }
    }

    /// Relays a transaction: the connection is attached for `asked` and free after `answered`.
    fn transaction(&mut self, asked: &[u8], answered: &[u8]) {
        let (mut consumed, mut is_attached) = (0, false);
        self.to_client.clear();
        self.to_server.clear();
        while consumed < asked.len() {
            let mut out =
                LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let server = is_attached.then_some(&mut self.server);
            let taken =
                self.links.from_client(&mut self.client, server, &asked[consumed..], &mut out);
            consumed += taken.consumed;
            match taken.next {
                ClientNext::NeedServer => {
                    self.links.attach(&mut self.client, &mut self.server, &mut out);
                    is_attached = true;
                }
                ClientNext::Read => {}
                next => panic!("what is asked is plain: {next:?}"),
            }
        }
        let (mut rest, mut probe) = (answered, self.probe);
        while is_attached {
            if rest.is_empty() {
                // The link queries which changes the statement left in the session: occasionally
                // for a text that it knows.
                rest = std::mem::take(&mut probe);
                assert!(!rest.is_empty(), "the answer is plain");
            }
            let mut out =
                LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let client = Some(&mut self.client);
            let taken = self.links.from_server(&mut self.server, client, rest, &mut out);
            rest = &rest[taken.consumed..];
            match taken.next {
                ServerNext::Released => is_attached = false,
                ServerNext::Read if taken.consumed > 0 => {}
                next => panic!("the answer is plain: {next:?}"),
            }
        }
        assert!(rest.is_empty(), "the answer has an end");
    }
}

fn postgres() -> Relay {
    let parameters = || ReportedParameters::of([("server_version", "15.0")]);
    let none = || PgSettings::of([]);
    let client = PgClientSession::new(PgClientSetup {
        id: ClientId(1),
        mode: PoolMode::Transaction,
        verify: VerifyMode::Unknown,
        read_only: false,
        settings: none(),
        forced: Arc::new(none()),
        seen: Arc::new(parameters()),
    });
    let server = PgServerSession::new(PgServerSetup {
        pid: 1,
        key: Box::from([0, 0, 0, 2]),
        parameters: parameters(),
        settings: Arc::new(none()),
        pool: 0,
        user: Box::from("bench"),
        limits: LinkLimits::default(),
    });
    Relay::new(ClientLink::Pg(client), ServerLink::Pg(Box::new(server)), PROBED)
}

fn mysql(of_client: CapabilityFlags, of_server: CapabilityFlags) -> Relay {
    let client = MysqlClientSession::new(MysqlClientSetup {
        id: ClientId(1),
        mode: PoolMode::Transaction,
        verify: VerifyMode::Unknown,
        read_only: false,
        local_infile: false,
        capabilities: of_client,
        settings: MysqlSettings::default(),
        forced: Arc::default(),
    });
    let server = MysqlServerSession::new(MysqlServerSetup {
        thread_id: 1,
        pool: 0,
        user: Box::from("bench"),
        capabilities: of_server,
        status: StatusFlags::AUTOCOMMIT,
        database: None,
        settings: Arc::default(),
        tracks: of_server.contains(CapabilityFlags::SESSION_TRACK),
        read_only: false,
        limits: LinkLimits::default(),
    });
    Relay::new(ClientLink::My(client), ServerLink::My(Box::new(server)), b"")
}

/// Returns a result of `rows` rows of one column, with the end of the transaction.
fn postgres_answer(rows: usize, value: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    backend::row_description(&mut answer, &[("value", 25)]);
    for _ in 0..rows {
        backend::data_row(&mut answer, &[Some(value)]);
    }
    backend::command_complete(&mut answer, &format!("SELECT {rows}"));
    backend::ready_for_query(&mut answer, TransactionStatus::Idle);
    answer
}

/// Relays a simple query with one row.
pub fn postgres_select(operations: u64) {
    let mut query = Vec::new();
    frontend::query(&mut query, "SELECT abalance FROM pgbench_accounts WHERE aid = 4711");
    let (mut relay, answer) = (postgres(), postgres_answer(1, "42"));
    for _ in 0..operations {
        relay.transaction(&query, &answer);
        assert!(relay.to_server.starts_with(&query) && relay.to_client == answer);
    }
}

/// Relays a prepared statement that the server connection knows as well.
pub fn postgres_prepared(operations: u64) {
    let mut relay = postgres();
    let mut rest = Vec::new();
    frontend::bind(&mut rest, "s", &[Some("4711")]);
    frontend::execute(&mut rest, 0);
    frontend::sync(&mut rest);
    let mut first = Vec::new();
    frontend::parse(&mut first, "s", "SELECT abalance FROM pgbench_accounts WHERE aid = $1", &[]);
    first.extend_from_slice(&rest);
    let (mut complete, mut answer) = (Vec::new(), Vec::new());
    backend::parse_complete(&mut complete);
    backend::bind_complete(&mut answer);
    backend::data_row(&mut answer, &[Some("42")]);
    backend::command_complete(&mut answer, "SELECT 1");
    backend::ready_for_query(&mut answer, TransactionStatus::Idle);
    complete.extend_from_slice(&answer);
    relay.transaction(&first, &complete);
    for _ in 0..operations {
        relay.transaction(&rest, &answer);
        assert_eq!(relay.to_client.len(), answer.len());
    }
}

/// Relays a result of 64 KiB.
pub fn postgres_rows(operations: u64) {
    let mut query = Vec::new();
    frontend::query(&mut query, "SELECT value FROM long");
    let (mut relay, answer) = (postgres(), postgres_answer(ROWS, &"x".repeat(ROW_BYTES)));
    for _ in 0..operations {
        relay.transaction(&query, &answer);
        assert_eq!(relay.to_client.len(), answer.len());
    }
}

/// Analyses the effects of a statement on its session.
pub fn postgres_sql(operations: u64) {
    for _ in 0..operations {
        assert_eq!(wire::pg::sql::analyse(black_box(SQL)).statements, 1);
    }
}

const MYSQL_QUERY: &[u8] = b"\x09\0\0\0\x03SELECT 1";
const COLUMN: &[u8] =
    b"\x01\0\0\x01\x01\x17\0\0\x02\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";
/// Result for clients without `DEPRECATE_EOF`, after its column.
const CLASSIC_ROWS: &[u8] =
    b"\x05\0\0\x03\xfe\0\0\x02\0\x02\0\0\x04\x011\x05\0\0\x05\xfe\0\0\x02\0";
/// Result as servers send it to Cove.
const MODERN_ROWS: &[u8] = b"\x02\0\0\x03\x011\x07\0\0\x04\xfe\0\0\x02\0\0\0";

fn mysql_relay(operations: u64, of_client: CapabilityFlags, heard: &[u8]) {
    let mut relay = mysql(of_client, MODERN);
    let (answer, heard) = ([COLUMN, MODERN_ROWS].concat(), [COLUMN, heard].concat());
    for _ in 0..operations {
        relay.transaction(MYSQL_QUERY, &answer);
        assert_eq!(relay.to_client, heard);
    }
}

/// Relays a text query with one row.
pub fn mysql_select(operations: u64) {
    mysql_relay(operations, MODERN, MODERN_ROWS);
}

/// Relays a text query of a client without `DEPRECATE_EOF`.
pub fn mysql_translated(operations: u64) {
    mysql_relay(operations, CLASSIC, CLASSIC_ROWS);
}

/// Analyses the effects of a statement on its session.
pub fn mysql_sql(operations: u64) {
    for _ in 0..operations {
        let (effects, _) =
            wire::mysql::sql::effects_and_prohibitions(black_box(SQL), SqlMode::default());
        black_box(effects);
    }
}
