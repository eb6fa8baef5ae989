-- A job's end that was read off its Pod may come before the last of its output: until when that may still come.

ALTER TABLE local_jobs ADD COLUMN tells_end boolean NOT NULL DEFAULT false;
ALTER TABLE local_jobs ADD COLUMN more_until timestamptz;
COMMENT ON COLUMN local_jobs.tells_end IS 'Whether who began it said that it will tell its end too: an agent does, a Pod without one cannot.';
COMMENT ON COLUMN local_jobs.more_until IS 'The end was read off the Pod, and its agent may tell the rest until then; null: nothing more comes.';
