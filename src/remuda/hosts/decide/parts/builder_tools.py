"""What builders have beside Tart: Packer, its plugin for Tart, and an Xcode that is ready. Of no account elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.running import run_script, said
from remuda.hosts.decide.step import Probe, Problem, Step, proof
from remuda.kube.host import Role
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import BuilderTools, FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "builder-tools"
PACKER_PROGRAM: Final = "/usr/local/bin/packer"
_PLUGIN: Final = "github.com/cirruslabs/tart"
_PACKER: Final = re.compile(r"Packer v([0-9]+\.[0-9]+\.[0-9]+\S*)")
_PLUGIN_FILE: Final = re.compile(
    r"packer-plugin-tart_v([0-9]+\.[0-9]+\.[0-9]+\S*?)_x", re.MULTILINE
)
_DOWNLOAD_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Xcode:
    """Which Xcodes there are, and whether one is chosen and ready."""

    selected: str
    apps: tuple[str, ...]
    ready: bool


def _packer(ran: Ran) -> str:
    found = _PACKER.match(ran.stdout.decode(errors="replace"))
    return found[1] if ran.code == 0 and found else ""


def _plugins(ran: Ran) -> frozenset[str]:
    return frozenset(_PLUGIN_FILE.findall(ran.stdout.decode(errors="replace")))


def _xcode(ran: Ran) -> Xcode:
    lines = [
        line.split(" ", 1)
        for line in ran.stdout.decode(errors="replace").splitlines()
        if " " in line
    ]
    found = dict(lines)
    if ran.code != 0 or not {"selected", "ready"} <= found.keys():
        raise unreadable("Xcode", said(ran))
    return Xcode(
        selected=found["selected"],
        apps=tuple(sorted(value for key, value in lines if key == "app")),
        ready=found["ready"] == "yes",
    )


PACKER: Final = Fact(
    name="packer",
    command=Command(words=("/usr/bin/env", PACKER_PROGRAM, "version")),
    parse=_packer,
)
PLUGINS: Final = Fact(
    name="packer-plugins",
    command=Command(words=("/usr/bin/env", PACKER_PROGRAM, "plugins", "installed")),
    parse=_plugins,
)


@dataclass(frozen=True, slots=True)
class BuilderToolsPart:
    packer_script: str
    xcode_seen_script: str
    xcode_script: str
    name: str = NAME
    xcode: Fact[Xcode] = field(init=False)

    def __post_init__(self) -> None:
        command = run_script("xcode-seen", self.xcode_seen_script, "/Applications", root=False)
        object.__setattr__(self, "xcode", Fact(name="xcode", command=command, parse=_xcode))

    @property
    def facts(self) -> tuple[Fact[object], ...]:
        return (PACKER, PLUGINS, self.xcode)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        tools = config.builder_tools
        return f"{tools.packer_version}\0{tools.packer_tart_plugin}".encode()

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        if wanted.own.role is not Role.BUILDER:
            return ()
        tools = wanted.fleet.builder_tools
        return (
            *self._packer(facts.of(PACKER), tools),
            *_plugin(facts.of(PLUGINS), tools),
            *self._xcode(facts.of(self.xcode)),
        )

    def _packer(self, seen: str, tools: BuilderTools) -> tuple[Step, ...]:
        version = tools.packer_version
        if seen == version:
            return ()
        return (
            Step(
                name="packer",
                reason=f"Packer {seen} is there and {version} is wanted"
                if seen
                else "there is no Packer",
                diff=(
                    *((f"- {PACKER_PROGRAM} {seen}",) if seen else ()),
                    f"+ {PACKER_PROGRAM} {version}",
                ),
                apply=(
                    run_script(
                        "packer", self.packer_script, version, PACKER_PROGRAM, timeout_s=_DOWNLOAD_S
                    ),
                ),
                **proof(Probe(command=PACKER.command, judge=_judge_packer(version))),
            ),
        )

    def _xcode(self, seen: Xcode) -> tuple[Step | Problem, ...]:
        if seen.ready:
            return ()
        if not seen.apps:
            return (_NO_XCODE,)
        chosen = seen.selected.removesuffix("/Contents/Developer")
        app = chosen if chosen in seen.apps else seen.apps[-1]
        return (
            Step(
                name="xcode",
                reason=f"{app} is there, but it is not chosen, or its licence is not accepted",
                diff=(f"- {seen.selected}", f"+ {app}/Contents/Developer"),
                apply=(run_script("xcode-select", self.xcode_script, app, timeout_s=_DOWNLOAD_S),),
                **proof(Probe(command=self.xcode.command, judge=_judge_xcode)),
            ),
        )


def _plugin(seen: frozenset[str], tools: BuilderTools) -> tuple[Step, ...]:
    version = tools.packer_tart_plugin
    if version in seen:
        return ()
    words = (PACKER_PROGRAM, "plugins", "install", _PLUGIN, f"v{version}")
    return (
        Step(
            name="packer-plugin",
            reason=f"Packer's plugin for Tart {version} is not there",
            diff=(f"+ {_PLUGIN} {version}",),
            # As the account: plugins live in its home. Packer checks their sums itself.
            apply=(Command(words=words, timeout_s=_DOWNLOAD_S),),
            **proof(Probe(command=PLUGINS.command, judge=_judge_plugin(version))),
        ),
    )


def _judge_packer(version: str) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        return (
            ""
            if _packer(ran) == version
            else f"`packer version` does not say {version} ({said(ran)})"
        )

    return judged


def _judge_plugin(version: str) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        return (
            ""
            if version in _plugins(ran)
            else f"Packer does not list the plugin {version} ({said(ran)})"
        )

    return judged


def _judge_xcode(ran: Ran) -> str:
    if _xcode(ran).ready:
        return ""
    return "Xcode is still not ready. Run `sudo xcodebuild -runFirstLaunch` on the host and see what it says"


_NO_XCODE: Final = Problem(
    name="xcode",
    what="The builder cannot build images",
    why="there is no Xcode in /Applications, and Apple gives it only to a person with an account",
    fix="Put an Xcode.app there, then run this again",
)
