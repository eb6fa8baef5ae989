"""Label and field selectors, in lists and in watches, and lists in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.ports.kube import Query
from tests.support.manifests import CONFIG_MAP, a_config_map, a_pod

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.backends import Backend
    from tests.support.raw import Json, Raw
    from tests.support.space import Space


async def a_stable(raw: Raw, space: Space) -> None:
    horses = {
        "ada": {"herd": "north", "age": "3"},
        "bea": {"herd": "north", "age": "12"},
        "cid": {"herd": "south", "age": "7"},
        "dot": {"herd": ""},
        "eve": {},
    }
    for name, labels in horses.items():
        (await raw.post(space.path("configmaps"), a_config_map(name, labels=labels))).ok()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("herd=north", "ada bea", id="equal"),
        pytest.param("herd==north", "ada bea", id="equal, doubled"),
        pytest.param("herd!=north", "cid dot eve", id="unequal takes what lacks the label"),
        pytest.param("herd", "ada bea cid dot", id="exists"),
        pytest.param("!herd", "eve", id="does not exist"),
        pytest.param("herd in (north,south)", "ada bea cid", id="one of"),
        pytest.param("herd notin (north,south)", "dot eve", id="none of"),
        pytest.param("herd=", "dot", id="equal to the empty value"),
        pytest.param("herd in (,south)", "cid dot", id="one of, the empty value included"),
        pytest.param("age>5", "bea cid", id="greater"),
        pytest.param("age<7", "ada", id="less"),
        pytest.param("herd=north,age!=3", "bea", id="both"),
        pytest.param(" herd = north , age ", "ada bea", id="with spaces"),
        pytest.param("", "ada bea cid dot eve", id="nothing asked"),
    ],
)
async def test_a_label_selector_picks(
    kube: Kube, raw: Raw, space: Space, selector: str, names: str
) -> None:
    await a_stable(raw, space)

    listing = await kube.list(CONFIG_MAP, Query(namespace=space.name, labels=selector))

    assert [item.name for item in listing.items] == names.split()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(
            {"labelSelector": "herd in north"},
            "unable to parse requirement: found 'north' expected: '('",
            id="a set without parentheses",
        ),
        pytest.param(
            {"labelSelector": "a b=c"},
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id="two words",
        ),
        pytest.param(
            {"fieldSelector": "data.colour=bay"},
            '"data.colour" is not a known field selector: only "metadata.name", "metadata.namespace"',
            id="a field that cannot be selected by",
        ),
        pytest.param(
            {"fieldSelector": "bad"},
            "invalid selector: 'bad'; can't understand 'bad'",
            id="a field selector without an operator",
        ),
    ],
)
async def test_a_selector_is_refused(
    raw: Raw, space: Space, query: dict[str, str], message: str
) -> None:
    answer = await raw.get(space.path("configmaps"), **query)

    assert answer.refusal == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("metadata.name=b", "b", id="by name"),
        pytest.param("metadata.name!=b", "a c", id="by any other name"),
        pytest.param("spec.nodeName=mac-1", "a b", id="by node"),
        pytest.param("spec.nodeName=", "c", id="not bound yet"),
        pytest.param("status.phase=Pending", "a b c", id="by phase"),
        pytest.param("status.phase!=Pending", "", id="by another phase"),
        pytest.param("spec.nodeName=mac-1,metadata.name!=a", "b", id="by node and name"),
        pytest.param("spec.serviceAccountName=default", "a b c", id="by ServiceAccount"),
    ],
)
async def test_a_field_selector_picks_pods(
    raw: Raw, space: Space, selector: str, names: str
) -> None:
    for name, node in (("a", "mac-1"), ("b", "mac-1"), ("c", "")):
        (await raw.post(space.path("pods"), a_pod(name, nodeName=node))).ok()

    answer = await raw.get(space.path("pods"), fieldSelector=selector)

    assert [item["metadata"]["name"] for item in answer.ok()["items"]] == names.split()


async def test_a_watch_tells_what_enters_and_leaves_its_labels(raw: Raw, space: Space) -> None:
    path = space.path("configmaps", "mare")
    start = await raw.post(space.path("configmaps"), a_config_map("mare"))

    async with raw.watch(
        space.path("configmaps"), resourceVersion=start.version, labelSelector="herd=north"
    ) as events:
        (await raw.merge(path, {"data": {"unseen": "1"}})).ok()
        (await raw.merge(path, {"metadata": {"labels": {"herd": "north"}}})).ok()
        (await raw.merge(path, {"data": {"turn": "1"}})).ok()
        left = await raw.merge(path, {"metadata": {"labels": {"herd": "south"}}})
        (await raw.merge(path, {"data": {"turn": "2"}})).ok()
        (await raw.merge(path, {"metadata": {"labels": {"herd": "north"}}})).ok()
        (await raw.delete(path)).ok()
        seen = [await events.next() for _ in range(5)]

    told = [(e["type"], e["object"]["data"].get("turn")) for e in seen]
    assert told == [
        ("ADDED", None),
        ("MODIFIED", "1"),
        ("DELETED", "1"),
        ("ADDED", "2"),
        ("DELETED", "2"),
    ]
    gone = seen[2]["object"]["metadata"]
    assert gone["labels"] == {"herd": "north"}, "what left is shown as it was while it matched"
    assert gone["resourceVersion"] == left.version, "at the version at which it left"


async def test_a_watch_tells_what_enters_and_leaves_its_fields(raw: Raw, space: Space) -> None:
    created = await raw.post(space.path("pods"), a_pod("mare"))
    binding = {"metadata": {"name": "mare"}, "target": {"kind": "Node", "name": "mac-1"}}

    async with (
        raw.watch(
            space.path("pods"), resourceVersion=created.version, fieldSelector="spec.nodeName="
        ) as unbound,
        raw.watch(
            space.path("pods"), resourceVersion=created.version, fieldSelector="spec.nodeName=mac-1"
        ) as bound,
    ):
        (await raw.post(space.path("pods", "mare", "binding"), binding)).ok()

        assert (await unbound.next())["type"] == "DELETED"
        assert (await bound.next())["type"] == "ADDED"


async def test_a_list_is_in_order_of_names_across_namespaces(
    kube: Kube, raw: Raw, space: Space
) -> None:
    for name in ("b", "a", "a-b", "a.b", "c"):
        (
            await raw.post(
                space.path("configmaps"), a_config_map(name, labels={"test": space.name})
            )
        ).ok()

    listing = await kube.list(CONFIG_MAP, Query(labels=f"test={space.name}"))

    assert [item.name for item in listing.items] == ["a", "a-b", "a.b", "b", "c"]


async def test_pages_show_one_moment_while_writes_go_on(raw: Raw, space: Space) -> None:
    for number in range(10):
        (await raw.post(space.path("configmaps"), a_config_map(f"m{number}"))).ok()

    pages: list[Json] = [(await raw.get(space.path("configmaps"), limit="3")).ok()]
    while token := pages[-1]["metadata"].get("continue"):
        turn = len(pages)
        (await raw.delete(space.path("configmaps", f"m{10 - turn}"))).ok()
        (await raw.post(space.path("configmaps"), a_config_map(f"n{turn}"))).ok()
        (await raw.merge(space.path("configmaps", f"m{3 + turn}"), {"data": {"late": "1"}})).ok()
        page = await raw.get(space.path("configmaps"), limit="3", **{"continue": token})
        pages.append(page.ok())

    names = [item["metadata"]["name"] for page in pages for item in page["items"]]
    assert names == [f"m{number}" for number in range(10)]
    assert not any("late" in item["data"] for page in pages for item in page["items"])
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert [page["metadata"].get("remainingItemCount") for page in pages] == [7, 4, 1, None]


async def test_a_page_from_too_long_ago_is_expired(
    raw: Raw, space: Space, backend: Backend
) -> None:
    event = {"involvedObject": {"kind": "Pod", "name": "mare", "namespace": space.name}}
    for name in ("a", "b", "c"):
        (await raw.post(space.path("events"), {"metadata": {"name": name}, **event})).ok()
    token = (await raw.get(space.path("events"), limit="1")).ok()["metadata"]["continue"]
    (await raw.post(space.path("events"), {"metadata": {"name": "d"}, **event})).ok()
    await backend.forget_history()

    answer = await raw.get(space.path("events"), limit="1", **{"continue": token})

    assert answer.status == 410
    assert answer.body["reason"] == "Expired"


async def test_a_page_token_and_a_version_exclude_each_other(raw: Raw, space: Space) -> None:
    for name in ("a", "b"):
        (await raw.post(space.path("configmaps"), a_config_map(name))).ok()
    page = (await raw.get(space.path("configmaps"), limit="1")).ok()
    token = page["metadata"]["continue"]

    both = await raw.get(
        space.path("configmaps"), limit="1", resourceVersion="5", **{"continue": token}
    )
    nonsense = await raw.get(space.path("configmaps"), **{"continue": "zzz"})

    message = "specifying resource version is not allowed when using continue"
    assert both.refusal == (400, "BadRequest", message)
    assert nonsense.status == 400
    assert nonsense.body["message"].startswith(
        "invalid continue token: continue key is not valid: "
    )


async def test_a_version_from_the_future_is_not_answered(raw: Raw, space: Space) -> None:
    answer = await raw.get(space.path("configmaps"), resourceVersion="9999999999")

    assert answer.status == 504
    assert answer.body["reason"] == "Timeout"
    assert answer.causes == [("", "ResourceVersionTooLarge", "Too large resource version")]
