"""The audit as a stream: replay, gaps, slow clients, clients that go, and many clients with one reader."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from remuda.dispatch.api.feed import AuditFeed, FeedSettings
from remuda.ports.database import DatabaseUnavailable
from remuda.sim.loop import run
from tests.support.api import an_office, api_story

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from remuda.model.job import AuditEntry
    from tests.support.api import Office
    from tests.support.asgi import Stream

SMALL = FeedSettings(buffer_max=5, page=4, listeners_max=3, looks_back=10)


def story_with(
    settings: FeedSettings,
) -> Callable[[Callable[[Office], Coroutine[Any, Any, None]]], Callable[[], None]]:
    def decorate(play: Callable[[Office], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with an_office(feed_settings=settings) as office:
                await play(office)

        def test() -> None:
            run(main)

        test.__name__ = play.__name__
        return test

    return decorate


def numbers(stream: Stream) -> list[int]:
    return [number for number, _ in stream.events()]


async def say(office: Office, count: int = 1) -> None:
    """Write so many audit entries."""
    for _ in range(count):
        await office.limit()


@api_story
async def test_what_happens_is_told_to_who_listens(office: Office) -> None:
    await say(office, 3)
    async with office.events() as stream:
        await asyncio.sleep(2)
        assert numbers(stream) == [], "what was before is not asked for"
        await office.queue(1)
        await asyncio.sleep(2)

        [(number, event)] = stream.events()
        assert (number, event["what"], event["job_id"]) == (4, "enqueued", "forge/1")
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert "content-length" not in stream.headers


@api_story
async def test_who_comes_back_misses_nothing(office: Office) -> None:
    await say(office, 3)
    async with office.events(query={"after": 0}) as stream:
        await asyncio.sleep(2)
        assert numbers(stream) == [1, 2, 3]
    await say(office, 3)
    async with office.events(headers={"last-event-id": "3"}, query={"after": 1}) as stream:
        await asyncio.sleep(2)
        await say(office, 2)
        await asyncio.sleep(2)
        assert numbers(stream) == [4, 5, 6, 7, 8]


@story_with(SMALL)
async def test_a_long_absence_is_made_up_for_page_by_page(office: Office) -> None:
    await say(office, 50)
    async with office.events(query={"after": 7}) as stream:
        await asyncio.sleep(3)
        assert numbers(stream) == list(range(8, 51))


@api_story
async def test_a_number_of_another_database_begins_at_the_end(office: Office) -> None:
    await say(office, 3)
    async with office.events(query={"after": 999}) as stream:
        await asyncio.sleep(2)
        await say(office)
        await asyncio.sleep(2)
        assert numbers(stream) == [4]


@api_story
async def test_a_number_that_only_another_replica_has_told_is_not_told_again(
    office: Office,
) -> None:
    await say(office, 2)
    async with office.events(query={"after": 0}) as first:
        await asyncio.sleep(2.5)
        office.feed.position = 1  # this replica is behind
        async with office.events(query={"after": 2}) as second:
            await asyncio.sleep(0.1)
            await say(office)
            await asyncio.sleep(2)
            assert numbers(second) == [3]
        assert numbers(first) == [1, 2, 3]


@api_story
async def test_an_entry_that_is_written_late_is_told_in_its_place(office: Office) -> None:
    await say(office, 1)
    async with office.events(query={"after": 0}) as stream:
        await asyncio.sleep(2)
        decisions = office.tables.decisions
        await say(office, 2)
        late = decisions.pop(1)  # number 2: its transaction is still open
        await asyncio.sleep(2)
        assert numbers(stream) == [1], "what stands behind a gap waits"
        decisions.insert(1, late)
        await asyncio.sleep(2)
        assert numbers(stream) == [1, 2, 3]


@api_story
async def test_who_comes_while_an_entry_is_late_hears_of_nothing_behind_it(office: Office) -> None:
    await say(office, 1)
    async with office.events(query={"after": 0}) as first:
        await asyncio.sleep(2)
        await say(office, 2)
        late = office.tables.decisions.pop(1)
        await asyncio.sleep(1)
        async with office.events(query={"after": 0}) as second:
            await asyncio.sleep(1)
            assert numbers(first) == numbers(second) == [1]
            office.tables.decisions.insert(1, late)
            await asyncio.sleep(2)
            assert numbers(first) == numbers(second) == [1, 2, 3]


@api_story
async def test_the_first_who_comes_while_an_entry_is_late_hears_of_it(office: Office) -> None:
    await say(office, 3)
    late = office.tables.decisions.pop(1)
    async with office.events() as new, office.events(query={"after": 1}) as back:
        await asyncio.sleep(2)
        assert numbers(new) == numbers(back) == []
        office.tables.decisions.insert(1, late)
        await asyncio.sleep(2)
        assert numbers(new) == numbers(back) == [2, 3]


@api_story
async def test_a_number_that_was_never_written_holds_nobody_up_for_long(office: Office) -> None:
    await say(office, 1)
    async with office.events(query={"after": 0}) as stream:
        await asyncio.sleep(2)
        await say(office, 2)
        del office.tables.decisions[1]
        await asyncio.sleep(8)
        assert numbers(stream) == [1, 3]


@story_with(SMALL)
async def test_a_slow_client_misses_nothing_and_keeps_nobody_waiting(office: Office) -> None:
    async with office.events(query={"after": 0}) as slow, office.events() as quick:
        await asyncio.sleep(2)
        slow.reading.clear()
        for _ in range(6):
            await say(office, 5)
            await asyncio.sleep(1.5)
        assert numbers(quick) == list(range(1, 31))
        assert len(numbers(slow)) < 20
        slow.reading.set()
        await asyncio.sleep(5)
        assert numbers(slow) == list(range(1, 31))


@api_story
async def test_a_client_that_reads_nothing_for_long_is_let_go(office: Office) -> None:
    async with office.events() as stream:
        await asyncio.sleep(2)
        stream.reading.clear()
        await say(office)
        await asyncio.sleep(60)
        assert office.feed.listeners == 0


@api_story
async def test_a_client_that_goes_is_forgotten_at_once(office: Office) -> None:
    async with office.events() as stream:
        await asyncio.sleep(2)
        assert office.feed.listeners == 1
        stream.gone.set()
        await asyncio.sleep(0.001)
        assert office.feed.listeners == 0


@api_story
async def test_a_client_that_goes_while_it_is_being_sent_to_is_forgotten_at_once(
    office: Office,
) -> None:
    async with office.events() as stream:
        await asyncio.sleep(2)
        stream.reading.clear()
        await say(office)
        await asyncio.sleep(2)
        stream.gone.set()
        await asyncio.sleep(0.001)
        assert office.feed.listeners == 0


@api_story
async def test_a_quiet_stream_beats(office: Office) -> None:
    async with office.events() as stream:
        await asyncio.sleep(46)
        assert stream.body.count(b": still here\n\n") == 3
        assert stream.body.startswith(b"retry: 2000\n")


@story_with(replace(SMALL, lasts_s=20.0))
async def test_a_stream_ends_after_a_while(office: Office) -> None:
    async with office.events() as stream:
        await asyncio.sleep(21)
        assert stream.ended


@api_story
async def test_a_replica_that_goes_ends_its_streams(office: Office) -> None:
    async with office.events() as stream:
        await asyncio.sleep(2)
        office.feed.close()
        await asyncio.sleep(0.001)
        assert stream.ended
    assert (await office.call("GET", "/api/v1/events")).status == 503


@story_with(SMALL)
async def test_no_more_listen_than_there_is_room_for(office: Office) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(office.events())
        await asyncio.sleep(1)
        answer = await office.call("GET", "/api/v1/events")
        assert (answer.status, "retry-after" in answer.headers) == (503, True)


@api_story
async def test_events_are_filtered(office: Office) -> None:
    async with office.events(query={"after": 0, "job_id": "forge/2"}) as stream:
        await office.queue(1, 2, 3)
        await asyncio.sleep(2)
        assert [e["job_id"] for _, e in stream.events()] == ["forge/2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": {"after": -1}},
        {"query": {"after": "x"}},
        {"query": {"after": 2**63}},
        {"headers": {"last-event-id": "x"}},
        {"query": {"pool": "a\x00"}},
    ],
)
def test_a_place_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    @api_story
    async def play(office: Office) -> None:
        assert (await office.call("GET", "/api/v1/events", **wrong)).status == 422

    play()


# --- One reader -------------------------------------------------------------------------------------------------------


class Counted:
    """Views that count how often the audit is asked for, and fail when told to."""

    def __init__(self, office: Office) -> None:
        self._views = office.dispatch.ports.views
        self.asked = 0
        self.fails = False

    async def audit(self, **how: Any) -> tuple[AuditEntry, ...]:  # noqa: ANN401 - what the views take
        self.asked += 1
        if self.fails:
            raise DatabaseUnavailable("No answer", why="it is gone", fix="Wait")
        return await self._views.audit(**how)

    async def audit_end(self) -> int:
        return await self._views.audit_end()


def counted(office: Office) -> Counted:
    views = Counted(office)
    office.feed._views = views  # type: ignore[assignment] # noqa: SLF001 - a test's tap
    return views


@api_story
async def test_many_clients_cost_the_database_what_one_does(office: Office) -> None:
    views = counted(office)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(office.events()) for _ in range(50)]
        await asyncio.sleep(1.5)
        before = views.asked
        await say(office)
        await asyncio.sleep(10)
        assert views.asked - before <= 11
        assert [numbers(s) for s in streams] == [[1]] * 50


@api_story
async def test_nobody_listens_and_nothing_is_asked(office: Office) -> None:
    views = counted(office)
    await asyncio.sleep(60)
    assert views.asked == 0
    async with office.events():
        await asyncio.sleep(2)
    await asyncio.sleep(2)
    before = views.asked
    await asyncio.sleep(60)
    assert views.asked == before


@api_story
async def test_a_database_that_fails_delays_the_news_and_loses_none(office: Office) -> None:
    views = counted(office)
    async with office.events(query={"after": 0}) as stream:
        await asyncio.sleep(2)
        views.fails = True
        await say(office, 3)
        await asyncio.sleep(5)
        assert numbers(stream) == []
        views.fails = False
        await asyncio.sleep(2)
        assert numbers(stream) == [1, 2, 3]


@api_story
async def test_a_client_that_comes_while_the_database_fails_is_ended_or_served(
    office: Office,
) -> None:
    await say(office, 3)
    views = counted(office)
    async with office.events():
        await asyncio.sleep(2)
        views.fails = True
        async with office.events(query={"after": 0}) as stream:
            await asyncio.sleep(2)
            assert stream.ended, "it comes again with the last id that it saw"
        assert office.feed.listeners == 1


def test_a_listener_is_cancelled_anywhere_without_loss() -> None:
    async def main() -> None:
        async with an_office(feed_settings=SMALL) as office:
            feed = AuditFeed(office.dispatch.ports.views, office.clock, SMALL)
            running = office.group.create_task(feed.run(), name="another feed")
            heard: list[int] = []
            with feed.listening() as listener:
                for turn in range(400):
                    if turn % 7 == 0:
                        await say(office)
                    try:
                        async with asyncio.timeout(0.05 * (turn % 5)):
                            heard += [e.number for e in await feed.next(listener, 0)]
                    except TimeoutError:
                        continue
                await asyncio.sleep(7)
                while more := await feed.next(listener, 0):
                    heard += [e.number for e in more]
                    if heard[-1] == office.tables.decisions[-1].number:
                        break
            running.cancel()
            assert heard == list(range(1, len(office.tables.decisions) + 1))

    run(main)
