//! A window onto the table, for a schedule that several servers share.
//!
//! The window holds the first jobs of some tenants. It is read again after [`AGE_MAX`], and at once
//! when it no longer determines whose turn it is. Its content is a proposal: a claim is a
//! compare-and-set, and a job that another server took is skipped.

use std::collections::HashMap;
use std::time::Duration;

use api::ExecutionId;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::super::ClaimQuota;
use super::super::schedule::{JobSchedule, WaitingJob, rank};
use super::attempt::{HELD, RunningJob};
use super::schema::number;

/// Maximum age of the window: jobs that other servers accept are seen within this time.
pub(super) const AGE_MAX: Duration = Duration::from_millis(100);

/// Maximum number of tenants in the window. If more wait, the window moves through them.
const TENANTS_MAX: usize = 64;

/// Maximum number of jobs of each tenant in the window.
const JOBS_MAX: usize = 64;

/// The window.
#[derive(Debug)]
pub(super) struct ScheduleWindow {
    schedule: JobSchedule,
    ageing: Duration,
    /// Time of the last read.
    read_ms: Option<u64>,
    /// Last job in the window of each tenant that has more jobs than the window.
    edges: HashMap<String, (i64, u64, ExecutionId)>,
    /// Number of turns until the window moves on, one for each of its tenants; None if all tenants
    /// are in the window.
    turns_left: Option<usize>,
    /// The last tenant that was read, as stored.
    cursor: String,
}

/// Page that was read from the table.
#[derive(Debug)]
pub(super) struct WindowPage {
    jobs: Vec<WaitingJob>,
    cursor: String,
    more_tenants: bool,
}

impl ScheduleWindow {
    pub(super) fn new(ageing: Duration) -> ScheduleWindow {
        ScheduleWindow {
            schedule: JobSchedule::new(ageing),
            ageing,
            read_ms: None,
            edges: HashMap::new(),
            turns_left: None,
            cursor: String::new(),
        }
    }

    /// Returns the position at which the next window begins.
    pub(super) fn cursor(&self) -> String {
        self.cursor.clone()
    }

    /// Returns whether it must be read before a job is taken from it.
    pub(super) fn is_stale(&self, now_ms: u64) -> bool {
        let age_max = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
        let is_fresh = |at| now_ms >= at && now_ms - at < age_max;
        // Nothing is lost by reading an empty window again, and others may have added jobs.
        !self.read_ms.is_some_and(is_fresh) || self.is_spent() || self.schedule.is_empty()
    }

    /// Returns whether it has no more jobs of a tenant that has more.
    fn is_spent(&self) -> bool {
        self.edges.keys().any(|tenant| self.schedule.of_tenant(tenant) == 0)
            || self.turns_left == Some(0)
    }

    /// Returns whether each of its tenants had its turn, and there are other tenants.
    pub(super) fn moves_on(&self) -> bool {
        self.turns_left == Some(0)
    }

    /// Makes the window stale, so that it is read again before a job is taken from it.
    pub(super) fn forget_age(&mut self) {
        self.read_ms = None;
    }

    /// Replaces the window. The order of turns is kept.
    pub(super) fn show(&mut self, page: WindowPage, now_ms: u64) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        self.edges.clear();
        for job in &page.jobs {
            let count = counts.entry(&job.tenant).or_default();
            *count += 1;
            if *count == JOBS_MAX {
                self.edges.insert(job.tenant.clone(), key(job, self.ageing));
            }
        }
        self.turns_left = page.more_tenants.then_some(counts.len());
        self.schedule.clear();
        for job in page.jobs {
            self.schedule.insert(job);
        }
        self.cursor = page.cursor;
        self.read_ms = Some(now_ms);
    }

    /// Adds a job that began to wait, if no job outside of the window can precede it.
    pub(super) fn insert(&mut self, job: WaitingJob) {
        let unseen = match self.edges.get(&job.tenant) {
            Some(edge) => key(&job, self.ageing) > *edge,
            None => self.turns_left.is_some() && self.schedule.of_tenant(&job.tenant) == 0,
        };
        if !unseen {
            self.schedule.insert(job);
        }
    }

    /// Removes a job that no longer waits.
    pub(super) fn remove(&mut self, id: &ExecutionId) {
        self.schedule.remove(id);
    }

    /// Takes up to `count_max` jobs, fewer if the window must be read again first.
    pub(super) fn take(
        &mut self,
        count_max: usize,
        quota: &mut ClaimQuota,
        now_ms: u64,
    ) -> Vec<WaitingJob> {
        let mut taken = Vec::new();
        while taken.len() < count_max && !self.is_spent() {
            let mut next = self.schedule.take(1, quota, now_ms);
            self.turns_left = self.turns_left.map(|turns| turns.saturating_sub(next.turns));
            let Some(job) = next.jobs.pop() else {
                break;
            };
            taken.push(job);
        }
        taken
    }

    /// Returns whether no more jobs are known to wait.
    pub(super) fn is_empty(&self) -> bool {
        self.schedule.is_empty() && self.edges.is_empty() && self.turns_left.is_none()
    }
}

fn key(job: &WaitingJob, ageing: Duration) -> (i64, u64, ExecutionId) {
    (rank(job.priority, job.created_ms, ageing), job.created_ms, job.id.clone())
}

/// Reads the first jobs of the tenants after `cursor`, wrapping around at the end. Walks from
/// tenant to tenant along the index, so that its cost does not grow with the number of waiting
/// jobs.
pub(super) fn read(
    transaction: &mut dyn StoreTransaction,
    cursor: &str,
    now_ms: u64,
) -> Result<WindowPage, SqlStoreError> {
    let mut tenants = tenants_after(transaction, cursor)?;
    let mut more_tenants = tenants.len() > TENANTS_MAX;
    if !more_tenants && !cursor.is_empty() {
        let from_start = tenants_after(transaction, "")?;
        // The column compares bytes in every database, and so does this.
        let earlier = from_start.into_iter().take_while(|tenant| tenant.as_str() <= cursor);
        tenants.extend(earlier);
        more_tenants = tenants.len() > TENANTS_MAX;
    }
    tenants.truncate(TENANTS_MAX);
    let jobs_of = format!(
        "SELECT {HELD} FROM execution_jobs
        WHERE state = 'queued' AND tenant = $1 AND (expires_ms IS NULL OR expires_ms > $2)
        ORDER BY rank, created_ms, id LIMIT {JOBS_MAX}"
    );
    let mut jobs = Vec::new();
    for tenant in &tenants {
        let rows = transaction.query(&jobs_of, &[tenant.into(), number(now_ms)])?;
        for row in &rows {
            jobs.push(RunningJob::of(row)?.job);
        }
    }
    // If all tenants fit, reading begins at the start again, so that no tenant's place depends on
    // its name.
    let last = tenants.pop().filter(|_| more_tenants);
    Ok(WindowPage { jobs, cursor: last.unwrap_or_default(), more_tenants })
}

/// Returns one tenant more than fit, to show whether there are more. Names are as stored.
fn tenants_after(
    transaction: &mut dyn StoreTransaction,
    cursor: &str,
) -> Result<Vec<String>, SqlStoreError> {
    let sql = format!(
        "WITH RECURSIVE walk AS (
            SELECT MIN(tenant) AS tenant, 1 AS step FROM execution_jobs
            WHERE state = 'queued' AND tenant > $1
            UNION ALL
            SELECT (
                SELECT MIN(tenant) FROM execution_jobs
                WHERE state = 'queued' AND tenant > walk.tenant
            ), step + 1
            FROM walk WHERE walk.tenant IS NOT NULL AND step <= {TENANTS_MAX}
        )
        SELECT tenant FROM walk WHERE tenant IS NOT NULL"
    );
    let rows = transaction.query(&sql, &[SqlValue::from(cursor)])?;
    rows.iter().map(|row| row.get(0)).collect()
}
