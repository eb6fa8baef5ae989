-- remuda: no transaction
-- What is over is found by its age, so that it can be forgotten in small pieces.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_over ON jobs (ended_at, id) WHERE state IN ('completed', 'cancelled');
CREATE INDEX CONCURRENTLY IF NOT EXISTS completions_age ON completions (ended_at, job_id);
CREATE INDEX CONCURRENTLY IF NOT EXISTS sessions_age ON sessions (ended_at, pod_uid) WHERE ended_at IS NOT NULL;
