from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.crd import manifests
from remuda.standalone import discovery
from remuda.standalone.crds import kind_from_crd
from remuda.standalone.kinds import BUILT_IN, Kinds

KINDS = Kinds([*BUILT_IN, *(kind_from_crd(crd) for crd in manifests())])
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{AGGREGATED},{AGGREGATED.replace('v2', 'v2beta1')},application/json"


def answer(path: str, accept: str = "application/json") -> Any:  # noqa: ANN401 - JSON
    return discovery.answer(KINDS, path, accept)


def test_the_version_is_the_release_that_is_the_model() -> None:
    assert (answer("/version")["major"], answer("/version")["minor"]) == ("1", "37")


def test_groups_are_listed_without_the_core() -> None:
    groups = answer("/apis")

    assert groups["kind"] == "APIGroupList"
    assert {
        "name": "remuda.dev",
        "versions": [{"groupVersion": "remuda.dev/v1alpha1", "version": "v1alpha1"}],
        "preferredVersion": {"groupVersion": "remuda.dev/v1alpha1", "version": "v1alpha1"},
    } in groups["groups"]
    assert "" not in [group["name"] for group in groups["groups"]]
    assert answer("/api")["versions"] == ["v1"]
    assert answer("/apis/remuda.dev")["kind"] == "APIGroup"


def test_resources_are_listed_with_their_subresources() -> None:
    listed = answer("/apis/remuda.dev/v1alpha1")
    by_name = {entry["name"]: entry for entry in listed["resources"]}

    assert listed["groupVersion"] == "remuda.dev/v1alpha1"
    assert by_name["runnerpools"]["shortNames"] == ["rpool"]
    assert by_name["runnerpools"]["categories"] == ["remuda"]
    assert by_name["runnerpools/status"]["verbs"] == ["get", "patch", "update"]
    assert {k: by_name["runnerpools/scale"][k] for k in ("group", "version", "kind")} == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
    }
    assert "hosts/scale" not in by_name


def test_the_core_group_has_no_name() -> None:
    listed = answer("/api/v1")
    by_name = {entry["name"]: entry for entry in listed["resources"]}

    assert listed["groupVersion"] == "v1"
    assert by_name["nodes"]["namespaced"] is False
    assert by_name["pods/binding"]["kind"] == "Binding"
    assert by_name["serviceaccounts/token"]["kind"] == "TokenRequest"


@pytest.mark.parametrize(
    "path", ["/apis/nope.dev", "/apis/remuda.dev/v9", "/api/v2", "/nope", "/apis/a/b/c", "/"]
)
def test_what_is_not_served_has_no_answer(path: str) -> None:
    assert answer(path) is None


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        pytest.param(KUBECTL, "apidiscovery.k8s.io/v2", id="what kubectl asks for"),
        pytest.param(
            KUBECTL.replace("v=v2;", "v=v9;"),
            "apidiscovery.k8s.io/v2beta1",
            id="the older aggregated form",
        ),
        pytest.param("application/json", None, id="the plain form"),
        pytest.param(f"application/json,{AGGREGATED}", None, id="the plain form first"),
        pytest.param("*/*", None, id="anything"),
    ],
)
def test_the_form_follows_the_accept_header(accept: str, version: str | None) -> None:
    found = answer("/apis", accept)

    assert (found["apiVersion"] if found["kind"] == "APIGroupDiscoveryList" else None) == version


def test_the_aggregated_form_has_it_all_in_one() -> None:
    groups = {g["metadata"].get("name", ""): g for g in answer("/apis", AGGREGATED)["items"]}
    (pools,) = [
        r
        for r in groups["remuda.dev"]["versions"][0]["resources"]
        if r["resource"] == "runnerpools"
    ]

    assert pools["responseKind"] == {
        "group": "remuda.dev",
        "version": "v1alpha1",
        "kind": "RunnerPool",
    }
    assert pools["scope"] == "Namespaced"
    assert [s["subresource"] for s in pools["subresources"]] == ["status", "scale"]
    assert pools["subresources"][1]["responseKind"]["kind"] == "Scale"
    assert "" not in groups
    (core,) = answer("/api", AGGREGATED)["items"]
    assert "pods" in [r["resource"] for r in core["versions"][0]["resources"]]


def test_every_subresource_that_is_served_is_known() -> None:
    assert {name for kind in KINDS for name in kind.subresources} <= discovery.SUBRESOURCES.keys()
