//! Stored jobs: the progress of a job is stored while it runs, so that it is found by other
//! servers, and after its server has stopped.
//!
//! A job that its server did not finish is interrupted. No server resumes it: rights are those of
//! the requesting principal, which is no longer there to be checked. Repeating the request does the
//! remaining work, since finished work is not repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::job_registry::{JobReport, JobState, MaintenanceJob};
use super::maintenance::MaintenanceService;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{JOBS_KEPT_MAX, JobRow, JobText};
use crate::warehouse::Warehouse;

/// Interval at which a job's progress is stored.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// Time since its last write after which a job counts as interrupted, in milliseconds.
const STALE_MS: u64 = 60_000;
/// Most entries of each list that are stored.
const ITEMS_KEPT_MAX: usize = 1000;
/// Most bytes of each list that are stored, as JSON.
const LIST_BYTES_MAX: usize = 128 << 10;
/// Most attempts to store the end of a job.
const LAST_WRITES_MAX: usize = 5;
/// Most jobs in a list: those that are stored, and some that are running.
const LISTED_MAX: usize = 256;

impl JobReport {
    /// Returns the stored form.
    fn text(&self) -> Result<JobText> {
        let json = |it: &JobReport| serde_json::to_vec(it).map_err(CatalogError::internal);
        let mut kept = self.figures();
        kept.items = first(&self.items)?;
        kept.failures = first(&self.failures)?;
        kept.is_truncated |= kept.items.len() < self.items.len();
        let figures = json(&kept.figures())?;
        Ok(JobText { report: json(&kept)?, figures, is_over: self.state.is_over() })
    }
}

/// Returns the part of a list that is stored.
fn first<T: Clone + Serialize>(all: &[T]) -> Result<Vec<T>> {
    let (mut kept, mut room) = (Vec::new(), LIST_BYTES_MAX);
    for it in all.iter().take(ITEMS_KEPT_MAX) {
        let bytes = serde_json::to_vec(it).map_err(CatalogError::internal)?.len();
        let Some(left) = room.checked_sub(bytes) else { break };
        room = left;
        kept.push(it.clone());
    }
    Ok(kept)
}

impl MaintenanceService {
    /// Stores a new job, before it begins.
    pub(super) async fn keep_job(&self, job: &MaintenanceJob) -> Result<()> {
        let (row, figures) = {
            let report = job.report.lock();
            let text = report.text()?;
            let row = JobRow {
                id: report.id.clone(),
                warehouse: job.warehouse.to_string(),
                owner: job.owner.to_string(),
                report: text.report,
                created_ms: report.created_ms,
                beat_ms: self.0.clock.now_ms(),
            };
            (row, text.figures)
        };
        let stale_ms = row.beat_ms.saturating_sub(STALE_MS);
        self.0.job_store.insert_job(row, figures, stale_ms).await
    }

    /// Stores a job's progress at intervals, and stops the job if another server has requested
    /// that. Runs until it is dropped.
    pub(super) async fn beat(&self, job: &MaintenanceJob) {
        loop {
            tokio::time::sleep(BEAT_EVERY).await;
            self.write_job(job).await;
        }
    }

    /// Stores the end of a job; no one else does so later.
    pub(super) async fn write_last(&self, job: &MaintenanceJob) {
        for _ in 0..LAST_WRITES_MAX {
            if self.write_job(job).await {
                return;
            }
            tokio::time::sleep(BEAT_EVERY).await;
        }
    }

    /// Stores a job's progress. Returns whether that succeeded.
    pub(super) async fn write_job(&self, job: &MaintenanceJob) -> bool {
        let (id, text) = {
            let report = job.report.lock();
            (report.id.clone(), report.text())
        };
        let written = match text {
            Ok(text) => self.0.job_store.beat_job(&id, text, self.0.clock.now_ms()).await,
            Err(error) => Err(error),
        };
        match &written {
            Ok(true) => job.is_cancelled.store(true, Ordering::Relaxed),
            Ok(false) => {}
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, job = %id, "how far a job is cannot be written down");
            }
        }
        written.is_ok()
    }

    /// Returns the present report of a stored job.
    fn report_of(&self, row: &JobRow) -> Result<JobReport> {
        let mut report: JobReport =
            serde_json::from_slice(&row.report).map_err(CatalogError::internal)?;
        // If no other server shares the store, the job belongs to an earlier run of this server.
        let is_stale =
            !self.0.is_shared || row.beat_ms < self.0.clock.now_ms().saturating_sub(STALE_MS);
        if is_stale && !report.state.is_over() {
            report.state = JobState::Interrupted;
        }
        Ok(report)
    }

    /// Returns the progress of a job.
    ///
    /// # Errors
    /// `Forbidden` unless the caller started it or manages the warehouse; `NotFound`.
    pub async fn maintenance(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        id: &str,
    ) -> Result<JobReport> {
        match self.job(who, warehouse, id).await? {
            JobLocation::Own(job) => Ok(job.report.lock().clone()),
            JobLocation::Kept(row) => self.report_of(&row),
        }
    }

    /// Returns the jobs of a warehouse with their counters only, newest first.
    ///
    /// # Errors
    /// `Forbidden` unless the principal may manage the warehouse.
    pub async fn maintenance_jobs(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
    ) -> Result<Vec<JobReport>> {
        self.0.rights.allow(who, warehouse, AccessRight::Manage, RightTarget::Warehouse)?;
        let rows = self.0.job_store.list(warehouse.id(), LISTED_MAX).await?;
        let report = |row: &JobRow| match self.0.jobs.find(&row.id) {
            Some(job) => Ok(job.report.lock().figures()),
            None => self.report_of(row).map(JobReport::without_lists),
        };
        rows.iter().map(report).collect()
    }

    /// Requests that a job stops before the next table, or the next step of one. A job of another
    /// server stops a little later; a finished one is not changed.
    ///
    /// # Errors
    /// Those of [`MaintenanceService::maintenance`].
    pub async fn cancel_maintenance(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        id: &str,
    ) -> Result<()> {
        match self.job(who, warehouse, id).await? {
            JobLocation::Own(job) => job.is_cancelled.store(true, Ordering::Relaxed),
            JobLocation::Kept(row) => self.0.job_store.stop_job(&row.id).await?,
        }
        Ok(())
    }

    async fn job(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        id: &str,
    ) -> Result<JobLocation> {
        let found = match self.0.jobs.find(id) {
            Some(job) => Some(JobLocation::Own(job)),
            None => self.0.job_store.job(id).await?.map(JobLocation::Kept),
        };
        let found = found.filter(|it| it.place().0 == &**warehouse.id());
        if found.as_ref().is_none_or(|it| it.place().1 != &*who.id) {
            self.0.rights.allow(who, warehouse, AccessRight::Manage, RightTarget::Warehouse)?;
        }
        found.ok_or_else(|| {
            let excerpt: String = id.chars().take(100).collect();
            CatalogError::new(ErrorReason::NotFound, format!("there is no job {excerpt}"))
        })
    }
}

/// Source of a job.
enum JobLocation {
    /// A job of this server.
    Own(Arc<MaintenanceJob>),
    /// From the store: a job of another server, or of an earlier run of this one.
    Kept(JobRow),
}

impl JobLocation {
    /// Returns the id of its warehouse, and its owner.
    fn place(&self) -> (&str, &str) {
        match self {
            JobLocation::Own(job) => (&job.warehouse, &job.owner),
            JobLocation::Kept(row) => (&row.warehouse, &row.owner),
        }
    }
}

/// All stored jobs fit into a list.
const _: () = assert!(JOBS_KEPT_MAX <= 256 && LISTED_MAX >= 256);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::job_registry::{MaintenanceFailure, MaintenanceItem};

    #[test]
    fn what_is_written_down_of_a_job_has_a_bound_in_bytes() {
        for (count, bytes, is_truncated) in
            [(10, 10, false), (ITEMS_KEPT_MAX + 1, 10, true), (ITEMS_KEPT_MAX, 8000, true)]
        {
            let (table, name) = ("t".to_owned(), "x".repeat(bytes));
            let failure = MaintenanceFailure { table: table.clone(), message: name.clone() };
            let item = MaintenanceItem { table, kind: "file".into(), name };
            let report = JobReport {
                id: "mj_1".to_owned(),
                state: JobState::Done,
                dry_run: true,
                created_ms: 1,
                tables_total: 1,
                tables_done: 1,
                snapshots: 0,
                refs: 0,
                files: 7,
                items: vec![item; count],
                is_truncated: false,
                failures: vec![failure; count],
            };
            let text = report.text().unwrap();
            assert!(text.is_over && text.figures.len() < 1000, "{count} {bytes}");
            assert!(text.report.len() < 3 * LIST_BYTES_MAX, "{count} {bytes}");
            let kept: JobReport = serde_json::from_slice(&text.report).unwrap();
            assert_eq!(kept.is_truncated, is_truncated, "{count} {bytes}");
            assert!(!kept.items.is_empty() && !kept.failures.is_empty(), "{count} {bytes}");
            let figures: JobReport = serde_json::from_slice(&text.figures).unwrap();
            assert_eq!((figures.files, figures.items.len()), (7, 0), "{count} {bytes}");
            assert_eq!(figures.is_truncated, is_truncated, "{count} {bytes}");
        }
    }
}
