-- A claim adds up what each repository with waiting jobs has already, to know whose turn it is among those of a tenant. Where a
-- tenant's waiting jobs are all of one repository there is nothing to choose, and all its running jobs were read for nothing.

CREATE OR REPLACE FUNCTION claim_choose(
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
        -- What a repository has is asked only where it has rivals: without any its jobs go by age, and it may have a thousand.
        SELECT h.tenant, h.os, h.vcpus, h.memory_mib, h.used_vcpus, h.used_memory_mib, h.last_claimed_at, h.oldest, h.oldest_id,
            h.line, h.repository, h.id, h.queued_at, h.job_vcpus, h.job_memory_mib, u.*
        FROM (SELECT t.*, count(*) OVER (PARTITION BY t.tenant, t.os) > 1 AS rivals FROM heads t) h CROSS JOIN LATERAL (
            SELECT coalesce(sum(c.vcpus::double precision), 0) AS repository_vcpus,
                coalesce(sum(c.memory_mib::double precision), 0) AS repository_memory_mib, max(c.claimed_at) AS claimed_at
            FROM claims c WHERE h.rivals AND c.tenant = h.tenant AND c.os = h.os AND c.repository = h.repository) u
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
