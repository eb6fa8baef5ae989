"""What this machine has that could run VMs: looked up once, at the start."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Final

from remuda.adapters.process.images import ImageFolders
from remuda.adapters.qemu.images import MANIFEST, folder_of
from remuda.cli.tree.decide.driver import Machine
from remuda.ports.vms import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TART: Final = "REMUDA_TART_PROGRAM"
"""Where the agent looks for Tart, if a person says so: it is given to it as it is."""
_QEMU: Final = "qemu-system-x86_64"
_NODE_CHARS_MAX: Final = 63


def look_at_machine(
    images: Path, image: str = "", *, env: Mapping[str, str] = os.environ
) -> Machine:
    """Look. ``images`` is the folder in which images are, ``image`` the one that a person named."""
    path = env.get("PATH")
    return Machine(
        platform=sys.platform,
        cpus=os.cpu_count() or 1,
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2,
        has_tart=shutil.which(env.get(_TART) or "tart", path=path) is not None,
        has_qemu=shutil.which(_QEMU, path=path) is not None,
        qemu_image=_first_image(images),
        has_image_folder=bool(image) and _is_folder(images, image),
        has_vm_image=bool(image) and _is_vm_image(images, image),
    )


def _is_folder(images: Path, image: str) -> bool:
    try:
        ImageFolders(images).source(image)
    except Refused:
        return False
    return True


def _is_vm_image(images: Path, image: str) -> bool:
    try:
        return (folder_of(images, image) / MANIFEST).is_file()
    except Refused:
        return False


def _first_image(images: Path) -> str:
    found = sorted(images.rglob(MANIFEST)) if images.is_dir() else []
    return found[0].parent.relative_to(images).as_posix() if found else ""


def node_name(host: str = "") -> str:
    """Return a name for the Node: this machine's, with what no name may have left out."""
    name = re.sub(r"[^a-z0-9-]+", "-", (host or socket.gethostname()).lower())
    return name[:_NODE_CHARS_MAX].strip("-") or "this-machine"
