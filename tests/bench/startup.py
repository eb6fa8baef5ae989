"""
How long ``remuda --help`` takes, beside a Python that does nothing: what a person waits for before any command begins.

The two take turns; what is told is the median of the differences of the pairs. Beside it stands the same in CPU time,
which a busy machine changes less.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

PAIRS = 25
TARGET_S = 0.15
HELP = (str(Path(sys.executable).with_name("remuda")), "--help")
NOTHING = (sys.executable, "-c", "pass")


@dataclass(frozen=True, slots=True)
class Took:
    """What one command took."""

    wall_s: float
    cpu_s: float


def took(command: tuple[str, ...]) -> Took:
    began, spent_s = perf_counter(), _children_s()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    return Took(perf_counter() - began, _children_s() - spent_s)


def _children_s() -> float:
    """Return the CPU time of all processes that we started and that are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare() -> bool:
    """Print the difference, and say whether the target was met."""
    for command in (HELP, NOTHING):  # the first reads files that nobody has read for long
        took(command)
    helped, nothing = [], [took(NOTHING)]
    for _ in range(PAIRS):
        helped.append(took(HELP))
        nothing.append(took(NOTHING))
    more_s = [
        one.wall_s - (before.wall_s + after.wall_s) / 2
        for one, before, after in zip(helped, nothing[:-1], nothing[1:], strict=True)
    ]
    cpu_s = median(one.cpu_s for one in helped) - median(one.cpu_s for one in nothing)
    met = median(more_s) <= TARGET_S
    print(
        f"start-up: remuda --help takes {1000 * median(more_s):.0f} ms more than the"
        f" {1000 * median(one.wall_s for one in nothing):.0f} ms of python -c pass"
        f" ({1000 * min(more_s):.0f} to {1000 * max(more_s):.0f};"
        f" target <= {1000 * TARGET_S:.0f}, {'met' if met else 'MISSED'}); {1000 * cpu_s:.0f} ms more of CPU"
    )
    return met


def main() -> int:
    return 0 if compare() else 1


if __name__ == "__main__":
    sys.exit(main())
