# SPDX-License-Identifier: Apache-2.0
"""The projection of tables of noisy counts that are held whole.

Of the many cells only those are sorted that may come out positive; see :mod:`dunnage.kernels.counts.projection`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import draw_tail, lower
from dunnage.kernels.counts.projection import (
    Bins,
    CellLists,
    Family,
    ListedCells,
    Projection,
    block_of_groups,
    check_lengths,
    first_levels,
    levels,
    list_above,
    positive,
    problem_of,
    project,
    project_problem,
    settle,
)
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

STRETCH = 2**15  # values that stay in the cache between two passes
BINS = 2_048  # bins of the histogram that the first list of candidates is taken from
SPARE = 5  # cells listed at first, for each one that looks active; and again that many times more where that is short


def list_cells(
    values: IntArray,
    starts: IntArray,
    floors: FloatArray,
    above: IntArray | None = None,  # number of those of each join group, if known
    before: ListedCells | None = None,  # what was listed with other floors
) -> ListedCells:
    """List cells above floors; where a floor is that of before, what was listed then is taken."""
    none, fresh = np.zeros(0, dtype=np.int64), np.ones(len(floors), dtype=np.bool_)
    old = CellLists(np.zeros(0), none, np.zeros(len(starts), dtype=np.int64))
    if before is not None:
        assert before.cells is not None
        fresh, old = floors < before.floors, CellLists(before.values, before.cells, before.starts)
    kept, cells, begins = list_above(values, starts, floors, fresh, none if above is None else above, old)
    return ListedCells(values=kept, starts=begins, floors=floors, cells=cells)


def _whole(values: npt.NDArray[Any]) -> tuple[IntArray, int, int]:
    """Return values as 64-bit whole numbers, the least and the largest; above 2^53 they would not be exact later on."""
    if values.dtype.kind in "iu":
        parts = [values[first : first + STRETCH] for first in range(0, len(values), STRETCH)]  # each is read but once
        low, top = (
            min((int(part.min()) for part in parts), default=0),
            max((int(part.max()) for part in parts), default=0),
        )
        if max(top, -low) <= 2**53:
            return np.ascontiguousarray(values, dtype=np.int64), low, top
    raise ParameterError(f"Values must be whole numbers up to 2^53. Got {values.dtype}.")


def project_dense(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a table that is held whole; ``x`` holds the counts of all its cells, in their order."""
    projection = project_table(values, starts, family, sums, tolerance=tolerance)
    x = np.zeros(len(values))
    x[projection.cells] = projection.x
    return replace(projection, x=x, cells=None)


def project_table(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a table that is held whole; ``x`` holds its positive counts, ``cells`` where they are.

    Only cells that may come out positive are sorted: first those above a level that a histogram tells, then, in join
    groups where that was too high, more.
    """
    values, *extent = _whole(values)
    duals, ladder, above = _first_levels(values, extent, starts, family, sums)
    candidates, plan = list_cells(values, starts, ladder[0], above), family.plan
    check_lengths(candidates, family, sums)
    unknowns, rungs, iterations = plan.start(duals), iter(ladder[1:]), 0
    while True:
        problem = problem_of(plan, candidates, sums)
        settle(plan, problem, unknowns)
        theta = levels(plan.leaves, unknowns)[0]
        if plan.inner_chains is None or not np.any(-theta < candidates.floors):  # else blocks by themselves need more
            projection = project_problem(candidates, family, sums, problem, unknowns, tolerance)
            iterations += projection.iterations
            if not projection.needed.any():
                cells, x = positive(projection.x, candidates.cells, candidates.starts, projection.counts)
                return replace(projection, x=x, cells=cells, iterations=iterations)
            unknowns, theta = plan.start(projection.duals), projection.theta
        # More cells of the join groups that need them, twice as far down as was missing: a group that is short time and
        # again is listed whole before long. But none below the next rung: where few cells are listed, theta is too
        # high, and would have nearly all of them listed.
        down, lowest = -2.0 * theta - candidates.floors - 1.0, next(rungs, None)
        if lowest is not None:
            down = np.minimum(np.maximum(down, lowest), candidates.floors - 1.0)
        floors = np.where(-theta < candidates.floors, down, candidates.floors)
        candidates = list_cells(values, starts, floors, before=candidates)


def _first_levels(
    values: IntArray, extent: Sequence[int], starts: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[tuple[FloatArray, ...], list[FloatArray], IntArray]:
    """Guess multipliers and ever lower floors: in each block the level above which values add up to the noisy sum.

    The last part is the number of cells of each join group above its first floor.
    """
    blocks, coarsest = family.plan.blocks, family.plan.coarsest
    duals = [np.zeros(size) for size in family.sizes]
    if not len(values):
        return tuple(duals), [np.full(len(family), -np.inf)], np.zeros(len(family), dtype=np.int64)
    above = block_of_groups(family, blocks, coarsest)
    wanted = np.zeros(int(blocks.max()) + 1)
    np.add.at(wanted, above, sums[coarsest])
    low, top = extent
    high = min(top, max(-low, low + BINS))  # noise is symmetric: higher values are few, and only add to the sum
    bins = Bins(low, high, ((high - low) // BINS).bit_length())
    levels, floors, above_floor = first_levels(values, starts, blocks, bins, wanted, SPARE)
    duals[coarsest] = -levels[above]
    return tuple(duals), list(floors[:, blocks]), above_floor


# --- The projection where cells are too many to hold: empty cells are listed only as far as they can come out
# positive.
#
# Nothing is listed that the exact projection over all cells would not need, and what is listed has the law of drawing
# the noise of every cell (:mod:`dunnage.kernels.counts.laplace`). Which cells to list next is decided from noisy values
# alone.


FIRST_LISTED = 200_000
MAX_LISTED = 100_000_000
_FACTOR = 16.0


class LazyCounts(NamedTuple):
    """Cells that may come out positive, join group by join group."""

    groups: IntArray  # join group of each, rising
    occupied: IntArray  # which of the occupied cells it is; -1 for an empty one, whose place is still open
    counts: FloatArray  # before rounding
    residual: float  # how exact the projection is


def project_lazily(
    noise: Noise,
    scale: Fraction,  # of the noise
    *,
    sizes: IntArray,  # cells of each join group
    groups: IntArray,  # join group of each occupied cell
    values: IntArray,  # and its noisy value
    family: Family,
    sums: Sequence[FloatArray],  # noisy sums of coarse features
) -> LazyCounts:
    """Draw the noise of empty cells as far as it matters, and project."""
    empty, reach = sizes - np.bincount(groups, minlength=len(sizes)), float(scale)
    first = max(1, math.ceil(reach * math.log(max(1.0, float(empty.sum()) / FIRST_LISTED / 2))))
    tail, start = draw_tail(noise, scale, empty, np.full(len(sizes), first)), None
    while True:
        # Occupied cells and listed empty ones, but for those below the threshold of their group
        kept = np.flatnonzero(values >= tail.thresholds[groups])
        owners, numbers = np.concatenate((groups[kept], tail.groups)), np.concatenate((values[kept], tail.values))
        order = np.lexsort((-numbers, owners))
        candidates = ListedCells(
            values=numbers[order].astype(np.float64),
            starts=np.searchsorted(owners[order], np.arange(len(sizes) + 1)),
            floors=(tail.thresholds - 1).astype(np.float64),
        )
        projection = project(candidates, family, sums, start=start)
        needed = projection.needed
        if not needed.any():
            occupied, alive = np.concatenate((kept, np.full(len(tail.groups), -1)))[order], projection.x > 0
            return LazyCounts(owners[order][alive], occupied[alive], projection.x[alive], projection.residual)
        # List down to where the projection stands, but no more than some times as many cells at once.
        step = np.floor(tail.thresholds - max(1.0, reach * math.log(_FACTOR)))
        down = np.maximum(np.floor(-projection.theta) - 1, step)
        wanted = np.where(needed, down, tail.thresholds).astype(np.int64)
        chance = np.where(wanted >= 1, np.exp(-np.maximum(wanted, 1) / reach), 1.0)
        if float((tail.sizes * chance)[needed].sum()) > MAX_LISTED:
            raise ParameterError(
                f"over {MAX_LISTED:,} cells would have to be listed: at this epsilon noise drowns the counts of so "
                "many trip types. Raise epsilon, or use longer windows or fewer stops."
            )
        tail, start = lower(noise, tail, wanted), projection.duals


# --- Counts in a tree: the estimate of least squares in closed form, and pruning.
#
# References
# ----------
# Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB
# 2010, here for nodes of any number of children and levels of any variance.


def consistent_tree(
    noisy: Sequence[FloatArray], parents: Sequence[IntArray], variances: Sequence[float], *, prune: bool
) -> list[FloatArray]:
    """Estimate all counts of a tree so that each is the sum of those below it."""
    # Estimate each node from itself and all below it: the mean of both, weighted by their precision.
    estimates = [np.asarray(noisy[-1], dtype=np.float64)]
    spreads = [np.full(len(noisy[-1]), variances[-1])]
    for level in range(len(noisy) - 2, -1, -1):
        num, parent = len(noisy[level]), parents[level]
        below = np.bincount(parent, weights=estimates[0], minlength=num)
        below_spread = np.bincount(parent, weights=spreads[0], minlength=num)
        own, other = 1 / variances[level], 1 / below_spread
        estimates.insert(0, (own * noisy[level] + other * below) / (own + other))
        spreads.insert(0, 1 / (own + other))
    alive = [estimates[0] > 0 if prune else np.ones(len(estimates[0]), dtype=bool)]
    final = [np.where(alive[0], estimates[0], 0.0)]
    for level, parent in enumerate(parents, start=1):
        living = (estimates[level] > 0) & alive[-1][parent]
        alive.append(living if prune else np.ones(len(estimates[level]), dtype=bool))
        # Share what a node has more than its living children among them, by their variance.
        shares, kept = np.where(alive[-1], spreads[level], 0.0), np.where(alive[-1], estimates[level], 0.0)
        room = np.bincount(parent, weights=shares, minlength=len(final[-1]))
        missing = final[-1] - np.bincount(parent, weights=kept, minlength=len(final[-1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            per_spread = np.where(room > 0, missing / room, 0.0)
        final.append(kept + shares * per_spread[parent])
    return final


# --- Whole numbers that keep sums: largest remainders, from the top of a tree down.
#
# Every node of the tree has a real value, the sum of its children's. Every node is given one of the two whole numbers
# next to its value, or the value itself if that is whole, such that children add up to their parent.
#
# Why that is always possible
# ---------------------------
# Values are held in whole units of 2**-bits, so that sums are exact. A value within some slack of a whole number
# counts as whole. The slack of a cell is fixed, that of any other node is the sum of its children's, and all are
# below 1/2. A node may get low = floor(value + slack) or high = ceil(value - slack): the same number if its value
# counts as whole, and the two next to it otherwise.
#
# Claim: let L and H be the sums of the children's lows and highs; then L <= low and high <= H for their parent. So
# whichever number the parent has, raising some children from low to high makes them add up to it. Proof:
# low <= value + slack for every child; added up, L <= value + slack of the parent, and as L is whole,
# L <= floor(value + slack), the parent's low. In the same way H >= ceil(value - slack), its high.
#
# Of all ways to do it, raising the largest remainders has the least sum of squared changes: raising a child of
# remainder f adds 1 - 2 f to it.


# A cell within this distance of a whole number counts as whole: more if the total is above 2**29, as its sums are then
# held in larger units, and less if there are over 2**28 cells.
SLACK = 1e-9
_MAX_BITS = 32
_MAX_TOTAL = 2**46


class _Level(NamedTuple):
    """The nodes of one level."""

    lows: IntArray  # their lower numbers
    remainders: IntArray  # what is above those in units; 0 for whole values


def round_tree(values: FloatArray, levels: Sequence[IntArray], noise: Noise) -> IntArray:
    """Round values so that all sums over a tree are rounded too, each to a whole number next to it.

    Parents hand their number down to their children: everyone gets its value rounded down, and the largest remainders
    one more. Of equal remainders the larger value comes first; equal values are drawn at random. The topmost nodes are
    rounded to the nearest number, halves at random.
    """
    if not np.all(np.isfinite(values)):
        raise ParameterError("A value to round is infinite or no number. Pass finite values.")
    total = float(np.abs(values).sum())
    if total >= _MAX_TOTAL:
        raise ParameterError("The values to round add up to 2**46 or more. Scale them down.")
    # How many binary digits after the point are kept: as many as let all sums fit 62 bits, 32 at most
    bits, links = min(_MAX_BITS, 61 - int(total).bit_length()), _checked_links(values.size, levels)
    units = np.rint(np.ldexp(values, bits)).astype(np.int64)
    slack = min(int(SLACK * 2**_MAX_BITS), (1 << bits) // (4 * max(1, values.size)))  # 1/4 in all at most
    slacks = np.full(values.size, slack)
    nodes = [_bounded(units, slacks, bits)]
    for starts in links:
        units, slacks = _sums(units, starts), _sums(slacks, starts)
        nodes.append(_bounded(units, slacks, bits))
    top = nodes[-1]
    halves, numbers = np.flatnonzero(2 * top.remainders == 1 << bits), top.lows + (2 * top.remainders > 1 << bits)
    numbers[halves] += noise_arrays.below(noise, 2, halves.size)
    for starts, level in zip(reversed(links), reversed(nodes[:-1]), strict=True):
        # Give the children of each parent their low number and the largest remainders one more.
        parents = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        raises = numbers - _sums(level.lows, starts)
        able = np.flatnonzero((level.remainders > 0) & (raises[parents] > 0))
        # One key orders by parent, then by remainder downwards.
        keys = (parents[able] << bits) + (1 << bits) - level.remainders[able]
        order = np.argsort(keys)
        keys, able = keys[order], able[order]
        served = np.flatnonzero(raises)
        firsts = np.searchsorted(parents[able], served)
        limits = np.zeros_like(raises)  # key of the last child to be raised
        limits[served] = keys[firsts + raises[served] - 1]
        left = np.zeros_like(raises)  # what children with the very same key may have
        left[served] = raises[served] - (np.searchsorted(keys, limits[served]) - firsts)
        owners = parents[able]
        tied = np.flatnonzero(keys == limits[owners])
        result = level.lows.copy()
        result[able[keys < limits[owners]]] += 1
        # Among tied children as many as each parent has left: the larger first, equals at random
        children, parent_of = able[tied], owners[tied]
        shuffled = noise_arrays.permutation(noise, children.size)
        ordered = shuffled[np.lexsort((-level.lows[children[shuffled]], parent_of[shuffled]))]
        ranks = np.arange(children.size) - np.searchsorted(parent_of[ordered], parent_of[ordered])
        result[children[ordered[ranks < left[parent_of[ordered]]]]] += 1
        numbers = result
    return numbers


def _checked_links(size: int, levels: Sequence[IntArray]) -> list[IntArray]:
    """Return the starts of each level counted in nodes of the level below."""
    links, below = [], np.arange(size + 1)
    for starts in levels:
        link = np.searchsorted(below, starts)
        if starts.size == 0 or starts[0] != 0 or starts[-1] != size or np.any(np.diff(starts) < 0):
            raise ParameterError("The starts of a level must ascend from 0 to the number of values. Check their order.")
        if np.any(below[link] != starts):
            raise ParameterError("A node ends inside a node of the level below. Pass levels that are nested.")
        link[-1] = below.size - 1  # empty nodes at the end have a parent too
        links.append(link)
        below = starts
    return links


def _sums(units: IntArray, starts: IntArray) -> IntArray:
    running = np.concatenate([[0], np.cumsum(units)])
    return np.asarray(running[starts[1:]] - running[starts[:-1]], dtype=np.int64)


def _bounded(units: IntArray, slacks: IntArray, bits: int) -> _Level:
    lows, highs = (units + slacks) >> bits, -((slacks - units) >> bits)
    return _Level(lows, np.where(highs > lows, units - (lows << bits), 0))
