"""What the agent writes about Pods: only what differs, from a fresh look, and never to another Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.agent.publishing import TRIES, Publisher
from remuda.kube.core import POD, PodStatus
from remuda.kube.names import VM_CLEANUP
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Conflict, Refused
from tests.unit.agent.test_known_pods import SPACE, Watched, played
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from remuda.kube.core import Pod


async def _setup(watched: Watched) -> tuple[Publisher, Pod]:
    await watched.pods.wait_synced()
    pod = await watched.add()
    await watched.clock.sleep(1)
    return Publisher(watched.pods._kube, watched.pods), pod  # noqa: SLF001 - the tapped one


def _running(pod: Pod) -> PodStatus:
    return msgspec.structs.replace(pod.status, phase="Running")


def test_a_finalizer_goes_through_status_and_leaves_those_of_others() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)
        await watched.patch(metadata={"finalizers": ["example.com/theirs"]})
        held = await publisher.hold(pod)
        assert held.metadata.finalizers == ("example.com/theirs", VM_CLEANUP)
        assert all(said.endswith("/status") for said in watched.tap.of("PATCH"))
        assert watched.pods.get(pod.uid) == held, "nobody has to wait for the watch"
        await publisher.hold(held)
        assert len(watched.tap.of("PATCH")) == 2, "what is there is not written again"

    played(play)


def test_a_pod_that_is_let_go_keeps_the_finalizers_of_others() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)
        held = await watched.patch(metadata={"finalizers": ["example.com/theirs", VM_CLEANUP]})
        await watched.kube.delete(POD, pod.name, namespace=SPACE)
        await watched.clock.sleep(1)
        await publisher.release(held)
        left = await watched.kube.get(POD, pod.name, namespace=SPACE)
        assert left.metadata.finalizers == ("example.com/theirs",)
        await watched.patch(metadata={"finalizers": None})
        await publisher.release(left)

    played(play)


def test_a_write_that_meets_another_is_made_from_a_fresh_look() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)

        async def meddle(said: str) -> None:
            if "PATCH" in said and len(watched.tap.of("PATCH")) < TRIES:
                number = str(len(watched.tap.writes))
                await watched.patch(metadata={"labels": {"number": number}})

        watched.tap.before = meddle
        written = await publisher.status(pod, _running)
        assert written.status.phase == "Running"
        assert "number" in written.metadata.labels

    played(play)


def test_one_that_always_meets_others_gives_up_for_now() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)

        async def meddle(_said: str) -> None:
            await watched.patch(metadata={"labels": {"number": str(len(watched.tap.writes))}})

        watched.tap.before = meddle
        with pytest.raises(Conflict):
            await publisher.status(pod, _running)
        assert len(watched.tap.of("PATCH")) == TRIES

    played(play)


def test_another_pod_of_the_same_name_is_never_written_to_nor_deleted() -> None:
    async def play(watched: Watched) -> None:
        publisher, old = await _setup(watched)
        await watched.remove()
        new = await watched.add()
        await watched.clock.sleep(1)
        await publisher.status(old, _running)
        await publisher.release(old)
        left = await watched.kube.get(POD, new.name, namespace=SPACE)
        assert left.uid == new.uid
        assert left.status.phase == "Pending"
        assert left.metadata.deletion_timestamp is None

    played(play)


def test_a_refused_delete_is_success_only_if_the_pod_is_gone() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)
        watched.tap.hurts.append(Hurt("DELETE", "refused", times=2))
        with pytest.raises(Refused):
            await publisher.confirm_deletion(pod)
        await watched.remove()
        await publisher.confirm_deletion(pod)

    played(play)


def test_only_touched_keys_are_sent() -> None:
    async def play(watched: Watched) -> None:
        publisher, pod = await _setup(watched)
        patch = MergePatch({"status": {"reason": "Theirs"}})
        await watched.kube.patch(POD, pod.name, patch, namespace=SPACE, subresource="status")
        written = await publisher.status(pod, _running)
        assert written.status.reason == "Theirs"

    played(play)
