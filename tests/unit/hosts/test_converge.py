"""The runner of plans, over a host in memory: rounds, verdicts, waits, refusals, and what an error may say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.hosts.converge import (
    ASKED_AT_ONCE,
    ROUNDS_MAX,
    Converger,
    DoesNotConverge,
    HostHasProblems,
    StepFailed,
    StepFailedForGood,
    look,
    no_vms,
)
from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.parts.github_runner import NAME as GITHUB_RUNNER
from remuda.hosts.decide.parts.sudo import PASSWORDLESS
from remuda.hosts.decide.step import Harm, Probe, Problem, Step
from remuda.hosts.decide.wanted import BuilderConfig, FleetConfig, OwnConfig, Wanted
from remuda.hosts.scripts import script
from remuda.hosts.scrubbing import scrubbed
from remuda.kube.host import Role
from remuda.model.errors import RemudaError, Retry
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command, Ran, Target, Unreachable, Upload
from remuda.sim.host_shell import Called, MemoryHost, MemoryShells

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.hosts.decide.facts import Facts
    from remuda.ports.host_shell import HostShell

SEE, SET, ASK = Command(words=("see",)), Command(words=("set",)), Command(words=("ask",))
SEEN = Fact(name="seen", command=SEE, parse=lambda ran: ran.stdout.decode())


class VirtualClock(SystemClock):
    """Passes only by sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass
class Place:
    """A host whose whole state is one word, and what its programs do to it."""

    value: str = "old"
    becomes: str = "new"
    code: int = 0
    said: bytes = b""
    asked: int = 0
    answers_after: int = 0
    host: MemoryHost = field(init=False)

    def __post_init__(self) -> None:
        programs = {
            PASSWORDLESS.command.words[0]: self._sudo,
            "see": self._see,
            "set": self._set,
            "ask": self._ask,
            "/bin/sh": self._changed,
        }
        self.host = MemoryHost(user="m1", fingerprint="SHA256:x", keys={b"key"}, programs=programs)

    async def shell(self) -> HostShell:
        shells = MemoryShells()
        shells.hosts["mini", 22] = self.host
        return await shells.open(
            Target(address="mini", user="m1", key=Secret(b"key"), trust_first=True)
        )

    async def _sudo(self, called: Called) -> Ran:
        del called
        return Ran(code=0 if self.host.rooted else 1)

    async def _changed(self, called: Called) -> Ran:
        """Run the program that a change is, as the script does that lets only one run."""
        assert called.words[2] == script("one-at-a-time")
        words = called.words[5:]
        self.host.ran.append(words)
        return await self.host.programs[words[0]](replace(called, words=words))

    async def _see(self, called: Called) -> Ran:
        del called
        return Ran(code=0, stdout=self.value.encode())

    async def _set(self, called: Called) -> Ran:
        del called
        if self.code == 0:
            self.value = self.becomes
        return Ran(code=self.code, stderr=self.said)

    async def _ask(self, called: Called) -> Ran:
        del called
        self.asked += 1
        return Ran(code=0 if self.asked > self.answers_after else 1)


@dataclass(frozen=True)
class OneWord:
    """A part that wants the word to be ``new``."""

    step: Step
    problems: tuple[Problem, ...] = ()
    name: str = "word"
    facts: tuple[Fact[object], ...] = (SEEN,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return b"new"

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del wanted
        return (*(() if facts.of(SEEN) == "new" else (self.step,)), *self.problems)


def a_step(**changed: object) -> Step:
    usual: dict[str, object] = {"name": "word", "reason": "it is old", "apply": (SET,)}
    return Step(**{**usual, **changed})  # type: ignore[arg-type]


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    file = Upload(tmp_path / "none", "0" * 64, 0)
    fleet = FleetConfig(agent=file, tart=file, tart_version="1", dispatch_url="https://d")
    return Wanted(
        fleet=fleet, own=OwnConfig(node="mini", user="m1", fleet="f", password=Secret(b"canary-1"))
    )


async def converger(
    place: Place, wanted: Wanted, *parts: OneWord, clock: VirtualClock | None = None
) -> Converger:
    return Converger(
        host="mini",
        shell=await place.shell(),
        wanted=wanted,
        parts=parts,
        clock=clock or VirtualClock(),
        drain=no_vms,
    )


async def test_what_is_needed_is_done_and_then_looked_at_again(wanted: Wanted) -> None:
    place = Place()
    done = await (await converger(place, wanted, OneWord(a_step()))).run()
    assert (done.changed, done.rounds, place.value) == (("word",), 2, "new")
    again = await (await converger(place, wanted, OneWord(a_step()))).run()
    assert (again.changed, again.rounds) == ((), 1)


async def test_a_dry_run_only_looks(wanted: Wanted) -> None:
    place = Place()
    planned = await look(await place.shell(), wanted, [OneWord(a_step())])
    assert [step.name for step in planned.steps] == ["word"]
    assert place.value == "old"
    assert ("set",) not in place.host.ran


async def test_facts_are_gathered_some_at_once_and_a_host_that_goes_is_told_as_such(
    wanted: Wanted,
) -> None:
    place, most, asking = Place(), 0, 0
    gone = False

    async def see(called: Called) -> Ran:
        nonlocal most, asking
        del called
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1
        place.host.up = not gone
        return Ran(code=0, stdout=b"new")

    place.host.programs = {**place.host.programs, "see": see}
    facts = tuple(
        Fact(name=f"fact-{n}", command=Command(words=("see", str(n))), parse=lambda ran: ran.stdout)
        for n in range(20)
    )
    part = OneWord(a_step(), facts=(SEEN, *facts))
    assert (await look(await place.shell(), wanted, (part,))).empty
    assert most == ASKED_AT_ONCE

    gone = True
    with pytest.raises(Unreachable):
        await look(await place.shell(), wanted, (part,))


async def test_without_root_nothing_but_sudo_is_looked_at(wanted: Wanted) -> None:
    place = Place()
    place.host.rooted = False
    with pytest.raises(HostHasProblems, match="Nothing can be changed"):
        await (await converger(place, wanted, OneWord(a_step()))).run()
    assert place.host.ran == [PASSWORDLESS.command.words]


@pytest.mark.parametrize(
    ("kind", "probe"),
    [
        pytest.param("check", lambda judge: Probe(command=ASK, judge=judge), id="by its check"),
        pytest.param("verify", lambda judge: (Probe(command=ASK, judge=judge),), id="by its proof"),
    ],
)
async def test_what_became_so_meanwhile_is_left_alone(
    wanted: Wanted, kind: str, probe: Callable[[Callable[[Ran], str]], object]
) -> None:
    place = Place()

    def judged(ran: Ran) -> str:
        place.value = "new"  # somebody else did it
        return "" if ran.code == 0 else "no"

    step = a_step(**{kind: probe(judged)})
    assert (await (await converger(place, wanted, OneWord(step))).run()).changed == ()
    assert ("set",) not in place.host.ran


async def test_a_step_that_nothing_proves_is_done(wanted: Wanted) -> None:
    place = Place()
    step = a_step(check=None, verify=())
    assert (await (await converger(place, wanted, OneWord(step))).run()).changed == ("word",)


async def test_steps_that_are_needed_again_and_again_are_an_error(wanted: Wanted) -> None:
    place = Place(becomes="older")
    with pytest.raises(DoesNotConverge, match="still to do: word"):
        await (await converger(place, wanted, OneWord(a_step()))).run()
    assert place.host.ran.count(("set",)) == ROUNDS_MAX


async def test_what_no_step_mends_is_said_after_the_steps_were_done(wanted: Wanted) -> None:
    place = Place()
    problem = Problem(name="xcode", what="No Xcode", why="it is not there", fix="Put it there")
    with pytest.raises(HostHasProblems, match="No Xcode") as caught:
        await (await converger(place, wanted, OneWord(a_step(), (problem,)))).run()
    assert place.value == "new"
    assert (caught.value.fix, caught.value.problems) == ("Put it there", (problem,))


def good(ran: Ran) -> str:
    return "" if ran.code == 0 else "it is not up yet"


async def test_a_verdict_is_waited_for_as_long_as_it_may_take(wanted: Wanted) -> None:
    place, clock = Place(answers_after=5), VirtualClock()
    step = a_step(verify=(Probe(command=ASK, judge=good, within_s=60.0),))
    await (await converger(place, wanted, OneWord(step), clock=clock)).run()
    assert place.asked == 6
    assert clock.slept == sorted(clock.slept), "it asks less and less often"

    place, clock = Place(answers_after=1000), VirtualClock()
    with pytest.raises(StepFailed, match="it is not up yet"):
        await (await converger(place, wanted, OneWord(step), clock=clock)).run()
    assert 60.0 <= clock.monotonic() < 75.0


async def test_a_verdict_without_time_is_asked_for_once(wanted: Wanted) -> None:
    place, clock = Place(answers_after=2), VirtualClock()
    step = a_step(verify=(Probe(command=ASK, judge=good),))
    with pytest.raises(StepFailed):
        await (await converger(place, wanted, OneWord(step), clock=clock)).run()
    assert (place.asked, clock.slept) == (2, []), "once before the step, and once after it"


FAILURES: dict[str, tuple[Callable[[Ran], str] | None, Retry, str, type[StepFailed]]] = {
    "what the command said": (None, Retry.SOON, "code 7: it broke", StepFailed),
    "what it means": (lambda _: "the disk is full", Retry.SOON, "the disk is full", StepFailed),
    "nothing is known of it": (lambda _: "", Retry.SOON, "code 7: it broke", StepFailed),
    "never again": (None, Retry.NEVER, "code 7", StepFailedForGood),
}


@pytest.mark.parametrize(
    ("explain", "retry", "why", "kind"), FAILURES.values(), ids=FAILURES.keys()
)
async def test_a_step_that_fails_names_host_step_and_cause(
    wanted: Wanted,
    explain: Callable[[Ran], str] | None,
    retry: Retry,
    why: str,
    kind: type[StepFailed],
) -> None:
    place = Place(code=7, said=b"it broke at canary-1")
    step = a_step(explain=explain, retry=retry)
    with pytest.raises(StepFailed, match="mini: the step word failed") as caught:
        await (await converger(place, wanted, OneWord(step))).run()
    assert type(caught.value) is kind
    assert (caught.value.step, caught.value.retry) == ("word", retry)
    assert why in caught.value.why
    assert "canary-1" not in str(caught.value)


async def test_a_change_that_waits_for_another_can_always_be_tried_again(wanted: Wanted) -> None:
    place = Place(code=75, said=b"Another change is under way")
    step = a_step(retry=Retry.NEVER, explain=lambda _: "the password is wrong")
    with pytest.raises(StepFailed, match="Another change is under way") as caught:
        await (await converger(place, wanted, OneWord(step))).run()
    assert (type(caught.value), caught.value.retry) == (StepFailed, Retry.SOON)


@dataclass(frozen=True)
class Registered(OneWord):
    """A part that cannot do its step without a token."""

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        builder = wanted.own.builder
        if facts.of(SEEN) == "new" or (builder and builder.registration_token):
            return super().steps(facts, wanted)
        return (Problem(name=GITHUB_RUNNER, what="No builder", why="no token", fix="Mint one"),)


async def test_a_token_is_minted_when_a_builder_needs_one_and_not_before(wanted: Wanted) -> None:
    builder = BuilderConfig(
        github_url="https://github.com/acme", runner_name="mini", labels=(), runner_version="1"
    )
    own = replace(wanted.own, role=Role.BUILDER, builder=builder)
    place, minted = Place(), list[Secret]()

    async def mint() -> Secret:
        minted.append(Secret(b"canary-2"))
        return minted[-1]

    run = replace(await converger(place, replace(wanted, own=own), Registered(a_step())), mint=mint)
    with pytest.raises(HostHasProblems, match="no token"):
        await replace(run, mint=None).run()
    place.code, place.said = 7, b"it broke at canary-2"
    with pytest.raises(StepFailed) as caught:
        await run.run()
    assert "canary-2" not in str(caught.value), "a token that was minted on the way is hidden too"
    place.code = 0
    assert (await run.run()).changed == ("word",)
    assert len(minted) == 2, "each time one"
    assert (await run.run()).changed == ()
    assert len(minted) == 2, "a healthy registration is left alone"


class InUse(RemudaError):
    """VMs run."""


async def test_what_could_end_vms_is_not_begun_while_somebody_says_that_they_run(
    wanted: Wanted,
) -> None:
    place = Place()
    asked: list[str] = []

    async def refuse(step: Step) -> None:
        asked.append(step.name)
        raise InUse("no", why="VMs run", fix="Drain it")

    with pytest.raises(InUse):
        await Converger(
            host="mini",
            shell=await place.shell(),
            wanted=wanted,
            parts=(OneWord(a_step(harm=Harm.VMS)),),
            clock=VirtualClock(),
            drain=refuse,
        ).run()
    assert (asked, place.value) == (["word"], "old")


@pytest.mark.parametrize(
    ("text", "secret", "left"),
    [
        ("a canary-1 b", b"canary-1", "a (hidden) b"),
        ("a two words b", b"two \n words", "a (hidden) b"),
        ("line-one then", b"line-one\nline-two", "(hidden) then"),
        ("the cat", b"cat", "the cat"),
    ],
    ids=["as it is", "as said() joins it", "a line of it", "too short to search for"],
)
def test_a_secret_that_a_program_said_is_taken_out(text: str, secret: bytes, left: str) -> None:
    assert scrubbed(text, [Secret(secret)]) == left
