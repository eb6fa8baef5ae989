"""Which pool serves a job, and the exact words when none does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch.decide.labels import (
    Chosen,
    NoPool,
    Unmatched,
    choose,
    concerns,
    fork_denied,
    runner_labels,
    size_of,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.runner_pool import (
    OperatingSystem,
    RunnerPool,
    RunnerPoolSpec,
    RunnerPoolStatus,
    RunnerResources,
)
from remuda.model.job import Os, Size
from tests.support.jobs import a_job

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLASH = Condition(
    type="LabelsConflict",
    status="True",
    reason="SameLabels",
    message="pool old is older and has the same labels (fast), so this pool gets no jobs.",
)


def a_pool(
    name: str,
    *labels: str,
    os: OperatingSystem = OperatingSystem.LINUX,
    deleting: bool = False,
    conflict: bool = False,
    **spec: Any,  # noqa: ANN401 - fields of what it builds
) -> RunnerPool:
    return RunnerPool(
        metadata=ObjectMeta(name=name, deletion_timestamp=NOON if deleting else None),
        spec=RunnerPoolSpec(image="runner", fleet="f", labels=labels, os=os, **spec),
        status=RunnerPoolStatus(conditions=(CLASH,) if conflict else ()),
    )


MAC = a_pool("mac", "xcode-26", os=OperatingSystem.DARWIN)
FAST = a_pool("linux", "fast")
BIG = a_pool("big", "fast", "Big")
ARM_LABEL = a_pool("arm", "graviton", "ARM64")
ARM_NODES = a_pool(
    "arm", "graviton", template={"spec": {"nodeSelector": {"kubernetes.io/arch": "arm64"}}}
)
ODD = a_pool("odd", "fast", template={"spec": ["not", "a", "map"]})


@pytest.mark.parametrize(
    ("labels", "pools", "pool", "label"),
    [
        pytest.param(["fast"], [FAST, MAC], "linux", "fast", id="the one pool that has the label"),
        pytest.param(["FAST"], [FAST], "linux", "FAST", id="case does not matter, and is kept"),
        pytest.param(
            ["self-hosted", "Linux", "X64", "fast"],
            [FAST, MAC],
            "linux",
            "fast",
            id="the words that GitHub gives every Linux runner need not be the pool's",
        ),
        pytest.param(
            ["self-hosted", "macOS", "ARM64", "xcode-26"],
            [FAST, MAC],
            "mac",
            "xcode-26",
            id="likewise on macOS",
        ),
        pytest.param(["graviton", "arm64"], [ARM_LABEL], "arm", "graviton", id="ARM by a label"),
        pytest.param(["graviton", "arm64"], [ARM_NODES], "arm", "graviton", id="ARM by its Nodes"),
        pytest.param(["x64", "fast"], [ODD], "odd", "fast", id="an odd template says nothing"),
        pytest.param(
            ["big", "fast"], [FAST, BIG], "big", "big", id="every label, in whatever order"
        ),
        pytest.param(
            ["fast"], [BIG, FAST], "linux", "fast", id="the pool with exactly these labels first"
        ),
        pytest.param(
            ["fast"],
            [a_pool("new", "fast", conflict=True), a_pool("old", "fast")],
            "old",
            "fast",
            id="of two with the same labels the one without the conflict",
        ),
        pytest.param(
            ["fast"],
            [a_pool("was", "fast", deleting=True), a_pool("is", "fast")],
            "is",
            "fast",
            id="a pool that is being deleted stands in nobody's way",
        ),
        pytest.param(
            ["self-hosted", "linux"],
            [a_pool("all", "linux"), MAC],
            "all",
            "linux",
            id="a word of GitHub counts if the pool made it its own",
        ),
        pytest.param(
            ["fast", "fast"], [FAST], "linux", "fast", id="a label that is asked for twice"
        ),
    ],
)
def test_a_pool_is_chosen(
    labels: list[str], pools: list[RunnerPool], pool: str, label: str
) -> None:
    chosen = choose(labels, pools)

    assert isinstance(chosen, Chosen), chosen
    assert (chosen.pool.name, chosen.label) == (pool, label)


@pytest.mark.parametrize(
    ("labels", "pools", "reason", "said"),
    [
        pytest.param(["fast"], [], Unmatched.NO_POOLS, "There is no RunnerPool", id="no pools"),
        pytest.param(
            ["fast", "gpu"],
            [FAST, MAC],
            Unmatched.UNKNOWN_LABEL,
            "No pool has the label gpu.",
            id="a label that no pool has is named, and only that one",
        ),
        pytest.param(
            ["windows", "fast"],
            [FAST],
            Unmatched.UNKNOWN_LABEL,
            "No pool has the label windows.",
            id="an OS that no pool has",
        ),
        pytest.param(
            ["fast", "xcode-26"],
            [FAST, MAC],
            Unmatched.NOT_TOGETHER,
            "No pool has all of fast, xcode-26: linux lacks xcode-26; mac lacks fast.",
            id="labels of two pools: each is named with what it lacks",
        ),
        pytest.param(
            ["macOS", "fast"],
            [FAST, MAC],
            Unmatched.NOT_TOGETHER,
            "No pool has all of macOS, fast: linux lacks macOS.",
            id="the right label on the wrong OS",
        ),
        pytest.param(
            ["x64", "graviton"],
            [ARM_LABEL, FAST],
            Unmatched.NOT_TOGETHER,
            "No pool has all of x64, graviton: arm lacks x64.",
            id="the right label on the wrong architecture",
        ),
        pytest.param(
            ["ubuntu-latest"],
            [FAST],
            Unmatched.UNKNOWN_LABEL,
            "No pool has the label ubuntu-latest.",
            id="a runner of GitHub's own",
        ),
        pytest.param(
            ["self-hosted", "linux", "x64"],
            [FAST],
            Unmatched.NO_OWN_LABEL,
            "It asks for self-hosted, linux, x64, which is no pool's own label",
            id="words that any self-hosted runner has choose nothing",
        ),
        pytest.param([], [FAST], Unmatched.NO_OWN_LABEL, "It asks for nothing", id="no labels"),
        pytest.param(
            ["fast"],
            [BIG, a_pool("another", "fast", "small")],
            Unmatched.AMBIGUOUS,
            "Several pools serve fast: another, big.",
            id="two that would do: both are named",
        ),
        pytest.param(
            ["fast"],
            [a_pool("b", "fast"), a_pool("a", "Fast")],
            Unmatched.AMBIGUOUS,
            "Several pools serve fast: a, b.",
            id="two with the same labels before anybody marked the younger",
        ),
        pytest.param(
            ["fast"],
            [a_pool("new", "fast", conflict=True)],
            Unmatched.CONFLICT,
            "nothing is dispatched to it: pool old is older",
            id="the pool's own condition is quoted",
        ),
        pytest.param(
            ["fast"],
            [a_pool("was", "fast", deleting=True)],
            Unmatched.DELETING,
            "Pool was serves these labels, but is being deleted.",
            id="a pool that is being deleted takes no more",
        ),
        pytest.param(
            ["fast"],
            [a_pool("a", "fast", deleting=True), a_pool("b", "fast", conflict=True)],
            Unmatched.CONFLICT,
            "Pool b serves these labels",
            id="what can be mended is said first",
        ),
        pytest.param(
            ["fast"],
            [a_pool("a", "fast", resources=RunnerResources(cpu="many"))],
            Unmatched.BAD_SIZE,
            "Pool a serves these labels, but its size cannot be read",
            id="a size that cannot be read",
        ),
    ],
)
def test_no_pool_is_chosen(
    labels: list[str], pools: list[RunnerPool], reason: Unmatched, said: str
) -> None:
    none = choose(labels, pools)

    assert isinstance(none, NoPool), none
    assert none.reason is reason
    assert said in none.sentence
    assert none.fix


def test_many_names_are_cut_short() -> None:
    none = choose(["fast"], [a_pool(f"p{n}", "fast", f"x{n}") for n in range(9)])

    assert isinstance(none, NoPool)
    assert "p0, p1, p2, p3, p4 and 4 more" in none.sentence


WORDS = ["fast", "big", "xcode-26", "self-hosted", "Linux", "macOS", "arm64", "gpu"]


@given(
    st.lists(st.sampled_from(WORDS), max_size=4),
    st.permutations([FAST, MAC, BIG, ARM_LABEL, a_pool("new", "fast", conflict=True)]),
)
def test_the_order_of_pools_does_not_matter(labels: list[str], pools: list[RunnerPool]) -> None:
    assert choose(labels, pools) == choose(labels, [*reversed(pools)])


@given(st.lists(st.text(max_size=8), max_size=5))
def test_any_text_gets_an_answer(labels: list[str]) -> None:
    unknown = [label for label in labels if label.lower() not in {"fast", "self-hosted", "linux"}]
    answer = choose(labels, [FAST, MAC])

    assert not (unknown and isinstance(answer, Chosen))


@pytest.mark.parametrize(
    ("cpu", "memory", "size"),
    [
        pytest.param(4, "8Gi", Size(4, 8192), id="whole numbers"),
        pytest.param("1500m", "1000M", Size(2, 954), id="rounded up"),
        pytest.param("100m", "1k", Size(1, 1), id="never nothing"),
    ],
)
def test_the_size_is_that_of_the_pool(cpu: int | str, memory: str, size: Size) -> None:
    pool = a_pool("p", "fast", resources=RunnerResources(cpu=cpu, memory=memory))

    assert size_of(pool) == size
    chosen = choose(["fast"], [pool])
    assert isinstance(chosen, Chosen)
    assert (chosen.size, chosen.os) == (size, Os.LINUX)


@pytest.mark.parametrize(
    ("asked", "label", "pool", "registered"),
    [
        pytest.param(("fast",), "fast", FAST, ("fast",), id="no label twice"),
        pytest.param(
            ("self-hosted", "Linux", "FAST"),
            "FAST",
            BIG,
            ("FAST", "self-hosted", "Linux", "Big"),
            id="what the job asks for, as written, and the pool's",
        ),
        pytest.param((), "", FAST, ("fast",), id="a job without labels gets the pool's"),
        pytest.param(
            ("fast", "old"),
            "fast",
            FAST,
            ("fast", "old"),
            id="a label that the pool had when the job came",
        ),
    ],
)
def test_the_runner_is_registered_with_what_the_job_asks_for(
    asked: tuple[str, ...], label: str, pool: RunnerPool, registered: tuple[str, ...]
) -> None:
    spec = replace(a_job(1), labels=asked, label=label)

    assert runner_labels(spec, pool) == registered


@pytest.mark.parametrize(
    ("labels", "runner", "ours"),
    [
        pytest.param(["fast"], "", True, id="a pool serves its labels"),
        pytest.param(["ubuntu-latest"], "GitHub Actions 7", False, id="a hosted job is not ours"),
        pytest.param(["self-hosted"], "linux-x7k2p-0a1b2c3d", True, id="its runner has our name"),
        pytest.param(["self-hosted"], "linuxbox", False, id="a name that only begins alike"),
    ],
)
def test_whether_a_job_can_be_ours(labels: list[str], runner: str, ours: bool) -> None:  # noqa: FBT001 - a column
    assert concerns(labels, runner, [FAST, MAC]) is ours


def test_a_fork_is_told_which_pool_denies_it() -> None:
    denied = fork_denied(FAST)

    assert denied.reason is Unmatched.FORK_DENIED
    assert "pool linux takes no such jobs" in denied.sentence
    assert "spec.forks" in denied.fix
