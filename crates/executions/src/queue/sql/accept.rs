//! Statements that accept jobs.

use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::super::schedule::rank;
use super::super::{NewJob, PushOutcome, QueueConfig, QueueError};
use super::schema::{number, original, text, text_or_null};

const FIND_KEY: &str = "SELECT id, fingerprint FROM execution_jobs
    WHERE tenant = $1 AND idempotency_key = $2";

const INSERT_JOB: &str = "INSERT INTO execution_jobs (
        id, tenant, state, language, label, priority, rank, created_ms, deadline_ms, expires_ms,
        face, idempotency_key, fingerprint, webhook, request_bytes
    ) VALUES ($1, $2, 'queued', $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12, $13)";

const INSERT_REQUEST: &str = "INSERT INTO execution_requests (id, body) VALUES ($1, $2)";

/// Accepts all of the jobs, or fails. Jobs of one batch see the keys of earlier ones.
pub(super) fn accept(
    transaction: &mut dyn StoreTransaction,
    jobs: &[NewJob],
    config: &QueueConfig,
) -> Result<Vec<PushOutcome>, SqlStoreError> {
    jobs.iter().map(|job| accept_one(transaction, job, config)).collect()
}

fn accept_one(
    transaction: &mut dyn StoreTransaction,
    job: &NewJob,
    config: &QueueConfig,
) -> Result<PushOutcome, SqlStoreError> {
    if let Some(before) = before(transaction, job)? {
        return Ok(before);
    }
    let (key, fingerprint) = match &job.idempotency {
        Some(it) => (text(&it.key), SqlValue::from(it.fingerprint.as_slice())),
        None => (SqlValue::Null, SqlValue::Null),
    };
    let row = [
        text(&job.id.0),
        text(&job.tenant),
        text(&job.language),
        text_or_null(job.label.as_deref()),
        job.priority.into(),
        rank(job.priority, job.created_ms, config.ageing).into(),
        number(job.created_ms),
        job.deadline_ms.map_or(SqlValue::Null, number),
        text_or_null(job.face.as_deref()),
        key,
        fingerprint,
        job.webhook.into(),
        number(job.bytes()),
    ];
    transaction.execute(INSERT_JOB, &row)?;
    let body = SqlValue::from(job.request.as_slice());
    transaction.execute(INSERT_REQUEST, &[text(&job.id.0), body])?;
    Ok(PushOutcome::New)
}

/// Returns whether the same job was accepted before.
pub(super) fn before(
    transaction: &mut dyn StoreTransaction,
    job: &NewJob,
) -> Result<Option<PushOutcome>, SqlStoreError> {
    let Some(idempotency) = &job.idempotency else {
        return Ok(None);
    };
    let parameters = [text(&job.tenant), text(&idempotency.key)];
    let Some(row) = transaction.query_one(FIND_KEY, &parameters)? else {
        return Ok(None);
    };
    if row.get::<Vec<u8>>(1)? != idempotency.fingerprint {
        return Err(SqlStoreError::refuse(QueueError::KeyReused));
    }
    Ok(Some(PushOutcome::Before(api::ExecutionId(original(row.get(0)?)))))
}
