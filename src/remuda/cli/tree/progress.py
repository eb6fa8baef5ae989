"""How far a tree is on its way up or down, as a line that a screen shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.cli.tree.decide.health import Condition
from remuda.cli.tree.looking import look
from remuda.cli.tree.parts import STARTED, STOPPED
from remuda.cli.tree.runs import Run
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.cli.progress import Screen, Share
    from remuda.cli.tree.folder import Folder
    from remuda.ports.clock import Clock

_LOOK_S: Final = 0.5


async def show_start(folder: Folder, screen: Screen, clock: Clock) -> None:
    """Show which parts are well, until cancelled."""
    began = clock.monotonic()
    while True:
        well: tuple[str, ...] = ()
        try:
            view = await look(folder)
            well = tuple(p.name for p in view.parts if p.condition is Condition.HEALTHY)
        except (RemudaError, OSError):
            pass  # whoever starts it says what is wrong
        text, share = starting(well)
        screen.progress(text, clock.monotonic() - began, share)
        await clock.sleep(_LOOK_S)


def starting(well: tuple[str, ...]) -> tuple[str, Share]:
    """Say which parts a start still waits for."""
    left = [name for name in STARTED if name not in well]
    said = f"starting: {', '.join(left)}" if left else "starting: all parts are there"
    return said, (len(STARTED) - len(left), len(STARTED))


def ending(folder: Folder) -> tuple[str, Share]:
    """Say which parts have not ended yet."""
    left = [name for name in STOPPED if Run(folder, name).is_alive]
    said = f"ending: {', '.join(left)}" if left else "ending"
    return said, (len(STOPPED) - len(left), len(STOPPED))
