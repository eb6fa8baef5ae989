"""How a Namespace is furnished and emptied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone.decide.collection import Key
from remuda.standalone.decide.namespace_life import (
    AddAccount,
    Content,
    DeleteContent,
    Finish,
    Space,
    decide,
)


def a_pod(name: str, *, deleting: bool = False) -> Content:
    return Content(Key("", "pods", "ci", name), uid=name, deleting=deleting)


LIVING = Space("ci", finalizers=("kubernetes",), has_account=True)
ENDING = Space("ci", terminating=True, finalizers=("kubernetes",))


@pytest.mark.parametrize(
    ("space", "contents", "expected"),
    [
        pytest.param(LIVING, [a_pod("a")], [], id="a furnished namespace is left alone"),
        pytest.param(
            Space("ci"), [], ["account"], id="a namespace without a default account gets one"
        ),
        pytest.param(
            ENDING,
            [a_pod("b"), a_pod("a")],
            ["delete a", "delete b"],
            id="what is in an ending namespace goes first",
        ),
        pytest.param(
            ENDING,
            [a_pod("a", deleting=True)],
            [],
            id="what is going already is waited for",
        ),
        pytest.param(ENDING, [], ["finish, keep "], id="an empty namespace goes"),
        pytest.param(
            Space("ci", terminating=True, finalizers=("kubernetes", "mine")),
            [],
            ["finish, keep mine"],
            id="a finalizer of somebody else stays",
        ),
        pytest.param(
            Space("ci", terminating=True, finalizers=("mine",)), [], [], id="our part is done"
        ),
        pytest.param(
            Space("ci", terminating=True), [], [], id="an ending namespace gets no account"
        ),
    ],
)
def test_decide(space: Space, contents: list[Content], expected: list[str]) -> None:
    words = []
    for action in decide(space, contents):
        match action:
            case AddAccount():
                words.append("account")
            case DeleteContent(content=content):
                words.append(f"delete {content.key.name}")
            case Finish(finalizers=finalizers):
                words.append(f"finish, keep {','.join(finalizers)}")
    assert words == expected


@given(
    st.builds(
        Space,
        st.just("ci"),
        st.booleans(),
        st.sampled_from([(), ("kubernetes",), ("kubernetes", "x")]),
        st.booleans(),
    ),
    st.lists(st.builds(a_pod, st.sampled_from("abc"), deleting=st.booleans())),
)
def test_nothing_is_deleted_from_a_living_namespace_and_none_is_finished_before_it_is_empty(
    space: Space, contents: list[Content]
) -> None:
    for action in decide(space, contents):
        match action:
            case DeleteContent():
                assert space.terminating
            case Finish():
                assert contents == []
            case AddAccount():
                assert not space.terminating
