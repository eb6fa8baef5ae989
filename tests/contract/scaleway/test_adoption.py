"""Rented Macs are taken and given back: races, lost answers, lost status writes. One Host, one Mac; nobody else's."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from scaleway.applesilicon.v1alpha1 import Server, ServerStatus  # type: ignore[import-untyped] # it has types and no marker

from remuda.hosts.adopter import Adopter, NoImage, NoPool, NotOurs, claim_of
from remuda.hosts.decide.adoption import PENDING, NoneFree
from remuda.hosts.settings import HostSettings
from remuda.kube.host import Host, HostSpec, HostStatus, Provider, ScalewayProvider, SecretRef, Ssh
from remuda.kube.meta import ObjectMeta
from remuda.ports.machines import Machine, MachinesError, MachinesUnavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.support.scaleway_machines import SlowMachines
from tests.support.scaleway_server import ZONE, FakeScaleway, a_server, an_os

if TYPE_CHECKING:
    from collections.abc import Coroutine

SETTINGS = HostSettings(namespace="ci", identity="one")
FOREIGN = "somebody-else"


def a_host(name: str, machine: str = "", **fields: Any) -> Host:  # noqa: ANN401 - whatever the provider has
    given = {"zone": ZONE, "type": "M2-M", "os": "Sequoia", "adopt_prefix": "pool-", **fields}
    return Host(
        metadata=ObjectMeta(name=name, namespace="ci", uid=f"{name.encode().hex():0<8}-uid"),
        spec=HostSpec(
            provider=Provider(scaleway=ScalewayProvider(**given)),
            ssh=Ssh(user="m1", key_secret_ref=SecretRef(name="ssh", key="key")),
            fleet="barn",
        ),
        status=HostStatus(machine_id=machine),
    )


class Yard:
    """An account on virtual time, and any number of operators that think that they lead."""

    def __init__(self, *names: str, seed: int = 1, **fields: Any) -> None:  # noqa: ANN401 - the SDK's
        self.fake = FakeScaleway()
        self.clock = SimClock(asyncio.get_running_loop())
        self.seed = seed
        before = self.clock.now() - timedelta(days=1)
        for number, name in enumerate(names):
            self.fake.add(a_server(f"id-{number}", name, updated_at=before, **fields))

    def way(self, name: str, *, lose: float = 0.0, late_s: float = 1.0) -> SlowMachines:
        chance = random.Random(f"{self.seed}/{name}")  # noqa: S311 - replays must be predictable
        return SlowMachines(self.fake, self.clock, chance, lose=lose, late_s=late_s)

    def operator(self, name: str, machines: SlowMachines | None = None, **how: float) -> Adopter:
        machines = machines or self.way(name, **how)
        return Adopter(machines, SETTINGS, clock=self.clock, ids=SeededIds(self.seed, name))

    def name_of(self, id_: str) -> str:
        return str(self.fake.servers[id_].name)


def play(story: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        await story

    run(main)


def test_a_free_mac_becomes_the_hosts_by_two_renames() -> None:
    async def story() -> None:
        yard = Yard("pool-1", FOREIGN)
        names: list[str] = []
        yard.fake.on_rename = lambda _, name: names.append(name)
        taken = await yard.operator("a").adopt(a_host("mini"))

        assert isinstance(taken, Machine)
        assert taken.id == "id-0"
        assert names[0].startswith(f"pool-{PENDING}")
        assert names[1:] == [claim_of(a_host("mini"), SETTINGS).name]
        assert yard.name_of("id-1") == FOREIGN

    play(story())


def test_a_lost_status_write_costs_no_second_mac() -> None:
    async def story() -> None:
        yard = Yard("pool-1", "pool-2")
        operator, host = yard.operator("a"), a_host("mini")
        first = await operator.adopt(host)
        again = await yard.operator("next leader").adopt(host)

        assert isinstance(first, Machine)
        assert isinstance(again, Machine)
        assert first.id == again.id
        assert yard.name_of("id-1") == "pool-2"
        assert await operator.find(host) == again

    play(story())


def test_a_host_of_the_same_name_elsewhere_is_another_host() -> None:
    async def story() -> None:
        yard = Yard("pool-1", "pool-2")
        here = a_host("mini")
        there = msgspec.structs.replace(
            here, metadata=msgspec.structs.replace(here.metadata, uid="99999999-other")
        )
        one, two = await yard.operator("a").adopt(here), await yard.operator("b").adopt(there)

        assert isinstance(one, Machine)
        assert isinstance(two, Machine)
        assert one.id != two.id

    play(story())


@pytest.mark.parametrize("seed", range(12))
def test_operators_that_race_never_share_a_mac(seed: int) -> None:
    async def story() -> None:
        yard = Yard("pool-1", "pool-2", "pool-3", FOREIGN, seed=seed)
        hosts = [a_host(f"mini-{n}") for n in range(3)]
        lose = 0.2 if seed % 2 else 0.0
        operators = [yard.operator(f"op-{n}", lose=lose) for n in range(3)]

        async def claim(operator: Adopter, host: Host) -> Machine:
            while True:
                try:
                    found = await operator.adopt(host)
                except MachinesUnavailable:
                    continue
                if isinstance(found, Machine):
                    return found
                await yard.clock.sleep(60)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(claim(operator, host), name=host.name)
                for operator, host in zip(operators, hosts, strict=True)
            ]
        taken = [task.result() for task in tasks]

        assert len({machine.id for machine in taken}) == 3
        for machine, host in zip(taken, hosts, strict=True):
            assert yard.name_of(machine.id) == claim_of(host, SETTINGS).name
        assert yard.name_of("id-3") == FOREIGN

    play(story())


@pytest.mark.parametrize("delay_s", [0, 2, 5, 7, 9, 10, 12, 14, 19, 21, 25, 31, 60])
def test_a_rename_that_is_late_takes_no_mac_that_somebody_else_has_by_now(delay_s: float) -> None:
    async def story() -> None:
        yard = Yard("pool-1")
        late = yard.way("late")
        late.next_rename_after_s = delay_s
        believes: list[str] = []

        async def claim(name: str, operator: Adopter) -> None:
            try:
                found = await operator.adopt(a_host(name))
            except MachinesUnavailable:
                return
            if isinstance(found, Machine):
                believes.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(claim("late", yard.operator("late", late)), name="late")
            group.create_task(claim("b", yard.operator("b")), name="b")

        assert len(believes) <= 1
        if believes:
            assert yard.name_of("id-0") == claim_of(a_host(believes[0]), SETTINGS).name
        assert believes or delay_s < 10, "one that is too late keeps nobody else from it"

    play(story())


@pytest.mark.parametrize("seed", range(12))
def test_a_slow_provider_gives_no_mac_to_two(seed: int) -> None:
    async def story() -> None:
        yard = Yard("pool-1", "pool-2", seed=seed)
        holds: dict[str, str] = {}
        until = yard.clock.monotonic() + 4 * 3600

        async def claim(name: str, operator: Adopter) -> None:
            while yard.clock.monotonic() < until:
                try:
                    found = await operator.adopt(a_host(name))
                except MachinesUnavailable:
                    continue
                if isinstance(found, Machine):
                    holds[name] = found.id
                    return
                await yard.clock.sleep(60)

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                operator = yard.operator(f"op-{n}", late_s=(3.0, 9.0, 20.0)[n])
                group.create_task(claim(f"mini-{n}", operator), name=f"op-{n}")

        assert len(set(holds.values())) == len(holds), "two believe that one Mac is theirs"
        for name, id_ in holds.items():
            assert yard.name_of(id_) == claim_of(a_host(name), SETTINGS).name

    play(story())


def test_a_mac_that_got_another_name_since_it_was_listed_is_not_renamed() -> None:
    async def story() -> None:
        yard = Yard("pool-1", "pool-2")
        renamed: list[str] = []

        def somebody_else(_: Server, name: str) -> None:
            renamed.append(name)
            yard.fake.servers["id-0"].name = "remuda-theirs-00000000"  # while we are busy with it
            yard.fake.servers["id-1"].name = FOREIGN

        yard.fake.on_rename = somebody_else
        found = await yard.operator("a").adopt(a_host("mini"))

        assert isinstance(found, NoneFree)
        assert len(renamed) == 1
        assert yard.name_of("id-1") == FOREIGN

    play(story())


def test_whoever_finds_another_name_after_the_pause_lets_go() -> None:
    async def story() -> None:
        yard = Yard("pool-1")

        def somebody_else(server: Server, name: str) -> None:
            if PENDING in name:
                server.name = "remuda-theirs-00000000"

        yard.fake.on_rename = somebody_else
        found = await yard.operator("a").adopt(a_host("mini"))

        assert isinstance(found, NoneFree)
        assert yard.name_of("id-0") == "remuda-theirs-00000000"

    play(story())


@pytest.mark.parametrize(
    "fields",
    [
        {"type_": "M1-M"},
        {"delivered": False},
        {"deletion_scheduled": True},
        {"status": ServerStatus.REINSTALLING},
        {"os": an_os(family="Sonoma", name="macos-sonoma-14.6")},
        {"os": an_os(family="", name="devos-sequoia-15")},
        {"os": None},
    ],
    ids=str,
)
def test_a_mac_that_does_not_fit_is_left_alone(fields: dict[str, Any]) -> None:
    async def story() -> None:
        yard = Yard("pool-1", **fields)
        found = await yard.operator("a").adopt(a_host("mini"))

        assert isinstance(found, NoneFree)
        assert found.reason == "NoMacFree"
        assert yard.name_of("id-0") == "pool-1"

    play(story())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"adopt_prefix": msgspec.UNSET}, "NoAdoptPrefix"),
        ({"os": "macos-sequoia-15.6"}, "NotAFamily"),
    ],
)
def test_what_the_host_does_not_say_is_said_to_it(fields: dict[str, Any], reason: str) -> None:
    async def story() -> None:
        yard = Yard("pool-1")
        found = await yard.operator("a").adopt(a_host("mini", **fields))

        assert isinstance(found, NoneFree)
        assert found.reason == reason
        assert yard.name_of("id-0") == "pool-1"

    play(story())


def test_a_claim_that_somebody_died_over_is_free_again_after_a_while() -> None:
    async def story() -> None:
        yard = Yard(f"pool-{PENDING}dead")
        yard.fake.servers["id-0"].updated_at = yard.clock.now()
        assert isinstance(await yard.operator("a").adopt(a_host("mini")), NoneFree)
        await yard.clock.sleep(16 * 60)
        assert isinstance(await yard.operator("a").adopt(a_host("mini")), Machine)

    play(story())


def test_a_mac_that_goes_back_is_wiped_with_the_newest_that_is_no_beta() -> None:
    async def story() -> None:
        yard = Yard("pool-1")
        operator, host = yard.operator("a"), a_host("mini", "id-0")
        await operator.adopt(host)
        yard.fake.images = [
            an_os("old", version="15.9"),
            an_os("new", version="15.10"),
            an_os("beta", version="15.11", is_beta=True),
            an_os("other", version="26.1", family="Tahoe", name="macos-tahoe-26.1"),
        ]
        names: list[str] = []
        yard.fake.on_rename = lambda _, name: names.append(name)

        assert await operator.release(host)
        assert names[0].startswith(f"pool-{PENDING}"), "nobody takes it before it is wiped"
        assert names[1].startswith("pool-")
        assert PENDING not in names[1]
        assert yard.fake.servers["id-0"].status is ServerStatus.REINSTALLING

    play(story())


def test_a_return_that_was_broken_off_goes_on() -> None:
    async def story() -> None:
        yard = Yard("pool-1")
        host = a_host("mini", "id-0")
        await yard.operator("a").adopt(host)
        shaky = yard.operator("shaky", lose=1.0)
        for _ in range(3):
            with pytest.raises(MachinesError):
                await shaky.release(host)

        assert await yard.operator("next").release(host)
        assert yard.name_of("id-0").startswith("pool-")

    play(story())


def test_a_mac_that_is_gone_has_gone_back() -> None:
    async def story() -> None:
        yard = Yard()

        assert await yard.operator("a").release(a_host("mini", "id-7"))

    play(story())


def test_a_family_that_is_withdrawn_keeps_the_mac_where_it_is() -> None:
    async def story() -> None:
        yard = Yard("pool-1")
        operator, host = yard.operator("a"), a_host("mini", "id-0")
        await operator.adopt(host)
        before = yard.name_of("id-0")
        yard.fake.images = [an_os(is_beta=True)]
        with pytest.raises(NoImage):
            await operator.release(host)

        assert yard.name_of("id-0") == before

    play(story())


def test_a_mac_that_has_another_name_now_is_not_touched() -> None:
    async def story() -> None:
        yard = Yard(FOREIGN)
        operator, host = yard.operator("a"), a_host("mini", "id-0")
        for deed in (operator.release, operator.reboot, operator.mine):
            with pytest.raises(NotOurs):
                await deed(host)

        assert yard.name_of("id-0") == FOREIGN
        assert yard.fake.servers["id-0"].status is ServerStatus.READY

    play(story())


def test_a_mac_is_not_returned_to_a_pool_that_covers_claims() -> None:
    async def story() -> None:
        name = claim_of(a_host("mini"), SETTINGS).name
        yard = Yard(name)
        with pytest.raises(NoPool):
            await yard.operator("a").release(a_host("mini", "id-0", adopt_prefix="remuda-"))

        assert yard.name_of("id-0") == name
        assert yard.fake.servers["id-0"].status is ServerStatus.READY

    play(story())
