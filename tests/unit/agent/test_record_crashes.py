"""A writer of records that is killed at every line of its code, one after another, by a real signal."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.agent.decide.recorded import State
from remuda.agent.record import RecordFolder
from tests.unit.agent.builders import UID

if TYPE_CHECKING:
    from pathlib import Path

# Forks one child per line that is executed in the modules that write; each child dies by SIGKILL before that line.
_DIES_EVERYWHERE = """
import os, pathlib, signal, sys
from datetime import UTC, datetime
from remuda.agent import record as module
from remuda.agent.decide.recorded import ImageRecord, ImageState, State, VmRecord
from remuda.control import durable

root, uid, story = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
WATCHED = {module.__file__, durable.__file__}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)

def a_record(state):
    return VmRecord(pod_uid=uid, namespace="ci", pod="mac", image="i", state=state, accepted_at=NOON)

def live(folder, said):
    records = module.RecordFolder(folder)
    states = [State.CLONING, State.CLONED, State.STARTED, State.DELIVERING, State.DELIVERED]
    for state in states if story == "life" else states[:1]:
        os.write(said, f"{state} begun\\n".encode())
        records.write(a_record(state))
        os.write(said, f"{state} done\\n".encode())
    if story == "forget":
        os.write(said, b"forget begun\\n")
        records.forget(uid)
        os.write(said, b"forget done\\n")
    if story == "image":
        records.write_image(ImageRecord(image="i", state=ImageState.READY, wanted_at=NOON))

def dies_before(number):
    folder = root / str(number)
    folder.mkdir(mode=0o700)
    said = os.open(folder.with_suffix(".said"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lines = 0
    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            if lines == number:
                os.kill(os.getpid(), signal.SIGKILL)
            lines += 1
        return trace
    sys.settrace(trace)
    live(folder, said)

for number in range(10_000):
    child = os.fork()
    if not child:
        try:
            dies_before(number)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
"""


def _lives(tmp_path: Path, story: str) -> list[tuple[Path, list[str]]]:
    """Return the folder of each life, and what that life said before it was killed."""
    subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", _DIES_EVERYWHERE, str(tmp_path), UID, story],
        check=True,
        timeout=120,
    )
    folders = sorted((p for p in tmp_path.iterdir() if p.is_dir()), key=lambda p: int(p.name))
    return [(folder, folder.with_suffix(".said").read_text().splitlines()) for folder in folders]


def test_a_writer_killed_anywhere_leaves_the_old_record_or_the_new_one(tmp_path: Path) -> None:
    lives = _lives(tmp_path, "life")
    assert len(lives) > 100, "every line of five writes"
    seen: set[State | None] = set()
    for folder, said in lives:
        records = RecordFolder(folder)
        assert records.found.unreadable == ()
        state = records.found.vms[0].state if records.found.vms else None
        done = [State(line.split()[0]) for line in said if line.endswith("done")]
        begun = [State(line.split()[0]) for line in said if line.endswith("begun")]
        # What was durable is there; what was begun may be; nothing else is.
        assert state in {done[-1] if done else None, begun[-1] if begun else None}
        assert {p.name for p in (folder / "vms").iterdir()} <= {f"{UID}.json"}
        seen.add(state)
        records.forget(UID)  # the next life can go on from there
        records.close()
        assert list((folder / "vms").iterdir()) == []
    assert seen == {None, *list(State)[:5]}


@pytest.mark.parametrize("story", ["forget", "image"])
def test_a_record_is_there_or_forgotten_never_damaged(tmp_path: Path, story: str) -> None:
    lives = _lives(tmp_path, story)
    assert len(lives) > 30
    ends: set[tuple[int, int]] = set()
    for folder, said in lives:
        records = RecordFolder(folder)
        records.close()
        found = records.found
        assert found.unreadable == ()
        if "forget done" in said:
            assert found.vms == ()
        ends.add((len(found.vms), len(found.images)))
    assert ends == ({(0, 0), (1, 0)} if story == "forget" else {(0, 0), (1, 0), (1, 1)})
