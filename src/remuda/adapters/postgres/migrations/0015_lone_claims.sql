-- Most of the time a job comes, finds a warm runner and leaves nobody waiting: one claim, one Pod, one tenant. What finds the
-- turns of many costs more to set up than to follow, so one Pod's claim has a way of its own: with the same answer.

CREATE FUNCTION claim_choose_one(
    p_pool text, p_tenant text, p_os text, p_oldest timestamptz, p_oldest_id text, p_bound double precision,
    p_bound_at timestamptz, p_bound_id text, p_now timestamptz, p_ageing interval, p_not_repositories text[], p_not_jobs text[],
    OUT chosen text[], OUT tokens timestamptz[]
) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE room AS (
        -- Locked by now, and perhaps not as it was when the turns were put in order: then another tenant's turn is before it.
        SELECT l.tenant, l.os, l.vcpus, l.memory_mib, l.used_vcpus, l.used_memory_mib, l.last_claimed_at
        FROM limits l CROSS JOIN LATERAL (SELECT claim_rank(l.used_vcpus, l.used_memory_mib, l.vcpus, l.memory_mib,
            p_now - greatest(p_oldest, l.last_claimed_at), p_ageing) AS rank) r
        WHERE l.tenant = p_tenant AND l.os = p_os
            AND (r.rank < p_bound OR (r.rank = p_bound AND (p_oldest, p_oldest_id) < (p_bound_at, p_bound_id)))
    ), heads AS (
        -- Of each repository the oldest job that fits and may go, as in claim_choose.
        SELECT r.*, n.* FROM room r CROSS JOIN LATERAL (
            SELECT j.repository, j.id, j.queued_at FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = r.tenant
                AND j.repository >= '' -- always so; it leads to the index of repositories
                AND j.os = r.os AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= r.vcpus - r.used_vcpus AND j.memory_mib <= r.memory_mib - r.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.repository, j.queued_at, j.id LIMIT 1) n
        UNION ALL
        SELECT h.tenant, h.os, h.vcpus, h.memory_mib, h.used_vcpus, h.used_memory_mib, h.last_claimed_at, n.*
        FROM heads h CROSS JOIN LATERAL (
            SELECT j.repository, j.id, j.queued_at FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = h.tenant AND j.repository > h.repository
                AND j.os = h.os AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= h.vcpus - h.used_vcpus AND j.memory_mib <= h.memory_mib - h.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.repository, j.queued_at, j.id LIMIT 1) n
    ), rivals AS (
        SELECT h.*, count(*) OVER () > 1 AS rivalled FROM heads h
    ), won AS (
        SELECT r.id, greatest(p_now, r.last_claimed_at + interval '1 microsecond') AS token
        FROM rivals r CROSS JOIN LATERAL (
            SELECT coalesce(sum(c.vcpus::double precision), 0) AS vcpus,
                coalesce(sum(c.memory_mib::double precision), 0) AS memory_mib, max(c.claimed_at) AS claimed_at
            FROM claims c WHERE r.rivalled AND c.tenant = r.tenant AND c.os = r.os AND c.repository = r.repository) u
        ORDER BY claim_rank(u.vcpus, u.memory_mib, r.vcpus, r.memory_mib, p_now - greatest(r.queued_at, u.claimed_at), p_ageing),
            r.queued_at, r.id
        LIMIT 1
    )
    SELECT coalesce(array_agg(w.id), '{}'), coalesce(array_agg(w.token), '{}') FROM won w
$$;
COMMENT ON FUNCTION claim_choose_one(
    text, text, text, timestamptz, text, double precision, timestamptz, text, timestamptz, interval, text[], text[]
) IS 'The job whose turn it is of the one tenant whose limit is locked, and its token; nothing if it has none that fits.';

CREATE OR REPLACE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_runners text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[], p_knows text[]
) RETURNS TABLE (place bigint, outcome text, job jobs) LANGUAGE plpgsql
-- Planning the order of turns anew for each poll takes longer than following it. A plan that is kept may be older than the
-- rows: it must follow the indexes also if it was made while there were none.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
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
    passed text[];
    unknown text[];
    waited boolean := p_wait_ms <= 0;
    stale boolean := false;
    noted boolean := false;
    durable text := current_setting('synchronous_commit');
    lost boolean := false;
BEGIN
    -- Nobody waits for the disk for a claim alone: one that a crash of this server undoes was never acted on, and the next
    -- change of its holder is waited for, and with it all that was committed before. But before a forge is asked to register
    -- a runner its name must be safe, and where it is written down with the claim, nothing else comes before that.
    PERFORM set_config('synchronous_commit', 'off', true);
    p_not_jobs := p_not_jobs || ARRAY (SELECT n.job_id FROM job_needs n WHERE n.need <> ALL (p_knows));
    passed := p_not_jobs;
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
        IF cardinality(left_over) = 1 AND cardinality(opened) = 1 THEN
            choice := claim_choose_one(p_pool, turns.tenants[opened[1]], turns.oses[opened[1]], turns.oldest[opened[1]],
                turns.oldest_ids[opened[1]], coalesce(turns.ranks[next], 'infinity'), coalesce(turns.oldest[next], 'infinity'),
                coalesce(turns.oldest_ids[next], ''), p_now, p_ageing, p_not_repositories, passed);
        ELSE
            choice := claim_choose(p_pool, cardinality(left_over), opened, turns.tenants, turns.oses, turns.oldest,
                turns.oldest_ids, coalesce(turns.ranks[next], 'infinity'), coalesce(turns.oldest[next], 'infinity'),
                coalesce(turns.oldest_ids[next], ''), p_now, p_ageing, p_not_repositories, passed);
        END IF;
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
        -- Each statement sees what was committed before it. A job may have come after the look at what jobs need; but not
        -- before its own needs, so they are seen now.
        unknown := ARRAY (SELECT n.job_id FROM job_needs n WHERE n.job_id = ANY (choice.chosen) AND n.need <> ALL (p_knows));
        IF cardinality(unknown) > 0 THEN
            passed := passed || unknown;
            p_not_jobs := p_not_jobs || unknown;
            stale := true;
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
        stale := true;
        IF cardinality(won) < cardinality(choice.chosen) THEN
            -- What could not be had is passed over from now on; those whom it was meant for are still there.
            lost := true;
            passed := passed || choice.chosen;
        END IF;
        left_over := ARRAY (SELECT l.place FROM unnest(left_over) l (place) WHERE l.place <> ALL (won) ORDER BY l.place);
    END LOOP;

    IF cardinality(left_over) > 0 THEN
        IF stale THEN -- those that got something, or whose jobs we do not know, may have nothing left
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

-- A lock is an expression, and needs no statement.
CREATE OR REPLACE FUNCTION claim_pods(p_pods text[], p_pod_uids text[]) RETURNS TABLE (place bigint, refused text)
LANGUAGE plpgsql AS $$
DECLARE
    free boolean[] := '{}';
    one text;
BEGIN
    -- Two requests of one Pod: the second does not wait for the first, and the insert can meet no other.
    FOREACH one IN ARRAY p_pods LOOP
        free := free || pg_try_advisory_xact_lock(2, hashtext(one));
    END LOOP;
    RETURN QUERY
        SELECT p.place, CASE
            WHEN NOT free[p.place] OR array_position(p_pods, p.pod) < p.place
                OR (SELECT true FROM claims c WHERE c.pod = p.pod LIMIT 1) THEN 'pod_in_use'
            WHEN (SELECT true FROM sessions s WHERE s.pod_uid = p.pod_uid LIMIT 1) THEN 'pod_spent'
        END
        FROM unnest(p_pods, p_pod_uids) WITH ORDINALITY AS p (pod, pod_uid, place) ORDER BY p.place;
END
$$;

-- Where all were delivered at once, nobody is left to be looked at one by one.
CREATE OR REPLACE FUNCTION deliver_jobs(
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
    IF cardinality(done) < cardinality(p_pods) THEN
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
    END IF;
    -- What the forge called the runner, whatever became of its claim: it may have to be removed by that.
    UPDATE registrations r SET scope = n.scope, number = n.number
    FROM unnest(p_runners, p_scopes, p_numbers) n (runner, scope, number)
    WHERE r.runner_name = n.runner AND n.scope IS NOT NULL;
END
$$;
