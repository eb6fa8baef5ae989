from __future__ import annotations

import copy
from typing import Any

import pytest

from remuda.kube.pod_placement import PREFERRED, REQUIRED, Placement, placed

Json = dict[str, Any]
ZONE: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NAMED: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
WISH: Json = {"weight": 1, "preference": ZONE}


def not_on(*hosts: str) -> list[Json]:
    return [{"key": "metadata.name", "operator": "NotIn", "values": [host]} for host in hosts]


def a_spec(*terms: Json, wishes: list[Json] | None = None) -> Json:
    node: Json = {REQUIRED: {"nodeSelectorTerms": list(terms)}} if terms else {}
    if wishes is not None:
        node[PREFERRED] = wishes
    return {"affinity": {"nodeAffinity": node, "podAffinity": {"kept": True}}} if node else {}


def terms_of(spec: Json) -> list[Json]:
    found: list[Json] = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [{"matchFields": not_on("a", "b")}], id="a Pod without terms gets one"),
        pytest.param(
            [ZONE, NAMED],
            [
                {**ZONE, "matchFields": not_on("a", "b")},
                {"matchFields": [*NAMED["matchFields"], *not_on("a", "b")]},
            ],
            id="every alternative is narrowed",
        ),
        pytest.param(
            [{}, {"matchExpressions": []}, ZONE],
            [{}, {"matchExpressions": []}, {**ZONE, "matchFields": not_on("a", "b")}],
            id="a term that matches no host does not begin to match some",
        ),
    ],
)
def test_avoided_hosts(before: list[Json], after: list[Json]) -> None:
    spec = placed(a_spec(*before), Placement(avoid=("b", "a", "b")))

    assert terms_of(spec) == after


def test_a_preferred_host_is_one_more_wish() -> None:
    spec = placed(a_spec(ZONE, wishes=[WISH]), Placement(prefer="a"))

    [first, second] = spec["affinity"]["nodeAffinity"][PREFERRED]
    assert first == WISH
    assert second["weight"] == 100
    assert second["preference"] == {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    }
    assert terms_of(spec) == [ZONE]


def test_a_shunned_host_is_left_to_those_who_find_no_other_room() -> None:
    spec = placed(a_spec(ZONE, wishes=[WISH]), Placement(avoid=("c",), shun=("b", "a", "c")))

    [first, *wishes] = spec["affinity"]["nodeAffinity"][PREFERRED]
    assert first == WISH
    assert [wish["preference"] for wish in wishes] == [{"matchFields": not_on("a", "b")}] * 2
    assert sum(wish["weight"] for wish in wishes) > 100, "more than the image on a host"
    assert terms_of(spec) == [{**ZONE, "matchFields": not_on("c")}]


def test_a_runner_that_probes_a_host_may_go_there_though_others_avoid_it() -> None:
    spec = placed({}, Placement(avoid=("a", "b"), prefer="a"))

    assert terms_of(spec) == [{"matchFields": not_on("b")}]


def test_the_template_itself_is_never_changed() -> None:
    spec = a_spec(ZONE, wishes=[WISH])
    before = copy.deepcopy(spec)

    changed = placed(spec, Placement(("a",), "b"))

    assert spec == before
    assert changed["affinity"]["podAffinity"] == {"kept": True}
    assert placed(spec, Placement()) is spec
