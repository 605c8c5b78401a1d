//! Claims jobs from the queue, runs them and publishes their ends.

use node::task::Boxed;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, Execution, ExecutionId, ExecutionRequest, ExecutionState, Verdict};
use node::clock;
use node::drain::DrainHandle;
use node::traces::in_scope;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time;

use super::live::LiveExecution;
use super::{Jobs, JobsInner, traced};
use crate::answers::AnswerMemory;
use crate::aside::aside;
use crate::error::ExecutionError;
use crate::events::EventRecorder;
use crate::queue::{
    AttemptDisposition, AttemptResult, ClaimQuota, JobClaim, JobLease, LeaseRenewal, QueueError,
};
use crate::service::ProgramIo;
use crate::templates;
use crate::verdict::content_bytes;

/// Maximum number of jobs claimed from the queue at one time.
const CLAIMS_MAX: usize = 16;
/// Pause after a failure of the queue, so that one that is down is not polled in a tight loop.
const QUEUE_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of attempts to report the end of an attempt to a queue that does not answer.
const FINISH_TRIES: u32 = 120;
/// Pause before an attempt that failed is followed by another: time for the cause to be repaired, a
/// spawner for example. Without it, all attempts would be used up within the same failure.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time that an interactive execution waits for its caller.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of interactive executions that wait for their callers.
const ATTACHING_MAX: usize = 256;
/// Maximum of those per tenant.
const ATTACHING_MAX_PER_TENANT: usize = 32;
/// Interval at which the queue is swept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout, after the server began to stop, for the queue to answer an earlier claim.
const CLAIM_END_MAX: Duration = Duration::from_secs(5);
/// Timeout for the queue to take back the jobs that still ran at the end of the drain.
const RETURN_MAX: Duration = Duration::from_secs(10);
/// Maximum size of a result that is kept with the events of its execution, for subscribers. A
/// subscriber that does not read would keep a larger one in memory.
const FOLLOWED_BYTES_MAX: usize = 64 << 10;
/// Weight of the latest execution in the average of their times.
const PACE_WEIGHT: f64 = 0.1;

/// Average duration of recent executions.
#[derive(Debug, Default)]
pub(super) struct RecentPace {
    average_ms: Mutex<Option<f64>>,
}

impl RecentPace {
    fn note(&self, took: Duration) {
        let took = took.as_secs_f64() * 1000.0;
        let mut average = self.average_ms.lock();
        *average = Some(average.map_or(took, |old| old + (took - old) * PACE_WEIGHT));
    }

    /// Estimates the time until the job at a position starts; `None` before any job has run.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, clamped to what fits"
    )]
    pub(super) fn wait_ms(&self, place: u64, workers: usize) -> Option<u64> {
        let average = (*self.average_ms.lock())?;
        let wait = average * (place as f64 + 1.0) / workers.max(1) as f64;
        Some(wait.clamp(0.0, 1e15) as u64)
    }
}

/// Jobs that this process holds.
#[derive(Debug, Default)]
pub(super) struct HeldJobs(Mutex<HashMap<JobLease, HeldAttempt>>);

/// A running attempt. Attempts of the same job share its events, and nothing else.
#[derive(Clone, Debug)]
struct HeldAttempt {
    live: Arc<LiveExecution>,
    /// True if another worker has the job, so that this attempt's result is useless.
    lost: watch::Sender<bool>,
}

impl HeldJobs {
    /// Registers an attempt, and gives up an earlier one of the same job that still runs here: its
    /// lease must have been lost, because the job was claimed again.
    fn begin(&self, lease: &JobLease, live: Arc<LiveExecution>) -> JobHold<'_> {
        let holding = HeldAttempt { live, lost: watch::Sender::new(false) };
        let mut held = self.0.lock();
        for (_, earlier) in held.iter().filter(|(other, _)| other.id == lease.id) {
            earlier.lost.send_replace(true);
        }
        held.insert(lease.clone(), holding.clone());
        JobHold { held: self, lease: lease.clone(), holding }
    }

    /// Returns the number of attempts that run here.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns whether an attempt of a job runs here.
    pub(super) fn has(&self, id: &ExecutionId) -> bool {
        self.0.lock().keys().any(|lease| lease.id == *id)
    }

    /// Returns whether another attempt of the same job runs here.
    fn has_another(&self, lease: &JobLease) -> bool {
        self.0.lock().keys().any(|other| other.id == lease.id && other != lease)
    }
}

/// A registered attempt; dropping it removes the registration.
struct JobHold<'a> {
    held: &'a HeldJobs,
    lease: JobLease,
    holding: HeldAttempt,
}

impl JobHold<'_> {
    /// Returns when another worker has the job.
    async fn lost(&self) {
        // The sender is our own, so the wait cannot end in another way.
        let _lost = self.holding.lost.subscribe().wait_for(|lost| *lost).await.is_ok();
    }
}

impl Drop for JobHold<'_> {
    fn drop(&mut self) {
        self.held.0.lock().remove(&self.lease);
    }
}

/// Interactive executions that wait for their callers, by tenant.
#[derive(Debug, Default)]
pub(super) struct AwaitedAttachments(Mutex<HashMap<String, usize>>);

/// A place among them, released on drop.
struct AttachmentPlace<'a>(&'a AwaitedAttachments, &'a str);

impl AwaitedAttachments {
    /// Takes a place; `Err` is true if this tenant has all its places, false if all places are
    /// taken.
    fn enter<'a>(&'a self, tenant: &'a str) -> Result<AttachmentPlace<'a>, bool> {
        let mut waiting = self.0.lock();
        let of_tenant = waiting.get(tenant).copied().unwrap_or(0);
        if of_tenant >= ATTACHING_MAX_PER_TENANT {
            return Err(true);
        }
        if waiting.values().sum::<usize>() >= ATTACHING_MAX {
            return Err(false);
        }
        waiting.insert(tenant.to_owned(), of_tenant + 1);
        Ok(AttachmentPlace(self, tenant))
    }
}

impl Drop for AttachmentPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.0.lock();
        if let Some(count) = waiting.get_mut(self.1) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(self.1);
            }
        }
    }
}

/// Places for claimed jobs, and the number that each tenant has of them.
#[derive(Debug)]
struct JobPlaces {
    free: Arc<Semaphore>,
    in_hand: Mutex<HashMap<String, usize>>,
    /// Notified when a tenant has released a place.
    released: Notify,
}

/// The place of one job, released on drop.
struct JobPlace {
    _permit: OwnedSemaphorePermit,
    places: Arc<JobPlaces>,
    tenant: String,
}

impl JobPlaces {
    fn new(count: usize) -> Arc<JobPlaces> {
        let free = Arc::new(Semaphore::new(count));
        Arc::new(JobPlaces { free, in_hand: Mutex::default(), released: Notify::new() })
    }

    /// Assigns a permit to a job of this tenant.
    fn place(self: &Arc<Self>, permit: OwnedSemaphorePermit, tenant: &str) -> JobPlace {
        *self.in_hand.lock().entry(tenant.to_owned()).or_default() += 1;
        JobPlace { _permit: permit, places: Arc::clone(self), tenant: tenant.to_owned() }
    }

    /// Waits for a free place; None once the server has ended.
    async fn acquire(self: &Arc<Self>, tenant: &str) -> Option<JobPlace> {
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(self.place(permit, tenant))
    }
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        let mut in_hand = self.places.in_hand.lock();
        if let Some(count) = in_hand.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                in_hand.remove(&self.tenant);
            }
        }
        self.places.released.notify_one();
    }
}

/// End of an attempt.
enum AttemptEnd {
    /// Holds the memory of its output until its end is published.
    Ran(Box<Execution>, AnswerMemory),
    Cancelled(String),
    Failed(String),
    /// Another worker has the job.
    Lost,
    Returned,
}

/// Resolves when a stopping server no longer waits for a pending claim: jobs claimed by it wait in
/// the queue until their lease expires.
async fn claim_is_over(drain: &DrainHandle) {
    drain.begun().await;
    time::sleep(CLAIM_END_MAX).await;
}

/// Resolves when a stopping server no longer waits for the queue to take back running jobs.
async fn return_is_over(drain: &DrainHandle) {
    drain.cancelled().await;
    time::sleep(RETURN_MAX).await;
}

impl Jobs {
    /// Runs waiting jobs until the server drains and no job runs any more. Dropping the future ends
    /// the running jobs; the next server runs them again.
    pub fn work<'a>(
        &'a self,
        drain: &'a DrainHandle,
        takes_work: watch::Receiver<bool>,
    ) -> Boxed<'a, ()> {
        Box::pin(async move {
            let upkeep = self.maintain();
            let deliveries = self.deliver_webhooks();
            tokio::select! {
                () = self.take_jobs(drain, takes_work) => {}
                () = async { tokio::join!(upkeep, deliveries); } => {}
            }
        })
    }

    async fn take_jobs(&self, drain: &DrainHandle, mut takes_work: watch::Receiver<bool>) {
        let queue = &self.inner.queue;
        let places = JobPlaces::new(self.inner.service.running_max());
        let room = &places.free;
        let mut running = JoinSet::new();
        while !drain.is_draining() {
            // Other servers claim them meanwhile.
            tokio::select! {
                _ = takes_work.wait_for(|takes| *takes) => {}
                () = drain.begun() => break,
            }
            let permit = tokio::select! {
                permit = Arc::clone(room).acquire_owned() => permit,
                () = drain.begun() => break,
            };
            // The semaphore is never closed.
            let Ok(permit) = permit else { break };
            let mut permits = vec![permit];
            while permits.len() < CLAIMS_MAX
                && let Ok(more) = Arc::clone(room).try_acquire_owned()
            {
                permits.push(more);
            }
            let claim = queue.claim(permits.len(), self.quota(&places), queue.now_ms());
            let claims = tokio::select! {
                claims = claim => claims,
                () = claim_is_over(drain) => {
                    tracing::warn!("the queue did not respond before the server stopped");
                    break;
                }
            };
            let claims = match claims {
                Ok(claims) => {
                    self.inner.outages.claims.works("jobs are taken from the queue again");
                    claims
                }
                Err(error) => {
                    let what = "no jobs can be taken from the queue";
                    self.inner.outages.claims.failed(&error, what);
                    time::sleep(QUEUE_PAUSE).await;
                    continue;
                }
            };
            let idle = claims.is_empty();
            for (claim, permit) in claims.into_iter().zip(permits) {
                self.inner.changes.publish(&claim.lease.id.0);
                // Counted as work, so that the drain waits for it.
                let working = drain.work();
                let place = places.place(permit, &claim.tenant);
                let places = Arc::clone(&places);
                let worker = JobWorker { jobs: self.clone(), places, drain: drain.clone() };
                running.spawn(async move {
                    Box::pin(worker.run(claim, place)).await;
                    drop(working);
                });
            }
            // Discards the results of ended tasks, which would pile up otherwise.
            while running.try_join_next().is_some() {}
            if idle {
                tokio::select! {
                    _ = queue.changed() => {}
                    // A tenant that was skipped may have room again.
                    () = places.released.notified() => {}
                    () = drain.begun() => {}
                }
            }
        }
        // Jobs that still run at the end of the drain are returned to the queue.
        let returned = async { while running.join_next().await.is_some() {} };
        tokio::select! {
            () = returned => {}
            () = return_is_over(drain) => {
                tracing::error!(
                    "the queue cannot be reached; claimed jobs run again elsewhere"
                );
            }
        }
    }

    /// Returns the maximum of claims for each tenant: if there are others, as many as it may run.
    /// Further jobs of it would wait, each with a worker that jobs of other tenants could use; so
    /// would jobs of a tenant whose limit has its homes at other nodes, which claim them.
    fn quota(&self, places: &JobPlaces) -> ClaimQuota {
        match self.inner.service.admission().tenant_max_beside_others() {
            usize::MAX => ClaimQuota::unlimited(),
            most => {
                let quota = ClaimQuota::new(most, places.in_hand.lock().clone());
                quota.leaving(self.inner.service.admission().tenants_elsewhere())
            }
        }
    }

    /// Renews the leases of running jobs, then sweeps the queue. In this order, because after a
    /// step of the clock, a sweep would otherwise take away jobs that run normally.
    async fn maintain(&self) {
        let mut interval = time::interval(SWEEP_INTERVAL);
        interval.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.inner.lives.prune(clock::now());
            if self.renew_leases().await {
                self.sweep().await;
            }
        }
    }

    /// Renews the leases; returns whether the queue answered.
    pub(super) async fn renew_leases(&self) -> bool {
        let held: Vec<(JobLease, HeldAttempt)> = {
            let held = self.inner.held.0.lock();
            held.iter().map(|(lease, holding)| (lease.clone(), holding.clone())).collect()
        };
        if held.is_empty() {
            return true;
        }
        let leases = held.iter().map(|(lease, _)| lease.clone()).collect();
        let beats = match self.inner.queue.heartbeat(leases, self.inner.queue.now_ms()).await {
            Ok(beats) => {
                self.inner.outages.leases.works("leases are renewed again");
                beats
            }
            Err(error) => {
                self.inner.outages.leases.failed(&error, "leases cannot be renewed");
                return false;
            }
        };
        for ((_, holding), beat) in held.iter().zip(beats) {
            match beat {
                LeaseRenewal::Held => {}
                LeaseRenewal::CancelWanted => holding.live.cancel("cancelled by its owner"),
                LeaseRenewal::Lost => drop(holding.lost.send_replace(true)),
            }
        }
        true
    }

    /// Handles expired leases, passed deadlines and jobs beyond the retention limits.
    async fn sweep(&self) {
        match self.inner.queue.sweep(self.inner.queue.now_ms()).await {
            Ok(swept) => {
                self.inner.outages.sweeps.works("the queue is swept again");
                for id in &swept.requeued {
                    tracing::warn!(execution = %id, "its worker was lost; it is queued again");
                    self.inner.changes.publish(&id.0);
                }
                let ended = !swept.ended.is_empty();
                for (id, state) in swept.ended {
                    let message = match state {
                        ExecutionState::Expired => "it did not start before its deadline",
                        _ => "the server failed at it as often as it may",
                    };
                    self.publish_end(&id, state, Some(message.to_owned()));
                }
                if ended {
                    self.inner.webhooks.notify_one();
                }
            }
            Err(error) => {
                self.inner.outages.sweeps.failed(&error, "the queue cannot be swept");
            }
        }
    }
}

/// Worker of one job.
struct JobWorker {
    jobs: Jobs,
    places: Arc<JobPlaces>,
    drain: DrainHandle,
}

impl JobWorker {
    fn inner(&self) -> &JobsInner {
        &self.jobs.inner
    }

    /// Runs a job to its end and publishes it.
    async fn run(self, claim: JobClaim, place: JobPlace) {
        let live = self.inner().lives.get_or_create(&claim.lease.id, claim.attempt);
        let hold = self.inner().held.begin(&claim.lease, Arc::clone(&live));
        self.inner().metrics.running.inc();
        let began = clock::now();
        let left = self.attempt(&hold, &claim, place).await;
        self.inner().pace.note(clock::now().saturating_duration_since(began));
        self.publish(claim.lease, claim.attempt, &live, left).await;
        self.inner().metrics.running.dec();
        drop(hold);
    }

    async fn attempt(&self, hold: &JobHold<'_>, claim: &JobClaim, place: JobPlace) -> AttemptEnd {
        let live = &*hold.holding.live;
        let (id, attempt) = (&claim.lease.id, claim.attempt);
        let key = &self.inner().sender.key;
        let (request, trace) = match traced::request(key, &claim.tenant, &claim.request) {
            Ok(request) => request,
            Err(problem) => return AttemptEnd::Failed(problem),
        };
        let interactive = request.interactive;
        let tracer = self.inner().service.tracer();
        let trace = trace.as_ref().zip(tracer);
        if let Some((trace, tracer)) = trace {
            trace.waited(tracer, attempt, self.inner().queue.now_ms());
        }
        let running = async {
            let mut place = Some(place);
            let io = match request.interactive {
                false => ProgramIo::default(),
                true => {
                    // An execution that waits for its caller gives its place to others.
                    place = None;
                    match self.attached(live, &claim.tenant).await {
                        Ok(io) => io,
                        Err(attempt) => return attempt,
                    }
                }
            };
            if place.is_none() {
                place = self.places.acquire(&claim.tenant).await;
            }
            live.log.begin_attempt(attempt);
            live.log.push(EventKind::Started { attempt });
            self.inner().metrics.started(id, attempt);
            let ran = self.execute(live, id, &claim.tenant, request, io).await;
            drop(place);
            ran
        };
        let left = tokio::select! {
            // In this order, so that a job that was cancelled while it waited does not start, and
            // that the end of the server, which disconnects callers, is reported as the reason.
            biased;
            () = hold.lost() => AttemptEnd::Lost,
            () = self.drain.cancelled() => AttemptEnd::Returned,
            reason = live.cancelled() => AttemptEnd::Cancelled(reason),
            left = in_scope(trace.map(|(it, tracer)| it.scope(tracer)), Box::pin(running)) => left,
        };
        match left {
            // The caller's earlier input is lost, so the execution cannot start again.
            AttemptEnd::Failed(message) if interactive => AttemptEnd::Cancelled(message),
            AttemptEnd::Returned if interactive => {
                AttemptEnd::Cancelled("the server shuts down".to_owned())
            }
            left => left,
        }
    }

    /// Waits for the caller of an interactive execution.
    async fn attached(&self, live: &LiveExecution, tenant: &str) -> Result<ProgramIo, AttemptEnd> {
        let _place = loop {
            match self.inner().attaching.enter(tenant) {
                Ok(place) => break place,
                Err(true) => {
                    return Err(AttemptEnd::Cancelled(format!(
                        "{ATTACHING_MAX_PER_TENANT} executions of this token wait for their \
                         callers already"
                    )));
                }
                // Other tenants have all places; one becomes free within `ATTACH_TIMEOUT`.
                Err(false) => time::sleep(QUEUE_PAUSE).await,
            }
        };
        tokio::select! {
            io = time::timeout(ATTACH_TIMEOUT, live.attached()) => io.map_err(|_| {
                let seconds = ATTACH_TIMEOUT.as_secs();
                AttemptEnd::Cancelled(format!("no client attached to it within {seconds} s"))
            }),
            () = self.drain.begun() => Err(AttemptEnd::Returned),
        }
    }

    async fn execute(
        &self,
        live: &LiveExecution,
        id: &ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
        io: ProgramIo,
    ) -> AttemptEnd {
        let service = &self.inner().service;
        let mut recorder = EventRecorder::new(Arc::clone(&live.log));
        match service.execute_as(id.clone(), tenant, request, io, &mut recorder).await {
            Ok((execution, _room)) if execution.outcome.verdict == Verdict::Ie => {
                let message = execution.outcome.message;
                AttemptEnd::Failed(message.unwrap_or_else(|| "the server failed".to_owned()))
            }
            Ok((execution, room)) => AttemptEnd::Ran(Box::new(execution), room),
            // Its owner has deleted the template, and another attempt would not find it either.
            Err(ExecutionError::Refused(refusal)) if templates::is_gone(&refusal) => {
                AttemptEnd::Cancelled(format!("{}: {}", refusal.field, refusal.message))
            }
            Err(error) => AttemptEnd::Failed(refused(&error)),
        }
    }

    /// Reports the end of an attempt to the queue, and then to subscribers.
    async fn publish(&self, lease: JobLease, attempt: u32, live: &LiveExecution, left: AttemptEnd) {
        let id = lease.id.clone();
        let mut held = None;
        let (finish, last) = match left {
            AttemptEnd::Ran(mut execution, room) => {
                held = Some(room);
                execution.last_seq = live.log.next_seq();
                let written = aside(content_bytes(&execution), move || finished(execution)).await;
                written.unwrap_or_else(|error| unwritten(&error))
            }
            AttemptEnd::Cancelled(message) => {
                let (state, text) = (ExecutionState::Cancelled, Some(message.clone()));
                (
                    AttemptResult::Cancelled { message },
                    Some(EventKind::Ended { state, message: text }),
                )
            }
            AttemptEnd::Failed(message) => (AttemptResult::Failed { message }, None),
            AttemptEnd::Returned => (AttemptResult::Returned, None),
            AttemptEnd::Lost => {
                tracing::warn!(execution = %id, attempt, "its lease was lost; it runs elsewhere");
                self.forget(&lease);
                return;
            }
        };
        let message = match &finish {
            AttemptResult::Failed { message } => Some(message.clone()),
            _ => None,
        };
        if message.is_some() && attempt < self.inner().config.attempts_max {
            time::sleep(RETRY_PAUSE).await;
        }
        let lives = &self.inner().lives;
        let bytes = match &finish {
            AttemptResult::Result(text) => text.len(),
            _ => 0,
        };
        match self.finish(lease.clone(), finish).await {
            Some(AttemptDisposition::Now(ExecutionState::Dead)) => {
                self.inner().metrics.ended(ExecutionState::Dead);
                tracing::error!(execution = %id, attempt, message, "given up; `cove queue retry`");
                lives.end(&id, Some(EventKind::Ended { state: ExecutionState::Dead, message }), 0);
            }
            Some(AttemptDisposition::Now(ExecutionState::Queued | ExecutionState::Running)) => {
                self.inner().metrics.requeued.inc();
                tracing::warn!(execution = %id, attempt, message, "failed; it is queued again");
                live.log.push(EventKind::Queued { position: None });
            }
            Some(AttemptDisposition::Now(state)) => {
                self.inner().metrics.ended(state);
                // A failure of an execution that its owner has cancelled counts as an end, too.
                let ended = || {
                    (state != ExecutionState::Finished)
                        .then_some(EventKind::Ended { state, message })
                };
                lives.end(&id, last.or_else(ended), bytes.min(FOLLOWED_BYTES_MAX));
            }
            Some(AttemptDisposition::Fenced) | None => {
                tracing::warn!(execution = %id, attempt, "its lease was lost; its end is not ours");
                self.forget(&lease);
            }
        }
        drop(held);
        self.inner().webhooks.notify_one();
    }

    /// Drops the events of an attempt that lost its lease, unless a later one runs here.
    fn forget(&self, lease: &JobLease) {
        if !self.inner().held.has_another(lease) {
            self.inner().lives.forget(&lease.id);
        }
    }

    /// Retries until the queue has accepted the end: an existing result must not be lost.
    async fn finish(&self, lease: JobLease, finish: AttemptResult) -> Option<AttemptDisposition> {
        // The same time for all tries, so that a repetition of a try whose answer was lost is
        // identical.
        let now_ms = self.inner().queue.now_ms();
        for attempt in 0..FINISH_TRIES {
            match self.inner().queue.finish(lease.clone(), finish.clone(), now_ms).await {
                Ok(ended) => {
                    self.inner().changes.publish(&lease.id.0);
                    return Some(ended);
                }
                // Logged once, not at every try: there are two per second, for each execution.
                Err(QueueError::Unavailable(cause)) if attempt == 0 => {
                    let error = cause.to_string();
                    tracing::error!(execution = %lease.id, error, "its end cannot be published yet");
                }
                Err(QueueError::Unavailable(_)) => {}
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(execution = %lease.id, error, "its end cannot be published");
                    return None;
                }
            }
            time::sleep(QUEUE_PAUSE).await;
        }
        tracing::error!(
            execution = %lease.id,
            "its end could not be published in time; it runs again when its lease has ended"
        );
        None
    }
}

/// Returns the result of a job that ran, with the event that reports it to subscribers.
fn finished(execution: Box<Execution>) -> (AttemptResult, Option<EventKind>) {
    let verdict = execution.outcome.verdict;
    match serde_json::to_vec(&execution) {
        // Subscribers read it from the queue, where the memory for it is accounted.
        Ok(text) if text.len() > FOLLOWED_BYTES_MAX => (AttemptResult::Result(text), None),
        Ok(text) => {
            (AttemptResult::Result(text), Some(EventKind::Verdict { verdict, result: execution }))
        }
        Err(error) => unwritten(&error),
    }
}

/// Reports that a result cannot be stored. The log has the reason; the text of a panic is not for
/// clients.
fn unwritten(error: &(dyn Error + 'static)) -> (AttemptResult, Option<EventKind>) {
    tracing::error!(error, "failed to write a result");
    (AttemptResult::Failed { message: "the server failed to write the result".to_owned() }, None)
}

/// Returns the reason why an accepted request was refused.
fn refused(error: &ExecutionError) -> String {
    let detail = error.detail();
    match detail.field {
        Some(field) => format!("{field}: {}", detail.message),
        None => detail.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_takes_all_the_places_of_those_who_wait_for_callers() {
        let attaching = AwaitedAttachments::default();
        let of = |tenant: &'static str| attaching.enter(tenant);
        let first: Vec<_> = (0..ATTACHING_MAX_PER_TENANT).map(|_| of("a").ok().unwrap()).collect();
        assert!(matches!(of("a"), Err(true)));
        drop(of("b").ok().unwrap());
        drop(first);
        let names: Vec<String> = (0..ATTACHING_MAX).map(|number| number.to_string()).collect();
        let all: Vec<_> = names.iter().map(|name| attaching.enter(name).ok().unwrap()).collect();
        assert!(matches!(attaching.enter("a"), Err(false)));
        drop(all);
        assert!(attaching.0.lock().is_empty());
    }

    #[test]
    fn the_estimate_follows_what_ran() {
        let pace = RecentPace::default();
        assert_eq!(pace.wait_ms(5, 4), None);
        pace.note(Duration::from_millis(100));
        assert_eq!((pace.wait_ms(0, 1), pace.wait_ms(9, 2)), (Some(100), Some(500)));
        for _ in 0..200 {
            pace.note(Duration::from_millis(200));
        }
        assert!(pace.wait_ms(0, 1).is_some_and(|ms| (199..=200).contains(&ms)));
    }
}
