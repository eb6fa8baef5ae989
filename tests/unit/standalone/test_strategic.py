from __future__ import annotations

import copy
from typing import Any

import pytest

from remuda.standalone.kinds import BUILT_IN
from remuda.standalone.patches import PatchError
from remuda.standalone.strategic import strategic_merge

KINDS = {kind.kind: kind for kind in BUILT_IN}


def pod(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"name": "mare", "finalizers": ["a.io/a", "b.io/b"]}, "spec": spec}


TWO: list[dict[str, Any]] = [
    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
    {"name": "b", "image": "2"},
]


def containers(*changes: dict[str, Any], **directives: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"spec": {"containers": list(changes)} | directives}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        pytest.param(
            containers({"name": "b", "image": "3"}), [TWO[0], {"name": "b", "image": "3"}],
            id="an element is found by its key",
        ),
        pytest.param(
            containers({"name": "c", "image": "3"}), [*TWO, {"name": "c", "image": "3"}],
            id="a new element comes last",
        ),
        pytest.param(
            containers({"name": "a", "$patch": "delete"}), [TWO[1]], id="an element is taken away"
        ),
        pytest.param(
            containers({"name": "z", "$patch": "delete"}), TWO, id="taking nothing away is fine"
        ),
        pytest.param(
            containers({"$patch": "replace"}, {"name": "z"}), [{"name": "z"}], id="the list is replaced"
        ),
        pytest.param(
            containers({"name": "a", "image": None}), [{k: TWO[0][k] for k in ("name", "env")}, TWO[1]],
            id="null removes a key of an element",
        ),
        pytest.param(
            containers({"name": "a", "env": [{"name": "Y", "value": "9"}]}),
            [TWO[0] | {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "9"}]}, TWO[1]],
            id="lists inside lists merge as well",
        ),
        pytest.param(
            containers({"name": "b"}, {"name": "a"},
                       **{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            [TWO[1], TWO[0]],
            id="the order is set",
        ),
        pytest.param(
            {"spec": {"$setElementOrder/containers": [{"name": "b"}]}}, TWO,
            id="an element that only the server knows stays before what it preceded",
        ),
    ],
)  # fmt: skip
def test_lists_with_a_key(patch: dict[str, Any], result: list[Any]) -> None:
    before = pod(containers=TWO)
    kept = copy.deepcopy(before)

    after = strategic_merge(before, patch, KINDS["Pod"])

    assert after["spec"]["containers"] == result
    assert before == kept, "what was given is not changed"


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        pytest.param({"finalizers": ["c.io/c"]}, ["a.io/a", "b.io/b", "c.io/c"], id="one is added"),
        pytest.param({"finalizers": ["a.io/a"]}, ["a.io/a", "b.io/b"], id="none is doubled"),
        pytest.param(
            {"$deleteFromPrimitiveList/finalizers": ["a.io/a"]}, ["b.io/b"], id="one is taken away"
        ),
        pytest.param(
            {"finalizers": ["c.io/c"], "$deleteFromPrimitiveList/finalizers": ["a.io/a"],
             "$setElementOrder/finalizers": ["c.io/c", "b.io/b"]},
            ["c.io/c", "b.io/b"],
            id="added, taken away and ordered at once",
        ),
    ],
)  # fmt: skip
def test_lists_of_words(patch: dict[str, Any], result: list[str]) -> None:
    after = strategic_merge(pod(), {"metadata": patch}, KINDS["Pod"])

    assert after["metadata"]["finalizers"] == result


def test_a_list_without_a_key_is_replaced() -> None:
    before = pod(tolerations=[{"key": "a"}])

    after = strategic_merge(before, {"spec": {"tolerations": [{"key": "b"}]}}, KINDS["Pod"])

    assert after["spec"]["tolerations"] == [{"key": "b"}]


def test_conditions_merge_by_type_in_nodes_and_pods() -> None:
    before = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Other", "status": "False"}]}}

    for kind in ("Pod", "Node", "Namespace"):
        after = strategic_merge(before, patch, KINDS[kind])
        assert [one["type"] for one in after["status"]["conditions"]] == ["Ready", "Other"]


def test_retained_keys_drop_the_others() -> None:
    before = pod(volumes=[{"name": "v", "emptyDir": {}}])
    change = {"name": "v", "secret": {"secretName": "s"}, "$retainKeys": ["name", "secret"]}

    after = strategic_merge(before, {"spec": {"volumes": [change]}}, KINDS["Pod"])

    assert after["spec"]["volumes"] == [{"name": "v", "secret": {"secretName": "s"}}]


def test_an_object_can_be_replaced_or_deleted_whole() -> None:
    before = pod(securityContext={"runAsUser": 1}, nodeSelector={"a": "b"})
    patch = {
        "spec": {
            "securityContext": {"$patch": "replace", "fsGroup": 2},
            "nodeSelector": {"$patch": "delete"},
        }
    }

    after = strategic_merge(before, patch, KINDS["Pod"])

    assert after["spec"] == {"securityContext": {"fsGroup": 2}}


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"containers": [{"image": "x"}]}}, id="an element without its key"),
        pytest.param({"spec": {"containers": ["x"]}}, id="an element that is no object"),
        pytest.param({"spec": {"$patch": "paint"}}, id="an unknown directive"),
    ],
)
def test_what_cannot_be_understood_is_refused(patch: dict[str, Any]) -> None:
    with pytest.raises(PatchError):
        strategic_merge(pod(containers=TWO), patch, KINDS["Pod"])
