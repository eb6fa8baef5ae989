"""Hosts changed over SSH, in memory: what is remembered from one attempt to the next, and what is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.hosts.converging import Mode, Result
from remuda.hosts.decide.parts.sudo import PASSWORDLESS
from remuda.hosts.decide.wanted import FleetConfig, OwnConfig
from remuda.hosts.over_ssh import SshConverger
from remuda.model.secret import Secret
from remuda.ports.host_shell import HostKeyChanged, Ran, Target, Upload
from remuda.sim.host_shell import MemoryHost, MemoryShells

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.hosts.decide.facts import Fact, Facts
    from remuda.hosts.decide.step import Problem, Step
    from remuda.hosts.decide.wanted import Wanted
    from remuda.sim.host_shell import Called

TARGET = Target(address="10.0.0.1", user="m1", key=Secret(b"key"), trust_first=True)
OWN = OwnConfig(node="mini", user="m1", fleet="f")


@dataclass(frozen=True)
class Content:
    """A part that wants nothing."""

    name: str = "content"
    facts: tuple[Fact[object], ...] = ()

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del facts, wanted
        return ()


async def empty() -> bool:
    return True


async def _rooted(called: Called) -> Ran:
    del called
    return Ran(code=0)


async def test_a_mac_that_was_installed_anew_is_another_at_the_same_address(tmp_path: Path) -> None:
    mac = MemoryHost(
        user="m1",
        fingerprint="SHA256:first",
        keys={b"key"},
        programs={PASSWORDLESS.command.words[0]: _rooted},
    )
    pinned: list[str] = []

    async def pin(fingerprint: str) -> None:
        pinned.append(fingerprint)

    def shells() -> MemoryShells:
        opened = MemoryShells()
        opened.hosts["10.0.0.1", 22] = mac
        return opened

    file = Upload(tmp_path / "none", "0" * 64, 0)
    config = FleetConfig(agent=file, tart=file, tart_version="1", dispatch_url="https://d")
    operator = SshConverger(shells, config, (Content(),), clock=SystemClock())

    async def tried(target: Target) -> Result:
        outcome = await operator.converge(
            target, OWN, Mode.FIRST, emptied=empty, pin=pin, mint=None
        )
        return outcome.result

    assert await tried(TARGET) is Result.CONVERGED
    mac.fingerprint = "SHA256:second"  # it was given back, installed anew, and adopted again
    assert await tried(TARGET) is Result.CONVERGED
    assert pinned == ["SHA256:first", "SHA256:second"]
    with pytest.raises(HostKeyChanged):
        await tried(replace(TARGET, fingerprint="SHA256:first"))
