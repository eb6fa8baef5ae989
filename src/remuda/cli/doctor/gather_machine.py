"""Looks at this machine: the data folder of ``remuda up``, its parts, and what runs its VMs. Changes nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.adapters.qemu.accel import kernel_runs
from remuda.adapters.qemu.images import KERNEL
from remuda.adapters.qemu.machine import Accel
from remuda.cli.doctor.decide.facts import (
    DriverFacts,
    FolderFacts,
    Kvm,
    MachineFacts,
    Unread,
)
from remuda.cli.tree.folder import data_folder
from remuda.cli.tree.looking import look
from remuda.cli.tree.machine import look_at_machine
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.cli.finding import Where
    from remuda.cli.tree.folder import Folder, Kept
    from remuda.cli.tree.looking import TreeView

KVM_S: Final = 10.0
_LOOK_S: Final = 30.0
_KVM: Final = Path("/dev/kvm")
_QEMU: Final = "qemu-system-x86_64"
_FOREIGN_MAX: Final = 3
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SECRETS: Final = ("api-token", "controller-token", "node-kubeconfig", "control-plane/kubeconfig")
_SECRET_FOLDERS: Final = ("control-plane", "control-plane/pki", "github")
"""Folders that nobody else may look into."""
_OF_SECRETS: Final = ("control-plane/pki", "github")
"""Folders in which every file is for its owner alone."""


async def machine_facts(where: Where) -> MachineFacts | Unread:
    """Look at the ``remuda up`` of this machine, if that is the fleet that is meant."""
    if where.is_named:
        return Unread(
            why="A fleet was named, so this machine's remuda up is not meant.", asked=False
        )
    folder = data_folder(where.data)
    seen = await asyncio.to_thread(_folder, folder)
    chosen = "" if where.data is None else f" --data {shlex.quote(str(where.data))}"
    if not seen.exists or seen.fault or seen.foreign:
        why = "There is no data folder of a remuda up to look at."
        tree = await _tree(folder) if not seen.exists else Unread(why=why)
        return MachineFacts(folder=seen, tree=tree, driver=Unread(why=why), chosen=chosen)
    return MachineFacts(
        folder=seen, tree=await _tree(folder), driver=await _driver(folder), chosen=chosen
    )


# --- the data folder --------------------------------------------------------------------------------------------------


def _folder(folder: Folder) -> FolderFacts:
    root = folder.root
    try:
        names = sorted(path.name for path in root.iterdir())
        free_bytes = shutil.disk_usage(root).free
    except FileNotFoundError:
        return FolderFacts(path=str(root), exists=False)
    except OSError as error:
        why = f"{error.filename or root}: {error.strerror or error}"
        return FolderFacts(path=str(root), fault=why)
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return FolderFacts(path=str(root), fault=f"{root}: this user may not write there")
    # As in ``prepare``: images and the GitHub App may be there before the first start.
    foreign = [name for name in names if name not in {folder.images.name, folder.github.name}]
    if foreign and not {folder.lock.name, folder.kept_file.name} & set(names):
        return FolderFacts(path=str(root), foreign=tuple(foreign[:_FOREIGN_MAX]))
    return FolderFacts(
        path=str(root),
        free_bytes=free_bytes,
        broken=_broken(folder),
        leftovers=tuple(
            str(root / name)
            for name in (*names, *_in_folders(root, _OF_SECRETS))
            if _is_leftover(Path(name).name)
        ),
        exposed=_exposed(root),
    )


def _is_leftover(name: str) -> bool:
    """Say whether a file is what ``write_whole`` or ``write_addresses`` renames at its end."""
    return (name.startswith(".") and name.endswith(".new")) or name == "addresses.new"


def _broken(folder: Folder) -> tuple[str, ...]:
    found = []
    for read in (folder.kept, folder.home.addresses):
        try:
            read()
        except RemudaError as error:
            found.append(f"{error.what}: {error.why}")
        except OSError as error:
            found.append(f"{error.filename}: {error.strerror}")
    return tuple(found)


def _in_folders(root: Path, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files in some folders, by their names below ``root``. One that cannot be read has none for us."""
    found: list[str] = []
    for folder in folders:
        with suppress(OSError):
            found += sorted(f"{folder}/{path.name}" for path in (root / folder).iterdir())
    return tuple(found)


def _exposed(root: Path) -> tuple[str, ...]:
    found = []
    for name in (*_SECRETS, *_SECRET_FOLDERS, *_in_folders(root, _OF_SECRETS)):
        try:
            mode = (root / name).stat().st_mode
        except OSError:
            continue
        if mode & _OTHERS:
            found.append(name)
    return tuple(found)


# --- its parts --------------------------------------------------------------------------------------------------------


async def _tree(folder: Folder) -> TreeView | Unread:
    try:
        async with asyncio.timeout(_LOOK_S):
            return await look(folder)
    except TimeoutError:
        return Unread(why=f"The parts of remuda up could not be looked at within {_LOOK_S:.0f} s.")
    except RemudaError as error:
        return Unread(why=f"{error.what}: {error.why}.", fix=error.fix)
    except OSError as error:
        return Unread(why=f"{error.filename or folder.root}: {error.strerror or error}.")


# --- what runs VMs ----------------------------------------------------------------------------------------------------


async def _driver(folder: Folder) -> DriverFacts | Unread:
    try:
        kept = folder.kept()
    except (RemudaError, OSError) as error:
        return Unread(why=f"{error}")
    if kept is None:
        return Unread(why="No remuda up has got so far as to choose a driver.")
    machine = await asyncio.to_thread(look_at_machine, folder.images)
    is_qemu = kept.driver == "qemu"
    there = not is_qemu or await asyncio.to_thread(_kernel(folder, kept).is_file)
    kvm = await _kvm(folder, kept) if is_qemu and machine.has_qemu else None
    return DriverFacts(
        name=kept.driver, image=kept.image, machine=machine, image_there=there, kvm=kvm
    )


def _kernel(folder: Folder, kept: Kept) -> Path:
    return folder.images / kept.image.partition("@")[0] / KERNEL


async def _kvm(folder: Folder, kept: Kept) -> Kvm:
    """Find out whether KVM runs guests: in a process of its own, which is ended if it hangs."""
    if not _KVM.exists():
        return Kvm.ABSENT
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return Kvm.CLOSED
    kernel = _kernel(folder, kept)
    if not await asyncio.to_thread(kernel.is_file):
        return Kvm.UNTRIED
    try:
        works = await kernel_runs(_QEMU, Accel.KVM, kernel, KVM_S)
    except RemudaError:
        return Kvm.HANGS
    return Kvm.WORKS if works else Kvm.HANGS
