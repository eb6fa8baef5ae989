-- Archives that go to runners and come back.

-- name: lock_local_file
SELECT * FROM local_files WHERE file_id = $1 FOR UPDATE;

-- name: local_file
SELECT * FROM local_files WHERE file_id = $1;

-- name: local_file_of_job
SELECT * FROM local_files WHERE job_id = $1 AND way = $2;

-- name: local_files_total
SELECT coalesce(sum(size_bytes), 0)::bigint FROM local_files;

-- name: add_local_file
INSERT INTO local_files (file_id, way, owner, job_id, size_bytes, touched_at)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING;

-- name: append_local_file
INSERT INTO local_file_pieces (file_id, begins, data) VALUES ($1, $2, $3);

-- name: grow_local_file
UPDATE local_files SET kept_bytes = $2, touched_at = $3 WHERE file_id = $1;

-- name: take_local_file
UPDATE local_files SET job_id = $3
WHERE file_id = $1 AND owner = $2 AND way = 'in' AND kept_bytes = size_bytes AND (job_id IS NULL OR job_id = $3)
RETURNING file_id;

-- name: fetched_local_file
UPDATE local_files SET fetched_by = $2 WHERE file_id = $1 AND fetched_by IS DISTINCT FROM $2;

-- name: given_local_file
UPDATE local_files SET fetched_at = $2 WHERE file_id = $1 AND way = 'out';

-- name: evict_local_files
-- As many as make room, the first that was fetched first; none where all of them make too little. Others who do the same
-- now have theirs.
WITH old AS MATERIALIZED (
    SELECT f.file_id, f.size_bytes, f.fetched_at FROM local_files f JOIN local_jobs l ON l.job_id = f.job_id
    WHERE f.way = 'out' AND f.fetched_at < $1 AND l.ended_at IS NOT NULL
    ORDER BY f.fetched_at, f.file_id FOR UPDATE OF f SKIP LOCKED
), line AS (
    SELECT o.file_id, sum(o.size_bytes) OVER (ORDER BY o.fetched_at, o.file_id) - o.size_bytes AS freed,
        sum(o.size_bytes) OVER () AS at_most
    FROM old o
)
DELETE FROM local_files WHERE file_id IN (SELECT l.file_id FROM line l WHERE l.freed < $2 AND l.at_most >= $2);

-- name: read_local_file
-- From the piece that the offset falls into: pieces follow each other without a gap.
SELECT begins, data FROM local_file_pieces
WHERE file_id = $1 AND begins < $3 AND begins >= coalesce(
    (SELECT max(p.begins) FROM local_file_pieces p WHERE p.file_id = $1 AND p.begins <= $2), 0)
ORDER BY begins;

-- name: forget_local_files
DELETE FROM local_files WHERE file_id IN (
    SELECT f.file_id FROM local_files f LEFT JOIN local_jobs l ON l.job_id = f.job_id
    WHERE (f.job_id IS NULL AND f.touched_at < $1)
        OR (f.way = 'in' AND l.ended_at IS NOT NULL)
        OR (f.way = 'out' AND (l.ended_at < $2 OR (l.ended_at IS NOT NULL AND f.fetched_at < $3)))
    ORDER BY f.touched_at, f.file_id LIMIT $4 FOR UPDATE OF f SKIP LOCKED);
