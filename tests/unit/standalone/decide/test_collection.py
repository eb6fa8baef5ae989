"""When an object goes because its owner went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone.decide.collection import (
    FOREGROUND,
    ORPHAN,
    Action,
    Delete,
    DropFinalizer,
    KeepOwners,
    Key,
    Owner,
    Ownership,
    Thing,
    decide,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, LIVING, WAITING, UNKNOWN = (
    Ownership.ABSENT,
    Ownership.LIVING,
    Ownership.WAITING,
    Ownership.UNKNOWN,
)


def a_thing(
    name: str = "it",
    *,
    owners: Sequence[str] = (),
    blocks: bool = False,
    finalizers: Sequence[str] = (),
    deleting: bool = False,
) -> Thing:
    return Thing(
        key=Key("", "configmaps", "ci", name),
        uid=name,
        version="7",
        owners=tuple(Owner("v1", "ConfigMap", uid, uid, blocks) for uid in owners),
        finalizers=tuple(finalizers),
        deleting=deleting,
    )


def in_short(actions: tuple[Action, ...]) -> list[str]:
    words = []
    for action in actions:
        name = action.thing.key.name
        match action:
            case Delete(cascade=cascade):
                words.append(f"delete {name} {cascade}")
            case KeepOwners(owners=owners):
                words.append(f"{name} keeps {','.join(o.uid for o in owners) or 'nobody'}")
            case DropFinalizer(finalizer=finalizer):
                words.append(f"{name} drops {finalizer}")
    return words


@pytest.mark.parametrize(
    ("thing", "owners", "dependents", "expected"),
    [
        pytest.param(a_thing(), {}, [], [], id="an object without owners is left alone"),
        pytest.param(a_thing(owners=["a"]), {"a": LIVING}, [], [], id="a living owner keeps it"),
        pytest.param(
            a_thing(owners=["a"]),
            {"a": ABSENT},
            [],
            ["delete it Background"],
            id="its only owner is gone: it goes",
        ),
        pytest.param(
            a_thing(owners=["a", "b"]),
            {"a": ABSENT, "b": ABSENT},
            [],
            ["delete it Background"],
            id="all of its owners are gone: it goes",
        ),
        pytest.param(
            a_thing(owners=["a", "b"]),
            {"a": ABSENT, "b": LIVING},
            [],
            ["it keeps b"],
            id="one owner is gone and one lives: it forgets the one and stays",
        ),
        pytest.param(
            a_thing(owners=["a", "b"]),
            {"a": WAITING, "b": LIVING},
            [],
            ["it keeps b"],
            id="an owner waits for it but another keeps it: it lets go of the first",
        ),
        pytest.param(
            a_thing(owners=["a", "b"]),
            {"a": ABSENT, "b": UNKNOWN},
            [],
            [],
            id="an owner of an unknown kind keeps it: nobody can say that it is gone",
        ),
        pytest.param(
            a_thing(owners=["a"], blocks=True),
            {"a": WAITING},
            [],
            ["delete it Background"],
            id="an owner waits for it: it goes",
        ),
        pytest.param(
            a_thing(owners=["a"], blocks=True),
            {"a": WAITING},
            [a_thing("leaf", owners=["it"])],
            ["delete it Foreground"],
            id="an owner waits for it and it has dependents: they go first",
        ),
        pytest.param(
            a_thing(owners=["a"], blocks=True),
            {"a": WAITING},
            [a_thing("a", owners=["it"], deleting=True, finalizers=[FOREGROUND])],
            ["it keeps a"],
            id="objects that own each other in a circle stop blocking first",
        ),
        pytest.param(
            a_thing(owners=["a"]),
            {"a": WAITING},
            [a_thing("a", owners=["it"], deleting=True, finalizers=[FOREGROUND])],
            ["delete it Foreground"],
            id="a circle that no longer blocks is deleted",
        ),
        pytest.param(
            a_thing(owners=["a"], finalizers=[ORPHAN]),
            {"a": ABSENT},
            [],
            ["delete it Orphan"],
            id="a wish to orphan its own dependents is kept",
        ),
        pytest.param(
            a_thing(owners=["a"], deleting=True),
            {"a": ABSENT},
            [],
            [],
            id="it is on its way already",
        ),
        pytest.param(
            a_thing(deleting=True, finalizers=[FOREGROUND]),
            {},
            [],
            [f"it drops {FOREGROUND}"],
            id="an owner without dependents waits no longer",
        ),
        pytest.param(
            a_thing(deleting=True, finalizers=[FOREGROUND]),
            {},
            [a_thing("leaf", owners=["it"], blocks=True)],
            [],
            id="an owner waits while a dependent blocks its deletion",
        ),
        pytest.param(
            a_thing(deleting=True, finalizers=[FOREGROUND]),
            {},
            [a_thing("leaf", owners=["it"])],
            [f"it drops {FOREGROUND}"],
            id="an owner does not wait for a dependent that does not block",
        ),
        pytest.param(
            a_thing(deleting=True, finalizers=[ORPHAN]),
            {},
            [a_thing("z", owners=["it"]), a_thing("b", owners=["other", "it"])],
            ["b keeps other", "z keeps nobody", f"it drops {ORPHAN}"],
            id="orphans are cut loose before their owner goes",
        ),
    ],
)
def test_decide(
    thing: Thing, owners: dict[str, Ownership], dependents: list[Thing], expected: list[str]
) -> None:
    assert in_short(decide(thing, owners, dependents)) == expected


things = st.builds(
    a_thing,
    name=st.sampled_from(["it", "x", "y"]),
    owners=st.lists(st.sampled_from(["a", "b", "c"]), unique=True),
    blocks=st.booleans(),
    finalizers=st.lists(
        st.sampled_from([FOREGROUND, ORPHAN, "remuda.dev/vm-cleanup"]), unique=True
    ),
    deleting=st.booleans(),
)
ownerships = st.fixed_dictionaries({uid: st.sampled_from(Ownership) for uid in "abc"})


@given(things, ownerships, st.lists(things, max_size=3))
def test_nothing_with_a_living_or_unknown_owner_is_ever_deleted(
    thing: Thing, ownership: dict[str, Ownership], dependents: list[Thing]
) -> None:
    for action in decide(thing, ownership, dependents):
        if isinstance(action, Delete):
            states = {ownership[owner.uid] for owner in action.thing.owners}
            assert states
            assert states <= {ABSENT, WAITING}


@given(things, ownerships, st.permutations([a_thing(n, owners=["it"]) for n in "xyz"]))
def test_input_order_does_not_matter(
    thing: Thing, ownership: dict[str, Ownership], dependents: list[Thing]
) -> None:
    assert decide(thing, ownership, dependents) == decide(thing, ownership, reversed(dependents))


@given(things, ownerships, st.lists(things, max_size=3))
def test_a_foreign_finalizer_is_never_dropped(
    thing: Thing, ownership: dict[str, Ownership], dependents: list[Thing]
) -> None:
    dropped = [
        a.finalizer for a in decide(thing, ownership, dependents) if isinstance(a, DropFinalizer)
    ]
    assert set(dropped) <= {FOREGROUND, ORPHAN}
