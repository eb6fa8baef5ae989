from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.kube import crd
from remuda.kube.host import HOST
from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]


def places(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        if path or name != "metadata":  # the API server describes metadata itself
            yield from places(child, f"{path}.{name}")
    if "items" in schema:
        yield from places(schema["items"], f"{path}[]")


PLACES = [
    pytest.param(schema, id=f"{kind.name}{path}")
    for kind in (RUNNER_POOL, HOST)
    for path, schema in places(crd.schema_of(kind), "")
]


@pytest.mark.parametrize("schema", PLACES)
def test_every_field_is_described_for_kubectl_explain(schema: dict[str, Any]) -> None:
    assert len(schema.get("description", "")) > 10
    assert schema["description"].endswith(".")


@pytest.mark.parametrize("schema", PLACES)
def test_every_rule_says_what_to_do(schema: dict[str, Any]) -> None:
    for rule in schema.get("x-kubernetes-validations", ()):
        assert rule["message"].count(".") >= 1
        assert rule["message"].endswith(".")
        # The API server does not show the message of this one.
        assert rule["reason"] != "FieldValueDuplicate"


def spec_of(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return found


def test_bounds_enums_and_defaults_come_from_the_type() -> None:
    spec = spec_of(crd.schema_of(RUNNER_POOL))

    assert spec["os"] | {"description": "", "x-kubernetes-validations": []} == {
        "type": "string", "enum": ["linux", "darwin"], "default": "linux",
        "description": "", "x-kubernetes-validations": [],
    }  # fmt: skip
    percent = spec["rollout"]["properties"]["maxConcurrentPercent"]
    assert (percent["minimum"], percent["maximum"], percent["default"]) == (1, 100, 5)
    assert spec["resources"]["properties"]["cpu"]["x-kubernetes-int-or-string"] is True
    assert spec["template"]["x-kubernetes-preserve-unknown-fields"] is True
    assert spec["labels"]["x-kubernetes-list-type"] == "set"
    assert "default" not in spec["autoscaling"]["properties"]["maxReplicas"]
    assert "default" not in spec["image"]


def test_the_default_of_a_section_is_spelled_out() -> None:
    assert spec_of(crd.schema_of(RUNNER_POOL))["rollout"]["default"] == {
        "maxConcurrentPercent": 5,
        "paused": False,
        "progressDeadlineSeconds": 600,
        "stage": {"enabled": True, "maxConcurrent": 2},
    }


def test_status_has_no_defaults() -> None:
    status = crd.schema_of(RUNNER_POOL)["properties"]["status"]

    assert all("default" not in schema for _, schema in places(status, ""))


def test_required_fields_are_those_without_a_default() -> None:
    schema = crd.schema_of(RUNNER_POOL)

    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["required"] == ["image", "fleet", "labels"]


def test_the_files_are_fresh() -> None:
    for name, text in crd.render_yaml().items():
        assert (REPOSITORY / "charts/remuda/crds" / name).read_text() == text
    assert (REPOSITORY / "docs/reference/resources.md").read_text() == crd.reference_markdown()
