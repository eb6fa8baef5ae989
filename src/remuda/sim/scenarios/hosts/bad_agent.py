"""A release whose agent does not work reaches fifty Macs with jobs on them: a few get it, and the rest is spared."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.hosts.decide.lifecycle import Phase
from remuda.hosts.status import ROLL_HALTED, condition
from remuda.kube.host import Host
from remuda.sim.checkers import Fencing
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.hosts.stage import (
    LEASE,
    OPERATORS,
    ROLL_PERCENT,
    SPACE,
    VMS_OUTLIVE_AGENT,
    Stage,
)
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.checkers import Observed
    from remuda.sim.world import World

HOSTS: Final = 50
CAP: Final = HOSTS * ROLL_PERCENT // 100
GOOD, BAD, MENDED = "agent-1", "agent-2-bad", "agent-3-and-rules"
BUSY_VMS: Final = 25
JOB_S: Final = (30.0, 90.0)
HALTED_S: Final = 300.0
"""How long nobody mends it."""
RADIUS: Final = "S5 blast radius"
NO_KILL: Final = "S2 no kill"
CONVERGED: Final = "V8 converged"
_CHANGING: Final = frozenset({Phase.UPDATING, Phase.DRAINING, Phase.FAILED})


class Radius:
    """At any time at most the cap of hosts is changing or has failed, and as many have the bad agent."""

    invariant = RADIUS

    def __init__(self, world: World, stage: Stage) -> None:
        self._world, self._stage = world, stage
        self.hosts: dict[str, Host] = {}
        self.armed = False
        """Whether all were Ready once: a first bootstrap has no cap."""

    def look(self, change: Observed) -> str | None:
        if change.plural != "hosts":
            return None
        host = msgspec.convert(change.event.object, Host)
        before = self.hosts.get(host.name)
        self.hosts[host.name] = host
        if before is None or before.status.phase != host.status.phase:
            self._world.trace.add("host", "phase", host.name, host.status.phase or "-")
        changing = [name for name, h in self.hosts.items() if h.status.phase in _CHANGING]
        if self.armed and len(changing) > CAP:
            return f"{len(changing)} hosts change or have failed at once, and the cap is {CAP}"
        bad = [mac.name for mac in self._stage.macs.macs.values() if mac.build == BAD]
        return f"{len(bad)} Macs have the bad agent, the cap is {CAP}" if len(bad) > CAP else None


class NoKill:
    """No VM that holds a job is ended by a change of its Mac."""

    invariant = NO_KILL

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def look(self, change: Observed) -> str | None:
        del change
        killed, self._stage.macs.killed = self._stage.macs.killed, []
        return f"ended: {', '.join(killed)}" if killed else None


async def play(world: World, options: Options) -> None:
    stage = Stage(world, options.broken)
    seen = Radius(world, stage)
    world.checkers.add(seen, NoKill(stage), Fencing(f"{SPACE}/{LEASE}", OPERATORS))
    stage.macs.crashing = frozenset({BAD})
    stage.macs.with_rules = frozenset({MENDED})
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, HOSTS + 1):
        await stage.host(f"mac-{number:02d}")
    stage.start(GOOD)
    await _story(world, stage, seen)


async def _story(world: World, stage: Stage, seen: Radius) -> None:
    def all_have(build: str) -> bool:
        statuses = [host.status for host in seen.hosts.values()]
        ready = all(s.phase == Phase.READY and s.config_hash == build for s in statuses)
        return len(statuses) == HOSTS and ready

    def is_halted() -> bool:
        said = [condition(host.status, ROLL_HALTED) for host in seen.hosts.values()]
        told = [c for c in said if c is not None and c.status == "True"]
        return len(told) == HOSTS - CAP and all("the new agent ended" in c.message for c in told)

    await demand(world, CONVERGED, "every Mac is Ready", lambda: all_have(GOOD), within_s=1800.0)
    seen.armed = True
    work = world.group.create_task(stage.work(BUSY_VMS, JOB_S), name="work")
    await asyncio.sleep(120.0)
    stage.deploy(BAD, "a release whose agent does not work")
    what = "the roll is halted, and those who wait say why"
    await demand(world, RADIUS, what, is_halted, within_s=3600.0)
    done = stage.jobs_done
    await asyncio.sleep(HALTED_S)
    if not is_halted() or stage.jobs_done == done:
        what = f"the roll went on, or jobs did not ({stage.jobs_done - done} were done)"
        world.verdict.violated(RADIUS, what, "-", world.loop.time())
    stage.deploy(MENDED, "a release whose agent works, with other rules of the firewall")
    what = "the mended agent is everywhere"
    await demand(world, CONVERGED, what, lambda: all_have(MENDED), within_s=4 * 3600.0)
    work.cancel()
    await asyncio.wait({work})


HOSTS_BAD_AGENT = Scenario(
    name="hosts-bad-agent",
    summary="Fifty Macs with jobs get a release whose agent does not work; five try it, the others are spared",
    description=(
        "Fifty Macs are bootstrapped and work on jobs when a release of the host operator brings an agent that does not"
        " work: on some Macs it ends at once and the one before is restored, on others it runs and its Node falls"
        " silent. VMs live on under it. The roll changes five at a time, and stands still when five have failed; the"
        " others say why they wait, and go on working. Then a mended release goes over all fifty, with rules of the"
        " firewall that no VM survives: each Mac is drained before it is touched."
    ),
    invariants=(NO_KILL, RADIUS, "S8 fencing", CONVERGED),
    breaks={
        "roll_cap": "the bad agent reaches every Mac (S5)",
        "drain": "Macs get the new rules under the jobs that run there (S2)",
        VMS_OUTLIVE_AGENT: "an agent that is replaced takes the jobs of its Mac with it (S2)",
    },
    until_s=7200.0,
    run=play,
)
