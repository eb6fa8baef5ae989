"""Creating and changing objects: who wins, what is refused, and what a refusal says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.kube.patches import JsonPatch, MergePatch, merge_patch
from remuda.ports.kube import AlreadyExists, Conflict, Invalid, Manifest, NotFound
from tests.support.manifests import CONFIG_MAP, ConfigMap, a_config_map
from tests.support.raw import JSON

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

MODIFIED = (
    'Operation cannot be fulfilled on configmaps "mare": the object has been modified; '
    "please apply your changes to the latest version and try again"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


async def a_mare(raw: Raw, space: Space, **meta: Json) -> Json:
    return (await raw.post(space.path("configmaps"), a_config_map("mare", **meta))).ok()


async def test_a_created_object_has_identity_and_version(kube: Kube, space: Space) -> None:
    body = b'{"metadata":{"name":"mare","labels":{"a":"b"}},"data":{"k":"v"}}'
    created = await kube.create(CONFIG_MAP, Manifest(body, namespace=space.name))

    assert created.name == "mare"
    assert created.namespace == space.name
    assert created.uid
    assert int(created.resource_version) > 0
    assert created.metadata.creation_timestamp is not None
    assert created == await kube.get(CONFIG_MAP, "mare", namespace=space.name)


async def test_creating_twice_is_refused_and_changes_nothing(
    kube: Kube, raw: Raw, space: Space
) -> None:
    first = await a_mare(raw, space)

    with pytest.raises(AlreadyExists):
        await kube.create(CONFIG_MAP, Manifest(b'{"metadata":{"name":"mare"}}', space.name))

    answer = await raw.post(space.path("configmaps"), a_config_map("mare", {"other": "1"}))
    assert answer.refusal == (409, "AlreadyExists", 'configmaps "mare" already exists')
    assert answer.body["details"] == {"name": "mare", "kind": "configmaps"}
    now = await raw.get(space.path("configmaps", "mare"))
    assert now.version == first["metadata"]["resourceVersion"]


async def test_generated_names_differ_and_keep_their_prefix(raw: Raw, space: Space) -> None:
    manifest = {"metadata": {"generateName": "mare-"}}
    names = {
        (await raw.post(space.path("configmaps"), manifest)).ok()["metadata"]["name"]
        for _ in range(20)
    }

    assert len(names) == 20
    assert all(name.startswith("mare-") and len(name) == len("mare-") + 5 for name in names)


@pytest.mark.parametrize(
    ("manifest", "code", "reason", "message"),
    [
        pytest.param(
            {"metadata": {}},
            422,
            "Invalid",
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
            id="without a name",
        ),
        pytest.param(
            {"metadata": {"name": "A_b"}},
            422,
            "Invalid",
            f'ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": {SUBDOMAIN}',
            id="with a name that is no DNS name",
        ),
        pytest.param(
            {"metadata": {"name": "mare", "namespace": "elsewhere"}},
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
            id="with another namespace than the URL's",
        ),
        pytest.param(
            {"metadata": {"name": "mare", "finalizers": ["unqualified"]}},
            422,
            "Invalid",
            'ConfigMap "mare" is invalid: metadata.finalizers[0]: Invalid value: "unqualified": name is neither a '
            "standard finalizer name nor is it fully qualified",
            id="with a finalizer that has no domain",
        ),
        pytest.param(
            {"metadata": {"name": "mare", "labels": {"a": "b c"}}},
            422,
            "Invalid",
            'ConfigMap "mare" is invalid: metadata.labels: Invalid value: "b c": a valid label must be an empty '
            "string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            id="with a label value that has a space",
        ),
    ],
)
async def test_a_create_is_refused(
    raw: Raw, space: Space, manifest: Json, code: int, reason: str, message: str
) -> None:
    answer = await raw.post(space.path("configmaps"), manifest)

    assert answer.refusal == (code, reason, message)


async def test_a_refusal_names_every_fault_with_its_field(raw: Raw, space: Space) -> None:
    reference = {"kind": "Pod"}
    answer = await raw.post(
        space.path("configmaps"),
        {
            "metadata": {
                "name": "mare",
                "annotations": {"x y": "z"},
                "ownerReferences": [reference],
            }
        },
    )

    required = "Required value: must not be empty"
    assert answer.status == 422
    assert [(field, reason) for field, reason, _ in answer.causes] == [
        ("metadata.annotations", "FieldValueInvalid"),
        ("metadata.ownerReferences[0].apiVersion", "FieldValueRequired"),
        ("metadata.ownerReferences[0].name", "FieldValueRequired"),
        ("metadata.ownerReferences[0].uid", "FieldValueRequired"),
    ]
    assert [message for _, reason, message in answer.causes if "Required" in reason] == [
        required
    ] * 3
    joined = ", ".join(f"{field}: {message}" for field, _, message in answer.causes)
    assert answer.body["message"] == f'ConfigMap "mare" is invalid: [{joined}]'


async def test_a_create_in_no_namespace_is_not_found(raw: Raw) -> None:
    answer = await raw.post("/api/v1/namespaces/nowhere/configmaps", a_config_map("mare"))

    assert answer.refusal == (404, "NotFound", 'namespaces "nowhere" not found')


async def test_a_create_may_not_choose_its_version(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("configmaps"), a_config_map("mare", resourceVersion="5"))

    assert answer.status == 500
    assert answer.body["message"] == "resourceVersion should not be set on objects to be created"


async def test_what_a_dry_run_creates_is_not_there(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("configmaps"), a_config_map("mare"), dryRun="All")

    assert answer.status == 201
    assert answer.uid
    assert "resourceVersion" not in answer.body["metadata"]
    assert (await raw.get(space.path("configmaps", "mare"))).status == 404


async def test_a_stale_put_conflicts(raw: Raw, space: Space) -> None:
    old = await a_mare(raw, space)
    path = space.path("configmaps", "mare")
    (await raw.put(path, {**old, "data": {"turn": "1"}})).ok()

    answer = await raw.put(path, {**old, "data": {"turn": "2"}})

    assert answer.refusal == (409, "Conflict", MODIFIED)
    assert answer.body["details"] == {"name": "mare", "kind": "configmaps"}
    assert (await raw.get(path)).body["data"] == {"turn": "1"}


async def test_a_put_without_a_version_overwrites(raw: Raw, space: Space) -> None:
    old = await a_mare(raw, space)

    answer = await raw.put(space.path("configmaps", "mare"), a_config_map("mare", {"k": "2"}))

    assert answer.ok()["data"] == {"k": "2"}
    assert answer.uid == old["metadata"]["uid"]
    assert int(answer.version) > int(old["metadata"]["resourceVersion"])
    assert answer.body["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]


async def test_a_put_to_nothing_is_not_found(raw: Raw, space: Space) -> None:
    answer = await raw.put(space.path("configmaps", "mare"), a_config_map("mare"))

    assert answer.refusal == (404, "NotFound", 'configmaps "mare" not found')


async def test_a_put_under_another_name_is_refused(raw: Raw, space: Space) -> None:
    await a_mare(raw, space)

    answer = await raw.put(space.path("configmaps", "mare"), a_config_map("foal"))

    message = "the name of the object (foal) does not match the name on the URL (mare)"
    assert answer.refusal == (400, "BadRequest", message)


async def test_a_put_with_another_uid_conflicts(raw: Raw, space: Space) -> None:
    await a_mare(raw, space)

    answer = await raw.put(space.path("configmaps", "mare"), a_config_map("mare", uid="other"))

    assert answer.status == 409
    assert "UID in precondition: other" in answer.body["message"]


async def test_a_conditional_patch_conflicts_when_stale(kube: Kube, space: Space) -> None:
    body = Manifest(b'{"metadata":{"name":"mare"},"data":{"turn":"0"}}', space.name)
    old = await kube.create(CONFIG_MAP, body)
    await kube.patch(CONFIG_MAP, "mare", MergePatch({"data": {"turn": "1"}}), namespace=space.name)
    late = merge_patch(old, ConfigMap(metadata=old.metadata, data={"turn": "2"}), conditional=True)

    with pytest.raises(Conflict) as refused:
        await kube.patch(CONFIG_MAP, "mare", late, namespace=space.name)

    assert "the object has been modified" in str(refused.value)
    now = await kube.get(CONFIG_MAP, "mare", namespace=space.name)
    assert now.data == {"turn": "1"}


async def test_a_conditional_patch_of_the_newest_version_lands(kube: Kube, space: Space) -> None:
    body = Manifest(b'{"metadata":{"name":"mare"},"data":{"turn":"0"}}', space.name)
    old = await kube.create(CONFIG_MAP, body)
    change = merge_patch(
        old, ConfigMap(metadata=old.metadata, data={"turn": "1"}), conditional=True
    )

    new = await kube.patch(CONFIG_MAP, "mare", change, namespace=space.name)

    assert new.data == {"turn": "1"}
    assert int(new.resource_version) > int(old.resource_version)


async def test_a_patch_that_changes_nothing_keeps_the_version(raw: Raw, space: Space) -> None:
    old = await a_mare(raw, space)
    path = space.path("configmaps", "mare")

    for answer in (
        await raw.merge(path, {"data": {"colour": "bay"}}),
        await raw.json_patch(path, {"op": "replace", "path": "/data/colour", "value": "bay"}),
        await raw.strategic(path, {"data": {"colour": "bay"}}),
        await raw.put(path, old),
    ):
        assert answer.ok()["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_null_in_a_merge_patch_removes_the_key(kube: Kube, raw: Raw, space: Space) -> None:
    await a_mare(raw, space, labels={"keep": "1", "drop": "1"})
    patch = MergePatch({"metadata": {"labels": {"drop": None}}, "data": {"colour": None, "n": "1"}})

    after = await kube.patch(CONFIG_MAP, "mare", patch, namespace=space.name)

    assert after.labels == {"keep": "1"}
    assert after.data == {"n": "1"}


async def test_a_patch_of_nothing_is_not_found(kube: Kube, space: Space) -> None:
    with pytest.raises(NotFound):
        await kube.patch(CONFIG_MAP, "mare", MergePatch({"data": {}}), namespace=space.name)


async def test_a_json_patch_is_all_or_nothing(kube: Kube, raw: Raw, space: Space) -> None:
    await a_mare(raw, space)
    patch = JsonPatch(
        (
            {"op": "add", "path": "/data/n", "value": "1"},
            {"op": "test", "path": "/data/colour", "value": "grey"},
        )
    )

    with pytest.raises((Conflict, Invalid)):
        await kube.patch(CONFIG_MAP, "mare", patch, namespace=space.name)

    now = await kube.get(CONFIG_MAP, "mare", namespace=space.name)
    assert now.data == {"colour": "bay"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(
            {"op": "test", "path": "/data/colour", "value": "grey"}, id="a test that fails"
        ),
        pytest.param({"op": "remove", "path": "/data/nothing"}, id="the removal of nothing"),
        pytest.param({"op": "add", "path": "/no/where", "value": "1"}, id="a path without parent"),
        pytest.param({"op": "paint", "path": "/data/colour", "value": "1"}, id="an unknown word"),
    ],
)
async def test_a_json_patch_that_cannot_apply_is_invalid(
    raw: Raw, space: Space, operation: Json
) -> None:
    await a_mare(raw, space)

    answer = await raw.json_patch(space.path("configmaps", "mare"), operation)

    assert answer.refusal[:2] == (422, "Invalid")
    message = "the server rejected our request due to an error in our request"
    assert answer.refusal[2].startswith(message), "and it may say which"


async def test_json_patch_operations_apply_in_order(raw: Raw, space: Space) -> None:
    await a_mare(raw, space)

    answer = await raw.json_patch(
        space.path("configmaps", "mare"),
        {"op": "test", "path": "/data/colour", "value": "bay"},
        {"op": "copy", "from": "/data/colour", "path": "/data/coat"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "move", "from": "/data/colour", "path": "/metadata/annotations/test~1coat"},
        {"op": "replace", "path": "/data/coat", "value": "grey"},
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
        {"op": "remove", "path": "/metadata/labels/x"},
    )

    assert answer.ok()["data"] == {"coat": "grey"}
    assert answer.body["metadata"]["annotations"] == {"test/coat": "bay"}
    assert "labels" not in answer.body["metadata"]


async def test_identity_cannot_be_patched_away(raw: Raw, space: Space) -> None:
    old = await a_mare(raw, space)
    path = space.path("configmaps", "mare")

    uid = await raw.merge(path, {"metadata": {"uid": "other"}})
    name = await raw.merge(path, {"metadata": {"name": "foal"}})
    created = await raw.merge(path, {"metadata": {"creationTimestamp": None}})

    field = 'metadata.uid: Invalid value: "other": field is immutable'
    assert uid.refusal == (422, "Invalid", f'ConfigMap "mare" is invalid: {field}')
    message = "the name of the object (foal) does not match the name on the URL (mare)"
    assert name.refusal == (400, "BadRequest", message)
    assert created.ok()["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]


async def test_a_patch_of_an_unknown_sort_is_refused(raw: Raw, space: Space) -> None:
    await a_mare(raw, space)

    answer = await raw.send(
        "PATCH", space.path("configmaps", "mare"), {"data": {}}, content_type=JSON
    )

    assert answer.refusal == (415, "UnsupportedMediaType", "415: Unsupported Media Type")


async def test_a_body_that_is_no_json_is_refused(raw: Raw, space: Space) -> None:
    answer = await raw.post(space.path("configmaps"), b"{bad json")

    assert answer.status == 400
    assert answer.body["reason"] == "BadRequest"


async def test_a_body_of_another_kind_is_refused(raw: Raw, space: Space) -> None:
    answer = await raw.post(
        space.path("configmaps"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    )

    assert answer.status == 400
    assert answer.body["message"].startswith(
        'Secret in version "v1" cannot be handled as a ConfigMap'
    )


async def test_versions_are_one_clock_for_all_kinds(raw: Raw, space: Space) -> None:
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
    first = await raw.post(space.path("configmaps"), a_config_map("a"))
    second = await raw.post(space.path("leases"), lease)
    third = await raw.post(space.path("configmaps"), a_config_map("b"))

    assert int(first.version) < int(second.version) < int(third.version)
