"""Say where tasks wait: for the errors of a run that cannot go on. Reads frames; changes nothing."""

from __future__ import annotations

import asyncio
import linecache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType

ASYNCIO = str(Path(asyncio.__file__).parent)


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return one line per unfinished task, in name order: its name and the line it waits at."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return [f"{task.get_name()} waits at {where(task)}" for task in tasks]


def where(task: asyncio.Task[Any]) -> str:
    """Return the innermost line of our own code on which a task waits."""
    frames = _frames(task.get_coro())
    if not frames:
        return "an unknown place"
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(ASYNCIO)]
    return _line((own or frames)[-1])


def _frames(step: object) -> list[FrameType]:
    """Follow what a coroutine waits for, from the outside in."""
    frames = []
    while step is not None:
        frame = _first(step, "cr_frame", "ag_frame", "gi_frame")
        if frame is not None:
            frames.append(frame)
        step = _first(step, "cr_await", "ag_await", "gi_yieldfrom")
    return frames


def _first(step: object, *names: str) -> Any:  # noqa: ANN401 - coroutine internals
    return next((found for name in names if (found := getattr(step, name, None)) is not None), None)


def _line(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    place = "/".join(Path(code.co_filename).parts[-3:])
    return f"{place}:{frame.f_lineno} in {code.co_qualname}: {text}"
