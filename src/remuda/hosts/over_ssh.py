"""Hosts changed over SSH: opens a way, lets ``converge`` do its work, and tells the operator what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.hosts.converge import Converger
from remuda.hosts.converging import Emptied, Mint, Mode, Outcome, Pin, Result
from remuda.hosts.decide import agent_job
from remuda.hosts.decide.drift import config_hash, drift_parts
from remuda.hosts.decide.in_use import BUILDS
from remuda.hosts.decide.launchd import DAEMONS
from remuda.hosts.decide.parts.github_runner import FOLDER
from remuda.hosts.decide.running import one_at_a_time, run_script, said
from remuda.hosts.decide.wanted import Wanted
from remuda.hosts.in_use import HostInUse, what_runs
from remuda.hosts.scripts import script
from remuda.kube.host import Role
from remuda.model.errors import RemudaError
from remuda.ports.host_shell import Command, HostShellError

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.step import Part, Step
    from remuda.hosts.decide.wanted import FleetConfig, OwnConfig
    from remuda.ports.clock import Clock
    from remuda.ports.host_shell import HostShell, HostShells, Ran, Target

_REBOOT = Command(words=("/sbin/shutdown", "-r", "now"), root=True)
_RETIRE = one_at_a_time(
    run_script(
        "agent-remove",
        script("agent-remove"),
        *(agent_job.LABEL, f"{DAEMONS}/{agent_job.LABEL}.plist", agent_job.KUBECONFIG),
        timeout_s=120.0,
    ),
    script("one-at-a-time"),
)
_RUNNER_AWAY = one_at_a_time(
    run_script("runner-remove", script("runner-remove"), FOLDER, root=False, timeout_s=120.0),
    script("one-at-a-time"),
)
_SIGNALLED = 128
"""A shutdown that ends by a signal was ended by itself."""


async def _refuse_in_use(shell: HostShell, what: str) -> None:
    """Ask the host at the last moment: an image that is built, or a person's own VM, has no Pod."""
    _refuse(await what_runs(shell), what)


def _refuse(running: tuple[str, ...], what: str) -> None:
    if running:
        raise HostInUse(
            what,
            why=f"it would end what runs there and has no Pod: {', '.join(running)}",
            fix="Wait until that has ended, or end it on the host; it is asked again by itself",
        )


class RebootRefused(HostShellError):
    """The host took the login and did not start again."""


async def _start_again(shell: HostShell, target: Target) -> None:
    try:
        ran = await shell.run(_REBOOT)
    except HostShellError:
        return  # it hung up, or said nothing more
    if 0 < ran.code < _SIGNALLED:
        raise RebootRefused(
            f"{target.address} was not started again",
            why=f"shutdown did not do so ({said(ran)})",
            fix="Start it again by hand",
        )


class AgentStays(RemudaError):
    """The agent of a host that leaves is still there, or GitHub's runner."""


def _check_gone(ran: Ran, what: str, target: Target) -> None:
    if ran.code != 0:
        raise AgentStays(
            f"{what} of {target.address} was not removed",
            why=f"the host did not do so ({said(ran)})",
            fix="Look at what its launchd does, and remove it there",
        )


class _NotEmpty(RemudaError):
    """A step would end VMs, and the host was not emptied."""


class SshConverger:
    """Fills ``remuda.hosts.converging.Converger``."""

    def __init__(
        self,
        shells: Callable[[], HostShells],
        config: FleetConfig,
        parts: tuple[Part, ...],
        *,
        clock: Clock,
    ) -> None:
        # One for each attempt: what a place showed is remembered in the Host's status, by the pin, and nowhere else.
        self._shells, self._config, self._parts = shells, config, parts
        self._clock = clock
        self._hash = config_hash(config, parts)

    @property
    def config_hash(self) -> str:
        return self._hash

    async def converge(
        self,
        target: Target,
        own: OwnConfig,
        mode: Mode,
        *,
        emptied: Emptied,
        pin: Pin,
        mint: Mint | None,
    ) -> Outcome:
        """Make a host as wanted. Raises a RemudaError if it is not so in the end."""
        left: list[str] = []

        first = mode is Mode.FIRST
        parts = self._parts if first else drift_parts(self._config, self._parts)
        shells = self._shells()
        shell = await shells.open(target)

        async def drain(step: Step) -> None:
            if not await emptied():
                left.append(step.name)
                raise _NotEmpty(step.name, why="VMs may run on the host", fix="Drain it first")
            await _refuse_in_use(shell, f"{own.node}: the step {step.name} was not begun")

        try:
            await pin(shell.fingerprint)
            run = Converger(
                host=own.node,
                shell=shell,
                wanted=Wanted(fleet=self._config, own=own),
                parts=parts,
                clock=self._clock,
                drain=drain,
                mint=mint,
            )
            done = await run.run()
        except _NotEmpty:
            return Outcome(Result.NEEDS_DRAIN, left=tuple(left))
        finally:
            await shells.close(shell)
        return Outcome(Result.CONVERGED, changed=done.changed)

    async def retire(self, target: Target, role: Role) -> None:
        """Take the agent off a host that leaves the fleet, with its credential, and a builder's runner of GitHub."""
        shells = self._shells()
        shell = await shells.open(target)
        try:
            if role is Role.BUILDER:
                await self._retire_builder(shell, target)
            else:
                _check_gone(await shell.run(_RETIRE), "The agent", target)
        finally:
            await shells.close(shell)

    async def _retire_builder(self, shell: HostShell, target: Target) -> None:
        """Take GitHub's runner off, and the agent also where that fails: it would make its Node again."""
        # VMs that nobody builds by it outlive the runner.
        builds = BUILDS.parse(await shell.run(BUILDS.command))
        _refuse(builds, f"GitHub's runner was not taken off {target.address}")
        runner, agent = await shell.run(_RUNNER_AWAY), await shell.run(_RETIRE)
        _check_gone(runner, "GitHub's runner", target)
        _check_gone(agent, "The agent", target)

    async def refuse_in_use(self, target: Target, pin: Pin, what: str) -> None:
        """Ask a host what runs on it, and raise ``HostInUse`` if anything does."""
        shells = self._shells()
        shell = await shells.open(target)
        try:
            await pin(shell.fingerprint)
            await _refuse_in_use(shell, what)
        finally:
            await shells.close(shell)

    async def reboot(self, target: Target, pin: Pin) -> None:
        """Have a host start again. That it hangs up on us meanwhile is what was asked for."""
        shells = self._shells()
        shell = await shells.open(target)
        try:
            await pin(shell.fingerprint)
            await _refuse_in_use(shell, f"{target.address} was not told to start again")
            await _start_again(shell, target)
        finally:
            await shells.close(shell)
