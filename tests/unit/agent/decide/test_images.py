"""An image before VMs are cloned from it."""

from __future__ import annotations

from itertools import product

import pytest

from remuda.agent.decide.images import ImageAction, next_step
from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import ImageState

A, S, O = ImageAction, ImageState, Observed  # noqa: E741 - the columns of the table below


@pytest.mark.parametrize(
    ("recorded", "golden", "action"),
    [
        pytest.param(None, O.ABSENT, A.FETCH, id="a new image is fetched"),
        pytest.param(None, O.STOPPED, A.REFUSE, id="a golden that we did not make is not used"),
        pytest.param(None, O.RUNNING, A.REFUSE, id="nor one that runs"),
        pytest.param(S.FETCHING, O.ABSENT, A.FETCH, id="a fetch that we died in begins again"),
        pytest.param(S.FETCHING, O.STOPPED, A.DISCARD, id="a golden that may be half of one goes"),
        pytest.param(S.READY, O.STOPPED, A.USE, id="a whole golden is used"),
        pytest.param(S.READY, O.ABSENT, A.FETCH, id="a golden that was removed by hand is fetched"),
        pytest.param(S.READY, O.RUNNING, A.LOOK_AGAIN, id="a golden that runs is not cloned"),
    ],
)
def test_next_step(recorded: ImageState | None, golden: Observed, action: ImageAction) -> None:
    assert next_step(recorded, golden) is action


def test_no_cell_is_empty_and_nothing_is_done_blindly() -> None:
    cells = {(r, o): next_step(r, o) for r, o in product([None, *S], O)}
    assert len(cells) == 12
    assert {a for (_, o), a in cells.items() if o is O.UNKNOWN} == {A.LOOK_AGAIN}
    assert [c for c, a in cells.items() if a is A.USE] == [(S.READY, O.STOPPED)]
    assert [c for c, a in cells.items() if a is A.DISCARD] == [(S.FETCHING, O.STOPPED)]
