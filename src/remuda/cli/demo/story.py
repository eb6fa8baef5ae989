"""
What happens in the demo, in order. Every wait is for something to be seen, and says how far it is.

Nobody's job is in the way of a fault: the processes of a runner are killed while none waits, so none can be handed to
it at that moment; server and agent are killed with jobs running, which must go on without them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from remuda.cli.demo.decide.account import Act, RollRecord
from remuda.cli.demo.decide.plan import ROLL_PERCENT, roll_cap
from remuda.cli.demo.decide.roll import most_unavailable
from remuda.cli.demo.fleet import POOL, DemoFailed
from remuda.cli.tree.parts import AGENT, NAMESPACE, SERVER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from remuda.cli.demo.burst import Burst
    from remuda.cli.demo.decide.plan import PlannedJob
    from remuda.cli.demo.fleet import Fleet
    from remuda.cli.demo.screen import Screen
    from remuda.cli.demo.watcher import Watcher
    from remuda.kube.patches import JsonValue
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

IMAGE: Final = "second"
_RUNNING_MIN: Final = 3
"""So many jobs run when the agent is killed, if so many are left: they have to go on without it."""
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.1


class Story:
    """One play."""

    def __init__(
        self,
        fleet: Fleet,
        kube: Kube,
        watcher: Watcher,
        burst: Burst,
        screen: Screen,
        clock: Clock,
    ) -> None:
        self._fleet, self._kube, self._watcher = fleet, kube, watcher
        self._burst, self._screen, self._clock = burst, screen, clock
        self._wanted = 0
        self._rolled_at = 0
        self.acts: list[Act] = []

    async def play(self, waves: Sequence[Sequence[PlannedJob]], runners: int) -> None:
        """Play all of it. What does not come of a fault is noted in ``acts``; raises DemoFailed if it cannot go on."""
        self._wanted = runners
        await self._get_warm()
        before, during, without = waves
        await self._first_wave(before)
        await self._kill_a_runner()
        await self._roll()
        await self._second_wave(during)
        await self._restart_server(without)
        await self._kill_agent()
        await self._to_the_end(sum(map(len, waves)))

    # --- the acts -----------------------------------------------------------------------------------------------------

    async def _get_warm(self) -> None:
        rollout: JsonValue = {"maxConcurrentPercent": ROLL_PERCENT}
        await self._patch({"rollout": rollout})
        await self._must(self._all_warm, "the runners do not become warm")
        self._screen.good(f"the fleet is up: {self._wanted} runners are warm, each for one job")

    async def _first_wave(self, jobs: Sequence[PlannedJob]) -> None:
        names = {job.name for job in jobs}
        await self._burst.post(jobs)
        self._screen.says(f"a burst begins: {len(jobs)} jobs are posted")
        await self._must(
            lambda: _missing(names - self._burst.began, "not begun"), "the first jobs do not begin"
        )
        self._screen.good(f"{len(jobs)} jobs run, each on its own runner")

    async def _kill_a_runner(self) -> None:
        for runner in self._watcher.in_phase(Phase.WARM):
            pid = await self._fleet.kill_vm(runner.uid)
            if pid is not None:
                break
        else:
            self.acts.append(Act("kill a runner", "no warm runner was found"))
            return
        self._screen.fault(f"kill -9 of the host process behind {runner.name}, pid {pid}")

        async def replaced() -> str:
            if any(other.uid == runner.uid for other in self._watcher.alive):
                return f"{runner.name} still counts as a runner"
            ready = len(self._watcher.alive) - len(self._watcher.in_phase(Phase.STARTING))
            return "" if ready == self._wanted else f"{ready} of {self._wanted} runners are there"

        trouble = await self._until(replaced)
        if not trouble:
            self._screen.good(f"{runner.name} was found dead, and another one is warm in its place")
        self.acts.append(Act(f"killed {runner.name}", trouble))

    async def _roll(self) -> None:
        image = self._fleet.folder.images / IMAGE
        image.mkdir(mode=0o700)
        (image / "image").write_text(f"{IMAGE}\n")
        cap = roll_cap(self._wanted)
        self._screen.fault(
            f"the pool's image is rolled to {IMAGE}; at most {cap} of {self._wanted} runners may"
            " be away for it at once"
        )
        self._rolled_at = await self._patch({"image": IMAGE})

        async def begun() -> str:
            return "" if self._watcher.marked() else "nobody was asked to leave yet"

        trouble = await self._until(begun)
        if not trouble:
            self._screen.good(f"the roll began: {self._watcher.marked()[0]} was asked to leave")
        self.acts.append(Act(f"rolled the image to {IMAGE}", trouble))

    async def _second_wave(self, jobs: Sequence[PlannedJob]) -> None:
        names = {job.name for job in jobs}
        await self._burst.post(jobs)
        self._screen.says(f"{len(jobs)} more jobs are posted while the image rolls")
        half = max(1, len(jobs) // 2)

        async def some() -> str:
            began = len(self._burst.began & names)
            return "" if began >= half else f"{began} of {len(jobs)} began"

        await self._must(some, "the jobs do not begin while the image rolls")

    async def _restart_server(self, jobs: Sequence[PlannedJob]) -> None:
        old = self._fleet.kill(SERVER)
        running = len(self._burst.running)
        self._screen.fault(f"kill -9 of the dispatch server, pid {old}, while {_run(running)}")
        self._screen.says(f"{len(jobs)} more jobs are posted to the server that is away")
        await self._burst.post(jobs)
        trouble = await self._until(lambda: self._back(SERVER, old))
        if not trouble:
            self._screen.good(
                f"the server is back, pid {self._fleet.pid(SERVER)}; no post was lost"
            )
        self.acts.append(Act("restarted the server", trouble))

    async def _kill_agent(self) -> None:
        async def some_run() -> str:
            left = len(self._burst.posted) - len(self._burst.finished)
            running = len(self._burst.running)
            enough = running >= min(_RUNNING_MIN, left)
            return "" if enough else f"{running} of {left} jobs run"

        await self._must(some_run, "the jobs that are left do not begin")
        running = self._burst.running
        old = self._fleet.kill(AGENT)
        self._screen.fault(
            f"kill -9 of the host's agent, pid {old}, while {_run(len(running))} there"
        )
        trouble = await self._until(lambda: self._back(AGENT, old))
        if not trouble:
            on = len(running & self._burst.running)
            self._screen.good(
                f"the agent is back, pid {self._fleet.pid(AGENT)}: {on} of these jobs still run,"
                f" {len(running) - on} ended meanwhile"
            )
        self.acts.append(Act("killed the agent", trouble))

    async def _to_the_end(self, jobs: int) -> None:
        async def all_over() -> str:
            over = await self._burst.over()
            return "" if over >= jobs else f"{over} of {jobs} jobs are over"

        trouble = await self._until(all_over)
        if not trouble:
            self._screen.good(f"all {jobs} jobs are over")
        self.acts.append(Act("the burst", trouble))
        trouble = await self._until(self._is_rolled)
        if not trouble:
            self._screen.good(f"the roll is over: {self._wanted} runners are warm on image {IMAGE}")
        self.acts.append(Act("the roll", trouble))

    def roll_record(self) -> RollRecord:
        """Return how many runners the roll took away at once."""
        most = most_unavailable(self._watcher.sights, since=self._rolled_at, wanted=self._wanted)
        return RollRecord(
            unavailable_max=most.by_roll, in_all=most.in_all, cap=roll_cap(self._wanted)
        )

    # --- what is waited for -------------------------------------------------------------------------------------------

    async def _all_warm(self) -> str:
        warm = len(self._watcher.in_phase(Phase.WARM))
        return "" if warm == self._wanted else f"{warm} of {self._wanted} runners are warm"

    async def _is_rolled(self) -> str:
        pool = await self._kube.get(RUNNER_POOL, POOL, namespace=NAMESPACE)
        template = pool.status.template_hash
        new = sum(runner.template == template for runner in self._watcher.in_phase(Phase.WARM))
        full = new == self._wanted == len(self._watcher.alive) and pool.spec.image == IMAGE
        return "" if full else f"{new} of {self._wanted} runners are warm on image {IMAGE}"

    async def _back(self, part: str, old: int | None) -> str:
        return "" if await self._fleet.is_back(part, old) else f"the {part} is not back"

    async def _must(self, probe: Callable[[], Awaitable[str]], what: str) -> None:
        trouble = await self._until(probe)
        if trouble:
            raise DemoFailed(
                f"The demo cannot go on: {what}",
                why=f"after {_WAIT_S:.0f} s, {trouble}. {await self._burst.states()}",
                fix=f"See the logs of the fleet in {self._fleet.folder.logs}",
            )

    async def _until(self, probe: Callable[[], Awaitable[str]]) -> str:
        """Wait until nothing is amiss any more; returns what still is after a long time."""
        deadline = self._clock.monotonic() + _WAIT_S
        while True:
            trouble = await probe()
            self._fleet.awaits = trouble or "the next act has not begun"
            if not trouble or self._clock.monotonic() > deadline:
                return trouble
            self._screen.progress(self._how_far())
            await self._clock.sleep(_POLL_S)

    def _how_far(self) -> str:
        posted, began = len(self._burst.posted), len(self._burst.began)
        ended, running = len(self._burst.finished), len(self._burst.running)
        counts = {phase: len(self._watcher.in_phase(phase)) for phase in Phase}
        jobs = f"jobs: {posted - began} wait, {running} run, {ended} done"
        runners = (
            f"runners: {counts[Phase.WARM]} warm, {counts[Phase.BUSY]} busy,"
            f" {counts[Phase.STARTING]} start"
        )
        return f"{jobs}; {runners}"

    async def _patch(self, changes: dict[str, JsonValue]) -> int:
        patch = MergePatch({"spec": changes})
        pool = await self._kube.patch(RUNNER_POOL, POOL, patch, namespace=NAMESPACE)
        return int(pool.resource_version)


async def _missing(names: set[str] | frozenset[str], what: str) -> str:
    await asyncio.sleep(0)
    return f"{', '.join(sorted(names))}: {what}" if names else ""


def _run(count: int) -> str:
    return "1 job runs" if count == 1 else f"{count} jobs run"
