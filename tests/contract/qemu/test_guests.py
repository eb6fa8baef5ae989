"""Real guests. Each boot costs seconds, so each test looks at much."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.qemu.machine import Network
from remuda.ports.vms import (
    Ending,
    Power,
    Refused,
    SeenVm,
    VmsError,
    VmShape,
    golden_name,
    vm_name,
)
from tests.support.eventually import eventually
from tests.support.image_parts import built_image_or_skip
from tests.support.qemu_host import SLOW_S, BuiltImages, QemuHost, lives

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

A, B, C = (vm_name(f"uid-{letter}") for letter in "abc")
WHO = "cat /run/remuda/identity /etc/machine-id /proc/sys/kernel/random/uuid; hostname; date +%s"
REACH = """
reach() { # an address and a port
    if printf hello | timeout 5 nc -w 4 "$1" "$2"; then echo "reached $1"; fi
}
"""


def a_job(script: str, **more: object) -> bytes:
    return json.dumps({"job_id": "1", "kind": "local", "script": script, **more}).encode()


def an_archive(file: Path, content: bytes) -> Path:
    with tarfile.open(file, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo("given/a")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return file


async def cloned(host: QemuHost, *names: str) -> None:
    golden = golden_name(host.image)
    if await host.vms.observe(golden) is None:
        await host.vms.make_golden(host.image, golden)
    for name in names:
        await host.vms.clone(golden, name)
        host.mailbox(name).make()


async def log_of_job(host: QemuHost, name: str, script: str) -> str:
    """Give a guest that was started its job, and return what that printed."""
    await host.shown(name, "ready")
    host.mailbox(name).put_job(a_job(script))
    signs = await host.shown(name, "exit")
    assert signs.exit is not None
    assert signs.exit.code == 0, host.mailbox(name).log_tail()
    return host.mailbox(name).log_tail()


async def _log_of_job_with_files(host: QemuHost, name: str, script: str) -> str:
    """Do the same with files that go along and come back: over the guest's line, which shares no folder."""
    content = os.urandom(300_000)
    archive = an_archive(host.folder / "given.tgz", content)
    signs = await host.shown(name, "takes_files")
    assert signs.ready
    host.mailbox(name).put_files(archive)
    more = {"upload_bytes": archive.stat().st_size, "download": "back\nnone"}
    host.mailbox(name).put_job(a_job(f"mkdir back; cat given/a given/a >back/b\n{script}", **more))
    signs = await host.shown(name, "exit")
    assert signs.exit is not None
    assert (signs.exit.code, signs.exit.files_note) == (0, ""), host.mailbox(name).log_tail()
    back = io.BytesIO(host.mailbox(name).files_part(0, 10_000_000))
    with tarfile.open(fileobj=back, mode="r:gz") as tar:
        file = tar.extractfile("./back/b")
        assert file is not None
        assert file.read() == content * 2
    return host.mailbox(name).log_tail()


async def ended(host: QemuHost, name: str) -> SeenVm:
    async def look() -> SeenVm | None:
        return await host.vms.observe(name)

    def is_off(seen: SeenVm | None) -> bool:
        return seen is not None and seen.power is Power.STOPPED

    seen = await eventually(look, is_off, within_s=SLOW_S)
    assert seen is not None
    return seen


@contextlib.asynccontextmanager
async def a_service() -> AsyncIterator[tuple[int, list[str]]]:
    """Serve on every address of this host, loopback too. Yields the port, and who came."""
    came: list[str] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername")[0])
        writer.write(b"a secret of the host\n")
        writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", 0)  # noqa: S104 - what a guest might reach
    async with server:
        yield server.sockets[0].getsockname()[1], came


async def test_a_guest_reaches_neither_the_host_nor_a_sibling_unless_its_network_is_open(
    host: QemuHost,
) -> None:
    await cloned(host, A, B)
    async with a_service() as (port, came):
        for name in (A, B):
            await host.vms.run(name)
        script = f"""{REACH}
{WHO}
(reach 10.0.2.2 {port} & reach 10.0.2.3 {port} & reach 127.0.0.1 {port} & reach 169.254.169.254 80 &
reach 10.0.2.16 {port} & wait)
ls /sys/class/net
"""
        async with asyncio.TaskGroup() as together:
            jobs = [together.create_task(log_of_job(host, name, script)) for name in (A, B)]
        said = [job.result() for job in jobs]
        assert came == []
        for log, name in zip(said, (A, B), strict=True):
            assert "reached" not in log
            assert "secret" not in log
            assert "eth0" in log, "it has a card; it is the network that leads nowhere"
            assert f"name={name}" in log
        differ = [[line for line in log.split("\n") if "=" in line or "-" in line] for log in said]
        for mine, other in zip(*(lines[:5] for lines in differ), strict=True):
            assert mine == other == "reseeded=yes" or mine != other, "their identities differ"
        for name in (A, B):
            seen = await ended(host, name)
            assert seen.end is not None
            assert seen.end.how is Ending.HALTED

        # The same guest on an open network gets there: so the above shows something.
        opened = host.restarted(network=Network.OPEN)
        assert host.vms.abilities.isolated
        assert not opened.abilities.isolated
        await cloned(host, C)
        await opened.run(C)
        log = await _log_of_job_with_files(host, C, f"{REACH}\nreach 10.0.2.2 {port}")
        assert "a secret of the host" in log
        assert came


CALLER = """
import asyncio, sys
from pathlib import Path
from tests.support.qemu_host import QemuHost

async def main():
    host = QemuHost(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    await host.vms.run(sys.argv[4])
    print("runs", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_vm_whose_caller_was_killed_does_its_job_and_its_panic_is_a_crash(
    host: QemuHost,
) -> None:
    await cloned(host, A)
    words = [str(host.folder), str(host.images), host.image, A]
    caller = subprocess.Popen(  # noqa: ASYNC220, S603 - our own words; it ends within this test
        [sys.executable, "-c", CALLER, *words], stdout=subprocess.PIPE
    )
    with caller:
        assert caller.stdout is not None
        assert await asyncio.to_thread(caller.stdout.readline) == b"runs\n"
        caller.kill()
    await host.shown(A, "ready")

    async def disk_used() -> float | None:
        return await host.vms.guest_disk_used(A)

    used = await eventually(disk_used, lambda used: used is not None, within_s=SLOW_S)
    assert used is not None
    assert 0 <= used < 1
    host.mailbox(A).put_job(a_job("sleep 1; echo c >/proc/sysrq-trigger; sleep 60"))
    seen = await ended(host, A)
    assert seen.end is not None
    assert seen.end.how is Ending.CRASHED
    assert "panic" in seen.end.why
    assert seen.end.at is not None


async def test_whoever_of_a_vm_is_killed_nothing_of_it_is_left(host: QemuHost) -> None:
    await cloned(host, A, B)
    for name, role in ((A, "qemu"), (B, "keeper")):
        await host.vms.run(name)
        processes = host.processes(name)
        os.kill(processes[role], signal.SIGKILL)
        seen = await ended(host, name)
        assert seen.end is not None
        assert seen.end.how is Ending.CRASHED

        async def living(pids: tuple[int, ...] = tuple(processes.values())) -> list[int]:
            return [pid for pid in pids if lives(pid)]

        await eventually(living, lambda pids: pids == [], within_s=SLOW_S)


async def test_a_vm_is_stopped_and_deleted_though_nothing_can_be_written_about_it(
    host: QemuHost,
) -> None:
    await cloned(host, A)
    await host.vms.run(A)
    # Both stand for a disk that is full, which only this can empty.
    (host.folder / "qemu/vms" / A / "stop").symlink_to("nowhere/at all")
    await host.vms.stop(A, grace_s=SLOW_S)
    shutil.rmtree(host.folder / "qemu/unfinished")
    (host.folder / "qemu/unfinished").touch()
    await host.vms.delete(A)
    assert await host.vms.observe(A) is None


async def test_a_machine_that_cannot_be_made_never_booted(host: QemuHost) -> None:
    await cloned(host, A)
    await host.vms.shape(A, VmShape(memory_mib=10**9))
    with pytest.raises(VmsError, match="ended as soon as it was started"):
        await host.vms.run(A)
    seen = await ended(host, A)
    assert seen.end is not None
    assert seen.end.how is Ending.NEVER_BOOTED
    assert seen.end.why


async def test_goldens_and_names_are_not_run(host: QemuHost) -> None:
    await cloned(host)
    with pytest.raises(Refused, match="golden"):
        await host.vms.run(golden_name(host.image))
    with pytest.raises(Refused, match="not a name"):
        await host.vms.observe("../vms")
    name = f"{host.image.partition('@')[0]}@sha256:{'0' * 64}"
    with pytest.raises(Refused, match="cannot be used"):
        await host.vms.make_golden(name, golden_name(name))
    assert [vm.name for vm in (await host.vms.inventory()).vms] == [golden_name(host.image)]


async def test_guests_from_one_snapshot_are_not_one_guest(
    built: BuiltImages, tmp_path: Path
) -> None:
    image = built_image_or_skip(built.folder, "runners.example/snapshot:1", "--snapshot")
    host = QemuHost(tmp_path, built.folder, image)
    try:
        await cloned(host, A, B)
        for name in (A, B):
            await host.vms.run(name)
        said = [await log_of_job(host, name, WHO) for name in (A, B)]
    finally:
        host.close()
    first, second = (log.split("\n") for log in said)
    assert first[3] == second[3] == "reseeded=yes"
    for mine, other in zip(first[:3] + first[4:7], second[:3] + second[4:7], strict=True):
        assert mine != other
    plan = json.loads((tmp_path / "qemu/vms" / A / "plan.json").read_text())
    assert plan["incoming"], "it went on from the snapshot"
    booted = int(first[7])
    assert abs(booted - int(second[7])) < SLOW_S, "their clocks are not the snapshot's"
    assert booted > os.stat(tmp_path / "qemu/vms" / golden_name(image) / "snapshot").st_mtime - 5  # noqa: PTH116 - a time
