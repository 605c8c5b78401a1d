//! MySQL's rows, and the row of the status flags.

use std::hint::black_box;
use std::sync::Arc;

use api::{PoolMode, VerifyMode};
use pooler_core::link::{ClientId, ClientLink, LinkLimits, ServerLink};
use pooler_core::mysql::client::{
    MysqlClientSession as ClientSession, MysqlClientSetup as ClientSetup,
};
use pooler_core::mysql::server::{
    MysqlServerSession as ServerSession, MysqlServerSetup as ServerSetup,
};
use pooler_core::mysql::settings::MysqlSettings as Settings;
use wire::mysql::capabilities::{CapabilityFlags as Capabilities, StatusFlags as Status};
use wire::mysql::packet;

use crate::measure::{Row, measure};
use crate::relay::{Reset, Sessions};
use crate::talk::{self, Head, Messages, Own, Talk};

const FLAGS_OPS: usize = 200_000;

const QUERY: &[u8] = b"\x09\0\0\0\x03SELECT 1";
const RESET: &[u8] = b"\x01\0\0\0\x1f";
/// Cove's own statement after a reset, which makes the server report changes again.
const SET: &[u8] = b"\x03SET ";
const OK: &[u8] = b"\x07\0\0\x01\0\0\0\x02\0\0\0";
/// The seed's answer is not a legal result of a SELECT: it has no rows.
const ANSWER: Messages = &[OK];
const COUNT: &[u8] = b"\x01\0\0\x01\x01";
const COLUMN: &[u8] = b"\x17\0\0\x02\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";
/// A result for clients without `DEPRECATE_EOF`.
const ROWS: Messages = &[
    COUNT,
    COLUMN,
    b"\x05\0\0\x03\xfe\0\0\x02\0",
    b"\x02\0\0\x04\x011",
    b"\x05\0\0\x05\xfe\0\0\x02\0",
];
/// The same result as servers send it to Cove.
const MODERN_ROWS: Messages =
    &[COUNT, COLUMN, b"\x02\0\0\x03\x011", b"\x07\0\0\x04\xfe\0\0\x02\0\0\0"];

const CLASSIC: Capabilities = Capabilities::PROTOCOL_41.union(Capabilities::TRANSACTIONS);
const MODERN: Capabilities =
    CLASSIC.union(Capabilities::SESSION_TRACK).union(Capabilities::DEPRECATE_EOF);

fn own(text: &[u8]) -> Option<Own> {
    match text {
        RESET => Some(Own::Reset(ANSWER)),
        [_, _, _, 0, command @ ..] if command.starts_with(SET) => Some(Own::Again(ANSWER)),
        _ => None,
    }
}

/// Creates sessions with the given capabilities; a server with `SESSION_TRACK` reports changes.
fn sessions(reset: Reset, of_client: Capabilities, of_server: Capabilities) -> Sessions {
    let mode = if reset == Reset::Always { PoolMode::Session } else { PoolMode::Transaction };
    let client = ClientSession::new(ClientSetup {
        id: ClientId(1),
        mode,
        verify: VerifyMode::Unknown,
        read_only: false,
        local_infile: false,
        capabilities: of_client,
        settings: Settings::default(),
        forced: Arc::default(),
    });
    let server = ServerSession::new(ServerSetup {
        thread_id: 1,
        pool: 0,
        user: Box::from("bench"),
        capabilities: of_server,
        status: Status::AUTOCOMMIT,
        database: None,
        settings: Arc::default(),
        tracks: of_server.contains(Capabilities::SESSION_TRACK),
        read_only: false,
        limits: LinkLimits::default(),
    });
    (ClientLink::My(client), ServerLink::My(Box::new(server)))
}

fn classic(reset: Reset) -> Sessions {
    sessions(reset, CLASSIC, CLASSIC)
}

fn modern(reset: Reset) -> Sessions {
    sessions(reset, MODERN, MODERN)
}

fn translated(reset: Reset) -> Sessions {
    sessions(reset, CLASSIC, MODERN)
}

pub fn rows(only: &str) -> Vec<Row> {
    let talk = Talk {
        suffix: "",
        query: QUERY,
        said: ANSWER,
        heard: ANSWER,
        resets_with_two: false,
        own,
        head: Head::Mysql,
        sessions: classic,
    };
    let talks = [
        talk,
        Talk { suffix: "/rows", said: ROWS, heard: ROWS, ..talk },
        Talk {
            suffix: "/rows_modern",
            said: MODERN_ROWS,
            heard: MODERN_ROWS,
            resets_with_two: true,
            sessions: modern,
            ..talk
        },
        Talk {
            suffix: "/rows_translated",
            said: MODERN_ROWS,
            heard: ROWS,
            resets_with_two: true,
            sessions: translated,
            ..talk
        },
    ];
    let mut rows = talk::rows("mysql", &talks, only);
    let flags = "mysql/status_flags";
    if flags.starts_with(only) {
        rows.push(measure(flags, FLAGS_OPS, status_flags));
    }
    rows
}

fn status_flags(ops: usize) -> bool {
    let payload = &OK[4..];
    let mut right = true;
    for _ in 0..ops {
        right &= packet::status_flags(black_box(payload)) == Some(Status::AUTOCOMMIT);
    }
    right
}
