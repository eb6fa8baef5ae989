-- A claim takes one step in an index for each tenant and each repository, however long their queues are. Where most of a queue
-- was one repository's, its plan read and sorted all of it instead: some milliseconds for each claim with ten thousand jobs
-- waiting. Both ways to do that are closed; what has to be sorted (ranks, in memory) is sorted all the same.

ALTER FUNCTION claim_jobs(text, text[], text[], text[], timestamptz, interval, bigint, text[], text[], text[], text[])
    SET enable_bitmapscan = off;
ALTER FUNCTION claim_jobs(text, text[], text[], text[], timestamptz, interval, bigint, text[], text[], text[], text[])
    SET enable_sort = off;
