//! Kills a writing process and checks that every write that it reported is present.
//!
//! Has no harness, because the killed process runs this program as well.
#![expect(clippy::unwrap_used, reason = "this is a test, if not one that the lint recognises")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use node::store::{
    CommitDurability, MigrationStep, SqlStore, SqlStoreError, StoreConfig, StoreTransaction,
    StoreUrl,
};
use node::telemetry::Registry;
use testkit::Scratch;

/// First argument of the process that is killed; the second is the directory.
const WRITER: &str = "--write-until-killed";
/// A file of this name requests the stronger durability from the writer.
const POWER_FILE: &str = "power";
/// Number of concurrently writing tasks.
const TASKS: i64 = 8;
/// Answers that the test waits for before it kills.
const ANSWERS: [usize; 4] = [1, 50, 400, 3000];

const TABLES: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE things (id BIGINT PRIMARY KEY);
     CREATE TABLE pairs (id BIGINT PRIMARY KEY)",
)];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    if arguments.next().as_deref() == Some(WRITER) {
        runtime.block_on(write(Path::new(&arguments.next().unwrap())));
    } else {
        for durability in [CommitDurability::Process, CommitDurability::Power] {
            runtime.block_on(check(durability));
        }
    }
    ExitCode::SUCCESS
}

async fn open(directory: &Path) -> SqlStore {
    let mut config = StoreConfig::new(StoreUrl::Sqlite(directory.join("cove.db")));
    if directory.join(POWER_FILE).exists() {
        config.durability = CommitDurability::Power;
    }
    let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
    store.migrate("things", TABLES).await.unwrap();
    store
}

/// Writes pairs of rows without end and reports each written pair on standard output.
async fn write(directory: &Path) {
    let store = open(directory).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for number in 0.. {
                let id = number * TASKS + task;
                let pair = move |transaction: &mut dyn StoreTransaction| {
                    transaction.execute("INSERT INTO things VALUES ($1)", &[id.into()])?;
                    transaction.execute("INSERT INTO pairs VALUES ($1)", &[id.into()])
                };
                match store.transact("pair", pair).await {
                    // Written by the previous process.
                    Err(SqlStoreError::Constraint { .. }) => {}
                    result => {
                        result.unwrap();
                        // A short line is written to the pipe as a whole or not at all.
                        writeln!(std::io::stdout().lock(), "{id}").unwrap();
                    }
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn check(durability: CommitDurability) {
    let scratch = Scratch::new();
    if durability == CommitDurability::Power {
        scratch.file(POWER_FILE, "");
    }
    let mut answered = BTreeSet::new();
    // The same database is killed again and again.
    for count in ANSWERS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(WRITER)
            .arg(scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..count {
            answered.insert(lines.next().unwrap().unwrap().parse::<i64>().unwrap());
        }
        child.kill().unwrap();
        // Its reports before the kill are still in the pipe.
        answered.extend(lines.map(|line| line.unwrap().parse::<i64>().unwrap()));
        child.wait().unwrap();
        check_rows(scratch.path(), &answered).await;
    }
}

async fn check_rows(directory: &Path, answered: &BTreeSet<i64>) {
    let store = open(directory).await;
    let things = ids(&store, "SELECT id FROM things").await;
    let lost: Vec<_> = answered.difference(&things).collect();
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
    assert!(things == ids(&store, "SELECT id FROM pairs").await, "half a transaction was kept");
    let body = |transaction: &mut dyn StoreTransaction| {
        let row = transaction.query_one("PRAGMA integrity_check", &[])?;
        row.map_or(Ok(String::new()), |row| row.get(0))
    };
    assert_eq!(store.read("sound", body).await.unwrap(), "ok");
    store.close().await;
}

async fn ids(store: &SqlStore, sql: &'static str) -> BTreeSet<i64> {
    let body = move |transaction: &mut dyn StoreTransaction| {
        let rows = transaction.query(sql, &[])?;
        rows.iter().map(|row| row.get::<i64>(0)).collect::<Result<BTreeSet<_>, _>>()
    };
    store.read("ids", body).await.unwrap()
}
