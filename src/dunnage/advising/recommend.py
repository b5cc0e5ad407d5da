# SPDX-License-Identifier: Apache-2.0
"""Recommending: which point keeps to what the owner asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dunnage.advising.frontier import Limit, Point
from dunnage.errors import ParameterError
from dunnage.text import large_percent

DEFAULT_MAX_COST = 0.05
_SHARE = re.compile(r"^\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<end>%|/\s*(?P<below>[1-9]\d*)|)\s*$")


def share_of(given: str | float | Fraction, what: str, *, most: float = float("inf")) -> float:
    """Read ``5%``, ``1/20`` or ``0.05``.

    Examples
    --------
    >>> share_of("5%", "max_cost"), share_of("1/20", "max_risk"), share_of("0.05", "max_cost"), share_of(0, "max_cost")
    (0.05, 0.05, 0.05, 0.0)
    """
    found = _SHARE.match(str(given))
    if found is None:
        raise ParameterError(f"{what} must be a share: 5%, 1/20 or 0.05. Got {str(given)[:20]!r}. Write one of these.")
    number = Fraction(found["number"])
    value = float(number / 100 if found["end"] == "%" else number / int(found["below"] or 1))
    if value > most:
        raise ParameterError(f"{what} must be {most:g} at most. Got {str(given)[:20]!r}. Write 5%, say, or 0.05.")
    return value


def limit_of(
    max_cost: str | float | None, max_risk: str | float | None, default_max_cost: float = DEFAULT_MAX_COST
) -> Limit:
    """Read what was asked for; if nothing was, at most so much cost."""
    if max_cost is None and max_risk is None:
        return Limit(max_cost=default_max_cost, asked=False)
    return Limit(
        max_cost=None if max_cost is None else share_of(max_cost, "max_cost"),
        max_risk=None if max_risk is None else share_of(max_risk, "max_risk", most=1.0),
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The point that was chosen."""

    point: Point | None  # It; None if there is none
    meets_limit: bool  # Whether it keeps to the limit, the upper ends of its intervals included


def choose(points: Sequence[Point], limit: Limit) -> Choice:
    """Choose a point: with a limit on the cost that of least risk, with one on the risk alone that of least cost.

    Guarantees that are proved come before those that are only claimed; one that is void is never chosen. One whose plan
    overloads many trucks is chosen only if there is no other, and so is one that hardly protects anybody, if there is
    no limit on the risk. If no point keeps to the limit, the one that comes closest to it is chosen.
    """
    promising = [point for point in points if point.basis != "void"]
    kept = [point for point in promising if not point.mended] or promising
    usable = [point for point in kept if limit.max_risk is not None or not point.weak] or kept
    for basis in ("proved", "claimed"):
        fitting = [point for point in usable if point.basis == basis and _excess(point, limit) <= 0]
        if fitting:
            return Choice(point=min(fitting, key=lambda point: _preference(point, limit)), meets_limit=True)
    proved = [point for point in usable if point.basis == "proved"] or usable
    if not proved:
        return Choice(point=None, meets_limit=False)
    return Choice(
        point=min(proved, key=lambda point: (_excess(point, limit), *_preference(point, limit))), meets_limit=False
    )


def _excess(point: Point, limit: Limit) -> float:
    """Return by how much the upper ends of a point are beyond the limit."""
    pairs = ((point.cost, limit.max_cost), (point.risk, limit.max_risk))
    return sum(max(measure.upper - most, 0.0) for measure, most in pairs if most is not None)


def _preference(point: Point, limit: Limit) -> tuple[float, float]:
    first, second = (point.risk, point.cost) if limit.max_cost is not None else (point.cost, point.risk)
    return first.value, second.value


def wish(limit: Limit, cost_unit: str, risk_name: str) -> str:
    """Say what was asked for: ``at most 5 % more trucks``."""
    parts: Iterable[str] = (
        *([f"at most {large_percent(limit.max_cost)} {cost_unit}"] if limit.max_cost is not None else []),
        *([f"{risk_name} of at most {large_percent(limit.max_risk)}"] if limit.max_risk is not None else []),
    )
    return " and ".join(parts)
