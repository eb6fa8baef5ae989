"""What the parts with rules of pf share: how they look at pf, put files in place and keep rules live."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import ndiff
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import Job, unreadable
from remuda.hosts.decide.pf import Anchor, labels, session_source
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Probe, Step
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.pf import Address
    from remuda.ports.host_shell import Ran

HELPER: Final = "/usr/local/bin/remuda-pf"
LOGS: Final = "/var/log/remuda"
LOG: Final = f"{LOGS}/pf.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class PfScripts:
    """The texts of the scripts that run on the host."""

    put: str
    keep: str
    daemon: str


def text_of(ran: Ran) -> str:
    """Return what was said, so that any byte of it comes back as it was."""
    return ran.stdout.decode(errors="surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes of what ``text_of`` read."""
    return text.encode(errors="surrogateescape")


def file_fact(name: str, path: str) -> Fact[str | None]:
    """Return the question for a file's content. None: there is no such file."""

    def parsed(ran: Ran) -> str | None:
        if ran.code == 0 and not ran.cut:
            return text_of(ran)
        if b"No such file" in ran.stderr:
            return None
        raise unreadable(path, said(ran))

    return Fact(name=name, command=Command(words=("cat", path), root=True), parse=parsed)


def rules_fact(name: str, anchor: str = "") -> Fact[str]:
    """Return the question for live rules: an anchor's, else the main ones. An anchor that is not there has none."""

    def parsed(ran: Ran) -> str:
        if ran.code == 0 and not ran.cut:
            return text_of(ran)
        if anchor and not ran.stdout and b"sudo" not in ran.stderr:
            return ""
        raise unreadable("its firewall (pfctl -sr)", said(ran))

    words = ("pfctl", *(("-a", anchor) if anchor else ()), "-sr")
    return Fact(name=name, command=Command(words=words, root=True), parse=parsed)


def _enabled(ran: Ran) -> bool:
    text = text_of(ran)
    if ran.code != 0 or "Status: " not in text:
        raise unreadable("its firewall (pfctl -s info)", said(ran))
    return "Status: Enabled" in text


def _held(ran: Ran) -> bool:
    """Read pf's list of those for whom it is enabled: whether pfctl, and so one of us, is among them."""
    if ran.code != 0:
        raise unreadable("its firewall (pfctl -s References)", said(ran))
    return any(line.split()[1:2] == ["pfctl"] for line in text_of(ran).splitlines())


def _loaded(ran: Ran) -> bool:
    return ran.code == 0


def _session(ran: Ran) -> Address | None:
    return session_source(text_of(ran)) if ran.code == 0 else None


MAIN: Final = rules_fact("pf-main")
ENABLED: Final = Fact(
    name="pf-enabled",
    command=Command(words=("pfctl", "-s", "info"), root=True),
    parse=_enabled,
)
HELD: Final = Fact(
    name="pf-held",
    command=Command(words=("pfctl", "-s", "References"), root=True),
    parse=_held,
)
HELPER_FILE: Final = file_fact("pf-helper", HELPER)
SESSION: Final = Fact(
    name="ssh-session",
    command=Command(words=("printenv", "SSH_CONNECTION")),  # not by sudo, which drops it
    parse=_session,
)


def daemon(label: str, anchor: str) -> Job:
    """Return the job that keeps an anchor live. Taken anew on a live host it loads nothing that is live already."""
    return Job(
        label=label,
        program=(HELPER, anchor),
        keys=(
            ("RunAtLoad", True),
            ("StandardErrorPath", LOG),
            ("StandardOutPath", LOG),
            ("StartInterval", 60),
        ),
    )


def daemon_facts(job: Job) -> tuple[Fact[str | None], Fact[bool]]:
    """Return the questions for a job's file and for whether launchd has it."""
    loaded = Fact(
        name=f"{job.label}-loaded",
        command=Command(words=("launchctl", "print", f"system/{job.label}"), root=True),
        parse=_loaded,
    )
    return file_fact(f"{job.label}-plist", job.path), loaded


def put(scripts: PfScripts, path: str, content: str, *, mode: str = "0644") -> Command:
    """Return the command that puts a file of ours in place."""
    return run_script("pf-put", scripts.put, path, mode, "none", "", "", stdin=as_bytes(content))


def put_checked(scripts: PfScripts, anchor: Anchor) -> Command:
    """Return the command that puts an anchor's file in place if pf can read it."""
    return run_script(
        "pf-put",
        scripts.put,
        *(anchor.file, "0644", "anchor", anchor.live, ""),
        stdin=anchor.text.encode(),
    )


def put_conf(scripts: PfScripts, path: str, old: str, new: str) -> Command:
    """Return the command that replaces pf.conf if pf can read the new one and nobody changed the old one meanwhile."""
    seen = sha256(as_bytes(old)).hexdigest()
    return run_script("pf-put", scripts.put, path, "", "conf", "", seen, stdin=as_bytes(new))


def same_file(path: str, content: str) -> Probe:
    """Return the check that a file is as wanted."""
    fact = file_fact("", path)

    def judged(ran: Ran) -> str:
        return "" if fact.parse(ran) == content else f"{path} is not what was written"

    return Probe(command=fact.command, judge=judged)


def live(anchor: Anchor, where: str) -> Probe:
    """Return the check that an anchor's rules, and no others, are live."""
    fact = rules_fact("", where)
    return Probe(command=fact.command, judge=judge_live(anchor, where, fact.parse))


def judge_live(anchor: Anchor, where: str, parse: Callable[[Ran], str]) -> Callable[[Ran], str]:
    """Return the judgement of live rules."""

    def judged(ran: Ran) -> str:
        if labels(parse(ran)) == anchor.labels:
            return ""
        return f"{where} does not have the rules of {anchor.file}. Look at what `sudo pfctl -a {where} -sr` shows"

    return judged


def daemon_step(scripts: PfScripts, job: Job, facts: Facts) -> tuple[Step, ...]:
    """Return the step that has a job of ours kept by launchd; nothing if it is."""
    plist_fact, loaded_fact = daemon_facts(job)
    plist = job.plist().decode()
    old, loaded = facts.of(plist_fact), facts.of(loaded_fact)
    stale = facts.of(HELPER_FILE) != scripts.keep
    reload = old != plist or not loaded
    if not stale and not reload:
        return ()
    why = (
        f"{HELPER} is not ours"
        if stale
        else f"{job.path} is not ours"
        if old != plist
        else f"{job.label} is not loaded"
    )
    return (
        Step(
            name=job.label,
            reason=f"nothing would keep the rules live after a boot: {why}",
            diff=(
                *((f"+ {HELPER} (0755)",) if stale else ()),
                *diff(job.path, old or "", plist),
                *((f"+ launchd: {job.label}",) if reload else ()),
            ),
            apply=(
                *((put(scripts, HELPER, scripts.keep, mode="0755"),) if stale else ()),
                *((put(scripts, job.path, plist),) if old != plist else ()),
                *(
                    (run_script("pf-daemon", scripts.daemon, job.label, job.path, LOGS),)
                    if reload
                    else ()
                ),
            ),
            verify=(
                same_file(HELPER, scripts.keep),
                same_file(job.path, plist),
                Probe(command=loaded_fact.command, judge=_judge_loaded(job)),
            ),
        ),
    )


def diff(path: str, old: str, new: str) -> tuple[str, ...]:
    """Return what changes in a file, for a person to read; nothing if nothing does."""
    if old == new:
        return ()
    lines = ndiff(old.splitlines(), new.splitlines())
    return (f"  {path}", *(line for line in lines if line[0] in "+-"))


def _judge_loaded(job: Job) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        if ran.code == 0:
            return ""
        return f"launchd has no job {job.label} ({said(ran)}). Look at what `launchctl print system/{job.label}` says"

    return judged
