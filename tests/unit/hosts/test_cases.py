"""
Whole hosts as data, one file each: what their commands say, what that means, and what is then to do.

``cases/converged.toml`` is a host that needs nothing. The others say what is different from it, or from the case that
they name as ``from``. Checksums of what we generate are written by name, as ``{@agent}``.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.hosts.decide import kcpassword
from remuda.hosts.decide.facts import Facts, FactUnreadable
from remuda.hosts.decide.plan import facts_needed, plan
from remuda.hosts.decide.step import Harm
from remuda.kube.host import Role
from remuda.model.secret import Secret
from remuda.ports.host_shell import Ran
from tests.unit.hosts.a_mac import CORE, PASSWORD, a_wanted, an_own, filled, shown

if TYPE_CHECKING:
    from remuda.hosts.decide.wanted import Wanted

CASES = Path(__file__).with_name("cases")
NAMES = sorted(path.stem for path in CASES.glob("*.toml"))
NEEDED = {
    "converged",
    "fresh",
    "half-bootstrapped",
    "wrong-password",
    "sealed",
    "sealed-without-a-password",
    "loginwindow-absent",
    "builder",
    "runner-turned-builder",
}


@cache
def _case(name: str) -> dict[str, Any]:
    return tomllib.loads((CASES / f"{name}.toml").read_text())


def answers_of(name: str) -> dict[str, Ran]:
    case = _case(name)
    found = answers_of(case["from"]) if "from" in case else {}
    return found | {fact: _ran(said) for fact, said in case["answers"].items()}


def _ran(said: dict[str, Any]) -> Ran:
    stdout = filled(said.get("stdout", "")).encode()
    if "kcpassword" in said:
        password = PASSWORD if said["kcpassword"] == "right" else said["kcpassword"]
        stdout = kcpassword.encode(Secret(password.encode())).reveal()
    return Ran(code=said.get("code", 0), stdout=stdout, stderr=said.get("stderr", "").encode())


def _wanted(name: str) -> Wanted:
    said = _case(name).get("wanted", {})
    own = an_own(
        Role(said.get("role", "runner")),
        password=PASSWORD if said.get("password", True) else None,
        token=b"canary-token" if said.get("token", True) else None,
    )
    return a_wanted(own)


def _plain(value: object) -> object:
    """Return what a fact says in the words of a table. A password is only ever right or other."""
    if isinstance(value, Secret):
        if kcpassword.is_sealed(value):
            return "sealed"
        return "right" if kcpassword.decode(value).reveal() == PASSWORD.encode() else "other"
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [_plain(each) for each in sorted(value)]
    return "none" if value is None else value


def _filled(value: object) -> object:
    if isinstance(value, str):
        return filled(value)
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items()}
    return value


def test_every_case_that_is_called_for_is_there() -> None:
    assert set(NAMES) >= NEEDED


def test_a_case_answers_everything_that_is_asked() -> None:
    asked = {fact.name for fact in facts_needed(CORE)}
    assert {name: set(answers_of(name)) for name in NAMES} == dict.fromkeys(NAMES, asked)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_commands_say_means(name: str) -> None:
    answers, expected = answers_of(name), _case(name)["facts"]
    facts = {fact.name: fact for fact in facts_needed(CORE)}
    seen: dict[str, object] = {}
    for fact in _case(name)["answers"]:
        try:
            meant = facts[fact].parse(answers[fact])
            seen[fact] = meant.decode() if isinstance(meant, bytes) else _plain(meant)
        except FactUnreadable:
            seen[fact] = "unreadable"
    assert seen == _filled(expected)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_then_to_do(name: str) -> None:
    decided = plan(Facts(answers_of(name)), _wanted(name), CORE)

    steps = [
        {
            "name": step.name,
            "reason": step.reason,
            "harm": step.harm is Harm.VMS,
            "commands": [shown(command) for command in step.apply],
        }
        for step in decided.steps
    ]
    assert steps == _case(name)["plan"].get("steps", [])
    problems = [{"name": each.name, "why": each.why} for each in decided.problems]
    assert problems == _case(name)["plan"].get("problems", [])


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_checked_proven_and_shown(name: str) -> None:
    answers = answers_of(name)
    asked = {fact.command: fact.name for fact in facts_needed(CORE)}
    for step in plan(Facts(answers), _wanted(name), CORE).steps:
        assert step.check, f"{step.name} would be done although it is done already"
        fact = asked.get(step.check.command)
        if fact is not None:
            assert step.check.judge(answers[fact]), (
                f"{step.name} would be left out although it is needed"
            )
        assert step.verify, f"{step.name} takes its own word"
        assert step.diff, f"a dry run would not say what {step.name} changes"
        assert all(line.startswith(("+ ", "- ", "  ")) for line in step.diff)
