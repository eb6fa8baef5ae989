-- Jobs without a forge, and what they printed.

-- name: add_local_job
-- With what it needs: that is known before it is in the queue.
WITH added AS (
    INSERT INTO local_jobs (job_id, request, script, env, timeout_s, submitted_by, submitted_at, files)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING job_id
)
INSERT INTO job_needs (job_id, need) SELECT a.job_id, n.need FROM added a, unnest($9::text[]) AS n (need);

-- name: local_job
SELECT l.*, ARRAY (SELECT n.need FROM job_needs n WHERE n.job_id = l.job_id) AS needs FROM local_jobs l WHERE l.job_id = $1;

-- name: local_job_of_pod
SELECT job_id FROM local_jobs WHERE begun_by = $1;

-- name: begin_local_job
-- That a Pod begins one job only is a constraint of the table.
UPDATE local_jobs SET started_at = coalesce(started_at, $4), begun_by = $2, pod = $3, tells_end = tells_end OR $5
WHERE job_id = $1 AND ended_at IS NULL AND (begun_by = $2 OR (begun_by IS NULL AND cancelled_at IS NULL))
RETURNING job_id;

-- name: end_local_job
WITH met AS (DELETE FROM job_needs WHERE job_id = $1)
UPDATE local_jobs SET ended_at = $2, conclusion = $3, exit_code = $4, reason = $5, files_note = $6, more_until = $7,
    script = NULL, env = NULL
WHERE job_id = $1 AND ended_at IS NULL;

-- name: told_local_job
UPDATE local_jobs SET more_until = NULL, files_note = coalesce(files_note, $2) WHERE job_id = $1 AND more_until IS NOT NULL;

-- name: cancel_local_job
UPDATE local_jobs SET cancelled_at = coalesce(cancelled_at, $2) WHERE job_id = $1 AND ended_at IS NULL RETURNING job_id;

-- name: lock_local_log
SELECT log_bytes, log_cut FROM local_jobs WHERE job_id = $1 FOR UPDATE;

-- name: append_local_log
INSERT INTO local_logs (job_id, begins, data) VALUES ($1, $2, $3);

-- name: grow_local_log
UPDATE local_jobs SET log_bytes = $2, log_cut = $3 WHERE job_id = $1;

-- name: see_local_log
SELECT log_bytes, ended_at IS NOT NULL AS over FROM local_jobs WHERE job_id = $1;

-- name: read_local_log
-- From the piece that the offset falls into: pieces follow each other without a gap.
SELECT begins, data FROM local_logs
WHERE job_id = $1 AND begins < $3 AND begins >= coalesce(
    (SELECT max(p.begins) FROM local_logs p WHERE p.job_id = $1 AND p.begins <= $2), 0)
ORDER BY begins;

-- name: unsettled_local_jobs
(
    SELECT l.job_id, l.submitted_at FROM local_jobs l
    LEFT JOIN jobs j ON j.id = l.job_id
    LEFT JOIN completions c ON c.job_id = l.job_id
    WHERE l.ended_at IS NULL AND (
        c.job_id IS NOT NULL
        OR (j.id IS NULL AND l.submitted_at < $1)
        OR (j.state = 'queued' AND (l.begun_by IS NOT NULL OR l.cancelled_at IS NOT NULL)))
    UNION ALL
    SELECT l.job_id, l.submitted_at FROM jobs j
    JOIN local_jobs l ON l.job_id = j.id
    WHERE j.kind = 'local' AND j.state IN ('queued', 'claimed', 'running') AND l.ended_at IS NOT NULL
)
ORDER BY submitted_at, job_id LIMIT $2;

-- name: forget_local_jobs
DELETE FROM local_jobs WHERE job_id IN (
    SELECT job_id FROM local_jobs WHERE ended_at < $1 ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED);
