"""What ``remuda status`` says of images that the agent fetches, read from the agent's own metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from remuda.agent.metrics import AgentMetrics
from remuda.cli.tree.fetching import fetching_in, look_at_images
from remuda.cli.tree.folder import Folder

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1024**3


@pytest.mark.parametrize(
    ("images", "done", "total", "says"),
    [
        pytest.param(0, 0, 0, None, id="nothing is fetched"),
        pytest.param(1, 0, 0, "1 is being fetched: 0.0 GiB have come", id="it begins"),
        pytest.param(
            1,
            3 * GIB,
            30 * GIB,
            "1 is being fetched: 3.0 of 30.0 GiB have come (10%)",
            id="so much of so much",
        ),
        pytest.param(
            2,
            30 * GIB,
            40 * GIB,
            "2 are being fetched: 30.0 of 40.0 GiB have come (75%)",
            id="two together",
        ),
    ],
)
def test_the_metrics_say(images: int, done: int, total: int, says: str | None) -> None:
    metrics = AgentMetrics(CollectorRegistry())
    metrics.fetches.set(images)
    metrics.fetch_done.set(done)
    metrics.fetch_total.set(total)

    found = fetching_in(generate_latest(metrics.registry).decode())

    assert (found.says if found else None) == says


async def test_an_agent_that_does_not_run_fetches_nothing(tmp_path: Path) -> None:
    assert fetching_in("nonsense") is None
    assert await look_at_images(Folder(tmp_path)) is None
    Folder(tmp_path).kept_file.write_text("{")
    assert await look_at_images(Folder(tmp_path)) is None
