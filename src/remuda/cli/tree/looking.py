"""Looks at a tree from outside: who lives, who answers, who is well."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.cli.tree.decide.health import Seen, condition_of, summary, why_not
from remuda.cli.tree.folder import holder
from remuda.cli.tree.parts import STARTED, Layout
from remuda.cli.tree.probes import Answer, ask
from remuda.cli.tree.runs import Run
from remuda.cli.tree.state import read_state

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.cli.tree.decide.health import Condition
    from remuda.cli.tree.folder import Folder
    from remuda.cli.tree.state import TreeState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """One part, for a person."""

    name: str
    condition: Condition
    pid: int | None
    since: datetime | None
    address: str
    why: str
    restarts: int
    last_error: str
    last_error_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeView:
    """A tree, for a person."""

    ok: bool
    says: str
    supervisor: int | None
    """The pid of the ``remuda up`` that tends it."""
    state: TreeState | None
    parts: tuple[PartView, ...]


async def look(folder: Folder) -> TreeView:
    """Look at all parts at once."""
    kept = folder.kept()
    tender = holder(folder)
    state = read_state(folder)
    if kept is None:
        ok, says = summary((), supervised=tender is not None)
        return TreeView(ok=ok, says=says, supervisor=tender, state=None, parts=())
    layout = Layout(folder, kept)
    seen = await asyncio.gather(*(_seen(layout, name) for name in STARTED))
    ok, says = summary(seen, supervised=tender is not None)
    parts = tuple(_part(layout, one, state) for one in seen)
    return TreeView(ok=ok, says=says, supervisor=tender, state=state, parts=parts)


async def _seen(layout: Layout, name: str) -> Seen:
    running = Run(layout.folder, name).is_alive
    answer = await ask(layout, name) if running else Answer(answered=False)
    return Seen(
        name=name,
        running=running,
        answered=answer.answered,
        ready=answer.ready,
        says=answer.says,
    )


def _part(layout: Layout, seen: Seen, state: TreeState | None) -> PartView:
    run = Run(layout.folder, seen.name)
    known = None if state is None else state.parts.get(seen.name)
    last_error = "" if known is None else known.last_error
    return PartView(
        name=seen.name,
        condition=condition_of(seen),
        pid=run.pid if seen.running else None,
        since=run.since if seen.running else None,
        address=layout.url(seen.name) if seen.name in layout.kept.ports else "",
        why=why_not(seen, last_error),
        restarts=0 if known is None else known.restarts,
        last_error=last_error,
        last_error_at=None if known is None else known.last_error_at,
    )
