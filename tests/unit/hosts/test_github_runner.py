"""GitHub's runner on a builder, really registered by its scripts with stand-ins for GitHub's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.hosts.a_room import Room

if TYPE_CHECKING:
    from pathlib import Path

ARGS = ("https://github.com/acme", "mini-7", "image-builder,tart", "2.330.0")
TOKEN = "canary-token"  # noqa: S105 - nobody's

CONFIG = """
{ echo "argv: $*"; echo "token: $ACTIONS_RUNNER_INPUT_TOKEN"; } >>"$ROOM/did"
[ -n "$ACTIONS_RUNNER_INPUT_TOKEN" ] || exit 1
echo '{"agentName": "mini-7", "gitHubUrl": "https://github.com/acme"}' >.runner
echo secret >.credentials
"""
SERVICE = """
echo "svc $1" >>"$ROOM/did"
case $1 in
install) touch "$ROOM/actions.runner.acme.mini-7.plist"; echo "$ROOM/actions.runner.acme.mini-7.plist" >.service ;;
uninstall) rm -f "$(cat .service)" .service ;;
esac
"""
LAUNCHCTL = """
echo "launchctl $*" >>"$ROOM/did"
case $1 in
print) [ -e "$ROOM/loaded" ] ;;
bootstrap) touch "$ROOM/loaded" ;;
bootout) rm -f "$ROOM/loaded" ;;
esac
"""


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Room.at(tmp_path / "room")
    room.program("id", "echo 501")
    room.program("launchctl", LAUNCHCTL)
    room.program("curl", 'echo "curl $*" >>"$ROOM/did"; exit 22')
    (room.root / "runner/bin").mkdir(parents=True)
    for name, text in (
        ("config.sh", CONFIG),
        ("svc.sh", SERVICE),
        ("bin/Runner.Listener", "echo 2.330.0"),
    ):
        path = room.root / "runner" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return room


def _did(room: Room) -> list[str]:
    return (room.root / "did").read_text().splitlines()


def _seen(room: Room) -> list[str]:
    return room.run("runner-seen", room.root / "runner").stdout.splitlines()


def test_it_is_registered_with_a_token_that_is_in_no_argument(room: Room) -> None:
    done = room.run("runner-install", room.root / "runner", *ARGS, stdin=f"{TOKEN}\n".encode())
    assert (done.code, done.stderr) == (0, "")
    did = _did(room)
    assert f"token: {TOKEN}" in did
    assert [line for line in did if TOKEN in line] == [f"token: {TOKEN}"]
    assert TOKEN not in done.stdout
    assert _seen(room)[:3] == ["configured yes", "service actions.runner.acme.mini-7", "loaded yes"]
    assert _seen(room)[3] == f"labels {ARGS[2]}"
    assert "launchctl kickstart gui/501/actions.runner.acme.mini-7" in _did(room)


def test_an_earlier_registration_goes_when_there_is_a_new_one(room: Room) -> None:
    install = (room.root / "runner", *ARGS)
    assert room.run("runner-install", *install, stdin=b"one\n").code == 0
    assert room.run("runner-install", *install, stdin=b"two\n").code == 0
    did = _did(room)
    out = "launchctl bootout gui/501/actions.runner.acme.mini-7"
    assert did.index("token: two") < did.index(out) < len(did) - 1
    assert _seen(room)[2] == "loaded yes"


BEFORE = ["configured yes", "service actions.runner.acme.mini-7", "loaded yes"]
ENDS = {
    "GitHub takes no such token": "exit 1",
    "killed as it asks": 'kill -KILL "$PPID"; exit 1',
    "killed when half of it is there": 'echo half >.runner; kill -KILL "$PPID"',
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS.keys())
def test_a_token_that_is_not_good_takes_no_registration_away(room: Room, ends: str) -> None:
    install = (room.root / "runner", *ARGS)
    assert room.run("runner-install", *install, stdin=b"one\n").code == 0
    config = room.root / "runner/config.sh"
    right = config.read_text()
    config.write_text(f"#!/bin/sh\n[ ! -e .runner ] || exit 9\n{ends}\n")
    assert room.run("runner-install", *install, stdin=b"two\n").code != 0
    assert "launchctl bootout gui/501/actions.runner.acme.mini-7" not in _did(room)
    assert _seen(room)[2] == "loaded yes", "what may be building goes on"
    if "KILL" not in ends:
        assert _seen(room)[:3] == BEFORE
    assert room.run("runner-install", *install, stdin=b"three\n").code != 0
    config.write_text(right)
    assert room.run("runner-install", *install, stdin=b"four\n").code == 0
    assert _seen(room)[:3] == BEFORE


def test_a_registration_that_is_merely_not_loaded_is_loaded_without_a_token(room: Room) -> None:
    assert room.run("runner-install", room.root / "runner", *ARGS, stdin=b"one\n").code == 0
    (room.root / "loaded").unlink()
    assert _seen(room)[2] == "loaded no"
    assert room.run("runner-load", room.root / "runner").code == 0
    assert _seen(room)[:3] == BEFORE
    assert [line for line in _did(room) if line.startswith("token")] == ["token: one"]


@pytest.mark.parametrize("stdin", [b"", b"\n"])
def test_without_a_token_nothing_is_touched(room: Room, stdin: bytes) -> None:
    (room.root / "runner/.runner").write_text("as it was")
    done = room.run("runner-install", room.root / "runner", *ARGS, stdin=stdin)
    assert done.code == 1
    assert (room.root / "runner/.runner").read_text() == "as it was"


def test_another_version_is_fetched_and_a_failed_download_leaves_the_registration(
    room: Room,
) -> None:
    install = (room.root / "runner", *ARGS)
    assert room.run("runner-install", *install, stdin=b"one\n").code == 0
    newer = (room.root / "runner", *ARGS[:-1], "2.331.0")
    assert room.run("runner-install", *newer, stdin=b"two\n").code != 0
    fetched = [line for line in _did(room) if line.startswith("curl")]
    assert len(fetched) == 1
    assert fetched[0].endswith("/v2.331.0/actions-runner-osx-arm64-2.331.0.tar.gz")
    assert _seen(room)[:3] == ["configured yes", "service actions.runner.acme.mini-7", "loaded yes"]


def test_it_is_taken_off_a_host_that_builds_no_more(room: Room) -> None:
    assert room.run("runner-install", room.root / "runner", *ARGS, stdin=b"one\n").code == 0
    for _ in range(2):  # killed and made again
        assert room.run("runner-remove", room.root / "runner").code == 0
    assert _seen(room) == ["configured no", "service none", "loaded no"]


def test_on_a_host_without_it_there_is_none(room: Room) -> None:
    done = room.run("runner-seen", room.root / "absent")
    assert done.stdout.splitlines() == ["configured no", "service none", "loaded no"]
