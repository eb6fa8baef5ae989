"""Tests that kill whole trees name the runners of VMs by their records, whatever else the agent keeps of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from remuda.agent.decide.recorded import State, VmRecord
from remuda.agent.held_jobs import HeldJobs
from remuda.agent.record import RecordFolder
from remuda.ports.desk import HandedJob, JobKind
from tests.support.trees import Tree

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_a_vm_that_is_just_given_its_job_has_one_runner(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    record = VmRecord(
        pod_uid="u-1", namespace="ci", pod="mac", image="i", state=State.CLONING, accepted_at=NOON
    )
    records = RecordFolder(tree.folder.agent / "records")
    records.write(record)
    records.close()
    job = HandedJob(job_id="j", kind=JobKind.LOCAL, runner_name="r", document=b"{}")
    HeldJobs(tree.folder.agent / "held-jobs").keep("u-1", job)

    assert tree.runner_of(record.vm) == "mac"
