"""
The driver "process": each VM is a fresh directory and the processes of one guest program, on the host itself.

There is no isolation: a job can read and change whatever the agent's own user can, and reach its siblings. It is for
demonstrations and tests. What it does give: a home, a temporary folder and an environment of its own, nothing of the
agent's among them; an end for whatever the guest started; and nothing left of its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.adapters import detached
from remuda.adapters.commands import command, last_words
from remuda.adapters.process.guest import guest_script
from remuda.adapters.process.images import ImageFolders
from remuda.adapters.process.leftovers import MARKER, kill_leftovers
from remuda.agent.settings import Deadlines
from remuda.control.durable import make_durable, open_folder, write_whole
from remuda.control.untrusted import read_tail, remove_tree
from remuda.model.mailbox import STOP
from remuda.ports.vms import (
    Abilities,
    Ending,
    Inventory,
    NameTaken,
    NoSpace,
    NotThere,
    Power,
    PullProgress,
    RunEnd,
    SeenVm,
    StillRunning,
    TimedOut,
    VmsError,
    VmShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.ports.clock import Clock

_POLL_S: Final = 0.02
_LAST_WORDS_MAX_BYTES: Final = 2000
_NOT_STARTED: Final = frozenset({126, 127})
_RUN, _HOME, _TMP, _WORK, _STOPPED = "run", "home", "tmp", "work", "stopped"
_UNFINISHED: Final = ".new-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What the driver is told."""

    folder: Path
    """Its own part of the agent's data."""
    images: Path
    """The folder with the folders that are images."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    path: str = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    """Where guests look for programs."""
    guest: Path | None = None
    """The guest's program; None: the one that we bring."""
    guest_env: dict[str, str] = field(default_factory=dict)
    """More variables of the guest's program, as it names its settings."""


class ProcessVms:
    """Guests that are plain processes of this host."""

    def __init__(self, settings: ProcessSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        folder = settings.folder.resolve()
        self._vms, self._mailboxes, self._logs = (
            folder / part for part in ("vms", "mailboxes", "logs")
        )
        self._images = ImageFolders(settings.images.resolve())
        self._making: set[str] = set()
        self._abilities = Abilities(
            runtime="process",
            guest_os=frozenset({"darwin" if sys.platform == "darwin" else "linux"}),
            isolated=False,
            vms_max=None,
            pulls=False,
            shared_goldens=False,
            sees_guest_disk=False,
        )

    @property
    def abilities(self) -> Abilities:
        return self._abilities

    async def inventory(self) -> Inventory:
        with _disk("The guests of this host could not be listed"):
            return await asyncio.to_thread(self._inventory)

    def running(self) -> frozenset[str] | None:
        return None  # a list costs no more

    async def observe(self, name: str) -> SeenVm | None:
        with _disk(f"{name} could not be looked at"):
            return self._seen(name)

    # --- images ---

    async def image_bytes(self, image: str) -> int | None:
        with _disk(f"The image {image} could not be measured"):
            return await asyncio.to_thread(self._images.size, image)

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        del progress
        with _disk(f"The image {image} could not be used"):
            self._images.source(image)

    async def make_golden(self, image: str, golden: str) -> None:
        with _disk(f"The golden of {image} could not be made"):
            source = self._images.source(image)
            await self._make(golden, source, "golden", self._settings.deadlines.golden)

    async def drop_image(self, image: str) -> None:
        raise _not_there(image)

    # --- one VM ---

    async def clone(self, golden: str, name: str) -> None:
        with _disk(f"{name} could not be made"):
            source = self._there(golden) / _HOME
            await self._make(name, source, "clone", self._settings.deadlines.clone)

    async def shape(self, name: str, shape: VmShape) -> None:
        """Nothing bounds a guest here: a size is taken note of by nobody."""
        del shape
        self._there(name)

    async def run(self, name: str) -> None:
        folder = self._there(name)
        script = self._script()
        if isinstance(detached.look(folder / _RUN), detached.Alive):
            raise _still_running(name)
        with _disk(f"{name} could not be started"):
            (folder / _STOPPED).unlink(missing_ok=True)
            await detached.start(
                ["/bin/sh", str(script)],
                folder=folder / _RUN,
                log=self.log_file(name),
                env=self._environment(name, folder),
                cwd=folder / _HOME,
            )
            await self._begun(name, folder)

    async def stop(self, name: str, *, grace_s: float) -> None:
        folder = self._there(name)
        with _disk(f"{name} could not be stopped"):
            if isinstance(detached.look(folder / _RUN), detached.Alive):
                with contextlib.suppress(OSError):  # on a full disk it ends without a note of that
                    (folder / _STOPPED).touch(mode=0o600)
                await self._ask_to_end(name, folder / _RUN, grace_s)
            await self._end(name, folder, self._settings.deadlines.stop, "stop")

    async def delete(self, name: str) -> None:
        folder = self._there(name)
        with _disk(f"{name} could not be deleted"):
            if isinstance(detached.look(folder / _RUN), detached.Alive):
                raise _still_running(name)
            await self._end(name, folder, self._settings.deadlines.delete, "delete")
            await asyncio.to_thread(remove_tree, folder)
            self.log_file(name).unlink(missing_ok=True)

    async def guest_disk_used(self, name: str) -> float | None:
        self._there(name)
        return None

    # --- places ---

    def mailbox(self, name: str) -> Path:
        return self._mailboxes / name

    def log_file(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    # --- looking ---

    def _inventory(self) -> Inventory:
        names = sorted(entry.name for entry in self._vms.iterdir()) if self._vms.exists() else []
        for name in names:  # what an agent that was killed has begun is no guest, and never will be
            if name.startswith(_UNFINISHED) and name not in self._making:
                remove_tree(self._vms / name)
        seen = (self._seen(name) for name in names if not name.startswith("."))
        return Inventory(vms=tuple(vm for vm in seen if vm))

    def _seen(self, name: str) -> SeenVm | None:
        folder = self._vms / name
        if not folder.exists():
            return None
        match detached.look(folder / _RUN):
            case None:
                return SeenVm(name=name, power=Power.STOPPED)
            case detached.Alive():
                return SeenVm(name=name, power=Power.RUNNING)
            case detached.Over() as over:
                end = self._ended(name, folder, over)
                return SeenVm(name=name, power=Power.STOPPED, end=end)

    def _ended(self, name: str, folder: Path, over: detached.Over) -> RunEnd:
        if (folder / _STOPPED).exists():
            return RunEnd(how=Ending.STOPPED, at=over.at)
        if over.code is None:
            return RunEnd()
        if over.code == 0:
            return RunEnd(how=Ending.HALTED, at=over.at)
        how = Ending.NEVER_BOOTED if over.code in _NOT_STARTED else Ending.CRASHED
        said = f"The guest's program ended with {over.code}. {self._last_words(name)}".strip()
        return RunEnd(how=how, at=over.at, why=said)

    def _last_words(self, name: str) -> str:
        log = self.log_file(name)
        with open_folder(log.parent) as folder:
            tail = read_tail(folder, log.name, _LAST_WORDS_MAX_BYTES)
        return last_words(tail[0]) if tail else ""

    def _there(self, name: str) -> Path:
        assert name, "a VM has a name"
        assert "/" not in name, "a name is no path"
        assert not name.startswith("."), "a name is no path"
        folder = self._vms / name
        if not folder.exists():
            raise _not_there(name)
        return folder

    # --- doing ---

    async def _make(self, name: str, source: Path | None, op: str, deadline_s: float) -> None:
        """Make the directory of a guest, whole or not at all: under another name first."""
        target, unfinished = self._vms / name, self._vms / f"{_UNFINISHED}{name}"
        if target.exists():
            raise NameTaken(
                f"{name} was not made",
                why="there is one of that name",
                fix="Find out whose it is; delete it if it is yours",
            )
        self._vms.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._making.add(unfinished.name)
        try:
            await asyncio.to_thread(remove_tree, unfinished)
            unfinished.mkdir(mode=0o700)
            for part in (_HOME, _TMP, _WORK):
                (unfinished / part).mkdir(mode=0o700)
            if source is not None:
                await _copy(source, unfinished / _HOME, op, deadline_s)
            unfinished.rename(target)
        except BaseException:
            await asyncio.to_thread(remove_tree, unfinished)
            raise
        finally:
            self._making.discard(unfinished.name)

    def _script(self) -> Path:
        told = self._settings.guest
        return guest_script() if told is None else guest_script((told.parent,), told.name)

    def _environment(self, name: str, folder: Path) -> dict[str, str]:
        """Return all that the guest's program is told: nothing of the agent's own environment is among it."""
        home = str(folder / _HOME)
        return {
            "HOME": home,
            "TMPDIR": str(folder / _TMP),
            "PATH": self._settings.path,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "REMUDA_MAILBOX": str(self.mailbox(name)),
            "REMUDA_RUNNER": f"{home}/actions-runner",
            "REMUDA_WORK": str(folder / _WORK),
            "REMUDA_POWER_OFF": "true",
            **self._settings.guest_env,
            MARKER: str(folder),
        }

    async def _begun(self, name: str, folder: Path) -> None:
        """Wait until the guest's program was started."""
        deadline = self._clock.monotonic() + self._settings.deadlines.run
        while self._clock.monotonic() < deadline:
            match detached.look(folder / _RUN):
                case detached.Alive(pid) if pid is not None:
                    return
                case detached.Over(code):
                    raise VmsError(
                        f"{name} ended at once",
                        why=f"its program ended with {code}. {self._last_words(name)}".strip(),
                        fix=f"See {self.log_file(name)}",
                    )
                case _:
                    await self._clock.sleep(_POLL_S)
        raise _late(name, "run", "it did not say that it was started")

    async def _ask_to_end(self, name: str, run: Path, grace_s: float) -> None:
        # There may be no mailbox, or what the guest made of it.
        with contextlib.suppress(OSError), open_folder(self.mailbox(name)) as folder:
            write_whole(folder, STOP, b"", sync=make_durable)
        if grace_s > 0:
            detached.send(run, signal.SIGTERM)
        deadline = self._clock.monotonic() + grace_s
        while self._clock.monotonic() < deadline:
            if not isinstance(detached.look(run), detached.Alive):
                return
            await self._clock.sleep(_POLL_S)

    async def _end(self, name: str, folder: Path, within_s: float, op: str) -> None:
        """Kill the guest's group, then all that has left it, until nothing is found any more."""
        deadline = self._clock.monotonic() + within_s
        if not await detached.kill(folder / _RUN, within_s=within_s):
            raise _late(name, op, "its processes do not end when they are killed")
        while await asyncio.to_thread(kill_leftovers, folder):
            if self._clock.monotonic() > deadline:
                raise _late(name, op, "new processes come as fast as they are killed")
            await self._clock.sleep(_POLL_S)


async def _copy(source: Path, target: Path, op: str, deadline_s: float) -> None:
    done = await command(
        ["/bin/cp", "-RPp", f"{source}/.", f"{target}/"], op=op, deadline_s=deadline_s
    )
    if done.code == 0:
        return
    said = done.last_words()
    kind = NoSpace if "No space left" in said else VmsError
    raise kind(
        f"{source.name} could not be copied",
        why=said or f"cp ended with {done.code}",
        fix="See that the disk is not full and that this user may read all of it",
    )


@contextlib.contextmanager
def _disk(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoSpace if error.errno in {errno.ENOSPC, errno.EDQUOT} else VmsError
        raise kind(
            what,
            why=f"{error.filename or 'the disk'}: {error.strerror or type(error).__name__}",
            fix="See that the folder belongs to the agent's user and that the disk is not full",
        ) from None


def _not_there(name: str) -> NotThere:
    return NotThere(f"Nothing was done to {name}", why="it is not there", fix="Make it first")


def _still_running(name: str) -> StillRunning:
    return StillRunning(f"Nothing was done to {name}", why="it runs", fix="Stop it first")


def _late(name: str, op: str, why: str) -> TimedOut:
    return TimedOut(
        f"The call to {op} {name} was given up",
        why=why,
        fix="It is tried again; see what it does on this host",
        op=op,
    )
