"""What the driver without isolation gives all the same: places of its own, an end for all, and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.process.guest import guest_script
from remuda.adapters.process.leftovers import leftovers, shown_by_ps
from remuda.ports.vms import Ending, HostUnfit, Power, Refused, VmsError, golden_name, vm_name
from tests.support.eventually import eventually
from tests.support.process_host import SLOW_S, ProcessHost, process_host

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = vm_name("uid-a"), vm_name("uid-b")
DAEMON = 'setsid sh -c "echo \\$\\$ >$HOME/daemon; exec sleep 1000" & until [ -s $HOME/daemon ]; do sleep 0.05; done'
BARE = DAEMON.replace("setsid sh", "setsid env -i /bin/sh").replace(
    "$HOME/daemon; exec", "$HOME/daemon; exec"
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ProcessHost]:
    with process_host(tmp_path, lambda _: None) as made:
        yield made


def a_job(script: str) -> bytes:
    return json.dumps({"job_id": "local-1", "kind": "local", "script": script}).encode()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def text_of(note: Path) -> str:
    return note.read_text() if note.exists() else ""


async def until_gone(pid: int) -> None:
    async def gone() -> bool:
        return is_gone(pid)

    await eventually(gone, within_s=SLOW_S)


async def test_it_says_that_it_does_not_isolate(host: ProcessHost) -> None:
    assert host.vms.abilities.isolated is False
    assert host.vms.abilities.runtime == "process"


async def test_a_job_goes_through_it_from_end_to_end(host: ProcessHost) -> None:
    await host.started(A)
    host.mailbox(A).put_job(a_job("cat $HOME/tool; exit 5"))
    signs = await host.shown(A, "exit")
    assert signs.exit is not None
    assert signs.exit.code == 5
    assert host.mailbox(A).log_tail() == "of the image"
    await host.off(A)
    seen = await host.vms.observe(A)
    assert seen is not None
    assert seen.end is not None
    assert seen.end.how is Ending.HALTED
    await host.vms.delete(A)
    assert not host.place(A).exists()
    assert not host.vms.log_file(A).exists()


async def test_a_guest_has_places_of_its_own_and_nothing_of_the_agents(host: ProcessHost) -> None:
    await host.started(A)
    host.mailbox(A).put_job(a_job("pwd; env"))
    await host.shown(A, "exit")
    place, *env = host.mailbox(A).log_tail().splitlines()
    assert place.startswith(f"{host.place(A)}/")
    shown = dict(line.partition("=")[::2] for line in env)
    assert shown["HOME"] == str(host.place(A) / "home")
    assert shown["TMPDIR"] == str(host.place(A) / "tmp")
    of_shells = {"PWD", "OLDPWD", "SHLVL", "_"}
    told = {"HOME", "TMPDIR", "PATH", "SHELL", "LANG", "REMUDA_JOB_ID", "REMUDA_VM"}
    assert set(shown) - of_shells == told


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere less is found, and the module says so"
)
@pytest.mark.parametrize(
    "daemon", [DAEMON, BARE], ids=["a daemon", "a daemon that forgot its environment"]
)
async def test_what_left_its_group_ends_when_it_is_stopped(host: ProcessHost, daemon: str) -> None:
    await host.started(A)
    host.mailbox(A).put_job(a_job(f"{daemon}; sleep 1000"))
    note = host.place(A) / "home" / "daemon"
    pid = await noted(note)
    await host.vms.stop(A, grace_s=0)
    await until_gone(pid)
    seen = await host.vms.observe(A)
    assert seen is not None
    assert seen.power is Power.STOPPED
    assert seen.end is not None
    assert seen.end.how is Ending.STOPPED
    assert leftovers(host.place(A)) == ()


async def noted(note: Path) -> int:
    async def read() -> str:
        return text_of(note)

    text = await eventually(read, lambda text: text.endswith("\n"), within_s=SLOW_S)
    return int(text)


async def test_a_guest_is_stopped_though_nothing_can_be_written_about_it(host: ProcessHost) -> None:
    await host.started(A)
    (host.place(A) / "stopped").symlink_to("nowhere/at all")  # stands for a disk that is full
    await host.vms.stop(A, grace_s=0)
    seen = await host.vms.observe(A)
    assert seen is not None
    assert seen.power is Power.STOPPED


async def test_what_outlived_its_guest_ends_when_it_is_deleted(host: ProcessHost) -> None:
    await host.started(A)
    host.mailbox(A).put_job(a_job(f"{DAEMON}; exit 0"))
    pid = await noted(host.place(A) / "home" / "daemon")
    await host.off(A)
    assert not is_gone(pid)
    await host.vms.delete(A)
    await until_gone(pid)


async def test_a_guest_ends_alone(host: ProcessHost) -> None:
    for name in (A, B):
        await host.started(name)
    await host.vms.stop(A, grace_s=0)
    seen = await host.vms.observe(B)
    assert seen is not None
    assert seen.power is Power.RUNNING


async def test_a_guest_that_is_stopped_may_tidy_up(host: ProcessHost) -> None:
    await host.started(A)
    host.mailbox(A).put_job(
        a_job("trap 'echo tidy; exit 5' TERM; touch $HOME/up; while :; do sleep 0.05; done")
    )
    up = host.place(A) / "home" / "up"

    async def is_up() -> bool:
        return up.exists()

    await eventually(is_up, within_s=SLOW_S)
    await host.vms.stop(A, grace_s=SLOW_S)
    signs = host.mailbox(A).look()
    assert signs.exit is not None
    assert signs.exit.code == 5
    assert "tidy\n" in host.mailbox(A).log_tail()


@pytest.mark.parametrize(
    ("kill", "how"),
    [
        pytest.param("kill -9 $PPID", Ending.CRASHED, id="its guest"),
        pytest.param(
            "read -r _ _ _ _ group _ </proc/$PPID/stat; kill -9 -$group",
            Ending.UNKNOWN,
            id="all who could tell",
        ),
    ],
)
async def test_a_job_that_kills_ends_its_own_guest_alone(
    host: ProcessHost, kill: str, how: Ending
) -> None:
    await host.started(A)
    host.mailbox(A).put_job(a_job(f"{kill}; sleep 1000"))
    await host.off(A)
    seen = await host.vms.observe(A)
    assert seen is not None
    assert seen.end is not None
    assert seen.end.how is how
    await host.vms.delete(A)
    assert leftovers(host.place(A)) == ()


async def test_a_directory_is_removed_whatever_its_rights(host: ProcessHost) -> None:
    await host.started(A)
    script = "mkdir -p a/b/c; touch a/b/c/d; ln -s / a/root; chmod 000 a/b/c a/b a; mkfifo pipe; chmod 0 $HOME"
    host.mailbox(A).put_job(a_job(script))
    await host.off(A)
    await host.vms.delete(A)
    assert not host.place(A).exists()


async def test_a_clone_that_was_interrupted_is_none_and_is_made_anew(host: ProcessHost) -> None:
    half = host.place(f".new-{A}")
    for _ in range(2):
        (half / "home").mkdir(parents=True)
        (half / "home" / "half").touch()
        if await host.vms.observe(A) is None:
            await host.started(A)
    assert not (host.place(A) / "home" / "half").exists()
    assert {vm.name for vm in (await host.vms.inventory()).vms} == {A, golden_name(host.image)}
    assert not half.exists()


@pytest.mark.parametrize("image", ["/etc", "../images", "none", "a/../../images", ".", ""])
async def test_an_image_is_a_folder_among_the_images(host: ProcessHost, image: str) -> None:
    with pytest.raises(Refused):
        await host.vms.pull(image, lambda _: None)


async def test_the_image_that_is_built_in_is_empty(host: ProcessHost) -> None:
    host.image = "process"
    await host.started(A)
    assert os.listdir(host.place(A) / "home") == []  # noqa: PTH208 - names
    assert await host.vms.image_bytes("process") == 0
    await host.vms.delete(golden_name("process"))


async def test_without_its_program_no_guest_is_started(host: ProcessHost) -> None:
    await host.started(A)
    await host.vms.stop(A, grace_s=0)
    host.guest = host.folder / "none"
    with pytest.raises(HostUnfit):
        await host.restarted().run(A)


async def test_a_program_that_ends_at_once_never_booted(host: ProcessHost) -> None:
    host.guest = host.folder / "broken"
    host.guest.write_text("echo cannot >&2; exec /no/such/program\n")
    host.vms = host.restarted()
    await host.vms.make_golden(host.image, golden_name(host.image))
    await host.vms.clone(golden_name(host.image), A)
    with contextlib.suppress(VmsError):  # it may be seen at once, or later
        await host.vms.run(A)
    await host.off(A)
    seen = await host.vms.observe(A)
    assert seen is not None
    assert seen.end is not None
    assert seen.end.how is Ending.NEVER_BOOTED
    assert "cannot" in seen.end.why


def test_the_guests_program_is_found_in_a_checkout_and_in_a_package(tmp_path: Path) -> None:
    assert guest_script().name == "remuda-guest"
    with pytest.raises(HostUnfit):
        guest_script((tmp_path,))
    (tmp_path / "remuda-guest").touch()
    assert guest_script((tmp_path / "none", tmp_path)) == tmp_path / "remuda-guest"


async def test_ps_shows_a_guest_as_well(host: ProcessHost) -> None:
    await host.started(A)
    found = shown_by_ps(host.place(A), "axeww" if sys.platform == "linux" else "-axEww")
    assert found
    assert set(found) <= {*leftovers(host.place(A)), *found}
    assert shown_by_ps(host.place(B), "axeww") == ()
