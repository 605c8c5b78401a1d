//! Statements that only read.

use api::{ExecutionId, ExecutionState, QueueStats, Verdict};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreDialect, StoreTransaction};

use super::super::{JobFilter, JobOrder, JobParts, QueuedJob};
use super::schema::{JobColumns, number, original, text};

/// Columns that [`job`] reads: those that lists need, and none that may be large.
const JOB: &str = "id, tenant, state, language, label, priority, created_ms, deadline_ms,
    started_ms, finished_ms, attempts, message, verdict";

/// Maximum number of jobs in one list.
const LIST_MAX: usize = 1_000;

/// Parses a state by its name.
pub(super) fn state(name: &str) -> Result<ExecutionState, SqlStoreError> {
    use ExecutionState::{Cancelled, Dead, Expired, Finished, Queued, Running};
    let all = [Queued, Running, Finished, Cancelled, Expired, Dead];
    let found = all.into_iter().find(|state| state.as_str() == name);
    found.ok_or(SqlStoreError::Column { index: 2, expected: "a state", found: "another word" })
}

fn job(row: &SqlRow) -> Result<QueuedJob, SqlStoreError> {
    let mut columns = JobColumns::of(row);
    Ok(QueuedJob {
        id: ExecutionId(columns.text()?),
        tenant: columns.text()?,
        state: state(&columns.take::<String>()?)?,
        language: columns.text()?,
        label: columns.text_or_null()?,
        priority: columns.take()?,
        created_ms: columns.take()?,
        deadline_ms: columns.take()?,
        started_ms: columns.take()?,
        finished_ms: columns.take()?,
        attempts: columns.take()?,
        message: columns.text_or_null()?,
        verdict: columns.take::<Option<String>>()?.as_deref().and_then(Verdict::from_name),
        face: None,
        request: None,
        result: None,
    })
}

/// Returns one job.
pub(super) fn get(
    transaction: &mut dyn StoreTransaction,
    id: &ExecutionId,
    parts: JobParts,
) -> Result<Option<QueuedJob>, SqlStoreError> {
    let id = [text(&id.0)];
    let sql = format!("SELECT {JOB}, face FROM execution_jobs WHERE id = $1");
    let Some(row) = transaction.query_one(&sql, &id)? else {
        return Ok(None);
    };
    let mut job = job(&row)?;
    let face = row.values().len() - 1;
    job.face = row.get::<Option<String>>(face)?.map(original);
    if parts.request {
        let sql = "SELECT body FROM execution_requests WHERE id = $1";
        job.request = transaction.query_one(sql, &id)?.map(|row| row.get(0)).transpose()?;
    }
    if parts.result {
        let sql = "SELECT body FROM execution_results WHERE id = $1";
        job.result = transaction.query_one(sql, &id)?.map(|row| row.get(0)).transpose()?;
    }
    Ok(Some(job))
}

/// Returns jobs, in the order of the filter. The SQL text depends on the set of conditions, not on
/// values, so that few statements have to stay prepared.
pub(super) fn list(
    transaction: &mut dyn StoreTransaction,
    filter: &JobFilter,
    dialect: StoreDialect,
) -> Result<Vec<QueuedJob>, SqlStoreError> {
    let mut parameters: Vec<SqlValue> = Vec::new();
    let mut conditions = String::from("1 = 1");
    let (beyond, direction) = match filter.order {
        JobOrder::Descending => ("id <", "DESC"),
        JobOrder::Ascending => ("id >", "ASC"),
    };
    let equal = [
        ("tenant =", filter.tenant.as_deref()),
        ("language =", filter.language.as_deref()),
        ("label =", filter.label.as_deref()),
        ("verdict =", filter.verdict.map(Verdict::as_str)),
        (beyond, filter.before.as_ref().map(|id| id.0.as_str())),
        ("id >=", filter.id_prefix.as_deref()),
    ];
    let mut add = |left: &str, value: SqlValue, right: &str| {
        parameters.push(value);
        conditions.push_str(&format!(" AND {left} ${}{right}", parameters.len()));
    };
    for (left, value) in equal {
        if let Some(value) = value {
            add(left, text(value), "");
        }
    }
    if let Some(prefix) = &filter.id_prefix {
        // Above all ids with this prefix: ids are compared by their bytes, and no character is
        // greater.
        add("id <", text(&format!("{prefix}{}", char::MAX)), "");
    }
    if let Some(part) = filter.label_text.as_deref().filter(|part| !part.is_empty()) {
        let position = match dialect {
            StoreDialect::Sqlite => "instr",
            StoreDialect::Postgres => "strpos",
        };
        add(&format!("{position}(label,"), text(part), ") > 0");
    }
    for (left, value) in [("created_ms >=", filter.from_ms), ("created_ms <", filter.to_ms)] {
        if let Some(value) = value {
            add(left, number(value), "");
        }
    }
    let mut states = filter.states.clone();
    states.sort();
    states.dedup();
    if !states.is_empty() {
        // Our own names, as literals: the planner needs them to use an index that covers one state.
        let names: Vec<String> = states.iter().map(|it| format!("'{}'", it.as_str())).collect();
        conditions.push_str(&format!(" AND state IN ({})", names.join(", ")));
    }
    let limit = u32::try_from(filter.limit.min(LIST_MAX)).unwrap_or(u32::MAX);
    parameters.push(limit.into());
    let sql = format!(
        "SELECT {JOB} FROM execution_jobs WHERE {conditions} ORDER BY id {direction} LIMIT ${}",
        parameters.len()
    );
    transaction.query(&sql, &parameters)?.iter().map(job).collect()
}

/// Returns the number of jobs before a job, from the table alone: its position among those of its
/// tenant, plus as many turns of each other tenant, if that has so many waiting jobs. The order of
/// turns is not known here, so the result may be too high by one for each other tenant.
pub(super) fn position(
    transaction: &mut dyn StoreTransaction,
    id: &ExecutionId,
    now_ms: u64,
) -> Result<Option<u64>, SqlStoreError> {
    let mine = "SELECT tenant, rank, created_ms FROM execution_jobs
        WHERE id = $1 AND state = 'queued' AND (expires_ms IS NULL OR expires_ms > $2)";
    let Some(row) = transaction.query_one(mine, &[text(&id.0), number(now_ms)])? else {
        return Ok(None);
    };
    let mut place = row.values().to_vec();
    place.extend([text(&id.0), number(now_ms)]);
    let sooner = "SELECT COUNT(*) FROM execution_jobs
        WHERE state = 'queued' AND tenant = $1 AND (rank, created_ms, id) < ($2, $3, $4)
            AND (expires_ms IS NULL OR expires_ms > $5)";
    let mut before: u64 = transaction.query_one(sooner, &place)?.map_or(Ok(0), |it| it.get(0))?;
    let turns = before + 1;
    let others = "SELECT COUNT(*) FROM execution_jobs
        WHERE state = 'queued' AND tenant <> $1 GROUP BY tenant";
    for other in transaction.query(others, &place[..1])? {
        before += other.get::<u64>(0)?.min(turns);
    }
    Ok(Some(before))
}

/// Returns figures of a tenant or of all.
pub(super) fn stats(
    transaction: &mut dyn StoreTransaction,
    tenant: Option<&str>,
    now_ms: u64,
    backend: &str,
) -> Result<QueueStats, SqlStoreError> {
    let parameters: Vec<SqlValue> = tenant.map(text).into_iter().collect();
    let (whose, also) = match tenant {
        Some(_) => ("WHERE tenant = $1", "AND tenant = $1"),
        None => ("", ""),
    };
    let paused = super::attempt::is_paused(transaction)?;
    let mut stats = QueueStats {
        backend: backend.to_owned(),
        paused,
        queued: 0,
        running: 0,
        finished: 0,
        cancelled: 0,
        expired: 0,
        dead: 0,
        oldest_queued_ms: None,
        tenants_waiting: 0,
    };
    let sql = format!("SELECT state, COUNT(*) FROM execution_jobs {whose} GROUP BY state");
    for row in transaction.query(&sql, &parameters)? {
        let count = row.get(1)?;
        match state(&row.get::<String>(0)?)? {
            ExecutionState::Queued => stats.queued = count,
            ExecutionState::Running => stats.running = count,
            ExecutionState::Finished => stats.finished = count,
            ExecutionState::Cancelled => stats.cancelled = count,
            ExecutionState::Expired => stats.expired = count,
            ExecutionState::Dead => stats.dead = count,
        }
    }
    let sql = format!(
        "SELECT MIN(created_ms), COUNT(DISTINCT tenant) FROM execution_jobs
        WHERE state = 'queued' {also}"
    );
    if let Some(row) = transaction.query_one(&sql, &parameters)? {
        let oldest = row.get::<Option<u64>>(0)?;
        stats.oldest_queued_ms = oldest.map(|created_ms| now_ms.saturating_sub(created_ms));
        stats.tenants_waiting = row.get(1)?;
    }
    Ok(stats)
}
