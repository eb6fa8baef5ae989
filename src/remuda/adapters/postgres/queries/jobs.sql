-- The life of jobs. Order of locks: lock_job, lock_jobs, claims by pod, limits.

-- name: lock_jobs
SELECT * FROM jobs WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE;

-- name: claim_jobs
SELECT c.place, c.outcome, (c.job).* FROM claim_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) c ORDER BY c.place;

-- name: enqueue_job
SELECT * FROM enqueue_job(ROW($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::bigint, $9::text,
    $10::text[], $11::text, $12::text, $13::bigint, $14::bigint, $15::text, $16::text, $17::text, $18::boolean,
    $19::timestamptz, 'queued', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::jobs, $20, $21);

-- name: deliver_jobs
SELECT * FROM deliver_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) d ORDER BY d.place;

-- name: release_claim
SELECT * FROM release_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: execute_job
SELECT execute_job($1, $2, $3, $4, $5, $6) AS outcome;

-- name: complete_job
SELECT * FROM complete_job($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: see_claim_of_pod
SELECT job_id FROM claims WHERE pod = $1;

-- name: lock_claim_of_pod
SELECT * FROM claims WHERE pod = $1 FOR UPDATE;

-- name: disown_claim
UPDATE claims SET job_id = $3 WHERE pod = $1 AND claimed_at = $2;

-- name: delete_claim
DELETE FROM claims WHERE pod = $1 AND claimed_at = $2;

-- name: requeue_job
SELECT requeue_job($1, $2, $3);

-- name: completions_of
SELECT * FROM completions WHERE job_id = ANY ($1::text[]);

-- name: lock_session_of_pod
SELECT * FROM sessions WHERE pod = $1 AND ($2::text = '' OR pod_uid = $2)
ORDER BY ended_at IS NULL DESC, started_at DESC, pod_uid LIMIT 1 FOR UPDATE;

-- name: end_session
UPDATE sessions SET ended_at = greatest(started_at, least(ended_at, $2)), exit_code = coalesce(exit_code, $3),
    end_reason = coalesce(end_reason, $4)
WHERE pod_uid = $1 RETURNING *;

-- name: jobs_on_pod
SELECT * FROM jobs WHERE pod = $1 AND ($2::text = '' OR pod_uid = $2) AND state = 'running' ORDER BY queued_at, id;

-- name: lock_claims_of_pods
SELECT FROM claims WHERE pod = ANY ($1::text[]) ORDER BY pod FOR UPDATE;

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
