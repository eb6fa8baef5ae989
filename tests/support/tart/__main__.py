"""``python -m tests.support.tart``; tests use the launcher that ``installed.py`` writes, for its argv."""

from __future__ import annotations

import sys

from tests.support.tart.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
