"""Images for QEMU guests, built by ``images/qemu/build.py`` from Debian's packages, and QEMU itself."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.debian import PLACE, NotFetched, unpacked_or_skip
from tests.support.tart.qemu_parts import INSTALL_S, cloud_kernel_or_skip

BUILD = Path(__file__).resolve().parents[2] / "images/qemu/build.py"
NEEDED = ("qemu-system-x86_64", "qemu-img")


def qemu_or_skip() -> None:
    """See that QEMU is here; it is installed if we may."""
    if _has_qemu():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        _give_up("QEMU is not installed, and we may not install it")
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / ".qemu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may want it at once
        packages = ["install", "-y", "--no-install-recommends", "qemu-system-x86", "qemu-utils"]
        for words in (["update"], packages):
            if _has_qemu():
                return
            subprocess.run(  # noqa: S603 - fixed words
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words],  # noqa: S607 - from PATH
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                timeout=INSTALL_S,
                check=False,
            )
    if not _has_qemu():
        _give_up("QEMU could not be installed")


def built_image_or_skip(images: Path, name: str, *more: str) -> str:
    """Build a small image of that name among ``images``, and return its reference with the digest."""
    qemu_or_skip()
    kernel = unpacked_or_skip(cloud_kernel_or_skip())
    busybox = unpacked_or_skip("busybox-static")
    words = ["--into", str(images / name), "--kernel", str(kernel), "--busybox", str(busybox)]
    built = subprocess.run(  # noqa: S603 - our own program and the test's own paths
        [sys.executable, str(BUILD), *words, "--disk-mib", "128", "--memory-mib", "192", *more],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return f"{name}@{built.stdout.strip()}"


def _has_qemu() -> bool:
    return all(shutil.which(program) for program in NEEDED)


def _give_up(why: str) -> None:
    if os.environ.get("CI") == "true":
        raise NotFetched(why)
    pytest.skip(f"needs QEMU: {why}")
