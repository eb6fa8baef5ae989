"""What ``remuda explain`` says of hosts, and how explanations are printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from remuda.cli.explain import text_of
from remuda.cli.explain_host import EVENTS_MAX, HostWhy, explain_host
from remuda.cli.host_changes import OnHost
from remuda.cli.listing import as_commands
from remuda.kube.core import Event, Node, NodeSpec, NodeStatus
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, RUNTIME, STARTS_FAILING, VM
from remuda.ports.api import Explanation

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
READY = Condition(type="Ready", status="True", reason="AgentReady", message="all is well")
NOBODY = OnHost((), (), ())


def a_host(
    *conditions: Condition, cordoned: bool = False, deleted: bool = False, vms: str = "2"
) -> Node:
    return Node(
        metadata=ObjectMeta(
            name="mini",
            labels={FLEET: "barn", RUNTIME: "tart"},
            deletion_timestamp=NOON if deleted else None,
        ),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(allocatable={VM: vms}, conditions=conditions or (READY,)),
    )


def a_condition(kind: str, status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason="Test", message=f"about {kind}.")


@pytest.mark.parametrize(
    ("node", "on_host", "why", "step"),
    [
        pytest.param(a_host(), NOBODY, HostWhy.TAKES_RUNNERS, "Nothing", id="a host with room"),
        pytest.param(
            a_host(), OnHost(("a",), ("b",), ()), HostWhy.FULL, "More hosts", id="a full host"
        ),
        pytest.param(
            a_host(),
            OnHost(("a",), (), ("b",)),
            HostWhy.FULL,
            "More hosts",
            id="who leaves takes room until gone",
        ),
        pytest.param(
            a_host(vms=""),
            OnHost(("a",), ("b",), ()),
            HostWhy.TAKES_RUNNERS,
            "Nothing",
            id="a host that does not say its room is never full",
        ),
        pytest.param(
            a_host(cordoned=True),
            OnHost(("a",), (), ()),
            HostWhy.DRAINING,
            "undrain mini",
            id="a cordoned host with runners is being drained",
        ),
        pytest.param(
            a_host(cordoned=True),
            NOBODY,
            HostWhy.DRAINED,
            "undrain mini",
            id="an empty one is drained",
        ),
        pytest.param(
            a_host(deleted=True), NOBODY, HostWhy.DELETED, "agent", id="its Node is being deleted"
        ),
        pytest.param(
            a_host(a_condition("Ready", "Unknown")),
            NOBODY,
            "not_ready",
            "agent runs",
            id="not ready",
        ),
        pytest.param(
            a_host(READY, a_condition("DiskPressure")),
            NOBODY,
            "disk_pressure",
            "Free what is short",
            id="its disk is full",
        ),
        pytest.param(
            a_host(READY, a_condition(STARTS_FAILING)),
            NOBODY,
            HostWhy.STARTS_FAILING,
            "log",
            id="nothing starts there",
        ),
        pytest.param(
            a_host(READY, a_condition(STARTS_FAILING, "False")),
            NOBODY,
            HostWhy.TAKES_RUNNERS,
            "Nothing",
            id="runners start there again",
        ),
    ],
)
def test_why_a_host_takes_runners_or_not(node: Node, on_host: OnHost, why: str, step: str) -> None:
    found = explain_host(node, on_host)

    assert found.why == why
    assert "mini" in found.sentence
    assert step in found.next_step
    assert any(fact.startswith("Its runners: ") for fact in found.evidence)
    assert "It is of fleet barn, runtime tart" in found.evidence


def test_conditions_and_the_last_events_are_evidence() -> None:
    events = [
        Event(
            metadata=ObjectMeta(name=f"e{n}"),
            reason="NodeReady" if n % 2 else "Rebooted",
            message=f"number {n}.",
            last_timestamp=NOON + timedelta(seconds=n),
        )
        for n in range(EVENTS_MAX + 2)
    ]

    found = explain_host(a_host(a_condition("Ready", "False")), NOBODY, reversed(events))

    assert "Ready is False: about Ready" in found.evidence
    last = found.evidence[-EVENTS_MAX:]
    assert last[0] == "2026-01-02 12:00:02 UTC Rebooted: number 2"
    assert last[-1] == "2026-01-02 12:00:06 UTC Rebooted: number 6"
    assert not any("number 1" in fact for fact in found.evidence)


def test_a_sentence_the_evidence_the_next_step() -> None:
    found = Explanation(
        subject="j",
        why="runners_starting",
        sentence="No runner is warm\x1b[2J.",
        evidence=("one", "two"),
        next_step="Wait.",
    )

    assert text_of(found) == [
        "No runner is warm [2J.",
        "",
        "Evidence:",
        "  - one",
        "  - two",
        "",
        "Next: Wait.",
    ]


def test_without_evidence_there_is_no_heading() -> None:
    found = Explanation(subject="j", why="w", sentence="It is so.", next_step="Nothing.")

    assert text_of(found) == ["It is so.", "", "Next: Nothing."]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (
            "Give fleet barn room: see its hosts with GET /api/v1/hosts.",
            "Give fleet barn room: see its hosts with remuda hosts.",
        ),
        (
            "ask why one does: GET /api/v1/jobs/{job_id}/explain.",
            "ask why one does: remuda explain job JOB.",
        ),
        (
            "GET /api/v1/explain/labels tells which pool serves them",
            "remuda explain labels tells which pool serves them",
        ),
        ("Wait.", "Wait."),
    ],
)
def test_calls_of_the_api_become_commands(said: str, read: str) -> None:
    assert as_commands(said) == read
