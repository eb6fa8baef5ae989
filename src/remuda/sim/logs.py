"""What the simulated code logs becomes part of the trace; an error that it only logs is a violation all the same."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from remuda.sim.link import LINK
from remuda.sim.loop import ACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

    from remuda.sim.checkers import Verdict

_OWN_FIELDS = frozenset({"event", "exc_info", "level", "timestamp", "logger"})


@contextmanager
def captured(verdict: Verdict, time: Callable[[], float]) -> Iterator[None]:
    """Send structlog's events into the trace while the block runs."""
    before = structlog.get_config()
    structlog.configure(processors=[_Capture(verdict, time)], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


class _Capture:
    def __init__(self, verdict: Verdict, time: Callable[[], float]) -> None:
        self._verdict = verdict
        self._time = time

    def __call__(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        link = LINK.get()
        if link is not None and link.severed:
            raise structlog.DropEvent  # a dead process says nothing
        actor = ACTOR.get() or "world"
        fields = " ".join(f"{k}={v}" for k, v in sorted(event.items()) if k not in _OWN_FIELDS)
        said = f"{event['event']} {fields}".rstrip()
        if level != "debug":
            self._verdict.trace.add(actor, "log", "-", level, said)
        if event.get("exc_info"):
            # A loop's edge caught it, so the process lives on. It is a bug even so.
            self._verdict.violated("no bugs", f"{actor} logged an error: {said}", "-", self._time())
        raise structlog.DropEvent
