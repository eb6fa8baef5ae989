"""
What the listings have in common: how rows are asked for, printed, and followed.

A listing is its columns and a way to read its rows; the rest, options included, is here.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click
import msgspec
import yaml

from remuda.adapters.system import SystemClock
from remuda.cli.exits import INTERRUPTED
from remuda.cli.tables import Column, cells, fitted, header, line, table, widths
from remuda.cli.watching import Change, Changes, follow, frame, screen_height
from remuda.ports.api import ApiNotFound, Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TextIO

    from remuda.cli.finding import Where
    from remuda.ports.api import Api
    from remuda.ports.clock import Clock

T = TypeVar("T", bound=Row)
_F = TypeVar("_F", bound="Callable[..., Any]")

OUTPUTS: Final = ("table", "wide", "json", "yaml", "name")
EVERY_S: Final = 2.0
_EXPLAINED: Final = re.compile(r"GET /api/v1/(job|runner|pool|host)s/\{[^}]*\}/explain")
_LISTED: Final = re.compile(r"GET /api/v1/(jobs|runners|pools|hosts)\b")


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One kind of thing that can be listed."""

    one: str
    many: str
    columns: tuple[Column[T], ...]
    key: Callable[[T], str]

    def shown(self, output: str) -> tuple[Column[T], ...]:
        if output == "wide":  # who asks for all gets all, on lines that are too long if need be
            return tuple(replace(column, gives_way=0) for column in self.columns)
        return tuple(column for column in self.columns if not column.wide)

    def named(self, rows: Sequence[T], name: str) -> tuple[T, ...]:
        """Return the one row of that name."""
        found = tuple(row for row in rows if self.key(row) == name)
        if not found:
            raise ApiNotFound(
                f"There is no {self.one} {name}",
                why=f"the fleet's {self.many} do not include it",
                fix=f"See what there is with: remuda {self.many}",
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How rows are to be shown."""

    output: str = "table"
    watch: bool = False
    every_s: float = EVERY_S
    single: bool = False
    """Whether one thing was asked for by its name."""
    most: int | None = None
    """How many rows were asked for at most: if there are as many, there may be more."""


def listing_options(command: _F) -> _F:
    """Let a command be told how to show its rows: it gets ``output``, ``watch`` and ``every_s``."""
    wrapped: Any = command
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    made: _F = wrapped
    return made


output_option: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    help="How to print. Default: a table; wide has more columns, name is names only.",
)
_OPTIONS: Final = (
    output_option,
    click.option("-w", "--watch", is_flag=True, help="Go on and show every change."),
    click.option(
        "--every",
        "every_s",
        type=click.FloatRange(min=0.1, max=3600),
        default=EVERY_S,
        show_default=True,
        metavar="SECONDS",
        help="With --watch: how often to look.",
    ),
)


def show(
    where: Where,
    listing: Listing[T],
    read: Callable[[Api], Awaitable[Sequence[T]]],
    how: How,
) -> None:
    """Print a listing once, or until Ctrl-C."""
    try:
        asyncio.run(_show(where, listing, read, how))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ApiNotFound as error:
        raise ApiNotFound(error.what, why=error.why, fix=as_commands(error.fix)) from None


async def _show(
    where: Where,
    listing: Listing[T],
    read: Callable[[Api], Awaitable[Sequence[T]]],
    how: How,
) -> None:
    clock, out = SystemClock(), sys.stdout
    async with where.api() as api:
        if how.watch:
            redraws = how.output in {"table", "wide"} and is_live(out, os.environ)
            board = (Redrawn if redraws else Appended)(listing, how, clock, out)
            await follow(lambda: read(api), board, clock, every_s=how.every_s, say=_say)
            return
        rows = await read(api)
    show_rows(listing, rows, how, clock)
    if how.most is not None and len(rows) >= how.most and how.output in {"table", "wide"}:
        _say(
            f"there may be more than these {how.most} {listing.many}: --limit or --all shows them."
        )


def show_rows(listing: Listing[T], rows: Sequence[T], how: How, clock: Clock) -> None:
    """Print some rows once."""
    if not rows and how.output in {"table", "wide"}:
        click.echo(f"There are no {listing.many}.", err=True)
        return
    _write(text_of(listing, rows, how, clock, sys.stdout))


def text_of(
    listing: Listing[T], rows: Sequence[T], how: How, clock: Clock, out: TextIO
) -> list[str]:
    """Return the lines that show some rows."""
    match how.output:
        case "name":
            return [listing.key(row) for row in rows]
        case "json":
            whole = msgspec.json.encode(rows[0] if how.single else list(rows))
            return [msgspec.json.format(whole, indent=2).decode()]
        case "yaml":
            return [as_yaml(rows[0] if how.single else list(rows))]
        case _:
            colour = has_colour(out, os.environ)
            columns = listing.shown(how.output)
            return table(columns, rows, clock.now(), room=room_of(out), colour=colour)


class Appended(Generic[T]):
    """Shows a change as a new line, as ``kubectl get --watch`` does: for pipes, and for those who want a history."""

    def __init__(self, listing: Listing[T], how: How, clock: Clock, out: TextIO) -> None:
        self._listing, self._how, self._clock, self._out = listing, how, clock, out
        self._changes: Changes[T] = Changes(listing.key)
        self._columns = listing.shown(how.output)
        self._sizes: tuple[int, ...] = ()

    def show(self, rows: Sequence[T]) -> None:
        changes = self._changes.since(rows)
        if not changes:
            return
        if self._how.output in {"table", "wide"}:
            _write(self._lines(changes), self._out)
        else:
            _write([self._record(change, row) for change, row in changes], self._out)

    def _lines(self, changes: Sequence[tuple[Change, T]]) -> list[str]:
        now = self._clock.now()
        said = [
            cells(self._columns, row, now, gone=change is Change.GONE) for change, row in changes
        ]
        first = not self._sizes
        needed = widths(self._columns, said)
        # Columns only ever grow: what is printed already stays in line for as long as it can.
        grown = needed if first else tuple(map(max, needed, self._sizes))
        room = room_of(self._out)
        self._sizes = grown if room is None else fitted(self._columns, grown, room)
        colour = has_colour(self._out, os.environ)
        lines = [line(self._columns, each, self._sizes, colour=colour) for each in said]
        return [header(self._columns, self._sizes), *lines] if first else lines

    def _record(self, change: Change, row: T) -> str:
        if self._how.output == "name":
            return self._listing.key(row)
        record = {"change": change, self._listing.one: row}
        if self._how.output == "json":
            return msgspec.json.encode(record).decode()
        return f"---\n{as_yaml(record)}"


class Redrawn(Generic[T]):
    """Shows the whole table in place of the one before: for people at a terminal."""

    def __init__(self, listing: Listing[T], how: How, clock: Clock, out: TextIO) -> None:
        self._listing, self._how, self._clock, self._out = listing, how, clock, out

    def show(self, rows: Sequence[T]) -> None:
        now = self._clock.now()
        title = f"{now.astimezone():%H:%M:%S}  every {self._how.every_s:g} s, Ctrl-C ends"
        lines = text_of(self._listing, rows, self._how, self._clock, self._out)
        body = lines if rows else [f"There are no {self._listing.many}."]
        self._out.write(frame([title, "", *body], screen_height()))
        self._out.flush()


def as_yaml(value: object) -> str:
    """Return something as YAML, in the order of its fields."""
    text: str = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def as_commands(text: str) -> str:
    """Name the commands of the one who reads it instead of calls of the API."""
    text = text.replace("GET /api/v1/explain/labels", "remuda explain labels")
    text = _EXPLAINED.sub(lambda found: f"remuda explain {found[1]} {found[1].upper()}", text)
    return _LISTED.sub(lambda found: f"remuda {found[1]}", text)


def is_live(out: TextIO, env: Mapping[str, str]) -> bool:
    """Say whether what was written can be drawn over."""
    return out.isatty() and env.get("TERM", "") not in {"", "dumb"}


def has_colour(out: TextIO, env: Mapping[str, str]) -> bool:
    """Say whether colours help: a terminal watches, and nobody asked for none (https://no-color.org)."""
    return is_live(out, env) and not env.get("NO_COLOR")


def room_of(out: TextIO) -> int | None:
    """Return how wide the terminal is; None where nothing must be cut."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def _write(lines: Sequence[str], out: TextIO | None = None) -> None:
    for text in lines:
        click.echo(text, file=out, color=True)


def _say(text: str) -> None:
    click.echo(f"remuda: {text}", err=True)
