-- Archives that came back go soon after they were fetched, and what a job needs is said where jobs are claimed.

ALTER TABLE local_files ADD COLUMN fetched_at timestamptz;
COMMENT ON COLUMN local_files.fetched_at IS 'When somebody last fetched all of what came back: it is needed for a moment more, and no longer.';

-- While a fleet is upgraded, replicas of two versions claim from one queue. The older one must not hand out a job that it
-- does not understand: it would run, and not as it was asked for. So a job says what must be known of it, in words, before
-- it is in the queue; and each claim says which words its replica knows. Who calls a claim of before knows none.
CREATE TABLE job_needs (
    job_id text NOT NULL REFERENCES local_jobs (job_id) ON DELETE CASCADE,
    need text NOT NULL,
    PRIMARY KEY (job_id, need)
);
COMMENT ON TABLE job_needs IS 'What a replica must know of to hand a job out. Gone with the job''s end, or with the job: a replica of the version before ends jobs and does not know of this.';
COMMENT ON COLUMN job_needs.job_id IS 'The job; written down before it is enqueued.';
COMMENT ON COLUMN job_needs.need IS 'A word, such as files.';
INSERT INTO job_needs (job_id, need) SELECT job_id, 'files' FROM local_jobs WHERE files IS NOT NULL AND ended_at IS NULL;

CREATE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_runners text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[], p_knows text[]
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
COMMENT ON FUNCTION claim_jobs(
    text, text[], text[], text[], timestamptz, interval, bigint, text[], text[], text[], text[]
) IS
    'Gives each Pod the job whose turn it is and of which the caller knows all, and notes its runner, or says why there is none.';

CREATE OR REPLACE FUNCTION claim_jobs(
    p_pool text, p_pods text[], p_pod_uids text[], p_runners text[], p_now timestamptz, p_ageing interval, p_wait_ms bigint,
    p_not_tenants text[], p_not_repositories text[], p_not_jobs text[]
) RETURNS TABLE (place bigint, outcome text, job jobs) LANGUAGE sql AS $$
    SELECT * FROM claim_jobs(p_pool, p_pods, p_pod_uids, p_runners, p_now, p_ageing, p_wait_ms, p_not_tenants,
        p_not_repositories, p_not_jobs, '{}'::text[])
$$;
COMMENT ON FUNCTION claim_jobs(text, text[], text[], text[], timestamptz, interval, bigint, text[], text[], text[]) IS
    'The same for a replica of the version before, which knows of nothing that a job may need.';
