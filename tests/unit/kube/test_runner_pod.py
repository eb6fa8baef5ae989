from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from remuda.kube.core import Pod
from remuda.kube.names import image_label
from remuda.kube.pod_security import violations
from remuda.kube.runner_pod import (
    Placement,
    PodSettings,
    TemplateRefused,
    runner_pod,
    runner_template,
    service_account,
    template_hash,
)
from remuda.model.errors import Retry
from tests.support.runner_pods import (
    DOCKER,
    IMAGE,
    KATA,
    SETTINGS,
    a_runner_pool,
    container,
    env,
    pod_of,
)

EVERY_KIND = [
    pytest.param({"os": "darwin"}, id="a macOS VM"),
    pytest.param({"os": "linux"}, id="a Linux VM"),
    pytest.param(KATA, id="a Kata Pod"),
    pytest.param(DOCKER, id="a Kata Pod with Docker"),
]


def mounts(found: dict[str, Any]) -> dict[str, str]:
    return {m["name"]: "ro" if m.get("readOnly") else "rw" for m in found.get("volumeMounts", [])}


# --- every runner -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_every_runner_is_single_use_has_its_own_identity_and_nobody_that_owns_it(
    spec: dict[str, Any],
) -> None:
    pool = a_runner_pool(**spec)
    pod, account = pod_of(pool), service_account(pool, "mac-1")

    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["metadata"]["name"] == pod["spec"]["serviceAccountName"] == account.name == "mac-1"
    assert pod["metadata"]["namespace"] == account.namespace == "runners"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert account.automount_service_account_token is False
    assert "ownerReferences" not in pod["metadata"]
    assert account.metadata.owner_references == ()
    assert account.labels == {"remuda.dev/runner": "true", "remuda.dev/pool": "mac"}
    assert pod["metadata"]["labels"] == {
        **account.labels,
        "remuda.dev/template": template_hash(pool, SETTINGS),
    }


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_every_runner_declares_the_token_of_dispatch_and_no_job_can_read_it(
    spec: dict[str, Any],
) -> None:
    pod = pod_of(a_runner_pool(**spec))

    [token] = [v for v in pod["spec"]["volumes"] if "projected" in v]
    [source] = token["projected"]["sources"]
    holders = [
        c["name"]
        for c in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        if token["name"] in mounts(c)
    ]
    assert source["serviceAccountToken"]["audience"] == "remuda-dispatch"
    assert holders == (["poller"] if "runtimeClassName" in spec else [])


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_the_size_of_a_runner_is_its_request_and_its_limit(spec: dict[str, Any]) -> None:
    pool = a_runner_pool(**spec, resources={"cpu": 6, "memory": "14Gi"})

    resources = container(pod_of(pool))["resources"]

    assert resources["requests"] == resources["limits"]
    assert (resources["limits"]["cpu"], resources["limits"]["memory"]) == ("6", "14Gi")
    assert resources["limits"].get("remuda.dev/vm") == (None if "runtimeClassName" in spec else "1")


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_runners_stay_in_their_fleet_and_with_a_silent_host(spec: dict[str, Any]) -> None:
    spec_of_pod = pod_of(a_runner_pool(**spec))["spec"]

    patient = {
        t["key"]
        for t in spec_of_pod["tolerations"]
        if t["effect"] == "NoExecute" and "tolerationSeconds" not in t
    }
    assert spec_of_pod["nodeSelector"] == {
        "remuda.dev/fleet": "barn",
        "kubernetes.io/os": spec.get("os", "linux"),
    }
    assert patient == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_the_idle_timeout_is_told_only_where_there_is_one(spec: dict[str, Any]) -> None:
    told = env(container(pod_of(a_runner_pool(**spec, idleTimeoutSeconds=60))))
    untold = env(container(pod_of(a_runner_pool(**spec, idleTimeoutSeconds=0))))

    assert told["REMUDA_IDLE_TIMEOUT_SECONDS"] == "60"
    assert "REMUDA_IDLE_TIMEOUT_SECONDS" not in untold


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_what_we_make_we_can_read(spec: dict[str, Any]) -> None:
    body = runner_pod(a_runner_pool(**spec), "mac-1", SETTINGS, Placement(("a",), "b"))

    assert msgspec.json.decode(body, type=Pod).name == "mac-1"


# --- VMs --------------------------------------------------------------------------------------------------------------


def test_a_vm_is_one_container_on_a_vm_host_near_its_image() -> None:
    spec = pod_of(a_runner_pool(os="darwin"))["spec"]

    [runner] = spec["containers"]
    [wish] = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (runner["name"], runner["image"]) == ("runner", IMAGE)
    assert "initContainers" not in spec
    assert "runtimeClassName" not in spec
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in spec["affinity"]["nodeAffinity"]
    assert wish["weight"] == 100
    assert wish["preference"]["matchExpressions"] == [
        {"key": image_label(IMAGE), "operator": "In", "values": ["ready"]}
    ]
    assert {"key": "remuda.dev/vm-host", "operator": "Exists", "effect": "NoSchedule"} in spec[
        "tolerations"
    ]
    assert env(runner)["REMUDA_POOL"] == "mac"


# --- Kata -------------------------------------------------------------------------------------------------------------


def test_the_poller_holds_the_credential_and_the_runner_holds_nothing() -> None:
    pod = pod_of(a_runner_pool(**KATA))

    poller, runner = container(pod, "poller"), container(pod)
    assert pod["spec"]["runtimeClassName"] == "kata-qemu"
    assert (poller["image"], poller["command"]) == (SETTINGS.poller_image, ["remuda", "poller"])
    assert mounts(poller) == {"remuda-token": "ro", "mailbox": "rw"}
    assert mounts(runner) == {"mailbox": "rw", "work": "rw"}
    assert env(poller) == {
        "REMUDA_DISPATCH_URL": "https://dispatch.test",
        "REMUDA_POOL": "mac",
        "REMUDA_POD_NAME": "metadata.name",
        "REMUDA_POD_UID": "metadata.uid",
        "REMUDA_TOKEN_FILE": "/var/run/secrets/remuda.dev/token",
        "REMUDA_MAILBOX": "/run/remuda/mailbox",
    }
    assert env(runner) == {
        "REMUDA_MAILBOX": "/run/remuda/mailbox",
        "REMUDA_WORK": "/work",
        "REMUDA_IDLE_TIMEOUT_SECONDS": "300",
    }


def test_a_kata_pod_does_not_go_to_a_vm_host() -> None:
    tolerated = {t["key"] for t in pod_of(a_runner_pool(**KATA))["spec"]["tolerations"]}

    assert "remuda.dev/vm-host" not in tolerated


def test_without_an_image_of_its_own_the_poller_uses_the_pools() -> None:
    plain = replace(SETTINGS, poller_image="")

    pod = json.loads(runner_pod(a_runner_pool(**KATA), "mac-1", plain))

    assert container(pod, "poller")["image"] == IMAGE


# --- Docker -----------------------------------------------------------------------------------------------------------


def test_docker_is_a_sidecar_that_is_up_before_a_job_is_taken() -> None:
    pod = pod_of(a_runner_pool(**DOCKER))

    dind, runner = container(pod, "dind"), container(pod)
    assert [c["name"] for c in pod["spec"]["initContainers"]] == ["dind", "poller"]
    assert dind["restartPolicy"] == "Always"
    assert dind["securityContext"]["privileged"] is True
    assert "startupProbe" in dind
    assert mounts(dind)["docker-socket"] == mounts(runner)["docker-socket"] == "rw"
    assert env(runner)["DOCKER_HOST"] == "unix:///run/remuda/docker/docker.sock"
    assert "privileged" not in container(pod, "poller")["securityContext"]


@pytest.mark.parametrize(
    ("spec", "patterns"),
    [
        pytest.param({}, ("kata*",), id="a VM of the agent has no place for it"),
        pytest.param({"runtimeClassName": "runc"}, ("kata*",), id="runc shares the host's kernel"),
        pytest.param(
            {"runtimeClassName": "gvisor"}, ("kata*", "firecracker"), id="none of several"
        ),
        pytest.param({"runtimeClassName": "kata-qemu"}, (), id="no class counts as a VM"),
        pytest.param({"runtimeClassName": "not-kata-qemu"}, ("kata*",), id="not by its end"),
    ],
)
def test_docker_is_refused_where_the_pod_is_no_vm_of_its_own(
    spec: dict[str, Any], patterns: tuple[str, ...]
) -> None:
    pool = a_runner_pool(**spec, docker={"enabled": True}, podSecurity="unrestricted")
    settings = replace(SETTINGS, vm_runtime_classes=patterns)

    with pytest.raises(TemplateRefused, match=r"spec\.docker: .*would own the host") as refusal:
        template_hash(pool, settings)

    assert refusal.value.retry is Retry.NEVER


def test_docker_is_refused_where_the_pool_is_restricted() -> None:
    pool = a_runner_pool(**{**DOCKER, "podSecurity": "restricted"})

    with pytest.raises(TemplateRefused, match="privileged"):
        template_hash(pool, SETTINGS)


# --- Pod Security -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", EVERY_KIND[:3])
def test_runners_keep_to_the_restricted_standard(spec: dict[str, Any]) -> None:
    assert violations(pod_of(a_runner_pool(**spec))["spec"]) == ()


def test_an_unrestricted_runner_is_as_its_image_says_but_the_poller_stays_restricted() -> None:
    pod = pod_of(a_runner_pool(**KATA, podSecurity="unrestricted"))

    named = {text.split(".")[1] for text in violations(pod["spec"])}
    assert "securityContext" not in container(pod)
    assert named == {"containers[runner]"}


# --- the hash ---------------------------------------------------------------------------------------------------------

ENV = {"spec": {"containers": [{"name": "runner", "env": [{"name": "A", "value": "1"}]}]}}
OTHER_ENV = {"spec": {"containers": [{"name": "runner", "env": [{"name": "A", "value": "2"}]}]}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"image": "other"}, id="the image"),
        pytest.param({}, {"resources": {"cpu": 5}}, id="the CPUs"),
        pytest.param({}, {"resources": {"memory": "9Gi"}}, id="the memory"),
        pytest.param({}, {"fleet": "other"}, id="the fleet"),
        pytest.param({}, {"idleTimeoutSeconds": 1}, id="the idle timeout"),
        pytest.param({}, {"podSecurity": "unrestricted"}, id="Pod Security"),
        pytest.param({}, KATA, id="the runtime"),
        pytest.param(KATA, {"runtimeClassName": "kata-clh"}, id="the runtime class"),
        pytest.param({**KATA, "podSecurity": "unrestricted"}, DOCKER, id="Docker"),
        pytest.param(DOCKER, {"docker": {"enabled": True, "image": "o"}}, id="Docker's image"),
        pytest.param({}, {"template": ENV}, id="a variable added"),
        pytest.param({"template": ENV}, {"template": OTHER_ENV}, id="a variable changed"),
        pytest.param({}, {"template": {"metadata": {"labels": {"a": "b"}}}}, id="a label of Pods"),
        pytest.param({}, {"template": {"metadata": {"annotations": {"a": "b"}}}}, id="a note"),
        pytest.param({}, {"template": {"spec": {"priorityClassName": "x"}}}, id="any other field"),
    ],
)
def test_what_changes_the_pod_changes_the_hash(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    old = template_hash(a_runner_pool(**before), SETTINGS)
    new = template_hash(a_runner_pool(**{**before, **after}), SETTINGS)

    assert old != new


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(replace(SETTINGS, dispatch_url="https://other.test"), id="dispatch's address"),
        pytest.param(replace(SETTINGS, poller_image="other"), id="the poller's image"),
    ],
)
def test_what_the_operator_says_of_pods_changes_the_hash(settings: PodSettings) -> None:
    pool = a_runner_pool(**KATA)

    assert template_hash(pool, settings) != template_hash(pool, SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"replicas": 9}, id="replicas"),
        pytest.param({"autoscaling": {"enabled": True, "maxReplicas": 4}}, id="autoscaling"),
        pytest.param({"rollout": {"paused": True}}, id="rollout"),
        pytest.param({"provisioning": {"maxConcurrent": 1}}, id="provisioning"),
        pytest.param({"labels": ["other"]}, id="runs-on labels"),
        pytest.param({"forks": "allow"}, id="forks"),
        pytest.param({"template": {}}, id="an empty template"),
        pytest.param({"template": {"metadata": {}, "spec": {}}}, id="a template that says nothing"),
        pytest.param({"resources": {"cpu": "4", "memory": "8Gi"}}, id="a default, spelled out"),
    ],
)
@pytest.mark.parametrize("kind", [{}, KATA], ids=["VM", "Kata"])
def test_what_does_not_change_the_pod_rolls_nobody(
    kind: dict[str, Any], change: dict[str, Any]
) -> None:
    old = template_hash(a_runner_pool(**kind), SETTINGS)

    assert template_hash(a_runner_pool(**kind, **change), SETTINGS) == old


def test_name_and_placement_are_not_in_the_hash() -> None:
    template = runner_template(a_runner_pool(), SETTINGS)

    bodies = [template.pod("a"), template.pod("b"), template.pod("a", Placement(("x",), "y"))]

    labels = [json.loads(body)["metadata"]["labels"]["remuda.dev/template"] for body in bodies]
    assert len(set(bodies)) == 3
    assert set(labels) == {template.hash}


def reversed_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_in_a_template_rolls_nobody() -> None:
    template = {
        "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3", "d": "4"}},
        "spec": {
            "priorityClassName": "x",
            "nodeSelector": {"disk": "fast", "zone": "a"},
            "containers": [{"name": "runner", "imagePullPolicy": "Always", "stdin": True}],
        },
    }
    swapped = reversed_keys(template)

    assert json.dumps(swapped) != json.dumps(template)
    assert template_hash(a_runner_pool(template=template), SETTINGS) == template_hash(
        a_runner_pool(template=swapped), SETTINGS
    )


IN_ANOTHER_PROCESS = """
from tests.support.runner_pods import *
from remuda.kube.runner_pod import template_hash
print(template_hash(a_runner_pool(**DOCKER, template={"spec": {"nodeSelector": {"b": "1", "a": "2"}}}), SETTINGS))
"""


def test_every_process_finds_the_same_hash() -> None:
    found = {
        subprocess.run(  # noqa: S603 - this very Python
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("0", "1", "2")
    }

    [hash_] = found
    assert len(hash_) == 12
    assert set(hash_) <= set("0123456789abcdef")
