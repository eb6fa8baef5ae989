"""What helps of several commands say alike."""

from __future__ import annotations

from typing import Final

EXITS: Final = "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused."
ENDLESS_EXITS: Final = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused, 130 ended by Ctrl-C."
)
SERVED_EXITS: Final = "Exit codes: 0 told to stop, 1 failed, 2 usage."
PLAIN_EXITS: Final = "Exit codes: 0 ok, 1 failed, 2 usage."
