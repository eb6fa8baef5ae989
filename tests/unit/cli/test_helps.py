"""Helps, as a newcomer reads them: every command has an example, its exit codes, and a word about each option."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
import pytest

from remuda.cli.main import COMMANDS, SECTIONS, remuda
from remuda.cli.token_listing import TOKENS, TokenRow, row_of, state
from remuda.ports.api_tokens import ApiToken, Role
from tests.support.memory_api import NOON

if TYPE_CHECKING:
    from collections.abc import Iterator


def leaves(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something itself."""
    if not isinstance(command, click.Group):
        yield context.command_path, command
        return
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        assert sub is not None
        yield from leaves(sub, click.Context(sub, info_name=name, parent=context))


ALL = dict(leaves(remuda, click.Context(remuda, info_name="remuda")))


def test_commands_are_found() -> None:
    assert {"remuda up", "remuda pools roll", "remuda server tokens list", "remuda top"} <= set(ALL)


@pytest.mark.parametrize("path", ALL)
def test_a_help_says_enough(path: str) -> None:
    command = ALL[path]
    assert "Example" in (command.help or ""), "no example"
    assert (command.epilog or "").startswith("Exit codes: "), "no exit codes"
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    assert [option.name for option in options if not option.help] == []


def test_every_command_stands_in_one_section_of_the_help() -> None:
    told = [name for names in SECTIONS.values() for name in names]
    assert len(told) == len(set(told))
    assert set(told) <= set(COMMANDS)
    text = click.Context(remuda, info_name="remuda").get_help()
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("expires", "revoked", "said"),
    [
        pytest.param(None, None, "good", id="for ever"),
        pytest.param(DAY, None, "good", id="until tomorrow"),
        pytest.param(-DAY, None, "expired", id="until yesterday"),
        pytest.param(DAY, -DAY, "revoked", id="ended by somebody"),
    ],
)
def test_how_a_token_is(expires: timedelta | None, revoked: timedelta | None, said: str) -> None:
    token = ApiToken(
        name="alice",
        role=Role.OPERATE,
        created_at=NOON - 2 * DAY,
        expires_at=None if expires is None else NOON + expires,
        revoked_at=None if revoked is None else NOON + revoked,
    )
    row = row_of(token)
    assert isinstance(row, TokenRow)
    assert state(row, NOON) == said
    assert TOKENS.key(row) == "alice"
