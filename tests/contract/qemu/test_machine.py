from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from remuda.adapters.qemu.endings import ending, last_words
from remuda.adapters.qemu.machine import Accel, Machine, Network, arguments
from remuda.adapters.qemu.qmp import LINE_MAX_BYTES, Qmp, QmpBroken
from remuda.adapters.qemu.snapshotting import Snapshotting, Step

ODD = Path("/odd,readonly=on,/disk:1.qcow2")
MACHINE = Machine(
    name="remuda-a",
    uuid="00000000-0000-4000-8000-000000000001",
    mac="02:00:00:00:00:01",
    cpus=2,
    memory_mib=256,
    kernel=Path("/golden/kernel"),
    initrd=Path("/golden/initrd"),
    append="root=/dev/vda1",
    base=Path("/golden/disk.qcow2"),
    overlay=ODD,
    accel=Accel.TCG,
    network=Network.RESTRICTED,
)


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_a_path_is_never_read_as_options() -> None:
    disk = json.loads(after(arguments(MACHINE), "-blockdev"))
    assert disk["file"]["filename"] == str(ODD)
    assert [word for word in arguments(MACHINE) if str(ODD) in word] == [
        after(arguments(MACHINE), "-blockdev")
    ]


def test_the_disk_below_is_read_only_and_has_none_below_it() -> None:
    base = json.loads(after(arguments(MACHINE), "-blockdev"))["backing"]
    assert (base["read-only"], base["file"]["read-only"], base["backing"]) == (True, True, None)


def test_what_an_image_appends_stays_one_word() -> None:
    words = arguments(replace(MACHINE, append="-drive file=/etc/shadow,format=raw"))
    assert "-drive" not in words
    assert "-drive file=/etc/shadow,format=raw" in after(words, "-append")


def test_only_an_emulated_cpu_goes_without_its_mitigations() -> None:
    assert "mitigations=off" in after(arguments(MACHINE), "-append")
    with_kvm = arguments(replace(MACHINE, accel=Accel.KVM))
    assert "mitigations" not in after(with_kvm, "-append")
    assert "nokaslr" not in after(with_kvm, "-append")
    assert after(with_kvm, "-cpu") == "host"


def test_a_network_is_restricted_unless_it_is_said_to_be_open() -> None:
    assert "restrict=on" in after(arguments(MACHINE), "-netdev")
    assert "-netdev" not in arguments(replace(MACHINE, network=Network.NONE))
    opened = after(arguments(replace(MACHINE, network=Network.OPEN)), "-netdev")
    assert "restrict=off" in opened


def test_qemu_itself_may_start_no_program() -> None:
    assert "spawn=deny" in after(arguments(MACHINE), "-sandbox")
    assert "-no-user-config" in arguments(MACHINE)


# --- how it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard", "code", "stopped", "how"),
    [
        (Qmp(running=True, shutdown="guest-shutdown"), 0, False, "halted"),
        (Qmp(running=True, shutdown="guest-shutdown"), 0, True, "stopped"),
        (Qmp(running=True, shutdown="host-qmp-quit"), 0, False, "stopped"),
        (Qmp(running=True, shutdown="host-signal"), 0, False, "stopped"),
        (Qmp(running=True, shutdown="guest-reset"), 0, False, "crashed"),
        (Qmp(running=True, shutdown="guest-panic"), 0, False, "crashed"),
        (Qmp(running=True), -9, False, "crashed"),
        (Qmp(running=True), 0, False, "crashed"),
        (Qmp(running=True), -9, True, "stopped"),
        (Qmp(), 1, False, "never_booted"),
    ],
)
def test_every_end_has_its_name(heard: Qmp, code: int, *, stopped: bool, how: str) -> None:
    assert ending(heard, code, stopped=stopped, said=b"last words").how == how


def test_last_words_are_one_short_line() -> None:
    said = last_words(b"\x1b[31mKernel\npanic\xff" + b"x" * 9000)
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) <= 400


# --- QEMU's own line --------------------------------------------------------------------------------------------------


def test_qemu_is_asked_and_its_answers_are_kept() -> None:
    heard = Qmp()
    heard.feed(b'{"QMP": {}}\n{"return": {}, "id": "qmp_cap')
    assert b'"qmp_capabilities"' in heard.to_say
    heard.feed(
        b'abilities"}\n{"return": {"running": true, "status": "running"}, "id": "query-status"}\n'
    )
    assert heard.running
    heard.feed(b'{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}\n')
    assert heard.shutdown == "guest-shutdown"


@pytest.mark.parametrize("said", [b"nonsense\n", b"[]\n", b"x" * (LINE_MAX_BYTES + 1)])
def test_a_qemu_that_talks_nonsense_is_given_up(said: bytes) -> None:
    with pytest.raises(QmpBroken):
        Qmp().feed(said)


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_made_step_by_step_and_each_is_asked_once() -> None:
    making = Snapshotting()
    answers: dict[str, object] = {}
    untouched = [{"stats": {"wr_operations": 0}}]
    for step, answer in (
        (Step.HALT, {}),
        (Step.LOOK_AT_DISK, untouched),
        (Step.SEND_FILE, {}),
        (Step.SAVE, {}),
        (Step.LOOK, {"status": "active"}),
        (Step.LOOK, {"status": "completed"}),
    ):
        assert making.step(answers) is step
        if step is Step.LOOK:
            answers.pop(step.value, None)  # as QMP does when it asks again
        assert making.step(answers) is None
        answers[step.value] = answer
    assert making.step(answers) is Step.DONE
    assert making.step(answers) is None


def test_a_guest_that_wrote_to_its_disk_gives_no_snapshot() -> None:
    making = Snapshotting()
    assert making.step({}) is Step.HALT
    assert making.step({"stop": {}}) is Step.LOOK_AT_DISK
    wrote = {"stop": {}, "query-blockstats": [{"stats": {"wr_operations": 1}}]}
    assert making.step(wrote) is Step.FAILED
    assert "wrote to its disk" in making.why


@pytest.mark.parametrize("answer", [{"error": {"class": "GenericError"}}])
def test_a_refusal_of_qemu_ends_it(answer: dict[str, object]) -> None:
    making = Snapshotting()
    making.step({})
    assert making.step({"stop": answer}) is Step.FAILED
