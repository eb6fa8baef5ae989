"""The states that a Mac is found in: from the first day to what years of other tools left behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.scripted_mac.place import Place


def fresh(password: str) -> dict[str, Any]:
    """Return what a Mac remembers on its first day: nobody is logged in at its screen, and it goes to sleep."""
    return {
        "password": password.encode().decode("latin-1"),
        "wrong_passwords": 0,
        "loginwindow": 321,
        "aqua": False,
        "aqua_after": 0,
        "filevault": False,
        "services": {},
        "xcode": "",
        "xcode_ready": False,
        "disabled": [],
        "processes": [],
        "vms": [],
        "last_pid": 400,
        "pf": {"enabled": False, "held": False, "main": _APPLE, "anchors": {"com.apple": []}},
        "pmset": {"sleep": "1", "displaysleep": "10", "disksleep": "10", "womp": "1"},
        "names": {"ComputerName": "Mac mini"},
    }


_APPLE = [
    'scrub-anchor "com.apple/*"',
    'nat-anchor "com.apple/*"',
    'rdr-anchor "com.apple/*"',
    'dummynet-anchor "com.apple/*"',
    'anchor "com.apple/*"',
]


def write(place: Place, state: dict[str, Any]) -> None:
    (place.root / ".mac/state.json").write_text(json.dumps(state, sort_keys=True, indent=1))


def read(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place.root / ".mac/state.json").read_text())
    return found
