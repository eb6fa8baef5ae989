"""
GitHub's own runner on a builder, for the workflow that bakes images.

A healthy registration is left alone: the token lasts an hour and is minted when it is needed, and a stale one must not
destroy what works.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.parts.sudo import check_user
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Harm, Probe, Problem, Step, proof
from remuda.model.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import BuilderConfig, FleetConfig, OwnConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "github-runner"
FOLDER: Final = "/opt/actions-runner"
_INSTALL_S: Final = 900.0
_LINES: Final = 3
_NOT_LOADED: Final = "GitHub's runner is registered but not loaded"


@dataclass(frozen=True, slots=True)
class RunnerSeen:
    """A registration of GitHub's runner on the host."""

    configured: bool
    service: str
    """The label of its LaunchAgent; "" if none was made."""
    loaded: bool
    url: str = ""
    name: str = ""
    labels: str = ""
    """With which we registered it, separated by commas; "" if somebody else did: then they are not ours to change."""

    @property
    def there(self) -> bool:
        return self.configured or bool(self.service)


def _seen(ran: Ran) -> RunnerSeen:
    head = ran.stdout.split(b"\n", _LINES)
    lines = dict(
        line.decode(errors="replace").split(" ", 1) for line in head[:_LINES] if b" " in line
    )
    if ran.code != 0 or lines.keys() != {"configured", "service", "loaded"}:
        raise unreadable("GitHub's runner", said(ran))
    labels, rest = _labels(head[_LINES] if len(head) > _LINES else b"")
    written = _settings(rest)
    return RunnerSeen(
        configured=lines["configured"] == "yes",
        service="" if lines["service"] == "none" else lines["service"],
        loaded=lines["loaded"] == "yes",
        url=written.get("gitHubUrl", ""),
        name=written.get("agentName", ""),
        labels=labels,
    )


def _labels(text: bytes) -> tuple[str, bytes]:
    """Take the line with the labels off what comes before the runner's own file."""
    if not text.startswith(b"labels "):
        return "", text
    line, _, rest = text.partition(b"\n")
    return line.decode(errors="replace").partition(" ")[2], rest


def _settings(text: bytes) -> dict[str, str]:
    """Read the runner's own file. What cannot be read is a registration that is not healthy."""
    try:
        whole = json.loads(text.decode("utf-8-sig"))
    except ValueError:
        return {}
    if not isinstance(whole, dict):
        return {}
    return {key: value for key, value in whole.items() if isinstance(value, str)}


@dataclass(frozen=True, slots=True)
class GithubRunnerPart:
    seen_script: str
    install_script: str
    load_script: str
    remove_script: str
    directory_script: str
    name: str = NAME
    seen: Fact[RunnerSeen] = field(init=False)

    def __post_init__(self) -> None:
        command = run_script("runner-seen", self.seen_script, FOLDER, root=False)
        object.__setattr__(self, "seen", Fact(name=NAME, command=command, parse=_seen))

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        return (self.seen,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        """For the first boot only: it needs a token, and a healthy registration is left alone."""
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        own, seen = wanted.own, facts.of(self.seen)
        if own.builder is None:
            return (self._remove(seen),) if seen.there else ()
        wrong = _wrong(seen, own.builder)
        if not wrong:
            return ()
        if wrong == _NOT_LOADED and seen.service:
            return (self._load(own.builder),)
        token = own.builder.registration_token
        if token is None or not token:
            return (_no_token(wrong),)
        step = self._install(own, own.builder, token, wrong)
        # One that is loaded may be building: for whom it is registered does not matter.
        return (replace(step, harm=Harm.VMS) if seen.loaded else step,)

    def _load(self, builder: BuilderConfig) -> Step:
        return Step(
            name=f"{NAME}-load",
            reason=_NOT_LOADED,
            diff=("  it is loaded as it is registered",),
            apply=(run_script("runner-load", self.load_script, FOLDER, root=False),),
            **proof(Probe(command=self.seen.command, judge=_judge(builder), within_s=30.0)),
        )

    def _install(self, own: OwnConfig, builder: BuilderConfig, token: Secret, wrong: str) -> Step:
        labels = ",".join(builder.labels)
        args = (FOLDER, builder.github_url, builder.runner_name, labels, builder.runner_version)
        return Step(
            name=NAME,
            reason=wrong,
            diff=(f"+ {FOLDER}: {builder.runner_name} at {builder.github_url} ({labels})",),
            apply=(
                run_script("own-directory", self.directory_script, FOLDER, check_user(own.user)),
                run_script(
                    "runner-install",
                    self.install_script,
                    *args,
                    root=False,
                    stdin=Secret(token.reveal() + b"\n"),
                    timeout_s=_INSTALL_S,
                ),
            ),
            **proof(Probe(command=self.seen.command, judge=_judge(builder), within_s=30.0)),
        )

    def _remove(self, seen: RunnerSeen) -> Step:
        return Step(
            name=f"{NAME}-away",
            reason="the host builds no images, and GitHub's runner on it would take builds and their VMs",
            diff=(f"- {seen.service or FOLDER}",),
            apply=(run_script("runner-remove", self.remove_script, FOLDER, root=False),),
            **proof(Probe(command=self.seen.command, judge=_judge_gone)),
            harm=Harm.VMS,
        )


def _wrong(seen: RunnerSeen, builder: BuilderConfig) -> str:
    if not seen.configured:
        return "GitHub's runner is not registered"
    if (seen.url.rstrip("/"), seen.name) != (builder.github_url.rstrip("/"), builder.runner_name):
        return (
            f"GitHub's runner is registered as {seen.name or 'nobody'} at {seen.url or 'nowhere'}"
        )
    if seen.labels and set(seen.labels.split(",")) != set(builder.labels):
        return f"GitHub's runner is registered with the labels {seen.labels}"
    return "" if seen.loaded else _NOT_LOADED


def _judge(builder: BuilderConfig) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        wrong = _wrong(_seen(ran), builder)
        return f"{wrong}. Look into {FOLDER}/_diag on the host" if wrong else ""

    return judged


def _judge_gone(ran: Ran) -> str:
    return f"GitHub's runner is still in {FOLDER}" if _seen(ran).there else ""


def lacks_token(problems: Iterable[Problem]) -> bool:
    """Say whether a registration token would help: whoever can mint one does it now, and not before."""
    return any(problem.name == NAME for problem in problems)


def _no_token(wrong: str) -> Problem:
    return Problem(
        name=NAME,
        what="No image can be built on the host",
        why=f"{wrong}, and there is no registration token",
        fix="Let the operator mint one (appSecretRef of the Host), or give one to `remuda host bootstrap` with"
        " --registration-token",
    )
