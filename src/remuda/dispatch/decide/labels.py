"""
Decide which pool serves a job by what its ``runs-on`` asks for, or say exactly why none does. Pure.

A pool serves a job if it has every label that the job asks for. The words that GitHub gives to every self-hosted runner
need not be among a pool's labels: ``self-hosted``, the OS and the architecture. But they alone choose nothing: at least
one label must be the pool's own. Where several pools serve a job, the one with exactly these labels does; if there is
none, nobody does, for the order of a list is no contract. Upper and lower case are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from remuda.kube.quantity import Quantity, parse_quantity
from remuda.kube.runner_pool import OperatingSystem
from remuda.model.errors import BadInput
from remuda.model.job import Os, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.job import JobSpec

SELF_HOSTED: Final = "self-hosted"
OS_WORDS: Final = {OperatingSystem.LINUX: "linux", OperatingSystem.DARWIN: "macos"}
ARCHITECTURES: Final = frozenset({"x64", "arm64", "arm"})
_ARCHITECTURE_OF_OS: Final = {OperatingSystem.LINUX: "x64", OperatingSystem.DARWIN: "arm64"}
_ARCHITECTURE_OF_NODES: Final = {"amd64": "x64", "arm64": "arm64", "arm": "arm"}
GITHUB_WORDS: Final = frozenset({SELF_HOSTED, "linux", "macos", "windows"}) | ARCHITECTURES
NAMES_MAX: Final = 5
MIB: Final = 1024 * 1024


class Unmatched(StrEnum):
    """Why no pool serves a job. Outcomes in metrics, so they stay few."""

    NO_POOLS = "no_pools"
    NO_OWN_LABEL = "no_own_label"
    UNKNOWN_LABEL = "unknown_label"
    NOT_TOGETHER = "labels_not_together"
    AMBIGUOUS = "ambiguous_pool"
    CONFLICT = "labels_conflict"
    DELETING = "pool_deleted"
    BAD_SIZE = "bad_pool_size"
    FORK_DENIED = "fork_denied"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pool that serves a job."""

    pool: RunnerPool
    label: str
    """The first requested label, as written, that is the pool's own: the runner must carry it."""
    os: Os
    size: Size


@dataclass(frozen=True, slots=True)
class NoPool:
    """No pool serves a job."""

    reason: Unmatched
    sentence: str
    """Why, with names."""
    fix: str
    """What a person can do about it."""


def choose(labels: Sequence[str], pools: Iterable[RunnerPool]) -> Chosen | NoPool:
    """Choose the pool for a job that asks for these labels. The answer does not depend on the order of the pools."""
    in_order = sorted(pools, key=lambda pool: pool.name)
    if not in_order:
        why = "There is no RunnerPool in the namespace of the runners."
        return NoPool(Unmatched.NO_POOLS, why, "Create a RunnerPool whose labels are these.")
    serving = [pool for pool in in_order if serves(pool, labels)]
    if not serving:
        return _nobody(labels, in_order)
    usable = [pool for pool in serving if _unusable(pool) is None]
    if not usable:
        return _first_of([unusable for p in serving if (unusable := _unusable(p)) is not None])
    exact = [pool for pool in usable if _own(pool) - GITHUB_WORDS == _wanted(labels) - GITHUB_WORDS]
    best = exact or usable
    return _chosen(best[0], labels) if len(best) == 1 else _ambiguous(labels, best)


def serves(pool: RunnerPool, labels: Sequence[str]) -> bool:
    """Say whether a pool has every label that is asked for, whatever else is the matter with it."""
    wanted, own = _wanted(labels), _own(pool)
    return bool(wanted & own) and wanted <= own | _given(pool)


def concerns(labels: Sequence[str], runner_name: str, pools: Iterable[RunnerPool]) -> bool:
    """
    Say whether a job can be one of ours: a pool serves its labels, or its runner has a name such as we give.

    We name runners after their Pods, and Pods are named after their pool. A job of somebody else's runners is not
    written down: an organisation has many.
    """
    return any(serves(pool, labels) or runner_name.startswith(f"{pool.name}-") for pool in pools)


def fork_denied(pool: RunnerPool) -> NoPool:
    """Say that a pool does not serve forks."""
    why = (
        "It comes from a fork's pull request, or the forge does not say where it comes from, and pool"
        f" {pool.name} takes no such jobs: their code is written by strangers."
    )
    fix = f"Set spec.forks of pool {pool.name} to allow, if its runners hold nothing that strangers may not have."
    return NoPool(Unmatched.FORK_DENIED, why, fix)


def runner_labels(spec: JobSpec, pool: RunnerPool) -> tuple[str, ...]:
    """
    Return what a job's runner must be registered with, no label twice whatever its case.

    GitHub gives a job only to a runner that has every label it asks for, and a runner that is registered for one job
    has exactly the labels that it is given, so the words that others have by themselves are among them.
    """
    once: dict[str, str] = {}
    for label in (spec.label, *spec.labels, *pool.spec.labels):
        once.setdefault(label.lower(), label)
    return tuple(label for label in once.values() if label)


def size_of(pool: RunnerPool) -> Size:
    """Return what a runner takes of its tenant's limit: whole vCPUs and MiB, rounded up. Raises BadInput."""
    cpu = parse_quantity(pool.spec.resources.cpu).ceil()
    memory = Quantity(parse_quantity(pool.spec.resources.memory).amount / MIB).ceil()
    return Size(max(1, cpu), max(1, memory))


# --- What a pool has --------------------------------------------------------------------------------------------------


def _wanted(labels: Iterable[str]) -> frozenset[str]:
    return frozenset(label.lower() for label in labels)


def _own(pool: RunnerPool) -> frozenset[str]:
    return _wanted(pool.spec.labels)


def _given(pool: RunnerPool) -> frozenset[str]:
    """Return the words that GitHub would give to this pool's runners."""
    return frozenset({SELF_HOSTED, OS_WORDS[pool.spec.os]}) | _architecture(pool)


def _architecture(pool: RunnerPool) -> frozenset[str]:
    # A pool may say it by a label or by the Nodes that it wants; else it is the usual one of its OS.
    if said := _own(pool) & ARCHITECTURES:
        return said
    nodes = _node_architecture(pool.spec.template)
    return frozenset({_ARCHITECTURE_OF_NODES.get(nodes, _ARCHITECTURE_OF_OS[pool.spec.os])})


def _node_architecture(template: Any) -> str:  # noqa: ANN401 - a person's partial Pod template
    found = {} if template is UNSET else template
    for key in ("spec", "nodeSelector", "kubernetes.io/arch"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _unusable(pool: RunnerPool) -> NoPool | None:
    if pool.metadata.deletion_timestamp is not None:
        why = f"Pool {pool.name} serves these labels, but is being deleted."
        return NoPool(Unmatched.DELETING, why, "Create another RunnerPool with these labels.")
    for condition in pool.status.conditions:
        if condition.type == "LabelsConflict" and condition.status == "True":
            said = condition.message or "an older pool serves the same set of labels"
            why = f"Pool {pool.name} serves these labels, but nothing is dispatched to it: {said}"
            fix = f"Give pool {pool.name} another set of labels, or delete one of the two."
            return NoPool(Unmatched.CONFLICT, why, fix)
    return None


# --- Answers ----------------------------------------------------------------------------------------------------------


def _chosen(pool: RunnerPool, labels: Sequence[str]) -> Chosen | NoPool:
    try:
        size = size_of(pool)
    except BadInput as error:
        why = f"Pool {pool.name} serves these labels, but its size cannot be read: {error.why}."
        return NoPool(Unmatched.BAD_SIZE, why, f"Correct spec.resources of pool {pool.name}.")
    own = [label for label in labels if label.lower() in _own(pool)]
    label = next((label for label in own if label.lower() not in GITHUB_WORDS), own[0])
    return Chosen(pool, label, Os(pool.spec.os.value), size)


def _first_of(unusable: Sequence[NoPool]) -> NoPool:
    # A conflict can be mended, so it is said before a deletion.
    return min(unusable, key=lambda no: no.reason is Unmatched.DELETING)


def _ambiguous(labels: Sequence[str], pools: Sequence[RunnerPool]) -> NoPool:
    names = _names([pool.name for pool in pools])
    why = f"Several pools serve {_names(labels)}: {names}. Which one is meant is not said."
    fix = "Ask for a label that only one of them has, or give one of them exactly these labels."
    return NoPool(Unmatched.AMBIGUOUS, why, fix)


def _nobody(labels: Sequence[str], pools: Sequence[RunnerPool]) -> NoPool:
    own = sorted(_wanted(labels) - GITHUB_WORDS)
    every = frozenset().union(*(_own(pool) | _given(pool) for pool in pools))
    if not own and not any(_wanted(labels) & _own(pool) for pool in pools):
        asked = _names(labels) or "nothing"
        why = f"It asks for {asked}, which is no pool's own label: any self-hosted runner would do."
        return NoPool(Unmatched.NO_OWN_LABEL, why, "Ask for a label of the pool that is meant.")
    unknown = [label for label in labels if label.lower() not in every]
    if unknown:
        why = f"No pool has the label {_names(unknown)}."
        fix = "Ask for a label that a pool has, or add it to the labels of a pool."
        return NoPool(Unmatched.UNKNOWN_LABEL, why, fix)
    return _not_together(labels, pools)


def _not_together(labels: Sequence[str], pools: Sequence[RunnerPool]) -> NoPool:
    """Say for each pool that comes near what it lacks."""
    lacks: list[tuple[int, str]] = []
    for pool in pools:
        lacking = [label for label in labels if label.lower() not in _own(pool) | _given(pool)]
        if _wanted(labels) & _own(pool):
            lacks.append((len(lacking), f"{pool.name} lacks {_names(lacking)}"))
    nearest = [text for _, text in sorted(lacks)]
    why = f"No pool has all of {_names(labels)}: {_names(nearest, '; ')}."
    fix = "Ask for labels that one pool has together, or add what is lacking to one."
    return NoPool(Unmatched.NOT_TOGETHER, why, fix)


def _names(names: Sequence[str], separator: str = ", ") -> str:
    shown = separator.join(names[:NAMES_MAX])
    more = len(names) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
