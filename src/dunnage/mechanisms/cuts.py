# SPDX-License-Identifier: Apache-2.0
"""Cuts: single-dimensional partitions of several numeric attributes at once, improved one attribute at a time.

Each attribute is cut into intervals of its values; classes are the cells of the product that hold records, and a cell
of fewer than k records is suppressed (Hoogervorst et al. 2019, Definition 3 and eq. 7). A class shows, and pays for,
its own extremes in each attribute.

With the cuts of all other attributes fixed, records fall into groups that no cut of this one can join. What an interval
of this attribute costs is then a sum over groups and depends on no other interval, so the best cuts of one attribute
are an exact dynamic program. Going from attribute to attribute never raises the loss; it ends in cuts that no change of
a single attribute improves, from several starts. :mod:`dunnage.mechanisms.branching` proves such cuts best, or says how
far from it they may be.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import kernel

Cuts = tuple[IntArray, ...]
"""For each attribute the piece that each interval begins with; the first is always 0."""

MOST_PIECES = 1024
MOST_STEPS = 2 * 10**7
RECORDS_PER_CELL = (1.5, 2, 2.5, 4)
MANY_STARTS_TO_POINTS = 500
MOST_SUBSETS = 24
TOLERANCE = 1e-9
"""Share of a loss that sums in floating point are trusted to; bounds are lowered by it."""
COMPILE_FROM_RECORDS = 24


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """The records of one stratum, equal ones taken together, in an order that follows from their values alone."""

    lower: FloatArray  # lower, upper: for each point and attribute the smallest interval it may be released as
    upper: FloatArray
    counts: IntArray  # Number of records of each point
    # For each point and attribute which piece of the attribute it lies in: between two pieces a cut is possible
    piece: IntArray
    factor: FloatArray  # What a unit of width costs in each attribute: importance divided by the width of the domain
    k: int  # Fewest records of a class
    price: float  # What suppressing one record costs
    compiled: bool  # Whether there is enough to do for compiling to pay

    @classmethod
    def of(cls, values: FloatArray, lower: FloatArray, upper: FloatArray, **costs: Any) -> tuple[Points, IntArray]:
        """Take equal records together; return the points, and which of them each record is.

        ``values``, ``lower`` and ``upper`` have one row a record and one column an attribute.
        """
        _, first, point_of, counts = np.unique(
            values, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        weights = counts.astype(np.int64)
        columns = [pieces(column, weights) for column in values[first].T]
        points = cls(lower=lower[first], upper=upper[first], counts=weights, piece=np.column_stack(columns), **costs)
        return points, np.asarray(point_of, dtype=np.int64).reshape(-1)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.counts)

    @property
    def num_attributes(self) -> int:
        """Number of attributes."""
        return len(self.factor)

    @functools.cached_property
    def num_pieces(self) -> tuple[int, ...]:
        """Number of pieces of each attribute."""
        return tuple((self.piece.max(axis=0) + 1).tolist())

    @functools.cached_property
    def in_order(self) -> tuple[tuple[IntArray, IntArray], ...]:
        """For each attribute the points by piece, and where each piece begins among them."""
        columns = self.piece.T
        orders = [np.argsort(column, kind="stable") for column in columns]
        firsts = [
            np.searchsorted(column[order], np.arange(num + 1))
            for column, order, num in zip(columns, orders, self.num_pieces, strict=True)
        ]
        return tuple(zip(orders, firsts, strict=True))


def pieces(values: FloatArray, counts: IntArray) -> IntArray:
    """Give distinct values numbers in order; if there are very many, take neighbours together by quantiles."""
    distinct, rank = np.unique(values, return_inverse=True)
    if len(distinct) <= MOST_PIECES:
        return np.asarray(rank, dtype=np.int64)
    before = np.cumsum(np.bincount(rank, weights=counts)) - np.bincount(rank, weights=counts)
    quantile = np.floor(before * (MOST_PIECES / counts.sum()))
    return np.asarray(np.unique(quantile, return_inverse=True)[1], dtype=np.int64)[rank]


def uncut(points: Points) -> Cuts:
    """Return one interval for each attribute."""
    return (np.zeros(1, dtype=np.int64),) * points.num_attributes


def cells(points: Points, cuts: Cuts, *, without: int = -1) -> tuple[IntArray, int]:
    """Give each point the number of its cell, by the cuts of all attributes but one; also tell how many there are."""
    codes, num = np.zeros(len(points), dtype=np.int64), 1
    for i, begins in enumerate(cuts):
        if i != without and len(begins) > 1:
            interval = np.searchsorted(begins, points.piece[:, i], side="right") - 1
            # Renumbered after each attribute, so that the product stays small.
            present, codes = np.unique(codes * len(begins) + interval, return_inverse=True)
            num = len(present)
    return np.asarray(codes, dtype=np.int64), num


@dataclass(frozen=True, eq=False)
class Cells:
    """What the cells of a partition hold: sizes and, per attribute, own extremes."""

    of_point: IntArray
    sizes: IntArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, points: Points, cuts: Cuts) -> Cells:
        """Measure the cells of these cuts."""
        codes, num = cells(points, cuts)
        order = np.argsort(codes, kind="stable")
        begins = np.searchsorted(codes[order], np.arange(num))
        sizes = np.add.reduceat(points.counts[order], begins)
        lower = np.minimum.reduceat(points.lower[order], begins, axis=0)
        upper = np.maximum.reduceat(points.upper[order], begins, axis=0)
        return cls(codes, sizes, lower, upper)

    def cost(self, points: Points) -> float:
        """Return the loss (eq. 7) of all records."""
        kept = self.sizes >= points.k
        widths = (self.upper - self.lower)[kept] @ points.factor
        return float(self.sizes[kept] @ widths) + points.price * int(self.sizes[~kept].sum())


@dataclass(frozen=True, eq=False)
class Found:
    """Cuts, their loss over all records, and a loss that no cuts go below."""

    cuts: Cuts  # Where the intervals of each attribute begin
    loss: float  # Eq. 7 over all records
    bound: float  # No cuts lose less
    proven: bool  # Whether the search is finished: no cuts lose less by more than one part in 10^9


def best_by_descent(points: Points) -> tuple[Cuts, float]:
    """Improve one attribute at a time from each of several starts; return the best cuts and their loss."""
    return local_optima(points)[0]


def local_optima(points: Points) -> list[tuple[Cuts, float]]:
    """Return where descent from each start ends, and the uncut table; the best first, each loss once."""
    whole = uncut(points)
    found = {Cells.of(points, whole).cost(points): whole}
    for start, order in _starts(points):
        cuts, cost = descend(points, start, order)
        found.setdefault(cost, cuts)
    return [(found[cost], cost) for cost in sorted(found)]


def _starts(points: Points) -> Iterator[tuple[Cuts, list[int]]]:
    """Give each attribute cut first alone, then grids of equal shares with about 1.5 k to 4 k records to a cell.

    A small problem is also started from grids of some of the attributes only.
    """
    attributes = list(range(points.num_attributes))
    if len(points) * max(points.num_pieces) <= MOST_STEPS:
        for i in attributes:
            yield uncut(points), attributes[i:] + attributes[:i]
    fewest = 2 if len(points) <= MANY_STARTS_TO_POINTS else len(attributes)
    subsets = (itertools.combinations(attributes, num) for num in range(len(attributes), fewest - 1, -1))
    num_records = int(points.counts.sum())
    for some in itertools.islice(itertools.chain.from_iterable(subsets), MOST_SUBSETS):
        shares = [(num_records / (share * points.k)) ** (1 / len(some)) for share in RECORDS_PER_CELL]
        for num in dict.fromkeys(max(2, round(share)) for share in shares):
            yield _even_cuts(points, [num if i in some else 1 for i in attributes]), attributes


def _even_cuts(points: Points, nums: Sequence[int]) -> Cuts:
    """Cut each attribute into about so many intervals of equal numbers of records."""
    cuts = []
    for column, num_pieces, num in zip(points.piece.T, points.num_pieces, nums, strict=True):
        before = np.cumsum(np.bincount(column, weights=points.counts, minlength=num_pieces))
        begins = np.searchsorted(before, before[-1] * np.arange(num) / num, side="right")
        cuts.append(np.unique(np.append(0, begins[begins < num_pieces])).astype(np.int64))
    return tuple(cuts)


def descend(points: Points, start: Cuts, order: Sequence[int]) -> tuple[Cuts, float]:
    """Cut one attribute after another anew, each as well as the others allow, until none improves."""
    cuts, cost = start, Cells.of(points, start).cost(points)
    waiting = list(order)
    while waiting:
        i = waiting.pop(0)
        tried = (*cuts[:i], recut(points, cuts, i), *cuts[i + 1 :])
        found = Cells.of(points, tried).cost(points)
        if found < cost * (1 - TOLERANCE):
            cuts, cost = tried, found
            waiting += [j for j in order if j != i and j not in waiting]
    return cuts, cost


def recut(points: Points, cuts: Cuts, attribute: int) -> IntArray:
    """Return the best cuts of one attribute, those of the others being fixed.

    Exact up to ``MOST_STEPS`` steps. Beyond, intervals longer than the longest present one and than that allows are
    not looked at, which keeps the present cuts among those compared.
    """
    label, num_labels = cells(points, cuts, without=attribute)
    num_pieces = points.num_pieces[attribute]
    longest = int(np.diff(np.append(cuts[attribute], num_pieces)).max())
    reach = min(num_pieces, max(longest, MOST_STEPS // len(points)))
    return best_cuts(points, attribute, label, num_labels, reach)[0]


def best_cuts(points: Points, attribute: int, label: IntArray, num_labels: int, reach: int) -> tuple[IntArray, float]:
    """Cut one attribute as well as possible, records of different labels being apart; a label of -1 is left out."""
    order, first = points.in_order[attribute]
    previous = np.zeros(points.num_pieces[attribute] + 1, dtype=np.int64)
    program = cut_program if points.compiled else cut_program.plain
    cost = program(
        order, first, label, num_labels, points.counts, points.lower, points.upper, points.factor,
        points.k, points.price, reach, previous,
    )  # fmt: skip
    begins, end = [], points.num_pieces[attribute]
    while end > 0:
        end = int(previous[end])
        begins.append(end)
    return np.array(begins[::-1], dtype=np.int64), float(cost)


@kernel
def cut_program(
    order: IntArray,
    first: IntArray,
    label: IntArray,
    num_labels: int,
    counts: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    factor: FloatArray,
    k: int,
    price: float,
    reach: int,
    previous: IntArray,
) -> float:
    """Dynamic program over the pieces of one attribute; returns the least cost. Plain Python that numba can compile.

    ``best[end]`` is the least cost of the pieces before ``end``; ``previous[end]`` is filled with where its last
    interval begins. An interval grows piece by piece; each point changes size and extremes of its own label's cell
    only. Suppressed records are counted and kept ones summed apart, so that a high price hides no width.
    """
    num, num_factors = len(first) - 1, len(factor)
    best = np.full(num + 1, np.inf)
    best[0] = 0.0
    seen = np.full(num_labels, -1)  # the begin for which a label's cell was last reset
    size = np.zeros(num_labels, dtype=np.int64)
    worth = np.zeros(num_labels)
    low, high = np.zeros((num_labels, num_factors)), np.zeros((num_labels, num_factors))
    for begin in range(num):
        suppressed, kept = 0, 0.0
        for end in range(begin + 1, min(num, begin + reach) + 1):
            for at in range(first[end - 1], first[end]):
                point = order[at]
                cell = label[point]
                if cell < 0:
                    continue
                if seen[cell] != begin:
                    seen[cell], size[cell], worth[cell] = begin, 0, 0.0
                    low[cell], high[cell] = lower[point], upper[point]
                width = 0.0
                for i in range(num_factors):
                    low[cell, i] = min(low[cell, i], lower[point, i])
                    high[cell, i] = max(high[cell, i], upper[point, i])
                    width += factor[i] * (high[cell, i] - low[cell, i])
                if size[cell] < k:
                    suppressed -= size[cell]
                size[cell] += counts[point]
                if size[cell] < k:
                    suppressed += size[cell]
                else:
                    kept += size[cell] * width - worth[cell]
                    worth[cell] = size[cell] * width
            cost = best[begin] + (price * suppressed + kept)
            if cost < best[end]:
                best[end], previous[end] = cost, begin
    return float(best[num])
