//! The durable queue: the interface and guarantees of all back ends.
//!
//! A *job* is an execution that was accepted and outlives its request. It is durable when
//! [`JobQueue::push`] returns. A worker *claims* it and receives a [`JobLease`]: the right to run
//! it for [`QueueConfig::lease`], renewed by [`JobQueue::heartbeat`]. Only the holder of the
//! current lease can end the attempt ([`JobQueue::finish`]); a late holder receives
//! [`AttemptDisposition::Fenced`] and changes nothing (its token is a *fencing token*). So a job
//! runs at least once and its result is published exactly once.
//!
//! # States
//! ```text
//! push ─► queued ─claim─► running ─finish─► finished | cancelled
//!           ▲  │             │
//!           │  └─► cancelled | expired      finish(Retry), lease lost:
//!           └────────────────┴─ attempts left ─► queued, else dead;   replay: dead ─► queued
//! ```
//!
//! # Order
//! Tenants with waiting jobs take turns; within a tenant the job with the highest priority runs
//! first, where each [`QueueConfig::ageing`] of waiting counts as one step of priority, and among
//! equals the oldest.
//!
//! `now_ms` is always the caller's clock in milliseconds since 1970, so that tests control the
//! time.

#[cfg(test)]
pub(crate) mod conformance;
mod quota;
pub mod redis;
mod schedule;
pub mod sql;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use api::{ExecutionId, ExecutionState, QueueStats, Verdict};

pub use self::quota::ClaimQuota;

/// A pending operation.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send + 'a>>;

/// Limits and times of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Maximum number of waiting jobs, over all tenants.
    pub queued_max: u64,
    /// Maximum number of waiting jobs of one tenant.
    pub queued_max_per_tenant: u64,
    /// Maximum bytes of waiting requests, over all tenants, including the data of faces.
    pub queued_bytes_max: u64,
    /// Maximum bytes of one tenant's waiting requests.
    pub queued_bytes_max_per_tenant: u64,
    /// Duration of a claim without a heartbeat.
    pub lease: Duration,
    /// Maximum number of attempts of a job when Cove fails at it.
    pub attempts_max: u32,
    /// Waiting time that counts as one step of priority.
    pub ageing: Duration,
    /// Time for which ended jobs are kept.
    pub keep: Duration,
    /// Maximum number of ended jobs that are kept; the oldest is removed first.
    pub kept_max: u64,
    /// Maximum bytes of requests and results of ended jobs; the oldest job is removed first.
    pub kept_bytes_max: u64,
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig {
            queued_max: 50_000,
            queued_max_per_tenant: 20_000,
            queued_bytes_max: 4 << 30,
            queued_bytes_max_per_tenant: 1 << 30,
            lease: Duration::from_secs(30),
            attempts_max: 2,
            ageing: Duration::from_secs(10),
            keep: Duration::from_secs(24 * 3600),
            kept_max: 100_000,
            kept_bytes_max: 4 << 30,
        }
    }
}

/// A job to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Id, chosen by the caller; ids sort by time.
    pub id: ExecutionId,
    /// Tenant that owns it.
    pub tenant: String,
    /// Canonical name of its language, or `argv`: for lists.
    pub language: String,
    /// Label given by its owner: for lists.
    pub label: Option<String>,
    /// Priority from -100 to 100; higher runs first.
    pub priority: i32,
    /// Time of acceptance.
    pub created_ms: u64,
    /// Time at which it expires if it still waits.
    pub deadline_ms: Option<u64>,
    /// Makes a repeated push of the same job harmless.
    pub idempotency: Option<IdempotencyMark>,
    /// The request, as JSON.
    pub request: Vec<u8>,
    /// Data of the face that accepted it; opaque.
    pub face: Option<String>,
    /// True if it has a webhook to call at its end.
    pub webhook: bool,
}

impl NewJob {
    /// Returns the stored size in bytes: the request and the data of its face, because no other
    /// part of a job can be large.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.request.len().saturating_add(self.face.as_ref().map_or(0, String::len));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Mark that identifies a repeated push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyMark {
    /// Key chosen by the caller; unique for a tenant while the job is kept.
    pub key: String,
    /// Hash of the request: the same key with another request is an error.
    pub fingerprint: [u8; 32],
}

/// Result of pushing a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The job is durable and waits.
    New,
    /// The job was pushed before under this id; nothing was changed.
    Before(ExecutionId),
}

/// The right to run a job and to publish its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobLease {
    /// The job.
    pub id: ExecutionId,
    /// The fencing token, unique for each claim of a job.
    pub token: String,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobClaim {
    /// The right to run it.
    pub lease: JobLease,
    /// Tenant that owns it.
    pub tenant: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The request, as JSON.
    pub request: Vec<u8>,
}

/// State of a lease, as returned by a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRenewal {
    /// The lease was renewed.
    Held,
    /// The lease was renewed, but the owner has cancelled the job.
    CancelWanted,
    /// The lease was lost to another worker, or the job has ended: the worker must stop.
    Lost,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// Finished with a result, as JSON.
    Result(Vec<u8>),
    /// Cancelled by its owner.
    Cancelled {
        /// Reason of the cancellation.
        message: String,
    },
    /// Cove failed: the job is queued again while attempts are left, otherwise it is dead.
    Failed {
        /// Reason, for its owner.
        message: String,
    },
    /// The attempt did not begin (the server shuts down): the job is queued again, and the attempt
    /// does not count.
    Returned,
}

/// Effect of an attempt's end on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptDisposition {
    /// The new state of the job.
    Now(ExecutionState),
    /// The lease was no longer current; nothing was changed.
    Fenced,
}

/// Result of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The job waited, and is cancelled now.
    Cancelled,
    /// The job is running; its worker learns of the request by the next heartbeat.
    Running,
    /// The job had ended already, in this state.
    Ended(ExecutionState),
    /// This tenant has no such job.
    Unknown,
}

/// A job with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    /// Id.
    pub id: ExecutionId,
    /// Tenant that owns it.
    pub tenant: String,
    /// State.
    pub state: ExecutionState,
    /// Language, as pushed.
    pub language: String,
    /// Label, as pushed.
    pub label: Option<String>,
    /// Priority, as pushed.
    pub priority: i32,
    /// Time of submission in milliseconds, as pushed.
    pub created_ms: u64,
    /// Deadline in milliseconds, as pushed.
    pub deadline_ms: Option<u64>,
    /// Start of the latest attempt.
    pub started_ms: Option<u64>,
    /// Time at which it reached its final state.
    pub finished_ms: Option<u64>,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Reason why it is cancelled, expired or dead, or why the last attempt failed.
    pub message: Option<String>,
    /// Data of the face, as pushed; never in a list, because its size is not bounded there.
    pub face: Option<String>,
    /// Verdict, once it is finished; None if the back end does not keep it beside the state
    /// ([`JobQueue::knows_verdicts`]), or an earlier version finished it.
    pub verdict: Option<Verdict>,
    /// The request, as JSON; only if it was requested.
    pub request: Option<Vec<u8>>,
    /// The result, as JSON; only if it was requested and exists.
    pub result: Option<Vec<u8>>,
}

impl QueuedJob {
    /// Returns the size of the request and the result in bytes.
    pub(crate) fn stored_bytes(&self) -> usize {
        [&self.request, &self.result].into_iter().flatten().map(Vec::len).sum()
    }
}

/// Parts of a job to read in addition to its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobParts {
    /// Reads `QueuedJob::request`.
    pub request: bool,
    /// Reads `QueuedJob::result`.
    pub result: bool,
}

/// Order of a list of jobs by id: a server's ids sort by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobOrder {
    /// Newest first.
    #[default]
    Descending,
    /// Oldest first.
    Ascending,
}

/// Filter of a list of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Tenant; `None` means all (for operators).
    pub tenant: Option<String>,
    /// States; empty means all.
    pub states: Vec<ExecutionState>,
    /// Only jobs in this language.
    pub language: Option<String>,
    /// Only jobs with exactly this label.
    pub label: Option<String>,
    /// Only jobs with this verdict; only for back ends that store verdicts.
    pub verdict: Option<Verdict>,
    /// Prefix of the id.
    pub id_prefix: Option<String>,
    /// Text that the label contains, case-sensitive.
    pub label_text: Option<String>,
    /// Earliest time of acceptance, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// Time before which the job was accepted.
    pub to_ms: Option<u64>,
    /// Order of the list.
    pub order: JobOrder,
    /// Only ids after this one, in the order of the list: the cursor.
    pub before: Option<ExecutionId>,
    /// Maximum number of jobs.
    pub limit: usize,
}

/// A webhook that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// The job, in a final state.
    pub id: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// Result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSweepReport {
    /// Jobs with an expired lease, which are queued again.
    pub requeued: Vec<ExecutionId>,
    /// Jobs that the sweep put into a final state: expired, or dead for lack of attempts.
    pub ended: Vec<(ExecutionId, ExecutionState)>,
    /// Number of ended jobs that were removed.
    pub removed: u64,
}

/// Why an operation on the queue failed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The queue is full.
    #[error("{queued_max} executions are waiting already")]
    Full {
        /// [`QueueConfig::queued_max`].
        queued_max: u64,
    },
    /// The queue is full for this tenant.
    #[error("this token already has {queued_max} executions waiting")]
    TenantFull {
        /// [`QueueConfig::queued_max_per_tenant`].
        queued_max: u64,
    },
    /// The waiting requests have reached their maximum size together.
    #[error("the waiting executions would have more than {queued_bytes_max} bytes of requests")]
    FullBytes {
        /// [`QueueConfig::queued_bytes_max`].
        queued_bytes_max: u64,
    },
    /// The queued bytes of this tenant are exhausted.
    #[error(
        "this token's waiting executions would have more than {queued_bytes_max} bytes of requests"
    )]
    TenantFullBytes {
        /// [`QueueConfig::queued_bytes_max_per_tenant`].
        queued_bytes_max: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The back end is unreachable or failed; a retry may succeed.
    #[error("the queue's back end failed")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A durable queue of jobs. Every back end passes the same conformance suite.
pub trait JobQueue: Send + Sync + fmt::Debug {
    /// Returns the back end's name in statistics: `sqlite`, `postgresql`, `redis`.
    fn backend(&self) -> &'static str;

    /// Returns the back end's clock, in milliseconds since 1970: all servers use it for leases,
    /// deadlines and retry times.
    fn now_ms(&self) -> u64;

    /// Accepts all of the jobs, durably, or none. Returns the outcomes in their order.
    fn push(&self, jobs: Vec<NewJob>) -> Pending<'_, Vec<PushOutcome>>;

    /// Claims up to `max` jobs that may run now, in order; none if no job waits or the queue is
    /// paused. Skips tenants whose quota is used up, and those that are left to other nodes. Does
    /// not wait for jobs.
    fn claim(&self, max: usize, quota: ClaimQuota, now_ms: u64) -> Pending<'_, Vec<JobClaim>>;

    /// Returns when there may be a job to claim: at once after a push here, within a bounded time
    /// otherwise. Cancel-safe.
    fn changed(&self) -> Pending<'_, ()>;

    /// Sets whether every other server calls [`JobQueue::wake`] here when it has accepted jobs, so
    /// that polling can be rare. A back end to which other programs add jobs polls as often as
    /// before.
    fn rely_on_announcements(&self, _are_announced: bool) {}

    /// Ends [`JobQueue::changed`]: another server has accepted jobs.
    fn wake(&self) {}

    /// Renews leases; returns the results in their order.
    fn heartbeat(&self, leases: Vec<JobLease>, now_ms: u64) -> Pending<'_, Vec<LeaseRenewal>>;

    /// Ends an attempt. Only this method publishes a final state, together with the webhook that
    /// becomes due.
    fn finish(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Pending<'_, AttemptDisposition>;

    /// Cancels a waiting job, or asks the worker of a running one to stop.
    fn cancel(
        &self,
        tenant: String,
        id: ExecutionId,
        message: String,
        now_ms: u64,
    ) -> Pending<'_, CancelAnswer>;

    /// Returns one job, of any tenant; the caller checks the right to see it.
    fn get(&self, id: ExecutionId, parts: JobParts) -> Pending<'_, Option<QueuedJob>>;

    /// Returns whether lists can be filtered by verdict.
    fn knows_verdicts(&self) -> bool {
        true
    }

    /// Returns jobs, in the order of the filter, without the parts that may be large: request,
    /// result and [`QueuedJob::face`], which [`JobQueue::get`] reads job by job.
    fn list(&self, filter: JobFilter) -> Pending<'_, Vec<QueuedJob>>;

    /// Returns the number of jobs before a waiting one; `None` if the job does not wait.
    fn position(&self, id: ExecutionId, now_ms: u64) -> Pending<'_, Option<u64>>;

    /// Returns figures of a tenant, or of all.
    fn stats(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, QueueStats>;

    /// Pauses or resumes claims. Durable, and the same for all servers that share the queue.
    fn set_paused(&self, paused: bool) -> Pending<'_, ()>;

    /// Cancels all waiting jobs, of a tenant or of all; returns the cancelled ids.
    fn drain(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, Vec<ExecutionId>>;

    /// Queues dead jobs again, one or all of a tenant's (`None`: of all), with fresh attempts.
    fn replay(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
        now_ms: u64,
    ) -> Pending<'_, Vec<ExecutionId>>;

    /// Removes an ended job of this tenant; returns `false` if there is none.
    fn remove(&self, tenant: String, id: ExecutionId) -> Pending<'_, bool>;

    /// Handles expired leases, passed deadlines, and jobs beyond the retention limits.
    fn sweep(&self, now_ms: u64) -> Pending<'_, QueueSweepReport>;

    /// Returns due webhooks, oldest first; each is hidden from other callers until `now_ms + hide`.
    fn due_webhooks(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Pending<'_, Vec<WebhookDelivery>>;

    /// Settles a delivery: due again at `Some(ms)`, or done.
    fn settle_webhook(&self, id: ExecutionId, again_ms: Option<u64>) -> Pending<'_, ()>;
}
