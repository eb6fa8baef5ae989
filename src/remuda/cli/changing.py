"""What commands that change a fleet have in common: the Kubernetes API, and waiting with a sign of life."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.cli.progress import Screen
from remuda.model.errors import RemudaError
from remuda.ports.kube import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.cli.finding import Where
    from remuda.cli.progress import Share
    from remuda.ports.clock import Clock

T = TypeVar("T")

LOOK_S: Final = 0.5


class WaitedInVain(RemudaError):
    """The change was made; what it leads to did not come in time."""


@asynccontextmanager
async def kube_of(where: Where) -> AsyncIterator[KubeClient]:
    """Return the Kubernetes API, closed at the end."""
    kube = KubeClient(HttpWire(where.connection()))
    try:
        yield kube
    finally:
        await kube.close()


async def until(
    probe: Callable[[], Awaitable[tuple[bool, str]]],
    clock: Clock,
    *,
    timeout_s: float | None,
    in_vain: Callable[[str], WaitedInVain],
    screen: Screen | None = None,
    share: Callable[[], Share] | None = None,
) -> None:
    """
    Look until ``probe`` says that it is over; what it says is shown, with ``share`` as a bar too.

    An API server that is away is waited for.
    """
    screen = screen or Screen(sys.stderr)
    began, last = clock.monotonic(), ""
    while True:
        try:
            over, last = await probe()
        except Unavailable as error:
            over, last = False, f"the Kubernetes API does not answer ({error.why})"
        waited_s = clock.monotonic() - began
        if over:
            screen.clear()
            return
        screen.progress(last, waited_s, share() if share else None)
        if timeout_s is not None and waited_s >= timeout_s:
            screen.clear()
            raise in_vain(last)
        await clock.sleep(LOOK_S)
