//! Entries of the fuzz targets: any bytes that a database, or a program in a sandbox, may send to a
//! reader. A connection is a stream whose peer has sent everything at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::json;
use tokio::io::{Join, Sink, join, sink};

use super::mysql::MysqlClient;
use super::pg::PgClient;
use super::room::ResultRoom;
use super::{ResultTable, SqlFailure, lake_query};

/// Number of requested rows.
const ROWS: u32 = 3;

/// A server that has sent these bytes, and accepts any input.
type SaidServer<'a> = Join<&'a [u8], Sink>;

/// Reads the messages of a PostgreSQL server: its login and the responses to a statement.
pub fn postgres(bytes: &[u8]) -> String {
    told(async {
        let server: SaidServer<'_> = join(bytes, sink());
        let mut client = PgClient::connect(server).await?;
        client.run("SELECT $1", &[Some("1".to_owned())], ResultRoom::new(ROWS)).await
    })
}

/// Reads the messages of a MySQL server: its login, and the responses to a statement with this many
/// parameters. With parameters the statement is prepared, and its rows are binary.
pub fn mysql(bytes: &[u8], parameters: usize) -> String {
    told(async {
        let server: SaidServer<'_> = join(bytes, sink());
        let mut client = MysqlClient::connect(server).await?;
        let values = vec![json!(1); parameters];
        client.run("SELECT ?", &values, ResultRoom::new(ROWS)).await
    })
}

/// Reads the output of the program that runs a statement over a warehouse, in parts of `cut` bytes.
pub fn lake_answer(bytes: &[u8], cut: usize) -> String {
    lake_query::fuzzing::answer(bytes, ROWS, cut)
}

/// Runs a client whose server has sent everything, and checks its result.
fn told(client: impl Future<Output = Result<ResultTable, SqlFailure>>) -> String {
    let mut client = pin!(client);
    let mut context = Context::from_waker(Waker::noop());
    // No input is pending: a client that waits hangs.
    let Poll::Ready(result) = client.as_mut().poll(&mut context) else {
        panic!("the client waits for what will never come");
    };
    if let Ok(table) = &result {
        assert!(table.rows.len() <= ROWS as usize, "more rows than were asked for");
    }
    format!("{result:?}")
}
