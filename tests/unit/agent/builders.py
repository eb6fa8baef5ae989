"""Records for tests of the agent: what a test does not care about has a dull default."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from remuda.agent.decide.recorded import OVER, ImageRecord, ImageState, State, Verdict, VmRecord

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    class RecordFields(TypedDict, total=False):
        image: str
        accepted_at: datetime
        started_at: datetime | None
        ready_at: datetime | None
        job_id: str
        delivered_at: datetime | None
        job_deadline: datetime | None


NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
UID = "0b6f5e2e-7a52-4a5e-9a1c-52a1a6d3c001"
IMAGE = "registry.example/mac@sha256:" + "a" * 64
DONE = Verdict(succeeded=True, exit_code=0, reason="Completed", message="", finished_at=NOON)


def ago(**parts: float) -> datetime:
    return NOON - timedelta(**parts)


def a_record(
    state: State = State.STARTED, uid: str = UID, **fields: Unpack[RecordFields]
) -> VmRecord:
    dull = VmRecord(
        pod_uid=uid,
        namespace="ci",
        pod="mac-abcde",
        image=IMAGE,
        state=state,
        accepted_at=ago(hours=3),
        verdict=DONE if state in OVER else None,
    )
    return replace(dull, **fields)


def an_image(
    image: str = IMAGE,
    state: ImageState = ImageState.READY,
    wanted_at: datetime = NOON,
) -> ImageRecord:
    return ImageRecord(image=image, state=state, wanted_at=wanted_at)
