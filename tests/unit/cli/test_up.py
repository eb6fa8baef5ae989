"""``remuda up``, ``down`` and ``status``: what is chosen, what is kept, what is said where nothing runs."""

from __future__ import annotations

import json
import os
import shlex
import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from remuda.cli.down import down
from remuda.cli.finding import Addresses
from remuda.cli.status import status
from remuda.cli.tree.folder import AlreadyUp, Folder, Kept, held, prepare
from remuda.cli.tree.parts import CONTROL_PLANE, SERVER, environment
from remuda.cli.tree.ports import PortTaken
from remuda.cli.tree.state import TreeState, write_state
from remuda.cli.up import Told, make_plan, report, up
from remuda.model.errors import BadInput
from remuda.sim.clock import EPOCH

if TYPE_CHECKING:
    from pathlib import Path


def told(**more: object) -> Told:
    nothing: dict[str, object] = {
        "driver": None,
        "image": "",
        "vms": None,
        "pool": None,
        "qemu_accel": None,
        "ports": {},
    }
    return Told(**{**nothing, **more})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "fleet")
    prepare(made)
    return made


def test_what_was_chosen_is_kept_for_the_next_start(folder: Folder) -> None:
    first = make_plan(folder, told(driver="process", vms=3, pool="linux"), None)
    kept = folder.kept()
    assert kept == first.layout.kept
    assert kept is not None

    second = make_plan(folder, told(), kept)

    assert second.layout.kept == kept
    assert (kept.driver, kept.vms, kept.pool) == ("process", 3, "linux")
    assert (second.pool.name, second.pool.replicas, second.pool.image) == ("linux", 3, "process")
    assert not second.isolated


def test_what_is_said_comes_before_what_was_kept(folder: Folder) -> None:
    first = make_plan(folder, told(driver="process"), None).layout.kept

    second = make_plan(folder, told(vms=7, ports={SERVER: 0}), first).layout.kept

    assert second.vms == 7
    assert second.ports[SERVER] != first.ports[SERVER]
    assert second.ports[CONTROL_PLANE] == first.ports[CONTROL_PLANE]
    assert second.node == first.node


def test_another_driver_does_not_get_the_image_of_the_last_one(folder: Folder) -> None:
    kept = Kept(node="n", driver="process", image="mine", vms=2, pool="default")

    with pytest.raises(BadInput, match="--image"):
        make_plan(folder, told(driver="tart"), kept)


def test_an_image_for_processes_is_a_folder_at_each_start(folder: Folder) -> None:
    with pytest.raises(BadInput, match="The image mine cannot be used"):
        make_plan(folder, told(driver="process", image="mine"), None)
    assert folder.kept() is None, "a start that was refused chose nothing"
    (folder.images / "mine").mkdir()

    first = make_plan(folder, told(driver="process", image="mine"), None)
    assert first.pool.image == "mine"
    with pytest.raises(BadInput, match="The image mac:1 cannot be used"):
        make_plan(folder, told(image="mac:1"), first.layout.kept)
    (folder.images / "mine").rmdir()
    assert make_plan(folder, told(), first.layout.kept).pool.image == "mine"


def test_runners_without_images_need_no_room_for_them_unless_somebody_says_so() -> None:
    room = "REMUDA_DISK_RESERVE"

    assert environment({}, "process")[room] == "256Mi"
    assert environment({room: "5Gi"}, "process")[room] == "5Gi"
    assert environment({}, "qemu") == {}


@pytest.mark.parametrize("name", ["Mac", "a_b", "a b", "x" * 41, "ü"])
def test_a_name_that_no_pool_can_have_is_refused_before_anything_starts(
    tmp_path: Path, name: str
) -> None:
    answer = CliRunner().invoke(up, ["--data", str(tmp_path / "new"), "--pool", name])

    assert answer.exit_code == 2
    assert "The pool cannot be called" in answer.output


def test_what_it_says_to_run_next_can_be_copied_whatever_the_folder_is_called(
    tmp_path: Path,
) -> None:
    odd = Folder(tmp_path / "my fleet")
    prepare(odd)
    odd.home.write_addresses(Addresses(server="http://127.0.0.1:8080"))
    state = TreeState(
        pid=1,
        started_at=EPOCH,
        driver="process",
        why_driver="as you said",
        isolated=False,
        pool="default",
        vms=2,
        parts={},
    )
    write_state(odd, state)

    (stop,) = [line for line in report(odd).splitlines() if line.startswith("Stop:")]

    assert shlex.split(stop)[1:] == ["remuda", "down", "--data", str(odd.root)]


def test_down_where_nothing_runs_is_done(tmp_path: Path) -> None:
    for folder in (tmp_path / "never", tmp_path):
        answer = CliRunner().invoke(down, ["--data", str(folder)])
        assert answer.exit_code == 0
        assert "Nothing runs in" in answer.output
    assert list(tmp_path.iterdir()) == [], "it makes nothing"


def test_down_says_what_is_broken_once_all_is_down(folder: Folder) -> None:
    folder.kept_file.write_text("{")

    answer = CliRunner().invoke(down, ["--data", str(folder.root)])

    assert "Nothing runs in" in answer.output
    assert isinstance(answer.exception, BadInput)


def test_status_where_nothing_runs_is_not_well(tmp_path: Path) -> None:
    answer = CliRunner().invoke(status, ["--data", str(tmp_path)])
    assert answer.exit_code == 1
    assert "Nothing runs" in answer.output

    answer = CliRunner().invoke(status, ["--data", str(tmp_path), "-o", "json"])
    assert answer.exit_code == 1
    assert json.loads(answer.output)["parts"] == []


def test_status_names_each_part_of_a_tree_that_is_just_beginning(folder: Folder) -> None:
    make_plan(folder, told(driver="process"), None)

    with held(folder):
        answer = CliRunner().invoke(status, ["--data", str(folder.root)])

    assert answer.exit_code == 1
    assert "Not all is well: control-plane, server, controller, agent" in answer.output
    assert "agent: it does not run" in answer.output


# --- what is in the way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["in the foreground", "detached"])
def test_a_second_one_is_told_who_the_first_is(folder: Folder, detach: list[str]) -> None:
    with held(folder):
        answer = CliRunner().invoke(up, ["--data", str(folder.root), *detach])

    assert isinstance(answer.exception, AlreadyUp)
    assert f"process {os.getpid()} uses" in answer.exception.why
    assert "remuda down" in answer.exception.fix


def test_a_port_that_another_has_is_named_before_anything_starts(folder: Folder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(
            up, ["--data", str(folder.root), "--driver", "process", "--kube-port", str(port)]
        )

    assert isinstance(answer.exception, PortTaken)
    assert f"127.0.0.1:{port}" in answer.exception.what
    assert "--kube-port" in answer.exception.fix
    assert list((folder.root / "parts").iterdir()) == []


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for command in (up, down, status):
        answer = CliRunner().invoke(command, ["--data", str(tmp_path / "file")])
        assert answer.exit_code == 2
        assert "is a file" in answer.output


def test_certificates_that_are_half_there_are_named_before_anything_starts(folder: Folder) -> None:
    folder.pki.mkdir(parents=True)
    for name in ("ca.crt", "ca.key"):
        (folder.pki / name).write_text("-----BEGIN")

    answer = CliRunner().invoke(up, ["--data", str(folder.root), "--driver", "process"])

    assert isinstance(answer.exception, BadInput)
    assert "cannot be read" in answer.exception.what
    assert "pki" in answer.exception.fix
    assert list((folder.root / "parts").iterdir()) == []
