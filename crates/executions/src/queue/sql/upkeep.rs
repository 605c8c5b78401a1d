//! Statements about many jobs at once, in bounded batches.

use std::collections::HashMap;

use api::ExecutionId;
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::super::schedule::{WaitingJob, rank};
use super::super::{QueueConfig, WebhookDelivery};
use super::attempt::{AttemptOutcome, HELD, RunningJob, fail};
use super::room::QueueLoad;
use super::schema::{JobColumns, number, original, text};

/// Maximum number of jobs that one transaction changes: it occupies the only writer for some
/// milliseconds.
pub(super) const BATCH_MAX: u32 = 500;

/// Reason for a retry, or for a dead job.
const LOST: &str = "the server that ran it went away";

/// Ends the attempts whose lease expired by `until_ms`.
pub(super) fn lose_leases(
    transaction: &mut dyn StoreTransaction,
    until_ms: u64,
    now_ms: u64,
    config: &QueueConfig,
) -> Result<Vec<AttemptOutcome>, SqlStoreError> {
    let sql = format!(
        "SELECT {HELD} FROM execution_jobs WHERE state = 'running' AND lease_until <= $1
        ORDER BY lease_until LIMIT $2"
    );
    let rows = transaction.query(&sql, &[number(until_ms), BATCH_MAX.into()])?;
    rows.iter()
        .map(|row| fail(transaction, RunningJob::of(row)?, LOST, now_ms, config.attempts_max))
        .collect()
}

/// Expires waiting jobs past their deadline. Also returns their tenants and sizes.
pub(super) fn expire(
    transaction: &mut dyn StoreTransaction,
    now_ms: u64,
) -> Result<Vec<Left>, SqlStoreError> {
    let sql = "UPDATE execution_jobs
        SET state = 'expired', finished_ms = $1, message = 'it did not start before its deadline',
            webhook_due = CASE webhook WHEN 1 THEN CAST($1 AS BIGINT) END, webhook_attempts = 0
        WHERE id IN (
            SELECT id FROM execution_jobs WHERE state = 'queued' AND expires_ms <= $1
            ORDER BY expires_ms LIMIT $2
        ) RETURNING id, tenant, request_bytes";
    owned(&transaction.query(sql, &[number(now_ms), BATCH_MAX.into()])?)
}

/// Cancels a batch of waiting jobs. Also returns their tenants and sizes.
pub(super) fn drain(
    transaction: &mut dyn StoreTransaction,
    tenant: Option<&str>,
    now_ms: u64,
) -> Result<Vec<Left>, SqlStoreError> {
    let mut parameters = vec![number(now_ms), BATCH_MAX.into()];
    parameters.extend(tenant.map(text));
    let of_tenant = if tenant.is_some() { "AND tenant = $3" } else { "" };
    let sql = format!(
        "UPDATE execution_jobs
        SET state = 'cancelled', finished_ms = $1, message = 'the queue was emptied',
            webhook_due = CASE webhook WHEN 1 THEN CAST($1 AS BIGINT) END, webhook_attempts = 0
        WHERE id IN (
            SELECT id FROM execution_jobs WHERE state = 'queued' {of_tenant} LIMIT $2
        ) RETURNING id, tenant, request_bytes"
    );
    owned(&transaction.query(&sql, &parameters)?)
}

/// A job that no longer waits, its tenant, and the size of its request.
pub(super) type Left = (ExecutionId, String, u64);

fn owned(rows: &[SqlRow]) -> Result<Vec<Left>, SqlStoreError> {
    let one = |row: &SqlRow| {
        let mut columns = JobColumns::of(row);
        Ok((ExecutionId(columns.text()?), columns.text()?, columns.take()?))
    };
    let mut all: Vec<Left> = rows.iter().map(one).collect::<Result<_, _>>()?;
    all.sort();
    Ok(all)
}

/// Queues some dead jobs again, the oldest first. Their deadlines do not apply again.
pub(super) fn replay(
    transaction: &mut dyn StoreTransaction,
    tenant: Option<&str>,
    id: Option<&ExecutionId>,
    config: &QueueConfig,
) -> Result<Vec<WaitingJob>, SqlStoreError> {
    let mut parameters = vec![BATCH_MAX.into()];
    let mut also = String::new();
    for (column, value) in [("tenant", tenant), ("id", id.map(|id| id.0.as_str()))] {
        if let Some(value) = value {
            parameters.push(text(value));
            also.push_str(&format!(" AND {column} = ${}", parameters.len()));
        }
    }
    let sql = format!(
        "UPDATE execution_jobs
        SET state = 'queued', attempts = 0, expires_ms = NULL, started_ms = NULL,
            finished_ms = NULL, message = NULL, cancel_wanted = 0, webhook_due = NULL,
            webhook_attempts = 0
        WHERE id IN (
            SELECT id FROM execution_jobs WHERE state = 'dead' {also} ORDER BY id LIMIT $1
        ) RETURNING {HELD}"
    );
    let rows = transaction.query(&sql, &parameters)?;
    let jobs = rows.iter().map(|row| Ok(RunningJob::of(row)?.job));
    let mut jobs: Vec<WaitingJob> = jobs.collect::<Result<_, SqlStoreError>>()?;
    jobs.sort_by_key(|job| (rank(job.priority, job.created_ms, config.ageing), job.id.clone()));
    Ok(jobs)
}

/// Removes some ended jobs, the oldest first, until their number and bytes have decreased by
/// `excess`. Returns the removed number and bytes.
pub(super) fn forget_excess(
    transaction: &mut dyn StoreTransaction,
    excess: QueueLoad,
) -> Result<QueueLoad, SqlStoreError> {
    let sql = "SELECT request_bytes + result_bytes FROM execution_jobs
        WHERE finished_ms <= $1 ORDER BY finished_ms, id LIMIT $2";
    let mut freed = QueueLoad::default();
    for row in transaction.query(sql, &[number(u64::MAX), BATCH_MAX.into()])? {
        if freed.count >= excess.count && freed.bytes >= excess.bytes {
            break;
        }
        freed = freed.plus(QueueLoad::one(row.get(0)?));
    }
    if freed.count > 0 {
        forget(transaction, u64::MAX, freed.count)?;
    }
    Ok(freed)
}

/// Removes some ended jobs: those that ended by `until_ms`, at most `count_max`, oldest first.
pub(super) fn forget(
    transaction: &mut dyn StoreTransaction,
    until_ms: u64,
    count_max: u64,
) -> Result<u64, SqlStoreError> {
    let count = count_max.min(u64::from(BATCH_MAX));
    let parameters = [number(until_ms), number(count)];
    let chosen = "SELECT id FROM execution_jobs WHERE finished_ms <= $1
        ORDER BY finished_ms, id LIMIT $2";
    // The jobs last, because the selection reads them.
    for table in ["execution_requests", "execution_results"] {
        let sql = format!("DELETE FROM {table} WHERE id IN ({chosen})");
        transaction.execute(&sql, &parameters)?;
    }
    let sql = format!("DELETE FROM execution_jobs WHERE id IN ({chosen})");
    transaction.execute(&sql, &parameters)
}

/// Removes one ended job.
pub(super) fn remove(
    transaction: &mut dyn StoreTransaction,
    tenant: &str,
    id: &ExecutionId,
) -> Result<bool, SqlStoreError> {
    let parameters = [id.0.as_str().into(), tenant.into()];
    let sql = "DELETE FROM execution_jobs
        WHERE id = $1 AND tenant = $2 AND finished_ms IS NOT NULL";
    if transaction.execute(sql, &parameters)? == 0 {
        return Ok(false);
    }
    for table in ["execution_requests", "execution_results"] {
        let sql = format!("DELETE FROM {table} WHERE id = $1");
        transaction.execute(&sql, &[id.0.as_str().into()])?;
    }
    Ok(true)
}

/// Work of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DueUpkeep {
    /// True if there are expired leases.
    pub(super) leases: bool,
    /// True if jobs wait past their deadline.
    pub(super) deadlines: bool,
    /// True if an ended job is beyond its retention time.
    pub(super) is_old_kept: bool,
    /// Ended jobs, with their requests and results.
    pub(super) kept: QueueLoad,
}

/// Returns the work of a sweep; in one query, because sweeps run every second.
pub(super) fn due(
    transaction: &mut dyn StoreTransaction,
    now_ms: u64,
    old_ms: Option<u64>,
) -> Result<DueUpkeep, SqlStoreError> {
    let exists = |condition: &str| {
        format!(
            "CASE WHEN EXISTS (SELECT 1 FROM execution_jobs WHERE {condition}) THEN 1 ELSE 0 END"
        )
    };
    let sql = format!(
        "SELECT {}, {}, {}, COUNT(*),
            CAST(COALESCE(SUM(request_bytes + result_bytes), 0) AS BIGINT)
        FROM execution_jobs WHERE finished_ms IS NOT NULL",
        exists("state = 'running' AND lease_until <= $1"),
        exists("state = 'queued' AND expires_ms <= $1"),
        exists("finished_ms <= $2"),
    );
    let parameters = [number(now_ms), number(old_ms.unwrap_or_default())];
    let Some(row) = transaction.query_one(&sql, &parameters)? else {
        return Ok(DueUpkeep::default());
    };
    let is = |index| Ok::<_, SqlStoreError>(row.get::<i64>(index)? != 0);
    Ok(DueUpkeep {
        leases: is(0)?,
        deadlines: is(1)?,
        is_old_kept: is(2)?,
        kept: QueueLoad { count: row.get(3)?, bytes: row.get(4)? },
    })
}

/// Returns the number and size of waiting jobs of each tenant.
pub(super) fn waiting(
    transaction: &mut dyn StoreTransaction,
) -> Result<HashMap<String, QueueLoad>, SqlStoreError> {
    let sql = "SELECT tenant, COUNT(*), CAST(SUM(request_bytes) AS BIGINT)
        FROM execution_jobs WHERE state = 'queued' GROUP BY tenant";
    let rows = transaction.query(sql, &[])?;
    let one = |row: &SqlRow| {
        let load = QueueLoad { count: row.get(1)?, bytes: row.get(2)? };
        Ok((original(row.get(0)?), load))
    };
    rows.iter().map(one).collect()
}

/// Returns some waiting jobs, by id; those after `after`.
pub(super) fn waiting_jobs(
    transaction: &mut dyn StoreTransaction,
    after: &SqlValue,
) -> Result<Vec<WaitingJob>, SqlStoreError> {
    let sql = format!(
        "SELECT {HELD} FROM execution_jobs WHERE state = 'queued' AND id > $1
        ORDER BY id LIMIT {READ_MAX}"
    );
    let rows = transaction.query(&sql, std::slice::from_ref(after))?;
    rows.iter().map(|row| Ok(RunningJob::of(row)?.job)).collect()
}

/// Number of jobs read at a time when the schedule is built.
pub(super) const READ_MAX: usize = 5_000;

/// Takes due webhooks and hides them until `hidden_until_ms`.
pub(super) fn due_webhooks(
    transaction: &mut dyn StoreTransaction,
    count_max: u64,
    now_ms: u64,
    hidden_until_ms: u64,
) -> Result<Vec<WebhookDelivery>, SqlStoreError> {
    let due = "SELECT id FROM execution_jobs WHERE webhook_due <= $1
        ORDER BY webhook_due, id LIMIT $2";
    let hide = "UPDATE execution_jobs
        SET webhook_due = $2, webhook_attempts = webhook_attempts + 1
        WHERE id = $1 RETURNING webhook_attempts";
    let mut deliveries = Vec::new();
    for row in transaction.query(due, &[number(now_ms), number(count_max)])? {
        let id: String = row.get(0)?;
        let hidden = [SqlValue::from(&id), number(hidden_until_ms)];
        if let Some(row) = transaction.query_one(hide, &hidden)? {
            deliveries
                .push(WebhookDelivery { id: ExecutionId(original(id)), attempt: row.get(0)? });
        }
    }
    Ok(deliveries)
}

/// Ends a delivery, or schedules the next. A job that was queued again meanwhile has no due
/// delivery.
pub(super) fn settle_webhook(
    transaction: &mut dyn StoreTransaction,
    id: &ExecutionId,
    again_ms: Option<u64>,
) -> Result<(), SqlStoreError> {
    let sql = "UPDATE execution_jobs SET webhook_due = $2
        WHERE id = $1 AND webhook_due IS NOT NULL";
    let again = again_ms.map_or(SqlValue::Null, number);
    transaction.execute(sql, &[text(&id.0), again]).map(drop)
}
