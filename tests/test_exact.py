# SPDX-License-Identifier: Apache-2.0
"""Numbers are read as written, and written such that they are read the same again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal, refused

from dunnage.errors import ParameterError
from dunnage.exact import decimal_text, exact, nearest_float, plain, shown, shown_number

TENTH = Fraction(1, 10)


def test_what_is_read() -> None:
    for value in (0.1, "0.1", " 0.1 ", "1e-1", "1/10", "+.1", Decimal("0.10"), TENTH, np.float64(0.1)):
        assert exact(value) == TENTH
    for value in (np.int64(3), np.uint8(3), np.float32(3), np.float16(3)):
        number = exact(value)  # type: ignore[arg-type]
        assert number == 3
        assert type(number.numerator) is type(number.denominator) is int
    assert exact(np.float32(0.1)) == Fraction("0.10000000149011612")  # type: ignore[arg-type]
    most = 10**700 - 1
    for number in (Fraction(most), Fraction(-most), Fraction(1, most), Fraction(-most, most - 1)):
        assert exact(number) == exact(plain(number)) == exact(f"{number.numerator}/{number.denominator}") == number
    assert exact("1e-699") == Fraction(1, 10**699)
    assert exact(1.7976931348623157e308) + exact(5e-324) == exact(exact(1.7976931348623157e308) + exact(5e-324))


@given(st.integers())
def test_integers(value: int) -> None:
    assert exact(value) == exact(str(value)) == exact(Decimal(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_by_shortest_text(value: float) -> None:
    number = exact(value)
    assert number == Fraction(Decimal(repr(value))) == exact(repr(value)) == exact(np.float64(value))
    assert float(number) == value
    assert type(plain(number)) is (int if number.denominator == 1 else float)
    assert float(plain(number)) == value


@given(st.decimals(-(10**20), 10**20, places=9))
def test_decimals(value: Decimal) -> None:
    assert exact(value) == exact(str(value)) == Fraction(value)


REFUSED: list[Any] = [True, False, np.True_, None, 1j, math.nan, math.inf, -math.inf, np.float64(math.nan)]
REFUSED += [Decimal("nan"), Decimal("snan"), Decimal("-inf"), "nan", "inf", "ten", "", "1/0", "1/2/3", "0.5/2", "1e5/2"]
REFUSED += [[1], b"1", np.array(1)]
ENDLESS: list[Any] = ["1e999999999", "-1e999999999", "1e-999999999", "0e999999999", Decimal("1e999999")]
ENDLESS += [Decimal("1e-999999"), "9" * 10**6, "1/" + "9" * 10**6, "0." + "1" * 10**6, "9" * 701, "1/" + "9" * 701]
ENDLESS += [10**701, -(10**20_000), Fraction(1, 10**5000)]


def test_what_is_refused(within: Callable[..., Any]) -> None:
    for value in REFUSED:
        refused(lambda value: exact(value, what="epsilon"), [value], "epsilon", str(value))
    for value in ENDLESS:
        with within(1):  # though very long
            assert len(str(refusal(ParameterError, exact, value))) < 200


@settings(max_examples=300)
@given(
    st.fractions()
    | st.integers(-(10**699), 10**699).map(Fraction)
    | st.builds(Fraction, st.integers(-(10**699), 10**699), st.integers(1, 10**699))
    | st.builds(lambda digits, places: Fraction(digits, 10**places), st.integers(), st.integers(0, 400))
)
def test_plain_round_trip(value: Fraction) -> None:
    written = json.loads(json.dumps(plain(value), allow_nan=False))
    assert exact(written) == value
    assert isinstance(written, int) == (value.denominator == 1)


def test_plain() -> None:
    for value, written in (
        (Fraction(3), 3),
        (Fraction(-1, 4), -0.25),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 10**400), f"1/{10**400}"),
        (Fraction(10**400, 3), f"{10**400}/3"),
        (Fraction(0.1), "3602879701896397/36028797018963968"),
    ):
        assert plain(value) == written
        assert type(plain(value)) is type(written)


def test_decimal_text() -> None:
    for value, text in (
        (Fraction(0), "0"),
        (TENTH, "0.1"),
        (Fraction(-5, 2), "-2.5"),
        (Fraction(1, 10**7), "1e-07"),
        (Fraction(10**19), "1" + "0" * 19),
        (Fraction(1, 3), "about 0.333333"),
        (Fraction(-200, 3), "about -66.6667"),
        (Fraction(10**20 + 1), "about 1.00000e+20"),
        (Fraction(10**400, 3), "about 3.33333e+399"),
        (Fraction(1, 3 * 10**400), "about 3.33333e-401"),
    ):
        assert decimal_text(value) == text
    assert (decimal_text(Fraction(2, 3), digits=2), decimal_text(Fraction(1, 8), digits=2)) == ("about 0.67", "0.125")
    for value, nearest in ((TENTH, 0.1), (10**400, math.inf), (-(10**400), -math.inf), (Fraction(1, 10**400), 0.0)):
        assert nearest_float(Fraction(value)) == nearest
    assert [shown_number(Fraction(n)) for n in ("3", "0.1", "-1/3")] == ["3", "0.1", "-1/3"]
    assert shown_number(Fraction(10**59)) == "1" + "0" * 59
    assert shown_number(Fraction(10**60)) == "about 1.00000e+60"
    assert shown_number(Fraction(1, 3 * 10**60)) == "about 3.33333e-61"
    assert (shown("ten"), shown("9" * 58)) == ("'ten'", "'" + "9" * 58 + "'")
    assert shown("9" * 59) == "'" + "9" * 56 + "..."
    assert len(shown(-(10**5000))) < 60


@given(st.fractions())
def test_decimal_text_is_short_and_near(value: Fraction) -> None:
    text = decimal_text(value)
    about = text.startswith("about ")
    near = Fraction(Decimal(text.removeprefix("about ")))
    assert near == value or (about and abs(near - value) <= abs(value) / 10**5)
    assert len(text) <= 26
