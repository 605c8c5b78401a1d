//! The operations of the queue: each is one transaction, followed by its effect on the schedule.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{ExecutionId, ExecutionState, Verdict};
use node::store::{SqlStore, SqlStoreError, SqlValue, StoreDialect, StoreTransaction};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;

use super::super::schedule::{JobSchedule, WaitingJob};
use super::super::{
    AttemptDisposition, AttemptResult, CancelAnswer, ClaimQuota, JobClaim, JobLease, LeaseRenewal,
    NewJob, PushOutcome, QueueConfig, QueueError, QueueSweepReport, WebhookDelivery,
};
use super::attempt::{self, AttemptOutcome};
use super::feed::{self, ScheduleWindow};
use super::room::{QueueLoad, QueueRoom};
use super::upkeep::{self, BATCH_MAX};
use super::{accept, reads, schema};

/// Maximum number of jobs that one claim takes: their requests are in memory together.
const CLAIM_MAX: usize = 256;

/// Maximum number of times that a claim reads the shared window before it returns the jobs that it
/// has.
const WINDOWS_MAX: usize = 4;

/// Maximum number of batches of each kind in one sweep; the next sweep handles the rest.
const SWEEP_BATCHES_MAX: usize = 20;

/// Maximum number of attempts of a push that collides with another push of the same idempotency
/// key.
const PUSH_ATTEMPTS_MAX: usize = 3;

/// Maximum age of the count of waiting jobs, if others share the store.
const COUNT_AGE_MAX: Duration = Duration::from_secs(1);

/// Polling interval for jobs of other servers that announce them: for jobs whose announcement was
/// lost, and for jobs that wait again.
const ANNOUNCED_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of a count that would refuse a job.
const REFUSING_COUNT_AGE_MAX: Duration = Duration::from_millis(100);

/// State that all clones of a queue share.
pub(super) struct SqlQueueShared {
    pub(super) store: SqlStore,
    config: QueueConfig,
    /// Jobs that are known to wait.
    order: Mutex<JobOrder>,
    /// Load of jobs that wait or are about to.
    room: Mutex<QueueRoom>,
    /// Time of the last count in `room`, if others share the store.
    counted_ms: Mutex<Option<u64>>,
    /// Notified when there may be a job to claim. Its one permit is for a worker that is about to
    /// wait.
    pub(super) changed: Notify,
    /// Whether other servers announce accepted jobs.
    are_announced: AtomicBool,
}

enum JobOrder {
    /// All waiting jobs.
    Whole(JobSchedule),
    /// Some of the waiting jobs.
    Window(ScheduleWindow),
}

impl SqlQueueShared {
    pub(super) fn new(store: SqlStore, config: QueueConfig) -> SqlQueueShared {
        let order = match store.dialect() {
            StoreDialect::Sqlite => JobOrder::Whole(JobSchedule::new(config.ageing)),
            StoreDialect::Postgres => JobOrder::Window(ScheduleWindow::new(config.ageing)),
        };
        SqlQueueShared {
            store,
            config,
            order: Mutex::new(order),
            room: Mutex::default(),
            counted_ms: Mutex::default(),
            changed: Notify::new(),
            are_announced: AtomicBool::new(false),
        }
    }

    /// Returns the interval at which an idle server polls for jobs of others.
    pub(super) fn poll_interval(&self) -> Duration {
        match self.are_announced.load(Ordering::Relaxed) {
            true => ANNOUNCED_LOOK_INTERVAL,
            false => feed::AGE_MAX,
        }
    }

    pub(super) fn rely_on_announcements(&self, are_announced: bool) {
        self.are_announced.store(are_announced, Ordering::Relaxed);
    }

    /// Makes the next claim read the window, and triggers it now.
    pub(super) fn wake(&self) {
        if let JobOrder::Window(feed) = &mut *self.order.lock() {
            feed.forget_age();
        }
        self.changed.notify_one();
    }

    /// Returns whether no other server uses the store.
    pub(super) fn is_alone(&self) -> bool {
        self.store.dialect() == StoreDialect::Sqlite
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, QueueError> {
        self.store.transact(name, body).await.map_err(unavailable)
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, QueueError> {
        self.store.read(name, body).await.map_err(unavailable)
    }

    /// Adds a waiting job that is in the table.
    fn waits(&self, job: WaitingJob) {
        match &mut *self.order.lock() {
            JobOrder::Whole(schedule) => schedule.insert(job),
            JobOrder::Window(feed) => feed.insert(job),
        }
    }

    /// Adds a job that waits again.
    fn waits_again(&self, job: WaitingJob) {
        self.room.lock().enter(&job.tenant, QueueLoad::one(job.bytes));
        self.waits(job);
        self.changed.notify_one();
    }

    /// Removes a job that no longer waits, according to the table.
    fn waits_no_more(&self, id: &ExecutionId, tenant: &str, bytes: u64) {
        match &mut *self.order.lock() {
            JobOrder::Whole(schedule) => schedule.remove(id),
            JobOrder::Window(feed) => feed.remove(id),
        }
        self.room.lock().leave(tenant, QueueLoad::one(bytes));
    }

    /// Ends attempts that an earlier process left running, and reads the waiting jobs.
    pub(super) async fn recover(&self, now_ms: u64) -> Result<(), SqlStoreError> {
        loop {
            let config = self.config.clone();
            let lost = self
                .store
                .transact("queue.recover", move |transaction| {
                    upkeep::lose_leases(transaction, u64::MAX, now_ms, &config)
                })
                .await?;
            if lost.is_empty() {
                break;
            }
            tracing::warn!(count = lost.len(), "executions were cut off by the server's end");
        }
        let mut after = SqlValue::from("");
        loop {
            let start = after.clone();
            let jobs = self
                .store
                .read("queue.recover", move |transaction| upkeep::waiting_jobs(transaction, &start))
                .await?;
            let Some(last) = jobs.last() else {
                return Ok(());
            };
            after = schema::text(&last.id.0);
            for job in jobs {
                self.waits_again(job);
            }
        }
    }

    pub(super) async fn push(&self, jobs: Vec<NewJob>) -> Result<Vec<PushOutcome>, QueueError> {
        let Some(now_ms) = jobs.iter().map(|job| job.created_ms).max() else {
            return Ok(Vec::new());
        };
        let jobs: Arc<[NewJob]> = jobs.into();
        let reserved = self.reserve(&jobs, now_ms).await?;
        let mut attempt = 1;
        let answer = loop {
            let (jobs, config) = (Arc::clone(&jobs), self.config.clone());
            let answer = self
                .store
                .transact("queue.push", move |transaction| {
                    accept::accept(transaction, &jobs, &config)
                })
                .await;
            match answer {
                // Another server has just written one of the keys; the next try finds it.
                Err(SqlStoreError::Constraint { .. })
                    if !self.is_alone() && attempt < PUSH_ATTEMPTS_MAX =>
                {
                    attempt += 1;
                }
                other => break other.map_err(unavailable),
            }
        };
        // The reservation becomes the new jobs, and its rest is released.
        let mut unused = reserved;
        if let Ok(pushed) = &answer {
            for (job, _) in jobs.iter().zip(pushed).filter(|(_, it)| **it == PushOutcome::New) {
                if let Some(load) = unused.get_mut(&job.tenant) {
                    *load = load.minus(QueueLoad::of(job));
                }
                self.waits(waiting(job));
            }
            self.changed.notify_one();
        }
        let mut room = self.room.lock();
        unused.iter().for_each(|(tenant, load)| room.leave(tenant, *load));
        drop(room);
        answer
    }

    /// Reserves room for the jobs that were not pushed before.
    async fn reserve(
        &self,
        jobs: &Arc<[NewJob]>,
        now_ms: u64,
    ) -> Result<BTreeMap<String, QueueLoad>, QueueError> {
        self.recount(COUNT_AGE_MAX, now_ms).await?;
        let wanted = by_tenant(jobs.iter());
        let answer = self.room.lock().reserve(&wanted, &self.config);
        if answer.is_ok() {
            return Ok(wanted);
        }
        // Possibly full: jobs that were pushed before need no room, and others may have made room.
        self.recount(REFUSING_COUNT_AGE_MAX, now_ms).await?;
        let all = Arc::clone(jobs);
        let known = self
            .read("queue.push", move |transaction| {
                all.iter().map(|job| Ok(accept::before(transaction, job)?.is_some())).collect()
            })
            .await?;
        let known: Vec<bool> = known;
        let mut keys = HashSet::new();
        let new = jobs.iter().zip(&known).filter(|(_, known)| !**known).map(|(job, _)| job);
        // Within the batch, too, only the first of a key is a new job.
        let first = new.filter(|job| match &job.idempotency {
            Some(idempotency) => keys.insert((&job.tenant, &idempotency.key)),
            None => true,
        });
        let wanted = by_tenant(first);
        self.room.lock().reserve(&wanted, &self.config)?;
        Ok(wanted)
    }

    /// Counts the waiting jobs, if others share the store and the last count is too old.
    async fn recount(&self, age_max: Duration, now_ms: u64) -> Result<(), QueueError> {
        if self.is_alone() {
            return Ok(());
        }
        {
            let mut counted_ms = self.counted_ms.lock();
            if counted_ms.is_some_and(|at| now_ms.saturating_sub(at) < milliseconds(age_max)) {
                return Ok(());
            }
            // Set before the count, so that only one caller counts.
            *counted_ms = Some(now_ms);
        }
        let tenants = self.read("queue.count", upkeep::waiting).await?;
        self.room.lock().recount(tenants);
        Ok(())
    }

    pub(super) async fn claim(
        &self,
        max: usize,
        mut quota: ClaimQuota,
        now_ms: u64,
    ) -> Result<Vec<JobClaim>, QueueError> {
        let max = max.min(CLAIM_MAX);
        let mut claims = Vec::new();
        for _ in 0..WINDOWS_MAX {
            match self.claim_some(max - claims.len(), &mut quota, now_ms).await {
                // Claimed jobs must not be lost because a further claim failed.
                Err(_) if !claims.is_empty() => break,
                Err(error) => return Err(error),
                // If the window has only jobs that are left to other nodes, the next window is
                // read.
                Ok(more) if more.is_empty() && !self.moves_on() => break,
                Ok(more) => claims.extend(more),
            }
        }
        let is_empty = match &*self.order.lock() {
            JobOrder::Whole(schedule) => schedule.is_empty(),
            JobOrder::Window(feed) => feed.is_empty(),
        };
        if !is_empty && !claims.is_empty() {
            // For the next worker, because a permit wakes only one.
            self.changed.notify_one();
        }
        Ok(claims)
    }

    /// Returns whether each tenant of the window had its turn, so that the next window is read;
    /// false if the schedule has all jobs.
    fn moves_on(&self) -> bool {
        match &*self.order.lock() {
            JobOrder::Whole(_) => false,
            JobOrder::Window(feed) => feed.moves_on(),
        }
    }

    async fn claim_some(
        &self,
        max: usize,
        quota: &mut ClaimQuota,
        now_ms: u64,
    ) -> Result<Vec<JobClaim>, QueueError> {
        self.refresh(now_ms).await?;
        let taken = match &mut *self.order.lock() {
            JobOrder::Whole(schedule) => schedule.take(max, quota, now_ms).jobs,
            JobOrder::Window(feed) => feed.take(max, quota, now_ms),
        };
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<ExecutionId> = taken.iter().map(|job| job.id.clone()).collect();
        let until_ms = now_ms.saturating_add(milliseconds(self.config.lease));
        let answer = self
            .write("queue.claim", move |transaction| {
                if attempt::is_paused(transaction)? {
                    return Ok(None);
                }
                let claim = |id| attempt::claim(transaction, id, now_ms, until_ms).transpose();
                ids.iter().filter_map(claim).collect::<Result<Vec<(JobClaim, u64)>, _>>().map(Some)
            })
            .await;
        match answer {
            Ok(Some(claims)) => {
                let mut room = self.room.lock();
                for (claim, bytes) in &claims {
                    room.leave(&claim.tenant, QueueLoad::one(*bytes));
                }
                Ok(claims.into_iter().map(|(claim, _)| claim).collect())
            }
            Ok(None) => {
                taken.into_iter().for_each(|job| self.waits(job));
                Ok(Vec::new())
            }
            Err(error) => {
                taken.into_iter().for_each(|job| self.waits(job));
                Err(error)
            }
        }
    }

    /// Reads the window again if it is stale.
    async fn refresh(&self, now_ms: u64) -> Result<(), QueueError> {
        let cursor = match &*self.order.lock() {
            JobOrder::Window(feed) if feed.is_stale(now_ms) => feed.cursor(),
            JobOrder::Window(_) | JobOrder::Whole(_) => return Ok(()),
        };
        let page = self
            .read("queue.window", move |transaction| feed::read(transaction, &cursor, now_ms))
            .await?;
        if let JobOrder::Window(feed) = &mut *self.order.lock() {
            feed.show(page, now_ms);
        }
        Ok(())
    }

    pub(super) async fn heartbeat(
        &self,
        leases: Vec<JobLease>,
        now_ms: u64,
    ) -> Result<Vec<LeaseRenewal>, QueueError> {
        let until_ms = now_ms.saturating_add(milliseconds(self.config.lease));
        self.write("queue.heartbeat", move |transaction| {
            leases.iter().map(|lease| attempt::beat(transaction, lease, until_ms)).collect()
        })
        .await
    }

    pub(super) async fn finish(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Result<AttemptDisposition, QueueError> {
        let attempts_max = self.config.attempts_max;
        // Here, not on the thread that writes for all callers.
        let verdict = match &finish {
            AttemptResult::Result(result) => verdict_of(result),
            AttemptResult::Cancelled { .. }
            | AttemptResult::Failed { .. }
            | AttemptResult::Returned => None,
        };
        let after = self
            .write("queue.finish", move |transaction| {
                attempt::finish(transaction, &lease, &finish, now_ms, attempts_max, verdict)
            })
            .await?;
        Ok(match after {
            None => AttemptDisposition::Fenced,
            Some(AttemptOutcome::Ended(_, state)) => AttemptDisposition::Now(state),
            Some(AttemptOutcome::Waits(job)) => {
                self.waits_again(job);
                AttemptDisposition::Now(ExecutionState::Queued)
            }
        })
    }

    pub(super) async fn cancel(
        &self,
        tenant: String,
        id: ExecutionId,
        message: String,
        now_ms: u64,
    ) -> Result<CancelAnswer, QueueError> {
        let (whose, which) = (tenant.clone(), id.clone());
        let (answer, bytes) = self
            .write("queue.cancel", move |transaction| {
                attempt::cancel(transaction, &whose, &which, &message, now_ms)
            })
            .await?;
        if answer == CancelAnswer::Cancelled {
            self.waits_no_more(&id, &tenant, bytes);
        }
        Ok(answer)
    }

    pub(super) async fn position(
        &self,
        id: ExecutionId,
        now_ms: u64,
    ) -> Result<Option<u64>, QueueError> {
        if let JobOrder::Whole(schedule) = &*self.order.lock() {
            return Ok(schedule.position(&id));
        }
        self.read("queue.position", move |transaction| reads::position(transaction, &id, now_ms))
            .await
    }

    pub(super) async fn set_paused(&self, paused: bool) -> Result<(), QueueError> {
        self.write("queue.pause", move |transaction| attempt::set_paused(transaction, paused))
            .await?;
        if !paused {
            self.changed.notify_one();
        }
        Ok(())
    }

    pub(super) async fn drain(
        &self,
        tenant: Option<String>,
        now_ms: u64,
    ) -> Result<Vec<ExecutionId>, QueueError> {
        let mut drained = Vec::new();
        // Later jobs are not meant to be drained, so the number of batches is bounded.
        for _ in 0..=self.config.queued_max / u64::from(BATCH_MAX) {
            let whose = tenant.clone();
            let batch = self
                .write("queue.drain", move |transaction| {
                    upkeep::drain(transaction, whose.as_deref(), now_ms)
                })
                .await?;
            if batch.is_empty() {
                break;
            }
            for (id, tenant, bytes) in batch {
                self.waits_no_more(&id, &tenant, bytes);
                drained.push(id);
            }
        }
        Ok(drained)
    }

    pub(super) async fn replay(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
    ) -> Result<Vec<ExecutionId>, QueueError> {
        let mut replayed = Vec::new();
        for _ in 0..=self.config.kept_max / u64::from(BATCH_MAX) {
            let (whose, which, config) = (tenant.clone(), id.clone(), self.config.clone());
            let batch = self
                .write("queue.replay", move |transaction| {
                    upkeep::replay(transaction, whose.as_deref(), which.as_ref(), &config)
                })
                .await?;
            if batch.is_empty() {
                break;
            }
            for job in batch {
                replayed.push(job.id.clone());
                self.waits_again(job);
            }
        }
        Ok(replayed)
    }

    pub(super) async fn sweep(&self, now_ms: u64) -> Result<QueueSweepReport, QueueError> {
        let mut swept = QueueSweepReport::default();
        let old_ms = now_ms.checked_sub(milliseconds(self.config.keep));
        // Usually nothing is due, and one read shows that.
        let read_due = || {
            self.read("queue.sweep", move |transaction| upkeep::due(transaction, now_ms, old_ms))
        };
        let mut due = read_due().await?;
        for _ in 0..if due.leases { SWEEP_BATCHES_MAX } else { 0 } {
            let config = self.config.clone();
            let lost = self
                .write("queue.sweep", move |transaction| {
                    upkeep::lose_leases(transaction, now_ms, now_ms, &config)
                })
                .await?;
            if lost.is_empty() {
                break;
            }
            for after in lost {
                match after {
                    AttemptOutcome::Ended(id, state) => swept.ended.push((id, state)),
                    AttemptOutcome::Waits(job) => {
                        swept.requeued.push(job.id.clone());
                        self.waits_again(job);
                    }
                }
            }
        }
        // Jobs that wait again may be past their deadline.
        if due.leases {
            due = read_due().await?;
        }
        for _ in 0..if due.deadlines { SWEEP_BATCHES_MAX } else { 0 } {
            let expired = self
                .write("queue.sweep", move |transaction| upkeep::expire(transaction, now_ms))
                .await?;
            if expired.is_empty() {
                break;
            }
            for (id, tenant, bytes) in expired {
                self.waits_no_more(&id, &tenant, bytes);
                swept.ended.push((id, ExecutionState::Expired));
            }
        }
        if !swept.ended.is_empty() {
            due = read_due().await?;
        }
        if let Some(old_ms) = old_ms.filter(|_| due.is_old_kept) {
            swept.removed = self.forget_old(old_ms).await?;
            due = read_due().await?;
        }
        swept.removed += self.forget_excess(due.kept).await?;
        Ok(swept)
    }

    pub(super) async fn due_webhooks(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Result<Vec<WebhookDelivery>, QueueError> {
        let count_max = u64::try_from(max).unwrap_or(u64::MAX);
        let hidden_until_ms = now_ms.saturating_add(milliseconds(hide));
        self.write("queue.webhooks", move |transaction| {
            upkeep::due_webhooks(transaction, count_max, now_ms, hidden_until_ms)
        })
        .await
    }

    /// Removes the oldest ended jobs beyond the retention limits.
    async fn forget_excess(&self, kept: QueueLoad) -> Result<u64, QueueError> {
        let mut removed = 0;
        let (count, bytes) = (self.config.kept_max, self.config.kept_bytes_max);
        let mut excess = kept.minus(QueueLoad { count, bytes });
        for _ in 0..SWEEP_BATCHES_MAX {
            if excess == QueueLoad::default() {
                break;
            }
            let freed = self
                .write("queue.forget", move |transaction| {
                    upkeep::forget_excess(transaction, excess)
                })
                .await?;
            if freed.count == 0 {
                break;
            }
            excess = excess.minus(freed);
            removed += freed.count;
        }
        Ok(removed)
    }

    async fn forget_old(&self, until_ms: u64) -> Result<u64, QueueError> {
        let mut removed = 0;
        for _ in 0..SWEEP_BATCHES_MAX {
            let batch = self
                .write("queue.forget", move |transaction| {
                    upkeep::forget(transaction, until_ms, u64::from(BATCH_MAX))
                })
                .await?;
            removed += batch;
            if batch < u64::from(BATCH_MAX) {
                break;
            }
        }
        Ok(removed)
    }
}

fn unavailable(error: SqlStoreError) -> QueueError {
    match error.refusal::<QueueError>() {
        Ok(refused) => refused,
        Err(error) => QueueError::Unavailable(error.into()),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn by_tenant<'a>(jobs: impl Iterator<Item = &'a NewJob>) -> BTreeMap<String, QueueLoad> {
    let mut loads: BTreeMap<String, QueueLoad> = BTreeMap::new();
    for job in jobs {
        let load = loads.entry(job.tenant.clone()).or_default();
        *load = load.plus(QueueLoad::of(job));
    }
    loads
}

fn waiting(job: &NewJob) -> WaitingJob {
    WaitingJob {
        id: job.id.clone(),
        tenant: job.tenant.clone(),
        priority: job.priority,
        created_ms: job.created_ms,
        deadline_ms: job.deadline_ms,
        bytes: job.bytes(),
    }
}

/// Returns the verdict of a result, if it has one.
fn verdict_of(result: &[u8]) -> Option<Verdict> {
    #[derive(Deserialize)]
    struct ResultVerdict {
        verdict: Verdict,
    }
    serde_json::from_slice::<ResultVerdict>(result).ok().map(|result| result.verdict)
}
