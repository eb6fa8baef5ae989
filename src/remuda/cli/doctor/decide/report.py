"""All checks, and what they say together. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.cli.doctor.decide import connection, hosts, jobs, machine, pools, runners
from remuda.cli.doctor.decide.facts import Unknown
from remuda.cli.doctor.decide.findings import (
    Finding,
    Group,
    Level,
    Result,
    bounded,
    seen_twice,
    skip,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Check

_ORDER: Final = tuple(Group)
CHECKS: Final[tuple[Check, ...]] = tuple(
    sorted(
        (
            *machine.CHECKS,
            *connection.CHECKS,
            *hosts.CHECKS,
            *pools.CHECKS,
            *runners.CHECKS,
            *jobs.CHECKS,
        ),
        key=lambda check: _ORDER.index(check.group),
    )
)


class Outcome(StrEnum):
    """What became of something that can be mended."""

    DONE = "done"
    LEFT = "left"
    """It has changed meanwhile, or the world did not let us."""
    PLANNED = "planned"
    """It would be done without ``--dry-run``."""


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """Something that ``--fix`` did, left, or would do."""

    what: str
    outcome: Outcome
    why: str = ""
    """Why it was left alone."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``remuda doctor`` says. The fields are those of ``--json``."""

    ok: bool
    """Whether no check failed."""
    counts: dict[str, int]
    checks: tuple[Result, ...]
    mended: tuple[Mended, ...] = ()


def findings(facts: Facts, names: Collection[str] = ()) -> dict[str, Finding]:
    """Look at everything, or at the named checks only. A check whose facts were not read is skipped."""
    chosen = [check for check in CHECKS if not names or check.name in names]
    return {check.name: _found(check, facts) for check in chosen}


def _found(check: Check, facts: Facts) -> Finding:
    try:
        return check.look(facts)
    except Unknown as unknown:
        return skip(unknown.unread.why)


def needs_second_look(found: dict[str, Finding]) -> bool:
    """Say whether something looks wrong that may be no more than two reads of different moments."""
    return any(
        check.fleeting and found[check.name].level in {Level.WARN, Level.FAIL}
        for check in CHECKS
        if check.name in found
    )


def agreed(first: dict[str, Finding], second: dict[str, Finding]) -> dict[str, Finding]:
    """Return the second look's findings; of fleeting ones what both looks found."""
    fleeting = {check.name for check in CHECKS if check.fleeting}
    return {
        name: seen_twice(first[name], found) if name in fleeting else found
        for name, found in second.items()
    }


def report(found: dict[str, Finding], mended: tuple[Mended, ...] = ()) -> Report:
    results = tuple(
        Result(
            name=check.name,
            group=check.group,
            level=finding.level,
            sentence=finding.sentence,
            evidence=bounded(finding.evidence),
            fix=finding.fix,
            invariants=check.invariants,
            mendable=finding.mendable,
        )
        for check in CHECKS
        if (finding := found.get(check.name)) is not None
    )
    counts = {level.value: sum(r.level is level for r in results) for level in Level}
    return Report(ok=not counts[Level.FAIL], counts=counts, checks=results, mended=mended)
