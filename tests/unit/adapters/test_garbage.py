"""The collector of a process that serves."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
import weakref
from remuda.adapters.garbage import spare_what_stays

class Node:
    pass

kept = [Node() for _ in range(1000)]
spare_what_stays()
assert gc.get_freeze_count() > 1000, "what is there is looked at no more"
assert gc.isenabled()

seen = weakref.ref(kept[0])
kept.clear()
assert seen() is None, "what is spared still goes with its last reference"

cycle = Node()
cycle.itself = cycle
seen = weakref.ref(cycle)
del cycle
gc.collect()
assert seen() is None, "cycles that come later are found"
"""


def test_what_stays_is_spared_and_what_comes_later_is_collected() -> None:
    """In a process of its own: nobody undoes it."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)  # noqa: S603 - our own script
