-- What needs a session of its own: see locks.py and wakeups.py.

-- name: take_lock
SELECT pg_try_advisory_lock(3, hashtext($1));

-- name: give_lock_back
SELECT pg_advisory_unlock(3, hashtext($1));

-- name: still_there
SELECT 1;
