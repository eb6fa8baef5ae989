"""Asking the agent of this host to fetch an image: what comes back, who may ask, and who may go away."""

from __future__ import annotations

import asyncio
import json
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.stage_socket import SOCKET, NotStaged, ask_to_stage, serving_stage
from remuda.ports.vms import Refused
from tests.support.eventually import eventually, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Shelf:
    """Fetches one image well, and no other."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.fetched: list[str] = []

    async def stage(self, image: str, say: Callable[[str], None]) -> None:
        self.asked.append(image)
        say(f"{image} is being fetched")
        await self.go.wait()
        if image != "good:1":
            raise Refused("It was not fetched", why="there is none", fix="Name another")
        self.fetched.append(image)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a short name: a socket's is bounded."""
    with tempfile.TemporaryDirectory(prefix="remuda-") as made:
        yield Path(made)


async def test_it_is_told_how_far_it_is_and_when_it_is_there(folder: Path) -> None:
    shelf, said = Shelf(), list[str]()
    async with serving_stage(folder, shelf.stage):
        await within(ask_to_stage(folder, "good:1", said.append))
    assert shelf.fetched == ["good:1"]
    assert said == ["good:1 is being fetched"]


async def test_what_went_wrong_is_told_as_the_agent_says_it(folder: Path) -> None:
    async with serving_stage(folder, Shelf().stage):
        with pytest.raises(NotStaged) as raised:
            await within(ask_to_stage(folder, "bad:1", lambda _: None))
    error = raised.value
    assert (error.what, error.why, error.fix) == (
        *("It was not fetched", "there is none", "Name another"),
    )


async def test_a_bug_in_a_fetch_ends_that_call_and_not_the_agent(folder: Path) -> None:
    async def stage(image: str, _say: Callable[[str], None]) -> None:
        if image == "buggy:1":
            raise ZeroDivisionError("hunter2")

    async with serving_stage(folder, stage):
        with pytest.raises(NotStaged) as raised:
            await within(ask_to_stage(folder, "buggy:1", lambda _: None))
        await within(ask_to_stage(folder, "good:1", lambda _: None))
    assert "hunter2" not in str(raised.value)
    assert "log" in raised.value.fix


async def test_only_the_agents_own_user_may_ask(folder: Path) -> None:
    async with serving_stage(folder, Shelf().stage):
        assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
    assert not (folder / SOCKET).exists()


async def test_a_socket_of_a_killed_agent_is_replaced(folder: Path) -> None:
    (folder / SOCKET).write_text("left behind")
    shelf = Shelf()
    async with serving_stage(folder, shelf.stage):
        await within(ask_to_stage(folder, "good:1", lambda _: None))
    assert shelf.fetched == ["good:1"]


async def test_whoever_asked_may_go_and_the_image_still_comes(folder: Path) -> None:
    shelf = Shelf()
    shelf.go.clear()

    async def fetched() -> list[str]:
        return shelf.fetched

    async with serving_stage(folder, shelf.stage):
        _, writer = await asyncio.open_unix_connection(folder / SOCKET)
        writer.write(json.dumps({"image": "good:1"}).encode() + b"\n")
        await eventually(lambda: _value(shelf.asked))
        writer.close()
        await writer.wait_closed()
        shelf.go.set()
        await eventually(fetched)


async def test_an_agent_that_ends_leaves_nobody_waiting(folder: Path) -> None:
    shelf = Shelf()
    shelf.go.clear()
    async with asyncio.TaskGroup() as group:
        async with serving_stage(folder, shelf.stage):
            asking = group.create_task(_error_of(folder))
            await eventually(lambda: _value(shelf.asked))
        assert "ended meanwhile" in await within(asking)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"\n", id="nothing"),
        pytest.param(b"{}\n", id="no image"),
        pytest.param(b'{"image": ""}\n', id="an empty name"),
        pytest.param(b'{"image": "--help"}\n', id="an option in place of a name"),
        pytest.param(b'{"image": "a\\nb"}\n', id="two lines"),
        pytest.param(b'{"image": "' + b"x" * 40_000 + b'"}\n', id="far too much"),
    ],
)
async def test_what_makes_no_sense_is_refused(folder: Path, line: bytes) -> None:
    shelf = Shelf()
    async with serving_stage(folder, shelf.stage):
        reader, writer = await asyncio.open_unix_connection(folder / SOCKET)
        writer.write(line)
        answer = json.loads(await within(reader.readline()))
        writer.close()
    assert set(answer) == {"error"}
    assert shelf.asked == []


async def test_a_path_that_no_socket_can_have_only_costs_this_call(folder: Path) -> None:
    deep = folder / ("x" * 120)
    deep.mkdir()
    async with serving_stage(deep, Shelf().stage):
        assert "no agent could be asked" in await within(_error_of(deep))


async def _error_of(folder: Path) -> str:
    try:
        await ask_to_stage(folder, "good:1", lambda _: None)
    except NotStaged as error:
        return str(error)
    return ""


async def _value(of: list[str]) -> list[str]:
    return of
