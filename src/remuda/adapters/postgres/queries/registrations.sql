-- Runners that forges were asked to register.

-- name: note_registrations
INSERT INTO registrations (runner_name, kind, tenant, repository, job_id, pod, scope, number, noted_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
    $9::timestamptz[]) n (runner_name) ORDER BY n.runner_name
ON CONFLICT (runner_name) DO UPDATE SET scope = excluded.scope, number = excluded.number;

-- name: settle_registrations
DELETE FROM registrations WHERE runner_name = ANY ($1::text[]);

-- name: unused_registrations
-- A claim that nothing was handed out for yet may be the one that this runner is for.
SELECT r.* FROM registrations r
WHERE r.noted_at < $1
    AND NOT EXISTS (
        SELECT FROM claims c WHERE c.pod = r.pod AND (c.runner_name IS NULL OR c.runner_name = r.runner_name))
    AND NOT EXISTS (
        SELECT FROM sessions s WHERE s.tenant = r.tenant AND s.runner_name = r.runner_name AND s.ended_at IS NULL)
ORDER BY r.noted_at, r.runner_name LIMIT $2;
