"""Taking a host out of service and putting it back, on a control plane in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemClock
from remuda.cli.exits import NOT_FOUND, REFUSED, Declined, code_of
from remuda.cli.host_changes import OnHost, drain_text, runners_on, set_drained
from remuda.kube.core import NODE, POD, SERVICE_ACCOUNT, Node, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import OWNER, POOL, RUNNER
from remuda.kube.node_view import is_draining
from remuda.ports.kube import Manifest, NotFound, Query, Refused
from tests.support.api import SPACE, _json, an_office

if TYPE_CHECKING:
    from tests.support.api import Office


async def place(office: Office, name: str, node: str, **labels: str) -> None:
    """Make a runner's Pod that is on a host already."""
    await office.kube.create(
        SERVICE_ACCOUNT, ServiceAccount(metadata=ObjectMeta(name=name, namespace=SPACE))
    )
    given = {RUNNER: "true", POOL: "mac", **labels}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": given},
        "spec": {
            "nodeName": node,
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "containers": [{"name": "runner", "image": "registry.test/runner:1"}],
        },
    }
    await office.kube.create(POD, Manifest(_json(pod), namespace=SPACE))


async def test_a_host_is_drained_and_put_back() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        await office.add_node("mini")
        kube = office.kube

        assert await set_drained(kube, "mini", drained=True)
        assert is_draining(await kube.get(NODE, "mini"))
        assert not await set_drained(kube, "mini", drained=True), "it was drained already"

        assert await set_drained(kube, "mini", drained=False)
        assert not is_draining(await kube.get(NODE, "mini"))
        assert not await set_drained(kube, "mini", drained=False)


async def test_a_host_that_is_not_there() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        with pytest.raises(NotFound, match="There is no host ghost") as missing:
            await set_drained(office.kube, "ghost", drained=True)

    assert code_of([missing.value]) == NOT_FOUND


async def test_a_node_that_is_none_of_ours_is_not_touched() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        await office.kube.create(NODE, Node(metadata=ObjectMeta(name="database")))

        with pytest.raises(Declined, match="is no host of runners") as refused:
            await set_drained(office.kube, "database", drained=True)

        assert code_of([refused.value]) == REFUSED
        assert not is_draining(await office.kube.get(NODE, "database"))


async def test_who_is_on_a_host() -> None:
    async with an_office(SystemClock(), sees=False) as office:
        await office.add_node("mini")
        await office.add_node("other")
        await place(office, "mac-busy", "mini", **{OWNER: "acme"})
        await place(office, "mac-idle", "mini")
        await place(office, "mac-ended", "mini")
        await place(office, "mac-elsewhere", "other")
        await place(office, "a-daemon", "mini", **{RUNNER: "no"})
        await office.pod_says("mac-ended", phase="Succeeded")

        there = OnHost(busy=("mac-busy",), idle=("mac-idle",), leaving=("mac-ended",))
        assert await runners_on(office.kube, "mini", SPACE) == there
        assert await runners_on(_OneNamespace(office.kube), "mini", SPACE) == there


class _OneNamespace(KubeClient):
    """Somebody who may look into one namespace only."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube

    async def list(self, kind: Any, query: Query = Query()) -> Any:  # noqa: ANN401, B008 - as the port's
        if not query.namespace:
            raise Refused("Pods cannot be listed", why="forbidden", fix="ask for rights")
        return await self._kube.list(kind, query)


@pytest.mark.parametrize(
    ("on_host", "text"),
    [
        (OnHost((), (), ()), "nobody is left"),
        (OnHost(("a",), ("b", "c"), ()), "1 busy, 2 idle"),
        (OnHost((), (), ("d",)), "1 leaving"),
    ],
)
def test_who_is_left_in_words(on_host: OnHost, text: str) -> None:
    assert drain_text(on_host) == text
