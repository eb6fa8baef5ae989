-- Reads of the store of jobs.

-- name: job_by_id
SELECT * FROM jobs WHERE id = $1;

-- name: list_jobs
SELECT * FROM jobs
WHERE state = ANY ($1::text[]) AND ($2::timestamptz IS NULL OR queued_at < $2)
    AND ($3::timestamptz IS NULL OR started_at < $3)
    AND ($4::timestamptz IS NULL OR (queued_at, id) > ($4, $5::text))
ORDER BY queued_at, id LIMIT $6;

-- name: newest_jobs
SELECT * FROM jobs
WHERE (cardinality($1::text[]) = 0 OR state = ANY ($1)) AND ($2::text IS NULL OR pool = $2)
    AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR repository = $4)
    AND ($5::timestamptz IS NULL OR (queued_at, id) < ($5, $6::text))
ORDER BY queued_at DESC, id DESC LIMIT $7;

-- name: list_claims
SELECT * FROM claims
WHERE ($1::timestamptz IS NULL OR claimed_at < $1) AND (NOT $2::boolean OR delivered_at IS NULL)
ORDER BY claimed_at, pod;

-- name: claim_of_pod
SELECT * FROM claims WHERE pod = $1;

-- name: claims_of_tenant
SELECT * FROM claims WHERE tenant = $1 AND os = $2 ORDER BY claimed_at, pod;

-- name: list_sessions
SELECT * FROM sessions
WHERE (NOT $1::boolean OR ended_at IS NULL) AND ($2::timestamptz IS NULL OR started_at < $2)
ORDER BY started_at, pod_uid LIMIT $3;

-- name: session_of_pod
SELECT * FROM sessions WHERE pod = $1 ORDER BY started_at DESC, pod_uid DESC LIMIT 1;

-- name: occupied_pods
SELECT pod FROM claims UNION SELECT pod FROM sessions WHERE ended_at IS NULL;

-- name: standings
SELECT * FROM limits WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant, os;

-- name: standing
SELECT * FROM limits WHERE tenant = $1 AND os = $2;

-- name: turns
SELECT * FROM claim_turns($1, $2, $3, '{}', '{}', '{}');

-- name: jobs_ahead
SELECT count(*) FROM jobs
WHERE state = 'queued' AND pool = $1 AND tenant = $2 AND (queued_at, id) < ($3, $4)
    AND (hold_until IS NULL OR hold_until <= $5);

-- name: claimable
-- One step in the index for each tenant that waits in a pool, then as many of its jobs as fit, the oldest first.
WITH RECURSIVE heads AS (
    (SELECT pool, tenant FROM jobs WHERE state = 'queued' ORDER BY pool, tenant LIMIT 1)
    UNION ALL
    SELECT n.pool, n.tenant FROM heads h CROSS JOIN LATERAL (
        SELECT j.pool, j.tenant FROM jobs j WHERE j.state = 'queued' AND (j.pool, j.tenant) > (h.pool, h.tenant)
        ORDER BY j.pool, j.tenant LIMIT 1) n
), rooms AS (
    SELECT h.pool, l.tenant, l.os, l.vcpus - l.used_vcpus AS vcpus, l.memory_mib - l.used_memory_mib AS memory_mib
    FROM heads h JOIN limits l USING (tenant)
), fitting AS (
    SELECT r.pool, r.vcpus, r.memory_mib, sum(w.vcpus) OVER line AS line_vcpus, sum(w.memory_mib) OVER line AS line_memory_mib
    FROM rooms r CROSS JOIN LATERAL (
        SELECT j.vcpus, j.memory_mib, j.queued_at, j.id FROM jobs j
        WHERE j.state = 'queued' AND j.pool = r.pool AND j.tenant = r.tenant AND j.os = r.os
            AND (j.hold_until IS NULL OR j.hold_until <= $1) AND j.vcpus <= r.vcpus AND j.memory_mib <= r.memory_mib
        ORDER BY j.queued_at, j.id LIMIT $2) w
    WHERE r.vcpus > 0 AND r.memory_mib > 0
    WINDOW line AS (PARTITION BY r.pool, r.tenant, r.os ORDER BY w.queued_at, w.id)
)
SELECT pool, least(count(*), $2) AS n FROM fitting
WHERE line_vcpus <= vcpus AND line_memory_mib <= memory_mib GROUP BY pool ORDER BY pool;

-- name: queues
SELECT pool, count(*) AS n, min(queued_at) AS oldest FROM jobs WHERE state = 'queued' GROUP BY pool ORDER BY pool;

-- name: recent_repositories
SELECT repository FROM jobs WHERE queued_at >= $1
GROUP BY repository ORDER BY max(queued_at) DESC, repository LIMIT $2;

-- name: follow_decisions
SELECT * FROM follow_decisions($1, $2);

-- name: decisions_of_job
SELECT * FROM decisions WHERE job_id = $1 AND number > $2 ORDER BY number LIMIT $3;

-- name: settled_decisions
SELECT settled_decisions();

-- name: signals
-- A tenant's room goes to its oldest jobs over all pools, so that no two pools make runners for the same room. Of each tenant
-- that waits here no more jobs are read than could fit: each takes at least one vCPU and one MiB.
WITH RECURSIVE heads AS (
    (SELECT tenant, queued_at FROM jobs WHERE state = 'queued' AND pool = $1 ORDER BY tenant, queued_at, id LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.queued_at FROM heads h CROSS JOIN LATERAL (
        SELECT j.tenant, j.queued_at FROM jobs j WHERE j.state = 'queued' AND j.pool = $1 AND j.tenant > h.tenant
        ORDER BY j.tenant, j.queued_at, j.id LIMIT 1) n
), rooms AS (
    SELECT l.tenant, l.os, l.vcpus - l.used_vcpus AS vcpus, l.memory_mib - l.used_memory_mib AS memory_mib
    FROM heads JOIN limits l USING (tenant)
), fitting AS (
    SELECT w.pool, r.vcpus, r.memory_mib, sum(w.vcpus) OVER line AS line_vcpus, sum(w.memory_mib) OVER line AS line_memory_mib
    FROM rooms r CROSS JOIN LATERAL (
        SELECT j.pool, j.vcpus, j.memory_mib, j.queued_at, j.id FROM jobs j
        WHERE j.state = 'queued' AND j.tenant = r.tenant AND j.os = r.os
            AND (j.hold_until IS NULL OR j.hold_until <= $2) AND j.vcpus <= r.vcpus AND j.memory_mib <= r.memory_mib
        ORDER BY j.queued_at, j.id LIMIT greatest(least(r.vcpus, r.memory_mib), 0)) w
    WHERE r.vcpus > 0 AND r.memory_mib > 0
    WINDOW line AS (PARTITION BY r.tenant, r.os ORDER BY w.queued_at, w.id)
), queued AS (
    SELECT count(*) AS n FROM fitting
    WHERE pool = $1 AND line_vcpus <= vcpus AND line_memory_mib <= memory_mib
), minutes AS (
    SELECT count(s.pod_uid) AS n
    FROM generate_series($2::timestamptz - interval '60 minutes', $2::timestamptz - interval '1 minute', interval '1 minute') AS m (begins)
    LEFT JOIN sessions s ON s.pool = $1 AND s.started_at < m.begins + interval '1 minute'
        AND (s.ended_at IS NULL OR s.ended_at > m.begins)
    GROUP BY m.begins
)
SELECT
    (SELECT n FROM queued) AS queued,
    (SELECT count(*) FROM jobs WHERE state = 'queued' AND pool = $1 AND (hold_until IS NULL OR hold_until <= $2))
        - (SELECT n FROM queued) AS withheld,
    (SELECT count(*) FROM claims WHERE pool = $1) AS claimed,
    (SELECT count(*) FROM (
        SELECT pod FROM claims WHERE pool = $1 UNION SELECT pod FROM sessions WHERE pool = $1 AND ended_at IS NULL
    ) AS pods) AS occupied,
    (SELECT coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY n), 0) FROM minutes WHERE n > 0) AS p95,
    (SELECT coalesce(greatest(extract(epoch FROM $2::timestamptz - min(queued_at)), 0), 0)::double precision
     FROM heads) AS oldest_queued_s;
