"""The API servers that the contract of the ``Kube`` port is checked on, each behind the same face."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import yaml

from remuda.adapters.kube_client import HttpWire, KubeClient, explicit
from remuda.adapters.system import SystemClock, SystemIds
from remuda.standalone.decide.node_health import HealthRules
from remuda.standalone.http import HttpSettings
from remuda.standalone.plane import ControlPlane, DurableControlPlane
from remuda.standalone.store import Store
from remuda.standalone.tokens import new_key
from tests.support.control_plane import CRD_FOLDER, NODE_GRACE_S
from tests.support.eventually import eventually, within
from tests.support.raw import Raw

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.ports.kube import Kube
    from remuda.ports.wire import Wire
    from tests.support.control_plane import RealControlPlane


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HEALTH = HealthRules(silence_max=timedelta(seconds=NODE_GRACE_S))
HISTORY_MAX = 400
"""Changes of one kind that our store remembers here. Few, so that making it forget does not take long."""


class Backend(Protocol):
    """One API server, reached as its administrator or with any token."""

    @property
    def signing_key(self) -> bytes:
        """The key of ServiceAccount tokens (PEM): tests forge what a server would never issue."""
        ...

    def wire(self, bearer: str | None = None) -> Wire:
        """Return a wire of its own; the administrator's, unless a token is given."""
        ...

    async def forget_history(self) -> None:
        """Make every version of an Event before now too old to watch or to page from."""
        ...


@dataclass(frozen=True, slots=True)
class RealBackend:
    """The judge."""

    plane: RealControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.plane.access.kubeconfig

    @property
    def signing_key(self) -> bytes:
        return self.plane.service_account_key.read_bytes()

    def wire(self, bearer: str | None = None) -> Wire:
        access = self.plane.access
        token = access.admin_token if bearer is None else bearer
        return HttpWire(explicit(access.url, token=token, ca_pem=access.ca_file.read_bytes()))

    async def forget_history(self) -> None:
        """Compact etcd. Of the kinds, only Events are served without a cache that would remember more."""
        await asyncio.to_thread(self._compact)

    def _compact(self) -> None:
        newest = self._etcd("range", {"key": "AA=="})["header"]["revision"]
        self._etcd("compaction", {"revision": newest, "physical": True})

    def _etcd(self, call: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(  # noqa: S310 - loopback URL of our own etcd
            f"{self.plane.etcd_url}/v3/kv/{call}", data=json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            decoded: dict[str, dict[str, str]] = json.load(answer)
            return decoded


@dataclass(frozen=True, slots=True)
class MemoryBackend:
    """Our own control plane in memory: no HTTP, as the simulator uses it."""

    plane: ControlPlane
    signing_key: bytes

    def wire(self, bearer: str | None = None) -> Wire:
        return self.plane.wire(bearer)

    async def forget_history(self) -> None:
        await crowd_out(self.wire())


@dataclass(frozen=True, slots=True)
class HttpBackend:
    """Our own control plane in a data directory, over HTTPS."""

    plane: DurableControlPlane
    address: str

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    @property
    def signing_key(self) -> bytes:
        return self.plane.pki.token_key

    def wire(self, bearer: str | None = None) -> Wire:
        token = self.plane.admin_token if bearer is None else bearer
        ca_pem = self.plane.pki.path("ca.crt").read_bytes()
        return HttpWire(explicit(self.address, token=token, ca_pem=ca_pem))

    async def forget_history(self) -> None:
        await crowd_out(self.plane.wire())


@asynccontextmanager
async def memory_backend() -> AsyncIterator[MemoryBackend]:
    ids = SystemIds()
    key = new_key(ids.secret(64))
    plane = ControlPlane(
        Store(history_max=HISTORY_MAX),
        SystemClock(),
        ids,
        token_key=key,
        admin_token=ids.secret().hex(),
        health=HEALTH,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(plane.run(), name="control plane in memory")
        await add_crds(plane.wire())
        yield MemoryBackend(plane, key)
        running.cancel()


@asynccontextmanager
async def http_backend(data: Path) -> AsyncIterator[HttpBackend]:
    plane = ControlPlane.durable(
        data, SystemClock(), SystemIds(), health=HEALTH, history_max=HISTORY_MAX
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(
                plane.serve(HttpSettings(port=0), ready.set_result), name="control plane"
            )
            backend = HttpBackend(plane, await within(ready))
            await add_crds(plane.wire())
            yield backend
            serving.cancel()
    finally:
        await plane.close()


async def add_crds(wire: Wire) -> None:
    """Create our CRDs, and wait until their kinds are served."""
    raw = Raw(wire)
    for file in sorted(CRD_FOLDER.glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        (await raw.post(CRDS, crd)).ok()
        name, group = crd["spec"]["names"]["plural"], crd["spec"]["group"]
        path = f"/apis/{group}/{crd['spec']['versions'][0]['name']}/{name}"
        await eventually(lambda path=path: raw.get(path), lambda answer: answer.status == 200)  # type: ignore[misc]


async def crowd_out(wire: Wire) -> None:
    """Change one Event until the store has forgotten all earlier changes of Events."""
    raw = Raw(wire)
    path = "/api/v1/namespaces/kube-system/events"
    about = {"kind": "Namespace", "namespace": "kube-system", "name": "kube-system"}
    await raw.post(path, {"metadata": {"name": "crowd"}, "involvedObject": about})
    start = int((await raw.get(f"{path}/crowd")).ok().get("count", 0))
    for number in range(HISTORY_MAX + 1):
        (await raw.merge(f"{path}/crowd", {"count": start + number + 1})).ok()


def client(wire: Wire) -> Kube:
    return KubeClient(wire)
