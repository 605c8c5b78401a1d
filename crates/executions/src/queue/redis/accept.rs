//! Accepts jobs, takes out waiting ones, and replays dead ones.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use api::{ExecutionId, ExecutionState};
use bullmq::{BulkJob, JobOptions, RetryOptions};
use serde_json::Value as Json;

use super::codec::{RedisReply, state};
use super::link::{BullmqScript, LinkError, ScriptCall, TransactionStep, unavailable, within};
use super::{RedisQueue, names};
use crate::queue::{CancelAnswer, NewJob, PushOutcome, QueueError};

/// The name of every job, as dashboards show it.
const JOB_NAME: &str = "execute";
/// Number of jobs taken out or replayed with one request.
const STEP: usize = 500;

impl RedisQueue {
    pub(super) async fn accept(&self, jobs: Vec<NewJob>) -> Result<Vec<PushOutcome>, QueueError> {
        let Some(now_ms) = jobs.iter().map(|job| job.created_ms).max() else {
            return Ok(Vec::new());
        };
        let mut bodies = Vec::with_capacity(jobs.len());
        for job in &jobs {
            bodies.push(serde_json::from_slice::<Json>(&job.request).map_err(unavailable)?);
        }
        let answer = self.link.ask(self.reservation(&jobs, now_ms)).await?;
        let answers = RedisReply::of(answer).texts()?;
        match answers.first().map(String::as_str) {
            Some("full") => return Err(QueueError::Full { queued_max: self.config.queued_max }),
            Some("tenant") => {
                let queued_max = self.config.queued_max_per_tenant;
                return Err(QueueError::TenantFull { queued_max });
            }
            Some("bytes") => {
                let queued_bytes_max = self.config.queued_bytes_max;
                return Err(QueueError::FullBytes { queued_bytes_max });
            }
            Some("tenant bytes") => {
                let queued_bytes_max = self.config.queued_bytes_max_per_tenant;
                return Err(QueueError::TenantFullBytes { queued_bytes_max });
            }
            Some("reused") => return Err(QueueError::KeyReused),
            _ if answers.len() == 2 * jobs.len() => {}
            _ => return Err(LinkError::Answer("a reservation".to_owned()).into()),
        }
        let mut pushed = Vec::with_capacity(jobs.len());
        let mut added: BTreeMap<String, Vec<BulkJob>> = BTreeMap::new();
        let mut confirm = ScriptCall::new("confirm");
        for ((job, body), answer) in jobs.iter().zip(bodies).zip(answers.chunks_exact(2)) {
            let [word, id] = answer else { continue };
            let is_new = word == "new";
            if is_new || word == "again" {
                let queue = names::queue_of(&self.place.name, &job.tenant);
                let options = self.options(job, id);
                added
                    .entry(queue)
                    .or_default()
                    .push(BulkJob::with_options(JOB_NAME, body, options));
                confirm = confirm.arg(id.as_bytes());
            }
            let known = || PushOutcome::Before(ExecutionId(id.clone()));
            pushed.push(if is_new { PushOutcome::New } else { known() });
        }
        if !added.is_empty() {
            for (name, jobs) in added {
                let queue = self.link.queue(&name).await?;
                within(queue.add_bulk(jobs)).await?;
            }
            self.link.ask(confirm).await?;
            self.changed.notify_one();
        }
        Ok(pushed)
    }

    fn reservation(&self, jobs: &[NewJob], now_ms: u64) -> ScriptCall {
        let mut reserve = ScriptCall::new("reserve")
            .num(self.config.queued_max)
            .num(self.config.queued_max_per_tenant)
            .num(self.config.queued_bytes_max)
            .num(self.config.queued_bytes_max_per_tenant)
            .num(now_ms)
            .num(jobs.len());
        for job in jobs {
            let key = job.idempotency.as_ref();
            let print = key.map(|it| node::hex::encode(&it.fingerprint));
            reserve = reserve
                .arg(&*job.id.0)
                .arg(&*job.tenant)
                .arg(names::queue_of(&self.place.name, &job.tenant))
                .arg(&*job.language)
                .marked(job.label.as_deref())
                .num(job.priority)
                .num(job.created_ms)
                .arg(job.deadline_ms.map(|ms| ms.to_string()).unwrap_or_default())
                .marked(job.face.as_deref())
                .arg(if job.webhook { "1" } else { "0" })
                .marked(key.map(|it| it.key.as_str()))
                .arg(print.unwrap_or_default())
                .num(job.bytes());
        }
        reserve
    }

    fn options(&self, job: &NewJob, id: &str) -> JobOptions {
        JobOptions::new()
            .job_id(id)
            .timestamp(UNIX_EPOCH + Duration::from_millis(job.created_ms))
            .attempts(self.config.attempts_max)
            .priority(names::priority(job.priority, job.created_ms, self.config.ageing))
    }

    /// Takes out a waiting job, because it is `cancelled` or `expired`; a running one is asked to
    /// end. If `tenant` is given, the job must belong to it.
    pub(super) async fn take_out(
        &self,
        id: &ExecutionId,
        tenant: Option<&str>,
        why: &'static str,
        message: &str,
        now_ms: u64,
    ) -> Result<CancelAnswer, QueueError> {
        let stash = ScriptCall::new("stash").arg(&*id.0).marked(tenant).arg(why);
        let answer = self.link.ask(stash.num(now_ms).arg(message)).await?;
        let mut answer = RedisReply::of(answer);
        let word = answer.word()?;
        match word.as_str() {
            "unknown" => return Ok(CancelAnswer::Unknown),
            "running" => return Ok(CancelAnswer::Running),
            "queued" => {}
            ended => return Ok(CancelAnswer::Ended(state(ended)?)),
        }
        let (queue, job) = (answer.word()?, answer.word()?);
        let removed = ScriptCall::new("removed").arg(&*id.0).arg(why).num(now_ms).arg(message);
        let steps = [self.removal(&queue, &job), removed.into()];
        let answer = self.link.transact(&steps, true).await?.pop();
        match RedisReply::of(answer.unwrap_or(redis::Value::Nil)).word()?.as_str() {
            "cancelled" | "expired" => Ok(CancelAnswer::Cancelled),
            // A worker claimed it meanwhile, and learns of the cancellation.
            "running" | "unknown" => Ok(CancelAnswer::Running),
            ended => Ok(CancelAnswer::Ended(state(ended)?)),
        }
    }

    /// Returns BullMQ's script that removes a job.
    pub(super) fn removal(&self, queue: &str, job: &str) -> TransactionStep {
        let keys = self.link.keys(queue);
        let mut cmd = BullmqScript::RemoveJob.call(&[keys.job_key(job), keys.repeat()]);
        // Children of a flow stay.
        cmd.arg(job).arg("0").arg(keys.key_prefix());
        cmd.into()
    }

    pub(super) async fn empty(
        &self,
        tenant: Option<String>,
        now_ms: u64,
    ) -> Result<Vec<ExecutionId>, QueueError> {
        let mut gone = Vec::new();
        self.adopt_strays(now_ms).await?;
        loop {
            let waiting = ScriptCall::new("waiting").marked(tenant.as_deref()).num(STEP);
            let ids = RedisReply::of(self.link.ask(waiting).await?).texts()?;
            let before = gone.len();
            for id in ids.into_iter().map(ExecutionId) {
                let message = "the queue was drained";
                let answer = self.take_out(&id, None, "cancelled", message, now_ms).await?;
                if answer == CancelAnswer::Cancelled {
                    gone.push(id);
                }
            }
            // The remaining jobs were claimed or removed meanwhile.
            if gone.len() == before {
                return Ok(gone);
            }
        }
    }

    pub(super) async fn revive(
        &self,
        tenant: Option<String>,
        id: Option<ExecutionId>,
    ) -> Result<Vec<ExecutionId>, QueueError> {
        let mut revived = Vec::new();
        loop {
            let dead = ScriptCall::new("dead").marked(tenant.as_deref());
            let dead = dead.arg(id.as_ref().map(|id| id.0.clone()).unwrap_or_default()).num(STEP);
            let mut reply = RedisReply::of(self.link.ask(dead).await?);
            let before = revived.len();
            while !reply.is_empty() {
                let (id, queue, job) = (reply.word()?, reply.word()?, reply.word()?);
                if self.retry(&queue, &job).await? {
                    self.link.ask(ScriptCall::new("revived").arg(&*id)).await?;
                    revived.push(ExecutionId(id));
                }
            }
            if revived.len() == before || id.is_some() {
                self.changed.notify_one();
                return Ok(revived);
            }
        }
    }

    /// Moves a failed job back with the crate; returns false if it does not exist any more.
    async fn retry(&self, queue: &str, job: &str) -> Result<bool, QueueError> {
        let queue = self.link.queue(queue).await?;
        let Some(mut job) = within(queue.get_job(job)).await? else { return Ok(false) };
        let options = RetryOptions { reset_attempts_made: true, reset_attempts_started: true };
        match within(job.retry(ExecutionState::Dead.bullmq(), Some(options))).await {
            Ok(()) => Ok(true),
            // Another server was faster; the job's record shows whether it waits.
            Err(_) => Ok(within(job.is_waiting()).await?),
        }
    }
}

/// Name of a state in BullMQ.
trait BullmqState {
    fn bullmq(self) -> &'static str;
}

impl BullmqState for ExecutionState {
    fn bullmq(self) -> &'static str {
        match self {
            ExecutionState::Queued => "waiting",
            ExecutionState::Running => "active",
            ExecutionState::Finished => "completed",
            ExecutionState::Cancelled | ExecutionState::Expired | ExecutionState::Dead => "failed",
        }
    }
}
