from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.kube.crd import manifests
from remuda.standalone import openapi
from remuda.standalone.crds import kind_from_crd
from remuda.standalone.kinds import BUILT_IN, Kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = Kinds([*BUILT_IN, *(kind_from_crd(crd) for crd in manifests())])
OURS = "/openapi/v3/apis/remuda.dev/v1alpha1"
POOLS = "/apis/remuda.dev/v1alpha1/namespaces/{namespace}/runnerpools"


def answer(path: str, kinds: Kinds = KINDS) -> Any:  # noqa: ANN401 - JSON
    return openapi.answer(kinds, path)


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    if isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_index_names_every_document_with_its_hash() -> None:
    paths = answer("/openapi/v3")["paths"]

    assert {"api/v1", "apis/remuda.dev/v1alpha1", "apis/coordination.k8s.io/v1"} <= paths.keys()
    address = paths["apis/remuda.dev/v1alpha1"]["serverRelativeURL"]
    assert address.startswith(f"{OURS}?hash=")


def test_the_hash_changes_with_the_document_only() -> None:
    ours, others = "apis/remuda.dev/v1alpha1", "api/v1"
    (pools, _) = (kind_from_crd(crd) for crd in manifests())
    fewer = answer("/openapi/v3", Kinds([*BUILT_IN, pools]))["paths"]
    before = answer("/openapi/v3")["paths"]

    assert fewer[ours] != before[ours]
    assert fewer[others] == before[others]


@pytest.mark.parametrize("path", [f"/openapi/v3/{root}" for root in answer("/openapi/v3")["paths"]])
def test_every_reference_leads_somewhere(path: str) -> None:
    document = answer(path)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert set(references(document)) <= known


def test_kubectl_learns_that_the_server_checks_fields() -> None:
    paths = answer(OURS)["paths"]

    for path, method in (
        (POOLS, "post"),
        (f"{POOLS}/{{name}}", "put"),
        (f"{POOLS}/{{name}}", "patch"),
    ):
        operation = paths[path][method]
        assert {"fieldValidation", "dryRun"} <= {p["name"] for p in operation["parameters"]}
        assert operation["x-kubernetes-group-version-kind"] == {
            "group": "remuda.dev",
            "version": "v1alpha1",
            "kind": "RunnerPool",
        }


def test_actions_follow_the_verbs() -> None:
    paths = answer(OURS)["paths"]
    actions = {m: op["x-kubernetes-action"] for m, op in paths[POOLS].items() if m != "parameters"}
    reviews = answer("/openapi/v3/apis/authentication.k8s.io/v1")["paths"]

    assert actions == {"get": "list", "post": "post", "delete": "deletecollection"}
    assert paths["/apis/remuda.dev/v1alpha1/runnerpools"].keys() == {"get", "parameters"}
    assert f"{POOLS}/{{name}}/scale" in paths
    assert reviews["/apis/authentication.k8s.io/v1/tokenreviews"].keys() == {"post", "parameters"}
    assert "/apis/authentication.k8s.io/v1/tokenreviews/{name}" not in reviews


def test_no_document_offers_a_strategic_patch() -> None:
    # If one did, kubectl would take merge keys from our schema, which has none, instead of its own.
    patch = answer("/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"][
        "patch"
    ]

    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_custom_resources_show_their_own_schema() -> None:
    pool = answer(OURS)["components"]["schemas"]["dev.remuda.v1alpha1.RunnerPool"]
    spec = pool["properties"]["spec"]

    assert pool["x-kubernetes-group-version-kind"] == [
        {"group": "remuda.dev", "version": "v1alpha1", "kind": "RunnerPool"}
    ]
    assert spec["properties"]["replicas"]["description"].startswith("How many runners")
    assert spec["properties"]["resources"]["properties"]["cpu"]["anyOf"] == [
        {"type": "integer"},
        {"type": "string"},
    ]
    assert "ObjectMeta" in pool["properties"]["metadata"]["allOf"][0]["$ref"]


def test_built_in_kinds_show_what_we_hold_and_stay_open() -> None:
    schemas = answer("/openapi/v3/api/v1")["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.Pod"]["properties"]["spec"]

    assert spec["x-kubernetes-preserve-unknown-fields"] is True
    assert spec["properties"]["containers"]["items"]["properties"]["image"] == {"type": "string"}
    assert spec["properties"]["nodeSelector"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
    assert (
        schemas["io.k8s.api.core.v1.Secret"]["properties"]["data"]["additionalProperties"]["format"]
        == "byte"
    )


def test_version_2_has_the_schemas() -> None:
    document = answer("/openapi/v2")

    assert document["swagger"] == "2.0"
    assert set(references(document)) <= {
        f"#/definitions/{name}" for name in document["definitions"]
    }
    assert "dev.remuda.v1alpha1.RunnerPool" in document["definitions"]


@pytest.mark.parametrize(
    "path", ["/openapi", "/openapi/v3/apis/nope/v1", "/openapi/v3/api/v9", "/openapi/v4", "/"]
)
def test_other_paths_have_no_document(path: str) -> None:
    assert answer(path) is None
