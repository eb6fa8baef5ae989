"""Checks of jobs and tenants, as dispatch knows them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.cli.doctor.decide.facts import got
from remuda.cli.doctor.decide.findings import Check, Group, counted, fail, lasting, ok, warn

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import Facts, Waiting
    from remuda.cli.doctor.decide.findings import Finding

LONG_S: Final = 60.0
_NEVER: Final = frozenset(
    {
        "pool_gone",
        "pool_deleted",
        "labels_conflict",
        "no_limits",
        "larger_than_limit",
        "scaled_to_zero",
    }
)
"""Why a job waits that waiting alone does not end (``explain``)."""


def invariants(facts: Facts) -> Finding:
    broken = {name: n for name, n in got(got(facts.api).violations).items() if n}
    if broken:
        return fail(
            "Dispatch sees what should never be.",
            [f"{name}: {counted(number, 'finding')}" for name, number in sorted(broken.items())],
            "Its log names each one: search it for: an invariant does not hold",
        )
    return ok("Dispatch sees nothing that should never be.")


def queue(facts: Facts) -> Finding:
    waiting = [w for w in got(got(facts.api).waiting) if _waited_s(w, facts) >= LONG_S]
    if not waiting:
        return ok("No job has waited for a minute.")
    lines = [f"{w.job.id}, for {lasting(_waited_s(w, facts))}: {_why(w)}" for w in waiting]
    hopeless = [
        line for w, line in zip(waiting, lines, strict=True) if w.why and w.why.why in _NEVER
    ]
    if hopeless:
        steps = [w.why.next_step for w in waiting if w.why and w.why.why in _NEVER]
        return fail(
            "Jobs wait that nobody can take.",
            hopeless,
            next((step.rstrip(". ") for step in steps if step), "remuda explain job JOB says more"),
        )
    return warn(
        f"{counted(len(waiting), 'job has', 'jobs have')} waited for more than a minute.",
        lines,
        "remuda explain job JOB says more",
    )


def _waited_s(waiting: Waiting, facts: Facts) -> float:
    return (facts.api_now - waiting.job.queued_at).total_seconds()


def _why(waiting: Waiting) -> str:
    return waiting.why.sentence.rstrip(". ") if waiting.why else "nobody could say why"


def limits(facts: Facts) -> Finding:
    full, above = [], []
    for row in got(got(facts.api).limits):
        used = (
            f"{row.tenant} on {row.os}: {row.used_vcpus} of {row.vcpus} vCPUs, "
            f"{row.used_memory_mib} of {row.memory_mib} MiB"
        )
        if row.used_vcpus > row.vcpus or row.used_memory_mib > row.memory_mib:
            above.append(used)
        elif _is_full(row.used_vcpus, row.vcpus) or _is_full(row.used_memory_mib, row.memory_mib):
            full.append(used)
    if above:
        return warn(
            "Tenants use more than their limit.",
            above,
            "Nothing, if the limit was lowered: what runs is not ended. Else report this",
        )
    if full:
        return warn(
            "Tenants are at their limit: more of their jobs wait until some end.",
            full,
            "Nothing, or raise the limit: docs/reference/database.md, table limits",
        )
    return ok("No tenant is at its limit.")


def _is_full(used: int, limit: int) -> bool:
    return used > 0 and used == limit


CHECKS: Final = (
    Check(
        name="jobs-invariants",
        group=Group.JOBS,
        about="Dispatch's own watch over the invariants counts nothing (`remuda_invariant_violations`).",
        look=invariants,
        invariants=("S1", "S2", "S3", "S8", "V1", "V2", "V3", "V7"),
    ),
    Check(
        name="jobs-queue",
        group=Group.JOBS,
        about="No job has waited for a minute; fail if nobody can take it. Says why, as `remuda explain job` does.",
        look=queue,
        invariants=("V1", "V6"),
    ),
    Check(
        name="jobs-limits",
        group=Group.JOBS,
        about="No tenant is at its limit.",
        look=limits,
        invariants=("S3",),
    ),
)
