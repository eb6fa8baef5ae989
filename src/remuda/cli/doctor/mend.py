"""
Carries out what ``decide.mending`` found safe. Each act begins with a fresh look, and is bound to what that look saw.

What has changed since, or cannot be seen any more, is left alone and said so. Doing it twice does no more than once.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, assert_never

from remuda.adapters.api_client import api_client
from remuda.adapters.kube_client import ClientSettings, HttpWire, KubeClient
from remuda.agent.lease import NAMESPACE as NODE_LEASES
from remuda.cli.doctor.asking import CALL_S, asked
from remuda.cli.doctor.decide.facts import Unread
from remuda.cli.doctor.decide.mending import (
    Behind,
    LetGo,
    RemoveAccount,
    RemoveLeftover,
    is_orphan,
    other_finalizers,
    why_kept,
)
from remuda.cli.doctor.decide.report import Mended, Outcome
from remuda.cli.tree.folder import data_folder, held
from remuda.kube.core import LEASE, NODE, POD, SERVICE_ACCOUNT
from remuda.kube.patches import MergePatch
from remuda.model.errors import RemudaError
from remuda.ports.api import ApiNotFound
from remuda.ports.kube import Conflict, NotFound, Seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from datetime import datetime, timedelta

    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.mending import Mend
    from remuda.cli.finding import Where
    from remuda.kube.core import Pod, ServiceAccount
    from remuda.kube.patches import JsonValue
    from remuda.ports.api import RunnerRow
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

T = TypeVar("T")
_CHANGED = "it has changed since it was looked at"


async def mend(
    mends: Sequence[Mend], where: Where, facts: Facts, clock: Clock
) -> tuple[Mended, ...]:
    """Do all of it, one after the other. A fault of the world is said of the one that it hit."""
    shift = facts.kube_now - facts.now
    return tuple([await _one(act, Hand(where, clock, facts, shift)) for act in mends])


class Hand:
    """What the acts share."""

    def __init__(self, where: Where, clock: Clock, facts: Facts, shift: timedelta) -> None:
        self.where, self._clock, self._facts, self._shift = where, clock, facts, shift

    @property
    def now(self) -> datetime:
        """What time it is for the Kubernetes API."""
        return self._clock.now() + self._shift

    @property
    def stuck_after_s(self) -> float:
        return self._facts.stuck_after_s

    @asynccontextmanager
    async def kube(self) -> AsyncIterator[Kube]:
        client = KubeClient(
            HttpWire(self.where.connection()), ClientSettings(call_timeout_s=CALL_S)
        )
        try:
            yield client
        finally:
            await client.close()

    async def runner(self, name: str) -> RunnerRow | Unread | None:
        """Ask dispatch what it knows of a runner."""
        settings = replace(self.where.api_settings(), timeout_s=CALL_S)
        async with api_client(settings, self._clock) as api:
            try:
                return await api.runner(name)
            except ApiNotFound:
                return None
            except RemudaError as error:
                return Unread(why=f"{error.what}: {error.why}.")


async def _one(act: Mend, hand: Hand) -> Mended:
    try:
        match act:
            case LetGo(pod):
                left = await _let_go(pod, hand)
            case RemoveAccount(account):
                left = await _remove_account(account, hand)
            case RemoveLeftover(path):
                left = _remove_leftover(Path(path), hand.where)
            case _:
                assert_never(act)
    except RemudaError as error:
        left = f"{error.what}: {error.why}"
    outcome = Outcome.LEFT if left else Outcome.DONE
    return Mended(what=act.says, outcome=outcome, why=left)


async def _let_go(seen: Pod, hand: Hand) -> str:
    """Let a Pod go; returns why not, if not."""
    async with hand.kube() as kube:
        try:
            pod = await kube.get(POD, seen.name, namespace=seen.namespace)
        except NotFound:
            return "it is gone already"
        if pod.uid != seen.uid:
            return _CHANGED
        host = pod.spec.node_name
        behind = Behind(
            runner=await hand.runner(pod.name),
            node=await asked(_or_none(kube.get(NODE, host)), CALL_S),
            lease=await asked(_or_none(kube.get(LEASE, host, namespace=NODE_LEASES)), CALL_S),
            now=hand.now,
            stuck_after_s=hand.stuck_after_s,
        )
        if kept := why_kept(pod, behind):
            return kept
        return await _release(kube, pod)


async def _release(kube: Kube, pod: Pod) -> str:
    """Take our finalizer off and confirm the deletion, as its agent would have."""
    others: list[JsonValue] = [*other_finalizers(pod)]
    seen: dict[str, JsonValue] = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    try:
        if len(others) < len(pod.metadata.finalizers):
            change = MergePatch({"metadata": {**seen, "finalizers": others or None}})
            await kube.patch(POD, pod.name, change, namespace=pod.namespace)
        await kube.delete(POD, pod.name, namespace=pod.namespace, seen=Seen(uid=pod.uid), grace_s=0)
    except NotFound:
        return ""  # it is gone, which was the aim
    except Conflict:
        return _CHANGED
    if others:
        return f"other finalizers hold it: {', '.join(other_finalizers(pod))}"
    return ""


async def _remove_account(seen: ServiceAccount, hand: Hand) -> str:
    """Delete a ServiceAccount; returns why not, if not."""
    async with hand.kube() as kube:
        pod = await _or_none(kube.get(POD, seen.name, namespace=seen.namespace))
        account = await _or_none(kube.get(SERVICE_ACCOUNT, seen.name, namespace=seen.namespace))
        if account is None:
            return "it is gone already"
        if account.uid != seen.uid or not is_orphan(account, has_pod=bool(pod), now=hand.now):
            return _CHANGED
        known = Seen(uid=account.uid, resource_version=account.resource_version)
        with suppress(NotFound):
            try:
                await kube.delete(
                    SERVICE_ACCOUNT, account.name, namespace=account.namespace, seen=known
                )
            except Conflict:
                return _CHANGED
    return ""


def _remove_leftover(path: Path, where: Where) -> str:
    """Remove a file, while nobody else can use the folder; returns why not, if not."""
    with held(data_folder(where.data)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def _or_none(read: Awaitable[T]) -> T | None:
    try:
        return await read
    except NotFound:
        return None
