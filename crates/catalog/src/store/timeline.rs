//! The log as one sequence of numbers that all readers see alike, and the tables for looking back
//! in time.
//!
//! SQLite has one writer, so the number assigned to a line when it is written is in the order of
//! commits. PostgreSQL assigns sequence numbers before a commit: a line with a smaller number may
//! become visible after one with a greater number. So there a line is numbered only once it is
//! visible, by the next reader of the log: no new line appears before a number that was returned
//! once, however late a commit is, and there are no gaps.

use node::store::{MigrationStep, SqlStoreError, SqlValue, StoreDialect, StoreTransaction};

use super::queries::ms;
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result, database_failure};

/// Name of the service that owns the tables.
pub(super) const SERVICE: &str = "catalog_timeline";

/// Migrations of the tables; append only.
pub(super) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE catalog_dropped (
            id TEXT NOT NULL PRIMARY KEY,
            warehouse TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            kind TEXT NOT NULL,
            uuid TEXT NOT NULL,
            base TEXT NOT NULL,
            version BIGINT NOT NULL,
            location TEXT NOT NULL,
            document BYTEA,
            created_ms BIGINT NOT NULL,
            dropped_ms BIGINT NOT NULL,
            until_ms BIGINT NOT NULL,
            purge BIGINT NOT NULL,
            principal TEXT NOT NULL,
            purging_ms BIGINT NOT NULL
        );
        CREATE INDEX catalog_dropped_warehouse ON catalog_dropped (warehouse, id);
        CREATE INDEX catalog_dropped_namespace ON catalog_dropped (warehouse, namespace, id);
        CREATE INDEX catalog_dropped_uuid ON catalog_dropped (warehouse, uuid);
        CREATE INDEX catalog_dropped_location ON catalog_dropped (location);
        CREATE INDEX catalog_dropped_until ON catalog_dropped (until_ms)",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_rules (
            warehouse TEXT NOT NULL,
            object TEXT NOT NULL,
            protected BIGINT NOT NULL,
            undrop_s BIGINT,
            PRIMARY KEY (warehouse, object)
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_log_bounds (
            id BIGINT NOT NULL PRIMARY KEY,
            oldest BIGINT NOT NULL,
            newest BIGINT NOT NULL
        );
        INSERT INTO catalog_log_bounds (id, oldest, newest) VALUES (1, 0, 0)",
    ),
    MigrationStep::Each {
        sqlite: "CREATE INDEX catalog_log_name ON catalog_log (warehouse, namespace, name, seq);
            CREATE INDEX catalog_log_relation ON catalog_log (relation, seq)",
        postgres: "ALTER TABLE catalog_log ADD COLUMN pos BIGINT;
            CREATE UNIQUE INDEX catalog_log_pos ON catalog_log (pos);
            CREATE INDEX catalog_log_new ON catalog_log (seq) WHERE pos IS NULL;
            CREATE INDEX catalog_log_name ON catalog_log (warehouse, namespace, name, pos);
            CREATE INDEX catalog_log_relation ON catalog_log (relation, pos)",
    },
    // Lines that were already removed were written before now.
    MigrationStep::Each {
        sqlite: "ALTER TABLE catalog_log_bounds ADD COLUMN oldest_ms BIGINT NOT NULL DEFAULT 0;
            UPDATE catalog_log_bounds SET oldest_ms = CAST(strftime('%s', 'now') AS INTEGER) * 1000
                WHERE oldest > 0",
        postgres: "ALTER TABLE catalog_log_bounds ADD COLUMN oldest_ms BIGINT NOT NULL DEFAULT 0;
            UPDATE catalog_log_bounds
                SET oldest_ms = CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)
                WHERE oldest > 0",
    },
    MigrationStep::Same(
        "CREATE TABLE catalog_places (
            relation TEXT NOT NULL,
            place TEXT NOT NULL,
            PRIMARY KEY (relation, place)
        );
        INSERT INTO catalog_places (relation, place) SELECT id, base FROM catalog_tables;
        INSERT INTO catalog_places (relation, place) SELECT id, base FROM catalog_dropped",
    ),
    MigrationStep::Same("CREATE INDEX catalog_places_place ON catalog_places (place)"),
    // As bytes: locations are found by their order, and PostgreSQL's collation for texts may ignore
    // `/`.
    MigrationStep::ContractEach {
        sqlite: "CREATE TABLE catalog_places_new (
                relation TEXT NOT NULL,
                place BYTEA NOT NULL,
                PRIMARY KEY (relation, place)
            );
            INSERT INTO catalog_places_new (relation, place)
                SELECT relation, CAST(place AS BLOB) FROM catalog_places;
            DROP TABLE catalog_places;
            ALTER TABLE catalog_places_new RENAME TO catalog_places;
            CREATE INDEX catalog_places_bytes ON catalog_places (place)",
        postgres: "CREATE TABLE catalog_places_new (
                relation TEXT NOT NULL,
                place BYTEA NOT NULL,
                PRIMARY KEY (relation, place)
            );
            INSERT INTO catalog_places_new (relation, place)
                SELECT relation, convert_to(place, 'UTF8') FROM catalog_places;
            DROP TABLE catalog_places;
            ALTER TABLE catalog_places_new RENAME TO catalog_places;
            CREATE INDEX catalog_places_bytes ON catalog_places (place)",
    },
];

/// Lines that are numbered, or removed, in one transaction.
pub(super) const STEP: i64 = 1000;

/// First and last entry of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineBounds {
    /// The number before the oldest existing line: everything after it can be read.
    pub oldest: i64,
    /// The number of the newest line.
    pub newest: i64,
}

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineMoment {
    /// After the line with this number.
    Number(i64),
    /// At this time, in milliseconds since 1970.
    Time(u64),
}

/// Column that numbers lines in the order of their commits.
pub(super) fn number_column(dialect: StoreDialect) -> &'static str {
    match dialect {
        StoreDialect::Sqlite => "seq",
        StoreDialect::Postgres => "pos",
    }
}

pub(super) fn bounds(
    it: &mut dyn StoreTransaction,
) -> std::result::Result<TimelineBounds, SqlStoreError> {
    let sql = match it.dialect() {
        StoreDialect::Sqlite => {
            "SELECT oldest, (SELECT COALESCE(MAX(seq), oldest) FROM catalog_log) \
             FROM catalog_log_bounds WHERE id = 1"
        }
        StoreDialect::Postgres => "SELECT oldest, newest FROM catalog_log_bounds WHERE id = 1",
    };
    let missing =
        || SqlStoreError::refuse(CatalogError::internal("the bounds of the log are not there"));
    let row = it.query_one(sql, &[])?.ok_or_else(missing)?;
    Ok(TimelineBounds { oldest: row.get(0)?, newest: row.get(1)? })
}

/// Returns the number of the last line of a moment. Lines are stamped before they are committed: a
/// moment is after the last line, in the order of commits, that is not younger.
pub(super) fn number_at(
    it: &mut dyn StoreTransaction,
    moment: TimelineMoment,
) -> std::result::Result<i64, SqlStoreError> {
    let bounds = bounds(it)?;
    let number = match moment {
        TimelineMoment::Number(number) if number > bounds.newest => {
            let message =
                format!("the log has no line {number} yet: {} is its last", bounds.newest);
            return Err(SqlStoreError::refuse(CatalogError::new(ErrorReason::BadRequest, message)));
        }
        TimelineMoment::Number(number) => number,
        TimelineMoment::Time(at_ms) => {
            let column = number_column(it.dialect());
            let sql = format!(
                "SELECT {column} FROM catalog_log WHERE at_ms <= $1 AND {column} IS NOT NULL \
                 ORDER BY {column} DESC LIMIT 1"
            );
            match it.query_one(&sql, &[ms(at_ms)])? {
                Some(row) => row.get(0)?,
                // Before the first existing line. Of removed lines only the time of the youngest is
                // known; the state before it is unknown.
                None if bounds.oldest == 0 || at_ms >= removed_ms(it)? => bounds.oldest,
                None => -1,
            }
        }
    };
    if number < bounds.oldest { Err(SqlStoreError::refuse(too_old(bounds))) } else { Ok(number) }
}

/// Time at which the youngest removed line was written.
fn removed_ms(it: &mut dyn StoreTransaction) -> std::result::Result<u64, SqlStoreError> {
    let row = it.query_one("SELECT oldest_ms FROM catalog_log_bounds WHERE id = 1", &[])?;
    row.map_or(Ok(0), |row| row.get(0))
}

/// Returns the error for a moment before the start of the log.
#[must_use]
pub fn too_old(bounds: TimelineBounds) -> CatalogError {
    let oldest = bounds.oldest;
    let message = format!("the log does not go back so far: it can be read after {oldest}");
    CatalogError::new(ErrorReason::Gone, message)
}

/// Numbers visible lines without a number, in databases in which writing does not number them.
///
/// # Errors
/// If the store cannot be used.
pub(super) async fn number_lines(database: &CatalogDatabase) -> Result<()> {
    if !database.is_shared_by_servers() {
        return Ok(());
    }
    let is_done = database.read("catalog.unnumbered", |it| {
        let sql = "SELECT seq FROM catalog_log WHERE pos IS NULL LIMIT 1";
        Ok(it.query_one(sql, &[])?.is_none())
    });
    if is_done.await? {
        return Ok(());
    }
    loop {
        match database.sql_store().transact_idempotent("catalog.number", number_some).await {
            Ok(count) if i64::try_from(count).is_ok_and(|count| count < STEP) => return Ok(()),
            Ok(_) => {}
            // Another server numbers the same lines; they have their numbers when it has finished.
            Err(error @ SqlStoreError::Contended { .. }) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "lost a numbering");
                return Ok(());
            }
            Err(error) => return Err(database_failure(error)),
        }
    }
}

/// Assigns the next numbers to lines in the order in which they were written, which is the order of
/// commits for changes of one object.
fn number_some(it: &mut dyn StoreTransaction) -> std::result::Result<u64, SqlStoreError> {
    // Done first, so that of two servers one waits or has to retry.
    let sql = "UPDATE catalog_log_bounds SET newest = newest WHERE id = 1";
    it.execute(sql, &[])?;
    let TimelineBounds { newest, .. } = bounds(it)?;
    let sql = "UPDATE catalog_log SET pos = CAST($1 AS BIGINT) + numbered.place FROM (\
        SELECT seq, ROW_NUMBER() OVER (ORDER BY seq) AS place FROM catalog_log \
        WHERE pos IS NULL ORDER BY seq LIMIT $2) AS numbered \
        WHERE catalog_log.seq = numbered.seq";
    let count = it.execute(sql, &[SqlValue::Int(newest), SqlValue::Int(STEP)])?;
    let newest = newest.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    let sql = "UPDATE catalog_log_bounds SET newest = $1 WHERE id = 1";
    it.execute(sql, &[SqlValue::Int(newest)])?;
    Ok(count)
}

pub(super) fn trim_some(
    it: &mut dyn StoreTransaction,
    before_ms: u64,
) -> std::result::Result<u64, SqlStoreError> {
    let column = number_column(it.dialect());
    // Numbers have no gaps, so a range of numbers is a range of lines of that size.
    let end = bounds(it)?.oldest.saturating_add(STEP);
    let sql = format!(
        "SELECT {column} FROM catalog_log WHERE {column} <= $1 AND at_ms >= $2 \
         ORDER BY {column} LIMIT 1"
    );
    let young = it.query_one(&sql, &[SqlValue::Int(end), ms(before_ms)])?;
    let last = match young {
        Some(row) => row.get::<i64>(0)?.saturating_sub(1),
        None => end,
    };
    let sql = format!("SELECT MAX({column}), MAX(at_ms) FROM catalog_log WHERE {column} <= $1");
    let Some(row) = it.query_one(&sql, &[SqlValue::Int(last)])? else { return Ok(0) };
    let Some(last) = row.get::<Option<i64>>(0)? else { return Ok(0) };
    let youngest = row.get::<Option<u64>>(1)?.unwrap_or_default().max(removed_ms(it)?);
    let sql = "UPDATE catalog_log_bounds SET oldest = $1, oldest_ms = $2 WHERE id = 1";
    it.execute(sql, &[SqlValue::Int(last), ms(youngest)])?;
    it.execute(&format!("DELETE FROM catalog_log WHERE {column} <= $1"), &[SqlValue::Int(last)])
}
