"""
One list of parts for the first boot and for drift, and the hash that says when a host must be looked at again.

A part is in the hash exactly if drift applies it, because both ask the same question, ``Part.fleet_state``. A host
records the hash only after every part of it was applied.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.step import Part
    from remuda.hosts.decide.wanted import FleetConfig


def drift_parts(config: FleetConfig, parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that are applied when the fleet's configuration moved: exactly those in its hash."""
    return tuple(part for part in parts if part.fleet_state(config) is not None)


def config_hash(config: FleetConfig, parts: Iterable[Part]) -> str:
    """Return what a host has recorded when it is as this configuration wants it. In hexadecimal."""
    digest = sha256()
    for part in parts:
        state = part.fleet_state(config)
        if state is not None:
            # The length keeps what ends one state and what begins the next name apart.
            digest.update(b"%s\0%d\0%s" % (part.name.encode(), len(state), state))
    return digest.hexdigest()
