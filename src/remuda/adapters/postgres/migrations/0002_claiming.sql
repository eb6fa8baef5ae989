-- The claim, in one round trip. Who goes first and who may not go at all is decided here because it must be atomic.
--
-- Order of locks, everywhere: (advisory lock of a job) -> jobs by id -> claims by pod -> limits. A claim takes the limit
-- first, never waits for a job or for a claim, and waits for a limit only while it holds none: so it closes no circle.

CREATE FUNCTION claim_rank(
    used_vcpus bigint, used_memory_mib bigint, vcpus bigint, memory_mib bigint, waited interval, ageing interval
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(
        used_vcpus::double precision / greatest(vcpus, 1), used_memory_mib::double precision / greatest(memory_mib, 1)
    ) - greatest(extract(epoch FROM waited)::double precision, 0) / extract(epoch FROM ageing)::double precision
$$;
COMMENT ON FUNCTION claim_rank(bigint, bigint, bigint, bigint, interval, interval) IS
    'The share of a limit that is in use, less one for each span of ageing without being served. The least goes first.';

CREATE FUNCTION claim_pick(
    p_pool text, p_room limits, p_now timestamptz, p_ageing interval, p_not_repositories text[], p_not_jobs text[],
    OUT picked jobs, OUT lost boolean
) LANGUAGE plpgsql AS $$
DECLARE
    turn record;
BEGIN
    lost := false;
    -- Of each repository the oldest job that fits and may go: one step in the index for each repository.
    FOR turn IN
        WITH RECURSIVE heads AS (
            (SELECT j.repository, j.queued_at, j.id FROM jobs j
             WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = p_room.tenant AND j.os = p_room.os
                AND j.repository >= '' -- always so; it leads to the index of repositories
                AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.vcpus <= p_room.vcpus - p_room.used_vcpus
                AND j.memory_mib <= p_room.memory_mib - p_room.used_memory_mib
                AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
             ORDER BY j.repository, j.queued_at, j.id LIMIT 1)
            UNION ALL
            SELECT n.repository, n.queued_at, n.id FROM heads h CROSS JOIN LATERAL (
                SELECT j.repository, j.queued_at, j.id FROM jobs j
                WHERE j.state = 'queued' AND j.pool = p_pool AND j.tenant = p_room.tenant AND j.os = p_room.os
                    AND j.repository > h.repository
                    AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                    AND j.vcpus <= p_room.vcpus - p_room.used_vcpus
                    AND j.memory_mib <= p_room.memory_mib - p_room.used_memory_mib
                    AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
                ORDER BY j.repository, j.queued_at, j.id LIMIT 1) n
        )
        SELECT h.id FROM heads h LEFT JOIN (
            SELECT c.repository, sum(c.vcpus)::bigint AS vcpus, sum(c.memory_mib)::bigint AS memory_mib,
                max(c.claimed_at) AS claimed_at
            FROM claims c WHERE c.tenant = p_room.tenant AND c.os = p_room.os GROUP BY c.repository
        ) u ON u.repository = h.repository
        ORDER BY claim_rank(coalesce(u.vcpus, 0), coalesce(u.memory_mib, 0), p_room.vcpus, p_room.memory_mib,
            p_now - greatest(h.queued_at, u.claimed_at), p_ageing), h.queued_at, h.id
    LOOP
        -- Only a change of this very job can hold its row: other claims of the tenant wait for the limit.
        SELECT * INTO picked FROM jobs WHERE id = turn.id AND state = 'queued' FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN;
        END IF;
        lost := true;
    END LOOP;
END
$$;
COMMENT ON FUNCTION claim_pick(text, limits, timestamptz, interval, text[], text[]) IS
    'The job of a tenant whose turn it is, locked: the least served repository first, in it the oldest job.';

CREATE FUNCTION claim_take(
    p_job jobs, p_room limits, p_pod text, p_pod_uid text, p_now timestamptz
) RETURNS jobs LANGUAGE plpgsql AS $$
DECLARE
    taken jobs;
    -- Greater than every token before it, also if this server's clock is behind the last one's.
    token timestamptz := greatest(p_now, p_room.last_claimed_at + interval '1 microsecond');
BEGIN
    IF p_job.id IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO claims (job_id, pod, pod_uid, claimed_at, tenant, repository, pool, os, vcpus, memory_mib)
    VALUES (p_job.id, p_pod, p_pod_uid, token, p_job.tenant, p_job.repository, p_job.pool, p_job.os,
        p_job.vcpus, p_job.memory_mib)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE limits SET used_vcpus = used_vcpus + p_job.vcpus, used_memory_mib = used_memory_mib + p_job.memory_mib,
        last_claimed_at = token
    WHERE tenant = p_room.tenant AND os = p_room.os;
    UPDATE jobs SET state = 'claimed', pod = p_pod, pod_uid = p_pod_uid, claimed_at = token, attempts = attempts + 1,
        hold_until = NULL
    WHERE id = p_job.id RETURNING * INTO taken;
    INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool)
    VALUES (p_now, 'dispatch', 'claimed', 'its turn came and the Pod was warm', p_job.id, p_pod, p_job.tenant, p_job.pool);
    RETURN taken;
END
$$;
COMMENT ON FUNCTION claim_take(jobs, limits, text, text, timestamptz) IS
    'Writes the claim of a locked job in the room of a locked limit.';

CREATE FUNCTION claim_job(
    p_pool text, p_pod text, p_pod_uid text, p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[], OUT outcome text, OUT job jobs
) LANGUAGE plpgsql
-- Planning the order of turns anew for each poll takes longer than following it.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    turn record;
    room limits;
    pick record;
    busy text[] := '{}';
    holding boolean := false;
    capped boolean := false;
    lost boolean := false;
BEGIN
    -- Two requests of one Pod: the second does not wait for the first, and the insert below can meet no other.
    IF NOT pg_try_advisory_xact_lock(2, hashtext(p_pod)) THEN
        outcome := 'pod_in_use';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM claims WHERE pod = p_pod) THEN
        outcome := 'pod_in_use';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM sessions WHERE pod_uid = p_pod_uid) THEN
        outcome := 'pod_spent';
        RETURN;
    END IF;

    -- The tenants that have work here, the least served first. The order may be a moment old; the limits are not.
    FOR turn IN SELECT * FROM claim_turns(p_pool, p_now, p_ageing, p_not_tenants, p_not_repositories, p_not_jobs) LOOP
        IF turn.used_vcpus >= turn.vcpus OR turn.used_memory_mib >= turn.memory_mib THEN
            capped := true;
            CONTINUE;
        END IF;
        SELECT * INTO room FROM limits WHERE tenant = turn.tenant AND os = turn.os FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            busy := busy || turn.tenant || turn.os;
            CONTINUE;
        END IF;
        holding := true;
        pick := claim_pick(p_pool, room, p_now, p_ageing, p_not_repositories, p_not_jobs);
        job := claim_take(pick.picked, room, p_pod, p_pod_uid, p_now);
        IF job.id IS NOT NULL THEN
            outcome := 'claimed';
            RETURN;
        END IF;
        lost := lost OR pick.lost;
        capped := capped OR NOT pick.lost;
    END LOOP;

    -- Everybody who has work is being claimed for right now. Wait for one of them, a little: a burst of one tenant would
    -- otherwise send almost everybody away. But wait for no limit while another one is held: two could wait for each other.
    IF array_length(busy, 1) > 0 AND p_wait_ms > 0 AND NOT holding THEN
        BEGIN
            PERFORM set_config('lock_timeout', p_wait_ms::text, true);
            SELECT * INTO room FROM limits WHERE tenant = busy[1] AND os = busy[2] FOR UPDATE;
            pick := claim_pick(p_pool, room, p_now, p_ageing, p_not_repositories, p_not_jobs);
            job := claim_take(pick.picked, room, p_pod, p_pod_uid, p_now);
            IF job.id IS NOT NULL THEN
                outcome := 'claimed';
                RETURN;
            END IF;
            lost := lost OR pick.lost;
            capped := capped OR NOT pick.lost;
            busy := busy[3:];
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END IF;

    outcome := CASE
        WHEN array_length(busy, 1) > 0 THEN 'busy'
        WHEN lost THEN 'lost_race'
        WHEN capped THEN 'capped'
        ELSE claim_refused(p_pool, p_now, p_not_tenants, p_not_repositories, p_not_jobs)
    END;
END
$$;
COMMENT ON FUNCTION claim_job(text, text, text, timestamptz, interval, bigint, text[], text[], text[]) IS
    'Gives a Pod the job whose turn it is, or says why there is none.';

CREATE FUNCTION claim_turns(
    p_pool text, p_now timestamptz, p_ageing interval, p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS TABLE (
    tenant text, os text, vcpus bigint, memory_mib bigint, used_vcpus bigint, used_memory_mib bigint,
    last_claimed_at timestamptz, oldest timestamptz
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
    SELECT h.tenant, h.os, l.vcpus, l.memory_mib, l.used_vcpus, l.used_memory_mib, l.last_claimed_at, h.queued_at
    FROM heads h JOIN limits l ON l.tenant = h.tenant AND l.os = h.os
    ORDER BY claim_rank(l.used_vcpus, l.used_memory_mib, l.vcpus, l.memory_mib,
        p_now - greatest(h.queued_at, l.last_claimed_at), p_ageing), h.queued_at, h.id
$$;
COMMENT ON FUNCTION claim_turns(text, timestamptz, interval, text[], text[], text[]) IS
    'The tenants with work in a pool and a limit, in the order of their turns.';

CREATE FUNCTION claim_refused(
    p_pool text, p_now timestamptz, p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN NOT EXISTS (SELECT FROM jobs WHERE state = 'queued' AND pool = p_pool) THEN 'empty'
        WHEN EXISTS (
            SELECT FROM jobs j WHERE j.state = 'queued' AND j.pool = p_pool
                AND (j.hold_until IS NULL OR j.hold_until <= p_now)
                AND j.tenant <> ALL (p_not_tenants) AND j.repository <> ALL (p_not_repositories) AND j.id <> ALL (p_not_jobs)
        ) THEN 'no_limits'
        ELSE 'held'
    END
$$;
COMMENT ON FUNCTION claim_refused(text, timestamptz, text[], text[], text[]) IS
    'Why nobody had a turn: nothing waits, it is held back, or its tenants have no limits.';

-- However a claim ends, its room is given back with it.
CREATE FUNCTION give_room_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE limits SET used_vcpus = used_vcpus - OLD.vcpus, used_memory_mib = used_memory_mib - OLD.memory_mib
    WHERE tenant = OLD.tenant AND os = OLD.os;
    PERFORM pg_notify('remuda_jobs', waiting.pool) FROM (
        SELECT DISTINCT pool FROM jobs WHERE state = 'queued' AND tenant = OLD.tenant AND os = OLD.os
    ) AS waiting;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION give_room_back() IS 'Takes an ended claim off its tenant''s use and wakes the pools in which the tenant waits.';
CREATE TRIGGER claims_give_room_back AFTER DELETE ON claims FOR EACH ROW EXECUTE FUNCTION give_room_back();
CREATE TRIGGER claims_keep_their_room BEFORE UPDATE ON claims FOR EACH ROW
    WHEN (OLD.tenant <> NEW.tenant OR OLD.os <> NEW.os OR OLD.vcpus <> NEW.vcpus OR OLD.memory_mib <> NEW.memory_mib
        OR OLD.pod <> NEW.pod OR OLD.pod_uid <> NEW.pod_uid OR OLD.claimed_at <> NEW.claimed_at)
    EXECUTE FUNCTION refuse('a claim keeps its Pod, its token and its room');

-- One channel for all pools; the payload is the pool. A listener wakes one of its waiters for each message.
CREATE FUNCTION tell_of_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('remuda_jobs', NEW.pool);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_of_job() IS 'Wakes a poll of the pool in whose queue a job now waits.';
CREATE TRIGGER jobs_tell AFTER INSERT OR UPDATE OF state ON jobs FOR EACH ROW
    WHEN (NEW.state = 'queued') EXECUTE FUNCTION tell_of_job();
