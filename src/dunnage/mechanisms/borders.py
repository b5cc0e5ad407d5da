# SPDX-License-Identifier: Apache-2.0
"""Borders: cut one attribute into classes whose upper bounds pack into few bins of a stated capacity.

A heuristic. Cutting a class in two raises no upper bound, so only classes that cannot be cut into two of k need to be
looked at; where there are few such partitions, all are tried. Otherwise dynamic programs propose some: each minimises a
price per record that rises with its upper bound, and different prices suit different mixes of large and small items
(they are the dual feasible functions of bin packing, which bound the number of bins from below). Borders of the best
are then moved one at a time. The partition of least loss is always a candidate.

Bins are counted by dominance, best fit decreasing and subset sums: no clock, so the same records give the same borders.
A record that is suppressed, or whose upper bound exceeds the capacity, travels alone and counts as a bin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import l2_bound
from dunnage.bins.scalar import best_fit_decreasing, fill_by_subset_sums, fix_dominated

Borders = tuple[tuple[int, int], ...]
"""For each class its first run and the run after its last."""

MOST_PACKED = 200_000
"""Items packed in all while candidates are compared."""
FEWEST_COMPARED = 4
MOST_SHIFT = 3
LARGEST_PERIOD = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class Loads:
    """Runs of equal records of one stratum, in order, as a packer will see them."""

    items: IntArray  # Upper bound of each run, in whole numbers
    capacity: int  # Capacity of a bin, in the same unit
    before: IntArray  # Number of records before each run, and in all
    lower: FloatArray  # lower, upper: ends of each run, for the loss
    upper: FloatArray
    k: int  # Fewest records of a class
    price: float  # What suppressing one record costs, in units of width

    @property
    def num_records(self) -> int:
        """Number of records."""
        return int(self.before[-1])

    def loss(self, borders: Borders) -> float:
        """Return eq. 7 over all records, before division by the width of the domain."""
        begins, ends = np.array(borders, dtype=np.int64).reshape(-1, 2).T
        sizes = self.before[ends] - self.before[begins]
        widths = self.upper[ends - 1] - self.lower[begins]
        return float(sizes @ widths) + self.price * (self.num_records - int(sizes.sum()))

    def num_bins(self, borders: Borders) -> int:
        """Count the bins that the classes' upper bounds need, and one for each record that travels alone."""
        begins, ends = np.array(borders, dtype=np.int64).reshape(-1, 2).T
        sizes, items = self.before[ends] - self.before[begins], self.items[ends - 1]
        fits = items <= self.capacity
        alone = self.num_records - int(sizes[fits].sum())
        return alone + count_bins(np.repeat(items[fits], sizes[fits]), self.capacity)

    def begins(self, end: int) -> range:
        """Return where a class that ends before this run may begin: k records, and not enough for two classes."""
        last = int(np.searchsorted(self.before, self.before[end] - self.k, side="right")) - 1
        if last < 0:
            return range(0)
        return range(int(np.searchsorted(self.before, self.before[last] - self.k, side="right")), last + 1)


def count_bins(items: IntArray, capacity: int) -> int:
    """Count bins by dominance, best fit decreasing and, if these leave a gap to the bound, subset sums.

    Examples
    --------
    >>> count_bins(np.array([6, 5, 4, 3, 2]), 10)
    2
    """
    positive = items[items > 0]
    fixed, rest = fix_dominated(positive, list(range(len(positive))), capacity)
    if not rest:
        return max(len(fixed), min(1, len(items)))
    num = len(best_fit_decreasing(positive, rest, capacity))
    if num > l2_bound(positive[rest], capacity):
        order = sorted(rest, key=positive.tolist().__getitem__, reverse=True)
        num = min(num, len(fill_by_subset_sums(positive, order, capacity) or rest))
    return len(fixed) + num


def best_borders(loads: Loads, least_loss: Borders, *, most_packed: int = MOST_PACKED) -> Borders:
    """Choose the borders whose upper bounds need the fewest bins, then those that lose least."""
    comparison = _Comparison(loads, max(FEWEST_COMPARED, most_packed // loads.num_records))
    comparison.offer(least_loss)
    comparison.climb()
    if _num_partitions(loads) <= comparison.left:
        for borders in _partitions(loads):
            comparison.offer(borders)
    else:
        for price in _prices():
            if comparison.left > 0:
                comparison.offer(_cheapest(loads, price))
    comparison.climb()
    return comparison.best


@dataclass
class _Comparison:
    """The best borders so far and how many more may be compared."""

    loads: Loads
    left: int
    best: Borders = ()
    _key: tuple[float, float] = (math.inf, math.inf)
    _seen: set[Borders] = field(default_factory=set)

    def offer(self, borders: Borders | None) -> bool:
        """Compare; tell whether the borders are better than all before."""
        if borders is None or borders in self._seen or self.left <= 0:
            return False
        self.left -= 1
        self._seen.add(borders)
        key = (self.loads.num_bins(borders), self.loads.loss(borders))
        if key < self._key:
            self.best, self._key = borders, key
            return True
        return False

    def climb(self) -> None:
        """Move one border of the best at a time as long as that helps."""
        while self.left > 0 and any(self.offer(moved) for moved in _moves(self.loads, self.best)):
            continue


def _num_partitions(loads: Loads) -> int:
    """Count the partitions without suppression into classes that cannot be cut in two."""
    ways = [1] + [0] * len(loads.items)
    for end in range(1, len(ways)):
        ways[end] = min(MOST_PACKED, sum(ways[begin] for begin in loads.begins(end)))
    return ways[-1]


def _partitions(loads: Loads) -> Iterator[Borders]:
    """List them, from the last class to the first."""
    waiting: list[tuple[int, Borders]] = [(len(loads.items), ())]
    while waiting:
        end, after = waiting.pop()
        if end == 0:
            yield after
        waiting += [(begin, ((begin, end), *after)) for begin in loads.begins(end)]


def _prices() -> Iterator[Callable[[FloatArray], FloatArray]]:
    """Give prices of a record by the share of a bin that its upper bound takes."""
    yield lambda share: 1 / np.floor(1 / np.maximum(share, 1e-9))  # as many as fit of the same
    yield lambda share: share
    yield lambda share: share + 1 / np.floor(1 / np.maximum(share, 1e-9))
    for period in range(1, LARGEST_PERIOD + 1):  # Fekete and Schepers 2001, u^(period)
        yield lambda share, period=period: np.where(  # type: ignore[misc]
            (period + 1) * share % 1 == 0, share, np.floor((period + 1) * share) / period
        )
    for threshold in (1 / 3, 1 / 4, 1 / 5, 1 / 8):
        yield lambda share, threshold=threshold: np.where(  # type: ignore[misc]
            share > 1 - threshold, 1.0, np.where(share < threshold, 0.0, share)
        )


def _cheapest(loads: Loads, price: Callable[[FloatArray], FloatArray]) -> Borders | None:
    """Minimise the sum of prices over partitions into classes that cannot be cut in two; None if there is none."""
    share = np.minimum(loads.items / loads.capacity, 1.0)
    width = max(float(loads.upper[-1] - loads.lower[0]), np.finfo(float).tiny)
    paid = price(share)
    best = np.append(0.0, np.full(len(share), np.inf))
    previous = np.zeros(len(share) + 1, dtype=np.int64)
    for end in range(1, len(share) + 1):
        begins = loads.begins(end)
        if len(begins):
            window = slice(begins.start, begins.stop)
            # A little of the loss decides where prices are equal.
            each = paid[end - 1] + 1e-6 * (loads.upper[end - 1] - loads.lower[window]) / width
            costs = best[window] + (loads.before[end] - loads.before[window]) * each
            at = int(np.argmin(costs))
            best[end], previous[end] = costs[at], begins[at]
    if not math.isfinite(best[-1]):
        return None
    ends = [len(share)]
    while ends[-1] > 0:
        ends.append(int(previous[ends[-1]]))
    return tuple(itertools.pairwise(ends[::-1]))


def _moves(loads: Loads, borders: Borders) -> Iterator[Borders]:
    """Move one border between neighbouring classes by a few runs, as long as both keep k records."""
    for at, shift in itertools.product(range(1, len(borders)), range(-MOST_SHIFT, MOST_SHIFT + 1)):
        (first, end), (begin, last) = borders[at - 1], borders[at]
        moved = begin + shift
        if shift == 0 or end != begin or not first < moved < last:
            continue
        rows = loads.before
        if min(rows[moved] - rows[first], rows[last] - rows[moved]) >= loads.k:
            yield (*borders[: at - 1], (first, moved), (moved, last), *borders[at + 1 :])
