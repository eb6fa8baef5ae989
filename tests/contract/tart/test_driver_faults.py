"""All that ``tart`` can do to its driver: hang, fail, fill the disk, end early, crash with 0, flood, be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters import detached
from remuda.adapters.detached import Alive
from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart import TartVms
from remuda.agent.settings import Deadlines
from remuda.ports.vms import (
    Ending,
    NoSpace,
    NotThere,
    Power,
    PullProgress,
    RunEnd,
    SeenVm,
    TimedOut,
    VmsError,
    VmShape,
    vm_name,
)
from tests.support.eventually import eventually
from tests.support.tart.driven import AMPLE, DrivenTart, PushedImage, pushed_image
from tests.support.tart.faults import Fault
from tests.support.tart.installed import ROOT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.docker_registry import DockerRegistry

SLOW_S = 60.0
HASTY_S = 4.0
A, B = vm_name("uid-a"), vm_name("uid-b")
CALLER = """
import asyncio, os, sys
from pathlib import Path
from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart import TartSettings, TartVms

settings = TartSettings(folder=Path(sys.argv[1]), env=os.environ, program=sys.argv[2])

async def main():
    await getattr(TartVms(settings, clock=SystemClock(), ids=SystemIds()), sys.argv[3])(*sys.argv[4:])

asyncio.run(main())
"""
"""An agent that does one thing and is to be killed in it."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DrivenTart]:
    made = DrivenTart(tmp_path / "driven")
    yield made
    made.close()


@pytest.fixture(scope="module")
def pushed(registry: DockerRegistry, tmp_path_factory: pytest.TempPathFactory) -> PushedImage:
    return pushed_image(tmp_path_factory.mktemp("faults"), registry)


def hasty(host: DrivenTart, **deadlines: float) -> TartVms:
    """Return another driver of the same host that has less patience with some calls."""
    settings = replace(host.settings, deadlines=replace(AMPLE, **deadlines))
    return TartVms(settings, clock=SystemClock(), ids=SystemIds())


def quietly(_: PullProgress) -> None:
    """Take no notice of progress."""


def called(host: DrivenTart, verb: str) -> list[int]:
    """Return the pid of each call of a verb: each leads a group."""
    notes = host.tart.desk.journal()
    return [int(note["pid"]) for note in notes if note["event"] == "begin" and note["verb"] == verb]


async def group_gone(leader: int) -> None:
    async def is_gone() -> bool:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(is_gone, within_s=SLOW_S)


async def ended(host: DrivenTart, name: str) -> RunEnd:
    async def look() -> SeenVm | None:
        return await host.vms.observe(name)

    def is_off(seen: SeenVm | None) -> bool:
        return seen is not None and seen.power is Power.STOPPED

    seen = await eventually(look, is_off, within_s=SLOW_S)
    assert seen is not None
    assert seen.end is not None
    return seen.end


HANGS: dict[str, tuple[str, Callable[[TartVms], Awaitable[object]]]] = {
    "list": ("list", lambda vms: vms.inventory()),
    "get": ("get", lambda vms: vms.observe(A)),
    "clone": ("clone", lambda vms: vms.clone(A, B)),
    "set": ("set", lambda vms: vms.shape(A, VmShape(cpus=2))),
    "delete": ("delete", lambda vms: vms.delete(A)),
    "exec": ("exec", lambda vms: vms.guest_disk_used(A)),
}


@pytest.mark.parametrize("op", sorted(HANGS))
async def test_a_call_that_hangs_is_killed_with_its_children_and_can_be_repeated(
    host: DrivenTart, op: str
) -> None:
    verb, act = HANGS[op]
    await host.make(A)
    host.tart.order(Fault(verb=verb, kind="hang", stubborn=True, with_child=True))
    with pytest.raises(TimedOut) as raised:
        await act(hasty(host, **{op: HASTY_S}))
    assert raised.value.op == op
    for leader in called(host, verb):
        await group_gone(leader)
    host.tart.order()
    await act(host.vms)


async def test_a_pull_without_progress_is_killed_and_one_with_progress_is_not(
    host: DrivenTart, pushed: PushedImage
) -> None:
    host.tart.order(Fault(verb="pull", kind="stall"))
    with pytest.raises(TimedOut, match="no progress") as raised:
        await hasty(host, pull_idle=HASTY_S).pull(pushed.by_tag, quietly)
    assert raised.value.op == "pull"
    for leader in called(host, "pull"):
        await group_gone(leader)
    host.tart.order()
    await host.vms.pull(pushed.by_tag, quietly)
    assert (await host.vms.inventory()).images


async def test_a_golden_that_hangs_is_killed_and_what_is_dropped_as_well(
    host: DrivenTart, pushed: PushedImage
) -> None:
    await host.vms.pull(pushed.by_digest, quietly)
    host.tart.order(Fault(verb="clone", kind="stall"))
    with pytest.raises(TimedOut) as raised:
        await hasty(host, golden=HASTY_S).make_golden(pushed.by_digest, "golden")
    assert raised.value.op == "golden"
    assert await host.vms.observe("golden") is None, "whole or not at all"
    host.tart.order(Fault(verb="delete", kind="hang"))
    with pytest.raises(TimedOut) as raised:
        await hasty(host, delete=HASTY_S).drop_image(pushed.by_digest)
    assert raised.value.op == "drop"


async def test_a_clone_without_an_identity_of_its_own_is_none(host: DrivenTart) -> None:
    host.tart.make("golden")
    host.tart.order(Fault(verb="set", kind="fail", text="it cannot be set"))
    with pytest.raises(VmsError, match="it cannot be set"):
        await host.vms.clone("golden", A)
    assert await host.vms.observe(A) is None


@pytest.mark.parametrize("verb", ["list", "get", "clone", "set", "delete", "stop"])
async def test_a_call_that_fails_says_what_tart_said(host: DrivenTart, verb: str) -> None:
    await host.make(A)
    acts: dict[str, Callable[[TartVms], Awaitable[object]]] = {
        **{name: act for name, (_, act) in HANGS.items()},
        "stop": lambda vms: vms.stop(A, grace_s=0),
    }
    if verb == "stop":
        await host.vms.run(A)
    text = "odd: https://me:hunter2@registry.example said token=hunter2"
    host.tart.order(Fault(verb=verb, kind="fail", text=text, code=1))
    with pytest.raises(VmsError, match="odd") as raised:
        await acts[verb](host.vms)
    assert type(raised.value) is VmsError
    assert "hunter2" not in str(raised.value)


async def test_a_full_disk_is_told_from_other_failures(
    host: DrivenTart, pushed: PushedImage
) -> None:
    host.tart.make("golden")
    host.fill_disk()
    with pytest.raises(NoSpace):
        await host.vms.pull(pushed.by_tag, quietly)
    with pytest.raises(NoSpace):
        await host.vms.clone("golden", A)
    assert await host.vms.observe(A) is None


async def test_does_not_exist_is_believed_with_its_own_text_only(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="get", kind="fail", code=2, text="the file does not exist"))
    with pytest.raises(VmsError) as raised:
        await host.vms.observe(A)
    assert not isinstance(raised.value, NotThere)


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_vm_that_ends_early_never_booted_and_says_why(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="run", kind="fail", text="Error: no HostKey. token=hunter2"))
    with pytest.raises(VmsError, match="no HostKey") as raised:
        await host.vms.run(A)
    end = await ended(host, A)
    assert end.how is Ending.NEVER_BOOTED
    assert "no HostKey" in end.why
    assert "hunter2" not in end.why + str(raised.value)
    assert host.tart.boots(A) == []


async def test_a_run_that_hangs_is_killed(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="run", kind="hang", stubborn=True, with_child=True))
    with pytest.raises(TimedOut) as raised:
        await hasty(host, run=HASTY_S).run(A)
    assert raised.value.op == "run"
    assert (await ended(host, A)).how is Ending.UNKNOWN
    await host.vms.delete(A)


async def test_while_a_run_hangs_the_vm_counts_as_running_and_is_not_deleted(
    host: DrivenTart,
) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="run", kind="hang"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(host.vms.run(A))

        async def begun() -> list[int]:
            return called(host, "run")

        await eventually(begun, within_s=SLOW_S)
        seen = await host.vms.observe(A)
        assert seen == SeenVm(name=A, power=Power.RUNNING), "tart does not know it yet"
        with pytest.raises(VmsError, match="it runs"):
            await host.vms.delete(A)
        running.cancel()
    seen = await host.vms.observe(A)
    assert seen == SeenVm(name=A, power=Power.RUNNING), "what run started lives on"
    await host.vms.stop(A, grace_s=0)
    assert (await ended(host, A)).how is Ending.STOPPED


async def test_a_crash_with_code_0_is_told_from_a_halt(host: DrivenTart) -> None:
    for name in (A, B):
        await host.make(name)
    host.tart.order(
        Fault(verb="run", kind="crash", vm=A, seconds=0.5, text="the guest is broken"),
        Fault(verb="run", kind="halt", vm=B, seconds=0.5),
    )
    for name in (A, B):
        await host.vms.run(name)
    crashed, halted = await ended(host, A), await ended(host, B)
    assert (crashed.how, crashed.why) == (Ending.CRASHED, "the guest is broken")
    assert (halted.how, halted.why) == (Ending.HALTED, "")
    assert crashed.at is not None


async def test_a_vm_that_does_not_hear_is_ended_all_the_same(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="run", kind="deaf"))
    await host.vms.run(A)
    with contextlib.suppress(TimedOut):
        await hasty(host, stop=8.0).stop(A, grace_s=0)
    assert (await ended(host, A)).how is Ending.STOPPED


async def test_a_stop_that_hangs_is_killed_and_the_vm_as_well(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.run(A)
    host.tart.order(Fault(verb="stop", kind="hang", stubborn=True, with_child=True))
    with pytest.raises(TimedOut) as raised:
        await hasty(host, stop=HASTY_S).stop(A, grace_s=0)
    assert raised.value.op == "stop"
    assert (await ended(host, A)).how is Ending.STOPPED
    for leader in (*called(host, "stop"), *called(host, "run")):
        await group_gone(leader)


async def test_a_vm_is_stopped_and_deleted_though_nothing_can_be_written_about_it(
    host: DrivenTart,
) -> None:
    await host.make(A)
    await host.vms.run(A)
    kept = host.settings.folder / A
    (kept / "run/stopping").symlink_to("nowhere/at all")  # stands for a disk that is full
    await host.vms.stop(A, grace_s=0)
    await ended(host, A)
    (kept / "log").unlink()
    (kept / "log").mkdir()
    with pytest.raises(VmsError, match=r"log|kept"):
        await host.vms.delete(A)
    (kept / "log").rmdir()
    with pytest.raises(NotThere):
        await host.vms.delete(A)
    assert not (kept / "run").exists()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda vms: vms.inventory(), id="inventory"),
        pytest.param(lambda vms: vms.observe(A), id="observe"),
        pytest.param(lambda vms: vms.run(A), id="run"),
        pytest.param(lambda vms: vms.stop(A, grace_s=0), id="stop"),
        pytest.param(lambda vms: vms.delete(A), id="delete"),
    ],
)
async def test_a_file_of_ours_that_cannot_be_read_is_an_error_that_the_agent_knows(
    host: DrivenTart, act: Callable[[TartVms], Awaitable[object]]
) -> None:
    await host.make(A)
    lock = host.settings.folder / A / "run/lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(lock)
    try:
        with pytest.raises(VmsError, match="symbolic links"):
            await act(host.vms)
    finally:
        lock.unlink()


async def test_a_killed_shell_is_no_halted_guest(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.run(A)
    run = host.settings.folder / A / "run"
    alive = detached.look(run)
    assert isinstance(alive, Alive)
    assert alive.pid is not None
    os.kill(alive.pid, signal.SIGKILL)
    again = host.restarted()
    seen = await again.observe(A)
    assert seen == SeenVm(name=A, power=Power.RUNNING), "its VM runs on"
    host.halt(A)
    end = await ended(host, A)
    assert (end.how, end.at) == (Ending.UNKNOWN, None), "nobody saw its end"


async def test_a_group_that_somebody_killed_is_no_halted_guest(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.run(A)
    assert detached.send(host.settings.folder / A / "run", signal.SIGKILL)
    assert (await ended(host, A)).how is Ending.UNKNOWN


async def test_a_recycled_pid_is_neither_killed_nor_taken_for_a_vm(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.run(A)
    host.halt(A)
    assert (await ended(host, A)).how is Ending.HALTED
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)  # noqa: ASYNC220, S607 - any will do
    try:
        (host.settings.folder / A / "run" / "pid").write_text(f"{stranger.pid}\n")
        assert (await ended(host, A)).how is Ending.HALTED
        await host.vms.stop(A, grace_s=0)
        await host.vms.delete(A)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# --- floods -----------------------------------------------------------------------------------------------------------


async def test_a_flood_from_a_call_is_an_error_of_a_few_words(host: DrivenTart) -> None:
    flood = "x" * 20_000_000
    host.tart.order(
        Fault(verb="list", kind="say", text=flood, code=0),
        Fault(verb="list", kind="fail", text=flood, code=1),
    )
    for _ in range(2):
        with pytest.raises(VmsError) as raised:
            await host.vms.inventory()
        assert len(str(raised.value)) < 1000


async def test_a_flood_from_a_vm_goes_to_its_file_and_nowhere_else(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.order(Fault(verb="run", kind="say", text="x" * 5_000_000, code=1))
    with pytest.raises(VmsError) as raised:
        await host.vms.run(A)
    assert len(str(raised.value)) < 1000
    log = host.vms.log_file(A).stat()
    assert (log.st_size, log.st_mode & 0o777) == (5_000_000, 0o600)
    assert len((await ended(host, A)).why) < 1000


# --- an agent that is killed ------------------------------------------------------------------------------------------


async def killed_in(host: DrivenTart, verb: str, method: str, *arguments: str) -> None:
    """Have another process call a method of the driver, and kill it once ``tart`` was called for it."""
    before = len(called(host, verb))
    argv = [sys.executable, "-c", CALLER, str(host.settings.folder), host.settings.program]
    env = {**host.settings.env, "PYTHONPATH": str(ROOT / "src")}
    caller = subprocess.Popen([*argv, method, *arguments], env=env)  # noqa: ASYNC220, S603 - to be killed outright

    async def begun() -> bool:
        assert caller.poll() in {None, 0}, "it failed before it was killed"
        return len(called(host, verb)) > before

    try:
        await eventually(begun, within_s=SLOW_S)
    finally:
        caller.kill()
        caller.wait()


async def test_a_call_of_an_agent_that_was_killed_does_nothing_any_more(host: DrivenTart) -> None:
    """Or else a clone that comes late replaces what was made, and perhaps booted, meanwhile."""
    host.tart.make("golden", "#!/bin/sh\n")
    host.tart.order(Fault(verb="clone", kind="stall", times=1))
    await killed_in(host, "clone", "clone", "golden", A)

    async def stalled() -> list[Fault]:
        return host.tart.desk.waiting()

    await eventually(stalled, lambda waiting: not waiting, within_s=SLOW_S)
    (orphan,) = called(host, "clone")
    os.killpg(orphan, 0)  # it lives, and holds the lock that every clone needs
    assert await host.restarted().observe(A) is None
    await group_gone(orphan)
    await host.vms.clone("golden", A)
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.STOPPED)


async def test_a_vm_is_booted_once_though_its_agent_is_killed_in_run(host: DrivenTart) -> None:
    await host.make(A)
    await killed_in(host, "run", "run", A)

    async def boots() -> int:
        run = detached.look(host.settings.folder / A / "run")
        assert isinstance(run, Alive), (
            run,
            host.vms.log_file(A).read_text(),
            host.tart.desk.journal(),
        )
        return len(host.tart.boots(A))

    await eventually(boots, lambda count: count == 1, within_s=SLOW_S)
    again = host.restarted()
    assert await again.observe(A) == SeenVm(name=A, power=Power.RUNNING)
    with pytest.raises(VmsError, match="it runs already"):
        await again.run(A)
    await again.stop(A, grace_s=0)
    assert (await ended(host, A)).how is Ending.STOPPED
    assert len(host.tart.boots(A)) == 1


async def test_one_call_that_hangs_delays_no_other(host: DrivenTart) -> None:
    for name in (A, B):
        await host.make(name)
    host.tart.order(Fault(verb="get", kind="hang", vm=A))
    async with asyncio.TaskGroup() as tasks:
        hung = tasks.create_task(host.vms.observe(A))

        async def begun() -> list[int]:
            return called(host, "get")

        await eventually(begun, within_s=SLOW_S)
        await host.vms.run(B)
        await host.vms.stop(B, grace_s=0)
        await host.vms.delete(B)
        assert not hung.done()
        hung.cancel()
    for leader in called(host, "get"):
        await group_gone(leader)


def test_every_deadline_of_the_driver_is_a_setting() -> None:
    assert set(HANGS) <= set(Deadlines.__slots__)
