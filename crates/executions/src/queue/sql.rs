//! The queue in the server's own store: SQLite for one server, PostgreSQL for several.
//!
//! The table is the truth; each operation is one transaction. The order of jobs is decided in
//! memory ([`super::schedule`]), because an order that is fair across tenants is not that of an
//! index:
//!
//! - **SQLite**: this process is the only owner of the file, so the schedule holds all waiting
//!   jobs. It is built once, at the start; jobs that were running then have lost their lease.
//! - **PostgreSQL**: servers share the table, so the schedule is a window onto it ([`feed`]), and
//!   leases end by time alone.
//!
//! A claim is a compare-and-set on the row's state in both. So a job that is still in the schedule
//! but no longer waits does no harm: its claim changes nothing.
//!
//! Operations that change waiting jobs run to their end even if their future is dropped: otherwise
//! the table and the schedule would differ.

mod accept;
mod attempt;
mod feed;
mod reads;
mod room;
mod schema;
mod shared;
mod upkeep;

use node::task::Boxed;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{ExecutionId, QueueStats};
use node::store::{SqlStore, SqlStoreError, StoreDialect};

use self::shared::SqlQueueShared;
use super::{
    AttemptDisposition, AttemptResult, CancelAnswer, ClaimQuota, JobClaim, JobFilter, JobLease,
    JobParts, JobQueue, LeaseRenewal, NewJob, Pending, PushOutcome, QueueConfig, QueueError,
    QueueSweepReport, QueuedJob, WebhookDelivery,
};

/// Maximum number of webhooks that one call takes.
const DELIVERIES_MAX: usize = 1_000;

/// A queue in the server's store. Cheap to clone.
#[derive(Clone)]
pub struct SqlQueue(Arc<SqlQueueShared>);

impl fmt::Debug for SqlQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlQueue").field("store", &self.0.store).finish_non_exhaustive()
    }
}

impl SqlQueue {
    /// Opens the queue in a store. In SQLite, jobs that an earlier process was running when it
    /// ended are queued again, or dead, before this returns.
    ///
    /// # Errors
    /// If the tables cannot be migrated or read.
    pub fn open(
        store: SqlStore,
        config: QueueConfig,
        now_ms: u64,
    ) -> Boxed<'static, Result<SqlQueue, SqlStoreError>> {
        Box::pin(async move {
            store.migrate(schema::SERVICE, schema::MIGRATIONS).await?;
            let shared = SqlQueueShared::new(store, config);
            if shared.is_alone() {
                shared.recover(now_ms).await?;
            }
            Ok(SqlQueue(Arc::new(shared)))
        })
    }

    /// Runs an operation to its end, even if its future is dropped.
    fn run_to_end<T, F>(
        &self,
        work: impl FnOnce(Arc<SqlQueueShared>) -> F + Send + 'static,
    ) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
    {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let ended = node::task::to_the_end(work(shared)).await;
            ended.unwrap_or_else(|error| Err(QueueError::Unavailable(error.into())))
        })
    }
}

impl JobQueue for SqlQueue {
    fn backend(&self) -> &'static str {
        match self.0.store.dialect() {
            StoreDialect::Sqlite => "sqlite",
            StoreDialect::Postgres => "postgresql",
        }
    }

    fn now_ms(&self) -> u64 {
        self.0.store.now_ms()
    }

    fn push(&self, jobs: Vec<NewJob>) -> Pending<'_, Vec<PushOutcome>> {
        self.run_to_end(move |shared| async move { shared.push(jobs).await })
    }

    fn claim(&self, max: usize, quota: ClaimQuota, now_ms: u64) -> Pending<'_, Vec<JobClaim>> {
        self.run_to_end(move |shared| async move { shared.claim(max, quota, now_ms).await })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let changed = self.0.changed.notified();
            if self.0.is_alone() {
                changed.await;
            } else {
                // Changes by other servers are found by polling.
                drop(tokio::time::timeout(self.0.poll_interval(), changed).await);
            }
            Ok(())
        })
    }

    fn rely_on_announcements(&self, are_announced: bool) {
        self.0.rely_on_announcements(are_announced);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn heartbeat(&self, leases: Vec<JobLease>, now_ms: u64) -> Pending<'_, Vec<LeaseRenewal>> {
        Box::pin(self.0.heartbeat(leases, now_ms))
    }

    fn finish(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Pending<'_, AttemptDisposition> {
        self.run_to_end(move |shared| async move { shared.finish(lease, finish, now_ms).await })
    }

    fn cancel(
        &self,
        tenant: String,
        id: ExecutionId,
        message: String,
        now_ms: u64,
    ) -> Pending<'_, CancelAnswer> {
        self.run_to_end(
            move |shared| async move { shared.cancel(tenant, id, message, now_ms).await },
        )
    }

    fn get(&self, id: ExecutionId, parts: JobParts) -> Pending<'_, Option<QueuedJob>> {
        Box::pin(self.0.read("queue.get", move |transaction| reads::get(transaction, &id, parts)))
    }

    fn list(&self, filter: JobFilter) -> Pending<'_, Vec<QueuedJob>> {
        let dialect = self.0.store.dialect();
        Box::pin(
            self.0
                .read("queue.list", move |transaction| reads::list(transaction, &filter, dialect)),
        )
    }

    fn position(&self, id: ExecutionId, now_ms: u64) -> Pending<'_, Option<u64>> {
        Box::pin(self.0.position(id, now_ms))
    }

    fn stats(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, QueueStats> {
        let backend = self.backend();
        Box::pin(self.0.read("queue.stats", move |transaction| {
            reads::stats(transaction, tenant.as_deref(), now_ms, backend)
        }))
    }

    fn set_paused(&self, paused: bool) -> Pending<'_, ()> {
        Box::pin(self.0.set_paused(paused))
    }

    fn drain(&self, tenant: Option<String>, now_ms: u64) -> Pending<'_, Vec<ExecutionId>> {
        self.run_to_end(move |shared| async move { shared.drain(tenant, now_ms).await })
    }

    fn replay(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
        _now_ms: u64,
    ) -> Pending<'_, Vec<ExecutionId>> {
        self.run_to_end(move |shared| async move { shared.replay(tenant, id).await })
    }

    fn remove(&self, tenant: String, id: ExecutionId) -> Pending<'_, bool> {
        Box::pin(
            self.0.write("queue.remove", move |transaction| {
                upkeep::remove(transaction, &tenant, &id)
            }),
        )
    }

    fn sweep(&self, now_ms: u64) -> Pending<'_, QueueSweepReport> {
        self.run_to_end(move |shared| async move { shared.sweep(now_ms).await })
    }

    fn due_webhooks(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Pending<'_, Vec<WebhookDelivery>> {
        Box::pin(self.0.due_webhooks(max.min(DELIVERIES_MAX), hide, now_ms))
    }

    fn settle_webhook(&self, id: ExecutionId, again_ms: Option<u64>) -> Pending<'_, ()> {
        Box::pin(self.0.write("queue.webhooks", move |transaction| {
            upkeep::settle_webhook(transaction, &id, again_ms)
        }))
    }
}

#[cfg(test)]
mod tests;
