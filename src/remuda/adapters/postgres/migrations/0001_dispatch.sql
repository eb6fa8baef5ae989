-- The tables of dispatch. What must never be is refused here, whatever the code does. No column holds a job config, a
-- token or any other secret.

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME;
END
$$;
COMMENT ON FUNCTION refuse() IS 'Stops a statement that would break a rule; the rule is the argument of the trigger.';

-- Jobs ---------------------------------------------------------------------------------------------------------------

CREATE TABLE jobs (
    id text PRIMARY KEY,
    kind text NOT NULL,
    tenant text NOT NULL,
    repository text NOT NULL,
    pool text NOT NULL,
    os text NOT NULL,
    vcpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    label text NOT NULL,
    labels text[] NOT NULL,
    name text NOT NULL,
    workflow text NOT NULL,
    run_id bigint,
    run_attempt bigint,
    branch text NOT NULL,
    commit text NOT NULL,
    url text NOT NULL,
    fork boolean NOT NULL,
    queued_at timestamptz NOT NULL,
    state text NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    hold_until timestamptz,
    pod text,
    pod_uid text,
    claimed_at timestamptz,
    runner_name text,
    started_at timestamptz,
    ended_at timestamptz,
    conclusion text,
    CONSTRAINT jobs_names CHECK (id <> '' AND tenant <> '' AND pool <> ''),
    CONSTRAINT jobs_kind CHECK (kind IN ('github', 'local')),
    CONSTRAINT jobs_os CHECK (os IN ('linux', 'darwin')),
    CONSTRAINT jobs_size CHECK (vcpus > 0 AND memory_mib > 0),
    CONSTRAINT jobs_hold CHECK ((pod IS NULL) = (claimed_at IS NULL) AND (pod IS NULL) = (pod_uid IS NULL)),
    CONSTRAINT jobs_state CHECK (
        CASE state
            WHEN 'queued' THEN num_nonnulls(pod, runner_name, started_at, ended_at, conclusion) = 0
            WHEN 'claimed' THEN pod IS NOT NULL AND num_nonnulls(runner_name, started_at, ended_at, conclusion) = 0
            WHEN 'running' THEN num_nulls(pod, runner_name, started_at) = 0 AND num_nonnulls(ended_at, conclusion) = 0
            WHEN 'completed' THEN ended_at IS NOT NULL AND conclusion IS NOT NULL AND conclusion <> 'cancelled'
            WHEN 'cancelled' THEN ended_at IS NOT NULL AND conclusion IS NOT DISTINCT FROM 'cancelled'
            ELSE false
        END
    )
);
COMMENT ON TABLE jobs IS 'One row for each job of a forge: where it belongs and how far it is. A row that is over never changes.';
COMMENT ON COLUMN jobs.id IS 'Unique over all forges: host and number.';
COMMENT ON COLUMN jobs.vcpus IS 'What it takes of its tenant''s limit; fixed when it was queued.';
COMMENT ON COLUMN jobs.memory_mib IS 'Likewise.';
COMMENT ON COLUMN jobs.label IS 'The requested label that matched the pool.';
COMMENT ON COLUMN jobs.queued_at IS 'Its place in the queue; kept when it comes back.';
COMMENT ON COLUMN jobs.state IS 'queued, claimed, running, completed or cancelled.';
COMMENT ON COLUMN jobs.attempts IS 'How often it was claimed.';
COMMENT ON COLUMN jobs.hold_until IS 'Not handed out before then.';
COMMENT ON COLUMN jobs.pod IS 'Who has it, or had it last.';
COMMENT ON COLUMN jobs.claimed_at IS 'The fencing token of the claim that it is bound to.';
COMMENT ON COLUMN jobs.runner_name IS 'The runner that executes it, as far as is known.';

-- The order of turns: a tenant's oldest job in a pool, and a repository's oldest job of a tenant. `os` and the size come
-- along so that a claim reads the table only for the job that it takes.
CREATE INDEX jobs_turn_of_tenant ON jobs (pool, tenant, queued_at, id) WHERE state = 'queued';
CREATE INDEX jobs_turn_of_repository ON jobs (pool, tenant, repository, queued_at, id) WHERE state = 'queued';
CREATE INDEX jobs_queued_of_tenant ON jobs (tenant, os, queued_at, id) WHERE state = 'queued';
CREATE INDEX jobs_on_pod ON jobs (pod) WHERE state IN ('claimed', 'running');
CREATE INDEX jobs_place ON jobs (queued_at, id);

CREATE TRIGGER jobs_over_is_over BEFORE UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.state IN ('completed', 'cancelled'))
    EXECUTE FUNCTION refuse('a job that is over never changes');
CREATE TRIGGER jobs_never_lost BEFORE DELETE ON jobs FOR EACH ROW
    WHEN (OLD.state NOT IN ('completed', 'cancelled'))
    EXECUTE FUNCTION refuse('a job that is not over is never deleted');
CREATE TRIGGER jobs_place_kept BEFORE UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.queued_at <> NEW.queued_at OR OLD.id <> NEW.id OR OLD.tenant <> NEW.tenant OR OLD.pool <> NEW.pool)
    EXECUTE FUNCTION refuse('a job keeps its place, its tenant and its pool');

-- Claims -------------------------------------------------------------------------------------------------------------

CREATE TABLE claims (
    job_id text PRIMARY KEY,
    pod text NOT NULL,
    pod_uid text NOT NULL,
    claimed_at timestamptz NOT NULL,
    tenant text NOT NULL,
    repository text NOT NULL,
    pool text NOT NULL,
    os text NOT NULL,
    vcpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    runner_name text,
    delivered_at timestamptz,
    executed_at timestamptz,
    pod_missing_since timestamptz,
    CONSTRAINT claims_names CHECK (job_id <> '' AND pod <> '' AND pod_uid <> ''),
    CONSTRAINT claims_os CHECK (os IN ('linux', 'darwin')),
    CONSTRAINT claims_size CHECK (vcpus > 0 AND memory_mib > 0),
    CONSTRAINT claims_delivery CHECK ((runner_name IS NULL) = (delivered_at IS NULL)),
    CONSTRAINT claims_execution CHECK (executed_at IS NULL OR runner_name IS NOT NULL),
    CONSTRAINT claims_one_per_pod UNIQUE (pod)
) WITH (fillfactor = 80);
COMMENT ON TABLE claims IS 'Who holds which job now, and the room that it takes. Gone when it ends; never more than one for a job or a Pod.';
COMMENT ON COLUMN claims.job_id IS 'The job that the Pod runs, as far as is known. It changes when the forge gives the runner another job.';
COMMENT ON COLUMN claims.claimed_at IS 'The fencing token: each release names it.';
COMMENT ON COLUMN claims.runner_name IS 'Set when a job config was minted.';
COMMENT ON COLUMN claims.delivered_at IS 'When that was.';
COMMENT ON COLUMN claims.executed_at IS 'When the forge said that the runner executes the job; until then the job is a guess.';
COMMENT ON COLUMN claims.pod_missing_since IS 'When a sweep first did not see the Pod.';
CREATE UNIQUE INDEX claims_of_runner ON claims (tenant, runner_name) WHERE runner_name IS NOT NULL;
CREATE INDEX claims_of_repository ON claims (tenant, os, repository);

-- Limits -------------------------------------------------------------------------------------------------------------

CREATE TABLE limits (
    tenant text NOT NULL,
    os text NOT NULL,
    vcpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    used_vcpus bigint NOT NULL DEFAULT 0,
    used_memory_mib bigint NOT NULL DEFAULT 0,
    last_claimed_at timestamptz,
    PRIMARY KEY (tenant, os),
    CONSTRAINT limits_os CHECK (os IN ('linux', 'darwin')),
    CONSTRAINT limits_size CHECK (vcpus >= 0 AND memory_mib >= 0),
    CONSTRAINT limits_room_given_back_once CHECK (used_vcpus >= 0 AND used_memory_mib >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE limits IS 'What a tenant may use at once on one OS, and what its claims use. A tenant without a row gets no job.';
COMMENT ON COLUMN limits.used_vcpus IS 'The sum over the tenant''s claims: added by the claim, given back by the end of the claim''s row.';
COMMENT ON COLUMN limits.used_memory_mib IS 'Likewise.';
COMMENT ON COLUMN limits.last_claimed_at IS 'The newest fencing token; the next is greater. Who was served long ago goes first.';

CREATE TRIGGER limits_never_exceeded BEFORE UPDATE ON limits FOR EACH ROW
    WHEN ((NEW.used_vcpus > OLD.used_vcpus AND NEW.used_vcpus > NEW.vcpus)
        OR (NEW.used_memory_mib > OLD.used_memory_mib AND NEW.used_memory_mib > NEW.memory_mib))
    EXECUTE FUNCTION refuse('a tenant never gets more than its limit');
CREATE TRIGGER limits_in_use_stay BEFORE DELETE ON limits FOR EACH ROW
    WHEN (OLD.used_vcpus > 0 OR OLD.used_memory_mib > 0)
    EXECUTE FUNCTION refuse('a limit that is in use is not deleted');

-- Sessions -----------------------------------------------------------------------------------------------------------

CREATE TABLE sessions (
    pod_uid text PRIMARY KEY,
    pod text NOT NULL,
    job_id text NOT NULL,
    executed_job_id text,
    tenant text NOT NULL,
    repository text NOT NULL,
    pool text NOT NULL,
    os text NOT NULL,
    vcpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    runner_name text NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    job_started_at timestamptz,
    job_ended_at timestamptz,
    exit_code bigint,
    end_reason text,
    CONSTRAINT sessions_os CHECK (os IN ('linux', 'darwin')),
    CONSTRAINT sessions_end CHECK (ended_at >= started_at),
    CONSTRAINT sessions_window CHECK ((job_started_at IS NULL) = (job_ended_at IS NULL) AND job_ended_at >= job_started_at)
);
COMMENT ON TABLE sessions IS 'One row for each Pod that got a job: how long it was occupied and what it ran. A Pod gets one job in its life.';
COMMENT ON COLUMN sessions.job_id IS 'The job that the Pod was claimed for.';
COMMENT ON COLUMN sessions.executed_job_id IS 'The job that the forge gave it.';
COMMENT ON COLUMN sessions.started_at IS 'When the Pod was claimed.';
COMMENT ON COLUMN sessions.ended_at IS 'When the Pod stopped; a later report may only shorten it.';
COMMENT ON COLUMN sessions.job_started_at IS 'The forge''s own times of the job: what is accounted.';
CREATE INDEX sessions_open ON sessions (pool, pod) WHERE ended_at IS NULL;
CREATE INDEX sessions_of_pod ON sessions (pod, started_at);
CREATE INDEX sessions_of_runner ON sessions (tenant, runner_name);
CREATE INDEX sessions_recent ON sessions (pool, ended_at);
CREATE TRIGGER sessions_only_shorten BEFORE UPDATE ON sessions FOR EACH ROW
    WHEN (OLD.ended_at IS NOT NULL AND (NEW.ended_at IS NULL OR NEW.ended_at > OLD.ended_at))
    EXECUTE FUNCTION refuse('the end of a session may only move forward in time, never back');

-- What outlives everything -------------------------------------------------------------------------------------------

CREATE TABLE completions (
    job_id text PRIMARY KEY,
    conclusion text NOT NULL,
    ended_at timestamptz NOT NULL,
    CONSTRAINT completions_conclusion CHECK (conclusion <> '')
);
COMMENT ON TABLE completions IS 'Jobs that are over, also those that were never in the queue. A late message cannot bring one back.';
CREATE TRIGGER completions_stay BEFORE UPDATE ON completions FOR EACH ROW
    EXECUTE FUNCTION refuse('how a job ended never changes');

CREATE FUNCTION refuse_resurrection() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM completions WHERE job_id = NEW.id) THEN
        RAISE EXCEPTION 'the job % is over and does not come back', NEW.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION refuse_resurrection() IS 'Keeps a job that is over out of the queue.';
CREATE TRIGGER jobs_no_resurrection BEFORE INSERT OR UPDATE OF state ON jobs FOR EACH ROW
    WHEN (NEW.state = 'queued') EXECUTE FUNCTION refuse_resurrection();

CREATE TABLE decisions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    who text NOT NULL,
    what text NOT NULL,
    why text NOT NULL,
    job_id text NOT NULL,
    pod text NOT NULL,
    tenant text NOT NULL,
    pool text NOT NULL
);
COMMENT ON TABLE decisions IS 'The audit: who changed what, and why, in the same transaction as the change. Only appended to; rows may go after 30 days.';
COMMENT ON COLUMN decisions.number IS 'In the order of writing, which is not quite the order of commits.';
CREATE INDEX decisions_of_job ON decisions (job_id, number);
CREATE TRIGGER decisions_stay BEFORE UPDATE ON decisions FOR EACH ROW
    EXECUTE FUNCTION refuse('the audit is only appended to');
CREATE TRIGGER decisions_kept BEFORE DELETE ON decisions FOR EACH ROW
    WHEN (OLD.at > now() - interval '30 days')
    EXECUTE FUNCTION refuse('the audit is kept for 30 days');

CREATE TABLE deliveries (
    guid text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    event text NOT NULL,
    subject text NOT NULL,
    body bytea,
    received_at timestamptz NOT NULL,
    not_before timestamptz,
    attempts bigint NOT NULL DEFAULT 0,
    processed_at timestamptz,
    outcome text,
    CONSTRAINT deliveries_body CHECK ((processed_at IS NULL) = (body IS NOT NULL)),
    CONSTRAINT deliveries_outcome CHECK ((processed_at IS NULL) = (outcome IS NULL))
);
COMMENT ON TABLE deliveries IS 'Messages of the forge: durable before they are answered, known by their GUID afterwards.';
COMMENT ON COLUMN deliveries.subject IS 'The job it is about; one message about a job is worked at a time, the oldest first.';
COMMENT ON COLUMN deliveries.body IS 'The signed body; gone once it is worked off.';
COMMENT ON COLUMN deliveries.not_before IS 'Somebody works on it until then, or it failed and waits.';
CREATE INDEX deliveries_backlog ON deliveries (number) WHERE processed_at IS NULL;
CREATE INDEX deliveries_of_subject ON deliveries (subject, number) WHERE processed_at IS NULL;
CREATE INDEX deliveries_done ON deliveries (processed_at) WHERE processed_at IS NOT NULL;
