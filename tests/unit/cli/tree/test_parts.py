"""Each part is the real command, told only what it understands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from remuda.cli.main import remuda
from remuda.cli.tree.decide.driver import Size
from remuda.cli.tree.folder import Folder, Kept
from remuda.cli.tree.parts import (
    AGENT,
    CONTROL_PLANE,
    SERVER,
    STARTED,
    STOPPED,
    Layout,
    environment,
)
from remuda.cli.tree.ports import NAMES

LAYOUT = Layout(
    Folder(Path("/data")),
    Kept(
        node="mini",
        driver="process",
        image="process",
        vms=2,
        pool="default",
        ports={name: 9000 + number for number, name in enumerate(NAMES)},
    ),
)


@pytest.mark.parametrize("part", STARTED)
def test_a_part_takes_what_it_is_told(part: str) -> None:
    command = LAYOUT.command(part, Size(4, 2048))
    name, options = command[4], command[5:]
    found = remuda.get_command(click.Context(remuda), name)
    assert found is not None

    context = found.make_context(name, list(options), resilient_parsing=False)

    given = {option.split("=")[0] for option in options}
    known = {name for parameter in found.params for name in parameter.opts}
    assert given <= known
    if part != CONTROL_PLANE:
        assert Path("/data") in Path(str(context.params.get("data", "/data/x"))).parents


def test_every_part_is_stopped_and_has_an_address_of_its_own() -> None:
    assert set(STARTED) == set(STOPPED)
    assert len({LAYOUT.url(part) for part in STARTED}) == len(STARTED)
    assert LAYOUT.url(CONTROL_PLANE).startswith("https://127.0.0.1:")
    assert LAYOUT.metrics[SERVER] == f"{LAYOUT.url(SERVER)}/metrics"
    assert AGENT in LAYOUT.metrics


def test_settings_of_parts_go_through_and_those_of_other_commands_do_not() -> None:
    env = {"REMUDA_GITHUB_APP_ID": "1", "REMUDA_DATA": "/x", "REMUDA_API_TOKEN": "t", "PATH": "/b"}

    assert environment(env, "qemu") == {"REMUDA_GITHUB_APP_ID": "1", "PATH": "/b"}
