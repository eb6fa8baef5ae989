"""
Makes a host what it should be: looks, plans, carries the steps out, and looks again until nothing is left to do.

No policy lives here: what a host needs is decided by ``hosts.decide.plan``. Whatever kills a run, the next one begins
with a fresh look. What a command was fed is in no error; what it said is cut short and scrubbed of every secret that
was wanted on the host.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from remuda.control.tasks import ungrouped
from remuda.hosts.decide.facts import Facts, FactUnreadable
from remuda.hosts.decide.parts.github_runner import lacks_token
from remuda.hosts.decide.parts.sudo import PASSWORDLESS
from remuda.hosts.decide.plan import Plan, facts_needed, plan
from remuda.hosts.decide.running import BUSY, one_at_a_time, said
from remuda.hosts.decide.step import Harm
from remuda.hosts.scripts import script
from remuda.hosts.scrubbing import clean, scrubbed, secrets_of
from remuda.model.errors import RemudaError, Retry
from remuda.ports.host_shell import HostShellError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from remuda.hosts.converging import Mint
    from remuda.hosts.decide.facts import Fact
    from remuda.hosts.decide.step import Part, Probe, Problem, Step
    from remuda.hosts.decide.wanted import Wanted
    from remuda.ports.clock import Clock
    from remuda.ports.host_shell import HostShell, Ran

ROUNDS_MAX: Final = 5
"""Root, then everything, then what only shows after that; a host that needs more never settles."""
ASKED_AT_ONCE: Final = 4
"""Facts that are gathered at the same time over one connection. The sshd of a Mac takes ten sessions."""
POLL_S: Final = (1.0, 10.0)
"""Asked again after the first, then after longer, but never longer than the second."""


class StepFailed(RemudaError):
    """A step did not do what it is for. What comes after relies on it, so nothing more was done."""

    def __init__(self, what: str, *, why: str, fix: str, step: str) -> None:
        super().__init__(what, why=why, fix=fix)
        self.step = step


class StepFailedForGood(StepFailed):
    """Trying it again by itself does harm, such as a locked account: a person must look."""

    retry = Retry.NEVER


class HostHasProblems(RemudaError):
    """The host is not as wanted, and no step mends that."""

    retry = Retry.NEVER

    def __init__(self, what: str, *, why: str, fix: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(what, why=why, fix=fix)
        self.problems = problems


class DoesNotConverge(RemudaError):
    """Steps are verified and yet needed again: two of them undo each other, or something on the host undoes them."""


class Progress(Protocol):
    """Told of each thing as it happens. No secret ever reaches it."""

    def planned(self, planned: Plan) -> None:
        """Hear that the host was looked at, and what is to be done."""
        ...

    def begun(self, step: Step) -> None: ...

    def done(self, step: Step, *, changed: bool) -> None:
        """Hear that the step is verified. Not changed: it was so already."""
        ...


class Silent:
    """Nobody watches."""

    def planned(self, planned: Plan) -> None:
        del planned

    def begun(self, step: Step) -> None:
        del step

    def done(self, step: Step, *, changed: bool) -> None:
        del step, changed


async def no_vms(step: Step) -> None:
    """Say that the caller knows of no VM on the host: a ``Harm.VMS`` step may run at once."""
    del step


@dataclass(frozen=True, slots=True, kw_only=True)
class Converged:
    """What became of a host."""

    changed: tuple[str, ...]
    """The steps that were applied, in order. Empty: nothing was to do."""
    rounds: int


async def look(shell: HostShell, wanted: Wanted, parts: Iterable[Part]) -> Plan:
    """Return what the host still needs. Changes nothing: this is the dry run."""
    parts = tuple(parts)
    answers = {PASSWORDLESS.name: await shell.run(PASSWORDLESS.command)}
    facts = Facts(answers)
    if facts.of(
        PASSWORDLESS
    ):  # without root nothing else is asked, and so no sudo is tried in vain
        left = [fact for fact in facts_needed(parts) if fact.name not in answers]
        answers |= await _asked(shell, left)
        facts = Facts(answers)
    try:
        return plan(facts, wanted, parts)
    except FactUnreadable as error:
        raise _without_secrets(error, answers, wanted, parts) from None


async def _asked(shell: HostShell, facts: Iterable[Fact[object]]) -> dict[str, Ran]:
    """Gather facts, some at once: each is little work and a long way. They change nothing, so their order is none."""
    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    answers: dict[str, Ran] = {}

    async def ask(fact: Fact[object]) -> None:
        async with gate:
            answers[fact.name] = await shell.run(fact.command)

    async def ask_all() -> None:
        async with asyncio.TaskGroup() as group:
            for fact in facts:
                group.create_task(ask(fact), name=f"fact {fact.name}")

    await ungrouped(ask_all())
    return answers


def _without_secrets(
    error: FactUnreadable, answers: Mapping[str, Ran], wanted: Wanted, parts: tuple[Part, ...]
) -> FactUnreadable:
    """Return the same complaint about answers without secrets: what it quotes is cut and spelled anew."""
    secrets = secrets_of(wanted)
    try:
        plan(Facts({name: clean(ran, secrets) for name, ran in answers.items()}), wanted, parts)
    except FactUnreadable as cleaned:
        return cleaned
    return FactUnreadable(error.what, why="what it answered holds a secret", fix=error.fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converger:
    """Converges one host, over one open shell."""

    host: str
    """How people call it; every error begins with it."""
    shell: HostShell
    wanted: Wanted
    parts: tuple[Part, ...]
    clock: Clock
    drain: Callable[[Step], Awaitable[None]]
    """Asked before a step that could end VMs. It returns when none runs, or raises why that cannot be."""
    mint: Mint | None = None
    """Asked for a registration token, once, when nothing else is left to do and a builder needs one."""
    progress: Progress = field(default_factory=Silent)

    async def run(self) -> Converged:
        """Look, plan and carry out until nothing is left. Raises ``RemudaError`` with what to do."""
        changed: list[str] = []
        for rounds in range(1, ROUNDS_MAX + 1):
            planned = await self._look()
            if not planned.steps and self.mint is not None and lacks_token(planned.problems):
                more = await (await self._with_token(self.mint)).run()
                return Converged(changed=(*changed, *more.changed), rounds=rounds + more.rounds)
            if not planned.steps:
                self._refuse(planned.problems)
                return Converged(changed=tuple(changed), rounds=rounds)
            changed += [step.name for step in planned.steps if await self._carry_out(step)]
        left = await self._look()
        if left.steps:
            names = ", ".join(step.name for step in left.steps)
            raise DoesNotConverge(
                f"{self.host} does not settle",
                why=f"after {ROUNDS_MAX} rounds there is still to do: {names} ({left.steps[0].reason})",
                fix="Look at who else changes these things on the host, such as a profile of its management",
            )
        self._refuse(left.problems)
        return Converged(changed=tuple(changed), rounds=ROUNDS_MAX)

    async def _with_token(self, mint: Mint) -> Converger:
        """Return who goes on with a token. It has no way to get another: one that does not help is not asked twice."""
        own = self.wanted.own
        assert own.builder is not None, "only builders are registered"
        builder = replace(own.builder, registration_token=await mint())
        return replace(
            self, wanted=replace(self.wanted, own=replace(own, builder=builder)), mint=None
        )

    async def _look(self) -> Plan:
        planned = await look(self.shell, self.wanted, self.parts)
        self.progress.planned(planned)
        return planned

    def _refuse(self, problems: tuple[Problem, ...]) -> None:
        if problems:
            raise HostHasProblems(
                f"{self.host} is not as it should be: {problems[0].what}",
                why="; ".join(problem.why for problem in problems),
                fix=". ".join(dict.fromkeys(problem.fix for problem in problems)),
                problems=problems,
            )

    async def _carry_out(self, step: Step) -> bool:
        self.progress.begun(step)
        if await self._is_done(step):
            self.progress.done(step, changed=False)
            return False
        if step.harm is Harm.VMS:
            await self.drain(step)
        await self._apply(step)
        for probe in step.verify:
            if wrong := await self._verified(probe):
                raise self._failed(step, f"it was applied, and then: {wrong}")
        self.progress.done(step, changed=True)
        return True

    async def _is_done(self, step: Step) -> bool:
        """Ask once more whether a step is needed: the world may have moved since the facts."""
        for probe in step.checks:
            if self._judged(probe, await self.shell.run(probe.command)):
                return False
        return bool(step.checks)

    async def _apply(self, step: Step) -> None:
        for command in step.apply:
            ran = await self.shell.run(one_at_a_time(command, script("one-at-a-time")))
            if ran.code == BUSY:
                raise self._failed(replace(step, retry=Retry.SOON), said(self._clean(ran)))
            if ran.code != 0:
                raise self._failed(step, self._meaning(step, ran))

    def _meaning(self, step: Step, ran: Ran) -> str:
        shown = self._clean(ran)
        return (step.explain(shown) if step.explain else "") or said(shown)

    def _clean(self, ran: Ran) -> Ran:
        return clean(ran, secrets_of(self.wanted))

    async def _verified(self, probe: Probe) -> str:
        """Ask until the answer is good or its time is over, and return what is wrong, if anything."""
        deadline = self.clock.monotonic() + probe.within_s
        pause_s, pause_s_max = POLL_S
        while True:
            over = self.clock.monotonic() >= deadline
            try:
                ran = await self.shell.run(probe.command)
                wrong = self._judged(probe, ran)
                over = over or (probe.hopeless is not None and probe.hopeless(ran))
            except HostShellError as error:
                if over:
                    raise
                wrong = str(error)
            if not wrong or over:
                return wrong
            await self.clock.sleep(pause_s)
            pause_s = min(pause_s * 1.5, pause_s_max)

    def _judged(self, probe: Probe, ran: Ran) -> str:
        """Judge what was said, and say what is wrong in words that hold no secret."""
        with contextlib.suppress(FactUnreadable):  # it is raised again, about what may be shown
            if not probe.judge(ran):
                return ""
        return probe.judge(self._clean(ran)) or "the answer holds a secret, and cannot be shown"

    def _failed(self, step: Step, why: str) -> StepFailed:
        kind = StepFailedForGood if step.retry is Retry.NEVER else StepFailed
        return kind(
            f"{self.host}: the step {step.name} failed",
            why=scrubbed(why, secrets_of(self.wanted)).rstrip("."),
            fix="Mend that and run it again: it begins with a fresh look, and what is done stays done",
            step=step.name,
        )
