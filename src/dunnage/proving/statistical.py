# SPDX-License-Identifier: Apache-2.0
"""What draws alone can say of a mechanism, taken as a box that is not opened.

:func:`lower_bound` bounds the loss between two inputs from below: half of the draws choose an event that tells the two
apart, the other half measures its two probabilities, with exact (Clopper-Pearson) limits. As the event is fixed before
it is measured, the bound is right with the stated confidence however the event was chosen. It can show that a claim
is wrong, and never that it is right. :func:`agrees` compares draws with a law that is known exactly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dunnage.errors import ParameterError

CONFIDENCE = 0.999999
"""Of a lower bound, unless told otherwise: wrong once in a million."""
UNLIKELY = 1e-9
"""A p value below this says that draws do not follow a law: no check that is right fails by chance."""
_THRESHOLDS = 64  # about how many events of each kind are compared, in each direction
_ENOUGH_EXPECTED = 25.0  # from here on the chi-square law is close enough far out in its tail


@dataclass(frozen=True)
class Event:
    """A set of outputs: some of a list, or all numbers from one on, or up to one."""

    members: frozenset[Hashable] = frozenset()  # The outputs, if they are listed
    least: float | None = None  # least, most: ends of a half-line of numbers, if they are not
    most: float | None = None

    def holds(self, output: Any) -> bool:
        if self.least is not None:
            return bool(output >= self.least)
        if self.most is not None:
            return bool(output <= self.most)
        return output in self.members

    def count(self, counts: Mapping[Any, int]) -> int:
        return sum(num for output, num in counts.items() if self.holds(output))

    def __str__(self) -> str:
        if self.least is not None:
            return f"outputs of at least {self.least:g}"
        if self.most is not None:
            return f"outputs of at most {self.most:g}"
        return f"{len(self.members)} output{'s' if len(self.members) != 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    epsilon: float  # The bound: 0 if the draws show nothing
    delta: float  # The delta that was granted
    confidence: float  # How sure the bound is
    event: Event  # What the two inputs were told apart by
    likely: float  # likely, unlikely: lower limit of the larger of its two probabilities, upper limit of the smaller
    unlikely: float
    num_drawn: int  # Draws that measured it, of both inputs together


def lower_bound(
    one: Iterable[Any], other: Iterable[Any], *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Bound the loss between two inputs from below, by what was drawn for each."""
    if not (0 < confidence < 1 and 0 <= delta < 1):
        raise ParameterError("confidence must lie between 0 and 1, and delta from 0 to below 1. Use 0.999 and 0, say.")
    draws = [_outputs(drawn) for drawn in (one, other)]
    if min(map(len, draws)) < 4:
        raise ParameterError("a lower bound needs at least four draws of each input. Draw more.")
    # Events are made up from a quarter of the draws and compared on another: the best of many sets of rare outputs
    # would else be the one that fits the noise best.
    making, comparing, measuring = (
        [Counter(drawn[len(drawn) * first // 4 : len(drawn) * last // 4]) for drawn in draws]
        for first, last in ((0, 1), (1, 2), (2, 4))
    )
    best, best_order, best_epsilon = Event(), 0, -1.0
    for order in (0, 1):
        for event in _events(making[order], making[1 - order]):
            found = _bounded(event, comparing[order], comparing[1 - order], delta, confidence).epsilon
            if found > best_epsilon:
                best, best_order, best_epsilon = event, order, found
    return _bounded(best, measuring[best_order], measuring[1 - best_order], delta, confidence)


def _outputs(drawn: Iterable[Any]) -> list[Any]:
    values = drawn.tolist() if hasattr(drawn, "tolist") else list(drawn)
    return [tuple(value) if isinstance(value, list) else value for value in values]


def _events(likely: Counter[Any], unlikely: Counter[Any]) -> Iterator[Event]:
    """Yield sets of the outputs with the largest ratios, and half-lines if outputs are numbers."""
    num = likely.total()

    def ratio(output: Any) -> float:
        # Half a draw more on both sides keeps an output that was seen once from being the best of all.
        return (likely[output] + 0.5) / (unlikely[output] + 0.5)

    ordered = sorted(likely, key=ratio, reverse=True)
    for size in _sizes([likely[output] for output in ordered], num):
        yield Event(members=frozenset(ordered[:size]))
    if all(isinstance(output, int | float) for output in (*likely, *unlikely)):
        rising = sorted(likely)
        for size in _sizes([likely[output] for output in rising], num):
            yield Event(most=rising[size - 1])
            yield Event(least=rising[-size])


def _sizes(counts: Sequence[int], num: int) -> list[int]:
    """Return after how many outputs to cut: evenly by number of draws, and after the first few in any case."""
    found, seen = set(range(1, min(len(counts), 8) + 1)), 0
    for size, count in enumerate(counts, start=1):
        if (seen + count) * _THRESHOLDS // num > seen * _THRESHOLDS // num:
            found.add(size)
        seen += count
    return sorted(found)


def _bounded(event: Event, likely: Counter[Any], unlikely: Counter[Any], delta: float, confidence: float) -> LowerBound:
    wrong = (1 - confidence) / 2  # each limit may be wrong as often
    low = lower_limit(event.count(likely), likely.total(), wrong)
    high = upper_limit(event.count(unlikely), unlikely.total(), wrong)
    epsilon = math.log((low - delta) / high) if low > delta else 0.0
    return LowerBound(
        epsilon=max(epsilon, 0.0),
        delta=delta,
        confidence=confidence,
        event=event,
        likely=low,
        unlikely=high,
        num_drawn=likely.total() + unlikely.total(),
    )


def lower_limit(successes: int, num: int, wrong: float) -> float:
    """Return what a probability exceeds, but for a chance of ``wrong`` (Clopper and Pearson)."""
    from scipy.special import betaincinv

    return float(betaincinv(successes, num - successes + 1, wrong)) if successes else 0.0


def upper_limit(successes: int, num: int, wrong: float) -> float:
    """Return what a probability stays below, but for a chance of ``wrong`` (Clopper and Pearson)."""
    return 1.0 - lower_limit(num - successes, num, wrong)


def agrees(observed: Mapping[Any, int], masses: Mapping[Any, float]) -> float:
    """Return how likely it is that draws of a law lie as far off as these do: the p value.

    An exact test of each outcome that is likely enough by itself, and of all others together, is combined with a
    chi-square test of those that are common enough for it.
    """
    num = sum(observed.values())
    rest = max(0.0, 1.0 - math.fsum(masses.values()))
    if num == 0:
        return 1.0
    if rest < UNLIKELY / num and any(count and not masses.get(outcome) for outcome, count in observed.items()):
        return 0.0  # an outcome that the law does not have
    alone = [outcome for outcome, mass in masses.items() if mass * num >= 5]
    cells = [(observed.get(outcome, 0), masses[outcome]) for outcome in alone]
    pooled = max(0.0, 1.0 - math.fsum(mass for _, mass in cells))
    cells.append((num - sum(count for count, _ in cells), pooled))
    return min(1.0, 2 * min(_exactly(cells, num), _chi_square(cells, num)))


def _exactly(cells: Sequence[tuple[int, float]], num: int) -> float:
    """Test each count by itself with the binomial law, and take the least p value times their number."""
    from scipy.special import bdtr, bdtrc

    def pvalue(count: int, mass: float) -> float:
        mass = min(mass, 1.0)
        above = bdtrc(count - 1, num, mass) if count else 1.0
        return float(2 * min(bdtr(count, num, mass), above))

    return min(1.0, len(cells) * min(pvalue(count, mass) for count, mass in cells))


def _chi_square(cells: Sequence[tuple[int, float]], num: int) -> float:
    """Test all common outcomes together, all others being one."""
    from scipy.special import chdtrc

    common = [cell for cell in cells if cell[1] * num >= _ENOUGH_EXPECTED]
    count, mass = (sum(column) for column in zip(*common, strict=True)) if common else (0, 0.0)
    if (1 - mass) * num >= _ENOUGH_EXPECTED:
        common.append((num - count, 1 - mass))
    elif common:  # too few others to test: what is left are the proportions among the common ones
        num, common = count, [(each, share / mass) for each, share in common]
    if len(common) < 2 or not num:
        return 1.0
    statistic = sum((count - mass * num) ** 2 / (mass * num) for count, mass in common)
    return float(chdtrc(len(common) - 1, statistic))
