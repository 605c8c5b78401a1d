//! The store: SQL in one dialect, kept by SQLite or by PostgreSQL.
//!
//! A service hands over a closure and gets back what it answers once that is durable:
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
//!   cast: `CAST(SUM(x) AS BIGINT)`. Where the texts must differ there is [`SqlStore::dialect`].
//! - **Transactions are serialisable** and all or nothing. A statement that fails spoils its
//!   transaction, even when the closure looks away.
//! - **A closure may run more than once**: what it answers is what its last run answered. So it
//!   changes nothing but the transaction, does no I/O and waits for nothing.
//! - **SQLite** has one writer, which commits everything that waits at once (group commit), and
//!   readers of their own. **PostgreSQL** has a few connections; serialisation failures and lost
//!   connections are tried again.
//!
//! Dropping the future of a transaction does not undo it: it may be written or not. This file knows
//! no table but the one that counts migrations.

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

/// Database that keeps the state.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file of this machine; it is made when it is missing.
    Sqlite(PathBuf),
    /// `postgres://user:password@host:port/database?sslmode=…`. May contain a password, so it is
    /// never shown.
    Postgres(String),
}

impl FromStr for StoreUrl {
    type Err = SqlStoreError;

    /// `sqlite:PATH`, `postgres://…` or `postgresql://…`.
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

/// Durability of an answered transaction, in SQLite. PostgreSQL has its own setting for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitDurability {
    /// The end of the process, however it comes. A power failure may lose the last moments, but
    /// leaves the database whole.
    #[default]
    Process,
    /// A power failure as well: every group of transactions waits for the disk.
    Power,
}

/// Configuration of the store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Database.
    pub url: StoreUrl,
    /// Durability, in SQLite.
    pub durability: CommitDurability,
    /// Transactions that wait, for each of reading and writing; beyond it
    /// [`SqlStoreError::Busy`].
    pub waiting_max: usize,
    /// Write transactions that SQLite commits together.
    pub group_max: usize,
    /// Threads that read, in SQLite, each with a connection.
    pub readers: usize,
    /// Connections to PostgreSQL, each with a thread.
    pub connections: usize,
    /// Number of times that a transaction is run that loses against others, in PostgreSQL; beyond
    /// it [`SqlStoreError::Contended`].
    pub attempts_max: u32,
    /// Rows that one statement may answer; beyond it [`SqlStoreError::TooManyRows`].
    pub rows_max: usize,
    /// Time to connect to PostgreSQL.
    pub connect_max: Duration,
    /// Time for one statement in PostgreSQL, and for one transaction that stands idle.
    pub statement_max: Duration,
    /// Time that a silent PostgreSQL is believed in.
    pub silence_max: Duration,
    /// Isolation of transactions from each other, in PostgreSQL.
    pub isolation: StoreIsolation,
}

/// Isolation of transactions of PostgreSQL from each other
/// (<https://www.postgresql.org/docs/current/transaction-iso.html>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreIsolation {
    /// Transactions as if one ran after the other; those that cannot be are run again.
    #[default]
    Serializable,
    /// Each statement sees what was committed before it, and loses against nobody: for single
    /// statements that must not wait for what others do.
    ReadCommitted,
}

impl StoreConfig {
    /// The defaults for a database.
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

/// Engine, for the few statements that must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL, or CockroachDB.
    Postgres,
}

/// A transaction in progress. It ends with the closure that got it.
pub trait StoreTransaction {
    /// Runs a statement that answers no rows and says how many it changed.
    ///
    /// # Errors
    /// When the statement fails; the transaction is spoiled then.
    fn execute(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<u64, SqlStoreError>;

    /// Runs a statement that answers rows, be it `SELECT` or `… RETURNING`.
    ///
    /// # Errors
    /// When the statement fails or answers too many rows; the transaction is spoiled then.
    fn query(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<Vec<SqlRow>, SqlStoreError>;

    /// Runs statements without parameters, one after the other, divided by semicolons. For
    /// migrations: nothing of it is kept prepared.
    ///
    /// # Errors
    /// When one fails; the transaction is spoiled then.
    fn batch(&mut self, sql: &str) -> Result<(), SqlStoreError>;

    /// The one row that a statement answers, or none.
    ///
    /// # Errors
    /// Those of [`StoreTransaction::query`]. Of several rows it is the first.
    fn query_one(
        &mut self,
        sql: &str,
        parameters: &[SqlValue],
    ) -> Result<Option<SqlRow>, SqlStoreError> {
        Ok(self.query(sql, parameters)?.into_iter().next())
    }

    /// Returns which engine this is.
    fn dialect(&self) -> StoreDialect;
}

/// Result of a transaction, as a future. It begins when it is first polled.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, SqlStoreError>> + Send + 'a>>;

/// Slot in which a transaction leaves its value.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// Knowledge of which server stands for a store. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
struct StoreServer(Arc<Mutex<StoreServerState>>);

#[derive(Debug, Default)]
struct StoreServerState {
    /// Identity of the latest server that was connected to.
    latest: Option<String>,
    changes: u64,
}

impl StoreServer {
    /// Notes which server a new connection is to.
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
    /// Counts the threads that are still there: each holds a receiver.
    running: watch::Receiver<()>,
}

/// A database. Cheap to clone; the threads behind it end with the last clone, or by
/// [`SqlStore::close`], having done what waited.
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
    /// Opens the database and starts the threads that talk to it. A SQLite file must belong to this
    /// process alone, which the data directory's lock ensures.
    ///
    /// # Errors
    /// When it cannot be opened or reached.
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
    /// that must not wait behind other transactions, nor lose against them; `time_max` is the time
    /// to connect, and for one statement. SQLite has one writer: it is this store.
    ///
    /// # Errors
    /// When it cannot be reached.
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

    /// Runs a transaction that may write; what it answers is durable when this returns. `name` is
    /// what metrics call it.
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

    /// Does work that waits for a disk and then runs a transaction, as [`SqlStore::transact`]: what
    /// the transaction leads to is there before it. The thread that did the work hands the
    /// transaction over, so the caller is woken once. After an error of the work, which is the
    /// answer, the transaction does not begin.
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

    /// Runs a transaction that may as well happen twice: it is run again when the connection was
    /// lost during the commit, so it never ends in [`SqlStoreError::OutcomeUnknown`].
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

    /// Runs a transaction that only looks. It sees everything that was answered before it began.
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

    /// Runs one statement that only looks, and answers what `read` makes of its rows. It sees
    /// everything that was answered before it began, and nothing that is committed later. In
    /// PostgreSQL it takes one round trip where [`SqlStore::read`] takes three, and it has no place
    /// in the serial order of transactions: for rows that mean something by themselves.
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
            // Of a run that was rolled back nothing is left.
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
        // An answer that never comes means that the thread is gone.
        let Ok(TransactionAnswer { handed_over, result }) = answer.await else {
            return Err(SqlStoreError::Closed);
        };
        if let Some(handed_over) = handed_over {
            let took = clock::now().duration_since(handed_over);
            self.0.metrics.finished(name, took, result.is_ok());
        }
        result
    }

    /// Brings the tables of a service to their newest version. Version `n` is what the first `n` of
    /// `steps` make, so that steps are only ever added at the end.
    ///
    /// # Errors
    /// When a step fails, or the database has more versions than there are steps.
    pub fn migrate<'a>(
        &'a self,
        service: &'static str,
        steps: &'a [MigrationStep],
    ) -> Boxed<'a, Result<(), SqlStoreError>> {
        Box::pin(async move { migrate::migrate(self, service, steps).await })
    }

    /// Returns the time by the database's clock, in milliseconds since 1970: what all leases are
    /// written and judged by. SQLite has no other than this machine's.
    pub fn now_ms(&self) -> u64 {
        self.0.clock.now_ms()
    }

    /// Number of times that another server was found to stand for the store, or the same one
    /// after it was started anew: a replica that has taken over may have forgotten what was
    /// confirmed last. It is found when a connection is made.
    pub(crate) fn server_changes(&self) -> u64 {
        self.0.server.changes()
    }

    /// Returns which engine it is.
    pub fn dialect(&self) -> StoreDialect {
        self.0.dialect
    }

    /// Takes a snapshot of what the store has, which others change meanwhile; none of PostgreSQL,
    /// which has backups of its own. It has everything that was answered before. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn snapshot(&self) -> Result<Option<StoreSnapshot>, SqlStoreError> {
        snapshot::of_url(&self.0.config.url, self.0.config.rows_max)
    }

    /// Takes no more transactions, finishes those that wait, and returns when the database is
    /// closed.
    pub async fn close(&self) {
        self.0.reads.close();
        self.0.writes.close();
        self.0.running.closed().await;
    }
}

#[cfg(test)]
mod tests;
