"""What the world does to a process, as the process and the others see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import LEASE, SERVICE_ACCOUNT, Lease, LeaseSpec
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.ports.kube import NotFound, TimedOut, Unavailable
from remuda.sim.checkers import Checkers, Observed, Verdict
from remuda.sim.logs import captured
from remuda.sim.loop import run
from remuda.sim.trace import Trace
from remuda.sim.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.sim.trace import TraceEvent


def in_world(story: Callable[[World], Awaitable[None]]) -> tuple[Verdict, list[TraceEvent]]:
    events: list[TraceEvent] = []

    async def main() -> Verdict:
        loop = asyncio.get_running_loop()
        verdict = Verdict(1, "remuda sim --again", Trace(loop.time, events.append))
        with captured(verdict, loop.time):
            async with World.open(verdict) as world:
                await story(world)
        return verdict

    return run(main), events


def a_lease(name: str) -> Lease:
    meta = ObjectMeta(name=name, namespace="default")
    return Lease(metadata=meta, spec=LeaseSpec(holder_identity=name))


def test_a_crashed_process_loses_its_memory_and_comes_back() -> None:
    lives: list[int] = []

    async def main(process: Process) -> None:
        lives.append(process.life)
        await asyncio.Event().wait()

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(1)
        world.crash("a", restart_after_s=10)
        await asyncio.sleep(5)
        assert lives == [1]
        await asyncio.sleep(6)
        assert lives == [1, 2]

    in_world(story)


def test_nothing_that_a_dying_process_does_reaches_the_world() -> None:
    refused: list[str] = []

    async def main(process: Process) -> None:
        await process.kube.create(LEASE, a_lease("a"))
        try:
            await asyncio.Event().wait()
        finally:
            patch = MergePatch({"spec": {"holderIdentity": "a tidy end"}})
            try:
                await process.kube.patch(LEASE, "a", patch, namespace="default")
            except Unavailable as error:
                refused.append(str(error))

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(1)
        world.crash("a", restart_after_s=1000)
        await asyncio.sleep(1)
        lease = world.plane.store.get(LEASE, "default", "a")
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == "a"

    in_world(story)
    assert len(refused) == 1


def test_a_process_that_is_told_to_stop_may_say_goodbye_and_comes_back() -> None:
    lives: list[int] = []

    async def main(process: Process) -> None:
        lives.append(process.life)
        if process.life == 1:
            await process.kube.create(LEASE, a_lease("a"))
        try:
            await asyncio.Event().wait()
        finally:
            patch = MergePatch({"spec": {"holderIdentity": "a tidy end"}})
            await process.kube.patch(LEASE, "a", patch, namespace="default")

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(1)
        world.stop("a", restart_after_s=10)
        await asyncio.sleep(9)
        assert lives == [1]
        lease = world.plane.store.get(LEASE, "default", "a")
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == "a tidy end"
        await asyncio.sleep(2)
        assert lives == [1, 2]
        assert world.disturbances == {"stop": 1}
        world.crash("a")  # or its goodbye would be an error of the world's end

    in_world(story)


def test_a_paused_process_does_nothing_and_does_not_notice() -> None:
    ticks: list[float] = []

    async def main(process: Process) -> None:
        while True:
            await process.clock.sleep(10)
            ticks.append(round(process.clock.monotonic(), 3))

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(15)
        world.pause("a", 60)
        await asyncio.sleep(85)

    in_world(story)
    assert ticks == [10, 75, 85, 95]


def test_a_pause_ends_with_its_process_and_cuts_no_later_one_short() -> None:
    ticks: list[float] = []

    async def main(process: Process) -> None:
        while True:
            await process.clock.sleep(1)
            ticks.append(process.clock.monotonic())

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(10)
        world.pause("a", 60)
        await asyncio.sleep(10)
        world.crash("a", restart_after_s=1)
        await asyncio.sleep(10)
        world.pause("a", 60)
        await asyncio.sleep(70)

    in_world(story)
    assert [tick for tick in ticks if 31 < tick < 89] == []
    assert max(ticks) > 95


def test_a_partition_is_healed_by_itself() -> None:
    seen: list[str] = []

    async def main(process: Process) -> None:
        while True:
            try:
                await process.kube.list(LEASE)
                seen.append("ok")
            except TimedOut:
                seen.append("cut off")
            await process.clock.sleep(5)

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(1)
        world.partition("a", 12)
        await asyncio.sleep(40)

    in_world(story)
    assert seen[:3] == ["ok", "cut off", "ok"]


def test_a_process_that_fails_by_the_worlds_fault_starts_again() -> None:
    async def main(process: Process) -> None:
        await process.clock.sleep(1)
        raise Unavailable("the API server", why="it is gone", fix="Wait")

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(20)

    verdict, events = in_world(story)
    assert verdict.violations == []
    starts = [event.outcome for event in events if event.verb == "start"]
    assert starts == ["life-1", "life-2", "life-3", "life-4"]


def test_a_process_that_dies_of_a_bug_is_a_violation() -> None:
    async def main(process: Process) -> None:
        raise ValueError(process.name)

    async def story(world: World) -> None:
        world.start("a", main)
        await asyncio.sleep(1)

    verdict, _ = in_world(story)
    assert [v.invariant for v in verdict.violations] == ["no bugs"]
    assert "a died of a bug: ValueError('a')" in str(verdict.violations[0])
    assert "replay: remuda sim --again" in str(verdict.violations[0])


def test_calm_ends_partitions_pauses_and_skew() -> None:
    async def main(process: Process) -> None:
        await process.clock.sleep(1e9)

    async def story(world: World) -> None:
        actor = world.start("a", main)
        await asyncio.sleep(1)
        world.partition("a", 1e6)
        world.pause("a", 1e6)
        world.skew("a", 300)
        world.calm()
        assert actor.process is not None
        assert not actor.process.link.partition
        assert not world.loop.is_held("a")
        assert actor.clock.skew_s == 0

    in_world(story)


# --- checkers ---


class Never:
    """A safety checker that trips on every Lease."""

    invariant = "S0 no leases"

    def look(self, change: Observed) -> str | None:
        return f"{change.writer} wrote one" if change.plural == "leases" else None


async def _one_lease(process: Process) -> None:
    await process.kube.create(LEASE, a_lease(process.name))
    await asyncio.Event().wait()


def test_a_violation_names_the_writer_the_event_the_seed_and_the_way_back() -> None:
    async def story(world: World) -> None:
        world.checkers.add(Never())
        world.start("ctl-a", _one_lease)
        await asyncio.sleep(1)

    verdict, events = in_world(story)
    text = str(verdict.violations[0])
    assert text.startswith("S0 no leases violated at 00:00:00.")
    assert "(seed 1): ctl-a wrote one\n" in text
    assert "event: ctl-a added leases/default/ctl-a at revision" in text
    assert [e.outcome for e in events if e.verb == "violation"] == ["S0 no leases"]


class After:
    """A liveness checker that is content between two times."""

    invariant = "V0 in time"

    def __init__(self, world: World, from_s: float, to_s: float = 1e9) -> None:
        self._time, self._from_s, self._to_s = world.loop.time, from_s, to_s

    def look(self) -> str | None:
        return None if self._from_s <= self._time() < self._to_s else "not yet"


@pytest.mark.parametrize(
    ("from_s", "to_s", "said"),
    [
        pytest.param(5, 1e9, [], id="reached in time and kept"),
        pytest.param(50, 1e9, ["not yet; not reached within 30 s of calm"], id="too late"),
        pytest.param(5, 60, ["not yet; reached, but not kept"], id="reached and lost again"),
    ],
)
def test_what_should_be_must_be_reached_and_kept(
    from_s: float, to_s: float, said: list[str]
) -> None:
    async def story(world: World) -> None:
        await world.checkers.settle([After(world, from_s, to_s)], within_s=30, quiet_s=100)

    verdict, _ = in_world(story)
    assert [violation.what for violation in verdict.violations] == said


async def _restless(process: Process) -> None:
    await process.kube.create(LEASE, a_lease("other"))
    while True:
        await process.clock.sleep(10)
        patch = MergePatch({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
        await process.kube.patch(LEASE, "other", patch, namespace="default")


async def _writes_nonsense(process: Process) -> None:
    while True:
        await process.clock.sleep(10)
        try:
            await process.kube.delete(SERVICE_ACCOUNT, "nothing", namespace="default")
        except NotFound:
            continue


def test_leases_may_be_renewed_for_ever() -> None:
    async def story(world: World) -> None:
        world.start("a", _restless)
        await world.checkers.settle([After(world, 0)], within_s=30, quiet_s=100)

    assert in_world(story)[0].violations == []


def test_a_controller_that_goes_on_trying_to_write_is_not_quiet() -> None:
    async def story(world: World) -> None:
        world.start("a", _writes_nonsense)
        await world.checkers.settle([After(world, 0)], within_s=30, quiet_s=100)

    violations = in_world(story)[0].violations
    assert [v.invariant for v in violations] == ["V8 quiet"]
    assert "0 writes and 10 tries in 100 s" in violations[0].what


def test_the_checkers_are_quiet_about_a_quiet_world() -> None:
    async def story(world: World) -> None:
        assert isinstance(world.checkers, Checkers)
        await world.checkers.settle([After(world, 0)], within_s=30, quiet_s=100)

    assert in_world(story)[0].violations == []
