"""
Kill -9 the leader fifty times, at random moments, while pools roll, scale, are renamed and run jobs.

The seed is printed: REMUDA_SEED replays the same decisions of the test, though not the same races.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

from tests.support.history import is_busy
from tests.support.operated import check_always, operated
from tests.support.pool_checks import overreached

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.control_plane import RealControlPlane
    from tests.support.operated import Stage

KILLS = 50
LONGEST_REIGN_S = 1.2
SIZES = (8, 12, 16, 20)
CASCADES = ("background", "foreground", "orphan")


class Story:
    """What people and jobs do to the pools meanwhile."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._stage, self._fleet, self._chance = stage, stage.fleet, chance
        self._pools = 0
        self._images = 0
        self._jobs = 0
        self.pool = ""

    async def begin(self) -> None:
        await self._new_pool()
        await self._fleet.until(lambda: self._fleet.is_rolled(self.pool))

    async def go_on(self, number: int) -> None:
        """Do one thing. Every fifteenth is a rename, with jobs running."""
        self._hand_out(self._chance.randrange(1, 5))
        if number % 15 == 14:
            await self._rename()
        elif self._chance.random() < 0.5:
            await self._fleet.change_pool(self.pool, replicas=self._chance.choice(SIZES))
        else:
            await self._roll()

    async def end(self) -> None:
        """Hand out nothing more, and wait until all is as wanted."""
        fleet = self._fleet
        fleet.desk.forget_waiting()
        await fleet.until(lambda: not any(map(is_busy, fleet.runners(self.pool))))
        await fleet.until(lambda: list(fleet.now.pools) == [self.pool])
        await fleet.until(lambda: fleet.is_rolled(self.pool))

    async def _new_pool(self) -> None:
        self._pools += 1
        self.pool = f"mac-{self._pools}"
        await self._fleet.create_pool(self.pool, 12, rollout={"maxConcurrentPercent": 20})

    async def _rename(self) -> None:
        old = self.pool
        cascade = self._chance.choice(CASCADES)
        for _ in range(3):  # most likely some run when the pool goes; all must end by themselves
            self._hand_out(1)
        await self._stage.kubectl("delete", "rpool", old, f"--cascade={cascade}", "--wait=false")
        await self._new_pool()

    async def _roll(self) -> None:
        if self._images and self._chance.random() < 0.3:
            self._images -= 1  # taken back
        else:
            self._images += 1
        await self._fleet.change_pool(self.pool, image=f"registry.test/runner:{self._images}")

    def _hand_out(self, jobs: int) -> None:
        for _ in range(jobs):
            self._jobs += 1
            self._fleet.desk.queue(
                self.pool, f"job-{self._jobs}", lasts_s=self._chance.uniform(0.5, 8.0)
            )


async def test_fifty_leaders_are_killed_and_nobody_else_is(
    real_control_plane: RealControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("REMUDA_SEED") or random.SystemRandom().randrange(10**6))
    with capsys.disabled():
        sys.stdout.write(f"\nREMUDA_SEED={seed}\n")
    chance = random.Random(seed)  # noqa: S311 - a test's choices, to be replayed
    async with operated(real_control_plane, tmp_path) as stage:
        fleet, operators = stage.fleet, stage.operators
        story = Story(stage, chance)
        await story.begin()
        for number in range(KILLS):
            await story.go_on(number)
            leader = await operators.leader(fleet.kube)
            await fleet.clock.sleep(chance.uniform(0.0, LONGEST_REIGN_S))
            operators.kill(leader)
            operators.start()
        await story.end()

        await check_always(fleet)
        assert overreached(await fleet.recorder.caught_up()) == []
        assert len(fleet.desk.held) > KILLS, "jobs ran all the time"
