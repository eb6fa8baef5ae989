-- Files that go with a local job to its runner, and those that come back.

ALTER TABLE local_jobs ADD COLUMN files jsonb;
ALTER TABLE local_jobs ADD COLUMN files_note text;
COMMENT ON COLUMN local_jobs.files IS 'Which upload goes along, and which paths are to come back; null: none.';
COMMENT ON COLUMN local_jobs.files_note IS 'Why the files that were to come back did not, if that is known.';

CREATE TABLE local_files (
    file_id text PRIMARY KEY,
    way text NOT NULL,
    owner text NOT NULL,
    job_id text REFERENCES local_jobs (job_id) ON DELETE CASCADE,
    size_bytes bigint NOT NULL,
    kept_bytes bigint NOT NULL DEFAULT 0,
    touched_at timestamptz NOT NULL,
    fetched_by text,
    CONSTRAINT local_files_way CHECK (way IN ('in', 'out')),
    CONSTRAINT local_files_size CHECK (size_bytes > 0 AND kept_bytes BETWEEN 0 AND size_bytes),
    CONSTRAINT local_files_job CHECK (way = 'in' OR job_id IS NOT NULL),
    CONSTRAINT local_files_one_each UNIQUE (job_id, way)
);
COMMENT ON TABLE local_files IS 'Archives on their way to a runner (in) or back from one (out). Gone soon after their job is over.';
COMMENT ON COLUMN local_files.owner IS 'Who sent it: the name of a person''s token, or the UID of a Pod.';
COMMENT ON COLUMN local_files.job_id IS 'The one job that it belongs to; null: an upload that no job has taken yet.';
COMMENT ON COLUMN local_files.kept_bytes IS 'How much has arrived. All of it: the archive is whole, and never changes again.';
COMMENT ON COLUMN local_files.fetched_by IS 'UID of the last Pod that read an upload to its end: it may begin the job, no other.';
CREATE INDEX local_files_untaken ON local_files (touched_at) WHERE job_id IS NULL;

CREATE TABLE local_file_pieces (
    file_id text NOT NULL REFERENCES local_files (file_id) ON DELETE CASCADE,
    begins bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (file_id, begins),
    CONSTRAINT local_file_pieces_place CHECK (begins >= 0 AND length(data) > 0)
);
COMMENT ON TABLE local_file_pieces IS 'The archives'' bytes, in pieces that follow each other without gap or overlap.';
