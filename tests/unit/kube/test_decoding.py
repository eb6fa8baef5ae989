from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.core import (
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    RuntimeClass,
    Secret,
    ServiceAccount,
)
from remuda.kube.decoding import Decoding
from remuda.kube.host import Host
from remuda.kube.runner_pool import RunnerPool

if TYPE_CHECKING:
    from remuda.kube.meta import Resource

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "ci",
        "uid": "1",
        "labels": {"pool": "mac"},
        "creationTimestamp": "2026-11-15T20:28:16Z",
        "managedFields": [{"manager": "x"}],
    },
    "spec": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": ""}]}],
        "activeDeadlineSeconds": 0,
        "securityContext": {},
        "nodeName": "mini-1",
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": None}],
        "containerStatuses": [{"name": "c", "imageID": "sha256:1", "state": {"running": {}}}],
        "hostIP": "10.0.0.1",
    },
}


def body(**changes: Any) -> bytes:  # noqa: ANN401 - JSON
    return msgspec.json.encode(POD | changes)


def test_sharing_decodes_to_the_same_as_decoding_plainly() -> None:
    shared = Decoding().of(Pod).object(body())

    assert shared == msgspec.json.decode(body(), type=Pod)
    assert msgspec.json.encode(shared) == msgspec.json.encode(msgspec.json.decode(body(), type=Pod))


def test_what_repeats_is_one_object() -> None:
    decoder = Decoding().of(Pod)
    a = decoder.object(body())
    b = decoder.object(body(metadata={"name": "b", "labels": {"pool": "mac"}}))

    assert a.spec.containers is b.spec.containers
    assert a.metadata.labels is b.metadata.labels
    assert a.status.conditions[0].type is b.status.conditions[0].type
    assert a.metadata.annotations is b.metadata.annotations  # absent in both
    assert a.name != b.name


def test_an_explicit_zero_and_an_absent_value_stay_different() -> None:
    decoder = Decoding().of(Pod)

    assert decoder.object(body()).spec.active_deadline_seconds == 0
    assert decoder.object(body(spec={})).spec.active_deadline_seconds is msgspec.UNSET
    assert decoder.object(body(spec={"securityContext": {}})).spec.security_context
    assert decoder.object(body(spec={})).spec.security_context is msgspec.UNSET


@pytest.mark.parametrize(
    "type_", [Event, Lease, Namespace, Node, RuntimeClass, Secret, ServiceAccount]
)
def test_every_built_in_kind_can_be_decoded_from_almost_nothing(type_: type[Resource]) -> None:
    assert Decoding().of(type_).object(b'{"metadata":{"name":"a"}}').name == "a"


@pytest.mark.parametrize("type_", [RunnerPool, Host])
def test_our_own_kinds_have_decoders(type_: type[Resource]) -> None:
    page = Decoding().of(type_).page(b'{"metadata":{"resourceVersion":"7"},"items":[]}')

    assert page.items == ()
    assert page.resource_version == "7"


def test_a_page_without_items_is_an_empty_one() -> None:
    page = (
        Decoding().of(Pod).page(b'{"metadata":{"resourceVersion":"7","continue":"x"},"items":null}')
    )

    assert (page.items, page.resource_version, page.continue_) == ((), "7", "x")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"metadata": {"labels": {"a": 1}}}, id="in a shared field"),
        pytest.param({"metadata": {"name": 1}}, id="in a plain field"),
        pytest.param(
            {"status": {"conditions": [{"status": "True"}]}}, id="a required field is missing"
        ),
        pytest.param({"spec": []}, id="of a whole part"),
    ],
)
def test_a_wrong_type_is_an_error_wherever_it_is(fault: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        Decoding().of(Pod).object(body(**fault))


@settings(max_examples=15)
@given(st.lists(st.integers(0, 3000), max_size=200))
def test_a_full_cache_forgets_and_never_mixes_up(labels: list[int]) -> None:
    decoder = Decoding().of(Pod)
    for number in [*range(600), *labels, *range(600)]:
        pod = decoder.object(body(metadata={"name": "a", "labels": {"n": str(number)}}))
        assert pod.labels == {"n": str(number)}


def test_what_is_used_all_the_time_outlives_what_is_not() -> None:
    decoder = Decoding().of(Pod)
    first = decoder.object(body()).metadata.labels
    for number in range(5000):
        decoder.object(body(metadata={"name": "a", "labels": {"n": str(number)}}))
        if number % 100 == 0:
            assert decoder.object(body()).metadata.labels is first


def test_the_collector_of_cycles_has_nothing_to_walk() -> None:
    pod = Decoding().of(Pod).object(body())

    assert not any(map(gc.is_tracked, (pod, pod.metadata, pod.spec, pod.spec.containers[0])))
