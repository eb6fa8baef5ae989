"""
The CEL library behind one door: compile a rule, a message or a pattern once; ask it many times.

Nothing else imports the library (docs/adr/0004). What does not compile raises CelFault; nothing is skipped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

# The wheel carries stubs but no py.typed marker, so mypy does not read them.
from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import (  # type: ignore[import-untyped]
    ext_bindings,
    ext_optional,
    ext_strings,
)


class CelFault(Exception):
    """A rule that cannot be compiled, with the compiler's own words."""


class EvaluationFault(Exception):
    """A rule that could not be decided for one object, such as one that reads an absent field."""


_OPTIONAL_OLD = "cel.bind(oldSelf, has_old__ ? optional.of(old__) : optional.none(), ({}))"
"""The library takes no optional value from outside, so the rule is wrapped in one that builds it."""


def _environment(*names: str) -> Any:  # noqa: ANN401 - the library is untyped
    return cel.NewEnv(
        variables=dict.fromkeys(names, cel.Type.DYN),
        extensions=[
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_bindings.ExtBindings(),
        ],
    )


@dataclass(frozen=True, slots=True)
class Program:
    """One compiled expression. ``transition`` says that it reads ``oldSelf``."""

    program: Any
    transition: bool
    optional_old: bool = False

    def ask(self, value: Any, old: Any, *, has_old: bool) -> Any:  # noqa: ANN401 - JSON
        """Evaluate for one value. Raises EvaluationFault if there is no answer."""
        data: dict[str, Any] = {"self": value}
        if self.optional_old:
            data |= {"old__": old, "has_old__": has_old}
        elif self.transition:
            data["oldSelf"] = old
        answer = self.program.eval(data=data)
        if answer.type() == cel.Type.ERROR:
            raise EvaluationFault(_as_the_api_server_says(str(answer.value())))
        return answer.value()


class Compiler:
    """Compiles the expressions of one schema."""

    def __init__(self) -> None:
        self._plain = _environment("self")
        self._transition = _environment("self", "oldSelf")
        self._optional = _environment("self", "old__", "has_old__")

    def rule(self, text: str, *, optional_old: bool = False) -> Program:
        """Compile a rule: an expression that answers true or false."""
        return self._program(text, cel.Type.BOOL, optional_old=optional_old)

    def message(self, text: str, *, optional_old: bool = False) -> Program:
        """Compile a ``messageExpression``: an expression that answers a string."""
        return self._program(text, cel.Type.STRING, optional_old=optional_old)

    def pattern(self, pattern: str) -> Program:
        """Compile a regular expression. CEL's are RE2, as the API server's; Python's own dialect is another one."""
        literal = json.dumps(pattern, ensure_ascii=False)
        program = Program(
            _compile(self._plain, f"string(self).matches({literal})"), transition=False
        )
        try:
            program.ask("", None, has_old=False)
        except EvaluationFault as fault:
            raise CelFault(str(fault)) from None
        return program

    def _program(self, text: str, answer: Any, *, optional_old: bool) -> Program:  # noqa: ANN401 - untyped library
        if optional_old:
            compiled = _compile(self._optional, _OPTIONAL_OLD.format(text))
            return Program(_answering(compiled, answer), transition=True, optional_old=True)
        try:
            # A rule that compiles without oldSelf does not read it: that is all it takes to tell the two sorts apart.
            return Program(_answering(_compile(self._plain, text), answer), transition=False)
        except CelFault:
            compiled = _compile(self._transition, text)
            return Program(_answering(compiled, answer), transition=True)


def _compile(environment: Any, text: str) -> Any:  # noqa: ANN401 - untyped library
    try:
        return environment.compile(text)
    except RuntimeError as error:
        what = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise CelFault(f"compilation failed: {what}") from None


def _answering(program: Any, wanted: Any) -> Any:  # noqa: ANN401 - untyped library
    found = program.return_type()
    if found not in (wanted, cel.Type.DYN):
        rule = wanted == cel.Type.BOOL
        raise CelFault(
            "cel expression must evaluate to a bool"
            if rule
            else "messageExpression must evaluate to a string"
        )
    return program


_IN_OTHER_WORDS = (
    (re.compile(r'NOT_FOUND: Key not found in map : "(.*)"'), r"no such key: \1"),
    (re.compile(r"UNKNOWN: Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"INVALID_ARGUMENT: divide by zero"), "division by zero"),
    (re.compile(r"UNKNOWN: No matching overloads found.*", re.DOTALL), "no such overload"),
    (re.compile(r"[A-Z_]+: (.*)", re.DOTALL), r"\1"),
)


def _as_the_api_server_says(text: str) -> str:
    """Say it in the words of the API server's library: the two are of one design."""
    for theirs, ours in _IN_OTHER_WORDS:
        if theirs.fullmatch(text):
            return theirs.sub(ours, text)
    return text
