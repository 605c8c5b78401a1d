//! Asynchronous executions: accepted durably, run by workers, followed live.
//!
//! [`Jobs`] has the operations; `worker` claims jobs from the queue and runs them; `live` has the
//! state of executions in this process beyond the queue: their events, and attached callers.

mod granted;
mod live;
mod metrics;
mod outages;
mod traced;
mod webhooks;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{
    EventKind, Execution, ExecutionEvent, ExecutionId, ExecutionList, ExecutionRecord,
    ExecutionRequest, ExecutionState, QueueStats,
};
use node::changes::RecordFeed;
use node::client::{AddressGuard, HttpClient};
pub(crate) use node::clock::rfc3339_of_ms as date;
use node::telemetry::Registry;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use self::live::LiveExecutions;
pub(crate) use self::live::{CallerAttachment, ExecutionSubscription};
use self::metrics::JobMetrics;
use self::outages::QueueOutages;
use self::traced::JobTrace;
pub(crate) use self::traced::is_interactive;
use self::webhooks::WebhookSender;
use self::worker::{AwaitedAttachments, HeldJobs, RecentPace};
use crate::answers::{AnswerDocument, AnswerMemory, AnswerPatience};
use crate::aside::aside;
use crate::config::{ConfigError, JobsConfig};
use crate::error::{ExecutionError, IDEMPOTENCY_KEY, RequestRefusal};
use crate::events;
use crate::queue::{
    CancelAnswer, IdempotencyMark, JobFilter, JobParts, JobQueue, NewJob, PushOutcome, QueuedJob,
};
use crate::service::ExecutionService;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// Interval of checks for an end that another server may have caused.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of executions on one page of a list.
pub(crate) const PAGE_MAX: usize = 200;

/// Runs executions that outlive their request. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    inner: Arc<JobsInner>,
}

struct JobsInner {
    service: ExecutionService,
    queue: Arc<dyn JobQueue>,
    config: JobsConfig,
    lives: LiveExecutions,
    held: HeldJobs,
    attaching: AwaitedAttachments,
    /// Recent duration of executions, for estimates.
    pace: RecentPace,
    metrics: JobMetrics,
    outages: QueueOutages,
    /// Notified when a webhook may be due.
    webhooks: Notify,
    /// Notified when executions were accepted here.
    accepted: Notify,
    /// Feed of executions whose records this server has changed.
    changes: RecordFeed,
    sender: WebhookSender,
}

/// An execution to accept.
#[derive(Clone, Debug, Default)]
pub struct JobSubmission {
    /// Request to run.
    pub request: ExecutionRequest,
    /// Makes a repeated submission harmless.
    pub idempotency_key: Option<String>,
    /// Data of the face that accepted it; opaque.
    pub face: Option<String>,
}

/// A submission that passed all checks.
#[derive(Debug)]
pub(crate) struct CheckedSubmission(NewJob);

/// Location of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionLocation {
    /// The job runs on this server.
    Here,
    /// The job runs on another server.
    Elsewhere,
    /// The job waits for a server to claim it.
    Waiting,
    /// The job has ended, or does not exist.
    Over,
}

impl Jobs {
    /// Creates the executions of `service` that wait in `queue`. No job runs before [`Jobs::work`].
    /// The keys of webhooks are derived from `webhook_key`.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(
        service: ExecutionService,
        queue: Arc<dyn JobQueue>,
        config: JobsConfig,
        webhook_key: [u8; 32],
        registry: &mut Registry,
    ) -> Result<Jobs, ConfigError> {
        let client = HttpClient::new(AddressGuard::Public(config.allowed_networks()?));
        let sender = WebhookSender { client, key: webhook_key };
        let (lives, held, pace) =
            (LiveExecutions::default(), HeldJobs::default(), RecentPace::default());
        let (webhooks, accepted) = (Notify::new(), Notify::new());
        let metrics = JobMetrics::new(registry);
        let attaching = AwaitedAttachments::default();
        let inner = JobsInner {
            service,
            queue,
            config,
            lives,
            held,
            attaching,
            pace,
            metrics,
            outages: QueueOutages::default(),
            webhooks,
            accepted,
            changes: RecordFeed::default(),
            sender,
        };
        Ok(Jobs { inner: Arc::new(inner) })
    }

    /// Returns the key that a tenant's webhooks are signed with, unless a request has its own.
    pub fn webhook_secret(&self, tenant: &str) -> String {
        self.inner.sender.secret(tenant)
    }

    /// Returns the synchronous operations.
    pub fn service(&self) -> &ExecutionService {
        &self.inner.service
    }

    /// Returns when executions were accepted here since the last call. For a single caller, which
    /// notifies other servers ([`JobQueue::wake`]).
    pub async fn accepted_here(&self) {
        self.inner.accepted.notified().await;
    }

    /// Returns the feed of executions that this server accepts, starts, ends or changes.
    pub fn changes(&self) -> &RecordFeed {
        &self.inner.changes
    }

    /// Returns the queue of the jobs.
    pub fn queue(&self) -> &dyn JobQueue {
        &*self.inner.queue
    }

    /// Accepts all of the submissions, durably, or none.
    ///
    /// # Errors
    /// If one of them cannot be run as requested, or the queue is full.
    pub async fn submit(
        &self,
        tenant: &str,
        submissions: Vec<JobSubmission>,
    ) -> Result<Vec<ExecutionRecord>, ExecutionError> {
        let batch_max = self.inner.config.batch_max;
        let count = submissions.len();
        if count == 0 || count > batch_max {
            let message = format!("there must be 1 to {batch_max} executions");
            return Err(RequestRefusal::invalid("executions", message).into());
        }
        let mut checked = Vec::with_capacity(count);
        for (index, submission) in submissions.into_iter().enumerate() {
            let one = self.check(tenant, submission).await;
            checked.push(if count == 1 { one? } else { one.map_err(|error| error.at(index))? });
        }
        self.accept(tenant, checked).await
    }

    /// Accepts submissions that were checked for this tenant, durably, all or none.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) async fn accept(
        &self,
        tenant: &str,
        checked: Vec<CheckedSubmission>,
    ) -> Result<Vec<ExecutionRecord>, ExecutionError> {
        let inner = &*self.inner;
        let jobs: Vec<NewJob> = checked.into_iter().map(|CheckedSubmission(job)| job).collect();
        let ids: Vec<ExecutionId> = jobs.iter().map(|job| job.id.clone()).collect();
        let records: Vec<ExecutionRecord> = jobs.iter().map(accepted).collect();
        let pushed = inner.queue.push(jobs).await?;
        let mut answer = Vec::with_capacity(ids.len());
        for ((pushed, id), record) in pushed.into_iter().zip(ids).zip(records) {
            match pushed {
                PushOutcome::New => {
                    inner.metrics.accepted.inc();
                    inner.accepted.notify_one();
                    inner.changes.publish(&id.0);
                    answer.push(self.with_place(record).await?);
                }
                PushOutcome::Before(before) if before == id => answer.push(record),
                // Without its result: a batch could contain any number of results.
                PushOutcome::Before(before) => answer.push(self.state(tenant, &before).await?),
            }
        }
        Ok(answer)
    }

    /// Checks one submission without accepting it.
    ///
    /// # Errors
    /// If it cannot be run as requested.
    pub(crate) async fn check(
        &self,
        tenant: &str,
        submission: JobSubmission,
    ) -> Result<CheckedSubmission, ExecutionError> {
        let JobSubmission { mut request, idempotency_key, face } = submission;
        // A terminal implies it; the worker reads only one of the two fields.
        request.interactive |= request.terminal.is_some();
        let text = granted::stored(&self.inner.sender.key, tenant, &request)
            .map_err(|error| RequestRefusal::invalid("", format!("cannot be stored: {error}")))?;
        let id = self.inner.service.next_id();
        let (label, webhook) = (request.label.clone(), request.webhook.clone());
        let (priority, deadline_ms) = (request.priority, request.deadline_ms);
        // The request is large. Only its text is stored, so the check can consume it.
        let language = self.inner.service.check(&id, tenant, request).await?;
        if let Some(webhook) = &webhook {
            let checked = self.inner.sender.client.check(&webhook.url);
            checked.map_err(|error| RequestRefusal::invalid("webhook.url", error.to_string()))?;
        }
        let idempotency = match idempotency_key {
            None => None,
            Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => {
                let message = format!("must have 1 to {KEY_BYTES_MAX} bytes");
                return Err(RequestRefusal::invalid(IDEMPOTENCY_KEY, message).into());
            }
            Some(key) => Some(IdempotencyMark { key, fingerprint: Sha256::digest(&text).into() }),
        };
        let created_ms = self.inner.queue.now_ms();
        Ok(CheckedSubmission(NewJob {
            id,
            tenant: tenant.to_owned(),
            language,
            label,
            priority,
            created_ms,
            deadline_ms: deadline_ms.map(|after| created_ms.saturating_add(after)),
            idempotency,
            request: traced::stored(text, created_ms),
            face,
            webhook: webhook.is_some(),
        }))
    }

    /// Returns the record of an execution of this tenant, without its result.
    ///
    /// # Errors
    /// If the tenant has no execution with this id.
    pub async fn state(
        &self,
        tenant: &str,
        id: &ExecutionId,
    ) -> Result<ExecutionRecord, ExecutionError> {
        let job = self.job(tenant, id, JobParts::default()).await?;
        self.with_place(self.record(job)).await
    }

    /// Returns whether an execution runs here.
    #[must_use]
    pub fn runs_here(&self, id: &ExecutionId) -> bool {
        self.inner.held.has(id)
    }

    /// Returns the location of an execution of any tenant.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn place(&self, id: &ExecutionId) -> Result<ExecutionLocation, ExecutionError> {
        if self.runs_here(id) {
            return Ok(ExecutionLocation::Here);
        }
        let Some(job) = self.inner.queue.get(id.clone(), JobParts::default()).await? else {
            return Ok(ExecutionLocation::Over);
        };
        Ok(match job.state {
            // It was claimed meanwhile.
            ExecutionState::Running if self.runs_here(id) => ExecutionLocation::Here,
            ExecutionState::Running => ExecutionLocation::Elsewhere,
            ExecutionState::Queued => ExecutionLocation::Waiting,
            _ => ExecutionLocation::Over,
        })
    }

    /// Returns whether an execution is interactive, for a caller that attaches. Reads its request.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn is_for_attached(&self, id: &ExecutionId) -> Result<bool, ExecutionError> {
        let parts = JobParts { request: true, result: false };
        let job = self.inner.queue.get(id.clone(), parts).await?;
        Ok(job.and_then(|job| job.request).is_some_and(|request| is_interactive(&request)))
    }

    /// Returns the record of an execution of this tenant, with its result.
    ///
    /// # Errors
    /// If the tenant has no execution with this id, or there is no memory for its result.
    pub(crate) async fn document(
        &self,
        tenant: &str,
        id: &ExecutionId,
        has_request: bool,
    ) -> Result<AnswerDocument, ExecutionError> {
        let parts = JobParts { request: has_request, result: true };
        let (mut job, room) = self.fetch(Some(tenant), id, parts, AnswerPatience::Caller).await?;
        let mut stored = Vec::new();
        for (name, part) in [("request", job.request.take()), ("result", job.result.take())] {
            stored.extend(checked(id, part).await.map(|text| (name, text)));
        }
        let record = self.with_place(self.record(job)).await?;
        Ok(written(&record, stored)?.held([room]))
    }

    /// Returns the body of a webhook: the same document, of a job that was read already.
    async fn webhook_body(&self, mut job: QueuedJob) -> Result<AnswerDocument, ExecutionError> {
        let stored = checked(&job.id, job.result.take()).await;
        written(&self.record(job), stored.map(|text| ("result", text)).into_iter().collect())
    }

    /// Returns a job with parts that may be large, and memory for twice their size. If `tenant` is
    /// given, the job must belong to it.
    ///
    /// # Errors
    /// If there is no such job, or no memory for it.
    pub(crate) async fn fetch(
        &self,
        tenant: Option<&str>,
        id: &ExecutionId,
        parts: JobParts,
        patience: AnswerPatience,
    ) -> Result<(QueuedJob, AnswerMemory), ExecutionError> {
        let (job, _trace, room) = self.fetch_traced(tenant, id, parts, patience).await?;
        Ok((job, room))
    }

    /// Fetches a job, and its trace if the request was requested.
    async fn fetch_traced(
        &self,
        tenant: Option<&str>,
        id: &ExecutionId,
        parts: JobParts,
        patience: AnswerPatience,
    ) -> Result<(QueuedJob, Option<JobTrace>, AnswerMemory), ExecutionError> {
        let answers = self.inner.service.answers();
        let deadline = answers.deadline(patience);
        loop {
            let reading = answers.reading().await;
            let job = self.inner.queue.get(id.clone(), parts).await?;
            let job = job.filter(|job| tenant.is_none_or(|tenant| job.tenant == tenant));
            let (job, trace) = without_trace(job.ok_or(ExecutionError::NotFound)?);
            let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
            let bytes = length(&job.result).saturating_add(length(&job.request));
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(2);
            if let Some(room) = answers.try_enter(&job.tenant, bytes) {
                return Ok((job, trace, room));
            }
            let tenant = job.tenant.clone();
            // A waiting caller holds neither the read data nor the permit to read.
            drop((job, reading));
            answers.wait(&tenant, bytes, deadline).await?;
        }
    }

    /// Returns the record of an execution of this tenant, with its result.
    #[cfg(test)]
    pub(crate) async fn get(
        &self,
        tenant: &str,
        id: &ExecutionId,
    ) -> Result<ExecutionRecord, ExecutionError> {
        let job = self.job(tenant, id, JobParts { request: false, result: true }).await?;
        self.with_place(self.record(job)).await
    }

    /// Returns the job as stored in the queue.
    ///
    /// # Errors
    /// If the tenant has no job with this id.
    pub async fn job(
        &self,
        tenant: &str,
        id: &ExecutionId,
        parts: JobParts,
    ) -> Result<QueuedJob, ExecutionError> {
        let job = self.inner.queue.get(id.clone(), parts).await?;
        let job = job.filter(|job| job.tenant == tenant).ok_or(ExecutionError::NotFound)?;
        Ok(without_trace(job).0)
    }

    /// Returns jobs of this tenant as stored in the queue, newest first.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn jobs(
        &self,
        tenant: &str,
        filter: JobFilter,
    ) -> Result<Vec<QueuedJob>, ExecutionError> {
        let filter = JobFilter { tenant: Some(tenant.to_owned()), ..filter };
        let jobs = self.inner.queue.list(filter).await?;
        Ok(jobs.into_iter().map(|job| without_trace(job).0).collect())
    }

    /// Returns one page of executions, of the filter's tenant or of all.
    ///
    /// # Errors
    /// If the queue cannot be reached, or does not support the filter.
    pub async fn list(&self, filter: JobFilter) -> Result<ExecutionList, ExecutionError> {
        let queue = &self.inner.queue;
        if filter.verdict.is_some() && !queue.knows_verdicts() {
            let message = format!(
                "the back end of this queue ({}) keeps no verdicts to filter by; filter by `state`",
                queue.backend()
            );
            return Err(RequestRefusal::invalid("verdict", message).into());
        }
        let limit = filter.limit.clamp(1, PAGE_MAX);
        // One more job shows whether there is another page.
        let mut jobs = queue.list(JobFilter { limit: limit + 1, ..filter }).await?;
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next_cursor = jobs.last().filter(|_| more).map(|job| job.id.0.clone());
        let executions = jobs.into_iter().map(|job| self.record(job)).collect();
        Ok(ExecutionList { executions, next_cursor })
    }

    /// Cancels a waiting or running execution.
    ///
    /// # Errors
    /// If the tenant has no execution with this id, or it has ended already.
    pub async fn cancel(
        &self,
        tenant: &str,
        id: &ExecutionId,
    ) -> Result<ExecutionRecord, ExecutionError> {
        let message = "cancelled by its owner".to_owned();
        let owner = tenant.to_owned();
        match self
            .inner
            .queue
            .cancel(owner, id.clone(), message.clone(), self.inner.queue.now_ms())
            .await?
        {
            CancelAnswer::Unknown => return Err(ExecutionError::NotFound),
            CancelAnswer::Ended(state) => {
                let message = format!("the execution is {} already", state.as_str());
                return Err(ExecutionError::Conflict(message));
            }
            CancelAnswer::Cancelled => {
                self.publish_end(id, ExecutionState::Cancelled, Some(message))
            }
            // At once if it runs here; otherwise its server learns of it by its next heartbeat.
            CancelAnswer::Running => self.inner.lives.cancel(id, &message),
        }
        self.inner.webhooks.notify_one();
        self.state(tenant, id).await
    }

    /// Cancels an execution that has not ended, or removes one that has.
    ///
    /// # Errors
    /// If the tenant has no execution with this id.
    pub async fn delete(
        &self,
        tenant: &str,
        id: &ExecutionId,
    ) -> Result<ExecutionRecord, ExecutionError> {
        let record = match self.cancel(tenant, id).await {
            Err(ExecutionError::Conflict(_)) => self.state(tenant, id).await?,
            other => other?,
        };
        if self.inner.queue.remove(tenant.to_owned(), id.clone()).await? {
            self.inner.lives.forget(id);
            self.inner.changes.publish(&id.0);
        }
        Ok(record)
    }

    /// Waits until an execution has ended. Cancel-safe.
    ///
    /// # Errors
    /// If the tenant has no execution with this id.
    pub async fn ended(&self, tenant: &str, id: &ExecutionId) -> Result<(), ExecutionError> {
        let job = self.job(tenant, id, JobParts::default()).await?;
        if !job.state.is_final() {
            let mut subscription = self.follow(&job, 0);
            while subscription.next().await.is_some() {}
        }
        Ok(())
    }

    /// Follows an execution from the event after `after`; 0 is the beginning.
    ///
    /// # Errors
    /// If the tenant has no execution with this id.
    #[cfg(test)]
    pub(crate) async fn subscribe(
        &self,
        tenant: &str,
        id: &ExecutionId,
        after: u64,
    ) -> Result<ExecutionSubscription, ExecutionError> {
        Ok(self.follow(&self.job(tenant, id, JobParts::default()).await?, after))
    }

    /// Follows a job that was already looked up, for an authorized caller.
    pub(crate) fn follow(&self, job: &QueuedJob, after: u64) -> ExecutionSubscription {
        ExecutionSubscription::new(self.clone(), job, after)
    }

    /// Takes over an execution's input; it ends when the attachment is dropped.
    ///
    /// # Errors
    /// If another client is attached, or the execution has ended.
    pub(crate) fn attach(
        &self,
        id: &ExecutionId,
        after: u64,
    ) -> Result<CallerAttachment, ExecutionError> {
        self.inner.lives.attach(id, after)
    }

    /// Returns the last event of an ended execution, from the record in the queue.
    async fn last_event(
        &self,
        id: &ExecutionId,
    ) -> Result<Option<(ExecutionEvent, AnswerMemory)>, ExecutionError> {
        let job = self.inner.queue.get(id.clone(), JobParts::default()).await?;
        if !job.ok_or(ExecutionError::NotFound)?.state.is_final() {
            return Ok(None);
        }
        let parts = JobParts { request: false, result: true };
        let (job, mut room) = self.fetch(None, id, parts, AnswerPatience::Endless).await?;
        // The parsed result, its text, and the WebSocket's encoding of it.
        room.set(job.result.as_ref().map_or(0, Vec::len).saturating_mul(3));
        if !job.state.is_final() {
            return Ok(None);
        }
        let attempts = job.attempts.max(1);
        let record = self.record(job);
        let event = match record.result {
            Some(result) => ExecutionEvent {
                seq: if result.last_seq > 0 { result.last_seq } else { events::last(attempts) },
                kind: EventKind::Verdict {
                    verdict: result.outcome.verdict,
                    result: Box::new(result),
                },
            },
            None => ExecutionEvent {
                seq: events::last(attempts),
                kind: EventKind::Ended { state: record.state, message: record.message },
            },
        };
        Ok(Some((event, room)))
    }

    /// Returns figures of a tenant, or of all.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn stats(&self, tenant: Option<&str>) -> Result<QueueStats, ExecutionError> {
        Ok(self.inner.queue.stats(tenant.map(str::to_owned), self.inner.queue.now_ms()).await?)
    }

    /// Pauses or resumes the start of executions; for all tenants, across restarts.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn set_paused(&self, paused: bool) -> Result<(), ExecutionError> {
        Ok(self.inner.queue.set_paused(paused).await?)
    }

    /// Cancels all waiting executions, of a tenant or of all.
    ///
    /// # Errors
    /// If the queue cannot be reached.
    pub async fn drain(&self, tenant: Option<&str>) -> Result<u64, ExecutionError> {
        let drained =
            self.inner.queue.drain(tenant.map(str::to_owned), self.inner.queue.now_ms()).await?;
        for id in &drained {
            let message = Some("the queue was drained".to_owned());
            self.publish_end(id, ExecutionState::Cancelled, message);
        }
        self.inner.webhooks.notify_one();
        Ok(u64::try_from(drained.len()).unwrap_or(u64::MAX))
    }

    /// Queues dead executions again, one or all, of a tenant or of all.
    ///
    /// # Errors
    /// If the queue cannot be reached, or there is no such dead execution.
    pub async fn replay(
        &self,
        tenant: Option<&str>,
        id: Option<&ExecutionId>,
    ) -> Result<u64, ExecutionError> {
        let queue = &self.inner.queue;
        let replayed =
            queue.replay(tenant.map(str::to_owned), id.cloned(), self.inner.queue.now_ms()).await?;
        for id in &replayed {
            self.inner.lives.forget(id);
            self.inner.changes.publish(&id.0);
        }
        if let (true, Some(id)) = (replayed.is_empty(), id) {
            let job = queue.get(id.clone(), JobParts::default()).await?;
            let visible = job.filter(|job| tenant.is_none_or(|tenant| job.tenant == tenant));
            let state = visible.ok_or(ExecutionError::NotFound)?.state;
            let message =
                format!("only dead executions are retried; this one is {}", state.as_str());
            return Err(ExecutionError::Conflict(message));
        }
        Ok(u64::try_from(replayed.len()).unwrap_or(u64::MAX))
    }

    /// Publishes to this process's events that an execution has ended without a result.
    fn publish_end(&self, id: &ExecutionId, state: ExecutionState, message: Option<String>) {
        self.inner.metrics.ended(state);
        self.inner.lives.end(id, Some(EventKind::Ended { state, message }), 0);
        self.inner.changes.publish(&id.0);
    }

    /// Converts a job to its API record.
    pub fn record(&self, job: QueuedJob) -> ExecutionRecord {
        let keep_ms = u64::try_from(self.inner.config.keep().as_millis()).unwrap_or(u64::MAX);
        let result = job.result.as_deref().and_then(|text| parse_result(&job.id, text));
        ExecutionRecord {
            state: job.state,
            language: job.language,
            priority: job.priority,
            label: job.label,
            created_at: date(job.created_ms),
            started_at: job.started_ms.map(date),
            finished_at: job.finished_ms.map(date),
            expires_at: job.finished_ms.map(|ms| date(ms.saturating_add(keep_ms))),
            attempts: job.attempts,
            position: None,
            estimated_start_ms: None,
            verdict: job.verdict,
            message: job.message,
            request: None,
            result,
            id: job.id,
        }
    }

    /// Adds the position in the queue and the estimate that follows from it.
    async fn with_place(&self, record: ExecutionRecord) -> Result<ExecutionRecord, ExecutionError> {
        if record.state != ExecutionState::Queued {
            return Ok(record);
        }
        let position =
            self.inner.queue.position(record.id.clone(), self.inner.queue.now_ms()).await?;
        let workers = self.inner.service.running_max();
        let estimated_start_ms = position.and_then(|place| self.inner.pace.wait_ms(place, workers));
        Ok(ExecutionRecord { position, estimated_start_ms, ..record })
    }
}

/// Separates the trace from a job's request: clients must not see this detail of storage.
fn without_trace(mut job: QueuedJob) -> (QueuedJob, Option<JobTrace>) {
    let Some(stored) = job.request.take() else { return (job, None) };
    let (request, trace) = match traced::untraced(&stored) {
        (_, None) => (stored, None),
        (request, trace) => (request.into_owned(), trace),
    };
    (QueuedJob { request: Some(request), ..job }, trace)
}

/// Returns the record of a job that was just accepted.
fn accepted(job: &NewJob) -> ExecutionRecord {
    ExecutionRecord {
        id: job.id.clone(),
        state: ExecutionState::Queued,
        language: job.language.clone(),
        priority: job.priority,
        label: job.label.clone(),
        created_at: date(job.created_ms),
        started_at: None,
        finished_at: None,
        expires_at: None,
        attempts: 0,
        position: None,
        estimated_start_ms: None,
        verdict: None,
        message: None,
        request: None,
        result: None,
    }
}

/// Returns a record, with its request and its result as stored.
fn written(
    record: &ExecutionRecord,
    stored: Vec<(&str, Vec<u8>)>,
) -> Result<AnswerDocument, ExecutionError> {
    let document = AnswerDocument::with_members(record, stored);
    document.map_err(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::error!(execution = %record.id, error, "a record cannot be written");
        ExecutionError::Unavailable("the record of the execution cannot be written at present")
    })
}

/// Returns the stored text if it exists and is JSON.
async fn checked(id: &ExecutionId, stored: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let text = stored?;
    let of = id.clone();
    let checked = aside(text.len(), move || is_json(&of, &text).then_some(text)).await;
    checked.unwrap_or_else(|error| {
        tracing::error!(execution = %id, %error, "a stored result cannot be read");
        None
    })
}

/// Checks that a stored result is JSON, without building a value.
fn is_json(id: &ExecutionId, text: &[u8]) -> bool {
    let read: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(text);
    if let Err(error) = &read {
        let error = error as &dyn std::error::Error;
        tracing::error!(execution = %id, error, "a stored result cannot be read");
    }
    read.is_ok()
}

fn parse_result(id: &ExecutionId, text: &[u8]) -> Option<Execution> {
    serde_json::from_slice(text)
        .inspect_err(|error| {
            // Cove servers write only valid results, so another program has changed it.
            let error = error as &dyn std::error::Error;
            tracing::error!(execution = %id, error, "a stored result cannot be read");
        })
        .ok()
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("queue", &self.inner.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
