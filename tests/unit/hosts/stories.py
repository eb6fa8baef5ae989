"""Short words for stories of the host operator."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from remuda.kube.core import EVENT, POD, Container, Pod, PodSpec
from remuda.kube.host import HOST
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import RUNNER
from remuda.kube.patches import MergePatch
from remuda.ports.host_shell import Unreachable
from remuda.ports.kube import Query
from remuda.sim.loop import run
from tests.support.scaleway_server import a_server
from tests.unit.hosts.ranch import SPACE, Ranch, a_ranch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.kube.host import Host


def play(story: Callable[[Ranch], Awaitable[None]], **how: Any) -> None:  # noqa: ANN401 - of the ranch
    async def main() -> None:
        async with a_ranch(**how) as ranch:
            await story(ranch)

    run(main)


def unreachable() -> Unreachable:
    return Unreachable("mini cannot be reached", why="nothing answers", fix="Turn it on")


def condition(host: Host, kind: str) -> tuple[str, str, str]:
    found = next(c for c in host.status.conditions if c.type == kind)
    return found.status, found.reason, found.message


def a_pool(ranch: Ranch, count: int = 2) -> None:
    """Have so many free Macs in the account."""
    before = ranch.clock.now() - timedelta(days=1)
    for number in range(count):
        ranch.account.add(a_server(f"id-{number}", f"pool-{number}", updated_at=before))


async def events(ranch: Ranch, reason: str) -> list[str]:
    """Return what was said for this reason, after whoever says it had the time to."""
    await ranch.clock.sleep(30)
    found = (await ranch.kube.list(EVENT, Query(namespace=SPACE))).items
    return [event.message for event in found if event.reason == reason]


async def annotate(ranch: Ranch, name: str, **annotations: str | None) -> None:
    changes: dict[str, Any] = {"metadata": {"annotations": annotations}}
    await ranch.kube.patch(HOST, name, MergePatch(changes), namespace=SPACE)


async def a_vm(ranch: Ranch, name: str, node: str) -> None:
    metadata = ObjectMeta(name=name, namespace=SPACE, labels={RUNNER: "true"})
    containers = (Container(name="runner", image="registry.test/mac:1"),)
    spec = PodSpec(node_name=node, containers=containers, automount_service_account_token=False)
    await ranch.kube.create(POD, Pod(metadata=metadata, spec=spec))
