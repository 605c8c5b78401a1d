//! SQLite: one thread writes and commits all waiting transactions at once; others read.
//!
//! # References
//! - <https://www.sqlite.org/wal.html>
//! - <https://www.sqlite.org/lang_transaction.html>

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, ToSql};
use tokio::sync::oneshot;

use super::error::{Cause, SqlStoreError, abbreviated};
use super::queue::{TransactionJob, TransactionQueue};
use super::value::{SqlRow, SqlValue};
use super::{CommitDurability, StoreContext, StoreDialect, StoreTransaction};
use crate::data_dir;

/// Time that a statement waits for a lock. Only another process could hold one, such as a backup.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(10);

/// Maximum number of prepared statements of a connection.
const STATEMENTS_MAX: usize = 256;

/// Size to which the write-ahead log is truncated once all of it is in the database, in bytes.
const WAL_BYTES_KEPT: u32 = 64 << 20;

/// Opens the database and starts its threads.
pub(super) async fn start(
    path: &Path,
    context: StoreContext,
    reads: &Arc<TransactionQueue>,
    writes: &Arc<TransactionQueue>,
) -> Result<(), SqlStoreError> {
    let open_error =
        |source: Cause| SqlStoreError::Open { name: path.display().to_string(), source };
    // SQLite gives its other files the mode of this one.
    data_dir::open_private(path, false).map_err(|error| open_error(error.into()))?;
    let context = Arc::new(context);
    // The writer first: it creates the database, which readers need.
    let roles = std::iter::once(SqliteRole::Writer);
    for role in roles.chain((0..context.config.readers.max(1)).map(|_| SqliteRole::Reader)) {
        let (opened, is_open) = oneshot::channel();
        let queue = Arc::clone(if role == SqliteRole::Writer { writes } else { reads });
        let (path, context) = (path.to_owned(), Arc::clone(&context));
        let body = move || {
            // Counts this thread as running until its end.
            let _running = context.running.clone();
            match open(&path, role, context.config.durability) {
                Err(error) => drop(opened.send(Err(error))),
                Ok(connection) => {
                    drop(opened.send(Ok(())));
                    let engine = SqliteEngine { connection, context: Arc::clone(&context) };
                    match role {
                        SqliteRole::Writer => engine.write_all(&queue),
                        SqliteRole::Reader => engine.read_all(&queue),
                    }
                }
            }
        };
        let name = if role == SqliteRole::Writer { "cove-store-w" } else { "cove-store-r" };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        thread.map_err(|error| open_error(error.into()))?;
        let result = is_open.await;
        let result = result.map_err(|error| open_error(error.into()))?;
        result.map_err(|error| open_error(error.into()))?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqliteRole {
    Writer,
    Reader,
}

fn open(
    path: &Path,
    role: SqliteRole,
    durability: CommitDurability,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    if role == SqliteRole::Reader {
        connection.pragma_update(None, "query_only", true)?;
        return Ok(connection);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        // The log is written, not flushed: the kernel has it when the process dies.
        CommitDurability::Process => "NORMAL",
        CommitDurability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    // The file may have been restored from elsewhere, so no code in it is trusted.
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

struct SqliteEngine {
    connection: Connection,
    context: Arc<StoreContext>,
}

impl SqliteEngine {
    fn write_all(&self, queue: &TransactionQueue) {
        while let Some(jobs) = queue.take(self.context.config.group_max.max(1)) {
            self.write_group(jobs);
        }
    }

    /// Runs jobs in one transaction and answers them after the commit.
    fn write_group(&self, mut jobs: Vec<TransactionJob>) {
        jobs.retain(|job| !job.is_abandoned());
        if jobs.is_empty() {
            return;
        }
        self.context.metrics.committed_together(jobs.len());
        if jobs.len() > 1
            && let Some(results) = self.commit_together(&mut jobs)
        {
            return jobs.into_iter().zip(results).for_each(|(job, result)| job.finish(result));
        }
        for mut job in jobs {
            let result = self.commit_alone("BEGIN IMMEDIATE", &mut job);
            job.finish(result);
        }
    }

    /// Commits jobs in one transaction with a savepoint for each, so that a failed job undoes only
    /// itself. None if the whole transaction was rolled back, as by a full disk: then each job has
    /// to be tried alone, and gets its own error.
    fn commit_together(
        &self,
        jobs: &mut [TransactionJob],
    ) -> Option<Vec<Result<(), SqlStoreError>>> {
        self.statement("BEGIN IMMEDIATE").ok()?;
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            let result = self.in_savepoint(job);
            // If a savepoint could not be ended, the transaction is rolled back as well.
            match result {
                Some(result) if !self.connection.is_autocommit() => results.push(result),
                _ => {
                    self.roll_back();
                    return None;
                }
            }
        }
        match self.statement("COMMIT") {
            Ok(()) => Some(results),
            Err(_) => {
                self.roll_back();
                None
            }
        }
    }

    fn in_savepoint(&self, job: &mut TransactionJob) -> Option<Result<(), SqlStoreError>> {
        self.statement("SAVEPOINT job").ok()?;
        let result = self.statements_of(job);
        if result.is_err() {
            self.statement("ROLLBACK TO job").ok()?;
        }
        self.statement("RELEASE job").ok()?;
        Some(result)
    }

    fn commit_alone(
        &self,
        begin: &'static str,
        job: &mut TransactionJob,
    ) -> Result<(), SqlStoreError> {
        self.statement(begin)?;
        let result = self.statements_of(job).and_then(|()| self.statement("COMMIT"));
        if result.is_err() {
            self.roll_back();
        }
        result
    }

    fn statements_of(&self, job: &mut TransactionJob) -> Result<(), SqlStoreError> {
        let rows_max = self.context.config.rows_max;
        let mut transaction = SqliteTransaction::on(&self.connection, rows_max);
        job.run(&mut transaction)?;
        if transaction.spoiled { Err(SqlStoreError::Spoiled) } else { Ok(()) }
    }

    /// Rolls a transaction back. SQLite may have ended it already.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.statement("ROLLBACK")
        {
            // The next BEGIN fails as well, so that nothing of it can be committed.
            tracing::error!(error = &error as &dyn std::error::Error, "failed to roll back");
        }
    }

    fn read_all(&self, queue: &TransactionQueue) {
        while let Some(jobs) = queue.take(1) {
            for mut job in jobs {
                if !job.is_abandoned() {
                    let result = self.commit_alone("BEGIN", &mut job);
                    job.finish(result);
                }
            }
        }
    }

    fn statement(&self, sql: &'static str) -> Result<(), SqlStoreError> {
        let run = || self.connection.prepare_cached(sql)?.raw_execute();
        run().map(drop).map_err(|error| failure(sql, error))
    }
}

/// Statements on a connection, within its present transaction.
pub(super) struct SqliteTransaction<'a> {
    connection: &'a Connection,
    rows_max: usize,
    /// True after a failed statement.
    spoiled: bool,
}

impl<'a> SqliteTransaction<'a> {
    pub(super) fn on(connection: &'a Connection, rows_max: usize) -> SqliteTransaction<'a> {
        SqliteTransaction { connection, rows_max, spoiled: false }
    }
}

impl SqliteTransaction<'_> {
    fn run<T>(
        &mut self,
        sql: &str,
        parameters: &[SqlValue],
        run: impl FnOnce(&mut Statement<'_>) -> Result<T, SqlStoreError>,
    ) -> Result<T, SqlStoreError> {
        if self.spoiled {
            return Err(SqlStoreError::Spoiled);
        }
        // Remains true if anything below fails.
        self.spoiled = true;
        let statement = self.connection.prepare_cached(sql);
        let mut statement = statement.map_err(|error| failure(sql, error))?;
        bind(&mut statement, sql, parameters)?;
        let result = run(&mut statement)?;
        self.spoiled = false;
        Ok(result)
    }
}

impl StoreTransaction for SqliteTransaction<'_> {
    fn execute(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<u64, SqlStoreError> {
        self.run(sql, parameters, |statement| {
            let changed = statement.raw_execute().map_err(|error| failure(sql, error))?;
            Ok(u64::try_from(changed).unwrap_or(u64::MAX))
        })
    }

    fn query(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<Vec<SqlRow>, SqlStoreError> {
        let rows_max = self.rows_max;
        self.run(sql, parameters, |statement| {
            let columns = statement.column_count();
            let mut found = Vec::new();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(|error| failure(sql, error))? {
                if found.len() == rows_max {
                    return Err(SqlStoreError::TooManyRows { sql: abbreviated(sql), rows_max });
                }
                let mut values = Vec::with_capacity(columns);
                for index in 0..columns {
                    let value = row.get_ref(index).map_err(|error| failure(sql, error))?;
                    values.push(owned(value));
                }
                found.push(SqlRow::new(values));
            }
            Ok(found)
        })
    }

    fn batch(&mut self, sql: &str) -> Result<(), SqlStoreError> {
        if self.spoiled {
            return Err(SqlStoreError::Spoiled);
        }
        let result = self.connection.execute_batch(sql).map_err(|error| failure(sql, error));
        self.spoiled = result.is_err();
        result
    }

    fn dialect(&self) -> StoreDialect {
        StoreDialect::Sqlite
    }
}

/// Binds `$1` to the first parameter and so on, in any order of occurrence.
///
/// SQLite treats `$1` as a name and numbers names by their first occurrence.
fn bind(
    statement: &mut Statement<'_>,
    sql: &str,
    parameters: &[SqlValue],
) -> Result<(), SqlStoreError> {
    let wrong = |problem| SqlStoreError::Parameters { sql: abbreviated(sql), problem };
    let mut highest = 0;
    for place in 1..=statement.parameter_count() {
        let name = statement.parameter_name(place).unwrap_or("?");
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let number = number.filter(|number| *number > 0);
        let number = number.ok_or_else(|| wrong(format!("`{name}` is no parameter like `$1`")))?;
        highest = highest.max(number);
        if let Some(value) = parameters.get(number - 1) {
            let bound = statement.raw_bind_parameter(place, value);
            bound.map_err(|error| failure(sql, error))?;
        }
    }
    check_parameters(sql, highest, parameters)
}

/// Checks the parameters of a statement, by the rules of both engines.
pub(super) fn check_parameters(
    sql: &str,
    wanted: usize,
    parameters: &[SqlValue],
) -> Result<(), SqlStoreError> {
    let wrong = |problem| Err(SqlStoreError::Parameters { sql: abbreviated(sql), problem });
    if wanted != parameters.len() {
        return wrong(format!("it has {wanted} parameters and was given {}", parameters.len()));
    }
    for (index, value) in parameters.iter().enumerate() {
        if let SqlValue::Text(text) = value
            && text.contains('\0')
        {
            return wrong(format!("`${}` contains the character NUL", index + 1));
        }
    }
    Ok(())
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Int(number) => ValueRef::Integer(*number),
            SqlValue::Real(number) => ValueRef::Real(*number),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn owned(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Int(number),
        ValueRef::Real(number) => SqlValue::Real(number),
        // Text that is not UTF-8 was not written by this module.
        ValueRef::Text(bytes) => SqlValue::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
    }
}

pub(super) fn failure(sql: &str, error: rusqlite::Error) -> SqlStoreError {
    let sql = abbreviated(sql);
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => {
            SqlStoreError::Constraint { sql, source: error.into() }
        }
        // Another process, such as a backup, held the file for all of `BUSY_MAX`.
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SqlStoreError::Contended { attempts: 1, source: error.into() }
        }
        Some(ErrorCode::DiskFull) => SqlStoreError::Full(error.into()),
        _ => SqlStoreError::Statement { sql, source: error.into() },
    }
}
