"""
Everything is killed with SIGKILL at random moments under load: after the next ``up`` no job is lost or run twice.

The moments come from a seed: amid the first start, amid later ones, and while jobs are posted, handed over, run and
end. At some the VMs go on, as they do when only our processes are killed; at others they are killed with the rest, as
by a power cut. A job that runs then is lost with its runner, says so, and is not run again.

``make kills`` runs twenty rounds; ``make test`` runs ROUNDS of them. REMUDA_KILLS and REMUDA_KILLS_SEED choose others.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.adapters.system import SystemClock
from tests.support.burden import Burden
from tests.support.eventually import eventually
from tests.support.trees import UP_S, WAIT_S, Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS: Final = int(os.environ.get("REMUDA_KILLS", "4"))
SEED: Final = int(os.environ.get("REMUDA_KILLS_SEED", "6"))
FIRST_START_S: Final = 9.0
START_S: Final = 7.0
LOAD_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One start and its end."""

    amid_start: bool
    """Whether it is killed before it is up; else some time after."""
    after_s: float
    vms: bool
    """Whether the VMs are killed, too."""
    jobs: tuple[tuple[float, float], ...]
    """Once it is up: after how many seconds each job is sent, and how long it lasts."""


def rounds(seed: int, number: int) -> Iterator[Round]:
    chance = random.Random(seed)  # noqa: S311 - a test's moments
    kinds = ["first", "load", "power", "start"]
    for turn in range(number):
        kind = kinds[turn] if turn < len(kinds) else chance.choice(kinds[1:])
        starts = kind in {"first", "start"}
        after_s = chance.uniform(0, {"first": FIRST_START_S, "start": START_S}.get(kind, LOAD_S))
        jobs = () if starts else _jobs(chance)
        vms = kind == "power" or (kind == "start" and chance.random() < 0.3)
        yield Round(amid_start=starts, after_s=after_s, vms=vms, jobs=jobs)


def _jobs(chance: random.Random) -> tuple[tuple[float, float], ...]:
    number = chance.randint(4, 6)
    moments = sorted(chance.uniform(0, LOAD_S / 2) for _ in range(number))
    return tuple((at, chance.choice((0, 0.3, 1, 4))) for at in moments)


async def play(tree: Tree, burden: Burden, turn: Round) -> frozenset[str]:
    """Start it, work, kill it; return the runners whose VMs were killed."""
    process = await asyncio.to_thread(tree.begin_up)
    try:
        if turn.amid_start:
            await SystemClock().sleep(turn.after_s)
        else:
            said, _ = await asyncio.to_thread(process.communicate, timeout=UP_S)
            assert process.returncode == 0, f"{said}\n{tree.logs()}"
            await work(burden, turn)
    finally:
        process.kill()  # first: it may be about to start the rest
        process.communicate()
        lived = await asyncio.to_thread(tree.strike, vms=turn.vms)
    return lived if turn.vms else frozenset()


async def work(burden: Burden, turn: Round) -> None:
    """Send jobs at their moments, until the moment of the end."""
    clock = SystemClock()
    began = clock.monotonic()
    await burden.settle()
    try:
        async with asyncio.timeout(turn.after_s):
            for at, lasts_s in turn.jobs:
                await clock.sleep(max(0.0, began + at - clock.monotonic()))
                await burden.send(lasts_s)
            await asyncio.Event().wait()
    except TimeoutError:
        return


async def nothing_but_vms(tree: Tree) -> None:
    """See that nothing of the tree outlived the kill. What VMs do comes and goes meanwhile."""

    async def probe() -> set[int]:
        return set(tree.processes()) - tree.vm_processes()

    await eventually(probe, lambda left: left == set(), within_s=WAIT_S)


async def judge(burden: Burden, killed: frozenset[str]) -> dict[str, int]:
    """Hold each job against what it did by its own marks. Only who was on a VM that was killed may be lost."""
    outcomes = await burden.outcomes()
    lost = {key: said["pod"] for key, said in outcomes.items() if said["exit_code"] is None}
    for key, runner in lost.items():
        assert runner in killed, f"{key} on {runner or 'no runner'} was lost; killed: {killed}"
    assert len(set(lost.values())) == len(lost), f"two jobs had one runner: {lost}"
    for key, said in outcomes.items():
        marked = burden.marked(key)
        if key in lost:
            assert marked[0] <= 1, f"{key} was lost and ran twice"
            assert said["conclusion"] in {"failure", "lost"}, (key, said)
            assert said["reason"], f"nobody says why {key} was lost"
        else:
            assert said["conclusion"] == "success", (key, said)
            assert marked == (1, 1), f"{key} began and ended {marked} times"
    return {"jobs": len(outcomes), "lost with their VMs": len(lost), "VMs killed": len(killed)}


async def test_killed_as_a_whole_at_random_moments_it_loses_no_job_and_runs_none_twice(
    tmp_path: Path,
) -> None:
    print(f"REMUDA_KILLS={ROUNDS} REMUDA_KILLS_SEED={SEED}")  # noqa: T201 - pytest shows it where it fails
    with a_tree("--vms=2") as tree:
        burden, killed = Burden(tree, tmp_path), frozenset[str]()
        for number, turn in enumerate(rounds(SEED, ROUNDS), start=1):
            print(f"round {number}: {turn}")  # noqa: T201 - likewise
            killed |= await play(tree, burden, turn)
            await nothing_but_vms(tree)

        tree.up()
        await burden.settle()
        print(await judge(burden, killed))  # noqa: T201 - likewise

        said = tree.down()
        assert "It is down." in said
        await tree.until_gone()
