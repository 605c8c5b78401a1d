//! Statements about one attempt at a job: its claim, its heartbeats and its end.

use api::{ExecutionId, ExecutionState, Verdict};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::super::schedule::WaitingJob;
use super::super::{AttemptResult, CancelAnswer, JobClaim, JobLease, LeaseRenewal};
use super::schema::{JobColumns, number, text, text_or_null};

/// Columns that [`RunningJob::of`] reads.
pub(super) const HELD: &str =
    "id, tenant, priority, created_ms, expires_ms, request_bytes, attempts, cancel_wanted";

const IS_PAUSED: &str = "SELECT one FROM execution_paused";

/// A compare-and-set: of several servers that try, one changes the row. The attempt counts from
/// here on, so that a program which crashes the server is not retried indefinitely.
const CLAIM: &str = "UPDATE execution_jobs
    SET state = 'running', attempts = attempts + 1, token = token + 1, started_ms = $2,
        lease_until = $3, cancel_wanted = 0
    WHERE id = $1 AND state = 'queued'
    RETURNING tenant, request_bytes, token, attempts,
        (SELECT body FROM execution_requests WHERE execution_requests.id = execution_jobs.id)";

const BEAT: &str = "UPDATE execution_jobs SET lease_until = $3
    WHERE id = $1 AND token = $2 AND state = 'running' RETURNING cancel_wanted";

const FINISH: &str = "UPDATE execution_jobs
    SET state = 'finished', finished_ms = $3, lease_until = NULL, message = NULL,
        result_bytes = $4, verdict = $5,
        webhook_due = CASE webhook WHEN 1 THEN CAST($3 AS BIGINT) END, webhook_attempts = 0
    WHERE id = $1 AND token = $2 AND state = 'running'";

const INSERT_RESULT: &str = "INSERT INTO execution_results (id, body) VALUES ($1, $2)";

const END: &str = "UPDATE execution_jobs
    SET state = $2, finished_ms = $3, lease_until = NULL, message = COALESCE($4, message),
        webhook_due = CASE webhook WHEN 1 THEN CAST($3 AS BIGINT) END, webhook_attempts = 0
    WHERE id = $1";

const REQUEUE: &str = "UPDATE execution_jobs
    SET state = 'queued', lease_until = NULL, attempts = $2, message = COALESCE($3, message),
        started_ms = CASE WHEN CAST($2 AS BIGINT) > 0 THEN started_ms END
    WHERE id = $1";

const CANCEL_WAITING: &str = "UPDATE execution_jobs
    SET state = 'cancelled', finished_ms = $3, message = $4,
        webhook_due = CASE webhook WHEN 1 THEN CAST($3 AS BIGINT) END, webhook_attempts = 0
    WHERE id = $1 AND tenant = $2 AND state = 'queued' RETURNING request_bytes";

const WANT_CANCEL: &str = "UPDATE execution_jobs SET cancel_wanted = 1, message = $2
    WHERE id = $1 AND cancel_wanted = 0";

/// A running job, with the columns that its end needs.
#[derive(Debug)]
pub(super) struct RunningJob {
    pub(super) job: WaitingJob,
    attempts: u32,
    cancel_wanted: bool,
}

impl RunningJob {
    /// Reads the columns of [`HELD`].
    pub(super) fn of(row: &SqlRow) -> Result<RunningJob, SqlStoreError> {
        let mut columns = JobColumns::of(row);
        let job = WaitingJob {
            id: ExecutionId(columns.text()?),
            tenant: columns.text()?,
            priority: columns.take()?,
            created_ms: columns.take()?,
            deadline_ms: columns.take()?,
            bytes: columns.take()?,
        };
        Ok(RunningJob { job, attempts: columns.take()?, cancel_wanted: columns.take()? })
    }
}

/// Effect of an attempt's end on the job.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The job waits again.
    Waits(WaitingJob),
    /// The job has ended.
    Ended(ExecutionId, ExecutionState),
}

/// Returns whether claims are paused.
pub(super) fn is_paused(transaction: &mut dyn StoreTransaction) -> Result<bool, SqlStoreError> {
    Ok(transaction.query_one(IS_PAUSED, &[])?.is_some())
}

/// Pauses or resumes claims.
pub(super) fn set_paused(
    transaction: &mut dyn StoreTransaction,
    paused: bool,
) -> Result<(), SqlStoreError> {
    let sql = match paused {
        true => "INSERT INTO execution_paused (one) VALUES (1) ON CONFLICT (one) DO NOTHING",
        false => "DELETE FROM execution_paused",
    };
    transaction.execute(sql, &[]).map(drop)
}

/// Claims a job, if it still waits. Also returns its size.
pub(super) fn claim(
    transaction: &mut dyn StoreTransaction,
    id: &ExecutionId,
    now_ms: u64,
    lease_until_ms: u64,
) -> Result<Option<(JobClaim, u64)>, SqlStoreError> {
    let parameters = [text(&id.0), number(now_ms), number(lease_until_ms)];
    let Some(row) = transaction.query_one(CLAIM, &parameters)? else {
        return Ok(None);
    };
    let mut columns = JobColumns::of(&row);
    let (tenant, bytes) = (columns.text()?, columns.take()?);
    let lease = JobLease { id: id.clone(), token: columns.take::<i64>()?.to_string() };
    let claim = JobClaim { lease, tenant, attempt: columns.take()?, request: columns.take()? };
    Ok(Some((claim, bytes)))
}

/// Returns the number in a fencing token; a foreign token becomes one that matches no claim.
fn token(lease: &JobLease) -> SqlValue {
    SqlValue::Int(lease.token.parse().unwrap_or(-1))
}

/// Renews one lease.
pub(super) fn beat(
    transaction: &mut dyn StoreTransaction,
    lease: &JobLease,
    lease_until_ms: u64,
) -> Result<LeaseRenewal, SqlStoreError> {
    let parameters = [text(&lease.id.0), token(lease), number(lease_until_ms)];
    Ok(match transaction.query_one(BEAT, &parameters)? {
        None => LeaseRenewal::Lost,
        Some(row) if row.get(0)? => LeaseRenewal::CancelWanted,
        Some(_) => LeaseRenewal::Held,
    })
}

/// Ends an attempt; returns None if the lease is not current.
pub(super) fn finish(
    transaction: &mut dyn StoreTransaction,
    lease: &JobLease,
    finish: &AttemptResult,
    now_ms: u64,
    attempts_max: u32,
    verdict: Option<Verdict>,
) -> Result<Option<AttemptOutcome>, SqlStoreError> {
    let (id, token) = (text(&lease.id.0), token(lease));
    if let AttemptResult::Result(body) = finish {
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let verdict = text_or_null(verdict.map(Verdict::as_str));
        let row = [id.clone(), token, number(now_ms), number(bytes), verdict];
        if transaction.execute(FINISH, &row)? == 0 {
            return Ok(None);
        }
        transaction.execute(INSERT_RESULT, &[id, body.as_slice().into()])?;
        return Ok(Some(AttemptOutcome::Ended(lease.id.clone(), ExecutionState::Finished)));
    }
    let sql = format!(
        "SELECT {HELD} FROM execution_jobs WHERE id = $1 AND token = $2 AND state = 'running'"
    );
    let Some(row) = transaction.query_one(&sql, &[id, token])? else {
        return Ok(None);
    };
    let held = RunningJob::of(&row)?;
    let after = match finish {
        AttemptResult::Cancelled { message } => {
            end(transaction, held, ExecutionState::Cancelled, Some(message), now_ms)?
        }
        AttemptResult::Failed { message } => {
            fail(transaction, held, message, now_ms, attempts_max)?
        }
        AttemptResult::Returned if held.cancel_wanted => {
            end(transaction, held, ExecutionState::Cancelled, None, now_ms)?
        }
        AttemptResult::Returned | AttemptResult::Result(_) => {
            let attempts = held.attempts.saturating_sub(1);
            requeue(transaction, held, attempts, None)?
        }
    };
    Ok(Some(after))
}

/// Handles a failure of Cove at an attempt: the job waits again while it has attempts left. A job
/// that its owner has cancelled is not retried.
pub(super) fn fail(
    transaction: &mut dyn StoreTransaction,
    held: RunningJob,
    message: &str,
    now_ms: u64,
    attempts_max: u32,
) -> Result<AttemptOutcome, SqlStoreError> {
    if held.cancel_wanted {
        return end(transaction, held, ExecutionState::Cancelled, None, now_ms);
    }
    if held.attempts >= attempts_max {
        return end(transaction, held, ExecutionState::Dead, Some(message), now_ms);
    }
    let attempts = held.attempts;
    requeue(transaction, held, attempts, Some(message))
}

fn end(
    transaction: &mut dyn StoreTransaction,
    held: RunningJob,
    state: ExecutionState,
    message: Option<&str>,
    now_ms: u64,
) -> Result<AttemptOutcome, SqlStoreError> {
    let id = text(&held.job.id.0);
    let row = [id, state.as_str().into(), number(now_ms), text_or_null(message)];
    transaction.execute(END, &row)?;
    Ok(AttemptOutcome::Ended(held.job.id, state))
}

fn requeue(
    transaction: &mut dyn StoreTransaction,
    held: RunningJob,
    attempts: u32,
    message: Option<&str>,
) -> Result<AttemptOutcome, SqlStoreError> {
    let row = [text(&held.job.id.0), attempts.into(), text_or_null(message)];
    transaction.execute(REQUEUE, &row)?;
    Ok(AttemptOutcome::Waits(held.job))
}

/// Cancels a waiting job, or records the request for a running one. Also returns the size of one
/// that waited.
pub(super) fn cancel(
    transaction: &mut dyn StoreTransaction,
    tenant: &str,
    id: &ExecutionId,
    message: &str,
    now_ms: u64,
) -> Result<(CancelAnswer, u64), SqlStoreError> {
    let (id, tenant) = (text(&id.0), text(tenant));
    let row = [id.clone(), tenant.clone(), number(now_ms), text(message)];
    if let Some(row) = transaction.query_one(CANCEL_WAITING, &row)? {
        return Ok((CancelAnswer::Cancelled, row.get(0)?));
    }
    let sql = "SELECT state FROM execution_jobs WHERE id = $1 AND tenant = $2";
    let Some(row) = transaction.query_one(sql, &[id.clone(), tenant])? else {
        return Ok((CancelAnswer::Unknown, 0));
    };
    let state = super::reads::state(&row.get::<String>(0)?)?;
    if state.is_final() {
        return Ok((CancelAnswer::Ended(state), 0));
    }
    transaction.execute(WANT_CANCEL, &[id, text(message)])?;
    Ok((CancelAnswer::Running, 0))
}
