"""Files that go with a local job and come back: how large they may be, and which paths may be named. Pure."""

from __future__ import annotations

import posixpath
from typing import Final

FILES_MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest archive that goes to a runner or comes back, packed. A server may be stricter."""
PIECE_MAX_BYTES: Final = 1024 * 1024
"""How much of an archive is sent at once."""
PATHS_MAX: Final = 32
"""How many paths may be asked for."""
PATH_MAX_BYTES: Final = 1000


def path_fault(path: str) -> str:
    """Say why a path cannot be asked for, from the folder that a job begins in; empty: it can."""
    rules = (
        (not path, "it is empty"),
        (
            len(path.encode(errors="surrogatepass")) > PATH_MAX_BYTES,
            f"it has more than {PATH_MAX_BYTES} bytes",
        ),
        (not path.isprintable(), "it holds characters that cannot be shown"),
        (path.startswith("/"), "it does not begin in the folder that the job runs in"),
        (".." in path.split("/"), "it leads out of the folder that the job runs in"),
        (path != posixpath.normpath(path), f"write it as {posixpath.normpath(path)}"),
    )
    return next((fault for holds, fault in rules if holds), "")


def covers(asked: str, found: str) -> bool:
    """Say whether a file is what a path asks for, or lies below it. Both are whole paths without dots."""
    return asked in {".", found} or found.startswith(f"{asked}/")
