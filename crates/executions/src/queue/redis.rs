//! The queue in Redis, in the layout of BullMQ: its producers can add jobs, its dashboards show
//! them.
//!
//! Every tenant has a BullMQ queue, and jobs of foreign producers arrive in one more; the queues
//! take turns. BullMQ's structures determine where a job is, and only its scripts change them.
//! Features that BullMQ lacks (leases by the server's clock, idempotency, labels, webhooks,
//! cancelled and expired jobs) use keys of our own below `<prefix>:<name>:own:`; `redis/base.lua`
//! lists them. Both change in one transaction, so that a server may die at any point in between.
//!
//! It never runs a BullMQ worker, and never holds a connection for each queue.
//!
//! | file | content |
//! |---|---|
//! | `link.rs` | the connection, transactions, BullMQ's scripts |
//! | `names.rs` | queues of tenants, priorities, ids of foreign jobs, tokens |
//! | `codec.rs` | arguments and replies of scripts |
//! | `accept.rs`, `work.rs`, `reads.rs`, `sweep.rs` | the operations, each with its `*.lua` file |
//!
//! # References
//! - <https://docs.bullmq.io/>

mod accept;
mod codec;
mod link;
mod names;
mod reads;
mod sweep;
mod work;

use node::clock::{self, SharedClock};
use node::task::Boxed;
use std::fmt;
use std::time::Duration;

use api::{ExecutionId, QueueStats};
use tokio::sync::Notify;

use self::link::{RedisLink, ScriptCall};
use super::{
    AttemptDisposition, AttemptResult, CancelAnswer, ClaimQuota, JobClaim, JobFilter, JobLease,
    JobParts, JobQueue, LeaseRenewal, NewJob, Pending, PushOutcome, QueueConfig, QueueError,
    QueueSweepReport, QueuedJob, WebhookDelivery,
};

/// Polling interval of a queue to which other programs may add.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time by which BullMQ's lock outlives the lease, so that its own workers do not treat a job as
/// stalled that our sweep is about to queue again.
const LOCK_GRACE: Duration = Duration::from_secs(10);

/// Address of the queue and its name there.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port][/db]`, `rediss://…` with TLS, or
    /// `redis+unix:///path[?db=n]`.
    pub url: String,
    /// Prefix of all keys, BullMQ's `prefix`; without `:`.
    pub prefix: String,
    /// The queue to which foreign producers add; those of tenants are called `<name>.<tenant>`.
    pub name: String,
    /// Tenant of jobs of foreign producers.
    pub tenant: String,
}

impl Default for RedisConfig {
    fn default() -> RedisConfig {
        RedisConfig {
            url: "redis://127.0.0.1:6379/0".to_owned(),
            prefix: "bull".to_owned(),
            name: "cove".to_owned(),
            tenant: "bullmq".to_owned(),
        }
    }
}

/// Without the address, which may contain a password.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisConfig { url: _, prefix, name, tenant } = self;
        let mut debug = f.debug_struct("RedisConfig");
        debug.field("prefix", prefix).field("name", name).field("tenant", tenant);
        debug.finish_non_exhaustive()
    }
}

/// A queue in Redis.
pub struct RedisQueue {
    link: RedisLink,
    place: RedisConfig,
    config: QueueConfig,
    changed: Notify,
    /// The server's clock.
    clock: SharedClock,
}

impl fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQueue").field("place", &self.place).finish_non_exhaustive()
    }
}

impl RedisQueue {
    /// Connects. Warns if the server may lose acknowledged writes.
    ///
    /// # Errors
    /// If Redis cannot be reached within some seconds, refuses, or the server is not Redis.
    pub fn open(
        place: RedisConfig,
        config: QueueConfig,
    ) -> Boxed<'static, Result<RedisQueue, QueueError>> {
        Box::pin(async move {
            let link = RedisLink::open(&place.url, &place.prefix, &place.name).await?;
            let clock = SharedClock::default();
            let queue = RedisQueue { link, place, config, changed: Notify::new(), clock };
            queue.read_clock().await?;
            let enlist =
                ScriptCall::new("enlist").arg(&*queue.place.name).arg(&*queue.place.tenant);
            queue.link.ask(enlist).await?;
            queue.link.queue(&queue.place.name).await?;
            queue.warn_of_settings().await;
            Ok(queue)
        })
    }

    /// Reads the server's clock, unless it was read recently.
    async fn read_clock(&self) -> Result<(), QueueError> {
        if self.clock.wants_sample() {
            let asked_ms = clock::boot_ms();
            self.clock.sampled(asked_ms, self.link.time_ms().await?);
        }
        Ok(())
    }

    async fn warn_of_settings(&self) {
        if self.link.setting("appendonly").await.as_deref() == Some("no") {
            tracing::warn!(
                setting = "appendonly",
                "Redis writes no append-only file: accepted executions are lost when it ends"
            );
        }
        let policy = self.link.setting("maxmemory-policy").await;
        if policy.is_some_and(|policy| policy != "noeviction") {
            tracing::warn!(
                setting = "maxmemory-policy",
                "Redis may evict keys when its memory is full: set noeviction"
            );
        }
    }

    fn lock_ms(&self) -> u64 {
        millis(self.config.lease.saturating_add(LOCK_GRACE))
    }

    fn lease_until(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add(millis(self.config.lease))
    }

    fn tenant_of(&self, queue: &str) -> String {
        names::tenant_of(&self.place.name, queue).unwrap_or_else(|| self.place.tenant.clone())
    }
}

/// Returns milliseconds as a number for scripts.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl JobQueue for RedisQueue {
    fn backend(&self) -> &'static str {
        "redis"
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn push(&self, jobs: Vec<NewJob>) -> Pending<'_, Vec<PushOutcome>> {
        Box::pin(self.accept(jobs))
    }

    fn claim(&self, max: usize, quota: ClaimQuota, now_ms: u64) -> Pending<'_, Vec<JobClaim>> {
        Box::pin(self.take(max, quota, now_ms))
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            // Both outcomes mean that there may be a job.
            drop(tokio::time::timeout(LOOK_EVERY, self.changed.notified()).await);
            Ok(())
        })
    }

    fn heartbeat(&self, leases: Vec<JobLease>, now_ms: u64) -> Pending<'_, Vec<LeaseRenewal>> {
        Box::pin(self.beat(leases, now_ms))
    }

    fn finish(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Pending<'_, AttemptDisposition> {
        Box::pin(self.end(lease, finish, now_ms))
    }

    fn cancel(
        &self,
        tenant: String,
        id: ExecutionId,
        message: String,
        now_ms: u64,
    ) -> Pending<'_, CancelAnswer> {
        Box::pin(
            async move { self.take_out(&id, Some(&tenant), "cancelled", &message, now_ms).await },
        )
    }

    fn get(&self, id: ExecutionId, parts: JobParts) -> Pending<'_, Option<QueuedJob>> {
        Box::pin(self.show(id, parts))
    }

    fn knows_verdicts(&self) -> bool {
        false
    }

    fn list(&self, filter: JobFilter) -> Pending<'_, Vec<QueuedJob>> {
        Box::pin(self.search(filter))
    }

    fn position(&self, id: ExecutionId, _now_ms: u64) -> Pending<'_, Option<u64>> {
        Box::pin(self.before(id))
    }

    fn stats(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, QueueStats> {
        Box::pin(self.figures(tenant, now_ms))
    }

    fn set_paused(&self, paused: bool) -> Pending<'_, ()> {
        Box::pin(self.pause(paused))
    }

    fn drain(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, Vec<ExecutionId>> {
        Box::pin(self.empty(tenant, now_ms))
    }

    fn replay(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
        _now_ms: u64,
    ) -> Pending<'_, Vec<ExecutionId>> {
        Box::pin(self.revive(tenant, id))
    }

    fn remove(&self, tenant: String, id: ExecutionId) -> Pending<'_, bool> {
        Box::pin(self.forget(tenant, id))
    }

    fn sweep(&self, now_ms: u64) -> Pending<'_, QueueSweepReport> {
        Box::pin(async move {
            // Every second, which is often enough; the new time applies from the next call on.
            self.read_clock().await?;
            self.sweep_step(now_ms).await
        })
    }

    fn due_webhooks(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Pending<'_, Vec<WebhookDelivery>> {
        Box::pin(self.due(max, hide, now_ms))
    }

    fn settle_webhook(&self, id: ExecutionId, again_ms: Option<u64>) -> Pending<'_, ()> {
        Box::pin(async move {
            let again = again_ms.map(|ms| ms.to_string()).unwrap_or_default();
            self.link.ask(ScriptCall::new("hooked").arg(id.0).arg(again)).await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
