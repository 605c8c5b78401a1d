//! Reads, pauses and webhooks.

use std::time::Duration;

use api::{ExecutionId, QueueStats};

use super::codec::{RedisReply, job};
use super::link::{ScriptCall, within};
use super::{RedisQueue, millis};
use crate::queue::{JobFilter, JobOrder, JobParts, QueueError, QueuedJob, WebhookDelivery};

/// Maximum number of ids that one step of a list reads.
const LIST_STEP: usize = 500;
/// Maximum number of steps of a list: to skip more jobs that do not match, a later cursor is
/// necessary.
const LIST_STEPS_MAX: usize = 200;

/// A time after all others that Lua's numbers represent exactly (2^53 - 1).
const TIME_MAX_MS: u64 = (1 << 53) - 1;

impl RedisQueue {
    pub(super) async fn show(
        &self,
        id: ExecutionId,
        parts: JobParts,
    ) -> Result<Option<QueuedJob>, QueueError> {
        let flag = |is_set| if is_set { "1" } else { "0" };
        let show = ScriptCall::new("show").arg(id.0);
        let row = self.link.ask(show.arg(flag(parts.request)).arg(flag(parts.result))).await?;
        let row = RedisReply::of(row);
        if row.is_empty() { Ok(None) } else { job(row).map(Some) }
    }

    pub(super) async fn search(&self, filter: JobFilter) -> Result<Vec<QueuedJob>, QueueError> {
        let mut states = String::new();
        for state in &filter.states {
            states.push_str(&format!(",{},", state.as_str()));
        }
        let order = match filter.order {
            JobOrder::Descending => "desc",
            JobOrder::Ascending => "asc",
        };
        let mut before = filter.before.map(|id| id.0).unwrap_or_default();
        let mut jobs = Vec::new();
        for _ in 0..LIST_STEPS_MAX {
            let left = filter.limit.saturating_sub(jobs.len());
            if left == 0 {
                break;
            }
            let list = ScriptCall::new("list")
                .marked(filter.tenant.as_deref())
                .arg(&*states)
                .marked(filter.language.as_deref())
                .marked(filter.label.as_deref())
                .arg(&*before)
                .num(left)
                .num(LIST_STEP)
                .arg(order)
                .marked(filter.id_prefix.as_deref())
                .marked(filter.label_text.as_deref())
                .num(filter.from_ms.unwrap_or(0))
                .num(filter.to_ms.unwrap_or(TIME_MAX_MS));
            let mut reply = RedisReply::of(self.link.ask(list).await?);
            before = reply.word()?;
            while let Some(row) = reply.list() {
                jobs.push(job(row)?);
            }
            if before.is_empty() {
                break;
            }
        }
        Ok(jobs)
    }

    pub(super) async fn before(&self, id: ExecutionId) -> Result<Option<u64>, QueueError> {
        let answer = self.link.ask(ScriptCall::new("position").arg(id.0)).await?;
        RedisReply::of(answer).number()
    }

    pub(super) async fn figures(
        &self,
        tenant: Option<String>,
        now_ms: u64,
    ) -> Result<QueueStats, QueueError> {
        let stats = ScriptCall::new("stats").marked(tenant.as_deref()).num(now_ms);
        let mut reply = RedisReply::of(self.link.ask(stats).await?);
        Ok(QueueStats {
            backend: "redis".to_owned(),
            paused: reply.count::<u8>()? == 1,
            queued: reply.count()?,
            running: reply.count()?,
            finished: reply.count()?,
            cancelled: reply.count()?,
            expired: reply.count()?,
            dead: reply.count()?,
            tenants_waiting: reply.count()?,
            oldest_queued_ms: reply.number()?,
        })
    }

    /// Returns all queues.
    pub(super) async fn queues(&self) -> Result<Vec<String>, QueueError> {
        let names = RedisReply::of(self.link.ask(ScriptCall::new("queues")).await?).texts()?;
        Ok(names.into_iter().step_by(2).collect())
    }

    pub(super) async fn pause(&self, paused: bool) -> Result<(), QueueError> {
        let flag = if paused { "1" } else { "0" };
        self.link.ask(ScriptCall::new("pause").arg(flag)).await?;
        // Only our pause affects Cove; theirs is for dashboards and BullMQ's workers.
        for name in self.queues().await? {
            let queue = self.link.queue(&name).await?;
            if paused { within(queue.pause()).await? } else { within(queue.resume()).await? }
        }
        self.changed.notify_one();
        Ok(())
    }

    pub(super) async fn due(
        &self,
        max: usize,
        hide: Duration,
        now_ms: u64,
    ) -> Result<Vec<WebhookDelivery>, QueueError> {
        let until = now_ms.saturating_add(millis(hide));
        let hooks = ScriptCall::new("hooks").num(max).num(until).num(now_ms);
        let mut reply = RedisReply::of(self.link.ask(hooks).await?);
        let mut due = Vec::new();
        while !reply.is_empty() {
            let id = ExecutionId(reply.word()?);
            due.push(WebhookDelivery { id, attempt: reply.count()? });
        }
        Ok(due)
    }
}
