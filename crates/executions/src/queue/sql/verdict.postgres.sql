-- What came of it, beside the state, so that lists are filtered by it without reading results. It
-- is null for what has not finished, and for what a server of an earlier version finishes.
ALTER TABLE execution_jobs ADD COLUMN verdict TEXT COLLATE "C";
CREATE INDEX execution_jobs_verdict ON execution_jobs (tenant, verdict, id)
    WHERE verdict IS NOT NULL;
