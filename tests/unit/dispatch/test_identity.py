"""Whose token it is: real tokens of the control plane in memory, and what a server might answer that it should not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from remuda.adapters.kube_client import KubeClient
from remuda.dispatch import tokens
from remuda.dispatch.identity import KNOWN_MAX, REVIEW_S, REVIEWS_MAX, STRANGERS_S, Identities
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.view import DispatchView
from remuda.dispatch.who import PersonIdentity, RunnerIdentity, ServiceIdentity, Unknown
from remuda.kube.core import (
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    Container,
    Namespace,
    Pod,
    PodSpec,
    ServiceAccount,
)
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import AUDIENCE, POOL, RUNNER
from remuda.ports.api_tokens import Role
from remuda.ports.kube import BoundPod, TokenSubject, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import furnish
from remuda.sim.ids import SeededIds
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.tables import Tables
from remuda.sim.loop import run
from remuda.standalone.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from remuda.ports.kube import Kube

SPACE = "runners"
SETTINGS = DispatchSettings(namespace=SPACE)


class Counted:
    """The API server with every call counted; it can answer reviews as the test says."""

    def __init__(self, inner: KubeClient) -> None:
        self._inner = inner
        self.reviews = self.gets = 0
        self.fails = False
        self.takes_s = 0.0
        self.says: TokenSubject | None = None

    def within(self, seconds: float) -> Counted:
        del seconds
        return self

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        self.reviews += 1
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise Unavailable("Not reviewed", why="it is down", fix="Wait")
        return self.says or await self._inner.review_token(token, audience=audience)

    async def get(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the port has it
        self.gets += 1
        return await self._inner.get(*args, **kwargs)


@dataclass
class Gate:
    identities: Identities
    kube: KubeClient
    counted: Counted
    api_tokens: MemoryApiTokens
    clock: SimClock
    view: DispatchView

    async def add(self, name: str, namespace: str = SPACE, **labels: str) -> Pod:
        meta = ObjectMeta(name=name, namespace=namespace, labels=labels)
        await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        return await self.kube.create(POD, pod_of(name, namespace, name, labels))

    async def runner(self, name: str = "a") -> Pod:
        pod = await self.add(name, **{RUNNER: "true", POOL: "linux"})
        await self.clock.sleep(1)
        return pod

    async def token(
        self, account: str, pod: Pod | None = None, namespace: str = SPACE, audience: str = AUDIENCE
    ) -> str:
        bound = None if pod is None else BoundPod(pod.name, pod.uid)
        token = await self.kube.request_token(
            account, namespace=namespace, audience=audience, expiration_s=3600, pod=bound
        )
        return token.text


def pod_of(name: str, namespace: str, account: str, labels: dict[str, str]) -> Pod:
    meta = ObjectMeta(name=name, namespace=namespace, labels=labels)
    spec = PodSpec(containers=(Container(name="c", image="i"),), service_account_name=account)
    return Pod(metadata=meta, spec=spec)


@asynccontextmanager
async def a_gate(settings: DispatchSettings = SETTINGS) -> AsyncIterator[Gate]:
    clock = SimClock(asyncio.get_running_loop())
    plane = ControlPlane.in_memory(clock, SeededIds(1, "plane"))
    kube = KubeClient(plane.wire())
    counted, api_tokens = Counted(kube), MemoryApiTokens(Tables(clock))
    view = DispatchView(kube, settings, clock=clock, ids=SeededIds(1, "view"))
    ours = cast("Kube", counted)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(plane.run())]
        await furnish(plane.wire(), kube, SPACE)
        running.append(group.create_task(view.run()))
        await view.wait_synced()
        identities = Identities(ours, api_tokens, settings, clock, view=view)
        yield Gate(identities, kube, counted, api_tokens, clock, view)
        for task in running:
            task.cancel()


def story(
    play: Callable[[Gate], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    async def main() -> None:
        async with a_gate() as gate:
            await play(gate)

    def test() -> None:
        run(main)

    test.__name__ = play.__name__
    return test


def status(who: object) -> int:
    assert isinstance(who, Unknown), who
    assert who.why
    assert who.fix
    return who.status


@story
async def test_a_runner_is_known_by_its_pods_token(gate: Gate) -> None:
    pod = await gate.runner()
    assert await gate.identities.runner(await gate.token("a", pod)) == RunnerIdentity("a", pod.uid)


@story
async def test_a_token_for_another_audience_is_nobodys(gate: Gate) -> None:
    pod = await gate.runner()
    token = await gate.token("a", pod, audience="https://kubernetes.default.svc")
    assert status(await gate.identities.runner(token)) == 401
    assert status(await gate.identities.service(token)) == 401


@story
async def test_a_review_without_our_audience_fails_closed(gate: Gate) -> None:
    pod = await gate.runner()
    token = await gate.token("a", pod)
    subject = await gate.kube.review_token(token, audience=AUDIENCE)
    assert subject is not None
    for audiences in ((), ("other",)):
        gate.counted.says = replace(subject, audiences=audiences)
        fresh = f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}{len(audiences)}"
        assert status(await gate.identities.runner(fresh)) == 401


@story
async def test_a_runner_of_another_namespace_is_refused(gate: Gate) -> None:
    await gate.kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="elsewhere")))
    pod = await gate.add("a", "elsewhere", **{RUNNER: "true"})
    token = await gate.token("a", pod, namespace="elsewhere")
    assert status(await gate.identities.runner(token)) == 403


@story
async def test_a_token_that_is_bound_to_no_pod_is_refused(gate: Gate) -> None:
    await gate.runner()
    assert status(await gate.identities.runner(await gate.token("a"))) == 403


@story
async def test_a_pod_that_is_no_runners_is_refused(gate: Gate) -> None:
    pod = await gate.add("web")
    assert status(await gate.identities.runner(await gate.token("web", pod))) == 403


@story
async def test_another_pod_with_a_runners_service_account_is_refused(gate: Gate) -> None:
    await gate.runner()
    other = await gate.kube.create(POD, pod_of("b", SPACE, "a", {RUNNER: "true"}))
    assert status(await gate.identities.runner(await gate.token("a", other))) == 403


@story
async def test_a_token_of_an_earlier_pod_of_the_same_name_is_refused_though_its_review_is_kept(
    gate: Gate,
) -> None:
    pod = await gate.runner()
    token = await gate.token("a", pod)
    assert isinstance(await gate.identities.runner(token), RunnerIdentity)
    await gate.kube.delete(POD, "a", namespace=SPACE, grace_s=0)
    await gate.kube.create(POD, pod_of("a", SPACE, "a", {RUNNER: "true"}))
    await gate.clock.sleep(1)

    assert status(await gate.identities.runner(token)) == 401
    assert gate.counted.reviews == 1


@story
async def test_a_pod_that_no_view_shows_is_asked_for(gate: Gate) -> None:
    pod = await gate.runner()
    blind = Identities(cast("Kube", gate.counted), gate.api_tokens, SETTINGS, gate.clock)
    assert isinstance(await blind.runner(await gate.token("a", pod)), RunnerIdentity)
    assert gate.counted.gets == 1


@story
async def test_a_review_is_kept_for_a_minute_and_made_again_after_it(gate: Gate) -> None:
    token = await gate.token("a", await gate.runner())
    for _ in range(5):
        assert isinstance(await gate.identities.runner(token), RunnerIdentity)
    assert (gate.counted.reviews, gate.counted.gets) == (1, 0)
    await gate.clock.sleep(61)
    await gate.identities.runner(token)
    assert gate.counted.reviews == 2


@story
async def test_a_stranger_is_a_stranger_for_a_few_seconds(gate: Gate) -> None:
    for _ in range(3):
        assert status(await gate.identities.runner("a.b.c")) == 401
    assert gate.counted.reviews == 1
    await gate.clock.sleep(STRANGERS_S + 1)
    await gate.identities.runner("a.b.c")
    assert gate.counted.reviews == 2


@story
async def test_text_that_cannot_be_a_token_is_refused_without_a_review(gate: Gate) -> None:
    for text in (
        "",
        "a",
        "a.b",
        "a.b.c.d",
        "a.b.c\n",
        "ä.b.c",
        "a. .c",
        "x" * 9000,
        f"a.b.{'c' * 9000}",
    ):
        assert status(await gate.identities.runner(text)) == 401
        assert status(await gate.identities.service(text)) == 401
    assert gate.counted.reviews == 0


@story
async def test_many_requests_with_one_token_are_one_review(gate: Gate) -> None:
    token = await gate.token("a", await gate.runner())
    gate.counted.takes_s = 1.0
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(gate.identities.runner(token)) for _ in range(50)]
    assert {type(task.result()) for task in asked} == {RunnerIdentity}
    assert gate.counted.reviews == 1


@story
async def test_whoever_asked_first_may_go_without_taking_the_others_along(gate: Gate) -> None:
    token = await gate.token("a", await gate.runner())
    gate.counted.takes_s = 1.0
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gate.identities.runner(token))
        await gate.clock.sleep(0.5)
        second = group.create_task(gate.identities.runner(token))
        await gate.clock.sleep(0.1)
        first.cancel()
    assert isinstance(second.result(), RunnerIdentity)


@story
async def test_a_server_that_fails_makes_nobody_a_stranger(gate: Gate) -> None:
    token = await gate.token("a", await gate.runner())
    gate.counted.fails, gate.counted.takes_s = True, 0.1
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_caught(gate, token)) for _ in range(3)]
    assert all(task.result() for task in asked)
    gate.counted.fails = False
    assert isinstance(await gate.identities.runner(token), RunnerIdentity)


async def _caught(gate: Gate, token: str) -> bool:
    try:
        await gate.identities.runner(token)
    except Unavailable:
        return True
    return False


@story
async def test_a_server_that_hangs_keeps_nobody_waiting_in_an_endless_line(gate: Gate) -> None:
    """More tokens than are reviewed at once, and no answer to any of them."""
    gate.counted.takes_s = 3600.0
    token = await gate.token("a", await gate.runner())
    head, _, tail = token.rpartition(".")
    began = gate.clock.monotonic()

    async def ask(number: int) -> str:
        try:
            await gate.identities.runner(f"{head}.{tail}{number}")
        except Unavailable as error:
            return error.why
        return ""

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(number)) for number in range(4 * REVIEWS_MAX)]
    assert all(task.result() for task in asked)
    assert gate.clock.monotonic() - began <= REVIEW_S + 1
    assert gate.counted.reviews == REVIEWS_MAX


@story
async def test_rubbish_fills_neither_memory_nor_the_place_of_those_who_are_known(
    gate: Gate,
) -> None:
    token = await gate.token("a", await gate.runner())
    await gate.identities.runner(token)
    for number in range(11_000):
        await gate.identities.runner(f"a.b.{number}")
    before = gate.counted.reviews
    await gate.identities.runner(token)
    assert gate.counted.reviews == before
    assert before <= KNOWN_MAX


# --- Services ---------------------------------------------------------------------------------------------------------


@story
async def test_a_service_account_of_the_cluster_is_a_service(gate: Gate) -> None:
    await gate.kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="elsewhere")))
    pod = await gate.add("web", "elsewhere")
    for bound in (pod, None):
        token = await gate.token("web", bound, namespace="elsewhere")
        assert await gate.identities.service(token) == ServiceIdentity("elsewhere", "web")


@story
async def test_the_operators_own_account_is_the_controller_and_no_other_is(gate: Gate) -> None:
    pod = await gate.add("remuda-controller")
    who = await gate.identities.service(await gate.token("remuda-controller", pod))
    assert isinstance(who, ServiceIdentity)
    assert gate.identities.is_controller(who)
    assert not gate.identities.is_controller(ServiceIdentity("elsewhere", "remuda-controller"))
    assert not gate.identities.is_controller(ServiceIdentity(SPACE, "default"))


@story
async def test_a_runner_does_not_pass_for_a_service(gate: Gate) -> None:
    pod = await gate.runner()
    for bound in (pod, None):
        assert status(await gate.identities.service(await gate.token("a", bound))) == 403


@story
async def test_a_runners_account_without_its_pod_does_not_pass_for_a_service_either(
    gate: Gate,
) -> None:
    meta = ObjectMeta(name="left", namespace=SPACE, labels={RUNNER: "true"})
    await gate.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
    assert status(await gate.identities.service(await gate.token("left"))) == 403


@story
async def test_a_service_does_not_pass_for_a_runner(gate: Gate) -> None:
    pod = await gate.add("remuda-controller")
    token = await gate.token("remuda-controller", pod)
    assert status(await gate.identities.runner(token)) == 403


# --- People -----------------------------------------------------------------------------------------------------------


@story
async def test_a_person_is_known_by_an_api_token_until_it_expires(gate: Gate) -> None:
    new = await tokens.create(
        gate.api_tokens,
        "ann",
        Role.READ,
        ids=SeededIds(1, "t"),
        clock=gate.clock,
        lifetime=timedelta(seconds=30),
    )
    assert await gate.identities.person(new.text) == PersonIdentity("ann", Role.READ)
    assert status(await gate.identities.runner(new.text)) == 401
    assert status(await gate.identities.service(new.text)) == 401
    await gate.clock.sleep(31)
    assert status(await gate.identities.person(new.text)) == 401


@story
async def test_a_revoked_token_is_believed_for_a_minute_at_most(gate: Gate) -> None:
    new = await tokens.create(
        gate.api_tokens, "ann", Role.OPERATE, ids=SeededIds(1, "t"), clock=gate.clock
    )
    await gate.identities.person(new.text)
    await tokens.revoke(gate.api_tokens, "ann")
    await gate.clock.sleep(61)
    assert status(await gate.identities.person(new.text)) == 401


@story
async def test_a_runner_is_no_person(gate: Gate) -> None:
    pod = await gate.runner()
    assert status(await gate.identities.person(await gate.token("a", pod))) == 401
