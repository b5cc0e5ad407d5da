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
from typing import Any, NamedTuple

from dunnage.errors import ParameterError

CONFIDENCE = 0.999999
"""Of a lower bound, unless given: wrong once in a million."""
UNLIKELY = 1e-9
"""A p value below this says that draws do not follow a law: no check that is right fails by chance."""
_THRESHOLDS = 64  # about how many events of each kind are compared, in each direction
_ENOUGH_EXPECTED = 25.0  # from here on the chi-square law is close enough far out in its tail


class Event(NamedTuple):
    """A set of outputs: some of a list, or all numbers from one on, or up to one."""

    members: frozenset[Hashable] = frozenset()  # if they are listed
    least: float | None = None  # least, most: ends of a half-line of numbers, if they are not
    most: float | None = None

    def holds(self, output: Any) -> bool:
        if self.least is not None:
            return bool(output >= self.least)
        if self.most is not None:
            return bool(output <= self.most)
        return output in self.members

    def __str__(self) -> str:
        if self.least is not None:
            return f"outputs of at least {self.least:g}"
        if self.most is not None:
            return f"outputs of at most {self.most:g}"
        return f"{len(self.members)} output{'s' if len(self.members) != 1 else ''}"


class LowerBound(NamedTuple):
    epsilon: float  # 0 if the draws show nothing
    confidence: float
    event: Event  # what the two inputs were told apart by
    likely: float  # likely, unlikely: lower limit of the larger of its two probabilities, upper limit of the smaller
    unlikely: float
    num_drawn: int  # draws that measured it, of both inputs together


def lower_bound(
    one: Iterable[Any], other: Iterable[Any], *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Bound the loss between two inputs from below, by what was drawn for each."""
    if not (0 < confidence < 1 and 0 <= delta < 1):
        raise ParameterError("confidence must lie between 0 and 1, and delta from 0 to below 1. Use 0.999 and 0, say.")
    outputs = [draws.tolist() if hasattr(draws, "tolist") else list(draws) for draws in (one, other)]
    outputs = [[tuple(value) if isinstance(value, list) else value for value in values] for values in outputs]
    if min(map(len, outputs)) < 4:
        raise ParameterError("a lower bound needs at least four draws of each input. Draw more.")
    # Events are made up from a quarter of the draws and compared on another: the best of many sets of rare outputs
    # would else be the one that fits the noise best.
    making, comparing, measuring = (
        [Counter(values[len(values) * first // 4 : len(values) * last // 4]) for values in outputs]
        for first, last in ((0, 1), (1, 2), (2, 4))
    )

    def bounded(event: Event, likely: Counter[Any], unlikely: Counter[Any]) -> LowerBound:
        wrong = (1 - confidence) / 2  # each limit may be wrong as often
        hits = [sum(num for output, num in counts.items() if event.holds(output)) for counts in (likely, unlikely)]
        low = lower_limit(hits[0], likely.total(), wrong)
        high = upper_limit(hits[1], unlikely.total(), wrong)
        epsilon = max(math.log((low - delta) / high), 0.0) if low > delta else 0.0
        return LowerBound(epsilon, confidence, event, low, high, likely.total() + unlikely.total())

    best, best_order, best_epsilon = Event(), 0, -1.0
    for order in (0, 1):
        for event in _events(making[order], making[1 - order]):
            epsilon = bounded(event, comparing[order], comparing[1 - order]).epsilon
            if epsilon > best_epsilon:
                best, best_order, best_epsilon = event, order, epsilon
    return bounded(best, measuring[best_order], measuring[1 - best_order])


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
    sizes, seen = set(range(1, min(len(counts), 8) + 1)), 0
    for size, count in enumerate(counts, start=1):
        if (seen + count) * _THRESHOLDS // num > seen * _THRESHOLDS // num:
            sizes.add(size)
        seen += count
    return sorted(sizes)


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
    cells = [(observed.get(outcome, 0), mass) for outcome, mass in masses.items() if mass * num >= 5]
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
