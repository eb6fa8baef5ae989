"""How a process logs: lines for a person at a terminal, JSON for everything else, always to standard error."""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from typing import TextIO

    from structlog.typing import Processor

LogFormat = Literal["text", "json"]


class BestEffort(io.TextIOBase):
    """Where logs go: a line that cannot be written, as on a full disk, is lost, and whoever wrote it goes on."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):  # the latter: it was closed
            self._target.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._target.flush()


def set_up_logs(form: LogFormat | None = None) -> None:
    """Choose the form; None takes text on a terminal and JSON elsewhere. Tracebacks never show variables."""
    is_terminal = sys.stderr.isatty()
    if form is None:
        form = "text" if is_terminal else "json"
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # The handsomer renderings of an exception print local variables, and those may be secrets.
    last: list[Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=is_terminal, exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if form == "text"
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(BestEffort(sys.stderr)),  # type: ignore[arg-type] # writes and flushes
        cache_logger_on_first_use=True,
    )
