//! Maintenance jobs: a row for each, with its report, so that it is found after its server has
//! stopped.

use node::store::{MigrationStep, SqlRow, SqlStoreError, SqlValue};

use super::queries::{ms, no_such_warehouse};
use crate::database::CatalogDatabase;
use crate::error::Result;

/// Service that owns the tables.
pub(super) const SERVICE: &str = "catalog-jobs";

/// Migrations of the table; append only.
pub(super) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE catalog_jobs (
            id TEXT NOT NULL PRIMARY KEY,
            warehouse TEXT NOT NULL,
            owner TEXT NOT NULL,
            report BYTEA NOT NULL,
            stopped BIGINT NOT NULL,
            created_ms BIGINT NOT NULL,
            beat_ms BIGINT NOT NULL
        );
        CREATE INDEX catalog_jobs_warehouse ON catalog_jobs (warehouse, created_ms)",
    ),
    MigrationStep::Same(
        "ALTER TABLE catalog_jobs ADD COLUMN figures BYTEA;
        ALTER TABLE catalog_jobs ADD COLUMN is_over BIGINT NOT NULL DEFAULT 0",
    ),
];

/// Most finished jobs of a warehouse that are kept.
pub const JOBS_KEPT_MAX: i64 = 64;

/// A job, as last stored by its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Id.
    pub id: String,
    /// Id of its warehouse.
    pub warehouse: String,
    /// Principal that requested it.
    pub owner: String,
    /// Report as JSON; in a list of jobs, without lists.
    pub report: Vec<u8>,
    /// Time of the request, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of its server's last write, in milliseconds since 1970.
    pub beat_ms: u64,
}

/// Stored form of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobText {
    /// Report, as JSON.
    pub report: Vec<u8>,
    /// Report without lists, which a list of jobs shows.
    pub figures: Vec<u8>,
    /// True if the job is finished.
    pub is_over: bool,
}

fn job(row: &SqlRow) -> std::result::Result<JobRow, SqlStoreError> {
    let time = |column| Ok::<_, SqlStoreError>(u64::try_from(row.get::<i64>(column)?).unwrap_or(0));
    Ok(JobRow {
        id: row.get(0)?,
        warehouse: row.get(1)?,
        owner: row.get(2)?,
        report: row.get(3)?,
        created_ms: time(4)?,
        beat_ms: time(5)?,
    })
}

/// Maintenance jobs, in the store.
#[derive(Clone, Debug)]
pub(crate) struct JobStore(pub(super) CatalogDatabase);

impl JobStore {
    /// Stores a new job. Removes the oldest jobs that are finished or were not updated since
    /// `stale_ms` to make room.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; if the store cannot be written.
    pub(crate) async fn insert_job(
        &self,
        row: JobRow,
        figures: Vec<u8>,
        stale_ms: u64,
    ) -> Result<()> {
        let written = self.0.transact("catalog.insert_job", move |it| {
            let warehouse = [SqlValue::from(&row.warehouse)];
            let sql = "SELECT 1 FROM catalog_warehouses WHERE id = $1";
            if it.query_one(sql, &warehouse)?.is_none() {
                return Err(SqlStoreError::refuse(no_such_warehouse(&row.warehouse)));
            }
            let sql = "DELETE FROM catalog_jobs WHERE warehouse = $1 \
                AND (beat_ms < $2 OR is_over = 1) AND id NOT IN (SELECT id FROM catalog_jobs \
                WHERE warehouse = $1 ORDER BY created_ms DESC, id DESC LIMIT $3)";
            let room = SqlValue::Int(JOBS_KEPT_MAX - 1);
            it.execute(sql, &[SqlValue::from(&row.warehouse), ms(stale_ms), room])?;
            let sql = "INSERT INTO catalog_jobs \
                (id, warehouse, owner, report, stopped, created_ms, beat_ms, figures) \
                VALUES ($1, $2, $3, $4, 0, $5, $6, $7)";
            let values = [
                SqlValue::from(&row.id),
                SqlValue::from(&row.warehouse),
                SqlValue::from(&row.owner),
                SqlValue::from(row.report.clone()),
                ms(row.created_ms),
                ms(row.beat_ms),
                SqlValue::from(figures.clone()),
            ];
            it.execute(sql, &values).map(drop)
        });
        written.await
    }

    /// Stores the progress of a job. A finished job is not changed by a late update. Returns
    /// whether a stop was requested.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn beat_job(&self, id: &str, text: JobText, now_ms: u64) -> Result<bool> {
        let id = SqlValue::from(id);
        let written = self.0.transact("catalog.beat_job", move |it| {
            let sql = "UPDATE catalog_jobs \
                SET report = $2, beat_ms = $3, figures = $4, is_over = $5 \
                WHERE id = $1 AND is_over = 0";
            let JobText { report, figures, is_over } = text.clone();
            let is_over = SqlValue::Int(i64::from(is_over));
            it.execute(sql, &[id.clone(), report.into(), ms(now_ms), figures.into(), is_over])?;
            let sql = "SELECT stopped FROM catalog_jobs WHERE id = $1";
            let row = it.query_one(sql, std::slice::from_ref(&id))?;
            Ok(row.map(|row| row.get::<i64>(0)).transpose()? == Some(1))
        });
        written.await
    }

    /// Requests that a job's server stops it.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn stop_job(&self, id: &str) -> Result<()> {
        let id = SqlValue::from(id);
        let written = self.0.transact("catalog.stop_job", move |it| {
            let sql = "UPDATE catalog_jobs SET stopped = 1 WHERE id = $1";
            it.execute(sql, std::slice::from_ref(&id)).map(drop)
        });
        written.await
    }

    /// Returns a job, if it exists.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn job(&self, id: &str) -> Result<Option<JobRow>> {
        let id = SqlValue::from(id);
        let read = self.0.read("catalog.job", move |it| {
            let sql = "SELECT id, warehouse, owner, report, created_ms, beat_ms \
                FROM catalog_jobs WHERE id = $1";
            it.query_one(sql, std::slice::from_ref(&id))?.as_ref().map(job).transpose()
        });
        read.await
    }

    /// Returns the jobs of a warehouse without lists, newest first, at most `limit`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn list(&self, warehouse: &str, limit: usize) -> Result<Vec<JobRow>> {
        let (warehouse, limit) =
            (SqlValue::from(warehouse), i64::try_from(limit).unwrap_or(i64::MAX));
        let read = self.0.read("catalog.jobs", move |it| {
            // Servers of an earlier version store no figures.
            let sql = "SELECT id, warehouse, owner, COALESCE(figures, report), created_ms, beat_ms \
                FROM catalog_jobs WHERE warehouse = $1 \
                ORDER BY created_ms DESC, id DESC LIMIT $2";
            it.query(sql, &[warehouse.clone(), SqlValue::Int(limit)])?.iter().map(job).collect()
        });
        read.await
    }
}
