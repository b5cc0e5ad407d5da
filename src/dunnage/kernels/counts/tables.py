# SPDX-License-Identifier: Apache-2.0
"""Tables of noisy counts: their projection, trees, rounding to whole numbers, and Bayes estimates of cells.

The projection only sorts cells that may become positive; see :mod:`dunnage.kernels.counts.projection`.
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
    first_levels,
    levels,
    list_above,
    merge_groups,
    positive,
    problem_of,
    project,
    project_problem,
    settle,
)
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

STRETCH = 2**15  # values that stay in the cache between two passes
BINS = 2_048  # bins of the histogram for the first list of candidates
SPARE = 5  # cells in the first list for each one that looks active, and again that factor if there are too few


def list_cells(
    values: IntArray,
    starts: IntArray,
    floors: FloatArray,
    above: IntArray | None = None,  # number of those cells in each join group, if available
    before: ListedCells | None = None,  # the list with other floors
) -> ListedCells:
    """List cells above floors; if a floor has not changed, reuse the list from before."""
    floors = np.ascontiguousarray(floors)  # another layout would have one more version compiled
    none, fresh = np.zeros(0, dtype=np.int64), np.ones(len(floors), dtype=np.bool_)
    old = CellLists(np.zeros(0), none, np.zeros(len(starts), dtype=np.int64))
    if before is not None:
        assert before.cells is not None
        fresh, old = floors < before.floors, CellLists(before.values, before.cells, before.starts)
    kept, cells, begins = list_above(values, starts, floors, fresh, none if above is None else above, old)
    return ListedCells(values=kept, starts=begins, floors=floors, cells=cells)


def _whole(values: npt.NDArray[Any]) -> tuple[IntArray, int, int]:
    """Return values as 64-bit whole numbers, the smallest and the largest; above 2^53 they would later be inexact."""
    if values.dtype.kind in "iu":
        parts = [values[first : first + STRETCH] for first in range(0, len(values), STRETCH)]  # each is read only once
        ends = [(int(part.min()), int(part.max())) for part in parts]
        low, top = min((low for low, _ in ends), default=0), max((top for _, top in ends), default=0)
        if max(top, -low) <= 2**53:
            return np.ascontiguousarray(values, dtype=np.int64), low, top
    raise ParameterError(f"values must be whole numbers up to 2^53. Got {values.dtype}.")


def project_dense(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a whole table; ``x`` has the counts of all its cells, in their order."""
    projection = project_table(values, starts, family, sums, tolerance=tolerance)
    x = np.zeros(len(values))
    x[projection.cells] = projection.x
    return replace(projection, x=x, cells=None)


def project_table(
    values: IntArray, starts: IntArray, family: Family, sums: Sequence[FloatArray], *, tolerance: float = 1e-10
) -> Projection:
    """Return the projection of a whole table; ``x`` has its positive counts, ``cells`` their places."""
    values, low, top = _whole(values)
    candidates, projection = _project_whole(values, starts, family, sums, low, top, tolerance)
    cells, x = positive(projection.x, candidates.cells, candidates.starts, projection.counts)
    return replace(projection, x=x, cells=cells)


def _project_whole(
    values: IntArray,
    starts: IntArray,
    family: Family,
    sums: Sequence[FloatArray],
    low: int,  # smallest value
    top: int,  # and largest
    tolerance: float,
) -> tuple[ListedCells, Projection]:
    """Return the projection of a whole table, and the cells that it needs."""
    # Sort only cells that may become positive: first those above a level from a histogram, then more where it was too
    # high.
    duals, ladder = [np.zeros(size) for size in family.sizes], [np.full(len(family), -np.inf)]
    if (inner := family.inner) is not None:  # what is local to blocks is quick, and leaves little for the others
        inside, begins = merge_groups(values, starts, inner.order, inner.bounds)
        own_sums = [sums[feature] for feature in inner.features]
        first, projection = _project_whole(inside, begins, inner.family, own_sums, low, top, math.inf)
        for feature, own in zip(inner.features, projection.duals, strict=True):
            duals[feature] = own
        candidates = list_cells(values, starts, first.floors[inner.own])
        candidates, whole = _project_listed(
            values, starts, family, sums, candidates, [], duals=duals, tolerance=tolerance
        )
        return candidates, replace(whole, iterations=projection.iterations + whole.iterations)
    # Guess multipliers, and floors with ever more cells above them: in each block the level above which values add up
    # to the noisy sum.
    coarsest, blocks = family.plan.coarsest, family.plan.blocks
    above_floor = np.zeros(len(family), dtype=np.int64)
    if len(values):
        above = block_of_groups(family, blocks, coarsest)
        wanted = np.zeros(int(blocks.max()) + 1)
        np.add.at(wanted, above, sums[coarsest])
        high = min(top, max(-low, low + BINS))  # noise is symmetric, so higher values are few and only add to the sum
        bins = Bins(low, high, ((high - low) // BINS).bit_length())
        guess, floors, above_floor = first_levels(values, starts, blocks, bins, wanted, SPARE)
        duals[coarsest], ladder = -guess[above], list(floors[:, blocks])
    candidates = list_cells(values, starts, ladder[0], above_floor)
    return _project_listed(values, starts, family, sums, candidates, ladder, duals=duals, tolerance=tolerance)


def _project_listed(
    values: IntArray,
    starts: IntArray,
    family: Family,
    sums: Sequence[FloatArray],
    candidates: ListedCells,  # to start with
    ladder: list[FloatArray],  # floors with ever more cells above them, the first of them that of the candidates
    *,
    duals: list[FloatArray],
    tolerance: float,
) -> tuple[ListedCells, Projection]:
    """Return the projection of a whole table, and the cells that it needs."""
    plan = family.plan
    unknowns, rungs, iterations = plan.start(duals), iter(ladder[1:]), 0
    while True:
        problem = problem_of(plan, candidates, sums)
        settle(plan, problem, unknowns)
        theta = None if plan.inner_chains is None else levels(plan.leaves, unknowns)[0]
        if theta is None or not np.any(-theta < candidates.floors):  # else blocks by themselves need more
            projection = project_problem(candidates, family, sums, problem, unknowns, tolerance, short=True)
            iterations += projection.iterations
            if not projection.needed.any():
                return candidates, replace(projection, iterations=iterations)
            unknowns, theta = plan.start(projection.duals), projection.theta
        # List more cells of the join groups that need them, twice as far down as was missing, so that a group that is
        # short repeatedly is soon listed completely. But list none below the next rung: if few cells are listed, theta
        # is too high, and would list nearly all of them.
        down, lowest = -2.0 * theta - candidates.floors - 1.0, next(rungs, None)
        if lowest is not None:
            down = np.minimum(np.maximum(down, lowest), candidates.floors - 1.0)
        floors = np.where(-theta < candidates.floors, down, candidates.floors)
        candidates = list_cells(values, starts, floors, before=candidates)


# The projection if there are too many cells for the memory: empty cells are listed only if they can become positive.
#
# The list contains only cells that the exact projection over all cells needs, with the law of sampling the noise of
# every cell (:mod:`dunnage.kernels.counts.laplace`). Noisy values alone decide which cells to list next.


FIRST_LISTED = 200_000
MAX_LISTED = 100_000_000
_FACTOR = 16.0


class LazyCounts(NamedTuple):
    """Cells that may become positive, join group by join group."""

    groups: IntArray  # join group of each, rising
    occupied: IntArray  # which of the occupied cells it is; -1 for an empty one, which has no place yet
    counts: FloatArray  # before rounding
    residual: float  # of the projection


def project_lazily(
    noise: Noise,
    scale: Fraction,  # of the noise
    *,
    sizes: IntArray,  # cells of each join group
    groups: IntArray,  # join group of each occupied cell
    values: IntArray,  # noisy value of each occupied cell
    family: Family,
    sums: Sequence[FloatArray],  # noisy sums of coarse features
) -> LazyCounts:
    """Sample the noise of empty cells as far as it matters, and project."""
    empty, reach = sizes - np.bincount(groups, minlength=len(sizes)), float(scale)
    first = max(1, math.ceil(reach * math.log(max(1.0, float(empty.sum()) / FIRST_LISTED / 2))))
    tail, start = draw_tail(noise, scale, empty, np.full(len(sizes), first)), None
    while True:
        # Occupied cells and listed empty ones, except those below the threshold of their group
        kept = np.flatnonzero(values >= tail.thresholds[groups])
        owners, numbers = np.concatenate((groups[kept], tail.groups)), np.concatenate((values[kept], tail.values))
        order = np.lexsort((-numbers, owners))
        candidates = ListedCells(
            values=numbers[order].astype(np.float64),
            starts=np.searchsorted(owners[order], np.arange(len(sizes) + 1)),
            floors=(tail.thresholds - 1).astype(np.float64),
        )
        projection = project(candidates, family, sums, start=start, tolerance=math.inf)
        needed = projection.needed
        # List down to the level of the projection, but at most some times as many cells at once.
        step = np.floor(tail.thresholds - max(1.0, reach * math.log(_FACTOR)))
        down = np.maximum(np.floor(-projection.theta) - 1, step)
        wanted = np.where(needed, down, tail.thresholds).astype(np.int64)
        chance = np.where(wanted >= 1, np.exp(-np.maximum(wanted, 1) / reach), 1.0)
        # If the memory does not hold more cells, those that are not listed count as 0: noisy values alone decide that.
        full = float((tail.sizes * chance)[needed].sum()) > MAX_LISTED
        if full or not needed.any():
            occupied, alive = np.concatenate((kept, np.full(len(tail.groups), -1)))[order], projection.x > 0
            return LazyCounts(owners[order][alive], occupied[alive], projection.x[alive], projection.residual)
        tail, start = lower(noise, tail, wanted), projection.duals


# Counts in a tree: the least-squares estimate in closed form, and pruning.
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
        # Share the surplus of a node among its living children, by their variance.
        shares, kept = np.where(alive[-1], spreads[level], 0.0), np.where(alive[-1], estimates[level], 0.0)
        room = np.bincount(parent, weights=shares, minlength=len(final[-1]))
        missing = final[-1] - np.bincount(parent, weights=kept, minlength=len(final[-1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            per_spread = np.where(room > 0, missing / room, 0.0)
        final.append(kept + shares * per_spread[parent])
    return final


# Whole numbers that keep sums: largest remainders, from the top of a tree down. Every node gets one of the two whole
# numbers next to its value, or the value itself if that is whole, so that children add up to their parent.
# docs/proofs/constrained-counts.md#whole-numbers proves that this is always possible.

# A cell within this distance of a whole number counts as whole: more if the total is above 2**29, because its sums are
# then stored in larger units, and less if there are over 2**28 cells.
SLACK = 1e-9
_MAX_BITS = 32
_MAX_TOTAL = 2**46


class _Level(NamedTuple):
    lows: IntArray  # their lower numbers
    remainders: IntArray  # the units above those; 0 for whole values


def round_tree(values: FloatArray, levels: Sequence[IntArray], noise: Noise) -> IntArray:
    """Round values so that all sums over a tree are rounded too, each to a whole number next to it."""
    # Parents pass their number on to their children: each child gets its value rounded down, and the largest remainders
    # one more. Among equal remainders the larger value comes first; the choice between equal values is random. The
    # topmost nodes are rounded to the nearest number, halves at random.
    if not np.all(np.isfinite(values)):
        raise ParameterError("a value to round is infinite or not a number. Pass finite values.")
    total = float(np.abs(values).sum())
    if total >= _MAX_TOTAL:  # sums would no longer fit: each value by itself, as it is a release that was paid for
        return np.rint(values).astype(np.int64)
    links, below = [], np.arange(values.size + 1)  # the starts of each level, counted in nodes of the level below
    for starts in levels:
        link = np.searchsorted(below, starts)
        if starts.size == 0 or starts[0] != 0 or starts[-1] != values.size or np.any(np.diff(starts) < 0):
            raise ParameterError("the starts of a level must ascend from 0 to the number of values. Check their order.")
        if np.any(below[link] != starts):
            raise ParameterError("a node ends inside a node of the level below. Pass nested levels.")
        link[-1] = below.size - 1  # empty nodes at the end have a parent too
        links.append(link)
        below = starts
    # Keep as many binary digits after the point as let all sums fit 62 bits, at most 32.
    bits = min(_MAX_BITS, 61 - int(total).bit_length())
    units = np.rint(np.ldexp(values, bits)).astype(np.int64)
    slack = min(int(SLACK * 2**_MAX_BITS), (1 << bits) // (4 * max(1, values.size)))  # at most 1/4 in total
    slacks = np.full(values.size, slack)
    nodes = [_bounded(units, slacks, bits)]
    for starts in links:
        units, slacks = _sums(units, starts), _sums(slacks, starts)
        nodes.append(_bounded(units, slacks, bits))
    top = nodes[-1]
    halves, numbers = np.flatnonzero(2 * top.remainders == 1 << bits), top.lows + (2 * top.remainders > 1 << bits)
    numbers[halves] += noise_arrays.below(noise, 2, halves.size)
    for starts, level in zip(reversed(links), reversed(nodes[:-1]), strict=True):
        # Give the children of each parent their low number, and the largest remainders one more.
        parents = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        raises = numbers - _sums(level.lows, starts)
        able = np.flatnonzero((level.remainders > 0) & (raises[parents] > 0))
        # One key orders by parent, then by remainder downwards.
        keys = (parents[able] << bits) + (1 << bits) - level.remainders[able]
        order = np.argsort(keys)
        keys, able = keys[order], able[order]
        served = np.flatnonzero(raises)
        firsts = np.searchsorted(parents[able], served)
        limits = np.zeros_like(raises)  # key of the last child to raise
        limits[served] = keys[firsts + raises[served] - 1]
        left = np.zeros_like(raises)  # how many children with exactly that key to raise
        left[served] = raises[served] - (np.searchsorted(keys, limits[served]) - firsts)
        owners = parents[able]
        tied = np.flatnonzero(keys == limits[owners])
        result = level.lows.copy()
        result[able[keys < limits[owners]]] += 1
        # Among tied children raise as many as each parent has left: the larger first, equals at random.
        children, parent_of = able[tied], owners[tied]
        shuffled = noise_arrays.permutation(noise, children.size)
        ordered = shuffled[np.lexsort((-level.lows[children[shuffled]], parent_of[shuffled]))]
        ranks = np.arange(children.size) - np.searchsorted(parent_of[ordered], parent_of[ordered])
        result[children[ordered[ranks < left[parent_of[ordered]]]]] += 1
        numbers = result
    return numbers


def _sums(units: IntArray, starts: IntArray) -> IntArray:
    running = np.concatenate([[0], np.cumsum(units)])
    return np.asarray(running[starts[1:]] - running[starts[:-1]], dtype=np.int64)


def _bounded(units: IntArray, slacks: IntArray, bits: int) -> _Level:
    lows, highs = (units + slacks) >> bits, -((slacks - units) >> bits)
    return _Level(lows, np.where(highs > lows, units - (lows << bits), 0))


# Bayes estimates of cells, made consistent with noisy sums by a second projection: what a count probably is, given its
# noisy value and those around it. A noisy value of 5 among thousands of empty cells is probably noise; the same value
# on a pair of stops that is busy in other windows probably is not. The noisy counts themselves decide how much each of
# these counts, so nothing is spent (docs/proofs/constrained-counts.md#bayes-estimates-margins).
#
# The model
# ---------
# A count has a mixture of geometric laws, and its noisy value adds discrete Laplace noise of known scale. The means of
# the geometric laws are of two kinds: fixed ones, the same for all cells, and multiples of the *expected* count of the
# cell, which is predicted from everything except the cell's own value. All cells share one set of mixture weights,
# fitted by expectation maximisation, which decides how far to trust the prediction. A few dozen weights for thousands
# of cells hardly fit the noise, and a mixture of falling laws cannot put an atom where noise happens to be large. Free
# priors for many strata of cells do both, and are worse than a table of zeros if trips are few.
#
# There are two rounds. The first predicts cells from coarse sums (and the margin of the pair, if there is one). The
# second predicts them from the first estimates of the other cells of the same pair; a third would hear the echo of
# each cell's own value. In the end the cells of a pair move towards its margin, as far as its noise allows.
#
# Sums in closed form
# -------------------
# With r = exp(-1 / scale), a geometric law (1 - p) p**n, and j = 0, 1, 2, the sums over n of n**j p**n r**abs(y - n)
# are geometric series, cut at y. For y <= 0 they are r**abs(y) times those at 0, so all such values say the same.

# Expectation maximisation stops early on purpose: if noise drowns all counts, it has then hardly moved from its
# sceptical start, while more steps would fit the mixture to the largest noise.
ITERATIONS = 60
PSEUDO_CELLS = 2.0  # belief in the first weights: keeps every law possible
RATE_BINS = 24  # classes of expected counts, by their logarithm
SMALLEST_MEAN = 2.0**-8  # of the fixed laws
MULTIPLES = 2.0 ** np.arange(-5, 6)  # means of the other laws, over the expected count
STEPS_PER_SCALE = 4  # noisy values are distinguished to a fourth of the scale of noise
SCALES_NEAR = 24  # beyond this many scales noise explains nothing, so values may be distinguished less finely
GROWTH = 1.05
OWN_RATE = 0.9  # weight of the rate of a join group; the rest is that of all cells, as no group is surely empty
SPREAD_OF_SQUARES = 2.24  # standard deviation of a squared Laplace number over its mean, the root of 5
MAX_CORRECTED = 0.1  # largest part of all trips that a correction by coarse sums is assumed to remove
NEAR_NOISE = 0.1  # smallest relative distance between the mean of a law and that of the noise
SMALLEST_SCALE = 0.02  # smaller noise is nonzero only once in 1e21 times
_TINY = 1e-300
_MIN_VARIANCE = 1e-9


class CellEstimate(NamedTuple):
    means: FloatArray  # of the law of each count, given the noisy counts
    variances: FloatArray


def estimate_cells(
    values: IntArray,  # noisy value of each cell: its count plus discrete Laplace noise
    scale: float,  # scale of that noise
    *,
    pairs: IntArray,  # pair of each cell, from 0; cells of a pair are expected to be busy together
    rates: FloatArray,
    margin: IntArray | None = None,
    margin_scale: float = 0.0,
) -> CellEstimate:
    if not values.size:
        return CellEstimate(means=np.zeros(0), variances=np.zeros(0))
    num_pairs = int(pairs.max()) + 1 if margin is None else len(margin)
    mean = float(rates.mean())
    expected = OWN_RATE * rates + (1 - OWN_RATE) * mean if mean > 0 else np.ones(rates.shape)
    of_pairs = np.bincount(pairs, expected, num_pairs).astype(np.float64)
    shares = expected / of_pairs[pairs]
    if margin is not None:
        expected = shares * posterior(margin, margin_scale, of_pairs).means[pairs]
    estimate = posterior(values, scale, expected)
    if values.size == num_pairs:  # no pair has other cells
        return estimate
    # Predict each cell from the other cells of its pair.
    others = np.maximum(np.bincount(pairs, estimate.means, num_pairs)[pairs] - estimate.means, 0.0)
    estimate = posterior(values, scale, np.asarray(others * shares / np.maximum(1 - shares, 1e-3)))
    if margin is None:
        return estimate
    # Move cells towards the noisy sums of their pairs, the doubtful ones most: the best linear correction.
    doubt = np.bincount(pairs, estimate.variances, len(margin)) + max(laplace_variance(margin_scale), _MIN_VARIANCE)
    step = (margin - np.bincount(pairs, estimate.means, len(margin))) / doubt
    return estimate._replace(means=np.maximum(estimate.means + step[pairs] * estimate.variances, 0.0))


def posterior(values: IntArray, scale: float, expected: FloatArray) -> CellEstimate:
    """Fit the mixture to noisy values, and return mean and variance of each count."""
    scale = max(scale, SMALLEST_SCALE)
    clipped = np.maximum(values, 0)  # values below zero say the same as zero
    grid, num_even = _grid(scale, int(clipped.max()))
    bins, centres = _binned(expected)
    means, first = _laws(centres, float(grid[-1]))
    tables = moments(grid[None, :, None].astype(np.float64), _apart(means, scale)[:, None, :], scale)
    # For each value the last place of the grid that is not above it, without the very last place
    places = clipped // int(grid[1])
    far = np.flatnonzero(places >= num_even)
    places[far] = np.minimum(np.searchsorted(grid, clipped[far], side="right") - 1, len(grid) - 2)
    nearest = places + (2 * clipped >= grid[places] + grid[places + 1])
    histogram = np.bincount(bins * len(grid) + nearest, minlength=len(centres) * len(grid))
    weights = fit_weights(tables[0], histogram.reshape(len(centres), len(grid)).astype(np.float64), first)
    mixed = [np.maximum(table @ weights, _TINY) for table in tables]
    mean = mixed[1] / mixed[0]
    variance = np.maximum(mixed[2] / mixed[0] - mean**2, 0.0)
    step = (clipped - grid[places]) / (grid[places + 1] - grid[places])
    flat = bins * len(grid) + places
    return CellEstimate(means=lookup(mean, flat, step), variances=lookup(variance, flat, step))


def fit_weights(
    likelihoods: FloatArray,
    histogram: FloatArray,
    first: FloatArray,
    iterations: int = ITERATIONS,
    belief: float = PSEUDO_CELLS,  # cells' worth of it in the first weights
) -> FloatArray:
    occurs = histogram > 0
    rows, cells = likelihoods[occurs], histogram[occurs]
    weights = first
    for _ in range(iterations):
        weights = weights * ((cells / np.maximum(rows @ weights, _TINY)) @ rows) + belief * first
        weights = weights / weights.sum()
    return weights


def moments(values: FloatArray, means: FloatArray, scale: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sums over n of n**j (1 - p) p**n r**abs(value - n) for j = 0, 1 and 2."""
    r, p = np.exp(-1 / scale), means / (1 + means)
    decay, power = np.exp(-values / scale), np.exp(values * np.log(np.maximum(p, _TINY)))
    # n from 0 to the value
    gap = r - p
    zeroth = (decay * r - power * p) / gap
    once = (p * r * decay - power * p * ((values + 1) * r - values * p)) / gap**2
    bracket = (values + 1) ** 2 * r**2 - (2 * values * (values + 1) - 1) * p * r + (values * p) ** 2
    twice = p * (decay * r * (r + p) - power * bracket) / gap**3
    # n beyond the value: p**(value + 1) r times the sums of (p r)**i (value + 1 + i)**j
    product, beyond = p * r, power * p * r / (1 - p * r)
    ahead = product / (1 - product)
    zeroth = zeroth + beyond
    once = once + beyond * (values + 1 + ahead)
    twice = twice + beyond * ((values + 1) ** 2 + 2 * (values + 1) * ahead + ahead * (1 + 2 * ahead))
    zeroth, once, twice = (np.maximum((1 - p) * part, 0.0) for part in (zeroth, once, twice))
    return zeroth, once, twice


def _grid(scale: float, top: int) -> tuple[IntArray, int]:
    """Return the noisy values to distinguish, evenly spaced while noise matters, and the number of even steps."""
    width = max(1, int(scale / STEPS_PER_SCALE))
    num_even = int(np.ceil(SCALES_NEAR * scale / width)) + 1
    grid = [width * step for step in range(num_even + 1)]
    while grid[-1] < top:
        grid.append(int(grid[-1] * GROWTH) + 1)
    return np.array(grid, dtype=np.int64), num_even


def _binned(expected: FloatArray) -> tuple[IntArray, FloatArray]:
    mean = float(expected.mean())
    kept = np.maximum(expected, 1e-6 * mean) if mean > 0 else np.ones(expected.shape)
    low, high = np.log(kept.min()), np.log(kept.max())
    bins = np.minimum((RATE_BINS * (np.log(kept) - low) / max(high - low, 1e-9)).astype(np.int64), RATE_BINS - 1)
    cells = np.bincount(bins, minlength=RATE_BINS)
    used = cells > 0
    numbers = np.cumsum(used) - 1
    return numbers[bins], np.bincount(bins, kept, RATE_BINS)[used] / cells[used]


def _laws(centres: FloatArray, top: float) -> tuple[FloatArray, FloatArray]:
    """Return the means of the laws for each bin of expected counts, and the first weights."""
    fixed = SMALLEST_MEAN * 2.0 ** np.arange(np.ceil(np.log2(max(top, 1.0) / SMALLEST_MEAN)) + 1)
    means = np.hstack(
        [np.zeros((len(centres), 1)), np.repeat(fixed[None], len(centres), axis=0), np.outer(centres, MULTIPLES)]
    )
    # At first, cells of each size are assumed to share the trips evenly: small counts are common, large ones rare.
    parts = (np.ones(1), (1 / fixed) / (1 / fixed).sum() / 2, (1 / MULTIPLES) / (1 / MULTIPLES).sum() / 2)
    return means, np.concatenate(parts) / 2


def _apart(means: FloatArray, scale: float) -> FloatArray:
    """Move means away from that of the geometric law that falls like the noise: near it the closed forms cancel."""
    same = 1 / np.expm1(1 / scale)
    near = np.abs(means / same - 1) < NEAR_NOISE
    return np.where(near, same * np.where(means < same, 1 - NEAR_NOISE, 1 + NEAR_NOISE), means)


def lookup(table: FloatArray, flat: IntArray, step: FloatArray) -> FloatArray:
    """Look values up in a table by its flat places, and interpolate between two neighbours."""
    listed = table.reshape(-1)
    lower = listed[flat]
    return np.asarray(lower + step * (listed[flat + 1] - lower))


def reconciling_ratios(
    estimate: CellEstimate,
    scale: float,
    *,
    starts: IntArray,  # where each join group starts, and the number of cells
    groups: Sequence[IntArray],  # for each coarse feature the group of each join group
    sums: Sequence[FloatArray],
    variances: Sequence[float],
    total: float,  # all trips, according to coarse sums
) -> tuple[float, ...]:
    """Return the weight of noisy sums relative to estimated cells when both are made consistent."""
    # The sum of estimates over a group has an error of three kinds: the rest of the noise of its cells; the error of
    # the mixture for that group, which may misplace all trips that rest on the mixture more than on their cells'
    # values; and what the noisy sums themselves show, if it is more than their noise explains. The weight of a feature
    # is that error over the variance of its noise and over the number of cells in a group that can move; at most the
    # number of cells in a group, which is its weight in the paper.
    num_cells = len(estimate.means)
    joined = np.diff(np.concatenate(([0.0], np.cumsum(estimate.means)))[starts])
    # Per cell, the remaining variance and the trips that rest on the mixture alone
    own = np.minimum(estimate.variances / max(laplace_variance(scale), _MIN_VARIANCE), 1.0)
    resting = float(estimate.means @ (1 - own))
    misplaced = max(total - float(estimate.means @ own), resting, 1.0)
    left, misplaced = max(float(estimate.variances.mean()), _MIN_VARIANCE), misplaced / len(own)
    # The total reduction if every cell is lowered by the k-th smallest mean, but not below zero
    rising = np.sort(estimate.means)
    levels = np.cumsum(rising) + np.arange(len(rising) - 1, -1, -1) * rising
    ratios = []
    for codes, noisy, spread in zip(groups, sums, variances, strict=True):
        size, variance = num_cells / len(noisy), max(spread, _MIN_VARIANCE)
        off = noisy - np.bincount(codes, joined, len(noisy))
        shown = float(np.mean(off**2)) - variance * (1 + SPREAD_OF_SQUARES / np.sqrt(len(noisy)))
        error = max(size * left + (size * misplaced) ** 2, shown)
        # Cells that the likely correction would reduce to zero cannot move: half of the correction is downward.
        correction = error / (error + variance) * float(np.abs(off).sum()) / 2
        moving = num_cells - np.searchsorted(levels, min(correction, MAX_CORRECTED * levels[-1]))
        ratios.append(min(error / variance * len(noisy) / max(int(moving), 1), size))
    return tuple(ratios)


def laplace_variance(scale: float) -> float:
    return float(2 * np.exp(-1 / scale) / np.expm1(-1 / scale) ** 2)


_STEPS = 2.0**16  # steps per trip of the grid of estimates: projections of whole tables need whole numbers


class Margin(NamedTuple):
    pairs: IntArray  # pair of each cell, in the order of the cells
    sums: IntArray  # noisy sums over the cells of each pair
    scale: float  # of their noise


def project_estimates(
    noisy: IntArray,  # noisy cells, join group by join group
    scale: float,  # of their noise
    *,
    starts: IntArray,  # where each join group starts, and the number of cells
    margin: Margin,
    family: Family,
    sums: Sequence[FloatArray],  # noisy sums of coarse features
    variances: Sequence[float],  # of the noise of each
) -> Projection:
    """Return consistent, non-negative counts near the Bayes estimates of cells, however exact they are."""
    plain = project_dense(noisy, starts, family, sums, tolerance=math.inf)
    sizes = np.diff(starts)
    rates = np.repeat(np.add.reduceat(plain.x, starts[:-1]) / sizes, sizes)
    estimate = estimate_cells(
        noisy, scale, pairs=margin.pairs, rates=rates, margin=margin.sums, margin_scale=margin.scale
    )
    ratios = reconciling_ratios(
        estimate, scale, starts=starts, groups=family.groups, sums=sums, variances=variances, total=float(plain.x.sum())
    )
    largest = float(estimate.means.max(initial=1.0))
    steps = min(_STEPS, 2.0 ** (52 - math.frexp(largest)[1]))  # whole numbers must stay exact
    values, weighted = np.rint(estimate.means * steps).astype(np.int64), replace(family, ratios=ratios)
    projection = project_dense(values, starts, weighted, [part * steps for part in sums], tolerance=math.inf)
    return replace(projection, x=projection.x / steps)
