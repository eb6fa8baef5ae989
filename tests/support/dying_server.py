"""
``remuda server`` that kills itself with SIGKILL at one step of the first hand-over it makes.

    python -m tests.support.dying_server STEP [options of remuda server]
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


async def _dying(settings: ServerSettings, stop: asyncio.Event) -> None:
    last = Step(sys.argv[1])

    async def reached(step: Step) -> None:
        if step is last:
            os.kill(os.getpid(), signal.SIGKILL)

    await serve(replace(settings, reached=reached), stop)


if __name__ == "__main__":
    vars(server)["serve"] = _dying
    server.server(args=sys.argv[2:])
