-- Whoever follows the audit by its numbers must miss none: a number may be committed after a greater one. So each entry
-- keeps the transaction that was to begin next when its number was given. Once all before that one have ended, every
-- smaller number is there, or will never be.

CREATE FUNCTION next_transaction() RETURNS xid8 LANGUAGE plpgsql AS $$
BEGIN
    -- A look of its own: the statement's is older than the number that it was just given.
    RETURN pg_snapshot_xmax(pg_current_snapshot());
END
$$;
COMMENT ON FUNCTION next_transaction() IS 'The transaction that begins next, as of this moment.';

ALTER TABLE decisions ADD COLUMN settled_by xid8;
ALTER TABLE decisions ALTER COLUMN settled_by SET DEFAULT next_transaction();
COMMENT ON COLUMN decisions.settled_by IS
    'When all transactions before this one have ended, no smaller number can appear. Null in entries of an older version.';

-- A number is given before the row is written; the transaction must have its own before that.
CREATE FUNCTION begin_transaction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_current_xact_id();
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION begin_transaction() IS 'Gives the transaction its number before a row gets one.';
CREATE TRIGGER decisions_in_order BEFORE INSERT ON decisions FOR EACH STATEMENT EXECUTE FUNCTION begin_transaction();
