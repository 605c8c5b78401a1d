//! Jobs that look after tables: a row for each, with its report, so that it is found after its
//! server has ended.

use node::store::{Migration, Row, StoreError, Value};

use super::{CatalogStore, ms};
use crate::error::Result;

/// Whose tables they are.
pub(super) const SERVICE: &str = "catalog-jobs";

/// What brings the table to its newest version; only ever added to.
pub(super) const MIGRATIONS: &[Migration] = &[Migration::Same(
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
)];

/// Jobs of a warehouse that are kept, those that are under way not counted.
pub const JOBS_KEPT_MAX: i64 = 64;

/// A job as its server has last written it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Names it.
    pub id: String,
    /// In which warehouse, by its id.
    pub warehouse: String,
    /// Who asked for it.
    pub owner: String,
    /// What it has done, as JSON.
    pub report: Vec<u8>,
    /// When it was asked for, in milliseconds since 1970.
    pub created_ms: u64,
    /// When its server last wrote it down, in milliseconds since 1970.
    pub beat_ms: u64,
}

const COLUMNS: &str = "id, warehouse, owner, report, created_ms, beat_ms";

fn job(row: &Row) -> std::result::Result<JobRow, StoreError> {
    let time = |column| Ok::<_, StoreError>(u64::try_from(row.get::<i64>(column)?).unwrap_or(0));
    Ok(JobRow {
        id: row.get(0)?,
        warehouse: row.get(1)?,
        owner: row.get(2)?,
        report: row.get(3)?,
        created_ms: time(4)?,
        beat_ms: time(5)?,
    })
}

impl CatalogStore {
    /// Writes a new job down. Makes room by forgetting the oldest that were not written down since
    /// `stale_ms`.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn insert_job(&self, row: JobRow, stale_ms: u64) -> Result<()> {
        let written = self.store.transact("catalog.insert_job", move |it| {
            let sql = "DELETE FROM catalog_jobs WHERE warehouse = $1 AND beat_ms < $2 \
                AND id NOT IN (SELECT id FROM catalog_jobs WHERE warehouse = $1 \
                ORDER BY created_ms DESC, id DESC LIMIT $3)";
            let room = Value::Int(JOBS_KEPT_MAX - 1);
            it.execute(sql, &[Value::from(&row.warehouse), ms(stale_ms), room])?;
            let sql = "INSERT INTO catalog_jobs \
                (id, warehouse, owner, report, stopped, created_ms, beat_ms) \
                VALUES ($1, $2, $3, $4, 0, $5, $6)";
            let values = [
                Value::from(&row.id),
                Value::from(&row.warehouse),
                Value::from(&row.owner),
                Value::from(row.report.clone()),
                ms(row.created_ms),
                ms(row.beat_ms),
            ];
            it.execute(sql, &values).map(drop)
        });
        Ok(written.await?)
    }

    /// Writes down how far a job is. Answers whether somebody told it to stop.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn beat_job(&self, id: &str, report: Vec<u8>, now_ms: u64) -> Result<bool> {
        let id = Value::from(id);
        let written = self.store.transact("catalog.beat_job", move |it| {
            let sql = "UPDATE catalog_jobs SET report = $2, beat_ms = $3 WHERE id = $1";
            it.execute(sql, &[id.clone(), Value::from(report.clone()), ms(now_ms)])?;
            let sql = "SELECT stopped FROM catalog_jobs WHERE id = $1";
            let row = it.query_one(sql, std::slice::from_ref(&id))?;
            Ok(row.map(|row| row.get::<i64>(0)).transpose()? == Some(1))
        });
        Ok(written.await?)
    }

    /// Has a job's server told to stop it.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn stop_job(&self, id: &str) -> Result<()> {
        let id = Value::from(id);
        let written = self.store.transact("catalog.stop_job", move |it| {
            let sql = "UPDATE catalog_jobs SET stopped = 1 WHERE id = $1";
            it.execute(sql, std::slice::from_ref(&id)).map(drop)
        });
        Ok(written.await?)
    }

    /// A job, if there is one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn job(&self, id: &str) -> Result<Option<JobRow>> {
        let id = Value::from(id);
        let read = self.store.read("catalog.job", move |it| {
            let sql = format!("SELECT {COLUMNS} FROM catalog_jobs WHERE id = $1");
            it.query_one(&sql, std::slice::from_ref(&id))?.as_ref().map(job).transpose()
        });
        Ok(read.await?)
    }

    /// Jobs of a warehouse, the newest first, at most `limit`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn jobs(&self, warehouse: &str, limit: usize) -> Result<Vec<JobRow>> {
        let (warehouse, limit) = (Value::from(warehouse), i64::try_from(limit).unwrap_or(i64::MAX));
        let read = self.store.read("catalog.jobs", move |it| {
            let sql = format!(
                "SELECT {COLUMNS} FROM catalog_jobs WHERE warehouse = $1 \
                 ORDER BY created_ms DESC, id DESC LIMIT $2"
            );
            it.query(&sql, &[warehouse.clone(), Value::Int(limit)])?.iter().map(job).collect()
        });
        Ok(read.await?)
    }
}
