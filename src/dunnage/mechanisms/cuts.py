# SPDX-License-Identifier: Apache-2.0
"""Cuts: single-dimensional partitions of several numeric attributes at once, improved one attribute at a time.

Each attribute is cut into intervals of its values; classes are the cells of the product that hold records, and a cell
of fewer than k records is suppressed (Hoogervorst et al. 2019, Definition 3 and eq. 7). A class shows, and pays for,
its own extremes in each attribute.

With the cuts of all other attributes fixed, records fall into groups that no cut of this one can join. What an interval
of this attribute costs is then a sum over groups and depends on no other interval, so the best cuts of one attribute
are an exact dynamic program. Going from attribute to attribute never raises the loss; it ends in cuts that no change of
a single attribute improves, from several starts. Branch and bound, further below, proves such cuts best, or says
how far from it they may be.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import kernel

Cuts = tuple[IntArray, ...]
"""For each attribute the piece that each interval begins with; the first is always 0."""

MOST_PIECES = 1024
MOST_PROGRAM_STEPS = 2 * 10**7
RECORDS_PER_CELL = (1.5, 2, 2.5, 4)
MANY_STARTS_TO_POINTS = 500
MOST_SUBSETS = 24
TOLERANCE = 1e-9
"""Share of a loss that sums in floating point are trusted to; bounds are lowered by it."""
COMPILE_FROM_RECORDS = 24
MOST_POINTS = 64
MOST_POINTS_OF_PAIRS = 128
MOST_STEPS = 10**8
"""About the number of points looked at in all; some seconds."""
MOST_POLISHED = 8
STEPS_OF_PAIR = 10**7
STEPS_OF_NODE = 2000
"""What a node is charged for being made, so that their number is limited too."""
STEPS_OF_SLAB = 300
STEPS_OF_BOX = 5000
MOST_BOX_STEPS = 10**8
FEWEST_BOX_STEPS = 100
MOST_NEIGHBOURS = 2 * 10**7
NUM_NEIGHBOURS = 64
_FEWER_RECORDS = (3, 6)


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
        return len(self.counts)

    @property
    def num_attributes(self) -> int:
        return len(self.factor)

    @functools.cached_property
    def num_pieces(self) -> tuple[int, ...]:
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
    if len(points) * max(points.num_pieces) <= MOST_PROGRAM_STEPS:
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

    Exact up to ``MOST_PROGRAM_STEPS`` steps. Beyond, intervals longer than the longest present one and than that allows
    are not looked at, which keeps the present cuts among those compared.
    """
    label, num_labels = cells(points, cuts, without=attribute)
    num_pieces = points.num_pieces[attribute]
    longest = int(np.diff(np.append(cuts[attribute], num_pieces)).max())
    reach = min(num_pieces, max(longest, MOST_PROGRAM_STEPS // len(points)))
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


# Branching: prove cuts of several attributes best, or say how much less any cuts might lose.
#
# Best-first branch and bound in the manner of K-Optimize (Bayardo, Agrawal 2005; Hoogervorst et al. 2019, section 4.2),
# with other bounds than eq. 8. Attributes are decided one after another, each from its smallest value upward, one
# interval at a time; the last attribute is never branched on, for its best cuts are a dynamic program.
#
# Three bounds, each valid because records that a decided cut has parted stay apart:
#
# - A record that is kept shares its class with k - 1 others of its part, so it costs at least the width of the
#   narrowest box around it and k - 1 others, which a small search finds; or it is suppressed: the least of the two.
# - For the last two attributes: let every interval of the last but one have its own cuts of the last one. The best such
#   partition is a dynamic program over slabs, and loses no more than any with common cuts.
# - Intervals decided so far, with common cuts of the last attribute, cost at least what is best for them alone.
#
# The work is limited by counted steps, not by time, so that the same records give the same cuts.


def search(points: Points, *, most_steps: int = MOST_STEPS) -> Found:
    num_records = int(points.counts.sum())
    if num_records < points.k:
        return Found(uncut(points), num_records * points.price, num_records * points.price, proven=True)
    optima = local_optima(points)
    cuts, loss = optima[0]
    two = points.num_attributes == 2
    if len(points) > (MOST_POINTS_OF_PAIRS if two else MOST_POINTS):
        return _found(cuts, loss, neighbour_bound(points))
    if not two:
        polished = [_polished(points, *start, most_steps // MOST_POLISHED) for start in optima[:MOST_POLISHED]]
        cuts, loss = min(polished, key=operator.itemgetter(1))
    branching = _Branching(
        points, cuts, loss, most_steps, sorted(range(points.num_attributes), key=lambda i: (points.num_pieces[i], i))
    )
    nothing = np.zeros(len(points), dtype=np.int64)
    return branching.run(_Node((), (0,), 0, nothing, _narrowest(points, _all_nearest(points))))


def _polished(points: Points, cuts: Cuts, loss: float, most_steps: int) -> tuple[Cuts, float]:
    """Cut two attributes at once anew, as well as the others allow, until no pair improves or the work is done."""
    pairs = list(itertools.combinations(range(points.num_attributes), 2))
    waiting = list(pairs)
    while waiting and most_steps > 0:
        pair = waiting.pop(0)
        others = [i for i in range(points.num_attributes) if i not in pair]
        branching = _Branching(points, cuts, loss, min(most_steps, STEPS_OF_PAIR), [*others, *pair])
        apart = tuple(np.zeros(1, dtype=np.int64) if i in pair else begins for i, begins in enumerate(cuts))
        label, _ = cells(points, apart)
        before = branching.left
        found = branching.run(_Node(tuple(cuts[i] for i in others), (0,), 0, label, np.zeros(len(points))))
        most_steps -= before - branching.left
        if found.loss < loss * (1 - TOLERANCE):
            cuts, loss = found.cuts, found.loss
            waiting = [other for other in pairs if other != pair]
    return cuts, loss


def _found(cuts: Cuts, loss: float, bound: float) -> Found:
    safe = max(0.0, min(loss, bound) * (1 - TOLERANCE))
    return Found(cuts, loss, safe, proven=bound >= loss * (1 - TOLERANCE))


def neighbour_bound(points: Points) -> float:
    """Return a loss that no cuts go below: for each record the narrowest box with k records, or suppression.

    Only so many nearest neighbours are looked at, which lowers the bound; 0 where there are too many records even for
    k of each.
    """
    nearest = _some_nearest(points)
    if nearest is None:
        return 0.0
    return float(points.counts @ _narrowest(points, nearest))


def _narrowest(points: Points, nearest: _Nearest) -> FloatArray:
    """Return the least that a record of each point costs: with k records to a box, or fewer where that is too much."""
    least, label = np.zeros(len(points)), np.zeros(len(points), dtype=np.int64)
    most_steps = max(MOST_BOX_STEPS // len(points), FEWEST_BOX_STEPS)
    for k in sorted({min(few, points.k) for few in (*_FEWER_RECORDS, points.k)}):
        least, _ = _box_widths(points, nearest, label, least, k, most_steps)
    return least


@dataclass(frozen=True, eq=False)
class _Nearest:
    """For each point its nearest points, itself included, by the width of a class with both; others are ``beyond``."""

    points: IntArray
    widths: FloatArray
    beyond: FloatArray


def _some_nearest(points: Points) -> _Nearest | None:
    """List some of the nearest points of each; none if there are too many."""
    num = min(len(points), max(points.k, NUM_NEIGHBOURS))
    num = num if len(points) * num <= MOST_NEIGHBOURS else min(len(points), points.k)
    if len(points) * num > MOST_NEIGHBOURS:
        return None
    from scipy.spatial import cKDTree

    # A class with lower ends a and b is at least |a - b| wide, so on the grid these widths are below the true ones.
    at = (points.lower - points.lower.min(axis=0)) * points.factor
    widths, order = cKDTree(at).query(at, k=np.arange(1, num + 1), p=1)
    beyond = widths[:, -1] if num < len(points) else np.full(len(points), np.inf)
    return _Nearest(order.astype(np.int64), widths, beyond)


def _all_nearest(points: Points) -> _Nearest:
    low = np.minimum(points.lower[:, None], points.lower[None])
    high = np.maximum(points.upper[:, None], points.upper[None])
    widths = (high - low) @ points.factor
    order = np.argsort(widths, axis=1, kind="stable")
    return _Nearest(order, np.take_along_axis(widths, order, axis=1), np.full(len(points), np.inf))


def _box_widths(
    points: Points, nearest: _Nearest, label: IntArray, floor: FloatArray, k: int, most_steps: int
) -> tuple[FloatArray, int]:
    search_boxes = box_widths if points.compiled else box_widths.plain
    least = floor.copy()
    steps = search_boxes(
        label, nearest.points, nearest.widths, nearest.beyond, points.counts, points.lower, points.upper,
        points.factor, k, points.price, least, most_steps,
    )  # fmt: skip
    return least, int(steps)


@dataclass(frozen=True, eq=False)
class _Node:
    """Decided so far: all intervals of some attributes, and those of the next up to a piece.

    ``label`` tells points apart that a decided cut has parted; ``least`` is what a record of each costs at least.
    At the last level, where ``slabs`` are known, ``label`` is -1 for the points that are not in a decided interval
    yet, and ``cost`` is what the decided ones cost at least.
    """

    cuts: Cuts
    begins: tuple[int, ...]
    at: int
    label: IntArray
    least: FloatArray
    cost: float = 0.0
    slabs: _Slabs | None = None


@dataclass(frozen=True, eq=False)
class _Slabs:
    """For a node at the last level: what each interval of its attribute costs alone, and what the rest from a piece on.

    ``base`` are the labels of all points by the attributes decided before.
    """

    base: IntArray
    alone: FloatArray
    rest: FloatArray


@dataclass
class _Branching:
    """One search: the best cuts so far, the open nodes by their bound, and the work left."""

    points: Points
    cuts: Cuts
    loss: float
    left: int
    order: list[int]
    _open: list[tuple[float, int, _Node]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    @functools.cached_property
    def _nearest(self) -> _Nearest:
        return _all_nearest(self.points)

    def run(self, start: _Node) -> Found:
        """Expand the node of the least bound until none can beat the best cuts, or the work is done."""
        self._push(float(self.points.counts @ start.least), start)
        while self._open and self.left > 0:
            bound, _, node = self._open[0]
            if not self._may_beat(bound):
                return _found(self.cuts, self.loss, self.loss)
            if node.slabs is None and len(node.cuts) == self.points.num_attributes - 2 and self._slab_steps > self.left:
                break
            heapq.heappop(self._open)
            if len(node.cuts) < self.points.num_attributes - 2:
                # Decide the next interval of an attribute before the last two, bounded by the narrowest boxes.
                attribute = self.order[len(node.cuts)]
                piece, num = self.points.piece[:, attribute], self.points.num_pieces[attribute]
                for end in range(node.at + 1, num + 1):
                    label = np.unique(2 * node.label + (piece >= end), return_inverse=True)[1].astype(np.int64)
                    least, steps = _box_widths(
                        self.points, self._nearest, label, node.least, self.points.k, STEPS_OF_BOX
                    )
                    self.left -= steps + STEPS_OF_NODE
                    self._push(max(bound, float(self.points.counts @ least)), _decided(node, end, num, label, least))
            elif node.slabs is None:
                # Solve the problem in which each interval of the last but one attribute has its own cuts of the last
                # one.
                alone = self._alone(node.label)
                self.left -= self._slab_steps
                rest = np.zeros(len(alone) + 1)
                for begin in range(len(alone) - 1, -1, -1):
                    rest[begin] = (alone[begin] + rest).min()
                slabs = _Slabs(node.label, alone, rest)
                undecided = np.full(len(self.points), -1, dtype=np.int64)
                self._push(max(bound, float(rest[0])), _Node(node.cuts, (0,), 0, undecided, node.least, slabs=slabs))
            else:
                self._expand_last(node, node.slabs)
        return _found(self.cuts, self.loss, min((bound for bound, _, _ in self._open), default=self.loss))

    @property
    def _slab_steps(self) -> int:
        """Charge each slab a program over the points of an average one."""
        num = self.points.num_pieces[self.order[-2]]
        return num * (num + 1) // 2 * (len(self.points) ** 2 // 8 + STEPS_OF_SLAB)

    def _may_beat(self, bound: float) -> bool:
        return bound < self.loss * (1 - TOLERANCE)

    def _push(self, bound: float, node: _Node) -> None:
        if self._may_beat(bound):
            heapq.heappush(self._open, (bound, next(self._serial), node))

    def _alone(self, base: IntArray) -> FloatArray:
        """For each begin and end, the least cost of the records between these pieces of the last but one attribute."""
        piece, num = self.points.piece[:, self.order[-2]], self.points.num_pieces[self.order[-2]]
        alone = np.full((num, num + 1), np.inf)
        for begin, end in itertools.combinations(range(num + 1), 2):
            alone[begin, end] = self._last_cuts(np.where((piece >= begin) & (piece < end), base, -1))[1]
        return alone

    def _last_cuts(self, label: IntArray) -> tuple[IntArray, float]:
        last = self.order[-1]
        return best_cuts(self.points, last, label, int(label.max()) + 1, self.points.num_pieces[last])

    def _expand_last(self, node: _Node, slabs: _Slabs) -> None:
        """Decide the next interval of the last but one attribute, bounded by programs over the last one."""
        piece, num = self.points.piece[:, self.order[-2]], self.points.num_pieces[self.order[-2]]
        offset = (int(slabs.base.max()) + 1) * len(node.begins)
        bounds = node.cost + slabs.alone[node.at] + slabs.rest
        for end in node.at + 1 + np.argsort(bounds[node.at + 1 :], kind="stable"):
            if not self._may_beat(float(bounds[end])):
                break
            label = np.where((piece >= node.at) & (piece < end), slabs.base + offset, node.label)
            begins, cost = self._last_cuts(label)
            self.left -= len(self.points) ** 2 // 4 + STEPS_OF_NODE
            if end == num:
                self._offer((*node.cuts, np.array(node.begins, dtype=np.int64), begins))
            else:
                child = _Node(node.cuts, (*node.begins, int(end)), int(end), label, node.least, cost, slabs)
                self._push(max(float(bounds[end]), cost + float(slabs.rest[end])), child)

    def _offer(self, in_search_order: Cuts) -> None:
        cuts = tuple(in_search_order[self.order.index(i)] for i in range(len(self.order)))
        loss = Cells.of(self.points, cuts).cost(self.points)
        if loss < self.loss:
            self.cuts, self.loss = cuts, loss


def _decided(node: _Node, end: int, num_pieces: int, label: IntArray, least: FloatArray) -> _Node:
    """Return the node after one more interval, or at the next attribute if that was the last."""
    if end < num_pieces:
        return _Node(node.cuts, (*node.begins, end), end, label, least)
    return _Node((*node.cuts, np.array(node.begins, dtype=np.int64)), (0,), 0, label, least)


@kernel
def box_widths(
    label: IntArray,
    nearest: IntArray,
    widths: FloatArray,
    beyond: FloatArray,
    counts: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    factor: FloatArray,
    k: int,
    price: float,
    least: FloatArray,
    most_steps: int,
) -> int:
    """Raise ``least``, what a record of each point costs, to the narrowest box of its label with k records.

    Plain Python that numba can compile; returns the steps taken. A depth-first search adds one neighbour after another
    to a box, nearest first, and leaves a branch once the box is no narrower than the best so far. A box that meets the
    bound known before ends the search. After ``most_steps`` for one point, that bound is kept.
    """
    total = 0
    num, num_factors = widths.shape[1], len(factor)
    low, high = np.zeros((k + 1, num_factors)), np.zeros((k + 1, num_factors))
    size, at = np.zeros(k + 1, dtype=np.int64), np.zeros(k + 1, dtype=np.int64)
    for point in range(len(label)):
        best, depth, steps = price, 0, 0
        at[0], size[0], low[0], high[0] = -1, counts[point], lower[point], upper[point]
        if counts[point] >= k:
            best = min(price, (factor * (upper[point] - lower[point])).sum())
            depth = -1
        while depth >= 0 and steps <= most_steps and best > least[point]:
            at[depth] += 1
            steps += 1
            if at[depth] >= num or widths[point, at[depth]] >= best:
                depth -= 1
                continue
            other = nearest[point, at[depth]]
            if other == point or label[other] != label[point]:
                continue
            width = 0.0
            for i in range(num_factors):
                low[depth + 1, i] = min(low[depth, i], lower[other, i])
                high[depth + 1, i] = max(high[depth, i], upper[other, i])
                width += factor[i] * (high[depth + 1, i] - low[depth + 1, i])
            if width >= best:
                continue
            if size[depth] + counts[other] >= k:
                best = width
            else:
                size[depth + 1], at[depth + 1] = size[depth] + counts[other], at[depth]
                depth += 1
        total += steps
        if steps <= most_steps:
            least[point] = max(least[point], min(best, beyond[point]))
    return total
