//! Audit log of sandboxes' sockets: an append-only record.
//!
//! Records are buffered in memory, up to a number in all, for each tenant and for each grant, and
//! are written in batches. An action never waits for that. Records that do not fit, or exceed the
//! rate of [`pace`], are counted, and the count is recorded as well, so that gaps are visible. A
//! batch with an unknown outcome is written again, so that a record may occur twice but is not
//! lost.

mod pace;
pub(crate) mod source;
mod summary;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, mem};

use api::{AuditEvent, AuditOutcome, AuditRecordList, AuditSummaryKey, AuditSummaryReport};
use node::clock;
use node::gateway::GrantHolder;
use node::store::SqlStoreError;
use node::tenant_values::TenantValues;
use node::traces::Tracer;
use parking_lot::Mutex;
use tokio::time::sleep;

use self::pace::GrantPace;
use self::source::AuditSource;
pub(crate) use self::summary::{AuditSummary, SummarizedRecord};
use crate::config::{AuditStatements, GatewayConfig};
use crate::doors::{AuditSink, GatewayEvent};
use crate::store::AuditStore;
use crate::traces;

/// Default number of records on a page.
pub const PAGE_DEFAULT: usize = 100;

/// Most records on a page.
pub const PAGE_MAX: usize = 1000;

/// Most stored bytes of a text or an error.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Interval between writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Least time between two log lines about missing records.
const LOSS_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Most records of one transaction.
const BATCH: usize = 500;

/// Most writes between two sweeps for expired records.
const WRITES_PER_SWEEP: u32 = 1200;

/// Fraction of all records that triggers a sweep earlier.
const RECORDS_PER_SWEEP: u64 = 20;

/// Buffered records that every tenant may have, even if others have filled the buffer.
const WAITING_OF_ALL: usize = 64;

/// Most sandboxes and grants whose missing records are counted separately until the count is
/// written; further ones are counted for their tenant.
const MISSING_MAX: usize = 4096;

/// Limits of the audit log: for stored and for buffered records.
#[derive(Clone, Copy, Debug)]
pub struct GatewayAuditLimits {
    /// Time for which a record is kept; zero disables the log.
    pub age: Duration,
    /// Most records.
    pub records: Bounds,
    /// Most buffered records in all.
    pub waiting_max: usize,
    /// Most buffered records of one tenant.
    pub waiting_max_per_tenant: usize,
    /// Most buffered records of one grant; also the size of a burst.
    pub waiting_max_per_grant: usize,
    /// Records per second of one grant, sustained; 0 means no limit.
    pub per_s_per_grant: f64,
}

/// Most stored records.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// In all.
    pub all: u64,
    /// Records of one tenant.
    pub tenant: u64,
    /// Records of one session or execution.
    pub holder: u64,
}

impl GatewayAuditLimits {
    pub(crate) fn new(config: &GatewayConfig) -> GatewayAuditLimits {
        GatewayAuditLimits {
            age: Duration::from_secs(config.audit_keep_days.saturating_mul(24 * 3600)),
            records: Bounds {
                all: config.audit_records_max,
                tenant: config.audit_records_max_per_tenant,
                holder: config.audit_records_max_per_holder,
            },
            waiting_max: config.audit_waiting_max,
            waiting_max_per_tenant: config.audit_waiting_max_per_tenant,
            waiting_max_per_grant: config.audit_waiting_max_per_grant,
            per_s_per_grant: config.audit_records_per_s_per_grant,
        }
    }
}

/// Filter of records. `None` matches every record.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Records of this session or execution.
    pub holder: Option<String>,
    /// Records of this tenant's sandboxes.
    pub tenant: Option<String>,
    /// Records of this kind.
    pub event: Option<AuditEvent>,
    /// Records with this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Records of this grant: `postgres:shop`, `http`.
    pub grant: Option<String>,
    /// Records with this in their text or error, ignoring the case of ASCII letters.
    pub text: Option<String>,
    /// Records that ended at this time or later, in Unix milliseconds.
    pub from_ms: Option<u64>,
    /// Records that ended before this time.
    pub to_ms: Option<u64>,
    /// Records with a greater number.
    pub after: u64,
    /// Records with a smaller number.
    pub before: Option<u64>,
    /// True to begin with the newest.
    pub is_newest_first: bool,
    /// Maximum number of records.
    pub limit: usize,
}

/// A buffered record.
#[derive(Debug)]
pub(crate) struct WaitingRecord {
    pub(crate) at_ms: u64,
    pub(crate) source: Arc<AuditSource>,
    pub(crate) event: AuditEvent,
    pub(crate) outcome: AuditOutcome,
    pub(crate) text: Option<Box<str>>,
    pub(crate) error: Option<Box<str>>,
    pub(crate) took_us: u64,
    pub(crate) rows: Option<u64>,
    pub(crate) bytes_out: Option<u64>,
    pub(crate) bytes_in: Option<u64>,
}

/// Buffered record with its reservation. Records of gaps need none.
type Placed = (Arc<WaitingRecord>, Option<AuditReservation>);

/// A reservation of a buffered record: in all, of a tenant, of a grant. It is released when the
/// record is written.
#[derive(Debug)]
struct AuditReservation([Arc<AtomicUsize>; 3]);

impl AuditReservation {
    /// Increments each count, and returns the new values.
    fn take(counts: [Arc<AtomicUsize>; 3]) -> (AuditReservation, [usize; 3]) {
        let now = counts.each_ref().map(|count| count.fetch_add(1, Ordering::Relaxed) + 1);
        (AuditReservation(counts), now)
    }
}

impl Drop for AuditReservation {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Missing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingRecords {
    pub(crate) count: u64,
    /// End times of the first and the last of them.
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

impl MissingRecords {
    fn and(self, other: MissingRecords) -> MissingRecords {
        MissingRecords {
            count: self.count.saturating_add(other.count),
            from_ms: self.from_ms.min(other.from_ms),
            to_ms: self.to_ms.max(other.to_ms),
        }
    }

    /// Returns the API's form of a record.
    fn read(record: &WaitingRecord) -> Option<MissingRecords> {
        let count = record.rows.filter(|_| record.event == AuditEvent::Missing)?;
        let from_ms = record.at_ms.saturating_sub(record.took_us / 1000);
        Some(MissingRecords { count, from_ms, to_ms: record.at_ms })
    }

    /// Creates the record of a gap. `why` ends a sentence that begins with the count.
    pub(crate) fn record(self, source: Arc<AuditSource>, why: fmt::Arguments<'_>) -> WaitingRecord {
        let MissingRecords { count, from_ms, to_ms } = self;
        let [from, to] = [from_ms, to_ms].map(clock::rfc3339_of_ms);
        WaitingRecord {
            at_ms: to_ms,
            source,
            event: AuditEvent::Missing,
            outcome: AuditOutcome::Done,
            text: Some(format!("{count} {why}, from {from} to {to}").into()),
            error: None,
            took_us: to_ms.saturating_sub(from_ms).saturating_mul(1000),
            rows: Some(count),
            bytes_out: None,
            bytes_in: None,
        }
    }
}

/// The audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct GatewayAudit(Arc<AuditInner>);

#[derive(Debug)]
struct AuditInner {
    store: AuditStore,
    limits: GatewayAuditLimits,
    statements: AuditStatements,
    /// Records spans of grant uses; `None` without tracing.
    tracer: Option<Tracer>,
    state: Mutex<AuditState>,
    /// Records that are buffered or being written, in all and for each tenant that has some.
    waiting: Arc<AtomicUsize>,
    tenants: TenantValues<AtomicUsize>,
    lost: AtomicU64,
    written: AtomicU64,
    /// Statements, requests and refusals of sandboxes.
    requests: AtomicU64,
    refusals: AtomicU64,
    /// Held while records are written, so that readers wait for them.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct AuditState {
    waiting: Vec<Placed>,
    /// Records that did not fit since the last write.
    missing: HashMap<Arc<AuditSource>, MissingRecords>,
}

impl AuditState {
    fn miss(&mut self, source: &Arc<AuditSource>, missing: MissingRecords) {
        let source = match self.missing.len() < MISSING_MAX || self.missing.contains_key(source) {
            true => Arc::clone(source),
            false => {
                let holder = GrantHolder::new("", Arc::clone(&source.holder.tenant));
                Arc::new(AuditSource { holder, grant: "".into() })
            }
        };
        let so_far = self.missing.get(&source).copied();
        self.missing.insert(source, so_far.map_or(missing, |it| it.and(missing)));
    }
}

/// Records the uses of one grant.
#[derive(Debug)]
struct AuditWriter {
    audit: Arc<AuditInner>,
    source: Arc<AuditSource>,
    /// Buffered records, of the tenant and of this grant.
    of_tenant: Arc<AtomicUsize>,
    own: Arc<AtomicUsize>,
    pace: Mutex<GrantPace>,
}

impl AuditWriter {
    /// Reserves space for one more record, if there is any.
    fn place(&self) -> Option<AuditReservation> {
        let limits = &self.audit.limits;
        let counts = [&self.audit.waiting, &self.of_tenant, &self.own].map(Arc::clone);
        let (place, [of_all, of_tenant, own]) = AuditReservation::take(counts);
        let fits = own <= limits.waiting_max_per_grant
            && of_tenant <= limits.waiting_max_per_tenant
            && (of_all <= limits.waiting_max || of_tenant <= WAITING_OF_ALL);
        fits.then_some(place)
    }
}

impl AuditSink for AuditWriter {
    fn statements(&self) -> AuditStatements {
        match self.audit.limits.age.is_zero() {
            true => AuditStatements::None,
            false => self.audit.statements,
        }
    }

    fn is_traced(&self) -> bool {
        self.audit.tracer.is_some()
    }

    fn saw(&self, happening: &GatewayEvent<'_>) {
        self.audit.count(happening);
        if let Some(tracer) = &self.audit.tracer {
            traces::record(tracer, &self.source, happening);
        }
        if self.audit.limits.age.is_zero() {
            return;
        }
        let at_ms = clock::wall_ms();
        let is_timely = self.pace.lock().take(happening, clock::now());
        let Some(place) = is_timely.then(|| self.place()).flatten() else {
            self.audit.lost.fetch_add(1, Ordering::Relaxed);
            let missing = MissingRecords { count: 1, from_ms: at_ms, to_ms: at_ms };
            self.audit.state.lock().miss(&self.source, missing);
            return;
        };
        let record = WaitingRecord {
            at_ms,
            source: Arc::clone(&self.source),
            event: happening.event,
            outcome: happening.outcome,
            text: happening.text.map(kept),
            error: happening.error.map(kept),
            took_us: u64::try_from(happening.took.as_micros()).unwrap_or(u64::MAX),
            rows: happening.rows,
            bytes_out: happening.bytes_out,
            bytes_in: happening.bytes_in,
        };
        self.audit.state.lock().waiting.push((Arc::new(record), Some(place)));
    }
}

/// Truncates a text to the stored length. PostgreSQL stores no NUL.
fn kept(text: &str) -> Box<str> {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

impl AuditInner {
    /// Takes the buffered records, with the records of gaps.
    fn take(&self) -> Vec<Placed> {
        let AuditState { waiting, missing } = mem::take(&mut *self.state.lock());
        let why = format_args!("more were not written down");
        let missing =
            missing.into_iter().map(|(source, it)| (Arc::new(it.record(source, why)), None));
        waiting.into_iter().chain(missing).collect()
    }

    /// Counts an event, whether it is recorded or not.
    fn count(&self, happening: &GatewayEvent<'_>) {
        if matches!(happening.event, AuditEvent::Statement | AuditEvent::Request) {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        if happening.outcome == AuditOutcome::Refused {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts back records that could not be written. They have kept their reservations.
    fn put_back(&self, records: Vec<Placed>) {
        let mut state = self.state.lock();
        let mut waiting = Vec::with_capacity(records.len() + state.waiting.len());
        for (record, place) in records {
            match MissingRecords::read(&record) {
                Some(missing) => state.miss(&record.source, missing),
                None => waiting.push((record, place)),
            }
        }
        waiting.append(&mut state.waiting);
        state.waiting = waiting;
    }
}

impl GatewayAudit {
    pub(crate) fn new(
        store: AuditStore,
        limits: GatewayAuditLimits,
        statements: AuditStatements,
    ) -> GatewayAudit {
        GatewayAudit(Arc::new(AuditInner {
            store,
            limits,
            statements,
            tracer: None,
            state: Mutex::default(),
            waiting: Arc::default(),
            tenants: TenantValues::default(),
            lost: AtomicU64::new(0),
            written: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            writing: tokio::sync::Mutex::default(),
        }))
    }

    /// Records spans of grant uses, too. Must be called before the first record.
    pub(crate) fn traced_by(mut self, tracer: Option<Tracer>) -> GatewayAudit {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.tracer = tracer;
        }
        self
    }

    /// Returns the recorder of one grant.
    pub(crate) fn witness(&self, holder: &GrantHolder, grant: &str) -> Arc<dyn AuditSink> {
        let GatewayAuditLimits { waiting_max_per_grant, per_s_per_grant, .. } = self.0.limits;
        let pace = GrantPace::new(waiting_max_per_grant, per_s_per_grant, clock::now());
        Arc::new(AuditWriter {
            audit: Arc::clone(&self.0),
            source: Arc::new(AuditSource { holder: holder.clone(), grant: grant.into() }),
            of_tenant: self.0.tenants.value_of(&holder.tenant, AtomicUsize::default),
            own: Arc::default(),
            pace: Mutex::new(pace),
        })
    }

    /// Writes buffered records.
    ///
    /// # Errors
    /// If the store cannot be written. The records are buffered again.
    pub(crate) async fn write(&self) -> Result<(), SqlStoreError> {
        let _turn = self.0.writing.lock().await;
        let mut records = PendingRecords { audit: &self.0, records: self.0.take() };
        while !records.records.is_empty() {
            let batch: Vec<_> =
                records.records.iter().take(BATCH).map(|(it, _)| Arc::clone(it)).collect();
            let count = batch.len();
            self.0.store.write(batch).await?;
            records.records.drain(..count);
            self.0.written.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns matching records, oldest or newest first.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub(crate) async fn records(
        &self,
        filter: AuditFilter,
    ) -> Result<AuditRecordList, SqlStoreError> {
        self.write().await?;
        let is_newest_first = filter.is_newest_first;
        let limit = filter.limit.clamp(1, PAGE_MAX);
        let page = self.0.store.read(AuditFilter { limit, ..filter }).await?;
        let (next_after, next_before) = match is_newest_first {
            true => (None, page.next),
            false => (page.next, None),
        };
        Ok(AuditRecordList { records: page.records, next_after, next_before, newest: page.newest })
    }

    /// Counts the newest matching records by group.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub(crate) async fn summary(
        &self,
        by: AuditSummaryKey,
        filter: AuditFilter,
    ) -> Result<AuditSummaryReport, SqlStoreError> {
        self.write().await?;
        let limit = filter.limit;
        let (summary, next_before) = self.0.store.summarize(by, filter).await?;
        let (mut groups, mut others) = summary.finish();
        others += groups.iter().skip(limit).map(|group| group.records).sum::<u64>();
        groups.truncate(limit);
        Ok(AuditSummaryReport { groups, others, next_before })
    }

    /// Removes records that are too old or too many.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn shorten(&self) -> Result<(), SqlStoreError> {
        let GatewayAuditLimits { age, records, .. } = self.0.limits;
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.0.store.shorten(clock::wall_ms().saturating_sub(age_ms), records).await
    }

    /// Writes queued records and removes expired ones, until it is dropped.
    ///
    /// An outage of the store is logged once, when it begins, and once when it is over: the loop
    /// tries again each [`WRITE_INTERVAL`]. Missing records are logged when the first one is
    /// missing, and then once in [`LOSS_LOG_INTERVAL`] at most.
    pub(crate) fn write_for_ever(&self) -> impl Future<Output = ()> + Send + use<> {
        let audit = self.clone();
        async move {
            let many = audit.0.limits.records.all / RECORDS_PER_SWEEP;
            let (mut writes, mut lost, mut swept) = (0_u32, 0, 0);
            let mut is_failing = false;
            let mut loss_logged: Option<Instant> = None;
            loop {
                sleep(WRITE_INTERVAL).await;
                let mut done = audit.write().await;
                writes = writes.wrapping_add(1);
                let is_much = audit.written().saturating_sub(swept) > many;
                if done.is_ok() && (is_much || writes % WRITES_PER_SWEEP == 1) {
                    swept = audit.written();
                    done = audit.shorten().await;
                }
                match &done {
                    Err(error) if !is_failing => {
                        let error: &dyn std::error::Error = error;
                        tracing::warn!(error, "the audit cannot be written; records are kept");
                    }
                    Ok(()) if is_failing => tracing::info!("the audit is written again"),
                    Err(_) | Ok(()) => {}
                }
                is_failing = done.is_err();
                let now = audit.lost();
                let is_log_due =
                    loss_logged.is_none_or(|at| clock::now() >= at + LOSS_LOG_INTERVAL);
                if now > lost && is_log_due {
                    tracing::warn!(
                        lost = now - lost,
                        "audit records are missing: more than the limits gateway.audit_* \
                         permit"
                    );
                    (lost, loss_logged) = (now, Some(clock::now()));
                }
            }
        }
    }

    /// Returns the number of statements and requests, and of rejections, since the start.
    pub(crate) fn requests_and_refusals(&self) -> (u64, u64) {
        (self.0.requests.load(Ordering::Relaxed), self.0.refusals.load(Ordering::Relaxed))
    }

    /// Returns the number of records that did not fit since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Returns the number of records written since the start.
    pub(crate) fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }
}

/// Records that are being written. If the write is cancelled, the remaining ones are buffered
/// again.
struct PendingRecords<'a> {
    audit: &'a AuditInner,
    records: Vec<Placed>,
}

impl Drop for PendingRecords<'_> {
    fn drop(&mut self) {
        if !self.records.is_empty() {
            self.audit.put_back(std::mem::take(&mut self.records));
        }
    }
}

#[cfg(test)]
mod tests;
