"""A second process on the directory of an embedded server: it joins where that is meant, and is refused elsewhere."""

from __future__ import annotations

import pytest

from remuda.adapters.postgres.failures import EmbeddedBusy
from remuda.adapters.postgres.migrate import migrate, pending
from remuda.adapters.postgres.source import join_source, open_source
from tests.support.postgres import private_folder


async def test_a_command_joins_the_server_that_a_running_process_has() -> None:
    folder = private_folder()
    async with open_source({}, folder) as first:
        await migrate(first.settings)
        async with join_source({}, folder) as second:
            assert second.embedded is None, "it does not own the server"
            assert await pending(second.settings) == ()
        with pytest.raises(EmbeddedBusy, match="in use by process"):
            async with open_source({}, folder):
                pytest.fail("two cannot own it")


async def test_a_command_starts_the_server_itself_if_nobody_runs_it() -> None:
    folder = private_folder()
    async with join_source({}, folder) as source:
        assert source.embedded is not None
        await migrate(source.settings)
    async with join_source({}, folder) as source:
        assert await pending(source.settings) == ()
