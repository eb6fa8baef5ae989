"""
Asking GitHub to deliver again what never reached us.

Attempts of one message share its GUID, and any success among them settles it; so all attempts are listed, not only the
failed ones. A message that keeps failing is asked for less and less often.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import faults
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
_LIST: Final = "The App's deliveries could not be listed"


class Redeliveries:
    """Remembers how far back everything is settled, so that a busy App is not read in full each time."""

    def __init__(self, client: GithubClient) -> None:
        self._client = client
        self._settled_before: datetime | None = None

    async def redeliver(self, within: timedelta) -> int:
        now = self._client.clock.now()
        floor = now - within
        if self._settled_before is not None:
            floor = max(floor, self._settled_before)
        attempts = await self._since(floor)
        asked, failures = 0, list[ForgeError]()
        for delivery in unreached(attempts, now, since=now - within):
            try:
                asked += await self._ask_again(delivery)
            except ForgeError as failure:  # one message must not keep the others from us
                failures.append(failure)
                if isinstance(failure, ForgeThrottled) or len(failures) == _FAILURES_MAX:
                    break
        if failures and not asked:
            raise failures[-1]
        self._settled_before = _oldest_open(attempts, default=now) - _LATE
        return asked

    async def _since(self, floor: datetime) -> list[HookDelivery]:
        """Return the attempts since then, newest first."""
        found: list[HookDelivery] = []
        cursor = ""
        for _ in range(_PAGES_MAX):
            ask = Ask(
                operation="deliveries",
                path="/app/hook/deliveries{?per_page,cursor}",
                parts={"per_page": 100, **({"cursor": cursor} if cursor else {})},
            )
            async with self._client.deadline(_LIST):
                reply = await self._client.as_app(_LIST, ask)
            page = decoded(_LIST, reply, list[HookDelivery])
            found += page
            cursor = reply.next("cursor")
            times = [at for d in page if (at := moment(d.delivered_at)) is not None]
            if not cursor or not times or min(times) < floor:
                break
        return found

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
