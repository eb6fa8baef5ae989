"""The API servers that the contract of the ``Kube`` port is checked on, each behind the same face."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from remuda.adapters.kube_client import HttpWire, KubeClient, explicit

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from remuda.ports.wire import Wire
    from tests.support.control_plane import RealControlPlane


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


def client(wire: Wire) -> Kube:
    return KubeClient(wire)
