-- How large a job is, its request with what a face remembers, and its result: beside the state, so
-- that they are added up without being read.
ALTER TABLE execution_jobs ADD COLUMN request_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE execution_jobs ADD COLUMN result_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE execution_jobs SET
    request_bytes = COALESCE((SELECT LENGTH(body) FROM execution_requests
        WHERE execution_requests.id = execution_jobs.id), 0) + COALESCE(OCTET_LENGTH(face), 0),
    result_bytes = COALESCE((SELECT LENGTH(body) FROM execution_results
        WHERE execution_results.id = execution_jobs.id), 0);

-- what is kept too long or too much of: it has all that is added up
DROP INDEX execution_jobs_finished;
CREATE INDEX execution_jobs_finished
    ON execution_jobs (finished_ms, id, request_bytes, result_bytes) WHERE finished_ms IS NOT NULL;
-- a tenant's turn; what waits of each tenant is added up from it alone
DROP INDEX execution_jobs_queued;
CREATE INDEX execution_jobs_queued ON execution_jobs (tenant, rank, created_ms, id)
    INCLUDE (request_bytes) WHERE state = 'queued';
