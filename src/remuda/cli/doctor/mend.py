"""
Carries out what ``decide.mending`` found safe. Each act begins with a fresh look, and is bound to what that look saw.

What has changed since, or cannot be seen any more, is left alone and said so. Doing it twice does no more than once.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
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
    from remuda.cli.tree.folder import Folder
    from remuda.kube.core import Pod, ServiceAccount
    from remuda.kube.patches import JsonValue
    from remuda.ports.api import Api, RunnerRow
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

T = TypeVar("T")
_CHANGED = "it has changed since it was looked at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """What the acts work with. What there is none of, they leave alone."""

    clock: Clock
    shift: timedelta
    """How far the clock of the Kubernetes API is ahead of ours."""
    stuck_after_s: float
    folder: Folder
    kube: Kube | None = None
    api: Api | None = None

    @property
    def now(self) -> datetime:
        """What time it is for the Kubernetes API."""
        return self.clock.now() + self.shift

    async def runner(self, name: str) -> RunnerRow | Unread | None:
        """Ask dispatch what it knows of a runner."""
        if self.api is None:
            return Unread(why="It is not known where dispatch is.")
        return await asked(_or_none(self.api.runner(name)), CALL_S)


@asynccontextmanager
async def a_hand(where: Where, facts: Facts, clock: Clock) -> AsyncIterator[Hand]:
    """Open what the acts need, as far as the first look could read it; closed at the end."""
    async with AsyncExitStack() as opened:
        kube: KubeClient | None = None
        api: Api | None = None
        if not isinstance(facts.kube, Unread):
            settings = ClientSettings(call_timeout_s=CALL_S)
            kube = KubeClient(HttpWire(where.connection()), settings)
            opened.push_async_callback(kube.close)
        if not isinstance(facts.api, Unread):
            told = replace(where.api_settings(), timeout_s=CALL_S)
            api = await opened.enter_async_context(api_client(told, clock))
        yield Hand(
            clock=clock,
            shift=facts.kube_now - facts.now,
            stuck_after_s=facts.stuck_after_s,
            folder=data_folder(where.data),
            kube=kube,
            api=api,
        )


async def mend(acts: Sequence[Mend], hand: Hand) -> tuple[Mended, ...]:
    """Do all of it, one after the other. A fault of the world is said of the one that it hit."""
    return tuple([await _one(act, hand) for act in acts])


async def _one(act: Mend, hand: Hand) -> Mended:
    try:
        match act:
            case LetGo(pod):
                left = await _let_go(pod, hand)
            case RemoveAccount(account):
                left = await _remove_account(account, hand)
            case RemoveLeftover(path):
                left = _remove_leftover(Path(path), hand.folder)
            case _:
                assert_never(act)
    except RemudaError as error:
        left = f"{error.what}: {error.why}"
    outcome = Outcome.LEFT if left else Outcome.DONE
    return Mended(what=act.says, outcome=outcome, why=left)


async def _let_go(seen: Pod, hand: Hand) -> str:
    """Let a Pod go; returns why not, if not."""
    kube = hand.kube
    assert kube is not None, "a Pod was seen through it"
    pod = await _or_none(kube.get(POD, seen.name, namespace=seen.namespace))
    if pod is None:
        return "it is gone already"
    host = pod.spec.node_name
    if pod.uid != seen.uid or not host:
        return _CHANGED
    behind = Behind(
        runner=await hand.runner(pod.name),
        node=await asked(_or_none(kube.get(NODE, host)), CALL_S),
        lease=await asked(_or_none(kube.get(LEASE, host, namespace=NODE_LEASES)), CALL_S),
        now=hand.now,
        stuck_after_s=hand.stuck_after_s,
    )
    return why_kept(pod, behind) or await _release(kube, pod)


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
    kube = hand.kube
    assert kube is not None, "a ServiceAccount was seen through it"
    pod = await _or_none(kube.get(POD, seen.name, namespace=seen.namespace))
    account = await _or_none(kube.get(SERVICE_ACCOUNT, seen.name, namespace=seen.namespace))
    if account is None:
        return "it is gone already"
    orphan = is_orphan(account, has_pod=pod is not None, now=hand.now)
    if account.uid != seen.uid or not orphan:
        return _CHANGED
    known = Seen(uid=account.uid, resource_version=account.resource_version)
    try:
        await kube.delete(SERVICE_ACCOUNT, account.name, namespace=account.namespace, seen=known)
    except NotFound:
        return ""  # which was the aim
    except Conflict:
        return _CHANGED
    return ""


def _remove_leftover(path: Path, folder: Folder) -> str:
    """Remove a file, while nobody else can use the folder; returns why not, if not."""
    with held(folder):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def _or_none(read: Awaitable[T]) -> T | None:
    try:
        return await read
    except (NotFound, ApiNotFound):
        return None
