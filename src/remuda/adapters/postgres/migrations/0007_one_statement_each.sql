-- The steps of a job's life that come often, each in one round trip. Order of locks, as everywhere: the job's advisory lock,
-- jobs by id, claims by Pod, limits. Where a claim got another job between the first look and the lock, the answer is
-- 'conflict': nothing was changed, and the caller tries again with all locks given back.
--
-- A plan that is kept may be older than the rows, so they follow the indexes also if it was made while there were none.

CREATE FUNCTION run_job(p_job_id text, p_claim claims, p_runner text, p_started_at timestamptz) RETURNS jobs
LANGUAGE plpgsql AS $$
DECLARE
    done jobs;
BEGIN
    UPDATE jobs SET state = 'running', pod = p_claim.pod, pod_uid = p_claim.pod_uid, claimed_at = p_claim.claimed_at,
        runner_name = p_runner, started_at = p_started_at, hold_until = NULL
    WHERE id = p_job_id AND state IN ('queued', 'claimed', 'running') RETURNING * INTO STRICT done;
    RETURN done;
END
$$;
COMMENT ON FUNCTION run_job(text, claims, text, timestamptz) IS 'Binds a job to the claim and the runner that run it.';

CREATE FUNCTION requeue_job(p_job_id text, p_token timestamptz, p_hold_until timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs SET state = 'queued', pod = NULL, pod_uid = NULL, claimed_at = NULL, runner_name = NULL, started_at = NULL,
        hold_until = p_hold_until
    WHERE id = p_job_id AND state IN ('claimed', 'running') AND claimed_at = p_token;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION requeue_job(text, timestamptz, timestamptz) IS
    'Puts a job back into its old place if it is still bound to this claim.';

CREATE FUNCTION enqueue_job(
    p_job jobs, p_by text, p_now timestamptz, OUT outcome text, OUT job jobs, OUT ended completions
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held claims;
BEGIN
    -- Messages about one job come one after the other, also while it has no row.
    PERFORM pg_advisory_xact_lock(1, hashtext(p_job.id));
    SELECT * INTO ended FROM completions WHERE job_id = p_job.id;
    IF FOUND THEN
        outcome := 'over';
        RETURN;
    END IF;
    SELECT * INTO job FROM jobs WHERE id = p_job.id;
    IF FOUND THEN
        outcome := 'known';
        RETURN;
    END IF;
    -- The forge may have given it to a runner of ours before it told us of it.
    SELECT * INTO held FROM claims WHERE job_id = p_job.id FOR UPDATE;
    job := p_job;
    job.attempts := 0;
    job.state := 'queued';
    IF held.pod IS NOT NULL THEN
        job.state := 'running';
        job.pod := held.pod;
        job.pod_uid := held.pod_uid;
        job.claimed_at := held.claimed_at;
        job.runner_name := held.runner_name;
        job.started_at := held.executed_at;
    END IF;
    INSERT INTO jobs SELECT job.*;
    INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES (p_now, p_by, 'enqueued',
        CASE WHEN held.pod IS NULL THEN 'the forge announced it' ELSE 'a runner of ours executes it' END,
        job.id, coalesce(held.pod, ''), job.tenant, job.pool);
    outcome := 'enqueued';
END
$$;
COMMENT ON FUNCTION enqueue_job(jobs, text, timestamptz) IS 'Takes a job in, once, however often the forge tells of it.';

CREATE FUNCTION deliver_job(
    p_pod text, p_pod_uid text, p_token timestamptz, p_runner text, p_within interval, p_now timestamptz,
    OUT outcome text, OUT job jobs, OUT session sessions, OUT replaced text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    seen text;
    live claims;
BEGIN
    replaced := '';
    SELECT c.job_id INTO seen FROM claims c WHERE c.pod = p_pod;
    SELECT * INTO job FROM jobs j WHERE j.id = seen FOR UPDATE;
    SELECT * INTO live FROM claims c WHERE c.pod = p_pod FOR UPDATE;
    outcome := CASE
        WHEN live.job_id <> seen OR (live.job_id IS NOT NULL AND seen IS NULL) THEN 'conflict'
        WHEN live.pod IS NULL OR live.pod_uid <> p_pod_uid OR live.claimed_at <> p_token THEN 'gone'
        WHEN job.id IS NULL OR job.state IN ('completed', 'cancelled') THEN 'over'
        WHEN live.delivered_at IS NULL THEN 'running'
        WHEN p_within IS NULL AND live.runner_name <> p_runner THEN 'delivered'
        WHEN p_within IS NOT NULL AND live.executed_at IS NOT NULL THEN 'executing'
        WHEN p_within IS NOT NULL AND p_now - live.delivered_at > p_within THEN 'too_late'
        ELSE 'running'
    END;
    IF outcome <> 'running' THEN
        RETURN;
    END IF;

    IF live.delivered_at IS NULL THEN
        UPDATE claims SET runner_name = p_runner, delivered_at = p_now WHERE pod = p_pod;
        job := run_job(job.id, live, p_runner, p_now);
        INSERT INTO sessions (pod_uid, pod, job_id, tenant, repository, pool, os, vcpus, memory_mib, runner_name, started_at)
        VALUES (live.pod_uid, live.pod, live.job_id, live.tenant, live.repository, live.pool, live.os, live.vcpus,
            live.memory_mib, p_runner, live.claimed_at) RETURNING * INTO session;
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
        VALUES (p_now, 'dispatch', 'running', 'handed to ' || p_runner, job.id, p_pod, job.tenant, job.pool);
    ELSIF p_within IS NULL THEN
        -- The same call again: the first one's answer may have been lost on its way.
        SELECT * INTO session FROM sessions s WHERE s.pod_uid = p_pod_uid;
        IF NOT FOUND THEN
            outcome := 'delivered';
        END IF;
    ELSE
        replaced := live.runner_name;
        UPDATE claims SET runner_name = p_runner WHERE pod = p_pod;
        job := run_job(job.id, live, p_runner, live.delivered_at);
        UPDATE sessions SET runner_name = p_runner WHERE pod_uid = p_pod_uid RETURNING * INTO STRICT session;
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
        VALUES (p_now, 'dispatch', 'delivered_again', format('the first answer was lost: %s instead of %s', p_runner, replaced),
            job.id, p_pod, job.tenant, job.pool);
    END IF;
END
$$;
COMMENT ON FUNCTION deliver_job(text, text, timestamptz, text, interval, timestamptz) IS
    'Records that a job config was minted for a claim and opens the session; with a window, also for a second time.';

CREATE FUNCTION release_claim(
    p_job_id text, p_pod text, p_pod_uid text, p_token timestamptz, p_by text, p_why text, p_undelivered boolean,
    p_runner text, p_hold_until timestamptz, p_missing_since timestamptz, p_now timestamptz,
    OUT outcome text, OUT job_id text, OUT requeued boolean
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    seen text;
    live claims;
    job jobs;
BEGIN
    requeued := false;
    SELECT c.job_id INTO seen FROM claims c WHERE c.pod = p_pod;
    PERFORM FROM jobs j WHERE j.id IN (p_job_id, seen) ORDER BY j.id FOR UPDATE;
    SELECT * INTO live FROM claims c WHERE c.pod = p_pod FOR UPDATE;
    IF live.job_id <> p_job_id AND live.job_id IS DISTINCT FROM seen THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    SELECT * INTO job FROM jobs j WHERE j.id = p_job_id;
    -- Tokens grow for one tenant and OS: two claims of a Pod for two tenants may have the same.
    IF live.pod IS NULL OR live.pod_uid <> p_pod_uid OR live.claimed_at <> p_token
        OR (job.tenant, job.os) <> (live.tenant, live.os) THEN
        -- The claim ended with its Pod, while its job may still count as running.
        live := NULL;
        job_id := p_job_id;
        outcome := CASE
            WHEN job.pod IS NULL OR job.pod <> p_pod OR job.pod_uid <> p_pod_uid OR job.claimed_at <> p_token THEN 'gone'
            WHEN p_runner <> coalesce(job.runner_name, '') THEN 'delivered'
            WHEN NOT requeue_job(p_job_id, p_token, p_hold_until) THEN 'over'
            ELSE 'released'
        END;
        requeued := outcome = 'released';
    ELSE
        job_id := live.job_id;
        outcome := CASE
            WHEN p_undelivered AND live.executed_at IS NOT NULL THEN 'executing'
            WHEN p_runner <> coalesce(live.runner_name, '') THEN 'delivered'
            WHEN NOT p_undelivered AND live.job_id <> p_job_id THEN 'moved'
            WHEN p_missing_since IS DISTINCT FROM live.pod_missing_since AND p_missing_since IS NOT NULL THEN 'seen'
            ELSE 'released'
        END;
        IF outcome = 'released' THEN
            DELETE FROM claims WHERE pod = p_pod;
            requeued := requeue_job(live.job_id, p_token, p_hold_until);
        END IF;
    END IF;
    IF outcome = 'released' THEN
        IF p_undelivered THEN
            DELETE FROM sessions WHERE pod_uid = p_pod_uid AND executed_job_id IS NULL AND ended_at IS NULL;
        END IF;
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES (
            p_now, p_by, 'released', p_why, job_id, p_pod, coalesce(live.tenant, job.tenant), coalesce(live.pool, job.pool));
    END IF;
END
$$;
COMMENT ON FUNCTION release_claim(
    text, text, text, timestamptz, text, text, boolean, text, timestamptz, timestamptz, timestamptz
) IS 'Ends a claim; its job goes back to its old place unless it is over.';

CREATE FUNCTION attribute_job(
    p_tenant text, p_job_id text, p_runner text, p_started_at timestamptz, p_by text, p_now timestamptz,
    OUT result text, OUT live claims, OUT requeued text
) LANGUAGE plpgsql AS $$
DECLARE
    seen text;
    other claims;
    executed jobs;
    first jobs;
BEGIN
    requeued := '';
    SELECT c.job_id INTO seen FROM claims c WHERE c.tenant = p_tenant AND c.runner_name = p_runner;
    PERFORM FROM jobs j WHERE j.id IN (p_job_id, seen) ORDER BY j.id FOR UPDATE;
    PERFORM FROM claims c WHERE (c.tenant = p_tenant AND c.runner_name = p_runner) OR c.job_id = p_job_id
    ORDER BY c.pod FOR UPDATE;
    SELECT * INTO live FROM claims c WHERE c.tenant = p_tenant AND c.runner_name = p_runner;
    SELECT * INTO executed FROM jobs j WHERE j.id = p_job_id;
    result := CASE
        WHEN live.pod IS NULL OR executed.tenant <> p_tenant THEN 'unknown_runner'
        WHEN live.job_id <> p_job_id AND live.job_id IS DISTINCT FROM seen THEN 'conflict'
        WHEN live.job_id = p_job_id THEN 'matched'
        WHEN live.executed_at IS NOT NULL THEN 'contradicted'
        ELSE 'moved'
    END;
    IF result = 'unknown_runner' THEN
        live := NULL;
    ELSIF result = 'matched' THEN
        UPDATE claims SET executed_at = p_started_at WHERE pod = live.pod AND executed_at IS NULL;
    END IF;
    IF result <> 'moved' THEN
        RETURN;
    END IF;

    SELECT * INTO first FROM jobs j WHERE j.id = live.job_id AND j.state NOT IN ('completed', 'cancelled');
    SELECT * INTO other FROM claims c WHERE c.job_id = p_job_id;
    -- No job has the id that a claim is parked under: ids begin with a host.
    UPDATE claims SET job_id = '~', executed_at = NULL WHERE pod = other.pod;
    UPDATE claims SET job_id = p_job_id, executed_at = p_started_at, repository = CASE
        WHEN executed.state NOT IN ('completed', 'cancelled') THEN executed.repository ELSE repository END
    WHERE pod = live.pod;
    UPDATE claims SET job_id = live.job_id, repository = coalesce(first.repository, repository) WHERE pod = other.pod;
    -- The first job takes over the other's Pod if there is one, else it goes back to its old place.
    IF first.id IS NOT NULL AND other.pod IS NULL THEN
        requeued := CASE WHEN requeue_job(first.id, live.claimed_at, NULL) THEN first.id ELSE '' END;
    ELSIF first.id IS NOT NULL AND other.delivered_at IS NULL THEN
        UPDATE jobs SET state = 'claimed', pod = other.pod, pod_uid = other.pod_uid, claimed_at = other.claimed_at,
            runner_name = NULL, started_at = NULL
        WHERE id = first.id;
    ELSIF first.id IS NOT NULL THEN
        PERFORM run_job(first.id, other, other.runner_name, other.delivered_at);
    END IF;
    IF first.id IS NOT NULL AND (requeued <> '' OR other.pod IS NOT NULL) THEN
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES (p_now, p_by,
            CASE requeued WHEN '' THEN 'moved' ELSE 'requeued' END, 'its runner executes ' || p_job_id, first.id,
            CASE requeued WHEN '' THEN other.pod ELSE live.pod END, first.tenant, first.pool);
    END IF;
    IF executed.state NOT IN ('completed', 'cancelled') THEN
        PERFORM run_job(p_job_id, live, p_runner, p_started_at);
    END IF;
END
$$;
COMMENT ON FUNCTION attribute_job(text, text, text, timestamptz, text, timestamptz) IS
    'Gives a runner''s claim the job that it executes, and returns the claim as it was. The job''s advisory lock is held.';

CREATE FUNCTION attribute_session(
    p_tenant text, p_job_id text, p_runner text, p_started_at timestamptz, p_ended_at timestamptz
) RETURNS void LANGUAGE sql AS $$
    -- The open one first: a runner's name is fresh for each Pod, but the tenants choose names too. Half a window is none.
    UPDATE sessions SET executed_job_id = coalesce(executed_job_id, p_job_id),
        job_started_at = CASE WHEN p_started_at <= p_ended_at THEN coalesce(job_started_at, p_started_at) ELSE job_started_at END,
        job_ended_at = CASE WHEN p_started_at <= p_ended_at THEN coalesce(job_ended_at, p_ended_at) ELSE job_ended_at END
    WHERE pod_uid = (
        SELECT s.pod_uid FROM sessions s WHERE s.tenant = p_tenant AND s.runner_name = p_runner
        ORDER BY s.ended_at IS NULL DESC, s.started_at DESC, s.pod_uid LIMIT 1
    ) AND (executed_job_id IS NULL OR executed_job_id = p_job_id)
$$;
COMMENT ON FUNCTION attribute_session(text, text, text, timestamptz, timestamptz) IS
    'Writes down what a runner ran, and the forge''s own times of it.';

CREATE FUNCTION execute_job(
    p_tenant text, p_job_id text, p_runner text, p_started_at timestamptz, p_by text, p_now timestamptz
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    done record;
BEGIN
    PERFORM pg_advisory_xact_lock(1, hashtext(p_job_id));
    IF EXISTS (SELECT FROM completions WHERE job_id = p_job_id) THEN
        RETURN 'over';
    END IF;
    done := attribute_job(p_tenant, p_job_id, p_runner, p_started_at, p_by, p_now);
    IF done.result NOT IN ('conflict', 'contradicted') THEN
        PERFORM attribute_session(p_tenant, p_job_id, p_runner, NULL, NULL);
    END IF;
    IF done.result IN ('matched', 'moved') AND (done.live).executed_at IS NULL THEN
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES (p_now, p_by, 'executing', CASE done.result
            WHEN 'matched' THEN 'the forge gave it to its runner' ELSE 'its runner was for ' || (done.live).job_id END,
            p_job_id, (done.live).pod, (done.live).tenant, (done.live).pool);
    END IF;
    RETURN done.result;
END
$$;
COMMENT ON FUNCTION execute_job(text, text, text, timestamptz, text, timestamptz) IS
    'Binds a job to the runner that executes it, as the forge says.';

CREATE FUNCTION complete_job(
    p_job_id text, p_tenant text, p_conclusion text, p_started_at timestamptz, p_ended_at timestamptz, p_runner text,
    p_ends_claim boolean, p_by text, p_why text, p_now timestamptz,
    OUT outcome text, OUT news boolean, OUT freed claims, OUT requeued text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    done record;
    job jobs;
BEGIN
    news := false;
    requeued := '';
    outcome := 'unknown_runner';
    PERFORM pg_advisory_xact_lock(1, hashtext(p_job_id));
    IF p_runner <> '' THEN
        done := attribute_job(p_tenant, p_job_id, p_runner, coalesce(p_started_at, p_ended_at), p_by, p_now);
        outcome := done.result;
        requeued := done.requeued;
    END IF;
    SELECT * INTO job FROM jobs j WHERE j.id = p_job_id FOR UPDATE;
    IF outcome = 'conflict' OR job.tenant <> p_tenant THEN
        RETURN;
    END IF;
    INSERT INTO completions (job_id, conclusion, ended_at) VALUES (p_job_id, p_conclusion, p_ended_at) ON CONFLICT DO NOTHING;
    news := FOUND;
    IF p_runner <> '' AND outcome <> 'contradicted' THEN
        PERFORM attribute_session(p_tenant, p_job_id, p_runner, p_started_at, p_ended_at);
    END IF;
    UPDATE jobs SET state = CASE p_conclusion WHEN 'cancelled' THEN 'cancelled' ELSE 'completed' END, conclusion = p_conclusion,
        ended_at = p_ended_at, runner_name = coalesce(nullif(p_runner, ''), runner_name), hold_until = NULL
    WHERE id = p_job_id AND state IN ('queued', 'claimed', 'running');
    IF outcome IN ('matched', 'moved') THEN
        freed := done.live;
    ELSIF p_ends_claim THEN
        SELECT * INTO freed FROM claims c WHERE c.job_id = p_job_id AND c.tenant = p_tenant FOR UPDATE;
    END IF;
    DELETE FROM claims WHERE pod = freed.pod;
    IF news OR freed.pod IS NOT NULL THEN
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) VALUES (p_now, p_by, 'completed',
            coalesce(nullif(p_why, ''), 'it ended: ' || p_conclusion), p_job_id, coalesce(freed.pod, job.pod, ''),
            p_tenant, coalesce(job.pool, ''));
    END IF;
END
$$;
COMMENT ON FUNCTION complete_job(
    text, text, text, timestamptz, timestamptz, text, boolean, text, text, timestamptz
) IS 'Ends a job for good, also one that was never heard of, and frees the runner that executed it.';
