from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tart.installed import StandIn

IDLE = "#!/bin/sh\ntouch up\nwhile :; do sleep 600; done\n"
UNTIL_TOLD = """\
#!/bin/sh
mail="$GUEST_SHARES/mail"
echo ready > "$mail/ready"
while [ ! -e "$mail/job.json" ]; do sleep 0.02; done
cp "$mail/job.json" "$mail/seen"
exit 0
"""


async def up(tart: StandIn, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a VM and return when its guest runs."""
    process = tart.start("run", name, "--no-graphics", *arguments)

    async def is_up() -> bool:
        assert process.poll() is None, process.communicate()
        guest = tart.desk.folder / "guests" / name
        return (guest / "up").exists()

    await eventually(is_up)
    return process


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def said(*command: str) -> str:
    return subprocess.run(  # noqa: S603 - fixed words and a path of this test
        command, capture_output=True, text=True, check=False
    ).stdout


async def guest_pid(tart: StandIn, name: str) -> int:
    answer = tart.call("exec", name, "pgrep", "-o", "-f", f"guests/{name}/boot")
    return int(answer.stdout)


async def test_a_vm_that_runs_is_locked_and_listed_as_running(tart: StandIn) -> None:
    tart.make("a", IDLE)
    process = await up(tart, "a")
    assert tart.vm("a").pid() == process.pid, "the lock names the process"
    assert tart.listed()["a"]["State"] == "running"
    assert tart.listed()["a"]["Running"] is True
    for verb, code, text in (
        ("run", 2, 'VM "a" is already running!\n'),
        ("delete", 1, 'VM "a" is running\n'),
    ):
        answer = tart.call(verb, "a")
        assert (answer.returncode, answer.stderr) == (code, text)
    assert tart.call("stop", "a").returncode == 0
    assert end(process) == (0, "", "")
    stopped = tart.call("stop", "a")
    assert (stopped.returncode, stopped.stderr) == (2, 'VM "a" is not running\n')


async def test_the_argv_says_which_vm_runs(tart: StandIn) -> None:
    tart.make("a", IDLE)
    process = await up(tart, "a")
    found = said("pgrep", "-f", f"{tart.program} run a( |$)").split()
    assert found == [str(process.pid)], "one process, as long as it runs"
    tart.call("stop", "a")
    end(process)


async def test_the_guest_sees_its_mailbox_and_halts_with_code_0(
    tart: StandIn, tmp_path: Path
) -> None:
    tart.make("a", UNTIL_TOLD)
    mail = tmp_path / "mail"
    mail.mkdir()
    process = tart.start("run", "a", "--no-graphics", "--dir", f"mail:{mail}:ro")

    async def ready() -> bool:
        return (mail / "ready").exists()

    await eventually(ready)
    (mail / "job.json").write_text("{}")
    assert end(process) == (0, "", "")
    assert (mail / "seen").read_text() == "{}"
    assert tart.listed()["a"]["State"] == "stopped"


async def test_a_crash_has_code_0_too_and_its_line_in_stdout(tart: StandIn) -> None:
    tart.make("a", "#!/bin/sh\nexit 3\n")
    code, out, err = end(tart.start("run", "a", "--no-graphics"))
    assert code == 0
    assert out == "guest has stopped the virtual machine due to error: the guest ended with 3\n"
    assert err == ""


async def test_an_ordered_crash_ends_a_guest_that_runs(tart: StandIn) -> None:
    tart.make("a", IDLE)
    tart.order(Fault(verb="run", kind="crash", text="of this test"))
    code, out, _ = end(tart.start("run", "a"))
    assert (code, out) == (
        0,
        "guest has stopped the virtual machine due to error: of this test\n",
    )


async def test_only_two_macs_run_but_any_number_of_linux_vms(tart: StandIn) -> None:
    running = []
    for name, os_name in (("a", "darwin"), ("l", "linux"), ("b", "darwin"), ("m", "linux")):
        tart.make(name, IDLE, os_name=os_name)
        running.append(await up(tart, name))
    tart.make("c", IDLE)
    code, out, err = end(tart.start("run", "c", "--no-graphics"))
    assert (code, out) == (1, "")
    assert err == "The number of VMs exceeds the system limit (other running VMs: a, b)\n"
    assert tart.boots("c") == []
    for name in ("a", "b", "l", "m"):
        assert tart.call("stop", name).returncode == 0
    assert [end(process)[0] for process in running] == [0] * 4
    again = await up(tart, "c")
    tart.call("stop", "c")
    end(again)


async def test_stop_asks_and_then_kills(tart: StandIn) -> None:
    tart.make("a", IDLE)
    tart.order(Fault(verb="run", kind="deaf"))
    process = await up(tart, "a")
    inside = await guest_pid(tart, "a")
    assert tart.call("stop", "a", "--timeout", "1").returncode == 0
    assert process.wait(10) == -signal.SIGKILL
    process.communicate()

    async def gone() -> bool:
        return not alive(inside)

    await eventually(gone)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
async def test_no_guest_outlives_its_program(tart: StandIn, number: signal.Signals) -> None:
    tart.make("a", "#!/bin/sh\nsleep 601 &\ntouch up\nwait\n")
    process = await up(tart, "a")
    inside = await guest_pid(tart, "a")
    os.killpg(process.pid, number)
    process.communicate(timeout=20)

    async def gone() -> bool:
        return not said("pgrep", "-g", str(inside)).strip()

    await eventually(gone)
    assert tart.listed()["a"]["State"] == "stopped", "the lock went with it"


async def test_exec_passes_output_and_code_through(tart: StandIn) -> None:
    tart.make("a", IDLE)
    process = await up(tart, "a")
    answer = tart.call("exec", "a", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (answer.returncode, answer.stdout, answer.stderr) == (7, "out\n", "err\n")
    tart.call("stop", "a")
    end(process)
    off = tart.call("exec", "a", "true")
    assert (off.returncode, off.stderr) == (2, 'VM "a" is not running\n')


async def test_an_address_comes_with_the_boot_or_late_or_never(tart: StandIn) -> None:
    tart.make("a", IDLE)
    tart.make("b", IDLE)
    tart.order(Fault(verb="run", kind="no_lease", vm="b"))
    first, second = await up(tart, "a"), await up(tart, "b")
    assert tart.call("ip", "a", "--wait", "20").stdout.startswith("192.168.64.")
    missed = tart.call("ip", "b")
    assert (missed.returncode, missed.stderr) == (1, "no IP address found\n")
    for name, process in (("a", first), ("b", second)):
        tart.call("stop", name)
        end(process)


async def test_a_mac_that_runs_already_is_made_new(tart: StandIn) -> None:
    one, two = tart.make("a", IDLE), tart.make("b", IDLE)
    two.save({**two.config(), "macAddress": one.config()["macAddress"]})
    first, second = await up(tart, "a"), await up(tart, "b")
    assert two.config()["macAddress"] != one.config()["macAddress"]
    for name, process in (("a", first), ("b", second)):
        tart.call("stop", name)
        end(process)


async def test_each_boot_is_in_the_journal_with_its_disk(tart: StandIn) -> None:
    tart.make("a", "#!/bin/sh\nexit 0\n")
    for _ in range(2):
        end(tart.start("run", "a"))
    boots = tart.boots("a")
    assert len(boots) == 2
    assert boots[0]["disk"] == boots[1]["disk"], "one disk, booted twice: that is what to look for"


@pytest.mark.parametrize(
    ("flags", "env", "start"),
    [
        pytest.param(["--no-graphics"], {}, "VNC server is running at vnc://:", id="no graphics"),
        pytest.param(["--graphics"], {"CI": "1"}, "VNC server is running at vnc://:", id="CI"),
        pytest.param(["--graphics"], {}, "Opening vnc://:", id="with a window"),
    ],
)
async def test_the_screen_is_announced(
    tart: StandIn, flags: list[str], env: dict[str, str], start: str
) -> None:
    tart.make("a", "#!/bin/sh\nexit 0\n")
    _, out, _ = end(tart.start("run", "a", "--vnc-experimental", *flags, env=env))
    assert out.startswith(start)
    assert "@127.0.0.1:" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["--dir", "x:/nonexistent"], "no such directory", id="a share of nothing"),
        pytest.param(["--dir", "/", "--dir", "/"], "name of its own", id="two without names"),
        pytest.param(["--net-softnet", "--net-host"], "exclusive", id="two networks"),
    ],
)
def test_run_is_refused_for(tart: StandIn, arguments: list[str], text: str) -> None:
    tart.make("a", IDLE)
    answer = tart.call("run", "a", *arguments)
    assert answer.returncode in {1, 64}
    assert text in answer.stderr
    assert tart.boots("a") == []
