"""
A steady load of small jobs on a tree that is killed again and again, and the count of what became of each.

Every job leaves marks in a folder of its own outside the tree: a line when it begins, another when it ends. So what a
job did is known without asking those who are killed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.trees import Tree

DRAIN_S: Final = 300.0
PATIENCE_S: Final = 10.0
SETTLE_S: Final = 120.0
SERVER_FAULT: Final = 500


@dataclass(slots=True)
class Burden:
    """Jobs that were sent, some of them without an answer."""

    tree: Tree
    marks: Path
    sent: dict[str, str] = field(default_factory=dict)
    """The script of each job, by its key."""
    known: dict[str, str] = field(default_factory=dict)
    """The ID of each that was answered for, by its key."""

    async def send(self, lasts_s: float) -> None:
        """Send one more job. The tree may be killed before it answers: it is sent again, and is the same job."""
        key = f"job-{len(self.sent) + 1}"
        mark = self.marks / key
        self.sent[key] = f"echo begun >>{mark}; sleep {lasts_s:.2f}; echo ended >>{mark}"
        await self._post(key)

    async def settle(self) -> None:
        """Send again what was not answered for."""
        for key in self.sent:
            if key not in self.known:
                await eventually(partial(self._post, key), within_s=SETTLE_S)

    async def _post(self, key: str) -> bool:
        addresses, token = self.tree.folder.home.addresses(), self.tree.folder.home.token_file
        if addresses is None or not token.is_file():
            return False
        headers = {
            "Authorization": f"Bearer {token.read_text().strip()}",
            "Idempotency-Key": key,
        }
        body = {"pool": "default", "script": self.sent[key], "name": key}
        url = f"{addresses.server}/api/v1/jobs"
        limit = aiohttp.ClientTimeout(total=PATIENCE_S)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=limit) as client,
                client.post(url, json=body) as answer,
            ):
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False  # it was killed, and nobody knows whether it has the job
        if answer.status >= SERVER_FAULT:
            return False  # not now, it says
        assert answer.status in {200, 201}, said
        self.known[key] = said["id"]
        return True

    async def outcomes(self) -> dict[str, Any]:
        """Wait until all jobs are over, and return how each ended, by its key."""
        ended: dict[str, Any] = {}

        async def probe() -> list[str]:
            for key, job in self.known.items():
                if key not in ended:
                    said = await self.tree.api.get(f"/api/v1/jobs/{job}/outcome")
                    if said["over"]:
                        ended[key] = said
            return [key for key in self.known if key not in ended]

        await eventually(probe, lambda left: left == [], within_s=DRAIN_S)
        return ended

    def marked(self, key: str) -> tuple[int, int]:
        """Return how often a job began and how often it ended, by its own marks."""
        try:
            lines = Counter((self.marks / key).read_text().splitlines())
        except FileNotFoundError:
            return 0, 0
        return lines["begun"], lines["ended"]
