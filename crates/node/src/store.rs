//! The store: one SQL dialect, executed by SQLite or by PostgreSQL.
//!
//! A service passes a closure and receives its result once that is durable:
//!
//! ```ignore
//! let taken = store
//!     .transact("jobs.take", move |transaction| {
//!         transaction.execute("UPDATE jobs SET state = 'running' WHERE id = $1", &[id.into()])
//!     })
//!     .await?;
//! ```
//!
//! - **One text for both engines.** Parameters are `$1`, `$2`, …; columns are `BIGINT`,
//!   `DOUBLE PRECISION`, `TEXT` and `BYTEA`; `ON CONFLICT` and `RETURNING` exist in both. Sums are
//!   cast: `CAST(SUM(x) AS BIGINT)`. [`SqlStore::dialect`] is for texts that must differ.
//! - **Transactions are serialisable** and all or nothing. A statement that fails spoils its
//!   transaction, even if the closure ignores the error.
//! - **A closure may run more than once**: its result is that of its last run. So it changes
//!   nothing but the transaction, does no I/O and does not wait.
//! - **SQLite** has one writer, which commits all waiting transactions at once (group commit), and
//!   separate readers. **PostgreSQL** has a few connections; serialisation failures and lost
//!   connections are retried.
//!
//! Dropping the future of a transaction does not undo it: it may be committed or not. This file
//! knows no table but the one that counts migrations.

mod counters;
mod error;
mod metrics;
mod migrate;
mod numbers;
mod postgres;
mod queue;
mod snapshot;
mod sqlite;
mod value;

use crate::task::Boxed;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::counters::CounterReadings;
use self::metrics::StoreMetrics;
use self::queue::{
    Body, PrecedingWork, TransactionAccess, TransactionAnswer, TransactionJob, TransactionQueue,
};
use crate::clock::{self, SharedClock};
use crate::telemetry::Registry;

pub use self::counters::COUNTER_AGE_MAX;
pub use self::error::SqlStoreError;
pub use self::migrate::MigrationStep;
pub use self::numbers::take_numbers;
pub use self::snapshot::{CopyProgress, StoreSnapshot};
pub use self::value::{FromValue, SqlRow, SqlValue};

/// Database with the state.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file of this machine, created if it is missing.
    Sqlite(PathBuf),
    /// `postgres://user:password@host:port/database?sslmode=…`. May contain a password, so it is
    /// never shown.
    Postgres(String),
}

impl FromStr for StoreUrl {
    type Err = SqlStoreError;

    /// Parses `sqlite:PATH`, `postgres://…` or `postgresql://…`.
    fn from_str(text: &str) -> Result<StoreUrl, SqlStoreError> {
        if let Some(path) = text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            return Ok(StoreUrl::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            postgres::check_url(text)?;
            return Ok(StoreUrl::Postgres(text.to_owned()));
        }
        // The text is not repeated: it may be a password in the wrong place.
        let message = "expected `sqlite:PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`";
        Err(SqlStoreError::Url(message.to_owned()))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            StoreUrl::Postgres(_) => f.write_str("Postgres(..)"),
        }
    }
}

/// Durability of a committed transaction, in SQLite. PostgreSQL has its own setting for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitDurability {
    /// Survives the end of the process, including a crash. A power failure may lose the last
    /// moments, but does not corrupt the database.
    #[default]
    Process,
    /// Survives a power failure as well: every group of transactions waits for the disk.
    Power,
}

/// Configuration of the store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Database.
    pub url: StoreUrl,
    /// Durability, in SQLite.
    pub durability: CommitDurability,
    /// Maximum number of waiting transactions, for each of reading and writing; beyond it
    /// [`SqlStoreError::Busy`].
    pub waiting_max: usize,
    /// Maximum number of write transactions that SQLite commits together.
    pub group_max: usize,
    /// Number of reading threads in SQLite, each with a connection.
    pub readers: usize,
    /// Number of connections to PostgreSQL, each with a thread.
    pub connections: usize,
    /// Maximum number of attempts for a transaction that conflicts with others, in PostgreSQL;
    /// beyond it [`SqlStoreError::Contended`].
    pub attempts_max: u32,
    /// Maximum number of rows of one result; beyond it [`SqlStoreError::TooManyRows`].
    pub rows_max: usize,
    /// Time to connect to PostgreSQL.
    pub connect_max: Duration,
    /// Time for one statement in PostgreSQL, and for one idle transaction.
    pub statement_max: Duration,
    /// Time after which a silent PostgreSQL counts as lost.
    pub silence_max: Duration,
    /// Isolation of transactions from each other, in PostgreSQL.
    pub isolation: StoreIsolation,
}

/// Isolation of transactions of PostgreSQL from each other
/// (<https://www.postgresql.org/docs/current/transaction-iso.html>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreIsolation {
    /// Transactions have the effect of a serial order; those that conflict are run again.
    #[default]
    Serializable,
    /// Each statement sees all earlier commits, and never conflicts: for single statements that
    /// must not wait for others.
    ReadCommitted,
}

impl StoreConfig {
    /// Returns the defaults for a database.
    pub fn new(url: StoreUrl) -> StoreConfig {
        StoreConfig {
            url,
            durability: CommitDurability::default(),
            waiting_max: 10_000,
            group_max: 128,
            readers: 2,
            connections: 4,
            attempts_max: 12,
            rows_max: 100_000,
            connect_max: Duration::from_secs(10),
            statement_max: Duration::from_secs(30),
            silence_max: Duration::from_secs(30),
            isolation: StoreIsolation::default(),
        }
    }
}

/// Database engine, for the few statements that must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL, or CockroachDB.
    Postgres,
}

/// A transaction in progress. It ends with the closure that received it.
pub trait StoreTransaction {
    /// Runs a statement that returns no rows, and returns the number of rows that it changed.
    ///
    /// # Errors
    /// If the statement fails; the transaction is spoiled then.
    fn execute(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<u64, SqlStoreError>;

    /// Runs a statement that returns rows, be it `SELECT` or `… RETURNING`.
    ///
    /// # Errors
    /// If the statement fails or returns too many rows; the transaction is spoiled then.
    fn query(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<Vec<SqlRow>, SqlStoreError>;

    /// Runs statements without parameters, one after the other, separated by semicolons. For
    /// migrations: the statements are not kept prepared.
    ///
    /// # Errors
    /// If one fails; the transaction is spoiled then.
    fn batch(&mut self, sql: &str) -> Result<(), SqlStoreError>;

    /// Returns the first row of a statement's result, or none.
    ///
    /// # Errors
    /// Those of [`StoreTransaction::query`].
    fn query_one(
        &mut self,
        sql: &str,
        parameters: &[SqlValue],
    ) -> Result<Option<SqlRow>, SqlStoreError> {
        Ok(self.query(sql, parameters)?.into_iter().next())
    }

    /// Returns the database engine.
    fn dialect(&self) -> StoreDialect;
}

/// Result of a transaction, as a future. The transaction begins when it is first polled.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, SqlStoreError>> + Send + 'a>>;

/// Slot in which a transaction leaves its value.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// Identity of the store's present server. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
struct StoreServer(Arc<Mutex<StoreServerState>>);

#[derive(Debug, Default)]
struct StoreServerState {
    /// Identity of the server of the latest connection.
    latest: Option<String>,
    changes: u64,
}

impl StoreServer {
    /// Records the server of a new connection.
    fn connected(&self, server: String) {
        let mut state = self.0.lock();
        if state.latest.as_ref().is_some_and(|latest| *latest != server) {
            state.changes += 1;
        }
        state.latest = Some(server);
    }

    fn changes(&self) -> u64 {
        self.0.lock().changes
    }
}

/// State that threads of the store share.
struct StoreContext {
    config: StoreConfig,
    metrics: StoreMetrics,
    /// The database's clock.
    clock: SharedClock,
    server: StoreServer,
    /// Counts the running threads: each holds a receiver.
    running: watch::Receiver<()>,
}

/// A database. Cheap to clone; its threads end with the last clone, or by [`SqlStore::close`],
/// after they have run the waiting transactions.
#[derive(Clone)]
pub struct SqlStore(Arc<StoreHandle>);

struct StoreHandle {
    reads: Arc<TransactionQueue>,
    writes: Arc<TransactionQueue>,
    dialect: StoreDialect,
    config: StoreConfig,
    metrics: StoreMetrics,
    clock: SharedClock,
    server: StoreServer,
    counters: Mutex<CounterReadings>,
    running: watch::Sender<()>,
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.reads.close();
        self.writes.close();
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dialect", &self.0.dialect).finish_non_exhaustive()
    }
}

impl SqlStore {
    /// Opens the database and starts its threads. A SQLite file must belong to this process alone,
    /// which the data directory's lock ensures.
    ///
    /// # Errors
    /// If it cannot be opened or reached.
    pub fn open<'a>(
        config: StoreConfig,
        registry: &'a mut Registry,
    ) -> Boxed<'a, Result<SqlStore, SqlStoreError>> {
        Box::pin(async move {
            let metrics = StoreMetrics::new(registry);
            let (running, receiver) = watch::channel(());
            let writes = Arc::new(TransactionQueue::new(config.waiting_max));
            let (clock, server) = (SharedClock::default(), StoreServer::default());
            let context = StoreContext {
                config: config.clone(),
                metrics: metrics.clone(),
                clock: clock.clone(),
                server: server.clone(),
                running: receiver,
            };
            let (dialect, reads) = match context.config.url.clone() {
                StoreUrl::Sqlite(path) => {
                    let reads = Arc::new(TransactionQueue::new(context.config.waiting_max));
                    sqlite::start(&path, context, &reads, &writes).await?;
                    (StoreDialect::Sqlite, reads)
                }
                StoreUrl::Postgres(url) => {
                    postgres::start(&url, context, &writes).await?;
                    (StoreDialect::Postgres, Arc::clone(&writes))
                }
            };
            let counters = Mutex::default();
            Ok(SqlStore(Arc::new(StoreHandle {
                reads,
                writes,
                dialect,
                config,
                metrics,
                clock,
                server,
                counters,
                running,
            })))
        })
    }

    /// Returns a store with a connection of its own to the same PostgreSQL, for single statements
    /// that must not wait behind other transactions, nor conflict with them; `time_max` is the time
    /// to connect, and for one statement. With SQLite, which has one writer, returns this store.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn reserved(&self, time_max: Duration) -> Boxed<'_, Result<SqlStore, SqlStoreError>> {
        Box::pin(async move {
            let StoreUrl::Postgres(url) = &self.0.config.url else { return Ok(self.clone()) };
            let config = StoreConfig {
                connections: 1,
                connect_max: time_max,
                statement_max: time_max,
                silence_max: time_max,
                isolation: StoreIsolation::ReadCommitted,
                ..self.0.config.clone()
            };
            let (running, receiver) = watch::channel(());
            let queue = Arc::new(TransactionQueue::new(config.waiting_max));
            let context = StoreContext {
                config: config.clone(),
                metrics: self.0.metrics.clone(),
                clock: self.0.clock.clone(),
                server: self.0.server.clone(),
                running: receiver,
            };
            postgres::start(url, context, &queue).await?;
            Ok(SqlStore(Arc::new(StoreHandle {
                reads: Arc::clone(&queue),
                writes: queue,
                dialect: self.0.dialect,
                config,
                metrics: self.0.metrics.clone(),
                clock: self.0.clock.clone(),
                server: self.0.server.clone(),
                counters: Mutex::default(),
                running,
            })))
        })
    }

    /// Runs a transaction that may write; its result is durable when this returns. `name` is its
    /// name in metrics.
    ///
    /// # Errors
    /// Those of the closure and of the database; see [`SqlStoreError`].
    pub fn transact<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.run(name, TransactionAccess::Write, None, body)
    }

    /// Does work that waits for a disk and then runs a transaction, as [`SqlStore::transact`]: the
    /// data that the transaction refers to exists before it. The thread that did the work hands the
    /// transaction over, so the caller is woken once. If the work fails, its error is the result
    /// and the transaction does not begin.
    ///
    /// # Errors
    /// Errors of `before`, of the closure and of the database; see [`SqlStoreError`].
    pub fn transact_after<T: Send + 'static>(
        &self,
        name: &'static str,
        before: impl FnOnce() -> Result<(), SqlStoreError> + Send + 'static,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.run(name, TransactionAccess::Write, Some(Box::new(before)), body)
    }

    /// Runs a transaction that may be applied twice without harm: it is run again if the connection
    /// was lost during the commit, so it never returns [`SqlStoreError::OutcomeUnknown`].
    ///
    /// # Errors
    /// Those of the closure and of the database; see [`SqlStoreError`].
    pub fn transact_idempotent<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.run(name, TransactionAccess::WriteAgain, None, body)
    }

    /// Runs a read-only transaction. It sees everything that was confirmed before it began.
    ///
    /// # Errors
    /// Those of the closure and of the database, which refuses to write; see [`SqlStoreError`].
    pub fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.run(name, TransactionAccess::Read, None, body)
    }

    /// Runs one read-only statement, and returns the result of `read` for its rows. It sees
    /// everything that was confirmed before it began, and nothing that is committed later. In
    /// PostgreSQL it takes one round trip instead of the three of [`SqlStore::read`], and has no
    /// place in the serial order of transactions: for rows that are consistent by themselves.
    ///
    /// # Errors
    /// Those of `read` and of the database; see [`SqlStoreError`].
    pub fn select<T: Send + 'static>(
        &self,
        name: &'static str,
        sql: String,
        parameters: Vec<SqlValue>,
        mut read: impl FnMut(&[SqlRow]) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        debug_assert!(sql.starts_with("SELECT "), "only looks: {sql}");
        let body = move |it: &mut dyn StoreTransaction| read(&it.query(&sql, &parameters)?);
        self.run(name, TransactionAccess::Select, None, body)
    }

    fn run<T, F>(
        &self,
        name: &'static str,
        access: TransactionAccess,
        before: Option<PrecedingWork>,
        mut body: F,
    ) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    {
        let slot = Slot::default();
        let value = Arc::clone(&slot);
        let body: Body = Box::new(move |transaction| {
            // The result of a run that was rolled back is discarded.
            *value.lock() = None;
            *value.lock() = Some(body(transaction)?);
            Ok(())
        });
        Box::pin(self.answer(name, access, before, body, slot))
    }

    async fn answer<T>(
        &self,
        name: &'static str,
        access: TransactionAccess,
        before: Option<PrecedingWork>,
        body: Body,
        slot: Slot<T>,
    ) -> Result<T, SqlStoreError> {
        self.queue(name, access, before, body).await?;
        let value = slot.lock().take();
        value.ok_or(SqlStoreError::Spoiled)
    }

    async fn queue(
        &self,
        name: &'static str,
        access: TransactionAccess,
        before: Option<PrecedingWork>,
        body: Body,
    ) -> Result<(), SqlStoreError> {
        let (job, answer) = TransactionJob::new(name, access, body);
        let queue = match access {
            TransactionAccess::Read | TransactionAccess::Select => &self.0.reads,
            TransactionAccess::Write | TransactionAccess::WriteAgain => &self.0.writes,
        };
        match before {
            None => queue.push(job),
            Some(before) => {
                let queue = Arc::clone(queue);
                tokio::task::spawn_blocking(move || queue.push_after(before, job));
            }
        }
        // A missing answer means that the thread has ended.
        let Ok(TransactionAnswer { handed_over, result }) = answer.await else {
            return Err(SqlStoreError::Closed);
        };
        if let Some(handed_over) = handed_over {
            let took = clock::now().duration_since(handed_over);
            self.0.metrics.finished(name, took, result.is_ok());
        }
        result
    }

    /// Migrates the tables of a service to the newest version. Version `n` is the result of the
    /// first `n` of `steps`, so steps are only ever added at the end.
    ///
    /// # Errors
    /// If a step fails, or the database has more versions than there are steps.
    pub fn migrate<'a>(
        &'a self,
        service: &'static str,
        steps: &'a [MigrationStep],
    ) -> Boxed<'a, Result<(), SqlStoreError>> {
        Box::pin(async move { migrate::migrate(self, service, steps).await })
    }

    /// Returns the time by the database's clock, in milliseconds since 1970, by which all leases
    /// are written and judged. For SQLite it is this machine's clock.
    pub fn now_ms(&self) -> u64 {
        self.0.clock.now_ms()
    }

    /// Returns how often the store's server was found to be replaced by another one, or restarted:
    /// a replica that has taken over may have lost its last commits. Detected when a connection is
    /// made.
    pub(crate) fn server_changes(&self) -> u64 {
        self.0.server.changes()
    }

    /// Returns the database engine.
    pub fn dialect(&self) -> StoreDialect {
        self.0.dialect
    }

    /// Takes a snapshot of the store, which others may change meanwhile; none for PostgreSQL, which
    /// has backups of its own. It contains everything that was confirmed before. Blocks.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn snapshot(&self) -> Result<Option<StoreSnapshot>, SqlStoreError> {
        snapshot::of_url(&self.0.config.url, self.0.config.rows_max)
    }

    /// Takes no more transactions, finishes the waiting ones, and returns when the database is
    /// closed.
    pub async fn close(&self) {
        self.0.reads.close();
        self.0.writes.close();
        self.0.running.closed().await;
    }
}

#[cfg(test)]
mod tests;
