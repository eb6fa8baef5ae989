"""
Fetches the images that the annotation ``remuda.dev/stage`` of this host's Node names, and starts nothing.

Level, never edge: what is named and not there is fetched, also again if it went missing. What is named counts as wanted
and is not collected. When a name goes, its image stays for as long as any that nobody wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.staged import IMAGES_MAX, Staged, staged
from remuda.control.backoff import Backoff
from remuda.control.queue import QueueSettings, WorkQueue
from remuda.kube.core import NODE
from remuda.kube.names import STAGE
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from typing import Protocol

    from remuda.agent.images import Goldens
    from remuda.control.cache import Key
    from remuda.control.events import EventRecorder
    from remuda.control.reflector import Reflector
    from remuda.kube.core import Node
    from remuda.ports.ids import Ids

    class Stages(Protocol):
        """The shelf, as far as this needs it."""

        async def stage(self, image: str) -> None: ...


log = structlog.get_logger(__name__)

STAGED: Final = "ImageStaged"
"""Event on the Node: an image that it was told to fetch is there."""
NOT_STAGED: Final = "ImageNotStaged"
"""Event on the Node: an image was not fetched, or its name cannot be read."""


class Staging:
    """Follows one Node. The reflector is run by whoever owns it."""

    def __init__(
        self,
        shelf: Stages,
        goldens: Goldens,
        nodes: Reflector[Node],
        events: EventRecorder,
        ids: Ids,
    ) -> None:
        self._shelf, self._goldens = shelf, goldens
        self._nodes, self._events = nodes, events
        self._text = ""
        self._asked = Staged()
        # As many at once as can be named: the shelf says how many are pulled, and one that hangs delays no other.
        settings = QueueSettings(
            workers_max=IMAGES_MAX, backoff=Backoff(first_s=5.0, longest_s=300.0)
        )
        self._queue: WorkQueue[str] = WorkQueue("staging", self._stage, ids, settings)
        nodes.on_change(self._changed)

    async def run(self) -> None:
        """Fetch what is named until cancelled."""
        await self._queue.run()

    @property
    def synced(self) -> bool:
        """Whether the Node was read. Before that, nothing is known about what is staged."""
        return self._nodes.synced

    def wanted_images(self) -> frozenset[str]:
        return frozenset(self._asked.images)

    def _changed(self, key: Key) -> None:
        node = self._nodes.get(key.name)
        if node is None:
            return  # it will be registered again; what was staged for it stays wanted meanwhile
        text = node.metadata.annotations.get(STAGE, "")
        if text != self._text:
            self._text, self._asked = text, staged(text)
            for why in self._asked.bad:
                log.warning("not staged", why=why)
                message = f"Something was not staged: {why}. Correct the annotation {STAGE}."
                self._events.record(NODE, node, NOT_STAGED, message, warning=True)
        ready = self._goldens.ready_images()
        for image in self._asked.images:
            if image not in ready:
                self._queue.add(image)

    async def _stage(self, image: str) -> None:
        if image not in self._asked.images or image in self._goldens.ready_images():
            return  # no longer asked for, or there already
        try:
            await self._shelf.stage(image)
        except RemudaError as error:
            self._say(NOT_STAGED, str(error), warning=True)
            raise
        self._say(STAGED, f"The image {image} is ready on this host")

    def _say(self, reason: str, message: str, *, warning: bool = False) -> None:
        for node in self._nodes.all():
            self._events.record(NODE, node, reason, message, warning=warning)
