"""What a command's exit code says. Loaded when one is needed: ``remuda --help`` stays instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.model.errors import RemudaError, Retry
from remuda.ports.api import ApiNotFound, ApiRefused
from remuda.ports.kube import NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4

# Of ``remuda run`` only: every other code is that of the command that was run.
TIMED_OUT: Final = 124
NO_RESULT: Final = 125
"""There is no exit code to return: the job was not taken, was cancelled by somebody else, or its runner is gone."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143


class Declined(RemudaError):
    """What was asked for goes against what is there, so nothing was changed. Only a person can decide otherwise."""

    retry = Retry.NEVER


def code_of(errors: Sequence[Exception]) -> int:
    """Return the exit code of a command that ended with these errors: a special one only if all are of that kind."""
    codes = {_code(error) for error in errors}
    return codes.pop() if len(codes) == 1 else FAILED


def _code(error: Exception) -> int:
    if isinstance(error, ApiNotFound | NotFound):
        return NOT_FOUND
    if isinstance(error, ApiRefused | Refused | Declined):
        return REFUSED
    return FAILED
