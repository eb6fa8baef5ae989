"""What ``remuda up`` decides, as tables."""

from __future__ import annotations

import json

import msgspec
import pytest

from remuda.cli.tree.decide.driver import (
    Machine,
    Size,
    choose_driver,
    offer_of,
    runner_size,
    vms_of,
)
from remuda.cli.tree.decide.health import Condition, Seen, condition_of, summary, why_not
from remuda.cli.tree.decide.last_words import last_words
from remuda.cli.tree.decide.pool import PoolWish, pool_manifest
from remuda.cli.tree.decide.restarts import FIRST_TRIES, STEADY_S, Life, failures_after, is_hopeless
from remuda.kube.runner_pool import RunnerPool
from remuda.model.errors import BadInput

MAC = Machine(platform="darwin", cpus=8, memory_mib=16384)
LINUX = Machine(platform="linux", cpus=2, memory_mib=8192)


def mac(**more: object) -> Machine:
    return Machine(platform="darwin", cpus=8, memory_mib=16384, **more)  # type: ignore[arg-type]


def linux(**more: object) -> Machine:
    return Machine(platform="linux", cpus=2, memory_mib=8192, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "image", "machine", "driver", "chosen_image"),
    [
        pytest.param("auto", "m", mac(has_tart=True), "tart", "m", id="Tart on a Mac that has it"),
        pytest.param("auto", "", mac(has_tart=True), "process", "process", id="no image, no Tart"),
        pytest.param("auto", "", MAC, "process", "process", id="a Mac without Tart"),
        pytest.param(
            "auto", "", linux(has_qemu=True, qemu_image="q:1"), "qemu", "q:1", id="QEMU, an image"
        ),
        pytest.param("auto", "", linux(has_qemu=True), "process", "process", id="QEMU, no image"),
        pytest.param(
            "auto", "", linux(qemu_image="q:1"), "process", "process", id="an image, no QEMU"
        ),
        pytest.param("auto", "", linux(has_tart=True), "process", "process", id="Tart is for Macs"),
        pytest.param("process", "", linux(has_qemu=True), "process", "process", id="as told"),
        pytest.param(
            "process",
            "x",
            linux(has_image_folder=True),
            "process",
            "x",
            id="as told, with an image",
        ),
        pytest.param(
            "qemu",
            "",
            linux(has_qemu=True, qemu_image="q:1"),
            "qemu",
            "q:1",
            id="the image it finds",
        ),
        pytest.param(
            "qemu",
            "mine",
            linux(has_qemu=True, qemu_image="q:1", has_vm_image=True),
            "qemu",
            "mine",
            id="the image named",
        ),
        pytest.param("tart", "m", mac(has_tart=True), "tart", "m", id="Tart fetches its images"),
    ],
)
def test_choose_driver(
    told: str, image: str, machine: Machine, driver: str, chosen_image: str
) -> None:
    chosen = choose_driver(told, image, machine)

    assert (chosen.driver, chosen.image) == (driver, chosen_image)
    assert chosen.why


@pytest.mark.parametrize(
    ("told", "machine", "why"),
    [
        pytest.param("auto", MAC, "Tart is not installed", id="a Mac without Tart"),
        pytest.param("auto", LINUX, "QEMU is not installed", id="Linux without QEMU"),
        pytest.param(
            "auto", linux(qemu_image="q:1"), "QEMU is not installed", id="other images are no help"
        ),
        pytest.param(
            "auto",
            linux(has_image_folder=True),
            "QEMU is not installed",
            id="nobody asked for processes",
        ),
        pytest.param("process", linux(has_qemu=True), "is a folder in images", id="processes"),
        pytest.param(
            "auto",
            linux(has_qemu=True, qemu_image="q:1"),
            "an image.json in it",
            id="QEMU has no such image, and fetches none",
        ),
        pytest.param("qemu", linux(has_qemu=True), "an image.json in it", id="nor if it is told"),
    ],
)
def test_an_image_that_was_named_is_never_left_out(told: str, machine: Machine, why: str) -> None:
    with pytest.raises(BadInput, match="The image m cannot be used") as refused:
        choose_driver(told, "m", machine)

    assert why in refused.value.why
    assert "leave --image out" in refused.value.fix


def test_an_image_of_an_earlier_start_is_taken_without_another_look() -> None:
    assert choose_driver("process", "", LINUX, kept_image="mine").image == "mine"
    assert choose_driver("tart", "", mac(has_tart=True), kept_image="mine").image == "mine"
    assert choose_driver("qemu", "", linux(has_qemu=True), kept_image="mine").image == "mine"


@pytest.mark.parametrize(
    ("told", "machine", "program"),
    [
        pytest.param("tart", mac(has_qemu=True), "Tart", id="Tart"),
        pytest.param("qemu", linux(has_tart=True, has_vm_image=True), "QEMU", id="QEMU"),
    ],
)
@pytest.mark.parametrize("kept", ["", "mine"])
def test_a_driver_that_is_told_must_be_there(
    told: str, machine: Machine, program: str, kept: str
) -> None:
    with pytest.raises(BadInput, match=f"The driver {told} cannot be used") as refused:
        choose_driver(told, "" if kept else "m", machine, kept_image=kept)

    assert f"{program} is not installed" in refused.value.why


@pytest.mark.parametrize("told", ["tart", "qemu"])
def test_a_driver_that_is_told_needs_an_image(told: str) -> None:
    with pytest.raises(BadInput, match="--image"):
        choose_driver(told, "", LINUX)


@pytest.mark.parametrize(
    ("told", "driver", "cpus", "vms"),
    [
        pytest.param(7, "tart", 8, 7, id="as told"),
        pytest.param(None, "tart", 8, 2, id="as many as macOS allows"),
        pytest.param(None, "process", 1, 2, id="two at least: one warm while one works"),
        pytest.param(None, "qemu", 3, 3, id="one per CPU"),
        pytest.param(None, "qemu", 64, 4, id="no more than people can bear beside them"),
    ],
)
def test_vms_of(told: int | None, driver: str, cpus: int, vms: int) -> None:
    assert vms_of(told, driver, Machine(platform="linux", cpus=cpus, memory_mib=1)) == vms


@pytest.mark.parametrize("driver", ["process", "qemu", "tart"])
@pytest.mark.parametrize("vms", [1, 2, 4, 9])
def test_all_runners_of_the_default_pool_fit_where_there_is_room(driver: str, vms: int) -> None:
    machine = Machine(platform="linux", cpus=16, memory_mib=65536)

    each, offer = runner_size(driver, vms, machine), offer_of(driver, vms, machine)

    assert each.cpus * vms <= offer.cpus
    assert each.memory_mib * vms <= offer.memory_mib


def test_processes_fit_on_the_smallest_of_machines() -> None:
    tiny = Machine(platform="linux", cpus=1, memory_mib=1024)

    each, offer = runner_size("process", 4, tiny), offer_of("process", 4, tiny)

    assert (each, offer) == (Size(1, 128), Size(4, 512))


def test_the_default_pool_is_a_pool() -> None:
    wish = PoolWish(
        name="default",
        namespace="default",
        fleet="local",
        os="linux",
        image="process",
        replicas=2,
        size=Size(1, 128),
    )

    pool = msgspec.json.decode(json.dumps(pool_manifest(wish)), type=RunnerPool)

    assert (pool.name, pool.spec.fleet, pool.spec.replicas) == ("default", "local", 2)
    assert (pool.spec.resources.cpu, pool.spec.resources.memory) == (1, "128Mi")


# --- Ends and starts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "life", "after"),
    [
        pytest.param(0, Life(1.0, was_ready=False), 1, id="the first"),
        pytest.param(2, Life(1.0, was_ready=True), 3, id="ready for a moment is no excuse"),
        pytest.param(5, Life(STEADY_S, was_ready=True), 1, id="a steady life is forgiven"),
        pytest.param(5, Life(900.0, was_ready=False), 6, id="long, and never ready"),
    ],
)
def test_failures_after(before: int, life: Life, after: int) -> None:
    assert failures_after(before, life) == after


def test_only_what_was_never_ready_is_given_up() -> None:
    assert not is_hopeless(FIRST_TRIES - 1, was_ever_ready=False)
    assert is_hopeless(FIRST_TRIES, was_ever_ready=False)
    assert not is_hopeless(1000, was_ever_ready=True)


FAULT = "remuda: It broke\n  why: it was old\n  fix: Buy another\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        pytest.param(FAULT, ("It broke", "it was old", "Buy another"), id="a fault"),
        pytest.param(
            FAULT.replace("old", "dull") + '{"event": "x"}\n' + FAULT + "Stopped.\n",
            ("It broke", "it was old", "Buy another"),
            id="the last of two, whatever stands after it",
        ),
        pytest.param(
            "Usage: remuda x\n\nError: No such\n  why: no\n  fix: Write it\n",
            ("No such", "no", "Write it"),
            id="a setting that cannot be used",
        ),
        pytest.param(
            "Traceback:\n  x\nValueError: bad\n\n",
            ("The agent ended", "ValueError: bad", "Its log is /log"),
            id="a bug: its last line",
        ),
        pytest.param("", ("The agent ended", "it said nothing", "Its log is /log"), id="silence"),
    ],
)
def test_last_words(log: str, words: tuple[str, str, str]) -> None:
    said = last_words("agent", log, path="/log")

    assert (said.what, said.why, said.fix) == words


def test_last_words_are_bounded() -> None:
    assert len(last_words("agent", "x" * 10_000, path="/log").line) < 500


# --- Health -----------------------------------------------------------------------------------------------------------


def a_part(name: str = "server", **more: object) -> Seen:
    return Seen(**{"name": name, "running": True, "answered": True, "ready": True, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "condition", "why"),
    [
        pytest.param(a_part(), Condition.HEALTHY, "", id="well"),
        pytest.param(
            a_part(running=False), Condition.STOPPED, "it fell", id="gone, for the reason known"
        ),
        pytest.param(
            a_part(ready=False, says="no Node"), Condition.NOT_READY, "no Node", id="it says why"
        ),
        pytest.param(
            a_part(answered=False, ready=False),
            Condition.NOT_READY,
            "it does not answer",
            id="silent",
        ),
    ],
)
def test_condition_of(seen: Seen, condition: Condition, why: str) -> None:
    assert condition_of(seen) is condition
    assert why_not(seen, "it fell") == why


@pytest.mark.parametrize(
    ("parts", "supervised", "ok", "says"),
    [
        pytest.param([a_part()], True, True, "All is well", id="well"),
        pytest.param([a_part()], False, False, "Nobody tends server", id="nobody tends it"),
        pytest.param([a_part(running=False)], False, False, "Nothing runs", id="nothing runs"),
        pytest.param([], False, False, "Nothing runs", id="nothing ever ran"),
        pytest.param(
            [a_part(), a_part("agent", ready=False)], True, False, "agent", id="one is not well"
        ),
        pytest.param([a_part(running=False)], True, False, "server", id="about to start again"),
    ],
)
def test_summary(parts: list[Seen], supervised: bool, ok: bool, says: str) -> None:  # noqa: FBT001 - a table's columns
    found_ok, found_says = summary(parts, supervised=supervised)

    assert found_ok is ok
    assert says in found_says
