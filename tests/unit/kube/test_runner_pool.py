from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, structs

from remuda.kube.host import Host, Role
from remuda.kube.patches import merge_patch
from remuda.kube.runner_pool import OperatingSystem, RunnerPool, RunnerPoolStatus


def a_pool(**spec: Any) -> RunnerPool:  # noqa: ANN401 - JSON
    body = {
        "metadata": {"name": "mac"},
        "spec": {"image": "i", "fleet": "f", "labels": ["a"], **spec},
    }
    return msgspec.convert(body, RunnerPool)


def encoded(pool: RunnerPool) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pool))
    return found


def test_defaults_are_read_as_plain_values() -> None:
    spec = a_pool().spec

    assert spec.os is OperatingSystem.LINUX
    assert spec.replicas == 1
    assert (spec.resources.cpu, spec.resources.memory) == (4, "8Gi")
    assert spec.rollout.max_concurrent_percent == 5
    assert spec.rollout.stage.max_concurrent == 2
    assert spec.autoscaling.max_replicas is UNSET
    assert spec.provisioning.start_timeout_seconds == 300


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"replicas": 0}, id="no replicas"),
        pytest.param({"idleTimeoutSeconds": 0}, id="no idle timeout"),
        pytest.param(
            {"autoscaling": {"minWarm": 0, "scaleDownCooldownSeconds": 0}}, id="no warm runners"
        ),
        pytest.param({"provisioning": {"startTimeoutSeconds": 0}}, id="no start timeout"),
    ],
)
def test_an_explicit_zero_survives_reading_and_writing(spec: dict[str, Any]) -> None:
    written = encoded(a_pool(**spec))["spec"]

    for key, value in spec.items():
        kept = written[key]
        assert kept == value if isinstance(value, int) else value.items() <= kept.items()


def test_a_patch_names_the_touched_key_only_even_if_it_becomes_zero_or_the_default() -> None:
    before = a_pool(replicas=3)

    for replicas in (0, 1):
        after = structs.replace(before, spec=structs.replace(before.spec, replicas=replicas))
        assert merge_patch(before, after).changes == {"spec": {"replicas": replicas}}


def test_the_template_is_kept_as_it_is() -> None:
    template = {"spec": {"tolerations": [{"key": "x", "unknown": None}]}}

    assert encoded(a_pool(template=template))["spec"]["template"] == template


def test_the_first_status_writes_its_zeros() -> None:
    before = a_pool()
    after = structs.replace(before, status=RunnerPoolStatus(warm=0, busy=0))

    assert merge_patch(before, after).changes == {"status": {"warm": 0, "busy": 0}}


def test_a_value_out_of_bounds_is_still_read() -> None:
    # It may have been stored under an older schema; a list with it in must be readable.
    assert a_pool(rollout={"maxConcurrentPercent": 900}).spec.rollout.max_concurrent_percent == 900


def test_a_host_reads_with_its_defaults() -> None:
    body = {
        "metadata": {"name": "m1"},
        "spec": {
            "provider": {"static": {"address": "10.0.0.1"}},
            "ssh": {"user": "admin", "keySecretRef": {"name": "k", "key": "id"}},
            "fleet": "mac",
        },
    }
    spec = msgspec.convert(body, Host).spec

    assert spec.role is Role.RUNNER
    assert spec.capacity.vms == 2
    assert spec.provider.static is not UNSET
    assert spec.provider.static.port == 22
    assert spec.provider.scaleway is UNSET
