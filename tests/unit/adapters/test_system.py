from __future__ import annotations

import asyncio
import re
from datetime import UTC
from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock, SystemIds

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids


async def test_the_wall_clock_is_utc_and_the_monotonic_one_is_the_loops() -> None:
    clock: Clock = SystemClock()

    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.009
    assert abs(clock.monotonic() - asyncio.get_running_loop().time()) < 1


def test_ids_look_as_kubernetes_writes_them_and_do_not_repeat() -> None:
    ids: Ids = SystemIds()

    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", ids.uid())
    assert re.fullmatch(r"[bcdfghjklmnpqrstvwxz2456789]{5}", ids.suffix())
    assert len(ids.suffix(9)) == 9
    assert len(ids.secret()) == 32
    assert len({ids.uid() for _ in range(100)} | {ids.secret().hex() for _ in range(100)}) == 200
    assert all(0 <= ids.fraction() < 1 for _ in range(100))
