from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.quantity import ZERO, Quantity, parse_quantity
from remuda.model.errors import BadInput


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        pytest.param("4", Fraction(4), id="a plain number"),
        pytest.param(4, Fraction(4), id="a number that YAML read as one"),
        pytest.param("500m", Fraction(1, 2), id="thousandths"),
        pytest.param("0.5", Fraction(1, 2), id="a decimal fraction"),
        pytest.param(".5", Fraction(1, 2), id="a fraction without its zero"),
        pytest.param("5.", Fraction(5), id="a point without a fraction"),
        pytest.param("8Gi", Fraction(8 * 1024**3), id="binary giga"),
        pytest.param("8G", Fraction(8 * 10**9), id="decimal giga"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="half a binary unit"),
        pytest.param("64k", Fraction(64_000), id="decimal kilo is small"),
        pytest.param("64Ki", Fraction(65_536), id="binary kilo is capital"),
        pytest.param("1e3", Fraction(1000), id="an exponent"),
        pytest.param("1E3", Fraction(1000), id="an exponent in capitals"),
        pytest.param("2E", Fraction(2 * 10**18), id="a capital E without digits is exa"),
        pytest.param("1e-3", Fraction(1, 1000), id="a negative exponent"),
        pytest.param("-1", Fraction(-1), id="a negative number"),
        pytest.param("+1", Fraction(1), id="a plus sign"),
        pytest.param("100n", Fraction(1, 10**7), id="nanos"),
        pytest.param("7u", Fraction(7, 10**6), id="micros"),
        pytest.param("1Ei", Fraction(1024**6), id="exbi"),
        pytest.param("0.1", Fraction(1, 10), id="a tenth is exact"),
    ],
)
def test_quantities_are_read_exactly(text: str | int, amount: Fraction) -> None:
    assert parse_quantity(text) == Quantity(amount)


@pytest.mark.parametrize(
    "text",
    ["", "x", "Gi", "1K", "1gi", "1 Gi", " 1", "1\n", "1Gi5", "1e", "1e3Gi", "1.2.3", "--1", "1mm", "٣", "1e99999",
     "NaN", "inf"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a quantity"):
        parse_quantity(text)


def test_quantities_compare_and_add_across_units() -> None:
    assert parse_quantity("1024Mi") == parse_quantity("1Gi")
    assert parse_quantity("1G") < parse_quantity("1Gi")
    assert parse_quantity("500m") + parse_quantity("1.5") == parse_quantity("2")
    assert parse_quantity("2") - parse_quantity("500m") == parse_quantity("1500m")
    assert parse_quantity("500m") * 3 == parse_quantity("1.5")
    assert max(parse_quantity("9"), parse_quantity("10")) == parse_quantity("10")
    assert sum([parse_quantity("1"), parse_quantity("2")], ZERO) == parse_quantity("3")
    assert not ZERO


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [("500m", 1, 500), ("2", 2, 2000), ("1n", 1, 1), ("0", 0, 0), ("-500m", 0, -500)],
)
def test_rounding_goes_up(text: str, whole: int, milli: int) -> None:
    assert parse_quantity(text).ceil() == whole
    assert parse_quantity(text).milli == milli


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("8Gi", "8Gi"),
        ("1024Mi", "1Gi"),
        ("1e3", "1000"),
        ("0.5", "500m"),
        ("4", "4"),
        ("0", "0"),
        ("1e-10", "1n"),
    ],
)
def test_a_quantity_prints_in_its_shortest_spelling(text: str, printed: str) -> None:
    assert str(parse_quantity(text)) == printed


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "u", "k", "M", "Ki", "Gi"]))
def test_what_is_printed_reads_back_the_same(number: int, unit: str) -> None:
    quantity = parse_quantity(f"{number}{unit}")

    assert parse_quantity(str(quantity)) == quantity
