"""What a pool's template can get wrong about a Pod, and how it is told: the same here as on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import a_pod

if TYPE_CHECKING:
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
IN_CONTAINER = "spec.containers[0]"
IN_TERM = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
SCRATCH: Json = {"name": "scratch", "emptyDir": {}}


def container(**more: Json) -> Json:
    return {"containers": [{"name": "runner", "image": "runner:1", **more}]}


def limits(**amounts: str) -> Json:
    return container(resources={"limits": {k.replace("_", "/"): v for k, v in amounts.items()}})


def needs(**expression: Json) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


def tolerates(**toleration: Json) -> Json:
    return {"tolerations": [toleration]}


@pytest.mark.parametrize(
    ("spec", "field", "reason", "text"),
    [
        pytest.param(
            container(env=[{"name": ""}]), f"{IN_CONTAINER}.env[0].name",
            "FieldValueRequired", "Required value", id="a variable without a name",
        ),
        pytest.param(
            container(env=[{"name": "A=B"}]), f"{IN_CONTAINER}.env[0].name",
            "FieldValueInvalid", "printable ASCII characters other than '='", id="a variable with =",
        ),
        pytest.param(
            container(volumeMounts=[{"name": "scratch", "mountPath": "/s"}]), f"{IN_CONTAINER}.volumeMounts[0].name",
            "FieldValueNotFound", 'Not found: "scratch"', id="a mount of nothing",
        ),
        pytest.param(
            {"volumes": [SCRATCH], **container(volumeMounts=[{"name": "scratch", "mountPath": ""}])},
            f"{IN_CONTAINER}.volumeMounts[0].mountPath", "FieldValueRequired", "Required value", id="a mount nowhere",
        ),
        pytest.param(
            {"volumes": [SCRATCH, SCRATCH]}, "spec.volumes[1].name",
            "FieldValueDuplicate", 'Duplicate value: "scratch"', id="two volumes of one name",
        ),
        pytest.param(
            {"initContainers": [{"name": "runner", "image": "i:1"}]}, "spec.initContainers[0].name",
            "FieldValueDuplicate", 'Duplicate value: "runner"', id="two containers of one name",
        ),
        pytest.param(
            container(image=" runner"), f"{IN_CONTAINER}.image",
            "FieldValueInvalid", "must not have leading or trailing whitespace", id="an image with a space",
        ),
        pytest.param(
            container(imagePullPolicy="Maybe"), f"{IN_CONTAINER}.imagePullPolicy", "FieldValueNotSupported",
            'Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"', id="a pull policy",
        ),
        pytest.param(
            limits(**{"remuda.dev_vm": "1.5"}), f"{IN_CONTAINER}.resources.limits[remuda.dev/vm]",
            "FieldValueInvalid", 'Invalid value: "1500m": must be an integer', id="half a VM",
        ),
        pytest.param(
            limits(vm="1"), f"{IN_CONTAINER}.resources.limits[vm]",
            "FieldValueInvalid", "must be a standard resource type or fully qualified", id="an unknown resource",
        ),
        pytest.param(
            limits(cpu="-1"), f"{IN_CONTAINER}.resources.limits[cpu]",
            "FieldValueInvalid", "must be greater than or equal to 0", id="less than nothing",
        ),
        pytest.param(
            {"nodeSelector": {"a b": "c"}}, "spec.nodeSelector",
            "FieldValueInvalid", 'Invalid value: "a b": name part must consist of', id="a node selector's key",
        ),
        pytest.param(
            needs(key="a", operator="In"), f"{IN_TERM}.values", "FieldValueRequired",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'", id="one of none",
        ),
        pytest.param(
            needs(key="a", operator="Exists", values=["b"]), f"{IN_TERM}.values", "FieldValueForbidden",
            "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'", id="exists as what",
        ),
        pytest.param(
            needs(key="a", operator="Like"), f"{IN_TERM}.operator",
            "FieldValueInvalid", 'Invalid value: "Like": not a valid selector operator', id="an unknown operator",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}},
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight",
            "FieldValueInvalid", "Invalid value: 0: must be in the range 1-100", id="a wish without weight",
        ),
        pytest.param(
            tolerates(key="k", operator="Exists", value="x"), "spec.tolerations[0].operator", "FieldValueInvalid",
            "Invalid value: \"x\": value must be empty when `operator` is 'Exists'", id="exists with a value",
        ),
        pytest.param(
            tolerates(operator="Equal"), "spec.tolerations[0].operator", "FieldValueInvalid",
            'Invalid value: "Equal": operator must be Exists when `key` is empty', id="equal to nothing",
        ),
        pytest.param(
            tolerates(key="k", effect="Shrug"), "spec.tolerations[0].effect", "FieldValueNotSupported",
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"', id="an unknown effect",
        ),
        pytest.param(
            tolerates(key="k", tolerationSeconds=5), "spec.tolerations[0].effect", "FieldValueInvalid",
            "effect must be 'NoExecute' when `tolerationSeconds` is set", id="a time without eviction",
        ),
        pytest.param(
            {"nodeName": "Mac_1"}, "spec.nodeName",
            "FieldValueInvalid", "a lowercase RFC 1123 subdomain must consist of", id="a node's name",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "FieldValueInvalid",
            "Invalid value: 0: must be between 1 and 2147483647, inclusive", id="no time at all",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "a.test/b"}], "nodeName": "mac"}, "spec.nodeName", "FieldValueForbidden",
            "Forbidden: cannot be set until all schedulingGates have been cleared", id="a node behind a gate",
        ),
    ],
)  # fmt: skip
async def test_a_fault_of_a_pod_is_told(
    raw: Raw, space: Space, spec: Json, field: str, reason: str, text: str
) -> None:
    answer = await raw.post(space.path("pods"), a_pod("mare", **spec))

    assert answer.refusal[:2] == (422, "Invalid")
    assert answer.causes[0][:2] == (field, reason)
    assert text in answer.causes[0][2]


async def test_many_faults_come_in_the_order_of_the_spec(raw: Raw, space: Space) -> None:
    answer = await raw.post(
        space.path("pods"),
        a_pod(
            "mare",
            tolerations=[{"key": "k", "effect": "Shrug"}],
            nodeSelector={"a b": "c"},
            restartPolicy="Sometimes",
            volumes=[SCRATCH, SCRATCH],
            **container(env=[{"name": ""}]),
        ),
    )

    assert [field for field, _, _ in answer.causes] == [
        "spec.volumes[1].name",
        f"{IN_CONTAINER}.env[0].name",
        "spec.restartPolicy",
        "spec.nodeSelector",
        "spec.tolerations[0].effect",
    ]


async def test_what_is_no_quantity_is_a_bad_request(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("pods"), a_pod("mare", **limits(cpu="lots")))

    assert answer.refusal[:2] == (400, "BadRequest")
    assert "quantities must match the regular expression" in answer.refusal[2]
