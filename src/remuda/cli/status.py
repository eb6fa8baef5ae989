"""``remuda status``: how the ``remuda up`` of this machine is, part by part."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.tree.fetching import look_at_images
from remuda.cli.tree.folder import data_folder
from remuda.cli.tree.looking import look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from remuda.cli.tree.fetching import Fetching
    from remuda.cli.tree.folder import Folder
    from remuda.cli.tree.looking import PartView, TreeView


@click.command(epilog="Exit codes: 0 all is well, 1 not so, 2 usage.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data folder of the remuda up that is meant. Variable: REMUDA_DATA.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to say it.",
)
def status(data: Path | None, output: str) -> None:
    """
    Say how the remuda up of this machine is: each part, its process, its address, and what is wrong with it.

    \b
    Examples:
      remuda status
      remuda status --data ./fleet -o json
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    folder = data_folder(data)
    view, images = asyncio.run(_looked(folder))
    if output == "json":
        click.echo(json.dumps(_as_json(folder, view, images), indent=2))
    else:
        for line in _lines(folder, view, images):
            click.echo(line)
    sys.exit(0 if view.ok else 1)


async def _looked(folder: Folder) -> tuple[TreeView, Fetching | None]:
    return await look(folder), await look_at_images(folder)


def _as_json(folder: Folder, view: TreeView, images: Fetching | None) -> dict[str, Any]:
    return {
        "ok": view.ok,
        "says": view.says,
        "data": str(folder.root),
        "pid": view.supervisor or None,
        "since": _time(view.state.started_at) if view.state and view.supervisor else None,
        "driver": view.state.driver if view.state else None,
        "isolated": view.state.isolated if view.state else None,
        "github": (view.state.github or None) if view.state else None,
        "fetching": asdict(images) if images else None,
        "parts": [
            {
                "name": part.name,
                "condition": part.condition.value,
                "pid": part.pid,
                "since": _time(part.since),
                "address": part.address,
                "why": part.why,
                "restarts": part.restarts,
                "last_error": part.last_error,
                "last_error_at": _time(part.last_error_at),
            }
            for part in view.parts
        ],
    }


def _lines(folder: Folder, view: TreeView, images: Fetching | None) -> Iterator[str]:
    if view.parts:
        yield from _table([_HEAD, *(_row(part) for part in view.parts)])
    for part in view.parts:
        if part.why:
            yield f"{part.name}: {part.why}"
        elif part.last_error:
            yield f"{part.name}: last ended at {_time(part.last_error_at)}: {part.last_error}"
    if view.state and view.state.github:
        yield f"GitHub: {view.state.github}"
    if images:
        yield f"Images: {images.says}"
    tended = f", tended by process {view.supervisor}" if view.supervisor else ""
    yield f"{view.says} (data in {folder.root}{tended})"


_HEAD = ("PART", "CONDITION", "PID", "SINCE", "RESTARTS", "ADDRESS")


def _row(part: PartView) -> tuple[str, ...]:
    return (
        part.name,
        part.condition.value,
        str(part.pid or "-"),
        _time(part.since) or "-",
        str(part.restarts),
        part.address or "-",
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "   ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def _time(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
