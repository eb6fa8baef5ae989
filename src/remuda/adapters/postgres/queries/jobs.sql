-- The life of jobs. Order of locks: lock_job, lock_jobs, claims by pod, limits.

-- name: lock_job
SELECT pg_advisory_xact_lock(1, hashtext($1));

-- name: lock_jobs
SELECT * FROM jobs WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE;

-- name: claim_jobs
SELECT c.place, c.outcome, (c.job).* FROM claim_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9) c ORDER BY c.place;

-- name: see_claim_of_pod
SELECT job_id FROM claims WHERE pod = $1;

-- name: lock_claim_of_pod
SELECT * FROM claims WHERE pod = $1 FOR UPDATE;

-- name: see_claim_of_runner
SELECT job_id FROM claims WHERE tenant = $1 AND runner_name = $2;

-- name: lock_claims_of_execution
SELECT * FROM claims WHERE (tenant = $1 AND runner_name = $2) OR job_id = $3 ORDER BY pod FOR UPDATE;

-- name: lock_claim_on_job
SELECT * FROM claims WHERE job_id = $1 FOR UPDATE;

-- name: insert_job
INSERT INTO jobs (id, kind, tenant, repository, pool, os, vcpus, memory_mib, label, labels, name, workflow, run_id,
    run_attempt, branch, commit, url, fork, queued_at, state, pod, pod_uid, claimed_at, runner_name, started_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
RETURNING *;

-- name: deliver_claim
UPDATE claims SET runner_name = $3, delivered_at = coalesce(delivered_at, $4) WHERE pod = $1 AND claimed_at = $2;

-- name: delete_claim
DELETE FROM claims WHERE pod = $1 AND claimed_at = $2;

-- name: rekey_claim
UPDATE claims SET job_id = $3, repository = coalesce($4, repository), executed_at = $5 WHERE pod = $1 AND claimed_at = $2;

-- name: run_job
UPDATE jobs SET state = 'running', pod = $2, pod_uid = $3, claimed_at = $4, runner_name = $5, started_at = $6, hold_until = NULL
WHERE id = $1 AND state IN ('queued', 'claimed', 'running') RETURNING *;

-- name: bind_job
UPDATE jobs SET state = 'claimed', pod = $2, pod_uid = $3, claimed_at = $4, runner_name = NULL, started_at = NULL
WHERE id = $1 AND state IN ('queued', 'claimed', 'running');

-- name: requeue_job
UPDATE jobs SET state = 'queued', pod = NULL, pod_uid = NULL, claimed_at = NULL, runner_name = NULL, started_at = NULL,
    hold_until = $3
WHERE id = $1 AND state IN ('claimed', 'running') AND claimed_at = $2 RETURNING id;

-- name: end_job
UPDATE jobs SET state = $2, conclusion = $3, ended_at = $4, runner_name = coalesce($5, runner_name), hold_until = NULL
WHERE id = $1 AND state IN ('queued', 'claimed', 'running');

-- name: insert_completion
INSERT INTO completions (job_id, conclusion, ended_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING job_id;

-- name: completions_of
SELECT * FROM completions WHERE job_id = ANY ($1::text[]);

-- name: insert_session
INSERT INTO sessions (pod_uid, pod, job_id, tenant, repository, pool, os, vcpus, memory_mib, runner_name, started_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING *;

-- name: rename_session
UPDATE sessions SET runner_name = $2 WHERE pod_uid = $1 RETURNING *;

-- name: session_by_uid
SELECT * FROM sessions WHERE pod_uid = $1;

-- name: void_session
DELETE FROM sessions WHERE pod_uid = $1 AND executed_job_id IS NULL AND ended_at IS NULL;

-- name: attribute_session
-- The open one first: a runner's name is fresh for each Pod, but the tenants choose names too.
UPDATE sessions SET executed_job_id = coalesce(executed_job_id, $3),
    job_started_at = coalesce(job_started_at, $4), job_ended_at = coalesce(job_ended_at, $5)
WHERE pod_uid = (
    SELECT pod_uid FROM sessions WHERE tenant = $1 AND runner_name = $2
    ORDER BY ended_at IS NULL DESC, started_at DESC, pod_uid LIMIT 1
) AND (executed_job_id IS NULL OR executed_job_id = $3);

-- name: lock_session_of_pod
SELECT * FROM sessions WHERE pod = $1 AND ($2::text = '' OR pod_uid = $2)
ORDER BY ended_at IS NULL DESC, started_at DESC, pod_uid LIMIT 1 FOR UPDATE;

-- name: end_session
UPDATE sessions SET ended_at = greatest(started_at, least(ended_at, $2)), exit_code = coalesce(exit_code, $3),
    end_reason = coalesce(end_reason, $4)
WHERE pod_uid = $1 RETURNING *;

-- name: jobs_on_pod
SELECT * FROM jobs WHERE pod = $1 AND ($2::text = '' OR pod_uid = $2) AND state = 'running' ORDER BY queued_at, id;

-- name: pods_back
UPDATE claims c SET pod_missing_since = NULL
FROM unnest($1::text[], $2::timestamptz[]) AS seen (pod, claimed_at)
WHERE c.pod = seen.pod AND c.claimed_at = seen.claimed_at AND c.pod_missing_since IS NOT NULL
RETURNING c.*;

-- name: pods_missing
UPDATE claims c SET pod_missing_since = $3
FROM unnest($1::text[], $2::timestamptz[]) AS seen (pod, claimed_at)
WHERE c.pod = seen.pod AND c.claimed_at = seen.claimed_at AND c.pod_missing_since IS NULL
RETURNING c.*;

-- name: ensure_limits
INSERT INTO limits (tenant, os, vcpus, memory_mib) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING tenant;

-- name: set_limits
INSERT INTO limits (tenant, os, vcpus, memory_mib) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, os) DO UPDATE SET vcpus = excluded.vcpus, memory_mib = excluded.memory_mib;

-- name: wake_tenant
-- More room for a tenant: the pools in which it waits have work again.
SELECT pg_notify('remuda_jobs', waiting.pool) FROM (
    SELECT DISTINCT pool FROM jobs WHERE state = 'queued' AND tenant = $1 AND os = $2
) AS waiting;

-- name: audit
INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: forget_jobs
-- Not one that a Pod holds: its claim says what the Pod was for.
DELETE FROM jobs WHERE id IN (
    SELECT j.id FROM jobs j WHERE j.state IN ('completed', 'cancelled') AND j.ended_at < $1
        AND NOT EXISTS (SELECT FROM claims c WHERE c.job_id = j.id)
    ORDER BY j.ended_at, j.id LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING id;

-- name: forget_completions
-- Only after the job itself: until then a late message must not bring it back.
DELETE FROM completions WHERE job_id IN (
    SELECT e.job_id FROM completions e WHERE e.ended_at < $1
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = e.job_id)
        AND NOT EXISTS (SELECT FROM claims c WHERE c.job_id = e.job_id)
    ORDER BY e.ended_at, e.job_id LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING job_id;

-- name: forget_sessions
DELETE FROM sessions WHERE pod_uid IN (
    SELECT s.pod_uid FROM sessions s WHERE s.ended_at < $1 ORDER BY s.ended_at, s.pod_uid LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING pod_uid;

-- name: forget_decisions
-- The first by number are the oldest, or nearly. What this server's own clock finds too young is refused by the table.
DELETE FROM decisions WHERE number IN (
    SELECT d.number FROM (SELECT number, at FROM decisions ORDER BY number LIMIT $2) d
    WHERE d.at < $1 AND d.at <= now() - interval '30 days'
) RETURNING number;
