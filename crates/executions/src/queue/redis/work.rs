//! Claims, renewals and ends of jobs.

use api::{ExecutionId, ExecutionState};
use redis::Value;

use super::codec::{RedisReply, active_options, finished_options, state};
use super::link::{BullmqScript, ScriptCall, TransactionStep, nonce};
use super::names::{RedisLease, foreign_id, queue_of};
use super::{LOCK_GRACE, RedisQueue, millis};
use crate::queue::{
    AttemptDisposition, AttemptResult, ClaimQuota, JobClaim, JobLease, LeaseRenewal, QueueError,
};

/// Maximum number of jobs claimed in one transaction.
const CLAIM_MAX: usize = 128;
/// Maximum number of waiting queues that are checked for being left to other nodes.
const RING_MAX: usize = 2000;
/// Maximum number of rounds of a claim that finds only jobs that must not run.
const ROUNDS_MAX: usize = 16;
/// Reason for an expired job, for its owner.
const EXPIRED: &str = "it did not start before its deadline";

/// End of a job in BullMQ's structures.
enum FinalState<'a> {
    Completed(&'a [u8]),
    Failed(&'a str),
}

impl RedisQueue {
    pub(super) async fn take(
        &self,
        max: usize,
        mut quota: ClaimQuota,
        now_ms: u64,
    ) -> Result<Vec<JobClaim>, QueueError> {
        let mut claims: Vec<JobClaim> = Vec::new();
        let left = self.left_elsewhere(&quota).await?;
        for _ in 0..ROUNDS_MAX {
            let want = (max - claims.len()).min(CLAIM_MAX);
            if want == 0 {
                break;
            }
            let pick = ScriptCall::new("pick").num(want).num(now_ms).arg(&*self.place.name);
            let pick = self.with_quota(pick, &quota, &left);
            let mut reply = RedisReply::of(self.link.ask(pick).await?);
            let word = reply.word()?;
            let found = reply.texts()?;
            if word == "overdue" {
                for id in found.into_iter().map(ExecutionId) {
                    self.expire(&id, now_ms).await?;
                    self.link.ask(ScriptCall::new("late").arg(&*id.0)).await?;
                }
                continue;
            }
            if found.is_empty() {
                break;
            }
            let before = claims.len();
            self.take_turns(&found, now_ms, &mut claims).await?;
            for claim in claims.iter().skip(before) {
                // The script has respected the quota; this updates it for the next round.
                let _is_within = quota.charge(&claim.tenant);
            }
        }
        Ok(claims)
    }

    /// Returns the waiting queues whose jobs are left to other nodes. From a queue that begins to
    /// wait after the check, jobs may be claimed once, and wait here for a part of their limit.
    async fn left_elsewhere(&self, quota: &ClaimQuota) -> Result<Vec<String>, QueueError> {
        if !quota.leaves_some() {
            return Ok(Vec::new());
        }
        let waiting = RedisReply::of(self.link.ask(ScriptCall::new("ring").num(RING_MAX)).await?);
        let mut waiting = waiting.texts()?;
        waiting.retain(|queue| quota.leaves(&self.tenant_of(queue)));
        Ok(waiting)
    }

    /// Adds the quota for the script: the maximum per queue, -1 for no bound, then the queues with
    /// a lower maximum, each with its number.
    fn with_quota(
        &self,
        mut pick: ScriptCall,
        quota: &ClaimQuota,
        elsewhere: &[String],
    ) -> ScriptCall {
        let Some(most) = quota.per_tenant_max() else { return pick.num(-1).num(0) };
        let of_foreign = self.tenant_of(&self.place.name);
        let mut queues = Vec::new();
        for (tenant, left) in quota.left() {
            queues.push((queue_of(&self.place.name, tenant), left));
            if tenant == of_foreign {
                queues.push((self.place.name.clone(), left));
            }
        }
        // The last entry of a queue counts.
        queues.extend(elsewhere.iter().map(|queue| (queue.clone(), 0)));
        pick = pick.num(most).num(queues.len());
        for (queue, left) in queues {
            pick = pick.arg(queue).num(left);
        }
        pick
    }

    /// Expires a job that waits beyond its deadline.
    pub(super) async fn expire(&self, id: &ExecutionId, now_ms: u64) -> Result<bool, QueueError> {
        use crate::queue::CancelAnswer;
        let answer = self.take_out(id, None, "expired", EXPIRED, now_ms).await?;
        Ok(answer == CancelAnswer::Cancelled)
    }

    async fn take_turns(
        &self,
        queues: &[String],
        now_ms: u64,
        claims: &mut Vec<JobClaim>,
    ) -> Result<(), QueueError> {
        let mut steps = Vec::with_capacity(2 * queues.len());
        let mut locks = Vec::with_capacity(queues.len());
        for queue in queues {
            let lock = nonce()?;
            steps.push(self.activation(queue, &lock, now_ms)?);
            let claimed = ScriptCall::new("claimed").arg(&**queue).arg(&*lock);
            steps.push(claimed.num(self.lease_until(now_ms)).num(now_ms).into());
            locks.push(lock);
        }
        // A retry could claim twice; jobs lost by not retrying return when their lease expires.
        let answers = self.link.transact(&steps, false).await?;
        let records = answers.into_iter().skip(1).step_by(2);
        for ((queue, lock), record) in queues.iter().zip(locks).zip(records) {
            claims.extend(self.claimed(queue, lock, RedisReply::of(record), now_ms).await?);
        }
        Ok(())
    }

    /// BullMQ's script that hands out the next job of a queue.
    fn activation(
        &self,
        queue: &str,
        lock: &str,
        now_ms: u64,
    ) -> Result<TransactionStep, QueueError> {
        let keys = self.link.keys(queue);
        let mut cmd = BullmqScript::MoveToActive.call(&[
            keys.wait(),
            keys.active(),
            keys.prioritized(),
            keys.events(),
            keys.stalled(),
            keys.limiter(),
            keys.delayed(),
            keys.paused(),
            keys.meta(),
            keys.pc(),
            keys.marker(),
        ]);
        cmd.arg(keys.key_prefix()).arg(now_ms).arg(active_options(lock, self.lock_ms())?);
        Ok(cmd.into())
    }

    async fn claimed(
        &self,
        queue: &str,
        lock: String,
        mut record: RedisReply,
        now_ms: u64,
    ) -> Result<Option<JobClaim>, QueueError> {
        let word = record.word()?;
        if word == "none" {
            return Ok(None);
        }
        let job = record.word()?;
        let mut hold = RedisLease { lock, attempt: 1, queue: queue.to_owned(), job };
        if word == "stray" {
            let request = record.bytes()?.unwrap_or_default();
            let created_ms = record.count()?;
            let id = self.adopt(&hold, &request, created_ms, true, now_ms).await?;
            let tenant = self.tenant_of(queue);
            let lease = JobLease { id, token: hold.token() };
            return Ok(Some(JobClaim { lease, tenant, attempt: 1, request }));
        }
        let id = ExecutionId(record.word()?);
        hold.attempt = record.count()?;
        if word == "doomed" {
            let (how, why) = (state(&record.word()?)?, record.word()?);
            let why = if how == ExecutionState::Expired { EXPIRED } else { &why };
            self.conclude(&id, &hold, FinalState::Failed(why), how, now_ms).await?;
            self.link.ask(ScriptCall::new("late").arg(&*id.0)).await?;
            return Ok(None);
        }
        let tenant = record.word()?;
        let request = record.bytes()?.unwrap_or_default();
        let attempt = hold.attempt;
        Ok(Some(JobClaim { lease: JobLease { id, token: hold.token() }, tenant, attempt, request }))
    }

    /// Adopts a job that another producer added, waiting or running.
    pub(super) async fn adopt(
        &self,
        hold: &RedisLease,
        request: &[u8],
        created_ms: u64,
        is_running: bool,
        now_ms: u64,
    ) -> Result<ExecutionId, QueueError> {
        let id = foreign_id(&hold.queue, &hold.job, created_ms);
        let adopt = ScriptCall::new("adopt")
            .arg(&*id.0)
            .arg(self.tenant_of(&hold.queue))
            .arg(&*hold.queue)
            .arg(&*hold.job)
            .arg(language(request))
            .num(created_ms)
            .arg(if is_running { &*hold.lock } else { "" })
            .num(self.lease_until(now_ms))
            .num(now_ms);
        self.link.ask(adopt).await?;
        Ok(id)
    }

    pub(super) async fn beat(
        &self,
        leases: Vec<JobLease>,
        now_ms: u64,
    ) -> Result<Vec<LeaseRenewal>, QueueError> {
        let mut steps = Vec::with_capacity(2 * leases.len());
        let mut held = Vec::with_capacity(leases.len());
        for lease in &leases {
            let Some(hold) = RedisLease::of(lease) else {
                held.push(false);
                continue;
            };
            held.push(true);
            let keys = self.link.keys(&hold.queue);
            let lock = format!("{}:lock", keys.job_key(&hold.job));
            let mut extend = BullmqScript::ExtendLock.call(&[lock, keys.stalled()]);
            extend.arg(&*hold.lock).arg(self.lock_ms()).arg(&*hold.job);
            steps.push(extend.into());
            let beat = ScriptCall::new("beat").arg(&*lease.id.0).arg(&*hold.lock);
            steps.push(beat.num(self.lease_until(now_ms)).into());
        }
        if steps.is_empty() {
            return Ok(vec![LeaseRenewal::Lost; leases.len()]);
        }
        let mut answers = self.link.transact(&steps, true).await?.into_iter().skip(1).step_by(2);
        let mut beats = Vec::with_capacity(leases.len());
        for is_ours in held {
            let answer = is_ours.then(|| answers.next()).flatten();
            beats.push(match RedisReply::of(answer.unwrap_or(Value::Nil)).text()?.as_deref() {
                Some("held") => LeaseRenewal::Held,
                Some("cancel") => LeaseRenewal::CancelWanted,
                _ => LeaseRenewal::Lost,
            });
        }
        Ok(beats)
    }

    pub(super) async fn end(
        &self,
        lease: JobLease,
        finish: AttemptResult,
        now_ms: u64,
    ) -> Result<AttemptDisposition, QueueError> {
        let Some(hold) = RedisLease::of(&lease) else { return Ok(AttemptDisposition::Fenced) };
        let id = &lease.id;
        let (message, is_returned) = match finish {
            AttemptResult::Result(result) => {
                let last = FinalState::Completed(&result);
                return self.conclude(id, &hold, last, ExecutionState::Finished, now_ms).await;
            }
            AttemptResult::Cancelled { message } => {
                let last = FinalState::Failed(&message);
                return self.conclude(id, &hold, last, ExecutionState::Cancelled, now_ms).await;
            }
            AttemptResult::Failed { message } => (message, false),
            AttemptResult::Returned => (String::new(), true),
        };
        let wanted = ScriptCall::new("wanted").arg(&*id.0).arg(&*hold.lock);
        let mut wanted = RedisReply::of(self.link.ask(wanted).await?);
        if wanted.word()? == "cancel" {
            let why = wanted.word()?;
            return self
                .conclude(id, &hold, FinalState::Failed(&why), ExecutionState::Cancelled, now_ms)
                .await;
        }
        if is_returned || hold.attempt < self.config.attempts_max {
            return self.requeue(id, &hold, &message, is_returned, None).await;
        }
        self.conclude(id, &hold, FinalState::Failed(&message), ExecutionState::Dead, now_ms).await
    }

    /// Restores the holder's lock if it expired and the job was not taken meanwhile.
    fn relock(&self, id: &ExecutionId, hold: &RedisLease) -> TransactionStep {
        let relock = ScriptCall::new("relock").arg(&*id.0).arg(&*hold.lock);
        relock.num(millis(LOCK_GRACE)).into()
    }

    /// Ends a lost attempt as dead or cancelled.
    pub(super) async fn bury(
        &self,
        id: &ExecutionId,
        hold: &RedisLease,
        how: ExecutionState,
        message: &str,
        now_ms: u64,
    ) -> Result<AttemptDisposition, QueueError> {
        self.conclude(id, hold, FinalState::Failed(message), how, now_ms).await
    }

    async fn conclude(
        &self,
        id: &ExecutionId,
        hold: &RedisLease,
        last: FinalState<'_>,
        how: ExecutionState,
        now_ms: u64,
    ) -> Result<AttemptDisposition, QueueError> {
        let keys = self.link.keys(&hold.queue);
        let (target, set, field, value) = match last {
            FinalState::Completed(result) => ("completed", keys.completed(), "returnvalue", result),
            FinalState::Failed(why) => ("failed", keys.failed(), "failedReason", why.as_bytes()),
        };
        let mut cmd = BullmqScript::MoveToFinished.call(&[
            keys.wait(),
            keys.active(),
            keys.prioritized(),
            keys.events(),
            keys.stalled(),
            keys.limiter(),
            keys.delayed(),
            keys.paused(),
            keys.meta(),
            keys.pc(),
            set,
            keys.job_key(&hold.job),
            keys.get(&format!("metrics:{target}")),
            keys.marker(),
        ]);
        let options = finished_options(&hold.lock, self.lock_ms(), self.config.attempts_max)?;
        // Requests no next job with the answer, and changes no fields.
        cmd.arg(&*hold.job).arg(now_ms).arg(field).arg(value).arg(target).arg("0");
        cmd.arg(keys.key_prefix()).arg(options).arg("");
        let message = match last {
            FinalState::Completed(_) => "",
            FinalState::Failed(why) => why,
        };
        let settle = ScriptCall::new("settle").arg(&*id.0).arg(&*hold.lock).arg(how.as_str());
        let settle = settle.num(now_ms).arg(message);
        let steps = [self.relock(id, hold), cmd.into(), settle.into()];
        ended(self.link.transact(&steps, true).await?)
    }

    /// Queues an attempt's job again. `stalled` reports that in BullMQ's way.
    pub(super) async fn requeue(
        &self,
        id: &ExecutionId,
        hold: &RedisLease,
        message: &str,
        is_refunded: bool,
        stalled: Option<()>,
    ) -> Result<AttemptDisposition, QueueError> {
        let keys = self.link.keys(&hold.queue);
        let mut cmd = BullmqScript::MoveToWait.call(&[
            keys.active(),
            keys.wait(),
            keys.stalled(),
            keys.paused(),
            keys.meta(),
            keys.limiter(),
            keys.prioritized(),
            keys.marker(),
            keys.events(),
        ]);
        cmd.arg(&*hold.job).arg(&*hold.lock).arg(keys.job_key(&hold.job));
        let requeue = ScriptCall::new("requeue").arg(&*id.0).arg(&*hold.lock).arg(message);
        let requeue = requeue.arg(if is_refunded { "1" } else { "0" });
        let mut steps = vec![self.relock(id, hold)];
        if stalled.is_some() {
            let tell = ScriptCall::new("stalled").arg(&*hold.queue).arg(&*hold.job);
            steps.push(tell.arg(&*hold.lock).into());
        }
        steps.extend([cmd.into(), requeue.into()]);
        let ended = ended(self.link.transact(&steps, true).await?)?;
        self.changed.notify_one();
        Ok(ended)
    }
}

/// Returns the disposition of the attempt from the last step of a transaction.
fn ended(mut answers: Vec<Value>) -> Result<AttemptDisposition, QueueError> {
    let word = RedisReply::of(answers.pop().unwrap_or(Value::Nil)).word()?;
    if word == "fenced" {
        Ok(AttemptDisposition::Fenced)
    } else {
        Ok(AttemptDisposition::Now(state(&word)?))
    }
}

/// Returns the language that a request names, for lists; empty if it is not a valid request.
fn language(request: &[u8]) -> String {
    let Ok(serde_json::Value::Object(request)) = serde_json::from_slice(request) else {
        return String::new();
    };
    match request.get("language") {
        Some(serde_json::Value::String(name)) => name.chars().take(64).collect(),
        _ if request.contains_key("argv") => "argv".to_owned(),
        _ => String::new(),
    }
}
