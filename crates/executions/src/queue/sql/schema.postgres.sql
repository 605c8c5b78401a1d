CREATE TABLE execution_jobs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    language TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C",
    priority BIGINT NOT NULL,
    -- created_ms - priority * ageing: lower goes first
    rank BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    deadline_ms BIGINT,
    -- the deadline that still counts: a replayed job has none
    expires_ms BIGINT,
    started_ms BIGINT,
    finished_ms BIGINT,
    attempts BIGINT NOT NULL DEFAULT 0,
    message TEXT COLLATE "C",
    face TEXT COLLATE "C",
    -- the fencing token: how often it was claimed
    token BIGINT NOT NULL DEFAULT 0,
    lease_until BIGINT,
    cancel_wanted BIGINT NOT NULL DEFAULT 0,
    idempotency_key TEXT COLLATE "C",
    fingerprint BYTEA,
    webhook BIGINT NOT NULL,
    webhook_due BIGINT,
    webhook_attempts BIGINT NOT NULL DEFAULT 0
);
-- apart, so that a change of a job's state does not write them again
CREATE TABLE execution_requests (id TEXT COLLATE "C" NOT NULL PRIMARY KEY, body BYTEA NOT NULL);
CREATE TABLE execution_results (id TEXT COLLATE "C" NOT NULL PRIMARY KEY, body BYTEA NOT NULL);
-- has a row while nothing is handed out
CREATE TABLE execution_paused (one BIGINT NOT NULL PRIMARY KEY);

-- lists of a tenant, newest first
CREATE INDEX execution_jobs_tenant ON execution_jobs (tenant, id);
-- figures of a tenant, and lists by state
CREATE INDEX execution_jobs_state ON execution_jobs (tenant, state, id);
-- a tenant's turn
CREATE INDEX execution_jobs_queued ON execution_jobs (tenant, rank, created_ms, id)
    WHERE state = 'queued';
CREATE INDEX execution_jobs_expires ON execution_jobs (expires_ms)
    WHERE state = 'queued' AND expires_ms IS NOT NULL;
CREATE INDEX execution_jobs_lease ON execution_jobs (lease_until) WHERE state = 'running';
CREATE INDEX execution_jobs_dead ON execution_jobs (id) WHERE state = 'dead';
-- what is kept too long or too much of
CREATE INDEX execution_jobs_finished ON execution_jobs (finished_ms, id)
    WHERE finished_ms IS NOT NULL;
CREATE INDEX execution_jobs_webhook ON execution_jobs (webhook_due, id)
    WHERE webhook_due IS NOT NULL;
CREATE UNIQUE INDEX execution_jobs_key ON execution_jobs (tenant, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
