"""An ordinary user, for tests that root runs: root may write everywhere, and PostgreSQL is another's there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

NOBODY = 65534
_TRY_S = 60.0
_TRY = '"$0" -c "import remuda.cli.main"'
"""By a shell: who has just become another user may still start what that user cannot."""
_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
_MORE = ((), ("dac_read_search",), ("dac_override",))
"""What nobody may need to get at a Python that only root can read: nothing, reading, or, in a container, all files."""


@dataclass(frozen=True, slots=True)
class User:
    """Who it is, and how a command is begun as that user."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()


def ordinary_user() -> User:
    """Return ourselves, or where we are root somebody else, who can run this Python."""
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid())
    why = ""
    for rights in _MORE:
        kept = ",".join(f"+{right}" for right in rights)
        prefix = (*_AS_NOBODY, *((f"--inh-caps={kept}", f"--ambient-caps={kept}") if kept else ()))
        tried = subprocess.run(  # noqa: S603 - fixed words
            [*prefix, "/bin/sh", "-c", _TRY, sys.executable],
            capture_output=True,
            text=True,
            timeout=_TRY_S,
            check=False,
        )
        if tried.returncode == 0:
            return User(NOBODY, NOBODY, prefix)
        why = tried.stderr
    raise AssertionError(f"nobody cannot run {sys.executable}: {why}")
