//! PostgreSQL: a few connections, each with a thread; conflicting transactions are retried.
//!
//! This module needs only plain SQL and serialisable transactions, so that CockroachDB works as
//! well: no advisory locks, no `LISTEN`.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/transaction-iso.html#XACT-SERIALIZABLE>

mod tls;
mod transaction;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::postgres::error::SqlState;
use ::postgres::{Client, IsolationLevel, SimpleQueryMessage};
use tokio::sync::oneshot;

use self::tls::{PostgresTls, parse};
use self::transaction::{PostgresTransaction, PreparedStatements};
use super::error::{Cause, SqlStoreError, abbreviated};
use super::queue::{TransactionAccess, TransactionJob, TransactionQueue};
use super::{StoreConfig, StoreContext, StoreIsolation};
use crate::clock;
use crate::telemetry::error_chain;

/// Maximum number of attempts for a transaction that loses its connection before the commit.
const CONNECTIONS_LOST_MAX: u32 = 3;

/// After a failed attempt to connect, transactions fail at once for this long.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Pause before the first retry; it doubles with each, and a random part of it is waited.
const BACKOFF: Duration = Duration::from_millis(1);

/// Longest pause between two retries.
const BACKOFF_MAX: Duration = Duration::from_millis(20);

/// Milliseconds since 1970 by the server's clock, independent of the transaction.
const READ_CLOCK: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// Start time of the server, which distinguishes a replica that has taken over, or a restarted
/// server, from the former one. CockroachDB, which loses no commits, has no such function.
const READ_SERVER: &str = "SELECT pg_postmaster_start_time()";

/// Checks that the address is valid.
pub(super) fn check_url(url: &str) -> Result<(), SqlStoreError> {
    parse(url).map(drop)
}

/// Connects once, as a check, and starts the threads.
pub(super) async fn start(
    url: &str,
    context: StoreContext,
    queue: &Arc<TransactionQueue>,
) -> Result<(), SqlStoreError> {
    let settings = Arc::new(parse(url)?);
    let context = Arc::new(context);
    for number in 0..context.config.connections.max(1) {
        let (opened, is_open) = oneshot::channel();
        let (queue, context) = (Arc::clone(queue), Arc::clone(&context));
        let mut engine = PostgresEngine {
            settings: Arc::clone(&settings),
            context: Arc::clone(&context),
            connection: None,
            failed: None,
        };
        let body = move || {
            // Counts this thread as running until its end.
            let _running = context.running.clone();
            // The other threads connect when needed.
            let result = if number == 0 { engine.connect() } else { Ok(()) };
            let failed = result.is_err();
            drop(opened.send(result));
            if !failed {
                engine.run_all(&queue);
            }
        };
        let open_error =
            |source: Cause| SqlStoreError::Open { name: settings.name.clone(), source };
        let thread = thread::Builder::new().name("cove-store".to_owned()).spawn(body);
        thread.map_err(|error| open_error(error.into()))?;
        let result = is_open.await.map_err(|error| open_error(error.into()))?;
        result.map_err(|error| open_error(error.into()))?;
    }
    Ok(())
}

/// Thread with a connection.
struct PostgresEngine {
    settings: Arc<PostgresTls>,
    context: Arc<StoreContext>,
    connection: Option<PostgresConnection>,
    /// Time and error of the last failed attempt to connect.
    failed: Option<(Instant, String)>,
}

struct PostgresConnection {
    client: Client,
    statements: PreparedStatements,
}

/// Result of an attempt at a transaction.
enum TransactionAttempt {
    /// Final, as a success or a failure.
    Done(Result<(), SqlStoreError>),
    /// Rolled back, because of a conflict.
    Conflict(SqlStoreError),
    /// Rolled back, because the connection was lost.
    Lost(SqlStoreError),
    /// The connection was lost during the commit.
    Unknown(Cause),
}

impl PostgresEngine {
    fn run_all(&mut self, queue: &TransactionQueue) {
        while let Some(jobs) = queue.take(1) {
            for mut job in jobs {
                if !job.is_abandoned() {
                    let result = self.run(&mut job, queue);
                    job.finish(result);
                }
            }
        }
    }

    fn run(
        &mut self,
        job: &mut TransactionJob,
        queue: &TransactionQueue,
    ) -> Result<(), SqlStoreError> {
        let (mut conflicts, mut lost) = (0, 0);
        loop {
            self.connect()?;
            self.read_clock();
            let attempt = self.attempt(job);
            let gone = match attempt {
                TransactionAttempt::Done(result) => return result,
                TransactionAttempt::Conflict(error) => {
                    conflicts += 1;
                    if conflicts >= self.context.config.attempts_max {
                        return Err(contended(error, conflicts));
                    }
                    queue.pause(clock::now() + backoff(conflicts));
                    self.context.metrics.retried(job.name);
                    continue;
                }
                TransactionAttempt::Unknown(source) if job.access == TransactionAccess::Write => {
                    self.connection = None;
                    return Err(SqlStoreError::OutcomeUnknown(source));
                }
                TransactionAttempt::Unknown(source) => SqlStoreError::Unavailable(source),
                TransactionAttempt::Lost(error) => error,
            };
            self.connection = None;
            lost += 1;
            if lost >= CONNECTIONS_LOST_MAX {
                return Err(gone);
            }
            self.context.metrics.retried(job.name);
        }
    }

    /// Ensures that there is a connection.
    fn connect(&mut self) -> Result<(), SqlStoreError> {
        if self.connection.as_ref().is_some_and(|connection| !connection.client.is_closed()) {
            return Ok(());
        }
        self.connection = None;
        if let Some((at, message)) = &self.failed
            && clock::now().duration_since(*at) < RECONNECT_PAUSE
        {
            return Err(SqlStoreError::Unavailable(message.clone().into()));
        }
        match open(&self.settings, &self.context.config) {
            Ok(client) => {
                let statements = PreparedStatements::default();
                self.connection = Some(PostgresConnection { client, statements });
                self.failed = None;
                // Another server may have replaced the former one.
                self.read_server();
                self.context.clock.expire();
                self.read_clock();
                Ok(())
            }
            Err(error) => {
                let message = error_chain(&error);
                // Once for each outage and thread, not for each transaction.
                if self.failed.is_none() {
                    tracing::warn!(error = message, store = self.settings.name, "lost the store");
                }
                self.failed = Some((clock::now(), message));
                Err(SqlStoreError::Unavailable(error.into()))
            }
        }
    }

    /// Reads the identity of a new connection's server.
    fn read_server(&mut self) {
        match self.read_text(READ_SERVER) {
            Ok(Some(server)) => self.context.server.connected(server),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "read the store's start");
            }
        }
    }

    /// Reads the server's clock, unless that was done recently. A failure here also fails the next
    /// transaction, which reports it.
    fn read_clock(&mut self) {
        if self.connection.is_none() || !self.context.clock.wants_sample() {
            return;
        }
        let asked_ms = clock::boot_ms();
        match self.read_text(READ_CLOCK) {
            Ok(answer) => {
                if let Some(ms) = answer.and_then(|text| text.parse().ok()) {
                    self.context.clock.sampled(asked_ms, ms);
                }
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "read the store's clock");
            }
        }
    }

    /// Reads one value, outside of transactions.
    fn read_text(&mut self, sql: &str) -> Result<Option<String>, ::postgres::Error> {
        let Some(PostgresConnection { client, .. }) = &mut self.connection else { return Ok(None) };
        let answer = client.simple_query(sql)?;
        Ok(answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    fn attempt(&mut self, job: &mut TransactionJob) -> TransactionAttempt {
        let Some(PostgresConnection { client, statements }) = &mut self.connection else {
            return TransactionAttempt::Done(Err(SqlStoreError::Closed));
        };
        let rows_max = self.context.config.rows_max;
        if job.access == TransactionAccess::Select {
            // The server runs a statement outside of a transaction as one.
            let mut single = PostgresTransaction::new(client, statements, rows_max);
            let result = job.run(&mut single);
            let attempt = concluded(result, single.fate());
            if single.fate() == Some(TransactionFate::StalePlan) {
                statements.clear();
            }
            return attempt;
        }
        let isolation = match self.context.config.isolation {
            StoreIsolation::Serializable => IsolationLevel::Serializable,
            StoreIsolation::ReadCommitted => IsolationLevel::ReadCommitted,
        };
        let begin = client.build_transaction().isolation_level(isolation);
        let mut inner = match begin.read_only(job.access == TransactionAccess::Read).start() {
            Ok(inner) => inner,
            Err(error) => return ended("BEGIN", error),
        };
        let mut transaction = PostgresTransaction::new(&mut inner, statements, rows_max);
        let result = job.run(&mut transaction);
        let fate = transaction.fate();
        let attempt = match concluded(result, fate) {
            TransactionAttempt::Done(Ok(())) => return commit(inner),
            lost @ TransactionAttempt::Lost(_) => return lost,
            failed => failed,
        };
        if fate == Some(TransactionFate::StalePlan) {
            statements.clear();
        }
        if let Err(error) = inner.rollback() {
            tracing::debug!(error = &error as &dyn std::error::Error, "roll back");
            // The server rolls the transaction back when the connection ends.
            self.connection = None;
        }
        attempt
    }
}

/// Returns the outcome of a transaction before it is committed or rolled back: from the result of
/// its body and the fate that the first failed statement caused, even if the body ignored the
/// failure.
fn concluded(
    result: Result<(), SqlStoreError>,
    fate: Option<TransactionFate>,
) -> TransactionAttempt {
    let spoiled =
        |result: Result<(), SqlStoreError>| result.err().unwrap_or(SqlStoreError::Spoiled);
    match fate {
        None => TransactionAttempt::Done(result),
        Some(TransactionFate::Conflict | TransactionFate::StalePlan) => {
            TransactionAttempt::Conflict(spoiled(result))
        }
        Some(TransactionFate::Lost) => TransactionAttempt::Lost(spoiled(result)),
        Some(TransactionFate::Failed) => TransactionAttempt::Done(Err(spoiled(result))),
    }
}

fn commit(transaction: ::postgres::Transaction<'_>) -> TransactionAttempt {
    let Err(error) = transaction.commit() else { return TransactionAttempt::Done(Ok(())) };
    match fate(&error) {
        TransactionFate::Lost => TransactionAttempt::Unknown(error.into()),
        TransactionFate::Conflict | TransactionFate::StalePlan | TransactionFate::Failed => {
            ended("COMMIT", error)
        }
    }
}

fn ended(statement: &str, error: ::postgres::Error) -> TransactionAttempt {
    let (fate, error) = failure(statement, error);
    match fate {
        TransactionFate::Conflict | TransactionFate::StalePlan => {
            TransactionAttempt::Conflict(error)
        }
        TransactionFate::Lost => TransactionAttempt::Lost(error),
        TransactionFate::Failed => TransactionAttempt::Done(Err(error)),
    }
}

fn open(settings: &PostgresTls, config: &StoreConfig) -> Result<Client, ::postgres::Error> {
    let mut options = settings.options.clone();
    options.connect_timeout(config.connect_max);
    let silence = config.silence_max;
    // The kernel counts keepalives in whole seconds (tcp(7)).
    let part = (silence / 3).max(Duration::from_secs(1));
    options.tcp_user_timeout(silence).keepalives_idle(part);
    options.keepalives_interval(part).keepalives_retries(2);
    let mut client = match &settings.tls {
        None => options.connect(::postgres::NoTls)?,
        Some(tls) => options.connect(tls.clone())?,
    };
    let ms = config.statement_max.as_millis();
    client.batch_execute(&format!(
        "SET statement_timeout = {ms}; SET idle_in_transaction_session_timeout = {ms}"
    ))?;
    Ok(client)
}

/// Consequence of an error for its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionFate {
    /// A conflict with other transactions.
    Conflict,
    /// A prepared statement no longer fits the tables, which have been changed.
    StalePlan,
    /// The connection was lost, or the server is stopping.
    Lost,
    /// A failure of its own.
    Failed,
}

fn fate(error: &::postgres::Error) -> TransactionFate {
    let Some(state) = error.code() else {
        let io =
            std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
        return if io || error.is_closed() {
            TransactionFate::Lost
        } else {
            TransactionFate::Failed
        };
    };
    let message = error.as_db_error().map_or("", |error| error.message());
    match state.code() {
        "40001" | "40P01" => TransactionFate::Conflict,
        "0A000" if message.contains("cached plan") => TransactionFate::StalePlan,
        // Stopped by the administrator, crashed, starting; CockroachDB: completion unknown.
        "57P01" | "57P02" | "57P03" | "40003" => TransactionFate::Lost,
        code if code.starts_with("08") => TransactionFate::Lost,
        _ => TransactionFate::Failed,
    }
}

/// Converts the error of a statement, and returns its consequence for the transaction.
fn failure(sql: &str, error: ::postgres::Error) -> (TransactionFate, SqlStoreError) {
    let fate = fate(&error);
    let constraint = error.code().is_some_and(|state| {
        // The row type of a table has the same name, and two concurrent creations may conflict on
        // it.
        state.code().starts_with("23")
            || [SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT].contains(state)
    });
    let sql = abbreviated(sql);
    let mapped = match fate {
        TransactionFate::Conflict | TransactionFate::StalePlan => {
            SqlStoreError::Contended { attempts: 1, source: error.into() }
        }
        TransactionFate::Lost => SqlStoreError::Unavailable(error.into()),
        TransactionFate::Failed if constraint => {
            SqlStoreError::Constraint { sql, source: error.into() }
        }
        TransactionFate::Failed if error.code() == Some(&SqlState::DISK_FULL) => {
            SqlStoreError::Full(error.into())
        }
        TransactionFate::Failed => SqlStoreError::Statement { sql, source: error.into() },
    };
    (fate, mapped)
}

fn contended(error: SqlStoreError, attempts: u32) -> SqlStoreError {
    match error {
        SqlStoreError::Contended { source, .. } => SqlStoreError::Contended { attempts, source },
        other => SqlStoreError::Contended { attempts, source: other.into() },
    }
}

/// Returns half of a doubling pause, plus a random part of the other half, so that two conflicting
/// transactions do not conflict again.
fn backoff(conflicts: u32) -> Duration {
    let whole = BACKOFF.saturating_mul(1 << conflicts.min(10)).min(BACKOFF_MAX);
    // Without randomness the pause is merely not spread.
    let random = getrandom::u32().unwrap_or(0) % 256;
    whole / 2 + whole / 2 * random / 255
}
