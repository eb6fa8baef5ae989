"""What a replica says on ``/readyz``: that it does its part, or what keeps it from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.kube.core import NAMESPACE, Namespace
from remuda.kube.meta import ObjectMeta
from remuda.pools.metrics import PoolMetrics
from remuda.pools.operator import PoolOperator
from remuda.sim.ids import SeededIds
from tests.unit.pools.ranch import SETTINGS, Ranch, scenario

if TYPE_CHECKING:
    from remuda.pools.settings import PoolSettings


def a_replica(ranch: Ranch, settings: PoolSettings) -> PoolOperator:
    operator = PoolOperator(
        KubeClient(ranch.plane.wire()),
        KubeClient(ranch.plane.wire()),
        None,
        settings,
        clock=ranch.clock,
        ids=SeededIds(1, settings.identity),
        metrics=PoolMetrics(CollectorRegistry()),
        health=Health(ranch.clock),
    )
    ranch.start(operator.run(), settings.identity)
    return operator


@scenario()
async def test_one_leads_and_the_other_stands_by(ranch: Ranch) -> None:
    leader = a_replica(ranch, SETTINGS)
    await ranch.later(5)
    standby = a_replica(ranch, replace(SETTINGS, identity="op-2"))
    await ranch.later(5)

    assert leader.ready() == (True, "leading")
    assert standby.ready() == (
        True,
        "standing by: another replica leads, or will in a moment",
    )


@scenario()
async def test_a_namespace_that_is_not_there_is_named_until_somebody_makes_it(ranch: Ranch) -> None:
    operator = a_replica(ranch, replace(SETTINGS, namespace="missing"))
    await ranch.later(10)
    ok, says = operator.ready()
    assert not ok
    assert "cannot take part in the election" in says
    assert 'namespaces "missing" not found' in says

    await ranch.kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="missing")))
    await ranch.later(10)
    assert operator.ready() == (True, "leading")
