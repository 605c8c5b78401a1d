//! PostgreSQL's rows.

use std::sync::Arc;

use api::{PoolMode, VerifyMode};
use pooler_core::link::{ClientId, ClientLink, LinkLimits, ServerLink};
use pooler_core::pg::client::{PgClientSession as ClientSession, PgClientSetup as ClientSetup};
use pooler_core::pg::server::{PgServerSession as ServerSession, PgServerSetup as ServerSetup};
use pooler_core::pg::settings::{PgSettings as Settings, ReportedParameters as Parameters};

use crate::measure::Row;
use crate::relay::{Reset, Sessions};
use crate::talk::{self, Head, Messages, Own, Talk};

const QUERY: &[u8] = b"Q\0\0\0\x0dSELECT 1\0";
const DISCARD: &[u8] = b"Q\0\0\0\x10DISCARD ALL\0";
/// The seed's answers are not legal results of a SELECT: they have no rows.
const ANSWER: Messages = &[b"C\0\0\0\x0dSELECT 1\0", b"Z\0\0\0\x05I"];
const ROWS: Messages = &[
    b"T\0\0\0\x21\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0",
    b"D\0\0\0\x0b\0\x01\0\0\0\x011",
    b"C\0\0\0\x0dSELECT 1\0",
    b"Z\0\0\0\x05I",
];
const RESET: Messages = &[b"C\0\0\0\x0cDISCARD\0", b"Z\0\0\0\x05I"];

fn own(text: &[u8]) -> Option<Own> {
    (text == DISCARD).then_some(Own::Reset(RESET))
}

fn sessions(reset: Reset) -> Sessions {
    // A session ends with a reset: in the other mode each transaction is one.
    let mode = if reset == Reset::Always { PoolMode::Session } else { PoolMode::Transaction };
    let parameters = || Parameters::of([("server_version", "15.0")]);
    let none = || Settings::of([]);
    let client = ClientSession::new(ClientSetup {
        id: ClientId(1),
        mode,
        verify: VerifyMode::Unknown,
        read_only: false,
        settings: none(),
        forced: Arc::new(none()),
        seen: Arc::new(parameters()),
    });
    let server = ServerSession::new(ServerSetup {
        pid: 1,
        key: Box::from([0, 0, 0, 2]),
        parameters: parameters(),
        settings: Arc::new(none()),
        pool: 0,
        user: Box::from("bench"),
        limits: LinkLimits::default(),
    });
    (ClientLink::Pg(client), ServerLink::Pg(Box::new(server)))
}

pub fn rows(only: &str) -> Vec<Row> {
    let talks = [(ANSWER, ""), (ROWS, "/rows")].map(|(answer, suffix)| Talk {
        suffix,
        query: QUERY,
        said: answer,
        heard: answer,
        resets_with_two: false,
        own,
        head: Head::Postgres,
        sessions,
    });
    talk::rows("postgres", &talks, only)
}
