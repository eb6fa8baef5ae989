"""How a program of the scripted Mac ends when it does not end well."""

from __future__ import annotations


class Exit(Exception):
    """A program ends with this code, after saying this."""

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(said)
        self.code, self.said = code, said
