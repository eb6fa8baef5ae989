"""Tokens of people: their form, their names and their ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch import tokens
from remuda.model.errors import BadInput
from remuda.ports.api_tokens import Role
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.tables import Tables
from tests.support.jobs import StillClock

TEXT = tokens.token_text(SeededIds(1, "test"))


async def made(
    name: str, lifetime: timedelta | None = None, kept: MemoryApiTokens | None = None
) -> tokens.NewToken:
    clock = StillClock()
    ids = SeededIds(2, name)
    store = kept or MemoryApiTokens(Tables(clock))
    return await tokens.create(store, name, Role.READ, ids=ids, clock=clock, lifetime=lifetime)


def test_tokens_are_long_and_unlike_each_other() -> None:
    ids = SeededIds(1, "many")
    many = {tokens.token_text(ids) for _ in range(100)}

    assert len(many) == 100
    assert all(tokens.is_token(text) and len(text) == 53 for text in many)


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
def test_a_typing_error_is_seen(place: int, letter: str) -> None:
    wrong = TEXT[:place] + letter + TEXT[place + 1 :]

    assert tokens.is_token(wrong) == (wrong == TEXT)


@given(st.text())
def test_other_text_is_no_token(text: str) -> None:
    assert not tokens.is_token(text)


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a b", "a\n", "ü", "a/b", "x" * 64, "a:b", "../a"]
)
def test_a_name_that_would_trouble_a_log_is_refused(name: str) -> None:
    with pytest.raises(BadInput):
        asyncio.run(made(name))


@pytest.mark.parametrize("name", ["a", "ci", "ci-dash.board_2", "x" * 63, "0"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert asyncio.run(made(name)).token.name == name


def test_a_token_can_expire_but_not_in_the_past() -> None:
    day = timedelta(days=1)

    assert asyncio.run(made("a", day)).token.expires_at == StillClock().now() + day
    with pytest.raises(BadInput, match="expired already"):
        asyncio.run(made("a", timedelta(0)))


def test_a_name_is_used_once() -> None:
    async def twice() -> None:
        kept = MemoryApiTokens(Tables(StillClock()))
        await made("a", kept=kept)
        await tokens.revoke(kept, "a")
        with pytest.raises(BadInput, match="there already"):
            await made("a", kept=kept)
        with pytest.raises(BadInput, match="revoked"):
            await tokens.revoke(kept, "a")

    asyncio.run(twice())
