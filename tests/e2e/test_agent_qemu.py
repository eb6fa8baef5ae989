"""
A job on a real machine that QEMU emulates, all the way: Pod, boot, ready, job, exit code, gone.

The job tries what a hostile one would: to find the token by which the agent asks for jobs, to reach the API server,
dispatch and the agent, and to reach the VM beside it. The same script on a host whose network is open gets through, so
that what it says of the closed one means something.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from tests.support.agents import processes_below
from tests.support.eventually import eventually
from tests.support.qemu_host import built_images_or_skip
from tests.support.ranch import SERVER, Ranch, a_ranch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.kube.core import Pod
    from tests.support.control_plane import RealControlPlane
    from tests.support.qemu_host import BuiltImages

BOOT_S: Final = 240.0
"""For two machines without acceleration, beside others."""
MACHINES: Final = ("--driver=qemu", "--qemu-accel=tcg", "--vms=2", "--cpus=4", "--memory=2Gi")
SIZE: Final = {"cpu": 1, "memory": "192Mi"}
SIBLINGS_PORT: Final = 7777
OWN_PORT: Final = 7778
HOST: Final = "10.0.2.2"
"""As QEMU's network has it: what listens on the host's loopback is there, if it is let through."""
OTHERS: Final = ("10.0.2.3", "10.0.2.4", "10.0.2.15", "10.0.2.16", "127.0.0.1", "169.254.169.254")
JWT: Final = re.compile(rb"eyJ[A-Za-z0-9_-]{20,}\.eyJ")

LISTEN: Final = f"""\
listen() {{ while :; do nc -l -p "$1" </dev/null >/dev/null && echo "visited at $1"; done; }}
listen {SIBLINGS_PORT} &
listen {OWN_PORT} &
until netstat -ltn | grep -q ":{SIBLINGS_PORT} "; do sleep 0.2; done
until printf x | timeout 30 nc -w 25 127.0.0.1 {OWN_PORT}; do sleep 0.2; done
echo listening at $(ip -4 -o address show eth0)
while :; do sleep 1; done
"""
"""The sibling: it says who visits it. It visits itself at one port, so that silence about the other means something."""
SEARCH: Final = """\
pattern='ey[J][A-Za-z0-9_-]\\{16,\\}'
echo "env: $(env | grep -c "$pattern")"
echo "processes: $(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -c "$pattern")"
printf 'ey%s' 'JjYW5hcnk-this-one-is-to-be-found' > /tmp/canary
for file in $(find / /tmp /run /disk -xdev -type f -exec grep -l "$pattern" {} + | sort -u); do
    echo "file: $file"
done
[ -e /var/run/secrets ] || echo "no secrets"
"""
TRY: Final = """\
try() { # an address and a port
    if printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout "$patience" nc -w "$patience" "$1" "$2" >/dev/null 2>&1; then
        echo "reached $1:$2"
    else
        echo "failed $1:$2"
    fi
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltImages:
    return built_images_or_skip(tmp_path_factory.mktemp("images"))


@pytest.fixture
async def ranch(
    real_control_plane: RealControlPlane, database_url: str, tmp_path: Path
) -> AsyncIterator[Ranch]:
    async with a_ranch(real_control_plane, database_url, tmp_path) as made:
        yield made


def ports(ranch: Ranch, host: str) -> dict[str, int]:
    """Return what listens on this host and is no guest's business, each by its port."""
    agent = ranch.agents.host(host)
    urls = {"API server": ranch.plane.access.url, "dispatch": ranch.servers.url(SERVER)}
    found = {name: urlsplit(url).port or 0 for name, url in urls.items()}
    return {**found, "agent": agent.port, "kubelet": agent.kubelet_port}


def own_addresses() -> list[str]:
    """Return the addresses of this machine on its networks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return [probe.getsockname()[0]]


async def has_listener(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def script(targets: list[tuple[str, int]], code: int, patience_s: int) -> str:
    """Return a job that looks for the token, tries to reach each of these at once, and ends with a code."""
    tries = "".join(f"try {address} {port} &\n" for address, port in targets)
    return f"patience={patience_s}\n{SEARCH}{TRY}({tries}wait)\necho all tried\nexit {code}\n"


async def runner_of(ranch: Ranch, job: str) -> Pod:
    """Return the Pod that has a job."""

    async def probe() -> list[Pod]:
        found = []
        for pod in await ranch.pods():
            told = await ranch.api.get(f"/api/v1/runners/{pod.name}")
            if told["session"] and told["session"]["job_id"] == job:
                found.append(pod)
        return found

    (pod,) = await eventually(probe, within_s=BOOT_S)
    return pod


def tokens_in(folder: Path) -> list[Path]:
    """Return the files that hold something like a token, disks of guests too."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # of a VM that is being made or removed
            if path.is_file() and not path.is_symlink() and JWT.search(path.read_bytes()):
                found.append(path)
    return found


async def test_a_job_on_a_machine_runs_and_gets_at_nothing_but_itself(
    ranch: Ranch, built: BuiltImages
) -> None:
    host = ranch.add_host(*MACHINES, f"--images={built.folder}")
    await ranch.create_pool("machines", 2, image=built.image, resources=SIZE)
    await ranch.warm("machines", 2, within_s=BOOT_S)
    listens = ports(ranch, host)
    for name, port in listens.items():
        assert await has_listener(port), f"{name} listens on this host"

    sibling_job = await ranch.post("machines", LISTEN)
    await eventually(
        lambda: ranch.output(sibling_job), lambda text: "listening at" in text, within_s=BOOT_S
    )
    sibling = await runner_of(ranch, sibling_job)
    shown = await asyncio.to_thread(
        ranch.plane.kubectl, "logs", sibling.name, f"--namespace={ranch.namespace}"
    )
    assert "listening at" in shown

    addresses = (HOST, *OTHERS, *own_addresses())
    targets = [(address, port) for address in addresses for port in listens.values()]
    targets += [(address, SIBLINGS_PORT) for address in addresses]
    job = await ranch.post("machines", script(targets, 5, 8))
    worker = await runner_of(ranch, job)
    over = await ranch.until_job(job, within_s=BOOT_S)

    assert (over["state"], over["conclusion"]) == ("completed", "failure")
    session = await ranch.session(worker.name)
    assert (session["job_id"], session["exit_code"]) == (job, 5)
    said = (await ranch.output(job)).splitlines()
    assert sorted(line for line in said if line.startswith(("failed", "reached"))) == sorted(
        f"failed {address}:{port}" for address, port in targets
    )
    assert [line for line in said if line.startswith("file: ")] == ["file: /tmp/canary"]
    assert {"env: 0", "processes: 0", "no secrets", "all tried"} <= set(said)
    kept = await asyncio.to_thread(tokens_in, ranch.agents.host(host).data)
    assert kept == [], "the token is in memory alone"

    await ranch.api.post(f"/api/v1/jobs/{sibling_job}/cancel", {})
    await ranch.until_job(sibling_job, within_s=BOOT_S)
    heard = await ranch.output(sibling_job)
    assert f"visited at {OWN_PORT}" in heard
    assert f"visited at {SIBLINGS_PORT}" not in heard, "nobody but itself has come"
    reasons = [reason for reason, _ in await ranch.events(worker.name)]
    assert {"CreatingVM", "RunnerWarm", "JobDelivered"} <= set(reasons)
    await ranch.delete_pool("machines")
    await nothing_left(ranch, host)


async def test_the_same_job_gets_through_where_the_network_is_open(
    ranch: Ranch, built: BuiltImages
) -> None:
    options = (f"--images={built.folder}", "--qemu-network=open")
    host = ranch.add_host(*MACHINES, *options)
    await ranch.create_pool("open", 1, image=built.image, resources=SIZE)
    listens = ports(ranch, host)
    targets = [(HOST, port) for port in listens.values()]
    job = await ranch.post("open", script(targets, 0, 100))
    over = await ranch.until_job(job, within_s=BOOT_S)

    assert over["conclusion"] == "success"
    said = (await ranch.output(job)).splitlines()
    reached = {line for line in said if line.startswith("reached")}
    assert reached == {f"reached {HOST}:{port}" for port in listens.values()}
    assert [line for line in said if line.startswith("file: ")] == ["file: /tmp/canary"]
    await ranch.delete_pool("open")
    await nothing_left(ranch, host)


async def nothing_left(ranch: Ranch, host: str) -> None:
    """Wait until a host has neither a record, nor a disk, nor a mailbox, nor a process of any VM."""
    data = ranch.agents.host(host).data

    async def left() -> list[str]:
        files = [*(data / "records/vms").glob("*.json"), *(data / "held-jobs").glob("*.json")]
        files += [p for p in (data / "qemu").rglob("remuda-*") if "remuda-golden-" not in str(p)]
        return [*map(str, files), *processes_below(data / "qemu").values()]

    await eventually(left, lambda found: found == [], within_s=120)
