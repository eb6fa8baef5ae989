"""The time, without the event loop that the project's own clock brings: each call of this program starts anew."""

from __future__ import annotations

import select
import time


def now_s() -> float:
    return time.time()  # noqa: TID251 - a program of its own, outside any loop


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)
