"""Whether the agent of a tree fetches images now, and how far that is. Never raises: it is said beside other things."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from remuda.agent.shelf import come_words
from remuda.cli.tree.parts import AGENT, Layout
from remuda.cli.tree.runs import Run
from remuda.model.errors import RemudaError
from remuda.ports.vms import PullProgress

if TYPE_CHECKING:
    from remuda.cli.tree.folder import Folder

_WITHIN_S: Final = 5.0
_GAUGE: Final = re.compile(
    r"^remuda_agent_image_(?P<name>fetches|fetch_done_bytes|fetch_total_bytes) (?P<value>[0-9.e+]+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Images that are being fetched."""

    images: int
    done_bytes: int
    total_bytes: int
    """0: nobody knows yet."""

    @property
    def says(self) -> str:
        what = "1 is" if self.images == 1 else f"{self.images} are"
        come = PullProgress(done_bytes=self.done_bytes, total_bytes=self.total_bytes or None)
        return f"{what} being fetched: {come_words(come)}"


def fetching_in(metrics: str) -> Fetching | None:
    """Read the agent's metrics; None: nothing is being fetched."""
    found = {each["name"]: int(float(each["value"])) for each in _GAUGE.finditer(metrics)}
    if not found.get("fetches"):
        return None
    return Fetching(
        images=found["fetches"],
        done_bytes=found.get("fetch_done_bytes", 0),
        total_bytes=found.get("fetch_total_bytes", 0),
    )


async def look_at_images(folder: Folder) -> Fetching | None:
    """Ask the agent; None: nothing is being fetched, or it does not answer."""
    try:
        kept = folder.kept()
        if kept is None or not Run(folder, AGENT).is_alive:
            return None
        url = Layout(folder, kept).metrics[AGENT]
        async with (
            asyncio.timeout(_WITHIN_S),
            aiohttp.ClientSession() as client,
            client.get(url) as answer,
        ):
            return fetching_in(await answer.text())
    except (RemudaError, OSError, aiohttp.ClientError, UnicodeDecodeError, KeyError):
        return None
