//! What was done at the sockets of sandboxes: an append-only record.
//!
//! Records wait in memory, up to a number in all and for each grant, and are written in batches.
//! Who does something never waits for that; what does not fit is counted. A batch whose end is not
//! known is written again, so that a record may be there twice but is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use api::{AuditEvent, AuditOutcome, AuditRecordList};
use node::clock;
use node::gateway::Holder;
use node::store::StoreError;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::config::{AuditStatements, Config};
use crate::doors::{Happening, Witness};
use crate::store::AuditStore;

/// Records on a page, unless the caller says otherwise.
pub const PAGE_DEFAULT: usize = 100;

/// Records on a page, at most.
pub const PAGE_MAX: usize = 1000;

/// Bytes of a text or an error that are kept.
pub const TEXT_BYTES_MAX: usize = 4096;

/// How often records are written.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Records of one transaction.
const BATCH: usize = 500;

/// Writes between two looks for records that are too old.
const WRITES_PER_SWEEP: u32 = 1200;

/// How much is kept, and how much waits.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// How long a record is kept; nothing is written for zero.
    pub age: Duration,
    /// Most records.
    pub records_max: u64,
    /// Records that wait in all.
    pub waiting_max: usize,
    /// Records of one grant that wait.
    pub waiting_max_per_grant: usize,
}

impl AuditLimits {
    pub(crate) fn new(config: &Config) -> AuditLimits {
        AuditLimits {
            age: Duration::from_secs(config.audit_keep_days.saturating_mul(24 * 3600)),
            records_max: config.audit_records_max,
            waiting_max: config.audit_waiting_max,
            waiting_max_per_grant: config.audit_waiting_max_per_grant,
        }
    }
}

/// Which records are wanted. What is none does not matter.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of this session or execution.
    pub holder: Option<String>,
    /// Of this tenant's sandboxes.
    pub tenant: Option<String>,
    /// Of this kind.
    pub event: Option<AuditEvent>,
    /// That ended so.
    pub outcome: Option<AuditOutcome>,
    /// With a greater number.
    pub after: u64,
    /// How many at most.
    pub limit: usize,
}

/// A record that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) at_ms: u64,
    pub(crate) source: Arc<Source>,
    pub(crate) event: AuditEvent,
    pub(crate) outcome: AuditOutcome,
    pub(crate) text: Option<Box<str>>,
    pub(crate) error: Option<Box<str>>,
    pub(crate) took_us: u64,
    pub(crate) rows: Option<u64>,
    pub(crate) bytes_out: Option<u64>,
    pub(crate) bytes_in: Option<u64>,
}

/// Whose a record is.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) holder: Holder,
    pub(crate) grant: Box<str>,
    waiting: AtomicUsize,
}

/// The audit. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: AuditStore,
    limits: AuditLimits,
    statements: AuditStatements,
    waiting: Mutex<Vec<Waiting>>,
    lost: AtomicU64,
    written: AtomicU64,
    /// Held while records are written, so that who reads them waits for that.
    writing: tokio::sync::Mutex<()>,
}

/// Writes down what is done under one grant.
#[derive(Debug)]
struct Pen {
    audit: Arc<Inner>,
    source: Arc<Source>,
}

impl Witness for Pen {
    fn statements(&self) -> AuditStatements {
        match self.audit.limits.age.is_zero() {
            true => AuditStatements::None,
            false => self.audit.statements,
        }
    }

    fn saw(&self, happening: &Happening<'_>) {
        if self.audit.limits.age.is_zero() {
            return;
        }
        let has_room = |waiting: usize| waiting < self.audit.limits.waiting_max_per_grant;
        if !has_room(self.source.waiting.load(Ordering::Relaxed)) {
            self.audit.lose(1);
            return;
        }
        let took_us = u64::try_from(happening.took.as_micros()).unwrap_or(u64::MAX);
        let record = Waiting {
            at_ms: clock::wall_ms(),
            source: Arc::clone(&self.source),
            event: happening.event,
            outcome: happening.outcome,
            text: happening.text.map(kept),
            error: happening.error.map(kept),
            took_us,
            rows: happening.rows,
            bytes_out: happening.bytes_out,
            bytes_in: happening.bytes_in,
        };
        let mut waiting = self.audit.waiting.lock();
        if waiting.len() >= self.audit.limits.waiting_max {
            drop(waiting);
            self.audit.lose(1);
            return;
        }
        self.source.waiting.fetch_add(1, Ordering::Relaxed);
        waiting.push(record);
    }
}

/// As much of a text as is kept. PostgreSQL keeps no NUL.
fn kept(text: &str) -> Box<str> {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

impl Inner {
    fn lose(&self, count: usize) {
        self.lost.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn take(&self) -> Vec<Waiting> {
        let taken = std::mem::take(&mut *self.waiting.lock());
        for record in &taken {
            record.source.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Puts back what could not be written, as far as there is room.
    fn put_back(&self, mut records: Vec<Waiting>) {
        let mut waiting = self.waiting.lock();
        let room = self.limits.waiting_max.saturating_sub(waiting.len());
        let too_many = records.len().saturating_sub(room);
        self.lose(too_many);
        records.drain(..too_many);
        for record in &records {
            record.source.waiting.fetch_add(1, Ordering::Relaxed);
        }
        records.append(&mut waiting);
        *waiting = records;
    }
}

impl Audit {
    pub(crate) fn new(
        store: AuditStore,
        limits: AuditLimits,
        statements: AuditStatements,
    ) -> Audit {
        Audit(Arc::new(Inner {
            store,
            limits,
            statements,
            waiting: Mutex::default(),
            lost: AtomicU64::new(0),
            written: AtomicU64::new(0),
            writing: tokio::sync::Mutex::default(),
        }))
    }

    /// Who writes down what is done under one grant.
    pub(crate) fn witness(&self, holder: &Holder, grant: &str) -> Arc<dyn Witness> {
        let (holder, grant) = (holder.clone(), grant.into());
        let source = Arc::new(Source { holder, grant, waiting: AtomicUsize::new(0) });
        Arc::new(Pen { audit: Arc::clone(&self.0), source })
    }

    /// Writes records that wait.
    ///
    /// # Errors
    /// When the store cannot be written. They wait again then.
    pub(crate) async fn write(&self) -> Result<(), StoreError> {
        let _turn = self.0.writing.lock().await;
        let mut records = Pending { audit: &self.0, records: self.0.take() };
        while !records.records.is_empty() {
            let batch: Vec<Waiting> = records.records.iter().take(BATCH).cloned().collect();
            let count = batch.len();
            self.0.store.write(batch).await?;
            records.records.drain(..count);
            self.0.written.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records that are wanted, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub(crate) async fn records(&self, filter: AuditFilter) -> Result<AuditRecordList, StoreError> {
        self.write().await?;
        let limit = filter.limit.clamp(1, PAGE_MAX);
        let mut records = self.0.store.read(AuditFilter { limit: limit + 1, ..filter }).await?;
        let is_more = records.len() > limit;
        records.truncate(limit);
        let next_after = records.last().filter(|_| is_more).map(|record| record.seq);
        Ok(AuditRecordList { records, next_after })
    }

    /// Removes records that are too old or too many.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) async fn shorten(&self) -> Result<(), StoreError> {
        let AuditLimits { age, records_max, .. } = self.0.limits;
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.0.store.shorten(clock::wall_ms().saturating_sub(age_ms), records_max).await
    }

    /// Writes behind, and removes what is too old, until it is dropped.
    pub(crate) fn write_for_ever(&self) -> impl Future<Output = ()> + Send + use<> {
        let audit = self.clone();
        async move {
            let (mut writes, mut lost) = (0_u32, 0);
            loop {
                sleep(WRITE_INTERVAL).await;
                let mut done = audit.write().await;
                writes = writes.wrapping_add(1);
                if done.is_ok() && writes % WRITES_PER_SWEEP == 1 {
                    done = audit.shorten().await;
                }
                if let Err(error) = done {
                    tracing::warn!(error = &error as &dyn std::error::Error, "write the audit");
                }
                let now = audit.lost();
                if now > lost {
                    tracing::warn!(lost = now - lost, "records of the audit did not fit");
                    lost = now;
                }
            }
        }
    }

    /// Records that did not fit since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Records that were written since the start.
    pub(crate) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }
}

/// Records that are being written. What is left of them waits again, also when nobody waits for
/// the writing any more.
struct Pending<'a> {
    audit: &'a Inner,
    records: Vec<Waiting>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.records.is_empty() {
            self.audit.put_back(std::mem::take(&mut self.records));
        }
    }
}

#[cfg(test)]
mod tests;
