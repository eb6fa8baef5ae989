"""
How long ``remuda --help`` takes, beside a Python that does nothing: what a person waits for before any command begins.

The two take turns; what is told is the median of the differences of the pairs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

PAIRS = 25
TARGET_S = 0.15
HELP = (str(Path(sys.executable).with_name("remuda")), "--help")
NOTHING = (sys.executable, "-c", "pass")


def took_s(command: tuple[str, ...]) -> float:
    began = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    return perf_counter() - began


def compare() -> bool:
    """Print the difference, and say whether the target was met."""
    for command in (HELP, NOTHING):  # the first reads files that nobody has read for long
        took_s(command)
    nothing_s = [took_s(NOTHING)]
    differences = []
    for _ in range(PAIRS):
        help_s = took_s(HELP)
        nothing_s.append(took_s(NOTHING))
        differences.append(help_s - (nothing_s[-2] + nothing_s[-1]) / 2)
    met = median(differences) <= TARGET_S
    print(
        f"start-up: remuda --help takes {1000 * median(differences):.0f} ms more than the"
        f" {1000 * median(nothing_s):.0f} ms of python -c pass"
        f" ({1000 * min(differences):.0f} to {1000 * max(differences):.0f};"
        f" target <= {1000 * TARGET_S:.0f}, {'met' if met else 'MISSED'})"
    )
    return met


def main() -> int:
    return 0 if compare() else 1


if __name__ == "__main__":
    sys.exit(main())
