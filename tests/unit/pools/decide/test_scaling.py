from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pools.decide.scaling import load, target
from remuda.ports.dispatch import Signals

COUNTS = st.integers(0, 50)
SIGNALS = st.builds(
    Signals,
    queued=COUNTS,
    claimed=COUNTS,
    occupied=COUNTS,
    withheld=COUNTS,
    p95_concurrent_last_hour=COUNTS,
)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        pytest.param(Signals(), 0, id="nothing to do needs nobody"),
        pytest.param(Signals(claimed=5, queued=3), 8, id="claimed and queued jobs each need one"),
        pytest.param(Signals(occupied=7, claimed=5), 7, id="a runner that still cleans up is not free"),
        pytest.param(Signals(occupied=4, claimed=5), 5, id="a claim counts before its runner is occupied"),
        pytest.param(Signals(withheld=1), 1, id="a withheld job keeps one runner: the pool must not starve"),
        pytest.param(Signals(withheld=40), 1, id="many withheld jobs count as one: they may not run yet"),
        pytest.param(Signals(queued=2, withheld=9), 3, id="withheld ones come on top of the queue"),
        pytest.param(Signals(p95_concurrent_last_hour=9), 0, id="what was busy before is no load"),
        pytest.param(Signals(queued=-3, occupied=-1), 0, id="a nonsense count is none"),
    ],
)  # fmt: skip
def test_load(signals: Signals, expected: int) -> None:
    assert load(signals) == expected


@pytest.mark.parametrize(
    ("signals", "min_warm", "max_replicas", "expected"),
    [
        pytest.param(Signals(), 0, 10, 0, id="no demand and no minimum is none"),
        pytest.param(Signals(), 3, 10, 3, id="an idle pool keeps its warm ones"),
        pytest.param(Signals(claimed=5, queued=3, p95_concurrent_last_hour=5), 1, 100, 9, id="warm ones above load"),
        pytest.param(Signals(queued=2, p95_concurrent_last_hour=6), 1, 100, 7, id="a busy last hour lifts it"),
        pytest.param(Signals(queued=6), 5, 100, 11, id="the minimum is added once, not twice"),
        pytest.param(Signals(queued=2), 5, 100, 7, id="the minimum is no lower bound as well"),
        pytest.param(Signals(queued=50), 5, 20, 20, id="never above the maximum"),
        pytest.param(Signals(queued=50), 5, 0, 0, id="a maximum of none is none"),
        pytest.param(Signals(withheld=40), 1, 100, 2, id="withheld jobs count as one"),
    ],
)  # fmt: skip
def test_target(signals: Signals, min_warm: int, max_replicas: int, expected: int) -> None:
    assert target(signals, min_warm=min_warm, max_replicas=max_replicas) == expected


@given(signals=SIGNALS, min_warm=COUNTS, max_replicas=COUNTS)
def test_target_stays_in_bounds(signals: Signals, min_warm: int, max_replicas: int) -> None:
    wanted = target(signals, min_warm=min_warm, max_replicas=max_replicas)

    assert 0 <= wanted <= max_replicas
    assert wanted >= min(max_replicas, load(signals))
