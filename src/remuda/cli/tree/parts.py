"""The parts of a tree: the real commands of this program, and what each is told."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.cli.tree.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.cli.tree.decide.driver import Size
    from remuda.cli.tree.folder import Folder, Kept

CONTROL_PLANE: Final = "control-plane"
SERVER: Final = "server"
CONTROLLER: Final = "controller"
AGENT: Final = "agent"
STARTED: Final = (CONTROL_PLANE, SERVER, CONTROLLER, AGENT)
"""The parts in the order of their start."""
STOPPED: Final = (CONTROLLER, AGENT, SERVER, CONTROL_PLANE)
"""In the order of their end: first who makes runners, last what all others write to."""
NAMESPACE: Final = "default"
FLEET: Final = "local"
_OWN: Final = frozenset(
    {"REMUDA_DATA", "REMUDA_SERVER", "REMUDA_API_TOKEN", "REMUDA_API_TOKEN_FILE", "REMUDA_LISTEN"}
)
"""Variables that are meant for other commands, or would be meant for all parts at once."""

_OF_PROCESSES: Final = {
    "REMUDA_DISK_LOW": "0.001",
    "REMUDA_DISK_RECLAIM": "0.001",
    "REMUDA_DISK_RESERVE": "256Mi",
}
"""Runners without images need no room for them: people look around on machines whose disks are nearly full."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts are and what they share."""

    folder: Folder
    kept: Kept

    def url(self, part: str) -> str:
        scheme = "https" if part == CONTROL_PLANE else "http"
        return f"{scheme}://{LOOPBACK}:{self.kept.ports[part]}"

    def listen(self, port: str) -> str:
        return f"{LOOPBACK}:{self.kept.ports[port]}"

    @property
    def metrics(self) -> dict[str, str]:
        """Where each part that has metrics serves them."""
        return {part: f"{self.url(part)}/metrics" for part in (SERVER, CONTROLLER, AGENT)}

    def command(self, part: str, offer: Size) -> list[str]:
        """Return a part's command line. ``offer`` is what the agent may give to VMs in all."""
        options = {
            CONTROL_PLANE: self._control_plane,
            SERVER: self._server,
            CONTROLLER: self._controller,
        }
        told = self._agent(offer) if part == AGENT else options[part]()
        return [sys.executable, "-P", "-m", "remuda.cli.main", part, *told]

    def _control_plane(self) -> list[str]:
        return [f"--data={self.folder.control_plane}", f"--port={self.kept.ports[CONTROL_PLANE]}"]

    def _server(self) -> list[str]:
        settings = self.folder.github_settings
        return [
            f"--kubeconfig={self.folder.home.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--data={self.folder.postgres}",
            f"--listen={self.listen(SERVER)}",
            *([f"--github={settings}"] if settings.is_file() else []),
        ]

    def _controller(self) -> list[str]:
        return [
            f"--kubeconfig={self.folder.home.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--dispatch-url={self.url(SERVER)}",
            f"--dispatch-token-file={self.folder.controller_token}",
            f"--listen={self.listen(CONTROLLER)}",
            # The folder's lock lets no second one live beside it, so it may be known by one name and lead at once.
            f"--identity=up-{self.kept.node}",
        ]

    def _agent(self, offer: Size) -> list[str]:
        accel = self.kept.qemu_accel
        return [
            f"--kubeconfig={self.folder.node_kubeconfig}",
            f"--node-name={self.kept.node}",
            f"--fleet={FLEET}",
            f"--driver={self.kept.driver}",
            f"--vms={self.kept.vms}",
            f"--cpus={offer.cpus}",
            f"--memory={offer.memory_mib}Mi",
            f"--data={self.folder.agent}",
            f"--images={self.folder.images}",
            f"--dispatch-url={self.url(SERVER)}",
            f"--address={LOOPBACK}",
            f"--listen={self.listen(AGENT)}",
            f"--kubelet-listen={self.listen('kubelet')}",
            f"--kubelet-client-ca={self.folder.pki / 'ca.crt'}",
            *((f"--qemu-accel={accel}",) if accel else ()),
        ]


def environment(env: Mapping[str, str], driver: str) -> dict[str, str]:
    """Return what the parts see of our environment: all settings that are theirs, such as REMUDA_GITHUB_ ones."""
    by_driver = _OF_PROCESSES if driver == "process" else {}
    return {**by_driver, **{name: value for name, value in env.items() if name not in _OWN}}
