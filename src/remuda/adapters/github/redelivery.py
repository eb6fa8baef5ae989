"""
Asking GitHub to deliver again what never reached us.

Attempts of one message share its GUID, and any success among them settles it; so all attempts are listed, not only the
failed ones. A message that keeps failing is asked for less and less often.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import faults
from remuda.adapters.github.budgets import APP
from remuda.adapters.github.client import decoded
from remuda.adapters.github.models import HookDelivery
from remuda.adapters.github.payloads import moment
from remuda.adapters.github.webhooks import EVENT
from remuda.adapters.github.wire import Ask
from remuda.ports.forge import ForgeError, ForgeThrottled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.adapters.github.client import GithubClient

_PAGES_MAX: Final = 300
_LATE: Final = timedelta(minutes=5)
"""How much later than its time a delivery may appear in the list."""
_AGAIN: Final = timedelta(seconds=60)
"""How long to leave a message alone after its second attempt; doubled with each."""
_AGAIN_MAX: Final = timedelta(hours=1)
_FAILURES_MAX: Final = 3
_TURN_S: Final = 40.0
"""How long one turn may take: less than the time after which dispatch takes it for hung."""
_LIST: Final = "The App's deliveries could not be listed"


@dataclass(slots=True)
class _Round:
    """One reading of the list, from its newest attempt back to ``floor``. A long one takes several turns."""

    floor: datetime
    attempts: list[HookDelivery] = field(default_factory=list)
    cursor: str = ""
    pages: int = 0
    is_read: bool = False
    asked: set[str] = field(default_factory=set)
    """Messages: their new attempts are at the list's other end, so it does not show that they come again."""


class Redeliveries:
    """
    Remembers how far back everything is settled, so that a busy App is not read in full each time.

    The App's own limit is what tokens for minting are taken from: this yields to it as sweeps do, and a turn is bounded
    in time. What is left over is gone on with in the next turn.
    """

    def __init__(self, client: GithubClient) -> None:
        self._client = client
        self._settled_before: datetime | None = None
        self._round: _Round | None = None

    async def redeliver(self, within: timedelta) -> int:
        now = self._client.clock.now()
        ends_at = self._client.clock.monotonic() + _TURN_S
        since = now - within
        reading = self._round = self._round or _Round(max(since, self._settled_before or since))
        await self._read_on(reading, ends_at)
        due = [
            d for d in unreached(reading.attempts, now, since=since) if d.guid not in reading.asked
        ]
        asked, failures = await self._ask_for(due, reading, ends_at)
        if not failures and (len(asked) < len(due) or not reading.is_read):
            return sum(asked)
        self._round = None
        if failures and not any(asked):
            raise failures[-1]
        if reading.is_read:
            self._settled_before = _oldest_open(reading.attempts, default=now) - _LATE
        return sum(asked)

    async def _ask_for(
        self, due: Iterable[HookDelivery], reading: _Round, ends_at: float
    ) -> tuple[list[int], list[ForgeError]]:
        """Ask for messages. Returns for each whether it will come, as 1 or 0, and what went wrong with others."""
        asked, failures = list[int](), list[ForgeError]()
        for delivery in due:
            if not self._may_ask(ends_at):
                break
            try:
                asked.append(await self._ask_again(delivery))
                reading.asked.add(delivery.guid)
            except ForgeError as failure:  # one message must not keep the others from us
                failures.append(failure)
                if isinstance(failure, ForgeThrottled) or len(failures) == _FAILURES_MAX:
                    break
        return asked, failures

    async def _read_on(self, reading: _Round, ends_at: float) -> None:
        while not reading.is_read and self._may_ask(ends_at):
            cursor = {"cursor": reading.cursor} if reading.cursor else {}
            ask = Ask(
                operation="deliveries",
                path="/app/hook/deliveries{?per_page,cursor}",
                parts={"per_page": 100, **cursor},
            )
            async with self._client.deadline(_LIST):
                reply = await self._client.as_app(_LIST, ask)
            page = decoded(_LIST, reply, list[HookDelivery])
            reading.attempts += page
            reading.cursor, reading.pages = reply.next("cursor"), reading.pages + 1
            times = [at for d in page if (at := moment(d.delivered_at)) is not None]
            at_end = not reading.cursor or not times or min(times) < reading.floor
            reading.is_read = at_end or reading.pages >= _PAGES_MAX

    def _may_ask(self, ends_at: float) -> bool:
        """Take one request of what can be spared, if there is time for it."""
        clock = self._client.clock
        at, now = clock.monotonic(), clock.now().timestamp()
        return at < ends_at and self._client.budgets.take_for_sweep(APP, at=at, now=now)

    async def _ask_again(self, delivery: HookDelivery) -> int:
        what = f"Delivery {delivery.id} could not be asked for again"
        ask = Ask(
            operation="redeliver",
            method="POST",
            path="/app/hook/deliveries/{delivery_id}/attempts",
            parts={"delivery_id": delivery.id},
        )
        allowed = {400, faults.NOT_FOUND, faults.UNPROCESSABLE}  # too old, or known to be useless
        async with self._client.deadline(what):
            reply = await self._client.as_app(what, ask, allowed=allowed)
        return 1 if reply.status in faults.OK else 0


def unreached(
    attempts: Iterable[HookDelivery], now: datetime, *, since: datetime
) -> list[HookDelivery]:
    """Return the latest attempt of each message of ours that never arrived and is due, oldest first."""
    due = [
        (at, latest)
        for guid, tries in sorted(_by_guid(attempts).items())
        if guid and not any(map(_arrived, tries))
        for latest in [max(tries, key=lambda d: (_at(d), d.id))]
        for at in [_at(latest)]
        if at >= since and now - at >= _pause(len(tries))
    ]
    return [latest for _, latest in sorted(due, key=lambda pair: (pair[0], pair[1].id))]


def _pause(tries: int) -> timedelta:
    return timedelta() if tries == 1 else min(_AGAIN * 2 ** min(tries - 2, 10), _AGAIN_MAX)


def _by_guid(attempts: Iterable[HookDelivery]) -> dict[str, list[HookDelivery]]:
    groups: defaultdict[str, list[HookDelivery]] = defaultdict(list)
    for attempt in attempts:
        if attempt.event == EVENT and moment(attempt.delivered_at) is not None:
            groups[attempt.guid].append(attempt)
    return groups


def _arrived(attempt: HookDelivery) -> bool:
    return attempt.status_code in faults.OK or attempt.status == "OK"


def _at(attempt: HookDelivery) -> datetime:
    at = moment(attempt.delivered_at)
    assert at is not None, "attempts without a time were left out"
    return at


def _oldest_open(attempts: Iterable[HookDelivery], *, default: datetime) -> datetime:
    return min(
        (
            min(map(_at, tries))
            for tries in _by_guid(attempts).values()
            if not any(map(_arrived, tries))
        ),
        default=default,
    )
