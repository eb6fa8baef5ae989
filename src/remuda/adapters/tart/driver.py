"""
The driver of Tart. Each call of the port is one or two calls of the program, each with its deadline.

What Tart replaces without a word is looked for first: a clone onto a name that is taken, a clone of an image that was
never pulled. What is seen of a VM is what Tart says and what is known of our own run of it: from the start of ``tart
run`` until that process is gone it runs, also before Tart has taken its lock.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import TYPE_CHECKING, Final

from remuda.adapters.detached import Alive, Over
from remuda.adapters.registry.names import ImageName
from remuda.adapters.tart import sizes, texts
from remuda.adapters.tart.calls import Calls
from remuda.adapters.tart.runs import Runs, ask_guest_to_end, disk_told, lock_holder
from remuda.adapters.tart.settings import SHARE, TartSettings
from remuda.model.errors import BadInput
from remuda.ports.vms import (
    Abilities,
    Inventory,
    NameTaken,
    NotThere,
    Power,
    PullProgress,
    Refused,
    SeenImage,
    SeenVm,
    StillRunning,
    TimedOut,
    VmsError,
    VmShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.adapters.commands import Finished
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

_STOP_S: Final = 10
"""How long Tart waits for its own process after it was told to switch the VM off; then it kills it."""
_KILL_S: Final = 10.0
_POLL_S: Final = 0.05
_WHOLE: Final = 100


class TartVms:
    """Implements ``Vms`` with the program ``tart``."""

    def __init__(self, settings: TartSettings, *, clock: Clock, ids: Ids) -> None:
        self._settings, self._clock, self._ids = settings, clock, ids
        self._deadlines = settings.deadlines
        self._runs = Runs(settings.folder)
        self._calls = Calls(settings, clock, ids)
        self._asked_of: dict[str, VmShape] = {}
        """By golden: the size that was last asked for one of its clones. The next one is probably to be like it."""
        self._made: dict[str, tuple[str, VmShape]] = {}
        """By clone whose size was not asked for yet: its golden, and the size that it has got."""

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            runtime="tart",
            guest_os=frozenset({"darwin", "linux"}),
            isolated=True,
            vms_max=self._settings.vms_max,
            pulls=True,
            shared_goldens=False,
            sees_guest_disk=True,
        )

    # --- looking ------------------------------------------------------------------------------------------------------

    async def inventory(self) -> Inventory:
        halves = set(self._folders())  # before the list: what is made meanwhile is in the list
        rows = texts.read_list(await self._ok("list", "list", "--format", "json"))
        local = {row.name: row.running for row in rows if row.is_local}
        for name in halves & set(self._folders()) - set(local):
            local[name] = False
        for name in self._runs.names():
            if name not in local and self._runs.is_alive(name):
                local[name] = True
        images = (
            SeenImage(ref=row.name, size_bytes=row.size_bytes) for row in rows if not row.is_local
        )
        seen = (self._seen(name, running=running) for name, running in sorted(local.items()))
        return Inventory(vms=tuple(seen), images=tuple(images))

    def running(self) -> frozenset[str] | None:
        """Return what runs, by Tart's own locks: as ``tart list`` finds it, without a call."""
        if not _is_folder(self._settings.home / "vms"):
            return None
        locked = {name for name in self._folders() if lock_holder(self._config(name))}
        return frozenset(
            locked | {name for name in self._runs.names() if self._runs.is_alive(name)}
        )

    async def observe(self, name: str) -> SeenVm | None:
        await self._calls.sweep()
        if self._is_absent(texts.checked_name(name)):
            return None
        running = await self._running(name)
        if running is None and not self._runs.is_alive(name):
            return None
        return self._seen(name, running=bool(running))

    async def _running(self, name: str) -> bool | None:
        """Ask Tart whether a VM runs; None: there is none."""
        done = await self._call("get", "get", name, "--format", "json")
        if done.code == 0:
            return texts.read_running(done.out)
        if texts.is_half(done.err):
            return False
        error = texts.error_of(f"{name} could not be looked at", done.code, done.err)
        if isinstance(error, NotThere):
            return None
        raise error

    async def _now(self, name: str) -> bool | None:
        """As ``_running``, read from Tart's own folder: for what is done next, a call would only make it older."""
        vms = self._settings.home / "vms"
        if not _is_folder(vms):
            return await self._running(name)
        return bool(lock_holder(self._config(name))) if _is_folder(vms / name) else None

    def _is_absent(self, name: str) -> bool:
        """Say whether there is neither a folder nor a run of a VM: then a call would say nothing else."""
        vms = self._settings.home / "vms"
        if not _is_folder(vms) or os.path.lexists(vms / name):
            return False
        return not self._runs.is_alive(name)

    def _seen(self, name: str, *, running: bool) -> SeenVm:
        ours = self._runs.look(name)
        if running or isinstance(ours, Alive):
            return SeenVm(name=name, power=Power.RUNNING)
        return SeenVm(name=name, power=Power.STOPPED, end=self._runs.end(name))

    def _folders(self) -> list[str]:
        vms = self._settings.home / "vms"
        with (
            disk_told("Tart's VMs were not listed"),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
        ):
            return [entry.name for entry in os.scandir(vms) if entry.is_dir()]
        return []

    # --- images -------------------------------------------------------------------------------------------------------

    async def image_bytes(self, image: str) -> int | None:
        found = await sizes.fetched_manifest(_parsed(image), self._settings, self._clock, self._ids)
        return None if found is None else sizes.disk_bytes(found)

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        name = _parsed(image)
        if str(name) in await self._cached():
            return
        found = await sizes.fetched_manifest(name, self._settings, self._clock, self._ids)
        total = None if found is None else found.download_bytes
        furthest = -1

        def heard(line: bytes) -> bool:
            nonlocal furthest
            now = texts.percent(line)
            if now is None or now <= furthest:
                return False
            furthest = now
            done = 0 if total is None else total * now // _WHOLE
            progress(PullProgress(done_bytes=done, total_bytes=total))
            return True

        insecure = ("--insecure",) if self._settings.insecure else ()
        done = await self._calls.pull(heard, str(name), *insecure)
        if done.code != 0:
            raise texts.error_of(f"The image {name} was not pulled", done.code, done.err)
        if furthest < _WHOLE:
            progress(PullProgress(done_bytes=total or 0, total_bytes=total))

    async def make_golden(self, image: str, golden: str) -> None:
        name = _parsed(image)
        if str(name) not in await self._cached():
            raise NotThere(
                f"{golden} was not made", why=f"{name} was not pulled", fix="Pull it first"
            )
        await self._copied("golden", str(name), golden)

    async def drop_image(self, image: str) -> None:
        name = str(_parsed(image))
        try:
            await self._ok("drop", "delete", name)
        except VmsError as error:
            # To delete the last tag of an image deletes it by its digest, too; not every version says so in one way.
            if isinstance(error, TimedOut | NotThere) or name in await self._cached():
                raise
            raise NotThere(error.what, why="it is gone", fix="Nothing is left to do") from None

    async def _cached(self) -> set[str]:
        raw = await self._ok("list", "list", "--source", "oci", "--format", "json")
        return {row.name for row in texts.read_list(raw) if not row.is_local}

    # --- one VM -------------------------------------------------------------------------------------------------------

    async def clone(self, golden: str, name: str) -> None:
        await self._copied("clone", texts.checked_name(golden), name)
        given = self._asked_of.get(golden, VmShape())
        try:
            identity = ("--random-mac", "--random-serial")
            await self._ok("set", "set", name, *identity, *_size(given))
        except VmsError:
            self._asked_of.pop(golden, None)
            # Two VMs with one identity are worse than none. Should this fail as well, the caller's record says so.
            with contextlib.suppress(VmsError):
                await self._ok("delete", "delete", name)
            raise
        self._made[name] = golden, given

    async def _copied(self, op: str, source: str, name: str) -> None:
        if await self._now(texts.checked_name(name)) is not None or self._runs.is_alive(name):
            raise NameTaken(
                f"{name} was not made",
                why="there is a VM of that name",
                fix="Find out whose it is; what is ours and half made is deleted first",
            )
        await self._ok(op, "clone", source, name)

    async def shape(self, name: str, shape: VmShape) -> None:
        golden, given = self._made.pop(texts.checked_name(name), ("", None))
        if shape == given:
            return
        if given is not None and _leaves_some_of(given, shape):
            # What its image says can be had again, but not be asked for.
            self._asked_of.pop(golden, None)
            await self._ok("delete", "delete", name)
            await self.clone(golden, name)
            await self.shape(name, shape)
            return
        await self._ok("set", "set", name, *_size(shape))
        if golden:
            self._asked_of[golden] = shape

    async def run(self, name: str) -> None:
        running = await self._now(texts.checked_name(name))
        if running is None:
            raise NotThere(f"{name} was not run", why="there is none", fix="Begin from the start")
        if running or self._runs.is_alive(name):
            raise StillRunning(f"{name} was not run", why="it runs already", fix="Let it run")
        network = ("--net-softnet",) if self._settings.softnet else ()
        share = ("--dir", f"{SHARE}:{self.mailbox(name)}")
        flags = ("--no-graphics", "--no-audio", "--root-disk-opts", "caching=cached")
        argv = [self._settings.program, "run", name, *flags, *network, *share]
        await self._runs.start(name, argv, self._settings.run_env())
        await self._past_first_moments(name)

    async def _past_first_moments(self, name: str) -> None:
        deadline = self._clock.monotonic() + self._deadlines.run
        locked_at: float | None = None
        while isinstance(ours := self._runs.look(name), Alive):
            now = self._clock.monotonic()
            if locked_at is None and lock_holder(self._config(name)):
                locked_at = now
            settled = locked_at is not None and now - locked_at >= self._settings.settle_s
            if settled or self._runs.has_mail(name):
                return
            if now > deadline:
                await self._kill(name)
                raise TimedOut(
                    f"{name} was not started",
                    why=f"tart run did not start it in {self._deadlines.run:g} s and was killed",
                    fix="Its Pod is replaced; see the log of tart on the host",
                    op="run",
                )
            await self._clock.sleep(_POLL_S)
        assert isinstance(ours, Over), "it was started"
        if ours.code != 0:
            raise texts.error_of(f"{name} ended at once", ours.code or 1, self._runs.log_tail(name))

    async def stop(self, name: str, *, grace_s: float) -> None:
        texts.checked_name(name)
        if not self._runs.is_alive(name) and not await self._found_running(name):
            return
        if self._runs.look(name) is not None:
            self._runs.note_stopping(name)
        if grace_s > 0:
            await self._graceful(name, grace_s)
        try:
            await self._switched_off(name)
        except VmsError:
            # The call failed or hung; what it should have ended is ours to end all the same.
            if self._runs.is_alive(name):
                await self._kill(name)
            raise
        if self._runs.is_alive(name):
            await self._kill(name)

    async def _found_running(self, name: str) -> bool:
        running = await self._running(name)
        if running is None:
            raise NotThere(f"{name} was not stopped", why="there is none", fix="Nothing to do")
        return running

    async def _graceful(self, name: str, grace_s: float) -> None:
        """Press the power button and wait."""
        ask_guest_to_end(self._config(name))
        deadline = self._clock.monotonic() + grace_s
        while self._clock.monotonic() < deadline:
            if not self._runs.is_alive(name) and not lock_holder(self._config(name)):
                return
            await self._clock.sleep(_POLL_S)

    async def _switched_off(self, name: str) -> None:
        wait_s = max(1, min(_STOP_S, math.floor(self._deadlines.stop / 2)))
        done = await self._call("stop", "stop", name, "--timeout", str(wait_s))
        if done.code == 0 or texts.is_not_running(done.code, done.err):
            return
        error = texts.error_of(f"{name} was not stopped", done.code, done.err)
        if isinstance(error, NotThere) and await self._kill(name):
            return  # its folder was taken away under it
        raise error

    async def _kill(self, name: str) -> bool:
        return await self._runs.kill(name, _KILL_S)

    async def delete(self, name: str) -> None:
        self._made.pop(name, None)
        if self._runs.is_alive(texts.checked_name(name)):
            raise StillRunning(f"{name} was not deleted", why="it runs", fix="Stop it first")
        try:
            await self._ok("delete", "delete", name)
        except NotThere:
            self._runs.forget(name)
            raise
        self._runs.forget(name)

    async def guest_disk_used(self, name: str) -> float | None:
        done = await self._call("exec", "exec", texts.checked_name(name), "/bin/df", "-k", "/")
        if done.code == 0:
            return texts.used_share(done.out.decode(errors="replace"))
        error = texts.error_of(f"The disk of {name} was not looked at", done.code, done.err)
        if isinstance(error, NotThere):
            raise error
        return None  # no agent answers in the guest, or it does not run

    # --- places -------------------------------------------------------------------------------------------------------

    def mailbox(self, name: str) -> Path:
        return self._runs.mailbox(texts.checked_name(name))

    def log_file(self, name: str) -> Path:
        return self._runs.log(texts.checked_name(name))

    def _config(self, name: str) -> Path:
        return self._settings.home / "vms" / name / "config.json"

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(self, op: str, *arguments: str) -> Finished:
        deadline_s = getattr(self._deadlines, "delete" if op == "drop" else op)
        return await self._calls.call(op, deadline_s, *arguments)

    async def _ok(self, op: str, *arguments: str) -> bytes:
        done = await self._call(op, *arguments)
        if done.code != 0:
            subject = [word for word in arguments[1:2] if not word.startswith("-")]
            what = " ".join(("tart", arguments[0], *subject, "failed"))
            raise texts.error_of(what, done.code, done.err)
        return done.out


def _size(shape: VmShape) -> list[str]:
    options = (("--cpu", shape.cpus), ("--memory", shape.memory_mib))
    return [word for flag, n in options if n is not None for word in (flag, str(n))]


def _leaves_some_of(given: VmShape, shape: VmShape) -> bool:
    """Say whether a size leaves to the image what was given already."""
    return (given.cpus is not None and shape.cpus is None) or (
        given.memory_mib is not None and shape.memory_mib is None
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir()


def _parsed(image: str) -> ImageName:
    try:
        return ImageName.parse(image)
    except BadInput as error:
        raise Refused(error.what, why=error.why, fix=error.fix) from None
