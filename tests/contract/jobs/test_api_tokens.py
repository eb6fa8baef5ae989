"""Tokens of people and tools: found by their digest, until they are revoked or too old."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest

from remuda.ports.api_tokens import ApiToken, Role
from tests.support.jobs import START, Store


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def named(name: str, role: Role = Role.READ) -> ApiToken:
    return ApiToken(name=name, role=role, created_at=START)


@pytest.mark.parametrize("role", Role)
async def test_a_token_is_found_by_its_digest_alone(store: Store, role: Role) -> None:
    token = named("ci", role)
    assert await store.tokens.add(token, digest("one"))
    assert await store.tokens.find(digest("one")) == token
    assert await store.tokens.find(digest("other")) is None


async def test_a_name_and_a_digest_are_used_once(store: Store) -> None:
    assert await store.tokens.add(named("ci"), digest("one"))
    assert not await store.tokens.add(named("ci", Role.OPERATE), digest("two"))
    assert not await store.tokens.add(named("other"), digest("one"))
    assert await store.tokens.find(digest("two")) is None
    assert await store.tokens.all() == (named("ci"),)


async def test_a_revoked_token_opens_nothing_and_stays_on_the_list(store: Store) -> None:
    await store.tokens.add(named("b"), digest("b"))
    await store.tokens.add(named("a"), digest("a"))
    store.clock.forward(3)
    assert await store.tokens.revoke("b")
    assert not await store.tokens.revoke("b")
    assert not await store.tokens.revoke("nobody")
    assert await store.tokens.find(digest("b")) is None
    revoked = replace(named("b"), revoked_at=START + timedelta(seconds=3))
    assert await store.tokens.all() == (named("a"), revoked)
    assert not await store.tokens.add(named("b"), digest("new")), "a revoked name is not used again"


async def test_a_token_ends_at_its_time(store: Store) -> None:
    token = replace(named("ci"), expires_at=START + timedelta(seconds=10))
    await store.tokens.add(token, digest("one"))
    store.clock.forward(9)
    assert await store.tokens.find(digest("one")) == token
    store.clock.forward(1)
    assert await store.tokens.find(digest("one")) is None
