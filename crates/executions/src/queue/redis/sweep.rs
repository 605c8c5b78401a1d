//! Maintenance of the queue, a bounded part at a time.

use api::{ExecutionId, ExecutionState};

use super::codec::{RedisReply, state};
use super::link::ScriptCall;
use super::names::RedisLease;
use super::{RedisQueue, millis};
use crate::queue::{AttemptDisposition, QueueError, QueueSweepReport};

/// Maximum number of entries of each kind that one sweep handles.
const STEP: u64 = 500;
/// Age of a push after which its server has given it up.
const PUSH_MAX_MS: u64 = 60_000;
/// Reason for a dead job whose workers were lost.
const LOST: &str = "the worker was lost";

impl RedisQueue {
    pub(super) async fn sweep_step(&self, now_ms: u64) -> Result<QueueSweepReport, QueueError> {
        let mut swept = QueueSweepReport::default();
        self.announce_ended(&mut swept).await?;
        self.find_lost(now_ms, &mut swept).await?;
        self.find_overdue(now_ms, &mut swept).await?;
        self.undo_pushes(now_ms).await?;
        self.adopt_strays(now_ms).await?;
        let mend = ScriptCall::new("mend").num(now_ms).num(STEP);
        read_ended(RedisReply::of(self.link.ask(mend).await?), &mut swept)?;
        self.forget_old(now_ms, &mut swept).await?;
        if !swept.requeued.is_empty() {
            self.changed.notify_one();
        }
        Ok(swept)
    }

    async fn announce_ended(&self, swept: &mut QueueSweepReport) -> Result<(), QueueError> {
        let reply = self.link.ask(ScriptCall::new("told").num(STEP)).await?;
        read_ended(RedisReply::of(reply), swept)
    }

    async fn find_lost(&self, now_ms: u64, swept: &mut QueueSweepReport) -> Result<(), QueueError> {
        let lost = ScriptCall::new("lost").num(now_ms).num(STEP);
        let mut reply = RedisReply::of(self.link.ask(lost).await?);
        while let Some(mut row) = reply.list() {
            let word = row.word()?;
            let id = ExecutionId(row.word()?);
            match word.as_str() {
                "ended" => swept.ended.push((id, state(&row.word()?)?)),
                "requeued" => swept.requeued.push(id),
                _ => self.lose(id, row, now_ms, swept).await?,
            }
        }
        Ok(())
    }

    async fn lose(
        &self,
        id: ExecutionId,
        mut row: RedisReply,
        now_ms: u64,
        swept: &mut QueueSweepReport,
    ) -> Result<(), QueueError> {
        let (queue, job, lock) = (row.word()?, row.word()?, row.word()?);
        let hold = RedisLease { lock, attempt: row.count()?, queue, job };
        let is_unwanted = row.word()? == "cancel";
        let why = row.word()?;
        let ended = if is_unwanted {
            self.bury(&id, &hold, ExecutionState::Cancelled, &why, now_ms).await?
        } else if hold.attempt < self.config.attempts_max {
            self.requeue(&id, &hold, LOST, false, Some(())).await?
        } else {
            self.bury(&id, &hold, ExecutionState::Dead, LOST, now_ms).await?
        };
        match ended {
            AttemptDisposition::Now(ExecutionState::Queued) => swept.requeued.push(id),
            AttemptDisposition::Now(state) => swept.ended.push((id, state)),
            // Its holder, or another sweep, was faster.
            AttemptDisposition::Fenced => {}
        }
        Ok(())
    }

    async fn find_overdue(
        &self,
        now_ms: u64,
        swept: &mut QueueSweepReport,
    ) -> Result<(), QueueError> {
        let overdue = ScriptCall::new("overdue").num(now_ms).num(STEP);
        for id in RedisReply::of(self.link.ask(overdue).await?).texts()? {
            let id = ExecutionId(id);
            if self.expire(&id, now_ms).await? {
                swept.ended.push((id, ExecutionState::Expired));
            }
        }
        Ok(())
    }

    /// Reverts pushes of a server that died before it accepted them: they were never confirmed.
    async fn undo_pushes(&self, now_ms: u64) -> Result<(), QueueError> {
        let Some(before) = now_ms.checked_sub(PUSH_MAX_MS) else { return Ok(()) };
        let pushes = ScriptCall::new("pushes").num(before).num(STEP);
        for id in RedisReply::of(self.link.ask(pushes).await?).texts()? {
            let id = ExecutionId(id);
            self.take_out(&id, None, "cancelled", "it was never accepted", now_ms).await?;
            self.link.ask(ScriptCall::new("unpush").arg(&*id.0)).await?;
        }
        Ok(())
    }

    /// Adopts jobs that other producers added.
    pub(super) async fn adopt_strays(&self, now_ms: u64) -> Result<(), QueueError> {
        for queue in self.queues().await? {
            let is_base = queue == self.place.name;
            let strays = ScriptCall::new("strays").arg(&*queue).num(STEP);
            let strays = strays.num(self.lease_until(now_ms)).arg(if is_base { "1" } else { "0" });
            let mut reply = RedisReply::of(self.link.ask(strays).await?);
            while let Some(mut row) = reply.list() {
                let job = row.word()?;
                let request = row.bytes()?.unwrap_or_default();
                let created_ms = row.count()?;
                let lock = row.word()?;
                let is_running = !lock.is_empty();
                let hold = RedisLease { lock, attempt: 1, queue: queue.clone(), job };
                self.adopt(&hold, &request, created_ms, is_running, now_ms).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn forget(&self, tenant: String, id: ExecutionId) -> Result<bool, QueueError> {
        let ended = ScriptCall::new("ended").arg(&*id.0).arg(tenant);
        let mut place = RedisReply::of(self.link.ask(ended).await?);
        if place.is_empty() {
            return Ok(false);
        }
        let forget = ScriptCall::new("forget").arg(id.0).into();
        let removal = self.removal(&place.word()?, &place.word()?);
        self.link.transact(&[removal, forget], true).await?;
        Ok(true)
    }

    async fn forget_old(
        &self,
        now_ms: u64,
        swept: &mut QueueSweepReport,
    ) -> Result<(), QueueError> {
        let cutoff = match now_ms.checked_sub(millis(self.config.keep)) {
            Some(cutoff) => cutoff.to_string(),
            None => "-inf".to_owned(),
        };
        let old = ScriptCall::new("old").arg(cutoff).num(self.config.kept_max).num(STEP);
        let old = old.num(self.config.kept_bytes_max);
        let mut reply = RedisReply::of(self.link.ask(old).await?);
        while !reply.is_empty() {
            let (id, queue, job) = (reply.word()?, reply.word()?, reply.word()?);
            let forget = ScriptCall::new("forget").arg(id).into();
            self.link.transact(&[self.removal(&queue, &job), forget], true).await?;
            swept.removed += 1;
        }
        Ok(())
    }
}

/// Reads ids and their final states.
fn read_ended(mut reply: RedisReply, swept: &mut QueueSweepReport) -> Result<(), QueueError> {
    while !reply.is_empty() {
        let (id, word) = (reply.word()?, reply.word()?);
        // A job that was removed or replayed meanwhile is not reported.
        if let Ok(state) = state(&word)
            && state.is_final()
        {
            swept.ended.push((ExecutionId(id), state));
        }
    }
    Ok(())
}
