//! Memory of answers: output of programs is held until a client has read it, so it is accounted, by
//! tenant and in total.
//!
//! [`AnswerBudget`] hands out [`AnswerMemory`]. A program that runs for a caller reserves its
//! maximum output before it starts; a result that is read from the queue reserves memory when it is
//! read. An [`AnswerDocument`] keeps the memory until its last byte is written or its connection
//! ends. A caller for whom there is none waits for a bounded time, without holding resources that
//! others need.

mod document;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time;

pub(crate) use self::document::AnswerDocument;
use crate::error::ExecutionError;

/// Maximum number of concurrent reads of results from the queue whose size is not known yet.
const READS_MAX: usize = 4;

/// Limits of the memory of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerBounds {
    /// Maximum bytes of all answers together.
    pub(crate) bytes_max: u64,
    /// Maximum bytes of one tenant's answers.
    pub(crate) bytes_max_per_tenant: u64,
    /// Time that a caller waits for room.
    pub(crate) wait_max: Duration,
}

/// Accounts the memory of answers. Shared by all components that answer.
#[derive(Debug)]
pub(crate) struct AnswerBudget {
    bounds: AnswerBounds,
    used: Mutex<UsedBytes>,
    /// Notified when memory becomes free.
    freed: Notify,
    reads: Semaphore,
}

#[derive(Debug, Default)]
struct UsedBytes {
    total: u64,
    by_tenant: HashMap<Arc<str>, u64>,
}

/// Memory for one answer, released on drop.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    answers: Arc<AnswerBudget>,
    tenant: Arc<str>,
    bytes: u64,
}

/// Maximum wait for room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerPatience {
    /// The maximum time that a caller waits.
    Caller,
    /// Without limit: for executions that were accepted already.
    Endless,
}

impl AnswerBudget {
    pub(crate) fn new(bounds: AnswerBounds) -> Arc<AnswerBudget> {
        let reads = Semaphore::new(READS_MAX);
        Arc::new(AnswerBudget { bounds, used: Mutex::default(), freed: Notify::new(), reads })
    }

    /// Returns the deadline of a wait that begins now.
    pub(crate) fn deadline(&self, patience: AnswerPatience) -> Option<Instant> {
        match patience {
            AnswerPatience::Caller => Some(clock::now() + self.bounds.wait_max),
            AnswerPatience::Endless => None,
        }
    }

    /// Waits for the permit to read one result of unknown size.
    pub(crate) async fn reading(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.reads.acquire().await.ok()
    }

    /// Returns memory for an answer, if it is available now. An answer larger than a tenant's limit
    /// gets memory when no other answer of that tenant has any.
    pub(crate) fn try_enter(
        self: &Arc<AnswerBudget>,
        tenant: &str,
        bytes: u64,
    ) -> Option<AnswerMemory> {
        self.enter(tenant, bytes).ok()
    }

    fn enter(
        self: &Arc<AnswerBudget>,
        tenant: &str,
        bytes: u64,
    ) -> Result<AnswerMemory, ExecutionError> {
        let mut used = self.used.lock();
        used.check(&self.bounds, tenant, bytes)?;
        let tenant: Arc<str> = tenant.into();
        used.add(&tenant, bytes);
        Ok(AnswerMemory { answers: Arc::clone(self), tenant, bytes })
    }

    /// Waits until there would be room, without taking it. Cancel-safe.
    ///
    /// # Errors
    /// If there was none until the deadline: the tenant's own answers, or all answers, occupy it.
    pub(crate) async fn wait(
        &self,
        tenant: &str,
        bytes: u64,
        deadline: Option<Instant>,
    ) -> Result<(), ExecutionError> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that memory freed during it is not missed.
            freed.as_mut().enable();
            let Err(error) = self.used.lock().check(&self.bounds, tenant, bytes) else {
                return Ok(());
            };
            match deadline {
                None => freed.await,
                Some(deadline) => {
                    time::timeout_at(deadline.into(), freed).await.map_err(|_| error)?;
                }
            }
        }
    }

    /// Waits for room and takes it. Cancel-safe.
    ///
    /// # Errors
    /// If there was none until the deadline.
    pub(crate) async fn room(
        self: &Arc<AnswerBudget>,
        tenant: &str,
        bytes: u64,
        deadline: Option<Instant>,
    ) -> Result<AnswerMemory, ExecutionError> {
        loop {
            self.wait(tenant, bytes, deadline).await?;
            if let Some(room) = self.try_enter(tenant, bytes) {
                return Ok(room);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.lock().total
    }
}

impl UsedBytes {
    fn of(&self, tenant: &str) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    fn check(&self, bounds: &AnswerBounds, tenant: &str, bytes: u64) -> Result<(), ExecutionError> {
        let fits = |used: u64, max: u64| used == 0 || used.saturating_add(bytes) <= max;
        if !fits(self.of(tenant), bounds.bytes_max_per_tenant) {
            return Err(ExecutionError::TooManyAnswerBytes {
                bytes_max: bounds.bytes_max_per_tenant,
            });
        }
        if !fits(self.total, bounds.bytes_max) {
            return Err(ExecutionError::AnswerBytesFull { bytes_max: bounds.bytes_max });
        }
        Ok(())
    }

    fn add(&mut self, tenant: &Arc<str>, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        let used = self.by_tenant.entry(Arc::clone(tenant)).or_insert(0);
        *used = used.saturating_add(bytes);
    }

    fn remove(&mut self, tenant: &Arc<str>, bytes: u64) {
        self.total = self.total.saturating_sub(bytes);
        if let Some(used) = self.by_tenant.get_mut(tenant) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                self.by_tenant.remove(tenant);
            }
        }
    }
}

impl AnswerMemory {
    /// Sets the actual size of an answer. It may exceed the reservation, which makes the next
    /// answer wait.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let mut used = self.answers.used.lock();
        used.remove(&self.tenant, self.bytes);
        used.add(&self.tenant, bytes);
        self.bytes = bytes;
        drop(used);
        self.answers.freed.notify_waiters();
    }
}

impl Drop for AnswerMemory {
    fn drop(&mut self) {
        self.answers.used.lock().remove(&self.tenant, self.bytes);
        self.answers.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
