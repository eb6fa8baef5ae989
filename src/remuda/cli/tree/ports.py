"""Which ports the parts listen on: chosen once, kept, and seen to be free before anything starts."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING, Final

from remuda.model.errors import RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK: Final = "127.0.0.1"
NAMES: Final = ("server", "control-plane", "controller", "agent", "kubelet")
OPTIONS: Final = {"server": "--port", "control-plane": "--kube-port"}
QUIET: Final = range(20_000, 30_000)
"""Where no system takes the ports of its outgoing connections from: one of those may have ours when we start again."""
_TRIES: Final = 100


class PortTaken(RemudaError):
    """A port that was asked for, or had before, is used by somebody else."""

    retry = Retry.NEVER


def settle(told: Mapping[str, int | None], kept: Mapping[str, int]) -> dict[str, int]:
    """
    Return a port for each name: the one told, the one it had before, or any that is free. Raises PortTaken.

    0 told means: another one than before. All are held open until the last is chosen, so that no two are alike.
    """
    chosen: dict[str, int] = {}
    held: list[socket.socket] = []
    try:
        for name in NAMES:
            said = told.get(name)
            wanted = kept.get(name, 0) if said is None else said
            held.append(_listening(name, wanted) if wanted else _any())
            chosen[name] = int(held[-1].getsockname()[1])
    finally:
        for probe in held:
            probe.close()
    return chosen


def _any() -> socket.socket:
    """Listen on a quiet port that is free. If none is found, the system chooses."""
    for port in (*(secrets.choice(QUIET) for _ in range(_TRIES)), 0):
        probe = socket.socket()
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            probe.close()
            if not port:
                raise
        else:
            return probe
    raise AssertionError("the system chooses in the last round, or says why not")


def _listening(name: str, port: int) -> socket.socket:
    probe = socket.socket()
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        probe.listen()
    except OSError as error:
        probe.close()
        option = OPTIONS.get(name)
        other = f"choose another one with {option} (0 takes any)" if option else "free it"
        raise PortTaken(
            f"The {name} cannot listen on {LOOPBACK}:{port}",
            why=error.strerror or str(error),
            fix=f"Stop what uses that port, or {other}",
        ) from None
    return probe
