"""
``remuda server`` that kills itself with SIGKILL at one step of the first hand-over it makes, or has short graces.

    python -m tests.support.changed_server STEP|none UNUSED_S [options of remuda server]
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.cli import server
from remuda.cli.serving import serve
from remuda.dispatch.attempt import Step

if TYPE_CHECKING:
    import asyncio

    from remuda.cli.serving import ServerSettings


async def _changed(settings: ServerSettings, stop: asyncio.Event) -> None:
    last = None if sys.argv[1] == "none" else Step(sys.argv[1])
    recovery = replace(settings.dispatch.recovery, unused_s=float(sys.argv[2]))
    dispatch = replace(settings.dispatch, recovery=recovery)

    async def reached(step: Step) -> None:
        if step is last:
            os.kill(os.getpid(), signal.SIGKILL)

    await serve(replace(settings, dispatch=dispatch, reached=reached), stop)


if __name__ == "__main__":
    vars(server)["serve"] = _changed
    server.server(args=sys.argv[3:])
