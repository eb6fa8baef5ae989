"""What is known of each VM of QEMU on this host: one folder each, there whole or not at all."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.adapters import detached
from remuda.adapters.qemu import plan
from remuda.adapters.qemu.images import MANIFEST, Image, no_space_or
from remuda.ports.vms import Ending, NameTaken, NotThere, Power, Refused, RunEnd, SeenVm

if TYPE_CHECKING:
    from collections.abc import Iterator

VM: Final = "vm.json"
SNAPSHOT, SNAPSHOT_OF = "snapshot", "snapshot.json"
OVERLAY: Final = "disk.qcow2"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,126}")


class VmFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a VM is: written when it is cloned, and when it is given its size."""

    golden: str
    uuid: str
    machine_id: str
    mac: str
    cpus: int | None = None
    memory_mib: int | None = None


class SnapshotOf(msgspec.Struct, frozen=True, kw_only=True):
    """Which machine a snapshot is of. On any other it cannot be used."""

    qemu: str
    accel: str
    network: str
    cpus: int
    memory_mib: int


class VmFolders:
    """The folders of all VMs and goldens."""

    def __init__(self, root: Path) -> None:
        self._vms, self._unfinished = root / "vms", root / "unfinished"
        self._mailboxes = root / "mailboxes"
        self._swept = False

    def of(self, name: str) -> Path:
        """Return a VM's folder. A name that would lead elsewhere is refused."""
        if not _NAME.fullmatch(name) or ".." in name:
            raise Refused(
                "Nothing was done to the VM",
                why=f"{ascii(name)[:140]} is not a name for one",
                fix="Use names of small letters, digits and dashes",
            )
        return self._vms / name

    def found(self, name: str) -> Path:
        """Return the folder of a VM that is there."""
        folder = self.of(name)
        if not folder.is_dir():
            raise NotThere(
                f"Nothing was done to {name}",
                why="there is no VM of that name on this host",
                fix="Clone it first",
            )
        return folder

    def mailbox(self, name: str) -> Path:
        self.of(name)
        return self._mailboxes / name

    def names(self) -> list[str]:
        if not self._vms.exists():
            return []
        return sorted(entry.name for entry in self._vms.iterdir() if entry.is_dir())

    @contextlib.contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Yield a folder that gets its name when the block ends well, and is gone when it does not."""
        target = self.of(name)
        if target.exists():
            raise _taken(name)
        unfinished = self._aside(name)
        unfinished.mkdir(mode=0o700, parents=True)
        try:
            yield unfinished
            self._vms.mkdir(mode=0o700, exist_ok=True)
            try:
                unfinished.rename(target)
            except (FileExistsError, OSError) as error:
                if target.exists():
                    raise _taken(name) from None
                raise no_space_or(error, f"{name} was not made") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Have a VM disappear at once; its files go after that."""
        folder, aside = self.found(name), self._aside(name)
        try:
            aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.rename(aside)
        except OSError:
            # A full disk may have no room for another folder, and has some only when this one is gone.
            shutil.rmtree(folder)
            return
        shutil.rmtree(aside, ignore_errors=True)

    def _aside(self, name: str) -> Path:
        """Return a place that nobody uses. What an agent that was killed left there goes first, once."""
        if not self._swept:
            self._swept = True
            shutil.rmtree(self._unfinished, ignore_errors=True)
        number = 0
        while (aside := self._unfinished / f"{name}.{number}").exists():
            number += 1
        return aside


def run_folder(folder: Path) -> Path:
    """Return where it is noted what became of a VM's process."""
    return folder / "run"


def runs(folder: Path) -> bool:
    return isinstance(detached.look(run_folder(folder)), detached.Alive)


def seen(folder: Path) -> SeenVm:
    """Look at one VM."""
    match detached.look(run_folder(folder)):
        case detached.Alive():
            return SeenVm(name=folder.name, power=Power.RUNNING)
        case detached.Over(_, at):
            end = plan.read_end(folder)
            if end is not None:
                how = RunEnd(how=Ending(end.how), at=at, why=end.why)
            elif (folder / plan.STOP).exists() or (folder / plan.QUIT).exists():
                how = RunEnd(how=Ending.STOPPED, at=at)
            else:
                up = (folder / plan.UP).exists()
                crash = Ending.CRASHED if up else Ending.NEVER_BOOTED
                how = RunEnd(how=crash, at=at, why="the process that keeps its QEMU is gone")
            return SeenVm(name=folder.name, power=Power.STOPPED, end=how)
        case None:
            return SeenVm(name=folder.name, power=Power.STOPPED)


def read_golden(folder: Path) -> Image | None:
    """Return the image of a golden; None: it is none."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Image)
    except FileNotFoundError:
        return None


def read_vm(folder: Path) -> VmFile | None:
    """Return what a VM is; None: it is a golden."""
    try:
        return msgspec.json.decode((folder / VM).read_bytes(), type=VmFile)
    except FileNotFoundError:
        return None


def write_vm(folder: Path, vm: VmFile) -> None:
    unfinished = folder / f"{VM}.new"
    unfinished.write_bytes(msgspec.json.encode(vm))
    unfinished.rename(folder / VM)


def read_snapshot(folder: Path) -> SnapshotOf | None:
    """Say which machine a golden's snapshot is of; None: it has none."""
    try:
        return msgspec.json.decode((folder / SNAPSHOT_OF).read_bytes(), type=SnapshotOf)
    except FileNotFoundError:
        return None


def _taken(name: str) -> NameTaken:
    return NameTaken(
        f"{name} was not made",
        why="there is one of that name already",
        fix="Find out whose it is; it is not replaced",
    )
