-- A claim writes down the runner that it is for. Until now that was a statement of its own between the claim and the mint,
-- with its own commit to wait for. The rule stays: a runner's name is durable before the forge is asked to register it.
--
-- Replicas of the version before go on as they did: they call claim_jobs without names, and note their runners themselves.

CREATE FUNCTION claim_write(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_runners text[], p_now timestamptz
) RETURNS SETOF jobs LANGUAGE sql AS $$
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_jobs, p_pods, p_pod_uids, p_tokens, p_runners) AS a (job_id, pod, pod_uid, token, runner)
        WHERE a.job_id IS NOT NULL -- there may be more Pods than jobs
    ), locked AS MATERIALIZED (
        -- Only a change of this very job can hold its row: other claims of the tenant wait for the limit.
        SELECT j.id, j.kind, j.tenant, j.repository, j.pool, j.os, j.vcpus, j.memory_mib FROM jobs j
        WHERE j.id = ANY (p_jobs) AND j.state = 'queued' FOR UPDATE SKIP LOCKED
    ), inserted AS (
        INSERT INTO claims (job_id, pod, pod_uid, claimed_at, tenant, repository, pool, os, vcpus, memory_mib)
        SELECT l.id, a.pod, a.pod_uid, a.token, l.tenant, l.repository, l.pool, l.os, l.vcpus, l.memory_mib
        FROM locked l JOIN asked a ON a.job_id = l.id
        ON CONFLICT DO NOTHING
        RETURNING job_id, pod, pod_uid, claimed_at, tenant, pool, os, vcpus, memory_mib
    ), counted AS (
        UPDATE limits l SET used_vcpus = l.used_vcpus + s.vcpus, used_memory_mib = l.used_memory_mib + s.memory_mib,
            last_claimed_at = s.token
        FROM (
            SELECT tenant, os, sum(vcpus)::bigint AS vcpus, sum(memory_mib)::bigint AS memory_mib, max(claimed_at) AS token
            FROM inserted GROUP BY tenant, os
        ) s WHERE l.tenant = s.tenant AND l.os = s.os
    ), told AS (
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
        SELECT p_now, 'dispatch', 'claimed', 'its turn came and the Pod was warm', i.job_id, i.pod, i.tenant, i.pool
        FROM inserted i ORDER BY i.claimed_at
    ), noted AS (
        -- Sorted, as every statement that writes several of them: two could wait for each other.
        INSERT INTO registrations (runner_name, kind, tenant, repository, job_id, pod, scope, noted_at)
        SELECT a.runner, l.kind, l.tenant, l.repository, l.id, a.pod, '', p_now
        FROM inserted i JOIN asked a ON a.job_id = i.job_id JOIN locked l ON l.id = i.job_id
        WHERE a.runner <> '' AND l.kind <> 'local' -- which registers nobody
        ORDER BY a.runner
        ON CONFLICT DO NOTHING
    )
    UPDATE jobs j SET state = 'claimed', pod = i.pod, pod_uid = i.pod_uid, claimed_at = i.claimed_at,
        attempts = j.attempts + 1, hold_until = NULL
    FROM inserted i WHERE j.id = i.job_id RETURNING j.*
$$;
COMMENT ON FUNCTION claim_write(text[], text[], text[], timestamptz[], text[], timestamptz) IS
    'Writes the claims of jobs in the rooms of locked limits, notes their runners, and returns those that could be had.';

CREATE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_runners text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS TABLE (place bigint, outcome text, job jobs) LANGUAGE plpgsql
-- Planning the order of turns anew for each poll takes longer than following it. A plan that is kept may be older than the
-- rows: it must follow the indexes also if it was made while there were none.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE
    -- The places of those that have no job yet, in the order in which they asked.
    left_over bigint[] := '{}';
    turns record;
    next bigint := 1;
    -- The tenants whose limits are locked here, as places among the turns; and one that others have locked.
    opened bigint[] := '{}';
    busy bigint;
    choice record;
    won bigint[];
    passed text[] := p_not_jobs;
    waited boolean := p_wait_ms <= 0;
    served boolean := false;
    noted boolean := false;
    durable text := current_setting('synchronous_commit');
    lost boolean := false;
BEGIN
    -- Nobody waits for the disk for a claim alone: one that a crash of this server undoes was never acted on, and the next
    -- change of its holder is waited for, and with it all that was committed before. But before a forge is asked to register
    -- a runner its name must be safe, and where it is written down with the claim, nothing else comes before that.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR place, outcome IN SELECT * FROM claim_pods(p_pods, p_pod_uids) LOOP
        IF outcome IS NULL THEN
            left_over := left_over || place;
        ELSE
            RETURN NEXT;
        END IF;
    END LOOP;
    turns := claim_order(p_pool, p_now, p_ageing, p_not_tenants, p_not_repositories, p_not_jobs);

    WHILE cardinality(left_over) > 0 LOOP
        -- No more tenants than there are Pods can have their turn; but those that were opened may have nothing that fits.
        choice := claim_open(turns.tenants, turns.oses, next, greatest(cardinality(left_over), 2 * cardinality(opened))
            - cardinality(opened));
        next := choice.next;
        opened := opened || choice.opened;
        busy := coalesce(busy, choice.busy);
        choice := claim_choose(p_pool, cardinality(left_over), opened, turns.tenants, turns.oses, turns.oldest, turns.oldest_ids,
            coalesce(turns.ranks[next], 'infinity'), coalesce(turns.oldest[next], 'infinity'), coalesce(turns.oldest_ids[next], ''),
            p_now, p_ageing, p_not_repositories, passed);
        IF cardinality(choice.chosen) = 0 THEN
            CONTINUE WHEN next <= cardinality(turns.tenants);
            -- Everybody who has work is being claimed for right now. Wait for one of them, a little: a burst of one tenant
            -- would otherwise send almost everybody away. But wait for no limit while another one is held: two could wait
            -- for each other.
            EXIT WHEN waited OR busy IS NULL OR cardinality(opened) > 0;
            waited := true;
            EXIT WHEN NOT claim_wait(turns.tenants[busy], turns.oses[busy], p_wait_ms);
            turns := claim_order(p_pool, p_now, p_ageing, p_not_tenants, p_not_repositories, p_not_jobs);
            next := 1;
            busy := NULL;
            CONTINUE;
        END IF;
        won := '{}';
        FOR job IN
            SELECT * FROM claim_write(choice.chosen, ARRAY (SELECT p_pods[l.place] FROM unnest(left_over) l (place)),
                ARRAY (SELECT p_pod_uids[l.place] FROM unnest(left_over) l (place)), choice.tokens,
                ARRAY (SELECT p_runners[l.place] FROM unnest(left_over) l (place)), p_now)
        LOOP
            place := left_over[array_position(choice.chosen, job.id)];
            outcome := 'claimed';
            noted := noted OR (coalesce(p_runners[place], '') <> '' AND job.kind <> 'local');
            RETURN NEXT;
            won := won || place;
        END LOOP;
        served := true;
        IF cardinality(won) < cardinality(choice.chosen) THEN
            -- What could not be had is passed over from now on; those whom it was meant for are still there.
            lost := true;
            passed := passed || choice.chosen;
        END IF;
        left_over := ARRAY (SELECT l.place FROM unnest(left_over) l (place) WHERE l.place <> ALL (won) ORDER BY l.place);
    END LOOP;

    IF cardinality(left_over) > 0 THEN
        IF served THEN -- those that got something may have nothing left
            turns := claim_order(p_pool, p_now, p_ageing, p_not_tenants, p_not_repositories, p_not_jobs);
        END IF;
        job := NULL;
        outcome := CASE
            WHEN busy IS NOT NULL THEN 'busy'
            WHEN lost THEN 'lost_race'
            WHEN turns.waiting > 0 THEN 'capped'
            ELSE claim_refused(p_pool, p_now, p_not_tenants, p_not_repositories, p_not_jobs)
        END;
        FOREACH place IN ARRAY left_over LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
    IF noted THEN
        PERFORM set_config('synchronous_commit', durable, true);
    END IF;
END
$$;
COMMENT ON FUNCTION claim_jobs(text, text[], text[], text[], timestamptz, interval, bigint, text[], text[], text[]) IS
    'Gives each Pod the job whose turn it is, and notes its runner, or says why there is none.';

-- The plan is kept, and may have been made while the tables were empty: EXISTS was then answered by reading all of claims and
-- of sessions, ever after. A subquery with LIMIT cannot be turned into that.
CREATE OR REPLACE FUNCTION claim_pods(p_pods text[], p_pod_uids text[]) RETURNS TABLE (place bigint, refused text)
LANGUAGE plpgsql AS $$
DECLARE
    free boolean[];
BEGIN
    -- Two requests of one Pod: the second does not wait for the first, and the insert can meet no other.
    SELECT array_agg(pg_try_advisory_xact_lock(2, hashtext(p.pod)) ORDER BY p.place) INTO free
    FROM unnest(p_pods) WITH ORDINALITY AS p (pod, place);
    RETURN QUERY
        SELECT p.place, CASE
            WHEN NOT free[p.place] OR array_position(p_pods, p.pod) < p.place
                OR (SELECT true FROM claims c WHERE c.pod = p.pod LIMIT 1) THEN 'pod_in_use'
            WHEN (SELECT true FROM sessions s WHERE s.pod_uid = p.pod_uid LIMIT 1) THEN 'pod_spent'
        END
        FROM unnest(p_pods, p_pod_uids) WITH ORDINALITY AS p (pod, pod_uid, place) ORDER BY p.place;
END
$$;

CREATE OR REPLACE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS TABLE (place bigint, outcome text, job jobs) LANGUAGE sql AS $$
    SELECT * FROM claim_jobs(p_pool, p_pods, p_pod_uids, '{}'::text[], p_now, p_ageing, p_wait_ms, p_not_tenants,
        p_not_repositories, p_not_jobs)
$$;

-- Hand-overs without what their callers know: a claim's job and the session that opens with it are returned only to who asks for
-- them, or if the claim has another job by now.

CREATE FUNCTION deliver_new(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_runners text[], p_locked text[],
    p_now timestamptz
) RETURNS TABLE (place bigint, job_id text) LANGUAGE sql AS $$
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
        RETURNING a.place, j.id, j.tenant, j.pool
    ), delivered AS (
        UPDATE claims c SET runner_name = a.runner, delivered_at = p_now
        FROM asked a, run r WHERE c.pod = a.pod AND r.place = a.place
    ), opened AS (
        INSERT INTO sessions (pod_uid, pod, job_id, tenant, repository, pool, os, vcpus, memory_mib, runner_name, started_at)
        SELECT a.pod_uid, a.pod, a.job_id, a.tenant, a.repository, a.pool, a.os, a.vcpus, a.memory_mib, a.runner, a.claimed_at
        FROM asked a JOIN run r ON r.place = a.place
    ), written AS (
        INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
        SELECT p_now, 'dispatch', 'running', 'handed to ' || a.runner, r.id, a.pod, r.tenant, r.pool
        FROM asked a JOIN run r ON r.place = a.place ORDER BY a.place
    )
    SELECT r.place, r.id FROM run r
$$;
COMMENT ON FUNCTION deliver_new(text[], text[], text[], timestamptz[], text[], text[], timestamptz) IS
    'Records the first delivery of those claims that stand and have none, and returns their jobs. All their rows are locked.';

CREATE FUNCTION deliver_jobs(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_runners text[], p_withins interval[],
    p_scopes text[], p_numbers bigint[], p_whole boolean, p_now timestamptz
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
    FOR given IN SELECT * FROM deliver_new(p_jobs, p_pods, p_pod_uids, p_tokens, p_runners, seen, p_now) LOOP
        place := given.place;
        job := NULL;
        session := NULL;
        IF p_whole OR given.job_id <> p_jobs[place] THEN
            SELECT * INTO job FROM jobs j WHERE j.id = given.job_id;
            SELECT * INTO session FROM sessions s WHERE s.pod_uid = p_pod_uids[place];
        END IF;
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
COMMENT ON FUNCTION deliver_jobs(
    text[], text[], text[], timestamptz[], text[], interval[], text[], bigint[], boolean, timestamptz
) IS 'Records for several claims that a job config was minted for each, what the forge calls its runner, and opens the sessions.';
