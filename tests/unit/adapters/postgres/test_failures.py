from __future__ import annotations

import pytest

from remuda.adapters.postgres.failures import (
    EmbeddedBusy,
    EmbeddedError,
    EmbeddedFailed,
    EmbeddedRefused,
    failure,
)

# As PostgreSQL 18.4 and its initdb wrote them.
FULL_WHEN_MADE = """creating directory /x/data.making ... ok
running bootstrap script ... 2026-11-16 00:50:53.910 UTC [1] FATAL:  \
could not extend file "base/1/2691": No space left on device
2026-11-16 00:50:53.910 UTC [1] HINT:  Check free disk space.
child process exited with exit code 1
"""
FULL_WHEN_STARTED = """2026-11-16 00:50:55.119 UTC [1] FATAL:  could not write lock file "postmaster.pid": \
No space left on device
"""
PORT = """2026-11-16 00:51:02.152 UTC [1] LOG:  starting PostgreSQL 18.4
2026-11-16 00:51:02.152 UTC [1] LOG:  could not bind IPv4 address "127.0.0.1": Address already in use
2026-11-16 00:51:02.153 UTC [1] FATAL:  could not create any TCP/IP sockets
"""
LOCKED = """2026-11-16 00:51:02.152 UTC [1] FATAL:  lock file "postmaster.pid" already exists
2026-11-16 00:51:02.152 UTC [1] HINT:  Is another postmaster (PID 7) running in data directory "/x/data"?
"""
OWNER = """2026-11-16 00:51:02.152 UTC [1] FATAL:  data directory "/x/data" has wrong ownership
"""
DAMAGED = """2026-11-16 00:51:02.152 UTC [1] LOG:  invalid checkpoint record
2026-11-16 00:51:02.152 UTC [1] PANIC:  could not locate a valid checkpoint record at 0/1559860
"""
UNKNOWN = """2026-11-16 00:51:02.152 UTC [1] FATAL:  the moon is in the wrong house
"""


@pytest.mark.parametrize(
    ("log", "kind", "why"),
    [
        pytest.param(FULL_WHEN_MADE, EmbeddedFailed, "disk is full", id="a disk too small"),
        pytest.param(FULL_WHEN_STARTED, EmbeddedFailed, "disk is full", id="a disk that ran full"),
        pytest.param(PORT, EmbeddedFailed, "port is in use", id="a port in use"),
        pytest.param(LOCKED, EmbeddedBusy, "another PostgreSQL runs", id="a second server"),
        pytest.param(OWNER, EmbeddedRefused, "not accessible", id="another owner"),
        pytest.param(DAMAGED, EmbeddedRefused, "is damaged", id="damaged data"),
        pytest.param(UNKNOWN, EmbeddedFailed, "the moon", id="anything else is quoted"),
        pytest.param("", EmbeddedFailed, "it said nothing", id="silence"),
    ],
)
def test_a_log_stands_for(log: str, kind: type[EmbeddedError], why: str) -> None:
    error = failure("It did not start", log, log_path="/x/postgres.log")

    assert type(error) is kind
    assert why in error.why
    assert error.fix
