-- Whoever follows the audit by its numbers must miss none: a number may be committed after a greater one. So before a
-- transaction gets its first number, it shows for as long as it lasts how far the numbers were: a shared advisory lock whose
-- key is that number. It is waited for by nobody; a follower reads it in pg_locks and goes no further than the least.

CREATE FUNCTION show_numbering() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(
        (1::bigint << 62) + coalesce(pg_sequence_last_value('decisions_number_seq'), 0));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION show_numbering() IS 'Shows followers of the audit which numbers this transaction may still add.';
CREATE TRIGGER decisions_numbered BEFORE INSERT ON decisions FOR EACH STATEMENT EXECUTE FUNCTION show_numbering();

CREATE FUNCTION settled_decisions() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    -- First how far the numbers are, then who may still add one: whoever is not seen yet gets a greater number.
    last bigint := coalesce(pg_sequence_last_value('decisions_number_seq'), 0);
    open bigint;
BEGIN
    SELECT min((classid::bigint << 32) + objid::bigint) - (1::bigint << 62) INTO open FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >= 1::bigint << 30
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, open);
END
$$;
COMMENT ON FUNCTION settled_decisions() IS 'Up to which number nothing can be added to the audit any more.';

CREATE FUNCTION follow_decisions(p_after bigint, p_limit bigint) RETURNS SETOF decisions LANGUAGE plpgsql AS $$
DECLARE
    settled bigint := settled_decisions();
BEGIN
    -- A statement of its own: what it sees is younger than what was settled.
    RETURN QUERY SELECT * FROM decisions WHERE number > p_after AND number <= settled ORDER BY number LIMIT p_limit;
END
$$;
COMMENT ON FUNCTION follow_decisions(bigint, bigint) IS 'The audit after a number, without those that a smaller one may still come before.';
