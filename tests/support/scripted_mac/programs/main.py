"""
Runs one program of the scripted Mac by its name.

Most commands of a test go through here, by sudo: nothing is imported that is not needed.
"""

from __future__ import annotations

import importlib
import sys

sys.path.insert(0, "/usr/libexec/mac")

HERE = "tests.support.scripted_mac.programs"
MODULES = {
    "sudo": "sudo",
    "visudo": "sudo",
    "launchctl": "launchd",
    "killall": "launchd",
    "pgrep": "launchd",
    "pfctl": "packet_filter",
}


def main() -> int:
    name, words = sys.argv[1], sys.argv[2:]
    from tests.support.scripted_mac.programs.ended import Exit  # noqa: PLC0415 - found by the path above

    try:
        module = importlib.import_module(f"{HERE}.{MODULES.get(name, 'small')}")
        return int(getattr(module, name)(words))
    except Exit as ended:
        sys.stderr.write(ended.said + "\n")
        return ended.code
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
