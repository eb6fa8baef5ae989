from __future__ import annotations

import asyncpg
import pytest

from remuda.adapters.postgres.errors import Place, translated
from remuda.adapters.postgres.pool import DatabaseSettings
from remuda.model.errors import BadInput
from remuda.ports.database import (
    DatabaseConflict,
    DatabaseError,
    DatabaseRefused,
    DatabaseTimeout,
    DatabaseUnavailable,
)

CANARY = "hunter2/and%more"
URL = "postgresql://remuda:hunter2%2Fand%25more@db.example:5433/ci"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(ConnectionRefusedError(), DatabaseUnavailable, id="nobody listens"),
        pytest.param(asyncpg.ConnectionDoesNotExistError("x"), DatabaseUnavailable, id="cut off"),
        pytest.param(asyncpg.AdminShutdownError("x"), DatabaseUnavailable, id="shut down"),
        pytest.param(asyncpg.CannotConnectNowError("x"), DatabaseUnavailable, id="still starting"),
        pytest.param(asyncpg.TooManyConnectionsError("x"), DatabaseUnavailable, id="full"),
        pytest.param(asyncpg.DiskFullError("x"), DatabaseUnavailable, id="its disk is full"),
        pytest.param(asyncpg.ReadOnlySQLTransactionError("x"), DatabaseUnavailable, id="a standby"),
        pytest.param(
            asyncpg.InterfaceError("connection is closed"), DatabaseUnavailable, id="closed"
        ),
        pytest.param(
            asyncpg.InternalClientError(
                "cannot switch to state 12; another operation (2) is in progress"
            ),
            DatabaseUnavailable,
            id="told to go while idle",
        ),
        pytest.param(
            asyncpg.InternalClientError(
                "PoolConnectionHolder.release() called on a free connection holder"
            ),
            DatabaseUnavailable,
            id="ended while it was given back",
        ),
        pytest.param(TimeoutError(), DatabaseTimeout, id="no answer"),
        pytest.param(asyncpg.QueryCanceledError("x"), DatabaseTimeout, id="statement timeout"),
        pytest.param(asyncpg.LockNotAvailableError("x"), DatabaseTimeout, id="lock timeout"),
        pytest.param(asyncpg.DeadlockDetectedError("x"), DatabaseConflict, id="deadlock"),
        pytest.param(asyncpg.SerializationError("x"), DatabaseConflict, id="not serializable"),
        pytest.param(asyncpg.InvalidPasswordError("x"), DatabaseRefused, id="wrong password"),
        pytest.param(asyncpg.InvalidCatalogNameError("x"), DatabaseRefused, id="no such database"),
        pytest.param(asyncpg.InsufficientPrivilegeError("x"), DatabaseRefused, id="no right"),
        pytest.param(asyncpg.UndefinedTableError("x"), DatabaseRefused, id="not migrated"),
    ],
)
def test_what_the_driver_raises_says_what_to_do(
    error: Exception, kind: type[DatabaseError]
) -> None:
    with pytest.raises(DatabaseError) as raised, translated(Place(URL)):
        raise error

    assert type(raised.value) is kind
    assert "ci at db.example:5433" in str(raised.value)
    assert raised.value.why
    assert raised.value.fix


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(asyncpg.UniqueViolationError("duplicate"), id="a constraint is the store's"),
        pytest.param(asyncpg.InterfaceError("wrong argument"), id="a wrong call is our own bug"),
        pytest.param(asyncpg.InternalClientError("got lost"), id="a bug of the driver is a bug"),
    ],
)
def test_what_is_not_the_databases_fault_passes_through(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, translated(Place(URL)):
        raise error

    assert raised.value is error


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(URL, id="in the URL's usual place"),
        pytest.param(
            "postgresql://h/ci?user=u&password=hunter2%2Fand%25more", id="among its options"
        ),
    ],
)
def test_a_password_is_in_no_error(url: str) -> None:
    quoting = ConnectionError(f"cannot use {url}: {CANARY}")

    with pytest.raises(DatabaseUnavailable) as raised, translated(Place(url)):
        raise quoting

    told = f"{raised.value} {raised.value.__cause__} {DatabaseSettings(url=url)!r}"
    assert "hunter2" not in told
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    ("env", "url"),
    [
        pytest.param({}, None, id="none is named"),
        pytest.param({"REMUDA_DATABASE_URL": " "}, None, id="an empty one is none"),
        pytest.param({"REMUDA_DATABASE_URL": URL}, URL, id="one is named"),
    ],
)
def test_the_environment_names_a_server_or_not(env: dict[str, str], url: str | None) -> None:
    settings = DatabaseSettings.from_env(env)

    assert (settings.url if settings else None) == url


def test_a_url_of_another_kind_is_refused_without_being_shown() -> None:
    with pytest.raises(BadInput) as raised:
        DatabaseSettings.from_env({"REMUDA_DATABASE_URL": CANARY})

    assert CANARY not in str(raised.value)
