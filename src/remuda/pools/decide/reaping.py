"""Runners whose life is over. Deletion is looked at first: one being deleted belongs to its finalizers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause, ReapRunner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.model.runner import Runner


def ended(runners: Iterable[Runner], *, deletion_first: bool = True) -> tuple[ReapRunner, ...]:
    """Return the runners to clear away because they ended."""
    return tuple(
        ReapRunner(runner, Cause.ENDED, _how(runner))
        for runner in runners
        if runner.phase is Phase.ENDED
        and runner.is_known
        and not (deletion_first and runner.deleting_since is not None)
    )


def _how(runner: Runner) -> str:
    end = runner.end
    if end is None:
        return "it ended"
    code = "" if end.exit_code is None else f" with exit code {end.exit_code}"
    reason = f" ({end.reason})" if end.reason else ""
    return f"it ended{code}{reason}"
