-- Hand-overs that come at once, in one transaction: each ends as it would alone. Order of locks, as everywhere: jobs by id,
-- claims by Pod. All of them are taken first, each kind sorted, so groups of two replicas cannot wait for each other.

CREATE FUNCTION deliver_first(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_runners text[], p_locked text[],
    p_now timestamptz
) RETURNS TABLE (place bigint, job jobs, session sessions) LANGUAGE sql AS $$
    WITH asked AS (
        -- Who asks twice at once for one Pod is answered once here; the second one is told of the first.
        SELECT DISTINCT ON (a.pod) a.place, a.runner, c.* FROM unnest(p_jobs, p_pods, p_pod_uids, p_tokens, p_runners)
            WITH ORDINALITY AS a (job_id, pod, pod_uid, token, runner, place)
        JOIN claims c ON c.pod = a.pod AND c.pod_uid = a.pod_uid AND c.claimed_at = a.token
        WHERE c.delivered_at IS NULL AND c.job_id = ANY (p_locked)
            -- Tokens grow for one tenant and OS: two claims of a Pod for two tenants may have the same.
            AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = a.job_id AND (j.tenant, j.os) <> (c.tenant, c.os))
        ORDER BY a.pod, a.place
    ), run AS (
        UPDATE jobs j SET state = 'running', pod = a.pod, pod_uid = a.pod_uid, claimed_at = a.claimed_at,
            runner_name = a.runner, started_at = p_now, hold_until = NULL
        FROM asked a WHERE j.id = a.job_id AND j.state IN ('queued', 'claimed', 'running')
        RETURNING a.place, j.id, j::jobs AS job
    ), delivered AS (
        UPDATE claims c SET runner_name = a.runner, delivered_at = p_now
        FROM asked a, run r WHERE c.pod = a.pod AND r.place = a.place
    ), opened AS (
        INSERT INTO sessions AS s (pod_uid, pod, job_id, tenant, repository, pool, os, vcpus, memory_mib, runner_name, started_at)
        SELECT a.pod_uid, a.pod, a.job_id, a.tenant, a.repository, a.pool, a.os, a.vcpus, a.memory_mib, a.runner, a.claimed_at
        FROM asked a JOIN run r ON r.place = a.place
        RETURNING s.pod_uid, s::sessions AS session
    ), written AS (
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
        SELECT p_now, 'dispatch', 'running', 'handed to ' || a.runner, r.id, a.pod, (r.job).tenant, (r.job).pool
        FROM asked a JOIN run r ON r.place = a.place ORDER BY a.place
    )
    SELECT r.place, r.job, o.session FROM run r JOIN asked a ON a.place = r.place JOIN opened o ON o.pod_uid = a.pod_uid
$$;
COMMENT ON FUNCTION deliver_first(text[], text[], text[], timestamptz[], text[], text[], timestamptz) IS
    'Records the first delivery of those claims that stand and have none. Their rows and those of their jobs are locked.';

CREATE FUNCTION deliver_jobs(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_runners text[], p_withins interval[],
    p_scopes text[], p_numbers bigint[], p_now timestamptz
) RETURNS TABLE (place bigint, outcome text, job jobs, session sessions, replaced text) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    seen text[];
    done bigint[] := '{}';
    given record;
BEGIN
    seen := ARRAY (SELECT c.job_id FROM claims c WHERE c.pod = ANY (p_pods));
    PERFORM FROM jobs j WHERE j.id = ANY (seen) ORDER BY j.id FOR UPDATE;
    PERFORM FROM claims c WHERE c.pod = ANY (p_pods) ORDER BY c.pod FOR UPDATE;
    outcome := 'running';
    replaced := '';
    FOR given IN SELECT * FROM deliver_first(p_jobs, p_pods, p_pod_uids, p_tokens, p_runners, seen, p_now) LOOP
        place := given.place;
        job := given.job;
        session := given.session;
        done := done || place;
        RETURN NEXT;
    END LOOP;
    FOR place IN SELECT p FROM generate_subscripts(p_pods, 1) p WHERE p <> ALL (done) ORDER BY p LOOP
        job := NULL;
        session := NULL;
        replaced := '';
        IF EXISTS (SELECT FROM claims c WHERE c.pod = p_pods[place] AND c.job_id <> ALL (seen)) THEN
            -- It got another job before it was locked, whose row must not be waited for now.
            outcome := 'conflict';
        ELSIF EXISTS (
            SELECT FROM jobs j, claims c
            WHERE j.id = p_jobs[place] AND c.pod = p_pods[place] AND (j.tenant, j.os) <> (c.tenant, c.os)
        ) THEN
            outcome := 'gone';
        ELSE
            given := deliver_job(p_pods[place], p_pod_uids[place], p_tokens[place], p_runners[place], p_withins[place], p_now);
            outcome := given.outcome;
            job := given.job;
            session := given.session;
            replaced := given.replaced;
        END IF;
        RETURN NEXT;
    END LOOP;
    -- What the forge called the runner, whatever became of its claim: it may have to be removed by that.
    UPDATE registrations r SET scope = n.scope, number = n.number
    FROM unnest(p_runners, p_scopes, p_numbers) n (runner, scope, number)
    WHERE r.runner_name = n.runner AND n.scope IS NOT NULL;
END
$$;
COMMENT ON FUNCTION deliver_jobs(text[], text[], text[], timestamptz[], text[], interval[], text[], bigint[], timestamptz) IS
    'Records for several claims that a job config was minted for each, what the forge calls its runner, and opens the sessions.';
