"""Where Pods go, and what a Pod that goes nowhere is told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.core import NodeSelectorTerm, SelectorRequirement, Taint, Toleration
from remuda.standalone.decide.scheduling import Action, Ask, Bind, Place, Wait, decide

VM = "remuda.dev/vm"
VM_HOST = Taint(key="remuda.dev/vm-host", effect="NoSchedule")
TOLERATES_VM_HOST = Toleration(key="remuda.dev/vm-host", operator="Exists")


def an_ask(name: str = "pod", **given: object) -> Ask:
    return Ask(namespace="ci", name=name, **given)  # type: ignore[arg-type] # a builder


def a_place(name: str = "mini", **given: object) -> Place:
    room = {"pods": 10, "cpu": 4000, "memory": 8 << 30, VM: 2}
    return Place(**{"name": name, "allocatable": room, **given})  # type: ignore[arg-type] # a builder


def needs(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(SelectorRequirement(key=key, operator=operator, values=values),)
    )


def named(*names: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_fields=(SelectorRequirement(key="metadata.name", operator="In", values=names),)
    )


def in_short(actions: tuple[Action, ...]) -> dict[str, str]:
    return {a.ask.name: a.node if isinstance(a, Bind) else f"waits: {a.why}" for a in actions}


@pytest.mark.parametrize(
    ("ask", "places", "expected"),
    [
        pytest.param(
            an_ask(), [], "waits: no nodes available to schedule pods", id="there are no Nodes"
        ),
        pytest.param(an_ask(), [a_place()], "mini", id="a Pod without wishes goes anywhere"),
        pytest.param(
            an_ask(requests={VM: 1}), [a_place(used={VM: 1})], "mini", id="the last slot is taken"
        ),
        pytest.param(
            an_ask(requests={VM: 1}),
            [a_place("a", used={VM: 2}), a_place("b", used={VM: 2})],
            "waits: 0/2 nodes are available: 2 Insufficient remuda.dev/vm.",
            id="a third VM waits",
        ),
        pytest.param(
            an_ask(requests={VM: 1, "cpu": 5000, "memory": 9 << 30}),
            [a_place(used={VM: 2})],
            "waits: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
            "1 Insufficient remuda.dev/vm.",
            id="every resource that is short is named",
        ),
        pytest.param(
            an_ask(requests={"other.io/x": 1}),
            [a_place()],
            "waits: 0/1 nodes are available: 1 Insufficient other.io/x.",
            id="a Node that does not know the resource has none of it",
        ),
        pytest.param(
            an_ask(requests={"other.io/x": 0}),
            [a_place()],
            "mini",
            id="none of an unknown resource can be had anywhere",
        ),
        pytest.param(
            an_ask(),
            [a_place(pod_count=10)],
            "waits: 0/1 nodes are available: 1 Too many pods.",
            id="a Node takes no more Pods than it says",
        ),
        pytest.param(
            an_ask(requests={"cpu": 9000}),
            [a_place(taints=(VM_HOST,))],
            "waits: 0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="an untolerated taint is the first and only reason",
        ),
        pytest.param(
            an_ask(tolerations=(TOLERATES_VM_HOST,)),
            [a_place(taints=(VM_HOST,))],
            "mini",
            id="a tolerated taint lets it in",
        ),
        pytest.param(
            an_ask(tolerations=(Toleration(key="k", operator="Equal", value="a"),)),
            [a_place(taints=(Taint(key="k", value="b", effect="NoExecute"),))],
            "waits: 0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="a toleration of another value does not help",
        ),
        pytest.param(
            an_ask(tolerations=(Toleration(key="k", operator="Exists", effect="NoSchedule"),)),
            [a_place(taints=(Taint(key="k", effect="NoExecute"),))],
            "waits: 0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="a toleration of another effect does not help",
        ),
        pytest.param(
            an_ask(tolerations=(Toleration(operator="Exists"),)),
            [a_place(taints=(VM_HOST,), unschedulable=True)],
            "mini",
            id="a toleration of everything opens even a cordoned Node",
        ),
        pytest.param(
            an_ask(),
            [a_place("a", unschedulable=True), a_place("b", used={"cpu": 4000}, taints=(VM_HOST,))],
            "waits: 0/2 nodes are available: 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable.",
            id="reasons are counted per Node",
        ),
        pytest.param(
            an_ask(node_selector={"os": "darwin"}),
            [a_place("a", labels={"os": "linux"}), a_place("b", labels={"os": "darwin"})],
            "b",
            id="a node selector picks its Node",
        ),
        pytest.param(
            an_ask(node_selector={"os": "darwin"}),
            [a_place()],
            "waits: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            id="a node selector that fits nowhere",
        ),
        pytest.param(
            an_ask(required=(named("b"),)),
            [a_place("a"), a_place("b")],
            "b",
            id="a required Node by name",
        ),
        pytest.param(
            an_ask(required=(named("b"),)),
            [a_place("a"), a_place("b", taints=(VM_HOST,))],
            "waits: 0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], "
            "1 node(s) had untolerated taint(s).",
            id="a required Node by name that will not have it",
        ),
        pytest.param(
            an_ask(
                required=(
                    NodeSelectorTerm(
                        match_fields=named("a").match_fields + named("b").match_fields
                    ),
                )
            ),
            [a_place("a"), a_place("b")],
            "waits: 0/2 nodes are available: pod affinity terms conflict.",
            id="two names at once are nobody's",
        ),
        pytest.param(
            an_ask(required=(NodeSelectorTerm(),)),
            [a_place()],
            "waits: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            id="an empty term selects nothing",
        ),
        pytest.param(
            an_ask(preferred=((10, needs("image", "Exists")),)),
            [a_place("a"), a_place("b", labels={"image": "ready"}, used={"cpu": 1000})],
            "b",
            id="a preferred Node wins over an emptier one",
        ),
        pytest.param(
            an_ask(preferred=((1, needs("x", "Exists")), (50, needs("y", "Exists")))),
            [a_place("a", labels={"x": ""}), a_place("b", labels={"y": ""})],
            "b",
            id="the heavier preference wins",
        ),
        pytest.param(
            an_ask(),
            [a_place("a", taints=(Taint(key="k", effect="PreferNoSchedule"),)), a_place("b", used={"cpu": 3000})],
            "b",
            id="a Node that would rather not is avoided",
        ),
        pytest.param(
            an_ask(),
            [a_place("a", taints=(Taint(key="k", effect="PreferNoSchedule"),))],
            "a",
            id="a Node that would rather not is better than none",
        ),
        pytest.param(
            an_ask(requests={VM: 1}),
            [a_place("a", used={VM: 1}), a_place("b")],
            "b",
            id="the emptier Node wins",
        ),
        pytest.param(
            an_ask(), [a_place("b"), a_place("a")], "a", id="of equals the first by name"
        ),
    ],
)  # fmt: skip
def test_one_pod(ask: Ask, places: list[Place], expected: str) -> None:
    assert in_short(decide([ask], places)) == {"pod": expected}


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        pytest.param(needs("n", "In", "5", "6"), True, id="In: one of the values"),
        pytest.param(needs("n", "In", "6"), False, id="In: none of the values"),
        pytest.param(needs("gone", "In", "5"), False, id="In: an absent label is in no set"),
        pytest.param(needs("n", "NotIn", "5"), False, id="NotIn: one of the values"),
        pytest.param(needs("gone", "NotIn", "5"), True, id="NotIn: an absent label is in no set"),
        pytest.param(needs("n", "Exists"), True, id="Exists: there"),
        pytest.param(needs("gone", "Exists"), False, id="Exists: absent"),
        pytest.param(needs("gone", "DoesNotExist"), True, id="DoesNotExist: absent"),
        pytest.param(needs("n", "DoesNotExist"), False, id="DoesNotExist: there"),
        pytest.param(needs("n", "Gt", "4"), True, id="Gt: five is more than four"),
        pytest.param(needs("n", "Gt", "5"), False, id="Gt: five is not more than five"),
        pytest.param(needs("n", "Lt", "6"), True, id="Lt: five is less than six"),
        pytest.param(needs("n", "Lt", "5"), False, id="Lt: five is not less than five"),
        pytest.param(needs("word", "Gt", "4"), False, id="Gt: a word is no number"),
        pytest.param(needs("gone", "Lt", "4"), False, id="Lt: an absent label is no number"),
        pytest.param(needs("n", "Near", "5"), False, id="an unknown operator matches nothing"),
    ],
)
def test_required_terms(term: NodeSelectorTerm, *, fits: bool) -> None:
    (action,) = decide([an_ask(required=(term,))], [a_place(labels={"n": "5", "word": "x"})])
    assert isinstance(action, Bind) is fits


def test_terms_are_alternatives_and_requirements_add_up() -> None:
    both = NodeSelectorTerm(
        match_expressions=(
            SelectorRequirement(key="a", operator="Exists"),
            SelectorRequirement(key="b", operator="Exists"),
        )
    )
    ask = an_ask(required=(both, needs("c", "Exists")))
    places = [a_place("1", labels={"a": ""}), a_place("2", labels={"c": ""})]
    assert in_short(decide([ask], places)) == {"pod": "2"}


def test_pods_are_spread_and_each_placement_counts_at_once() -> None:
    asks = [an_ask(f"p{n}", requests={VM: 1}) for n in range(5)]
    placed = in_short(decide(asks, [a_place("a"), a_place("b")]))
    assert placed == {
        "p0": "a",
        "p1": "b",
        "p2": "a",
        "p3": "b",
        "p4": "waits: 0/2 nodes are available: 2 Insufficient remuda.dev/vm.",
    }


def test_the_important_go_first_then_the_old() -> None:
    asks = [
        an_ask("young", requests={VM: 1}, created="2026-01-02T00:00:00Z"),
        an_ask("old", requests={VM: 1}, created="2026-01-01T00:00:00Z"),
        an_ask("important", requests={VM: 1}, created="2026-01-03T00:00:00Z", priority=1),
    ]
    actions = decide(asks, [a_place()])
    assert [a.ask.name for a in actions if isinstance(a, Bind)] == ["important", "old"]


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", VM]), st.integers(0, 5))
asks = st.lists(
    st.builds(
        an_ask,
        name=st.sampled_from([f"p{n}" for n in range(20)]),
        requests=amounts,
        priority=st.integers(0, 2),
    ),
    max_size=12,
    unique_by=lambda a: a.name,
)
places = st.lists(
    st.builds(
        a_place,
        name=st.sampled_from(["a", "b", "c"]),
        allocatable=st.fixed_dictionaries(
            {"pods": st.integers(0, 4), "cpu": st.integers(0, 8), VM: st.integers(0, 2)}
        ),
        used=amounts,
        pod_count=st.integers(0, 3),
    ),
    max_size=3,
    unique_by=lambda p: p.name,
)


@given(asks, places)
def test_no_placement_exceeds_what_a_node_has_free(asks: list[Ask], places: list[Place]) -> None:
    nodes = {p.name: p for p in places}
    taken = {p.name: Counter(p.used) for p in places}
    count = {p.name: p.pod_count for p in places}
    for action in decide(asks, places):
        if isinstance(action, Bind):
            room = nodes[action.node].allocatable
            count[action.node] += 1
            assert count[action.node] <= room["pods"]
            for resource, amount in action.ask.requests.items():
                taken[action.node][resource] += amount
                assert not amount or taken[action.node][resource] <= room.get(resource, 0)


@given(asks, places)
def test_every_pod_is_answered_once_and_a_wait_accounts_for_every_node(
    asks: list[Ask], places: list[Place]
) -> None:
    actions = decide(asks, places)
    assert sorted(a.ask.name for a in actions) == sorted(a.name for a in asks)
    for action in actions:
        if isinstance(action, Wait) and places:
            assert action.why.startswith(f"0/{len(places)} nodes are available: ")


@given(st.data(), asks, places)
def test_input_order_does_not_matter(
    data: st.DataObject, asks: list[Ask], places: list[Place]
) -> None:
    shuffled = decide(data.draw(st.permutations(asks)), data.draw(st.permutations(places)))
    assert shuffled == decide(asks, places)
