"""
Work in a thread that outlives no one who waits for it.

``asyncio.to_thread`` lets go of its thread when the caller is cancelled. A thread that goes on to write does so into a
file that is closed, or into whichever other file has its number by now.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it in a thread. Cancelled, the caller goes on only when the thread is done."""
    work = asyncio.get_running_loop().run_in_executor(None, lambda: act(*args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # seen: nobody is left to be told
        raise
