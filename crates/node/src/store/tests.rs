//! The store's guarantees, on both engines; then features of only one of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use testkit::Postgres;
use tokio::task::JoinSet;

use super::*;
use crate::telemetry::MetricsRegistry;
use crate::testing::TempDir;

mod migrations;
mod preceding;

const TABLES: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE things (
        id BIGINT PRIMARY KEY,
        real DOUBLE PRECISION,
        text TEXT,
        blob BYTEA,
        number BIGINT CHECK (number < 1000)
    );
    CREATE INDEX things_by_text ON things (text)",
)];

/// A store on a fresh database, with the guards of the database.
struct Fresh {
    store: SqlStore,
    config: StoreConfig,
    registry: Registry,
    /// Not accessed, only dropped.
    _temp: TempDir,
    server: Option<Arc<Postgres>>,
}

impl Fresh {
    async fn open(dialect: StoreDialect, adjust: impl FnOnce(&mut StoreConfig)) -> Fresh {
        let temp = TempDir::new();
        let (url, server) = match dialect {
            StoreDialect::Sqlite => (StoreUrl::Sqlite(temp.path().join("cove.db")), None),
            StoreDialect::Postgres => {
                let starting = tokio::task::spawn_blocking(|| {
                    let server = Postgres::shared();
                    (server.database().parse().unwrap(), server)
                });
                let (url, server) = starting.await.unwrap();
                (url, Some(server))
            }
        };
        let mut config = StoreConfig::new(url);
        adjust(&mut config);
        let mut registry = Registry::default();
        let store = SqlStore::open(config.clone(), &mut registry).await.unwrap();
        store.migrate("things", TABLES).await.unwrap();
        Fresh { store, config, registry, _temp: temp, server }
    }

    async fn again(&self) -> Result<SqlStore, SqlStoreError> {
        SqlStore::open(self.config.clone(), &mut Registry::default()).await
    }
}

/// Checks a claim on both engines.
async fn check(claim: impl AsyncFn(&Fresh)) {
    check_with(|_| {}, claim).await;
}

async fn check_with(adjust: impl Fn(&mut StoreConfig), claim: impl AsyncFn(&Fresh)) {
    for dialect in [StoreDialect::Sqlite, StoreDialect::Postgres] {
        let fresh = Fresh::open(dialect, &adjust).await;
        assert_eq!(fresh.store.dialect(), dialect);
        claim(&fresh).await;
        fresh.store.close().await;
    }
}

async fn write(
    store: &SqlStore,
    sql: &'static str,
    parameters: Vec<SqlValue>,
) -> Result<u64, SqlStoreError> {
    store.transact("test", move |transaction| transaction.execute(sql, &parameters)).await
}

async fn ask(
    store: &SqlStore,
    sql: &'static str,
    parameters: Vec<SqlValue>,
) -> Result<Vec<SqlRow>, SqlStoreError> {
    store.read("test", move |transaction| transaction.query(sql, &parameters)).await
}

/// Reads numbers of the first column, by a single statement.
async fn select(
    store: &SqlStore,
    sql: &'static str,
    parameters: Vec<SqlValue>,
) -> Result<Vec<i64>, SqlStoreError> {
    let first = |rows: &[SqlRow]| rows.iter().map(|row| row.get(0)).collect();
    store.select("test", sql.to_owned(), parameters, first).await
}

async fn count(store: &SqlStore) -> i64 {
    ask(store, "SELECT COUNT(*) FROM things", vec![]).await.unwrap()[0].get(0).unwrap()
}

const INSERT: &str = "INSERT INTO things (id, number) VALUES ($1, $2)";

fn add(transaction: &mut dyn StoreTransaction, id: i64, number: i64) -> Result<u64, SqlStoreError> {
    transaction.execute(INSERT, &[id.into(), number.into()])
}

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    check(async |Fresh { store, .. }| {
        let rows = [
            [
                SqlValue::Int(i64::MIN),
                SqlValue::Null,
                SqlValue::Null,
                SqlValue::Null,
                SqlValue::Null,
            ],
            [1.into(), 0.1.into(), "".into(), SqlValue::Blob(vec![]), 0.into()],
            [
                i64::MAX.into(),
                f64::MIN_POSITIVE.into(),
                "a'b\n\u{1f980}".into(),
                vec![0, 255].into(),
                true.into(),
            ],
        ];
        for row in rows.clone() {
            let sql = "INSERT INTO things (id, real, text, blob, number)
                       VALUES ($1, $2, $3, $4, $5)";
            assert_eq!(write(store, sql, row.to_vec()).await.unwrap(), 1);
        }
        let sql = "SELECT id, real, text, blob, number FROM things ORDER BY id";
        let found = ask(store, sql, vec![]).await.unwrap();
        assert_eq!(
            found.iter().map(SqlRow::values).collect::<Vec<_>>(),
            rows.iter().collect::<Vec<_>>()
        );
        let sql = "SELECT id FROM things WHERE text = $1 OR blob = $2 ORDER BY id";
        let found = ask(store, sql, vec!["".into(), vec![0, 255].into()]).await.unwrap();
        assert_eq!(found.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn parameters_go_by_their_numbers() {
    check(async |Fresh { store, .. }| {
        let sql = "INSERT INTO things (number, text, id) VALUES ($3, $1, $2)";
        write(store, sql, vec!["x".into(), 7.into(), 9.into()]).await.unwrap();
        let sql = "SELECT id, number FROM things WHERE text = $2 AND id < $1 AND number < $1";
        let found = ask(store, sql, vec![10_i64.into(), "x".into()]).await.unwrap();
        assert_eq!(found[0].values(), [SqlValue::Int(7), SqlValue::Int(9)]);
    })
    .await;
}

#[tokio::test]
async fn wrong_statements_are_refused_and_change_nothing() {
    let cases: [(&str, Vec<SqlValue>, &str); 8] = [
        (INSERT, vec![1.into()], "it has 2 parameters and was given 1"),
        (INSERT, vec![1.into(), 2.into(), 3.into()], "it has 2 parameters and was given 3"),
        ("UPDATE things SET text = $1", vec!["a\0".into()], "`$1` contains the character NUL"),
        ("UPDATE things SET number = $2", vec![1.into()], ""),
        ("DELETE FROM nothing", vec![], "run `DELETE FROM nothing`"),
        ("DELETE FROM things; DELETE FROM things", vec![], "run `DELETE FROM things; DELETE"),
        ("INSERT INTO things (id) VALUES (?)", vec![1.into()], "run `INSERT INTO things (id)"),
        ("UPDATE things SET number = 1000", vec![], "a constraint is violated"),
    ];
    check(async |Fresh { store, .. }| {
        write(store, INSERT, vec![1.into(), 5.into()]).await.unwrap();
        for (sql, parameters, message) in &cases {
            let error = write(store, sql, parameters.clone()).await.unwrap_err();
            assert!(error.to_string().contains(message), "{sql}: {error}");
            assert!(!error.is_temporary(), "{error:?}");
        }
        let rows = ask(store, "SELECT number, text FROM things", vec![]).await.unwrap();
        assert_eq!(rows[0].values(), [SqlValue::Int(5), SqlValue::Null]);
    })
    .await;
}

#[tokio::test]
async fn constraints_are_told_from_mistakes() {
    check(async |Fresh { store, .. }| {
        write(store, INSERT, vec![1.into(), 1.into()]).await.unwrap();
        let error = write(store, INSERT, vec![1.into(), 1.into()]).await.unwrap_err();
        assert!(matches!(error, SqlStoreError::Constraint { .. }), "{error:?}");
        let sql = "INSERT INTO things (id, number) VALUES ($1, $2)
                   ON CONFLICT (id) DO UPDATE SET number = excluded.number RETURNING number";
        let body = move |transaction: &mut dyn StoreTransaction| {
            transaction.query_one(sql, &[1.into(), 2.into()])
        };
        let row = store.transact("test", body).await.unwrap().unwrap();
        assert_eq!(row.get::<i64>(0).unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_failed_statement_spoils_its_transaction() {
    check(async |Fresh { store, .. }| {
        let body = |transaction: &mut dyn StoreTransaction| {
            add(transaction, 1, 1)?;
            drop(add(transaction, 1, 1).unwrap_err());
            assert!(matches!(add(transaction, 2, 1), Err(SqlStoreError::Spoiled)));
            assert!(matches!(transaction.query("SELECT 1", &[]), Err(SqlStoreError::Spoiled)));
            assert!(matches!(transaction.batch("SELECT 1"), Err(SqlStoreError::Spoiled)));
            Ok(())
        };
        let error = store.transact("test", body).await.unwrap_err();
        assert!(matches!(error, SqlStoreError::Spoiled), "{error:?}");
        assert_eq!(count(store).await, 0);
    })
    .await;
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("enough")]
struct Enough(u8);

#[tokio::test]
async fn a_transaction_that_refuses_or_panics_leaves_nothing() {
    check(async |Fresh { store, .. }| {
        let refuse = |transaction: &mut dyn StoreTransaction| {
            add(transaction, 1, 1)?;
            Err::<(), _>(SqlStoreError::refuse(Enough(3)))
        };
        let error = store.transact("test", refuse).await.unwrap_err();
        assert_eq!(error.refusal::<Enough>().unwrap(), Enough(3));
        let panic = |transaction: &mut dyn StoreTransaction| -> Result<(), SqlStoreError> {
            add(transaction, 1, 1)?;
            panic!("oh");
        };
        let error = store.transact("test", panic).await.unwrap_err();
        assert_eq!(error.to_string(), "the transaction panicked: oh");
        assert_eq!(count(store).await, 0);
    })
    .await;
}

#[tokio::test]
async fn counters_are_read_together_and_are_as_young_as_asked_for() {
    const FIRST: &str = "SELECT number FROM things WHERE id = 1";
    const SECOND: &str = "SELECT number FROM things WHERE id = 2";
    const LONG: Duration = Duration::from_secs(600);
    check(async |fresh| {
        let store = &fresh.store;
        let counter = async |query, age_max| store.counter(query, age_max).await.unwrap();
        assert_eq!(counter(FIRST, LONG).await, None, "there is no row yet");
        write(store, INSERT, vec![1.into(), 7.into()]).await.unwrap();
        write(store, INSERT, vec![2.into(), 8.into()]).await.unwrap();
        assert_eq!(counter(FIRST, LONG).await, None, "what was read before still counts");
        assert_eq!(counter(SECOND, LONG).await, Some(8), "one that was not read before");
        assert_eq!(counter(FIRST, LONG).await, Some(7), "was read with the other one");
        write(store, "UPDATE things SET number = 9", vec![]).await.unwrap();
        assert_eq!(counter(SECOND, LONG).await, Some(8));
        assert_eq!(counter(FIRST, Duration::ZERO).await, Some(9));
        assert_eq!(counter(SECOND, LONG).await, Some(9));
    })
    .await;
}

#[tokio::test]
async fn who_reads_cannot_write() {
    check(async |Fresh { store, .. }| {
        let body = |transaction: &mut dyn StoreTransaction| add(transaction, 1, 1);
        let error = store.read("test", body).await.unwrap_err();
        assert!(matches!(error, SqlStoreError::Statement { .. }), "{error:?}");
        assert_eq!(count(store).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_statement_by_itself_sees_what_was_answered_before() {
    check_with(
        |config| config.rows_max = 10,
        async |Fresh { store, .. }| {
            for id in 0..11_i64 {
                write(store, INSERT, vec![id.into(), (id * 2).into()]).await.unwrap();
                let sql = "SELECT number FROM things WHERE id >= $1";
                assert_eq!(select(store, sql, vec![id.into()]).await.unwrap(), [id * 2]);
            }
            let all = select(store, "SELECT number FROM things", vec![]).await.unwrap_err();
            assert!(matches!(all, SqlStoreError::TooManyRows { rows_max: 10, .. }), "{all:?}");
            let wrong = select(store, "SELECT nothing FROM things", vec![]).await.unwrap_err();
            assert!(matches!(wrong, SqlStoreError::Statement { .. }), "{wrong:?}");
            let refused = store.select("test", "SELECT 1".to_owned(), vec![], |_| {
                Err::<(), _>(SqlStoreError::refuse(std::io::Error::other("unwanted")))
            });
            let refused = refused.await.unwrap_err();
            assert!(matches!(refused, SqlStoreError::Refused(_)), "{refused:?}");
            // Nothing of these transactions remains on a connection.
            assert_eq!(count(store).await, 11);
        },
    )
    .await;
}

#[tokio::test]
async fn rows_are_bounded() {
    check_with(
        |config| config.rows_max = 10,
        async |Fresh { store, .. }| {
            for id in 0..11_i64 {
                write(store, INSERT, vec![id.into(), 1.into()]).await.unwrap();
            }
            let sql = "SELECT id FROM things WHERE id < $1";
            assert_eq!(ask(store, sql, vec![10_i64.into()]).await.unwrap().len(), 10);
            let error = ask(store, sql, vec![11_i64.into()]).await.unwrap_err();
            assert!(matches!(error, SqlStoreError::TooManyRows { rows_max: 10, .. }), "{error:?}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_side_by_side_lose_nothing() {
    check_with(
        |config| config.attempts_max = 1000,
        async |Fresh { store, .. }| {
            write(store, INSERT, vec![0.into(), 0.into()]).await.unwrap();
            let mut tasks = JoinSet::new();
            for _ in 0..100 {
                let store = store.clone();
                tasks.spawn(async move {
                    // Reads, then writes the result: only serialisable transactions count
                    // correctly.
                    let body = |transaction: &mut dyn StoreTransaction| {
                        let sql = "SELECT number FROM things WHERE id = 0";
                        let row = transaction.query_one(sql, &[])?.unwrap();
                        let next = row.get::<i64>(0)? + 1;
                        let sql = "UPDATE things SET number = $1 WHERE id = 0";
                        transaction.execute(sql, &[next.into()])
                    };
                    store.transact("test", body).await.unwrap()
                });
            }
            assert!(tasks.join_all().await.iter().all(|changed| *changed == 1));
            let rows = ask(store, "SELECT number FROM things", vec![]).await.unwrap();
            assert_eq!(rows[0].get::<i64>(0).unwrap(), 100);
        },
    )
    .await;
}

/// Keeps the only thread busy until the sender is dropped.
async fn block(store: &SqlStore) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let blocking = store.clone();
    tokio::spawn(async move {
        let body = move |_: &mut dyn StoreTransaction| {
            entered.send(()).unwrap();
            released.recv().ok();
            Ok(())
        };
        blocking.transact("test", body).await
    });
    has_entered.recv().await.unwrap();
    release
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_in_a_group_fails_alone() {
    check_with(
        |config| config.connections = 1,
        async |fresh| {
            let store = &fresh.store;
            write(store, INSERT, vec![0.into(), 0.into()]).await.unwrap();
            let release = block(store).await;
            // All of these wait together, so they are one group in SQLite.
            let waiting: Vec<_> = (0..20_i64)
                .map(|id| {
                    let body = move |transaction: &mut dyn StoreTransaction| {
                        add(transaction, id, 1)?;
                        add(transaction, if id % 3 == 0 { 0 } else { 100 + id }, 1)
                    };
                    let store = store.clone();
                    tokio::spawn(async move { store.transact("test", body).await })
                })
                .collect();
            until_waiting(store, waiting.len()).await;
            drop(release);
            let mut good = 0;
            for (id, task) in waiting.into_iter().enumerate() {
                let result = task.await.unwrap();
                assert_eq!(result.is_ok(), id % 3 != 0, "{id}: {result:?}");
                good += i64::from(result.is_ok());
            }
            assert_eq!(count(store).await, 1 + 2 * good);
        },
    )
    .await;
}

async fn until_waiting(store: &SqlStore, count: usize) {
    let reached = async {
        while store.0.writes.waiting() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_is_bounded_and_who_leaves_is_not_run() {
    let adjust = |config: &mut StoreConfig| {
        config.waiting_max = 1;
        config.connections = 1;
    };
    check_with(adjust, async |Fresh { store, .. }| {
        let release = block(store).await;
        let leaving = store.clone();
        let leaver = tokio::spawn(async move {
            leaving.transact("test", |transaction| add(transaction, 1, 1)).await
        });
        until_waiting(store, 1).await;
        let error = write(store, INSERT, vec![2.into(), 1.into()]).await.unwrap_err();
        assert!(matches!(error, SqlStoreError::Busy { waiting_max: 1 }) && error.is_temporary());
        leaver.abort();
        leaver.await.unwrap_err();
        drop(release);
        until_waiting(store, 0).await;
        assert_eq!(count(store).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_finishes_what_waits_and_keeps_it() {
    check_with(
        |config| config.connections = 1,
        async |fresh| {
            let store = &fresh.store;
            let release = block(store).await;
            let other = store.clone();
            let waiting = tokio::spawn(async move {
                other.transact("test", |transaction| add(transaction, 1, 1)).await
            });
            until_waiting(store, 1).await;
            let closing = store.clone();
            let closed = tokio::spawn(async move { closing.close().await });
            let refused = async {
                while !matches!(ask(store, "SELECT 1", vec![]).await, Err(SqlStoreError::Closed)) {}
            };
            // One thread serves both in PostgreSQL, so the query may wait for the release.
            drop(release);
            refused.await;
            assert_eq!(waiting.await.unwrap().unwrap(), 1);
            closed.await.unwrap();
            let again = fresh.again().await.unwrap();
            assert_eq!(count(&again).await, 1);
            again.close().await;
        },
    )
    .await;
}

#[tokio::test]
async fn threads_end_with_the_last_clone() {
    check(async |fresh| {
        let store = fresh.again().await.unwrap();
        let running = store.0.running.clone();
        drop(store);
        tokio::time::timeout(Duration::from_secs(30), running.closed()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn transactions_are_measured() {
    for dialect in [StoreDialect::Sqlite, StoreDialect::Postgres] {
        let fresh = Fresh::open(dialect, |_| {}).await;
        write(&fresh.store, INSERT, vec![1.into(), 1.into()]).await.unwrap();
        write(&fresh.store, INSERT, vec![1.into(), 1.into()]).await.unwrap_err();
        let text = MetricsRegistry::new(fresh.registry).render().unwrap();
        for line in [
            "cove_store_transaction_duration_seconds_count{name=\"test\"} 2",
            "cove_store_transaction_errors_total{name=\"test\"} 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
        fresh.store.close().await;
    }
}

#[test]
fn addresses_are_understood_and_passwords_not_shown() {
    for (text, good) in [
        ("sqlite:/var/lib/cove/cove.db", true),
        ("postgres://cove:secret@db.example:5432/cove", true),
        ("postgresql://cove@db.example/cove?sslmode=verify-full", true),
        ("postgres://cove@db.example/cove?sslmode=require", true),
        ("postgres:///cove?host=/run/postgresql&sslmode=disable", true),
        ("postgres://cove:secret@db.example/cove?sslmode=secret", false),
        ("postgres://cove:secret@db.example/cove?sslmode=verify-full&sslrootcert=/none", false),
        ("postgres://cove:secret@db.example:port/cove", false),
        ("postgres:///cove?user=secret", false),
        ("sqlite:", false),
        ("mysql://secret@db", false),
    ] {
        let url: Result<StoreUrl, _> = text.parse();
        assert_eq!(url.is_ok(), good, "{text}: {url:?}");
        assert!(!format!("{url:?}").contains("secret"), "{url:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let temp = TempDir::new();
    let path = temp.path().join("cove.db");
    std::fs::write(&path, "something else, and longer than a header ".repeat(100)).unwrap();
    let config = StoreConfig::new(StoreUrl::Sqlite(path));
    let error = SqlStore::open(config, &mut Registry::default()).await.unwrap_err();
    assert!(matches!(error, SqlStoreError::Open { .. }), "{error:?}");
}

#[tokio::test]
async fn the_files_of_sqlite_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fresh = Fresh::open(StoreDialect::Sqlite, |_| {}).await;
    let files = std::fs::read_dir(fresh._temp.path()).unwrap();
    let modes: Vec<_> =
        files.map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o600; 3]);
}

/// On a machine without PostgreSQL nothing listens at this address.
#[tokio::test]
async fn a_server_that_is_not_there_is_no_store() {
    let url: StoreUrl = "postgres://cove:secret@127.0.0.1:1/cove".parse().unwrap();
    let error = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "open the store `postgres://127.0.0.1/cove`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_cut_is_made_again() {
    // A server of its own: others would lose their connections as well.
    let server = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    let mut config = StoreConfig::new(server.url("postgres").parse().unwrap());
    config.connections = 1;
    let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
    store.migrate("things", TABLES).await.unwrap();
    // While idle, ...
    server.cut_connections();
    assert_eq!(write(&store, INSERT, vec![1.into(), 1.into()]).await.unwrap(), 1);
    // ... and in the middle of a transaction, which is run again.
    let runs = Arc::new(AtomicU32::new(0));
    let (server, counted) = (Arc::new(server), Arc::clone(&runs));
    let cutting = Arc::clone(&server);
    let body = move |transaction: &mut dyn StoreTransaction| {
        add(transaction, 2, 1)?;
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            cutting.cut_connections();
        }
        add(transaction, 3, 1)
    };
    store.transact("test", body).await.unwrap();
    assert_eq!((runs.load(Ordering::Relaxed), count(&store).await), (2, 3));
    server.cut_connections();
    let sql = "SELECT number FROM things";
    assert_eq!(select(&store, sql, vec![]).await.unwrap(), [1, 1, 1]);

    drop(server);
    let error = write(&store, INSERT, vec![9.into(), 1.into()]).await.unwrap_err();
    assert!(matches!(error, SqlStoreError::Unavailable(_)) && error.is_temporary(), "{error:?}");
    store.close().await;
}

/// Ends the connection at the first commit of a row; a sequence is not rolled back.
const DIE_AT_COMMIT: &str = "
    CREATE SEQUENCE deaths;
    CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('deaths') = 1 THEN
                PERFORM pg_terminate_backend(pg_backend_pid());
            END IF;
            RETURN NULL;
        END $$;
    CREATE CONSTRAINT TRIGGER die AFTER INSERT ON things DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION die()";

#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_is_said_or_repeated() {
    for repeat in [false, true] {
        let fresh = Fresh::open(StoreDialect::Postgres, |_| {}).await;
        let store = &fresh.store;
        let body = |transaction: &mut dyn StoreTransaction| transaction.batch(DIE_AT_COMMIT);
        store.transact("test", body).await.unwrap();
        let body = |transaction: &mut dyn StoreTransaction| add(transaction, 1, 1);
        if repeat {
            store.transact_idempotent("test", body).await.unwrap();
            assert_eq!(count(store).await, 1);
        } else {
            let error = store.transact("test", body).await.unwrap_err();
            assert!(matches!(error, SqlStoreError::OutcomeUnknown(_)), "{error:?}");
            assert!(!error.is_temporary());
        }
        assert!(fresh.server.is_some());
    }
}

#[tokio::test]
async fn a_table_that_changes_under_a_prepared_statement_does_no_harm() {
    let fresh = Fresh::open(StoreDialect::Postgres, |config| config.connections = 1).await;
    let store = &fresh.store;
    let sql = "SELECT * FROM things";
    write(store, INSERT, vec![1.into(), 1.into()]).await.unwrap();
    assert_eq!(ask(store, sql, vec![]).await.unwrap()[0].values().len(), 5);
    let columns = async |count: usize| {
        let read = move |rows: &[SqlRow]| Ok(rows[0].values().len() == count);
        store.select("test", sql.to_owned(), vec![], read).await.unwrap()
    };
    assert!(columns(5).await);
    let body = |transaction: &mut dyn StoreTransaction| {
        transaction.batch("ALTER TABLE things ADD z BIGINT")
    };
    store.transact("test", body).await.unwrap();
    // A single statement first: it is prepared for the table as it was.
    assert!(columns(6).await);
    assert_eq!(ask(store, sql, vec![]).await.unwrap()[0].values().len(), 6);
}

#[tokio::test]
async fn tls_is_spoken_as_the_address_says() {
    let server = tokio::task::spawn_blocking(Postgres::start_with_tls).await.unwrap();
    let plain = server.url("postgres").replace("?sslmode=disable", "");
    let named = plain.replace("127.0.0.1", "localhost");
    let stranger = plain.replace("127.0.0.1", "stranger.example");
    let certificate = server.certificate();
    let trusting = format!("sslmode=verify-full&sslrootcert={}", certificate.display());
    for (url, encrypted) in [
        (format!("{plain}?sslmode=disable"), Some(false)),
        (plain.clone(), Some(true)),
        (format!("{plain}?sslmode=prefer"), Some(true)),
        (format!("{plain}?sslmode=require"), Some(true)),
        (format!("{named}?{trusting}"), Some(true)),
        (format!("{stranger}?sslmode=require&hostaddr=127.0.0.1"), Some(true)),
        // The machine does not trust the certificate, or it is for another name.
        (format!("{named}?sslmode=verify-full"), None),
        (format!("{stranger}?{trusting}&hostaddr=127.0.0.1"), None),
    ] {
        let config = StoreConfig::new(url.parse().unwrap());
        let Ok(store) = SqlStore::open(config, &mut Registry::default()).await else {
            assert_eq!(encrypted, None, "{url}");
            continue;
        };
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let rows = ask(&store, sql, vec![]).await.unwrap();
        assert_eq!(rows[0].get::<bool>(0).ok(), encrypted, "{url}");
        store.close().await;
    }
}

#[tokio::test]
async fn sums_have_to_be_cast() {
    check(async |Fresh { store, .. }| {
        write(store, INSERT, vec![1.into(), 5.into()]).await.unwrap();
        let sql = "SELECT CAST(SUM(number) AS BIGINT), COUNT(*) FROM things";
        let rows = ask(store, sql, vec![]).await.unwrap();
        assert_eq!(rows[0].values(), [SqlValue::Int(5), SqlValue::Int(1)]);
    })
    .await;
}

/// Returns the numbers in a store.
fn numbers(it: &mut dyn StoreTransaction) -> Result<Vec<i64>, SqlStoreError> {
    let rows = it.query("SELECT number FROM things ORDER BY number", &[])?;
    rows.iter().map(|row| row.get(0)).collect()
}

async fn insert(store: &SqlStore, number: i64) {
    let insert = move |it: &mut dyn StoreTransaction| {
        it.execute("INSERT INTO things (id, number) VALUES ($1, $1)", &[number.into()])
    };
    assert_eq!(store.transact("insert", insert).await.unwrap(), 1);
}

#[tokio::test]
async fn a_snapshot_of_sqlite_has_what_was_answered_before_and_nothing_of_later() {
    let fresh = Fresh::open(StoreDialect::Sqlite, |_| {}).await;
    for number in 0..50 {
        insert(&fresh.store, number).await;
    }
    let snapshot = fresh.store.snapshot().unwrap().expect("SQLite has snapshots");
    for number in 50..100 {
        insert(&fresh.store, number).await;
    }
    let expected: Vec<i64> = (0..50).collect();
    assert_eq!(snapshot.read(numbers).unwrap(), expected);
    let refused = snapshot.read(|it| it.execute("DELETE FROM things", &[]));
    assert!(matches!(refused, Err(SqlStoreError::Statement { .. })), "{refused:?}");

    let temp = TempDir::new();
    let path = temp.path().join("copy.db");
    let stopped = snapshot.copy_to(&path, || CopyProgress::Stop);
    assert!(matches!(stopped, Err(SqlStoreError::Closed)), "{stopped:?}");
    // Others can write while it is copied as well.
    insert(&fresh.store, 100).await;
    snapshot.copy_to(&path, || CopyProgress::Continue).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), snapshot.bytes().unwrap());
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o600);
    drop(snapshot);
    let config = StoreConfig::new(StoreUrl::Sqlite(path));
    let copy = SqlStore::open(config, &mut Registry::default()).await.unwrap();
    copy.migrate("things", TABLES).await.unwrap();
    assert_eq!(copy.read("numbers", |it| numbers(it)).await.unwrap(), expected);
    copy.close().await;
    let all: Vec<i64> = (0..=100).collect();
    assert_eq!(fresh.store.read("numbers", |it| numbers(it)).await.unwrap(), all);
}

#[tokio::test]
async fn postgresql_has_no_snapshot_here() {
    let fresh = Fresh::open(StoreDialect::Postgres, |_| {}).await;
    assert!(fresh.store.snapshot().unwrap().is_none());
}
