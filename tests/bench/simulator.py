"""How fast virtual time runs: 200 agent-like actors for 24 virtual hours, through the real client and control plane."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time

from remuda.kube.core import LEASE, Lease, LeaseSpec
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time
from remuda.ports.kube import KubeError
from remuda.sim.checkers import Verdict
from remuda.sim.loop import Limits, run
from remuda.sim.scenarios.keep_n.things import CONFIG_MAP, ConfigMap
from remuda.sim.trace import Trace
from remuda.sim.world import Process, World

TARGET = 500
NAMESPACE = "kube-node-lease"
RENEW_S = 10.0
TOUCH_EVERY = 30
"""Every so many renewals an actor touches an object of its own as well."""


async def agent(process: Process) -> None:
    """Keep a Lease as a node agent does, and now and then write something else."""
    await _create(process)
    renewals = 0
    while True:
        await process.clock.sleep(RENEW_S)
        try:
            renew = MergePatch({"spec": {"renewTime": micro_time(process.clock.now())}})
            await process.kube.patch(LEASE, process.name, renew, namespace=NAMESPACE)
            renewals += 1
            if renewals % TOUCH_EVERY == 0:
                touch = MergePatch({"data": {"renewals": str(renewals)}})
                await process.kube.patch(CONFIG_MAP, process.name, touch, namespace="default")
        except KubeError:
            continue


async def _create(process: Process) -> None:
    spec = LeaseSpec(holder_identity=process.name, lease_duration_seconds=40)
    lease = Lease(metadata=ObjectMeta(name=process.name, namespace=NAMESPACE), spec=spec)
    await process.kube.create(LEASE, lease)
    meta = ObjectMeta(name=process.name, namespace="default")
    await process.kube.create(CONFIG_MAP, ConfigMap(metadata=meta))


async def day(actors: int, hours: float) -> int:
    """Run the actors for so long; return how many writes there were."""
    loop = asyncio.get_running_loop()
    verdict = Verdict(1, "python tests/bench/simulator.py", Trace(loop.time))
    async with World.open(verdict) as world:
        for number in range(actors):
            world.start(f"agent-{number}", agent)
        await asyncio.sleep(hours * 3600)
        writes = world.plane.store.revision
    # A fast run of actors that all died at once would measure nothing.
    assert not verdict.violations, str(verdict.violations[0])
    expected = actors * hours * 3600 / RENEW_S
    assert writes > 0.95 * expected, f"{writes} writes instead of about {expected:.0f}"
    return writes


def measure(actors: int = 200, hours: float = 24.0) -> bool:
    """Run the day, print the ratio, and say whether the target was met."""
    started = time.perf_counter()
    writes = run(lambda: day(actors, hours), limits=Limits(until_s=hours * 3600 + 1))
    wall_s = time.perf_counter() - started
    ratio = hours * 3600 / wall_s
    sys.stdout.write(f"simulator: {ratio:.0f} x real time (target {TARGET})\n")
    sys.stdout.write(f"  {actors} actors, {hours:g} h, {writes:,} writes in {wall_s:.1f} s\n")
    return ratio >= TARGET


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    options = parser.parse_args()
    if not options.profile:
        return 0 if measure(options.actors, options.hours) else 1
    profile = cProfile.Profile()
    profile.runcall(measure, options.actors, options.hours)
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    return 0


if __name__ == "__main__":
    sys.exit(main())
