"""Pushing an image and making room for one, before a Tart that fails as it is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "images/macos/scripts"
TART = """\
#!/bin/sh
# Fails as the files "push-1", "push-2", … say, and writes down what it was told.
echo "tart $*" >>"$SEEN/told"
case $1 in
push)
  n=$(($(cat "$SEEN/pushes" 2>/dev/null || echo 0) + 1))
  echo "$n" >"$SEEN/pushes"
  [ ! -e "$SEEN/push-$n" ] || { cat "$SEEN/push-$n" >&2; exit 1; }
  echo pushed ;;
list) cat "$SEEN/vms" 2>/dev/null ;;
prune) [ ! -e "$SEEN/after-prune" ] || cp "$SEEN/after-prune" "$SEEN/free" ;;
clone) mkdir -p "$TART_HOME/vms/$3" && echo from-base >"$TART_HOME/vms/$3/nvram.bin" ;;
delete) [ ! -e "$SEEN/keeps-vms" ] ;;
esac
"""
SLEEP = '#!/bin/sh\necho "$1" >>"$SEEN/slept"\n'
DF = """\
#!/bin/sh
echo "Filesystem 1024-blocks Used Available Capacity Mounted"
echo "/dev/disk3s5 1 1 $(cat "$SEEN/free") 1% /"
"""


class Builder:
    """A builder with stand-ins for what it has beside a shell."""

    def __init__(self, root: Path) -> None:
        self.seen, self.bin, self.home = root / "seen", root / "bin", root / "home"
        for folder in (self.seen, self.bin, self.home):
            folder.mkdir()
        for name, text in (("tart", TART), ("sleep", SLEEP), ("df", DF)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.free(500)

    def free(self, gb: int, *, after_prune: int | None = None) -> None:
        (self.seen / "free").write_text(str(gb * 1_000_000))
        if after_prune is not None:
            (self.seen / "after-prune").write_text(str(after_prune * 1_000_000))

    def fails(self, *texts: str) -> None:
        for number, text in enumerate(texts, 1):
            (self.seen / f"push-{number}").write_text(text + "\n")

    def run(self, name: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own script
            [str(SCRIPTS / name), *words],
            env={
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "SEEN": str(self.seen),
                "HOME": str(self.home),
                "TART_HOME": str(self.home),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def push(self, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("push.sh", "remuda-runner", "registry.example/macos:1", **env)

    def told(self) -> list[str]:
        return (self.seen / "told").read_text().splitlines()

    def slept(self) -> list[int]:
        file = self.seen / "slept"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def _pushes(builder: Builder) -> int:
    return sum(line.startswith("tart push") for line in builder.told())


def test_a_push_that_works_is_one_and_the_vm_is_deleted(builder: Builder) -> None:
    ran = builder.push()
    assert ran.returncode == 0
    assert builder.told() == [
        "tart push --concurrency 4 --chunk-size 3 remuda-runner registry.example/macos:1",
        "tart delete remuda-runner",
    ]
    assert builder.slept() == []


@pytest.mark.parametrize(
    "text",
    [
        "DENIED: You have exceeded a secondary rate limit",
        "HTTP 429",
        'unexpected status 403: {"errors":[{"code":"TOOMANYREQUESTS","message":"denied"}]}',
        "too many requests (unauthorized)",
        "503 Slow Down",
        "The network connection was lost.",
        "500 Internal Server Error",
        "layer sha256:4014034290 failed",
    ],
)
def test_what_may_work_later_is_tried_again(builder: Builder, text: str) -> None:
    builder.fails(text, text)
    ran = builder.push()
    assert ran.returncode == 0, ran.stderr
    assert _pushes(builder) == 3


@pytest.mark.parametrize(
    "text",
    [
        "UNAUTHORIZED: authentication required",
        "DENIED: permission_denied",
        "403 Forbidden",
        "HTTP 401",
    ],
)
def test_a_registry_that_does_not_let_us_in_is_not_asked_again(builder: Builder, text: str) -> None:
    builder.fails(text)
    ran = builder.push()
    assert ran.returncode == 77
    assert "TART_REGISTRY_USERNAME" in ran.stderr
    assert _pushes(builder) == 1
    assert builder.told()[-1] == "tart delete remuda-runner"


def test_waits_grow_to_a_bound_with_up_to_half_as_much_more(builder: Builder) -> None:
    builder.fails(*["HTTP 429"] * 7)
    assert builder.push().returncode == 0
    bases = [60, 120, 180, 300, 300, 300, 300]
    assert all(
        base <= slept <= base * 1.5 for base, slept in zip(bases, builder.slept(), strict=True)
    )
    assert builder.slept() != bases


def test_after_the_last_attempt_it_says_that_later_may_do(builder: Builder) -> None:
    builder.fails(*["HTTP 429"] * 3)
    ran = builder.push(PUSH_ATTEMPTS="3")
    assert ran.returncode == 75
    assert "What was pushed stays" in ran.stderr
    assert _pushes(builder) == 3
    assert builder.told()[-1] == "tart delete remuda-runner"


def test_a_vm_that_cannot_be_deleted_is_told_and_changes_no_code(builder: Builder) -> None:
    (builder.seen / "keeps-vms").touch()
    ran = builder.push()
    assert ran.returncode == 0
    assert "could not be deleted" in ran.stderr


def test_called_wrongly_it_deletes_nothing(builder: Builder) -> None:
    assert builder.run("push.sh", "remuda-runner").returncode == 64
    assert not (builder.seen / "told").exists()


def test_room_is_made_of_vms_first_and_of_images_only_as_far_as_needed(builder: Builder) -> None:
    (builder.seen / "vms").write_text("remuda-base\nan odd one\n")
    assert builder.run("reclaim-disk.sh", "300").returncode == 0
    assert builder.told() == [
        "tart list --source local --quiet",
        "tart stop remuda-base --timeout 30",
        "tart delete remuda-base",
        "tart stop an odd one --timeout 30",
        "tart delete an odd one",
    ]


def test_images_go_the_unused_ones_first(builder: Builder) -> None:
    builder.free(100, after_prune=400)
    assert builder.run("reclaim-disk.sh", "300").returncode == 0
    assert [line for line in builder.told() if "prune" in line] == [
        "tart prune --entries caches --older-than 1"
    ]


def test_too_little_room_is_said_before_hours_of_building(builder: Builder) -> None:
    builder.free(100)
    ran = builder.run("reclaim-disk.sh", "300")
    assert ran.returncode == 1
    assert "Only 100 GB are free" in ran.stderr
    assert "tart prune --entries caches --older-than 0" in builder.told()


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_nvram_comes_back_and_one_that_is_there_stays(
    builder: Builder, *, kept: bool
) -> None:
    folder = builder.home / "vms/remuda-runner"
    folder.mkdir(parents=True)
    if kept:
        (folder / "nvram.bin").write_text("its own\n")
    assert (
        builder.run("restore-nvram.sh", "remuda-runner", "registry.example/base:1").returncode == 0
    )
    assert (folder / "nvram.bin").read_text() == ("its own\n" if kept else "from-base\n")
