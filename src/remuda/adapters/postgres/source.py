"""Which database is used: the server that ``REMUDA_DATABASE_URL`` names, or else an embedded one of our own."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from remuda.adapters.postgres.embedded import EmbeddedPostgres, running_dsn
from remuda.adapters.postgres.failures import EmbeddedBusy
from remuda.adapters.postgres.pool import DatabaseSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from remuda.adapters.postgres.embedded import EmbeddedSettings


@dataclass(frozen=True, slots=True)
class Source:
    """A database that can be connected to for as long as the block runs that opened it."""

    settings: DatabaseSettings
    embedded: EmbeddedPostgres | None

    async def watch(self) -> NoReturn:
        """Raise when an embedded server ends by itself. One that is not ours is watched by its own people."""
        if self.embedded is not None:
            await self.embedded.watch()
        while True:
            await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def join_source(env: Mapping[str, str], directory: Path) -> AsyncIterator[Source]:
    """Use the embedded server that another process runs in the directory, if one does; else as ``open_source``."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            source = await stack.enter_async_context(open_source(env, directory))
        except EmbeddedBusy:
            url = running_dsn(directory)
            if url is None:
                raise
            source = Source(DatabaseSettings(url=url, connections_min=1), None)
        yield source


@contextlib.asynccontextmanager
async def open_source(
    env: Mapping[str, str], directory: Path, embedded: EmbeddedSettings | None = None
) -> AsyncIterator[Source]:
    """Start the embedded server in the directory, unless the environment names another."""
    given = DatabaseSettings.from_env(env)
    if given is not None:
        yield Source(given, None)
        return
    async with EmbeddedPostgres(directory, embedded) as postgres:
        yield Source(DatabaseSettings(url=postgres.dsn), postgres)
