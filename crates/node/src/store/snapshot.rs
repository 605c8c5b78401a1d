//! Content of a SQLite store at one moment, for copies while the server continues to write.
//!
//! A read transaction on a separate connection sees the commits before its start and no later ones.
//! SQLite's online backup copies the pages of that transaction: while it is open, the copy does not
//! restart when others write. The write-ahead log cannot be truncated meanwhile, so it grows with
//! each write until the snapshot is dropped.
//!
//! # References
//! - <https://www.sqlite.org/backup.html>
//! - <https://www.sqlite.org/isolation.html>

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error::{Cause, SqlStoreError};
use super::sqlite::{self, SqliteTransaction};
use super::{StoreTransaction, StoreUrl};
use crate::data_dir;

/// Number of pages that are copied between two calls of `progress`.
const PAGES_AT_ONCE: i32 = 1024;

/// Content of a SQLite store at the moment when it was taken. All methods block.
#[derive(Debug)]
pub struct StoreSnapshot {
    connection: Connection,
    rows_max: usize,
}

/// Decision whether a copy continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// Copy the next pages.
    Continue,
    /// Stop the copy with [`SqlStoreError::Closed`].
    Stop,
}

impl StoreSnapshot {
    /// Takes a snapshot. It contains everything that was confirmed before.
    pub(super) fn take(path: &Path, rows_max: usize) -> Result<StoreSnapshot, SqlStoreError> {
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(sqlite::BUSY_MAX)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.execute_batch("BEGIN")?;
            // A deferred transaction begins with its first read.
            connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(connection)
        };
        let connection = open().map_err(|error| open_error(path, error.into()))?;
        Ok(StoreSnapshot { connection, rows_max })
    }

    /// Returns the size of the copy, in bytes.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn bytes(&self) -> Result<u64, SqlStoreError> {
        let pragma = |name: &'static str| {
            let value = self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let value = value.map_err(|error| sqlite::failure(name, error))?;
            Ok::<_, SqlStoreError>(u64::try_from(value).unwrap_or_default())
        };
        Ok(pragma("page_count")?.saturating_mul(pragma("page_size")?))
    }

    /// Reads from the snapshot.
    ///
    /// # Errors
    /// Those of the closure and of the database, which refuses to write.
    pub fn read<T>(
        &self,
        body: impl FnOnce(&mut dyn StoreTransaction) -> Result<T, SqlStoreError>,
    ) -> Result<T, SqlStoreError> {
        body(&mut SqliteTransaction::on(&self.connection, self.rows_max))
    }

    /// Writes the snapshot to a new file, which only its owner may read, as a separate database.
    /// The file is not synchronised.
    ///
    /// # Errors
    /// If the database cannot be read or the file not be written, and if `progress` stops it. A
    /// partly written file remains.
    pub fn copy_to(
        &self,
        path: &Path,
        mut progress: impl FnMut() -> CopyProgress,
    ) -> Result<(), SqlStoreError> {
        data_dir::open_private(path, true).map_err(|error| open_error(path, error.into()))?;
        let failed = |error| sqlite::failure("copy the database", error);
        let mut copy = Connection::open(path).map_err(failed)?;
        // The file is a copy: if it is lost, it can be made again.
        copy.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
        let backup = Backup::new(&self.connection, &mut copy).map_err(failed)?;
        let mut done = false;
        while !done {
            if progress() == CopyProgress::Stop {
                return Err(SqlStoreError::Closed);
            }
            // A reader of the log waits for no lock, so that each step makes progress.
            done = backup.step(PAGES_AT_ONCE).map_err(failed)? == StepResult::Done;
        }
        drop(backup);
        copy.close().map_err(|(_, error)| failed(error))
    }
}

/// Takes a snapshot of a store, if it is a file.
pub(super) fn of_url(
    url: &StoreUrl,
    rows_max: usize,
) -> Result<Option<StoreSnapshot>, SqlStoreError> {
    match url {
        StoreUrl::Sqlite(path) => StoreSnapshot::take(path, rows_max).map(Some),
        StoreUrl::Postgres(_) => Ok(None),
    }
}

fn open_error(path: &Path, source: Cause) -> SqlStoreError {
    SqlStoreError::Open { name: path.display().to_string(), source }
}
