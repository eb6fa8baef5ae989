"""Many Pods, a host and a server that fail at random, an agent that dies at random: in the end all is well."""

from __future__ import annotations

import random

import pytest

from remuda.ports.vms import VmsError, vm_name
from tests.unit.agent.barn import Barn, played
from tests.unit.agent.mortal import Life
from tests.unit.pools.ranch import Hurt

OPS = ("get", "list", "clone", "set", "stop", "delete", "pull")
HOWS = ("dropped", "lost", "hangs", "throttled")
PODS = 8
STORM_S = 400.0


class Storm:
    """What happens to a barn, drawn from a seed."""

    def __init__(self, barn: Barn, seed: int) -> None:
        self.barn = barn
        self.chance = random.Random(seed)  # noqa: S311 - a storm is replayed by its seed
        self.uids: dict[str, str] = {}

    async def rage(self) -> None:
        barn, chance = self.barn, self.chance
        barn.start(self._life())
        while barn.clock.monotonic() < STORM_S:
            await barn.later(chance.uniform(0.5, 5.0))
            if barn.agent is not None and barn.agent.done():
                barn.start(self._life())
            match chance.randrange(5):
                case 0 if len(self.uids) < PODS:
                    name = f"mac-{len(self.uids)}"
                    self.uids[name] = await barn.add_pod(name)
                    barn.host.dispatch.add(f"job-{name}")
                case 1 if self.uids and chance.random() < 0.3:
                    await barn.delete_pod(chance.choice(sorted(self.uids)))
                case 2:
                    op = chance.choice(OPS)
                    barn.host.vms.fails[op] = VmsError(op, why="the storm", fix="Wait")
                case 3:
                    hurt = Hurt("PATCH|DELETE|GET", chance.choice(HOWS), times=chance.randint(1, 4))
                    barn.tap.hurts.append(hurt)
                case _:
                    uid = chance.choice([*self.uids.values(), ""])
                    barn.host.vms.hangs = {(chance.choice(OPS), vm_name(uid))}

    async def calm(self) -> None:
        """Mend everything, delete what is left, and wait until nothing is."""
        barn = self.barn
        barn.host.vms.hangs.clear()
        barn.host.vms.fails.clear()
        barn.tap.hurts.clear()
        barn.life.ends_at = None
        await barn.later(1.0)
        if barn.agent is not None and barn.agent.done():
            barn.start()
        await barn.later(300.0)
        for name in self.uids:
            await barn.delete_pod(name)
        for name in self.uids:
            await barn.until_gone(name)
        await barn.until_clean()

    def _life(self) -> Life:
        return Life(self.chance.randint(1, 250), gently=self.chance.random() < 0.3)


@pytest.mark.parametrize("seed", range(12))
def test_a_storm_boots_nothing_twice_and_leaves_nothing_behind(seed: int) -> None:
    async def play(barn: Barn) -> None:
        barn.host.guests.boot_s, barn.host.guests.job_s = 3.0, 15.0
        storm = Storm(barn, seed)
        await storm.rage()
        await storm.calm()
        assert barn.lives > 1, "it must have died to show anything"
        for uid in storm.uids.values():
            assert barn.host.vms.boots[vm_name(uid)] <= 1, "a disk booted twice"
        for name, guest in barn.host.guests.seen.items():
            assert len(guest.jobs) <= 1, f"{name} was given more than one job"
        handed = [job for guest in barn.host.guests.seen.values() for job in guest.jobs]
        assert len(handed) == len(set(handed)), "a job ran twice"
        assert barn.metric("unexpected_errors_total") == 0

    played(play)
