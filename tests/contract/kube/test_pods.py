"""Pods: what is filled in, what may change, how they are bound, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import POD
from remuda.ports.kube import Conflict, NotFound, Seen
from tests.support.manifests import a_pod

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.raw import Answer, Json, Raw
    from tests.support.space import Space

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}
IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


async def create(raw: Raw, space: Space, name: str = "mare", **spec: Json) -> Answer:
    answer = await raw.post(space.path("pods"), a_pod(name, **spec))
    answer.ok()
    return answer


def a_binding(node: str) -> Json:
    return {"metadata": {"name": "mare"}, "target": {"kind": "Node", "name": node}}


async def test_a_new_pod_is_filled_in(raw: Raw, space: Space) -> None:
    pod = (await create(raw, space, automountServiceAccountToken=False)).body

    container = pod["spec"].pop("containers")[0]
    assert pod["spec"] == {
        "automountServiceAccountToken": False,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "nobody",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [NOT_READY, UNREACHABLE],
    }
    assert container == {
        "name": "runner",
        "image": "registry.test/runner:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        pytest.param("runner", "Always", id="no tag means the latest"),
        pytest.param("runner:latest", "Always", id="the latest"),
        pytest.param("registry.test:5000/runner", "Always", id="a port is no tag"),
        pytest.param("runner:1", "IfNotPresent", id="a tag"),
        pytest.param(f"runner@sha256:{'0' * 64}", "IfNotPresent", id="a digest"),
    ],
)
async def test_the_pull_policy_follows_the_image(
    raw: Raw, space: Space, image: str, policy: str
) -> None:
    pod = await create(raw, space, containers=[{"name": "runner", "image": image}])

    assert pod.body["spec"]["containers"][0]["imagePullPolicy"] == policy


async def test_limits_become_requests_and_decide_the_quality_of_service(
    raw: Raw, space: Space
) -> None:
    def sized(**resources: Json) -> list[Json]:
        return [{"name": "runner", "image": "runner:1", "resources": resources}]

    full = {"cpu": "4", "memory": "8Gi"}
    vm = {"remuda.dev/vm": "1"}
    guaranteed = await create(raw, space, "a", containers=sized(limits={**full, **vm}))
    burstable = await create(raw, space, "b", containers=sized(requests={"cpu": "1"}))
    only_vm = await create(raw, space, "c", containers=sized(limits=vm))

    assert guaranteed.body["spec"]["containers"][0]["resources"]["requests"] == {**full, **vm}
    assert guaranteed.body["status"]["qosClass"] == "Guaranteed"
    assert burstable.body["status"]["qosClass"] == "Burstable"
    assert only_vm.body["status"]["qosClass"] == "BestEffort"


async def test_explicit_zeros_of_a_pod_survive(raw: Raw, space: Space) -> None:
    pod = await create(raw, space, terminationGracePeriodSeconds=0, priority=0)

    assert pod.body["spec"]["terminationGracePeriodSeconds"] == 0
    read = await raw.get(space.path("pods", "mare"))
    assert read.body["spec"]["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        pytest.param(
            {"containers": []},
            422,
            'Pod "mare" is invalid: spec.containers: Required value',
            id="without containers",
        ),
        pytest.param(
            {"containers": [{"name": "runner"}]},
            422,
            'Pod "mare" is invalid: spec.containers[0].image: Required value',
            id="without an image",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            422,
            'Pod "mare" is invalid: spec.restartPolicy: Unsupported value: "Sometimes": supported values: '
            '"Always", "OnFailure", "Never"',
            id="with an unknown restart policy",
        ),
        pytest.param(
            {
                "containers": [
                    {
                        "name": "runner",
                        "image": "runner",
                        "resources": {"requests": {"remuda.dev/vm": "1"}},
                    }
                ]
            },
            422,
            'Pod "mare" is invalid: spec.containers[0].resources.limits: Required value: Limit must be set for '
            "non overcommitable resources",
            id="with a VM requested but not limited",
        ),
        pytest.param(
            {"serviceAccountName": "nobody"},
            403,
            'pods "mare" is forbidden: error looking up service account {space}/nobody: serviceaccount "nobody" '
            "not found",
            id="of a ServiceAccount that is not there",
        ),
    ],
)
async def test_a_pod_is_refused(
    raw: Raw, space: Space, spec: Json, code: int, message: str
) -> None:
    answer = await raw.post(space.path("pods"), a_pod("mare", **spec))

    assert answer.refusal[0] == code
    assert answer.refusal[2] == message.replace("{space}", space.name)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"restartPolicy": "Never"}, id="the restart policy"),
        pytest.param({"nodeName": "mac-1"}, id="the node"),
        pytest.param({"serviceAccountName": "other"}, id="the ServiceAccount"),
    ],
)
async def test_a_pod_does_not_change(raw: Raw, space: Space, change: Json) -> None:
    await create(raw, space)

    answer = await raw.merge(space.path("pods", "mare"), {"spec": change})

    assert answer.status == 422
    assert answer.body["message"].startswith(f'Pod "mare" is invalid: spec: Forbidden: {IMMUTABLE}')
    assert answer.causes[0][:2] == ("spec", "FieldValueForbidden")


async def test_image_deadline_and_tolerations_of_a_pod_may_change(raw: Raw, space: Space) -> None:
    await create(raw, space)
    path = space.path("pods", "mare")
    toleration = {"key": "remuda.dev/vm-host", "operator": "Exists"}

    image = await raw.strategic(
        path, {"spec": {"containers": [{"name": "runner", "image": "runner:2"}]}}
    )
    deadline = await raw.merge(path, {"spec": {"activeDeadlineSeconds": 60}})
    tolerations = await raw.json_patch(
        path, {"op": "add", "path": "/spec/tolerations/-", "value": toleration}
    )
    label = await raw.merge(path, {"metadata": {"labels": {"remuda.dev/owner": "acme"}}})

    assert image.ok()["spec"]["containers"][0]["image"] == "runner:2"
    assert deadline.ok()["spec"]["activeDeadlineSeconds"] == 60
    assert tolerations.ok()["spec"]["tolerations"] == [NOT_READY, UNREACHABLE, toleration]
    generations = [a.body["metadata"]["generation"] for a in (image, deadline, tolerations, label)]
    assert generations == [2, 3, 4, 4]


async def test_status_and_the_rest_are_written_apart(raw: Raw, space: Space) -> None:
    created = await create(raw, space)
    path = space.path("pods", "mare")

    ignored = await raw.merge(path, {"status": {"phase": "Running"}})
    written = await raw.merge(
        space.path("pods", "mare", "status"),
        {"status": {"phase": "Running"}, "spec": {"nodeName": "mac-1"}},
    )

    assert ignored.ok()["status"]["phase"] == "Pending"
    assert ignored.version == created.version
    assert written.ok()["status"]["phase"] == "Running"
    assert "nodeName" not in written.body["spec"]
    assert written.body["metadata"]["generation"] == 1


async def test_conditions_merge_by_type_in_a_strategic_patch(raw: Raw, space: Space) -> None:
    await create(raw, space)
    path = space.path("pods", "mare", "status")

    for condition in ("Ready", "remuda.dev/JobDelivered", "Ready"):
        patch = {"status": {"conditions": [{"type": condition, "status": "True"}]}}
        (await raw.strategic(path, patch)).ok()

    pod = await raw.get(space.path("pods", "mare"))
    conditions = [c["type"] for c in pod.ok()["status"]["conditions"]]
    assert sorted(conditions) == ["Ready", "remuda.dev/JobDelivered"]


async def test_a_binding_sets_the_node_once(raw: Raw, space: Space) -> None:
    await create(raw, space)
    path = space.path("pods", "mare", "binding")

    bound = await raw.post(path, a_binding("mac-1"))

    assert bound.status == 201
    assert bound.body["status"] == "Success"
    pod = await raw.get(space.path("pods", "mare"))
    assert pod.body["spec"]["nodeName"] == "mac-1"
    condition = pod.body["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    for node in ("mac-1", "mac-2"):
        again = await raw.post(path, a_binding(node))
        assert again.refusal == (
            409,
            "Conflict",
            'Operation cannot be fulfilled on pods/binding "mare": pod mare is already assigned to node "mac-1"',
        )


async def test_a_binding_of_nothing_is_not_found(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("pods", "mare", "binding"), a_binding("mac-1"))

    assert answer.refusal == (404, "NotFound", 'pods "mare" not found')


async def test_an_unbound_pod_is_deleted_at_once(kube: Kube, raw: Raw, space: Space) -> None:
    await create(raw, space)

    answer = await raw.delete(space.path("pods", "mare"))

    assert answer.ok()["kind"] == "Pod"
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    with pytest.raises(NotFound):
        await kube.get(POD, "mare", namespace=space.name)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_is_deleted_at_once(
    kube: Kube, raw: Raw, space: Space, phase: str
) -> None:
    await create(raw, space, nodeName="mac-1")
    (await raw.merge(space.path("pods", "mare", "status"), {"status": {"phase": phase}})).ok()

    await kube.delete(POD, "mare", namespace=space.name)

    with pytest.raises(NotFound):
        await kube.get(POD, "mare", namespace=space.name)


async def test_a_bound_pod_waits_for_its_node(kube: Kube, raw: Raw, space: Space) -> None:
    created = await create(raw, space, nodeName="mac-1", terminationGracePeriodSeconds=7)

    await kube.delete(POD, "mare", namespace=space.name)

    pod = await kube.get(POD, "mare", namespace=space.name)
    assert pod.metadata.deletion_timestamp is not None
    assert pod.metadata.deletion_grace_period_seconds == 7
    assert pod.metadata.generation == 2
    await kube.delete(POD, "mare", namespace=space.name)
    assert await kube.get(POD, "mare", namespace=space.name) == pod, "asking again changes nothing"

    with pytest.raises(Conflict):
        await kube.delete(POD, "mare", namespace=space.name, grace_s=0, seen=Seen(uid="another"))
    await kube.delete(POD, "mare", namespace=space.name, grace_s=0, seen=Seen(uid=created.uid))
    with pytest.raises(NotFound):
        await kube.get(POD, "mare", namespace=space.name)


async def test_a_deletion_can_be_hurried_but_not_put_off(raw: Raw, space: Space) -> None:
    await create(raw, space, nodeName="mac-1")
    path = space.path("pods", "mare")

    graces = [
        (await raw.delete(path, {"gracePeriodSeconds": seconds})).ok()["metadata"][
            "deletionGracePeriodSeconds"
        ]
        for seconds in (100, 10, 500)
    ]

    assert graces == [100, 10, 10]


async def test_a_pods_finalizer_outlives_its_grace(raw: Raw, space: Space) -> None:
    path = space.path("pods", "mare")
    pod = a_pod("mare", meta={"finalizers": ["remuda.dev/vm-cleanup"]}, nodeName="mac-1")
    (await raw.post(space.path("pods"), pod)).ok()

    (await raw.delete(path, gracePeriodSeconds="0")).ok()

    held = await raw.get(path)
    assert held.ok()["metadata"]["deletionTimestamp"]
    (await raw.merge(path, {"metadata": {"finalizers": None}})).ok()
    assert (await raw.get(path)).status == 404


async def test_a_pod_freed_of_its_finalizer_still_waits_out_its_grace(
    raw: Raw, space: Space
) -> None:
    path = space.path("pods", "mare")
    pod = a_pod("mare", meta={"finalizers": ["remuda.dev/vm-cleanup"]}, nodeName="mac-1")
    (await raw.post(space.path("pods"), pod)).ok()
    (await raw.delete(path)).ok()

    (await raw.merge(path, {"metadata": {"finalizers": None}})).ok()

    assert (await raw.get(path)).status == 200, "the node has not said that it has stopped"
    (await raw.delete(path, gracePeriodSeconds="0")).ok()
    assert (await raw.get(path)).status == 404
