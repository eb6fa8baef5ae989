"""Checks of this machine as the home of a ``remuda up``. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.cli.doctor.decide.facts import Kvm, got
from remuda.cli.doctor.decide.findings import (
    Check,
    Group,
    counted,
    fail,
    ok,
    skip,
    warn,
)
from remuda.cli.tree.decide.health import Condition

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import DriverFacts, Facts
    from remuda.cli.doctor.decide.findings import Finding
    from remuda.cli.tree.looking import PartView

ROOM_FAIL_BYTES: Final = 256 * 1024**2
"""With less, ``remuda up`` does not start."""
ROOM_WARN_BYTES: Final = 1024**3
_MIB: Final = 1024**2
_LATELY_S: Final = 3600.0
_ISOLATES_NOTHING: Final = "It isolates nothing: a job can do all that its user can"


def data_folder(facts: Facts) -> Finding:
    machine = got(facts.machine)
    folder = machine.folder
    elsewhere = "choose another folder with --data"
    if not folder.exists:
        return skip(f"There is no {folder.path}: no remuda up has run with its data there.")
    if folder.fault:
        return fail(
            f"The data folder {folder.path} cannot be used.",
            [folder.fault],
            f"See that it and what is in it belong to you, or {elsewhere}",
        )
    if folder.foreign:
        return fail(
            f"{folder.path} is not the data folder of a remuda up.",
            [f"It holds {name}" for name in folder.foreign],
            f"Leave it alone, and {elsewhere}",
        )
    if folder.broken:
        return fail(
            "Files in the data folder do not hold what they should.",
            folder.broken,
            "Remove those files and start remuda up again: it writes them anew, and no job is lost",
        )
    if folder.exposed:
        names = " ".join(folder.exposed)
        return warn(
            "Others on this machine can read secrets in the data folder.",
            folder.exposed,
            f"cd {folder.path} && chmod go-rwx {names}",
        )
    return ok(f"{folder.path} is whole, and ours alone.")


def data_room(facts: Facts) -> Finding:
    folder = got(facts.machine).folder
    if not folder.exists or folder.fault:
        return skip("There is no data folder to look at.")
    free = f"{folder.free_bytes // _MIB} MiB are free on the disk of {folder.path}."
    fix = "Free disk space, or choose a folder on another disk with --data"
    if folder.free_bytes < ROOM_FAIL_BYTES:
        return fail(free, [f"remuda up needs {ROOM_FAIL_BYTES // _MIB} MiB to start"], fix)
    if folder.free_bytes < ROOM_WARN_BYTES:
        return warn(free, ["Images, logs and the database grow"], fix)
    return ok(free)


def data_leftovers(facts: Facts) -> Finding:
    machine = got(facts.machine)
    if not machine.folder.exists or machine.folder.fault:
        return skip("There is no data folder to look at.")
    if not machine.folder.leftovers:
        return ok("No write was cut short.")
    if got(machine.tree).supervisor is not None:
        return ok("Files are being written now.")
    found = warn(
        "Files are left whose writing was cut short.",
        machine.folder.leftovers,
        f"remuda doctor --fix{machine.chosen} removes them: what they were to replace is still there",
    )
    return replace(found, mendable=True)


def up_running(facts: Facts) -> Finding:
    machine = got(facts.machine)
    view = got(machine.tree)
    start = f"remuda up --detach{machine.chosen}"
    if not view.parts and view.supervisor is None:
        return fail("No remuda up runs on this machine.", fix=f"Start one with: {start}")
    running = [part.name for part in view.parts if part.condition is not Condition.STOPPED]
    if view.supervisor is not None:
        who = f"Process {view.supervisor}" if view.supervisor else "A process"
        return ok(f"{who} tends the parts of remuda up.")
    if running:
        return fail(
            "Nobody tends the parts of remuda up: it was killed, and they run on.",
            [f"{name} runs" for name in running],
            f"Start it again, it takes over and jobs go on: {start}",
        )
    return fail("remuda up does not run.", fix=f"Start it with: {start}")


def up_parts(facts: Facts) -> Finding:
    view = got(got(facts.machine).tree)
    if not view.parts or (view.supervisor is None and not any(p.pid for p in view.parts)):
        return skip("No part of a remuda up runs.")
    ill = [part for part in view.parts if part.condition is not Condition.HEALTHY]
    if ill:
        return fail(
            f"{counted(len(ill), 'part')} of remuda up {'is' if len(ill) == 1 else 'are'} not well.",
            [f"{part.name} is {part.condition.value}: {part.why}" for part in ill],
            "A part that ends is started again. If it stays so, its log in logs of the data folder says why",
        )
    restless = [part for part in view.parts if _ended_lately(part, facts)]
    if restless:
        return warn(
            "All parts are healthy now, and some ended within the last hour.",
            [
                f"{part.name}: {counted(part.restarts, 'restart')}; {_last(part)}"
                for part in restless
            ],
            "Look at its log in logs of the data folder",
        )
    return ok("All parts are healthy: " + ", ".join(part.name for part in view.parts) + ".")


def _ended_lately(part: PartView, facts: Facts) -> bool:
    at = part.last_error_at
    return at is not None and (facts.now - at).total_seconds() < _LATELY_S


def _last(part: PartView) -> str:
    return f"the last error was: {part.last_error}" if part.last_error else "it said nothing"


def driver(facts: Facts) -> Finding:
    told = got(got(facts.machine).driver)
    if told.name == "process":
        return ok("Runners are processes of this machine.", [_ISOLATES_NOTHING])
    program, there = _program(told)
    if not there:
        return fail(
            f"The driver is {told.name}, and {program} is not installed.",
            fix=f"Install {program}, or start remuda up --driver process",
        )
    if not told.image_there:
        return fail(
            f"The driver is {told.name}, and its image {told.image} is not there.",
            fix="Put the image into images of the data folder: docs/howto/qemu-images.md",
        )
    return ok(f"Runners are VMs of {program}, which is installed.")


def _program(told: DriverFacts) -> tuple[str, bool]:
    if told.name == "tart":
        return "Tart", told.machine.has_tart
    return "QEMU", told.machine.has_qemu


def kvm(facts: Facts) -> Finding:
    told = got(got(facts.machine).driver)
    slow = "Without KVM, guests are emulated: everything in them takes many times as long"
    load = "Load the kernel's kvm module and let this user open /dev/kvm"
    match told.kvm:
        case None:
            return skip(f"The driver is {told.name}, which has no use for KVM.")
        case Kvm.WORKS:
            return ok("KVM runs guests: a kernel was booted with it.")
        case Kvm.UNTRIED:
            return skip("There is no image to try KVM with.")
        case Kvm.ABSENT:
            return warn("This machine has no KVM.", [slow], load)
        case Kvm.CLOSED:
            return warn("KVM is there, and this user may not use it.", [slow], load)
        case Kvm.HANGS:
            return warn(
                "KVM is there, and a kernel does not boot with it.",
                [slow],
                "Look at the kernel's log; in a VM, its host has to allow nested virtualisation",
            )


CHECKS: Final = (
    Check(
        name="data-folder",
        group=Group.MACHINE,
        about="The data folder of `remuda up` can be used, is whole, and hides its secrets from others.",
        look=data_folder,
    ),
    Check(
        name="data-room",
        group=Group.MACHINE,
        about="There is room on the disk of the data folder: warn below 1 GiB, fail below 256 MiB.",
        look=data_room,
    ),
    Check(
        name="data-leftovers",
        group=Group.MACHINE,
        about="No file is left whose writing was cut short by a kill.",
        look=data_leftovers,
        mends="removes them, while it keeps every remuda up out of the folder",
    ),
    Check(
        name="up-running",
        group=Group.MACHINE,
        about="A `remuda up` tends its parts.",
        look=up_running,
    ),
    Check(
        name="up-parts",
        group=Group.MACHINE,
        about="Each part of `remuda up` is healthy, and none ended within the last hour.",
        look=up_parts,
    ),
    Check(
        name="driver",
        group=Group.MACHINE,
        about="What runs the VMs of this machine is installed, and its image is there.",
        look=driver,
    ),
    Check(
        name="kvm",
        group=Group.MACHINE,
        about="With QEMU: KVM truly runs guests. A kernel is booted, for 10 s at most.",
        look=kvm,
    ),
)
