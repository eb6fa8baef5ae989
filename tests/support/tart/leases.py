"""The DHCP server's file of leases, as macOS writes it: blocks of ``key=value`` between braces."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from tests.support.tart.failures import TartError
from tests.support.tart.vms import same_mac

if TYPE_CHECKING:
    from pathlib import Path

FIRST, LAST = 2, 254
DAY_S = 86_400


def read(path: Path) -> list[dict[str, str]]:
    """Read all blocks. One that is broken makes the whole file unreadable."""
    blocks: list[dict[str, str]] = []
    inside: dict[str, str] | None = None
    for line in path.read_text().splitlines() if path.exists() else []:
        text = line.strip()
        if text == "{" and inside is None:
            inside = {}
        elif text == "}" and inside is not None:
            blocks.append(inside)
            inside = None
        elif inside is not None and "=" in text:
            key, _, value = text.partition("=")
            inside[key] = value
        elif text:
            raise TartError(f"Error: the leases file has an unexpected line: {text}")
    if inside is not None:
        raise TartError("Error: the leases file ends in the middle of a lease")
    return blocks


def address(path: Path, mac: str, now: int) -> str | None:
    """Return the newest address of a MAC whose lease still runs."""
    found = [
        (int(block["lease"], 16), block["ip_address"])
        for block in read(path)
        if same_mac(block["hw_address"].partition(",")[2], mac) and int(block["lease"], 16) > now
    ]
    return max(found)[1] if found else None


def grant(path: Path, mac: str, now: int) -> str:
    """Give a MAC an address that nobody has, and write it down."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if known := address(path, mac, now):
            return known
        taken = {block["ip_address"] for block in read(path) if int(block["lease"], 16) > now}
        addresses = (f"192.168.64.{last}" for last in range(FIRST, LAST + 1))
        chosen = next((a for a in addresses if a not in taken), "")
        if not chosen:
            raise TartError("Error: the pool of addresses is exhausted")
        bare = ":".join(f"{int(octet, 16):x}" for octet in mac.split(":"))
        block = f"{{\n\tname=guest\n\tip_address={chosen}\n\thw_address=1,{bare}\n"
        block += f"\tidentifier=1,{bare}\n\tlease=0x{now + DAY_S:x}\n}}\n"
        text = path.read_text() if path.exists() else ""
        fresh = path.with_suffix(".new")
        fresh.write_text(text + block)
        fresh.replace(path)
        return chosen


def forget(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
