"""What is kept of a template that worked, and what is made from it later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.kube.proven import as_proven, remembered
from remuda.kube.runner_pod import template_hash
from remuda.kube.runner_pool import PROVEN_CHARS_MAX, ProvenTemplate, RunnerPool, RunnerPoolStatus
from tests.support.runner_pods import DOCKER, KATA, SETTINGS, a_runner_pool

NULLS = {"spec": {"terminationGracePeriodSeconds": None, "priorityClassName": "high"}}


def having(pool: RunnerPool, proven: ProvenTemplate | None) -> RunnerPool:
    return replace(pool, status=RunnerPoolStatus(proven_template=proven))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="a plain pool"),
        pytest.param({"os": "darwin"}, id="a pool of macOS VMs"),
        pytest.param({**KATA, "resources": {"cpu": 2, "memory": "4Gi"}}, id="Pods of a size"),
        pytest.param(DOCKER, id="Docker"),
        pytest.param({**KATA, "idleTimeoutSeconds": 7}, id="an idle timeout"),
        pytest.param({**KATA, "podSecurity": "unrestricted"}, id="an unrestricted pool"),
        pytest.param({"template": NULLS}, id="a template that takes something away"),
    ],
)
def test_what_is_kept_makes_the_very_same_pods(spec: dict[str, Any]) -> None:
    before = a_runner_pool(**spec)
    digest = template_hash(before, SETTINGS)
    same = {key: spec[key] for key in ("os",) if key in spec}
    after = having(a_runner_pool(image="bad", **same), remembered(before, digest))

    restored = as_proven(after)

    assert restored is not None
    assert template_hash(after, SETTINGS) != digest
    assert template_hash(restored, SETTINGS) == digest


def test_what_makes_no_pod_is_as_the_pool_says_now() -> None:
    before = a_runner_pool(replicas=3, labels=["a"])
    after = having(a_runner_pool(replicas=7, labels=["b"], image="bad"), remembered(before, "h"))

    restored = as_proven(after)

    assert restored is not None
    assert (restored.spec.replicas, restored.spec.labels) == (7, ("b",))
    assert restored.spec.image == before.spec.image
    assert (restored.name, restored.namespace, restored.uid) == (
        after.name,
        after.namespace,
        after.uid,
    )


def test_a_person_sees_the_hash_and_the_image() -> None:
    kept = remembered(a_runner_pool(image="registry.test/good:1"), "abc")

    assert kept is not None
    assert (kept.hash, kept.image) == ("abc", "registry.test/good:1")
    assert json.loads(kept.spec)["image"] == "registry.test/good:1"
    assert "replicas" not in json.loads(kept.spec)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"fleet": "another"}, id="the pool moved to another fleet"),
        pytest.param({"os": "darwin"}, id="it is of another operating system"),
    ],
)
def test_a_template_for_other_hosts_is_of_no_use(spec: dict[str, Any]) -> None:
    kept = remembered(a_runner_pool(), "h")

    assert as_proven(having(a_runner_pool(), kept)) is not None
    assert as_proven(having(a_runner_pool(**spec), kept)) is None


def test_nothing_is_remembered_of_a_new_pool() -> None:
    assert as_proven(a_runner_pool()) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "not JSON", '{"image": 5}'])
def test_what_cannot_be_read_is_of_no_use(text: str) -> None:
    broken = ProvenTemplate(hash="h", image="i", spec=text)

    assert as_proven(having(a_runner_pool(), broken)) is None


def test_a_template_that_is_too_large_is_not_kept() -> None:
    def noted(length: int) -> RunnerPool:
        return a_runner_pool(template={"metadata": {"annotations": {"note": "x" * length}}})

    assert remembered(noted(1000), "h") is not None
    assert remembered(noted(PROVEN_CHARS_MAX), "h") is None
