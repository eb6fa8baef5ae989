from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone.patches import (
    MalformedPatch,
    PatchError,
    apply_json_patch,
    merge,
    parse_json_patch,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab~/-", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab~/-0", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab~/", max_size=2), JSON, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a value is replaced"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="a key is added"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes a key"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="and leaves the others"),
        pytest.param({}, {"a": None}, {}, id="what is not there is gone already"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a list becomes a text"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="a text becomes a list"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists do not merge"),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": None}}, {"a": {"b": 3}}, id="objects do"
        ),
        pytest.param({"a": 1}, {"a": {"b": None}}, {"a": {}}, id="a new object keeps no nulls"),
        pytest.param({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="at any depth"),
        pytest.param({"a": 1}, ["c"], ["c"], id="what is no object replaces all"),
        pytest.param([1], {"a": "b"}, {"a": "b"}, id="an object replaces what is none"),
        pytest.param({"n": 0}, {"n": 0}, {"n": 0}, id="a zero is a value"),
    ],
)
def test_merge_patches(target: Any, patch: Any, result: Any) -> None:  # noqa: ANN401 - JSON
    assert merge(target, patch) == result


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            changes[key] = difference(old, value)
        elif key not in before or old != value or type(old) is not type(value):
            changes[key] = value
    return changes


def without_nulls(tree: Any) -> Any:  # noqa: ANN401 - JSON
    """Merge patches cannot set null, nor tell it from absent."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return tree


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_can_turn_any_object_into_any_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    before, after = without_nulls(before), without_nulls(after)

    assert merge(before, difference(before, after)) == after


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_changes_nothing_that_it_was_given(
    target: dict[str, Any], patch: dict[str, Any]
) -> None:
    kept = copy.deepcopy((target, patch))

    once = merge(target, patch)

    assert (target, patch) == kept
    assert merge(once, patch) == once, "applying it again changes nothing"


def patched(document: Any, *operations: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return apply_json_patch(document, parse_json_patch(msgspec.json.encode(operations)))


@pytest.mark.parametrize(
    ("document", "operation", "result"),
    [
        pytest.param({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}, id="add a key"),
        pytest.param({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}, id="add over a key"),
        pytest.param([1, 3], {"op": "add", "path": "/1", "value": 2}, [1, 2, 3], id="insert"),
        pytest.param([1], {"op": "add", "path": "/1", "value": 2}, [1, 2], id="insert at the end"),
        pytest.param([1], {"op": "add", "path": "/-", "value": [2]}, [1, [2]], id="append"),
        pytest.param({"a": None}, {"op": "add", "path": "", "value": 1}, 1, id="add over everything"),
        pytest.param({"": 1}, {"op": "replace", "path": "/", "value": 2}, {"": 2}, id="the empty key"),
        pytest.param({"a": 1}, {"op": "remove", "path": "/a"}, {}, id="remove a key"),
        pytest.param([1, 2, 3], {"op": "remove", "path": "/1"}, [1, 3], id="remove an element"),
        pytest.param({"a": 1}, {"op": "replace", "path": "/a", "value": None}, {"a": None}, id="replace"),
        pytest.param({}, {"op": "replace", "path": "/a", "value": 1}, {"a": 1}, id="replace what is not there"),
        pytest.param({}, {"op": "test", "path": "/a", "value": None}, {}, id="what is absent is null"),
        pytest.param([1, 2], {"op": "replace", "path": "/0", "value": 9}, [9, 2], id="replace in a list"),
        pytest.param(
            {"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}, id="move"
        ),
        pytest.param([1, 2, 3], {"op": "move", "from": "/0", "path": "/2"}, [2, 3, 1], id="move along"),
        pytest.param({"a": 1}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": 1, "b": 1}, id="copy"),
        pytest.param({"a/b": 1}, {"op": "test", "path": "/a~1b", "value": 1}, {"a/b": 1}, id="slash"),
        pytest.param({"a~b": 1}, {"op": "test", "path": "/a~0b", "value": 1}, {"a~b": 1}, id="tilde"),
        pytest.param(
            {"~1": 1}, {"op": "test", "path": "/~01", "value": 1}, {"~1": 1}, id="an escaped escape"
        ),
        pytest.param({"a": 1}, {"op": "test", "path": "/a", "value": 1.0}, {"a": 1}, id="1 is 1.0"),
        pytest.param(
            {"a": {"b": [1]}}, {"op": "test", "path": "/a", "value": {"b": [1]}}, {"a": {"b": [1]}},
            id="trees are compared",
        ),
    ],
)  # fmt: skip
def test_json_patches(document: Any, operation: dict[str, Any], result: Any) -> None:  # noqa: ANN401 - JSON
    assert patched(document, operation) == result


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        pytest.param({"a": 1}, {"op": "test", "path": "/a", "value": 2}, id="a test that fails"),
        pytest.param({"a": 1}, {"op": "test", "path": "/a", "value": True}, id="1 is not true"),
        pytest.param({}, {"op": "remove", "path": "/a"}, id="remove what is not there"),
        pytest.param({}, {"op": "remove", "path": ""}, id="remove everything"),
        pytest.param({"a": 1}, {"op": "test", "path": "", "value": None}, id="test everything"),
        pytest.param(
            {}, {"op": "replace", "path": "/a/b", "value": 1}, id="replace in what is not there"
        ),
        pytest.param({}, {"op": "add", "path": "/a/b", "value": 1}, id="add without a parent"),
        pytest.param({"a": 1}, {"op": "add", "path": "/a/b", "value": 1}, id="add into a number"),
        pytest.param([1], {"op": "add", "path": "/2", "value": 1}, id="insert beyond the end"),
        pytest.param(
            [1], {"op": "add", "path": "/01", "value": 1}, id="an index with a leading zero"
        ),
        pytest.param([1], {"op": "add", "path": "/-1", "value": 1}, id="an index below zero"),
        pytest.param([1], {"op": "replace", "path": "/-", "value": 1}, id="replace what is beyond"),
        pytest.param(
            {"a": {}}, {"op": "move", "from": "/a", "path": "/a/b"}, id="move into itself"
        ),
        pytest.param({"a": 1}, {"op": "copy", "path": "/b"}, id="copy from nowhere"),
        pytest.param({"a": 1}, {"op": "add", "path": "/b"}, id="add nothing"),
        pytest.param({"a": 1}, {"op": "spin", "path": "/a"}, id="an unknown operation"),
        pytest.param({"a": 1}, {"op": "remove", "path": "a"}, id="a pointer without its slash"),
    ],
)
def test_json_patches_that_cannot_apply(document: Any, operation: dict[str, Any]) -> None:  # noqa: ANN401 - JSON
    kept = copy.deepcopy(document)

    with pytest.raises(PatchError):
        patched(document, {"op": "add", "path": "", "value": document}, operation)

    assert document == kept


@pytest.mark.parametrize("body", [b"{", b"{}", b'[{"path": "/a"}]', b'[{"op": 1, "path": ""}]'])
def test_what_is_no_json_patch(body: bytes) -> None:
    with pytest.raises(MalformedPatch):
        parse_json_patch(body)


@given(OBJECTS, JSON, st.sampled_from(["/zz", "/a/zz/zz"]))
def test_a_json_patch_is_all_or_nothing(document: dict[str, Any], value: Any, nowhere: str) -> None:  # noqa: ANN401 - JSON
    kept = copy.deepcopy(document)

    with pytest.raises(PatchError):
        patched(
            document,
            {"op": "add", "path": "/new", "value": value},
            {"op": "test", "path": "/new", "value": value},
            {"op": "remove", "path": nowhere},
        )

    assert document == kept


@given(OBJECTS, st.text("ab~/", min_size=1, max_size=3), JSON)
def test_what_is_added_is_found_and_removed_again(
    document: dict[str, Any],
    key: str,
    value: Any,  # noqa: ANN401 - JSON
) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")

    added = patched(
        document,
        {"op": "add", "path": pointer, "value": value},
        {"op": "test", "path": pointer, "value": value},
    )

    assert added == document | {key: value}
    without = {one: document[one] for one in document if one != key}
    assert patched(added, {"op": "remove", "path": pointer}) == without
