from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.control.cache import Cache, Key, by_label, by_node, by_owner_uid, key_of
from remuda.kube.core import Pod, PodSpec
from remuda.kube.meta import ObjectMeta, OwnerReference


def a_pod(
    name: str, version: int = 1, *, pool: str = "mac", node: str = "", owner: str = ""
) -> Pod:
    owners = (OwnerReference(api_version="v1", kind="X", name="x", uid=owner),) if owner else ()
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ci",
            uid=f"uid-{name}",
            resource_version=str(version),
            labels={"pool": pool} if pool else {},
            owner_references=owners,
        ),
        spec=PodSpec(node_name=node),
    )


def a_cache() -> Cache[Pod]:
    cache: Cache[Pod] = Cache()
    cache.index("pool", by_label("pool"))
    cache.index("node", by_node)
    cache.index("owner", by_owner_uid)
    return cache


def test_the_same_version_of_the_same_object_is_no_news() -> None:
    cache = a_cache()

    assert cache.put(a_pod("a"))
    assert not cache.put(a_pod("a"))
    assert cache.put(a_pod("a", 2))


def test_an_index_that_comes_late_covers_what_is_there() -> None:
    cache: Cache[Pod] = Cache()
    cache.put(a_pod("a", pool="linux"))
    cache.index("pool", by_label("pool"))

    assert cache.found("pool", "linux") == (a_pod("a", pool="linux"),)


def test_an_object_without_the_label_is_under_no_value() -> None:
    cache = a_cache()
    cache.put(a_pod("a", pool=""))

    assert cache.found("pool", "") == ()


def test_a_replacement_names_what_differs_and_nothing_else() -> None:
    cache = a_cache()
    for pod in (a_pod("same"), a_pod("changed"), a_pod("gone")):
        cache.put(pod)
    now = [a_pod("same"), a_pod("changed", 5), a_pod("new")]

    assert [key.name for key in cache.replace({key_of(p): p for p in now})] == [
        "changed",
        "gone",
        "new",
    ]
    assert [pod.name for pod in cache.all()] == ["changed", "new", "same"]


pods = st.builds(
    a_pod,
    st.sampled_from("abcd"),
    st.integers(1, 50),
    pool=st.sampled_from(["", "mac", "linux"]),
    node=st.sampled_from(["", "mini-1", "mini-2"]),
    owner=st.sampled_from(["", "o1", "o2"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pods),
        st.tuples(st.just("drop"), pods),
        st.tuples(st.just("replace"), st.lists(pods, max_size=4)),
    ),
    max_size=30,
)


@given(steps)
def test_every_index_always_agrees_with_a_search_through_everything(
    history: list[tuple[str, Pod | list[Pod]]],
) -> None:
    cache = a_cache()
    for step, what in history:
        if isinstance(what, list):
            cache.replace({key_of(pod): pod for pod in what})
        elif step == "put":
            cache.put(what)
        else:
            cache.drop(key_of(what))

    for name, function in (("pool", by_label("pool")), ("owner", by_owner_uid), ("node", by_node)):
        for value in ("", "mac", "linux", "o1", "o2", "mini-1", "mini-2"):
            expected = tuple(pod for pod in cache.all() if value in tuple(function(pod)))
            assert cache.found(name, value) == expected


def test_keys_read_as_people_write_them() -> None:
    assert str(Key("ci", "a")) == "ci/a"
    assert str(Key("", "mini-1")) == "mini-1"
