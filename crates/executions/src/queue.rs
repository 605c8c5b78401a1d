//! The durable queue: what every back end promises.
//!
//! A *job* is an execution that was accepted and outlives its request. It is durable when
//! [`JobQueue::push`] returns. A worker *claims* it, which gives a [`JobLease`]: the right to run
//! it for [`QueueConfig::lease`], renewed by [`JobQueue::heartbeat`]. Only the holder of the
//! current lease can end the attempt ([`JobQueue::finish`]); a late one is told so and changes
//! nothing (its token is a *fencing token*). So execution is at least once and a result is
//! published exactly once.
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
//! Tenants that have something waiting take turns; within a tenant the highest priority goes
//! first, where each [`QueueConfig::ageing`] of waiting counts as one step of priority, and among
//! equals the oldest.
//!
//! `now_ms` is milliseconds since 1970 by the caller's clock everywhere, so that tests own time.

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

/// An operation under way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send + 'a>>;

/// Limits and times of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Jobs that may wait, over all tenants.
    pub queued_max: u64,
    /// Jobs of one tenant that may wait.
    pub queued_max_per_tenant: u64,
    /// Bytes of the requests that may wait, over all tenants, with what faces remember of them.
    pub queued_bytes_max: u64,
    /// Bytes of one tenant's requests that may wait.
    pub queued_bytes_max_per_tenant: u64,
    /// Time that a claim lasts without a heartbeat.
    pub lease: Duration,
    /// Number of times that a job may be started, when Cove fails at it.
    pub attempts_max: u32,
    /// Waiting this long counts as one step of priority.
    pub ageing: Duration,
    /// Time that what has ended is kept.
    pub keep: Duration,
    /// Number of ended jobs that are kept; the oldest goes first.
    pub kept_max: u64,
    /// Bytes of requests and results that are kept of what has ended; the oldest goes first.
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
    /// Id, made by the caller; ids sort by time.
    pub id: ExecutionId,
    /// Tenant that owns it.
    pub tenant: String,
    /// Canonical name of its language, or `argv`: for lists.
    pub language: String,
    /// Given by its owner: for lists.
    pub label: Option<String>,
    /// From -100 to 100; higher goes first.
    pub priority: i32,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it expires if it still waits.
    pub deadline_ms: Option<u64>,
    /// Makes a second push of the same job harmless.
    pub idempotency: Option<IdempotencyMark>,
    /// The request, as JSON.
    pub request: Vec<u8>,
    /// Data of the face that accepted it; opaque.
    pub face: Option<String>,
    /// True if there is a webhook to call at its end.
    pub webhook: bool,
}

impl NewJob {
    /// Returns how much of it there is to keep, in bytes: the request and what a face remembers,
    /// because nothing else of a job can be large.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.request.len().saturating_add(self.face.as_ref().map_or(0, String::len));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Mark by which a repeated push is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyMark {
    /// Chosen by the caller; unique for a tenant while the job is kept.
    pub key: String,
    /// Hash of the request: the same key with another request is a mistake.
    pub fingerprint: [u8; 32],
}

/// Result of pushing a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// Durable and waits.
    New,
    /// Pushed before under this id; nothing was changed.
    Before(ExecutionId),
}

/// The right to run a job and to publish its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobLease {
    /// The job.
    pub id: ExecutionId,
    /// The fencing token: no two claims of a job have the same.
    pub token: String,
}

/// A job in the hands of a worker.
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

/// State of a lease, as a heartbeat learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRenewal {
    /// Renewed.
    Held,
    /// Renewed, but its owner wants the job to end.
    CancelWanted,
    /// Lost to another worker, or ended: stop.
    Lost,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// With a result, as JSON.
    Result(Vec<u8>),
    /// At its owner's wish.
    Cancelled {
        /// Why.
        message: String,
    },
    /// Cove failed: it is queued again while attempts are left, else dead.
    Failed {
        /// Why, for its owner.
        message: String,
    },
    /// Never began (the server shuts down): queued again, and the attempt does not count.
    Returned,
}

/// Effect of an attempt's end on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptDisposition {
    /// The job is in this state now.
    Now(ExecutionState),
    /// The lease was not current any more; nothing was changed.
    Fenced,
}

/// Result of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// Was waiting, and is cancelled now.
    Cancelled,
    /// Is running; its worker is told by the next heartbeat.
    Running,
    /// Had ended already, in this state.
    Ended(ExecutionState),
    /// There is no such job of this tenant.
    Unknown,
}

/// Job with all that is known of it.
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
    /// When the latest attempt began.
    pub started_ms: Option<u64>,
    /// When it reached its final state.
    pub finished_ms: Option<u64>,
    /// Number of times that it was started.
    pub attempts: u32,
    /// Why it is cancelled, expired or dead; why the last attempt failed.
    pub message: Option<String>,
    /// Data of the face, as pushed; never in a list, since nothing bounds it there.
    pub face: Option<String>,
    /// Verdict, once it is finished; none where the back end does not keep it beside the
    /// state ([`JobQueue::knows_verdicts`]), and where an earlier version finished it.
    pub verdict: Option<Verdict>,
    /// The request, as JSON; only where it was asked for.
    pub request: Option<Vec<u8>>,
    /// The result, as JSON; only where it was asked for and there is one.
    pub result: Option<Vec<u8>>,
}

impl QueuedJob {
    /// Bytes of the request and the result.
    pub(crate) fn stored_bytes(&self) -> usize {
        [&self.request, &self.result].into_iter().flatten().map(Vec::len).sum()
    }
}

/// Parts of a job that are read besides its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobParts {
    /// `Job::request`.
    pub request: bool,
    /// `Job::result`.
    pub result: bool,
}

/// Order of a list of jobs, by their ids: those that a server gives sort by time.
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
    /// Tenant; `None` is all of them (for operators).
    pub tenant: Option<String>,
    /// In one of these states; empty means all.
    pub states: Vec<ExecutionState>,
    /// In this language.
    pub language: Option<String>,
    /// With this label.
    pub label: Option<String>,
    /// With this verdict; only of back ends that know them.
    pub verdict: Option<Verdict>,
    /// With an id that begins so.
    pub id_prefix: Option<String>,
    /// With a label that contains this, to the letter.
    pub label_text: Option<String>,
    /// Accepted at this time or later, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// Accepted before this time.
    pub to_ms: Option<u64>,
    /// Order of the list.
    pub order: JobOrder,
    /// Only ids behind this one, in the order of the list: the cursor.
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
    /// Jobs whose lease had run out and that are queued again.
    pub requeued: Vec<ExecutionId>,
    /// Jobs that reached a final state by the sweep: expired, or dead for lack of attempts.
    pub ended: Vec<(ExecutionId, ExecutionState)>,
    /// Ended jobs that were forgotten.
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
    /// The requests that wait are as large as they may be together.
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
    /// The key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The back end cannot be reached or failed; it may work later.
    #[error("the queue's back end failed")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A durable queue of jobs. Every back end passes the same conformance suite.
pub trait JobQueue: Send + Sync + fmt::Debug {
    /// Returns its name in statistics: `sqlite`, `postgresql`, `redis`.
    fn backend(&self) -> &'static str;

    /// Time by the back end's clock, in milliseconds since 1970: what leases, deadlines and times
    /// of retries are written and judged by, on whatever server.
    fn now_ms(&self) -> u64;

    /// Accepts all of the jobs, durably, or none. Answers in their order.
    fn push(&self, jobs: Vec<NewJob>) -> Pending<'_, Vec<PushOutcome>>;

    /// Takes up to `max` jobs that may run now, in order; none when nothing waits or the queue is
    /// paused. A tenant whose quota is used up is passed over, and one that is left to other
    /// nodes. Does not wait for one.
    fn claim(&self, max: usize, quota: ClaimQuota, now_ms: u64) -> Pending<'_, Vec<JobClaim>>;

    /// Returns when there may be something to claim: at once after a push here, within a bounded
    /// time otherwise. Cancel-safe.
    fn changed(&self) -> Pending<'_, ()>;

    /// Says whether every other server calls [`JobQueue::wake`] here when it has accepted
    /// jobs, so that they need not be looked for often. A back end that others than servers add to
    /// looks as often as before.
    fn rely_on_announcements(&self, _are_announced: bool) {}

    /// Ends [`JobQueue::changed`]: another server has accepted jobs.
    fn wake(&self) {}

    /// Renews leases; answers in their order.
    fn heartbeat(&self, leases: Vec<JobLease>, now_ms: u64) -> Pending<'_, Vec<LeaseRenewal>>;

    /// Ends an attempt. A final state is published here and nowhere else, together with the
    /// webhook that becomes due.
    fn finish(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Pending<'_, AttemptDisposition>;

    /// Cancels a job that waits, and asks the worker of one that runs to stop.
    fn cancel(
        &self,
        tenant: String,
        id: ExecutionId,
        message: String,
        now_ms: u64,
    ) -> Pending<'_, CancelAnswer>;

    /// Returns one job, of any tenant; who may see it is the caller's business.
    fn get(&self, id: ExecutionId, parts: JobParts) -> Pending<'_, Option<QueuedJob>>;

    /// Returns whether lists can be filtered by verdict.
    fn knows_verdicts(&self) -> bool {
        true
    }

    /// Jobs, in the order of the filter, without what may be large: request, result and
    /// [`QueuedJob::face`], which are read job by job with [`JobQueue::get`].
    fn list(&self, filter: JobFilter) -> Pending<'_, Vec<QueuedJob>>;

    /// Returns how many go before a job that waits; `None` when it does not wait.
    fn position(&self, id: ExecutionId, now_ms: u64) -> Pending<'_, Option<u64>>;

    /// Figures of a tenant, or of all.
    fn stats(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, QueueStats>;

    /// Stops handing out jobs, or goes on. Durable, and the same for all who share the queue.
    fn set_paused(&self, paused: bool) -> Pending<'_, ()>;

    /// Cancels everything that waits, of a tenant or of all; tells what was cancelled.
    fn drain(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, Vec<ExecutionId>>;

    /// Queues dead jobs again, one or all of a tenant's (`None`: of all), with fresh attempts.
    fn replay(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
        now_ms: u64,
    ) -> Pending<'_, Vec<ExecutionId>>;

    /// Forgets a job of this tenant that has ended; `false` when there is none such.
    fn remove(&self, tenant: String, id: ExecutionId) -> Pending<'_, bool>;

    /// Looks for lost leases, passed deadlines and what is kept too long or too much of.
    fn sweep(&self, now_ms: u64) -> Pending<'_, QueueSweepReport>;

    /// Webhooks that are due, oldest first; each is hidden from others until `now_ms + hide`.
    fn due_webhooks(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Pending<'_, Vec<WebhookDelivery>>;

    /// Settles a delivery: due again at `Some(ms)`, or over.
    fn settle_webhook(&self, id: ExecutionId, again_ms: Option<u64>) -> Pending<'_, ()>;
}
