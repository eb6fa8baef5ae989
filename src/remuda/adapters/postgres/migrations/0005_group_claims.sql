-- A claim for several Pods of a pool at once: the order of turns is looked up once, each tenant's limit is locked once, and
-- all is written and committed together. Each Pod gets what it would have got had they asked one after the other.
--
-- The order of locks stays: a claim takes limits first, never waits for a job or for a claim, and waits for a limit only
-- while it holds none.

-- They are replaced before any release had them.
-- squawk-ignore ban-drop-function
DROP FUNCTION claim_job(text, text, text, timestamptz, interval, bigint, text[], text[], text[]);
-- squawk-ignore ban-drop-function
DROP FUNCTION claim_take(jobs, limits, text, text, timestamptz);
-- squawk-ignore ban-drop-function
DROP FUNCTION claim_pick(text, limits, timestamptz, interval, text[], text[]);
-- squawk-ignore ban-drop-function
DROP FUNCTION claim_turns(text, timestamptz, interval, text[], text[], text[]);

-- squawk-ignore ban-drop-function
DROP FUNCTION claim_rank(bigint, bigint, bigint, bigint, interval, interval);

CREATE FUNCTION claim_rank(
    used_vcpus double precision, used_memory_mib double precision, vcpus double precision, memory_mib double precision,
    waited interval, ageing interval
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(used_vcpus / greatest(vcpus, 1), used_memory_mib / greatest(memory_mib, 1))
        - greatest(date_part('epoch', waited), 0) / date_part('epoch', ageing)
$$;
COMMENT ON FUNCTION claim_rank(double precision, double precision, double precision, double precision, interval, interval) IS
    'The share of a limit that is in use, less one for each span of ageing without being served. The least goes first.';

CREATE FUNCTION claim_turns(
    p_pool text, p_now timestamptz, p_ageing interval, p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS TABLE (
    tenant text, os text, vcpus bigint, memory_mib bigint, used_vcpus bigint, used_memory_mib bigint,
    last_claimed_at timestamptz, oldest timestamptz, oldest_id text, rank double precision
) LANGUAGE sql STABLE AS $$
    -- One step in the index for each tenant that has work in the pool, however long the queues are.
    WITH RECURSIVE heads AS (
        (SELECT j.tenant, j.os, j.queued_at, j.id FROM jobs j
         WHERE j.state = 'queued' AND j.pool = p_pool AND (j.hold_until IS NULL OR j.hold_until <= p_now)
            AND j.tenant <> ALL (p_not_tenants) AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
         ORDER BY j.tenant, j.queued_at, j.id LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.os, n.queued_at, n.id FROM heads h CROSS JOIN LATERAL (
            SELECT j.tenant, j.os, j.queued_at, j.id FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant > h.tenant
                AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.tenant <> ALL (p_not_tenants) AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.tenant, j.queued_at, j.id LIMIT 1) n
    )
    SELECT h.tenant, h.os, l.vcpus, l.memory_mib, l.used_vcpus, l.used_memory_mib, l.last_claimed_at, h.queued_at, h.id,
        claim_rank(l.used_vcpus, l.used_memory_mib, l.vcpus, l.memory_mib,
            p_now - greatest(h.queued_at, l.last_claimed_at), p_ageing) AS rank
    FROM heads h JOIN limits l ON l.tenant = h.tenant AND l.os = h.os
    ORDER BY rank, h.queued_at, h.id
$$;
COMMENT ON FUNCTION claim_turns(text, timestamptz, interval, text[], text[], text[]) IS
    'The tenants with work in a pool and a limit, in the order of their turns.';

CREATE FUNCTION claim_order(
    p_pool text, p_now timestamptz, p_ageing interval, p_not_tenants text[], p_not_repositories text[], p_not_jobs text[],
    OUT tenants text[], OUT oses text[], OUT ranks double precision[], OUT oldest timestamptz[], OUT oldest_ids text[],
    OUT waiting bigint
) LANGUAGE sql STABLE AS $$
    -- The limits may be a moment old here; those that are locked afterwards are not. Who is at its limit is passed over.
    WITH turns AS (
        SELECT t.*, t.used_vcpus < t.vcpus AND t.used_memory_mib < t.memory_mib AS room
        FROM claim_turns(p_pool, p_now, p_ageing, p_not_tenants, p_not_repositories, p_not_jobs) t
    )
    SELECT coalesce(array_agg(tenant ORDER BY rank, oldest, oldest_id) FILTER (WHERE room), '{}'),
        array_agg(os ORDER BY rank, oldest, oldest_id) FILTER (WHERE room),
        array_agg(rank ORDER BY rank, oldest, oldest_id) FILTER (WHERE room),
        array_agg(oldest ORDER BY rank, oldest, oldest_id) FILTER (WHERE room),
        array_agg(oldest_id ORDER BY rank, oldest, oldest_id) FILTER (WHERE room),
        count(*)
    FROM turns
$$;
COMMENT ON FUNCTION claim_order(text, timestamptz, interval, text[], text[], text[]) IS
    'The tenants with work in a pool that are not at their limits, in the order of their turns, and how many wait in all.';

CREATE FUNCTION claim_open(
    p_tenants text[], p_oses text[], INOUT next bigint, p_count bigint, OUT opened bigint[], OUT busy bigint
) LANGUAGE plpgsql AS $$
BEGIN
    opened := ARRAY (
        SELECT o.place FROM generate_series(next, least(next + p_count - 1, cardinality(p_tenants))) AS o (place)
        CROSS JOIN LATERAL (
            SELECT FROM limits l WHERE l.tenant = p_tenants[o.place] AND l.os = p_oses[o.place] FOR UPDATE SKIP LOCKED
        ) l
    );
    SELECT min(o.place) INTO busy FROM generate_series(next, least(next + p_count - 1, cardinality(p_tenants))) AS o (place)
    WHERE o.place <> ALL (opened);
    next := greatest(next, least(next + p_count, cardinality(p_tenants) + 1));
END
$$;
COMMENT ON FUNCTION claim_open(text[], text[], bigint, bigint) IS
    'Locks the limits of the next tenants without waiting; the first that somebody else has locked is said.';

CREATE FUNCTION claim_wait(p_tenant text, p_os text, p_wait_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    PERFORM FROM limits l WHERE l.tenant = p_tenant AND l.os = p_os FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION claim_wait(text, text, bigint) IS 'Waits a little for the limit of a tenant that is being claimed for.';

CREATE FUNCTION claim_choose(
    p_pool text, p_wanted bigint, p_opened bigint[], p_tenants text[], p_oses text[], p_oldest timestamptz[],
    p_oldest_ids text[], p_bound double precision, p_bound_at timestamptz, p_bound_id text, p_now timestamptz, p_ageing interval,
    p_not_repositories text[], p_not_jobs text[], OUT chosen text[], OUT tokens timestamptz[]
) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE rooms AS (
        -- How many of each tenant are looked at: its part of what is wanted, and a few more.
        SELECT l.tenant, l.os, l.vcpus, l.memory_mib, l.used_vcpus, l.used_memory_mib, l.last_claimed_at,
            p_oldest[o.place] AS oldest, p_oldest_ids[o.place] AS oldest_id,
            CASE WHEN p_wanted <= cardinality(p_opened) THEN 1 ELSE p_wanted / cardinality(p_opened) + 2 END AS line
        FROM unnest(p_opened) AS o (place)
        CROSS JOIN LATERAL (SELECT * FROM limits l WHERE l.tenant = p_tenants[o.place] AND l.os = p_oses[o.place]) l
    ), heads AS (
        -- Of each repository of a tenant the oldest job that fits and may go: one step in the index for each repository,
        -- however long the queues are.
        SELECT r.*, n.* FROM rooms r CROSS JOIN LATERAL (
            SELECT j.repository, j.id, j.queued_at, j.vcpus::double precision AS job_vcpus,
                j.memory_mib::double precision AS job_memory_mib FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = r.tenant
                AND j.repository >= '' -- always so; it leads to the index of repositories
                AND j.os = r.os AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= r.vcpus - r.used_vcpus AND j.memory_mib <= r.memory_mib - r.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.repository, j.queued_at, j.id LIMIT 1) n
        UNION ALL
        SELECT h.tenant, h.os, h.vcpus, h.memory_mib, h.used_vcpus, h.used_memory_mib, h.last_claimed_at, h.oldest,
            h.oldest_id, h.line, n.* FROM heads h CROSS JOIN LATERAL (
            SELECT j.repository, j.id, j.queued_at, j.vcpus::double precision AS job_vcpus,
                j.memory_mib::double precision AS job_memory_mib FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = h.tenant AND j.repository > h.repository
                AND j.os = h.os AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= h.vcpus - h.used_vcpus AND j.memory_mib <= h.memory_mib - h.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.repository, j.queued_at, j.id LIMIT 1) n
    ), used AS MATERIALIZED (
        SELECT h.*, u.* FROM heads h CROSS JOIN LATERAL (
            SELECT coalesce(sum(c.vcpus::double precision), 0) AS repository_vcpus,
                coalesce(sum(c.memory_mib::double precision), 0) AS repository_memory_mib, max(c.claimed_at) AS claimed_at
            FROM claims c WHERE c.tenant = h.tenant AND c.os = h.os AND c.repository = h.repository) u
    ), candidates AS (
        -- The heads, and what comes after them, with what the repository would use before each. Who has just got a job has
        -- waited for nothing since.
        SELECT u.*, p_now - greatest(u.queued_at, u.claimed_at) AS waited FROM used u
        UNION ALL
        SELECT u.tenant, u.os, u.vcpus, u.memory_mib, u.used_vcpus, u.used_memory_mib, u.last_claimed_at, u.oldest, u.oldest_id,
            u.line, n.repository, n.id, n.queued_at, n.job_vcpus, n.job_memory_mib,
            u.repository_vcpus + u.job_vcpus + sum(n.job_vcpus) OVER line - n.job_vcpus,
            u.repository_memory_mib + u.job_memory_mib + sum(n.job_memory_mib) OVER line - n.job_memory_mib,
            u.claimed_at, interval '0'
        FROM used u CROSS JOIN LATERAL (
            SELECT j.repository, j.id, j.queued_at, j.vcpus::double precision AS job_vcpus,
                j.memory_mib::double precision AS job_memory_mib FROM jobs j
            WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = u.tenant AND j.repository = u.repository
                AND (j.queued_at, j.id) > (u.queued_at, u.id)
                AND j.os = u.os AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= u.vcpus - u.used_vcpus AND j.memory_mib <= u.memory_mib - u.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
            ORDER BY j.queued_at, j.id LIMIT u.line - 1) n
        WHERE u.line > 1
        WINDOW line AS (PARTITION BY u.tenant, u.os, u.repository ORDER BY n.queued_at, n.id)
    ), of_tenant AS (
        -- A tenant's jobs in the order of its repositories' turns, with what the tenant would use after each.
        SELECT c.*, row_number() OVER line AS n, c.used_vcpus + sum(c.job_vcpus) OVER line AS then_vcpus,
            c.used_memory_mib + sum(c.job_memory_mib) OVER line AS then_memory_mib
        FROM candidates c
        WINDOW line AS (PARTITION BY c.tenant, c.os ORDER BY claim_rank(
            c.repository_vcpus, c.repository_memory_mib, c.vcpus, c.memory_mib, c.waited, p_ageing), c.queued_at, c.id)
    ), ranked AS MATERIALIZED (
        SELECT t.id, t.n, t.last_claimed_at,
            claim_rank(t.then_vcpus - t.job_vcpus, t.then_memory_mib - t.job_memory_mib, t.vcpus, t.memory_mib,
                CASE WHEN t.n = 1 THEN p_now - greatest(t.oldest, t.last_claimed_at) ELSE interval '0' END, p_ageing) AS rank,
            CASE WHEN t.n = 1 THEN t.oldest ELSE t.queued_at END AS at,
            CASE WHEN t.n = 1 THEN t.oldest_id ELSE t.id END AS at_id,
            -- From which rank on this tenant's order is not known: its room is used up, or all that was looked at is.
            CASE
                WHEN t.then_vcpus > t.vcpus OR t.then_memory_mib > t.memory_mib THEN claim_rank(t.then_vcpus - t.job_vcpus,
                    t.then_memory_mib - t.job_memory_mib, t.vcpus, t.memory_mib, interval '0', p_ageing)
                WHEN t.n = t.line
                    THEN claim_rank(t.then_vcpus, t.then_memory_mib, t.vcpus, t.memory_mib, interval '0', p_ageing)
            END AS unknown
        FROM of_tenant t WHERE t.n <= t.line
    ), won AS (
        -- Each token is greater than every one before it, also if this server's clock is behind the last one's.
        SELECT r.id, greatest(p_now, r.last_claimed_at + interval '1 microsecond') + (r.n - 1) * interval '1 microsecond' AS token,
            row_number() OVER (ORDER BY r.rank, r.at, r.at_id, r.n) AS turn
        FROM ranked r WHERE r.rank < coalesce((SELECT min(unknown) FROM ranked), 'infinity')
            AND (r.rank < p_bound OR (r.rank = p_bound AND (r.at, r.at_id) < (p_bound_at, p_bound_id)))
        ORDER BY turn LIMIT p_wanted
    )
    SELECT coalesce(array_agg(w.id ORDER BY w.turn), '{}'), coalesce(array_agg(w.token ORDER BY w.turn), '{}') FROM won w
$$;
COMMENT ON FUNCTION claim_choose(
    text, bigint, bigint[], text[], text[], timestamptz[], text[], double precision, timestamptz, text, timestamptz, interval, text[], text[]
) IS 'The next jobs of some tenants, as if they were claimed one after the other: those that come before the bound.';

CREATE FUNCTION claim_write(
    p_jobs text[], p_pods text[], p_pod_uids text[], p_tokens timestamptz[], p_now timestamptz
) RETURNS SETOF jobs LANGUAGE sql AS $$
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_jobs, p_pods, p_pod_uids, p_tokens) AS a (job_id, pod, pod_uid, token)
        WHERE a.job_id IS NOT NULL -- there may be more Pods than jobs
    ), locked AS MATERIALIZED (
        -- Only a change of this very job can hold its row: other claims of the tenant wait for the limit.
        SELECT j.id, j.tenant, j.repository, j.pool, j.os, j.vcpus, j.memory_mib FROM jobs j
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
    )
    UPDATE jobs j SET state = 'claimed', pod = i.pod, pod_uid = i.pod_uid, claimed_at = i.claimed_at,
        attempts = j.attempts + 1, hold_until = NULL
    FROM inserted i WHERE j.id = i.job_id RETURNING j.*
$$;
COMMENT ON FUNCTION claim_write(text[], text[], text[], timestamptz[], timestamptz) IS
    'Writes the claims of jobs in the rooms of locked limits, and returns those that could be had.';

CREATE FUNCTION claim_pods(p_pods text[], p_pod_uids text[]) RETURNS TABLE (place bigint, refused text) LANGUAGE plpgsql AS $$
DECLARE
    free boolean[];
BEGIN
    -- Two requests of one Pod: the second does not wait for the first, and the insert can meet no other.
    SELECT array_agg(pg_try_advisory_xact_lock(2, hashtext(p.pod)) ORDER BY p.place) INTO free
    FROM unnest(p_pods) WITH ORDINALITY AS p (pod, place);
    RETURN QUERY
        SELECT p.place, CASE
            WHEN NOT free[p.place] OR array_position(p_pods, p.pod) < p.place
                OR EXISTS (SELECT FROM claims c WHERE c.pod = p.pod) THEN 'pod_in_use'
            WHEN EXISTS (SELECT FROM sessions s WHERE s.pod_uid = p.pod_uid) THEN 'pod_spent'
        END
        FROM unnest(p_pods, p_pod_uids) WITH ORDINALITY AS p (pod, pod_uid, place) ORDER BY p.place;
END
$$;
COMMENT ON FUNCTION claim_pods(text[], text[]) IS 'Which Pods may get a job, locked for this transaction, and why the others may not.';

CREATE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
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
    lost boolean := false;
BEGIN
    -- Nobody waits for the disk here: a claim that a crash of this server undoes was never acted on. The next change of its
    -- holder is waited for, and with it all that was committed before.
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
                ARRAY (SELECT p_pod_uids[l.place] FROM unnest(left_over) l (place)), choice.tokens, p_now)
        LOOP
            place := left_over[array_position(choice.chosen, job.id)];
            outcome := 'claimed';
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
END
$$;
COMMENT ON FUNCTION claim_jobs(text, text[], text[], timestamptz, interval, bigint, text[], text[], text[]) IS
    'Gives each Pod the job whose turn it is, or says why there is none.';
