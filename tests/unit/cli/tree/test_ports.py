"""Ports are chosen once, kept, and seen to be free."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from remuda.cli.tree.ports import NAMES, PortTaken, settle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_each_gets_one_of_its_own_and_keeps_it() -> None:
    first = settle({}, {})

    assert set(first) == set(NAMES)
    assert len(set(first.values())) == len(NAMES)
    assert settle({}, first) == first


def test_none_is_a_port_that_an_outgoing_connection_could_have_at_the_next_start() -> None:
    """Linux gives these ports from 32768 on, macOS from 49152 on."""
    assert all(1024 <= port < 32_768 for port in settle({}, {}).values())


def test_what_is_told_comes_before_what_was_kept() -> None:
    first = settle({}, {})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        other = free.getsockname()[1]

    assert settle({"server": other}, first) == {**first, "server": other}


def test_a_port_that_was_asked_for_and_is_taken_is_named(taken: int) -> None:
    with pytest.raises(PortTaken, match=f"127.0.0.1:{taken}") as caught:
        settle({"server": taken}, {})

    assert "--port" in caught.value.fix


def test_a_port_that_was_kept_and_is_taken_can_be_chosen_anew(taken: int) -> None:
    kept = {"control-plane": taken}
    with pytest.raises(PortTaken, match=r"--kube-port \(0 takes any\)"):
        settle({}, kept)

    assert settle({"control-plane": 0}, kept)["control-plane"] != taken
