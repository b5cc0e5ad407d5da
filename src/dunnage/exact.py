# SPDX-License-Identifier: Apache-2.0
"""Decimal numbers as exact fractions, and back into JSON or text without losing a digit.

A parameter written ``0.1`` means one tenth, not the nearest double. Every number that a guarantee depends on is a
:class:`fractions.Fraction` from the moment it is read.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from numbers import Rational, Real

from dunnage.errors import ParameterError

_MAX_DIGITS = 700  # enough for the sum of any two doubles
_MAX_SHOWN = 60
_WITH_ROWS = ("pandas", "polars", "pyarrow", "numpy", "pyspark", "duckdb", "dunnage")
# Python also reads 1_000, digits of other scripts, and control characters as blanks; nobody else does.
_WHOLE = re.compile(r"[ \t]*(\d{1,18})[ \t]*", re.ASCII)
_DECIMAL = re.compile(r"[ \t]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t]*", re.ASCII)
_RATIO = re.compile(r"[ \t]*[+-]?\d+/\d+[ \t]*", re.ASCII)
Exact = int | str | Decimal | Fraction | float
"""Accepted forms of a public number; a float means the decimal that it prints as."""
Json = bool | int | float | str | None | list["Json"] | dict[str, "Json"]  # plain data that JSON can contain


def exact(value: Exact, *, what: str = "a number") -> Fraction:
    """Read a number as the exact fraction that its decimal text stands for."""
    try:
        return _read(value)
    except (TypeError, ValueError, ArithmeticError):
        raise ParameterError(
            f"{what} must be a finite number. Got {shown(value)}. Write it like 500, 0.1 or '1/3'."
        ) from None


def whole(text: str) -> int | None:
    """Read a whole number of at least 0 from the text of a file or an option; None if it is none."""
    match = _WHOLE.fullmatch(text)
    return int(match[1]) if match else None


def decimal(text: str) -> float:
    """Read a number from the text of a file or an option; NaN if it is none, infinite if no double is as large."""
    match = _DECIMAL.fullmatch(text)
    return float(match[1]) if match else math.nan


def share(value: Exact, *, what: str = "a share") -> Fraction:
    """Read a share as an exact fraction: ``0.05``, ``1/20`` or ``5%``."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        return _read(text.removesuffix("%").strip()) / 100 if text.endswith("%") else _read(value)
    except (TypeError, ValueError, ArithmeticError):
        raise ParameterError(f"{what} must be a share, such as 5%, 1/20 or 0.05. Got {shown(value)}.") from None


def _read(value: object) -> Fraction:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, Rational):
        number = Fraction(int(value.numerator), int(value.denominator))
    elif isinstance(value, Real):
        number = _read_text(repr(float(value)))
    else:
        number = _read_text(str(value) if isinstance(value, Decimal) else value)
    if max(abs(number.numerator), number.denominator) >= 10**_MAX_DIGITS:
        raise ValueError
    return number


def _read_text(text: object) -> Fraction:
    """Read a decimal or "p/q"; an absurd number (10^1000) is refused, not expanded."""
    if not isinstance(text, str) or len(text) > 2 * _MAX_DIGITS + 2:
        raise TypeError
    if _RATIO.fullmatch(text):
        return Fraction(text)
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS:
        raise ValueError
    return Fraction(number)


def nearest_float(value: Fraction) -> float:
    """Return the nearest double; infinite beyond the largest one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def plain(value: Fraction) -> int | float | str:
    """Write a fraction for JSON: a whole number, a decimal, or else the text "p/q"."""
    if value.denominator == 1:
        return value.numerator
    nearest = nearest_float(value)
    same = math.isfinite(nearest) and Fraction(Decimal(repr(nearest))) == value
    return nearest if same else f"{value.numerator}/{value.denominator}"


def decimal_text(value: Fraction, *, digits: int = 6, up: bool = False) -> str:
    """Write a fraction for people: exact if it is short, else rounded (a bound: up) and marked with "about"."""
    number = plain(value)
    if not isinstance(number, str) and len(str(number)) <= 20:
        return str(number)
    rounding = ROUND_CEILING if up else ROUND_HALF_EVEN
    rounded = Context(prec=digits, rounding=rounding).divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"about {rounded:g}"


def bounded_text(value: Fraction, *, up: bool, digits: int = 3) -> str:
    """Write a bound with some digits that are still a bound: never below it (``up``), or never above it."""
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    number = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize()
    return f"{number:f}" if number.adjusted() >= -6 else f"{number:g}"


def shown(value: object) -> str:
    """Write a public value for an error message, shortened if necessary; of a frame or another object only its type."""
    # Somebody who mixes up arguments may have passed rows: their repr would show the first ones.
    of_frames = type(value).__module__.partition(".")[0] in _WITH_ROWS and not isinstance(value, str)
    if of_frames and getattr(value, "shape", None) != ():
        return f"a {type(value).__name__}"
    try:
        text = str(value) if isinstance(value, Decimal) else repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        text = "a very long number"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def shown_number(value: Fraction) -> str:
    """Write a number for an error message in a form that can be read back: 0.1, 3, 1/3; rounded only if very long."""
    text = str(plain(value))
    return text if len(text) <= _MAX_SHOWN else decimal_text(value)
