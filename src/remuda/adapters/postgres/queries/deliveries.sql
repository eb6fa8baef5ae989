-- The inbox of the forge's messages.

-- name: record_deliveries
-- In the order given: that of messages about one job is kept by their numbers.
INSERT INTO deliveries (guid, event, subject, body, received_at)
SELECT m.guid, m.event, m.subject, m.body, $5
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) WITH ORDINALITY AS m (guid, event, subject, body, place)
ORDER BY m.place
ON CONFLICT DO NOTHING RETURNING guid;

-- name: take_deliveries
-- Not one whose job has an older message waiting. A message without a subject waits for nobody.
UPDATE deliveries d SET not_before = $2, attempts = d.attempts + 1
WHERE d.guid IN (
    SELECT t.guid FROM deliveries t
    WHERE t.processed_at IS NULL AND (t.not_before IS NULL OR t.not_before <= $1)
        AND (t.subject = '' OR NOT EXISTS (
            SELECT FROM deliveries o WHERE o.processed_at IS NULL AND o.subject = t.subject AND o.number < t.number))
    ORDER BY t.number LIMIT $3 FOR UPDATE SKIP LOCKED
)
RETURNING d.*;

-- name: process_delivery
UPDATE deliveries SET processed_at = $2, outcome = $3, body = NULL WHERE guid = $1 AND processed_at IS NULL RETURNING guid;

-- name: put_back_delivery
UPDATE deliveries SET not_before = $2 WHERE guid = $1 AND processed_at IS NULL RETURNING guid;

-- name: count_backlog
SELECT count(*) FROM deliveries WHERE processed_at IS NULL;

-- name: forget_deliveries
-- Some at a time: after a long rest there may be more than one statement has time for.
DELETE FROM deliveries WHERE guid IN (SELECT guid FROM deliveries WHERE processed_at < $1 LIMIT $2);
