"""The garbage collector of a process that serves for months: it looks at what comes and goes, not at what stays."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 10_000
"""How many objects may be made before the young ones are looked at: a poll makes hundreds, and few with cycles."""
_OLD_EVERY: Final = 20


def spare_what_stays() -> None:
    """
    Never look again at what is there now: modules, routes, schemas. For once the process is set up, and never twice.

    Whole collections walk over all of that, some hundred thousand objects, and every request waits meanwhile. What is
    spared is still freed when nobody refers to it any more; only cycles among it are kept, and those are the few that
    the start left.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, _OLD_EVERY, _OLD_EVERY)
