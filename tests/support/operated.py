"""A fleet on the real API server with two operators, a leader and a standby: the stage of the operator's tests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from tests.support.dispatch_server import a_dispatch_server
from tests.support.fleet import a_fleet
from tests.support.operators import Operators
from tests.support.pool_checks import doubled, killed, leftovers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane
    from tests.support.dispatch_server import DispatchServer
    from tests.support.fleet import Fleet

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a test plays on."""

    plane: RealControlPlane
    fleet: Fleet
    operators: Operators
    dispatch: DispatchServer

    async def kubectl(self, *arguments: str) -> str:
        """Run it beside the loop: the hosts of this process must go on."""
        here = ("--namespace", self.fleet.namespace)
        return await asyncio.to_thread(self.plane.kubectl, *here, *arguments)


@asynccontextmanager
async def operated(
    plane: RealControlPlane, folder: Path, who: Callable[[str], Path] | None = None
) -> AsyncIterator[Stage]:
    """Start it all. ``who`` makes the operators' kubeconfig in the namespace; else they are administrators."""
    namespace = f"herd-{next(_numbers)}"
    async with (
        a_dispatch_server() as dispatch,
        a_fleet(plane.access.kubeconfig, namespace) as fleet,
    ):
        kubeconfig = who(namespace) if who else plane.access.kubeconfig
        with Operators(folder, kubeconfig, namespace, dispatch.url) as operators:
            await operators.leader(fleet.kube)
            yield Stage(plane, fleet, operators, dispatch)
            assert operators.crashed() == []


async def check_always(fleet: Fleet) -> None:
    """Check what holds of every run once it is calm: nothing left over, nobody killed, nobody doubled."""
    await fleet.until(lambda: leftovers(fleet.now) == [])
    steps = await fleet.recorder.caught_up()
    assert killed(steps) == []
    assert doubled(steps) == []
