"""The same program on a real machine: a kernel that boots, a share that is mounted, a power switch."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tart.installed import StandIn

BOOT_S = 120.0
"""A machine without acceleration, beside others. A boot that is there ends the wait."""
JOB = """\
#!/bin/sh
mail="$GUEST_SHARES/mail"
uname -s > "$mail/ready"
touch "$GUEST_SHARES/fixed/x" 2> "$mail/refused"
while [ ! -e "$mail/job.json" ]; do sleep 0.1; done
cp "$mail/job.json" "$mail/seen"
"""
IDLE = "#!/bin/sh\ntouch $GUEST_SHARES/mail/ready\nwhile :; do sleep 600; done\n"


def folder(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.mkdir()
    return path


async def ready(process: subprocess.Popen[str], mail: Path) -> None:
    async def is_ready() -> bool:
        assert process.poll() is None, process.communicate()
        return (mail / "ready").exists()

    await eventually(is_ready, within_s=BOOT_S)


def machines_on(disk: Path) -> list[str]:
    found = subprocess.run(  # noqa: S603 - fixed words and a path of this test
        ["pgrep", "-f", f"qemu-system.*{disk}"],  # noqa: S607 - from PATH
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.split()


async def test_a_machine_boots_does_its_job_and_powers_off(
    machines: StandIn, tmp_path: Path
) -> None:
    machines.make("golden", JOB, os_name="linux")
    assert machines.call("clone", "golden", "a").returncode == 0
    mail, fixed = folder(tmp_path, "mail"), folder(tmp_path, "fixed")
    shares = ["--dir", f"mail:{mail}", "--dir", f"fixed:{fixed}:ro"]
    process = machines.start("run", "a", "--no-graphics", *shares)
    await ready(process, mail)
    assert machines.listed()["a"]["State"] == "running"
    unreachable = machines.call("exec", "a", "true")
    assert (unreachable.returncode, "Guest Agent" in unreachable.stderr) == (1, True)
    (mail / "job.json").write_text("{}")
    out, err = process.communicate(timeout=BOOT_S)
    assert (process.returncode, out, err) == (0, "", "")
    assert (mail / "seen").read_text() == "{}"
    assert "Read-only" in (mail / "refused").read_text()
    assert list(fixed.iterdir()) == []
    assert machines.listed()["a"]["State"] == "stopped"


def test_a_machine_that_panics_has_code_0_and_a_line(machines: StandIn) -> None:
    machines.make("a", "#!/bin/sh\nexit 3\n", os_name="linux")
    process = machines.start("run", "a", "--no-graphics")
    out, _ = process.communicate(timeout=BOOT_S)
    assert process.returncode == 0
    assert out.startswith("guest has stopped the virtual machine due to error: ")


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_no_machine_is_left_after(machines: StandIn, tmp_path: Path, how: str) -> None:
    vm = machines.make("a", IDLE, os_name="linux")
    mail = folder(tmp_path, "mail")
    process = machines.start("run", "a", "--no-graphics", "--dir", f"mail:{mail}")
    await ready(process, mail)
    assert len(machines_on(vm.disk)) == 1
    if how == "stop":
        assert machines.call("stop", "a").returncode == 0
        assert process.wait(30) == 0
    else:
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    async def left() -> list[str]:
        return machines_on(vm.disk)

    await eventually(left, lambda found: not found)
    assert machines.listed()["a"]["State"] == "stopped"
