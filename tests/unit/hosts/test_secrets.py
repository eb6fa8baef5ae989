"""A canary for each secret: it is in stdin, and nowhere that anybody could look."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide import kcpassword
from remuda.hosts.decide.facts import Facts
from remuda.hosts.decide.plan import Plan, facts_needed, plan
from remuda.kube.host import Role
from remuda.model.errors import BadInput, Retry
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command, Ran
from tests.unit.hosts.a_mac import CANARIES, CORE, PASSWORD, TOKEN, a_wanted, an_own
from tests.unit.hosts.test_cases import NAMES, answers_of

if TYPE_CHECKING:
    from remuda.hosts.decide.step import Step

ENCODED = kcpassword.encode(Secret(PASSWORD.encode())).reveal()
HIDDEN = (*CANARIES, ENCODED)


def _plans() -> list[Plan]:
    """Return the plans of every case for both roles: whatever a host needs is in one of them."""
    return [
        plan(Facts(answers_of(name)), a_wanted(an_own(role)), CORE)
        for name in NAMES
        for role in Role
    ]


def _shown(step: Step) -> list[str]:
    """Return everything of a step that somebody may see."""
    words = [word for command in _commands(step) for word in command.words]
    return [repr(step), str(step), step.name, step.reason, *step.diff, *words]


def _commands(step: Step) -> list[Command]:
    probes = [*step.verify, *([step.check] if step.check else [])]
    return [*step.apply, *(probe.command for probe in probes)]


def _leaks(text: str) -> bool:
    held = text.encode(errors="surrogateescape")
    return any(canary in held for canary in HIDDEN)


def test_no_secret_is_anywhere_but_in_stdin() -> None:
    plans = _plans()
    shown = [text for decided in plans for step in decided.steps for text in _shown(step)]
    shown += [repr(problem) for decided in plans for problem in decided.problems]
    assert [text for text in shown if _leaks(text)] == []


def test_each_secret_is_in_stdin_as_a_secret() -> None:
    stdins = [c.stdin for d in _plans() for s in d.steps for c in s.apply]
    secret = {each.reveal() for each in stdins if isinstance(each, Secret)}
    assert {PASSWORD.encode() + b"\n", ENCODED, TOKEN + b"\n"} <= secret
    plain = [each for each in stdins if isinstance(each, bytes)]
    assert not any(canary in each for each in plain for canary in HIDDEN)


@pytest.mark.parametrize(
    ("printed", "wrong"),
    [
        pytest.param(b"session Aqua\nuser m1\n" + ENCODED, "", id="all is well"),
        pytest.param(b"session none\nuser m1\n" + ENCODED, "not logged in", id="no session yet"),
        pytest.param(b"session untried\nuser m1\n" + ENCODED, "not tried", id="not tried yet"),
        pytest.param(
            b"session Aqua\nuser m1\n" + kcpassword.encode(Secret(b"<sealed>")).reveal(),
            "the password is wrong",
            id="sealed, although an old session is still there",
        ),
        pytest.param(
            b"session none\nuser m1\n" + bytes.fromhex("41fa3742bed9b9d4a3b91f"),
            "the password is wrong",
            id="sealed is said before the missing session, which is its effect",
        ),
        pytest.param(b"session Aqua\nuser \n" + ENCODED, "not for m1", id="nobody is named"),
        pytest.param(b"session Aqua\nuser m1\n", "is gone", id="the file was taken away"),
        pytest.param(
            b"session Aqua\nuser m1\n" + kcpassword.encode(Secret(b"another")).reveal(),
            "somebody else",
            id="the file was changed",
        ),
    ],
)
def test_the_login_is_judged_by_what_is_read_back(printed: bytes, wrong: str) -> None:
    [step] = plan(Facts(answers_of("sealed")), a_wanted(), CORE).steps
    said = step.verify[0].judge(Ran(code=0, stdout=printed))
    assert wrong in said
    assert bool(said) is bool(wrong)
    assert not _leaks(said)


def test_what_could_not_be_looked_at_is_not_shown() -> None:
    [step] = plan(Facts(answers_of("sealed")), a_wanted(), CORE).steps
    said = step.verify[0].judge(
        Ran(code=1, stdout=b"session none\nuser m1\n" + ENCODED, stderr=b"cat: no")
    )
    assert "code 1: cat: no" in said
    assert not _leaks(said)


def test_a_wrong_password_is_explained_and_never_tried_again() -> None:
    [step] = plan(Facts(answers_of("fresh")), a_wanted(), CORE).steps
    refused = Ran(
        code=1,
        stderr=b"Sorry, try again.\nsudo: no password was provided\nsudo: 1 incorrect password attempt\n",
    )
    assert step.explain is not None
    assert "password is wrong" in step.explain(refused)
    assert step.explain(Ran(code=1, stderr=b"visudo: no")) == ""
    assert step.retry is Retry.NEVER


@pytest.mark.parametrize("name", ["fresh", "sealed"])
@pytest.mark.parametrize("password", ["canary\n", "can\0ary", "canary\r\n"])
def test_a_password_that_cannot_be_one_is_refused_before_anything_is_tried(
    name: str, password: str
) -> None:
    with pytest.raises(BadInput) as refused:
        plan(Facts(answers_of(name)), a_wanted(an_own(password=password)), CORE)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "user", ["", "m1; rm -rf /", "M1", "a b", "../etc", "x" * 33, "-n", "m1\n"]
)
def test_an_account_that_could_be_taken_for_something_else_is_refused(user: str) -> None:
    wanted = a_wanted(replace(an_own(), user=user))
    for name in ("fresh", "sealed", "half-bootstrapped"):
        with pytest.raises(BadInput, match="account"):
            plan(Facts(answers_of(name)), wanted, CORE)


def test_root_is_tried_without_a_password_in_no_fact() -> None:
    for fact in facts_needed(CORE):
        assert "-S" not in fact.command.words
        assert not fact.command.stdin
