"""
``remuda agent`` with the tart driver, that ends itself with SIGKILL at one named point of its work.

    REMUDA_TEST_ENDS_AT="before record started" python -m tests.support.changed_agent [options of remuda agent]

A point is "before" or "after" one of the calls below; long calls of the driver have one "amid" them, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from remuda.adapters import detached
from remuda.adapters.kube_client import KubeClient
from remuda.adapters.poll_client import PollClient
from remuda.adapters.system import SystemClock
from remuda.adapters.tart import TartVms
from remuda.agent import process
from remuda.agent.decide.recorded import State
from remuda.agent.held_jobs import HeldJobs
from remuda.agent.keeper import KeeperParts
from remuda.agent.mailbox import HostMailbox
from remuda.agent.record import RecordFolder
from remuda.cli import drivers, hosting
from remuda.cli.agent import agent
from remuda.kube.core import POD
from remuda.kube.names import JOB_DELIVERED, VM_CLEANUP
from remuda.kube.patches import MergePatch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from remuda.agent.decide.recorded import ImageRecord, VmRecord
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.kube.patches import Patch
    from remuda.ports.desk import (
        FilePiece,
        FilesRefused,
        HandedJob,
        JobReport,
        NotYou,
        PollAnswer,
        ReportReply,
    )
    from remuda.ports.kube import Token
    from remuda.ports.vms import PullProgress, VmShape

VARIABLE: Final = "REMUDA_TEST_ENDS_AT"
AMID_S: Final = 0.3
"""How long a call goes on before it is left alone; one that is over by then was quick."""


def reach(point: str) -> None:
    """Be at a point. Nothing follows the one that was ordered."""
    if point == os.environ.get(VARIABLE):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def around(what: str) -> Iterator[None]:
    reach(f"before {what}")
    try:
        yield
    finally:  # a call that failed was made all the same
        reach(f"after {what}")


async def amid(what: str, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Make a call; end in the middle of it if that was ordered."""
    with around(what):
        if os.environ.get(VARIABLE) != f"amid {what}":
            await call()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(call())
            await SystemClock().sleep(AMID_S)
            reach(f"amid {what}")


class MortalTart(TartVms):
    """The driver: pull, golden, clone, set, run, stop, delete."""

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        await amid("pull", lambda: super(MortalTart, self).pull(image, progress))

    async def make_golden(self, image: str, golden: str) -> None:
        await amid("golden", lambda: super(MortalTart, self).make_golden(image, golden))

    async def clone(self, golden: str, name: str) -> None:
        await amid("clone", lambda: super(MortalTart, self).clone(golden, name))

    async def shape(self, name: str, shape: VmShape) -> None:
        with around("set"):
            await super().shape(name, shape)

    async def run(self, name: str) -> None:
        with around("run"):
            if os.environ.get(VARIABLE) != "amid run":
                await super().run(name)
                return
            async with asyncio.TaskGroup() as group:
                group.create_task(super().run(name))
                folder = self.log_file(name).parent / "run"
                while not isinstance(detached.look(folder), detached.Alive):
                    await SystemClock().sleep(0)
                reach("amid run")

    async def stop(self, name: str, *, grace_s: float) -> None:
        await amid("stop", lambda: super(MortalTart, self).stop(name, grace_s=grace_s))

    async def delete(self, name: str) -> None:
        with around("delete"):
            await super().delete(name)


class MortalRecords(RecordFolder):
    """Records: each state of a VM and of an image, and their end."""

    def write(self, record: VmRecord) -> None:
        is_ready = record.state is State.STARTED and record.ready_at is not None
        with around(f"record {'ready' if is_ready else record.state}"):
            super().write(record)

    def forget(self, pod_uid: str) -> None:
        with around("record forgotten"):
            super().forget(pod_uid)

    def write_image(self, record: ImageRecord) -> None:
        with around(f"image {record.state}"):
            super().write_image(record)


class MortalHeldJobs(HeldJobs):
    """Jobs on disk: held and dropped."""

    def keep(self, pod_uid: str, job: HandedJob) -> None:
        with around("hold job"):
            super().keep(pod_uid, job)

    def drop(self, pod_uid: str) -> None:
        with around("drop job"):
            super().drop(pod_uid)


class MortalMailbox(HostMailbox):
    """Mailboxes: made, filled, emptied, told to stop, removed."""

    def make(self) -> None:
        with around("make mailbox"):
            super().make()

    def put_job(self, document: bytes) -> None:
        with around("put job"):
            super().put_job(document)

    def take_job_back(self) -> None:
        with around("take job"):
            super().take_job_back()

    def put_stop(self) -> None:
        with around("put stop"):
            super().put_stop()

    def remove(self) -> None:
        with around("remove mailbox"):
            super().remove()


class MortalKube(KubeClient):
    """What is written about a Pod: finalizer on and off, each kind of status, its last delete; and its token."""

    def within(self, seconds: float) -> MortalKube:
        settings = replace(self._settings, call_timeout_s=seconds)
        return MortalKube(self._wire, settings, self._decoding)

    async def patch(
        self,
        kind: Kind[Any],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Any:  # noqa: ANN401 - as its kind says
        if kind is not POD:
            return await super().patch(
                kind, name, patch, namespace=namespace, subresource=subresource
            )
        assert isinstance(patch, MergePatch), "so the agent writes about Pods"
        with around(_written(patch)):
            return await super().patch(
                kind, name, patch, namespace=namespace, subresource=subresource
            )

    async def delete(self, kind: Kind[Resource], name: str, **more: Any) -> None:  # noqa: ANN401 - passed on
        assert kind is POD, "the agent deletes nothing else"
        with around("delete pod"):
            await super().delete(kind, name, **more)

    async def request_token(self, service_account: str, **more: Any) -> Token:  # noqa: ANN401 - passed on
        with around("token"):
            return await super().request_token(service_account, **more)


class MortalDispatch(PollClient):
    """Dispatch: asked for a job, asked to let it begin, told its output and its end."""

    async def poll(self) -> PollAnswer:
        with around("poll"):
            return await super().poll()

    async def report(self, pod: str, report: JobReport) -> ReportReply | NotYou:
        what = "tell output"
        if report.started_at is not None:
            what = "begin"
        elif report.exit_code is not None:
            what = "tell exit"
        with around(what):
            return await super().report(pod, report)

    async def fetch_files(self, pod: str, offset: int) -> bytes | FilesRefused | NotYou:
        with around("fetch files"):
            return await super().fetch_files(pod, offset)

    async def send_files(self, pod: str, piece: FilePiece) -> int | FilesRefused | NotYou:
        with around("send files"):
            return await super().send_files(pod, piece)


def _written(patch: MergePatch) -> str:
    """Name what a patch writes about a Pod."""
    changes: dict[str, Any] = dict(patch.changes)
    if "finalizers" in changes.get("metadata", {}):
        return "hold" if VM_CLEANUP in (changes["metadata"]["finalizers"] or ()) else "release"
    status = changes.get("status", {})
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state", {})
    if "terminated" in state:
        return "status ended"
    if any(one["type"] == JOB_DELIVERED for one in status.get("conditions") or ()):
        return "status delivered"
    if "running" in state:
        return "status ready" if containers[0].get("ready") else "status started"
    return "status waiting"


def _keeper_parts(**given: Any) -> KeeperParts:  # noqa: ANN401 - passed on
    return KeeperParts(**given, mailbox=MortalMailbox)


if __name__ == "__main__":
    vars(drivers)["TartVms"] = MortalTart
    vars(process).update(
        RecordFolder=MortalRecords, HeldJobs=MortalHeldJobs, KeeperParts=_keeper_parts
    )
    vars(hosting).update(KubeClient=MortalKube, PollClient=MortalDispatch)
    agent()
