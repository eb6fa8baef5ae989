-- What forges and people bring along: registrations that may have to be removed, jobs without a forge, tokens.

CREATE TABLE registrations (
    runner_name text PRIMARY KEY,
    kind text NOT NULL,
    tenant text NOT NULL,
    repository text NOT NULL,
    job_id text NOT NULL,
    pod text NOT NULL,
    scope text NOT NULL,
    number bigint,
    noted_at timestamptz NOT NULL,
    CONSTRAINT registrations_name CHECK (runner_name <> '' AND length(runner_name) <= 64)
);
COMMENT ON TABLE registrations IS 'Runners that a forge was asked to register and that may be unused. Written before the mint; gone once used or removed.';
COMMENT ON COLUMN registrations.scope IS 'Where the forge keeps it; empty until it answered.';
COMMENT ON COLUMN registrations.number IS 'The forge''s own number; null until it answered.';
CREATE INDEX registrations_age ON registrations (noted_at);

CREATE TABLE local_jobs (
    job_id text PRIMARY KEY,
    request text NOT NULL,
    script text,
    env jsonb,
    timeout_s bigint NOT NULL,
    submitted_by text NOT NULL,
    submitted_at timestamptz NOT NULL,
    started_at timestamptz,
    begun_by text,
    pod text,
    ended_at timestamptz,
    conclusion text,
    exit_code bigint,
    reason text,
    cancelled_at timestamptz,
    log_bytes bigint NOT NULL DEFAULT 0,
    log_cut boolean NOT NULL DEFAULT false,
    CONSTRAINT local_jobs_timeout CHECK (timeout_s > 0),
    CONSTRAINT local_jobs_script CHECK ((ended_at IS NULL) = (script IS NOT NULL) AND (script IS NULL) = (env IS NULL)),
    CONSTRAINT local_jobs_begin CHECK ((started_at IS NULL) = (begun_by IS NULL) AND (pod IS NULL) = (begun_by IS NULL)),
    CONSTRAINT local_jobs_end CHECK (
        (ended_at IS NULL) = (conclusion IS NULL)
        AND (ended_at IS NOT NULL OR (exit_code IS NULL AND reason IS NULL))
    ),
    CONSTRAINT local_jobs_one_runner UNIQUE (begun_by)
);
COMMENT ON TABLE local_jobs IS 'Jobs without a forge: what to run and what became of it.';
COMMENT ON COLUMN local_jobs.script IS 'Kept until the job is over. No place for secrets.';
COMMENT ON COLUMN local_jobs.env IS 'Likewise.';
COMMENT ON COLUMN local_jobs.request IS 'SHA-256 of what was asked for: tells a repeated request from another under the same key.';
COMMENT ON COLUMN local_jobs.begun_by IS 'UID of the Pod that began it: no other may, and that Pod begins no other.';
COMMENT ON COLUMN local_jobs.pod IS 'The name of that Pod.';
COMMENT ON COLUMN local_jobs.started_at IS 'When the script began: after that it is never run again.';
COMMENT ON COLUMN local_jobs.conclusion IS 'How it ended, in the words of jobs.conclusion.';
COMMENT ON COLUMN local_jobs.log_bytes IS 'How much of its output is kept.';
COMMENT ON COLUMN local_jobs.log_cut IS 'There was more output than is kept.';
CREATE INDEX local_jobs_ended ON local_jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX local_jobs_open ON local_jobs (submitted_at) WHERE ended_at IS NULL;

CREATE TABLE local_logs (
    job_id text NOT NULL REFERENCES local_jobs (job_id) ON DELETE CASCADE,
    begins bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (job_id, begins),
    CONSTRAINT local_logs_place CHECK (begins >= 0 AND length(data) > 0)
);
COMMENT ON TABLE local_logs IS 'What local jobs printed, in pieces that follow each other without gap or overlap.';

CREATE TABLE api_tokens (
    name text PRIMARY KEY,
    digest bytea NOT NULL,
    role text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_tokens_role CHECK (role IN ('read', 'operate')),
    CONSTRAINT api_tokens_digest CHECK (length(digest) = 32),
    CONSTRAINT api_tokens_unique UNIQUE (digest)
);
COMMENT ON TABLE api_tokens IS 'Who may use the API. Only the SHA-256 of a token is kept.';
