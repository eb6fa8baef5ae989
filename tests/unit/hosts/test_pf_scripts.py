"""The scripts that put rules of pf in place and keep them live, before a pfctl that remembers what it was told."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide import pf, pf_conf
from remuda.hosts.scripts import script
from tests.support.eventually import eventually
from tests.support.pf.places import a_place

if TYPE_CHECKING:
    from pathlib import Path

PFCTL = """\
#!/bin/sh
# Knows a file for each anchor, and writes down what it was told.
echo "$*" >>"$PF/told"
anchor=main file='' show='' only='' flush=''
while [ $# -gt 0 ]; do
  case $1 in
  -a) anchor=$(echo "$2" | tr / _); shift ;;
  -f) file=$2; shift ;;
  -nf) only=1 file=$2; shift ;;
  -n) only=1 ;;
  -s) show=$2; shift ;;
  -sr) show=rules ;;
  -sn) show=nat ;;
  -F) flush=$2; shift ;;
  -E) echo "98 pfctl 1 2" >"$PF/held" ;;
  -t | -T | -k) shift ;;
  esac
  shift
done
if [ -n "$file" ]; then
  if grep -q broken "$file"; then echo "$file:1: syntax error" >&2; exit 1; fi
  [ -n "$only" ] || { [ ! -e "$PF/refuses" ] && cp "$file" "$PF/$anchor"; } || exit 1
fi
[ -z "$flush" ] || rm -f "$PF/$anchor"
case $show in
rules) grep -E '^(pass|block|anchor)' "$PF/$anchor" 2>/dev/null ;;
nat) cat "$PF/nat" 2>/dev/null ;;
References) cat "$PF/held" 2>/dev/null ;;
esac
exit 0
"""
MAIN = 'anchor "com.apple/*" all\n'
RULES, OTHER = pf.runners(()), pf.runners([a_place("10.0.0.0/8 tcp 443")])
GUARD = pf.ssh_guard([ip_network("198.51.100.0/24")], None)
GUARD_LIVE = "com.apple_remuda.sshguard"


@dataclass
class Mac:
    """A folder for a root, with a pfctl in it."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir()
        (self.root / "pf").mkdir()
        (self.root / "anchors").mkdir()
        program = self.root / "bin/pfctl"
        program.write_text(PFCTL)
        program.chmod(0o755)
        self.live("main").write_text(MAIN)
        self.conf.write_text("pass all\n")

    @property
    def conf(self) -> Path:
        return self.root / "pf.conf"

    @property
    def guard(self) -> Path:
        return self.root / "anchors/remuda.sshguard"

    def anchor(self, name: str) -> Path:
        return self.root / "anchors" / name

    def live(self, name: str) -> Path:
        return self.root / "pf" / name

    def told(self) -> str:
        file = self.root / "pf/told"
        return file.read_text() if file.exists() else ""

    def run(self, name: str, *words: object, said: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own script
            ["/bin/sh", "-c", script(name), f"remuda-{name}", *map(str, words)],
            input=said,
            env={"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "PF": str(self.root / "pf")},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def keep(self, name: str = pf.RUNNERS) -> subprocess.CompletedProcess[str]:
        return self.run("pf-keep", name, self.root / "anchors", self.conf)

    def arm(self, text: str, seconds: int = 100) -> subprocess.CompletedProcess[str]:
        return self.run(
            "ssh-guard-arm",
            self.guard,
            "com.apple/remuda.sshguard",
            seconds,
            "198.51.100.7",
            said=text,
        )

    def confirm(self) -> subprocess.CompletedProcess[str]:
        return self.run("ssh-guard-confirm", self.guard, "com.apple/remuda.sshguard")


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    return Mac(tmp_path)


def _sum(text: str) -> str:
    return sha256(text.encode()).hexdigest()


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_keeps_its_mode_and_becomes_the_new_one(mac: Mac) -> None:
    mac.conf.chmod(0o640)
    ran = mac.run("pf-put", mac.conf, "", "conf", "", _sum("pass all\n"), said=pf_conf.BLOCK)
    assert (ran.returncode, mac.conf.read_text()) == (0, pf_conf.BLOCK)
    assert mac.conf.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in mac.root.glob("*remuda-new*")] == []
    assert "-nf" in mac.told()


def test_a_file_that_pf_cannot_read_is_never_put_in_place(mac: Mac) -> None:
    ran = mac.run("pf-put", mac.conf, "", "conf", "", "", said="broken\n")
    assert ran.returncode != 0
    assert "syntax error" in ran.stderr
    assert mac.conf.read_text() == "pass all\n"
    assert not mac.conf.with_name("pf.conf.remuda-new").exists()


def test_a_file_that_somebody_changed_meanwhile_is_left_to_them(mac: Mac) -> None:
    ran = mac.run("pf-put", mac.conf, "", "conf", "", _sum("what the plan saw"), said=pf_conf.BLOCK)
    assert ran.returncode == 75
    assert mac.conf.read_text() == "pass all\n"


def test_an_anchors_file_is_new_with_its_folder(mac: Mac) -> None:
    path = mac.root / "new/remuda.runners"
    ran = mac.run("pf-put", path, "0644", "anchor", RULES.live, "", said=RULES.text)
    assert (ran.returncode, path.read_text()) == (0, RULES.text)
    assert f"-n -a {RULES.live} -f" in mac.told()


# --- rules that stay live ------------------------------------------------------------------------------------------


def test_rules_become_live_without_a_load_of_everything(mac: Mac) -> None:
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    ran = mac.keep()
    assert ran.returncode == 0, ran.stderr
    assert mac.live("com.apple_remuda.runners").read_text() == RULES.text
    assert not mac.live(pf.RUNNERS).exists()
    assert f"-f {mac.conf}" not in mac.told()
    assert mac.live("held").exists()


def test_the_second_time_only_the_hosts_addresses_are_looked_at(mac: Mac) -> None:
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    mac.keep()
    mac.live("told").unlink()
    assert mac.keep().returncode == 0
    assert "-f" not in mac.told().split()
    assert "-E" not in mac.told().split()
    assert "-t remuda_host -T replace self" in mac.told()


def test_after_a_boot_both_anchors_get_new_rules(mac: Mac) -> None:
    mac.live("main").write_text(MAIN + 'anchor "remuda.runners" all\n')
    mac.live(pf.RUNNERS).write_text(OTHER.text)
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    assert mac.keep().returncode == 0
    assert mac.live(pf.RUNNERS).read_text() == RULES.text


def test_everything_is_loaded_only_where_there_is_no_rule_at_all(mac: Mac) -> None:
    mac.live("main").unlink()
    mac.conf.write_text(MAIN)
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    assert mac.keep().returncode == 0
    assert f"-f {mac.conf}" in mac.told()

    mac.live("told").unlink()
    mac.live("main").unlink()
    mac.live("nat").write_text('nat-anchor "com.apple.internet-sharing" all\n')
    assert (
        mac.keep().returncode != 0
    )  # what is left of macOS's own is not thrown away; the plan drains first
    assert f"-f {mac.conf}" not in mac.told()


def test_rules_that_pf_does_not_take_are_an_error_and_what_is_live_stays(mac: Mac) -> None:
    mac.live("com.apple_remuda.runners").write_text(OTHER.text)
    mac.live("refuses").touch()
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    assert mac.keep().returncode != 0
    assert mac.live("com.apple_remuda.runners").read_text() == OTHER.text


def test_without_a_file_what_is_live_stays(mac: Mac) -> None:
    mac.live("com.apple_remuda.runners").write_text(RULES.text)
    assert mac.keep().returncode != 0
    assert mac.live("com.apple_remuda.runners").exists()


def test_main_rules_that_do_not_call_apples_anchors_are_told(mac: Mac) -> None:
    mac.live("main").write_text("pass all\n")
    mac.anchor(pf.RUNNERS).write_text(RULES.text)
    ran = mac.keep()
    assert ran.returncode != 0
    assert "do not call com.apple/*" in ran.stderr


# --- the guard of SSH ----------------------------------------------------------------------------------------------


def test_rules_that_are_confirmed_stay(mac: Mac) -> None:
    assert mac.arm(GUARD.text).returncode == 0
    assert mac.live(GUARD_LIVE).read_text() == GUARD.text
    assert not mac.guard.exists()
    assert "-k 198.51.100.7" in mac.told()

    assert mac.confirm().returncode == 0
    assert mac.guard.read_text() == GUARD.text
    assert sorted(path.name for path in mac.guard.parent.iterdir()) == ["remuda.sshguard"]


@pytest.mark.parametrize("before", ["", pf.ssh_guard([], None).text], ids=["none", "others"])
async def test_rules_that_nobody_confirms_are_taken_back_by_the_host(mac: Mac, before: str) -> None:
    if before:
        mac.guard.write_text(before)
    assert mac.arm(GUARD.text, seconds=1).returncode == 0

    async def taken_back() -> bool:
        return not mac.guard.with_name("remuda.sshguard.armed").exists()

    await eventually(taken_back, within_s=120)
    live = mac.live(GUARD_LIVE)
    assert (live.read_text() if live.exists() else "") == before
    late = mac.confirm()
    assert late.returncode != 0
    assert "taken back" in late.stderr
    assert (mac.guard.read_text() if mac.guard.exists() else "") == before


def test_rules_that_pf_cannot_read_are_never_live(mac: Mac) -> None:
    ran = mac.arm("broken\n")
    assert ran.returncode != 0
    assert not mac.live(GUARD_LIVE).exists()
    assert not mac.guard.exists()


def test_rules_that_somebody_replaced_meanwhile_are_not_confirmed(mac: Mac) -> None:
    mac.arm(GUARD.text)
    mac.live(GUARD_LIVE).write_text("")
    assert mac.confirm().returncode != 0
    assert not mac.guard.exists()
    mac.guard.with_name("remuda.sshguard.armed").unlink()  # ends what would take them back


def test_the_job_leaves_rules_alone_that_are_being_tried_until_nobody_does(mac: Mac) -> None:
    mac.guard.write_text(pf.ssh_guard([], None).text)
    mac.arm(GUARD.text)
    assert mac.keep(pf.SSH_GUARD).returncode == 0
    assert mac.live(GUARD_LIVE).read_text() == GUARD.text

    armed = mac.guard.with_name("remuda.sshguard.armed")
    os.utime(armed, (1, 1))
    assert mac.keep(pf.SSH_GUARD).returncode == 0
    assert mac.live(GUARD_LIVE).read_text() == mac.guard.read_text()
    assert not armed.exists()
