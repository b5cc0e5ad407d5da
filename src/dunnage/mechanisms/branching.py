# SPDX-License-Identifier: Apache-2.0
"""Branching: prove cuts of several attributes best, or say how much less any cuts might lose.

Best-first branch and bound in the manner of K-Optimize (Bayardo, Agrawal 2005; Hoogervorst et al. 2019, section 4.2),
with other bounds than eq. 8. Attributes are decided one after another, each from its smallest value upward, one
interval at a time; the last attribute is never branched on, for its best cuts are a dynamic program.

Three bounds, each valid because records that a decided cut has parted stay apart:

- A record that is kept shares its class with k - 1 others of its part, so it costs at least the width of the narrowest
  box around it and k - 1 others, which a small search finds; or it is suppressed: the least of the two.
- For the last two attributes: let every interval of the last but one have its own cuts of the last one. The best such
  partition is a dynamic program over slabs, and loses no more than any with common cuts.
- Intervals decided so far, with common cuts of the last attribute, cost at least what is best for them alone.

The work is limited by counted steps, not by time, so that the same records give the same cuts.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import kernel
from dunnage.mechanisms.cuts import (
    TOLERANCE,
    Cells,
    Cuts,
    Found,
    Points,
    best_cuts,
    cells,
    local_optima,
    uncut,
)

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


def search(points: Points, *, most_steps: int = MOST_STEPS) -> Found:
    """Find good cuts, and prove them best where the problem is small enough."""
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
    branching = _Branching(points, cuts, loss, most_steps, _by_pieces(points))
    nothing = np.zeros(len(points), dtype=np.int64)
    return branching.run(_Node((), (0,), 0, nothing, _narrowest(points, _all_nearest(points))))


def _by_pieces(points: Points) -> list[int]:
    """Order attributes for branching: the last costs none, so it is the one with the most pieces."""
    return sorted(range(points.num_attributes), key=lambda i: (points.num_pieces[i], i))


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
    """Lower the bound by what sums may be off."""
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
    """List all points for each, the nearest first."""
    low = np.minimum(points.lower[:, None], points.lower[None])
    high = np.maximum(points.upper[:, None], points.upper[None])
    widths = (high - low) @ points.factor
    order = np.argsort(widths, axis=1, kind="stable")
    return _Nearest(order, np.take_along_axis(widths, order, axis=1), np.full(len(points), np.inf))


def _box_widths(
    points: Points, nearest: _Nearest, label: IntArray, floor: FloatArray, k: int, most_steps: int
) -> tuple[FloatArray, int]:
    fill = box_widths if points.compiled else box_widths.plain
    least = floor.copy()
    steps = fill(
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
            self._expand(node, bound)
        return _found(self.cuts, self.loss, min((bound for bound, _, _ in self._open), default=self.loss))

    def _expand(self, node: _Node, bound: float) -> None:
        if len(node.cuts) < self.points.num_attributes - 2:
            self._expand_outer(node, bound)
        elif node.slabs is None:
            self._enter_last_level(node, bound)
        else:
            self._expand_last(node, node.slabs)

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

    def _expand_outer(self, node: _Node, bound: float) -> None:
        """Decide the next interval of an attribute before the last two, bounded by the narrowest boxes."""
        attribute = self.order[len(node.cuts)]
        piece, num = self.points.piece[:, attribute], self.points.num_pieces[attribute]
        for end in range(node.at + 1, num + 1):
            label = np.unique(2 * node.label + (piece >= end), return_inverse=True)[1].astype(np.int64)
            least, steps = _box_widths(self.points, self._nearest, label, node.least, self.points.k, STEPS_OF_BOX)
            self.left -= steps + STEPS_OF_NODE
            self._push(max(bound, float(self.points.counts @ least)), _decided(node, end, num, label, least))

    def _enter_last_level(self, node: _Node, bound: float) -> None:
        """Solve the problem in which each interval of the last but one attribute has its own cuts of the last one."""
        alone = self._alone(node.label)
        self.left -= self._slab_steps
        rest = np.zeros(len(alone) + 1)
        for begin in range(len(alone) - 1, -1, -1):
            rest[begin] = (alone[begin] + rest).min()
        slabs = _Slabs(node.label, alone, rest)
        undecided = np.full(len(self.points), -1, dtype=np.int64)
        self._push(max(bound, float(rest[0])), _Node(node.cuts, (0,), 0, undecided, node.least, slabs=slabs))

    def _alone(self, base: IntArray) -> FloatArray:
        """For each begin and end, the least cost of the records between these pieces of the last but one attribute."""
        piece, num = self.points.piece[:, self.order[-2]], self.points.num_pieces[self.order[-2]]
        alone = np.full((num, num + 1), np.inf)
        for begin, end in itertools.combinations(range(num + 1), 2):
            alone[begin, end] = self._last_cuts(np.where((piece >= begin) & (piece < end), base, -1))[1]
        return alone

    def _last_cuts(self, label: IntArray) -> tuple[IntArray, float]:
        """Cut the last attribute as well as these labels allow."""
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
