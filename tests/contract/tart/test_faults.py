"""The switches themselves: a test that orders a fault must get that fault, that often, and nothing else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from tests.support.tart.faults import FOREVER, Fault

if TYPE_CHECKING:
    from tests.support.tart.installed import StandIn

VERBS = [
    "list",
    "get",
    "ip",
    "set",
    "delete",
    "stop",
    "exec",
    "prune",
    "clone",
    "pull",
    "push",
    "run",
]
ARGUMENTS = {
    "list": [],
    "clone": ["a", "b"],
    "prune": ["--older-than", "1"],
    "exec": ["a", "true"],
    "push": ["a", "registry.test/a"],
}


@pytest.mark.parametrize("verb", VERBS)
async def test_any_verb_can_hang_so_that_only_sigkill_ends_it(tart: StandIn, verb: str) -> None:
    tart.make("a")
    tart.order(Fault(verb=verb, kind="hang", stubborn=True, with_child=True))
    process = tart.start(verb, *ARGUMENTS.get(verb, ["a"]))

    async def begun() -> bool:
        ignored = f"/proc/{process.pid}/status"
        with open(ignored) as status:  # noqa: ASYNC230, PTH123 - of the kernel: it does not block
            line = next(text for text in status if text.startswith("SigIgn"))
        return bool(int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)))

    await eventually(begun)
    process.terminate()
    assert process.poll() is None
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    with pytest.raises(BlockingIOError):  # a child keeps the pipe open: no end of file
        os.read(process.stdout.fileno(), 1)
    os.set_blocking(process.stdout.fileno(), True)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)


@pytest.mark.parametrize("verb", VERBS)
def test_any_verb_can_fail_with_a_text_and_a_code(tart: StandIn, verb: str) -> None:
    tart.make("a")
    tart.order(Fault(verb=verb, kind="fail", text="of this test", code=5))
    answer = tart.call(verb, *ARGUMENTS.get(verb, ["a"]))
    assert (answer.returncode, answer.stderr) == (5, "of this test\n")


def test_a_fault_happens_as_often_as_it_was_ordered(tart: StandIn) -> None:
    tart.make("a")
    tart.order(Fault(verb="get", kind="fail", times=2))
    assert [tart.call("get", "a").returncode for _ in range(3)] == [1, 1, 0]
    tart.order(Fault(verb="get", kind="fail", times=FOREVER))
    assert [tart.call("get", "a").returncode for _ in range(3)] == [1, 1, 1]


def test_a_fault_hits_the_vm_it_is_for(tart: StandIn) -> None:
    tart.make("a")
    tart.make("b")
    tart.order(Fault(verb="clone", kind="fail", vm="c"), Fault(verb="get", kind="fail", vm="b"))
    assert tart.call("get", "a").returncode == 0
    assert tart.call("get", "b").returncode == 1
    assert tart.call("clone", "a", "d").returncode == 0
    assert tart.call("clone", "a", "c").returncode == 1


def test_a_verb_can_do_its_work_and_fail_then(tart: StandIn) -> None:
    tart.make("a")
    tart.order(Fault(verb="clone", kind="fail", after=True, text="lost"))
    assert tart.call("clone", "a", "b").returncode == 1
    assert "b" in tart.listed(), "the work was done, only nobody was told"


def test_no_space_says_what_an_agent_looks_for(tart: StandIn) -> None:
    tart.order(Fault(verb="pull", kind="no_space"))
    answer = tart.call("pull", "registry.test/a:1")
    assert answer.returncode == 1
    assert "No space left on device" in answer.stderr


def test_list_can_say_what_no_parser_wants_to_read(tart: StandIn) -> None:
    tart.order(Fault(verb="list", kind="say", text='[{"Name": 5', code=0))
    answer = tart.call("list", "--format", "json")
    assert (answer.returncode, answer.stdout) == (0, '[{"Name": 5')


def test_the_journal_has_each_call_from_begin_to_end(tart: StandIn) -> None:
    tart.make("a")
    tart.call("clone", "a", "b")
    tart.call("get", "x")
    told = [(n["event"], n["verb"], n["vm"], n.get("code")) for n in tart.desk.journal()]
    assert told == [
        ("begin", "clone", "b", None),
        ("end", "clone", "b", 0),
        ("begin", "get", "x", None),
        ("end", "get", "x", 2),
    ]
