"""The driver of Tart, through the stand-in: what it calls, what it sees, what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart import TartVms
from remuda.agent.mailbox import HostMailbox
from remuda.ports.vms import (
    Ending,
    HostUnfit,
    NotThere,
    Power,
    PullProgress,
    Refused,
    SeenVm,
    VmShape,
    golden_name,
    vm_name,
)
from tests.support.eventually import eventually
from tests.support.tart.driven import DrivenTart, PushedImage, pushed_image
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.docker_registry import DockerRegistry

SLOW_S = 60.0
A, B = vm_name("uid-a"), vm_name("uid-b")
ASKED_TO_END = """\
#!/bin/sh
trap 'echo asked > "$GUEST_SHARES/mailbox/runner.log"; exit 0' TERM
: > "$GUEST_SHARES/mailbox/ready"
while :; do sleep 0.1; done
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DrivenTart]:
    made = DrivenTart(tmp_path / "driven")
    yield made
    made.close()


@pytest.fixture(scope="module")
def pushed(registry: DockerRegistry, tmp_path_factory: pytest.TempPathFactory) -> PushedImage:
    return pushed_image(tmp_path_factory.mktemp("driver"), registry)


def asked(host: DrivenTart, verb: str) -> list[list[str]]:
    """Return the arguments of each call of a verb."""
    notes = host.tart.desk.journal()
    return [note["argv"] for note in notes if note["event"] == "begin" and note["verb"] == verb]


def quietly(_: PullProgress) -> None:
    """Take no notice of progress."""


async def ended(host: DrivenTart, name: str) -> SeenVm:
    async def look() -> SeenVm | None:
        return await host.vms.observe(name)

    def is_off(seen: SeenVm | None) -> bool:
        return seen is not None and seen.power is Power.STOPPED

    seen = await eventually(look, is_off, within_s=SLOW_S)
    assert seen is not None
    return seen


def config(host: DrivenTart, name: str) -> dict[str, object]:
    return host.tart.vm(name).config()


# --- what it calls ----------------------------------------------------------------------------------------------------


async def test_a_vm_is_run_without_a_screen_with_its_mailbox_and_nothing_else(
    host: DrivenTart,
) -> None:
    await host.make(A)
    await host.vms.run(A)
    (argv,) = asked(host, "run")
    assert argv == [
        *("run", A, "--no-graphics", "--no-audio", "--root-disk-opts", "caching=cached"),
        *("--dir", f"mailbox:{host.vms.mailbox(A)}"),
    ]
    assert (host.vms.mailbox(A) / "ready").exists()


async def test_softnet_is_asked_for_if_it_is_wanted(host: DrivenTart) -> None:
    settings = replace(host.settings, softnet=True)
    await host.make(A)
    await TartVms(settings, clock=SystemClock(), ids=SystemIds()).run(A)
    assert "--net-softnet" in asked(host, "run")[0]


async def test_each_clone_has_an_identity_of_its_own(host: DrivenTart) -> None:
    host.tart.make("golden", "#!/bin/sh\n")
    await host.vms.clone("golden", A)
    await host.vms.clone("golden", B)
    for part in ("macAddress", "ecid"):
        assert len({str(config(host, name)[part]) for name in ("golden", A, B)}) == 3


async def test_a_vm_has_the_size_that_it_is_given(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.shape(A, VmShape(cpus=2, memory_mib=2048))
    await host.vms.shape(A, VmShape())
    assert (config(host, A)["cpuCount"], config(host, A)["memorySize"]) == (2, 2048 * 1024**2)
    with pytest.raises(Refused, match="at minimum"):
        await host.vms.shape(A, VmShape(memory_mib=1))


@pytest.mark.parametrize("name", ["-rf", "--help", "a/b", "..", "", "a b"])
async def test_a_name_that_is_none_reaches_no_program(host: DrivenTart, name: str) -> None:
    calls = (
        host.vms.observe(name),
        host.vms.clone("golden", name),
        host.vms.clone(name, A),
        host.vms.make_golden("registry.example/x:1", name),
        host.vms.shape(name, VmShape()),
        host.vms.run(name),
        host.vms.stop(name, grace_s=1),
        host.vms.delete(name),
        host.vms.guest_disk_used(name),
    )
    for call in calls:
        with pytest.raises((Refused, NotThere)):
            await call
    for place in (host.vms.mailbox, host.vms.log_file):
        with pytest.raises(Refused):
            place(name)
    words = [word for note in host.tart.desk.journal() for word in note.get("argv", [])]
    assert name not in words or name == "--help"
    assert "--help" not in words


@pytest.mark.parametrize("image", ["-x", "local", "UPPER.example/X:1", "registry.example/x:1 y"])
async def test_an_image_that_is_none_reaches_no_program(host: DrivenTart, image: str) -> None:
    for call in (
        host.vms.pull(image, quietly),
        host.vms.make_golden(image, "golden"),
        host.vms.drop_image(image),
        host.vms.image_bytes(image),
    ):
        with pytest.raises(Refused):
            await call
    assert host.tart.desk.journal() == []


async def test_without_the_program_the_host_is_unfit(host: DrivenTart) -> None:
    host.tart.program.unlink()
    with pytest.raises(HostUnfit):
        await host.vms.inventory()


# --- what it sees -----------------------------------------------------------------------------------------------------


async def test_half_a_vm_is_seen_and_can_be_deleted(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.vm(A).nvram.unlink()
    half = SeenVm(name=A, power=Power.STOPPED)
    assert await host.vms.observe(A) == half
    assert (await host.vms.inventory()).vms == (half,), "tart itself does not list it"
    await host.vms.delete(A)
    assert await host.vms.observe(A) is None


async def test_nothing_is_kept_of_a_vm_whose_mailbox_is_removed_after_it(host: DrivenTart) -> None:
    await host.make(A)
    await host.vms.run(A)
    await host.vms.stop(A, grace_s=0)
    await host.vms.delete(A)
    mailbox = HostMailbox(host.vms.mailbox(A))
    assert mailbox.look().ready, "the driver leaves it"
    mailbox.remove()
    assert [path for path in host.settings.folder.rglob("*") if A in str(path)] == []


async def test_a_suspended_vm_does_not_run(host: DrivenTart) -> None:
    await host.make(A)
    host.tart.vm(A).saved_state.touch()
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.STOPPED)
    await host.vms.stop(A, grace_s=0)


async def test_what_somebody_else_runs_is_seen_and_its_end_is_not_ours_to_tell(
    host: DrivenTart,
) -> None:
    await host.make(A)
    process = host.tart.start("run", A, "--no-graphics")

    async def powers() -> list[Power]:
        return [vm.power for vm in (await host.vms.inventory()).vms]

    await eventually(powers, lambda seen: seen == [Power.RUNNING], within_s=SLOW_S)
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.RUNNING)
    await host.vms.stop(A, grace_s=0)
    assert await ended(host, A) == SeenVm(name=A, power=Power.STOPPED)
    process.communicate(timeout=SLOW_S)


async def test_a_guest_is_asked_before_it_is_switched_off(host: DrivenTart) -> None:
    await host.make(A, ASKED_TO_END)
    await host.vms.run(A)
    leases = host.tart.desk.folder / "dhcpd_leases"

    async def is_watched() -> bool:
        return leases.exists()  # then the stand-in hears signals

    await eventually(is_watched, within_s=SLOW_S)
    await host.vms.stop(A, grace_s=SLOW_S)
    assert (host.vms.mailbox(A) / "runner.log").read_text() == "asked\n"
    seen = await ended(host, A)
    assert seen.end is not None
    assert seen.end.how is Ending.STOPPED


async def test_a_vm_whose_folder_was_taken_away_still_runs_until_it_is_stopped(
    host: DrivenTart,
) -> None:
    await host.make(A)
    await host.vms.run(A)

    async def boots() -> int:
        return len(host.tart.boots(A))

    await eventually(boots, within_s=SLOW_S)  # from now on tart itself needs the folder no more
    host.tart.vm(A).folder.rename(host.folder / "taken away")
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.RUNNING)
    assert (await host.vms.inventory()).vms == (SeenVm(name=A, power=Power.RUNNING),)
    await host.vms.stop(A, grace_s=0)
    assert await host.vms.observe(A) is None
    with pytest.raises(NotThere):
        await host.vms.delete(A)
    assert not host.vms.log_file(A).exists()


async def test_the_disk_of_a_guest_is_measured_in_the_guest(host: DrivenTart) -> None:
    await host.make(A)
    assert await host.vms.guest_disk_used(A) is None
    await host.vms.run(A)
    used = await host.vms.guest_disk_used(A)
    assert used is not None
    assert 0 < used <= 1
    assert asked(host, "exec")[-1] == ["exec", A, "/bin/df", "-k", "/"]
    with pytest.raises(NotThere):
        await host.vms.guest_disk_used(B)


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["by_tag", "by_digest"])
async def test_an_image_is_pulled_once_and_dropped_by_any_name(
    host: DrivenTart, pushed: PushedImage, by: str
) -> None:
    image: str = getattr(pushed, by)
    seen: list[PullProgress] = []
    await host.vms.pull(image, seen.append)
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)
    await host.vms.pull(image, quietly)
    assert len(asked(host, "pull")) == 1, (
        "what is there is not asked for, whatever the registry does"
    )
    await host.vms.make_golden(image, golden_name(image))
    assert image in {cached.ref for cached in (await host.vms.inventory()).images}
    await host.vms.drop_image(image)
    assert (await host.vms.inventory()).images == ()
    with pytest.raises(NotThere):
        await host.vms.drop_image(image)
    assert await host.vms.observe(golden_name(image)) is not None, "a golden needs no image"


async def test_the_size_of_an_image_is_known_before_it_is_pulled(
    host: DrivenTart, pushed: PushedImage
) -> None:
    for image in (pushed.by_tag, pushed.by_digest):
        size = await host.vms.image_bytes(image)
        assert size is not None
        assert 3_000_000 <= size < 3_100_000
    assert await host.vms.image_bytes(f"{pushed.by_tag}-none") is None
    assert host.tart.desk.journal() == [], "nothing was called for it"


async def test_nothing_is_pulled_by_the_way(host: DrivenTart, pushed: PushedImage) -> None:
    with pytest.raises(NotThere, match="was not pulled"):
        await host.vms.make_golden(pushed.by_tag, "golden")
    assert asked(host, "clone") == []
    assert asked(host, "pull") == []


async def test_no_secret_of_the_agent_reaches_a_vm(host: DrivenTart) -> None:
    """The process of a VM lives long; what it was started with can be read by the same user."""
    env = {**host.settings.env, "TART_REGISTRY_PASSWORD": "hunter2", "REMUDA_TOKEN": "hunter3"}
    settings = replace(host.settings, env=env)
    await host.make(A, '#!/bin/sh\nenv > "$GUEST_SHARES/mailbox/runner.log"\nsleep 600\n')
    await TartVms(settings, clock=SystemClock(), ids=SystemIds()).run(A)
    log = host.vms.mailbox(A) / "runner.log"

    async def said() -> str:
        return log.read_text()

    text = await eventually(said, lambda text: "GUEST_SHARES" in text, within_s=SLOW_S)
    assert "hunter" not in text + json.dumps(host.tart.desk.journal())


async def test_an_image_that_is_gone_is_gone_however_tart_says_so(host: DrivenTart) -> None:
    text = "Error: The file couldn't be removed."
    host.tart.order(Fault(verb="delete", kind="fail", text=text, code=1))
    with pytest.raises(NotThere):
        await host.vms.drop_image("registry.example/none:1")
