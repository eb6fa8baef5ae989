"""A control plane in memory for the tests of its parts: store, verbs and API, without controllers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from remuda.ports.wire import Request
from remuda.standalone.api import ApiServer
from remuda.standalone.kinds import BUILT_IN, Kinds, ResourceKind
from remuda.standalone.local_wire import LocalWire
from remuda.standalone.rest import Rest
from remuda.standalone.store import Store
from remuda.standalone.tokens import Tokens, new_key

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj

NOON = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
HERD = "/api/v1/namespaces/herd"


class HandClock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return (self.moment - NOON).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class CountedIds:
    """Names in order, so that tests can foretell them."""

    def __init__(self) -> None:
        self.count = 0

    def uid(self) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012d}"

    def suffix(self, length: int = 5) -> str:
        self.count += 1
        return str(self.count).zfill(length)

    def secret(self, length_bytes: int = 32) -> bytes:
        return b"s" * length_bytes

    def fraction(self) -> float:
        return 0.0


def kind(plural: str) -> ResourceKind:
    return next(one for one in BUILT_IN if one.plural == plural)


CONFIG = kind("configmaps")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any

    @property
    def message(self) -> str:
        return str(self.body["message"])


class Plane:
    """Store, verbs and API over one clock. The namespace ``herd`` and its ServiceAccount are there."""

    def __init__(self, store: Store | None = None, *, history_max: int = 1000) -> None:
        self.clock, self.ids = HandClock(), CountedIds()
        self.store = store or Store(history_max=history_max)
        self.rest = Rest(self.store, Kinds(BUILT_IN), self.clock, self.ids)
        tokens = Tokens(new_key(b"k" * 32), "https://issuer.test", self.clock, self.ids)
        self.api = ApiServer(self.rest, tokens, admin_token="admin")  # noqa: S106 - a test's
        self.wire = LocalWire(self.api, "admin")

    async def settle_in(self) -> Plane:
        await self.rest.create(kind("namespaces"), "", {"metadata": {"name": "herd"}})
        await self.rest.create(kind("serviceaccounts"), "herd", {"metadata": {"name": "default"}})
        return self

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,  # noqa: ANN401 - JSON
        *,
        patch: str = "",
        query: dict[str, str] | None = None,
        accept: str = "application/json",
    ) -> Answer:
        """Send a request; ``patch`` is merge, json or strategic-merge. Bytes go as they are."""
        content_type = f"application/{patch}-patch+json" if patch else "application/json"
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        pairs = tuple((query or {}).items())
        request = Request(method, path, pairs, raw, content_type, accept)
        answer = await self.wire.send(request, timeout_s=5)
        try:
            decoded = json.loads(answer.body)
        except ValueError:
            decoded = answer.body
        return Answer(answer.status, decoded)


def config(name: str, **more: Any) -> Obj:  # noqa: ANN401 - JSON
    return {"metadata": {"name": name, "namespace": "herd"}} | more


def pod(name: str, **spec: Any) -> Obj:  # noqa: ANN401 - JSON
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "runner", "image": "runner:1"}]} | spec,
    }
