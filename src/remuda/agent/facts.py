"""What kind of machine this is, as its Node says it: read once, at the start. What cannot be read is left empty."""

from __future__ import annotations

import platform
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Python and as Kubernetes spell them; what is not here is spelled alike."""
_MACHINE_ID: Final = Path("/etc/machine-id")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OS_RELEASE_MAX_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host."""

    os: str
    """Of the host itself. Its guests may have another."""
    architecture: str
    """Of the host and of its guests."""
    kernel: str = ""
    os_image: str = ""
    machine_id: str = ""
    boot_id: str = ""
    agent_version: str = ""


def read_facts(agent_version: str) -> HostFacts:
    """Look at this machine."""
    machine = platform.machine()
    return HostFacts(
        os=platform.system().lower(),
        architecture=_ARCHITECTURES.get(machine, machine),
        kernel=platform.release(),
        os_image=_os_image(),
        machine_id=_line(_MACHINE_ID),
        boot_id=_line(_BOOT_ID),
        agent_version=agent_version,
    )


def address_towards(server: str) -> str:
    """Return the address that this machine has on the way to a server's URL; empty: none can be told. Sends nothing."""
    url = urlsplit(server)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = found[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _os_image() -> str:
    if version := platform.mac_ver()[0]:
        return f"macOS {version}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")[:_OS_RELEASE_MAX_CHARS]
    except OSError:
        return ""


def _line(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
