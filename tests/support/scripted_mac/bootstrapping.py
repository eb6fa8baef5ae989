"""What a scripted Mac is made into, and the run that does it: the real parts, the real runner, the real SSH."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.adapters.ssh import SshSettings, SshShells
from remuda.adapters.system import SystemClock
from remuda.hosts.converge import Converged, Converger, Silent, look, no_vms
from remuda.hosts.decide.wanted import BuilderConfig, FleetConfig, OwnConfig, Wanted
from remuda.hosts.parts import PARTS
from remuda.kube.host import Role
from remuda.model.secret import Secret
from remuda.ports.host_shell import HostShellError, Upload
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.hosts.converge import Progress
    from remuda.hosts.decide.plan import Plan
    from remuda.hosts.decide.step import Part, Step
    from remuda.ports.clock import Clock
    from remuda.ports.host_shell import Command, HostShell, Ran, Target
    from tests.support.scripted_mac.place import Place

TART = "2.32.1"
BEGUN_S = 60.0
_ONE_AT_A_TIME = "remuda-one-at-a-time"
_SHELL_AND_PROGRAM = 2
"""How many programs of the Mac have begun when a command has: the account's shell, and what it becomes."""
GOOD_AGENT = b"#!/bin/sh\n# remuda-mac: stays up\n"
BAD_AGENT = b"#!/bin/sh\n# remuda-mac: crashes\n"
KUBECONFIG = b"apiVersion: v1\nkind: Config\nusers: [{user: {token: canary-of-the-kubeconfig}}]\n"
_TART = f"""#!/bin/sh
case $1 in
--version) echo {TART} ;;
list) exec /usr/libexec/mac/tart-list ;;
esac
"""


def upload(path: Path, held: bytes) -> Upload:
    """Return a file to send, with these bytes."""
    path.write_bytes(held)
    return Upload(path, hashlib.sha256(held).hexdigest(), len(held))


def tart_archive() -> bytes:
    """Return what a release of Tart is, with a program that tells its version."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        about = tarfile.TarInfo("tart.app/Contents/MacOS/tart")
        about.size, about.mode = len(_TART), 0o755
        archive.addfile(about, io.BytesIO(_TART.encode()))
    return held.getvalue()


@dataclass
class Wish:
    """What a test wants of a host; each field may be another."""

    folder: Path
    password: str | None = None
    agent: bytes = GOOD_AGENT
    role: Role = Role.RUNNER
    kubeconfig: bytes | None = KUBECONFIG
    node: str = "mini-1"

    def wanted(self) -> Wanted:
        self.folder.mkdir(exist_ok=True)
        builder = BuilderConfig(
            github_url="https://github.com/acme",
            runner_name=self.node,
            labels=("macos", "builder"),
            runner_version="2.330.0",
            registration_token=Secret(b"canary-of-the-token"),
        )
        return Wanted(
            fleet=FleetConfig(
                agent=upload(self.folder / "agent", self.agent),
                tart=upload(self.folder / "tart.tar.gz", tart_archive()),
                tart_version=TART,
                dispatch_url="https://dispatch.example.com",
            ),
            own=OwnConfig(
                node=self.node,
                user="m1",
                fleet="minis",
                role=self.role,
                password=None if self.password is None else Secret(self.password.encode()),
                kubeconfig=None if self.kubeconfig is None else Secret(self.kubeconfig),
                builder=builder if self.role is Role.BUILDER else None,
            ),
        )


@dataclass
class Kills(Silent):
    """Cuts the power in every step once, by and by at another of its changes."""

    struck: dict[str, tuple[bool, int]] = field(default_factory=dict)
    """The steps, whether it was in the midst of a change, and of which one."""
    step: Step | None = None
    made: int = 0

    def begun(self, step: Step) -> None:
        self.step, self.made = step, 0

    def strikes(self, command: Command) -> bool:
        """Say whether the power goes now."""
        if self.step is None or _ONE_AT_A_TIME not in command.words:
            return False  # it only looks
        nth = len(self.struck) % len(self.step.apply)
        self.made += 1
        if self.step.name in self.struck or self.made <= nth:
            return False
        self.struck[self.step.name] = (len(self.struck) % 3 > 0, nth)
        return True

    @property
    def midway(self) -> bool:
        return next(reversed(self.struck.values()))[0]


class Power(BaseException):
    """The power of whoever runs the plan is cut. Nothing catches it."""


@dataclass
class Watched:
    """A shell that counts commands, and may die before or in the midst of a change."""

    shell: HostShell
    place: Place
    kills: Kills | None = None
    ran: list[Command] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return self.shell.fingerprint

    async def run(self, command: Command) -> Ran:
        if self.kills is not None and self.kills.strikes(command):
            if self.kills.midway:
                await self._cut(command)
            raise Power
        self.ran.append(command)
        return await self.shell.run(command)

    async def _cut(self, command: Command) -> None:
        """Kill a command when it runs on the Mac. Where within it that is, chance says."""
        before = self._programs()

        async def begun() -> bool:
            return running.done() or self._programs() >= before + _SHELL_AND_PROGRAM

        async with asyncio.TaskGroup() as group:
            running = group.create_task(self._ended(command), name="cut short")
            await eventually(begun, within_s=BEGUN_S)
            running.cancel()

    def _programs(self) -> int:
        return self.place.seen().count(b"\0\n")

    async def _ended(self, command: Command) -> None:
        with contextlib.suppress(HostShellError):
            await self.shell.run(command)


class MacClock(SystemClock):
    """Passes when somebody sleeps, and only then: a slow machine is never too late."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return self.slept_s

    async def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        await super().sleep(0)


@dataclass
class Run:
    """One run of a plan over one login."""

    place: Place
    wanted: Wanted
    parts: tuple[Part, ...] = PARTS
    kills: Kills | None = None
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=MacClock)
    ran: list[Command] = field(default_factory=list)

    target: Target | None = None

    async def opened(self) -> tuple[SshShells, HostShell]:
        shells = SshShells(SshSettings(connect_s=60.0, login_s=60.0))
        return shells, await shells.open(self.target or self.place.target())

    async def converge(self) -> Converged:
        shells, shell = await self.opened()
        try:
            return await Converger(
                host=self.wanted.own.node,
                shell=Watched(shell, self.place, self.kills, self.ran),
                wanted=self.wanted,
                parts=self.parts,
                clock=self.clock,
                drain=no_vms,
                progress=self.progress,
            ).run()
        finally:
            await shells.close(shell)

    async def is_killed(self) -> bool:
        """Converge, and say whether the power was cut meanwhile."""
        try:
            await self.converge()
        except Power:
            return True
        return False

    async def look(self) -> Plan:
        shells, shell = await self.opened()
        try:
            return await look(Watched(shell, self.place, ran=self.ran), self.wanted, self.parts)
        finally:
            await shells.close(shell)
