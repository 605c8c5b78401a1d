//! Maintenance jobs of this server, and their reports.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iceberg::ident::TableIdent;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::error::{CatalogError, ErrorReason, Result};

/// Most jobs in memory, running or not.
pub const JOBS_MAX: usize = 64;
/// Most concurrent jobs.
pub const RUNNING_MAX: usize = 2;
/// Most entries of a job's list; further ones are only counted.
pub const ITEMS_MAX: usize = 10_000;

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Waiting for others.
    Queued,
    /// Under way.
    Running,
    /// Through all tables.
    Done,
    /// Stopped on request.
    Cancelled,
    /// Interrupted by the end of its server.
    Interrupted,
}

impl JobState {
    /// Returns whether the job is finished.
    pub(super) fn is_over(self) -> bool {
        match self {
            JobState::Queued | JobState::Running => false,
            JobState::Done | JobState::Cancelled | JobState::Interrupted => true,
        }
    }
}

/// Item that is removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MaintenanceItem {
    /// Table.
    pub table: String,
    /// `snapshot`, `ref`, `file` or `metadata-file`.
    pub kind: Cow<'static, str>,
    /// Id, name or location.
    pub name: String,
}

/// Why something of a table was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceFailure {
    /// Table.
    pub table: String,
    /// Why.
    pub message: String,
}

/// A job as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobReport {
    /// Names it.
    pub id: String,
    /// State.
    pub state: JobState,
    /// True if the job changes nothing.
    pub dry_run: bool,
    /// Time of the request, in milliseconds since 1970.
    pub created_ms: u64,
    /// Number of tables to process.
    pub tables_total: usize,
    /// Number of processed tables.
    pub tables_done: usize,
    /// Snapshots that went, or would go.
    pub snapshots: u64,
    /// Branches and tags that went, or would go.
    pub refs: u64,
    /// Files that went, or would go.
    pub files: u64,
    /// The first [`ITEMS_MAX`] of all that.
    pub items: Vec<MaintenanceItem>,
    /// True if there is more than is listed.
    pub is_truncated: bool,
    /// Failures; the first [`ITEMS_MAX`].
    pub failures: Vec<MaintenanceFailure>,
}

impl JobReport {
    /// Returns the report with figures only.
    #[must_use]
    pub fn without_lists(self) -> JobReport {
        JobReport { items: Vec::new(), failures: Vec::new(), ..self }
    }

    /// Returns a copy with figures only.
    pub(super) fn figures(&self) -> JobReport {
        JobReport { id: self.id.clone(), items: Vec::new(), failures: Vec::new(), ..*self }
    }
}

/// Jobs of this server.
#[derive(Debug)]
pub(super) struct MaintenanceJobs {
    pub(super) all: Mutex<HashMap<String, Arc<MaintenanceJob>>>,
    pub(super) permits: Semaphore,
}

/// A job of this server, and the principal that requested it.
#[derive(Debug)]
pub(super) struct MaintenanceJob {
    pub(super) owner: Arc<str>,
    pub(super) warehouse: Arc<str>,
    pub(super) is_cancelled: AtomicBool,
    pub(super) report: Mutex<JobReport>,
}

impl Default for MaintenanceJobs {
    fn default() -> MaintenanceJobs {
        MaintenanceJobs { all: Mutex::default(), permits: Semaphore::new(RUNNING_MAX) }
    }
}

impl MaintenanceJobs {
    /// Prevents jobs from starting while the returned permit is held.
    #[cfg(test)]
    pub(super) async fn hold(&self) -> tokio::sync::SemaphorePermit<'_> {
        let all = u32::try_from(RUNNING_MAX).unwrap();
        self.permits.acquire_many(all).await.unwrap()
    }

    /// Returns a job of this server.
    pub(super) fn find(&self, id: &str) -> Option<Arc<MaintenanceJob>> {
        self.all.lock().get(id).cloned()
    }

    /// Inserts a new job, and evicts a finished one if there are many.
    pub(super) fn insert(&self, id: &str, job: &Arc<MaintenanceJob>) -> Result<()> {
        let mut all = self.all.lock();
        if all.len() >= JOBS_MAX {
            let ended = all.iter().filter_map(|(id, job)| {
                let report = job.report.lock();
                report.state.is_over().then(|| (report.created_ms, id.clone()))
            });
            let oldest = ended.min().ok_or_else(|| {
                let message = format!("there are {JOBS_MAX} jobs already: wait for one, or cancel");
                CatalogError::new(ErrorReason::ServiceUnavailable, message)
            })?;
            all.remove(&oldest.1);
        }
        all.insert(id.to_owned(), Arc::clone(job));
        Ok(())
    }
}

impl MaintenanceJob {
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, table: &TableIdent, kind: &'static str, names: &[String]) {
        let mut report = self.report.lock();
        let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        match kind {
            "snapshot" => report.snapshots += count,
            "ref" => report.refs += count,
            _ => report.files += count,
        }
        let room = ITEMS_MAX.saturating_sub(report.items.len());
        report.is_truncated |= names.len() > room;
        let table = table.to_string();
        let item = |name: &String| MaintenanceItem {
            table: table.clone(),
            kind: kind.into(),
            name: name.clone(),
        };
        report.items.extend(names.iter().take(room).map(item));
    }

    pub(super) fn fail(&self, table: &TableIdent, message: impl Into<String>) {
        let mut report = self.report.lock();
        if report.failures.len() < ITEMS_MAX {
            let (table, message) = (table.to_string(), message.into());
            report.failures.push(MaintenanceFailure { table, message });
        }
    }
}
