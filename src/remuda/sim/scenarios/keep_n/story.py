"""The scenario ``keep-n``: two replicas of the controller, an owner, two riders, and all that can go wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import KubeClient
from remuda.kube.core import NAMESPACE as NAMESPACES
from remuda.kube.core import Namespace
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.sim.checkers import Fencing
from remuda.sim.disturb import disturb
from remuda.sim.plan import CALM, ROUGH, Faults
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.keep_n.checks import AsAsked, Caps, NoKill
from remuda.sim.scenarios.keep_n.controller import HerdController
from remuda.sim.scenarios.keep_n.people import Owner, Rider
from remuda.sim.scenarios.keep_n.things import CONFIG_MAP, LEASE, NAMESPACE

if TYPE_CHECKING:
    from remuda.sim.world import World

COPIES = 5
CONTROLLERS = ("ctl-a", "ctl-b")
RIDERS = ("rider-1", "rider-2")

CONVERGE_S = 240.0
"""Two full lists of the reflectors, a start, and a lease that must run out."""
QUIET_S = 600.0
RECOVER_S = 60.0
DEAF_S = 90.0
"""Longer than it takes a bookmark to come, which moves the watches past what they lost: no reconnect brings it back."""


async def play(world: World, options: Options) -> None:
    world.checkers.add(Caps(), NoKill(), Fencing(f"{NAMESPACE}/{LEASE}", CONTROLLERS))
    setup = KubeClient(world.plane.wire())
    await setup.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    over = asyncio.Event()
    # Scripts enumerate and chance samples: a run that follows a script is calm but for that.
    world.set_faults(CALM if options.scripted else options.faults or ROUGH)
    for name in CONTROLLERS:
        world.start(name, lambda process: HerdController(process, options.broken).run())
    world.start("owner", lambda process: Owner(process, over, COPIES).run())
    for name in RIDERS:
        world.start(name, lambda process: Rider(process, over).run())
    if options.scripted:
        await asyncio.sleep(options.until_s)
        over.set()
    else:
        names = (*CONTROLLERS, *CONTROLLERS, *RIDERS)
        await disturb(world, names, every_s=60.0, until_s=options.until_s)
        over.set()
        await _last_word(world, setup)
    world.calm()
    await world.checkers.settle([AsAsked(world.plane.store)], within_s=CONVERGE_S, quiet_s=QUIET_S)


async def _last_word(world: World, owner: KubeClient) -> None:
    """Change the herd once more, when everybody is well but every watch is deaf: only a fresh list can tell."""
    world.calm()
    await asyncio.sleep(RECOVER_S)
    world.set_faults(Faults(drop=1.0))
    world.trace.note(
        "world", "deaf", "-", "ok", "every watch loses its events, and the herd changes"
    )
    patch = MergePatch({"data": {"brand": "last"}})
    await owner.patch(CONFIG_MAP, "herd", patch, namespace=NAMESPACE)
    await asyncio.sleep(DEAF_S)


KEEP_N = Scenario(
    name="keep-n",
    summary="A small controller keeps 5 objects through crashes, lost events, conflicts and stale leaders",
    description=(
        "Two replicas of a small controller elect a leader, which keeps a herd of five horses (ConfigMaps): it makes "
        "what is missing and replaces what carries an old brand. The owner re-brands the herd and loses horses; two "
        "riders take horses and give them back. Meanwhile calls get lost, hang, conflict and fail, watches drop, delay "
        "and withhold events, and processes crash, stop for a minute, are cut off or read a wrong clock. Then all "
        "heal, the herd changes once more while every watch is deaf, and the faults stop."
    ),
    invariants=("S2 no kill", "S3 caps", "S8 fencing", "V8 converged", "V8 quiet", "no bugs"),
    breaks={
        "fencing": "a leader that lost its lease goes on acting (S8)",
        "names": "horses get random names instead of predictable ones (S3)",
        "preconditions": "horses are deleted whatever became of them since they were looked at (S2)",
        "relist": "nothing is listed again after the first time, so a lost event stays lost (V8)",
    },
    until_s=1800.0,
    run=play,
)
