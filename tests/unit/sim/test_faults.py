"""Each fault really happens, as it says it does: applied or not, and told to the caller or not."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.ports.kube import TimedOut, Unavailable
from remuda.ports.wire import Request, Response
from remuda.sim.faults import CALM, Fault, Faults, FaultyWire, Plan, Scripted
from remuda.sim.ids import SeededIds
from remuda.sim.link import WRITER, Direction, Link
from remuda.sim.loop import run
from remuda.sim.plan import OF_EVENT, OF_VERB
from remuda.sim.trace import Trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PATCH = Request("PATCH", "/api/v1/namespaces/demo/configmaps/a", body=b"{}")
WATCH = Request("GET", "/api/v1/configmaps", query=(("watch", "1"),))


class FakeServer:
    """An API server that applies everything, and remembers when and for whom."""

    def __init__(self, events: int = 0, gap_s: float = 1.0, then_open_s: float = 0.0) -> None:
        self.applied: list[tuple[float, str]] = []
        self.status = 200
        self._events, self._gap_s, self._then_open_s = events, gap_s, then_open_s

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        assert timeout_s > 0
        self.applied.append((asyncio.get_running_loop().time(), WRITER.get()))
        return Response(200, request.body)

    @asynccontextmanager
    async def stream(
        self,
        request: Request,  # noqa: ARG002 - as the port has it
        *,
        connect_timeout_s: float,  # noqa: ARG002 - as the port has it
        idle_timeout_s: float,  # noqa: ARG002 - as the port has it
    ) -> AsyncIterator[FakeServer]:
        yield self

    async def chunks(self) -> AsyncIterator[bytes]:
        for number in range(self._events):
            await asyncio.sleep(self._gap_s)
            yield event(number)
        await asyncio.sleep(self._then_open_s)

    async def close(self) -> None:
        return


def event(number: int) -> bytes:
    # Two objects take turns, so that an event can be overtaken by one of the same object.
    meta = {"name": f"o{number % 2}", "resourceVersion": str(number)}
    return json.dumps({"type": "MODIFIED", "object": {"metadata": meta}}).encode() + b"\n"


class Bench:
    """One actor's wire to a fake server, and the lines of its trace."""

    def __init__(self, server: FakeServer, faults: Faults = CALM, *scripted: Scripted) -> None:
        self.server = server
        self.lines: list[str] = []
        self.crashes: list[float] = []
        loop = asyncio.get_running_loop()
        self.trace = Trace(loop.time, lambda e: self.lines.append(e.text()))
        plan = Plan("ctl-a", SeededIds(1, "ctl-a/faults"))
        plan.set_faults(faults)
        plan.script(scripted)
        self.link = Link(plan, self.trace, lambda: self.crashes.append(loop.time()))
        self.wire = FaultyWire(server, self.link)

    async def patch(self) -> Response:
        return await self.wire.send(PATCH, timeout_s=5)

    async def read(self, idle_timeout_s: float = 600) -> list[int]:
        """Read a whole watch; return the versions that were seen."""
        received = b""
        async with self.wire.stream(
            WATCH, connect_timeout_s=5, idle_timeout_s=idle_timeout_s
        ) as stream:
            if stream.status != 200:
                return [-stream.status]
            async for chunk in stream.chunks():
                received += chunk
        return [_version(json.loads(line)) for line in received.splitlines()]


def _version(line: dict[str, dict[str, dict[str, str]]]) -> int:
    if line["type"] == "ERROR":  # type: ignore[comparison-overlap] # a word, where the rest is nested
        return -410
    return int(line["object"]["metadata"]["resourceVersion"])


def in_bench(
    work: Callable[[Bench], Awaitable[None]],
    *scripted: Scripted,
    faults: Faults = CALM,
    server: Callable[[], FakeServer] = FakeServer,
) -> Bench:
    async def main() -> Bench:
        bench = Bench(server(), faults, *scripted)
        await work(bench)
        return bench

    return run(main)


@pytest.mark.parametrize(
    ("fault", "applied", "raised"),
    [
        pytest.param(Fault.LOST, 0, TimedOut, id="lost: not applied, times out"),
        pytest.param(Fault.UNACKNOWLEDGED, 1, TimedOut, id="unacknowledged: applied, times out"),
        pytest.param(Fault.HANG, 1, TimedOut, id="hang: applied as the caller gives up"),
        pytest.param(Fault.RESET, 0, Unavailable, id="reset: not applied, broken connection"),
        pytest.param(Fault.RESET_AFTER, 1, Unavailable, id="reset-after: applied, broken connection"),
    ],
)  # fmt: skip
def test_a_call_whose_outcome_the_caller_cannot_know(
    fault: Fault, applied: int, raised: type[Exception]
) -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(raised):
            await bench.patch()

    bench = in_bench(work, Scripted(fault))

    assert len(bench.server.applied) == applied
    assert bench.trace.faults == {fault.value: 1}


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.CONFLICT, 409),
        (Fault.EXPIRED, 410),
        (Fault.THROTTLED, 429),
        (Fault.SERVER_ERROR, 500),
    ],
)
def test_a_refusal_is_a_status_and_nothing_is_applied(fault: Fault, code: int) -> None:
    async def work(bench: Bench) -> None:
        response = await bench.patch()
        assert response.status == code
        assert json.loads(response.body)["code"] == code
        assert (response.retry_after_s is not None) == (code == 429)

    assert in_bench(work, Scripted(fault)).server.applied == []


def test_a_lost_call_ends_at_its_deadline_and_not_before() -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(TimedOut):
            await bench.patch()
        assert asyncio.get_running_loop().time() == pytest.approx(5)

    in_bench(work, Scripted(Fault.LOST))


def test_a_script_strikes_one_exact_call() -> None:
    async def work(bench: Bench) -> None:
        statuses = [(await bench.patch()).status for _ in range(5)]
        assert statuses == [200, 200, 409, 200, 200]

    in_bench(work, Scripted(Fault.CONFLICT, nth=3, actor="ctl-a", verb="patch", resource="configmaps"))  # fmt: skip


@pytest.mark.parametrize(
    "scripted",
    [
        Scripted(Fault.CONFLICT, actor="ctl-b"),
        Scripted(Fault.CONFLICT, verb="delete"),
        Scripted(Fault.CONFLICT, resource="leases"),
        Scripted(Fault.CONFLICT, verb="event"),
    ],
    ids=["another actor's", "another verb's", "another kind's", "an event's"],
)
def test_a_script_of_something_else_does_not_strike(scripted: Scripted) -> None:
    async def work(bench: Bench) -> None:
        assert (await bench.patch()).status == 200

    in_bench(work, scripted)


@pytest.mark.parametrize("fault", OF_VERB["patch"])
def test_every_fault_of_a_call_happens_by_chance_too(fault: Fault) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(40):
            try:
                await bench.patch()
            except Unavailable:
                continue

    faults = Faults(**{fault.value.replace("-", "_"): 0.3})

    count = in_bench(work, faults=faults).trace.faults
    assert set(count) == {fault.value}
    assert 3 <= count[fault.value] <= 25


@pytest.mark.parametrize(
    ("fault", "applied"),
    [(Fault.CRASH_BEFORE, 0), (Fault.CRASH_UNACKNOWLEDGED, 1), (Fault.CRASH_AFTER, 1)],
)
def test_a_crash_point_says_so_exactly_once(fault: Fault, applied: int) -> None:
    async def work(bench: Bench) -> None:
        async with asyncio.timeout(60):
            try:
                await bench.patch()
            except TimeoutError:
                return
            await asyncio.sleep(1)

    async def impatient(bench: Bench) -> None:
        try:
            await work(bench)
        except TimeoutError:
            assert fault is not Fault.CRASH_AFTER

    bench = in_bench(impatient, Scripted(fault))
    assert len(bench.crashes) == 1
    assert len(bench.server.applied) == applied


def test_what_has_left_a_process_is_carried_out_though_the_process_dies() -> None:
    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(bench.patch())
            await asyncio.sleep(0)
            bench.link.sever()
            call.cancel()
        await asyncio.sleep(1)

    assert len(in_bench(work).server.applied) == 1


def test_nothing_leaves_a_dead_process() -> None:
    async def work(bench: Bench) -> None:
        bench.link.sever()
        with pytest.raises(Unavailable):
            await bench.patch()

    assert in_bench(work).server.applied == []


@pytest.mark.parametrize(
    ("direction", "applied"), [(Direction.REQUESTS, 0), (Direction.ANSWERS, 1), (Direction.BOTH, 0)]
)
def test_a_partition_stops_one_way_or_both(direction: Direction, applied: int) -> None:
    async def work(bench: Bench) -> None:
        bench.link.partition = direction
        with pytest.raises(TimedOut):
            await bench.patch()
        assert len(bench.server.applied) == applied
        bench.link.partition = Direction(0)
        assert (await bench.patch()).status == 200

    in_bench(work)


def test_the_server_knows_for_whom_it_works() -> None:
    async def work(bench: Bench) -> None:
        await bench.patch()

    assert in_bench(work).server.applied[0][1] == "ctl-a"


def test_latency_is_seeded() -> None:
    async def work(bench: Bench) -> None:
        for _ in range(20):
            await bench.patch()

    first, again = in_bench(work), in_bench(work)
    assert first.server.applied == again.server.applied
    assert len({at for at, _ in first.server.applied}) == 20


class SlowServer(FakeServer):
    """One that has to wait, now and then, before it can answer."""

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        if len(self.applied) % 2:
            await asyncio.sleep(1)
        return await super().send(request, timeout_s=timeout_s)


def test_a_call_that_is_begun_at_once_may_still_wait() -> None:
    async def main() -> list[str]:
        bench = Bench(SlowServer())
        wire = FaultyWire(bench.server, bench.link, at_once=True)
        for _ in range(4):
            assert (await wire.send(PATCH, timeout_s=5)).status == 200
        assert asyncio.get_running_loop().time() > 2
        return [writer for _, writer in bench.server.applied]

    assert run(main) == ["ctl-a"] * 4


# --- watches ---


def seen(*scripted: Scripted, server: Callable[[], FakeServer], idle_timeout_s: float = 600) -> list[int]:  # fmt: skip
    found: list[int] = []

    async def work(bench: Bench) -> None:
        found.extend(await bench.read(idle_timeout_s))

    in_bench(work, *scripted, server=server)
    return found


def ten_events() -> FakeServer:
    return FakeServer(events=10, then_open_s=60)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(Fault.DROP, [0, 1, 3, 4, 5, 6, 7, 8, 9], id="a dropped event is never seen"),
        pytest.param(Fault.CUT, [0, 1], id="a cut stream ends before the event"),
        pytest.param(Fault.EXPIRE, [0, 1, -410], id="an expired stream ends in a 410"),
        pytest.param(Fault.DELAY, list(range(10)), id="a late event keeps its place"),
        pytest.param(Fault.COALESCE, [0, 1, 3, 4, 5, 6, 7, 8, 9], id="a newer event replaces it"),
        pytest.param(Fault.FREEZE_1, list(range(10)), id="frozen for one event, then all come"),
        pytest.param(Fault.FREEZE_10, [0, 1], id="frozen for ten events of eight to come"),
        pytest.param(Fault.FREEZE_ALL, [0, 1], id="frozen for good"),
    ],
)
def test_an_event_of_a_watch_goes_wrong(fault: Fault, expected: list[int]) -> None:
    script = Scripted(fault, nth=3, verb="event", resource="configmaps")

    assert seen(script, server=ten_events) == expected


def test_a_frozen_stream_comes_back_after_ten_events() -> None:
    script = Scripted(Fault.FREEZE_10, nth=3, verb="event")

    assert seen(script, server=lambda: FakeServer(events=13, then_open_s=60)) == list(range(13))


def test_a_silent_stream_is_given_up_after_its_idle_time() -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(TimedOut, match="no news for 30 s"):
            await bench.read(idle_timeout_s=30)

    in_bench(work, server=lambda: FakeServer(events=1, then_open_s=1e5))


def test_a_watch_can_be_refused_when_it_is_opened() -> None:
    assert seen(Scripted(Fault.EXPIRED, verb="watch"), server=ten_events) == [-410]


def test_events_wait_for_the_end_of_a_partition() -> None:
    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(bench.read())
            await asyncio.sleep(2.5)
            bench.link.partition = Direction.ANSWERS
            await asyncio.sleep(20)
            bench.link.partition = Direction(0)
        assert reading.result() == list(range(10))

    in_bench(work, server=ten_events)


@pytest.mark.parametrize("fault", OF_EVENT)
def test_every_fault_of_a_watch_happens_by_chance_too(fault: Fault) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(10):
            await bench.read()

    faults = Faults(**{fault.value.replace("-", "_"): 0.2})
    count = in_bench(work, faults=faults, server=ten_events).trace.faults

    assert set(count) == {fault.value}


def test_a_calm_watch_is_whole_though_its_chunks_are_torn() -> None:
    async def work(bench: Bench) -> None:
        assert await bench.read() == list(range(200))

    in_bench(work, faults=Faults(torn=0.5), server=lambda: FakeServer(events=200, then_open_s=10))


def test_a_call_is_traced_with_its_fault() -> None:
    async def work(bench: Bench) -> None:
        await bench.patch()
        with pytest.raises(TimedOut):
            await bench.patch()

    lines = in_bench(work, Scripted(Fault.UNACKNOWLEDGED, nth=2)).lines
    assert [line.split(" ", 1)[1] for line in lines] == [
        "ctl-a patch configmaps/demo/a 200",
        "ctl-a patch configmaps/demo/a 200+unacknowledged",
    ]
