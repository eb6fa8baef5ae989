"""
Mac minis for tests: hosts whose ``tart`` is the stand-in, and a runner image in a real registry.

The machine under the stand-in is what it is, so its Node says ``linux`` here, and so must the pools.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.control_plane import REPOSITORY
from tests.support.tart.installed import StandIn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.docker_registry import DockerRegistry

SIZE = {"cpu": 4, "memory": "4Gi"}
"""Of a VM, for pools: Tart makes none that is smaller."""
GUEST = REPOSITORY / "images/guest/remuda-guest"
_ACCEPT = "application/vnd.oci.image.manifest.v1+json"
_PROGRAM = """\
#!/bin/sh
# The guest of a stand-in is a process: its share is a folder of the host, and to power off is to end.
export REMUDA_MAILBOX="$GUEST_SHARES/mailbox" REMUDA_WORK="$PWD/work" REMUDA_POWER_OFF=true
export REMUDA_NAP_SECONDS=0.1
exec {guest}
"""


@dataclass(frozen=True, slots=True)
class Mac:
    """One host's tart, and what an agent there is told."""

    tart: StandIn

    @property
    def options(self) -> tuple[str, ...]:
        return (
            *("--driver=tart", f"--tart-program={self.tart.program}", "--insecure-registry"),
            *("--cpus=8", "--memory=16Gi"),  # of a mini, whatever the machine under it has
        )

    @property
    def env(self) -> dict[str, str]:
        return self.tart.env()

    def vms(self) -> dict[str, str]:
        """Return all VMs of the host by name, goldens too, each with its state."""
        rows = self.tart.listed("--source", "local")
        return {name: str(row["State"]) for name, row in rows.items()}

    def ours(self) -> dict[str, str]:
        """Return the VMs that are not goldens."""
        return {n: state for n, state in self.vms().items() if not n.startswith("remuda-golden-")}


def a_mac(folder: Path) -> Mac:
    """Install the stand-in below a folder. Its guests are processes."""
    return Mac(StandIn(folder / "tart"))


def push_runner_image(
    registry: DockerRegistry,
    folder: Path,
    name: str,
    *,
    program: str = "",
    disk_bytes: int = 1 << 20,
) -> str:
    """Push an image whose guest runs our runner, from a builder of its own; return it by its digest."""
    builder = StandIn(folder / f"builder-{name}")
    builder.make("source", program or _PROGRAM.format(guest=GUEST), disk_bytes=disk_bytes)
    image = f"{registry.host}/runners/{name}"
    answer = builder.call("push", "source", f"{image}:1", "--insecure")
    assert answer.returncode == 0, answer.stderr
    return f"{image}@{_digest(registry, f'runners/{name}')}"


def _digest(registry: DockerRegistry, name: str) -> str:
    url = f"http://{registry.host}/v2/{name}/manifests/1"
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT}, method="HEAD")
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        return str(answer.headers["Docker-Content-Digest"])
