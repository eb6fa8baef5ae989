"""
Dispatch over HTTP, as the operator asks it. Fills ``remuda.ports.dispatch.Dispatch``.

Nothing is tried again here: the caller has its own rhythm.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remuda.adapters.dispatch_wire import (
    LOOK,
    REASON_MAX_CHARS,
    Answer,
    Call,
    DispatchWire,
    WireSettings,
    part,
    refusal,
)
from remuda.ports.dispatch import DispatchError, Signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.dispatch import Stopped

_COUNT_MAX = 1_000_000
"""More jobs than this for one pool are a fault of who counted: a fleet must not be sized by it."""
_AGE_MAX_S = 366 * 86_400.0
_WHO = (
    "Check the controller's token (--dispatch-token-file) and that the address is that of dispatch"
)

_Count = Annotated[int, Meta(ge=0, le=_COUNT_MAX)] | UnsetType
_Age = Annotated[float, Meta(ge=0, le=_AGE_MAX_S)] | UnsetType


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchClientSettings(WireSettings):
    """How the operator asks."""

    signals_timeout_s: float = 3.0
    stopped_timeout_s: float = 2.0


class _SignalsBody(msgspec.Struct, frozen=True):
    """What dispatch answers. A field that an older server does not know yet counts as 0."""

    queued: _Count = UNSET
    claimed: _Count = UNSET
    occupied: _Count = UNSET
    withheld: _Count = UNSET
    p95_concurrent_last_hour: _Count = UNSET
    oldest_queued_s: _Age = UNSET

    def known(self) -> dict[str, int | float]:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not UNSET}


class DispatchClient:
    """One dispatch server."""

    def __init__(self, settings: DispatchClientSettings) -> None:
        self._settings = settings
        self._wire = DispatchWire(settings)

    async def signals(self, pool: str) -> Signals:
        """Return how much work there is for a pool."""
        what = f"The signals of pool {pool} could not be read"
        path = f"/api/v1/pools/{part(what, pool)}/signals"
        timeout_s = self._settings.signals_timeout_s
        answer = await self._call(Call(what=what, method="GET", path=path, timeout_s=timeout_s))
        return _signals(what, answer.body)

    async def stopped(self, pod: str, report: Stopped) -> None:
        """Report that a runner stopped."""
        what = f"The end of runner {pod} could not be reported"
        path = f"/api/v1/runners/{part(what, pod)}/stopped"
        body = msgspec.json.encode(
            {
                "ended_at": report.ended_at,
                "exit_code": report.exit_code,
                "reason": report.reason[:REASON_MAX_CHARS],
            }
        )
        timeout_s = self._settings.stopped_timeout_s
        await self._call(Call(what=what, method="POST", path=path, timeout_s=timeout_s, body=body))

    async def close(self) -> None:
        await self._wire.close()

    async def _call(self, call: Call) -> Answer:
        answer = await self._wire.exchange(call)
        if answer.is_ok:
            return answer
        theirs = 400 <= answer.status < 500  # noqa: PLR2004 - that is what 4xx means
        raise refusal(call, self._wire.base, answer, fix=_WHO if theirs else "")


@asynccontextmanager
async def dispatch_client(settings: DispatchClientSettings) -> AsyncIterator[DispatchClient]:
    """Return a client that is closed at the end."""
    client = DispatchClient(settings)
    try:
        yield client
    finally:
        await client.close()


def _signals(what: str, body: bytes) -> Signals:
    try:
        known = msgspec.json.decode(body, type=_SignalsBody).known()
    except (msgspec.MsgspecError, ValueError) as error:
        why = f"the answer makes no sense ({error})"
        raise DispatchError(what, why=why, fix=LOOK) from None
    if not known:  # any JSON object would pass for "no work at all", and the pool would shrink
        why = "the answer holds none of the signals"
        raise DispatchError(what, why=why, fix="Check that the address is that of dispatch")
    return msgspec.convert(known, Signals)
