-- Reads of the store of jobs.

-- name: job_by_id
SELECT * FROM jobs WHERE id = $1;

-- name: list_jobs
SELECT * FROM jobs
WHERE state = ANY ($1::text[]) AND ($2::timestamptz IS NULL OR queued_at < $2)
    AND ($3::timestamptz IS NULL OR started_at < $3)
    AND ($4::timestamptz IS NULL OR (queued_at, id) > ($4, $5::text))
ORDER BY queued_at, id LIMIT $6;

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
WHERE state = 'queued' AND pool = $1 AND tenant = $2 AND (queued_at, id) < ($3, $4);

-- name: list_decisions
SELECT * FROM decisions WHERE number > $1 AND ($2::text IS NULL OR job_id = $2) ORDER BY number LIMIT $3;

-- name: signals
-- A tenant's room goes to its oldest jobs over all pools, so that no two pools make runners for the same room.
WITH tenants AS (
    SELECT DISTINCT tenant, os FROM jobs WHERE state = 'queued' AND pool = $1
), waiting AS (
    SELECT j.pool, j.tenant, j.os, j.queued_at, j.id, j.vcpus, j.memory_mib,
        coalesce(l.vcpus - l.used_vcpus, 0) AS room_vcpus, coalesce(l.memory_mib - l.used_memory_mib, 0) AS room_memory_mib
    FROM jobs j JOIN tenants USING (tenant, os) LEFT JOIN limits l USING (tenant, os)
    WHERE j.state = 'queued' AND (j.hold_until IS NULL OR j.hold_until <= $2)
), fitting AS (
    SELECT pool, room_vcpus, room_memory_mib, sum(vcpus) OVER line AS line_vcpus, sum(memory_mib) OVER line AS line_memory_mib
    FROM waiting WHERE vcpus <= room_vcpus AND memory_mib <= room_memory_mib
    WINDOW line AS (PARTITION BY tenant, os ORDER BY queued_at, id)
), queued AS (
    SELECT count(*) AS n FROM fitting
    WHERE pool = $1 AND line_vcpus <= room_vcpus AND line_memory_mib <= room_memory_mib
), minutes AS (
    SELECT count(s.pod_uid) AS n
    FROM generate_series($2::timestamptz - interval '60 minutes', $2::timestamptz - interval '1 minute', interval '1 minute') AS m (begins)
    LEFT JOIN sessions s ON s.pool = $1 AND s.started_at < m.begins + interval '1 minute'
        AND (s.ended_at IS NULL OR s.ended_at > m.begins)
    GROUP BY m.begins
)
SELECT
    (SELECT n FROM queued) AS queued,
    (SELECT count(*) FROM waiting WHERE pool = $1) - (SELECT n FROM queued) AS withheld,
    (SELECT count(*) FROM claims WHERE pool = $1) AS claimed,
    (SELECT count(*) FROM (
        SELECT pod FROM claims WHERE pool = $1 UNION SELECT pod FROM sessions WHERE pool = $1 AND ended_at IS NULL
    ) AS pods) AS occupied,
    (SELECT coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY n), 0) FROM minutes WHERE n > 0) AS p95,
    (SELECT coalesce(greatest(extract(epoch FROM $2::timestamptz - min(queued_at)), 0), 0)::double precision
     FROM jobs WHERE state = 'queued' AND pool = $1) AS oldest_queued_s;
