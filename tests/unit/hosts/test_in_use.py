"""What runs on a host is asked of the host itself, and "I cannot tell" is never "nothing"."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.cli.exits import Declined
from remuda.cli.host_steps import RefuseWithVms
from remuda.hosts.converging import Mode, Result
from remuda.hosts.decide.facts import Fact, FactUnreadable
from remuda.hosts.decide.in_use import BUILDS, VMS
from remuda.hosts.decide.parts.sudo import PASSWORDLESS
from remuda.hosts.decide.step import Harm, Step
from remuda.hosts.decide.wanted import FleetConfig, OwnConfig
from remuda.hosts.in_use import HostInUse
from remuda.hosts.over_ssh import AgentStays, RebootRefused, SshConverger
from remuda.kube.host import Role
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command, Ran, Target, Upload
from remuda.sim.host_shell import MemoryHost, MemoryShells
from remuda.sim.loop import run
from tests.unit.hosts.ranch import a_ranch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.step import Problem
    from remuda.hosts.decide.wanted import Wanted
    from remuda.sim.host_shell import Called

HARMFUL = Command(words=("harmful",))
SEEN = Fact(name="seen", command=Command(words=("seen",)), parse=lambda ran: ran.stdout.decode())
STEP = Step(name="session", reason="it is old", apply=(HARMFUL,), harm=Harm.VMS)
TARGET = Target(address="mini", user="m1", key=Secret(b"key"), trust_first=True)


def listed(**vms: bool) -> Ran:
    return Ran(
        code=0,
        stdout=json.dumps([{"Name": n, "Running": up} for n, up in vms.items()]).encode(),
    )


IDLE, NOBODY, GOOD = listed(image=False), Ran(code=1), Ran(code=0)
RUNNING: dict[str, tuple[Ran, Ran, tuple[str, ...]]] = {
    "no Tart": (Ran(code=127, stderr=b"env: no such file"), NOBODY, ()),
    "no VM": (listed(), NOBODY, ()),
    "a VM that is off": (IDLE, NOBODY, ()),
    "a VM of Packer's": (listed(packer=True, image=False), NOBODY, ("the VM packer",)),
    "a build between two VMs": (IDLE, Ran(code=0, stdout=b"7\n"), ("a job of GitHub's runner",)),
}
UNREADABLE: dict[str, tuple[Ran, Ran]] = {
    "Tart fails": (Ran(code=1, stderr=b"no such directory"), NOBODY),
    "Tart is not allowed to run": (Ran(code=126), NOBODY),
    "Tart says nothing": (Ran(code=0), NOBODY),
    "Tart says no JSON": (Ran(code=0, stdout=b"Source Name Running"), NOBODY),
    "Tart says another JSON": (Ran(code=0, stdout=b'{"error": "locked"}'), NOBODY),
    "a list of names": (Ran(code=0, stdout=b'["packer"]'), NOBODY),
    "a list that was cut": (Ran(code=0, stdout=b"[]", cut=True), NOBODY),
    "no list of processes": (IDLE, Ran(code=3, stderr=b"pgrep: cannot open proc")),
}


@dataclass
class Mini:
    """A host in memory: what runs on it, and whether the harmful thing was done."""

    tart: Ran = IDLE
    worker: Ran = NOBODY
    shutdown: Ran = GOOD
    script: Ran = GOOD
    done: list[str] = field(default_factory=list)
    shells: MemoryShells = field(default_factory=MemoryShells)

    def __post_init__(self) -> None:
        programs = {
            PASSWORDLESS.command.words[0]: self._answer(lambda: Ran(code=0)),
            VMS.command.words[0]: self._answer(lambda: self.tart),
            BUILDS.command.words[0]: self._answer(lambda: self.worker),
            "seen": self._answer(lambda: Ran(code=0, stdout=b"new" if self.done else b"old")),
            "/bin/sh": self._deed("session", lambda: self.script),
            "/sbin/shutdown": self._deed("reboot", lambda: self.shutdown),
        }
        self.shells.hosts["mini", 22] = MemoryHost(
            user="m1", fingerprint="SHA256:x", keys={b"key"}, programs=programs
        )

    def _answer(self, said: Callable[[], Ran]) -> Callable[[Called], Awaitable[Ran]]:
        async def answered(called: Called) -> Ran:
            del called
            return said()

        return answered

    def _deed(
        self, name: str, said: Callable[[], Ran] = lambda: Ran(code=0)
    ) -> Callable[[Called], Awaitable[Ran]]:
        async def done(called: Called) -> Ran:
            del called
            self.done.append(name)
            return said()

        return done

    def converger(self, folder: Path) -> SshConverger:
        file = Upload(folder / "none", "0" * 64, 0)
        config = FleetConfig(agent=file, tart=file, tart_version="1", dispatch_url="https://d")
        return SshConverger(self.another, config, (Session(),), clock=SystemClock())

    def another(self) -> MemoryShells:
        """Return one that has not seen this host's key."""
        shells = MemoryShells()
        shells.hosts.update(self.shells.hosts)
        return shells


@dataclass(frozen=True)
class Session:
    """A part whose one step ends what runs."""

    name: str = "session"
    facts: tuple[Fact[object], ...] = (SEEN,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return b"new"

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del wanted
        return () if facts.of(SEEN) == "new" else (STEP,)


async def pin(fingerprint: str) -> None:
    del fingerprint


async def empty() -> bool:
    return True


async def busy() -> bool:
    return False


@pytest.mark.parametrize(("tart", "worker", "runs"), RUNNING.values(), ids=RUNNING.keys())
def test_what_runs_is_read(tart: Ran, worker: Ran, runs: tuple[str, ...]) -> None:
    assert (*VMS.parse(tart), *BUILDS.parse(worker)) == runs


@pytest.mark.parametrize(("tart", "worker"), UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_what_cannot_be_told_is_refused_at_the_terminal(tart: Ran, worker: Ran) -> None:
    mini = Mini(tart, worker)
    with pytest.raises(Declined, match="was not begun on mini") as caught:
        await RefuseWithVms(await mini.shells.open(TARGET), "mini")(STEP)
    assert "cannot be told" in caught.value.why


async def test_what_runs_is_refused_at_the_terminal_and_what_does_not_is_not() -> None:
    mini = Mini(listed(packer=True))
    refuse = RefuseWithVms(await mini.shells.open(TARGET), "mini")
    with pytest.raises(Declined, match="these run: the VM packer"):
        await refuse(STEP)
    mini.tart = IDLE
    await refuse(STEP)


async def test_an_empty_host_is_changed_and_started_again(tmp_path: Path) -> None:
    mini = Mini()
    own = OwnConfig(node="mini", user="m1", fleet="f")
    for mode in Mode:
        mini.done.clear()
        outcome = await mini.converger(tmp_path).converge(
            TARGET, own, mode, emptied=empty, pin=pin, mint=None
        )
        assert (outcome.result, mini.done) == (Result.CONVERGED, ["session"])
    mini.done.clear()
    await mini.converger(tmp_path).reboot(TARGET, pin)
    assert mini.done == ["reboot"]


async def test_an_agent_that_stays_is_told(tmp_path: Path) -> None:
    mini = Mini()
    mini.tart = listed(mine=True)  # VMs are left alone, so nobody asks for them
    await mini.converger(tmp_path).retire(TARGET, Role.RUNNER)
    mini.script = Ran(code=1, stderr=b"launchd does not let go")
    with pytest.raises(AgentStays, match="does not let go"):
        await mini.converger(tmp_path).retire(TARGET, Role.RUNNER)


async def test_githubs_runner_is_not_taken_off_under_a_job(tmp_path: Path) -> None:
    mini = Mini(listed(mine=True), worker=GOOD)  # a VM that is a person's own is left alone
    with pytest.raises(HostInUse, match="a job of GitHub's runner"):
        await mini.converger(tmp_path).retire(TARGET, Role.BUILDER)
    assert mini.done == []
    mini.worker = NOBODY
    await mini.converger(tmp_path).retire(TARGET, Role.BUILDER)
    assert mini.done == ["session", "session"], "the runner, and then the agent"


async def test_what_a_provider_would_end_is_asked_for_over_ssh(tmp_path: Path) -> None:
    mini, shown = Mini(listed(packer=True)), list[str]()

    async def noted(fingerprint: str) -> None:
        shown.append(fingerprint)

    with pytest.raises(HostInUse, match=r"mini was not wiped.*the VM packer"):
        await mini.converger(tmp_path).refuse_in_use(TARGET, noted, "mini was not wiped")
    mini.tart = IDLE
    await mini.converger(tmp_path).refuse_in_use(TARGET, noted, "mini was not wiped")
    assert (mini.done, shown) == ([], ["SHA256:x"] * 2)


async def test_a_reboot_that_is_refused_is_no_reboot(tmp_path: Path) -> None:
    mini = Mini(shutdown=Ran(code=1, stderr=b"sudo: a password is required"))
    with pytest.raises(RebootRefused, match="a password is required"):
        await mini.converger(tmp_path).reboot(TARGET, pin)


async def test_a_host_that_was_not_drained_is_not_even_asked(tmp_path: Path) -> None:
    mini = Mini()
    own = OwnConfig(node="mini", user="m1", fleet="f")
    outcome = await mini.converger(tmp_path).converge(
        TARGET, own, Mode.DRIFT, emptied=busy, pin=pin, mint=None
    )
    assert (outcome.result, outcome.left, mini.done) == (Result.NEEDS_DRAIN, ("session",), [])


@pytest.mark.parametrize("mode", Mode)
async def test_a_build_that_no_pod_stands_for_is_not_ended(tmp_path: Path, mode: Mode) -> None:
    own = OwnConfig(node="mini", user="m1", fleet="f")
    for tart, worker, runs in RUNNING.values():
        if not runs:
            continue
        mini = Mini(tart, worker)
        with pytest.raises(HostInUse, match=runs[0]):
            await mini.converger(tmp_path).converge(
                TARGET, own, mode, emptied=empty, pin=pin, mint=None
            )
        with pytest.raises(HostInUse, match=runs[0]):
            await mini.converger(tmp_path).reboot(TARGET, pin)
        assert mini.done == []


@pytest.mark.parametrize(("tart", "worker"), UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_what_cannot_be_told_is_not_ended(tmp_path: Path, tart: Ran, worker: Ran) -> None:
    mini = Mini(tart, worker)
    own = OwnConfig(node="mini", user="m1", fleet="f")
    with pytest.raises(FactUnreadable):
        await mini.converger(tmp_path).converge(
            TARGET, own, Mode.FIRST, emptied=empty, pin=pin, mint=None
        )
    with pytest.raises(FactUnreadable):
        await mini.converger(tmp_path).reboot(TARGET, pin)
    assert mini.done == []


def test_a_host_in_use_is_asked_again_and_counts_as_no_failure() -> None:
    async def story() -> None:
        async with a_ranch() as ranch:
            ranch.macs.errors = [
                HostInUse("mini was left alone", why="the VM packer runs", fix="Wait")
                for _ in range(12)
            ]
            await ranch.host("mini")
            host = await ranch.until("mini", lambda _: len(ranch.macs.attempts) > 10)
            assert (host.status.attempts or 0, host.status.failed_config_hash) == (0, "")
            [said] = [c.message for c in host.status.conditions if c.type == "Converged"]
            assert "the VM packer runs" in said
            await ranch.phase("mini", "Ready")
            assert ranch.macs.reboots == []

    run(story)
