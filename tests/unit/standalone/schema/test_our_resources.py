from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.crd import schema_of
from remuda.kube.host import HOST
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.standalone.schema import StructuralSchema

POOLS = StructuralSchema(schema_of(RUNNER_POOL))
HOSTS = StructuralSchema(schema_of(HOST))

BUILDER = {
    "githubOrg": "acme",
    "labels": ["build"],
    "runnerVersion": "2.330.0",
    "appSecretRef": {"name": "app", "key": "pem"},
}
KEY = {"name": "k", "key": "id"}
STATIC = {"static": {"address": "10.0.0.1"}}
SCALEWAY = {"scaleway": {"zone": "fr-par-1", "type": "M2-M", "os": "Sequoia"}}


def a_pool(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    full = {"image": "i", "fleet": "f", "labels": ["a"], **spec}
    return POOLS.default({"metadata": {"name": spec.pop("name", "p")}, "spec": full})


def a_host(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    full = {"provider": STATIC, "ssh": {"user": "admin", "keySecretRef": KEY}, "fleet": "f", **spec}
    return HOSTS.default({"metadata": {"name": "h"}, "spec": full})


def a_schedule(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"name": "day", "cron": "0 8 * * 1-5", "durationSeconds": 3600, "minWarm": 1, **changes}


def faults(
    schema: StructuralSchema, obj: dict[str, Any], old: dict[str, Any] | None = None
) -> list[str]:
    return [
        c.field
        for c in schema.validate(obj, old)
        if not c.message.startswith("Invalid value: null: some")
    ]


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({}, [], id="the smallest pool"),
        pytest.param({"replicas": 0}, [], id="a pool of nothing"),
        pytest.param({"replicas": -1}, ["spec.replicas"], id="fewer than no runners"),
        pytest.param({"labels": []}, ["spec.labels"], id="a pool that serves no label"),
        pytest.param({"labels": ["a", "a"]}, ["spec.labels[1]", "spec.labels"], id="a label twice"),
        pytest.param({"labels": ["macOS", "macos"]}, ["spec.labels"], id="labels that differ in case only"),
        pytest.param({"labels": ["a,b"]}, ["spec.labels[0]"], id="a label with a comma"),
        pytest.param({"labels": [""]}, ["spec.labels[0]"], id="an empty label"),
        pytest.param({"labels": ["two words"]}, [], id="a label with a space"),
        pytest.param({"fleet": "Mac_Minis"}, ["spec.fleet"], id="a fleet that is no DNS label"),
        pytest.param({"image": ""}, ["spec.image"], id="an empty image"),
        pytest.param({"image": "a b"}, ["spec.image"], id="an image with a space"),
        pytest.param({"os": "windows"}, ["spec.os"], id="an unknown operating system"),
        pytest.param({"os": "darwin", "runtimeClassName": "kata"},
                     ["spec.runtimeClassName"], id="a runtime class on macOS"),
        pytest.param({"os": "linux", "runtimeClassName": "kata"}, [], id="a runtime class on Linux"),
        pytest.param({"resources": {"cpu": 2, "memory": "512Mi"}}, [], id="whole CPUs"),
        pytest.param({"resources": {"cpu": "500m"}}, [], id="half a CPU"),
        pytest.param({"resources": {"cpu": 0}}, ["spec.resources.cpu"], id="no CPU"),
        pytest.param({"resources": {"cpu": "0"}}, ["spec.resources.cpu"], id="no CPU, as text"),
        pytest.param({"resources": {"memory": "8"}}, ["spec.resources.memory"], id="memory without a unit"),
        pytest.param({"resources": {"memory": "0Gi"}}, ["spec.resources.memory"], id="no memory"),
        pytest.param({"rollout": {"maxConcurrentPercent": 0}},
                     ["spec.rollout.maxConcurrentPercent"], id="a roll of nothing"),
        pytest.param({"rollout": {"maxConcurrentPercent": 101}},
                     ["spec.rollout.maxConcurrentPercent"], id="a roll of more than all"),
        pytest.param({"provisioning": {"maxConcurrent": 0}},
                     ["spec.provisioning.maxConcurrent"], id="no start at all"),
        pytest.param({"provisioning": {"startTimeoutSeconds": 0}}, [], id="no start deadline"),
        pytest.param({"autoscaling": {"enabled": True}},
                     ["spec.autoscaling.maxReplicas"], id="autoscaling without a limit"),
        pytest.param({"autoscaling": {"enabled": False}}, [], id="no autoscaling, no limit"),
        pytest.param({"autoscaling": {"enabled": True, "maxReplicas": 5, "minWarm": 5}},
                     [], id="as warm as the limit"),
        pytest.param({"autoscaling": {"enabled": True, "maxReplicas": 5, "minWarm": 6}},
                     ["spec.autoscaling.minWarm"], id="warmer than the limit"),
        pytest.param({"autoscaling": {"maxReplicas": 5, "schedules": [a_schedule(minWarm=6)]}},
                     ["spec.autoscaling.schedules"], id="a schedule warmer than the limit"),
        pytest.param({"autoscaling": {"schedules": [a_schedule(), a_schedule()]}},
                     ["spec.autoscaling.schedules[1]"], id="two schedules of one name"),
        pytest.param({"autoscaling": {"schedules": [a_schedule(cron="8am")]}},
                     ["spec.autoscaling.schedules[0].cron"], id="a cron of one field"),
        pytest.param({"autoscaling": {"schedules": [a_schedule(timeZone="Europe/Berlin")]}}, [], id="a time zone"),
        pytest.param({"autoscaling": {"schedules": [a_schedule(timeZone="+02:00")]}},
                     ["spec.autoscaling.schedules[0].timeZone"], id="an offset is no time zone"),
        pytest.param({"forks": "maybe"}, ["spec.forks"], id="an undecided fork policy"),
        pytest.param({"template": {"spec": {"anything": [1]}}}, [], id="a free template"),
        pytest.param({"template": "x"}, ["spec.template"], id="a template that is no object"),
    ],
)  # fmt: skip
def test_pools(spec: dict[str, Any], fields: list[str]) -> None:
    assert faults(POOLS, a_pool(**spec)) == fields


def test_a_pools_operating_system_cannot_change() -> None:
    (cause,) = POOLS.validate(a_pool(os="darwin"), a_pool(os="linux"))

    assert (cause.field, cause.reason) == ("spec.os", "FieldValueForbidden")
    assert "Create another pool" in cause.message


def test_a_pools_name_leaves_room_for_its_runners() -> None:
    long, longer = (a_pool() | {"metadata": {"name": "p" * n}} for n in (52, 53))

    assert faults(POOLS, long) == []
    assert faults(POOLS, longer) == ["<nil>"]


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({}, [], id="a static host"),
        pytest.param({"provider": SCALEWAY}, [], id="a Scaleway host"),
        pytest.param({"provider": {}}, ["spec.provider"], id="a host from nowhere"),
        pytest.param({"provider": STATIC | SCALEWAY}, ["spec.provider"], id="a host from two places"),
        pytest.param({"provider": {"static": {"address": "a", "port": 0}}},
                     ["spec.provider.static.port"], id="port 0"),
        pytest.param({"ssh": {"user": "admin"}}, ["spec.ssh"], id="nothing to log in with"),
        pytest.param({"ssh": {"user": "admin", "passwordSecretRef": KEY}}, [], id="a password alone"),
        pytest.param({"ssh": {"user": "Bad User", "keySecretRef": KEY}},
                     ["spec.ssh.user"], id="a user name with a space"),
        pytest.param({"role": "builder"}, ["spec.builder"], id="a builder without its settings"),
        pytest.param({"role": "builder", "builder": BUILDER}, [], id="a builder"),
        pytest.param({"builder": BUILDER}, ["spec.builder"], id="builder settings on a runner host"),
        pytest.param({"capacity": {"vms": -1}}, ["spec.capacity.vms"], id="fewer than no VMs"),
        pytest.param({"fleet": ""}, ["spec.fleet"], id="no fleet"),
    ],
)  # fmt: skip
def test_hosts(spec: dict[str, Any], fields: list[str]) -> None:
    assert faults(HOSTS, a_host(**spec)) == fields


def test_a_hosts_provider_cannot_change_but_its_address_can() -> None:
    moved = {"static": {"address": "10.0.0.2"}}

    assert faults(HOSTS, a_host(provider=moved), a_host()) == []
    assert faults(HOSTS, a_host(provider=SCALEWAY), a_host()) == ["spec.provider"]
