"""RunnerPool and Host: defaults, pruning, refusals with their sentences, status and scale, and zeros that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.kube.patches import MergePatch, merge_patch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Invalid
from tests.support.manifests import a_host, a_pool
from tests.support.raw import STRATEGIC, TABLE

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.raw import Answer, Json, Raw
    from tests.support.space import Space

UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
ALL_ZERO: dict[str, Json] = {
    "replicas": 0,
    "idleTimeoutSeconds": 0,
    "autoscaling": {"minWarm": 0, "scaleDownCooldownSeconds": 0},
    "provisioning": {"startTimeoutSeconds": 0},
}


async def create(raw: Raw, space: Space, name: str = "mac", **spec: Json) -> Answer:
    answer = await raw.post(space.path("runnerpools"), a_pool(name, **spec))
    answer.ok()
    return answer


async def test_defaults_are_filled_in_to_the_depth(raw: Raw, space: Space) -> None:
    pool = (await create(raw, space, autoscaling={"enabled": True, "maxReplicas": 3})).body

    assert pool["spec"] == {
        "image": "registry.test/runner:1",
        "fleet": "barn",
        "labels": ["self-hosted", "mac"],
        "os": "linux",
        "forks": "deny",
        "replicas": 1,
        "idleTimeoutSeconds": 300,
        "resources": {"cpu": 4, "memory": "8Gi"},
        "rollout": {
            "maxConcurrentPercent": 5,
            "paused": False,
            "progressDeadlineSeconds": 600,
            "stage": {"enabled": True, "maxConcurrent": 2},
        },
        "podSecurity": "restricted",
        "docker": {"enabled": False, "image": "docker:dind"},
        "provisioning": {"maxConcurrent": 4, "startTimeoutSeconds": 300},
        "autoscaling": {
            "enabled": True,
            "maxReplicas": 3,
            "minWarm": 1,
            "scaleDownCooldownSeconds": 300,
            "schedules": [],
        },
    }
    assert pool["metadata"]["generation"] == 1
    assert "status" not in pool


async def test_what_the_schema_does_not_know_is_pruned(raw: Raw, space: Space) -> None:
    manifest = a_pool("mac", spurs=1, rollout={"gallop": True})
    manifest["junk"] = {"deep": 1}
    manifest["status"] = {"warm": 3}

    pool = (await raw.post(space.path("runnerpools"), manifest)).ok()

    assert "spurs" not in pool["spec"]
    assert "gallop" not in pool["spec"]["rollout"]
    assert "junk" not in pool
    assert "status" not in pool, "status is its own subresource, also at creation"


async def test_a_template_keeps_what_nobody_here_knows(raw: Raw, space: Space) -> None:
    template = {"spec": {"tolerations": [{"key": "a"}], "anything": {"goes": 0}}}

    pool = await create(raw, space, template=template)

    assert pool.body["spec"]["template"] == template


async def test_strict_validation_refuses_what_it_does_not_know(raw: Raw, space: Space) -> None:
    answer = await raw.post(
        space.path("runnerpools"), a_pool("mac", spurs=1), fieldValidation="Strict"
    )

    message = (
        'RunnerPool in version "v1alpha1" cannot be handled as a RunnerPool: strict decoding error: '
        'unknown field "spec.spurs"'
    )
    assert answer.refusal == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        pytest.param(
            {"image": ""},
            'spec.image: Invalid value: "": spec.image in body should be at least 1 chars long',
            id="too short",
        ),
        pytest.param(
            {"os": "bsd"},
            f'[spec.os: Unsupported value: "bsd": supported values: "linux", "darwin", {UNCHECKED}]',
            id="not in the enum",
        ),
        pytest.param(
            {"fleet": "Not A Label"},
            'spec.fleet: Invalid value: "Not A Label": spec.fleet in body should match '
            "'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
            id="not of the pattern",
        ),
        pytest.param(
            {"idleTimeoutSeconds": -1},
            "spec.idleTimeoutSeconds: Invalid value: -1: spec.idleTimeoutSeconds in body should be greater than or "
            "equal to 0",
            id="below the minimum",
        ),
        pytest.param(
            {"idleTimeoutSeconds": 90000},
            "spec.idleTimeoutSeconds: Invalid value: 90000: spec.idleTimeoutSeconds in body should be less than or "
            "equal to 86400",
            id="above the maximum",
        ),
        pytest.param(
            {"idleTimeoutSeconds": "soon"},
            '[spec.idleTimeoutSeconds: Invalid value: "string": spec.idleTimeoutSeconds in body must be of type '
            f'integer: "string", {UNCHECKED}]',
            id="of another type",
        ),
        pytest.param(
            {"labels": []},
            "spec.labels: Invalid value: 0: spec.labels in body should have at least 1 items",
            id="too few items",
        ),
        pytest.param(
            {"autoscaling": {"enabled": True}},
            "spec.autoscaling.maxReplicas: Required value: maxReplicas is required when autoscaling is enabled: "
            "without it a burst of jobs could take every host. Set spec.autoscaling.maxReplicas, or set enabled to "
            "false.",
            id="a rule across fields",
        ),
        pytest.param(
            {"autoscaling": {"enabled": True, "maxReplicas": 2, "minWarm": 5}},
            "spec.autoscaling.minWarm: Invalid value: minWarm is above maxReplicas, so the pool could never be as "
            "warm as asked. Lower minWarm or raise maxReplicas.",
            id="a rule that compares fields",
        ),
        pytest.param(
            {"os": "darwin", "runtimeClassName": "kata"},
            "spec.runtimeClassName: Forbidden: runtimeClassName is for Linux Pods on ordinary kubelets; macOS "
            "runners are VMs that the agent starts. Remove runtimeClassName, or set os to linux.",
            id="a rule that forbids",
        ),
    ],
)
async def test_a_pool_is_refused(raw: Raw, space: Space, spec: Json, faults: str) -> None:
    answer = await raw.post(space.path("runnerpools"), a_pool("mac", **spec))

    assert answer.refusal == (422, "Invalid", f'RunnerPool.remuda.dev "mac" is invalid: {faults}')
    assert answer.body["details"]["group"] == "remuda.dev"
    assert answer.body["details"]["kind"] == "RunnerPool"
    assert answer.body["details"]["name"] == "mac"


async def test_a_missing_spec_is_named(raw: Raw, space: Space) -> None:
    manifest = a_pool("mac")
    del manifest["spec"]

    answer = await raw.post(space.path("runnerpools"), manifest)

    assert answer.refusal == (
        422,
        "Invalid",
        f'RunnerPool.remuda.dev "mac" is invalid: [spec: Required value, {UNCHECKED}]',
    )


async def test_all_missing_fields_are_named_at_once(raw: Raw, space: Space) -> None:
    manifest = a_pool("mac")
    manifest["spec"] = {}

    answer = await raw.post(space.path("runnerpools"), manifest)

    required = [field for field, reason, _ in answer.causes if reason == "FieldValueRequired"]
    assert sorted(required) == ["spec.fleet", "spec.image", "spec.labels"]


async def test_a_rule_about_the_name_has_no_field(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("runnerpools"), a_pool("m" * 53))

    (cause,) = answer.causes
    assert cause[:2] == ("<nil>", "FieldValueInvalid")
    assert cause[2].startswith("Invalid value: the pool's name is longer than 52 characters")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param(
            {"provider": {}},
            "spec.provider: Invalid value: a host comes from exactly one provider. Set either static or scaleway.",
            id="without a provider",
        ),
        pytest.param(
            {
                "provider": {
                    "static": {"address": "192.0.2.7"},
                    "scaleway": {"zone": "fr-par-1", "type": "M2-M", "os": "Sequoia"},
                }
            },
            "spec.provider: Invalid value: a host comes from exactly one provider. Set either static or scaleway.",
            id="with two providers",
        ),
        pytest.param(
            {"role": "builder"},
            "spec.builder: Required value: a host of the role builder needs to know what it builds for. Set "
            "spec.builder, or set role to runner.",
            id="a builder that does not know for whom",
        ),
        pytest.param(
            {"ssh": {"user": "admin"}},
            "spec.ssh: Required value: there is nothing to log in with. Set keySecretRef, passwordSecretRef, or both.",
            id="without a way in",
        ),
    ],
)
async def test_a_host_is_refused(raw: Raw, space: Space, spec: Json, fault: str) -> None:
    answer = await raw.post(space.path("hosts"), a_host("mac-1", **spec))

    assert answer.refusal == (422, "Invalid", f'Host.remuda.dev "mac-1" is invalid: {fault}')


async def test_a_transition_rule_sees_what_was(kube: Kube, raw: Raw, space: Space) -> None:
    await create(raw, space)
    (await raw.post(space.path("hosts"), a_host("mac-1"))).ok()
    elsewhere = {"zone": "fr-par-1", "type": "M2-M", "os": "Sequoia"}

    with pytest.raises(Invalid, match="os cannot change"):
        await kube.patch(
            RUNNER_POOL, "mac", MergePatch({"spec": {"os": "darwin"}}), namespace=space.name
        )
    answer = await raw.merge(
        space.path("hosts", "mac-1"),
        {"spec": {"provider": {"static": None, "scaleway": elsewhere}}},
    )

    assert answer.refusal[0] == 422
    assert answer.causes[0][:2] == ("spec.provider", "FieldValueForbidden")
    same = await raw.merge(space.path("runnerpools", "mac"), {"spec": {"os": "linux"}})
    assert same.status == 200, "the same value is no transition"


async def test_a_removed_field_gets_its_default_back(raw: Raw, space: Space) -> None:
    await create(raw, space, replicas=7)

    answer = await raw.merge(space.path("runnerpools", "mac"), {"spec": {"replicas": None}})

    assert answer.ok()["spec"]["replicas"] == 1


# --- Explicit zeros --------------------------------------------------------------------------------------------------


def zeros_of(pool: Json) -> Json:
    spec = pool["spec"]
    return {
        "replicas": spec["replicas"],
        "idleTimeoutSeconds": spec["idleTimeoutSeconds"],
        "autoscaling": {
            "minWarm": spec["autoscaling"]["minWarm"],
            "scaleDownCooldownSeconds": spec["autoscaling"]["scaleDownCooldownSeconds"],
        },
        "provisioning": {"startTimeoutSeconds": spec["provisioning"]["startTimeoutSeconds"]},
    }


async def test_zeros_survive_creation_and_reading(kube: Kube, raw: Raw, space: Space) -> None:
    created = await create(raw, space, **ALL_ZERO)

    assert zeros_of(created.body) == ALL_ZERO
    assert zeros_of((await raw.get(space.path("runnerpools", "mac"))).body) == ALL_ZERO
    typed = await kube.get(RUNNER_POOL, "mac", namespace=space.name)
    assert typed.spec.replicas == 0
    assert typed.spec.idle_timeout_seconds == 0
    assert typed.spec.autoscaling.min_warm == 0
    assert typed.spec.provisioning.start_timeout_seconds == 0


async def test_zeros_survive_the_typed_round_trip(kube: Kube, raw: Raw, space: Space) -> None:
    await create(raw, space, **ALL_ZERO)
    typed = await kube.get(RUNNER_POOL, "mac", namespace=space.name)
    copy = msgspec.structs.replace(
        typed,
        metadata=msgspec.structs.replace(typed.metadata, name="copy", resource_version="", uid=""),
    )

    await kube.create(RUNNER_POOL, copy)

    assert zeros_of((await raw.get(space.path("runnerpools", "copy"))).body) == ALL_ZERO


async def test_zeros_survive_a_patch_of_touched_keys(kube: Kube, raw: Raw, space: Space) -> None:
    await create(raw, space)
    before = await kube.get(RUNNER_POOL, "mac", namespace=space.name)
    spec = msgspec.structs.replace(
        before.spec,
        replicas=0,
        autoscaling=msgspec.structs.replace(before.spec.autoscaling, min_warm=0),
    )
    patch = merge_patch(before, msgspec.structs.replace(before, spec=spec), conditional=True)

    after = await kube.patch(RUNNER_POOL, "mac", patch, namespace=space.name)

    assert after.spec.replicas == 0
    assert after.spec.autoscaling.min_warm == 0
    assert after.spec.idle_timeout_seconds == 300
    later = msgspec.structs.replace(
        after, spec=msgspec.structs.replace(after.spec, image="registry.test/runner:2")
    )
    changed = merge_patch(after, later)
    assert changed.changes == {"spec": {"image": "registry.test/runner:2"}}
    last = await kube.patch(RUNNER_POOL, "mac", changed, namespace=space.name)
    assert last.spec.replicas == 0


# --- Status, scale, generation ---------------------------------------------------------------------------------------


async def test_status_is_written_by_its_subresource_alone(
    kube: Kube, raw: Raw, space: Space
) -> None:
    created = await create(raw, space)
    status: Json = {"warm": 0, "busy": 2, "templateHash": "abc"}

    ignored = await raw.merge(space.path("runnerpools", "mac"), {"status": status})
    after = await kube.patch(
        RUNNER_POOL,
        "mac",
        MergePatch({"status": status, "spec": {"replicas": 9}, "metadata": {"labels": {"a": "b"}}}),
        namespace=space.name,
        subresource="status",
    )

    assert "status" not in ignored.ok()
    assert ignored.version == created.version
    assert after.status.warm == 0
    assert after.status.busy == 2
    assert after.spec.replicas == 1
    assert after.labels == {}
    assert after.metadata.generation == 1, "status is no generation"
    read = await raw.get(space.path("runnerpools", "mac", "status"))
    assert read.ok()["status"] == status


async def test_generation_counts_changes_of_the_spec(raw: Raw, space: Space) -> None:
    await create(raw, space)
    path = space.path("runnerpools", "mac")

    generations = [
        (await raw.merge(path, change)).ok()["metadata"]["generation"]
        for change in (
            {"spec": {"replicas": 2}},
            {"spec": {"replicas": 2}},
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"generation": 99}},
            {"spec": {"replicas": 3}},
        )
    ]

    assert generations == [2, 2, 2, 2, 3]


async def test_a_status_that_breaks_the_schema_is_refused(raw: Raw, space: Space) -> None:
    await create(raw, space)

    answer = await raw.merge(
        space.path("runnerpools", "mac", "status"), {"status": {"warm": "many"}}
    )

    assert answer.status == 422
    assert answer.causes[0][:2] == ("status.warm", "FieldValueTypeInvalid")


async def test_scale_shows_and_sets_replicas(raw: Raw, space: Space) -> None:
    created = await create(raw, space, replicas=3)
    path = space.path("runnerpools", "mac", "scale")
    status = {"replicas": 2, "selector": "remuda.dev/pool=mac"}
    (await raw.merge(space.path("runnerpools", "mac", "status"), {"status": status})).ok()

    shown = (await raw.get(path)).ok()
    patched = await raw.merge(path, {"spec": {"replicas": 5}})
    zeroed = await raw.put(
        path,
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "mac", "namespace": space.name},
            "spec": {"replicas": 0},
        },
    )

    assert (shown["apiVersion"], shown["kind"]) == ("autoscaling/v1", "Scale")
    assert shown["metadata"]["uid"] == created.uid
    assert shown["spec"] == {"replicas": 3}
    assert shown["status"] == status
    assert patched.ok()["spec"] == {"replicas": 5}
    assert zeroed.ok()["spec"] == {}, "a Scale leaves its zero out"
    pool = await raw.get(space.path("runnerpools", "mac"))
    assert pool.body["spec"]["replicas"] == 0
    assert pool.body["metadata"]["generation"] == 3
    assert pool.body["status"] == status


async def test_scale_refuses_a_stale_version_and_a_negative_number(raw: Raw, space: Space) -> None:
    created = await create(raw, space)
    path = space.path("runnerpools", "mac", "scale")
    (await raw.merge(path, {"spec": {"replicas": 2}})).ok()

    stale = await raw.put(
        path,
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": "mac",
                "namespace": space.name,
                "resourceVersion": created.version,
            },
            "spec": {"replicas": 4},
        },
    )
    negative = await raw.merge(path, {"spec": {"replicas": -5}})

    assert stale.status == 409
    assert negative.status == 422
    assert negative.causes[0][0] == "spec.replicas"


async def test_a_custom_resource_takes_no_strategic_patch(raw: Raw, space: Space) -> None:
    await create(raw, space)

    answer = await raw.send(
        "PATCH",
        space.path("runnerpools", "mac"),
        {"spec": {"replicas": 2}},
        content_type=STRATEGIC,
    )

    assert answer.refusal == (
        415,
        "UnsupportedMediaType",
        (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        ),
    )


async def test_refusals_name_the_group(raw: Raw, space: Space) -> None:
    created = await create(raw, space)
    path = space.path("runnerpools", "mac")

    missing = await raw.get(space.path("runnerpools", "none"))
    twice = await raw.post(space.path("runnerpools"), a_pool("mac"))
    other = await raw.delete(path, {"preconditions": {"uid": "other"}})
    (await raw.merge(path, {"spec": {"replicas": 2}})).ok()
    stale = await raw.merge(
        path, {"metadata": {"resourceVersion": created.version}, "spec": {"replicas": 3}}
    )

    assert missing.refusal[2] == 'runnerpools.remuda.dev "none" not found'
    assert missing.body["details"] == {"name": "none", "group": "remuda.dev", "kind": "runnerpools"}
    assert twice.refusal[2] == 'runnerpools.remuda.dev "mac" already exists'
    assert other.refusal[2].startswith(
        'Operation cannot be fulfilled on RunnerPool.remuda.dev "mac": the UID in the precondition'
    )
    assert stale.refusal[2].startswith(
        'Operation cannot be fulfilled on runnerpools.remuda.dev "mac": the object has been modified'
    )


async def test_a_table_has_the_printer_columns(raw: Raw, space: Space) -> None:
    await create(raw, space, replicas=0)
    (
        await raw.merge(
            space.path("runnerpools", "mac", "status"), {"status": {"warm": 0, "busy": 1}}
        )
    ).ok()

    table = (await raw.get(space.path("runnerpools"), accept=TABLE)).ok()

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:5] == ["Name", "Desired", "Warm", "Busy", "Starting"]
    row = table["rows"][0]
    assert row["cells"][:4] == ["mac", 0, 0, 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "mac"
    wide = [c["name"] for c in table["columnDefinitions"] if c["priority"] > 0]
    assert "Image" in wide


async def test_an_object_that_says_it_is_of_another_kind_is_invalid(raw: Raw, space: Space) -> None:
    # Nothing is filled in for another kind, so what our rules look at is spelled out.
    spelled_out = a_pool("mare", docker={"enabled": False})
    answer = await raw.post(space.path("runnerpools"), spelled_out | {"kind": "Host"})

    assert answer.refusal[:2] == (422, "Invalid")
    assert answer.causes == [
        ("kind", "FieldValueInvalid", 'Invalid value: "Host": must be RunnerPool')
    ]
