"""
The network of hosts as data, one file each: what their commands say, what that means, and what is then to do.

``net_cases/converged.toml`` is a host that needs nothing; the others say what is different from it. Texts that we
generate are written by name, as ``{@rules}``.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from remuda.hosts.decide import pf, pf_conf
from remuda.hosts.decide.facts import Facts, FactUnreadable
from remuda.hosts.decide.parts import firewall, ssh_guard
from remuda.hosts.decide.plan import Plan, facts_needed, plan
from remuda.hosts.decide.step import Harm
from remuda.hosts.parts import PARTS
from remuda.hosts.scripts import script
from remuda.ports.host_shell import Ran
from tests.unit.hosts.a_mac import NETWORK, a_fleet, a_wanted, shown
from tests.unit.hosts.test_pf_conf import APPLE, LEGACY

CASES = Path(__file__).with_name("net_cases")
NAMES = sorted(path.stem for path in CASES.glob("*.toml"))
NEEDED = {"converged", "fresh", "legacy-block", "doubled-block", "marked-and-legacy"}
OURS = tuple(part for part in PARTS if part.name in NETWORK)


@cache
def _texts() -> dict[str, str]:
    rules = pf.runners(a_fleet().guests_may_reach).text
    guard = pf.ssh_guard(a_fleet().ssh_from, None).text
    return {
        "@apple": APPLE,
        "@legacy": LEGACY,
        "@block": pf_conf.BLOCK,
        "@begin": f"# BEGIN {pf.RUNNERS}\n",
        "@rules": rules,
        "@rules-shown": _as_pf_shows(rules),
        "@rules-before": _as_pf_shows(pf.runners(()).text),
        "@guard": guard,
        "@guard-shown": _as_pf_shows(guard),
        "@keep": script("pf-keep"),
        "@pf-plist": firewall.JOB.plist().decode(),
        "@sshguard-plist": ssh_guard.JOB.plist().decode(),
    }


def _as_pf_shows(text: str) -> str:
    """Return rules in pfctl's own words: one for each interface, and tables apart."""
    rules = [line for line in text.splitlines() if line.startswith(("pass", "block"))]
    return "".join(
        rule.replace("$remuda_if", bridge) + "\n"
        for rule in rules
        for bridge in (pf.BRIDGES if "$remuda_if" in rule else ("",))
    )


def _filled(text: str) -> str:
    def text_of(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("@sum:"):
            whole = "".join(_texts()[f"@{each}"] for each in name.split("@")[2:])
            return sha256(whole.encode()).hexdigest()
        return _texts()[name]

    return re.sub(r"\{(@[a-z:@-]+)\}", text_of, text)


def _case(name: str) -> dict[str, Any]:
    return tomllib.loads((CASES / f"{name}.toml").read_text())


def _answers(name: str) -> dict[str, Ran]:
    case = _case(name)
    found = _answers(case["from"]) if "from" in case else {}
    return found | {fact: _ran(said) for fact, said in case["answers"].items()}


def _ran(said: dict[str, Any]) -> Ran:
    stdout = _filled(said.get("stdout", "")).encode()
    return Ran(code=said.get("code", 0), stdout=stdout, stderr=said.get("stderr", "").encode())


def _plan(name: str) -> Plan:
    return plan(Facts(_answers(name)), a_wanted(), OURS)


DECIDED = [name for name in NAMES if not _case(name)["plan"].get("refused")]


def test_every_case_that_is_called_for_is_there() -> None:
    assert set(NAMES) >= NEEDED
    assert {part.name for part in OURS} == NETWORK


def test_a_case_answers_everything_that_is_asked() -> None:
    asked = {fact.name for fact in facts_needed(OURS)}
    assert {name: set(_answers(name)) for name in NAMES} == dict.fromkeys(NAMES, asked)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_commands_say_means(name: str) -> None:
    facts = {fact.name: fact for fact in facts_needed(OURS)}
    answers, seen = _answers(name), {}
    expected = _case(name)["facts"]
    for fact in expected:
        try:
            meant = facts[fact].parse(answers[fact])
        except FactUnreadable:
            meant = "unreadable"
        seen[fact] = meant if isinstance(meant, bool | int | str) else str(meant).lower()
    assert seen == {
        key: _filled(each) if isinstance(each, str) else each for key, each in expected.items()
    }


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_then_to_do(name: str) -> None:
    decided, expected = _plan(name), _case(name)["plan"]
    steps = [
        {
            "name": step.name,
            "reason": step.reason,
            **({"harm": True} if step.harm is Harm.VMS else {}),
            "commands": [shown(command) for command in step.apply],
        }
        for step in decided.steps
    ]
    wanted = [
        step | {"commands": [_filled(each) for each in step["commands"]]}
        for step in expected.get("steps", [])
    ]
    assert steps == wanted
    problems = [{"name": each.name, "why": each.why} for each in decided.problems]
    assert problems == expected.get("problems", [])


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(DECIDED)))
def test_from_what_cannot_be_read_nothing_is_decided(name: str) -> None:
    with pytest.raises(FactUnreadable):
        _plan(name)


@pytest.mark.parametrize("name", DECIDED)
def test_every_step_is_proven_and_shown(name: str) -> None:
    for step in _plan(name).steps:
        assert step.checks, f"{step.name} would be done although it is done already"
        assert step.verify, f"{step.name} takes its own word"
        assert step.diff, f"a dry run would not say what {step.name} changes"
        assert all(line.startswith(("+ ", "- ", "  ")) for line in step.diff)


@pytest.mark.parametrize("name", ["fresh", "doubled-block", "flushed", "job-not-loaded"])
def test_what_is_verified_fails_on_the_host_as_it_was_and_not_on_one_that_is_as_wanted(
    name: str,
) -> None:
    """A check that says yes to anything proves nothing: each step has one that says no to what made it needed."""
    by_command = {fact.command: fact.name for fact in facts_needed(OURS)}
    before, after = _answers(name), _answers("converged")
    if name == "fresh":  # it is reached from elsewhere, so its guard has that source as well
        session = pf.session_source(before["ssh-session"].stdout.decode())
        guard = pf.ssh_guard(a_fleet().ssh_from, session).text
        after["ssh-guard-file"] = Ran(code=0, stdout=guard.encode())
        after["ssh-guard-live"] = Ran(code=0, stdout=_as_pf_shows(guard).encode())
    for step in _plan(name).steps:
        was = [probe.judge(before[by_command[probe.command]]) for probe in step.verify]
        becomes = [probe.judge(after[by_command[probe.command]]) for probe in step.verify]
        assert any(was), f"{step.name} would have passed for done"
        assert becomes == [""] * len(becomes)


def test_jobs_of_launchd_load_nothing_twice_and_name_their_program() -> None:
    for job in (firewall.JOB, ssh_guard.JOB):
        assert job.program[0] == "/usr/local/bin/remuda-pf"
        assert dict(job.keys)["RunAtLoad"] is True
        assert "-f /etc/pf.conf" not in job.plist().decode()
