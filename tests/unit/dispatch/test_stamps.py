"""The stamp on a Pod: whose it is, who may replace it, and who may take it off."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.stamps import NotStamped, Stamps, claim_text, claimed_at
from remuda.kube.core import POD, Pod
from remuda.kube.names import CLAIM, OWNER
from remuda.kube.patches import MergePatch
from remuda.model.job import Claim
from tests.unit.dispatch.hall import SETTINGS, SPACE, in_hall, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from tests.unit.dispatch.hall import Hall

NOON = datetime(2026, 3, 1, 12, 0, 0, 7, tzinfo=UTC)


async def a_claim(hall: Hall, at: datetime = NOON, job: str = "github.com/4711") -> Claim:
    if "a" not in hall.pods:
        await hall.add_pod()
    return Claim(job, "a", hall.pods["a"].uid, at)


def stamps(hall: Hall) -> Stamps:
    return Stamps(hall.desk.kube, SETTINGS)


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


@pytest.mark.parametrize(
    "at", [NOON, NOON.replace(microsecond=0), NOON.astimezone(tz=None)], ids=str
)
def test_a_claims_text_keeps_its_microseconds(at: datetime) -> None:
    text = claim_text(Claim("github.com/4@7", "a", "u", at))
    assert text.startswith("github.com/4@7@2026-03-01T12:00:00.")
    assert claimed_at(text) == at


@pytest.mark.parametrize("text", ["", "job", "job@", "@", "job@yesterday", "job@2026-03-01"])
def test_a_text_that_no_claim_wrote_has_no_time(text: str) -> None:
    assert claimed_at(text) is None


@story()
async def test_a_stamp_is_owner_and_claim_in_one_patch(hall: Hall) -> None:
    claim = await a_claim(hall)
    pod = await stamps(hall).stamp(await hall.pod(), claim, "acme", stands=yes)
    assert isinstance(pod, Pod)
    assert pod.labels[OWNER] == "acme"
    assert pod.metadata.annotations[CLAIM] == claim_text(claim)
    assert len(hall.tap.of("PATCH")) == 1


@story()
async def test_a_stamp_that_is_there_already_is_not_written_again(hall: Hall) -> None:
    claim = await a_claim(hall)
    pod = await stamps(hall).stamp(await hall.pod(), claim, "acme", stands=yes)
    assert isinstance(pod, Pod)
    assert await stamps(hall).stamp(pod, claim, "acme", stands=yes) == pod
    assert len(hall.tap.of("PATCH")) == 1


@pytest.mark.parametrize("later", [timedelta(microseconds=1), timedelta(minutes=-5)], ids=str)
def test_another_claims_stamp_is_replaced_only_by_a_claim_that_stands(later: timedelta) -> None:
    """Whatever the times of both say: the clocks of replicas differ."""

    async def play(hall: Hall) -> None:
        older, newer = await a_claim(hall), await a_claim(hall, NOON + later)
        pod = await stamps(hall).stamp(hall.pods["a"], older, "acme", stands=yes)
        assert isinstance(pod, Pod)
        pod = await stamps(hall).stamp(pod, newer, "globex", stands=yes)
        assert isinstance(pod, Pod)
        assert pod.labels[OWNER] == "globex"
        refused = await stamps(hall).stamp(pod, older, "acme", stands=no)
        assert isinstance(refused, NotStamped)
        assert refused.leave is None
        assert (await hall.pod()).labels[OWNER] == "globex"

    in_hall(play)


@story()
async def test_an_owner_that_no_claim_put_there_is_left_alone(hall: Hall) -> None:
    claim = await a_claim(hall)
    await hall.label("a", owner="")
    refused = await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    assert isinstance(refused, NotStamped)
    assert (await hall.pod()).labels[OWNER] == ""


@story()
async def test_a_pod_that_is_gone_or_another_by_now_takes_no_stamp(hall: Hall) -> None:
    claim = await a_claim(hall)
    other = replace(claim, pod_uid="0")
    refused = await stamps(hall).stamp(hall.pods["a"], other, "acme", stands=yes)
    assert isinstance(refused, NotStamped)
    assert refused.leave
    await hall.delete("a")
    refused = await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    assert isinstance(refused, NotStamped)
    assert refused.leave


@story()
async def test_a_tenant_that_cannot_be_a_label_fails_for_its_own_jobs_only(hall: Hall) -> None:
    claim = await a_claim(hall)
    refused = await stamps(hall).stamp(hall.pods["a"], claim, "not a label!", stands=yes)
    assert isinstance(refused, NotStamped)
    assert refused.final
    assert not refused.unreachable


@story()
async def test_a_server_that_does_not_answer_is_no_reason_to_go_home(hall: Hall) -> None:
    claim = await a_claim(hall)
    hall.tap.hurts = [Hurt("PATCH", "dropped", times=9)]
    refused = await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    assert isinstance(refused, NotStamped)
    assert refused.unreachable
    assert refused.leave is None


@story()
async def test_only_its_own_stamp_is_taken_off(hall: Hall) -> None:
    claim = await a_claim(hall)
    await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    for other in (
        replace(claim, claimed_at=NOON + timedelta(microseconds=1)),
        replace(claim, job_id="github.com/4712"),
        replace(claim, pod_uid="0"),
    ):
        assert await stamps(hall).unstamp(other)
        assert await hall.is_stamped()
    assert await stamps(hall).unstamp(claim)
    assert not await hall.is_stamped()
    assert await stamps(hall).unstamp(claim), "twice is as good as once"


@story()
async def test_what_others_wrote_stays_when_a_stamp_is_taken_off(hall: Hall) -> None:
    claim = await a_claim(hall)
    await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    await hall.label("a", drain="true")
    assert await stamps(hall).unstamp(claim)
    assert (await hall.pod()).labels["remuda.dev/drain"] == "true"


@story()
async def test_half_a_stamp_is_taken_off_too(hall: Hall) -> None:
    claim = await a_claim(hall)
    await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    await hall.label("a", owner=None)
    assert await stamps(hall).unstamp(claim)
    assert CLAIM not in (await hall.pod()).metadata.annotations


@story()
async def test_a_stamp_on_a_pod_that_is_gone_is_gone(hall: Hall) -> None:
    claim = await a_claim(hall)
    await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    await hall.delete("a")
    assert await stamps(hall).unstamp(claim)


@story()
async def test_a_stamp_that_cannot_be_taken_off_is_said_to_be_there(hall: Hall) -> None:
    claim = await a_claim(hall)
    await stamps(hall).stamp(hall.pods["a"], claim, "acme", stands=yes)
    hall.tap.hurts = [Hurt("PATCH", "dropped", times=9)]
    assert not await stamps(hall).unstamp(claim)


@story()
async def test_a_stamp_that_was_applied_late_is_found_by_reading_it_back(hall: Hall) -> None:
    """The answer of the first try is lost, and somebody else changes the Pod before it is read back."""
    claim = await a_claim(hall)
    hall.tap.hurts = [Hurt("PATCH", "lost")]
    seen = hall.pods["a"]

    async def meddle(said: str) -> None:
        del said
        patch = MergePatch({"metadata": {"labels": {"colour": "blue"}}})
        hall.tap.before = None
        await hall.kube.patch(POD, "a", patch, namespace=SPACE)

    hall.tap.before = meddle
    pod = await stamps(hall).stamp(seen, claim, "acme", stands=yes)
    assert isinstance(pod, Pod)
    assert (pod.labels["colour"], pod.labels[OWNER]) == ("blue", "acme")
