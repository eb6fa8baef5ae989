"""Kubernetes quantities ("500m", "8Gi", "1e3") as exact numbers. Pure arithmetic; no rounding but where asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering

from remuda.model.errors import BadInput

_SHAPE = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[a-zA-Z]{0,2}))"
)
_BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip
_SCALES = _BINARY | _DECIMAL


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of CPU, memory or of a counted resource. ``str`` gives back a spelling that parses to the same."""

    amount: Fraction

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.amount + other.amount)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.amount - other.amount)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.amount * times)

    def __lt__(self, other: Quantity) -> bool:
        return self.amount < other.amount

    def __bool__(self) -> bool:
        return self.amount != 0

    def ceil(self) -> int:
        """Round up to a whole number, as Kubernetes does where it needs one: bytes, VMs, Pods."""
        return -(-self.amount.numerator // self.amount.denominator)

    @property
    def milli(self) -> int:
        """Thousandths, rounded up: how CPU is counted."""
        return Quantity(self.amount * 1000).ceil()

    def __str__(self) -> str:
        if self.amount.denominator == 1:
            return _whole(self.amount.numerator)
        for suffix in ("m", "u", "n"):
            scaled = self.amount / _DECIMAL[suffix]
            if scaled.denominator == 1:
                return f"{scaled.numerator}{suffix}"
        # Kubernetes keeps no more than nanos and rounds up.
        return f"{Quantity(self.amount * 10**9).ceil()}n"


def _whole(number: int) -> str:
    for suffix in reversed(_BINARY):
        size = int(_BINARY[suffix])
        if number and number % size == 0:
            return f"{number // size}{suffix}"
    return str(number)


ZERO = Quantity(Fraction(0))


def parse_quantity(text: str | int) -> Quantity:
    """Read a quantity as an object spells it. Raises BadInput on anything else."""
    if isinstance(text, int):
        return Quantity(Fraction(text))
    match = _SHAPE.fullmatch(text)
    scale = _SCALES.get(match["suffix"] or "") if match else None
    if match is None or scale is None:
        raise BadInput(
            f"{text!r} is not a quantity",
            why="a quantity is a number with a unit of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi or Ei, or with"
            " a decimal exponent",
            fix='Write it like "4", "500m" or "8Gi"',
        )
    return Quantity(Fraction(match["number"]) * scale * Fraction(10) ** int(match["exponent"] or 0))
