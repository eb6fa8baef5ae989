"""
One VM's folder: config.json, disk.img, nvram.bin, and what can be read from them.

What every call of this program imports is paid for thousands of times in a run of the tests: nothing large is imported
here for something small.
"""

from __future__ import annotations

import binascii
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.tart.failures import does_not_exist, missing_files
from tests.support.tart.locks import lock_holder

if TYPE_CHECKING:
    from pathlib import Path

GB = 1_000_000_000
MB = 1024 * 1024
FILES = ("config.json", "disk.img", "nvram.bin")


def new_mac() -> str:
    """Return a locally administered unicast address, as the framework makes them."""
    octets = bytearray(os.urandom(6))
    octets[0] = (octets[0] | 2) & ~1
    return ":".join(f"{octet:02x}" for octet in octets)


def new_ecid() -> str:
    """Return a machine identifier: with it goes the serial number."""
    return _base64(os.urandom(24))


def _base64(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode()


def same_mac(one: str, other: str) -> bool:
    """Compare octet by octet, as numbers: leases leave zeros out."""
    return [int(o, 16) for o in one.split(":")] == [int(o, 16) for o in other.split(":")]


@dataclass(frozen=True, slots=True)
class Vm:
    """A folder that should hold a VM."""

    name: str
    folder: Path

    @property
    def config_path(self) -> Path:
        return self.folder / "config.json"

    @property
    def disk(self) -> Path:
        return self.folder / "disk.img"

    @property
    def nvram(self) -> Path:
        return self.folder / "nvram.bin"

    @property
    def saved_state(self) -> Path:
        return self.folder / "state.vzvmsave"

    @property
    def initialized(self) -> bool:
        return all((self.folder / name).exists() for name in FILES)

    def validate(self) -> None:
        if not self.folder.exists():
            raise does_not_exist(self.name)
        if not self.initialized:
            raise missing_files()

    def config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.config_path.read_text())
        return loaded

    def save(self, config: dict[str, Any]) -> None:
        # In place: another file under this name would not be locked.
        self.config_path.write_text(json.dumps(config, sort_keys=True))

    def pid(self) -> int:
        return lock_holder(self.config_path)

    def state(self) -> str:
        if self.pid():
            return "running"
        return "suspended" if self.saved_state.exists() else "stopped"

    def disk_gb(self) -> int:
        return self.disk.stat().st_size // GB

    def allocated_bytes(self) -> int:
        return sum((self.folder / name).stat().st_blocks * 512 for name in FILES)

    def accessed_s(self) -> int:
        # Of the file that listing never reads.
        return int(self.nvram.stat().st_atime)

    def accessed(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.accessed_s()))

    def touch(self) -> None:
        os.utime(self.nvram)


def new_config(os_name: str = "darwin", cpu: int = 4, memory_mb: int = 4096) -> dict[str, Any]:
    config: dict[str, Any] = {
        "version": 1,
        "os": os_name,
        "arch": "arm64" if os_name == "darwin" else "amd64",
        "cpuCountMin": 1,
        "cpuCount": cpu,
        "memorySizeMin": 512 * MB,
        "memorySize": memory_mb * MB,
        "macAddress": new_mac(),
        "display": {"width": 1024, "height": 768},
        "diskFormat": "raw",
    }
    if os_name == "darwin":
        config |= {"ecid": new_ecid(), "hardwareModel": _base64(b"model")}
    return config
