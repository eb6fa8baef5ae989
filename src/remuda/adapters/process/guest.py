"""Where the guest's own program is: in an installed package beside this module, in a checkout among the images."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from remuda.ports.vms import HostUnfit

NAME: Final = "remuda-guest"
_HERE: Final = Path(__file__).resolve().parent
PLACES: Final = (_HERE / "in_guest", _HERE.parents[3] / "images" / "guest")


def guest_script(places: tuple[Path, ...] = PLACES, name: str = NAME) -> Path:
    """Return the program that waits for a job in a mailbox and runs it. It is a shell script, and stays so."""
    for place in places:
        if (found := place / name).is_file():
            return found
    raise HostUnfit(
        "No guest can be started",
        why=f"there is no {name} in {' or '.join(map(str, places))}",
        fix="Install Remuda anew: its package brings it",
    )
