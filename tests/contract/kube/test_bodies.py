"""Bodies that are not what they should be. Most of this file was found by sending the same chance to both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import a_config_map, a_pod, a_pool
from tests.support.raw import STRATEGIC

if TYPE_CHECKING:
    from tests.support.raw import Json, Raw
    from tests.support.space import Space


def _a_crd_with(**keywords: Json) -> Json:
    schema = {"type": "object", **keywords}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


async def a_mare(raw: Raw, space: Space) -> Json:
    return (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()


@pytest.mark.parametrize(
    ("plural", "body", "found"),
    [
        pytest.param("configmaps", {"data": {"a": 1}}, "number", id="a number for text"),
        pytest.param("configmaps", {"data": []}, "array", id="a list for a map"),
        pytest.param(
            "leases", {"spec": {"leaseDurationSeconds": "x"}}, "string", id="text for a number"
        ),
        pytest.param("configmaps", {"immutable": "yes"}, "string", id="text for a truth"),
    ],
)
async def test_a_value_of_the_wrong_type_is_a_bad_request(
    raw: Raw, space: Space, plural: str, body: Json, found: str
) -> None:
    answer = await raw.post(space.path(plural), {"metadata": {"name": "mare"}, **body})

    assert answer.refusal[:2] == (400, "BadRequest")
    assert f"json: cannot unmarshal {found} into Go struct field" in answer.refusal[2]


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"labels": {"a": 1}}, id="a number for a label"),
        pytest.param({"finalizers": "x"}, id="text for a list"),
        pytest.param({"generation": "x"}, id="text for a number"),
        pytest.param({"creationTimestamp": "noon"}, id="no time"),
    ],
)
@pytest.mark.parametrize("plural", ["configmaps", "runnerpools"])
async def test_metadata_of_the_wrong_type_is_a_bad_request(
    raw: Raw, space: Space, plural: str, meta: Json
) -> None:
    manifest = a_config_map("mare") if plural == "configmaps" else a_pool("mare")
    manifest["metadata"].update(meta)

    answer = await raw.post(space.path(plural), manifest)

    assert answer.refusal[:2] == (400, "BadRequest")
    assert "cannot be handled as a" in answer.refusal[2]


@pytest.mark.parametrize("plural", ["configmaps", "pods", "runnerpools", "leases", "events"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param({"kind": [], "apiVersion": {}}, id="a kind that is no text"),
        pytest.param({"metadata": []}, id="metadata that are a list"),
        pytest.param({"metadata": {"name": 5}}, id="a name that is a number"),
        pytest.param({"metadata": {}, "spec": "x", "involvedObject": "x", "data": "x"}, id="text"),
    ],
)
async def test_nonsense_is_refused_as_the_senders_fault(
    raw: Raw, space: Space, plural: str, body: Json
) -> None:
    answer = await raw.post(space.path(plural), body)

    assert 400 <= answer.status < 500, answer.body


@pytest.mark.parametrize(
    ("plural", "body", "code"),
    [
        pytest.param("pods", a_pod("mare", containers=[None]), 422, id="a container"),
        pytest.param("pods", a_pod("mare", volumes=[None]), 422, id="a volume"),
        pytest.param("pods", a_pod("mare", tolerations=[None]), 422, id="a toleration"),
        pytest.param("pods", a_pod("mare", schedulingGates=[None]), 422, id="a gate"),
        pytest.param(
            "configmaps", a_config_map("mare", ownerReferences=[None]), 422, id="an owner"
        ),
        pytest.param("configmaps", a_config_map("mare", finalizers=[None]), 422, id="a finalizer"),
    ],
)
async def test_a_null_among_others_is_an_empty_one(
    raw: Raw, space: Space, plural: str, body: Json, code: int
) -> None:
    answer = await raw.post(space.path(plural), body)

    assert answer.refusal[:2] == (code, "Invalid")


async def test_a_null_condition_harms_nobody(raw: Raw, space: Space) -> None:
    name = f"{space.name}-node"
    (await raw.post("/api/v1/nodes", {"metadata": {"name": name}})).ok()

    answer = await raw.merge(
        f"/api/v1/nodes/{name}/status", {"status": {"conditions": [None], "addresses": [None]}}
    )

    assert len(answer.ok()["status"]["conditions"]) == 1
    assert answer.ok()["status"]["conditions"][0] is not None
    (await raw.delete(f"/api/v1/nodes/{name}")).ok()


@pytest.mark.parametrize("amount", ["many", pytest.param("9" * 5000, id="5000 digits")])
async def test_what_is_no_quantity_is_refused_of_a_node(
    raw: Raw, space: Space, amount: str
) -> None:
    manifest = {
        "metadata": {"name": f"{space.name}-node"},
        "status": {"allocatable": {"remuda.dev/vm": amount}},
    }

    answer = await raw.post("/api/v1/nodes", manifest)

    if amount == "many":
        assert answer.refusal[:2] == (400, "BadRequest")
        assert "quantities must match the regular expression" in answer.refusal[2]
    else:
        assert answer.status < 500


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"series": "x"}, id="text for a series"),
        pytest.param({"series": {"lastObservedTime": "noon"}}, id="a series at no time"),
        pytest.param(
            {"series": {"lastObservedTime": "2026-05-40T00:00:00.000000Z"}}, id="the 40th of May"
        ),
        pytest.param({"lastTimestamp": "2026-11-15"}, id="a day"),
        pytest.param({"lastTimestamp": "2026-11-15T10:00:00"}, id="a time of no zone"),
    ],
)
async def test_an_event_of_a_time_that_is_none_is_refused(
    raw: Raw, space: Space, event: Json
) -> None:
    about = {"kind": "Pod", "namespace": space.name, "name": "mare"}
    manifest = {"metadata": {"name": "mare"}, "involvedObject": about, **event}

    answer = await raw.post(space.path("events"), manifest)

    assert answer.refusal[:2] == (400, "BadRequest")
    assert "cannot be handled as a Event" in answer.refusal[2]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({}, "metadata.name", id="no name"),
        pytest.param(
            {"metadata": {"name": "x"}, "spec": {"finalizers": [""]}},
            "spec.finalizers",
            id="a finalizer without a name",
        ),
    ],
)
async def test_a_namespace_that_lacks_a_name_is_invalid(raw: Raw, body: Json, field: str) -> None:
    answer = await raw.post("/api/v1/namespaces", body)

    assert answer.refusal[:2] == (422, "Invalid")
    assert {where for where, _, _ in answer.causes} == {field}


async def test_null_is_absence(raw: Raw, space: Space) -> None:
    manifest = a_pod("mare", nodeName=None, tolerations=None, activeDeadlineSeconds=None)
    manifest["metadata"].update({"labels": None, "generation": None, "ownerReferences": None})
    manifest["status"] = None

    pod = (await raw.post(space.path("pods"), manifest)).ok()

    assert "nodeName" not in pod["spec"]
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert len(pod["spec"]["tolerations"]) == 2
    assert "labels" not in pod["metadata"]
    assert pod["metadata"]["generation"] == 1
    assert (await raw.delete(space.path("pods", "mare"))).status == 200


async def test_what_a_built_in_kind_does_not_have_is_dropped(raw: Raw, space: Space) -> None:
    manifest = {**a_config_map("mare"), "spec": {"a": 1}, "status": {"phase": "x"}}

    created = (await raw.post(space.path("configmaps"), manifest)).ok()

    assert set(created) == {"apiVersion", "kind", "metadata", "data"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"kind": "Secret"}, 422, id="its kind"),
        pytest.param({"apiVersion": "v9"}, 422, id="its version"),
        pytest.param({"metadata": {"labels": "x"}}, 422, id="labels into text"),
        pytest.param({"metadata": {"name": None}}, 400, id="its name away"),
    ],
)
@pytest.mark.parametrize("plural", ["configmaps", "runnerpools"])
async def test_a_patch_cannot_turn_an_object_into_something_else(
    raw: Raw, space: Space, plural: str, change: Json, code: int
) -> None:
    manifest = a_config_map("mare") if plural == "configmaps" else a_pool("mare")
    before = (await raw.post(space.path(plural), manifest)).ok()

    answer = await raw.merge(space.path(plural, "mare"), change)

    assert answer.refusal[0] == code
    after = (await raw.get(space.path(plural, "mare"))).ok()
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert after["kind"] == before["kind"]


@pytest.mark.parametrize("version", ["", "0"])
async def test_no_version_and_version_zero_mean_whatever_is_there(
    raw: Raw, space: Space, version: str
) -> None:
    await a_mare(raw, space)
    change = {"metadata": {"resourceVersion": version}, "data": {"turn": "1"}}

    assert (await raw.merge(space.path("configmaps", "mare"), change)).ok()["data"]["turn"] == "1"


async def test_a_name_that_is_being_freed_is_still_taken(raw: Raw, space: Space) -> None:
    held = a_config_map("mare", finalizers=["remuda.dev/hold"])
    (await raw.post(space.path("configmaps"), held)).ok()
    (await raw.delete(space.path("configmaps", "mare"))).ok()

    answer = await raw.post(space.path("configmaps"), a_config_map("mare"))

    message = 'object is being deleted: configmaps "mare" already exists'
    assert answer.refusal == (409, "AlreadyExists", message)


async def test_faults_of_metadata_and_spec_come_together(raw: Raw, space: Space) -> None:
    manifest = {
        "metadata": {"name": "mare", "labels": {"bad key": "v"}},
        "spec": {"leaseDurationSeconds": -1},
    }

    answer = await raw.post(space.path("leases"), manifest)

    fields = [field for field, _, _ in answer.causes]
    assert fields == ["metadata.labels", "spec.leaseDurationSeconds"]


async def test_a_replacement_of_what_is_absent_adds_it(raw: Raw, space: Space) -> None:
    """RFC 6902 says otherwise; the API server has always done so."""
    await a_mare(raw, space)

    answer = await raw.json_patch(
        space.path("configmaps", "mare"),
        {"op": "test", "path": "/data/absent", "value": None},
        {"op": "replace", "path": "/data/absent", "value": "1"},
    )

    assert answer.ok()["data"] == {"colour": "bay", "absent": "1"}


@pytest.mark.parametrize("sort", [STRATEGIC, "text/plain"])
async def test_a_sort_of_patch_is_refused_before_the_object_is_looked_for(
    raw: Raw, space: Space, sort: str
) -> None:
    """Server-side apply, which only the real one offers, is refused likewise: tests/e2e/test_kubectl_pools.py."""
    answer = await raw.send("PATCH", space.path("runnerpools", "none"), {}, content_type=sort)

    assert answer.refusal[:2] == (415, "UnsupportedMediaType")


async def test_a_quantity_may_be_a_number(raw: Raw, space: Space) -> None:
    container = {
        "name": "runner",
        "image": "runner:1",
        "resources": {"limits": {"cpu": 0.5, "memory": 1024, "remuda.dev/vm": 1}},
    }

    pod = (await raw.post(space.path("pods"), a_pod("mare", containers=[container]))).ok()

    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "500m", "memory": "1024", "remuda.dev/vm": "1"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("token", {"spec": "x"}, id="a token request that is text"),
        pytest.param("token", {"spec": {"expirationSeconds": "x"}}, id="a time that is text"),
        pytest.param("token", {"spec": {"boundObjectRef": []}}, id="a bound object that is a list"),
        pytest.param("tokenreviews", {"spec": {"token": "x", "audiences": 5}}, id="an audience"),
        pytest.param("customresourcedefinitions", {"spec": []}, id="a CRD that is a list"),
        pytest.param(
            "customresourcedefinitions", {"spec": {"names": {"kind": 5}}}, id="a kind of 5"
        ),
        pytest.param(
            "customresourcedefinitions", _a_crd_with(properties=[]), id="properties in a list"
        ),
        pytest.param(
            "customresourcedefinitions", _a_crd_with(maximum="x"), id="a bound that is text"
        ),
        pytest.param(
            "customresourcedefinitions",
            _a_crd_with(**{"x-kubernetes-validations": [{"rule": 5}]}),
            id="a rule that is a number",
        ),
    ],
)
async def test_wrong_types_are_refused_where_nothing_is_stored_too(
    raw: Raw, space: Space, path: str, body: Json
) -> None:
    paths = {
        "token": space.path("serviceaccounts", "default", "token"),
        "tokenreviews": "/apis/authentication.k8s.io/v1/tokenreviews",
        "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    }

    answer = await raw.post(paths[path], body)

    assert answer.refusal[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"gracePeriodSeconds": "x"}, id="a grace that is text"),
        pytest.param({"preconditions": []}, id="conditions that are a list"),
        pytest.param({"propagationPolicy": []}, id="a policy that is a list"),
    ],
)
async def test_a_delete_with_options_of_the_wrong_type_is_refused(
    raw: Raw, space: Space, options: Json
) -> None:
    await a_mare(raw, space)

    answer = await raw.send("DELETE", space.path("configmaps", "mare"), options)

    assert answer.refusal[:2] == (400, "BadRequest")


async def test_a_grace_beyond_the_calendar_is_no_fault_of_the_server(
    raw: Raw, space: Space
) -> None:
    pod = a_pod("mare", nodeName="nowhere", terminationGracePeriodSeconds=10**14)
    (await raw.post(space.path("pods"), pod)).ok()

    assert (await raw.delete(space.path("pods", "mare"))).status == 200


@pytest.mark.parametrize("option", ["resourceVersion", "limit", "timeoutSeconds"])
async def test_a_number_that_is_too_large_is_refused(raw: Raw, space: Space, option: str) -> None:
    query = {option: "9" * 5000} | ({"watch": "1"} if option == "timeoutSeconds" else {})

    answer = await raw.send("GET", space.path("pods"), **query)

    assert answer.refusal[:2] == (400, "BadRequest")


async def test_namespaces_are_not_deleted_all_at_once(raw: Raw) -> None:
    answer = await raw.delete("/api/v1/namespaces")

    assert answer.refusal[:2] == (405, "MethodNotAllowed")
