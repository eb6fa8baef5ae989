from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remuda.standalone.errors import StatusError
from remuda.standalone.rest import WriteOptions
from tests.unit.standalone.worlds import CONFIG, NOON, Plane, config, kind, pod

PODS, NODES, LEASES = kind("pods"), kind("nodes"), kind("leases")
MERGE = "application/merge-patch+json"
DRY_RUN = WriteOptions(dry_run=True)


@pytest.fixture
async def plane() -> Plane:
    return await Plane().settle_in()


def crd(**version: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "minimum": 0, "default": 3}},
            },
            "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
        },
    }
    names = {"plural": "foals", "kind": "Foal", "singular": "foal", "listKind": "FoalList"}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "foals.herd.test"},
        "spec": {
            "group": "herd.test",
            "scope": "Namespaced",
            "names": names,
            "versions": [one | {"subresources": {"status": {}}} | version],
        },
    }


def foal(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"apiVersion": "herd.test/v1", "kind": "Foal", "metadata": {"name": name}, "spec": spec}


async def with_foals(plane: Plane) -> Any:  # noqa: ANN401 - a ResourceKind
    await plane.rest.create(kind("customresourcedefinitions"), "", crd())
    found = plane.rest.kinds.find("herd.test", "v1", "foals")
    assert found is not None
    return found


# --- Create and change ---------------------------------------------------------------------------------------------


async def test_a_new_object_gets_its_identity_from_the_server(plane: Plane) -> None:
    sent = config("mare", data={"a": "b"})
    sent["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": None,
        "managedFields": [],
        "labels": {},
    }

    stored = await plane.rest.create(CONFIG, "herd", sent)

    assert stored["metadata"] == {
        "name": "mare",
        "namespace": "herd",
        "uid": stored["metadata"]["uid"],
        "creationTimestamp": "2026-11-15T12:00:00Z",
        "resourceVersion": "4",
    }
    assert stored["metadata"]["uid"] != "mine"
    assert sent["metadata"]["uid"] == "mine", "what the caller holds is not changed"


async def test_a_generated_name_avoids_those_that_are_taken(plane: Plane) -> None:
    plane.ids.count = 40
    await plane.rest.create(CONFIG, "herd", config("m-00042"))
    plane.ids.count = 41

    stored = await plane.rest.create(CONFIG, "herd", {"metadata": {"generateName": "m-"}})

    assert stored["metadata"]["name"] == "m-00043"


async def test_a_long_base_is_cut_so_that_the_suffix_fits(plane: Plane) -> None:
    stored = await plane.rest.create(CONFIG, "herd", {"metadata": {"generateName": "m" * 80}})

    assert len(stored["metadata"]["name"]) == 63


async def test_a_write_that_changes_nothing_is_no_write(plane: Plane) -> None:
    await plane.rest.create(CONFIG, "herd", config("mare", data={"a": "b"}))
    before = plane.store.revision

    patched = await plane.rest.patch(CONFIG, "herd", "mare", b'{"data":{"a":"b"}}', MERGE)
    put = await plane.rest.update(CONFIG, "herd", "mare", config("mare", data={"a": "b"}))

    assert plane.store.revision == before
    assert patched == put == plane.rest.get(CONFIG, "herd", "mare")


async def test_a_dry_run_decides_everything_and_stores_nothing(plane: Plane) -> None:
    before = plane.store.revision

    shown = await plane.rest.create(PODS, "herd", pod("mare"), options=DRY_RUN)
    assert shown["spec"]["serviceAccountName"] == "default"
    with pytest.raises(StatusError, match="forbidden"):
        await plane.rest.create(PODS, "herd", pod("m", serviceAccountName="no"), options=DRY_RUN)

    assert plane.store.revision == before


async def test_stored_objects_are_never_changed(plane: Plane) -> None:
    first = await plane.rest.create(PODS, "herd", pod("mare"))
    frozen = repr(first)

    await plane.rest.patch(PODS, "herd", "mare", b'{"metadata":{"labels":{"a":"b"}}}', MERGE)
    await plane.rest.bind("herd", "mare", "stable")
    status = b'{"status":{"phase":"Running"}}'
    await plane.rest.patch(PODS, "herd", "mare", status, MERGE, subresource="status")
    await plane.rest.delete(PODS, "herd", "mare")

    assert repr(first) == frozen


async def test_status_and_spec_are_written_apart(plane: Plane) -> None:
    foals = await with_foals(plane)
    await plane.rest.create(foals, "herd", foal("f") | {"status": {"seen": 9}})
    both = b'{"spec":{"size":5},"status":{"seen":1},"metadata":{"labels":{"a":"b"}}}'

    after_main = await plane.rest.patch(foals, "herd", "f", both, MERGE)
    assert (after_main["spec"], after_main.get("status")) == ({"size": 5}, None)
    assert after_main["metadata"]["generation"] == 2

    other = both.replace(b"5", b"6").replace(b'"b"', b'"c"')
    after_status = await plane.rest.patch(foals, "herd", "f", other, MERGE, subresource="status")
    assert (after_status["spec"], after_status["status"]) == ({"size": 5}, {"seen": 1})
    assert after_status["metadata"]["labels"] == {"a": "b"}
    assert after_status["metadata"]["generation"] == 2, "status is no change of intent"


@pytest.mark.parametrize(
    ("patch", "generation"),
    [
        pytest.param(b'{"metadata":{"labels":{"a":"b"}}}', 1, id="a label is no change of intent"),
        pytest.param(b'{"spec":{"size":4}}', 2, id="the spec is"),
        pytest.param(b'{"spec":{"size":3}}', 1, id="the same spec is not"),
        pytest.param(b'{"spec":{"wings":2}}', 1, id="a field that is pruned is not"),
    ],
)
async def test_generations_count_changes_of_the_spec(
    plane: Plane, patch: bytes, generation: int
) -> None:
    foals = await with_foals(plane)
    await plane.rest.create(foals, "herd", foal("f"))

    changed = await plane.rest.patch(foals, "herd", "f", patch, MERGE)

    assert changed["metadata"]["generation"] == generation


# --- Delete --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod_spec", "phase", "asked_s", "left_s"),
    [
        pytest.param({}, "Pending", None, None, id="an unbound Pod goes at once"),
        pytest.param({"nodeName": "n"}, "Running", None, 30, id="a bound Pod gets its own grace"),
        pytest.param({"nodeName": "n"}, "Running", 5, 5, id="or the grace that is asked for"),
        pytest.param({"nodeName": "n"}, "Running", 0, None, id="or none"),
        pytest.param({"nodeName": "n"}, "Running", -1, 1, id="below zero means one second"),
        pytest.param({"nodeName": "n"}, "Succeeded", None, None, id="an ended Pod goes at once"),
        pytest.param({"nodeName": "n"}, "Failed", 60, None, id="whatever is asked for"),
        pytest.param(
            {"nodeName": "n", "terminationGracePeriodSeconds": 7}, "Running", None, 7, id="its own"
        ),
    ],
)
async def test_how_pods_end(
    plane: Plane, pod_spec: dict[str, Any], phase: str, asked_s: int | None, left_s: int | None
) -> None:
    await plane.rest.create(PODS, "herd", pod("mare", **pod_spec))
    status = b'{"status":{"phase":"%s"}}' % phase.encode()
    await plane.rest.patch(PODS, "herd", "mare", status, MERGE, subresource="status")

    await plane.rest.delete(PODS, "herd", "mare", grace_s=asked_s)

    left = plane.store.get(PODS, "herd", "mare")
    if left_s is None:
        assert left is None
    else:
        assert left is not None
        ends = (NOON + timedelta(seconds=left_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert left["metadata"]["deletionGracePeriodSeconds"] == left_s
        assert left["metadata"]["deletionTimestamp"] == ends
        assert left["metadata"]["generation"] == 2


async def test_grace_only_ever_gets_shorter(plane: Plane) -> None:
    await plane.rest.create(PODS, "herd", pod("mare", nodeName="n"))
    await plane.rest.delete(PODS, "herd", "mare", grace_s=20)

    seen = [
        (await plane.rest.delete(PODS, "herd", "mare", grace_s=grace_s))["metadata"]
        for grace_s in (60, 10, None, 15)
    ]
    assert [meta["deletionGracePeriodSeconds"] for meta in seen] == [20, 10, 10, 10]
    assert seen[-1]["deletionTimestamp"] == "2026-11-15T12:00:10Z"

    await plane.clock.sleep(9)
    late = await plane.rest.delete(PODS, "herd", "mare", grace_s=2)
    assert late["metadata"]["deletionTimestamp"] == "2026-11-15T12:00:09Z", "never in the past"
    assert late["metadata"]["deletionGracePeriodSeconds"] == 1
    await plane.rest.delete(PODS, "herd", "mare", grace_s=0)
    assert plane.store.get(PODS, "herd", "mare") is None


@pytest.mark.parametrize(
    ("cascade", "finalizers"),
    [
        pytest.param("", ["a.io/a", "orphan"], id="nothing said keeps what is there"),
        pytest.param("Background", ["a.io/a"], id="background takes the cascade's finalizers away"),
        pytest.param("Foreground", ["a.io/a", "foregroundDeletion"], id="foreground changes them"),
        pytest.param("Orphan", ["a.io/a", "orphan"], id="orphan keeps its own"),
    ],
)
async def test_cascades_are_left_to_the_collector_as_finalizers(
    plane: Plane, cascade: str, finalizers: list[str]
) -> None:
    held = config("mare")
    held["metadata"]["finalizers"] = ["a.io/a", "orphan"]
    await plane.rest.create(CONFIG, "herd", held)

    last = await plane.rest.delete(CONFIG, "herd", "mare", cascade=cascade)

    assert last["metadata"]["finalizers"] == finalizers
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_the_last_finalizer_lets_an_object_go(plane: Plane) -> None:
    held = config("mare")
    held["metadata"]["finalizers"] = ["a.io/a", "b.io/b"]
    await plane.rest.create(CONFIG, "herd", held)
    await plane.rest.delete(CONFIG, "herd", "mare")

    more = b'{"metadata":{"finalizers":["a.io/a","c.io/c"]}}'
    with pytest.raises(StatusError, match="no new finalizers can be added"):
        await plane.rest.patch(CONFIG, "herd", "mare", more, MERGE)
    less = b'{"metadata":{"finalizers":["b.io/b"]}}'
    await plane.rest.patch(CONFIG, "herd", "mare", less, MERGE)
    assert plane.store.get(CONFIG, "herd", "mare") is not None
    await plane.rest.patch(CONFIG, "herd", "mare", b'{"metadata":{"finalizers":null}}', MERGE)
    assert plane.store.get(CONFIG, "herd", "mare") is None


async def test_a_crd_waits_for_the_last_of_its_objects(plane: Plane) -> None:
    foals = await with_foals(plane)
    crds = kind("customresourcedefinitions")
    held = foal("held")
    held["metadata"]["finalizers"] = ["a.io/a"]
    await plane.rest.create(foals, "herd", held)
    await plane.rest.create(foals, "herd", foal("free"))

    await plane.rest.delete(crds, "", "foals.herd.test")

    assert [o["metadata"]["name"] for o in plane.store.objects(foals)] == ["held"]
    with pytest.raises(StatusError, match="while custom resource definition is terminating"):
        await plane.rest.create(foals, "herd", foal("late"))
    await plane.rest.patch(foals, "herd", "held", b'{"metadata":{"finalizers":null}}', MERGE)
    assert plane.store.get(crds, "", "foals.herd.test") is None
    assert plane.rest.kinds.find("herd.test", "v1", "foals") is None


async def test_deleting_many_takes_only_those_that_match(plane: Plane) -> None:
    for name, colour in (("a", "bay"), ("b", "grey"), ("c", "bay")):
        horse = config(name)
        horse["metadata"]["labels"] = {"colour": colour}
        await plane.rest.create(CONFIG, "herd", horse)

    gone = await plane.rest.delete_collection(plane.rest.select(CONFIG, "herd", "colour=bay", ""))

    assert [o["metadata"]["name"] for o in gone] == ["a", "c"]
    assert [o["metadata"]["name"] for o in plane.store.objects(CONFIG)] == ["b"]


# --- Lists ---------------------------------------------------------------------------------------------------------


async def test_pages_show_one_version_while_writes_go_on(plane: Plane) -> None:
    for at in range(5):
        await plane.rest.create(CONFIG, "herd", config(f"c{at}"))
    first = plane.rest.list(CONFIG, "herd", limit=2)
    assert first["metadata"]["remainingItemCount"] == 3
    await plane.rest.delete(CONFIG, "herd", "c3")
    await plane.rest.create(CONFIG, "herd", config("c22"))

    second = plane.rest.list(CONFIG, "herd", limit=2, continue_=first["metadata"]["continue"])
    third = plane.rest.list(CONFIG, "herd", limit=2, continue_=second["metadata"]["continue"])

    pages = [[o["metadata"]["name"] for o in page["items"]] for page in (first, second, third)]
    assert pages == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1
    assert "continue" not in third["metadata"]


async def test_an_expired_page_offers_a_way_on() -> None:
    plane = await Plane(history_max=3).settle_in()
    for at in range(5):
        await plane.rest.create(CONFIG, "herd", config(f"c{at}"))
    first = plane.rest.list(CONFIG, "herd", limit=2)
    for at in range(5, 9):
        await plane.rest.create(CONFIG, "herd", config(f"c{at}"))

    with pytest.raises(StatusError) as refused:
        plane.rest.list(CONFIG, "herd", limit=2, continue_=first["metadata"]["continue"])

    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    onwards = refused.value.status()["metadata"]["continue"]
    rest = plane.rest.list(CONFIG, "herd", continue_=onwards)
    assert [o["metadata"]["name"] for o in rest["items"]] == [f"c{at}" for at in range(2, 9)]


@pytest.mark.parametrize(
    ("version", "match", "limit", "seen"),
    [
        pytest.param("", "", 0, "new", id="nothing asked is the newest"),
        pytest.param("0", "", 0, "new", id="any version is the newest"),
        pytest.param("4", "NotOlderThan", 0, "new", id="not older than"),
        pytest.param("4", "", 0, "new", id="not older than, unsaid"),
        pytest.param("4", "Exact", 0, "old", id="exactly"),
        pytest.param("4", "", 5, "old", id="a limit means exactly, for old clients"),
    ],
)
async def test_which_version_a_list_shows(
    plane: Plane, version: str, match: str, limit: int, seen: str
) -> None:
    await plane.rest.create(CONFIG, "herd", config("mare", data={"is": "old"}))
    assert plane.store.revision == 4
    await plane.rest.patch(CONFIG, "herd", "mare", b'{"data":{"is":"new"}}', MERGE)

    listed = plane.rest.list(CONFIG, "herd", resource_version=version, match=match, limit=limit)

    assert listed["items"][0]["data"]["is"] == seen


# --- Rules of single kinds -----------------------------------------------------------------------------------------


async def test_a_new_node_is_not_ready_for_pods(plane: Plane) -> None:
    own = {"key": "remuda.dev/vm-host", "effect": "NoSchedule"}

    node = await plane.rest.create(
        NODES, "", {"metadata": {"name": "n"}, "spec": {"taints": [own]}}
    )

    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert node["spec"]["taints"] == [own, not_ready]


async def test_a_lease_is_made_by_the_first_put_and_then_guarded_by_its_version(
    plane: Plane,
) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    made = await plane.rest.update(LEASES, "herd", "l", lease)
    assert made["spec"] == {"holderIdentity": "a"}

    with pytest.raises(StatusError, match="must be specified for an update"):
        await plane.rest.update(LEASES, "herd", "l", lease)


@pytest.mark.parametrize(
    "time", ["2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123Z", "yesterday", 7]
)
async def test_a_lease_time_has_exactly_six_digits(plane: Plane, time: object) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": time}}

    with pytest.raises(StatusError) as refused:
        await plane.rest.create(LEASES, "herd", lease)

    assert refused.value.code == 400


async def test_a_scale_can_give_the_number_that_is_missing(plane: Plane) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.seen"}
    definition = crd(subresources={"status": {}, "scale": paths})
    await plane.rest.create(kind("customresourcedefinitions"), "", definition)
    foals = plane.rest.kinds.find("herd.test", "v1", "foals")
    assert foals is not None
    await plane.rest.create(foals, "herd", {**foal("f"), "spec": None})
    path = "/apis/herd.test/v1/namespaces/herd/foals/f/scale"

    assert (await plane.call("GET", path)).status == 500, (
        "as the real server: there is no number to show"
    )
    scaled = await plane.call("PATCH", path, {"spec": {"replicas": 2}}, patch="merge")

    assert (scaled.status, scaled.body["spec"]) == (200, {"replicas": 2})
    assert plane.rest.get(foals, "herd", "f")["spec"] == {"size": 2}
