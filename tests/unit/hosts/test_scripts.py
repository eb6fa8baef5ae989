"""The scripts that run on hosts, really run: whole or not at all, and never through somebody else's link."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from remuda.hosts.scripts import script
from tests.unit.hosts.a_room import Room

FILES = Path(__file__).resolve().parents[3] / "src/remuda/hosts/files"
SCRIPTS = sorted(FILES.glob("*.sh"))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room.at(tmp_path / "room")


def _sum(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_the_scripts_are_found_and_every_one_is_text_that_a_part_can_get() -> None:
    assert len(SCRIPTS) > 20
    for path in SCRIPTS:
        assert script(path.stem) == path.read_text()


def test_every_script_passes_shellcheck() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    assert shellcheck.exists(), "there is no shellcheck: run `uv sync`"
    checked = subprocess.run(  # noqa: S603 - our own linter
        [shellcheck, "--shell=sh", *SCRIPTS], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_one_that_any_shell_reads(path: Path) -> None:
    read = subprocess.run(["/bin/sh", "-n", path], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert read.returncode == 0, read.stderr
    assert re.search(r"^set -e?u$", path.read_text(), re.MULTILINE), (
        "a name with a typo would be empty"
    )
    assert path.read_text().startswith("#"), "it does not say what it is for"


def test_a_file_is_put_in_place_with_its_mode_whatever_bytes_it_has(room: Room) -> None:
    path, content = room.root / "etc/deep/file", b"\0'\"$(x)\n\xff" * 9
    done = room.run("put-file", path, "0600", "0:0", _sum(content), stdin=content)
    assert (done.code, done.stderr) == (0, "")
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_file_that_did_not_arrive_whole_changes_nothing(room: Room) -> None:
    path = room.root / "file"
    path.write_bytes(b"old")
    done = room.run("put-file", path, "0600", "0:0", _sum(b"new and whole"), stdin=b"new and")
    assert done.code == 1
    assert "did not arrive whole" in done.stderr
    assert path.read_bytes() == b"old"
    assert not list(room.root.glob("file.*"))


@pytest.mark.parametrize("valid", [True, False])
def test_sudoers_is_judged_before_it_counts(*, room: Room, valid: bool) -> None:
    judge = 'cat >"$ROOM/read"; cp "$2" "$ROOM/judged"'
    room.program("visudo", judge if valid else "echo bad >&2; exit 1")
    path, line = room.root / "etc/sudoers.d/m1-nopasswd", "m1 ALL=(ALL) NOPASSWD: ALL"
    done = room.run("sudoers", path, line, stdin=b"must not be read\n")
    assert path.exists() is valid
    if valid:
        assert (room.root / "judged").read_text() == path.read_text() == f"{line}\n"
        assert path.stat().st_mode & 0o777 == 0o440
        assert (room.root / "read").read_text() == ""
    else:
        assert done.code == 1
        assert "nothing was changed: bad" in done.stderr
    assert [each.name for each in path.parent.iterdir()] == ([path.name] if valid else [])


AQUA = """[ "$1" = print ] && printf '\\tsession = Aqua\\n'"""


def test_the_login_window_is_started_anew_by_launchd_and_the_file_is_roots_alone(
    room: Room,
) -> None:
    room.program("defaults", 'echo "$@" >>"$ROOM/did"')
    room.program("id", "echo 501")
    room.program("launchctl", f'{AQUA} || echo "$@" >>"$ROOM/did"')
    path = room.root / "kcpassword"
    done = room.run("auto-login", "m1", path, stdin=b"\x0f\0\xff")
    assert (done.code, done.stderr) == (0, "")
    assert path.read_bytes() == b"\x0f\0\xff"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (room.root / "did").read_text().splitlines() == [
        "write /Library/Preferences/com.apple.loginwindow autoLoginUser m1",
        "kickstart -k system/com.apple.loginwindow",
    ]
    assert not (room.root / "kcpassword.remuda-untried").exists(), "macOS took it"


OLD_SESSION = "printf '\\tcreator = loginwindow[7]\\n'"
CUT: dict[str, str] = {
    "killed before the login window was told": '[ "$1" = kickstart ] && kill -KILL "$PPID"; exit 1',
    "the old session never goes": f'[ "$1" = print ] && {{ {OLD_SESSION}; {AQUA}; }}; exit 0',
}


@pytest.mark.parametrize("launchctl", CUT.values(), ids=CUT.keys())
def test_a_password_that_macos_has_not_tried_is_known_as_such(room: Room, launchctl: str) -> None:
    room.program("defaults", "echo m1")
    room.program("id", "echo 501")
    room.program("launchctl", launchctl)
    path = room.root / "kcpassword"
    room.run("auto-login", "m1", path, stdin=b"bytes")
    assert path.with_name("kcpassword.remuda-untried").exists()
    room.program("launchctl", AQUA)
    assert room.run("auto-login-seen", "m1", path).stdout.startswith("session untried\n")


def test_a_password_that_macos_has_sealed_was_tried(room: Room) -> None:
    room.program("defaults", "echo m1")
    room.program("id", "echo 501")
    room.program("launchctl", '[ "$1" = kickstart ] && echo sealed >"$ROOM/kcpassword"; exit 0')
    path = room.root / "kcpassword"
    assert room.run("auto-login", "m1", path, stdin=b"bytes").code == 0
    assert room.run("auto-login-seen", "m1", path).stdout == "session none\nuser m1\nsealed\n"


@pytest.mark.parametrize(
    ("printed", "first"),
    [
        pytest.param("\\tsession = Aqua\\n", "session Aqua", id="logged in"),
        pytest.param("\\tsession = Background\\n", "session none", id="another session"),
        pytest.param("Could not find domain for user gui: 501\\n", "session none", id="none"),
    ],
)
def test_the_session_is_told_before_the_file(room: Room, printed: str, first: str) -> None:
    room.program("id", "echo 501")
    room.program("launchctl", f"printf '{printed}'")
    room.program("defaults", "echo m1")
    (room.root / "kcpassword").write_bytes(b"bytes")
    done = room.run("auto-login-seen", "m1", room.root / "kcpassword")
    assert done.stdout == f"{first}\nuser m1\nbytes"
    room.program("defaults", "echo 'does not exist' >&2; exit 1")
    assert room.run("auto-login-seen", "m1", room.root / "absent").stdout == f"{first}\nuser \n"


def _tart(version: str, *, code: int = 0) -> bytes:
    packed = io.BytesIO()
    text = f'#!/bin/sh\n[ "$1" != --version ] || echo {version}\n[ $# -lt 2 ] || echo "$2"\nexit {code}\n'
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("tart.app/Contents/MacOS/tart")
        entry.size, entry.mode = len(text), 0o755
        archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def _install(room: Room, version: str, archive: bytes, total: str | None = None) -> tuple[int, str]:
    bundle, program = room.root / "lib/tart.app", room.root / "bin/tart"
    done = room.run("tart", version, total or _sum(archive), bundle, program, stdin=archive)
    return done.code, done.stderr


def _tart_says(room: Room, *args: str) -> str:
    words = [str(room.root / "bin/tart"), *args]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return ran.stdout


def test_tart_is_installed_replaced_and_run_with_its_arguments_as_they_are(room: Room) -> None:
    assert _install(room, "2.31.0", _tart("2.31.0")) == (0, "")
    assert _install(room, "2.32.1", _tart("2.32.1")) == (0, "")
    assert _tart_says(room, "--version") == "2.32.1\n"
    assert _tart_says(room, "--x", "a  $b '\"") == "a  $b '\"\n"
    assert [each.name for each in (room.root / "lib").iterdir()] == ["tart.app"]


@pytest.mark.parametrize(
    ("archive", "total", "says"),
    [
        pytest.param(_tart("2.32.1"), "0" * 64, "did not arrive whole", id="damaged on its way"),
        pytest.param(b"garbage", None, "cannot be unpacked", id="no archive"),
        pytest.param(_tart("9.9.9"), None, "holds Tart 9.9.9", id="another version"),
        pytest.param(_tart("2.32.1", code=9), None, "does not run", id="it does not run"),
    ],
)
def test_a_tart_that_is_not_the_one_changes_nothing(
    room: Room, archive: bytes, total: str | None, says: str
) -> None:
    _install(room, "2.31.0", _tart("2.31.0"))
    code, stderr = _install(room, "2.32.1", archive, total)
    assert code == 1
    assert says in stderr
    assert _tart_says(room, "--version") == "2.31.0\n"
    assert [each.name for each in (room.root / "lib").iterdir()] == ["tart.app"]


def test_a_tart_that_was_killed_between_its_two_renames_is_made_again(room: Room) -> None:
    _install(room, "2.31.0", _tart("2.31.0"))
    bundle = room.root / "lib/tart.app"
    bundle.rename(bundle.with_name("tart.app.previous"))
    assert _install(room, "2.32.1", _tart("2.32.1")) == (0, "")
    assert _tart_says(room, "--version") == "2.32.1\n"
    assert [each.name for each in (room.root / "lib").iterdir()] == ["tart.app"]


def test_a_log_is_emptied_under_its_writer_who_goes_on_at_its_beginning(room: Room) -> None:
    log = room.root / "logs/agent.log"
    log.parent.mkdir()
    with log.open("ab", buffering=0) as writer:  # as launchd opens it
        writer.write(b"old\n" * 100 + b"new\n" * 25)
        assert room.run("log-bound", log.parent, "200").code == 0
        assert log.stat().st_size == 0
        writer.write(b"next\n")
    assert log.read_bytes() == b"next\n"
    assert (log.parent / "agent.log.1").read_bytes() == b"new\n" * 25
    assert room.run("log-bound", log.parent, "200").code == 0
    assert log.read_bytes() == b"next\n", "what is small is left alone"


def test_a_log_that_is_a_link_is_not_followed(room: Room) -> None:
    precious = room.root / "precious"
    precious.write_bytes(b"x" * 500)
    (room.root / "logs").mkdir()
    (room.root / "logs/a.log").symlink_to(precious)
    assert room.run("log-bound", room.root / "logs", "100").code == 0
    assert precious.stat().st_size == 500


def test_no_logs_yet_is_nothing_to_do(room: Room) -> None:
    done = room.run("log-bound", room.root / "absent", "100")
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("answers", "loads"),
    [
        pytest.param("", [], id="it answers"),
        pytest.param("x", [], id="it answers at the second try"),
        pytest.param(
            "xx",
            [
                "bootout system/com.openssh.sshd",
                "bootstrap system /System/Library/LaunchDaemons/ssh.plist",
            ],
            id="it is silent",
        ),
    ],
)
def test_ssh_is_loaded_anew_only_when_it_is_silent(
    room: Room, answers: str, loads: list[str]
) -> None:
    (room.root / "silences").write_text("\n".join(answers))
    room.program(
        "nc",
        'if [ -s "$ROOM/silences" ]; then sed -i 1d "$ROOM/silences"; exit 1; fi',
    )
    room.program("launchctl", 'echo "$@" >>"$ROOM/did"')
    assert room.run("ssh-reachability").code == 0
    did = room.root / "did"
    assert (did.read_text().splitlines() if did.exists() else []) == loads


def test_only_a_whole_xcode_is_asked_anything(room: Room) -> None:
    apps = room.root / "Applications"
    tool = apps / "Xcode-16.2.app/Contents/Developer/usr/bin/xcodebuild"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    room.program("xcode-select", "echo /Library/Developer/CommandLineTools")
    room.program("xcodebuild", 'touch "$ROOM/dialogue"')
    listed = f"app {apps}/Xcode-16.2.app\n"
    done = room.run("xcode-seen", apps)
    assert done.stdout == f"selected /Library/Developer/CommandLineTools\n{listed}ready no\n"
    room.program("xcode-select", f"echo {apps}/Xcode-16.2.app/Contents/Developer")
    done = room.run("xcode-seen", apps)
    assert done.stdout == f"selected {apps}/Xcode-16.2.app/Contents/Developer\n{listed}ready yes\n"
    assert not (room.root / "dialogue").exists()


def test_an_agent_is_taken_out_with_the_files_it_needs_and_a_second_time_too(room: Room) -> None:
    room.program("launchctl", 'echo "$@" >>"$ROOM/said"; [ "$1" != print ]')
    plist, credential, other = (room.root / name for name in ("job.plist", "credential", "other"))
    for path in (plist, credential, other):
        path.write_text("x")
    for _ in range(2):
        done = room.run("agent-remove", "dev.remuda.agent", plist, credential)
        assert (done.code, done.stderr) == (0, "")
    assert (plist.exists(), credential.exists(), other.exists()) == (False, False, True)
    assert "bootout system/dev.remuda.agent" in (room.root / "said").read_text()


def test_an_agent_that_launchd_keeps_keeps_its_files(room: Room) -> None:
    room.program("launchctl", "exit 0")
    plist = room.root / "job.plist"
    plist.write_text("x")
    done = room.run("agent-remove", "dev.remuda.agent", plist)
    assert done.code == 1
    assert "does not let go" in done.stderr
    assert plist.exists()
