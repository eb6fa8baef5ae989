"""Runners as the operator makes them: taken as they are, read back as they were hashed, placed where they should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.runner_pod import Placement, runner_pod, service_account
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.ports.kube import Manifest
from tests.support.eventually import eventually
from tests.support.nodes import a_node, live_nodes
from tests.support.runner_pods import DOCKER, KATA, SETTINGS, a_runner_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.kube import Kube
    from tests.support.nodes import LiveNodes
    from tests.support.raw import Json, Raw
    from tests.support.space import Space

VM_HOST: Json = {"key": "remuda.dev/vm-host", "effect": "NoSchedule"}
SMALL: Json = {"cpu": "100m", "memory": "64Mi"}


@pytest_asyncio.fixture(loop_scope="session")
async def nodes(raw: Raw) -> AsyncIterator[LiveNodes]:
    async with live_nodes(raw) as alive:
        yield alive


async def create(
    kube: Kube,
    pool: RunnerPool,
    name: str,
    placement: Placement = Placement(),  # noqa: B008 - frozen
) -> Pod:
    await kube.create(SERVICE_ACCOUNT, service_account(pool, name))
    body = runner_pod(pool, name, SETTINGS, placement)
    return await kube.create(POD, Manifest(body, pool.namespace))


async def add_host(nodes: LiveNodes, name: str, fleet: str) -> str:
    node = a_node(name, fleet, vms=8, taints=[VM_HOST])
    return await nodes.add(node, **{"kubernetes.io/os": "darwin"})


async def node_of(kube: Kube, space: Space, name: str) -> str:
    pod = await eventually(
        lambda: kube.get(POD, name, namespace=space.name), lambda pod: pod.spec.node_name != ""
    )
    return pod.spec.node_name


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"os": "darwin"}, id="a VM"),
        pytest.param(KATA, id="a Kata Pod"),
        pytest.param(DOCKER, id="a Kata Pod with Docker"),
    ],
)
async def test_a_runner_is_taken_as_it_is_and_starts_without_an_owner(
    kube: Kube, raw: Raw, space: Space, spec: Json
) -> None:
    kata = {"metadata": {"name": "kata-qemu"}, "handler": "kata-qemu"}
    await raw.post(
        "/apis/node.k8s.io/v1/runtimeclasses", kata
    )  # the servers are shared: it may be there
    pool = a_runner_pool(namespace=space.name, **spec)

    runner = runner_of(await create(kube, pool, "mac-1", Placement(("a", "b"), "c")))

    account = await kube.get(SERVICE_ACCOUNT, "mac-1", namespace=space.name)
    kept = (await raw.get(space.path("pods", "mac-1"))).ok()
    sent = json.loads(runner_pod(pool, "mac-1", SETTINGS, Placement(("a", "b"), "c")))
    assert (runner.phase, runner.name) == (Phase.STARTING, "mac-1")
    assert account.metadata.owner_references == ()
    assert "ownerReferences" not in kept["metadata"]
    for key, value in sent["spec"].items():
        assert _within(value, kept["spec"][key]), key
    # A cluster gives every Pod 300 s on a silent host, but not one that says how patient it is.
    assert all("tolerationSeconds" not in t for t in kept["spec"]["tolerations"])


def _within(sent: Json, kept: Json) -> bool:
    """Say whether what was sent was kept, whatever defaults were added."""
    if isinstance(sent, dict):
        return all(key in kept and _within(value, kept[key]) for key, value in sent.items())
    if isinstance(sent, list):
        return len(sent) <= len(kept) and all(map(_within, sent, kept))
    return bool(sent == kept)


async def test_an_avoided_host_is_not_used_and_a_preferred_one_is(
    kube: Kube, space: Space, nodes: LiveNodes
) -> None:
    good, bad, third = [await add_host(nodes, f"{space.name}-{n}", space.name) for n in "gbt"]
    pool = a_runner_pool(namespace=space.name, fleet=space.name, os="darwin", resources=SMALL)

    for number in range(4):
        await create(kube, pool, f"away-{number}", Placement(avoid=(bad, third)))
    await create(kube, pool, "probe", Placement(avoid=(bad, third), prefer=bad))

    assert {await node_of(kube, space, f"away-{n}") for n in range(4)} == {good}
    assert await node_of(kube, space, "probe") == bad


async def test_an_avoided_host_is_not_used_by_any_term_of_a_template_either(
    kube: Kube, space: Space, nodes: LiveNodes
) -> None:
    good, bad = [await add_host(nodes, f"{space.name}-{n}", space.name) for n in "gb"]
    terms = [
        {"matchExpressions": [{"key": "remuda.dev/fleet", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [bad]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template = {"spec": {"affinity": {"nodeAffinity": required}}}
    pool = a_runner_pool(
        namespace=space.name, fleet=space.name, os="darwin", resources=SMALL, template=template
    )

    for number in range(3):
        await create(kube, pool, f"away-{number}", Placement(avoid=(bad,)))

    assert {await node_of(kube, space, f"away-{n}") for n in range(3)} == {good}
