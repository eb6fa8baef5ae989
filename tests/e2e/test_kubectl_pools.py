"""A pool in the hands of a person with kubectl: made, looked at, changed, watched, waited for, deleted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kubectl import Kubectl

POOL = """
apiVersion: remuda.dev/v1alpha1
kind: RunnerPool
metadata: {name: NAME}
spec:
  os: darwin
  image: registry.test/mac:1
  fleet: barn
  labels: [self-hosted, macos]
"""


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name for this test's pool."""
    return re.sub(r"[^a-z]+", "-", request.function.__name__.removeprefix("test_"))[:40].strip("-")


@pytest.fixture
def pool(kubectl: Kubectl, name: str) -> str:
    """Create a pool, and return its manifest."""
    manifest = POOL.replace("NAME", name)
    assert kubectl("apply", "-f", "-", stdin=manifest) == f"runnerpool.remuda.dev/{name} created\n"
    return manifest


def columns(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_apply_says_what_it_did(kubectl: Kubectl, pool: str, name: str) -> None:
    changed = pool.replace("mac:1", "mac:2")

    assert kubectl("apply", "-f", "-", stdin=pool) == f"runnerpool.remuda.dev/{name} unchanged\n"
    kubectl("diff", "-f", "-", stdin=pool)
    assert "mac:2" in kubectl("diff", "-f", "-", stdin=changed, fails=True)
    configured = kubectl("apply", "-f", "-", stdin=changed)
    assert configured == f"runnerpool.remuda.dev/{name} configured\n"
    assert kubectl("get", "rpool", name, "-o", "jsonpath={.spec.image}") == "registry.test/mac:2"


def test_apply_removes_what_is_no_longer_written(kubectl: Kubectl, pool: str, name: str) -> None:
    kubectl("apply", "-f", "-", stdin=pool + "  replicas: 7\n")
    assert kubectl("get", "rpool", name, "-o", "jsonpath={.spec.replicas}") == "7"

    kubectl("apply", "-f", "-", stdin=pool)

    assert kubectl("get", "rpool", name, "-o", "jsonpath={.spec.replicas}") == "1"


@pytest.mark.usefixtures("pool")
def test_get_prints_the_columns_of_a_pool(kubectl: Kubectl, name: str) -> None:
    status = json.dumps({"status": {"warm": 2, "busy": 1, "starting": 0, "stale": 0}})
    kubectl("patch", "rpool", name, "--subresource=status", "--type=merge", "-p", status)

    header, row = columns(kubectl("get", "rpool", name))
    wide_header, wide = columns(kubectl("get", "runnerpools", name, "-o", "wide"))

    assert header == ["NAME", "DESIRED", "WARM", "BUSY", "STARTING", "STALE", "AGE"]
    assert row[:6] == [name, "1", "2", "1", "0", "0"]
    assert re.fullmatch(r"\d+s", row[6])
    assert wide_header[-1] == "IMAGE"
    assert wide[-1] == "registry.test/mac:1"
    assert kubectl("get", "rpool", name, "-o", "name") == f"runnerpool.remuda.dev/{name}\n"
    assert "maxConcurrentPercent: 5" in kubectl("get", "rpool", name, "-o", "yaml")


@pytest.mark.usefixtures("pool")
def test_describe_shows_spec_and_events(kubectl: Kubectl, name: str) -> None:
    described = kubectl("describe", "rpool", name)

    assert re.search(rf"Name: +{name}\n", described)
    assert re.search(r"Image: +registry.test/mac:1\n", described)
    assert re.search(r"Events: +<none>\n", described)


@pytest.mark.usefixtures("pool")
def test_scale_to_zero_and_back(kubectl: Kubectl, name: str) -> None:
    replicas = ("get", "rpool", name, "-o", "jsonpath={.spec.replicas}")

    assert "scaled" in kubectl("scale", "rpool", name, "--replicas=0")
    assert kubectl(*replicas) == "0"
    refused = kubectl("scale", "rpool", name, "--replicas=2", "--current-replicas=5", fails=True)
    assert "Expected replicas to be 5, was 0" in refused
    kubectl("scale", "rpool", name, "--replicas=3", "--current-replicas=0")
    assert kubectl(*replicas) == "3"


@pytest.mark.usefixtures("pool")
def test_patches_of_each_sort(kubectl: Kubectl, name: str) -> None:
    patch = ("patch", "rpool", name)

    kubectl(*patch, "--type=merge", "-p", '{"spec":{"replicas":4}}')
    kubectl(
        *patch,
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/spec/idleTimeoutSeconds","value":0}]',
    )

    spec = json.loads(kubectl("get", "rpool", name, "-o", "json"))["spec"]
    assert (spec["replicas"], spec["idleTimeoutSeconds"]) == (4, 0)
    unchanged = kubectl(*patch, "--type=merge", "-p", '{"spec":{"replicas":4}}')
    assert "patched (no change)" in unchanged
    strategic = kubectl(*patch, "-p", '{"spec":{"replicas":5}}', fails=True)
    assert "strategic-merge-patch+json is not supported" in strategic


@pytest.mark.usefixtures("pool")
def test_a_refusal_is_readable(kubectl: Kubectl, name: str) -> None:
    negative = kubectl(
        "patch", "rpool", name, "--type=merge", "-p", '{"spec":{"replicas":-3}}', fails=True
    )
    rule = kubectl(
        "patch", "rpool", name, "--type=merge", "-p", '{"spec":{"os":"linux"}}', fails=True
    )
    unknown = kubectl("apply", "-f", "-", stdin=POOL + "  spurs: 2\n", fails=True)

    assert f'The RunnerPool "{name}" is invalid' in negative
    assert "spec.replicas in body should be greater than or equal to 0" in negative
    assert "os cannot change" in rule
    assert 'unknown field "spec.spurs"' in unknown
    assert 'runnerpools.remuda.dev "nothing" not found' in kubectl(
        "get", "rpool", "nothing", fails=True
    )
    assert 'doesn\'t have a resource type "unicorns"' in kubectl("get", "unicorns", fails=True)


@pytest.mark.usefixtures("pool")
def test_labels_and_annotations(kubectl: Kubectl, name: str) -> None:
    kubectl("label", "rpool", name, "team=blue")
    refused = kubectl("label", "rpool", name, "team=red", fails=True)
    kubectl("label", "rpool", name, "team=red", "--overwrite")
    kubectl("annotate", "rpool", name, "note=two words")

    assert "already has a value (blue)" in refused
    assert "team=red" in kubectl("get", "rpool", "-l", "team=red", "--show-labels")
    note = kubectl("get", "rpool", name, "-o", "jsonpath={.metadata.annotations.note}")
    assert note == "two words"
    kubectl("label", "rpool", name, "team-")
    assert "No resources found" in kubectl("get", "rpool", "-l", "team=red")


@pytest.mark.usefixtures("pool")
def test_edit_in_an_editor(kubectl: Kubectl, name: str) -> None:
    edited = kubectl("edit", "rpool", name, editor="sed -i s/mac:1/mac:9/")

    assert f"runnerpool.remuda.dev/{name} edited" in edited
    assert kubectl("get", "rpool", name, "-o", "jsonpath={.spec.image}") == "registry.test/mac:9"
    same = kubectl("edit", "rpool", name, editor="true")
    assert "no changes made" in same


@pytest.mark.usefixtures("pool")
def test_wait_for_a_condition_a_value_and_the_end(kubectl: Kubectl, name: str) -> None:
    late = kubectl("wait", f"rpool/{name}", "--for=condition=Ready", "--timeout=1s", fails=True)
    ready = {"type": "Ready", "status": "True", "reason": "Warm", "message": "all warm"}
    status = {"warm": 0, "conditions": [{**ready, "lastTransitionTime": "2026-11-15T20:00:00Z"}]}
    patch = json.dumps({"status": status})
    kubectl("patch", "rpool", name, "--subresource=status", "--type=merge", "-p", patch)

    assert "timed out waiting for the condition" in late
    kubectl("wait", f"rpool/{name}", "--for=condition=Ready", "--timeout=10s")
    kubectl("wait", f"rpool/{name}", "--for=jsonpath={.status.warm}=0", "--timeout=10s")
    kubectl("delete", "rpool", name, "--wait=false")
    kubectl("wait", f"rpool/{name}", "--for=delete", "--timeout=10s")


@pytest.mark.usefixtures("pool")
def test_watch_prints_changes_as_they_come(kubectl: Kubectl, name: str) -> None:
    watch = ("get", "rpool", f"--field-selector=metadata.name={name}", "--watch")
    with kubectl.following(*watch) as lines:
        assert next(lines).split()[0] == "NAME"
        assert next(lines).split()[:2] == [name, "1"]
        kubectl("scale", "rpool", name, "--replicas=2")
        assert next(lines).split()[:2] == [name, "2"]
        kubectl("delete", "rpool", name)
        assert next(lines).split()[:2] == [name, "2"]


def test_explain_knows_every_field(kubectl: Kubectl) -> None:
    spec = kubectl("explain", "rpool.spec")
    zero = kubectl("explain", "runnerpool.spec.autoscaling.minWarm")
    tree = kubectl("explain", "host.spec", "--recursive")

    assert "KIND:       RunnerPool" in spec
    assert "-required-" in spec
    assert "0 means none" in re.sub(r"\s+", " ", zero)
    for field in ("provider", "static", "address", "scaleway", "keySecretRef", "capacity", "vms"):
        assert re.search(rf"\b{field}\t", tree), field


def test_api_resources_name_our_kinds(kubectl: Kubectl) -> None:
    rows = {row[0]: row for row in columns(kubectl("api-resources"))}

    assert rows["runnerpools"] == [
        "runnerpools",
        "rpool",
        "remuda.dev/v1alpha1",
        "true",
        "RunnerPool",
    ]
    assert {"pods", "nodes", "leases", "events", "customresourcedefinitions"} <= set(rows)
    assert "remuda.dev/v1alpha1" in kubectl("api-versions").splitlines()


def test_server_side_apply_is_refused_with_a_reason(kubectl: Kubectl, pool: str, name: str) -> None:
    for manifest in (pool, pool.replace(name, "not-there-yet")):
        refused = kubectl("apply", "--server-side", "-f", "-", stdin=manifest, fails=True)

        assert "server-side apply" in refused.lower()
        assert "NotFound" not in refused


def test_a_dry_run_changes_nothing(kubectl: Kubectl) -> None:
    dry = kubectl("create", "--dry-run=server", "-f", "-", stdin=POOL.replace("NAME", "dry"))

    assert "runnerpool.remuda.dev/dry created (server dry run)" in dry
    assert "NotFound" in kubectl("get", "rpool", "dry", fails=True)


def test_a_file_of_several_objects_goes_as_it_came(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    file.write_text("---".join(POOL.replace("NAME", f"several-{n}") for n in "abc"))

    created = kubectl("create", "-f", str(file))
    deleted = kubectl("delete", "-f", str(file))

    assert created.count("created") == 3
    assert deleted.count("deleted") == 3
    assert "several" not in kubectl("get", "rpool", "-o", "name")
