"""Loading the agent, really run: a new one must prove itself, and a host is never left without one that runs."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide.facts import Facts
from remuda.hosts.decide.parts.agent import WAIT_S
from remuda.hosts.decide.plan import plan
from remuda.ports.host_shell import Ran
from tests.unit.hosts.a_mac import CORE, a_wanted
from tests.unit.hosts.a_room import Done, Room
from tests.unit.hosts.test_cases import answers_of

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "dev.remuda.agent"

# launchd in little. A program with the word "crash" in it is started over and over, and on a sick host every one is.
# One with "never" does not start; one with "stuck" is said to be started anew, and is not. A property list with
# "refused" in it is not taken. A process is a number that changes when it was started again.
LAUNCHCTL = """
state=$ROOM/launchd
crashes() { [ -e "$ROOM/sick" ] || grep -q crash "$ROOM/program"; }
started() {
  expr "$(cat "$state/count")" + 1 >"$state/count.new"
  mv "$state/count.new" "$state/count"
  if crashes; then echo "boom $(cat "$state/count")" >>"$ROOM/log/agent.log"; fi
}
echo "$@" >>"$ROOM/did"
case $1 in
print)
  if [ ! -e "$state/loaded" ]; then
    echo 'Bad request.' >&2
    echo 'Could not find service "dev.remuda.agent" in domain for system' >&2
    exit 113
  fi
  if crashes; then started; fi
  echo 'system/dev.remuda.agent = {'
  if ! grep -q never "$ROOM/program"; then printf '\\tpid = %s\\n' "$(cat "$state/count")"; fi
  echo '}'
  ;;
bootout) [ -e "$state/loaded" ] && rm "$state/loaded" ;;
bootstrap)
  if grep -q refused "$3"; then
    echo 'Bootstrap failed: 5: Input/output error' >&2
    exit 5
  fi
  touch "$state/loaded"
  started
  ;;
kickstart) grep -q stuck "$ROOM/program" || started ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Host:
    """The agent's files of one host."""

    room: Room

    def file(self, name: str) -> Path:
        return self.room.root / name

    def load(
        self, program: str | None, plist: str = "plist 1", kubeconfig: str | None = None
    ) -> Done:
        """Stage what is new, as the commands before it do, and load it."""
        for name, text in (("program", program), ("kubeconfig", kubeconfig)):
            if text is not None:
                self.file(f"{name}.staged").write_text(text)
        root = self.room.root
        files = [root / name for name in ("program", "plist", "kubeconfig", "mark")]
        args: list[str | Path] = [
            "m1",
            root / "log/agent.log",
            root / "data",
            _arrived(program or self.seen("program")),
        ]
        new = ["new" if text is not None else "keep" for text in (program, kubeconfig)]
        return self.room.run(
            "agent-load", LABEL, *files, *args, *new, "2", "7", stdin=plist.encode()
        )

    def seen(self, name: str) -> str:
        path = self.file(name)
        return path.read_text() if path.exists() else ""

    @property
    def now(self) -> tuple[str, str, str]:
        return self.seen("program"), self.seen("plist"), self.seen("kubeconfig")

    @property
    def proven(self) -> dict[str, str]:
        return dict(line.split(" ", 1) for line in self.seen("mark").splitlines())

    @property
    def did(self) -> list[str]:
        return [line for line in self.seen("did").splitlines() if not line.startswith("print")]

    def forget_what_was_done(self) -> None:
        self.file("did").unlink(missing_ok=True)


def _arrived(text: str) -> str:
    return sha256(f"as it arrived: {text}".encode()).hexdigest()


def _sum(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _mark(program: str, plist: str, kubeconfig: str) -> dict[str, str]:
    return {
        "program": _sum(program),
        "arrived": _arrived(program),
        "plist": _sum(plist),
        "kubeconfig": _sum(kubeconfig),
    }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    room = Room.at(tmp_path / "room")
    (room.root / "launchd").mkdir()
    (room.root / "launchd/count").write_text("100\n")
    room.program("launchctl", LAUNCHCTL)
    return Host(room)


@pytest.fixture
def good(host: Host) -> Host:
    done = host.load("good 1", "plist 1", "credential 1")
    assert (done.code, done.stderr) == (0, "")
    return host


def test_the_first_one_is_loaded_and_proven(good: Host) -> None:
    assert good.now == ("good 1", "plist 1", "credential 1")
    assert good.proven == _mark("good 1", "plist 1", "credential 1")
    assert good.did == [
        f"bootout system/{LABEL}",
        f"enable system/{LABEL}",
        f"bootstrap system {good.file('plist')}",
    ]
    assert good.file("plist").stat().st_mode & 0o777 == 0o644
    assert good.file("data").stat().st_mode & 0o777 == 0o700


def test_a_new_one_takes_over_and_the_last_good_one_is_kept(good: Host) -> None:
    assert good.load("good 2", "plist 2", "credential 2").code == 0
    assert good.now == ("good 2", "plist 2", "credential 2")
    assert good.seen("program.previous") == "good 1"
    assert good.proven == _mark("good 2", "plist 2", "credential 2")
    left = [path.name for path in good.room.root.iterdir()]
    assert not [name for name in left if name.endswith(("staged", "remuda-new"))]


def test_the_same_job_with_another_program_is_only_started_anew(good: Host) -> None:
    good.forget_what_was_done()
    assert good.load("good 2").code == 0
    assert good.did == [f"kickstart -k system/{LABEL}"]


@pytest.mark.parametrize(
    ("program", "plist"),
    [
        pytest.param("crash 2", "plist 1", id="it crashes again and again"),
        pytest.param("crash 2", "plist 2", id="it crashes, and its options are new too"),
        pytest.param("never 2", "plist 2", id="it does not even start"),
        pytest.param("stuck 2", "plist 1", id="the process is still the old one"),
        pytest.param("good 2", "refused 2", id="launchd does not take its job"),
    ],
)
def test_a_bad_one_is_noticed_and_the_one_before_is_back(
    host: Host, program: str, plist: str
) -> None:
    assert host.load("good 1", "plist 1", "credential 1").code == 0
    done = host.load(program, plist, "credential 2")
    assert done.code == 1
    assert "The agent from before is back and runs." in done.stderr
    assert host.now == ("good 1", "plist 1", "credential 1")
    assert host.proven == _mark("good 1", "plist 1", "credential 1")
    assert host.file("launchd/loaded").exists()


def test_what_the_bad_one_logged_is_told_and_nothing_from_before(good: Host) -> None:
    good.file("log/agent.log").write_text("an old line\n")
    done = good.load("crash 2")
    assert "boom" in done.stderr
    assert "an old line" not in done.stderr


def test_why_launchd_does_not_take_it_is_told(good: Host) -> None:
    assert "Bootstrap failed: 5: Input/output error" in good.load("good 2", "refused 2").stderr


def test_what_failed_is_told_in_a_sentence_with_the_end_of_the_log(good: Host) -> None:
    [step] = plan(Facts(answers_of("half-bootstrapped")), a_wanted(), CORE).steps[-1:]
    assert step.explain is not None
    failed = good.load("crash 2")
    told = step.explain(Ran(code=failed.code, stderr=failed.stderr.encode()))
    assert told.startswith(
        "The agent does not stay up for 2 seconds. The agent from before is back and runs."
    )
    assert "It logged last: boom" in told
    quiet = good.load("never 3")
    assert step.explain(Ran(code=1, stderr=quiet.stderr.encode())).endswith(
        "It logged last: nothing"
    )
    assert step.explain(Ran(code=1, stderr=b"cp: no space left")) == ""


def test_a_first_one_that_is_bad_stays_with_launchd_which_goes_on_trying(host: Host) -> None:
    done = host.load("crash 1", "plist 1", "credential 1")
    assert done.code == 1
    assert "There is none from before on this host" in done.stderr
    assert host.proven == {}
    assert host.file("launchd/loaded").exists()


def test_what_was_never_proven_never_becomes_the_one_before(good: Host) -> None:
    # Killed after the new files were in place and before they had stayed up: there is no mark then.
    good.file("program").write_text("crash 2")
    good.file("mark").rename(good.file("mark.previous"))
    good.file("program.previous").write_text("good 1")
    good.file("plist.previous").write_text("plist 1")
    good.file("kubeconfig.previous").write_text("credential 1")
    assert good.load("crash 2").code == 1
    assert good.now == ("good 1", "plist 1", "credential 1")
    assert good.load("good 3").code == 0
    assert good.seen("program.previous") == "good 1"


def test_what_was_proven_once_and_stays_up_no_more_is_not_proven_any_more(good: Host) -> None:
    good.file("sick").touch()
    done = good.load(None)
    assert done.code == 1
    assert "does not stay up either" in done.stderr
    assert good.proven == {}
    assert good.now == ("good 1", "plist 1", "credential 1")
    good.file("sick").unlink()
    assert good.load(None).code == 0
    assert good.proven["program"] == _sum("good 1")


def test_what_an_earlier_run_staged_and_left_is_not_taken(good: Host) -> None:
    good.file("program.staged").write_text("stale")
    good.file("kubeconfig.staged").write_text("stale")
    assert good.load(None, "plist 2").code == 0
    assert good.now == ("good 1", "plist 2", "credential 1")
    assert not good.file("program.staged").exists()
    assert not good.file("kubeconfig.staged").exists()


def test_the_facts_are_what_was_proven(good: Host) -> None:
    files = [good.file(name) for name in ("program", "plist", "kubeconfig", "mark")]
    done = good.room.run("agent-seen", LABEL, *files)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    mark = {f"proven-{key}": value for key, value in good.proven.items()}
    now = {key: good.proven[key] for key in ("program", "plist", "kubeconfig")}
    assert lines == {**now, **mark, "pid": "101"}


def test_on_a_host_without_an_agent_nothing_is_there(host: Host) -> None:
    files = [host.file(name) for name in ("program", "plist", "kubeconfig", "mark")]
    done = host.room.run("agent-seen", LABEL, *files)
    assert done.stdout == "program absent\nplist absent\nkubeconfig absent\npid none\n"


def test_a_program_is_staged_whole_and_as_a_new_file(host: Host) -> None:
    host.file("program.staged").write_text("half of an older one")
    before = host.file("program.staged").stat().st_ino
    with host.file("program.staged").open("rb"):  # held open, so that its number is not given again
        done = host.room.run("agent-stage", host.file("program"), _sum("new"), stdin=b"new")
    assert (done.code, done.stderr) == (0, "")
    assert host.seen("program.staged") == "new"
    assert host.file("program.staged").stat().st_ino != before
    assert host.file("program.staged").stat().st_mode & 0o777 == 0o755


def test_a_program_that_did_not_arrive_whole_is_thrown_away(good: Host) -> None:
    done = good.room.run("agent-stage", good.file("program"), _sum("new"), stdin=b"ne")
    assert done.code == 1
    assert "did not arrive whole" in done.stderr
    assert not good.file("program.staged").exists()
    assert good.seen("program") == "good 1"


def test_a_program_without_a_signature_gets_one_of_our_own(host: Host) -> None:
    host.room.program("codesign", 'echo "$@" >>"$ROOM/did"; [ "$1" != --verify ]')
    assert host.room.run("agent-stage", host.file("program"), _sum("new"), stdin=b"new").code == 0
    staged = host.file("program.staged")
    assert host.did == [f"--verify {staged}", f"--force --sign - {staged}"]


# It never lets go of a job, takes one only at the sixth try, and what it starts does not stay.
SLOW = """
case $1 in
print) date +%N >>"$ROOM/pids"; printf '\\tpid = %s\\n' "$(wc -l <"$ROOM/pids")" ;;
bootstrap)
  echo try >>"$ROOM/tries"
  [ "$(wc -l <"$ROOM/tries")" -ge 6 ] || exit 5
  rm "$ROOM/tries" ;;
esac
"""


def test_the_longest_way_back_is_given_its_time(good: Host) -> None:
    good.room.program("launchctl", SLOW)
    good.room.program("sleep", 'echo "$1" >>"$ROOM/slept"')
    done = good.load("crash", "plist 2")
    assert "does not stay up either" in done.stderr
    slept = sum(map(int, good.seen("slept").splitlines()))
    waits_s = slept - 2 * 7 + 2 * WAIT_S
    assert waits_s > 2 * WAIT_S + 120, "it was the longest"
    [step] = plan(Facts(answers_of("agent-changed-by-hand")), a_wanted(), CORE).steps
    # Each look takes time as well, on a host that is as slow as this one.
    assert step.apply[-1].timeout_s >= waits_s + 150
