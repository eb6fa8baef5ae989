"""What ``remuda run`` returns and says of a job: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.cli.exits import INTERRUPTED, NO_RESULT, OK, TERMINATED, TIMED_OUT
from remuda.model.job import JobState
from remuda.model.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.ports.api import Event, Explanation, JobRow, Outcome

_PERSON: Final = "api:"
"""How the audit names those who came with a token."""
_BY_ITSELF: Final = frozenset({"The job ended by itself", "Error"})
"""What a guest says of a job that nobody stopped, and what its Pod does, which has the word from the kubelets."""
_IN_DOUBT: Final = frozenset({Output.AWAITED, Output.UNCONFIRMED})
_CODE_MAX: Final = 255
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of ``remuda run``."""

    code: int
    says: str = ""
    """Empty if the code says it all: a command that ended by itself."""


def verdict(outcome: Outcome, *, asked: int | None, by: str = "", timeout_s: int = 0) -> Verdict:
    """
    Say how a job's end is returned.

    ``asked`` is the exit code for having cancelled it, if we did; ``by`` is who else did, if that is known.
    """
    job, reason = outcome.id, f": {plain(outcome.reason)}" if outcome.reason else ""
    code, says = NO_RESULT, f"the job {job} ended without an exit code{reason}"
    match outcome.conclusion:
        case "success":
            code, says = OK, ""
        case "failure" if outcome.exit_code is not None:
            code, says = shell_code(outcome.exit_code), ""
            if outcome.reason and outcome.reason not in _BY_ITSELF:
                says = f"the job {job} ended with {outcome.exit_code}{reason}"
        case "cancelled" if asked is not None:
            code, says = asked, f"the job {job} was cancelled"
        case "cancelled":
            says = f"the job {job} was cancelled by {by or 'somebody else'}"
        case "timed_out":
            code = TIMED_OUT
            says = f"the job {job} was stopped: it took longer than its {timeout_s} s (--timeout)"
        case "lost":
            again = "run it again if it may run twice"
            says = f"the job {job} began, and its runner {outcome.pod} is gone{reason}; {again}"
        case _:
            pass  # it is over, and nobody can say how
    return _in_doubt(Verdict(code, says), outcome)


def _in_doubt(said: Verdict, outcome: Outcome) -> Verdict:
    """Add that the output may not be all, where that is so: the code is the command's own nevertheless."""
    if outcome.output not in _IN_DOUBT or outcome.conclusion == "lost":
        return said
    why = f"the runner {outcome.pod} did not tell the end of what the job {outcome.id} printed"
    text = f"the last of the output may be missing: {why}"
    return replace(said, says=f"{said.says}\nremuda: {text}" if said.says else text)


def shell_code(code: int) -> int:
    """Return a command's exit code as a shell would: a process can only return what fits in a byte."""
    if code < 0:
        return min(_SIGNALLED - code, _CODE_MAX)
    return code if code <= _CODE_MAX else (code & _CODE_MAX) or 1


def stop_words(code: int) -> str:
    return {INTERRUPTED: "interrupted", TERMINATED: "told to end"}.get(code, "stopping")


def progress(job: JobRow, explanation: Explanation | None) -> str:
    """Say how far a job is that has not begun."""
    match job.state:
        case JobState.QUEUED:
            why = "" if explanation is None else f": {plain(explanation.sentence)}"
            return f"waits in the pool {job.pool}{why}"
        case JobState.CLAIMED:
            return f"goes to the runner {job.pod}"
        case JobState.RUNNING:
            return f"starts on the runner {job.pod}"
        case JobState.COMPLETED | JobState.CANCELLED:
            return "is over"


def who_cancelled(events: Iterable[Event]) -> str:
    """Find a person's hand in a job's end, if the audit shows one."""
    ends = [event.who for event in events if event.what == "completed"]
    last = ends[-1] if ends else ""
    return plain(last.removeprefix(_PERSON)) if last.startswith(_PERSON) else ""


def plain(text: str) -> str:
    """Return someone else's text on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text).strip().rstrip(".")
