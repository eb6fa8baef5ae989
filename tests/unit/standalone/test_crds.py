from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from remuda.kube import crd as our_crds
from remuda.standalone import crds
from remuda.standalone.kinds import ScalePaths

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2026, 11, 15, 12, 0, 0, 500, tzinfo=UTC)


def a_crd() -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
    return {
        "metadata": {"name": "things.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    crd = a_crd()
    change(crd)
    return crds.defaulted(crd)


def version(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]
    return found


@pytest.mark.parametrize("manifest", our_crds.manifests(), ids=lambda m: str(m["metadata"]["name"]))
def test_our_own_crds_are_taken(manifest: dict[str, Any]) -> None:
    assert crds.validate(crds.defaulted(manifest)) == ()


def properties(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    return found


BAD_SCALE = {"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}}
BAD_COLUMN = {"name": "x", "type": "string", "jsonPath": "a"}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        pytest.param(lambda c: c["metadata"].update(name="x.y.z"),
                     "metadata.name",
                     'Invalid value: "x.y.z": must be spec.names.plural+"."+spec.group',
                     id="the name does not fit"),
        pytest.param(lambda c: c["spec"].update(scope="Any"),
                     "spec.scope",
                     'Unsupported value: "Any": supported values: "Cluster", "Namespaced"',
                     id="an unknown scope"),
        pytest.param(lambda c: version(c).pop("schema"),
                     "spec.versions[0].schema.openAPIV3Schema",
                     "Required value",
                     id="no schema"),
        pytest.param(lambda c: version(c).update(subresources=BAD_SCALE),
                     "spec.subresources.scale.specReplicasPath",
                     'Invalid value: ".status.n": should be a json path under .spec',
                     id="scale reads its wish from status"),
        pytest.param(lambda c: version(c).update(additionalPrinterColumns=[BAD_COLUMN]),
                     "spec.additionalPrinterColumns[0].JSONPath",
                     'Invalid value: "a": must be a simple json path starting with .',
                     id="a column without a path"),
        pytest.param(lambda c: properties(c).update(b={}),
                     "spec.validation.openAPIV3Schema.properties[spec].properties[b].type",
                     "Required value: must not be empty for specified object fields",
                     id="a field without a type"),
    ],
)  # fmt: skip
def test_refusals_are_the_real_servers(
    change: Callable[[dict[str, Any]], object], field: str, message: str
) -> None:
    causes = crds.validate(changed(change))

    assert [(cause.field, cause.message) for cause in causes] == [(field, message)]


def test_a_rule_that_does_not_compile_refuses_the_crd() -> None:
    def break_it(crd: dict[str, Any]) -> None:
        spec = version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["x-kubernetes-validations"] = [{"rule": "isURL(self.a)"}]

    (cause,) = crds.validate(changed(break_it))

    assert (
        cause.field
        == "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    )
    assert "undeclared reference to 'isURL'" in cause.message


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        pytest.param([], "exactly one version marked as storage", id="no version"),
        pytest.param([{"name": "v1", "storage": True}, {"name": "v2", "storage": True}],
                     "exactly one version marked as storage", id="two storage versions"),
        pytest.param([{"name": "v1", "storage": True}, {"name": "v2"}],
                     "serves one version per CRD", id="two served versions"),
        pytest.param([{"name": "v1", "storage": True, "served": False}],
                     "served must be true", id="none that is served"),
    ],
)  # fmt: skip
def test_one_version_is_served(versions: list[dict[str, Any]], message: str) -> None:
    schema = {"schema": {"openAPIV3Schema": {"type": "object"}}}
    crd = changed(lambda c: c["spec"].update(versions=[v | schema for v in versions]))

    (cause,) = crds.validate(crd)

    assert message in cause.message


def test_the_kind_is_read_from_the_crd() -> None:
    pools = next(m for m in our_crds.manifests() if m["spec"]["names"]["kind"] == "RunnerPool")

    kind = crds.kind_from_crd(pools)

    assert (kind.api_version, kind.kind, kind.plural) == (
        "remuda.dev/v1alpha1",
        "RunnerPool",
        "runnerpools",
    )
    assert kind.namespaced
    assert kind.short_names == ("rpool",)
    assert kind.subresources == ("status", "scale")
    assert kind.scale == ScalePaths(".spec.replicas", ".status.replicas", ".status.selector")
    assert [c.name for c in kind.columns] == [
        "Desired",
        "Warm",
        "Busy",
        "Starting",
        "Stale",
        "Age",
        "Image",
    ]


def test_a_served_crd_says_so_and_keeps_the_time_of_it() -> None:
    crd = crds.defaulted(a_crd())
    status = crds.established(crd, NOON)

    assert [(c["type"], c["status"], c["lastTransitionTime"]) for c in status["conditions"]] == [
        ("NamesAccepted", "True", "2026-11-15T12:00:00Z"),
        ("Established", "True", "2026-11-15T12:00:00Z"),
    ]
    assert status["acceptedNames"] == {
        "plural": "things",
        "kind": "Thing",
        "singular": "thing",
        "listKind": "ThingList",
    }
    assert status["storedVersions"] == ["v1"]
    assert crds.established(crd | {"status": status}, NOON + timedelta(hours=1)) == status
