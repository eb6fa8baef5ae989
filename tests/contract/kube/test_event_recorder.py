"""Events as the recorder writes them: every server takes them, and the same thing said again counts up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.events import EventRecorder, EventSettings
from remuda.kube.core import EVENT, NODE, SERVICE_ACCOUNT, Node, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.ports.kube import Query

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.space import Space


def a_recorder(kube: Kube) -> EventRecorder:
    settings = EventSettings(component="remuda-test", instance="one")
    return EventRecorder(kube, settings, clock=SystemClock(), ids=SystemIds())


async def test_an_event_is_found_by_the_object_that_it_is_about(kube: Kube, space: Space) -> None:
    about = ServiceAccount(metadata=ObjectMeta(name="mare", namespace=space.name))
    mare = await kube.create(SERVICE_ACCOUNT, about)
    recorder = a_recorder(kube)

    for _ in range(2):
        recorder.record(SERVICE_ACCOUNT, mare, "Fed", "It ate an apple", warning=True)
        await recorder.flush()
    recorder.record(SERVICE_ACCOUNT, mare, "Ridden", "It ran")
    await recorder.flush()

    fields = f"involvedObject.uid={mare.uid},reason=Fed"
    (fed,) = (await kube.list(EVENT, Query(namespace=space.name, fields=fields))).items
    assert (fed.count, fed.type, fed.message) == (2, "Warning", "It ate an apple")
    assert (fed.source.component, fed.reporting_instance) == ("remuda-test", "one")
    assert fed.last_timestamp is not None
    assert len((await kube.list(EVENT, Query(namespace=space.name))).items) == 2
    assert recorder.dropped == 0


async def test_an_event_about_an_object_without_a_namespace_is_written(
    kube: Kube, space: Space
) -> None:
    recorder = a_recorder(kube)
    node = Node(metadata=ObjectMeta(name=f"{space.name}-mini", uid=f"uid-{space.name}"))

    recorder.record(NODE, node, "Ready", "It is")
    await recorder.flush()

    fields = f"involvedObject.name={node.name}"
    (event,) = (await kube.list(EVENT, Query(namespace="default", fields=fields))).items
    assert event.involved_object.kind == "Node"
    assert recorder.dropped == 0
