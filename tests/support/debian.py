"""
Programs of Debian that tests need and the project does not bring: fetched and unpacked beside it, not installed.

Nothing of the machine is changed. Where there is no Debian the tests that need them are skipped and say so; in CI they
fail instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PLACE = Path(__file__).resolve().parents[2] / ".tools" / "debian"
FETCH_S = 300.0


class NotFetched(Exception):
    """A package could not be had. The text says why."""


def unpacked(package: str) -> Path:
    """Return the folder with what is in a package; fetch it once per checkout."""
    target = PLACE / package
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / f".{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may want it at once
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
                _fetch(package, Path(scratch))
                (Path(scratch) / "unpacked").rename(target)
    return target


def unpacked_or_skip(package: str) -> Path:
    try:
        return unpacked(package)
    except NotFetched as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs Debian's {package}: {error}")


def _fetch(package: str, scratch: Path) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if not apt or not dpkg:
        raise NotFetched("there is no apt-get here")
    try:
        _run([apt, "download", package], scratch)
    except NotFetched:
        if os.geteuid() != 0:
            raise
        _run([apt, "update", "-qq"], scratch)  # a fresh machine has no lists yet
        _run([apt, "download", package], scratch)
    found = sorted(scratch.glob("*.deb"))
    if not found:
        raise NotFetched("apt-get brought nothing")
    _run([dpkg, "--extract", str(found[0]), "unpacked"], scratch)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a package's name
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{Path(command[0]).name} took more than {FETCH_S:g} s") from None
    if done.returncode:
        raise NotFetched(f"{Path(command[0]).name} says {done.stderr.strip()[-300:]}")
